//! Access to the metrics, checked with the real API server and with one that does not answer.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use my_operator_rounds::is_soak;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use webhook_certs::files::development;

use crate::disruption::cluster;
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{Kubectl, Operator, operator_kubeconfig, wait_for};

/// How long a scraper waits: as long as Prometheus by default.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes any certificate, as `insecureSkipVerify` does.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn tls(authority: Option<&Path>) -> ClientConfig {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_safe_default_protocol_versions()
        .unwrap();
    match authority {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_file(path).unwrap())
                .unwrap();
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    }
}

/// Head and body of the answer to a scrape, if there is one in time. The file holds the CA to trust; without it every
/// certificate is trusted.
fn scrape(
    address: &str,
    token: Option<&str>,
    authority: Option<&Path>,
) -> Option<(String, String)> {
    let mut tcp = TcpStream::connect(address).ok()?;
    tcp.set_read_timeout(Some(SCRAPE_TIMEOUT)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::new(tls(authority)), name).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let bearer = bearer.unwrap_or_default();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n{bearer}Connection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    // The end of the connection may lack TLS's own good-bye.
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

fn status(operator: &Operator, token: Option<&str>) -> u16 {
    let (head, _) = scrape(&operator.metrics, token, None).expect("an answer in time");
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// An operator that only serves its metrics.
fn spawn(name: &str, kubeconfig: &Path, kubectl: &Kubectl, extra: &[&str]) -> Operator {
    let namespace = format!("--namespace={}", kubectl.namespace);
    let mut flags = vec!["--webhooks=false", "--metrics-secure", &namespace];
    flags.extend(extra);
    Operator::spawn(kubectl.cluster, name, kubeconfig, &flags)
}

/// A new ServiceAccount's token. A reader may get the metrics.
async fn scraper(kubectl: &Kubectl, name: &str, reader: bool) -> String {
    kubectl
        .run(&format!("create serviceaccount {name}"))
        .await
        .good();
    if reader {
        allow(kubectl, name).await;
    }
    let token = kubectl.run(&format!("create token {name}")).await.good();
    token.trim().to_owned()
}

async fn allow(kubectl: &Kubectl, name: &str) {
    let namespace = &kubectl.namespace;
    kubectl
        .run(&format!(
            "create clusterrolebinding {namespace}-{name} --clusterrole=my-operator-metrics-reader --serviceaccount={namespace}:{name}"
        )).await
        .good();
}

async fn kubectl(name: &str) -> Kubectl {
    let cluster = cluster().await;
    Kubectl::new(cluster, &cluster.namespace(name).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_reader_gets_the_metrics() {
    let kubectl = kubectl("scrapes").await;
    let kubeconfig = operator_kubeconfig(kubectl.cluster).await;
    // The most that anybody can have in a log.
    let flags = ["--log-level=trace"];
    let operator = spawn("scrapes", &kubeconfig, &kubectl, &flags);
    operator.until_ready().await;
    let token = scraper(&kubectl, "scraper", false).await;
    assert_eq!(status(&operator, None), 401);
    assert_eq!(status(&operator, Some("bad")), 401);
    let (head, body) = scrape(&operator.metrics, Some(&token), None).unwrap();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let user = format!("system:serviceaccount:{}:scraper", kubectl.namespace);
    assert_eq!(body, format!("{user} may not get /metrics\n"));

    allow(&kubectl, "scraper").await;
    let (head, body) = wait_for("the right to count", async || {
        let (head, body) = scrape(&operator.metrics, Some(&token), None)?;
        head.starts_with("HTTP/1.1 200 ").then_some((head, body))
    })
    .await;
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.contains("my_operator_build_info{"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");

    // `my_operator_telemetry::access` shows in virtual time for how long a verdict counts.
    if is_soak() {
        kubectl.run("delete serviceaccount scraper").await.good();
        let deleted = Instant::now();
        wait_for("the revoked token to be rejected", async || {
            (status(&operator, Some(&token)) == 401).then_some(())
        })
        .await;
        // A minute here, and 10 s in the API server, which keeps its verdicts, too.
        assert!(deleted.elapsed() < Duration::from_secs(80));
    }
    assert!(!operator.log().contains(&token), "a token is in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_to_ask_is_named_in_the_log() {
    let kubectl = kubectl("no-reviews").await;
    let kubeconfig = kubectl
        .cluster
        .service_account_kubeconfig(&kubectl.namespace, "powerless")
        .await
        .unwrap();
    let operator = spawn("no-reviews", &kubeconfig, &kubectl, &[]);
    let token = scraper(&kubectl, "scraper", true).await;
    wait_for("an answer", async || scrape(&operator.metrics, None, None)).await;
    for _ in 0..3 {
        assert_eq!(status(&operator, Some(&token)), 503);
    }
    let log = operator.log();
    let logged = log.matches("not allowed to create tokenreviews").count();
    assert_eq!(logged, 1, "{log}");
}

// The way to the API server goes on while the test waits for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_mute_or_gone_delays_no_scrape_for_long() {
    let kubectl = kubectl("mute").await;
    let proxy = Proxy::to(kubectl.cluster).await;
    let kubeconfig = operator_kubeconfig(kubectl.cluster).await;
    proxy.lead_to(&kubeconfig);
    let operator = spawn("mute", &kubeconfig, &kubectl, &[]);
    operator.until_ready().await;
    let known = scraper(&kubectl, "known", true).await;
    let other = scraper(&kubectl, "other", true).await;
    assert_eq!(status(&operator, Some(&known)), 200);

    for mode in [Mode::Silent, Mode::Gone] {
        proxy.set(mode);
        let start = Instant::now();
        let (head, body) =
            scrape(&operator.metrics, Some(&other), None).expect("an answer in time");
        assert!(head.starts_with("HTTP/1.1 503 "), "{mode:?}: {head}");
        assert_eq!(body.lines().count(), 1, "{body}");
        assert!(start.elapsed() < SCRAPE_TIMEOUT, "{mode:?}");
        // A client that was allowed a moment ago still is.
        assert_eq!(status(&operator, Some(&known)), 200);
        assert_eq!(status(&operator, None), 401);
    }
    proxy.set(Mode::Open);
    wait_for("the other to be let in", async || {
        (status(&operator, Some(&other)) == 200).then_some(())
    })
    .await;
    let log = operator.log();
    let logged = log.matches("cannot check who may read the metrics").count();
    assert_eq!(logged, 1, "{log}");
    assert!(!log.contains(&other) && !log.contains(&known), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_are_served_with_the_pair_of_a_folder_and_with_the_next_one() {
    let kubectl = kubectl("metrics-pair").await;
    let kubeconfig = operator_kubeconfig(kubectl.cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let make = || development(folder.path(), &["localhost".to_owned()], Utc::now()).unwrap();
    let first = make().authority;
    let flag = format!("--metrics-cert-path={}", folder.path().display());
    let operator = spawn("metrics-pair", &kubeconfig, &kubectl, &[&flag]);
    let answers = |authority: &Path| scrape(&operator.metrics, None, Some(authority)).map(drop);
    wait_for("the pair to be served", async || answers(&first)).await;
    let second = make().authority;
    wait_for("the next pair to be served", async || answers(&second)).await;
}
