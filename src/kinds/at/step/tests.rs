//! What stands beside the rows of the protocol, which `table` holds `step` to: conditions, news,
//! times, and what is rare.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::super::admission::{AtRules, Base};
use super::super::pod::Ended;
use super::*;
use crate::admission::faults::Fault;
use crate::admission::rules::Rules;
use crate::reconcile::Key;

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
    let mut draft = Draft::new(&at, now());
    draft.start(&pod, "Released", "released");
    let status = draft.status;
    at.status = status;
    at
}

fn gated(uid: &str) -> PodView {
    PodView {
        uid: uid.to_owned(),
        resource_version: "5".to_owned(),
        controller: Some((UID.to_owned(), "a".to_owned())),
        gate: Some(0),
        hash: Some(pod::hash(UID, &spec())),
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

fn cached(pod: Option<&PodView>) -> Seen<'_> {
    Seen {
        pod,
        ..Seen::default()
    }
}

fn live(pod: Option<&PodView>) -> Seen<'_> {
    Seen {
        live: true,
        ..cached(pod)
    }
}

fn decide(at: &AtView, seen: Seen<'_>) -> Step {
    step(at, seen, now())
}

/// The live decision, the cached one having asked for a live read.
fn after_look(at: &AtView, pod: Option<&PodView>) -> Step {
    assert_eq!(decide(at, cached(pod)).act, Act::Look);
    decide(at, live(pod))
}

fn delete(pod: &PodView) -> Act {
    Act::DeletePod(Version::of(pod))
}

fn reason<'a>(status: &'a AtStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    condition::get(&status.conditions, type_).map(|c| (c.status.as_str(), c.reason.as_str()))
}

fn told(step: &Step) -> Vec<&'static str> {
    step.news.iter().map(|news| news.reason).collect()
}

#[test]
fn the_tests_speak_of_second_0() {
    assert_eq!(pending_at().instant(), Some(at_second(0)));
}

#[test]
fn what_waits_is_told_its_instant_once_and_then_costs_nothing() {
    let mut at = pending_at();
    let early = at_second(-50);
    let first = step(&at, cached(None), early);
    let status = first.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(status.scheduled_time, Some(at_second(0)));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(reason(&status, ACCEPTED), Some(("True", "Valid")));
    assert_eq!(told(&first), ["Scheduled"]);
    assert_eq!(
        (first.act, first.again, first.next),
        (Act::Nothing, false, Some(at_second(0)))
    );
    at.status = *status;
    let second = step(&at, cached(None), at_second(-40));
    assert_eq!(
        (second.status, second.news, second.next),
        (None, vec![], Some(at_second(0)))
    );
}

