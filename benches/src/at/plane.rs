//! A fresh control plane, and the calls that the bench makes itself.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use my_operator_cluster::{Cluster, Options};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::programs::{checkout, run};
use crate::usage;

/// For whatever is waited for; nobody waits that long unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);
/// So many calls are under way at a time, of the bare client too.
const IN_FLIGHT: usize = 32;
/// A plane that uses less than this part of a core is quiet.
const QUIET: f64 = 0.25;
/// The Job controller's own default is 5 at a time.
const JOB_SYNCS: &str = "--concurrent-job-syncs=32";

/// Where everything is created.
pub(super) const NAMESPACE: &str = "default";
/// Where Ats are.
const ATS: &str = "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats";
/// Where pods are.
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
/// The gate that our pods are born with.
const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// See the module.
pub(super) struct Plane {
    pub(super) cluster: Cluster,
    client: Client,
}

/// What the API server stored.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stored {
    metadata: StoredMeta,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    resource_version: String,
}

/// A pod as far as it is looked at.
#[derive(Clone, Debug, Deserialize)]
struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    uid: String,
    resource_version: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    scheduling_gates: Vec<IgnoredAny>,
}

impl Plane {
    /// A plane for that many pods at a time; with none, nothing runs but the API server and its store.
    pub(super) async fn start(pods: usize) -> Result<Self> {
        let nodes = pods.div_ceil(250);
        let names: Vec<String> = (1..=nodes).map(|number| format!("node-{number}")).collect();
        let cluster = Cluster::start(Options {
            controller_manager_args: vec![JOB_SYNCS.to_owned()],
            ..Options::with_nodes(&names)
        })
        .await?;
        let kubectl = |args: &str| {
            let mut command = cluster.kubectl();
            command.current_dir(checkout()).args(args.split(' '));
            run(&mut command)
        };
        kubectl("apply -k config/crd")?;
        kubectl("wait --for=condition=Established --timeout=60s crd --all")?;
        if pods == 0 {
            for idler in ["kube-controller-manager", "kube-scheduler", "kwok"] {
                cluster.stop_component(idler).await?;
            }
        }
        let client = cluster.client().await?;
        Ok(Self { cluster, client })
    }

    /// Ends it.
    pub(super) async fn stop(self) {
        self.cluster.stop().await;
    }

