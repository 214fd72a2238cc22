//! Certificates that change while the API server and others call: no call may fail for it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use my_operator::certs::authority::{Authority, Leaf};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{Kubectl, Operator, wait_for};
use crate::{cluster, webhooks};

/// Between two calls of one peer: other tests run beside this one.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls through the API server, again and again, and what became of them.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(client: &Client, namespace: &str) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            failures: Arc::default(),
            tasks: JoinSet::new(),
        };
        for worker in 0..3 {
            let resource = (my_operator::kinds::mydaemonset::KIND.admission.resource)();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &resource);
            load.repeat(move |i| {
                let object = object(&resource, worker, i);
                let api = api.clone();
                async move {
                    let dry_run = PostParams {
                        dry_run: true,
                        ..PostParams::default()
                    };
                    let made = api.create(&dry_run, &object).await;
                    let made = made.map_err(|error| error.to_string())?;
                    // The answer has passed the mutating webhook, or else it had no defaults.
                    let defaulted = made.data["spec"]["revisionHistoryLimit"] == 10;
                    defaulted.then_some(()).ok_or_else(|| "no defaults".into())
                }
            });
        }
        load
    }

    fn repeat<F, Called>(&mut self, mut call: F)
    where
        F: FnMut(usize) -> Called + Send + 'static,
        Called: Future<Output = Result<(), String>> + Send,
    {
        let (stop, answered) = (self.stop.clone(), self.answered.clone());
        let failures = self.failures.clone();
        self.tasks.spawn(async move {
            let mut i = 0;
            while !stop.load(Ordering::Relaxed) {
                match call(i).await {
                    Ok(()) => _ = answered.fetch_add(1, Ordering::Relaxed),
                    Err(error) => failures.lock().unwrap().push(error),
                }
                i += 1;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// How many calls were answered; none may have failed.
    async fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(*self.failures.lock().unwrap(), Vec::<String>::new());
        self.answered.load(Ordering::Relaxed)
    }
}

fn object(resource: &ApiResource, worker: usize, i: usize) -> DynamicObject {
    DynamicObject::new(&format!("x-{worker}-{i}"), resource)
        .data(json!({ "spec": { "image": "nginx:1" } }))
}

/// A handshake and one call, as a peer that trusts these anchors. Gives the certificate presented.
async fn call(webhook: &str, tls: Arc<rustls::ClientConfig>) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(webhook).await.map_err(text)?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(tls)
        .connect(name, stream)
        .await
        .map_err(text)?;
    let presented = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "apps.zhongmingmao.io", "version": "v1beta1", "kind": "MyDaemonSet"},
            "operation": "CREATE",
            "object": {"metadata": {"name": "x"}, "spec": {"image": "nginx:1"}},
        },
    })
    .to_string();
    let request = format!(
        "POST /validate-apps-zhongmingmao-io-v1beta1-mydaemonset HTTP/1.1\r\nHost: {webhook}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{review}",
        review.len()
    );
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(text)?;
    let answer = String::from_utf8_lossy(&answer);
    if answer.starts_with("HTTP/1.1 200") && answer.contains("\"allowed\":true") {
        Ok(presented)
    } else {
        Err(answer.into_owned())
    }
}

fn trust(authority: &Authority) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let anchor =
        rustls::pki_types::pem::PemObject::from_pem_slice(authority.certificate_pem().as_bytes());
    roots.add(anchor.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed session presents nothing.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Puts files into the folder as the kubelet does for a Secret: a new folder beside the old, and a
/// link to it that is swapped in one step.
fn swap(folder: &Path, round: usize, files: [(&str, &str); 3]) {
    let data = folder.join(format!("..{round}"));
    std::fs::create_dir(&data).unwrap();
    for (name, text) in files {
        std::fs::write(data.join(name), text).unwrap();
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("..data/{name}"), link).unwrap();
        }
    }
    let fresh = folder.join("..data_tmp");
    std::os::unix::fs::symlink(format!("..{round}"), &fresh).unwrap();
    std::fs::rename(fresh, folder.join("..data")).unwrap();
}

#[tokio::test]
async fn files_that_change_under_load_fail_no_call() {
    let cluster = cluster().await;
    let _webhooks = webhooks().await;
    let namespace = cluster.namespace("files").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let now = Utc::now();
    let authority = Authority::generate(now, TimeDelta::days(1)).unwrap();
    let leaf = || -> Leaf {
        let hosts = ["127.0.0.1".to_owned()];
        authority.issue(&hosts, now, TimeDelta::hours(1)).unwrap()
    };
    let put = |round: usize, certificate: &Leaf, key: &Leaf| {
        let files = [
            ("ca.crt", &*authority.certificate_pem()),
            ("tls.crt", &*certificate.certificate_pem()),
            ("tls.key", &*key.key_pem()),
        ];
        swap(folder.path(), round, files);
    };
    let first = leaf();
    put(0, &first, &first);
    let path = folder.path().display().to_string();
    let extra = [
        "--webhook-cert-path",
        &path,
        "--namespace",
        &namespace,
        "--log-level=warn",
    ];
    let operator = Operator::start(cluster, "files", &extra).await;

    let mut load = Load::start(&cluster.client().await.unwrap(), &namespace);
    let seen: Arc<Mutex<HashSet<Vec<u8>>>> = Arc::default();
    for _ in 0..2 {
        let (webhook, tls) = (operator.webhook.clone(), trust(&authority));
        let seen = seen.clone();
        load.repeat(move |_| {
            let (webhook, tls, seen) = (webhook.clone(), tls.clone(), seen.clone());
            async move {
                let presented = call(&webhook, tls).await?;
                seen.lock().unwrap().insert(presented);
                Ok(())
            }
        });
    }
    let refusals = || {
        operator
            .log()
            .matches("does not belong to the certificate")
            .count()
    };
    for round in 1..=3 {
        // A certificate and a key that are no pair: the last good pair is kept.
        let before = refusals();
        put(2 * round, &leaf(), &leaf());
        wait_for("the wrong pair to be refused", || {
            (refusals() > before).then_some(())
        })
        .await;
        assert_eq!(seen.lock().unwrap().len(), round);
        let next = leaf();
        put(2 * round + 1, &next, &next);
        wait_for("the new certificate to be served", || {
            let seen = seen.lock().unwrap();
            seen.contains(&*next.chain[0].to_vec()).then_some(())
        })
        .await;
    }
    let calls = load.end().await;
    assert_eq!(seen.lock().unwrap().len(), 4);
    assert!(calls > 100, "{calls} calls only");
}

#[tokio::test]
async fn an_authority_that_changes_under_load_fails_no_call() {
    let cluster = cluster().await;
    let _webhooks = webhooks().await;
    let namespace = cluster.namespace("authority").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let periods = [
        "--log-level=warn",
        "--webhook-leaf-validity=6s",
        "--webhook-ca-propagation=2s",
        "--webhook-ca-validity=30s",
        "--namespace",
        &namespace,
    ];
    let operator = Operator::start(cluster, "authority", &periods).await;
    let load = Load::start(&cluster.client().await.unwrap(), &namespace);
    let mut bundles: Vec<String> = Vec::new();
    // The first CA, both, the second, both, the third.
    wait_for("two changes of the authority", || {
        let path = "{.webhooks[0].clientConfig.caBundle}";
        let bundle = kubectl.field(crate::VALIDATING, path);
        if bundles.last() != Some(&bundle) {
            bundles.push(bundle);
        }
        (bundles.len() >= 5).then_some(())
    })
    .await;
    let calls = load.end().await;
    assert!(calls > 100, "{calls} calls only");
    drop(operator);
}
