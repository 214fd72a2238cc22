//! Judges what an operator did, from every event of the pods, the nodes and the object.
//!
//! The versions of all objects are one sequence, so the events in their order are the history of the cluster. The
//! operator sees it late, and how late is not known. So an action is wrong only if it would be wrong whatever the
//! operator had seen by then. What it must have seen is known from
//! - its own actions, for which it needs no event;
//! - its start: a new operator reads everything;
//! - the pods that it created: it creates one for a node when it has seen the one before go, and what happened to any pod
//!   before that;
//! - its status: the generation, and that every pod was available;
//! - the time: an event that is older than [`Rules::latest`] has reached every watch. A run measures that
//!   ([`super::delivery`]).
//!
//! An event that the operator may not have seen counts for the operator, never against it.

mod saved;
mod settings;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use my_operator::kinds::mydaemonset::crd::{MyDaemonSet, MyDaemonSetStatus};
use my_operator::kinds::mydaemonset::names::{APP, FREEZE_ANNOTATION, MIGRATION_ANNOTATION};
use my_operator_kind::watched::utc;
use serde::{Deserialize, Serialize};

use crate::harness::pods::END;
use crate::harness::record::Event;
pub(super) use saved::save;
use settings::{Frozen, Settings, frozen};

/// The API server cuts times to the second.
const SECOND: TimeDelta = TimeDelta::seconds(1);
/// So many lines of history are shown with a fault.
const LINES: usize = 60;

/// The label that says to which pool a node belongs.
pub(crate) const POOL: &str = "pool";

/// A pod, as far as it matters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PodState {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    /// In these tests revisions differ in their images, and each has its own. In a migration they differ in the name of
    /// the container, which is a part of this unless it is the operator's.
    pub(crate) image: String,
    pub(crate) ready_since: Option<DateTime<Utc>>,
    pub(crate) ended: bool,
    pub(crate) deleting: bool,
}

impl PodState {
    pub(crate) fn of(pod: &v1::Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions
            .iter()
            .find(|c| c.type_ == "Ready" && c.status == "True");
        Self {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            image: revision(&spec.containers[0]),
            ready_since: ready.and_then(|c| utc(c.last_transition_time.as_ref())),
            ended: matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")),
            deleting: pod.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether it is there to stay.
    fn is_live(&self) -> bool {
        !self.deleting && !self.ended
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_live() && self.ready_since.is_some()
    }

    pub(crate) fn is_available(&self, min_ready: TimeDelta, now: DateTime<Utc>) -> bool {
        self.is_ready()
            && self
                .ready_since
                .is_some_and(|since| since + min_ready <= now)
    }
}

/// What distinguishes the revisions of a test.
fn revision(container: &v1::Container) -> String {
    let image = container.image.clone().unwrap_or_default();
    if container.name == APP {
        image
    } else {
        format!("{image} ({})", container.name)
    }
}

/// A node, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NodeState {
    pool: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    cordoned: bool,
    not_ready_since: Option<DateTime<Utc>>,
}

impl NodeState {
    fn of(node: &v1::Node) -> Self {
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|c| c.type_ == "Ready");
        let created = node.creation_timestamp();
        let since = ready.map_or(created.as_ref(), |c| c.last_transition_time.as_ref());
        let is_ready = ready.is_some_and(|c| c.status == "True");
        Self {
            pool: node.labels().get(POOL).cloned(),
            labels: node.labels().clone(),
            cordoned: node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true),
            not_ready_since: utc(since).filter(|_| !is_ready),
        }
    }
}

/// The object.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ObjectState {
    spec: Spec,
    status: MyDaemonSetStatus,
    resumed: Option<String>,
    /// The value of the annotation that freezes it.
    #[serde(default)]
    freeze: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Spec {
    generation: i64,
    image: String,
    max_unavailable: IntOrString,
    max_surge: IntOrString,
    partition: usize,
    paused: bool,
    #[serde(with = "saved::milliseconds")]
    min_ready: TimeDelta,
    /// It is of a `DaemonSet`.
    #[serde(default)]
    is_built_in: bool,
    #[serde(default)]
    settings: Settings,
}

