//! One topology domain after the other.

use super::*;
use crate::decide::observed::InDomain;

/// Domains by the label `zone`, these first.
pub(super) fn by_zone(order: &[&str]) -> Arc<Domains> {
    let rolling = json!({"topologyKey": "zone", "order": order});
    let spec = json!({"updateStrategy": {"rollingUpdate": rolling}});
    let domains = Domains::from_spec(&serde_json::from_value(spec).unwrap());
    Arc::new(domains.unwrap())
}

fn in_zone(node: NodeView, zone: &str) -> NodeView {
    let label = ("zone", zone);
    NodeView {
        labels: Some(label)
            .filter(|_| !zone.is_empty())
            .into_iter()
            .collect(),
        ..node
    }
}

/// Six nodes: two in zone `b`, three in `a`, and one in none. All may be unavailable.
fn zones(order: &[&str]) -> World {
    let zones = [
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
        ("b1", "b"),
        ("b2", "b"),
        ("c1", ""),
    ];
    let nodes = zones.map(|(name, zone)| in_zone(node(name), zone));
    let pods = zones.map(|(name, _)| ready(name, "old"));
    let mut world = world(nodes.into(), pods.into());
    world.strategy.max_unavailable = Amount::Nodes(9);
    world.domains = Some(by_zone(order));
    world
}

impl World {
    /// Replaces the pod on a node.
    fn put(&mut self, pod: PodView) {
        self.pods.retain(|other| other.node != pod.node);
        self.pods.push(pod);
    }

    fn on(&mut self, name: &str) -> &mut NodeView {
        let mut nodes = self.nodes.iter_mut();
        nodes.find(|node| node.name == name).unwrap()
    }

    /// The nodes that lose their old pod.
    fn steps(&self) -> Vec<String> {
        let decision = self.decide();
        decision.delete.into_iter().map(|it| it.node).collect()
    }

    fn domain(&self) -> Option<InDomain> {
        self.decide().observed.domain
    }
}

#[test]
fn one_domain_follows_the_other_by_the_order_of_the_spec_then_by_name() {
    let cases: [(&[&str], [&[&str]; 3]); 2] = [
        (&[], [&["a1", "a2", "a3"], &["b1", "b2"], &["c1"]]),
        (&["b", "x"], [&["b1", "b2"], &["a1", "a2", "a3"], &["c1"]]),
    ];
    for (order, names) in cases {
        let mut world = zones(order);
        for names in names {
            assert_eq!(world.steps(), names, "{order:?}");
            for name in names {
                world.put(ready(name, "new"));
            }
        }
        let decision = world.decide();
        assert!(decision.observed.complete);
        assert_eq!(decision.observed.domain, None);
    }
}

#[test]
fn the_next_domain_waits_until_the_last_pod_is_available() {
    let mut world = zones(&["b"]);
    world.put(ready("b1", "new"));
    let unready = PodView {
        created: at(NOW - 5),
        ..pod("b2", "new")
    };
    for last in [
        ready("b2", "old"),
        deleting("b2", "old"),
        unready,
        PodView {
            ready_since: Some(at(NOW - 5)),
            ..pod("b2", "new")
        },
    ] {
        world.put(last.clone());
        world.strategy.min_ready = TimeDelta::seconds(10);
        let decision = world.decide();
        let others = decision.delete.iter().filter(|it| it.node != "b2");
        assert_eq!(others.count(), 0, "{last:?}");
        let domain = decision.observed.domain.unwrap();
        assert!(domain.to_string().starts_with("zone b ("), "{domain}");
    }
    world.strategy.min_ready = TimeDelta::seconds(5);
    assert_eq!(world.steps(), ["a1", "a2", "a3"]);
    let a = InDomain {
        name: "zone a".to_owned(),
        updated: 0,
        nodes: 3,
    };
    assert_eq!(world.domain(), Some(a));
    // The same state, step by step.
    let mut state = RolloutState::new("new");
    world.put(ready("b2", "old"));
    world.decide_on(&mut state);
    world.put(ready("b2", "new"));
    assert_eq!(world.decide_on(&mut state), world.decide());
}

#[test]
fn nodes_that_the_roll_out_cannot_reach_do_not_hold_up_the_next_domain() {
    let all = ["a1", "a2", "a3"];
    let b = |change: fn(&mut NodeView)| {
        let mut world = zones(&["b"]);
        world.put(ready("b2", "new"));
        change(world.on("b1"));
        world.steps()
    };
    assert_eq!(b(|node| node.cordoned = true), all);
    assert_eq!(b(|node| node.in_maintenance = true), all);
    assert_eq!(b(|node| node.not_ready_since = Some(at(NOW - 60))), all);
    assert_eq!(b(|node| node.not_ready_since = Some(at(NOW - 59))), NOTHING);
    let taint = |node: &mut NodeView| node.taints = tainted("x", "k", "NoSchedule").taints;
    assert_eq!(b(taint), all);
    // The partition holds the last by name of all that are behind.
    let mut world = zones(&[]);
    world.strategy.partition = 4;
    assert_eq!(world.steps(), ["a1", "a2"]);
    world.put(ready("a1", "new"));
    world.put(ready("a2", "new"));
    let held = world.decide();
    assert_eq!((deleted(&held).len(), held.observed.held), (0, 4));
    assert_eq!(held.observed.domain, None, "nothing is left to do");
    world.strategy.partition = 1;
    assert_eq!(world.steps(), ["a3"]);
    world.put(ready("a3", "new"));
    assert_eq!(world.steps(), ["b1", "b2"]);
}

