//! A model of a cluster, driven at random: spec changes, failures, nodes that come and go, calls that fail or
//! whose answers are lost, an operator that is started again, and watches that show pods late. Each decision is
//! held against [`promises`], and in the end the roll-out must come to its end.

use std::collections::VecDeque;

use my_operator_rounds::{lengths, parallel_cases};

use super::promises::{Case, Fault};
use super::*;
use crate::kinds::mydaemonset::memory::{Answer, Memory};

/// No watch lags for longer, where one does: less than what was done is believed without being seen.
const LONGEST_LAG: TimeDelta = TimeDelta::seconds(20);
const OWNER: &str = "owner";

fn one_in(random: &mut fastrand::Rng, n: u32) -> bool {
    random.u32(0..n) == 0
}

struct Model {
    random: fastrand::Rng,
    now: DateTime<Utc>,
    nodes: Vec<NodeView>,
    /// A number that makes the next UID.
    next_uid: u64,
    pods: Vec<PodView>,
    strategy: Strategy,
    revisions: Vec<(&'static str, i64)>,
    update_since: DateTime<Utc>,
    current: String,
    auto_paused: bool,
    calm: bool,
    placement: Placement,
    /// Nothing goes wrong by itself: no pod fails or is deleted by others, and no node is lost.
    quiet: bool,
    /// By how much the watch of the pods lags at most.
    lag: TimeDelta,
    /// What the pods were, from what the watch has shown last to the present.
    history: VecDeque<(DateTime<Utc>, Vec<PodView>)>,
    /// What the operator remembers, as the controller keeps it.
    memory: Memory,
    /// A board that is told of every change; none after a start, or for another revision.
    board: Option<Board>,
    /// The nodes as the board has them.
    told_nodes: Vec<NodeView>,
    /// What was done and is not yet shown, kept by the model for itself.
    own_creates: Vec<(DateTime<Utc>, PodView)>,
    own_deletes: Vec<(DateTime<Utc>, String)>,
    /// The UIDs of the pods that this operator has deleted.
    deleted: BTreeSet<String>,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq)]
enum Fortune {
    Done,
    /// The API server answers with an error.
    Refused,
    /// It never arrives, and times out.
    Lost,
    /// It is done, and times out.
    Unanswered,
}

impl Fortune {
    fn answer(self) -> Answer {
        match self {
            Self::Done => Answer::Done,
            Self::Refused => Answer::Refused,
            Self::Lost | Self::Unanswered => Answer::Unknown,
        }
    }
}

const NAMES: [&str; 4] = ["r1", "r2", "r3", "r4"];

impl Model {
    fn new(seed: u64) -> Self {
        let mut model = Self {
            random: fastrand::Rng::with_seed(seed),
            now: at(NOW),
            nodes: Vec::new(),
            next_uid: 0,
            pods: Vec::new(),
            strategy: world(vec![], vec![]).strategy,
            revisions: vec![("r1", 1)],
            update_since: at(NOW),
            current: "r1".into(),
            auto_paused: false,
            calm: false,
            placement: Placement::of(None),
            quiet: false,
            lag: TimeDelta::zero(),
            history: VecDeque::new(),
            memory: Memory::of(OWNER),
            board: None,
            told_nodes: Vec::new(),
            own_creates: Vec::new(),
            own_deletes: Vec::new(),
            deleted: BTreeSet::new(),
        };
        model.quiet = one_in(&mut model.random, 3);
        if one_in(&mut model.random, 2) {
            model.lag = LONGEST_LAG;
        }
        model.start();
        for i in 0..=model.random.u32(0..9) {
            model.add_node(&format!("n{i}"));
        }
        model.change_strategy();
        model
    }

    fn uid(&mut self) -> String {
        self.next_uid += 1;
        format!("u{}", self.next_uid)
    }

    fn add_node(&mut self, name: &str) {
        let uid = self.uid();
        self.nodes.push(NodeView {
            uid,
            created: self.now,
            ..node(name)
        });
    }

