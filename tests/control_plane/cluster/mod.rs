//! The operator with its webhooks on a real control plane, driven with kubectl. All tests share one
//! control plane and one operator; each has a namespace of its own.

mod at;
mod clients;
mod figures;
mod mydaemonset;
mod refusals;
mod transcripts;
mod webhook;

use crate::harness;
use crate::harness::{Kubectl, Operator};
use chrono::TimeDelta;
use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

/// How long a node may be silent before a roll-out leaves it out: less than the minute of the
/// default, and long enough to look at.
const GRACE: TimeDelta = TimeDelta::seconds(8);

struct Environment {
    cluster: &'static Cluster,
    operator: Operator,
}

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

async fn environment() -> &'static Environment {
    ENVIRONMENT
        .get_or_init(|| async {
            let nodes = Options::with_nodes(&["node-1", "node-2", "node-3"]);
            let cluster = harness::shared_plane("cluster", nodes).await;
            harness::install(cluster).await;
            let grace = format!("--node-not-ready-grace={}s", GRACE.num_seconds());
            let operator = Operator::start(cluster, "operator", &[&grace]).await;
            Kubectl::new(cluster, "default")
                .until_webhooks_are_called(
                    "config/samples/bad/cnat_v1alpha1_at.yaml",
                    "config/samples/cnat_v1alpha1_at.yaml",
                    ("{.spec.suspend}", "false"),
                )
                .await;
            Environment { cluster, operator }
        })
        .await
}

/// kubectl in a fresh namespace of that name.
async fn kubectl(name: &str) -> Kubectl {
    let cluster = environment().await.cluster;
    Kubectl::fresh(cluster, name).await
}
