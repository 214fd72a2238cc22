//! One run: a simulated cluster, operators in it, and what the scenario does to both.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use my_operator::clock::Clock;
use my_operator::kinds::{self, Kind};
use my_operator::reconcile::{Context, event, health::Health, metrics::Metrics};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use simulated_apiserver::{
    Decision, Kubelet, KubeletOptions, Options, Resource, Review, Run, Server, Site, Status, Target,
};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::faults::Fault;
use super::judge::{self, GATE};
use super::mutants::{Mutant, Mutated};
use super::policy::Policy;

/// The namespace of all objects.
pub const NAMESPACE: &str = "ns";
/// The name of the pod of the At `a`.
pub const POD: &str = "a-pod";
/// The node of the cluster.
const NODE: &str = "node-1";

/// The operator that meets the faults. A process that is started again has the same name.
pub const FIRST: &str = "operator-1";
/// Another replica.
pub const SECOND: &str = "operator-2";

/// How long a process takes to start again, and a replica to take over.
const RESTART: Duration = Duration::from_secs(2);
/// How long a fault lasts that lasts.
const LASTS: Duration = Duration::from_secs(20);
/// When a late call is carried out.
const LATE: Duration = Duration::from_mins(1);
/// How long a deletion may be half done.
const HALF_OF_A_DELETION: Duration = Duration::from_millis(20);
/// What the API server asks for in `Retry-After`.
pub const RETRY_AFTER: Duration = Duration::from_secs(7);
/// How long a step of a scenario waits for its condition.
const PATIENCE: Duration = Duration::from_mins(10);

/// Our kinds. To make a CRD from the types takes longer than a run.
static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let crds = kinds::REGISTRY.iter().map(|kind| (kind.crd)().spec);
    let of = |crd: CustomResourceDefinitionSpec| {
        let names = &crd.names;
        Resource::custom(
            &crd.group,
            &crd.versions[0].name,
            &names.kind,
            &names.plural,
        )
    };
    crds.map(of).collect()
});

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub server: Server,
    kubelet: Arc<Kubelet>,
    kind: &'static Kind,
    mutant: Option<&'static Mutant>,
    operators: Arc<Mutex<BTreeMap<&'static str, Operator>>>,
    policy: Arc<Mutex<Policy>>,
}

/// A process of the operator.
struct Operator {
    stop: CancellationToken,
    task: AbortHandle,
}

