//! The I/O edge: which objects are watched, and which one a change requeues. [`reconcile`] is one
//! pass over an object.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use kube::Api;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::caches::Caches;
use super::crd::RawMyDaemonSet;
use super::decide::placement::{Eligibility, Placement};
use super::memory::Memory;
use super::metrics::Metrics;
use super::names::{CONTROLLER, NAME_LABEL};
use super::object::{ObjectView, RawNamespace, frozen_namespace};
use super::observe::node::{NodeView, WatchedNode};
use super::observe::pod::{PodView, WatchedPod};
use super::pass::{Scope, WrittenStatus};
use super::revision::RevisionView;
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::cache::{CacheEvent, Source as _};
use wall_clock_controller::reconcile::key_map::KeyMap;
use wall_clock_controller::reconcile::queue::Queue;
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::write::MANAGED_BY;
use wall_clock_controller::reconcile::write_cache::WriteCache;
use wall_clock_controller::reconcile::{Action, Context, Controller, Error, Key, Reconciler};

pub(super) mod plan;
mod reconcile;
mod write_status;

use reconcile::Reconcile;

/// Page size of a list.
const PAGE: u32 = 100;

struct MyDaemonSetReconciler {
    context: Context,
    /// How long a node may be `NotReady` before roll-outs no longer wait for it.
    node_not_ready_grace: TimeDelta,
    queue: Arc<Queue>,
    caches: Caches,
    memories: Mutex<KeyMap<Arc<Mutex<Memory>>>>,
    /// The last written statuses.
    statuses: WriteCache<WrittenStatus>,
    metrics: Metrics,
}

/// Runs the reconciler until the context is cancelled.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub(super) async fn run(context: Context, node_not_ready_grace: TimeDelta) -> anyhow::Result<()> {
    let objects = context.apis::<RawMyDaemonSet>();
    let nodes = vec![Api::<WatchedNode>::all(context.client.clone())];
    // An operator of some namespaces has no right to read them.
    let namespaces = if context.namespaces.is_empty() {
        vec![Api::<RawNamespace>::all(context.client.clone())]
    } else {
        Vec::new()
    };
    let controller = Controller::new(CONTROLLER, &context);
    let this = Arc::new(MyDaemonSetReconciler {
        context: context.clone(),
        node_not_ready_grace,
        queue: controller.queue(),
        caches: Caches::new(objects.len(), namespaces.len()),
        memories: Mutex::default(),
        statuses: WriteCache::default(),
        metrics: context.register(Metrics::new),
    });
    let caches = &this.caches;
    let clock = context.clock.clone();
    let object_view = move |object| ObjectView::from_object(object, clock());
    let queue = controller.queue();
    let object_events = move |event: &CacheEvent<'_, _>| event.enqueue(&queue);
    let pod_events = on(&this, MyDaemonSetReconciler::on_pod_event);
    let revision_events = on(&this, MyDaemonSetReconciler::on_revision_event);
    let node_events = on(&this, MyDaemonSetReconciler::on_node_event);
    let namespace_events = on(&this, MyDaemonSetReconciler::on_namespace_event);
    let (pods, revisions) = (context.apis(), context.apis());
    let view = RevisionView::from_watched;
    let controller = controller
        .watch(
            namespaces,
            &Selection::default(),
            &caches.namespaces,
            frozen_namespace,
            namespace_events,
        )
        .unawaited()
        .watch(objects, &all(), &caches.objects, object_view, object_events)
        .watch(pods, &ours(), &caches.pods, pod_view(&this), pod_events)
        .watch(revisions, &ours(), &caches.revisions, view, revision_events)
        .watch(nodes, &all(), &caches.nodes, node_view(&this), node_events);
    tokio::select! {
        biased;
        ended = controller.run(this.clone()) => ended,
        never = this.go_on_once_namespaces_are_listed() => never,
    }
}

