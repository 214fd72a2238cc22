//! What the tests on a real control plane share: the operator as a process of its own, under the
//! rights that `config/rbac` gives it; kubectl; waiting for conditions.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod oracle;
pub mod pods;
pub mod policies;
pub mod record;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use my_operator::kinds::{Kind, REGISTRY};
use my_operator_cluster::{Cluster, Process, free_ports};
use rustix::process::{Pid, Signal, kill_process};

/// For everything that is waited for: nobody waits that long unless something is broken.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// For a call of kubectl: longer than any waits by itself.
const LIMIT: Duration = Duration::from_mins(3);

/// The ServiceAccount whose rights the operator has.
pub const SERVICE_ACCOUNT: &str = "my-operator-controller-manager";
/// The operator's namespace.
pub const NAMESPACE: &str = "my-operator-system";

/// The top of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a program said.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Standard output of a program that must have succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.ok, "failed: {}{}", self.out, self.err);
        self.out
    }

    /// Standard error of a program that must have failed.
    #[track_caller]
    pub fn bad(self) -> String {
        assert!(!self.ok, "succeeded: {}{}", self.out, self.err);
        self.err
    }
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cannot start the program")
}

/// What a program says until it ends, that text being on its standard input.
fn until_it_ends(mut child: Child, input: &str) -> Said {
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs a program to its end, with that text on its standard input.
pub fn run(command: &mut Command, input: &str) -> Said {
    until_it_ends(spawn(command), input)
}

/// The same for a program that is killed after [`LIMIT`], and then has failed.
fn run_for_a_while(command: &mut Command, input: &str) -> Said {
    let child = spawn(command);
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let late = end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
        late && kill_process(pid, Signal::KILL).is_ok()
    });
    let mut said = until_it_ends(child, input);
    drop(ended);
    if watch.join().unwrap() {
        said.ok = false;
        said.err = format!("{}\nkilled after {LIMIT:?}", said.err);
    }
    said
}

/// A process that a failing test does not leave behind.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// kubectl in a namespace.
#[derive(Clone)]
pub struct Kubectl {
    pub cluster: &'static Cluster,
    pub namespace: String,
}

impl Kubectl {
    pub fn new(cluster: &'static Cluster, namespace: &str) -> Self {
        Self {
            cluster,
            namespace: namespace.to_owned(),
        }
    }

    /// `kubectl ARGS`, split at blanks.
    pub fn run(&self, args: &str) -> Said {
        self.with(args, "")
    }

    /// `kubectl ARGS` with that text on its standard input.
    pub fn with(&self, args: &str, input: &str) -> Said {
        let mut command = self.cluster.kubectl();
        command
            .current_dir(checkout())
            .args(["--namespace", &self.namespace])
            .args(args.split_whitespace());
        run_for_a_while(&mut command, input)
    }

    /// `kubectl ARGS` as a process that goes on; what it says is in its log.
    pub fn spawn(&self, args: &str, name: &str) -> Process {
        let mut command = self.cluster.kubectl();
        command
            .args(["--namespace", &self.namespace])
            .args(args.split_whitespace());
        self.cluster.spawn(name, &mut command).unwrap()
    }

    /// `kubectl apply -f -`.
    pub fn apply(&self, yaml: &str) -> Said {
        self.with("apply -f -", yaml)
    }

    /// Applies an object as soon as it is accepted: the API server takes a moment to see a changed
    /// webhook configuration.
    pub async fn until_applied(&self, yaml: &str) {
        let mut last = String::new();
        let applied = try_wait(PATIENCE, || {
            let said = self.apply(yaml);
            last = format!("{}{}", said.out, said.err);
            said.ok.then_some(())
        });
        assert!(applied.await.is_some(), "not accepted: {last}");
    }

    /// One field by JSONPath; empty when it is not there.
    pub fn field(&self, object: &str, path: &str) -> String {
        let said = self.run(&format!(
            "get {object} --ignore-not-found -o jsonpath={path}"
        ));
        said.out
    }

    /// Waits until there is none of what `kubectl get` is asked for: an object, or all of a kind.
    pub async fn until_gone(&self, what: &str) {
        let get = format!("get {what} --ignore-not-found -o name");
        wait_for(&format!("{what} to go"), || {
            let said = self.run(&get);
            (said.ok && said.out.is_empty()).then_some(())
        })
        .await;
    }