#[test]
fn percentages_are_of_the_domain_and_unavailable_nodes_count_wherever_they_are() {
    let mut world = zones(&["b"]);
    world.strategy.max_unavailable = Amount::Percent(50);
    assert_eq!(world.steps(), ["b1"]);
    assert_eq!(world.decide().observed.max_unavailable, 1);
    world.put(pod("c1", "old"));
    assert_eq!(world.steps(), NOTHING, "c1 is unavailable");
    world.put(ready("c1", "old"));
    world.strategy.max_surge = Amount::Percent(51);
    assert_eq!(created(&world.decide()), ["b1/new", "b2/new"]);
    world.put(ready("b1", "new"));
    world.put(ready("b2", "new"));
    world.strategy.max_surge = Amount::Nodes(0);
    assert_eq!(world.steps(), ["a1", "a2"]);
}

#[test]
fn a_lost_pod_of_a_later_domain_is_made_of_its_own_revision_and_a_joining_node_gets_the_newest() {
    let mut world = zones(&["b"]);
    world.pods.retain(|pod| pod.node != "a2");
    world.nodes.push(NodeView {
        created: at(NOW - 50),
        ..in_zone(node("a4"), "a")
    });
    let decision = world.decide();
    assert_eq!(created(&decision), ["a2/old", "a4/new"]);
    // Nor does the one that joined keep its domain open.
    for name in ["a1", "a2", "a3", "b1", "b2"] {
        world.put(ready(name, "new"));
    }
    assert_eq!(world.steps(), ["c1"]);
    let starting = PodView {
        created: at(NOW - 20),
        predecessor: Predecessor::Unknown,
        ..pod("a4", "new")
    };
    world.put(starting);
    assert_eq!(world.steps(), ["c1"]);
}

#[test]
fn a_node_that_comes_back_or_changes_its_zone_has_that_zone_take_its_turn_and_no_pod_goes_back() {
    let mut world = zones(&["b"]);
    world.put(ready("b1", "new"));
    world.on("b2").cordoned = true;
    world.put(ready("a1", "new"));
    assert_eq!(world.steps(), ["a2", "a3"]);
    world.on("b2").cordoned = false;
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["b2-old outdated"]);
    assert_eq!(created(&decision), NOTHING);
    world.put(ready("b2", "new"));
    *world.on("c1") = in_zone(node("c1"), "b");
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["c1-old outdated"]);
    assert_eq!(created(&decision), NOTHING);
    // One that has the revision keeps it in a later zone, and gets it again.
    *world.on("b1") = in_zone(node("b1"), "z");
    assert_eq!(world.steps(), ["c1"]);
    world.pods.retain(|pod| pod.node != "b1");
    let last = Last {
        revision: "new".into(),
        ..Last::default()
    };
    world.memory.insert("b1".into(), last);
    assert_eq!(created(&world.decide()), ["b1/new"]);
}

#[test]
fn a_node_that_was_begun_with_gets_the_revision_whatever_comes_first_by_now() {
    let mut world = zones(&["b"]);
    world.put(ready("b1", "new"));
    world.put(ready("b2", "new"));
    let taken = world.decide().delete.remove(0);
    assert_eq!(taken.node, "a1");
    for gone in [false, true] {
        world.put(deleting("a1", "old"));
        world.pods.retain(|pod| pod.node != "a1" || !gone);
        world.memory = BTreeMap::from([("a1".to_owned(), taken.last.clone())]);
        // The readiness of one that comes first comes and goes.
        world.put(pod("b1", "new"));
        let decision = world.decide();
        assert_eq!(deleted(&decision), NOTHING);
        assert_eq!(created(&decision), ["a1/new"][..usize::from(gone)]);
    }
    // For another revision it has not begun there.
    let last = world.memory.get_mut("a1").unwrap();
    last.outdated_by = Some("middle".into());
    assert_eq!(created(&world.decide()), ["a1/old"]);
}

#[test]
fn canaries_come_before_the_domains_and_the_way_back_ignores_them() {
    let mut world = zones(&["b"]);
    world.canary = Some(Canary {
        nodes: Amount::Nodes(1),
        selector: BTreeMap::new(),
        soak: TimeDelta::minutes(10),
        manual: false,
    });
    assert_eq!(world.steps(), ["a1"]);
    assert_eq!(world.domain(), None);
    world.put(ready("a1", "new"));
    world.canary = None;
    assert_eq!(world.steps(), ["b1", "b2"]);
    // A user goes back to what was completed.
    world.current = "new";
    assert_eq!(world.steps(), ["a2", "a3", "b1", "b2", "c1"]);
    world.current = "old";
    world.strategy.on_delete = true;
    assert_eq!(world.domain(), None);
}

