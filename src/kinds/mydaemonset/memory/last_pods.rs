//! The last pod of each node that has none now.

use std::collections::HashMap;

use crate::kinds::mydaemonset::decide::input::Last;

/// By node. A record ends when its successor was created, when a pod runs on the node, or when no
/// pod may be there. A restart of the operator loses it: then a held node gets the revision of the
/// last finished roll-out, and the count of failures starts again.
#[derive(Debug, Default)]
pub(super) struct LastPods {
    nodes: HashMap<Box<str>, Last>,
}

impl LastPods {
    pub(super) fn get(&self, node: &str) -> Option<&Last> {
        self.nodes.get(node)
    }

    /// Records a pod that the operator deletes.
    pub(super) fn deleted(&mut self, node: &str, last: &Last) {
        self.nodes.insert(node.into(), last.clone());
    }

    /// Records a pod that is gone. The operator's own record of a deletion of the same revision
    /// says more, such as the count of failures, and stays.
    pub(super) fn gone(&mut self, node: &str, revision: &str) {
        if self.get(node).is_some_and(|last| last.revision == revision) {
            return;
        }
        let last = Last {
            revision: revision.to_owned(),
            ..Last::default()
        };
        self.nodes.insert(node.into(), last);
    }

    /// Forgets the last pod of a node. Returns whether there was one.
    pub(super) fn forget(&mut self, node: &str) -> bool {
        self.nodes.remove(node).is_some()
    }

    pub(super) fn revisions(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().map(|last| last.revision.as_str())
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_own_record_of_a_deletion_outlives_the_delete_event() {
        let mut last = LastPods::default();
        let failed = Last {
            revision: "r".into(),
            attempt: 3,
            ..Last::default()
        };
        last.deleted("n", &failed);
        last.gone("n", "r");
        assert_eq!(last.get("n"), Some(&failed));
        last.gone("n", "s");
        assert_eq!(last.get("n").map(|last| last.attempt), Some(0));
        assert!(last.forget("n"));
        assert!(!last.forget("n"));
    }
}
