//! The listener on loopback, with a real TLS client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod client_certificates;
mod connections;
mod ending;
mod requests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use chrono::{TimeDelta, Utc};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Counters, Limits, Rejection, Shutdown, serve, serve_plain, tls_config};
use webhook_certs::ServedCertificate;
use webhook_certs::authority::Authority;

/// Nothing in these tests takes longer, unless it hangs.
const SOON: Duration = Duration::from_secs(10);

/// What most clients come from.
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another address.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Server {
    address: SocketAddr,
    authority: Authority,
    certificate: Arc<ServedCertificate>,
    shutdown: Shutdown,
    counters: Arc<Counters>,
    /// The number of requests for `/endless`, if the router has it.
    endless: Arc<AtomicUsize>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let endless = Arc::new(AtomicUsize::new(0));
        let mut server = Self::of(router(&endless), limits, None).await;
        server.endless = endless;
        server
    }

    /// A webhook that answers with what it is sent.
    async fn webhooks() -> Self {
        let router = Router::new().route("/validate", post(async |body: Bytes| body));
        Self::of(router, Limits::default(), None).await
    }

    async fn of(
        router: Router,
        limits: Limits,
        callers: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Self {
        let authority = Authority::generate(Utc::now(), TimeDelta::days(1)).unwrap();
        let certificate = Arc::new(ServedCertificate::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::default();
        let counters = Arc::new(Counters::default());
        let task = tokio::spawn(serve(
            listener,
            tls_config(certificate.clone(), callers).unwrap(),
            router,
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
            endless: Arc::default(),
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
        self.try_connect(HERE).await.unwrap()
    }

    async fn try_connect(&self, from: Ipv4Addr) -> std::io::Result<Client> {
        let roots = self.roots();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = self.silent(from).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let read = String::new();
        Ok(Client { stream, read })
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&self.authority.certificate_pem()));
        roots
    }

    /// A connection on which nothing was sent yet.
    async fn silent(&self, from: Ipv4Addr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        socket.connect(self.address).await
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

fn router(endless: &Arc<AtomicUsize>) -> Router {
    let endless = endless.clone();
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/length",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/large", get(|| async { "x".repeat(64 << 20) }))
        .route("/panic", get(panics).post(panics))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                "slow"
            }),
        )
        .route(
            "/endless",
            get(async move || {
                endless.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<&str>().await
            }),
        )
        .layer(DefaultBodyLimit::disable())
}

struct Client {
    stream: TlsStream<TcpStream>,
    /// What was read beyond the last answer.
    read: String,
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    async fn get(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// One answer, head and body, in lower case.
    async fn answer(&mut self) -> String {
        let read = async {
            loop {
                if let Some((head, body)) = self.read.split_once("\r\n\r\n") {
                    let length = head.split("content-length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        let rest = self.read.split_off(head.len() + 4 + length);
                        return std::mem::replace(&mut self.read, rest);
                    }
                }
                let mut bytes = [0; 4096];
                let n = self.stream.read(&mut bytes).await.unwrap();
                assert_ne!(n, 0, "closed after {:?}", self.read);
                self.read += &String::from_utf8_lossy(&bytes[..n]).to_lowercase();
            }
        };
        tokio::time::timeout(SOON, read).await.expect("an answer")
    }

    /// Waits until the server has closed the connection.
    async fn closed(&mut self) {
        assert_eq!(self.rest().await, "");
    }

    /// All that comes until the server closes the connection.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset is a way to close, too.
        let _ = tokio::time::timeout(SOON, self.stream.read_to_end(&mut rest))
            .await
            .expect("closed");
        std::mem::take(&mut self.read) + &String::from_utf8_lossy(&rest).to_lowercase()
    }

    fn leaf(&self) -> CertificateDer<'static> {
        self.stream.get_ref().1.peer_certificates().unwrap()[0]
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
