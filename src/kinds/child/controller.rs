//! The thin edge: watches, and the calls that [`super::decision`] decides on.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use kube::api::{Patch, PatchParams, PropagationPolicy, ValidationDirective};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::decision::{Act, Found, Observed, Trouble, decide};
use super::view::{COMPONENT, ChildView, ParentView, owner_annotation};
use super::{
    Child, DEGRADED, Done, DriftPolicy, Observed as _, Owner, Parent, Report, Seen, Status,
};
use crate::admission::faults;
use crate::admission::rules::{Rules, settle};
use crate::kinds::pods::{self, Pod, PodView};
use crate::reconcile::cache::{Cache, CacheEvent, Source, follow};
use crate::reconcile::condition::{self, ACCEPTED};
use crate::reconcile::event::{self, NewEvent, Severity};
use crate::reconcile::own::MAX_LAG;
use crate::reconcile::pace::{Backoff, StatusWrites};
use crate::reconcile::queue::Queue;
use crate::reconcile::raw::Object;
use crate::reconcile::watch::Selection;
use crate::reconcile::write::{self, MANAGED_BY, MANAGER};
use crate::reconcile::{Action, Context, Error, Key, Reconciler, call, if_there, read, runner};

/// More steps than any way through the decision has: a bug must not become a hot loop.
const MAX_STEPS: usize = 8;
/// So many objects come in one page of a list.
const PAGE: u32 = 100;

/// Reason of [`DEGRADED`]: the API server refuses a write, in the words of the message.
const REFUSED: &str = "Refused";
/// Reason of [`DEGRADED`]: a child is on its way out.
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
    /// The objects that wait for a child of somebody else to go, by that child.
    waiting: Mutex<HashMap<Key, BTreeSet<Key>>>,
    kind: PhantomData<fn() -> P>,
}

/// What is remembered of an object besides what is stored. Nothing but pace depends on it.
#[derive(Clone, Debug, Default)]
struct Memory {
    uid: String,
    generation: Option<i64>,
    /// Hash of what was applied last, and the print of what it became.
    applied: Option<(u64, u64)>,
    /// The child that was written last, by name, its version then, and when that was.
    written: Option<(String, u64, Instant)>,
    /// The child that was the object's own when it was seen last, by name.
    own: Option<String>,
    /// The pace of attempts at the child, and what stands in their way.
    pace: Backoff,
    trouble: Option<Trouble>,
    /// The same of the deletion of earlier children.
    retiring: Backoff,
    leftover: Option<Trouble>,
    statuses: StatusWrites,
    /// What was done with the child and not told yet, the status not having been written since.
    untold: Done,
}

impl<P: Parent> Controller<P> {
    async fn watch_parents(self: Arc<Self>, api: Api<Stored<P>>) {
        let (cache, health) = (self.parents.clone(), self.context.watch_health());
        let touched = |touched: &CacheEvent<'_, ParentView>| touched.enqueue(&self.queue);
        let selection = Selection::default().page(PAGE);
        follow(api, selection, cache, health, ParentView::of, touched).await;
    }

    async fn watch_children(self: Arc<Self>, api: Api<StoredChild<P>>) {
        let (cache, health) = (self.children.clone(), self.context.watch_health());
        let touched = |touched: &CacheEvent<'_, ChildView>| self.child_touched(touched);
        let labels = format!("{MANAGED_BY}={MANAGER},{COMPONENT}={}", P::NAME);
        let selection = Selection::default().page(PAGE).labels(&labels);
        follow(api, selection, cache, health, view::<P>, touched).await;
    }

