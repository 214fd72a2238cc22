//! The commands of the operations guide that need a whole installation, as the pages have them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::markdown::{CodeBlock, code_blocks};
use crate::harness::{self, Kubectl, Said, checkout, operator_program, wait_for};
use crate::{
    IMAGE, PODS, deploy, kubectl, own, ready_pod, until_alone, until_pods, until_rolled_out,
};

/// The block of commands on a page of the operations guide that has this text.
fn block(page: &str, text: &str) -> String {
    let path = checkout().join("docs/operations").join(page);
    let page = fs::read_to_string(path).unwrap();
    let blocks = code_blocks(&page);
    let mut texts = blocks.iter().map(CodeBlock::text);
    let block = texts.find(|block| block.contains(text));
    block.unwrap_or_else(|| panic!("no block has {text:?}"))
}

/// Runs commands in bash, where `kubectl` and `my-operator` are those of the tests.
async fn bash(own: &Kubectl, folder: &Path, flags: &str, commands: &str) -> Said {
    let kubectl = own.cluster.kubectl();
    let program = |path: &Path| path.parent().unwrap().display().to_string();
    let path = [
        program(Path::new(kubectl.get_program())),
        program(&operator_program()),
        std::env::var("PATH").unwrap(),
    ];
    let mut bash = Command::new("bash");
    bash.args([flags, commands]).current_dir(folder);
    for (name, value) in kubectl.get_envs() {
        bash.env(name, value.unwrap_or_default());
    }
    bash.env("PATH", path.join(":"));
    harness::run(&mut bash, "").await
}

/// Runs a block that must succeed, and returns what it prints.
async fn run(own: &Kubectl, folder: &Path, page: &str, text: &str) -> String {
    let commands = format!("set -o pipefail\n{}", block(page, text));
    bash(own, folder, "-euc", &commands).await.good()
}

/// Runs a block that leaves a `kubectl port-forward` behind, with a pod's name in place of NAME.
async fn run_forwarded(own: &Kubectl, folder: &Path, page: &str, text: &str) -> String {
    let pod = ready_pod(own).await;
    let commands = block(page, text).replace("pod/NAME", &format!("pod/{pod}"));
    let commands = format!("{commands}\nresult=$?; kill %%; wait; exit $result");
    bash(own, folder, "-c", &commands).await.good()
}

async fn holder(own: &Kubectl) -> String {
    own.until_any("lease/my-operator", "{.spec.holderIdentity}")
        .await
}

async fn the_leader_goes_and_its_lease_is_released(own: &Kubectl, folder: &Path) {
    let page = "high-availability.md";
    let before = holder(own).await;
    run(own, folder, page, "delete pod \"${holder%%_*}\"").await;
    wait_for("another leader", async || {
        let holder = holder(own).await;
        (!holder.is_empty() && holder != before).then_some(())
    })
    .await;
    until_alone(own).await;
    until_rolled_out(own).await;
    run(own, folder, page, "patch lease my-operator").await;
    wait_for("a leader", async || {
        (!holder(own).await.is_empty()).then_some(())
    })
    .await;
}

async fn the_log_and_a_report(own: &Kubectl, folder: &Path) {
    let shop = Kubectl::new(own.cluster, "shop");
    shop.run("create namespace shop").await.good();
    let web = format!(
        "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{name: web}}, spec: {{image: '{IMAGE}'}}}}"
    );
    shop.apply(&web).await.good();
    let commands = block("log.md", "grep '\"controller\":\"mydaemonset\"'");
    wait_for("the log of web", async || {
        let said = bash(own, folder, "-c", &commands).await;
        said.out.contains("\"name\":\"web\"").then_some(())
    })
    .await;
    shop.run("delete namespace shop --wait=false").await.good();
    // There is no container before this one, and so no log of it.
    let report = bash(
        own,
        folder,
        "-c",
        &block("failures.md", "get pods,lease,events"),
    )
    .await;
    for part in [
        "Server Version",
        "lease.coordination.k8s.io/my-operator",
        "[pod/my-operator-",
    ] {
        assert!(report.out.contains(part), "{part}: {}", report.out);
    }
}

