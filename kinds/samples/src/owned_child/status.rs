//! The status and the Events of a pass, as pure functions of what it observed and did.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Resource as _;

use super::parent::{Done, KindStatus, Observation, Owner, Parent, Report, StatusOf, Trouble};
use super::view::{ChildView, ParentView};
use admission_rules::faults::{self, Fault};
use my_operator_kind::pods::PodView;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED, State};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};

/// The child cannot be created or corrected, or is not healthy; reason and message say which.
const DEGRADED: &str = "Degraded";
/// Reason of [`DEGRADED`]: the child is being deleted.
const TERMINATING: &str = "Terminating";

/// Input of the next status.
pub(crate) struct Input<'a, P: Parent> {
    pub(crate) owner: &'a Owner<'a, P>,
    /// The name of the desired child.
    pub(crate) name: &'a str,
    /// The child, if the object controls it.
    pub(crate) child: Option<&'a ChildView>,
    pub(crate) pods: &'a [(Key, Arc<PodView>)],
    /// What was done with the child since the last status.
    pub(crate) done: Done,
    /// Why the child is not in the desired state.
    pub(crate) trouble: Option<Trouble>,
    /// Until when another client counts as one that reverts our writes.
    pub(crate) contested_until: Option<DateTime<Utc>>,
    /// Why a child of an earlier spec cannot be deleted.
    pub(crate) leftover: Option<Trouble>,
    pub(crate) now: DateTime<Utc>,
}

/// The next status, and what goes with it.
pub(crate) struct NextStatus<P: Parent> {
    pub(crate) status: StatusOf<P>,
    /// Published once the status is written.
    pub(crate) events: Vec<NewEvent>,
    /// When to reconcile again if nothing happens before.
    pub(crate) requeue_at: Option<DateTime<Utc>>,
}

/// The status of an object with a valid spec.
pub(crate) fn next<P: Parent>(input: Input<'_, P>) -> NextStatus<P> {
    let (owner, now) = (input.owner, input.now);
    let mut status = owner.status.clone();
    let (observed, conditions) = status.common_fields();
    *observed = owner.generation;
    State::of(true, "Valid", "the spec is valid").set(conditions, ACCEPTED, owner.generation, now);
    let obstacle = obstacle::<P>(input.name, input.trouble, input.contested_until.is_some());
    let report = P::report(
        &Observation {
            owner,
            child: input.child.filter(|child| !child.deleting),
            terminating: input.child.is_some_and(|child| child.deleting),
            done: input.done,
            trouble: obstacle.as_ref(),
            pods: input.pods,
            now,
        },
        &mut status,
    );
    let Report {
        events,
        trouble,
        requeue_at,
    } = report;
    let trouble = obstacle.or(trouble).or(input.leftover);
    let (_, conditions) = status.common_fields();
    degraded(trouble.as_ref()).set(conditions, DEGRADED, owner.generation, now);
    let warning = warning(trouble, owner.status, &status);
    let own = child_event::<P>(input.done, input.name);
    NextStatus {
        events: own.into_iter().chain(warning).chain(events).collect(),
        requeue_at: requeue_at.into_iter().chain(input.contested_until).min(),
        status,
    }
}

/// The status of an object with an invalid spec, and the Event about it.
pub(crate) fn rejected<P: Parent>(
    parent: &ParentView,
    before: &StatusOf<P>,
    faults: &[Fault],
    now: DateTime<Utc>,
) -> (StatusOf<P>, Option<NewEvent>) {
    let mut status = before.clone();
    P::rejected(&mut status);
    let (observed, conditions) = status.common_fields();
    *observed = parent.generation;
    let message = faults::join(faults);
    State::of(false, "Invalid", message.clone()).set(conditions, ACCEPTED, parent.generation, now);
    let event = changed_to(before, &status, ACCEPTED, "False").then_some(NewEvent {
        severity: Severity::Warning,
        reason: "Invalid",
        action: "Validate",
        note: message,
    });
    (status, event)
}

