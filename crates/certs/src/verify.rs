//! What a verifier says of a chain: who signed it, and for which names it is good.

use std::time::Duration;

use chrono::{DateTime, Utc};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};

use super::authority::Anchor;

/// Whether a verifier that trusts `anchors` finds a path from them to the first certificate of `chain`.
pub(crate) fn is_trusted(
    chain: &[CertificateDer<'static>],
    anchors: &[Anchor],
    now: DateTime<Utc>,
) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return false;
    };
    if anchors.iter().any(|anchor| anchor.certificate() == leaf) {
        return true;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(anchors.iter().map(|a| a.certificate().clone()));
    let now = u64::try_from(now.timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let algorithms = rustls::crypto::aws_lc_rs::default_provider();
    let algorithms = algorithms.signature_verification_algorithms.all;
    let verified = ParsedCertificate::try_from(leaf).and_then(|leaf| {
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, intermediates, now, algorithms)
    });
    // Go's verifier accepts some certificates that this one rejects, so other errors do not count.
    !matches!(
        verified,
        Err(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature
        ))
    )
}

/// Whether a certificate is for one of these hosts; any certificate is, if none of them is a name.
pub(crate) fn fits(leaf: &CertificateDer<'_>, hosts: &[String]) -> bool {
    let parsed = ParsedCertificate::try_from(leaf);
    let names = hosts
        .iter()
        .filter_map(|host| ServerName::try_from(host.as_str()).ok());
    let mut names = names.peekable();
    names.peek().is_none()
        || names.any(|name| {
            parsed
                .as_ref()
                .is_ok_and(|leaf| verify_server_name(leaf, &name).is_ok())
        })
}
