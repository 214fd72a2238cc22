//! Every pod event of a place, in order: no state in between is missed.

use std::collections::BTreeMap;

use super::{Place, Pod};
use crate::harness::pods::Recorder;

/// The pods of a MyDaemonSet at a moment, by UID.
pub(super) type Moment = BTreeMap<String, Pod>;

/// Records from its start on.
pub(super) struct Journal {
    place: Place,
    record: Recorder,
    /// The number of events that describe the state at the start.
    begin: usize,
}

impl Journal {
    /// Starts with the pods that are there.
    pub(super) async fn start(place: &Place) -> Self {
        let record = Recorder::start(place.client.clone(), &place.kubectl.namespace).await;
        Self {
            begin: record.events.look(<[_]>::len),
            place: place.clone(),
            record,
        }
    }

    /// The state at the start, and after each event up to now.
    pub(super) async fn moments(&self) -> Vec<Moment> {
        self.record.end().await;
        self.record.events.look(|events| {
            let mut now = Moment::new();
            let mut moments = Vec::new();
            for (number, event) in events.iter().enumerate() {
                if number == self.begin {
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
                if number >= self.begin {
                    moments.push(now.clone());
                }
            }
            moments
        })
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
