//! The server: receives requests, consults the plan, carries them out, and answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use http::{Request, Response, header, request::Parts};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch as channel};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service};

use crate::admission::{Admission, Review};
use crate::call::{Call, PatchType, Verb};
use crate::fault::{Decision, Plan, Site};
use crate::history::{self, Delivery, History, Version};
use crate::resource::{self, Behavior};
use crate::status::{Status, details};
use crate::store::{Key, Moment, Store, Stored, complete};
use crate::watch::{self, Handle, Rule, Target, Watches};
use crate::write::{DeleteOptions, Deleted, Preconditions, Write, text};
use crate::{Clock, Resource, collector, patch, pod, second};

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The initial time of the wall clock.
    pub start: DateTime<Utc>,
    /// How long a change takes to reach a watch.
    pub watch_delay: Duration,
    /// How long every request takes before it is carried out.
    pub latency: Duration,
    /// How often watches that ask for bookmarks get one; None: never.
    pub bookmarks: Option<Duration>,
    /// Namespaces that exist from the start, in addition to those of every cluster.
    pub namespaces: Vec<String>,
    /// How long after a change the garbage collector and the namespace controller act; None: never.
    pub collector: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: second(0),
            watch_delay: Duration::from_millis(1),
            latency: Duration::ZERO,
            bookmarks: Some(Duration::from_mins(1)),
            namespaces: Vec::new(),
            collector: Some(Duration::from_secs(1)),
        }
    }
}

/// An in-memory API server. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    plan: Mutex<Arc<dyn Plan>>,
    clock: Clock,
    options: Options,
    /// How long the log is.
    changes: channel::Sender<usize>,
}

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) watches: Watches,
    admission: Option<Arc<Admission>>,
    reached: BTreeMap<Site, u32>,
    requests: Vec<history::Request>,
    deliveries: Vec<Delivery>,
    /// The part of the log of which watches were notified.
    announced: usize,
}

/// An answer before it becomes an HTTP response.
enum Reply {
    Body {
        code: u16,
        body: Bytes,
        retry_after: Option<Duration>,
    },
    Watch(Handle),
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        let body = if status.reason.is_empty() && status.code == 404 {
            // A path that is not served is answered in plain text.
            status.message.clone().into()
        } else {
            status.to_value().to_string().into()
        };
        Self::Body {
            code: status.code,
            body,
            retry_after: status.retry_after,
        }
    }
}

pub(crate) fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "connection reset by the simulated server",
    )
}

