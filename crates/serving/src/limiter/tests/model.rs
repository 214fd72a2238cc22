//! The limiter against a naive model: one list of connections, every question answered by reading all of it.

use simulated_apiserver::seeds::{length, seed};

use super::super::*;
use super::source;

/// Few enough that the same sources meet again and again.
const PEERS: [&str; 9] = [
    "10.0.0.1",
    "10.0.0.2",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:0:1::1",
    "::ffff:10.0.0.1",
    "2001:db8::3",
    "10.0.0.3",
    "2001:db8:0:1::2",
];
const FAIR_CHANCE: u64 = 10;

#[derive(Clone, Copy, Debug)]
struct Open {
    id: Id,
    at: u64,
    network: &'static str,
    address: &'static str,
    busy: bool,
    trusted: bool,
}

#[derive(Clone)]
struct Model {
    max: usize,
    max_per_source: usize,
    last: Id,
    open: Vec<Open>,
    /// The last newcomer of each network and address.
    latest: Vec<(&'static str, Id)>,
}

/// The /64 and the address, as text.
fn place(peer: &'static str) -> (&'static str, &'static str) {
    let peer = peer.trim_start_matches("::ffff:");
    match peer.rsplit_once("::") {
        Some((network, _)) => (network, peer),
        None => (peer, peer),
    }
}

impl Model {
    fn holds(&self, name: &str) -> usize {
        let named = |open: &&Open| open.network == name || open.address == name;
        self.open.iter().filter(named).count()
    }

    fn latest(&self, name: &str) -> Option<Id> {
        let mut latest = self.latest.iter().filter(|(latest, _)| *latest == name);
        latest.next().map(|(_, id)| *id)
    }

    /// The one of these names that holds most.
    fn largest(&self, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
        names.max_by_key(|name| (self.holds(name), self.latest(name)))
    }

    fn enter(
        &mut self,
        peer: &'static str,
        now: u64,
    ) -> Result<Option<(Rejection, Id)>, Rejection> {
        let (network, address) = place(peer);
        let mut instead_of = None;
        if self.holds(network) >= self.max_per_source {
            let victim = self.neighbour(network, address, now);
            instead_of = Some((Rejection::PerAddress, victim.ok_or(Rejection::PerAddress)?));
        } else if self.open.len() >= self.max {
            let victim = self.anywhere(network, address, now);
            instead_of = Some((Rejection::Evicted, victim.ok_or(Rejection::OverCapacity)?));
        }
        self.open
            .retain(|open| Some(open.id) != instead_of.map(|(_, id)| id));
        self.last += 1;
        for name in [network, address] {
            self.latest.retain(|(latest, _)| *latest != name);
            self.latest.push((name, self.last));
        }
        self.open.push(Open {
            id: self.last,
            at: now,
            network,
            address,
            busy: false,
            trusted: false,
        });
        Ok(instead_of)
    }

    fn anywhere(&self, network: &str, address: &str, now: u64) -> Option<Id> {
        let largest = self.largest(self.open.iter().map(|open| open.network))?;
        let (most, own) = (self.holds(largest), self.holds(network));
        if most > own {
            let here = self.open.iter().filter(|open| open.network == largest);
            let payer = self.largest(here.map(|open| open.address))?;
            return self.gives(payer, most >= own + 2, now);
        }
        self.neighbour(network, address, now)
    }

    fn neighbour(&self, network: &str, address: &str, now: u64) -> Option<Id> {
        let here = self.open.iter().filter(|open| open.network == network);
        let payer = self.largest(here.map(|open| open.address))?;
        let (most, own) = (self.holds(payer), self.holds(address));
        if most > own {
            return self.gives(payer, most >= own + 2, now);
        }
        let here = self.open.iter().filter(|open| open.address == address);
        let idle = here.filter(|open| !open.busy && past(open, now) && !self.is_senior(open));
        idle.map(|open| open.id).max()
    }

    fn gives(&self, address: &str, levels: bool, now: u64) -> Option<Id> {
        let here = self.open.iter().filter(|open| open.address == address);
        let first = here
            .filter(|open| past(open, now) || levels)
            .min_by_key(|open| {
                let id = i64::try_from(open.id).unwrap();
                let order = if past(open, now) { -id } else { id };
                (self.is_senior(open), !past(open, now), open.busy, order)
            });
        first.map(|open| open.id)
    }

