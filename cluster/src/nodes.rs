//! Fake nodes: Node objects without a machine, for the fake kubelet.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::fake_node::FakeNode;

impl Cluster {
    /// Adds a fake node; returns when it is ready and the taints that every node is born with are gone, or at once when
    /// it is born not ready.
    pub async fn add_node(&self, node: FakeNode) -> Result<(), Error> {
        self.add_nodes(&[node]).await
    }

    /// Adds fake nodes, thousands if need be; returns when all are ready, as with [`Cluster::add_node`].
    pub async fn add_nodes(&self, nodes: &[FakeNode]) -> Result<(), Error> {
        let api: &Api<Node> = &Api::all(self.client().await?);
        let create = |node: &FakeNode| {
            let (name, object) = (node.name.clone(), node.object());
            async move {
                let created = api.create(&PostParams::default(), &object).await;
                created.map_err(Error::api(format!("create node {name}")))?;
                Ok(())
            }
        };
        let settle = |node: &FakeNode| {
            let (name, unschedulable) = (node.name.clone(), node.unschedulable);
            async move {
                let what = format!("node {name} to be ready");
                let name = name.as_str();
                let poll = || async move {
                    let found = api
                        .get(name)
                        .await
                        .map_err(Error::api(format!("read node {name}")))?;
                    let settled = is_ready(&found)
                        && !has_taint(&found, "node.kubernetes.io/not-ready")
                        && has_taint(&found, "node.kubernetes.io/unschedulable") == unschedulable;
                    Ok(settled.then_some(()))
                };
                self.wait_for(&what, poll).await
            }
        };
        at_once(nodes.iter().map(create)).await?;
        let ready = nodes.iter().filter(|node| !node.not_ready);
        at_once(ready.map(settle)).await
    }

    /// Removes a node; returns when the object is gone. Its pods are left to the pod garbage collector, as ever.
    pub async fn remove_node(&self, name: &str) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        nodes
            .delete(name, &DeleteParams::default())
            .await
            .map_err(Error::api(format!("delete node {name}")))?;
        self.wait_for(&format!("node {name} to be gone"), || async {
            let found = nodes
                .get_opt(name)
                .await
                .map_err(Error::api(format!("read node {name}")))?;
            Ok(found.is_none().then_some(()))
        })
        .await
    }

    /// Makes a fake node ready or not ready; returns when the node controller has set the taint that goes with it.
    pub async fn set_node_ready(&self, name: &str, ready: bool) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let (status, reason) = if ready {
            ("True", "KubeletReady")
        } else {
            ("False", "KubeletNotReady")
        };
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason}]}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map_err(Error::api(format!("change node {name}")))?;
        self.wait_for(
            &format!("the taints of node {name} to follow its condition"),
            || async {
                let found = nodes
                    .get(name)
                    .await
                    .map_err(Error::api(format!("read node {name}")))?;
                Ok((has_taint(&found, "node.kubernetes.io/not-ready") != ready).then_some(()))
            },
        )
        .await
    }
}

/// How many calls are in flight at a time.
const IN_FLIGHT: usize = 32;

async fn at_once<F>(calls: impl Iterator<Item = F>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let calls = futures::stream::iter(calls).buffer_unordered(IN_FLIGHT);
    calls.try_collect().await
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}
