//! Rejects requirements on nodes that the API server would reject when a pod is created.
//!
//! A mistake in a requirement makes it match no node: every pod would be deleted, and none created
//! whose rejection could say why. The template's spec has no schema, so `kubectl apply` does not
//! find a misspelt member either. Rules and words are those of Kubernetes' `ValidateNodeSelector`
//! and its helpers (`pkg/apis/core/validation/validation.go`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{NODE_NAME, is_key, is_value, line, list, node_selector_terms, text};
use admission_rules::faults::Fault;
use admission_rules::names::is_subdomain;
use admission_rules::rules::Findings;
use my_operator_kind::template::{given, member, object};

/// How many terms, requirements and values a pod spec may have: each is compared with every node.
const MAX_SIZE: usize = 1_000;
const NO_KEY: &str = "a label cannot have this key";
const NO_VALUE: &str = "a label cannot have this value";
const NO_NODE: &str = "a node cannot have this name";
const EXPRESSIONS: &str = "matchExpressions";
const FIELDS: &str = "matchFields";

/// Judges `nodeSelector`, the required node affinity and `tolerations` of the pod spec at `at`.
pub(crate) fn check(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    check_selector(&format!("{at}.nodeSelector"), spec, findings);
    check_affinity(&format!("{at}.affinity"), spec, findings);
    let tolerations = list(spec.get("tolerations")).iter().enumerate();
    for (i, toleration) in tolerations {
        check_toleration(&format!("{at}.tolerations[{i}]"), toleration, findings);
    }
}

/// Rejects more of them than a node is compared with in a moment.
pub(crate) fn check_limits(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    if size(spec) > MAX_SIZE {
        let detail = format!(
            "nodeSelector, the required node affinity and tolerations may have at most {MAX_SIZE} terms, requirements and values together"
        );
        findings.fault(Fault::forbidden(at, &detail));
    }
}

/// How many terms, requirements and values there are.
fn size(spec: &Map<String, Value>) -> usize {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let terms = node_selector_terms(spec).iter().map(|term| {
        let demands = [EXPRESSIONS, FIELDS]
            .into_iter()
            .flat_map(|key| list(term.get(key)));
        1 + demands
            .map(|demand| 1 + list(demand.get("values")).len())
            .sum::<usize>()
    });
    selector.map_or(0, Map::len) + terms.sum::<usize>() + list(spec.get("tolerations")).len()
}

fn check_selector(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    for (key, value) in selector.into_iter().flatten() {
        check_key(at, key, findings);
        let fault = match value.as_str() {
            None => Fault::type_invalid(at, value, "must be a string"),
            Some(text) if !is_value(text) => Fault::invalid(at, text, NO_VALUE),
            Some(_) => continue,
        };
        findings.fault(fault.at_key(key));
    }
}

/// Judges the key of a label of nodes.
pub(crate) fn check_key(at: &str, key: &str, findings: &mut Findings) {
    if !is_key(key) {
        findings.fault(Fault::invalid(at, key, NO_KEY));
    }
}

/// Judges the value of such a label.
pub(crate) fn check_value(at: &str, value: &str, findings: &mut Findings) {
    if !is_value(value) {
        findings.fault(Fault::invalid(at, value, NO_VALUE));
    }
}

/// Judges labels that nodes must have.
pub(crate) fn check_labels(at: &str, labels: &BTreeMap<String, String>, findings: &mut Findings) {
    if !findings.check_count(at, labels.len(), MAX_SIZE) {
        return;
    }
    for (key, value) in labels {
        check_key(at, key, findings);
        if !is_value(value) {
            findings.fault(Fault::invalid(at, value.as_str(), NO_VALUE).at_key(key));
        }
    }
}