    fn is_senior(&self, open: &Open) -> bool {
        let older =
            |other: &&Open| other.address == open.address && other.trusted && other.id < open.id;
        open.trusted && self.open.iter().filter(older).count() < self.holds(open.address) / 4
    }
}

fn past(open: &Open, now: u64) -> bool {
    now >= open.at + FAIR_CHANCE
}

/// What the rule promises, however the model decides.
fn assert_promises(
    before: &Model,
    peer: &'static str,
    now: u64,
    outcome: Result<Option<(Rejection, Id)>, Rejection>,
) {
    let (network, address) = place(peer);
    let (held, held_here) = (before.holds(network), before.holds(address));
    let networks = before.open.iter().map(|open| before.holds(open.network));
    let most = networks.max().unwrap_or(0);
    match outcome {
        Ok(None) => assert!(before.open.len() < before.max && held < before.max_per_source),
        Ok(Some((_, id))) => {
            let victim = before.open.iter().find(|open| open.id == id).unwrap();
            if victim.address == address {
                assert!(!victim.busy && past(victim, now) && !before.is_senior(victim));
                return;
            }
            let (loser, winner) = if victim.network == network {
                (before.holds(victim.address), held_here)
            } else {
                assert_eq!(before.holds(victim.network), most, "not the largest paid");
                (most, held)
            };
            assert!(loser > winner, "lost to a source that holds as many");
            assert!(past(victim, now) || loser >= winner + 2, "no fair chance");
        }
        Err(Rejection::OverCapacity) => {
            assert!(most < held + 2, "holds {held}, the largest {most}");
        }
        Err(_) => assert!(held >= before.max_per_source),
    }
}

#[test]
fn a_million_random_steps_are_those_of_the_naive_model() {
    let mut random = fastrand::Rng::with_seed(seed("this"));
    let start = Instant::now();
    let mut steps = 0;
    while steps < length(1_000_000, 10_000_000) {
        let (max, max_per_source) = (random.usize(1..14), random.usize(1..10));
        let mut limiter = ConnectionLimiter::new(&Limits {
            connections: max,
            connections_per_source: max_per_source,
            fair_chance: Duration::from_millis(FAIR_CHANCE),
            ..Limits::default()
        });
        let mut model = Model {
            max,
            max_per_source,
            last: 0,
            open: Vec::new(),
            latest: Vec::new(),
        };
        // Some listeners have few sources, some many; in some time passes quickly.
        let peers = random.usize(1..=PEERS.len());
        let hurry = random.u64(1..12);
        let mut now = 0;
        for _ in 0..random.usize(1..2000) {
            steps += 1;
            let some = random.choice(&model.open).map(|open| open.id);
            match (random.u8(0..10), some) {
                (0..5, _) | (_, None) => {
                    let peer = PEERS[random.usize(..peers)];
                    let at = start + Duration::from_millis(now);
                    let entered = limiter.enter(source(peer), at);
                    let before = model.clone();
                    let expected = model.enter(peer, now);
                    let entered = entered.map(|entered| {
                        assert_eq!(entered.id, model.last);
                        limiter.attach(entered.id, entered.id);
                        entered.instead_of
                    });
                    assert_eq!(entered, expected, "{peer} at {now}: {:?}", before.open);
                    assert_promises(&before, peer, now, entered);
                }
                (5..7, Some(id)) => {
                    limiter.begin_request(id);
                    let open = model.open.iter_mut().find(|open| open.id == id);
                    open.unwrap().busy = true;
                }
                (7, Some(id)) => {
                    let success = random.bool();
                    limiter.end_request(id, success);
                    let open = model.open.iter_mut().find(|open| open.id == id).unwrap();
                    open.busy = false;
                    open.trusted |= success;
                }
                (8, Some(id)) => {
                    limiter.leave(id);
                    model.open.retain(|open| open.id != id);
                }
                _ => now += random.u64(..hurry),
            }
            assert_eq!(limiter.connections.len(), model.open.len());
        }
        for open in &model.open {
            limiter.leave(open.id);
        }
        assert!(limiter.sources.is_empty() && limiter.holdings.is_empty());
    }
}
