//! Man pages, made from the definitions of the flags.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::{PROGRAMS, links};

/// The flag that writes the pages. It is for those who package the program, and in no help.
pub(crate) const FLAG: &str = "--write-man-pages";

/// Writes a page for every command, and every command below it, into the folder.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| links::of(folder, &error))?;
    for program in PROGRAMS {
        let mut command = (program.command)();
        command.build();
        page(&command, program.name, folder)?;
    }
    Ok(())
}

fn page(command: &clap::Command, name: &str, folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let written = File::create(&path).and_then(|mut file| man.render(&mut file));
    written.map_err(|error| links::of(&path, &error))?;
    for below in command
        .get_subcommands()
        .filter(|it| it.get_name() != "help")
    {
        page(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        for program in PROGRAMS {
            let page = folder.path().join(format!("{}.1", program.name));
            let text = std::fs::read_to_string(page).unwrap();
            assert!(text.contains(r"\-\-kubeconfig"), "{text}");
            assert!(
                text.contains(".SH OPTIONS") || text.contains(".SH SYNOPSIS"),
                "{text}"
            );
        }
    }
}
