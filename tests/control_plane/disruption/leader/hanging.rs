//! A leader that is terminated while a call of its own hangs.

use std::time::{Duration, Instant};

use chrono::{SecondsFormat, TimeDelta, Utc};

use super::{Election, STEADY};
use crate::harness::hanging::Hanging;
use crate::harness::{Kubectl, operator_kubeconfig};

fn at(name: &str, due: TimeDelta) -> String {
    let due = (Utc::now() + due).to_rfc3339_opts(SecondsFormat::Millis, true);
    format!(
        "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {{schedule: '{due}', command: echo YAY, startingDeadlineSeconds: 5}}}}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_keeps_no_at_of_another_namespace_waiting() {
    let election = Election::new("hanging-a").await;
    let cluster = election.cluster;
    let elsewhere = cluster.namespace("hanging-b").await.unwrap();
    let elsewhere = Kubectl::new(cluster, &elsewhere);
    let flag = format!("--namespace={}", elsewhere.namespace);
    let start = async |name: &str| {
        let kubeconfig = operator_kubeconfig(cluster).await;
        let periods = STEADY.map(str::to_owned);
        election.spawn(name, kubeconfig, periods, &[&flag]).await
    };
    let leader = start("hanging-0").await;
    leader.until_it_leads().await;
    let next = start("hanging-1").await;
    let webhook = Hanging::start(&election.kubectl, "CREATE", ("Fail", 1, 30)).await;
    let hangs = at("hangs", TimeDelta::zero());
    election.kubectl.apply(&hangs).await.good();
    let call = webhook.until_called().await;
    let due = at("due", TimeDelta::seconds(2));
    elsewhere.apply(&due).await.good();
    let signal = Instant::now();
    let leads = async {
        next.until_it_leads().await;
        signal.elapsed()
    };
    let ((), leads) = tokio::join!(leader.end(), leads);
    println!("the next one leads after {leads:?}");
    elsewhere
        .until_field("at/due", "{.status.phase}", "DONE")
        .await;
    let result = elsewhere.field("at/due", "{.status.result}").await;
    assert_eq!(result, "Succeeded", "the next one leads after {leads:?}");
    // More than promised, on a busy machine, and less than the call takes.
    assert!(leads < Duration::from_secs(6), "{leads:?}");
    drop(call);
    webhook.end().await;
    next.end().await;
}
