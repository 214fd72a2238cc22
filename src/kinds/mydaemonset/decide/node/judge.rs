//! The verdict on one node: what counts, and until when that holds.

use chrono::{DateTime, TimeDelta, Utc};

use super::flags::{NodeFlag, NodeFlags, Verdict};
use super::pods::{is_available, is_crashing};
use super::{NodeState, UNSERVED_GRACE};
use crate::kinds::mydaemonset::decide::decision::Decision;
use crate::kinds::mydaemonset::decide::input::RolloutInput;
use crate::kinds::mydaemonset::decide::placement::{Eligibility, Obstacle};
use crate::kinds::mydaemonset::observe::pod::PodView;

/// A node that fails within this time after it got the newest revision counts against the revision.
const TRIAL: TimeDelta = TimeDelta::minutes(10);
/// Creation timestamps are whole seconds.
const WHOLE_SECOND: TimeDelta = TimeDelta::seconds(1);

/// How far the roll-out is on a node.
#[derive(Clone, Copy)]
struct Progress {
    /// See [`NodeFlag::Dark`].
    dark: bool,
    /// The newest revision is available and no pod of another is left.
    done: bool,
    attention: Attention,
}

/// Whether the roll-out cares about a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attention {
    /// It waits for the node.
    Waits,
    /// It may touch the node, but does not wait for it.
    LeavesOut,
    /// It does not touch the node.
    None,
}

