//! The real webhooks on their real listener, in a process of their own, with hostile peers: honest callers are answered,
//! every limit holds, and no hostile connection remains. A soak also judges how much slower honest callers are answered,
//! with an optimized build: without optimization, the peers and the handshakes of the test would use up the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// That of the program: how much of what is freed an allocator keeps is its own affair.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod honest;
mod memory;
mod peers;
mod server;

use std::net::Ipv4Addr;
use std::time::Duration;

use honest::{Established, Quantiles};
use my_operator_rounds::{is_soak, lengths};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use peers::{Attack, Flood, Habit, overflows};
use server::Server;

/// What a busy machine adds to a call now and then, whatever else is connected.
const NOISE: Duration = Duration::from_millis(2);

/// What one source may hold of a listener's connections.
const PER_SOURCE: u64 = 256;

/// What a connection may take of the server's memory: a buffer of 16 KiB, and as much again for TLS and its task.
const MEMORY_PER_CONNECTION: usize = 32 * 1024;

/// In this time after the end of an attack all its connections are closed.
const GONE: Duration = Duration::from_secs(15);
/// Connections that the server has just closed, or is about to close, and still counts.
const JUST_ENDED: u64 = 50;

static RUNNING: RwLock<()> = RwLock::new(());

/// The turn of a test.
enum Turn {
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    Beside {
        _guard: RwLockReadGuard<'static, ()>,
    },
}

/// The turn of a test that judges how long calls take: no attacker of another test is to take the processors meanwhile.
fn alone() -> Turn {
    Turn::Alone {
        _guard: RUNNING.write(),
    }
}

/// The turn of any other test. In a short run these do not disturb each other: each has a server of its own. A soak
/// measures latencies in all of them.
fn turn() -> Turn {
    if is_soak() {
        return alone();
    }
    Turn::Beside {
        _guard: RUNNING.read(),
    }
}

/// Nothing by itself: what the tests start this program again for.
#[test]
fn the_server() {
    if std::env::var_os(server::ROLE).is_some() {
        server::run();
    }
}

/// Sixteen addresses of loopback's network, so that none has too many peers.
fn spread(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(n % 16).unwrap() + 1)
}

/// Whether an honest caller waited at most three times as long as without the attack, which only a soak judges.
fn bearable(attacked: &Quantiles, quiet: &Quantiles, beside: &Quantiles) -> bool {
    assert!(
        !(is_soak() && cfg!(debug_assertions)),
        "latencies are those of an optimized program: run `cargo test --release`, as `make soak` does"
    );
    !is_soak() || attacked.p99 <= 3 * quiet.p99.max(beside.p99).max(NOISE)
}

/// The limit of the latency holds for a machine that does nothing else. The machine of a test has other work, so a soak
/// calls a second server, which is not under attack, at the same time: it shows what that work adds.
#[test]
fn hostile_peers_cost_an_honest_caller_little_and_leave_nothing_behind() {
    let _turn = turn();
    let (mut server, control) = (Server::start(), Server::start());
    // The first calls are slow, and allocate what later ones reuse.
    honest::measure([&server, &control], Duration::from_secs(1));
    let quiet_memory = server.resident();
    let mut found = String::new();
    let held = (0..lengths::hostile_rounds()).any(|_| {
        let [quiet, _] = honest::measure([&server, &control], lengths::hostile_phase());
        let attack = Attack::start(&server, |peers| {
            for (habit, many) in [
                (Habit::Silent, 300),
                (Habit::HalfHandshake, 200),
                (Habit::SlowBody, 200),
                (Habit::Reconnecting, 50),
            ] {
                peers.extend((0..many).map(|n| (habit, spread(n))));
            }
        });
        attack.at_full_strength();
        let open = server.counted("open");
        assert!(open >= 600, "only {open} connections are open");
        let [attacked, beside] = honest::measure([&server, &control], lengths::hostile_phase());
        let memory = server.resident();
        attack.end(GONE);
        server.until("open", 0);
        let round = format!(
            "quiet: {quiet}\nattacked: {attacked}\nbeside it: {beside}\nmemory: {} kB, then {} kB\n",
            quiet_memory / 1024,
            memory / 1024,
        );
        eprint!("{round}");
        found += &round;
        bearable(&attacked.kept, &quiet.kept, &beside.kept)
            && bearable(&attacked.fresh, &quiet.fresh, &beside.fresh)
            && memory <= quiet_memory + usize::try_from(open).unwrap() * MEMORY_PER_CONNECTION
    });
    assert!(held, "{found}");
    // The server closed connections for these reasons, and rejected no connection.
    for reason in ["handshake_timeout", "handshake_failed", "body_timeout"] {
        assert!(server.counted(reason) > 0, "{reason}");
    }
    for reason in ["over_capacity", "per_address", "evicted"] {
        assert_eq!(server.counted(reason), 0, "{reason}");
    }
    assert_eq!(server.counted("panics"), 0);
}

