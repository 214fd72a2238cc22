//! Which connections a listener keeps when it is full: a pure data structure, without sockets or clocks.
//!
//! The source that holds most connections pays (see [`fairness`](super::fairness)), to a newcomer that holds fewer, or
//! to a newcomer of its own. Which of its connections is closed:
//!
//! 1. an idle one, the newest first: those that were there before an attack stay;
//! 2. a busy one, the newest first;
//! 3. one in its first second, the oldest first. An honest peer needs milliseconds for its handshake and its request;
//!    connections that are opened at a high rate would otherwise close each other, and honest ones with them. So this
//!    happens only when the payer holds two more than the newcomer's source, which makes the shares more equal;
//! 4. a *senior*: one of its oldest trusted connections, up to a quarter of all that its address holds. A connection is
//!    trusted from its first answer with success on. Seniors protect an honest peer that shares its address with hostile
//!    ones, all of whose connections may be busy or in their first second.
//!
//! For a newcomer of the same address, only an idle connection is closed that is not a senior and past its first
//! second. If there is none, the newcomer is rejected.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use super::counters::Rejection;
use super::fairness::{Claim, Holdings, Payer, Short, Source};
use super::limits::Limits;

/// The id of a connection. Ids increase.
pub(super) type Id = u64;

/// Orders connections from the oldest to the newest.
type Age = (Instant, Id);

/// The connections of a listener. `H` is the handle that closes one.
#[derive(Debug)]
pub(super) struct ConnectionLimiter<H> {
    max: usize,
    max_per_source: usize,
    fair_chance: Duration,
    last: Id,
    connections: HashMap<Id, Connection<H>>,
    sources: HashMap<Source, SourceConnections>,
    holdings: Holdings,
}

#[derive(Debug)]
struct Connection<H> {
    source: Source,
    age: Age,
    /// None between [`ConnectionLimiter::enter`] and [`ConnectionLimiter::attach`].
    handle: Option<H>,
}

/// The connections from one address. Each is either idle or busy.
#[derive(Debug, Default)]
struct SourceConnections {
    idle: BTreeSet<Age>,
    busy: BTreeSet<Age>,
    trusted: BTreeSet<Age>,
}

/// A newcomer that was admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered<H> {
    pub(super) id: Id,
    /// The connection to close for it, and the reason.
    pub(super) instead_of: Option<(Rejection, H)>,
}

impl<H> ConnectionLimiter<H> {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            max: limits.connections,
            max_per_source: limits.connections_per_source,
            fair_chance: limits.fair_chance,
            last: 0,
            connections: HashMap::new(),
            sources: HashMap::new(),
            holdings: Holdings::default(),
        }
    }

    /// Admits a newcomer, perhaps in place of another connection, or returns the reason for the rejection.
    pub(super) fn enter(&mut self, source: Source, now: Instant) -> Result<Entered<H>, Rejection> {
        let instead_of = if self.holdings.of_network(source) >= self.max_per_source {
            let victim = self.victim(source, Short::Network, now);
            Some((Rejection::PerAddress, victim.ok_or(Rejection::PerAddress)?))
        } else if self.connections.len() >= self.max {
            let victim = self.victim(source, Short::Total, now);
            Some((Rejection::Evicted, victim.ok_or(Rejection::OverCapacity)?))
        } else {
            None
        };
        let instead_of =
            instead_of.and_then(|(reason, id)| Some((reason, self.remove(id)?.handle?)));
        self.last += 1;
        let id = self.last;
        let age = (now, id);
        let newcomer = Connection {
            source,
            age,
            handle: None,
        };
        self.connections.insert(id, newcomer);
        self.sources.entry(source).or_default().idle.insert(age);
        self.holdings.add(source, 1);
        Ok(Entered { id, instead_of })
    }

    /// The connection to close for a newcomer from `source`.
    fn victim(&self, source: Source, short: Short, now: Instant) -> Option<Id> {
        let Payer { source, claim } = self.holdings.payers(source, 1, short).next()?;
        let cutoff = now.checked_sub(self.fair_chance).map(|at| (at, Id::MAX));
        let (_, id) = self.sources.get(&source)?.victim(claim, cutoff)?;
        Some(id)
    }

    /// Sets the handle of a newcomer. It may have ended already.
    pub(super) fn attach(&mut self, id: Id, handle: H) {
        if let Some(newcomer) = self.connections.get_mut(&id) {
            newcomer.handle = Some(handle);
        }
    }

    /// A request begins: from the end of its head to its answer, the connection is busy.
    pub(super) fn begin_request(&mut self, id: Id) {
        if let Some((age, here)) = self.located(id) {
            here.idle.remove(&age);
            here.busy.insert(age);
        }
    }

    /// A request was answered. Success makes the connection trusted: a peer that earns rejections only never becomes a
    /// senior.
    pub(super) fn end_request(&mut self, id: Id, success: bool) {
        if let Some((age, here)) = self.located(id) {
            here.busy.remove(&age);
            here.idle.insert(age);
            if success {
                here.trusted.insert(age);
            }
        }
    }

    /// The connection has ended, by itself or because it was closed for another.
    pub(super) fn leave(&mut self, id: Id) {
        self.remove(id);
    }

    /// The connections of its address. None: it was closed for another.
    fn located(&mut self, id: Id) -> Option<(Age, &mut SourceConnections)> {
        let connection = self.connections.get(&id)?;
        let here = self.sources.get_mut(&connection.source)?;
        Some((connection.age, here))
    }

    fn remove(&mut self, id: Id) -> Option<Connection<H>> {
        let gone = self.connections.remove(&id)?;
        self.holdings.remove(gone.source, 1);
        if let Some(here) = self.sources.get_mut(&gone.source) {
            here.idle.remove(&gone.age);
            here.busy.remove(&gone.age);
            here.trusted.remove(&gone.age);
            if here.idle.is_empty() && here.busy.is_empty() {
                self.sources.remove(&gone.source);
            }
        }
        Some(gone)
    }
}

impl SourceConnections {
    /// The connection that is closed first. `cutoff`: older ones had their first second.
    fn victim(&self, claim: Claim, cutoff: Option<Age>) -> Option<Age> {
        let seniors = (self.idle.len() + self.busy.len()) / 4;
        let last_senior = self.trusted.iter().take(seniors).next_back().copied();
        let is_senior = |age: &Age| Some(*age) <= last_senior && self.trusted.contains(age);
        let older = |of: &BTreeSet<Age>, senior| {
            let mut older = cutoff.iter().flat_map(|cutoff| of.range(..=cutoff).rev());
            older.find(|age| is_senior(age) == senior).copied()
        };
        let Claim::Smaller { levels } = claim else {
            return older(&self.idle, false);
        };
        let younger = |of: &BTreeSet<Age>, senior| {
            let after = cutoff.map_or(Unbounded, Excluded);
            let mut younger = of.range((after, Unbounded)).filter(|_| levels);
            younger.find(|age| is_senior(age) == senior).copied()
        };
        [false, true].into_iter().find_map(|senior| {
            older(&self.idle, senior)
                .or_else(|| older(&self.busy, senior))
                .or_else(|| younger(&self.idle, senior))
                .or_else(|| younger(&self.busy, senior))
        })
    }
}

#[cfg(test)]
mod tests;
