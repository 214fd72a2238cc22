//! Images as a Dockerfile describes them, where its last stage runs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Image;
use crate::error::Error;

impl Image {
    /// The image that the last stage of a Dockerfile makes: `text` is the file, `context` the build's directory,
    /// `built` what earlier stages have made (the path there, and where it is here), `arguments` those of
    /// `--build-arg`.
    ///
    /// # Errors
    ///
    /// If the stage is not `FROM scratch`, or has an instruction other than ARG, LABEL, COPY, USER, ENTRYPOINT and CMD,
    /// or one of these in a form that is not known here: better no image than one that `docker build` would not make.
    pub fn from_dockerfile(
        reference: &str,
        text: &str,
        context: &Path,
        built: &[(&str, PathBuf)],
        arguments: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let mut image = Self::new(reference);
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        let lines = instructions(text);
        let last = lines.iter().rposition(|line| line.starts_with("FROM "));
        let stage = &lines[last.unwrap_or_default()..];
        if stage.first().map(String::as_str) != Some("FROM scratch") {
            return Err(refuse("its last stage is not FROM scratch"));
        }
        for line in &stage[1..] {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = substitute(rest, &values)?;
            match word {
                "ARG" => {
                    let (name, default) = rest.split_once('=').unwrap_or((&rest, ""));
                    let given = arguments.iter().find(|(given, _)| *given == name);
                    let value = given.map_or(default, |(_, value)| value);
                    values.insert(name.to_owned(), value.to_owned());
                }
                "LABEL" => {
                    for (name, value) in pairs(&rest)? {
                        image = image.label(&name, &value);
                    }
                }
                "COPY" => {
                    let words: Vec<_> = rest.split(' ').collect();
                    image = match words[..] {
                        [stage, from, to] if stage.starts_with("--from=") => {
                            let found = built.iter().find(|(path, _)| *path == from);
                            let (_, of) = found.ok_or_else(|| {
                                refuse(&format!("{line}: no path was given for {from}"))
                            })?;
                            image.copy(to, of)?
                        }
                        [from, to] if !from.starts_with("--") => {
                            image.copy(to, context.join(from))?
                        }
                        _ => return Err(refuse(line)),
                    };
                }
                "USER" => image = image.user(&rest),
                "ENTRYPOINT" => image.entrypoint = list(&rest)?,
                "CMD" => image.command = list(&rest)?,
                _ => return Err(refuse(line)),
            }
        }
        Ok(image)
    }
}

/// The instructions: comments and blank lines gone, continued lines joined.
fn instructions(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Replaces `${NAME}` with its value.
fn substitute(text: &str, values: &BTreeMap<String, String>) -> Result<String, Error> {
    let mut text = text.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    if text.contains('$') {
        return Err(refuse(&format!("{text}: a variable without a value")));
    }
    Ok(text)
}

/// `a="b c" d="e"` as pairs.
fn pairs(text: &str) -> Result<Vec<(String, String)>, Error> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let pair = rest.split_once("=\"").and_then(|(name, rest)| {
            let (value, rest) = rest.split_once('"')?;
            Some((name, value, rest))
        });
        let (name, value, after) = pair.ok_or_else(|| refuse(&format!("LABEL {text}")))?;
        pairs.push((name.to_owned(), value.to_owned()));
        rest = after.trim();
    }
    Ok(pairs)
}

/// A list in JSON, the form without a shell.
fn list(text: &str) -> Result<Vec<String>, Error> {
    serde_json::from_str(text).map_err(|_| refuse(&format!("{text} would need a shell")))
}

fn refuse(what: &str) -> Error {
    Error::Failed {
        action: "make an image of the Dockerfile".to_owned(),
        output: what.to_owned(),
    }
}
