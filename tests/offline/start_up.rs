//! What the program says when something is wrong: one line that says what to do, no hang, no hot loop.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::{MethodRouter, any, get};
use my_operator::kinds::REGISTRY;
use my_operator_cluster::free_ports;
use my_operator_harness::{Killed, TIMEOUT, http_get, run, wait_for};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::{CancellationToken, DropGuard};

/// `my-operator ARGS` with no cluster configured.
fn operator(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator"));
    command
        .args(args.split_whitespace())
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent");
    command
}

fn code(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap_or(-1), text)
}

/// A kubeconfig for a server that speaks plain HTTP.
fn kubeconfig(folder: &tempfile::TempDir, server: &str) -> PathBuf {
    let path = folder.path().join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn wrong_flags_end_with_code_2_and_say_what_is_right() {
    for (args, words) in [
        ("run --no-such-flag", "--no-such-flag"),
        ("run --metrics-bind-address=nowhere", "127.0.0.1:8080"),
        (
            "run --webhook-configurations=false",
            "--webhook-configurations=false needs --webhook-cert-path",
        ),
        (
            "run --webhook-configurations=false --webhook-url=https://localhost:9443",
            "leave out --webhook-configurations=false",
        ),
        ("run --kinds=cron", "the kinds are"),
        ("run --leader-elect=perhaps", "true, false"),
        (
            "run --leader-election-lease-duration=10s",
            "--leader-election-lease-duration (10s) must be longer than --leader-election-renew-deadline (10s)",
        ),
        (
            "run --leader-election-retry-period=9s",
            "longer than 1.2 times --leader-election-retry-period (9s)",
        ),
        ("run --webhook-leaf-validity=soon", "7d"),
        (
            "run --webhook-ca-validity=300000years",
            "--webhook-ca-propagation: none of them may be longer than 36500 days",
        ),
        (
            "run --leader-election-retry-period=500000000000years",
            "longer than 1.2 times --leader-election-retry-period",
        ),
        ("run --max-concurrent-reconciles=0", "1..=1000"),
        ("run --log-level=chatty", "a level is error, warn"),
        ("run --log-level=info,inof", "a level is error, warn"),
        ("fly", "fly"),
        ("check --wait=soon", "7d"),
        ("check --output=xml", "text, json"),
        ("check --operator-namespace=../x", "lower case letters"),
        ("check --pre --webhook-address=x:1", "cannot be used with"),
        ("check --pre --kinds=cron", "the kinds are"),
        ("check --kinds=at", "--pre"),
    ] {
        let (code, text) = code(operator(args));
        assert_eq!(code, 2, "{args}: {text}");
        assert!(text.contains(words), "{args}: {text}");
    }
}

#[tokio::test]
async fn help_shows_every_flag_with_its_variable() {
    let text = run(&mut operator("run --help"), "").await.good();
    let flags = text
        .lines()
        .filter(|line| line.trim_start().starts_with("--"))
        .count();
    assert_eq!(text.matches("[env: MY_OPERATOR_").count(), flags, "{text}");
    for kind in REGISTRY {
        assert!(text.contains(kind.name), "{}: {text}", kind.name);
    }
}

#[test]
fn a_malformed_collector_is_one_line() {
    let mut command = operator("run");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
    let (status, text) = code(command);
    assert_eq!(status, 1, "{text}");
    let words = "error: OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://collector:4318";
    assert!(
        text.starts_with(words) && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn no_cluster_is_one_line() {
    let quiet = "--health-probe-bind-address=0 --metrics-bind-address=0 --webhooks=false";
    let (status, text) = code(operator(&format!("run {quiet}")));
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("no cluster is configured") && text.lines().count() == 1,
        "{text}"
    );

    let mut missing = operator(&format!("run {quiet}"));
    missing.env("KUBECONFIG", "/nonexistent/kubeconfig");
    let (status, text) = code(missing);
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("/nonexistent/kubeconfig") && text.lines().count() == 1,
        "{text}"
    );

    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("kubeconfig");
    std::fs::write(&garbage, "clusters: [").unwrap();
    let mut unreadable = operator(&format!("run {quiet}"));
    unreadable.env("KUBECONFIG", &garbage);
    let (status, text) = code(unreadable);
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("cannot use the kubeconfig") && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn a_port_in_use_is_one_line_that_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for flag in [
        "metrics-bind-address",
        "health-probe-bind-address",
        "webhook-bind-address",
    ] {
        let others = ["metrics-bind-address", "health-probe-bind-address"]
            .into_iter()
            .filter(|other| *other != flag)
            .map(|other| format!("--{other}=0"))
            .collect::<Vec<_>>()
            .join(" ");
        let (status, text) = code(operator(&format!("run --{flag}={address} {others}")));
        assert_eq!(status, 1, "{text}");
        assert!(
            text.contains(&format!("--{flag}")) && text.contains("in use"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// A stand-in for the API server, until it is dropped.
struct Server {
    url: String,
    _stop: DropGuard,
}

/// Says that it is Kubernetes 1.MINOR, and answers all else with `others`.
async fn server(minor: &'static str, others: MethodRouter) -> Server {
    let number = minor.trim_end_matches('+');
    let version = json!({
        "major": "1", "minor": minor, "gitVersion": format!("v1.{number}.9"), "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    let router = Router::new()
        .route("/version", get(move || async move { version.to_string() }))
        .fallback_service(others);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    // Without limits: a check asks many things at a time.
    let served =
        axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::spawn(served.into_future());
    Server {
        url,
        _stop: stop.drop_guard(),
    }
}

#[tokio::test]
async fn an_old_server_is_one_line() {
    let old = server("32+", any(StatusCode::NOT_FOUND)).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = operator(
        "run --health-probe-bind-address=0 --metrics-bind-address=0 --webhooks=false --log-level=error",
    );
    command.env("KUBECONFIG", kubeconfig(&folder, &old.url));
    let said = run(&mut command, "").await;
    assert!(!said.ok, "{said:?}");
    assert_eq!(
        said.err,
        "error: the API server is Kubernetes 1.32; my-operator needs 1.33 or newer\n"
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = kubeconfig(&folder, &format!("http://{}", server.local_addr().unwrap()));
    let [probes] = free_ports().unwrap();
    let probes = format!("127.0.0.1:{probes}");
    let mut command =
        operator("run --metrics-bind-address=0 --webhooks=false --health-probe-bind-address");
    command
        .args([&probes, "--log-format=json"])
        .env("KUBECONFIG", kubeconfig)
        .stderr(std::process::Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    // With the third attempt the second has failed for certain.
    for attempt in 1..=3 {
        let accepted = tokio::time::timeout(TIMEOUT, server.accept()).await;
        let (mut stream, _) = accepted.expect("no further attempt").unwrap();
        let request = stream.read(&mut [0; 4096]).await.unwrap();
        assert!(request > 0, "attempt {attempt} sent nothing");
    }
    let (status, page) = http_get(&probes, "/readyz").unwrap();
    assert_eq!(status, 503);
    assert!(page.contains("[-]api-server failed: "), "{page}");
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.0.wait().unwrap();
    let mut log = String::new();
    std::io::Read::read_to_string(&mut child.0.stderr.take().unwrap(), &mut log).unwrap();
    assert!(status.success(), "{log}");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let is_report = |line: &&serde_json::Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("cannot reach the API server")
    };
    assert_eq!(lines.iter().filter(is_report).count(), 1, "{log}");
}

/// Runs the webhooks with a certificate for the name `elsewhere` against an API server that has no objects, until the
/// certificate's gates are open. Returns the requests for webhook configurations and the page /readyz.
async fn files_without_configurations(more: &str) -> (usize, String) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let others = any(move |uri: Uri| async move {
        if uri.path().contains("webhookconfigurations") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        StatusCode::NOT_FOUND
    });
    let server = server("33", others).await;
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().display().to_string();
    run(
        &mut operator(&format!("certs --host elsewhere --out {certs}")),
        "",
    )
    .await
    .good();
    let [probes, webhook] = free_ports()
        .unwrap()
        .map(|port| format!("127.0.0.1:{port}"));
    let mut command = operator(&format!(
        "run --metrics-bind-address=0 --health-probe-bind-address={probes} --webhook-bind-address={webhook} \
         --webhook-cert-path={certs} --log-level=error {more}"
    ));
    command.env("KUBECONFIG", kubeconfig(&folder, &server.url));
    let operator = Killed(command.spawn().unwrap());
    let page = wait_for("the gates of the certificate", async || {
        let (_, page) = http_get(&probes, "/readyz?verbose")?;
        let open = |gate: &str| page.contains(&format!("[+]{gate} ok"));
        (open("certificate") && open("webhook-configuration")).then_some(page)
    })
    .await;
    drop(operator);
    (asked.load(Ordering::Relaxed), page)
}

#[tokio::test]
async fn configurations_that_another_program_creates_are_not_looked_for() {
    let (asked, page) = files_without_configurations("--webhook-configurations=false").await;
    assert_eq!(asked, 0, "{page}");
    for gate in ["certificate", "webhook-configuration"] {
        assert!(!page.contains(&format!("[!]{gate}")), "{page}");
    }
    // By default, both the missing configurations and the name are reported.
    let (asked, page) = files_without_configurations("").await;
    assert!(asked > 0, "{page}");
    for gate in ["certificate", "webhook-configuration"] {
        assert!(page.contains(&format!("[!]{gate}")), "{page}");
    }
}

#[tokio::test]
async fn certs_writes_a_pair_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("certs");
    let mut command = operator("certs --host localhost --out");
    command.arg(&out);
    let text = run(&mut command, "").await.good();
    assert_eq!(text.lines().count(), 3, "{text}");
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        let pem = std::fs::read_to_string(out.join(name)).unwrap();
        assert!(pem.starts_with("-----BEGIN "), "{name}: {pem}");
    }
}

#[tokio::test]
async fn manifests_are_printed_as_one_stream() {
    let text = run(&mut operator("manifests"), "").await.good();
    for kind in [
        "kind: CustomResourceDefinition",
        "kind: ValidatingWebhookConfiguration",
        "kind: MutatingWebhookConfiguration",
        "kind: ClusterRole",
    ] {
        assert!(text.contains(kind), "{kind} is not in it");
    }
}

#[test]
fn a_check_without_a_cluster_ends_with_code_2_in_time() {
    let (status, text) = code(operator("check"));
    assert!(
        status == 2 && text.contains("no cluster is configured"),
        "{status}: {text}"
    );
    let folder = tempfile::tempdir().unwrap();
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [&silent, &closed].map(|it| it.local_addr().unwrap());
    drop(closed);
    for (args, address) in [("check", addresses[1]), ("check --wait=1s", addresses[1])] {
        let mut check = operator(args);
        check.env(
            "KUBECONFIG",
            kubeconfig(&folder, &format!("http://{address}")),
        );
        let (status, text) = code(check);
        assert!(
            status == 2 && text.contains("error: cannot reach the API server"),
            "{args}: {status}: {text}"
        );
    }
    let mut check = operator("check");
    check.env(
        "KUBECONFIG",
        kubeconfig(&folder, &format!("http://{}", addresses[0])),
    );
    let (status, text) = code(check);
    assert!(
        status == 2 && text.contains("no answer within 10 s"),
        "{status}: {text}"
    );
}

/// A caller who may do everything but give roles of any content, and Deployments outside of the operator's namespace.
#[tokio::test]
async fn a_check_before_an_installation_asks_for_the_rights_of_the_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let others = any(|review: String| async move {
        // A CRD is asked for without a body, and is a foreign one here.
        let review: Value = serde_json::from_str(&review).unwrap_or_default();
        let asked = &review["spec"]["resourceAttributes"];
        let is = |field: &str, texts: &[&str]| texts.iter().any(|text| asked[field] == *text);
        let deployments = is("resource", &["deployments"]) && asked["namespace"].is_null();
        let allowed = !is("verb", &["escalate", "bind"]) && !deployments;
        json!({"status": {"allowed": allowed}}).to_string()
    });
    let server = server("33", others).await;
    for (args, line) in [
        (
            "check --pre",
            "✔ role-rights: you may give the operator its rights for mydaemonset, at",
        ),
        (
            "check --pre --kinds at,memcached",
            "✗ role-rights: you may not create, get, list, patch, watch deployments.apps -> install as a user with cluster-admin",
        ),
    ] {
        let mut check = operator(args);
        check.env("KUBECONFIG", kubeconfig(&folder, &server.url));
        let said = run(&mut check, "").await;
        assert!(said.out.lines().any(|it| it == line), "{args}: {said:?}");
        let foreign = "✗ crd ats.cnat.programming-kubernetes.info: the cluster has another one";
        let mut lines = said.out.lines();
        assert!(lines.any(|it| it.starts_with(foreign)), "{said:?}");
    }
}

#[tokio::test]
async fn a_check_names_a_server_that_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let others = any(async || json!({"status": {"allowed": true}}).to_string());
    let old = server("32+", others).await;
    let mut check = operator("check --pre");
    check.env("KUBECONFIG", kubeconfig(&folder, &old.url));
    let said = run(&mut check, "").await;
    assert!(!said.ok, "{said:?}");
    let line = "✗ server-version: the API server is Kubernetes 1.32; my-operator needs 1.33 or newer -> upgrade the cluster";
    assert_eq!(said.out.lines().next(), Some(line), "{said:?}");
    assert!(said.out.contains("✔ install-rights"), "{said:?}");
}
