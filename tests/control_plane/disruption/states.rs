//! Two states that GitOps tools judge (`contrib/argocd`), and that no object is in for long, or at all, where an operator
//! with webhooks runs: not seen, and invalid.

use std::time::Duration;

use crate::disruption::cluster;
use crate::harness::{Kubectl, Operator};
use crate::states::{AT, MYDAEMONSET, same};

const OBJECTS: &str = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: unseen}
spec: {schedule: '2099-01-01T00:00:00Z', command: echo YAY}
---
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: invalid}
spec: {schedule: tomorrow, command: echo YAY}
---
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: unseen}
spec: {image: 'a:1', template: {spec: {nodeSelector: {pool: nowhere}}}}
---
apiVersion: apps.zhongmingmao.io/v1beta1
kind: MyDaemonSet
metadata: {name: invalid}
spec: {image: 'Bad Image'}
";

const STALLED: &str = "{.status.conditions[?(@.type=='Stalled')].reason}";

#[tokio::test]
async fn argo_cd_is_shown_objects_that_were_not_seen_or_are_invalid_as_they_are() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("states").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    kubectl.with("create -f -", OBJECTS).await.good();
    let kinds = [("at", AT), ("mds", MYDAEMONSET)];
    for (short, kind) in kinds {
        let object = kubectl.object(&format!("{short}/unseen")).await;
        same(&object, kind, "unseen");
    }
    let flags = ["--webhooks=false", "--namespace", &namespace];
    let operator = Operator::start(cluster, "states", &flags).await;
    for (short, kind) in kinds {
        let invalid = format!("{short}/invalid");
        kubectl.until_field(&invalid, STALLED, "Invalid").await;
        same(&kubectl.object(&invalid).await, kind, "invalid");
    }
    operator.process.stop(Duration::from_secs(10)).await;
}
