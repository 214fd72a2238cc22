//! The metrics that alerts, dashboards and docs name are those that the operator exposes.

use std::collections::BTreeSet;

use crate::cluster::at::at_when;
use crate::cluster::{environment, kubectl};
use crate::harness::promql::Queried;
use crate::harness::{alerts, dashboards, documented, wait_for};

/// Metrics that appear only after an event that no test here causes.
const NOT_YET: [&str; 1] = ["my_operator_reconcile_errors_total"];

/// The series that kubebuilder's dashboards query.
const OF_KUBEBUILDER: [&str; 11] = [
    "controller_runtime_active_workers{controller=\"at\"}",
    "controller_runtime_reconcile_total{controller=\"at\",result=\"success\"}",
    "controller_runtime_reconcile_errors_total{controller=\"at\"}",
    "workqueue_depth{name=\"at\",controller=\"at\"}",
    "workqueue_queue_duration_seconds_bucket{le=\"1.0\",name=\"at\",controller=\"at\"}",
    "workqueue_adds_total{name=\"at\",controller=\"at\"}",
    "workqueue_unfinished_work_seconds{name=\"at\",controller=\"at\"}",
    "workqueue_work_duration_seconds_bucket{le=\"1.0\",name=\"at\",controller=\"at\"}",
    "workqueue_retries_total{name=\"at\",controller=\"at\"}",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
];

/// Whether the page has a series that begins like this: the name of a metric, with or without its labels.
fn has_series(page: &str, start: &str) -> bool {
    page.lines().any(|line| {
        let rest = line.strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    })
}

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

/// The name of each alert, or the place in a dashboard, with its expression.
fn expressions() -> Vec<(String, String)> {
    let groups = alerts::groups();
    let rules = groups["groups"][0]["rules"].as_array().unwrap();
    let word = |of: &serde_json::Value| of.as_str().unwrap().to_owned();
    let of_alerts = rules
        .iter()
        .map(|rule| (word(&rule["alert"]), word(&rule["expr"])));
    let queries = dashboards::all().into_iter();
    let queries = queries.flat_map(|dashboard| dashboard.queries());
    let of_panels = queries.map(|query| (query.place, query.expression));
    of_alerts.chain(of_panels).collect()
}

/// What is absent sets off no alert, and makes an empty panel.
#[tokio::test]
async fn every_metric_that_an_alert_or_a_dashboard_queries_has_a_series() {
    let page = page().await;
    let (mut asked, mut missing) = (BTreeSet::new(), Vec::new());
    for (place, expression) in expressions() {
        for name in Queried::of(&expression).metrics() {
            if !has_series(&page, name) && !NOT_YET.contains(&name) {
                missing.push(format!("{place}: {name}"));
            }
            asked.insert(name.to_owned());
        }
    }
    let of_others = OF_KUBEBUILDER.into_iter();
    let of_others = of_others.filter(|start| !has_series(&page, start));
    missing.extend(of_others.map(|start| format!("kubebuilder's dashboards: {start}")));
    assert!(missing.is_empty(), "{missing:#?} not in\n{page}");
    assert!(asked.len() > 40, "{asked:?}");
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

/// The labels of the first series of a metric on the page.
fn labels(page: &str, name: &str, kind: &str) -> Option<BTreeSet<String>> {
    let start = if kind == "histogram" {
        format!("{name}_count")
    } else {
        name.to_owned()
    };
    let line = page.lines().find(|line| has_series(line, &start))?;
    let mut selectors = Queried::of(line).selectors.into_iter();
    selectors.next().map(|series| series.labels)
}

#[tokio::test]
async fn every_metric_is_documented_and_no_other() {
    let page = page().await;
    let listed = documented::metrics();
    let kinds = listed
        .iter()
        .map(|(name, metric)| (name.clone(), metric.kind.clone()));
    let mut shown = shown(&page);
    for later in NOT_YET {
        shown.insert((later.to_owned(), "counter".to_owned()));
    }
    assert_eq!(
        kinds.collect::<BTreeSet<_>>(),
        shown,
        "docs/operations/metrics.md beside the page"
    );
    for (name, metric) in listed {
        match labels(&page, &name, &metric.kind) {
            Some(labels) => assert_eq!(metric.labels, labels, "labels of {name}"),
            None => assert!(NOT_YET.contains(&&*name), "{name} has no series in\n{page}"),
        }
    }
}
