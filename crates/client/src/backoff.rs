//! The pause between attempts at a call that fails.

use std::time::Duration;

/// A pause that each failure doubles, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Exponential {
    /// The pause after a failure that followed `earlier` others.
    pub fn after(self, earlier: u32) -> Duration {
        let factor = 2_u32.saturating_pow(earlier);
        self.first.saturating_mul(factor).min(self.max)
    }
}
