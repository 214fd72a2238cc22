//! action.yml and .pre-commit-hooks.yaml: what they say is run as they say it, by the programs that are here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use my_operator_harness::markdown::code_blocks;
use serde_json::Value;

use crate::admit::{BAD, GOOD};
use crate::checkout::text;

fn parsed(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap()
}

/// A folder with manifests, as a checkout of a user has it.
fn manifests() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("my manifests/deep")).unwrap();
    for (name, text) in [
        ("my manifests/values.yaml", "a: 1\n"),
        ("my manifests/deep/bad.yaml", BAD),
        ("good.yaml", GOOD),
        ("$(touch run).yaml", GOOD),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs a command in the folder, with `my-operator` in the PATH.
fn run(command: &mut Command, folder: &Path) -> Output {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_my-operator"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    command
        .env("PATH", path)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Runs the action with these inputs, as a runner does.
fn act(action: &Value, inputs: &[(&str, &str)], folder: &Path) -> (i32, String) {
    let step = &action["runs"]["steps"][0];
    let mut command = Command::new("bash");
    // What `shell: bash` means.
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]);
    command.arg(step["run"].as_str().unwrap());
    for (name, value) in step["env"].as_object().unwrap() {
        let input = value.as_str().unwrap();
        let input = input.strip_prefix("${{ inputs.").unwrap();
        let input = input.strip_suffix(" }}").unwrap();
        let given = inputs.iter().find(|(name, _)| *name == input);
        let default = action["inputs"][input]["default"].as_str();
        let value = given.map(|(_, value)| *value).or(default);
        command.env(name, value.unwrap_or_default());
    }
    let output = run(&mut command, folder);
    let out = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), out)
}

#[test]
fn the_action_checks_its_paths_and_annotates_the_lines() {
    let action = parsed("action.yml");
    for key in ["name", "description"] {
        assert!(action[key].is_string(), "{key}");
    }
    assert_eq!(action["runs"]["using"], "composite");
    let steps = action["runs"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0]["shell"], "bash");
    assert!(!steps[0]["run"].as_str().unwrap().contains("${{"));

    let folder = manifests();
    let paths = "my manifests\n\n$(touch run).yaml\ngood.yaml\n";
    let (code, out) = act(&action, &[("paths", paths)], folder.path());
    assert_eq!(code, 1, "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let skipped = "note: skipped 1 document that is not a Kubernetes object (-v lists it)";
    assert_eq!(lines[0], skipped);
    assert!(
        lines[1].starts_with("::error file=my manifests/deep/bad.yaml,line=4,col=1,title="),
        "{out}"
    );
    assert_eq!(
        lines[2..],
        ["2 accepted, 1 refused, 0 passed over, 0 unreadable"]
    );
    assert!(!folder.path().join("run").exists());
    let (code, out) = act(&action, &[("paths", "good.yaml")], folder.path());
    assert_eq!(code, 0, "{out}");
    let (code, out) = act(&action, &[("paths", " \n")], folder.path());
    assert_eq!(code, 2, "{out}");
    let missing = [("paths", "good.yaml"), ("program", "./no-such-program")];
    let (code, out) = act(&action, &missing, folder.path());
    assert_eq!(code, 127, "{out}");
}

#[test]
fn the_hook_of_pre_commit_checks_the_files_that_it_is_given() {
    let hooks = parsed(".pre-commit-hooks.yaml");
    let hooks = hooks.as_array().unwrap();
    assert_eq!(hooks.len(), 1);
    let hook = &hooks[0];
    for key in ["id", "name", "entry", "language"] {
        assert!(hook[key].is_string(), "{key}");
    }
    assert_eq!(hook["language"], "system");
    let mut words = hook["entry"].as_str().unwrap().split_whitespace();
    let program = words.next().unwrap();
    let words: Vec<&str> = words.collect();
    let folder = manifests();
    for (files, expected) in [
        (&["good.yaml", "$(touch run).yaml"][..], 0),
        (&["good.yaml", "my manifests/deep/bad.yaml"][..], 1),
    ] {
        let mut command = Command::new(program);
        let output = run(command.args(&words).args(files), folder.path());
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
    }
}

/// What docs/admit.md shows of them has their names.
#[test]
fn the_page_uses_the_action_and_the_hook_as_they_are() {
    let (action, hooks) = (parsed("action.yml"), parsed(".pre-commit-hooks.yaml"));
    let page = text("docs/admit.md");
    let mut blocks = code_blocks(&page);
    blocks.retain(|block| block.info == "yaml");
    let blocks: Vec<Value> = blocks
        .iter()
        .map(|block| serde_saphyr::from_str(&block.text()).unwrap())
        .collect();
    let steps = blocks.iter().filter_map(Value::as_array).flatten();
    let mut used = steps.filter(|step| {
        let uses = step["uses"].as_str();
        uses.is_some_and(|uses| uses.starts_with("OWNER/REPO@"))
    });
    let with = used.next().unwrap()["with"].as_object().unwrap();
    for input in with.keys() {
        assert!(action["inputs"][input].is_object(), "{input}");
    }
    assert!(with.contains_key("paths"));
    let repos = blocks.iter().filter_map(|block| block["repos"].as_array());
    let ids: Vec<&Value> = repos
        .flatten()
        .map(|repo| &repo["hooks"][0]["id"])
        .collect();
    assert!(ids.contains(&&hooks[0]["id"]), "{ids:?}");
}
