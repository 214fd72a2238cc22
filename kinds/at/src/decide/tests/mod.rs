//! Tests beside the rows of the protocol, which `table` checks: conditions, Events, times, and rare cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use chrono::TimeDelta;

use super::decision::BLIND_INTERVAL;
use super::pending::is_current;
use super::start::{Start, is_too_late};
use super::trial::URGENT_BEFORE;
use super::*;
use crate::admission::{AtRules, Base};
use crate::conditions::{
    COMPLETE, DEADLINE_EXCEEDED, FAILED, FAILURE_TARGET, FINISHED, GATE_VIOLATED, NEVER_STARTED,
    POD_ACCEPTED, RECONCILING, STALLED, STARTED,
};
use crate::crd::{AtSpec, AtStatus, Ending};
use crate::observe::{Call, FailedCall};
use crate::pod::build;
use crate::pod::names::GATE;
use crate::pod::view::{Ended, PodPhase, PodView, Waiting};
use crate::sightings::{LastSeen, Released, START_RECORDED_WITHIN, Sightings};
use crate::trial::{MAX_PAUSE, Trial, Verdict};
use admission_rules::faults::{Fault, join};
use admission_rules::rules::Rules;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};

/// The At's UID.
const UID: &str = "at-1";

fn at_second(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap()
}

/// The instant of every test's schedule is second 0; now is this.
fn now() -> DateTime<Utc> {
    at_second(10)
}

fn spec() -> AtSpec {
    let mut spec = AtSpec {
        schedule: Some("2027-01-15T08:00:00Z".to_owned()),
        command: Some("echo YAY".to_owned()),
        ..AtSpec::default()
    };
    AtRules::default(&mut spec);
    spec
}

fn pending_at() -> AtView {
    AtView {
        key: Key::new("ns", "a"),
        uid: UID.to_owned(),
        resource_version: "1".to_owned(),
        generation: Some(1),
        deleting: false,
        base: Some(Base::Created(at_second(-100))),
        spec: Ok(spec()),
        status: AtStatus::default(),
    }
}

/// An At whose pod with that UID is recorded.
fn running_at(uid: &str) -> AtView {
    let mut at = pending_at();
    let pod = PodView {
        uid: uid.to_owned(),
        ..gated("p-1")
    };
    let mut builder = StatusBuilder::new(&at, now());
    builder.commit(&pod);
    let status = builder.next;
    at.status = status;
    at
}

/// The same, and its pod was released at second 10, which is recorded.
fn started_at(uid: &str) -> AtView {
    let mut at = running_at(uid);
    let first = Released::new(&freed(uid), now());
    let pod = freed(uid);
    let observed = Observed {
        released: Some(&first),
        ..cached(Some(&pod))
    };
    at.status = *decide(&at, observed, now() + START_RECORDED_WITHIN)
        .status
        .unwrap();
    at
}

/// A call that is rejected until something changes.
fn rejected(call: Call, message: &str) -> FailedCall {
    FailedCall {
        call,
        message: message.to_owned(),
        refused: true,
        again: false,
        unreported: false,
    }
}

/// The decision after a failed call.
fn call_failed(at: &AtView, failed: &FailedCall, now: DateTime<Utc>) -> Decision {
    let observed = Observed {
        failed: Some(failed),
        ..Observed::default()
    };
    decide(at, observed, now)
}

fn gated(uid: &str) -> PodView {
    PodView {
        uid: uid.to_owned(),
        resource_version: "5".to_owned(),
        controller: Some(UID.to_owned()),
        gate: Some(0),
        hash: Some(build::hash(UID, &spec())),
        ..PodView::default()
    }
}

fn freed(uid: &str) -> PodView {
    PodView {
        gate: None,
        ..gated(uid)
    }
}

fn ended(uid: &str, exit_code: i32) -> PodView {
    PodView {
        phase: if exit_code == 0 {
            PodPhase::Succeeded
        } else {
            PodPhase::Failed
        },
        ended: vec![Ended {
            container: "at".to_owned(),
            exit_code,
            finished_at: Some(at_second(15)),
            ..Ended::default()
        }],
        ..freed(uid)
    }
}

fn cached(pod: Option<&PodView>) -> Observed<'_> {
    Observed {
        pod,
        ..Observed::default()
    }
}

fn live(pod: Option<&PodView>) -> Observed<'_> {
    Observed {
        live: true,
        ..cached(pod)
    }
}

fn deleted(pod: PodView, certain: bool) -> LastSeen {
    LastSeen { pod, certain }
}

/// A live read finds no pod, and that is the last known state.
fn gone(last: &LastSeen) -> Observed<'_> {
    Observed {
        last: Some(last),
        ..live(None)
    }
}

fn decide_now(at: &AtView, observed: Observed<'_>) -> Decision {
    decide(at, observed, now())
}

/// The live decision, after the cached one asked for a live read.
fn after_live_read(at: &AtView, pod: Option<&PodView>) -> Decision {
    assert_eq!(decide_now(at, cached(pod)).operation, Operation::GetLive);
    decide_now(at, live(pod))
}

fn delete(pod: &PodView) -> Operation {
    Operation::DeletePod(PodVersion::from_pod(pod))
}

fn reason<'a>(status: &'a AtStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    condition::get(&status.conditions, type_).map(|c| (c.status.as_str(), c.reason.as_str()))
}

fn events(decision: &Decision) -> Vec<&'static str> {
    decision.events.iter().map(|event| event.reason).collect()
}

#[test]
fn the_instant_of_every_test_is_second_0() {
    assert_eq!(pending_at().instant(), Some(at_second(0)));
}

#[test]
fn a_waiting_at_gets_its_instant_once_and_then_no_more_writes() {
    let mut at = pending_at();
    let early = at_second(-50);
    let first = decide(&at, cached(None), early);
    let status = first.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(status.scheduled_time, Some(at_second(0)));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(reason(&status, ACCEPTED), Some(("True", "Valid")));
    assert_eq!(events(&first), ["Scheduled"]);
    assert_eq!(
        (first.operation, first.again, first.next),
        (Operation::Nothing, false, Some(at_second(0)))
    );
    at.status = *status;
    let second = decide(&at, cached(None), at_second(-40));
    assert_eq!(
        (second.status, second.events, second.next),
        (None, vec![], Some(at_second(0)))
    );
}

#[test]
fn no_pod_is_created_before_the_instant() {
    let at = pending_at();
    let instant = at.instant().unwrap();
    let early = decide(&at, cached(None), instant - TimeDelta::milliseconds(1));
    assert_eq!(
        (early.operation, early.next),
        (Operation::Nothing, Some(instant))
    );
    assert!(matches!(
        decide(&at, cached(None), instant).operation,
        Operation::Create(_)
    ));
}

#[test]
fn limits_that_are_centuries_away_neither_overflow_nor_end_anything() {
    let mut at = pending_at();
    let spec = at.spec.as_mut().unwrap();
    spec.starting_deadline_seconds = Some(i64::MAX);
    spec.active_deadline_seconds = Some(i64::MAX);
    spec.ttl_seconds_after_finished = Some(i64::MAX);
    let unlimited = at.spec.clone();
    assert!(matches!(
        decide_now(&at, cached(None)).operation,
        Operation::Create(_)
    ));
    let kept = call_failed(&at, &rejected(Call::Create, "exceeded quota"), now());
    assert!(kept.retry);
    at = running_at("p-1");
    at.spec = unlimited;
    let mut started = started_at("p-1");
    started.spec = at.spec.clone();
    let waits = decide_now(&started, cached(Some(&freed("p-1"))));
    assert_eq!((waits.operation, waits.next), (Operation::Nothing, None));
    at.status = *decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    let done = decide_now(&at, cached(None));
    assert_eq!((done.operation, done.next), (Operation::Nothing, None));
    // The last instant that can be represented.
    let mut far = pending_at();
    let spec = far.spec.as_mut().unwrap();
    spec.schedule = Some("9999-12-31T23:59:59.999999999Z".to_owned());
    spec.starting_deadline_seconds = Some(i64::MAX);
    let last = far.instant().unwrap();
    far.status = *decide_now(&far, cached(None)).status.unwrap();
    let accepted = dry_run(Verdict::Accepted, now());
    let waits = decide_now(&far, tried(&accepted));
    assert_eq!(
        (waits.operation, waits.next),
        (Operation::Nothing, Some(last))
    );
    assert!(matches!(
        decide(&far, cached(None), last).operation,
        Operation::Create(_)
    ));
}

