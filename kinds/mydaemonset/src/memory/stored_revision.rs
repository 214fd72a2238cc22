//! The revision of the current spec, from its write until the watch shows it.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::revision::RevisionView;

/// A revision that the watch has not shown within this time is read again.
const STORED_FOR: TimeDelta = TimeDelta::seconds(60);

/// The revision that was stored last.
#[derive(Debug, Default)]
pub(crate) struct StoredRevision(Option<(Arc<RevisionView>, DateTime<Utc>)>);

/// What the last stored revision means for a spec.
#[derive(Debug, PartialEq)]
pub(crate) enum Stored {
    /// It is of this spec, and counts as shown.
    Current(Arc<RevisionView>),
    /// It is of an earlier spec. The watch may not show it yet, however long ago it was stored: its
    /// number must not be given to another.
    Earlier(Arc<RevisionView>),
    /// There is none, or it should have been shown by now. A watch never shows one whose labels are
    /// removed again and again.
    Unknown,
}

impl StoredRevision {
    /// Records a revision that was stored at that time.
    pub(crate) fn record(&mut self, revision: Arc<RevisionView>, now: DateTime<Utc>) {
        self.0 = Some((revision, now + STORED_FOR));
    }

    /// A revision was deleted, or the clock was set back.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// What it means for the spec of that hash.
    pub(crate) fn read(&self, hash: &str, now: DateTime<Utc>) -> Stored {
        match &self.0 {
            Some((stored, _)) if stored.hash != hash => Stored::Earlier(stored.clone()),
            Some((stored, until)) if *until > now => Stored::Current(stored.clone()),
            _ => Stored::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stored_revision_counts_as_shown_for_a_minute_and_keeps_its_number() {
        let at = |second| DateTime::from_timestamp(second, 0).unwrap();
        let mut stored = StoredRevision::default();
        assert_eq!(stored.read("a", at(0)), Stored::Unknown);
        let view = Arc::new(RevisionView {
            hash: "a".into(),
            ..RevisionView::default()
        });
        stored.record(view.clone(), at(0));
        assert_eq!(stored.read("a", at(59)), Stored::Current(view.clone()));
        assert_eq!(stored.read("a", at(60)), Stored::Unknown);
        assert_eq!(stored.read("b", at(3_600)), Stored::Earlier(view));
        stored.forget();
        assert_eq!(stored.read("b", at(0)), Stored::Unknown);
    }
}
