//! The servers that are compared: how each is built, started and measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use my_operator_cluster::{Cluster, Process, free_ports};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::load::Client;
use crate::programs::{self, checkout, run};
use crate::usage;

/// Time limit of every wait; only a failure takes that long.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The name of [`Server::Ours`] in tables.
pub(crate) const OURS: &str = "my-operator";
/// The name of [`Server::Bare`] in tables.
pub(crate) const BARE: &str = "bare";
/// The name of [`Server::KubeUser`] in tables.
pub(crate) const KUBE_USER: &str = "kube-rs webhook";
/// The name of [`Server::ControllerRuntime`] in tables.
pub(crate) const CONTROLLER_RUNTIME: &str = "controller-runtime";

/// A server by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// `my-operator run` on a real control plane: every kind, rule, metric and log line.
    Ours,
    /// axum and rustls with a constant for an answer: `bin/bare.rs`.
    Bare,
    /// kube's admission types, axum and axum-server: `bin/kube_user.rs`.
    KubeUser,
    /// `peers/controller-runtime`.
    ControllerRuntime,
}

impl Server {
    /// All of them, in the order in which they take turns.
    pub(crate) const ALL: [Self; 4] = [
        Self::Ours,
        Self::Bare,
        Self::KubeUser,
        Self::ControllerRuntime,
    ];

    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Bare => BARE,
            Self::KubeUser => KUBE_USER,
            Self::ControllerRuntime => CONTROLLER_RUNTIME,
        }
    }

    /// Whether its answers depend on the object.
    pub(crate) fn reviews(self) -> bool {
        self != Self::Bare
    }
}

/// One core for the server, another for everything else, until it is dropped.
pub(crate) struct Cores {
    all: CpuSet,
    server: CpuSet,
    others: CpuSet,
}

impl Cores {
    /// Moves this process, and with it its children, to the second core that it may use.
    pub(crate) fn divide() -> Result<Self> {
        let all = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let (Some(first), Some(second)) = (usable.next(), usable.next()) else {
            bail!("two cores are needed: one for the server and one for the load");
        };
        let only = |core| {
            let mut set = CpuSet::new();
            set.set(core);
            set
        };
        sched_setaffinity(None, &only(second))?;
        Ok(Self {
            all,
            server: only(first),
            others: only(second),
        })
    }

    /// What is started within has the server's core.
    fn on_server_core<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        sched_setaffinity(None, &self.server)?;
        let started = start();
        sched_setaffinity(None, &self.others)?;
        started
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // What is measured next has all of them.
        let _ = sched_setaffinity(None, &self.all);
    }
}

/// Everything that the servers are started from.
pub(crate) struct Stage {
    cluster: Cluster,
    cores: Cores,
    ours: PathBuf,
    bare: PathBuf,
    kube_user: PathBuf,
    controller_runtime: PathBuf,
    /// tls.crt, tls.key and ca.crt of those that have no authority of their own.
    certificates: PathBuf,
    /// The authorities of ours and theirs.
    authorities: [Vec<CertificateDer<'static>>; 2],
}

/// In our log.
const REACHED: &str = "the API server answers";

impl Stage {
    /// Builds the servers, and the control plane that two of them run against.
    pub(crate) async fn set(cluster: Cluster, cores: Cores) -> Result<Self> {
        let certificates = cluster.directory().join("certificates");
        let mut stage = Self {
            ours: programs::ours("my-operator")?,
            bare: programs::ours("my-operator-bench-bare")?,
            kube_user: programs::ours("my-operator-bench-kube-user")?,
            controller_runtime: cluster.directory().join("controller-runtime"),
            authorities: [Vec::new(), Vec::new()],
            certificates,
            cluster,
            cores,
        };
        programs::peer(".", &stage.controller_runtime)?;
        run(Command::new(&stage.ours)
            .args(["certs", "--out"])
            .arg(&stage.certificates))?;
        let authority = CertificateDer::from_pem_file(stage.certificates.join("ca.crt"))?;
        stage.authorities[1].push(authority);

        let kubectl = |args: &str| {
            let mut command = stage.cluster.kubectl();
            command.current_dir(checkout()).args(args.split(' '));
            run(&mut command)
        };
        kubectl("apply -k config/crd")?;
        kubectl("wait --for=condition=Established --timeout=60s crd --all")?;
        // Nothing that is measured needs them, and they would take turns with the load.
        for idler in ["kube-controller-manager", "kube-scheduler", "fake-kubelet"] {
            stage.cluster.stop_component(idler).await?;
        }
        // A first start makes our authority, which the others find.
        let (process, _) = stage.spawn(Server::Ours)?;
        let bundle = "get mutatingwebhookconfiguration my-operator-mutating-webhook-configuration -o jsonpath={.webhooks[0].clientConfig.caBundle}";
        let start = Instant::now();
        let bundle = loop {
            if let Ok(text) = kubectl(bundle)
                && !text.is_empty()
            {
                break BASE64_STANDARD.decode(text.trim())?;
            }
            ensure!(start.elapsed() < TIMEOUT, "{}", process.log_tail(12));
        };
        process.stop(TIMEOUT).await;
        let ours: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bundle).collect();
        stage.authorities[0] = ours?;
        Ok(stage)
    }

