//! What each node waits for, by itself: the judgement from which the status counts nodes by cause, for a client that has
//! read the objects. What only a running operator knows is not in it, as just after its start.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};

use super::basis::{current_revision, input, known, revisions, undo_target};
use super::cause::Cause;
use super::crd::{MyDaemonSetSpec, MyDaemonSetStatus};
use super::decide::freeze::Freeze;
use super::decide::input::{Revisions, RolloutInput};
use super::decide::node::OnNode;
use super::decide::node::flags::NodeFlag;
use super::decide::observed::{Observed, WaitsFor};
use super::decide::placement::Obstacle;
use super::decide::rollout::RolloutState;
use super::decide::undo::Undo;
use super::names::{APPROVE_ANNOTATION, FREEZE_ANNOTATION, RESUME_ANNOTATION};
use super::object::ParsedSpec;
use super::observe::node::NodeView;
use super::observe::pod::PodView;
use super::revision::RevisionView;
use super::status::{
    self, CANARY, DEGRADED, Frozen, StatusInput, WAITING_FOR_DELETION, cause_of_progress,
    cause_of_refusal, causes,
};

/// What a client has read of an object and its cluster.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The metadata of the object.
    pub metadata: &'a ObjectMeta,
    /// Its spec.
    pub spec: &'a MyDaemonSetSpec,
    /// Its status.
    pub status: &'a MyDaemonSetStatus,
    /// All nodes; `None` if the client may not list them: then those with a pod count as fit for it.
    pub nodes: Option<Vec<Arc<NodeView>>>,
    /// The pods with the label of the object.
    pub pods: Vec<Arc<PodView>>,
    /// The revisions with that label.
    pub revisions: Vec<Arc<RevisionView>>,
}

/// A node, and what it waits for.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Its name.
    pub name: &'a str,
    /// What was seen of it; `None` if it is gone.
    pub node: Option<&'a NodeView>,
    /// Whether it has a pod of the object, or should have one.
    pub is_concerned: bool,
    /// Whether it has what the roll-out leads to, which on the way back is the revision before.
    pub is_reached: bool,
    /// The cause, from the closed list; `None` if it has an available pod of the newest revision and no other.
    pub cause: Option<Cause>,
    /// The pod that is to become available, or else to go.
    pub pod: Option<&'a Arc<PodView>>,
    /// Whether a closer look at that pod may show more: it is not Ready, and nothing is wrong with the node.
    pub is_unready: bool,
    judge: &'a Judge<'a>,
}

/// Finds what each node waits for, in the order of their names.
pub fn why(seen: &Seen<'_>, now: DateTime<Utc>, of_node: impl FnMut(Wait<'_>)) {
    let status = seen.status;
    let uid = seen.metadata.uid.as_deref().unwrap_or_default();
    let mut stored = seen.revisions.clone();
    stored.retain(|revision| revision.owner_uid == uid);
    let mut written = ParsedSpec::new(seen.spec);
    if seen.nodes.is_none() {
        written.placement = Arc::default();
        for revision in &mut stored {
            Arc::make_mut(revision).placement = Arc::default();
        }
    }
    let resumes = |hash| seen.names(RESUME_ANNOTATION, hash);
    let is_undone = status::is_undone(status, &written.hash) && !resumes(&written.hash);
    let target = undo_target(status, &written.hash, &stored).filter(|_| is_undone);
    let back = target.map(|target| written.back_to(target));
    let spec = back.as_ref().unwrap_or(&written);
    let known = known(&stored, |revision| revision.placement.clone());
    let nodes = seen.nodes(uid);
    let mut state = RolloutState::of(&spec.hash, &nodes);
    let current = current_revision(status, &state, &known, &spec.hash);
    let revisions = Revisions {
        stored: status.update_revision.as_ref() == Some(&written.hash),
        undone: back.as_ref().map(|_| written.hash.as_str()),
        ..revisions(&spec.hash, &current, &known, &stored)
    };
    let was_stopped = status::was_stopped(status, &written.hash, &spec.hash);
    let input = RolloutInput {
        stopped_for: was_stopped.then_some(status.failed_nodes.as_slice()),
        resumed: resumes(&spec.hash),
        freeze: seen.freeze(),
        approved: seen.names(APPROVE_ANNOTATION, &spec.hash),
        ..input(spec, status, &spec.placement, revisions, now)
    };
    let observed = state.decide(&input).observed;
    let judge = Judge {
        seen,
        state,
        input,
        observed,
    };
    judge.of_nodes(&nodes, of_node);
}

