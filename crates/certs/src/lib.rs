//! The certificates of the webhook: signing, rotation, and publication of the CA.
//!
//! [`CertManager`] keeps a CA in a Secret that all replicas share, signs this process's own leaf in memory, and
//! publishes the CA to the API server in the webhook configurations. [`Files`] serves certificates that another program
//! puts into a folder instead. Both provide the certificate for the TLS listener, and a [`State`] for readiness and
//! metrics.
//!
//! The decisions ([`rotation`]) and the cryptography ([`authority`]) are pure. [`secret`] and [`bundle`] are the thin
//! layer over the API server.

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

use my_operator_runtime::client::call;

/// What can go wrong with the certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making or reading a certificate or key.
    #[error(transparent)]
    Certificate(#[from] authority::Error),
    /// A call to the API server.
    #[error(transparent)]
    Call(#[from] call::Error),
    /// Inconsistent periods.
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
