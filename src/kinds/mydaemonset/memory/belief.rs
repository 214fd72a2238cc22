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
#[derive(Debug)]
pub(super) struct Belief<C> {
    /// When to ask the API server.
    ask: DateTime<Utc>,
    /// The call, if an attempt at it had no definite answer.
    unanswered: Option<Unanswered<C>>,
}

#[derive(Debug)]
struct Unanswered<C> {
    call: C,
    /// The `metadata.generation` that the call was made for. Another one may not want it.
    generation: Option<i64>,
    /// Until when the call may still be carried out.
    until: DateTime<Utc>,
}

impl<C> Belief<C> {
    /// For a call that begins now.
    pub(super) fn new(now: DateTime<Utc>) -> Self {
        let mut belief = Self {
            ask: now,
            unanswered: None,
        };
        belief.call_begins(now);
        belief
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
        call: impl FnOnce() -> C,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) -> bool {
        match answer {
            Answer::Done => {
                self.unanswered = None;
                self.ask = now + WATCH_TIMEOUT;
            }
            Answer::Unknown => {
                self.ask = now + MAY_LAND;
                self.unanswered = Some(Unanswered {
                    call: call(),
                    generation,
                    until: self.ask,
                });
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

    /// Extends the belief until `ask` if it was confirmed. Returns whether it stays.
    pub(super) fn confirm(&mut self, ask: Option<DateTime<Utc>>) -> bool {
        let Some(ask) = ask else {
            return false;
        };
        self.ask = ask;
        self.unanswered = None;
        true
    }

    /// Limits the waiting time as if it began now: the clock was set back.
    pub(super) fn rebase(&mut self, now: DateTime<Utc>) {
        self.ask = match &mut self.unanswered {
            Some(unanswered) => {
                unanswered.until = unanswered.until.min(now + MAY_LAND);
                unanswered.until
            }
            None => self.ask.min(now + WATCH_TIMEOUT),
        };
    }

    /// The call, if it is to be repeated for that generation.
    pub(super) fn repeat(&self, generation: Option<i64>) -> Option<&C> {
        let unanswered = self.unanswered.as_ref();
        unanswered
            .filter(|unanswered| unanswered.generation == generation)
            .map(|unanswered| &unanswered.call)
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
        assert!(belief.answered(Answer::Unknown, || "call", Some(1), at(10)));
        assert_eq!(belief.ask(), at(75));
        assert_eq!(belief.repeat(Some(1)), Some(&"call"));
        assert_eq!(belief.repeat(Some(2)), None);
        belief.call_begins(at(20));
        // The second attempt is rejected: the first may still be carried out.
        assert!(belief.answered(Answer::Refused, || "call", Some(1), at(21)));
        assert_eq!(belief.ask(), at(75));
        assert!(belief.answered(Answer::Overtaken, || "call", Some(1), at(22)));
        assert_eq!((belief.ask(), belief.is_unanswered()), (at(22), false));
        assert!(!belief.answered(Answer::Refused, || "call", Some(1), at(23)));
    }

    #[test]
    fn only_a_confirmed_belief_is_extended() {
        let mut belief = Belief::<()>::new(at(0));
        assert!(belief.confirm(Some(at(30))));
        assert_eq!(belief.ask(), at(30));
        assert!(!belief.confirm(None));
    }
}
