//! The dashboards of `contrib/mixin`: Prometheus's own promtool reads every expression, as a rule that records it. What
//! they ask for is checked in `tests/offline/dashboards.rs`.

use std::fs;

use serde_json::json;

use crate::alerts::promtool;
use crate::harness::dashboards;

#[test]
fn promtool_reads_every_expression_of_the_dashboards() {
    let mut rules = Vec::new();
    for dashboard in dashboards::all() {
        for query in dashboard.queries() {
            // As Grafana does before it asks. The variables of the dashboard are in quotes.
            let expression = query.expression.replace("$__rate_interval", "5m");
            let expression = expression.replace("$__range", "1h");
            // The answer of promtool has the name.
            let record = format!("query:{}", rules.len());
            println!("{record} is {}", query.place);
            rules.push(json!({ "record": record, "expr": expression }));
        }
    }
    assert!(rules.len() > 50, "{} expressions", rules.len());
    let folder = tempfile::tempdir().unwrap();
    let file = json!({ "groups": [{ "name": "dashboards", "rules": rules }] });
    fs::write(folder.path().join("rules.yaml"), file.to_string()).unwrap();
    promtool(
        folder.path(),
        &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"],
    );
}
