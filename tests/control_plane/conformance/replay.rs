//! Runs our reconcilers on the simulated API server, and replays what happened on a real one.
//!
//! Every request of a reconciler is sent again, with the UIDs and resourceVersions that the real server gave to the same
//! objects, and must be answered as in the simulation. What others did meanwhile (a person, the scheduler, a kubelet) is
//! done again as well, from the recorded versions of the objects.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http;
use futures::future::join_all;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use simulated_apiserver::{
    ChangeKind, History, KubeletOptions, Options, Request, Server, Verb, Version,
};
use tokio_util::sync::CancellationToken;

use crate::disruption::cluster;
use crate::harness::in_process;

/// The namespace of the simulation.
const NAMESPACE: &str = "simulated";
const OPERATOR: &str = "operator";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// No node has this name, so that nothing on the real control plane runs the pods.
const NOWHERE: &str = "nowhere";

/// What a person does, and after how many seconds.
type Act = (u64, fn(&Server));
/// A run of a reconciler: its name, the kind and what happens.
type Scenario = (&'static str, &'static str, Vec<Act>);

fn at(spec: &Value) -> Value {
    json!({
        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
        "metadata": {"name": "a", "namespace": NAMESPACE, "annotations": {
            "cnat.programming-kubernetes.info/created-by": "alice",
        }},
        "spec": spec,
    })
}

fn daemons(image: &str) -> Value {
    json!({
        "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
        "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"image": image, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}},
    })
}

fn change(server: &Server, kind: &str, name: &str, change: &Value) {
    server
        .direct()
        .patch(kind, NAMESPACE, name, change)
        .unwrap();
}

fn delete(server: &Server, kind: &str, name: &str) {
    server.direct().delete(kind, NAMESPACE, name).unwrap();
}

fn scenarios() -> Vec<Scenario> {
    vec![
        (
            "at-succeeds",
            "at",
            vec![(0, |server| {
                let spec = json!({"schedule": "now + 5 seconds", "command": "exit 0", "image": "bash:5.3", "shell": ["bash", "-c"]});
                server.direct().create(at(&spec)).unwrap();
            })],
        ),
        (
            "at-suspended-then-deleted",
            "at",
            vec![
                (0, |server| {
                    let spec = json!({"schedule": "now", "command": "exit 0", "image": "bash:5.3", "shell": ["bash", "-c"], "suspend": true});
                    server.direct().create(at(&spec)).unwrap();
                }),
                (10, |server| {
                    change(server, "At", "a", &json!({"spec": {"suspend": false}}));
                }),
                (12, |server| delete(server, "At", "a")),
            ],
        ),
        (
            "at-pod-deleted",
            "at",
            vec![
                (0, |server| {
                    let spec = json!({"schedule": "now", "command": "sleep", "image": "bash:5.3", "shell": ["bash", "-c"], "ttlSecondsAfterFinished": 30});
                    server.direct().create(at(&spec)).unwrap();
                }),
                (2, |server| delete(server, "Pod", "a-pod")),
            ],
        ),
        (
            "at-name-taken",
            "at",
            vec![
                (0, |server| {
                    let pod = json!({
                        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-pod", "namespace": NAMESPACE},
                        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "busybox"}]},
                    });
                    server.direct().create(pod).unwrap();
                    let spec = json!({"schedule": "now", "command": "exit 0", "image": "bash:5.3", "shell": ["bash", "-c"]});
                    server.direct().create(at(&spec)).unwrap();
                }),
                (5, |server| delete(server, "Pod", "a-pod")),
            ],
        ),
        (
            "mydaemonset-rolls-out",
            "mydaemonset",
            vec![
                (0, |server| {
                    drop(server.direct().create(daemons("nginx:1")).unwrap());
                }),
                (30, |server| {
                    change(
                        server,
                        "MyDaemonSet",
                        "a",
                        &json!({"spec": {"image": "nginx:2"}}),
                    );
                }),
                (90, |server| {
                    change(
                        server,
                        "MyDaemonSet",
                        "a",
                        &json!({"spec": {"image": "nginx:1"}}),
                    );
                }),
                (150, |server| delete(server, "MyDaemonSet", "a")),
            ],
        ),
    ]
}

