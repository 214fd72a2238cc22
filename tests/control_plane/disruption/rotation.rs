//! Certificates that change every few seconds under load, with two replicas, which keep running or are killed and
//! started again: no call may fail because of it.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use my_operator::manifests::Names;
use my_operator_cluster::Cluster;
use my_operator_rounds::{is_soak, lengths};
use tokio::task::JoinSet;

use crate::disruption::balancer::Balancer;
use crate::disruption::load::{Failure, Load, dry_run};
use crate::disruption::{VALIDATING, report, webhook_plane};
use crate::harness::peer::{call, trust};
use crate::harness::{self, NAMESPACE, Operator, TIMEOUT, operator_kubeconfig, seed, try_wait};

/// Clients of the API server, half of them for each kind.
const CLIENTS: usize = 8;
/// Peers that make a new handshake for each call.
const PEERS: usize = 2;
/// Those learn of a changed bundle that much later than it changes: within the propagation time.
const LAG: Duration = Duration::from_secs(1);
/// Fewer calls per second are no load, however slow the machine: ten peers call.
const CALLS: usize = 6;
/// The same for calls with a handshake of their own.
const HANDSHAKES: usize = 1;
/// So many replicas are killed at least.
const KILLS: usize = 2;
/// How long it may take until the API server notices that a connection is broken.
const NOTICED: Duration = Duration::from_secs(2);

/// With these periods a leaf changes every 5 s, and the authority every 20 s. A third of a leaf's life is left to act in,
/// which must be enough on a busy machine.
const FLAGS: [&str; 4] = [
    "--webhook-leaf-validity=10s",
    "--webhook-ca-validity=30s",
    "--webhook-ca-propagation=3s",
    "--shutdown-delay=2s",
];

/// What polling has found in the API server.
#[derive(Default)]
struct Seen {
    bundles: VecDeque<(Instant, Vec<u8>)>,
    authorities: HashSet<Vec<u8>>,
    leaves: HashSet<Vec<u8>>,
    handshakes: usize,
}

/// Two replicas behind one address, under load.
struct Show {
    cluster: &'static Cluster,
    kubeconfig: PathBuf,
    flags: Vec<String>,
    balancer: Balancer,
    replicas: Vec<Operator>,
    load: Load,
    began: Instant,
    seen: Arc<Mutex<Seen>>,
    _watching: JoinSet<()>,
}

impl Show {
    async fn start(cluster: &'static Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let client = harness::client(cluster).await;
        let kubeconfig = operator_kubeconfig(cluster).await;
        let balancer = Balancer::start(2).await;
        let flags = FLAGS.map(str::to_owned).into_iter();
        let flags: Vec<_> = flags.chain([format!("--namespace={namespace}")]).collect();
        let replicas: Vec<_> = (0..2)
            .map(|place| start(cluster, &kubeconfig, &flags, &balancer, place))
            .collect();
        for (place, replica) in replicas.iter().enumerate() {
            until_ready(&balancer, replica, place).await;
        }
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut watching = JoinSet::new();
        watching.spawn(watch(client.clone(), seen.clone()));
        until_served(&client, &namespace).await;
        tokio::time::sleep(LAG).await;

        let mut load = Load::start(&client, &namespace, CLIENTS / 2);
        for _ in 0..PEERS {
            let (webhook, seen) = (balancer.address.to_string(), seen.clone());
            load.repeat(move |_| {
                let (webhook, seen) = (webhook.clone(), seen.clone());
                async move {
                    let trusted = trust(&late_bundle(&seen));
                    let presented = call(&webhook, trusted).await?;
                    let mut seen = seen.lock().unwrap();
                    seen.handshakes += 1;
                    seen.leaves.insert(presented);
                    Ok(())
                }
            });
        }
        Self {
            cluster,
            kubeconfig,
            flags,
            balancer,
            replicas,
            load,
            began: Instant::now(),
            seen,
            _watching: watching,
        }
    }

