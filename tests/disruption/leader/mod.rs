//! Several replicas of which one leads: they are told to end, killed and stopped, the lease is edited,
//! and the API server is away or slow.

// What a test came to is shown with --nocapture, and when it fails.
#![allow(clippy::print_stdout)]

pub(crate) mod audit;
mod stopped;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use my_operator_cluster::Cluster;
use tokio::sync::{Mutex, MutexGuard};

use crate::cluster;
use crate::harness::{
    Kubectl, NAMESPACE, Operator, PATIENCE, http_get, operator_kubeconfig, wait_for,
};
use crate::proxy::{Mode, Proxy};

/// A lease that is over soon.
const LEASE: Duration = Duration::from_secs(3);
const QUICK: [&str; 3] = ["3s", "2s", "500ms"];
const DEFAULTS: [&str; 3] = ["15s", "10s", "2s"];
/// Nobody looks at the lease by itself for long.
const SLOW: [&str; 3] = ["60s", "40s", "20s"];
/// The leader gives up long before that lease is over.
const WIDE: [&str; 3] = ["6s", "3s", "500ms"];
const WIDE_LEASE: Duration = Duration::from_secs(6);
/// How much longer than the lease it may take until another leads: on a busy machine, and yet sooner than
/// with the lease that is the default.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(8);
/// How long an operator may take to end when it is told to.
const END: Duration = Duration::from_secs(10);

/// The lease has a fixed name, so one test at a time may have it. It is gone when the next begins.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    Kubectl::new(cluster().await, NAMESPACE)
        .run("delete lease my-operator --ignore-not-found")
        .good();
    turn
}

/// The lease in the hands of one test.
pub(super) struct Election {
    cluster: &'static Cluster,
    kubectl: Kubectl,
    namespace: String,
    _turn: MutexGuard<'static, ()>,
}

impl Election {
    async fn new(prefix: &str) -> Self {
        let turn = turn().await;
        let cluster = cluster().await;
        Self {
            cluster,
            kubectl: Kubectl::new(cluster, NAMESPACE),
            namespace: cluster.namespace(prefix).await.unwrap(),
            _turn: turn,
        }
    }

    /// A replica with a token and flags of its own.
    async fn replica(&self, name: &str, flags: &[&str]) -> Replica {
        let kubeconfig = operator_kubeconfig(self.cluster).await;
        self.spawn(name, kubeconfig, QUICK, flags).await
    }

