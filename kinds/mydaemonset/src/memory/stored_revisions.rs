//! The revisions that were stored, from their write until the watch shows them.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::revision::RevisionView;

/// A revision that the watch has not shown within this time is read again. A watch never shows one whose labels are
/// removed again and again.
const STORED_FOR: TimeDelta = TimeDelta::seconds(60);

/// The revisions that were stored in that time, and the last one however long ago that was.
#[derive(Debug, Default)]
pub(crate) struct StoredRevisions(Vec<(Arc<RevisionView>, DateTime<Utc>)>);

impl StoredRevisions {
    /// Records a revision that was stored at that time.
    pub(crate) fn record(&mut self, revision: Arc<RevisionView>, now: DateTime<Utc>) {
        let is_other = |old: &RevisionView| old.uid != revision.uid;
        self.0.retain(|(old, until)| *until > now && is_other(old));
        self.0.push((revision, now + STORED_FOR));
    }

    /// The revision of that UID was deleted.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.0.retain(|(stored, _)| stored.uid != uid);
    }

    /// The clock was set back.
    pub(crate) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Adds to the revisions that the watch shows those that it may not show yet, instead of older versions of them.
    pub(crate) fn overlay(&self, shown: &mut Vec<Arc<RevisionView>>, now: DateTime<Utc>) {
        for (stored, _) in self.0.iter().filter(|(_, until)| *until > now) {
            let is_older = |it: &RevisionView| it.uid == stored.uid && it.number < stored.number;
            shown.retain(|it| !is_older(it));
            if shown.iter().all(|it| it.name != stored.name) {
                shown.push(stored.clone());
            }
        }
    }

    /// The revision that was stored last, unless it is the one of that hash. However long ago that was, the watch may not
    /// show it yet: its number must not be given to another.
    pub(crate) fn last_other(&self, hash: &str) -> Option<Arc<RevisionView>> {
        let (last, _) = self.0.last()?;
        Some(last.clone()).filter(|last| last.hash != hash)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn view(hash: &str, number: i64) -> Arc<RevisionView> {
        Arc::new(RevisionView {
            hash: hash.into(),
            name: hash.into(),
            uid: hash.into(),
            number,
            ..RevisionView::default()
        })
    }

    #[test]
    fn revisions_count_as_shown_for_a_minute_and_the_last_keeps_its_number() {
        let mut stored = StoredRevisions::default();
        let overlaid = |stored: &StoredRevisions, now| {
            let mut shown = vec![view("a", 1), view("x", 9)];
            stored.overlay(&mut shown, at(now));
            let shown = shown.iter().map(|it| (it.hash.clone(), it.number));
            shown.collect::<Vec<_>>()
        };
        let pairs = |pairs: &[(&str, i64)]| {
            let pairs = pairs
                .iter()
                .map(|(hash, number)| (hash.to_string(), *number));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(overlaid(&stored, 0), pairs(&[("a", 1), ("x", 9)]));
        stored.record(view("a", 10), at(0));
        stored.record(view("b", 11), at(20));
        stored.record(view("x", 8), at(20));
        assert_eq!(
            overlaid(&stored, 59),
            pairs(&[("x", 9), ("a", 10), ("b", 11)])
        );
        assert_eq!(
            overlaid(&stored, 60),
            pairs(&[("a", 1), ("x", 9), ("b", 11)])
        );
        assert_eq!(overlaid(&stored, 80), pairs(&[("a", 1), ("x", 9)]));
        let last = |stored: &StoredRevisions, hash| stored.last_other(hash).map(|it| it.number);
        assert_eq!((last(&stored, "b"), last(&stored, "x")), (Some(8), None));
        // Those that the watch had its time to show go, so that no more are kept than were stored in a minute.
        stored.record(view("c", 12), at(100));
        assert_eq!(stored.0.len(), 1);
        stored.record(view("d", 13), at(101));
        stored.forget("d");
        assert_eq!(last(&stored, "d"), Some(12));
        stored.forget_all();
        assert_eq!(last(&stored, "d"), None);
    }
}
