//! The status: counts and conditions from what is observed, and the Events for a change of it.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};

use super::cause::Cause;
use super::crd::{FailedNode, MyDaemonSetStatus};
use super::decide::freeze::{self, Freeze};
use super::decide::observed::{self, Excluded, Named, Observed, OnCanary};
use super::decide::strategy::Strategy;
use super::decide::undo::{self, Undo};
use super::names::{FREEZE_ANNOTATION, MIGRATION_ANNOTATION};
use wall_clock_controller::reconcile::condition::{self, ACCEPTED, Condition, State};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};
use wall_clock_controller::reconcile::raw::Raw;

mod causes;

pub use causes::cause_of_refusal;

/// No more pods are unavailable than a roll-out may take down.
pub const AVAILABLE: &str = "Available";
/// A roll-out is under way.
pub const PROGRESSING: &str = "Progressing";
/// Pods fail, or the API server rejects them.
pub const DEGRADED: &str = "Degraded";
/// Present while a user freezes the object or its namespace; `True` once nothing that is forbidden can come late. Also a
/// reason of `Progressing=False`, and the state in a word.
pub const FROZEN: &str = "Frozen";
/// For kstatus: present while a roll-out is under way.
const RECONCILING: &str = "Reconciling";
/// For kstatus: present while nothing happens without user intervention.
pub const STALLED: &str = "Stalled";
/// Reason of `Progressing=True`: nodes are still to get the newest revision.
pub const ROLLING_OUT: &str = "RollingOut";
/// Reason of `Progressing=False`: the newest revision failed on its first nodes.
pub const AUTO_PAUSED: &str = "AutoPaused";
/// Reason of `Progressing=True`: the revision of the spec failed, and the pods go back to an earlier one.
pub const ROLLING_BACK: &str = "RollingBack";
/// Reason of `Progressing=False`: the same, and they have gone back.
pub const ROLLED_BACK: &str = "RolledBack";
/// Reason of `Progressing=False`: no node is eligible for the newest revision, which would take every pod away.
pub const NO_ELIGIBLE_NODES: &str = "NoEligibleNodes";
/// Reason of `Progressing=False`: the newest revision has reached every node that it could, and the message says which
/// others there are.
pub const COMPLETE: &str = "Complete";
/// Reasons of `Progressing=False`: all nodes that still have an older revision are held.
const ON_DELETE: &str = "OnDelete";
/// The same because of `paused`.
pub const PAUSED: &str = "Paused";
/// The same because of `partition`.
pub const PARTITIONED: &str = "Partitioned";
/// The same because the nodes are cordoned.
pub const CORDONED: &str = "Cordoned";
/// The same because the nodes are in maintenance, as their conditions say.
pub const MAINTENANCE: &str = "Maintenance";
/// What a freeze of deletions means.
const NONE_IS_DELETED: &str = "no pod that runs is deleted";
/// What a freeze of everything means.
const NONE_CHANGES: &str = "no pod is created or deleted";
/// So many revisions whose roll-out was completed are kept: to go back from one of them leads to another.
const COMPLETE_REVISIONS: usize = 2;
/// Reason of `Progressing=True`: the newest revision is on its canaries, which the other nodes wait for.
pub const CANARY: &str = "Canary";
/// Reason of `Progressing=False`: the canaries have soaked, and a user is to approve the revision.
pub const WAITING_FOR_APPROVAL: &str = "WaitingForApproval";
/// Reason of `Progressing=True`: the other nodes get the newest revision when the next window opens.
pub const OUTSIDE_WINDOW: &str = "OutsideWindow";
/// How many canaries are in the status.
const MAX_CANARY_NODES: usize = 20;

/// How a roll-out leaves nodes as they are, by the reason of `Progressing`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Until a user changes the spec or resumes it.
    Stopped,
    /// Until what holds all the nodes that are left does so no more.
    Held,
    /// Until something else is done.
    Waits,
    /// It is under way, to another revision.
    GoesBack,
}

/// Each reason of `Progressing` for which a roll-out leaves nodes as they are, and what they wait for if that is the reason
/// alone: the others hold some nodes of several.
const STANDS: [(&str, Stand, Option<Cause>); 14] = [
    (AUTO_PAUSED, Stand::Stopped, Some(Cause::AutoPaused)),
    (ROLLED_BACK, Stand::Stopped, Some(Cause::RolledBack)),
    (
        NO_ELIGIBLE_NODES,
        Stand::Stopped,
        Some(Cause::NoEligibleNodes),
    ),
    (FROZEN, Stand::Held, Some(Cause::Frozen)),
    (ON_DELETE, Stand::Held, None),
    (PAUSED, Stand::Held, None),
    (OUTSIDE_WINDOW, Stand::Held, Some(Cause::OutsideWindow)),
    (PARTITIONED, Stand::Held, None),
    (CORDONED, Stand::Held, None),
    (MAINTENANCE, Stand::Held, None),
    (CANARY, Stand::Waits, Some(Cause::Canary)),
    (
        WAITING_FOR_APPROVAL,
        Stand::Waits,
        Some(Cause::WaitingForApproval),
    ),
    (MIGRATING, Stand::Waits, None),
    (ROLLING_BACK, Stand::GoesBack, Some(Cause::RollingBack)),
];

fn stand(reason: &str) -> Option<(&'static str, Stand, Option<Cause>)> {
    STANDS.into_iter().find(|(known, ..)| *known == reason)
}

/// All reasons for which a roll-out stands while nodes are left, or may be.
pub fn stands() -> impl Iterator<Item = &'static str> {
    let all = STANDS.into_iter();
    let stands = all.filter(|(_, stand, _)| *stand != Stand::GoesBack);
    stands.map(|(reason, ..)| reason)
}

/// Whether that is a reason for which the roll-out stands until a user changes the spec or resumes it.
pub fn is_stop(reason: &str) -> bool {
    stand(reason).is_some_and(|(_, stand, _)| stand == Stand::Stopped)
}

/// The cause behind a reason of `Progressing`, if a roll-out leaves nodes as they are for it.
pub fn cause_of_progress(reason: &str) -> Option<Cause> {
    stand(reason)?.2
}

/// Reason of `Accepted=True`, and its message.
const VALID: &str = "Valid";
/// Reason, and the state in a word: the spec is invalid.
pub const INVALID: &str = "Invalid";
/// The state in a word: too many nodes have no available pod.
pub const UNAVAILABLE: &str = "Unavailable";
const OBEYS: &str = "the spec is valid";
/// Message of `Degraded=False`. A pod that stays on a node where none is to be made may fail all the same.
const NONE_FAILS: &str = "no pod fails on a node that should have one";

/// Reason of `Degraded=True`: another object has the name of the revision.
pub const REVISION_CONFLICT: &str = "RevisionConflict";
/// Reason of `Degraded=True`: the API server rejects the revision as it is.
pub const REVISION_REFUSED: &str = "RevisionRefused";
/// Both are also reasons of `Progressing=False`: without its revision a spec is not rolled out.
const NOT_STORED: [&str; 2] = [REVISION_CONFLICT, REVISION_REFUSED];
/// Reason of `Degraded=True`: the API server rejects a pod as it is.
pub const POD_REFUSED: &str = "PodRefused";
/// Reason of `Degraded=True`: the API server rejects the deletion of a pod.
pub const DELETE_REFUSED: &str = "DeleteRefused";
/// Reason of `Degraded=True`: a foreign pod has the name of one to be created.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason of `Degraded=True`: an admission webhook changes the labels that select pods.
pub const LABELS_CHANGED: &str = "LabelsChanged";
/// Reason of `Degraded=True`: pods, or the revision, could not be created, at least twice in a row.
pub const FAILED_CREATE: &str = "FailedCreate";
/// Reason of `Degraded=True`: the same for deletions.
pub const FAILED_DELETE: &str = "FailedDelete";
/// Reason of `Degraded=True`: the same for the adoption of pods and revisions.
pub(crate) const FAILED_ADOPT: &str = "FailedAdopt";
/// Reason of `Degraded=True`: the same for the release of pods.
pub(crate) const FAILED_RELEASE: &str = "FailedRelease";
/// Reason of `Degraded=True`: the same for the deletion of old revisions.
pub(crate) const FAILED_PRUNE: &str = "FailedPrune";
/// All of them. Each is also the reason of an Event.
const REFUSALS: [&str; 11] = [
    POD_REFUSED,
    DELETE_REFUSED,
    NAME_CONFLICT,
    LABELS_CHANGED,
    FAILED_CREATE,
    FAILED_DELETE,
    FAILED_ADOPT,
    FAILED_RELEASE,
    FAILED_PRUNE,
    REVISION_CONFLICT,
    REVISION_REFUSED,
];
/// Reason of `Progressing=True`: a revision of a deleted object of the same name blocks the name.
pub const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
/// Reason of `Progressing=True`: the pods are changing hands, so the operator touches none.
pub const MIGRATING: &str = "Migrating";

/// A failed call: a pod could not be created or deleted, its owner could not be changed, or the
/// revision could not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// One of the reasons of `Degraded=True`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The node that it was first observed on, if the message does not name it.
    pub(crate) node: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.node {
            Some(node) => write!(f, " (first on {node})"),
            None => Ok(()),
        }
    }
}

/// What a user freezes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frozen<'a> {
    pub(crate) freeze: Freeze,
    /// The value of the annotation on the object.
    pub(crate) own: Option<&'a str>,
    /// The same on its namespace. Both are `None` while it is not known whether the namespace has it: then roll-outs wait.
    pub(crate) of_namespace: Option<&'a str>,
    /// Whether no call that is forbidden may still be carried out.
    pub(crate) is_settled: bool,
}

/// Input of the status.
#[derive(Debug)]
pub(crate) struct StatusInput<'a> {
    /// The status before.
    pub(crate) previous: &'a MyDaemonSetStatus,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// What is observed.
    pub(crate) observed: &'a Observed,
    pub(crate) strategy: Strategy,
    /// The revision of the current spec.
    pub(crate) update: &'a str,
    /// Whether the pods go back from it by themselves.
    pub(crate) undo: Undo<'a>,
    pub(crate) frozen: Option<Frozen<'a>>,
    /// The revision of the last roll-out that was completed.
    pub(crate) current: &'a str,
    /// Whether the revision that the roll-out leads to is stored.
    pub(crate) stored: bool,
    /// Why a pod could not be created or the revision not be stored, if so.
    pub(crate) refusal: Option<&'a Refusal>,
    pub(crate) now: DateTime<Utc>,
}

impl<'a> StatusInput<'a> {
    /// The revision that the roll-out leads to.
    fn target(&self) -> &'a str {
        match self.undo {
            Undo::To(target) => target,
            Undo::No | Undo::IfItFails(_) => self.update,
        }
    }

    /// Whether a user has frozen the object or its namespace; `None` while that is not known.
    fn is_frozen(&self) -> Option<bool> {
        self.frozen
            .map_or(Some(false), |it| it.own.or(it.of_namespace).map(|_| true))
    }
}

/// Decodes a stored status. A malformed one is treated as empty and will be replaced.
pub(crate) fn read(raw: &Raw) -> MyDaemonSetStatus {
    serde_json::from_str(raw.text()).unwrap_or_default()
}

/// The status of an object whose spec is invalid. What is known of its pods stays.
pub(crate) fn rejected(
    previous: &MyDaemonSetStatus,
    generation: Option<i64>,
    why: &str,
    now: DateTime<Utc>,
) -> MyDaemonSetStatus {
    let stalled = State::of(true, INVALID, "the spec is invalid");
    let wanted = [
        (ACCEPTED, Some(State::of(false, INVALID, why))),
        (STALLED, Some(stalled)),
        (RECONCILING, None),
        (FROZEN, None),
    ];
    with(previous.clone(), wanted, None, generation, now)
}

