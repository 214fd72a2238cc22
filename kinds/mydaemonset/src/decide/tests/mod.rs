//! Tables for single decisions, and a random model of a cluster for many of them in a row.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

mod builtin;
mod canary;
mod domains;
mod model;
mod promises;
mod windows;

use super::canary::Canary;
use super::decision::{Create, Decision, Delete, DeleteReason};
use super::domains::Domains;
use super::freeze::Freeze;
use super::input::{Known, Last, Revisions, RolloutInput};
use super::node::OnNode;
use super::node::plan::pause;
use super::observed::{ByCause, Named, Observed, WaitsFor};
use super::placement::{Obstacle, Placement};
use super::rollout::{RolloutState, in_turn};
use super::strategy::{Amount, AutoPause, Strategy};
use super::undo;
use super::window::{self, Gate, Window};
use crate::cause::Cause;
use crate::crd::{FailedNode, MyDaemonSetStatus};
use crate::observe::node::{Labels, NodeView, Taint};
use crate::observe::pod::PodView;
use crate::observe::predecessor::Predecessor;
use crate::status::tests::input;
use crate::status::{self, PROGRESSING, StatusInput};
use my_operator_kind::template::PodTemplate;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).unwrap()
}

const NOW: i64 = 100_000;
const GRACE: TimeDelta = TimeDelta::seconds(60);

fn node(name: &str) -> NodeView {
    NodeView {
        name: name.into(),
        uid: format!("uid-{name}"),
        created: at(0),
        ready_from: Some(at(0)),
        ..NodeView::default()
    }
}

fn not_ready(name: &str, seconds: i64) -> NodeView {
    NodeView {
        not_ready_since: Some(at(NOW - seconds)),
        ..node(name)
    }
}

fn cordoned(name: &str) -> NodeView {
    NodeView {
        cordoned: true,
        ..node(name)
    }
}

fn in_maintenance(name: &str) -> NodeView {
    NodeView {
        in_maintenance: true,
        ..node(name)
    }
}

fn tainted(name: &str, key: &str, effect: &str) -> NodeView {
    NodeView {
        taints: [Taint {
            key: key.into(),
            effect: effect.into(),
            ..Taint::default()
        }]
        .into(),
        ..node(name)
    }
}

/// A pod that is running, but not ready.
fn pod(node: &str, revision: &str) -> PodView {
    PodView {
        name: format!("{node}-{revision}"),
        uid: format!("pod-{node}-{revision}"),
        owner_uid: "owner".into(),
        node: node.into(),
        revision: revision.into(),
        created: at(NOW - 1_000),
        // As if it had replaced a good pod.
        predecessor: if revision == "new" {
            Predecessor::Available
        } else {
            Predecessor::Unknown
        },
        ..PodView::default()
    }
}

fn ready(node: &str, revision: &str) -> PodView {
    PodView {
        ready_since: Some(at(NOW - 900)),
        ..pod(node, revision)
    }
}

fn deleting(node: &str, revision: &str) -> PodView {
    PodView {
        deleting: true,
        ..ready(node, revision)
    }
}

/// A pod that ended that many seconds ago.
fn failed(node: &str, revision: &str, ago: i64, attempt: u32) -> PodView {
    PodView {
        created: at(NOW - ago - 2),
        ended: Some(at(NOW - ago)),
        trouble: Some("Error".into()),
        attempt,
        ..pod(node, revision)
    }
}

/// A situation: every test changes what matters to it.
struct World {
    nodes: Vec<NodeView>,
    pods: Vec<PodView>,
    template: PodTemplate,
    /// The template of the older revisions, if it differs.
    old_template: Option<PodTemplate>,
    /// The template of the revision in the middle, if it differs too.
    middle_template: Option<PodTemplate>,
    strategy: Strategy,
    update: &'static str,
    current: &'static str,
    /// The revision that the roll-out goes back from.
    undone: Option<&'static str>,
    update_since: i64,
    memory: BTreeMap<String, Last>,
    gone: BTreeMap<String, DateTime<Utc>>,
    failures: usize,
    /// The revisions that are not stored.
    missing: &'static [&'static str],
    validated: bool,
    auto_paused: bool,
    failed_nodes: Vec<FailedNode>,
    resumed: bool,
    canary: Option<Canary>,
    /// The revision that a user lets go on from its canaries.
    approved: Option<&'static str>,
    freeze: Option<Freeze>,
    gate: Gate,
    domains: Option<Arc<Domains>>,
    /// The spec of a pod of the newest revision as admission makes it, if that adds something.
    admitted: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Puts every node and decides.
fn put_and_decide(
    state: &mut RolloutState,
    nodes: &[NodeView],
    pods: &[PodView],
    memory: &BTreeMap<String, Last>,
    gone: &BTreeMap<String, DateTime<Utc>>,
    input: &RolloutInput<'_>,
) -> Decision {
    let on_nodes = nodes.iter().map(|node| &node.name);
    let names: BTreeSet<&String> = on_nodes.chain(pods.iter().map(|pod| &pod.node)).collect();
    for name in names {
        put(state, name, nodes, pods, memory, gone);
    }
    state.decide(input)
}

fn put(
    state: &mut RolloutState,
    name: &str,
    nodes: &[NodeView],
    pods: &[PodView],
    memory: &BTreeMap<String, Last>,
    gone: &BTreeMap<String, DateTime<Utc>>,
) {
    let node = nodes.iter().find(|node| node.name == name);
    let pods = pods.iter().filter(|pod| pod.node == name);
    let on_node = OnNode {
        node: node.cloned().map(Arc::new),
        gone_since: gone.get(name).copied(),
        pods: pods.cloned().map(Arc::new).collect(),
        last: memory.get(name).cloned().map(Box::new),
    };
    state.put(name, on_node);
}

fn world(nodes: Vec<NodeView>, pods: Vec<PodView>) -> World {
    World {
        nodes,
        pods,
        template: PodTemplate(json!({})),
        old_template: None,
        middle_template: None,
        strategy: Strategy {
            on_delete: false,
            max_unavailable: Amount::Nodes(1),
            max_surge: Amount::Nodes(0),
            partition: 0,
            paused: false,
            min_ready: TimeDelta::zero(),
            progress_deadline: TimeDelta::minutes(10),
            auto_pause: Some(AutoPause {
                max_failures: None,
                window: TimeDelta::minutes(10),
            }),
            undoes: false,
        },
        update: "new",
        current: "old",
        undone: None,
        update_since: NOW - 100,
        memory: BTreeMap::new(),
        gone: BTreeMap::new(),
        failures: 0,
        missing: &[],
        validated: true,
        auto_paused: false,
        failed_nodes: Vec::new(),
        resumed: false,
        canary: None,
        approved: None,
        freeze: None,
        gate: Gate::default(),
        domains: None,
        admitted: None,
    }
}

impl World {
    fn decide(&self) -> Decision {
        self.decide_on(&mut RolloutState::new(self.update))
    }

    fn decide_on(&self, state: &mut RolloutState) -> Decision {
        let newest = Placement::from_template(Some(&self.template));
        let admitted = self.admitted.as_ref();
        let newest = admitted.map_or(newest.clone(), |spec| newest.admitted(spec));
        let older = self.old_template.as_ref().unwrap_or(&self.template);
        let middle = self.middle_template.as_ref().unwrap_or(older);
        let middle = Arc::new(Placement::from_template(Some(middle)));
        let older = Arc::new(Placement::from_template(Some(older)));
        let known = |number, placement| Known { number, placement };
        let mut known = BTreeMap::from([
            ("old", known(1, older)),
            ("middle", known(2, middle)),
            ("new", known(3, Arc::new(newest.clone()))),
        ]);
        known.retain(|hash, _| !self.missing.contains(hash));
        let input = RolloutInput {
            placement: &newest,
            strategy: self.strategy,
            revisions: Revisions {
                update: self.update,
                stored: known.contains_key(self.update),
                update_since: at(self.update_since),
                current: self.current,
                known: &known,
                undone: self.undone,
                returns: false,
            },
            grace: GRACE,
            failures: self.failures,
            validated: self.validated,
            stopped_for: self.auto_paused.then_some(self.failed_nodes.as_slice()),
            resumed: self.resumed,
            freeze: self.freeze,
            now: at(NOW),
            canary: self.canary.as_ref(),
            approved: self.approved == Some(self.update),
            gate: self.gate,
            domains: self.domains.as_ref(),
        };
        let gone = &self.gone;
        put_and_decide(state, &self.nodes, &self.pods, &self.memory, gone, &input)
    }
}

/// Creates as `node/revision`.
fn created(decision: &Decision) -> Vec<String> {
    let text = |c: &Create| format!("{}/{}", c.node, c.revision);
    decision.create.iter().map(text).collect()
}

/// Deletes as `pod reason`.
fn deleted(decision: &Decision) -> Vec<String> {
    let text = |d: &Delete| format!("{} {}", d.pod, d.reason.text());
    decision.delete.iter().map(text).collect()
}

fn nodes(names: &[&str]) -> Vec<NodeView> {
    names.iter().map(|name| node(name)).collect()
}

const NOTHING: &[&str] = &[];

#[test]
fn a_missing_pod_is_made_on_every_eligible_node() {
    let mut all = nodes(&["b", "a"]);
    all.push(cordoned("c"));
    all.push(tainted("d", "k", "NoSchedule"));
    all.push(tainted("e", "k", "NoExecute"));
    all.push(tainted("f", "node.kubernetes.io/not-ready", "NoSchedule"));
    let decision = world(all, vec![]).decide();
    assert_eq!(created(&decision), ["a/new", "b/new"]);
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(
        (decision.observed.desired, decision.observed.current),
        (2, 0)
    );
}

#[test]
fn pods_that_are_misplaced_surplus_or_on_a_gone_node_are_deleted() {
    let all = vec![
        node("a"),
        tainted("b", "k", "NoExecute"),
        tainted("c", "k", "NoSchedule"),
        cordoned("d"),
    ];
    let mut twin = ready("a", "new");
    twin.name = "a-twin".into();
    twin.created = at(NOW - 10);
    let pods = vec![
        ready("a", "new"),
        twin,
        ready("b", "new"),
        ready("c", "new"),
        ready("d", "new"),
        ready("gone", "new"),
        deleting("gone2", "new"),
    ];
    let decision = world(all, pods).decide();
    assert_eq!(
        deleted(&decision),
        [
            "a-twin surplus",
            "b-new no longer eligible",
            "gone-new node gone",
        ]
    );
    assert_eq!(created(&decision), NOTHING);
    let observed = decision.observed;
    // The pod of a gone node is on no node at all.
    assert_eq!((observed.desired, observed.misscheduled), (2, 2));
}

#[test]
fn the_pods_of_a_node_that_is_gone_stay_for_40_seconds() {
    let mut world = world(nodes(&["a"]), vec![ready("a", "new"), ready("gone", "new")]);
    for (gone_for, goes) in [(0, false), (39, false), (40, true)] {
        world.gone = BTreeMap::from([("gone".to_owned(), at(NOW - gone_for))]);
        let decision = world.decide();
        let expected = ["gone-new node gone".to_owned()];
        assert_eq!(deleted(&decision), expected[..usize::from(goes)]);
        let due = (!goes).then(|| at(NOW + 40 - gone_for));
        assert_eq!(decision.next, due);
    }
}

