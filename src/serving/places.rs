//! Who may have a connection: a plain data structure, without sockets or clocks.
//!
//! A connection is *unproven* until one of its requests was answered with success. What is unproven
//! gives way: to whoever comes when the listener is full, and, once it has had its chance, to
//! whoever comes from the same address when that has too many. What is proven counts against no
//! address and is left alone: addresses are shared behind NAT, and the API server's connections must
//! not be hit by what its neighbours do.
//!
//! There is one exception. Anybody can earn an answer, so a few peers could fill the listener with
//! proven connections and keep everybody else out. When it is full of nothing else, the address that
//! has most of them gives up its oldest, if it has more than the newcomer's own address, or more
//! than an API server ever needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::Limits;
use super::counters::Rejection;

/// Names a connection; later ones are greater.
pub(super) type Id = u64;

/// The connections of a listener. `H` is what ends one.
#[derive(Debug)]
pub(super) struct Places<H> {
    most: usize,
    most_unproven: usize,
    fair_chance: Duration,
    last: Id,
    unproven: BTreeMap<Id, Connection<H>>,
    proven: HashMap<Id, Connection<H>>,
    by_source: HashMap<IpAddr, Source>,
}

#[derive(Debug)]
struct Connection<H> {
    source: IpAddr,
    since: Instant,
    /// None between entering and [`Places::attach`].
    handle: Option<H>,
}

/// The connections from one address, the oldest first.
#[derive(Debug, Default)]
struct Source {
    unproven: BTreeSet<Id>,
    proven: BTreeSet<Id>,
}

/// A newcomer that was let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entered<H> {
    pub(super) id: Id,
    /// Who has to go for it, and why.
    pub(super) instead_of: Option<(Rejection, H)>,
}

impl<H> Places<H> {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.connections,
            most_unproven: limits.unproven_per_address,
            fair_chance: limits.fair_chance,
            last: 0,
            unproven: BTreeMap::new(),
            proven: HashMap::new(),
            by_source: HashMap::new(),
        }
    }

    /// Lets a newcomer in, perhaps at the cost of another, or says why not.
    pub(super) fn enter(&mut self, peer: IpAddr, now: Instant) -> Result<Entered<H>, Rejection> {
        let source = source(peer);
        let here = self.by_source.get(&source).map(|here| &here.unproven);
        let leaver = if let Some(ids) = here.filter(|ids| ids.len() >= self.most_unproven) {
            // Turning the newcomer away would let silent peers lock out an honest one behind the
            // same address; always ending the oldest would let a burst of honest ones, which still
            // wait for their handshakes, end each other. Honest ones are through in milliseconds.
            let oldest = ids.first().copied();
            let since = oldest.and_then(|id| Some(self.unproven.get(&id)?.since));
            let had_its_chance =
                since.is_some_and(|since| now.duration_since(since) >= self.fair_chance);
            let oldest = oldest.filter(|_| had_its_chance);
            Some((Rejection::PerAddress, oldest.ok_or(Rejection::PerAddress)?))
        } else if self.len() >= self.most {
            let oldest = self.unproven.keys().next().copied();
            let oldest = oldest.or_else(|| self.oldest_of_the_greediest(source));
            Some((Rejection::Evicted, oldest.ok_or(Rejection::OverCapacity)?))
        } else {
            None
        };
        let instead_of = leaver.and_then(|(reason, id)| Some((reason, self.remove(id)?.handle?)));
        self.last += 1;
        let id = self.last;
        let newcomer = Connection {
            source,
            since: now,
            handle: None,
        };
        self.unproven.insert(id, newcomer);
        self.by_source
            .entry(source)
            .or_default()
            .unproven
            .insert(id);
        Ok(Entered { id, instead_of })
    }

    /// The oldest proven connection of the address that has most of them, if it has too many beside
    /// a newcomer from there.
    fn oldest_of_the_greediest(&self, newcomer: IpAddr) -> Option<Id> {
        let most = self.by_source.values().map(|here| &here.proven);
        let most = most.max_by_key(|ids| ids.len())?;
        let own = self
            .by_source
            .get(&newcomer)
            .map_or(0, |own| own.proven.len());
        let too_many = most.len() > own + 1 || most.len() > self.most_unproven;
        most.first().copied().filter(|_| too_many)
    }

    /// Says how a newcomer can be ended. It may have gone or proven itself already.
    pub(super) fn attach(&mut self, id: Id, handle: H) {
        let newcomer = self.unproven.get_mut(&id);
        if let Some(newcomer) = newcomer.or_else(|| self.proven.get_mut(&id)) {
            newcomer.handle = Some(handle);
        }
    }

    /// One of its requests was answered with success. One that was just told to go stays unproven.
    pub(super) fn prove(&mut self, id: Id) {
        if let Some(connection) = self.unproven.remove(&id) {
            if let Some(here) = self.by_source.get_mut(&connection.source) {
                here.unproven.remove(&id);
                here.proven.insert(id);
            }
            self.proven.insert(id, connection);
        }
    }

    /// It has ended, by itself or because it was told to.
    pub(super) fn leave(&mut self, id: Id) {
        self.remove(id);
    }

    fn len(&self) -> usize {
        self.proven.len() + self.unproven.len()
    }

    fn remove(&mut self, id: Id) -> Option<Connection<H>> {
        let gone = self
            .unproven
            .remove(&id)
            .or_else(|| self.proven.remove(&id))?;
        if let Some(here) = self.by_source.get_mut(&gone.source) {
            here.unproven.remove(&id);
            here.proven.remove(&id);
            // Or every address that ever came would stay.
            if here.unproven.is_empty() && here.proven.is_empty() {
                self.by_source.remove(&gone.source);
            }
        }
        Some(gone)
    }
}

