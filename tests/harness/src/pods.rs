//! A record of every pod event in a namespace: which pods there were, and which of them could run.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use super::record::{Event, Record, version};

/// How the names of the pods begin that are made to end a record.
pub const END: &str = "the-end-of-the-record-";

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

/// Records every pod event from its start on.
pub struct Recorder {
    pods: Api<Pod>,
    pub events: Record<Pod>,
}

impl Recorder {
    /// Starts to record.
    pub async fn start(client: Client, namespace: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let events = Record::start(pods.clone()).await;
        Self { pods, events }
    }

    /// Waits until every event up to now is in the record: until that of a pod that is made here.
    pub async fn end(&self) {
        let last = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": END},
            "spec": {"schedulingGates": [{"name": "example.com/end"}], "containers": [{"name": "c", "image": "i:1"}]},
        });
        let last = serde_json::from_value(last).unwrap();
        let last = self.pods.create(&PostParams::default(), &last).await;
        self.events.reach(version(&last.unwrap())).await;
    }

    /// The UIDs of all pods of that name.
    pub fn uids(&self, name: &str) -> BTreeSet<String> {
        self.of(name, |events| {
            events.map(|event| event.object.uid().unwrap()).collect()
        })
    }

    /// Those of them that could run, by UID.
    pub fn released(&self, name: &str) -> BTreeMap<String, Release> {
        self.of(name, |events| {
            let mut released = BTreeMap::new();
            for event in events.filter(|event| is_free(&event.object)) {
                let release = || Release {
                    pod: event.object.clone(),
                    seen: event.seen,
                };
                let uid = event.object.uid().unwrap();
                released.entry(uid).or_insert_with(release);
            }
            released
        })
    }

    /// Looks at the events of the pods of one name.
    fn of<T>(
        &self,
        name: &str,
        look: impl FnOnce(&mut dyn Iterator<Item = &Event<Pod>>) -> T,
    ) -> T {
        self.events
            .look(|events| look(&mut events.iter().filter(|e| e.object.name_any() == name)))
    }
}

fn is_free(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_none_or(Vec::is_empty)
}
