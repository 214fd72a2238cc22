//! Certificates that change every few seconds under load, with two replicas, which stay or are
//! killed and started anew: no call may fail for it.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::balancer::Balancer;
use crate::harness::{self, NAMESPACE, Operator, operator_kubeconfig, seed, try_wait};
use crate::load::{Failure, Load, call, dry_run, trust};
use crate::{VALIDATING, cluster, tell, webhooks};

/// How long it goes on.
const LENGTH: Duration = Duration::from_secs(150);
/// How long of it replicas are told to end; for the rest they are killed without a word.
const ORDERLY: Duration = Duration::from_mins(2);
/// Clients of the API server, half of them for each kind.
const CLIENTS: usize = 8;
/// Peers that make a new handshake for each call.
const PEERS: usize = 2;
/// Those learn of a changed bundle that much later than it changes: within the propagation time.
const LAG: Duration = Duration::from_secs(1);
/// Fewer calls are no load, however slow the machine: a client makes several in a second.
const CALLS: usize = 1_000;
/// The same for calls with a handshake of their own.
const HANDSHAKES: usize = 200;
/// How long it may take until the API server notices that a connection is broken.
const NOTICED: Duration = Duration::from_secs(2);

const FLAGS: [&str; 4] = [
    "--webhook-leaf-validity=10s",
    "--webhook-ca-validity=30s",
    "--webhook-ca-propagation=3s",
    "--shutdown-delay=2s",
];

/// What stands in the API server, looked at again and again.
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
            seen,
            _watching: watching,
        }
    }

    /// Starts a replica anew and waits until it is ready.
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

    /// Ends the load, which must have been one, tells the figures, and gives failures and changes of
    /// the authority.
    async fn end(self, what: &str) -> (Vec<Failure>, usize) {
        let (calls, failures) = self.load.end().await;
        let seen = self.seen.lock().unwrap();
        let changes = seen.authorities.len().saturating_sub(1);
        tell(&format!(
            "{what}: {calls} calls answered, {} failed; {} of them with a handshake of their own and a bundle {LAG:?} old; {} leaves seen; the authority changed {changes} times",
            failures.len(),
            seen.handshakes,
            seen.leaves.len(),
        ));
        assert!(calls >= CALLS, "{calls} calls are no load");
        let handshakes = seen.handshakes;
        assert!(handshakes >= HANDSHAKES, "{handshakes} handshakes only");
        (failures, changes)
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
    let found = try_wait(harness::PATIENCE, || balancer.is_ready(place).then_some(()));
    assert!(found.await.is_some(), "{}", operator.log());
}

/// Waits until the API server calls the webhooks of both kinds.
async fn until_served(client: &Client, namespace: &str) {
    let end = Instant::now() + harness::PATIENCE;
    for peer in 0..2 {
        let mut create = dry_run(client, namespace, peer);
        while let Err(error) = create(0).await {
            assert!(Instant::now() < end, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Looks at bundle and authority, again and again.
async fn watch(client: Client, seen: Arc<Mutex<Seen>>) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let (_, name) = VALIDATING.split_once('/').unwrap();
    loop {
        let read = Instant::now();
        let configuration = configurations.get(name).await;
        let secret = secrets.get(my_operator::certs::secret::NAME).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_changes_under_load_fails_no_call() {
    let cluster = cluster().await;
    let _webhooks = webhooks().await;
    let show = Show::start(cluster, "rotation").await;
    tokio::time::sleep(LENGTH).await;
    let (failures, changes) = show.end("two replicas").await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(changes >= 4, "{changes} changes only");
}

/// A control plane of its own, so that both tests can run at the same time: the names of the webhook
/// configurations are fixed.
async fn other_cluster() -> &'static Cluster {
    static OTHER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = OTHER
        .get_or_init(async || Cluster::start(Options::default()).await.unwrap())
        .await;
    harness::install(cluster);
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_killed_while_the_authority_changes_fail_no_call_that_they_can_help() {
    let mut random = Rng::with_seed(seed("the moments of the kills"));
    let mut show = Show::start(other_cluster().await, "killed-rotation").await;
    let start = Instant::now();
    let (mut ends, mut kills) = (0, Vec::new());
    // Told to end, as Kubernetes does: they go on answering until nobody sends them anything.
    while start.elapsed() < ORDERLY {
        tokio::time::sleep(Duration::from_millis(random.u64(0..2000))).await;
        let place = ends % 2;
        let status = show.replicas[place].process.stop(Duration::from_secs(10));
        let status = status.await;
        assert!(status.success(), "{}", show.replicas[place].log());
        show.restart(place).await;
        ends += 1;
    }
    let failures = show.load.failures();
    tell(&format!(
        "{ends} replicas told to end and started anew: {} calls answered, {} failed",
        show.load.answered(),
        failures.len()
    ));
    assert!(failures.is_empty(), "{failures:?}");
    // Killed: what is under way with one of them fails, and nothing else.
    while start.elapsed() < LENGTH {
        // Mostly so long that a failure may be that of no kill.
        tokio::time::sleep(Duration::from_millis(random.u64(0..5000))).await;
        let place = kills.len() % 2;
        kills.push(Instant::now());
        show.replicas[place].process.kill();
        show.replicas[place].process.wait().await;
        show.restart(place).await;
    }
    let what = format!(
        "two replicas, {ends} told to end and {} killed one at a time",
        kills.len()
    );
    let (failures, changes) = show.end(&what).await;
    let by_kill = |failure: &Failure| {
        let mut kills = kills.iter();
        kills.any(|kill| failure.began <= *kill + NOTICED && failure.ended >= *kill)
    };
    let others: Vec<_> = failures
        .iter()
        .filter(|failure| !by_kill(failure))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    if let Some(Failure { error, .. }) = failures.first() {
        tell(&format!(
            "{} in flight at a kill, such as: {error}",
            failures.len()
        ));
    }
    // A peer has one call under way at a time.
    let most = kills.len() * (CLIENTS + PEERS);
    assert!(failures.len() <= most, "{failures:?}");
    assert!(changes >= 4, "{changes} changes only");
}
