#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::decide::observed::{ByCause, InDomain};
use crate::decide::placement::Obstacle;
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

/// A roll-out of revision `new`, which is stored, in place of `old`.
pub(crate) fn input<'a>(
    previous: &'a MyDaemonSetStatus,
    observed: &'a Observed,
) -> StatusInput<'a> {
    StatusInput {
        previous,
        generation: Some(2),
        observed,
        strategy: strategy(),
        update: "new",
        undo: Undo::No,
        frozen: None,
        current: "old",
        stored: true,
        refusal: None,
        now: at(2),
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
        strategy,
        current,
        now: at(now),
        ..input(previous, observed)
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
        generation: Some(3),
        update: "newer",
        stored: false,
        refusal: Some(&refusal),
        ..input(previous, &under_way())
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

/// The Events of a revision that was not the newest before.
fn events(before: &MyDaemonSetStatus, after: &MyDaemonSetStatus) -> Vec<NewEvent> {
    super::events(before, after, None)
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
        let canaries = status.canary_nodes.join(" ");
        assert!(is_on_canaries(&status) || canaries.is_empty());
        let on = is_on_canaries(&status).then_some(canaries);
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
        frozen: Some(Frozen {
            freeze: Freeze::Deletions,
            own: Some("by me"),
            of_namespace: None,
            is_settled: true,
        }),
        ..input(&none(), &soaks)
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
            frozen: Some(Frozen {
                freeze: Freeze::Deletions,
                own: None,
                of_namespace: None,
                is_settled: false,
            }),
            ..input(previous, &observed)
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
        excluded: [
            (Obstacle::NodeSelector, node_selector),
            (Obstacle::Taint, taint),
        ]
        .into_iter()
        .filter(|(_, nodes)| *nodes > 0)
        .collect(),
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
            update,
            current: update,
            ..input(&status, &observed)
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
        current: "new",
        refusal: Some(&refusal),
        ..input(&done, &complete(3))
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
        undo,
        ..input(previous, observed)
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
        excluded: [(Obstacle::NodeSelector, 4)].into(),
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
    let text = "no node is eligible for revision old (nodeSelector does not match: 4): the pods on 4 nodes stay until the template changes or ";
    assert!(progressing(&back).starts_with(text));
    assert_eq!(resumable(&back, "new"), Some("old"));
    let rolling = next_back(&failed, &under_way(), Undo::To("old"));
    assert_eq!(resumable(&rolling, "new"), Some("new"));
}

#[test]
fn a_freeze_is_acknowledged_when_nothing_can_come_late() {
    let frozen = |previous: &MyDaemonSetStatus, own: Option<&str>, is_settled| {
        next(&StatusInput {
            frozen: Some(Frozen {
                freeze: Freeze::Deletions,
                own,
                of_namespace: None,
                is_settled,
            }),
            ..input(
                previous,
                &Observed {
                    held: 2,
                    ..under_way()
                },
            )
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
            frozen: Some(frozen),
            ..input(&none(), &under_way())
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
    let returned = |before: &MyDaemonSetStatus, since| -> Vec<_> {
        let events = super::events(before, &done, Some(at(since))).into_iter();
        events.map(|event| event.reason).collect()
    };
    assert_eq!(returned(&back, 15), ["RolloutComplete"]);
    assert_eq!(returned(&back, 10), ["RolloutComplete"]);
    assert_eq!(returned(&back, 9), [""; 0], "a node joined");
    assert_eq!(returned(&done, 15), [""; 0]);
    let first = MyDaemonSetStatus {
        current_revision: None,
        ..back
    };
    assert_eq!(returned(&first, 15), [""; 0], "none was complete before");
}

#[test]
fn a_return_after_a_way_back_is_at_its_end_at_once_and_has_one_event() {
    let failed = MyDaemonSetStatus {
        current_revision: Some("new".into()),
        update_revision: Some("bad".into()),
        ..none()
    };
    let reasons = |before: &MyDaemonSetStatus, after: &MyDaemonSetStatus, since| -> Vec<_> {
        let events = super::events(before, after, Some(at(since))).into_iter();
        events.map(|event| event.reason).collect()
    };
    let way_back = |previous: &MyDaemonSetStatus, observed: &Observed| {
        next(&StatusInput {
            update: "bad",
            undo: Undo::To("new"),
            ..input(previous, observed)
        })
    };
    let goes = way_back(&failed, &under_way());
    let went = way_back(&goes, &complete(3));
    assert_eq!((state(&goes), state(&went)), (ROLLING_BACK, ROLLED_BACK));
    assert_eq!(reasons(&goes, &went, 1), ["RolledBack"]);
    for before in [&goes, &went] {
        let done = next_of(before, &complete(3), strategy(), "new", 20);
        let expected = ["RolloutStarted", "RolloutComplete"];
        assert_eq!(reasons(before, &done, 20), expected);
        let later = next_of(&done, &complete(4), strategy(), "new", 30);
        assert_eq!(reasons(&done, &later, 20), [""; 0]);
    }
}

#[test]
fn a_malformed_status_is_treated_as_empty() {
    for raw in ["null", "7", r#"{"conditions": 5}"#, "{}"] {
        assert_eq!(read(&serde_json::from_str(raw).unwrap()), none(), "{raw}");
    }
}
