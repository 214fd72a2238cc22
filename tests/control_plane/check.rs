//! `my-operator check` on a real control plane, with one fault after another. The objects are those of `make deploy`;
//! the nodes are fakes, so the operator is a process here, behind a Service with an external name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use my_operator_cluster::{Cluster, Options, Process, free_ports};
use rustls::crypto::aws_lc_rs;
use tokio_rustls::TlsAcceptor;
use webhook_certs::authority::Authority;

use crate::harness::{
    self, Kubectl, NAMESPACE, Operator, OwnPlane, Said, TIMEOUT, checkout, operator_program, run,
    try_wait,
};

const VALIDATING: &str =
    "validatingwebhookconfiguration/my-operator-validating-webhook-configuration";
const DEPLOYMENT: &str = "deployment/my-operator-controller-manager";
/// The host that API servers expect in the certificate.
const HOST: &str = "my-operator-webhook-service.my-operator-system.svc";
/// Every check of an installation, in the order of the lines.
const CHECKS: &[&str] = &[
    "server-version",
    "installation",
    "replicas",
    "version",
    "crd mydaemonsets.apps.zhongmingmao.io",
    "crd ats.cnat.programming-kubernetes.info",
    "rights",
    "leader",
    "webhook-configuration MutatingWebhookConfiguration",
    "webhook-configuration ValidatingWebhookConfiguration",
    "ca-bundle",
    "certificate",
    "webhooks MyDaemonSet",
    "webhooks At",
];

struct Environment {
    plane: OwnPlane,
    own: Kubectl,
    webhook: String,
}

/// `my-operator check ARGS`, and its exit code.
async fn check(kubeconfig: &Path, args: &str) -> (Said, i32) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "\"$0\" check \"$@\"; echo \"code $?\" >&2"])
        .arg(operator_program())
        .args(args.split_whitespace())
        .env("KUBECONFIG", kubeconfig);
    let said = run(&mut command, "").await;
    let code = said.err.trim().rsplit(' ').next().unwrap().parse().unwrap();
    (said, code)
}

impl Environment {
    /// What `make deploy` installs, and a Service that leads to a port of this machine.
    async fn start() -> Self {
        let plane = OwnPlane::start(Options::with_nodes(&["node-1", "node-2"])).await;
        let [port] = free_ports().unwrap();
        let own = Kubectl::new(plane.cluster, NAMESPACE);
        let image = concat!("example.com:5000/my-operator:", env!("CARGO_PKG_VERSION"));
        let mut render = Command::new(checkout().join("hack/render"));
        render
            .arg(image)
            .env("KUBECTL", own.cluster.program("kubectl"));
        let rendered = run(&mut render, "").await.good();
        let documents = rendered.split("\n---\n").map(|document| {
            let is = |words: &str| document.contains(words);
            if is("\nkind: Service\n") && is("name: my-operator-webhook-service") {
                format!(
                    "{{apiVersion: v1, kind: Service, metadata: {{name: my-operator-webhook-service, namespace: {NAMESPACE}}}, spec: {{type: ExternalName, externalName: 127.0.0.1}}}}"
                )
            } else {
                document.replace("port: 443\n", &format!("port: {port}\n"))
            }
        });
        let objects = documents.collect::<Vec<_>>().join("\n---\n");
        let mut apply = own.cluster.kubectl();
        run(apply.args(["apply", "-f", "-"]), &objects).await.good();
        let status = format!("rollout status {DEPLOYMENT} --timeout=60s");
        own.run(&status).await.good();
        let webhook = format!("127.0.0.1:{port}");
        Self {
            plane,
            own,
            webhook,
        }
    }

    fn cluster(&self) -> &'static Cluster {
        self.plane.cluster
    }

    /// The operator, with the flags of the Deployment as far as they matter here.
    async fn operator(&self, name: &str) -> Process {
        let kubeconfig = harness::operator_kubeconfig(self.cluster()).await;
        let mut command = Command::new(operator_program());
        command
            .args(["run", "--leader-elect", "--health-probe-bind-address=0"])
            .args(["--metrics-bind-address=0", "--shutdown-delay=0s"])
            .arg(format!("--webhook-bind-address={}", self.webhook))
            .env("KUBECONFIG", kubeconfig);
        self.cluster().spawn(name, &mut command).unwrap()
    }

    async fn check(&self, args: &str) -> (Said, i32) {
        check(self.cluster().kubeconfig(), args).await
    }

    /// Waits until all is well.
    async fn until_well(&self) {
        let (said, code) = self.check("--wait 60s").await;
        assert_eq!(code, 0, "{}{}", said.out, said.err);
    }

    /// Waits until the check has that line and exit code: API servers take a moment to see a change.
    async fn until_line(&self, args: &str, line: &[&str], code: i32) {
        let mut last = None;
        let found = try_wait(harness::TIMEOUT, async || {
            let (said, ended) = self.check(args).await;
            let mut lines = said.out.lines();
            let found = lines.any(|text| line.iter().all(|word| text.contains(word)));
            last = Some((said, ended));
            (found && ended == code).then_some(())
        });
        assert!(found.await.is_some(), "no {line:?} with {code}: {last:#?}");
    }

    async fn kubectl(&self, args: &str) {
        self.own.run(args).await.good();
    }

    /// A JSON patch of one operation.
    async fn patch(&self, object: &str, operation: &str) {
        let patch = format!("patch {object} --type=json -p [{operation}]");
        self.kubectl(&patch).await;
    }
}

