//! What the watches have shown: the caches, and the questions that a reconcile asks of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::object::ObjectView;
use super::observe::node::NodeView;
use super::observe::pod::PodView;
use super::revision::RevisionView;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::cache::Cache;

pub(crate) struct Caches {
    pub(crate) objects: Arc<Cache<ObjectView>>,
    pub(crate) nodes: Arc<Cache<NodeView>>,
    pub(crate) pods: Arc<Cache<PodView>>,
    pub(crate) revisions: Arc<Cache<RevisionView>>,
    /// The values of the annotation that freezes a namespace, of those that have it.
    pub(crate) namespaces: Arc<Cache<Box<str>>>,
}

/// Whether the namespace of an object is frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OfNamespace {
    /// Namespaces have not been listed yet.
    Unknown,
    /// The value of its annotation, if it freezes.
    Known(Option<Box<str>>),
}

/// Index key of pods and revisions by their owner: its UID, or an orphan's owner name.
fn of_owner(name: &str, uid: &str) -> String {
    if uid.is_empty() {
        format!("orphan/{name}")
    } else {
        uid.to_owned()
    }
}

/// Index key of the pods of a node.
fn on_node(node: &str) -> String {
    format!("node/{node}")
}

impl Caches {
    /// Empty caches for watches in that many namespaces, and for that many watches of the namespaces themselves.
    pub(crate) fn new(scopes: usize, of_namespaces: usize) -> Self {
        Self {
            objects: Arc::new(Cache::new(scopes, |_| Vec::new())),
            nodes: Arc::new(Cache::new(1, |_| Vec::new())),
            pods: Arc::new(Cache::new(scopes, |pod: &PodView| {
                vec![of_owner(&pod.owner, &pod.owner_uid), on_node(&pod.node)]
            })),
            revisions: Arc::new(Cache::new(scopes, |revision: &RevisionView| {
                vec![of_owner(&revision.owner, &revision.owner_uid)]
            })),
            namespaces: Arc::new(Cache::new(of_namespaces, |_| Vec::new())),
        }
    }

    /// Whether that namespace is frozen.
    pub(crate) fn of_namespace(&self, name: &str) -> OfNamespace {
        if !self.namespaces.is_listed() {
            return OfNamespace::Unknown;
        }
        let value = self.namespaces.get(&Key::new("", name));
        OfNamespace::Known(value.map(|value| (*value).clone()))
    }

    pub(crate) fn node(&self, name: &str) -> Option<Arc<NodeView>> {
        self.nodes.get(&Key::new("", name))
    }

    /// The names of all nodes, and of those with pods of an object.
    pub(crate) fn every_node(&self, key: &Key, uid: &str) -> BTreeSet<Box<str>> {
        let nodes = self.nodes.all();
        let mut names: BTreeSet<Box<str>> = nodes.iter().map(|n| n.name.as_str().into()).collect();
        for uid in [uid, ""] {
            let pods = self.pods.find(&of_owner(&key.name, uid));
            names.extend(pods.iter().map(|pod| Box::from(pod.node.as_str())));
        }
        names
    }

    /// An object's pods on a node, and those that it might adopt.
    pub(crate) fn pods_on(&self, node: &str, key: &Key, uid: &str) -> Vec<Arc<PodView>> {
        let is_ours = |pod_key: &Key, pod: &PodView| {
            pod.owner_uid == uid
                || (pod.is_orphan()
                    && *pod.owner == *key.name
                    && pod_key.namespace == key.namespace)
        };
        self.pods.find_where(&on_node(node), is_ours)
    }

    /// The pods of all objects on a node.
    pub(crate) fn every_pod_on(&self, node: &str) -> Vec<Arc<PodView>> {
        self.pods.find(&on_node(node))
    }

    /// The revisions that an object controls.
    pub(crate) fn revisions_of(&self, uid: &str) -> Vec<Arc<RevisionView>> {
        self.revisions.find(uid)
    }

    /// The revisions without a controller that name the object in our label.
    pub(crate) fn orphaned_revisions(&self, key: &Key) -> Vec<Arc<RevisionView>> {
        let orphans = of_owner(&key.name, "");
        let is_here = |orphan: &Key, _: &RevisionView| orphan.namespace == key.namespace;
        self.revisions.find_where(&orphans, is_here)
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::decide::node::OnNode;
    use crate::decide::rollout::RolloutState;

    /// The memory for what is known about the pod of one object on a node that has pods of so many objects.
    fn memory_beside(objects: usize) -> i64 {
        let caches = Caches::new(1, 0);
        for number in 0..objects {
            let pod = PodView {
                owner_uid: format!("{number:03}"),
                node: "n".into(),
                ..PodView::default()
            };
            let key = Key::new("ns", format!("{number:03}"));
            caches.pods.insert(&key, &Arc::new(pod));
        }
        let mut state = RolloutState::default();
        let cost = measure(|| {
            let pods = caches.pods_on("n", &Key::new("ns", "own"), "000");
            assert_eq!(pods.len(), 1);
            let on_node = OnNode {
                pods,
                ..OnNode::default()
            };
            state.put("n", on_node);
        });
        cost.bytes_current
    }

    #[test]
    fn the_memory_for_a_pod_does_not_depend_on_other_objects() {
        let alone = memory_beside(1);
        for objects in [2, 10, 100] {
            assert_eq!(memory_beside(objects), alone, "{objects} objects");
        }
    }
}
