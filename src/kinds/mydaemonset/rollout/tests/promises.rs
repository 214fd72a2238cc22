//! What docs/mydaemonset/rollout.md promises of every decision, worked out from the page alone and not with the
//! code that decides. `pods` are those that the operator knows of: there is no allowance for anything.

use super::*;

/// Everything that a decision is about.
pub(super) struct Case<'a> {
    pub(super) nodes: &'a [NodeView],
    pub(super) pods: &'a [PodView],
    pub(super) strategy: Strategy,
    pub(super) update: &'a str,
    pub(super) current: &'a str,
    /// The roll-out was stopped because of failing nodes, before this decision.
    pub(super) was_stopped: bool,
    /// Somebody said that it goes on in spite of them.
    pub(super) resumed: bool,
    pub(super) now: DateTime<Utc>,
}

/// A promise that was broken.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

/// Returns a fault unless something holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(Fault(format!($($words)+)));
        }
    };
}

fn is_live(pod: &PodView) -> bool {
    !pod.deleting && pod.ended.is_none()
}

impl Case<'_> {
    /// The first promise that a decision breaks.
    pub(super) fn check(&self, decision: &Decision) -> Result<(), Fault> {
        let (limit, surge) = self.limits();
        let facts = &decision.facts;
        ensure!(facts.max_unavailable == limit, "maxUnavailable is {limit}");
        ensure!(
            facts.auto_paused || !self.must_stop(limit),
            "it does not stop"
        );
        let stopped = facts.auto_paused;
        // Two old pods of one node may go at once: it counts once.
        let mut paid = BTreeSet::new();
        for delete in &decision.delete {
            if self.check_delete(delete, decision, stopped, surge)? {
                paid.insert(&delete.node);
            }
        }
        let (paid, unserved) = (paid.len(), self.unserved());
        ensure!(
            paid == 0 || unserved + paid <= limit,
            "{paid} nodes lose a serving pod while {unserved} nodes are unavailable, limit {limit}"
        );
        let mut surges = 0;
        for create in &decision.create {
            surges += usize::from(self.check_create(create, stopped, surge)?);
        }
        let surging = self
            .nodes
            .iter()
            .filter(|node| self.is_surging(node))
            .count();
        ensure!(
            surges == 0 || surging + surges <= surge,
            "{surges} surges begin beside {surging}, limit {surge}"
        );
        Ok(())
    }

    /// Whether a deletion takes a serving pod away, which the limit has to allow.
    fn check_delete(
        &self,
        delete: &Delete,
        decision: &Decision,
        stopped: bool,
        surge: usize,
    ) -> Result<bool, Fault> {
        let named = |pod: &&PodView| pod.name == delete.pod && pod.uid == delete.uid;
        let Some(pod) = self.pods.iter().find(named) else {
            return Err(Fault(format!("{} is not there", delete.pod)));
        };
        ensure!(!pod.deleting, "{} is being deleted already", pod.name);
        let Some(node) = self.nodes.iter().find(|node| node.name == pod.node) else {
            return Ok(false);
        };
        ensure!(!node.cordoned, "{} is on a cordoned node", pod.name);
        if pod.ended.is_some() {
            return Ok(false);
        }
        let is_new = pod.revision == self.update;
        let goes = |pod: &PodView| decision.delete.iter().any(|other| other.pod == pod.name);
        let mut others = self.on(node).filter(|other| {
            is_live(other)
                && other.name != pod.name
                && (other.revision == self.update) == is_new
                && !goes(other)
        });
        if others.any(|other| pod.ready_since.is_none() || other.ready_since.is_some()) {
            return Ok(false);
        }
        ensure!(!is_new, "{} is of the newest revision", pod.name);
        if self.on(node).any(|other| self.is_available(other)) {
            return Ok(false);
        }
        ensure!(
            !self.is_held(node, stopped),
            "{} is of a held node",
            pod.name
        );
        ensure!(!self.strategy.on_delete, "{}: OnDelete", pod.name);
        if pod.ready_since.is_none() || self.is_left_out(node) {
            return Ok(false);
        }
        ensure!(
            node.taints.is_empty(),
            "{} is on a node that is down",
            pod.name
        );
        ensure!(surge == 0, "{} goes before its successor", pod.name);
        Ok(true)
    }

    /// Whether a pod is made beside an old one, which the limit has to allow.
    fn check_create(&self, create: &Create, stopped: bool, surge: usize) -> Result<bool, Fault> {
        let name = &create.node;
        let Some(node) = self.nodes.iter().find(|node| node.name == *name) else {
            return Err(Fault(format!("{name} is gone")));
        };
        ensure!(node.uid == create.node_uid, "{name} is another node");
        ensure!(
            !node.cordoned && node.taints.is_empty(),
            "{name} takes no pods"
        );
        let held = self.is_held(node, stopped) && !self.strategy.on_delete;
        let is_new = create.revision == self.update;
        ensure!(is_new || held, "{name} gets an old revision");
        let pods: Vec<&PodView> = self.on(node).collect();
        let [old] = pods[..] else {
            ensure!(pods.is_empty(), "{name} has two pods");
            return Ok(false);
        };
        let serves = is_live(old) && old.ready_since.is_some();
        ensure!(serves && old.revision != self.update, "{name} has a pod");
        let rolls = !held && !self.strategy.on_delete && !self.is_left_out(node);
        ensure!(rolls && is_new && surge > 0, "no surge on {name}");
        Ok(true)
    }

    fn on<'a>(&'a self, node: &'a NodeView) -> impl Iterator<Item = &'a PodView> {
        self.pods.iter().filter(|pod| pod.node == node.name)
    }

    /// Whether it counts as desired.
    fn is_desired(&self, node: &NodeView) -> bool {
        let takes_pods = !node.cordoned && node.taints.is_empty();
        takes_pods || self.on(node).next().is_some()
    }

    fn is_left_out(&self, node: &NodeView) -> bool {
        let since = node.not_ready_since;
        since.is_some_and(|since| self.now - since >= TimeDelta::seconds(60))
    }

    /// `maxUnavailable` and `maxSurge` in nodes.
    pub(super) fn limits(&self) -> (usize, usize) {
        let desired = self
            .nodes
            .iter()
            .filter(|node| self.is_desired(node))
            .count();
        let nodes = |amount: Amount| match amount {
            Amount::Nodes(nodes) => nodes as usize,
            Amount::Percent(percent) => (desired * percent as usize).div_ceil(100),
        };
        let surge = nodes(self.strategy.max_surge);
        match nodes(self.strategy.max_unavailable) {
            0 if surge == 0 => (1, 0),
            unavailable => (unavailable, surge),
        }
    }

    /// A pod of the newest revision that has been Ready for `minReadySeconds`.
    fn is_available(&self, pod: &PodView) -> bool {
        let min_ready = self.strategy.min_ready;
        let is_new = is_live(pod) && pod.revision == self.update;
        is_new
            && pod
                .ready_since
                .is_some_and(|since| self.now - since >= min_ready)
    }

    /// How many nodes are unavailable.
    pub(super) fn unserved(&self) -> usize {
        let serves = |pod: &PodView| {
            let is_old = is_live(pod) && pod.revision != self.update;
            self.is_available(pod) || (is_old && pod.ready_since.is_some())
        };
        let counts = |node: &NodeView| {
            let is_down = !node.cordoned && !node.taints.is_empty();
            (self.is_desired(node) || is_down) && !self.is_left_out(node)
        };
        let nodes = self.nodes.iter().filter(|node| counts(node));
        nodes.filter(|node| !self.on(node).any(serves)).count()
    }

    fn has_old(&self, node: &NodeView) -> bool {
        self.on(node)
            .any(|pod| is_live(pod) && pod.revision != self.update)
    }

    fn is_surging(&self, node: &NodeView) -> bool {
        self.has_old(node) && self.on(node).any(|pod| pod.revision == self.update)
    }

    /// Every node under `paused` or an auto-pause, and the last by name under `partition`.
    fn is_held(&self, node: &NodeView, stopped: bool) -> bool {
        let desired = self.nodes.iter().filter(|node| self.is_desired(node));
        let behind = desired.filter(|other| other.name > node.name).count();
        self.strategy.paused || stopped || behind < self.strategy.partition
    }

    /// Whether so many nodes speak against the newest revision that the roll-out must stop, or it had stopped.
    fn must_stop(&self, limit: usize) -> bool {
        let soon = |pod: &PodView, at: DateTime<Utc>| at <= pod.created + TimeDelta::minutes(10);
        let fails = |node: &NodeView, pod: &PodView| {
            // Times of creation are cut to whole seconds.
            let after = pod.created + TimeDelta::seconds(1);
            let lost = node.not_ready_since.filter(|since| *since >= after);
            let ended = pod.ended.is_some_and(|at| soon(pod, at));
            let of_new = !pod.deleting && pod.revision == self.update;
            let was_ready = node.ready_from.is_some_and(|from| from <= pod.created);
            of_new && was_ready && (ended || lost.is_some_and(|since| soon(pod, since)))
        };
        let failing = self.nodes.iter().filter(|node| !node.cordoned);
        let failing = failing.filter(|node| self.on(node).any(|pod| fails(node, pod)));
        let enough = failing.count() >= limit.max(1);
        let old_only = |node: &NodeView| {
            let has_new = self
                .on(node)
                .any(|pod| is_live(pod) && pod.revision == self.update);
            self.has_old(node) && !has_new
        };
        let stops = enough && !self.strategy.on_delete && self.nodes.iter().any(old_only);
        (stops || self.was_stopped) && self.update != self.current && !self.resumed
    }
}
