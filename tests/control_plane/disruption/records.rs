//! The record of events itself: it resumes without a gap, and fails where it cannot.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::harness::record::Record;

/// An API server that answers these texts one after the other, and nothing more.
fn server(answers: Vec<Vec<Value>>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let questions = asked.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        questions.lock().unwrap().push(request.uri().to_string());
        let answer = answers.lock().unwrap().next();
        async move {
            let Some(lines) = answer else {
                return std::future::pending().await;
            };
            let lines = lines.iter().map(|line| format!("{line}\n"));
            let body = Full::<Bytes>::from(lines.collect::<String>());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    (Client::new(service, "default"), asked)
}

fn object(version: u64) -> Value {
    json!({"metadata": {"name": "x", "resourceVersion": version.to_string()}})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn list() -> Vec<Value> {
    vec![json!({"metadata": {"resourceVersion": "5"}, "items": [object(3)]})]
}

#[tokio::test]
async fn a_record_goes_on_where_a_watch_ended() {
    let (client, asked) = server(vec![
        list(),
        vec![event("MODIFIED", &object(7))],
        vec![event("DELETED", &object(9))],
    ]);
    let record = Record::<ConfigMap>::start(Api::default_namespaced(client)).await;
    record.reach(9).await;
    let seen = record.look(|events| {
        events
            .iter()
            .map(|e| (e.version, e.gone))
            .collect::<Vec<_>>()
    });
    assert_eq!(seen, [(3, false), (7, false), (9, true)]);
    let asked = asked.lock().unwrap();
    for (uri, version) in asked[1..].iter().zip(["5", "7", "9"]) {
        let version = format!("resourceVersion={version}");
        assert!(uri.contains(&version), "{version} is not in {uri}");
    }
}

#[tokio::test]
async fn a_record_with_a_gap_fails() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410});
    let (client, _) = server(vec![
        list(),
        vec![event("MODIFIED", &object(7)), event("ERROR", &status)],
        vec![event("MODIFIED", &object(9))],
    ]);
    let record = Record::<ConfigMap>::start(Api::default_namespaced(client)).await;
    let reached = std::panic::AssertUnwindSafe(record.reach(9)).catch_unwind();
    let panic = reached.await.expect_err("a record with a gap is not whole");
    assert_eq!(panic.downcast_ref(), Some(&"the record has a hole"));
}
