//! Checks that docs/example-kind.md shows examples/greeting.rs as it is.

use std::fs;
use std::path::Path;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_page_of_the_example_kind_quotes_the_whole_kind() {
    let (page, example) = (text("docs/example-kind.md"), text("examples/greeting.rs"));
    let blocks = page.split("```rust\n").skip(1);
    let quoted: Vec<&str> = blocks
        .map(|block| block.split("\n```").next().unwrap())
        .collect();
    let kind = &example[example.find("// crd.rs").unwrap()..example.find("#[tokio::main").unwrap()];
    assert_eq!(quoted.join("\n\n"), kind.trim_end());
}
