//! API servers with client certificates, good ones and bad ones, as they call webhooks that demand them.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use my_operator_cluster::{Options, free_ports};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::{Value, json};

use crate::disruption::VALIDATING;
use crate::harness::peer::{call, trust};
use crate::harness::{self, Kubectl, Operator, OwnPlane, operator_kubeconfig};

const GOOD: &str = "config/samples/apps_v1beta1_mydaemonset.yaml";
const BAD: &str = "config/samples/bad/apps_v1beta1_mydaemonset.yaml";
const NAME: &str = "kube-apiserver";
const REJECTED: &str =
    "my_operator_webhook_rejected_connections_total{reason=\"handshake_certificate\"}";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What an API server has for the webhooks: the files of docs/operations/security.md.
struct ApiServerFiles {
    folder: tempfile::TempDir,
    key: KeyPair,
}

impl ApiServerFiles {
    /// The user with that name, a host and a port, has the client certificate.
    fn write(user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{
                "name": user,
                "user": {"client-certificate": path("client.crt"), "client-key": path("client.key")},
            }],
        });
        let plugin = |name: &str| {
            json!({
                "name": name,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "WebhookAdmissionConfiguration",
                    "kubeConfigFile": path("kubeconfig.yaml"),
                },
            })
        };
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
        });
        let write = |name: &str, text: String| std::fs::write(path(name), text).unwrap();
        write("client.key", key.serialize_pem());
        write("kubeconfig.yaml", kubeconfig.to_string());
        write("admission.yaml", admission.to_string());
        Self { folder, key }
    }

    fn flag(&self) -> String {
        let file = self.folder.path().join("admission.yaml");
        format!("--admission-control-config-file={}", file.display())
    }

    /// Replaces the client certificate. The API server reads it again for a new connection, at most once a second
    /// (`cachingCertificateLoader` of client-go). The key stays the same, so that they are a pair at every moment.
    fn put_certificate(&self, issuer: &Issuer, name: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&self.key, issuer).unwrap();
        replace(&self.folder.path().join("client.crt"), &certificate.pem());
    }
}

/// Replaces a file in one step.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(&next, path).unwrap();
}

#[tokio::test]
async fn an_api_server_calls_with_the_right_client_certificate_alone() {
    let [port] = free_ports().unwrap();
    let files = ApiServerFiles::write(&format!("127.0.0.1:{port}"));
    let (ours, foreign) = (issuer("ours"), issuer("foreign"));
    files.put_certificate(&foreign, "another");
    let options = Options {
        api_server_args: vec![files.flag()],
        ..Options::with_nodes(&["node-1"])
    };
    let plane = OwnPlane::start(options).await;
    let cluster = plane.cluster;
    harness::install(cluster).await;
    let kubectl = Kubectl::new(cluster, "default");
    let kubeconfig = operator_kubeconfig(cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.crt");
    replace(&bundle, &ours.pem());
    let flags = [
        &format!("--webhook-client-ca={}", bundle.display()),
        &format!("--webhook-client-cn={NAME}"),
    ];
    let flags = flags.map(String::as_str);
    let apply = format!("apply -f {GOOD}");

    // No user of the API server's kubeconfig has this host and port: it presents no certificate.
    let elsewhere = Operator::spawn(cluster, "elsewhere", &kubeconfig, &flags);
    elsewhere.until_ready().await;
    kubectl
        .until_refused(&apply, "tls: certificate required")
        .await;
    elsewhere.process.stop(Duration::from_secs(10)).await;

    let operator = Operator::spawn_at(cluster, "here", &kubeconfig, Some(port), None, &flags);
    operator.until_ready().await;
    // A certificate of a foreign CA, with a wrong name as well.
    let unknown = "tls: unknown certificate authority";
    kubectl.until_refused(&apply, unknown).await;
    let refusal = kubectl.run(&apply).await.bad();
    assert!(refusal.contains("failed calling webhook"), "{refusal}");
    // Any other client, without a certificate.
    let ca = kubectl
        .field(VALIDATING, "{.webhooks[0].clientConfig.caBundle}")
        .await;
    let answer = call(&operator.webhook, trust(&STANDARD.decode(ca).unwrap())).await;
    let error = answer.expect_err("an answer without a client certificate");
    assert!(!error.contains("HTTP/1.1"), "{error}");

    // The bundle has the certificate's CA now; the name is still wrong. Only the bundle changes: for up to a second, the API
    // server would present the certificate that it read last, and keep a connection that was accepted with it.
    replace(&bundle, &foreign.pem());
    kubectl.until_refused(&apply, "tls: access denied").await;
    let page = operator.figures();
    let rejected = page.lines().find_map(|line| line.strip_prefix(REJECTED));
    let rejected: Option<f64> = rejected.and_then(|count| count.trim().parse().ok());
    assert!(rejected >= Some(3.0), "{page}");

    // Both are right.
    files.put_certificate(&foreign, NAME);
    let default = ("{.spec.revisionHistoryLimit}", "10");
    kubectl.until_webhooks_are_called(BAD, GOOD, default).await;
    kubectl.run(&apply).await.good();
    let refusal = kubectl.run(&format!("apply -f {BAD}")).await.bad();
    for fault in ["spec.image: Required value", "maxUnavailable"] {
        assert!(refusal.contains(fault), "{refusal}");
    }
    let stored = |object: Option<Value>| object.is_some();
    assert!(stored(kubectl.get("mds/mydaemonset-sample").await));
    assert!(!stored(kubectl.get("mds/bad-mydaemonset").await));
    operator.process.stop(Duration::from_secs(10)).await;
    plane.stop().await;
}
