//! Years of several replicas that race, sleep at the worst moment, and crash.
//!
//! Each replica does what the certificate manager does, in single steps between which anything may happen: read the
//! configuration, read the Secret, sign, publish, write. An observer checks the invariants after every step.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use simulated_apiserver::seeds::{length, parallel_cases};

use super::*;

/// The state of the API server.
struct Shared {
    held: Held,
    held_version: u64,
    published: Published,
    published_version: u64,
    /// Every bundle that was in force, with the time at which it came.
    history: VecDeque<(DateTime<Utc>, BTreeSet<Fingerprint>)>,
    /// How far the API server's clock is ahead of the true time; `None` where its answers say no time.
    server_ahead: Option<TimeDelta>,
}

impl Shared {
    fn new(held: Held, start: DateTime<Utc>) -> Self {
        Self {
            held,
            held_version: 0,
            published: Published::default(),
            published_version: 0,
            history: VecDeque::from([(start, BTreeSet::new())]),
            server_ahead: Some(TimeDelta::zero()),
        }
    }

    /// What a machine and the API server take for the time at this true time.
    fn clocks(&self, local: DateTime<Utc>, now: DateTime<Utc>) -> Clocks {
        Clocks::new(local, self.server_ahead.map(|ahead| now + ahead))
    }

    fn publish(&mut self, bundle: Vec<Anchor>, now: DateTime<Utc>) {
        let everywhere: BTreeSet<_> = bundle.iter().map(Anchor::fingerprint).collect();
        self.history.push_back((now, everywhere.clone()));
        self.published = Published {
            everywhere,
            anywhere: bundle,
            stray: false,
        };
        self.published_version += 1;
    }

    /// Whether even an API server that learns of every change only after `lag` trusts `issuer`.
    fn trusted(&mut self, issuer: Fingerprint, now: DateTime<Utc>, lag: TimeDelta) -> bool {
        while self.history.len() > 1 && self.history[1].0 <= now - lag {
            self.history.pop_front();
        }
        self.history
            .iter()
            .all(|(_, bundle)| bundle.contains(&issuer))
    }
}

/// Where a replica is in its round.
enum Phase {
    Begin,
    ReadConfiguration(Began),
    ReadSecret(Began, Published, u64),
    Sign(Box<Seen>),
    Publish(Box<Seen>, Step),
    Write(Box<Seen>, Step),
}

/// When a round began.
#[derive(Clone, Copy)]
struct Began {
    clocks: Clocks,
    /// By a clock that cannot be set.
    at: DateTime<Utc>,
}

/// What a replica saw in this round.
struct Seen {
    began: Began,
    published: Published,
    published_version: u64,
    held: Held,
    held_version: u64,
    read_at: Clocks,
}

struct Replica {
    /// When its next step happens.
    at: DateTime<Utc>,
    /// How far its clock is ahead.
    skew: TimeDelta,
    periods: Periods,
    phase: Phase,
    leaf: Option<LeafFacts>,
    /// Since when it has seen each CA in every bundle, by a clock that cannot be set.
    trusted: BTreeMap<Fingerprint, DateTime<Utc>>,
}

impl Replica {
    fn new(at: DateTime<Utc>, skew: TimeDelta, periods: Periods) -> Self {
        Self {
            at,
            skew,
            periods,
            phase: Phase::Begin,
            leaf: None,
            trusted: BTreeMap::new(),
        }
    }

