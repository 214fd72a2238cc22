//! The steps of a replica in the election. Pure: [`Elector`](crate::Elector) makes the calls and pauses that a step asks
//! for, and the simulation of the tests makes its own. `now` is always by the replica's own clock.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::decision::{Decision, Election, Loss, Record};
use super::periods::Periods;
use super::rivals::Rivals;

/// The pause after another client wrote the Lease first: short, but never a busy loop.
const PAUSE_AFTER_RACE: Duration = Duration::from_millis(50);
/// Attempts to release the lease. One fails when another client edits the Lease.
const MAX_RELEASE_ATTEMPTS: usize = 3;

/// A Lease as it was read or written.
pub(super) trait Stored {
    fn record(&self) -> Record;
}

/// What is written into a Lease.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Empty to release the lease.
    pub(super) holder: String,
    pub(super) seconds: u64,
    pub(super) transitions: i64,
    /// The holder is a new one.
    pub(super) is_new: bool,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Error {
    /// Another client wrote the Lease first.
    LostRace,
    /// Any other error, as a message.
    Other(String),
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step<L> {
    /// Read the Lease; then [`Candidate::read`].
    Read,
    /// Pause for [`after_race`], then read the Lease.
    ReadAgain,
    /// Read the rivals' Leases; then [`Candidate::looked`].
    Look,
    /// Write the claim over what was read, or create the Lease: if [`Candidate::may_send`] right before, then
    /// [`Candidate::wrote`], else [`Candidate::too_late`].
    Write { over: Option<L>, claim: Claim },
    /// The attempt is over.
    End(Turn),
}

/// The result of an attempt to acquire, renew or release the lease.
#[derive(Debug)]
pub(super) enum Turn {
    Leads {
        until: Duration,
    },
    Wait {
        until: Duration,
    },
    /// The holder of another Lease may lead, or that is not known: a message.
    Excluded(String),
    Lost(Loss),
    Failed(Error),
    /// It has tried to release the lease.
    Ended,
}

/// What the answer to the last call is for.
#[derive(Debug)]
enum Stage<L> {
    /// To decide.
    Decides,
    /// To know how long the rivals' claims have been unchanged by the time at which this replica could lead.
    Waits { until: Duration },
    /// To claim the lease, unless a rival may lead.
    MayClaim { over: Option<L>, claim: Claim },
    /// To lead.
    Claims { is_new: bool },
    /// To lead, unless a rival may.
    MayLead { until: Duration, is_new: bool },
    /// To release the lease. `then` is what ends with that.
    Releases { attempts: usize, then: Turn },
}

/// What a replica knows, and where it is in an attempt.
#[derive(Debug)]
pub(super) struct Candidate<L> {
    me: String,
    /// The name of the Lease, for messages.
    lease: String,
    periods: Periods,
    election: Election,
    /// None: no other Lease excludes this one.
    rivals: Option<Rivals>,
    /// It has to read the rivals' Leases once its claim is accepted.
    must_look: bool,
    /// The Lease as this replica wrote it last, to be renewed without a read.
    written: Option<L>,
    stage: Stage<L>,
}

impl<L: Stored> Candidate<L> {
    pub(super) fn new(me: String, lease: String, periods: Periods, has_rivals: bool) -> Self {
        Self {
            election: Election::new(me.clone(), periods),
            rivals: has_rivals.then(|| Rivals::new(periods)),
            must_look: false,
            written: None,
            stage: Stage::Decides,
            me,
            lease,
            periods,
        }
    }

    /// Begins an attempt to acquire or renew the lease.
    pub(super) fn begin(&mut self, now: Duration) -> Step<L> {
        self.stage = Stage::Decides;
        if self.left(now).is_some_and(|left| left.is_zero()) {
            return Step::End(Turn::Lost(Loss::Late));
        }
        match self.written.take() {
            Some(written) => self.decide(Some(written), now),
            None => Step::Read,
        }
    }

    /// Begins to release the lease, so that another replica leads at once. If that fails, the others wait until the lease
    /// expires. A call that is in flight may still arrive.
    pub(super) fn release(&mut self) -> Step<L> {
        self.release_then(Turn::Ended)
    }

    /// Waits to lead again. It keeps what it knows of the Leases.
    pub(super) fn step_down(&mut self) {
        self.election.step_down();
        self.written = None;
    }

    /// The Lease was read, if there is one.
    pub(super) fn read(&mut self, found: Result<Option<L>, Error>, now: Duration) -> Step<L> {
        if self.is_releasing() {
            return match found {
                Ok(Some(lease)) => self.write_release(lease),
                Ok(None) | Err(_) => self.end_release(),
            };
        }
        match found {
            Ok(found) => {
                let record = found.as_ref().map(Stored::record);
                self.election.observe(record.as_ref(), now);
                self.decide(found, now)
            }
            Err(error) => Step::End(Turn::Failed(error)),
        }
    }

    fn decide(&mut self, found: Option<L>, now: Duration) -> Step<L> {
        let record = found.as_ref().map(Stored::record);
        let (transitions, is_new) = match self.election.decide(record.as_ref(), now) {
            Decision::Wait { until } => {
                let rivals = self.rivals.as_ref();
                if rivals.is_none_or(|rivals| rivals.are_over(now)) {
                    return Step::End(Turn::Wait { until });
                }
                // A claim that no process renews is over by the time at which this replica could lead.
                self.stage = Stage::Waits { until };
                return Step::Look;
            }
            Decision::Lost(loss) => return Step::End(Turn::Lost(loss)),
            Decision::Acquire { transitions } => (transitions, true),
            Decision::Renew { transitions } => (transitions, false),
        };
        // A leader that finds no claim of its own does not know who has read which. The answer to its next one may be lost.
        self.must_look |= is_new || record.is_none_or(|record| record.holder != self.me);
        let claim = Claim {
            holder: self.me.clone(),
            seconds: self.periods.lease_seconds(),
            transitions,
            is_new,
        };
        if is_new && self.rivals.is_some() {
            self.stage = Stage::MayClaim { over: found, claim };
            return Step::Look;
        }
        self.claim(found, claim)
    }

    fn claim(&mut self, over: Option<L>, claim: Claim) -> Step<L> {
        let is_new = claim.is_new;
        self.stage = Stage::Claims { is_new };
        Step::Write { over, claim }
    }

    /// The rivals' Leases were read, by name; else a message.
    pub(super) fn looked(
        &mut self,
        found: Result<BTreeMap<String, Record>, String>,
        now: Duration,
    ) -> Step<L> {
        let excluded = self.excluded(found, now);
        match (std::mem::replace(&mut self.stage, Stage::Decides), excluded) {
            (Stage::Waits { until }, _) => Step::End(Turn::Wait { until }),
            (Stage::MayClaim { over, claim }, None) => self.claim(over, claim),
            (Stage::MayLead { until, .. }, None) => self.lead(until),
            // Its claim would keep the rivals waiting.
            (Stage::MayLead { is_new: true, .. }, Some(by)) => {
                self.release_then(Turn::Excluded(by))
            }
            // A leader keeps its claim: calls of its work may be in flight until it is over.
            (Stage::MayLead { .. } | Stage::MayClaim { .. }, Some(by)) => {
                Step::End(Turn::Excluded(by))
            }
            // It did not ask.
            (Stage::Decides | Stage::Claims { .. } | Stage::Releases { .. }, _) => Step::Read,
        }
    }

    /// Why this replica may not lead, if so.
    fn excluded(
        &mut self,
        found: Result<BTreeMap<String, Record>, String>,
        now: Duration,
    ) -> Option<String> {
        let rivals = self.rivals.as_mut()?;
        match found {
            Ok(found) => rivals.observe(found, now),
            Err(problem) => return Some(problem),
        }
        let (lease, holder) = rivals.first(now)?;
        let ours = &self.lease;
        Some(format!(
            "{holder} may lead by the lease {lease}, which excludes {ours}"
        ))
    }

    /// Whether the write may be sent now: the decision may be outdated.
    pub(super) fn may_send(&mut self, now: Duration) -> bool {
        self.election.may_send(now)
    }

    /// The write was not sent.
    pub(super) fn too_late(&mut self) -> Step<L> {
        if self.is_releasing() {
            return self.end_release();
        }
        Step::End(Turn::Lost(Loss::Late))
    }

    /// The answer to the write that was sent at `sent`.
    pub(super) fn wrote(
        &mut self,
        written: Result<L, Error>,
        sent: Duration,
        now: Duration,
    ) -> Step<L> {
        let is_new = match &self.stage {
            Stage::Releases { attempts, .. } => {
                let lost_race = matches!(written, Err(Error::LostRace));
                return if lost_race && *attempts < MAX_RELEASE_ATTEMPTS {
                    Step::ReadAgain
                } else {
                    self.end_release()
                };
            }
            Stage::Claims { is_new } => *is_new,
            // It did not write.
            _ => return Step::Read,
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => return Step::End(Turn::Failed(error)),
        };
        let until = self.election.won(&written.record(), sent, now);
        self.written = Some(written);
        // A rival may have written its Lease at the same time. From here on, each rival reads this claim.
        if self.must_look && self.rivals.is_some() {
            self.stage = Stage::MayLead { until, is_new };
            return Step::Look;
        }
        self.lead(until)
    }

    fn lead(&mut self, until: Duration) -> Step<L> {
        self.must_look = false;
        Step::End(Turn::Leads { until })
    }

    fn release_then(&mut self, then: Turn) -> Step<L> {
        self.stage = Stage::Releases { attempts: 0, then };
        match self.written.take() {
            Some(written) => self.write_release(written),
            None => Step::Read,
        }
    }

    /// Writes that no replica holds the lease, if this one does.
    fn write_release(&mut self, lease: L) -> Step<L> {
        let record = lease.record();
        match &mut self.stage {
            Stage::Releases { attempts, .. } if record.holder == self.me => *attempts += 1,
            _ => return self.end_release(),
        }
        Step::Write {
            over: Some(lease),
            claim: Claim {
                holder: String::new(),
                seconds: 1,
                transitions: record.transitions,
                is_new: true,
            },
        }
    }

    /// The lease was released, or could not be.
    fn end_release(&mut self) -> Step<L> {
        self.step_down();
        match std::mem::replace(&mut self.stage, Stage::Decides) {
            Stage::Releases { then, .. } => Step::End(then),
            _ => Step::End(Turn::Ended),
        }
    }

    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.stage, Stage::Releases { .. })
    }

    /// The Lease as this replica wrote it last.
    pub(super) fn written(&self) -> Option<&L> {
        self.written.as_ref()
    }

    /// The time left to lead, or to be allowed to; None: it does not lead.
    fn left(&self, now: Duration) -> Option<Duration> {
        let until = self.election.leads_until()?;
        Some(until.saturating_sub(now))
    }

    /// The time limit of a call that starts now. A leader's call ends before its time to lead.
    pub(super) fn call_timeout(&self, now: Duration) -> Duration {
        let left = self.left(now).unwrap_or(Duration::MAX);
        self.periods.call().min(left)
    }

    /// The pause after an attempt, to be chosen at random.
    pub(super) fn pause(&self, turn: &Turn, now: Duration) -> RangeInclusive<Duration> {
        let retry = self.periods.retry_period;
        let pause = match turn {
            Turn::Leads { .. } => retry..=retry,
            Turn::Failed(Error::Other(_)) if self.left(now).is_some() => retry..=retry,
            // Rivals that claim their Leases at the same time all give up their claims: the next time, one of them has
            // to be well before the others.
            Turn::Excluded(_) => retry / 2..=retry * 3 / 2,
            Turn::Lost(_) | Turn::Failed(Error::LostRace) => after_race(),
            Turn::Wait { .. } | Turn::Failed(Error::Other(_)) | Turn::Ended => jittered(retry),
        };
        let most = match turn {
            Turn::Leads { until } | Turn::Wait { until } => until.saturating_sub(now),
            Turn::Failed(_) => self.left(now).unwrap_or(Duration::MAX),
            Turn::Excluded(_) | Turn::Lost(_) | Turn::Ended => Duration::MAX,
        };
        *pause.start().min(&most)..=*pause.end().min(&most)
    }

    /// What it knows of the Lease.
    #[cfg(test)]
    pub(super) fn election(&self) -> &Election {
        &self.election
    }

    /// What it knows of the others.
    #[cfg(test)]
    pub(super) fn rivals(&self) -> Option<&Rivals> {
        self.rivals.as_ref()
    }
}

