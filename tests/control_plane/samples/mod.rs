//! The kinds that are off by default on a real control plane, driven with kubectl as a user would. All tests
//! share one control plane, on which the CRDs of every kind are installed, and one operator that serves and
//! reconciles them all; each has a namespace of its own.

mod count;
mod crontab;
mod every_kind;
mod foo;
mod foobar;
mod memcached;
mod walk;

use crate::harness;
use crate::harness::{Kubectl, Operator};
use my_operator_cluster::{Cluster, Options};
use serde_json::Value;
use tokio::sync::OnceCell;

struct Environment {
    cluster: &'static Cluster,
    // Ends with the tests.
    _operator: Operator,
}

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

async fn environment() -> &'static Environment {
    ENVIRONMENT
        .get_or_init(|| async {
            let mut options = Options::with_nodes(&["node-1", "node-2", "node-3"]);
            // 15 s by default.
            let period = "--horizontal-pod-autoscaler-sync-period=1s";
            options.controller_manager_args.push(period.to_owned());
            let cluster = harness::shared_plane("samples", options).await;
            harness::install(cluster).await;
            harness::install_sample_kinds(cluster).await;
            let operator = Operator::start(cluster, "operator", &[&harness::every_kind()]).await;
            Kubectl::new(cluster, "default")
                .until_webhooks_are_called(
                    "config/samples/sample-kinds/bad/stable_v1_crontab.yaml",
                    "config/samples/sample-kinds/stable_v1_crontab.yaml",
                    ("{.spec.timeZone}", "Etc/UTC"),
                )
                .await;
            Environment {
                cluster,
                _operator: operator,
            }
        })
        .await
}

/// kubectl in a fresh namespace of that name.
async fn kubectl(name: &str) -> Kubectl {
    let cluster = environment().await.cluster;
    Kubectl::fresh(cluster, name).await
}

/// What the API server says to the creation of an object that it must reject.
async fn rejection(kubectl: &Kubectl, kind: &str, yaml: &str) -> String {
    let object: Value = serde_saphyr::from_str(yaml).unwrap();
    let created = kubectl.dry_run(kind, object).await;
    created.expect_err(&format!("accepted: {yaml}"))
}
