//! The alerts and the dashboards, with Debian's Prometheus and one fault after another: each alert fires in its time, names
//! what is wrong, stays while it is, and ends after it; and each panel has data. `tests/oracle/alerts.rs` tries the same
//! rules on figures that are written down.
//!
//! Several installations side by side have a fault each. Two alerts have none, since only a bug of the operator sets them
//! off: see [`OF_A_BUG`].

mod prometheus;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use my_operator_cluster::{Cluster, Options};
use rustix::process::Signal;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use webhook_certs::authority::Authority;

use crate::harness::policies::{BY_OPERATOR, Policy};
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{
    self, Kubectl, NAMESPACE, Operator, OwnPlane, dashboards, operator_kubeconfig, peer, try_wait,
    wait_for,
};
use prometheus::Prometheus;

/// A review that fails or panics.
const OF_A_BUG: [&str; 2] = ["MyOperatorWebhookErrors", "MyOperatorWebhookPanics"];

/// What a machine with much to do takes to make a fault, and an operator to see it.
const SLACK: Duration = Duration::from_mins(1);

/// So long a fault lasts on after its alert fires.
const LASTS: Duration = Duration::from_secs(10);

/// Between two pokes of a fault that happens again and again.
const AGAIN: Duration = Duration::from_millis(500);

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// The namespaces of the installation with webhooks. The others have one each.
const SHARED: [&str; 7] = [
    "ats", "overdue", "fails", "sick", "stuck", "migrated", "errors",
];

async fn create(namespace: &Kubectl) {
    let create = format!("create namespace {}", namespace.namespace);
    namespace.run(&create).await.good();
}

struct Story {
    cluster: &'static Cluster,
    prometheus: Prometheus,
    /// The alerts that have fired in their faults.
    seen: Mutex<BTreeSet<&'static str>>,
}

/// What makes an alert fire.
struct Fault<'a> {
    alert: &'static str,
    /// Labels that the alert must have.
    labels: &'a [(&'static str, &'a str)],
    /// How long the operator itself waits before it counts the fault.
    grace: Duration,
}

impl<'a> Fault<'a> {
    fn new(alert: &'static str, labels: &'a [(&'static str, &'a str)]) -> Self {
        let grace = Duration::ZERO;
        Self {
            alert,
            labels,
            grace,
        }
    }

    fn is_in(&self, labels: &Value) -> bool {
        labels["alertname"] == self.alert
            && self
                .labels
                .iter()
                .all(|(name, value)| labels[*name] == *value)
    }
}

impl Story {
    /// kubectl in a namespace of that name.
    async fn kubectl(&self, name: &str) -> Kubectl {
        let kubectl = Kubectl::new(self.cluster, name);
        if !SHARED.contains(&name) {
            create(&kubectl).await;
        }
        kubectl
    }

    /// An installation of its own without webhooks, for one namespace, as an administrator.
    fn installation(&self, name: &str, kubeconfig: &Path, extra: &[&str]) -> Operator {
        let flags = ["--webhooks=false", "--name-prefix", name];
        let flags = [&flags[..], extra].concat();
        let operator = Operator::spawn(self.cluster, name, kubeconfig, &flags);
        self.prometheus.scrape(&operator.metrics, name, "replica-1");
        operator
    }

    async fn fires(&self, fault: &Fault<'_>) -> bool {
        let firing = self.prometheus.firing().await;
        firing.iter().any(|labels| fault.is_in(labels))
    }

    async fn until(&self, fault: &Fault<'_>, fires: bool) {
        let limit = self.prometheus.window(fault.alert) + fault.grace + SLACK;
        let there = try_wait(limit, async || {
            (self.fires(fault).await == fires).then_some(())
        });
        let what = if fires { "not fire" } else { "not end" };
        assert!(
            there.await.is_some(),
            "{} {:?} does {what} within {limit:?}: {:#?}",
            fault.alert,
            fault.labels,
            self.prometheus.firing().await
        );
    }