#[test]
fn a_due_at_gets_a_gated_pod_and_no_status_before_the_commit() {
    let decision = decide_now(&pending_at(), cached(None));
    let Operation::Create(pod) = &decision.operation else {
        panic!("{decision:?}")
    };
    assert_eq!(pod["metadata"]["name"], "a-pod");
    assert_eq!(pod["spec"]["schedulingGates"][0]["name"], GATE);
    assert_eq!(
        (decision.status, decision.events, decision.again),
        (None, vec![], true)
    );
}

#[test]
fn the_commit_records_the_uid_and_claims_no_start() {
    let decision = after_live_read(&pending_at(), Some(&gated("p-1")));
    assert_eq!(
        (decision.operation.clone(), decision.again),
        (Operation::Nothing, true)
    );
    let status = decision.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    assert_eq!(status.pod_name.as_deref(), Some("a-pod"));
    assert_eq!(status.scheduled_time, Some(at_second(0)));
    assert_eq!(
        (status.start_time, status.lateness_milliseconds),
        (None, None)
    );
    assert_eq!(reason(&status, STARTED), Some(("False", "Committed")));
    assert_eq!(reason(&status, RECONCILING), Some(("True", "Committed")));
}

#[test]
fn the_recorded_pod_is_released() {
    let decision = decide_now(&running_at("p-1"), cached(Some(&gated("p-1"))));
    let uid = "p-1".to_owned();
    assert_eq!(decision.operation, Operation::RemoveGate { uid, gate: 0 });
    assert_eq!((decision.status.clone(), decision.again), (None, true));
    assert_eq!((events(&decision), decision.start), (vec![], None));
}

/// The first sight of that pod without our gate.
fn first_sight(uid: &str, at: DateTime<Utc>, reported: bool) -> Released {
    Released {
        uid: uid.to_owned(),
        at,
        reported,
    }
}

#[test]
fn a_start_is_reported_at_once_and_recorded_with_the_next_write_or_after_two_seconds() {
    let at = running_at("p-1");
    let mut first = first_sight("p-1", at_second(20), false);
    let pod = freed("p-1");
    let decide_with = |first: &Released, pod: &PodView, now: DateTime<Utc>| {
        let observed = Observed {
            released: Some(first),
            ..cached(Some(pod))
        };
        decide(&at, observed, now)
    };
    let first_sight = decide_with(&first, &pod, at_second(20));
    assert_eq!(
        (first_sight.operation.clone(), &first_sight.status),
        (Operation::Nothing, &None)
    );
    assert_eq!(
        (first_sight.again, first_sight.next),
        (false, Some(at_second(20) + START_RECORDED_WITHIN))
    );
    assert_eq!(
        (events(&first_sight), first_sight.start),
        (vec!["Started"], Some(at_second(20)))
    );
    assert!(first_sight.events[0].note.contains("20000 ms late"));
    // Neither the Event nor the metric comes twice.
    first.reported = true;
    let waits = decide_with(&first, &pod, at_second(21));
    assert_eq!(
        (&waits.status, events(&waits), waits.start),
        (&None, vec![], None)
    );
    let recorded = |decision: Decision| {
        assert_eq!((events(&decision), decision.start), (vec![], None));
        let status = *decision.status.unwrap();
        assert_eq!(status.start_time, Some(at_second(20)));
        assert_eq!(status.lateness_milliseconds, Some(20_000));
        assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
        status
    };
    let status = recorded(decide_with(&first, &pod, at_second(22)));
    assert_eq!(reason(&status, RECONCILING), Some(("True", "Running")));
    // A short command ends within that time, and so costs one write.
    let decision = decide_with(&first, &ended("p-1", 0), at_second(21));
    assert_eq!(events(&decision), ["Completed"]);
    let status = *decision.status.unwrap();
    assert_eq!(status.start_time, Some(at_second(20)));
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(status.phase, Some(Phase::Done));
    // A clock that was set back delays nothing.
    recorded(decide_with(&first, &pod, at_second(5)));
}

#[test]
fn the_time_of_a_start_by_another_process_comes_from_the_pod() {
    let at = running_at("p-1");
    let scheduled = |second| PodView {
        scheduled: Some(at_second(second)),
        ..freed("p-1")
    };
    let start = |pod: PodView| {
        let status = decide(&at, cached(Some(&pod)), at_second(500)).status;
        status.unwrap().start_time
    };
    assert_eq!(start(scheduled(7)), Some(at_second(7)));
    // Truncated to whole seconds, or from a clock that is behind.
    assert_eq!(start(scheduled(-3)), Some(at_second(0)));
    // Nothing better is known than when it was seen.
    let observed = decide(&at, cached(Some(&freed("p-1"))), at_second(500));
    assert_eq!(observed.start, Some(at_second(500)));
}

#[test]
fn the_recorded_start_of_a_gated_pod_is_withdrawn() {
    let mut at = started_at("p-1");
    let pod = gated("p-1");
    let decision = after_live_read(&at, Some(&pod));
    assert_eq!(
        (&decision.operation, decision.again),
        (&Operation::Nothing, true)
    );
    at.status = *decision.status.unwrap();
    assert_eq!(reason(&at.status, STARTED), Some(("False", "Committed")));
    assert_eq!(at.status.start_time, None);
    assert!(matches!(
        decide_now(&at, cached(Some(&pod))).operation,
        Operation::RemoveGate { .. }
    ));
}

#[test]
fn a_wrongly_recorded_start_is_withdrawn_before_an_end_is_recorded() {
    let mut at = started_at("p-1");
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(1);
    let deleting = PodView {
        deleting: true,
        ..gated("p-1")
    };
    let failed = PodView {
        gate: Some(0),
        ..ended("p-1", 1)
    };
    for pod in [gated("p-1"), deleting, failed] {
        let mut at = at.clone();
        for _ in 0..3 {
            let observed = Observed {
                live: true,
                ..cached(Some(&pod))
            };
            if let Some(status) = super::decide(&at, observed, at_second(60)).status {
                at.status = *status;
            }
        }
        let started = condition::get(&at.status.conditions, STARTED).unwrap();
        assert_eq!(
            (started.status.as_str(), at.status.start_time),
            ("False", None),
            "{pod:?}"
        );
        assert_eq!(at.status.phase, Some(Phase::Done));
    }
}

#[test]
fn a_pod_that_was_seen_without_its_gate_is_the_run_when_it_is_gone() {
    let at = pending_at();
    let first = first_sight("p-1", at_second(9), false);
    let other = gated("p-2");
    let foreign = PodView {
        controller: None,
        ..gated("p-9")
    };
    for pod in [None, Some(&other), Some(&foreign)] {
        let observed = |live| Observed {
            live,
            released: Some(&first),
            ..cached(pod)
        };
        assert_eq!(
            decide_now(&at, observed(false)).operation,
            Operation::GetLive
        );
        let decision = decide_now(&at, observed(true));
        assert_eq!(
            (decision.operation.clone(), decision.again),
            (Operation::Nothing, true)
        );
        assert_eq!(events(&decision), ["GateViolated"]);
        let status = *decision.status.unwrap();
        assert_eq!(
            (status.phase, status.pod_uid.as_deref()),
            (Some(Phase::Running), Some("p-1"))
        );
        assert_eq!(status.start_time, Some(at_second(9)));
        assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
        // What the watch saw of its end is the result.
        let at = AtView {
            status,
            ..at.clone()
        };
        let last = deleted(ended("p-1", 0), true);
        let observed = Observed {
            last: Some(&last),
            ..observed(true)
        };
        let status = decide_now(&at, observed).status.unwrap();
        assert_eq!(status.result, Some(Ending::Succeeded));
        assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
    }
}

