//! The authority's Secret and the bundle damaged by hand, and an API server that cannot be reached.

use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use my_operator::manifests::Names;
use my_operator_cluster::Cluster;
use my_operator_rounds::lengths;
use serde_json::{Value, json};
use webhook_certs::authority::Authority;

use crate::disruption::load::Load;
use crate::disruption::{VALIDATING, report, until_event, webhook_plane};
use crate::harness::peer::{call, trust};
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{self, Kubectl, NAMESPACE, Operator, operator_kubeconfig};

/// The propagation time in these tests.
const PROPAGATION: &str = "--webhook-ca-propagation=3s";

/// The Secret of the authority, as the administrator sees it.
struct Held(Api<Secret>);

impl Held {
    async fn of(cluster: &Cluster) -> Self {
        Self(Api::namespaced(cluster.client().await.unwrap(), NAMESPACE))
    }

    /// One text of it.
    async fn text(&self, key: &str) -> Option<String> {
        let secret = self
            .0
            .get_opt(&Names::default().ca_secret())
            .await
            .unwrap()?;
        let ByteString(text) = secret.data?.remove(key)?;
        String::from_utf8(text).ok()
    }

    /// Its CA, if that could sign.
    async fn authority(&self) -> Option<String> {
        let (certificate, key) = (self.text("ca.crt").await?, self.text("ca.key").await?);
        let authority = Authority::from_pem(&certificate, &key).ok()?;
        (authority.anchor().not_after() > Utc::now()).then_some(certificate)
    }

    async fn delete(&self) {
        let params = DeleteParams::default();
        self.0
            .delete(&Names::default().ca_secret(), &params)
            .await
            .unwrap();
    }

    async fn put(&self, data: &Value) {
        let patch = Patch::Merge(json!({ "stringData": data }));
        let params = PatchParams::default();
        self.0
            .patch(&Names::default().ca_secret(), &params, &patch)
            .await
            .unwrap();
    }