/// Runs a scenario for five virtual minutes.
fn simulate(kind: &str, acts: Vec<Act>) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(async {
        let server = Server::new(Options {
            namespaces: vec![NAMESPACE.to_owned()],
            ..Options::default()
        });
        in_process::register(&server);
        let kubelet = server.kubelet(KubeletOptions::default());
        kubelet.add_node("node-1");
        kubelet.add_node("node-2");
        let clock = in_process::simulated_clock(&server, 0);
        let (client, stop) = (server.client(OPERATOR), CancellationToken::new());
        let kind = in_process::kind(kind);
        tokio::spawn(in_process::reconcile(kind, client, clock, Vec::new(), stop));
        let start = tokio::time::Instant::now();
        for (second, act) in acts {
            tokio::time::sleep_until(start + Duration::from_secs(second)).await;
            act(&server);
        }
        tokio::time::sleep_until(start + Duration::from_mins(5)).await;
        server.history()
    })
}

/// The real server, and what in it corresponds to the simulation.
struct Replay {
    client: Client,
    namespace: String,
    uids: BTreeMap<String, String>,
    /// By the resourceVersion in the simulation.
    versions: BTreeMap<String, String>,
    differences: Vec<String>,
}

impl Replay {
    async fn send(
        &self,
        method: &str,
        uri: &str,
        content_type: &str,
        body: &Value,
    ) -> (u16, Value) {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", content_type)
            .body(Body::from(body))
            .unwrap();
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&text).unwrap_or_default())
    }

    /// The same with what corresponds to it on the real server.
    fn translate(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    let known = match (name.as_str(), value.as_str()) {
                        ("resourceVersion", Some(version)) => self.versions.get(version).cloned(),
                        ("namespace", Some(NAMESPACE)) => Some(self.namespace.clone()),
                        _ => None,
                    };
                    match known {
                        Some(known) => *value = json!(known),
                        None => self.translate(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.translate(item)),
            Value::String(text) => {
                for (simulated, real) in &self.uids {
                    if text.contains(simulated.as_str()) {
                        *text = text.replace(simulated.as_str(), real);
                    }
                }
            }
            _ => {}
        }
    }

    fn translated(&self, value: &Value) -> Value {
        let mut value = value.clone();
        self.translate(&mut value);
        value
    }

    /// Notes what the real server calls a version of an object.
    fn learn(&mut self, version: &Version, real: &Value) {
        let text = |field: &str| real["metadata"][field].as_str().map(str::to_owned);
        if let (Some(uid), Some(real)) = (text("uid"), text("resourceVersion")) {
            self.uids.insert(version.uid.clone(), uid);
            self.versions.insert(version.version.to_string(), real);
        }
    }

    fn collection(&self, version: &Version) -> String {
        let api_version = version.object()["apiVersion"].as_str().unwrap();
        let root = if api_version.contains('/') {
            "apis"
        } else {
            "api"
        };
        format!(
            "/{root}/{api_version}/namespaces/{}/{}",
            self.namespace, version.resource
        )
    }

    /// Repeats what another client did.
    async fn foreign(&mut self, version: &Version) {
        let collection = self.collection(version);
        let path = format!("{collection}/{}", version.name);
        let (json, merge) = ("application/json", "application/merge-patch+json");
        let object = self.translated(version.object());
        match version.kind {
            _ if version.by == COLLECTOR => {
                // The real control plane has one as well.
                if version.kind == ChangeKind::Deleted {
                    let gone = async || {
                        (self.send("GET", &path, json, &Value::Null).await.0 == 404).then_some(())
                    };
                    crate::harness::wait_for(&format!("{path} to be collected"), gone).await;
                }
                return;
            }
            ChangeKind::Added => {
                let mut object = object;
                let metadata = &object["metadata"];
                object["metadata"] = json!({
                    "name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"],
                    "ownerReferences": metadata["ownerReferences"],
                });
                self.send("POST", &collection, json, &object).await;
            }
            ChangeKind::Modified => {
                let previous = self.translated(version.previous().unwrap());
                let is_new = |pointer: &str| {
                    previous.pointer(pointer).is_none() && object.pointer(pointer).is_some()
                };
                if is_new("/metadata/deletionTimestamp") {
                    let grace = &object["metadata"]["deletionGracePeriodSeconds"];
                    self.send("DELETE", &path, json, &json!({"gracePeriodSeconds": grace}))
                        .await;
                } else if is_new("/spec/nodeName") {
                    let binding = json!({
                        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": version.name},
                        "target": {"kind": "Node", "name": NOWHERE},
                    });
                    self.send("POST", &format!("{path}/binding"), json, &binding)
                        .await;
                } else {
                    let (mut spec, status) = (
                        difference(&previous, &object),
                        difference(&previous["status"], &object["status"]),
                    );
                    spec.as_object_mut().unwrap().remove("status");
                    if let Some(metadata) = spec.get_mut("metadata").and_then(Value::as_object_mut)
                    {
                        metadata.retain(|name, _| {
                            matches!(
                                name.as_str(),
                                "labels" | "annotations" | "finalizers" | "ownerReferences"
                            )
                        });
                    }
                    if spec
                        .as_object()
                        .is_some_and(|spec| spec.keys().any(|field| field != "metadata"))
                    {
                        self.send("PATCH", &path, merge, &spec).await;
                    }
                    if status.as_object().is_some_and(|status| !status.is_empty()) {
                        self.send(
                            "PATCH",
                            &format!("{path}/status"),
                            merge,
                            &json!({"status": status}),
                        )
                        .await;
                    }
                }
            }
            ChangeKind::Deleted => {
                self.send("DELETE", &path, json, &json!({"gracePeriodSeconds": 0}))
                    .await;
                return;
            }
        }
        let (_, real) = self.send("GET", &path, json, &Value::Null).await;
        self.learn(version, &real);
    }

    /// Sends a request again, and compares the answers.
    async fn request(&mut self, request: &Request, made: Option<&Version>) {
        let uri = request
            .uri
            .replace(&format!("/{NAMESPACE}/"), &format!("/{}/", self.namespace));
        let mut body = serde_json::from_slice(&request.body).unwrap_or_default();
        self.translate(&mut body);
        if request.site.verb == Verb::Create && request.site.resource == "pods" {
            // The scheduler of the real control plane leaves it alone.
            body["spec"]["schedulerName"] = json!("none");
        }
        let (code, answer) = self
            .send(&request.method, &uri, &request.content_type, &body)
            .await;
        let reason = if code >= 400 {
            answer["reason"].as_str().unwrap_or_default()
        } else {
            ""
        };
        if Some(code) != request.code || reason != request.reason {
            self.differences.push(format!(
                "{}: simulated {} {}, real {code} {reason}: {}",
                request.site,
                request.code.unwrap_or_default(),
                request.reason,
                answer["message"]
            ));
        }
        if let Some(made) = made {
            self.learn(made, &answer);
        }
    }
}

