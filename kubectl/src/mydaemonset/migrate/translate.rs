//! From a `DaemonSet` to a `MyDaemonSet` and back, as manifests: pure functions of JSON, so that no field is lost.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use my_operator_mydaemonset::crd::MyDaemonSetSpec;
use my_operator_mydaemonset::decide::strategy::Strategy;
use my_operator_mydaemonset::names::{APP, MIGRATION_ANNOTATION, NAME_LABEL, REVISION_LABEL};
use my_operator_mydaemonset::revision::{Content, add_app};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use wall_clock_controller::reconcile::write::MANAGED_BY;

use crate::containers;
use crate::mydaemonset::rollout::LAST_APPLIED;

/// The labels that the operator sets on its pods, and so allows in no template.
pub(super) const OUR_LABELS: [&str; 3] = [NAME_LABEL, REVISION_LABEL, MANAGED_BY];
/// The annotation of a `MyDaemonSet` with the manifest of the `DaemonSet` that it came from.
pub(super) const KEPT: &str = "apps.zhongmingmao.io/migrated-from";
/// The selector's label where a `DaemonSet` gets one. The operator's own would select its ControllerRevisions too, and the
/// DaemonSet would adopt them as revisions of its own.
const SELECTED: &str = "apps.zhongmingmao.io/daemonset";
/// A label's value, and so the name of a `MyDaemonSet`, has no more characters.
const MAX_NAME: usize = 63;
/// What the API server writes itself.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// How many old revisions a `MyDaemonSet` keeps: at least, and at most.
const HISTORY: (i64, i64) = (1, 100);
/// Labels and annotations of the API server and of a client. The object of the other kind is not theirs,
const FOREIGN: [&str; 3] = [MANAGED_BY, LAST_APPLIED, TEMPLATE_GENERATION];
/// nor that of these tools, which deploy manifests.
const TOOLS: [(&str, &str); 3] = [
    ("argocd.argoproj.io/", "Argo CD"),
    ("meta.helm.sh/", "Helm"),
    ("toolkit.fluxcd.io/", "Flux"),
];

/// A manifest, and what is different in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Translation {
    pub(super) object: Value,
    /// Sentences for the plan.
    pub(super) changes: Vec<String>,
}

/// The manifest of a stored object: what a user would write, without what the API server and a migration add.
pub(super) fn manifest(object: &Value) -> Value {
    let mut metadata = fields(&object["metadata"]);
    let written = ["name", "namespace", "labels", "annotations"];
    metadata.retain(|field, _| written.contains(&field.as_str()));
    let annotations = metadata.get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        for key in [
            MIGRATION_ANNOTATION,
            KEPT,
            LAST_APPLIED,
            TEMPLATE_GENERATION,
        ] {
            annotations.remove(key);
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata, "spec": object["spec"]})
}

/// The tool that deploys an object, if its metadata says so: it would put the object back.
pub(super) fn deployed_by(object: &Value) -> Option<&'static str> {
    let metadata = &object["metadata"];
    let has = |prefix: &str| {
        let keys = ["labels", "annotations"].map(|map| metadata[map].as_object());
        let mut keys = keys.into_iter().flatten().flat_map(Map::keys);
        keys.any(|key| key.contains(prefix))
    };
    let mut tools = TOOLS.into_iter();
    tools.find_map(|(prefix, tool)| has(prefix).then_some(tool))
}

