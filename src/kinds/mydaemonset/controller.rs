//! The edge: what is watched, and which object is to be looked at when something changes. What is to
//! be done is decided elsewhere, as a pure function; [`look`] does it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use kube::Api;
use tokio::task::JoinSet;

use super::admission::{MAX_HISTORY, MyDaemonSetRules};
use super::crd::{MyDaemonSetSpec, MyDaemonSetStatus, RawMyDaemonSet};
use super::memory::Memory;
use super::metrics::Metrics;
use super::placement::{Eligibility, Placement};
use super::pod::NAME_LABEL;
use super::revision::{self, Content, RevisionView, WatchedRevision};
use super::rollout::Strategy;
use super::status::{self, RESUME_ANNOTATION};
use super::views::{NodeView, PodView, WatchedNode, WatchedPod};
use crate::admission::faults::Fault;
use crate::admission::rules::settle;
use crate::reconcile::cache::{Cache, CacheEvent, Source, follow};
use crate::reconcile::own::WriteCache;
use crate::reconcile::queue::Queue;
use crate::reconcile::watch::Selection;
use crate::reconcile::write::{MANAGED_BY, MANAGER};
use crate::reconcile::{Action, Context, Error, Key, Reconciler, runner};

mod look;
mod pods;
mod revisions;

use look::Reconcile;

/// The name of this controller in logs and figures.
const NAME: &str = "mydaemonset";
/// So many objects come in one page of a list.
const PAGE: u32 = 100;

/// What is kept of a `MyDaemonSet`.
#[derive(Debug)]
struct ObjectView {
    uid: String,
    generation: Option<i64>,
    version: String,
    deleting: bool,
    /// The value of the annotation with which a stopped roll-out goes on.
    resume: Option<String>,
    /// The spec, read once for each version of the object.
    settled: Result<Settled, Vec<Fault>>,
    status: MyDaemonSetStatus,
}

/// A spec that obeys the rules, in the forms in which it is used.
#[derive(Debug)]
struct Settled {
    strategy: Strategy,
    placement: Placement,
    history: usize,
    /// The content of the revision, as text: a tree of values takes many times the memory, and is
    /// needed only while a pod is built.
    canonical: Arc<str>,
    hash: String,
}

impl ObjectView {
    fn of(object: RawMyDaemonSet, now: DateTime<Utc>) -> Self {
        let metadata = object.metadata;
        let name = metadata.name.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let settled = settle::<MyDaemonSetRules>(&name, &annotations, object.spec.text(), now);
        Self {
            uid: metadata.uid.unwrap_or_default(),
            generation: metadata.generation,
            version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            resume: annotations
                .get(RESUME_ANNOTATION)
                .filter(|hash| hash.len() == revision::HASH_LEN)
                .cloned(),
            settled: settled.map(|spec| {
                let canonical = Content::of(&spec).canonical();
                Settled {
                    strategy: Strategy::of(&spec),
                    placement: Placement::of(spec.template.as_ref()),
                    history: history(&spec),
                    hash: revision::hash(&canonical),
                    canonical: canonical.into(),
                }
            }),
            status: status::read(&object.status),
        }
    }
}

/// How many revisions are kept that no pod uses. An object from before the limit had a maximum may
/// ask for more.
fn history(spec: &MyDaemonSetSpec) -> usize {
    let limit = spec.revision_history_limit.map_or(10, i64::from);
    usize::try_from(limit.clamp(1, MAX_HISTORY)).unwrap_or(1)
}

