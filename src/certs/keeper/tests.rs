//! The keeper against a small API server, in tokio's paused time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;

use chrono::TimeDelta;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::certs::Named;
use crate::certs::authority::{self, Anchor};
use crate::certs::fake::{Fake, configuration, configuration_path, secret_path};

const NAMESPACE: &str = "operator";
const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";

fn settings(target: BundleTarget) -> Settings {
    Settings {
        namespace: NAMESPACE.to_owned(),
        create_namespace: true,
        hosts: vec!["localhost".to_owned()],
        periods: Periods::default(),
        target,
    }
}

fn patch() -> BundleTarget {
    let named = |entries: &[&str]| Named {
        name: "ours".to_owned(),
        entries: configuration("", "", entries)["webhooks"]
            .as_array()
            .unwrap()
            .clone(),
    };
    BundleTarget::Patch {
        mutating: named(&["a.x", "b.x"]),
        validating: named(&["c.x"]),
    }
}

fn paths() -> [String; 2] {
    [
        configuration_path(MUTATING, "ours"),
        configuration_path(VALIDATING, "ours"),
    ]
}

fn put_configurations(fake: &Fake) {
    let [mutating, validating] = paths();
    fake.put(&mutating, configuration(MUTATING, "ours", &["a.x", "b.x"]));
    fake.put(&validating, configuration(VALIDATING, "ours", &["c.x"]));
}

/// How often something was watched whose path ends so.
fn watches(fake: &Fake, end: &str) -> usize {
    let log = fake.log.lock().unwrap();
    let watches = log.iter().filter(|line| line.starts_with("WATCH"));
    watches.filter(|line| line.ends_with(end)).count()
}

