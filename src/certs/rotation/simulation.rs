//! Years of several replicas that race, sleep at the worst moment, and crash.
//!
//! Each replica does what the keeper does, cut into the single steps between which anything may
//! happen: read the configuration, read the Secret, sign, publish, write. An observer checks after
//! every step what must hold at every instant.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use my_operator_rounds::{lengths, parallel_cases};

use super::*;

/// What stands in the API server.
struct Shared {
    held: Held,
    held_version: u64,
    published: Published,
    published_version: u64,
    /// Every bundle that was in force, with the time at which it came.
    history: VecDeque<(DateTime<Utc>, BTreeSet<Fingerprint>)>,
}

impl Shared {
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
    ReadConfiguration(DateTime<Utc>),
    ReadSecret(DateTime<Utc>, Published, u64),
    Sign(Box<Seen>),
    Publish(Box<Seen>, Step),
    Write(Box<Seen>, Step),
}

/// What a replica saw in this round.
struct Seen {
    began: DateTime<Utc>,
    published: Published,
    published_version: u64,
    held: Held,
    held_version: u64,
}

struct Replica {
    /// When its next step happens.
    at: DateTime<Utc>,
    /// How far its clock is ahead.
    skew: TimeDelta,
    periods: Periods,
    phase: Phase,
    leaf: Option<LeafFacts>,
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
            Phase::Begin => Phase::ReadConfiguration(clock),
            Phase::ReadConfiguration(began) => {
                Phase::ReadSecret(began, shared.published.clone(), shared.published_version)
            }
            Phase::ReadSecret(began, published, published_version) => {
                self.trusted
                    .retain(|known, _| published.everywhere.contains(known));
                for known in &published.everywhere {
                    self.trusted.entry(*known).or_insert(clock);
                }
                let (held, held_version) = (shared.held.clone(), shared.held_version);
                // For a new start, what is trusted must be known as of after the Secret was read.
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
                }))
            }
            Phase::Sign(seen) => {
                let step = self.decide(&seen);
                if let (true, Held::Authorities(authorities)) = (step.sign, &seen.held) {
                    let anchor = authorities.current.anchor();
                    self.leaf = Some(LeafFacts {
                        issuer: anchor.fingerprint(),
                        issued_at: seen.began,
                        not_after: (seen.began + periods.leaf_validity).min(anchor.not_after()),
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
                    && let Some(after) = change.apply(&seen.held, clock, &periods).unwrap()
                {
                    shared.held = Held::Authorities(after);
                    shared.held_version += 1;
                }
                // Sometimes a watch wakes it sooner.
                let rest = step.look_again - clock;
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
        let observed = Observed {
            held: &seen.held,
            published: Some(&seen.published),
            trusted: &self.trusted,
            leaf: self.leaf,
        };
        decide(observed, seen.began, &self.periods)
    }
}

/// What may go wrong in a simulation.
#[derive(Clone, Copy, Default)]
struct Mishaps {
    /// One step in this many ends with a crash.
    crash_one_in: Option<i64>,
    /// The Secret vanishes about this often.
    secret_lost_every: Option<TimeDelta>,
    /// The clock of the first replica is ahead by so much.
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
    let mut shared = Shared {
        held: Held::Missing,
        held_version: 0,
        published: Published::default(),
        published_version: 0,
        history: VecDeque::from([(start, BTreeSet::new())]),
    };
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
                    leaf.issued_at - BACKDATE <= now,
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
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
    parallel_cases(lengths::certificate_rotations(), |seed| {
        let crashes = Mishaps {
            crash_one_in: Some(60),
            ..Mishaps::default()
        };
        let signers = simulate(seed, &periods, TimeDelta::days(4), &crashes);
        assert!(signers >= 12, "{signers}");
    });
}