/// What counts as one address. An IPv4 address is the same however the socket writes it. Of an IPv6
/// address, the first 64 bits: whoever has one address has all of its /64 for the asking (RFC 4291,
/// 2.5.1), so counting single ones would bound nothing.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Door {
        places: Places<Id>,
        now: Instant,
    }

    impl Door {
        fn new(connections: usize, unproven_per_address: usize) -> Self {
            let places = Places::new(&Limits {
                connections,
                unproven_per_address,
                fair_chance: Duration::from_secs(1),
                ..Limits::default()
            });
            let now = Instant::now();
            Self { places, now }
        }

        /// Whether the newcomer got in, and who had to go for it.
        fn enter(&mut self, peer: &str) -> Result<(Id, Option<(Rejection, Id)>), Rejection> {
            let entered = self.places.enter(peer.parse().unwrap(), self.now)?;
            self.places.attach(entered.id, entered.id);
            Ok((entered.id, entered.instead_of))
        }

        fn holds_nothing(&self) -> bool {
            self.places.len() == 0 && self.places.by_source.is_empty()
        }
    }

    #[test]
    fn a_full_listener_gives_the_place_of_the_oldest_unproven_one() {
        let mut door = Door::new(3, 3);
        for n in 1..=3 {
            assert_eq!(door.enter(&format!("10.0.0.{n}")), Ok((n, None)));
        }
        door.places.prove(1);
        assert_eq!(
            door.enter("10.0.0.4"),
            Ok((4, Some((Rejection::Evicted, 2))))
        );
        assert_eq!(
            door.enter("10.0.0.5"),
            Ok((5, Some((Rejection::Evicted, 3))))
        );
        // That those two end later makes no room a second time.
        door.places.leave(2);
        door.places.leave(3);
        assert_eq!(door.places.len(), 3);
        door.places.leave(4);
        assert_eq!(door.enter("10.0.0.6"), Ok((6, None)));
    }

    #[test]
    fn when_all_are_proven_the_newcomer_is_turned_away() {
        let mut door = Door::new(2, 2);
        door.enter("10.0.0.1").unwrap();
        door.enter("10.0.0.2").unwrap();
        door.places.prove(1);
        door.places.prove(2);
        assert_eq!(door.enter("10.0.0.3"), Err(Rejection::OverCapacity));
        door.places.leave(1);
        assert_eq!(door.enter("10.0.0.3"), Ok((3, None)));
    }

    #[test]
    fn addresses_that_fill_the_listener_with_proven_ones_lock_nobody_out() {
        let mut door = Door::new(6, 4);
        let prove = |door: &mut Door, peer: &str| {
            let entered = door.enter(peer);
            entered.inspect(|(id, _)| door.places.prove(*id))
        };
        for peer in ["10.0.0.1", "10.0.0.2"] {
            for _ in 0..3 {
                assert_eq!(prove(&mut door, peer).unwrap().1, None);
            }
        }
        let evicted = |id| Some((Rejection::Evicted, id));
        // Neither has more than others may have, and still both pay for those who have less.
        for _ in 0..2 {
            let (_, leaver) = prove(&mut door, "10.0.0.9").unwrap();
            assert!(
                matches!(leaver, Some((Rejection::Evicted, 1..=6))),
                "{leaver:?}"
            );
        }
        // Now all have the same.
        assert_eq!(prove(&mut door, "10.0.0.9"), Err(Rejection::OverCapacity));
        assert_eq!(prove(&mut door, "10.0.0.1"), Err(Rejection::OverCapacity));

        // One that has more than anybody needs makes room for itself, too.
        let mut door = Door::new(6, 4);
        for _ in 0..6 {
            prove(&mut door, "10.0.0.1").unwrap();
        }
        assert_eq!(prove(&mut door, "10.0.0.1"), Ok((7, evicted(1))));
    }

    #[test]
    fn one_address_has_only_so_many_unproven_ones_and_hinders_no_other() {
        let mut door = Door::new(10, 2);
        door.enter("10.0.0.1").unwrap();
        door.enter("10.0.0.1").unwrap();
        assert_eq!(door.enter("10.0.0.1"), Err(Rejection::PerAddress));
        assert_eq!(door.enter("10.0.0.2"), Ok((3, None)));
        door.places.leave(1);
        assert_eq!(door.enter("10.0.0.1"), Ok((4, None)));
    }

    #[test]
    fn proven_ones_never_count_against_their_address() {
        let mut door = Door::new(10, 2);
        for id in 1..=8 {
            assert_eq!(door.enter("10.0.0.1"), Ok((id, None)));
            door.places.prove(id);
        }
    }

    #[test]
    fn one_that_had_its_chance_gives_way_to_another_from_its_address() {
        let mut door = Door::new(10, 2);
        door.enter("10.0.0.1").unwrap();
        door.now += Duration::from_millis(600);
        door.enter("10.0.0.1").unwrap();
        assert_eq!(door.enter("10.0.0.1"), Err(Rejection::PerAddress));
        door.now += Duration::from_millis(400);
        assert_eq!(
            door.enter("10.0.0.1"),
            Ok((3, Some((Rejection::PerAddress, 1))))
        );
        assert_eq!(door.enter("10.0.0.1"), Err(Rejection::PerAddress));
    }

    #[test]
    fn one_that_was_told_to_go_can_no_longer_prove_itself() {
        let mut door = Door::new(1, 1);
        door.enter("10.0.0.1").unwrap();
        assert_eq!(
            door.enter("10.0.0.2"),
            Ok((2, Some((Rejection::Evicted, 1))))
        );
        door.places.prove(1);
        door.places.prove(2);
        assert_eq!(door.places.len(), 1);
        door.places.leave(1);
        door.places.leave(2);
        assert!(door.holds_nothing());
    }

    #[test]
    fn nothing_is_kept_of_those_that_left() {
        let mut door = Door::new(100, 100);
        for n in 0..50 {
            let (id, _) = door.enter(&format!("10.0.0.{n}")).unwrap();
            if n % 2 == 0 {
                door.places.prove(id);
            }
            door.places.leave(id);
            door.places.leave(id);
        }
        assert!(door.holds_nothing());
    }

    #[test]
    fn an_address_is_one_however_it_is_written_and_a_whole_64_is_one() {
        let same = |a: &str, b: &str| source(a.parse().unwrap()) == source(b.parse().unwrap());
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(!same("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
    }
}
