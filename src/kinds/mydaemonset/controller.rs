//! The I/O edge: which objects are watched, and which one a change requeues. What to do is decided
//! elsewhere, by a pure function; [`pass`] carries it out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Api;
use parking_lot::Mutex;
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
use my_operator_admission::faults::Fault;
use my_operator_admission::rules::decode_and_validate;
use my_operator_runtime::reconcile::cache::{Cache, CacheEvent, Source, run_watch};
use my_operator_runtime::reconcile::queue::Queue;
use my_operator_runtime::reconcile::watch::Selection;
use my_operator_runtime::reconcile::write::{MANAGED_BY, MANAGER};
use my_operator_runtime::reconcile::write_cache::WriteCache;
use my_operator_runtime::reconcile::{Action, Context, Error, Key, Reconciler, runner};

mod pass;
mod pods;
mod revisions;

use pass::Reconcile;

/// The name of this controller in logs and metrics.
const NAME: &str = "mydaemonset";
/// Page size of a list.
const PAGE: u32 = 100;

/// What the cache holds of a `MyDaemonSet`.
#[derive(Debug)]
struct ObjectView {
    uid: String,
    generation: Option<i64>,
    version: String,
    deleting: bool,
    /// The value of the annotation that resumes a stopped roll-out.
    resume: Option<String>,
    /// The spec, decoded and validated once for each version of the object.
    parsed: Result<ParsedSpec, Vec<Fault>>,
    status: MyDaemonSetStatus,
}

/// A valid spec in the forms in which it is used.
#[derive(Debug)]
struct ParsedSpec {
    strategy: Strategy,
    placement: Placement,
    history: usize,
    /// The content of the revision, as text: a value tree takes many times the memory, and is
    /// needed only while a pod is built.
    canonical: Arc<str>,
    hash: String,
}

