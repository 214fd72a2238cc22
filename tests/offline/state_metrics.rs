//! `contrib/kube-state-metrics`: every path is a field of the schemas, and every word is one of the operator's.

use std::collections::{BTreeMap, BTreeSet};

use my_operator::kinds::mydaemonset::status::{COMPLETE, stands};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::checkout::{checkout, files, text};

const CONFIG: &str = "contrib/kube-state-metrics/config.yaml";
const RIGHTS: &str = "contrib/kube-state-metrics/rbac.yaml";

type Paths = BTreeMap<String, Vec<String>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    kind: String,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resource {
    group_version_kind: GroupVersionKind,
    metric_name_prefix: String,
    error_log_v: u8,
    labels_from_path: Paths,
    metrics: Vec<Metric>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    name: String,
    help: String,
    each: Each,
}

/// The fields of kube-state-metrics that the file uses, by its `type`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Each {
    Gauge {
        gauge: Gauge,
    },
    StateSet {
        #[serde(rename = "stateSet")]
        state_set: StateSet,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gauge {
    path: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StateSet {
    path: Vec<String>,
    #[serde(default)]
    labels_from_path: Paths,
    #[serde(default)]
    value_from: Vec<String>,
    label_name: String,
    list: Vec<String>,
}

fn config() -> Config {
    let value: Value = serde_saphyr::from_str(&text(CONFIG)).unwrap();
    serde_json::from_value(value).unwrap()
}

fn crds() -> Vec<Value> {
    let found = files(&checkout().join("config/crd/bases"), "yaml");
    let parsed = found.into_iter().map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    });
    parsed.collect()
}

/// The schema of a kind, with some of what Kubernetes itself has in `metadata`.
fn schema(of: &GroupVersionKind) -> Value {
    let is_it = |crd: &&Value| {
        let spec = &crd["spec"];
        spec["group"] == of.group && spec["names"]["kind"] == of.kind
    };
    let crds = crds();
    let crd = crds.iter().find(is_it).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|one| one["name"] == of.version);
    let mut schema = version.unwrap()["schema"]["openAPIV3Schema"].clone();
    schema["properties"]["metadata"]["properties"] = json!({
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "generation": {"type": "integer"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
    });
    schema
}

/// The schema of the field at a path from here.
fn field<'a>(schema: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(schema, |at, part| {
        let found = &at["properties"][part.as_str()];
        assert!(found.is_object(), "{path:?}: no field {part}");
        found
    })
}

/// The words of `status.state`: those in its description, except the one with a share of the nodes, and the reasons of
/// `Progressing` that it names together.
fn states(description: &str) -> BTreeSet<&str> {
    let (_, list) = description.split_once("that is so: ").unwrap();
    let (words, _) = list.split_once(", or the reason").unwrap();
    words
        .split(", ")
        .filter(|word| !word.starts_with("Rolling "))
        .chain(stands().collect::<Vec<&str>>())
        .chain([COMPLETE])
        .collect()
}

fn check_gauge(schema: &Value, gauge: &Gauge) {
    let found = field(schema, &gauge.path);
    let is_time = found["format"] == "date-time";
    let has_value = ["integer", "boolean"].iter().any(|it| found["type"] == *it);
    assert!(is_time || has_value, "{:?}: {found}", gauge.path);
}

fn check_states(schema: &Value, set: &StateSet) {
    let path = &set.path;
    let mut from = field(schema, path);
    if from["type"] == "array" {
        from = &from["items"];
    }
    for label in set.labels_from_path.values() {
        assert_eq!(field(from, label)["type"], "string", "{path:?}: {label:?}");
    }
    let found = field(from, &set.value_from);
    assert_eq!(found["type"], "string", "{path:?}");
    let listed: BTreeSet<&str> = set.list.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), set.list.len(), "{path:?}");
    let known: BTreeSet<&str> = match (&found["enum"], path[1].as_str()) {
        (Value::Array(words), _) => words.iter().filter_map(Value::as_str).collect(),
        (_, "conditions") => BTreeSet::from(["True", "False", "Unknown"]),
        _ => states(found["description"].as_str().unwrap()),
    };
    assert_eq!(listed, known, "{path:?}");
}

#[test]
fn kube_state_metrics_reads_fields_and_words_that_exist() {
    let config = config();
    assert_eq!(config.kind, "CustomResourceStateMetrics");
    assert_eq!(config.spec.resources.len(), 2);
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    for resource in &config.spec.resources {
        // By default every field that an object does not have yet is an error in the log.
        assert!(resource.error_log_v > 0);
        assert!(is_name(&resource.metric_name_prefix));
        let schema = schema(&resource.group_version_kind);
        for path in resource.labels_from_path.values() {
            field(&schema, path);
        }
        let mut names = BTreeSet::new();
        for metric in &resource.metrics {
            let name = &metric.name;
            assert!(is_name(name) && names.insert(name), "{name}");
            assert!(!metric.help.is_empty(), "{name}");
            match &metric.each {
                Each::Gauge { gauge } => check_gauge(&schema, gauge),
                Each::StateSet { state_set } => {
                    assert!(is_name(&state_set.label_name), "{name}");
                    check_states(&schema, state_set);
                }
            }
        }
    }
}

#[test]
fn kube_state_metrics_may_list_and_watch_what_it_reads() {
    let rights: Value = serde_saphyr::from_str(&text(RIGHTS)).unwrap();
    let names = |crd: &Value| {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        json!({"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]})
    };
    let rules = rights["rules"].as_array().unwrap();
    for rule in crds().iter().map(names) {
        assert!(rules.contains(&rule), "{rule}");
    }
    assert_eq!(rules.len(), 1 + config().spec.resources.len());
}
