//! The belief that one call was carried out, from the call until the watch shows its effect.

use chrono::{DateTime, TimeDelta, Utc};

/// After this time the API server is asked about a change that it made and the watch has not shown.
pub(crate) const WATCH_TIMEOUT: TimeDelta = TimeDelta::seconds(30);
/// A call without a definite answer may still be carried out for this long after it ended. The API
/// server itself gives up a request after 60 s (`--request-timeout`), but etcd may commit what was
/// given up.
const MAY_LAND: TimeDelta = TimeDelta::seconds(65);
/// Upper bound on the duration of a call: the client gives up after 40 s.
const MAX_CALL: TimeDelta = TimeDelta::seconds(45);

/// What is known of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was carried out.
    Done,
    /// It was not carried out and will not be.
    Refused,
    /// It was not carried out: the object has another version than the one in the call's
    /// precondition. No attempt at the same call can be carried out any more, but an earlier one
    /// may have been.
    Overtaken,
    /// It may have been carried out, or may still be.
    Unknown,
}

/// The belief that a call was carried out. It ends when the watch shows the effect, or when a live
/// read at the right time says otherwise. It never ends by itself: a deletion that is carried out
/// after that would come on top of that of another node.
#[derive(Debug, PartialEq)]
pub(super) struct Belief {
    /// When to ask the API server.
    ask: DateTime<Utc>,
    /// If an attempt at the call had no definite answer.
    unanswered: Option<Unanswered>,
}

#[derive(Debug, PartialEq)]
struct Unanswered {
    /// The `metadata.generation` that the call was made for. Another one may not want it.
    generation: Option<i64>,
    /// Until when the call may still be carried out.
    until: DateTime<Utc>,
}

impl Belief {
    /// For a call that begins now.
    pub(super) fn new(now: DateTime<Utc>) -> Self {
        Self {
            ask: now + MAX_CALL + MAY_LAND,
            unanswered: None,
        }
    }

    /// Another attempt begins. While it is under way there is nothing to ask: a read could see the
    /// state before the call.
    pub(super) fn call_begins(&mut self, now: DateTime<Utc>) {
        self.ask = now + MAX_CALL + MAY_LAND;
    }

    /// When to ask the API server.
    pub(super) fn ask(&self) -> DateTime<Utc> {
        self.ask
    }

    /// Whether an attempt at the call had no definite answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Records an answer. Returns whether the belief stays.
    pub(super) fn answered(
        &mut self,
        answer: Answer,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> bool {
        match answer {
            Answer::Done => self.confirm(now),
            Answer::Unknown => {
                self.ask = now + MAY_LAND;
                let until = self.ask;
                self.unanswered = Some(Unanswered { generation, until });
            }
            // No attempt can be carried out any more, so a read now gives the final answer.
            Answer::Overtaken => {
                self.ask = now;
                return self.unanswered.take().is_some();
            }
            // This answer says nothing about an earlier attempt, which may still be carried out.
            Answer::Refused => match &self.unanswered {
                Some(unanswered) => self.ask = unanswered.until,
                None => return false,
            },
        }
        true
    }

    /// The call was carried out: the watch will show it.
    pub(super) fn confirm(&mut self, now: DateTime<Utc>) {
        self.ask = now + WATCH_TIMEOUT;
        self.unanswered = None;
    }

    /// The clock was set, forward by that much or back. A call can be carried out for as long as before; but nothing waits
    /// for longer than if it began now.
    pub(super) fn rebase(&mut self, forward: TimeDelta, now: DateTime<Utc>) {
        self.ask = match &mut self.unanswered {
            Some(unanswered) => {
                let until = unanswered.until + forward.max(TimeDelta::zero());
                unanswered.until = until.min(now + MAY_LAND);
                unanswered.until
            }
            None => self.ask.min(now + WATCH_TIMEOUT),
        };
    }

    /// Whether the call is to be repeated for that generation.
    pub(super) fn is_repeated_for(&self, generation: Option<i64>) -> bool {
        let unanswered = self.unanswered.as_ref();
        unanswered.is_some_and(|unanswered| unanswered.generation == generation)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    #[test]
    fn a_belief_stays_while_an_attempt_may_have_been_carried_out() {
        let mut belief = Belief::new(at(0));
        assert!(belief.answered(Answer::Unknown, Some(1), at(10)));
        assert_eq!(belief.ask(), at(75));
        assert!(belief.is_repeated_for(Some(1)));
        assert!(!belief.is_repeated_for(Some(2)));
        belief.call_begins(at(20));
        // The second attempt is rejected: the first may still be carried out.
        assert!(belief.answered(Answer::Refused, Some(1), at(21)));
        assert_eq!(belief.ask(), at(75));
        assert!(belief.answered(Answer::Overtaken, Some(1), at(22)));
        assert_eq!((belief.ask(), belief.is_unanswered()), (at(22), false));
        assert!(!belief.answered(Answer::Refused, Some(1), at(23)));
    }

    #[test]
    fn a_confirmed_belief_waits_for_the_watch() {
        let mut belief = Belief::new(at(0));
        belief.confirm(at(1));
        assert_eq!(belief.ask(), at(31));
    }
}
