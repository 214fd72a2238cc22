//! What there is to see of each node: one cell.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use my_operator_mydaemonset::decide::placement::{Eligibility, Placement};
use my_operator_mydaemonset::observe::node::NodeView;
use my_operator_mydaemonset::observe::pod::PodView;
use my_operator_mydaemonset::status::{FROZEN, OUTSIDE_WINDOW};

use crate::mydaemonset::object::Object;
use crate::terminal::Style;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// An available pod of the newest revision and no other.
    New,
    /// A Ready pod of an older revision, which the roll-out is still to replace.
    Old,
    /// A pod is missing, leaving, or not yet available.
    Starting,
    /// A pod fails.
    Failed,
    /// An older revision, kept by a pause, a canary, another domain, a partition, a closed window or `OnDelete`.
    Held,
    /// Cordoned without an available pod of the newest revision: the roll-out leaves the node alone.
    Cordoned,
    /// The same of a node whose conditions say that it is out of service, Ready or not.
    Maintenance,
    /// The node is gone or not Ready.
    Down,
}

impl Cell {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Self; 8] = [
        Self::New,
        Self::Old,
        Self::Starting,
        Self::Failed,
        Self::Held,
        Self::Cordoned,
        Self::Maintenance,
        Self::Down,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Old => "old",
            Self::Starting => "starting",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Cordoned => "cordoned",
            Self::Maintenance => "maintenance",
            Self::Down => "down",
        }
    }

    /// One column wide, in UTF-8 or in ASCII.
    pub(crate) fn symbol(self, utf8: bool) -> &'static str {
        let (symbol, ascii) = match self {
            Self::New => ("●", "#"),
            Self::Old => ("○", "o"),
            Self::Starting => ("◐", "~"),
            Self::Failed => ("✗", "X"),
            Self::Held => ("·", "."),
            Self::Cordoned => ("-", "-"),
            Self::Maintenance => ("=", "="),
            Self::Down => ("!", "!"),
        };
        if utf8 { symbol } else { ascii }
    }

    pub(crate) fn style(self) -> Option<Style> {
        match self {
            Self::New => Some(Style::Good),
            Self::Starting | Self::Down => Some(Style::Warning),
            Self::Failed => Some(Style::Bad),
            Self::Held | Self::Cordoned | Self::Maintenance => Some(Style::Faint),
            Self::Old => None,
        }
    }
}

/// A node as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeCell {
    pub(crate) node: String,
    /// The zone or pool; empty if it has none.
    pub(crate) group: String,
    pub(crate) cell: Cell,
    /// The failing pod.
    pub(crate) failing: Option<Failing>,
    /// The name of the pod that has not been Ready for longer than it usually takes, if it does not fail.
    pub(crate) starting: Option<String>,
}

/// A failing pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Failing {
    pub(crate) pod: String,
    /// What is wrong, in a word.
    pub(crate) trouble: String,
    pub(crate) restarts: u32,
    /// How many pods of the revision failed on the node before this one.
    pub(crate) attempt: u32,
}

/// A pod that has not been Ready for so long is worth a line.
const STARTS: TimeDelta = TimeDelta::minutes(1);

/// The labels that say where a node is, the first one with different values is used.
const GROUPS: [&str; 7] = [
    "topology.kubernetes.io/zone",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "doks.digitalocean.com/node-pool",
    "node.kubernetes.io/instance-type",
];

/// The nodes and pods, as far as this program may see them.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// By name. `None` if the user may not list nodes: then only those with a pod are known.
    pub(crate) nodes: Option<BTreeMap<String, NodeView>>,
    /// By name.
    pub(crate) pods: BTreeMap<String, PodView>,
}