/// The `MyDaemonSet` in place of a `DaemonSet`.
pub(super) fn to_ours(daemon_set: &Value) -> Result<Translation, String> {
    let spec = fields(&daemon_set["spec"]);
    let known = [
        "selector",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "revisionHistoryLimit",
    ];
    if let Some(unknown) = spec.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("a MyDaemonSet has no field for spec.{unknown}"));
    }
    let name = text(&daemon_set["metadata"]["name"]);
    if name.len() > MAX_NAME {
        return Err(format!(
            "the name of a MyDaemonSet has at most {MAX_NAME} characters, and that of this DaemonSet has {}",
            name.len()
        ));
    }
    check_selector(&daemon_set["spec"]["selector"], name)?;
    let mut changes =
        vec!["spec.selector is not needed: the operator knows its pods by their owner".to_owned()];
    let mut template = daemon_set["spec"]["template"].clone();
    clean_template(&mut template, &mut changes);
    let image = lift_image(&mut template, &mut changes)?;
    let mut ours = json!({"image": image, "template": template});
    let strategy = &daemon_set["spec"]["updateStrategy"];
    ours["updateStrategy"] = match text(&strategy["type"]) {
        "OnDelete" => json!({"type": "OnDelete"}),
        "" | "RollingUpdate" => {
            json!({"type": "RollingUpdate", "rollingUpdate": limits(strategy)})
        }
        other => {
            return Err(format!(
                "a MyDaemonSet has no spec.updateStrategy.type {other:?}"
            ));
        }
    };
    if let Some(seconds) = spec.get("minReadySeconds") {
        ours["minReadySeconds"] = seconds.clone();
    }
    if let Some(limit) = spec.get("revisionHistoryLimit").and_then(Value::as_i64) {
        let allowed = limit.clamp(HISTORY.0, HISTORY.1);
        if allowed != limit {
            changes.push(format!(
                "spec.revisionHistoryLimit becomes {allowed}: a MyDaemonSet keeps {} to {} old revisions",
                HISTORY.0, HISTORY.1
            ));
        }
        ours["revisionHistoryLimit"] = allowed.into();
    }
    let mut metadata = daemon_set["metadata"].clone();
    strip_foreign(&mut metadata, &mut changes);
    let object = json!({
        "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
        "metadata": metadata, "spec": ours,
    });
    Ok(Translation { object, changes })
}

/// The `DaemonSet` in place of a `MyDaemonSet`. `kept` are the two manifests of the way there, if it came from one: what did
/// not change since is as it was.
pub(super) fn to_daemon_set(
    ours: &Value,
    kept: Option<(&Value, &Value)>,
) -> Result<Translation, String> {
    if let Some((daemon_set, before)) = kept
        && is_same(ours, before)?
    {
        return Ok(Translation {
            object: daemon_set.clone(),
            changes: vec!["the DaemonSet becomes what it was before the migration".to_owned()],
        });
    }
    let mut changes = Vec::new();
    let before = kept.map(|(daemon_set, _)| daemon_set);
    let mut template = ours["spec"]["template"].clone();
    put_image(&mut template, &ours["spec"]["image"], before, &mut changes)?;
    let selector = put_selector(&mut template, ours, before, &mut changes);
    let spec = decode(ours)?;
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": before.map_or(&ours["metadata"], |before| &before["metadata"]),
        "spec": {
            "selector": selector,
            "template": template,
            "updateStrategy": strategy_back(ours, &spec, &mut changes),
        },
    });
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        if let Some(value) = ours["spec"].get(field).filter(|value| !value.is_null()) {
            object["spec"][field] = value.clone();
        }
    }
    Ok(Translation { object, changes })
}

fn decode(ours: &Value) -> Result<MyDaemonSetSpec, String> {
    MyDaemonSetSpec::deserialize(&ours["spec"])
        .map_err(|error| format!("the spec of the MyDaemonSet cannot be read: {error}"))
}

/// Whether two manifests of a `MyDaemonSet` mean the same, defaults or not. A pause is none of the pods' business.
fn is_same(one: &Value, other: &Value) -> Result<bool, String> {
    let meaning = |ours: &Value| {
        let spec = decode(ours)?;
        let mut strategy = Strategy::from_spec(&spec);
        strategy.paused = false;
        let history = spec.revision_history_limit.unwrap_or(10);
        Ok::<_, String>((Content::from_spec(&spec).canonical(), strategy, history))
    };
    Ok(meaning(one)? == meaning(other)?)
}

/// Puts `spec.image` into the template, where a `DaemonSet` has it, and gives the container its old name.
fn put_image(
    template: &mut Value,
    image: &Value,
    before: Option<&Value>,
    changes: &mut Vec<String>,
) -> Result<(), String> {
    let containers = member(template, &["spec", "containers"]);
    if containers.is_null() {
        *containers = json!([]);
    }
    let Some(containers) = containers.as_array_mut() else {
        return Err("spec.template.spec.containers is not a list".to_owned());
    };
    add_app(containers, image);
    changes.push(format!(
        "spec.image moves to the container {APP:?} of the template"
    ));
    let names = before.map_or(Vec::new(), |before| names(&before["spec"]["template"]));
    if let Some(first) = names.first().filter(|_| !names.contains(&APP)) {
        changes.push(format!("the container {APP:?} is named {first:?} again"));
        containers::rename(template, APP, first);
    }
    Ok(())
}