impl Seen<'_> {
    fn annotation(&self, key: &str) -> Option<&String> {
        self.metadata.annotations.as_ref()?.get(key)
    }

    /// Whether an annotation names that revision.
    fn names(&self, key: &str, hash: &String) -> bool {
        self.annotation(key) == Some(hash)
    }

    /// The value of the annotation that freezes the object.
    fn own_freeze(&self) -> Option<&str> {
        let own = self.annotation(FREEZE_ANNOTATION).map(String::as_str);
        own.filter(|value| Freeze::parse(value).is_some())
    }

    fn freeze(&self) -> Option<Freeze> {
        // Its namespace may be frozen, too.
        let own = self.own_freeze().and_then(Freeze::parse);
        own.max(status::acknowledged(self.status))
    }

    /// The nodes, and those that are gone or not to be seen and have pods.
    fn nodes(&self, uid: &str) -> BTreeMap<Arc<str>, OnNode> {
        let mut nodes: BTreeMap<Arc<str>, OnNode> = BTreeMap::new();
        for node in self.nodes.iter().flatten() {
            let on_node = nodes.entry(node.name.as_str().into()).or_default();
            on_node.node = Some(node.clone());
        }
        let is_ours = |pod: &PodView| pod.owner_uid == uid || pod.is_orphan();
        let pods = self.pods.iter().filter(|pod| is_ours(pod));
        for pod in pods.filter(|pod| !pod.node.is_empty()) {
            let on_node = nodes.entry(pod.node.as_str().into()).or_default();
            on_node.pods.push(pod.clone());
            if self.nodes.is_none() {
                on_node.node = Some(Arc::default());
            }
        }
        nodes
    }

    /// Why the operator does nothing for the object at all, if so.
    fn standing(&self) -> Option<Cause> {
        let (metadata, status) = (self.metadata, self.status);
        let accepted = condition::get(&status.conditions, ACCEPTED);
        if metadata.deletion_timestamp.is_some() {
            Some(Cause::ObjectDeleting)
        } else if status::is_migrating(status) {
            Some(Cause::Migrating)
        } else if status.observed_generation < metadata.generation {
            Some(Cause::Unobserved)
        } else if accepted.is_some_and(|it| it.status == "False") {
            Some(Cause::InvalidSpec)
        } else {
            let waits = status::progress_of(status) == WAITING_FOR_DELETION;
            waits.then_some(Cause::RevisionNotStored)
        }
    }

    /// Which calls the API server rejects.
    fn refusal(&self) -> Option<Cause> {
        let degraded = condition::get(&self.status.conditions, DEGRADED)?;
        let is_true = degraded.status == "True";
        let cause = cause_of_refusal(&degraded.reason, &degraded.message);
        cause.filter(|_| is_true)
    }
}

/// What is judged.
struct Judge<'a> {
    seen: &'a Seen<'a>,
    state: RolloutState,
    input: RolloutInput<'a>,
    observed: Observed,
}

