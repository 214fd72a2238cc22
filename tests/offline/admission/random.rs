//! Random choices that a seed determines.

use my_operator::kinds::{Kind, REGISTRY};
use my_operator_rounds::{lengths, seed};

/// Random choices from one seed.
pub struct Random(pub fastrand::Rng);

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

/// Runs `count` random cases; a case that fails prints its seed.
pub fn cases(count: u64, case: impl Fn(&mut Random)) {
    my_operator_rounds::cases(count, |seed| case(&mut Random::new(seed)));
}

/// Some kinds of the registry, for expensive tests of code that all kinds share: one in a short run, all in a soak.
pub fn some_kinds() -> Vec<&'static Kind> {
    let mut kinds = REGISTRY.to_vec();
    Random::new(seed("the choice of kinds")).shuffle(&mut kinds);
    kinds.truncate(lengths::expensive_kinds());
    kinds
}