    /// Does one step, and returns how long it is until the next at the soonest, and whether the
    /// replica then sleeps.
    fn step(&mut self, shared: &mut Shared, random: &mut fastrand::Rng) -> TimeDelta {
        let periods = self.periods;
        let now = self.at;
        let clock = now + self.skew;
        let mut pause = TimeDelta::milliseconds(random.i64(0..2000));
        self.phase = match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => Phase::ReadConfiguration(Began {
                clocks: shared.clocks(clock, now),
                at: now,
            }),
            Phase::ReadConfiguration(began) => {
                Phase::ReadSecret(began, shared.published.clone(), shared.published_version)
            }
            Phase::ReadSecret(began, published, published_version) => {
                self.trusted
                    .retain(|known, _| published.everywhere.contains(known));
                for known in &published.everywhere {
                    self.trusted.entry(*known).or_insert(now);
                }
                let (held, held_version) = (shared.held.clone(), shared.held_version);
                // Before a new CA is created, the bundle must be read after the Secret.
                let (published, published_version) = match held {
                    Held::Authorities(_) => (published, published_version),
                    _ => (shared.published.clone(), shared.published_version),
                };
                Phase::Sign(Box::new(Seen {
                    began,
                    published,
                    published_version,
                    held,
                    held_version,
                    read_at: shared.clocks(clock, now),
                }))
            }
            Phase::Sign(seen) => {
                let step = self.decide(&seen);
                if let (true, Held::Authorities(authorities)) = (step.sign, &seen.held) {
                    let clocks = seen.began.clocks;
                    let validity = leaf_validity(&authorities.current, clocks, &periods);
                    assert!(validity.0 < validity.1, "a leaf ends before it begins");
                    self.leaf = Some(LeafFacts {
                        issuer: authorities.current.anchor().fingerprint(),
                        issued_at: clocks.local(),
                        not_before: validity.0,
                        not_after: validity.1,
                    });
                }
                Phase::Publish(seen, step)
            }
            Phase::Publish(seen, mut step) => {
                if let Some(bundle) = step.publish.take()
                    && seen.published_version == shared.published_version
                {
                    shared.publish(bundle, now);
                }
                Phase::Write(seen, step)
            }
            Phase::Write(seen, step) => {
                if let Some(change) = step.change
                    && seen.held_version == shared.held_version
                    && let Some(after) = change
                        .apply(&seen.held, shared.clocks(clock, now), &periods)
                        .unwrap()
                {
                    shared.held = Held::Authorities(after);
                    shared.held_version += 1;
                }
                // Sometimes a watch wakes it sooner.
                // And a clock that was set keeps it from sleeping for longer than it ever should.
                let rest = (step.next_decision - clock).min(longest_wait(&periods));
                pause += if random.i64(0..4) == 0 {
                    rest / 3
                } else {
                    rest
                }
                .max(TimeDelta::zero());
                Phase::Begin
            }
        };
        pause
    }

    fn decide(&self, seen: &Seen) -> Step {
        let trusted = self.trusted.iter();
        let trusted = trusted.map(|(known, since)| (*known, seen.began.at - *since));
        let observed = Observed {
            held: &seen.held,
            published: Some(&seen.published),
            trusted: &trusted.collect(),
            leaf: self.leaf,
            read_at: seen.read_at,
        };
        decide(observed, seen.began.clocks, &self.periods)
    }
}

/// What may go wrong in a simulation.
#[derive(Clone, Copy, Default)]
struct Mishaps {
    /// One step in this many ends with a crash.
    crash_one_in: Option<i64>,
    /// The Secret vanishes about this often.
    secret_lost_every: Option<TimeDelta>,
    /// How far the clock of the first replica is ahead.
    ahead: Option<TimeDelta>,
    /// The first replica is of another version, with other periods.
    others: Option<Periods>,
}

impl Mishaps {
    /// How far the clock of a replica is ahead.
    fn skew(&self, replica: usize, random: &mut fastrand::Rng) -> TimeDelta {
        let little = TimeDelta::seconds(random.i64(0..11) - 5);
        match self.ahead {
            Some(ahead) if replica == 0 => ahead,
            _ => little,
        }
    }
}

