//! Pods that the watch no longer shows although nothing deleted them.

use std::collections::BTreeMap;

use crate::kinds::mydaemonset::decide::decision::Claim;
use crate::kinds::mydaemonset::observe::pod::PodView;

/// By UID. The watch selects by our labels, so such a pod may still exist without them. It stays
/// here until a live read shows that it is gone, or it was released.
#[derive(Debug, Default)]
pub(crate) struct VanishedPods(BTreeMap<String, Claim>);

impl VanishedPods {
    pub(super) fn add(&mut self, pod: &PodView) {
        self.0.insert(pod.uid.clone(), Claim::release(pod));
    }

    /// The releases to make, in a stable order.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.0.values().cloned().collect()
    }

    /// That pod is gone, or was released.
    pub(crate) fn settled(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
