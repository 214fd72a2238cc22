//! Eviction as in the drain of a node: one replica at a time, and no webhook call fails.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;

use crate::at::until_complete;
use crate::harness::{self, NAMESPACE};
use crate::load::Load;
use crate::{PODS, kubectl, own, ready_pods, until_alone, until_rolled_out};

const BUDGET: &str = "poddisruptionbudget/my-operator-controller-manager";

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_at_a_time_is_evicted_and_no_call_is_refused() {
    let (kubectl, own) = (kubectl("evicted").await, own().await);
    until_rolled_out(&own).await;
    until_alone(&own).await;
    let allowed = async || {
        own.until_field(BUDGET, "{.status.disruptionsAllowed}", "1")
            .await;
    };
    allowed().await;
    let replicas = ready_pods(&own, PODS).await;
    let [first, second] = &replicas[..] else {
        panic!("not two replicas: {replicas:?}");
    };
    let pods: Api<Pod> = Api::namespaced(harness::client(own.cluster).await, NAMESPACE);
    let evict = async |name: &str| pods.evict(name, &EvictParams::default()).await;
    let load = Load::start(&own, &kubectl.namespace).await;

    evict(first).await.unwrap();
    // The budget says so at once, long before the successor is ready.
    match evict(second).await {
        Err(kube::Error::Api(refusal)) if refusal.code == 429 => {}
        other => panic!("the last replica that serves: {other:?}"),
    }
    let at = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: meanwhile}
spec: {schedule: now + 5 seconds, command: echo meanwhile}
";
    kubectl.until_applied(at).await;
    allowed().await;
    evict(second).await.unwrap();
    allowed().await;
    // One of the two was the leader.
    until_complete(&kubectl, "meanwhile").await;
    // The evicted still answer.
    until_alone(&own).await;
    until_rolled_out(&own).await;

    let answered = load.end_without_a_failure(100).await;
    println!("both replicas evicted: {answered} calls answered, none failed");
}
