//! The control planes of these tests.
//!
//! All tests whose operators have no webhooks share one. A test whose operator has webhooks borrows a plane on which no
//! other operator has any: the webhook configurations are cluster-wide and have fixed names, as does the Secret of the
//! CA. The shared plane is lent first, then a few others, which are stopped as soon as no test waits for one.

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use my_operator_cluster::{Cluster, Options};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::disruption::leader::audit::audited;
use crate::harness::{self, Kubectl, NAMESPACE, OwnPlane};

/// How many tests have webhooks at a time at most. One of them is on the shared plane.
const WEBHOOK_PLANES: usize = 4;

static SHARED: OnceCell<&'static Cluster> = OnceCell::const_new();
static PERMITS: Semaphore = Semaphore::const_new(WEBHOOK_PLANES);
/// Tests that wait for a permit.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Running planes that no test uses: those that are just being handed over. Never the shared one.
static IDLE: Mutex<Vec<&'static Cluster>> = Mutex::new(Vec::new());
/// Whether a test has webhooks on the shared plane, or has left some there.
static SHARED_IS_LENT: AtomicBool = AtomicBool::new(false);

/// A control plane with the CRDs of all kinds and the rights of the operator, but no operator. Not for webhooks.
pub(crate) async fn cluster() -> &'static Cluster {
    SHARED
        .get_or_init(|| async {
            let cluster = start(audited(Options::with_nodes(&["node-1"]))).await;
            harness::install(cluster).await;
            harness::install_sample_kinds(cluster).await;
            cluster
        })
        .await
}

async fn start(options: Options) -> &'static Cluster {
    OwnPlane::start(options).await.cluster
}

/// A control plane that is the caller's alone until it drops it. It has the CRDs of the kinds that are on by default, the
/// rights of the operator and one node.
pub(crate) async fn webhook_plane() -> WebhookPlane {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let permit = PERMITS.acquire().await.unwrap();
    WAITING.fetch_sub(1, Ordering::Relaxed);
    let idle = || IDLE.lock().unwrap().pop();
    let cluster = if !SHARED_IS_LENT.swap(true, Ordering::Relaxed) {
        cluster().await
    } else if let Some(cluster) = idle() {
        cluster
    } else {
        let cluster = start(Options::with_nodes(&["node-1"])).await;
        harness::install(cluster).await;
        cluster
    };
    WebhookPlane {
        cluster,
        _permit: permit,
    }
}

/// See [`webhook_plane`].
pub(crate) struct WebhookPlane {
    cluster: &'static Cluster,
    // Dropped after `drop` has run: the next test finds the plane.
    _permit: SemaphorePermit<'static>,
}

impl Deref for WebhookPlane {
    type Target = &'static Cluster;

    fn deref(&self) -> &Self::Target {
        &self.cluster
    }
}

impl Drop for WebhookPlane {
    fn drop(&mut self) {
        if SHARED
            .get()
            .is_some_and(|shared| std::ptr::eq(*shared, self.cluster))
        {
            SHARED_IS_LENT.store(!self.is_clean(), Ordering::Relaxed);
            return;
        }
        let is_wanted = || WAITING.load(Ordering::Relaxed) > 0 && !std::thread::panicking();
        if is_wanted() && self.is_clean() {
            let mut idle = IDLE.lock().unwrap();
            if WAITING.load(Ordering::Relaxed) > idle.len() {
                idle.push(self.cluster);
                return;
            }
        }
        // On a thread with a runtime of its own, since nothing can be awaited here.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.unwrap().block_on(self.cluster.stop_components());
            });
        });
        // Above all etcd's data. The rest of the directory goes with this process.
        let _ = std::fs::remove_dir_all(self.cluster.directory());
    }
}

impl WebhookPlane {
    /// Deletes what has a fixed name. Returns whether that succeeded.
    fn is_clean(&self) -> bool {
        let kubectl = Kubectl::new(self.cluster, NAMESPACE);
        [
            "delete mutatingwebhookconfigurations,validatingwebhookconfigurations --all",
            "delete secret my-operator-webhook-ca --ignore-not-found",
            "delete lease my-operator --ignore-not-found",
            // A test waits for Events of its own operator.
            "delete events --all",
        ]
        .iter()
        .all(|delete| kubectl.run_blocking(delete).ok)
    }
}
