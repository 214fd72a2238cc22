//! Random choices out of a seed that replays.

use std::hash::{BuildHasher as _, RandomState};

/// A sequence that its seed fixes.
pub struct Random(fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(0..n)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn one<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        self.0.shuffle(list);
    }
}

/// Runs cases with seeds of their own, other ones each time; or, with `MY_OPERATOR_TEST_SEED`, that
/// one alone. A case that fails prints its seed.
pub fn cases(count: u64, case: impl Fn(&mut Random)) {
    struct Failing(u64);
    impl Drop for Failing {
        fn drop(&mut self) {
            if std::thread::panicking() {
                println!("replay with MY_OPERATOR_TEST_SEED={}", self.0);
            }
        }
    }
    let run = |seed| {
        let _failing = Failing(seed);
        case(&mut Random::new(seed));
    };
    if let Ok(seed) = std::env::var("MY_OPERATOR_TEST_SEED") {
        return run(seed.parse().unwrap());
    }
    let start = RandomState::new().hash_one(()) >> 16;
    (start..start + count).for_each(run);
}
