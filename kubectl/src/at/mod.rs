//! `kubectl at`, `kubectl atq` and `kubectl atrm`.

pub mod queue;

mod moment;
mod object;
mod zone;