    /// The fault has begun, and `end` ends it: a future that does nothing before it is polled.
    async fn lasts(&self, fault: Fault<'_>, end: impl Future) {
        let began = Instant::now();
        self.until(&fault, true).await;
        let fired = Utc::now();
        let after = began.elapsed();
        tokio::time::sleep(LASTS).await;
        // Until then it has not stopped firing for a moment.
        let labels = fault
            .labels
            .iter()
            .fold(String::new(), |mut text, (name, value)| {
                write!(text, ",{name}=\"{value}\"").unwrap();
                text
            });
        let series = format!(
            "ALERTS{{alertstate=\"firing\",alertname=\"{}\"{labels}}}",
            fault.alert
        );
        // Before the question: an answer that comes late has no later figures.
        let whole = usize::try_from((Utc::now() - fired).num_seconds()).unwrap();
        let series = self.prometheus.series(&series, fired).await;
        let values = series.first().and_then(|one| one["values"].as_array());
        let seconds = values.map_or(0, Vec::len);
        assert!(seconds >= whole, "{}: {seconds} of {whole} s", fault.alert);
        let _kept = end.await;
        let ended = Instant::now();
        self.until(&fault, false).await;
        self.seen.lock().unwrap().insert(fault.alert);
        println!(
            "{} {:?} fires {:.0} s after its fault began, and ends {:.0} s after that",
            fault.alert,
            fault.labels,
            after.as_secs_f64(),
            ended.elapsed().as_secs_f64()
        );
    }
}

fn at(name: &str, schedule: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, \
         spec: {{schedule: '{schedule}', command: echo YAY, {spec}}}}}\n"
    )
}

/// A MyDaemonSet whose pods have that image and annotation of the fake kubelet.
fn mydaemonset(name: &str, image: &str, annotation: &str) -> String {
    format!(
        "{{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {{name: {name}}}, \
         spec: {{image: '{image}', template: {{metadata: {{annotations: {{{annotation}}}}}}}}}}}"
    )
}

/// Rolls that image out, to the end.
async fn roll_out(kubectl: &Kubectl, name: &str, image: &str) {
    kubectl.apply(&mydaemonset(name, image, "")).await.good();
    let wait = format!("wait --for=condition=Progressing=False --timeout=90s mds/{name}");
    kubectl.run(&wait).await.good();
}

impl Story {
    async fn ats_that_fail_are_missed_or_wait(&self) {
        let kubectl = self.kubectl("ats").await;
        let failing = "template: {metadata: {annotations: {kwok.my-operator.dev/exit-code: '1'}}}";
        let objects = [
            at("failed", "now", failing),
            at(
                "missed",
                "2020-01-01T00:00:00Z",
                "startingDeadlineSeconds: 1",
            ),
            at(
                "waits",
                "now",
                "template: {spec: {nodeSelector: {none: such}}}",
            ),
        ];
        kubectl.apply(&objects.concat()).await.good();
        let delete = async |name: &str| kubectl.run(&format!("delete at {name}")).await.good();
        let namespace = ("exported_namespace", &*kubectl.namespace);
        let missed = [namespace];
        let failed = [namespace, ("result", "Failed")];
        let waits = [namespace, ("name", "waits"), ("reason", "Unschedulable")];
        tokio::join!(
            self.lasts(Fault::new("MyOperatorAtFailed", &failed), delete("failed")),
            self.lasts(Fault::new("MyOperatorAtMissed", &missed), delete("missed")),
            self.lasts(Fault::new("MyOperatorAtWaiting", &waits), delete("waits")),
        );
    }

    async fn an_at_that_is_overdue_starts_late(&self) {
        let kubectl = self.kubectl("overdue").await;
        let policy = Policy::deny(&kubectl, "CREATE", "pods", BY_OPERATOR).await;
        kubectl
            .apply(&at("held", "now", "suspend: false"))
            .await
            .good();
        let overdue = Fault {
            grace: Duration::from_mins(1),
            ..Fault::new("MyOperatorAtOverdue", &[("namespace", NAMESPACE)])
        };
        // A start that was late is long ago a while after it: the second alert ends by itself.
        let late = Fault {
            grace: Duration::from_mins(3),
            ..Fault::new("MyOperatorAtLate", &[("namespace", NAMESPACE)])
        };
        let starts_late = async {
            self.until(&late, true).await;
            self.lasts_no_longer(&late).await;
        };
        tokio::join!(self.lasts(overdue, policy.lift()), starts_late);
    }