#[test]
fn of_several_old_pods_a_ready_one_stays_then_the_latest_revision_then_the_oldest() {
    let mut late = pod("a", "old");
    late.name = "late".into();
    late.created = at(NOW - 5);
    let mut early = late.clone();
    early.name = "early".into();
    early.created = at(NOW - 50);
    let cases = [
        (vec![pod("a", "middle"), ready("a", "old")], "a-middle"),
        (vec![ready("a", "middle"), ready("a", "old")], "a-old"),
        (vec![late, early], "late"),
    ];
    for (pods, gone) in cases {
        let mut world = world(nodes(&["a"]), pods);
        world.strategy.paused = true;
        assert_eq!(deleted(&world.decide()), [format!("{gone} surplus")]);
    }
}

#[test]
fn no_pod_is_created_while_another_is_being_deleted() {
    let decision = world(nodes(&["a"]), vec![deleting("a", "old")]).decide();
    assert_eq!(created(&decision), NOTHING);
    assert_eq!(deleted(&decision), NOTHING);
}

#[test]
fn ready_pods_are_replaced_by_name_up_to_max_unavailable() {
    let names = ["a", "b", "c", "d"];
    let old = || names.map(|n| ready(n, "old")).to_vec();
    for (limit, gone) in [
        (Amount::Nodes(1), 1),
        (Amount::Nodes(3), 3),
        (Amount::Nodes(9), 4),
        (Amount::Percent(1), 1),
        (Amount::Percent(26), 2),
        (Amount::Percent(100), 4),
        (Amount::Nodes(0), 1),
    ] {
        let mut world = world(nodes(&names), old());
        world.strategy.max_unavailable = limit;
        let expected: Vec<_> = names[..gone]
            .iter()
            .map(|n| format!("{n}-old outdated"))
            .collect();
        assert_eq!(deleted(&world.decide()), expected, "{limit:?}");
    }
}

#[test]
fn nodes_that_are_unavailable_for_any_reason_count_against_max_unavailable() {
    let names = ["a", "b", "c"];
    let cases: [(&str, PodView); 4] = [
        ("a new pod that is not ready", pod("a", "new")),
        ("a pod on its way out", deleting("a", "old")),
        ("a failed new pod", failed("a", "new", 1, 0)),
        ("a young new pod", {
            let mut young = ready("a", "new");
            young.ready_since = Some(at(NOW - 5));
            young
        }),
    ];
    for (what, first) in cases {
        let mut world = world(
            nodes(&names),
            vec![first, ready("b", "old"), ready("c", "old")],
        );
        world.strategy.min_ready = TimeDelta::seconds(10);
        assert_eq!(deleted(&world.decide()), NOTHING, "{what}");
        world.strategy.max_unavailable = Amount::Nodes(2);
        assert_eq!(deleted(&world.decide()), ["b-old outdated"], "{what}");
    }
    let world = world(nodes(&names), vec![ready("b", "old"), ready("c", "old")]);
    let decision = world.decide();
    assert_eq!(created(&decision), ["a/new"]);
    assert_eq!(deleted(&decision), NOTHING, "a missing pod");
}

#[test]
fn unready_old_pods_go_first_and_no_faster_than_they_are_proven() {
    // kubernetes/kubernetes#123232: the built-in controller replaces all of them at once, by pods that were never
    // shown to work.
    let pods = vec![
        ready("a", "old"),
        pod("b", "old"),
        pod("c", "old"),
        ready("d", "old"),
        failed("e", "old", 1, 5),
    ];
    let mut world = world(nodes(&["a", "b", "c", "d", "e"]), pods);
    for (limit, gone) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4)] {
        world.strategy.max_unavailable = Amount::Nodes(limit);
        let all = [
            "b-old outdated",
            "c-old outdated",
            "e-old outdated",
            "a-old outdated",
        ];
        assert_eq!(deleted(&world.decide()), all[..gone], "{limit}");
    }
    // What is under way counts.
    world.strategy.max_unavailable = Amount::Nodes(2);
    world.pods[1] = pod("b", "new");
    assert_eq!(deleted(&world.decide()), ["c-old outdated"]);
    world.pods[2] = deleting("c", "old");
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn no_pod_is_deleted_for_a_roll_out_on_a_node_that_is_not_ready() {
    let all = ["a", "b", "c"].map(|name| not_ready(name, 5)).to_vec();
    let pods = ["a", "b", "c"].map(|name| pod(name, "old"));
    let mut world = world(all, pods.to_vec());
    world.strategy.max_unavailable = Amount::Percent(100);
    assert_eq!(deleted(&world.decide()), NOTHING);
    world.nodes[0] = not_ready("a", 100);
    world.pods[1] = ready("b", "old");
    world.template = PodTemplate(json!({"spec": {"nodeSelector": {"none": "such"}}}));
    world.old_template = Some(PodTemplate(json!({})));
    world.resumed = true;
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn recently_ready_old_pods_count_against_max_unavailable() {
    // A change soon after a change must not replace every pod at once.
    let mut pods: Vec<_> = ["a", "b", "c"].map(|n| ready(n, "old")).into();
    for pod in &mut pods {
        pod.ready_since = Some(at(NOW - 1));
    }
    let mut world = world(nodes(&["a", "b", "c"]), pods);
    world.strategy.min_ready = TimeDelta::seconds(60);
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
}

#[test]
fn a_node_that_is_lost_for_a_minute_is_left_out() {
    let pods = || vec![pod("a", "old"), ready("b", "old"), ready("c", "old")];
    let mut world = world(vec![not_ready("a", 59), node("b"), node("c")], pods());
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.next, Some(at(NOW + 1)));
    world.nodes[0] = not_ready("a", 60);
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
    // Also when its pod is still reported as ready.
    world.pods[0] = ready("a", "old");
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
    // The taint of a node that is down does not take it out of the count at once.
    let mut down = tainted("a", "node.kubernetes.io/unreachable", "NoSchedule");
    down.not_ready_since = Some(at(NOW - 5));
    world.nodes[0] = down;
    world.pods[0] = pod("a", "new");
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.observed.desired, 3);
}

#[test]
fn a_node_that_is_down_keeps_its_ready_pod_and_counts_without_one() {
    let mut down = tainted("a", "node.kubernetes.io/not-ready", "NoSchedule");
    down.not_ready_since = Some(at(NOW - 1));
    let all = vec![down, node("b"), node("c")];
    let mut world = world(all, ["a", "b", "c"].map(|n| ready(n, "old")).into());
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
    world.pods.remove(0);
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(created(&decision), NOTHING);
    assert_eq!(decision.observed.desired, 2);
    // Until it is lost.
    world.nodes[0].not_ready_since = Some(at(NOW - 60));
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
}

#[test]
fn a_cordoned_node_is_left_alone_and_counts_while_it_has_a_pod() {
    for pod in [
        ready("a", "old"),
        pod("a", "old"),
        failed("a", "new", 9_999, 0),
    ] {
        let decision = world(vec![cordoned("a")], vec![pod.clone()]).decide();
        assert_eq!(deleted(&decision), NOTHING, "{pod:?}");
        assert_eq!(created(&decision), NOTHING, "{pod:?}");
        assert_eq!(decision.observed.desired, 1);
    }
    let decision = world(vec![cordoned("a")], vec![]).decide();
    assert_eq!(created(&decision), NOTHING);
    assert_eq!(decision.observed.desired, 0);
    assert!(decision.observed.complete);
}