    fn update(&self) -> &'static str {
        self.revisions.iter().max_by_key(|r| r.1).unwrap().0
    }

    fn change_strategy(&mut self) {
        let surge = one_in(&mut self.random, 3);
        self.strategy = Strategy {
            on_delete: !self.calm && one_in(&mut self.random, 10),
            max_unavailable: match self.random.u32(0..3) {
                0 => Amount::Nodes(self.random.u32(0..4)),
                1 => Amount::Percent(self.random.u32(0..101)),
                _ => Amount::Nodes(1),
            },
            max_surge: Amount::Nodes(u32::from(surge) * 2),
            partition: if self.calm {
                0
            } else {
                self.random.usize(0..3)
            },
            paused: !self.calm && one_in(&mut self.random, 8),
            min_ready: TimeDelta::seconds(self.random.i64(0..3) * 7),
        };
    }

    fn change_spec(&mut self) {
        let name = NAMES[self.random.usize(0..4)];
        if name == self.update() {
            return;
        }
        let number = self.revisions.iter().map(|r| r.1).max().unwrap() + 1;
        self.revisions.retain(|r| r.0 != name);
        self.revisions.push((name, number));
        self.update_since = self.now;
        self.auto_paused = false;
    }

    /// The operator starts: it remembers nothing, and lists all pods.
    fn start(&mut self) {
        self.history = VecDeque::from([(self.now, self.pods.clone())]);
        self.memory = Memory::of(OWNER);
        self.board = None;
        self.own_creates.clear();
        self.own_deletes.clear();
        self.deleted.clear();
    }

    /// Somebody or something does harm.
    fn disturb(&mut self) {
        let which = self.random.u32(0..12);
        if self.quiet && matches!(which, 2 | 3 | 5 | 7..=10) {
            return;
        }
        let count = self.nodes.len();
        let at = self.random.usize(0..count.max(1));
        match which {
            0 => self.change_spec(),
            1 if one_in(&mut self.random, 3) => self.change_strategy(),
            2 | 3 if count > 0 => {
                let node = &mut self.nodes[at];
                node.not_ready_since = match node.not_ready_since {
                    None => Some(self.now),
                    Some(_) => None,
                };
                let tainted = node.not_ready_since.is_some() && one_in(&mut self.random, 2);
                let key = "node.kubernetes.io/unreachable";
                self.nodes[at].taints = if tainted {
                    tainted_like(key)
                } else {
                    Box::default()
                };
            }
            4 if count > 0 => self.nodes[at].cordoned ^= true,
            5 if count > 3 && one_in(&mut self.random, 4) => {
                let gone = self.nodes.remove(at);
                if one_in(&mut self.random, 2) {
                    self.add_node(&gone.name);
                }
            }
            6 if count < 14 && one_in(&mut self.random, 4) => {
                let name = format!("n{}", 10 + self.next_uid);
                self.add_node(&name);
            }
            7 | 8 => {
                let now = self.now;
                if let Some(pod) = self.any_pod()
                    && pod.is_live()
                {
                    pod.ended = Some(now);
                    pod.trouble = Some("Error".into());
                    pod.ready_since = None;
                }
            }
            9 => {
                if let Some(pod) = self.any_pod() {
                    pod.ready_since = None;
                }
            }
            10 => {
                if let Some(pod) = self.any_pod() {
                    pod.deleting = true;
                }
            }
            11 => self.start(),
            _ => {}
        }
    }

    fn any_pod(&mut self) -> Option<&mut PodView> {
        let count = self.pods.len();
        let at = self.random.usize(0..count.max(1));
        self.pods.get_mut(at)
    }

    /// Kubelets do their work, on nodes that are alive.
    fn run_kubelets(&mut self) {
        let nodes = self.nodes.clone();
        let (now, random, calm) = (self.now, &mut self.random, self.calm);
        self.pods.retain_mut(|pod| {
            let node = nodes.iter().find(|n| n.name == pod.node);
            let alive = node.is_some_and(|n| n.not_ready_since.is_none());
            // The garbage collector of pods takes those of nodes that are gone.
            if pod.deleting && (node.is_none() || (alive && (calm || !one_in(random, 3)))) {
                return false;
            }
            if !alive {
                pod.ready_since = None;
            } else if pod.is_live() && pod.ready_since.is_none() && !one_in(random, 3) {
                pod.ready_since = Some(now);
            }
            true
        });
    }

    /// The pods are what they are from now on.
    fn record(&mut self) {
        self.history.push_back((self.now, self.pods.clone()));
    }

    /// The watch shows some of what happened to the pods, and all that is old enough.
    fn deliver(&mut self) {
        let due = self.now - self.lag;
        let is_due = |(_, (at, _)): (usize, &(DateTime<Utc>, Vec<PodView>))| *at <= due;
        let least = self
            .history
            .iter()
            .enumerate()
            .skip(1)
            .filter(|x| is_due(*x))
            .count();
        let count = self.random.usize(least..self.history.len().max(least + 1));
        for _ in 0..count {
            let (_, before) = self.history.pop_front().unwrap();
            let after = self.history.front().unwrap().1.clone();
            self.show(&before, &after);
        }
    }

    /// What the controller does at events of the watch.
    fn show(&mut self, before: &[PodView], after: &[PodView]) {
        for pod in before.iter().chain(after) {
            let old = before.iter().find(|old| old.uid == pod.uid);
            let new = after.iter().find(|new| new.uid == pod.uid);
            if old == new {
                continue;
            }
            self.memory.seen(new.unwrap_or(pod));
            self.own_creates.retain(|(_, made)| made.name != pod.name);
            if new.is_none() {
                self.memory.vanished(pod);
                self.memory.gone(pod);
            }
        }
        // The API server says that they are gone.
        self.memory.vanished.clear();
    }

    /// The pods as the watch has shown them.
    fn shown(&self) -> &[PodView] {
        &self.history.front().unwrap().1
    }

    /// The pods as the operator must take them to be: those that the watch has shown, and what it did itself.
    fn known(&mut self) -> Vec<PodView> {
        let mut known = self.shown().to_vec();
        for pod in &mut known {
            pod.deleting |= self.own_deletes.iter().any(|(_, uid)| *uid == pod.uid);
        }
        let made = self.own_creates.iter().map(|(_, made)| made);
        known.extend(made.cloned());
        known
    }

    /// Asks the API server about what the watch should have shown by now.
    fn resolve_doubts(&mut self) {
        for doubt in self.memory.doubts(self.now) {
            let is_so = if doubt.uid.is_empty() {
                self.pods.iter().any(|pod| pod.name == doubt.pod)
            } else {
                let stays = |pod: &PodView| pod.uid == doubt.uid && !pod.deleting;
                !self.pods.iter().any(stays)
            };
            if !is_so {
                self.own_creates.retain(|(_, pod)| pod.name != doubt.pod);
                self.own_deletes.retain(|(_, uid)| *uid != doubt.uid);
            }
            self.memory.resolve(&doubt, is_so, self.now);
        }
    }

    /// The decision of a board that is told what changed, which must be that of one that sees
    /// everything for the first time.
    fn decide(&mut self) -> Decision {
        self.deliver();
        self.resolve_doubts();
        let known: BTreeMap<&str, i64> = self.revisions.iter().copied().collect();
        let terms = Terms {
            placement: &self.placement,
            strategy: self.strategy,
            revisions: Revisions {
                update: self.update(),
                update_since: self.update_since,
                current: &self.current,
                known: &known,
            },
            grace: GRACE,
            in_vain: 0,
            proven: true,
            auto_paused: self.auto_paused,
            resumed: self.calm,
            now: self.now,
        };
        for node in self.nodes.iter().chain(&self.told_nodes) {
            let is_it = |other: &&NodeView| other.name == node.name;
            if self.nodes.iter().find(is_it) != self.told_nodes.iter().find(is_it) {
                self.memory.touch(&node.name);
            }
        }
        self.told_nodes.clone_from(&self.nodes);
        let shown = &self.history.front().unwrap().1;
        let on_nodes = self.nodes.iter().map(|node| node.name.as_str());
        let on_pods = shown.iter().map(|pod| pod.node.as_str());
        let every_node: BTreeSet<Box<str>> = on_nodes.chain(on_pods).map(Box::from).collect();
        let mut changed = self.memory.take_changed(self.now);
        let kept = self.board.take();
        let kept = kept.filter(|board| board.is_for(terms.revisions.update));
        if kept.is_none() {
            changed.clone_from(&every_node);
        }
        let mut board = kept.unwrap_or_else(|| Board::new(terms.revisions.update));
        let pods_on = |memory: &mut Memory, name: &str| {
            let pods = shown.iter().filter(|pod| pod.node == name);
            memory.overlay(name, pods.cloned().map(Arc::new).collect())
        };
        for name in changed {
            let node = self.nodes.iter().find(|node| *node.name == *name);
            let pods = pods_on(&mut self.memory, &name);
            if node.is_none() && pods.is_empty() {
                self.memory.forget_node(&name);
            }
            self.memory.forget_last(&name, &pods);
            let node = node.cloned().map(Arc::new);
            board.put(&name, node, pods, self.memory.last(&name).cloned());
        }
        let decision = board.decide(&terms);
        // A new board does not know a node that went before the pod was shown that was just made there.
        let mut unknown = self.own_creates.iter().map(|(_, pod)| pod.node.as_str());
        if unknown.all(|name| every_node.contains(name)) && self.random.u32(0..4) == 0 {
            let mut pods = Vec::new();
            let mut last = BTreeMap::new();
            for name in &every_node {
                pods.extend(
                    pods_on(&mut self.memory, name)
                        .iter()
                        .map(|pod| PodView::clone(pod)),
                );
                last.extend(
                    self.memory
                        .last(name)
                        .map(|last| (name.to_string(), last.clone())),
                );
            }
            let anew = at_first_sight(&self.nodes, &pods, &last, &terms);
            assert_eq!(decision, anew);
            let revisions: BTreeSet<&str> = board.revisions().collect();
            let on_pods = pods.iter().map(|pod| pod.revision.as_str());
            assert_eq!(revisions, on_pods.collect());
        }
        self.board = Some(board);
        decision
    }

    /// What the promises are about, with these pods.
    fn case<'a>(&'a self, pods: &'a [PodView]) -> Case<'a> {
        Case {
            nodes: &self.nodes,
            pods,
            strategy: self.strategy,
            update: self.update(),
            current: &self.current,
            was_stopped: self.auto_paused,
            resumed: self.calm,
            now: self.now,
        }
    }

    fn fortune(&mut self) -> Fortune {
        match self.random.u32(0..30) {
            _ if self.calm => Fortune::Done,
            0 => Fortune::Refused,
            1 => Fortune::Lost,
            2 => Fortune::Unanswered,
            _ => Fortune::Done,
        }
    }

    fn apply(&mut self, decision: &Decision) {
        let known = self.known();
        let case = self.case(&known);
        if let Err(Fault(fault)) = case.check(decision) {
            panic!(
                "{fault}: {decision:#?}\nknown: {known:#?}\nnodes: {:#?}",
                self.nodes
            );
        }
        let limit = case.limits().0.max(case.unserved());
        let before = self.case(&self.pods).unserved();
        // A pod that was made and is not shown yet has no name for the API server.
        for delete in decision
            .delete
            .iter()
            .filter(|delete| !delete.uid.is_empty())
        {
            self.delete(delete);
        }
        let after = self.case(&self.pods).unserved();
        // Whatever the watch has not shown yet is for the better, where nothing goes wrong by itself.
        let exact = self.quiet || self.lag.is_zero();
        assert!(
            !exact || after <= before.max(limit),
            "{before} -> {after} nodes unserved, limit {limit}: {decision:#?}"
        );
        for create in &decision.create {
            self.create(create);
        }
        let names: BTreeSet<&str> = self.pods.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.len(), self.pods.len());
        self.auto_paused = decision.facts.auto_paused;
        if decision.facts.complete {
            self.current = self.update().to_owned();
        }
    }

    fn delete(&mut self, delete: &Delete) {
        assert!(
            !self.deleted.contains(&delete.uid),
            "deleted twice: {delete:?}"
        );
        let fortune = self.fortune();
        self.memory.will_delete(delete, self.now);
        let answer = fortune.answer();
        self.memory.delete_answered(delete, answer, None, self.now);
        if fortune == Fortune::Refused {
            return;
        }
        self.own_deletes.push((self.now, delete.uid.clone()));
        if fortune == Fortune::Lost {
            return;
        }
        self.deleted.insert(delete.uid.clone());
        // The API server removes a pod that has ended at once.
        let at_once = |pod: &PodView| pod.ended.is_some() || delete.why == Why::NodeGone;
        self.pods
            .retain(|pod| pod.uid != delete.uid || !at_once(pod));
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.uid == delete.uid) {
            pod.deleting = true;
        }
    }

    fn create(&mut self, create: &Create) {
        let here = || self.pods.iter().filter(|p| p.node == create.node);
        assert!(
            here().all(|p| p.revision != create.revision),
            "a second pod of a revision: {create:?}"
        );
        let may_surge = !self.strategy.max_surge.is_zero();
        assert!(
            here().next().is_none() || (may_surge && here().count() == 1),
            "a second pod: {create:?}"
        );
        let fortune = self.fortune();
        let uid = self.uid();
        let pod = PodView {
            name: format!("{}-{}-{}", create.node, create.node_uid, create.revision),
            uid,
            created: self.now,
            attempt: create.attempt,
            ..pod(&create.node, &create.revision)
        };
        let expected = PodView {
            uid: String::new(),
            ..pod.clone()
        };
        self.memory.will_create(expected.clone(), self.now);
        let answer = fortune.answer();
        self.memory
            .create_answered(create, &pod.name, answer, None, self.now);
        if fortune == Fortune::Refused {
            return;
        }
        self.own_creates.push((self.now, expected));
        if fortune != Fortune::Lost {
            self.pods.push(pod);
        }
    }

    fn step(&mut self, seconds: i64) -> Decision {
        self.now += TimeDelta::seconds(seconds);
        self.run_kubelets();
        self.record();
        let decision = self.decide();
        self.apply(&decision);
        self.record();
        decision
    }

    fn calm_down(&mut self) {
        self.calm = true;
        self.lag = TimeDelta::zero();
        self.change_strategy();
        for node in &mut self.nodes {
            node.not_ready_since = None;
            node.taints = Box::default();
            node.cordoned = false;
        }
    }
}

