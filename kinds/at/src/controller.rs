//! The controller of the kind: its watches, its queue, and one reconcile pass.

use std::ops::ControlFlow;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use super::act::{Acted, Calls, Failed};
use super::caches::{Caches, KnownPod, StoredAt};
use super::crd::{At, AtObject, AtStatus, Phase};
use super::decide::{Decision, URGENT_BEFORE, decide, delay, too_late_at};
use super::memory::{AtMemory, Memory};
use super::metrics::Metrics;
use super::observe::{AtView, Call, FailedCall, Observed};
use super::pod::names::{AT_UID, POD_SUFFIX};
use super::pod::object::PodObject;
use super::pod::view::PodView;
use my_operator_kind::manager::MANAGER;
use resilient_kube_client::clock::Clock;
use wall_clock_controller::reconcile::cache::CacheEvent;
use wall_clock_controller::reconcile::event::{self, Events, NewEvent};
use wall_clock_controller::reconcile::queue::Queue;
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::write::MANAGED_BY;
use wall_clock_controller::reconcile::write_cache::MAX_LAG;
use wall_clock_controller::reconcile::{Action, Context, Controller, Error, Key, Reconciler};

/// The name of the controller in logs and metrics.
const CONTROLLER: &str = "at";
/// Above the step count of any path through the protocol, so that a bug cannot become a hot loop.
const MAX_STEPS: usize = 12;

/// Runs the reconciler until the context is cancelled.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub(crate) async fn run(context: Context) -> anyhow::Result<()> {
    let (ats, pods) = (context.apis::<AtObject>(), context.apis::<PodObject>());
    let controller = Controller::new(CONTROLLER, &context);
    let reconciler = Arc::new(AtReconciler {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.clone(),
        metrics: context.register(Metrics::new),
        caches: Caches::new(ats.len(), pods.len()),
        memory: Memory::default(),
        process_start: (context.clock)(),
    });
    let caches = &reconciler.caches;
    let at_view = {
        let cache = caches.ats.clone();
        move |object: AtObject| {
            let before = cache.get(&Key::of(&object.metadata));
            StoredAt::from_object(object).sharing(before.as_deref())
        }
    };
    let on_at_event = {
        let (reconciler, queue) = (reconciler.clone(), controller.queue());
        move |event: &CacheEvent<'_, StoredAt>| reconciler.on_at_event(event, &queue)
    };
    let on_pod_event = {
        let (reconciler, queue) = (reconciler.clone(), controller.queue());
        move |event: &CacheEvent<'_, PodView>| reconciler.on_pod_event(event, &queue)
    };
    let every_at = Selection::default();
    // Without the label, every pod of the cluster would be in memory.
    let runs = Selection::default().labels(&format!("{MANAGED_BY}={MANAGER},{AT_UID}"));
    let pod_view = PodView::from_object;
    controller
        .watch(ats, &every_at, &caches.ats, at_view, on_at_event)
        .watch(pods, &runs, &caches.pods, pod_view, on_pod_event)
        .run(reconciler.clone())
        .await
}

struct AtReconciler {
    client: Client,
    clock: Clock,
    events: Events,
    metrics: Metrics,
    caches: Caches,
    memory: Memory,
    process_start: DateTime<Utc>,
}

impl Reconciler for AtReconciler {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let mut pass = Pass::default();
        let outcome = self.reconcile_at(key, &mut pass).await;
        // Publish and log, even if a later step failed.
        for (about, event) in pass.events {
            self.events.publish(about, event);
        }
        let did = (!pass.did.is_empty()).then(|| pass.did.join(", "));
        if let (Err(_), Some(did)) = (&outcome, &did) {
            tracing::info!(
                controller = CONTROLLER,
                namespace = &*key.namespace,
                name = &*key.name,
                "{did}"
            );
        }
        outcome.map(|requeue_at| Action {
            requeue_at,
            did,
            retry: pass.retry,
            gone: pass.gone,
        })
    }

    fn deadline(&self, key: &Key) -> Option<DateTime<Utc>> {
        let now = (self.clock)();
        let at = self.stored_at(key)?.read(key, now).ok()?;
        // Nor does a pause last through the instant, whatever failed before.
        let start = at.instant().filter(|instant| now < *instant);
        let start = start.filter(|_| at.phase() == Phase::Pending);
        start.or_else(|| too_late_at(&at))
    }

    /// Starts go before everything else.
    fn is_urgent(&self, key: &Key) -> bool {
        let at = self.caches.ats.get(key);
        at.is_some_and(|at| at.is_due_by((self.clock)() + URGENT_BEFORE))
    }
}

