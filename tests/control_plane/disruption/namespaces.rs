//! What goes wrong in one namespace stays in it.

use std::time::Duration;

use crate::disruption::cluster;
use crate::harness::hanging::Hanging;
use crate::harness::{Kubectl, Operator, figure, http_get, operator_kubeconfig, wait_for};

/// The flags of an operator that works in two namespaces.
fn in_both<'a>(bad: &'a str, good: &'a str) -> [&'a str; 5] {
    ["--webhooks=false", "--namespace", bad, "--namespace", good]
}

/// Where the rights of the operator are Roles in its namespaces, a namespace without them, as one that was deleted,
/// is no reason to leave the others alone.
#[tokio::test]
async fn a_namespace_without_rights_holds_up_no_other() {
    let cluster = cluster().await;
    let good = cluster.namespace("has-rights").await.unwrap();
    let bad = cluster.namespace("has-no-rights").await.unwrap();
    let kubectl = Kubectl::new(cluster, &good);
    let elsewhere = Kubectl::new(cluster, &bad);
    kubectl.run("create serviceaccount confined").await.good();
    let grant = format!(
        "create rolebinding confined --clusterrole=my-operator-manager-role --serviceaccount={good}:confined"
    );
    kubectl.run(&grant).await.good();
    elsewhere.run(&grant).await.good();
    for nodes in [
        format!("create clusterrole {good}-nodes --verb=get,list,watch --resource=nodes"),
        format!(
            "create clusterrolebinding {good}-nodes --clusterrole={good}-nodes --serviceaccount={good}:confined"
        ),
    ] {
        kubectl.run(&nodes).await.good();
    }
    let account = cluster.service_account_kubeconfig(&good, "confined");
    let kubeconfig = account.await.unwrap();
    let flags = in_both(&bad, &good);
    let at = |name: &str| {
        format!(
            "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, spec: {{schedule: now, command: a}}}}"
        )
    };

    let operator = Operator::spawn(cluster, "confined", &kubeconfig, &flags);
    operator.until_ready().await;
    elsewhere.apply(&at("before")).await.good();
    elsewhere
        .until_field("at/before", "{.status.phase}", "DONE")
        .await;
    operator.process.stop(Duration::from_secs(10)).await;
    elsewhere.run("delete rolebinding confined").await.good();

    let operator = Operator::spawn(cluster, "confined", &kubeconfig, &flags);
    operator.until_ready().await;
    elsewhere.apply(&at("waits")).await.good();
    kubectl.apply(&at("runs")).await.good();
    let fleet = "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: fleet}, spec: {image: 'nginx:1'}}";
    kubectl.apply(fleet).await.good();
    kubectl
        .until_field("at/runs", "{.status.phase}", "DONE")
        .await;
    kubectl
        .until_field("mds/fleet", "{.status.numberAvailable}", "1")
        .await;

    // The other namespace is not forgotten: probes and figures show it, and it is worked in as soon as it can be.
    let failing = |count: u8| {
        format!(
            "my_operator_watch_failing{{resource=\"ats.cnat.programming-kubernetes.info\",namespace=\"{bad}\"}} {count}"
        )
    };
    wait_for("the figure of the namespace without rights", async || {
        operator.figures().contains(&failing(1)).then_some(())
    })
    .await;
    let (_, page) = http_get(&operator.probes, "/readyz?verbose").unwrap();
    let words = format!("[!]ats.cnat.programming-kubernetes.info/{bad}: not allowed to list");
    assert!(page.contains(&words), "{page}");
    let observed = "{.status.observedGeneration}";
    assert_eq!(elsewhere.field("at/waits", observed).await, "-1");
    elsewhere.run(&grant).await.good();
    elsewhere
        .until_field("at/waits", "{.status.phase}", "DONE")
        .await;
    wait_for("the figure to be 0", async || {
        operator.figures().contains(&failing(0)).then_some(())
    })
    .await;
    operator.process.stop(Duration::from_secs(10)).await;
    kubectl
        .run(&format!(
            "delete clusterrole,clusterrolebinding {good}-nodes"
        ))
        .await
        .good();
}

/// A webhook of some namespaces that takes connections and never answers occupies workers for 10 s with each attempt.
///
/// Few workers and Ats: the API server, which other tests use too, takes a limited number of calls at a time, and keeps
/// a call that hangs until the webhook's timeout.
#[tokio::test]
async fn a_webhook_that_hangs_in_some_namespaces_delays_no_other() {
    const WORKERS: u32 = 16;
    const HANGING: usize = 20;
    let cluster = cluster().await;
    let mut bad = Vec::new();
    for _ in 0..4 {
        bad.push(cluster.namespace("hangs").await.unwrap());
    }
    let good = cluster.namespace("goes-on").await.unwrap();
    let elsewhere = Kubectl::new(cluster, &good);
    let mut webhooks = Vec::new();
    for namespace in &bad {
        let kubectl = Kubectl::new(cluster, namespace);
        webhooks.push(Hanging::start(&kubectl, "CREATE", ("Fail", 1, 10)).await);
    }
    let at = |name: &str, more: &str| {
        format!(
            "apiVersion: cnat.programming-kubernetes.info/v1alpha1\nkind: At\nmetadata: {{name: {name}}}\nspec: {{schedule: now, command: a{more}}}\n"
        )
    };

    // All are due when the operator starts: an attempt is followed by a pause that grows, and by and by fewer hang at once.
    let all: Vec<String> = (0..HANGING).map(|n| at(&format!("a{n}"), "")).collect();
    let all = all.join("---\n");
    for namespace in &bad {
        let kubectl = Kubectl::new(cluster, namespace);
        kubectl.with("create -f -", &all).await.good();
    }
    let kubeconfig = operator_kubeconfig(cluster).await;
    let mut flags = vec![
        "--webhooks=false".to_owned(),
        "--kinds=at".to_owned(),
        format!("--max-concurrent-reconciles={WORKERS}"),
    ];
    let all = bad.iter().chain([&good]);
    flags.extend(all.map(|namespace| format!("--namespace={namespace}")));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = Operator::spawn(cluster, "hanging", &kubeconfig, &flags);
    let busy = "controller_runtime_active_workers{controller=\"at\"}";
    wait_for("the calls to hang", async || {
        (figure(&operator.figures(), busy) >= Some(WORKERS.into())).then_some(())
    })
    .await;
    operator.until_ready().await;
    let urgent = at("urgent", ", startingDeadlineSeconds: 3");
    elsewhere.apply(&urgent).await.good();
    elsewhere
        .until_field("at/urgent", "{.status.result}", "Succeeded")
        .await;

    for webhook in webhooks {
        webhook.end().await;
    }
    operator.process.stop(Duration::from_secs(30)).await;
}
