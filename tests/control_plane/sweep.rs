//! A sample of the fault sweep of `tests/offline/sweep` on a real API server.
//!
//! There the API server is simulated, so the sweep shows what the operator does if that simulation is right. Here the
//! API server, its watches, the scheduler and the garbage collector are real. Each run has a namespace, an At and an
//! operator in this process, one of whose calls meets a fault. One undisturbed run shows which calls there are.
//!
//! `REPLAY=<part of a name>` runs the faults of that name alone.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::http::{Method, Request, Response, header};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::client::Body;
use kube::{Api, Client, Resource, ResourceExt as _};
use my_operator_cluster::Cluster;
use my_operator_rounds::lengths;
use resilient_kube_client::Answers;
use resilient_kube_client::clock;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer as _};

use crate::disruption::cluster;
use crate::harness::in_process;
use crate::harness::pods::Recorder;
use crate::harness::record::{self, Record};
use crate::harness::{TIMEOUT, seed, try_wait};

/// The gate that holds a pod of an At back.
const GATE: &str = "cnat.programming-kubernetes.info/armed";
/// The At of a run, and its pod.
const AT: &str = "a";
const POD: &str = "a-pod";
/// An At that is suspended: its status shows that the operator is past what happened before.
const WITNESS: &str = "witness";
/// Runs at the same time. They mostly wait.
const AT_ONCE: usize = 20;
/// The first calls of a read that the operator repeats stand for all of them.
const READS: usize = 2;

/// A call of the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    verb: &'static str,
    /// The plural, with the subresource.
    resource: String,
    /// How many calls of this verb and resource came before.
    nth: usize,
}

impl Site {
    fn new(method: &Method, path: &str, is_watch: bool, earlier: &[Self]) -> Self {
        let path: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        // /api/VERSION/..., /apis/GROUP/VERSION/...
        let path = if path[0] == "api" {
            &path[2..]
        } else {
            &path[3..]
        };
        let path = match path {
            ["namespaces", _, inside @ ..] if !inside.is_empty() => inside,
            all => all,
        };
        let verb = match (method.as_str(), path) {
            ("GET", [_]) if is_watch => "watch",
            ("GET", [_]) => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", _) => "delete",
            _ => panic!("{method} {path:?}"),
        };
        let resource = match path {
            [plural, _, subresource] => format!("{plural}/{subresource}"),
            all => all[0].to_owned(),
        };
        let same = |site: &&Self| site.verb == verb && site.resource == resource;
        Self {
            nth: earlier.iter().filter(same).count(),
            verb,
            resource,
        }
    }

    fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} #{}", self.verb, self.resource, self.nth)
    }
}

/// What can go wrong at a call.
#[derive(Debug)]
struct Fault {
    name: &'static str,
    carried_out: When,
    then: Then,
}

/// When the API server carries out a call.
#[derive(Debug, PartialEq, Eq)]
enum When {
    Never,
    Now,
    /// When the At is done.
    Later,
}

/// What the operator gets instead of the answer.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    ConnectionError,
    /// An answer with that code and reason.
    Failure(u16, &'static str),
    /// It dies, and is started again.
    Crash,
    /// The API server's answer, but a foreign client has replaced the pod by one of the same name right before the call.
    PodReplaced,
}

impl Fault {
    const fn new(name: &'static str, carried_out: When, then: Then) -> Self {
        Self {
            name,
            carried_out,
            then,
        }
    }

    /// Whether the fault makes a difference of its own at that call: a read changes nothing, so a lost answer is like a
    /// lost request, and no API server answers a read with 409 or 422.
    fn applies(&self, site: &Site) -> bool {
        match self.then {
            // The pod is committed and still has its gate.
            Then::PodReplaced => site.verb == "patch" && site.resource == "pods",
            Then::Failure(409 | 422, _) => !site.is_read(),
            _ => self.carried_out == When::Never || !site.is_read(),
        }
    }
}

