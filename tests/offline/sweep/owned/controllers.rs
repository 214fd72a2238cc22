//! Kubernetes' own controllers of Deployments and Jobs, as far as our kinds depend on them.
//!
//! A Deployment makes its pods without a ReplicaSet, and replaces them all at once. A Job has one pod and tries nothing
//! twice. CronJobs are left alone: when they run depends on the clock alone, and no kind of ours counts their runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::{Value, json};
use simulated_apiserver::Server;
use tokio::task::AbortHandle;

const USER: &str = "system:serviceaccount:kube-system:controllers";
/// How long the controllers take to notice a change.
const LAG: Duration = Duration::from_millis(20);
/// The label that the Job controller puts on the pods of a Job, with its UID.
pub const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Runs the controllers until they are aborted.
pub fn start(server: &Server) -> AbortHandle {
    let server = server.clone();
    let run = async move {
        let mut seen = 0;
        loop {
            seen = server.changed(seen).await;
            tokio::time::sleep(LAG).await;
            for deployment in server.direct().list("Deployment", "") {
                Owner::new(&server, &deployment).run_deployment();
            }
            for job in server.direct().list("Job", "") {
                Owner::new(&server, &job).run_job();
            }
        }
    };
    tokio::spawn(run).abort_handle()
}

/// An object that owns pods.
struct Owner<'a> {
    server: &'a Server,
    object: &'a Value,
    namespace: &'a str,
    name: &'a str,
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": ""})
}

impl<'a> Owner<'a> {
    fn new(server: &'a Server, object: &'a Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Self {
            server,
            object,
            namespace: text("namespace"),
            name: text("name"),
        }
    }

    fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// Its pods.
    fn pods(&self) -> Vec<Value> {
        let is_own = |pod: &Value| {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| {
                let uid = &self.object["metadata"]["uid"];
                owners.iter().any(|owner| owner["uid"] == *uid)
            })
        };
        let mut pods = self.server.direct().list("Pod", self.namespace);
        pods.retain(is_own);
        pods
    }

    /// Whether the pod was created. Its name may be taken until a pod is gone, whose end is another change.
    fn create_pod(&self, name: &str) -> bool {
        let mut pod = self.object["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(self.namespace);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": self.object["apiVersion"], "kind": self.kind(), "name": self.name,
            "uid": self.object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]);
        if self.kind() == "Job" {
            pod["metadata"]["labels"][JOB_UID] = self.object["metadata"]["uid"].clone();
        }
        self.server.direct_as(USER).create(pod).is_ok()
    }

    fn delete_pod(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let _ = self
            .server
            .direct_as(USER)
            .delete("Pod", self.namespace, name);
    }

    fn set_status(&self, status: Value) {
        if self.object["status"] != status {
            let direct = self.server.direct_as(USER);
            let set = |object: &mut Value| object["status"] = status;
            // It may be gone.
            let _ = direct.edit_status(self.kind(), self.namespace, self.name, set);
        }
    }

    fn run_deployment(&self) {
        if is_deleted(self.object) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        self.object["spec"]["template"]
            .to_string()
            .hash(&mut hasher);
        let revision = hasher.finish() % 100_000;
        let replicas = self.object["spec"]["replicas"].as_u64().unwrap_or(1);
        let names: Vec<String> = (0..replicas)
            .map(|number| format!("{}-{revision}-{number}", self.name))
            .collect();
        let pods = self.pods();
        let name = |pod: &Value| {
            pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        for wanted in &names {
            if !pods.iter().any(|pod| name(pod) == *wanted) {
                self.create_pod(wanted);
            }
        }
        for pod in &pods {
            let ended = ["Succeeded", "Failed"]
                .map(Value::from)
                .contains(&pod["status"]["phase"]);
            if (!names.contains(&name(pod)) || ended) && !is_deleted(pod) {
                self.delete_pod(pod);
            }
        }
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == "Ready" && c["status"] == "True")
            })
        };
        let there: Vec<Value> = self
            .pods()
            .into_iter()
            .filter(|pod| !is_deleted(pod))
            .collect();
        let updated = there
            .iter()
            .filter(|pod| names.contains(&name(pod)))
            .count();
        let ready = there.iter().filter(is_ready).count();
        let is_available = ready >= names.len();
        let is_complete = is_available && updated == there.len();
        self.set_status(json!({
            "observedGeneration": self.object["metadata"]["generation"],
            "replicas": there.len(), "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready,
            "conditions": [
                condition("Available", if is_available { "True" } else { "False" }, "MinimumReplicas"),
                condition("Progressing", "True", if is_complete { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" }),
            ],
        }));
    }

    fn run_job(&self) {
        let is_true = |type_: &str| {
            let conditions = self.object["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == type_ && c["status"] == "True")
            })
        };
        if is_deleted(self.object) || is_true("Complete") || is_true("Failed") {
            return;
        }
        let pods = self.pods();
        let phase = |wanted: &str| pods.iter().any(|pod| pod["status"]["phase"] == wanted);
        let start_time = &self.object["status"]["startTime"];
        if self.object["spec"]["suspend"] == true {
            for pod in pods.iter().filter(|pod| !is_deleted(pod)) {
                self.delete_pod(pod);
            }
            let suspended = condition("Suspended", "True", "JobSuspended");
            self.set_status(json!({"conditions": [suspended]}));
        } else if phase("Succeeded") {
            let complete = condition("Complete", "True", "CompletionsReached");
            self.set_status(
                json!({"startTime": start_time, "succeeded": 1, "conditions": [complete]}),
            );
        } else if phase("Failed") || pods.is_empty() && !start_time.is_null() {
            let failed = condition("Failed", "True", "BackoffLimitExceeded");
            self.set_status(json!({"startTime": start_time, "failed": 1, "conditions": [failed]}));
        } else if pods.is_empty() {
            let generation = &self.object["metadata"]["generation"];
            if self.create_pod(&format!("{}-pod-{generation}", self.name)) {
                let now = self.server.clock().now();
                self.set_status(json!({"startTime": now, "active": 1}));
            }
        }
    }
}