#[test]
fn conditions_that_still_hold_take_the_new_generation() {
    let mut done = running_at("p-1");
    done.status = *decide_now(&done, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    let pod = freed("p-1");
    for (mut at, observed) in [
        (done, cached(None)),
        (started_at("p-1"), cached(Some(&pod))),
    ] {
        at.generation = Some(2);
        at.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(3_600);
        let status = decide_now(&at, observed).status.unwrap();
        assert_eq!(status.observed_generation, Some(2));
        for condition in &status.conditions {
            assert_eq!(condition.observed_generation, Some(2), "{condition:?}");
        }
    }
}

#[test]
fn a_gated_pod_of_an_invalid_object_is_deleted() {
    let pod = gated("p-1");
    let mut invalid = pending_at();
    invalid.spec = Err(vec![Fault::required("spec.command", "")]);
    assert_eq!(after_discard(&mut invalid, &pod).operation, delete(&pod));
}

/// The step after the one that records that the pod is not to be used.
fn after_discard(at: &mut AtView, pod: &PodView) -> Decision {
    let decision = after_live_read(at, Some(pod));
    assert_eq!(
        (&decision.operation, decision.again),
        (&Operation::Nothing, true)
    );
    at.status = *decision.status.unwrap();
    assert_eq!(at.status.discarded_pod_uid.as_ref(), Some(&pod.uid));
    decide_now(at, live(Some(pod)))
}

#[test]
fn a_pod_that_is_discarded_is_never_committed() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().suspend = Some(true);
    let pod = gated("p-1");
    assert_eq!(after_discard(&mut at, &pod).operation, delete(&pod));
    // The deletion is lost, and the At resumed: it may still arrive.
    at.spec.as_mut().unwrap().suspend = Some(false);
    assert_eq!(after_live_read(&at, Some(&pod)).operation, delete(&pod));
    let status = after_live_read(&at, Some(&gated("p-2"))).status.unwrap();
    assert_eq!(
        (
            status.pod_uid.as_deref(),
            status.discarded_pod_uid.as_deref()
        ),
        (Some("p-2"), None)
    );
}

#[test]
fn a_pod_without_its_owner_reference_is_deleted() {
    let at = pending_at();
    let stray = |uid: &str| PodView {
        controller: None,
        stray_of: Some(uid.into()),
        ..gated("p-1")
    };
    let pod = stray(UID);
    let decision = after_live_read(&at, Some(&pod));
    assert_eq!(decision.operation, delete(&pod));
    let status = decision.status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("False", "PodAltered")));
    // One of an earlier At of this name, which was deleted with --cascade=orphan.
    let pod = stray("at-0");
    assert_eq!(after_live_read(&at, Some(&pod)).operation, delete(&pod));
    // Without its gate it may have run: it is the run of its own At, and in the way of another.
    for (uid, is) in [
        (UID, ("True", "GateViolated")),
        ("at-0", ("False", "NameConflict")),
    ] {
        let pod = PodView {
            gate: None,
            ..stray(uid)
        };
        let decision = after_live_read(&at, Some(&pod));
        assert_eq!(decision.operation, Operation::Nothing);
        assert_eq!(reason(&decision.status.unwrap(), STARTED), Some(is));
    }
}

#[test]
fn an_altered_pod_is_never_released() {
    let mut pod = gated("p-1");
    pod.may_restart = Some("container at has restartPolicyRules".to_owned());
    let decision = after_live_read(&pending_at(), Some(&pod));
    assert_eq!(decision.operation, delete(&pod));
    let status = decision.status.clone().unwrap();
    assert_eq!(status.pod_uid, None);
    assert_eq!(reason(&status, STARTED), Some(("False", "PodAltered")));
    assert_eq!(events(&decision), ["PodAltered"]);
}

#[test]
fn a_pod_released_by_another_client_is_the_run() {
    let decision = after_live_read(&pending_at(), Some(&freed("p-1")));
    assert_eq!(decision.operation, Operation::Nothing);
    let status = decision.status.clone().unwrap();
    assert_eq!(
        (status.phase, status.pod_uid.as_deref()),
        (Some(Phase::Running), Some("p-1"))
    );
    assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
    assert_eq!(events(&decision), ["GateViolated"]);
    // Also when it was not to start at all.
    let mut at = pending_at();
    at.spec.as_mut().unwrap().suspend = Some(true);
    let status = decide_now(&at, live(Some(&freed("p-1")))).status.unwrap();
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    // Before the instant there is no lateness.
    let status = super::decide(&pending_at(), live(Some(&freed("p-1"))), at_second(-5))
        .status
        .unwrap();
    assert_eq!(status.lateness_milliseconds, None);
}

#[test]
fn a_foreign_pod_is_left_alone_and_read_again() {
    let mut at = pending_at();
    for controller in [None, Some("at-2".to_owned())] {
        let pod = PodView {
            controller,
            ..gated("p-9")
        };
        let decision = after_live_read(&at, Some(&pod));
        assert_eq!(
            (decision.operation.clone(), decision.retry),
            (Operation::Nothing, true)
        );
        let status = decision.status.clone().unwrap();
        assert_eq!(reason(&status, STARTED), Some(("False", "NameConflict")));
        assert_eq!(events(&decision), ["NameConflict"]);
    }
    // Reported once; the next step is a read and not an attempt to create.
    let pod = PodView {
        controller: None,
        ..gated("p-9")
    };
    at.status = *decide_now(&at, live(Some(&pod))).status.unwrap();
    assert_eq!(decide_now(&at, cached(None)).operation, Operation::GetLive);
    let again = decide_now(&at, live(Some(&pod)));
    assert_eq!((again.status, again.events), (None, vec![]));
    assert!(again.retry, "no watch shows its end");
    assert!(matches!(
        decide_now(&at, live(None)).operation,
        Operation::Create(_)
    ));
}

#[test]
fn a_rejected_release_is_reported_until_it_succeeds() {
    let mut at = running_at("p-1");
    let refused = rejected(Call::Release, "a policy says no");
    let decision = call_failed(&at, &refused, now());
    assert_eq!(decision.operation, Operation::Nothing);
    assert!(decision.retry);
    assert_eq!(events(&decision), ["ReleaseRefused"]);
    let status = decision.status.unwrap();
    assert_eq!(
        (status.phase, status.pod_uid.as_deref()),
        (Some(Phase::Running), Some("p-1"))
    );
    assert_eq!(status.scheduled_time, Some(at_second(0)));
    assert_eq!(status.reason.as_deref(), Some("ReleaseRefused"));
    assert_eq!(status.message.as_deref(), Some("a policy says no"));
    assert_eq!(reason(&status, STARTED), Some(("False", "ReleaseRefused")));
    assert_eq!(
        (status.start_time, status.lateness_milliseconds),
        (None, None)
    );
    at.status = *status;
    // Once is enough.
    let again = call_failed(&at, &refused, now());
    assert_eq!((again.status, again.events), (None, vec![]));
    // Nor do other figures make it another reason.
    let quota = |used: u32| format!("exceeded quota: q, used: pods={used}, limited: pods=9");
    let mut crowded = at.clone();
    let call = |message: &str| rejected(Call::Release, message);
    let first = call_failed(&crowded, &call(&quota(7)), now());
    crowded.status = *first.status.unwrap();
    let again = call_failed(&crowded, &call(&quota(8)), now());
    assert_eq!((again.status, again.events), (None, vec![]));
    // The instant is that of the present spec.
    let mut moved = pending_at();
    let creation = rejected(Call::Create, &quota(7));
    moved.status = *call_failed(&moved, &creation, now()).status.unwrap();
    moved.spec.as_mut().unwrap().schedule = Some("2027-01-15T07:59:00Z".to_owned());
    let status = call_failed(&moved, &creation, now()).status.unwrap();
    assert_eq!(status.scheduled_time, Some(at_second(-60)));
    let other = call_failed(&crowded, &call("a policy says no"), now());
    assert_eq!(events(&other), ["ReleaseRefused"]);
    // A release whose answer was lost is recorded when it is seen, and at once: the reason in the
    // status no longer holds.
    let observed = freed("p-1");
    let decision = decide_now(&at, cached(Some(&observed)));
    assert_eq!(events(&decision), ["Started"]);
    let status = decision.status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(status.start_time, Some(now()));
    assert_eq!((status.reason, status.message), (None, None));
    let status = decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(status.result, Some(Ending::Succeeded));
    // It is tried again, and stays in the status until it is carried out.
    let decision = decide_now(&at, cached(Some(&gated("p-1"))));
    assert!(matches!(decision.operation, Operation::RemoveGate { .. }));
    assert_eq!(decision.status, None);
}

