//! The edge: watches, and the few calls that change something. What is to be done is decided
//! elsewhere, as a pure function.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::core::{PartialObjectMeta, Status};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::task::JoinSet;

use super::admission::MyDaemonSetRules;
use super::crd::{MyDaemonSet, MyDaemonSetStatus, RawMyDaemonSet};
use super::memory::{Memory, Written, created_text, deleted_text};
use super::placement::{Fate, Placement};
use super::pod::{self, NAME_LABEL, Owner, Plan};
use super::revision::{self, Content, RevisionView, WatchedRevision};
use super::rollout::{Create, Decision, Delete, Observed, Revisions, Strategy, Why, decide};
use super::status::{self, AUTO_PAUSED, PROGRESSING, RESUME_ANNOTATION, Refusal, Sight};
use super::views::{NodeView, PodView, WatchedNode, WatchedPod, controller as controller_of};
use crate::admission::faults::Fault;
use crate::admission::rules::settle;
use crate::reconcile::cache::{Cache, Touched, follow};
use crate::reconcile::event::{self, News, Severity};
use crate::reconcile::queue::Queue;
use crate::reconcile::write::{self, MANAGED_BY, MANAGER};
use crate::reconcile::{Context, Error, Key, Outcome, Reconciler, call, condition, runner};

/// The name of this controller in logs and figures.
const NAME: &str = "mydaemonset";
/// The most pods made at one look; the next look follows at once.
const MOST_CREATES: usize = 500;
/// When to look again whether a stranger's object still is in the way.
const CONFLICT_PAUSE: TimeDelta = TimeDelta::seconds(60);
/// So many calls for one object are under way at a time.
const CALLS: usize = 32;

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
    content: Content,
    canonical: String,
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
            resume: annotations.get(RESUME_ANNOTATION).cloned(),
            settled: settled.map(|spec| {
                let content = Content::of(&spec);
                let canonical = content.canonical();
                Settled {
                    strategy: Strategy::of(&spec),
                    placement: Placement::of(spec.template.as_ref()),
                    history: spec
                        .revision_history_limit
                        .and_then(|limit| usize::try_from(limit).ok())
                        .unwrap_or(10),
                    hash: revision::hash(&canonical),
                    canonical,
                    content,
                }
            }),
            status: status::read(&object.status),
        }
    }
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
            vec![pod.owner_uid.clone()]
        })),
        revisions: Arc::new(Cache::new(scopes, |revision: &RevisionView| {
            vec![revision.owner_uid.clone()]
        })),
        memories: Mutex::default(),
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
    let workers = async {
        // Before all of it is known, a pod that is there would look missing.
        let known = async {
            this.objects.synced().await;
            this.nodes.synced().await;
            this.pods.synced().await;
            this.revisions.synced().await;
        };
        tokio::select! {
            () = known => runner::run(NAME, this.clone(), this.queue.clone(), &context).await,
            () = context.stop.cancelled() => Ok(()),
        }
    };
    runner::join(watches, workers).await
}

struct Controller {
    context: Context,
    queue: Arc<Queue>,
    objects: Arc<Cache<ObjectView>>,
    nodes: Arc<Cache<NodeView>>,
    pods: Arc<Cache<PodView>>,
    revisions: Arc<Cache<RevisionView>>,
    memories: Mutex<HashMap<Key, Memory>>,
}

/// The pods and revisions that this operator made.
fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGER},{NAME_LABEL}"))
}

impl Controller {
    async fn watch_objects(self: Arc<Self>, api: Api<RawMyDaemonSet>) {
        let (cache, health) = (self.objects.clone(), self.context.health.clone());
        let clock = self.context.clock.clone();
        let view = |object| ObjectView::of(object, clock());
        let touched = |touched: &Touched<'_, ObjectView>| self.queue.add(touched.key.clone());
        follow(
            api,
            watcher::Config::default(),
            cache,
            health,
            view,
            touched,
        )
        .await;
    }

