//! The canary before a roll-out.

use super::*;
use crate::decide::observed::OnCanary;
use crate::observe::pod::Restart;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn in_zone(name: &str, zone: &str) -> NodeView {
    NodeView {
        labels: Labels::from_iter([("topology.kubernetes.io/zone", zone)]),
        ..node(name)
    }
}

/// Four nodes in two zones, which may all be unavailable, and a canary of that many for ten minutes.
fn trial(canaries: u32, pods: Vec<PodView>) -> World {
    let zones = ["1", "1", "2", "2"];
    let nodes = NAMES.iter().zip(zones);
    let nodes = nodes.map(|(name, zone)| in_zone(name, zone));
    let mut world = world(nodes.collect(), pods);
    world.strategy.max_unavailable = Amount::Nodes(4);
    world.canary = Some(Canary {
        nodes: Amount::Nodes(canaries),
        selector: BTreeMap::new(),
        soak: TimeDelta::minutes(10),
        manual: false,
    });
    world
}

fn all_old() -> Vec<PodView> {
    NAMES.map(|name| ready(name, "old")).to_vec()
}

/// Pods of which those on the first node of each zone are of the newest revision, and Ready for that many seconds.
fn tried(seconds: i64) -> Vec<PodView> {
    let new = |name| PodView {
        ready_since: Some(at(NOW - seconds)),
        ..ready(name, "new")
    };
    vec![new("a"), ready("b", "old"), new("c"), ready("d", "old")]
}

fn observed(decision: &Decision) -> OnCanary {
    decision.observed.canary.clone().unwrap()
}

fn canaries(decision: &Decision) -> Vec<String> {
    let canary = observed(decision);
    canary.nodes.iter().map(ToString::to_string).collect()
}

#[test]
fn only_the_canaries_get_the_revision_at_first_one_in_each_zone() {
    for (count, chosen) in [
        (1, vec!["a"]),
        (2, vec!["a", "c"]),
        (3, vec!["a", "b", "c"]),
        (9, NAMES.to_vec()),
    ] {
        let decision = trial(count, all_old()).decide();
        assert_eq!(canaries(&decision), chosen);
        let gone: Vec<_> = chosen.iter().map(|n| format!("{n}-old outdated")).collect();
        assert_eq!(deleted(&decision), gone);
        assert_eq!(decision.observed.held, 4 - chosen.len());
    }
    let mut share = trial(1, all_old());
    share.canary.as_mut().unwrap().nodes = Amount::Percent(26);
    assert_eq!(canaries(&share.decide()), ["a", "c"]);
    // The limits hold for the canaries too.
    share.strategy.max_unavailable = Amount::Nodes(1);
    assert_eq!(deleted(&share.decide()), ["a-old outdated"]);
    share.strategy.max_surge = Amount::Nodes(4);
    let surge = share.decide();
    assert_eq!(created(&surge), ["a/new", "c/new"]);
    assert_eq!(deleted(&surge), NOTHING);
}

#[test]
fn the_soak_begins_when_the_last_canary_is_available_and_again_at_a_restart() {
    let mut world = trial(2, tried(100));
    let waits = |world: &World, seconds: i64| {
        let decision = world.decide();
        let until = Some(at(NOW + seconds));
        assert_eq!(
            (decision.next, observed(&decision).soaks_until),
            (until, until)
        );
        assert!(!observed(&decision).passed);
        assert_eq!(deleted(&decision), NOTHING);
    };
    waits(&world, 500);
    world.pods[0].ready_since = Some(at(NOW - 599));
    waits(&world, 500);
    world.strategy.min_ready = TimeDelta::seconds(20);
    waits(&world, 520);
    // It was Ready all the time.
    world.pods[0].last_restart = Some(Restart {
        count: 1,
        at: at(NOW - 50),
    });
    waits(&world, 570);
    world.pods[2].ready_since = None;
    let decision = world.decide();
    let canary = observed(&decision);
    assert_eq!((canary.soaks_until, canary.passed), (None, false));
    assert_eq!(canary.missing.to_string(), "c (no available pod)");
    assert_eq!(deleted(&decision), NOTHING);
}

#[test]
fn the_others_follow_once_the_status_says_that_the_canaries_have_soaked() {
    let mut world = trial(2, tried(600));
    let decision = world.decide();
    assert!(observed(&decision).passed);
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.next, None);
    world.canary = None;
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["b-old outdated", "d-old outdated"]);
    assert_eq!(decision.observed.canary, None);
}

