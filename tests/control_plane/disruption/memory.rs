//! The largest objects that admission accepts, all stored at once: what they cost the operator in memory, also when it
//! starts again among them.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use futures::StreamExt as _;
use futures::stream;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use my_operator::kinds::at::crd::At;
use my_operator::kinds::mydaemonset::crd::MyDaemonSet;
use my_operator_cluster::{Cluster, Options};
use my_operator_rounds::lengths;
use serde_json::{Value, json};

use crate::disruption::report;
use crate::harness::{self, Operator, OwnPlane, operator_kubeconfig, try_wait};

/// So many requests are under way at a time.
const AT_ONCE: usize = 8;

/// A container of one of the largest specs, with very many small values or few large ones. The rest of the spec fits
/// beside it within the limits of admission.
fn container(name: &str, of_small_values: bool, mark: usize) -> Value {
    if of_small_values {
        let variables = (0..5_200).map(|n| json!({"name": format!("V{n}_{mark}")}));
        json!({"name": name, "image": "busybox:1.37", "env": variables.collect::<Vec<_>>()})
    } else {
        json!({"name": name, "image": "busybox:1.37", "args": ["x".repeat(255 * 1024), mark.to_string()]})
    }
}

/// A `MyDaemonSet` that matches no node, so that it has no pods.
fn daemon_set(n: usize, change: usize) -> Value {
    json!({
        "apiVersion": MyDaemonSet::api_version(&()),
        "kind": "MyDaemonSet",
        "metadata": {"name": format!("worst-{n}")},
        "spec": {"image": "nginx:1.29", "template": {"spec": {
            "nodeSelector": {"no": "such-node"},
            "containers": [container("app", n.is_multiple_of(2), change)],
        }}},
    })
}

fn at(n: usize, due: &str) -> Value {
    json!({
        "apiVersion": At::api_version(&()),
        "kind": "At",
        "metadata": {"name": format!("worst-{n}")},
        "spec": {"schedule": due, "command": "true", "template": {"spec": {
            "containers": [container("sidecar", n.is_multiple_of(2), 0)],
        }}},
    })
}

fn api<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}

/// Does something for each number, a few at a time.
async fn for_each<F: Future<Output = ()>>(count: usize, call: impl Fn(usize) -> F) {
    stream::iter(0..count)
        .map(call)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

/// Waits until the operator has done all that there is to do for every object.
async fn until_settled(
    daemon_sets: &Api<DynamicObject>,
    ats: &Api<DynamicObject>,
    revisions: &Api<DynamicObject>,
    count: usize,
) {
    wait_for_long("every object is settled", async || {
        // As metadata alone: the objects of this test are large.
        let known = revisions
            .list_metadata(&ListParams::default().limit(10_000))
            .await
            .ok()?;
        (known.items.len() >= count).then_some(())
    })
    .await;
    for api in [daemon_sets, ats] {
        wait_for_long("every status is written", async || {
            let mut page = ListParams::default().limit(10);
            loop {
                let list = api.list(&page).await.ok()?;
                let is_settled = |object: &DynamicObject| {
                    let status = &object.data["status"];
                    status["observedGeneration"] == json!(object.metadata.generation)
                        && status["phase"] != "PENDING"
                };
                if !list.items.iter().all(is_settled) {
                    return None;
                }
                page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
                if page.continue_token.is_none() {
                    return Some(());
                }
            }
        })
        .await;
    }
}

/// Longer than other tests wait: each object is as large as a hundred usual ones.
const LONG: Duration = Duration::from_mins(5);

async fn wait_for_long<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = try_wait(LONG, look).await;
    found.unwrap_or_else(|| panic!("timed out: {what}"))
}

fn peak(operator: &Operator) -> usize {
    harness::peak_memory(operator.process.pid())
}

#[tokio::test]
async fn the_largest_objects_that_admission_accepts_fit_into_the_memory_of_the_pod() {
    let plane = OwnPlane::start(Options::with_nodes(&["node-1"])).await;
    let cluster: &'static Cluster = plane.cluster;
    harness::install(cluster).await;
    let mut operator = Operator::start(cluster, "memory", &[]).await;
    let client = harness::client(cluster).await;
    let namespace = "default";
    let daemon_sets = api::<MyDaemonSet>(&client, namespace);
    let ats = api::<At>(&client, namespace);
    let revisions = api::<k8s_openapi::api::apps::v1::ControllerRevision>(&client, namespace);
    let create = async |api: &Api<DynamicObject>, object: Value| {
        let object = serde_json::from_value(object).unwrap();
        let refusal = std::cell::RefCell::new(String::new());
        let let_in = try_wait(LONG, async || {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Some(()),
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    panic!("{}", &status.message[..500.min(status.message.len())])
                }
                Err(error) => {
                    let error = error.to_string();
                    *refusal.borrow_mut() = error.chars().take(500).collect();
                    None
                }
            }
        });
        let let_in = let_in.await;
        let_in.unwrap_or_else(|| panic!("not let in: {}", refusal.borrow()));
    };

    let (many, changes) = (lengths::worst_daemon_sets(), lengths::worst_changes());
    // The current revision, and the ten others of the default history.
    let kept = (changes + 1).min(11);
    for_each(many, |n| create(&daemon_sets, daemon_set(n, 0))).await;
    for change in 1..=changes {
        for_each(many, async |n| {
            let patch = json!({"spec": daemon_set(n, change)["spec"]});
            let name = format!("worst-{n}");
            let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
            daemon_sets.patch(&name, &params, &patch).await.unwrap();
        })
        .await;
    }
    let due_in = TimeDelta::from_std(lengths::worst_ats_due()).unwrap();
    let due = (Utc::now() + due_in).to_rfc3339();
    for_each(lengths::worst_ats(), |n| create(&ats, at(n, &due))).await;
    until_settled(&daemon_sets, &ats, &revisions, many * kept).await;
    let first = peak(&operator);

    operator.process.terminate();
    let kubeconfig = operator_kubeconfig(cluster).await;
    operator = Operator::spawn(cluster, "memory-again", &kubeconfig, &[]);
    operator.until_ready().await;
    // Something that is done only once every cache is filled.
    create(&daemon_sets, daemon_set(many, 0)).await;
    until_settled(&daemon_sets, &ats, &revisions, many * kept + 1).await;
    let second = peak(&operator);
    // Whole pages of such objects would have taken far more.
    assert!(operator.log().contains("listing fewer at a time"));
    let text = format!(
        "{many} MyDaemonSets with {} revisions each, {} Ats due at once: at most {} MiB, after a restart {} MiB",
        kept,
        lengths::worst_ats(),
        first >> 20,
        second >> 20
    );
    report(&text);
    // The limit in the cluster is 256 MiB.
    assert!(first.max(second) >> 20 <= lengths::worst_memory(), "{text}");
    plane.stop().await;
}
