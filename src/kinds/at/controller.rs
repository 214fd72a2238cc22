//! The thin edge: watches, and the calls that [`super::step`] decides on.
//!
//! Every call carries a precondition, so that a decision on an old state is refused and not carried
//! out: the pod's name for a create, the resource version for a status, the UID for a release, UID
//! and resource version for a deletion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Patch;
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::crd::{At, AtObject, AtStatus, Phase};
use super::metrics::Metrics;
use super::pod::{self, AT_UID, PodObject, PodView};
use super::step::{self, Act, Last, Seen, Step, Version};
use super::view::{AtView, StoredAt};
use crate::clock::Clock;
use crate::reconcile::cache::{Cache, Source, Touched, follow};
use crate::reconcile::event::{self, Events, News};
use crate::reconcile::own::{LONGEST_LAG, Own};
use crate::reconcile::queue::Queue;
use crate::reconcile::watch::Selection;
use crate::reconcile::write::{self, MANAGED_BY, MANAGER};
use crate::reconcile::{Context, Error, Key, Outcome, Reconciler, call, if_there, read, runner};

/// The name of the controller in logs and metrics.
const CONTROLLER: &str = "at";
/// More steps than any way through the protocol has: a bug must not become a hot loop.
const MOST_STEPS: usize = 12;
/// The pause after the first pod that was made in vain; each further one doubles it.
const FIRST_HOLD: TimeDelta = TimeDelta::seconds(1);
const LONGEST_HOLD: TimeDelta = TimeDelta::seconds(60);

/// Runs the reconciler until the context says stop.
pub fn start(context: Context) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run(context))
}

async fn run(context: Context) -> anyhow::Result<()> {
    let (at_apis, pod_apis) = (context.apis::<AtObject>(), context.apis::<PodObject>());
    let queue = context.queue(CONTROLLER);
    let reconciler = Arc::new(AtReconciler {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.clone(),
        metrics: context.register(Metrics::new),
        ats: Arc::new(Cache::new(at_apis.len(), no_index)),
        pods: Arc::new(Cache::new(pod_apis.len(), no_index)),
        own_ats: Own::default(),
        own_pods: Own::default(),
        memory: Mutex::default(),
    });
    let mut watches = JoinSet::new();
    for api in at_apis {
        let touched = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |touched: &Touched<'_, StoredAt>| reconciler.at_touched(touched, &queue)
        };
        let (cache, health) = (reconciler.ats.clone(), context.watch_health());
        let selection = Selection::default();
        let view = {
            let cache = cache.clone();
            move |object: AtObject| {
                let before = cache.get(&Key::of(&object.metadata));
                StoredAt::of(object).sharing(before.as_deref())
            }
        };
        watches.spawn(follow(api, selection, cache, health, view, touched));
    }
    for api in pod_apis {
        let touched = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |touched: &Touched<'_, PodView>| reconciler.pod_touched(touched, &queue)
        };
        let (cache, health) = (reconciler.pods.clone(), context.watch_health());
        let selection = Selection::default().labels(&format!("{MANAGED_BY}={MANAGER},{AT_UID}"));
        watches.spawn(follow(api, selection, cache, health, PodView::of, touched));
    }
    let sources: [&dyn Source; 2] = [&*reconciler.ats, &*reconciler.pods];
    let workers = runner::run(CONTROLLER, reconciler.clone(), queue, &context, &sources);
    runner::join(watches, workers).await
}

/// The pod of an At is found by its name.
fn no_index<V>(_: &V) -> Vec<String> {
    Vec::new()
}

/// See the module.
struct AtReconciler {
    client: Client,
    clock: Clock,
    events: Events,
    metrics: Metrics,
    ats: Arc<Cache<StoredAt>>,
    pods: Arc<Cache<PodView>>,
    own_ats: Own<StoredAt>,
    own_pods: Own<PodView>,
    memory: Mutex<HashMap<Key, Memory>>,
}

