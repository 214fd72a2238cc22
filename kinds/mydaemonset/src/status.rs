//! The status: counts and conditions from what is observed, and the Events for a change of it.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};

use super::cause::Cause;
use super::crd::{FailedNode, MyDaemonSetStatus};
use super::decide::freeze::{self, Freeze};
use super::decide::observed::{self, Named, Observed, OnCanary};
use super::decide::strategy::Strategy;
use super::decide::undo::{self, Undo};
use super::names::{FREEZE_ANNOTATION, MIGRATION_ANNOTATION};
use wall_clock_controller::reconcile::condition::{self, ACCEPTED, Condition, State};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};
use wall_clock_controller::reconcile::raw::Raw;

mod causes;

pub use causes::cause_of_refusal;
pub(crate) use causes::causes;

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
    /// Until a user changes the image or template, or resumes it.
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

/// Those for which it stands until a user changes the image or template, or resumes it.
fn stops() -> impl Iterator<Item = &'static str> {
    let all = STANDS.into_iter();
    let stops = all.filter(|(_, stand, _)| *stand == Stand::Stopped);
    stops.map(|(reason, ..)| reason)
}

/// Whether that is such a reason.
pub(crate) fn is_stop(reason: &str) -> bool {
    stops().any(|stop| stop == reason)
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
/// Reason of `Degraded=True`: none of these, but pods fail.
const PODS_FAIL: &str = "PodsFail";
/// All of them. Each is also the reason of an Event.
const FAILURES: [&str; 12] = [
    PODS_FAIL,
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
        self.undo.back().unwrap_or(self.update)
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

/// The reason of `Progressing`; empty if there is none.
pub fn progress_of(status: &MyDaemonSetStatus) -> &str {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    progressing.map_or("", |c| c.reason.as_str())
}

/// Whether the operator has stood aside, and not looked at the pods since.
pub fn is_migrating(status: &MyDaemonSetStatus) -> bool {
    progress_of(status) == MIGRATING
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
    if !is_on_canaries(&status) {
        status.canary_nodes.clear();
    }
    if observed.is_none() {
        status.waiting.clear();
        status.domain = None;
        (status.freeze, status.namespace_freeze) = (None, None);
    }
    status.state = Some(summary(&status, observed));
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
        updated_number_scheduled: Some(count(match input.undo.back() {
            Some(_) => observed.undone,
            None => observed.updated,
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
pub(crate) fn acknowledged(status: &MyDaemonSetStatus) -> Option<Freeze> {
    let of_namespace = status.namespace_freeze.as_deref();
    let known = freeze::of_both(status.freeze.as_deref(), of_namespace);
    known.filter(|_| is_frozen(status))
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
    if input.undo.back().is_some() {
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
fn summary(status: &MyDaemonSetStatus, observed: Option<&Observed>) -> String {
    let is = |type_, is| {
        condition::get(&status.conditions, type_).is_some_and(|c: &Condition| c.status == is)
    };
    let reason = progress_of(status);
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
    if let Some(target) = input.undo.back() {
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
    // The nodes may recover once it is stopped: the first message stays.
    let previous = input.previous;
    let is_known = previous.failed_nodes == observed.stopped_for
        && progress_of(previous) == AUTO_PAUSED
        && was_stopped(previous, input.update, input.target());
    let known = before.filter(|_| is_known);
    let message = known.map_or_else(|| auto_paused(input), |before| before.message.clone());
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
        "{failed}, and the pods went back: {reached}; revision {} is not tried again until the image or template changes (kubectl mydaemonset undo) or it is resumed (kubectl mydaemonset resume)",
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
    } else if observed.gate.is_closed {
        return Some(outside_window(input));
    } else if input.is_frozen().is_none() {
        // What was said before holds, but that a window was closed: one is open.
        let (reason, ..) = was_held.filter(|(reason, ..)| *reason != OUTSIDE_WINDOW)?;
        return Some(State::of(false, reason, before?.message.clone()));
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
fn outside_window(input: &StatusInput<'_>) -> State {
    let waiting = waiting_for(input.observed, input.target());
    let opens = match input.observed.gate.until {
        Some(at) => {
            let at = at.to_rfc3339_opts(SecondsFormat::Secs, true);
            format!("the next opens at {at}")
        }
        None => "none opens within five years".to_owned(),
    };
    let text = format!("{waiting}: no window is open; {opens}");
    State::of(true, OUTSIDE_WINDOW, text)
}

/// How many nodes wait for the revision, and how many lose their pod to it.
fn waiting_for(observed: &Observed, update: &str) -> String {
    let excluded = excluded(observed, update);
    let waiting = match observed.outdated.saturating_sub(observed.excluded_nodes()) {
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
    let nodes = match observed.excluded_nodes() {
        0 => return None,
        1 => "1 node, which loses its pod".to_owned(),
        more => format!("{more} nodes, which lose their pods"),
    };
    let reasons = obstacles(observed);
    Some(format!("{} {nodes} ({reasons})", excludes(update)))
}

/// That the newest revision would take every pod away, and why.
fn no_node(input: &StatusInput<'_>) -> String {
    let (observed, target) = (input.observed, input.target());
    let nodes = match observed.excluded_nodes() {
        1 => "the pod on 1 node stays".to_owned(),
        more => format!("the pods on {more} nodes stay"),
    };
    let reasons = obstacles(observed);
    let change = match input.undo.back() {
        // An undo leads to the same revision.
        Some(_) => "the template changes",
        None => "the template changes (kubectl mydaemonset undo)",
    };
    format!(
        "no node is eligible for revision {target} ({reasons}): {nodes} until {change} or the roll-out is resumed (kubectl mydaemonset resume), which deletes them"
    )
}

/// Why nodes are excluded, and how many for each reason.
fn obstacles(observed: &Observed) -> String {
    let reasons = observed.excluded.iter();
    let reasons = reasons.map(|(obstacle, nodes)| format!("{}: {nodes}", obstacle.text()));
    reasons.collect::<Vec<_>>().join(", ")
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

/// Which nodes stopped the roll-out.
fn auto_paused(input: &StatusInput<'_>) -> String {
    let failed = failed(&input.observed.stopped_for, input.target());
    let first = match input.undo.back() {
        Some(_) => format!(
            "revision {} failed, and so does the way back: ",
            input.update
        ),
        None => String::new(),
    };
    format!(
        "{first}{failed}: the roll-out is stopped until the image or template changes (kubectl mydaemonset undo) or it is resumed (kubectl mydaemonset resume)"
    )
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
    State::of(true, PODS_FAIL, message)
}

/// Whether the roll-out of that revision was stopped because of failing nodes.
pub fn is_auto_paused(status: &MyDaemonSetStatus, update: &str) -> bool {
    status.update_revision.as_deref() == Some(update) && progress_of(status) == AUTO_PAUSED
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
    let reason = progress_of(status);
    if is_undone(status, update) {
        return if reason == NO_ELIGIBLE_NODES {
            undo::target(&status.complete_revisions, update)
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
pub fn needs_no_canary(status: &MyDaemonSetStatus, update: &str) -> bool {
    has_passed_canary(status, update) || was_completed(status, update)
}

/// Whether the roll-out of that revision was completed not long ago. It has been on all nodes, and an undo must not wait.
pub(crate) fn was_completed(status: &MyDaemonSetStatus, update: &str) -> bool {
    let mut complete = status.complete_revisions.iter();
    complete.any(|hash| hash == update)
}

/// Whether the newest revision has not gone beyond its canaries.
pub fn is_on_canaries(status: &MyDaemonSetStatus) -> bool {
    [CANARY, WAITING_FOR_APPROVAL].contains(&progress_of(status))
}

/// Whether a roll-out is under way.
pub(crate) fn is_rolling(status: &MyDaemonSetStatus) -> bool {
    [ROLLING_OUT, ROLLING_BACK].contains(&progress_of(status))
}

/// Why the roll-out stands, if it does: one of [`stands`].
pub(crate) fn paused(status: &MyDaemonSetStatus) -> Option<&'static str> {
    stands().find(|reason| *reason == progress_of(status))
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

/// The Events for a change of the status: one for each step that users would look for. `again` is when the newest revision
/// became the newest again, if it was before.
pub(crate) fn events(
    before: &MyDaemonSetStatus,
    after: &MyDaemonSetStatus,
    again: Option<DateTime<Utc>>,
) -> Vec<NewEvent> {
    let change = Change { before, after };
    let events = [
        change.condition((ACCEPTED, "False"), [INVALID], |reason, note| NewEvent {
            action: "Validate",
            ..warning(reason, note)
        }),
        change.rollout_started(),
        change.nodes_excluded(),
        change.canary_passed(),
        change.condition((PROGRESSING, "False"), [WAITING_FOR_APPROVAL], normal),
        change.condition((PROGRESSING, "True"), [ROLLING_BACK], warning),
        change.condition((PROGRESSING, "False"), stops(), warning),
        change.rollout_complete(again),
        change.condition((DEGRADED, "True"), FAILURES, |reason, note| NewEvent {
            action: "RunPods",
            ..warning(reason, note)
        }),
        change.condition((FROZEN, "True"), [FROZEN], normal),
    ];
    events.into_iter().flatten().collect()
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

    /// The Event for a condition that is so now, for one of these reasons.
    fn condition(
        &self,
        (type_, status): (&str, &str),
        reasons: impl IntoIterator<Item = &'static str>,
        event: fn(&'static str, String) -> NewEvent,
    ) -> Option<NewEvent> {
        let condition = self.became(type_, status)?;
        let mut reasons = reasons.into_iter();
        let reason = reasons.find(|reason| *reason == condition.reason)?;
        Some(event(reason, condition.message.clone()))
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
        Some(warning("NodesExcluded", excluded.to_owned()))
    }

    fn canary_passed(&self) -> Option<NewEvent> {
        let passed = self.after.promoted_revision.as_deref()?;
        let is_known = has_passed_canary(self.before, passed);
        let note = format!("revision {passed} has passed its canary: the other nodes follow");
        (!is_known).then(|| normal("CanaryPassed", note))
    }

    fn rollout_complete(&self, again: Option<DateTime<Utc>>) -> Option<NewEvent> {
        let is_first = self.changed(|it| it.current_revision.as_deref()).is_some();
        let condition = condition::get(&self.after.conditions, PROGRESSING)?;
        let note = condition.message.clone();
        (is_first || self.has_returned(again)).then(|| normal("RolloutComplete", note))
    }

    /// Whether that is the end of a roll-out that leads back to the revision of the last completed one: `currentRevision`
    /// stays the same, and shows nothing. A roll-out that began after its revision came only makes pods on nodes that joined.
    fn has_returned(&self, again: Option<DateTime<Utc>>) -> bool {
        let condition = self.became(PROGRESSING, "False");
        let is_complete = condition.is_some_and(|c| c.reason == COMPLETE);
        let rolling = condition::get(&self.before.conditions, PROGRESSING);
        let rolling = rolling.filter(|c| c.reason == ROLLING_OUT);
        let began = rolling.map(|c| c.last_transition_time);
        // All pods may have it already, as where another one failed and was undone.
        let is_at_once = self.changed(|it| it.update_revision.as_deref()).is_some();
        let is_same = self.before.current_revision == self.after.current_revision;
        is_complete && is_same && (is_at_once || began.is_some() && again >= began)
    }
}

fn warning(reason: &'static str, note: String) -> NewEvent {
    NewEvent {
        severity: Severity::Warning,
        ..normal(reason, note)
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
pub(crate) mod tests;