/// What is in the way of the desired state. A conflict loop is worth more attention than a child
/// that is being deleted.
fn obstacle<P: Parent>(
    name: &str,
    trouble: Option<Trouble>,
    is_contested: bool,
) -> Option<Trouble> {
    let is_minor = trouble.as_ref().is_none_or(|it| it.reason == TERMINATING);
    if is_contested && is_minor {
        Some(conflict_loop::<P>(name))
    } else {
        trouble
    }
}

fn degraded(trouble: Option<&Trouble>) -> State {
    match trouble {
        Some(trouble) => State::of(true, trouble.reason, trouble.message.as_str()),
        None => State::of(false, "AsDesired", "no problems"),
    }
}

/// The Event for a condition `Degraded` that has just become true, or has another reason. A child
/// that is being deleted does not deserve a warning.
fn warning<S: KindStatus>(trouble: Option<Trouble>, before: &S, after: &S) -> Option<NewEvent> {
    let warned = trouble.filter(|trouble| trouble.reason != TERMINATING);
    let warned = warned.filter(|_| changed_to(before, after, DEGRADED, "True"));
    warned.map(|trouble| NewEvent {
        severity: Severity::Warning,
        reason: trouble.reason,
        action: "Apply",
        note: trouble.message,
    })
}

/// Whether the condition has that status now, and had another status or reason before.
fn changed_to<S: KindStatus>(before: &S, after: &S, type_: &str, status: &str) -> bool {
    let state = |of: &S| {
        let mut of = of.clone();
        let (_, conditions) = of.common_fields();
        condition::get(conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let now = state(after);
    now.as_ref().is_some_and(|(is, _)| is == status) && state(before) != now
}

/// The Event for what was done with the child.
fn child_event<P: Parent>(done: Done, name: &str) -> Option<NewEvent> {
    let child = format!("{} {name}", P::Child::kind(&()));
    let (reason, note) = match done {
        Done::Nothing => return None,
        Done::Created => ("Created", format!("created {child}")),
        Done::Changed => ("Updated", format!("updated {child} to match the spec")),
        Done::Restored => (
            "Restored",
            format!("restored {child}, which another client had changed"),
        ),
    };
    Some(NewEvent {
        severity: Severity::Normal,
        reason,
        action: "Apply",
        note,
    })
}

/// The Event for the deletion of a child of an earlier spec.
pub(crate) fn deleted_event<P: Parent>(name: &str) -> NewEvent {
    let child = P::Child::kind(&());
    NewEvent {
        severity: Severity::Normal,
        reason: "Deleted",
        action: "Delete",
        note: format!("deleted {child} {name} of an earlier spec"),
    }
}

/// The API server rejects a write of the child, with this message.
pub(crate) fn refused(message: String) -> Trouble {
    Trouble {
        reason: "Refused",
        message,
    }
}

/// The API server rejects the deletion of a child of an earlier spec.
pub(crate) fn not_deleted<P: Parent>(name: &str, rejection: &str) -> Trouble {
    let child = P::Child::kind(&());
    refused(format!(
        "{child} {name:?}, which is of an earlier spec, cannot be deleted: {rejection}"
    ))
}

/// A foreign object has the child's name.
pub(crate) fn conflict<P: Parent>(name: &str) -> Trouble {
    Trouble {
        reason: P::CONFLICT,
        message: P::conflict(name),
    }
}

/// The child is being deleted, whether it is of this object or of an earlier one of its name.
pub(crate) fn terminating<P: Parent>(name: &str) -> Trouble {
    let child = P::Child::kind(&());
    Trouble {
        reason: TERMINATING,
        message: format!("{child} {name:?} is being deleted and will be created again"),
    }
}

/// Another client keeps changing the child back.
fn conflict_loop<P: Parent>(name: &str) -> Trouble {
    Trouble {
        reason: "Contested",
        message: format!(
            "{} {name:?} is changed again and again by other clients; it is corrected with increasing pauses",
            P::Child::kind(&())
        ),
    }
}
