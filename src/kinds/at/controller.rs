//! The I/O edge: the watches, and the API calls that [`super::step`] decides on.
//!
//! Every call carries a precondition, so that the API server rejects a decision on outdated state:
//! the pod's name for a create, the resource version for a status, the UID for a release, UID and
//! resource version for a deletion.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Patch;
use kube::core::Status;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::crd::{At, AtObject, AtStatus, Phase};
use super::metrics::Metrics;
use super::pod::{self, AT_UID, PodObject, PodView};
use super::step::{
    self, Call, CallFailure, Last, Operation, Records, Seen, Sightings, Step, Version,
};
use super::view::{AtView, StoredAt};
use my_operator_runtime::clock::Clock;
use my_operator_runtime::reconcile::cache::{Cache, CacheEvent, Source, run_watch};
use my_operator_runtime::reconcile::event::{self, Events, NewEvent};
use my_operator_runtime::reconcile::queue::Queue;
use my_operator_runtime::reconcile::watch::Selection;
use my_operator_runtime::reconcile::write::{self, MANAGED_BY, MANAGER};
use my_operator_runtime::reconcile::write_cache::{MAX_LAG, WriteCache};
use my_operator_runtime::reconcile::{
    Action, Context, Error, Key, Reconciler, call, if_there, read, runner,
};

/// The name of the controller in logs and metrics.
const CONTROLLER: &str = "at";
/// Above the step count of any path through the protocol, so that a bug cannot become a hot loop.
const MAX_STEPS: usize = 12;
/// The pause after the first failed attempt at a pod. Each further failure doubles it.
const FIRST_BACKOFF: TimeDelta = TimeDelta::seconds(1);
const MAX_BACKOFF: TimeDelta = TimeDelta::seconds(60);
/// The status reports a call from this many failures in a row on. A single failure is ordinary and
/// usually heals before anyone reads about it.
const REPORTED_FROM: u32 = 2;

/// Runs the reconciler until the context is cancelled.
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
        own_ats: WriteCache::default(),
        own_pods: WriteCache::default(),
        memory: Mutex::default(),
        records: Mutex::default(),
    });
    let mut watches = JoinSet::new();
    for api in at_apis {
        let on_event = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |event: &CacheEvent<'_, StoredAt>| reconciler.on_at_event(event, &queue)
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
        watches.spawn(run_watch(api, selection, cache, health, view, on_event));
    }
    for api in pod_apis {
        let on_event = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |event: &CacheEvent<'_, PodView>| reconciler.on_pod_event(event, &queue)
        };
        let (cache, health) = (reconciler.pods.clone(), context.watch_health());
        let selection = Selection::default().labels(&format!("{MANAGED_BY}={MANAGER},{AT_UID}"));
        watches.spawn(run_watch(
            api,
            selection,
            cache,
            health,
            PodView::of,
            on_event,
        ));
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
    own_ats: WriteCache<StoredAt>,
    own_pods: WriteCache<PodView>,
    memory: Mutex<HashMap<Key, Memory>>,
    records: Mutex<Records>,
}

/// What is remembered of an At in addition to what is stored: when its pod was first seen released
/// and the last state of a deleted pod, so that the status reports them; and the backoff of
/// attempts.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// `metadata.uid` of the At. A later At of the same name inherits nothing.
    uid: String,
    /// What was observed of its pods.
    sightings: Sightings,
    /// The UID of the pod that this process committed, as long as it has sent no request that can have released it.
    withheld: Option<String>,
    /// How many attempts to create or read a pod failed in a row, and when to try again.
    failures: u32,
    not_before: Option<DateTime<Utc>>,
    /// The failing call about the pod, and its failures in a row.
    failing: Option<(Call, u32)>,
}

impl Reconciler for AtReconciler {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let mut work = Work::default();
        let outcome = self.work(key, &mut work).await;
        // Publish and log, even if a later step failed.
        for (about, event) in work.events {
            self.events.publish(about, event);
        }
        let did = (!work.did.is_empty()).then(|| work.did.join(", "));
        if let (Err(_), Some(did)) = (&outcome, &did) {
            tracing::info!(controller = CONTROLLER, object = %key, "{did}");
        }
        outcome.map(|requeue_at| Action { requeue_at, did })
    }
}

/// What one reconcile did.
#[derive(Default)]
struct Work {
    did: Vec<String>,
    events: Vec<(ObjectReference, NewEvent)>,
}

/// Input of the next step.
#[derive(Default)]
struct Observed {
    pod: Option<Arc<PodView>>,
    live: bool,
    /// The pod is the answer to a write of our own, which the watch has not delivered.
    own: bool,
}

