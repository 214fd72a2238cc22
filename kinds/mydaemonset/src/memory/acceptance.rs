//! What the API server made of the pods of each revision so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::placement::Placement;

/// What dry runs showed of the pods of each revision: that the API server accepts them, and where they belong. No pod is
/// created, and none is deleted for a revision, before that is known.
///
/// A restart of the operator forgets it, and so asks again.
#[derive(Debug, Default)]
pub(crate) struct Acceptance {
    /// By the hash of the revision. `None`: the API server accepts its pods, but did not show one.
    answers: BTreeMap<String, Option<Arc<Placement>>>,
    /// The last created pod came back with other labels than ours.
    pub(crate) relabelled: bool,
}

impl Acceptance {
    /// Whether the API server is known to accept pods of that revision.
    pub(crate) fn is_validated(&self, revision: &str) -> bool {
        self.answers.contains_key(revision)
    }

    /// Which nodes pods of that revision belong on, as far as it is known: at least by its template.
    pub(crate) fn placement<'a>(
        &'a self,
        revision: &str,
        template: &'a Arc<Placement>,
    ) -> &'a Arc<Placement> {
        let answer = self.answers.get(revision).and_then(Option::as_ref);
        answer.unwrap_or(template)
    }

    /// Whether a dry run must show first what becomes of a pod of that revision: otherwise it might be created where
    /// admission does not let it run, or only to be deleted again.
    pub(crate) fn must_ask(&self, revision: &str) -> bool {
        self.relabelled || self.answers.get(revision).is_none_or(Option::is_none)
    }

    /// The API server accepts a pod of that revision, and may have shown it.
    pub(crate) fn accepted(&mut self, revision: &str, placement: Option<Arc<Placement>>) {
        let answer = self.answers.entry(revision.to_owned()).or_default();
        *answer = placement.or(answer.take());
    }

    /// A revision becomes the newest, maybe again: admission may be another by now.
    pub(crate) fn forget(&mut self, revision: &str) {
        self.answers.remove(revision);
    }

    /// Forgets all revisions but these.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.answers.retain(|revision, _| is_known(revision));
    }
}
