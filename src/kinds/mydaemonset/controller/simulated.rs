//! The controller as it is, on a simulated API server with kubelets, while calls fail.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Resource as _;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use simulated_apiserver::{
    ChangeKind, Decision, Kubelet, KubeletOptions, Options, Resource, Server, Site, Status, Verb,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kinds::mydaemonset::crd::MyDaemonSet;
use crate::reconcile::event;
use crate::reconcile::health::Health;

const OPERATOR: &str = "operator";
/// Longer than any pause after failures, and than every doubt about a call.
const SETTLED: Duration = Duration::from_mins(10);

/// A cluster, and the controller in it.
struct World {
    server: Server,
    /// It runs the pods until it is dropped.
    _kubelet: Kubelet,
}

impl World {
    /// So many nodes, and a set with an available pod on each.
    async fn running(nodes: usize, strategy: &Value) -> Self {
        let server = Server::new(Options {
            namespaces: vec!["ns".to_owned()],
            ..Options::default()
        });
        server.register(Resource::of::<MyDaemonSet>());
        let kubelet = server.kubelet(KubeletOptions::default());
        for node in 0..nodes {
            kubelet.add_node(&format!("n{node}"));
        }
        let wall = server.clock().clone();
        let clock: crate::clock::Clock = Arc::new(move || wall.now());
        let client = server.client(OPERATOR);
        let (events, teller) = event::events(client.clone(), clock.clone());
        let mut registry = Registry::default();
        let stop = CancellationToken::new();
        let context = Context {
            client,
            namespaces: Vec::new(),
            workers: 4,
            node_not_ready_grace: chrono::TimeDelta::seconds(60),
            clock,
            events,
            metrics: crate::reconcile::metrics::Metrics::new(&mut registry),
            registry: Arc::new(Mutex::new(registry)),
            health: Health::default(),
            stop: stop.clone(),
        };
        tokio::spawn(teller.run(stop));
        tokio::spawn(run(context));
        let world = Self {
            server,
            _kubelet: kubelet,
        };
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

    /// How many pods with that image are Ready and stay.
    fn ready_of(&self, image: &str) -> usize {
        let pods = self.server.direct().list("pods", "ns").into_iter();
        pods.filter(|pod| serves(pod) && pod["spec"]["containers"][0]["image"] == image)
            .count()
    }

    /// This becomes of calls about pods, one after the other; the others are carried out.
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

    /// The most nodes for which that was true at a time, from that version on: of the node's pods, whether each serves
    /// and whether each stays.
    fn most(&self, from: u64, counts: impl Fn(&[(bool, bool)]) -> bool) -> usize {
        let mut pods: BTreeMap<String, Value> = BTreeMap::new();
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
            let nodes = self.server.direct().list("nodes", "");
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
}

fn stays(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

fn serves(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
    stays(pod) && conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
}

/// What becomes of a call without a definite answer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Failed(u16),
    FailedThoughDone(u16),
    Lost,
    Unanswered,
    /// The connection breaks, and the call is carried out after so many seconds.
    LostThenLate(u64),
    /// There is no answer, and the call is carried out after so many seconds.
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

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_definite_answer_takes_no_other_node_down() {
    for fault in Fault::ALL {
        for many in [1, 4] {
            let world = World::running(6, &json!({"maxUnavailable": 1})).await;
            world.pod_calls(Verb::Delete, move |nth| {
                if nth < many {
                    fault.decision()
                } else {
                    Decision::Forward
                }
            });
            let from = world.server.version();
            world.set_image("a:2");
            sleep(SETTLED).await;
            let unavailable =
                world.most(from, |pods| pods.iter().all(|(is_serving, _)| !is_serving));
            assert_eq!(unavailable, 1, "{fault:?} {many}");
            assert_eq!(world.ready_of("a:2"), 6, "{fault:?} {many}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_surge_without_a_definite_answer_begins_no_other() {
    for fault in Fault::ALL {
        for many in [1, 4] {
            let world = World::running(6, &json!({"maxUnavailable": 0, "maxSurge": 1})).await;
            world.pod_calls(Verb::Create, move |nth| {
                // The first is the trial.
                if (1..=many).contains(&nth) {
                    fault.decision()
                } else {
                    Decision::Forward
                }
            });
            let from = world.server.version();
            world.set_image("a:2");
            sleep(SETTLED).await;
            let surging = world.most(from, |pods| {
                pods.iter().filter(|(_, is_staying)| *is_staying).count() > 1
            });
            let unavailable =
                world.most(from, |pods| pods.iter().all(|(is_serving, _)| !is_serving));
            assert_eq!((surging, unavailable), (1, 0), "{fault:?} {many}");
            assert_eq!(world.ready_of("a:2"), 6, "{fault:?} {many}");
        }
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
    let pods = world.server.direct().list("pods", "ns");
    let names: BTreeSet<&str> = pods
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    let mut names = names.iter().cycle();
    for flap in 0..300 {
        let name = names.next().unwrap();
        let edited = world
            .server
            .direct()
            .edit_status("pods", "ns", name, |pod| {
                let is_ready = if (flap / 100) % 2 == 0 {
                    "False"
                } else {
                    "True"
                };
                for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["type"] == "Ready" {
                        condition["status"] = json!(is_ready);
                    }
                }
            });
        edited.unwrap();
        sleep(Duration::from_millis(200)).await;
    }
    // A minute with five changes a second.
    let mut calls: Vec<_> = world.calls_by_second(Verb::Delete).into_iter().collect();
    calls.retain(|(second, _)| *second >= start.as_secs());
    assert!(calls.iter().all(|(_, calls)| *calls == 1), "{calls:?}");
    let pauses = calls.windows(2).map(|two| two[1].0 - two[0].0);
    assert!(pauses.clone().all(|pause| pause >= 7), "{calls:?}");
    assert!(calls.len() >= 3, "{calls:?}");
}
