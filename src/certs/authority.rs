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

/// How far `not_before` lies in the past, so that a peer whose clock is a little behind ours does
/// not take a new certificate for one that is not yet valid.
pub const BACKDATE: TimeDelta = TimeDelta::minutes(5);

/// What can go wrong with certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library could not make or sign a certificate.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The text holds no readable certificate.
    #[error("not a certificate: {0}")]
    NotACertificate(String),
    /// The certificate does not say that it may sign others.
    #[error("the certificate is not a CA")]
    NotAnAuthority,
    /// The text holds no readable private key of a kind that can sign.
    #[error("not a usable private key")]
    NotAKey,
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// A host that is neither a DNS name nor an IP address.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    Host(String),
    /// The CA has expired, so nothing it signs would be accepted.
    #[error("the CA expired at {0}")]
    Expired(DateTime<Utc>),
    /// A point in time that a certificate cannot express.
    #[error("a certificate cannot express the time {0}")]
    Time(DateTime<Utc>),
    /// The TLS library refuses the pair.
    #[error("cannot serve the certificate: {0}")]
    Serve(#[from] rustls::Error),
}

impl Error {
    /// A static word for metrics and Events.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Generate(_) | Self::Time(_) => "certificate_generation",
            Self::NotACertificate(_) | Self::NotAnAuthority => "certificate_unreadable",
            Self::NotAKey => "key_unreadable",
            Self::KeyMismatch => "key_mismatch",
            Self::Host(_) => "host_invalid",
            Self::Expired(_) => "certificate_expired",
            Self::Serve(_) => "certificate_unservable",
        }
    }
}

/// The SHA-256 of a certificate: its identity, wherever it is met (Secret, bundle, leaf).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    /// The first eight bytes in hex: enough for people to tell certificates apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A certificate that verifiers trust, without its key, as it stands in a bundle: a CA's, as a rule
/// (but a verifier takes a self-signed serving certificate, too, so this asks for no more).
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
    pub fn from_der(certificate: CertificateDer<'static>) -> Result<Self, Error> {
        let (not_before, not_after) = validity_of(&certificate)?;
        let fingerprint = Fingerprint::of(&certificate);
        Ok(Self {
            certificate,
            fingerprint,
            not_before,
            not_after,
        })
    }

    /// Every certificate that can be read in `pem`, in order, each once; the rest is skipped.
    pub fn read_all(pem: &[u8]) -> Vec<Self> {
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

    /// Its identity.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The first instant at which it is valid.
    pub fn not_before(&self) -> DateTime<Utc> {
        self.not_before
    }

    /// The last instant at which it is valid.
    pub fn not_after(&self) -> DateTime<Utc> {
        self.not_after
    }

    /// The certificate as PEM text.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }
}

/// A certificate authority: a self-signed certificate and its key.
pub struct Authority {
    anchor: Anchor,
    key: KeyPair,
}

impl fmt::Debug for Authority {
    /// Leaves the key out: it must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("anchor", &self.anchor)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new CA that is valid until `now + validity`.
    ///
    /// Subject and serial number are derived from the new key, so two CAs in one bundle never
    /// look alike and a verifier finds the right one.
    ///
    /// # Errors
    /// Only when the crypto library fails or the time cannot be expressed.
    pub fn generate(now: DateTime<Utc>, validity: TimeDelta) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let tag = Fingerprint(Sha256::digest(key.subject_public_key_info()).into());
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("my-operator webhook CA {tag}"));
        params.not_before = to_time(now - BACKDATE)?;
        params.not_after = to_time(now + validity)?;
        // It signs leaves only, never another CA.
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
    /// When either cannot be read, the certificate is not a CA, or the key is not its own.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| Error::NotACertificate(error.to_string()))?;
        let anchor = Anchor::from_der(der)?;
        let key = KeyPair::from_pem(key).map_err(|_| Error::NotAKey)?;
        let x509 = parse(&anchor.certificate)?;
        if !x509.is_ca() {
            return Err(Error::NotAnAuthority);
        }
        if x509.public_key().raw != key.subject_public_key_info() {
            return Err(Error::KeyMismatch);
        }
        Ok(Self { anchor, key })
    }

    /// The public half.
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The certificate as PEM text.
    pub fn certificate_pem(&self) -> String {
        self.anchor.pem()
    }

    /// The private key as PEM text. Secret: it belongs into the Secret and nowhere else.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Signs a new leaf with a new key for `hosts` (DNS names or IP addresses).
    ///
    /// The leaf ends at `now + validity`, or with the CA where that is earlier: verifiers would
    /// refuse it from then on anyway, and its owner should know.
    ///
    /// # Errors
    /// When the CA has expired, a host is no host, or the crypto library fails.
    pub fn issue(
        &self,
        hosts: &[String],
        now: DateTime<Utc>,
        validity: TimeDelta,
    ) -> Result<Leaf, Error> {
        if self.anchor.not_after <= now {
            return Err(Error::Expired(self.anchor.not_after));
        }
        for host in hosts {
            ServerName::try_from(host.as_str()).map_err(|_| Error::Host(host.clone()))?;
        }
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = common_name("my-operator webhook");
        params.not_before = to_time((now - BACKDATE).max(self.anchor.not_before))?;
        params.not_after = to_time((now + validity).min(self.anchor.not_after))?;
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
    pub key: PrivateKeyDer<'static>,
    /// The CA that signed it.
    pub issuer: Fingerprint,
    /// When it was signed; `not_before` is earlier, by [`BACKDATE`].
    pub issued_at: DateTime<Utc>,
    /// The first instant at which it is valid.
    pub not_before: DateTime<Utc>,
    /// The last instant at which it is valid.
    pub not_after: DateTime<Utc>,
}

impl fmt::Debug for Leaf {
    /// Leaves the key out: it must never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("issuer", &self.issuer)
            .field("issued_at", &self.issued_at)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// What decisions need to know of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafFacts {
    /// The CA that signed it.
    pub issuer: Fingerprint,
    /// When it was signed.
    pub issued_at: DateTime<Utc>,
    /// The last instant at which it is valid.
    pub not_after: DateTime<Utc>,
}

impl Leaf {
    /// What decisions need to know of it.
    pub fn facts(&self) -> LeafFacts {
        LeafFacts {
            issuer: self.issuer,
            issued_at: self.issued_at,
            not_after: self.not_after,
        }
    }

    /// The form in which the TLS library serves it.
    ///
    /// # Errors
    /// When the library refuses the pair.
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
pub fn validity_of(
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

fn parse<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<x509_parser::certificate::X509Certificate<'a>, Error> {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, x509)) => Ok(x509),
        Err(error) => Err(Error::NotACertificate(error.to_string())),
    }
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