/// The status of an object whose revision waits for the deletion of one that a deleted object of
/// the same name left. What is known of its pods stays.
pub(crate) fn waiting(
    previous: &MyDaemonSetStatus,
    generation: Option<i64>,
    revision: &str,
    now: DateTime<Utc>,
) -> MyDaemonSetStatus {
    let mut status = previous.clone();
    let message = format!(
        "waiting for the deletion of ControllerRevision {revision}, which belongs to a deleted MyDaemonSet of this name"
    );
    let fine = State::of(false, "NoPodFails", NONE_FAILS);
    fine.set(&mut status.conditions, DEGRADED, generation, now);
    standing(status, generation, WAITING_FOR_DELETION, message, now)
}

/// The status of an object whose pods are changing hands. What was known of them stays.
pub(crate) fn migrating(
    previous: &MyDaemonSetStatus,
    generation: Option<i64>,
    migration: &str,
    now: DateTime<Utc>,
) -> MyDaemonSetStatus {
    let message = format!(
        "no pod is created, deleted or adopted while the annotation {MIGRATION_ANNOTATION} is there: {migration}"
    );
    standing(previous.clone(), generation, MIGRATING, message, now)
}

/// Whether the operator has stood aside, and not looked at the pods since.
pub fn is_migrating(status: &MyDaemonSetStatus) -> bool {
    condition::get(&status.conditions, PROGRESSING).is_some_and(|c| c.reason == MIGRATING)
}

/// The status of a valid object about whose pods nothing is done yet.
fn standing(
    status: MyDaemonSetStatus,
    generation: Option<i64>,
    reason: &'static str,
    message: String,
    now: DateTime<Utc>,
) -> MyDaemonSetStatus {
    let waits = State::of(true, reason, message);
    let wanted = [
        (ACCEPTED, Some(State::of(true, VALID, OBEYS))),
        (PROGRESSING, Some(waits.clone())),
        (RECONCILING, Some(waits)),
        (STALLED, None),
        // A freeze is acknowledged where the operator acts.
        (FROZEN, None),
    ];
    with(status, wanted, None, generation, now)
}

/// The status with these conditions, or without; with a summary of all.
fn with<const N: usize>(
    mut status: MyDaemonSetStatus,
    wanted: [(&str, Option<State>); N],
    observed: Option<&Observed>,
    generation: Option<i64>,
    now: DateTime<Utc>,
) -> MyDaemonSetStatus {
    status.observed_generation = generation;
    for (type_, state) in wanted {
        match state {
            None => condition::remove(&mut status.conditions, type_),
            Some(state) => state.set(&mut status.conditions, type_, generation, now),
        }
    }
    if canaries(&status).is_none() {
        status.canary_nodes.clear();
    }
    if observed.is_none() {
        status.waiting.clear();
        status.domain = None;
        (status.freeze, status.namespace_freeze) = (None, None);
    }
    status.state = Some(summary(&status.conditions, observed));
    status
}

/// The status for what is observed. If nothing changed, it is the one before.
pub(crate) fn next(input: &StatusInput<'_>) -> MyDaemonSetStatus {
    let (observed, previous) = (input.observed, input.previous);
    // Before it is stored, nothing that could be looked up has the name.
    let if_stored = |new: &str, before: &Option<String>| {
        let new = input.stored.then(|| new.to_owned());
        new.or_else(|| before.clone())
    };
    let progress = progress(input);
    let status = MyDaemonSetStatus {
        waiting: causes::waiting(input, progress.reason),
        available_replicas: Some(count(observed.available)),
        desired_number_scheduled: Some(count(observed.desired)),
        current_number_scheduled: Some(count(observed.current)),
        number_misscheduled: Some(count(observed.misscheduled)),
        number_ready: Some(count(observed.ready)),
        updated_number_scheduled: Some(count(match input.undo {
            Undo::To(_) => observed.undone,
            Undo::No | Undo::IfItFails(_) => observed.updated,
        })),
        number_available: Some(count(observed.available)),
        number_unavailable: Some(count(observed.desired.saturating_sub(observed.available))),
        current_revision: if_stored(input.current, &previous.current_revision),
        complete_revisions: complete_revisions(input),
        update_revision: if_stored(input.update, &previous.update_revision),
        promoted_revision: promoted_revision(input),
        domain: domain(observed, progress.reason),
        freeze: input.frozen.and_then(|it| it.own).map(str::to_owned),
        namespace_freeze: input
            .frozen
            .and_then(|it| it.of_namespace)
            .map(str::to_owned),
        canary_nodes: canary_nodes(observed),
        failed_nodes: failed_nodes(input).to_vec(),
        failed_revisions: failed_revisions(input),
        ..previous.clone()
    };
    let is_stalled = is_stop(progress.reason) || NOT_STORED.contains(&progress.reason);
    let stalled = is_stalled.then(|| State {
        status: true,
        ..progress.clone()
    });
    let reconciling = progress.status.then(|| progress.clone());
    let wanted = [
        (ACCEPTED, Some(State::of(true, VALID, OBEYS))),
        (AVAILABLE, Some(availability(observed))),
        (PROGRESSING, Some(progress)),
        (DEGRADED, Some(degradation(observed, input.refusal))),
        (RECONCILING, reconciling),
        (STALLED, stalled),
        (FROZEN, frozen(input)),
    ];
    with(status, wanted, Some(observed), input.generation, input.now)
}

/// Whether what a user freezes is so.
fn frozen(input: &StatusInput<'_>) -> Option<State> {
    let Frozen {
        freeze,
        own,
        of_namespace,
        is_settled,
    } = input.frozen?;
    let Some(place) = freeze::place(own, of_namespace) else {
        let message = "the roll-out waits for the list of namespaces: this one may be frozen";
        let waits = input.observed.outdated > 0;
        return waits.then(|| State::of(false, "Waiting", message));
    };
    let what = match freeze {
        Freeze::Deletions => NONE_IS_DELETED,
        Freeze::All => NONE_CHANGES,
    };
    let message = format!("{what} while the annotation {FREEZE_ANNOTATION} is {place}");
    if is_settled {
        return Some(State::of(true, FROZEN, message));
    }
    let message = format!(
        "calls that were sent before may still be carried out; the annotation {FREEZE_ANNOTATION} is {place}"
    );
    Some(State::of(false, "Waiting", message))
}

/// Whether the operator has acknowledged a freeze.
pub fn is_frozen(status: &MyDaemonSetStatus) -> bool {
    condition::get(&status.conditions, FROZEN).is_some_and(|c| c.status == "True")
}

/// What the operator has acknowledged to be frozen.
pub fn acknowledged(status: &MyDaemonSetStatus) -> Option<Freeze> {
    let [own, namespace] = [&status.freeze, &status.namespace_freeze].map(Option::as_deref);
    freeze::of_both(own, namespace).filter(|_| is_frozen(status))
}

/// The nodes that the roll-out is stopped for or, on the way back, those that it goes back for.
fn failed_nodes<'a>(input: &StatusInput<'a>) -> &'a [FailedNode] {
    let previous = input.previous;
    match input.undo {
        Undo::To(_) if input.observed.auto_paused => &input.observed.stopped_for,
        // Those on which the way back failed speak against another revision.
        Undo::To(_) if previous.failed_revisions.len() > 1 => &[],
        Undo::To(_) => &previous.failed_nodes,
        Undo::No | Undo::IfItFails(_) => &input.observed.stopped_for,
    }
}

/// The revisions that are not tried again.
fn failed_revisions(input: &StatusInput<'_>) -> Vec<String> {
    let is_stopped = input.observed.auto_paused;
    let failed = match input.undo {
        Undo::To(target) if is_stopped => vec![input.update, target],
        Undo::To(_) => vec![input.update],
        Undo::IfItFails(_) if is_stopped => vec![input.update],
        Undo::No | Undo::IfItFails(_) => Vec::new(),
    };
    failed.into_iter().map(str::to_owned).collect()
}

/// The revisions of the last roll-outs that were completed, with the newest one if its was. One that is on no node, for
/// which no node is eligible, proves nothing: an undo must not lead there.
fn complete_revisions(input: &StatusInput<'_>) -> Vec<String> {
    let known = input.previous.complete_revisions.iter().map(String::as_str);
    let observed = input.observed;
    let is_proven = observed.complete && observed.reached > 0 && input.stored;
    let newest = is_proven.then_some(input.target());
    let others = known.filter(|known| newest != Some(known));
    let all = newest.into_iter().chain(others);
    all.take(COMPLETE_REVISIONS).map(str::to_owned).collect()
}

/// The newest revision, if it has passed its canary and its roll-out is not at its end. One that failed and is undone has
/// to pass it again.
fn promoted_revision(input: &StatusInput<'_>) -> Option<String> {
    if matches!(input.undo, Undo::To(_)) {
        return None;
    }
    let canary = input.observed.canary.as_ref();
    let passes = canary.is_some_and(|canary| canary.passed);
    let is_promoted = passes || has_passed_canary(input.previous, input.update);
    let is_under_way = input.update != input.current;
    (is_promoted && is_under_way).then(|| input.update.to_owned())
}

/// The domain that a roll-out is in, while `Progressing` has that reason.
fn domain(observed: &Observed, progress: &str) -> Option<String> {
    let domain = observed.domain.as_ref();
    let domain = domain.filter(|_| progress == ROLLING_OUT);
    domain.map(|domain| domain.name.clone())
}

/// The canaries, the first ones.
fn canary_nodes(observed: &Observed) -> Vec<String> {
    let nodes = observed.canary.iter().flat_map(|canary| &canary.nodes);
    let nodes = nodes.take(MAX_CANARY_NODES);
    nodes.map(ToString::to_string).collect()
}

/// The conditions in a word, for `kubectl get`: first what needs attention, then what is under way,
/// then why nothing is. Without an observation, nothing is said of what the conditions do not show.
fn summary(conditions: &[Condition], observed: Option<&Observed>) -> String {
    let is = |type_, status| {
        condition::get(conditions, type_).is_some_and(|c: &Condition| c.status == status)
    };
    let progressing = condition::get(conditions, PROGRESSING);
    let reason = progressing.map_or("", |c| c.reason.as_str());
    if is(ACCEPTED, "False") {
        INVALID.to_owned()
    } else if is_stop(reason) || [ROLLING_BACK, MIGRATING].contains(&reason) {
        reason.to_owned()
    } else if is(DEGRADED, "True") {
        DEGRADED.to_owned()
    } else if is(FROZEN, "True") {
        FROZEN.to_owned()
    } else if reason == ROLLING_OUT {
        rolling(observed)
    } else if (is(PROGRESSING, "False") || reason == OUTSIDE_WINDOW) && is(AVAILABLE, "False") {
        UNAVAILABLE.to_owned()
    } else {
        reason.to_owned()
    }
}