/// Runs the reconciler until the context says stop.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub async fn run(context: Context) -> anyhow::Result<()> {
    let objects = context.apis::<RawMyDaemonSet>();
    let scopes = objects.len();
    let this = Arc::new(Controller {
        context: context.clone(),
        queue: context.queue(NAME),
        objects: Arc::new(Cache::new(scopes, |_| Vec::new())),
        nodes: Arc::new(Cache::new(1, |_| Vec::new())),
        pods: Arc::new(Cache::new(scopes, |pod: &PodView| {
            vec![of_owner(&pod.owner, &pod.owner_uid), on_node(&pod.node)]
        })),
        revisions: Arc::new(Cache::new(scopes, |revision: &RevisionView| {
            vec![of_owner(&revision.owner, &revision.owner_uid)]
        })),
        memories: Mutex::default(),
        own: WriteCache::default(),
        metrics: context.register(Metrics::new),
    });
    let mut watches = JoinSet::new();
    for api in objects {
        watches.spawn(this.clone().watch_objects(api));
    }
    for api in context.apis() {
        watches.spawn(this.clone().watch_pods(api));
    }
    for api in context.apis() {
        watches.spawn(this.clone().watch_revisions(api));
    }
    watches.spawn(this.clone().watch_nodes());
    let sources: [&dyn Source; 4] = [&*this.objects, &*this.nodes, &*this.pods, &*this.revisions];
    let workers = runner::run(NAME, this.clone(), this.queue.clone(), &context, &sources);
    runner::join(watches, workers).await
}

/// Under which text an object is found by its owner: the UID, or of an orphan the name.
fn of_owner(name: &str, uid: &str) -> String {
    if uid.is_empty() {
        format!("orphan/{name}")
    } else {
        uid.to_owned()
    }
}

/// Under which text the pods of a node are found.
fn on_node(node: &str) -> String {
    format!("node/{node}")
}

struct Controller {
    context: Context,
    queue: Arc<Queue>,
    objects: Arc<Cache<ObjectView>>,
    nodes: Arc<Cache<NodeView>>,
    pods: Arc<Cache<PodView>>,
    revisions: Arc<Cache<RevisionView>>,
    memories: Mutex<HashMap<Key, Arc<Mutex<Memory>>>>,
    /// The statuses that were written last.
    own: WriteCache<look::Before>,
    metrics: Metrics,
}

/// Everything, in pages so small that a whole one weighs little: nodes and pods are long texts of
/// which little is kept.
fn all() -> Selection {
    Selection::default().page(PAGE)
}

/// The pods and revisions that this operator made.
fn ours() -> Selection {
    all().labels(&format!("{MANAGED_BY}={MANAGER},{NAME_LABEL}"))
}

impl Controller {
    async fn watch_objects(self: Arc<Self>, api: Api<RawMyDaemonSet>) {
        let (cache, health) = (self.objects.clone(), self.context.watch_health());
        let clock = self.context.clock.clone();
        let view = |object| ObjectView::of(object, clock());
        let touched = |touched: &CacheEvent<'_, ObjectView>| touched.enqueue(&self.queue);
        follow(api, all(), cache, health, view, touched).await;
    }

    async fn watch_pods(self: Arc<Self>, api: Api<WatchedPod>) {
        let (cache, health) = (self.pods.clone(), self.context.watch_health());
        let clock = self.context.clock.clone();
        let view = |pod: WatchedPod| {
            let before = self.pods.get(&Key::of(&pod.metadata));
            PodView::of(pod, clock()).after(before.as_deref())
        };
        let touched = |touched: &CacheEvent<'_, PodView>| self.pod_touched(touched);
        follow(api, ours(), cache, health, view, touched).await;
    }

