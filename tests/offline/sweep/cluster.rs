//! One run: a simulated cluster, operators in it, and what the scenario does to both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use my_operator_harness::in_process;
use my_operator_kind::manager::MANAGER;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use simulated_apiserver::{
    Decision, Kubelet, KubeletOptions, Options, Review, Run, Server, Site, Status, Target, Verb,
};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use wall_clock_controller::reconcile::{Context, Shard};

use super::changes;
use super::faults::Fault;
use super::mutants::{Mutant, Mutated};
use super::policy::Policy;
use super::subject::Subject;

/// The namespace of the object of the scenario.
pub const NAMESPACE: &str = "ns";
/// Another namespace.
pub const OTHER: &str = "other";

/// The last argument of a pod; empty if it has none.
pub fn command(pod: &Value) -> &str {
    let container = &pod["spec"]["containers"][0];
    let words = ["command", "args"]
        .iter()
        .filter_map(|field| container[field].as_array());
    let last = words.flatten().last().and_then(Value::as_str);
    last.unwrap_or_default()
}

/// How a pod runs whose last argument is the command `exit CODE`, which takes two seconds, or `sleep SECONDS`, which takes as
/// long as it says. Others go on for ever.
pub fn run_of_command(pod: &Value) -> Run {
    let (runs, exit_code) = match command(pod).split_once(' ') {
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

/// Runs something on virtual time.
pub fn on_virtual_time<T>(act: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(act)
}

/// The operator that meets the faults. A process that is started again has the same name.
pub const FIRST: &str = "operator-1";
/// Another replica.
pub const SECOND: &str = "operator-2";

/// The process of another shard.
pub const OF_ANOTHER_SHARD: &str = "operator-3";

/// How long a process takes to start again, and a replica to take over.
const RESTART: Duration = Duration::from_secs(2);
/// How long a fault lasts that lasts.
const LASTS: Duration = Duration::from_secs(20);
/// How long a slow call takes.
const SLOW: Duration = Duration::from_secs(8);
/// How long etcd may store nothing.
const STALL: Duration = Duration::from_secs(12);
/// When a late call is carried out.
const LATE: Duration = Duration::from_mins(1);
/// How long a deletion may be half done.
const HALF_OF_A_DELETION: Duration = Duration::from_millis(20);
/// What the API server asks for in `Retry-After`.
pub const RETRY_AFTER: Duration = Duration::from_secs(7);
/// How long a step of a scenario waits for its condition.
const TIMEOUT: Duration = Duration::from_mins(10);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub server: Server,
    pub kubelet: Arc<Kubelet>,
    subject: &'static dyn Subject,
    mutant: Option<&'static Mutant>,
    operators: Arc<Mutex<BTreeMap<&'static str, Operator>>>,
    /// What the operator works in that meets the faults.
    shard: Arc<Mutex<Shard>>,
    /// When each process started, in virtual time.
    starts: Arc<Mutex<Vec<(&'static str, Duration)>>>,
    policy: Arc<Mutex<Policy>>,
    /// The resourceVersion with which the scenario began. No API server is so far behind that it knows no nodes.
    first: u64,
    outage: Arc<Mutex<Option<Outage>>>,
    /// The creation of a pod in the other namespace gets no answer.
    other_hangs: Arc<AtomicBool>,
}

/// Something that befalls all requests of the first operator for a while.
#[derive(Clone, Copy)]
struct Outage {
    fault: Fault,
    /// In virtual time.
    until: Duration,
}

/// A process of the operator.
struct Operator {
    stop: CancellationToken,
    task: AbortHandle,
    /// Its metrics.
    registry: Arc<Mutex<Registry>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Cluster {
    /// The cluster of a kind, with no operator yet.
    pub fn new(subject: &'static dyn Subject, mutant: Option<&'static Mutant>) -> Self {
        let server = Server::new(Options {
            namespaces: vec![NAMESPACE.to_owned(), OTHER.to_owned()],
            ..Options::default()
        });
        in_process::register(&server);
        let policy: Arc<Mutex<Policy>> = Arc::default();
        let judge = policy.clone();
        server.admit(move |review: &mut Review<'_>| locked(&judge).review(review));
        let kubelet = server.kubelet(KubeletOptions {
            run: Arc::new(|pod: &Value| subject.run(pod)),
            ..KubeletOptions::default()
        });
        subject.surround(&server);
        for node in subject.nodes() {
            kubelet.add_node(node);
        }
        server.clock().step(subject.age_of_nodes());
        let first = server.version();
        Self {
            server,
            kubelet: Arc::new(kubelet),
            subject,
            mutant,
            operators: Arc::default(),
            shard: Arc::new(Mutex::new(Shard::ALL)),
            starts: Arc::default(),
            policy,
            first,
            outage: Arc::default(),
            other_hangs: Arc::default(),
        }
    }

    /// Starts a process of the operator.
    pub fn start(&self, name: &'static str) {
        let mut client = self.server.client(name);
        if let Some(mutant) = self.mutant {
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
        let ahead = self.mutant.map_or(0, |mutant| mutant.clock);
        let clock = in_process::simulated_clock(&self.server, ahead);
        let kind = in_process::kind(self.subject.kind());
        let (mut context, publisher) = Context::new(client, clock, MANAGER);
        let ours = *locked(&self.shard);
        let other = || Shard::all(ours.count()).find(|shard| *shard != ours);
        context.shard = match name {
            OF_ANOTHER_SHARD => other().unwrap(),
            _ => ours,
        };
        let (stop, registry) = (context.stop.clone(), context.registry.clone());
        let life = in_process::run(kind, context, publisher);
        let task = tokio::spawn(async { life.await.unwrap() }).abort_handle();
        locked(&self.starts).push((name, self.server.clock().elapsed()));
        locked(&self.operators).insert(
            name,
            Operator {
                stop,
                task,
                registry,
            },
        );
    }

    /// The page of metrics of the operator, if there is one and no other.
    pub fn figures(&self) -> Option<String> {
        let operators = locked(&self.operators);
        let only = operators.values().next().filter(|_| operators.len() == 1)?;
        let mut page = String::new();
        encode(&mut page, &only.registry.lock()).unwrap();
        Some(page)
    }

    /// When each process started.
    pub fn starts(&self) -> Vec<(&'static str, Duration)> {
        locked(&self.starts).clone()
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
        self.retire().await;
        self.start(SECOND);
    }

    /// Every operator finishes what it has in hand. Then one of two shards has the namespace of the object, and a process of
    /// the other runs beside it.
    pub async fn share(&self) {
        let shard = Shard::all(2).find(|shard| shard.has(NAMESPACE));
        self.start_again_as(shard.unwrap()).await;
        self.start(OF_ANOTHER_SHARD);
    }

    /// One operator works in all namespaces again.
    pub async fn unite(&self) {
        self.start_again_as(Shard::ALL).await;
    }

    async fn start_again_as(&self, shard: Shard) {
        self.retire().await;
        self.end();
        *locked(&self.shard) = shard;
        self.start(FIRST);
    }

    /// The first operator finishes what it has in hand, and ends.
    pub async fn retire(&self) {
        let first = locked(&self.operators).remove(FIRST);
        if let Some(first) = first {
            first.stop.cancel();
            let start = Instant::now();
            while !first.task.is_finished() && start.elapsed() < TIMEOUT {
                sleep(Duration::from_millis(10)).await;
            }
        }
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

    /// What becomes of the call at a site because of an earlier one.
    pub fn during_outage(&self, site: &Site) -> Option<Decision> {
        let outage = (*locked(&self.outage))?;
        let left = outage.until.checked_sub(self.server.clock().elapsed());
        let left = left.filter(|left| !left.is_zero() && site.user == FIRST)?;
        let reads = matches!(site.verb, Verb::Get | Verb::List | Verb::Watch);
        match outage.fault {
            Fault::Stall if reads => None,
            Fault::Stall => Some(Decision::FailedThenLate(Status::timeout(), left)),
            _ => Some(Decision::Answer(Status::too_many_requests(RETRY_AFTER))),
        }
    }

    /// What becomes of a call that no fault befalls.
    pub fn without_fault(&self, site: &Site) -> Decision {
        let creates_a_pod = (site.verb, site.resource.as_str()) == (Verb::Create, "pods");
        let hangs = site.namespace == OTHER && self.other_hangs.load(Ordering::Relaxed);
        if creates_a_pod && hangs {
            Decision::Silent
        } else {
            Decision::Forward
        }
    }

    /// What becomes of the call at a site, when this fault befalls it.
    pub fn decide(&self, fault: Fault, site: &Site) -> Decision {
        let cluster = self.clone();
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
            Fault::Stall | Fault::Throttled => {
                let lasts = if fault == Fault::Stall { STALL } else { LASTS };
                let until = self.server.clock().elapsed() + lasts;
                *locked(&self.outage) = Some(Outage { fault, until });
                self.during_outage(site).unwrap_or(Decision::Forward)
            }
            Fault::Forbidden => Decision::Answer(failed(403, "Forbidden")),
            Fault::Invalid => Decision::Answer(failed(422, "Invalid")),
            Fault::Silent => Decision::Silent,
            Fault::Slow => Decision::Delayed(SLOW),
            Fault::CrashBefore => Decision::CrashBefore(crash(FIRST)),
            Fault::CrashAfter => Decision::CrashAfter(crash(FIRST)),
            Fault::TakenOver => Decision::CrashAfter(crash(SECOND)),
            Fault::CrashAndOldList => Decision::CrashAfter(Box::new(move |server: &Server| {
                cluster.kill(FIRST);
                // What a replica of the API server had some changes ago.
                let lag = cluster.subject.lag();
                server
                    .watches(Target::all().of_user(FIRST))
                    .stale_lists(server.version().saturating_sub(lag).max(cluster.first));
                cluster.start_later(FIRST);
                cluster.later(|c| c.server.watches(Target::all().of_user(FIRST)).fresh_lists());
            })),
            Fault::EditBefore
            | Fault::DeleteBefore
            | Fault::DeleteHalfDone
            | Fault::RecreateBefore => {
                let (kind, name) = self.target(site);
                Decision::Meanwhile(Box::new(move |_| cluster.meddle(fault, &kind, &name)))
            }
            Fault::Own(which) => {
                let site = site.clone();
                Decision::Meanwhile(Box::new(move |_| {
                    cluster.subject.meddle(which, &cluster, &site);
                }))
            }
            Fault::HeldBack(plural) => {
                let held = Target::resource(plural).of_user(FIRST);
                self.server.watches(held.clone()).hold();
                self.later(move |c| c.server.watches(held).release());
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

    /// The object that a call is about: one of the operator's, or that of the scenario where it has none.
    fn target(&self, site: &Site) -> (String, String) {
        let plural = site.resource.split('/').next().unwrap_or_default();
        let (ours, name) = self.subject.object();
        if site.namespace.is_empty() || site.name.is_empty() || plural == "events" {
            return (ours.to_owned(), name.to_owned());
        }
        (plural.to_owned(), site.name.clone())
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
                let mut again = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
                    "metadata": {"name": name, "namespace": NAMESPACE, "labels": object["metadata"]["labels"]},
                    "spec": object["spec"].take()});
                if kind != self.subject.object().0 {
                    again = self.subject.replacement(again);
                }
                // Something may hold the first one.
                let _ = self.server.direct().create(again);
            }
        }
    }

    /// A webhook of the other namespace takes creations of pods and does not answer, or answers again.
    pub fn hang_other(&self, hangs: bool) {
        self.other_hangs.store(hangs, Ordering::Relaxed);
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

    /// What is at a place in the object of the scenario.
    pub fn field(&self, pointer: &str) -> Option<Value> {
        let (plural, name) = self.subject.object();
        self.get(plural, name)?.pointer(pointer).cloned()
    }

    /// The same as text; empty if it is none.
    pub fn text(&self, pointer: &str) -> String {
        let value = self.field(pointer);
        value
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// The reason of a condition of the object of the scenario.
    pub fn condition(&self, type_: &str) -> String {
        let (plural, name) = self.subject.object();
        let object = self.get(plural, name).unwrap_or_default();
        let found = changes::condition(&object, type_);
        found
            .map(|(_, reason)| reason.to_owned())
            .unwrap_or_default()
    }

    /// Waits for a condition on the objects; a fault may make it impossible, and then the script goes on without.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let met = async {
            let mut seen = 0;
            while !condition(self) {
                seen = self.server.changed(seen).await;
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, met).await;
    }

    pub async fn sleep(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    pub fn set_clock(&self, seconds: i64) {
        self.server.clock().step(TimeDelta::seconds(seconds));
    }
}
