//! Callers with client certificates, good ones and bad ones.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::SupportedProtocolVersion;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::ClientAuthority;

const NAME: &str = "kube-apiserver";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A client certificate that is good unless changed.
fn client(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    (certificate.der().clone(), key.secret_pkcs8_der().to_vec())
}

/// A certificate and its key.
type Identity = (CertificateDer<'static>, Vec<u8>);

struct Guarded {
    server: Server,
    bundle: PathBuf,
    stop: tokio_util::sync::CancellationToken,
    _folder: tempfile::TempDir,
}

impl Guarded {
    async fn start(issuer: &Issuer, names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("ca.crt");
        std::fs::write(&bundle, issuer.pem()).unwrap();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let authority = ClientAuthority::read(bundle.clone(), names).unwrap();
        let authority = authority.with_tick(Duration::from_millis(10));
        let callers = Some(authority.verifier());
        let server = Server::of(router(&Arc::default()), Limits::default(), callers).await;
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::spawn(authority.run(stop.clone()));
        Self {
            server,
            bundle,
            stop,
            _folder: folder,
        }
    }

    /// Whether a request of this caller is answered. In TLS 1.3 the client learns of its rejection only when it reads.
    async fn answers(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> bool {
        self.answers_to(&self.config(identity, version)).await
    }

    /// The configuration of a caller, with a memory of its sessions.
    fn config(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let roots = self.server.roots();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity.cloned() {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
                config
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
            None => config.with_no_client_auth(),
        })
    }

    async fn answers_to(&self, config: &Arc<ClientConfig>) -> bool {
        let exchange = async {
            let stream = self.server.silent(HERE).await?;
            let name = ServerName::try_from("localhost").unwrap();
            let connector = TlsConnector::from(config.clone());
            let mut stream = connector.connect(name, stream).await?;
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
        };
        let exchange = tokio::time::timeout(SOON, exchange).await.expect("an end");
        exchange.unwrap_or(false)
    }

    fn rejected(&self) -> u64 {
        self.server.counters.rejected(Rejection::ClientCertificate)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn only_callers_with_a_valid_certificate_get_further_than_the_handshake() {
    let (ours, foreign) = (issuer(), issuer());
    let guarded = Guarded::start(&ours, &["another", NAME]).await;
    let good = client(&ours, |_| {});
    let (past, future) = (
        rcgen::date_time_ymd(2020, 1, 1),
        rcgen::date_time_ymd(2990, 1, 1),
    );
    let changed = |change: &dyn Fn(&mut CertificateParams)| Some(client(&ours, change));
    let bad = [
        ("none", None),
        ("of another CA", Some(client(&foreign, |_| {}))),
        ("expired", changed(&|params| params.not_after = past)),
        (
            "not yet valid",
            changed(&|params| params.not_before = future),
        ),
        (
            "another name",
            changed(&|params| params.distinguished_name.push(DnType::CommonName, "pod")),
        ),
        (
            "for servers",
            changed(&|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
        ),
        (
            "for nothing",
            changed(&|params| params.extended_key_usages.clear()),
        ),
    ];
    for version in [&TLS12, &TLS13] {
        assert!(guarded.answers(Some(&good), version).await, "{version:?}");
        for (what, identity) in &bad {
            let before = guarded.rejected();
            assert!(
                !guarded.answers(identity.as_ref(), version).await,
                "{what} {version:?}"
            );
            eventually(|| guarded.rejected() == before + 1).await;
        }
    }
    assert_eq!(
        guarded.server.counters.rejected(Rejection::HandshakeFailed),
        0
    );
}

#[tokio::test]
async fn without_names_the_ca_alone_decides() {
    let ours = issuer();
    let guarded = Guarded::start(&ours, &[]).await;
    assert!(guarded.answers(Some(&client(&ours, |_| {})), &TLS13).await);
    assert!(!guarded.answers(None, &TLS13).await);
}

#[tokio::test]
async fn the_bundle_is_replaced_while_connections_come_in() {
    let (old, new) = (issuer(), issuer());
    let guarded = Guarded::start(&old, &[NAME]).await;
    let (by_old, by_new) = (client(&old, |_| {}), client(&new, |_| {}));
    assert!(
        guarded.answers(Some(&by_old), &TLS13).await
            && !guarded.answers(Some(&by_new), &TLS13).await
    );
    // Both, for the time of a change.
    std::fs::write(&guarded.bundle, format!("{}{}", old.pem(), new.pem())).unwrap();
    while !guarded.answers(Some(&by_new), &TLS13).await {}
    assert!(guarded.answers(Some(&by_old), &TLS12).await);
    // A bad file changes nothing.
    for bad in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        std::fs::write(&guarded.bundle, bad).unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(guarded.answers(Some(&by_old), &TLS13).await);
    }
    std::fs::write(&guarded.bundle, new.pem()).unwrap();
    while guarded.answers(Some(&by_old), &TLS12).await {}
    assert!(guarded.answers(Some(&by_new), &TLS12).await);
}

#[tokio::test]
async fn a_session_ends_with_the_authority_of_its_client() {
    let (old, new) = (issuer(), issuer());
    let guarded = Guarded::start(&old, &[]).await;
    let (by_old, by_new) = (client(&old, |_| {}), client(&new, |_| {}));
    let caller = guarded.config(Some(&by_old), &TLS12);
    assert!(guarded.answers_to(&caller).await);
    std::fs::write(&guarded.bundle, new.pem()).unwrap();
    while !guarded.answers(Some(&by_new), &TLS12).await {}
    assert!(!guarded.answers_to(&caller).await);
}

#[test]
fn a_bundle_that_is_missing_or_bad_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    let error = || {
        let error = ClientAuthority::read(path.clone(), Vec::new());
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("ca.crt") && text.lines().count() == 1,
            "{text}"
        );
        text
    };
    assert!(error().contains("No such file"), "{}", error());
    std::fs::write(&path, "").unwrap();
    assert!(error().contains("no certificate"), "{}", error());
    std::fs::write(
        &path,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    error();
}
