//! The real controller on a simulated API server with kubelets, while calls fail.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Resource as _;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use simulated_apiserver::{
    ChangeKind, Decision, Kubelet, KubeletOptions, Options, Request, Resource, Review, Server,
    Site, Status, Target, Verb,
};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::crd::{MyDaemonSet, MyDaemonSetStatus};
use crate::names::FREEZE_ANNOTATION;
use crate::why::{Seen, why};

const OPERATOR: &str = "operator";
/// Longer than any pause after failures, and than every doubt about a call.
const SETTLED: Duration = Duration::from_mins(10);

/// A cluster, and the controller in it.
struct World {
    server: Server,
    kubelet: Kubelet,
    /// Stopped when the world is dropped.
    operator: JoinSet<()>,
    stop: CancellationToken,
    registry: Arc<Mutex<Registry>>,
}

impl World {
    /// A world with that many nodes.
    fn new(nodes: usize, options: &Options) -> Self {
        let server = Server::new(Options {
            namespaces: vec!["ns".to_owned()],
            ..options.clone()
        });
        server.register(Resource::of::<MyDaemonSet>());
        let kubelet = server.kubelet(KubeletOptions::default());
        for node in 0..nodes {
            kubelet.add_node(&format!("n{node}"));
        }
        let mut world = Self {
            server,
            kubelet,
            operator: JoinSet::new(),
            stop: CancellationToken::new(),
            registry: Arc::default(),
        };
        world.restart();
        world
    }

    /// Another process reconciles, with caches and metrics of its own.
    fn restart(&mut self) {
        let (client, clock) = (self.server.client(OPERATOR), self.server.clock().source());
        let (context, publisher) = Context::new(client, clock, MANAGER);
        self.operator = JoinSet::new();
        self.registry = context.registry.clone();
        self.stop = context.stop.clone();
        self.operator.spawn(publisher.run(context.stop.clone()));
        self.operator
            .spawn(async { run(context, TimeDelta::seconds(60)).await.unwrap() });
    }

    /// Stops the controller. Returns after how many seconds another may lead.
    async fn stop(&mut self) -> u64 {
        let start = self.server.clock().elapsed();
        self.stop.cancel();
        while self.operator.join_next().await.is_some() {}
        self.server.clock().elapsed().abs_diff(start).as_secs()
    }