/// Runs it, and returns how many CAs have signed.
fn simulate(seed: u64, periods: &Periods, length: TimeDelta, mishaps: &Mishaps) -> usize {
    periods.check().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut shared = Shared::new(Held::Missing, start);
    let mut replicas: Vec<_> = (0..3)
        .map(|i| {
            let at = start + TimeDelta::seconds(random.i64(0..5));
            let own = mishaps.others.filter(|_| i == 0).unwrap_or(*periods);
            Replica::new(at, mishaps.skew(i, &mut random), own)
        })
        .collect();
    let shortest = |of: fn(&Periods) -> TimeDelta| {
        let others = mishaps.others.as_ref().map_or(TimeDelta::MAX, of);
        others.min(of(periods))
    };
    // API servers may lag by the propagation time, less what clocks and slow steps eat up of it.
    let lag = shortest(|periods| periods.propagation) - TimeDelta::seconds(15);
    // One that sleeps for longer than the leaves of another version live may wake up too late.
    let longest_sleep = match mishaps.others {
        Some(_) => shortest(|periods| periods.leaf_validity) / 4,
        None => TimeDelta::MAX,
    };
    let settled = start + periods.propagation * 5;
    let mut signers = BTreeSet::new();
    let mut lose_at = mishaps.secret_lost_every.map(|every| settled + every);

    loop {
        let (i, replica) = replicas
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, replica)| replica.at)
            .unwrap();
        let now = replica.at;
        if now > start + length {
            return signers.len();
        }
        let pause = replica.step(&mut shared, &mut random);
        replica.at += pause + TimeDelta::milliseconds(1);
        if let Some(leaf) = replica.leaf
            && random.i64(0..50) == 0
        {
            // Cut off from the API server, or asleep, in the midst of a round; it comes back just in
            // time to renew its leaf.
            let clocks = mishaps.ahead.unwrap_or_default().abs();
            let margin = periods.propagation + TimeDelta::minutes(5) + clocks;
            let longest = (leaf.not_after - replica.at - margin).min(longest_sleep);
            replica.at += TimeDelta::seconds(random.i64(0..longest.num_seconds().max(1)));
        }
        if now > settled && mishaps.crash_one_in.is_some_and(|n| random.i64(0..n) == 0) {
            // It comes back with an empty memory, at once or much later, perhaps elsewhere; but never
            // are all away for so long that the CA expires.
            let long = (periods.ca_validity / 10).num_seconds();
            let down = TimeDelta::seconds(if random.i64(0..3) == 0 {
                random.i64(0..long)
            } else {
                2
            });
            *replica = Replica::new(now + down, mishaps.skew(i, &mut random), replica.periods);
        }
        if let (Some(at), Some(every)) = (lose_at, mishaps.secret_lost_every)
            && now > at
        {
            shared.held = Held::Missing;
            shared.held_version += 1;
            lose_at = Some(now + TimeDelta::seconds(random.i64(0..2 * every.num_seconds())));
        }

        // What must hold at every instant, for every replica that serves.
        for replica in &replicas {
            let Some(leaf) = replica.leaf else { continue };
            signers.insert(leaf.issuer);
            if now > settled {
                let past = now - start;
                assert!(
                    leaf.not_after > now,
                    "an expired leaf is served, seed {seed}, {past}"
                );
                assert!(
                    leaf.not_before <= now,
                    "a leaf of the future is served, seed {seed}, {past}"
                );
                assert!(
                    shared.trusted(leaf.issuer, now, lag),
                    "a leaf is served whose CA is not trusted everywhere, seed {seed}, {past}"
                );
            }
        }
        assert!(
            shared.published.anywhere.len() <= KEPT_AT_MOST + 2,
            "seed {seed}"
        );
    }
}

#[test]
fn through_years_with_crashes_every_served_leaf_is_trusted_at_every_instant() {
    let periods = Periods {
        propagation: TimeDelta::minutes(30),
        ..Periods::default()
    };
    parallel_cases(length(8, 100), |seed| {
        let crashes = Mishaps {
            crash_one_in: Some(200),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(365 * 3), &crashes);
        assert_eq!(signers, 5, "one, and four changes in three years");
    });
}

#[test]
fn with_short_periods_and_many_crashes_every_served_leaf_is_trusted_at_every_instant() {
    let periods = Periods {
        leaf_validity: TimeDelta::hours(2),
        ca_validity: TimeDelta::hours(7),
        propagation: TimeDelta::seconds(60),
    };
    parallel_cases(length(8, 100), |seed| {
        let crashes = Mishaps {
            crash_one_in: Some(60),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(4), &crashes);
        assert!(signers >= 12, "{signers}");
    });
}

