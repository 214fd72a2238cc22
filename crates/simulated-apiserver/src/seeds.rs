//! The seeds of random tests.
//!
//! Every run draws fresh seeds, so that a hundred short runs cover more than one long run. One variable replays a
//! failure, whatever the test: `SEED=<number>`, which the failing test prints. Another, `FIRST_SEED=<number>`, makes a
//! run draw the same seeds as the one before, so that a failure is due to a change. `SOAK=1` asks for long runs.

/// Whether the long versions run: `SOAK=1`.
pub fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

/// The length of a test: `long` in a soak, else `short`.
pub fn length<T>(short: T, long: T) -> T {
    if is_soak() { long } else { short }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
