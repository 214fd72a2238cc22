//! What is watched and cached: the objects, their children, and the pods of kinds that report them.

use std::sync::Arc;

use kube::Api;

use super::memory::Memories;
use super::parent::{ObjectOf, Owner, Parent};
use super::view::{COMPONENT, ChildView, ParentView};
use my_operator_kind::manager::MANAGER;
use my_operator_kind::pods::{self, Pod, PodView};
use wall_clock_controller::reconcile::cache::{Cache, CacheEvent};
use wall_clock_controller::reconcile::queue::Queue;
use wall_clock_controller::reconcile::raw::Object;
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::write::MANAGED_BY;
use wall_clock_controller::reconcile::{Context, Key};

/// Page size of a list.
pub(crate) const PAGE: u32 = 100;

/// An object as it is stored.
pub(crate) type StoredObject<P> = Object<ObjectOf<P>>;
/// A child as it is stored.
pub(crate) type StoredChild<P> = Object<<P as Parent>::Child>;

/// What is watched: one API per namespace.
pub(crate) struct Apis<P: Parent> {
    pub(crate) parents: Vec<Api<StoredObject<P>>>,
    pub(crate) children: Vec<Api<StoredChild<P>>>,
    pub(crate) pods: Vec<Api<Pod>>,
}

impl<P: Parent> Apis<P> {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            parents: context.apis(),
            children: context.apis(),
            pods: match P::POD_LABELS {
                [] => Vec::new(),
                _ => context.apis(),
            },
        }
    }
}

/// What the watches deliver.
pub(crate) struct Caches {
    pub(crate) parents: Arc<Cache<ParentView>>,
    /// Indexed by the UID of the controlling object.
    pub(crate) children: Arc<Cache<ChildView>>,
    /// Indexed by the name of the object.
    pub(crate) pods: Arc<Cache<PodView>>,
}

impl Caches {
    pub(crate) fn new<P: Parent>(apis: &Apis<P>) -> Self {
        Self {
            parents: Arc::new(Cache::new(apis.parents.len(), |_| Vec::new())),
            children: Arc::new(Cache::new(apis.children.len(), |child: &ChildView| {
                child.owner_uid().map(str::to_owned).into_iter().collect()
            })),
            pods: Arc::new(Cache::new(apis.pods.len(), |pod: &PodView| {
                let name = pod.label(0).into_iter();
                name.map(|name| PodView::index(&pod.namespace, name))
                    .collect()
            })),
        }
    }

    /// The object's children that its spec no longer asks for and that may go: `present` has the
    /// name in the spec.
    pub(crate) fn earlier_children<P: Parent>(
        &self,
        owner: &Owner<'_, P>,
        present: &ChildView,
    ) -> Vec<Arc<ChildView>> {
        let mut others = self.children.find(owner.uid);
        others.retain(|child| {
            child.name != present.name && !child.deleting && P::deletes_other(present, child)
        });
        others
    }

    /// The object's pods. Empty if the kind watches none.
    pub(crate) fn pods_of(&self, object: &Key) -> Vec<(Key, Arc<PodView>)> {
        self.pods
            .find_with_keys(&PodView::index(&object.namespace, &object.name))
    }
}

/// The watches, and where they put what they deliver.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) caches: Arc<Caches>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) queue: Arc<Queue>,
}

impl Watches {
    pub(crate) fn on_parent_event(&self, event: &CacheEvent<'_, ParentView>) {
        event.enqueue(&self.queue);
    }

    /// Requeues the object that the child belongs to, or did, and those that wait for its name.
    pub(crate) fn on_child_event(&self, event: &CacheEvent<'_, ChildView>) {
        let namespace = &event.key.namespace;
        for child in [event.old, event.new].into_iter().flatten() {
            if let Some(owner) = child.owner() {
                self.queue.add(Key::new(namespace, owner));
            }
        }
        // The name may be free now: objects that wait for it may create their child.
        for object in self.memories.released_by(event.key) {
            self.queue.add(object);
        }
    }

    /// Requeues the object of the pod, unless nothing changed that is kept of it.
    pub(crate) fn on_pod_event(&self, event: &CacheEvent<'_, PodView>) {
        if event.old == event.new {
            return;
        }
        let pods = [event.old, event.new].into_iter().flatten();
        for name in pods.filter_map(|pod| pod.label(0)) {
            self.queue.add(Key::new(&event.key.namespace, name));
        }
    }
}

/// The children that this operator made for objects of the kind.
pub(crate) fn children<P: Parent>() -> Selection {
    let labels = format!("{MANAGED_BY}={MANAGER},{COMPONENT}={}", P::NAME);
    Selection::default().page(PAGE).labels(&labels)
}

/// The pods of objects of the kind, if it watches pods.
pub(crate) fn pods<P: Parent>() -> Selection {
    let selection = pods::selection();
    match P::POD_LABELS.first() {
        Some(label) => selection.labels(label),
        None => selection,
    }
}

/// The view of a child of this kind.
pub(crate) fn child_view<P: Parent>(child: StoredChild<P>) -> ChildView {
    ChildView::new::<ObjectOf<P>, _>(child)
}
