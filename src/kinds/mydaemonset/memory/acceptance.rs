//! What the API server made of the pods of the newest revision so far.

/// Whether the API server accepts the pods of a revision, as far as a dry run or a created pod
/// showed. No pod is deleted for a revision before that is known.
///
/// A restart of the operator forgets it: the next roll-out begins with another dry run.
#[derive(Debug, Default)]
pub(crate) struct Acceptance {
    /// The revision whose pods the API server is known to accept.
    validated: Option<String>,
    /// A created pod came back with other labels than ours.
    relabelled: bool,
}

impl Acceptance {
    /// Whether the API server is known to accept pods of that revision.
    pub(crate) fn is_validated(&self, revision: &str) -> bool {
        self.validated.as_deref() == Some(revision)
    }

    /// The API server accepts a pod of that revision.
    pub(crate) fn accepted(&mut self, revision: &str) {
        self.validated = Some(revision.to_owned());
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
}