    async fn a_revision_that_fails_stops_by_itself(&self) {
        let kubectl = self.kubectl("fails").await;
        for image in ["good:1", "good:2"] {
            roll_out(&kubectl, "bad", image).await;
        }
        let good = mydaemonset("bad", "good:2", "");
        kubectl
            .apply(&mydaemonset("bad", "fail:1", ""))
            .await
            .good();
        let labels = [("exported_namespace", &*kubectl.namespace), ("name", "bad")];
        let stopped = Fault::new("MyOperatorRolloutsPaused", &labels);
        self.lasts(stopped, async { kubectl.apply(&good).await.good() })
            .await;
    }

    async fn pods_that_are_not_ready_leave_nodes_without(&self) {
        let kubectl = self.kubectl("sick").await;
        roll_out(&kubectl, "sick", "good:1").await;
        let ready = async |is: bool| {
            let annotate =
                format!("annotate pods --all --overwrite kwok.my-operator.dev/ready={is}");
            kubectl.run(&annotate).await.good();
        };
        ready(false).await;
        let labels = [
            ("exported_namespace", &*kubectl.namespace),
            ("name", "sick"),
        ];
        let lacking = Fault::new("MyOperatorNodesUnavailable", &labels);
        self.lasts(lacking, ready(true)).await;
    }

    async fn a_pod_that_does_not_start_holds_up_a_roll_out(&self) {
        let kubectl = self.kubectl("stuck").await;
        roll_out(&kubectl, "stuck", "good:1").await;
        let good = mydaemonset("stuck", "good:1", "");
        let pending = "kwok.my-operator.dev/phase: Pending";
        kubectl
            .apply(&mydaemonset("stuck", "good:2", pending))
            .await
            .good();
        let labels = [
            ("exported_namespace", &*kubectl.namespace),
            ("name", "stuck"),
        ];
        let stuck = Fault::new("MyOperatorRolloutStuck", &labels);
        self.lasts(stuck, async { kubectl.apply(&good).await.good() })
            .await;
    }

    async fn a_migration_is_left_halfway(&self) {
        let kubectl = self.kubectl("migrated").await;
        kubectl
            .apply(&mydaemonset("half", "good:1", ""))
            .await
            .good();
        kubectl
            .run("annotate mds half apps.zhongmingmao.io/migration=there")
            .await
            .good();
        let labels = [
            ("exported_namespace", &*kubectl.namespace),
            ("name", "half"),
        ];
        let abandoned = Fault::new("MyOperatorMigrationAbandoned", &labels);
        let end = async {
            let annotate = "annotate mds half apps.zhongmingmao.io/migration-";
            kubectl.run(annotate).await.good();
        };
        self.lasts(abandoned, end).await;
    }

    async fn writes_of_the_status_are_refused(&self) {
        let kubectl = self.kubectl("errors").await;
        let policy = Policy::deny(&kubectl, "UPDATE", "mydaemonsets/status", BY_OPERATOR).await;
        for number in 0..5 {
            let object = mydaemonset(&format!("e{number}"), "good:1", "");
            kubectl.apply(&object).await.good();
        }
        let labels = [("controller", "mydaemonset"), ("namespace", NAMESPACE)];
        let errors = Fault::new("MyOperatorReconcileErrors", &labels);
        // Users go on to change what is not reconciled: otherwise it is tried more and more seldom.
        let poke = again(async |round| {
            let touch = format!("annotate mds --all --overwrite round={round}");
            kubectl.run(&touch).await.good();
        });
        let end = async {
            policy.lift().await;
            kubectl.run("delete mds --all").await.good();
        };
        Box::pin(self.happens(poke, errors, end)).await;
    }

    async fn a_slow_way_to_the_api_server_lets_the_queue_grow(&self) {
        let kubectl = self.kubectl("slow").await;
        let proxy = Proxy::to(self.cluster).await;
        let kubeconfig = proxy.kubeconfig(self.cluster, "slow.kubeconfig");
        let flags = ["--namespace", "slow", "--max-concurrent-reconciles=1"];
        let operator = self.installation("slow", &kubeconfig, &flags);
        operator.until_ready().await;
        let waiting = |number| {
            at(
                &format!("a{number}"),
                "2100-01-01T00:00:00Z",
                "suspend: false",
            )
        };
        let all: String = (0..200).map(waiting).collect();
        proxy.set(Mode::Late(Duration::from_secs(2)));
        kubectl.with("create -f -", &all).await.good();
        let labels = [("namespace", "slow"), ("name", "at")];
        let backlog = Fault::new("MyOperatorQueueBacklog", &labels);
        self.lasts(backlog, async { proxy.set(Mode::Open) }).await;
    }

