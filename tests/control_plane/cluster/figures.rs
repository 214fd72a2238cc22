//! The metrics that alerts and docs name are those that the operator exposes.

use std::collections::BTreeSet;
use std::fs;

use crate::cluster::at::at_when;
use crate::cluster::{environment, kubectl};
use crate::harness::{checkout, wait_for};

/// What PromQL has of its own among the words that are no functions (those have a parenthesis behind).
const WORDS: [&str; 10] = [
    "and",
    "or",
    "unless",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "by",
];

/// The names of metrics in an expression of PromQL.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    while let Some(c) = rest.chars().next() {
        let skip = match c {
            // Labels, ranges and texts.
            '{' => rest.find('}').unwrap() + 1,
            '[' => rest.find(']').unwrap() + 1,
            '"' => rest[1..].find('"').unwrap() + 2,
            c if is_word(c) => {
                let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
                let after = rest[word.len()..].trim_start();
                let of_labels = [
                    "by",
                    "on",
                    "without",
                    "ignoring",
                    "group_left",
                    "group_right",
                ];
                if of_labels.contains(&word) && after.starts_with('(') {
                    rest.find(')').unwrap() + 1
                } else {
                    let number = c.is_ascii_digit();
                    let function = after.starts_with('(') || after.starts_with("by (");
                    if !number && !function && !WORDS.contains(&word) {
                        names.insert(word.to_owned());
                    }
                    word.len()
                }
            }
            c => c.len_utf8(),
        };
        rest = &rest[skip..];
    }
    names
}

#[test]
fn names_are_found_in_expressions() {
    let names = |text| metrics_of(text).into_iter().collect::<Vec<_>>();
    let text = r#"histogram_quantile(0.99, sum by (a, le) (rate(x_bucket{b="c",d!~"e|f"}[5m]))) > 1e3
        or on (a) group_left (b) absent(y) offset 5m unless time() - z < 2 * 86400"#;
    assert_eq!(names(text), ["x_bucket", "y", "z"]);
}

/// Metrics that appear only after an event that no test here causes.
const NOT_YET: [&str; 1] = ["my_operator_reconcile_errors_total"];

/// The names that Prometheus gives to the metrics of a page, each with its type.
fn shown(page: &str) -> BTreeSet<(String, String)> {
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let kinds = kinds.filter_map(|line| line.split_once(' '));
    kinds
        .map(|(name, kind)| {
            let end = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (format!("{name}{end}"), kind.to_owned())
        })
        .collect()
}

/// The page of an operator that has seen a valid object, an invalid one, a roll-out that is held, an At that was missed
/// and one whose pod waits: some metrics need each.
async fn page() -> String {
    let kubectl = kubectl("figures").await;
    let object = async |name: &str, spec: &str| {
        kubectl.apply(&format!(
            "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
        )).await
    };
    object("bad", "").await.bad();
    let held = "updateStrategy: {rollingUpdate: {paused: true}}";
    let image = |tag: u32| format!("image: 'nginx:{tag}', {held}");
    object("good", &image(1)).await.good();
    let missed = "startingDeadlineSeconds: 1";
    let missed = at_when("2020-01-01T00:00:00Z", "missed", missed, "");
    kubectl.apply(&missed).await.good();
    let waits = "template: {spec: {nodeSelector: {none: such}}}";
    kubectl
        .apply(&at_when("now", "waits", waits, ""))
        .await
        .good();
    kubectl
        .run("wait --for=condition=Progressing=False --timeout=90s mds/good")
        .await
        .good();
    object("good", &image(2)).await.good();
    let namespace = &kubectl.namespace;
    let series = [
        format!("my_operator_mydaemonset_desired{{namespace=\"{namespace}\",name=\"good\"}} "),
        format!(
            "my_operator_mydaemonset_paused{{namespace=\"{namespace}\",name=\"good\",reason=\"Paused\"}} 1\n"
        ),
        format!("my_operator_at_failed{{namespace=\"{namespace}\",result=\"Missed\"}} 1\n"),
        format!(
            "my_operator_at_waiting{{namespace=\"{namespace}\",name=\"waits\",reason=\"Unschedulable\"}} 1\n"
        ),
    ];
    let operator = &environment().await.operator;
    wait_for("the figures of the objects", async || {
        let page = operator.figures();
        let are_there = series.iter().all(|series| page.contains(series));
        are_there.then_some(page)
    })
    .await
}

#[tokio::test]
async fn every_metric_that_an_alert_queries_is_exposed() {
    let page = page().await;
    let shown = shown(&page);
    let path = checkout().join("config/components/prometheus/alerts.yaml");
    let alerts: serde_json::Value =
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut asked = 0;
    for rule in alerts["spec"]["groups"][0]["rules"].as_array().unwrap() {
        for name in metrics_of(rule["expr"].as_str().unwrap()) {
            asked += 1;
            let histogram = ["_bucket", "_count", "_sum"]
                .iter()
                .filter_map(|end| name.strip_suffix(end))
                .any(|name| shown.contains(&(name.to_owned(), "histogram".to_owned())));
            let known = histogram || shown.iter().any(|(shown, _)| *shown == name);
            assert!(known, "{}: {name} is not in\n{page}", rule["alert"]);
            // And there is a series of it from the start: what is absent sets off no alert.
            let series = page.lines().any(|line| {
                let rest = line.strip_prefix(&name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            assert!(series, "{}: {name} has no series in\n{page}", rule["alert"]);
        }
    }
    assert!(asked > 10, "{asked} names found");
}

#[tokio::test]
async fn what_the_api_server_adds_to_the_webhook_configurations_is_no_drift() {
    let page = page().await;
    let name = "my_operator_webhook_configuration_drift{";
    let drift: Vec<_> = page.lines().filter(|line| line.starts_with(name)).collect();
    assert!(drift.len() > 10, "{page}");
    let is_zero = |line: &&str| line.ends_with(" 0") || line.ends_with(" 0.0");
    assert!(drift.iter().all(is_zero), "{drift:?}");
}

#[tokio::test]
async fn every_metric_is_documented_and_no_other() {
    let page = page().await;
    let path = checkout().join("docs/operations/metrics.md");
    let documented: BTreeSet<_> = fs::read_to_string(path)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| {
            let (name, rest) = line.split_once("` | ")?;
            let (kind, _) = rest.split_once(" |")?;
            let known = ["counter", "gauge", "histogram", "info"].contains(&kind);
            known.then(|| (name.to_owned(), kind.to_owned()))
        })
        .collect();
    let mut shown = shown(&page);
    for later in NOT_YET {
        shown.insert((later.to_owned(), "counter".to_owned()));
    }
    assert_eq!(
        documented, shown,
        "docs/operations/metrics.md beside the page"
    );
}
