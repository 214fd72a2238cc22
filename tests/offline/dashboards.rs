//! The dashboards of `contrib/mixin`, as far as it needs no other program: they ask for metrics and labels that exist,
//! and follow the rules of grafana/dashboard-linter. Prometheus's promtool reads the expressions in
//! `tests/oracle/dashboards.rs`; `tests/control_plane/cluster/figures.rs` looks at the series of a running operator.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use my_operator_harness::dashboards::{self, Dashboard};
use my_operator_harness::documented;
use my_operator_harness::promql::Queried;
use serde_json::Value;

use crate::checkout::text;

/// The labels that Prometheus gives to every series of a target. That of an object's namespace is renamed.
const OF_TARGETS: [&str; 4] = ["job", "instance", "namespace", "pod"];
const RENAMED: (&str, &str) = ("namespace", "exported_namespace");
/// The panels that show every series by a legend.
const WITH_LEGEND: [&str; 2] = ["timeseries", "stat"];

type Labels = BTreeSet<String>;

/// What Prometheus stores of the operator's page: the names of series with their own labels, by
/// docs/operations/metrics.md. That page is held against a running operator (see above).
fn stored() -> BTreeMap<String, Labels> {
    let mut stored = BTreeMap::new();
    for (name, metric) in documented::metrics() {
        let labels = metric.labels.iter().map(String::as_str);
        let renamed = labels.map(|own| if own == RENAMED.0 { RENAMED.1 } else { own });
        let labels: Labels = renamed.map(str::to_owned).collect();
        if metric.kind == "histogram" {
            let mut with_bound = labels.clone();
            with_bound.insert("le".to_owned());
            stored.insert(format!("{name}_bucket"), with_bound);
            stored.insert(format!("{name}_count"), labels.clone());
            stored.insert(format!("{name}_sum"), labels);
        } else {
            stored.insert(name, labels);
        }
    }
    stored
}

/// What is wrong with an expression: metrics and labels that are not stored.
fn unknown(queried: &Queried, stored: &BTreeMap<String, Labels>) -> Vec<String> {
    let of_targets = OF_TARGETS.map(str::to_owned);
    let mut wrong = Vec::new();
    // An expression can group by the labels of any of its metrics.
    let mut known = Labels::from(of_targets.clone());
    for selector in &queried.selectors {
        let Some(own) = stored.get(&selector.metric) else {
            wrong.push(format!("no metric {}", selector.metric));
            continue;
        };
        for label in &selector.labels {
            if !own.contains(label) && !of_targets.contains(label) {
                wrong.push(format!("{} has no label {label}", selector.metric));
            }
        }
        known.extend(own.clone());
    }
    let grouped = queried.grouped.difference(&known);
    wrong.extend(grouped.map(|label| format!("no metric of it has the label {label}")));
    wrong
}

/// The labels that a legend shows.
fn in_legend(legend: &str) -> Labels {
    let parts = legend.split("{{").skip(1);
    let labels = parts.map(|part| part.split("}}").next().unwrap().trim());
    labels.map(str::to_owned).collect()
}

#[test]
fn the_reader_of_promql_finds_metrics_labels_and_ranges() {
    let text = r#"histogram_quantile(0.99, sum by (a, le) (rate(x_bucket{b="c",d!~"e|f}"}[5m]))) > 1e3
        or on (g) group_left (h) absent(y) offset 5m unless time() - z{} < 2 * 86400
        or topk(3, sum without (i) (w[$__rate_interval:1m])) or {k=~"$j"}"#;
    let queried = Queried::of(text);
    let words = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
    let selectors = queried.selectors.iter();
    let selectors: Vec<_> = selectors
        .map(|one| format!("{}:{}", one.metric, words(&one.labels)))
        .collect();
    assert_eq!(selectors, ["x_bucket:b d", "y:", "z:", "w:", ":k"]);
    assert_eq!(words(&queried.grouped), "a g h i le");
    assert_eq!(words(&queried.ranges), "$__rate_interval:1m 5m");
    assert!(queried.metrics().contains("x_bucket"));
}