#[test]
fn not_a_millisecond_early() {
    let at = pending_at();
    let instant = at.instant().unwrap();
    let early = step(&at, cached(None), instant - TimeDelta::milliseconds(1));
    assert_eq!((early.act, early.next), (Act::Nothing, Some(instant)));
    assert!(matches!(
        step(&at, cached(None), instant).act,
        Act::Create(_)
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
    assert!(matches!(decide(&at, cached(None)).act, Act::Create(_)));
    let kept = refused(&at, "exceeded quota", at_second(12), now());
    assert_eq!(kept.next, Some(at_second(12)));
    at = running_at("p-1");
    at.spec = unlimited;
    let waits = decide(&at, cached(Some(&freed("p-1"))));
    assert_eq!((waits.act, waits.next), (Act::Nothing, None));
    at.status = *decide(&at, cached(Some(&ended("p-1", 0)))).status.unwrap();
    let done = decide(&at, cached(None));
    assert_eq!((done.act, done.next), (Act::Nothing, None));
    // The last instant that can be written down.
    let mut far = pending_at();
    let spec = far.spec.as_mut().unwrap();
    spec.schedule = Some("9999-12-31T23:59:59.999999999Z".to_owned());
    spec.starting_deadline_seconds = Some(i64::MAX);
    let waits = decide(&far, cached(None));
    assert_eq!((waits.act, waits.next), (Act::Nothing, far.instant()));
    assert!(waits.next.is_some());
    let last = far.instant().unwrap();
    assert!(matches!(step(&far, cached(None), last).act, Act::Create(_)));
}

#[test]
fn a_due_at_gets_a_gated_pod_and_no_status_before_the_commit() {
    let step = decide(&pending_at(), cached(None));
    let Act::Create(pod) = &step.act else {
        panic!("{step:?}")
    };
    assert_eq!(pod["metadata"]["name"], "a-pod");
    assert_eq!(pod["spec"]["schedulingGates"][0]["name"], pod::GATE);
    assert_eq!((step.status, step.news, step.again), (None, vec![], true));
}

#[test]
fn the_commit_records_the_uid_and_the_lateness() {
    let step = after_look(&pending_at(), Some(&gated("p-1")));
    assert_eq!((step.act.clone(), step.again), (Act::Nothing, true));
    let status = step.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    assert_eq!(status.pod_name.as_deref(), Some("a-pod"));
    assert_eq!(status.start_time, Some(now()));
    assert_eq!(status.lateness_milliseconds, Some(10_000));
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(reason(&status, RECONCILING), Some(("True", "Running")));
}

#[test]
fn the_recorded_pod_is_released() {
    let step = decide(&running_at("p-1"), cached(Some(&gated("p-1"))));
    let uid = "p-1".to_owned();
    assert_eq!(step.act, Act::Lift { uid, gate: 0 });
    assert_eq!((step.status.clone(), step.again), (None, true));
    assert_eq!(told(&step), ["Started"]);
}

#[test]
fn a_release_long_after_the_commit_corrects_the_start() {
    let at = running_at("p-1");
    let later = step(&at, cached(Some(&gated("p-1"))), at_second(500));
    assert!(matches!(later.act, Act::Lift { .. }));
    let status = later.status.unwrap();
    assert_eq!(status.start_time, Some(at_second(500)));
    assert_eq!(status.lateness_milliseconds, Some(500_000));
}

#[test]
fn a_release_after_the_clock_was_set_back_corrects_the_start() {
    let mut at = running_at("p-1");
    at.status.start_time = Some(at_second(3_600));
    let step = decide(&at, cached(Some(&gated("p-1"))));
    assert!(matches!(step.act, Act::Lift { .. }));
    assert_eq!(step.status.unwrap().start_time, Some(now()));
}

#[test]
fn a_gated_pod_of_an_invalid_object_is_deleted() {
    let pod = gated("p-1");
    let mut invalid = pending_at();
    invalid.spec = Err(vec![Fault::required("spec.command", "")]);
    assert_eq!(after_look(&invalid, Some(&pod)).act, delete(&pod));
}

#[test]
fn an_altered_pod_is_never_released() {
    let mut pod = gated("p-1");
    pod.may_restart = Some("container at has restartPolicyRules".to_owned());
    let step = after_look(&pending_at(), Some(&pod));
    assert_eq!(step.act, delete(&pod));
    let status = step.status.clone().unwrap();
    assert_eq!(status.pod_uid, None);
    assert_eq!(reason(&status, STARTED), Some(("False", "PodAltered")));
    assert_eq!(told(&step), ["PodAltered"]);
}

#[test]
fn a_pod_that_somebody_else_released_is_taken_for_the_run() {
    let step = after_look(&pending_at(), Some(&freed("p-1")));
    assert_eq!(step.act, Act::Nothing);
    let status = step.status.clone().unwrap();
    assert_eq!(
        (status.phase, status.pod_uid.as_deref()),
        (Some(Phase::Running), Some("p-1"))
    );
    assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
    assert_eq!(told(&step), ["GateViolated"]);
    // Also when it was not to start at all.
    let mut at = pending_at();
    at.spec.as_mut().unwrap().suspend = Some(true);
    let status = decide(&at, live(Some(&freed("p-1")))).status.unwrap();
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    // Before the instant there is no lateness to speak of.
    let status = super::step(&pending_at(), live(Some(&freed("p-1"))), at_second(-5))
        .status
        .unwrap();
    assert_eq!(status.lateness_milliseconds, None);
}

#[test]
fn a_strangers_pod_is_left_alone_and_looked_at_again() {
    let mut at = pending_at();
    for controller in [None, Some(("at-2".to_owned(), "a".to_owned()))] {
        let pod = PodView {
            controller,
            ..gated("p-9")
        };
        let step = after_look(&at, Some(&pod));
        assert_eq!(
            (step.act.clone(), step.next),
            (Act::Nothing, Some(at_second(70)))
        );
        let status = step.status.clone().unwrap();
        assert_eq!(reason(&status, STARTED), Some(("False", "NameConflict")));
        assert_eq!(told(&step), ["NameConflict"]);
    }
    // Told once; the next look is a read and not an attempt to create.
    let pod = PodView {
        controller: None,
        ..gated("p-9")
    };
    at.status = *decide(&at, live(Some(&pod))).status.unwrap();
    assert_eq!(decide(&at, cached(None)).act, Act::Look);
    let again = decide(&at, live(Some(&pod)));
    assert_eq!((again.status, again.news), (None, vec![]));
    // Not before the pause that the looks in vain have come to.
    let hold = Some(at_second(12));
    for seen in [cached(None), cached(Some(&pod)), live(Some(&pod))] {
        let pause = decide(&at, Seen { hold, ..seen });
        assert_eq!(
            (pause.act, pause.again, pause.next),
            (Act::Nothing, false, hold)
        );
    }
    assert!(matches!(decide(&at, live(None)).act, Act::Create(_)));
}

#[test]
fn a_release_that_is_refused_is_told_until_it_is_made() {
    let mut at = running_at("p-1");
    let hold = at_second(12);
    let step = unreleased(&at, "a policy says no", hold, now());
    assert_eq!((step.act.clone(), step.next), (Act::Nothing, Some(hold)));
    assert_eq!(told(&step), ["ReleaseRefused"]);
    let status = step.status.unwrap();
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
    let again = unreleased(&at, "a policy says no", hold, now());
    assert_eq!((again.status, again.news), (None, vec![]));
    // The deadline is obeyed.
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(11);
    let step = unreleased(&at, "a policy says no", hold, now());
    assert_eq!(step.next, Some(at_second(11) + TimeDelta::milliseconds(1)));
    at.spec.as_mut().unwrap().starting_deadline_seconds = None;
    // Nothing is tried before the pause is over, whatever wakes us.
    let pod = gated("p-1");
    let waits = Seen {
        hold: Some(hold),
        ..cached(Some(&pod))
    };
    let step = decide(&at, waits);
    assert_eq!(
        (step.act, step.status, step.next),
        (Act::Nothing, None, Some(hold))
    );
    // A release whose answer was lost is recorded when it is seen.
    let seen = freed("p-1");
    let status = decide(&at, cached(Some(&seen))).status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(status.start_time, Some(now()));
    let status = decide(&at, cached(Some(&ended("p-1", 0)))).status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    assert_eq!(status.result, Some(Ending::Succeeded));
    // The release takes it back.
    let step = decide(&at, cached(Some(&gated("p-1"))));
    assert!(matches!(step.act, Act::Lift { .. }));
    let status = step.status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "Released")));
    at.status = *status;
    let status = decide(&at, cached(Some(&freed("p-1")))).status.unwrap();
    assert_eq!((status.reason, status.message), (None, None));
}

