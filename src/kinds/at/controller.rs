//! The thin edge: watches, and the calls that [`super::step`] decides on.
//!
//! Every call carries a precondition, so that a decision on an old state is refused and not carried
//! out: the pod's name for a create, the resource version for a status, the UID for a release, UID
//! and resource version for a deletion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::crd::{At, AtObject, AtStatus, Phase};
use super::own::Own;
use super::pod::{self, AT_UID, MANAGED_BY, MANAGER, PodObject, PodView};
use super::step::{self, Act, Last, Seen, Step, Version};
use super::view::{AtView, StoredAt};
use crate::clock::Clock;
use crate::reconcile::cache::{Cache, Touched, follow};
use crate::reconcile::event::{Events, News};
use crate::reconcile::queue::Queue;
use crate::reconcile::{Context, Error, Key, Outcome, Reconciler, call, runner};

/// The name of the controller in logs and metrics.
const CONTROLLER: &str = "at";
/// More steps than any way through the protocol has: a bug must not become a hot loop.
const MOST_STEPS: usize = 12;
/// News wait here, so that a thousand starts at one instant do not wait for a thousand Events.
const MOST_UNTOLD: usize = 4096;
/// How long news are still told after the end.
const LAST_NEWS: Duration = Duration::from_secs(1);
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
    let (news, untold) = mpsc::channel(MOST_UNTOLD);
    let reconciler = Arc::new(AtReconciler {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.clone(),
        ats: Arc::new(Cache::new(at_apis.len(), no_index)),
        pods: Arc::new(Cache::new(pod_apis.len(), no_index)),
        own_ats: Own::default(),
        own_pods: Own::default(),
        memory: Mutex::default(),
        news,
    });
    let mut watches = JoinSet::new();
    for api in at_apis {
        let touched = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |touched: &Touched<'_, StoredAt>| reconciler.at_touched(touched, &queue)
        };
        let (cache, health) = (reconciler.ats.clone(), context.health.clone());
        let config = watcher::Config::default();
        watches.spawn(follow(api, config, cache, health, StoredAt::of, touched));
    }
    for api in pod_apis {
        let touched = {
            let (reconciler, queue) = (reconciler.clone(), queue.clone());
            move |touched: &Touched<'_, PodView>| reconciler.pod_touched(touched, &queue)
        };
        let (cache, health) = (reconciler.pods.clone(), context.health.clone());
        let config = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGER},{AT_UID}"));
        watches.spawn(follow(api, config, cache, health, PodView::of, touched));
    }
    let workers = async {
        let synced = async {
            reconciler.ats.synced().await;
            reconciler.pods.synced().await;
        };
        tokio::select! {
            () = context.stop.cancelled() => Ok(()),
            () = synced => {
                let no_more = CancellationToken::new();
                let work = async {
                    let ended = runner::run(CONTROLLER, reconciler.clone(), queue.clone(), &context);
                    let ended = ended.await;
                    no_more.cancel();
                    ended
                };
                let tell = publish(&context.events, untold, no_more.clone());
                tokio::join!(work, tell).0
            }
        }
    };
    runner::join(watches, workers).await
}

/// Tells news until there are no more workers to bring any, and then what is left.
async fn publish(
    events: &Events,
    mut untold: mpsc::Receiver<(ObjectReference, News)>,
    ended: CancellationToken,
) {
    loop {
        tokio::select! {
            Some((about, news)) = untold.recv() => events.publish(&about, news).await,
            () = ended.cancelled() => break,
        }
    }
    untold.close();
    let rest = async {
        while let Some((about, news)) = untold.recv().await {
            events.publish(&about, news).await;
        }
    };
    let _ = tokio::time::timeout(LAST_NEWS, rest).await;
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
    ats: Arc<Cache<StoredAt>>,
    pods: Arc<Cache<PodView>>,
    own_ats: Own<StoredAt>,
    own_pods: Own<PodView>,
    memory: Mutex<HashMap<Key, Memory>>,
    news: mpsc::Sender<(ObjectReference, News)>,
}

/// What is remembered of an At besides what is stored. Nothing depends on it but the reason of a
/// result and the pace of attempts.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// The pod that the watch last saw deleted.
    last: Option<Last>,
    /// How many pods were made in vain, and when the next may be made.
    vain: u32,
    hold: Option<DateTime<Utc>>,
}

impl Reconciler for AtReconciler {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Outcome, Error> {
        let mut work = Work::default();
        let outcome = self.work(key, &mut work).await;
        // News are told whatever came after them.
        for news in std::mem::take(&mut work.news) {
            if let Err(full) = self.news.try_send(news) {
                let (about, news) = full.into_inner();
                self.events.publish(&about, news).await;
            }
        }
        let did = (!work.did.is_empty()).then(|| work.did.join(", "));
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
}

impl Sight {
    fn live(pod: Option<PodView>) -> Self {
        Self {
            pod: pod.map(Arc::new),
            live: true,
        }
    }
}

impl AtReconciler {
    fn at_touched(&self, touched: &Touched<'_, StoredAt>, queue: &Queue) {
        if touched.new.is_none() {
            self.own_ats.forget(touched.key);
            self.memory().remove(touched.key);
        }
        queue.add(touched.key.clone());
    }