/// The pause after another client wrote the Lease first.
pub(super) fn after_race() -> RangeInclusive<Duration> {
    jittered(PAUSE_AFTER_RACE)
}

/// The pause plus up to a fifth, so that replicas do not act in lockstep.
fn jittered(pause: Duration) -> RangeInclusive<Duration> {
    pause..=pause + pause / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Lease(&'static str);

    impl Stored for Lease {
        fn record(&self) -> Record {
            Record {
                holder: self.0.to_owned(),
                seconds: Some(if self.0.is_empty() { 1 } else { 15 }),
                transitions: 0,
                mark: self.0.to_owned(),
            }
        }
    }

    const NOW: Duration = Duration::from_secs(1_000);

    /// What it does next, in a word.
    fn name(step: &Step<Lease>) -> &'static str {
        match step {
            Step::Read => "read",
            Step::ReadAgain => "read again",
            Step::Look => "look",
            Step::Write { claim, .. } if claim.holder.is_empty() => "release",
            Step::Write { .. } => "claim",
            Step::End(Turn::Leads { .. }) => "lead",
            Step::End(_) => "end",
        }
    }

    /// Its claim was accepted, and it looks at the rivals' Leases again.
    fn claimed() -> Candidate<Lease> {
        let mut me = Candidate::new("me".to_owned(), "a".to_owned(), Periods::default(), true);
        assert_eq!(name(&me.begin(NOW)), "read");
        assert_eq!(name(&me.read(Ok(None), NOW)), "look");
        assert_eq!(name(&me.looked(Ok(BTreeMap::new()), NOW)), "claim");
        assert!(me.may_send(NOW));
        assert_eq!(name(&me.wrote(Ok(Lease("me")), NOW, NOW)), "look");
        me
    }

    #[test]
    fn a_leader_reads_the_rivals_leases_after_its_claim_was_gone_whichever_answer_is_lost() {
        let mut me = claimed();
        assert_eq!(name(&me.looked(Ok(BTreeMap::new()), NOW)), "lead");
        assert_eq!(name(&me.begin(NOW)), "claim");
        assert_eq!(name(&me.wrote(Ok(Lease("me")), NOW, NOW)), "lead");
        let lost = || Error::Other("no answer".to_owned());
        // Released by hand, and claimed again by a write whose answer is lost.
        assert_eq!(name(&me.begin(NOW)), "claim");
        assert_eq!(name(&me.wrote(Err(Error::LostRace), NOW, NOW)), "end");
        assert_eq!(name(&me.begin(NOW)), "read");
        assert_eq!(name(&me.read(Ok(Some(Lease(""))), NOW)), "claim");
        assert_eq!(name(&me.wrote(Err(lost()), NOW, NOW)), "end");
        assert_eq!(name(&me.begin(NOW)), "read");
        assert_eq!(name(&me.read(Ok(Some(Lease("me"))), NOW)), "claim");
        assert_eq!(name(&me.wrote(Ok(Lease("me")), NOW, NOW)), "look");
        // It stops, but keeps its claim.
        let unknown = me.looked(Err("no answer".to_owned()), NOW);
        assert_eq!(name(&unknown), "end");
        assert!(me.written().is_some());
    }

    #[test]
    fn a_claim_that_must_not_lead_is_released_in_a_few_attempts() {
        let mut me = claimed();
        let rival = BTreeMap::from([("b".to_owned(), Lease("other").record())]);
        let mut step = me.looked(Ok(rival), NOW);
        for _ in 1..MAX_RELEASE_ATTEMPTS {
            assert_eq!(name(&step), "release");
            assert_eq!(
                name(&me.wrote(Err(Error::LostRace), NOW, NOW)),
                "read again"
            );
            step = me.read(Ok(Some(Lease("me"))), NOW);
        }
        assert_eq!(name(&step), "release");
        let over = me.wrote(Err(Error::LostRace), NOW, NOW);
        assert!(matches!(over, Step::End(Turn::Excluded(by)) if by.starts_with("other may lead")));
        assert_eq!(me.election().leads_until(), None);
    }
}