#[tokio::test]
async fn each_fault_of_an_installation_is_one_line() {
    let here = Environment::start().await;

    // Nothing serves yet.
    here.until_line(
        "",
        &["✗ webhooks At", "connection refused", "no replica is ready"],
        1,
    )
    .await;
    here.until_line("", &["✗ leader", "there is no Lease"], 1)
        .await;

    // One operator, and all is well. It is not a pod, which is worth a warning.
    let operator = here.operator("operator").await;
    here.until_well().await;
    let (said, _) = here.check("").await;
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), CHECKS.len() + 1, "{}", said.out);
    for (line, check) in lines.iter().zip(CHECKS) {
        let mark = if *check == "leader" { "!" } else { "✔" };
        assert!(
            line.starts_with(&format!("{mark} {check}: ")),
            "{check}: {}",
            said.out
        );
    }
    json(&here).await;
    rights_of_a_check(&here).await;
    places_that_are_not_there(&here).await;
    crds(&here).await;
    replicas(&here).await;
    configurations(&here).await;
    certificates(&here).await;
    bundles(&here).await;

    // The operator ends, and gives the Lease up.
    assert!(operator.stop(Duration::from_secs(20)).await.success());
    here.until_line("", &["✗ leader", "no holder"], 1).await;
    here.until_line("", &["✗ webhooks MyDaemonSet", "connection refused"], 1)
        .await;
    let lease = r#"patch lease/my-operator --type=merge -p {"spec":{"holderIdentity":"a_b","leaseDurationSeconds":15,"renewTime":"2026-01-01T00:00:00.000000Z"}}"#;
    here.kubectl(lease).await;
    here.until_line("", &["✗ leader", "a_b is stale"], 1).await;
    outside(&here).await;
    here.plane.stop().await;
}

/// As `make run` starts it: without a Deployment, an election and the ServiceAccount.
async fn outside(here: &Environment) {
    here.kubectl(&format!("delete {DEPLOYMENT}")).await;
    let all = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let label = "app.kubernetes.io/name=my-operator";
    here.kubectl(&format!("delete {all} -l {label}")).await;
    let kubeconfig = here.cluster().kubeconfig();
    let operator = Operator::spawn(here.cluster(), "outside", kubeconfig, &[]);
    operator.until_ready().await;
    let line = [
        "! installation",
        "outside of the cluster",
        &operator.webhook,
    ];
    here.until_line("--wait 60s", &line, 0).await;
    let (said, _) = here.check("").await;
    let not_checked = ["replicas", "version", "rights", "leader"];
    let checks = CHECKS.iter().filter(|check| !not_checked.contains(check));
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), checks.clone().count() + 1, "{}", said.out);
    for (line, check) in lines.iter().zip(checks) {
        let mark = if *check == "installation" { "!" } else { "✔" };
        assert!(
            line.starts_with(&format!("{mark} {check}: ")),
            "{}",
            said.out
        );
    }
    assert!(operator.process.stop(TIMEOUT).await.success());
}

async fn json(here: &Environment) {
    let (said, code) = here.check("-o json").await;
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((code, &report["result"]), (0, &"warning".into()));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["namespace"], NAMESPACE);
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), CHECKS.len());
    for (found, check) in checks.iter().zip(CHECKS) {
        let name = found["check"].as_str().unwrap();
        let subject = found["subject"].as_str().unwrap_or_default();
        assert_eq!(format!("{name} {subject}").trim(), *check);
        assert!(found["message"].is_string());
    }
}

