//! The I/O edge: the watches, and the API calls that [`super::decision`] decides on.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::marker::PhantomData;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::api::{Patch, PatchParams, PropagationPolicy, ValidationDirective};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::decision::{Decision, Found, Observed, Trouble, decide};
use super::view::{COMPONENT, ChildView, ParentView, owner_annotation};
use super::{
    Child, DEGRADED, Done, DriftPolicy, Observed as _, Owner, Parent, Report, Seen, Status,
};
use crate::kinds::shared::pods::{self, Pod, PodView};
use my_operator_admission::faults;
use my_operator_admission::rules::{Rules, decode_and_validate};
use my_operator_runtime::reconcile::backoff::{Backoff, StatusWrites};
use my_operator_runtime::reconcile::cache::{Cache, CacheEvent, Source, run_watch};
use my_operator_runtime::reconcile::condition::{self, ACCEPTED};
use my_operator_runtime::reconcile::event::{self, NewEvent, Severity};
use my_operator_runtime::reconcile::queue::Queue;
use my_operator_runtime::reconcile::raw::Object;
use my_operator_runtime::reconcile::watch::Selection;
use my_operator_runtime::reconcile::write::{self, MANAGED_BY, MANAGER};
use my_operator_runtime::reconcile::write_cache::MAX_LAG;
use my_operator_runtime::reconcile::{
    Action, Context, Error, Key, Reconciler, call, if_there, read, runner,
};

/// Above the step count of any path through the decision, so that a bug cannot become a hot loop.
const MAX_STEPS: usize = 8;
/// Page size of a list.
const PAGE: u32 = 100;

/// Reason of [`DEGRADED`]: the API server rejects a write. The message quotes it.
const REFUSED: &str = "Refused";
/// Reason of [`DEGRADED`]: the child is being deleted.
const TERMINATING: &str = "Terminating";

type Stored<P> = Object<<<P as Parent>::Rules as Rules>::Object>;
type StoredChild<P> = Object<<P as Parent>::Child>;

/// See [`super::start`].
pub(super) async fn run<P: Parent>(context: Context) -> anyhow::Result<()> {
    let parents = context.apis::<Stored<P>>();
    let children = context.apis::<StoredChild<P>>();
    let pods = match P::POD_LABELS {
        [] => Vec::new(),
        _ => context.apis::<Pod>(),
    };
    let this = Arc::new(Controller::<P> {
        queue: context.queue(P::NAME),
        parents: Arc::new(Cache::new(parents.len(), |_| Vec::new())),
        children: Arc::new(Cache::new(children.len(), |child: &ChildView| {
            child.owner_uid().map(str::to_owned).into_iter().collect()
        })),
        pods: Arc::new(Cache::new(pods.len(), |pod: &PodView| {
            let name = pod.label(0).into_iter();
            name.map(|name| PodView::index(&pod.namespace, name))
                .collect()
        })),
        memories: Mutex::default(),
        waiting: Mutex::default(),
        context: context.clone(),
        kind: PhantomData,
    });
    let mut watches = JoinSet::new();
    for api in parents {
        watches.spawn(this.clone().watch_parents(api));
    }
    for api in children {
        watches.spawn(this.clone().watch_children(api));
    }
    for api in pods {
        watches.spawn(this.clone().watch_pods(api));
    }
    let sources: [&dyn Source; 3] = [&*this.parents, &*this.children, &*this.pods];
    let workers = runner::run(
        P::NAME,
        this.clone(),
        this.queue.clone(),
        &context,
        &sources,
    );
    runner::join(watches, workers).await
}

struct Controller<P> {
    context: Context,
    queue: Arc<Queue>,
    parents: Arc<Cache<ParentView>>,
    children: Arc<Cache<ChildView>>,
    pods: Arc<Cache<PodView>>,
    memories: Mutex<HashMap<Key, Memory>>,
    /// Objects that wait for the deletion of a foreign child, by that child.
    waiting: Mutex<HashMap<Key, BTreeSet<Key>>>,
    kind: PhantomData<fn() -> P>,
}