impl Fleet {
    /// The label by which nodes are grouped, unless the user says which.
    pub(crate) fn group_label(&self) -> Option<&'static str> {
        let nodes = self.nodes.as_ref()?;
        GROUPS.into_iter().find(|label| {
            let mut values = nodes.values().map(|node| node.label(label));
            let first = values.next();
            values.any(|value| Some(value) != first)
        })
    }

    /// A cell for each node that has a pod of this object or should have one, by name; the nodes are grouped by a label.
    pub(crate) fn cells(
        &self,
        object: &Object,
        label: Option<&str>,
        now: DateTime<Utc>,
    ) -> Vec<NodeCell> {
        let judge = Judge {
            revision: object.revision(),
            placement: Placement::from_template(object.spec.template.as_ref()),
            has_nodes: self.nodes.is_some(),
            min_ready: object.strategy().min_ready,
            now,
        };
        let pods = self.pods.values();
        let pods = pods.filter(|pod| pod.owner_uid == object.uid && !pod.node.is_empty());
        let mut pods: Vec<&PodView> = pods.collect();
        pods.sort_by(|a, b| a.node.cmp(&b.node));
        let mut pods = pods.chunk_by(|a, b| a.node == b.node).peekable();
        // Both are in the order of the nodes' names. This runs five times a second, with thousands of nodes: there is no
        // map of them.
        let mut cells = Vec::new();
        for (node, view) in self.nodes.iter().flatten() {
            while let Some(pods) = pods.next_if(|pods| node_of(pods) < node.as_str()) {
                cells.extend(judge.cell(node_of(pods), None, pods, label));
            }
            let pods = pods.next_if(|pods| node_of(pods) == node);
            cells.extend(judge.cell(node, Some(view), pods.unwrap_or_default(), label));
        }
        cells.extend(pods.filter_map(|pods| judge.cell(node_of(pods), None, pods, label)));
        hold(&mut cells, object);
        self.hold_later(&mut cells, object);
        cells
    }

    /// Marks the nodes of the domains that wait for another one.
    fn hold_later(&self, cells: &mut [NodeCell], object: &Object) {
        let nodes = self.nodes.as_ref();
        let views = nodes.into_iter().flat_map(BTreeMap::values);
        let Some((domains, first)) = object.turn_of(views) else {
            return;
        };
        for cell in cells.iter_mut().filter(|node| node.cell == Cell::Old) {
            let node = nodes.and_then(|nodes| nodes.get(&cell.node));
            if node.is_some_and(|node| domains.rank(node) > first) {
                cell.cell = Cell::Held;
            }
        }
    }
}

/// The node of pods that are all on one.
fn node_of<'a>(pods: &[&'a PodView]) -> &'a str {
    pods.first().map_or("", |pod| &pod.node)
}

/// What each node is judged by.
struct Judge {
    min_ready: TimeDelta,
    /// The newest revision.
    revision: String,
    placement: Placement,
    /// Whether the user may list nodes.
    has_nodes: bool,
    now: DateTime<Utc>,
}

impl Judge {
    /// The cell of a node; `None` where it neither has a pod nor should have one.
    fn cell(
        &self,
        name: &str,
        node: Option<&NodeView>,
        pods: &[&PodView],
        label: Option<&str>,
    ) -> Option<NodeCell> {
        let eligibility = node.map(|node| self.placement.eligibility(node));
        let belongs = eligibility.is_some_and(Eligibility::is_in_place);
        if pods.is_empty() && !belongs {
            return None;
        }
        let failing = pods.iter().filter(|pod| !pod.deleting);
        let failing = failing.filter_map(|pod| {
            Some(Failing {
                pod: pod.name.clone(),
                trouble: pod.trouble.as_deref()?.to_owned(),
                restarts: pod.restarts,
                attempt: pod.attempt,
            })
        });
        let failing = failing.min();
        let group = label.zip(node).and_then(|(label, node)| node.label(label));
        let cell = if failing.is_some() {
            Cell::Failed
        } else {
            self.judge(node, pods)
        };
        let starting = pods.iter().filter(|_| cell == Cell::Starting);
        let mut starting = starting.filter(|pod| self.starts_slowly(pod));
        Some(NodeCell {
            node: name.to_owned(),
            group: group.unwrap_or_default().to_owned(),
            cell,
            failing,
            starting: starting.next().map(|pod| pod.name.clone()),
        })
    }

    /// Whether the pod is neither Ready nor on its way out, for long.
    fn starts_slowly(&self, pod: &PodView) -> bool {
        let since = pod.unready_since.filter(|_| !pod.deleting);
        since.is_some_and(|since| self.now - since >= STARTS)
    }