/// What is remembered of an At besides what is stored. Nothing depends on it but the reason of a
/// result and the pace of attempts.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// The pod that the watch last saw deleted.
    last: Option<Last>,
    /// How often a pod was made or looked at in vain, and when to try again.
    vain: u32,
    hold: Option<DateTime<Utc>>,
}

impl Reconciler for AtReconciler {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Outcome, Error> {
        let mut work = Work::default();
        let outcome = self.work(key, &mut work).await;
        // News are told, and logged, whatever came after them.
        for (about, news) in work.news {
            self.events.publish(about, news);
        }
        let did = (!work.did.is_empty()).then(|| work.did.join(", "));
        if let (Err(_), Some(did)) = (&outcome, &did) {
            tracing::info!(controller = CONTROLLER, object = %key, "{did}");
        }
        outcome.map(|next| Outcome { next, did })
    }
}

/// What was done in one reconcile.
#[derive(Default)]
struct Work {
    did: Vec<String>,
    news: Vec<(ObjectReference, News)>,
}

/// What the next step is decided on.
#[derive(Default)]
struct Sight {
    pod: Option<Arc<PodView>>,
    live: bool,
    /// The watch does not have this pod, or not yet: it is the answer to a write of our own.
    own: bool,
}

impl Sight {
    fn live(pod: Option<PodView>) -> Self {
        Self {
            pod: pod.map(Arc::new),
            live: true,
            own: false,
        }
    }
}

impl AtReconciler {
    fn at_touched(&self, touched: &Touched<'_, StoredAt>, queue: &Queue) {
        let phase = |at: Option<&StoredAt>| at.map(|at| at.phase);
        let (before, after) = (phase(touched.old), phase(touched.new));
        self.metrics.changed(before, after);
        if after != Some(Phase::Pending) {
            self.metrics.overdue(touched.key, false);
        }
        if touched.new.is_none() {
            self.own_ats.forget(touched.key);
            self.memory().remove(touched.key);
        }
        touched.enqueue(queue);
    }