/// What is remembered of an object between two reconciles. Only pacing and Events depend on it, never correctness.
#[derive(Clone, Debug, Default)]
struct Memory {
    uid: String,
    generation: Option<i64>,
    /// Hash of the body applied last, and the print of the child that resulted.
    applied: Option<(u64, u64)>,
    /// The child written last: its name, the version that resulted, and the time of the write.
    written: Option<(String, u64, Instant)>,
    /// Name of the child that the object controlled when it was last observed.
    own: Option<String>,
    /// Backoff of writes to the child, and what blocks them.
    pace: Backoff,
    trouble: Option<Trouble>,
    /// The same for the deletion of earlier children.
    deletions: Backoff,
    leftover: Option<Trouble>,
    statuses: StatusWrites,
    /// What was done with the child and is not published yet: the status has not been written since.
    unpublished: Done,
}

impl<P: Parent> Controller<P> {
    async fn watch_parents(self: Arc<Self>, api: Api<Stored<P>>) {
        let (cache, health) = (self.parents.clone(), self.context.watch_health());
        let on_event = |event: &CacheEvent<'_, ParentView>| event.enqueue(&self.queue);
        let selection = Selection::default().page(PAGE);
        run_watch(api, selection, cache, health, ParentView::of, on_event).await;
    }

    async fn watch_children(self: Arc<Self>, api: Api<StoredChild<P>>) {
        let (cache, health) = (self.children.clone(), self.context.watch_health());
        let on_event = |event: &CacheEvent<'_, ChildView>| self.on_child_event(event);
        let labels = format!("{MANAGED_BY}={MANAGER},{COMPONENT}={}", P::NAME);
        let selection = Selection::default().page(PAGE).labels(&labels);
        run_watch(api, selection, cache, health, view::<P>, on_event).await;
    }

    async fn watch_pods(self: Arc<Self>, api: Api<Pod>) {
        let (cache, health) = (self.pods.clone(), self.context.watch_health());
        let view = |pod| PodView::of(pod, P::POD_LABELS);
        let on_event = |event: &CacheEvent<'_, PodView>| {
            if event.old == event.new {
                return;
            }
            let pods = [event.old, event.new].into_iter().flatten();
            for name in pods.filter_map(|pod| pod.label(0)) {
                self.queue.add(Key::new(&event.key.namespace, name));
            }
        };
        let selection = pods::selection().labels(P::POD_LABELS[0]);
        run_watch(api, selection, cache, health, view, on_event).await;
    }

    fn on_child_event(&self, event: &CacheEvent<'_, ChildView>) {
        let namespace = &event.key.namespace;
        for child in [event.old, event.new].into_iter().flatten() {
            if let Some(owner) = child.owner() {
                self.queue.add(Key::new(namespace, owner));
            }
        }
        // The name is free: objects that wait for it may create their child now.
        let waiting = self.waiting().remove(event.key);
        for key in waiting.into_iter().flatten() {
            if let Some(memory) = self.memories().get_mut(&key) {
                memory.pace.reset();
            }
            self.queue.add(key);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Key, BTreeSet<Key>>> {
        self.waiting.lock()
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memories.lock()
    }

    fn now(&self) -> DateTime<Utc> {
        (self.context.clock)()
    }
}

/// Decodes the stored status. A malformed status is replaced, unless it may record that a child was
/// created that must not be created a second time.
fn read_status<P: Parent>(parent: &ParentView) -> serde_json::Result<Status<P>> {
    match serde_json::from_str::<Option<Status<P>>>(parent.status.text()) {
        Ok(status) => Ok(status.unwrap_or_default()),
        Err(error) if P::ONCE => Err(error),
        Err(_) => Ok(Status::<P>::default()),
    }
}

/// The view of a child of this kind.
fn view<P: Parent>(child: StoredChild<P>) -> ChildView {
    ChildView::of::<<P::Rules as Rules>::Object, _>(child)
}

impl<P: Parent> Reconciler for Controller<P> {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(parent) = self.parents.get(key) else {
            self.memories().remove(key);
            self.waiting().retain(|_, waiting| {
                waiting.remove(key);
                !waiting.is_empty()
            });
            return Ok(Action::default());
        };
        if parent.deleting {
            // The garbage collector deletes or orphans the child by its owner reference.
            return Ok(Action::default());
        }
        let before = read_status::<P>(&parent).map_err(|error| Error::Unreadable {
            object: key.clone(),
            reason: format!("its status is not one that this program wrote: {error}"),
        })?;
        let (name, annotations) = (&*key.name, &parent.annotations);
        match decode_and_validate::<P::Rules>(name, annotations, parent.spec.text(), self.now()) {
            Ok(spec) => {
                let owner = Owner {
                    key,
                    uid: &parent.uid,
                    generation: parent.generation,
                    spec: &spec,
                    status: &before,
                };
                self.memories().entry(key.clone()).or_default().sync(&owner);
                Reconcile {
                    this: self,
                    parent: &parent,
                    owner: &owner,
                    work: Work::default(),
                }
                .run()
                .await
            }
            Err(faults) => {
                let mut after = before.clone();
                P::rejected(&mut after);
                let (observed, conditions) = after.observed();
                *observed = parent.generation;
                let message = faults::join(&faults);
                let (generation, now) = (parent.generation, self.now());
                condition::set(
                    conditions, ACCEPTED, false, "Invalid", &message, generation, now,
                );
                let event = changed_to(&before, &after, ACCEPTED, "False").then_some(NewEvent {
                    severity: Severity::Warning,
                    reason: "Invalid",
                    action: "Validate",
                    note: message,
                });
                self.write(key, &parent, &before, &after).await?;
                self.publish(key, &parent.uid, event);
                Ok(Action::default())
            }
        }
    }
}

