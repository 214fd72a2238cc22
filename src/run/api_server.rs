//! Waits for the API server at start-up, and checks its version.

use std::time::Duration;

use anyhow::bail;
use kube::Client;
use tokio::time::{sleep, timeout};

use my_operator_telemetry::probes::Gate;
use resilient_kube_client::backoff::Exponential;
use resilient_kube_client::explain;

/// The oldest minor version of Kubernetes 1 that the API types know.
const OLDEST_MINOR: u32 = 33;
/// The time limit of one attempt to reach the API server: even a slow answer is enough.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses between attempts to reach the API server.
const BACKOFF: Exponential = Exponential {
    first: Duration::from_millis(500),
    max: Duration::from_secs(5),
};

/// Waits until the API server answers, and makes sure that it is new enough.
pub(super) async fn reach(client: &Client, gate: &Gate) -> anyhow::Result<()> {
    let mut failures = 0;
    let mut known = String::new();
    loop {
        let problem = match timeout(ATTEMPT_TIMEOUT, client.apiserver_version()).await {
            Ok(Ok(version)) => {
                new_enough(&version.major, &version.minor)?;
                tracing::info!(version = version.git_version, "the API server answers");
                gate.open();
                return Ok(());
            }
            Ok(Err(error)) => explain(&error),
            Err(_) => format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        gate.close(&problem);
        if problem != known {
            tracing::warn!("cannot reach the API server, retrying: {problem}");
            known = problem;
        }
        sleep(BACKOFF.after(failures)).await;
        failures = failures.saturating_add(1);
    }
}

/// Checks that this version of Kubernetes is supported. A provider may write the minor as `33+`.
///
/// # Errors
/// When it is too old, or not a version.
pub fn new_enough(major: &str, minor: &str) -> anyhow::Result<()> {
    let digits = |text: &str| {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        text[..end].parse::<u32>().ok()
    };
    match (digits(major), digits(minor)) {
        (Some(1), Some(minor)) if minor < OLDEST_MINOR => bail!(
            "the API server is Kubernetes {major}.{minor}; my-operator needs 1.{OLDEST_MINOR} or newer"
        ),
        (Some(_), Some(_)) => Ok(()),
        _ => bail!("the API server does not report its version ({major:?}, {minor:?})"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use simulated_apiserver::{Options, Server};
    use tower::Layer as _;
    use tower::util::MapFutureLayer;

    use super::*;
    use my_operator_telemetry::probes::Gates;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_slow_is_reached_at_the_first_attempt() {
        let start = tokio::time::Instant::now();
        let server = Server::new(Options::default());
        let slow = MapFutureLayer::new(async |answer| {
            sleep(Duration::from_secs(7)).await;
            answer.await
        });
        let slow = Client::new(slow.layer(server.service("operator")), "default");
        let gates = Gates::default();
        let gate = gates.add("api-server", "");
        reach(&slow, &gate).await.unwrap();
        assert!(gates.ready() && start.elapsed() < Duration::from_secs(8));
    }

    #[test]
    fn old_servers_are_refused_in_one_line() {
        new_enough("1", "33").unwrap();
        new_enough("1", "33+").unwrap();
        new_enough("1", "40-gke.1").unwrap();
        let refusal = new_enough("1", "32+").unwrap_err().to_string();
        assert!(refusal.contains("needs 1.33 or newer"), "{refusal}");
        assert!(new_enough("", "").is_err());
    }
}