/// A command `exit CODE` takes two seconds, `sleep SECONDS` as long as it says, and a foreign pod goes on for ever.
fn how_it_runs(pod: &Value) -> Run {
    let container = &pod["spec"]["containers"][0];
    let words = ["command", "args"]
        .iter()
        .filter_map(|field| container[field].as_array());
    let command = words
        .flatten()
        .last()
        .and_then(Value::as_str)
        .unwrap_or_default();
    let (runs, exit_code) = match command.split_once(' ') {
        Some(("exit", code)) => (Some(2), code.parse().unwrap()),
        Some(("sleep", seconds)) => (Some(seconds.parse().unwrap()), 0),
        _ => (None, 0),
    };
    Run {
        runs: runs.map(Duration::from_secs),
        exit_code,
        ..Run::default()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// A cluster with one node and no operator yet.
    pub fn new(kind: &str, mutant: Option<&'static Mutant>) -> Self {
        let server = Server::new(Options {
            namespaces: vec![NAMESPACE.to_owned()],
            ..Options::default()
        });
        for resource in RESOURCES.iter() {
            server.register(resource.clone());
        }
        let policy: Arc<Mutex<Policy>> = Arc::default();
        let judge = policy.clone();
        server.admit(move |review: &mut Review<'_>| locked(&judge).review(review));
        let kubelet = server.kubelet(KubeletOptions {
            run: Arc::new(how_it_runs),
            ..KubeletOptions::default()
        });
        kubelet.add_node(NODE);
        let kind = kinds::REGISTRY.iter().find(|known| known.name == kind);
        Self {
            server,
            kubelet: Arc::new(kubelet),
            kind: kind.unwrap(),
            mutant,
            operators: Arc::default(),
            policy,
        }
    }

    /// Starts a process of the operator.
    pub fn start(&self, name: &'static str) {
        let (wall, mut ahead) = (self.server.clock().clone(), TimeDelta::zero());
        let mut client = self.server.client(name);
        if let Some(mutant) = self.mutant {
            ahead = TimeDelta::seconds(mutant.clock);
            let (connection, server) = (self.server.service(name), self.server.clone());
            client = kube::Client::new(
                Mutated {
                    connection,
                    server,
                    mutant,
                },
                NAMESPACE,
            );
        }
        let clock: Clock = Arc::new(move || wall.now() + ahead);
        let (events, teller) = event::events(client.clone(), clock.clone());
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let stop = CancellationToken::new();
        let context = Context {
            client,
            namespaces: Vec::new(),
            workers: 4,
            node_not_ready_grace: TimeDelta::minutes(5),
            clock,
            events,
            metrics,
            registry: Arc::new(Mutex::new(registry)),
            health: Health::default(),
            stop: stop.clone(),
        };
        let (start, telling) = ((self.kind.start)(context), teller.run(stop.clone()));
        let task = tokio::spawn(async move {
            let (ended, ()) = tokio::join!(start, telling);
            ended.unwrap();
        });
        let task = task.abort_handle();
        locked(&self.operators).insert(name, Operator { stop, task });
    }

    /// The process dies as by SIGKILL.
    fn kill(&self, name: &str) {
        if let Some(operator) = locked(&self.operators).remove(name) {
            operator.task.abort();
        }
    }

    /// Every process ends.
    pub fn end(&self) {
        for (_, operator) in std::mem::take(&mut *locked(&self.operators)) {
            operator.task.abort();
        }
    }

    /// The first operator finishes what it has in hand, and the second takes over.
    pub async fn hand_over(&self) {
        let first = locked(&self.operators).remove(FIRST);
        if let Some(first) = first {
            first.stop.cancel();
            let start = Instant::now();
            while !first.task.is_finished() && start.elapsed() < PATIENCE {
                sleep(Duration::from_millis(10)).await;
            }
        }
        self.start(SECOND);
    }

    /// Starts `name` a moment later.
    fn start_later(&self, name: &'static str) {
        let cluster = self.clone();
        tokio::spawn(async move {
            sleep(RESTART).await;
            cluster.start(name);
        });
    }

    fn later(&self, act: impl FnOnce(&Self) + Send + 'static) {
        let cluster = self.clone();
        tokio::spawn(async move {
            sleep(LASTS).await;
            act(&cluster);
        });
    }

    /// What becomes of the call at a site, when this fault befalls it.
    pub fn decide(&self, fault: Fault, site: &Site) -> Decision {
        let cluster = self.clone();
        let watches = |plural: &str| Target::resource(plural).of_user(FIRST);
        let all = Target::all().of_user(FIRST);
        let crash = |next: &'static str| {
            let cluster = cluster.clone();
            Box::new(move |_: &Server| {
                cluster.kill(FIRST);
                cluster.start_later(next);
            })
        };
        let failed = |code, reason: &str| Status::new(code, reason, "a fault of the simulation");
        match fault {
            Fault::Lost => Decision::Lost,
            Fault::Unanswered => Decision::Unanswered,
            Fault::Late => Decision::LostThenLate(LATE),
            Fault::Conflict => Decision::Answer(failed(409, "Conflict")),
            Fault::TooManyRequests => Decision::Answer(Status::too_many_requests(RETRY_AFTER)),
            Fault::Unavailable => Decision::Answer(Status::unavailable(RETRY_AFTER)),
            Fault::InternalError => Decision::Answer(failed(500, "InternalError")),
            Fault::InternalErrorThoughDone => {
                Decision::FailedThoughDone(failed(500, "InternalError"))
            }
            Fault::TimeoutThoughDone => Decision::FailedThoughDone(failed(504, "Timeout")),
            Fault::Forbidden => Decision::Answer(failed(403, "Forbidden")),
            Fault::Invalid => Decision::Answer(failed(422, "Invalid")),
            Fault::Silent => Decision::Silent,
            Fault::CrashBefore => Decision::CrashBefore(crash(FIRST)),
            Fault::CrashAfter => Decision::CrashAfter(crash(FIRST)),
            Fault::TakenOver => Decision::CrashAfter(crash(SECOND)),
            Fault::CrashAndOldList => Decision::CrashAfter(Box::new(move |server: &Server| {
                cluster.kill(FIRST);
                // What a replica of the API server had two changes ago.
                server
                    .watches(Target::all().of_user(FIRST))
                    .stale_lists(server.version().saturating_sub(2));
                cluster.start_later(FIRST);
                cluster.later(|c| c.server.watches(Target::all().of_user(FIRST)).fresh_lists());
            })),
            Fault::EditBefore
            | Fault::DeleteBefore
            | Fault::DeleteHalfDone
            | Fault::RecreateBefore => {
                let (kind, name) = Self::target(site);
                Decision::Meanwhile(Box::new(move |_| cluster.meddle(fault, &kind, &name)))
            }
            Fault::ReleaseBefore => {
                Decision::Meanwhile(Box::new(move |_| cluster.remove_gate(POD, GATE)))
            }
            Fault::AtsHeldBack | Fault::PodsHeldBack => {
                let plural = if fault == Fault::AtsHeldBack {
                    "ats"
                } else {
                    "pods"
                };
                self.server.watches(watches(plural)).hold();
                self.later(move |c| {
                    c.server
                        .watches(Target::resource(plural).of_user(FIRST))
                        .release();
                });
                Decision::Forward
            }
            Fault::WatchesCut => {
                self.server.watches(all).cut();
                Decision::Forward
            }
            Fault::WatchesGone => {
                self.server.watches(all).gone();
                Decision::Forward
            }
            Fault::WatchesSilent => {
                self.server.watches(all).silence();
                Decision::Forward
            }
            Fault::ListsRefused => {
                self.server.watches(all.clone()).cut();
                self.server.watches(all).refuse(failed(403, "Forbidden"));
                self.later(|c| c.server.watches(Target::all().of_user(FIRST)).allow());
                Decision::Forward
            }
        }
    }

    /// The object that a call is about: that of its own, or the At where it has none.
    fn target(site: &Site) -> (String, String) {
        match site.resource.split('/').next() {
            Some("pods") if !site.name.is_empty() => ("pods".to_owned(), site.name.clone()),
            _ => ("ats".to_owned(), "a".to_owned()),
        }
    }

    /// A foreign hand.
    fn meddle(&self, fault: Fault, kind: &str, name: &str) {
        let Some(mut object) = self.get(kind, name) else {
            return;
        };
        match fault {
            Fault::EditBefore => {
                let note = json!({"metadata": {"annotations": {"example.com/edited": "yes"}}});
                self.patch(kind, name, &note);
            }
            Fault::DeleteHalfDone if kind == "pods" => {
                let _ = self.server.direct().begin_delete(kind, NAMESPACE, name);
                let (cluster, name) = (self.clone(), name.to_owned());
                tokio::spawn(async move {
                    sleep(HALF_OF_A_DELETION).await;
                    cluster.delete_at_once("pods", &name);
                });
            }
            // What has no grace period is deleted in one step.
            Fault::DeleteBefore | Fault::DeleteHalfDone => self.delete_at_once(kind, name),
            _ => {
                self.delete_at_once(kind, name);
                // An At as it was; or a pod that is not of it, gate or no gate.
                let mut again = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
                    "metadata": {"name": name, "namespace": NAMESPACE, "labels": object["metadata"]["labels"]},
                    "spec": object["spec"].take()});
                if kind == "pods" {
                    let gates = again["spec"]["schedulingGates"].take();
                    again["spec"] = json!({"containers": [{"name": "foreign", "image": "i"}], "schedulingGates": gates});
                }
                // Something may hold the first one.
                let _ = self.server.direct().create(again);
            }
        }
    }

    /// The cluster's policies, which apply to operators.
    pub fn admission(&self) -> MutexGuard<'_, Policy> {
        locked(&self.policy)
    }

    pub fn create(&self, kind: &str, object: Value) {
        let created = self.server.direct().create(object);
        // A fault's foreign hand may have been faster.
        created.unwrap_or_else(|status| panic!("{kind}: {}", status.message));
    }

    /// What is gone by now needs no change.
    pub fn patch(&self, kind: &str, name: &str, change: &Value) {
        let _ = self.server.direct().patch(kind, NAMESPACE, name, change);
    }

    pub fn delete(&self, kind: &str, name: &str) {
        let _ = self.server.direct().delete(kind, NAMESPACE, name);
    }

    pub fn delete_at_once(&self, kind: &str, name: &str) {
        let options = json!({"gracePeriodSeconds": 0});
        let _ = self
            .server
            .direct()
            .delete_with(kind, NAMESPACE, name, &options);
    }

    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.server.direct().get(kind, NAMESPACE, name)
    }

    /// What stands at a place in the At `a`.
    pub fn at(&self, pointer: &str) -> Option<Value> {
        self.get("ats", "a")?.pointer(pointer).cloned()
    }

    pub fn phase(&self) -> String {
        self.text("/status/phase")
    }

    /// The reason that the status of the At shows.
    pub fn reason(&self) -> String {
        self.text("/status/reason")
    }

    /// The reason of a condition of the At.
    pub fn condition(&self, type_: &str) -> String {
        let at = self.get("ats", "a").unwrap_or_default();
        let found = judge::condition(&at, type_);
        found
            .map(|(_, reason)| reason.to_owned())
            .unwrap_or_default()
    }

    fn text(&self, pointer: &str) -> String {
        let value = self.at(pointer);
        value
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    pub fn pod_phase(&self) -> String {
        let pod = self.get("pods", POD).unwrap_or_default();
        pod["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits for a condition on the objects; a fault may make it impossible, and then the script goes on without.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let met = async {
            let mut seen = 0;
            while !condition(self) {
                seen = self.server.changed(seen).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, met).await;
    }

    pub async fn sleep(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    pub fn set_clock(&self, seconds: i64) {
        self.server.clock().step(TimeDelta::seconds(seconds));
    }

    /// Somebody with rights on pods removes a gate.
    pub fn remove_gate(&self, pod: &str, gate: &str) {
        let _ = self.server.direct().edit("pods", NAMESPACE, pod, |pod| {
            if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
                gates.retain(|known| known["name"] != gate);
            }
        });
    }

    /// The eviction of a pod by its kubelet.
    pub fn evict(&self, pod: &str) {
        let status = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}});
        let _ = self
            .server
            .direct()
            .patch_status("pods", NAMESPACE, pod, &status);
    }

    /// The node is lost: its pods are marked for deletion, and go when the Node object does.
    pub async fn lose_the_node(&self) {
        self.kubelet.lose(NODE);
        self.until(|c| {
            c.get("pods", POD)
                .is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
        self.sleep(60).await;
        self.delete_at_once("pods", POD);
    }
}
