//! `kubectl at` and `kubectl mydaemonset`, as plugins of a real kubectl. One control plane, one operator; `terminal` has
//! a control plane without an operator, too.

mod at;
mod mydaemonset;
mod terminal;
mod why;

use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

use crate::harness;
use crate::harness::{Ended, Kubectl, Operator};

struct Environment {
    cluster: &'static Cluster,
    _operator: Operator,
}

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

/// kubectl in a fresh namespace of that name.
async fn kubectl(name: &str) -> Kubectl {
    let environment = ENVIRONMENT.get_or_init(|| async {
        let nodes = Options::with_nodes(&["node-1", "node-2", "node-3"]);
        let cluster = harness::shared_plane("kubectl", nodes).await;
        harness::install(cluster).await;
        Environment {
            cluster,
            _operator: Operator::start(cluster, "operator-kubectl", &[]).await,
        }
    });
    let cluster = environment.await.cluster;
    Kubectl::fresh(cluster, name).await
}

/// What was printed, with the names of the kinds made equal.
pub(super) fn plain(ended: &Ended) -> (Option<i32>, String, String) {
    let plain = |text: &str| {
        let words = [
            ("at.cnat.programming-kubernetes.info", "kind"),
            ("ats.cnat.programming-kubernetes.info", "kinds"),
            ("job.batch", "kind"),
            ("jobs.batch", "kinds"),
            ("mydaemonset.apps.zhongmingmao.io/", "kind/"),
            ("daemonset.apps/", "kind/"),
            ("deployment.apps/", "kind/"),
            ("mydaemonsets.apps.zhongmingmao.io", "kinds"),
            ("daemonsets.apps", "kinds"),
            ("deployments.apps", "kinds"),
            ("paused mydaemonset", "paused kind"),
            ("paused deployment", "paused kind"),
        ];
        words
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    (ended.code, plain(&ended.out), plain(&ended.err))
}
