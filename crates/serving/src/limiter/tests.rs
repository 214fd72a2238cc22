#![allow(clippy::unwrap_used)]

mod model;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A limiter whose handles are the names of the connections.
struct Listener {
    limiter: ConnectionLimiter<Id>,
    now: Instant,
}

/// A newcomer, and the connection that is closed for it.
type LetIn = (Id, Option<(Rejection, Id)>);

impl Listener {
    fn new(connections: usize, connections_per_source: usize) -> Self {
        let limiter = ConnectionLimiter::new(&Limits {
            connections,
            connections_per_source,
            fair_chance: SECOND,
            ..Limits::default()
        });
        let now = Instant::now();
        Self { limiter, now }
    }

    fn enter(&mut self, peer: &str) -> Result<LetIn, Rejection> {
        let entered = self.limiter.enter(source(peer), self.now)?;
        self.limiter.attach(entered.id, entered.id);
        Ok((entered.id, entered.instead_of))
    }

    /// So many connections, all trusted and past their first second.
    fn established(&mut self, peer: &str, many: usize) -> Vec<Id> {
        let enter = |_| {
            let (id, instead_of) = self.enter(peer).unwrap();
            assert_eq!(instead_of, None);
            self.answer(id);
            id
        };
        let ids = (0..many).map(enter).collect();
        self.now += SECOND;
        ids
    }

    fn answer(&mut self, id: Id) {
        self.limiter.begin_request(id);
        self.limiter.end_request(id, true);
    }

    fn is_empty(&self) -> bool {
        self.limiter.connections.is_empty()
            && self.limiter.sources.is_empty()
            && self.limiter.holdings.is_empty()
    }
}

fn source(peer: &str) -> Source {
    peer.parse::<std::net::IpAddr>().unwrap().into()
}

fn evicted(id: Id, victim: Id) -> LetIn {
    (id, Some((Rejection::Evicted, victim)))
}

fn per_address(id: Id, victim: Id) -> LetIn {
    (id, Some((Rejection::PerAddress, victim)))
}

#[test]
fn a_full_listener_takes_the_newest_idle_connection_of_the_largest_source() {
    let mut listener = Listener::new(6, 6);
    listener.established("10.0.0.1", 2);
    let largest = listener.established("10.0.0.2", 4);
    listener.limiter.begin_request(largest[3]);
    assert_eq!(listener.enter("10.0.0.3"), Ok(evicted(7, largest[2])));
    assert_eq!(listener.enter("10.0.0.1"), Ok(evicted(8, largest[1])));
    // When it ends by itself later, it is not counted again.
    listener.limiter.leave(largest[2]);
    assert_eq!(listener.limiter.connections.len(), 6);
}

#[test]
fn a_source_never_loses_to_one_that_holds_as_many() {
    let mut listener = Listener::new(4, 4);
    listener.established("10.0.0.1", 2);
    listener.established("10.0.0.2", 2);
    // Either gives up one of its own.
    assert_eq!(listener.enter("10.0.0.1"), Ok(evicted(5, 2)));
    assert_eq!(listener.enter("10.0.0.2"), Ok(evicted(6, 4)));
}

#[test]
fn a_source_at_its_limit_gives_up_one_of_its_own() {
    let mut listener = Listener::new(100, 8);
    listener.established("10.0.0.2", 8);
    listener.established("10.0.0.1", 8);
    assert_eq!(listener.enter("10.0.0.1"), Ok(per_address(17, 16)));
    // The one that just came is in its first second, and older ones go instead, but never a senior.
    for victim in (11..=15).rev() {
        assert_eq!(listener.enter("10.0.0.1").unwrap().1.unwrap().1, victim);
    }
    assert_eq!(listener.enter("10.0.0.1"), Err(Rejection::PerAddress));
    assert_eq!(listener.enter("10.0.0.3"), Ok((23, None)));
}

#[test]
fn a_newcomer_never_closes_a_busy_connection_or_a_senior_of_its_own_source() {
    let mut listener = Listener::new(100, 8);
    let ids = listener.established("10.0.0.1", 8);
    for busy in &ids[2..] {
        listener.limiter.begin_request(*busy);
    }
    assert_eq!(listener.enter("10.0.0.1"), Err(Rejection::PerAddress));
    listener.limiter.end_request(ids[4], false);
    assert_eq!(listener.enter("10.0.0.1"), Ok(per_address(9, ids[4])));
}

