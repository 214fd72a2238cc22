//! Whether the CRD of each kind is there, served, and the one of this version.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::fetch::{Cluster, Fetched, Resource, Unread};
use super::installation::{LABEL, is_labelled};
use super::report::{Finding, Level};
use crate::kinds::Kind;

const CHECK: &str = "crd";
/// How many fields a line names.
const MAX_NAMED: usize = 4;

pub(super) async fn check(cluster: &Cluster, kind: &Kind) -> Finding {
    let (crd, name, live) = fetch(cluster, kind).await;
    judge(kind, &crd, live).about(&name)
}

/// Before an installation: whether it would overwrite a CRD that is not ours.
pub(super) async fn check_before(cluster: &Cluster, kind: &Kind) -> Finding {
    let (crd, name, live) = fetch(cluster, kind).await;
    judge_before(kind, &crd, live).about(&name)
}

/// Our CRD, its name, and what the cluster has under that name.
async fn fetch(
    cluster: &Cluster,
    kind: &Kind,
) -> (CustomResourceDefinition, String, Fetched<Value>) {
    let crd = (kind.crd)();
    let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
    let resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let live = cluster.get(resource, &name).await;
    (crd, name, live)
}

fn judge_before(kind: &Kind, ours: &CustomResourceDefinition, live: Fetched<Value>) -> Finding {
    let live = match live {
        Ok(live) => live,
        Err(Unread::Missing(_)) => return Finding::passed(CHECK, "not installed yet"),
        Err(unread) => return unread.finding(CHECK),
    };
    let is_ours = is_labelled(&live);
    // An installation changes neither.
    if let Some(fault) = condition_fault(&live).filter(|_| is_ours) {
        return fault;
    }
    let found = judge(kind, ours, Ok(live));
    match found.level {
        Level::Passed => Finding::passed(CHECK, "installed already, as this program installs it"),
        Level::Warning | Level::Failed if is_ours => {
            let text = format!("an installation changes it: {}", found.message);
            Finding::warning(CHECK, text)
                .action("read docs/operations/install.md, Upgrade, before you install")
        }
        Level::Warning | Level::Failed => {
            let text = format!(
                "the cluster has another one, without the label {LABEL}, which an installation overwrites: {}",
                found.message
            );
            Finding::failed(CHECK, text)
                .action("leave this kind out (--kinds), or delete the CRD with its objects first")
        }
    }
}

/// The file of the kind's CRD in a checkout. It installs no other kind, as the folder would.
fn file(kind: &Kind, crd: &CustomResourceDefinition) -> String {
    let folder = if kind.by_default {
        "bases"
    } else {
        "sample-kinds"
    };
    let (group, plural) = (&crd.spec.group, &crd.spec.names.plural);
    format!("config/crd/{folder}/{group}_{plural}.yaml")
}

