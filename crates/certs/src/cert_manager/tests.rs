//! The manager against a simulated API server, in tokio's paused time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;

use chrono::TimeDelta;
use serde_json::{Value, json};
use simulated_apiserver::{Target, Verb};
use tokio::task::JoinHandle;

use super::*;
use crate::Named;
use crate::authority;
use crate::simulated::{Cluster, NAME, configuration};

const NAMESPACE: &str = "operator";
const SECRET: &str = "the-ca";
const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";
const KINDS: [&str; 2] = [MUTATING, VALIDATING];

fn settings(target: BundleTarget) -> Settings {
    Settings {
        manager: "program".to_owned(),
        namespace: NAMESPACE.to_owned(),
        secret: SECRET.to_owned(),
        create_namespace: true,
        hosts: vec!["localhost".to_owned()],
        periods: Periods::default(),
        target,
    }
}

fn patch() -> BundleTarget {
    BundleTarget::Patch(vec![
        Named::of(&configuration(MUTATING, &["a.x", "b.x"])),
        Named::of(&configuration(VALIDATING, &["c.x"])),
    ])
}

/// Another client applies both configurations, without any bundle.
fn put_configurations(cluster: &Cluster) {
    cluster.put(configuration(MUTATING, &["a.x", "b.x"]));
    cluster.put(configuration(VALIDATING, &["c.x"]));
}

/// The bundles in the configuration of that kind.
fn published(cluster: &Cluster, kind: &str) -> Vec<Vec<Anchor>> {
    bundles(&cluster.get(kind).unwrap())
}

/// The Secret with the CA.
fn secret(cluster: &Cluster) -> Value {
    let direct = cluster.server.direct();
    direct.get("secrets", NAMESPACE, SECRET).unwrap()
}

/// How many watches of that resource are open.
fn watches(cluster: &Cluster, resource: &str) -> usize {
    cluster.server.watches(Target::resource(resource)).count()
}

/// How many requests about Events the API server carried out.
fn events(cluster: &Cluster) -> usize {
    let requests = cluster.requests(0);
    let events = requests.iter().filter(|one| one.site.resource == "events");
    events.filter(|one| one.carried_out).count()
}

/// A running manager.
struct Running {
    state: watch::Receiver<State>,
    resolver: Arc<ServedCertificate>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// A manager to which no answer says the time.
    fn start(cluster: &Cluster, settings: Settings) -> Self {
        Self::start_with(cluster, cluster.client(), settings, ServerClock::default())
    }

    /// A manager that knows the time of the API server.
    fn start_dated(cluster: &Cluster, settings: Settings) -> Self {
        let server_clock = ServerClock::default();
        let client = cluster.client_noting(&server_clock);
        Self::start_with(cluster, client, settings, server_clock)
    }

    fn start_with(
        cluster: &Cluster,
        client: Client,
        settings: Settings,
        server_clock: ServerClock,
    ) -> Self {
        let clock = cluster.machine.source();
        let manager = CertManager::new(client, settings, clock, server_clock).unwrap();
        let (state, resolver) = (manager.state(), manager.resolver());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(manager.run(shutdown.clone()));
        Self {
            state,
            resolver,
            shutdown,
            task,
        }
    }

    async fn until(&mut self, condition: impl Fn(&State) -> bool) -> State {
        let wait = self.state.wait_for(|state| condition(state));
        let state = tokio::time::timeout(Duration::from_secs(20), wait).await;
        state.expect("in time").unwrap().clone()
    }

