//! Honest callers, each on a thread of its own: one keeps its connection, as the API server does; the
//! other opens a new connection for each call.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::server::Server;

/// What calls took.
pub(crate) struct Quantiles {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) calls: usize,
}

impl From<Vec<Duration>> for Quantiles {
    fn from(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let calls = took.len();
        Self {
            p50: took[calls / 2],
            p99: took[calls - 1 - calls / 100],
            calls,
        }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, calls } = self;
        write!(f, "p50 {p50:.1?} p99 {p99:.1?} of {calls}")
    }
}

/// What both callers found.
pub(crate) struct Measured {
    pub(crate) kept: Quantiles,
    pub(crate) fresh: Quantiles,
}

/// The least number of calls of each caller, however slow the machine is.
const MIN_CALLS: usize = 20;

/// Calls these servers at the same time for that long. Every single call must succeed.
pub(crate) fn measure<const N: usize>(servers: [&Server; N], time: Duration) -> [Measured; N] {
    let caller = |server: &Server, keep, pace| {
        let (address, tls) = (server.address, server.tls.clone());
        std::thread::spawn(move || {
            runtime().block_on(call(address, tls, keep, time, pace, MIN_CALLS))
        })
    };
    let callers = servers.map(|server| {
        let kept = caller(server, true, Duration::from_millis(5));
        let fresh = caller(server, false, Duration::from_millis(15));
        (kept, fresh)
    });
    callers.map(|(kept, fresh)| Measured {
        kept: kept.join().unwrap().into(),
        fresh: fresh.join().unwrap().into(),
    })
}

/// A hundred calls over that time or more, each on a new connection. Every single call must succeed.
pub(crate) fn hundred(server: &Server, time: Duration) -> Vec<Duration> {
    let (address, tls) = (server.address, server.tls.clone());
    let call = call(address, tls, false, Duration::ZERO, time / 100, 100);
    runtime().block_on(call)
}

async fn call(
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    keep: bool,
    time: Duration,
    pace: Duration,
    at_least: usize,
) -> Vec<Duration> {
    let request = request();
    let mut took = Vec::new();
    let mut kept = None;
    let end = Instant::now() + time;
    while Instant::now() < end || took.len() < at_least {
        let start = Instant::now();
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => connect(address, &tls, [127, 0, 0, 1].into()).await.unwrap(),
        };
        let call = ask(&mut connection, &request);
        // What the API server waits for.
        tokio::time::timeout(Duration::from_secs(10), call)
            .await
            .unwrap();
        took.push(start.elapsed());
        kept = keep.then_some(connection);
        tokio::time::sleep(pace).await;
    }
    took
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, fresh } = self;
        write!(f, "kept alive {kept}; fresh {fresh}")
    }
}

/// A connection from that address, with its handshake done.
pub(crate) async fn connect(
    address: SocketAddr,
    tls: &Arc<ClientConfig>,
    from: Ipv4Addr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    handshake(stream, tls, address).await
}

pub(crate) async fn handshake(
    stream: TcpStream,
    tls: &Arc<ClientConfig>,
    address: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::from(address.ip());
    TlsConnector::from(tls.clone()).connect(name, stream).await
}

async fn ask(connection: &mut TlsStream<TcpStream>, request: &[u8]) {
    connection.write_all(request).await.unwrap();
    let answer = answer(connection).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
}

/// Reads one answer, head and body.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8(answer).unwrap())
}

/// Connections that a caller established before an attack.
pub(crate) struct Established {
    runtime: Runtime,
    connections: Vec<TlsStream<TcpStream>>,
}

impl Established {
    pub(crate) fn new(server: &Server, from: Ipv4Addr, many: usize) -> Self {
        let runtime = runtime();
        let connect = async || {
            let mut connection = connect(server.address, &server.tls, from).await.unwrap();
            ask(&mut connection, &request()).await;
            connection
        };
        let connections = (0..many).map(|_| runtime.block_on(connect())).collect();
        Self {
            runtime,
            connections,
        }
    }

    /// Calls on half of them for that long. Every call must succeed.
    pub(crate) fn use_half(&mut self, time: Duration) {
        let half = self.connections.len() / 2;
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.call(half);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Calls once on each. Every call must succeed.
    pub(crate) fn use_once(&mut self) {
        self.call(self.connections.len());
    }

    fn call(&mut self, many: usize) {
        let request = request();
        for connection in &mut self.connections[..many] {
            self.runtime.block_on(ask(connection, &request));
        }
    }
}

/// Asks for the probes on a new connection each time, as the kubelet does, for that long. Each must be answered within
/// the kubelet's second. Returns how many there were.
pub(crate) fn probe(server: &Server, time: Duration) -> usize {
    let address = server.probes;
    let end = Instant::now() + time;
    let mut probes = 0;
    runtime().block_on(async {
        while Instant::now() < end {
            let probe = async {
                let mut stream = TcpStream::connect(address).await?;
                let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                stream.write_all(request).await?;
                answer(&mut stream).await
            };
            let answer = tokio::time::timeout(Duration::from_secs(1), probe).await;
            let answer = answer.expect("in time").expect("answered");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            probes += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    probes
}

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap()
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1).unwrap();
    body.len() >= length.lines().next().unwrap().parse().unwrap()
}

/// A review of a valid At.
pub(crate) fn request() -> Vec<u8> {
    let group = "cnat.programming-kubernetes.info";
    let object: Value = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "At",
        "metadata": { "name": "honest", "namespace": "default", "annotations": { "filler": "x".repeat(2000) } },
        "spec": { "schedule": "2099-01-01T00:00:00Z", "command": "echo YAY" },
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": group, "version": "v1alpha1", "kind": "At" },
            "operation": "CREATE",
            "userInfo": { "username": "somebody" },
            "object": object,
        },
    })
    .to_string();
    let path = "/mutate-cnat-programming-kubernetes-info-v1alpha1-at";
    let length = review.len();
    format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{review}"
    )
    .into_bytes()
}