#[test]
fn a_node_in_maintenance_is_left_alone_and_takes_no_place_of_the_limit() {
    let names = ["a", "b", "c"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    // Its pod serves, does not, fails, is being evicted, or is gone.
    for pods in [
        vec![ready("a", "old")],
        vec![pod("a", "old")],
        vec![failed("a", "new", 9_999, 0)],
        vec![deleting("a", "old")],
        vec![],
    ] {
        let others = ["b", "c"].map(|name| ready(name, "old"));
        let is_counted = !pods.is_empty();
        world.pods = [pods, others.to_vec()].concat();
        world.nodes[0] = in_maintenance("a");
        let decision = world.decide();
        assert_eq!(deleted(&decision), ["b-old outdated"], "{:?}", world.pods);
        assert_eq!(created(&decision), NOTHING, "{:?}", world.pods);
        assert_eq!(decision.observed.desired, 2 + usize::from(is_counted));
    }
    // Where it is only cordoned, it takes the place while it has a pod.
    world.pods = vec![pod("a", "old"), ready("b", "old"), ready("c", "old")];
    world.nodes[0] = cordoned("a");
    assert_eq!(deleted(&world.decide()), NOTHING);
    // Afterwards its turn comes.
    world.nodes[0] = node("a");
    world.pods = vec![ready("a", "old"), ready("b", "new"), ready("c", "new")];
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
}

#[test]
fn a_roll_out_that_only_maintenance_holds_says_so_and_is_not_complete() {
    let names = ["a", "b"];
    let pods = names.map(|name| ready(name, "old")).to_vec();
    let mut world = world(names.map(in_maintenance).into(), pods);
    assert!(!world.decide().observed.complete);
    let said = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    assert_eq!(
        after_the_end(&world),
        said(
            "Maintenance",
            "revision new is available on 0 of 2 nodes; maintenance: a, b"
        )
    );
    // A reboot is part of it.
    world.nodes[0].not_ready_since = Some(at(NOW - 5));
    world.nodes[1] = cordoned("b");
    assert_eq!(
        after_the_end(&world),
        said(
            "Cordoned",
            "revision new is available on 0 of 2 nodes; cordoned: b; maintenance: a"
        )
    );
}

#[test]
fn a_template_that_tolerates_cordons_gets_missing_pods_in_maintenance_and_no_roll_out() {
    let tolerant = PodTemplate(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    let all = || vec![in_maintenance("a"), node("b")];
    let mut world = world(all(), vec![ready("b", "old")]);
    world.template = tolerant;
    // The missing pod takes no place either.
    let decision = world.decide();
    assert_eq!(created(&decision), ["a/new"]);
    assert_eq!(deleted(&decision), ["b-old outdated"]);
    world.pods = vec![pod("a", "old"), ready("b", "new")];
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.observed.left_out, named(&["a (maintenance)"]));
    assert!(decision.observed.complete);
    // What happens there says nothing about the revision.
    world.pods = vec![crashing("a", "new"), ready("b", "old")];
    assert!(!world.decide().observed.auto_paused);
    world.nodes[0] = node("a");
    assert!(world.decide().observed.auto_paused);
}

#[test]
fn a_failed_pod_is_replaced_after_a_growing_backoff() {
    for (attempt, seconds) in [
        (0, 10),
        (1, 20),
        (2, 40),
        (6, 640),
        (7, 900),
        (4_000_000, 900),
    ] {
        assert_eq!(pause(attempt).num_seconds(), seconds);
        let early = failed("a", "new", seconds - 1, attempt);
        let decision = world(nodes(&["a"]), vec![early]).decide();
        assert_eq!(deleted(&decision), NOTHING);
        assert_eq!(decision.next, Some(at(NOW + 1)));
        let due = failed("a", "new", seconds, attempt);
        let decision = world(nodes(&["a"]), vec![due]).decide();
        assert_eq!(deleted(&decision), ["a-new failed"]);
        assert_eq!(created(&decision), NOTHING, "its name is still taken");
        assert_eq!(decision.delete[0].last.attempt, attempt + 1);
    }
    // The pause starts again from the beginning if the pod had been healthy for long.
    let mut old_age = failed("a", "new", 10, 7);
    old_age.created = at(NOW - 10 - 900);
    let decision = world(nodes(&["a"]), vec![old_age]).decide();
    assert_eq!(decision.delete[0].last.attempt, 1);
}

#[test]
fn the_successor_of_a_failed_pod_carries_the_count_of_its_revision() {
    let last = |revision: &str| Last {
        revision: revision.into(),
        attempt: 4,
        ..Last::default()
    };
    let mut world = world(nodes(&["a"]), vec![]);
    world.memory = BTreeMap::from([("a".to_owned(), last("new"))]);
    assert_eq!(world.decide().create[0].attempt, 4);
    world.memory = BTreeMap::from([("a".to_owned(), last("old"))]);
    assert_eq!(world.decide().create[0].attempt, 0);
}

#[test]
fn on_delete_waits_for_users() {
    let mut world = world(
        nodes(&["a", "b", "c"]),
        vec![ready("a", "old"), pod("b", "old")],
    );
    world.strategy.on_delete = true;
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(created(&decision), ["c/new"]);
    assert_eq!((decision.observed.outdated, decision.observed.held), (2, 2));
}

#[test]
fn on_delete_keeps_a_failed_pod_for_its_backoff_too() {
    let mut world = world(nodes(&["a"]), vec![failed("a", "old", 9, 0)]);
    world.strategy.on_delete = true;
    assert_eq!(deleted(&world.decide()), NOTHING);
    world.pods = vec![failed("a", "old", 10, 0)];
    assert_eq!(deleted(&world.decide()), ["a-old failed"]);
}

#[test]
fn a_partition_holds_the_last_nodes_by_name() {
    let names = ["a", "b", "c", "d"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    world.strategy.max_unavailable = Amount::Percent(100);
    world.strategy.partition = 3;
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["a-old outdated"]);
    assert_eq!((decision.observed.outdated, decision.observed.held), (4, 3));
    world.strategy.partition = 9;
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn a_held_node_gets_its_own_revision_again_and_a_new_node_the_newest() {
    let mut joined = node("d");
    joined.created = at(NOW - 50);
    let mut all = nodes(&["a", "b", "c"]);
    all.push(joined);
    let mut world = world(all, vec![ready("a", "old")]);
    world.strategy.paused = true;
    world.memory.insert(
        "c".into(),
        Last {
            revision: "middle".into(),
            ..Last::default()
        },
    );
    assert_eq!(created(&world.decide()), ["b/old", "c/middle", "d/new"]);
    // An unknown revision cannot be created.
    world.current = "forgotten";
    world.memory.clear();
    assert_eq!(created(&world.decide()), ["b/new", "c/new", "d/new"]);
}

/// A node with the label `disk`.
fn with_disk(name: &str, disk: &str) -> NodeView {
    NodeView {
        labels: Labels::from_iter([("disk", disk)]),
        ..node(name)
    }
}

fn on_disk(disk: &str) -> PodTemplate {
    PodTemplate(json!({"spec": {"nodeSelector": {"disk": disk}}}))
}

/// Some nodes with old pods on ssd, and a new revision that wants nvme.
fn moved(ssd: &[&str], nvme: &[&str]) -> World {
    let nodes = ssd.iter().map(|name| with_disk(name, "ssd"));
    let nodes = nodes.chain(nvme.iter().map(|name| with_disk(name, "nvme")));
    let pods = ssd.iter().map(|name| ready(name, "old"));
    let mut world = world(nodes.collect(), pods.collect());
    world.old_template = Some(on_disk("ssd"));
    world.template = on_disk("nvme");
    world
}

#[test]
fn pods_on_excluded_nodes_are_deleted_within_the_limits() {
    let mut world = moved(&["a", "b", "c"], &[]);
    // Otherwise it stands, since no node is left.
    world.resumed = true;
    world.strategy.max_unavailable = Amount::Nodes(2);
    let decision = world.decide();
    let excluded = |pod: &str| format!("{pod}-old excluded by the new revision");
    assert_eq!(deleted(&decision), [excluded("a"), excluded("b")]);
    assert!(decision.delete[0].last.excluded);
    let observed = decision.observed;
    assert_eq!(
        (observed.desired, observed.outdated, observed.misscheduled),
        (3, 3, 0)
    );
    assert_eq!(observed.excluded, [(Obstacle::NodeSelector, 3)].into());
    assert!(!observed.complete);
    // A percentage is one of the nodes that still have their pods.
    world.strategy.max_unavailable = Amount::Percent(34);
    assert_eq!(deleted(&world.decide()).len(), 2);
    world.pods[0].deleting = true;
    assert_eq!(deleted(&world.decide()), [excluded("b")]);
    world.strategy.max_unavailable = Amount::Nodes(1);
    assert_eq!(deleted(&world.decide()), NOTHING, "one is on its way");
    // Without the revision of a pod nothing proves that the node is the reason.
    world.pods[0] = ready("a", "forgotten");
    world.strategy.max_unavailable = Amount::Nodes(1);
    assert_eq!(deleted(&world.decide()).len(), 1);
    world.pods.clear();
    assert_eq!(created(&world.decide()), NOTHING);
    assert!(world.decide().observed.complete);
}

#[test]
fn a_revision_that_no_node_is_eligible_for_takes_no_pod_unless_a_user_resumes_it() {
    let mut world = moved(&["a", "b"], &[]);
    world.strategy.max_unavailable = Amount::Percent(100);
    let stands = |world: &World| {
        let decision = world.decide();
        let observed = decision.observed.clone();
        assert_eq!(observed.no_node, deleted(&decision).is_empty());
        assert!(!observed.complete);
        observed.no_node
    };
    assert!(stands(&world));
    // A pod that is lost meanwhile is made again.
    let gone = world.pods.remove(0);
    let last = Last {
        revision: "old".into(),
        ..Last::default()
    };
    world.memory.insert("a".into(), last);
    assert_eq!(created(&world.decide()), ["a/old"]);
    world.pods.insert(0, gone);
    world.resumed = true;
    assert!(!stands(&world));
    world.resumed = false;
    // One that can take a pod is enough, whatever state it is in.
    for node in [node("z"), cordoned("z"), not_ready("z", 100)] {
        let labels = with_disk("z", "nvme").labels;
        world.nodes.push(NodeView { labels, ..node });
        assert!(!stands(&world));
        world.nodes.pop();
    }
    // The nodes are what changed.
    world.nodes = vec![with_disk("a", "none"), with_disk("b", "none")];
    let decision = world.decide();
    assert!(!decision.observed.no_node);
    assert_eq!(deleted(&decision).len(), 2);
    // A new object, which no node is eligible for.
    world.pods.clear();
    let observed = world.decide().observed;
    assert!(!observed.no_node && observed.complete);
}

#[test]
fn a_node_that_becomes_ineligible_loses_its_pod_at_once() {
    let mut world = moved(&["a", "b"], &[]);
    world.nodes[0] = with_disk("a", "none");
    world.strategy.paused = true;
    assert_eq!(deleted(&world.decide()), ["a-old no longer eligible"]);
    // Also one with a pod of the newest revision, which was created there.
    world.nodes[0] = with_disk("a", "ssd");
    world.pods[0] = ready("a", "new");
    assert_eq!(deleted(&world.decide()), ["a-new no longer eligible"]);
    world.pods.push(ready("a", "old"));
    assert_eq!(deleted(&world.decide()), ["a-new no longer eligible"]);
}

#[test]
fn each_old_pod_is_judged_by_its_own_revision() {
    // A surge was overtaken by another change: two old pods, one of which tolerates the node's new taint.
    let mut world = world(
        vec![tainted("a", "k", "NoExecute")],
        vec![ready("a", "old"), pod("a", "middle")],
    );
    world.strategy.paused = true;
    let tolerant = PodTemplate(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    world.middle_template = Some(tolerant);
    assert_eq!(deleted(&world.decide()), ["a-old no longer eligible"]);
}

#[test]
fn pods_are_replaced_before_excluded_nodes_lose_theirs() {
    let mut world = moved(&["a", "b"], &["y", "z"]);
    world.pods.extend([ready("y", "old"), ready("z", "new")]);
    world.old_template = None;
    world.old_template = Some(PodTemplate(json!({})));
    assert_eq!(deleted(&world.decide()), ["y-old outdated"]);
    world.strategy.max_unavailable = Amount::Nodes(2);
    let gone = ["y-old outdated", "a-old excluded by the new revision"];
    assert_eq!(deleted(&world.decide()), gone);
    // With a surge alone nothing replaces such a pod: one node at a time.
    world.strategy.max_unavailable = Amount::Nodes(0);
    world.strategy.max_surge = Amount::Nodes(1);
    let decision = world.decide();
    assert_eq!(created(&decision), ["y/new"]);
    assert_eq!(deleted(&decision), ["a-old excluded by the new revision"]);
}

#[test]
fn a_held_roll_out_keeps_the_pods_on_excluded_nodes() {
    let held = |change: &dyn Fn(&mut World)| {
        let mut world = moved(&["a", "b", "c"], &["z"]);
        world.pods.push(ready("z", "new"));
        world.strategy.max_unavailable = Amount::Percent(100);
        change(&mut world);
        let decision = world.decide();
        assert_eq!(decision.observed.outdated, 3);
        (deleted(&decision).len(), decision.observed.held)
    };
    assert_eq!(held(&|w| w.strategy.paused = true), (0, 3));
    assert_eq!(held(&|w| w.auto_paused = true), (0, 3));
    assert_eq!(held(&|w| w.strategy.on_delete = true), (0, 3));
    assert_eq!(held(&|w| w.strategy.partition = 2), (1, 2));
    assert_eq!(held(&|w| w.strategy.partition = 3), (0, 3));
    // Pods that do not serve go first, but not during a pause.
    let unready = |w: &mut World| w.pods[1] = pod("b", "old");
    let limited = |w: &mut World| {
        unready(w);
        w.strategy.max_unavailable = Amount::Nodes(1);
    };
    assert_eq!(held(&limited), (1, 0));
    let paused = |w: &mut World| {
        unready(w);
        w.strategy.paused = true;
    };
    assert_eq!(held(&paused), (0, 3));
}

#[test]
fn no_pod_is_deleted_for_a_revision_before_the_api_server_accepts_it() {
    let mut world = moved(&["a", "b"], &["z"]);
    world.pods.push(ready("z", "new"));
    world.validated = false;
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    let asked = decision.dry_run.unwrap();
    assert_eq!((asked.node.as_str(), asked.revision.as_str()), ("a", "new"));
}

#[test]
fn the_reason_why_nodes_are_excluded_is_counted() {
    let by = |template: serde_json::Value| {
        let mut world = moved(&["a"], &[]);
        let taints = &tainted("a", "k", "NoExecute").taints;
        world.nodes[0].taints.clone_from(taints);
        world.old_template = Some(PodTemplate(
            json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
        ));
        world.template = PodTemplate(json!({"spec": template}));
        let excluded = world.decide().observed.excluded;
        let obstacles = [
            Obstacle::NodeSelector,
            Obstacle::NodeAffinity,
            Obstacle::Taint,
        ];
        obstacles.map(|it| excluded.get(&it).copied().unwrap_or_default())
    };
    assert_eq!(by(json!({"nodeSelector": {"a": "b"}})), [1, 0, 0]);
    let input = json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": input}});
    assert_eq!(
        by(json!({"affinity": {"nodeAffinity": required}})),
        [0, 1, 0]
    );
    assert_eq!(by(json!({})), [0, 0, 1]);
}

#[test]
fn a_held_node_that_joined_with_the_newest_revision_gets_its_former_revision_again() {
    let mut world = world(vec![node("a")], Vec::new());
    world.strategy.paused = true;
    world.nodes[0].created = at(world.update_since);
    assert_eq!(created(&world.decide()), ["a/new"], "it may have joined");
    let last = Last {
        revision: "old".into(),
        ..Last::default()
    };
    world.memory.insert("a".into(), last);
    assert_eq!(created(&world.decide()), ["a/old"]);
    world.nodes[0].created += TimeDelta::seconds(1);
    assert_eq!(created(&world.decide()), ["a/new"]);
}

#[test]
fn a_held_node_gets_a_pod_that_can_run_there() {
    // Eligible for the newest revision alone: it never had a pod.
    let mut world = moved(&["a"], &["z"]);
    world.strategy.paused = true;
    let decision = world.decide();
    assert_eq!(created(&decision), ["z/new"]);
    assert_eq!(deleted(&decision), NOTHING);
    // Eligible for its own revision alone: it gets that again, also when its pod fails.
    world.pods = vec![failed("a", "old", 10, 0)];
    assert_eq!(deleted(&world.decide()), ["a-old failed"]);
    world.pods.clear();
    let last = |revision: &str, excluded| Last {
        revision: revision.into(),
        excluded,
        ..Last::default()
    };
    world.memory.insert("a".into(), last("old", false));
    assert_eq!(created(&world.decide()), ["a/old", "z/new"]);
    assert_eq!(world.decide().observed.desired, 2);
    // Not after the roll-out was completed, when it is held later, as outside a window.
    let current = std::mem::replace(&mut world.current, "new");
    assert_eq!(created(&world.decide()), ["z/new"]);
    world.current = current;
    // Unless it lost its pod to the newest revision before the pause.
    world.memory.insert("a".into(), last("old", true));
    assert_eq!(created(&world.decide()), ["z/new"]);
    world.memory.clear();
    assert_eq!(
        created(&world.decide()),
        ["z/new"],
        "nothing says that it had a pod"
    );
    // Eligible for neither.
    world.nodes[0] = with_disk("a", "none");
    world.memory.insert("a".into(), last("old", false));
    assert_eq!(created(&world.decide()), ["z/new"]);
    // Its own revision tolerates a taint that the newest does not.
    let taint = json!([{"key": "k", "operator": "Exists"}]);
    world.old_template = Some(PodTemplate(json!({"spec": {"tolerations": taint}})));
    world.template = PodTemplate(json!({}));
    world.nodes = vec![tainted("a", "k", "NoSchedule")];
    assert_eq!(created(&world.decide()), ["a/old"]);
    world.strategy.paused = false;
    assert_eq!(created(&world.decide()), NOTHING);
}

#[test]
fn a_node_that_joins_under_an_auto_pause_gets_the_revision_before() {
    let mut joined = node("z");
    joined.created = at(NOW - 50);
    let mut all = nodes(&["a"]);
    all.push(joined);
    let mut world = world(all, vec![ready("a", "old")]);
    world.auto_paused = true;
    assert_eq!(created(&world.decide()), ["z/old"]);
    // The roll-out before was that of a migration, and was not completed.
    world.current = "daemonset";
    assert_eq!(created(&world.decide()), ["z/middle"]);
    world.current = "old";
    world.strategy.paused = true;
    world.auto_paused = false;
    assert_eq!(created(&world.decide()), ["z/new"]);
    // Where that one may not run, it gets the newest.
    world.strategy.paused = false;
    world.auto_paused = true;
    world.old_template = Some(on_disk("ssd"));
    assert_eq!(created(&world.decide()), ["z/new"]);
}

#[test]
fn a_partition_holds_that_many_outdated_nodes() {
    let names = ["a", "b", "c", "d", "e"];
    let mut joined = node("z");
    joined.created = at(NOW - 50);
    let mut all = nodes(&names);
    all.push(joined);
    let held = |world: &World| {
        let decision = world.decide();
        (
            deleted(&decision),
            created(&decision),
            decision.observed.held,
        )
    };
    let mut world = world(all, names.map(|n| ready(n, "old")).into());
    world.strategy.max_unavailable = Amount::Percent(100);
    world.strategy.partition = 2;
    // The node that joined takes no place of another.
    let go = ["a", "b", "c"].map(|n| format!("{n}-old outdated"));
    assert_eq!(held(&world), (go.into(), vec!["z/new".to_owned()], 2));
    world.pods.push(PodView {
        created: at(NOW - 40),
        ..ready("z", "new")
    });
    for pod in &mut world.pods[..3] {
        *pod = ready(&pod.node, "new");
    }
    assert_eq!(held(&world), (vec![], vec![], 2));
    // One of the last is removed: the others stay, though they are fewer.
    world.nodes.remove(4);
    world.pods.remove(4);
    assert_eq!(held(&world), (vec![], vec![], 1));
    // A held node whose pod is away still is one of them.
    world.pods.retain(|pod| pod.node != "d");
    assert_eq!(held(&world), (vec![], vec!["d/old".to_owned()], 0));
    world.strategy.partition = 1;
    assert_eq!(held(&world).1, ["d/old"]);
    world.strategy.partition = 0;
    assert_eq!(held(&world).1, ["d/new"]);
}

#[test]
fn an_ended_pod_kept_by_a_finalizer_does_not_block_its_successor() {
    let stuck = |revision: &str| PodView {
        deleting: true,
        ..failed("a", revision, 5, 0)
    };
    let mut world = world(nodes(&["a"]), vec![stuck("old")]);
    assert_eq!(created(&world.decide()), ["a/new"]);
    // One of the same revision has the same name.
    world.pods = vec![stuck("new")];
    assert_eq!(created(&world.decide()), NOTHING);
    world.strategy.paused = true;
    world.pods = vec![stuck("old")];
    assert_eq!(created(&world.decide()), NOTHING);
    // One that still runs keeps its node.
    world.strategy.paused = false;
    world.pods = vec![deleting("a", "old")];
    assert_eq!(created(&world.decide()), NOTHING);
    world.strategy.max_surge = Amount::Nodes(1);
    world.pods = vec![ready("a", "old"), stuck("middle")];
    assert_eq!(created(&world.decide()), ["a/new"]);
}

#[test]
fn a_surge_blocked_by_its_node_frees_its_place_for_another() {
    let (cordoned, tainted) = (cordoned("a"), tainted("a", "k", "NoSchedule"));
    for stopped in [cordoned, tainted, not_ready("a", 60), in_maintenance("a")] {
        let pods = vec![ready("a", "old"), pod("a", "new"), ready("b", "old")];
        let mut world = world(vec![stopped, node("b")], pods);
        world.strategy.max_surge = Amount::Nodes(1);
        assert_eq!(created(&world.decide()), ["b/new"]);
        world.nodes[0] = node("a");
        assert_eq!(created(&world.decide()), NOTHING);
    }
}

#[test]
fn complete_names_a_node_that_was_cordoned_in_its_surge() {
    let pods = vec![ready("a", "old"), pod("a", "new"), ready("b", "new")];
    let mut world = world(vec![cordoned("a"), node("b")], pods);
    world.strategy.max_surge = Amount::Nodes(1);
    let observed = world.decide().observed;
    assert!(observed.complete);
    assert_eq!(observed.left_out, named(&["a (cordoned)"]));
}

#[test]
fn a_node_that_joins_again_with_its_new_pod_stops_nothing() {
    let pods = vec![ready("a", "new"), ready("b", "old")];
    for (ready_from, stops) in [(Some(at(0)), true), (None, false)] {
        let silent = NodeView {
            ready_from,
            ..not_ready("a", 20)
        };
        let mut world = world(vec![silent, node("b")], pods.clone());
        world.pods[0].created = at(NOW - 100);
        assert_eq!(world.decide().observed.auto_paused, stops);
    }
}

/// Ten minutes ago the limits did not wait for the node any more, or would not have.
#[test]
fn a_node_that_has_served_since_counts_again_when_it_fails() {
    let names = ["a", "b"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    world.update_since = NOW - 5_000;
    for predecessor in [
        Predecessor::Unknown,
        Predecessor::Unavailable(at(NOW - 9_000)),
    ] {
        for (unready_for, restarts, waits) in [
            (300, 0, true),
            (599, 0, true),
            (600, 0, false),
            // It was never Ready.
            (3_999, 0, false),
            // It is Ready between its crashes.
            (300, 2, false),
        ] {
            world.pods[0] = PodView {
                created: at(NOW - 4_000),
                unready_since: Some(at(NOW - unready_for)),
                restarts,
                predecessor,
                ..pod("a", "new")
            };
            let gone = ["b-old outdated".to_owned()];
            let case = format!("{predecessor:?} {unready_for} {restarts}");
            assert_eq!(
                deleted(&world.decide()),
                gone[usize::from(waits)..],
                "{case}"
            );
        }
    }
}

/// All pods have been unready for long, so the limits wait for none.
#[test]
fn a_revision_that_no_node_has_proven_is_tried_on_one_node_after_the_other() {
    let unready = |node: &str| PodView {
        unready_since: Some(at(NOW - 5_000)),
        ..pod(node, "old")
    };
    let tried = |ago: i64| PodView {
        created: at(NOW - ago),
        unready_since: Some(at(NOW - ago)),
        predecessor: Predecessor::Unavailable(at(NOW - 5_000)),
        ..pod("a", "new")
    };
    let mut world = world(nodes(&["a", "b", "c"]), vec![]);
    world.update_since = NOW - 700;
    world.pods = vec![tried(599), unready("b"), unready("c")];
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.next, Some(at(NOW + 1)));
    world.pods[0] = tried(600);
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
    // It is the sixth one there: five have ended, after each of which there were 10 to 160 s.
    for (ago, goes) in [(289, false), (290, true)] {
        world.pods[0].attempt = 5;
        world.pods[0].created = at(NOW - ago);
        assert_eq!(deleted(&world.decide()).len(), usize::from(goes));
    }
    // Another node has proven it.
    world.pods = vec![tried(100), unready("b"), ready("c", "new")];
    assert_eq!(deleted(&world.decide()), ["b-old outdated"]);
    // One that serves gets it: it would speak against the revision.
    world.pods = vec![tried(100), unready("b"), ready("c", "old")];
    assert_eq!(deleted(&world.decide()), ["c-old outdated"]);
}

#[test]
fn a_node_that_registers_again_keeps_its_pod() {
    let again = NodeView {
        created: at(NOW - 10),
        uid: "another".into(),
        ..node("a")
    };
    for revision in ["new", "old"] {
        let mut world = world(vec![again.clone()], vec![ready("a", revision)]);
        world.strategy.paused = true;
        let decision = world.decide();
        assert_eq!((deleted(&decision).len(), created(&decision).len()), (0, 0));
        assert_eq!(decision.observed.ready, 1);
    }
}

#[test]
fn a_joining_node_takes_no_place_before_it_was_ready() {
    let mut joining = not_ready("z", 30);
    joining.ready_from = None;
    let old = || ["a", "b"].map(|name| ready(name, "old")).to_vec();
    let mut world = world(vec![node("a"), node("b"), joining], old());
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
    // It was Ready, and has gone down since.
    world.nodes[2].ready_from = Some(at(NOW - 100));
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn a_template_that_tolerates_cordons_keeps_and_gets_its_pod_on_a_cordoned_node() {
    for toleration in [
        json!({"operator": "Exists"}),
        json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}),
    ] {
        let mut world = world(vec![cordoned("a")], vec![]);
        assert_eq!(created(&world.decide()), NOTHING);
        world.template = PodTemplate(json!({"spec": {"tolerations": [toleration]}}));
        assert_eq!(created(&world.decide()), ["a/new"]);
        world.pods = vec![ready("a", "old")];
        assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
    }
}

#[test]
fn a_partition_holds_nodes_that_the_roll_out_could_touch() {
    // The newest revision no longer tolerates the taint: the roll-out leaves these nodes alone anyhow.
    let mut all = nodes(&["a", "b", "c"]);
    all.extend(["z1", "z2"].map(|name| tainted(name, "k", "NoSchedule")));
    let pods = ["a", "b", "c", "z1", "z2"].map(|name| ready(name, "old"));
    let mut world = world(all, pods.to_vec());
    let tolerant = json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}});
    world.old_template = Some(PodTemplate(tolerant));
    world.strategy.partition = 2;
    world.strategy.max_unavailable = Amount::Nodes(5);
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
}

