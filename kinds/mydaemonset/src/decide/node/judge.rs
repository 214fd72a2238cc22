//! The verdict on one node: what counts, and until when that holds.

use chrono::{DateTime, TimeDelta, Utc};

use super::NodeState;
use super::flags::{NodeFlag, NodeFlags, Verdict};
use super::plan::{STEADY, pause};
use super::pods::{crashes_from, is_available, why_unavailable};
use crate::cause::Cause;
use crate::decide::canary::Canary;
use crate::decide::decision::Decision;
use crate::decide::input::RolloutInput;
use crate::decide::observed::{CORDONED, IN_MAINTENANCE, WaitsFor};
use crate::decide::placement::{Eligibility, Obstacle};
use crate::observe::pod::PodView;
use crate::observe::predecessor::Predecessor;

/// A node that goes NotReady soon after it got the newest revision speaks against it after this time: one that leaves the
/// cluster is deleted, and one that restarts is back.
const SILENCE: TimeDelta = TimeDelta::seconds(15);
/// Creation timestamps are whole seconds.
const WHOLE_SECOND: TimeDelta = TimeDelta::seconds(1);
/// Why a node failed whose pod does not say it. Also in the status.
pub(crate) const NOT_READY: &str = "NotReady";
const NOT_AVAILABLE: &str = "NotAvailable";

