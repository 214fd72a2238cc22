//! The names, labels and annotations of pods and revisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sha2::{Digest, Sha256};

use super::crd::MyDaemonSet;
use wall_clock_controller::reconcile::write;

/// The container that runs `spec.image`.
pub const APP: &str = "app";
/// Prefix of our labels and annotations.
pub(crate) const OUR_PREFIX: &str = "apps.zhongmingmao.io/";
/// The label with the name of the `MyDaemonSet`, on its pods and revisions.
pub const NAME_LABEL: &str = "apps.zhongmingmao.io/mydaemonset";
/// The name of the controller in logs and metrics.
pub(crate) const CONTROLLER: &str = "mydaemonset";
/// The label with the hash of the revision, on pods and revisions.
pub const REVISION_LABEL: &str = "apps.zhongmingmao.io/revision";
/// How many pods of the same revision failed before this one on this node, in a row.
pub(crate) const ATTEMPT_ANNOTATION: &str = "apps.zhongmingmao.io/attempt";
/// What the node had before this pod of the newest revision replaced it ([`Predecessor`](super::observe::predecessor::Predecessor)).
pub(crate) const PREDECESSOR_ANNOTATION: &str = "apps.zhongmingmao.io/predecessor";
/// Since when a revision is the newest one again, by the operator's clock; without it, since its creation. A node that
/// joined later never had another.
pub(crate) const SINCE_ANNOTATION: &str = "apps.zhongmingmao.io/since";
/// The revision that was the newest when this one became it, by its hash: what changed since then is what this one changed.
/// A number does not name it for good: an undo gives it a new one.
pub const CHANGED_FROM_ANNOTATION: &str = "apps.zhongmingmao.io/changed-from";
/// kubectl's own: why the spec was changed. The revision that is created for the spec gets it too.
pub const CHANGE_CAUSE_ANNOTATION: &str = "kubernetes.io/change-cause";
/// A user sets this annotation to the revision to resume its stopped roll-out.
pub const RESUME_ANNOTATION: &str = "apps.zhongmingmao.io/resume-revision";
/// A user sets this annotation to the revision to end its canary.
pub const APPROVE_ANNOTATION: &str = "apps.zhongmingmao.io/approve-revision";
/// While an object has this annotation, its pods are changing hands: the operator creates, deletes and adopts none. The
/// value says who set it.
pub const MIGRATION_ANNOTATION: &str = "apps.zhongmingmao.io/migration";

/// While an object or its namespace has this annotation, and its value is neither empty nor `false`, no pod of it that runs
/// is deleted. If it begins with the word `all`, no pod is made either.
pub const FREEZE_ANNOTATION: &str = "apps.zhongmingmao.io/freeze";

/// The maximum length of a pod's name: that of a DNS label, as for the pods of a `DaemonSet`. The kubelet makes
/// `NAMESPACE_POD_UID` one component of a path, and log agents parse names of 255 bytes at most.
const MAX_NAME_LEN: usize = 63;
/// Length of the suffix, in base-32 digits.
const SUFFIX: usize = 10;

/// The `MyDaemonSet` that pods and revisions belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

impl Owner<'_> {
    /// The controller owner reference to it.
    pub(crate) fn reference(&self) -> OwnerReference {
        write::controller_reference::<MyDaemonSet>(self.name, self.uid)
    }
}

/// The name of the pod of a revision on a node: the node's name, and a hash of everything that
/// makes the pod unique. So a second create of the same pod fails, whatever client sends it. The
/// node counts by its name: one that registers again keeps its pods, as its kubelet does.
pub(crate) fn pod_name(node: &str, owner_uid: &str, revision: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [owner_uid, node, revision] {
        hasher.update(part.as_bytes());
        // No part can contain this byte, so no two triples have the same encoding.
        hasher.update([0]);
    }
    let suffix = base32(&hasher.finalize(), SUFFIX);
    // Node names are ASCII; anything else is cut at a character boundary.
    let max_len = MAX_NAME_LEN - SUFFIX - 1;
    let end = (0..=max_len.min(node.len()))
        .rev()
        .find(|end| node.is_char_boundary(*end))
        .unwrap_or_default();
    // A label of a DNS name must not end with a dot or a dash before ours.
    let node = node[..end].trim_end_matches(['.', '-']);
    format!("{node}-{suffix}")
}

/// The first `length` base-32 digits (RFC 4648, lower case) of the bytes.
pub(crate) fn base32(bytes: &[u8], length: usize) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or_default());
    (0..length)
        .map(|digit| {
            let (at, bit) = (digit * 5 / 8, digit * 5 % 8);
            // Five bits never reach beyond the byte after the one that they begin in.
            let window = (byte(at) << 8) | byte(at + 1);
            char::from(DIGITS[usize::from((window >> (11 - bit)) & 31)])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn base_32_is_that_of_the_rfc() {
        assert_eq!(base32(b"foobar", 10), "mzxw6ytboi");
        assert_eq!(base32(b"fo", 3), "mzx");
        assert_eq!(base32(&[0xff; 32], 10), "7777777777");
    }

    #[test]
    fn names_differ_by_owner_node_and_revision_and_by_nothing_else() {
        let names: HashSet<_> = [
            ("n", "o", "r"),
            ("n", "o", "r2"),
            ("n", "o2", "r"),
            ("n2", "o", "r"),
            ("no", "", "r"),
        ]
        .map(|(node, owner, revision)| pod_name(node, owner, revision))
        .into();
        assert_eq!(names.len(), 5);
        assert_eq!(pod_name("n", "o", "r"), pod_name("n", "o", "r"));
        // Nodes of long names, whose beginnings are equal.
        let long = "a".repeat(100);
        assert_ne!(
            pod_name(&format!("{long}1"), "o", "r"),
            pod_name(&format!("{long}2"), "o", "r")
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_valid() {
        let dots = format!("{}.{}", "a".repeat(241), "b".repeat(11));
        for node in ["a".repeat(253), dots, "x-".repeat(126), "a".to_owned()] {
            let name = pod_name(&node, "o", "r");
            assert!(name.len() <= 63, "{name}");
            let (front, suffix) = name.rsplit_once('-').unwrap();
            assert_eq!(suffix.len(), 10);
            assert!(
                front.ends_with(|c: char| c.is_ascii_alphanumeric()),
                "{name}"
            );
            assert!(name.split('.').all(|label| !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')));
        }
    }
}
