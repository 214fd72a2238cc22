//! The writes that the bench makes for Ats.

use anyhow::Result;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::plane::{NAMESPACE, PODS, Plane, Stored, at_once};

/// The Job controller's own default is 5 at a time.
const JOB_SYNCS: &str = "--concurrent-job-syncs=32";
/// The gate that our pods are born with.
const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// Where the Ats of a namespace are.
fn ats(namespace: &str) -> String {
    format!("/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/{namespace}/ats")
}

/// An At that is due then.
pub(crate) fn at(namespace: &str, name: &str, due: DateTime<Utc>) -> Value {
    json!({
        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
        "kind": "At",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedule": due.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
            "command": "echo YAY",
        },
    })
}

/// A plane for that many pods at a time; with none, nothing runs but the API server and its store.
pub(super) async fn plane(pods: usize) -> Result<Plane> {
    let plane = Plane::start(pods.div_ceil(250), &[JOB_SYNCS]).await?;
    if pods == 0 {
        for idler in ["kube-controller-manager", "kube-scheduler", "fake-kubelet"] {
            plane.cluster.stop_component(idler).await?;
        }
    }
    Ok(plane)
}

impl Plane {
    /// Creates an At that is due then.
    pub(super) async fn create_at(
        &self,
        namespace: &str,
        name: &str,
        due: DateTime<Utc>,
    ) -> Result<Stored> {
        self.post(&ats(namespace), &at(namespace, name, due)).await
    }

    /// Creates that many Ats which are due then.
    pub(super) async fn create_ats(&self, count: usize, due: DateTime<Utc>) -> Result<Vec<Stored>> {
        let create = |number| async move {
            let name = format!("at-{number:06}");
            self.create_at(NAMESPACE, &name, due).await
        };
        at_once(count, create).await
    }

    /// Makes the writes of the protocol for each of these Ats, and nothing else.
    pub(super) async fn start_bare(&self, ats: &[Stored]) -> Result<()> {
        at_once(ats.len(), |number| self.start_one(&ats[number])).await?;
        Ok(())
    }

    async fn start_one(&self, at: &Stored) -> Result<()> {
        let name = &at.metadata.name;
        let create = format!("{PODS}?fieldManager=bare&fieldValidation=Strict");
        let pod_uid = self.post(&create, &gated_pod(at)).await?.metadata.uid;
        let path = format!("{}/{name}/status?fieldManager=bare", ats(NAMESPACE));
        let status = started(at, &pod_uid);
        self.call("PUT", &path, "application/json", &status).await?;
        let release = json!([
            {"op": "test", "path": "/metadata/uid", "value": pod_uid},
            {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]);
        let path = format!("{PODS}/{name}-pod?fieldManager=bare");
        let json_patch = "application/json-patch+json";
        self.call("PATCH", &path, json_patch, &release).await?;
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
        let at: Value = self.get(&format!("{}/{name}", ats(NAMESPACE))).await?;
        Ok(at["status"]["latenessMilliseconds"].as_f64())
    }
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

/// A gated pod, as the operator builds it.
fn gated_pod(at: &Stored) -> Value {
    let (name, uid) = (&at.metadata.name, &at.metadata.uid);
    json!({
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
    })
}

/// The At with the status that records its start.
fn started(at: &Stored, pod_uid: &str) -> Value {
    let (name, uid) = (&at.metadata.name, &at.metadata.uid);
    let now = Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now, "observedGeneration": 1,
        })
    };
    json!({
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
    })
}
