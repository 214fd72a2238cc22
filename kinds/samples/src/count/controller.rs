//! The I/O edge: the watches, which Counts a change of a pod requeues, and the one call: the status.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};

use super::admission::CountRules;
use super::crd::{Count, CountObject, CountStatus};
use super::decide::{Decision, decide};
use super::status::{self, Assertion};
use admission_rules::faults::Fault;
use admission_rules::rules::decode_and_validate;
use my_operator_kind::manager::MANAGER;
use my_operator_kind::pods::{self, Pod, PodView};
use wall_clock_controller::reconcile::cache::{Cache, CacheEvent};
use wall_clock_controller::reconcile::event::{self, Events, NewEvent};
use wall_clock_controller::reconcile::key_map::KeyMap;
use wall_clock_controller::reconcile::queue::Queue;
use wall_clock_controller::reconcile::raw::Raw;
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::{
    Action, Context, Controller, Error, Key, Reconciler, call_status, if_there, write,
};

/// The name of this controller in logs and metrics.
const NAME: &str = "count";
/// The labels that name the application of a pod: the common one, and Kubernetes' recommended one.
const LABELS: &[&str] = &["app", "app.kubernetes.io/name"];

/// What the cache holds of a Count.
#[derive(Debug, PartialEq)]
struct CountView {
    namespace: Box<str>,
    uid: String,
    version: String,
    generation: Option<i64>,
    deleting: bool,
    assertion: Result<Assertion, Vec<Fault>>,
    /// As text, which takes less memory.
    status: Raw,
}

impl CountView {
    fn new(object: CountObject, now: DateTime<Utc>) -> Self {
        let metadata = object.metadata;
        let name = metadata.name.unwrap_or_default();
        let spec =
            decode_and_validate::<CountRules>(&name, &BTreeMap::new(), object.spec.text(), now);
        Self {
            namespace: metadata.namespace.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            generation: metadata.generation,
            deleting: metadata.deletion_timestamp.is_some(),
            assertion: spec.map(Assertion::from),
            status: object.status,
        }
    }
}

/// Index keys of a pod; none while it is not ready.
fn apps(pod: &PodView) -> Vec<String> {
    let labels = 0..LABELS.len();
    let values = labels.filter_map(|place| pod.label(place));
    let texts = values.map(|value| PodView::index(&pod.namespace, value));
    texts.filter(|_| pod.ready).collect()
}

/// Runs the reconciler until the context is cancelled.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub(crate) async fn run(context: Context) -> anyhow::Result<()> {
    let (counts, pods) = (context.apis::<CountObject>(), context.apis::<Pod>());
    let controller = Controller::new(NAME, &context);
    let this = Arc::new(CountReconciler {
        client: context.client.clone(),
        events: context.events.clone(),
        queue: controller.queue(),
        counts: Arc::new(Cache::new(counts.len(), |count: &CountView| {
            let assertion = count.assertion.iter();
            let texts = assertion.map(|a| PodView::index(&count.namespace, &a.name));
            texts.collect()
        })),
        pods: Arc::new(Cache::new(pods.len(), apps)),
        changed_since: Mutex::default(),
    });
    let (clock, queue) = (context.clock.clone(), controller.queue());
    let count_view = move |object| CountView::new(object, clock());
    let on_count_event = move |event: &CacheEvent<'_, CountView>| event.enqueue(&queue);
    let pod_view = |pod| PodView::new(pod, LABELS);
    let reconciler = this.clone();
    let on_pod_event = move |event: &CacheEvent<'_, PodView>| reconciler.on_pod_event(event);
    let every_count = Selection::default();
    controller
        .watch(
            counts,
            &every_count,
            &this.counts,
            count_view,
            on_count_event,
        )
        .watch(pods, &pods::selection(), &this.pods, pod_view, on_pod_event)
        .run(this.clone())
        .await
}

struct CountReconciler {
    client: Client,
    events: Events,
    queue: Arc<Queue>,
    counts: Arc<Cache<CountView>>,
    pods: Arc<Cache<PodView>>,
    /// Counts whose pods changed, and since when that is not in their status.
    changed_since: Mutex<KeyMap<DateTime<Utc>>>,
}

impl CountReconciler {
    /// Requeues the Counts that the pod counts for, or did.
    fn on_pod_event(&self, event: &CacheEvent<'_, PodView>) {
        let texts = |pod: Option<&PodView>| pod.map(apps).unwrap_or_default().into_iter().collect();
        let (before, after): (HashSet<_>, HashSet<_>) = (texts(event.old), texts(event.new));
        for text in before.symmetric_difference(&after) {
            for (key, _) in self.counts.find_with_keys(text) {
                self.queue.add(key);
            }
        }
    }

