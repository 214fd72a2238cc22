//! What docs/clients.md says: its examples, run as programs with the rights of the editor role alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Resource;
use my_operator::kinds::{REGISTRY, at, count, crontab, foo, foobar, memcached, mydaemonset};

use crate::cluster::at::at_when;
use crate::cluster::kubectl;
use crate::harness::oracle::{CONTROL_PLANE_FLAGS, go_build};
use crate::harness::{Kubectl, operator_program, run, wait_for};

/// The label of what the Rust example creates.
const LABEL: &str = "example.com/client=rust";

/// Where cargo puts examples, and where the Go example goes too.
fn example(name: &str) -> PathBuf {
    operator_program().with_file_name("examples").join(name)
}

/// The Rust example, which hack/build has built.
fn rust_client() -> PathBuf {
    let program = example("client");
    assert!(
        program.exists(),
        "{} is not built: cargo build --workspace --example client",
        program.display()
    );
    program
}

/// Builds the Go example. Flags and versions are those of the local control plane, so that Go has compiled all but the
/// example itself.
fn go_client() -> PathBuf {
    let program = example("go-client");
    go_build("examples/go-client", ".", CONTROL_PLANE_FLAGS, &program);
    program
}

/// The kubeconfig of a `ServiceAccount` that has the editor role in this namespace, and no other rights.
async fn editor(kubectl: &Kubectl) -> PathBuf {
    let namespace = &kubectl.namespace;
    let account = kubectl
        .cluster
        .service_account_kubeconfig(namespace, "client");
    let kubeconfig = account.await.unwrap();
    let bind = format!(
        "create rolebinding client --clusterrole=my-operator-at-editor-role --serviceaccount={namespace}:client"
    );
    kubectl.run(&bind).await.good();
    // The API server sees a new binding a moment later.
    let may = format!(
        "auth can-i create ats.cnat.programming-kubernetes.info --as=system:serviceaccount:{namespace}:client"
    );
    wait_for("the rights of the client", async || {
        kubectl.run(&may).await.ok.then_some(())
    })
    .await;
    kubeconfig
}

/// Runs an example: a command that succeeds, one that fails, one that is rejected, and a name that is taken.
async fn try_out(program: &Path, kubectl: &Kubectl) {
    let kubeconfig = editor(kubectl).await;
    let client = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &kubeconfig);
        // kube takes a proxy for the loopback interface too.
        for proxy in ["HTTPS_PROXY", "https_proxy"] {
            command.env_remove(proxy);
        }
        run(&mut command, "")
    };
    assert_eq!(
        client(&["ok", "echo YAY"]).await.good(),
        "created ok\nok: Succeeded, exit code 0\nlisted ok: Succeeded, exit code 0\n"
    );
    let fails = r#"{"metadata": {"annotations": {"kwok.my-operator.dev/exit-code": "3"}}}"#;
    assert_eq!(
        client(&["bad", "exit 3", fails]).await.good(),
        "created bad\nbad: Failed, exit code 3\nlisted bad: Failed, exit code 3\n\
         listed ok: Succeeded, exit code 0\n"
    );
    let rejected = client(&["rejected", ""]).await;
    assert_eq!(
        rejected.out, "spec.command: Required value: command is required\n",
        "{}",
        rejected.err
    );
    rejected.bad();
    let taken = client(&["ok", "echo YAY"]).await.bad();
    assert!(taken.contains("already exists"), "{taken}");
}

#[tokio::test]
async fn the_rust_client_runs_commands_and_kubectl_sees_the_same() {
    let program = rust_client();
    let kubectl = kubectl("client-rust").await;
    try_out(&program, &kubectl).await;
    for wait in [
        "wait --for=condition=Complete --timeout=60s at/ok",
        "wait --for=jsonpath={.status.result}=Failed --timeout=60s at/bad",
    ] {
        kubectl.run(wait).await.good();
    }
    let done = format!("get at -o name -l {LABEL} --field-selector=status.phase=DONE");
    let names = kubectl.run(&done).await.good();
    assert_eq!(
        names.split_whitespace().collect::<Vec<_>>(),
        ["bad", "ok"].map(|name| format!("at.cnat.programming-kubernetes.info/{name}"))
    );
}

#[tokio::test]
async fn the_go_client_runs_commands() {
    let program = go_client();
    try_out(&program, &kubectl("client-go").await).await;
}

#[tokio::test]
async fn server_side_apply_names_the_manager_that_has_a_field() {
    let kubectl = kubectl("client-apply").await;
    let apply = async |manager: &str, schedule: &str| {
        let args = format!("apply --server-side --field-manager={manager} -f -");
        let at = at_when(schedule, "x", "", "");
        kubectl.with(&args, &at).await
    };
    apply("team-a", "now + 1 hour").await.good();
    let conflict = apply("team-b", "now + 2 hours").await.bad();
    assert!(
        conflict.contains("conflict with \"team-a\"") && conflict.contains(".spec.schedule"),
        "{conflict}"
    );
}

#[test]
fn the_types_of_every_kind_are_public() {
    fn kind<K: Resource<DynamicType = ()>>() -> String {
        K::kind(&()).into_owned()
    }
    let mut public = vec![
        kind::<at::crd::At>(),
        kind::<count::crd::Count>(),
        kind::<crontab::crd::CronTab>(),
        kind::<foo::crd::Foo>(),
        kind::<foobar::crd::FooBar>(),
        kind::<memcached::crd::Memcached>(),
        kind::<mydaemonset::crd::MyDaemonSet>(),
    ];
    let all = REGISTRY.iter().map(|kind| (kind.crd)().spec.names.kind);
    let mut all: Vec<String> = all.collect();
    public.sort();
    all.sort();
    assert_eq!(public, all);
}