#[test]
fn a_user_ends_a_canary_whether_or_not_it_has_soaked() {
    for (seconds, manual, approved, soaked, passed) in [
        (600, true, false, true, false),
        (600, true, true, true, true),
        (100, true, true, false, true),
        (100, false, true, false, true),
        (100, true, false, false, false),
    ] {
        let mut world = trial(2, tried(seconds));
        world.canary.as_mut().unwrap().manual = manual;
        world.approved = approved.then_some("new");
        let canary = observed(&world.decide());
        assert_eq!((canary.soaked, canary.passed), (soaked, passed));
    }
}

#[test]
fn a_node_that_joins_during_a_canary_gets_the_older_revision() {
    let mut world = trial(1, tried(100));
    world.nodes.push(NodeView {
        created: at(NOW - 50),
        ..node("0")
    });
    assert_eq!(created(&world.decide()), ["0/old"]);
    // Nor does it take the place of a canary, once it has a pod.
    world.pods = all_old();
    world.pods.push(ready("0", "old"));
    assert_eq!(canaries(&world.decide()), ["a"]);
    world.canary = None;
    world.pods.truncate(4);
    assert_eq!(created(&world.decide()), ["0/new"]);
}

#[test]
fn canaries_stay_canaries_and_those_that_leave_are_replaced() {
    // `b` has it, though `a` comes first.
    let mut pods = all_old();
    pods[1] = ready("b", "new");
    let mut world = trial(1, pods);
    assert_eq!(canaries(&world.decide()), ["b"]);
    // It has lost its pod, and is to get it again.
    world.pods.remove(1);
    let last = Last {
        revision: "new".into(),
        ..Last::default()
    };
    world.memory.insert("b".into(), last);
    let decision = world.decide();
    assert_eq!(canaries(&decision), ["b"]);
    assert_eq!(created(&decision), ["b/new"]);
    world.pods.push(ready("b", "new"));
    world.nodes[1] = NodeView {
        labels: world.nodes[1].labels.clone(),
        ..not_ready("b", 500)
    };
    let decision = world.decide();
    assert_eq!(canaries(&decision), ["b"], "it may come back");
    assert_eq!(observed(&decision).missing.to_string(), "b (NotReady)");
    world.nodes.remove(1);
    assert_eq!(canaries(&world.decide()), ["a"]);
    world.nodes[0].in_maintenance = true;
    assert_eq!(canaries(&world.decide()), ["c"]);
    world.nodes[0].in_maintenance = false;
    world.nodes[0].cordoned = true;
    assert_eq!(canaries(&world.decide()), ["c"]);
    world.pods[1].ready_since = None;
    assert_eq!(world.pods[1].node, "c");
    assert_eq!(canaries(&world.decide()), ["d"], "the pod on c says little");
}

#[test]
fn the_canaries_of_a_revision_that_was_given_up_come_first() {
    let mut pods = all_old();
    pods[1] = pod("b", "middle");
    let mut world = trial(1, pods);
    let decision = world.decide();
    assert_eq!(canaries(&decision), ["b"]);
    assert_eq!(deleted(&decision), ["b-middle outdated"]);
    // Its pod is gone, and the next one is to be of the newest revision.
    world.pods.remove(1);
    let last = Last {
        revision: "middle".into(),
        ..Last::default()
    };
    world.memory.insert("b".into(), last);
    assert_eq!(canaries(&world.decide()), ["b"]);
}

#[test]
fn the_partition_holds_canaries_too() {
    let mut world = trial(2, all_old());
    world.strategy.partition = 3;
    let decision = world.decide();
    assert_eq!(canaries(&decision), ["a"]);
    assert_eq!(deleted(&decision), ["a-old outdated"]);
    assert!(!observed(&decision).is_partitioned);
    world.strategy.partition = 4;
    let decision = world.decide();
    assert_eq!(canaries(&decision), NOTHING);
    assert_eq!(deleted(&decision), NOTHING);
    assert!(observed(&decision).is_partitioned);
    world.strategy.partition = 0;
    world.strategy.paused = true;
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn where_no_node_fits_the_selector_only_a_user_ends_the_canary() {
    let mut world = trial(1, all_old());
    let zone = |zone: &str| [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())];
    world.canary.as_mut().unwrap().selector = zone("2").into();
    assert_eq!(canaries(&world.decide()), ["c"]);
    world.canary.as_mut().unwrap().selector = zone("3").into();
    let decision = world.decide();
    assert_eq!(canaries(&decision), NOTHING);
    assert_eq!(deleted(&decision), NOTHING);
    assert!(!observed(&decision).passed);
    world.approved = Some("new");
    assert!(observed(&world.decide()).passed);
    // Nothing is left to protect.
    world.approved = None;
    world.pods = NAMES.map(|name| ready(name, "new")).to_vec();
    assert!(observed(&world.decide()).passed);
}