impl NodeState<'_> {
    /// The verdict on this node.
    pub(crate) fn judge(&self, input: &RolloutInput<'_>) -> Verdict {
        let mut needs = Decision::default();
        self.plan(input, &mut needs);
        let progress = self.progress(input);
        let mut flags = NodeFlags::default();
        self.flag_actions(&needs, input, &mut flags);
        self.flag_progress(progress, input, &mut flags);
        let trouble = self.trouble().filter(|_| self.desired());
        flags.set(NodeFlag::Failing, trouble.is_some());
        if self.desired() {
            self.flag_counts(input, &mut flags);
        } else {
            flags.set(NodeFlag::Misscheduled, self.node.is_some() && self.stays());
        }
        Verdict {
            flags,
            trouble,
            until: self.until(progress.dark, input).chain(needs.next).min(),
        }
    }

    /// Flags what may be done on the node, at once or within the limits.
    fn flag_actions(&self, needs: &Decision, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let claimed = !needs.claim.is_empty();
        let acts = !needs.create.is_empty() || !needs.delete.is_empty() || claimed;
        flags.set(NodeFlag::Acting, acts);
        let replaceable = self.replaceable(input).is_some();
        flags.set(NodeFlag::Replaceable, replaceable);
        flags.set(NodeFlag::Surgeable, replaceable && self.is_alone(input));
        flags.set(NodeFlag::Removable, self.removable(input).is_some());
        flags.set(NodeFlag::Behind, self.behind);
        let base = self.excluded.is_some() || self.counts(self.newest);
        flags.set(NodeFlag::Base, base);
        // A surge that is stuck because of its node frees its place for another one.
        let surging = self.reachable() && self.is_surging(input);
        flags.set(NodeFlag::Surging, surging);
        let excluded = self.excluded.filter(|_| self.old.is_some());
        let by = |obstacle| excluded == Some(obstacle);
        flags.set(NodeFlag::ExcludedBySelector, by(Obstacle::NodeSelector));
        flags.set(NodeFlag::ExcludedByAffinity, by(Obstacle::NodeAffinity));
        flags.set(NodeFlag::ExcludedByTaint, by(Obstacle::Taint));
        flags.set(
            NodeFlag::FailedCanary,
            self.reachable() && self.is_failed_canary(input),
        );
    }

    fn progress(&self, input: &RolloutInput<'_>) -> Progress {
        // A node that went down still counts when it has lost its pod: otherwise each node that
        // goes down for a moment would let the roll-out take one more.
        let counts = !self.lost && (self.desired() || self.eligibility == Eligibility::Down);
        let dark = counts && !self.served(input);
        let left_out = self.lost || (dark && self.forgiven);
        let touched = self.reachable() || self.excluded.is_some();
        Progress {
            dark,
            done: self.is_done(input),
            attention: match (touched, left_out) {
                (true, false) => Attention::Waits,
                (true, true) => Attention::LeavesOut,
                (false, _) => Attention::None,
            },
        }
    }

    /// Flags how far the roll-out is on the node, and whether it waits for it.
    fn flag_progress(&self, progress: Progress, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let Progress {
            dark,
            done,
            attention,
        } = progress;
        let waited_for = attention == Attention::Waits;
        let left_out = attention == Attention::LeavesOut;
        flags.set(NodeFlag::Dark, dark);
        flags.set(NodeFlag::Unserved, dark && !self.forgiven);
        let desired = self.desired() || self.excluded.is_some();
        flags.set(NodeFlag::Done, waited_for && desired && done);
        flags.set(
            NodeFlag::Left,
            (desired || self.eligibility == Eligibility::Down) && !done,
        );
        flags.set(NodeFlag::LeftOut, desired && left_out && !done);
        flags.set(NodeFlag::Incomplete, desired && waited_for && !done);
        if self.desired() && waited_for && !done {
            let begun = self.new.is_some() || self.has_ended_new(input) || !self.served(input);
            // A surge that has begun continues to its end, also where the node is held.
            let surging = self.new.is_some() && (self.old.is_some() || !self.leaving.is_empty());
            let is_held = self.is_held_back(input);
            flags.set(NodeFlag::Waiting, surging || (!is_held && begun));
        }
    }

    /// Flags what the status counts of a node that should have a pod.
    fn flag_counts(&self, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let available = self.running().any(|pod| is_available(pod, input));
        let is_updated = self.new.is_some() || self.has_ended_new(input);
        let outdated = self.is_outdated();
        flags.set(NodeFlag::Desired, true);
        flags.set(NodeFlag::Current, self.stays());
        flags.set(NodeFlag::Ready, self.running().any(PodView::is_ready));
        flags.set(NodeFlag::Updated, is_updated);
        flags.set(NodeFlag::Available, available);
        flags.set(NodeFlag::Unavailable, !available);
        flags.set(NodeFlag::Outdated, outdated);
        flags.set(NodeFlag::HeldBack, outdated && self.is_held_back(input));
    }

    /// Whether the roll-out leaves the node, or its old pod, as it is.
    fn is_held_back(&self, input: &RolloutInput<'_>) -> bool {
        self.is_held() || (input.strategy.on_delete && self.old.is_some())
    }

    fn has_ended_new(&self, input: &RolloutInput<'_>) -> bool {
        let update = input.revisions.update;
        self.ended.iter().any(|pod| pod.revision == update)
    }

    /// What is wrong with the node's pods.
    fn trouble(&self) -> Option<Box<str>> {
        let mut pods = self.running().chain(self.ended.iter().copied());
        pods.find_map(|pod| pod.trouble.clone())
    }

    /// Future instants at which time alone changes the verdict.
    fn until(&self, dark: bool, input: &RolloutInput<'_>) -> impl Iterator<Item = DateTime<Utc>> {
        let available = self
            .running()
            .filter_map(|pod| pod.available_at(input.strategy.min_ready));
        let lost = self
            .node
            .and_then(|node| node.not_ready_since)
            .map(|since| since + input.grace);
        // The last instant of the trial is part of it.
        let trial = self
            .new
            .filter(|pod| is_crashing(pod))
            .map(|pod| pod.created + TRIAL + TimeDelta::milliseconds(1));
        let patience = input.revisions.update_since + UNSERVED_GRACE;
        let patience = (dark && self.stance.was_dark).then_some(patience);
        let now = input.now;
        let times: Vec<_> = available.chain(lost).chain(trial).chain(patience).collect();
        times.into_iter().filter(move |at| *at > now)
    }

    /// Whether the node failed soon after it got the newest revision. A node that was not Ready
    /// before it got its pod says nothing about the revision: a node that joins is NotReady, and
    /// its first pods may well crash.
    fn is_failed_canary(&self, input: &RolloutInput<'_>) -> bool {
        let Some(node) = self.node else {
            return false;
        };
        let new = self.ended.iter().copied().chain(self.new);
        let mut new = new.filter(|pod| pod.revision == input.revisions.update);
        new.any(|pod| {
            let trial = |at: DateTime<Utc>| at <= pod.created + TRIAL;
            // The API server truncates the creation time to a whole second: within that second, the
            // node may have gone NotReady before the pod existed.
            let went_down = |since| since >= pod.created + WHOLE_SECOND && trial(since);
            let fails = pod.ended.is_some_and(trial)
                || (is_crashing(pod) && trial(input.now))
                || node.not_ready_since.is_some_and(went_down);
            fails && node.ready_from.is_some_and(|from| from <= pod.created)
        })
    }
}
