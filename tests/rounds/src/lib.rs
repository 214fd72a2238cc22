//! How long the random and repeated tests run, and how they are seeded.
//!
//! A test that repeats something at random has two lengths: a short one for every run, and a long one for
//! `make soak`. Both are in [`lengths`], so that one page shows what a normal run covers and what only a soak
//! covers. The oracle is the same for both.
//!
//! Every run draws fresh seeds, so that a hundred short runs cover more than one long run. One variable replays a
//! failure, whatever the test: `SEED=<number>`, which the failing test prints. Another, `FIRST_SEED=<number>`, makes a
//! run draw the same seeds as the one before: CI sets it, so that a failure there is due to the change.

pub mod large;
pub mod lengths;

use std::time::{Duration, Instant};

pub use lengths::is_soak;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// The number in `SEED`, if it is set.
///
/// # Panics
///
/// Panics if `SEED` is set and is not a number: the test could not replay what was asked for.
pub fn given_seed() -> Option<u64> {
    variable("SEED")
}

#[expect(clippy::panic, reason = "for tests")]
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be an unsigned number, not {text:?}")))
}

/// A fresh seed; that of `FIRST_SEED`, if it is set.
fn fresh() -> u64 {
    variable("FIRST_SEED").map_or_else(
        || fastrand::u64(..),
        |first| fastrand::Rng::with_seed(first).u64(..),
    )
}

/// The seed of one random test: the number in `SEED`, or else a fresh one. It is printed, and cargo shows what a
/// failing test printed.
#[expect(clippy::print_stdout, reason = "for tests")]
pub fn seed(what: &str) -> u64 {
    let seed = given_seed().unwrap_or_else(fresh);
    println!("SEED={seed} replays {what}");
    seed
}

/// The configuration of a test with proptest: so many cases from [`seed`]. Nothing is written into the source
/// tree.
pub fn proptest_config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed("this")),
        failure_persistence: None,
        // Of what a test assumes away, there is the more the longer it runs.
        max_global_rejects: cases.max(1024),
        ..ProptestConfig::default()
    }
}

/// Runs `case` with `count` fresh seeds, in the calling thread; or, if `SEED` is set, with that seed alone. A case
/// that panics prints its seed.
pub fn cases(count: u64, mut case: impl FnMut(u64)) {
    if let Some(seed) = given_seed() {
        return case(seed);
    }
    let first = fresh() >> 16;
    for seed in first..first + count {
        replayable(seed, &mut case);
    }
}

/// Like [`cases`], on as many threads as the machine has cores, for cases that share nothing.
pub fn parallel_cases(count: u64, case: impl Fn(u64) + Sync) {
    if let Some(seed) = given_seed() {
        return case(seed);
    }
    let first = fresh() >> 16;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let seeds = (first..first + count).skip(thread).step_by(threads);
            let case = &case;
            scope.spawn(move || seeds.for_each(|seed| replayable(seed, case)));
        }
    });
}

fn replayable(seed: u64, mut case: impl FnMut(u64)) {
    struct Failing(u64);
    impl Drop for Failing {
        #[expect(clippy::print_stdout, reason = "for tests")]
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!("SEED={} replays this", self.0);
            }
        }
    }
    let _failing = Failing(seed);
    case(seed);
}

/// How long a repeated test goes on: for a length of time, but not before it has done a least number of rounds, so
/// that a slow machine does fewer rounds instead of taking longer.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    time: Duration,
    at_least: usize,
}

impl Budget {
    /// A budget of that much time and at least that many rounds.
    pub const fn new(time: Duration, at_least: usize) -> Self {
        Self { time, at_least }
    }

    /// How long it is meant to take.
    pub fn time(self) -> Duration {
        self.time
    }

    /// How many rounds it has at least.
    pub fn at_least(self) -> usize {
        self.at_least
    }

    /// Starts to spend it.
    pub fn start(self) -> Spending {
        Spending {
            budget: self,
            start: Instant::now(),
            rounds: 0,
        }
    }
}

/// A [`Budget`] that is being spent.
#[derive(Debug)]
pub struct Spending {
    budget: Budget,
    start: Instant,
    rounds: usize,
}

impl Spending {
    /// Whether there is another round. Counts it if there is.
    pub fn another(&mut self) -> bool {
        let another = self.rounds < self.budget.at_least || self.start.elapsed() < self.budget.time;
        self.rounds += usize::from(another);
        another
    }

    /// How many rounds there were.
    pub fn rounds(&self) -> usize {
        self.rounds
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_its_least_number_of_rounds_and_then_ends_with_its_time() {
        let mut spending = Budget::new(Duration::ZERO, 3).start();
        while spending.another() {}
        assert_eq!(spending.rounds(), 3);
        let mut spending = Budget::new(Duration::from_millis(20), 0).start();
        while spending.another() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!((1..=20).contains(&spending.rounds()), "{spending:?}");
    }

    #[test]
    fn cases_differ() {
        if given_seed().is_some() {
            return;
        }
        let mut seeds = std::collections::BTreeSet::new();
        cases(10, |seed| {
            seeds.insert(seed);
        });
        assert_eq!(seeds.len(), 10);
        let seeds = std::sync::Mutex::new(std::collections::BTreeSet::new());
        parallel_cases(100, |seed| {
            seeds.lock().unwrap().insert(seed);
        });
        assert_eq!(seeds.into_inner().unwrap().len(), 100);
    }
}