/// Every fault.
const FAULTS: &[Fault] = {
    use Then::{ConnectionError, Crash, Failure, PodReplaced};
    use When::{Later, Never, Now};
    &[
        Fault::new("Lost", Never, ConnectionError),
        Fault::new("Unanswered", Now, ConnectionError),
        Fault::new("Late", Later, ConnectionError),
        Fault::new("Conflict", Never, Failure(409, "Conflict")),
        Fault::new("TooManyRequests", Never, Failure(429, "TooManyRequests")),
        Fault::new("InternalError", Never, Failure(500, "InternalError")),
        Fault::new(
            "InternalErrorThoughDone",
            Now,
            Failure(500, "InternalError"),
        ),
        Fault::new("TimeoutThoughDone", Now, Failure(504, "Timeout")),
        Fault::new("Forbidden", Never, Failure(403, "Forbidden")),
        Fault::new("Invalid", Never, Failure(422, "Invalid")),
        Fault::new("CrashBefore", Never, Crash),
        Fault::new("CrashAfter", Now, Crash),
        Fault::new("PodReplaced", Now, PodReplaced),
    ]
};

/// What goes wrong in a run.
type Disturbance = Option<(Site, &'static Fault)>;

fn name((site, fault): &(Site, &'static Fault)) -> String {
    format!("{site} / {}", fault.name)
}

/// The connection of the operators of one run.
struct Connection {
    client: Client,
    namespace: String,
    disturbance: Disturbance,
    /// The call that is carried out later.
    late: Mutex<Option<Request<Body>>>,
    /// The calls so far.
    sites: Mutex<Vec<Site>>,
    crash: Notify,
}

impl Connection {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let uri = request.uri();
        let is_watch = uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let site = {
            let mut sites = self.sites.lock().unwrap();
            let site = Site::new(request.method(), uri.path(), is_watch, &sites);
            sites.push(site.clone());
            site
        };
        let Some((_, fault)) = self.disturbance.as_ref().filter(|(at, _)| *at == site) else {
            return Ok(self.client.send(request).await?);
        };
        if fault.then == Then::PodReplaced {
            self.replace_pod().await?;
            return Ok(self.client.send(request).await?);
        }
        match fault.carried_out {
            When::Never => {}
            // The API server answers when it has carried the call out.
            When::Now => drop(self.client.send(request).await?),
            When::Later => *self.late.lock().unwrap() = Some(request),
        }
        match fault.then {
            Then::ConnectionError | Then::PodReplaced => Err("the connection broke".into()),
            Then::Failure(code, reason) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "code": code, "reason": reason, "message": "a fault of the test"});
                let mut answer = Response::builder().status(code);
                answer = answer.header(header::CONTENT_TYPE, "application/json");
                if code == 429 {
                    answer = answer.header(header::RETRY_AFTER, "1");
                }
                Ok(answer.body(Body::from(status.to_string().into_bytes()))?)
            }
            Then::Crash => {
                self.crash.notify_one();
                std::future::pending().await
            }
        }
    }

    /// Makes the pod again, as its owner would, but with another UID.
    async fn replace_pod(&self) -> kube::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut pod = pods.get(POD).await?;
        pods.delete(POD, &DeleteParams::default().grace_period(0))
            .await?;
        pod.metadata.resource_version = None;
        pod.metadata.uid = None;
        pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// Lets a late call come to the API server, if there is one.
    async fn carry_out_late(&self) {
        let late = self.late.lock().unwrap().take();
        if let Some(request) = late {
            // The API server may reject it. No caller is left that waits for the answer.
            self.client.send(request).await.unwrap();
        }
    }

    /// Runs the operator for Ats, and starts it again when it has crashed.
    async fn operate(self: &Arc<Self>) -> Infallible {
        loop {
            tokio::select! {
                ended = self.live() => panic!("the operator ended: {ended:?}"),
                () = self.crash.notified() => {}
            }
        }
    }

    /// A process of the operator, which dies when this is dropped.
    async fn live(self: &Arc<Self>) -> Result<(), impl fmt::Debug + use<>> {
        let connection = Arc::clone(self);
        let service = tower::service_fn(move |request| {
            let connection = Arc::clone(&connection);
            async move { connection.call(request).await }
        });
        let client = Client::new(Answers::default().layer(service), &self.namespace);
        let namespaces = vec![self.namespace.clone()];
        let stop = CancellationToken::new();
        in_process::reconcile(
            in_process::kind("at"),
            client,
            clock::system(),
            namespaces,
            stop,
        )
        .await
    }
}