fn tainted_like(key: &str) -> Box<[Taint]> {
    tainted("x", key, "NoSchedule").taints
}

fn run(seed: u64) {
    let mut model = Model::new(seed);
    for _ in 0..40 {
        for _ in 0..model.random.u32(0..3) {
            model.disturb();
        }
        let seconds = model.random.i64(0..20);
        model.step(seconds);
    }
    model.calm_down();
    for _ in 0..400 {
        let decision = model.step(10);
        if decision.facts.complete && decision.create.is_empty() && decision.delete.is_empty() {
            break;
        }
    }
    model.step(60);
    model.step(60);
    let decision = model.decide();
    assert_eq!(created(&decision), NOTHING);
    assert_eq!(deleted(&decision), NOTHING);
    assert_eq!(decision.next, None);
    let mut on: Vec<_> = model
        .pods
        .iter()
        .map(|p| (p.node.clone(), p.revision.as_str()))
        .collect();
    on.sort();
    let mut expected: Vec<_> = model
        .nodes
        .iter()
        .map(|n| (n.name.clone(), model.update()))
        .collect();
    expected.sort();
    assert_eq!(on, expected);
    assert_eq!(decision.facts.available, model.nodes.len());
    assert_eq!(model.current, model.update());
}

#[test]
fn whatever_happens_the_limits_hold_and_the_cluster_converges() {
    parallel_cases(lengths::rollout_model(), run);
}