impl Server {
    /// A server with the built-in kinds and the namespaces of every cluster.
    ///
    /// # Panics
    /// Outside a tokio runtime, which its controllers run on.
    pub fn new(options: Options) -> Self {
        let resources = resource::built_in().into_iter().map(Arc::new).collect();
        let server = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    store: Store::default(),
                    resources,
                    watches: Watches::default(),
                    admission: None,
                    reached: BTreeMap::new(),
                    requests: Vec::new(),
                    deliveries: Vec::new(),
                    announced: 0,
                }),
                plan: Mutex::new(Arc::new(|_: &Site| Decision::Forward)),
                clock: Clock::starting_at(options.start),
                options,
                changes: channel::Sender::new(0),
            }),
        };
        let usual = ["default", "kube-system", "kube-public", "kube-node-lease"];
        let wanted = server.options().namespaces.iter().map(String::as_str);
        for name in usual.into_iter().chain(wanted) {
            server.direct().namespace(name);
        }
        if let Some(after) = server.options().collector {
            tokio::spawn(collector::run(server.clone(), after));
        }
        server
    }

    /// A client with an identity, by which faults and the history distinguish clients. Several clients may share one.
    pub fn client(&self, user: &str) -> kube::Client {
        kube::Client::new(self.service(user), "default")
    }

    /// The service behind [`Self::client`], to be put under layers.
    pub fn service(&self, user: &str) -> Connection {
        Connection {
            server: self.clone(),
            user: user.into(),
        }
    }

    /// The server's wall clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The options of the server.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Registers a kind, as a CustomResourceDefinition does. It replaces one of the same group, version and plural.
    pub fn register(&self, resource: Resource) {
        let mut state = self.state();
        let known = state.resources.iter_mut().find(|known| {
            known.group == resource.group
                && known.version == resource.version
                && known.plural == resource.plural
        });
        match known {
            Some(known) => *known = Arc::new(resource),
            None => state.resources.push(Arc::new(resource)),
        }
    }

    /// Consults this plan from now on.
    pub fn on(&self, plan: impl Plan + 'static) {
        *self.shared.plan.lock() = Arc::new(plan);
    }

    /// Reviews every write from now on, as the policies and webhooks of a cluster do: after faults and preconditions,
    /// before validation.
    pub fn admit(
        &self,
        review: impl Fn(&mut Review<'_>) -> Result<(), Status> + Send + Sync + 'static,
    ) {
        self.state().admission = Some(Arc::new(review));
    }

    /// The history until now.
    pub fn history(&self) -> History {
        let state = self.state();
        let versions = state.store.log.iter();
        History {
            requests: state.requests.clone(),
            versions: versions
                .map(|change| Version::new(change, &state.resources[change.key.resource]))
                .collect(),
            deliveries: state.deliveries.clone(),
        }
    }

    /// The resourceVersion of the latest change.
    pub fn version(&self) -> u64 {
        self.state().store.version()
    }

    /// Compacts everything below a resourceVersion: lists and watches from before it are answered with 410.
    pub fn compact(&self, floor: u64) {
        self.state().store.floor = floor;
    }

    /// Waits until more than that many changes were stored, and returns how many.
    pub async fn changed(&self, seen: usize) -> usize {
        let mut changes = self.shared.changes.subscribe();
        // The sender lives as long as the server: this cannot fail.
        let length = changes.wait_for(|length| *length > seen).await;
        length.map_or(seen, |length| *length)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    pub(crate) fn moment(&self, user: &str) -> Moment {
        Moment {
            at: Instant::now(),
            elapsed: self.clock().elapsed(),
            time: self.clock().now(),
            by: user.into(),
        }
    }

    /// Changes the state, then wakes the affected watches.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let done = act(&mut state);
        let length = state.store.log.len();
        if length > state.announced {
            state.watches.wake(&state.store.log[state.announced..]);
            state.announced = length;
            self.shared.changes.send_replace(length);
        }
        done
    }

    /// Answers one request.
    async fn serve(
        self,
        user: Arc<str>,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let parsed = Call::parse(&parts, body.clone(), &self.state().resources);
        let call = match parsed {
            Ok(call) => Arc::new(call),
            Err(status) => {
                if let Some(version) = discovery(&parts) {
                    return Ok(self.respond(version));
                }
                return Ok(self.respond(status.into()));
            }
        };
        let (number, site) = self.note(&user, &call, &parts);
        if !self.options().latency.is_zero() {
            sleep(self.options().latency).await;
        }
        let plan = self.shared.plan.lock().clone();
        let decision = plan.decide(&site);
        self.state().requests[number].decision = decision.label();
        let carry_out = || self.carry_out(&user, &call, number);
        let later = |after| {
            let (server, user, call) = (self.clone(), user.clone(), call.clone());
            async move {
                sleep(after).await;
                server.carry_out(&user, &call, number)
            }
        };
        let reply = match decision {
            Decision::Forward => carry_out(),
            Decision::Lost => return Err(broken().into()),
            Decision::Unanswered => {
                carry_out();
                return Err(broken().into());
            }
            Decision::Silent => std::future::pending().await,
            Decision::Late(after) => {
                tokio::spawn(later(after));
                std::future::pending().await
            }
            Decision::LostThenLate(after) => {
                tokio::spawn(later(after));
                return Err(broken().into());
            }
            Decision::FailedThenLate(status, after) => {
                tokio::spawn(later(after));
                status.into()
            }
            Decision::Delayed(after) => {
                let (sender, receiver) = oneshot::channel();
                // If the caller has given up, the answer is dropped.
                tokio::spawn(later(after).map(|reply| sender.send(reply)));
                receiver.await?
            }
            Decision::Answer(status) => status.into(),
            Decision::FailedThoughDone(status) => {
                carry_out();
                status.into()
            }
            Decision::Meanwhile(callback) => {
                callback(&self);
                carry_out()
            }
            Decision::CrashBefore(callback) => {
                callback(&self);
                std::future::pending().await
            }
            Decision::CrashAfter(callback) => {
                carry_out();
                callback(&self);
                std::future::pending().await
            }
        };
        self.note_reply(number, &reply);
        Ok(self.respond(reply))
    }

    /// Adds a request to the history.
    fn note(&self, user: &str, call: &Call, parts: &Parts) -> (usize, Site) {
        let name = if call.verb == Verb::Create && call.name.is_empty() {
            let body = call.json().unwrap_or_default();
            let metadata = &body["metadata"];
            let name = text(metadata, "name");
            let name = if name.is_empty() {
                text(metadata, "generateName")
            } else {
                name
            };
            name.to_owned()
        } else {
            call.name.clone()
        };
        let mut site = Site {
            user: user.to_owned(),
            verb: call.verb,
            group: call.resource.group.clone(),
            resource: call.target(),
            patch: call.patch,
            namespace: call.namespace.clone(),
            name,
            nth: 0,
        };
        let mut state = self.state();
        let reached = state.reached.entry(site.clone()).or_default();
        site.nth = *reached;
        *reached += 1;
        let header = |name| {
            let value = parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        state.requests.push(history::Request {
            site: site.clone(),
            time: self.clock().now(),
            elapsed: self.clock().elapsed(),
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            content_type: header(header::CONTENT_TYPE),
            accept: header(header::ACCEPT),
            body: call.body.clone(),
            decision: "",
            carried_out: false,
            code: None,
            reason: String::new(),
            before: 0,
            version: 0,
        });
        (state.requests.len() - 1, site)
    }

    fn note_reply(&self, number: usize, reply: &Reply) {
        let mut state = self.state();
        let request = &mut state.requests[number];
        match reply {
            Reply::Watch(_) => request.code = Some(200),
            Reply::Body { code, body, .. } => {
                request.code = Some(*code);
                if *code >= 400 {
                    let status: Value = serde_json::from_slice(body).unwrap_or_default();
                    text(&status, "reason").clone_into(&mut request.reason);
                }
            }
        }
    }

    fn carry_out(&self, user: &str, call: &Call, number: usize) -> Reply {
        let before = self.version();
        let reply = if call.verb == Verb::Watch {
            let mut state = self.state();
            let state = &mut *state;
            let refusal = state.watches.refusal(user, call);
            let opened = match refusal {
                Some(status) => Err(status),
                None => state
                    .watches
                    .open(&state.store, user, call, self.options().bookmarks),
            };
            opened.map(|id| {
                Reply::Watch(Handle {
                    server: self.clone(),
                    id,
                })
            })
        } else {
            let moment = self.moment(user);
            self.act(|state| state.execute(user, call, moment))
        };
        let mut state = self.state();
        let version = state.store.version();
        let request = &mut state.requests[number];
        request.carried_out = true;
        request.before = before;
        request.version = version;
        drop(state);
        reply.unwrap_or_else(Reply::from)
    }

    fn respond(&self, reply: Reply) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let (code, retry_after, body) = match reply {
            Reply::Body {
                code,
                body,
                retry_after,
            } => {
                let body = Full::new(body)
                    .map_err(|never| match never {})
                    .boxed_unsync();
                (code, retry_after, body)
            }
            Reply::Watch(handle) => {
                let body = StreamBody::new(watch::body(handle)).map_err(BoxError::from);
                (200, None, body.boxed_unsync())
            }
        };
        let date = self
            .clock()
            .now()
            .format("%a, %d %b %Y %H:%M:%S GMT")
            .to_string();
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        let headers = response.headers_mut();
        let mut set = |name, value: String| {
            if let Ok(value) = value.parse() {
                headers.insert(name, value);
            }
        };
        set(header::CONTENT_TYPE, "application/json".to_owned());
        set(header::DATE, date);
        if let Some(pause) = retry_after {
            set(header::RETRY_AFTER, pause.as_secs().to_string());
        }
        response
    }
}

