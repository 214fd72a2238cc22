//! Which nodes a pod may run on.

use serde_json::{Value, json};

use super::nodes::condition;
use crate::write::text;

/// Whether the scheduler binds a pod to a node.
pub(super) fn takes(node: &Value, pod: &Value) -> bool {
    let unschedulable = node["spec"]["unschedulable"] == true;
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints = taints.chain(unschedulable.then_some(&cordon));
    let not_ready = condition(node, "Ready") != Some("True");
    is_selected(node, pod)
        && !not_ready
        && taints.all(|taint| taint["effect"] == "PreferNoSchedule" || tolerates(pod, taint))
}

/// Whether the node matches the pod's node selector and required affinity.
pub fn is_selected(node: &Value, pod: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selected = pod["spec"]["nodeSelector"].as_object();
    let selected = selected
        .into_iter()
        .flatten()
        .all(|(key, value)| labels[key] == *value);
    let affinity =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = affinity["nodeSelectorTerms"].as_array();
    let term_holds = |term: &Value| {
        let holds = |list: &str, value: &dyn Fn(&str) -> Value| {
            let requirements = term[list].as_array().into_iter().flatten();
            requirements
                .clone()
                .all(|r| requirement_holds(r, &value(text(r, "key"))))
        };
        holds("matchExpressions", &|key| labels[key].clone())
            && holds("matchFields", &|_| node["metadata"]["name"].clone())
    };
    selected && terms.is_none_or(|terms| terms.iter().any(term_holds))
}

fn requirement_holds(requirement: &Value, value: &Value) -> bool {
    let listed = requirement["values"]
        .as_array()
        .is_some_and(|values| values.contains(value));
    match text(requirement, "operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => !value.is_null(),
        "DoesNotExist" => value.is_null(),
        _ => false,
    }
}

/// Whether the pod tolerates a taint.
pub fn tolerates(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    tolerations.clone().any(|toleration| {
        let absent_or =
            |field: &str| toleration[field].is_null() || toleration[field] == taint[field];
        let value =
            toleration["operator"] == "Exists" || text(toleration, "value") == text(taint, "value");
        absent_or("effect") && absent_or("key") && value
    })
}