#[test]
fn nodes_that_keep_an_older_revision_are_named_when_it_is_complete() {
    let all = vec![node("a"), tainted("b", "k", "NoSchedule")];
    let observed = world(all, vec![ready("a", "new"), ready("b", "old")])
        .decide()
        .observed;
    assert!(observed.complete);
    assert_eq!(observed.left_out, named(&["b (taint not tolerated)"]));
}

/// Reason and message of `Progressing`, after a status that said Complete of the newest revision.
fn after_the_end(world: &World) -> (String, String) {
    let observed = world.decide().observed;
    let status = |previous: &MyDaemonSetStatus, observed: &Observed| {
        status::next(&StatusInput {
            strategy: world.strategy,
            update: world.update,
            current: world.update,
            ..input(previous, observed)
        })
    };
    let complete = Observed {
        complete: true,
        ..Observed::default()
    };
    let ended = status(&MyDaemonSetStatus::default(), &complete);
    let mut conditions = status(&ended, &observed).conditions.into_iter();
    let progressing = conditions.find(|condition| condition.type_ == PROGRESSING);
    let progressing = progressing.unwrap();
    (progressing.reason, progressing.message)
}

#[test]
fn the_end_of_a_roll_out_is_not_claimed_of_nodes_that_do_not_have_it() {
    let down = |seconds| NodeView {
        not_ready_since: Some(at(NOW - seconds)),
        ..tainted("b", "node.kubernetes.io/unreachable", "NoSchedule")
    };
    let (barred, expelled) = (
        tainted("b", "k", "NoSchedule"),
        tainted("b", "k", "NoExecute"),
    );
    let (new, old) = (ready("b", "new"), ready("b", "old"));
    let unready = pod("b", "new");
    let crashing = PodView {
        trouble: Some("CrashLoopBackOff".into()),
        ..unready.clone()
    };
    let one = "revision new is available on its only node".to_owned();
    let both = "revision new is available on all 2 nodes".to_owned();
    let not_on = |cause: &str| format!("revision new is available on 1 of 2 nodes; {cause}: b");
    // Another node has it.
    for (node, pods, message) in [
        (node("b"), vec![new.clone()], both.clone()),
        // Down for a moment, and for long; its pod is no longer Ready, or gone.
        (down(1), vec![unready.clone()], not_on("NotReady")),
        (down(600), vec![unready.clone()], not_on("NotReady")),
        (down(600), vec![], not_on("NotReady")),
        (not_ready("b", 600), vec![old.clone()], not_on("NotReady")),
        (cordoned("b"), vec![new.clone()], both.clone()),
        (cordoned("b"), vec![], not_on("cordoned")),
        (cordoned("b"), vec![old.clone()], not_on("cordoned")),
        (
            cordoned("b"),
            vec![unready.clone(), old.clone()],
            not_on("cordoned"),
        ),
        (
            cordoned("b"),
            vec![crashing.clone()],
            not_on("CrashLoopBackOff"),
        ),
        (in_maintenance("b"), vec![new.clone()], both.clone()),
        (in_maintenance("b"), vec![], not_on("maintenance")),
        (
            in_maintenance("b"),
            vec![old.clone()],
            not_on("maintenance"),
        ),
        // No pod belongs there; it may keep one.
        (barred.clone(), vec![], one.clone()),
        (barred.clone(), vec![new], both),
        (barred, vec![old], not_on("taint not tolerated")),
        (expelled, vec![], one),
        // It has just joined, or fails since.
        (node("b"), vec![unready], not_on("no available pod")),
        (node("b"), vec![crashing], not_on("CrashLoopBackOff")),
    ] {
        let case = format!("{node:?} {pods:?}");
        let pods = [vec![ready("a", "new")], pods].concat();
        let mut world = world(vec![self::node("a"), node], pods);
        world.current = "new";
        let (reason, said) = after_the_end(&world);
        assert_eq!(said, message, "{case}");
        let ends = ["Complete", "Cordoned", "Maintenance"];
        assert!(ends.contains(&&*reason), "{reason}");
    }
    let none = world(vec![tainted("a", "k", "NoExecute")], vec![]);
    let (_, said) = after_the_end(&none);
    assert_eq!(said, "no node is eligible for revision new");
}

