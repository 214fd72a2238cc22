//! Whether a replica leads, and renews its Lease.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::fetch::{Fetched, Unread};
use super::report::Finding;

const CHECK: &str = "leader";

/// The finding on the Lease. `pods`: the names of the replicas, if they could be read.
pub(super) fn judge(
    name: &str,
    lease: Fetched<Value>,
    pods: Option<&[&str]>,
    now: DateTime<Utc>,
) -> Finding {
    let lease = match lease {
        Ok(lease) => lease,
        Err(Unread::Missing(_)) => {
            let text = format!("there is no Lease {name}: no replica leads");
            return Finding::failed(CHECK, text).action("look at the log of the replicas");
        }
        Err(unread) => return unread.finding(CHECK),
    };
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    if holder.is_empty() {
        return Finding::failed(CHECK, "the Lease has no holder: no replica leads")
            .action("look at the log of the replicas");
    }
    let renewed = spec["renewTime"].as_str();
    let renewed = renewed.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    let Some(renewed) = renewed.map(|at| at.with_timezone(&Utc)) else {
        return Finding::failed(CHECK, format!("the Lease of {holder} has no renewTime"))
            .action("find who edits the Lease");
    };
    let lasts = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let lasts = TimeDelta::seconds(lasts.clamp(1, 600));
    let age = (now - renewed).num_seconds();
    if now - renewed > lasts {
        let text = format!(
            "the Lease of {holder} is stale: renewed {age} s ago, good for {} s",
            lasts.num_seconds()
        );
        return Finding::failed(CHECK, text)
            .action("its holder hangs, is stopped, or does not reach the API server: look at its log, and restart it if it does not answer; or its clock is wrong");
    }
    // As client-go writes it: the name of the pod, `_` and an identifier.
    let pod = holder.split('_').next().unwrap_or_default();
    match pods {
        Some(pods) if !pods.contains(&pod) => {
            let text = format!("{holder} leads, which is not a pod of the Deployment");
            Finding::warning(CHECK, text).action("if no other operator is to run, stop it")
        }
        _ => Finding::passed(CHECK, format!("{holder}, renewed {} s ago", age.max(0))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::report::Level;

    #[test]
    fn a_leader_is_a_pod_that_renews() {
        let now = Utc::now();
        let lease = |holder: &str, age: i64| {
            let renewed = (now - TimeDelta::seconds(age)).to_rfc3339();
            Ok(
                json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}),
            )
        };
        let none = Err(Unread::Missing(String::new()));
        let pods: &[&str] = &["pod-1", "pod-2"];
        for (lease, pods, level, words) in [
            (
                lease("pod-1_x", 3),
                Some(pods),
                Level::Passed,
                "pod-1_x, renewed",
            ),
            (lease("pod-1_x", 3), None, Level::Passed, "pod-1_x"),
            (
                lease("pod-1_x", 16),
                Some(pods),
                Level::Failed,
                "is stale: renewed 16 s ago, good for 15 s",
            ),
            (
                lease("other_x", 3),
                Some(pods),
                Level::Warning,
                "not a pod of the Deployment",
            ),
            (lease("", 3), Some(pods), Level::Failed, "no holder"),
            (none, Some(pods), Level::Failed, "there is no Lease release"),
            (
                Ok(json!({"spec": {"holderIdentity": "pod-1"}})),
                None,
                Level::Failed,
                "no renewTime",
            ),
        ] {
            let finding = judge("release", lease, pods, now);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
        }
    }
}