impl ObjectState {
    fn of(object: &MyDaemonSet) -> Self {
        let rolling = object
            .spec
            .update_strategy
            .clone()
            .and_then(|s| s.rolling_update)
            .unwrap_or_default();
        Self {
            spec: Spec {
                generation: object.metadata.generation.unwrap_or_default(),
                image: object.spec.image.clone().unwrap_or_default(),
                max_unavailable: rolling.max_unavailable.unwrap_or(IntOrString::Int(1)),
                max_surge: rolling.max_surge.unwrap_or(IntOrString::Int(0)),
                partition: rolling.partition.map_or(0, |n| n.try_into().unwrap()),
                paused: rolling.paused.unwrap_or_default(),
                min_ready: TimeDelta::seconds(
                    object.spec.min_ready_seconds.unwrap_or_default().into(),
                ),
                is_built_in: false,
                settings: Settings::of(&serde_json::to_value(object).unwrap()),
            },
            status: object.status.clone().unwrap_or_default(),
            resumed: object
                .annotations()
                .get("apps.zhongmingmao.io/resume-revision")
                .cloned(),
            freeze: object.annotations().get(FREEZE_ANNOTATION).cloned(),
        }
    }

    /// A `DaemonSet` counts as one of ours. Of type `OnDelete`, it may replace as little as a paused one.
    fn of_daemon_set(object: &DaemonSet) -> Self {
        let spec = object.spec.clone().unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        let strategy = spec.update_strategy.unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let containers = spec.template.spec.unwrap_or_default().containers;
        Self {
            spec: Spec {
                generation: object.metadata.generation.unwrap_or_default(),
                image: containers.first().map(revision).unwrap_or_default(),
                max_unavailable: rolling.max_unavailable.unwrap_or(IntOrString::Int(1)),
                max_surge: rolling.max_surge.unwrap_or(IntOrString::Int(0)),
                partition: 0,
                paused: strategy.type_.as_deref() == Some("OnDelete"),
                min_ready: TimeDelta::seconds(spec.min_ready_seconds.unwrap_or_default().into()),
                is_built_in: true,
                settings: Settings::default(),
            },
            status: MyDaemonSetStatus {
                observed_generation: status.observed_generation,
                desired_number_scheduled: Some(status.desired_number_scheduled),
                updated_number_scheduled: status.updated_number_scheduled,
                number_available: status.number_available,
                ..MyDaemonSetStatus::default()
            },
            resumed: None,
            freeze: None,
        }
    }

    /// Every node that should have one has an available pod of this very spec.
    fn is_complete(&self) -> bool {
        let status = &self.status;
        let desired = status.desired_number_scheduled;
        status.observed_generation == Some(self.spec.generation)
            && status.updated_number_scheduled == desired
            && status.number_available == desired
    }

    /// The roll-out of this very spec has stopped by itself.
    fn is_stopped(&self) -> bool {
        let status = &self.status;
        let stopped = |c: &wall_clock_controller::reconcile::condition::Condition| {
            c.type_ == "Progressing" && c.reason == "AutoPaused"
        };
        status.observed_generation == Some(self.spec.generation)
            && status.conditions.iter().any(stopped)
            && self.resumed != status.update_revision
    }
}

/// A number of nodes, or a share of them, rounded up.
fn amount(amount: &IntOrString, nodes: usize) -> usize {
    match amount {
        IntOrString::Int(number) => usize::try_from(*number).unwrap(),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap();
            (nodes * percent).div_ceil(100)
        }
    }
}

impl Spec {
    fn may_be_unavailable(&self, nodes: usize) -> usize {
        let limit = amount(&self.max_unavailable, nodes);
        if limit == 0 && amount(&self.max_surge, nodes) == 0 {
            1
        } else {
            limit
        }
    }
}