    /// Processor time of all its processes so far, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        let mut total = Duration::ZERO;
        for name in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kwok",
        ] {
            if let Some(process) = self.cluster.component(name) {
                total += usage::cpu(process.pid())?;
            }
        }
        Ok(total.as_secs_f64())
    }

    /// Waits until it has nothing to do.
    pub(super) async fn settle(&self) -> Result<()> {
        let begin = Instant::now();
        let mut last = self.cpu()?;
        while begin.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.cpu()?;
            if now - last < QUIET {
                return Ok(());
            }
            last = now;
        }
        bail!("the control plane does not come to rest");
    }

    async fn call(&self, method: &str, path: &str, type_: &str, body: &Value) -> Result<Stored> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", type_)
            .body(serde_json::to_vec(body)?)?;
        let answer = self.client.request(request).await;
        answer.with_context(|| format!("{method} {path}"))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Stored> {
        self.call("POST", path, "application/json", body).await
    }

    /// Creates an At that is due then.
    pub(super) async fn create_at(&self, name: &str, due: DateTime<Utc>) -> Result<Stored> {
        let at = json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedule": due.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
                "command": "echo YAY",
            },
        });
        self.post(ATS, &at).await
    }

    /// Creates that many Ats which are due then.
    pub(super) async fn create_ats(&self, count: usize, due: DateTime<Utc>) -> Result<Vec<Stored>> {
        let create = |number| async move { self.create_at(&format!("at-{number:06}"), due).await };
        at_once(count, create).await
    }

    /// Makes the writes of the protocol for each of these Ats, and nothing else.
    pub(super) async fn start_bare(&self, ats: &[Stored]) -> Result<()> {
        at_once(ats.len(), |number| self.start_one(&ats[number])).await?;
        Ok(())
    }

    async fn start_one(&self, at: &Stored) -> Result<()> {
        let (name, uid) = (&at.metadata.name, &at.metadata.uid);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("{name}-pod"),
                "namespace": NAMESPACE,
                "labels": {
                    "app.kubernetes.io/managed-by": "my-operator",
                    "cnat.programming-kubernetes.info/at-uid": uid,
                },
                "annotations": {"cnat.programming-kubernetes.info/spec-hash": "0".repeat(64)},
                "ownerReferences": [{
                    "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
                    "kind": "At",
                    "name": name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "restartPolicy": "Never",
                "schedulingGates": [{"name": GATE}],
                "containers": [container()],
            },
        });
        let create = format!("{PODS}?fieldManager=bare&fieldValidation=Strict");
        let pod_uid = self.post(&create, &pod).await?.metadata.uid;
        let now = Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let condition = |type_: &str, reason: &str, message: &str| {
            json!({
                "type": type_, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": now, "observedGeneration": 1,
            })
        };
        let status = json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": uid,
                "resourceVersion": at.metadata.resource_version,
            },
            "status": {
                "phase": "RUNNING",
                "observedGeneration": 1,
                "scheduledTime": now,
                "startTime": now,
                "latenessMilliseconds": 0,
                "podName": format!("{name}-pod"),
                "podUID": pod_uid,
                "conditions": [
                    condition("Accepted", "Valid", "the spec is valid"),
                    condition("Started", "Released", "the pod was released to run"),
                    condition("Reconciling", "Running", "the pod was released and has not ended"),
                ],
            },
        });
        let path = format!("{ATS}/{name}/status?fieldManager=bare");
        self.call("PUT", &path, "application/json", &status).await?;
        let lift = json!([
            {"op": "test", "path": "/metadata/uid", "value": pod_uid},
            {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]);
        let path = format!("{PODS}/{name}-pod?fieldManager=bare");
        let json_patch = "application/json-patch+json";
        self.call("PATCH", &path, json_patch, &lift).await?;
        Ok(())
    }

    /// Creates that many Jobs with the same container.
    pub(super) async fn create_jobs(&self, count: usize) -> Result<()> {
        let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs");
        let path = &path;
        let create = |number| async move {
            let job = json!({
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": format!("job-{number:06}"), "namespace": NAMESPACE},
                "spec": {
                    "backoffLimit": 0,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}},
                },
            });
            self.post(path, &job).await
        };
        at_once(count, create).await?;
        Ok(())
    }

    /// How late an At was by its own status, in milliseconds.
    pub(super) async fn lateness(&self, name: &str) -> Result<Option<f64>> {
        let request = Request::get(format!("{ATS}/{name}")).body(Vec::new())?;
        let at: Value = self.client.request(request).await?;
        Ok(at["status"]["latenessMilliseconds"].as_f64())
    }

    /// Watches pods from now on, until that many were seen without a gate.
    pub(super) async fn watch(&self, count: usize) -> Result<Releases> {
        let list = Request::get(format!("{PODS}?limit=1")).body(Vec::new())?;
        let list: Stored = self.client.request(list).await?;
        let (sender, seen) = watch::channel(Vec::new());
        let from = list.metadata.resource_version;
        let task = tokio::spawn(follow(self.client.clone(), from, count, sender));
        Ok(Releases { seen, task, count })
    }
}

/// Does it for every number below `count`, so many at a time as is fixed.
async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    let all = futures::stream::iter(0..count).map(each);
    all.buffered(IN_FLIGHT).try_collect().await
}

/// What all pods run.
fn container() -> Value {
    json!({
        "name": "at",
        "image": "bash:5.3",
        "command": ["bash", "-c", "echo YAY"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// When pods were first seen without a scheduling gate.
pub(super) struct Releases {
    seen: watch::Receiver<Vec<DateTime<Utc>>>,
    task: JoinHandle<Result<()>>,
    count: usize,
}

impl Releases {
    /// All of them, in order.
    pub(super) async fn all(mut self) -> Result<Vec<DateTime<Utc>>> {
        let wait = self.seen.wait_for(|seen| seen.len() >= self.count);
        let ended = tokio::time::timeout(PATIENCE, wait).await.map(|_| ());
        let seen = self.seen.borrow().clone();
        ensure!(
            ended.is_ok() && seen.len() == self.count,
            "{} of {} pods were released",
            seen.len(),
            self.count
        );
        self.task.await??;
        Ok(seen)
    }

    /// How many there are so far.
    pub(super) fn so_far(&self) -> usize {
        self.seen.borrow().len()
    }
}

async fn follow(
    client: Client,
    mut version: String,
    count: usize,
    sender: watch::Sender<Vec<DateTime<Utc>>>,
) -> Result<()> {
    let mut known = HashSet::new();
    loop {
        let request = Request::get(format!(
            "{PODS}?watch=true&timeoutSeconds=280&resourceVersion={version}"
        ))
        .body(Vec::new())?;
        let events = client.request_events::<Pod>(request).await?;
        futures::pin_mut!(events);
        while let Some(event) = events.try_next().await? {
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                    pod
                }
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => bail!("the watch of pods failed: {}", status.message),
            };
            version = pod.metadata.resource_version;
            if pod.spec.scheduling_gates.is_empty() && known.insert(pod.metadata.uid) {
                let now = Utc::now();
                sender.send_modify(|seen| seen.push(now));
                if known.len() == count {
                    return Ok(());
                }
            }
        }
    }
}