/// The selector: the one from before if the template has its labels, else the label that all pods have.
fn put_selector(
    template: &mut Value,
    ours: &Value,
    before: Option<&Value>,
    changes: &mut Vec<String>,
) -> Value {
    let labels = fields(&template["metadata"]["labels"]);
    if let Some(before) = before.map(|before| &before["spec"]["selector"])
        && selects(before, &labels)
    {
        return before.clone();
    }
    let name = text(&ours["metadata"]["name"]);
    changes.push(format!(
        "spec.selector is {SELECTED}={name}, and the template gets this label"
    ));
    *member(template, &["metadata", "labels", SELECTED]) = name.into();
    json!({"matchLabels": {SELECTED: name}})
}

/// A selector as requests have it.
pub(super) fn selector(selector: &Value) -> Result<Selector, String> {
    let bad = |error: &dyn std::fmt::Display| format!("spec.selector cannot be read: {error}");
    let selector = LabelSelector::deserialize(selector).map_err(|error| bad(&error))?;
    Selector::try_from(selector).map_err(|error| bad(&error))
}

fn selects(by: &Value, labels: &Map<String, Value>) -> bool {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(key, value)| (key.clone(), text(value).to_owned()))
        .collect();
    selector(by).is_ok_and(|selector| selector.matches(&labels))
}

fn strategy_back(ours: &Value, spec: &MyDaemonSetSpec, changes: &mut Vec<String>) -> Value {
    let strategy = Strategy::from_spec(spec);
    if strategy.on_delete {
        return json!({"type": "OnDelete"});
    }
    if strategy.partition > 0 {
        changes.push(
            "spec.updateStrategy.rollingUpdate.partition goes: the roll-out reaches every node"
                .to_owned(),
        );
    }
    if strategy.paused {
        changes.push(
            "spec.updateStrategy.rollingUpdate.paused goes: a DaemonSet cannot be paused"
                .to_owned(),
        );
    }
    let mut rolling = limits(&ours["spec"]["updateStrategy"]);
    let surges = rolling.get("maxSurge").is_some_and(|it| !is_zero(it));
    if surges && rolling.get("maxUnavailable").is_none_or(|it| !is_zero(it)) {
        changes.push("spec.updateStrategy.rollingUpdate.maxUnavailable becomes 0: a DaemonSet has either this or maxSurge".to_owned());
        rolling.insert("maxUnavailable".to_owned(), 0.into());
    }
    json!({"type": "RollingUpdate", "rollingUpdate": rolling})
}

/// The limits of a roll-out that both kinds have.
fn limits(strategy: &Value) -> Map<String, Value> {
    let mut limits = fields(&strategy["rollingUpdate"]);
    limits.retain(|field, value| {
        ["maxUnavailable", "maxSurge"].contains(&field.as_str()) && !value.is_null()
    });
    limits
}

/// The names of the containers of a template.
fn names(template: &Value) -> Vec<&str> {
    let containers = template["spec"]["containers"].as_array();
    let containers = containers.into_iter().flatten();
    containers.map(|it| text(&it["name"])).collect()
}

fn is_zero(amount: &Value) -> bool {
    amount == 0 || text(amount).trim_end_matches('%') == "0"
}

/// The selector must go on to select the pods when they have our labels.
fn check_selector(selector: &Value, name: &str) -> Result<(), String> {
    let labels = fields(&selector["matchLabels"]);
    let named = labels
        .iter()
        .filter(|(key, value)| *key != NAME_LABEL || *value != name)
        .map(|(key, _)| key.as_str());
    let expressions = selector["matchExpressions"].as_array();
    let expressions = expressions.into_iter().flatten().map(|it| text(&it["key"]));
    let mut keys = named.chain(expressions);
    match keys.find(|key| OUR_LABELS.contains(key)) {
        Some(key) => Err(format!(
            "spec.selector selects by the label {key}, which the operator sets on its pods"
        )),
        None => Ok(()),
    }
}

/// Takes out of a template what is not written, and what the operator sets itself.
fn clean_template(template: &mut Value, changes: &mut Vec<String>) {
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.retain(|_, value| !value.is_null());
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        for key in OUR_LABELS {
            if labels.remove(key).is_some() {
                changes.push(format!(
                    "the template's label {key} goes: the operator sets it"
                ));
            }
        }
    }
}