/// How far the roll-out is. Never 100 %: a roll-out that left no node would be complete.
fn rolling(observed: Option<&Observed>) -> String {
    let share = observed.and_then(|observed| {
        let nodes = observed.done + observed.left;
        (observed.done * 100).checked_div(nodes)
    });
    share.map_or_else(|| "Rolling".to_owned(), |share| format!("Rolling {share}%"))
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn availability(observed: &Observed) -> State {
    let (available, desired) = (observed.available, observed.desired);
    let mut message = format!("{available} of {desired} nodes have an available pod");
    if observed.unavailable.count > 0 {
        message = format!("{message}, not {}", observed.unavailable);
    }
    if available + observed.max_unavailable >= desired {
        State::of(true, "EnoughNodesAvailable", message)
    } else {
        State::of(false, "TooFewNodesAvailable", message)
    }
}

fn progress(input: &StatusInput<'_>) -> State {
    let (observed, update) = (input.observed, input.update);
    let before = condition::get(&input.previous.conditions, PROGRESSING);
    if observed.auto_paused {
        return stopped(input, before);
    }
    if !input.stored {
        return not_stored(input);
    }
    if observed.no_node {
        return State::of(false, NO_ELIGIBLE_NODES, no_node(input));
    }
    if let Undo::To(target) = input.undo {
        return going_back(input, target, before);
    }
    let held = held(input, before);
    let is_outside = held.as_ref().is_some_and(|it| it.reason == OUTSIDE_WINDOW);
    if let Some(canary) = on_canary(input).filter(|_| !is_outside) {
        return canary;
    }
    if let Some(held) = held {
        return held;
    }
    // A pod that is unavailable for a while after the end of a roll-out does not start it again.
    // Only a status that said Complete proves that there was an end: the one that said RollingOut
    // may never have been stored.
    let has_ended = before.is_some_and(|c| c.reason == COMPLETE)
        && input.previous.update_revision.as_deref() == Some(update);
    let missing = observed.updated < observed.desired;
    if !observed.complete && (missing || !has_ended || update != input.current) {
        State::of(true, ROLLING_OUT, rolling_out(observed, update))
    } else {
        State::of(false, COMPLETE, reached(observed, update))
    }
}

/// The state of a roll-out that stopped because nodes failed.
fn stopped(input: &StatusInput<'_>, before: Option<&Condition>) -> State {
    let observed = input.observed;
    if let Undo::IfItFails(target) = input.undo {
        let failed = failed(&observed.stopped_for, input.update);
        let message = format!("{failed}: the pods go back to revision {target}");
        return State::of(true, ROLLING_BACK, message);
    }
    let is_known = input.previous.failed_nodes == observed.stopped_for;
    let message = auto_paused(input, before.filter(|_| is_known));
    State::of(false, AUTO_PAUSED, message)
}

/// The state of a roll-out that leads back to that revision, since the one of the spec failed.
fn going_back(input: &StatusInput<'_>, target: &str, before: Option<&Condition>) -> State {
    let observed = input.observed;
    let failed = failed(failed_nodes(input), input.update);
    // Nodes that are cordoned or in maintenance are named at the end.
    let by_user = |held: &State| ![CORDONED, MAINTENANCE].contains(&held.reason);
    if let Some(held) = held(input, before).filter(by_user) {
        let message = format!("{failed}; {}", held.message);
        return State::of(held.status, held.reason, message);
    }
    // A node that joins, or a pod that is lost, does not start it again: it gets a pod of that revision all the same.
    let has_ended = before.is_some_and(|c| c.reason == ROLLED_BACK)
        && input.previous.update_revision.as_deref() == Some(input.update);
    let stays = has_ended && observed.undone == 0;
    if !observed.complete && !stays {
        let rolling = rolling_out(observed, target);
        let message = format!("{failed}: the pods go back to revision {target}; {rolling}");
        return State::of(true, ROLLING_BACK, message);
    }
    let reached = reached(observed, target);
    let message = format!(
        "{failed}, and the pods went back: {reached}; revision {} is not tried again until the spec changes (kubectl mydaemonset undo) or it is resumed (kubectl mydaemonset resume)",
        input.update
    );
    State::of(false, ROLLED_BACK, message)
}

/// The state of a roll-out that has not begun because its revision is not stored.
fn not_stored(input: &StatusInput<'_>) -> State {
    match input.refusal {
        Some(refusal) if NOT_STORED.contains(&refusal.reason) => {
            State::of(false, refusal.reason, refusal.to_string())
        }
        _ => {
            let message = format!("revision {} cannot be stored yet", input.target());
            State::of(true, ROLLING_OUT, message)
        }
    }
}

/// The state of a roll-out that has not gone beyond its canaries.
fn on_canary(input: &StatusInput<'_>) -> Option<State> {
    let (observed, update) = (input.observed, input.update);
    let canary = observed.canary.as_ref()?;
    if input.strategy.paused || input.is_frozen() == Some(true) || canary.is_partitioned {
        return None;
    }
    if canary.passed {
        return Some(State::of(true, ROLLING_OUT, rolling_out(observed, update)));
    }
    let message = canary_message(canary, update);
    Some(if canary.soaked {
        let how = "it goes on when it is approved (kubectl mydaemonset approve)";
        State::of(false, WAITING_FOR_APPROVAL, format!("{message}; {how}"))
    } else {
        State::of(true, CANARY, message)
    })
}

/// On how many canaries the revision is available, and until when it must be.
fn canary_message(canary: &OnCanary, update: &str) -> String {
    let nodes = canary.nodes.len();
    if nodes == 0 {
        return format!(
            "no node can be a canary for revision {update}: none that takes its pods is Ready, has the labels of canary.nodeSelector, and is not held; change the spec, or approve the revision (kubectl mydaemonset approve)"
        );
    }
    let available = nodes - canary.missing.count;
    let names = Named::new(canary.nodes.iter(), ToString::to_string);
    let mut message =
        format!("revision {update} is available on {available} of {nodes} canaries: {names}");
    if canary.missing.count > 0 {
        message = format!("{message}; not yet on {}", canary.missing);
    }
    match canary.soaks_until {
        Some(until) if !canary.soaked => {
            let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
            format!("{message}; soaking until {until}")
        }
        _ => message,
    }
}

/// The state of a roll-out that goes no further because all nodes that still have an older revision
/// are held.
fn held(input: &StatusInput<'_>, before: Option<&Condition>) -> Option<State> {
    let (observed, strategy) = (input.observed, input.strategy);
    // A step of a partition is over when its pods are available. A later failure does not start it again.
    let was_held = before.and_then(|c| stand(&c.reason));
    let was_held = was_held.filter(|(_, stand, _)| *stand == Stand::Held);
    let over = observed.waiting.count == 0 || was_held.is_some();
    // The nodes of later domains are held only until it is their turn.
    let stands = strategy.paused || input.frozen.is_some() || observed.gate.is_closed;
    if observed.domain.is_some() && !stands {
        return None;
    }
    if observed.outdated == 0 || observed.outdated != observed.held || !over {
        return None;
    }
    let (reason, cause) = if input.is_frozen() == Some(true) {
        (FROZEN, "a user has frozen the object or its namespace")
    } else if strategy.on_delete {
        (ON_DELETE, "a node gets it when its pod is deleted")
    } else if strategy.paused {
        (PAUSED, "spec.updateStrategy.rollingUpdate.paused is true")
    } else if input.is_frozen().is_none() {
        // What was said before holds, except for a window: that is known.
        let (reason, ..) = was_held?;
        if reason == OUTSIDE_WINDOW {
            return outside_window(input);
        }
        return Some(State::of(false, reason, before?.message.clone()));
    } else if observed.gate.is_closed {
        return outside_window(input);
    } else if strategy.partition > 0 {
        (
            PARTITIONED,
            "spec.updateStrategy.rollingUpdate.partition holds the last nodes",
        )
    } else {
        // The newest revision excludes none of them: a cordon would not keep such a node's pod.
        let causes = &observed.unreached.first;
        let is_maintained = causes.contains_key(observed::IN_MAINTENANCE)
            && !causes.contains_key(observed::CORDONED);
        let reason = if is_maintained { MAINTENANCE } else { CORDONED };
        return Some(State::of(false, reason, reached(observed, input.target())));
    };
    let waiting = waiting_for(observed, input.target());
    Some(State::of(false, reason, format!("{waiting}: {cause}")))
}

/// The state while no window is open: how many nodes wait for the next one, and when it opens.
fn outside_window(input: &StatusInput<'_>) -> Option<State> {
    let gate = input.observed.gate;
    let waiting = waiting_for(input.observed, input.target());
    let opens = match gate.until {
        Some(at) => {
            let at = at.to_rfc3339_opts(SecondsFormat::Secs, true);
            format!("the next opens at {at}")
        }
        None => "none opens within five years".to_owned(),
    };
    let text = format!("{waiting}: no window is open; {opens}");
    gate.is_closed
        .then(|| State::of(true, OUTSIDE_WINDOW, text))
}

/// How many nodes wait for the revision, and how many lose their pod to it.
fn waiting_for(observed: &Observed, update: &str) -> String {
    let excluded = excluded(observed, update);
    let waiting = match observed.outdated.saturating_sub(observed.excluded.count()) {
        0 if excluded.is_some() => None,
        1 => Some(format!("1 node waits for revision {update}")),
        more => Some(format!("{more} nodes wait for revision {update}")),
    };
    let texts: Vec<String> = waiting.into_iter().chain(excluded).collect();
    texts.join("; ")
}

fn rolling_out(observed: &Observed, update: &str) -> String {
    let (updated, desired) = (observed.updated, observed.desired);
    let mut message = format!("{updated} of {desired} nodes have revision {update}");
    if let Some(domain) = &observed.domain {
        message = format!("{domain}: {message}");
    }
    if observed.waiting.count > 0 {
        message = format!("{message}; not yet available on {}", observed.waiting);
    }
    if let Some(excluded) = excluded(observed, update) {
        message = format!("{message}; {excluded}");
    }
    if observed.left_out.count > 0 {
        message = format!("{message}; not waiting for {}", observed.left_out);
    }
    message
}

/// On how many nodes the revision is available now, and why not on the others: also those that count as desired no more
/// because they are down, cordoned or in maintenance.
fn reached(observed: &Observed, update: &str) -> String {
    let (reached, unreached) = (observed.reached, &observed.unreached);
    match (reached, reached + unreached.count) {
        (_, 0) => format!("no node is eligible for revision {update}"),
        (1, 1) => format!("revision {update} is available on its only node"),
        (_, nodes) if reached == nodes => {
            format!("revision {update} is available on all {nodes} nodes")
        }
        (_, nodes) => {
            format!("revision {update} is available on {reached} of {nodes} nodes; {unreached}")
        }
    }
}

/// How many nodes lose their pod to the newest revision, and why.
fn excluded(observed: &Observed, update: &str) -> Option<String> {
    let nodes = match observed.excluded.count() {
        0 => return None,
        1 => "1 node, which loses its pod".to_owned(),
        more => format!("{more} nodes, which lose their pods"),
    };
    let reasons = obstacles(observed.excluded);
    Some(format!("{} {nodes} ({reasons})", excludes(update)))
}

/// That the newest revision would take every pod away, and why.
fn no_node(input: &StatusInput<'_>) -> String {
    let (excluded, target) = (input.observed.excluded, input.target());
    let nodes = match excluded.count() {
        1 => "the pod on 1 node stays".to_owned(),
        more => format!("the pods on {more} nodes stay"),
    };
    let reasons = obstacles(excluded);
    let change = match input.undo {
        // An undo leads to the same revision.
        Undo::To(_) => "the spec changes",
        Undo::No | Undo::IfItFails(_) => "the spec changes (kubectl mydaemonset undo)",
    };
    format!(
        "no node is eligible for revision {target} ({reasons}): {nodes} until {change} or the roll-out is resumed (kubectl mydaemonset resume), which deletes them"
    )
}

/// Why nodes are excluded, and how many for each reason.
fn obstacles(excluded: Excluded) -> String {
    let reasons: Vec<String> = [
        (excluded.node_selector, "nodeSelector does not match"),
        (excluded.node_affinity, "node affinity does not match"),
        (excluded.taint, "NoExecute taint not tolerated"),
    ]
    .into_iter()
    .filter(|(nodes, _)| *nodes > 0)
    .map(|(nodes, reason)| format!("{reason}: {nodes}"))
    .collect();
    reasons.join(", ")
}

/// The prefix of the text about excluded nodes.
fn excludes(update: &str) -> String {
    format!("revision {update} excludes")
}

/// The text about excluded nodes in the condition `Progressing`.
fn read_excluded(status: &MyDaemonSetStatus) -> Option<&str> {
    let message = &condition::get(&status.conditions, PROGRESSING)?.message;
    let from = message.find(&excludes(status.update_revision.as_deref()?))?;
    message.get(from..)?.split_inclusive(')').next()
}

/// Which nodes stopped the roll-out. They may recover once it is stopped: the first message stays.
fn auto_paused(input: &StatusInput<'_>, before: Option<&Condition>) -> String {
    let target = input.target();
    match before {
        Some(before) if before.reason == AUTO_PAUSED && before.message.contains(target) => {
            before.message.clone()
        }
        _ => {
            let failed = failed(&input.observed.stopped_for, target);
            let first = match input.undo {
                Undo::To(_) => format!(
                    "revision {} failed, and so does the way back: ",
                    input.update
                ),
                Undo::No | Undo::IfItFails(_) => String::new(),
            };
            format!(
                "{first}{failed}: the roll-out is stopped until the spec changes (kubectl mydaemonset undo) or it is resumed (kubectl mydaemonset resume)"
            )
        }
    }
}

/// That a revision failed, and where.
fn failed(nodes: &[FailedNode], revision: &str) -> String {
    if nodes.is_empty() {
        return format!("revision {revision} failed");
    }
    let nodes = Named::new(nodes.iter(), |node| {
        format!("{} ({})", node.name, node.reason)
    });
    format!("revision {revision} failed on {nodes}")
}

fn degradation(observed: &Observed, refusal: Option<&Refusal>) -> State {
    if let Some(refusal) = refusal {
        return State::of(true, refusal.reason, refusal.to_string());
    }
    if observed.failing.count == 0 {
        return State::of(false, "NoPodFails", NONE_FAILS);
    }
    let message = format!("pods fail on {}", observed.failing);
    State::of(true, "PodsFail", message)
}

/// Whether the roll-out of that revision was stopped because of failing nodes.
pub fn is_auto_paused(status: &MyDaemonSetStatus, update: &str) -> bool {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    status.update_revision.as_deref() == Some(update)
        && progressing.is_some_and(|c| c.reason == AUTO_PAUSED)
}

/// Whether that revision of the spec failed, and the pods went back from it by themselves, or do so.
pub fn is_undone(status: &MyDaemonSetStatus, update: &str) -> bool {
    let failed = status.failed_revisions.first();
    failed.is_some_and(|failed| failed == update)
}

/// How many roll-outs are stopped since that revision is the spec's: its own, and the way back from it.
pub(crate) fn times_stopped(status: &MyDaemonSetStatus, update: &str) -> usize {
    if is_undone(status, update) {
        status.failed_revisions.len()
    } else {
        is_auto_paused(status, update).into()
    }
}

/// The revision that a user may resume, if the operator stopped its roll-out. `update` is that of the spec.
pub fn resumable<'a>(status: &'a MyDaemonSetStatus, update: &'a str) -> Option<&'a str> {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    let reason = progressing.map_or("", |c| c.reason.as_str());
    if is_undone(status, update) {
        return if reason == NO_ELIGIBLE_NODES {
            undo::target(&status.complete_revisions, update, |_| true)
        } else {
            // The way back, if that failed.
            status.failed_revisions.last().map(String::as_str)
        };
    }
    let is_same = status.update_revision.as_deref() == Some(update);
    (is_same && is_stop(reason)).then_some(update)
}

/// Whether the roll-out that leads to `target` was stopped when the operator last looked. `update` is the revision of the
/// spec. While the pods change hands, another reason takes the place of `AutoPaused`.
pub(crate) fn was_stopped(status: &MyDaemonSetStatus, update: &str, target: &str) -> bool {
    if update != target {
        let is_it = |failed: &String| failed == target;
        return is_undone(status, update) && status.failed_revisions.iter().any(is_it);
    }
    let is_same = status.update_revision.as_deref() == Some(update);
    let is_moving = is_migrating(status) && is_same && !status.failed_nodes.is_empty();
    // From one that was undone there may be no way back any more.
    is_moving || is_auto_paused(status, update) || is_undone(status, update)
}

/// Whether that revision has passed its canary, and its roll-out is not at its end.
pub(crate) fn has_passed_canary(status: &MyDaemonSetStatus, update: &str) -> bool {
    status.promoted_revision.as_deref() == Some(update)
}

/// Whether that revision is to reach all nodes at once.
pub(crate) fn needs_no_canary(status: &MyDaemonSetStatus, update: &str) -> bool {
    has_passed_canary(status, update) || was_completed(status, update)
}

/// Whether the roll-out of that revision was completed not long ago. It has been on all nodes, and an undo must not wait.
pub(crate) fn was_completed(status: &MyDaemonSetStatus, update: &str) -> bool {
    let mut complete = status.complete_revisions.iter();
    complete.any(|hash| hash == update)
}

/// The canaries, the first ones, if the newest revision has not gone beyond them.
pub fn canaries(status: &MyDaemonSetStatus) -> Option<&[String]> {
    let progressing = condition::get(&status.conditions, PROGRESSING)?;
    let is_on = [CANARY, WAITING_FOR_APPROVAL].contains(&progressing.reason.as_str());
    is_on.then_some(status.canary_nodes.as_slice())
}

/// Whether a roll-out is under way.
pub(crate) fn is_rolling(status: &MyDaemonSetStatus) -> bool {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    progressing.is_some_and(|c| [ROLLING_OUT, ROLLING_BACK].contains(&c.reason.as_str()))
}

/// Why the roll-out stands, if it does: one of [`stands`].
pub(crate) fn paused(status: &MyDaemonSetStatus) -> Option<&'static str> {
    let progressing = condition::get(&status.conditions, PROGRESSING)?;
    stands().find(|reason| *reason == progressing.reason)
}

