//! Memory for the bodies of requests, and for answers that are not taken yet, shared by the sources.
//!
//! A source holds at most a quarter of it. When memory is short, the source that holds most pays (see
//! [`fairness`](super::fairness)): its newest body that is still being read is revoked. So a few slow bodies do not
//! block others. Of many large bodies from one source the oldest are read to their end, instead of all waiting for each
//! other. A body for which there is still no memory waits a little for others to be answered: their memory goes to the
//! oldest that waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fairness::{Claim, Holdings, Short, Source};

/// How long a body waits for memory. A review takes milliseconds, so a body that waits for longer meets an overload,
/// and its caller should retry.
const WAIT: Duration = Duration::from_secs(1);

/// The id of a body that holds memory. Ids increase.
type Id = u64;

/// The memory for bodies of a listener.
#[derive(Debug)]
pub(super) struct BodyBudget {
    ledger: Mutex<Ledger<CancellationToken>>,
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
    /// was revoked. Then it must be dropped: the memory may still come.
    pub(super) async fn grow_to(&mut self, size: usize) -> bool {
        let (sender, granted) = oneshot::channel();
        if let Some(grown) = self.try_grow_to(size, Some(sender)) {
            return grown;
        }
        let granted = matches!(timeout(WAIT, granted).await, Ok(Ok(())));
        if granted {
            self.size = size;
        }
        granted
    }

    /// Grows the share to at least `size`. False: there is not enough memory now.
    pub(super) fn grow_now(&mut self, size: usize) -> bool {
        self.try_grow_to(size, None) == Some(true)
    }

    /// None: there is not enough memory now, and `waits` is notified when there is.
    fn try_grow_to(&mut self, size: usize, waits: Option<oneshot::Sender<()>>) -> Option<bool> {
        if size <= self.size {
            return Some(true);
        }
        let more = size - self.size;
        let mut ledger = self.budget.locked();
        let (id, _) = self.entry.get_or_insert_with(|| {
            let token = CancellationToken::new();
            (ledger.enter(self.source, token.clone()), token)
        });
        let (grown, revoked) = ledger.grow(*id, more);
        if let Some(waits) = waits.filter(|_| grown.is_none()) {
            ledger.waiting.insert(*id, (self.source, more, waits));
        }
        drop(ledger);
        revoke(revoked);
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
            let revoked = self.budget.locked().leave(id);
            revoke(revoked);
        }
    }
}

fn revoke(bodies: Vec<CancellationToken>) {
    for body in bodies {
        body.cancel();
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
    /// The bodies that wait for so much more: these are notified when they hold it.
    waiting: BTreeMap<Id, (Source, usize, oneshot::Sender<()>)>,
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
            waiting: BTreeMap::new(),
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
        let revoked = revoked.into_iter().map(|(id, body)| {
            self.waiting.remove(&id);
            body.handle
        });
        let revoked = revoked.collect();
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

    /// The newest body of the largest source that has one; where that is the claimant's own source, one that is newer
    /// than the claimant.
    fn victim(&self, claimant: Id, source: Source, more: usize, short: Short) -> Option<Id> {
        let mut payers = self.holdings.payers(source, more, short);
        payers.find_map(|payer| {
            let newest = self.being_read.get(&payer.source)?.last().copied();
            newest.filter(|id| payer.claim != Claim::Own || *id > claimant)
        })
    }

    /// False: it was revoked.
    fn complete(&mut self, id: Id) -> bool {
        let source = self.bodies.get(&id).map(|body| body.source);
        if let Some(source) = source {
            self.no_longer_read(source, id);
        }
        source.is_some()
    }

    /// The body has ended. Its memory goes to those that wait, the oldest first, except that no other of a source comes
    /// before its oldest. Returns the bodies that are revoked for them.
    fn leave(&mut self, id: Id) -> Vec<H> {
        self.waiting.remove(&id);
        self.remove(id);
        let mut revoked = Vec::new();
        let mut short = HashSet::new();
        let waiting = self.waiting.iter();
        let waiting: Vec<_> = waiting
            .map(|(id, (source, more, _))| (*id, *source, *more))
            .collect();
        for (id, source, more) in waiting {
            if short.contains(&source) {
                continue;
            }
            let (grown, victims) = self.grow(id, more);
            revoked.extend(victims);
            if grown.is_none() {
                short.insert(source);
            } else if let Some((.., granted)) = self.waiting.remove(&id) {
                // A caller that has given up drops its share soon.
                let _ = granted.send(());
            }
        }
        revoked
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

    use simulated_apiserver::seeds::{length, seed};

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

    #[test]
    fn where_all_bodies_of_the_largest_source_are_complete_the_next_one_pays() {
        let mut ledger = ledger();
        for (n, name, size) in [
            (1, "one", 90),
            (2, "two", 95),
            (3, "three", 90),
            (4, "four", 100),
        ] {
            let id = ledger.enter(source(n), name);
            assert_eq!(ledger.grow(id, size), (Some(true), vec![]));
            assert!(n != 4 || ledger.complete(id));
        }
        let honest = ledger.enter(source(9), "honest");
        assert_eq!(ledger.grow(honest, 40), (Some(true), vec!["two"]));
    }

    /// Whatever happens: never more than there is, never more than a quarter for a source, the largest pays.
    #[test]
    fn random_bodies_never_exceed_the_budget() {
        let mut random = fastrand::Rng::with_seed(seed("this"));
        let mut steps = 0;
        while steps < length(100_000, 1_000_000) {
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
    async fn released_memory_goes_to_those_that_wait_in_their_order() {
        let budget = BodyBudget::new(400);
        let mut holds = budget.share(source(1));
        assert!(holds.grow_to(100).await && holds.complete());
        let mut shares = [60, 60, 30].map(|size| (size, budget.share(source(1))));
        let mut waits: Vec<_> = shares
            .iter_mut()
            .map(|(size, share)| Box::pin(share.grow_to(*size)))
            .collect();
        for waiting in &mut waits {
            assert!(futures::poll!(waiting).is_pending());
        }
        drop(holds);
        let [first, second, third] = &mut waits[..] else {
            unreachable!()
        };
        // The third would fit, but only takes what the second needs.
        assert!(futures::poll!(third).is_pending());
        assert!(futures::poll!(second).is_pending());
        assert!(futures::poll!(first).is_ready());
        drop(waits);
        let [(_, first), (_, second), (_, third)] = shares;
        drop(second);
        assert!(budget.locked().waiting.is_empty() && budget.locked().holdings.total() == 90);
        drop((first, third));
        assert!(budget.locked().holdings.is_empty());
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
