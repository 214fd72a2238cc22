//! When certificates change: pure decisions from the observed state and the time.
//!
//! A verifier must trust a CA before it is shown a leaf of it, and as long as it may be shown one. So the CA changes in
//! three steps. Each step is one write to the Secret that all replicas share, so after a crash the change resumes:
//!
//! 1. a *next* CA is added to the current one, and the bundle of both is published;
//! 2. once the bundle has been out for long enough that every API server has seen it, next becomes
//!    current, and the replicas sign new leaves with it;
//! 3. once the last leaf of the old CA must have expired, the old CA leaves Secret and bundle.
//!
//! The published bundle depends only on the Secret ([`Authorities::bundle`]), so every replica publishes the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::authority::{self, Anchor, Authority, BACKDATE, Fingerprint, LeafFacts};
use super::clocks::{Clocks, TOLERANCE};

/// The shortest time between two observations without a change.
const MIN_WAIT: TimeDelta = TimeDelta::seconds(1);

/// How many old CAs stay trusted when a new CA replaces the Secret. Usually there is one. The bundle must not grow
/// without bound if a client keeps breaking the Secret.
const KEPT_AT_MOST: usize = 8;

/// The longest of all periods: 100 years. X.509 knows no year beyond 9999, and nothing here may overflow.
const MAX_PERIOD: TimeDelta = TimeDelta::days(36_500);

/// How far in the future a CA may begin, or a leaf may be signed, before it is replaced. The clocks of well-kept
/// machines differ by less.
const EARLY_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

/// The lifetimes of the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// Lifetime of a leaf; it is renewed after half of it.
    pub leaf_validity: TimeDelta,
    /// Lifetime of a CA; its rotation begins after two thirds of it.
    pub ca_validity: TimeDelta,
    /// How long API servers may take to notice a changed bundle. Also how often the Secret is read for changes by other
    /// replicas.
    pub propagation: TimeDelta,
}

impl Default for Periods {
    /// 7 days, 365 days and 60 seconds.
    fn default() -> Self {
        Self {
            leaf_validity: TimeDelta::days(7),
            ca_validity: TimeDelta::days(365),
            propagation: TimeDelta::seconds(60),
        }
    }
}

/// Inconsistent periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodsError {
    /// Certificates have whole seconds, and half a leaf's lifetime must be one at least.
    #[error("a leaf must be valid for at least 2 s")]
    Leaf,
    /// A negative time to wait.
    #[error("the propagation time must not be negative")]
    Propagation,
    /// Longer than certificates and clocks can safely express.
    #[error("none of them may be longer than 36500 days (100 years)")]
    TooLong,
    /// A rotation must be over before the next one begins.
    #[error(
        "a CA must be valid for at least twice as long as a leaf and three times the propagation time together"
    )]
    Authority,
}

impl Periods {
    /// Checks that the periods are consistent.
    ///
    /// # Errors
    /// Names the inconsistent period.
    pub fn check(&self) -> Result<(), PeriodsError> {
        let all = [self.leaf_validity, self.ca_validity, self.propagation];
        if all.iter().any(|period| *period > MAX_PERIOD) {
            return Err(PeriodsError::TooLong);
        }
        if self.leaf_validity < TimeDelta::seconds(2) {
            return Err(PeriodsError::Leaf);
        }
        if self.propagation < TimeDelta::zero() {
            return Err(PeriodsError::Propagation);
        }
        // A CA is created and waits for the propagation time. Its predecessor is dropped after a leaf's lifetime and
        // another propagation time: before two thirds of the CA's own lifetime. Its successor then has the last third
        // for its own wait. Each of these leaves a third of a leaf's lifetime, or more, to act.
        if self.ca_validity < self.leaf_validity * 2 + self.propagation * 3 {
            return Err(PeriodsError::Authority);
        }
        Ok(())
    }
}

/// The content of a valid Secret.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    /// The CA that signs leaves.
    pub(crate) current: Arc<Authority>,
    /// The CA that will sign them, during a rotation.
    pub(crate) next: Option<Next>,
    /// CAs that no longer sign but whose leaves may still be in use.
    pub(crate) previous: Option<Previous>,
}

/// The CA that will sign leaves once it is known everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    pub(crate) authority: Arc<Authority>,
    /// Since when it has been in every bundle, if it is.
    pub(crate) published_at: Option<DateTime<Utc>>,
}

/// CAs that no longer sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    /// Their certificates; the keys are deleted.
    pub(crate) anchors: Vec<Anchor>,
    /// When no leaf of theirs can be valid any more.
    pub(crate) drop_at: DateTime<Utc>,
}

