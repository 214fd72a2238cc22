//! The path of a request: it is parsed and recorded, the plan is consulted, it is carried out and answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, Response, header, request::Parts};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tower::{BoxError, Service};

use crate::call::{Call, Verb};
use crate::fault::Decision;
use crate::history;
use crate::server::Server;
use crate::site::Site;
use crate::state::{Answer, ok};
use crate::status::Status;
use crate::stream::{self, Handle, broken};
use crate::write::text;

/// An answer before it becomes an HTTP response.
enum Reply {
    Answer(Answer),
    Watch(Handle),
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self::Answer(status.into())
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

impl Server {
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
        let decision = self.plan().decide(&site);
        self.state().requests[number].decision = decision.label();
        let reply = self.follow(decision, &user, &call, number).await?;
        self.note_reply(number, &reply);
        Ok(self.respond(reply))
    }

    /// Carries out a request as the plan decides. An error breaks the connection.
    async fn follow(
        &self,
        decision: Decision,
        user: &Arc<str>,
        call: &Arc<Call>,
        number: usize,
    ) -> Result<Reply, BoxError> {
        let carry_out = || self.carry_out(user, call, number);
        let later = |after| {
            self.clone()
                .carry_out_later(user.clone(), call.clone(), number, after)
        };
        Ok(match decision {
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
                callback(self);
                carry_out()
            }
            Decision::CrashBefore(callback) => {
                callback(self);
                std::future::pending().await
            }
            Decision::CrashAfter(callback) => {
                carry_out();
                callback(self);
                std::future::pending().await
            }
        })
    }

    async fn carry_out_later(
        self,
        user: Arc<str>,
        call: Arc<Call>,
        number: usize,
        after: Duration,
    ) -> Reply {
        sleep(after).await;
        self.carry_out(&user, &call, number)
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
            Reply::Answer(Answer { code, body, .. }) => {
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
            let answer = self.act(|state| state.execute(user, call, moment));
            answer.map(Reply::Answer)
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
            Reply::Answer(Answer {
                code,
                body,
                retry_after,
            }) => {
                let body = Full::new(body)
                    .map_err(|never| match never {})
                    .boxed_unsync();
                (code, retry_after, body)
            }
            Reply::Watch(handle) => {
                let body = StreamBody::new(stream::body(handle)).map_err(BoxError::from);
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
    Some(Reply::Answer(ok(body.into())))
}