    fn pod_touched(&self, touched: &Touched<'_, PodView>, queue: &Queue) {
        let Some((uid, name)) = touched
            .new
            .or(touched.old)
            .and_then(|pod| pod.controller.as_ref())
        else {
            return;
        };
        let at = Key::new(&touched.key.namespace, name);
        if let (Some(old), None) = (touched.old, touched.new) {
            self.own_pods.forget(touched.key);
            // Only a run that is not over can need it.
            let needed = self
                .ats
                .get(&at)
                .is_some_and(|at| !at.done && *at.uid == **uid);
            if needed {
                self.memory().entry(at.clone()).or_default().last = Some(Last {
                    pod: old.clone(),
                    certain: !touched.gap,
                });
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
            self.memory().remove(key);
            return Ok(None);
        }
        let Some(stored) = self.own_ats.newer(key, cached, StoredAt::version) else {
            return Ok(None);
        };
        let mut at = stored.read((self.clock)())?;
        let mut sight = self.cached_pod(&at);
        for _ in 0..MOST_STEPS {
            let now = (self.clock)();
            let memory = self.memory().get(key).cloned().unwrap_or_default();
            let seen = Seen {
                pod: sight.pod.as_deref(),
                live: sight.live,
                last: memory.last.as_ref(),
                // A clock that was set back must not hold a start up.
                hold: memory.hold.filter(|hold| *hold - now <= LONGEST_HOLD),
            };
            let mut step = step::step(&at, seen, now);
            match std::mem::replace(&mut step.act, Act::Nothing) {
                Act::Nothing => {}
                Act::Look => sight = Sight::live(self.look(&at).await?),
                Act::Create(pod) => match self.create(&at, &pod).await? {
                    Created::Is(pod) => {
                        sight = Sight::live(Some(*pod));
                        work.did.push("created the pod".to_owned());
                    }
                    Created::Exists => sight = Sight::live(self.look(&at).await?),
                    Created::Refused(why) => {
                        step = step::refused(&at, &why, self.in_vain(key, now), now);
                    }
                },
                Act::Lift { uid, gate } => {
                    let Some(pod) = self.lift(&at, &uid, gate).await? else {
                        sight = Sight::live(self.look(&at).await?);
                        continue;
                    };
                    sight = Sight::live(Some(pod));
                    work.did.push(format!("released the pod {uid}"));
                }
                Act::DeletePod(version) => {
                    self.delete_pod(&at, &version).await?;
                    sight = Sight::default();
                    work.did.push(format!("deleted the pod {}", version.uid));
                    if at.phase() == Phase::Pending {
                        // It was made in vain: without a pause, whoever spoils pods would have us
                        // make them without end.
                        self.in_vain(key, now);
                    }
                }
                Act::DeleteAt => {
                    self.delete_at(&at).await?;
                    work.did
                        .push("deleted it, its time to live being over".to_owned());
                }
            }
            let Some(next) = self.conclude(&mut at, step, work).await? else {
                continue;
            };
            return Ok(next);
        }
        // Only strangers who write as fast as we do can bring it here.
        Ok(Some((self.clock)() + FIRST_HOLD))
    }

    /// Writes the status of a step; when to look again, or `None` for at once.
    async fn conclude(
        &self,
        at: &mut AtView,
        step: Step,
        work: &mut Work,
    ) -> Result<Option<Option<DateTime<Utc>>>, Error> {
        if let Some(status) = step.status {
            let before = at.phase();
            *at = self.write(at, &status).await?;
            if at.phase() != before {
                let result = at.status.result.map(|result| format!(": {result:?}"));
                let phase = format!("{:?}", at.phase()).to_uppercase();
                work.did
                    .push(format!("{phase}{}", result.unwrap_or_default()));
                self.settled(at);
            }
        }
        let about = reference(at);
        let news = step.news.into_iter().map(|news| (about.clone(), news));
        work.news.extend(news);
        Ok((!step.again).then_some(step.next))
    }

    /// The phase changed: the attempts were not in vain.
    fn settled(&self, at: &AtView) {
        let mut all = self.memory();
        if at.phase() == Phase::Done {
            all.remove(&at.key);
        } else if let Some(memory) = all.get_mut(&at.key) {
            (memory.vain, memory.hold) = (0, None);
        }
    }

    /// The pod as the watch has it, or as our own last call left it.
    fn cached_pod(&self, at: &AtView) -> Sight {
        let key = Key::new(&at.key.namespace, pod::name(&at.key.name));
        Sight {
            pod: self
                .own_pods
                .newer(&key, self.pods.get(&key), PodView::version),
            live: false,
        }
    }

    /// A pod was made in vain: when the next may be made.
    fn in_vain(&self, key: &Key, now: DateTime<Utc>) -> DateTime<Utc> {
        let mut all = self.memory();
        let memory = all.entry(key.clone()).or_default();
        let pause = FIRST_HOLD * 2_i32.saturating_pow(memory.vain.min(10));
        memory.vain += 1;
        let hold = now + pause.min(LONGEST_HOLD);
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
        let pod = call("read the pod", &at.key, api.get_opt(&name)).await?;
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

    async fn create(&self, at: &AtView, pod: &Value) -> Result<Created, Error> {
        let path = self.pod_api(at).resource_url().to_owned();
        let request = async {
            let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
            let mut request = kube::core::Request::new(path)
                .create(&post_params(), body)
                .map_err(kube::Error::BuildRequest)?;
            // A field that the API server does not know would be dropped, and the pod would not be
            // what the template says.
            let strict = format!("{}&fieldValidation=Strict", request.uri()).parse();
            *request.uri_mut() =
                strict.map_err(|error| kube::Error::HttpError(axum::http::Error::from(error)))?;
            self.client.request::<PodObject>(request).await
        };
        match call("create the pod", &at.key, request).await {
            Ok(pod) => Ok(Created::Is(Box::new(self.remember_pod(at, pod)))),
            Err(error) => match error.status() {
                Some(status) if status.is_already_exists() => Ok(Created::Exists),
                Some(status) if is_refusal(status.code) => {
                    Ok(Created::Refused(status.message.clone()))
                }
                _ => Err(error),
            },
        }
    }

    /// Removes our gate from the pod with that UID; `None` when it is not as it was looked at.
    async fn lift(&self, at: &AtView, uid: &str, gate: usize) -> Result<Option<PodView>, Error> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let place = format!("/spec/schedulingGates/{gate}");
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": format!("{place}/name"), "value": pod::GATE},
            {"op": "remove", "path": place},
        ]);
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = async {
            let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
            api.patch(&name, &params, &Patch::Json::<()>(patch)).await
        };
        match call("release the pod", &at.key, request).await {
            Ok(pod) => Ok(Some(self.remember_pod(at, pod))),
            Err(error) => match error.status().map(|status| status.code) {
                Some(404 | 409 | 422) => Ok(None),
                _ => Err(error),
            },
        }
    }

