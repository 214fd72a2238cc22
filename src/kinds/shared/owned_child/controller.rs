//! The wiring: watches, queue and workers of a kind.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::memory::Memories;
use super::observe::{Apis, Caches, Watches};
use super::parent::Parent;
use super::reconcile::ChildReconciler;
use my_operator_runtime::reconcile::{Context, runner};

/// Runs the reconciler of that kind until the context is cancelled.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub(crate) async fn run<P: Parent>(context: Context) -> anyhow::Result<()> {
    let apis = Apis::<P>::new(&context);
    let watches = Watches {
        caches: Arc::new(Caches::new(&apis)),
        memories: Arc::new(Memories::default()),
        queue: context.queue(P::NAME),
    };
    let mut tasks = JoinSet::new();
    for api in apis.parents {
        tasks.spawn(
            watches
                .clone()
                .watch_parents::<P>(api, context.watch_health()),
        );
    }
    for api in apis.children {
        tasks.spawn(
            watches
                .clone()
                .watch_children::<P>(api, context.watch_health()),
        );
    }
    for api in apis.pods {
        tasks.spawn(watches.clone().watch_pods::<P>(api, context.watch_health()));
    }
    let (caches, queue) = (watches.caches.clone(), watches.queue.clone());
    let reconciler = Arc::new(ChildReconciler::<P>::new(context.clone(), watches));
    let sources = caches.sources();
    let workers = runner::run(P::NAME, reconciler, queue, &context, &sources);
    runner::join(tasks, workers).await
}