    async fn watch_pods(self: Arc<Self>, api: Api<Pod>) {
        let (cache, health) = (self.pods.clone(), self.context.watch_health());
        let view = |pod| PodView::of(pod, P::POD_LABELS);
        let touched = |touched: &CacheEvent<'_, PodView>| {
            if touched.old == touched.new {
                return;
            }
            let pods = [touched.old, touched.new].into_iter().flatten();
            for name in pods.filter_map(|pod| pod.label(0)) {
                self.queue.add(Key::new(&touched.key.namespace, name));
            }
        };
        let selection = pods::selection().labels(P::POD_LABELS[0]);
        follow(api, selection, cache, health, view, touched).await;
    }

    fn child_touched(&self, touched: &CacheEvent<'_, ChildView>) {
        let namespace = &touched.key.namespace;
        for child in [touched.old, touched.new].into_iter().flatten() {
            if let Some(owner) = child.owner() {
                self.queue.add(Key::new(namespace, owner));
            }
        }
        // Who wants its place may have it now.
        let waiting = self.waiting().remove(touched.key);
        for key in waiting.into_iter().flatten() {
            if let Some(memory) = self.memories().get_mut(&key) {
                memory.pace.reset();
            }
            self.queue.add(key);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Key, BTreeSet<Key>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> DateTime<Utc> {
        (self.context.clock)()
    }
}

/// The status as it is stored. One that cannot be read is replaced, unless it may record that a child was made that must
/// not be made a second time.
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
            // Its child goes, or stays, by its owner reference.
            return Ok(Action::default());
        }
        let before = read_status::<P>(&parent).map_err(|error| Error::Unreadable {
            object: key.clone(),
            reason: format!("its status is not one that this program wrote: {error}"),
        })?;
        let (name, annotations) = (&*key.name, &parent.annotations);
        match settle::<P::Rules>(name, annotations, parent.spec.text(), self.now()) {
            Ok(spec) => {
                let owner = Owner {
                    key,
                    uid: &parent.uid,
                    generation: parent.generation,
                    spec: &spec,
                    status: &before,
                };
                self.memories().entry(key.clone()).or_default().meet(&owner);
                Reconcile {
                    this: self,
                    parent: &parent,
                    owner: &owner,
                    work: Work::default(),
                }
                .take()
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
                let news = turned(&before, &after, ACCEPTED, "False").then_some(NewEvent {
                    severity: Severity::Warning,
                    reason: "Invalid",
                    action: "Validate",
                    note: message,
                });
                self.write(key, &parent, &before, &after).await?;
                self.publish(key, &parent.uid, news);
                Ok(Action::default())
            }
        }
    }
}

impl Memory {
    /// Whether this is a child as it was before it was written last. A write of long ago does not count: after a
    /// restore of etcd versions are lower than it.
    fn is_ahead_of(&self, child: &ChildView) -> bool {
        let version = child.version.parse::<u64>();
        self.written.as_ref().is_some_and(|(name, written, since)| {
            *name == child.name
                && since.elapsed() <= MAX_LAG
                && version.is_ok_and(|version| version < *written)
        })
    }

    /// Forgets what was of another object of that name, and what stood in the way of another spec.
    fn meet<P: Parent>(&mut self, owner: &Owner<'_, P>) {
        if self.uid != owner.uid {
            *self = Self {
                uid: owner.uid.to_owned(),
                ..Self::default()
            };
        }
        if self.generation != owner.generation {
            self.generation = owner.generation;
            (self.pace, self.retiring) = (Backoff::default(), Backoff::default());
            (self.trouble, self.leftover) = (None, None);
        }
    }
}

/// Whether a condition has that status, and had another or another reason before.
fn turned<S: super::Observed>(before: &S, after: &S, type_: &str, status: &str) -> bool {
    let state = |of: &S| {
        let mut of = of.clone();
        let (_, conditions) = of.observed();
        condition::get(conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let now = state(after);
    now.as_ref().is_some_and(|(is, _)| is == status) && state(before) != now
}

impl<P: Parent> Controller<P> {
    /// Writes the status if it has changed, and returns the object's version then.
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
        // If the object is gone, nobody is left to read it.
        let written = if_there(call("write the status", key, request).await)?;
        Ok(written.and_then(|object| object.metadata.resource_version))
    }

    fn publish(&self, key: &Key, uid: &str, news: impl IntoIterator<Item = NewEvent>) {
        for news in news {
            let about = event::about::<<P::Rules as Rules>::Object>(key, uid);
            self.context.events.publish(about, news);
        }
    }
}

/// What was done in one look, and what stands in the way.
#[derive(Default)]
struct Work {
    did: Vec<String>,
    trouble: Option<Trouble>,
    next: Option<DateTime<Utc>>,
    /// The object is gone or has another spec, which its watch is about to bring: there is nothing to report of this one.
    is_outdated: bool,
}

/// One look at one object whose spec obeys the rules.
struct Reconcile<'a, P: Parent> {
    this: &'a Controller<P>,
    parent: &'a ParentView,
    owner: &'a Owner<'a, P>,
    work: Work,
}