    async fn a_right_to_watch_is_missing(&self) {
        let kubectl = self.kubectl("blind").await;
        let namespace = &kubectl.namespace;
        let account = self.cluster.service_account_kubeconfig(namespace, "blind");
        let kubeconfig = account.await.unwrap();
        let groups = "--resource=*.apps.zhongmingmao.io,*.cnat.programming-kubernetes.info,*.coordination.k8s.io,*.apps,*.events.k8s.io";
        let role = format!("create clusterrole blind --verb=* {groups}");
        kubectl.run(&role).await.good();
        let bind = async |name: &str, role: &str| {
            let account = format!("--serviceaccount={namespace}:blind");
            let bind = format!("create clusterrolebinding {name} --clusterrole={role} {account}");
            kubectl.run(&bind).await.good();
        };
        bind("blind", "blind").await;
        let _operator = self.installation("blind", &kubeconfig, &["--namespace", namespace]);
        let labels = [("namespace", "blind"), ("resource", "pods")];
        let failing = Fault::new("MyOperatorWatchFailing", &labels);
        self.lasts(failing, bind("seeing", "cluster-admin")).await;
    }

    async fn a_lease_cannot_be_had_or_is_taken_away_or_is_another(&self) {
        let kubectl = self.kubectl("leases").await;
        let namespace = kubectl.namespace.clone();
        let policy = Policy::deny(&kubectl, "CREATE", "leases", "true").await;
        let only = [
            "--namespace",
            &namespace,
            "--operator-namespace",
            &namespace,
            "--leader-elect",
            "--leader-election-lease-duration=2s",
            "--leader-election-renew-deadline=1s",
            "--leader-election-retry-period=200ms",
        ];
        let kubeconfig = self.cluster.kubeconfig();
        let _first = self.installation("leases", kubeconfig, &only);
        let labels = [("namespace", "leases")];
        let no_leader = Fault::new("MyOperatorNoLeader", &labels);
        self.lasts(no_leader, policy.lift()).await;

        let holder = "{.spec.holderIdentity}";
        let own = kubectl.until_any("lease/leases", holder).await;
        let steal = again(async |_| {
            kubectl.until_field("lease/leases", holder, &own).await;
            let other =
                "{\"spec\": {\"holderIdentity\": \"another\", \"leaseDurationSeconds\": 1}}";
            let patch = "patch lease/leases --type=merge --patch-file=/dev/stdin";
            kubectl.with(patch, other).await.good();
        });
        let flaps = Fault::new("MyOperatorLeaderFlaps", &labels);
        self.happens(steal, flaps, async {}).await;

        let mut second = only.to_vec();
        second.extend(["--webhooks=false", "--name-prefix=another"]);
        let second = Operator::spawn(self.cluster, "another", kubeconfig, &second);
        self.prometheus
            .scrape(&second.metrics, "leases", "replica-2");
        let two = Fault::new("MyOperatorTwoLeaders", &labels);
        self.lasts(two, second.process.stop(Duration::from_secs(10)))
            .await;
    }

    async fn the_webhooks_of_files(&self) {
        let files = Files::new();
        let [folder, kubectl] = [files.path(), self.kubectl("files").await.namespace];
        let flags = [
            "--webhook-cert-path",
            &folder,
            "--namespace",
            &kubectl,
            "--name-prefix=files",
        ];
        let operator = Operator::spawn(self.cluster, "files", self.cluster.kubeconfig(), &flags);
        self.prometheus
            .scrape(&operator.metrics, "files", "replica-1");
        let labels = [("namespace", "files")];
        let not_ready = Fault::new("MyOperatorNotReady", &labels);
        self.lasts(not_ready, async { files.put(TimeDelta::hours(10)) })
            .await;
        operator.until_ready().await;

        let labels = [("namespace", "files"), ("certificate", "leaf")];
        let expires = async { files.put(TimeDelta::days(30)) };
        let not_renewed = Fault::new("MyOperatorCertificateNotRenewed", &labels);
        let soon = Fault::new("MyOperatorCertificateExpiresSoon", &labels);
        // The second fires at once, so that it lasts for as long as the first.
        self.until(&soon, true).await;
        self.lasts(not_renewed, expires).await;
        self.lasts_no_longer(&soon).await;

        let webhook = &operator.webhook;
        let trust = files.trust();
        let too_large = again(async |_| too_large(webhook, trust.clone()).await);
        let labels = [("namespace", "files"), ("reason", "body_too_large")];
        let refused = Fault::new("MyOperatorWebhookRefusesConnections", &labels);
        self.happens(too_large, refused, async {}).await;

        let handshake = again(async |_| no_handshake(webhook).await);
        let broken = Fault::new("MyOperatorWebhookHandshakesFail", &[("namespace", "files")]);
        self.happens(handshake, broken, async {}).await;

        let labels = [("namespace", "files"), ("webhook", SLOW)];
        let slow = Fault::new("MyOperatorWebhookSlow", &labels);
        let reviews = slow_reviews(&operator, &trust);
        self.happens(reviews, slow, async {}).await;
    }

