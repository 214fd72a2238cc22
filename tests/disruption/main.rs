//! The operator killed, absent or damaged, on a real control plane. Each test runs operators of its
//! own, confined to its own namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod balancer;
mod certificates;
mod cold_start;
mod damage;
mod killed;
mod kills;
mod kinds;
mod leader;
mod load;
mod proxy;
mod refused;
mod rollouts;
mod rotation;
mod scrapes;
mod stored;

use my_operator_cluster::{Cluster, Options};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static CLUSTER: OnceCell<&'static Cluster> = OnceCell::const_new();

/// A control plane with the CRDs of all kinds and our rights, and no operator.
async fn cluster() -> &'static Cluster {
    CLUSTER
        .get_or_init(|| async {
            let options = leader::audit::audited(Options::with_nodes(&["node-1"]));
            let cluster = my_operator_cluster::shared(options).await;
            harness::install(cluster);
            harness::install_sample_kinds(cluster);
            cluster
        })
        .await
}

/// Shows a figure.
#[allow(clippy::print_stdout)]
fn tell(text: &str) {
    println!("{text}");
}

const VALIDATING: &str =
    "validatingwebhookconfiguration/my-operator-validating-webhook-configuration";

/// The webhook configurations and the authority have fixed names, so one test at a time may have
/// webhooks. They are gone when it ends.
async fn webhooks() -> Webhooks {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let kubectl = harness::Kubectl::new(cluster().await, "default");
    Webhooks {
        kubectl,
        _turn: turn,
    }
}

struct Webhooks {
    kubectl: harness::Kubectl,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        for all in [
            "mutatingwebhookconfigurations,validatingwebhookconfigurations --all",
            "secret my-operator-webhook-ca --ignore-not-found -n my-operator-system",
        ] {
            let said = self.kubectl.run(&format!("delete {all}"));
            assert!(said.ok || std::thread::panicking(), "{said:?}");
        }
    }
}
