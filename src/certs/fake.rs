//! A very small API server for tests: Secrets, namespaces and webhook configurations, with resource
//! versions, watches and injected faults.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::DATE;
use axum::http::{Method, Request, Response, StatusCode, Uri};
use chrono::TimeDelta;
use futures::stream::{self, StreamExt as _};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::client::ServerClock;
use crate::clock::simulated::Machine;

const BASE: &str = "/apis/admissionregistration.k8s.io/v1";

/// What answers a request in place of the server, if it does.
type Fault = Box<dyn Fn(&Method, &str) -> Option<(u16, &'static str)> + Send>;

pub(super) struct Fake {
    /// Objects by path.
    objects: Mutex<BTreeMap<String, Value>>,
    version: Mutex<u64>,
    changes: broadcast::Sender<(String, Value)>,
    fault: Mutex<Option<Fault>>,
    /// How many seconds its clock is ahead of the machine's; it says no time without.
    ahead: Mutex<Option<i64>>,
    /// What its answers say about the time.
    pub(super) server_clock: ServerClock,
    /// Every request that was not a watch: method and path.
    pub(super) log: Mutex<Vec<String>>,
    /// The clock of whoever calls.
    pub(super) machine: Machine,
}

pub(super) fn configuration_path(kind: &str, name: &str) -> String {
    format!("{BASE}/{}s/{name}", kind.to_lowercase())
}

pub(super) fn secret_path(namespace: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/secrets/{}",
        super::secret::NAME
    )
}

/// A configuration with these entries, without any bundle.
pub(super) fn configuration(kind: &str, name: &str, entries: &[&str]) -> Value {
    let webhooks: Vec<_> = entries
        .iter()
        .map(|entry| json!({"name": entry, "clientConfig": {"url": "https://127.0.0.1"}}))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    })
}

impl Fake {
    pub(super) fn start() -> (Arc<Self>, Client) {
        let fake = Arc::new(Self {
            objects: Mutex::default(),
            version: Mutex::new(100),
            changes: broadcast::channel(100).0,
            fault: Mutex::default(),
            ahead: Mutex::default(),
            server_clock: ServerClock::default(),
            log: Mutex::default(),
            machine: Machine::boot(),
        });
        let router = Router::new().fallback(answer).with_state(fake.clone());
        (fake, Client::new(router, "default"))
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }

    /// Puts an object there, as someone else would.
    pub(super) fn put(&self, path: &str, mut object: Value) -> Value {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.objects
            .lock()
            .unwrap()
            .insert(path.to_owned(), object.clone());
        // Nobody may be watching.
        let _ = self.changes.send((path.to_owned(), object.clone()));
        object
    }

    pub(super) fn delete(&self, path: &str) {
        self.objects.lock().unwrap().remove(path);
    }

    /// Lets requests fail with the status and message that `fault` returns.
    pub(super) fn fail(
        &self,
        fault: impl Fn(&Method, &str) -> Option<(u16, &'static str)> + Send + 'static,
    ) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    /// Says the machine's time plus so many seconds in its answers from now on.
    pub(super) fn say_time(&self, ahead: i64) {
        *self.ahead.lock().unwrap() = Some(ahead);
    }

    pub(super) fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    fn write(&self, method: &Method, path: &str, body: Value) -> Response<Body> {
        let name = body["metadata"]["name"].as_str().unwrap();
        let path = if method == Method::POST {
            format!("{path}/{name}")
        } else {
            path.to_owned()
        };
        let live = self.get(&path);
        if method == Method::POST {
            if live.is_some() {
                return failure(409, "AlreadyExists", "exists");
            }
            if let Some((namespace, _)) = path.split_once("/secrets/")
                && self.get(namespace).is_none()
            {
                return failure(404, "NotFound", "the namespace is missing");
            }
            return created(&self.put(&path, body));
        }
        let expected = body["metadata"].get("resourceVersion");
        if expected.is_some()
            && expected != live.as_ref().map(|o| &o["metadata"]["resourceVersion"])
        {
            return failure(409, "Conflict", "the object has been modified");
        }
        let object = if method == Method::PATCH {
            merge(live, body)
        } else {
            body
        };
        created(&self.put(&path, object))
    }
}

/// Server-side apply, as far as these tests need it: entries are merged by name.
fn merge(live: Option<Value>, patch: Value) -> Value {
    let Some(mut live) = live else { return patch };
    for entry in live["webhooks"].as_array_mut().unwrap() {
        let new = patch["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["name"] == entry["name"]);
        let bundle = new.and_then(|new| new["clientConfig"].get("caBundle"));
        let config = entry["clientConfig"].as_object_mut().unwrap();
        match bundle {
            Some(bundle) => config.insert("caBundle".to_owned(), bundle.clone()),
            // What a manager leaves out, it loses.
            None => config.remove("caBundle"),
        };
    }
    live
}

async fn answer(State(fake): State<Arc<Fake>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let mut response = respond(&fake, &parts.method, &parts.uri, &body);
    if let Some(ahead) = *fake.ahead.lock().unwrap() {
        let time = fake.machine.now() + TimeDelta::seconds(ahead);
        let date = time.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        response.headers_mut().insert(DATE, date.parse().unwrap());
        fake.server_clock.note(&response);
    }
    response
}

fn respond(fake: &Fake, method: &Method, uri: &Uri, body: &Bytes) -> Response<Body> {
    let path = uri.path();
    let query = uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        fake.log.lock().unwrap().push(format!("WATCH {path}"));
        return watch(fake, path);
    }
    fake.log.lock().unwrap().push(format!("{method} {path}"));
    if let Some((code, message)) = fake
        .fault
        .lock()
        .unwrap()
        .as_ref()
        .and_then(|fault| fault(method, path))
    {
        return failure(
            code,
            if code == 403 { "Forbidden" } else { "Error" },
            message,
        );
    }
    if method != Method::GET {
        return fake.write(method, path, serde_json::from_slice(body).unwrap());
    }
    if let Some(object) = fake.get(path) {
        return created(&object);
    }
    let is_list = path.ends_with("/secrets")
        || path
            .strip_prefix(BASE)
            .is_some_and(|rest| rest.matches('/').count() == 1);
    if !is_list {
        return failure(404, "NotFound", "not found");
    }
    let version = fake.version.lock().unwrap().to_string();
    let items: Vec<_> = fake
        .objects
        .lock()
        .unwrap()
        .iter()
        .filter(|(key, _)| key.starts_with(path))
        .map(|(_, object)| object.clone())
        .collect();
    created(&json!({"metadata": {"resourceVersion": version}, "items": items}))
}

fn watch(fake: &Fake, prefix: &str) -> Response<Body> {
    let prefix = prefix.to_owned();
    let events = stream::unfold(fake.changes.subscribe(), |mut changes| async {
        changes.recv().await.ok().map(|change| (change, changes))
    })
    .filter_map(move |(path, object)| {
        let event = path.starts_with(&prefix).then(|| {
            let line = json!({"type": "MODIFIED", "object": object}).to_string();
            Ok::<_, std::convert::Infallible>(Bytes::from(line + "\n"))
        });
        async { event }
    });
    Response::new(Body::from_stream(events))
}

fn created(object: &Value) -> Response<Body> {
    Response::new(Body::from(object.to_string()))
}

fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
