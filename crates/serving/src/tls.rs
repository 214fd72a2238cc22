//! The TLS configuration of the listener.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::version::{TLS12, TLS13};

/// The TLS configuration of the listener: TLS 1.2 and 1.3, and only HTTP/1.1 (API servers offer nothing else to a
/// webhook). `resolver` has the certificate. With `callers`, a client needs a certificate that this verifier accepts,
/// such as that of [`ClientAuthority`](crate::ClientAuthority).
///
/// # Errors
/// When the provider supports neither version. That of aws-lc-rs, which is used here, supports both.
pub fn tls_config(
    resolver: Arc<dyn ResolvesServerCert>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<rustls::ServerConfig>, rustls::Error> {
    let provider: CryptoProvider = rustls::crypto::aws_lc_rs::default_provider();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let config = match callers {
        Some(callers) => config.with_client_cert_verifier(callers),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // API servers do not resume sessions, so they would only cost time. A resumed session of TLS 1.2 would also pass by
    // the verifier: its client keeps what an earlier authority allowed.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
