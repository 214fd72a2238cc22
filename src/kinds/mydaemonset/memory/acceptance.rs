//! What the API server made of the pods of the newest revision so far.

/// Whether the API server accepts the pods of a revision, as far as a dry run or a created pod
/// showed. No pod is deleted for a revision before that is known.
///
/// A restart of the operator forgets it: the next roll-out begins with another dry run.
#[derive(Debug, Default)]
pub(crate) struct Acceptance {
    /// The revision whose pods the API server is known to accept.
    validated: Option<String>,
    /// Where no dry run is possible, one node is the trial.
    trial: Option<Trial>,
    /// A created pod came back with other labels than ours.
    relabelled: bool,
    /// Whether the last pass created the maximum number of pods without a failure.
    flowing: bool,
}

/// On which nodes outdated pods may be deleted for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayReplace<'a> {
    /// On all of them, within the limits of the roll-out.
    AnyNode,
    /// Only on the node of the trial; on none if there is no such node now.
    Trial(Option<&'a str>),
}

/// One node that tries a revision. See [`Acceptance::may_replace`].
#[derive(Debug)]
struct Trial {
    revision: String,
    /// Chosen when the first outdated pod is to be deleted.
    node: Option<String>,
}

impl Acceptance {
    /// Whether outdated pods may be deleted for that revision: the API server accepts its pods, or
    /// cannot be asked.
    pub(crate) fn allows_deletions(&self, revision: &str) -> bool {
        let trial = self.trial.as_ref();
        self.is_validated(revision) || trial.is_some_and(|trial| trial.revision == revision)
    }

    fn is_validated(&self, revision: &str) -> bool {
        self.validated.as_deref() == Some(revision)
    }

    /// The API server accepts a pod of that revision.
    pub(crate) fn accepted(&mut self, revision: &str) {
        self.validated = Some(revision.to_owned());
    }

    /// An admission webhook does not support dry runs. One node tries the revision.
    pub(crate) fn no_dry_run(&mut self, revision: &str) {
        if self.trial.as_ref().is_none_or(|t| t.revision != revision) {
            self.trial = Some(Trial {
                revision: revision.to_owned(),
                node: None,
            });
        }
    }

    /// On which nodes pods may be deleted for that revision. The trial, if there is one, stays on
    /// its node as long as a pod may run there (`runs`); otherwise it moves to `candidate`.
    pub(crate) fn may_replace(
        &mut self,
        revision: &str,
        runs: impl FnOnce(&str) -> bool,
        candidate: Option<&str>,
    ) -> MayReplace<'_> {
        if self.is_validated(revision) {
            return MayReplace::AnyNode;
        }
        let Some(trial) = self.trial.as_mut().filter(|t| t.revision == revision) else {
            return MayReplace::AnyNode;
        };
        if !trial.node.as_deref().is_some_and(runs) {
            trial.node = candidate.map(str::to_owned);
        }
        MayReplace::Trial(trial.node.as_deref())
    }

    /// A created pod has our labels.
    pub(crate) fn labels_kept(&mut self) {
        self.relabelled = false;
    }

    /// A created pod came back with other labels than ours.
    pub(crate) fn labels_changed(&mut self) {
        self.relabelled = true;
    }

    /// Whether a dry run must show first that pods keep our labels: otherwise each pod would be
    /// created only to be deleted again.
    pub(crate) fn must_check_labels(&self) -> bool {
        self.relabelled
    }

    /// Whether the last pass created as many pods as it may without a failure: the next one may go
    /// on at full speed. Ends with the call, so that only a pass directly after counts.
    pub(crate) fn take_flow(&mut self) -> bool {
        std::mem::take(&mut self.flowing)
    }

    /// Sets what [`Self::take_flow`] returns.
    pub(crate) fn set_flow(&mut self, flows: bool) {
        self.flowing = flows;
    }
}

#[cfg(test)]
mod tests {
    use super::MayReplace::{AnyNode, Trial};
    use super::*;

    #[test]
    fn without_a_dry_run_one_node_tries_the_revision_until_a_pod_is_accepted() {
        let mut acceptance = Acceptance::default();
        assert!(!acceptance.allows_deletions("r"));
        assert_eq!(acceptance.may_replace("r", |_| true, Some("a")), AnyNode);
        acceptance.no_dry_run("r");
        assert!(acceptance.allows_deletions("r") && !acceptance.allows_deletions("s"));
        assert_eq!(
            acceptance.may_replace("r", |_| true, Some("a")),
            Trial(Some("a"))
        );
        // The same node is the trial while a pod may run there.
        acceptance.no_dry_run("r");
        assert_eq!(
            acceptance.may_replace("r", |_| true, Some("b")),
            Trial(Some("a"))
        );
        assert_eq!(
            acceptance.may_replace("r", |_| false, Some("b")),
            Trial(Some("b"))
        );
        assert_eq!(acceptance.may_replace("r", |_| false, None), Trial(None));
        assert_eq!(acceptance.may_replace("s", |_| true, Some("a")), AnyNode);
        acceptance.accepted("r");
        assert_eq!(acceptance.may_replace("r", |_| true, Some("a")), AnyNode);
    }
}
