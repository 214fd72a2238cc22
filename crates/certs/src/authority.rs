//! A certificate authority and the leaves it signs: pure computation, no disk, no network.
//!
//! Everything is ECDSA P-256, which every API server verifies and which is cheap to sign with.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, TimeDelta, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

/// How far `not_before` is in the past, so that a peer whose clock is behind ours accepts a new certificate. A machine
/// that takes its local time for UTC is up to 14 hours ahead, and all replicas use the CA that it makes.
pub(crate) const BACKDATE: TimeDelta = TimeDelta::days(1);

/// Errors of certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library could not make or sign a certificate.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The text does not contain a readable certificate.
    #[error("not a certificate: {0}")]
    NotACertificate(String),
    /// The certificate must not sign others.
    #[error("the certificate is not a CA")]
    NotAnAuthority,
    /// Verifiers would reject everything that it signs.
    #[error("the CA may not sign serving certificates: its {0} does not allow it")]
    NotASigner(&'static str),
    /// The text does not contain a readable private key of a kind that can sign.
    #[error("not a usable private key")]
    NotAKey,
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// A host that is neither a DNS name nor an IP address.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    Host(String),
    /// The CA has expired, so verifiers would reject everything that it signs.
    #[error("the CA expired at {0}")]
    Expired(DateTime<Utc>),
    /// A certificate that would end before it begins: the CA is not valid yet by this clock.
    #[error("the CA is not valid before {0}")]
    NotYetValid(DateTime<Utc>),
    /// A pair that is worse than the served one.
    #[error("the new certificate {0}, so the one before it is kept")]
    WorsePair(String),
    /// A point in time that a certificate cannot express.
    #[error("a certificate cannot express the time {0}")]
    Time(DateTime<Utc>),
    /// The TLS library refuses the pair.
    #[error("cannot serve the certificate: {0}")]
    Serve(#[from] rustls::Error),
}

/// The SHA-256 of a certificate: its identity in the Secret, in bundles and for leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub(crate) fn new(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    /// The first eight bytes in hex: enough to distinguish certificates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A certificate that verifiers trust, without its key, as in a bundle. Usually it is a CA's, but verifiers also accept
/// a self-signed serving certificate, so this type does not require a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
    not_before: DateTime<Utc>,
    not_after: DateTime<Utc>,
}

impl Anchor {
    /// Reads one certificate.
    ///
    /// # Errors
    /// [`Error::NotACertificate`].
    pub(crate) fn from_der(certificate: CertificateDer<'static>) -> Result<Self, Error> {
        let (not_before, not_after) = validity_of(&certificate)?;
        let fingerprint = Fingerprint::new(&certificate);
        Ok(Self {
            certificate,
            fingerprint,
            not_before,
            not_after,
        })
    }

    /// Every readable certificate in `pem`, in order, without duplicates. Other text is skipped.
    pub(crate) fn read_all(pem: &[u8]) -> Vec<Self> {
        let mut anchors: Vec<Self> = Vec::new();
        for anchor in CertificateDer::pem_slice_iter(pem)
            .filter_map(Result::ok)
            .filter_map(|der| Self::from_der(der).ok())
        {
            if !anchors
                .iter()
                .any(|known| known.fingerprint == anchor.fingerprint)
            {
                anchors.push(anchor);
            }
        }
        anchors
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The first instant at which it is valid.
    pub(crate) fn not_before(&self) -> DateTime<Utc> {
        self.not_before
    }

    /// The last instant at which it is valid.
    pub fn not_after(&self) -> DateTime<Utc> {
        self.not_after
    }

    /// Whether `leaf` names this CA as its issuer. The names of our CAs are unique.
    #[cfg(test)]
    pub(super) fn issued(&self, leaf: &CertificateDer<'_>) -> bool {
        let issuer = parse(&self.certificate).ok();
        let leaf = parse(leaf).ok();
        issuer
            .zip(leaf)
            .is_some_and(|(issuer, leaf)| leaf.issuer() == issuer.subject())
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate as PEM text.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }
}

/// A certificate authority: a self-signed certificate and its key.
pub struct Authority {
    anchor: Anchor,
    key: KeyPair,
}

impl fmt::Debug for Authority {
    /// Omits the key: it must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("anchor", &self.anchor)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates a CA that is valid until `now + validity`.
    ///
    /// Subject and serial number are derived from the new key, so two CAs in one bundle never
    /// look alike and a verifier finds the right one.
    ///
    /// # Errors
    /// Only when the crypto library fails or the time cannot be expressed.
    pub fn generate(now: DateTime<Utc>, validity: TimeDelta) -> Result<Self, Error> {
        Self::generate_between(now - BACKDATE, now + validity)
    }