    async fn watch_pods(self: Arc<Self>, api: Api<WatchedPod>) {
        let (cache, health) = (self.pods.clone(), self.context.health.clone());
        let clock = self.context.clock.clone();
        let view = |pod| PodView::of(pod, clock());
        let touched = |touched: &Touched<'_, PodView>| self.pod_touched(touched);
        follow(api, ours(), cache, health, view, touched).await;
    }

    async fn watch_revisions(self: Arc<Self>, api: Api<WatchedRevision>) {
        let (cache, health) = (self.revisions.clone(), self.context.health.clone());
        let touched = |touched: &Touched<'_, RevisionView>| {
            if touched.old != touched.new
                && let Some(revision) = touched.new.or(touched.old)
            {
                self.queue
                    .add(Key::new(&touched.key.namespace, &revision.owner));
            }
        };
        follow(api, ours(), cache, health, RevisionView::of, touched).await;
    }

    async fn watch_nodes(self: Arc<Self>) {
        let api = Api::<WatchedNode>::all(self.context.client.clone());
        let (cache, health) = (self.nodes.clone(), self.context.health.clone());
        let clock = self.context.clock.clone();
        let view = |node| NodeView::of(node, clock());
        let touched = |touched: &Touched<'_, NodeView>| self.node_touched(touched);
        follow(
            api,
            watcher::Config::default(),
            cache,
            health,
            view,
            touched,
        )
        .await;
    }

    fn pod_touched(&self, touched: &Touched<'_, PodView>) {
        if touched.old == touched.new {
            return;
        }
        let mut owners: Vec<&PodView> = [touched.old, touched.new]
            .into_iter()
            .flatten()
            .filter(|pod| !pod.owner.is_empty())
            .collect();
        owners.dedup_by(|a, b| a.owner == b.owner);
        for pod in owners {
            let key = Key::new(&touched.key.namespace, &pod.owner);
            self.remember(&key, |memory| {
                memory.seen(&pod.name);
                if touched.new.is_none() && memory.uid == pod.owner_uid {
                    memory.gone(pod);
                }
            });
            self.queue.add(key);
        }
    }

    /// A node's heartbeat changes nothing in its view, and most changes of a node concern few
    /// objects.
    fn node_touched(&self, touched: &Touched<'_, NodeView>) {
        if touched.old == touched.new {
            return;
        }
        for key in self.objects.keys() {
            if let Some(object) = self.objects.get(&key)
                && let Ok(settled) = &object.settled
                && concerns(&settled.placement, touched.old, touched.new)
            {
                self.queue.add(key);
            }
        }
    }

    fn remember<T>(&self, key: &Key, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        change(memories.entry(key.clone()).or_default())
    }

    fn forget(&self, key: &Key) {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
    }

    fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.context.client.clone(), &key.namespace)
    }
}

/// Whether a change of a node can change what is decided for pods of that placement.
fn concerns(placement: &Placement, old: Option<&NodeView>, new: Option<&NodeView>) -> bool {
    let fate = |node: Option<&NodeView>| node.map(|node| placement.fate(node));
    let facts = |node: Option<&NodeView>| node.map(|node| (node.uid.clone(), node.not_ready_since));
    fate(old) != fate(new) || (fate(new) != Some(Fate::Leave) && facts(old) != facts(new))
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &Key, now: DateTime<Utc>) -> Result<Outcome, Error> {
        let Some(object) = self.objects.get(key) else {
            self.forget(key);
            return Ok(Outcome::default());
        };
        if object.deleting {
            // Its pods and revisions go (or stay) by their owner references.
            return Ok(Outcome::default());
        }
        self.remember(key, |memory| {
            if memory.uid != object.uid {
                *memory = Memory::of(&object.uid);
            }
        });
        let look = Look {
            this: self,
            key,
            object: &object,
            owner: Owner {
                namespace: &key.namespace,
                name: &key.name,
                uid: &object.uid,
            },
            now,
        };
        match &object.settled {
            Ok(settled) => look.at(settled).await,
            Err(faults) => {
                let (before, _) = look.status_before();
                let after = status::rejected(&before, object.generation, faults, now);
                look.write_status(&after).await?;
                Ok(Outcome::default())
            }
        }
    }
}