impl<P: Parent> Reconcile<'_, P> {
    async fn take(mut self) -> Result<Action, Error> {
        let want = P::child(self.owner);
        let found = self.bring_about(&want).await;
        // What was done is told, and logged, whatever came after it.
        let told = match &found {
            Ok(child) if !self.work.is_outdated => self.tell(&want, child.as_deref()).await,
            Ok(_) | Err(_) => Ok(()),
        };
        let did = (!self.work.did.is_empty()).then(|| self.work.did.join(", "));
        let failed = found.err().or(told.err());
        match failed {
            None => Ok(Action {
                next: self.work.next,
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

    /// Does what can be done for the child; returns it, if it is the object's own.
    async fn bring_about(&mut self, want: &Child) -> Result<Option<Arc<ChildView>>, Error> {
        let key = Key::new(&self.owner.key.namespace, &want.name);
        let body = self.body(want);
        let wanted = hash(&body);
        let cached = self.this.children.get(&key);
        // What the watch has not brought yet would look like a drift.
        let mut child = cached.filter(|child| !self.memory(|memory| memory.is_ahead_of(child)));
        // Whether the API server was asked just now, or has answered a write.
        let mut live = false;
        // The child before room was made in it.
        let mut crowded = None;
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
            let upkeep = child
                .as_deref()
                .map_or(DriftPolicy::Equal, |child| P::upkeep(self.owner, child));
            let act = decide(&Observed {
                uid: self.owner.uid,
                name: &self.owner.key.name,
                wanted,
                create: want.create,
                upkeep: &upkeep,
                found,
                applied: memory.applied,
                known: memory.own.as_ref() == Some(&want.name),
                hold: memory.pace.hold(self.this.now()),
            });
            match act {
                Act::Rest => {
                    let own = child.filter(|child| self.is_own(child));
                    self.memory(|memory| memory.trouble = None);
                    if let Some(child) = &own {
                        self.retire_others(child).await?;
                    }
                    return Ok(own);
                }
                Act::Hold(until) => {
                    self.work.next = Some(until);
                    self.work.trouble = memory.trouble;
                    return Ok(child.filter(|child| self.is_own(child)));
                }
                Act::Reconcile => {
                    child = self.look(&want.name).await?.map(Arc::new);
                    live = true;
                }
                Act::Create | Act::Apply | Act::Adopt => {
                    // The watch of the object may lag behind that of its child. What is made or taken for an object
                    // that is gone would start pods, and be deleted; a Job that is let go runs what the spec no
                    // longer says.
                    let starts_pods = act != Act::Apply || matches!(upkeep, DriftPolicy::Patch(_));
                    if starts_pods && !self.is_current().await? {
                        self.work.is_outdated = true;
                        return Ok(None);
                    }
                    let written = match (&child, upkeep) {
                        (None, _) if P::ONCE => self.create(&body).await,
                        (Some(child), DriftPolicy::Patch(patch)) => {
                            self.patch(child, patch, &body).await
                        }
                        _ => self.apply(want, &body, child.as_deref()).await,
                    };
                    match written {
                        Ok(view) => {
                            let before = crowded.take().or(child);
                            self.applied(want, wanted, before.as_deref(), &view);
                            child = Some(Arc::new(view));
                            live = true;
                        }
                        Err(error) => {
                            if crowded.is_none()
                                && let Some(present) = &child
                                && let Some(view) = self.make_room(present, &error).await?
                            {
                                crowded = child.replace(Arc::new(view));
                                live = true;
                                continue;
                            }
                            // Another child may have taken the name.
                            if child.is_none() && matches!(error.category(), "Invalid" | "Conflict")
                            {
                                child = self.look(&want.name).await?.map(Arc::new);
                                if child.is_some() {
                                    continue;
                                }
                            }
                            let Some(why) = error.refusal() else {
                                return Err(error);
                            };
                            self.in_vain(REFUSED, why.to_owned());
                            return Ok(child.filter(|child| self.is_own(child)));
                        }
                    }
                }
                Act::Conflict { watched } => {
                    let message = P::conflict(&want.name);
                    if watched {
                        self.wait_for(&key, child.as_deref());
                        self.work.trouble = Some(Trouble {
                            reason: P::CONFLICT,
                            message,
                        });
                    } else {
                        self.in_vain(P::CONFLICT, message);
                    }
                    return Ok(None);
                }
                Act::AwaitEnd { watched } => {
                    if want.create {
                        let (reason, message) = (TERMINATING, leaving::<P>(&want.name));
                        if watched {
                            self.wait_for(&key, child.as_deref());
                            self.work.trouble = Some(Trouble { reason, message });
                        } else {
                            self.in_vain(reason, message);
                        }
                    }
                    return Ok(child.filter(|child| self.is_own(child)));
                }
            }
        }
        Err(Error::Restless {
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

    async fn look(&self, name: &str) -> Result<Option<ChildView>, Error> {
        let api = self.api::<StoredChild<P>>();
        let found = if_there(read("read the child", self.owner.key, api.get(name)).await)?;
        Ok(found.map(view::<P>))
    }

    /// Whether the object is there, not being deleted, and of this generation, by the API server itself.
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

    /// Makes the child, if there is none of its name.
    async fn create(&self, body: &Value) -> Result<ChildView, Error> {
        let (client, key) = (&self.this.context.client, self.owner.key);
        let request = async {
            let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
            write::create::<P::Child, StoredChild<P>>(client, &key.namespace, body).await
        };
        Ok(view::<P>(call("create the child", key, request).await?))
    }

    /// Patches a child as its kind has it; an orphan is owned by it, as the body has it.
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

    /// Sends a strategic merge patch to this very child as it was looked at.
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

    /// Makes the child, or puts this one right; an orphan only if it is as it was looked at, and the first one since the
    /// start as well: the lists of a new process may come from an API server that lags behind, and by then the child
    /// may have been orphaned and adopted by a successor of the object. To apply the owner of old would have it
    /// collected as garbage.
    async fn apply(
        &self,
        want: &Child,
        body: &Value,
        present: Option<&ChildView>,
    ) -> Result<ChildView, Error> {
        let params = PatchParams {
            // What is not there yet has no fields of others. If it has, it is not the one that was
            // looked for, and is left alone.
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

    /// Makes room for ours in this child, if it is as it was looked at, the API server having said that
    /// of an apply; returns it, if there is anything that can be done.
    async fn make_room(&self, child: &ChildView, said: &Error) -> Result<Option<ChildView>, Error> {
        let status = said.status().filter(|status| status.code == 422);
        let details = status.and_then(|status| status.details.as_ref());
        // Policies refuse with that code too, and name no field.
        let mut twice = details
            .iter()
            .flat_map(|details| &details.causes)
            .filter(|cause| cause.reason == "FieldValueDuplicate");
        let Some(room) = twice.find_map(|cause| P::make_room(&cause.field)) else {
            return Ok(None);
        };
        match self.merge("make room in the child", child, room).await {
            Ok(child) => Ok(Some(child)),
            Err(error) if error.refusal().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers what was applied, and tells what changed by it.
    fn applied(
        &mut self,
        want: &Child,
        wanted: u64,
        before: Option<&ChildView>,
        after: &ChildView,
    ) {
        let now = self.this.now();
        let done = self.memory(|memory| {
            // Versions are numbers that grow (Kubernetes' KEP-5504).
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
            // Who deletes what is asked for writes against us too.
            let rival = again && done != Done::Nothing;
            memory.pace.succeeded(rival, now);
            if done != Done::Nothing {
                memory.untold = done;
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

    /// Has the object looked at again when that child, which the watch had like this, is touched.
    fn wait_for(&self, child: &Key, seen: Option<&ChildView>) {
        let (key, this) = (self.owner.key, self.this);
        this.waiting()
            .entry(child.clone())
            .or_default()
            .insert(key.clone());
        // What the watch brought since then found nobody waiting.
        let cached = this.children.get(child);
        if cached.as_deref().map(|child| &child.version) != seen.map(|child| &child.version) {
            this.queue.add(key.clone());
        }
    }

    fn in_vain(&mut self, reason: &'static str, message: String) {
        let now = self.this.now();
        let trouble = Trouble { reason, message };
        self.work.trouble = Some(trouble.clone());
        self.work.next = Some(self.memory(|memory| {
            memory.trouble = Some(trouble);
            memory.pace.failed(now)
        }));
    }

    /// Deletes the object's children of other names.
    async fn retire_others(&mut self, present: &ChildView) -> Result<(), Error> {
        let mut others = self.this.children.find(self.owner.uid);
        others.retain(|child| {
            child.name != present.name && !child.deleting && P::retires(present, child)
        });
        let now = self.this.now();
        let hold = self.memory(|memory| memory.retiring.hold(now));
        if let Some(until) = hold.filter(|_| !others.is_empty()) {
            self.work.next = Some(until);
            return Ok(());
        }
        // By a spec of old, the child of the present one would be one of the others.
        if !others.is_empty() && !self.is_current().await? {
            self.work.is_outdated = true;
            return Ok(());
        }
        let mut refused = None;
        for other in others {
            let mut params = write::only(&other.uid, Some(&other.version));
            // That of Jobs would leave their pods behind.
            params.propagation_policy = Some(PropagationPolicy::Background);
            let api = self.api::<StoredChild<P>>();
            let request = api.delete(&other.name, &params);
            match call("delete the child before", self.owner.key, request).await {
                Ok(_) => {
                    let did = format!("deleted {} {}", P::Child::kind(&()), other.name);
                    let news = NewEvent {
                        severity: Severity::Normal,
                        reason: "Deleted",
                        action: "Delete",
                        note: format!("{did}, which is of an earlier spec"),
                    };
                    self.this.publish(self.owner.key, self.owner.uid, [news]);
                    self.work.did.push(did);
                }
                Err(error) if error.category() == "NotFound" => {}
                Err(error) => match error.refusal() {
                    Some(why) => refused = Some((other.name.clone(), why.to_owned())),
                    None => return Err(error),
                },
            }
        }
        let leftover = refused.map(|(name, why)| Trouble {
            reason: REFUSED,
            message: format!(
                "{} {name:?}, which is of an earlier spec, cannot be deleted: {why}",
                P::Child::kind(&())
            ),
        });
        self.work.next = self.memory(|memory| {
            memory.leftover = leftover;
            if memory.leftover.is_some() {
                return Some(memory.retiring.failed(now));
            }
            memory.retiring = Backoff::default();
            None
        });
        Ok(())
    }

    /// Writes the status and tells the news.
    async fn tell(&mut self, want: &Child, child: Option<&ChildView>) -> Result<(), Error> {
        let (this, owner) = (self.this, self.owner);
        // Empty, where no pods are watched.
        let pods = this
            .pods
            .find_with_keys(&PodView::index(&owner.key.namespace, &owner.key.name));
        let now = this.now();
        let (done, settles, leftover) = self.memory(|memory| {
            let settles = memory.pace.contested_until(now);
            (memory.untold, settles, memory.leftover.clone())
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
        let in_the_way = match settles {
            // Who deletes it again and again is what people must know of.
            Some(_) if trouble.as_ref().is_none_or(|it| it.reason == TERMINATING) => {
                Some(contested::<P>(&want.name))
            }
            _ => trouble,
        };
        let Report {
            news,
            trouble,
            next,
        } = P::report(
            &Seen {
                owner,
                child: child.filter(|child| !child.deleting),
                leaving: child.is_some_and(|child| child.deleting),
                done,
                trouble: in_the_way.as_ref(),
                pods: &pods,
                now,
            },
            &mut after,
        );
        let trouble = in_the_way.or(trouble).or(leftover);
        let (_, conditions) = after.observed();
        let (degraded, reason, message) = match &trouble {
            Some(trouble) => (true, trouble.reason, trouble.message.as_str()),
            None => (false, "AsDesired", "nothing is in the way"),
        };
        set(conditions, DEGRADED, degraded, reason, message);
        let looks = [self.work.next, next, settles];
        self.work.next = looks.into_iter().flatten().min();
        let hold = self.memory(|memory| memory.statuses.hold(owner.generation, now));
        if let Some(until) = hold.filter(|_| *before != after) {
            self.work.next = self.work.next.into_iter().chain([until]).min();
            return Ok(());
        }
        let version = this.write(owner.key, self.parent, before, &after).await?;
        // Not published before: the next reconcile, after a conflict, publishes it.
        self.memory(|memory| {
            memory.untold = Done::Nothing;
            if let Some(version) = version {
                let before = (before, self.parent.version.as_str());
                let after = (&after, version.as_str());
                memory.statuses.wrote(owner.generation, before, after, now);
            }
        });
        // What is on its way out is nothing to worry about.
        let warned = trouble.filter(|trouble| trouble.reason != TERMINATING);
        let warning = warned.filter(|_| turned(before, &after, DEGRADED, "True"));
        let warning = warning.map(|trouble| NewEvent {
            severity: Severity::Warning,
            reason: trouble.reason,
            action: "Apply",
            note: trouble.message,
        });
        let all = child_news::<P>(done, want).into_iter().chain(warning);
        this.publish(owner.key, owner.uid, all.chain(news));
        Ok(())
    }
}

/// What was done with the child, for people.
fn child_news<P: Parent>(done: Done, want: &Child) -> Option<NewEvent> {
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

/// A child that is on its way out, of this object or of an earlier one of its name.
fn leaving<P: Parent>(name: &str) -> String {
    let child = P::Child::kind(&());
    format!("{child} {name:?} is being deleted, and is made again when it is gone")
}

/// A child was put right too often.
fn contested<P: Parent>(name: &str) -> Trouble {
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
    async fn what_the_watch_has_not_brought_yet_is_no_drift() {
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
        // A watch that is later than this is one after a restore of the API server's data.
        tokio::time::sleep(MAX_LAG).await;
        assert!(memory.is_ahead_of(&child("c", "9")));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!memory.is_ahead_of(&child("c", "9")));
    }
}
