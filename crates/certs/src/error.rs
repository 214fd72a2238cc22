//! What can go wrong with the certificates.

use super::{authority, call, rotation};

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
