//! A change of a field and the reverse, on live objects: the end is that of an object that was never changed.
//!
//! `tests/offline/sweep/walk.rs` does this with every field of every kind on a simulated API server. Here it is a sample
//! on a real one, with the webhooks, the garbage collector and the built-in controllers.

use futures::future::join_all;
use my_operator_rounds::is_soak;
use serde_json::{Value, json};

use crate::harness::{Kubectl, TIMEOUT, try_wait};
use crate::samples::kubectl;

/// A kind, and what is changed of it.
struct Walk {
    api_version: &'static str,
    kind: &'static str,
    /// Every object has this name, each in a namespace of its own.
    object: &'static str,
    /// What is applied first and last.
    spec: Value,
    /// A place in the spec, and the value that it has in between.
    changes: Vec<(&'static str, Value)>,
    /// The kinds of the objects that it makes.
    children: &'static [&'static str],
}

fn walks() -> Vec<Walk> {
    vec![
        Walk {
            api_version: "apps.zhongmingmao.io/v1beta1",
            kind: "MyDaemonSet",
            object: "mydaemonset/x",
            spec: json!({"image": "a:1", "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}),
            changes: vec![
                ("/image", json!("a:2")),
                ("/minReadySeconds", json!(1)),
                ("/updateStrategy/type", json!("OnDelete")),
                ("/updateStrategy/rollingUpdate/maxSurge", json!(1)),
                ("/updateStrategy/rollingUpdate/paused", json!(true)),
                (
                    "/template/metadata/annotations",
                    json!({"restarted": "now"}),
                ),
                (
                    "/template/spec/nodeSelector",
                    json!({"kubernetes.io/hostname": "node-1"}),
                ),
            ],
            children: &["pods"],
        },
        Walk {
            api_version: "cache.example.com/v1alpha1",
            kind: "Memcached",
            object: "memcached/x",
            spec: json!({"size": 1}),
            changes: vec![
                ("/size", json!(2)),
                ("/image", json!("memcached:1.6-alpine")),
                ("/memory", json!(128)),
            ],
            children: &["deployments"],
        },
        Walk {
            api_version: "stable.example.com/v1",
            kind: "CronTab",
            object: "crontab/x",
            spec: json!({"cronSpec": "0 0 1 1 *", "image": "busybox:1.37"}),
            changes: vec![
                ("/cronSpec", json!("0 0 2 1 *")),
                ("/timeZone", json!("Europe/Berlin")),
                ("/suspend", json!(true)),
                ("/command", json!(["true"])),
            ],
            children: &["cronjobs"],
        },
    ]
}

/// A spec with a value at a place.
fn with(spec: &Value, place: &str, value: &Value) -> Value {
    let mut spec = spec.clone();
    let mut inner = &mut spec;
    for step in place.split('/').skip(1) {
        inner = &mut inner[step];
    }
    *inner = value.clone();
    spec
}

impl Walk {
    async fn apply(&self, kubectl: &Kubectl, spec: &Value) {
        let object = json!({
            "apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "x"}, "spec": spec,
        });
        kubectl.apply(&object.to_string()).await.good();
    }

    /// Waits until the status is about the present spec and nothing is under way.
    async fn settle(&self, kubectl: &Kubectl) {
        let is_settled = |object: Option<&Value>| {
            let object = object?;
            let status = &object["status"];
            let conditions = status["conditions"].as_array()?;
            let is_busy = |c: &Value| c["type"] == "Progressing" && c["status"] == "True";
            let is_current = status["observedGeneration"] == object["metadata"]["generation"];
            (is_current && !conditions.iter().any(is_busy)).then_some(())
        };
        kubectl.until(self.object, "to settle", is_settled).await;
    }

    /// The object and what it made, without what no two objects have in common.
    async fn state(&self, kubectl: &Kubectl) -> Value {
        let mut object = kubectl.object(self.object).await;
        // The names of pods, which are of their ReplicaSet.
        if let Some(nodes) = object["status"]["nodes"].as_array() {
            object["status"]["nodes"] = nodes.len().into();
        }
        let mut children = Vec::new();
        for kind in self.children {
            let list = kubectl.object(kind).await;
            for item in list["items"].as_array().unwrap() {
                children.push(child(item));
            }
        }
        children.sort_by_key(ToString::to_string);
        let mut state =
            json!({"spec": object["spec"], "status": object["status"], "children": children});
        normalize(&mut state);
        state
    }
}

/// What matters of an object that was made.
fn child(object: &Value) -> Value {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    // Admission adds volumes with random names to a pod.
    let spec = match spec["nodeName"].as_str() {
        Some(node) => json!({"node": node, "image": spec["containers"][0]["image"]}),
        None => spec.clone(),
    };
    json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"],
        "owners": metadata["ownerReferences"], "deleted": metadata["deletionTimestamp"], "spec": spec,
        "ready": object["status"]["conditions"].as_array().map(|all| {
            all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        }),
    })
}

fn normalize(value: &mut Value) {
    const ITS_OWN: [&str; 8] = [
        "uid",
        "observedGeneration",
        "completeRevisions",
        "failedRevisions",
        "lastTransitionTime",
        "deployment.kubernetes.io/revision",
        "apps.zhongmingmao.io/predecessor",
        "kubectl.kubernetes.io/last-applied-configuration",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !ITS_OWN.contains(&name.as_str()) && !value.is_null());
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(normalize);
            items.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
}

/// Applies a spec, a changed one and the first again. Returns what is wrong with the end, if anything is.
async fn there_and_back(
    walk: &Walk,
    (place, value): &(&str, Value),
    fresh: &Value,
    in_haste: bool,
) -> Option<String> {
    let kubectl = kubectl("walk").await;
    walk.apply(&kubectl, &walk.spec).await;
    walk.settle(&kubectl).await;
    walk.apply(&kubectl, &with(&walk.spec, place, value)).await;
    if !in_haste {
        walk.settle(&kubectl).await;
    }
    walk.apply(&kubectl, &walk.spec).await;
    let mut end = Value::Null;
    let same = try_wait(TIMEOUT, async || {
        end = walk.state(&kubectl).await;
        (end == *fresh).then_some(())
    });
    let same = same.await.is_some();
    let haste = if in_haste { "in haste" } else { "and settled" };
    (!same).then(|| {
        format!(
            "{} {place} = {value} {haste}: {end:#}\nand not {fresh:#}",
            walk.kind
        )
    })
}

#[tokio::test]
async fn a_change_of_a_field_and_the_reverse_end_as_if_nothing_had_been_changed() {
    let of_kind = async |walk: &Walk| {
        let kubectl = kubectl("walk-fresh").await;
        walk.apply(&kubectl, &walk.spec).await;
        walk.settle(&kubectl).await;
        let fresh = walk.state(&kubectl).await;
        assert_ne!(fresh["children"], json!([]), "{}", walk.kind);
        // The sweep walks every field: here one is enough, the last, which is not there before and after.
        let changes = if is_soak() { usize::MAX } else { 1 };
        let walks = walk.changes.iter().rev().take(changes).flat_map(|change| {
            let walk = |in_haste| there_and_back(walk, change, &fresh, in_haste);
            [walk(false), walk(true)]
        });
        join_all(walks).await
    };
    let all = walks();
    let ends = join_all(all.iter().map(of_kind)).await;
    let wrong: Vec<String> = ends.into_iter().flatten().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