#[test]
fn a_closed_window_holds_the_domain_whose_turn_it_is_as_well_and_does_not_change_which() {
    let mut world = zones(&["b"]);
    world.gate = Gate {
        is_closed: true,
        until: Some(at(NOW + 60)),
    };
    let observe = |world: &World| {
        let decision = world.decide();
        assert_eq!(deleted(&decision), NOTHING);
        let observed = decision.observed;
        let domain = observed.domain.unwrap().to_string();
        let held =
            [WaitsFor::Hold, WaitsFor::Domain].map(|it| observed.waits_for.get(&it).copied());
        (domain, observed.gate.is_closed, observed.held, held)
    };
    let b = "zone b (0 of 2)".to_owned();
    assert_eq!(observe(&world), (b, true, 6, [Some(2), Some(4)]));
    // Nothing waits for the window until the domain is finished.
    world.put(ready("b1", "new"));
    world.put(PodView {
        created: at(NOW - 5),
        ..pod("b2", "new")
    });
    let b = "zone b (2 of 2)".to_owned();
    assert_eq!(observe(&world), (b, false, 4, [None, Some(4)]));
    world.put(ready("b2", "new"));
    let a = "zone a (0 of 3)".to_owned();
    assert_eq!(observe(&world), (a, true, 4, [Some(3), Some(1)]));
    // It is not waited for, and held by the domain no more than if a window were open.
    world.on("a1").in_maintenance = true;
    world.put(ready("a2", "new"));
    world.put(ready("a3", "new"));
    let last = "nodes without zone (0 of 1)".to_owned();
    assert_eq!(observe(&world), (last, true, 2, [Some(1), None]));
    world.gate.is_closed = false;
    assert_eq!(world.steps(), ["c1"]);
}

#[test]
fn a_node_that_the_partition_holds_waits_for_that_and_not_for_its_domain() {
    let mut world = zones(&["b"]);
    world.strategy.partition = 2;
    let observed = world.decide().observed;
    let expected = [
        (WaitsFor::Partition, 2),
        (WaitsFor::Domain, 3),
        (WaitsFor::Turn, 1),
    ];
    assert_eq!(observed.waits_for, BTreeMap::from(expected));
}

#[test]
fn a_roll_out_stops_where_only_failed_nodes_keep_it_from_the_next_domain() {
    let mut world = zones(&["b"]);
    world.put(crashing("b1", "new"));
    let decision = world.decide();
    assert!(!decision.observed.auto_paused, "b2 goes on");
    assert_eq!(deleted(&decision), ["b2-old outdated"]);
    world.put(pod("b2", "new"));
    world.pods.last_mut().unwrap().created = at(NOW - 5);
    assert!(!world.decide().observed.auto_paused, "b2 may work");
    world.put(ready("b2", "new"));
    let decision = world.decide();
    assert!(decision.observed.auto_paused);
    assert_eq!(decision.observed.stopped_for.len(), 1);
    assert_eq!(deleted(&decision), NOTHING);
    // As the user says.
    let auto_pause = world.strategy.auto_pause.as_mut().unwrap();
    auto_pause.max_failures = Some(2);
    let decision = world.decide();
    assert!(!decision.observed.auto_paused);
    assert_eq!(deleted(&decision), NOTHING);
}

#[test]
fn a_node_that_is_not_ready_for_a_moment_does_not_stop_it_at_the_end_of_a_domain() {
    let mut world = zones(&["b"]);
    world.put(PodView {
        created: at(NOW - 100),
        ..pod("b1", "new")
    });
    world.put(ready("b2", "new"));
    let cases: [(i64, &[&str]); 2] = [(59, NOTHING), (60, &["a1", "a2", "a3"])];
    for (seconds, steps) in cases {
        world.on("b1").not_ready_since = Some(at(NOW - seconds));
        let decision = world.decide();
        assert_eq!(
            (decision.observed.failed, decision.observed.auto_paused),
            (1, false)
        );
        assert_eq!(world.steps(), steps);
    }
}

#[test]
fn where_failures_do_not_stop_it_a_domain_is_not_waited_for_because_of_failed_nodes() {
    for is_resumed in [true, false] {
        let mut world = zones(&["b"]);
        world.resumed = is_resumed;
        world.strategy.auto_pause = world.strategy.auto_pause.filter(|_| is_resumed);
        world.put(crashing("b1", "new"));
        assert_eq!(world.steps(), ["b2"], "{is_resumed}");
        world.put(ready("b2", "new"));
        let late = PodView {
            created: at(NOW - 600),
            unready_since: Some(at(NOW - 600)),
            ..pod("b1", "new")
        };
        for fails in [crashing("b1", "new"), failed("b1", "new", 5, 0), late] {
            world.put(fails.clone());
            assert_eq!(world.steps(), ["a1", "a2", "a3"], "{fails:?}");
        }
        let starting = PodView {
            created: at(NOW - 599),
            unready_since: Some(at(NOW - 599)),
            ..pod("b1", "new")
        };
        world.put(starting);
        assert_eq!(world.steps(), NOTHING, "it may work");
    }
}