/// What keeps the API server from serving it, by its own conditions.
fn condition_fault(live: &Value) -> Option<Finding> {
    let condition = |name: &str| {
        let mut all = live["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        all.find(|it| it["type"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let message = |it: &Value| {
        it["message"]
            .as_str()
            .unwrap_or("no reason is given")
            .to_owned()
    };
    let accepted = condition("NamesAccepted");
    if accepted["status"] == "False" {
        let text = format!("its names are taken: {}", message(&accepted));
        let action = "remove the other CRD of these names";
        return Some(Finding::failed(CHECK, text).action(action));
    }
    let established = condition("Established");
    if established["status"] != "True" {
        let text = format!("not established: {}", message(&established));
        let action = "wait a moment; then kubectl describe the CRD";
        return Some(Finding::failed(CHECK, text).action(action));
    }
    None
}

fn judge(kind: &Kind, ours: &CustomResourceDefinition, live: Fetched<Value>) -> Finding {
    let apply = format!("kubectl apply -f {}", file(kind, ours));
    let live = match live {
        Ok(live) => live,
        Err(Unread::Missing(_)) => {
            return Finding::failed(CHECK, "not installed").action(apply);
        }
        Err(unread) => return unread.finding(CHECK),
    };
    if let Some(fault) = condition_fault(&live) {
        return fault;
    }
    let version = &ours.spec.versions[0].name;
    let ours = serde_json::to_value(&ours.spec.versions[0]).unwrap_or_default();
    let served = live["spec"]["versions"].as_array().into_iter().flatten();
    let mut served = served.filter(|it| it["name"] == version.as_str());
    let Some(live) = served.find(|it| it["served"] == true) else {
        let text = format!("version {version} is not served");
        return Finding::failed(CHECK, text).action(apply);
    };
    compare(version, &ours, live, &apply)
}

/// The schema of a version against ours: a field that is missing would be dropped by the API server.
fn compare(version: &str, ours: &Value, live: &Value, apply: &str) -> Finding {
    let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    fields(&schema(ours), "", &mut expected);
    fields(&schema(live), "", &mut found);
    let older: Vec<&String> = expected.difference(&found).collect();
    let newer: Vec<&String> = found.difference(&expected).collect();
    if !older.is_empty() {
        let text = format!("older than this program: lacks {}", named(&older));
        return Finding::failed(CHECK, text).action(apply);
    }
    if !newer.is_empty() {
        let text = format!("newer than this program: has {}", named(&newer));
        return Finding::warning(CHECK, text)
            .action("use the check of the version that is installed");
    }
    let differs = |field: &str| plain(&ours[field]) != plain(&live[field]);
    let mut parts = ["schema", "subresources", "additionalPrinterColumns"].into_iter();
    match parts.find(|part| differs(part)) {
        Some(part) => {
            let text = format!("{part} of {version} is not that of this program");
            Finding::warning(CHECK, text).action(apply)
        }
        None => Finding::passed(CHECK, format!("{version}, established")),
    }
}

/// The paths of all fields.
fn fields(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}.{name}");
        fields(of, &path, found);
        found.insert(path);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(inner).filter(|inner| inner.is_object()) {
            fields(inner, &format!("{at}[]"), found);
        }
    }
}

/// A value without descriptions, nulls and empty values, which the API server may add or leave out.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, it)| (key, plain(it)));
            let kept = kept.filter(|(key, it)| {
                // A field may have the name `description`, too; its value is a schema.
                let text = *key == "description" && it.is_string();
                !text && !it.is_null() && *it != Value::Object(serde_json::Map::new())
            });
            kept.map(|(key, it)| (key.clone(), it)).collect()
        }
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Number(number) => number.as_f64().map_or(value.clone(), Value::from),
        other => other.clone(),
    }
}

