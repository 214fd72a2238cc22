//! .github/workflows: they only call targets of the Makefile, so that all they do can be done here.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::checkout::{checkout, files, toolchain};
use crate::make::{called_by, targets};

/// What prepares a runner that is not a container: the toolchain.
const TOOLCHAIN: [&str; 2] = ["rustup target add ", "cargo install --locked "];

/// The workflows with their names.
fn workflows() -> Vec<(String, Value)> {
    let found = files(&checkout().join(".github/workflows"), "yml");
    let parsed = found.into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(path).unwrap();
        (name, serde_saphyr::from_str(&text).unwrap())
    });
    parsed.collect()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap())
}

#[test]
fn there_are_workflows_for_lint_test_e2e_and_release() {
    let names: BTreeSet<_> = workflows().into_iter().map(|(name, _)| name).collect();
    for name in ["lint", "test", "e2e", "release"] {
        assert!(names.contains(name), "{names:?}");
    }
}

#[test]
fn workflows_run_targets_of_the_makefile_and_nothing_else() {
    let targets = targets();
    let mut called = BTreeSet::new();
    for (name, workflow) in workflows() {
        for step in steps(&workflow) {
            let Some(run) = step["run"].as_str() else {
                assert!(step["uses"].is_string(), "{name}: {step}");
                continue;
            };
            if TOOLCHAIN.iter().any(|start| run.starts_with(start)) {
                continue;
            }
            assert!(
                run.starts_with("make "),
                "{name}: {run}: move it into a target of the Makefile"
            );
            for target in called_by(run) {
                assert!(targets.contains(target), "{name}: no target {target}");
                called.insert(target.to_owned());
            }
        }
    }
    for target in ["lint", "advisories", "test", "e2e", "release-dry-run"] {
        assert!(called.contains(target), "no workflow calls {target}");
    }
}

#[test]
fn workflows_may_only_read_unless_a_job_says_so() {
    for (name, workflow) in workflows() {
        assert_eq!(
            workflow["permissions"],
            serde_json::json!({"contents": "read"}),
            "{name}"
        );
    }
}

#[test]
fn workflows_use_the_toolchain_of_the_checkout() {
    let expected = format!("docker.io/library/rust:{}-bookworm@", toolchain());
    for (name, workflow) in workflows() {
        for job in workflow["jobs"].as_object().unwrap().values() {
            let container = &job["container"];
            if let Some(image) = container.as_str().or(container["image"].as_str()) {
                assert!(image.starts_with(&expected), "{name}: {image}");
            }
        }
    }
}