#[test]
fn calls_that_fail_again_and_again_are_reported() {
    let failing = |call, message| FailedCall {
        refused: false,
        again: true,
        ..rejected(call, message)
    };
    for (mut at, call, is, phase) in [
        (pending_at(), Call::Create, "CreateFailed", Phase::Pending),
        (
            running_at("p-1"),
            Call::Release,
            "ReleaseFailed",
            Phase::Running,
        ),
    ] {
        let decision = call_failed(&at, &failing(call, "no answer within 40 s"), now());
        assert_eq!(events(&decision), [is]);
        at.status = *decision.status.unwrap();
        assert_eq!(reason(&at.status, STARTED), Some(("False", is)));
        assert_eq!(at.status.reason.as_deref(), Some(is));
        assert_eq!(at.status.phase, Some(phase));
        assert_eq!(at.status.start_time, None);
        // Other words for the same failure cost no write.
        let again = call_failed(&at, &failing(call, "429: too many requests"), now());
        assert_eq!((again.status, again.events), (None, vec![]));
    }
}

#[test]
fn a_deletion_that_is_rejected_is_reported_and_does_not_hold_up_the_end() {
    let refused = rejected(Call::Delete, "a policy says no");
    // An outdated pod of an At that is due.
    let mut at = pending_at();
    let pod = PodView {
        hash: Some("other".to_owned()),
        ..gated("p-1")
    };
    assert_eq!(after_discard(&mut at, &pod).operation, delete(&pod));
    let decision = call_failed(&at, &refused, now());
    assert_eq!(events(&decision), ["DeleteRefused"]);
    assert!(decision.retry);
    at.status = *decision.status.unwrap();
    assert_eq!(
        reason(&at.status, STARTED),
        Some(("False", "DeleteRefused"))
    );
    // The deadline is obeyed: what is not committed never runs.
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(5);
    let status = decide_now(&at, live(Some(&pod))).status.unwrap();
    assert_eq!(status.result, Some(Ending::Missed));
    assert!(status.message.unwrap().contains("DeleteRefused: a policy"));

    // The TTL of an At that is DONE passes.
    let mut at = running_at("p-1");
    at.status = *decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    at.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(1);
    let stray = gated("p-2");
    let decision = call_failed(&at, &refused, now());
    assert_eq!(
        (events(&decision), decision.status, decision.next),
        (vec!["DeleteRefused"], None, Some(at_second(11)))
    );
    assert!(decision.retry);
    assert_eq!(step_at(&at, live(Some(&stray)), 10), delete(&stray));
    assert_eq!(step_at(&at, live(Some(&stray)), 11), Operation::DeleteAt);
}

#[test]
fn a_rejected_deletion_of_a_finished_at_is_reported_once_and_tried_every_hour() {
    let mut at = running_at("p-1");
    at.status = *decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    let refused = rejected(Call::DeleteAt, "a policy says no");
    let decision = call_failed(&at, &refused, now());
    assert_eq!(events(&decision), ["DeleteRefused"]);
    assert!(decision.retry);
    let again = FailedCall {
        again: true,
        ..refused
    };
    let decision = call_failed(&at, &again, now());
    assert_eq!((decision.status, decision.events), (None, vec![]));
    assert_eq!(
        (decision.retry, decision.next),
        (false, Some(now() + TimeDelta::hours(1)))
    );
}

#[test]
fn missed_names_a_single_failure() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(5);
    let failing = FailedCall {
        refused: false,
        ..rejected(Call::Create, "no answer within 40 s")
    };
    let once = call_failed(&at, &failing, at_second(1));
    assert_eq!((once.status, once.events), (None, vec![]));
    let observed = Observed {
        failing: Some(&failing),
        ..cached(None)
    };
    let status = decide_now(&at, observed).status.unwrap();
    assert_eq!(status.result, Some(Ending::Missed));
    let message = status.message.unwrap();
    assert!(
        message.contains("CreateFailed: no answer within 40 s"),
        "{message}"
    );
}

/// The operation at that second.
fn step_at(at: &AtView, observed: Observed<'_>, second: i64) -> Operation {
    decide(at, observed, at_second(second)).operation
}

#[test]
fn a_lost_pod_leaves_the_reason_of_its_disruption() {
    let evicted = PodView {
        reason: "EvictionByEvictionAPI".to_owned(),
        message: "Eviction API: evicting".to_owned(),
        ..freed("p-1")
    };
    let last = deleted(evicted, true);
    let decision = decide_now(&running_at("p-1"), gone(&last));
    let status = decision.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("PodLost"));
    let message = status.message.unwrap();
    assert!(
        message.ends_with("; last seen: EvictionByEvictionAPI: Eviction API: evicting"),
        "{message}"
    );
}

#[test]
fn a_missed_deadline_ends_it() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(10);
    // Exactly in time.
    assert!(matches!(
        decide_now(&at, cached(None)).operation,
        Operation::Create(_)
    ));
    let late = decide(&at, cached(None), now() + TimeDelta::milliseconds(1));
    let status = late.status.clone().unwrap();
    assert_eq!(
        (status.phase, status.result),
        (Some(Phase::Done), Some(Ending::Missed))
    );
    assert_eq!(status.reason.as_deref(), Some("StartingDeadlineExceeded"));
    assert_eq!((status.start_time, status.pod_uid.as_deref()), (None, None));
    for type_ in [FAILED, FINISHED, STALLED] {
        assert_eq!(
            reason(&status, type_),
            Some(("True", "StartingDeadlineExceeded"))
        );
    }
    assert_eq!(events(&late), ["Missed"]);
}

#[test]
fn a_missed_at_keeps_what_blocked_its_start() {
    let mut at = pending_at();
    at.status = *call_failed(&at, &rejected(Call::Create, "exceeded quota"), now())
        .status
        .unwrap();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(9);
    let message = decide_now(&at, cached(None))
        .status
        .unwrap()
        .message
        .unwrap();
    assert!(
        message.ends_with("what kept it: PodRefused: exceeded quota"),
        "{message}"
    );
}

#[test]
fn a_pod_without_our_annotation_was_altered() {
    let mut pod = gated("p-1");
    pod.hash = None;
    let decision = after_live_read(&pending_at(), Some(&pod));
    assert_eq!(decision.operation, delete(&pod));
    let status = decision.status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("False", "PodAltered")));
}

#[test]
fn a_release_after_the_deadline_is_not_made() {
    let mut at = running_at("p-1");
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(10);
    let pod = gated("p-1");
    let later = at_second(11);
    assert_eq!(
        decide(&at, cached(Some(&pod)), later).operation,
        Operation::GetLive
    );
    // The decision is written first: the result does not depend on the write after the deletion.
    let decided = decide(&at, live(Some(&pod)), later);
    assert_eq!(
        (&decided.operation, decided.again),
        (&Operation::Nothing, true)
    );
    let committed = std::mem::replace(&mut at.status, *decided.status.unwrap());
    assert_eq!(at.status.phase, Some(Phase::Running));
    let target = Some(("True", "StartingDeadlineExceeded"));
    assert_eq!(reason(&at.status, FAILURE_TARGET), target);
    assert_eq!(
        at.status.reason.as_deref(),
        Some("StartingDeadlineExceeded")
    );
    let missed = decide(&at, live(Some(&pod)), later);
    assert_eq!(missed.operation, delete(&pod));
    let deleting = PodView {
        deleting: true,
        ..pod.clone()
    };
    // The same after a failed write and a crash: the pod is gone, or being deleted.
    let last = deleted(pod.clone(), true);
    for status in [
        missed.status.unwrap(),
        decide(&at, gone(&last), later).status.unwrap(),
        decide(&at, live(Some(&deleting)), later).status.unwrap(),
    ] {
        assert_eq!(
            (status.phase, status.result),
            (Some(Phase::Done), Some(Ending::Missed))
        );
        assert_eq!(
            (status.start_time, status.lateness_milliseconds),
            (None, None)
        );
        assert_eq!(
            reason(&status, STARTED),
            Some(("False", "StartingDeadlineExceeded"))
        );
        assert_eq!(reason(&status, FAILURE_TARGET), None);
    }
    // The decision stays: a late deletion may still arrive.
    at.spec.as_mut().unwrap().starting_deadline_seconds = None;
    assert_eq!(decide(&at, live(Some(&pod)), later).operation, delete(&pod));
    // But a pod that was released after all has started.
    for (pod, result) in [
        (freed("p-1"), None),
        (ended("p-1", 0), Some(Ending::Succeeded)),
    ] {
        let status = decide(&at, live(Some(&pod)), later).status.unwrap();
        assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
        assert_eq!(reason(&status, FAILURE_TARGET), None);
        assert_eq!(status.result, result);
    }
    let first = first_sight("p-1", later, true);
    let observed = Observed {
        released: Some(&first),
        ..live(None)
    };
    let status = decide(&at, observed, later).status.unwrap();
    assert_eq!(status.result, Some(Ending::Unknown));
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    at.status = committed;
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(10);
    // A pod that was released in time continues.
    assert_eq!(
        decide(&at, live(Some(&freed("p-1"))), later).operation,
        Operation::Nothing
    );
}