/// What one pass did.
#[derive(Default)]
struct Pass {
    did: Vec<String>,
    events: Vec<(ObjectReference, NewEvent)>,
    /// Something is in the way.
    retry: bool,
    /// The At does not exist any more.
    gone: bool,
}

/// One reconcile pass.
impl AtReconciler {
    /// Observes, decides and acts until nothing is left to do. Returns when to reconcile again.
    async fn reconcile_at(
        &self,
        key: &Key,
        pass: &mut Pass,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let Some(mut stored) = self.stored_at(key) else {
            pass.gone = true;
            return Ok(None);
        };
        let mut pod = self.caches.pod_of(key);
        for _ in 0..MAX_STEPS {
            // Observe.
            let at = stored.read(key, (self.clock)())?;
            self.record_observed(&at, &pod);
            let memory = self.memory.get(&at);
            if let Some(failed) = memory.failing.as_ref().filter(|failed| failed.unreported) {
                // The API server asked to send nothing for a while, which is over.
                let _ = self.report_failed(&at, &mut stored, failed, pass).await?;
                let reported = FailedCall {
                    unreported: false,
                    ..failed.clone()
                };
                self.memory.record_call_failure(&at, reported);
                continue;
            }
            // Read the clock again: a first sight later than the time of the decision would look
            // like a clock that was set back.
            let now = (self.clock)();
            let observed = self.observe(&pod, &memory);
            let delay = delay(&at, observed.released, now);
            self.metrics.set_delay(key, delay);

            // Decide.
            let mut decision = decide(&at, observed, now);

            // Act. A parsed template takes many times the memory of its text, and a call may take
            // long: no worker holds one across a call.
            let at = at.without_template();
            let operation = std::mem::take(&mut decision.operation);
            match self.calls(&at).perform(operation, pod).await {
                Ok(Acted::Done { pod: after, did }) => {
                    pod = after;
                    pass.did.extend(did);
                }
                Ok(Acted::Outdated(after)) => {
                    pod = after;
                    continue;
                }
                Err(failed) => return self.conclude_failed(&at, &mut stored, failed, pass).await,
            }
            if let Some(status) = &decision.status {
                let known = pod.pod.as_deref().map(|pod| pod.uid.as_str());
                pod.live &= !status.records_other_pod(&at.status, known);
            }
            let concluded = self.conclude(&at, &mut stored, decision, pass).await?;
            if let ControlFlow::Break(next) = concluded {
                if !pass.retry {
                    // Nothing is in the way any more, or nothing is to be done.
                    self.memory.forget_settled(key);
                }
                // Our own answer may show a pod that is gone: the watch may have delivered its
                // deletion before, and will deliver nothing more. So check again when the answer
                // has expired.
                let doubt = pod.own.then(|| (self.clock)() + MAX_LAG);
                return Ok(next.into_iter().chain(doubt).min());
            }
        }
        Err(Error::DidNotConverge {
            object: key.clone(),
            steps: MAX_STEPS,
        })
    }

    /// The newest known state of the At. One that is gone is forgotten.
    fn stored_at(&self, key: &Key) -> Option<Arc<StoredAt>> {
        let cached = self.caches.ats.get(key);
        if cached.is_none() {
            self.caches.own_ats.forget(key);
            self.caches.forget_pod_of(key);
            self.memory.forget(key);
            // A reconcile that began before the At was deleted may have counted it since.
            self.metrics.set_delay(key, None);
            return None;
        }
        let own = &self.caches.own_ats;
        own.newer(key, cached, StoredAt::version)
    }

    /// Records the state of a pod of this At, which the watch need not have shown.
    fn record_observed(&self, at: &AtView, known: &KnownPod) {
        let Some(pod) = known.pod.as_deref() else {
            return;
        };
        let is_its = pod.is_of(&at.uid) || at.status.pod_uid.as_ref() == Some(&pod.uid);
        if is_its && at.phase() != Phase::Done {
            let now = (self.clock)();
            self.memory.record_pod(&at.key, &at.uid, pod, now);
        }
    }

    /// What a decision is based on.
    fn observe<'a>(&self, known: &'a KnownPod, memory: &'a AtMemory) -> Observed<'a> {
        Observed {
            pod: known.pod.as_deref(),
            live: known.live,
            last: memory.sightings.last.as_deref(),
            released: memory.sightings.released.as_ref(),
            failed: None,
            failing: memory.failing.as_ref(),
            trial: memory.trial.as_ref(),
            process_start: self.process_start,
        }
    }