    /// Creates a CA that is valid from `not_before` until `not_after`.
    ///
    /// # Errors
    /// Only when the crypto library fails or a time cannot be expressed.
    pub(crate) fn generate_between(
        not_before: DateTime<Utc>,
        not_after: DateTime<Utc>,
    ) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&subject(&key));
        params.not_before = to_time(not_before)?;
        params.not_after = to_time(not_after)?;
        // It signs only leaves, never another CA.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            anchor: Anchor::from_der(certificate)?,
            key,
        })
    }

    /// Reads a CA from its two PEM texts.
    ///
    /// # Errors
    /// When either cannot be read, the certificate is not a CA that may sign serving certificates, or the key does not
    /// belong to it.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| Error::NotACertificate(error.to_string()))?;
        let anchor = Anchor::from_der(der)?;
        let key = KeyPair::from_pem(key).map_err(|_| Error::NotAKey)?;
        let x509 = parse(&anchor.certificate)?;
        if !x509.is_ca() {
            return Err(Error::NotAnAuthority);
        }
        // A CA without these extensions is not restricted: RFC 5280, sections 4.2.1.3 and 4.2.1.12. Go checks
        // the second one of CAs, too.
        let unreadable =
            |error: x509_parser::error::X509Error| Error::NotACertificate(error.to_string());
        let usage = x509.key_usage().map_err(unreadable)?;
        if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
            return Err(Error::NotASigner("keyUsage"));
        }
        let extended = x509.extended_key_usage().map_err(unreadable)?;
        if extended.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
            return Err(Error::NotASigner("extendedKeyUsage"));
        }
        if x509.public_key().raw != key.subject_public_key_info() {
            return Err(Error::KeyMismatch);
        }
        Ok(Self { anchor, key })
    }

    /// Its certificate.
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Whether it has the name of our CAs. A foreign CA has that name only on purpose.
    pub(crate) fn is_ours(&self) -> bool {
        let own = format!("CN={}", subject(&self.key));
        parse(&self.anchor.certificate).is_ok_and(|x509| x509.subject().to_string() == own)
    }

    /// The certificate as PEM text.
    pub fn certificate_pem(&self) -> String {
        self.anchor.pem()
    }

    /// The private key as PEM text. Secret: it must be stored only in the Secret.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Signs a new leaf with a new key for `hosts` (DNS names or IP addresses).
    ///
    /// The leaf ends at `now + validity`, or with the CA if that is earlier: verifiers would reject it from then on
    /// anyway, and its owner should know.
    ///
    /// # Errors
    /// When the CA has expired, a host is malformed, or the crypto library fails.
    pub fn issue(
        &self,
        hosts: &[String],
        now: DateTime<Utc>,
        validity: TimeDelta,
    ) -> Result<Leaf, Error> {
        self.issue_between(hosts, now, (now - BACKDATE, now + validity))
    }

    /// Signs a new leaf with that validity, restricted to the CA's.
    ///
    /// # Errors
    /// When the CA has expired at `now`, the leaf would end before it begins, a host is malformed, or the crypto
    /// library fails.
    pub(crate) fn issue_between(
        &self,
        hosts: &[String],
        now: DateTime<Utc>,
        (not_before, not_after): (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Leaf, Error> {
        if self.anchor.not_after <= now {
            return Err(Error::Expired(self.anchor.not_after));
        }
        let not_before = not_before.max(self.anchor.not_before);
        let not_after = not_after.min(self.anchor.not_after);
        // Certificates have whole seconds.
        if not_after.timestamp() <= not_before.timestamp() {
            return Err(Error::NotYetValid(self.anchor.not_before));
        }
        for host in hosts {
            ServerName::try_from(host.as_str()).map_err(|_| Error::Host(host.clone()))?;
        }
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = common_name("webhook");
        params.not_before = to_time(not_before)?;
        params.not_after = to_time(not_after)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let issuer = Issuer::from_ca_cert_der(&self.anchor.certificate, &self.key)?;
        let certificate = params.signed_by(&key, &issuer)?.der().clone();
        let (not_before, not_after) = validity_of(&certificate)?;
        Ok(Leaf {
            chain: vec![certificate],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            issuer: self.anchor.fingerprint,
            issued_at: now,
            not_before,
            not_after,
        })
    }
}

/// A serving certificate and its key.
pub struct Leaf {
    /// The certificate to present. The CA is not part of it: the verifier has it.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key. Secret.
    pub(crate) key: PrivateKeyDer<'static>,
    /// The CA that signed it.
    pub(crate) issuer: Fingerprint,
    /// When it was signed; `not_before` is earlier, by [`BACKDATE`].
    pub(crate) issued_at: DateTime<Utc>,
    /// The first instant at which it is valid.
    pub(crate) not_before: DateTime<Utc>,
    /// The last instant at which it is valid.
    pub(crate) not_after: DateTime<Utc>,
}

impl fmt::Debug for Leaf {
    /// Omits the key: it must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("issuer", &self.issuer)
            .field("issued_at", &self.issued_at)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// The facts about a leaf for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafFacts {
    /// The CA that signed it.
    pub(crate) issuer: Fingerprint,
    /// When it was signed.
    pub(crate) issued_at: DateTime<Utc>,
    /// The first instant at which it is valid.
    pub(crate) not_before: DateTime<Utc>,
    /// The last instant at which it is valid.
    pub(crate) not_after: DateTime<Utc>,
}

impl LeafFacts {
    /// Why it is not valid at this time, if it is not.
    pub(crate) fn fault(&self, now: DateTime<Utc>) -> Option<String> {
        time_fault((self.not_before, self.not_after), now)
    }
}

impl Leaf {
    /// Its facts for decisions.
    pub(crate) fn facts(&self) -> LeafFacts {
        LeafFacts {
            issuer: self.issuer,
            issued_at: self.issued_at,
            not_before: self.not_before,
            not_after: self.not_after,
        }
    }

    /// The form in which the TLS library serves it.
    ///
    /// # Errors
    /// When the library rejects the pair.
    pub fn certified_key(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
        let key = CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), provider)?;
        Ok(Arc::new(key))
    }

    /// The chain as PEM text.
    pub fn certificate_pem(&self) -> String {
        self.chain
            .iter()
            .map(|der| pem("CERTIFICATE", der))
            .collect()
    }

    /// The private key as PEM text. Secret.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_der())
    }
}