impl Memory {
    /// Whether this child is older than our last write to it. Writes older than [`MAX_LAG`] do not
    /// count: after a restore of etcd, versions start again below them.
    fn is_ahead_of(&self, child: &ChildView) -> bool {
        let version = child.version.parse::<u64>();
        self.written.as_ref().is_some_and(|(name, written, since)| {
            *name == child.name
                && since.elapsed() <= MAX_LAG
                && version.is_ok_and(|version| version < *written)
        })
    }

    /// Resets what belongs to another object of the same name, and the failures of an earlier spec.
    fn sync<P: Parent>(&mut self, owner: &Owner<'_, P>) {
        if self.uid != owner.uid {
            *self = Self {
                uid: owner.uid.to_owned(),
                ..Self::default()
            };
        }
        if self.generation != owner.generation {
            self.generation = owner.generation;
            (self.pace, self.deletions) = (Backoff::default(), Backoff::default());
            (self.trouble, self.leftover) = (None, None);
        }
    }
}

/// Whether the condition has that status now, and had another status or reason before.
fn changed_to<S: super::Observed>(before: &S, after: &S, type_: &str, status: &str) -> bool {
    let state = |of: &S| {
        let mut of = of.clone();
        let (_, conditions) = of.observed();
        condition::get(conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let now = state(after);
    now.as_ref().is_some_and(|(is, _)| is == status) && state(before) != now
}

impl<P: Parent> Controller<P> {
    /// Writes the status if it has changed. Returns the resulting version of the object.
    async fn write(
        &self,
        key: &Key,
        parent: &ParentView,
        before: &Status<P>,
        after: &Status<P>,
    ) -> Result<Option<String>, Error> {
        if before == after {
            return Ok(None);
        }
        let (client, uid, version) = (&self.context.client, &parent.uid, &parent.version);
        let request = write::status::<Stored<P>, _>(client, key, uid, version, after);
        // A deleted object needs no status.
        let written = if_there(call("write the status", key, request).await)?;
        Ok(written.and_then(|object| object.metadata.resource_version))
    }

    fn publish(&self, key: &Key, uid: &str, events: impl IntoIterator<Item = NewEvent>) {
        for event in events {
            let about = event::about::<<P::Rules as Rules>::Object>(key, uid);
            self.context.events.publish(about, event);
        }
    }
}

/// What one reconcile did, and what blocks it.
#[derive(Default)]
struct Work {
    did: Vec<String>,
    trouble: Option<Trouble>,
    next: Option<DateTime<Utc>>,
    /// The object is gone or has a newer spec, which the watch will deliver: there is nothing to report for this one.
    is_outdated: bool,
}

/// One reconcile pass over an object with a valid spec.
struct Reconcile<'a, P: Parent> {
    this: &'a Controller<P>,
    parent: &'a ParentView,
    owner: &'a Owner<'a, P>,
    work: Work,
}

impl<P: Parent> Reconcile<'_, P> {
    async fn run(mut self) -> Result<Action, Error> {
        let want = P::child(self.owner);
        let found = self.ensure_child(&want).await;
        // Publish and log what was done, even if a later step failed.
        let reported = match &found {
            Ok(child) if !self.work.is_outdated => {
                self.report_status(&want, child.as_deref()).await
            }
            Ok(_) | Err(_) => Ok(()),
        };
        let did = (!self.work.did.is_empty()).then(|| self.work.did.join(", "));
        let failed = found.err().or(reported.err());
        match failed {
            None => Ok(Action {
                requeue_at: self.work.next,
                did,
            }),
            Some(error) => {
                if let Some(did) = did {
                    tracing::info!(controller = P::NAME, object = %self.owner.key, "{did}");
                }
                Err(error)
            }
        }
    }

    /// Brings the child to the desired state as far as possible. Returns the child if the object controls it.
    async fn ensure_child(&mut self, want: &Child) -> Result<Option<Arc<ChildView>>, Error> {
        let key = Key::new(&self.owner.key.namespace, &want.name);
        let body = self.body(want);
        let wanted = hash(&body);
        let cached = self.this.children.get(&key);
        // A child that the watch has not caught up with would look like drift.
        let mut child = cached.filter(|child| !self.memory(|memory| memory.is_ahead_of(child)));
        // Whether `child` is the API server's answer to a read or write of this pass.
        let mut live = false;
        // The child before its conflicting list was replaced.
        let mut replaced = None;
        for _ in 0..MAX_STEPS {
            let found = match &child {
                Some(child) => Found::There { child, live },
                None if live => Found::Absent,
                None => Found::Unknown,
            };
            let memory = self.memory(|memory| {
                match (&child, live) {
                    (Some(child), _) => {
                        memory.own = self.is_own(child).then(|| child.name.clone());
                    }
                    (None, true) => memory.own = None,
                    (None, false) => {}
                }
                memory.clone()
            });
            let policy = child.as_deref().map_or(DriftPolicy::Equal, |child| {
                P::drift_policy(self.owner, child)
            });
            let decision = decide(&Observed {
                uid: self.owner.uid,
                name: &self.owner.key.name,
                wanted,
                create: want.create,
                policy: &policy,
                found,
                applied: memory.applied,
                known: memory.own.as_ref() == Some(&want.name),
                not_before: memory.pace.not_before(self.this.now()),
            });
            match decision {
                Decision::UpToDate => {
                    let own = child.filter(|child| self.is_own(child));
                    self.memory(|memory| memory.trouble = None);
                    if let Some(child) = &own {
                        self.delete_others(child).await?;
                    }
                    return Ok(own);
                }
                Decision::WaitUntil(until) => {
                    self.work.next = Some(until);
                    self.work.trouble = memory.trouble;
                    return Ok(child.filter(|child| self.is_own(child)));
                }
                Decision::GetLive => {
                    child = self.get_live(&want.name).await?.map(Arc::new);
                    live = true;
                }
                Decision::Create | Decision::Apply | Decision::Adopt => {
                    // The object's watch may lag behind the child's. A child created or adopted for
                    // an object that is gone would start pods and then be garbage-collected; a
                    // resumed Job would run what the spec no longer says. So read the object live
                    // first.
                    let starts_pods =
                        decision != Decision::Apply || matches!(policy, DriftPolicy::Patch(_));
                    if starts_pods && !self.is_current().await? {
                        self.work.is_outdated = true;
                        return Ok(None);
                    }
                    let written = match (&child, policy) {
                        (None, _) if P::ONCE => self.create(&body).await,
                        (Some(child), DriftPolicy::Patch(patch)) => {
                            self.patch(child, patch, &body).await
                        }
                        _ => self.apply(want, &body, child.as_deref()).await,
                    };
                    match written {
                        Ok(view) => {
                            let before = replaced.take().or(child);
                            self.applied(want, wanted, before.as_deref(), &view);
                            child = Some(Arc::new(view));
                            live = true;
                        }
                        Err(error) => {
                            if replaced.is_none()
                                && let Some(present) = &child
                                && let Some(view) =
                                    self.replace_conflicting_list(present, &error).await?
                            {
                                replaced = child.replace(Arc::new(view));
                                live = true;
                                continue;
                            }
                            // Another child may have taken the name.
                            if child.is_none() && matches!(error.category(), "Invalid" | "Conflict")
                            {
                                child = self.get_live(&want.name).await?.map(Arc::new);
                                if child.is_some() {
                                    continue;
                                }
                            }
                            let Some(reason) = error.refusal() else {
                                return Err(error);
                            };
                            self.record_failure(REFUSED, reason.to_owned());
                            return Ok(child.filter(|child| self.is_own(child)));
                        }
                    }
                }
                Decision::Conflict { watched } => {
                    let message = P::conflict(&want.name);
                    if watched {
                        self.wait_for(&key, child.as_deref());
                        self.work.trouble = Some(Trouble {
                            reason: P::CONFLICT,
                            message,
                        });
                    } else {
                        self.record_failure(P::CONFLICT, message);
                    }
                    return Ok(None);
                }
                Decision::AwaitEnd { watched } => {
                    if want.create {
                        let (reason, message) = (TERMINATING, leaving::<P>(&want.name));
                        if watched {
                            self.wait_for(&key, child.as_deref());
                            self.work.trouble = Some(Trouble { reason, message });
                        } else {
                            self.record_failure(reason, message);
                        }
                    }
                    return Ok(child.filter(|child| self.is_own(child)));
                }
            }
        }
        Err(Error::DidNotConverge {
            object: self.owner.key.clone(),
            steps: MAX_STEPS,
        })
    }

    fn is_own(&self, child: &ChildView) -> bool {
        child.owner_uid() == Some(self.owner.uid)
    }

    /// The child as it is applied.
    fn body(&self, want: &Child) -> Value {
        let owner = self.owner;
        let mut body = want.fields.clone();
        body["apiVersion"] = P::Child::api_version(&()).into();
        body["kind"] = P::Child::kind(&()).into();
        let metadata = &mut body["metadata"];
        metadata["name"] = want.name.as_str().into();
        metadata["namespace"] = (*owner.key.namespace).into();
        metadata["labels"][MANAGED_BY] = MANAGER.into();
        metadata["labels"][COMPONENT] = P::NAME.into();
        let annotation = owner_annotation::<<P::Rules as Rules>::Object>();
        metadata["annotations"][annotation] = (*owner.key.name).into();
        let reference =
            write::controller_reference::<<P::Rules as Rules>::Object>(&owner.key.name, owner.uid);
        metadata["ownerReferences"] = json!([reference]);
        body
    }

    fn memory<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.this.memories();
        change(memories.entry(self.owner.key.clone()).or_default())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.this.context.client.clone(), &self.owner.key.namespace)
    }

    async fn get_live(&self, name: &str) -> Result<Option<ChildView>, Error> {
        let api = self.api::<StoredChild<P>>();
        let found = if_there(read("read the child", self.owner.key, api.get(name)).await)?;
        Ok(found.map(view::<P>))
    }

    /// Whether, by a live read, the object exists, is not being deleted, and has this generation.
    async fn is_current(&self) -> Result<bool, Error> {
        let api = self.api::<Stored<P>>();
        let request = api.get_metadata(&self.owner.key.name);
        let there = if_there(read("read the object", self.owner.key, request).await)?;
        let is_it = |meta: &ObjectMeta| {
            meta.uid.as_deref() == Some(self.owner.uid)
                && meta.deletion_timestamp.is_none()
                && meta.generation == self.owner.generation
        };
        Ok(there.is_some_and(|object| is_it(&object.metadata)))
    }

    /// Creates the child; fails if one of its name exists.
    async fn create(&self, body: &Value) -> Result<ChildView, Error> {
        let (client, key) = (&self.this.context.client, self.owner.key);
        let request = async {
            let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
            write::create::<P::Child, StoredChild<P>>(client, &key.namespace, body).await
        };
        Ok(view::<P>(call("create the child", key, request).await?))
    }

    /// Sends the patch that the kind asks for. An orphan also gets the owner reference.
    async fn patch(
        &self,
        child: &ChildView,
        mut patch: Value,
        body: &Value,
    ) -> Result<ChildView, Error> {
        if !self.is_own(child) {
            patch["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
        }
        self.merge("change the child", child, patch).await
    }

    /// Sends a strategic merge patch that applies only to this UID and version of the child.
    async fn merge(
        &self,
        step: &'static str,
        child: &ChildView,
        mut patch: Value,
    ) -> Result<ChildView, Error> {
        let metadata = &mut patch["metadata"];
        metadata["uid"] = child.uid.as_str().into();
        metadata["resourceVersion"] = child.version.as_str().into();
        let api = self.api::<StoredChild<P>>();
        let (params, patch) = (write::patch_params(), Patch::Strategic(&patch));
        let request = api.patch(&child.name, &params, &patch);
        Ok(view::<P>(call(step, self.owner.key, request).await?))
    }

    /// Creates the child, or applies to this one. An orphan, and the first child after a start, are
    /// written only at the version that was read: the lists of a new process may come from an API
    /// server that lags behind, and by then the child may have been orphaned and adopted by a
    /// successor of the object. Applying the old owner would get the child garbage-collected.
    async fn apply(
        &self,
        want: &Child,
        body: &Value,
        present: Option<&ChildView>,
    ) -> Result<ChildView, Error> {
        let params = PatchParams {
            // An absent child has no fields of others. If it has some, it is another child of that
            // name, and must be left alone.
            force: present.is_some(),
            field_validation: Some(ValidationDirective::Strict),
            ..write::patch_params()
        };
        let mut body = body.clone();
        if let Some(present) = present {
            body["metadata"]["uid"] = present.uid.as_str().into();
            if !self.is_own(present) || self.memory(|memory| memory.applied.is_none()) {
                body["metadata"]["resourceVersion"] = present.version.as_str().into();
            }
        }
        let api = self.api::<StoredChild<P>>();
        let patch = Patch::Apply(&body);
        let step = if present.is_some() {
            "put the child right"
        } else {
            "create the child"
        };
        let request = api.patch(&want.name, &params, &patch);
        Ok(view::<P>(call(step, self.owner.key, request).await?))
    }

    /// Replaces the list in this child that the API server rejected our apply for
    /// (`FieldValueDuplicate`), if the child still has the version that was read. Returns the child
    /// if that succeeded.
    async fn replace_conflicting_list(
        &self,
        child: &ChildView,
        said: &Error,
    ) -> Result<Option<ChildView>, Error> {
        let status = said.status().filter(|status| status.code == 422);
        let details = status.and_then(|status| status.details.as_ref());
        // Admission policies reject with 422 too, but name no field.
        let mut twice = details
            .iter()
            .flat_map(|details| &details.causes)
            .filter(|cause| cause.reason == "FieldValueDuplicate");
        let Some(patch) = twice.find_map(|cause| P::replace_conflicting_list(&cause.field)) else {
            return Ok(None);
        };
        match self
            .merge("replace the conflicting list in the child", child, patch)
            .await
        {
            Ok(child) => Ok(Some(child)),
            Err(error) if error.refusal().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers what was applied, and records what it changed.
    fn applied(
        &mut self,
        want: &Child,
        wanted: u64,
        before: Option<&ChildView>,
        after: &ChildView,
    ) {
        let now = self.this.now();
        let done = self.memory(|memory| {
            // Resource versions are increasing integers (Kubernetes' KEP-5504).
            let version = after.version.parse().ok();
            memory.written = version.map(|version| (after.name.clone(), version, Instant::now()));
            let last = memory.applied.replace((wanted, after.print));
            let again = last.is_some_and(|(last, _)| last == wanted);
            let done = match before {
                None => Done::Created,
                Some(_) if P::ONCE => Done::Nothing,
                Some(before) if before.print == after.print => Done::Nothing,
                Some(_) if again => Done::Restored,
                Some(_) => Done::Changed,
            };
            // A client that deletes what we apply is a conflicting writer too.
            let rival = again && done != Done::Nothing;
            memory.pace.succeeded(rival, now);
            if done != Done::Nothing {
                memory.unpublished = done;
            }
            done
        });
        let what = match done {
            Done::Nothing if P::ONCE => "changed",
            Done::Nothing => return,
            Done::Created => "created",
            Done::Changed => "changed",
            Done::Restored => "put right",
        };
        let did = format!("{what} {} {}", P::Child::kind(&()), want.name);
        self.work.did.push(did);
    }

    /// Requeues the object when that child changes. `seen` is the child as the cache had it.
    fn wait_for(&self, child: &Key, seen: Option<&ChildView>) {
        let (key, this) = (self.owner.key, self.this);
        this.waiting()
            .entry(child.clone())
            .or_default()
            .insert(key.clone());
        // The child may have changed before this object was registered.
        let cached = this.children.get(child);
        if cached.as_deref().map(|child| &child.version) != seen.map(|child| &child.version) {
            this.queue.add(key.clone());
        }
    }

    fn record_failure(&mut self, reason: &'static str, message: String) {
        let now = self.this.now();
        let trouble = Trouble { reason, message };
        self.work.trouble = Some(trouble.clone());
        self.work.next = Some(self.memory(|memory| {
            memory.trouble = Some(trouble);
            memory.pace.failed(now)
        }));
    }

    /// Deletes the object's children of other names.
    async fn delete_others(&mut self, present: &ChildView) -> Result<(), Error> {
        let mut others = self.this.children.find(self.owner.uid);
        others.retain(|child| {
            child.name != present.name && !child.deleting && P::deletes_other(present, child)
        });
        let now = self.this.now();
        let not_before = self.memory(|memory| memory.deletions.not_before(now));
        if let Some(until) = not_before.filter(|_| !others.is_empty()) {
            self.work.next = Some(until);
            return Ok(());
        }
        // By an outdated spec, the child of the current spec would be one of the others.
        if !others.is_empty() && !self.is_current().await? {
            self.work.is_outdated = true;
            return Ok(());
        }
        let mut refused = None;
        for other in others {
            let mut params = write::only(&other.uid, Some(&other.version));
            // Jobs default to orphaning their pods.
            params.propagation_policy = Some(PropagationPolicy::Background);
            let api = self.api::<StoredChild<P>>();
            let request = api.delete(&other.name, &params);
            match call("delete the child before", self.owner.key, request).await {
                Ok(_) => {
                    let did = format!("deleted {} {}", P::Child::kind(&()), other.name);
                    let event = NewEvent {
                        severity: Severity::Normal,
                        reason: "Deleted",
                        action: "Delete",
                        note: format!("{did}, which is of an earlier spec"),
                    };
                    self.this.publish(self.owner.key, self.owner.uid, [event]);
                    self.work.did.push(did);
                }
                Err(error) if error.category() == "NotFound" => {}
                Err(error) => match error.refusal() {
                    Some(reason) => refused = Some((other.name.clone(), reason.to_owned())),
                    None => return Err(error),
                },
            }
        }
        let leftover = refused.map(|(name, rejection)| Trouble {
            reason: REFUSED,
            message: format!(
                "{} {name:?}, which is of an earlier spec, cannot be deleted: {rejection}",
                P::Child::kind(&())
            ),
        });
        self.work.next = self.memory(|memory| {
            memory.leftover = leftover;
            if memory.leftover.is_some() {
                return Some(memory.deletions.failed(now));
            }
            memory.deletions = Backoff::default();
            None
        });
        Ok(())
    }

    /// Writes the status and publishes the Events.
    async fn report_status(
        &mut self,
        want: &Child,
        child: Option<&ChildView>,
    ) -> Result<(), Error> {
        let (this, owner) = (self.this, self.owner);
        // Empty if the kind watches no pods.
        let pods = this
            .pods
            .find_with_keys(&PodView::index(&owner.key.namespace, &owner.key.name));
        let now = this.now();
        let (done, settles, leftover) = self.memory(|memory| {
            let settles = memory.pace.contested_until(now);
            (memory.unpublished, settles, memory.leftover.clone())
        });
        let before = owner.status;
        let mut after = before.clone();
        let (observed, conditions) = after.observed();
        *observed = owner.generation;
        let set = |conditions: &mut _, type_, status, reason: &str, message: &str| {
            condition::set(
                conditions,
                type_,
                status,
                reason,
                message,
                owner.generation,
                now,
            );
        };
        let obeys = "the spec obeys the rules";
        set(conditions, ACCEPTED, true, "Valid", obeys);
        let trouble = self.work.trouble.take();
        let obstacle = match settles {
            // A conflict loop is worth more attention than a child that is being deleted.
            Some(_) if trouble.as_ref().is_none_or(|it| it.reason == TERMINATING) => {
                Some(conflict_loop::<P>(&want.name))
            }
            _ => trouble,
        };
        let Report {
            events,
            trouble,
            next,
        } = P::report(
            &Seen {
                owner,
                child: child.filter(|child| !child.deleting),
                leaving: child.is_some_and(|child| child.deleting),
                done,
                trouble: obstacle.as_ref(),
                pods: &pods,
                now,
            },
            &mut after,
        );
        let trouble = obstacle.or(trouble).or(leftover);
        let (_, conditions) = after.observed();
        let (degraded, reason, message) = match &trouble {
            Some(trouble) => (true, trouble.reason, trouble.message.as_str()),
            None => (false, "AsDesired", "nothing is in the way"),
        };
        set(conditions, DEGRADED, degraded, reason, message);
        let times = [self.work.next, next, settles];
        self.work.next = times.into_iter().flatten().min();
        let not_before = self.memory(|memory| memory.statuses.not_before(owner.generation, now));
        if let Some(until) = not_before.filter(|_| *before != after) {
            self.work.next = self.work.next.into_iter().chain([until]).min();
            return Ok(());
        }
        let version = this.write(owner.key, self.parent, before, &after).await?;
        // Cleared only now: if the write above fails, the next reconcile publishes it.
        self.memory(|memory| {
            memory.unpublished = Done::Nothing;
            if let Some(version) = version {
                let before = (before, self.parent.version.as_str());
                let after = (&after, version.as_str());
                memory.statuses.wrote(owner.generation, before, after, now);
            }
        });
        // A child that is being deleted is no reason for a warning.
        let warned = trouble.filter(|trouble| trouble.reason != TERMINATING);
        let warning = warned.filter(|_| changed_to(before, &after, DEGRADED, "True"));
        let warning = warning.map(|trouble| NewEvent {
            severity: Severity::Warning,
            reason: trouble.reason,
            action: "Apply",
            note: trouble.message,
        });
        let all = child_event::<P>(done, want).into_iter().chain(warning);
        this.publish(owner.key, owner.uid, all.chain(events));
        Ok(())
    }
}

/// The Event for what was done with the child.
fn child_event<P: Parent>(done: Done, want: &Child) -> Option<NewEvent> {
    let child = format!("{} {}", P::Child::kind(&()), want.name);
    let (reason, note) = match done {
        Done::Nothing => return None,
        Done::Created => ("Created", format!("created {child}")),
        Done::Changed => ("Updated", format!("changed {child} as the spec says")),
        Done::Restored => ("Restored", format!("put {child} right, which was changed")),
    };
    Some(NewEvent {
        severity: Severity::Normal,
        reason,
        action: "Apply",
        note,
    })
}

/// Message for a child that is being deleted, whether of this object or of an earlier one of its name.
fn leaving<P: Parent>(name: &str) -> String {
    let child = P::Child::kind(&());
    format!("{child} {name:?} is being deleted, and is made again when it is gone")
}

/// Something else keeps changing the child back.
fn conflict_loop<P: Parent>(name: &str) -> Trouble {
    Trouble {
        reason: "Contested",
        message: format!(
            "{} {name:?} is changed again and again by others: it is put right with growing pauses",
            P::Child::kind(&())
        ),
    }
}

fn hash(body: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn child(name: &str, version: &str) -> ChildView {
        let object = json!({"metadata": {"name": name, "resourceVersion": version}});
        let object = serde_json::from_str(&object.to_string()).unwrap();
        ChildView::of::<ConfigMap, Deployment>(object)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lagging_watch_is_not_drift() {
        let memory = Memory {
            written: Some(("c".to_owned(), 10, Instant::now())),
            ..Memory::default()
        };
        for (name, version, ahead) in [
            ("c", "9", true),
            ("c", "10", false),
            ("c", "11", false),
            ("other", "9", false),
            ("c", "no number", false),
        ] {
            assert_eq!(
                memory.is_ahead_of(&child(name, version)),
                ahead,
                "{name} {version}"
            );
        }
        assert!(!Memory::default().is_ahead_of(&child("c", "1")));
        // A watch that lags further than this follows a restore of the API server's data.
        tokio::time::sleep(MAX_LAG).await;
        assert!(memory.is_ahead_of(&child("c", "9")));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!memory.is_ahead_of(&child("c", "9")));
    }
}