    /// Why roll-outs stand, by the metrics.
    fn paused(&self) -> Vec<String> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry.lock()).unwrap();
        let name = "my_operator_mydaemonset_paused{namespace=\"ns\",name=\"d\",reason=\"";
        let series = page.lines().filter_map(|line| line.strip_prefix(name));
        series.map(|rest| rest.replace("\"} ", "=")).collect()
    }

    /// The same, with a set that has an available pod on each.
    async fn running(nodes: usize, strategy: &Value) -> Self {
        Self::running_with(nodes, strategy, &Options::default()).await
    }

    /// The same, and the garbage collector is off.
    async fn without_collector(nodes: usize) -> Self {
        let options = Options {
            collector: None,
            ..Options::default()
        };
        Self::running_with(nodes, &json!({}), &options).await
    }

    async fn running_with(nodes: usize, strategy: &Value, options: &Options) -> Self {
        let world = Self::new(nodes, options);
        world.create(strategy);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.ready_of("a:1"), nodes);
        world
    }

    fn create(&self, strategy: &Value) {
        let object = json!({
            "apiVersion": MyDaemonSet::api_version(&()), "kind": "MyDaemonSet",
            "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"image": "a:1", "updateStrategy": {"rollingUpdate": strategy}},
        });
        self.server.direct().create(object).unwrap();
    }

    fn set_image(&self, image: &str) {
        let change = json!({"spec": {"image": image}});
        let sets = self.server.direct();
        sets.patch("mydaemonsets", "ns", "d", &change).unwrap();
    }

    /// Sets the annotation that freezes the namespace, or removes it.
    fn freeze_namespace(&self, value: &Value) {
        let name = crate::names::FREEZE_ANNOTATION;
        let change = json!({"metadata": {"annotations": {name: value}}});
        let namespaces = self.server.direct();
        namespaces.patch("namespaces", "", "ns", &change).unwrap();
    }

    fn pause(&self) {
        let paused = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}});
        let sets = self.server.direct();
        sets.patch("mydaemonsets", "ns", "d", &paused).unwrap();
    }

    /// How many pods were made so far. Dry runs make none.
    fn made(&self) -> usize {
        let versions = self.server.history().versions;
        let made = versions
            .iter()
            .filter(|v| v.resource == "pods" && v.kind == ChangeKind::Added);
        made.count()
    }

    /// Rolls out to the end while the watch of pods lags by that many seconds. Returns how many
    /// nodes were unavailable at a time at most, from a version on.
    async fn roll_out(&self, lag: u64) -> impl Fn(u64) -> usize + '_ {
        let pods = self.server.watches(Target::resource("pods"));
        pods.delay(Duration::from_secs(lag));
        self.set_image("a:2");
        let start = self.server.clock().elapsed();
        while self.ready_of("a:2") < 6 && self.server.clock().elapsed() < start + SETTLED {
            sleep(Duration::from_secs(5)).await;
        }
        // By then every late event has arrived.
        sleep(Duration::from_secs(70)).await;
        |from| self.most(from, |pods| pods.iter().all(|(is_serving, _)| !is_serving))
    }

    /// How many pods with that image are Ready and not being deleted.
    fn ready_of(&self, image: &str) -> usize {
        let pods = self.server.direct().list("pods", "ns").into_iter();
        pods.filter(|pod| serves(pod) && pod["spec"]["containers"][0]["image"] == image)
            .count()
    }

    /// Decides the outcome of the calls about pods, in their order.
    fn pod_calls(&self, verb: Verb, fault: impl Fn(usize) -> Decision + Send + Sync + 'static) {
        let calls = AtomicUsize::new(0);
        self.server.on(move |site: &Site| {
            if (site.user.as_str(), site.verb, site.resource.as_str()) == (OPERATOR, verb, "pods") {
                fault(calls.fetch_add(1, Ordering::Relaxed))
            } else {
                Decision::Forward
            }
        });
    }

    /// The first deletion of a pod takes so long.
    fn delay_first_deletion(&self, by: Duration) {
        self.pod_calls(Verb::Delete, move |nth| match nth {
            0 => Decision::Delayed(by),
            _ => Decision::Forward,
        });
    }

    /// Decides the outcome of every write of a revision.
    fn revision_writes(&self, fault: fn() -> Decision) {
        self.server.on(move |site: &Site| {
            let is_write = matches!(site.verb, Verb::Create | Verb::Patch);
            let is_it = site.resource == "controllerrevisions" && site.user == OPERATOR;
            if is_it && is_write {
                fault()
            } else {
                Decision::Forward
            }
        });
    }

    /// How many calls about pods there were, by second.
    fn calls_by_second(&self, verb: Verb) -> BTreeMap<u64, usize> {
        let mut calls = BTreeMap::new();
        for request in self.server.history().requests {
            let site = &request.site;
            if (site.user.as_str(), site.verb, site.resource.as_str()) == (OPERATOR, verb, "pods") {
                *calls.entry(request.elapsed.as_secs()).or_default() += 1;
            }
        }
        calls
    }

    /// The maximum number of nodes for which that was true at a time, from that version on: of the
    /// node's pods, whether each serves and whether each stays.
    fn most(&self, from: u64, counts: impl Fn(&[(bool, bool)]) -> bool) -> usize {
        let mut pods: BTreeMap<String, Value> = BTreeMap::new();
        let nodes = self.server.direct().list("nodes", "");
        let mut most = 0;
        for version in self.server.history().versions {
            if version.resource != "pods" {
                continue;
            }
            match version.kind {
                ChangeKind::Deleted => pods.remove(&version.name),
                _ => pods.insert(version.name.clone(), version.object().clone()),
            };
            if version.version <= from {
                continue;
            }
            let is_counted = |node: &Value| {
                let on_it = pods
                    .values()
                    .filter(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"]);
                let on_it: Vec<_> = on_it.map(|pod| (serves(pod), stays(pod))).collect();
                counts(&on_it)
            };
            most = most.max(nodes.iter().filter(|node| is_counted(node)).count());
        }
        most
    }

    fn condition(&self, type_: &str) -> Option<(String, String, String)> {
        let object = self.server.direct().get("mydaemonsets", "ns", "d")?;
        let conditions = object["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|c| c["type"] == type_)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// Status and reason of `Degraded`.
    fn degraded(&self) -> (String, String) {
        let (status, reason, _) = self.condition("Degraded").unwrap_or_default();
        (status, reason)
    }

    /// Every reason that `Degraded` had while it was True.
    fn troubles(&self) -> BTreeSet<String> {
        let versions = self.server.history().versions;
        let sets = versions.iter().filter(|v| v.resource == "mydaemonsets");
        let conditions = sets.filter_map(|v| v.object()["status"]["conditions"].as_array());
        let degraded = conditions
            .flatten()
            .filter(|c| c["type"] == "Degraded" && c["status"] == "True");
        degraded
            .filter_map(|c| c["reason"].as_str().map(str::to_owned))
            .collect()
    }

    /// The reasons of all Events.
    fn events(&self) -> BTreeSet<String> {
        let events = self.server.direct().list("events.events.k8s.io", "ns");
        let reasons = events.iter().filter_map(|event| event["reason"].as_str());
        reasons.map(str::to_owned).collect()
    }

    /// Names of all pods.
    fn pods(&self) -> BTreeSet<String> {
        let pods = self.server.direct().list("pods", "ns");
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Changes the readiness of pods for so many seconds, five times a second.
    async fn flap(&self, seconds: usize) {
        for flap in 0..seconds * 5 {
            let names = self.pods();
            let is_ready = if (flap / names.len()).is_multiple_of(2) {
                "False"
            } else {
                "True"
            };
            let name = names.iter().nth(flap % names.len()).unwrap();
            let pods = self.server.direct();
            let edited = pods.edit_status("pods", "ns", name, |pod| {
                for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["type"] == "Ready" {
                        condition["status"] = json!(is_ready);
                    }
                }
            });
            edited.unwrap();
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// The number of calls in all.
    fn calls(&self, verb: Verb) -> usize {
        self.calls_by_second(verb).values().sum()
    }

    /// Rejects these writes of the operator.
    fn reject(&self, verb: Verb, resource: &'static str, status: Status) {
        self.server.admit(move |review: &mut Review<'_>| {
            let is_it = (review.user, review.verb, review.resource) == (OPERATOR, verb, resource);
            if is_it { Err(status.clone()) } else { Ok(()) }
        });
    }

    fn reject_nothing(&self) {
        self.server.admit(|_: &mut Review<'_>| Ok(()));
    }
}

/// The API server's answer if a webhook with `failurePolicy: Fail` does not answer.
fn no_webhook() -> Status {
    Status::internal_error(
        "failed calling webhook \"w.example.com\": failed to call webhook: connection refused",
    )
}

fn stays(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

fn serves(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
    stays(pod) && conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
}

/// The outcome of a call without a definite answer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Failed(u16),
    FailedThoughDone(u16),
    Lost,
    Unanswered,
    /// The connection breaks, and the call is carried out after that many seconds.
    LostThenLate(u64),
    /// There is no answer, and the call is carried out after that many seconds.
    Late(u64),
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::Failed(500),
        Self::Failed(504),
        Self::FailedThoughDone(500),
        Self::FailedThoughDone(503),
        Self::FailedThoughDone(504),
        Self::Lost,
        Self::Unanswered,
        Self::LostThenLate(5),
        Self::LostThenLate(55),
        Self::Late(20),
        Self::Late(58),
    ];

    fn decision(self) -> Decision {
        let failed = |code| Status::new(code, "Timeout", "etcdserver: request timed out");
        match self {
            Self::Failed(code) => Decision::Answer(failed(code)),
            Self::FailedThoughDone(code) => Decision::FailedThoughDone(failed(code)),
            Self::Lost => Decision::Lost,
            Self::Unanswered => Decision::Unanswered,
            Self::LostThenLate(after) => Decision::LostThenLate(Duration::from_secs(after)),
            Self::Late(after) => Decision::Late(Duration::from_secs(after)),
        }
    }
}

/// Every fault at that many calls in a row, while the watch of pods lags by that many seconds.
fn faults() -> impl Iterator<Item = (Fault, usize, u64)> {
    let counts = [1, 4].into_iter();
    let cases = counts.flat_map(|many| [0, 20].map(|lag| (many, lag)));
    cases.flat_map(|(many, lag)| Fault::ALL.map(|fault| (fault, many, lag)))
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_definite_answer_takes_no_other_node_down() {
    for (fault, many, lag) in faults() {
        let world = World::running(6, &json!({"maxUnavailable": 1})).await;
        world.pod_calls(Verb::Delete, move |nth| {
            if nth < many {
                fault.decision()
            } else {
                Decision::Forward
            }
        });
        let (from, unavailable) = (world.server.version(), world.roll_out(lag).await);
        assert_eq!(unavailable(from), 1, "{fault:?} {many} {lag}");
        assert_eq!(world.ready_of("a:2"), 6, "{fault:?} {many} {lag}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_done_long_after_its_answer_takes_no_other_node_down() {
    for (code, after) in [(500, 5), (504, 5), (504, 30), (504, 58)] {
        let world = World::running(6, &json!({"maxUnavailable": 1})).await;
        let (server, calls) = (world.server.clone(), AtomicUsize::new(0));
        world.server.on(move |site: &Site| {
            let is_it = (site.verb, site.resource.as_str()) == (Verb::Delete, "pods");
            if !is_it || calls.fetch_add(1, Ordering::Relaxed) >= 4 {
                return Decision::Forward;
            }
            let (server, name) = (server.clone(), site.name.clone());
            tokio::spawn(async move {
                let uid = || {
                    let pod = server.direct().get("pods", "ns", &name)?;
                    Some(pod["metadata"]["uid"].clone())
                };
                let before = uid();
                sleep(Duration::from_secs(after)).await;
                if uid() == before {
                    server.direct().delete("pods", "ns", &name).unwrap();
                }
            });
            Fault::Failed(code).decision()
        });
        let (from, unavailable) = (world.server.version(), world.roll_out(0).await);
        assert_eq!(unavailable(from), 1, "{code} {after}");
        assert_eq!(world.ready_of("a:2"), 6, "{code} {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_surge_without_a_definite_answer_begins_no_other() {
    for (fault, many, lag) in faults() {
        let world = World::running(6, &json!({"maxUnavailable": 0, "maxSurge": 1})).await;
        world.pod_calls(Verb::Create, move |nth| {
            // The first is the trial.
            if (1..=many).contains(&nth) {
                fault.decision()
            } else {
                Decision::Forward
            }
        });
        let (from, unavailable) = (world.server.version(), world.roll_out(lag).await);
        let surging = world.most(from, |pods| {
            pods.iter().filter(|(_, is_staying)| *is_staying).count() > 1
        });
        assert_eq!(
            (surging, unavailable(from)),
            (1, 0),
            "{fault:?} {many} {lag}"
        );
        assert_eq!(world.ready_of("a:2"), 6, "{fault:?} {many} {lag}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_no_longer_wanted_is_not_repeated() {
    let world = World::running(3, &json!({"maxUnavailable": 1})).await;
    world.pod_calls(Verb::Delete, |_| Fault::Failed(504).decision());
    world.set_image("a:2");
    sleep(Duration::from_millis(500)).await;
    let deletes = world.calls_by_second(Verb::Delete);
    world.set_image("a:1");
    sleep(SETTLED).await;
    assert_eq!(world.calls_by_second(Verb::Delete), deletes);
    assert_eq!(deletes.values().sum::<usize>(), 1);
    let (status, reason, _) = world.condition("Progressing").unwrap();
    assert_eq!((&*status, &*reason), ("False", "Complete"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_flap_do_not_shorten_the_pause_that_the_api_server_asks_for() {
    let world = World::running(100, &json!({"maxUnavailable": "100%"})).await;
    world.pod_calls(Verb::Delete, |_| {
        Decision::Answer(Status::too_many_requests(Duration::from_secs(7)))
    });
    let start = world.server.clock().elapsed();
    world.set_image("a:2");
    world.flap(60).await;
    let mut calls: Vec<_> = world.calls_by_second(Verb::Delete).into_iter().collect();
    calls.retain(|(second, _)| *second >= start.as_secs());
    assert!(calls.iter().all(|(_, calls)| *calls == 1), "{calls:?}");
    let pauses = calls.windows(2).map(|two| two[1].0 - two[0].0);
    assert!(pauses.clone().all(|pause| pause >= 7), "{calls:?}");
    assert!(calls.len() >= 3, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unanswering_webhook_is_reported_and_a_single_failure_is_not() {
    for (verb, reason) in [
        (Verb::Create, "FailedCreate"),
        (Verb::Delete, "FailedDelete"),
    ] {
        for lasts in [500, 60_000] {
            let world = World::running(3, &json!({"maxUnavailable": 1})).await;
            world.reject(verb, "pods", no_webhook());
            // The trial dry-runs a creation first.
            world.set_image("a:2");
            sleep(Duration::from_millis(lasts)).await;
            let (status, now) = world.degraded();
            assert_eq!(
                status == "True" && now == reason,
                lasts > 1_000,
                "{reason} {now}"
            );
            let (_, _, message) = world.condition("Degraded").unwrap();
            assert_eq!(message.contains("failed calling webhook"), lasts > 1_000);
            world.reject_nothing();
            sleep(SETTLED).await;
            assert_eq!(world.ready_of("a:2"), 3);
            assert_eq!(world.degraded().0, "False");
            assert_eq!(world.events().contains(reason), lasts > 1_000);
            assert_eq!(world.troubles().is_empty(), lasts < 1_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_are_reported_from_the_second_time() {
    for code in [429, 500, 503, 504] {
        let world = World::new(3, &Options::default());
        world.pod_calls(Verb::Create, move |nth| match nth {
            ..2 => Decision::Answer(Status::new(code, "Failed", "no, not now")),
            _ => Decision::Forward,
        });
        world.create(&json!({}));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(world.degraded(), ("False".into(), "NoPodFails".into()));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(world.degraded(), ("True".into(), "FailedCreate".into()));
        sleep(SETTLED).await;
        assert_eq!(
            (world.ready_of("a:1"), world.degraded().0),
            (3, "False".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_adopted_is_reported_and_blocks_no_other_node() {
    let world = World::running(3, &json!({"maxUnavailable": 1})).await;
    let forbidden = Status::new(403, "Forbidden", "a policy says no");
    world.reject(Verb::Update, "pods", forbidden);
    let orphan = world.pods().into_iter().next().unwrap();
    let pods = world.server.direct();
    pods.patch(
        "pods",
        "ns",
        &orphan,
        &json!({"metadata": {"ownerReferences": null}}),
    )
    .unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.degraded(), ("True".into(), "FailedAdopt".into()));
    world.set_image("a:2");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.ready_of("a:2"), 2);
    let patches = world.calls(Verb::Patch);
    world.flap(60).await;
    // At most one attempt in each pause.
    assert!(world.calls(Verb::Patch) <= patches + 4);
    world.reject_nothing();
    sleep(SETTLED).await;
    assert_eq!(
        (world.ready_of("a:2"), world.degraded().0),
        (3, "False".into())
    );
}

#[tokio::test(start_paused = true)]
async fn deletions_and_adoptions_that_hang_hold_up_no_node_that_joins() {
    for (verb, reason) in [
        (Verb::Delete, "FailedDelete"),
        (Verb::Update, "FailedAdopt"),
    ] {
        let world = World::running(20, &json!({"maxUnavailable": "100%"})).await;
        let is_adoption = verb == Verb::Update;
        let sent = if is_adoption { Verb::Patch } else { verb };
        world.pod_calls(sent, |_| Decision::Delayed(Duration::from_secs(10)));
        world.reject(verb, "pods", no_webhook());
        let image = if is_adoption { "a:1" } else { "a:2" };
        world.set_image(image);
        let orphan = json!({"metadata": {"ownerReferences": null}});
        for pod in world.pods().into_iter().filter(|_| is_adoption) {
            let pods = world.server.direct();
            pods.patch("pods", "ns", &pod, &orphan).unwrap();
        }
        sleep(Duration::from_secs(5)).await;
        world.kubelet.add_node("joined");
        sleep(Duration::from_secs(10)).await;
        let pods = world.server.direct().list("pods", "ns");
        let joined = pods.iter().find(|pod| pod["spec"]["nodeName"] == "joined");
        assert!(joined.is_some_and(serves), "{reason}");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.degraded(), ("True".into(), reason.into()));
        world.pod_calls(sent, |_| Decision::Forward);
        world.reject_nothing();
        sleep(SETTLED).await;
        assert_eq!(world.ready_of(image), 21);
        assert_eq!(world.degraded().0, "False");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_webhook_fails_blocks_no_other() {
    for (verb, sent) in [(Verb::Delete, Verb::Delete), (Verb::Update, Verb::Patch)] {
        let world = World::running(6, &json!({"maxUnavailable": 6})).await;
        let (first, is_adoption) = (world.pods().pop_first().unwrap(), verb == Verb::Update);
        let broken = first.clone();
        world.server.on(move |site: &Site| {
            let is_it = (site.verb, site.resource.as_str()) == (sent, "pods");
            if is_it && site.user == OPERATOR && site.name == broken {
                Decision::Answer(no_webhook())
            } else {
                Decision::Forward
            }
        });
        let orphan = json!({"metadata": {"ownerReferences": null}});
        for pod in world.pods().into_iter().filter(|_| is_adoption) {
            let pods = world.server.direct();
            pods.patch("pods", "ns", &pod, &orphan).unwrap();
        }
        world.set_image("a:2");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(world.ready_of("a:2"), 5, "{verb:?}");
        assert!(world.pods().contains(&first));
    }
}

/// Pods that have no controller, with the labels of the set and of an older revision, on each of the nodes.
fn create_orphans(world: &World, nodes: usize) {
    for node in 0..nodes {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("orphan-{node}"), "namespace": "ns", "labels": {
                NAME_LABEL: "d", super::super::names::REVISION_LABEL: "older", MANAGED_BY: MANAGER,
            }},
            "spec": {"nodeName": format!("n{node}"), "containers": [{"name": "app", "image": "a:0"}]},
        });
        world.server.direct().create(pod).unwrap();
    }
}

/// More than one pod on a node that stays.
fn is_doubled(pods: &[(bool, bool)]) -> bool {
    pods.iter().filter(|(_, stays)| *stays).count() > 1
}

#[tokio::test(start_paused = true)]
async fn a_new_object_makes_no_second_pod_beside_orphans_that_the_watch_does_not_show_yet() {
    let mut world = World::new(3, &Options::default());
    sleep(Duration::from_secs(10)).await;
    let pods = world.server.watches(Target::resource("pods"));
    pods.delay(Duration::from_secs(30));
    create_orphans(&world, 3);
    sleep(Duration::from_secs(1)).await;
    world.create(&json!({"maxUnavailable": 1}));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.pods().len(), 3, "{:?}", world.pods());
    // One list for each attempt, and fewer and fewer of them.
    assert!(world.calls(Verb::List) <= 12, "{}", world.calls(Verb::List));
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 3);
    assert_eq!(world.most(0, is_doubled), 0);
    // Once it has a status there is nothing to ask, not even for another process.
    let lists = world.calls(Verb::List);
    world.restart();
    sleep(Duration::from_secs(10)).await;
    world.set_image("a:2");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 3);
    // The list of the new process's own watch.
    assert_eq!(world.calls(Verb::List), lists + 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_a_new_object_waits_for_orphans_makes_no_second_pod() {
    let mut world = World::new(3, &Options::default());
    sleep(Duration::from_secs(10)).await;
    let pods = world.server.watches(Target::resource("pods"));
    pods.delay(Duration::from_secs(30));
    create_orphans(&world, 3);
    world.create(&json!({"maxUnavailable": 1}));
    sleep(Duration::from_secs(2)).await;
    world.restart();
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 3);
    assert_eq!(world.most(0, is_doubled), 0);
}

#[tokio::test(start_paused = true)]
async fn an_old_revision_that_cannot_be_deleted_is_reported_and_blocks_nothing() {
    let world = World::running(2, &json!({"maxUnavailable": 1})).await;
    let limit = json!({"spec": {"revisionHistoryLimit": 1}});
    let sets = world.server.direct();
    sets.patch("mydaemonsets", "ns", "d", &limit).unwrap();
    let forbidden = Status::new(403, "Forbidden", "a policy says no");
    world.reject(Verb::Delete, "controllerrevisions", forbidden);
    for image in ["a:2", "a:3", "a:4"] {
        world.set_image(image);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(world.ready_of(image), 2);
    }
    assert_eq!(world.degraded(), ("True".into(), "FailedPrune".into()));
    world.reject_nothing();
    sleep(SETTLED).await;
    assert_eq!(world.degraded().0, "False");
    assert_eq!(
        world
            .server
            .direct()
            .list("controllerrevisions", "ns")
            .len(),
        2
    );
}

/// The outcome of every write of a revision, and within how many seconds `Degraded` has which reason.
type RevisionFault = (fn() -> Decision, u64, &'static str);

const REVISION_FAULTS: [RevisionFault; 6] = [
    (|| answer(400, "denied the request"), 1, "RevisionRefused"),
    (|| answer(403, "exceeded quota"), 1, "RevisionRefused"),
    (|| Decision::Answer(no_webhook()), 10, "FailedCreate"),
    (|| answer(429, "not now"), 10, "FailedCreate"),
    (|| answer(503, "not now"), 10, "FailedCreate"),
    (|| Decision::Silent, 90, "FailedCreate"),
];

fn answer(code: u16, message: &str) -> Decision {
    Decision::Answer(Status::new(code, "Failed", message))
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_cannot_be_stored_is_reported_and_the_current_one_heals() {
    for (fault, within, reason) in REVISION_FAULTS {
        let world = World::running(3, &json!({"maxUnavailable": 3})).await;
        world.revision_writes(fault);
        world.set_image("a:2");
        sleep(Duration::from_secs(within)).await;
        assert_eq!(world.degraded(), ("True".into(), reason.into()));
        let is_stalled = world.condition("Stalled").is_some();
        assert_eq!(is_stalled, reason == "RevisionRefused", "{:?}", fault());
        let (_, progress, message) = world.condition("Progressing").unwrap();
        assert_ne!(progress, "Complete");
        assert!(message.contains("cannot be stored"), "{message}");
        let object = world
            .server
            .direct()
            .get("mydaemonsets", "ns", "d")
            .unwrap();
        let observed = &object["status"]["observedGeneration"];
        assert_eq!(*observed, object["metadata"]["generation"]);
        // A pod that is missing, and a node that joins, get the revision that is there.
        let pod = world.pods().pop_first().unwrap();
        world.server.direct().delete("pods", "ns", &pod).unwrap();
        world.kubelet.add_node("n3");
        sleep(Duration::from_mins(5)).await;
        assert_eq!(world.ready_of("a:1"), 4, "{:?}", fault());
        assert_eq!(world.calls(Verb::Delete), 0, "{:?}", fault());
        assert!(world.events().contains(reason), "{:?}", fault());
        assert!(!world.events().contains("RolloutStarted"), "{:?}", fault());
        world.revision_writes(|| Decision::Forward);
        sleep(SETTLED).await;
        assert_eq!(world.ready_of("a:2"), 4, "{:?}", fault());
        assert_eq!(world.degraded().0, "False");
        assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_object_whose_revision_cannot_be_stored_gets_a_status_and_no_pod() {
    for (fault, within, reason) in REVISION_FAULTS {
        let world = World::new(3, &Options::default());
        world.revision_writes(fault);
        world.create(&json!({}));
        sleep(Duration::from_secs(within)).await;
        assert_eq!(world.degraded(), ("True".into(), reason.into()));
        let object = world
            .server
            .direct()
            .get("mydaemonsets", "ns", "d")
            .unwrap();
        let status = &object["status"];
        assert_eq!(
            (
                &status["observedGeneration"],
                &status["desiredNumberScheduled"]
            ),
            (&json!(1), &json!(3))
        );
        assert_eq!(status["updateRevision"], Value::Null);
        assert_eq!(world.pods(), BTreeSet::new());
        world.revision_writes(|| Decision::Forward);
        sleep(SETTLED).await;
        assert_eq!(world.ready_of("a:1"), 3, "{:?}", fault());
        assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_whose_revision_cannot_be_renewed_rolls_nothing_back() {
    for (fault, within, reason) in REVISION_FAULTS {
        let world = World::running(3, &json!({"maxUnavailable": 3})).await;
        world.set_image("a:2");
        sleep(Duration::from_mins(1)).await;
        let deletes = world.calls(Verb::Delete);
        world.revision_writes(fault);
        world.set_image("a:1");
        sleep(Duration::from_secs(within)).await;
        assert_eq!(world.degraded(), ("True".into(), reason.into()));
        let pod = world.pods().pop_first().unwrap();
        world.server.direct().delete("pods", "ns", &pod).unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(
            (world.ready_of("a:2"), world.calls(Verb::Delete)),
            (3, deletes)
        );
        world.revision_writes(|| Decision::Forward);
        sleep(SETTLED).await;
        assert_eq!(
            (world.ready_of("a:1"), world.degraded().0),
            (3, "False".into())
        );
    }
}

/// They may have been left on purpose, as by `kubectl delete --cascade=orphan`.
#[tokio::test(start_paused = true)]
async fn the_pods_of_an_object_that_the_api_server_knows_no_more_are_left_alone() {
    let world = World::without_collector(3).await;
    // The change is shown when the object is gone, and that only later.
    let sets = world.server.watches(Target::resource("mydaemonsets"));
    sets.delay(Duration::from_secs(5));
    world.set_image("a:2");
    sleep(Duration::from_secs(2)).await;
    let direct = world.server.direct();
    direct.delete("mydaemonsets", "ns", "d").unwrap();
    sleep(SETTLED).await;
    let revisions = direct.list("controllerrevisions", "ns");
    assert_eq!(revisions.len(), 2, "the operator began the roll-out");
    assert_eq!((world.calls(Verb::Delete), world.ready_of("a:1")), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_a_deleted_namesake_left_is_taken_over() {
    let world = World::without_collector(3).await;
    let sets = world.server.direct();
    sets.delete("mydaemonsets", "ns", "d").unwrap();
    world.create(&json!({}));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.pods().len(), 6);
    assert_eq!(world.troubles(), BTreeSet::new());
    let new = sets.get("mydaemonsets", "ns", "d").unwrap();
    let revisions = sets.list("controllerrevisions", "ns");
    let owners = revisions[0]["metadata"]["ownerReferences"]
        .as_array()
        .unwrap();
    assert_eq!((revisions.len(), owners.len()), (1, 1));
    assert_eq!(owners[0]["uid"], new["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_object_waits_for_the_deletion_of_its_namesakes_revision() {
    let world = World::running(3, &json!({})).await;
    let direct = world.server.direct();
    let revisions = direct.list("controllerrevisions", "ns");
    let name = revisions[0]["metadata"]["name"].as_str().unwrap();
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let keep = finalizers(json!(["example.com/keep"]));
    direct
        .patch("controllerrevisions", "ns", name, &keep)
        .unwrap();
    direct.delete("mydaemonsets", "ns", "d").unwrap();
    sleep(Duration::from_secs(10)).await;
    world.create(&json!({}));
    sleep(Duration::from_mins(2)).await;
    let (status, reason, message) = world.condition("Progressing").unwrap();
    assert_eq!((&*status, &*reason), ("True", "WaitingForDeletion"));
    assert!(message.contains(name), "{message}");
    assert_eq!(
        (world.condition("Stalled"), world.troubles().len()),
        (None, 0)
    );
    let gone = finalizers(Value::Null);
    direct
        .patch("controllerrevisions", "ns", name, &gone)
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ready_of("a:1"), 3);
    assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
}

#[tokio::test(start_paused = true)]
async fn pods_that_vanish_are_replaced_before_the_api_server_is_asked_about_them() {
    let world = World::running(6, &json!({})).await;
    world.pod_calls(Verb::Get, |_| Decision::Silent);
    // While no watch can show it.
    world.server.watches(Target::resource("pods")).gone();
    let direct = world.server.direct();
    let at_once = json!({"gracePeriodSeconds": 0});
    for pod in world.pods() {
        direct.delete_with("pods", "ns", &pod, &at_once).unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ready_of("a:1"), 6);
    // The first unanswered call ends it.
    assert_eq!(world.calls(Verb::Get), 1);
    world.server.on(|_: &Site| Decision::Forward);
    sleep(SETTLED).await;
    assert_eq!(world.calls(Verb::Get), 1 + 6);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_that_is_gone_stay_for_40_seconds() {
    for is_back in [false, true] {
        let world = World::running(3, &json!({})).await;
        let before = world.pods();
        world.server.direct().delete("nodes", "", "n1").unwrap();
        sleep(Duration::from_secs(30)).await;
        // A watch that lists again must not restart anything.
        world.server.watches(Target::all()).gone();
        sleep(Duration::from_secs(9)).await;
        assert_eq!(world.pods(), before);
        if is_back {
            world.kubelet.add_node("n1");
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.pods().len(), if is_back { 3 } else { 2 });
        // If the node is back, its kubelet ends the pod; otherwise the pod garbage collector may be faster.
        let requests = world.server.history().requests;
        let is_forced = |request: &Request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            request.site.verb == Verb::Delete && body["gracePeriodSeconds"] == 0
        };
        assert!(!is_back || !requests.iter().any(is_forced));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_missing_pod_is_not_reported() {
    let world = World::running(3, &json!({})).await;
    world.server.watches(Target::resource("pods")).hold();
    let direct = world.server.direct();
    let at_once = json!({"gracePeriodSeconds": 0});
    for pod in world.pods() {
        direct.delete_with("pods", "ns", &pod, &at_once).unwrap();
    }
    world.set_image("a:2");
    sleep(Duration::from_secs(20)).await;
    assert!(world.calls(Verb::Delete) >= 1);
    assert!(!world.events().contains("PodsDeleted"));
}

#[tokio::test(start_paused = true)]
async fn revisions_are_numbered_though_the_watch_does_not_show_them() {
    let world = World::running(3, &json!({"maxUnavailable": 3})).await;
    let revisions = world
        .server
        .watches(Target::resource("controllerrevisions"));
    // Longer than answers to own writes are remembered, and not as long as a silent watch is.
    revisions.hold();
    world.set_image("a:2");
    sleep(Duration::from_secs(15)).await;
    world.set_image("a:3");
    sleep(Duration::from_secs(5)).await;
    revisions.release();
    sleep(SETTLED).await;
    let stored = world.server.direct().list("controllerrevisions", "ns");
    let numbers: BTreeMap<&str, i64> = stored
        .iter()
        .map(|revision| {
            (
                revision["data"]["image"].as_str().unwrap(),
                revision["revision"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(numbers, [("a:1", 1), ("a:2", 2), ("a:3", 3)].into());
}

#[tokio::test(start_paused = true)]
async fn a_canary_stays_on_one_node_though_the_watch_does_not_show_the_revisions() {
    let world = World::new(6, &Options::default());
    let revisions = Target::resource("controllerrevisions");
    world.server.watches(revisions).hold();
    world.create(&json!({"canary": {"nodes": 1, "soakSeconds": 600}}));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ready_of("a:1"), 6);
    world.set_image("a:2");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ready_of("a:2"), 1);
    // The others come back as they were.
    let pods = world.server.direct();
    for name in world.pods() {
        let pod = pods.get("pods", "ns", &name).unwrap();
        if pod["spec"]["containers"][0]["image"] == "a:1" {
            pods.delete("pods", "ns", &name).unwrap();
        }
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!((world.ready_of("a:1"), world.ready_of("a:2")), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_revision_names_the_one_that_it_replaced_in_the_write_that_numbers_it() {
    let world = World::running(3, &json!({"maxUnavailable": 3})).await;
    for image in ["a:2", "a:3", "a:1"] {
        world.set_image(image);
        sleep(SETTLED).await;
    }
    let stored = world.server.direct().list("controllerrevisions", "ns");
    let image = |hash: &Value| {
        let label = "apps.zhongmingmao.io/revision";
        let mut all = stored.iter();
        let found = all.find(|revision| revision["metadata"]["labels"][label] == *hash);
        found.and_then(|revision| revision["data"]["image"].as_str())
    };
    let changes: BTreeMap<Option<i64>, _> = stored
        .iter()
        .map(|revision| {
            let annotations = &revision["metadata"]["annotations"];
            let from = image(&annotations["apps.zhongmingmao.io/changed-from"]);
            let change = (from, revision["data"]["image"].as_str());
            (revision["revision"].as_i64(), change)
        })
        .collect();
    // The first one has the highest number now. The text of the second is what it was.
    let change = |number, from, to| (Some(number), (Some(from), Some(to)));
    let expected = [
        change(2, "a:1", "a:2"),
        change(3, "a:2", "a:3"),
        change(4, "a:3", "a:1"),
    ];
    assert_eq!(changes, expected.into());
    let requests = world.server.history().requests;
    let is_write = |request: &&Request| {
        let Site {
            user,
            verb,
            resource,
            ..
        } = &request.site;
        let is_write = matches!(verb, Verb::Create | Verb::Patch);
        is_write && user == OPERATOR && resource == "controllerrevisions"
    };
    assert_eq!(requests.iter().filter(is_write).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_revision_without_labels_gets_them_again_without_endless_calls() {
    for for_ever in [false, true] {
        let world = World::running(3, &json!({})).await;
        let direct = world.server.direct();
        let name = direct.list("controllerrevisions", "ns")[0]["metadata"]["name"].clone();
        let name = name.as_str().unwrap();
        if for_ever {
            world.server.admit(|review: &mut Review<'_>| {
                if review.resource == "controllerrevisions" {
                    review.object["metadata"]["labels"] = Value::Null;
                }
                Ok(())
            });
        }
        let none = json!({"metadata": {"labels": null}});
        direct
            .patch("controllerrevisions", "ns", name, &none)
            .unwrap();
        let before = world.server.history().requests.len();
        world.flap(60).await;
        let requests = world.server.history().requests;
        let calls = requests[before..]
            .iter()
            .filter(|r| r.site.resource == "controllerrevisions" && r.site.verb != Verb::Watch);
        let calls = calls.count();
        assert!((3..=6).contains(&calls), "{calls}");
        let labels = &direct.get("controllerrevisions", "ns", name).unwrap()["metadata"]["labels"];
        assert_eq!(labels.is_null(), for_ever);
        assert_eq!(world.troubles(), BTreeSet::new());
    }
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_left_behind_if_a_webhook_changes_our_labels() {
    for lost in [false, true] {
        let world = World::new(3, &Options::default());
        world.server.admit(|review: &mut Review<'_>| {
            if (review.verb, review.resource) == (Verb::Create, "pods") {
                let labels = &mut review.object["metadata"]["labels"];
                labels[MANAGED_BY] = json!("another");
            }
            Ok(())
        });
        world.pod_calls(Verb::Create, move |nth| match nth {
            0 if lost => Decision::Unanswered,
            _ => Decision::Forward,
        });
        world.create(&json!({}));
        sleep(SETTLED).await;
        assert_eq!(world.pods(), BTreeSet::new());
        let (status, reason, message) = world.condition("Degraded").unwrap();
        assert_eq!((&*status, &*reason), ("True", "LabelsChanged"));
        assert!(message.contains(MANAGED_BY), "{message}");
        // The others were dry runs.
        let most = if lost { 3 } else { 1 };
        assert!(world.made() <= most);
        world.reject_nothing();
        sleep(SETTLED).await;
        assert_eq!(
            (world.ready_of("a:1"), world.degraded().0),
            (3, "False".into())
        );
    }
}

/// Has each new pod demand that label of its node, as the admission plugin PodNodeSelector does.
fn demand(world: &World, label: &'static str) {
    world.server.admit(move |review: &mut Review<'_>| {
        if (review.verb, review.resource) == (Verb::Create, "pods") {
            review.object["spec"]["nodeSelector"] = json!({label: ""});
        }
        Ok(())
    });
}

#[tokio::test(start_paused = true)]
async fn pods_belong_where_admission_puts_them() {
    let mut world = World::new(4, &Options::default());
    let direct = world.server.direct();
    for (node, labels) in [
        ("n0", json!({"a": "", "b": ""})),
        ("n1", json!({"a": ""})),
        ("n2", json!({"b": ""})),
    ] {
        let change = json!({"metadata": {"labels": labels}});
        direct.patch("nodes", "", node, &change).unwrap();
    }
    let pods = |world: &World| {
        let pods = world.server.direct().list("pods", "ns").into_iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let parts = pods.map(|pod| {
            let spec = &pod["spec"];
            [&spec["nodeName"], &spec["containers"][0]["image"]]
                .map(text)
                .join(" ")
        });
        parts.collect::<Vec<_>>()
    };
    demand(&world, "a");
    world.create(&json!({}));
    sleep(SETTLED).await;
    assert_eq!(pods(&world), ["n0 a:1", "n1 a:1"]);
    let complete = |world: &World| {
        let (status, reason, message) = world.condition("Progressing").unwrap();
        assert_eq!((&*status, &*reason), ("False", "Complete"));
        message
    };
    complete(&world);
    // One dry run, and one more by the next process. No other node was tried.
    assert_eq!((world.calls(Verb::Create), world.made()), (3, 2));
    world.restart();
    sleep(SETTLED).await;
    assert_eq!((world.calls(Verb::Create), world.made()), (4, 2));
    // Another revision, and another demand. A dry run shows it before a pod is deleted, and what runs stays.
    demand(&world, "b");
    world.set_image("a:2");
    sleep(SETTLED).await;
    let everywhere = ["n0 a:2", "n1 a:1", "n2 a:2"];
    assert_eq!(pods(&world), everywhere);
    assert!(
        complete(&world).contains("excluded by admission: n1"),
        "{}",
        complete(&world)
    );
    world.restart();
    sleep(SETTLED).await;
    assert_eq!(pods(&world), everywhere);
    // Admission may change under running pods: none of them goes.
    demand(&world, "c");
    world.restart();
    sleep(SETTLED).await;
    assert_eq!(pods(&world), everywhere);
    assert!(
        world.events().contains("PlacementChanged"),
        "{:?}",
        world.events()
    );
    // The old revision again: its pods are admitted by the rules of now.
    world.reject_nothing();
    world.set_image("a:1");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 4);
    assert_eq!(world.made(), 4 + 3);
    assert_eq!(world.troubles(), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_admission_bars_everywhere_is_not_complete_and_takes_no_pod() {
    let world = World::running(3, &json!({"maxUnavailable": 3})).await;
    world.server.admit(|review: &mut Review<'_>| {
        let is_creation = (review.verb, review.resource) == (Verb::Create, "pods");
        if is_creation && review.object["spec"]["containers"][0]["image"] == "a:2" {
            review.object["spec"]["nodeSelector"] = json!({"a": ""});
        }
        Ok(())
    });
    world.set_image("a:2");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 3);
    let (status, reason, message) = world.condition("Progressing").unwrap();
    assert_eq!((&*status, &*reason), ("True", "RollingOut"));
    assert!(message.contains("n0 (excluded by admission)"), "{message}");
    // A node that is held keeps its own revision, which nothing bars.
    let direct = world.server.direct();
    world.pause();
    sleep(SETTLED).await;
    let pods = world.pods();
    let mut pods = pods.iter();
    direct.delete("pods", "ns", pods.next().unwrap()).unwrap();
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    let pod = pods.next().unwrap();
    direct.patch_status("pods", "ns", pod, &evicted).unwrap();
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 3);
}

#[tokio::test(start_paused = true)]
async fn few_pods_are_tried_in_a_terminating_namespace() {
    let world = World::running(6, &json!({})).await;
    world.pod_calls(Verb::Create, |_| {
        let cause = json!({"reason": "NamespaceTerminating", "message": "namespace ns is being terminated"});
        let status = Status::new(403, "Forbidden", "unable to create new content");
        Decision::Answer(status.with_details(json!({"causes": [cause]})))
    });
    let before = world.calls(Verb::Create);
    let direct = world.server.direct();
    for pod in world.pods().into_iter().take(3) {
        direct.delete("pods", "ns", &pod).unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    world.flap(60).await;
    let tried = world.calls(Verb::Create) - before;
    assert!((1..=8).contains(&tried), "{tried}");
    assert_eq!(world.troubles(), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn a_webhook_without_dry_run_is_reported_and_costs_no_pod() {
    let world = World::running(6, &json!({"maxUnavailable": 3})).await;
    let before = world.pods();
    let no_dry_run = || {
        let message = "admission webhook \"w.example.com\" does not support dry run";
        Decision::Answer(Status::bad_request(message))
    };
    world.pod_calls(Verb::Create, move |_| no_dry_run());
    world.set_image("a:2");
    sleep(SETTLED).await;
    assert_eq!(
        (world.pods(), world.calls(Verb::Delete)),
        (before.clone(), 0)
    );
    let (status, reason, message) = world.condition("Degraded").unwrap();
    assert_eq!((&*status, &*reason), ("True", "PodRefused"));
    assert!(message.contains("w.example.com"), "{message}");
    // A node without a pod gets one all the same.
    let server = world.server.direct();
    server
        .delete("pods", "ns", before.first().unwrap())
        .unwrap();
    world.pod_calls(Verb::Create, move |nth| match nth {
        1 => Decision::Forward,
        _ => no_dry_run(),
    });
    sleep(SETTLED).await;
    assert_eq!((world.ready_of("a:1"), world.ready_of("a:2")), (5, 1));
}

/// In the night in which clocks are set from 2:00 to 3:00.
#[tokio::test(start_paused = true)]
async fn no_pod_is_deleted_outside_the_windows_over_a_change_of_the_clocks() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let options = Options {
        start: at("2027-03-27T23:50:00Z"),
        ..Options::default()
    };
    let world = World::new(4, &options);
    // 1:30 before the change, 5:30 after it. Each step takes twenty minutes, so that four take longer than an hour.
    world.create(&json!({"windows": [
        {"schedule": "30 1,5 * * *", "duration": "1h", "timeZone": "Europe/Berlin"}]}));
    let slow = json!({"spec": {"minReadySeconds": 1_200}});
    let sets = world.server.direct();
    sets.patch("mydaemonsets", "ns", "d", &slow).unwrap();
    sleep(Duration::from_secs(10)).await;
    world.set_image("a:2");
    let message = || {
        let (status, reason, message) = world.condition("Progressing").unwrap();
        assert_eq!((&*status, &*reason), ("True", "OutsideWindow"));
        message
    };
    sleep(Duration::from_mins(30)).await;
    let opens = "the next opens at 2027-03-28T00:30:00Z";
    assert!(message().ends_with(opens), "{}", message());
    assert_eq!(world.paused(), ["OutsideWindow=1"]);
    // To 2:00: the window has lasted for an hour, and clocks show two more.
    sleep(Duration::from_mins(100)).await;
    let opens = "1 node waits";
    assert!(message().starts_with(opens), "{}", message());
    let opens = "the next opens at 2027-03-28T03:30:00Z";
    assert!(message().ends_with(opens), "{}", message());
    // Another process knows no other windows.
    let mut world = world;
    world.restart();
    sleep(Duration::from_mins(150)).await;
    assert_eq!(world.ready_of("a:2"), 4);
    assert_eq!(world.paused(), [""; 0]);
    let deletions = world
        .server
        .history()
        .requests
        .into_iter()
        .filter(|request| {
            let site = &request.site;
            (site.user.as_str(), site.verb, site.resource.as_str())
                == (OPERATOR, Verb::Delete, "pods")
        });
    let times: Vec<DateTime<Utc>> = deletions.map(|request| request.time).collect();
    let within = |from: &str, until: &str| {
        let span = at(from)..at(until);
        times.iter().filter(|time| span.contains(time)).count()
    };
    let first = within("2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z");
    let second = within("2027-03-28T03:30:00Z", "2027-03-28T04:30:00Z");
    assert_eq!((first, second, times.len()), (3, 1, 4), "{times:?}");
}

/// Nothing is remembered of a node that leaves after the end of a roll-out.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_outside_the_windows_gets_what_the_others_have() {
    let options = Options {
        start: "2027-01-15T08:00:00Z".parse().unwrap(),
        ..Options::default()
    };
    let world = World::new(3, &options);
    let label = |node: &str, disk: &str| {
        let change = json!({"metadata": {"labels": {"disk": disk}}});
        let nodes = world.server.direct();
        nodes.patch("nodes", "", node, &change).unwrap();
    };
    for node in ["n0", "n1", "n2"] {
        label(node, "ssd");
    }
    world.create(&json!({"windows": [{"schedule": "0 * * * *", "duration": "10m"}]}));
    let on_ssd = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    world.patch(&json!({"spec": {"template": on_ssd}}));
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.ready_of("a:1"), 3);
    label("n0", "hdd");
    sleep(Duration::from_mins(1)).await;
    world.set_image("a:2");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.condition("Progressing").unwrap().1, "OutsideWindow");
    sleep(Duration::from_hours(1)).await;
    assert_eq!((world.ready_of("a:1"), world.ready_of("a:2")), (0, 2));
    label("n0", "ssd");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.ready_of("a:2"), 3);
    assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
}

/// A deletion is late: its window has closed before the call.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_decided_on_in_a_window_is_not_sent_after_it() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let options = Options {
        start: at("2027-01-15T08:00:00Z"),
        ..Options::default()
    };
    let world = World::new(3, &options);
    world.create(
        &json!({"maxUnavailable": 3, "windows": [{"schedule": "1 * * * *", "duration": "1m"}]}),
    );
    sleep(Duration::from_secs(118)).await;
    // The first deletion of the batch takes until the window has closed; the others follow an answer.
    world.delay_first_deletion(Duration::from_secs(3));
    world.set_image("a:2");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.calls(Verb::Delete), 1);
    let (_, reason, _) = world.condition("Progressing").unwrap();
    assert_eq!(reason, "OutsideWindow");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_shows_which_roll_outs_stand() {
    let mut world = World::running(3, &json!({"paused": true})).await;
    assert_eq!(world.paused(), [""; 0]);
    world.set_image("a:2");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.paused(), ["Paused=1"]);
    world.restart();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.paused(), ["Paused=1"]);
    // What an invalid spec holds up stands, too.
    let invalid = json!({"spec": {"minReadySeconds": -1}});
    let server = world.server.direct();
    server.patch("mydaemonsets", "ns", "d", &invalid).unwrap();
    world.restart();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.paused(), ["Paused=1"]);
    // A finalizer keeps the object; its roll-out is over.
    let kept = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    let server = world.server.direct();
    server.patch("mydaemonsets", "ns", "d", &kept).unwrap();
    server.delete("mydaemonsets", "ns", "d").unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.paused(), [""; 0]);
}

impl World {
    /// Sets or removes the annotation by which the pods change hands.
    fn migrate(&self, value: Option<&str>) {
        let annotations = json!({super::super::names::MIGRATION_ANNOTATION: value});
        let change = json!({"metadata": {"annotations": annotations}});
        let sets = self.server.direct();
        sets.patch("mydaemonsets", "ns", "d", &change).unwrap();
    }

    fn is_migrating(&self, value: &str) -> bool {
        let (status, reason, message) = self.condition("Progressing").unwrap();
        (&*status, &*reason) == ("True", "Migrating") && message.ends_with(value)
    }

    /// Gives every pod this controller, or none.
    fn give_pods_to(&self, owners: &Value) {
        let change = json!({"metadata": {"ownerReferences": owners}});
        for pod in self.pods() {
            let pods = self.server.direct();
            pods.patch("pods", "ns", &pod, &change).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn once_the_operator_stands_aside_nothing_of_what_it_did_before_comes_late() {
    for (verb, (fault, many, lag)) in [Verb::Delete, Verb::Create]
        .into_iter()
        .flat_map(|verb| faults().map(move |case| (verb, case)))
    {
        let case = format!("{verb:?} {fault:?} {many} {lag}");
        let world = World::running(6, &json!({"maxUnavailable": 2})).await;
        world.pod_calls(verb, move |nth| {
            if nth < many {
                fault.decision()
            } else {
                Decision::Forward
            }
        });
        let pods = world.server.watches(Target::resource("pods"));
        pods.delay(Duration::from_secs(lag));
        world.set_image("a:2");
        sleep(Duration::from_secs(2)).await;
        world.migrate(Some("first"));
        let start = world.server.clock().elapsed();
        while !world.is_migrating("first") && world.server.clock().elapsed() < start + SETTLED {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(world.is_migrating("first"), "{case}");
        // A leaving pod may still go.
        let staying = || {
            let pods = world.server.direct().list("pods", "ns").into_iter();
            let pods = pods
                .filter(stays)
                .map(|pod| pod["metadata"]["uid"].to_string());
            pods.collect::<BTreeSet<_>>()
        };
        let before = staying();
        world.set_image("a:3");
        sleep(SETTLED).await;
        assert_eq!(staying(), before, "{case}");
        // An earlier answer is none for another migration.
        world.migrate(Some("second"));
        assert!(!world.is_migrating("second"));
        sleep(Duration::from_secs(5)).await;
        assert!(world.is_migrating("second"), "{case}");
        world.migrate(None);
        sleep(SETTLED).await;
        assert_eq!(world.ready_of("a:3"), 6, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_back_after_a_migration_get_no_second_one_beside_them() {
    for restarts in [false, true] {
        let mut world = World::running(3, &json!({"maxUnavailable": 1})).await;
        world.migrate(Some("there"));
        sleep(Duration::from_secs(5)).await;
        world.server.register(Resource::of::<DaemonSet>());
        let other = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "d", "namespace": "ns"}});
        let other = world.server.direct().create(other).unwrap();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d",
            "uid": other["metadata"]["uid"], "controller": true}]);
        world.give_pods_to(&owner);
        let kept = world.pods();
        world
            .server
            .direct()
            .delete("pods", "ns", kept.first().unwrap())
            .unwrap();
        sleep(Duration::from_secs(30)).await;
        // None is adopted, and the one that is gone is not replaced.
        assert_eq!(world.pods().len(), 2);
        let pods = world.server.watches(Target::resource("pods"));
        pods.delay(Duration::from_secs(30));
        let from = world.server.version();
        world.give_pods_to(&Value::Null);
        world.migrate(None);
        if restarts {
            sleep(Duration::from_secs(1)).await;
            world.restart();
        }
        world.set_image("a:2");
        sleep(SETTLED).await;
        assert_eq!(world.most(from, is_doubled), 0, "{restarts}");
        assert_eq!(world.ready_of("a:2"), 3, "{restarts}");
        assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
        // And once more, just after it has adopted pods.
        world.give_pods_to(&Value::Null);
        let pods = world.server.watches(Target::resource("pods"));
        pods.delay(Duration::ZERO);
        sleep(Duration::from_secs(32)).await;
        let calls = world.calls(Verb::Get);
        world.migrate(Some("back"));
        sleep(Duration::from_mins(1)).await;
        assert!(world.is_migrating("back"), "{restarts}");
        assert!(world.calls(Verb::Get) < calls + 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cordoned_while_others_are_rolled_out_keeps_its_pod() {
    let world = World::running(3, &json!({"maxUnavailable": 3})).await;
    world.delay_first_deletion(Duration::from_secs(5));
    world.set_image("a:2");
    // The first pod is being deleted, and the others are next.
    sleep(Duration::from_secs(2)).await;
    let cordon = |is_cordoned: bool| {
        let change = json!({"spec": {"unschedulable": is_cordoned}});
        for node in ["n0", "n1", "n2"] {
            let nodes = world.server.direct();
            nodes.patch("nodes", "", node, &change).unwrap();
        }
    };
    cordon(true);
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 2);
    cordon(false);
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_into_maintenance_while_others_are_rolled_out_keeps_its_pod() {
    // Also where the new pods may be made on cordoned nodes.
    for tolerations in [json!([]), json!([{"operator": "Exists"}])] {
        let world = World::running(3, &json!({"maxUnavailable": 3})).await;
        world.delay_first_deletion(Duration::from_secs(5));
        let template = json!({"spec": {"tolerations": tolerations}});
        let change = json!({"spec": {"image": "a:2", "template": template}});
        let sets = world.server.direct();
        sets.patch("mydaemonsets", "ns", "d", &change).unwrap();
        // The first pod is being deleted, and the others are next.
        sleep(Duration::from_secs(2)).await;
        let maintain = |status: &str| {
            for node in ["n0", "n1", "n2"] {
                let nodes = world.server.direct();
                let edited = nodes.edit_status("nodes", "", node, |node| {
                    let conditions = node["status"]["conditions"].as_array();
                    let mut conditions = conditions.cloned().unwrap_or_default();
                    conditions.retain(|condition| condition["type"] != "DrainInProgress");
                    conditions.push(json!({"type": "DrainInProgress", "status": status}));
                    node["status"]["conditions"] = json!(conditions);
                });
                edited.unwrap();
            }
        };
        maintain("True");
        sleep(SETTLED).await;
        assert_eq!(world.ready_of("a:1"), 2, "{tolerations}");
        maintain("False");
        sleep(SETTLED).await;
        assert_eq!(world.ready_of("a:2"), 3, "{tolerations}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_for_a_spec_that_was_paused_meanwhile() {
    let world = World::running(6, &json!({"maxUnavailable": 3})).await;
    world.delay_first_deletion(Duration::from_secs(8));
    world.set_image("a:2");
    sleep(Duration::from_secs(4)).await;
    world.pause();
    sleep(SETTLED).await;
    assert_eq!(world.calls(Verb::Delete), 1);
    assert_eq!(world.ready_of("a:1"), 6);
}

/// A pass that began with every pod Ready would go on to the limit, though others have failed since.
#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_for_what_was_seen_too_long_ago() {
    // Also if the clock is set back meanwhile, or the machine is suspended.
    for (late, step) in [(8, 0), (8, -10), (3, 10)] {
        let world = World::running(4, &json!({"maxUnavailable": 2})).await;
        let from = world.server.version();
        world.delay_first_deletion(Duration::from_secs(late));
        world.set_image("a:2");
        sleep(Duration::from_secs(late / 2)).await;
        assert_eq!(world.calls(Verb::Delete), 1);
        for node in ["n2", "n3"] {
            world.kubelet.fail(node);
        }
        world.server.clock().step(TimeDelta::seconds(step));
        sleep(SETTLED).await;
        let unserved = world.most(from, |pods| !pods.iter().any(|(is_serving, _)| *is_serving));
        assert_eq!(
            unserved, 3,
            "two that failed, and the first deletion: {step}"
        );
        assert_eq!(world.ready_of("a:2"), 2, "the others have failed: {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_not_asked_about_for_ever_if_another_has_its_name() {
    let world = World::running(1, &json!({})).await;
    let server = world.server.direct();
    let mut namesake = server.list("pods", "ns").remove(0);
    let metadata = namesake["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| !["uid", "resourceVersion"].contains(&field.as_str()));
    let watches = world.server.watches(Target::resource("pods"));
    watches.hold();
    world.set_image("a:2");
    while world
        .pods()
        .contains(namesake["metadata"]["name"].as_str().unwrap())
    {
        sleep(Duration::from_secs(1)).await;
    }
    server.create(namesake).unwrap();
    // The watch shows neither that the one is gone nor that the other is new, but a list in between.
    watches.gone();
    watches.release();
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 1);
    let asked = world.calls(Verb::Get);
    sleep(SETTLED).await;
    assert_eq!(world.calls(Verb::Get), asked);
}

/// A creation that hangs holds up the deletions of its pass.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_keep_its_pod_again_by_then_keeps_it() {
    let world = World::running(2, &json!({})).await;
    let server = world.server.direct();
    let disk = |node: &str, kind: &str| {
        let change = json!({"metadata": {"labels": {"disk": kind}}});
        server.patch("nodes", "", node, &change).unwrap();
    };
    disk("n0", "ssd");
    disk("n1", "hdd");
    let on_ssd = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}});
    server.patch("mydaemonsets", "ns", "d", &on_ssd).unwrap();
    sleep(SETTLED).await;
    let before = world.pods();
    assert_eq!(before.len(), 1);
    world.pod_calls(Verb::Create, |_| Decision::Silent);
    disk("n0", "hdd");
    disk("n1", "ssd");
    sleep(Duration::from_secs(10)).await;
    disk("n0", "ssd");
    sleep(SETTLED).await;
    assert!(world.pods().is_superset(&before), "{:?}", world.pods());
    // One that is to go goes, though creations hang.
    disk("n0", "hdd");
    sleep(SETTLED).await;
    assert!(world.pods().is_disjoint(&before), "{:?}", world.pods());
}

/// The node that speaks against the revision is back before the creation has ended.
#[tokio::test(start_paused = true)]
async fn a_roll_out_that_stopped_while_a_creation_hung_stays_stopped() {
    let world = World::running(3, &json!({})).await;
    world.set_image("a:2");
    while world.ready_of("a:2") == 0 {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(2)).await;
    world.kubelet.fail("n0");
    world.pod_calls(Verb::Create, |_| Decision::Delayed(Duration::from_secs(8)));
    sleep(Duration::from_secs(15)).await;
    world.kubelet.add_node("n3");
    sleep(Duration::from_secs(3)).await;
    world.kubelet.recover("n0");
    sleep(SETTLED).await;
    let (_, reason, message) = world.condition("Progressing").unwrap();
    assert_eq!(reason, "AutoPaused", "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_waits_for_a_call_only_if_it_uses_up_a_limit() {
    let deletes = json!({"maxUnavailable": 3});
    let surges = json!({"maxUnavailable": 0, "maxSurge": 3});
    for (strategy, verb, takes, stops_after) in [
        (&deletes, Verb::Delete, 8, 7),
        (&deletes, Verb::Delete, 60, 15),
        (&surges, Verb::Create, 8, 7),
        (&surges, Verb::Create, 60, 15),
        // A node that joins meanwhile gets its pod.
        (&deletes, Verb::Create, 60, 2),
    ] {
        let mut world = World::running(3, strategy).await;
        let is_trial = strategy == &surges;
        world.pod_calls(verb, move |nth| {
            if is_trial && nth == 0 {
                Decision::Forward
            } else {
                Decision::Delayed(Duration::from_secs(takes))
            }
        });
        let before = world.calls(verb);
        if stops_after == 2 {
            world.kubelet.add_node("joins");
        } else {
            world.set_image("a:2");
        }
        sleep(Duration::from_secs(1)).await;
        let sent = world.calls(verb);
        assert!(sent > before, "{strategy} {verb:?}");
        assert_eq!(
            world.stop().await,
            stops_after,
            "{strategy} {verb:?} {takes}"
        );
        // What was next is left to the next leader.
        assert_eq!(world.calls(verb), sent, "{strategy} {verb:?} {takes}");
        world.pod_calls(verb, |_| Decision::Forward);
        world.restart();
        sleep(SETTLED).await;
        let image = if stops_after == 2 { "a:1" } else { "a:2" };
        assert!(world.ready_of(image) >= 3, "{strategy} {verb:?} {takes}");
    }
}

impl World {
    fn patch(&self, change: &Value) {
        let sets = self.server.direct();
        sets.patch("mydaemonsets", "ns", "d", change).unwrap();
    }

    /// How many pods with that annotation were made so far.
    fn made_with(&self, annotation: &str) -> usize {
        let versions = self.server.history().versions;
        let made = versions
            .iter()
            .filter(|v| v.resource == "pods" && v.kind == ChangeKind::Added);
        made.filter(|v| v.object()["metadata"]["annotations"][annotation].is_string())
            .count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_fails_is_undone_once_and_is_not_tried_again() {
    const BAD: &str = "simulated-apiserver/ready-seconds";
    let mut world = World::running(4, &json!({"onFailure": "Undo"})).await;
    let before = world.pods();
    let bad = json!({"metadata": {"annotations": {BAD: "100000"}}});
    world.patch(&json!({"spec": {"progressDeadlineSeconds": 60, "template": bad}}));
    sleep(SETTLED).await;
    let reason = |world: &World| world.condition("Progressing").unwrap().1;
    assert_eq!(reason(&world), "RolledBack");
    assert_eq!((world.made_with(BAD), world.ready_of("a:1")), (1, 4));
    assert_eq!(
        world.pods().intersection(&before).count(),
        4,
        "of the same revision"
    );
    assert!(
        world
            .events()
            .is_superset(&["RollingBack", "RolledBack"].map(str::to_owned).into())
    );
    assert_eq!(world.paused(), ["RolledBack=1"]);
    // Neither another process nor a node that joins or loses its pod tries it again.
    world.restart();
    world.kubelet.add_node("joins");
    let pod = world.pods().pop_first().unwrap();
    world.server.direct().delete("pods", "ns", &pod).unwrap();
    sleep(SETTLED).await;
    assert_eq!((world.made_with(BAD), world.ready_of("a:1")), (1, 5));
    assert_eq!(reason(&world), "RolledBack");
    // Another spec does.
    world.patch(&json!({"spec": {"image": "a:2", "template": null}}));
    sleep(SETTLED).await;
    assert_eq!(
        (reason(&world), world.ready_of("a:2")),
        ("Complete".to_owned(), 5)
    );
    let set = world
        .server
        .direct()
        .get("mydaemonsets", "ns", "d")
        .unwrap();
    assert!(set["status"]["failedRevisions"].is_null(), "{set}");
}

#[tokio::test(start_paused = true)]
async fn the_roll_out_after_one_that_went_back_has_one_event_at_its_end() {
    for image in ["a:1", "a:2"] {
        let world = World::running(4, &json!({"onFailure": "Undo"})).await;
        let bad =
            json!({"metadata": {"annotations": {"simulated-apiserver/ready-seconds": "100000"}}});
        world.patch(&json!({"spec": {"progressDeadlineSeconds": 60, "template": bad}}));
        sleep(SETTLED).await;
        let completions = || {
            let events = world.server.direct().list("events.events.k8s.io", "ns");
            let complete = events.iter().filter(|it| it["reason"] == "RolloutComplete");
            complete
                .map(|it| it["series"]["count"].as_u64().unwrap_or(1))
                .sum::<u64>()
        };
        assert_eq!(
            (
                world.condition("Progressing").unwrap().1.as_str(),
                completions()
            ),
            ("RolledBack", 0)
        );
        world.patch(&json!({"spec": {"image": image, "template": null}}));
        sleep(SETTLED).await;
        world.kubelet.add_node("joins");
        sleep(SETTLED).await;
        assert_eq!(world.ready_of(image), 5);
        assert_eq!(
            (
                world.condition("Progressing").unwrap().1.as_str(),
                completions()
            ),
            ("Complete", 1),
            "{image}"
        );
    }
}

impl World {
    /// How many nodes wait for what, as a client finds it that reads all objects, and as the status has it.
    fn waiting(&self) -> [BTreeMap<String, usize>; 2] {
        let direct = self.server.direct();
        let now = self.server.clock().now();
        let mut set = direct.get("mydaemonsets", "ns", "d").unwrap();
        let mut part = |name: &str| set[name].take();
        let metadata = serde_json::from_value(part("metadata")).unwrap();
        let spec = serde_json::from_value(part("spec")).unwrap();
        let status = serde_json::from_value::<MyDaemonSetStatus>(part("status")).unwrap();
        let node = |node| NodeView::from_watched(serde_json::from_value(node).unwrap(), now);
        let pod = |pod| PodView::from_watched(serde_json::from_value(pod).unwrap(), now);
        let revision = |it: Value| RevisionView::from_json(&it.to_string()).unwrap();
        let nodes = direct.list("nodes", "").into_iter().map(node);
        let pods = direct.list("pods", "ns").into_iter().map(pod);
        let revisions = direct.list("controllerrevisions", "ns").into_iter();
        let seen = Seen {
            metadata: &metadata,
            spec: &spec,
            status: &status,
            nodes: Some(nodes.map(Arc::new).collect()),
            pods: pods.map(Arc::new).collect(),
            revisions: revisions.map(revision).map(Arc::new).collect(),
        };
        let mut found = BTreeMap::new();
        why(&seen, now, |wait| {
            if let Some(cause) = wait.cause {
                *found.entry(format!("{cause:?}")).or_default() += 1;
            }
        });
        let counted = status.waiting.into_iter();
        let counted = counted.map(|it| (it.cause, usize::try_from(it.nodes).unwrap()));
        [found, counted.collect()]
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_finds_the_causes_that_the_status_counts() {
    const BAD: &str = "simulated-apiserver/ready-seconds";
    let next = json!({"spec": {"image": "a:2"}});
    let bad = json!({"metadata": {"annotations": {BAD: "100000"}}});
    let bad = json!({"spec": {"progressDeadlineSeconds": 60, "template": bad}});
    let frozen =
        json!({"metadata": {"annotations": {FREEZE_ANNOTATION: "all"}}, "spec": {"image": "a:2"}});
    for (strategy, change, expected) in [
        (json!({}), &next, json!({"Cordoned": 1})),
        (
            json!({"paused": true}),
            &next,
            json!({"Paused": 3, "Cordoned": 1}),
        ),
        (
            json!({"partition": 2}),
            &next,
            json!({"Partition": 1, "Cordoned": 1}),
        ),
        (json!({}), &frozen, json!({"Frozen": 3, "Cordoned": 1})),
        (
            json!({}),
            &bad,
            json!({"AutoPaused": 2, "Starting": 1, "Cordoned": 1}),
        ),
        (json!({"onFailure": "Undo"}), &bad, json!({"RolledBack": 4})),
        (
            json!({"canary": {"promote": "Manual"}}),
            &next,
            json!({"WaitingForApproval": 2, "Cordoned": 1}),
        ),
    ] {
        let world = World::running(4, &strategy).await;
        let cordon = json!({"spec": {"unschedulable": true}});
        let nodes = world.server.direct();
        nodes.patch("nodes", "", "n3", &cordon).unwrap();
        world.patch(change);
        sleep(SETTLED * 3).await;
        let [found, counted] = world.waiting();
        assert_eq!(found, counted, "{strategy}");
        assert_eq!(json!(found), expected, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_deletion_is_sent_after_a_freeze_is_acknowledged() {
    let world = World::running(6, &json!({"maxUnavailable": 2})).await;
    // It is under way when the object is frozen.
    world.delay_first_deletion(Duration::from_secs(8));
    world.set_image("a:2");
    sleep(Duration::from_secs(1)).await;
    let freeze = |value: Value| {
        let name = crate::names::FREEZE_ANNOTATION;
        world.patch(&json!({"metadata": {"annotations": {name: value}}}));
    };
    let is_frozen = || world.condition("Frozen").is_some_and(|c| c.0 == "True");
    freeze(json!("now"));
    sleep(Duration::from_secs(4)).await;
    assert!(!is_frozen(), "a deletion is under way");
    sleep(Duration::from_mins(1)).await;
    assert!(is_frozen());
    let sent = world.calls(Verb::Delete);
    assert!(sent > 0);
    sleep(SETTLED).await;
    assert_eq!(world.calls(Verb::Delete), sent);
    assert_eq!(
        world.ready_of("a:1") + world.ready_of("a:2"),
        6,
        "all are made again"
    );
    freeze(Value::Null);
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 6);
    assert_eq!(world.condition("Frozen"), None);
}

/// A call without an answer may still be carried out.
#[tokio::test(start_paused = true)]
async fn a_freeze_waits_for_calls_whose_outcome_is_unknown() {
    let world = World::running(3, &json!({})).await;
    world.pod_calls(Verb::Delete, |_| Decision::Silent);
    world.set_image("a:2");
    sleep(Duration::from_secs(2)).await;
    let name = crate::names::FREEZE_ANNOTATION;
    world.patch(&json!({"metadata": {"annotations": {name: "all"}}}));
    sleep(Duration::from_mins(1)).await;
    let (status, reason, _) = world.condition("Frozen").unwrap_or_default();
    assert_ne!(status, "True", "{reason}");
    sleep(SETTLED).await;
    assert_eq!(world.condition("Frozen").unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn no_deletion_is_sent_after_a_freeze_of_the_namespace_is_acknowledged() {
    let mut world = World::running(6, &json!({"maxUnavailable": 2})).await;
    world.delay_first_deletion(Duration::from_secs(8));
    world.set_image("a:2");
    sleep(Duration::from_secs(1)).await;
    world.freeze_namespace(&json!("since 1"));
    sleep(Duration::from_secs(4)).await;
    let (status, ..) = world.condition("Frozen").unwrap_or_default();
    assert_ne!(status, "True", "a deletion is under way");
    sleep(Duration::from_mins(1)).await;
    let (status, _, message) = world.condition("Frozen").unwrap();
    assert_eq!(status, "True");
    assert!(
        message.ends_with("/freeze is on the namespace: since 1"),
        "{message}"
    );
    let sent = world.calls(Verb::Delete);
    assert!(sent > 0);
    world.restart();
    sleep(SETTLED).await;
    assert_eq!(world.calls(Verb::Delete), sent);
    world.freeze_namespace(&Value::Null);
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 6);
    assert_eq!(world.condition("Frozen"), None);
}

#[tokio::test(start_paused = true)]
async fn until_namespaces_are_listed_pods_are_made_and_none_that_runs_is_deleted() {
    let refuse = |world: &World| {
        world
            .server
            .on(|site: &Site| match (site.verb, site.resource.as_str()) {
                (Verb::List, "namespaces") => Decision::Answer(Status::new(403, "Forbidden", "no")),
                _ => Decision::Forward,
            });
    };
    let lose_one = |world: &World| {
        let pod = world.pods().pop_first().unwrap();
        world.server.direct().delete("pods", "ns", &pod).unwrap();
    };
    let mut world = World::running(4, &json!({})).await;
    refuse(&world);
    world.restart();
    world.set_image("a:2");
    lose_one(&world);
    sleep(SETTLED).await;
    assert_eq!((world.ready_of("a:1"), world.calls(Verb::Delete)), (4, 0));
    let (status, reason, _) = world.condition("Frozen").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Waiting"));
    assert_eq!(world.condition("Progressing").unwrap().1, "RollingOut");
    world.server.on(|_: &Site| Decision::Forward);
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:2"), 4);
    assert_eq!(world.condition("Frozen"), None);
    // What was acknowledged holds.
    world.freeze_namespace(&json!("all"));
    sleep(Duration::from_mins(1)).await;
    let frozen = world.condition("Frozen");
    refuse(&world);
    world.restart();
    lose_one(&world);
    sleep(SETTLED).await;
    assert_eq!(
        (world.ready_of("a:2"), world.condition("Frozen")),
        (3, frozen)
    );
}

#[tokio::test(start_paused = true)]
async fn an_undo_of_a_completed_roll_out_does_not_wait_for_a_canary() {
    let world = World::running(4, &json!({})).await;
    world.set_image("a:2");
    sleep(SETTLED).await;
    assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
    let canary = json!({"canary": {"soakSeconds": 86400}});
    world.patch(&json!({"spec": {"updateStrategy": {"rollingUpdate": canary}}}));
    world.set_image("a:1");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:1"), 4);
    // One that was completed nowhere does.
    world.set_image("a:3");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:3"), 1);
    assert_eq!(world.condition("Progressing").unwrap().1, "Canary");
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_goes_by_domain_and_its_undo_reaches_all_at_once() {
    let world = World::running(4, &json!({"maxUnavailable": 4})).await;
    for (node, zone) in [("n0", "b"), ("n1", "b"), ("n2", "a"), ("n3", "a")] {
        let label = json!({"metadata": {"labels": {"zone": zone}}});
        let nodes = world.server.direct();
        nodes.patch("nodes", "", node, &label).unwrap();
    }
    world.set_image("a:2");
    sleep(SETTLED).await;
    assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
    // So that what is Ready is not available for a while.
    let by_zone = json!({"updateStrategy": {"rollingUpdate": {"topologyKey": "zone"}}, "minReadySeconds": 300});
    world.patch(&json!({"spec": by_zone}));
    world.set_image("a:1");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.ready_of("a:1"), 4);
    sleep(SETTLED).await;
    assert_eq!(world.condition("Progressing").unwrap().1, "Complete");
    world.set_image("a:3");
    sleep(Duration::from_mins(2)).await;
    assert_eq!((world.ready_of("a:3"), world.ready_of("a:1")), (2, 2));
    let (_, reason, message) = world.condition("Progressing").unwrap();
    assert_eq!(reason, "RollingOut");
    assert!(message.starts_with("zone a (2 of 2): 2 of 4 "), "{message}");
    sleep(SETTLED).await;
    assert_eq!(world.ready_of("a:3"), 4);
}