impl Authorities {
    /// Every CA that verifiers must trust while the Secret has this content.
    pub(crate) fn bundle(&self) -> Vec<Anchor> {
        let previous = self.previous.iter().flat_map(|previous| &previous.anchors);
        let next = self.next.iter().map(|next| next.authority.anchor());
        let all = previous.chain([self.current.anchor()]).chain(next);
        distinct(all.cloned())
    }
}

/// The Secret as it was read.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// There is no Secret.
    Missing,
    /// The Secret contains no usable CA.
    Garbage {
        /// What is wrong with it.
        fault: String,
        /// The CA certificates in it that can be read.
        readable: Vec<Anchor>,
    },
    /// A valid Secret.
    Authorities(Authorities),
}

/// The CAs that the webhook configurations trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// The CAs that every entry trusts.
    pub(crate) everywhere: BTreeSet<Fingerprint>,
    /// The CAs that at least one entry trusts.
    pub(crate) anywhere: Vec<Anchor>,
    /// Some entry's bundle contains text that is not a CA certificate.
    pub(crate) stray: bool,
}

impl Published {
    fn is_exactly(&self, bundle: &[Anchor]) -> bool {
        let wanted: BTreeSet<_> = bundle.iter().map(Anchor::fingerprint).collect();
        let anywhere: BTreeSet<_> = self.anywhere.iter().map(Anchor::fingerprint).collect();
        !self.stray && self.everywhere == wanted && anywhere == wanted
    }
}

/// The observed state on which a decision depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) held: &'a Held,
    /// The bundle in the webhook configurations; `None` if another program manages it.
    pub(crate) published: Option<&'a Published>,
    /// For how long this process has seen each CA in every bundle without a gap, by the monotonic clock.
    pub(crate) trusted: &'a BTreeMap<Fingerprint, TimeDelta>,
    /// The leaf that this process serves.
    pub(crate) leaf: Option<LeafFacts>,
    /// The clocks when all of this had been read. If the machine slept during the reads, a CA may have been created
    /// long after the first one: such a CA is not one of the future.
    pub(crate) read_at: Clocks,
}

impl Observed<'_> {
    /// For how long this process has seen this CA in every bundle.
    fn trusted_for(&self, authority: &Authority) -> Option<TimeDelta> {
        let fingerprint = authority.anchor().fingerprint();
        self.trusted.get(&fingerprint).copied()
    }

    /// Whether a CA begins so far in the future that it must be replaced.
    fn begins_too_late(&self, anchor: &Anchor) -> bool {
        anchor.not_before() > self.read_at.latest() + EARLY_TOLERANCE
    }
}

/// A change of the Secret. Its write fails if another client has changed the Secret meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new CA signs from now on. CAs that are trusted already stay so for a leaf's lifetime.
    Begin {
        /// The CAs that may have signed leaves in use.
        keep: Vec<Anchor>,
    },
    /// A user put another CA into the Secret (usually from a backup) while leaves of this CA are served: it stays
    /// trusted for the lifetime of a leaf.
    Keep(Anchor),
    /// Step 1: add a new CA to the current one.
    AddNext,
    /// The next CA is not valid (a wrong clock made it): replace it.
    ReplaceNext,
    /// The next CA is in every bundle now: the propagation time begins.
    MarkPublished,
    /// It no longer is (a client emptied a bundle): the propagation time will restart.
    MarkUnpublished,
    /// Step 2: sign with the next CA.
    Promote,
    /// Step 3: stop trusting the old one.
    DropPrevious,
    /// The time of step 3 is later than any leaf is valid: bring it forward.
    CapPrevious,
}

/// What to do now. The three parts are independent: if one fails, the others are still done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) change: Option<Change>,
    /// Sign a new leaf with the current CA.
    pub(crate) sign: bool,
    pub(crate) publish: Option<Vec<Anchor>>,
    /// When to decide again at the latest.
    pub(crate) next_decision: DateTime<Utc>,
}

/// Decides what to do.
pub(crate) fn decide(observed: Observed<'_>, clocks: Clocks, periods: &Periods) -> Step {
    let now = clocks.local();
    let Held::Authorities(authorities) = observed.held else {
        let change = begin(observed, clocks, periods);
        let next_decision = match change {
            Some(_) => now,
            None => now + longest_wait(periods),
        };
        return Step {
            change,
            sign: false,
            publish: None,
            next_decision,
        };
    };

    let bundle = authorities.bundle();
    let change = change(authorities, &observed, clocks, periods);
    let sign = must_sign(authorities, &observed, clocks, periods);
    let publish = observed
        .published
        // The new Secret will include the CAs that are trusted now.
        .filter(|_| !matches!(change, Some(Change::Keep(_) | Change::Begin { .. })))
        .filter(|published| !published.is_exactly(&bundle))
        .map(|_| bundle);
    let next_decision = if change.is_some() || publish.is_some() {
        now
    } else {
        next_look(authorities, &observed, now, periods)
    };
    Step {
        change,
        sign,
        publish,
        next_decision,
    }
}