#[test]
fn the_dashboards_query_metrics_and_labels_that_there_are() {
    let stored = stored();
    assert!(stored.len() > 50, "{} series documented", stored.len());
    let mut wrong = Vec::new();
    let mut asked = BTreeSet::new();
    for dashboard in dashboards::all() {
        for query in dashboard.queries() {
            let queried = Queried::of(&query.expression);
            let found = unknown(&queried, &stored).into_iter();
            wrong.extend(found.map(|problem| format!("{}: {problem}", query.place)));
            let shown = in_legend(&query.legend);
            for label in shown.difference(&queried.grouped) {
                wrong.push(format!("{}: the legend has {label}", query.place));
            }
            asked.extend(queried.metrics().into_iter().map(str::to_owned));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(asked.len() > 35, "{} metrics in all panels", asked.len());
}

#[test]
fn a_metric_or_label_that_there_is_not_is_found() {
    let stored = stored();
    for (expression, problem) in [
        ("sum(my_operator_at_late)", "no metric my_operator_at_late"),
        // What Prometheus stores of a histogram.
        ("workqueue_queue_duration_seconds", "no metric"),
        ("workqueue_depth{queue=\"at\"}", "has no label queue"),
        (
            "my_operator_at_failed{namespace=\"a\",reason=\"b\"}",
            "reason",
        ),
        ("sum by (name) (my_operator_at_failed)", "the label name"),
        ("sum by (le) (workqueue_depth)", "the label le"),
    ] {
        let found = unknown(&Queried::of(expression), &stored);
        let is_found = found.len() == 1 && found[0].contains(problem);
        assert!(is_found, "{expression}: {found:?}");
    }
    let good = "max by (pod, exported_namespace) (my_operator_at_failed{exported_namespace=\"a\"})";
    assert_eq!(unknown(&Queried::of(good), &stored), [""; 0]);
}

/// The words of an object's field, empty if there are none.
fn word<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// What every panel must have.
fn check_panel(panel: &Value) -> Vec<&'static str> {
    let targets = panel["targets"].as_array();
    let ids = targets.into_iter().flatten().map(|one| word(one, "refId"));
    let unique: BTreeSet<_> = ids.clone().collect();
    let has_legends = || {
        let mut targets = targets.into_iter().flatten();
        targets.all(|one| !word(one, "legendFormat").is_empty())
    };
    let kind = word(panel, "type");
    let columns = |field: &str| panel["gridPos"][field].as_u64().unwrap_or(25);
    [
        (word(panel, "title").is_empty(), "no title"),
        (word(panel, "description").len() < 10, "no description"),
        (
            word(&panel["fieldConfig"]["defaults"], "unit").is_empty(),
            "no unit",
        ),
        (
            word(&panel["datasource"], "uid") != "${datasource}",
            "not the data source that is chosen above",
        ),
        (targets.is_none_or(Vec::is_empty), "no query"),
        (ids.count() != unique.len(), "a refId twice"),
        (
            WITH_LEGEND.contains(&kind) && !has_legends(),
            "a query without a legend",
        ),
        (columns("x") + columns("w") > 24, "wider than the page"),
    ]
    .into_iter()
    .filter_map(|(is_wrong, problem)| is_wrong.then_some(problem))
    .collect()
}

#[test]
fn every_panel_has_a_title_a_unit_and_the_chosen_data_source() {
    let mut wrong = Vec::new();
    for dashboard in dashboards::all() {
        let (mut titles, mut count) = (BTreeSet::new(), 0);
        for panel in dashboard.panels() {
            let title = word(panel, "title");
            let found = check_panel(panel).into_iter();
            wrong.extend(found.map(|problem| format!("{}, {title}: {problem}", dashboard.file)));
            titles.insert(title);
            count += 1;
        }
        assert!(count >= 10, "{}: {count} panels", dashboard.file);
        assert_eq!(titles.len(), count, "{}: a title twice", dashboard.file);
        let panels = dashboard.json["panels"].as_array().unwrap();
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "{}: an id twice", dashboard.file);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The variables that an expression uses, apart from Grafana's own.
fn variables(expression: &str) -> impl Iterator<Item = &str> {
    let parts = expression.split('$').skip(1);
    let names = parts.map(|part| {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &part[..end.unwrap_or(part.len())]
    });
    names.filter(|name| !name.starts_with("__"))
}

#[test]
fn every_query_is_of_the_chosen_job_and_a_rate_covers_the_scrape_interval() {
    let mut wrong = Vec::new();
    for dashboard in dashboards::all() {
        for query in dashboard.queries() {
            let (place, text) = (&query.place, &query.expression);
            let queried = Queried::of(text);
            for selector in &queried.selectors {
                let metric = &selector.metric;
                for label in ["job", "instance"] {
                    if !text.contains(&format!("{label}=~\"${label}\""))
                        || !selector.labels.contains(label)
                    {
                        wrong.push(format!("{place}: {metric} of any {label}"));
                    }
                }
                let of_counter = metric.ends_with("_total") || metric.ends_with("_bucket");
                let is_rate = ["rate", "increase"]
                    .iter()
                    .any(|function| text.contains(&format!("{function}({metric}{{")));
                if of_counter && !is_rate {
                    wrong.push(format!("{place}: {metric} without a rate"));
                }
            }
            let ranges = ["$__rate_interval", "$__range"];
            let mut used = queried.ranges.iter();
            if used.any(|range| !ranges.contains(&range.as_str())) {
                wrong.push(format!("{place}: a range that does not follow the page"));
            }
            for name in variables(text) {
                dashboard.variable(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn check_variables(dashboard: &Dashboard, stored: &BTreeMap<String, Labels>) {
    let file = &dashboard.file;
    let source = dashboard.variable("datasource");
    assert_eq!(word(source, "type"), "datasource", "{file}");
    assert_eq!(word(source, "query"), "prometheus", "{file}");
    let list = dashboard.json["templating"]["list"].as_array().unwrap();
    for variable in list.iter().filter(|one| one["type"] == "query") {
        let name = word(variable, "name");
        assert_eq!(word(&variable["datasource"], "uid"), "${datasource}");
        // So that a new pod or namespace is there without a reload, and "all" matches every value.
        assert_eq!(variable["refresh"], 2, "{file}: {name}");
        assert_eq!(variable["allValue"], ".+", "{file}: {name}");
        assert_eq!(variable["multi"], true, "{file}: {name}");
        let query = word(variable, "query").strip_prefix("label_values(");
        let query = query.and_then(|query| query.strip_suffix(')')).unwrap();
        let (selector, label) = query.rsplit_once(", ").unwrap();
        let mut queried = Queried::of(selector);
        // Without a metric, any label of the operator's series will do.
        queried.selectors.retain(|one| !one.metric.is_empty());
        assert_eq!(unknown(&queried, stored), [""; 0], "{file}: {name}");
        let of_targets = OF_TARGETS.contains(&label);
        assert!(of_targets || label == RENAMED.1, "{file}: {name}: {label}");
    }
}

#[test]
fn the_variables_of_the_dashboards_follow_the_series() {
    let stored = stored();
    let mut uids = BTreeSet::new();
    for dashboard in dashboards::all() {
        for name in ["job", "instance"] {
            dashboard.variable(name);
        }
        check_variables(&dashboard, &stored);
        // A provisioned dashboard cannot be saved in Grafana anyway.
        assert_eq!(dashboard.json["editable"], false, "{}", dashboard.file);
        let uid = word(&dashboard.json, "uid").to_owned();
        assert!(!uid.is_empty() && uids.insert(uid), "{}", dashboard.file);
    }
}

/// The page says which dashboards there are, and the command that installs them finds nothing else beside them.
#[test]
fn the_page_of_the_dashboards_names_each_file() {
    let page = text("docs/operations/dashboards.md");
    for dashboard in dashboards::all() {
        let file = &dashboard.file;
        let extension = Path::new(file).extension();
        assert!(extension.is_some_and(|it| it == "json"), "{file}");
        assert!(page.contains(&format!("dashboards/{file}")), "{file}");
        assert!(page.contains(word(&dashboard.json, "title")), "{file}");
    }
}