/// `SEED=174494236582097` of the model found this: one operator releases the pod at the deadline,
/// another announces Missed on what it read before, and another client deletes the pod.
#[test]
fn a_pod_that_may_have_been_released_after_the_announcement_is_not_missed() {
    let mut at = running_at("p-1");
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(10);
    let (first, second) = (at.clone(), &mut at);
    let (pod, later) = (gated("p-1"), at_second(11));
    let release = decide(&first, cached(Some(&pod)), now()).operation;
    assert!(matches!(release, Operation::RemoveGate { .. }));
    // The release does not change the version of the At, so this write succeeds.
    let announced = decide(second, live(Some(&pod)), later);
    second.status = *announced.status.unwrap();
    let ends = |observed: Observed<'_>| {
        let status = decide(second, observed, later).status.unwrap();
        let (started, _) = reason(&status, STARTED).unwrap();
        let ending = (status.result.unwrap(), status.reason.clone().unwrap());
        assert_eq!(reason(&status, FAILURE_TARGET), None);
        (ending.0, ending.1, started.to_owned())
    };
    let lost = |started: &str| (Ending::Unknown, "PodLost".to_owned(), started.to_owned());
    // The deletion was not seen.
    assert_eq!(ends(live(None)), lost("Unknown"));
    assert_eq!(ends(gone(&deleted(pod.clone(), false))), lost("Unknown"));
    // It was, or is found.
    assert_eq!(ends(gone(&deleted(freed("p-1"), true))), lost("True"));
    let (result, _, started) = ends(gone(&deleted(pod, true)));
    assert_eq!((result, started.as_str()), (Ending::Missed, "False"));
}

#[test]
fn a_failed_read_is_not_written_over_an_announced_end() {
    let mut at = running_at("p-1");
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(5);
    let failed = FailedCall {
        call: Call::Read,
        refused: false,
        again: true,
        ..rejected(Call::Read, "no answer")
    };
    assert!(call_failed(&at, &failed, now()).status.is_some());
    at.status = *decide_now(&at, live(Some(&gated("p-1")))).status.unwrap();
    let kept = call_failed(&at, &failed, now());
    assert_eq!((kept.status, kept.events), (None, vec![]));
}

#[test]
fn a_pod_that_stays_does_not_prevent_a_missed_deadline() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(30);
    let held = PodView {
        deleting: true,
        ..gated("p-1")
    };
    let waits = after_live_read(&at, Some(&held));
    let too_late = at_second(30) + TimeDelta::milliseconds(1);
    assert_eq!(
        (waits.operation, waits.next),
        (Operation::Nothing, Some(too_late))
    );
    let status = decide(&at, live(Some(&held)), too_late).status.unwrap();
    assert_eq!(status.result, Some(Ending::Missed));
}

#[test]
fn suspend_applies_whatever_the_deadline() {
    let mut at = pending_at();
    let spec = at.spec.as_mut().unwrap();
    spec.suspend = Some(true);
    spec.starting_deadline_seconds = Some(1);
    let decision = decide_now(&at, cached(None));
    assert_eq!(
        (decision.operation, decision.next),
        (Operation::Nothing, None)
    );
    let status = decision.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(reason(&status, STARTED), Some(("False", "Suspended")));
}

#[test]
fn an_invalid_object_gets_its_faults_as_a_condition_and_nothing_else() {
    let mut at = pending_at();
    let faults = vec![
        Fault::required("spec.schedule", "x"),
        Fault::required("spec.command", "y"),
    ];
    at.spec = Err(faults.clone());
    let decision = decide_now(&at, cached(None));
    assert_eq!(
        (decision.operation.clone(), decision.next, decision.again),
        (Operation::Nothing, None, false)
    );
    assert_eq!(events(&decision), ["Invalid"]);
    let status = decision.status.unwrap();
    let accepted = condition::get(&status.conditions, ACCEPTED).unwrap();
    assert_eq!(
        (accepted.status.as_str(), accepted.message.as_str()),
        ("False", join(&faults).as_str())
    );
    assert_eq!(reason(&status, STALLED), Some(("True", "Invalid")));
    at.status = *status;
    let again = decide_now(&at, cached(None));
    assert_eq!((again.status, again.events), (None, vec![]));
    // Once the spec is fixed, nothing remains of it.
    at.spec = Ok(spec());
    let cured = super::decide(&at, cached(None), at_second(-9))
        .status
        .unwrap();
    assert_eq!(reason(&cured, ACCEPTED), Some(("True", "Valid")));
    assert_eq!(reason(&cured, STALLED), None);
}

#[test]
fn the_run_of_an_object_that_became_invalid_is_still_followed() {
    let mut at = running_at("p-1");
    at.spec = Err(vec![Fault::required("spec.command", "")]);
    let status = decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    assert_eq!(status.result, Some(Ending::Succeeded));
    assert_eq!(reason(&status, ACCEPTED), Some(("False", "Invalid")));
}

#[test]
fn the_end_of_the_pod_is_the_result() {
    for (code, result, event) in [
        (0, Ending::Succeeded, "Completed"),
        (3, Ending::Failed, "Failed"),
    ] {
        let decision = super::decide(
            &running_at("p-1"),
            cached(Some(&ended("p-1", code))),
            at_second(30),
        );
        let status = decision.status.clone().unwrap();
        assert_eq!(
            (status.phase, status.result),
            (Some(Phase::Done), Some(result))
        );
        assert_eq!(status.exit_code, Some(code));
        assert_eq!(status.completion_time, Some(at_second(15)));
        assert_eq!(events(&decision), ["Started", event]);
        let type_ = if code == 0 { COMPLETE } else { FAILED };
        assert!(reason(&status, type_).is_some() && reason(&status, FINISHED).is_some());
        assert_eq!(reason(&status, RECONCILING), None);
        assert_eq!(reason(&status, STALLED).is_some(), code != 0);
    }
}