    fn changed_since(&self) -> MutexGuard<'_, KeyMap<DateTime<Utc>>> {
        self.changed_since.lock()
    }

    /// The status as it should be, after that one.
    fn desired_status(
        &self,
        count: &CountView,
        before: &CountStatus,
        now: DateTime<Utc>,
    ) -> CountStatus {
        match &count.assertion {
            Ok(assertion) => {
                let app = PodView::index(&count.namespace, &assertion.name);
                let ready = self.pods.find(&app);
                let ready = i64::try_from(ready.len()).unwrap_or(i64::MAX);
                status::observed(before, count.generation, assertion, ready, now)
            }
            Err(faults) => status::rejected(before, count.generation, faults, now),
        }
    }

    /// Writes the status, if the Count has the version that it was decided on, and publishes the
    /// Events.
    async fn write(
        &self,
        key: &Key,
        count: &CountView,
        before: &CountStatus,
        after: &CountStatus,
        events: Vec<NewEvent>,
    ) -> Result<Action, Error> {
        let (uid, version) = (&count.uid, &count.version);
        let request =
            write::status::<CountObject, _>(&self.client, key, uid, version, after, MANAGER);
        let written = call_status::<CountObject, _>(&self.client, key, uid, request).await;
        if if_there(written)?.is_none() {
            return Ok(Action::gone());
        }
        self.changed_since().remove(key);
        for event in events {
            let about = event::about::<Count>(key, &count.uid);
            self.events.publish(about, event);
        }
        let turned = after.healthy != before.healthy;
        let turn = if after.healthy == Some(true) {
            "healthy"
        } else {
            "not healthy"
        };
        Ok(Action {
            did: turned.then(|| turn.to_owned()),
            ..Action::default()
        })
    }
}

