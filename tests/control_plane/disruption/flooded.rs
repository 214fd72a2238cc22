//! Reviews as large as the API server and the listener allow, as many at once as the listener accepts.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use my_operator_rounds::lengths;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::load::{Load, dry_run};
use super::{VALIDATING, report, webhook_plane};
use crate::harness::peer::{secured, trust};
use crate::harness::{self, Kubectl, NAMESPACE, Operator, operator_kubeconfig, wait_for};

/// Peers that send one review after the other, each from an address of its own.
const PEERS: u8 = 16;
/// The time-out of the probes in `config/manager`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// So many failed probes in a row restart a pod: `failureThreshold`, by default 3.
const PROBE_FAILURES: usize = 3;
/// What the largest reviews may add to the peak of the memory.
const MAX_GROWTH: usize = 64 << 20;

/// So many annotations, each of which a review holds twice: the API server adds an entry of managedFields.
fn annotations(count: usize) -> Value {
    let each = (0..count).map(|n| (format!("{n:x}"), Value::from("")));
    Value::Object(each.collect())
}

/// A request of almost 8 MiB.
fn large_review() -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "cnat.programming-kubernetes.info", "version": "v1alpha1", "kind": "At"},
            "operation": "CREATE",
            "object": {"metadata": {"name": "x", "annotations": annotations(480_000)}, "spec": {}},
        },
    })
    .to_string();
    format!(
        "POST /mutate-cnat-programming-kubernetes-info-v1alpha1-at HTTP/1.1\r\nHost: x\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{review}",
        review.len()
    )
    .into_bytes()
}

/// Sends the request once and returns the status line.
async fn send(
    webhook: &str,
    from: Ipv4Addr,
    tls: &Arc<rustls::ClientConfig>,
    request: &[u8],
) -> std::io::Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(webhook.parse().unwrap()).await?;
    let mut stream = secured(stream, "127.0.0.1", tls.clone()).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// Whether the probe is answered in time.
async fn probe(address: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
    };
    matches!(timeout(PROBE_TIMEOUT, ask).await, Ok(Ok(true)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_reviews_delay_neither_the_lease_nor_the_probes() {
    let plane = webhook_plane().await;
    let kubeconfig = operator_kubeconfig(*plane).await;
    let namespace = plane.namespace("flooded").await.unwrap();
    let flags = [
        "--namespace",
        &namespace,
        "--leader-elect",
        "--leader-election-lease-duration=3s",
        "--leader-election-renew-deadline=2s",
        "--leader-election-retry-period=500ms",
    ];
    let operator = Operator::spawn(*plane, "flooded", &kubeconfig, &flags);
    operator.until_ready().await;
    let kubectl = Kubectl::new(*plane, NAMESPACE);
    let holder = kubectl
        .until_any("lease/my-operator", "{.spec.holderIdentity}")
        .await;
    let bundle = kubectl
        .field(VALIDATING, "{.webhooks[0].clientConfig.caBundle}")
        .await;
    let bundle = BASE64_STANDARD.decode(bundle).unwrap();
    let (tls, request) = (trust(&bundle), Arc::new(large_review()));

    let end = Instant::now() + lengths::flood();
    let answered = Arc::new(AtomicUsize::new(0));
    let mut peers = JoinSet::new();
    for peer in 1..=PEERS {
        let (webhook, tls, request) = (operator.webhook.clone(), tls.clone(), request.clone());
        let answered = answered.clone();
        peers.spawn(async move {
            let from = Ipv4Addr::new(127, 0, 3, peer);
            while Instant::now() < end {
                // Now and then the listener cuts a flood short, or asks the peer to retry.
                let sent = send(&webhook, from, &tls, &request).await;
                if sent.is_ok_and(|line| line.contains(" 200 ")) {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let (mut probes, mut failed, mut in_a_row, mut worst) = (0, 0, 0, 0);
    while Instant::now() < end {
        let is_answered = probe(&operator.probes).await;
        probes += 1;
        failed += usize::from(!is_answered);
        in_a_row = if is_answered { 0 } else { in_a_row + 1 };
        worst = worst.max(in_a_row);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    peers.join_all().await;
    let answered = answered.load(Ordering::Relaxed);
    report(&format!(
        "{answered} reviews of 8 MB; {failed} of {probes} probes failed"
    ));
    assert!(answered > 0, "no review was answered");
    assert!(
        operator.process.is_running(),
        "the operator ended:\n{}",
        operator.log()
    );
    assert!(worst < PROBE_FAILURES, "{worst} probes in a row failed");
    let lease = kubectl.get("lease/my-operator").await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], holder.as_str());
}

/// Whether a request came through the webhooks. After them, the API server itself finds very many annotations too long.
fn is_judged(said: &str) -> bool {
    said.is_empty() || said.contains("metadata.annotations: Too long")
}

/// Applies of an honest user beside 200 dry runs of an editor, each as large as the API server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_dry_runs_fail_no_honest_request_and_take_little_memory() {
    let plane = webhook_plane().await;
    let namespace = plane.namespace("editor").await.unwrap();
    // Other tests have objects on this plane.
    let operator = Operator::start(*plane, "editor", &["--namespace", &namespace]).await;
    let client = harness::client(*plane).await;
    wait_for("the webhooks are called", async || {
        dry_run(&client, &namespace, 0)(0).await.ok()
    })
    .await;
    let resource = (my_operator::kinds::at::KIND.admission.resource)();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let object = DynamicObject::new("large", &resource).data(json!({
        "spec": {"schedule": "2100-01-01T00:00:00Z", "command": "true"},
    }));
    let mut object = serde_json::to_value(object).unwrap();
    // 3 MiB is the most that the API server takes.
    object["metadata"]["annotations"] = annotations(lengths::large_annotations());
    let object: Arc<DynamicObject> = Arc::new(serde_json::from_value(object).unwrap());

    let create = async move || {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match api.create(&params, &object).await {
            Ok(_) => String::new(),
            Err(error) => resilient_kube_client::explain(&error),
        }
    };

    let before = harness::peak_memory(operator.process.pid());
    let said = create().await;
    assert!(is_judged(&said), "{said}");
    let honest = Load::start(&client, &namespace, 1);
    let large = (0..lengths::large_dry_runs()).map(|_| {
        let create = create.clone();
        tokio::spawn(async move { create().await })
    });
    let said = futures::future::join_all(large.collect::<Vec<_>>()).await;
    let growth = harness::peak_memory(operator.process.pid()) - before;
    let answered = honest.end_well().await;
    let judged = said.iter().flatten().filter(|said| is_judged(said));
    report(&format!(
        "{} of {} dry runs at once judged, {answered} honest requests answered, +{} MiB",
        judged.count(),
        said.len(),
        growth >> 20,
    ));
    assert!(growth <= MAX_GROWTH, "+{} MiB", growth >> 20);
}