/// Whether more than a number or a name changed, which users and programs wait for.
pub(crate) fn is_pressing(before: &MyDaemonSetStatus, after: &MyDaemonSetStatus) -> bool {
    fn states(status: &MyDaemonSetStatus) -> impl Iterator<Item = [&str; 3]> {
        let conditions = status.conditions.iter();
        conditions.map(|c| [c.type_.as_str(), c.status.as_str(), c.reason.as_str()])
    }
    before.observed_generation != after.observed_generation
        || before.current_revision != after.current_revision
        || before.update_revision != after.update_revision
        || before.promoted_revision != after.promoted_revision
        || states(before).ne(states(after))
}

/// The Events for a change of the status: one for each step that users would look for.
pub(crate) fn events(before: &MyDaemonSetStatus, after: &MyDaemonSetStatus) -> Vec<NewEvent> {
    let change = Change { before, after };
    let events = [
        change.invalid(),
        change.rollout_started(),
        change.nodes_excluded(),
        change.canary_passed(),
        change.waiting_for_approval(),
        change.rolling_back(),
        change.stopped(),
        change.rollout_complete(),
        change.degraded(),
        change.frozen(),
    ];
    events.into_iter().flatten().collect()
}

/// The Event for the end of a roll-out that leads back to the revision of the last completed one: `currentRevision` stays the
/// same, and shows nothing. `since` is when that revision became the newest again. A roll-out that began later only makes
/// pods on nodes that joined.
pub(crate) fn returned(
    before: &MyDaemonSetStatus,
    after: &MyDaemonSetStatus,
    since: DateTime<Utc>,
) -> Option<NewEvent> {
    let change = Change { before, after };
    let condition = change.became(PROGRESSING, "False");
    let condition = condition.filter(|c| c.reason == COMPLETE)?;
    let rolling = condition::get(&before.conditions, PROGRESSING)?;
    let is_return = rolling.reason == ROLLING_OUT && since >= rolling.last_transition_time;
    let is_same = before.current_revision == after.current_revision;
    (is_return && is_same).then(|| normal("RolloutComplete", condition.message.clone()))
}

/// A change of the status.
struct Change<'a> {
    before: &'a MyDaemonSetStatus,
    after: &'a MyDaemonSetStatus,
}

impl Change<'_> {
    /// The condition, if it has that status now and had another one, or another reason, before.
    fn became(&self, type_: &str, status: &str) -> Option<&Condition> {
        let now = condition::get(&self.after.conditions, type_);
        let now = now.filter(|c| c.status == status)?;
        let then = condition::get(&self.before.conditions, type_);
        let same = then.is_some_and(|c| c.status == status && c.reason == now.reason);
        (!same).then_some(now)
    }

    /// A revision before and after, if it has changed.
    fn changed(&self, read: fn(&MyDaemonSetStatus) -> Option<&str>) -> Option<(&str, &str)> {
        let (old, new) = (read(self.before)?, read(self.after)?);
        (old != new).then_some((old, new))
    }

    fn invalid(&self) -> Option<NewEvent> {
        let condition = self.became(ACCEPTED, "False")?;
        Some(warning(INVALID, "Validate", condition.message.clone()))
    }

    fn rollout_started(&self) -> Option<NewEvent> {
        let (old, new) = self.changed(|status| status.update_revision.as_deref())?;
        let desired = self.after.desired_number_scheduled.unwrap_or_default();
        let note = format!("rolling out revision {new} in place of {old} to {desired} nodes");
        Some(normal("RolloutStarted", note))
    }

    fn nodes_excluded(&self) -> Option<NewEvent> {
        let is_known = self.before.update_revision == self.after.update_revision
            && read_excluded(self.before).is_some();
        let excluded = read_excluded(self.after).filter(|_| !is_known)?;
        Some(warning("NodesExcluded", "RollOut", excluded.to_owned()))
    }

    fn canary_passed(&self) -> Option<NewEvent> {
        let passed = self.after.promoted_revision.as_deref()?;
        let is_known = has_passed_canary(self.before, passed);
        let note = format!("revision {passed} has passed its canary: the other nodes follow");
        (!is_known).then(|| normal("CanaryPassed", note))
    }

    fn waiting_for_approval(&self) -> Option<NewEvent> {
        let condition = self.became(PROGRESSING, "False");
        let condition = condition.filter(|c| c.reason == WAITING_FOR_APPROVAL)?;
        Some(normal(WAITING_FOR_APPROVAL, condition.message.clone()))
    }

    fn rolling_back(&self) -> Option<NewEvent> {
        let condition = self.became(PROGRESSING, "True");
        let condition = condition.filter(|c| c.reason == ROLLING_BACK)?;
        Some(warning(ROLLING_BACK, "RollOut", condition.message.clone()))
    }

    fn stopped(&self) -> Option<NewEvent> {
        let condition = self.became(PROGRESSING, "False")?;
        let stopped = stand(&condition.reason).filter(|(_, it, _)| *it == Stand::Stopped);
        let (reason, ..) = stopped?;
        Some(warning(reason, "RollOut", condition.message.clone()))
    }

    fn rollout_complete(&self) -> Option<NewEvent> {
        self.changed(|status| status.current_revision.as_deref())?;
        let condition = condition::get(&self.after.conditions, PROGRESSING)?;
        Some(normal("RolloutComplete", condition.message.clone()))
    }

    fn frozen(&self) -> Option<NewEvent> {
        let condition = self.became(FROZEN, "True")?;
        Some(normal(FROZEN, condition.message.clone()))
    }

    fn degraded(&self) -> Option<NewEvent> {
        let condition = self.became(DEGRADED, "True")?;
        let mut refusals = REFUSALS.into_iter();
        let reason = refusals.find(|reason| *reason == condition.reason);
        let reason = reason.unwrap_or("PodsFail");
        Some(warning(reason, "RunPods", condition.message.clone()))
    }
}