/// The answers for the few paths without a kind.
fn discovery(parts: &Parts) -> Option<Reply> {
    let body = match parts.uri.path() {
        "/version" => json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "simulated",
        })
        .to_string(),
        "/livez" | "/readyz" | "/healthz" => "ok".to_owned(),
        _ => return None,
    };
    Some(Reply::Body {
        code: 200,
        body: body.into(),
        retry_after: None,
    })
}

impl State {
    fn execute(&mut self, user: &str, call: &Call, moment: Moment) -> Result<Reply, Status> {
        match call.verb {
            Verb::Get => {
                let found = self.store.get(&call.key(&call.name)).cloned();
                let found = found.ok_or_else(|| Status::not_found(&call.resource, &call.name))?;
                Ok(whole(call, 200, &found))
            }
            Verb::List => {
                if let Some(status) = self.watches.refusal(user, call) {
                    return Err(status);
                }
                let stale = self.watches.stale(user, call);
                let body = crate::list::list(&self.store, call, stale)?;
                if call.query.get("continue").is_none() {
                    // Later pages show the same snapshot.
                    let version = stale.unwrap_or_else(|| self.store.version());
                    self.delivered(user, &call.resource.plural, version, moment.elapsed);
                }
                Ok(Reply::Body {
                    code: 200,
                    body,
                    retry_after: None,
                })
            }
            Verb::Create => self.post(call, moment),
            Verb::Update => {
                let object = call.json()?;
                let stored = self.write(call, &call.name, moment).replace(object)?;
                Ok(whole(call, 200, &stored))
            }
            Verb::Patch => {
                let body = call.json()?;
                let mut write = self.write(call, &call.name, moment);
                let stored = match call.patch {
                    Some(PatchType::Apply) => {
                        let (stored, created) = write.apply(&body, call.query.is_true("force"))?;
                        return Ok(whole(call, if created { 201 } else { 200 }, &stored));
                    }
                    Some(PatchType::Json) => write.update(|old| patch::json(&old.value, &body)),
                    Some(PatchType::Strategic) if call.resource.behavior == Behavior::Custom => {
                        let message = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                        return Err(Status::new(415, "UnsupportedMediaType", message));
                    }
                    Some(PatchType::Strategic) => {
                        write.update(|old| Ok(patch::strategic(&call.resource, &old.value, &body)))
                    }
                    _ => write.update(|old| Ok(patch::merge(&old.value, &body))),
                }?;
                Ok(whole(call, 200, &stored))
            }
            Verb::Delete => {
                let options = delete_options(call)?;
                let deleted = self.write(call, &call.name, moment).delete(&options)?;
                Ok(match deleted {
                    Deleted::Pending(object) => whole(call, 200, &object),
                    Deleted::Gone(object) if call.resource.returns_deleted => {
                        whole(call, 200, &object)
                    }
                    Deleted::Gone(object) => {
                        let mut details = details(&call.resource, &call.name);
                        details["uid"] = json!(object.uid());
                        let body = json!({
                            "kind": "Status", "apiVersion": "v1", "metadata": {},
                            "status": "Success", "details": details,
                        });
                        Reply::Body {
                            code: 200,
                            body: body.to_string().into(),
                            retry_after: None,
                        }
                    }
                })
            }
            Verb::DeleteCollection => {
                let options = delete_options(call)?;
                let selector = call.query.selector()?;
                let listed = crate::list::list(&self.store, call, None)?;
                let selected: Vec<Key> = self
                    .store
                    .list(call.index, &call.namespace)
                    .filter(|(_, object)| selector.matches(&object.value))
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in selected {
                    self.write_on(key, moment.clone()).delete(&options)?;
                }
                Ok(Reply::Body {
                    code: 200,
                    body: listed,
                    retry_after: None,
                })
            }
            // Watches are opened before this.
            Verb::Watch => Err(Status::bad_request("a watch is no request on objects")),
        }
    }

