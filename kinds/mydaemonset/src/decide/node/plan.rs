//! What one node needs whatever happens on the others.

use chrono::{DateTime, TimeDelta, Utc};

use super::NodeState;
use crate::decide::decision::{Create, Decision, Delete, DeleteReason};
use crate::decide::input::{Last, RolloutInput};
use crate::decide::placement::Eligibility;
use crate::observe::pod::PodView;
use crate::observe::predecessor::Predecessor;

/// The pause between the first failure of a pod and its successor. Each further failure doubles it.
const FIRST_PAUSE: TimeDelta = TimeDelta::seconds(10);
/// The longest such pause.
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(15);
/// A pod that lived this long before it failed does not count as one of several failures in a row.
pub(super) const STEADY: TimeDelta = TimeDelta::minutes(15);
/// How long the pods of a node that is gone stay: the node may register again, and its containers
/// run meanwhile. As in the cluster's own collector (pkg/controller/podgc, quarantineTime).
const QUARANTINE: TimeDelta = TimeDelta::seconds(40);

impl NodeState<'_> {
    /// Plans what the node needs regardless of the limits of the roll-out: pods that must not exist
    /// are deleted, a missing one is created, a failed one is replaced after its backoff.
    pub(crate) fn plan(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        if !self.claims.is_empty() {
            // Nothing is done with a pod before its owner is known.
            decision.claim.extend(self.claims.iter().cloned());
            return;
        }
        match self.eligibility {
            Eligibility::Leave => self.plan_leave(input, decision),
            // A pod that is deleted could not be replaced.
            Eligibility::Keep | Eligibility::Cordoned
                if self.excluded.is_none() || self.keeps_old(input) => {}
            _ => {
                self.plan_superfluous(input, decision);
                self.plan_missing(input, decision);
            }
        }
    }

    /// No pod may be here: all are deleted, those of a node that is gone after its quarantine.
    fn plan_leave(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        let reason = if self.node.is_some() {
            DeleteReason::NotEligible
        } else {
            DeleteReason::NodeGone
        };
        let due = self.gone_since.map(|since| since + QUARANTINE);
        if let Some(due) = due.filter(|due| *due > input.now) {
            decision.requeue_at(due);
            return;
        }
        let others = self.surplus.iter().chain(&self.ended);
        let pods = self.running().chain(others.copied());
        let pods = pods.filter(|pod| !self.may_stay(pod, input));
        for pod in pods {
            decision.delete.push(self.delete(pod, reason));
        }
    }

    /// Deletes the pods that are too many, wrong or outlived.
    fn plan_superfluous(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        let delete = |pod: &PodView, reason| self.delete(pod, reason);
        let surplus = self.surplus.iter();
        let surplus = surplus.map(|pod| delete(pod, DeleteReason::Surplus));
        decision.delete.extend(surplus);
        // A pod of the newest revision was created here, so the node has changed since.
        let excludes =
            |pod: &PodView| self.excluded.is_some() && pod.revision == input.revisions.update;
        if let Some(new) = self.new.filter(|new| excludes(new)) {
            decision.delete.push(delete(new, DeleteReason::NotEligible));
        }
        for pod in &self.ended {
            if excludes(pod) {
                decision.delete.push(delete(pod, DeleteReason::NotEligible));
            } else {
                self.plan_ended(pod, input, decision);
            }
        }
        if let Some(old) = self.old.filter(|old| self.ignores_limits(old, input)) {
            decision.delete.push(delete(old, self.delete_reason()));
        }
    }

    /// Creates the pod that the node should have and has not.
    fn plan_missing(&self, input: &RolloutInput<'_>, decision: &mut Decision) {
        let (missing, eligibility) = match self.keeps {
            Some(kept) => (kept, self.eligibility),
            None => (input.revisions.update, self.newest),
        };
        let is_free = !self.stays() && !self.blocks_creation(missing);
        if is_free && eligibility == Eligibility::Run {
            decision.create.push(self.create(missing));
        }
    }

    /// Whether the revision of an old pod allows it here, though that of a better one, which is to go, does not.
    fn may_stay(&self, pod: &PodView, input: &RolloutInput<'_>) -> bool {
        let known = input.revisions.known.get(pod.revision.as_str());
        let eligibility = self.node.zip(known);
        let eligibility = eligibility.map(|(node, known)| known.placement.eligibility(node));
        pod.revision != input.revisions.update
            && eligibility.is_some_and(|eligibility| eligibility != Eligibility::Leave)
    }

    /// A pod that has ended stays until its backoff is over: users look at its status, and it
    /// records the failure. One that is not replaced, or has been, is deleted at once.
    fn plan_ended(&self, pod: &PodView, input: &RolloutInput<'_>, decision: &mut Decision) {
        let Some(ended) = pod.ended else {
            return;
        };
        let update = input.revisions.update;
        let outlived = self.new.is_some() || (self.old.is_some() && pod.revision != update);
        let removed = self.excluded.is_some() && !self.keeps_old(input);
        if outlived || removed {
            let reason = if outlived {
                DeleteReason::Surplus
            } else {
                self.delete_reason()
            };
            decision.delete.push(self.delete(pod, reason));
            return;
        }
        if let Some(due) = pause_ends(pod, ended, input) {
            decision.requeue_at(due);
            return;
        }
        let attempt = attempts(pod, ended);
        let mut delete = self.delete(pod, DeleteReason::Failed);
        delete.last.attempt = attempt.saturating_add(1);
        delete.last.was = Predecessor::Unavailable(ended.min(input.now));
        // Without a predecessor, patience begins with the first of the pods that fail in a row.
        delete.last.predecessor = match pod.predecessor {
            Predecessor::Unknown => Predecessor::Unavailable(pod.created),
            known => known,
        };
        decision.delete.push(delete);
    }

    pub(super) fn create(&self, revision: &str) -> Create {
        let (attempt, predecessor) = match self.last {
            Some(last) if last.revision == revision => (last.attempt, last.predecessor),
            Some(last) if revision == self.update => (0, last.was),
            _ => (0, Predecessor::Unknown),
        };
        Create {
            node: self.name.to_owned(),
            revision: revision.to_owned(),
            attempt,
            predecessor,
        }
    }

    pub(super) fn delete(&self, pod: &PodView, reason: DeleteReason) -> Delete {
        Delete {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: self.name.to_owned(),
            reason,
            last: Last {
                revision: pod.revision.clone(),
                attempt: pod.attempt,
                excluded: reason == DeleteReason::Excluded,
                outdated_by: (reason == DeleteReason::Outdated).then(|| self.update.into()),
                ..Last::default()
            },
            version: pod
                .version
                .as_deref()
                .filter(|_| reason.is_due_to_revision())
                .map(str::to_owned),
        }
    }
}

/// How many pods failed in a row before this one. One that ran for long and then failed starts a new count.
fn attempts(pod: &PodView, ended: DateTime<Utc>) -> u32 {
    if ended - pod.created >= STEADY {
        0
    } else {
        pod.attempt
    }
}

/// When the pause of a pod that has ended is over; `None` if it is. An end in the future means that
/// a clock was set back: nothing waits for it.
pub(super) fn pause_ends(
    pod: &PodView,
    ended: DateTime<Utc>,
    input: &RolloutInput<'_>,
) -> Option<DateTime<Utc>> {
    let due = ended + pause(attempts(pod, ended));
    (due > input.now && ended <= input.now).then_some(due)
}

/// How long a failed pod is kept: 10 s, doubled for each failure before, up to 15 min.
pub(crate) fn pause(attempt: u32) -> TimeDelta {
    // 2^7 times the first pause is above the maximum.
    (FIRST_PAUSE * 2_i32.pow(attempt.min(7))).min(MAX_PAUSE)
}