/// Who has exactly the rights of config/check sees everything, and who has none sees that.
async fn rights_of_a_check(here: &Environment) {
    here.kubectl("create serviceaccount powerless").await;
    let kubeconfig = async |name: &str| -> PathBuf {
        let made = here.cluster().service_account_kubeconfig(NAMESPACE, name);
        made.await.unwrap()
    };
    let (said, code) = check(&kubeconfig("powerless").await, "").await;
    assert_eq!(code, 0, "{said:?}");
    // Of what it shows nothing can be said to be well.
    let end = said.out.lines().last().unwrap_or_default();
    assert!(end.ends_with(" could not be checked"), "{end}");
    let strict = check(&kubeconfig("powerless").await, "--strict").await;
    assert_eq!(strict.1, 1, "{strict:?}");
    let blind: Vec<&str> = said
        .out
        .lines()
        .filter(|it| it.contains("unknown:"))
        .collect();
    let seen = ["✔ server-version"];
    for line in said.out.lines().filter(|it| it.starts_with('✔')) {
        assert!(seen.iter().any(|it| line.starts_with(it)), "{}", said.out);
    }
    for call in [
        "no right to list deployments.apps in namespace my-operator-system",
        "no right to get customresourcedefinitions.apiextensions.k8s.io",
        "no right to create subjectaccessreviews.authorization.k8s.io",
        "no right to get leases.coordination.k8s.io",
        "no right to list validatingwebhookconfigurations",
        "no right to create ats.cnat.programming-kubernetes.info in namespace default",
    ] {
        assert!(
            blind.iter().any(|it| it.contains(call)),
            "{call}: {}",
            said.out
        );
    }

    let mut apply = here.cluster().kubectl();
    apply
        .current_dir(checkout())
        .args(["apply", "-f", "config/check/role.yaml"]);
    run(&mut apply, "").await.good();
    let kubeconfig = kubeconfig("my-operator-check").await;
    let address = format!("--webhook-address={}", here.webhook);
    let (said, code) = check(&kubeconfig, &format!("{address} --strict")).await;
    assert_eq!(code, 0, "{said:?}");
    assert!(!said.out.contains("unknown:"), "{}", said.out);
    assert_eq!(
        said.out.lines().filter(|it| it.starts_with('!')).count(),
        1,
        "{}",
        said.out
    );

    // Neither may install; the administrator may.
    let (said, code) = check(&kubeconfig, "--pre").await;
    assert!(
        code == 1 && said.out.contains("✗ install-rights: you may not"),
        "{said:?}"
    );
    let (said, code) = here.check("--pre").await;
    assert!(code == 0 && said.out.lines().count() == 6, "{said:?}");
    let own = "✔ crd ats.cnat.programming-kubernetes.info: installed already";
    assert!(said.out.contains(own), "{said:?}");
}

async fn places_that_are_not_there(here: &Environment) {
    let line = [
        "✗ installation",
        "namespace nowhere does not exist",
        "--operator-namespace",
    ];
    here.until_line("--operator-namespace=nowhere", &line, 1)
        .await;
    let line = ["✗ installation", "namespace default has no Deployment"];
    here.until_line("--operator-namespace=default", &line, 1)
        .await;
    here.cluster()
        .stop_component("kube-apiserver")
        .await
        .unwrap();
    let (said, code) = here.check("").await;
    assert!(
        code == 2 && said.err.contains("cannot reach the API server"),
        "{said:?}"
    );
    here.cluster()
        .start_component("kube-apiserver")
        .await
        .unwrap();
    here.until_well().await;
}