    fn pod_touched(&self, touched: &Touched<'_, PodView>, queue: &Queue) {
        // By name, since a pod may lose its owner reference while its At waits for its end.
        let Some(name) = touched.key.name.strip_suffix(pod::POD_SUFFIX) else {
            return;
        };
        let at = Key::new(&touched.key.namespace, name);
        if let (Some(old), None) = (touched.old, touched.new) {
            self.own_pods.forget(touched.key);
            // Only a run that is not over can need to know.
            if let Some(known) = self.ats.get(&at).filter(|at| at.phase != Phase::Done) {
                let mut all = self.memory();
                if old.is_of(&known.uid) {
                    all.entry(at.clone()).or_default().last = Some(Last {
                        pod: old.clone(),
                        certain: !touched.gap,
                    });
                } else if let Some(memory) = all.get_mut(&at) {
                    // The pod of an earlier At of this name, which was in the way.
                    memory.hold = None;
                }
            }
        }
        queue.add(at);
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps until there is nothing to do; returns when to look again.
    async fn work(&self, key: &Key, work: &mut Work) -> Result<Option<DateTime<Utc>>, Error> {
        let cached = self.ats.get(key);
        if cached.is_none() {
            self.own_ats.forget(key);
            self.own_pods
                .forget(&Key::new(&key.namespace, pod::name(&key.name)));
            self.memory().remove(key);
            return Ok(None);
        }
        let Some(mut stored) = self.own_ats.newer(key, cached, StoredAt::version) else {
            return Ok(None);
        };
        let mut sight = self.cached_pod(key);
        for _ in 0..MOST_STEPS {
            let now = (self.clock)();
            let at = stored.read(key, now)?;
            self.metrics.overdue(key, step::is_overdue(&at, now));
            let memory = self.memory().get(key).cloned().unwrap_or_default();
            let seen = Seen {
                pod: sight.pod.as_deref(),
                live: sight.live,
                last: memory.last.as_ref(),
                // A clock that was set back must not hold a start up.
                hold: memory.hold.filter(|hold| *hold - now <= LONGEST_HOLD),
            };
            let mut step = step::step(&at, seen, now);
            let act = std::mem::replace(&mut step.act, Act::Nothing);
            // A template takes many times the memory of its text, and a call may take long: no
            // worker holds one across a call.
            let at = at.without_template();
            match act {
                Act::Nothing => {}
                Act::Look => sight = self.look_around(&at).await?,
                Act::Create(pod) => match self.create(&at, text_of(pod)).await? {
                    Created::Is(pod) => {
                        sight = Sight::live(Some(*pod));
                        work.did.push("created the pod".to_owned());
                    }
                    Created::Exists => sight = self.look_around(&at).await?,
                    Created::Refused(why) => {
                        step = step::refused(&at, &why, self.in_vain(key), now);
                    }
                },
                Act::Lift { uid, gate } => match self.lift(&at, &uid, gate).await? {
                    Lifted::Is(pod) => {
                        sight = Sight::live(Some(*pod));
                        // What was seen of it before its release tells nothing any more.
                        if let Some(memory) = self.memory().get_mut(key) {
                            memory.last = None;
                        }
                        // The step may have corrected the start that was recorded.
                        let status = step.status.as_deref().unwrap_or(&at.status);
                        self.metrics.released(status, at.base);
                        work.did.push(format!("released the pod {uid}"));
                    }
                    Lifted::Refused(refusal) => {
                        let pod = self.look(&at).await?;
                        if !is_same(pod.as_ref(), sight.pod.as_deref()) {
                            sight = Sight::live(pod);
                            continue;
                        }
                        // It is as it was looked at, so somebody else does not let it go.
                        let Some(why) = refusal.refusal().map(str::to_owned) else {
                            return Err(refusal);
                        };
                        step = step::unreleased(&at, &why, self.in_vain(key), now);
                    }
                },
                Act::DeletePod(version) => {
                    let there = self.delete_pod(&at, &version).await?;
                    if !there && at.status.pod_uid.as_ref() == Some(&version.uid) {
                        // Gone before we could: nobody knows whether it had been released by then.
                        sight = Sight::live(None);
                        continue;
                    }
                    sight = Sight::default();
                    work.did.push(format!("deleted the pod {}", version.uid));
                    if at.phase() == Phase::Pending {
                        // It was made in vain: without a pause, whoever spoils pods would have us
                        // make them without end.
                        self.in_vain(key);
                    }
                }
                Act::DeleteAt => {
                    self.delete_at(&at).await?;
                    work.did
                        .push("deleted it, its time to live being over".to_owned());
                }
            }
            let Some(next) = self.conclude(&at, &mut stored, step, work).await? else {
                continue;
            };
            // Our own answer may be of a pod that is gone: the watch told of that before, and tells
            // nothing more. When the answer has grown too old to count, what is there is looked at.
            let doubt = sight.own.then(|| (self.clock)() + LONGEST_LAG);
            return Ok(next.into_iter().chain(doubt).min());
        }
        Err(Error::Restless {
            object: key.clone(),
            steps: MOST_STEPS,
        })
    }

    /// Writes the status of a step; when to look again, or `None` for at once.
    async fn conclude(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        step: Step,
        work: &mut Work,
    ) -> Result<Option<Option<DateTime<Utc>>>, Error> {
        if let Some(status) = step.status {
            *stored = self.write(at, &status).await?;
            let phase = stored.phase;
            if phase != at.phase() {
                if let Some(result) = status.result {
                    self.metrics.over(result);
                }
                let result = status.result.map(|result| format!(": {result:?}"));
                let phase_text = format!("{phase:?}").to_uppercase();
                work.did
                    .push(format!("{phase_text}{}", result.unwrap_or_default()));
                self.settled(&at.key, phase);
            }
        }
        let about = event::about::<At>(&at.key, &at.uid);
        let news = step.news.into_iter().map(|news| (about.clone(), news));
        work.news.extend(news);
        Ok((!step.again).then_some(step.next))
    }

    /// The phase changed: the attempts were not in vain.
    fn settled(&self, key: &Key, phase: Phase) {
        let mut all = self.memory();
        if phase == Phase::Done {
            all.remove(key);
        } else if let Some(memory) = all.get_mut(key) {
            (memory.vain, memory.hold) = (0, None);
        }
    }

    /// The pod as the watch has it, or as our own last call left it.
    fn cached_pod(&self, key: &Key) -> Sight {
        let key = Key::new(&key.namespace, pod::name(&key.name));
        let cached = self.pods.get(&key);
        let version = cached.as_deref().map(PodView::version).map(str::to_owned);
        let pod = self.own_pods.newer(&key, cached, PodView::version);
        let own = pod.as_deref().map(PodView::version) != version.as_deref();
        Sight {
            pod,
            live: false,
            own,
        }
    }

    /// Reads the pod from the API server itself. While somebody else's is in the way, no watch tells
    /// of its end, and the looks at it get rarer.
    async fn look_around(&self, at: &AtView) -> Result<Sight, Error> {
        let pod = self.look(at).await?;
        let taken = pod.as_ref().is_some_and(|pod| !pod.is_of(&at.uid));
        if taken && at.phase() == Phase::Pending {
            self.in_vain(&at.key);
        }
        Ok(Sight::live(pod))
    }

    /// A pod was made or looked at in vain: when to try again.
    /// Counted from the present: the attempt itself may have taken long.
    fn in_vain(&self, key: &Key) -> DateTime<Utc> {
        let mut all = self.memory();
        let memory = all.entry(key.clone()).or_default();
        let pause = FIRST_HOLD * 2_i32.saturating_pow(memory.vain.min(10));
        memory.vain += 1;
        let hold = (self.clock)() + pause.min(LONGEST_HOLD);
        memory.hold = Some(hold);
        hold
    }

    fn pod_api(&self, at: &AtView) -> Api<PodObject> {
        Api::namespaced(self.client.clone(), &at.key.namespace)
    }

    fn at_api(&self, at: &AtView) -> Api<AtObject> {
        Api::namespaced(self.client.clone(), &at.key.namespace)
    }

    /// Reads the pod from the API server itself.
    async fn look(&self, at: &AtView) -> Result<Option<PodView>, Error> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let pod = if_there(read("read the pod", &at.key, api.get(&name)).await)?;
        Ok(pod.map(PodView::of))
    }

