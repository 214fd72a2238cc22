//! What goes wrong in one namespace stays in it.

use std::time::Duration;

use crate::disruption::cluster;
use crate::harness::{Kubectl, Operator, http_get, wait_for};

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
    let flags = [
        "--webhooks=false",
        "--namespace",
        &bad,
        "--namespace",
        &good,
    ];
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
    elsewhere.absent("at/waits", "{.status}").await;
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
