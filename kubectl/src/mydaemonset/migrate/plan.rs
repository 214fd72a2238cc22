//! What a user reads before anything is changed.

use serde_json::Value;

use super::steps::Side;
use super::translate::deployed_by;

/// A group, a resource and verbs.
type Right = (&'static str, &'static str, &'static [&'static str]);

/// The rights that a migration needs: group, resource and verbs.
pub(super) fn rights(to: Side) -> &'static [Right] {
    const GROUP: &str = "apps.zhongmingmao.io";
    match to {
        Side::Ours => &[
            ("apps", "daemonsets", &["get", "patch", "delete"]),
            (
                GROUP,
                "mydaemonsets",
                &["get", "watch", "create", "patch", "delete"],
            ),
            ("", "pods", &["list", "patch", "delete"]),
        ],
        Side::DaemonSet => &[
            (GROUP, "mydaemonsets", &["get", "patch", "delete"]),
            ("apps", "daemonsets", &["get", "create", "update"]),
            ("", "pods", &["list", "patch", "delete"]),
        ],
    }
}

/// The plan: `target` is the new object, `changes` what is different in it, `source` the stored one.
pub(super) fn lines(
    side: Side,
    name: &str,
    source: &Value,
    target: &Value,
    changes: Vec<String>,
) -> Vec<String> {
    let (from, to) = (side.other().kind(), side.kind());
    let pace = at_a_time(&target["spec"]);
    let mut lines = vec![format!("{from} {name} becomes {to} {name}.")];
    if let Some(nodes) = source["status"]["desiredNumberScheduled"].as_i64() {
        lines.push(format!("Nodes: {nodes}, {pace}."));
    }
    lines.push("What changes:".to_owned());
    lines.extend(changes.into_iter().map(|change| format!("  {change}")));
    if let Some(finalizers) = source["metadata"]["finalizers"].as_array() {
        let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
        let names = names.join(", ");
        lines.push(format!(
            "  metadata.finalizers go, and the deletion waits until they are removed: {names}"
        ));
    }
    if let Some(tool) = deployed_by(source) {
        lines.push(format!("{tool} deploys this {from}, and would create it again beside the {to}: take it out of what {tool} deploys first."));
    }
    lines.push("Steps:".to_owned());
    let steps = match side {
        Side::Ours => [
            "create the MyDaemonSet, of which the operator does nothing yet",
            "stop the roll-out of the DaemonSet",
            "delete the DaemonSet; its pods stay",
            &format!("the MyDaemonSet adopts the pods and replaces them, {pace}"),
        ],
        Side::DaemonSet => [
            "have the operator leave the pods of the MyDaemonSet alone, delete one of two on a node, and release them",
            "create the DaemonSet, guarded against second pods: it adopts the pods",
            "delete the MyDaemonSet",
            &format!("the DaemonSet replaces the pods, {pace}"),
        ],
    };
    lines.extend((1..).zip(steps).map(|(n, step)| format!("  {n}. {step}")));
    lines
}

/// How many nodes are without their pod at a time.
fn at_a_time(spec: &Value) -> String {
    let strategy = &spec["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return "each when its pod is deleted (OnDelete)".to_owned();
    }
    let amount = |field: &str| {
        let amount = &strategy["rollingUpdate"][field];
        let text = amount.as_str().map(str::to_owned);
        text.or_else(|| amount.as_i64().map(|number| number.to_string()))
    };
    match amount("maxSurge").filter(|surge| surge != "0" && surge != "0%") {
        Some(surge) => format!("{surge} at a time with a second pod"),
        None => format!(
            "{} at a time without a pod",
            amount("maxUnavailable").unwrap_or_else(|| "1".to_owned())
        ),
    }
}