#[test]
fn when_the_secret_is_lost_again_and_again_every_served_leaf_stays_trusted() {
    let periods = Periods {
        leaf_validity: TimeDelta::hours(2),
        ca_validity: TimeDelta::hours(7),
        propagation: TimeDelta::seconds(60),
    };
    parallel_cases(length(8, 100), |seed| {
        // Without crashes: a replica that lost both its leaf and the Secret has nothing old to show.
        let losses = Mishaps {
            secret_lost_every: Some(TimeDelta::minutes(40)),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(2), &losses);
        assert!(signers >= 30, "{signers}");
    });
}

#[test]
fn with_one_clock_an_hour_off_every_served_leaf_is_trusted_at_every_instant() {
    let periods = Periods {
        propagation: TimeDelta::minutes(30),
        ..Periods::default()
    };
    parallel_cases(length(8, 100), |seed| {
        for hours in [-1, 1] {
            let wrong = Mishaps {
                crash_one_in: Some(200),
                ahead: Some(TimeDelta::hours(hours)),
                ..Mishaps::default()
            };
            let signers = simulate(seed, &periods, TimeDelta::days(365 * 2), &wrong);
            assert!(signers >= 3, "{signers}");
        }
    });
}

#[test]
fn with_two_versions_at_once_every_served_leaf_is_trusted_at_every_instant() {
    let periods = Periods {
        propagation: TimeDelta::minutes(30),
        ..Periods::default()
    };
    let others = Periods {
        leaf_validity: TimeDelta::days(1),
        ca_validity: TimeDelta::days(90),
        propagation: TimeDelta::minutes(10),
    };
    parallel_cases(length(8, 100), |seed| {
        let two = Mishaps {
            crash_one_in: Some(200),
            others: Some(others),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(365), &two);
        assert!(signers >= 2, "{signers}");
    });
}

#[test]
fn with_the_shortest_periods_allowed_every_served_leaf_is_trusted_at_every_instant() {
    let (leaf_validity, propagation) = (TimeDelta::hours(2), TimeDelta::seconds(60));
    let periods = Periods {
        ca_validity: leaf_validity * 2 + propagation * 3,
        leaf_validity,
        propagation,
    };
    parallel_cases(length(8, 100), |seed| {
        let crashes = Mishaps {
            crash_one_in: Some(60),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(4), &crashes);
        assert!(signers >= 12, "{signers}");
    });
}

/// Whose clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// That of the first replica.
    Replica,
    /// That of the API server.
    Server,
    /// Any of them, and the API server may say no time at all.
    Any,
}

/// A clock that is right, or wrong by anything from hours to years.
fn wrong_by(random: &mut fastrand::Rng) -> TimeDelta {
    let hours = [0, 2, 20, 30, 4 * 24, 40 * 24, 300 * 24, 400 * 24, 4000 * 24][random.usize(0..9)];
    let jitter = TimeDelta::seconds(random.i64(0..11) - 5);
    TimeDelta::hours(if random.bool() { hours } else { -hours }) + jitter
}

