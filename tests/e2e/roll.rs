//! The operator is restarted repeatedly while the API server calls its webhooks.

use std::time::Instant;

use my_operator_rounds::lengths::restarts;

use crate::load::Load;
use crate::{DEPLOYMENT, kubectl, own, until_alone, until_rolled_out};

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_refuse_no_call() {
    let restarts = restarts();
    let (kubectl, own) = (kubectl("roll").await, own().await);
    let load = Load::start(&own, &kubectl.namespace).await;
    let begin = Instant::now();
    for number in 1..=restarts {
        own.run(&format!("rollout restart {DEPLOYMENT}"))
            .await
            .good();
        until_rolled_out(&own).await;
        println!(
            "restart {number} of {restarts} after {:.0} s",
            begin.elapsed().as_secs_f64()
        );
    }
    // The last old pods still answer.
    until_alone(&own).await;
    let seconds = begin.elapsed().as_secs_f64();
    let answered = load.end_without_a_failure(20 * restarts).await;
    println!(
        "{restarts} rolling restarts in {seconds:.0} s: {answered} calls answered, none failed"
    );
}