async fn crds(here: &Environment) {
    let name = "crd/ats.cnat.programming-kubernetes.info";
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/suspend";
    here.patch(name, &format!(r#"{{"op":"remove","path":"{field}"}}"#))
        .await;
    here.until_line(
        "",
        &[
            "✗ crd ats",
            "older than this program: lacks .spec.suspend",
            "-> kubectl apply",
        ],
        1,
    )
    .await;
    here.kubectl("apply -k config/crd").await;
    let future = r#"{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/future","value":{"type":"string"}}"#;
    here.patch(name, future).await;
    here.until_line(
        "",
        &["! crd ats", "newer than this program: has .spec.future"],
        0,
    )
    .await;
    here.patch(name, &future.replace("add", "remove")).await;
    here.kubectl(&format!("delete {name}")).await;
    here.until_line("", &["✗ crd ats", "not installed"], 1)
        .await;
    here.kubectl("apply -k config/crd").await;
    here.until_well().await;
}

async fn replicas(here: &Environment) {
    let pod = here.own.names("pods").await.remove(0);
    let image = here
        .own
        .field(&format!("pod/{pod}"), "{.spec.containers[0].image}")
        .await;
    let set = |image: &str| format!("set image pod/{pod} manager={image}");
    here.kubectl(&set("example.com:5000/my-operator:9.0.0"))
        .await;
    here.until_line("", &["✗ replicas", "different images", "9.0.0"], 1)
        .await;
    here.kubectl(&set(&image)).await;

    here.kubectl("cordon node-1 node-2").await;
    here.kubectl(&format!("delete pod/{pod} --wait=false"))
        .await;
    here.until_line("", &["✗ replicas", "1 of 2 ready", "unschedulable"], 1)
        .await;
    here.kubectl("uncordon node-1 node-2").await;

    let other = "example.com:5000/my-operator:9.0.0";
    here.kubectl(&format!("set image {DEPLOYMENT} manager={other}"))
        .await;
    here.until_line("", &["! version", "runs 9.0.0"], 0).await;
    here.kubectl(&format!("set image {DEPLOYMENT} manager={image}"))
        .await;
    here.until_well().await;
    here.kubectl(&format!("scale {DEPLOYMENT} --replicas=0"))
        .await;
    here.until_line("", &["✗ replicas", "scaled to 0"], 1).await;
    here.kubectl(&format!("scale {DEPLOYMENT} --replicas=2"))
        .await;
    here.until_well().await;
}

async fn configurations(here: &Environment) {
    let saved = here
        .own
        .run(&format!("get {VALIDATING} -o json"))
        .await
        .good();
    let wrong = r#"{"op":"replace","path":"/webhooks/1/rules/0/resources","value":["others"]}"#;
    here.patch(VALIDATING, wrong).await;
    here.until_line("", &["✗ webhooks At", "does not call vat.kb.io"], 1)
        .await;
    here.until_line(
        "",
        &["! webhook-configuration", "rules of vat.kb.io differs"],
        1,
    )
    .await;
    here.kubectl(&format!("delete {VALIDATING}")).await;
    here.until_line(
        "",
        &["✗ webhook-configuration Validating", "none with label"],
        1,
    )
    .await;
    let mut object: serde_json::Value = serde_json::from_str(&saved).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "uid"] {
        metadata.remove(field);
    }
    here.own
        .with("create -f -", &object.to_string())
        .await
        .good();
    here.until_well().await;
}

/// A listener with a certificate that expires in so many days, negative for one that has.
async fn listener(days: i64) -> (String, tokio::task::JoinHandle<()>) {
    let begin = Utc::now() - TimeDelta::days(7 - days);
    let authority = Authority::generate(begin, TimeDelta::days(365)).unwrap();
    let leaf = authority
        .issue(&[HOST.to_owned()], begin, TimeDelta::days(7))
        .unwrap();
    let key = leaf.certified_key(&aws_lc_rs::default_provider()).unwrap();
    let resolver = rustls::sign::SingleCertAndKey::from(key);
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The check leaves after the handshake.
            let _ = acceptor.accept(stream).await;
        }
    });
    (address, task)
}

async fn certificates(here: &Environment) {
    for (days, line, code) in [
        (-1, ["✗ certificate", "expired at"], 1),
        (1, ["! certificate", "is not renewed"], 1),
    ] {
        let (address, task) = listener(days).await;
        let args = format!("--webhook-address={address}");
        here.until_line(&args, &line, code).await;
        // No bundle has its CA.
        here.until_line(&args, &["✗ ca-bundle", "does not trust"], 1)
            .await;
        task.abort();
    }
    // The certificate that is served is seen there, too.
    let args = format!("--webhook-address={}", here.webhook);
    here.until_line(&args, &["✔ certificate", "valid until"], 0)
        .await;
}

/// Without its right to write them, the operator cannot restore the bundles.
async fn bundles(here: &Environment) {
    let role = "clusterrole/my-operator-webhook-ca-role";
    here.patch(role, r#"{"op":"replace","path":"/rules","value":[]}"#)
        .await;
    here.until_line(
        "",
        &["✗ rights", "may not patch mutatingwebhookconfigurations"],
        1,
    )
    .await;
    let path = "/webhooks/1/clientConfig/caBundle";
    let authority = Authority::generate(Utc::now(), TimeDelta::days(1)).unwrap();
    let pem = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        authority.certificate_pem(),
    );
    here.patch(
        VALIDATING,
        &format!(r#"{{"op":"replace","path":"{path}","value":"{pem}"}}"#),
    )
    .await;
    here.until_line(
        "",
        &["✗ ca-bundle", "caBundle of vat.kb.io does not trust"],
        1,
    )
    .await;
    here.until_line(
        "",
        &[
            "✗ webhooks At",
            "unknown authority",
            "caBundle lacks the CA",
        ],
        1,
    )
    .await;
    here.patch(VALIDATING, &format!(r#"{{"op":"remove","path":"{path}"}}"#))
        .await;
    here.until_line(
        "",
        &["✗ ca-bundle", "caBundle of vat.kb.io holds no certificate"],
        1,
    )
    .await;
    here.kubectl("apply -k config/rbac").await;
    here.until_well().await;
}
