//! A caller of the webhooks that is not the API server.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A handshake and one call, as a peer with that trust. Gives the certificate presented.
pub async fn call(webhook: &str, tls: Arc<ClientConfig>) -> Result<Vec<u8>, String> {
    let request = review(webhook, &json!({"image": "nginx:1"}));
    let sent = send(webhook, tls, &request).await;
    let (presented, answer) = sent.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") && answer.contains("\"allowed\":true") {
        Ok(presented)
    } else {
        Err(answer)
    }
}

/// A request to review a new object with that spec.
pub fn review(webhook: &str, spec: &Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "apps.zhongmingmao.io", "version": "v1beta1", "kind": "MyDaemonSet"},
            "operation": "CREATE",
            "object": {"metadata": {"name": "x"}, "spec": spec},
        },
    })
    .to_string();
    format!(
        "POST /validate-apps-zhongmingmao-io-v1beta1-mydaemonset HTTP/1.1\r\nHost: {webhook}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{review}",
        review.len()
    )
    .into_bytes()
}

/// A handshake and that request. Gives the certificate presented, and the answer.
pub async fn send(
    webhook: &str,
    tls: Arc<ClientConfig>,
    request: &[u8],
) -> std::io::Result<(Vec<u8>, String)> {
    let stream = TcpStream::connect(webhook).await?;
    let mut stream = secured(stream, "127.0.0.1", tls).await?;
    let presented = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok((presented, String::from_utf8_lossy(&answer).into_owned()))
}

/// A handshake with the server of that name, as a peer with that trust.
pub async fn secured(
    stream: TcpStream,
    name: &str,
    tls: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(tls).connect(name, stream).await
}

/// The trust in these certificates alone.
pub fn trust(bundle: &[u8]) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for anchor in CertificateDer::pem_slice_iter(bundle) {
        roots.add(anchor.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session presents nothing.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}