    /// Waits until the API server calls both webhooks: it sees each of the new configurations by itself. The
    /// bad manifest is refused then, and the good one is given that field's default.
    pub async fn until_webhooks_are_called(&self, bad: &str, good: &str, default: (&str, &str)) {
        let apply = format!("apply -f {bad}");
        self.until_refused(&apply, "is invalid").await;
        let (path, value) = default;
        let apply = format!("apply --dry-run=server -f {good} -o jsonpath={path}");
        wait_for("a sample to be given defaults", || {
            (self.run(&apply).out == value).then_some(())
        })
        .await;
    }

    /// Waits until `kubectl ARGS` would be refused in those words: a new quota or policy is not in force at
    /// once, and a quota that has not counted yet refuses in others.
    pub async fn until_refused(&self, args: &str, words: &str) {
        let try_out = format!("{args} --dry-run=server");
        wait_for(&format!("{args} to be refused: {words}"), || {
            let said = self.run(&try_out);
            (!said.ok && said.err.contains(words)).then_some(())
        })
        .await;
    }

    /// Waits until the built-in controller has nothing to write into a Deployment any more, and returns
    /// the Deployment as YAML.
    pub async fn deployment_at_rest(&self, name: &str) -> String {
        let reason = "{.status.conditions[?(@.type==\"Progressing\")].reason}";
        let object = format!("deployment/{name}");
        self.until_field(&object, reason, "NewReplicaSetAvailable")
            .await;
        self.run(&format!("get {object} -o yaml")).good()
    }

    /// Waits until a field has a value.
    pub async fn until_field(&self, object: &str, path: &str, value: &str) {
        let what = format!("{object} to have {path} = {value:?}");
        let found = std::cell::RefCell::new(String::new());
        let reached = try_wait(PATIENCE, || {
            *found.borrow_mut() = self.field(object, path);
            (*found.borrow() == value).then_some(())
        })
        .await;
        if reached.is_none() {
            let said = self.run(&format!("get {object} -o yaml"));
            panic!(
                "waited in vain for {what}: it is {:?}\n{}{}",
                found.borrow(),
                said.out,
                said.err
            );
        }
    }
}

/// What fixes the random choices of a test: another number each time, or that of `SEED`. It is shown
/// when the test fails.
#[allow(clippy::print_stdout)]
pub fn seed(what: &str) -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("SEED={seed} replays {what}");
    seed
}

/// Looks again and again until there is an answer.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match try_wait(PATIENCE, look).await {
            Some(answer) => answer,
            None => panic!("{place}: waited in vain for {what}"),
        }
    }
}

/// Looks again and again until there is an answer or patience ends.
pub async fn try_wait<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = look() {
            return Some(answer);
        }
        if start.elapsed() > patience {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A client of the administrator that tries nothing twice, as [`Cluster::client`] does after a 429,
/// 503 or 504: what fails is to be seen.
pub async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    // A proxy of the environment leads nowhere from the loopback interface.
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

/// Installs the CRDs and the operator's own rights.
pub fn install(cluster: &'static Cluster) {
    let kubectl = Kubectl::new(cluster, "default");
    kubectl.run("apply -k config/crd").good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .good();
    rights(cluster);
}

/// Installs the CRDs of the kinds that are off by default, and what the operator may do for them: what the
/// component `sample-kinds` adds for `--kinds`. Nothing where there is no such kind.
pub fn install_sample_kinds(cluster: &'static Cluster) {
    if REGISTRY.iter().all(|kind| kind.by_default) {
        return;
    }
    let kubectl = Kubectl::new(cluster, "default");
    kubectl
        .run("apply -f config/components/sample-kinds/role.yaml")
        .good();
    kubectl.run("apply -k config/crd/sample-kinds").good();
    kubectl
        .run("wait --for=condition=Established --timeout=60s crd --all")
        .good();
}

/// The flag that turns every kind on.
pub fn every_kind() -> String {
    let names: Vec<&str> = REGISTRY.iter().map(|kind| kind.name).collect();
    format!("--kinds={}", names.join(","))
}

/// Where a sample of a kind lies, below the top of the checkout.
pub fn sample_path(kind: &Kind, file: &str) -> String {
    if kind.by_default {
        format!("config/samples/{file}")
    } else {
        format!("config/samples/sample-kinds/{file}")
    }
}

/// The operator's namespace, and the rights of `config/rbac` there. What `--webhook-url` needs more
/// (to make webhook configurations) is added.
pub fn rights(cluster: &'static Cluster) {
    let kubectl = Kubectl::new(cluster, NAMESPACE);
    kubectl.run(&format!("create namespace {NAMESPACE}")).good();
    kubectl.run("apply -k config/rbac").good();
    kubectl
        .apply(&format!(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: webhook-url}}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: webhook-url}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhook-url}}