fn check_affinity(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let Some(affinity) = spec.get("affinity").and_then(Value::as_object) else {
        return;
    };
    let Some(of_nodes) = member(at, affinity, "nodeAffinity", findings) else {
        return;
    };
    let at = format!("{at}.nodeAffinity");
    let preferred = array(
        &format!("{at}.{PREFERRED}"),
        of_nodes.get(PREFERRED),
        findings,
    );
    if preferred.is_some_and(|terms| !terms.is_empty()) {
        findings.warn(format!(
            "{at}.{PREFERRED}: has no effect: every eligible node gets a pod"
        ));
    }
    let Some(required) = member(&at, of_nodes, REQUIRED, findings) else {
        return;
    };
    let at = format!("{at}.{REQUIRED}.nodeSelectorTerms");
    let terms = array(&at, required.get("nodeSelectorTerms"), findings);
    if terms.is_some_and(<[_]>::is_empty) {
        let why = "must have at least one node selector term";
        findings.fault(Fault::required(at.as_str(), why));
    }
    for (i, term) in terms.unwrap_or_default().iter().enumerate() {
        if findings.is_full() {
            return;
        }
        check_term(&format!("{at}[{i}]"), term, findings);
    }
}

fn check_term(at: &str, term: &Value, findings: &mut Findings) {
    let Some(term) = object(at, term, findings) else {
        return;
    };
    check_members(at, term, &[EXPRESSIONS, FIELDS], findings);
    let mut is_empty = true;
    for (key, of_field) in [(EXPRESSIONS, false), (FIELDS, true)] {
        let at = format!("{at}.{key}");
        let demands = array(&at, term.get(key), findings);
        is_empty &= demands.is_some_and(<[_]>::is_empty);
        for (i, demand) in demands.unwrap_or_default().iter().enumerate() {
            if findings.is_full() {
                return;
            }
            check_demand(&format!("{at}[{i}]"), demand, of_field, findings);
        }
    }
    if is_empty {
        findings.warn(format!("{at}: an empty term matches no node"));
    }
}

/// Rejects members that the API does not know: the API server would silently drop such a requirement.
fn check_members(at: &str, fields: &Map<String, Value>, known: &[&str], findings: &mut Findings) {
    for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
        if findings.is_full() {
            return;
        }
        let why = format!("unknown field; known are {}", known.join(", "));
        findings.fault(Fault::forbidden(format!("{at}.{key}"), &why));
    }
}

/// An array, empty if absent; an error if it is of another type.
fn array<'a>(at: &str, value: Option<&'a Value>, findings: &mut Findings) -> Option<&'a [Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(items)) => Some(items),
        Some(other) => {
            findings.fault(Fault::type_invalid(at, other, "must be an array"));
            None
        }
    }
}

fn check_demand(at: &str, demand: &Value, of_field: bool, findings: &mut Findings) {
    let Some(fields) = object(at, demand, findings) else {
        return;
    };
    let before = findings.faults.len();
    check_members(at, fields, &["key", "operator", "values"], findings);
    let (key, operator) = (text(demand, "key"), text(demand, "operator"));
    let supported: &[&str] = if of_field {
        &["In", "NotIn"]
    } else {
        &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    };
    if !supported.contains(&operator) {
        let at = format!("{at}.operator");
        findings.fault(Fault::not_supported(at, operator, supported));
    }
    if of_field && key != NODE_NAME {
        let at = format!("{at}.key");
        findings.fault(Fault::not_supported(at, key, &[NODE_NAME]));
    } else if !of_field && !is_key(key) {
        findings.fault(Fault::invalid(format!("{at}.key"), key, NO_KEY));
    }
    let Some(values) = array(&format!("{at}.values"), demand.get("values"), findings) else {
        return;
    };
    for (i, value) in values.iter().enumerate() {
        let at = || format!("{at}.values[{i}]");
        match value.as_str() {
            None => findings.fault(Fault::type_invalid(at(), value, "must be a string")),
            Some(text) if of_field && !is_subdomain(text) => {
                findings.fault(Fault::invalid(at(), text, NO_NODE));
            }
            Some(text) if !of_field && !is_value(text) => {
                findings.fault(Fault::invalid(at(), text, NO_VALUE));
            }
            Some(_) => {}
        }
    }
    if findings.faults.len() > before || line(demand, of_field).is_some() {
        return;
    }
    // Key, operator and each value are valid, so it is their number or kind.
    let at = format!("{at}.values");
    findings.fault(match operator {
        _ if of_field => Fault::required(at, "must be exactly one value"),
        "Exists" | "DoesNotExist" => Fault::forbidden(
            at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Gt" | "Lt" => Fault::required(
            at,
            "must be a single integer when `operator` is 'Lt' or 'Gt'",
        ),
        _ => Fault::required(at, "must be specified when `operator` is 'In' or 'NotIn'"),
    });
}