/// The merge patch that makes one value the other.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for (name, value) in after {
        match before.get(name) {
            Some(old) if old == value => {}
            Some(old) => drop(patch.insert(name.clone(), difference(old, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Replays a history, and returns how many requests were sent and which were answered otherwise.
async fn replay(history: &History, client: Client, namespace: String) -> (usize, Vec<String>) {
    let mut replay = Replay {
        client,
        namespace,
        uids: BTreeMap::new(),
        versions: BTreeMap::new(),
        differences: Vec::new(),
    };
    let mut sent = 0;
    let mut versions = history
        .versions
        .iter()
        .filter(|version| version.namespace == NAMESPACE)
        .peekable();
    let is_write = |request: &&Request| !matches!(request.site.verb, Verb::List | Verb::Watch);
    let requests = history
        .requests
        .iter()
        .filter(is_write)
        .filter(|request| !request.site.namespace.is_empty());
    for request in requests {
        let mut made = None;
        while let Some(version) = versions.next_if(|version| version.version <= request.version) {
            if version.by == OPERATOR {
                made = Some(version);
            } else {
                replay.foreign(version).await;
            }
        }
        replay.request(request, made).await;
        sent += 1;
    }
    (sent, replay.differences)
}

/// Each request of a reconciler is answered by a real API server as by the simulated one.
#[tokio::test]
async fn reconcilers_meet_the_same_answers_as_in_the_simulation() {
    let cluster = cluster().await;
    let client = cluster.client().await.unwrap();
    let runs = scenarios().into_iter().map(async |(name, kind, acts)| {
        let history = std::thread::spawn(move || simulate(kind, acts))
            .join()
            .unwrap();
        let namespace = cluster.namespace(&format!("replay-{name}")).await.unwrap();
        let (sent, differences) = replay(&history, client.clone(), namespace).await;
        assert!(sent >= 5, "{name} replayed {sent} requests only");
        differences
            .into_iter()
            .map(move |difference| format!("{name}: {difference}"))
    });
    let differences: Vec<String> = join_all(runs).await.into_iter().flatten().collect();
    super::assert_none(&differences);
}