impl Judge<'_> {
    fn of_nodes(&self, nodes: &BTreeMap<Arc<str>, OnNode>, mut of_node: impl FnMut(Wait<'_>)) {
        let (seen, input) = (self.seen, &self.input);
        let (revisions, progress) = (&input.revisions, status::progress_of(seen.status));
        let frozen = input.freeze.map(|freeze| Frozen {
            freeze,
            // Now, or when the operator last looked.
            own: seen.own_freeze().or(seen.status.freeze.as_deref()),
            of_namespace: seen.status.namespace_freeze.as_deref(),
            is_settled: true,
        });
        let undo = revisions.undone;
        let undo = undo.map_or(Undo::No, |_| Undo::To(revisions.update));
        let status = StatusInput {
            previous: seen.status,
            generation: seen.metadata.generation,
            observed: &self.observed,
            strategy: input.strategy,
            update: revisions.undone.unwrap_or(revisions.update),
            undo,
            frozen,
            current: revisions.current,
            stored: revisions.stored,
            refusal: None,
            now: input.now,
        };
        let cause = causes(&status, progress, seen.refusal());
        let stands = seen.standing();
        let is_canary = |name: &str| {
            let mut canaries = seen.status.canary_nodes.iter();
            progress == CANARY && canaries.any(|canary| canary == name)
        };
        let is_held = |name: &str| cause_of_progress(progress).is_some() && !is_canary(name);
        for (name, on_node) in nodes {
            let (is_concerned, waits_for) = self.waits_for(name, on_node);
            let cause = waits_for.map(|waits_for| match (waits_for, stands) {
                (WaitsFor::Own(own), _) => own,
                (_, Some(stands)) => stands,
                // The operator knows more than what is seen here: where it says that the roll-out stands, it does, and
                // its canaries are the canaries.
                (WaitsFor::Turn, None) if is_held(name) => cause(WaitsFor::Hold),
                (WaitsFor::Hold, None) if is_canary(name) && input.freeze.is_none() => {
                    cause(WaitsFor::Turn)
                }
                (waits_for, None) => cause(waits_for),
            });
            let pod = self.pod(on_node);
            let is_step = matches!(waits_for, Some(WaitsFor::Step | WaitsFor::Deletion));
            let may_show = !is_step && cause.is_some_and(|cause| !cause.is_of_node());
            of_node(Wait {
                name,
                node: on_node.node.as_deref(),
                is_concerned,
                is_reached: on_node.node.is_some() && self.is_reached(name),
                cause,
                pod,
                is_unready: may_show && pod.is_some_and(|pod| !pod.is_ready()),
                judge: self,
            });
        }
    }

    /// The new pod until it is available, then an old one, and at last one that is leaving.
    fn pod<'a>(&self, on_node: &'a OnNode) -> Option<&'a Arc<PodView>> {
        let (input, update) = (&self.input, self.input.revisions.update);
        on_node.pods.iter().min_by_key(|pod| {
            let is_new = pod.revision == update;
            let is_done = is_new && pod.is_available(input.strategy.min_ready, input.now);
            (pod.deleting, is_done, !is_new)
        })
    }

    fn is_reached(&self, name: &str) -> bool {
        let verdict = self.state.verdict(name);
        verdict.is_some_and(|it| it.flags.has_nth(NodeFlag::Reached as usize))
    }

    /// Whether a node has a pod or is to have one, and what it waits for.
    fn waits_for(&self, name: &str, on_node: &OnNode) -> (bool, Option<WaitsFor>) {
        let Some(node) = &on_node.node else {
            return (true, Some(WaitsFor::Own(Cause::NodeGone)));
        };
        let verdict = self.state.verdict(name);
        if let Some(waits_for) = verdict.and_then(|it| it.waits_for) {
            return (true, Some(waits_for));
        }
        if self.is_reached(name) {
            // What its pod reports is out of date.
            let silence = if node.in_maintenance {
                Cause::Maintenance
            } else {
                Cause::NodeNotReady
            };
            let silent = node.not_ready_since.map(|_| WaitsFor::Own(silence));
            // It is back, and waits for a revision of the spec that does not fail.
            let back = self.input.revisions.undone.map(|_| WaitsFor::Hold);
            return (true, silent.or(back));
        }
        let own = match self.input.placement.obstacle(node) {
            Some(Obstacle::NodeSelector | Obstacle::NodeAffinity) => Cause::NotEligible,
            Some(Obstacle::Taint) | None => Cause::TaintNotTolerated,
        };
        (!on_node.pods.is_empty(), Some(WaitsFor::Own(own)))
    }
}

impl Wait<'_> {
    /// What the objects do not say about the cause; `None` if they say all.
    pub fn detail(&self) -> Option<String> {
        let Judge {
            input, observed, ..
        } = self.judge;
        let strategy = input.strategy;
        match self.cause? {
            Cause::NotEligible | Cause::TaintNotTolerated => input.placement.unmet(self.node?),
            Cause::Partition => Some(format!("partition {}", strategy.partition)),
            Cause::Domain => Some(format!("{} first", observed.domain.as_ref()?.name)),
            Cause::WaitingTurn if observed.waiting.count > 0 => {
                let (limit, waiting) = (strategy.limit(), &observed.waiting);
                Some(format!("{limit} first: {waiting}"))
            }
            _ => None,
        }
    }
}
