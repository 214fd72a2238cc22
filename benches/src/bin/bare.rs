//! The floor: axum and rustls with nothing in between, reading each review and answering a constant.
//!
//! `my-operator-bench-bare ADDRESS FOLDER`, the folder having `tls.crt` and `tls.key`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const ALLOWED: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("which address?")?;
    let folder = arguments.next().context("which folder?")?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(serve(&address, Path::new(&folder)))
}

async fn serve(address: &str, folder: &Path) -> Result<()> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(folder.join("tls.crt"))?.collect();
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key"))?;
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));

    let answer = |_review: Bytes| async { ([(CONTENT_TYPE, "application/json")], ALLOWED) };
    let router = Router::new().fallback(post(answer));
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let service = TowerToHyperService::new(router);
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
    }
}