/// Sets clocks at random for a while, then sets all of them right, and expects that everything is as it should
/// be soon after. As long as one clock alone is wrong, nothing may happen to replicas whose clock is right.
fn set_clocks(seed: u64, wrong: Wrong) {
    let periods = Periods {
        propagation: TimeDelta::minutes(10),
        ..Periods::default()
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    let settled = start + periods.propagation * 5;
    let length = match wrong {
        // Two that do not agree replace each other's CA every few seconds.
        Wrong::Any => TimeDelta::seconds(random.i64(0..6 * 3600)),
        _ => TimeDelta::seconds(random.i64(0..20 * 86_400)),
    };
    let right_again = settled + length;
    let healed = right_again + periods.propagation * 5;
    let end = healed + periods.leaf_validity * 2;

    let age = TimeDelta::days(random.i64(0..300));
    let found = || {
        let current = Arc::new(Authority::generate(start - age, periods.ca_validity).unwrap());
        Held::Authorities(Authorities {
            current,
            next: None,
            previous: None,
        })
    };
    let held = if random.bool() {
        found()
    } else {
        Held::Missing
    };
    let mut shared = Shared::new(held, start);
    let mut replicas: Vec<_> = (0..3)
        .map(|_| {
            let skew = TimeDelta::seconds(random.i64(0..11) - 5);
            Replica::new(start, skew, periods)
        })
        .collect();
    if wrong == Wrong::Any {
        // Wrong from the first start on, for once.
        for replica in &mut replicas {
            replica.skew = wrong_by(&mut random);
        }
        shared.server_ahead = random.bool().then(|| wrong_by(&mut random));
    }
    let lag = periods.propagation - TimeDelta::seconds(30);
    let mut are_right = false;

    loop {
        let (i, replica) = replicas
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, replica)| replica.at)
            .unwrap();
        let now = replica.at;
        if now > end {
            break;
        }
        if now >= right_again && !are_right {
            are_right = true;
            // That its answers say no time may last.
            shared.server_ahead = shared.server_ahead.map(|_| TimeDelta::zero());
            for replica in &mut replicas {
                replica.skew = TimeDelta::seconds(random.i64(0..11) - 5);
            }
            continue;
        }
        if now > settled && !are_right && random.i64(0..40) == 0 {
            let by = wrong_by(&mut random);
            match wrong {
                Wrong::Replica if i == 0 => replica.skew = by,
                Wrong::Replica => {}
                Wrong::Server => shared.server_ahead = Some(by),
                Wrong::Any if random.bool() => replica.skew = by,
                Wrong::Any => shared.server_ahead = random.bool().then_some(by),
            }
        }
        if now > settled && !are_right && (i == 0 || wrong == Wrong::Any) && random.i64(0..200) == 0
        {
            // One that starts has no leaf to fall back on.
            *replica = Replica::new(now, replica.skew, periods);
        }
        let pause = replica.step(&mut shared, &mut random);
        replica.at += pause + TimeDelta::milliseconds(1);

        let past = now - start;
        if now > settled
            && wrong != Wrong::Any
            && let Held::Authorities(held) = &shared.held
        {
            let current = held.current.anchor();
            assert!(
                current.not_before() <= now && current.not_after() > now,
                "the CA is not valid, {wrong:?}, seed {seed}, {past}"
            );
        }
        for (i, replica) in replicas.iter().enumerate() {
            let never_wrong = wrong != Wrong::Any && i > 0;
            let is_right = now > healed || now > settled && never_wrong;
            if !is_right {
                continue;
            }
            let place = format!("{wrong:?}, seed {seed}, replica {i}, {past}, {healed}");
            let Some(leaf) = replica.leaf else {
                unreachable!("no leaf, {place}")
            };
            assert_eq!(leaf.fault(now), None, "{place}");
            assert!(
                shared.trusted(leaf.issuer, now, lag),
                "its CA is not trusted, {place}"
            );
            let anchors = shared.published.anywhere.iter();
            let mut issuer = anchors.filter(|anchor| anchor.fingerprint() == leaf.issuer);
            let valid = |anchor: &Anchor| anchor.not_before() <= now && anchor.not_after() > now;
            assert!(issuer.any(valid), "its CA is not valid, {place}");
        }
    }
    let Held::Authorities(held) = &shared.held else {
        unreachable!("seed {seed}: {:?}", shared.held)
    };
    if let Some(previous) = &held.previous {
        let longest = periods.leaf_validity + periods.propagation * 2 + TOLERANCE;
        assert!(
            previous.drop_at <= end + longest,
            "seed {seed}: {previous:?}"
        );
    }
}

#[test]
fn one_replica_with_a_wrong_clock_harms_no_other() {
    parallel_cases(length(24, 400), |seed| {
        set_clocks(seed, Wrong::Replica);
    });
}

#[test]
fn an_api_server_with_a_wrong_clock_harms_no_replica() {
    parallel_cases(length(24, 400), |seed| {
        set_clocks(seed, Wrong::Server);
    });
}

#[test]
fn effects_of_wrong_clocks_end_soon_after_the_clocks_are_right() {
    parallel_cases(length(24, 400), |seed| {
        set_clocks(seed, Wrong::Any);
    });
}
