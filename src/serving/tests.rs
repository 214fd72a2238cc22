//! The listener on loopback, with a real TLS client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use chrono::{TimeDelta, Utc};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Counters, Limits, Rejection, Shutdown, serve, serve_plain, tls_config};
use crate::certs::ServedCertificate;
use crate::certs::authority::Authority;

/// Nothing in these tests takes longer, unless it hangs.
const SOON: Duration = Duration::from_secs(10);

struct Server {
    address: SocketAddr,
    authority: Authority,
    certificate: Arc<ServedCertificate>,
    shutdown: Shutdown,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let authority = Authority::generate(Utc::now(), TimeDelta::days(1)).unwrap();
        let certificate = Arc::new(ServedCertificate::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::default();
        let counters = Arc::new(Counters::default());
        let task = tokio::spawn(serve(
            listener,
            tls_config(certificate.clone()).unwrap(),
            router(),
            limits,
            shutdown.clone(),
            counters.clone(),
        ));
        let server = Self {
            address,
            authority,
            certificate,
            shutdown,
            counters,
            task,
        };
        server.new_leaf();
        server
    }

    /// Signs and serves another leaf; returns it.
    fn new_leaf(&self) -> CertificateDer<'static> {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let leaf = self
            .authority
            .issue(&hosts, Utc::now(), TimeDelta::hours(1))
            .unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        self.certificate.set(leaf.certified_key(&provider).unwrap());
        leaf.chain[0].clone()
    }

    async fn connect(&self) -> Client {
        self.try_connect().await.unwrap()
    }

    async fn try_connect(&self) -> std::io::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&self.authority.certificate_pem()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .map(Client)
    }

    async fn rejected(&self, reason: Rejection, times: u64) {
        eventually(|| self.counters.rejected(reason) == times).await;
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .map(Result::unwrap)
        .collect()
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/length",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/panic", get(panics))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                "slow"
            }),
        )
        .route("/endless", get(std::future::pending::<&str>))
}

struct Client(TlsStream<TcpStream>);

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    async fn get(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// One answer, head and body, in lower case.
    async fn answer(&mut self) -> String {
        let read = async {
            let mut text = String::new();
            loop {
                let mut bytes = [0; 4096];
                let n = self.0.read(&mut bytes).await.unwrap();
                assert_ne!(n, 0, "closed after {text:?}");
                text.push_str(&String::from_utf8_lossy(&bytes[..n]).to_lowercase());
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.split("content-length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        return text;
                    }
                }
            }
        };
        tokio::time::timeout(SOON, read).await.expect("an answer")
    }

    /// Waits until the server has closed the connection.
    async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is a way to close, too.
        let _ = tokio::time::timeout(SOON, self.0.read_to_end(&mut rest))
            .await
            .expect("closed");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    fn leaf(&self) -> CertificateDer<'static> {
        self.0.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    }
}

async fn eventually(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < SOON, "did not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn requests_are_answered_one_after_another_on_one_connection() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        let answer = client.get("/").await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(client.0.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!((server.counters.accepted(), server.counters.open()), (1, 1));
    drop(client);
    eventually(|| server.counters.open() == 0).await;
}

