//! The times of `kubectl at`, which the playground of the documentation reads, too.
//!
//! [`when`] reads them, [`moment`] has now and shows instants, [`zone`] is a time zone for chrono, and [`duration`] reads
//! durations.

pub mod duration;
pub mod moment;
pub mod when;
pub mod zone;
