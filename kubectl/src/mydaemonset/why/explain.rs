//! What the operator's own judgement finds, in words: a pure function of the object, the nodes, the pods, their Events and
//! the time.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use my_operator_kind::watched::utc;
use my_operator_mydaemonset::cause::Cause;
use my_operator_mydaemonset::decide::placement::UNSCHEDULABLE;
use my_operator_mydaemonset::observe::node::OUT_OF_SERVICE;
use my_operator_mydaemonset::status::{
    DEGRADED, FROZEN, PROGRESSING, cause_of_progress, cause_of_refusal,
};
use my_operator_mydaemonset::why::{Wait, why};
use serde::Serialize;
use wall_clock_controller::reconcile::condition::{ACCEPTED, Condition};

use super::facts::{Fleet, NodeFacts};
use super::pod;
use super::reason::Reason;
use crate::mydaemonset::object::Object;

/// A node and why it is behind, or has no available pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) node: String,
    #[serde(flatten)]
    pub(super) reason: Reason,
    /// What a person can do.
    pub(super) advice: String,
}

/// What is found out about all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// By the name of the node.
    pub(super) findings: Vec<Finding>,
    /// How many nodes have an available pod of the newest revision and no other.
    pub(super) done: usize,
    /// How many nodes have no pod, and should have none, unless one was asked for.
    pub(super) ineligible: usize,
    /// Whether there is a node, or a pod on a node, to report about.
    pub(super) is_known: bool,
}

/// Finds the causes. With the name of a node, only for that, even if no pod belongs there.
pub(super) fn explain(
    object: &Object,
    fleet: &Fleet,
    asked: Option<&str>,
    now: DateTime<Utc>,
) -> Report {
    let mut report = Report::default();
    why(&fleet.seen(object), now, |wait| {
        if asked.is_some_and(|asked| asked != wait.name) {
            return;
        }
        report.is_known = true;
        match wait.cause {
            None => report.done += 1,
            Some(_) if asked.is_none() && !wait.is_concerned => report.ineligible += 1,
            Some(cause) => {
                let reason = reason(cause, object, fleet, &wait, now);
                report.findings.push(Finding {
                    advice: reason.advice(object, wait.name),
                    node: wait.name.to_owned(),
                    reason,
                });
            }
        }
    });
    report
}

/// What the objects say of what a node waits for.
fn reason(
    cause: Cause,
    object: &Object,
    fleet: &Fleet,
    wait: &Wait<'_>,
    now: DateTime<Utc>,
) -> Reason {
    let node = fleet.nodes.as_ref().and_then(|nodes| nodes.get(wait.name));
    let closer = || of_pod(cause, fleet, wait, now);
    let reason = if let Some(deleting) = node.and_then(|node| node.deleting) {
        Reason::new(Cause::NodeDeleting, "", Some(deleting))
    } else if let Some(node) = node.filter(|_| cause.is_of_node()) {
        of_node(cause, node, &wait.detail().unwrap_or_default())
    } else {
        closer().unwrap_or_else(|| of_object(cause, object, wait))
    };
    Reason {
        pod: wait.pod.map(|pod| pod.name.clone()),
        ..reason
    }
}

/// What a closer look at a pod shows that is not Ready.
fn of_pod(cause: Cause, fleet: &Fleet, wait: &Wait<'_>, now: DateTime<Utc>) -> Option<Reason> {
    let pod = wait.pod.filter(|_| wait.is_unready)?;
    let full = fleet.pods.iter().find(|it| Arc::ptr_eq(&it.view, pod))?;
    let warnings = fleet.warnings.get(&pod.uid);
    let warnings = warnings.map(Vec::as_slice).unwrap_or_default();
    let reason = pod::reason(cause, full, warnings, now);
    // What keeps the newest revision from the node says more than nothing.
    let says_more = cause.is_of_pod() || reason.cause != Cause::Undetermined;
    says_more.then_some(reason)
}

fn of_node(cause: Cause, node: &NodeFacts, detail: &str) -> Reason {
    let is_shown = |it: &&NodeCondition| match cause {
        Cause::NodeNotReady => it.type_ == "Ready",
        Cause::Maintenance => it.status == "True" && OUT_OF_SERVICE.contains(&it.type_.as_str()),
        _ => false,
    };
    let condition = node.conditions.iter().find(is_shown);
    let said = condition.map(|it| {
        let type_ = (cause == Cause::Maintenance).then_some(&it.type_);
        let words = [type_, it.reason.as_ref(), it.message.as_ref()];
        let words = words.into_iter().flatten().filter(|word| !word.is_empty());
        words.cloned().collect::<Vec<_>>().join(": ")
    });
    let is_it = |taint: &&Taint| match cause {
        Cause::Cordoned => taint.key == UNSCHEDULABLE,
        Cause::TaintNotTolerated => {
            let (of, effect) = detail.rsplit_once(':').unwrap_or_default();
            taint.effect == effect && of.split('=').next() == Some(&taint.key)
        }
        _ => false,
    };
    let taint = node.taints.iter().find(is_it);
    let since = condition.and_then(|it| it.last_transition_time.as_ref());
    let since = since.or(taint.and_then(|taint| taint.time_added.as_ref()));
    Reason::new(cause, said.as_deref().unwrap_or(detail), utc(since))
}

/// What the conditions of the object say, or since when the pod is Ready.
fn of_object(cause: Cause, object: &Object, wait: &Wait<'_>) -> Reason {
    let is_refused = |it: &&Condition| {
        it.status == "True" && cause_of_refusal(&it.reason, &it.message) == Some(cause)
    };
    let refused = object.condition(DEGRADED).filter(is_refused);
    let progressing = object.condition(PROGRESSING);
    let held = progressing.filter(|it| cause_of_progress(&it.reason) == Some(cause));
    let dated = match cause {
        Cause::InvalidSpec => object.condition(ACCEPTED),
        Cause::Frozen => object.holds(FROZEN).or(held),
        _ => held,
    };
    // It may have been so with another reason before.
    let undated = match cause {
        Cause::Migrating | Cause::RevisionNotStored => refused.or(progressing),
        _ => refused,
    };
    let said = dated.or(undated).map(|it| it.message.as_str());
    let since = match cause {
        Cause::MinReady => wait.pod.and_then(|pod| pod.ready_since),
        _ => dated.map(|it| it.last_transition_time),
    };
    let detail = wait.detail();
    let said = match cause {
        Cause::Undetermined => object.reason(),
        Cause::WaitingTurn if detail.is_none() => object.reason(),
        _ => said.or(detail.as_deref()).unwrap_or_default(),
    };
    Reason::new(cause, said, since)
}