impl ObjectView {
    fn of(object: RawMyDaemonSet, now: DateTime<Utc>) -> Self {
        let metadata = object.metadata;
        let name = metadata.name.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let parsed =
            decode_and_validate::<MyDaemonSetRules>(&name, &annotations, object.spec.text(), now);
        Self {
            uid: metadata.uid.unwrap_or_default(),
            generation: metadata.generation,
            version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            resume: annotations
                .get(RESUME_ANNOTATION)
                .filter(|hash| hash.len() == revision::HASH_LEN)
                .cloned(),
            parsed: parsed.map(|spec| {
                let canonical = Content::of(&spec).canonical();
                ParsedSpec {
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

/// How many unused revisions are kept. An object from before the limit had a maximum may ask for more.
fn history(spec: &MyDaemonSetSpec) -> usize {
    let limit = spec.revision_history_limit.map_or(10, i64::from);
    usize::try_from(limit.clamp(1, MAX_HISTORY)).unwrap_or(1)
}

/// Runs the reconciler until the context is cancelled.
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

/// Index key of an object by its owner: the UID, or an orphan's owner name.
fn of_owner(name: &str, uid: &str) -> String {
    if uid.is_empty() {
        format!("orphan/{name}")
    } else {
        uid.to_owned()
    }
}

/// Index key of the pods of a node.
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
    /// The last written statuses.
    own: WriteCache<pass::Before>,
    metrics: Metrics,
}

/// All objects, in small pages: nodes and pods are long texts of which little is kept.
fn all() -> Selection {
    Selection::default().page(PAGE)
}

/// The pods and revisions that this operator created.
fn ours() -> Selection {
    all().labels(&format!("{MANAGED_BY}={MANAGER},{NAME_LABEL}"))
}

impl Controller {
    async fn watch_objects(self: Arc<Self>, api: Api<RawMyDaemonSet>) {
        let (cache, health) = (self.objects.clone(), self.context.watch_health());
        let clock = self.context.clock.clone();
        let view = |object| ObjectView::of(object, clock());
        let on_event = |event: &CacheEvent<'_, ObjectView>| event.enqueue(&self.queue);
        run_watch(api, all(), cache, health, view, on_event).await;
    }

    async fn watch_pods(self: Arc<Self>, api: Api<WatchedPod>) {
        let (cache, health) = (self.pods.clone(), self.context.watch_health());
        let clock = self.context.clock.clone();
        let view = |pod: WatchedPod| {
            let before = self.pods.get(&Key::of(&pod.metadata));
            PodView::of(pod, clock()).after(before.as_deref())
        };
        let on_event = |event: &CacheEvent<'_, PodView>| self.on_pod_event(event);
        run_watch(api, ours(), cache, health, view, on_event).await;
    }

    async fn watch_revisions(self: Arc<Self>, api: Api<WatchedRevision>) {
        let (cache, health) = (self.revisions.clone(), self.context.watch_health());
        let on_event = |event: &CacheEvent<'_, RevisionView>| {
            if event.old != event.new
                && let Some(revision) = event.new.or(event.old)
            {
                let key = Key::new(&event.key.namespace, &revision.owner);
                if event.new.is_none() {
                    self.remember(&key, |memory| memory.stored = None);
                }
                self.queue.add(key);
            }
        };
        run_watch(api, ours(), cache, health, RevisionView::of, on_event).await;
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
        let on_event = |event: &CacheEvent<'_, NodeView>| self.on_node_event(event);
        run_watch(api, all(), cache, health, view, on_event).await;
    }

    fn on_pod_event(&self, event: &CacheEvent<'_, PodView>) {
        if event.old == event.new {
            return;
        }
        let mut owners: Vec<&PodView> = [event.new, event.old]
            .into_iter()
            .flatten()
            .filter(|pod| !pod.owner.is_empty())
            .collect();
        owners.dedup_by(|a, b| (&a.owner, &a.node) == (&b.owner, &b.node));
        for pod in owners {
            let key = Key::new(&event.key.namespace, &pod.owner);
            self.remember(&key, |memory| {
                memory.seen(pod);
                if event.new.is_none() && memory.uid == pod.owner_uid {
                    memory.vanished(pod);
                    memory.gone(pod);
                }
            });
            self.queue.add(key);
        }
    }

    /// A node's heartbeat does not change its view, and most changes of a node concern few objects.
    fn on_node_event(&self, event: &CacheEvent<'_, NodeView>) {
        if event.old == event.new {
            return;
        }
        // An existing pod may be of a revision with another placement.
        let pods = self.pods.find(&on_node(&event.key.name));
        let owners: HashSet<&str> = pods.iter().map(|pod| pod.owner_uid.as_str()).collect();
        for key in self.objects.keys() {
            let Some(object) = self.objects.get(&key) else {
                continue;
            };
            self.remember(&key, |memory| memory.touch(&event.key.name));
            if let Ok(parsed) = &object.parsed
                && (owners.contains(object.uid.as_str())
                    || concerns(&parsed.placement, event.old, event.new))
            {
                self.queue.add(key);
            }
        }
    }

    fn memory(&self, key: &Key) -> Arc<Mutex<Memory>> {
        let mut memories = self.memories.lock();
        match memories.get(key) {
            Some(memory) => memory.clone(),
            None => memories.entry(key.clone()).or_default().clone(),
        }
    }

    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        let memory = self.memory(key);
        let mut memory = memory.lock();
        change(&mut memory)
    }

    fn forget(&self, key: &Key) {
        let mut memories = self.memories.lock();
        memories.remove(key);
        self.own.forget(key);
        self.metrics.forget(key);
    }
}

/// Whether a change of a node can change what is decided for pods of that placement.
fn concerns(placement: &Placement, old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let eligibility = |node: Option<&NodeView>| node.map(|node| placement.eligibility(node));
    let relevant =
        |node: Option<&NodeView>| node.map(|node| (node.uid.clone(), node.not_ready_since));
    eligibility(old) != eligibility(new)
        || (eligibility(new) != Some(Eligibility::Leave) && relevant(old) != relevant(new))
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(object) = self.objects.get(key) else {
            self.forget(key);
            return Ok(Action::default());
        };
        if object.deleting {
            // The garbage collector deletes or orphans its pods and revisions by their owner references.
            return Ok(Action::default());
        }
        Reconcile::new(self, key, &object, now).run().await
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
        let template = |spec| crate::kinds::shared::template::PodTemplate(json!({"spec": spec}));
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
