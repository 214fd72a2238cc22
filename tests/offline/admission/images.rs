//! The grammar of images against the module that the kubelet uses: every row of the table that
//! `tests/oracle` makes. (The parser's own tests hold it against `oci-spec` too.)

use std::fs;
use std::path::Path;

use my_operator_kind::image::{ImageError, Reference, parse};
use serde::Deserialize;

/// What the module said of a string.
#[derive(Deserialize)]
struct Row {
    image: String,
    error: Option<String>,
    #[serde(default)]
    domain: String,
    #[serde(default)]
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/images.jsonl");
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// Where we are meant to differ, and why. There is one such rule.
fn meant_to_differ(image: &str) -> Option<&'static str> {
    (parse(image) == Err(ImageError::Port)).then_some("nothing can listen on a port above 65535")
}

/// Host and path as the module normalises them.
fn normalised(reference: &Reference<'_>) -> (String, String) {
    let Some(host) = reference.host else {
        // What only looks like a host, such as `r_x.io`, the module leaves without any.
        let first = reference
            .path
            .split_once('/')
            .map_or("", |(first, _)| first);
        return if first.contains('.') {
            (String::new(), reference.path.to_owned())
        } else {
            on_docker_hub(reference.path)
        };
    };
    match host {
        "docker.io" | "index.docker.io" => on_docker_hub(reference.path),
        host => (host.to_owned(), reference.path.to_owned()),
    }
}

fn on_docker_hub(path: &str) -> (String, String) {
    let library = if path.contains('/') { "" } else { "library/" };
    ("docker.io".to_owned(), format!("{library}{path}"))
}

#[test]
fn every_row_of_the_table_is_read_as_the_kubelet_reads_it() {
    let mut wrong = Vec::new();
    let mut meant = 0;
    let table = table();
    assert!(table.len() > 6_000, "{}", table.len());
    for row in &table {
        let ours = parse(&row.image);
        let same = match (&ours, &row.error) {
            (Err(_), Some(_)) => true,
            (Ok(ours), None) => {
                normalised(ours) == (row.domain.clone(), row.path.clone())
                    && ours.tag == row.tag.as_deref()
                    && ours.digest == row.digest.as_deref()
            }
            _ => false,
        };
        if same {
            continue;
        }
        match meant_to_differ(&row.image) {
            Some(_) => meant += 1,
            None => wrong.push(format!(
                "{:?}: {ours:?}, the module: {:?}",
                row.image, row.error
            )),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // A list of exceptions that nothing needs any more would hide mistakes.
    assert!(
        meant > 10,
        "the table has hardly a port that is meant to differ: {meant}"
    );
}
