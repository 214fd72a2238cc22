//! The webhook as an API server calls it, with a handshake for each call, while its CA changes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bounded_listener::bind;
use chrono::{TimeDelta, Utc};
use kube::client::ClientBuilder;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use simulated_apiserver::{Options, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use webhook_certs::{Periods, ServerClock};

/// How much later than it changes API servers learn of a bundle: in less than twice this time, the propagation time.
const LAG: Duration = Duration::from_millis(400);

type Bundle = Vec<CertificateDer<'static>>;

/// The CAs in the webhook's configuration.
fn published(server: &Server) -> Bundle {
    let direct = server.direct();
    let configuration = direct.get("ValidatingWebhookConfiguration", "", "owned-pods");
    let configuration = configuration.unwrap_or_default();
    let encoded = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
    let pem = BASE64.decode(encoded.unwrap_or_default()).unwrap();
    let all = CertificateDer::pem_slice_iter(&pem);
    all.map(Result::unwrap).collect()
}

/// One call of an API server that trusts the bundle: its answer, status line and all.
async fn call(address: SocketAddr, bundle: Bundle, object: &Value) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle);
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("owned-pods.default.svc").unwrap();
    let stream = TcpStream::connect(address).await?;
    let tls = TlsConnector::from(Arc::new(config));
    let mut stream = tls.connect(name, stream).await?;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "object": object},
    });
    let body = review.to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn keep_calling(
    address: SocketAddr,
    mut trusted: watch::Receiver<Bundle>,
    calls: Arc<AtomicUsize>,
) {
    let owned = json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "a"}]}});
    let known = trusted.wait_for(|bundle| !bundle.is_empty()).await;
    drop(known.unwrap());
    loop {
        let bundle = trusted.borrow().clone();
        let answer = call(address, bundle, &owned).await;
        let answer = answer.unwrap_or_else(|error| format!("refused: {error}"));
        assert!(answer.contains(r#""allowed":true"#), "{answer}");
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Learns of each bundle late, as API servers do, until nothing of the first one is left. Returns the first.
async fn follow(server: &Server, trust: watch::Sender<Bundle>) -> Bundle {
    let mut first = Bundle::new();
    loop {
        let bundle = published(server);
        tokio::time::sleep(LAG).await;
        if first.is_empty() {
            first.clone_from(&bundle);
        } else if !bundle.iter().any(|ca| first.contains(ca)) {
            return first;
        }
        trust.send_replace(bundle);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_refused_while_the_ca_changes() {
    let server = Server::new(Options {
        start: Utc::now(),
        ..Options::default()
    });
    let clock = ServerClock::default();
    let client = ClientBuilder::new(server.service("webhook"), "default");
    let client = client.with_layer(&clock).build();
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    // The CA begins to change after 8 s, and the first one leaves the bundle some 6 s later.
    let periods = Periods {
        leaf_validity: TimeDelta::seconds(4),
        ca_validity: TimeDelta::seconds(12),
        propagation: TimeDelta::seconds(1),
    };
    let (trust, trusted) = watch::channel(Bundle::new());
    let calls = Arc::<AtomicUsize>::default();
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        callers.spawn(keep_calling(address, trusted.clone(), calls.clone()));
    }
    let test = async {
        let first = tokio::select! {
            first = tokio::time::timeout(Duration::from_secs(60), follow(&server, trust)) => first,
            ended = callers.join_next() => panic!("{ended:?}"),
        };
        let orphan = json!({"metadata": {}});
        let answer = call(address, published(&server), &orphan).await.unwrap();
        assert!(answer.contains(r#""allowed":false"#), "{answer}");
        // A client that still trusted the first CA would be refused: another one signs.
        let refused = call(address, first.expect("the CA changes"), &orphan).await;
        assert!(refused.is_err(), "{refused:?}");
    };
    tokio::select! {
        ended = super::webhook(client, clock, periods, listener) => panic!("{ended:?}"),
        () = test => {}
    }
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls > 100, "{calls} calls are no load");
}