fn named(fields: &[&String]) -> String {
    let mut names: Vec<&str> = fields
        .iter()
        .take(MAX_NAMED)
        .map(|it| it.as_str())
        .collect();
    if fields.len() > MAX_NAMED {
        names.push("more");
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::kinds::REGISTRY;

    fn judged(change: impl Fn(&mut Value)) -> Finding {
        let kind = REGISTRY.iter().find(|kind| kind.name == "at").unwrap();
        let crd = (kind.crd)();
        let mut live = serde_json::to_value(&crd).unwrap();
        live["status"] = json!({"conditions": [
            {"type": "NamesAccepted", "status": "True"},
            {"type": "Established", "status": "True"},
        ]});
        change(&mut live);
        judge(kind, &crd, Ok(live))
    }

    #[test]
    fn a_missing_crd_names_the_one_file_that_installs_it() {
        let checkout = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for kind in REGISTRY {
            let crd = (kind.crd)();
            let missing = judge(kind, &crd, Err(Unread::Missing("not found".to_owned())));
            assert_eq!(missing.message, "not installed");
            let action = missing.action.unwrap();
            let path = action.strip_prefix("kubectl apply -f ").unwrap();
            let text = std::fs::read_to_string(checkout.join(path)).unwrap();
            let name = format!("\n  name: {}.{}\n", crd.spec.names.plural, crd.spec.group);
            assert!(text.contains(&name), "{path}");
        }
    }

    #[test]
    fn before_an_installation_a_foreign_crd_fails_and_our_own_of_another_version_warns() {
        let kind = REGISTRY.iter().find(|kind| kind.name == "at").unwrap();
        let crd = (kind.crd)();
        let established = json!({"conditions": [{"type": "Established", "status": "True"}]});
        // As the tutorials install it.
        let foreign = json!({
            "metadata": {"name": "ats.cnat.programming-kubernetes.info"},
            "spec": {"versions": [{"name": "v1alpha1", "served": true, "schema": {"openAPIV3Schema": {"properties": {
                "spec": {"properties": {"schedule": {"type": "string"}, "command": {"type": "string"}}}}}}}]},
            "status": established,
        });
        let mut older = foreign.clone();
        older["metadata"]["labels"] = json!({"app.kubernetes.io/name": "my-operator"});
        let mut same = serde_json::to_value(&crd).unwrap();
        same["status"] = established;
        let missing = Err(Unread::Missing("not found".to_owned()));
        let forbidden = Err(Unread::Forbidden {
            call: "get x".to_owned(),
            message: String::new(),
        });
        for (live, level, words) in [
            (missing, Level::Passed, "not installed yet"),
            (Ok(same), Level::Passed, "installed already"),
            (
                Ok(older),
                Level::Warning,
                "an installation changes it: older than this program: lacks",
            ),
            (
                Ok(foreign),
                Level::Failed,
                "the cluster has another one, without the label app.kubernetes.io/name=my-operator",
            ),
            (forbidden, Level::Warning, "unknown: no right to get x"),
        ] {
            let finding = judge_before(kind, &crd, live);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.message.starts_with(words), "{finding:?}");
        }
    }

    #[test]
    fn each_fault_of_a_crd_is_one_line() {
        const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        const STATUS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        type Change = fn(&mut Value);
        let cases: [(Change, Level, &str); 9] = [
            (|_| (), Level::Passed, "v1alpha1, established"),
            (
                |it| it["status"]["conditions"][1]["status"] = "False".into(),
                Level::Failed,
                "not established",
            ),
            (
                |it| it["status"] = Value::Null,
                Level::Failed,
                "not established",
            ),
            (
                |it| it["status"]["conditions"][0] = json!({"type": "NamesAccepted", "status": "False", "message": "\"ats\" is in use"}),
                Level::Failed,
                "its names are taken: \"ats\" is in use",
            ),
            (
                |it| it["spec"]["versions"][0]["served"] = false.into(),
                Level::Failed,
                "v1alpha1 is not served",
            ),
            (
                |it| {
                    it.pointer_mut(SPEC)
                        .unwrap()
                        .as_object_mut()
                        .unwrap()
                        .remove("suspend");
                },
                Level::Failed,
                "older than this program: lacks .spec.suspend",
            ),
            (
                |it| it.pointer_mut(SPEC).unwrap()["future"] = json!({"type": "string"}),
                Level::Warning,
                "newer than this program: has .spec.future",
            ),
            (
                |it| it.pointer_mut(SPEC).unwrap()["suspend"]["type"] = "string".into(),
                Level::Warning,
                "schema of v1alpha1 is not that of this program",
            ),
            (
                |it| it.pointer_mut(STATUS).unwrap()["default"] = Value::Null,
                Level::Warning,
                "schema of v1alpha1 is not that of this program",
            ),
        ];
        for (change, level, words) in cases {
            let finding = judged(change);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
            assert_eq!(
                finding.action.is_some(),
                level != Level::Passed,
                "{finding:?}"
            );
        }
        let described = judged(|it| {
            it.pointer_mut(SPEC).unwrap()["suspend"]["description"] = "other words".into();
        });
        assert_eq!(described.level, Level::Passed);
    }
}
