//! Several replicas of which one leads: they are terminated, killed and frozen, the lease is edited, and the API
//! server is unreachable or slow.
//!
//! Every test has a Lease in a namespace of its own, so that all run at the same time. How soon another replica leads is
//! promised more strictly than real time on a busy machine can show: `crates/leader/src/simulation.rs` asserts that in virtual
//! time.

// What a test came to is shown with --nocapture, and when it fails.
#![allow(clippy::print_stdout)]

pub(crate) mod audit;
mod hanging;
mod shards;
mod stalled;
mod stopped;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use my_operator_cluster::Cluster;
use my_operator_rounds::lengths;

use crate::disruption::{cluster, until_event};
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::{
    Kubectl, NAMESPACE, Operator, SERVICE_ACCOUNT, TIMEOUT, http_get, operator_kubeconfig, wait_for,
};

/// A lease that is over soon.
const LEASE: Duration = Duration::from_secs(3);
const QUICK: [&str; 3] = ["3s", "2s", "500ms"];
/// A busy machine does not cost the leader this lease.
const STEADY: [&str; 3] = ["8s", "6s", "500ms"];
const STEADY_LEASE: Duration = Duration::from_secs(8);
/// The default periods, in milliseconds.
const DEFAULTS: [u32; 3] = [15_000, 10_000, 2_000];
/// A replica reads the lease only every 20 s, unless its watch shows a change.
const SLOW: [&str; 3] = ["60s", "40s", "20s"];
/// The leader gives up long before that lease is over.
const WIDE: [&str; 3] = ["6s", "3s", "500ms"];
const WIDE_LEASE: Duration = Duration::from_secs(6);
/// How much longer than the lease it may take until another leads on a busy machine: clearly less than with the lease
/// that is the default.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(8);
/// How long an operator may take to end after SIGTERM.
const END: Duration = Duration::from_secs(10);

const LEASE_OBJECT: &str = "lease/my-operator";

/// An election, with a Lease in a namespace of its own. The operators work in the same namespace.
pub(super) struct Election {
    cluster: &'static Cluster,
    kubectl: Kubectl,
    namespace: String,
}

impl Election {
    async fn new(prefix: &str) -> Self {
        let cluster = cluster().await;
        let namespace = cluster.namespace(prefix).await.unwrap();
        let kubectl = Kubectl::new(cluster, &namespace);
        // What `config/rbac` allows in the operator's namespace.
        let role = "my-operator-leader-election-role";
        let role = Kubectl::new(cluster, NAMESPACE)
            .object(&format!("role/{role}"))
            .await;
        let rules = serde_json::to_string(&role["rules"]).unwrap();
        let api = "apiVersion: rbac.authorization.k8s.io/v1";
        let name = "metadata: {name: leader-election}";
        kubectl
            .apply(&format!(
                "{{{api}, kind: Role, {name}, rules: {rules}}}\n---\n{{{api}, kind: RoleBinding, {name}, roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader-election}}, subjects: [{{kind: ServiceAccount, name: {SERVICE_ACCOUNT}, namespace: {NAMESPACE}}}]}}"
            ))
            .await
            .good();
        Self {
            cluster,
            kubectl,
            namespace,
        }
    }

    /// A replica with a token and flags of its own.
    async fn replica(&self, name: &str, flags: &[&str]) -> Replica {
        let kubeconfig = operator_kubeconfig(self.cluster).await;
        let periods = QUICK.map(str::to_owned);
        self.spawn(name, kubeconfig, periods, flags).await
    }

    async fn spawn(
        &self,
        name: &str,
        kubeconfig: PathBuf,
        [lease, renew, retry]: [String; 3],
        flags: &[&str],
    ) -> Replica {
        let own = [
            "--leader-elect".to_owned(),
            "--webhooks=false".to_owned(),
            format!("--namespace={}", self.namespace),
            format!("--operator-namespace={}", self.namespace),
            format!("--leader-election-lease-duration={lease}"),
            format!("--leader-election-renew-deadline={renew}"),
            format!("--leader-election-retry-period={retry}"),
        ];
        let mut all: Vec<&str> = own.iter().map(String::as_str).collect();
        all.extend(flags);
        let operator = Operator::spawn(self.cluster, name, &kubeconfig, &all);
        operator.until_ready().await;
        Replica {
            name: name.to_owned(),
            operator,
            kubeconfig,
        }
    }

    async fn holder(&self) -> String {
        self.kubectl
            .field(LEASE_OBJECT, "{.spec.holderIdentity}")
            .await
    }
}

/// One of several operators.
pub(super) struct Replica {
    name: String,
    operator: Operator,
    kubeconfig: PathBuf,
}