/// What an event showed.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum What {
    Pod(PodState),
    Node(NodeState),
    Object(Box<ObjectState>),
    /// An operator was started.
    Started,
}

/// One event of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Moment {
    version: u64,
    seen: DateTime<Utc>,
    /// The name of the pod or node.
    name: String,
    gone: bool,
    what: What,
}

/// The events of a cluster, as far as one object is concerned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History(Vec<Moment>);

impl History {
    pub(crate) fn pods(&mut self, events: &[Event<v1::Pod>]) {
        for event in events {
            let pod = PodState::of(&event.object);
            // What ends a record is no pod of the object; and one that no node has yet is on none.
            if event.object.metadata.generate_name.as_deref() == Some(END) || pod.node.is_empty() {
                continue;
            }
            self.add(event, What::Pod(pod));
        }
    }

    pub(crate) fn nodes(&mut self, events: &[Event<v1::Node>]) {
        for event in events {
            self.add(event, What::Node(NodeState::of(&event.object)));
        }
    }

    pub(crate) fn objects(&mut self, events: &[Event<MyDaemonSet>]) {
        for event in events.iter().filter(|event| acts(event)) {
            self.add(
                event,
                What::Object(Box::new(ObjectState::of(&event.object))),
            );
        }
    }

    pub(crate) fn daemon_sets(&mut self, events: &[Event<DaemonSet>]) {
        for event in events.iter().filter(|event| acts(event)) {
            let state = ObjectState::of_daemon_set(&event.object);
            self.add(event, What::Object(Box::new(state)));
        }
    }

    /// An operator was started after that version.
    pub(crate) fn started(&mut self, version: u64, seen: DateTime<Utc>) {
        self.0.push(Moment {
            version,
            seen,
            name: String::new(),
            gone: false,
            what: What::Started,
        });
    }

    fn add<K: kube::Resource>(&mut self, event: &Event<K>, what: What) {
        self.0.push(Moment {
            version: event.version,
            seen: event.seen,
            name: event.object.name_any(),
            gone: event.gone,
            what,
        });
    }
}

/// Whether an object replaces pods: one that is migrated, or made by a migration, does not yet, or no longer.
fn acts<K: kube::Resource>(event: &Event<K>) -> bool {
    !event
        .object
        .annotations()
        .contains_key(MIGRATION_ANNOTATION)
}

/// Since when something is the case.
#[derive(Clone, Copy, Debug)]
struct Since {
    version: u64,
    seen: DateTime<Utc>,
    /// It is so by an act of the operator.
    own: bool,
}

struct Pod {
    state: PodState,
    /// Since when it is Ready, or is not.
    since: Since,
    /// The version that first showed it Ready.
    first_ready: Option<u64>,
}

struct Node {
    state: NodeState,
    fit_since: Since,
    ready_since: Since,
    cordon_since: Since,
}

/// The limits' view of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Since when the limits count it, if they do.
    counted: Option<Since>,
    /// Since when it has no pod that serves, if it has none.
    unserved: Option<Since>,
    /// The version with which the last pod there went.
    removed: u64,
    /// Since when the last pod there that went after it had been Ready was no longer Ready.
    left: Option<Since>,
}

/// What must be known to judge a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub(crate) pool: String,
    /// The UIDs of the pods that the test deleted.
    pub(crate) by_test: BTreeSet<String>,
    /// A node that has been `NotReady` for longer is left out.
    #[serde(with = "saved::milliseconds")]
    pub(crate) grace: TimeDelta,
    /// The operator has seen an event that is older, and acted on it.
    #[serde(with = "saved::milliseconds")]
    pub(crate) latest: TimeDelta,
    /// There may have been two operators at a time, which did not know of each other.
    pub(crate) two_operators: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What was wrong, each with the history before it.
    pub(crate) wrong: Vec<String>,
    /// Where the history was saved, if anything was wrong.
    pub(crate) saved: Option<std::path::PathBuf>,
    /// Deletions of old Ready pods that were held against the limit.
    pub(crate) held_against_limit: usize,
    /// Those of them that reached the limit.
    pub(crate) at_limit: usize,
    /// Those of the built-in controller above its limit.
    pub(crate) over_by_built_in: usize,
    /// All other deletions of the operator, by what excused them.
    pub(crate) excused: BTreeMap<&'static str, usize>,
    /// Pods that came next to an older one.
    pub(crate) surges: usize,
}