#[test]
fn a_nodes_wrong_clock_does_not_end_a_run_before_its_start() {
    let status = decide_now(&running_at("p-1"), cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    assert_eq!(status.completion_time, Some(now()));
}

#[test]
fn a_lost_pod_is_unknown_and_never_run_again() {
    let at = running_at("p-1");
    let lost = after_live_read(&at, None);
    let status = lost.status.clone().unwrap();
    assert_eq!(
        (status.phase, status.result),
        (Some(Phase::Done), Some(Ending::Unknown))
    );
    assert_eq!(status.reason.as_deref(), Some("PodLost"));
    assert_eq!(events(&lost), ["Failed"]);
    // Another pod under the name means the same.
    for other in [gated("p-2"), freed("p-2"), ended("p-2", 0)] {
        let status = after_live_read(&at, Some(&other)).status.unwrap();
        assert_eq!(status.result, Some(Ending::Unknown));
    }
}

#[test]
fn the_last_watched_state_of_a_deleted_pod_decides_the_result() {
    let at = running_at("p-1");
    let with = |pod: PodView, certain: bool| {
        let last = deleted(pod, certain);
        let status = decide_now(&at, gone(&last)).status.unwrap();
        (status.result.unwrap(), status.reason.unwrap())
    };
    assert_eq!(
        with(gated("p-1"), true),
        (Ending::Unknown, "NeverStarted".to_owned())
    );
    assert_eq!(
        with(gated("p-1"), false),
        (Ending::Unknown, "PodLost".to_owned())
    );
    assert_eq!(
        with(freed("p-1"), true),
        (Ending::Unknown, "PodLost".to_owned())
    );
    assert_eq!(
        with(gated("p-2"), true),
        (Ending::Unknown, "PodLost".to_owned())
    );
    assert_eq!(with(ended("p-1", 0), false).0, Ending::Succeeded);
}

#[test]
fn a_pod_that_is_deleted_before_its_release_never_started() {
    let pod = PodView {
        deleting: true,
        ..gated("p-1")
    };
    let status = after_live_read(&running_at("p-1"), Some(&pod))
        .status
        .unwrap();
    assert_eq!(
        (status.result, status.reason.as_deref()),
        (Some(Ending::Unknown), Some("NeverStarted"))
    );
    assert_eq!(reason(&status, STARTED), Some(("False", "NeverStarted")));
}

#[test]
fn what_keeps_a_released_pod_from_running_is_published_once() {
    let waiting = |reason: &str, message: &str| PodView {
        waiting: Some(Box::new(Waiting {
            reason: reason.to_owned(),
            message: message.to_owned(),
            usual: false,
        })),
        ..freed("p-1")
    };
    let shown = |status: &AtStatus| (status.reason.clone(), status.message.clone());
    let mut at = started_at("p-1");
    let first = decide_now(&at, cached(Some(&waiting("Unschedulable", "0/3 nodes"))));
    assert_eq!(
        (first.operation.clone(), first.again),
        (Operation::Nothing, false)
    );
    assert_eq!(events(&first), ["PodWaiting"]);
    let status = first.status.unwrap();
    assert_eq!(
        shown(&status),
        (Some("Unschedulable".into()), Some("0/3 nodes".into()))
    );
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(
        reason(&status, RECONCILING),
        Some(("True", "Unschedulable"))
    );
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    at.status = *status;
    // A new message for the same reason causes no Event and no write.
    let again = decide_now(&at, cached(Some(&waiting("Unschedulable", "0/4 nodes"))));
    assert_eq!((again.status, again.events), (None, vec![]));
    let other = decide_now(&at, cached(Some(&waiting("ImagePullBackOff", "no image"))));
    assert_eq!(events(&other), ["PodWaiting"]);
    at.status = *other.status.unwrap();
    let runs = decide_now(&at, cached(Some(&freed("p-1"))));
    let status = runs.status.unwrap();
    assert_eq!((shown(&status), runs.events), ((None, None), vec![]));
    assert_eq!(reason(&status, RECONCILING), Some(("True", "Running")));
}

#[test]
fn what_is_usual_for_a_pod_is_reported_after_a_minute() {
    let waiting = |phase: PodPhase, ended: Vec<Ended>| PodView {
        phase,
        ended,
        waiting: Some(Box::new(Waiting {
            reason: "TheReason".to_owned(),
            message: "m".to_owned(),
            usual: true,
        })),
        ..freed("p-1")
    };
    let command = ended("p-1", 3).ended;
    let by_clock = |second: i64| Ended {
        finished_at: Some(at_second(second)),
        ..command[0].clone()
    };
    let found_late = PodView {
        bound: true,
        scheduled: Some(at_second(100)),
        ..waiting(PodPhase::Pending, vec![])
    };
    let behind = waiting(PodPhase::Running, vec![by_clock(-600)]);
    let ahead = waiting(PodPhase::Running, vec![by_clock(600)]);
    // It was released at second 10, and its command ended at second 15.
    for (pod, from, event) in [
        (found_late, 160, "PodWaiting"),
        (behind, 70, "OtherContainersRunning"),
        (ahead, 70, "OtherContainersRunning"),
        (waiting(PodPhase::Pending, vec![]), 70, "PodWaiting"),
        (
            waiting(PodPhase::Running, command.clone()),
            75,
            "OtherContainersRunning",
        ),
    ] {
        let mut at = started_at("p-1");
        let early = decide(&at, cached(Some(&pod)), at_second(from - 1));
        assert_eq!(early.next, Some(at_second(from)));
        assert_eq!((early.status, early.events), (None, vec![]));
        let late = decide(&at, cached(Some(&pod)), at_second(from));
        assert_eq!(events(&late), [event]);
        at.status = *late.status.unwrap();
        assert_eq!(at.status.reason.as_deref(), Some("TheReason"));
        let again = decide(&at, cached(Some(&pod)), at_second(from + 100));
        assert_eq!((again.status, again.next), (None, None));
        let deleting = PodView {
            deleting: true,
            ..pod
        };
        let decision = decide(&started_at("p-1"), cached(Some(&deleting)), at_second(11));
        assert_eq!(events(&decision), ["PodTerminating"]);
    }
}

#[test]
fn what_blocks_the_start_is_shown_by_kubectl_get() {
    let mut at = pending_at();
    let shown = |status: &AtStatus| status.reason.clone();
    let message = "exceeded quota";
    at.status = *call_failed(&at, &rejected(Call::Create, message), now())
        .status
        .unwrap();
    assert_eq!(shown(&at.status), Some("PodRefused".into()));
    assert_eq!(at.status.message.as_deref(), Some(message));
    // It is taken back when something else is the case, and when the command starts.
    let mut suspended = at.clone();
    suspended.spec.as_mut().unwrap().suspend = Some(true);
    let status = decide_now(&suspended, cached(None)).status.unwrap();
    assert_eq!(shown(&status), Some("Suspended".into()));
    let status = decide(&at, cached(None), at_second(-5)).status.unwrap();
    assert_eq!((shown(&status), status.message), (None, None));
    let started = after_live_read(&at, Some(&gated("p-1"))).status.unwrap();
    assert_eq!(
        (started.phase, shown(&started)),
        (Some(Phase::Running), None)
    );
}

#[test]
fn a_pod_that_another_client_released_after_the_end_is_reported() {
    let mut at = running_at("p-1");
    at.status = *decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    let decision = after_live_read(&at, Some(&freed("p-2")));
    let status = decision.status.clone().unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    at.status = *status;
    assert_eq!(
        decide_now(&at, cached(Some(&freed("p-2")))).operation,
        Operation::Nothing
    );
}

#[test]
fn a_pod_that_no_node_takes_is_ended_after_its_active_deadline() {
    let mut at = started_at("p-1");
    at.spec.as_mut().unwrap().active_deadline_seconds = Some(30);
    let pod = freed("p-1");
    let waiting = decide_now(&at, cached(Some(&pod)));
    assert_eq!(
        (waiting.operation, waiting.next),
        (Operation::Nothing, Some(at_second(40)))
    );
    assert_eq!(step_at(&at, cached(Some(&pod)), 40), Operation::GetLive);
    let decided = decide(&at, live(Some(&pod)), at_second(40));
    assert_eq!(
        (&decided.operation, decided.again),
        (&Operation::Nothing, true)
    );
    at.status = *decided.status.unwrap();
    let end = decide(&at, live(Some(&pod)), at_second(40));
    assert_eq!(end.operation, delete(&pod));
    // The same after a failed write and a crash.
    let last = deleted(pod.clone(), true);
    let after = decide(&at, gone(&last), at_second(41));
    for status in [end.status.unwrap(), after.status.unwrap()] {
        assert_eq!(
            (status.result, status.reason.as_deref()),
            (Some(Ending::Failed), Some("DeadlineExceeded"))
        );
        assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    }
    // From the binding on it is the kubelet's task, also for a pod that the kubelet has not reported yet.
    let bound = PodView {
        bound: true,
        ..freed("p-1")
    };
    let decision = super::decide(&at, live(Some(&bound)), at_second(400));
    assert_eq!(decision.operation, Operation::Nothing);
    assert_eq!(reason(&decision.status.unwrap(), FAILURE_TARGET), None);
    // The same if the last state is not known.
    for last in [deleted(bound, true), deleted(pod, false)] {
        let status = super::decide(&at, gone(&last), at_second(400)).status;
        assert_eq!(status.unwrap().reason.as_deref(), Some("PodLost"));
    }
}

#[test]
fn a_pod_that_goes_or_whose_node_is_lost_is_reported() {
    let at = started_at("p-1");
    let running = PodView {
        phase: PodPhase::Running,
        bound: true,
        ..freed("p-1")
    };
    let deleted = PodView {
        deleting: true,
        ..running.clone()
    };
    let evicted = PodView {
        reason: "DeletionByTaintManager".to_owned(),
        message: "Taint manager: deleting due to NoExecute taint".to_owned(),
        ..deleted.clone()
    };
    let silent = PodView {
        waiting: Some(Box::new(Waiting {
            reason: "NodeNotReady".to_owned(),
            message: "the node does not report".to_owned(),
            usual: false,
        })),
        ..running.clone()
    };
    for (pod, is, event) in [
        (deleted, "PodTerminating", "PodTerminating"),
        (evicted, "DeletionByTaintManager", "PodTerminating"),
        (silent, "NodeNotReady", "PodDisrupted"),
    ] {
        let decision = decide_now(&at, cached(Some(&pod)));
        assert_eq!(events(&decision), [event]);
        let status = *decision.status.unwrap();
        assert_eq!(status.reason.as_deref(), Some(is));
        assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
        let next = AtView {
            status,
            ..at.clone()
        };
        let again = decide_now(&next, cached(Some(&pod)));
        assert_eq!((again.status, again.events), (None, vec![]));
        // The node is back.
        let status = decide_now(&next, cached(Some(&running))).status.unwrap();
        assert_eq!(status.reason, None);
    }
}

#[test]
fn a_finished_object_is_deleted_after_its_ttl() {
    let mut at = running_at("p-1");
    at.status = *decide_now(&at, cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    let pod = ended("p-1", 0);
    assert_eq!(decide_now(&at, cached(Some(&pod))).next, None);
    at.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(60);
    let waiting = decide_now(&at, cached(Some(&pod)));
    assert_eq!(
        (waiting.operation, waiting.next),
        (Operation::Nothing, Some(at_second(70)))
    );
    assert_eq!(
        decide(&at, cached(Some(&pod)), at_second(70)).operation,
        Operation::DeleteAt
    );
    // By the operator's clock: that of the node may be behind.
    at.status.completion_time = Some(at_second(-600));
    assert_eq!(decide_now(&at, cached(Some(&pod))).next, waiting.next);
    // A status that another client rewrote may lack the condition.
    let mut bare = at.clone();
    bare.status.completion_time = Some(at_second(5));
    condition::remove(&mut bare.status.conditions, FINISHED);
    let next = decide_now(&bare, cached(Some(&pod))).next;
    assert_eq!(next, Some(at_second(65)));
    at.deleting = true;
    assert_eq!(
        decide(&at, cached(Some(&pod)), at_second(70)).operation,
        Operation::Nothing
    );
}

#[test]
fn a_rejected_pod_is_reported_and_retried() {
    let mut at = pending_at();
    let decision = call_failed(&at, &rejected(Call::Create, "exceeded quota"), now());
    assert_eq!(decision.operation, Operation::Nothing);
    assert!(decision.retry);
    let status = decision.status.clone().unwrap();
    assert_eq!(reason(&status, STARTED), Some(("False", "PodRefused")));
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(events(&decision), ["PodRefused"]);
    at.status = *status;
    assert!(matches!(
        decide_now(&at, cached(None)).operation,
        Operation::Create(_)
    ));
}

/// The first dry run of the pod, at that time.
fn dry_run(verdict: Verdict, at: DateTime<Utc>) -> Trial {
    Trial::new(None, Some(1), verdict, None, at)
}

/// There is no pod, and this is the last dry run.
fn tried(trial: &Trial) -> Observed<'_> {
    Observed {
        trial: Some(trial),
        ..cached(None)
    }
}

/// So early, there is time for a dry run.
fn early() -> DateTime<Utc> {
    at_second(-90)
}

/// An At that waits, with its first status.
fn waiting_at() -> AtView {
    let mut at = pending_at();
    at.status = *decide(&at, cached(None), early()).status.unwrap();
    at
}

/// The same, after a dry run with that verdict.
fn tried_at(verdict: Verdict) -> AtView {
    let mut at = waiting_at();
    let trial = dry_run(verdict, early());
    at.status = *decide(&at, tried(&trial), early()).status.unwrap();
    at
}

fn refused() -> Verdict {
    Verdict::Refused("no ServiceAccount".to_owned())
}

#[test]
fn the_pod_of_a_waiting_at_is_tried_once_and_early() {
    let is_tried = |at: &AtView, observed: Observed<'_>, second: i64| {
        matches!(step_at(at, observed, second), Operation::DryRun(_))
    };
    // The first status goes before.
    let first = decide(&pending_at(), cached(None), early());
    assert_eq!(first.operation, Operation::Nothing);
    assert_eq!(first.next, Some(early() + TimeDelta::seconds(1)));
    let at = waiting_at();
    let decision = decide(&at, cached(None), early());
    let Operation::DryRun(pod) = &decision.operation else {
        panic!("{decision:?}")
    };
    let Operation::Create(created) = decide_now(&at, cached(None)).operation else {
        panic!("not created")
    };
    assert_eq!(pod, &created, "another pod than the start creates");
    assert!(decision.again && decision.status.is_none() && decision.events.is_empty());
    // Not if it is due soon, suspended, or the name is taken.
    assert!(is_tried(&at, cached(None), -61) && !is_tried(&at, cached(None), -60));
    assert!(!is_tried(&at, cached(Some(&freed("p-9"))), -90));
    let mut suspended = at.clone();
    suspended.spec.as_mut().unwrap().suspend = Some(true);
    assert!(!is_tried(&suspended, cached(None), -90));
    // What it has shown is written, and it is not repeated: by this process or the next.
    let accepted = dry_run(Verdict::Accepted, early());
    let said = decide(&at, tried(&accepted), early());
    assert_eq!((events(&said), said.next), (vec![], Some(at_second(0))));
    let status = said.status.unwrap();
    assert_eq!(status.dry_run_generation, Some(1));
    assert_eq!(
        (reason(&status, POD_ACCEPTED), &status.reason),
        (None, &None)
    );
    let mut at = tried_at(Verdict::Accepted);
    for observed in [tried(&accepted), cached(None)] {
        let waits = decide(&at, observed, early());
        assert_eq!(
            (&waits.operation, &waits.status),
            (&Operation::Nothing, &None)
        );
        assert_eq!(waits.next, Some(at_second(0)));
    }
    // Another spec is another pod.
    at.generation = Some(2);
    let changed = decide(&at, tried(&accepted), early());
    at.status = *changed.status.unwrap();
    assert_eq!(at.status.dry_run_generation, None);
    assert!(is_tried(&at, tried(&accepted), -90));
}