/// The validity (`not_before`, `not_after`) of a certificate.
///
/// # Errors
/// [`Error::NotACertificate`] when it cannot be read.
pub(crate) fn validity_of(
    certificate: &CertificateDer<'_>,
) -> Result<(DateTime<Utc>, DateTime<Utc>), Error> {
    let x509 = parse(certificate)?;
    let read = |time: x509_parser::time::ASN1Time| {
        DateTime::from_timestamp(time.timestamp(), 0)
            .ok_or_else(|| Error::NotACertificate(format!("the time {time} is out of range")))
    };
    Ok((
        read(x509.validity().not_before)?,
        read(x509.validity().not_after)?,
    ))
}

/// Why a certificate with that validity is not valid now, if it is not.
pub(crate) fn time_fault(
    (not_before, not_after): (DateTime<Utc>, DateTime<Utc>),
    now: DateTime<Utc>,
) -> Option<String> {
    if not_after <= now {
        Some(format!("expired at {not_after}"))
    } else if not_before > now {
        Some(format!("is not valid before {not_before}"))
    } else {
        None
    }
}

fn parse<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<x509_parser::certificate::X509Certificate<'a>, Error> {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, x509)) => Ok(x509),
        Err(error) => Err(Error::NotACertificate(error.to_string())),
    }
}

