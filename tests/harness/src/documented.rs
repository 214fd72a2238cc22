//! The metrics that docs/operations/metrics.md lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A metric as it is documented.
pub struct Metric {
    /// Its type.
    pub kind: String,
    /// Its labels, without `le`.
    pub labels: BTreeSet<String>,
}

/// The documented metrics by their names, as Prometheus has them: a counter ends in `_total`.
pub fn metrics() -> BTreeMap<String, Metric> {
    let page = super::checkout().join("docs/operations/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let mut metrics = BTreeMap::new();
    for line in page.lines() {
        // - `name` (type; `label`, `label`): meaning
        let Some((name, (kind, _))) = line
            .strip_prefix("- `")
            .and_then(|line| line.split_once("` ("))
            .and_then(|(name, rest)| Some((name, rest.split_once(')')?)))
        else {
            continue;
        };
        let (kind, labels) = kind.split_once(';').unwrap_or((kind, ""));
        if ["counter", "gauge", "histogram", "info"].contains(&kind) {
            let labels = labels.split('`').skip(1).step_by(2);
            let metric = Metric {
                kind: kind.to_owned(),
                labels: labels.map(str::to_owned).collect(),
            };
            metrics.insert(name.to_owned(), metric);
        }
    }
    metrics
}
