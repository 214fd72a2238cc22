//! Memory for the bodies of requests, and for answers that are not taken yet, shared by the sources.
//!
//! A source holds at most a quarter of it. When memory is short, the source that holds most pays (see
//! [`fairness`](super::fairness)): its newest body that is still being read is revoked. So a few slow bodies do not
//! block others. Of many large bodies from one source the oldest are read to their end, instead of all waiting for each
//! other. A body for which there is still no memory waits a little for others to be answered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fairness::{Claim, Holdings, Payer, Short, Source};

/// How long a body waits for memory. A review takes milliseconds, so a body that waits for longer meets an overload,
/// and its caller should retry.
const WAIT: Duration = Duration::from_secs(1);

/// The id of a body that holds memory. Ids increase.
type Id = u64;

/// The memory for bodies of a listener.
#[derive(Debug)]
pub(super) struct BodyBudget {
    ledger: Mutex<Ledger<CancellationToken>>,
    /// Memory was released.
    released: Notify,
}

/// The memory that one body holds, until dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<BodyBudget>,
    source: Source,
    size: usize,
    /// Its entry in the ledger, once it holds memory.
    entry: Option<(Id, CancellationToken)>,
}

impl BodyBudget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::new(Ledger::new(max)),
            released: Notify::new(),
        })
    }

    /// A share that holds nothing yet.
    pub(super) fn share(self: &Arc<Self>, source: Source) -> Share {
        Share {
            budget: self.clone(),
            source,
            size: 0,
            entry: None,
        }
    }

    fn locked(&self) -> MutexGuard<'_, Ledger<CancellationToken>> {
        self.ledger.lock()
    }
}

impl Share {
    /// Grows the share to at least `size`, waiting for memory if necessary. False: the wait was too long, or the share
    /// was revoked.
    pub(super) async fn grow_to(&mut self, size: usize) -> bool {
        if size <= self.size {
            return true;
        }
        let budget = self.budget.clone();
        let grown = timeout(WAIT, async {
            loop {
                let mut released = std::pin::pin!(budget.released.notified());
                // From here on no release is missed.
                released.as_mut().enable();
                if let Some(grown) = self.try_grow_to(size) {
                    return grown;
                }
                tokio::select! {
                    () = released => {}
                    () = self.revoked() => return false,
                }
            }
        });
        grown.await.unwrap_or(false)
    }

    /// Grows the share to at least `size`. False: there is not enough memory now.
    pub(super) fn grow_now(&mut self, size: usize) -> bool {
        size <= self.size || self.try_grow_to(size) == Some(true)
    }

    /// None: there is not enough memory now.
    fn try_grow_to(&mut self, size: usize) -> Option<bool> {
        let mut ledger = self.budget.locked();
        let (id, _) = self.entry.get_or_insert_with(|| {
            let token = CancellationToken::new();
            (ledger.enter(self.source, token.clone()), token)
        });
        let (grown, revoked) = ledger.grow(*id, size - self.size);
        drop(ledger);
        for body in revoked {
            body.cancel();
        }
        if grown == Some(true) {
            self.size = size;
        }
        grown
    }

