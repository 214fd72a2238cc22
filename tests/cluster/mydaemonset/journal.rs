//! Every pod event of a place, in order: what was the case in between is not missed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::PostParams;
use serde_json::json;

use super::{Place, Pod};
use crate::harness::record::{Record, version};

/// The pods of a MyDaemonSet at a moment, by UID.
pub(super) type Moment = BTreeMap<String, Pod>;

/// Records from its start on.
pub(super) struct Journal {
    place: Place,
    record: Record<ApiPod>,
    /// So many events tell of what was there at the start.
    begin: usize,
}

impl Journal {
    /// Starts with the pods that are there.
    pub(super) async fn start(place: &Place) -> Self {
        let record = Record::start(place.pods_api()).await;
        Self {
            place: place.clone(),
            begin: record.look(<[_]>::len),
            record,
        }
    }

    /// What was the case at the start, and after each event up to now.
    pub(super) async fn moments(&self) -> Vec<Moment> {
        let last = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "the-end-of-the-journal-"},
            "spec": {"schedulingGates": [{"name": "example.com/end"}], "containers": [{"name": "c", "image": "i:1"}]},
        });
        let pods = self.place.pods_api();
        let last = serde_json::from_value(last).unwrap();
        let last = pods.create(&PostParams::default(), &last).await.unwrap();
        self.record.reach(version(&last)).await;
        let mut now = Moment::new();
        let mut moments = Vec::new();
        self.record.look(|events| {
            for (nth, event) in events.iter().enumerate() {
                if nth == self.begin {
                    moments.push(now.clone());
                }
                let pod = Pod::of(&event.object);
                if !pod.is_of(&self.place) {
                    continue;
                }
                if event.gone {
                    now.remove(&pod.uid);
                } else {
                    now.insert(pod.uid.clone(), pod);
                }
                if nth >= self.begin {
                    moments.push(now.clone());
                }
            }
        });
        moments
    }

    /// The least number of nodes with a pod that serves, over all moments.
    pub(super) async fn least_serving(&self) -> usize {
        let moments = self.moments().await;
        moments.iter().map(serving).min().unwrap_or_default()
    }
}

/// On how many nodes a pod serves.
pub(super) fn serving(moment: &Moment) -> usize {
    let mut nodes: Vec<&str> = moment
        .values()
        .filter(|pod| pod.serves())
        .map(|pod| pod.node.as_str())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}

/// The largest number of pods on one node for which that key is the same.
pub(super) fn most_alike<'a>(moments: &'a [Moment], key: impl Fn(&'a Pod) -> &'a str) -> usize {
    let most = |moment: &'a Moment| {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for pod in moment.values() {
            *counts.entry((&pod.node, key(pod))).or_default() += 1;
        }
        counts.into_values().max().unwrap_or_default()
    };
    moments.iter().map(most).max().unwrap_or_default()
}