    fn calls<'a>(&'a self, at: &'a AtView) -> Calls<'a> {
        Calls {
            client: &self.client,
            clock: &self.clock,
            caches: &self.caches,
            memory: &self.memory,
            at,
        }
    }

    /// Writes the status of a decision and reports it. Breaks with the time of the next pass, if
    /// this one is at its end.
    ///
    /// In this order: an Event or a count of what a failed write did not record would come again
    /// with the next attempt.
    async fn conclude(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        decision: Decision,
        pass: &mut Pass,
    ) -> Result<ControlFlow<Option<DateTime<Utc>>>, Error> {
        let scheduled = match &decision.status {
            Some(status) => status.scheduled_time,
            None => at.status.scheduled_time,
        };
        if let Some(status) = decision.status {
            *stored = self.calls(at).write_status(&status).await?;
            self.report_phase(at, stored.phase, &status, pass);
        }
        if let Some(start) = decision.start {
            self.metrics.observe_lateness(start, scheduled, at.base);
            self.memory.record_start_reported(at);
        }
        let about = event::about::<At>(&at.key, &at.uid);
        let events = decision.events.into_iter();
        pass.events
            .extend(events.map(|event| (about.clone(), event)));
        pass.retry = decision.retry;
        Ok(if decision.again {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(decision.next)
        })
    }

    fn report_phase(&self, at: &AtView, phase: Phase, status: &AtStatus, pass: &mut Pass) {
        if phase == at.phase() {
            return;
        }
        if let Some(result) = status.result {
            self.metrics.count_run(result);
        }
        let result = status.result.map(|result| format!(": {result:?}"));
        let phase_text = format!("{phase:?}").to_uppercase();
        let did = format!("{phase_text}{}", result.unwrap_or_default());
        pass.did.push(did);
        if phase == Phase::Done {
            // Nothing more happens to it.
            self.memory.forget(&at.key);
        }
    }

    /// Decides on what a failed call means for the status. The next attempt is made with backoff.
    async fn conclude_failed(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        failed: Failed,
        pass: &mut Pass,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let Failed { call, error } = failed;
        // A precondition failed: another client wrote first. The quota of a namespace answers a creation so, too.
        if error.is_conflict() && call != Call::Create {
            return Err(error);
        }
        let rejection = error.refusal().filter(|_| call != Call::Read);
        let before = self.memory.get(at).failing;
        let failed = FailedCall {
            call,
            message: rejection.map_or_else(|| error.to_string(), str::to_owned),
            refused: error.refusal().is_some(),
            again: before.is_some_and(|before| before.call == call),
            unreported: error.retry_after().is_some(),
        };
        self.memory.record_call_failure(at, failed.clone());
        if failed.unreported {
            return Err(error);
        }
        let concluded = self.report_failed(at, stored, &failed, pass).await;
        if rejection.is_some() {
            return Ok(concluded?.break_value().flatten());
        }
        // If the status cannot be written either, the first error says more.
        Err(error)
    }

    async fn report_failed(
        &self,
        at: &AtView,
        stored: &mut Arc<StoredAt>,
        failed: &FailedCall,
        pass: &mut Pass,
    ) -> Result<ControlFlow<Option<DateTime<Utc>>>, Error> {
        let observed = Observed {
            failed: Some(failed),
            ..Observed::default()
        };
        let decision = decide(at, observed, (self.clock)());
        self.conclude(at, stored, decision, pass).await
    }
}

/// Events of the watches.
impl AtReconciler {
    fn on_at_event(&self, event: &CacheEvent<'_, StoredAt>, queue: &Queue) {
        let phase = |at: Option<&StoredAt>| at.map(|at| at.phase);
        let (before, after) = (phase(event.old), phase(event.new));
        self.metrics.count_phase(before, after);
        let result = |at: Option<&StoredAt>| at.and_then(|at| at.result);
        let results = (result(event.old), result(event.new));
        self.metrics.count_result(event.key, results.0, results.1);
        if matches!(after, None | Some(Phase::Done)) {
            self.metrics.set_delay(event.key, None);
        }
        if event.new.is_none() {
            self.caches.own_ats.forget(event.key);
        }
        let is_over = after == Some(Phase::Done) && before != after;
        if event.new.is_none() || is_over {
            self.memory.forget(event.key);
        }
        event.enqueue(queue);
    }