impl Observed {
    fn live(pod: Option<PodView>) -> Self {
        Self {
            pod: pod.map(Arc::new),
            live: true,
            own: false,
        }
    }
}

impl AtReconciler {
    fn on_at_event(&self, event: &CacheEvent<'_, StoredAt>, queue: &Queue) {
        let phase = |at: Option<&StoredAt>| at.map(|at| at.phase);
        let (before, after) = (phase(event.old), phase(event.new));
        self.metrics.changed(before, after);
        if matches!(after, None | Some(Phase::Done)) {
            self.metrics.overdue(event.key, false);
        }
        if event.new.is_none() {
            self.own_ats.forget(event.key);
        }
        let is_over = after == Some(Phase::Done) && before != after;
        if event.new.is_none() || is_over {
            self.memory().remove(event.key);
        }
        event.enqueue(queue);
    }

    fn on_pod_event(&self, event: &CacheEvent<'_, PodView>, queue: &Queue) {
        // By name: a pod may lose its owner reference while its At waits for its end.
        let Some(name) = event.key.name.strip_suffix(pod::POD_SUFFIX) else {
            return;
        };
        let at = Key::new(&event.key.namespace, name);
        let known = self.ats.get(&at);
        // Only an unfinished run may need it.
        let is_over = known.as_ref().is_some_and(|at| at.phase == Phase::Done);
        match (event.old, event.new) {
            _ if is_over => {}
            (_, Some(pod)) => {
                // A gated pod usually leaves nothing to remember. Nor does a pod whose At is not
                // cached yet, except that it was released.
                if let Some((uid, _)) = &pod.controller
                    && known.as_ref().is_none_or(|at| *at.uid == **uid)
                {
                    self.record(&at, uid, pod);
                }
            }
            (Some(old), None) => {
                let stray_of = old.stray_of.as_deref();
                let is_stray = known.as_ref().is_some_and(|at| stray_of == Some(&*at.uid));
                if let Some(known) = known.filter(|at| old.is_of(&at.uid)) {
                    let mut all = self.memory();
                    let memory = memory_entry(&mut all, &at, &known.uid);
                    memory.sightings.record_deletion(old, !event.after_relist);
                } else if let Some(memory) = self.memory().get_mut(&at).filter(|_| !is_stray) {
                    // The pod of an earlier At of this name blocked the name. The pause stays where
                    // we deleted the pod because a webhook removes its owner reference.
                    memory.not_before = None;
                }
            }
            (None, None) => {}
        }
        if event.new.is_none() {
            self.own_pods.forget(event.key);
        }
        queue.add(at);
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock()
    }

    /// Records an observed state of a pod of that At, from a watch or an API response.
    fn record(&self, key: &Key, uid: &str, pod: &PodView) {
        let now = (self.clock)();
        let mut all = self.memory();
        let known = all.get(key).is_some_and(|memory| memory.uid == uid);
        if !known && pod.gate.is_some() && !pod.deleting {
            // The common case: nothing to remember.
            return;
        }
        let sightings = &mut memory_entry(&mut all, key, uid).sightings;
        let before = sightings.released.is_some();
        sightings.record(pod, now);
        if !before && let Some(first) = &mut sightings.released {
            let mut records = self.records.lock();
            records.queue(first, now);
        }
    }

