//! What a user reads: the plan, and how far the `DaemonSet` is.

use serde_json::Value;

use super::requests::kept_name;
use super::steps::{Direction, Kept, State};
use super::translate::{deployed_by, to_daemon_set, to_ours};

type Right = (&'static str, &'static str, &'static [&'static str]);

/// The rights that a migration needs: group, resource and verbs.
pub(super) fn rights(direction: Direction) -> &'static [Right] {
    const KEPT: Right = ("", "configmaps", &["get", "create", "patch", "delete"]);
    const GROUP: &str = "apps.zhongmingmao.io";
    match direction {
        Direction::Forward => &[
            ("apps", "daemonsets", &["get", "patch", "delete"]),
            (GROUP, "mydaemonsets", &["get", "watch", "create", "patch"]),
            ("", "pods", &["list", "patch", "delete"]),
            KEPT,
        ],
        Direction::Back => &[
            (GROUP, "mydaemonsets", &["get", "patch", "delete"]),
            ("apps", "daemonsets", &["get", "create", "patch"]),
            ("", "pods", &["list", "patch"]),
            KEPT,
        ],
    }
}

/// The plan.
pub(super) fn lines(
    direction: Direction,
    state: &State,
    kept: &Kept,
    source: &Value,
) -> Result<Vec<String>, String> {
    let name = &state.name;
    let (from, to) = (direction.source().kind(), direction.target().kind());
    let target = &kept.manifest(direction.target())["spec"];
    let kept_as = kept_name(name);
    let is_there = |side| state.live(side).is_some();
    if !is_there(direction.source()) {
        return Ok(vec![if is_there(direction.target()) {
            format!("{to} {name} exists: only the end of the migration is left.")
        } else {
            format!(
                "There is neither a {from} nor a {to} {name}. The {to} is created from configmap/{kept_as}, and adopts the pods that are left, {}.",
                at_a_time(target)
            )
        }]);
    }
    let mut lines = vec![format!("{from} {name} becomes {to} {name}.")];
    if let Some(nodes) = source["status"]["desiredNumberScheduled"].as_i64() {
        lines.push(format!("Nodes: {nodes}, {}.", at_a_time(target)));
    }
    let changes = match direction {
        Direction::Forward => to_ours(&kept.daemon_set)?.changes,
        Direction::Back => {
            let before = state.kept.as_ref();
            let before = before.map(|kept| (&kept.daemon_set, &kept.ours));
            to_daemon_set(&kept.ours, before)?.changes
        }
    };
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
    let last = match direction {
        Direction::Forward => "create the MyDaemonSet: it adopts the pods and replaces them",
        Direction::Back => {
            "create the DaemonSet, guarded against second pods: it adopts the pods and then replaces them"
        }
    };
    lines.push("Steps:".to_owned());
    lines.extend([
        format!("  1. keep both manifests in configmap/{kept_as}"),
        format!("  2. stop the roll-out of the {from}"),
        format!("  3. delete the {from}; its pods stay"),
        format!("  4. {last}, {}", at_a_time(target)),
    ]);
    Ok(lines)
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

/// Whether an operator has ever seen a `MyDaemonSet`. Until then the CRD's default is -1; an older CRD has none.
pub(super) fn is_taken_up(ours: &Value) -> bool {
    let observed = ours["status"]["observedGeneration"].as_i64();
    observed.is_some_and(|generation| generation > 0)
}

/// How far a `DaemonSet` is in kubectl's words, and whether it is done.
pub(super) fn progress(daemon_set: &Value) -> (String, bool) {
    let name = daemon_set["metadata"]["name"].as_str().unwrap_or_default();
    let status = &daemon_set["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    if status["observedGeneration"].as_i64() < daemon_set["metadata"]["generation"].as_i64() {
        let text = "Waiting for daemon set spec update to be observed...";
        return (text.to_owned(), false);
    }
    if daemon_set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        let text = format!(
            "daemon set {name:?} has the strategy OnDelete: a node gets its new pod when its pod is deleted"
        );
        return (text, true);
    }
    let [desired, updated, available] = [
        "desiredNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
    ]
    .map(number);
    let waiting = |rest: String| {
        let text = format!("Waiting for daemon set {name:?} rollout to finish: {rest}");
        (text, false)
    };
    if updated < desired {
        return waiting(format!(
            "{updated} out of {desired} new pods have been updated..."
        ));
    }
    if available < desired {
        return waiting(format!(
            "{available} of {desired} updated pods are available..."
        ));
    }
    (format!("daemon set {name:?} successfully rolled out"), true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_taken_up_once_an_operator_has_observed_a_generation() {
        for (status, expected) in [
            (json!(null), false),
            (json!({}), false),
            (json!({"observedGeneration": -1}), false),
            (json!({"observedGeneration": 1}), true),
        ] {
            let ours = json!({"metadata": {"generation": 2}, "status": status});
            assert_eq!(is_taken_up(&ours), expected, "{status}");
        }
    }
}