    fn on_pod_event(&self, event: &CacheEvent<'_, PodView>, queue: &Queue) {
        // By name: a pod may lose its owner reference while its At waits for its end.
        let Some(name) = event.key.name.strip_suffix(POD_SUFFIX) else {
            return;
        };
        let key = Key::new(&event.key.namespace, name);
        let at = self.caches.ats.get(&key);
        // Only an unfinished run may need what was seen.
        if at.as_ref().is_none_or(|at| at.phase != Phase::Done) {
            match (event.old, event.new) {
                (_, Some(pod)) => self.on_pod_seen(&key, at.as_deref(), pod),
                (Some(old), None) => {
                    self.on_pod_deleted(&key, at.as_deref(), old, !event.after_relist);
                }
                (None, None) => {}
            }
        }
        if event.new.is_none() {
            self.caches.own_pods.forget(event.key);
        }
        if is_unblocked(event, at.as_deref()) {
            queue.add_changed(key);
        } else {
            queue.add(key);
        }
    }

    fn on_pod_seen(&self, key: &Key, at: Option<&StoredAt>, pod: &PodView) {
        // A gated pod usually leaves nothing to remember. Nor does a pod whose At is not cached
        // yet, except that it was released.
        if let Some(uid) = pod.at_uid()
            && at.is_none_or(|at| *at.uid == *uid)
        {
            self.memory.record_pod(key, uid, pod, (self.clock)());
        }
    }

    /// The watch shows the deletion of a pod with this last state, `certain` if no later state can
    /// have been missed.
    fn on_pod_deleted(&self, key: &Key, at: Option<&StoredAt>, last: &PodView, certain: bool) {
        if let Some(at) = at.filter(|at| last.is_of(&at.uid)) {
            self.memory.record_pod_deletion(key, &at.uid, last, certain);
        }
    }
}