    /// Records what a client has learned.
    pub(crate) fn delivered(&mut self, user: &str, resource: &str, version: u64, at: Duration) {
        self.deliveries.push(Delivery {
            user: user.into(),
            resource: resource.into(),
            version,
            elapsed: at,
        });
    }

    /// A write that a client asks for.
    fn write(&mut self, call: &Call, name: &str, moment: Moment) -> Write<'_> {
        let write = self.write_on(call.key(name), moment);
        Write {
            subresource: call.subresource.clone(),
            dry_run: call.query.dry_run(),
            manager: call.manager(&write.moment.by),
            ..write
        }
    }

    /// A write on an object, or in its collection if its name is empty.
    pub(crate) fn write_on(&mut self, key: Key, moment: Moment) -> Write<'_> {
        let resource = self.resources[key.resource].clone();
        Write {
            namespaces: self.namespace_key(&resource, &key.namespace),
            admission: self.admission.clone(),
            manager: moment.by.to_string(),
            store: &mut self.store,
            resource,
            key,
            subresource: None,
            dry_run: false,
            moment,
        }
    }

    /// The key of the namespace of a namespaced object.
    pub(crate) fn namespace_key(&self, resource: &Resource, namespace: &str) -> Option<Key> {
        let namespaces = |r: &Arc<Resource>| r.behavior == Behavior::Namespace;
        let index = self.resources.iter().position(namespaces)?;
        resource.namespaced.then(|| Key::new(index, "", namespace))
    }

    /// A POST: on a collection, or on a subresource.
    fn post(&mut self, call: &Call, moment: Moment) -> Result<Reply, Status> {
        let body = call.json()?;
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let success = Reply::Body {
            code: 201,
            body: success.to_string().into(),
            retry_after: None,
        };
        match call.subresource.as_deref() {
            None => {
                let stored = self.write(call, "", moment).create(body)?;
                Ok(whole(call, 201, &stored))
            }
            Some("binding") => {
                let node = text(&body["target"], "name").to_owned();
                self.write(call, &call.name, moment).bind(&node)?;
                Ok(success)
            }
            Some("eviction") => {
                let options = DeleteOptions::parse(&body["deleteOptions"]);
                let mut write = self.write(call, &call.name, moment);
                write.subresource = Some("status".to_owned());
                write.update(|old| {
                    let mut pod = old.value.clone();
                    let more = json!({"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
                    pod::set_condition(&mut pod, "DisruptionTarget", "True", more);
                    Ok(pod)
                })?;
                write.delete(&options)?;
                Ok(success)
            }
            Some(_) => Err(Status::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )),
        }
    }
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        call.json()?
    };
    let mut options = DeleteOptions::parse(&body);
    if let Some(grace) = call.query.get("gracePeriodSeconds") {
        options.grace = grace.parse().ok();
    }
    if let Some(propagation) = call.query.get("propagationPolicy") {
        options.propagation = Some(propagation.to_owned());
    }
    Ok(options)
}

