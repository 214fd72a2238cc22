//! Cases of the unit tests of Kubernetes' own controller that no other test here has. docs/mydaemonset/checklist.md
//! lists all of them.

use super::*;

fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number:02}")).collect()
}

fn all_of(names: &[String]) -> Vec<NodeView> {
    names.iter().map(|name| node(name)).collect()
}

#[test]
fn without_nodes_nothing_is_done() {
    let decision = world(vec![], vec![]).decide();
    assert_eq!(created(&decision), NOTHING);
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.observed.desired, 0);
    assert!(decision.observed.complete);
}

#[test]
fn a_node_that_is_not_ready_gets_its_pod() {
    let all = vec![not_ready("a", 5), not_ready("b", 5_000)];
    let decision = world(all, vec![]).decide();
    assert_eq!(created(&decision), ["a/new", "b/new"]);
    assert_eq!(decision.observed.desired, 2);
}

/// TestDaemonSetUpdatesSaveOldHealthyPods
#[test]
fn changes_that_never_become_ready_touch_no_healthy_pod() {
    let names = many(20);
    let (failed_change, healthy) = names.split_at(10);
    let unready = failed_change.iter().map(|name| pod(name, "middle"));
    let pods: Vec<_> = unready
        .chain(healthy.iter().map(|name| ready(name, "old")))
        .collect();
    for limit in 0..=11_usize {
        let mut world = world(all_of(&names), pods.clone());
        world.strategy.max_unavailable = Amount::Nodes(limit.try_into().unwrap());
        let decision = world.decide();
        let gone = decision.delete.iter().map(|delete| &delete.node);
        let gone: BTreeSet<&String> = gone.collect();
        // Ten do not serve and go first, within the limit. That allows for a healthy one only below a limit of 11.
        let expected = &names[..limit.max(1)];
        assert_eq!(gone, expected.iter().collect(), "{limit}");
    }
}

/// TestDaemonSetUpdatesAllOldNotReadyPodsAndNewNotReadyPods
#[test]
fn nothing_is_replaced_while_more_pods_are_unproven_than_the_limit() {
    let names = many(100);
    let pods = names.iter().enumerate().map(|(number, name)| match number {
        0..10 => ready(name, "old"),
        10..12 => pod(name, "old"),
        _ => pod(name, "new"),
    });
    let mut world = world(all_of(&names), pods.collect());
    world.strategy.max_unavailable = Amount::Nodes(10);
    // The built-in controller replaces the two that are not ready.
    assert_eq!(deleted(&world.decide()), NOTHING);
}

/// TestGetUnavailableNumbers
#[test]
fn the_limits_are_those_of_the_built_in_daemon_set() {
    use Amount::{Nodes, Percent};
    for (nodes, unavailable, surge, expected) in [
        (2, Nodes(1), Nodes(0), (1, 0)),
        // Both of them 0.
        (2, Nodes(0), Nodes(0), (1, 0)),
        (2, Percent(50), Nodes(0), (1, 0)),
        (2, Nodes(0), Percent(50), (0, 1)),
        (2, Nodes(0), Percent(100), (0, 2)),
        (3, Percent(50), Nodes(0), (2, 0)),
    ] {
        let names = many(nodes);
        let pods = names.iter().map(|name| ready(name, "old")).collect();
        let mut world = world(all_of(&names), pods);
        world.strategy.max_unavailable = unavailable;
        world.strategy.max_surge = surge;
        let decision = world.decide();
        let found = (decision.observed.max_unavailable, decision.create.len());
        assert_eq!(found, expected, "{nodes} nodes, {unavailable:?}, {surge:?}");
    }
}

/// TestDaemonSetUpdatesPodsNotMatchTainstWithMaxSurge, TestDaemonSetRollingUpdateWithTolerations
#[test]
fn a_pod_stays_where_the_new_revision_tolerates_no_taint() {
    for surge in [0, 1] {
        let all = vec![tainted("a", "k", "NoSchedule"), node("b")];
        let mut world = world(all, vec![ready("a", "old"), ready("b", "old")]);
        world.strategy.max_surge = Amount::Nodes(surge);
        let decision = world.decide();
        assert!(decision.delete.iter().all(|delete| delete.node == "b"));
        assert!(decision.create.iter().all(|create| create.node == "b"));
        let observed = decision.observed;
        assert_eq!((observed.desired, observed.misscheduled), (1, 1));
        world.pods[1] = ready("b", "new");
        let decision = world.decide();
        assert_eq!(deleted(&decision), NOTHING);
        assert!(decision.observed.complete, "it is not waited for");
    }
}

/// TestSurgeDealsWithExistingPods, TestSurgePreservesReadyOldPods, TestSurgeDeletesUnreadyOldPods
#[test]
fn of_several_pods_in_a_surge_the_newest_and_one_ready_old_one_stay() {
    let named = |pod: PodView, name: &str, age: i64| PodView {
        name: name.into(),
        created: at(NOW - age),
        ..pod
    };
    let cases = [
        // (what is on the node, what is deleted)
        (
            vec![
                named(pod("a", "new"), "newest", 1),
                named(ready("a", "old"), "oldest", 100),
                named(ready("a", "old"), "younger", 50),
            ],
            vec!["younger surplus"],
        ),
        // The built-in controller deletes both old ones here, and the node has no pod that is Ready.
        (
            vec![
                named(pod("a", "new"), "newest", 1),
                named(pod("a", "old"), "unready", 100),
                named(ready("a", "old"), "younger", 50),
            ],
            vec!["unready surplus"],
        ),
        (
            vec![
                named(pod("a", "new"), "1", 5),
                named(pod("a", "new"), "2", 4),
                named(pod("a", "new"), "3", 3),
            ],
            vec!["2 surplus", "3 surplus"],
        ),
    ];
    for (pods, gone) in cases {
        let mut world = world(nodes(&["a"]), pods);
        world.strategy.max_unavailable = Amount::Nodes(0);
        world.strategy.max_surge = Amount::Nodes(1);
        let decision = world.decide();
        assert_eq!(deleted(&decision), gone);
        assert_eq!(created(&decision), NOTHING);
    }
}
