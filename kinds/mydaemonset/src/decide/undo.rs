//! Where the pods go when the revision of the spec fails: `onFailure: Undo`.

use super::strategy::Strategy;

/// Whether the pods go back from the revision of the spec by themselves, and to which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo<'a> {
    /// They do not.
    No,
    /// They will, should it fail.
    IfItFails(&'a str),
    /// It has failed, and they do.
    To(&'a str),
}

impl<'a> Undo<'a> {
    /// The revision that they go back to, if they do.
    pub(crate) fn back(self) -> Option<&'a str> {
        match self {
            Self::To(target) => Some(target),
            Self::No | Self::IfItFails(_) => None,
        }
    }
}

/// The revision that the pods go back to should `update` fail, as long as it is kept: that of the last roll-out that was
/// completed. None has to be tried a second time, so there is no other choice if that one fails as well.
pub(crate) fn target<'a>(complete: &'a [String], update: &str) -> Option<&'a str> {
    let mut complete = complete.iter().map(String::as_str);
    complete.find(|hash| *hash != update)
}

impl Strategy {
    /// The same for the way back. A partition holds nodes back from a revision that fails; on the way back it would
    /// hold them on it.
    pub(crate) fn for_the_way_back(self) -> Self {
        Self {
            partition: 0,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn no_partition_holds_nodes_on_the_revision_that_failed() {
        let spec =
            json!({"updateStrategy": {"rollingUpdate": {"partition": 3, "maxUnavailable": 2}}});
        let strategy = Strategy::from_spec(&serde_json::from_value(spec).unwrap());
        let back = strategy.for_the_way_back();
        assert_eq!((strategy.partition, back.partition), (3, 0));
        assert_eq!(back.max_unavailable, strategy.max_unavailable);
    }
}