    /// Steps until nothing is left to do. Returns when to reconcile again.
    async fn work(&self, key: &Key, work: &mut Work) -> Result<Option<DateTime<Utc>>, Error> {
        let cached = self.ats.get(key);
        if cached.is_none() {
            self.own_ats.forget(key);
            self.own_pods
                .forget(&Key::new(&key.namespace, pod::name(&key.name)));
            self.memory().remove(key);
            // A reconcile that began before the At was deleted may have counted it since.
            self.metrics.overdue(key, false);
            return Ok(None);
        }
        let Some(mut stored) = self.own_ats.newer(key, cached, StoredAt::version) else {
            return Ok(None);
        };
        let mut observed = self.cached_pod(key);
        for _ in 0..MAX_STEPS {
            let now = (self.clock)();
            let at = stored.read(key, now)?;
            let of_it = |pod: &&Arc<PodView>| {
                pod.is_of(&at.uid) || at.status.pod_uid.as_ref() == Some(&pod.uid)
            };
            if at.phase() != Phase::Done
                && let Some(pod) = observed.pod.as_ref().filter(of_it)
            {
                self.record(key, &at.uid, pod);
            }
            let memory = self.memory_of(&at);
            // Read the clock again: a first sight later than the time of the step would look like a
            // clock that was set back.
            let now = (self.clock)();
            let released = memory.sightings.released.as_ref();
            self.metrics
                .overdue(key, step::is_overdue(&at, released, now));
            let seen = Seen {
                pod: observed.pod.as_deref(),
                live: observed.live,
                last: memory.sightings.last.as_ref(),
                released,
                withheld: memory.withheld.is_some() && memory.withheld == at.status.pod_uid,
                // A clock that was set back must not delay a start.
                not_before: memory.not_before.filter(|time| *time - now <= MAX_BACKOFF),
            };
            let mut step = step::step(&at, seen, now);
            let operation = std::mem::replace(&mut step.operation, Operation::Nothing);
            // A parsed template takes many times the memory of its text, and a call may take long:
            // no worker holds one across a call.
            let at = at.without_template();
            match self.execute(&at, operation, observed, work).await {
                Ok(After::Done(then)) => observed = then,
                Ok(After::Undone(then)) => {
                    observed = then;
                    continue;
                }
                Err(failed) => return self.call_failed(&at, &mut stored, failed, work).await,
            }
            let Some(next) = self.conclude(&at, &mut stored, step, work).await? else {
                continue;
            };
            // Our own answer may show a pod that is gone: the watch may have delivered its deletion
            // before, and will deliver nothing more. So check again when the answer has expired.
            let doubt = observed.own.then(|| (self.clock)() + MAX_LAG);
            return Ok(next.into_iter().chain(doubt).min());
        }
        Err(Error::DidNotConverge {
            object: key.clone(),
            steps: MAX_STEPS,
        })
    }

    /// Makes the call of a step. Returns what is known of the pod afterwards.
    async fn execute(
        &self,
        at: &AtView,
        operation: Operation,
        observed: Observed,
        work: &mut Work,
    ) -> Result<After, Failed> {
        let observed = match operation {
            Operation::Nothing => observed,
            Operation::GetLive => self.read_pod(at).await?,
            Operation::Create(pod) => match self.create(at, text_of(pod)).await {
                Ok(pod) => {
                    work.did.push("created the pod".to_owned());
                    self.record_call_success(at, Call::Create);
                    Observed::live(Some(pod))
                }
                Err(error) if error.status().is_some_and(Status::is_already_exists) => {
                    self.read_pod(at).await?
                }
                Err(error) => return Err(Failed::new(Call::Create, error)),
            },
            Operation::RemoveGate { uid, gate } => {
                return self.release(at, &uid, gate, &observed, work).await;
            }
            Operation::DeletePod(version) => return self.delete(at, &version, work).await,
            Operation::DeleteAt => {
                let (call, deleted) = (None, self.delete_at(at).await);
                deleted.map_err(|error| Failed { call, error })?;
                work.did
                    .push("deleted it, its time to live being over".to_owned());
                observed
            }
        };
        Ok(After::Done(observed))
    }

    async fn release(
        &self,
        at: &AtView,
        uid: &str,
        gate: usize,
        observed: &Observed,
        work: &mut Work,
    ) -> Result<After, Failed> {
        // From here on, a pod without our gate may be our own release.
        let withheld = self.with_memory(at, |memory| memory.withheld.take());
        match self.remove_gate(at, uid, gate).await {
            // The answer may show a state that was never stored: an update of a pod whose deletion
            // is half done completes the deletion instead of being stored (ShouldDeleteDuringUpdate
            // in k8s.io/apiserver, registry/generic/registry/store.go).
            Ok(pod) if pod.deleting && !pod.bound => {
                self.own_pods.forget(&pod_key(at));
                Ok(After::Undone(Observed::live(self.get_live(at).await?)))
            }
            Ok(pod) => {
                work.did.push(format!("released the pod {uid}"));
                self.record_call_success(at, Call::Release);
                let last = self.memory_of(at).sightings.last;
                let of_it = |last: &Last| last.pod.uid == pod.uid && pod.is_older(&last.pod);
                // A late answer may show a pod whose end and deletion the watch has delivered since.
                let is_gone = last.is_some_and(|last| of_it(&last));
                Ok(After::Done(if is_gone {
                    self.own_pods.forget(&pod_key(at));
                    Observed::default()
                } else {
                    Observed::live(Some(pod))
                }))
            }
            Err(error) => {
                let code = error.status().map(|status| status.code);
                // These answers say that nothing was done.
                if code.is_some_and(|code| (400..500).contains(&code)) {
                    self.with_memory(at, |memory| memory.withheld = withheld);
                }
                if !matches!(code, Some(404 | 409)) && error.refusal().is_none() {
                    return Err(Failed::new(Call::Release, error));
                }
                let pod = self.get_live(at).await?;
                if is_same(pod.as_ref(), observed.pod.as_deref()) {
                    // The pod is as it was read, so it is the release itself that the API server rejects.
                    return Err(Failed::new(Call::Release, error));
                }
                Ok(After::Undone(Observed::live(pod)))
            }
        }
    }