/// A new CA if there is none that can be used: if the Secret is missing or invalid, or its CA has expired or is not
/// valid yet. A readable Secret is not replaced while the clocks differ: it may be valid by the other clock, and for
/// all other replicas.
fn begin(observed: Observed<'_>, clocks: Clocks, periods: &Periods) -> Option<Change> {
    let (allowed, readable) = match observed.held {
        // A new CA is valid by both clocks. That must not extend its lifetime without bound.
        Held::Missing => (can_make_authority(clocks, periods), Vec::new()),
        Held::Garbage { readable, .. } => (clocks.agree(), readable.clone()),
        Held::Authorities(authorities) => (clocks.agree(), authorities.bundle()),
    };
    allowed.then(|| Change::Begin {
        keep: still_trusted(&readable, &observed, clocks),
    })
}

/// Whether a CA that is created now has a sane lifetime by both clocks.
fn can_make_authority(clocks: Clocks, periods: &Periods) -> bool {
    clocks.latest() - clocks.earliest() <= periods.ca_validity
}

fn change(
    authorities: &Authorities,
    observed: &Observed<'_>,
    clocks: Clocks,
    periods: &Periods,
) -> Option<Change> {
    let earliest = clocks.earliest();
    if is_dead(&authorities.current, observed, clocks) {
        // All replicas were down for months, or a wrong clock made the CA. No leaf of it is valid, so there is nothing
        // to wait for.
        return match &authorities.next {
            Some(next) if is_alive(&next.authority, clocks) => Some(Change::Promote),
            _ => begin(*observed, clocks, periods),
        };
    }
    if let Some(anchor) = served_but_forgotten(authorities, observed, earliest) {
        return Some(Change::Keep(anchor));
    }
    if let Some(next) = &authorities.next {
        return advance(next, &authorities.current, observed, clocks, periods);
    }
    match &authorities.previous {
        Some(previous) if previous.drop_at <= earliest => Some(Change::DropPrevious),
        // A replica whose clock was ahead wrote it, or a user. Another replica's clock may be ahead by the tolerance.
        Some(previous) if previous.drop_at > drop_at(clocks, periods) + TOLERANCE => {
            Some(Change::CapPrevious)
        }
        Some(_) => None,
        None => {
            let due = change_due(&authorities.current, periods) <= earliest;
            (due && can_make_authority(clocks, periods)).then_some(Change::AddNext)
        }
    }
}

/// Whether a CA has expired by both clocks, or begins too late.
fn is_dead(authority: &Authority, observed: &Observed<'_>, clocks: Clocks) -> bool {
    let anchor = authority.anchor();
    anchor.not_after() <= clocks.earliest() || observed.begins_too_late(anchor)
}

/// Whether a CA is valid by both clocks.
fn is_alive(authority: &Authority, clocks: Clocks) -> bool {
    let anchor = authority.anchor();
    anchor.not_before() <= clocks.earliest() && anchor.not_after() > clocks.latest()
}

/// The next change of a rotation that has begun: the next CA is published, waits for the propagation time, and then
/// signs in place of the current one.
fn advance(
    next: &Next,
    current: &Authority,
    observed: &Observed<'_>,
    clocks: Clocks,
    periods: &Periods,
) -> Option<Change> {
    let (earliest, latest) = (clocks.earliest(), clocks.latest());
    let published = observed.published;
    if is_dead(&next.authority, observed, clocks) {
        return clocks.agree().then_some(Change::ReplaceNext);
    }
    let fingerprint = next.authority.anchor().fingerprint();
    let known = published.is_none_or(|p| p.everywhere.contains(&fingerprint));
    match (known, next.published_at) {
        (false, None) => None,
        (false, Some(_)) => Some(Change::MarkUnpublished),
        (true, None) => Some(Change::MarkPublished),
        // A replica's clock was wrong: do not wait until that time.
        (true, Some(since)) if since > latest + periods.propagation => Some(Change::MarkPublished),
        // The mark may come from a clock that is behind. So this process must also have seen the CA for that long,
        // if there is time for it. If no process lives that long, the mark is enough.
        (true, Some(since)) => {
            let marked = earliest >= since + periods.propagation;
            let seen = observed.trusted_for(&next.authority);
            let known = published.is_none() || seen.is_some_and(|t| t >= periods.propagation);
            let late = change_urgent(current, periods) <= earliest;
            let ready = marked && (known || late) && is_alive(&next.authority, clocks);
            ready.then_some(Change::Promote)
        }
    }
}

