//! What there is to see of each node: one cell. It follows from [what the node waits for](my_operator_mydaemonset::why).

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use my_operator_mydaemonset::cause::Cause;
use my_operator_mydaemonset::observe::node::NodeView;
use my_operator_mydaemonset::observe::pod::PodView;
use my_operator_mydaemonset::why::{Seen, Wait, why};

use crate::mydaemonset::starting::NOT_READY;
use crate::terminal::Style;

/// The state of a node, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// An available pod of the newest revision and no other.
    New,
    /// A Ready pod of an older revision, or on the way back of the one that failed, which is still to be replaced.
    Old,
    /// A pod is missing, leaving, or not yet available.
    Starting,
    /// A pod fails.
    Failed,
    /// An older revision, kept by what holds the roll-out, such as a pause.
    Held,
    /// Cordoned without an available pod of the newest revision: the roll-out leaves the node alone.
    Cordoned,
    /// The same of a node whose conditions say that it is out of service, Ready or not.
    Maintenance,
    /// The node is gone or not Ready.
    Down,
}

impl Cell {
    /// The state of a node without a failing pod.
    fn new(wait: &Wait<'_>) -> Self {
        let serves = wait.pod.is_some_and(|pod| pod.is_ready());
        match wait.cause {
            None => Self::New,
            Some(Cause::Maintenance) => Self::Maintenance,
            Some(Cause::NodeGone | Cause::NodeDeleting | Cause::NodeNotReady) => Self::Down,
            Some(Cause::Cordoned) => Self::Cordoned,
            Some(cause) if cause.is_of_pod() || !serves => Self::Starting,
            // It is back by itself, and waits for a revision of the spec that does not fail.
            Some(_) if wait.is_reached => Self::Held,
            // The way back goes on.
            Some(cause) if cause.is_hold() && cause != Cause::RollingBack => Self::Held,
            Some(_) => Self::Old,
        }
    }

    /// Its name in lower case.
    pub(crate) fn word(self) -> String {
        format!("{self:?}").to_lowercase()
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
    /// The pod that fails, or has not been Ready for longer than it usually takes.
    pub(crate) pod: Option<Noted>,
}

/// A pod that is worth a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) pod: String,
    /// What is wrong or, after a closer look, what it waits for.
    pub(crate) reason: String,
    /// The last lines of one that fails, after a closer look.
    pub(crate) lines: Vec<String>,
}

/// The nodes in that state whose pod is worth a line.
pub(crate) fn noted(cells: &[NodeCell], cell: Cell) -> impl Iterator<Item = (&NodeCell, &Noted)> {
    let cells = cells.iter().filter(move |it| it.cell == cell);
    cells.filter_map(|it| Some((it, it.pod.as_ref()?)))
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

/// The label by which nodes are grouped, unless the user says which.
pub(crate) fn group_label(nodes: &[Arc<NodeView>]) -> Option<&'static str> {
    GROUPS.into_iter().find(|label| {
        let mut values = nodes.iter().map(|node| node.label(label));
        let first = values.next();
        values.any(|value| Some(value) != first)
    })
}

/// A cell for each node that has a pod of the object or should have one, by name; the nodes are grouped by a label.
pub(crate) fn cells(seen: &Seen<'_>, label: Option<&str>, now: DateTime<Utc>) -> Vec<NodeCell> {
    let mut cells = Vec::new();
    // This runs five times a second, with thousands of nodes: only what is shown becomes a cell.
    why(seen, now, |wait| {
        if wait.is_concerned {
            cells.push(NodeCell::new(&wait, label, now));
        }
    });
    cells
}

impl NodeCell {
    fn new(wait: &Wait<'_>, label: Option<&str>, now: DateTime<Utc>) -> Self {
        let pod = wait.pod.filter(|pod| !pod.deleting);
        let failing = pod.and_then(|pod| failure(pod));
        let cell = match failing {
            Some(_) => Cell::Failed,
            None => Cell::new(wait),
        };
        let since = pod.and_then(|pod| pod.unready_since);
        let since = since.filter(|_| cell == Cell::Starting);
        let starts_slowly = since.is_some_and(|since| now - since >= STARTS);
        let reason = failing.or_else(|| starts_slowly.then(|| NOT_READY.to_owned()));
        let group = label.and_then(|label| wait.node?.label(label));
        Self {
            node: wait.name.to_owned(),
            group: group.unwrap_or_default().to_owned(),
            cell,
            pod: pod.zip(reason).map(|(pod, reason)| Noted {
                pod: pod.name.clone(),
                reason,
                lines: Vec::new(),
            }),
        }
    }
}