/// One look at one object.
struct Look<'a> {
    this: &'a Controller,
    key: &'a Key,
    object: &'a ObjectView,
    owner: Owner<'a>,
    now: DateTime<Utc>,
}

/// What came of the calls of one look.
#[derive(Debug, Default)]
struct Done {
    created: usize,
    deleted: Vec<Why>,
    /// The API server would not make a pod.
    refusal: Option<Refusal>,
    /// Something that another attempt may cure.
    error: Option<Error>,
    /// There is more to make, and nothing against it.
    more: bool,
}

/// What came of an attempt to make one pod.
enum Made {
    Pod,
    /// Nothing to tell of: it is there, or there is nobody left to make it for.
    Nothing,
    Refused(Refusal),
    Failed(Error),
}

impl Look<'_> {
    async fn at(&self, settled: &Settled) -> Result<Outcome, Error> {
        let cached = self.this.pods.find(&self.object.uid);
        let rest = self.this.remember(self.key, |memory| {
            memory.rest(cached.len(), self.object.generation, self.now)
        });
        if rest.is_some() {
            return Ok(Outcome {
                next: rest,
                did: None,
            });
        }
        let nodes = self.this.nodes.all();
        let (pods, last) = self.this.remember(self.key, |memory| {
            let pods = memory.overlay(cached, self.now);
            if memory.last.len() > nodes.len() {
                let names: BTreeSet<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
                memory.last.retain(|node, _| names.contains(node.as_str()));
            }
            (pods, memory.last.clone())
        });
        let mut revisions = self.this.revisions.find(&self.object.uid);
        let update = match self.ensure_revision(settled, &mut revisions).await {
            Err(Error::Unreadable { reason, .. }) => return self.conflict(&reason).await,
            other => other?,
        };
        let known: BTreeMap<&str, i64> = revisions
            .iter()
            .map(|r| (r.hash.as_str(), r.number))
            .collect();
        let (before, _) = self.status_before();
        let current = before.current_revision.as_deref();
        let current = current.filter(|hash| known.contains_key(hash));
        let decision = decide(&Observed {
            nodes: &nodes,
            pods: &pods,
            placement: &settled.placement,
            strategy: settled.strategy,
            revisions: Revisions {
                update: &settled.hash,
                update_since: update.since,
                current: current.unwrap_or(&settled.hash),
                known: &known,
            },
            memory: &last,
            auto_paused: was_stopped(&before, &settled.hash),
            resumed: self.object.resume.as_deref() == Some(&settled.hash),
            now: self.now,
        });
        let mut done = self.act(settled, &revisions, &decision).await;
        let current = match current {
            Some(current) if !decision.facts.complete => current,
            _ => &settled.hash,
        };
        let used: BTreeSet<&str> = [current, &settled.hash]
            .into_iter()
            .chain(pods.iter().map(|pod| pod.revision.as_str()))
            .chain(last.values().map(|last| last.revision.as_str()))
            .collect();
        if let Err(error) = self.prune(settled, &revisions, &used).await {
            done.error.get_or_insert(error);
        }
        let after = status::next(&Sight {
            previous: &before,
            generation: self.object.generation,
            facts: &decision.facts,
            strategy: settled.strategy,
            update: &settled.hash,
            current,
            refusal: done.refusal.as_ref(),
            now: self.now,
        });
        let written = self.write_status(&after).await;
        let outcome = self.finish(&decision, done);
        written.and(outcome)
    }

    /// The present spec's revision cannot be stored, so nothing is made of it.
    async fn conflict(&self, reason: &str) -> Result<Outcome, Error> {
        let (before, _) = self.status_before();
        let generation = self.object.generation;
        let after = status::conflicting(&before, generation, reason, self.now);
        self.write_status(&after).await?;
        Ok(Outcome {
            next: Some(self.now + CONFLICT_PAUSE),
            did: None,
        })
    }

    /// Tells of what was done, and says when to look again.
    fn finish(&self, decision: &Decision, done: Done) -> Result<Outcome, Error> {
        let (created, deleted, more_news, patience, refused) =
            self.this.remember(self.key, |memory| {
                memory.count(done.created, done.deleted.iter().copied());
                let (created, deleted, next) = memory.tell(self.now);
                let refused = memory.refused.as_ref().map(|refused| refused.next);
                (created, deleted, next, memory.patience_ends(), refused)
            });
        for (note, reason, action) in [
            (created, "PodsCreated", "CreatePods"),
            (deleted, "PodsDeleted", "DeletePods"),
        ] {
            if let Some(note) = note {
                let severity = Severity::Normal;
                self.publish(News {
                    severity,
                    reason,
                    action,
                    note,
                });
            }
        }
        if let Some(error) = done.error {
            return Err(error);
        }
        let mut deletions = BTreeMap::new();
        for why in done.deleted {
            *deletions.entry(why).or_default() += 1;
        }
        let did: Vec<String> = [created_text(done.created), deleted_text(&deletions)]
            .into_iter()
            .flatten()
            .collect();
        let at_once = done.more.then_some(self.now);
        Ok(Outcome {
            next: [decision.next, more_news, patience, refused, at_once]
                .into_iter()
                .flatten()
                .min(),
            did: (!did.is_empty()).then(|| did.join(", ")),
        })
    }

    /// The status before, and the object's version: what was written last, while the watch has not
    /// shown it.
    fn status_before(&self) -> (MyDaemonSetStatus, String) {
        self.this
            .remember(self.key, |memory| match memory.written.take() {
                Some(written) if written.seen == self.object.version => {
                    let before = (written.status.clone(), written.version.clone());
                    memory.written = Some(written);
                    before
                }
                _ => (self.object.status.clone(), self.object.version.clone()),
            })
    }

    /// Writes the status if it changed, and tells of what the change means.
    async fn write_status(&self, after: &MyDaemonSetStatus) -> Result<(), Error> {
        let (before, version) = self.status_before();
        if before == *after {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"uid": self.object.uid, "resourceVersion": version},
            "status": after,
        });
        let params = write::patch_params();
        let api = self.this.api::<RawMyDaemonSet>(self.key);
        let patch = Patch::Merge(&patch);
        let request = api.patch_status(&self.key.name, &params, &patch);
        let written = match call("write the status", self.key, request).await {
            Ok(written) => written,
            // The object is gone: nobody is left to read it.
            Err(error) if error.category() == "NotFound" => return Ok(()),
            Err(error) => return Err(error),
        };
        self.this.remember(self.key, |memory| {
            memory.written = Some(Written {
                seen: self.object.version.clone(),
                version: written.metadata.resource_version.unwrap_or_default(),
                status: after.clone(),
            });
        });
        for news in status::news(&before, after) {
            self.publish(news);
        }
        Ok(())
    }

    fn publish(&self, news: News) {
        let about = event::about::<MyDaemonSet>(self.key, &self.object.uid);
        self.this.context.events.publish(about, news);
    }

    /// The revision of the present spec, made or made the newest where it is not.
    async fn ensure_revision(
        &self,
        settled: &Settled,
        known: &mut Vec<Arc<RevisionView>>,
    ) -> Result<Arc<RevisionView>, Error> {
        let at = known.iter().position(|r| r.hash == settled.hash);
        let number = revision::next_number(known.iter().map(AsRef::as_ref));
        let ensured = match at {
            Some(at) if known[at].number + 1 == number => return Ok(known[at].clone()),
            Some(at) => {
                let old = known.swap_remove(at);
                self.renew_revision(&old.name, &old.uid, number).await?
            }
            None => self.create_revision(settled, number).await?,
        };
        let ensured = Arc::new(ensured);
        known.push(ensured.clone());
        Ok(ensured)
    }

    async fn create_revision(&self, settled: &Settled, number: i64) -> Result<RevisionView, Error> {
        let unreadable = |reason: String| Error::Unreadable {
            object: self.key.clone(),
            reason,
        };
        let body = revision::body(&self.owner, &settled.canonical, number, self.now)
            .map_err(|e| unreadable(e.to_string()))?;
        let request = self.post::<WatchedRevision, WatchedRevision>(body);
        let made = call("create the revision", self.key, request).await;
        match made {
            Ok(made) => return Ok(RevisionView::of(made)),
            Err(error) if is_already_there(&error) => {}
            Err(error) => return Err(error),
        }
        // It is there: not seen yet, left behind by a namesake of this object, or a stranger's.
        let name = revision::name(self.owner.name, &settled.hash);
        let api = self.this.api::<WatchedRevision>(self.key);
        let there = call("read the revision", self.key, api.get(&name)).await?;
        let view = RevisionView::of(there);
        let free = view.owner_uid.is_empty() || view.owner_uid == self.object.uid;
        if view.hash != settled.hash || !free {
            return Err(unreadable(format!(
                "the ControllerRevision {name} holds something else, or is another object's; delete it"
            )));
        }
        if view.owner_uid == self.object.uid && view.number == number {
            return Ok(view);
        }
        self.renew_revision(&name, &view.uid, number.max(view.number))
            .await
    }

    async fn renew_revision(
        &self,
        name: &str,
        uid: &str,
        number: i64,
    ) -> Result<RevisionView, Error> {
        let api = self.this.api::<WatchedRevision>(self.key);
        let patch = revision::patch(&self.owner, uid, number, self.now);
        let params = write::patch_params();
        let patch = Patch::Merge(&patch);
        let request = api.patch(name, &params, &patch);
        let patched = call("renew the revision", self.key, request).await?;
        Ok(RevisionView::of(patched))
    }

    /// Deletes revisions beyond the history's limit.
    async fn prune(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        used: &BTreeSet<&str>,
    ) -> Result<(), Error> {
        let views: Vec<&RevisionView> = revisions.iter().map(AsRef::as_ref).collect();
        let api = self.this.api::<WatchedRevision>(self.key);
        for old in revision::superfluous(&views, used, settled.history) {
            let params = write::only(&old.uid, None);
            let request = api.delete(&old.name, &params);
            let deleted = call("delete an old revision", self.key, request).await;
            done_or_gone(deleted.map(drop))?;
        }
        Ok(())
    }

    async fn act(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        decision: &Decision,
    ) -> Done {
        let mut done = Done::default();
        // A pod that was made but not seen yet cannot be named by its UID, and so not be deleted.
        let deletes = decision.delete.iter().filter(|d| !d.uid.is_empty());
        let calls: Vec<_> = deletes
            .map(|delete| async move { (delete.why, self.delete(delete).await) })
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(CALLS);
        while let Some((why, deleted)) = calls.next().await {
            match deleted {
                Ok(()) => done.deleted.push(why),
                Err(error) => {
                    done.error.get_or_insert(error);
                }
            }
        }
        drop(calls);
        self.create_all(settled, revisions, &decision.create, &mut done)
            .await;
        done
    }

    async fn delete(&self, delete: &Delete) -> Result<(), Error> {
        if delete.why == Why::NodeGone && self.node_is_there(&delete.node).await? {
            return Ok(());
        }
        self.this.remember(self.key, |memory| {
            memory.will_delete(&delete.uid, self.now);
            if delete.why != Why::NodeGone {
                memory.last.insert(delete.node.clone(), delete.last.clone());
            }
        });
        let mut params = write::only(&delete.uid, None);
        if delete.why == Why::NodeGone {
            // No kubelet is left that would confirm the end.
            params.grace_period_seconds = Some(0);
        }
        let api = self.this.api::<WatchedPod>(self.key);
        let request = api.delete(&delete.pod, &params);
        let deleted = done_or_gone(call("delete a pod", self.key, request).await.map(drop));
        if deleted.is_err() {
            self.this
                .remember(self.key, |memory| memory.not_deleted(&delete.uid));
        }
        deleted
    }

    /// Creates an object of this namespace from its JSON.
    async fn post<K, A>(&self, body: Vec<u8>) -> Result<A, kube::Error>
    where
        K: Resource<DynamicType = ()>,
        A: serde::de::DeserializeOwned,
    {
        write::create::<K, A>(&self.this.context.client, &self.key.namespace, body).await
    }

    /// Whether the API server itself still knows the node. A pod of a node that is gone is deleted
    /// without a kubelet's word, so a watch that lags is not enough to go by.
    async fn node_is_there(&self, node: &str) -> Result<bool, Error> {
        let api = Api::<WatchedNode>::all(self.this.context.client.clone());
        let there = call("read the node", self.key, api.get_metadata_opt(node)).await?;
        Ok(there.is_some())
    }

    /// Makes pods in batches of 1, 2, 4 and so on, so that a fault that befalls all of them costs
    /// few calls. The first batch with a fault is the last one.
    async fn create_all(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        creates: &[Create],
        done: &mut Done,
    ) {
        let refused = self.this.remember(self.key, |memory| {
            if creates.is_empty() {
                memory.refused = None;
            }
            let same =
                |refused: &&super::memory::Refused| refused.generation == self.object.generation;
            memory.refused.as_ref().filter(same).cloned()
        });
        if let Some(refused) = &refused
            && refused.next > self.now
        {
            done.refusal = Some(refused.refusal.clone());
            return;
        }
        // After a refusal another node is tried first: what is refused for one node alone must not
        // keep all the others waiting.
        let skip = refused.map_or(0, |r| r.count as usize + 1) % creates.len().max(1);
        let mut queue = creates.iter().cycle().skip(skip).take(creates.len());
        let mut batch = 1;
        let mut left = MOST_CREATES;
        while left > 0 {
            let calls: Vec<_> = queue
                .by_ref()
                .take(batch.min(left))
                .map(|create| self.create(settled, revisions, create))
                .collect();
            if calls.is_empty() {
                break;
            }
            left -= calls.len();
            batch *= 2;
            let mut calls = stream::iter(calls).buffer_unordered(CALLS);
            let mut stop = false;
            while let Some(made) = calls.next().await {
                match made {
                    Made::Pod => done.created += 1,
                    Made::Nothing => {}
                    Made::Refused(refusal) => {
                        stop = true;
                        done.refusal.get_or_insert(refusal);
                    }
                    Made::Failed(error) => {
                        stop = true;
                        done.error.get_or_insert(error);
                    }
                }
            }
            if stop {
                break;
            }
        }
        done.more = left == 0 && done.refusal.is_none() && done.error.is_none();
        self.this.remember(self.key, |memory| match &done.refusal {
            Some(refusal) => memory.refused(
                refusal.clone(),
                done.created > 0,
                self.object.generation,
                self.now,
            ),
            None => memory.refused = None,
        });
    }

    async fn create(
        &self,
        settled: &Settled,
        revisions: &[Arc<RevisionView>],
        create: &Create,
    ) -> Made {
        let content = if create.revision == settled.hash {
            &settled.content
        } else {
            match revisions.iter().find(|r| r.hash == create.revision) {
                Some(revision) => &revision.content,
                // Only revisions that are known are asked for.
                None => return Made::Nothing,
            }
        };
        let plan = Plan {
            owner: self.owner,
            node: &create.node,
            node_uid: &create.node_uid,
            revision: &create.revision,
            attempt: create.attempt,
        };
        let name = pod::name(plan.node, plan.node_uid, self.owner.uid, plan.revision);
        let body = pod::build(&plan, content).to_string().into_bytes();
        let expected = PodView {
            name: name.clone(),
            owner: self.key.name.to_string(),
            owner_uid: self.object.uid.clone(),
            node: create.node.clone(),
            revision: create.revision.clone(),
            attempt: create.attempt,
            created: self.now,
            ..PodView::default()
        };
        self.this
            .remember(self.key, |memory| memory.will_create(expected, self.now));
        match call(
            "create a pod",
            self.key,
            self.post::<WatchedPod, IgnoredAny>(body),
        )
        .await
        {
            Ok(_) => {
                self.this.remember(self.key, |memory| {
                    memory.last.remove(&create.node);
                });
                Made::Pod
            }
            // It may have been made all the same: believe in it until patience ends.
            Err(error @ Error::Timeout { .. }) => Made::Failed(error),
            Err(error) if is_already_there(&error) => self.already_there(&name).await,
            Err(error) => {
                self.this.remember(self.key, |memory| memory.seen(&name));
                judge(error, &name)
            }
        }
    }

    /// A pod of that name is there: ours, which the watch will show (or shows no more, when somebody
    /// took its labels), or a stranger's.
    async fn already_there(&self, name: &str) -> Made {
        let api = self.this.api::<WatchedPod>(self.key);
        let there = call("read a pod", self.key, api.get_metadata_opt(name)).await;
        let is_ours = |pod: &PartialObjectMeta<WatchedPod>| {
            let owner = controller_of(pod.metadata.owner_references.as_deref());
            owner.is_some_and(|owner| owner.uid == self.object.uid)
        };
        let made = match there {
            Ok(Some(pod)) if is_ours(&pod) => return Made::Nothing,
            Ok(None) => Made::Nothing,
            Ok(Some(_)) => Made::Refused(Refusal {
                reason: "NameConflict",
                message: format!("the pod {name} is there and is another object's"),
            }),
            Err(error) => Made::Failed(error),
        };
        self.this.remember(self.key, |memory| memory.seen(name));
        made
    }
}

