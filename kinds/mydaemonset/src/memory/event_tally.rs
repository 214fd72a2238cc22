//! Created and deleted pods, counted for Events.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::decide::decision::DeleteReason;

/// Created and deleted pods are reported at most once in this time.
const EVENT_INTERVAL: TimeDelta = TimeDelta::seconds(60);

/// What was done and is not published yet.
#[derive(Debug, Default)]
pub(crate) struct EventTally {
    created: usize,
    deleted: BTreeMap<DeleteReason, usize>,
    published: Option<DateTime<Utc>>,
}

/// The notes of the Events that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub(crate) created: Option<String>,
    pub(crate) deleted: Option<String>,
    /// When more of them are due.
    pub(crate) next: Option<DateTime<Utc>>,
}

impl EventTally {
    /// Counts created and deleted pods.
    pub(crate) fn count(&mut self, created: usize, deleted: &BTreeMap<DeleteReason, usize>) {
        self.created += created;
        for (reason, number) in deleted {
            *self.deleted.entry(*reason).or_default() += number;
        }
    }

    /// Takes the notes to publish now.
    pub(crate) fn take_due(&mut self, now: DateTime<Utc>) -> Notes {
        if self.created == 0 && self.deleted.is_empty() {
            return Notes::default();
        }
        let due = self.published.map(|published| published + EVENT_INTERVAL);
        // A pause that has become longer, because the clock was set back, has ended.
        let is_pause = |due: &DateTime<Utc>| *due > now && *due - now <= EVENT_INTERVAL;
        if let Some(due) = due.filter(is_pause) {
            return Notes {
                next: Some(due),
                ..Notes::default()
            };
        }
        self.published = Some(now);
        Notes {
            created: created_text(std::mem::take(&mut self.created)),
            deleted: deleted_text(&std::mem::take(&mut self.deleted)),
            next: None,
        }
    }
}

/// `created 3 pods`, or nothing.
pub(crate) fn created_text(number: usize) -> Option<String> {
    (number > 0).then(|| format!("created {}", pods(number)))
}

/// `deleted 3 pods (2 outdated, 1 failed)`, or nothing.
pub(crate) fn deleted_text(deleted: &BTreeMap<DeleteReason, usize>) -> Option<String> {
    let number: usize = deleted.values().sum();
    let reasons: Vec<String> = deleted
        .iter()
        .map(|(reason, number)| format!("{number} {}", reason.text()))
        .collect();
    (number > 0).then(|| format!("deleted {} ({})", pods(number), reasons.join(", ")))
}

pub(crate) fn pods(number: usize) -> String {
    match number {
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn due(
        tally: &mut EventTally,
        now: DateTime<Utc>,
    ) -> (Option<String>, Option<String>, Option<DateTime<Utc>>) {
        let notes = tally.take_due(now);
        (notes.created, notes.deleted, notes.next)
    }

    #[test]
    fn created_and_deleted_pods_are_published_together() {
        let mut tally = EventTally::default();
        assert_eq!(due(&mut tally, at(0)), (None, None, None));
        tally.count(3, &BTreeMap::new());
        assert_eq!(
            due(&mut tally, at(0)),
            (Some("created 3 pods".into()), None, None)
        );
        let deleted = [(DeleteReason::Failed, 1), (DeleteReason::Outdated, 2)];
        tally.count(1, &deleted.into());
        assert_eq!(due(&mut tally, at(10)), (None, None, Some(at(60))));
        tally.count(0, &[(DeleteReason::Failed, 1)].into());
        assert_eq!(
            due(&mut tally, at(60)),
            (
                Some("created 1 pod".into()),
                Some("deleted 4 pods (2 failed, 2 outdated)".into()),
                None
            )
        );
        assert_eq!(due(&mut tally, at(61)), (None, None, None));
        // The clock was set back.
        tally.count(1, &BTreeMap::new());
        let created = Some("created 1 pod".into());
        assert_eq!(due(&mut tally, at(-9)), (created, None, None));
    }
}
