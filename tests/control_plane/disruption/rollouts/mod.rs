//! Roll-outs, while nodes, pods and the operator fail.

// What a test came to is shown when it fails.
#![allow(clippy::print_stdout)]

mod brown_out;
mod delivery;
mod disturbed;
mod fleet;
mod frozen;
mod joins;
mod judge;
pub(crate) mod killed;
mod migrated;
mod ordered;
mod undone;

use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use my_operator_cluster::Cluster;

use crate::harness::record::{Record, number};
use delivery::Delivery;
pub(crate) use fleet::{Fleet, Strategy};
use judge::{History, Rules, Verdict, judge, save};

/// A node that is `NotReady` for longer is left out of the limits.
pub(crate) const GRACE: TimeDelta = TimeDelta::seconds(3);

/// What is recorded of the cluster while fleets are rolled out, for the judge.
pub(crate) struct Run {
    seed: u64,
    cluster_nodes: Api<Node>,
    nodes: Record<Node>,
    /// When operators were started: each sees all that was before.
    starts: Mutex<Vec<(u64, DateTime<Utc>)>>,
    delivery: Delivery,
}

impl Run {
    /// Starts to record. Everything at random in the run comes from the seed.
    pub(crate) async fn start(cluster: &Cluster, seed: u64) -> Self {
        let client: Client = cluster.client().await.unwrap();
        let cluster_nodes: Api<Node> = Api::all(client);
        Self {
            seed,
            nodes: Record::start(cluster_nodes.clone()).await,
            cluster_nodes,
            starts: Mutex::default(),
            delivery: Delivery::start(cluster).await,
        }
    }

    /// Notes that an operator is about to be started.
    pub(crate) async fn note_start(&self) {
        let one = ListParams::default().limit(1);
        let list = self.cluster_nodes.list(&one).await.unwrap();
        let now = number(&list.metadata.resource_version.unwrap());
        self.starts.lock().unwrap().push((now, Utc::now()));
    }

    /// How many operators were started.
    fn starts(&self) -> usize {
        self.starts.lock().unwrap().len()
    }

    /// Judges what one operator at a time did to these fleets.
    pub(crate) async fn judge(&self, fleets: impl IntoIterator<Item = &Fleet>) -> Vec<Verdict> {
        self.judge_with(fleets, None).await
    }

    /// The same where there were two operators at a time, one of which was frozen for so long at most.
    async fn judge_two(
        &self,
        fleets: impl IntoIterator<Item = &Fleet>,
        frozen: TimeDelta,
    ) -> Vec<Verdict> {
        self.judge_with(fleets, Some(frozen)).await
    }

    async fn judge_with(
        &self,
        fleets: impl IntoIterator<Item = &Fleet>,
        two_operators: Option<TimeDelta>,
    ) -> Vec<Verdict> {
        let latest = self.delivery.latest().await + two_operators.unwrap_or_default();
        let mut verdicts = Vec::new();
        for fleet in fleets {
            let rules = fleet.rules(latest, two_operators.is_some());
            verdicts.push(self.verdict(fleet.history().await, &rules, &fleet.namespace));
        }
        verdicts
    }

    /// Judges what happened in a namespace; a history in which something is wrong is saved.
    fn verdict(&self, mut history: History, rules: &Rules, namespace: &str) -> Verdict {
        self.nodes.look(|events| history.nodes(events));
        for (version, seen) in self.starts.lock().unwrap().iter() {
            history.started(*version, *seen);
        }
        let mut verdict = judge(&history, rules);
        if !verdict.wrong.is_empty() {
            let test = std::thread::current().name().unwrap_or("run").to_owned();
            let test = test.rsplit("::").next().unwrap_or_default().to_owned();
            let name = format!("{test}-{namespace}");
            verdict.saved = Some(save(&name, self.seed, rules, &history));
        }
        verdict
    }
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

/// Asserts that nothing was wrong with any of them.
pub(crate) fn assert_good(verdicts: &[Verdict]) {
    let mut wrong = verdicts.iter().filter(|v| !v.wrong.is_empty());
    let count: usize = verdicts.iter().map(|v| v.wrong.len()).sum();
    if let Some(Verdict { wrong, saved, .. }) = wrong.next() {
        let history = saved.as_deref().map(std::path::Path::display);
        panic!(
            "{count} faults, the first of them:\n{}\nhistory: {history:?}",
            wrong[0]
        );
    }
}