    /// Waits until there is another CA that can sign than this one.
    async fn until_other_than(&self, old: &str) -> String {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            match self.authority().await {
                Some(certificate) if certificate != old => return certificate,
                _ => assert!(Instant::now() < end, "no other CA came"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until the operator serves a leaf of that CA.
async fn until_signed_by(operator: &Operator, certificate: &str) {
    let end = Instant::now() + Duration::from_secs(90);
    while let Err(error) = call(&operator.webhook, trust(certificate.as_bytes())).await {
        assert!(Instant::now() < end, "{error}\n{}", operator.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Takes the bundle away, and returns how long it was away.
async fn wipe(kubectl: &Kubectl) -> Duration {
    let bundle = "{.webhooks[0].clientConfig.caBundle}";
    let before = kubectl.field(VALIDATING, bundle).await;
    let remove = r#"[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]"#;
    kubectl
        .run(&format!("patch {VALIDATING} --type=json -p {remove}"))
        .await
        .good();
    let start = Instant::now();
    kubectl.until_field(VALIDATING, bundle, &before).await;
    start.elapsed()
}

/// A pair for the Secret.
fn pair(certificate: &Authority, key: &Authority) -> Value {
    json!({ "ca.crt": certificate.certificate_pem(), "ca.key": key.key_pem() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_deleted_or_damaged_is_replaced_and_fails_no_call() {
    let plane = webhook_plane().await;
    let cluster = *plane;
    let namespace = cluster.namespace("damage").await.unwrap();
    let kubectl = Kubectl::new(cluster, NAMESPACE);
    let held = Held::of(cluster).await;
    let flags = [PROPAGATION, "--namespace", &namespace];
    let operator = Operator::start(cluster, "damage", &flags).await;
    let load = Load::start(&harness::client(cluster).await, &namespace, 2);

    let now = Utc::now();
    let year = TimeDelta::days(365);
    let made = |at| Authority::generate(at, year).unwrap();
    let (one, other, expired) = (made(now), made(now), made(now - year - year));
    let half = {
        let pem = one.certificate_pem();
        pem[..pem.len() / 2].to_owned()
    };
    for (what, damage, reason, words) in [
        (
            "deleted",
            None,
            "MissingAuthority",
            "the Secret did not exist",
        ),
        (
            "filled with garbage",
            Some(json!({ "ca.crt": "garbage", "ca.key": "garbage" })),
            "UnusableAuthority",
            "not a certificate",
        ),
        (
            "left with half a PEM",
            Some(json!({ "ca.crt": half })),
            "UnusableAuthority",
            "not a certificate",
        ),
        (
            "given the key of another certificate",
            Some(pair(&one, &other)),
            "UnusableAuthority",
            "the private key does not belong to the certificate",
        ),
        (
            "given an expired CA",
            Some(pair(&expired, &expired)),
            "ExpiredAuthority",
            "the CA expired at",
        ),
    ] {
        let old = held.authority().await.unwrap();
        match &damage {
            None => held.delete().await,
            Some(data) => held.put(data).await,
        }
        let start = Instant::now();
        let fresh = held.until_other_than(&old).await;
        let replaced = start.elapsed();
        until_signed_by(&operator, &fresh).await;
        report(&format!(
            "Secret {what}: a fresh CA after {replaced:?}, signing after {:?}",
            start.elapsed()
        ));
        // The same reason again is counted, with the words of the first.
        until_event(&kubectl, reason, "a new CA replaces it").await;
        let log = operator.log();
        let line = log
            .lines()
            .find(|l| l.contains("WARN") && l.contains(words));
        assert!(line.is_some(), "{log}");
    }

    // A pair that is good, as from a backup: it is used, and what is served stays trusted.
    let backup = made(now);
    held.put(&pair(&backup, &backup)).await;
    let start = Instant::now();
    until_signed_by(&operator, &backup.certificate_pem()).await;
    report(&format!(
        "Secret given another CA: signing after {:?}",
        start.elapsed()
    ));

    let calls = load.end_well().await;
    report(&format!("{calls} calls answered meanwhile, 0 failed"));

    for _ in 0..3 {
        let away = wipe(&kubectl).await;
        report(&format!("caBundle wiped: back after {away:?}"));
        assert!(away < Duration::from_secs(5), "{away:?}");
    }
    operator.process.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_silent_or_slow_is_waited_for_while_the_webhook_serves() {
    let plane = webhook_plane().await;
    let cluster = *plane;
    let namespace = cluster.namespace("silent").await.unwrap();
    let held = Held::of(cluster).await;
    let proxy = Proxy::to(cluster).await;
    let kubeconfig = operator_kubeconfig(cluster).await;
    proxy.lead_to(&kubeconfig);
    let flags = [PROPAGATION, "--namespace", &namespace];
    let operator = Operator::spawn(cluster, "silent", &kubeconfig, &flags);
    operator.until_ready().await;
    let client = harness::client(cluster).await;

    let load = Load::start(&client, &namespace, 1);
    proxy.set(Mode::Silent);
    let silence = lengths::silence();
    tokio::time::sleep(silence).await;
    let calls = load.end_well().await;
    operator.until_ready().await;
    report(&format!(
        "API server silent for {silence:?}: {calls} calls answered, 0 failed"
    ));
    // What happened meanwhile is noticed soon after.
    let old = held.authority().await.unwrap();
    held.delete().await;
    proxy.set(Mode::Open);
    let start = Instant::now();
    let fresh = held.until_other_than(&old).await;
    let replaced = start.elapsed();
    report(&format!(
        "Secret deleted meanwhile: replaced {replaced:?} after its end"
    ));
    assert!(replaced < Duration::from_secs(45), "{replaced:?}");
    until_signed_by(&operator, &fresh).await;

    // Late answers: all takes longer, and goes on.
    let load = Load::start(&client, &namespace, 1);
    let lateness = lengths::lateness();
    proxy.set(Mode::Late(lateness));
    held.delete().await;
    let start = Instant::now();
    held.until_other_than(&fresh).await;
    let took = start.elapsed();
    let calls = load.end_well().await;
    report(&format!(
        "answers after {lateness:?}: a deleted Secret replaced after {took:?}; {calls} calls answered, 0 failed"
    ));
    proxy.set(Mode::Open);
    operator.process.stop(Duration::from_secs(10)).await;
}
