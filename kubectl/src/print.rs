//! How kubectl prints what a command did: the words of a dry run, and objects as YAML and JSON.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::connection::Failure;
use crate::terminal;

/// How far a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    None,
    Client,
    Server,
}

impl DryRun {
    /// What follows the words for what happened.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// How a changed object is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Name,
    Json,
    Yaml,
}

impl Format {
    /// Prints an object. `name` is its name for other commands of kubectl.
    pub(crate) fn print(
        self,
        name: &str,
        object: Value,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        match self {
            Self::Name => Ok(writeln!(out, "{name}")?),
            Self::Json => json(&without_managed_fields(object), out),
            Self::Yaml => yaml(&without_managed_fields(object), out),
        }
    }
}

/// Prints the failure of one of several objects. That of the output itself ends the program.
pub(crate) fn reported(result: Result<(), Failure>) -> Result<u8, Failure> {
    match result {
        Ok(()) => Ok(0),
        Err(Failure::Output(error)) => Err(Failure::Output(error)),
        Err(failure) => {
            writeln!(io::stderr(), "{failure}")?;
            Ok(1)
        }
    }
}

/// Says, as kubectl get does, that a table would be empty.
pub(crate) fn none_in(namespace: Option<&str>) -> io::Result<()> {
    let place = match namespace {
        Some(namespace) => format!(" in {} namespace.", terminal::harmless(namespace)),
        None => String::new(),
    };
    writeln!(io::stderr(), "No resources found{place}")
}

/// As one document of YAML.
///
/// # Errors
/// When it cannot be written.
pub fn yaml(object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_saphyr::to_string(object)
        .map_err(|error| format!("cannot write it as YAML: {error}"))?;
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// With four blanks, as kubectl indents.
///
/// # Errors
/// When it cannot be written.
pub fn json(object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, formatter);
    serde::Serialize::serialize(object, &mut serializer).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// A list of objects, written one after the other: no more than one is in memory.
pub struct Objects {
    json: bool,
    any: bool,
}

impl Objects {
    /// A list as JSON, or else as YAML.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(json: bool, out: &mut dyn Write) -> Result<Self, Failure> {
        let start = if json {
            "{\n    \"apiVersion\": \"v1\",\n    \"items\": ["
        } else {
            "apiVersion: v1\nitems:"
        };
        out.write_all(start.as_bytes())?;
        Ok(Self { json, any: false })
    }

    /// Adds an object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, object: Value, out: &mut dyn Write) -> Result<(), Failure> {
        let object = without_managed_fields(object);
        let mut text = Vec::new();
        // Neither form has a line that may not be indented: strings of JSON have no newlines, and the text of a block of
        // YAML counts from the blanks before it.
        let (separator, first, rest) = if self.json {
            json(&object, &mut text)?;
            (if self.any { "," } else { "" }, "        ", "        ")
        } else {
            yaml(&object, &mut text)?;
            ("", "- ", "  ")
        };
        write!(out, "{separator}")?;
        let text = String::from_utf8_lossy(&text);
        for (index, line) in text
            .strip_suffix('\n')
            .unwrap_or(&text)
            .split('\n')
            .enumerate()
        {
            let indent = if index == 0 { first } else { rest };
            let indent = if line.is_empty() { "" } else { indent };
            write!(out, "\n{indent}{line}")?;
        }
        self.any = true;
        Ok(())
    }

    /// Ends the list.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(self, out: &mut dyn Write) -> Result<(), Failure> {
        let text = match (self.json, self.any) {
            (true, any) => {
                let close = if any { "\n    ]" } else { "]" };
                format!(
                    "{close},\n    \"kind\": \"List\",\n    \"metadata\": {{\n        \"resourceVersion\": \"\"\n    }}\n}}\n"
                )
            }
            (false, true) => "\nkind: List\nmetadata:\n  resourceVersion: \"\"\n".to_owned(),
            (false, false) => " []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n".to_owned(),
        };
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// The object without what kubectl leaves out unless it is asked for.
pub fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// As kubectl reads it, which is YAML 1.1.
    fn read_back(text: &str) -> Value {
        let mut values = Vec::new();
        my_operator_admit::yaml::documents(text, &mut |document| {
            values.push(document.content.unwrap().value());
        });
        assert_eq!(values.len(), 1, "{text}");
        values.remove(0)
    }

    #[test]
    fn a_text_stays_a_text_in_yaml() {
        for text in [
            "yes",
            "y",
            "N",
            "on",
            "Off",
            "0400",
            "017",
            "0x1f",
            "0b1",
            "0o7",
            "1_000",
            "1e3",
            "12:30:00",
            "~",
            "null",
            "=",
            "<<",
            "2026-11-27",
            "",
            " ",
            "- a",
            "a: b",
            "# a",
            ".5",
            "+1",
            "-1",
            ".inf",
            "!x",
            "&a",
            "*a",
            "@a",
            "`a`",
            "%a",
            "---",
            "...",
            "a\n---\nb",
            "a\n",
            "\na",
            "  a\n b",
            "\t",
            "a\tb",
            "a\r\nb",
            "\u{1b}[2J",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "true ",
            "日報",
        ] {
            let object = json!({"command": text, text: [text]});
            let mut written = Vec::new();
            yaml(&object, &mut written).unwrap();
            let written = String::from_utf8(written).unwrap();
            assert_eq!(read_back(&written), object, "{text:?}: {written:?}");
        }
    }

    #[test]
    fn a_list_reads_back_as_what_was_added() {
        let objects = [
            json!({"metadata": {"name": "a", "managedFields": [1]}, "spec": {"command": "a\n  b\n\nc \n"}}),
            json!({"metadata": {"name": "b"}, "spec": {"command": "- x: |\n", "list": [[1], {"a": []}]}}),
        ];
        for count in 0..=objects.len() {
            let mut texts = [Vec::new(), Vec::new()];
            let [json_text, yaml_text] = &mut texts;
            let mut lists = [
                (Objects::new(true, json_text).unwrap(), json_text),
                (Objects::new(false, yaml_text).unwrap(), yaml_text),
            ];
            for (list, out) in &mut lists {
                for object in &objects[..count] {
                    list.add(object.clone(), *out).unwrap();
                }
            }
            for (list, out) in lists {
                list.end(out).unwrap();
            }
            let items: Vec<Value> = objects[..count]
                .iter()
                .cloned()
                .map(without_managed_fields)
                .collect();
            let expected = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
            let [json_text, yaml_text] = texts.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(
                serde_json::from_str::<Value>(&json_text).unwrap(),
                expected,
                "{json_text}"
            );
            assert_eq!(read_back(&yaml_text), expected);
            // What kubectl would write.
            let mut whole = Vec::new();
            json(&expected, &mut whole).unwrap();
            assert_eq!(json_text, String::from_utf8(whole).unwrap());
        }
    }
}
