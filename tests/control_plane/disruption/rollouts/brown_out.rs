//! An API server that carries deletions out and does not say so, as with an etcd whose disk is slow: a request that is
//! answered 504 may be carried out before the answer, seconds after it, or never.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{Method, Request, Response, header};
use fastrand::Rng;
use kube::Client;
use kube::client::Body;
use my_operator_rounds::{is_soak, lengths};
use resilient_kube_client::Answers;
use resilient_kube_client::clock;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Layer as _};

use super::fleet::{Fleet, Strategy};
use super::{Run, assert_good};
use crate::disruption::cluster;
use crate::harness::{self, in_process, seed};

const NODES: usize = 6;
/// For how long deletions are answered 504.
const BROWN_OUT: Duration = Duration::from_secs(30);
/// How long after its answer a deletion is carried out at most.
const LATEST: Duration = Duration::from_secs(4);

/// The API server between an operator and the real one.
struct SlowServer {
    client: Client,
    /// When deletions are answered as they should be again.
    ends: Instant,
    random: Mutex<Rng>,
    /// How many deletions were answered 504.
    unanswered: Mutex<usize>,
}

impl SlowServer {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let is_of_pod =
            request.method() == Method::DELETE && request.uri().path().contains("/pods/");
        if !is_of_pod || Instant::now() >= self.ends {
            return Ok(self.client.send(request).await?);
        }
        *self.unanswered.lock().unwrap() += 1;
        let late = {
            let mut random = self.random.lock().unwrap();
            let late = Duration::from_secs_f64(random.f64() * LATEST.as_secs_f64());
            random.bool().then_some(late)
        };
        match late {
            None => drop(self.client.send(request).await?),
            Some(late) => {
                let client = self.client.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    // No caller is left that waits for the answer.
                    let _ = client.send(request).await;
                });
            }
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 504, "reason": "Timeout", "message": "Timeout: request did not complete within requested timeout - context deadline exceeded"});
        let answer = Response::builder()
            .status(504)
            .header(header::CONTENT_TYPE, "application/json");
        Ok(answer.body(Body::from(status.to_string().into_bytes()))?)
    }
}

/// Rolls a fleet out behind such a server. Returns how many deletions were answered 504.
async fn roll_out(fleet: &mut Fleet, client: Client) -> usize {
    let mut random = fleet.random.fork();
    let limit = random.usize(1..=2);
    let server = Arc::new(SlowServer {
        client,
        ends: Instant::now() + BROWN_OUT,
        random: Mutex::new(random),
        unanswered: Mutex::default(),
    });
    let service = {
        let server = Arc::clone(&server);
        tower::service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { server.call(request).await }
        })
    };
    let client = Client::new(Answers::default().layer(service), &fleet.namespace);
    let operator = in_process::reconcile(
        in_process::kind("mydaemonset"),
        client,
        clock::system(),
        vec![fleet.namespace.clone()],
        CancellationToken::new(),
    );
    let _operator = AbortOnDropHandle::new(tokio::spawn(operator));
    fleet.until_settled().await;
    let begin = fleet.events();
    let strategy = Strategy {
        max_unavailable: limit.into(),
        ..Strategy::plain()
    };
    fleet.apply("app:1", strategy).await;
    fleet.until_settled().await;
    let most = fleet.most_unavailable(begin).await;
    assert!(
        most <= limit,
        "{}: {most} nodes without an available pod, the limit is {limit}",
        fleet.namespace
    );
    assert_eq!(fleet.stopped, 0, "no pod failed");
    *server.unanswered.lock().unwrap()
}

/// The sweep has a call that is answered 504 and carried out, at once or late, at a deletion of a pod in each scenario: only
/// `make soak` runs this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_without_an_answer_make_no_more_nodes_unavailable() {
    if !is_soak() {
        return;
    }
    let seed = seed("the limits, and when deletions are carried out");
    let mut random = Rng::with_seed(seed);
    let cluster = cluster().await;
    let run = Run::start(cluster, seed).await;
    run.note_start().await;
    let mut fleets = Vec::new();
    for _ in 0..lengths::brown_outs() {
        fleets.push(Fleet::new(cluster, "brown-out", NODES, random.fork()).await);
    }
    let client = harness::client(cluster).await;
    let all = fleets
        .iter_mut()
        .map(|fleet| roll_out(fleet, client.clone()));
    let unanswered = futures::future::join_all(all).await;
    println!("deletions without an answer: {unanswered:?}");
    assert_good(&run.judge(&fleets).await);
    assert!(unanswered.iter().all(|count| *count > 0));
    for fleet in &fleets {
        fleet.remove().await;
    }
}