fn warning(reason: &'static str, action: &'static str, note: String) -> NewEvent {
    NewEvent {
        severity: Severity::Warning,
        reason,
        action,
        note,
    }
}

fn normal(reason: &'static str, note: String) -> NewEvent {
    NewEvent {
        severity: Severity::Normal,
        reason,
        action: "RollOut",
        note,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::decide::observed::{ByCause, InDomain};
    use crate::decide::strategy::Amount;
    use crate::decide::window::Gate;
    use chrono::TimeDelta;

    fn failed(names: &[&str]) -> Vec<FailedNode> {
        let failed = names.iter().map(|name| FailedNode {
            name: (*name).to_owned(),
            reason: "Error".to_owned(),
        });
        failed.collect()
    }

    fn named<const N: usize>(nodes: [&str; N]) -> Named {
        Named::new(nodes.into_iter(), str::to_owned)
    }

    fn by_cause<const N: usize>(nodes: [(&str, &str); N]) -> ByCause {
        let cause = |name: &str| -> Box<str> {
            let node = nodes.iter().find(|node| node.0 == name);
            node.unwrap().1.into()
        };
        ByCause::new(nodes.iter().map(|node| node.0), cause)
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn strategy() -> Strategy {
        Strategy {
            on_delete: false,
            max_unavailable: Amount::Nodes(1),
            max_surge: Amount::Nodes(0),
            partition: 0,
            paused: false,
            min_ready: TimeDelta::zero(),
            progress_deadline: TimeDelta::minutes(10),
            auto_pause: None,
            undoes: false,
        }
    }

    fn complete(nodes: usize) -> Observed {
        Observed {
            desired: nodes,
            current: nodes,
            ready: nodes,
            updated: nodes,
            available: nodes,
            max_unavailable: 1,
            done: nodes,
            reached: nodes,
            complete: true,
            ..Observed::default()
        }
    }

    fn under_way() -> Observed {
        Observed {
            updated: 1,
            available: 2,
            done: 1,
            left: 2,
            reached: 1,
            unreached: by_cause([("a", "an older revision"), ("b", "an older revision")]),
            outdated: 2,
            complete: false,
            ..complete(3)
        }
    }

    fn next_of(
        previous: &MyDaemonSetStatus,
        observed: &Observed,
        strategy: Strategy,
        current: &str,
        now: i64,
    ) -> MyDaemonSetStatus {
        next(&StatusInput {
            previous,
            generation: Some(2),
            observed,
            strategy,
            update: "new",
            undo: Undo::No,
            frozen: None,
            current,
            stored: true,
            refusal: None,
            now: at(now),
        })
    }

    /// The status while the revision cannot be stored.
    fn not_stored_of(previous: &MyDaemonSetStatus, reason: &'static str) -> MyDaemonSetStatus {
        let refusal = Refusal {
            reason,
            message: "taken".into(),
            node: None,
        };
        next(&StatusInput {
            previous,
            generation: Some(3),
            observed: &under_way(),
            strategy: strategy(),
            update: "newer",
            undo: Undo::No,
            frozen: None,
            current: "old",
            stored: false,
            refusal: Some(&refusal),
            now: at(2),
        })
    }

    /// Conditions as `Type=Status/Reason`, in order of their types.
    fn conditions(status: &MyDaemonSetStatus) -> Vec<String> {
        let mut texts: Vec<_> = status
            .conditions
            .iter()
            .map(|c| format!("{}={}/{}", c.type_, c.status, c.reason))
            .collect();
        texts.sort();
        texts
    }

    fn none() -> MyDaemonSetStatus {
        MyDaemonSetStatus::default()
    }

    #[test]
    fn a_finished_roll_out_has_no_condition_that_tools_would_wait_for() {
        let status = next_of(&none(), &complete(3), strategy(), "new", 1);
        assert_eq!(
            conditions(&status),
            [
                "Accepted=True/Valid",
                "Available=True/EnoughNodesAvailable",
                "Degraded=False/NoPodFails",
                "Progressing=False/Complete"
            ]
        );
        assert_eq!(status.available_replicas, Some(3));
        assert_eq!(status.number_unavailable, Some(0));
        assert_eq!(status.observed_generation, Some(2));
    }

    #[test]
    fn the_same_observation_changes_nothing() {
        let observed = Observed {
            failing: named(["a (Error)"]),
            ..under_way()
        };
        let once = next_of(&none(), &observed, strategy(), "old", 1);
        let twice = next_of(&once, &observed, strategy(), "old", 500);
        assert_eq!(once, twice);
        assert_eq!(events(&once, &twice), []);
        let stored = serde_json::to_value(&once).unwrap();
        assert_eq!(
            read(&serde_json::from_str(&stored.to_string()).unwrap()),
            once,
            "what is stored reads as what was written"
        );
    }

    #[test]
    fn each_state_of_a_roll_out_has_its_reason() {
        let held = || Observed {
            held: 2,
            ..under_way()
        };
        let paused = Strategy {
            paused: true,
            ..strategy()
        };
        let partitioned = Strategy {
            partition: 2,
            ..strategy()
        };
        let on_delete = Strategy {
            on_delete: true,
            ..strategy()
        };
        let stopped = || Observed {
            auto_paused: true,
            stopped_for: failed(&["a", "b"]),
            ..held()
        };
        // The new pods of a partition's step are not all available.
        let step = || Observed {
            waiting: named(["a"]),
            ..held()
        };
        for (observed, strategy, state, for_tools) in [
            (
                under_way(),
                strategy(),
                "True/RollingOut",
                Some("Reconciling=True/RollingOut"),
            ),
            (held(), paused, "False/Paused", None),
            (held(), partitioned, "False/Partitioned", None),
            (held(), on_delete, "False/OnDelete", None),
            (held(), strategy(), "False/Cordoned", None),
            (
                step(),
                partitioned,
                "True/RollingOut",
                Some("Reconciling=True/RollingOut"),
            ),
            (
                stopped(),
                strategy(),
                "False/AutoPaused",
                Some("Stalled=True/AutoPaused"),
            ),
        ] {
            let status = next_of(&none(), &observed, strategy, "old", 1);
            let found = conditions(&status);
            assert!(found.contains(&format!("Progressing={state}")), "{found:?}");
            let extra = |c: &&String| c.starts_with("Reconciling") || c.starts_with("Stalled");
            assert_eq!(found.iter().find(extra).map(String::as_str), for_tools);
        }
    }

    fn state(status: &MyDaemonSetStatus) -> &str {
        status.state.as_deref().unwrap()
    }

    #[test]
    fn a_roll_out_names_its_domain_and_is_not_over_because_the_others_wait() {
        let in_domain = Observed {
            held: 2,
            domain: Some(InDomain {
                name: "zone b".to_owned(),
                updated: 2,
                nodes: 3,
            }),
            ..under_way()
        };
        let paused = Strategy {
            paused: true,
            ..strategy()
        };
        let stands = next_of(&none(), &in_domain, paused, "old", 1);
        assert_eq!(state(&stands), PAUSED);
        let rolling = next_of(&stands, &in_domain, strategy(), "old", 1);
        assert!(is_rolling(&rolling));
        assert_eq!(
            progressing(&rolling),
            "zone b (2 of 3): 1 of 3 nodes have revision new"
        );
        assert_eq!(rolling.domain.as_deref(), Some("zone b"));
        let outside = Observed {
            gate: Gate {
                is_closed: true,
                until: None,
            },
            ..in_domain
        };
        let waits = next_of(&rolling, &outside, strategy(), "old", 1);
        assert_eq!(
            progressing(&waits),
            "2 nodes wait for revision new: no window is open; none opens within five years"
        );
        assert_eq!((stands.domain, waits.domain), (None, None));
    }

    #[test]
    fn a_canary_says_where_it_is_until_when_and_what_for() {
        let canary = |missing: Named, soaks_until: Option<i64>, soaked: bool| Observed {
            held: 2,
            canary: Some(OnCanary {
                nodes: ["a".into(), "b".into()].into(),
                missing,
                soaks_until: soaks_until.map(at),
                soaked,
                ..OnCanary::default()
            }),
            ..under_way()
        };
        let shown = |observed: &Observed, strategy| {
            let status = next_of(&none(), observed, strategy, "old", 1);
            let progressing = condition::get(&status.conditions, PROGRESSING).unwrap();
            let (is, message) = (&progressing.status, &progressing.message);
            let text = format!("{is} {}: {message}", state(&status));
            let notes = events(&none(), &status).into_iter();
            let notes: Vec<_> = notes.map(|event| event.reason).collect();
            let on = canaries(&status).map(|nodes| nodes.join(" "));
            assert_eq!(
                on.clone().unwrap_or_default(),
                status.canary_nodes.join(" ")
            );
            (text, on, super::paused(&status), notes)
        };
        let both = || Some("a b".to_owned());
        let lacks = canary(named(["b (no available pod)"]), None, false);
        let text = "True Canary: revision new is available on 1 of 2 canaries: a, b; not yet on b (no available pod)";
        assert_eq!(
            shown(&lacks, strategy()),
            (text.to_owned(), both(), Some(CANARY), vec![])
        );
        let soaks = canary(Named::default(), Some(600), false);
        let text = "True Canary: revision new is available on 2 of 2 canaries: a, b; soaking until 1970-01-01T00:10:00Z";
        assert_eq!(
            shown(&soaks, strategy()),
            (text.to_owned(), both(), Some(CANARY), vec![])
        );
        let soaked = canary(Named::default(), Some(600), true);
        let text = "False WaitingForApproval: revision new is available on 2 of 2 canaries: a, b; it goes on when it is approved (kubectl mydaemonset approve)";
        let (stands, notes) = (Some(WAITING_FOR_APPROVAL), vec![WAITING_FOR_APPROVAL]);
        assert_eq!(
            shown(&soaked, strategy()),
            (text.to_owned(), both(), stands, notes)
        );
        // A freeze and a user's pause come first.
        let frozen = next(&StatusInput {
            previous: &none(),
            generation: Some(2),
            observed: &soaks,
            strategy: strategy(),
            update: "new",
            undo: Undo::No,
            frozen: Some(Frozen {
                freeze: Freeze::Deletions,
                own: Some("by me"),
                of_namespace: None,
                is_settled: true,
            }),
            current: "old",
            stored: true,
            refusal: None,
            now: at(1),
        });
        assert_eq!(super::paused(&frozen), Some(FROZEN));
        assert_eq!(frozen.canary_nodes, [""; 0]);
        let paused = Strategy {
            paused: true,
            ..strategy()
        };
        assert_eq!(shown(&soaks, paused).2, Some(PAUSED));
        // None can be one because of the partition, or for another reason.
        let mut none_fits = canary(Named::default(), None, false);
        let none_is = |observed: &mut Observed, is_partitioned| {
            observed.canary = Some(OnCanary {
                is_partitioned,
                ..OnCanary::default()
            });
        };
        none_is(&mut none_fits, false);
        let (text, on, ..) = shown(&none_fits, strategy());
        let start = "True Canary: no node can be a canary for revision new";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(on.as_deref(), Some(""));
        none_is(&mut none_fits, true);
        let partitioned = Strategy {
            partition: 2,
            ..strategy()
        };
        assert_eq!(shown(&none_fits, partitioned).2, Some(PARTITIONED));
    }

    #[test]
    fn the_first_of_many_canaries_are_named() {
        let many = Observed {
            held: 2,
            canary: Some(OnCanary {
                nodes: (10..40).map(|nth| format!("n{nth}").into()).collect(),
                ..OnCanary::default()
            }),
            ..under_way()
        };
        let status = next_of(&none(), &many, strategy(), "old", 1);
        let expected: Vec<String> = (10..30).map(|nth| format!("n{nth}")).collect();
        assert_eq!(status.canary_nodes, expected);
        // Nor do they outlive their roll-out.
        let promoted = next_of(&status, &under_way(), strategy(), "old", 2);
        assert_eq!(promoted.canary_nodes, [""; 0]);
        let moving = migrating(&status, Some(2), "there", at(2));
        assert_eq!(moving.canary_nodes, [""; 0]);
    }

    #[test]
    fn outside_the_windows_the_status_says_when_the_next_one_opens() {
        let closed = |until: Option<i64>| Observed {
            held: 2,
            gate: Gate {
                is_closed: true,
                until: until.map(at),
            },
            ..under_way()
        };
        let shown = |observed: &Observed, strategy| {
            let status = next_of(&none(), observed, strategy, "old", 1);
            let progressing = condition::get(&status.conditions, PROGRESSING).unwrap();
            format!(
                "{} {}: {}",
                progressing.status,
                state(&status),
                progressing.message
            )
        };
        let outside = closed(Some(3_600));
        assert_eq!(
            shown(&outside, strategy()),
            "True OutsideWindow: 2 nodes wait for revision new: no window is open; the next opens at 1970-01-01T01:00:00Z"
        );
        assert_eq!(
            shown(&closed(None), strategy()),
            "True OutsideWindow: 2 nodes wait for revision new: no window is open; none opens within five years"
        );
        let status = next_of(&none(), &outside, strategy(), "old", 1);
        assert_eq!(super::paused(&status), Some(OUTSIDE_WINDOW));
        assert!(!is_rolling(&status));
        assert!(conditions(&status).contains(&"Reconciling=True/OutsideWindow".to_owned()));
        assert_eq!(events(&none(), &status), []);
        // What the roll-out had begun with ends first; a pod that fails later begins nothing.
        let waiting = Observed {
            waiting: named(["a"]),
            ..outside.clone()
        };
        let later = next_of(&status, &waiting, strategy(), "old", 2);
        assert_eq!(state(&later), OUTSIDE_WINDOW);
        assert!(shown(&waiting, strategy()).starts_with("True Rolling 33%"));
        // A pause is a user's, and is said first. A partition holds others.
        let (mut paused, mut partitioned) = (strategy(), strategy());
        (paused.paused, partitioned.partition) = (true, 1);
        assert!(shown(&outside, paused).starts_with("False Paused"));
        assert!(shown(&outside, partitioned).starts_with("True OutsideWindow"));
        // Too few pods are available, which no window changes.
        let down = Observed {
            available: 0,
            ..outside.clone()
        };
        assert!(shown(&down, strategy()).starts_with("True Unavailable"));
        // The first step of a canary waits; its soak does not.
        let mut canary = Observed {
            canary: Some(OnCanary {
                nodes: ["a".into()].into(),
                ..OnCanary::default()
            }),
            ..outside
        };
        assert!(shown(&canary, strategy()).starts_with("True OutsideWindow"));
        canary.gate = Gate::default();
        assert!(shown(&canary, strategy()).starts_with("True Canary"));
    }

    #[test]
    fn a_window_is_known_also_until_namespaces_are_listed() {
        let next_of_unsure = |previous: &MyDaemonSetStatus, gate: Gate| {
            let observed = Observed {
                held: 2,
                gate,
                ..under_way()
            };
            next(&StatusInput {
                previous,
                generation: Some(2),
                observed: &observed,
                strategy: strategy(),
                update: "new",
                undo: Undo::No,
                frozen: Some(Frozen {
                    freeze: Freeze::Deletions,
                    own: None,
                    of_namespace: None,
                    is_settled: false,
                }),
                current: "old",
                stored: true,
                refusal: None,
                now: at(2),
            })
        };
        let closed = |until| Gate {
            is_closed: true,
            until: Some(at(until)),
        };
        let observed = Observed {
            held: 2,
            gate: closed(3_600),
            ..under_way()
        };
        let outside = next_of(&none(), &observed, strategy(), "old", 1);
        // A roll-out that goes on by itself is not over for tools that wait.
        let later = next_of_unsure(&outside, closed(7_200));
        assert!(conditions(&later).contains(&"Reconciling=True/OutsideWindow".to_owned()));
        assert!(progressing(&later).ends_with("the next opens at 1970-01-01T02:00:00Z"));
        let open = next_of_unsure(&outside, Gate::default());
        assert!(conditions(&open).contains(&"Progressing=True/RollingOut".to_owned()));
    }

    #[test]
    fn the_status_keeps_that_a_canary_has_passed_until_the_roll_out_is_complete() {
        let passes = Observed {
            held: 2,
            canary: Some(OnCanary {
                soaked: true,
                passed: true,
                ..OnCanary::default()
            }),
            ..under_way()
        };
        let promoted = next_of(&none(), &passes, strategy(), "old", 1);
        assert!(has_passed_canary(&promoted, "new"));
        assert!(!has_passed_canary(&promoted, "newer"));
        assert!(is_pressing(&none(), &promoted));
        assert!(conditions(&promoted).contains(&"Progressing=True/RollingOut".to_owned()));
        let reasons = |before: &MyDaemonSetStatus, after: &MyDaemonSetStatus| {
            let events = events(before, after).into_iter();
            events.map(|event| event.reason).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&none(), &promoted), ["CanaryPassed"]);
        let later = next_of(&promoted, &under_way(), strategy(), "old", 2);
        assert!(has_passed_canary(&later, "new"));
        assert_eq!(reasons(&promoted, &later), [""; 0]);
        let done = next_of(&later, &complete(3), strategy(), "new", 3);
        assert_eq!(done.promoted_revision, None);
        // Nor does it count after an undo, should a user have the revision tried again.
        let going = Observed {
            undone: 1,
            ..under_way()
        };
        let undone = next_back(&later, &going, Undo::To("old"));
        assert_eq!(undone.promoted_revision, None);
    }

    #[test]
    fn the_state_says_how_far_a_roll_out_is_and_never_that_it_is_all_the_way() {
        for (done, left, expected) in [
            (0, 3, "Rolling 0%"),
            (1, 2, "Rolling 33%"),
            (4_999, 1, "Rolling 99%"),
            // Every node has lost its pod to the revision, and the last pod is going.
            (0, 0, "Rolling"),
        ] {
            let observed = Observed {
                done,
                left,
                ..under_way()
            };
            let status = next_of(&none(), &observed, strategy(), "old", 1);
            assert_eq!(state(&status), expected);
        }
    }

    #[test]
    fn the_state_says_why_a_roll_out_stands() {
        let held = Observed {
            held: 2,
            ..under_way()
        };
        let (mut on_delete, mut paused, mut partitioned) = (strategy(), strategy(), strategy());
        (on_delete.on_delete, paused.paused, partitioned.partition) = (true, true, 2);
        for (strategy, expected) in [
            (on_delete, ON_DELETE),
            (paused, PAUSED),
            (partitioned, PARTITIONED),
            (strategy(), CORDONED),
        ] {
            let status = next_of(&none(), &held, strategy, "old", 1);
            assert_eq!(
                (state(&status), super::paused(&status)),
                (expected, Some(expected))
            );
        }
        let done = next_of(&none(), &complete(3), strategy(), "new", 1);
        assert_eq!((state(&done), super::paused(&done)), (COMPLETE, None));
        let begun = next_of(&none(), &under_way(), strategy(), "old", 1);
        assert_eq!(super::paused(&begun), None);
    }

    #[test]
    fn the_state_names_what_needs_attention_before_what_is_under_way() {
        let failing = Observed {
            available: 1,
            failing: named(["a (Error)"]),
            ..under_way()
        };
        let stopped = Observed {
            auto_paused: true,
            stopped_for: failed(&["a"]),
            ..failing.clone()
        };
        let down = |observed: Observed| Observed {
            available: 0,
            ..observed
        };
        let done = next_of(&none(), &complete(3), strategy(), "new", 1);
        for (observed, current, expected) in [
            (&stopped, "old", AUTO_PAUSED),
            (&failing, "old", DEGRADED),
            // The pods of a first roll-out are only about to start.
            (&down(under_way()), "old", "Rolling 33%"),
            (&down(complete(3)), "new", "Unavailable"),
        ] {
            let status = next_of(&done, observed, strategy(), current, 2);
            assert_eq!(state(&status), expected, "{observed:?}");
        }
    }

    #[test]
    fn the_state_does_not_repeat_what_can_no_longer_be_observed() {
        let before = next_of(&none(), &under_way(), strategy(), "old", 1);
        assert_eq!(state(&before), "Rolling 33%");
        let why = "spec.image: Required value: image is required";
        let invalid = rejected(&before, Some(3), why, at(2));
        assert_eq!(state(&invalid), "Invalid");
        let conflict = not_stored_of(&before, REVISION_CONFLICT);
        assert_eq!(state(&conflict), DEGRADED);
        let waits = waiting(&before, Some(3), "new", at(2));
        assert_eq!(state(&waits), WAITING_FOR_DELETION);
        // Whether pods fail is not looked at while others move them, so it stays as it was.
        let moves = migrating(&conflict, Some(3), "there", at(2));
        assert_eq!(state(&moves), MIGRATING);
        let degraded = |status: &MyDaemonSetStatus| {
            condition::get(&status.conditions, DEGRADED).map(|c: &Condition| c.status.clone())
        };
        assert_eq!(degraded(&moves), degraded(&conflict));
        // An invalid spec does not hide behind what was known before it.
        let stopped = Observed {
            auto_paused: true,
            ..under_way()
        };
        let stopped = next_of(&none(), &stopped, strategy(), "old", 1);
        let invalid = rejected(&stopped, Some(3), why, at(2));
        assert_eq!(state(&invalid), "Invalid");
    }

    #[test]
    fn a_failing_pod_after_the_end_does_not_restart_the_roll_out() {
        let done = next_of(&none(), &complete(3), strategy(), "new", 1);
        let ailing = Observed {
            available: 2,
            complete: false,
            failing: named(["a (Error)"]),
            ..complete(3)
        };
        let status = next_of(&done, &ailing, strategy(), "new", 2);
        assert_eq!(
            conditions(&status),
            [
                "Accepted=True/Valid",
                "Available=True/EnoughNodesAvailable",
                "Degraded=True/PodsFail",
                "Progressing=False/Complete"
            ]
        );
        // At the beginning it does not end it.
        let begun = next_of(&none(), &under_way(), strategy(), "new", 1);
        let status = next_of(&begun, &ailing, strategy(), "new", 2);
        assert!(conditions(&status).contains(&"Progressing=True/RollingOut".to_owned()));
    }

    #[test]
    fn excluded_nodes_are_counted_by_reason_and_cause_one_event() {
        let old = MyDaemonSetStatus {
            update_revision: Some("old".into()),
            current_revision: Some("old".into()),
            ..none()
        };
        let observed = |node_selector, taint| Observed {
            outdated: 2 + node_selector + taint,
            excluded: Excluded {
                node_selector,
                node_affinity: 0,
                taint,
            },
            ..under_way()
        };
        let message = |status: &MyDaemonSetStatus| {
            let progressing = condition::get(&status.conditions, PROGRESSING);
            progressing.unwrap().message.clone()
        };
        let events = |before: &MyDaemonSetStatus, after: &MyDaemonSetStatus| {
            let events = events(before, after).into_iter();
            let events = events.filter(|event| event.reason == "NodesExcluded");
            events.map(|events| events.note).collect::<Vec<_>>()
        };
        let text = "revision new excludes 12 nodes, which lose their pods (nodeSelector does not match: 10, NoExecute taint not tolerated: 2)";
        let begun = next_of(&old, &observed(10, 2), strategy(), "old", 1);
        assert_eq!(
            message(&begun),
            format!("1 of 3 nodes have revision new; {text}")
        );
        assert_eq!(events(&old, &begun), [text]);
        let later = next_of(&begun, &observed(1, 0), strategy(), "old", 2);
        assert!(message(&later).ends_with(
            "; revision new excludes 1 node, which loses its pod (nodeSelector does not match: 1)"
        ));
        assert_eq!(events(&begun, &later), [""; 0]);
        let paused = Strategy {
            paused: true,
            ..strategy()
        };
        let held = Observed {
            held: 14,
            ..observed(10, 2)
        };
        let held = next_of(&old, &held, paused, "old", 1);
        assert!(conditions(&held).contains(&"Progressing=False/Paused".to_owned()));
        assert_eq!(
            message(&held),
            format!(
                "2 nodes wait for revision new; {text}: spec.updateStrategy.rollingUpdate.paused is true"
            )
        );
        assert_eq!(events(&old, &held), [text]);
        assert_eq!(events(&held, &begun), [""; 0]);
    }

    fn progressing(status: &MyDaemonSetStatus) -> &str {
        let progressing = condition::get(&status.conditions, PROGRESSING);
        progressing.unwrap().message.as_str()
    }

    #[test]
    fn nodes_that_are_not_waited_for_are_named() {
        let begun = Observed {
            left_out: named(["a (NotReady)"]),
            ..under_way()
        };
        assert_eq!(
            progressing(&next_of(&none(), &begun, strategy(), "old", 1)),
            "1 of 3 nodes have revision new; not waiting for a (NotReady)"
        );
    }

    #[test]
    fn the_end_of_a_roll_out_names_the_nodes_without_it_behind_the_cause() {
        let before = next_of(&none(), &under_way(), strategy(), "old", 1);
        let seven = ["a", "b", "c", "d", "e", "f", "g"];
        for (nodes, unreached, message) in [
            (3, by_cause([]), "revision new is available on all 3 nodes"),
            (
                1,
                by_cause([]),
                "revision new is available on its only node",
            ),
            (0, by_cause([]), "no node is eligible for revision new"),
            (
                13,
                by_cause([("node-5", "NotReady")]),
                "revision new is available on 13 of 14 nodes; NotReady: node-5",
            ),
            (
                0,
                by_cause([("a", "NotReady")]),
                "revision new is available on 0 of 1 nodes; NotReady: a",
            ),
            (
                2,
                by_cause([("a", "NotReady"), ("b", "cordoned"), ("c", "NotReady")]),
                "revision new is available on 2 of 5 nodes; NotReady: a, c; cordoned: b",
            ),
            (
                1,
                by_cause(seven.map(|name| (name, "cordoned"))),
                "revision new is available on 1 of 8 nodes; cordoned: a, b, c, d, e; and 2 more",
            ),
        ] {
            let observed = Observed {
                unreached,
                ..complete(nodes)
            };
            let status = next_of(&before, &observed, strategy(), "new", 2);
            assert_eq!((state(&status), progressing(&status)), (COMPLETE, message));
            let events = events(&before, &status);
            assert_eq!(events[0].reason, "RolloutComplete");
            assert_eq!(events[0].note, message);
        }
    }

    #[test]
    fn cordoned_nodes_that_keep_an_older_revision_are_named() {
        let held = Observed {
            held: 2,
            unreached: by_cause([("a", "cordoned"), ("b", "cordoned")]),
            ..under_way()
        };
        let status = next_of(&none(), &held, strategy(), "old", 1);
        assert_eq!(
            (state(&status), progressing(&status)),
            (
                CORDONED,
                "revision new is available on 1 of 3 nodes; cordoned: a, b"
            )
        );
    }

    #[test]
    fn nodes_in_maintenance_that_keep_an_older_revision_are_named() {
        let said = |unreached: ByCause| {
            let held = Observed {
                held: 2,
                unreached,
                ..under_way()
            };
            let status = next_of(&none(), &held, strategy(), "old", 1);
            let reason = super::paused(&status);
            assert_eq!(reason, Some(state(&status)));
            (reason, progressing(&status).to_owned())
        };
        assert_eq!(
            said(by_cause([("a", "maintenance"), ("b", "maintenance")])),
            (
                Some(MAINTENANCE),
                "revision new is available on 1 of 3 nodes; maintenance: a, b".to_owned()
            )
        );
        assert_eq!(
            said(by_cause([("a", "maintenance"), ("b", "cordoned")])),
            (
                Some(CORDONED),
                "revision new is available on 1 of 3 nodes; cordoned: b; maintenance: a".to_owned()
            )
        );
    }

    #[test]
    fn a_roll_out_whose_status_was_never_stored_is_not_complete() {
        let made = Observed {
            available: 0,
            ready: 0,
            complete: false,
            waiting: named(["a"]),
            ..complete(3)
        };
        let of_another = MyDaemonSetStatus {
            update_revision: Some("old".into()),
            ..next_of(&none(), &complete(3), strategy(), "new", 1)
        };
        let refused = not_stored_of(&none(), REVISION_REFUSED);
        for previous in [none(), of_another, refused] {
            let status = next_of(&previous, &made, strategy(), "new", 2);
            let found = conditions(&status);
            assert!(
                found.contains(&"Progressing=True/RollingOut".to_owned()),
                "{found:?}"
            );
        }
    }

    #[test]
    fn the_first_failing_nodes_are_named() {
        let observed = Observed {
            available: 1,
            failing: Named::new([1, 2, 3, 4, 5, 6, 7].iter(), |n| format!("n{n} (Error)")),
            ..under_way()
        };
        let status = next_of(&none(), &observed, strategy(), "old", 1);
        let degraded = condition::get(&status.conditions, DEGRADED).unwrap();
        assert_eq!(
            degraded.message,
            "pods fail on n1 (Error), n2 (Error), n3 (Error), n4 (Error), n5 (Error) and 2 more"
        );
        let available = condition::get(&status.conditions, AVAILABLE).unwrap();
        assert_eq!(available.status, "False");
    }

    #[test]
    fn the_nodes_that_stopped_a_roll_out_stay_named() {
        let mut observed = Observed {
            auto_paused: true,
            stopped_for: failed(&["a"]),
            ..under_way()
        };
        let stopped = next_of(&none(), &observed, strategy(), "old", 1);
        let message = |s: &MyDaemonSetStatus| {
            let progressing = condition::get(&s.conditions, PROGRESSING);
            progressing.unwrap().message.clone()
        };
        assert!(message(&stopped).starts_with("revision new failed on a (Error): "));
        assert_eq!(stopped.failed_nodes, observed.stopped_for);
        observed.failed = 0;
        let later = next_of(&stopped, &observed, strategy(), "old", 2);
        assert_eq!(message(&later), message(&stopped));
    }

    #[test]
    fn a_refused_object_says_why_and_keeps_the_rest() {
        let before = next_of(&none(), &under_way(), strategy(), "old", 1);
        let why = "[spec.image: Required value: image is required, spec.x: Forbidden: no]";
        let status = rejected(&before, Some(3), why, at(2));
        let accepted = condition::get(&status.conditions, ACCEPTED).unwrap();
        assert_eq!(
            (accepted.status.as_str(), accepted.reason.as_str()),
            ("False", "Invalid")
        );
        assert_eq!(accepted.message, why);
        assert_eq!(status.number_available, before.number_available);
        assert!(condition::get(&status.conditions, RECONCILING).is_none());
        assert_eq!(events(&before, &status).len(), 1);
        assert_eq!(rejected(&status, Some(3), why, at(9)), status);
        // And out of it again.
        let healed = next_of(&status, &complete(3), strategy(), "new", 3);
        assert!(condition::get(&healed.conditions, STALLED).is_none());
    }

    #[test]
    fn a_revision_that_cannot_be_stored_is_reported() {
        let before = next_of(&none(), &complete(3), strategy(), "new", 1);
        for (reason, progress, for_tools) in [
            (REVISION_CONFLICT, "False/RevisionConflict", "Stalled"),
            (REVISION_REFUSED, "False/RevisionRefused", "Stalled"),
            (FAILED_CREATE, "True/RollingOut", "Reconciling"),
        ] {
            let status = not_stored_of(&before, reason);
            let found = conditions(&status);
            assert!(found.contains(&format!("Degraded=True/{reason}")));
            assert!(found.contains(&format!("Progressing={progress}")));
            assert!(condition::get(&status.conditions, for_tools).is_some());
            let revisions = (&status.current_revision, &status.update_revision);
            assert_eq!(
                revisions,
                (&before.current_revision, &before.update_revision)
            );
            let events: Vec<_> = events(&before, &status).iter().map(|e| e.reason).collect();
            assert_eq!(events, [reason]);
        }
    }

    #[test]
    fn the_revisions_of_the_last_two_completed_roll_outs_are_kept() {
        let mut status = none();
        for (update, complete, reached, expected) in [
            ("typo", false, 1, &[][..]),
            ("one", true, 3, &["one"]),
            ("one", false, 2, &["one"]),
            ("bad", false, 1, &["one"]),
            ("two", true, 3, &["two", "one"]),
            // Its node selector matches no node.
            ("nowhere", true, 0, &["two", "one"]),
            ("three", true, 1, &["three", "two"]),
            ("two", true, 3, &["two", "three"]),
        ] {
            let observed = Observed {
                reached,
                complete,
                ..under_way()
            };
            status = next(&StatusInput {
                previous: &status,
                generation: Some(2),
                observed: &observed,
                strategy: strategy(),
                update,
                undo: Undo::No,
                frozen: None,
                current: update,
                stored: true,
                refusal: None,
                now: at(1),
            });
            assert_eq!(status.complete_revisions, expected, "{update}");
        }
    }

    #[test]
    fn each_step_of_a_roll_out_causes_one_event() {
        let old = MyDaemonSetStatus {
            update_revision: Some("old".into()),
            current_revision: Some("old".into()),
            ..none()
        };
        let reasons = |before: &MyDaemonSetStatus, after: &MyDaemonSetStatus| -> Vec<_> {
            events(before, after).iter().map(|n| n.reason).collect()
        };
        let begun = next_of(&old, &under_way(), strategy(), "old", 1);
        assert_eq!(reasons(&old, &begun), ["RolloutStarted"]);
        let failing = Observed {
            failing: named(["a (Error)"]),
            auto_paused: true,
            stopped_for: failed(&["a"]),
            ..under_way()
        };
        let stopped = next_of(&begun, &failing, strategy(), "old", 2);
        assert_eq!(reasons(&begun, &stopped), ["AutoPaused", "PodsFail"]);
        let done = next_of(&stopped, &complete(3), strategy(), "new", 3);
        assert_eq!(reasons(&stopped, &done), ["RolloutComplete"]);
        assert_eq!(reasons(&none(), &done), Vec::<&str>::new());
        let refusal = Refusal {
            node: None,
            reason: "PodRefused",
            message: "exceeded quota".into(),
        };
        let refused = next(&StatusInput {
            previous: &done,
            generation: Some(2),
            observed: &complete(3),
            strategy: strategy(),
            update: "new",
            undo: Undo::No,
            frozen: None,
            current: "new",
            stored: true,
            refusal: Some(&refusal),
            now: at(4),
        });
        assert_eq!(reasons(&done, &refused), ["PodRefused"]);
        let degraded = condition::get(&refused.conditions, DEGRADED).unwrap();
        assert_eq!(degraded.message, "exceeded quota");
    }

    /// The status on the way back from revision `new` to `old`.
    fn next_back(
        previous: &MyDaemonSetStatus,
        observed: &Observed,
        undo: Undo<'_>,
    ) -> MyDaemonSetStatus {
        next(&StatusInput {
            previous,
            generation: Some(2),
            observed,
            strategy: strategy(),
            update: "new",
            undo,
            frozen: None,
            current: "old",
            stored: true,
            refusal: None,
            now: at(2),
        })
    }

    #[test]
    fn the_way_back_differs_from_a_roll_out_of_the_spec() {
        let old = MyDaemonSetStatus {
            update_revision: Some("new".into()),
            current_revision: Some("old".into()),
            complete_revisions: vec!["old".into()],
            ..none()
        };
        let failing = Observed {
            auto_paused: true,
            stopped_for: failed(&["a"]),
            ..under_way()
        };
        let reasons = |before: &MyDaemonSetStatus, after: &MyDaemonSetStatus| -> Vec<_> {
            events(before, after).iter().map(|n| n.reason).collect()
        };
        // It stops, and will go back.
        let begun = next_back(&old, &failing, Undo::IfItFails("old"));
        assert_eq!(state(&begun), ROLLING_BACK);
        assert_eq!(
            progressing(&begun),
            "revision new failed on a (Error): the pods go back to revision old"
        );
        assert_eq!(begun.failed_revisions, ["new"]);
        assert_eq!(reasons(&old, &begun), [ROLLING_BACK]);
        // It goes back. The spec's revision is still the one that failed.
        let going = Observed {
            undone: 1,
            ..under_way()
        };
        let under_way = next_back(&begun, &going, Undo::To("old"));
        assert_eq!(
            progressing(&under_way),
            "revision new failed on a (Error): the pods go back to revision old; 1 of 3 nodes have revision old"
        );
        assert_eq!(under_way.update_revision.as_deref(), Some("new"));
        assert_eq!(under_way.updated_number_scheduled, Some(1));
        assert!(is_rolling(&under_way) && is_undone(&under_way, "new"));
        assert_eq!(reasons(&begun, &under_way), [""; 0]);
        // It is there.
        let done = next_back(&under_way, &complete(3), Undo::To("old"));
        assert_eq!(
            (state(&done), paused(&done)),
            (ROLLED_BACK, Some(ROLLED_BACK))
        );
        assert!(progressing(&done).starts_with(
            "revision new failed on a (Error), and the pods went back: revision old is available on all 3 nodes; revision new is not tried again "
        ));
        assert_eq!(done.updated_number_scheduled, Some(0));
        assert_eq!(done.failed_nodes, failed(&["a"]));
        assert_eq!(done.complete_revisions, ["old"]);
        assert!(conditions(&done).contains(&"Stalled=True/RolledBack".to_owned()));
        assert_eq!(reasons(&under_way, &done), [ROLLED_BACK]);
        // A pod that fails or is lost after that, or a node that joins, does not begin it again; another spec ends it.
        for updated in [3, 2] {
            let ailing = Observed {
                complete: false,
                available: 2,
                updated,
                ..complete(3)
            };
            let later = next_back(&done, &ailing, Undo::To("old"));
            assert_eq!(state(&later), ROLLED_BACK);
            assert_eq!(reasons(&done, &later), [""; 0]);
        }
        assert_eq!(
            state(&next_back(&done, &going, Undo::To("old"))),
            ROLLING_BACK
        );
        assert!(was_stopped(&done, "new", "new"), "the way back is lost");
        assert!(!was_stopped(&done, "new", "old") && !was_stopped(&done, "old", "old"));
        let other = next_of(&done, &complete(3), strategy(), "new", 3);
        assert_eq!(
            (other.failed_revisions.len(), other.failed_nodes.len()),
            (0, 0)
        );
    }

    #[test]
    fn a_revision_without_a_node_is_reported() {
        let held = Observed {
            outdated: 4,
            held: 4,
            updated: 0,
            excluded: Excluded {
                node_selector: 4,
                ..Excluded::default()
            },
            no_node: true,
            ..under_way()
        };
        let status = next_of(&none(), &held, strategy(), "old", 1);
        assert_eq!(state(&status), NO_ELIGIBLE_NODES);
        let text = "no node is eligible for revision new (nodeSelector does not match: 4): the pods on 4 nodes stay until ";
        assert!(progressing(&status).starts_with(text));
        assert!(conditions(&status).contains(&"Stalled=True/NoEligibleNodes".to_owned()));
        assert_eq!(super::paused(&status), Some(NO_ELIGIBLE_NODES));
        assert_eq!(resumable(&status, "new"), Some("new"));
        assert_eq!(resumable(&status, "newer"), None);
        let events: Vec<_> = events(&none(), &status).iter().map(|e| e.reason).collect();
        assert_eq!(events, [NO_ELIGIBLE_NODES]);
        // On the way back it is the other revision that takes every pod away, and that a user resumes.
        let failed = MyDaemonSetStatus {
            update_revision: Some("new".into()),
            failed_revisions: vec!["new".into()],
            complete_revisions: vec!["old".into()],
            ..none()
        };
        let back = next_back(&failed, &held, Undo::To("old"));
        assert_eq!(state(&back), NO_ELIGIBLE_NODES);
        let text = "no node is eligible for revision old (nodeSelector does not match: 4): the pods on 4 nodes stay until the spec changes or ";
        assert!(progressing(&back).starts_with(text));
        assert_eq!(resumable(&back, "new"), Some("old"));
        let rolling = next_back(&failed, &under_way(), Undo::To("old"));
        assert_eq!(resumable(&rolling, "new"), Some("new"));
    }

    #[test]
    fn a_freeze_is_acknowledged_when_nothing_can_come_late() {
        let frozen = |previous: &MyDaemonSetStatus, own: Option<&str>, is_settled| {
            next(&StatusInput {
                previous,
                generation: Some(2),
                observed: &Observed {
                    held: 2,
                    ..under_way()
                },
                strategy: strategy(),
                update: "new",
                undo: Undo::No,
                frozen: Some(Frozen {
                    freeze: Freeze::Deletions,
                    own,
                    of_namespace: None,
                    is_settled,
                }),
                current: "old",
                stored: true,
                refusal: None,
                now: at(2),
            })
        };
        let rolling = next_of(&none(), &under_way(), strategy(), "old", 1);
        let by_me = Some("by me");
        let waits = frozen(&rolling, by_me, false);
        assert!(!is_frozen(&waits));
        assert!(conditions(&waits).contains(&"Frozen=False/Waiting".to_owned()));
        let so = frozen(&waits, by_me, true);
        assert_eq!(acknowledged(&so), Some(Freeze::Deletions));
        assert_eq!((state(&so), super::paused(&so)), (FROZEN, Some(FROZEN)));
        let message = condition::get(&so.conditions, FROZEN).unwrap();
        assert_eq!(
            message.message,
            "no pod that runs is deleted while the annotation apps.zhongmingmao.io/freeze is there: by me"
        );
        let events: Vec<_> = events(&waits, &so).iter().map(|e| e.reason).collect();
        assert_eq!(events, [FROZEN]);
        // As after a thaw, a deletion whose answer is lost, and the same freeze again before the status was written.
        assert!(!is_frozen(&frozen(&so, by_me, false)));
        let thawed = next_of(&so, &under_way(), strategy(), "old", 3);
        // Where the annotation is not looked at, nothing is said of it.
        let unseen = [
            rejected(&so, Some(3), "no image", at(3)),
            waiting(&so, Some(3), "new", at(3)),
            migrating(&so, Some(3), "there", at(3)),
        ];
        for status in unseen.iter().chain([&thawed]) {
            assert!(condition::get(&status.conditions, FROZEN).is_none());
            assert_eq!(status.freeze, None);
        }
        // After a restart, until namespaces are listed.
        let unsure = frozen(&rolling, None, false);
        let shown = conditions(&unsure);
        assert!(shown.contains(&"Frozen=False/Waiting".to_owned()));
        assert!(shown.contains(&"Progressing=True/RollingOut".to_owned()));
    }

    #[test]
    fn the_status_has_the_annotations_that_freeze() {
        for (own, of_namespace) in [
            (Some("all"), None),
            (Some("1"), Some("all")),
            (None, Some("all: x")),
        ] {
            let frozen = Frozen {
                freeze: Freeze::All,
                own,
                of_namespace,
                is_settled: true,
            };
            let status = next(&StatusInput {
                previous: &none(),
                generation: Some(2),
                observed: &under_way(),
                strategy: strategy(),
                update: "new",
                undo: Undo::No,
                frozen: Some(frozen),
                current: "old",
                stored: true,
                refusal: None,
                now: at(1),
            });
            let values = [&status.freeze, &status.namespace_freeze].map(Option::as_deref);
            assert_eq!(values, [own, of_namespace]);
            assert_eq!(acknowledged(&status), Some(Freeze::All));
        }
    }

    #[test]
    fn a_way_back_that_fails_as_well_is_a_stop() {
        let begun = MyDaemonSetStatus {
            update_revision: Some("new".into()),
            failed_revisions: vec!["new".into()],
            failed_nodes: failed(&["a"]),
            ..none()
        };
        let failing = Observed {
            auto_paused: true,
            stopped_for: failed(&["b"]),
            ..under_way()
        };
        let stopped = next_back(&begun, &failing, Undo::To("old"));
        assert_eq!(state(&stopped), AUTO_PAUSED);
        assert!(progressing(&stopped).starts_with(
            "revision new failed, and so does the way back: revision old failed on b (Error): the roll-out is stopped"
        ));
        assert_eq!(stopped.failed_revisions, ["new", "old"]);
        let times = [&none(), &begun, &stopped].map(|status| times_stopped(status, "new"));
        assert_eq!(times, [0, 1, 2]);
        assert!(was_stopped(&stopped, "new", "old"));
        assert_eq!(next_back(&stopped, &failing, Undo::To("old")), stopped);
        // A user resumes it.
        let resumed = next_back(&stopped, &under_way(), Undo::To("old"));
        assert_eq!(resumed.failed_revisions, ["new"]);
        assert!(progressing(&resumed).starts_with("revision new failed: the pods go back"));
    }

    #[test]
    fn a_return_to_the_current_revision_has_an_event_at_its_end() {
        let bad = next_of(&none(), &under_way(), strategy(), "old", 10);
        let back = MyDaemonSetStatus {
            current_revision: Some("new".into()),
            update_revision: Some("new".into()),
            ..bad
        };
        let done = next_of(&back, &complete(3), strategy(), "new", 20);
        assert_eq!(events(&back, &done), []);
        let returned = |since| returned(&back, &done, at(since)).map(|event| event.reason);
        assert_eq!(returned(15), Some("RolloutComplete"));
        assert_eq!(returned(10), Some("RolloutComplete"));
        assert_eq!(returned(9), None, "a node joined");
        assert_eq!(super::returned(&done, &done, at(15)), None);
    }

    #[test]
    fn a_malformed_status_is_treated_as_empty() {
        for raw in ["null", "7", r#"{"conditions": 5}"#, "{}"] {
            assert_eq!(read(&serde_json::from_str(raw).unwrap()), none(), "{raw}");
        }
    }
}