#[test]
fn a_pod_that_is_refused_early_is_reported_once_and_tried_again() {
    let at = waiting_at();
    let trial = dry_run(refused(), early());
    let first = decide(&at, tried(&trial), early());
    assert_eq!(events(&first), ["PodRefused"]);
    assert!(first.events[0].note.ends_with(": no ServiceAccount"));
    assert_eq!((first.next, first.retry), (Some(at_second(-85)), false));
    let status = first.status.unwrap();
    assert_eq!(reason(&status, POD_ACCEPTED), Some(("False", "PodRefused")));
    assert_eq!(reason(&status, STARTED), None);
    assert_eq!(reason(&status, RECONCILING), None);
    let shown = |status: &AtStatus| (status.reason.clone(), status.message.clone());
    let words = |word: &str| Some(word.to_owned());
    assert_eq!(
        shown(&status),
        (words("PodRefused"), words("no ServiceAccount"))
    );
    let at = tried_at(refused());
    // While the next one is awaited, and when it has the same to say or nothing.
    let again = Trial::new(Some(&trial), Some(1), refused(), None, at_second(-85));
    let silent = Trial::new(
        Some(&trial),
        Some(1),
        Verdict::Unknown,
        None,
        at_second(-85),
    );
    for (trial, second, next) in [(&trial, -89, -85), (&again, -84, -75), (&silent, -84, -75)] {
        let waits = decide(&at, tried(trial), at_second(second));
        assert_eq!((waits.status, waits.events), (None, vec![]));
        assert_eq!(waits.next, Some(at_second(next)));
    }
    let next = decide(&at, tried(&trial), at_second(-85));
    assert!(matches!(next.operation, Operation::DryRun(_)));
    // It succeeds.
    let accepted = dry_run(Verdict::Accepted, early());
    let cured = decide(&at, tried(&accepted), early());
    let status = cured.status.unwrap();
    assert_eq!((shown(&status), cured.events), ((None, None), vec![]));
    assert_eq!(reason(&status, POD_ACCEPTED), None);
    assert_eq!(status.dry_run_generation, Some(1));
    // Nor does an edit that holds it back leave anything of it.
    let mut suspended = at.clone();
    suspended.generation = Some(2);
    suspended.spec.as_mut().unwrap().suspend = Some(true);
    let status = decide(&suspended, tried(&trial), early()).status.unwrap();
    assert_eq!(reason(&status, POD_ACCEPTED), None);
    assert_eq!(shown(&status).0, words("Suspended"));
}

