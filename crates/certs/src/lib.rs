#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod authority;
mod bundle;
pub mod call;
mod cert_manager;
mod clocks;
pub mod drift;
mod error;
pub mod files;
pub mod inspect;
mod rotation;
mod secret;
mod self_signed;
mod served;
mod server_clock;
#[cfg(test)]
mod simulated;
mod verify;
mod watching;

pub use bundle::{BundleTarget, Named};
pub use cert_manager::{CertManager, Settings};
pub use clocks::Clock;
pub use error::Error;
pub use files::Files;
pub use rotation::{Periods, PeriodsError};
pub use self_signed::SelfSigned;
pub use served::{ServedCertificate, State};
pub use server_clock::{Noting, ServerClock};