/// Judges a history.
pub(crate) fn judge(history: &History, rules: &Rules) -> Verdict {
    let mut moments: Vec<&Moment> = history.0.iter().collect();
    moments.sort_by_key(|moment| moment.version);
    let mut judge = Judge {
        rules,
        pods: BTreeMap::new(),
        nodes: BTreeMap::new(),
        slots: BTreeMap::new(),
        specs: Vec::new(),
        stopped: false,
        frozen: None,
        undone: false,
        completed: Vec::new(),
        settled: 0,
        seen_all: 0,
        seen_pods: 0,
        now: DateTime::UNIX_EPOCH,
        lines: Vec::new(),
        verdict: Verdict::default(),
    };
    for moment in moments {
        judge.moment(moment.clone());
    }
    judge.verdict
}

struct Judge<'a> {
    rules: &'a Rules,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    slots: BTreeMap<String, Slot>,
    /// The specs by which the operator may be working: the one of its last status, and later ones.
    specs: Vec<Spec>,
    /// The status said that the roll-out has stopped by itself, and nothing happened since.
    stopped: bool,
    /// What the status says is frozen.
    frozen: Option<Frozen>,
    /// The revision of the spec failed, and the pods go back.
    undone: bool,
    /// The images of the last two roll-outs that were completed, the last one first.
    completed: Vec<String>,
    /// Since that version, the operator has worked by one spec.
    settled: u64,
    /// Everything up to this version has been seen.
    seen_all: u64,
    /// Everything that happened to pods up to this version has been seen.
    seen_pods: u64,
    now: DateTime<Utc>,
    lines: Vec<String>,
    verdict: Verdict,
}

