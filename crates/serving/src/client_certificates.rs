//! Client certificates: if a CA for them is configured, the TLS handshake of a caller without a valid one fails.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore,
    SignatureScheme,
};
use tokio_util::sync::CancellationToken;

/// How often the file is read. The kubelet swaps a symbolic link of a folder further up, which no file watch sees.
const TICK: Duration = Duration::from_secs(5);

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("client CA {}: {reason}", .path.display())]
pub struct Error {
    path: PathBuf,
    reason: String,
}

/// A file with the CAs that sign client certificates, as PEM: [`verifier`](Self::verifier) is for
/// [`tls_config`](crate::tls_config), and [`run`](Self::run), on a task of its own, reads the file again when it
/// changes.
#[derive(Debug)]
pub struct ClientAuthority {
    path: PathBuf,
    tick: Duration,
    provider: Arc<CryptoProvider>,
    /// The bundle that the verifier uses.
    taken: Vec<u8>,
    verifier: Arc<ClientVerifier>,
}

impl ClientAuthority {
    /// Reads the bundle. Callers must have one of `names` as their common name; if it is empty, any name is accepted.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a bundle of certificates.
    pub fn read(path: PathBuf, names: Vec<String>) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let read = || {
            let taken = fs::read(&path).map_err(|error| error.to_string())?;
            Ok((verifier(&taken, &provider)?, taken))
        };
        match read() {
            Ok((current, taken)) => Ok(Self {
                taken,
                verifier: Arc::new(ClientVerifier {
                    names,
                    current: ArcSwap::from_pointee(current),
                }),
                path,
                tick: TICK,
                provider,
            }),
            Err(reason) => Err(Error { path, reason }),
        }
    }

    /// Reads the file every `tick` instead of every 5 s.
    #[cfg(test)]
    #[must_use]
    pub(super) fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// A verifier of callers by the latest bundle.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Reads the file whenever it changes, until `stop`. A bad file is reported, and the last good bundle stays. A new
    /// bundle applies to new connections.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut problem = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.tick) => {}
            }
            let found = self.renew().await.err();
            if found != problem {
                let path = self.path.display();
                if let Some(reason) = &found {
                    tracing::warn!(%path, reason, "keeping the last good client CA");
                } else {
                    tracing::info!(%path, "the client CA is good again");
                }
                problem = found;
            }
        }
    }

    async fn renew(&mut self) -> Result<(), String> {
        let read = tokio::fs::read(&self.path).await;
        let read = read.map_err(|error| error.to_string())?;
        if read != self.taken {
            let current = verifier(&read, &self.provider)?;
            self.verifier.current.store(Arc::new(current));
            self.taken = read;
            tracing::info!(path = %self.path.display(), "client CA read");
        }
        Ok(())
    }
}

fn verifier(
    pem: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| error.to_string())
}

/// The verifier of rustls, which can be replaced at run time, with further checks.
#[derive(Debug)]
struct ClientVerifier {
    names: Vec<String>,
    current: ArcSwap<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for ClientVerifier {
    /// No hints: the bundle may change, so it cannot be borrowed. Callers send the certificate that they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        let verified = (self.current.load()).verify_client_cert(end_entity, intermediates, now)?;
        admitted(end_entity, &self.names)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        (self.current.load()).verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        (self.current.load()).verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current.load().supported_verify_schemes()
    }
}

/// Whether a verified certificate is meant for clients and has one of the names. Rustls checks the extended key usage
/// only if it is present, and accepts a certificate without it, such as a CA's own.
fn admitted(certificate: &CertificateDer<'_>, names: &[String]) -> Result<(), CertificateError> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_| CertificateError::BadEncoding)?;
    let usage = certificate.extended_key_usage();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    if !usage.is_some_and(|usage| usage.value.client_auth) {
        return Err(CertificateError::InvalidPurpose);
    }
    let mut common_names = certificate.subject().iter_common_name();
    // Two names are ambiguous: implementations differ in which of them counts.
    let name = match (common_names.next(), common_names.next()) {
        (Some(name), None) => name.as_str().ok(),
        _ => None,
    };
    if names.is_empty() || names.iter().any(|one| Some(one.as_str()) == name) {
        Ok(())
    } else {
        Err(CertificateError::ApplicationVerificationFailure)
    }
}

/// Whether a handshake failed because of the client's certificate.
pub(super) fn is_to_blame(error: &std::io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        error,
        Some(TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented)
    )
}
