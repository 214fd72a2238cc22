//! How long the random and repeated tests run, and how they are seeded.
//!
//! A test that repeats something at random has two lengths: a short one for every run, and a long one for
//! `make soak`. Both are in [`lengths`], so that one page shows what a normal run covers and what only a soak
//! covers. The oracle is the same for both.
//!
//! The seeds are those of [`simulated_apiserver::seeds`]. CI sets `FIRST_SEED`, so that a failure there is due to the change.
//! Crates that are published have the lengths of their tests beside these.

pub mod large;
pub mod lengths;

use std::time::{Duration, Instant};

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
pub use simulated_apiserver::seeds::{cases, given_seed, is_soak, parallel_cases, seed};

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
}