#[test]
fn an_unready_pod_is_deleted_only_in_the_observed_version() {
    let unready = PodView {
        version: Some("7".into()),
        ..pod("a", "old")
    };
    let mut world = world(nodes(&["a", "b"]), vec![unready, ready("b", "old")]);
    world.strategy.max_unavailable = Amount::Nodes(2);
    let versions: Vec<_> = world
        .decide()
        .delete
        .iter()
        .map(|d| d.version.clone())
        .collect();
    assert_eq!(versions, [Some("7".into()), None]);
    // Other reasons do not depend on what the pod does.
    world.nodes.remove(0);
    assert_eq!(world.decide().delete[0].version, None);
}

#[test]
fn a_node_that_was_unavailable_before_holds_the_roll_out_up_for_ten_minutes() {
    let names = ["a", "b", "c"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    let broken = |predecessor| PodView {
        predecessor,
        ..pod("a", "new")
    };
    let long_ago = Predecessor::Unavailable(at(NOW - 5_000));
    let recently = Predecessor::Unavailable(at(NOW - 599));
    for (predecessor, since, waits) in [
        (long_ago, 599, true),
        (long_ago, 600, false),
        (recently, 5_000, true),
        (Predecessor::Unknown, 5_000, false),
        (Predecessor::Available, 5_000, true),
    ] {
        world.pods[0] = broken(predecessor);
        world.update_since = NOW - since;
        let decision = world.decide();
        let gone = ["b-old outdated".to_owned()];
        assert_eq!(
            deleted(&decision),
            gone[usize::from(waits)..],
            "{predecessor:?} {since}"
        );
        let next = waits && predecessor != Predecessor::Available;
        assert_eq!(decision.next, next.then_some(at(NOW + 1)));
        let left_out: &[_] = if waits {
            &[]
        } else {
            &["a (no available pod)"]
        };
        assert_eq!(decision.observed.left_out, named(left_out));
    }
    // The same for an old pod that has failed since then, where the roll-out is not to touch it.
    let old = |since: i64| PodView {
        unready_since: Some(at(NOW - since)),
        ..pod("a", "old")
    };
    world.nodes[0].cordoned = true;
    for (since, waits) in [(599, true), (600, false)] {
        world.pods[0] = old(since);
        let gone = ["b-old outdated".to_owned()];
        assert_eq!(deleted(&world.decide()), gone[usize::from(waits)..]);
    }
    // The roll-out ends without it.
    world.nodes[0].cordoned = false;
    world.pods = vec![broken(long_ago), ready("b", "new"), ready("c", "new")];
    let observed = world.decide().observed;
    assert!(observed.complete);
    assert_eq!(observed.left_out.count, 1);
}

#[test]
fn a_successor_carries_what_it_replaces() {
    let steady = ready("a", "old");
    let looping = PodView {
        restarts: 5,
        ready_since: Some(at(NOW - 5)),
        unready_since: None,
        ..steady.clone()
    };
    let dark = PodView {
        unready_since: Some(at(NOW - 70)),
        ..pod("a", "old")
    };
    for (old, expected) in [
        (steady, Predecessor::Available),
        (looping, Predecessor::Unavailable(at(NOW))),
        (dark, Predecessor::Unavailable(at(NOW - 70))),
        (
            failed("a", "old", 5, 0),
            Predecessor::Unavailable(at(NOW - 5)),
        ),
    ] {
        let mut world = world(nodes(&["a"]), vec![old.clone()]);
        let delete = world.decide().delete.remove(0);
        assert_eq!(delete.last.was, expected, "{old:?}");
        // Once the old pod is gone.
        world.pods.clear();
        world.memory = BTreeMap::from([("a".to_owned(), delete.last)]);
        assert_eq!(world.decide().create[0].predecessor, expected);
        // The same in a surge, next to it.
        if old.is_ready() {
            world.pods = vec![old];
            world.memory.clear();
            world.strategy.max_surge = Amount::Nodes(1);
            assert_eq!(world.decide().create[0].predecessor, expected);
        }
    }
    // A failed pod of the newest revision leaves it to its successor.
    let mut world = world(nodes(&["a"]), vec![failed("a", "new", 100, 0)]);
    let last = world.decide().delete.remove(0).last;
    assert_eq!(last.predecessor, Predecessor::Available);
    world.pods.clear();
    assert_eq!(world.decide().create[0].predecessor, Predecessor::Unknown);
    world.memory = BTreeMap::from([("a".to_owned(), last.clone())]);
    assert_eq!(world.decide().create[0].predecessor, Predecessor::Available);
    // To one of another revision, it is a pod that failed; and a pod of the newest revision that was taken away for
    // another one, which was undone, is not an older pod that served.
    let other = |predecessor, was| Last {
        revision: "old".into(),
        predecessor,
        was,
        ..last.clone()
    };
    let failed = Predecessor::Unavailable(at(NOW - 100));
    world.memory = BTreeMap::from([("a".to_owned(), other(Predecessor::Available, failed))]);
    assert_eq!(world.decide().create[0].predecessor, failed);
    world.memory.get_mut("a").unwrap().revision = "new".into();
    world.memory.get_mut("a").unwrap().predecessor = Predecessor::Unknown;
    world.memory.get_mut("a").unwrap().was = Predecessor::Available;
    assert_eq!(world.decide().create[0].predecessor, Predecessor::Unknown);
}

#[test]
fn each_attempt_begins_with_another_item() {
    let turns = |failures| {
        in_turn(["a", "b", "c"].iter(), failures)
            .copied()
            .collect::<String>()
    };
    assert_eq!([0, 1, 2, 3].map(turns), ["abc", "bca", "cab", "abc"]);
    assert_eq!(in_turn(<[&str; 0]>::default().iter(), 1).count(), 0);
}

#[test]
fn a_pause_stops_the_roll_out_and_nothing_else() {
    let all = vec![node("a"), node("b"), tainted("c", "k", "NoExecute")];
    let mut world = world(
        all,
        vec![
            pod("a", "old"),
            failed("b", "old", 10, 0),
            ready("c", "old"),
        ],
    );
    world.strategy.paused = true;
    assert_eq!(
        deleted(&world.decide()),
        ["b-old failed", "c-old no longer eligible"]
    );
}

#[test]
fn a_node_that_cannot_be_changed_does_not_block_others() {
    let names = ["a", "b", "c"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    for (failures, node) in [(0, "a"), (1, "b"), (2, "c"), (3, "a")] {
        world.failures = failures;
        world.strategy.max_surge = Amount::Nodes(0);
        assert_eq!(deleted(&world.decide()), [format!("{node}-old outdated")]);
        world.strategy.max_surge = Amount::Nodes(1);
        assert_eq!(created(&world.decide()), [format!("{node}/new")]);
    }
    world.strategy.max_surge = Amount::Nodes(9);
    assert_eq!(created(&world.decide()).len(), 3);
}

#[test]
fn a_revision_that_is_not_stored_reaches_no_node() {
    for (on_delete, disk) in [(false, "hdd"), (true, "hdd"), (false, "ssd"), (true, "ssd")] {
        let names = ["a", "b", "c", "d"];
        let mut world = world(
            names.map(|name| with_disk(name, "hdd")).into(),
            vec![pod("a", "old"), ready("b", "old")],
        );
        // A node that joins is not known to have had a pod.
        world.nodes[3].created = at(NOW - 50);
        world.old_template = Some(on_disk("hdd"));
        world.template = on_disk(disk);
        world.strategy.on_delete = on_delete;
        world.strategy.max_unavailable = Amount::Nodes(4);
        world.missing = &["new"];
        let decision = world.decide();
        assert_eq!(created(&decision), ["c/old", "d/old"]);
        assert_eq!(deleted(&decision), NOTHING);
        assert!(!decision.observed.complete && decision.dry_run.is_none());
        // The first revision of an object.
        world.current = "new";
        assert_eq!(created(&world.decide()), NOTHING);
    }
}

#[test]
fn no_pause_outlasts_a_clock_that_is_set_back() {
    let mut new = ready("a", "new");
    new.ready_since = Some(at(NOW + 5_000));
    let mut ended = failed("b", "new", 0, 3);
    ended.ended = Some(at(NOW + 5_000));
    let decision = world(nodes(&["a", "b"]), vec![new, ended]).decide();
    assert_eq!(decision.observed.available, 1);
    assert_eq!(deleted(&decision), ["b-new failed"]);
}

#[test]
fn a_surge_creates_the_new_pod_first() {
    let names = ["a", "b", "c"];
    let mut world = world(nodes(&names), names.map(|n| ready(n, "old")).into());
    world.strategy.max_unavailable = Amount::Nodes(0);
    world.strategy.max_surge = Amount::Percent(50);
    world.strategy.min_ready = TimeDelta::seconds(10);
    let decision = world.decide();
    assert_eq!(created(&decision), ["a/new", "b/new"]);
    assert_eq!(deleted(&decision), NOTHING);
    // While they start, no more.
    world.pods.extend([pod("a", "new"), pod("b", "new")]);
    let decision = world.decide();
    assert_eq!((created(&decision).len(), deleted(&decision).len()), (0, 0));
    // Ready, but too young.
    world.pods[3].ready_since = Some(at(NOW - 9));
    assert_eq!(deleted(&world.decide()), NOTHING);
    assert_eq!(world.decide().next, Some(at(NOW + 1)));
    // Available: the old pod is deleted, and no longer counts as a surge once that has begun.
    world.pods[3].ready_since = Some(at(NOW - 10));
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
    world.pods[0].deleting = true;
    assert_eq!(created(&world.decide()), ["c/new"]);
    // A pause does not leave a node with two good pods, and is not over before.
    world.strategy.paused = true;
    world.pods[0].deleting = false;
    assert_eq!(world.decide().observed.waiting, named(&["a", "b"]));
    assert_eq!(deleted(&world.decide()), ["a-old outdated"]);
}

#[test]
fn a_surge_replaces_unready_pods_first() {
    let mut world = world(nodes(&["a", "b"]), vec![pod("a", "old"), ready("b", "old")]);
    world.strategy.max_unavailable = Amount::Nodes(0);
    world.strategy.max_surge = Amount::Nodes(1);
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["a-old outdated"]);
    assert_eq!(created(&decision), NOTHING, "first it is proven there");
    // A failed surge pod waits for its pause, and keeps its place among the surges.
    world.pods = vec![
        ready("a", "old"),
        failed("a", "new", 5, 0),
        ready("b", "old"),
    ];
    let decision = world.decide();
    assert_eq!((created(&decision).len(), deleted(&decision).len()), (0, 0));
    assert_eq!(decision.next, Some(at(NOW + 5)));
}

#[test]
fn when_the_surge_is_removed_the_old_pod_is_deleted_within_the_limit() {
    let pods = vec![
        ready("a", "old"),
        pod("a", "new"),
        ready("b", "old"),
        pod("b", "new"),
    ];
    assert_eq!(
        deleted(&world(nodes(&["a", "b"]), pods).decide()),
        ["a-old outdated"]
    );
}

#[test]
fn a_roll_out_that_fails_on_its_first_nodes_is_auto_paused() {
    let crash = |node: &str, age: i64| PodView {
        created: at(NOW - age),
        restarts: 2,
        ..pod(node, "new")
    };
    let waits = |node: &str, trouble: &str, age: i64| PodView {
        created: at(NOW - age),
        trouble: Some(trouble.into()),
        ..pod(node, "new")
    };
    let loops = |node: &str| waits(node, "ImagePullBackOff", 60);
    let names = ["a", "b", "c", "d"];
    let stopped = |first: PodView, second: PodView, change: &dyn Fn(&mut World)| {
        let pods = vec![first, second, ready("c", "old"), ready("d", "old")];
        let mut world = world(nodes(&names), pods);
        world.strategy.max_unavailable = Amount::Nodes(2);
        change(&mut world);
        world.decide().observed.auto_paused
    };
    let no_change = |_: &mut World| {};
    assert!(stopped(crash("a", 60), crash("b", 60), &no_change));
    assert!(stopped(loops("a"), failed("b", "new", 2, 0), &no_change));
    for (trouble, age, stops) in [
        ("ErrImagePull", 59, false),
        ("ImagePullBackOff", 59, false),
        ("ErrImagePull", 60, true),
        ("CreateContainerConfigError", 5, true),
        ("CreateContainerError", 5, true),
        ("RunContainerError", 5, true),
        ("PostStartHookError", 5, true),
        ("ContainerCreating", 60, false),
    ] {
        let [a, b] = ["a", "b"].map(|node| waits(node, trouble, age));
        assert_eq!(stopped(a, b, &no_change), stops, "{trouble} {age}");
    }
    // An image that is needed only after long init containers.
    let [a, b] = ["a", "b"].map(|node| PodView {
        initialized: Some(at(NOW - 59)),
        ..waits(node, "ErrImagePull", 300)
    });
    assert!(!stopped(a, b, &no_change));
    assert!(
        !stopped(crash("a", 60), ready("b", "new"), &no_change),
        "one is within the limit"
    );
    let disrupted = |pod: PodView| PodView {
        disrupted: true,
        ..pod
    };
    assert!(!stopped(
        crash("a", 60),
        disrupted(failed("b", "new", 2, 0)),
        &no_change
    ));
    // Not available when the deadline has passed.
    let late = |node: &str, unready: i64| PodView {
        created: at(NOW - 600),
        unready_since: Some(at(NOW - unready)),
        ..pod(node, "new")
    };
    assert!(stopped(late("a", 600), late("b", 100), &|w| {
        w.pods[1].unready_since = Some(at(NOW));
    }));
    assert!(!stopped(late("a", 600), late("b", 600), &|w| {
        w.strategy.progress_deadline = TimeDelta::seconds(601);
    }));
    assert!(!stopped(late("a", 600), late("b", 600), &|w| {
        // It was available, and lost that later.
        w.strategy.progress_deadline = TimeDelta::seconds(300);
        w.pods[1].unready_since = Some(at(NOW - 200));
    }));
    // Settings.
    let with = |max_failures, window| {
        move |w: &mut World| {
            w.strategy.auto_pause = Some(AutoPause {
                max_failures,
                window: TimeDelta::seconds(window),
            });
        }
    };
    assert!(stopped(
        crash("a", 60),
        ready("b", "new"),
        &with(Some(1), 600)
    ));
    assert!(!stopped(
        crash("a", 60),
        crash("b", 60),
        &with(Some(3), 600)
    ));
    assert!(!stopped(crash("a", 60), crash("b", 60), &with(None, 59)));
    for already in [false, true] {
        assert!(!stopped(crash("a", 60), crash("b", 60), &|w| {
            w.strategy.auto_pause = None;
            w.auto_paused = already;
        }));
    }
    // A node that never had a good pod of an older revision says nothing.
    for before in [Predecessor::Unknown, Predecessor::Unavailable(at(NOW - 60))] {
        assert!(!stopped(crash("a", 60), crash("b", 60), &|w| {
            w.pods[1].predecessor = before;
        }));
    }
    assert!(
        !stopped(crash("a", 60), crash("b", 601), &no_change),
        "too late to blame the revision"
    );
    assert!(!stopped(crash("a", 60), crash("b", 60), &|w| w.resumed = true));
    assert!(
        !stopped(crash("a", 60), crash("b", 60), &|w| w.current = "new"),
        "no roll-out"
    );
    assert!(!stopped(crash("a", 60), crash("b", 60), &|w| w
        .strategy
        .on_delete =
        true));
    assert!(
        stopped(ready("a", "new"), ready("b", "new"), &|w| w.auto_paused =
            true),
        "it stays stopped"
    );
    assert!(!stopped(ready("a", "new"), ready("b", "new"), &|w| {
        w.auto_paused = true;
        w.resumed = true;
    }));
    // Nodes that went silent after they got it; not one that was silent before.
    let silent = |seconds: i64| {
        move |w: &mut World| {
            for i in [0, 1] {
                w.nodes[i] = not_ready(names[i], seconds);
                w.pods[i].created = at(NOW - 100);
            }
        }
    };
    assert!(stopped(pod("a", "new"), pod("b", "new"), &silent(50)));
    assert!(stopped(pod("a", "new"), pod("b", "new"), &silent(15)));
    assert!(!stopped(pod("a", "new"), pod("b", "new"), &silent(14)));
    assert!(!stopped(pod("a", "new"), pod("b", "new"), &silent(150)));
}

#[test]
fn a_node_that_goes_not_ready_counts_at_once_and_a_stop_for_it_ends_with_it() {
    let new = PodView {
        created: at(NOW - 100),
        ..ready("a", "new")
    };
    let pods = vec![new, ready("b", "old"), ready("c", "old")];
    let mut world = world(vec![not_ready("a", 5), node("b"), node("c")], pods);
    let decision = world.decide();
    assert_eq!(
        deleted(&decision),
        NOTHING,
        "its pod still claims to be Ready"
    );
    assert_eq!(decision.next, Some(at(NOW + 10)));
    // A reboot in maintenance says nothing, also if that is over before the node is up.
    world.nodes[0] = NodeView {
        down_since_maintenance: true,
        ..not_ready("a", 15)
    };
    assert!(!world.decide().observed.auto_paused);
    world.nodes[0] = not_ready("a", 15);
    let observed = world.decide().observed;
    let failed = |name: &str, reason: &str| FailedNode {
        name: name.into(),
        reason: reason.into(),
    };
    assert!(observed.auto_paused);
    assert_eq!(observed.stopped_for, [failed("a", "NotReady")]);
    // It stays stopped while the node is there, Ready again or not.
    world.auto_paused = true;
    world.failed_nodes = observed.stopped_for;
    world.nodes[0] = node("a");
    assert!(world.decide().observed.auto_paused);
    world.nodes.remove(0);
    world.gone.insert("a".into(), at(NOW - 1));
    let decision = world.decide();
    assert!(!decision.observed.auto_paused);
    assert_eq!(deleted(&decision), ["b-old outdated"]);
    // One that crashed there speaks on.
    world.failed_nodes = vec![failed("a", "CrashLoopBackOff")];
    assert!(world.decide().observed.auto_paused);
    // Of several, enough are left, or not.
    world.failed_nodes = vec![
        failed("a", "NotReady"),
        failed("x", "Error"),
        failed("y", "Error"),
    ];
    world.strategy.max_unavailable = Amount::Nodes(2);
    assert!(world.decide().observed.auto_paused);
    world.strategy.max_unavailable = Amount::Nodes(3);
    assert!(!world.decide().observed.auto_paused);
}

#[test]
fn an_auto_pause_outlasts_the_absence_of_the_last_old_pod() {
    let mut world = world(nodes(&["a", "b"]), vec![pod("a", "new")]);
    world.auto_paused = true;
    let decision = world.decide();
    assert!(decision.observed.auto_paused);
    assert_eq!(created(&decision), ["b/old"]);
}

#[test]
fn only_a_new_revision_or_a_resumption_ends_an_auto_pause() {
    let stopped = |nodes: Vec<NodeView>, pods: Vec<PodView>, on_delete| {
        let mut world = world(nodes, pods);
        world.auto_paused = true;
        world.strategy.on_delete = on_delete;
        let observed = world.decide().observed;
        assert!(!observed.auto_paused || !observed.complete);
        observed.auto_paused
    };
    let both = || vec![ready("a", "new"), ready("b", "old")];
    // The node with the old pod is cordoned, drained, tainted, lost, or away.
    for b in [
        cordoned("b"),
        in_maintenance("b"),
        tainted("b", "k", "NoSchedule"),
        tainted("b", "k", "NoExecute"),
        not_ready("b", 100),
        tainted("b", "node.kubernetes.io/unreachable", "NoSchedule"),
    ] {
        for pods in [both(), vec![ready("a", "new")]] {
            assert!(stopped(vec![node("a"), b.clone()], pods, false), "{b:?}");
        }
    }
    assert!(stopped(nodes(&["a"]), vec![ready("a", "new")], false));
    assert!(stopped(nodes(&["a", "b"]), both(), true), "OnDelete");
    let mut world = world(nodes(&["a", "b"]), both());
    world.auto_paused = true;
    world.resumed = true;
    assert!(!world.decide().observed.auto_paused);
    world.resumed = false;
    world.current = "new";
    assert!(!world.decide().observed.auto_paused);
}

#[test]
fn an_auto_pause_outlasts_the_absence_of_every_node() {
    let both = |node: fn(&str) -> NodeView| vec![node("a"), node("b")];
    let lost = |name: &str| not_ready(name, 100);
    let mut world = world(both(cordoned), vec![ready("a", "old"), ready("b", "old")]);
    world.auto_paused = true;
    assert!(world.decide().observed.auto_paused);
    world.nodes = both(lost);
    assert!(world.decide().observed.auto_paused);
    // Nothing is deleted when they are back.
    world.nodes = both(node);
    assert_eq!(deleted(&world.decide()), NOTHING);
}

#[test]
fn a_roll_out_is_not_complete_because_no_node_can_be_reached() {
    let all = vec![not_ready("a", 100), not_ready("b", 100)];
    let mut world = world(all, vec![ready("a", "old"), ready("b", "old")]);
    assert!(!world.decide().observed.complete);
    // No kubelet confirms their deletion.
    world.pods = vec![deleting("a", "old"), deleting("b", "old")];
    assert!(!world.decide().observed.complete);
    world.pods = vec![deleting("a", "old"), pod("b", "new")];
    assert!(!world.decide().observed.complete);
    world.pods.clear();
    for node in &mut world.nodes {
        node.taints = tainted("x", "node.kubernetes.io/unreachable", "NoSchedule").taints;
    }
    assert!(!world.decide().observed.complete);
    world.nodes[0] = node("a");
    world.pods = vec![ready("a", "new"), deleting("b", "old")];
    assert!(
        world.decide().observed.complete,
        "a lost node is not waited for"
    );
}

#[test]
fn a_cordoned_node_with_a_new_pod_completes_no_roll_out() {
    let pods = || vec![ready("a", "new"), ready("b", "old")];
    let mut world = world(vec![cordoned("a"), not_ready("b", 100)], pods());
    assert!(!world.decide().observed.complete);
    world.nodes.pop();
    world.pods.pop();
    assert!(world.decide().observed.complete, "it is the only node");
}

#[test]
fn a_roll_out_waits_for_the_end_of_old_pods() {
    let pods = vec![ready("a", "new"), ready("b", "new"), deleting("b", "old")];
    let mut world = world(nodes(&["a", "b"]), pods);
    let observed = world.decide().observed;
    assert!(!observed.complete);
    assert_eq!(observed.waiting.to_string(), "b (Terminating)");
    // A pod that has ended and is kept by a finalizer no longer runs.
    world.pods[2] = PodView {
        deleting: true,
        ..failed("b", "old", 5, 0)
    };
    assert!(world.decide().observed.complete);
}

#[test]
fn an_auto_paused_roll_out_deletes_no_old_pod() {
    let mut world = world(
        nodes(&["a", "b", "c"]),
        vec![pod("a", "new"), pod("b", "old"), ready("c", "old")],
    );
    world.strategy.max_unavailable = Amount::Nodes(3);
    world.auto_paused = true;
    assert_eq!(deleted(&world.decide()), NOTHING);
}

fn named(first: &[&str]) -> Named {
    Named::new(first.iter(), ToString::to_string)
}

#[test]
fn the_first_nodes_are_named_and_the_others_counted() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let observed = world(nodes(&names), vec![]).decide().observed;
    assert_eq!(observed.unavailable.to_string(), "a, b, c, d, e and 2 more");
    assert_eq!(named(&["a", "b"]).to_string(), "a, b");
}