/// Gives the main container the name `app`, and takes its image out of the template.
fn lift_image(template: &mut Value, changes: &mut Vec<String>) -> Result<Value, String> {
    let names = names(template);
    let Some(first) = names.first().map(ToString::to_string) else {
        return Err("spec.template has no container".to_owned());
    };
    let at = names.iter().position(|name| *name == APP);
    if at.is_none() {
        let inits = template["spec"]["initContainers"].as_array();
        if inits.into_iter().flatten().any(|it| it["name"] == APP) {
            return Err(format!(
                "an init container has the name {APP:?}, which the main container of a MyDaemonSet has: rename it first"
            ));
        }
        changes.push(format!(
            "the container {first:?} is renamed to {APP:?}, the one of spec.image: dashboards, alerts and kubectl logs -c need the new name"
        ));
        containers::rename(template, &first, APP);
    }
    let container = &mut template["spec"]["containers"][at.unwrap_or_default()];
    let container = container.as_object_mut();
    let image = container.and_then(|fields| fields.remove("image"));
    changes.push(format!(
        "the image of the container {APP:?} moves to spec.image"
    ));
    Ok(image.unwrap_or_default())
}

fn strip_foreign(metadata: &mut Value, changes: &mut Vec<String>) {
    let mut dropped = BTreeSet::new();
    for map in ["labels", "annotations"] {
        let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else {
            continue;
        };
        entries.retain(|key, _| {
            let mut foreign = FOREIGN.into_iter().chain(TOOLS.map(|(prefix, _)| prefix));
            let is_foreign = foreign.any(|prefix| key.contains(prefix));
            if is_foreign {
                dropped.insert(key.clone());
            }
            !is_foreign
        });
    }
    for key in dropped {
        changes.push(format!(
            "metadata loses {key}: the tool that wrote it does not know the new object"
        ));
    }
}