    async fn delete(
        &self,
        at: &AtView,
        version: &Version,
        work: &mut Work,
    ) -> Result<After, Failed> {
        let deleted = self.delete_pod(at, version).await;
        if deleted.map_err(|error| Failed::new(Call::Delete, error))? {
            work.did.push(format!("deleted the pod {}", version.uid));
            self.record_call_success(at, Call::Delete);
            if at.phase() == Phase::Pending && at.status.pod_uid.is_none() {
                // Back off: otherwise a client that spoils pods would make us create them without end.
                self.record_failure(at);
            }
            return Ok(After::Done(Observed::default()));
        }
        // A 404 says that there is no such pod. A proxy may send one, too.
        let observed = self.read_pod(at).await?;
        if observed
            .pod
            .as_ref()
            .is_some_and(|pod| pod.uid == version.uid)
        {
            self.record_failure(at);
        }
        Ok(After::Undone(observed))
    }

    /// Reports a failed call in the status: a rejected call at once, any other from the second
    /// failure in a row. Returns when to try a rejected call again.
    async fn call_failed(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        failed: Failed,
        work: &mut Work,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let Failed { call, error } = failed;
        let Some(call) = call.filter(|_| !error.is_conflict()) else {
            return Err(error);
        };
        let refusal = error.refusal();
        let failure = |message, failures, not_before| CallFailure {
            call,
            message,
            refused: refusal.is_some(),
            failures,
            not_before,
        };
        if let Some(message) = refusal.filter(|_| call != Call::Read) {
            let (failures, not_before) = self.record_failure(at);
            let failure = failure(message, failures, Some(not_before));
            let step = step::call_failed(at, failure, (self.clock)());
            return Ok(self.conclude(at, stored, step, work).await?.flatten());
        }
        let failures = self.record_call_failure(at, call);
        if failures >= REPORTED_FROM {
            let message = error.to_string();
            let step = step::call_failed(at, failure(&message, failures, None), (self.clock)());
            // If the status cannot be written either, the first error says more.
            let _ = self.conclude(at, stored, step, work).await;
        }
        Err(error)
    }

    /// Writes the status of a step. Returns when to reconcile again, or `None` for at once.
    async fn conclude(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        step: Step,
        work: &mut Work,
    ) -> Result<Option<Option<DateTime<Utc>>>, Error> {
        let scheduled = match &step.status {
            Some(status) => status.scheduled_time,
            None => at.status.scheduled_time,
        };
        if let Some(status) = step.status {
            *stored = self.write(at, &status).await?;
            if status.discarded_pod_uid.is_some() {
                let kept = stored.read(&at.key, (self.clock)())?.status;
                if kept.discarded_pod_uid != status.discarded_pod_uid {
                    return Err(Error::OldCrd {
                        object: at.key.clone(),
                        field: "status.discardedPodUID",
                    });
                }
            }
            let phase = stored.phase;
            let is_commit = at.status.pod_uid.is_none() && step.start.is_none();
            if let Some(uid) = status.pod_uid.filter(|_| is_commit) {
                self.with_memory(at, |memory| memory.withheld = Some(uid));
            }
            if phase != at.phase() {
                if let Some(result) = status.result {
                    self.metrics.over(result);
                }
                let result = status.result.map(|result| format!(": {result:?}"));
                let phase_text = format!("{phase:?}").to_uppercase();
                work.did
                    .push(format!("{phase_text}{}", result.unwrap_or_default()));
                self.reset_backoff(&at.key, phase);
            }
        }
        if let Some(start) = step.start {
            self.metrics.released(start, scheduled, at.base);
            // Nothing is remembered of a finished At.
            let mut all = self.memory();
            let memory = all.get_mut(&at.key).filter(|memory| memory.uid == at.uid);
            if let Some(released) = memory.and_then(|memory| memory.sightings.released.as_mut()) {
                released.reported = true;
            }
        }
        let about = event::about::<At>(&at.key, &at.uid);
        let events = step.events.into_iter().map(|event| (about.clone(), event));
        work.events.extend(events);
        Ok((!step.again).then_some(step.next))
    }

    /// Resets the backoff: a new phase is progress.
    fn reset_backoff(&self, key: &Key, phase: Phase) {
        let mut all = self.memory();
        if phase == Phase::Done {
            all.remove(key);
        } else if let Some(memory) = all.get_mut(key) {
            (memory.failures, memory.not_before) = (0, None);
        }
    }

