//! The wiring: watches, queue and workers of a kind.

use std::sync::Arc;

use super::memory::Memories;
use super::observe::{Apis, Caches, PAGE, Watches, child_view, children, pods};
use super::parent::Parent;
use super::reconcile::ChildReconciler;
use super::view::ParentView;
use my_operator_kind::pods::PodView;
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::{Context, Controller};

/// Runs the reconciler of that kind until the context is cancelled.
///
/// # Errors
/// When a watch or a worker dies, which is a bug.
pub(crate) async fn run<P: Parent>(context: Context) -> anyhow::Result<()> {
    let apis = Apis::<P>::new(&context);
    let controller = Controller::new(P::NAME, &context);
    let watches = Watches {
        caches: Arc::new(Caches::new(&apis)),
        memories: Arc::new(Memories::default()),
        queue: controller.queue(),
    };
    let caches = watches.caches.clone();
    let (on_parent, on_child, on_pod) = (watches.clone(), watches.clone(), watches.clone());
    let all = Selection::default().page(PAGE);
    let pod_view = |pod| PodView::new(pod, P::POD_LABELS);
    controller
        .watch(
            apis.parents,
            &all,
            &caches.parents,
            ParentView::new,
            move |event| {
                on_parent.on_parent_event(event);
            },
        )
        .watch(
            apis.children,
            &children::<P>(),
            &caches.children,
            child_view::<P>,
            move |event| {
                on_child.on_child_event(event);
            },
        )
        .watch(
            apis.pods,
            &pods::<P>(),
            &caches.pods,
            pod_view,
            move |event| {
                on_pod.on_pod_event(event);
            },
        )
        .run(Arc::new(ChildReconciler::<P>::new(context, watches)))
        .await
}