#[test]
fn a_new_process_repeats_a_refused_dry_run_after_the_longest_pause() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().schedule = Some("2027-01-15T09:00:00Z".to_owned());
    at.status = *decide(&at, cached(None), early()).status.unwrap();
    let trial = dry_run(refused(), early());
    at.status = *decide(&at, tried(&trial), early()).status.unwrap();
    let observed = Observed {
        process_start: at_second(0),
        ..cached(None)
    };
    let waits = decide(&at, observed, at_second(1));
    assert_eq!((waits.operation, waits.status), (Operation::Nothing, None));
    let next = at_second(0) + MAX_PAUSE;
    assert_eq!(waits.next, Some(next));
    let tries = decide(&at, observed, next);
    assert!(matches!(tries.operation, Operation::DryRun(_)));
}

#[test]
fn no_pause_between_dry_runs_outlasts_a_clock_that_is_set_back() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().schedule = Some("2027-01-15T09:00:00Z".to_owned());
    at.status = *decide(&at, cached(None), early()).status.unwrap();
    let day = TimeDelta::days(1);
    let trial = dry_run(refused(), early());
    at.status = *decide(&at, tried(&trial), early()).status.unwrap();
    let waits = decide(&at, tried(&trial), early());
    assert_eq!(waits.operation, Operation::Nothing);
    let tries = decide(&at, tried(&trial), early() - day);
    assert!(matches!(tries.operation, Operation::DryRun(_)));
    let observed = Observed {
        process_start: early(),
        ..cached(None)
    };
    let tries = decide(&at, observed, early() - day);
    assert!(matches!(tries.operation, Operation::DryRun(_)));
}

#[test]
fn the_pauses_between_dry_runs_grow_and_are_those_of_one_spec() {
    let mut trial = dry_run(refused(), now());
    let mut pauses = vec![];
    for _ in 0..9 {
        pauses.push((trial.not_before - now()).num_seconds());
        trial = Trial::new(Some(&trial), Some(1), refused(), None, now());
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    let asked = Some(MAX_PAUSE * 2);
    let other = Trial::new(Some(&trial), Some(2), Verdict::Unknown, asked, now());
    assert_eq!(other.not_before, now() + MAX_PAUSE * 2);
    let next = Trial::new(Some(&other), Some(2), refused(), None, now());
    assert_eq!((next.not_before - now()).num_seconds(), 10);
}

#[test]
fn the_start_goes_as_if_there_had_been_no_dry_run() {
    for verdict in [Verdict::Accepted, refused()] {
        let at = tried_at(verdict.clone());
        let trial = dry_run(verdict, early());
        let create = decide(&at, tried(&trial), at_second(0)).operation;
        assert_eq!(create, decide_now(&waiting_at(), cached(None)).operation);
        // A refusal in the same words is one of the start now.
        let refusal = rejected(Call::Create, "no ServiceAccount");
        let decision = call_failed(&at, &refusal, now());
        assert_eq!(
            (events(&decision), decision.retry),
            (vec!["PodRefused"], true)
        );
        let status = decision.status.unwrap();
        assert_eq!(reason(&status, STARTED), Some(("False", "PodRefused")));
        assert_eq!(reason(&status, RECONCILING), Some(("True", "PodRefused")));
        // With the start nothing of it is left, nor with any other end.
        let committed = after_live_read(&at, Some(&gated("p-1"))).status.unwrap();
        let untried = after_live_read(&waiting_at(), Some(&gated("p-1")));
        assert_eq!(committed, untried.status.unwrap());
        let mut late = at.clone();
        late.spec.as_mut().unwrap().starting_deadline_seconds = Some(5);
        let missed = decide_now(&late, cached(None)).status.unwrap();
        assert_eq!(missed.result, Some(Ending::Missed));
        for status in [&status, &missed] {
            assert_eq!(reason(status, POD_ACCEPTED), None);
            assert_eq!(status.dry_run_generation, None);
        }
    }
}

/// Invariants of every step, whatever is observed.
fn hold_invariants(at: &AtView, observed: Observed<'_>, now: DateTime<Utc>, decision: &Decision) {
    let recorded = at.status.pod_uid.as_deref();
    let over = at.phase() == Phase::Done;
    let may_start = Start::check(at, now) == Start::Allowed && !at.deleting;
    let ours = observed.pod.filter(|pod| pod.is_of(UID));
    match &decision.operation {
        Operation::Nothing => {}
        Operation::GetLive => {
            assert!(!observed.live, "looks for ever");
            assert!(decision.status.is_none() && decision.events.is_empty() && decision.again);
        }
        Operation::Create(_) => {
            assert!(may_start && !over && recorded.is_none(), "creates");
            assert!(at.phase() == Phase::Pending && observed.pod.is_none());
            assert!(decision.status.is_none());
        }
        Operation::DryRun(_) => {
            let instant = at.instant().expect("an instant");
            assert!(now + URGENT_BEFORE < instant && !at.deleting, "tries late");
            assert!(at.phase() == Phase::Pending && recorded.is_none() && observed.pod.is_none());
            assert!(decision.status.is_none() && decision.events.is_empty() && decision.again);
        }
        Operation::RemoveGate { uid, gate } => {
            let instant = at.status.scheduled_time.expect("an instant");
            assert!(now >= instant, "releases early");
            let late = at
                .spec
                .as_ref()
                .is_ok_and(|spec| is_too_late(spec, instant, now));
            assert!(!late, "releases too late");
            let pod = observed.pod.expect("a pod to release");
            assert!(!over && !at.deleting && !pod.deleting, "releases");
            assert_eq!((Some(uid.as_str()), uid), (recorded, &pod.uid));
            assert_eq!(pod.gate, Some(*gate));
        }
        Operation::DeletePod(version) => {
            let pod = observed.pod.expect("a pod to delete");
            assert!(observed.live, "deletes what it did not look at");
            assert_eq!(version, &PodVersion::from_pod(pod));
            assert!(pod.gate.is_some() || (!pod.bound && recorded == Some(pod.uid.as_str())));
            assert!(ours.is_some() || recorded == Some(pod.uid.as_str()));
        }
        Operation::DeleteAt => assert!(over && !at.deleting),
    }
    let Some(next) = &decision.status else { return };
    let gated = observed
        .pod
        .is_some_and(|pod| pod.gate.is_some() && Some(&pod.uid) == next.pod_uid.as_ref());
    let starts = reason(next, STARTED).is_some_and(|(is, _)| is == "True") && !at.is_started();
    assert!(!(gated && starts), "says that a gated pod started");
    assert_ne!(**next, at.status, "writes what is there");
    assert_eq!(next.observed_generation, at.generation);
    let next_phase = next.phase.expect("a phase");
    assert!(next_phase as u8 >= at.phase() as u8, "goes back");
    if let Some(uid) = recorded {
        assert_eq!(next.pod_uid.as_deref(), Some(uid), "forgets its pod");
    } else if let Some(run) = observed
        .released
        .filter(|run| Some(&run.uid) == next.pod_uid.as_ref())
        && ours.is_none_or(|pod| pod.uid != run.uid)
    {
        assert!(observed.live && !over && !at.deleting, "commits");
        assert_eq!(reason(next, STARTED), Some(("True", GATE_VIOLATED)));
    } else if let Some(uid) = &next.pod_uid {
        let pod = ours.expect("a pod of ours to record");
        assert!(
            observed.live && &pod.uid == uid && !over && !at.deleting,
            "commits"
        );
        assert_eq!(
            (next_phase, &decision.operation),
            (Phase::Running, &Operation::Nothing)
        );
        if pod.gate.is_some() {
            assert!(may_start && !pod.deleting && is_current(pod, at));
            assert_eq!(pod.may_restart, None);
        } else {
            assert_eq!(reason(next, STARTED), Some(("True", GATE_VIOLATED)));
        }
    }
    if next_phase == Phase::Done && !over {
        assert!(next.result.is_some() && next.completion_time.is_some());
        assert!(reason(next, FINISHED).is_some());
        assert_ne!(
            reason(next, COMPLETE).is_some(),
            reason(next, FAILED).is_some()
        );
    }
    if over {
        assert_eq!(next.result, at.status.result, "rewrites a result");
    }
}

mod model;
mod table;
