//! Operators and servers with a fault of their own, which the sweep must catch.
//!
//! Each changes requests, answers or the clock on their way, so that the program itself has no switches for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::{Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::Value;
use simulated_apiserver::{Connection, Server, Verb};
use tower::{BoxError, Service};

use super::faults::Fault;
use super::run::{Disturbance, Run, run};
use super::subject::{Scenario, Subject};

/// See the module.
pub struct Mutant {
    pub name: &'static str,
    /// Changes a request on its way.
    pub request: fn(&Server, &mut Sent),
    /// Changes an answer, or the lack of one.
    pub answer: fn(&Server, &Sent, Option<Answer>) -> Option<Answer>,
    /// Changes what is read: the answer to a list, or an event of a watch. Its path comes first.
    pub read: fn(&str, &mut Value),
    /// By how many seconds the operator's clock is ahead.
    pub clock: i64,
    /// The faults with which it is tried, beside none.
    pub shown_by: &'static [Fault],
}

/// A request.
pub struct Sent {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// An answer: its code and its body.
pub type Answer = (u16, Value);

impl Sent {
    /// Whether it has that method and a path with that end.
    pub fn is(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }

    /// Whether it has that method and is about one object of that resource.
    pub fn is_on(&self, method: &Method, resource: &str) -> bool {
        self.method == *method && self.path.contains(&format!("/{resource}/"))
    }

    /// Removes a field of the body.
    pub fn remove(&mut self, pointer: &str, field: &str) {
        let place = self.body.pointer_mut(pointer);
        if let Some(fields) = place.and_then(Value::as_object_mut) {
            fields.remove(field);
        }
    }

    /// As if what was sent were stored.
    pub fn as_if_done(&self) -> Answer {
        (200, self.body.clone())
    }
}

/// The conditions of an object, to change them.
pub fn conditions(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let conditions = object["status"]["conditions"].as_array_mut();
    conditions.into_iter().flatten()
}

fn nothing(_: &Server, _: &mut Sent) {}

fn same(_: &Server, _: &Sent, answer: Option<Answer>) -> Option<Answer> {
    answer
}

/// The program as it is.
pub static NONE: Mutant = BASE;

/// The same, for the rest of a mutant: `..BASE`.
pub const BASE: Mutant = Mutant {
    name: "",
    request: nothing,
    answer: same,
    read: |_, _| {},
    clock: 0,
    shown_by: &[],
};

/// Every kind is tried with this one.
pub const NO_RETRY_AFTER: Mutant = Mutant {
    name: "Retry-After is not read",
    answer: |_, _, answer| {
        answer.map(|(code, mut body)| {
            if let Some(details) = body["details"].as_object_mut() {
                details.remove("retryAfterSeconds");
            }
            (code, body)
        })
    },
    shown_by: &[Fault::TooManyRequests],
    ..BASE
};

impl Mutant {
    /// The first run of a scenario that catches it.
    pub fn is_caught_by(
        &'static self,
        subject: &'static dyn Subject,
        scenario: &Scenario,
        calm: &Run,
    ) -> Option<String> {
        let is_caught = |disturbance: &Disturbance| {
            !run(subject, scenario, disturbance, Some(self))
                .faults(calm, subject, scenario)
                .is_empty()
        };
        if is_caught(&Disturbance::None) {
            return Some(format!("{} alone", scenario.name));
        }
        let sites = calm.sites.iter();
        let sites = sites.filter(|site| {
            !matches!(site.verb, Verb::List | Verb::Watch) && site.resource != "events"
        });
        for site in sites {
            for fault in self.shown_by.iter().filter(|fault| fault.applies(site)) {
                if is_caught(&Disturbance::One(site.clone(), *fault)) {
                    return Some(format!("{} / {site} / {fault}", scenario.name));
                }
            }
        }
        None
    }
}

impl Mutant {
    /// An event as the operator reads it.
    fn event(&self, path: &str, text: &[u8]) -> Bytes {
        let mut event: Value = serde_json::from_slice(text).unwrap();
        (self.read)(path, &mut event);
        // As the API server writes it: the type comes first.
        let (kind, object) = (event["type"].take(), event["object"].take());
        format!("{{\"type\":{kind},\"object\":{object}}}\n").into()
    }
}

/// The connection of a mutant.
#[derive(Clone)]
pub struct Mutated {
    pub connection: Connection,
    pub server: Server,
    pub mutant: &'static Mutant,
}

impl Service<Request<Body>> for Mutated {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connection.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self {
            mut connection,
            server,
            mutant,
        } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let text = body.collect().await?.to_bytes();
            let mut sent = Sent {
                method: parts.method.clone(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&text).unwrap_or_default(),
            };
            let is_watch = sent.query.contains("watch=true");
            let path = sent.path.clone();
            (mutant.request)(&server, &mut sent);
            if sent.path != path {
                parts.uri = sent.path.parse()?;
            }
            let text = if sent.body.is_null() {
                text.to_vec()
            } else {
                sent.body.to_string().into_bytes()
            };
            let answer = connection
                .call(Request::from_parts(parts, Body::from(text)))
                .await;
            if is_watch {
                let answer = answer?;
                if !answer.status().is_success() {
                    return Ok(answer);
                }
                return Ok(answer.map(|events| {
                    // Each frame is one event.
                    let change = move |frame: Frame<Bytes>| {
                        frame.map_data(|text| mutant.event(&path, &text))
                    };
                    events.map_frame(change).boxed_unsync()
                }));
            }
            let (answer, error) = match answer {
                Ok(answer) => {
                    let code = answer.status().as_u16();
                    let body = answer.into_body().collect().await?.to_bytes();
                    (Some((code, serde_json::from_slice(&body)?)), None)
                }
                Err(error) => (None, Some(error)),
            };
            let answer = answer.map(|(code, mut body)| {
                if sent.method == Method::GET {
                    (mutant.read)(&path, &mut body);
                }
                (code, body)
            });
            match ((mutant.answer)(&server, &sent, answer), error) {
                (Some((code, body)), _) => {
                    let response = Response::builder().status(code);
                    let response = response.header(header::CONTENT_TYPE, "application/json");
                    let body = Full::new(Bytes::from(body.to_string()));
                    Ok(response.body(body.map_err(|never| match never {}).boxed_unsync())?)
                }
                (None, Some(error)) => Err(error),
                (None, None) => Err("no answer".into()),
            }
        })
    }
}
