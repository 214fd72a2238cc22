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
use kube::client::Body;
use serde_json::{Value, json};
use simulated_apiserver::{Connection, Server, Verb};
use tower::{BoxError, Service};

use super::at::Scenario;
use super::cluster::{NAMESPACE, POD};
use super::faults::Fault;
use super::judge::GATE;
use super::run::{Disturbance, Run, run};

/// See the module.
pub struct Mutant {
    pub name: &'static str,
    /// Changes a request on its way.
    request: fn(&Server, &mut Sent),
    /// Changes an answer, or the lack of one.
    answer: fn(&Server, &Sent, Option<Answer>) -> Option<Answer>,
    /// By how many seconds the operator's clock is ahead.
    pub clock: i64,
    /// The faults with which it is tried, beside none.
    pub shown_by: &'static [Fault],
}

/// A request.
pub struct Sent {
    method: Method,
    path: String,
    body: Value,
}

/// An answer: its code and its body.
type Answer = (u16, Value);

impl Sent {
    fn is(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }

    fn is_status(&self) -> bool {
        self.is(&Method::PUT, "/status")
    }

    fn is_new_pod(&self) -> bool {
        self.is(&Method::POST, "/pods")
    }

    fn is_release(&self) -> bool {
        self.method == Method::PATCH && self.path.contains("/pods/")
    }

    fn is_deletion(&self) -> bool {
        self.method == Method::DELETE && self.path.contains("/pods/")
    }

    fn is_look(&self) -> bool {
        self.method == Method::GET && self.path.contains("/pods/")
    }

    fn remove(&mut self, pointer: &str, field: &str) {
        let place = self.body.pointer_mut(pointer);
        if let Some(fields) = place.and_then(Value::as_object_mut) {
            fields.remove(field);
        }
    }
}

fn nothing(_: &Server, _: &mut Sent) {}

fn same(_: &Server, _: &Sent, answer: Option<Answer>) -> Option<Answer> {
    answer
}

const USUAL: Mutant = Mutant {
    name: "",
    request: nothing,
    answer: same,
    clock: 0,
    shown_by: &[],
};

/// The resourceVersion that is stored, whichever the operator looked at.
fn newest_version(server: &Server, sent: &mut Sent) {
    if sent.is_status()
        && let Some(at) = server.direct().get("ats", NAMESPACE, "a")
    {
        sent.body["metadata"]["resourceVersion"] = at["metadata"]["resourceVersion"].clone();
    }
}

/// Changes a condition in a status that is written.
fn set_condition(sent: &mut Sent, type_: &str, field: &str, value: &Value) {
    let conditions = sent.body["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == type_ {
            condition[field] = value.clone();
        }
    }
}

/// What the operator sent, as if it were stored.
fn as_if_done(sent: &Sent) -> Answer {
    (200, sent.body.clone())
}

