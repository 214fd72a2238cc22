//! The dashboards of `contrib/mixin`, and what their panels ask of Prometheus.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// A dashboard of Grafana.
pub struct Dashboard {
    /// The name of its file.
    pub file: String,
    /// What Grafana imports.
    pub json: Value,
}

/// What a panel asks.
pub struct Query {
    /// Whose question it is, for messages: the file, the title of the panel and the `refId`.
    pub place: String,
    /// In PromQL, but for Grafana's variables.
    pub expression: String,
    /// What names the series in the panel; empty in a table.
    pub legend: String,
}

/// All dashboards, in the order of their files.
pub fn all() -> Vec<Dashboard> {
    let folder = fs::read_dir(super::checkout().join("contrib/mixin/dashboards")).unwrap();
    let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let read = |path: PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let json = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        let json = json.unwrap_or_else(|error| panic!("{file}: {error}"));
        Dashboard { file, json }
    };
    paths.into_iter().map(read).collect()
}

impl Dashboard {
    /// Its panels, without the headings of rows.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        let panels = self.json["panels"].as_array().unwrap().iter();
        panels.filter(|panel| panel["type"] != "row")
    }

    /// The panel and the question of each of its queries.
    pub fn queries(&self) -> Vec<Query> {
        let mut queries = Vec::new();
        for panel in self.panels() {
            for target in panel["targets"].as_array().unwrap() {
                let word = |name: &str| target[name].as_str().unwrap_or_default().to_owned();
                let title = &panel["title"];
                queries.push(Query {
                    place: format!("{}, {title}, {}", self.file, word("refId")),
                    expression: word("expr"),
                    legend: word("legendFormat"),
                });
            }
        }
        queries
    }

    /// The variable of that name.
    pub fn variable(&self, name: &str) -> &Value {
        let list = self.json["templating"]["list"].as_array().unwrap();
        let mut named = list.iter().filter(|variable| variable["name"] == name);
        let found = named.next();
        found.unwrap_or_else(|| panic!("{} has no variable {name}", self.file))
    }
}