impl Judge<'_> {
    fn moment(&mut self, moment: Moment) {
        self.now = moment.seen;
        self.write_down(&moment);
        let since = Since {
            version: moment.version,
            seen: moment.seen,
            own: false,
        };
        match moment.what {
            What::Started => self.seen_all = moment.version,
            What::Object(object) => {
                let before = self.look(None);
                if moment.gone {
                    // No Ready pod may be deleted until there is another object.
                    self.specs.clear();
                    self.stopped = false;
                    self.frozen = None;
                } else {
                    let was_settled = self.specs.len() == 1;
                    self.object(&object);
                    if !was_settled || self.specs.len() != 1 {
                        self.settled = moment.version;
                    }
                }
                self.compare(&before, since);
            }
            What::Node(node) => {
                let before = self.look(Some(&moment.name));
                self.node(&moment.name, (!moment.gone).then_some(node), since);
                self.compare(&before, since);
            }
            What::Pod(pod) => {
                let before = self.look(Some(&pod.node));
                let own = self.pod(pod, moment.gone, since);
                self.compare(&before, Since { own, ..since });
            }
        }
    }

    fn object(&mut self, object: &ObjectState) {
        if self.specs.last() != Some(&object.spec) {
            let changed = self.specs.last().map(|s| &s.image) != Some(&object.spec.image);
            self.stopped &= !changed;
            self.specs.push(object.spec.clone());
        }
        let observed = object.status.observed_generation.unwrap_or_default();
        self.specs.retain(|spec| spec.generation >= observed);
        if object.resumed.is_some() && object.resumed == object.status.update_revision {
            self.stopped = false;
        } else if object.is_stopped() {
            self.stopped = true;
        }
        self.frozen = frozen(object.freeze.as_deref(), &object.status);
        self.undone = !object.status.failed_revisions.is_empty();
        if object.is_complete() {
            self.note_completed(object);
            let ready = self.pods.values().filter_map(|pod| pod.first_ready);
            self.seen_pods = ready.fold(self.seen_pods, u64::max);
        }
    }

    fn note_completed(&mut self, object: &ObjectState) {
        let image = &object.spec.image;
        let is_counted = object.status.desired_number_scheduled.is_some();
        if is_counted && self.completed.first() != Some(image) {
            self.completed.retain(|other| other != image);
            self.completed.insert(0, image.clone());
            self.completed.truncate(2);
        }
    }

    fn node(&mut self, name: &str, state: Option<NodeState>, since: Since) {
        let state = state.unwrap_or_default();
        let Some(node) = self.nodes.get_mut(name) else {
            let node = Node {
                state,
                fit_since: since,
                ready_since: since,
                cordon_since: since,
            };
            self.nodes.insert(name.to_owned(), node);
            return;
        };
        if node.state.pool != state.pool {
            node.fit_since = since;
        }
        if node.state.not_ready_since.is_some() != state.not_ready_since.is_some() {
            node.ready_since = since;
        }
        if node.state.cordoned != state.cordoned {
            node.cordon_since = since;
        }
        node.state = state;
    }

    /// Takes in an event of a pod. Whether it is an act of the operator.
    fn pod(&mut self, state: PodState, gone: bool, since: Since) -> bool {
        let name = state.name.clone();
        let before = self.pods.get(&name).filter(|p| p.state.uid == state.uid);
        let deletes = (gone || state.deleting) && before.is_some_and(|p| !p.state.deleting);
        let own = deletes && !self.rules.by_test.contains(&state.uid);
        let comes = before.is_none() && !gone;
        if own {
            self.judge_deletion(&name);
        } else if comes {
            self.judge_creation(&state);
        }
        // Of two operators, one knows nothing of what the other deleted.
        let since = Since {
            own: own && !self.rules.two_operators,
            ..since
        };
        if gone {
            let pod = self.pods.remove(&name);
            let slot = self.slots.entry(state.node).or_default();
            slot.removed = since.version;
            if let Some(pod) = pod.filter(|pod| pod.first_ready.is_some()) {
                let was_ready = pod.state.is_ready();
                slot.left = Some(if was_ready { since } else { pod.since });
            }
            return own;
        }
        let ready = state.is_ready().then_some(since.version);
        let pod = self.pods.entry(name).or_insert_with(|| Pod {
            state: state.clone(),
            since,
            first_ready: None,
        });
        if pod.state.is_ready() != state.is_ready() {
            pod.since = since;
        }
        pod.first_ready = pod.first_ready.or(ready);
        pod.state = state;
        own
    }

    fn is_known(&self, since: Since, of_pods: bool) -> bool {
        let floor = if of_pods {
            self.seen_all.max(self.seen_pods)
        } else {
            self.seen_all
        };
        since.own || since.version <= floor || self.now - since.seen > self.rules.latest
    }

    fn is_fit(&self, node: &Node) -> bool {
        node.state.pool.as_ref() == Some(&self.rules.pool)
    }

    /// Whether the node may have been `NotReady` for so long that the limits leave it out.
    fn may_be_lost(&self, node: &Node) -> bool {
        let grace = self.rules.grace - SECOND;
        let since = node.state.not_ready_since;
        since.is_some_and(|since| self.now - since >= grace)
    }

    fn on_node<'b>(&'b self, node: &'b str) -> impl Iterator<Item = &'b Pod> {
        self.pods.values().filter(move |p| p.state.node == node)
    }

    /// Whether the limits count the node: it is Ready, or has not been `NotReady` for long. A
    /// cordoned one counts while it has a pod.
    fn is_counted(&self, name: &str, node: &Node) -> bool {
        let has_pod = self.on_node(name).next().is_some();
        self.is_fit(node) && !self.may_be_lost(node) && (!node.state.cordoned || has_pod)
    }

    /// Whether a pod there serves, by any spec that may be in use.
    fn is_served(&self, name: &str) -> bool {
        self.on_node(name).any(|pod| {
            let is_young = |spec: &Spec| {
                pod.state.image == spec.image && !pod.state.is_available(spec.min_ready, self.now)
            };
            pod.state.is_ready() && (self.specs.is_empty() || !self.specs.iter().all(is_young))
        })
    }

    /// Whether that node, or each one, is counted and served.
    fn look(&self, only: Option<&str>) -> Vec<(String, bool, bool)> {
        let nodes = self
            .nodes
            .iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name));
        let look = |(name, node): (&String, &Node)| {
            let counted = self.is_counted(name, node);
            (name.clone(), counted, !self.is_served(name))
        };
        nodes.map(look).collect()
    }

    /// Writes down what changed since that look.
    fn compare(&mut self, before: &[(String, bool, bool)], since: Since) {
        let only = match before {
            [(name, ..)] => Some(name.clone()),
            _ => None,
        };
        let after = self.look(only.as_deref());
        let note = |slot: &mut Option<Since>, before: bool, after: bool| match (before, after) {
            (_, false) => *slot = None,
            (true, true) => {
                slot.get_or_insert(since);
            }
            (false, true) => *slot = Some(since),
        };
        for (name, counted, unserved) in after {
            let was = before.iter().find(|(n, ..)| *n == name);
            let (was_counted, was_unserved) = was.map_or((false, false), |w| (w.1, w.2));
            let slot = self.slots.entry(name).or_default();
            note(&mut slot.counted, was_counted, counted);
            note(&mut slot.unserved, was_unserved, unserved);
        }
    }

    /// The most nodes that the operator may take for those that should have a pod.
    fn most_desired(&self) -> usize {
        let may_be_fit = |node: &&Node| self.is_fit(node) || !self.is_known(node.fit_since, false);
        self.nodes.values().filter(may_be_fit).count()
    }

    /// Why the deletion of a pod is none that the limit is for; none if it is one.
    fn excuse(&self, pod: &Pod) -> Option<&'static str> {
        let Some(node) = self.nodes.get(&pod.state.node) else {
            return Some("node gone");
        };
        if !self.is_fit(node) || !self.is_known(node.fit_since, false) {
            return Some("node not eligible");
        }
        if !pod.state.is_ready() {
            return Some("pod not ready");
        }
        if !self.is_known(pod.since, true) {
            return Some("pod ready just now");
        }
        if self.may_be_lost(node) {
            return Some("node not ready for long");
        }
        if !self.is_known(node.ready_since, false) {
            return Some("node ready just now");
        }
        let others = self.on_node(&pod.state.node);
        for other in others.filter(|other| other.state.uid != pod.state.uid) {
            let available = |spec: &Spec| other.state.is_available(spec.min_ready, self.now);
            if self.specs.iter().any(available) {
                return Some("its successor is available");
            }
            if !self.is_known(other.since, true) {
                return Some("its successor was available just now");
            }
        }
        let left = self.slots.get(&pod.state.node).and_then(|slot| slot.left);
        if left.is_some_and(|left| !self.is_known(left, true)) {
            return Some("its successor was available just now");
        }
        None
    }

    fn judge_deletion(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name) else {
            return;
        };
        if let Some(wrong) = self.freeze_forbids(&pod.state) {
            self.wrong(&[wrong], name);
            return;
        }
        if let Some(excuse) = self.excuse(pod) {
            *self.verdict.excused.entry(excuse).or_default() += 1;
            return;
        }
        let (node, image) = (pod.state.node.clone(), pod.state.image.clone());
        let wrong = if self.rules.two_operators {
            Vec::new()
        } else {
            self.forbids(&node, &image)
        };
        self.judge_count(name, &node, wrong);
    }

    /// Why no Ready pod of that image may be deleted on that node, whatever the count is.
    fn forbids(&self, node: &str, image: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.specs.iter().all(|spec| spec.image == image) {
            wrong.push("a Ready pod of the newest revision is deleted".to_owned());
        }
        if self.specs.iter().all(|spec| spec.paused) {
            wrong.push("a paused roll-out deletes a Ready pod".to_owned());
        }
        if self.stopped {
            wrong.push("a roll-out that stopped by itself deletes a Ready pod".to_owned());
        }
        if self.specs.iter().all(|spec| self.is_outside(spec)) {
            wrong.push("a step outside of the windows".to_owned());
        }
        if self
            .specs
            .iter()
            .all(|spec| self.is_out_of_turn(node, spec))
        {
            wrong.push("a step in a domain before another is done".to_owned());
        }
        let is_held = |spec: &Spec| self.behind(node, spec) < spec.partition;
        if self.specs.iter().all(is_held) {
            wrong.push("the partition holds this node".to_owned());
        }
        let cordon = &self.nodes[node];
        if cordon.state.cordoned && self.is_known(cordon.cordon_since, false) {
            wrong.push("a Ready pod is deleted on a cordoned node".to_owned());
        }
        wrong
    }

    /// How many nodes after that one, by name, may be among those that the partition holds: the last ones of those that
    /// do not have the newest revision.
    fn behind(&self, node: &str, spec: &Spec) -> usize {
        let may_be_fit = |n: &Node| self.is_fit(n) || !self.is_known(n.fit_since, false);
        let is_newest = |pod: &Pod| pod.state.image == spec.image;
        let is_done =
            |name: &str| self.on_node(name).any(is_newest) && self.on_node(name).all(is_newest);
        let nodes = self.nodes.iter();
        let behind = nodes
            .filter(|(name, other)| name.as_str() > node && may_be_fit(other) && !is_done(name));
        behind.count()
    }

    /// Counts the nodes that are unavailable after the deletion of a pod that serves.
    fn judge_count(&mut self, name: &str, node: &str, mut wrong: Vec<String>) {
        // Time alone may have made a pod available since the last event.
        let still = |other: &String| {
            let counted = self.nodes.get(other);
            counted.is_some_and(|n| self.is_counted(other, n)) && !self.is_served(other)
        };
        // Of two operators, one knows nothing of when the other was started, and of what it saw.
        let two = self.rules.two_operators;
        let unserved = |(other, slot): &(&String, &Slot)| {
            *other != node
                && still(other)
                && slot.counted.is_some_and(|s| self.is_known(s, false))
                && slot
                    .unserved
                    .is_some_and(|s| s.own || (!two && self.is_known(s, true)))
        };
        let others: Vec<&String> = self.slots.iter().filter(unserved).map(|(n, _)| n).collect();
        let desired = self.most_desired();
        let limits = self.specs.iter().map(|s| s.may_be_unavailable(desired));
        let mut limit = limits.max().unwrap_or(1);
        if two {
            // Each of them holds it by itself.
            limit *= 2;
        }
        let count = others.len() + 1;
        if count > limit && self.specs.iter().any(|spec| spec.is_built_in) {
            // The built-in controller lowers its number of expected deletions at every event of a leaving pod
            // (updatePod in pkg/controller/daemon/daemon_controller.go), and so may delete on another node before its cache
            // shows the deletion before. Nothing that a client does changes that.
            self.verdict.over_by_built_in += 1;
            limit *= 2;
        }
        self.verdict.held_against_limit += 1;
        self.verdict.at_limit += usize::from(count == limit);
        if count > limit {
            wrong.push(format!(
                "{count} nodes unavailable after the deletion on {node}, the limit is {limit}: {others:?} before"
            ));
        }
        self.wrong(&wrong, name);
    }

    fn judge_creation(&mut self, pod: &PodState) {
        let others: Vec<&PodState> = self.on_node(&pod.node).map(|p| &p.state).collect();
        let mut wrong = Vec::new();
        if self.frozen == Some(Frozen::All) && !self.rules.two_operators {
            wrong.push("a pod is made under a freeze of everything".to_owned());
        }
        if others.iter().any(|other| other.image == pod.image) {
            wrong.push("two pods of one revision on a node".to_owned());
        }
        if others.is_empty() {
            let removed = self.slots.get(&pod.node).map_or(0, |slot| slot.removed);
            if !self.rules.two_operators {
                self.seen_pods = self.seen_pods.max(removed);
            }
        } else if others.iter().all(|other| other.ended && other.deleting) {
            // What has ended and is about to go is in the way of no pod of another revision.
        } else if !self.rules.two_operators {
            if others.len() > 1 {
                wrong.push(format!("{} pods on a node", others.len() + 1));
            }
            self.verdict.surges += 1;
            let mut live: BTreeMap<&str, usize> = BTreeMap::new();
            for pod in self.pods.values().filter(|p| p.state.is_live()) {
                *live.entry(&pod.state.node).or_default() += 1;
            }
            let surging = live.values().filter(|count| **count > 1).count() + 1;
            let desired = self.most_desired();
            let limits = self.specs.iter().map(|s| amount(&s.max_surge, desired));
            let limit = limits.max().unwrap_or_default();
            if surging > limit {
                wrong.push(format!(
                    "{surging} nodes with two pods, the limit is {limit}"
                ));
            }
        }
        let node = self.nodes.get(&pod.node);
        let cordoned = |n: &Node| n.state.cordoned && self.is_known(n.cordon_since, false);
        if node.is_some_and(cordoned) {
            wrong.push("a pod is made on a cordoned node".to_owned());
        }
        self.wrong(&wrong, &pod.name);
    }

    fn wrong(&mut self, wrong: &[String], pod: &str) {
        for what in wrong {
            let from = self.lines.len().saturating_sub(LINES);
            let history = self.lines[from..].join("\n");
            let text = format!(
                "{pod}: {what}\nby one of {:#?}\nseen: all to {}, pods to {}\n{history}",
                self.specs, self.seen_all, self.seen_pods
            );
            self.verdict.wrong.push(text);
        }
    }

    fn write_down(&mut self, moment: &Moment) {
        let mut line = format!("{} {} ", moment.version, moment.seen.format("%T%.3f"));
        let gone = if moment.gone { " GONE" } else { "" };
        let written = match &moment.what {
            What::Started => write!(line, "an operator starts"),
            What::Object(object) => {
                let (spec, status) = (&object.spec, &object.status);
                let progress = status.conditions.iter().find(|c| c.type_ == "Progressing");
                write!(
                    line,
                    "object{gone} {} {} {} unavailable, {} surge, partition {}, paused {}, {}; observed {:?}: desired {:?} updated {:?} available {:?} {}",
                    spec.generation,
                    spec.image,
                    text(&spec.max_unavailable),
                    text(&spec.max_surge),
                    spec.partition,
                    spec.paused,
                    spec.min_ready,
                    status.observed_generation,
                    status.desired_number_scheduled,
                    status.updated_number_scheduled,
                    status.number_available,
                    progress.map_or("", |c| &c.reason),
                )
            }
            What::Node(node) => {
                let ours = node.pool.as_ref() == Some(&self.rules.pool);
                if !ours && !self.nodes.get(&moment.name).is_some_and(|n| self.is_fit(n)) {
                    return;
                }
                write!(line, "node {}{gone} {node:?}", moment.name)
            }
            What::Pod(pod) => {
                let test = if self.rules.by_test.contains(&pod.uid) {
                    " (the test's)"
                } else {
                    ""
                };
                let ready = pod.ready_since.map(|t| t.format("%T").to_string());
                write!(
                    line,
                    "pod {}{gone} {} ready {ready:?}, ended {}, deleting {}{test}",
                    pod.name, pod.image, pod.ended, pod.deleting
                )
            }
        };
        written.unwrap();
        self.lines.push(line);
    }
}

fn text(amount: &IntOrString) -> String {
    match amount {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}