    /// Starts a replica again and waits until it is ready.
    async fn restart(&mut self, place: usize) {
        let operator = start(
            self.cluster,
            &self.kubeconfig,
            &self.flags,
            &self.balancer,
            place,
        );
        until_ready(&self.balancer, &operator, place).await;
        self.replicas[place] = operator;
    }

    /// How often the authority has changed.
    fn changes(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.authorities.len().saturating_sub(1)
    }

    /// Waits until that much time is over and the authority has changed that often.
    async fn until(&self, length: Duration, least: usize) {
        while self.began.elapsed() < length || self.changes() < least {
            let limit = length + TIMEOUT;
            assert!(self.began.elapsed() < limit, "{} changes", self.changes());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends the load, which must have been one, prints the figures, and returns the failures.
    async fn end(self, what: &str) -> Vec<Failure> {
        let (changes, took) = (self.changes(), self.began.elapsed());
        let (calls, failures) = self.load.end().await;
        let seen = self.seen.lock().unwrap();
        report(&format!(
            "{what}: {calls} calls answered in {took:?}, {} failed; {} of them with a handshake of their own and a bundle {LAG:?} old; {} leaves seen; the authority changed {changes} times",
            failures.len(),
            seen.handshakes,
            seen.leaves.len(),
        ));
        let seconds = usize::try_from(took.as_secs()).unwrap();
        assert!(calls >= CALLS * seconds, "{calls} calls are no load");
        let handshakes = seen.handshakes;
        let enough = handshakes >= HANDSHAKES * seconds;
        assert!(enough, "{handshakes} handshakes only");
        failures
    }
}

fn start(
    cluster: &Cluster,
    kubeconfig: &std::path::Path,
    flags: &[String],
    balancer: &Balancer,
    place: usize,
) -> Operator {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let name = format!("replica-{place}");
    let operator = Operator::spawn_at(
        cluster,
        &name,
        kubeconfig,
        None,
        Some(&balancer.url()),
        &flags,
    );
    balancer.put(place, &operator);
    operator
}

async fn until_ready(balancer: &Balancer, operator: &Operator, place: usize) {
    operator.until_ready().await;
    let found = try_wait(harness::TIMEOUT, async || {
        balancer.is_ready(place).then_some(())
    });
    assert!(found.await.is_some(), "{}", operator.log());
}

/// Waits until the API server calls the webhooks of both kinds.
async fn until_served(client: &Client, namespace: &str) {
    let end = Instant::now() + harness::TIMEOUT;
    for peer in 0..2 {
        let mut create = dry_run(client, namespace, peer);
        while let Err(error) = create(0).await {
            assert!(Instant::now() < end, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Polls the bundle and the authority.
async fn watch(client: Client, seen: Arc<Mutex<Seen>>) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let (_, name) = VALIDATING.split_once('/').unwrap();
    loop {
        let read = Instant::now();
        let configuration = configurations.get(name).await;
        let secret = secrets.get(&Names::default().ca_secret()).await;
        {
            let mut seen = seen.lock().unwrap();
            let entry = configuration.ok().and_then(|c| c.webhooks?.pop());
            if let Some(bundle) = entry.and_then(|entry| entry.client_config.ca_bundle)
                && seen.bundles.back().map(|(_, last)| last) != Some(&bundle.0)
            {
                seen.bundles.push_back((read, bundle.0));
            }
            let authority = secret.ok().and_then(|s| s.data?.remove("ca.crt"));
            seen.authorities.extend(authority.map(|text| text.0));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The bundle as it was known some time ago.
fn late_bundle(seen: &Mutex<Seen>) -> Vec<u8> {
    let known = Instant::now().checked_sub(LAG).unwrap();
    let mut seen = seen.lock().unwrap();
    while seen
        .bundles
        .get(1)
        .is_some_and(|(since, _)| *since <= known)
    {
        seen.bundles.pop_front();
    }
    seen.bundles.front().unwrap().1.clone()
}

/// The next test begins so, for one change: only `make soak` runs this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_changes_under_load_fails_no_call() {
    if !is_soak() {
        return;
    }
    let plane = webhook_plane().await;
    let show = Show::start(*plane, "rotation").await;
    show.until(lengths::rotation(), lengths::rotation_changes())
        .await;
    let failures = show.end("two replicas").await;
    assert!(failures.is_empty(), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_killed_while_the_authority_changes_fail_only_calls_in_flight() {
    let mut random = Rng::with_seed(seed("the moments of the kills"));
    let plane = webhook_plane().await;
    let mut show = Show::start(*plane, "killed-rotation").await;
    let (mut ends, mut kills) = (0, Vec::new());
    // Both keep running.
    show.until(Duration::ZERO, 1).await;
    // Terminated as the kubelet does it: they go on answering until no client sends them anything.
    let orderly = show.began.elapsed() + lengths::rotation() / 2;
    while show.began.elapsed() < orderly {
        tokio::time::sleep(Duration::from_millis(random.u64(0..2000))).await;
        let at = ends % 2;
        let status = show.replicas[at].process.stop(Duration::from_secs(10));
        let status = status.await;
        assert!(status.success(), "{}", show.replicas[at].log());
        show.restart(at).await;
        ends += 1;
    }
    let failures = show.load.failures();
    report(&format!(
        "{ends} replicas terminated and started again: {} calls answered, {} failed",
        show.load.answered(),
        failures.len()
    ));
    assert!(failures.is_empty(), "{failures:?}");
    // Killed: what is in flight with one of them fails, and nothing else.
    while show.began.elapsed() < lengths::rotation() || kills.len() < KILLS {
        // Mostly so long that a failure is not excused by a kill.
        tokio::time::sleep(Duration::from_millis(random.u64(0..5000))).await;
        let at = kills.len() % 2;
        kills.push(Instant::now());
        show.replicas[at].process.kill();
        show.replicas[at].process.wait().await;
        show.restart(at).await;
    }
    show.until(lengths::rotation(), 1 + lengths::rotation_changes())
        .await;
    let what = format!(
        "two replicas, {ends} terminated and {} killed one at a time",
        kills.len()
    );
    let failures = show.end(&what).await;
    let others = not_by_a_kill(&failures, &kills);
    assert!(others.is_empty(), "{others:?}");
    if let Some(Failure { error, .. }) = failures.first() {
        report(&format!(
            "{} in flight at a kill, such as: {error}",
            failures.len()
        ));
    }
    // A peer has one call in flight at a time.
    let most = kills.len() * (CLIENTS + PEERS);
    assert!(failures.len() <= most, "{failures:?}");
}

/// The failures of calls that were not in flight at a kill, or soon after it.
fn not_by_a_kill<'a>(failures: &'a [Failure], kills: &[Instant]) -> Vec<&'a Failure> {
    let by_kill = |failure: &Failure| {
        let mut kills = kills.iter();
        kills.any(|kill| failure.began <= *kill + NOTICED && failure.ended >= *kill)
    };
    failures.iter().filter(|f| !by_kill(f)).collect()
}

#[test]
fn only_a_failure_at_a_kill_is_excused_by_it() {
    let start = Instant::now();
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    let kill = after(30_000);
    let call = |began, ended| Failure {
        began: after(began),
        ended: after(ended),
        error: String::new(),
    };
    let noticed = 30_000 + u64::try_from(NOTICED.as_millis()).unwrap();
    let in_flight = [
        call(29_000, 30_000),
        call(30_000, 31_000),
        call(noticed, 40_000),
    ];
    assert!(not_by_a_kill(&in_flight, &[kill]).is_empty());
    assert_eq!(not_by_a_kill(&in_flight, &[]).len(), 3);
    let others = [call(29_000, 29_999), call(noticed + 1, 40_000)];
    assert_eq!(not_by_a_kill(&others, &[kill]).len(), 2);
}
