//! The operator killed, absent or damaged, on a real control plane. Each test runs operators of its
//! own, confined to its own namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod killed;
mod stored;

use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

static CLUSTER: OnceCell<&'static Cluster> = OnceCell::const_new();

/// A control plane with our CRDs and rights, and no operator.
async fn cluster() -> &'static Cluster {
    CLUSTER
        .get_or_init(|| async {
            let cluster = my_operator_cluster::shared(Options::with_nodes(&["node-1"])).await;
            harness::install(cluster);
            cluster
        })
        .await
}
