//! Random choices out of a seed that replays.

use std::hash::{BuildHasher as _, RandomState};

/// A sequence that its seed fixes (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap();
        usize::try_from(self.next() % n).unwrap()
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn one<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
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
