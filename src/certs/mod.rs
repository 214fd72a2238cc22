//! Certificates of the webhook: who signs them, when they change, and who must know.
//!
//! [`CertManager`] keeps a CA in a Secret that all replicas share, signs this process's own leaf in
//! memory, and tells the API server (through the webhook configurations) whom to trust. [`Files`]
//! serves what someone else puts into a folder instead. Both hand out the same two things: what the
//! TLS listener presents, and a [`State`] for readiness and metrics.
//!
//! The decisions are pure ([`rotation`]), so is the cryptography ([`authority`]); [`secret`] and
//! [`bundle`] are the thin edge towards the API server.

pub mod authority;
pub mod bundle;
pub mod clocks;
pub mod drift;
pub mod files;
mod keeper;
pub mod rotation;
pub mod secret;
mod self_signed;
mod served;
#[cfg(test)]
mod simulated;
mod watching;

pub use bundle::{BundleTarget, Named};
pub use files::Files;
pub use keeper::{CertManager, Settings};
pub use rotation::Periods;
pub use self_signed::SelfSigned;
pub use served::{ServedCertificate, State};

use crate::client::call;

/// What can go wrong with the certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making or reading a certificate or key.
    #[error(transparent)]
    Certificate(#[from] authority::Error),
    /// A call to the API server.
    #[error(transparent)]
    Call(#[from] call::Error),
    /// Periods that cannot work together.
    #[error(transparent)]
    Periods(#[from] rotation::PeriodsError),
    /// A file that cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// A static word for metrics and Events.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Certificate(error) => error.category(),
            Self::Call(error) => error.category(),
            Self::Periods(error) => error.category(),
            Self::File { .. } => "file",
        }
    }
}