#[test]
fn a_lost_pod_leaves_the_reason_of_its_disruption() {
    let last = Last {
        pod: PodView {
            reason: "EvictionByEvictionAPI".to_owned(),
            message: "Eviction API: evicting".to_owned(),
            ..freed("p-1")
        },
        certain: true,
    };
    let seen = Seen {
        last: Some(&last),
        ..live(None)
    };
    let status = decide(&running_at("p-1"), seen).status.unwrap();
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
    assert!(matches!(decide(&at, cached(None)).act, Act::Create(_)));
    let late = step(&at, cached(None), now() + TimeDelta::milliseconds(1));
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
    assert_eq!(told(&late), ["Missed"]);
}

#[test]
fn what_kept_a_missed_at_from_starting_is_told_for_good() {
    let mut at = pending_at();
    at.status = *refused(&at, "exceeded quota", at_second(12), now())
        .status
        .unwrap();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(9);
    let message = decide(&at, cached(None)).status.unwrap().message.unwrap();
    assert!(
        message.ends_with("what kept it: PodRefused: exceeded quota"),
        "{message}"
    );
}

#[test]
fn a_pod_without_our_annotation_was_altered() {
    let mut pod = gated("p-1");
    pod.hash = None;
    let step = after_look(&pending_at(), Some(&pod));
    assert_eq!(step.act, delete(&pod));
    let status = step.status.unwrap();
    assert_eq!(reason(&status, STARTED), Some(("False", "PodAltered")));
}

