//! Certificates from a Secret that the kubelet mounts, as cert-manager and others make it.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use my_operator_cluster::{Process, free_ports};
use serde_json::json;
use tokio::net::TcpStream;
use webhook_certs::authority::{Authority, Leaf};

use crate::harness::{Kubectl, NAMESPACE, peer, try_wait};
use crate::{
    DEPLOYMENT, IMAGE, PODS, deploy, kubectl, own, pods, until_alone, until_pods, until_rolled_out,
};

/// The Secret of `config/components/cert-manager`.
const SECRET: &str = "webhook-server-cert";
/// How soon after the kubelet has put it there a new certificate is to be served.
const NOTICED: Duration = Duration::from_secs(15);
/// The kubelet syncs each pod at least this often.
const PROJECTED: Duration = Duration::from_mins(2);

fn host() -> String {
    format!("my-operator-webhook-service.{NAMESPACE}.svc")
}

fn issue(authority: &Authority) -> Leaf {
    authority
        .issue(&[host()], Utc::now(), TimeDelta::hours(1))
        .unwrap()
}

/// Creates or changes the Secret.
async fn publish(own: &Kubectl, leaf: &Leaf) {
    let data = json!({
        "tls.crt": leaf.certificate_pem(),
        "tls.key": leaf.key_pem(),
    });
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "type": "kubernetes.io/tls",
        "stringData": data,
    });
    own.apply(&secret.to_string()).await.good();
}

/// The certificate that a pod of the operator serves; none while it does not answer.
async fn served(port: u16, authority: &Authority) -> Option<Vec<u8>> {
    let trust = peer::trust(authority.certificate_pem().as_bytes());
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let stream = peer::secured(stream, &host(), trust).await.ok()?;
    let chain = stream.get_ref().1.peer_certificates()?;
    Some(chain[0].to_vec())
}

/// Writes `caBundle` as cert-manager's injector does.
async fn inject(own: &Kubectl, authority: &Authority) {
    let bundle = STANDARD.encode(authority.certificate_pem());
    for kind in ["mutating", "validating"] {
        let configuration =
            format!("{kind}webhookconfiguration/my-operator-{kind}-webhook-configuration");
        let patch: Vec<_> = (0..2)
            .map(|i| json!({"op": "add", "path": format!("/webhooks/{i}/clientConfig/caBundle"), "value": bundle}))
            .collect();
        let patch = serde_json::Value::from(patch).to_string().replace(' ', "");
        own.run(&format!(
            "patch {configuration} --type=json --patch={patch}"
        ))
        .await
        .good();
    }
}

/// Writes `caBundle` again and again, since another client may have changed it.
async fn inject_again_and_again(own: &Kubectl, authority: &Authority) {
    loop {
        inject(own, authority).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A way from here to the webhook port of a pod.
fn forward(own: &Kubectl, pod: &str) -> (Process, u16) {
    let [port] = free_ports().unwrap();
    let process = own.spawn(
        &format!("port-forward pod/{pod} {port}:9443"),
        "port-forward",
    );
    (process, port)
}

#[tokio::test]
async fn a_certificate_in_a_mounted_secret_is_served_and_its_change_noticed_within_15_s() {
    let (kubectl, own) = (kubectl("files").await, own().await);
    let authority = Authority::generate(Utc::now(), TimeDelta::hours(1)).unwrap();
    let (first, second) = (issue(&authority), issue(&authority));
    publish(&own, &first).await;

    // What the component does, but for what needs cert-manager: the Certificate and the CA's injection.
    let component = "config/components/cert-manager";
    own.run(&format!(
        "patch {DEPLOYMENT} --type=strategic --patch-file={component}/volume.yaml"
    ))
    .await
    .good();
    own.run(&format!(
        "patch {DEPLOYMENT} --type=json --patch-file={component}/arguments.yaml"
    ))
    .await
    .good();
    // It works without the rights of a certificate authority. The next deploy gives them back.
    for role in ["clusterrole", "role"] {
        own.run(&format!(
            "patch {role}/my-operator-webhook-ca-role --type=json --patch-file={component}/no_rules.yaml"
        ))
        .await
        .good();
    }
    // A new replica is not ready before it has seen its own authority in caBundle, and the old ones put theirs
    // back, as they do beside cert-manager's injector.
    tokio::select! {
        () = until_rolled_out(&own) => {}
        () = inject_again_and_again(&own, &authority) => {}
    }
    until_alone(&own).await;
    inject(&own, &authority).await;
    // Through the API server, with the certificate of the files.
    let at = |name: &str| {
        format!(
            "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {{name: {name}}}
spec: {{schedule: now, command: echo {name}}}
"
        )
    };
    kubectl.until_applied(&at("first")).await;

    let pod = pods(&own, PODS).await.swap_remove(0);
    let field = |name: &str| pod["metadata"][name].as_str().unwrap().to_owned();
    let (_forwarding, port) = forward(&own, &field("name"));
    let serves = async |leaf: &Leaf, patience: Duration| {
        let begin = Instant::now();
        loop {
            if served(port, &authority).await.as_deref() == Some(&leaf.chain[0]) {
                return true;
            }
            if begin.elapsed() > patience {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(
        serves(&first, NOTICED).await,
        "the first certificate is not served"
    );

    let mounted = own.cluster.directory().join(format!(
        "node/kubelet/pods/{}/volumes/kubernetes.io~secret/{SECRET}/tls.crt",
        field("uid")
    ));
    let mounted = own.cluster.on_node(&mounted).unwrap();
    let has = |leaf: &Leaf| {
        let text = std::fs::read_to_string(&mounted).unwrap_or_default();
        (text == leaf.certificate_pem()).then_some(())
    };
    assert!(
        has(&first).is_some(),
        "{} is not the volume",
        mounted.display()
    );
    publish(&own, &second).await;
    // The kubelet updates the volumes of a pod only when it syncs the pod: about once a minute, and after each change.
    own.run(&format!(
        "annotate pod/{} example.com/sync=now",
        field("name")
    ))
    .await
    .good();
    let begin = Instant::now();
    let projected = try_wait(PROJECTED, async || has(&second)).await;
    assert!(
        projected.is_some(),
        "the kubelet did not project the new Secret"
    );
    let (in_volume, projected) = (Instant::now(), begin.elapsed());
    assert!(
        serves(&second, NOTICED).await,
        "not noticed within {NOTICED:?}"
    );
    println!(
        "a new certificate was in the volume after {:.1} s and served {:.1} s later",
        projected.as_secs_f64(),
        in_volume.elapsed().as_secs_f64()
    );
    kubectl.until_applied(&at("second")).await;

    // Back to the operator's own authority, which puts its bundle back.
    own.run(&format!("delete {DEPLOYMENT} --wait=true"))
        .await
        .good();
    until_pods(&own, "0").await;
    deploy(own.cluster, IMAGE).await.good();
    own.run(&format!("delete secret {SECRET}")).await.good();
    kubectl.until_applied(&at("third")).await;
}