    fn remember_pod(&self, at: &AtView, pod: PodObject) -> PodView {
        let key = Key::of(&pod.metadata);
        let view = PodView::of(pod);
        // One that the watch will never bring is not remembered either.
        if view.is_of(&at.uid) {
            self.own_pods
                .put(&key, &view.resource_version, Arc::new(view.clone()));
        }
        view
    }

    async fn create(
        &self,
        at: &AtView,
        body: serde_json::Result<Vec<u8>>,
    ) -> Result<Created, Error> {
        let request = async {
            let body = body.map_err(kube::Error::SerdeError)?;
            write::create::<PodObject, PodObject>(&self.client, &at.key.namespace, body).await
        };
        match call("create the pod", &at.key, request).await {
            Ok(pod) => Ok(Created::Is(Box::new(self.remember_pod(at, pod)))),
            Err(error) if error.status().is_some_and(Status::is_already_exists) => {
                Ok(Created::Exists)
            }
            Err(error) => match error.refusal() {
                Some(why) => Ok(Created::Refused(why.to_owned())),
                None => Err(error),
            },
        }
    }

    /// Removes our gate from the pod with that UID.
    async fn lift(&self, at: &AtView, uid: &str, gate: usize) -> Result<Lifted, Error> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let place = format!("/spec/schedulingGates/{gate}");
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": format!("{place}/name"), "value": pod::GATE},
            {"op": "remove", "path": place},
        ]);
        let params = write::patch_params();
        let request = async {
            let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
            api.patch(&name, &params, &Patch::Json::<()>(patch)).await
        };
        match call("release the pod", &at.key, request).await {
            Ok(pod) => Ok(Lifted::Is(Box::new(self.remember_pod(at, pod)))),
            Err(error) => match error.status().map(|status| status.code) {
                Some(404 | 409) => Ok(Lifted::Refused(error)),
                _ if error.refusal().is_some() => Ok(Lifted::Refused(error)),
                _ => Err(error),
            },
        }
    }

    /// Deletes the pod, if it is as it was looked at; whether it was still there.
    async fn delete_pod(&self, at: &AtView, version: &Version) -> Result<bool, Error> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let params = write::only(&version.uid, Some(&version.resource_version));
        let deleted = call("delete the pod", &at.key, api.delete(&name, &params)).await;
        self.own_pods.forget(&Key::new(&at.key.namespace, name));
        Ok(if_there(deleted)?.is_some())
    }

    async fn delete_at(&self, at: &AtView) -> Result<(), Error> {
        let (api, name) = (self.at_api(at), &at.key.name);
        let params = write::only(&at.uid, Some(&at.resource_version));
        let deleted = call("delete the At", &at.key, api.delete(name, &params)).await;
        if_there(deleted).map(drop)
    }

    /// Writes the status, if the At is as it was looked at, and returns it as it is then.
    async fn write(&self, at: &AtView, status: &AtStatus) -> Result<Arc<StoredAt>, Error> {
        let request = write::status::<AtObject, _>(
            &self.client,
            &at.key,
            &at.uid,
            &at.resource_version,
            status,
        );
        let stored = StoredAt::of(call("write the status", &at.key, request).await?);
        let stored = Arc::new(stored.sharing(self.ats.get(&at.key).as_deref()));
        self.own_ats.put(&at.key, stored.version(), stored.clone());
        Ok(stored)
    }
}