/// A running keeper.
struct Running {
    state: watch::Receiver<State>,
    resolver: Arc<ServedCertificate>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(fake: &Fake, client: Client, settings: Settings) -> Self {
        let server_clock = fake.server_clock.clone();
        let keeper = Keeper::new(client, settings, fake.machine.clock(), server_clock).unwrap();
        let (state, resolver) = (keeper.state(), keeper.resolver());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(keeper.run(shutdown.clone()));
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
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    let state = keeper.ready().await;
    assert_eq!(state.problem, None);
    assert!(state.ca_not_after.unwrap() - fake.machine.now() > TimeDelta::days(364));
    assert!(state.leaf_not_after.unwrap() - fake.machine.now() > TimeDelta::days(6));
    assert!(keeper.resolver.get().is_some());
    let secret = fake.get(&secret_path(NAMESPACE)).unwrap();
    assert_eq!(secret["type"], "Opaque");
    assert_eq!(
        secret["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "my-operator"
    );
    let all: Vec<_> = paths()
        .iter()
        .flat_map(|path| bundles(&fake.get(path).unwrap()))
        .collect();
    assert_eq!(all.len(), 3);
    assert!(
        all.iter()
            .all(|bundle| bundle.len() == 1 && *bundle == all[0])
    );
    keeper.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_replicas_share_one_ca_and_a_later_one_adopts_it() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut one = Running::start(&fake, client.clone(), settings(patch()));
    let mut two = Running::start(&fake, client.clone(), settings(patch()));
    let (first, second) = (one.ready().await, two.ready().await);
    let secret = fake.get(&secret_path(NAMESPACE)).unwrap();
    let mut three = Running::start(&fake, client, settings(patch()));
    let third = three.ready().await;
    assert_eq!(first.ca_not_after, second.ca_not_after);
    assert_eq!(first.ca_not_after, third.ca_not_after);
    assert_eq!(fake.get(&secret_path(NAMESPACE)).unwrap(), secret);
    let leaf = |keeper: &Running| keeper.resolver.get().unwrap().cert[0].clone();
    assert_ne!(leaf(&one), leaf(&two), "each has its own leaf");
}

#[tokio::test(start_paused = true)]
async fn an_emptied_bundle_is_written_again_within_seconds() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    let before = bundles(&fake.get(&paths()[0]).unwrap());
    eventually(|| watches(&fake, "configurations") >= 2).await;
    put_configurations(&fake);
    // Sooner than the next look that would be taken anyway, which is a minute away.
    eventually(|| bundles(&fake.get(&paths()[0]).unwrap()) == before).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_keeper_writes_nothing() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    fake.log.lock().unwrap().clear();
    put_labelled(&fake);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let log = fake.log.lock().unwrap().clone();
    assert!(!log.is_empty(), "it did look");
    let reads = ["GET", "WATCH"];
    let only_reads = log
        .iter()
        .all(|line| reads.iter().any(|read| line.starts_with(read)));
    assert!(only_reads, "{log:?}");
}

/// A change that leaves the bundle alone.
fn put_labelled(fake: &Fake) {
    let mut object = fake.get(&paths()[0]).unwrap();
    object["metadata"]["labels"] = serde_json::json!({"touched": "yes"});
    fake.put(&paths()[0], object);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_reported_and_not_created() {
    let (fake, client) = Fake::start();
    let [mutating, validating] = paths();
    fake.put(&mutating, configuration(MUTATING, "ours", &["a.x"]));
    let mut keeper = Running::start(&fake, client, settings(patch()));
    let state = keeper
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
    assert!(fake.get(&validating).is_none());
    put_configurations(&fake);
    assert_eq!(keeper.ready().await.problem, None);
}

#[tokio::test(start_paused = true)]
async fn configurations_of_our_own_are_applied_with_the_bundle_in_them() {
    let (fake, client) = Fake::start();
    let [mutating, validating] = paths();
    let own = BundleTarget::Own(vec![
        configuration(MUTATING, "ours", &["a.x", "b.x"]),
        configuration(VALIDATING, "ours", &["c.x"]),
    ]);
    let mut keeper = Running::start(&fake, client, settings(own));
    assert_eq!(keeper.ready().await.problem, None);
    for path in [&mutating, &validating] {
        assert!(
            bundles(&fake.get(path).unwrap())
                .iter()
                .all(|bundle| bundle.len() == 1)
        );
    }
    fake.delete(&mutating);
    // Any event makes it look.
    fake.put(&validating, configuration(VALIDATING, "ours", &["c.x"]));
    eventually(|| fake.get(&mutating).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn trouble_with_the_api_server_is_told_once_and_waited_out() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    fake.fail(|_, _| Some((500, "down")));
    let mut keeper = Running::start(&fake, client, settings(patch()));
    let state = keeper.until(|state| state.problem.is_some()).await;
    assert!(!state.leaf_ready);
    fake.heal();
    assert_eq!(keeper.ready().await.problem, None);
    keeper.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    fake.put(
        &format!("/api/v1/namespaces/{NAMESPACE}"),
        serde_json::json!({"metadata": {}}),
    );
    fake.fail(|method, path| {
        (method == axum::http::Method::POST && path.contains("secrets")).then_some((403, "no"))
    });
    let mut keeper = Running::start(&fake, client, settings(patch()));
    let state = keeper.until(|state| state.problem.is_some()).await;
    let words = "not allowed to create secrets in namespace operator: no";
    assert_eq!(state.problem.unwrap(), words);
}

#[tokio::test(start_paused = true)]
async fn where_the_bundle_cannot_be_read_a_leaf_is_signed_all_the_same() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut one = Running::start(&fake, client.clone(), settings(patch()));
    one.ready().await;
    fake.fail(|_, path| {
        path.contains("webhookconfigurations")
            .then_some((403, "no"))
    });
    let mut two = Running::start(&fake, client, settings(patch()));
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
async fn garbage_in_the_secret_is_replaced_beside_the_old_certificate() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    let old = bundles(&fake.get(&paths()[0]).unwrap())[0].clone();
    let mut secret = fake.get(&secret_path(NAMESPACE)).unwrap();
    secret["data"]["ca.key"] = "Z2FyYmFnZQ==".into();
    secret["data"]["theirs"] = "eA==".into();
    eventually(|| watches(&fake, "/secrets") >= 1).await;
    fake.put(&secret_path(NAMESPACE), secret);
    eventually(|| bundles(&fake.get(&paths()[0]).unwrap())[0].len() == 2).await;
    let new = bundles(&fake.get(&paths()[0]).unwrap())[0].clone();
    assert!(old.iter().all(|anchor| new.contains(anchor)));
    assert_eq!(
        fake.get(&secret_path(NAMESPACE)).unwrap()["data"]["theirs"],
        "eA=="
    );
    let log = fake.log.lock().unwrap().clone();
    assert!(
        log.iter()
            .any(|line| line.starts_with("POST") && line.contains("events")),
        "{log:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn through_several_authorities_every_served_leaf_is_trusted() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut quick = settings(patch());
    quick.periods = Periods {
        leaf_validity: TimeDelta::seconds(2),
        ca_validity: TimeDelta::seconds(9),
        propagation: TimeDelta::seconds(1),
    };
    let mut keepers = [
        Running::start(&fake, client.clone(), quick.clone()),
        Running::start(&fake, client, quick),
    ];
    for keeper in &mut keepers {
        keeper.ready().await;
    }
    let seen = Mutex::new(std::collections::BTreeSet::new());
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_secs(17) {
        for keeper in &keepers {
            let leaf = keeper.resolver.get().unwrap().cert[0].clone();
            for path in paths() {
                for bundle in bundles(&fake.get(&path).unwrap()) {
                    let signer = bundle.iter().find(|anchor| anchor.issued(&leaf));
                    let signer = signer.expect("a served leaf is trusted").fingerprint();
                    seen.lock().unwrap().insert(signer);
                }
            }
            assert!(keeper.state.borrow().leaf_ready);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let signers = seen.lock().unwrap().len();
    assert!(signers >= 3, "{signers} CAs have signed");
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_expires_makes_unready_and_is_told_of_once_when_that_is_possible() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut quick = settings(patch());
    quick.periods.leaf_validity = TimeDelta::seconds(2);
    let mut keeper = Running::start(&fake, client, quick);
    keeper.ready().await;
    fake.fail(|_, _| Some((500, "down")));
    let state = keeper.until(|state| !state.leaf_ready).await;
    assert!(state.leaf_not_after.unwrap() <= fake.machine.now());
    fake.heal();
    keeper.ready().await;
    let told = || {
        let log = fake.log.lock().unwrap();
        let posts = log.iter().filter(|line| line.starts_with("POST"));
        posts.filter(|line| line.ends_with("/events")).count()
    };
    // Failed attempts are counted, too; but once one succeeded there are no more.
    eventually(|| told() >= 1).await;
    let secret = fake.get(&secret_path(NAMESPACE));
    let after = told();
    let end = keeper.state.borrow().leaf_not_after;
    keeper.until(|state| state.leaf_not_after > end).await;
    assert_eq!((told(), fake.get(&secret_path(NAMESPACE))), (after, secret));
    keeper.stop().await;
}

/// Whether the certificate that a keeper serves is valid at this time.
fn is_valid(keeper: &Running, at: DateTime<Utc>) -> bool {
    let leaf = keeper.resolver.get().unwrap().cert[0].clone();
    let (not_before, not_after) = authority::validity_of(&leaf).unwrap();
    not_before <= at && at < not_after
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_a_clock_that_was_ahead_is_replaced_once_the_clock_is_right() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    Running::start(&fake, client.clone(), settings(patch()))
        .ready()
        .await;
    let days = 30 * 86_400;
    fake.machine.set(days);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    fake.machine.set(-days);
    eventually(|| is_valid(&keeper, fake.machine.now())).await;
    keeper.ready().await;
}

/// A CA that others made, and its key: with a name of its own.
fn foreign_authority() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// How many Events were published.
fn events(fake: &Fake) -> usize {
    let log = fake.log.lock().unwrap();
    let posts = log.iter().filter(|line| line.starts_with("POST"));
    posts.filter(|line| line.ends_with("/events")).count()
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_others_made_is_used_and_reported_once() {
    use base64::Engine as _;
    let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let (certificate, key) = foreign_authority();
    let secret = serde_json::json!({
        "metadata": {"name": "my-operator-webhook-ca", "namespace": NAMESPACE},
        "data": {"ca.crt": encode(certificate), "ca.key": encode(key)},
    });
    fake.put(&secret_path(NAMESPACE), secret);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    assert_eq!(events(&fake), 1);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(events(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_is_reported_and_replaces_no_ca() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    fake.say_time(0);
    let mut keeper = Running::start(&fake, client.clone(), settings(patch()));
    assert_eq!(keeper.ready().await.problem, None);
    let secret = fake.get(&secret_path(NAMESPACE)).unwrap();

    // Years ahead, by which the CA has expired: the API server's clock stays as it was.
    let ahead = 800 * 86_400;
    fake.machine.set(ahead);
    fake.say_time(-ahead);
    let words = "this machine's clock is 800 days ahead of the API server's";
    let state = keeper
        .until(|state| state.problem.as_ref().is_some_and(|p| p.contains(words)))
        .await;
    assert!(!state.leaf_ready);
    assert!(state.leaf_fault.unwrap().starts_with("expired at"));
    let mut other = Running::start(&fake, client, settings(patch()));
    other.until(|state| state.problem.is_some()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.get(&secret_path(NAMESPACE)).unwrap(), secret);

    fake.machine.set(-ahead);
    fake.say_time(0);
    for keeper in [&mut keeper, &mut other] {
        let state = keeper
            .until(|state| state.leaf_ready && state.problem.is_none())
            .await;
        assert!(state.bundle_published);
    }
    assert_eq!(fake.get(&secret_path(NAMESPACE)).unwrap(), secret);
}

#[tokio::test(start_paused = true)]
async fn a_ca_of_a_clock_that_was_ahead_is_replaced_once_the_clock_is_right() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let ahead = 30 * 86_400;
    fake.machine.set(ahead);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    keeper.ready().await;
    fake.machine.set(-ahead);
    let right = |fake: &Fake| {
        let now = fake.machine.now();
        let bundles = paths().map(|path| bundles(&fake.get(&path).unwrap()));
        let valid = |anchor: &Anchor| anchor.not_before() <= now && anchor.not_after() > now;
        bundles
            .iter()
            .flatten()
            .all(|bundle| bundle.iter().any(valid))
    };
    eventually(|| right(&fake) && is_valid(&keeper, fake.machine.now())).await;
    keeper.ready().await;
}

#[tokio::test(start_paused = true)]
async fn drift_of_the_configurations_is_noted_and_neither_repaired_nor_unready() {
    let (fake, client) = Fake::start();
    put_configurations(&fake);
    let mut keeper = Running::start(&fake, client, settings(patch()));
    let state = keeper.ready().await;
    assert_eq!(state.note, None);
    assert!(state.drift.values().all(|count| *count == 0));
    let mut object = fake.get(&paths()[0]).unwrap();
    object["webhooks"][1]["failurePolicy"] = "Ignore".into();
    fake.put(&paths()[0], object);
    let state = keeper.until(|state| state.note.is_some()).await;
    assert!(state.leaf_ready && state.bundle_published);
    assert_eq!((state.drift["failurePolicy"], state.problem), (1, None));
    let note = state.note.unwrap();
    assert!(
        note.contains(r#"failurePolicy of b.x is "Ignore""#),
        "{note}"
    );
    tokio::time::sleep(Duration::from_mins(3)).await;
    let object = fake.get(&paths()[0]).unwrap();
    assert_eq!(object["webhooks"][1]["failurePolicy"], "Ignore");
}
