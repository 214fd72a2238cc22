//! `my-operator-cluster image`: the image of a Dockerfile, without an engine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use my_operator_cluster::Image;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The Dockerfile; the folder it is in is the context
    #[arg(long, value_name = "FILE", default_value = "Dockerfile")]
    file: PathBuf,
    /// What an earlier stage makes, and where it is here
    #[arg(long, value_name = "PATH=FILE", value_parser = pair)]
    built: Vec<(String, String)>,
    /// A value for an ARG
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    build_arg: Vec<(String, String)>,
    /// The architecture of the programs, like amd64 or arm64; by default that of this machine
    #[arg(long)]
    architecture: Option<String>,
    /// The name of the image
    #[arg(long, value_name = "NAME")]
    tag: String,
    /// The archive to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("there is no = in it")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn write(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.file;
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let context = file.parent().unwrap_or(file);
    let built = arguments.built.iter();
    let built: Vec<_> = built
        .map(|(path, file)| (path.as_str(), PathBuf::from(file)))
        .collect();
    let build_args = arguments.build_arg.iter();
    let build_args: Vec<_> = build_args
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut image = Image::from_dockerfile(&arguments.tag, &text, context, &built, &build_args)?;
    if let Some(architecture) = &arguments.architecture {
        image = image.architecture(architecture);
    }
    image.write(&arguments.output)?;
    Ok(ExitCode::SUCCESS)
}
