//! The server: this test program once more, as a process of its own, so that its memory is the
//! server's alone. It ends with its standard input, so none outlives the tests, however they end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission_rules as admission;
use bounded_listener::{
    Counters, Limits, Rejection, Shutdown, bind, serve, serve_plain, tls_config,
};
use chrono::{TimeDelta, Utc};
use my_operator::kinds;
use my_operator_harness::peer::trust;
use my_operator_telemetry::probes;
use resilient_kube_client::clock;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use webhook_certs::ServedCertificate;
use webhook_certs::authority::Authority;

/// Set for the server's process.
pub(crate) const ROLE: &str = "MY_OPERATOR_TEST_HOSTILE_SERVER";

/// Serves the webhooks with the limits that they have in production. Says where on standard output,
/// and what it counts for each line on standard input.
pub(crate) fn run() {
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let (address, authority, counters) = start();
    let probes = start_probes();
    let ca = authority.certificate_pem();
    // The test harness has begun a line of its own.
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n{}",
        json!({ "address": address, "probes": probes, "ca": ca })
    )
    .unwrap();
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let mut counted = json!({ "open": counters.open(), "panics": counters.panics() });
        for (reason, name) in Rejection::ALL {
            counted[name] = counters.rejected(reason).into();
        }
        writeln!(out, "{counted}").unwrap();
    }
    drop(entered);
    runtime.shutdown_background();
}

fn start() -> (SocketAddr, Authority, Arc<Counters>) {
    let admissions: Vec<_> = kinds::REGISTRY.iter().map(|kind| kind.admission).collect();
    let metrics = admission::metrics::Metrics::default();
    let router = admission::router::router(&admissions, &clock::system(), &metrics);
    let authority = Authority::generate(Utc::now(), TimeDelta::days(1)).unwrap();
    let hosts = ["127.0.0.1".to_owned()];
    let leaf = authority.issue(&hosts, Utc::now(), TimeDelta::hours(1));
    let certificate = Arc::new(ServedCertificate::default());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    certificate.set(leaf.unwrap().certified_key(&provider).unwrap());
    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let counters = Arc::new(Counters::default());
    tokio::spawn(serve(
        listener,
        tls_config(certificate, None).unwrap(),
        router,
        Limits::default(),
        Shutdown::default(),
        counters.clone(),
    ));
    (address, authority, counters)
}

/// The probes, on a plain listener as in production.
fn start_probes() -> SocketAddr {
    let router = probes::router(
        probes::Gates::default(),
        Arc::new(Vec::new),
        probes::Heartbeat::start(),
    );
    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_plain(listener, router, CancellationToken::new()));
    address
}

/// More than a thousand connections are more than many a shell allows at first.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The server as the tests see it.
pub(crate) struct Server {
    process: Child,
    // An option, to close it first.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
    /// Where the probes are, without TLS.
    pub(crate) probes: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Server {
    pub(crate) fn start() -> Self {
        raise_open_files();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_server", "--exact", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.take();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let hello = answer(&mut answers);
        let address = |name: &str| hello[name].as_str().unwrap().parse().unwrap();
        Self {
            process,
            ask,
            answers,
            address: address("address"),
            probes: address("probes"),
            tls: trusting(hello["ca"].as_str().unwrap()),
        }
    }

    /// A figure of the server's.
    pub(crate) fn counted(&mut self, what: &str) -> u64 {
        writeln!(self.ask.as_ref().unwrap()).unwrap();
        answer(&mut self.answers)[what].as_u64().unwrap()
    }

    /// Waits until a figure has this value.
    pub(crate) fn until(&mut self, what: &str, value: u64) {
        let start = Instant::now();
        loop {
            let counted = self.counted(what);
            if counted == value {
                return;
            }
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(5), "{what} is {counted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The most resident memory that the server ever had, in bytes.
    pub(crate) fn peak(&self) -> usize {
        my_operator_harness::peak_memory(self.process.id())
    }

    /// The server's resident memory in bytes (field 2 of `/proc/PID/statm`, in pages: proc(5)).
    pub(crate) fn resident(&self) -> usize {
        let statm = format!("/proc/{}/statm", self.process.id());
        let statm = std::fs::read_to_string(statm).unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ask = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn answer(answers: &mut BufReader<ChildStdout>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(answers.read_line(&mut line).unwrap(), 0, "the server ended");
        // The test harness writes there, too.
        if line.starts_with('{') {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

/// A client that makes a full handshake each time, as an API server does.
fn trusting(ca: &str) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(trust(ca.as_bytes()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}
