//! Rolled again and again while the API server calls: no call is refused.

use std::time::Instant;

use crate::harness::Kubectl;
use crate::load::Load;
use crate::{DEPLOYMENT, kubectl, own, until_alone, until_rolled_out};

/// How often the operator is restarted.
const RESTARTS: usize = 20;

/// How many calls of webhooks the API server itself has counted as failed.
pub(crate) fn failed_calls(own: &Kubectl) -> f64 {
    let page = own.run("get --raw /metrics").good();
    let failed = page.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_rejection_count{")
            && line.contains(r#"error_type="calling_webhook_error""#)
    });
    failed
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_rolling_restarts_refuse_no_call() {
    let (kubectl, own) = (kubectl("roll").await, own().await);
    let failed_before = failed_calls(&own);
    let load = Load::start(own.cluster, &kubectl.namespace).await;
    let begin = Instant::now();
    for number in 1..=RESTARTS {
        let rolled = {
            let own = own.clone();
            // kubectl waits; the clients go on.
            tokio::task::spawn_blocking(move || {
                own.run(&format!("rollout restart {DEPLOYMENT}")).good();
                until_rolled_out(&own);
            })
        };
        rolled.await.unwrap();
        println!(
            "restart {number} of {RESTARTS} after {:.0} s",
            begin.elapsed().as_secs_f64()
        );
    }
    // The last old pods still answer.
    until_alone(&own).await;
    let (answered, failures) = load.end().await;
    println!(
        "{RESTARTS} rolling restarts in {:.0} s: {answered} calls answered, {} failed",
        begin.elapsed().as_secs_f64(),
        failures.len()
    );
    assert_eq!(failures, Vec::<String>::new());
    let failed = failed_calls(&own) - failed_before;
    assert!(
        failed.abs() < 0.5,
        "the API server counted {failed} failed calls"
    );
    assert!(answered > 20 * RESTARTS, "{answered} calls are no load");
}
