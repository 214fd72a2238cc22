//! A leader is frozen in the middle of its work, and woken when another replica has led.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use kube::client::Body;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use simulated_apiserver::{Connection, Options, Server, Verb};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

/// The simulated API server on loopback. Its history has the requests under that name.
async fn listen(server: &Server, name: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = server.service(name);
    let router = Router::new().fallback(move |request: Request| answer(service.clone(), request));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn answer(service: Connection, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let request = Request::from_parts(parts, Body::from(body));
    match service.oneshot(request).await {
        Ok(answer) => answer.map(axum::body::Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// A replica, in a process of its own.
struct Replica {
    name: &'static str,
    process: Child,
}

impl Replica {
    async fn start(server: &Server, name: &'static str, arguments: &[&str]) -> Self {
        let address = listen(server, name).await;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        });
        let path = format!("{}/{}.json", env!("CARGO_TARGET_TMPDIR"), address.port());
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_elected"));
        command.args(arguments).env_clear().env("KUBECONFIG", path);
        let process = command.spawn().unwrap();
        Self { name, process }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How often a replica has asked for this.
fn requests(server: &Server, replica: &Replica, verb: Verb, resource: &str) -> usize {
    let requests = server.history().requests.into_iter();
    let sites = requests.map(|request| request.site);
    sites
        .filter(|site| (site.user.as_str(), site.verb) == (replica.name, verb))
        .filter(|site| site.resource == resource)
        .count()
}

fn writes(server: &Server, replica: &Replica) -> usize {
    requests(server, replica, Verb::Patch, "configmaps")
}

/// How often it has read the Lease, which a leader does not do.
fn looks(server: &Server, replica: &Replica) -> usize {
    requests(server, replica, Verb::Get, "leases")
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    waited.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Two replicas, the first of which leads.
async fn replicas(server: &Server, arguments: &[&str]) -> [Replica; 2] {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"count": "yes"}},
    });
    server.direct().create(config).unwrap();
    let one = Replica::start(server, "one", arguments).await;
    until("the first replica leads", || writes(server, &one) > 0).await;
    let two = Replica::start(server, "two", arguments).await;
    until("the second one waits", || looks(server, &two) > 0).await;
    [one, two]
}

/// Freezes the leader until the other replica leads, and returns how often it writes when it is awake again.
async fn late_writes(server: &Server, leader: &Replica, other: &Replica) -> usize {
    let (mine, others) = (writes(server, leader), writes(server, other));
    until("it works", || writes(server, leader) > mine).await;
    leader.signal(Signal::STOP);
    until("the other one leads", || writes(server, other) > others).await;
    let (written, looked) = (writes(server, leader), looks(server, leader));
    leader.signal(Signal::CONT);
    until("it waits to lead", || looks(server, leader) > looked).await;
    let others = writes(server, other);
    until("the other one goes on", || {
        writes(server, other) > others + 5
    })
    .await;
    writes(server, leader) - written
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_frozen_writes_nothing_after_another_has_led() {
    let server = Server::new(Options::default());
    let [mut leader, mut other] = replicas(&server, &[]).await;
    for _ in 0..3 {
        assert_eq!(late_writes(&server, &leader, &other).await, 0);
        std::mem::swap(&mut leader, &mut other);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_it_does() {
    let server = Server::new(Options::default());
    let [mut leader, mut other] = replicas(&server, &["--without-fence"]).await;
    for _ in 0..10 {
        if late_writes(&server, &leader, &other).await > 0 {
            return;
        }
        std::mem::swap(&mut leader, &mut other);
    }
    panic!("it was frozen ten times, and never wrote late");
}