#[test]
fn connections_that_are_never_answered_are_no_seniors() {
    let mut listener = Listener::new(100, 4);
    for _ in 0..4 {
        let (id, _) = listener.enter("10.0.0.1").unwrap();
        listener.limiter.begin_request(id);
        listener.limiter.end_request(id, false);
    }
    listener.now += SECOND;
    for victim in (1..=4).rev() {
        assert_eq!(listener.enter("10.0.0.1").unwrap().1.unwrap().1, victim);
    }
}

#[test]
fn a_first_second_ends_early_only_to_make_shares_more_equal() {
    let mut listener = Listener::new(4, 4);
    for _ in 0..3 {
        listener.enter("10.0.0.1").unwrap();
        listener.now += Duration::from_millis(10);
    }
    listener.enter("10.0.0.2").unwrap();
    // The oldest, which had most of its chance.
    assert_eq!(listener.enter("10.0.0.2"), Ok(evicted(5, 1)));
    assert_eq!(listener.enter("10.0.0.3"), Ok(evicted(6, 4)));
    // Sources with one connection, and one that would then have none: not before the second is over.
    assert_eq!(listener.enter("10.0.0.1"), Err(Rejection::OverCapacity));
    listener.limiter.leave(2);
    listener.enter("10.0.0.4").unwrap();
    assert_eq!(listener.enter("10.0.0.5"), Err(Rejection::OverCapacity));
    listener.now += SECOND;
    assert_eq!(listener.enter("10.0.0.5"), Ok(evicted(8, 7)));
}

#[test]
fn seniors_stay_while_others_of_their_address_are_in_their_first_second() {
    let mut listener = Listener::new(8, 8);
    listener.established("10.0.0.1", 4);
    for _ in 0..4 {
        listener.enter("10.0.0.1").unwrap();
    }
    // A quarter of eight are two seniors, and of four one. Three connections have none.
    for (n, victim) in [4, 3, 2, 5, 6, 1].into_iter().enumerate() {
        let (_, instead_of) = listener.enter(&format!("10.0.0.{}", n + 2)).unwrap();
        assert_eq!(instead_of, Some((Rejection::Evicted, victim)));
    }
}

#[test]
fn a_64_has_one_limit_and_the_largest_address_in_it_pays() {
    let mut listener = Listener::new(100, 4);
    let hostile = listener.established("2001:db8::1", 4);
    let (honest, victim) = listener.enter("2001:db8::2").unwrap();
    assert_eq!(victim, Some((Rejection::PerAddress, hostile[3])));
    listener.limiter.begin_request(honest);
    listener.now += SECOND;
    // A newcomer from the hostile address gets none of its neighbour's.
    assert_eq!(
        listener.enter("2001:db8::1").unwrap().1.unwrap().1,
        hostile[2]
    );
    assert_eq!(listener.enter("2001:db8:0:1::1").unwrap().1, None);
}

#[test]
fn a_connection_that_was_closed_for_another_changes_nothing_more() {
    let mut listener = Listener::new(1, 1);
    listener.enter("10.0.0.1").unwrap();
    listener.now += SECOND;
    assert_eq!(listener.enter("10.0.0.2"), Ok(evicted(2, 1)));
    listener.limiter.begin_request(1);
    listener.limiter.end_request(1, true);
    listener.limiter.attach(1, 1);
    assert_eq!(listener.limiter.connections.len(), 1);
    listener.limiter.leave(1);
    listener.limiter.leave(2);
    assert!(listener.is_empty());
}

#[test]
fn closed_connections_leave_no_state() {
    let mut listener = Listener::new(100, 100);
    for n in 0..50 {
        let (id, _) = listener.enter(&format!("10.0.0.{n}")).unwrap();
        if n % 2 == 0 {
            listener.answer(id);
        }
        listener.limiter.leave(id);
        listener.limiter.leave(id);
    }
    assert!(listener.is_empty());
}