#[test]
fn no_outdated_pod_is_deleted_before_its_successor_passes_a_dry_run() {
    let pods = vec![ready("a", "old"), pod("b", "old"), failed("c", "old", 1, 0)];
    let mut world = world(nodes(&["a", "b", "c"]), pods);
    world.validated = false;
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    let asked = decision.dry_run.unwrap();
    assert_eq!((asked.node.as_str(), asked.revision.as_str()), ("b", "new"));
    // An existing pod of the revision does not show what is admitted now.
    world.pods[1] = ready("b", "new");
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert!(decision.dry_run.is_some());
    // A deletion for another reason needs no proof.
    world.pods = vec![ready("a", "old"), ready("gone", "old")];
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["gone-old node gone"]);
    world.validated = true;
    assert_eq!(world.decide().dry_run, None);
}

#[test]
fn a_pod_is_adopted_or_released_before_anything_else_is_done_with_it() {
    let orphan = |node: &str, revision: &str| PodView {
        owner_uid: String::new(),
        ..ready(node, revision)
    };
    let stray = PodView {
        is_released: true,
        ..ready("b", "new")
    };
    let gone = PodView {
        deleting: true,
        ..orphan("c", "new")
    };
    let pods = vec![orphan("a", "old"), stray, gone, orphan("gone", "old")];
    let decision = world(nodes(&["a", "b", "c"]), pods).decide();
    let claims = decision.claim.iter().map(|c| (c.pod.as_str(), c.adopt));
    assert_eq!(
        claims.collect::<Vec<_>>(),
        [("a-old", true), ("b-new", false), ("gone-old", true)]
    );
    assert_eq!(deleted(&decision), NOTHING);
    // An orphan that is being deleted is still on its node.
    assert_eq!(created(&decision), NOTHING);
    // An orphan counts as the node's pod, a released one does not.
    assert_eq!(
        (decision.observed.desired, decision.observed.current),
        (3, 1)
    );
}

