//! The special rules for pods.

use serde_json::{Value, json};

use crate::status::FieldError;

const GRACE: i64 = 30;

/// Sets what the API server sets in a new pod.
pub(crate) fn default(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let mut set = |field: &str, value: Value| {
        if spec[field].is_null() {
            spec[field] = value;
        }
    };
    set("restartPolicy", json!("Always"));
    set("terminationGracePeriodSeconds", json!(GRACE));
    set("dnsPolicy", json!("ClusterFirst"));
    set("schedulerName", json!("default-scheduler"));
    set("securityContext", json!({}));
    set("enableServiceLinks", json!(true));
    pod["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    if is_gated(pod) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": null,
        }]);
    }
}

/// Whether scheduling gates keep the pod from being bound.
pub(crate) fn is_gated(pod: &Value) -> bool {
    !gates(pod).is_empty()
}

fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let gates = gates.into_iter().flatten();
    gates.filter_map(|gate| gate["name"].as_str()).collect()
}

/// How long a pod that is deleted now may still run.
pub(crate) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) || ended {
        return 0;
    }
    let own = || pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let grace = asked.or_else(own).unwrap_or(GRACE);
    if grace < 0 { 1 } else { grace }
}

/// The pod on that node.
pub(crate) fn bind(pod: &Value, node: &str) -> Result<Value, String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    if let Some(there) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
    {
        return Err(format!(
            "pod {name} is already assigned to node \"{there}\""
        ));
    }
    if is_gated(pod) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = json!(node);
    set_condition(&mut pod, "PodScheduled", "True", json!({}));
    Ok(pod)
}

/// Sets a condition of the status, with those further fields.
pub(crate) fn set_condition(pod: &mut Value, kind: &str, status: &str, more: Value) {
    let mut condition = more;
    condition["type"] = json!(kind);
    condition["status"] = json!(status);
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    if let Value::Array(conditions) = &mut pod["status"]["conditions"] {
        conditions.retain(|there| there["type"] != kind);
        conditions.push(condition);
    }
}

/// The API server's validation of pods, as far as a controller can violate it.
pub(crate) fn validate(pod: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &pod["spec"];
    let Some(old) = old else {
        if spec["containers"].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required("spec.containers", ""));
        }
        let bound = spec["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty());
        if bound && is_gated(pod) {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.push(FieldError::forbidden("spec.nodeName", detail));
        }
        return;
    };
    let there = gates(old);
    for (place, gate) in gates(pod).into_iter().enumerate() {
        if !there.contains(&gate) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            let field = format!("spec.schedulingGates[{place}].name");
            errors.push(FieldError::forbidden(&field, &detail));
        }
    }
    if frozen(pod, old) != frozen(old, old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// The part of a pod's spec that an update of `old` must not change.
fn frozen(pod: &Value, old: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Value::Object(fields) = &mut spec {
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "schedulingGates",
            "terminationGracePeriodSeconds",
        ] {
            fields.remove(field);
        }
        // The node selector and affinity of a gated pod may still be narrowed.
        if is_gated(old) {
            fields.remove("nodeSelector");
            fields.remove("affinity");
        }
    }
    for list in ["containers", "initContainers"] {
        if let Some(Value::Array(containers)) = spec.get_mut(list) {
            for container in containers {
                container["image"] = Value::Null;
            }
        }
    }
    spec
}