    async fn watch_revisions(self: Arc<Self>, api: Api<WatchedRevision>) {
        let (cache, health) = (self.revisions.clone(), self.context.watch_health());
        let touched = |touched: &CacheEvent<'_, RevisionView>| {
            if touched.old != touched.new
                && let Some(revision) = touched.new.or(touched.old)
            {
                let key = Key::new(&touched.key.namespace, &revision.owner);
                if touched.new.is_none() {
                    self.remember(&key, |memory| memory.stored = None);
                }
                self.queue.add(key);
            }
        };
        follow(api, ours(), cache, health, RevisionView::of, touched).await;
    }

    async fn watch_nodes(self: Arc<Self>) {
        let api = Api::<WatchedNode>::all(self.context.client.clone());
        let (cache, health) = (self.nodes.clone(), self.context.watch_health());
        let clock = self.context.clock.clone();
        let view = |node| {
            let now = clock();
            let node = NodeView::of(node, now);
            let before = self.nodes.get(&Key::new("", &node.name));
            node.after(before.as_deref(), now)
        };
        let touched = |touched: &CacheEvent<'_, NodeView>| self.node_touched(touched);
        follow(api, all(), cache, health, view, touched).await;
    }

    fn pod_touched(&self, touched: &CacheEvent<'_, PodView>) {
        if touched.old == touched.new {
            return;
        }
        let mut owners: Vec<&PodView> = [touched.new, touched.old]
            .into_iter()
            .flatten()
            .filter(|pod| !pod.owner.is_empty())
            .collect();
        owners.dedup_by(|a, b| (&a.owner, &a.node) == (&b.owner, &b.node));
        for pod in owners {
            let key = Key::new(&touched.key.namespace, &pod.owner);
            self.remember(&key, |memory| {
                memory.seen(pod);
                if touched.new.is_none() && memory.uid == pod.owner_uid {
                    memory.vanished(pod);
                    memory.gone(pod);
                }
            });
            self.queue.add(key);
        }
    }

    /// A node's heartbeat changes nothing in its view, and most changes of a node concern few
    /// objects.
    fn node_touched(&self, touched: &CacheEvent<'_, NodeView>) {
        if touched.old == touched.new {
            return;
        }
        // A pod that is there may be of a revision with other demands.
        let pods = self.pods.find(&on_node(&touched.key.name));
        let owners: HashSet<&str> = pods.iter().map(|pod| pod.owner_uid.as_str()).collect();
        for key in self.objects.keys() {
            let Some(object) = self.objects.get(&key) else {
                continue;
            };
            self.remember(&key, |memory| memory.touch(&touched.key.name));
            if let Ok(settled) = &object.settled
                && (owners.contains(object.uid.as_str())
                    || concerns(&settled.placement, touched.old, touched.new))
            {
                self.queue.add(key);
            }
        }
    }

    fn memory(&self, key: &Key) -> Arc<Mutex<Memory>> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        match memories.get(key) {
            Some(memory) => memory.clone(),
            None => memories.entry(key.clone()).or_default().clone(),
        }
    }

    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        let memory = self.memory(key);
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut memory)
    }

    fn forget(&self, key: &Key) {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
        self.own.forget(key);
        self.metrics.forget(key);
    }
}

/// Whether a change of a node can change what is decided for pods of that placement.
fn concerns(placement: &Placement, old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let fate = |node: Option<&NodeView>| node.map(|node| placement.fate(node));
    let facts = |node: Option<&NodeView>| node.map(|node| (node.uid.clone(), node.not_ready_since));
    fate(old) != fate(new) || (fate(new) != Some(Eligibility::Leave) && facts(old) != facts(new))
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(object) = self.objects.get(key) else {
            self.forget(key);
            return Ok(Action::default());
        };
        if object.deleting {
            // Its pods and revisions go (or stay) by their owner references.
            return Ok(Action::default());
        }
        Reconcile::new(self, key, &object, now).take().await
    }
}

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use serde_json::json;

    use super::*;
    use crate::kinds::mydaemonset::views::Taint;

    #[test]
    fn a_change_of_a_node_concerns_those_whose_pods_it_can_move() {
        let template = |spec| crate::kinds::template::PodTemplate(json!({"spec": spec}));
        let elsewhere = Placement::of(Some(&template(json!({"nodeSelector": {"a": "b"}}))));
        let anywhere = Placement::of(None);
        let node = NodeView {
            uid: "u".into(),
            ..NodeView::default()
        };
        let silent = NodeView {
            not_ready_since: Some(DateTime::UNIX_EPOCH),
            ..node.clone()
        };
        let labelled = NodeView {
            labels: [("x".into(), "y".into())].into(),
            ..node.clone()
        };
        let tainted = NodeView {
            taints: [Taint {
                key: "k".into(),
                effect: "NoExecute".into(),
                ..Taint::default()
            }]
            .into(),
            ..node.clone()
        };
        let changed = |placement: &Placement, new| concerns(placement, Some(&node), new);
        assert!(changed(&anywhere, Some(&silent)));
        assert!(changed(&anywhere, Some(&tainted)));
        assert!(changed(&anywhere, None));
        assert!(!changed(&anywhere, Some(&labelled)));
        assert!(concerns(&anywhere, None, Some(&node)));
        for new in [&silent, &labelled, &tainted] {
            assert!(!changed(&elsewhere, Some(new)));
        }
    }
}