/// The member at a path. What is not an object on the way there becomes one.
pub(super) fn member<'a>(mut value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    for name in path {
        if !value.is_object() {
            *value = json!({});
        }
        value = &mut value[*name];
    }
    value
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn daemon_set(container: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a", MANAGED_BY: "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web", "note": "n"}},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "30%"}},
                "minReadySeconds": 5,
                "revisionHistoryLimit": 0,
                "template": {
                    "metadata": {"creationTimestamp": null, "labels": {"app": "web", MANAGED_BY: "Helm"},
                        "annotations": {"kubectl.kubernetes.io/default-container": container}},
                    "spec": {"hostNetwork": true, "unknown": {"kept": 1}, "containers": [
                        {"name": container, "image": "nginx:1.29", "env": [{"name": "CPU", "valueFrom": {
                            "resourceFieldRef": {"containerName": container, "resource": "limits.cpu"}}}]},
                        {"name": "log", "image": "log:1"},
                    ]},
                },
            },
        })
    }

    #[test]
    fn every_field_of_the_template_stays_and_the_main_container_is_app() {
        let Translation { object, changes } = to_ours(&daemon_set("nginx")).unwrap();
        let env = json!([{"name": "CPU", "valueFrom": {
            "resourceFieldRef": {"containerName": "app", "resource": "limits.cpu"}}}]);
        assert_eq!(
            object,
            json!({
                "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
                "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a"}, "annotations": {"note": "n"}},
                "spec": {
                    "image": "nginx:1.29",
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "30%"}},
                    "minReadySeconds": 5,
                    "revisionHistoryLimit": 1,
                    "template": {
                        "metadata": {"labels": {"app": "web"},
                            "annotations": {"kubectl.kubernetes.io/default-container": "app"}},
                        "spec": {"hostNetwork": true, "unknown": {"kept": 1}, "containers": [
                            {"name": "app", "env": env}, {"name": "log", "image": "log:1"},
                        ]},
                    },
                },
            })
        );
        for part in [
            "spec.selector is not needed",
            "template's label app.kubernetes.io/managed-by goes",
            "container \"nginx\" is renamed to \"app\"",
            "spec.revisionHistoryLimit becomes 1",
            "metadata loses meta.helm.sh/release-name",
        ] {
            assert!(
                changes.iter().any(|change| change.contains(part)),
                "{part}: {changes:?}"
            );
        }
        assert_eq!(deployed_by(&daemon_set("nginx")), Some("Helm"));
    }

    #[test]
    fn a_container_app_keeps_its_place_and_name() {
        let mut before = daemon_set("log");
        before["spec"]["template"]["spec"]["containers"][1]["name"] = "app".into();
        let Translation { object, changes } = to_ours(&before).unwrap();
        assert_eq!(object["spec"]["image"], "log:1");
        assert!(
            !changes.iter().any(|change| change.contains("renamed")),
            "{changes:?}"
        );
    }

    #[test]
    fn what_a_mydaemonset_cannot_be_is_refused_by_name() {
        let with = |path: &[&str], value: Value| {
            let mut object = daemon_set("nginx");
            *member(&mut object, path) = value;
            to_ours(&object).unwrap_err()
        };
        assert_eq!(
            with(&["spec", "novelty"], json!(1)),
            "a MyDaemonSet has no field for spec.novelty"
        );
        assert_eq!(
            with(&["spec", "updateStrategy"], json!({"type": "Recreate"})),
            "a MyDaemonSet has no spec.updateStrategy.type \"Recreate\""
        );
        assert_eq!(
            with(
                &["spec", "selector"],
                json!({"matchLabels": {MANAGED_BY: "Helm"}})
            ),
            "spec.selector selects by the label app.kubernetes.io/managed-by, which the operator sets on its pods"
        );
        assert_eq!(
            with(&["spec", "template"], Value::Null),
            "spec.template has no container"
        );
        assert_eq!(
            with(
                &["spec", "template", "spec", "initContainers"],
                json!([{"name": "app"}])
            ),
            "an init container has the name \"app\", which the main container of a MyDaemonSet has: rename it first"
        );
        assert_eq!(
            with(&["metadata", "name"], "x".repeat(64).into()),
            "the name of a MyDaemonSet has at most 63 characters, and that of this DaemonSet has 64"
        );
    }

    #[test]
    fn the_way_back_is_exact_unless_the_object_changed() {
        let daemon_set = daemon_set("nginx");
        let ours = to_ours(&daemon_set).unwrap().object;
        let kept = Some((&daemon_set, &ours));
        // As the webhook completes it, and paused.
        let mut live = ours.clone();
        *member(&mut live, &["spec", "updateStrategy", "rollingUpdate"]) =
            json!({"maxUnavailable": "30%", "maxSurge": 0, "partition": 0, "paused": true});
        assert_eq!(to_daemon_set(&live, kept).unwrap().object, daemon_set);
        *member(&mut live, &["spec", "image"]) = "nginx:1.30".into();
        let Translation { object, changes } = to_daemon_set(&live, kept).unwrap();
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            (&container["name"], &container["image"]),
            (&json!("nginx"), &json!("nginx:1.30"))
        );
        assert_eq!(object["spec"]["selector"], daemon_set["spec"]["selector"]);
        assert!(
            changes.iter().any(|change| change.contains("paused goes")),
            "{changes:?}"
        );
    }

    #[test]
    fn an_object_that_never_was_a_daemon_set_gets_a_selector() {
        let ours = json!({"metadata": {"name": "web"}, "spec": {"image": "a:1",
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": "10%", "partition": 2}}}});
        let Translation { object, changes } = to_daemon_set(&ours, None).unwrap();
        assert_eq!(
            object["spec"],
            json!({
                "selector": {"matchLabels": {SELECTED: "web"}},
                "template": {"metadata": {"labels": {SELECTED: "web"}},
                    "spec": {"containers": [{"name": "app", "image": "a:1"}]}},
                "updateStrategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "10%"}},
            })
        );
        assert_eq!(changes.len(), 4, "{changes:?}");
        // And there again: the label stays, so that the selector of another way back is the same.
        let mut named = object.clone();
        *member(&mut named, &["metadata", "name"]) = "web".into();
        let again = to_ours(&named).unwrap().object;
        assert_eq!(
            again["spec"]["template"]["metadata"]["labels"],
            json!({SELECTED: "web"})
        );
    }

    #[test]
    fn hostile_manifests_do_not_panic() {
        for spec in [
            json!(null),
            json!(7),
            json!([]),
            json!({"template": 1}),
            json!({"template": {"spec": []}}),
            json!({"template": {"metadata": [], "spec": {"containers": [1, {"name": []}]}}}),
        ] {
            let object = json!({"metadata": 1, "spec": spec});
            let _ = to_ours(&object);
            let _ = to_daemon_set(&object, None);
        }
    }
}
