//! Roll-outs under everything that happens to a cluster, and to the operator.

// What a test came to is shown when it fails.
#![allow(clippy::print_stdout)]

mod disturbed;
mod fleet;
mod judge;
pub(crate) mod killed;

use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use my_operator_cluster::Cluster;

use crate::harness::record::{Record, number};
pub(crate) use fleet::{Fleet, Strategy};
use judge::Verdict;

/// A node that is `NotReady` for longer is left out of the limits.
pub(crate) const GRACE: TimeDelta = TimeDelta::seconds(3);

/// When operators were started: each sees all that was before.
#[derive(Default)]
pub(crate) struct Starts(Mutex<Vec<(u64, DateTime<Utc>)>>);

impl Starts {
    /// Notes that an operator is about to be started.
    pub(crate) async fn note(&self, cluster: &Cluster) {
        let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
        let list = nodes.list(&ListParams::default().limit(1)).await.unwrap();
        let now = number(&list.metadata.resource_version.unwrap());
        self.0.lock().unwrap().push((now, Utc::now()));
    }

    pub(crate) fn all(&self) -> Vec<(u64, DateTime<Utc>)> {
        self.0.lock().unwrap().clone()
    }
}

/// A record of all nodes.
pub(crate) async fn record_nodes(cluster: &Cluster) -> Record<Node> {
    Record::start(Api::all(cluster.client().await.unwrap())).await
}

/// The flags of an operator that works in the namespaces of these fleets.
fn flags(fleets: &[Fleet]) -> Vec<String> {
    let namespaces = fleets
        .iter()
        .map(|fleet| format!("--namespace={}", fleet.namespace));
    let grace = format!("--node-not-ready-grace={}s", GRACE.num_seconds());
    ["--webhooks=false", "--kinds=mydaemonset", &grace]
        .map(str::to_owned)
        .into_iter()
        .chain(namespaces)
        .collect()
}

/// What was wrong with any of them.
pub(crate) fn assert_good(verdicts: &[Verdict]) {
    let wrong: Vec<&str> = verdicts
        .iter()
        .flat_map(|v| v.wrong.iter().map(String::as_str))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} faults, the first of them:\n{}",
        wrong.len(),
        wrong[0]
    );
}
