//! How late the events of the API server arrive, measured beside a test.
//!
//! A pod that no controller acts on is written again and again, and a watch of the test waits for each of these writes.
//! The time from the start of a request to the arrival of its event covers both ways that an operator's action takes: the
//! event that it acts on, and the request that it makes. On a quiet machine that is a few milliseconds; on a busy one it is
//! whatever the API server, etcd and the scheduler of the machine make of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use my_operator_cluster::Cluster;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::record::{Record, version};

const NAME: &str = "canary";
/// Between two writes. A stall that is shorter may fall between them.
const PERIOD: Duration = Duration::from_millis(100);

/// By the version that it made, when a request was begun.
type Begun = Arc<Mutex<BTreeMap<u64, DateTime<Utc>>>>;

/// A measurement that goes on until it is dropped.
pub(crate) struct Delivery {
    record: Record<Pod>,
    begun: Begun,
    _writer: AbortOnDropHandle<()>,
}

impl Delivery {
    pub(super) async fn start(cluster: &Cluster) -> Self {
        let namespace = cluster.namespace("canary").await.unwrap();
        let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME},
            "spec": {"schedulingGates": [{"name": "example.com/canary"}], "containers": [{"name": "c", "image": "i:1"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let record = Record::start(pods.clone()).await;
        let begun = Begun::default();
        let writer = tokio::spawn(write(pods, begun.clone()));
        Self {
            record,
            begun,
            _writer: AbortOnDropHandle::new(writer),
        }
    }

    /// How old an event is at most that an operator may not have acted on, by all that was measured up to now.
    pub(super) async fn latest(&self) -> TimeDelta {
        let begun = self.begun.lock().unwrap().clone();
        if let Some((last, _)) = begun.last_key_value() {
            self.record.reach(*last).await;
        }
        let (slowest, count) = self.record.look(|events| {
            let took = |event: &crate::harness::record::Event<Pod>| {
                begun.get(&event.version).map(|begun| event.seen - *begun)
            };
            let took: Vec<TimeDelta> = events.iter().filter_map(took).collect();
            (took.iter().max().copied().unwrap_or_default(), took.len())
        });
        // Once for the event that an operator acts on, and once for its own request.
        let latest = slowest * 2 + TimeDelta::from_std(PERIOD).unwrap();
        println!(
            "of {count} events the slowest arrived after {} ms: an operator has acted on what is {} ms old",
            slowest.num_milliseconds(),
            latest.num_milliseconds()
        );
        latest
    }
}

async fn write(pods: Api<Pod>, times: Begun) {
    for number in 0_u64.. {
        let patch =
            json!({"metadata": {"annotations": {"example.com/number": number.to_string()}}});
        let began = Utc::now();
        let patched = pods
            .patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        // The API server may be busy; then the next write is slow, or it is rejected as well.
        if let Ok(pod) = patched {
            times.lock().unwrap().insert(version(&pod), began);
        }
        tokio::time::sleep(PERIOD).await;
    }
}