#[test]
fn an_attacker_on_one_address_keeps_no_other_out() {
    let _turn = turn();
    let mut server = Server::start();
    let attack = Attack::start(&server, |peers| {
        peers.extend((0..400).map(|_| (Habit::Silent, Ipv4Addr::new(127, 0, 1, 1))));
    });
    attack.at_full_strength();
    // Every call succeeds, or this panics.
    let [honest] = honest::measure([&server], lengths::hostile_phase());
    eprintln!("{honest}, beside 400 of one address");
    let open = server.counted("open");
    assert!(
        (50..=PER_SOURCE + JUST_ENDED).contains(&open),
        "{open} are open"
    );
    assert!(server.counted("per_address") > 0);
    assert_eq!(server.counted("evicted"), 0);
    attack.end(GONE);
    server.until("open", 0);
}

#[test]
fn a_full_listener_still_lets_the_honest_in() {
    let _turn = turn();
    let mut server = Server::start();
    let attack = Attack::start(&server, |peers| {
        peers.extend((0..1400).map(|n| (Habit::Silent, spread(n))));
    });
    attack.at_full_strength();
    let [honest] = honest::measure([&server], lengths::hostile_phase());
    eprintln!("{honest}, beside 1,400 of 16 addresses");
    let open = server.counted("open");
    assert!((500..=1000 + JUST_ENDED).contains(&open), "{open} are open");
    assert!(server.counted("evicted") > 0);
    attack.end(GONE);
    server.until("open", 0);
}

/// Where the hostile peers of one address are.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// Over a thousand peers of every kind, and a thousand connections a second (in a soak, two thousand), all from one
/// address.
fn every_kind_from(from: Ipv4Addr) -> impl FnOnce(&mut Vec<(Habit, Ipv4Addr)>) {
    move |peers| {
        for (habit, many) in [
            (Habit::Trusted, 1000),
            (Habit::Silent, 60),
            (Habit::HalfHandshake, 60),
            (Habit::SlowBody, 60),
            (Habit::SlowReader, 20),
            (Habit::Reconnecting, 60),
            (Habit::Churning, lengths::hostile_churn() / 50),
        ] {
            peers.extend((0..many).map(|_| (habit, from)));
        }
    }
}

#[test]
fn every_kind_of_hostile_peer_on_one_address_keeps_no_other_out() {
    let _turn = turn();
    let (mut server, control) = (Server::start(), Server::start());
    honest::measure([&server, &control], Duration::from_secs(1));
    let mut found = String::new();
    let held = (0..lengths::hostile_rounds()).any(|_| {
        let [quiet, _] = honest::measure([&server, &control], lengths::hostile_phase());
        let attack = Attack::start(&server, every_kind_from(HOSTILE));
        attack.at_full_strength();
        // Every call succeeds, or this panics.
        let [attacked, beside] = honest::measure([&server, &control], lengths::hostile_siege());
        let open = server.counted("open");
        // In each second, as many as a source may hold are closed for newcomers, and are still counted for a moment.
        assert!((50..=2 * PER_SOURCE).contains(&open), "{open} are open");
        attack.end(GONE);
        server.until("open", 0);
        let round = format!("quiet: {quiet}\nattacked: {attacked}\nbeside it: {beside}\n");
        eprint!("{round}");
        found += &round;
        bearable(&attacked.kept, &quiet.kept, &beside.kept)
            && bearable(&attacked.fresh, &quiet.fresh, &beside.fresh)
    });
    assert!(held, "{found}");
    assert!(server.counted("per_address") > 0);
    for reason in ["over_capacity", "evicted"] {
        assert_eq!(server.counted(reason), 0, "{reason}");
    }
}