#[test]
fn a_release_after_the_deadline_is_not_made() {
    let mut at = running_at("p-1");
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(10);
    let pod = gated("p-1");
    let later = at_second(11);
    assert_eq!(step(&at, cached(Some(&pod)), later).act, Act::Look);
    let missed = step(&at, live(Some(&pod)), later);
    assert_eq!(missed.act, delete(&pod));
    let status = missed.status.unwrap();
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
    // One that was released in time goes on.
    assert_eq!(
        step(&at, live(Some(&freed("p-1"))), later).act,
        Act::Nothing
    );
}

#[test]
fn a_pod_that_does_not_go_away_does_not_stop_the_deadline() {
    let mut at = pending_at();
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(30);
    let held = PodView {
        deleting: true,
        ..gated("p-1")
    };
    let waits = after_look(&at, Some(&held));
    let too_late = at_second(30) + TimeDelta::milliseconds(1);
    assert_eq!((waits.act, waits.next), (Act::Nothing, Some(too_late)));
    let status = step(&at, live(Some(&held)), too_late).status.unwrap();
    assert_eq!(status.result, Some(Ending::Missed));
}

#[test]
fn suspending_holds_whatever_the_deadline_says() {
    let mut at = pending_at();
    let spec = at.spec.as_mut().unwrap();
    spec.suspend = Some(true);
    spec.starting_deadline_seconds = Some(1);
    let step = decide(&at, cached(None));
    assert_eq!((step.act, step.next), (Act::Nothing, None));
    let status = step.status.unwrap();
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
    let step = decide(&at, cached(None));
    assert_eq!(
        (step.act.clone(), step.next, step.again),
        (Act::Nothing, None, false)
    );
    assert_eq!(told(&step), ["Invalid"]);
    let status = step.status.unwrap();
    let accepted = condition::get(&status.conditions, ACCEPTED).unwrap();
    assert_eq!(
        (accepted.status.as_str(), accepted.message.as_str()),
        ("False", join(&faults).as_str())
    );
    assert_eq!(reason(&status, STALLED), Some(("True", "Invalid")));
    at.status = *status;
    let again = decide(&at, cached(None));
    assert_eq!((again.status, again.news), (None, vec![]));
    // Once it is cured, it is as if nothing had been.
    at.spec = Ok(spec());
    let cured = super::step(&at, cached(None), at_second(-9))
        .status
        .unwrap();
    assert_eq!(reason(&cured, ACCEPTED), Some(("True", "Valid")));
    assert_eq!(reason(&cured, STALLED), None);
}

