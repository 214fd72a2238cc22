//! The simulated API server on a TLS listener, as a pod finds that of its cluster.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper::{Request, server::conn::http1};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use simulated_apiserver::Server;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tower::Service as _;

type Failure = Box<dyn Error + Send + Sync>;

/// The service account of a pod.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A certificate for the names of an API server. Its CA and the namespace go into the service account's folder.
pub fn acceptor(namespace: &str) -> Result<TlsAcceptor, Failure> {
    let (ca_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let names = ["kubernetes.default.svc", "localhost", "127.0.0.1"];
    let names: Vec<String> = names.map(str::to_owned).into();
    let certificate = CertificateParams::new(names)?.signed_by(&key, &Issuer::new(ca, ca_key))?;
    std::fs::create_dir_all(ACCOUNT)?;
    std::fs::write(Path::new(ACCOUNT).join("ca.crt"), ca_pem)?;
    std::fs::write(Path::new(ACCOUNT).join("namespace"), namespace)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The token of a service account is the user's name.
pub fn sign_in(user: &str) -> std::io::Result<()> {
    std::fs::write(Path::new(ACCOUNT).join("token"), user)
}

/// Serves until it is dropped, and ends all connections then.
pub async fn serve(server: Server, listener: TcpListener, tls: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (server, tls) = (server.clone(), tls.clone());
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let answer = service_fn(move |request| answer(server.clone(), request));
            // A fault is an error of the service: the connection ends without an answer.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    server: Server,
    request: Request<Incoming>,
) -> Result<
    <simulated_apiserver::Connection as tower::Service<Request<kube::client::Body>>>::Response,
    Failure,
> {
    let token = request.headers().get(AUTHORIZATION);
    let token = token.and_then(|value| value.to_str().ok());
    let user = token.and_then(|value| value.strip_prefix("Bearer "));
    let user = user.unwrap_or("system:anonymous").to_owned();
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    server.service(&user).call(request).await
}