async fn certificates_are_shown_and_an_old_ca_goes(own: &Kubectl, folder: &Path) {
    let shown = run_forwarded(own, folder, "certificates.md", "openssl s_client").await;
    assert_eq!(shown.matches("notAfter=").count(), 2, "{shown}");
    for part in ["sha256 Fingerprint=", "Not After", "Subject: CN"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let secret = "secret/my-operator-webhook-ca";
    let of_ca = own.object(secret).await["data"]["ca.crt"].take();
    // The time is 2100-01-01T00:00:00Z.
    let previous =
        json!({"previous.crt": of_ca, "previous.drop-at": "MjEwMC0wMS0wMVQwMDowMDowMFo="});
    let patch = format!("patch {secret} --type=merge --patch-file=/dev/stdin");
    let data = json!({"data": previous}).to_string();
    own.with(&patch, &data).await.good();
    run(
        own,
        folder,
        "certificates.md",
        "\"path\":\"/data/previous.crt\"",
    )
    .await;
    assert_eq!(
        own.object(secret).await["data"]["previous.crt"],
        Value::Null
    );
    run(own, folder, "security.md", "extendedKeyUsage=clientAuth").await;
    let verified = bash(
        own,
        folder,
        "-c",
        "openssl verify -CAfile ca.crt client.crt",
    )
    .await;
    assert_eq!(verified.good(), "client.crt: OK\n");
}

async fn webhooks_are_bypassed_and_restored(own: &Kubectl, kubectl: &Kubectl, folder: &Path) {
    let page = "failures.md";
    run(own, folder, page, ".failurePolicy = \"Ignore\"").await;
    let validating = "validatingwebhookconfiguration/my-operator-validating-webhook-configuration";
    own.until_field(validating, "{.webhooks[0].failurePolicy}", "Ignore")
        .await;
    run(own, folder, page, "delete validatingwebhookconfiguration").await;
    let invalid = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: invalid}
spec: {schedule: tomorrow, command: ls}
";
    kubectl.until_applied(invalid).await;
    let accepted = "{.status.conditions[?(@.type=='Accepted')].status}";
    kubectl.until_field("at/invalid", accepted, "False").await;
    let listed = run(own, checkout(), page, "kubectl apply -k config/webhook").await;
    let line = format!("At {}/invalid\n", kubectl.namespace);
    assert!(listed.ends_with(&line), "{listed}");
    own.until_any(validating, "{.webhooks[0].clientConfig.caBundle}")
        .await;
}

/// As after the restore of a backup: without the webhooks, and then without the operator.
async fn ats_are_suspended_before_a_restore(own: &Kubectl, kubectl: &Kubectl, folder: &Path) {
    run(
        own,
        folder,
        "failures.md",
        "delete validatingwebhookconfiguration",
    )
    .await;
    run(own, folder, "backup.md", "--replicas=0").await;
    until_pods(own, "0").await;
    run(own, folder, "backup.md", "> held.txt").await;
    assert_eq!(kubectl.field("at/later", "{.spec.suspend}").await, "true");
    let held = fs::read_to_string(folder.join("held.txt")).unwrap();
    let line = format!("{} later 2100-01-01T00:00:00Z", kubectl.namespace);
    assert!(held.lines().any(|held| held.starts_with(&line)), "{held}");
    run(own, folder, "backup.md", "> ats.json").await;
    let copies = fs::read_to_string(folder.join("ats.json")).unwrap();
    let copies: Value = serde_json::from_str(&copies).unwrap();
    let mut copies = copies["items"].as_array().unwrap().iter();
    let later = copies.find(|at| at["metadata"]["name"] == "later").unwrap();
    assert_eq!(
        (&later["status"], &later["metadata"]["uid"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_operations_guide_do_what_it_says() {
    let (kubectl, own) = (kubectl("runbook").await, own().await);
    until_rolled_out(&own).await;
    until_alone(&own).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let later = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: later}
spec: {schedule: '2100-01-01T00:00:00Z', command: ls}
";
    kubectl.until_applied(later).await;

    the_leader_goes_and_its_lease_is_released(&own, folder).await;
    the_log_and_a_report(&own, folder).await;
    certificates_are_shown_and_an_old_ca_goes(&own, folder).await;
    let checked = run_forwarded(&own, folder, "check.md", "--webhook-address localhost:9443").await;
    assert!(checked.contains("0 failed"), "{checked}");
    webhooks_are_bypassed_and_restored(&own, &kubectl, folder).await;
    ats_are_suspended_before_a_restore(&own, &kubectl, folder).await;

    run(
        &own,
        folder,
        "install.md",
        "kubectl delete namespace my-operator-system",
    )
    .await;
    run(&own, folder, "install.md", "--cascade=foreground").await;
    let kinds = own.run("get crd -o name").await.good();
    assert!(
        !kinds.contains("/ats.") && !kinds.contains("/mydaemonsets."),
        "{kinds}"
    );
    deploy(own.cluster, IMAGE).await.good();
    assert_eq!(crate::ready_pods(&own, PODS).await.len(), 2);
}
