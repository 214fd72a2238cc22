//! A record of every pod event in a namespace, without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinHandle;

use super::PATIENCE;

/// The first event in which a pod had no scheduling gate: from then on it could run.
#[derive(Clone, Debug)]
pub struct Release {
    pub pod: Pod,
    /// When the event was read here.
    pub seen: DateTime<Utc>,
}

impl Release {
    /// When the API server made the pod, cut to the second: the release came after that. It writes
    /// down no time of the release itself (managedFields keep their time when a field is removed).
    pub fn created(&self) -> DateTime<Utc> {
        let time = self.pod.creation_timestamp().unwrap();
        DateTime::from_timestamp(time.0.as_second(), 0).unwrap()
    }
}

/// What was seen of the pods of one name, by UID.
#[derive(Clone, Debug, Default)]
struct Seen {
    uids: BTreeSet<String>,
    released: BTreeMap<String, Release>,
}

/// Records every pod event from its start on.
pub struct Recorder {
    pods: Api<Pod>,
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Starts to record. No event after this call is missed: the watch begins at a version that is
    /// taken here, and goes on from the last event when the API server ends it. Should that version
    /// be forgotten by then, the record would have a hole, and [`Recorder::end`] panics.
    pub async fn start(client: Client, namespace: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let list = pods.list(&ListParams::default()).await.unwrap();
        let seen = Arc::default();
        for pod in list.items {
            note(&seen, pod);
        }
        let version = list.metadata.resource_version.unwrap();
        let task = tokio::spawn(follow(pods.clone(), version, Arc::clone(&seen)));
        Self { pods, seen, task }
    }

    /// Waits until every event up to now is in the record: until that of a pod that is made here.
    pub async fn end(&self) {
        let name = "the-end-of-the-record";
        let last = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulingGates": [{"name": "example.com/end"}], "containers": [{"name": "c", "image": "i:1"}]},
        });
        let last = serde_json::from_value(last).unwrap();
        self.pods
            .create(&PostParams::default(), &last)
            .await
            .unwrap();
        let come = super::try_wait(PATIENCE, || {
            assert!(!self.task.is_finished(), "the record has a hole");
            self.seen.lock().unwrap().contains_key(name).then_some(())
        });
        assert!(come.await.is_some(), "the recorder lags behind");
    }

    /// The UIDs of all pods of that name.
    pub fn uids(&self, name: &str) -> BTreeSet<String> {
        let seen = self.seen.lock().unwrap();
        seen.get(name).map(|s| s.uids.clone()).unwrap_or_default()
    }

    /// Those of them that could run, by UID.
    pub fn released(&self, name: &str) -> BTreeMap<String, Release> {
        let seen = self.seen.lock().unwrap();
        let seen = seen.get(name);
        seen.map(|s| s.released.clone()).unwrap_or_default()
    }
}

fn note(seen: &Mutex<BTreeMap<String, Seen>>, pod: Pod) {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref());
    let free = gates.is_none_or(Vec::is_empty);
    let uid = pod.uid().unwrap();
    let mut seen = seen.lock().unwrap();
    let seen = seen.entry(pod.name_any()).or_default();
    seen.uids.insert(uid.clone());
    if free {
        let release = Release {
            pod,
            seen: Utc::now(),
        };
        seen.released.entry(uid).or_insert(release);
    }
}

async fn follow(pods: Api<Pod>, mut version: String, seen: Arc<Mutex<BTreeMap<String, Seen>>>) {
    let params = WatchParams::default();
    loop {
        // The API server may be busy or ending a watch; what counts is that nothing is left out.
        let Ok(events) = pods.watch(&params, &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                    version = pod.resource_version().unwrap();
                    note(&seen, pod);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                // 410 Gone: what lies between is lost.
                WatchEvent::Error(status) => panic!("the watch cannot go on: {status:?}"),
            }
        }
    }
}