/// The name of our CA with this key.
fn subject(key: &KeyPair) -> String {
    let tag = Fingerprint(Sha256::digest(key.subject_public_key_info()).into());
    format!("webhook CA {tag}")
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn to_time(at: DateTime<Utc>) -> Result<time::OffsetDateTime, Error> {
    time::OffsetDateTime::from_unix_timestamp(at.timestamp()).map_err(|_| Error::Time(at))
}

/// PEM as RFC 7468 has it: base64 in lines of 64 characters.
fn pem(label: &str, der: &[u8]) -> String {
    let body = BASE64.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = tail;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::UnixTime;
    use rustls::{CertificateError, RootCertStore};
    use x509_parser::extensions::ParsedExtension;

    use super::*;

    fn start() -> DateTime<Utc> {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::generate(start(), TimeDelta::days(365)).unwrap()
    }

    fn issue(authority: &Authority, hosts: &[&str]) -> Result<Leaf, Error> {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        authority.issue(&hosts, start(), TimeDelta::days(7))
    }

    /// Verifies as an API server would that trusts `bundle`.
    fn verify(
        bundle: &[&Authority],
        leaf: &Leaf,
        host: &str,
        at: DateTime<Utc>,
    ) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        for authority in bundle {
            roots.add(authority.anchor.certificate.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let at = u64::try_from(at.timestamp()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        verifier
            .verify_server_cert(&leaf.chain[0], &[], &name, &[], now)
            .map(|_| ())
    }

    #[test]
    fn leaf_is_valid_for_exactly_its_hosts() {
        let authority = authority();
        let leaf = issue(&authority, &["a.ns.svc", "127.0.0.1", "::1"]).unwrap();
        for host in ["a.ns.svc", "127.0.0.1", "::1"] {
            assert_eq!(
                verify(&[&authority], &leaf, host, start()),
                Ok(()),
                "{host}"
            );
        }
        for host in ["b.ns.svc", "a.ns", "127.0.0.2"] {
            assert!(
                verify(&[&authority], &leaf, host, start()).is_err(),
                "{host}"
            );
        }
    }

    #[test]
    fn in_a_bundle_of_several_cas_the_right_one_is_found() {
        let (old, new) = (authority(), authority());
        for signer in [&old, &new] {
            let leaf = issue(signer, &["a"]).unwrap();
            assert_eq!(leaf.issuer, signer.anchor().fingerprint());
            for bundle in [[&old, &new], [&new, &old]] {
                assert_eq!(verify(&bundle, &leaf, "a", start()), Ok(()));
            }
        }
        let leaf = issue(&old, &["a"]).unwrap();
        assert!(verify(&[&new], &leaf, "a", start()).is_err());
    }

    #[test]
    fn cas_differ_in_subject_serial_and_key_identifier_and_leaves_name_their_issuer() {
        let (one, other) = (authority(), authority());
        let leaf = issue(&one, &["a"]).unwrap();
        let one = parse(&one.anchor.certificate).unwrap();
        let other = parse(&other.anchor.certificate).unwrap();
        assert_ne!(one.subject().to_string(), other.subject().to_string());
        assert_ne!(one.serial, other.serial);
        let leaf = parse(&leaf.chain[0]).unwrap();
        assert_eq!(leaf.issuer(), one.subject());
        let subject_key = one
            .iter_extensions()
            .find_map(|e| match e.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            });
        let authority_key = leaf
            .iter_extensions()
            .find_map(|e| match e.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => None,
            });
        assert!(subject_key.is_some());
        assert_eq!(subject_key, authority_key);
        assert!(
            leaf.extended_key_usage()
                .unwrap()
                .unwrap()
                .value
                .server_auth
        );
        assert!(one.is_ca() && !leaf.is_ca());
    }

    #[test]
    fn certificates_are_valid_from_a_little_before_they_are_made_until_their_time_is_over() {
        let authority = authority();
        let leaf = issue(&authority, &["a"]).unwrap();
        assert_eq!(leaf.not_before, start() - BACKDATE);
        assert_eq!(leaf.not_after, start() + TimeDelta::days(7));
        assert_eq!(leaf.issued_at, start());
        let at = |at| verify(&[&authority], &leaf, "a", at);
        let second = TimeDelta::seconds(1);
        assert_eq!(at(leaf.not_before), Ok(()));
        assert_eq!(at(leaf.not_after), Ok(()));
        assert!(at(leaf.not_before - second).is_err());
        let error = at(leaf.not_after + second).unwrap_err();
        let rustls::Error::InvalidCertificate(error) = error else {
            unreachable!("{error}")
        };
        assert!(matches!(error, CertificateError::ExpiredContext { .. }));
    }

    #[test]
    fn a_leaf_never_outlives_its_ca() {
        let authority = Authority::generate(start(), TimeDelta::days(3)).unwrap();
        let leaf = issue(&authority, &["a"]).unwrap();
        assert_eq!(leaf.not_after, authority.anchor().not_after());
        let late = authority.anchor().not_after();
        let error = authority
            .issue(&["a".to_owned()], late, TimeDelta::days(7))
            .unwrap_err();
        assert!(matches!(error, Error::Expired(_)), "{error}");
    }

    #[test]
    fn what_is_written_as_pem_reads_back_the_same() {
        let authority = authority();
        let read = Authority::from_pem(&authority.certificate_pem(), &authority.key_pem()).unwrap();
        assert_eq!(read.anchor(), authority.anchor());
        let leaf = issue(&read, &["a"]).unwrap();
        assert_eq!(verify(&[&authority], &leaf, "a", start()), Ok(()));
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        leaf.certified_key(&provider).unwrap();
        let chain = CertificateDer::from_pem_slice(leaf.certificate_pem().as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(leaf.key_pem().as_bytes()).unwrap();
        CertifiedKey::from_der(vec![chain], key, &provider).unwrap();
    }

    #[test]
    fn pairs_that_cannot_sign_are_rejected() {
        let (authority, other) = (authority(), authority());
        let leaf = issue(&authority, &["a"]).unwrap();
        let (certificate, key) = (authority.certificate_pem(), authority.key_pem());
        let fault =
            |certificate: &str, key: &str| Authority::from_pem(certificate, key).unwrap_err();
        assert!(matches!(
            fault(&certificate, &other.key_pem()),
            Error::KeyMismatch
        ));
        for (certificate, key) in [
            (&leaf.certificate_pem(), &leaf.key_pem()),
            (&"nothing".to_owned(), &key),
        ] {
            assert!(matches!(
                fault(certificate, key),
                Error::NotACertificate(_) | Error::NotAnAuthority
            ));
        }
        assert!(matches!(fault(&certificate, "nothing"), Error::NotAKey));
        assert!(matches!(fault(&certificate, &certificate), Error::NotAKey));
        let fault = issue(&authority, &["not a host"]).unwrap_err();
        assert!(matches!(fault, Error::Host(_)));
    }

    #[test]
    fn a_ca_that_may_not_sign_serving_certificates_is_refused() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        use KeyUsagePurpose::{CrlSign, KeyCertSign};
        for (usages, extended, fault) in [
            (vec![], vec![], None),
            (vec![KeyCertSign], vec![ServerAuth], None),
            (vec![CrlSign], vec![], Some("keyUsage")),
            (
                vec![KeyCertSign],
                vec![ClientAuth],
                Some("extendedKeyUsage"),
            ),
        ] {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            let mut params = CertificateParams::default();
            params.distinguished_name = common_name("webhook CA 0123456789abcdef");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = usages;
            params.extended_key_usages = extended;
            let certificate = params.self_signed(&key).unwrap().pem();
            match (
                Authority::from_pem(&certificate, &key.serialize_pem()),
                fault,
            ) {
                (Ok(read), None) => assert!(!read.is_ours(), "the name is another key's"),
                (Err(Error::NotASigner(found)), Some(fault)) => assert_eq!(found, fault),
                (result, fault) => unreachable!("{result:?} {fault:?}"),
            }
        }
        let ours = authority();
        let read = Authority::from_pem(&ours.certificate_pem(), &ours.key_pem()).unwrap();
        assert!(ours.is_ours() && read.is_ours());
    }

    #[test]
    fn no_leaf_ends_before_it_begins() {
        let future =
            Authority::generate(start() + TimeDelta::days(30), TimeDelta::days(365)).unwrap();
        let error = issue(&future, &["a"]).unwrap_err();
        assert!(matches!(error, Error::NotYetValid(_)), "{error}");
    }

    #[test]
    fn a_bundle_is_read_as_far_as_it_can_be() {
        let (one, other) = (authority(), authority());
        let (a, b) = (one.certificate_pem(), other.certificate_pem());
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text = format!("# comment\n{a}{garbage}{b}{a}rest");
        let read = Anchor::read_all(text.as_bytes());
        assert_eq!(read, [one.anchor().clone(), other.anchor().clone()]);
        assert_eq!(Anchor::read_all(b"nothing"), []);
    }

    #[test]
    fn no_key_reaches_a_log() {
        let authority = authority();
        let leaf = issue(&authority, &["a"]).unwrap();
        let logged = format!("{authority:?} {leaf:?}");
        for key in [authority.key_pem(), leaf.key_pem()] {
            let line = key.lines().nth(1).unwrap();
            assert!(!logged.contains(&line[..16]));
        }
        assert!(!logged.contains("key:"), "{logged}");
    }
}
