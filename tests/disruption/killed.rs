//! The promise that matters most: never twice, whenever the operator dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};

use crate::cluster;
use crate::harness::{Kubectl, Operator, operator_kubeconfig, wait_for};

const KILLS: u32 = 50;
const ATS: u32 = 40;

/// A small generator (xorshift64*), so that a printed seed replays the kills.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }
}

// Shown when the test fails.
#[allow(clippy::print_stdout)]
fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a number"),
        Err(_) => u64::try_from(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos(),
        )
        .unwrap_or(1),
    };
    println!("SEED={seed} replays the moments of the kills");
    seed.max(1)
}

/// For each pod name, the UIDs of all pods that were ever seen without a scheduling gate.
type Released = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

async fn record(pods: Api<Pod>, released: Released) {
    let events = watcher(pods, watcher::Config::default()).default_backoff();
    let seen = |pod: Pod| {
        let gates = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.scheduling_gates.as_ref());
        if gates.is_none_or(Vec::is_empty) {
            let mut released = released.lock().unwrap();
            let uids = released.entry(pod.name_any()).or_default();
            uids.insert(pod.uid().unwrap());
        }
    };
    events
        .try_for_each(|event| {
            match event {
                watcher::Event::Apply(pod)
                | watcher::Event::InitApply(pod)
                | watcher::Event::Delete(pod) => {
                    seen(pod);
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
            futures::future::ready(Ok(()))
        })
        .await
        .expect("the recorder's watch failed");
}

#[tokio::test]
async fn an_operator_killed_at_random_releases_one_pod_of_each_at() {
    let mut random = Random(seed());
    let cluster = cluster().await;
    let namespace = cluster.namespace("killed").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let seen = Released::default();
    let pods = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let recorder = tokio::spawn(record(pods, seen.clone()));

    // They come due all through the time of the kills.
    let now = chrono::Utc::now();
    let objects: Vec<String> = (0..ATS)
        .map(|number| {
            let due = now + chrono::TimeDelta::milliseconds(2_000 + i64::from(number) * 1_000);
            format!(
                "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: a{number}}}, spec: {{schedule: '{}', command: echo YAY}}}}",
                due.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
            )
        })
        .collect();
    kubectl.apply(&objects.join("\n---\n")).good();

    let kubeconfig = operator_kubeconfig(cluster).await;
    let flags = ["--webhooks=false", "--namespace", &namespace];
    for _ in 0..KILLS {
        let operator = Operator::spawn(cluster, "killed", &kubeconfig, &flags);
        // Long enough to come to its work most times, short enough to die in the middle of it.
        tokio::time::sleep(Duration::from_millis(100 + random.below(1_200))).await;
        operator.process.kill();
        operator.process.wait().await;
    }
    let operator = Operator::spawn(cluster, "killed", &kubeconfig, &flags);
    wait_for("every At to be DONE", || {
        let phases = kubectl
            .run("get ats -o jsonpath={.items[*].status.phase}")
            .good();
        let done = phases.split(' ').filter(|phase| *phase == "DONE").count();
        (done == ATS as usize).then_some(())
    })
    .await;
    operator.process.stop(Duration::from_secs(10)).await;
    recorder.abort();

    let released = seen.lock().unwrap();
    for number in 0..ATS {
        let at = format!("at/a{number}");
        let uids = released
            .get(&format!("a{number}-pod"))
            .cloned()
            .unwrap_or_default();
        assert_eq!(uids.len(), 1, "{at}: pods released: {uids:?}");
        let armed = kubectl.field(&at, "{.status.podUID}");
        assert!(uids.contains(&armed), "{at}: {armed} is not among {uids:?}");
        assert_eq!(kubectl.field(&at, "{.status.result}"), "Succeeded", "{at}");
    }
}