    async fn delete_pod(&self, at: &AtView, version: &Version) -> Result<(), Error> {
        let (api, name) = (self.pod_api(at), pod::name(&at.key.name));
        let params = delete_params(&version.uid, &version.resource_version);
        let deleted = call("delete the pod", &at.key, api.delete(&name, &params)).await;
        self.own_pods.forget(&Key::new(&at.key.namespace, name));
        unless_gone(deleted.map(drop))
    }

    async fn delete_at(&self, at: &AtView) -> Result<(), Error> {
        let (api, name) = (self.at_api(at), &at.key.name);
        let params = delete_params(&at.uid, &at.resource_version);
        let deleted = call("delete the At", &at.key, api.delete(name, &params)).await;
        unless_gone(deleted.map(drop))
    }

    /// Writes the status, if the At is as it was looked at, and returns it as it is then.
    async fn write(&self, at: &AtView, status: &AtStatus) -> Result<AtView, Error> {
        let (path, name) = (self.at_api(at).resource_url().to_owned(), &at.key.name);
        let body = json!({
            "apiVersion": At::api_version(&()),
            "kind": At::kind(&()),
            "metadata": {
                "name": name,
                "namespace": at.key.namespace,
                "uid": at.uid,
                "resourceVersion": at.resource_version,
            },
            "status": status,
        });
        let request = async {
            let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
            let request = kube::core::Request::new(path)
                .replace_subresource("status", name, &post_params(), body)
                .map_err(kube::Error::BuildRequest)?;
            self.client.request::<AtObject>(request).await
        };
        let stored = StoredAt::of(call("write the status", &at.key, request).await?);
        let view = stored.read((self.clock)())?;
        self.own_ats
            .put(&at.key, &view.resource_version, Arc::new(stored));
        Ok(view)
    }
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

/// Whether the API server, or an admission plugin or webhook of it, refused the object as it is.
/// What heals by itself is left to the back-off of failures.
fn is_refusal(code: u16) -> bool {
    matches!(code, 400..=499) && !matches!(code, 401 | 404 | 408 | 409 | 429)
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn delete_params(uid: &str, resource_version: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        }),
        ..DeleteParams::default()
    }
}

/// What was to be deleted may be gone.
fn unless_gone(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.category() == "NotFound" => Ok(()),
        other => other,
    }
}

fn reference(at: &AtView) -> ObjectReference {
    ObjectReference {
        api_version: Some(At::api_version(&()).into_owned()),
        kind: Some(At::kind(&()).into_owned()),
        name: Some(at.key.name.clone()),
        namespace: Some(at.key.namespace.clone()),
        uid: Some(at.uid.clone()),
        ..ObjectReference::default()
    }
}
