//! Which nodes are behind or have no available pod, and why: a pure function of the object, the nodes, the pods, their
//! Events and the time.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use my_operator_kind::watched::utc;
use my_operator_mydaemonset::crd::RollingUpdate;
use my_operator_mydaemonset::decide::domains::{Domains, Rank};
use my_operator_mydaemonset::decide::freeze::Freeze;
use my_operator_mydaemonset::decide::placement::{Eligibility, Placement};
use my_operator_mydaemonset::decide::strategy::Strategy;
use my_operator_mydaemonset::names::FREEZE_ANNOTATION;
use my_operator_mydaemonset::status::{
    CANARY, DEGRADED, FROZEN, OUTSIDE_WINDOW, PROGRESSING, ROLLING_BACK, WAITING_FOR_DELETION,
    acknowledged, canaries, cause_of_progress, cause_of_refusal, is_migrating, is_stop,
};
use serde::Serialize;
use wall_clock_controller::reconcile::condition::{ACCEPTED, Condition};

use super::cause::{Cause, Reason};
use super::facts::{Fleet, NodeFacts, PodFacts};
use super::{pod, requirement};
use crate::mydaemonset::object::Object;

/// So many of the nodes that take the places of a limit are named.
const MAX_NAMED: usize = 3;
/// A node that has been NotReady for longer takes no place of the limits: the default of the operator's
/// --node-not-ready-grace.
const GRACE: TimeDelta = TimeDelta::seconds(60);
/// The taint that a cordon leads to.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

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
    let judge = Judge {
        object,
        fleet,
        strategy: object.strategy(),
        revision: object.revision(),
        placement: Placement::from_template(object.spec.template.as_ref()),
        now,
    };
    let nodes = judge.nodes();
    let (mut open, mut report) = (Vec::new(), Report::default());
    for (name, node) in &nodes {
        let is_asked = asked.is_none_or(|asked| asked == *name);
        report.is_known |= is_asked;
        let is_done = judge.is_done(node);
        let is_elsewhere = !is_done && judge.is_elsewhere(node);
        report.done += usize::from(is_done && is_asked);
        report.ineligible += usize::from(is_elsewhere && asked.is_none());
        if !is_done && (!is_elsewhere || asked == Some(*name)) {
            open.push((*name, node));
        }
    }
    let roll = judge.roll(&open);
    let wanted = open
        .iter()
        .filter(|(name, _)| asked.is_none_or(|asked| asked == *name));
    let findings = wanted.map(|(name, node)| {
        let reason = judge.reason(name, node, &roll);
        let advice = reason.advice(&object.namespace, &object.name, name);
        Finding {
            node: (*name).to_owned(),
            reason,
            advice,
        }
    });
    report.findings = findings.collect();
    report
}

/// A node and the object's pods on it.
#[derive(Debug, Default)]
struct OnNode<'a> {
    /// `None` if it is gone, or not to be seen.
    node: Option<&'a NodeFacts>,
    pods: Vec<&'a PodFacts>,
}

/// What the nodes together mean for each.
#[derive(Debug, Default)]
struct Roll<'a> {
    /// The nodes that the partition holds.
    held: BTreeSet<&'a str>,
    /// Those that take the places of the limit.
    takers: Vec<&'a str>,
    /// The domain whose turn it is.
    turn: Option<(Domains, Rank<'a>)>,
}

impl Roll<'_> {
    /// That another domain comes before the node's own.
    fn domain(&self, on_node: &OnNode<'_>) -> Option<Reason> {
        let (domains, first) = self.turn.as_ref()?;
        let is_later = domains.rank(&on_node.node?.view) > *first;
        let text = format!("{} first", domains.name(*first));
        is_later.then(|| Reason::new(Cause::Domain, &text))
    }
}

/// What each node is judged by.
struct Judge<'a> {
    object: &'a Object,
    fleet: &'a Fleet,
    strategy: Strategy,
    /// The newest revision.
    revision: String,
    placement: Placement,
    now: DateTime<Utc>,
}

impl<'a> Judge<'a> {
    fn nodes(&self) -> BTreeMap<&'a str, OnNode<'a>> {
        let fleet = self.fleet;
        let nodes = fleet.nodes.iter().flatten().map(|(name, node)| {
            let node = Some(node);
            let on_node = OnNode {
                node,
                pods: Vec::new(),
            };
            (name.as_str(), on_node)
        });
        let mut nodes: BTreeMap<&str, OnNode<'_>> = nodes.collect();
        for pod in &fleet.pods {
            let view = &pod.view;
            if view.owner_uid == self.object.uid && !view.node.is_empty() {
                nodes.entry(&view.node).or_default().pods.push(pod);
            }
        }
        nodes
    }

