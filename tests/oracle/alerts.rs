//! The alerts of `config/components/prometheus`: Prometheus's own promtool reads them and tries each on
//! figures that should set it off, and on some that should not (`tests/alerts`). That the operator has
//! the figures is shown by `tests/control_plane/cluster/figures.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use my_operator_cluster::binaries;
use serde_json::Value;

use crate::harness::alerts::groups;
use crate::harness::checkout;

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn alerts(rules: &mut Value) -> impl Iterator<Item = &mut Value> {
    let groups = rules["groups"].as_array_mut().unwrap().iter_mut();
    groups.flat_map(|group| group["rules"].as_array_mut().unwrap())
}

/// Runs promtool in a folder, and wants it to find nothing wrong.
pub(crate) fn promtool(folder: &Path, args: &[&str]) {
    let mut promtool = Command::new(binaries::promtool().unwrap());
    let output = promtool.current_dir(folder).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}:\n{said}");
}

/// The files with tests.
fn tries() -> Vec<std::path::PathBuf> {
    let folder = fs::read_dir(checkout().join("tests/alerts")).unwrap();
    let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

#[test]
fn promtool_finds_nothing_wrong_with_the_alerts() {
    let folder = tempfile::tempdir().unwrap();
    // JSON is YAML.
    fs::write(folder.path().join("rules.yaml"), groups().to_string()).unwrap();
    promtool(
        folder.path(),
        &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"],
    );
}

#[test]
fn each_alert_goes_off_when_it_should_and_not_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let mut rules = groups();
    // Otherwise each test would have to repeat the text of the annotations.
    for alert in alerts(&mut rules) {
        alert.as_object_mut().unwrap().remove("annotations");
    }
    fs::write(folder.path().join("rules.yaml"), rules.to_string()).unwrap();
    let mut arguments = vec!["test".to_owned(), "rules".to_owned()];
    for path in tries() {
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::copy(&path, folder.path().join(name)).unwrap();
        arguments.push(name.to_owned());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    promtool(folder.path(), &arguments);
}

#[test]
fn each_alert_is_tried_both_ways() {
    let mut tried = BTreeSet::new();
    for path in tries() {
        for test in yaml(&path)["tests"].as_array().unwrap() {
            for one in test["alert_rule_test"].as_array().unwrap() {
                let name = one["alertname"].as_str().unwrap().to_owned();
                let goes_off = !one["exp_alerts"].as_array().unwrap().is_empty();
                tried.insert((name, goes_off));
            }
        }
    }
    let mut rules = groups();
    let wanted: BTreeSet<_> = alerts(&mut rules)
        .map(|alert| alert["alert"].as_str().unwrap().to_owned())
        .flat_map(|name| [(name.clone(), false), (name, true)])
        .collect();
    assert_eq!(tried, wanted);
}

#[test]
fn each_alert_says_what_it_means_and_where_to_read_on() {
    let page = fs::read_to_string(checkout().join("docs/operations/alerts.md")).unwrap();
    let documented: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## MyOperator"))
        .map(|name| format!("MyOperator{name}"))
        .collect();
    let mut named = Vec::new();
    for alert in alerts(&mut groups()) {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let severity = &alert["labels"]["severity"];
        assert!(severity == "critical" || severity == "warning", "{name}");
        let said = &alert["annotations"];
        for what in ["summary", "description"] {
            let text = said[what].as_str().unwrap_or_default();
            assert!(text.len() > 20 && text.ends_with('.'), "{name}: {what}");
        }
        // As Markdown makes anchors of headings.
        let runbook = format!("docs/operations/alerts.md#{}", name.to_lowercase());
        assert_eq!(said["runbook_url"], runbook, "{name}");
        named.push(name);
    }
    assert_eq!(
        named, documented,
        "the headings of docs/operations/alerts.md"
    );
}