#[test]
fn the_run_of_an_object_that_became_invalid_is_still_followed() {
    let mut at = running_at("p-1");
    at.spec = Err(vec![Fault::required("spec.command", "")]);
    let status = decide(&at, cached(Some(&ended("p-1", 0)))).status.unwrap();
    assert_eq!(status.result, Some(Ending::Succeeded));
    assert_eq!(reason(&status, ACCEPTED), Some(("False", "Invalid")));
}

#[test]
fn the_end_of_the_pod_is_the_result() {
    for (code, result, event) in [
        (0, Ending::Succeeded, "Completed"),
        (3, Ending::Failed, "Failed"),
    ] {
        let step = super::step(
            &running_at("p-1"),
            cached(Some(&ended("p-1", code))),
            at_second(30),
        );
        let status = step.status.clone().unwrap();
        assert_eq!(
            (status.phase, status.result),
            (Some(Phase::Done), Some(result))
        );
        assert_eq!(status.exit_code, Some(code));
        assert_eq!(status.completion_time, Some(at_second(15)));
        assert_eq!(told(&step), [event]);
        let type_ = if code == 0 { COMPLETE } else { FAILED };
        assert!(reason(&status, type_).is_some() && reason(&status, FINISHED).is_some());
        assert_eq!(reason(&status, RECONCILING), None);
        assert_eq!(reason(&status, STALLED).is_some(), code != 0);
    }
}

#[test]
fn a_nodes_wrong_clock_does_not_end_a_run_before_its_start() {
    let status = decide(&running_at("p-1"), cached(Some(&ended("p-1", 0))))
        .status
        .unwrap();
    assert_eq!(status.completion_time, Some(now()));
}

#[test]
fn a_lost_pod_is_unknown_and_never_run_again() {
    let at = running_at("p-1");
    let lost = after_look(&at, None);
    let status = lost.status.clone().unwrap();
    assert_eq!(
        (status.phase, status.result),
        (Some(Phase::Done), Some(Ending::Unknown))
    );
    assert_eq!(status.reason.as_deref(), Some("PodLost"));
    assert_eq!(told(&lost), ["Failed"]);
    // Another pod under the name means the same.
    for other in [gated("p-2"), freed("p-2"), ended("p-2", 0)] {
        let status = after_look(&at, Some(&other)).status.unwrap();
        assert_eq!(status.result, Some(Ending::Unknown));
    }
}

