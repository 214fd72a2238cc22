//! The file of `--template`, read as kubectl reads manifests.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use my_operator_admit::{read, yaml};
use serde_json::Value;

use crate::connection::{Failure, root};

/// More than a pod template needs: the API server takes no larger object.
const MAX_LEN: u64 = 3 << 19;

/// Reads the one document of the file.
pub(super) fn read(path: &Path) -> Result<Value, Failure> {
    let failed = |what: String| Failure::Message(format!("--template {}: {what}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(root(&error)))?;
    let read = file.take(MAX_LEN + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(root(&error)))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_LEN) {
        return Err(failed("it is too large for a pod template".to_owned()));
    }
    document(bytes).map_err(failed)
}

/// The value of the only document in these bytes. kubectl reads YAML 1.1, where `0400` is octal and `yes` is true, and so
/// must this program: a reader of YAML 1.2 would create another pod than `kubectl create -f` of the same file.
fn document(bytes: Vec<u8>) -> Result<Value, String> {
    let text = read::decode(bytes)?;
    let mut found = None;
    let mut several = false;
    yaml::documents(&text, &mut |document| {
        several |= found.is_some();
        found.get_or_insert(document.content);
    });
    let node = match found {
        None => return Err("the file is empty".to_owned()),
        Some(Err(wrong)) => return Err(format!("line {}: {}", wrong.line, wrong.message)),
        Some(Ok(_)) if several => {
            return Err("the file has several documents: give one pod template".to_owned());
        }
        Some(Ok(node)) => node,
    };
    Ok(node.value())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document_of(text: &str) -> Result<Value, String> {
        document(text.as_bytes().to_vec())
    }

    #[test]
    fn values_are_those_of_yaml_1_1_as_kubectl_reads_them() {
        for (text, value) in [
            ("defaultMode: 0400", json!({"defaultMode": 0o400})),
            ("a: 017", json!({"a": 15})),
            ("a: yes", json!({"a": true})),
            ("a: off", json!({"a": false})),
            ("a: 1_000", json!({"a": 1000})),
            ("a: \"0400\"", json!({"a": "0400"})),
            ("\u{feff}a: 1", json!({"a": 1})),
            ("---\na: 1\n---\n", json!({"a": 1})),
            (r#"{"a": 0.5}"#, json!({"a": 0.5})),
        ] {
            assert_eq!(document_of(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_mistake_in_the_file_is_one_line_with_its_place() {
        for (text, error) in [
            (
                "spec:\n  a: 1\n  a: 2\n",
                "line 3: key \"a\" already set in map",
            ),
            ("", "the file is empty"),
            ("# nothing\n---\n", "the file is empty"),
            (
                "a: 1\n---\nb: 2\n",
                "the file has several documents: give one pod template",
            ),
            ("a: \0", "line 1: control characters are not allowed"),
        ] {
            assert_eq!(document_of(text), Err(error.to_owned()), "{text:?}");
        }
        for text in ["a: [1\nb: 2\n", "a: b: c", "a: &b *b"] {
            let error = document_of(text).err().unwrap_or_default();
            assert!(error.starts_with("line "), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert_eq!(
            document(vec![b'a', b'\n', 0xff]),
            Err("not valid UTF-8, in line 2".to_owned())
        );
    }
}