/// When every leaf of a CA that signs until now has expired. A replica that read the Secret just before the change may
/// sign with the old CA just after it, by its own clock. The propagation time is added for that.
fn drop_at(clocks: Clocks, periods: &Periods) -> DateTime<Utc> {
    clocks.latest() + periods.leaf_validity + periods.propagation
}

/// The CA of the served leaf, if API servers trust it and the Secret does not contain it.
fn served_but_forgotten(
    authorities: &Authorities,
    observed: &Observed<'_>,
    now: DateTime<Utc>,
) -> Option<Anchor> {
    let issuer = observed.leaf.filter(|leaf| leaf.not_after > now)?.issuer;
    let known = |anchor: &Anchor| anchor.fingerprint() == issuer;
    if authorities.bundle().iter().any(known) {
        return None;
    }
    let published = observed.published?;
    let served = published.anywhere.iter().find(|anchor| known(anchor))?;
    (served.not_after() > now).then(|| served.clone())
}

/// The validity of a leaf that is signed now: valid by both clocks, and never outside its CA's validity.
pub(crate) fn leaf_validity(
    authority: &Authority,
    clocks: Clocks,
    periods: &Periods,
) -> (DateTime<Utc>, DateTime<Utc>) {
    let anchor = authority.anchor();
    let not_before = clocks.earliest() - BACKDATE;
    let not_after = clocks.latest() + periods.leaf_validity;
    (
        not_before.max(anchor.not_before()),
        not_after.min(anchor.not_after()),
    )
}

fn must_sign(
    authorities: &Authorities,
    observed: &Observed<'_>,
    clocks: Clocks,
    periods: &Periods,
) -> bool {
    let (now, latest) = (clocks.local(), clocks.latest());
    let current = authorities.current.anchor();
    if current.not_after() <= now || current.not_before() > now + EARLY_TOLERANCE {
        return false;
    }
    let Some(leaf) = observed.leaf else {
        return true;
    };
    let (not_before, not_after) = leaf_validity(&authorities.current, clocks, periods);
    let begins_late = leaf.not_before > clocks.earliest() && not_before < leaf.not_before;
    let ends_early = leaf.not_after <= latest && not_after > leaf.not_after;
    if begins_late || ends_early {
        // The leaf has expired, or a clock was set since it was signed.
        return true;
    }
    if leaf.issuer == current.fingerprint() {
        // A leaf that was signed in the future would be renewed too late.
        return renewal_due(leaf) <= now || leaf.issued_at > latest + EARLY_TOLERANCE;
    }
    // The CA has changed. The served leaf is valid as long as its CA is trusted, so there is time to make sure that
    // every API server knows the new CA.
    match observed.published {
        Some(published) if published.everywhere.contains(&leaf.issuer) => observed
            .trusted_for(&authorities.current)
            .is_some_and(|time| time >= periods.propagation),
        _ => true,
    }
}

fn next_look(
    authorities: &Authorities,
    observed: &Observed<'_>,
    now: DateTime<Utc>,
    periods: &Periods,
) -> DateTime<Utc> {
    let next = authorities.next.as_ref();
    let published_at = next.and_then(|next| next.published_at);
    let next_trusted = next.and_then(|next| observed.trusted_for(&next.authority));
    [
        Some(change_due(&authorities.current, periods)),
        published_at.map(|since| since + periods.propagation),
        next_trusted.map(|time| now - time + periods.propagation),
        observed
            .trusted_for(&authorities.current)
            .map(|time| now - time + periods.propagation),
        authorities
            .previous
            .as_ref()
            .map(|previous| previous.drop_at),
        observed.leaf.map(renewal_due),
    ]
    .into_iter()
    .flatten()
    .filter(|at| *at > now)
    .fold(now + longest_wait(periods), DateTime::min)
}

/// The longest time between two observations.
pub(crate) fn longest_wait(periods: &Periods) -> TimeDelta {
    periods.propagation.max(MIN_WAIT)
}

/// When a CA's rotation begins: after two thirds of its lifetime. A foreign CA with a longer lifetime than ours is
/// rotated as soon as ours.
fn change_due(authority: &Authority, periods: &Periods) -> DateTime<Utc> {
    let anchor = authority.anchor();
    let start = (anchor.not_before() + BACKDATE).min(anchor.not_after());
    start + (anchor.not_after() - start).min(periods.ca_validity) * 2 / 3
}

