//! Looks at an installation from outside: what a listener shows, and what a `caBundle` trusts. Nothing here decides
//! whether a connection may be used.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, TimeDelta, Utc};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::authority::{Anchor, Error, time_fault, validity_of};
use super::verify;

/// The time limit of connection and handshake together.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The CAs that an API server trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(Vec<Anchor>);

impl Bundle {
    /// Reads every certificate of a PEM text, and skips everything else.
    pub fn from_pem(pem: &[u8]) -> Self {
        Self(Anchor::read_all(pem))
    }

    /// Reads a field `caBundle`, or the value of a Secret: PEM in base64.
    pub fn from_base64(text: &str) -> Self {
        Self::from_pem(&BASE64.decode(text).unwrap_or_default())
    }

    /// Whether nothing is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every CA of `other` is in it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.iter().all(|anchor| self.0.contains(anchor))
    }

    /// The life of the first certificate: from, until.
    pub fn validity(&self) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let anchor = self.0.first()?;
        Some((anchor.not_before(), anchor.not_after()))
    }
}

/// A serving certificate with its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    chain: Vec<CertificateDer<'static>>,
    validity: (DateTime<Utc>, DateTime<Utc>),
}

impl Served {
    /// The chain of a listener or a file, the serving certificate first.
    ///
    /// # Errors
    /// When the first certificate is missing or cannot be read.
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let missing = || Error::NotACertificate("it holds none".to_owned());
        let validity = validity_of(chain.first().ok_or_else(missing)?)?;
        Ok(Self { chain, validity })
    }

    /// The value of `tls.crt` of a Secret: PEM in base64.
    ///
    /// # Errors
    /// When it holds no readable certificate.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let pem = BASE64.decode(text).unwrap_or_default();
        let chain = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
        Self::new(chain.collect())
    }

    /// The last instant at which it is valid.
    pub fn not_after(&self) -> DateTime<Utc> {
        self.validity.1
    }

    /// Why an API server that calls `host` rejects it whatever it trusts, if it does.
    pub fn fault(&self, host: &str, now: DateTime<Utc>) -> Option<String> {
        let hosts = [host.to_owned()];
        let fits = || verify::fits(&self.chain[0], &hosts);
        let unfit = || format!("is not valid for {host}");
        time_fault(self.validity, now).or_else(|| (!fits()).then(unfit))
    }

    /// Whether the bundle leads to it, at the time of its life that is nearest to now: a verifier says nothing more of a
    /// certificate that has expired.
    pub fn is_trusted_by(&self, bundle: &Bundle, now: DateTime<Utc>) -> bool {
        let (from, until) = self.validity;
        verify::is_trusted(&self.chain, &bundle.0, now.min(until).max(from))
    }

    /// Whether less than a quarter of its life is left: its renewal is overdue.
    /// [`CertManager`](crate::CertManager) renews at half, cert-manager at two thirds.
    pub fn is_overdue(&self, now: DateTime<Utc>) -> bool {
        is_overdue(self.validity, now)
    }
}

/// Whether less than a quarter of a certificate's life (from, until) is left.
pub fn is_overdue((from, until): (DateTime<Utc>, DateTime<Utc>), now: DateTime<Utc>) -> bool {
    let left: TimeDelta = until - now;
    left < (until - from) / 4
}

/// Connects to a listener and returns what it shows to a client that asks for `host`. Nothing is sent after the
/// handshake.
///
/// # Errors
/// When there is no connection, no handshake, or no readable certificate within the time limit.
pub async fn served(address: &str, host: &str) -> io::Result<Served> {
    let recorder = Arc::new(Recorder::default());
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(recorder.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let handshake = async {
        let stream = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.map(drop)
    };
    let handshake = tokio::time::timeout(TIMEOUT, handshake).await;
    // A listener that demands a client certificate ends the handshake, but has shown its own before.
    if let Some(chain) = recorder.0.get() {
        return Served::new(chain.clone()).map_err(io::Error::other);
    }
    handshake??;
    Err(io::Error::other("no certificate was shown"))
}

/// Accepts any certificate, and remembers it.
#[derive(Debug, Default)]
struct Recorder(OnceLock<Vec<CertificateDer<'static>>>);

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = std::iter::once(leaf).chain(intermediates);
        let chain = chain.map(|der| der.clone().into_owned()).collect();
        // Only the first handshake of a connection counts.
        let _ = self.0.set(chain);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authority::Authority;

    const HOST: &str = "service.namespace.svc";

    fn leaf(authority: &Authority, now: DateTime<Utc>) -> Served {
        let leaf = authority.issue(&[HOST.to_owned()], now, TimeDelta::days(7));
        Served::from_base64(&BASE64.encode(leaf.unwrap().certificate_pem())).unwrap()
    }

    #[test]
    fn a_certificate_is_held_against_a_bundle_a_name_and_the_time() {
        let now = Utc::now();
        let (one, other) = (
            Authority::generate(now, TimeDelta::days(365)).unwrap(),
            Authority::generate(now, TimeDelta::days(365)).unwrap(),
        );
        let bundle = |authorities: &[&Authority]| {
            let pem: String = authorities.iter().map(|it| it.certificate_pem()).collect();
            Bundle::from_base64(&BASE64.encode(pem))
        };
        let served = leaf(&one, now);
        assert!(served.is_trusted_by(&bundle(&[&other, &one]), now));
        for at in [now, now + TimeDelta::days(8)] {
            assert!(!served.is_trusted_by(&bundle(&[&other]), at));
        }
        assert!(bundle(&[&one, &other]).contains(&bundle(&[&one])));
        assert!(!bundle(&[&one]).contains(&bundle(&[&other])));
        assert!(Bundle::from_base64("eA==").is_empty());

        assert_eq!(served.fault(HOST, now), None);
        let other_name = served.fault("other.namespace.svc", now).unwrap();
        assert!(other_name.contains("is not valid for"), "{other_name}");
        let expired = served.fault(HOST, now + TimeDelta::days(8)).unwrap();
        assert!(expired.contains("expired at"), "{expired}");
        assert!(!served.is_overdue(now) && served.is_overdue(now + TimeDelta::days(6)));
    }
}