#[test]
fn when_a_canary_fails_the_roll_out_stops() {
    let mut pods = all_old();
    pods[0] = failed("a", "new", 1, 0);
    let mut world = trial(1, pods);
    assert!(world.decide().observed.auto_paused);
    world.canary.as_mut().unwrap().nodes = Amount::Nodes(2);
    assert!(world.decide().observed.auto_paused, "one of two");
    let auto_pause = world.strategy.auto_pause.as_mut().unwrap();
    auto_pause.max_failures = Some(2);
    assert!(!world.decide().observed.auto_paused, "as the user says");
    world.strategy.auto_pause.as_mut().unwrap().max_failures = None;
    world.canary = None;
    assert!(!world.decide().observed.auto_paused);
}

#[test]
fn a_revision_that_was_completed_before_and_one_under_on_delete_have_no_canary() {
    let mut world = trial(1, all_old());
    world.current = "new";
    let decision = world.decide();
    assert_eq!(decision.observed.canary, None);
    assert_eq!(decision.delete.len(), 4);
    world.current = "old";
    world.strategy.on_delete = true;
    assert_eq!(world.decide().observed.canary, None);
}

#[test]
fn a_roll_out_is_not_complete_before_its_canary_is() {
    let mut world = trial(9, NAMES.map(|name| ready(name, "new")).to_vec());
    world.canary.as_mut().unwrap().soak = TimeDelta::minutes(20);
    assert!(!world.decide().observed.complete);
    world.canary = None;
    assert!(world.decide().observed.complete);
}

/// Otherwise it would get its former revision again and again.
#[test]
fn a_node_that_joined_stays_a_canary_when_its_pod_of_another_revision_is_gone() {
    let mut world = trial(4, all_old());
    world.nodes[3].created = at(NOW - 50);
    assert_eq!(canaries(&world.decide()), NAMES);
    world.pods.pop();
    let last = Last {
        revision: "old".into(),
        ..Last::default()
    };
    world.memory.insert("d".into(), last);
    let decision = world.decide();
    assert_eq!(canaries(&decision), NAMES);
    assert_eq!(created(&decision), ["d/new"]);
}

#[test]
fn a_canary_that_fails_at_any_time_of_its_soak_stops_the_roll_out() {
    let mut world = trial(1, all_old());
    world.pods[0] = PodView {
        created: at(NOW - 1_500),
        ..crashing("a", "new")
    };
    assert!(
        !world.decide().observed.auto_paused,
        "it had soaked, and the window is over"
    );
    world.canary.as_mut().unwrap().soak = TimeDelta::minutes(30);
    assert!(world.decide().observed.auto_paused);
}

#[test]
fn a_revision_that_no_node_takes_at_the_moment_does_not_pass() {
    let mut world = trial(1, all_old());
    for node in &mut world.nodes {
        node.taints = tainted("any", "key", "NoSchedule").taints;
    }
    let canary = observed(&world.decide());
    assert!(canary.nodes.is_empty() && !canary.passed, "{canary:?}");
}

#[test]
fn what_stands_passes_no_canary() {
    let mut world = trial(1, tried(10_000));
    assert!(observed(&world.decide()).passed);
    world.freeze = Some(Freeze::Deletions);
    assert!(!observed(&world.decide()).passed);
    world.freeze = None;
    world.auto_paused = true;
    world.failed_nodes = vec![FailedNode {
        name: "a".to_owned(),
        reason: "Error".to_owned(),
    }];
    world.approved = Some("new");
    let decision = world.decide();
    assert!(decision.observed.auto_paused);
    assert!(!observed(&decision).passed);
}