/// Whether a failed call about the pod may succeed now, or be needless. Not if this operator itself made the change: the
/// next attempt would follow without a pause.
fn is_unblocked(event: &CacheEvent<'_, PodView>, at: Option<&StoredAt>) -> bool {
    let is_committed = at.is_some_and(|at| at.phase == Phase::Running);
    match (event.old, event.new) {
        (Some(old), Some(new)) => is_committed && old.is_other_state(new),
        // The pod of an earlier At of this name blocked the name. A pod of this one, or one whose owner reference a
        // webhook removed, is gone because this operator deleted it.
        (Some(last), None) => at.is_none_or(|at| {
            let is_stray = last.stray_of.as_deref() == Some(&*at.uid);
            is_committed || !(is_stray || last.is_of(&at.uid))
        }),
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use chrono::TimeDelta;
    use kube::Resource as _;
    use parking_lot::Mutex;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use simulated_apiserver::{self as simulated, Decision, Options, Review, Server, Site, Verb};
    use wall_clock_controller::reconcile::condition;

    use super::super::conditions::{FAILURE_TARGET, POD_ACCEPTED, TOO_LATE};
    use super::super::crd::Ending;
    use super::super::decide::{Delay, Operation, PodVersion};
    use super::super::pod::names::GATE;
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
            Self::scheduled("now")
        }

        /// An At with that schedule, and no pod.
        fn scheduled(schedule: &str) -> Self {
            let server = Server::new(Options {
                namespaces: vec!["ns".to_owned()],
                ..Options::default()
            });
            server.register(simulated::Resource::of::<At>());
            let at = json!({
                "apiVersion": At::api_version(&()), "kind": "At",
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {"schedule": schedule, "command": "true"},
            });
            server.direct().create(at).unwrap();
            let client = server.client("operator");
            let wall = server.clock().clone();
            let clock: Clock = Arc::new(move || wall.now());
            let (events, _teller) = event::events(client.clone(), clock.clone(), MANAGER);
            let reconciler = AtReconciler {
                client,
                clock,
                events,
                metrics: Metrics::new(&mut Registry::default()),
                caches: Caches::new(0, 0),
                memory: Memory::default(),
                process_start: server.clock().now(),
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

        /// The same, and the operator that announced Missed is gone.
        fn announced() -> Self {
            let world = Self::committed();
            let target = json!({"type": FAILURE_TARGET, "status": "True", "reason": TOO_LATE,
                "message": "too late", "lastTransitionTime": "2027-01-15T08:00:00Z"});
            world.set_status(&json!({"conditions": [target], "startTime": null}));
            world
        }

        /// The result that is stored.
        fn result(&self) -> Option<Ending> {
            self.sync_at();
            self.at().status.result
        }

        /// Creates the gated pod with these owner references.
        fn create_pod(&self, owners: &Value) {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a-pod", "namespace": "ns", "ownerReferences": owners},
                "spec": {"containers": [{"name": "at", "image": "at"}], "restartPolicy": "Never",
                    "schedulingGates": [{"name": GATE}]},
            });
            self.server.direct().create(pod).unwrap();
        }

        /// The pod as it is on the server.
        fn pod(&self) -> PodView {
            let pod = self.server.direct().get("pods", "ns", "a-pod").unwrap();
            PodView::from_object(serde_json::from_value(pod).unwrap())
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

        /// Runs a pass. Returns whether it is to be repeated with backoff.
        async fn retries(&self) -> bool {
            let mut pass = Pass::default();
            let outcome = self.reconciler.reconcile_at(&key(), &mut pass).await;
            outcome.unwrap();
            self.sync_at();
            pass.retry
        }

        /// Whether that event of the pod ends a backoff.
        fn unblocks(&self, old: Option<&PodView>, new: Option<&PodView>) -> bool {
            let event = CacheEvent {
                key: &pod_key(),
                old,
                new,
                after_relist: false,
                changed: old.is_none() || new.is_none(),
            };
            is_unblocked(&event, self.reconciler.caches.ats.get(&key()).as_deref())
        }

        /// The At as it is in the cache.
        fn at(&self) -> AtView {
            let stored = self.reconciler.caches.ats.get(&key()).unwrap();
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
            let stored = StoredAt::from_object(serde_json::from_str(&at.to_string()).unwrap());
            self.reconciler.caches.ats.insert(&key(), &Arc::new(stored));
        }

        /// Puts the pod into the cache as it is on the server.
        fn sync_pod(&self) {
            let pod = Arc::new(self.pod());
            self.reconciler.caches.pods.insert(&pod_key(), &pod);
        }

        fn now(&self) -> DateTime<Utc> {
            self.server.clock().now()
        }

        /// One reconcile pass: when the next is due, and its Events.
        async fn work(&self) -> (Option<DateTime<Utc>>, Vec<NewEvent>) {
            let mut pass = Pass::default();
            let next = self
                .reconciler
                .reconcile_at(&key(), &mut pass)
                .await
                .unwrap();
            (
                next,
                pass.events.into_iter().map(|(_, event)| event).collect(),
            )
        }

        /// The watch of pods shows this change.
        fn touch(&self, old: Option<&PodView>, new: Option<&PodView>) {
            let figures = wall_clock_controller::reconcile::metrics::Metrics::new(
                &mut Registry::default(),
                MANAGER,
            );
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

        /// An answer shows this state of the pod.
        fn record(&self, pod: &PodView) {
            let memory = &self.reconciler.memory;
            memory.record_pod(&key(), &self.at().uid, pod, self.now());
        }

        fn memory(&self) -> Option<AtMemory> {
            self.reconciler.memory.peek(&key())
        }

        /// A policy rejects what the operator does to pods with that verb.
        fn reject_pods(&self, verb: Verb) {
            self.server.admit(move |review: &mut Review<'_>| {
                if (review.user, review.verb, review.resource) == ("operator", verb, "pods") {
                    let message = "a policy says no";
                    return Err(simulated::Status::new(422, "Invalid", message));
                }
                Ok(())
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
        let own = &world.reconciler.caches.own_pods;
        own.put(&pod_key(), &version, Arc::new(pod));
        let (next, _) = world.work().await;
        let lag = TimeDelta::from_std(MAX_LAG).unwrap();
        assert!(
            next.is_some_and(|next| next <= world.now() + lag),
            "{next:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_pod_is_waited_for_with_backoff_until_it_is_gone() {
        let world = World::pending();
        world.create_pod(&json!([]));
        for _ in 0..3 {
            assert!(world.retries().await);
        }
        // The watch shows the end of an earlier At's pod.
        let old = PodView {
            controller: Some("another".to_owned()),
            ..world.pod()
        };
        assert!(world.unblocks(Some(&old), None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_the_watch_changes_nothing() {
        let world = World::committed();
        let (gated, released, ended) = (world.pod(), world.remove_gate(), world.end_pod());
        world.touch(None, Some(&gated));
        world.touch(Some(&gated), Some(&released));
        world.touch(Some(&released), Some(&ended));
        world.touch(Some(&ended), None);
        world.record(&released);
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
        world.record(&world.pod());
        assert_eq!(world.memory().unwrap().sightings.last, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_was_deleted_with_its_gate_never_started_whatever_the_watch_shows() {
        let world = World::committed();
        let finalizers = json!({"metadata": {"finalizers": ["example.com/keep"]}});
        let pods = world.server.direct();
        pods.patch("pods", "ns", "a-pod", &finalizers).unwrap();
        world.delete_pod();
        world.record(&world.pod());
        let last = world.memory().unwrap().sightings.last;
        assert!(last.is_some_and(|last| last.certain && last.pod.gate.is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_others_change_ends_a_backoff() {
        let world = World::pending();
        let owner = json!([{"apiVersion": At::api_version(&()), "kind": "At", "name": "a",
            "uid": world.at().uid, "controller": true}]);
        world.create_pod(&owner);
        let (gated, uid) = (world.pod(), world.at().uid);
        let stray = PodView {
            controller: None,
            stray_of: Some(uid.as_str().into()),
            ..gated.clone()
        };
        for ours in [&gated, &stray] {
            assert!(!world.unblocks(None, Some(ours)));
            assert!(!world.unblocks(Some(ours), None));
        }
        let world = World::committed();
        let (gated, released) = (world.pod(), world.remove_gate());
        assert!(!world.unblocks(Some(&gated), Some(&gated)));
        assert!(world.unblocks(Some(&gated), Some(&released)));
        assert!(world.unblocks(Some(&gated), None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_at_inherits_nothing_from_one_of_the_same_name() {
        let world = World::committed();
        let (reconciler, before) = (&world.reconciler, world.at());
        let failed = FailedCall {
            call: Call::Create,
            message: "no".to_owned(),
            refused: true,
            again: false,
            unreported: false,
        };
        reconciler.memory.record_call_failure(&before, failed);
        assert!(reconciler.memory.get(&before).failing.is_some());
        let after = AtView {
            uid: "another".to_owned(),
            ..before
        };
        assert_eq!(reconciler.memory.get(&after).failing, None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_an_at_that_is_done() {
        let world = World::committed();
        let (released, ended) = (world.remove_gate(), world.end_pod());
        world.set_status(&json!({"phase": "DONE", "podUID": ended.uid, "result": "Succeeded"}));
        world
            .reconciler
            .caches
            .pods
            .insert(&pod_key(), &Arc::new(released));
        world.work().await;
        world.touch(Some(&ended), None);
        assert!(world.memory().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_at_that_is_gone_is_not_overdue() {
        let world = World::committed();
        world
            .reconciler
            .metrics
            .set_delay(&key(), Some(Delay::Overdue));
        world.reconciler.caches.ats.remove(&key());
        world.work().await;
        assert_eq!(world.reconciler.metrics.overdue_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_404_to_a_deletion_is_checked_by_a_live_read() {
        let world = World::committed();
        // As from a proxy.
        world.server.on(|site: &Site| match site.verb {
            Verb::Delete => {
                Decision::Answer(simulated::Status::new(404, "NotFound", "page not found"))
            }
            _ => Decision::Forward,
        });
        let (reconciler, at, pod) = (&world.reconciler, world.at(), world.pod());
        let version = PodVersion {
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        };
        let operation = Operation::DeletePod(version);
        let calls = reconciler.calls(&at);
        let after = calls.perform(operation, KnownPod::default()).await;
        let Err(failed) = after else {
            panic!("the deletion was taken for done");
        };
        assert_eq!(failed.call, Call::Delete);
    }

    #[tokio::test(start_paused = true)]
    async fn an_announced_end_holds_if_the_deletion_is_found_and_the_pod_was_as_announced() {
        let finds = async |before: fn(&World), after: fn(&World)| {
            let world = World::announced();
            before(&world);
            world.delete_pod();
            after(&world);
            world.work().await;
            world.result()
        };
        let nothing: fn(&World) = |_| {};
        assert_eq!(finds(nothing, nothing).await, Some(Ending::Missed));
        let release: fn(&World) = |world| drop(world.remove_gate());
        assert_eq!(finds(release, nothing).await, Some(Ending::Unknown));
        let forget: fn(&World) = |world| world.server.compact(world.server.version());
        assert_eq!(finds(nothing, forget).await, Some(Ending::Unknown));
        // Another pod of the name hides nothing.
        let again: fn(&World) = |world| world.create_pod(&json!([]));
        assert_eq!(finds(nothing, again).await, Some(Ending::Missed));
        // After an edit, the version of the At is later than the deletion.
        let edit: fn(&World) = |world| {
            world.set_status(&json!({"message": "edited"}));
        };
        assert_eq!(finds(nothing, edit).await, Some(Ending::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_for_the_last_state_that_fails_decides_nothing() {
        for failure in [
            Decision::Lost,
            Decision::Silent,
            Decision::Answer(simulated::Status::unavailable(Duration::from_secs(7))),
        ] {
            let world = World::announced();
            world.delete_pod();
            let failure = Mutex::new(Some(failure));
            world.server.on(move |site: &Site| match site.verb {
                Verb::Watch => failure.lock().take().unwrap_or(Decision::Forward),
                _ => Decision::Forward,
            });
            let mut pass = Pass::default();
            let failed = world.reconciler.reconcile_at(&key(), &mut pass).await;
            assert!(failed.is_err() && world.result().is_none(), "{failed:?}");
            world.work().await;
            assert_eq!(world.result(), Some(Ending::Missed));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_deletion_is_known_although_the_status_write_after_it_fails() {
        let world = World::announced();
        let writes = AtomicI64::new(0);
        world.server.on(move |site: &Site| match site.verb {
            Verb::Update if writes.fetch_add(1, Ordering::Relaxed) == 0 => Decision::Lost,
            Verb::Watch => Decision::Answer(simulated::Status::expired("too old")),
            _ => Decision::Forward,
        });
        let mut pass = Pass::default();
        let failed = world.reconciler.reconcile_at(&key(), &mut pass).await;
        assert!(failed.is_err() && world.server.direct().get("pods", "ns", "a-pod").is_none());
        world.work().await;
        assert_eq!(world.result(), Some(Ending::Missed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_attempt_costs_one_request_until_the_pause_is_over() {
        let world = World::pending();
        let requests = Arc::new(AtomicI64::new(0));
        let (count, throttled) = (requests.clone(), Arc::new(AtomicI64::new(1)));
        let is_throttled = throttled.clone();
        world.server.on(move |site: &Site| match site.verb {
            Verb::Create | Verb::Update if is_throttled.load(Ordering::Relaxed) == 1 => {
                count.fetch_add(1, Ordering::Relaxed);
                Decision::Answer(simulated::Status::too_many_requests(Duration::from_secs(7)))
            }
            _ => Decision::Forward,
        });
        for attempt in 1..=5 {
            let mut pass = Pass::default();
            let failed = world.reconciler.reconcile_at(&key(), &mut pass).await;
            let pause = failed.unwrap_err().retry_after();
            assert_eq!(pause, Some(Duration::from_secs(7)));
            assert_eq!(requests.load(Ordering::Relaxed), attempt);
        }
        throttled.store(0, Ordering::Relaxed);
        let (_, events) = world.work().await;
        let reasons: Vec<_> = events.iter().map(|event| event.reason).collect();
        assert_eq!(reasons.first(), Some(&"CreateFailed"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_before_the_at_was_suspended_is_not_what_kept_it() {
        let world = World::pending();
        world.server.on(|site: &Site| match site.verb {
            Verb::Create => Decision::Lost,
            _ => Decision::Forward,
        });
        let failed = world
            .reconciler
            .reconcile_at(&key(), &mut Pass::default())
            .await;
        assert!(failed.is_err() && world.memory().unwrap().failing.is_some());
        let suspended = json!({"spec": {"suspend": true}});
        let ats = world.server.direct();
        ats.patch("ats", "ns", "a", &suspended).unwrap();
        world.sync_at();
        world.work().await;
        assert_eq!(world.memory().unwrap().failing, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_is_too_late_when_the_deadline_has_passed() {
        let world = World::pending();
        assert_eq!(world.reconciler.deadline(&key()), None);
        assert!(world.reconciler.is_urgent(&key()));
        let limit = json!({"spec": {"startingDeadlineSeconds": 30}});
        let ats = world.server.direct();
        ats.patch("ats", "ns", "a", &limit).unwrap();
        world.sync_at();
        let late = world.reconciler.deadline(&key()).unwrap() - world.now();
        assert!((29..=31).contains(&late.num_seconds()), "{late}");
    }

    /// What is said of the pod before its time.
    fn said(world: &World) -> Option<(String, String)> {
        let status = world.at().status;
        if status.dry_run_generation.is_some() {
            return Some(("True".to_owned(), String::new()));
        }
        let said = condition::get(&status.conditions, POD_ACCEPTED)?;
        Some((said.status.clone(), said.message.clone()))
    }

    fn counted_dry_runs(world: &World, decide: fn(&Site) -> Decision) -> Arc<AtomicI64> {
        let calls = Arc::new(AtomicI64::new(0));
        let count = calls.clone();
        world.server.on(move |site: &Site| {
            if (site.verb, site.resource.as_str()) != (Verb::Create, "pods") {
                return Decision::Forward;
            }
            count.fetch_add(1, Ordering::Relaxed);
            decide(site)
        });
        calls
    }

    async fn until_tried(world: &World) {
        for _ in 0..2 {
            world.work().await;
            world.sync_at();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_pod_is_tried_once_in_a_pass_that_is_not_urgent() {
        let mut world = World::scheduled("now + 1 hour");
        let calls = counted_dry_runs(&world, |_| Decision::Forward);
        let count = || calls.load(Ordering::Relaxed);
        assert!(world.reconciler.is_urgent(&key()));
        let (next, _) = world.work().await;
        world.sync_at();
        assert!(next.is_some_and(|next| next <= world.now() + TimeDelta::seconds(1)));
        assert!(count() == 0 && !world.reconciler.is_urgent(&key()));
        let (next, _) = world.work().await;
        world.sync_at();
        assert_eq!((count(), next), (1, world.at().instant()));
        assert_eq!(said(&world).unwrap().0, "True");
        assert!(world.server.direct().get("pods", "ns", "a-pod").is_none());
        // Nothing of it stays in memory, and neither this process nor the next asks again.
        assert!(world.memory().is_none());
        world.work().await;
        world.reconciler.memory = Memory::default();
        world.work().await;
        assert_eq!(count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_dry_run_is_shown_and_is_no_failure() {
        let world = World::scheduled("now + 1 hour");
        world.reject_pods(Verb::Create);
        world.work().await;
        world.sync_at();
        let (next, events) = world.work().await;
        world.sync_at();
        let pause = next.unwrap() - world.now();
        assert_eq!((pause.num_seconds(), events[0].reason), (5, "PodRefused"));
        assert_eq!(said(&world).unwrap().1, "a policy says no");
        assert!(!world.retries().await && world.memory().unwrap().failing.is_none());
        assert_eq!(world.at().status.reason.as_deref(), Some("PodRefused"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_without_an_answer_says_nothing_and_is_given_up() {
        type Answer = fn(&Site) -> Decision;
        let unsupported: Answer = |_| {
            let message = "admission webhook \"w\" does not support dry run";
            Decision::Answer(simulated::Status::new(400, "BadRequest", message))
        };
        let broken: Answer = |_| {
            let message = "Internal error occurred: failed calling webhook \"w\": refused";
            Decision::Answer(simulated::Status::new(500, "InternalError", message))
        };
        let busy: Answer = |_| {
            let pause = Duration::from_secs(70);
            Decision::Answer(simulated::Status::too_many_requests(pause))
        };
        let cases: [(Answer, i64); 5] = [
            (|_| Decision::Silent, 5),
            (|_| Decision::Lost, 5),
            (unsupported, 5),
            (broken, 5),
            (busy, 70),
        ];
        for (decide, pause) in cases {
            let world = World::scheduled("now + 1 hour");
            counted_dry_runs(&world, decide);
            let before = world.now();
            world.work().await;
            world.sync_at();
            let (next, events) = world.work().await;
            world.sync_at();
            assert!(world.now() - before <= TimeDelta::seconds(5));
            assert_eq!((next.unwrap() - world.now()).num_seconds(), pause);
            assert!(events.is_empty() && said(&world).is_none());
            assert_eq!(world.at().status.reason, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_that_hangs_delays_no_start() {
        let edit: fn(&World) = |world| {
            let now = json!({"spec": {"schedule": "now"}});
            let ats = world.server.direct();
            ats.patch("ats", "ns", "a", &now).unwrap();
            world.sync_at();
        };
        let set_clock: fn(&World) = |world| world.server.clock().step(TimeDelta::hours(1));
        for act in [edit, set_clock] {
            let world = World::scheduled("now + 1 hour");
            counted_dry_runs(&world, |_| Decision::Silent);
            world.work().await;
            world.sync_at();
            let start = tokio::time::Instant::now();
            let acts = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                act(&world);
            };
            tokio::join!(world.work(), acts);
            assert!(
                start.elapsed() <= Duration::from_millis(500),
                "{:?}",
                start.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_pause_lasts_through_the_instant() {
        let world = World::scheduled("now + 1 hour");
        until_tried(&world).await;
        let instant = world.at().instant();
        assert_eq!(world.reconciler.deadline(&key()), instant);
        world.server.clock().step(TimeDelta::hours(2));
        assert_eq!(world.reconciler.deadline(&key()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_a_policy_rejects_is_reported_and_no_hot_loop() {
        let world = World::committed();
        world.reject_pods(Verb::Update);
        world.sync_pod();
        let (_, events) = world.work().await;
        assert!(world.retries().await);
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].reason, events[0].note.as_str()),
            ("ReleaseRefused", "a policy says no")
        );
    }
}
