//! The operators that are compared, and their metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use my_operator_cluster::{Process, free_ports};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::plane::{Plane, TIMEOUT};
use crate::{programs, usage};

/// Time limit of a start, which takes a second or two, and a minute with a million objects.
const START: Duration = Duration::from_mins(5);
/// The pause between two polls.
const POLL: Duration = Duration::from_millis(50);

/// An operator of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `my-operator run` with that kind, without webhooks.
    Ours(&'static str),
    /// The program of that name in `peers/controller-runtime`, with a flag.
    Peer(&'static str, &'static str),
}

impl Operator {
    /// Starts it, and waits until it is ready.
    pub(crate) async fn start(self, plane: &Plane) -> Result<Running> {
        let cluster = &plane.cluster;
        let kubeconfig = cluster.kubeconfig();
        let spawn = |command: &mut Command| Ok(cluster.spawn("operator", command)?);
        self.start_with(kubeconfig, cluster.directory(), spawn)
            .await
    }

    /// The same for any API server. A peer is built into that folder.
    pub(crate) async fn start_with(
        self,
        kubeconfig: &Path,
        folder: &Path,
        spawn: impl FnOnce(&mut Command) -> Result<Process>,
    ) -> Result<Running> {
        let [probes, metrics] = free_ports()?;
        let [probes, metrics] =
            [probes, metrics].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut command = match self {
            Self::Ours(kind) => {
                let mut command = Command::new(programs::ours("my-operator")?);
                command.args(["run", "--webhooks=false"]);
                command.arg(format!("--kinds={kind}"));
                command
            }
            Self::Peer(name, flag) => {
                let program = folder.join(name);
                programs::peer(&format!("./{name}"), &program)?;
                let mut command = Command::new(program);
                command.arg(flag);
                command
            }
        };
        command
            .arg(format!("--health-probe-bind-address={probes}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .env("KUBECONFIG", kubeconfig);
        let process = spawn(&mut command)?;
        let running = Running { process, metrics };
        let begin = Instant::now();
        // A controller-runtime manager is ready before its controllers have begun to work.
        loop {
            let ready = get(probes, "/readyz").await.is_ok();
            if ready && running.page().await.is_ok_and(|page| page.works()) {
                return Ok(running);
            }
            ensure!(
                begin.elapsed() < START && running.process.is_running(),
                "the operator does not get ready\n{}",
                running.process.log_tail(12)
            );
            tokio::time::sleep(POLL).await;
        }
    }
}

/// An operator at work.
pub(crate) struct Running {
    process: Process,
    metrics: SocketAddr,
}

impl Running {
    /// Processor time so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(usage::cpu(self.process.pid())?.as_secs_f64())
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        usage::memory(self.process.pid())
    }

    /// The most resident memory so far, in bytes.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        usage::peak_memory(self.process.pid())
    }

    /// Its metrics.
    pub(crate) async fn page(&self) -> Result<Page> {
        Ok(Page(get(self.metrics, "/metrics").await?))
    }

    /// Waits until its metrics meet a condition.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Page) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !so(&self.page().await?) {
            ensure!(
                begin.elapsed() < TIMEOUT,
                "{what} does not come\n{}",
                self.process.log_tail(12)
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.process.stop(Duration::from_secs(20)).await;
    }
}

/// A page of metrics; both operators use the same names.
pub(crate) struct Page(String);

impl Page {
    /// The sum of all that begin with this name and whose labels have one of these texts.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let lines = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (found, value) = rest.rsplit_once(' ')?;
            let has = labels.is_empty() || labels.iter().any(|label| found.contains(label));
            (has && (found.is_empty() || found.starts_with('{'))).then(|| value.parse::<f64>())
        });
        lines.flatten().sum()
    }

    fn works(&self) -> bool {
        self.0.contains("controller_runtime_active_workers{")
    }

    /// The number of reconciles.
    pub(crate) fn reconciles(&self) -> f64 {
        self.sum("controller_runtime_reconcile_total", &[])
    }

    /// Whether no object waits to be reconciled.
    pub(crate) fn is_idle(&self) -> bool {
        self.sum("workqueue_depth", &[]) == 0.0
            && self.sum("controller_runtime_active_workers", &[]) == 0.0
    }

    /// Calls to the API server.
    pub(crate) fn calls(&self) -> f64 {
        self.sum("rest_client_requests_total", &[])
    }

    /// Calls that change something.
    pub(crate) fn writes(&self) -> f64 {
        self.calls() - self.reads()
    }

    /// Calls that only read; a watch is counted when it is opened.
    pub(crate) fn reads(&self) -> f64 {
        self.sum("rest_client_requests_total", &["method=\"GET\""])
    }
}

/// Asks a plain HTTP server; anything but 200 is an error.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let line = head.lines().next().unwrap_or_default();
    ensure!(line.contains(" 200 "), "{path}: {line}");
    Ok(body.to_owned())
}
