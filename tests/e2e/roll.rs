//! Rolled again and again while the API server calls: no call is refused.

use std::time::Instant;

use crate::load::Load;
use crate::{DEPLOYMENT, kubectl, own, until_alone, until_rolled_out};

/// How often the operator is restarted.
const RESTARTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_rolling_restarts_refuse_no_call() {
    let (kubectl, own) = (kubectl("roll").await, own().await);
    let load = Load::start(&own, &kubectl.namespace).await;
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
    let seconds = begin.elapsed().as_secs_f64();
    let answered = load.end_without_a_failure().await;
    println!(
        "{RESTARTS} rolling restarts in {seconds:.0} s: {answered} calls answered, none failed"
    );
    assert!(answered > 20 * RESTARTS, "{answered} calls are no load");
}