    /// Returns when the share is revoked: the body must be dropped.
    pub(super) async fn revoked(&self) {
        match &self.entry {
            Some((_, token)) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Marks the body complete: its share can no longer be revoked. False: it already was.
    pub(super) fn complete(&self) -> bool {
        let entry = self.entry.as_ref();
        entry.is_none_or(|(id, _)| self.budget.locked().complete(*id))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Most bodies are too small to hold any.
        if let Some((id, _)) = self.entry.take() {
            self.budget.locked().leave(id);
            self.budget.released.notify_waiters();
        }
    }
}

/// How much each body holds. `H` is the handle that revokes one.
#[derive(Debug)]
struct Ledger<H> {
    max: usize,
    last: Id,
    bodies: HashMap<Id, Body<H>>,
    /// The bodies that can be revoked: they hold memory and are not complete.
    being_read: HashMap<Source, BTreeSet<Id>>,
    holdings: Holdings,
}

#[derive(Debug)]
struct Body<H> {
    source: Source,
    size: usize,
    handle: H,
}

impl<H> Ledger<H> {
    fn new(max: usize) -> Self {
        Self {
            max,
            last: 0,
            bodies: HashMap::new(),
            being_read: HashMap::new(),
            holdings: Holdings::default(),
        }
    }

    fn enter(&mut self, source: Source, handle: H) -> Id {
        self.last += 1;
        let body = Body {
            source,
            size: 0,
            handle,
        };
        self.bodies.insert(self.last, body);
        self.last
    }

    /// Whether the body can hold `more`, and which bodies are revoked for it. None: there is not enough memory, the
    /// body waits, and no other is revoked. False: it was revoked itself.
    fn grow(&mut self, id: Id, more: usize) -> (Option<bool>, Vec<H>) {
        let Some(source) = self.bodies.get(&id).map(|body| body.source) else {
            return (Some(false), Vec::new());
        };
        let mut revoked = Vec::new();
        while let Some(short) = self.short(source, more) {
            let victim = self.victim(id, source, more, short);
            let Some((victim, body)) = victim.and_then(|id| Some((id, self.remove(id)?))) else {
                for (id, body) in revoked {
                    self.put_back(id, body);
                }
                return (None, Vec::new());
            };
            revoked.push((victim, body));
        }
        let revoked = revoked.into_iter().map(|(_, body)| body.handle).collect();
        self.holdings.add(source, more);
        self.being_read.entry(source).or_default().insert(id);
        if let Some(body) = self.bodies.get_mut(&id) {
            body.size += more;
        }
        (Some(true), revoked)
    }

    fn short(&self, source: Source, more: usize) -> Option<Short> {
        if self.holdings.of_network(source) + more > self.max / 4 {
            Some(Short::Network)
        } else if self.holdings.total() + more > self.max {
            Some(Short::Total)
        } else {
            None
        }
    }

    /// The newest body of the source that pays; where that is the claimant's own, one that is newer than the claimant.
    fn victim(&self, claimant: Id, source: Source, more: usize, short: Short) -> Option<Id> {
        let Payer { source, claim } = self.holdings.payer(source, more, short)?;
        let newest = self.being_read.get(&source)?.last().copied();
        newest.filter(|id| claim != Claim::Own || *id > claimant)
    }

    /// False: it was revoked.
    fn complete(&mut self, id: Id) -> bool {
        let source = self.bodies.get(&id).map(|body| body.source);
        if let Some(source) = source {
            self.no_longer_read(source, id);
        }
        source.is_some()
    }

    fn leave(&mut self, id: Id) {
        self.remove(id);
    }

    fn remove(&mut self, id: Id) -> Option<Body<H>> {
        let gone = self.bodies.remove(&id)?;
        self.no_longer_read(gone.source, id);
        self.holdings.remove(gone.source, gone.size);
        Some(gone)
    }

    /// Undoes a removal.
    fn put_back(&mut self, id: Id, body: Body<H>) {
        self.holdings.add(body.source, body.size);
        self.being_read.entry(body.source).or_default().insert(id);
        self.bodies.insert(id, body);
    }

    fn no_longer_read(&mut self, source: Source, id: Id) {
        if let Some(here) = self.being_read.get_mut(&source) {
            here.remove(&id);
            if here.is_empty() {
                self.being_read.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use my_operator_rounds::{lengths, seed};

    use super::*;

    fn source(n: u8) -> Source {
        IpAddr::from([10, 0, 0, n]).into()
    }

    /// A ledger whose handles are names.
    fn ledger() -> Ledger<&'static str> {
        Ledger::new(400)
    }

    #[test]
    fn a_source_holds_at_most_a_quarter() {
        let mut ledger = ledger();
        let first = ledger.enter(source(1), "first");
        assert_eq!(ledger.grow(first, 101), (None, vec![]));
        assert_eq!(ledger.grow(first, 100), (Some(true), vec![]));
        let second = ledger.enter(source(1), "second");
        assert_eq!(ledger.grow(second, 1), (None, vec![]));
        let other = ledger.enter(source(2), "other");
        assert_eq!(ledger.grow(other, 100), (Some(true), vec![]));
        ledger.leave(first);
        assert_eq!(ledger.grow(second, 100), (Some(true), vec![]));
    }

    #[test]
    fn of_one_source_the_newest_gives_way_to_an_older_one() {
        let mut ledger = ledger();
        let names = ["first", "second", "third"];
        let [first, second, third] = names.map(|name| ledger.enter(source(1), name));
        for id in [first, second, third] {
            assert_eq!(ledger.grow(id, 30), (Some(true), vec![]));
        }
        assert_eq!(ledger.grow(third, 30), (None, vec![]));
        assert_eq!(ledger.grow(first, 30), (Some(true), vec!["third"]));
        assert_eq!(ledger.grow(third, 1), (Some(false), vec![]));
        // What is complete is not revoked.
        assert!(ledger.complete(second) && !ledger.complete(third));
        assert_eq!(ledger.grow(first, 30), (None, vec![]));
    }

    #[test]
    fn the_source_that_holds_most_pays_when_all_is_taken() {
        let mut ledger = ledger();
        for n in 1..=4 {
            for name in ["older", "newer"] {
                let id = ledger.enter(source(n), name);
                assert_eq!(ledger.grow(id, 50), (Some(true), vec![]));
            }
        }
        let honest = ledger.enter(source(9), "honest");
        assert_eq!(ledger.grow(honest, 40), (Some(true), vec!["newer"]));
        assert_eq!(ledger.grow(honest, 50), (Some(true), vec!["newer"]));
        // No more than a quarter.
        assert_eq!(ledger.grow(honest, 11), (None, vec![]));
    }

    /// Whatever happens: never more than there is, never more than a quarter for a source, the largest pays.
    #[test]
    fn random_bodies_never_exceed_the_budget() {
        let mut random = fastrand::Rng::with_seed(seed("this"));
        let mut steps = 0;
        while steps < lengths::body_steps() {
            let max = random.usize(1..200);
            let mut ledger = Ledger::new(max);
            let mut open: Vec<(Id, u8, usize)> = Vec::new();
            for _ in 0..random.usize(1..500) {
                steps += 1;
                let held = |open: &[(Id, u8, usize)], n| -> usize {
                    let here = open.iter().filter(|(_, of, _)| *of == n);
                    here.map(|(.., size)| size).sum()
                };
                let at = random.usize(..=open.len() * 2);
                if at >= open.len() {
                    let n = random.u8(1..7);
                    let id = ledger.enter(source(n), ledger.last + 1);
                    open.push((id, n, 0));
                } else if random.u8(0..4) == 0 {
                    ledger.leave(open.swap_remove(at).0);
                } else {
                    let (id, n, _) = open[at];
                    let more = random.usize(1..=max / 4 + 1);
                    let (grown, revoked) = ledger.grow(id, more);
                    for victim in revoked {
                        let own = held(&open, n);
                        let most = (1..7).map(|n| held(&open, n)).max();
                        let at = open.iter().position(|(id, ..)| *id == victim).unwrap();
                        let (victim, of, _) = open[at];
                        assert!(of != n || victim > id, "an older one of its own");
                        assert!(
                            of == n || Some(held(&open, of)) == most && most >= Some(own + more)
                        );
                        open.swap_remove(at);
                    }
                    if grown == Some(true) {
                        open.iter_mut().find(|open| open.0 == id).unwrap().2 += more;
                    }
                }
                assert!((1..7).all(|n| held(&open, n) <= max / 4));
                let total: usize = open.iter().map(|(.., size)| size).sum();
                assert!(total <= max && total == ledger.holdings.total());
            }
            for (id, ..) in open {
                ledger.leave(id);
            }
            assert!(ledger.bodies.is_empty() && ledger.being_read.is_empty());
            assert!(ledger.holdings.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_memory_waits_until_another_is_answered() {
        let budget = BodyBudget::new(400);
        let mut holds = budget.share(source(1));
        assert!(holds.grow_to(100).await && holds.complete());
        let mut waits = budget.share(source(1));
        let mut waiting = std::pin::pin!(waits.grow_to(100));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(holds);
        assert!(waiting.await);
        let mut failing = budget.share(source(1));
        assert!(!failing.grow_to(1).await);
    }

    #[tokio::test]
    async fn a_revoked_share_is_notified() {
        let budget = BodyBudget::new(400);
        let mut first = budget.share(source(1));
        let mut second = budget.share(source(1));
        assert!(first.grow_to(10).await && second.grow_to(90).await);
        assert!(first.grow_to(20).await);
        second.revoked().await;
        assert!(!second.grow_to(91).await && !second.complete());
        drop(second);
        assert!(first.grow_to(100).await && first.complete());
    }
}
