//! A roll-out while no window is open.

use super::*;

/// Closed for an hour.
fn closed() -> Gate {
    Gate {
        is_closed: true,
        until: Some(at(NOW + 3_600)),
    }
}

fn outside(nodes: Vec<NodeView>, pods: Vec<PodView>) -> World {
    let mut world = world(nodes, pods);
    world.gate = closed();
    world
}

#[test]
fn no_step_begins_and_missing_pods_are_of_their_own_revision() {
    let names = ["a", "b", "c", "d"];
    let pods = vec![ready("a", "old"), pod("b", "old"), ready("c", "new")];
    let mut world = outside(nodes(&names), pods);
    for surge in [0, 2] {
        world.strategy.max_surge = Amount::Nodes(surge);
        let decision = world.decide();
        assert_eq!(deleted(&decision), NOTHING);
        assert_eq!(created(&decision), ["d/old"]);
        assert_eq!(decision.observed.gate, closed());
        assert_eq!((decision.observed.outdated, decision.observed.held), (2, 2));
        assert_eq!(decision.next, Some(at(NOW + 3_600)));
    }
    world.strategy.max_surge = Amount::Nodes(0);
    // Open, it is decided again when it closes.
    world.gate.is_closed = false;
    world.strategy.max_unavailable = Amount::Nodes(3);
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["b-old outdated", "a-old outdated"]);
    assert_eq!(created(&decision), ["d/new"]);
    assert_eq!(decision.observed.gate, world.gate);
    assert!(decision.next.is_some_and(|next| next <= at(NOW + 3_600)));
}

#[test]
fn no_pod_is_removed_because_the_newest_revision_excludes_its_node() {
    let mut world = outside(
        vec![with_disk("a", "hdd"), with_disk("b", "ssd")],
        vec![ready("a", "old"), ready("b", "new")],
    );
    world.old_template = Some(PodTemplate(json!({})));
    world.template = PodTemplate(json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert!(decision.observed.gate.is_closed);
    world.gate = Gate::default();
    assert_eq!(
        deleted(&world.decide()),
        ["a-old excluded by the new revision"]
    );
}

#[test]
fn a_surge_that_has_begun_goes_on_to_its_end() {
    let pods = vec![ready("a", "old"), ready("a", "new"), ready("b", "old")];
    let mut world = outside(nodes(&["a", "b"]), pods);
    world.strategy.max_surge = Amount::Nodes(1);
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["a-old outdated"]);
    assert_eq!(created(&decision), NOTHING);
}

#[test]
fn what_holds_the_nodes_that_are_left_is_only_then_the_window() {
    let left = |node: NodeView| vec![node, super::node("z")];
    let pods = || vec![ready("a", "old"), ready("z", "new")];
    for (node, is_outside, held) in [
        (node("a"), true, 1),
        (not_ready("a", 5), true, 1),
        // It is not waited for, as when a window is open.
        (not_ready("a", 100), false, 0),
        (cordoned("a"), false, 1),
        (tainted("a", "k", "NoSchedule"), false, 0),
    ] {
        let decision = outside(left(node.clone()), pods()).decide();
        let observed = &decision.observed;
        let found = (observed.gate.is_closed, observed.held);
        assert_eq!(found, (is_outside, held), "{node:?}");
        assert_eq!(deleted(&decision), NOTHING);
    }
    let mut partitioned = outside(left(node("a")), pods());
    partitioned.strategy.partition = 1;
    assert!(!partitioned.decide().observed.gate.is_closed);
    // Nothing is left.
    let done = outside(nodes(&["z"]), vec![ready("z", "new")]).decide();
    assert_eq!((done.observed.gate, done.next), (Gate::default(), None));
    assert!(done.observed.complete);
}

#[test]
fn a_canary_soaks_outside_and_its_first_step_waits() {
    let canary = Canary {
        nodes: Amount::Nodes(1),
        selector: BTreeMap::new(),
        soak: TimeDelta::minutes(10),
        manual: false,
    };
    let old = vec![ready("a", "old"), ready("b", "old")];
    let mut world = outside(nodes(&["a", "b"]), old);
    world.canary = Some(canary);
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert!(decision.observed.gate.is_closed);
    // It has the revision: nothing waits for the window until it has soaked.
    world.pods[0] = ready("a", "new");
    let decision = world.decide();
    assert!(!decision.observed.gate.is_closed);
    assert!(decision.observed.canary.is_some_and(|canary| canary.passed));
    world.canary = None;
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert!(decision.observed.gate.is_closed);
}

/// Once the roll-out is complete, windows that open and close change nothing.
#[test]
fn no_window_changes_what_a_completed_roll_out_has_made_of_a_node() {
    let assert_same = |world: &mut World| {
        world.current = "new";
        let closed = world.decide();
        assert_eq!((created(&closed), deleted(&closed)), (vec![], vec![]));
        world.gate = Gate::default();
        assert_eq!(world.decide(), closed);
    };
    // Their last pods could be made there again, and those of the newest revision cannot.
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let down = tainted("a", "node.kubernetes.io/not-ready", "NoSchedule");
    for node in [
        tainted("a", "k", "NoExecute"),
        tainted("a", "k", "NoSchedule"),
        cordoned("a"),
        in_maintenance("a"),
        down,
    ] {
        let mut world = outside(vec![node, super::node("z")], vec![ready("z", "new")]);
        world.old_template = Some(PodTemplate(tolerant.clone()));
        let last = Last {
            revision: "old".into(),
            ..Last::default()
        };
        world.memory.insert("a".into(), last);
        assert_same(&mut world);
    }
    // Admission keeps new pods from the node, and the old one stays.
    let mut world = outside(
        vec![with_disk("a", "hdd"), with_disk("b", "ssd")],
        vec![ready("a", "old"), ready("b", "new")],
    );
    let admitted = json!({"nodeSelector": {"disk": "ssd"}});
    world.admitted = admitted.as_object().cloned();
    assert_same(&mut world);
}