#[test]
fn what_the_watch_saw_of_a_deleted_pod_counts() {
    let at = running_at("p-1");
    let with = |pod: PodView, certain: bool| {
        let last = Last { pod, certain };
        let seen = Seen {
            last: Some(&last),
            ..live(None)
        };
        let status = decide(&at, seen).status.unwrap();
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
    let status = after_look(&running_at("p-1"), Some(&pod)).status.unwrap();
    assert_eq!(
        (status.result, status.reason.as_deref()),
        (Some(Ending::Unknown), Some("NeverStarted"))
    );
    assert_eq!(reason(&status, STARTED), Some(("False", "NeverStarted")));
}

#[test]
fn what_keeps_a_released_pod_from_running_is_told_once() {
    let waiting = |reason: &str, message: &str| PodView {
        waiting: Some(Box::new(Waiting {
            reason: reason.to_owned(),
            message: message.to_owned(),
        })),
        ..freed("p-1")
    };
    let shown = |status: &AtStatus| (status.reason.clone(), status.message.clone());
    let mut at = running_at("p-1");
    let first = decide(&at, cached(Some(&waiting("Unschedulable", "0/3 nodes"))));
    assert_eq!((first.act.clone(), first.again), (Act::Nothing, false));
    assert_eq!(told(&first), ["PodWaiting"]);
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
    // Other words for the same reason are no news, and no write.
    let again = decide(&at, cached(Some(&waiting("Unschedulable", "0/4 nodes"))));
    assert_eq!((again.status, again.news), (None, vec![]));
    let other = decide(&at, cached(Some(&waiting("ImagePullBackOff", "no image"))));
    assert_eq!(told(&other), ["PodWaiting"]);
    at.status = *other.status.unwrap();
    let runs = decide(&at, cached(Some(&freed("p-1"))));
    let status = runs.status.unwrap();
    assert_eq!((shown(&status), runs.news), ((None, None), vec![]));
    assert_eq!(reason(&status, RECONCILING), Some(("True", "Running")));
}

#[test]
fn what_keeps_it_from_starting_stands_where_kubectl_get_shows_it() {
    let mut at = pending_at();
    let shown = |status: &AtStatus| status.reason.clone();
    let why = "exceeded quota";
    at.status = *refused(&at, why, now(), now()).status.unwrap();
    assert_eq!(shown(&at.status), Some("PodRefused".into()));
    assert_eq!(at.status.message.as_deref(), Some(why));
    // It is taken back when something else is the case, and when the command starts.
    let mut suspended = at.clone();
    suspended.spec.as_mut().unwrap().suspend = Some(true);
    let status = decide(&suspended, cached(None)).status.unwrap();
    assert_eq!(shown(&status), Some("Suspended".into()));
    let status = step(&at, cached(None), at_second(-5)).status.unwrap();
    assert_eq!((shown(&status), status.message), (None, None));
    let started = after_look(&at, Some(&gated("p-1"))).status.unwrap();
    assert_eq!(
        (started.phase, shown(&started)),
        (Some(Phase::Running), None)
    );
}

#[test]
fn a_late_pod_that_somebody_released_is_told() {
    let mut at = running_at("p-1");
    at.status = *decide(&at, cached(Some(&ended("p-1", 0)))).status.unwrap();
    let step = after_look(&at, Some(&freed("p-2")));
    let status = step.status.clone().unwrap();
    assert_eq!(reason(&status, STARTED), Some(("True", "GateViolated")));
    assert_eq!(status.pod_uid.as_deref(), Some("p-1"));
    at.status = *status;
    assert_eq!(decide(&at, cached(Some(&freed("p-2")))).act, Act::Nothing);
}

#[test]
fn a_pod_that_no_node_takes_is_ended_after_its_active_deadline() {
    let mut at = running_at("p-1");
    at.spec.as_mut().unwrap().active_deadline_seconds = Some(30);
    let pod = freed("p-1");
    let waiting = decide(&at, cached(Some(&pod)));
    assert_eq!(
        (waiting.act, waiting.next),
        (Act::Nothing, Some(at_second(40)))
    );
    let end = step(&at, live(Some(&pod)), at_second(40));
    assert_eq!(end.act, delete(&pod));
    let status = end.status.unwrap();
    assert_eq!(
        (status.result, status.reason.as_deref()),
        (Some(Ending::Failed), Some("DeadlineExceeded"))
    );
    // From here on it is the kubelet's task.
    let taken = PodView {
        taken: true,
        ..freed("p-1")
    };
    assert_eq!(
        step(&at, live(Some(&taken)), at_second(400)).act,
        Act::Nothing
    );
}

#[test]
fn a_finished_object_is_deleted_after_its_ttl() {
    let mut at = running_at("p-1");
    at.status = *decide(&at, cached(Some(&ended("p-1", 0)))).status.unwrap();
    let pod = ended("p-1", 0);
    assert_eq!(decide(&at, cached(Some(&pod))).next, None);
    at.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(60);
    let waiting = decide(&at, cached(Some(&pod)));
    assert_eq!(
        (waiting.act, waiting.next),
        (Act::Nothing, Some(at_second(70)))
    );
    assert_eq!(
        step(&at, cached(Some(&pod)), at_second(70)).act,
        Act::DeleteAt
    );
    at.deleting = true;
    assert_eq!(
        step(&at, cached(Some(&pod)), at_second(70)).act,
        Act::Nothing
    );
}

#[test]
fn a_refused_pod_is_told_and_tried_again_within_the_deadline() {
    let mut at = pending_at();
    let hold = at_second(12);
    let step = refused(&at, "exceeded quota", hold, now());
    assert_eq!((step.act.clone(), step.next), (Act::Nothing, Some(hold)));
    let status = step.status.clone().unwrap();
    assert_eq!(reason(&status, STARTED), Some(("False", "PodRefused")));
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(told(&step), ["PodRefused"]);
    at.status = *status;
    let seen = Seen {
        hold: Some(hold),
        ..cached(None)
    };
    let kept = decide(&at, seen);
    assert_eq!(
        (kept.act, kept.status, kept.next),
        (Act::Nothing, None, Some(hold))
    );
    assert!(matches!(super::step(&at, seen, hold).act, Act::Create(_)));
    at.spec.as_mut().unwrap().starting_deadline_seconds = Some(11);
    let kept = decide(&at, seen);
    assert_eq!(kept.next, Some(at_second(11) + TimeDelta::milliseconds(1)));
}

/// What holds of every step, whatever is seen.
fn hold_invariants(at: &AtView, seen: Seen<'_>, now: DateTime<Utc>, step: &Step) {
    let recorded = at.status.pod_uid.as_deref();
    let over = at.phase() == Phase::Done;
    let may_go_on = may_go_on(at, now) == Go::Yes && !at.deleting;
    let ours = seen.pod.filter(|pod| pod.is_of(UID));
    match &step.act {
        Act::Nothing => {}
        Act::Look => {
            assert!(!seen.live, "looks for ever");
            assert!(step.status.is_none() && step.news.is_empty() && step.again);
        }
        Act::Create(_) => {
            assert!(may_go_on && !over && recorded.is_none(), "creates");
            assert!(at.phase() == Phase::Pending && seen.pod.is_none());
            assert!(seen.hold.is_none_or(|hold| hold <= now));
            assert!(step.status.is_none());
        }
        Act::Lift { uid, gate } => {
            let instant = at.status.scheduled_time.expect("an instant");
            assert!(now >= instant, "releases early");
            let late = at
                .spec
                .as_ref()
                .is_ok_and(|spec| is_too_late(spec, instant, now));
            assert!(!late, "releases too late");
            let pod = seen.pod.expect("a pod to release");
            assert!(!over && !at.deleting && !pod.deleting, "releases");
            assert_eq!((Some(uid.as_str()), uid), (recorded, &pod.uid));
            assert_eq!(pod.gate, Some(*gate));
        }
        Act::DeletePod(version) => {
            let pod = seen.pod.expect("a pod to delete");
            assert!(seen.live, "deletes what it did not look at");
            assert_eq!(version, &Version::of(pod));
            assert!(pod.gate.is_some() || (!pod.taken && recorded == Some(pod.uid.as_str())));
            assert!(ours.is_some() || recorded == Some(pod.uid.as_str()));
        }
        Act::DeleteAt => assert!(over && !at.deleting),
    }
    let Some(next) = &step.status else { return };
    assert_ne!(**next, at.status, "writes what is there");
    assert_eq!(next.observed_generation, at.generation);
    let next_phase = next.phase.expect("a phase");
    assert!(next_phase as u8 >= at.phase() as u8, "goes back");
    if let Some(uid) = recorded {
        assert_eq!(next.pod_uid.as_deref(), Some(uid), "forgets its pod");
    } else if let Some(uid) = &next.pod_uid {
        let pod = ours.expect("a pod of ours to record");
        assert!(
            seen.live && &pod.uid == uid && !over && !at.deleting,
            "commits"
        );
        assert_eq!((next_phase, &step.act), (Phase::Running, &Act::Nothing));
        if pod.gate.is_some() {
            assert!(may_go_on && !pod.deleting && is_current(pod, at));
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