impl Reconciler for CountReconciler {
    async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(count) = self.counts.get(key) else {
            self.changed_since().remove(key);
            return Ok(Action::gone());
        };
        if count.deleting {
            self.changed_since().remove(key);
            return Ok(Action::default());
        }
        let before = status::read(&count.status);
        let after = self.desired_status(&count, &before, now);
        let since = self.changed_since().get(key).copied().unwrap_or(now);
        match decide(&before, &after, since, now) {
            Decision::Nothing => {
                self.changed_since().remove(key);
                Ok(Action::default())
            }
            Decision::WaitUntil(due) => {
                self.changed_since().insert(key.clone(), since);
                Ok(Action::at(Some(due)))
            }
            Decision::Write(events) => {
                // Until the write succeeds: one that failed is retried without another delay.
                self.changed_since().insert(key.clone(), since);
                self.write(key, &count, &before, &after, events).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use chrono::TimeDelta;
    use kube::Resource as _;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use simulated_apiserver::{Decision, Options, Resource, Server, Site, Status};

    use super::*;
    use my_operator_retained as retained;
    use wall_clock_controller::reconcile::metrics::Metrics;

    fn pod(labels: &serde_json::Value, ready: &str) -> PodView {
        let pod = json!({"metadata": {"name": "x", "namespace": "ns", "labels": labels},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        PodView::new(serde_json::from_str(&pod.to_string()).unwrap(), LABELS)
    }

    fn key() -> Key {
        Key::new("ns", "a")
    }

    #[test]
    fn a_cached_count_takes_little_more_memory_than_its_text() {
        let count = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"name": "web", "count": 1},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Healthy", "status": "True",
                "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let now = DateTime::from_timestamp(1_000, 0).unwrap();
        retained::check(&count, |count| CountView::new(count, now));
    }

    /// The controller of a Count of 3 pods that has them, and its API server. No watch runs: the
    /// caches hold what a test puts into them, and the Count as the last reconcile left it.
    struct World {
        server: Server,
        controller: CountReconciler,
        start: DateTime<Utc>,
    }

    impl World {
        fn new() -> Self {
            let server = Server::new(Options {
                namespaces: vec!["ns".to_owned()],
                ..Options::default()
            });
            server.register(Resource::of::<Count>());
            let count = json!({
                "apiVersion": Count::api_version(&()), "kind": "Count",
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {"name": "nginx", "count": 3},
            });
            server.direct().create(count).unwrap();
            let (client, clock) = (server.client("operator"), server.clock().source());
            let start = clock();
            let (events, _teller) = event::events(client.clone(), clock.clone(), MANAGER);
            let figures = Metrics::new(&mut Registry::default(), MANAGER);
            let world = Self {
                controller: CountReconciler {
                    client,
                    events,
                    queue: Arc::new(Queue::new(clock, figures.of(NAME))),
                    counts: Arc::new(Cache::new(0, |count: &CountView| {
                        vec![PodView::index(&count.namespace, "nginx")]
                    })),
                    pods: Arc::new(Cache::new(0, apps)),
                    changed_since: Mutex::default(),
                },
                server,
                start,
            };
            world.sync_count();
            for name in ["1", "2", "3"] {
                world.put(name, "True");
            }
            world
        }

        /// A pod as its watch delivers it.
        fn put(&self, name: &str, ready: &str) {
            let pod = Arc::new(pod(&json!({"app": "nginx"}), ready));
            let pods = &self.controller.pods;
            pods.insert(&Key::new("ns", name), &pod);
        }

        /// Puts the Count into the cache as it is on the server.
        fn sync_count(&self) {
            let count = self.server.direct().get("counts", "ns", "a").unwrap();
            let count = serde_json::from_str(&count.to_string()).unwrap();
            let view = Arc::new(CountView::new(count, self.start));
            self.controller.counts.insert(&key(), &view);
        }

        /// Reconciles at that time in milliseconds. Returns when to reconcile again, in milliseconds.
        async fn reconcile(&self, at: i64) -> Result<Option<i64>, Error> {
            let time = self.start + TimeDelta::milliseconds(at);
            let outcome = self.controller.reconcile(&key(), time).await;
            self.sync_count();
            let next = outcome?.requeue_at;
            Ok(next.map(|next| (next - self.start).num_milliseconds()))
        }

        fn observed(&self) -> Option<i64> {
            let count = self.controller.counts.get(&key()).unwrap();
            status::read(&count.status).observed
        }

        /// How often the controller changed the Count.
        fn writes(&self) -> usize {
            let versions = self.server.history().versions;
            let writes = versions.iter().filter(|version| version.by == "operator");
            writes.count()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_written_once_and_what_came_back_never() {
        let world = World::new();
        assert_eq!(world.reconcile(0).await.unwrap(), None);
        assert_eq!((world.writes(), world.observed()), (1, Some(3)));
        assert_eq!(world.reconcile(1).await.unwrap(), None);
        assert_eq!(world.writes(), 1, "nothing changed");

        for (at, name) in [(10, "1"), (20, "2"), (30, "3")] {
            world.put(name, "False");
            assert_eq!(world.reconcile(at).await.unwrap(), Some(1_010));
        }
        assert_eq!(world.writes(), 1);
        assert_eq!(world.reconcile(1_010).await.unwrap(), None);
        assert_eq!((world.writes(), world.observed()), (2, Some(0)));

        // The delay begins again with each change.
        world.put("1", "True");
        assert_eq!(world.reconcile(5_000).await.unwrap(), Some(6_000));
        world.put("1", "False");
        assert_eq!(world.reconcile(5_500).await.unwrap(), None);
        world.put("1", "True");
        assert_eq!(world.reconcile(5_900).await.unwrap(), Some(6_900));
        assert_eq!(world.writes(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_retried_without_another_delay() {
        let world = World::new();
        world.reconcile(0).await.unwrap();
        world.put("1", "False");
        assert_eq!(world.reconcile(10).await.unwrap(), Some(1_010));
        let failing = |_: &Site| Decision::Answer(Status::internal_error("no"));
        world.server.on(failing);
        world.reconcile(1_010).await.unwrap_err();
        world.reconcile(2_010).await.unwrap_err();
        world.server.on(|_: &Site| Decision::Forward);
        assert_eq!(world.reconcile(4_010).await.unwrap(), None);
        assert_eq!(world.observed(), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_of_readiness_requeues_a_count() {
        let world = World::new();
        let label = json!({"app": "nginx"});
        let other = json!({"app": "other"});
        for (old, new, wakes) in [
            (None, Some(pod(&label, "False")), false),
            (None, Some(pod(&label, "True")), true),
            (Some(pod(&label, "True")), Some(pod(&label, "True")), false),
            (Some(pod(&label, "True")), Some(pod(&label, "False")), true),
            (Some(pod(&label, "True")), Some(pod(&other, "True")), true),
            (Some(pod(&other, "True")), Some(pod(&other, "False")), false),
            (Some(pod(&label, "False")), None, false),
            (Some(pod(&label, "True")), None, true),
        ] {
            let queue = &world.controller.queue;
            world.controller.on_pod_event(&CacheEvent {
                key: &Key::new("ns", "1"),
                old: old.as_ref(),
                new: new.as_ref(),
                after_relist: false,
                changed: false,
            });
            let woken = tokio::time::timeout(Duration::ZERO, queue.take()).await;
            assert_eq!(woken.is_ok(), wakes, "{old:?} {new:?}");
            if woken.is_ok() {
                queue.done(&key(), None);
            }
        }
    }

    #[test]
    fn a_ready_pod_is_found_under_each_of_its_names() {
        let both = json!({"app": "a", "app.kubernetes.io/name": "b"});
        assert_eq!(apps(&pod(&both, "True")), ["ns/a", "ns/b"]);
        assert!(apps(&pod(&both, "False")).is_empty());
        assert!(apps(&pod(&json!({"other": "a"}), "True")).is_empty());
    }

    #[test]
    fn a_pod_with_both_labels_counts_once() {
        let cache = Cache::new(0, apps);
        let same = json!({"app": "a", "app.kubernetes.io/name": "a"});
        for (name, labels) in [
            ("1", same),
            ("2", json!({"app": "a"})),
            ("3", json!({"app.kubernetes.io/name": "a"})),
            ("4", json!({"app": "a", "app.kubernetes.io/name": "b"})),
            ("5", json!({"app": "b"})),
        ] {
            let view = Arc::new(pod(&labels, "True"));
            cache.insert(&Key::new("ns", name), &view);
        }
        assert_eq!(cache.find("ns/a").len(), 4);
        assert_eq!(cache.find("ns/b").len(), 2);
        assert!(cache.find("other/a").is_empty());
    }
}