    /// The state of a node without a failing pod.
    fn judge(&self, node: Option<&NodeView>, pods: &[&PodView]) -> Cell {
        let is_new = |pod: &&&PodView| pod.revision == self.revision;
        let is_updated = pods
            .iter()
            .filter(is_new)
            .any(|pod| pod.is_available(self.min_ready, self.now));
        // A node that is not there is gone, where nodes can be listed.
        let is_down = node.map_or(self.has_nodes, |node| node.not_ready_since.is_some());
        let serves_old = pods.iter().any(|pod| pod.is_ready() && !is_new(&pod));
        if is_updated && pods.iter().all(|pod| is_new(&pod)) {
            Cell::New
        } else if node.is_some_and(|node| node.in_maintenance) {
            Cell::Maintenance
        } else if is_down {
            Cell::Down
        } else if node.is_some_and(|node| node.cordoned) {
            Cell::Cordoned
        } else if serves_old && !pods.iter().any(|pod| is_new(&pod)) {
            Cell::Old
        } else {
            Cell::Starting
        }
    }
}

/// Marks the nodes that stay on their revision: all that are behind or, under a partition, the last by name. All others wait
/// for canaries, and so seem to those of many that the status does not name. A freeze and a closed window hold the canaries
/// too.
fn hold(cells: &mut [NodeCell], object: &Object) {
    let strategy = object.strategy();
    let canaries = object.canaries();
    let waits = [FROZEN, OUTSIDE_WINDOW].contains(&object.progress());
    let stands = strategy.paused || object.stopped().is_some() || waits;
    let all = strategy.on_delete || stands || canaries.is_some();
    let limit = if all { cells.len() } else { strategy.partition };
    let canaries = canaries.filter(|_| !stands).unwrap_or_default();
    let stays = |node: &&mut NodeCell| node.cell == Cell::Old && !canaries.contains(&node.node);
    for node in cells.iter_mut().rev().filter(stays).take(limit) {
        node.cell = Cell::Held;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::mydaemonset::object::tests::object;

    /// The hash of `{"image":"nginx:1.29"}`.
    const NEW: &str = "5djmrzzhj3";

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_000, 0).unwrap()
    }

    fn node(name: &str, unready: bool, cordoned: bool) -> NodeView {
        let status = if unready { "False" } else { "True" };
        let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z1"}},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": status}]}});
        NodeView::from_watched(serde_json::from_value(node).unwrap(), now())
    }

    fn pod(node: &str, revision: &str, ready: bool) -> PodView {
        PodView {
            name: format!("{node}-{revision}"),
            owner_uid: "u".to_owned(),
            node: node.to_owned(),
            revision: revision.to_owned(),
            ready_since: ready.then(|| now() - TimeDelta::seconds(5)),
            ..PodView::default()
        }
    }

    fn fleet(nodes: &[NodeView], pods: Vec<PodView>) -> Fleet {
        let nodes = nodes.iter().map(|node| (node.name.clone(), node.clone()));
        let pods = pods.into_iter().map(|pod| (pod.name.clone(), pod));
        Fleet {
            nodes: Some(nodes.collect()),
            pods: pods.collect(),
        }
    }

    fn of(fleet: &Fleet, spec: &Value) -> Vec<(String, Cell)> {
        let cells = fleet.cells(&object(spec, &Value::Null), None, now());
        cells
            .into_iter()
            .map(|node| (node.node, node.cell))
            .collect()
    }

    fn spec() -> Value {
        json!({"image": "nginx:1.29"})
    }

    #[test]
    fn each_node_has_the_state_of_its_pods() {
        let nodes = [
            node("cordoned", false, true),
            node("down", true, false),
            node("failed", false, false),
            node("leaving", false, false),
            node("missing", false, false),
            node("new", false, false),
            node("new-cordoned", false, true),
            node("old", false, false),
            node("starting", false, false),
            node("surge", false, false),
        ];
        let mut failed = pod("failed", NEW, false);
        failed.trouble = Some("CrashLoopBackOff".into());
        let mut leaving = pod("leaving", "old", true);
        leaving.deleting = true;
        let foreign = PodView {
            owner_uid: "other".to_owned(),
            ..pod("missing", NEW, true)
        };
        let pods = vec![
            pod("cordoned", "old", true),
            pod("down", "old", false),
            failed,
            leaving,
            foreign,
            pod("gone", NEW, false),
            pod("new", NEW, true),
            pod("new-cordoned", NEW, true),
            pod("old", "old", true),
            pod("starting", NEW, false),
            pod("surge", NEW, true),
            pod("surge", "old", true),
        ];
        let expected = [
            ("cordoned", Cell::Cordoned),
            ("down", Cell::Down),
            ("failed", Cell::Failed),
            ("gone", Cell::Down),
            ("leaving", Cell::Starting),
            ("missing", Cell::Starting),
            ("new", Cell::New),
            ("new-cordoned", Cell::New),
            ("old", Cell::Old),
            ("starting", Cell::Starting),
            ("surge", Cell::Starting),
        ]
        .map(|(name, cell)| (name.to_owned(), cell));
        assert_eq!(of(&fleet(&nodes, pods), &spec()), expected);
    }

    #[test]
    fn a_node_in_maintenance_is_shown_as_such_ready_or_not() {
        let cell = |unready: bool, revision: &str| {
            let mut node = node("n", unready, true);
            node.in_maintenance = true;
            let pods = vec![pod("n", revision, !unready)];
            of(&fleet(&[node], pods), &spec())[0].1
        };
        assert_eq!(cell(false, "old"), Cell::Maintenance);
        assert_eq!(cell(true, "old"), Cell::Maintenance);
        assert_eq!(cell(false, NEW), Cell::New);
    }

    #[test]
    fn min_ready_seconds_are_waited_for() {
        let fleet = fleet(&[node("n", false, false)], vec![pod("n", NEW, true)]);
        let mut spec = spec();
        assert_eq!(of(&fleet, &spec)[0].1, Cell::New);
        spec["minReadySeconds"] = json!(6);
        assert_eq!(of(&fleet, &spec)[0].1, Cell::Starting);
    }

    #[test]
    fn a_pod_that_is_not_ready_for_a_minute_is_named() {
        let starting = |seconds: i64, change: fn(&mut PodView)| {
            let mut pod = pod("n", NEW, false);
            pod.unready_since = Some(now() - TimeDelta::seconds(seconds));
            change(&mut pod);
            let fleet = fleet(&[node("n", false, false)], vec![pod]);
            let cells = fleet.cells(&object(&spec(), &Value::Null), None, now());
            cells[0].starting.clone()
        };
        let name = Some(format!("n-{NEW}"));
        assert_eq!(starting(59, |_| {}), None);
        assert_eq!(starting(60, |_| {}), name);
        assert_eq!(starting(60, |pod| pod.deleting = true), None);
        // It is in the other list.
        assert_eq!(starting(60, |pod| pod.trouble = Some("Error".into())), None);
    }

    #[test]
    fn a_node_that_the_pods_do_not_belong_on_is_not_shown() {
        let mut spec = spec();
        spec["template"] = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
        let fleet = fleet(&[node("n", false, false)], Vec::new());
        assert_eq!(of(&fleet, &spec), []);
    }

    #[test]
    fn a_partition_holds_the_last_nodes_that_are_behind() {
        let names = ["a", "b", "c", "d"];
        let nodes = names.map(|name| node(name, false, false));
        let mut pods: Vec<PodView> = names.iter().map(|name| pod(name, "old", true)).collect();
        pods[3] = pod("d", NEW, true);
        let fleet = fleet(&nodes, pods);
        let cells = |rolling: Value| {
            let mut spec = spec();
            spec["updateStrategy"] = rolling;
            let cells = of(&fleet, &spec);
            cells.into_iter().map(|(_, cell)| cell).collect::<Vec<_>>()
        };
        let (old, held, new) = (Cell::Old, Cell::Held, Cell::New);
        assert_eq!(
            cells(json!({"rollingUpdate": {"partition": 2}})),
            [old, held, held, new]
        );
        assert_eq!(
            cells(json!({"rollingUpdate": {"paused": true}})),
            [held, held, held, new]
        );
        assert_eq!(cells(json!({"type": "OnDelete"})), [held, held, held, new]);
        assert_eq!(cells(json!({})), [old, old, old, new]);
    }

    #[test]
    fn the_nodes_of_later_domains_are_held() {
        let nodes = [("a", "prod"), ("b", "test"), ("c", "prod")].map(|(name, tier)| {
            let node = json!({"metadata": {"name": name, "labels": {"tier": tier}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            NodeView::from_watched(serde_json::from_value(node).unwrap(), now())
        });
        let pods = ["a", "b", "c"].map(|name| pod(name, "old", true));
        let fleet = fleet(&nodes, pods.into());
        let mut spec = spec();
        spec["updateStrategy"] =
            json!({"rollingUpdate": {"topologyKey": "tier", "order": ["test"]}});
        let cells = |domain: Option<&str>| {
            let object = object(&spec, &json!({"domain": domain}));
            let cells = fleet.cells(&object, None, now()).into_iter();
            cells.map(|node| node.cell).collect::<Vec<_>>()
        };
        let (old, held) = (Cell::Old, Cell::Held);
        assert_eq!(cells(Some("tier test")), [held, old, held]);
        assert_eq!(cells(Some("tier prod")), [old; 3]);
        assert_eq!(cells(None), [old; 3]);
    }

    #[test]
    fn a_freeze_holds_the_nodes_that_are_behind() {
        let pods = vec![pod("n", "old", true)];
        let fleet = fleet(&[node("n", false, false)], pods);
        let condition = json!({"type": "Progressing", "status": "False", "reason": "Frozen",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let frozen = object(&spec(), &json!({"conditions": [condition]}));
        assert_eq!(fleet.cells(&frozen, None, now())[0].cell, Cell::Held);
    }

    #[test]
    fn all_nodes_but_the_canaries_wait_for_them() {
        let names = ["a", "b", "c"];
        let pods = names.iter().map(|name| pod(name, "old", true)).collect();
        let fleet = fleet(&names.map(|name| node(name, false, false)), pods);
        let condition = json!({"type": "Progressing", "status": "True", "reason": "Canary",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let cells = |revision: &str| {
            let status = json!({"updateRevision": revision, "canaryNodes": ["b"], "conditions": [condition]});
            let cells = fleet
                .cells(&object(&spec(), &status), None, now())
                .into_iter();
            cells.map(|node| node.cell).collect::<Vec<_>>()
        };
        assert_eq!(cells(NEW), [Cell::Held, Cell::Old, Cell::Held]);
        assert_eq!(cells("other"), [Cell::Old; 3]);
    }

    #[test]
    fn without_the_right_to_list_nodes_those_with_a_pod_are_shown() {
        let mut fleet = fleet(&[], vec![pod("n", NEW, true), pod("m", "old", true)]);
        fleet.nodes = None;
        let cells = of(&fleet, &spec());
        assert_eq!(
            cells,
            [("m".to_owned(), Cell::Old), ("n".to_owned(), Cell::New)]
        );
    }

    #[test]
    fn nodes_are_grouped_by_the_label_that_tells_them_apart() {
        let labelled = |name: &str, labels: Value| {
            let node = json!({"metadata": {"name": name, "labels": labels}});
            NodeView::from_watched(serde_json::from_value(node).unwrap(), now())
        };
        let group = |a: Value, b: Value| {
            let fleet = fleet(&[labelled("a", a), labelled("b", b)], Vec::new());
            fleet.group_label()
        };
        let zone = |zone: &str| json!({"topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": zone.len().to_string()});
        assert_eq!(
            group(zone("z1"), zone("z2")),
            Some("topology.kubernetes.io/zone")
        );
        assert_eq!(
            group(zone("z1"), json!({})),
            Some("topology.kubernetes.io/zone")
        );
        let pools =
            |pool: &str| json!({"topology.kubernetes.io/zone": "z", "karpenter.sh/nodepool": pool});
        assert_eq!(group(pools("p"), pools("q")), Some("karpenter.sh/nodepool"));
        assert_eq!(group(json!({}), json!({})), None);
    }
}