fn check_toleration(at: &str, toleration: &Value, findings: &mut Findings) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let Some(fields) = object(at, toleration, findings) else {
        return;
    };
    for key in ["key", "operator", "value", "effect"] {
        let value = fields.get(key).filter(|value| !value.is_null());
        if let Some(other) = value.filter(|value| !value.is_string()) {
            let at = format!("{at}.{key}");
            findings.fault(Fault::type_invalid(at, other, "must be a string"));
            return;
        }
    }
    let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
    match text(toleration, "operator") {
        "" | "Equal" if key.is_empty() => {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            let operator = text(toleration, "operator");
            findings.fault(Fault::invalid(format!("{at}.operator"), operator, why));
        }
        "" | "Equal" => {}
        "Exists" => {
            let value = text(toleration, "value");
            if !value.is_empty() {
                let why = "value must be empty when `operator` is 'Exists'";
                findings.fault(Fault::invalid(format!("{at}.value"), value, why));
            }
        }
        other => {
            let at = format!("{at}.operator");
            findings.fault(Fault::not_supported(at, other, &["Equal", "Exists"]));
        }
    }
    if !key.is_empty() && !is_key(key) {
        findings.fault(Fault::invalid(format!("{at}.key"), key, NO_KEY));
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        let at = format!("{at}.effect");
        findings.fault(Fault::not_supported(at, effect, &EFFECTS));
    } else if given(fields, "tolerationSeconds") && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        findings.fault(Fault::invalid(format!("{at}.effect"), effect, why));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn faults(spec: Value) -> Vec<String> {
        let mut findings = Findings::default();
        check("s", spec.as_object().unwrap_or(&Map::new()), &mut findings);
        findings.faults.iter().map(ToString::to_string).collect()
    }

    fn with_term(term: Value) -> Value {
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    const TERM: &str = "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";

    fn of_term(term: Value) -> Vec<String> {
        let at = format!("{TERM}.");
        let faults = faults(with_term(term));
        faults.iter().map(|fault| fault.replace(&at, "")).collect()
    }

    fn warnings(spec: &Value) -> Vec<String> {
        let mut findings = Findings::default();
        check("s", spec.as_object().unwrap(), &mut findings);
        assert!(findings.faults.is_empty(), "{spec}: {:?}", findings.faults);
        findings.warnings
    }

    #[test]
    fn valid_requirements_on_nodes_have_no_fault() {
        for spec in [
            json!({}),
            json!({"nodeSelector": {"kubernetes.io/os": "linux", "e": ""}, "affinity": null, "tolerations": null}),
            json!({"affinity": {"podAffinity": {}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
            json!({"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3}]}),
        ] {
            assert_eq!(faults(spec.clone()), Vec::<String>::new(), "{spec}");
        }
        let term = json!({
            "matchExpressions": [
                {"key": "a/b", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Exists"},
                {"key": "a", "operator": "Gt", "values": ["3"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}],
        });
        assert_eq!(of_term(term), Vec::<String>::new());
    }

    #[test]
    fn a_mistake_in_a_selector_is_reported() {
        assert_eq!(
            faults(json!({"nodeSelector": {"a": 1, "b b": "x", "c": "-"}})),
            [
                "s.nodeSelector[a]: Invalid value: 1: must be a string",
                "s.nodeSelector: Invalid value: \"b b\": a label cannot have this key",
                "s.nodeSelector[c]: Invalid value: \"-\": a label cannot have this value",
            ]
        );
    }

    #[test]
    fn a_mistake_in_an_affinity_is_reported() {
        for (demand, fault) in [
            (
                json!({"key": "a", "operator": "exists"}),
                "operator: Unsupported value: \"exists\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"",
            ),
            (
                json!({"key": "a", "operator": "In"}),
                "values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                json!({"key": "a", "operator": "Exists", "values": ["x"]}),
                "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                json!({"key": "a", "operator": "Gt", "values": ["x"]}),
                "values: Required value: must be a single integer when `operator` is 'Lt' or 'Gt'",
            ),
            (
                json!({"key": "", "operator": "Exists"}),
                "key: Invalid value: \"\": a label cannot have this key",
            ),
            (
                json!({"key": "a", "operator": "In", "values": [1]}),
                "values[0]: Invalid value: 1: must be a string",
            ),
            (
                json!({"key": "a", "operator": "In", "values": "x"}),
                "values: Invalid value: \"x\": must be an array",
            ),
        ] {
            let fault = format!("matchExpressions[0].{fault}");
            assert_eq!(of_term(json!({"matchExpressions": [demand]})), [fault]);
        }
        assert_eq!(
            of_term(
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]})
            ),
            ["matchFields[0].values: Required value: must be exactly one value"]
        );
        let none = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}});
        assert_eq!(
            faults(none),
            [
                "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"
            ]
        );
    }

    #[test]
    fn an_unknown_member_of_a_term_is_named() {
        for (term, fault) in [
            (
                json!({"matchLabels": {"disk": "ssd"}}),
                "matchLabels: Forbidden: unknown field; known are matchExpressions, matchFields",
            ),
            (
                json!({"matchExpression": [], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
                "matchExpression: Forbidden: unknown field; known are matchExpressions, matchFields",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "value": ["b"]}]}),
                "matchExpressions[0].value: Forbidden: unknown field; known are key, operator, values",
            ),
        ] {
            assert_eq!(of_term(term), [fault]);
        }
    }

    #[test]
    fn only_the_name_of_a_node_is_matched_as_a_field() {
        let key = |key: &str| {
            format!(
                "matchFields[0].key: Unsupported value: \"{key}\": supported values: \"metadata.name\""
            )
        };
        let name = |name: &str| {
            format!(
                "matchFields[0].values[0]: Invalid value: \"{name}\": a node cannot have this name"
            )
        };
        for (demand, fault) in [
            (
                json!({"key": "metadata.nmae", "operator": "In", "values": ["n"]}),
                key("metadata.nmae"),
            ),
            (
                json!({"key": "spec.x", "operator": "NotIn", "values": ["n"]}),
                key("spec.x"),
            ),
            (json!({"operator": "In", "values": ["n"]}), key("")),
            (
                json!({"key": "metadata.name", "operator": "In", "values": ["Node_1"]}),
                name("Node_1"),
            ),
            (
                json!({"key": "metadata.name", "operator": "NotIn", "values": [""]}),
                name(""),
            ),
            (
                json!({"key": "metadata.name", "operator": "Exists"}),
                "matchFields[0].operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\"".to_owned(),
            ),
        ] {
            assert_eq!(of_term(json!({"matchFields": [demand]})), [fault]);
        }
    }

    #[test]
    fn a_requirement_without_effect_is_a_warning() {
        for term in [
            json!({}),
            json!({"matchExpressions": [], "matchFields": null}),
        ] {
            let warning = format!("{TERM}: an empty term matches no node");
            assert_eq!(warnings(&with_term(term)), [warning]);
        }
        let preference = json!({"weight": 1, "preference": {"matchLabels": {}}});
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [preference]});
        assert_eq!(
            warnings(&json!({"affinity": {"nodeAffinity": preferred}})),
            [
                "s.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: has no effect: every eligible node gets a pod"
            ]
        );
    }

    #[test]
    fn a_mistake_in_a_toleration_is_reported() {
        for (toleration, fault) in [
            (
                json!({"key": "a", "operator": "exists"}),
                "operator: Unsupported value: \"exists\": supported values: \"Equal\", \"Exists\"",
            ),
            (
                json!({"key": "a", "operator": "Exists", "value": "x"}),
                "value: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            ),
            (
                json!({"value": "x"}),
                "operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ),
            (
                json!({"key": "a", "effect": "NoRun"}),
                "effect: Unsupported value: \"NoRun\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ),
            (
                json!({"key": "a", "tolerationSeconds": 3}),
                "effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            ),
            (json!({"key": 1}), "key: Invalid value: 1: must be a string"),
        ] {
            let fault = format!("s.tolerations[0].{fault}");
            assert_eq!(faults(json!({"tolerations": [toleration]})), [fault]);
        }
    }
}
