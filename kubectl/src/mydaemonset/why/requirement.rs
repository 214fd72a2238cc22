//! Which requirement of a pod template a node does not meet, by the operator's own rules: each is tried by itself.

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Taint;
use my_operator_kind::template::PodTemplate;
use my_operator_mydaemonset::decide::placement::{Eligibility, Placement};
use my_operator_mydaemonset::observe::node::{NodeView, WatchedNode};
use serde_json::{Map, Value, json};

use super::facts::NodeFacts;

/// The part of the node selector or of the required node affinity that the node does not meet, in words.
pub(super) fn unmet(template: Option<&PodTemplate>, node: &NodeView) -> Option<String> {
    let spec = template?.spec()?;
    of_selector(spec, node).or_else(|| of_affinity(spec, node))
}

fn eligibility(spec: &Value, node: &NodeView) -> Eligibility {
    let template = PodTemplate(json!({"spec": spec}));
    Placement::from_template(Some(&template)).eligibility(node)
}

/// Whether the node meets these requirements on its labels and its name, whatever taints it has.
fn meets(key: &str, requirements: &Value, node: &NodeView) -> bool {
    let spec = json!({key: requirements, "tolerations": [{"operator": "Exists"}]});
    eligibility(&spec, node) != Eligibility::Leave
}

fn of_selector(spec: &Map<String, Value>, node: &NodeView) -> Option<String> {
    let mut entries = spec.get("nodeSelector")?.as_object()?.iter();
    entries.find_map(|(key, value)| {
        if meets("nodeSelector", &json!({key: value}), node) {
            return None;
        }
        let wanted = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        Some(format!(
            "nodeSelector {key}={wanted}: the node has {}",
            label(node, key)
        ))
    })
}

/// A label of a node, in words.
fn label(node: &NodeView, key: &str) -> String {
    let value = node.label(key);
    value.map_or_else(
        || format!("no label {key}"),
        |value| format!("{key}={value}"),
    )
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn of_affinity(spec: &Map<String, Value>, node: &NodeView) -> Option<String> {
    let affinity = spec.get("affinity")?;
    if meets("affinity", affinity, node) {
        return None;
    }
    let terms = affinity.pointer(&format!("/nodeAffinity/{REQUIRED}/nodeSelectorTerms"));
    let terms = terms
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    match terms {
        [] => Some("the node affinity has no term, and so fits no node".to_owned()),
        [term] => Some(of_term(term, node)),
        [first, ..] => Some(format!(
            "none of the {} terms of the node affinity; of the first, {}",
            terms.len(),
            of_term(first, node)
        )),
    }
}

/// The first requirement of a term that the node does not meet, in words.
fn of_term(term: &Value, node: &NodeView) -> String {
    let all = ["matchExpressions", "matchFields"]
        .into_iter()
        .flat_map(|list| {
            let requirements = term.get(list).and_then(Value::as_array);
            requirements.into_iter().flatten().map(move |it| (list, it))
        });
    let mut unmet = all.filter(|(list, requirement)| {
        let alone =
            json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{*list: [requirement]}]}}});
        !meets("affinity", &alone, node)
    });
    let Some((list, requirement)) = unmet.next() else {
        return "node affinity that fits no node".to_owned();
    };
    let text = |key: &str| {
        requirement
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let values = requirement.get("values").and_then(Value::as_array);
    let values: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect();
    let (key, operator) = (text("key"), text("operator"));
    let values = values.join(",");
    let has = if list == "matchFields" {
        format!("the name {}", node.name)
    } else {
        label(node, key)
    };
    format!("node affinity {key} {operator} [{values}]: the node has {has}")
}

/// The first taint of the node that the pods of a template do not tolerate, those first that drive pods away.
pub(super) fn untolerated<'a>(
    template: Option<&PodTemplate>,
    node: &'a NodeFacts,
    now: DateTime<Utc>,
) -> Option<&'a Taint> {
    let spec = template.and_then(PodTemplate::spec);
    let part = |key: &str| spec.and_then(|spec| spec.get(key)).cloned();
    let tolerates = |taint: &&Taint| {
        let alone = json!({"spec": {"taints": [taint]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let Ok(alone) = serde_json::from_value::<WatchedNode>(alone) else {
            return true;
        };
        // The network of the host is a reason for one more toleration.
        let spec = json!({"tolerations": part("tolerations"), "hostNetwork": part("hostNetwork")});
        eligibility(&spec, &NodeView::from_watched(alone, now)) == Eligibility::Run
    };
    let all = node.taints.as_slice();
    let of = move |effect: &'static str| all.iter().filter(move |taint| taint.effect == effect);
    let mut taints = of("NoExecute").chain(of("NoSchedule"));
    taints.find(|taint| !tolerates(taint))
}

/// A taint as kubectl writes it.
pub(super) fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}