subjects: [{{kind: ServiceAccount, name: {SERVICE_ACCOUNT}, namespace: {NAMESPACE}}}]
"
        ))
        .good();
}

/// The operator under test, a process of its own.
pub struct Operator {
    pub process: Process,
    pub probes: String,
    pub metrics: String,
    pub webhook: String,
}

/// Where the operator gets its rights from: a file and a token of its own for each who asks.
pub async fn operator_kubeconfig(cluster: &'static Cluster) -> PathBuf {
    cluster
        .service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        .await
        .unwrap()
}

impl Operator {
    /// Starts it on free ports. It has webhooks unless `extra` says otherwise.
    pub fn spawn(cluster: &Cluster, name: &str, kubeconfig: &Path, extra: &[&str]) -> Self {
        Self::spawn_at(cluster, name, kubeconfig, None, None, extra)
    }

    /// The same, with the webhooks at that port, and called by the API server at that URL, where
    /// these are given.
    pub fn spawn_at(
        cluster: &Cluster,
        name: &str,
        kubeconfig: &Path,
        port: Option<u16>,
        url: Option<&str>,
        extra: &[&str],
    ) -> Self {
        let [webhook, probes, metrics] = free_ports().unwrap();
        let webhook = format!("127.0.0.1:{}", port.unwrap_or(webhook));
        let (probes, metrics) = (
            format!("127.0.0.1:{probes}"),
            format!("127.0.0.1:{metrics}"),
        );
        let url = url.map_or_else(|| format!("https://{webhook}"), str::to_owned);
        let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator"));
        command
            .arg("run")
            .arg(format!("--webhook-bind-address={webhook}"))
            .arg(format!("--webhook-url={url}"))
            .arg(format!("--health-probe-bind-address={probes}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .args(extra)
            .env("KUBECONFIG", kubeconfig);
        Self {
            process: cluster.spawn(name, &mut command).unwrap(),
            probes,
            metrics,
            webhook,
        }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(cluster: &'static Cluster, name: &str, extra: &[&str]) -> Self {
        let kubeconfig = operator_kubeconfig(cluster).await;
        let operator = Self::spawn(cluster, name, &kubeconfig, extra);
        operator.until_ready().await;
        operator
    }

    /// Waits until `/readyz` says so.
    pub async fn until_ready(&self) {
        let ready = try_wait(PATIENCE, || {
            assert!(
                self.process.is_running(),
                "the operator ended:\n{}",
                self.log()
            );
            let (status, _) = http_get(&self.probes, "/readyz")?;
            (status == 200).then_some(())
        });
        assert!(
            ready.await.is_some(),
            "the operator is not ready: {:?}\n{}",
            http_get(&self.probes, "/readyz"),
            self.log()
        );
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// The page of metrics.
    pub fn figures(&self) -> String {
        http_get(&self.metrics, "/metrics")
            .map(|(_, page)| page)
            .unwrap_or_default()
    }
}

/// A time as the API writes it.
pub fn time(text: &str) -> DateTime<Utc> {
    let time = DateTime::parse_from_rfc3339(text);
    time.unwrap_or_else(|error| panic!("{text:?}: {error}"))
        .to_utc()
}

/// The figure of that name, its labels included, on a page of metrics.
pub fn figure(page: &str, name: &str) -> Option<u64> {
    let values = page.lines().filter_map(|line| line.strip_prefix(name));
    let mut values = values.filter_map(|rest| rest.strip_prefix(' '));
    values.next()?.parse().ok()
}

/// The status and body of a plain HTTP GET; none when nobody answers.
pub fn http_get(address: &str, path: &str) -> Option<(u16, String)> {
    use std::io::Read as _;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