/// The pod as text, the tree of its values being gone.
#[allow(clippy::needless_pass_by_value)]
fn text_of(pod: Value) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&pod)
}

/// What came of a create.
enum Created {
    /// The pod, as the API server stored it.
    Is(Box<PodView>),
    /// There is one of that name.
    Exists,
    /// It is not taken, and will not be before somebody changes something.
    Refused(String),
}

/// What came of a release.
enum Lifted {
    /// The pod, without our gate.
    Is(Box<PodView>),
    /// It is not as it was looked at, or somebody does not let it go.
    Refused(Error),
}

fn is_same(a: Option<&PodView>, b: Option<&PodView>) -> bool {
    a.zip(b)
        .is_some_and(|(a, b)| a.uid == b.uid && a.resource_version == b.resource_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicI64, Ordering};

    use axum::http::{Method, Request, Response};
    use kube::Resource;
    use kube::client::Body;
    use prometheus_client::registry::Registry;

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key() -> Key {
        Key::new("ns", "a")
    }

    fn pod_key() -> Key {
        Key::new("ns", "a-pod")
    }

    /// A pod of the At, with our gate or released.
    fn pod(held: bool) -> Value {
        let gates = if held {
            json!([{"name": pod::GATE}])
        } else {
            json!([])
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a-pod", "namespace": "ns", "uid": "pod-uid", "resourceVersion": "7",
                "ownerReferences": [{"apiVersion": At::api_version(&()), "kind": "At", "name": "a",
                    "uid": "at-uid", "controller": true}],
            },
            "spec": {"containers": [{"name": "at"}], "restartPolicy": "Never", "schedulingGates": gates},
            "status": {"phase": "Pending"},
        })
    }

    fn view(pod: Value) -> PodView {
        PodView::of(serde_json::from_value(pod).unwrap())
    }

    fn at(status: &Value) -> Value {
        json!({
            "apiVersion": At::api_version(&()), "kind": "At",
            "metadata": {"name": "a", "namespace": "ns", "uid": "at-uid", "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedule": "now", "command": "true"},
            "status": status,
        })
    }

    /// A reconciler with an At that has committed to the gated pod.
    fn reconciler() -> AtReconciler {
        let status =
            json!({"phase": "RUNNING", "podUID": "pod-uid", "startTime": "2027-01-15T08:00:00Z"});
        reconciler_of(&at(&status), pod(true), Arc::new(now))
    }

    /// A reconciler with that At. The API server has that pod, refuses every patch with 422, and
    /// takes every status.
    fn reconciler_of(at: &Value, pod: Value, clock: Clock) -> AtReconciler {
        let answer = at.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = match *request.method() {
                Method::PATCH => (
                    422,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
                        "reason": "Invalid", "message": "a policy says no"}),
                ),
                Method::GET => (200, pod.clone()),
                Method::POST => (
                    409,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                        "reason": "AlreadyExists", "message": "pods \"a-pod\" already exists"}),
                ),
                _ => (200, answer.clone()),
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(response.unwrap()) }
        });
        let client = Client::new(server, "ns");
        let (events, _teller) = event::events(client.clone(), Arc::new(now));
        let ats = Cache::new(0, no_index);
        let stored = StoredAt::of(serde_json::from_str(&at.to_string()).unwrap());
        ats.insert(&key(), &Arc::new(stored));
        AtReconciler {
            client,
            clock,
            events,
            metrics: Metrics::new(&mut Registry::default()),
            ats: Arc::new(ats),
            pods: Arc::new(Cache::new(0, no_index)),
            own_ats: Own::default(),
            own_pods: Own::default(),
            memory: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn a_pod_that_only_our_own_answer_knows_is_looked_for_again() {
        // The pod was released, deleted, and told of as deleted before the answer was remembered.
        let reconciler = reconciler();
        reconciler
            .own_pods
            .put(&pod_key(), "7", Arc::new(view(pod(false))));
        let next = reconciler.work(&key(), &mut Work::default()).await.unwrap();
        let lag = TimeDelta::from_std(LONGEST_LAG).unwrap();
        assert!(next.is_some_and(|next| next <= now() + lag), "{next:?}");
    }

    #[tokio::test]
    async fn a_strangers_pod_is_looked_at_soon_and_then_ever_more_rarely() {
        let mut stranger = pod(true);
        stranger["metadata"]["ownerReferences"] = json!([]);
        let seconds = Arc::new(AtomicI64::new(0));
        let clock = {
            let seconds = seconds.clone();
            move || now() + TimeDelta::seconds(seconds.load(Ordering::Relaxed))
        };
        let reconciler = reconciler_of(&at(&Value::Null), stranger, Arc::new(clock.clone()));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let next = reconciler.work(&key(), &mut Work::default()).await.unwrap();
            let pause = (next.unwrap() - clock()).num_seconds();
            seconds.fetch_add(pause, Ordering::Relaxed);
            pauses.push(pause);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        // The end of an earlier At's pod is seen by the watch, and waits for no pause.
        let mut old = pod(false);
        old["metadata"]["ownerReferences"][0]["uid"] = "another".into();
        let old = view(old);
        let figures = crate::reconcile::metrics::Metrics::new(&mut Registry::default());
        let queue = Queue::new(Arc::new(now), figures.of(CONTROLLER));
        reconciler.pod_touched(
            &Touched {
                key: &pod_key(),
                old: Some(&old),
                new: None,
                gap: false,
                changed: false,
            },
            &queue,
        );
        assert_eq!(reconciler.memory().get(&key()).unwrap().hold, None);
    }

    #[tokio::test]
    async fn a_release_that_somebody_forbids_is_told_and_no_hot_loop() {
        let reconciler = reconciler();
        reconciler
            .pods
            .insert(&pod_key(), &Arc::new(view(pod(true))));
        let mut work = Work::default();
        let next = reconciler.work(&key(), &mut work).await.unwrap();
        assert_eq!(next, Some(now() + FIRST_HOLD));
        let told: Vec<_> = work.news.iter().map(|(_, news)| news).collect();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].reason, told[0].note.as_str()),
            ("ReleaseRefused", "a policy says no")
        );
    }
}