    /// The pod from the cache, or from our own last response if that is newer.
    fn cached_pod(&self, key: &Key) -> Observed {
        let key = Key::new(&key.namespace, pod::name(&key.name));
        let cached = self.pods.get(&key);
        let version = cached.as_deref().map(PodView::version).map(str::to_owned);
        let pod = self.own_pods.newer(&key, cached, PodView::version);
        let own = pod.as_deref().map(PodView::version) != version.as_deref();
        Observed {
            pod,
            live: false,
            own,
        }
    }

    /// Reads the pod live. While a foreign pod blocks the name, no watch shows its end, and the reads back off.
    async fn read_pod(&self, at: &AtView) -> Result<Observed, Failed> {
        let pod = self.get_live(at).await?;
        let is_foreign = |pod: &PodView| !pod.is_of(&at.uid) && pod.stray_of.is_none();
        if pod.as_ref().is_some_and(is_foreign) && at.phase() == Phase::Pending {
            self.record_failure(at);
        }
        Ok(Observed::live(pod))
    }

    /// What is remembered of that At.
    fn memory_of(&self, at: &AtView) -> Memory {
        let all = self.memory();
        let memory = all.get(&at.key).filter(|memory| memory.uid == at.uid);
        memory.cloned().unwrap_or_default()
    }

    fn with_memory<T>(&self, at: &AtView, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(memory_entry(&mut self.memory(), &at.key, &at.uid))
    }

    /// Records a failed attempt to create or read a pod. Returns the failures so far and when to
    /// try again. The pause starts now: the attempt itself may have taken long.
    fn record_failure(&self, at: &AtView) -> (u32, DateTime<Utc>) {
        let now = (self.clock)();
        self.with_memory(at, |memory| {
            let pause = FIRST_BACKOFF * 2_i32.saturating_pow(memory.failures.min(10));
            memory.failures += 1;
            let not_before = now + pause.min(MAX_BACKOFF);
            memory.not_before = Some(not_before);
            (memory.failures, not_before)
        })
    }

    /// Records a failed call about the pod. Returns its failures in a row.
    fn record_call_failure(&self, at: &AtView, call: Call) -> u32 {
        self.with_memory(at, |memory| {
            let before = memory.failing.filter(|(failing, _)| *failing == call);
            let failures = before.map_or(1, |(_, failures)| failures + 1);
            memory.failing = Some((call, failures));
            failures
        })
    }

    /// Records that a call about the pod succeeded.
    fn record_call_success(&self, at: &AtView, call: Call) {
        if let Some(memory) = self.memory().get_mut(&at.key) {
            memory.failing.take_if(|(failing, _)| *failing == call);
        }
    }

    fn pod_api(&self, at: &AtView) -> Api<PodObject> {
        Api::namespaced(self.client.clone(), &at.key.namespace)
    }

    fn at_api(&self, at: &AtView) -> Api<AtObject> {
        Api::namespaced(self.client.clone(), &at.key.namespace)
    }

    /// Reads the pod live.
    async fn get_live(&self, at: &AtView) -> Result<Option<PodView>, Failed> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let pod = if_there(read("read the pod", &at.key, api.get(&name)).await);
        let pod = pod.map_err(|error| Failed::new(Call::Read, error))?;
        self.record_call_success(at, Call::Read);
        Ok(pod.map(PodView::of))
    }

    fn remember_pod(&self, at: &AtView, pod: PodObject) -> PodView {
        let key = Key::of(&pod.metadata);
        let view = PodView::of(pod);
        // A pod that the watch will never deliver is not remembered either.
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
    ) -> Result<PodView, Error> {
        let request = async {
            let body = body.map_err(kube::Error::SerdeError)?;
            write::create::<PodObject, PodObject>(&self.client, &at.key.namespace, body).await
        };
        let pod = call("create the pod", &at.key, request).await?;
        Ok(self.remember_pod(at, pod))
    }

    /// Removes our gate from the pod with that UID.
    async fn remove_gate(&self, at: &AtView, uid: &str, gate: usize) -> Result<PodView, Error> {
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
        let pod = call("release the pod", &at.key, request).await?;
        Ok(self.remember_pod(at, pod))
    }

    /// Deletes the pod if it still has that version. Returns whether it was still there.
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

    /// Writes the status if the At still has the version that was read. Returns the stored At.
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

/// Serializes the pod and frees its value tree.
#[allow(clippy::needless_pass_by_value)]
fn text_of(pod: Value) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&pod)
}

