//! The operator under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use my_operator_cluster::{Cluster, Process, free_ports};

use crate::figures::http_get;
use crate::install::operator_kubeconfig;
use crate::wait::{TIMEOUT, try_wait};

/// The operator's program: cargo puts programs into one folder, and tests into `deps` below it.
pub fn operator_program() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this.parent().unwrap();
    let folder = match folder.parent() {
        Some(above) if folder.ends_with("deps") => above,
        _ => folder,
    };
    let program = folder.join("my-operator");
    assert!(program.exists(), "{} is not built", program.display());
    program
}

/// The operator under test, a process of its own.
pub struct Operator {
    pub process: Process,
    pub probes: String,
    pub metrics: String,
    pub webhook: String,
}

impl Operator {
    /// Starts it on free ports. It has webhooks unless `extra` says otherwise.
    pub fn spawn(cluster: &Cluster, name: &str, kubeconfig: &Path, extra: &[&str]) -> Self {
        Self::spawn_at(cluster, name, kubeconfig, None, None, extra)
    }

    /// The same, with the webhooks at that port, and called by the API server at that URL, where
    /// these are given.
    pub fn spawn_at(
        cluster: &Cluster,
        name: &str,
        kubeconfig: &Path,
        port: Option<u16>,
        url: Option<&str>,
        extra: &[&str],
    ) -> Self {
        let [webhook, probes, metrics] = free_ports().unwrap();
        let webhook = format!("127.0.0.1:{}", port.unwrap_or(webhook));
        let (probes, metrics) = (
            format!("127.0.0.1:{probes}"),
            format!("127.0.0.1:{metrics}"),
        );
        let url = url.map_or_else(|| format!("https://{webhook}"), str::to_owned);
        let mut command = Command::new(operator_program());
        command
            .arg("run")
            .arg(format!("--webhook-bind-address={webhook}"))
            .arg(format!("--webhook-url={url}"))
            .arg(format!("--health-probe-bind-address={probes}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .args(extra)
            .env("KUBECONFIG", kubeconfig);
        Self {
            process: cluster.spawn(name, &mut command).unwrap(),
            probes,
            metrics,
            webhook,
        }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(cluster: &'static Cluster, name: &str, extra: &[&str]) -> Self {
        let kubeconfig = operator_kubeconfig(cluster).await;
        let operator = Self::spawn(cluster, name, &kubeconfig, extra);
        operator.until_ready().await;
        operator
    }

    /// Waits until `/readyz` says so.
    pub async fn until_ready(&self) {
        let ready = try_wait(TIMEOUT, async || {
            assert!(
                self.process.is_running(),
                "the operator ended:\n{}",
                self.log()
            );
            let (status, _) = http_get(&self.probes, "/readyz")?;
            (status == 200).then_some(())
        });
        assert!(
            ready.await.is_some(),
            "the operator is not ready: {:?}\n{}",
            http_get(&self.probes, "/readyz"),
            self.log()
        );
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// The page of metrics.
    pub fn figures(&self) -> String {
        http_get(&self.metrics, "/metrics")
            .map(|(_, page)| page)
            .unwrap_or_default()
    }
}