/// Whether the roll-out of that revision was stopped because of failing nodes.
fn was_stopped(status: &MyDaemonSetStatus, update: &str) -> bool {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    status.update_revision.as_deref() == Some(update)
        && progressing.is_some_and(|c| c.reason == AUTO_PAUSED)
}

/// What is gone, or has a namesake in its place, is as good as deleted.
fn done_or_gone(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if matches!(error.category(), "NotFound" | "Conflict") => Ok(()),
        other => other,
    }
}

fn is_already_there(error: &Error) -> bool {
    error.status().is_some_and(Status::is_already_exists)
}

/// Whether the API server refuses the pod as it is, or something else went wrong.
fn judge(error: Error, pod: &str) -> Made {
    let Some(status) = error.status() else {
        return Made::Failed(error);
    };
    let causes = status.details.as_ref().map(|d| d.causes.as_slice());
    let ending = causes
        .unwrap_or_default()
        .iter()
        .any(|cause| cause.reason == "NamespaceTerminating");
    match status.code {
        403 if ending => Made::Nothing,
        400 | 403 | 422 => Made::Refused(Refusal {
            reason: "PodRefused",
            // The same refusal for another node is no news.
            message: status.message.replace(pod, "..."),
        }),
        _ => Made::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
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

    fn refused(code: u16, message: &str) -> Made {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = Error::Api {
            step: "create a pod",
            object: Key::new("ns", "x"),
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        judge(error, "n1-abc")
    }

    #[test]
    fn a_refusal_is_told_apart_from_a_failure() {
        let quota = r#"pods "n1-abc" is forbidden: exceeded quota"#;
        for code in [400, 403, 422] {
            match refused(code, quota) {
                Made::Refused(refusal) => {
                    assert_eq!(refusal.reason, "PodRefused");
                    assert_eq!(
                        refusal.message,
                        r#"pods "..." is forbidden: exceeded quota"#
                    );
                }
                _ => panic!("{code}"),
            }
        }
        for code in [404, 409, 429, 500, 503] {
            assert!(matches!(refused(code, quota), Made::Failed(_)), "{code}");
        }
    }
}