/// Every mutant.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "the status is written over any version",
        request: newest_version,
        shown_by: &[
            Fault::EditBefore,
            Fault::AtsHeldBack,
            Fault::Late,
            Fault::CrashAndOldList,
        ],
        ..USUAL
    },
    Mutant {
        name: "the status is written over that of a namesake",
        request: |server, sent| {
            newest_version(server, sent);
            if sent.is_status() {
                sent.remove("/metadata", "uid");
            }
        },
        shown_by: &[Fault::RecreateBefore],
        ..USUAL
    },
    Mutant {
        name: "the status does not name the pod",
        request: |_, sent| {
            if sent.is_status() {
                sent.remove("/status", "podUID");
            }
        },
        ..USUAL
    },
    Mutant {
        name: "a pod is born without a gate",
        request: |_, sent| {
            if sent.is_new_pod() {
                sent.remove("/spec", "schedulingGates");
            }
        },
        ..USUAL
    },
    Mutant {
        name: "a pod has no owner",
        request: |_, sent| {
            if sent.is_new_pod() {
                sent.remove("/metadata", "ownerReferences");
            }
        },
        ..USUAL
    },
    Mutant {
        name: "the name is no lock",
        request: |server, sent| {
            if sent.is_new_pod() {
                let options = json!({"gracePeriodSeconds": 0});
                // If there is none, nothing is in the way.
                let _ = server
                    .direct_as("mutant")
                    .delete_with("pods", NAMESPACE, POD, &options);
            }
        },
        shown_by: &[Fault::PodsHeldBack, Fault::Unanswered],
        ..USUAL
    },
    Mutant {
        name: "any pod of the name is released",
        request: |server, sent| {
            if sent.is_release()
                && let Some(pod) = server.direct().get("pods", NAMESPACE, POD)
            {
                // The gate of any pod: an index that exists, and no question whose it is.
                let gates = pod["spec"]["schedulingGates"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let index = gates
                    .iter()
                    .position(|gate| gate["name"] == GATE)
                    .unwrap_or_default();
                let place = format!("/spec/schedulingGates/{index}");
                sent.body = json!([{"op": "remove", "path": place}]);
            }
        },
        shown_by: &[Fault::RecreateBefore, Fault::Late],
        ..USUAL
    },
    Mutant {
        name: "a pod is released before it is committed",
        answer: |server, sent, answer| {
            if sent.is_new_pod() && answer.as_ref().is_some_and(|(code, _)| *code < 300) {
                let _ = server
                    .direct_as("operator-mutant")
                    .edit("pods", NAMESPACE, POD, |pod| {
                        pod["spec"]["schedulingGates"] = json!([]);
                    });
            }
            answer
        },
        ..USUAL
    },
    Mutant {
        name: "a pod of any version is deleted",
        request: |_, sent| {
            if sent.is_deletion() {
                sent.remove("/preconditions", "resourceVersion");
            }
        },
        shown_by: &[Fault::ReleaseBefore],
        ..USUAL
    },
    Mutant {
        name: "any pod of the name is deleted",
        request: |_, sent| {
            if sent.is_deletion() {
                sent.remove("", "preconditions");
            }
        },
        shown_by: &[
            Fault::Late,
            Fault::RecreateBefore,
            Fault::Unanswered,
            Fault::TimeoutThoughDone,
        ],
        ..USUAL
    },
    Mutant {
        name: "a look at the pod sees none",
        answer: |_, sent, answer| {
            let none = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "pods \"a-pod\" not found"});
            if sent.is_look() {
                Some((404, none))
            } else {
                answer
            }
        },
        shown_by: &[Fault::PodsHeldBack, Fault::CrashAfter, Fault::Unanswered],
        ..USUAL
    },
    Mutant {
        name: "a conflict is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((409, _)) if sent.is_status() => Some(as_if_done(sent)),
            _ => answer,
        },
        shown_by: &[Fault::EditBefore, Fault::Conflict],
        ..USUAL
    },
    Mutant {
        name: "no answer is taken for success",
        answer: |_, sent, answer| match &answer {
            None if sent.is_status() => Some(as_if_done(sent)),
            _ => answer,
        },
        shown_by: &[Fault::Lost],
        ..USUAL
    },
    Mutant {
        name: "a failure is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((500.., _)) if sent.is_status() => Some(as_if_done(sent)),
            _ => answer,
        },
        shown_by: &[Fault::InternalError],
        ..USUAL
    },
    Mutant {
        name: "a commit is believed without being made",
        request: |_, sent| {
            if sent.is_status() && sent.body["status"]["phase"] == "RUNNING" {
                sent.path.push_str("?dryRun=All");
            }
        },
        ..USUAL
    },
    Mutant {
        name: "Started is true at the commit",
        request: |_, sent| {
            if sent.is_status() && sent.body["status"]["phase"] == "RUNNING" {
                set_condition(sent, "Started", "status", &json!("True"));
            }
        },
        ..USUAL
    },
    Mutant {
        name: "a lost pod is said never to have started",
        request: |_, sent| {
            if sent.is_status() && sent.body["status"]["reason"] == "PodLost" {
                sent.body["status"]["reason"] = json!("NeverStarted");
            }
        },
        ..USUAL
    },
    Mutant {
        name: "conditions keep the generation of their birth",
        request: |_, sent| {
            if sent.is_status() {
                for type_ in ["Finished", "Complete", "Started"] {
                    set_condition(sent, type_, "observedGeneration", &json!(1));
                }
            }
        },
        ..USUAL
    },
    Mutant {
        name: "the operator's clock is a second ahead",
        clock: 1,
        ..USUAL
    },
    Mutant {
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
        ..USUAL
    },
];

impl Mutant {
    /// The first run of a scenario that catches it.
    pub fn is_caught_by(&'static self, scenario: &Scenario, calm: &Run) -> Option<String> {
        let is_caught = |disturbance: &Disturbance| {
            !run(scenario, disturbance, Some(self))
                .faults(calm, scenario)
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
                    return Some(super::name(scenario, site, *fault));
                }
            }
        }
        None
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
                body: serde_json::from_slice(&text).unwrap_or_default(),
            };
            let is_watch = parts
                .uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
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
                return answer;
            }
            let (answer, error) = match answer {
                Ok(answer) => {
                    let code = answer.status().as_u16();
                    let body = answer.into_body().collect().await?.to_bytes();
                    (Some((code, serde_json::from_slice(&body)?)), None)
                }
                Err(error) => (None, Some(error)),
            };
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
