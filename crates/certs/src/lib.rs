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
mod bundle;
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
#[cfg(test)]
mod simulated;
mod verify;
mod watching;

pub use bundle::{BundleTarget, Named};
pub use cert_manager::{CertManager, Settings};
pub use error::Error;
pub use files::Files;
pub use rotation::Periods;
pub use self_signed::SelfSigned;
pub use served::{ServedCertificate, State};