#[test]
fn nodes_are_counted_for_the_status() {
    let mut young = ready("b", "new");
    young.ready_since = Some(at(NOW - 5));
    let mut ailing = pod("d", "new");
    ailing.trouble = Some("CrashLoopBackOff".into());
    let mut world = world(
        nodes(&["a", "b", "c", "d", "e", "f"]),
        vec![
            ready("a", "new"),
            young,
            ready("c", "old"),
            ailing,
            failed("e", "new", 1, 0),
        ],
    );
    world.strategy.min_ready = TimeDelta::seconds(10);
    let observed = world.decide().observed;
    assert_eq!(
        observed,
        Observed {
            desired: 6,
            current: 5,
            misscheduled: 0,
            ready: 3,
            updated: 4,
            available: 2,
            gate: Gate::default(),
            max_unavailable: 1,
            done: 1,
            left: 5,
            reached: 1,
            unreached: ByCause {
                first: BTreeMap::from([
                    ("CrashLoopBackOff".into(), vec!["d".into()]),
                    ("Error".into(), vec!["e".into()]),
                    ("an older revision".into(), vec!["c".into()]),
                    ("no available pod".into(), vec!["b".into(), "f".into()]),
                ]),
                count: 5,
            },
            waits_for: BTreeMap::from([
                (WaitsFor::Own(Cause::CrashLoop), 2),
                (WaitsFor::Own(Cause::MinReady), 1),
                (WaitsFor::Hold, 1),
                (WaitsFor::Step, 1),
            ]),
            outdated: 1,
            held: 1,
            unavailable: named(&["b", "d", "e", "f"]),
            waiting: Named::default(),
            failing: named(&["d (CrashLoopBackOff)", "e (Error)"]),
            stopped_for: vec![FailedNode {
                name: "e".into(),
                reason: "Error".into(),
            }],
            failed: 1,
            excluded: BTreeMap::default(),
            no_node: false,
            left_out: Named::default(),
            undone: 0,
            auto_paused: true,
            complete: false,
            canary: None,
            domain: None,
        }
    );
    // A stopped roll-out waits for no node.
    world.resumed = true;
    let observed = world.decide().observed;
    assert_eq!(observed.waiting, named(&["b", "d", "e", "f"]));
    world.pods[4] = deleting("e", "old");
    let waiting = world.decide().observed.waiting;
    assert_eq!(waiting.to_string(), "b, d, e (Terminating), f");
}