/// What is known of the pod after the call of a step.
enum After {
    /// The call was carried out: the step goes on.
    Done(Observed),
    /// The call was not carried out because the pod has changed: decide on another step.
    Undone(Observed),
}

/// A failed call.
struct Failed {
    /// Which call about the pod it was, if it was one.
    call: Option<Call>,
    error: Error,
}

impl Failed {
    fn new(call: Call, error: Error) -> Self {
        let call = Some(call);
        Self { call, error }
    }
}

/// What is remembered of the At with that key and UID.
fn memory_entry<'a>(all: &'a mut HashMap<Key, Memory>, key: &Key, uid: &str) -> &'a mut Memory {
    let memory = all.entry(key.clone()).or_default();
    if memory.uid != uid {
        *memory = Memory {
            uid: uid.to_owned(),
            ..Memory::default()
        };
    }
    memory
}

/// Cache key of an At's pod.
fn pod_key(at: &AtView) -> Key {
    Key::new(&at.key.namespace, pod::name(&at.key.name))
}

fn is_same(a: Option<&PodView>, b: Option<&PodView>) -> bool {
    a.zip(b)
        .is_some_and(|(a, b)| a.uid == b.uid && a.resource_version == b.resource_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicI64, Ordering};

    use kube::Resource as _;
    use prometheus_client::registry::Registry;
    use simulated_apiserver::{self as simulated, Decision, Options, Review, Server, Site, Verb};

    use super::*;

    fn key() -> Key {
        Key::new("ns", "a")
    }

    fn pod_key() -> Key {
        Key::new("ns", "a-pod")
    }

    /// A reconciler and its API server. No watch runs: the caches hold what a test puts into them.
    struct World {
        server: Server,
        reconciler: AtReconciler,
    }

    impl World {
        /// An At that is due and has no pod.
        fn pending() -> Self {
            let server = Server::new(Options {
                namespaces: vec!["ns".to_owned()],
                ..Options::default()
            });
            server.register(simulated::Resource::of::<At>());
            let at = json!({
                "apiVersion": At::api_version(&()), "kind": "At",
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {"schedule": "now", "command": "true"},
            });
            server.direct().create(at).unwrap();
            let client = server.client("operator");
            let wall = server.clock().clone();
            let clock: Clock = Arc::new(move || wall.now());
            let (events, _teller) = event::events(client.clone(), clock.clone());
            let reconciler = AtReconciler {
                client,
                clock,
                events,
                metrics: Metrics::new(&mut Registry::default()),
                ats: Arc::new(Cache::new(0, no_index)),
                pods: Arc::new(Cache::new(0, no_index)),
                own_ats: WriteCache::default(),
                own_pods: WriteCache::default(),
                memory: Mutex::default(),
                records: Mutex::default(),
            };
            let world = Self { server, reconciler };
            world.sync_at();
            world
        }

        /// An At that has committed to its gated pod.
        fn committed() -> Self {
            let world = Self::pending();
            let owner = json!([{"apiVersion": At::api_version(&()), "kind": "At", "name": "a",
                "uid": world.at().uid, "controller": true}]);
            world.create_pod(&owner);
            world.set_status(&json!({"phase": "RUNNING", "podUID": world.pod().uid,
                "startTime": "2027-01-15T08:00:00Z"}));
            world
        }

        /// Creates the gated pod with these owner references.
        fn create_pod(&self, owners: &Value) {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a-pod", "namespace": "ns", "ownerReferences": owners},
                "spec": {"containers": [{"name": "at", "image": "at"}], "restartPolicy": "Never",
                    "schedulingGates": [{"name": pod::GATE}]},
            });
            self.server.direct().create(pod).unwrap();
        }

        /// The pod as it is on the server.
        fn pod(&self) -> PodView {
            let pod = self.server.direct().get("pods", "ns", "a-pod").unwrap();
            PodView::of(serde_json::from_value(pod).unwrap())
        }

        /// Another client removes the gate.
        fn remove_gate(&self) -> PodView {
            let change = json!({"spec": {"schedulingGates": null}});
            let pods = self.server.direct();
            pods.patch("pods", "ns", "a-pod", &change).unwrap();
            self.pod()
        }

        /// The pod ends.
        fn end_pod(&self) -> PodView {
            let change = json!({"status": {"phase": "Succeeded"}});
            let pods = self.server.direct();
            pods.patch_status("pods", "ns", "a-pod", &change).unwrap();
            self.pod()
        }

        fn delete_pod(&self) {
            self.server.direct().delete("pods", "ns", "a-pod").unwrap();
        }

        /// The At as it is in the cache.
        fn at(&self) -> AtView {
            let stored = self.reconciler.ats.get(&key()).unwrap();
            stored.read(&key(), self.now()).unwrap()
        }

        fn set_status(&self, status: &Value) {
            let change = json!({"status": status});
            let ats = self.server.direct();
            ats.patch_status("ats", "ns", "a", &change).unwrap();
            self.sync_at();
        }

        /// Puts the At into the cache as it is on the server.
        fn sync_at(&self) {
            let at = self.server.direct().get("ats", "ns", "a").unwrap();
            let stored = StoredAt::of(serde_json::from_str(&at.to_string()).unwrap());
            self.reconciler.ats.insert(&key(), &Arc::new(stored));
        }

        /// Puts the pod into the cache as it is on the server.
        fn sync_pod(&self) {
            let pod = Arc::new(self.pod());
            self.reconciler.pods.insert(&pod_key(), &pod);
        }

        fn now(&self) -> DateTime<Utc> {
            self.server.clock().now()
        }

        /// One reconcile pass: when the next is due, and its Events.
        async fn work(&self) -> (Option<DateTime<Utc>>, Vec<NewEvent>) {
            let mut work = Work::default();
            let next = self.reconciler.work(&key(), &mut work).await.unwrap();
            (
                next,
                work.events.into_iter().map(|(_, event)| event).collect(),
            )
        }

        /// The watch of pods shows this change.
        fn touch(&self, old: Option<&PodView>, new: Option<&PodView>) {
            let figures =
                my_operator_runtime::reconcile::metrics::Metrics::new(&mut Registry::default());
            let clock = self.reconciler.clock.clone();
            let queue = Queue::new(clock, figures.of(CONTROLLER));
            let event = CacheEvent {
                key: &pod_key(),
                old,
                new,
                after_relist: false,
                changed: false,
            };
            self.reconciler.on_pod_event(&event, &queue);
        }

        fn memory(&self) -> Option<Memory> {
            self.reconciler.memory().get(&key()).cloned()
        }

        /// A policy rejects every change of a pod.
        fn reject_updates_of_pods(&self) {
            self.server.admit(|review: &mut Review<'_>| {
                match (review.user, review.verb, review.resource) {
                    ("operator", Verb::Update, "pods") => {
                        let message = "a policy says no";
                        Err(simulated::Status::new(422, "Invalid", message))
                    }
                    _ => Ok(()),
                }
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_known_only_from_our_own_answer_is_read_again() {
        // The watch showed the deletion of the released pod before the answer was remembered.
        let world = World::committed();
        let pod = world.remove_gate();
        let version = pod.resource_version.clone();
        world.delete_pod();
        let own = &world.reconciler.own_pods;
        own.put(&pod_key(), &version, Arc::new(pod));
        let (next, _) = world.work().await;
        let lag = TimeDelta::from_std(MAX_LAG).unwrap();
        assert!(
            next.is_some_and(|next| next <= world.now() + lag),
            "{next:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_pod_is_read_soon_and_then_ever_more_rarely() {
        let world = World::pending();
        world.create_pod(&json!([]));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let (next, _) = world.work().await;
            let pause = next.unwrap() - world.now();
            world.server.clock().step(pause);
            pauses.push(pause.num_seconds());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        // The watch shows the end of an earlier At's pod, which ends the pause.
        let old = PodView {
            controller: Some(("another".to_owned(), "a".to_owned())),
            ..world.pod()
        };
        world.touch(Some(&old), None);
        assert_eq!(world.memory().unwrap().not_before, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_the_watch_changes_nothing() {
        let world = World::committed();
        let (gated, released, ended) = (world.pod(), world.remove_gate(), world.end_pod());
        world.touch(None, Some(&gated));
        world.touch(Some(&gated), Some(&released));
        world.touch(Some(&released), Some(&ended));
        world.touch(Some(&ended), None);
        world.reconciler.record(&key(), &world.at().uid, &released);
        let sightings = world.memory().unwrap().sightings;
        assert_eq!(sightings.last.map(|last| last.pod), Some(ended));
        assert_eq!(sightings.released.map(|first| first.at), Some(world.now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_costs_no_write_of_its_own() {
        let mut world = World::pending();
        let (clock, ticks) = (world.reconciler.clock.clone(), AtomicI64::new(0));
        // Unlike the paused one, a real clock never shows the same time twice.
        world.reconciler.clock = Arc::new(move || {
            clock() + TimeDelta::microseconds(ticks.fetch_add(1, Ordering::Relaxed))
        });
        let (next, _) = world.work().await;
        world.sync_at();
        assert!(world.pod().gate.is_none() && !world.at().is_started());
        let wait = next.unwrap() - world.now();
        assert!((1..=2).contains(&wait.num_seconds()), "{wait}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_only_lost_its_label_was_not_deleted() {
        let world = World::committed();
        world.touch(Some(&world.pod()), None);
        assert!(world.memory().unwrap().sightings.last.is_some());
        let labels = json!({"metadata": {"labels": {"other": "label"}}});
        let pods = world.server.direct();
        pods.patch("pods", "ns", "a-pod", &labels).unwrap();
        let reconciler = &world.reconciler;
        reconciler.record(&key(), &world.at().uid, &world.pod());
        assert_eq!(world.memory().unwrap().sightings.last, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_was_deleted_with_its_gate_never_started_whatever_the_watch_shows() {
        let world = World::committed();
        let finalizers = json!({"metadata": {"finalizers": ["example.com/keep"]}});
        let pods = world.server.direct();
        pods.patch("pods", "ns", "a-pod", &finalizers).unwrap();
        world.delete_pod();
        let reconciler = &world.reconciler;
        reconciler.record(&key(), &world.at().uid, &world.pod());
        let last = world.memory().unwrap().sightings.last;
        assert!(last.is_some_and(|last| last.certain && last.pod.gate.is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_deletion_of_a_stray_pod_is_followed_by_a_pause() {
        let world = World::committed();
        let (reconciler, at) = (&world.reconciler, world.at());
        reconciler.record_failure(&at);
        let stray = PodView {
            controller: None,
            stray_of: Some(at.uid.as_str().into()),
            ..world.pod()
        };
        world.touch(Some(&stray), None);
        assert!(reconciler.memory_of(&at).not_before.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_at_inherits_nothing_from_one_of_the_same_name() {
        let world = World::committed();
        let (reconciler, before) = (&world.reconciler, world.at());
        reconciler.record_failure(&before);
        assert!(reconciler.memory_of(&before).not_before.is_some());
        let after = AtView {
            uid: "another".to_owned(),
            ..before
        };
        assert_eq!(reconciler.memory_of(&after).not_before, None);
        assert_eq!(reconciler.record_call_failure(&after, Call::Create), 1);
        assert_eq!(reconciler.memory_of(&after).not_before, None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_an_at_that_is_done() {
        let world = World::committed();
        let (released, ended) = (world.remove_gate(), world.end_pod());
        world.set_status(&json!({"phase": "DONE", "podUID": ended.uid, "result": "Succeeded"}));
        world
            .reconciler
            .pods
            .insert(&pod_key(), &Arc::new(released));
        world.work().await;
        world.touch(Some(&ended), None);
        assert!(world.memory().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_at_that_is_gone_is_not_overdue() {
        let world = World::committed();
        world.reconciler.metrics.overdue(&key(), true);
        world.reconciler.ats.remove(&key());
        world.work().await;
        assert_eq!(world.reconciler.metrics.overdue_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_finds_nothing_is_not_believed_while_the_pod_is_there() {
        let world = World::committed();
        // As from a proxy.
        world.server.on(|site: &Site| match site.verb {
            Verb::Delete => {
                Decision::Answer(simulated::Status::new(404, "NotFound", "page not found"))
            }
            _ => Decision::Forward,
        });
        let (reconciler, at, pod) = (&world.reconciler, world.at(), world.pod());
        let version = Version {
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        };
        let mut work = Work::default();
        let after = reconciler.delete(&at, &version, &mut work).await;
        let Ok(After::Undone(observed)) = after else {
            panic!("the deletion was taken for done");
        };
        assert!(observed.live && observed.pod.as_deref() == Some(&pod));
        assert!(reconciler.memory_of(&at).not_before.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_is_rejected_is_not_taken_for_ours_when_the_gate_goes() {
        let world = World::committed();
        world.reject_updates_of_pods();
        world.sync_pod();
        let (reconciler, at) = (&world.reconciler, world.at());
        let uid = Some(world.pod().uid);
        reconciler.with_memory(&at, |memory| memory.withheld.clone_from(&uid));
        world.work().await;
        assert_eq!(reconciler.memory_of(&at).withheld, uid);
        world.remove_gate();
        world.sync_pod();
        let (_, events) = world.work().await;
        let reasons: Vec<_> = events.iter().map(|event| event.reason).collect();
        assert_eq!(reasons, ["GateViolated"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_a_policy_rejects_is_reported_and_no_hot_loop() {
        let world = World::committed();
        world.reject_updates_of_pods();
        world.sync_pod();
        let (next, events) = world.work().await;
        assert_eq!(next, Some(world.now() + FIRST_BACKOFF));
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].reason, events[0].note.as_str()),
            ("ReleaseRefused", "a policy says no")
        );
    }
}
