//! A leader that cannot reach the API server for longer than its renew deadline, again and again.

use std::time::Instant;

use my_operator_rounds::lengths;

use super::{Replica, as_flags, scaled};
use crate::disruption::load::{Load, dry_run};
use crate::disruption::webhook_plane;
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{self, Kubectl, Operator, http_get, operator_kubeconfig, wait_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_of_the_api_server_end_no_process_and_reject_no_creation() {
    let plane = webhook_plane().await;
    let namespace = plane.namespace("stalled").await.unwrap();
    let kubectl = Kubectl::new(&plane, &namespace);
    let proxy = Proxy::to(&plane).await;
    let kubeconfig = operator_kubeconfig(&plane).await;
    proxy.lead_to(&kubeconfig);
    let periods = scaled(lengths::slow_leader_percent());
    let [stall, ..] = periods;
    let [lease, renew, retry] = as_flags(periods);
    let flags = [
        "--leader-elect".to_owned(),
        format!("--namespace={namespace}"),
        format!("--leader-election-lease-duration={lease}"),
        format!("--leader-election-renew-deadline={renew}"),
        format!("--leader-election-retry-period={retry}"),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let replica = Replica {
        name: "stalled".to_owned(),
        operator: Operator::spawn(&plane, "stalled", &kubeconfig, &flags),
        kubeconfig,
    };
    replica.operator.until_ready().await;
    replica.until_it_leads().await;
    let client = harness::client(&plane).await;
    let mut call = dry_run(&client, &namespace, 0);
    wait_for("the API server to trust the webhooks", async || {
        call(0).await.ok()
    })
    .await;
    let load = Load::start(&client, &namespace, 1);

    let stalls = lengths::stalls();
    for round in 0..stalls {
        proxy.set(Mode::Silent);
        let begin = Instant::now();
        let answered = load.answered();
        replica.until_it_steps_down().await;
        tokio::time::sleep(stall.saturating_sub(begin.elapsed())).await;
        assert!(!replica.leads().await);
        assert!(load.answered() > answered, "{:?}", load.failures());
        let (status, page) = http_get(&replica.operator.probes, "/readyz?verbose").unwrap();
        assert_eq!(status, 200, "{page}");
        proxy.set(Mode::Open);
        let took = replica.until_it_leads().await;
        println!("it leads {took:?} after the stall");

        let at = format!("at-{round}");
        let object = format!(
            "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {at}}}, spec: {{schedule: now, command: echo YAY}}}}"
        );
        kubectl.apply(&object).await.good();
        let at = format!("at/{at}");
        kubectl
            .until_field(&at, "{.status.result}", "Succeeded")
            .await;
        // The figures start again with each term, and none is there twice.
        wait_for("the figures of this term", async || {
            let page = replica.operator.figures();
            let lines = [
                "# TYPE my_operator_at_pending gauge",
                "# TYPE workqueue_depth gauge",
                "my_operator_at_runs_total{result=\"Succeeded\"} 1",
            ];
            let times = |line| page.lines().filter(|found| *found == line).count();
            (lines.map(times) == [1, 1, 1]).then_some(())
        })
        .await;
        wait_for("no problem to be left", async || {
            let (_, page) = http_get(&replica.operator.probes, "/readyz?verbose")?;
            (!page.contains("[!]")).then_some(())
        })
        .await;
    }
    let log = replica.operator.log();
    assert!(
        log.matches("lost the leadership").count() >= stalls,
        "{log}"
    );
    let answered = load.end_well().await;
    println!("{stalls} stalls of {stall:?}, {answered} creations");
    replica.end().await;
}