/// When a CA's rotation should have been completed: half of the time for it is over.
fn change_urgent(authority: &Authority, periods: &Periods) -> DateTime<Utc> {
    let due = change_due(authority, periods);
    due + (authority.anchor().not_after() - due) / 2
}

/// When a leaf is renewed: after half of its lifetime.
fn renewal_due(leaf: LeafFacts) -> DateTime<Utc> {
    leaf.issued_at + (leaf.not_after - leaf.issued_at) / 2
}

/// The CAs that a new start must keep trusted: the newest ones in the Secret and the bundle. Invalid ones would
/// displace others, so they are dropped; but a CA counts as expired only if both clocks agree.
fn still_trusted(readable: &[Anchor], observed: &Observed<'_>, clocks: Clocks) -> Vec<Anchor> {
    let published = observed.published.iter();
    let published = published.flat_map(|published| &published.anywhere);
    let all = readable.iter().chain(published).filter(|anchor| {
        let expired = clocks.confirmed() && anchor.not_after() <= clocks.earliest();
        !expired && !observed.begins_too_late(anchor)
    });
    let mut kept = distinct(all.cloned());
    kept.sort_by_key(|anchor| std::cmp::Reverse(anchor.not_before()));
    kept.truncate(KEPT_AT_MOST);
    kept
}

fn distinct(anchors: impl Iterator<Item = Anchor>) -> Vec<Anchor> {
    let mut seen = BTreeSet::new();
    anchors
        .filter(|anchor| seen.insert(anchor.fingerprint()))
        .collect()
}

impl Authorities {
    /// The next CA signs from now on. The current one stays trusted until `drop_at`, as its leaves are still served.
    fn promote_next(&mut self, drop_at: DateTime<Utc>) {
        let old = self.current.anchor().clone();
        if let Some(next) = self.next.take() {
            self.current = next.authority;
        }
        let mut anchors = self.previous.take().map_or_else(Vec::new, |p| p.anchors);
        anchors.push(old);
        self.previous = Some(Previous { anchors, drop_at });
    }

    /// Adds a CA that does not sign to those that stay trusted until `drop_at`.
    fn keep_trusting(&mut self, anchor: Anchor, drop_at: DateTime<Utc>) {
        let before = self.previous.take();
        let before = before.map_or_else(Vec::new, |previous| previous.anchors);
        let mut anchors = distinct(std::iter::once(anchor).chain(before));
        anchors.truncate(KEPT_AT_MOST);
        self.previous = Some(Previous { anchors, drop_at });
    }
}

impl Change {
    /// The content of the Secret after this change. Only the two changes that need a new CA create one.
    ///
    /// A change that does not apply to the current content returns `None`.
    ///
    /// # Errors
    /// When no CA can be created.
    pub(crate) fn apply(
        self,
        held: &Held,
        clocks: Clocks,
        periods: &Periods,
    ) -> Result<Option<Authorities>, authority::Error> {
        // Valid by both clocks, whichever is right.
        let fresh = || {
            let not_before = clocks.earliest() - BACKDATE;
            Authority::generate_between(not_before, clocks.latest() + periods.ca_validity)
                .map(Arc::new)
        };
        let drop_at = drop_at(clocks, periods);
        if let Self::Begin { keep } = self {
            let previous = (!keep.is_empty()).then_some(Previous {
                anchors: keep,
                drop_at,
            });
            return Ok(Some(Authorities {
                current: fresh()?,
                next: None,
                previous,
            }));
        }
        let Held::Authorities(authorities) = held else {
            return Ok(None);
        };
        let mut authorities = authorities.clone();
        match (self, &mut authorities.next) {
            (Self::Keep(anchor), _) => authorities.keep_trusting(anchor, drop_at),
            (Self::AddNext, next @ None) | (Self::ReplaceNext, next @ Some(_)) => {
                *next = Some(Next {
                    authority: fresh()?,
                    published_at: None,
                });
            }
            (Self::MarkPublished, Some(next)) => next.published_at = Some(clocks.latest()),
            (Self::MarkUnpublished, Some(next)) => next.published_at = None,
            (Self::Promote, Some(_)) => authorities.promote_next(drop_at),
            (Self::DropPrevious, _) => authorities.previous = None,
            (Self::CapPrevious, _) => {
                if let Some(previous) = &mut authorities.previous {
                    previous.drop_at = previous.drop_at.min(drop_at);
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(authorities))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