/// What is wrong with a failing pod.
fn failure(pod: &PodView) -> Option<String> {
    let mut reason = pod.trouble.as_deref()?.to_owned();
    if pod.restarts > 0 {
        reason = format!("{reason}, {} restarts", pod.restarts);
    }
    if pod.attempt > 0 {
        reason = format!("{reason}, {} pods failed before it", pod.attempt);
    }
    Some(reason)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use my_operator_mydaemonset::revision::RevisionView;
    use serde_json::{Value, json};
    use wall_clock_controller::reconcile::condition::Condition;

    use super::*;
    use crate::mydaemonset::object::Object;
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

    /// A node or a pod that was seen.
    fn seen<T: Clone>(all: &[T]) -> Vec<Arc<T>> {
        all.iter().cloned().map(Arc::new).collect()
    }

    fn cells_of(object: &Object, nodes: &[NodeView], pods: &[PodView]) -> Vec<NodeCell> {
        let seen = object.seen(Some(seen(nodes)), seen(pods), Vec::new());
        cells(&seen, None, now())
    }

    /// The object once the operator has seen it and stored its revision.
    fn observed(spec: &Value, progress: [&str; 2], rest: &Value) -> Object {
        let [is, reason] = progress;
        let condition = json!({"type": "Progressing", "status": is, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut status = json!({"observedGeneration": 3, "updateRevision": NEW, "currentRevision": "old",
            "conditions": [condition]});
        let fields = status.as_object_mut().unwrap();
        fields.extend(rest.as_object().cloned().unwrap_or_default());
        object(spec, &status)
    }

    fn of(nodes: &[NodeView], pods: &[PodView], spec: &Value) -> Vec<(String, Cell)> {
        let object = observed(spec, ["True", "RollingOut"], &json!({}));
        let cells = cells_of(&object, nodes, pods).into_iter();
        cells.map(|node| (node.node, node.cell)).collect()
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
        let pods = [
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
        assert_eq!(of(&nodes, &pods, &spec()), expected);
    }

    #[test]
    fn a_node_in_maintenance_is_shown_as_such_ready_or_not() {
        let cell = |unready: bool, revision: &str| {
            let mut node = node("n", unready, true);
            node.in_maintenance = true;
            of(&[node], &[pod("n", revision, !unready)], &spec())[0].1
        };
        assert_eq!(cell(false, "old"), Cell::Maintenance);
        assert_eq!(cell(true, "old"), Cell::Maintenance);
        assert_eq!(cell(false, NEW), Cell::New);
        // Its pod may still be reported as Ready.
        let mut node = node("n", true, true);
        node.in_maintenance = true;
        let cells = of(&[node], &[pod("n", NEW, true)], &spec());
        assert_eq!(cells[0].1, Cell::Maintenance);
    }

    #[test]
    fn min_ready_seconds_are_waited_for() {
        let cell = |spec: &Value| {
            let node = node("n", false, false);
            of(&[node], &[pod("n", NEW, true)], spec)[0].1
        };
        let mut spec = spec();
        assert_eq!(cell(&spec), Cell::New);
        spec["minReadySeconds"] = json!(6);
        assert_eq!(cell(&spec), Cell::Starting);
    }

    #[test]
    fn a_pod_that_is_not_ready_for_a_minute_is_named() {
        let starting = |seconds: i64, change: fn(&mut PodView)| {
            let mut pod = pod("n", NEW, false);
            pod.unready_since = Some(now() - TimeDelta::seconds(seconds));
            change(&mut pod);
            let object = object(&spec(), &Value::Null);
            let cells = cells_of(&object, &[node("n", false, false)], &[pod]);
            let noted = cells[0].pod.clone();
            noted.map(|noted| (cells[0].cell, noted.pod, noted.reason))
        };
        let name = || format!("n-{NEW}");
        let slow = Some((Cell::Starting, name(), "not Ready".to_owned()));
        assert_eq!(starting(59, |_| {}), None);
        assert_eq!(starting(60, |_| {}), slow);
        assert_eq!(starting(60, |pod| pod.deleting = true), None);
        let failing = starting(0, |pod| {
            (pod.trouble, pod.restarts) = (Some("Error".into()), 4);
        });
        let failed = (Cell::Failed, name(), "Error, 4 restarts".to_owned());
        assert_eq!(failing, Some(failed));
    }

    #[test]
    fn a_node_that_the_pods_do_not_belong_on_is_not_shown() {
        let mut spec = spec();
        spec["template"] = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
        assert_eq!(of(&[node("n", false, false)], &[], &spec), []);
    }

    #[test]
    fn a_partition_holds_the_last_nodes_that_are_behind() {
        let names = ["a", "b", "c", "d"];
        let nodes = names.map(|name| node(name, false, false));
        let mut pods: Vec<PodView> = names.iter().map(|name| pod(name, "old", true)).collect();
        pods[3] = pod("d", NEW, true);
        let cells = |rolling: Value| {
            let mut spec = spec();
            spec["updateStrategy"] = rolling;
            let cells = of(&nodes, &pods, &spec);
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
        let mut spec = spec();
        spec["updateStrategy"] =
            json!({"rollingUpdate": {"topologyKey": "tier", "order": ["test"]}});
        let cells = |revisions: [&str; 3]| {
            let pods = [("a", 0), ("b", 1), ("c", 2)];
            let pods = pods.map(|(name, nth)| pod(name, revisions[nth], true));
            let cells = of(&nodes, &pods, &spec).into_iter();
            cells.map(|(_, cell)| cell).collect::<Vec<_>>()
        };
        let (old, held, new) = (Cell::Old, Cell::Held, Cell::New);
        assert_eq!(cells(["old"; 3]), [held, old, held]);
        assert_eq!(cells(["old", NEW, "old"]), [old, new, old]);
    }

    #[test]
    fn what_the_operator_says_holds_the_nodes_that_are_behind() {
        let cell = |object: &Object, revision: &str| {
            let pod = pod("n", revision, true);
            cells_of(object, &[node("n", false, false)], &[pod])[0].cell
        };
        let frozen = json!({"freeze": "by me", "conditions": [
            {"type": "Progressing", "status": "False", "reason": "Frozen", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Frozen", "status": "True", "reason": "Frozen", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let frozen = observed(&spec(), ["False", "Frozen"], &frozen);
        assert_eq!(cell(&frozen, "old"), Cell::Held);
        let failed = json!({"failedRevisions": [NEW], "failedNodes": [{"name": "n", "reason": "Error"}],
            "completeRevisions": ["old"]});
        let back = observed(&spec(), ["False", "RolledBack"], &failed);
        assert_eq!(cell(&back, "old"), Cell::Held);
        // Nothing is known of what holds a spec that the operator has not seen.
        let mut spec = spec();
        spec["updateStrategy"] = json!({"rollingUpdate": {"paused": true}});
        assert_eq!(cell(&object(&spec, &Value::Null), "old"), Cell::Old);
    }

    #[test]
    fn on_the_way_back_the_nodes_that_are_back_are_held() {
        let owner = json!({"name": "web", "uid": "u", "controller": true});
        let revision = json!({"metadata": {"name": "web-old", "ownerReferences": [owner]},
            "data": {"image": "nginx:1.28"}, "revision": 1});
        let before = RevisionView::from_json(&revision.to_string()).unwrap();
        let old = json!({"image": "nginx:1.28"});
        let old = object(&old, &Value::Null).revision();
        let names = ["back", "failed"];
        let nodes = names.map(|name| node(name, false, false));
        let pods = [pod("back", &old, true), pod("failed", NEW, true)];
        let degraded = json!({"type": "Degraded", "status": "True", "reason": "DeleteRefused", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        for conditions in [json!([]), json!([degraded])] {
            let status = json!({"failedRevisions": [NEW], "failedNodes": [{"name": "failed", "reason": "Error"}],
                "completeRevisions": [old], "currentRevision": old});
            let mut object = observed(&spec(), ["True", "RollingBack"], &status);
            let more: Vec<Condition> = serde_json::from_value(conditions).unwrap();
            object.status.conditions.extend(more);
            let revisions = vec![Arc::new(before.clone())];
            let seen = object.seen(Some(seen(&nodes)), seen(&pods), revisions);
            let cells = cells(&seen, None, now()).into_iter();
            let cells: Vec<Cell> = cells.map(|node| node.cell).collect();
            assert_eq!(cells, [Cell::Held, Cell::Old], "{:?}", object.status);
        }
    }

    #[test]
    fn all_nodes_but_the_canaries_wait_for_them() {
        let names = ["a", "b", "c"];
        let pods = names.map(|name| pod(name, "old", true));
        let nodes = names.map(|name| node(name, false, false));
        let cells = |reason: &str| {
            let rest = json!({"canaryNodes": ["b"]});
            let object = observed(&spec(), ["True", reason], &rest);
            let cells = cells_of(&object, &nodes, &pods).into_iter();
            cells.map(|node| node.cell).collect::<Vec<_>>()
        };
        assert_eq!(cells("Canary"), [Cell::Held, Cell::Old, Cell::Held]);
        assert_eq!(cells("RollingOut"), [Cell::Old; 3]);
    }

    #[test]
    fn without_the_right_to_list_nodes_those_with_a_pod_are_shown() {
        let object = object(&spec(), &Value::Null);
        let pods = [pod("n", NEW, true), pod("m", "old", true)];
        let cells = cells(&object.seen(None, seen(&pods), Vec::new()), None, now());
        let cells: Vec<_> = cells.iter().map(|it| (it.node.as_str(), it.cell)).collect();
        assert_eq!(cells, [("m", Cell::Old), ("n", Cell::New)]);
    }

    #[test]
    fn nodes_are_grouped_by_the_label_that_tells_them_apart() {
        let labelled = |name: &str, labels: Value| {
            let node = json!({"metadata": {"name": name, "labels": labels}});
            NodeView::from_watched(serde_json::from_value(node).unwrap(), now())
        };
        let group = |a: Value, b: Value| group_label(&seen(&[labelled("a", a), labelled("b", b)]));
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