#[tokio::test]
async fn a_peer_that_sends_its_head_too_slowly_is_cut_and_counted() {
    let limits = Limits {
        first_request: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: loc").await;
    client.closed().await;
    server.rejected(Rejection::FirstRequestTimeout, 1).await;
}

#[tokio::test]
async fn a_connection_that_asked_in_time_lives_on_until_it_is_idle_for_too_long() {
    let limits = Limits {
        first_request: Duration::from_millis(100),
        idle: Duration::from_millis(600),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client.get("/").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.get("/").await;
    client.closed().await;
    assert_eq!(server.counters.rejected(Rejection::FirstRequestTimeout), 0);
}

#[tokio::test]
async fn a_silent_peer_blocks_nobody_and_is_cut() {
    let limits = Limits {
        handshake: Duration::from_secs(3),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    server.connect().await.get("/").await;
    let cut = server.counters.rejected(Rejection::HandshakeTimeout);
    assert_eq!(
        cut, 0,
        "answered while the silent ones were still waited for"
    );
    server.rejected(Rejection::HandshakeTimeout, 20).await;
    let n = silent[0].read(&mut [0; 1]).await.unwrap();
    assert_eq!(n, 0);
}

#[tokio::test]
async fn plain_text_on_the_tls_port_is_closed_and_counted() {
    let server = Server::start(Limits::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer))
        .await
        .expect("closed");
    // A TLS alert at most.
    assert!(answer.len() < 16, "{answer:?}");
    server.rejected(Rejection::HandshakeFailed, 1).await;
    server.connect().await.get("/").await;
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_and_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start(Limits::default()).await;
    server.address = listener.local_addr().unwrap();
    let (shutdown, counters) = (Shutdown::default(), server.counters.clone());
    let tls = tls_config(Arc::new(ServedCertificate::default())).unwrap();
    let task = serve(
        listener,
        tls,
        router(),
        Limits::default(),
        shutdown,
        counters,
    );
    let task = tokio::spawn(task);
    assert!(server.try_connect().await.is_err());
    server.rejected(Rejection::HandshakeFailed, 1).await;
    task.abort();
}

#[tokio::test]
async fn a_new_certificate_is_for_new_handshakes_and_old_connections_go_on() {
    let server = Server::start(Limits::default()).await;
    let mut old = server.connect().await;
    old.get("/").await;
    let first = old.leaf();
    let second = server.new_leaf();
    assert_ne!(first, second);
    let mut new = server.connect().await;
    assert_eq!(new.leaf(), second);
    assert!(new.get("/").await.starts_with("http/1.1 200"));
    assert!(old.get("/").await.starts_with("http/1.1 200"));
    assert_eq!(old.leaf(), first);
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_refused_unread() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    let length = Limits::default().body_bytes + 1;
    client
        .send(&format!(
            "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
    assert!(
        answer.ends_with("{\"error\":\"request body too large\"}\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_refused() {
    let limits = Limits {
        body_bytes: 1000,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    client
        .send("POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send(&chunk).await;
    client.send(&chunk).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    let length = Limits::default().body_bytes;
    client
        .send(&format!(
            "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    client.send(&"x".repeat(length)).await;
    let answer = client.answer().await;
    assert!(answer.ends_with(&length.to_string()), "{answer}");
}

#[tokio::test]
async fn a_body_that_trickles_is_cut_at_its_total_deadline() {
    let limits = Limits {
        body: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client
        .send("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        .await;
    let trickle = async {
        loop {
            client.0.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_millis(250), trickle)
            .await
            .is_err()
    );
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 4"), "{answer}");
}

#[tokio::test]
async fn a_panicking_handler_answers_500_and_harms_nothing_else() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    let answer = client.get("/panic").await;
    assert!(answer.starts_with("http/1.1 500"), "{answer}");
    assert!(client.get("/").await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn a_full_listener_turns_connections_away_until_there_is_room() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    assert!(server.try_connect().await.is_err());
    server.rejected(Rejection::OverCapacity, 1).await;
    assert!(first.get("/").await.starts_with("http/1.1 200"));
    assert!(second.get("/").await.starts_with("http/1.1 200"));
    drop(first);
    eventually(|| server.counters.open() == 1).await;
    server.connect().await.get("/").await;
}

#[tokio::test]
async fn while_draining_answers_say_close_and_new_connections_are_still_served() {
    let server = Server::start(Limits::default()).await;
    let mut old = server.connect().await;
    old.get("/").await;
    server.shutdown.draining.cancel();
    // An idle connection is not closed under its owner's feet.
    let answer = old.get("/").await;
    assert!(answer.contains("connection: close"), "{answer}");
    old.closed().await;
    let answer = server.connect().await.get("/").await;
    assert!(
        answer.starts_with("http/1.1 200") && answer.contains("connection: close"),
        "{answer}"
    );
}

#[tokio::test]
async fn at_the_stop_what_is_in_work_is_finished_and_idle_connections_are_closed() {
    let server = Server::start(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.get("/").await;
    let mut fresh = server.connect().await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.draining.cancel();
    server.shutdown.stop.cancel();
    idle.closed().await;
    fresh.closed().await;
    let answer = busy.answer().await;
    assert!(
        answer.ends_with("slow") && answer.contains("connection: close"),
        "{answer}"
    );
    tokio::time::timeout(SOON, server.task)
        .await
        .expect("ends")
        .unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.counters.open(), 0);
}

#[tokio::test]
async fn what_does_not_finish_is_cut_at_the_end_of_the_drain_time() {
    let limits = Limits {
        drain: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut busy = server.connect().await;
    busy.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.stop.cancel();
    tokio::time::timeout(SOON, server.task)
        .await
        .expect("ends")
        .unwrap();
    busy.closed().await;
}

#[tokio::test]
async fn the_plain_listener_answers_and_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(serve_plain(listener, router(), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    stop.cancel();
    tokio::time::timeout(SOON, task)
        .await
        .expect("ends")
        .unwrap();
}