impl Replica {
    async fn leads(&self) -> bool {
        let leads = |line: &str| {
            line.starts_with("leader_election_master_status{") && line.ends_with("} 1.0")
        };
        let start = Instant::now();
        loop {
            let page = self.operator.figures();
            // An operator that runs and does not answer has not said that it does not lead.
            if !page.is_empty() || !self.operator.process.is_running() {
                return page.lines().any(leads);
            }
            assert!(
                start.elapsed() < TIMEOUT,
                "{} gives no figures:\n{}",
                self.name,
                self.operator.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Terminates it, and waits until it has ended without an error.
    async fn end(&self) {
        let status = self.operator.process.stop(END).await;
        assert!(status.success(), "{status}\n{}", self.operator.log());
    }

    /// Waits until it leads. How long that took.
    async fn until_it_leads(&self) -> Duration {
        let start = Instant::now();
        loop {
            if self.leads().await {
                return start.elapsed();
            }
            assert!(
                start.elapsed() < TIMEOUT && self.operator.process.is_running(),
                "{} does not lead:\n{}",
                self.name,
                self.operator.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it has lost the lease. It runs on, and has no figures of its reconcilers.
    async fn until_it_steps_down(&self) {
        let of_a_leader = ["my_operator_at_pending", "workqueue_depth"];
        wait_for("the leader to step down", async || {
            let (page, log) = (self.operator.figures(), self.operator.log());
            assert!(self.operator.process.is_running(), "{log}");
            let is_down = !page.is_empty()
                && log.contains("lost the leadership: the lease")
                && !of_a_leader.iter().any(|name| page.contains(name));
            is_down.then_some(())
        })
        .await;
        assert!(!self.leads().await, "{}", self.operator.log());
    }
}

/// The default periods, scaled.
fn scaled(percent: u32) -> [Duration; 3] {
    DEFAULTS.map(|period| Duration::from_millis((period * percent / 100).into()))
}

fn as_flags(periods: [Duration; 3]) -> [String; 3] {
    periods.map(|period| format!("{}ms", period.as_millis()))
}

/// Asserts that a takeover was in time.
fn assert_in_time(took: Duration) {
    assert!(took <= LEASE + TAKEOVER, "it took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_terminated_hands_over_without_waiting_for_its_lease() {
    let election = Election::new("hand-over").await;
    let start = async |name: &str| {
        let kubeconfig = operator_kubeconfig(election.cluster).await;
        let periods = SLOW.map(str::to_owned);
        election.spawn(name, kubeconfig, periods, &[]).await
    };
    let mut leader = start("hand-over-0").await;
    leader.until_it_leads().await;
    let (mut best, mut worst) = (Duration::MAX, Duration::ZERO);
    for round in 1..=5 {
        let next = start(&format!("hand-over-{round}")).await;
        let holder = election.holder().await;
        wait_for("the next one to know who leads", async || {
            let (_, page) = http_get(&next.operator.probes, "/readyz?verbose")?;
            page.contains(&format!("leader: {holder} leads"))
                .then_some(())
        })
        .await;
        assert!(!next.leads().await);
        leader.end().await;
        let took = next.until_it_leads().await;
        best = best.min(took);
        worst = worst.max(took);
        leader = next;
    }
    println!("handed over 5 times, after {best:?} at least and {worst:?} at most");
    // The promise of one second is kept at least once on a busy machine, too.
    assert!(best < Duration::from_secs(1), "{best:?}");
    // A replica that did not watch the lease would look at it every 20 s.
    assert!(worst < Duration::from_secs(10), "{worst:?}");
    let transitions = "{.spec.leaseTransitions}";
    let transitions = election.kubectl.field(LEASE_OBJECT, transitions).await;
    assert_eq!(transitions, "5");
    until_event(&election.kubectl, "LeaderElection", "became leader").await;
    leader.end().await;
    assert_eq!(election.holder().await, "");
    let seconds = "{.spec.leaseDurationSeconds}";
    assert_eq!(election.kubectl.field(LEASE_OBJECT, seconds).await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_leads_soon_after_the_leader_was_killed() {
    let election = Election::new("lost").await;
    let mut leader = election.replica("lost-0", &[]).await;
    leader.until_it_leads().await;
    let mut worst = Duration::ZERO;
    for round in 1..=3 {
        let next = election.replica(&format!("lost-{round}"), &[]).await;
        leader.operator.process.kill();
        leader.operator.process.wait().await;
        let took = next.until_it_leads().await;
        assert_in_time(took);
        worst = worst.max(took);
        leader = next;
    }
    println!("taken over 3 times, after {worst:?} at most");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_edited_or_deleted_has_one_leader_again() {
    let election = Election::new("edited").await;
    let start = async |name: &str| {
        let kubeconfig = operator_kubeconfig(election.cluster).await;
        let periods = STEADY.map(str::to_owned);
        election.spawn(name, kubeconfig, periods, &[]).await
    };
    let leader = start("edited-0").await;
    leader.until_it_leads().await;
    let other = start("edited-1").await;
    let mine = election.holder().await;
    // An edit that names no other holder leaves the leader where it is.
    for edit in [
        "delete lease my-operator",
        r#"patch lease my-operator --type=merge -p {"spec":null}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"holderIdentity":""}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"leaseDurationSeconds":1000000000}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"renewTime":null,"acquireTime":null}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"leaseTransitions":2147483647}}"#,
    ] {
        election.kubectl.run(edit).await.good();
        // Whatever the leader writes after the first state that is seen here was written over the edit.
        let mut before = None;
        let lease = election
            .kubectl
            .until(LEASE_OBJECT, "to be renewed", |lease| {
                let renewed = lease.map_or("", |l| l["spec"]["renewTime"].as_str().unwrap_or(""));
                let before = before.get_or_insert_with(|| renewed.to_owned());
                (!renewed.is_empty() && renewed != before).then(|| lease.cloned())?
            })
            .await;
        let spec = &lease["spec"];
        assert_eq!(spec["holderIdentity"], mine.as_str(), "{edit}");
        assert_eq!(spec["leaseDurationSeconds"], 8, "{edit}");
        assert!(leader.leads().await && !other.leads().await, "{edit}");
    }
    // The API server rejects what is no duration or time at all.
    for edit in [
        r#"{"spec":{"leaseDurationSeconds":-1}}"#,
        r#"{"spec":{"renewTime":"never"}}"#,
    ] {
        let patch = format!("patch lease my-operator --type=merge -p {edit}");
        election.kubectl.run(&patch).await.bad();
    }
    // Another's lease: this leader steps down, and both wait until that lease is over.
    let start = Instant::now();
    let garbage =
        r#"{"spec":{"holderIdentity":"garbage ☃ holder","leaseDurationSeconds":1000000000}}"#;
    let mut patch = election.kubectl.command("patch lease my-operator");
    patch.args(["--type=merge", "-p", garbage]);
    crate::harness::run(&mut patch, "").await.good();
    leader.until_it_steps_down().await;
    wait_for("one of them to lead", async || {
        let leads = [leader.leads().await, other.leads().await];
        assert_ne!(leads, [true, true]);
        leads.contains(&true).then_some(())
    })
    .await;
    let took = start.elapsed();
    assert!(took <= STEADY_LEASE + TAKEOVER, "it took {took:?}");
    leader.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_an_api_server_steps_down_before_another_leads() {
    let election = Election::new("unreachable").await;
    let wide = || WIDE.map(str::to_owned);
    let proxy = Proxy::to(election.cluster).await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    proxy.lead_to(&kubeconfig);
    let leader = election
        .spawn("unreachable-0", kubeconfig, wide(), &[])
        .await;
    leader.until_it_leads().await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    let other = election
        .spawn("unreachable-1", kubeconfig, wide(), &[])
        .await;
    proxy.set(Mode::Silent);
    let start = Instant::now();
    let stepped_down = async {
        leader.until_it_steps_down().await;
        start.elapsed()
    };
    let leads = async {
        other.until_it_leads().await;
        start.elapsed()
    };
    let (stepped_down, leads) = tokio::join!(stepped_down, leads);
    println!("it stepped down after {stepped_down:?}, the other leads after {leads:?}");
    assert!(stepped_down < leads, "{stepped_down:?} {leads:?}");
    assert!(leads <= WIDE_LEASE + TAKEOVER, "it took {leads:?}");
    // It is a standby from then on.
    proxy.set(Mode::Open);
    other.end().await;
    leader.until_it_leads().await;
    leader.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_whose_answers_take_seconds_is_fast_enough() {
    let election = Election::new("slow").await;
    let [lease, renew, retry] = scaled(lengths::slow_leader_percent());
    let periods = || as_flags([lease, renew, retry]);
    let proxy = Proxy::to(election.cluster).await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    proxy.lead_to(&kubeconfig);
    let leader = election.spawn("slow-0", kubeconfig, periods(), &[]).await;
    leader.until_it_leads().await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    let other = election.spawn("slow-1", kubeconfig, periods(), &[]).await;
    proxy.set(Mode::Late(lengths::slow_leader_lateness()));
    // Longer than it could go on without a renewal.
    let start = Instant::now();
    while start.elapsed() < lease * 5 / 3 {
        assert!(leader.leads().await, "{}", leader.operator.log());
        assert!(!other.leads().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