    async fn a_webhook_configuration_is_changed(&self) {
        let kubectl = Kubectl::new(self.cluster, NAMESPACE);
        let set = async |policy: &str| {
            let at = "/webhooks/0/failurePolicy";
            let patch = json!([{"op": "replace", "path": at, "value": policy}]).to_string();
            let name =
                "validatingwebhookconfiguration/my-operator-validating-webhook-configuration";
            let args = format!("patch {name} --type=json --patch-file=/dev/stdin");
            kubectl.with(&args, &patch).await.good();
        };
        set("Ignore").await;
        let labels = [("namespace", NAMESPACE), ("field", "failurePolicy")];
        let drift = Fault::new("MyOperatorWebhookConfigurationDrift", &labels);
        self.lasts(drift, set("Fail")).await;
    }

    /// What happens again and again sets an alert off. Its end, and what `end` does then, ends the alert.
    async fn happens(
        &self,
        again: impl Future<Output = ()>,
        fault: Fault<'_>,
        end: impl Future<Output = ()>,
    ) {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let end = async move {
            drop(stop);
            end.await;
        };
        let lasts = self.lasts(fault, end);
        let until_then = async {
            tokio::select! {
                () = again => {}
                _ = stopped => {}
            }
        };
        tokio::join!(lasts, until_then);
    }

    async fn lasts_no_longer(&self, fault: &Fault<'_>) {
        self.until(fault, false).await;
        self.seen.lock().unwrap().insert(fault.alert);
    }
}

/// Does something again and again, for ever.
async fn again(mut what: impl AsyncFnMut(usize)) {
    for round in 0.. {
        what(round).await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// A certificate in files.
struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let authority = Authority::generate(Utc::now(), TimeDelta::days(300));
        Self {
            folder: tempfile::tempdir().unwrap(),
            authority: authority.unwrap(),
        }
    }

    fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn trust(&self) -> Arc<ClientConfig> {
        peer::trust(self.authority.certificate_pem().as_bytes())
    }

    /// Writes a new one, good for that long.
    fn put(&self, validity: TimeDelta) {
        let hosts = ["127.0.0.1".to_owned()];
        let leaf = self.authority.issue(&hosts, Utc::now(), validity).unwrap();
        let folder: PathBuf = self.folder.path().to_owned();
        let files = [
            ("ca.crt", self.authority.certificate_pem()),
            ("tls.key", leaf.key_pem()),
            ("tls.crt", leaf.certificate_pem()),
        ];
        for (name, text) in files {
            std::fs::write(folder.join("new"), &*text).unwrap();
            std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
        }
    }
}