#[test]
fn each_node_that_is_not_done_waits_for_something() {
    let unready = |trouble: Option<&str>, since: Option<i64>| PodView {
        trouble: trouble.map(Into::into),
        initialized: Some(at(NOW - 900)),
        unready_since: since.map(|ago| at(NOW - ago)),
        ..pod("a", "new")
    };
    let evicted = PodView {
        disrupted: true,
        ..failed("a", "old", 1, 0)
    };
    let own = WaitsFor::Own;
    let cases = [
        (node("a"), vec![], WaitsFor::Step),
        (node("a"), vec![ready("a", "old")], WaitsFor::Turn),
        (
            node("a"),
            vec![ready("a", "new"), ready("a", "old")],
            WaitsFor::Deletion,
        ),
        (
            node("a"),
            vec![deleting("a", "old")],
            own(Cause::Terminating),
        ),
        (
            node("a"),
            vec![unready(None, Some(900))],
            own(Cause::Starting),
        ),
        (node("a"), vec![unready(None, None)], own(Cause::Starting)),
        // It has been Ready in between.
        (
            node("a"),
            vec![unready(None, Some(5))],
            own(Cause::Undetermined),
        ),
        (
            node("a"),
            vec![unready(Some("ErrImagePull"), None)],
            own(Cause::ImagePull),
        ),
        (
            node("a"),
            vec![unready(Some("OutOfcpu"), None)],
            own(Cause::Resources),
        ),
        (
            node("a"),
            vec![failed("a", "old", 1, 0)],
            own(Cause::CrashLoop),
        ),
        (node("a"), vec![evicted], own(Cause::Evicted)),
        (
            not_ready("a", 5),
            vec![ready("a", "old")],
            own(Cause::NodeNotReady),
        ),
        (cordoned("a"), vec![ready("a", "old")], own(Cause::Cordoned)),
        (
            tainted("a", "k", "NoSchedule"),
            vec![ready("a", "old")],
            own(Cause::TaintNotTolerated),
        ),
    ];
    for (node, pods, expected) in cases {
        let mut world = world(vec![node, self::node("b")], pods);
        world.pods.push(ready("b", "new"));
        let waits_for = world.decide().observed.waits_for;
        assert_eq!(waits_for, BTreeMap::from([(expected, 1)]));
    }
    // A pod that its own revision allows, and the newest does not.
    let excluding = |template| {
        let mut world = world(nodes(&["a"]), vec![ready("a", "old")]);
        world.old_template = Some(PodTemplate(json!({})));
        world.template = PodTemplate(template);
        world.decide().observed.waits_for
    };
    let selector = excluding(json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
    assert_eq!(selector, BTreeMap::from([(own(Cause::NotEligible), 1)]));
}

#[test]
fn nothing_is_done_when_every_node_has_its_pod() {
    let mut world = world(
        nodes(&["a", "b"]),
        vec![ready("a", "new"), ready("b", "new")],
    );
    for current in ["old", "new"] {
        world.current = current;
        let decision = world.decide();
        assert!(decision.create.is_empty() && decision.delete.is_empty());
        assert_eq!(decision.next, None);
        assert!(decision.observed.complete);
    }
}

/// A pod of a revision on its first trial, in the place of an available one, that crashes.
fn crashing(node: &str, revision: &str) -> PodView {
    PodView {
        created: at(NOW - 30),
        restarts: 2,
        predecessor: Predecessor::Available,
        unready_since: Some(at(NOW - 10)),
        trouble: Some("CrashLoopBackOff".into()),
        ..pod(node, revision)
    }
}

/// The way back from `new` to `old`.
fn way_back(nodes: Vec<NodeView>, pods: Vec<PodView>) -> World {
    World {
        update: "old",
        undone: Some("new"),
        ..world(nodes, pods)
    }
}

#[test]
fn the_way_back_begins_with_the_nodes_that_failed_and_keeps_the_limits() {
    let mut world = way_back(
        nodes(&["a", "b", "c", "d"]),
        vec![
            ready("a", "old"),
            ready("b", "new"),
            crashing("c", "new"),
            ready("d", "new"),
        ],
    );
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["c-new outdated"]);
    assert_eq!(decision.observed.undone, 3);
    assert!(!decision.observed.auto_paused && !decision.observed.complete);
    world.pods[2] = ready("c", "old");
    assert_eq!(deleted(&world.decide()), ["b-new outdated"]);
    for (at, node) in [(1, "b"), (3, "d")] {
        world.pods[at] = ready(node, "old");
    }
    let observed = world.decide().observed;
    assert_eq!((observed.undone, observed.complete), (0, true));
}

#[test]
fn the_way_back_stops_if_it_fails_as_well_unless_a_user_asked_for_it() {
    let mut world = way_back(
        nodes(&["a", "b", "c"]),
        vec![crashing("a", "old"), ready("b", "new"), ready("c", "new")],
    );
    let decision = world.decide();
    assert!(decision.observed.auto_paused);
    assert_eq!(decision.observed.stopped_for[0].name, "a");
    assert_eq!(deleted(&decision), NOTHING);
    world.undone = None;
    assert!(!world.decide().observed.auto_paused);
}

/// The revision `middle` was bad on `a`, where its roll-out stopped. So is `new`.
#[test]
fn a_second_bad_revision_takes_no_node_but_those_of_the_first() {
    let mut world = world(
        nodes(&["a", "b", "c"]),
        vec![
            crashing("a", "middle"),
            ready("b", "old"),
            ready("c", "old"),
        ],
    );
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["a-middle outdated"]);
    let last = decision.delete[0].last.clone();
    assert_eq!(last.was, Predecessor::Available);
    world.memory = BTreeMap::from([("a".to_owned(), last)]);
    world.pods.remove(0);
    let create = world.decide().create.remove(0);
    assert_eq!(create.predecessor, Predecessor::Available);
    world.memory.clear();
    // It neither works nor crashes: the deadline passes.
    world.pods.push(PodView {
        predecessor: create.predecessor,
        unready_since: Some(at(NOW - 1_000)),
        ..pod("a", "new")
    });
    let decision = world.decide();
    assert_eq!(deleted(&decision), NOTHING);
    assert!(decision.observed.auto_paused);
}

#[test]
fn only_a_pod_of_a_roll_out_that_was_not_completed_leaves_its_place_to_the_next() {
    let was = |old: PodView, change: fn(&mut World)| {
        let mut world = world(nodes(&["a", "b"]), vec![old, ready("b", "old")]);
        change(&mut world);
        world.decide().delete.remove(0).last.was
    };
    let same = |_: &mut World| {};
    let unready = Predecessor::Unavailable(at(NOW - 10));
    let crashing = crashing("a", "middle");
    assert_eq!(was(crashing.clone(), same), Predecessor::Available);
    // Its roll-out was completed since: it ran well elsewhere.
    let complete = |world: &mut World| world.current = "middle";
    assert_eq!(was(crashing.clone(), complete), unready);
    let known = |predecessor| PodView {
        predecessor,
        ..crashing.clone()
    };
    assert_eq!(was(known(Predecessor::Unknown), same), unready);
    // It was Ready for long after the deadline.
    let served = PodView {
        created: at(NOW - 10_000),
        restarts: 0,
        trouble: None,
        ..crashing.clone()
    };
    assert_eq!(was(served, same), unready);
    let evicted = PodView {
        disrupted: true,
        ..crashing.clone()
    };
    assert_eq!(was(evicted, same), unready);
    // Back to what was completed: a node that is broken by itself must not hold up the others.
    let back = |world: &mut World| world.update = "old";
    assert_eq!(was(crashing, back), unready);
}

#[test]
fn a_freeze_keeps_every_pod_that_runs() {
    let surplus = PodView {
        name: "d-twin".into(),
        created: at(NOW - 10),
        ..ready("d", "old")
    };
    let mut world = world(
        nodes(&["a", "b", "c", "d", "e", "f"]),
        vec![
            ready("a", "old"),
            // The end of a surge.
            ready("b", "old"),
            ready("b", "new"),
            // It does not serve.
            pod("c", "old"),
            ready("d", "old"),
            surplus,
            failed("e", "old", 60, 0),
        ],
    );
    world.nodes.push(tainted("g", "k", "NoExecute"));
    world.pods.push(ready("g", "old"));
    world.strategy.max_unavailable = Amount::Percent(100);
    let all = deleted(&world.decide());
    for pod in [
        "a-old", "b-old", "c-old", "d-old", "d-twin", "e-old", "g-old",
    ] {
        assert!(all.iter().any(|delete| delete.starts_with(pod)), "{all:?}");
    }
    world.freeze = Some(Freeze::Deletions);
    let decision = world.decide();
    assert_eq!(deleted(&decision), ["e-old failed"]);
    assert_eq!(created(&decision), ["f/old"]);
    world.freeze = Some(Freeze::All);
    let decision = world.decide();
    assert_eq!((deleted(&decision).len(), created(&decision).len()), (0, 0));
    // No surge begins either.
    world.freeze = Some(Freeze::Deletions);
    world.strategy.max_surge = Amount::Nodes(3);
    assert_eq!(created(&world.decide()), ["f/old"]);
}