/// A version of an object.
struct Version {
    /// Its place in the order of all versions of a cluster.
    number: u64,
    object: Value,
    /// The object went with this version.
    is_gone: bool,
}

impl Version {
    fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap()
    }

    fn status(&self, field: &str) -> &Value {
        &self.object["status"][field]
    }
}

/// Every version in a record of an object of that name.
fn versions<K: Resource + Serialize>(events: &[record::Event<K>], name: &str) -> Vec<Version> {
    let of_it = events
        .iter()
        .filter(|event| event.object.meta().name.as_deref() == Some(name));
    let version = |event: &record::Event<K>| Version {
        number: event.version,
        object: serde_json::to_value(&event.object).unwrap(),
        is_gone: event.gone,
    };
    of_it.map(version).collect()
}

fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

fn is_true(at: &Value, condition: &str) -> bool {
    let conditions = at["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}

/// What is wrong with a run, of which these are all versions of the At and of its pods. The versions of all objects of a
/// cluster are in one order.
fn broken_promises(ats: &[Version], pods: &[Version], is_replaced: bool) -> Vec<String> {
    let mut broken = Vec::new();
    let mut left = BTreeSet::new();
    for pod in pods {
        if pod.is_gone {
            left.remove(pod.uid());
        } else {
            left.insert(pod.uid());
        }
    }
    let released: Vec<&Version> = pods.iter().filter(|pod| !is_gated(&pod.object)).collect();
    let released_uids: BTreeSet<&str> = released.iter().map(|pod| pod.uid()).collect();
    let release = released.first().map(|pod| pod.number);
    for at in ats {
        let claims = [
            ("Started is True", is_true(&at.object, "Started")),
            ("startTime is set", !at.status("startTime").is_null()),
        ];
        for (claim, _) in claims.iter().filter(|(_, is_made)| *is_made) {
            if release.is_none_or(|release| release > at.number) {
                broken.push(format!("{claim}, and no pod was released by then"));
            }
        }
    }
    let commit = ats.iter().find(|at| !at.status("podUID").is_null());
    if release.is_some_and(|release| commit.is_none_or(|commit| commit.number > release)) {
        broken.push("a pod was released before its UID was in the status".to_owned());
    }
    for pair in ats.windows(2) {
        for field in ["podUID", "result", "completionTime", "exitCode"] {
            let (before, after) = (pair[0].status(field), pair[1].status(field));
            if !before.is_null() && before != after {
                broken.push(format!("{field} was {before} and became {after}"));
            }
        }
    }
    // The first pod that was made is the only one that may ever run.
    let pod = pods.first().map(Version::uid);
    let run = pod.filter(|_| !is_replaced);
    for (uids, what) in [(&released_uids, "released"), (&left, "left")] {
        if !uids.iter().copied().eq(run) {
            broken.push(format!("these pods were {what}: {uids:?}"));
        }
    }
    let Some(end) = ats.last() else {
        return vec!["there was no At".to_owned()];
    };
    let (result, exit_code) = if is_replaced {
        ("Unknown", Value::Null)
    } else {
        ("Succeeded", json!(0))
    };
    for (field, expected) in [
        ("phase", json!("DONE")),
        ("result", json!(result)),
        ("exitCode", exit_code),
        ("podUID", json!(pod)),
    ] {
        let found = end.status(field);
        if *found != expected {
            broken.push(format!("{field} is {found}, and not {expected}"));
        }
    }
    for (condition, expected) in [
        ("Started", !is_replaced),
        ("Complete", !is_replaced),
        ("Failed", is_replaced),
        ("Finished", true),
    ] {
        if is_true(&end.object, condition) != expected {
            broken.push(format!("{condition} is not {expected} at the end"));
        }
    }
    broken
}

/// What a run came to.
struct Run {
    sites: Vec<Site>,
    broken: Vec<String>,
}

/// An At with the fields that the webhook would add.
fn at(name: &str, is_suspended: bool) -> DynamicObject {
    let at = json!({
        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At", "metadata": {"name": name},
        "spec": {"schedule": "now", "command": "exit 0", "image": "bash:5.3", "shell": ["bash", "-c"], "suspend": is_suspended},
    });
    serde_json::from_value(at).unwrap()
}

/// Runs an At in a namespace of its own.
async fn run(cluster: &Cluster, client: Client, disturbance: Disturbance) -> Run {
    let namespace = cluster.namespace("sweep").await.unwrap();
    let gvk = GroupVersionKind::gvk("cnat.programming-kubernetes.info", "v1alpha1", "At");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "ats");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let pods = Recorder::start(client.clone(), &namespace).await;
    let ats = Record::start(api.clone()).await;
    let connection = Arc::new(Connection {
        client,
        namespace,
        disturbance,
        late: Mutex::default(),
        sites: Mutex::default(),
        crash: Notify::new(),
    });
    // Whether the newest status of an At says so.
    let until = async |name: &str, says: fn(&Value) -> bool| {
        let said = async || {
            let newest = ats.look(|events| {
                let mut events = events.iter().rev();
                let newest = events.find(|event| event.object.name_any() == name)?;
                Some(newest.object.data["status"].clone())
            });
            newest.filter(says)
        };
        try_wait(TIMEOUT, said).await.is_some()
    };
    let create = async |at: DynamicObject| {
        api.create(&PostParams::default(), &at).await.unwrap();
    };
    let script = async {
        create(at(AT, false)).await;
        let is_done = until(AT, |status| status["phase"] == "DONE").await;
        connection.carry_out_late().await;
        create(at(WITNESS, true)).await;
        let is_past = is_done && until(WITNESS, |status| status["reason"] == "Suspended").await;
        pods.end().await;
        (is_done, is_past)
    };
    let (is_done, is_past) = tokio::select! {
        never = connection.operate() => match never {},
        ends = script => ends,
    };
    let ats = ats.look(|events| versions(events, AT));
    let pods = pods.events.look(|events| versions(events, POD));
    let sites = connection.sites.lock().unwrap().clone();
    let disturbance = connection.disturbance.as_ref();
    let fault = disturbance.filter(|(site, _)| sites.contains(site));
    let is_replaced = fault.is_some_and(|(_, fault)| fault.then == Then::PodReplaced);
    let mut broken = broken_promises(&ats, &pods, is_replaced);
    if is_done && !is_past {
        broken.push("the operator does not go on".to_owned());
    }
    Run { sites, broken }
}

/// One fault at one call, on a real API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "for tests")]
async fn an_at_stays_true_whichever_call_fails() {
    let mut random = fastrand::Rng::with_seed(seed("the faults, and the calls that they befall"));
    let cluster = cluster().await;
    let client = cluster.client().await.unwrap();
    let calm = run(cluster, client.clone(), None).await;
    assert!(calm.broken.is_empty(), "undisturbed: {:?}", calm.broken);

    let sites: BTreeSet<Site> = calm.sites.into_iter().collect();
    let sites: Vec<Site> = sites
        .into_iter()
        .filter(|site| !site.is_read() || site.nth < READS)
        .collect();
    let all = sites.iter().flat_map(|site| {
        let faults = FAULTS.iter().filter(|fault| fault.applies(site));
        faults.map(|fault| (site.clone(), fault))
    });
    let mut all: Vec<(Site, &'static Fault)> = all.collect();
    let count = all.len();
    if let Ok(only) = std::env::var("REPLAY") {
        all.retain(|disturbance| name(disturbance).contains(&only));
    } else {
        random.shuffle(&mut all);
        all.truncate(lengths::faults_on_a_real_api_server());
    }

    let start = Instant::now();
    let runs = all.into_iter().map(|disturbance| {
        let client = client.clone();
        async move {
            let run = run(cluster, client, Some(disturbance.clone())).await;
            (disturbance, run)
        }
    });
    let runs: Vec<_> = futures::stream::iter(runs)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let (mut befell, mut failures) = (0, Vec::new());
    for (disturbance, run) in &runs {
        let name = name(disturbance);
        befell += usize::from(run.sites.contains(&disturbance.0));
        if !run.broken.is_empty() {
            failures.push(format!("{name}\n{}", run.broken.join("\n")));
        }
    }
    println!(
        "{} of {count} faults at {} calls, of which {befell} happened, in {:.1?}",
        runs.len(),
        sites.len(),
        start.elapsed()
    );
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    // A call may be left out in another run: two writes of the status become one. But not many.
    assert!(befell * 4 >= runs.len() * 3, "{befell} of {}", runs.len());
}
