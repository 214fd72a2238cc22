//! Demands on nodes that are none: the API server would refuse them when a pod is made.
//!
//! They are refused at admission, since a demand with a slip in it matches no node: every pod would be
//! deleted, and no pod made whose refusal could tell why. The words are those of Kubernetes'
//! `pkg/apis/core/validation`.

use serde_json::{Map, Value};

use super::{Demand, Test, is_key, is_value, list, text};
use crate::admission::faults::Fault;
use crate::admission::rules::Findings;
use crate::kinds::template::{given, member, object};

const NO_KEY: &str = "a label cannot have this key";
const NO_VALUE: &str = "a label cannot have this value";

/// Judges `nodeSelector`, the required node affinity and `tolerations` of the pod spec at `at`.
pub fn check(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    check_selector(&format!("{at}.nodeSelector"), spec, findings);
    check_affinity(&format!("{at}.affinity"), spec, findings);
    let tolerations = list(spec.get("tolerations")).iter().enumerate();
    for (i, toleration) in tolerations {
        check_toleration(&format!("{at}.tolerations[{i}]"), toleration, findings);
    }
}

fn check_selector(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    for (key, value) in selector.into_iter().flatten() {
        if !is_key(key) {
            findings.fault(Fault::invalid(at, key.as_str(), NO_KEY));
        }
        let at = || format!("{at}[{key}]");
        match value.as_str() {
            None => findings.fault(Fault::type_invalid(at(), value, "must be a string")),
            Some(text) if !is_value(text) => findings.fault(Fault::invalid(at(), text, NO_VALUE)),
            Some(_) => {}
        }
    }
}

fn check_affinity(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let Some(affinity) = spec.get("affinity").and_then(Value::as_object) else {
        return;
    };
    let Some(of_nodes) = member(at, affinity, "nodeAffinity", findings) else {
        return;
    };
    let at = format!("{at}.nodeAffinity");
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
        let at = format!("{at}[{i}]");
        let Some(term) = object(&at, term, findings) else {
            continue;
        };
        for (key, of_field) in [("matchExpressions", false), ("matchFields", true)] {
            let at = format!("{at}.{key}");
            let demands = array(&at, term.get(key), findings).unwrap_or_default();
            for (i, demand) in demands.iter().enumerate() {
                check_demand(&format!("{at}[{i}]"), demand, of_field, findings);
            }
        }
    }
}

/// An array, empty where it is absent; a fault when it is of another type.
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
    if object(at, demand, findings).is_none() || Demand::read(demand, of_field).test != Test::Never
    {
        return;
    }
    let (key, operator) = (text(demand, "key"), text(demand, "operator"));
    let Some(values) = array(&format!("{at}.values"), demand.get("values"), findings) else {
        return;
    };
    let supported: &[&str] = if of_field {
        &["In", "NotIn"]
    } else {
        &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    };
    let before = findings.faults.len();
    if !supported.contains(&operator) {
        let at = format!("{at}.operator");
        findings.fault(Fault::not_supported(at, operator, supported));
    }
    if !of_field && !is_key(key) {
        findings.fault(Fault::invalid(format!("{at}.key"), key, NO_KEY));
    }
    for (i, value) in values.iter().enumerate() {
        let at = || format!("{at}.values[{i}]");
        match value.as_str() {
            None => findings.fault(Fault::type_invalid(at(), value, "must be a string")),
            Some(text) if !of_field && !is_value(text) => {
                findings.fault(Fault::invalid(at(), text, NO_VALUE));
            }
            Some(_) => {}
        }
    }
    if findings.faults.len() > before {
        return;
    }
    // Key, operator and each value are sound, so it is their number or kind.
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
    #![allow(clippy::needless_pass_by_value)]
    use serde_json::json;

    use super::*;

    fn faults(spec: Value) -> Vec<String> {
        let mut findings = Findings::default();
        check("s", spec.as_object().unwrap_or(&Map::new()), &mut findings);
        findings.faults.iter().map(ToString::to_string).collect()
    }

    fn of_term(term: Value) -> Vec<String> {
        let required = json!({"nodeSelectorTerms": [term]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let at = "s.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].";
        let faults = faults(json!({"affinity": affinity}));
        faults.iter().map(|fault| fault.replace(at, "")).collect()
    }

    #[test]
    fn what_nodes_can_be_asked_for_has_no_fault() {
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
    fn a_slip_in_a_selector_is_named() {
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
    fn a_slip_in_an_affinity_is_named() {
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
    fn a_slip_in_a_toleration_is_named() {
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