/// A request whose body would be too large.
async fn too_large(webhook: &str, tls: Arc<ClientConfig>) {
    let stream = TcpStream::connect(webhook).await.unwrap();
    let stream = peer::secured(stream, "127.0.0.1", tls).await;
    let mut stream = stream.unwrap();
    let head = format!("POST {SLOW} HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server closes, perhaps without a close_notify.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// A client that does not speak TLS.
async fn no_handshake(webhook: &str) {
    let mut stream = TcpStream::connect(webhook).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// The path of the webhook that is slow.
const SLOW: &str = "/validate-apps-zhongmingmao-io-v1beta1-mydaemonset";

/// An operator that stands still; it goes on when this is dropped.
struct Stopped<'a>(&'a Operator);

impl<'a> Stopped<'a> {
    fn begin(operator: &'a Operator) -> Self {
        operator.process.signal(Signal::STOP);
        Self(operator)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.process.signal(Signal::CONT);
    }
}

/// Reviews of a process that again and again stands still for most of a second, as one does on a machine that swaps. They
/// are large, so that one is always under way and is slow then, and few are answered in between.
async fn slow_reviews(operator: &Operator, tls: &Arc<ClientConfig>) {
    let variables: Vec<Value> = (0..60_000)
        .map(|number| json!({"name": format!("V{number}"), "value": "x".repeat(20)}))
        .collect();
    let container = json!({"name": "main", "image": "a:1", "env": variables});
    let spec = json!({"image": "a:1", "template": {"spec": {"containers": [container]}}});
    let request = peer::review(&operator.webhook, &spec);
    let callers = (0..3).map(async |_| {
        loop {
            let sent = peer::send(&operator.webhook, tls.clone(), &request).await;
            let (_, answer) = sent.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    });
    let stops = async {
        loop {
            // Long enough for the metrics to be read.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let _stopped = Stopped::begin(operator);
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
    };
    tokio::join!(futures::future::join_all(callers), stops);
}

/// Each panel of the dashboards has data, from whatever part of the story.
async fn every_panel_has_data(prometheus: &Prometheus, from: chrono::DateTime<Utc>) {
    let mut empty = Vec::new();
    for query in dashboards::all()
        .iter()
        .flat_map(dashboards::Dashboard::queries)
    {
        let expression = ["job", "instance", "namespace"]
            .iter()
            .fold(query.expression.clone(), |text, variable| {
                text.replace(&format!("${variable}"), ".*")
            });
        if prometheus.series(&expression, from).await.is_empty() {
            empty.push(query.place);
        }
    }
    assert!(empty.is_empty(), "no data: {empty:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_alert_fires_during_its_fault_and_each_panel_has_data() {
    let from = Utc::now();
    let plane = OwnPlane::start(Options::with_nodes(&NODES)).await;
    let cluster = plane.cluster;
    harness::install(cluster).await;
    let story = Story {
        cluster,
        prometheus: Prometheus::start(cluster).await,
        seen: Mutex::default(),
    };
    let kubeconfig = operator_kubeconfig(cluster).await;
    for namespace in SHARED {
        create(&Kubectl::new(cluster, namespace)).await;
    }
    let replica = async |number: usize| {
        let name = format!("replica-{number}");
        let mut flags = vec!["--leader-elect"];
        flags.extend(
            SHARED
                .iter()
                .flat_map(|namespace| ["--namespace", namespace]),
        );
        let operator = Operator::spawn(cluster, &name, &kubeconfig, &flags);
        operator.until_ready().await;
        story.prometheus.scrape(&operator.metrics, NAMESPACE, &name);
        operator
    };
    let operator = replica(1).await;
    let kubectl = Kubectl::new(cluster, SHARED[0]);
    kubectl
        .until_webhooks_are_called(
            "config/samples/bad/cnat_v1alpha1_at.yaml",
            "config/samples/cnat_v1alpha1_at.yaml",
            ("{.spec.suspend}", "false"),
        )
        .await;
    wait_for("Prometheus to see the operator", async || {
        let series = story
            .prometheus
            .series("my_operator_build_info", from)
            .await;
        (!series.is_empty()).then_some(())
    })
    .await;

    tokio::join!(
        story.ats_that_fail_are_missed_or_wait(),
        story.an_at_that_is_overdue_starts_late(),
        story.a_revision_that_fails_stops_by_itself(),
        story.pods_that_are_not_ready_leave_nodes_without(),
        story.a_pod_that_does_not_start_holds_up_a_roll_out(),
        story.a_migration_is_left_halfway(),
        story.writes_of_the_status_are_refused(),
        story.a_slow_way_to_the_api_server_lets_the_queue_grow(),
        story.a_right_to_watch_is_missing(),
        story.a_lease_cannot_be_had_or_is_taken_away_or_is_another(),
        story.the_webhooks_of_files(),
        story.a_webhook_configuration_is_changed(),
    );
    every_panel_has_data(&story.prometheus, from).await;

    let down = Fault::new("MyOperatorDown", &[]);
    operator.process.stop(Duration::from_secs(10)).await;
    story.lasts(down, replica(2)).await;

    let fault_of = story.seen.into_inner().unwrap();
    let all: BTreeSet<_> = story.prometheus.alerts().into_iter().collect();
    let without: Vec<_> = all
        .iter()
        .filter(|alert| !fault_of.contains(&***alert))
        .collect();
    assert_eq!(without, OF_A_BUG);
    plane.stop().await;
}
