//! A listener on loopback, and one request to it: `cargo run -p bounded-listener --example hello`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use bounded_listener::{Counters, Limits, Shutdown, bind, serve, tls_config};
use chrono::{TimeDelta, Utc};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use webhook_certs::ServedCertificate;
use webhook_certs::authority::Authority;

#[tokio::main]
async fn main() {
    let (authority, certificate) = signed_certificate();
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let tls = tls_config(certificate, None).unwrap();
    let router = Router::new().route("/hello", get(async || "hello"));
    let limits = Limits {
        connections: 100, // the other limits are those of a webhook
        ..Limits::default()
    };
    let (shutdown, counters) = (Shutdown::default(), Arc::new(Counters::default()));
    let server = serve(
        listener,
        tls,
        router,
        limits,
        shutdown.clone(),
        counters.clone(),
    );
    let server = tokio::spawn(server);

    println!("{}", request(address, &authority).await);

    shutdown.draining.cancel(); // every answer now asks the peer to reconnect elsewhere
    shutdown.stop.cancel(); // no new connections; requests in flight are finished
    server.await.unwrap().unwrap();
    println!("connections accepted: {}", counters.accepted());
}

/// A CA, and a certificate of it for `localhost`.
fn signed_certificate() -> (Authority, Arc<ServedCertificate>) {
    let now = Utc::now();
    let authority = Authority::generate(now, TimeDelta::days(1)).unwrap();
    let leaf = authority.issue(&["localhost".to_owned()], now, TimeDelta::hours(1));
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certificate = Arc::new(ServedCertificate::default());
    certificate.set(leaf.unwrap().certified_key(&provider).unwrap());
    (authority, certificate)
}

/// The answer to one request of a client that trusts the CA.
async fn request(address: SocketAddr, authority: &Authority) -> String {
    let mut roots = RootCertStore::empty();
    let pem = authority.certificate_pem();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = TlsConnector::from(Arc::new(config));
    let mut stream = tls.connect(name, stream).await.unwrap();
    let request = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
