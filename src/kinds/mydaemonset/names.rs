//! The names, labels and annotations of pods and revisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sha2::{Digest, Sha256};

use super::crd::MyDaemonSet;
use my_operator_runtime::reconcile::write;

/// The container that runs `spec.image`.
pub const APP: &str = "app";
/// Prefix of our labels and annotations.
pub(crate) const OUR_PREFIX: &str = "apps.zhongmingmao.io/";
/// The label with the name of the `MyDaemonSet`, on its pods and revisions.
pub const NAME_LABEL: &str = "apps.zhongmingmao.io/mydaemonset";
/// The label with the hash of the revision, on pods and revisions.
pub const REVISION_LABEL: &str = "apps.zhongmingmao.io/revision";
/// How many pods of the same revision failed before this one on this node, in a row.
pub(crate) const ATTEMPT_ANNOTATION: &str = "apps.zhongmingmao.io/attempt";
/// Since when a revision is (again) the newest one. A node that joined later never had another.
pub const SINCE_ANNOTATION: &str = "apps.zhongmingmao.io/since";
/// A user sets this annotation to the revision to resume its stopped roll-out.
pub const RESUME_ANNOTATION: &str = "apps.zhongmingmao.io/resume-revision";

/// The maximum length of a pod's name.
const MAX_NAME_LEN: usize = 253;
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
/// makes the pod unique. So a second create of the same pod fails, whatever client sends it.
pub(crate) fn pod_name(node: &str, node_uid: &str, owner_uid: &str, revision: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [owner_uid, node_uid, revision] {
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
            ("n", "nu", "o", "r"),
            ("n", "nu", "o", "r2"),
            ("n", "nu", "o2", "r"),
            ("n", "nu2", "o", "r"),
            ("n", "n", "uo", "r"),
        ]
        .map(|(node, node_uid, owner, revision)| pod_name(node, node_uid, owner, revision))
        .into();
        assert_eq!(names.len(), 5);
        assert_eq!(pod_name("n", "nu", "o", "r"), pod_name("n", "nu", "o", "r"));
    }

    #[test]
    fn long_names_are_cut_and_stay_valid() {
        let dots = format!("{}.{}", "a".repeat(241), "b".repeat(11));
        for node in ["a".repeat(253), dots, "x-".repeat(126), "a".to_owned()] {
            let name = pod_name(&node, "u", "o", "r");
            assert!(name.len() <= 253, "{name}");
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