impl NodeState<'_> {
    /// The verdict on this node.
    pub(crate) fn judge(&self, input: &RolloutInput<'_>) -> Verdict {
        let mut needs = Decision::default();
        self.plan(input, &mut needs);
        let mut flags = NodeFlags::default();
        self.flag_actions(&needs, input, &mut flags);
        self.flag_progress(input, &mut flags);
        let trouble = self.trouble().filter(|_| self.desired());
        flags.set(NodeFlag::Failing, trouble.is_some());
        if self.desired() {
            self.flag_counts(input, &mut flags);
        } else {
            flags.set(NodeFlag::Misscheduled, self.node.is_some() && self.stays());
        }
        // What its pods do while the node is worked on says nothing about the revision.
        let speaks = self.reachable() && !self.in_maintenance();
        let failure = self.failure(input).filter(|_| speaks);
        flags.set(NodeFlag::FailedCanary, failure.is_some());
        let is_unreached = flags.has_nth(NodeFlag::Unreached as usize);
        Verdict {
            flags,
            trouble,
            failure: failure.map(Into::into),
            excluded: self.excluded.filter(|_| self.old.is_some()),
            waits_for: is_unreached.then(|| self.waits_for(input)),
            until: self.until(input).chain(needs.next).min(),
        }
    }

    /// Flags what may be done on the node, at once or within the limits.
    fn flag_actions(&self, needs: &Decision, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let claimed = !needs.claim.is_empty();
        let acts = !needs.create.is_empty() || !needs.delete.is_empty() || claimed;
        flags.set(NodeFlag::Acting, acts);
        let replaceable = self.replaceable(input).is_some();
        flags.set(NodeFlag::Replaceable, replaceable);
        flags.set(NodeFlag::Broken, self.broken(input).is_some());
        flags.set(NodeFlag::Surgeable, replaceable && self.is_alone(input));
        flags.set(NodeFlag::Removable, self.removable(input).is_some());
        flags.set(NodeFlag::Behind, self.behind);
        let base = self.excluded.is_some() || self.counts(self.newest);
        flags.set(NodeFlag::Base, base);
        // A surge that is stuck because of its node frees its place for another one.
        let surging = self.reachable() && !self.lost && self.is_surging(input);
        flags.set(NodeFlag::Surging, surging);
    }

    /// Whether it should serve and does not, whether or not the limits count it.
    fn is_dark(&self, input: &RolloutInput<'_>) -> bool {
        // A node that went down still counts when it has lost its pod: otherwise each node that
        // goes down for a moment would let the roll-out take one more. One that joins does not count
        // before it was Ready: nothing has been taken from it.
        let was_ready = self.node.is_some_and(|node| node.ready_from.is_some());
        let counts = was_ready && (self.desired() || self.eligibility == Eligibility::Down);
        counts && !self.lost && !self.served(input)
    }

    /// Whether the limits have waited for it for long enough.
    fn is_forgiven(&self, input: &RolloutInput<'_>) -> bool {
        self.patience_ends.is_some_and(|end| end <= input.now)
    }

    /// Whether the roll-out may touch the node but does not wait for it.
    fn is_left_out(&self, input: &RolloutInput<'_>) -> bool {
        let left_out = self.lost || (self.is_dark(input) && self.is_forgiven(input));
        left_out && self.is_touched()
    }

    fn is_touched(&self) -> bool {
        self.reachable() || self.excluded.is_some()
    }

    /// Whether the domains after its own wait for this node: the roll-out may touch it, and it has not got the newest
    /// revision alone and available. `is_free` says that no partition would hold it. One that joined does not count: others
    /// may join at any time.
    pub(crate) fn is_open(&self, is_free: bool, input: &RolloutInput<'_>) -> bool {
        let is_done = self.is_done(input) && self.silent_since().is_none();
        if !self.is_touched() || self.lost || is_done {
            return false;
        }
        if self.behind {
            return is_free;
        }
        let joined = self.node.is_some_and(|node| self.joined(node, input));
        let is_accepted = input.accepts_failures() && self.fails(input);
        !joined && !is_accepted && !self.is_left_out(input)
    }

    /// Whether a pod of the newest revision that replaced an available one has ended, crashes, or was not Ready in time,
    /// however long ago it was created.
    fn fails(&self, input: &RolloutInput<'_>) -> bool {
        let is_over = |at: DateTime<Utc>| at <= input.now;
        self.canaries().any(|pod| {
            let crashes = pod.ended.is_some() || crashes_from(pod).is_some_and(is_over);
            (crashes && !pod.disrupted) || deadline(pod, input).is_some_and(is_over)
        })
    }

    /// Flags how far the roll-out is on the node, and whether it waits for it.
    fn flag_progress(&self, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let (dark, done) = (self.is_dark(input), self.is_done(input));
        let left_out = self.is_left_out(input);
        let waited_for = self.is_touched() && !left_out;
        let unserved = dark && !self.is_forgiven(input);
        flags.set(NodeFlag::Unserved, unserved);
        let has_new = self.newest_pod().is_some();
        let proven = self.new.is_some_and(|new| self.is_proven(new, input));
        let under_way = has_new || !self.stays();
        flags.set(NodeFlag::Unproven, under_way && !proven && unserved);
        let on_trial = self.trial_ends(input).is_some_and(|end| end > input.now);
        flags.set(NodeFlag::OnTrial, on_trial && dark && !unserved);
        let desired = self.desired() || self.excluded.is_some();
        flags.set(NodeFlag::Done, waited_for && desired && done);
        let keeps_older = self.keeps_older();
        let is_down = self.eligibility == Eligibility::Down;
        flags.set(NodeFlag::Left, (desired || is_down || keeps_older) && !done);
        flags.set(
            NodeFlag::LeftOut,
            (desired && left_out && !done) || keeps_older,
        );
        flags.set(NodeFlag::Incomplete, desired && waited_for && !done);
        flags.set(NodeFlag::Reached, self.is_concerned() && done);
        flags.set(NodeFlag::Unreached, self.is_concerned() && !done);
        if self.desired() && waited_for && !done {
            let begun = has_new || !self.served(input);
            // A surge that has begun continues to its end, also where the node is held.
            let surging = self.new.is_some() && (self.old.is_some() || !self.leaving.is_empty());
            let is_held = self.is_held_back(input);
            flags.set(NodeFlag::Waiting, surging || (!is_held && begun));
        }
    }

    /// Whether a pod of an older revision stays for long on a node that takes no new pods: not only until it is uncordoned.
    fn keeps_older(&self) -> bool {
        let surges = self.eligibility == Eligibility::Cordoned && self.new.is_some();
        let stays = surges || self.eligibility == Eligibility::Keep;
        stays && self.excluded.is_none() && self.old.is_some()
    }

    /// Until when the newest revision is tried on the node, however long that was unavailable before.
    fn trial_ends(&self, input: &RolloutInput<'_>) -> Option<DateTime<Utc>> {
        let pod = self.newest_pod()?;
        // The time of the pods before it counts, too: at least the pauses after they ended.
        let before: TimeDelta = (0..pod.attempt.min(100)).map(pause).sum();
        // A pod that ends after STEADY begins their count again, so no trial lasts longer.
        Some(pod.created + input.strategy.progress_deadline.min(STEADY) - before)
    }

    /// Whether a pod belongs on the node, or stays there. Unlike those that count as desired, these are also the nodes that
    /// get no pod because they are cordoned or down.
    fn is_concerned(&self) -> bool {
        let keeps = self.eligibility == Eligibility::Keep && self.stays();
        self.eligibility.is_in_place() || keeps
    }

    /// What keeps the newest revision off the node, if the node does: in words, and the cause.
    fn kept_off(&self) -> Option<(&'static str, Cause)> {
        if self.in_maintenance() {
            return Some((IN_MAINTENANCE, Cause::Maintenance));
        }
        if self.silent_since().is_some() || self.eligibility == Eligibility::Down {
            return Some((NOT_READY, Cause::NodeNotReady));
        }
        // Where there is a new pod, and nothing keeps an older one, the pods say more than the node.
        if !self.keeps_older() && self.newest_pod().is_some() {
            return None;
        }
        match (self.excluded, self.eligibility) {
            (Some(Obstacle::Taint), _) => Some(("excluded", Cause::TaintNotTolerated)),
            (Some(_), _) => Some(("excluded", Cause::NotEligible)),
            (None, Eligibility::Cordoned) => Some((CORDONED, Cause::Cordoned)),
            (None, Eligibility::Keep) if self.barred => {
                Some(("excluded by admission", Cause::NotEligible))
            }
            (None, Eligibility::Keep) => Some(("taint not tolerated", Cause::TaintNotTolerated)),
            _ => None,
        }
    }

    /// What the node waits for, which does not have an available pod of the newest revision and no other.
    fn waits_for(&self, input: &RolloutInput<'_>) -> WaitsFor {
        if let Some((_, cause)) = self.kept_off() {
            return WaitsFor::Own(cause);
        }
        let new = self.newest_pod();
        let mut ended = self.ended.iter().copied();
        let old = self.old.or_else(|| ended.find(|pod| self.is_old(pod)));
        let own = match (new, old) {
            (Some(new), _) if !is_available(new, input) => Some(why_unavailable(new)),
            // What keeps the newest revision from the node says more than nothing.
            (None, Some(old)) if !old.is_ready() => {
                Some(why_unavailable(old)).filter(|cause| *cause != Cause::Undetermined)
            }
            (_, None) => self.leaving.first().map(|pod| why_unavailable(pod)),
            _ => None,
        };
        match own {
            Some(cause) => WaitsFor::Own(cause),
            None if new.is_some() => WaitsFor::Deletion,
            None if old.is_none() => WaitsFor::Step,
            None if self.is_held_back(input) => self.stance.holds.unwrap_or(WaitsFor::Hold),
            None => WaitsFor::Turn,
        }
    }

    /// Why the node does not have an available pod of the newest revision and no other.
    pub(crate) fn why_unreached(&self, input: &RolloutInput<'_>) -> Box<str> {
        if let Some((node, _)) = self.kept_off() {
            return node.into();
        }
        let is_new = self.new.is_some_and(|new| is_available(new, input));
        let pods = if is_new {
            "an older pod beside it"
        } else if self.old.is_some_and(PodView::is_ready) {
            "an older revision"
        } else {
            "no available pod"
        };
        self.trouble().unwrap_or_else(|| pods.into())
    }

    /// Flags what the status counts of a node that should have a pod.
    fn flag_counts(&self, input: &RolloutInput<'_>, flags: &mut NodeFlags) {
        let available = self.running().any(|pod| is_available(pod, input));
        let is_updated = self.newest_pod().is_some();
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

    /// What is wrong with the node's pods.
    fn trouble(&self) -> Option<Box<str>> {
        let mut pods = self.running().chain(self.ended.iter().copied());
        pods.find_map(|pod| pod.trouble.clone())
    }

    /// Future instants at which time alone changes the verdict.
    fn until(&self, input: &RolloutInput<'_>) -> impl Iterator<Item = DateTime<Utc>> {
        let available = self
            .running()
            .filter_map(|pod| pod.available_at(input.strategy.min_ready));
        let lost = self.silent_since().map(|since| since + input.grace);
        let silence = self.silent_since().map(|since| since + SILENCE);
        // The last instant of the window is part of it.
        let after = window(input).map(|window| window + TimeDelta::milliseconds(1));
        let trials = self.canaries().flat_map(move |pod| {
            let crash = crashes_from(pod);
            let end = crash.and(after).map(|after| pod.created + after);
            [crash, end, silence, deadline(pod, input)]
        });
        let patience = [self.patience_ends, self.trial_ends(input)];
        let dark = self.is_dark(input);
        let patience = patience.into_iter().flatten().filter(move |_| dark);
        available
            .chain(lost)
            .chain(trials.flatten())
            .chain(patience)
            .filter(|at| *at > input.now)
    }

    /// The pods of the newest revision that replaced an available one of an older revision: what
    /// they do speaks for or against the revision. Another node never had one, or had one that was
    /// no better.
    fn canaries(&self) -> impl Iterator<Item = &PodView> {
        let pods = self.ended.iter().copied().chain(self.new);
        pods.filter(|pod| !self.is_old(pod) && pod.predecessor == Predecessor::Available)
    }

    /// How the node failed soon after it got the newest revision, if it did: what its pod shows, or
    /// one of the words above.
    fn failure(&self, input: &RolloutInput<'_>) -> Option<&str> {
        let node = self.node?;
        let is_excused = node.ready_from.is_none() || node.down_since_maintenance;
        let window = window(input)?;
        let now = input.now;
        self.canaries().find_map(|pod| {
            let soon = |at: DateTime<Utc>| at <= pod.created + window;
            let crashes = crashes_from(pod).is_some_and(|from| from <= now) && soon(now);
            let ended = pod.ended.is_some_and(soon);
            if (crashes || ended) && !pod.disrupted {
                return Some(pod.trouble.as_deref().unwrap_or("Restarting"));
            }
            // The API server truncates the creation time to a whole second: within that second, the
            // node may have gone NotReady before the pod existed.
            let went_down = |since| since >= pod.created + WHOLE_SECOND && soon(since);
            let silent = self.silent_since();
            let silent = silent.filter(|since| !is_excused && went_down(*since));
            if silent.is_some_and(|since| since + SILENCE <= now) {
                return Some(NOT_READY);
            }
            let late = deadline(pod, input).is_some_and(|at| at <= now);
            (late && self.silent_since().is_none()).then_some(NOT_AVAILABLE)
        })
    }
}

/// For how long after the creation of its pod a node speaks against the revision: if that is on its canaries, until they can
/// have soaked. One that fails later would leave the roll-out standing without a reason.
fn window(input: &RolloutInput<'_>) -> Option<TimeDelta> {
    let strategy = &input.strategy;
    let own = strategy.auto_pause?.window;
    let soaked = |canary: &Canary| strategy.progress_deadline + strategy.min_ready + canary.soak;
    Some(input.canary().map_or(own, |canary| own.max(soaked(canary))))
}

/// When a pod fails that is not Ready and has not been since then: a pod that was, and is not any
/// more, has made progress.
fn deadline(pod: &PodView, input: &RolloutInput<'_>) -> Option<DateTime<Utc>> {
    let at = pod.created + input.strategy.progress_deadline;
    let unready = pod.unready_since.is_some_and(|since| since <= at);
    (unready && pod.is_live()).then_some(at)
}
