//! The decision: whether a new status is written, when, and which Events go with it.

use chrono::{DateTime, TimeDelta, Utc};

use super::crd::CountStatus;
use super::status::HEALTHY;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};

/// A change of the pods is written after this time, together with the changes in between.
const SETTLE: TimeDelta = TimeDelta::seconds(1);

/// What to do with a new status.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It is the stored one.
    Nothing,
    /// Wait until then, for changes that it can be written together with.
    WaitUntil(DateTime<Utc>),
    /// Write it, then publish these Events.
    Write(Vec<NewEvent>),
}

/// Decides what to do with the status `after`. The pods have differed from the stored status since
/// the instant `since`.
pub(crate) fn decide(
    before: &CountStatus,
    after: &CountStatus,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Decision {
    if before == after {
        return Decision::Nothing;
    }
    match waits_until(before, after, since, now) {
        Some(due) => Decision::WaitUntil(due),
        None => Decision::Write(events(before, after)),
    }
}

/// When a new status is to be written, if not now. A change of the Count itself shows at once; a
/// change of the pods since the instant `since` is debounced.
fn waits_until(
    before: &CountStatus,
    after: &CountStatus,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let is_pods = before.observed_generation == after.observed_generation
        && before.observed.is_some()
        && after.observed.is_some();
    let due = since + SETTLE;
    // A clock that was set back must not delay it.
    (is_pods && now < due && since <= now).then_some(due)
}

/// The Events for a change of the status. A new Count that is not healthy yet has not turned
/// unhealthy: its pods may come with it.
fn events(before: &CountStatus, after: &CountStatus) -> Vec<NewEvent> {
    let became = |type_, status: &str| {
        let is = |list| condition::get(list, type_).filter(|c| c.status == status);
        is(&after.conditions).filter(|_| is(&before.conditions).is_none())
    };
    let mut events = Vec::new();
    let mut publish = |severity, reason, action, note: &str| {
        events.push(NewEvent {
            severity,
            reason,
            action,
            note: note.to_owned(),
        });
    };
    if let Some(condition) = became(ACCEPTED, "False") {
        publish(Severity::Warning, "Invalid", "Validate", &condition.message);
    }
    let is_new = before.observed_generation != after.observed_generation;
    let is_accepted = after.observed.is_some();
    if is_accepted && (is_new || became(HEALTHY, "True").is_some()) {
        let note = "Count synced successfully";
        publish(Severity::Normal, "Synced", "Count", note);
    }
    let was_healthy = before.healthy == Some(true);
    if let Some(condition) = became(HEALTHY, "False")
        && is_accepted
        && was_healthy
    {
        publish(Severity::Warning, "Unhealthy", "Count", &condition.message);
    }
    events
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::count::status::tests::{at, healthy, of};
    use crate::count::status::{Assertion, observed, read, rejected};
    use admission_rules::faults::Fault;
    use wall_clock_controller::reconcile::raw::Raw;

    fn faulty(before: &CountStatus, generation: i64) -> CountStatus {
        let fault = Fault::invalid("spec.count", -1, "must be greater than or equal to 0");
        rejected(before, Some(generation), &[fault], at(0))
    }

    fn published(before: &CountStatus, after: &CountStatus) -> Vec<(&'static str, String)> {
        let events = events(before, after).into_iter();
        events.map(|event| (event.reason, event.note)).collect()
    }

    #[test]
    fn what_did_not_change_is_the_same_status() {
        let first = of(&CountStatus::default(), 1, 3, 3);
        let assertion = Assertion {
            name: "nginx".to_owned(),
            count: 3,
        };
        assert_eq!(observed(&first, Some(1), &assertion, 3, at(99_000)), first);
        assert!(published(&first, &first).is_empty());
        let stored = serde_json::to_string(&first).unwrap();
        let stored: Raw = serde_json::from_str(&stored).unwrap();
        assert_eq!(read(&stored), first);
    }

    #[test]
    fn a_spec_with_faults_is_neither_accepted_nor_healthy() {
        let before = of(&CountStatus::default(), 1, 3, 3);
        let status = faulty(&before, 2);
        assert_eq!(status.healthy, Some(false));
        assert_eq!(status.observed, None);
        let accepted = condition::get(&status.conditions, ACCEPTED).unwrap();
        assert_eq!(accepted.status, "False");
        assert_eq!(
            accepted.message,
            "spec.count: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(healthy(&status).1, "Invalid");
        let reasons: Vec<_> = published(&before, &status)
            .into_iter()
            .map(|n| n.0)
            .collect();
        assert_eq!(reasons, ["Invalid"]);
        assert!(published(&status, &faulty(&status, 2)).is_empty());
    }

    #[test]
    fn each_generation_and_each_change_causes_one_event() {
        let none = CountStatus::default();
        let synced = ("Synced", "Count synced successfully".to_owned());
        let few = (
            "Unhealthy",
            "2 of 3 ready pods labelled app=nginx".to_owned(),
        );
        // (before, after, the expected Events)
        let fresh = of(&none, 1, 3, 0);
        let partly = of(&fresh, 1, 3, 2);
        let whole = of(&partly, 1, 3, 3);
        let fewer = of(&whole, 1, 3, 2);
        let even_fewer = of(&fewer, 1, 3, 1);
        let more = of(&whole, 2, 2, 3);
        let surplus = "3 ready pods labelled app=nginx, 1 more than the 2 that should exist";
        let still = of(&fewer, 2, 4, 2);
        for (before, after, events) in [
            (&none, &fresh, vec![synced.clone()]),
            (&none, &of(&none, 1, 3, 3), vec![synced.clone()]),
            (&fresh, &partly, vec![]),
            (&partly, &whole, vec![synced.clone()]),
            (&whole, &fewer, vec![few]),
            (&fewer, &even_fewer, vec![]),
            (
                &whole,
                &more,
                vec![synced.clone(), ("Unhealthy", surplus.to_owned())],
            ),
            (&fewer, &still, vec![synced.clone()]),
            (
                &faulty(&none, 1),
                &of(&faulty(&none, 1), 2, 3, 3),
                vec![synced],
            ),
        ] {
            assert_eq!(published(before, after), events);
        }
    }

    #[test]
    fn a_change_of_pods_is_debounced_before_it_is_written() {
        let none = CountStatus::default();
        let (whole, fewer) = (of(&none, 1, 3, 3), of(&of(&none, 1, 3, 3), 1, 3, 2));
        let due = Some(at(1_000));
        assert_eq!(waits_until(&whole, &fewer, at(0), at(0)), due);
        assert_eq!(waits_until(&whole, &fewer, at(0), at(999)), due);
        assert_eq!(waits_until(&whole, &fewer, at(0), at(1_000)), None);
        // A clock that was set back.
        assert_eq!(waits_until(&whole, &fewer, at(0), at(-1)), None);
        // A change by the user.
        assert_eq!(waits_until(&none, &whole, at(0), at(0)), None);
        assert_eq!(
            waits_until(&whole, &of(&whole, 2, 3, 2), at(0), at(0)),
            None
        );
        assert_eq!(waits_until(&whole, &faulty(&whole, 1), at(0), at(0)), None);
        assert_eq!(waits_until(&faulty(&whole, 1), &whole, at(0), at(0)), None);
    }
}