    async fn ready(&mut self) -> State {
        self.until(|state| state.leaf_ready && state.bundle_published)
            .await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// The bundle of every entry of a configuration.
fn bundles(configuration: &Value) -> Vec<Vec<Anchor>> {
    use base64::Engine as _;
    let entries = configuration["webhooks"].as_array().unwrap();
    let bundle = |entry: &Value| {
        let text = entry["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        let pem = base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap();
        Anchor::read_all(&pem)
    };
    entries.iter().map(bundle).collect()
}

async fn eventually(condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(condition(), "did not come true");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_makes_namespace_and_secret_signs_and_publishes_to_every_entry() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start(&cluster, settings(patch()));
    let state = manager.ready().await;
    assert_eq!(state.problem, None);
    assert!(state.ca_not_after.unwrap() - cluster.machine.now() > TimeDelta::days(364));
    assert!(state.leaf_not_after.unwrap() - cluster.machine.now() > TimeDelta::days(6));
    assert!(manager.resolver.get().is_some());
    let stored = secret(&cluster);
    assert_eq!(stored["type"], "Opaque");
    assert_eq!(
        stored["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "program"
    );
    let published = KINDS.map(|kind| published(&cluster, kind));
    let all: Vec<_> = published.iter().flatten().collect();
    assert_eq!(all.len(), 3);
    assert!(
        all.iter()
            .all(|bundle| bundle.len() == 1 && bundle == &all[0])
    );
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_replicas_share_one_ca_and_a_later_one_adopts_it() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut one = Running::start(&cluster, settings(patch()));
    let mut two = Running::start(&cluster, settings(patch()));
    let (first, second) = (one.ready().await, two.ready().await);
    let stored = secret(&cluster);
    let mut three = Running::start(&cluster, settings(patch()));
    let third = three.ready().await;
    assert_eq!(first.ca_not_after, second.ca_not_after);
    assert_eq!(first.ca_not_after, third.ca_not_after);
    assert_eq!(secret(&cluster), stored);
    let leaf = |manager: &Running| manager.resolver.get().unwrap().cert[0].clone();
    assert_ne!(leaf(&one), leaf(&two), "each has its own leaf");
}

#[tokio::test(start_paused = true)]
async fn an_emptied_bundle_is_written_again_within_seconds() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    let before = published(&cluster, MUTATING);
    eventually(|| watches(&cluster, "mutatingwebhookconfigurations") == 1).await;
    put_configurations(&cluster);
    // Sooner than the next look that would be taken anyway, which is a minute away.
    eventually(|| published(&cluster, MUTATING) == before).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_manager_writes_nothing() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cluster.requests(0).len();
    // A change that leaves the bundle alone.
    let labels = json!({"metadata": {"labels": {"touched": "yes"}}});
    let direct = cluster.server.direct();
    direct.patch(MUTATING, "", NAME, &labels).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let requests = cluster.requests(before);
    assert!(!requests.is_empty(), "it did look");
    assert_eq!(Cluster::writes(&requests), 0, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_configurations_are_reported_and_not_created() {
    let cluster = Cluster::new();
    cluster.put(configuration(MUTATING, &["a.x"]));
    let mut manager = Running::start(&cluster, settings(patch()));
    let state = manager
        .until(|state| state.leaf_ready && state.problem.is_some())
        .await;
    let problem = state.problem.unwrap();
    assert!(
        problem.contains("MutatingWebhookConfiguration ours has no entry b.x"),
        "{problem}"
    );
    assert!(
        problem.contains("ValidatingWebhookConfiguration ours does not exist"),
        "{problem}"
    );
    assert!(!state.bundle_published);
    assert!(cluster.get(VALIDATING).is_none());
    put_configurations(&cluster);
    assert_eq!(manager.ready().await.problem, None);
}

#[tokio::test(start_paused = true)]
async fn configurations_of_our_own_are_applied_with_the_bundle_in_them() {
    let cluster = Cluster::new();
    let own = BundleTarget::Own(vec![
        configuration(MUTATING, &["a.x", "b.x"]),
        configuration(VALIDATING, &["c.x"]),
    ]);
    let mut manager = Running::start(&cluster, settings(own));
    assert_eq!(manager.ready().await.problem, None);
    for kind in KINDS {
        let bundles = published(&cluster, kind);
        assert!(bundles.iter().all(|bundle| bundle.len() == 1));
    }
    eventually(|| watches(&cluster, "mutatingwebhookconfigurations") == 1).await;
    cluster.server.direct().delete(MUTATING, "", NAME).unwrap();
    eventually(|| cluster.get(MUTATING).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn api_server_errors_are_logged_once_and_retried() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    cluster.fail(500, "down", |_| true);
    let mut manager = Running::start(&cluster, settings(patch()));
    let state = manager.until(|state| state.problem.is_some()).await;
    assert!(!state.leaf_ready);
    cluster.heal();
    assert_eq!(manager.ready().await.problem, None);
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_named() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    cluster.server.direct().namespace(NAMESPACE);
    cluster.fail(403, "no", |site| {
        site.verb == Verb::Create && site.resource == "secrets"
    });
    let mut manager = Running::start(&cluster, settings(patch()));
    let state = manager.until(|state| state.problem.is_some()).await;
    let words = "not allowed to create secrets in namespace operator: no";
    assert_eq!(state.problem.unwrap(), words);
}

#[tokio::test(start_paused = true)]
async fn leaf_is_signed_even_if_the_bundle_cannot_be_read() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut one = Running::start(&cluster, settings(patch()));
    one.ready().await;
    cluster.fail(403, "no", |site| {
        site.resource.ends_with("webhookconfigurations")
    });
    let mut two = Running::start(&cluster, settings(patch()));
    let state = two
        .until(|state| state.leaf_ready && state.problem.is_some())
        .await;
    let problem = state.problem.unwrap();
    assert!(
        problem.starts_with("not allowed to get mutatingwebhookconfigurations"),
        "{problem}"
    );
}

#[tokio::test(start_paused = true)]
async fn garbage_in_the_secret_is_replaced_and_the_old_ca_stays_trusted() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    let old = published(&cluster, MUTATING)[0].clone();
    eventually(|| watches(&cluster, "secrets") == 1).await;
    let garbage = json!({"data": {"ca.key": "Z2FyYmFnZQ==", "theirs": "eA=="}});
    let direct = cluster.server.direct();
    let secrets = direct.patch("secrets", NAMESPACE, SECRET, &garbage);
    secrets.unwrap();
    eventually(|| published(&cluster, MUTATING)[0].len() == 2).await;
    let new = published(&cluster, MUTATING)[0].clone();
    assert!(old.iter().all(|anchor| new.contains(anchor)));
    assert_eq!(secret(&cluster)["data"]["theirs"], "eA==");
    assert_eq!(events(&cluster), 1);
}

#[tokio::test(start_paused = true)]
async fn through_several_authorities_every_served_leaf_is_trusted() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut quick = settings(patch());
    quick.periods = Periods {
        leaf_validity: TimeDelta::seconds(2),
        ca_validity: TimeDelta::seconds(9),
        propagation: TimeDelta::seconds(1),
    };
    let mut managers = [
        Running::start(&cluster, quick.clone()),
        Running::start(&cluster, quick),
    ];
    for manager in &mut managers {
        manager.ready().await;
    }
    let seen = Mutex::new(std::collections::BTreeSet::new());
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_secs(17) {
        for manager in &managers {
            let leaf = manager.resolver.get().unwrap().cert[0].clone();
            for kind in KINDS {
                for bundle in published(&cluster, kind) {
                    let signer = bundle.iter().find(|anchor| anchor.issued(&leaf));
                    let signer = signer.expect("a served leaf is trusted").fingerprint();
                    seen.lock().unwrap().insert(signer);
                }
            }
            assert!(manager.state.borrow().leaf_ready);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let signers = seen.lock().unwrap().len();
    assert!(signers >= 3, "{signers} CAs have signed");
}

#[tokio::test(start_paused = true)]
async fn an_expired_leaf_makes_unready_and_is_reported_in_one_event() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut quick = settings(patch());
    quick.periods.leaf_validity = TimeDelta::seconds(2);
    let mut manager = Running::start(&cluster, quick);
    manager.ready().await;
    cluster.fail(500, "down", |_| true);
    let state = manager.until(|state| !state.leaf_ready).await;
    assert!(state.leaf_not_after.unwrap() <= cluster.machine.now());
    cluster.heal();
    manager.ready().await;
    eventually(|| events(&cluster) == 1).await;
    let stored = secret(&cluster);
    let end = manager.state.borrow().leaf_not_after;
    manager.until(|state| state.leaf_not_after > end).await;
    assert_eq!((events(&cluster), secret(&cluster)), (1, stored));
    manager.stop().await;
}

/// Whether the certificate that a manager serves is valid at this time.
fn is_valid(manager: &Running, at: DateTime<Utc>) -> bool {
    let leaf = manager.resolver.get().unwrap().cert[0].clone();
    let (not_before, not_after) = authority::validity_of(&leaf).unwrap();
    not_before <= at && at < not_after
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_a_clock_that_was_ahead_is_replaced_once_the_clock_is_right() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    Running::start(&cluster, settings(patch())).ready().await;
    let days = 30 * 86_400;
    cluster.machine.step(TimeDelta::seconds(days));
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    cluster.machine.step(TimeDelta::seconds(-days));
    eventually(|| is_valid(&manager, cluster.machine.now())).await;
    manager.ready().await;
}

/// A CA that others made, and its key: with a name of its own.
fn foreign_authority() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_others_made_is_used_and_reported_once() {
    use base64::Engine as _;
    let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let (certificate, key) = foreign_authority();
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {"ca.crt": encode(certificate), "ca.key": encode(key)},
    });
    cluster.server.direct().namespace(NAMESPACE);
    cluster.server.direct().create(authority).unwrap();
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    assert_eq!(events(&cluster), 1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(events(&cluster), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_is_reported_and_replaces_no_ca() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start_dated(&cluster, settings(patch()));
    assert_eq!(manager.ready().await.problem, None);
    let stored = secret(&cluster);

    // Years ahead, by which the CA has expired: the API server's clock stays as it was.
    let ahead = 800 * 86_400;
    cluster.machine.step(TimeDelta::seconds(ahead));
    let words = "this machine's clock is 800 days ahead of the API server's";
    let state = manager
        .until(|state| {
            let is_reported = state.problem.as_ref().is_some_and(|p| p.contains(words));
            // The clock may be noticed at another moment than the certificate.
            is_reported && !state.leaf_ready
        })
        .await;
    assert!(state.leaf_fault.unwrap().starts_with("expired at"));
    let mut other = Running::start_dated(&cluster, settings(patch()));
    other.until(|state| state.problem.is_some()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(secret(&cluster), stored);

    cluster.machine.step(TimeDelta::seconds(-ahead));
    for manager in [&mut manager, &mut other] {
        let state = manager
            .until(|state| state.leaf_ready && state.problem.is_none())
            .await;
        assert!(state.bundle_published);
    }
    assert_eq!(secret(&cluster), stored);
}

#[tokio::test(start_paused = true)]
async fn a_ca_of_a_clock_that_was_ahead_is_replaced_once_the_clock_is_right() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let ahead = 30 * 86_400;
    cluster.machine.step(TimeDelta::seconds(ahead));
    let mut manager = Running::start(&cluster, settings(patch()));
    manager.ready().await;
    cluster.machine.step(TimeDelta::seconds(-ahead));
    let right = || {
        let now = cluster.machine.now();
        let bundles = KINDS.map(|kind| published(&cluster, kind));
        let valid = |anchor: &Anchor| anchor.not_before() <= now && anchor.not_after() > now;
        bundles
            .iter()
            .flatten()
            .all(|bundle| bundle.iter().any(valid))
    };
    eventually(|| right() && is_valid(&manager, cluster.machine.now())).await;
    manager.ready().await;
}

#[tokio::test(start_paused = true)]
async fn drift_of_the_configurations_is_noted_and_neither_repaired_nor_unready() {
    let cluster = Cluster::new();
    put_configurations(&cluster);
    let mut manager = Running::start(&cluster, settings(patch()));
    let state = manager.ready().await;
    assert_eq!(state.note, None);
    assert!(state.drift.values().all(|count| *count == 0));
    let direct = cluster.server.direct();
    let ignore = |object: &mut Value| object["webhooks"][1]["failurePolicy"] = "Ignore".into();
    direct.edit(MUTATING, "", NAME, ignore).unwrap();
    let state = manager.until(|state| state.note.is_some()).await;
    assert!(state.leaf_ready && state.bundle_published);
    assert_eq!((state.drift["failurePolicy"], state.problem), (1, None));
    let note = state.note.unwrap();
    assert!(
        note.contains(r#"failurePolicy of b.x is "Ignore""#),
        "{note}"
    );
    tokio::time::sleep(Duration::from_secs(180)).await;
    let object = cluster.get(MUTATING).unwrap();
    assert_eq!(object["webhooks"][1]["failurePolicy"], "Ignore");
}
