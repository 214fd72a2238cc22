//! `exec`: a cluster for the length of one command.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use my_operator_cluster::{Cluster, Options};

use super::stop::Stop;

/// The time between SIGTERM and SIGKILL for the command.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn exec(options: Options, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command")?;
    let cluster = Cluster::start(options).await?;
    let mut stop = Stop::new()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PATH", path_with_kubectl(&cluster)?);

    let status = if std::io::stdin().is_terminal() {
        cluster
            .run_in_foreground(&mut command, stop.asked_by_others())
            .await?
    } else {
        let process = cluster.attach(&mut command)?;
        tokio::select! {
            status = process.wait() => status,
            () = stop.asked() => process.stop(TIMEOUT).await,
        }
    };
    stop.at_once_when_asked_again();
    cluster.stop().await;
    Ok(exit_code(status))
}

/// `PATH` with the cluster's own kubectl before any other.
fn path_with_kubectl(cluster: &Cluster) -> anyhow::Result<OsString> {
    let kubectl = cluster.program("kubectl");
    let mut directories: Vec<_> = kubectl.parent().map(Into::into).into_iter().collect();
    directories.extend(
        std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths),
    );
    std::env::join_paths(directories).context("cannot put kubectl on PATH")
}

/// As a shell reports it: 128 plus the signal for a program that a signal ended.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