impl DeleteOptions {
    pub(crate) fn parse(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let preconditions = &body["preconditions"];
        Self {
            grace: body["gracePeriodSeconds"].as_i64(),
            preconditions: Preconditions {
                uid: text(&preconditions["uid"]),
                version: text(&preconditions["resourceVersion"]),
            },
            propagation: text(&body["propagationPolicy"]),
        }
    }
}

/// An answer with one object.
fn whole(call: &Call, code: u16, object: &Stored) -> Reply {
    let mut body = Vec::new();
    complete(&call.resource, call.form, object, &mut body);
    Reply::Body {
        code,
        body: body.into(),
        retry_after: None,
    }
}

/// Injects faults into some lists and watches.
pub struct Watching<'a> {
    server: &'a Server,
    target: Target,
}

impl Server {
    /// The lists and watches of a target.
    pub fn watches(&self, target: Target) -> Watching<'_> {
        Watching {
            server: self,
            target,
        }
    }
}

impl Watching<'_> {
    fn set(&self, rule: Rule) {
        let mut state = self.server.state();
        state.watches.rules.push((self.target.clone(), rule));
        state.watches.wake_all();
    }

    fn unset(&self, which: impl Fn(&Rule) -> bool) {
        let mut state = self.server.state();
        let rules = &mut state.watches.rules;
        rules.retain(|(target, rule)| *target != self.target || !which(rule));
        state.watches.wake_all();
    }

    fn end(&self, ending: watch::Ending) {
        self.server.state().watches.end(&self.target, ending);
    }

    /// Delivers nothing until [`Self::release`], so that caches become stale. Watches that open meanwhile wait as well.
    pub fn hold(&self) {
        self.set(Rule::Held);
    }

    /// Ends [`Self::hold`] of the same target.
    pub fn release(&self) {
        self.unset(|rule| matches!(rule, Rule::Held));
    }

    /// Delays every change, until [`Self::undelay`].
    pub fn delay(&self, by: Duration) {
        self.undelay();
        self.set(Rule::Delayed(by));
    }

    /// Ends [`Self::delay`] of the same target.
    pub fn undelay(&self) {
        self.unset(|rule| matches!(rule, Rule::Delayed(_)));
    }

    /// Answers lists and new watches with this Status, until [`Self::allow`].
    pub fn refuse(&self, status: Status) {
        self.allow();
        self.set(Rule::Refused(status));
    }

    /// Ends [`Self::refuse`] of the same target.
    pub fn allow(&self) {
        self.unset(|rule| matches!(rule, Rule::Refused(_)));
    }

    /// Answers lists as at that resourceVersion, like an API server that lags, until [`Self::fresh_lists`].
    pub fn stale_lists(&self, version: u64) {
        self.fresh_lists();
        self.set(Rule::Stale(version));
    }

    /// Ends [`Self::stale_lists`] of the same target.
    pub fn fresh_lists(&self) {
        self.unset(|rule| matches!(rule, Rule::Stale(_)));
    }

    /// Ends the open watches, as the API server does when it restarts.
    pub fn cut(&self) {
        self.end(watch::Ending::Closed);
    }

    /// Breaks the connections of the open watches.
    pub fn reset(&self) {
        self.end(watch::Ending::Reset);
    }

    /// Ends the open watches with an event of 410.
    pub fn gone(&self) {
        self.end(watch::Ending::Gone);
    }

    /// The open watches stay open and deliver nothing more: no event, no bookmark, no end.
    pub fn silence(&self) {
        self.server.state().watches.silence(&self.target);
    }

    /// How many watches are open.
    pub fn count(&self) -> usize {
        self.server.state().watches.count(&self.target)
    }
}

/// The service through which a client sends its requests.
#[derive(Clone)]
pub struct Connection {
    server: Server,
    user: Arc<str>,
}

impl Service<Request<Body>> for Connection {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.server.clone().serve(self.user.clone(), request))
    }
}