    async fn spawn(
        &self,
        name: &str,
        kubeconfig: PathBuf,
        [lease, renew, retry]: [&str; 3],
        flags: &[&str],
    ) -> Replica {
        let own = [
            "--leader-elect".to_owned(),
            "--webhooks=false".to_owned(),
            format!("--namespace={}", self.namespace),
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

    fn holder(&self) -> String {
        self.kubectl
            .field("lease/my-operator", "{.spec.holderIdentity}")
    }

    /// When the leader wrote it last, as it says.
    fn renewed(&self) -> String {
        self.kubectl.field("lease/my-operator", "{.spec.renewTime}")
    }
}

/// One of several operators.
pub(super) struct Replica {
    name: String,
    operator: Operator,
    kubeconfig: PathBuf,
}

impl Replica {
    fn leads(&self) -> bool {
        let leads = "leader_election_master_status{name=\"my-operator\"} 1.0";
        let start = Instant::now();
        loop {
            let page = self.operator.figures();
            // Who does not answer while it runs has not said that it does not lead.
            if !page.is_empty() || !self.operator.process.is_running() {
                return page.contains(leads);
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{} gives no figures:\n{}",
                self.name,
                self.operator.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Tells it to end, and waits until it has, in good order.
    async fn end(&self) {
        let status = self.operator.process.stop(END).await;
        assert!(status.success(), "{status}\n{}", self.operator.log());
    }

    /// Waits until it leads. How long that took.
    async fn until_it_leads(&self) -> Duration {
        let start = Instant::now();
        loop {
            if self.leads() {
                return start.elapsed();
            }
            assert!(
                start.elapsed() < PATIENCE && self.operator.process.is_running(),
                "{} does not lead:\n{}",
                self.name,
                self.operator.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it has ended by itself, as one does that lost the lease.
    async fn until_it_ends(&self) {
        let ended = tokio::time::timeout(PATIENCE, self.operator.process.wait());
        let status = ended.await.expect("a replica that lost the lease ends");
        let log = self.operator.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains("lost the leadership: the lease"), "{log}");
    }
}

/// Asserts that a takeover was in time.
fn assert_in_time(took: Duration) {
    assert!(took <= LEASE + TAKEOVER, "it took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_told_to_end_hands_over_within_a_second() {
    let election = Election::new("hand-over").await;
    // The others see at once that the lease is given up.
    let start = async |name: &str| {
        let kubeconfig = operator_kubeconfig(election.cluster).await;
        election.spawn(name, kubeconfig, SLOW, &[]).await
    };
    let mut leader = start("hand-over-0").await;
    leader.until_it_leads().await;
    let (mut best, mut worst) = (Duration::MAX, Duration::ZERO);
    for round in 1..=5 {
        let next = start(&format!("hand-over-{round}")).await;
        wait_for("the next one to know who leads", || {
            let (_, page) = http_get(&next.operator.probes, "/readyz?verbose")?;
            page.contains(&format!("leader: {} leads", election.holder()))
                .then_some(())
        })
        .await;
        assert!(!next.leads());
        leader.end().await;
        let took = next.until_it_leads().await;
        best = best.min(took);
        worst = worst.max(took);
        leader = next;
    }
    println!("handed over 5 times, after {best:?} at least and {worst:?} at most");
    assert!(best < Duration::from_secs(1), "{best:?}");
    // A busy machine may delay one of them; who only looked at times would come later still.
    assert!(worst < Duration::from_secs(10), "{worst:?}");
    let lease = "lease/my-operator";
    let transitions = election.kubectl.field(lease, "{.spec.leaseTransitions}");
    assert_eq!(transitions, "5");
    let events = election
        .kubectl
        .run("get events --field-selector reason=LeaderElection");
    assert!(events.out.contains("became leader"), "{events:?}");
    leader.end().await;
    assert_eq!(election.holder(), "");
    let seconds = election
        .kubectl
        .field(lease, "{.spec.leaseDurationSeconds}");
    assert_eq!(seconds, "1");
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
    let leader = election.replica("edited-0", &[]).await;
    leader.until_it_leads().await;
    let other = election.replica("edited-1", &[]).await;
    let mine = election.holder();
    // What does not name another leaves the leader where it is.
    for edit in [
        "delete lease my-operator",
        r#"patch lease my-operator --type=merge -p {"spec":null}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"holderIdentity":""}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"leaseDurationSeconds":1000000000}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"renewTime":null,"acquireTime":null}}"#,
        r#"patch lease my-operator --type=merge -p {"spec":{"leaseTransitions":2147483647}}"#,
    ] {
        election.kubectl.run(edit).good();
        // What is written after this was written over the edit.
        let renewed = election.renewed();
        wait_for("the leader to renew", || {
            let now = election.renewed();
            (!now.is_empty() && now != renewed).then_some(())
        })
        .await;
        let fields = "{.spec.holderIdentity}/{.spec.leaseDurationSeconds}";
        let stands = election.kubectl.field("lease/my-operator", fields);
        assert_eq!(stands, format!("{mine}/3"), "{edit}");
        assert!(leader.leads() && !other.leads(), "{edit}");
    }
    // The API server refuses what is no duration or time at all.
    for edit in [
        r#"{"spec":{"leaseDurationSeconds":-1}}"#,
        r#"{"spec":{"renewTime":"never"}}"#,
    ] {
        let patch = format!("patch lease my-operator --type=merge -p {edit}");
        election.kubectl.run(&patch).bad();
    }
    // Another's lease: this leader ends, and the other waits until that lease is over.
    let start = Instant::now();
    let garbage =
        r#"{"spec":{"holderIdentity":"garbage ☃ holder","leaseDurationSeconds":1000000000}}"#;
    let mut patch = election.cluster.kubectl();
    patch.args(["--namespace", NAMESPACE, "patch", "lease", "my-operator"]);
    patch.args(["--type=merge", "-p", garbage]);
    crate::harness::run(&mut patch, "").good();
    leader.until_it_ends().await;
    other.until_it_leads().await;
    assert_in_time(start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_an_api_server_ends_before_another_leads() {
    let election = Election::new("unreachable").await;
    let proxy = Proxy::to(election.cluster).await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    proxy.lead_to(&kubeconfig);
    let leader = election.spawn("unreachable-0", kubeconfig, WIDE, &[]).await;
    leader.until_it_leads().await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    let other = election.spawn("unreachable-1", kubeconfig, WIDE, &[]).await;
    proxy.set(Mode::Silent);
    let start = Instant::now();
    let ended = async {
        leader.until_it_ends().await;
        start.elapsed()
    };
    let leads = async {
        other.until_it_leads().await;
        start.elapsed()
    };
    let (ended, leads) = tokio::join!(ended, leads);
    println!("it ended after {ended:?}, the other leads after {leads:?}");
    assert!(ended < leads, "{ended:?} {leads:?}");
    assert!(leads <= WIDE_LEASE + TAKEOVER, "it took {leads:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_api_server_is_good_enough_for_the_default_periods() {
    let election = Election::new("slow").await;
    let proxy = Proxy::to(election.cluster).await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    proxy.lead_to(&kubeconfig);
    let leader = election.spawn("slow-0", kubeconfig, DEFAULTS, &[]).await;
    leader.until_it_leads().await;
    let kubeconfig = operator_kubeconfig(election.cluster).await;
    let other = election.spawn("slow-1", kubeconfig, DEFAULTS, &[]).await;
    proxy.set(Mode::Late(Duration::from_secs(5)));
    // Longer than it could go on without a renewal.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(25) {
        assert!(leader.leads(), "{}", leader.operator.log());
        assert!(!other.leads());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