#[test]
fn every_kind_of_hostile_peer_on_one_address_stops_no_probe() {
    let _turn = turn();
    let server = Server::start();
    let attack = Attack::on_probes(&server, every_kind_from(HOSTILE));
    attack.at_full_strength();
    let probes = honest::probe(&server, lengths::hostile_siege());
    eprintln!("{probes} probes were answered");
    attack.end(GONE);
}

/// Half of the established connections are in use all the time, half only before and after the attack.
#[test]
fn hostile_peers_behind_the_same_address_close_no_established_connection() {
    let _turn = turn();
    let mut server = Server::start();
    let mut established = Established::new(&server, HOSTILE, 20);
    let attack = Attack::start(&server, every_kind_from(HOSTILE));
    attack.at_full_strength();
    established.use_half(lengths::hostile_siege());
    established.use_once();
    attack.end(GONE);
    established.use_once();
    assert!(server.counted("per_address") > 0);
    drop(established);
    server.until("open", 0);
}

/// New connections of one address, faster than their handshakes can be computed: others are answered all the same, and
/// the kernel's queue, which is one for all, never fills up.
#[test]
fn a_flood_of_handshakes_from_one_address_delays_no_other() {
    let _turn = alone();
    let server = Server::start();
    honest::measure([&server], Duration::from_secs(1));
    let (rate, time) = (lengths::flood_of_hellos(), lengths::flood_time());
    let before = overflows();
    let flood = Flood::of_hellos(&server, HOSTILE, rate);
    let (mut calls, probes) = std::thread::scope(|scope| {
        let probes = scope.spawn(|| honest::probe(&server, time));
        (honest::hundred(&server, time), probes.join())
    });
    let opened = flood.end();
    calls.sort_unstable();
    let (overflowed, longest) = (overflows() - before, calls[calls.len() - 1]);
    eprintln!(
        "{opened:.0} handshakes a second: {overflowed} overflows, {probes:?} probes, {} calls, p50 {:.1?}, at most {longest:.1?}",
        calls.len(),
        calls[calls.len() / 2],
    );
    assert!(probes.is_ok());
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(overflowed, 0);
}

/// The same on a listener without TLS, with nothing but connections.
#[test]
fn a_flood_of_connections_from_one_address_stops_no_probe() {
    let _turn = turn();
    let server = Server::start();
    let before = overflows();
    let rate = lengths::flood_of_connections();
    let flood = Flood::of_connections(server.probes, HOSTILE, rate);
    let probes = honest::probe(&server, lengths::flood_time());
    let opened = flood.end();
    let overflowed = overflows() - before;
    eprintln!("{opened:.0} connections a second: {overflowed} overflows, {probes} probes");
    assert_eq!(overflowed, 0);
}

/// As many connections as a source may have, and on each requests without a pause.
#[test]
fn busy_callers_on_one_address_delay_no_other() {
    let _turn = alone();
    let server = Server::start();
    honest::measure([&server], Duration::from_secs(1));
    let attack = Attack::start(&server, |peers| {
        peers.extend((0..PER_SOURCE).map(|_| (Habit::Busy, HOSTILE)));
    });
    attack.at_full_strength();
    let mut calls = honest::hundred(&server, lengths::flood_time());
    attack.end(GONE);
    calls.sort_unstable();
    let longest = calls[calls.len() - 1];
    eprintln!(
        "beside busy callers: p50 {:.1?}, at most {longest:.1?}",
        calls[calls.len() / 2]
    );
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}