    fn is_new(&self, pod: &PodFacts) -> bool {
        pod.view.revision == self.revision
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.view.is_available(self.strategy.min_ready, self.now)
    }

    /// Of the pods that are not being deleted, the best one of the newest revision, or of the others.
    fn best(&self, on_node: &OnNode<'a>, of_newest: bool) -> Option<&'a PodFacts> {
        let pods = on_node.pods.iter().copied();
        let pods = pods.filter(|pod| !pod.view.deleting && self.is_new(pod) == of_newest);
        pods.max_by_key(|pod| (pod.view.is_ready(), pod.view.ended.is_none()))
    }

    /// Whether the node has an available pod of the newest revision and no other. What a pod on a node reports that is gone
    /// or not Ready is out of date.
    fn is_done(&self, on_node: &OnNode<'a>) -> bool {
        let is_up = match on_node.node {
            Some(node) => node.view.not_ready_since.is_none(),
            None => self.fleet.nodes.is_none(),
        };
        let pods = &on_node.pods;
        is_up
            && pods.iter().all(|pod| self.is_new(pod))
            && pods.iter().any(|pod| self.is_available(pod))
    }

    /// By the placement of the newest revision; `None` if the node is gone or not to be seen.
    fn eligibility(&self, on_node: &OnNode<'a>) -> Option<Eligibility> {
        let node = on_node.node?;
        Some(self.placement.eligibility(&node.view))
    }

    /// Whether the node has no pod, and should have none.
    fn is_elsewhere(&self, on_node: &OnNode<'a>) -> bool {
        let eligibility = self.eligibility(on_node);
        let is_out = matches!(eligibility, Some(Eligibility::Leave | Eligibility::Keep));
        on_node.pods.is_empty() && is_out
    }

    fn roll(&self, open: &[(&'a str, &OnNode<'a>)]) -> Roll<'a> {
        let is_behind = |on_node: &OnNode<'a>| {
            let has_old = on_node.pods.iter().any(|pod| !self.is_new(pod));
            let is_kept = self.eligibility(on_node) == Some(Eligibility::Keep);
            has_old && !is_kept && self.best(on_node, true).is_none()
        };
        let behind = open.iter().rev().filter(|(_, node)| is_behind(node));
        let held = behind.take(self.strategy.partition).map(|(name, _)| *name);
        let takers = open.iter().filter(|(_, node)| self.takes_place(node));
        let nodes = self.fleet.nodes.iter().flat_map(BTreeMap::values);
        Roll {
            held: held.collect(),
            takers: takers.map(|(name, _)| *name).collect(),
            turn: self.object.turn_of(nodes.map(|node| &node.view)),
        }
    }

    /// Whether the roll-out waits for the node before it goes on to another.
    fn takes_place(&self, on_node: &OnNode<'a>) -> bool {
        let eligibility = self.eligibility(on_node).unwrap_or(Eligibility::Run);
        let silent = on_node.node.and_then(|node| node.view.not_ready_since);
        let is_lost = match on_node.node {
            Some(node) if node.view.in_maintenance => true,
            Some(_) => silent.is_some_and(|since| self.now - since >= GRACE),
            None => self.fleet.nodes.is_some(),
        };
        if is_lost || matches!(eligibility, Eligibility::Leave | Eligibility::Keep) {
            return false;
        }
        let (new, old) = (self.best(on_node, true), self.best(on_node, false));
        let serves = old.is_some_and(|old| old.view.is_ready());
        match new {
            Some(new) => !self.is_available(new),
            None if on_node.pods.is_empty() => eligibility != Eligibility::Cordoned,
            None => !serves,
        }
    }

    /// Why the node is behind, or has no available pod: what is wrong with the node, with the pod, with the object, and
    /// only then what holds the roll-out.
    fn reason(&self, name: &str, on_node: &OnNode<'a>, roll: &Roll<'a>) -> Reason {
        let (new, old) = (self.best(on_node, true), self.best(on_node, false));
        let behind = old.filter(|_| new.is_none());
        let pod = new.or(old).or(on_node.pods.first().copied());
        let reason = self
            .of_node(on_node, new.is_some())
            .or_else(|| self.of_pods(on_node, new, old))
            .or_else(|| self.of_object())
            .or_else(|| self.freeze(on_node, new, old))
            .or_else(|| self.refusal().filter(|_| self.goes_on()))
            .or_else(|| behind.and_then(|_| self.hold(name, roll)))
            .or_else(|| behind.and_then(|_| roll.domain(on_node)))
            .or_else(|| self.refusal())
            .or_else(|| behind.and_then(|_| self.turn(roll)))
            .unwrap_or_else(|| Reason::new(Cause::Undetermined, self.object.reason()));
        match pod {
            Some(pod) if reason.pod.is_none() => reason.of_pod(&pod.view.name),
            _ => reason,
        }
    }

    fn of_node(&self, on_node: &OnNode<'a>, has_new: bool) -> Option<Reason> {
        let Some(node) = on_node.node else {
            let is_gone = self.fleet.nodes.is_some();
            return is_gone.then(|| Reason::new(Cause::NodeGone, ""));
        };
        if node.deleting.is_some() {
            return Some(Reason::new(Cause::NodeDeleting, "").since(node.deleting));
        }
        if node.view.in_maintenance {
            let (since, said) = node.maintenance.clone().unwrap_or_default();
            return Some(Reason::new(Cause::Maintenance, &said).since(since));
        }
        if let Some(since) = node.view.not_ready_since {
            return Some(Reason::new(Cause::NodeNotReady, &node.ready).since(Some(since)));
        }
        let template = self.object.spec.template.as_ref();
        match self.placement.eligibility(&node.view) {
            Eligibility::Leave => Some(match requirement::unmet(template, &node.view) {
                Some(unmet) => Reason::new(Cause::NotEligible, &unmet),
                None => self.tainted(node),
            }),
            // The pods say more than the node once there is one of the newest revision.
            _ if has_new => None,
            Eligibility::Keep | Eligibility::Down => Some(self.tainted(node)),
            Eligibility::Cordoned => {
                let mut taints = node.taints.iter();
                let taint = taints.find(|taint| taint.key == UNSCHEDULABLE);
                let since = taint.and_then(|taint| utc(taint.time_added.as_ref()));
                Some(Reason::new(Cause::Cordoned, "").since(since))
            }
            Eligibility::Run => None,
        }
    }

    fn tainted(&self, node: &NodeFacts) -> Reason {
        let template = self.object.spec.template.as_ref();
        let Some(taint) = requirement::untolerated(template, node, self.now) else {
            return Reason::new(Cause::TaintNotTolerated, "");
        };
        let since = utc(taint.time_added.as_ref());
        Reason::new(Cause::TaintNotTolerated, &requirement::taint_text(taint)).since(since)
    }

    /// What is wrong with the pods, or keeps the last of them from going.
    fn of_pods(
        &self,
        on_node: &OnNode<'a>,
        new: Option<&PodFacts>,
        old: Option<&PodFacts>,
    ) -> Option<Reason> {
        if let Some(new) = new.filter(|new| !self.is_available(new)) {
            return Some(self.of_pod(new));
        }
        if let Some(old) = old {
            let fails = new.is_none() && !old.view.is_ready();
            let reason = fails.then(|| self.of_pod(old))?;
            // What keeps the newest revision from the node says more than nothing.
            return Some(reason).filter(|reason| reason.cause != Cause::Undetermined);
        }
        let leaving = on_node.pods.iter().find(|pod| pod.view.deleting)?;
        Some(self.of_pod(leaving))
    }

    fn of_pod(&self, pod: &PodFacts) -> Reason {
        let warnings = self.fleet.warnings.get(&pod.view.uid);
        let warnings = warnings.map(Vec::as_slice).unwrap_or_default();
        pod::reason(pod, warnings, self.now)
    }

    /// Why the operator does nothing for the object at all.
    fn of_object(&self) -> Option<Reason> {
        let object = self.object;
        let deletion = object.raw.metadata.deletion_timestamp.as_ref();
        if deletion.is_some() {
            return Some(Reason::new(Cause::ObjectDeleting, ""));
        }
        if is_migrating(&object.status) {
            return Some(Reason::new(
                Cause::Migrating,
                message(object.condition(PROGRESSING)),
            ));
        }
        if !object.is_observed() {
            return Some(Reason::new(Cause::Unobserved, ""));
        }
        let accepted = object.condition(ACCEPTED);
        let is_invalid = accepted.is_some_and(|it| it.status == "False");
        is_invalid.then(|| Reason::new(Cause::InvalidSpec, message(accepted)))
    }

    /// That a user has frozen what would be next here: to delete the old pod, or to make one.
    fn freeze(
        &self,
        on_node: &OnNode<'a>,
        new: Option<&PodFacts>,
        old: Option<&PodFacts>,
    ) -> Option<Reason> {
        let object = self.object;
        let frozen = object.condition(FROZEN).filter(|it| it.status == "True")?;
        let annotations = object.raw.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(FREEZE_ANNOTATION));
        let asked = value.and_then(|value| Freeze::parse(value));
        // Its namespace may be frozen, too.
        let said = acknowledged(&object.status);
        // These would leave a node that is behind as it is without a freeze, too.
        let applies = match old {
            Some(_) => new.is_some() || !is_stop(object.progress()),
            None => on_node.pods.is_empty() && [asked, said].contains(&Some(Freeze::All)),
        };
        let since = Some(frozen.last_transition_time);
        applies.then(|| Reason::new(Cause::Frozen, &frozen.message).since(since))
    }

    /// Whether what holds the nodes ends by itself, unless the API server rejects a call.
    fn goes_on(&self) -> bool {
        [CANARY, ROLLING_BACK].contains(&self.object.progress())
    }

    /// What keeps an old pod that serves.
    fn hold(&self, name: &str, roll: &Roll<'a>) -> Option<Reason> {
        let (object, strategy) = (self.object, self.strategy);
        let mut canaries = canaries(&object.status).into_iter().flatten();
        let is_canary = object.progress() == CANARY && canaries.any(|canary| canary == name);
        // The next window is for the others.
        let is_left_behind = object.progress() == OUTSIDE_WINDOW && roll.held.contains(name);
        let hold = cause_of_progress(object.progress());
        if let Some(cause) = hold.filter(|_| !is_canary && !is_left_behind) {
            let progressing = object.condition(PROGRESSING);
            let since = progressing.map(|it| it.last_transition_time);
            return Some(Reason::new(cause, message(progressing)).since(since));
        }
        let cause = if strategy.on_delete {
            Cause::OnDelete
        } else if strategy.paused {
            Cause::Paused
        } else if roll.held.contains(name) {
            let text = format!("partition {}", strategy.partition);
            return Some(Reason::new(Cause::Partition, &text));
        } else {
            return None;
        };
        Some(Reason::new(cause, ""))
    }

    /// That the API server rejects what the operator would do next.
    fn refusal(&self) -> Option<Reason> {
        let object = self.object;
        if object.progress() == WAITING_FOR_DELETION {
            let text = message(object.condition(PROGRESSING));
            return Some(Reason::new(Cause::RevisionNotStored, text));
        }
        let degraded = object
            .condition(DEGRADED)
            .filter(|it| it.status == "True")?;
        let cause = cause_of_refusal(&degraded.reason, &degraded.message)?;
        Some(Reason::new(cause, &degraded.message))
    }

    /// That others go first.
    fn turn(&self, roll: &Roll<'a>) -> Option<Reason> {
        let takers = roll.takers.as_slice();
        let named: Vec<&str> = takers.iter().copied().take(MAX_NAMED).collect();
        let more = match takers.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{} first: {}{more}", limit(self.object), named.join(", "));
        (!takers.is_empty()).then(|| Reason::new(Cause::WaitingTurn, &text))
    }
}

fn message(condition: Option<&Condition>) -> &str {
    condition.map_or("", |condition| condition.message.as_str())
}

/// The limit that spaces the steps of a roll-out, as the spec has it.
fn limit(object: &Object) -> String {
    let strategy = object.spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let text = |read: fn(&RollingUpdate) -> Option<&IntOrString>| {
        rolling.and_then(read).map(|amount| match amount {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        })
    };
    let surge = text(|rolling| rolling.max_surge.as_ref());
    if let Some(surge) = surge.filter(|surge| surge != "0" && surge != "0%") {
        format!("maxSurge {surge}")
    } else {
        let unavailable = text(|rolling| rolling.max_unavailable.as_ref());
        format!("maxUnavailable {}", unavailable.as_deref().unwrap_or("1"))
    }
}