/// What to do with the events of a watch that change what is kept.
fn on<V: PartialEq>(
    this: &Arc<MyDaemonSetReconciler>,
    act: fn(&MyDaemonSetReconciler, &CacheEvent<'_, V>),
) -> impl Fn(&CacheEvent<'_, V>) + Clone + use<V> {
    let this = this.clone();
    move |event| {
        if event.old != event.new {
            act(&this, event);
        }
    }
}

/// All objects, in small pages: nodes and pods are long texts of which little is kept.
fn all() -> Selection {
    Selection::default().page(PAGE)
}

/// The pods and revisions that this operator created.
fn ours() -> Selection {
    all().labels(&format!("{MANAGED_BY}={MANAGER},{NAME_LABEL}"))
}

fn pod_view(this: &Arc<MyDaemonSetReconciler>) -> impl Fn(WatchedPod) -> PodView + Clone + use<> {
    let this = this.clone();
    move |pod| {
        let before = this.caches.pods.get(&Key::of(&pod.metadata));
        PodView::from_watched(pod, (this.context.clock)()).after(before.as_deref())
    }
}

fn node_view(
    this: &Arc<MyDaemonSetReconciler>,
) -> impl Fn(WatchedNode) -> NodeView + Clone + use<> {
    let this = this.clone();
    move |node| {
        let now = (this.context.clock)();
        let node = NodeView::from_watched(node, now);
        let before = this.caches.node(&node.name);
        node.after(before.as_deref(), now)
    }
}

impl MyDaemonSetReconciler {
    fn on_pod_event(&self, event: &CacheEvent<'_, PodView>) {
        // A pod that changed hands concerns both owners.
        let mut owners: Vec<&PodView> = [event.new, event.old]
            .into_iter()
            .flatten()
            .filter(|pod| !pod.owner.is_empty())
            .collect();
        owners.dedup_by(|a, b| (&a.owner, &a.node) == (&b.owner, &b.node));
        for pod in owners {
            let key = Key::new(&event.key.namespace, &pod.owner);
            self.remember(&key, |memory| memory.nodes.seen(pod));
            self.queue.add(key);
        }
        // A gap in the watch may hide that another pod has taken the name.
        let now = event.new.map(|pod| &pod.uid);
        let gone = event
            .old
            .filter(|old| now != Some(&old.uid) && !old.owner.is_empty());
        if let Some(gone) = gone {
            let key = Key::new(&event.key.namespace, &gone.owner);
            self.remember(&key, |memory| memory.pod_gone(gone));
            self.queue.add(key);
        }
    }

    fn on_revision_event(&self, event: &CacheEvent<'_, RevisionView>) {
        let Some(revision) = event.new.or(event.old) else {
            return;
        };
        let key = Key::new(&event.key.namespace, &revision.owner);
        if event.new.is_none() {
            // Otherwise a revision that a user deletes would count as stored.
            self.remember(&key, |memory| memory.stored.forget(&revision.uid));
        }
        self.queue.add(key);
    }

    /// A node's heartbeat does not change its view, and most changes of a node concern few objects.
    fn on_node_event(&self, event: &CacheEvent<'_, NodeView>) {
        // An existing pod may be of a revision with another placement.
        let pods = self.caches.every_pod_on(&event.key.name);
        let owners: HashSet<&str> = pods.iter().map(|pod| pod.owner_uid.as_str()).collect();
        for key in self.caches.objects.keys() {
            let Some(object) = self.caches.objects.get(&key) else {
                continue;
            };
            let Some(spec) = object.parsed.as_ref().ok().filter(|_| !object.deleting) else {
                // Nothing takes the changes of an object that is not valid or being deleted, and their names would pile
                // up. Once it is valid, every node is looked at.
                self.remember(&key, |memory| memory.rollout = None);
                continue;
            };
            let is_concerned = self.remember(&key, |memory| {
                memory.nodes.touch(&event.key.name);
                let placement = memory.acceptance.placement(&spec.hash, &spec.placement);
                let back = memory.way_back.as_ref();
                let concerns = |placement: &Placement| concerns(placement, event.old, event.new);
                concerns(placement) || back.is_some_and(|back| concerns(&back.placement))
            });
            if is_concerned || owners.contains(object.uid.as_str()) {
                self.queue.add(key);
            }
        }
    }

    fn on_namespace_event(&self, event: &CacheEvent<'_, Box<str>>) {
        let objects = self.caches.objects.keys().into_iter();
        for key in objects.filter(|key| key.namespace == event.key.name) {
            self.queue.add(key);
        }
    }

    /// Looks at each object again when it is known which namespaces are frozen: roll-outs wait for that.
    async fn go_on_once_namespaces_are_listed(&self) -> anyhow::Result<()> {
        self.caches.namespaces.synced(None).await;
        for key in self.caches.objects.keys() {
            self.queue.add(key);
        }
        std::future::pending().await
    }

    fn memory(&self, key: &Key) -> Arc<Mutex<Memory>> {
        let mut memories = self.memories.lock();
        memories.entry(key.clone()).or_default().clone()
    }

    fn remember<R>(&self, key: &Key, change: impl FnOnce(&mut Memory) -> R) -> R {
        change(&mut self.memory(key).lock())
    }

    fn forget(&self, key: &Key) {
        self.memories.lock().remove(key);
        self.statuses.forget(key);
        self.metrics.forget(key);
    }
}

/// Whether a change of a node can change what is decided for pods of that placement.
fn concerns(placement: &Placement, old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let eligibility = |node: Option<&NodeView>| node.map(|node| placement.eligibility(node));
    let relevant = |node: Option<&NodeView>| {
        node.map(|node| (node.uid.clone(), node.not_ready_since, node.in_maintenance))
    };
    eligibility(old) != eligibility(new)
        || (eligibility(new) != Some(Eligibility::Leave) && relevant(old) != relevant(new))
}

impl Reconciler for MyDaemonSetReconciler {
    async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(object) = self.caches.objects.get(key) else {
            self.forget(key);
            return Ok(Action::gone());
        };
        if object.deleting {
            // The garbage collector deletes or orphans its pods and revisions by their owner references.
            // Its roll-out will never resume: there is nothing to alert about.
            self.metrics.set_paused(key, None);
            self.memories.lock().remove(key);
            return Ok(Action::default());
        }
        let memory = self.memory(key);
        memory.lock().begin(&object.uid, now, Instant::now());
        let of_namespace = self.caches.of_namespace(&key.namespace);
        let scope = Scope {
            context: &self.context,
            node_not_ready_grace: self.node_not_ready_grace,
            caches: &self.caches,
            statuses: &self.statuses,
            metrics: &self.metrics,
            key,
            object: &object,
            of_namespace: &of_namespace,
            memory: &memory,
            now,
        };
        Reconcile::new(scope).run().await
    }
}

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use serde_json::json;

    use super::*;
    use crate::observe::node::Taint;

    #[test]
    fn a_node_change_requeues_objects_whose_pods_it_can_affect() {
        let template = |spec| my_operator_kind::template::PodTemplate(json!({"spec": spec}));
        let elsewhere =
            Placement::from_template(Some(&template(json!({"nodeSelector": {"a": "b"}}))));
        let anywhere = Placement::from_template(None);
        let node = NodeView {
            uid: "u".into(),
            ..NodeView::default()
        };
        let silent = NodeView {
            not_ready_since: Some(DateTime::UNIX_EPOCH),
            ..node.clone()
        };
        let labelled = NodeView {
            labels: [("x", "y")].into_iter().collect(),
            ..node.clone()
        };
        let maintained = NodeView {
            in_maintenance: true,
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
        assert!(changed(&anywhere, Some(&maintained)));
        // Where pods are made on cordoned nodes too, it still takes the node out of the roll-out.
        let everywhere = template(json!({"tolerations": [{"operator": "Exists"}]}));
        let everywhere = Placement::from_template(Some(&everywhere));
        assert!(changed(&everywhere, Some(&maintained)));
        assert!(changed(&anywhere, None));
        assert!(!changed(&anywhere, Some(&labelled)));
        assert!(concerns(&anywhere, None, Some(&node)));
        for new in [&silent, &labelled, &tainted, &maintained] {
            assert!(!changed(&elsewhere, Some(new)));
        }
    }
}
