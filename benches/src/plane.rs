//! A fresh control plane, and how the bench calls it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::Client;
use my_operator_cluster::{Cluster, FakeNode, Options};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::programs::{checkout, run};
use crate::usage;

/// Time limit of every wait; only a failure takes that long.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(10);
/// How many calls are in flight at a time, also of the bare clients.
const IN_FLIGHT: usize = 32;
/// A plane that uses less than this part of a core is quiet.
const QUIET: f64 = 0.25;

/// Where everything is created.
pub(crate) const NAMESPACE: &str = "default";
/// Where pods are.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// A control plane of its own; see the module.
pub(crate) struct Plane {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
}

/// What the API server stored.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stored {
    pub(crate) metadata: StoredMeta,
}

/// Its metadata.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredMeta {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Plane {
    /// A plane with that many nodes, whose controller manager has these flags too.
    pub(crate) async fn start(nodes: usize, controller_manager_args: &[&str]) -> Result<Self> {
        let args = controller_manager_args.iter();
        let cluster = Cluster::start(Options {
            controller_manager_args: args.map(ToString::to_string).collect(),
            ..Options::default()
        })
        .await?;
        let kubectl = |args: &str| {
            let mut command = cluster.kubectl();
            command.current_dir(checkout()).args(args.split(' '));
            run(&mut command)
        };
        kubectl("apply -k config/crd")?;
        kubectl("wait --for=condition=Established --timeout=60s crd --all")?;
        let client = cluster.client().await?;
        let plane = Self { cluster, client };
        plane.add_nodes(nodes).await?;
        Ok(plane)
    }

    /// Adds nodes to a plane without any.
    pub(crate) async fn add_nodes(&self, count: usize) -> Result<()> {
        let nodes: Vec<FakeNode> = (1..=count)
            .map(|number| FakeNode::new(node(number)))
            .collect();
        self.cluster.add_nodes(&nodes).await?;
        Ok(())
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.cluster.stop().await;
    }

    /// Processor time of all its processes so far, in seconds. The fake kubelet is a thread of the bench and not in it.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let mut total = Duration::ZERO;
        for name in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ] {
            if let Some(process) = self.cluster.component(name) {
                total += usage::cpu(process.pid())?;
            }
        }
        Ok(total.as_secs_f64())
    }

    /// Processor seconds of the plane and of the bench, which watches and makes calls of its own.
    pub(crate) fn cpu_with_bench(&self) -> Result<f64> {
        Ok(self.cpu()? + usage::cpu(std::process::id())?.as_secs_f64())
    }

    /// Waits until it has nothing to do.
    pub(crate) async fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        let mut last = self.cpu()?;
        while begin.elapsed() < TIMEOUT {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.cpu()?;
            if now - last < QUIET {
                return Ok(());
            }
            last = now;
        }
        bail!("the control plane does not come to rest");
    }

    /// Reads an object.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = Request::get(path).body(Vec::new())?;
        let answer = self.client.request(request).await;
        answer.with_context(|| format!("GET {path}"))
    }

    /// Makes a call that changes something; the body is of that type.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        type_: &str,
        body: &Value,
    ) -> Result<Stored> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", type_)
            .body(serde_json::to_vec(body)?)?;
        let answer = self.client.request(request).await;
        answer.with_context(|| format!("{method} {path}"))
    }

    /// Creates an object.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Stored> {
        self.call("POST", path, "application/json", body).await
    }
}

/// The name of the node of that number, from 1.
pub(crate) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// Runs it for every number below `count`, [`IN_FLIGHT`] at a time.
pub(crate) async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    let all = futures::stream::iter(0..count).map(each);
    all.buffered(IN_FLIGHT).try_collect().await
}