    fn spawn(&self, server: Server) -> Result<(Process, SocketAddr)> {
        let [port, probes, metrics] = free_ports()?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let [address, probes, metrics] = [port, probes, metrics].map(loopback);
        let plain = |program: &Path| {
            let mut command = Command::new(program);
            command.arg(address.to_string()).arg(&self.certificates);
            command
        };
        let mut command = match server {
            Server::Ours => {
                let mut command = Command::new(&self.ours);
                command
                    .args(["run", "--leader-elect=false"])
                    .arg(format!("--webhook-bind-address={address}"))
                    .arg(format!("--webhook-url=https://{address}"))
                    .arg(format!("--health-probe-bind-address={probes}"))
                    .arg(format!("--metrics-bind-address={metrics}"));
                command
            }
            Server::Bare => plain(&self.bare),
            Server::KubeUser => plain(&self.kube_user),
            Server::ControllerRuntime => {
                let mut command = Command::new(&self.controller_runtime);
                command
                    .arg(format!("--webhook-port={}", address.port()))
                    .arg(format!("--health-probe-bind-address={probes}"))
                    .arg(format!("--metrics-bind-address={metrics}"))
                    .arg("--webhook-cert-path")
                    .arg(&self.certificates);
                command
            }
        };
        command.env("KUBECONFIG", self.cluster.kubeconfig());
        let spawn = || Ok(self.cluster.spawn(server.name(), &mut command)?);
        let process = self.cores.on_server_core(spawn)?;
        Ok((process, address))
    }

    /// Starts a server, and asks it until it answers.
    pub(crate) fn start(&self, server: Server, request: &[u8]) -> Result<Running> {
        let start = Instant::now();
        let (process, address) = self.spawn(server)?;
        let authorities = &self.authorities[usize::from(server != Server::Ours)];
        let client = Client::new(address, authorities)?;
        let mut reached = None;
        loop {
            // Until the API server has answered, there is nothing that the server could do.
            if reached.is_none() && process.log_tail(12).contains(REACHED) {
                reached = Some(Instant::now());
            }
            match client.call(request) {
                Ok(_) => break,
                Err(error) => ensure!(
                    start.elapsed() < TIMEOUT && process.is_running(),
                    "{} does not answer: {error:#}\n{}",
                    server.name(),
                    process.log_tail(12)
                ),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Running {
            first_answer: start.elapsed(),
            since_reached: reached.map(|reached| reached.elapsed()),
            process,
            client,
        })
    }

    /// Ends the control plane.
    pub(crate) async fn clear(self) {
        self.cluster.stop().await;
    }
}

/// A server that answers.
pub(crate) struct Running {
    /// From the start of the process.
    pub(crate) first_answer: Duration,
    /// From the API server's first answer, if its log shows that.
    pub(crate) since_reached: Option<Duration>,
    /// Makes connections to it.
    pub(crate) client: Client,
    process: Process,
}

impl Running {
    /// Processor time of all its threads so far, in microseconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(usage::cpu(self.process.pid())?.as_secs_f64() * 1e6)
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> Result<f64> {
        Ok(usage::memory(self.process.pid())? / 1024.0 / 1024.0)
    }

    /// Empties its log, which would fill the disk.
    pub(crate) fn forget_log(&self) -> Result<()> {
        Ok(std::fs::write(self.process.log(), "")?)
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail(12)
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.process.stop(TIMEOUT).await;
    }
}
