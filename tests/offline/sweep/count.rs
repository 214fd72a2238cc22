//! Count: it makes nothing, so its status is all there is to judge.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use my_operator_rounds::lengths;
use serde_json::{Value, json};
use simulated_apiserver::{ChangeKind, Run, Verb, Version};

use super::changes::{conditions, is_operator, left, reasons, versions};
use super::cluster::{Cluster, NAMESPACE};
use super::faults::Fault;
use super::mutants::{BASE, Mutant, NO_RETRY_AFTER};
use super::patience::keeps_its_pauses;
use super::subject::{Judged, Scenario, Seen, Special, Subject, scenarios};
use super::walk::{Walk, change, walk};

const NAME: &str = "a";
/// How long changes of pods wait for others to be written with.
const SETTLES: Duration = Duration::from_secs(1);

struct Count;

impl Subject for Count {
    fn kind(&self) -> &'static str {
        "count"
    }

    fn object(&self) -> (&'static str, &'static str) {
        ("counts", NAME)
    }

    fn watched(&self) -> &'static [&'static str] {
        &["counts", "pods"]
    }

    fn scenarios(&self) -> &'static [Scenario] {
        SCENARIOS
    }

    fn run(&self, _: &Value) -> Run {
        Run::default()
    }

    fn is_settled(&self, cluster: &Cluster, _: Special) -> bool {
        let Some(count) = cluster.get("counts", NAME) else {
            return true;
        };
        let status = &count["status"];
        status["observedGeneration"] == count["metadata"]["generation"]
            && status["observed"] == ready(cluster, &count)
    }

    fn replacement(&self, object: Value) -> Value {
        object
    }

    fn judge(&self, seen: &Seen<'_>) -> Judged {
        let mut broken = Vec::new();
        let mut say = |what: String| broken.push(what);
        for version in &seen.history.versions {
            if is_operator(&version.by)
                && !["counts", "events"].contains(&version.resource.as_str())
            {
                say(format!(
                    "the operator wrote {} {}",
                    version.resource, version.name
                ));
            }
        }
        let all: Vec<&Version> = versions(seen.history, "counts").collect();
        let is_write =
            |version: &Version| is_operator(&version.by) && version.kind == ChangeKind::Modified;
        for write in all.iter().filter(|version| is_write(version)) {
            is_so(seen, write, &mut say);
        }
        // Two operators, or two processes one after the other, each have a second of their own.
        let is_one = seen.special != Special::TwoOperators
            && !seen.faults.iter().any(|fault| fault.is_a_crash());
        let pairs = all
            .windows(2)
            .filter(|pair| pair.iter().all(|version| is_write(version)));
        for pair in pairs.filter(|_| is_one) {
            settles(pair[0], pair[1], &mut say);
        }
        Judged {
            broken,
            outcome: outcome(seen),
            end_may_differ: false,
            marks: reasons(seen.history, "counts"),
            patience: Duration::ZERO,
        }
    }

    fn rare(&self) -> &'static [&'static str] {
        &["AsAsserted", "Invalid", "TooFewPods", "TooManyPods"]
    }

    fn random_runs(&self) -> u64 {
        lengths::random_faults_of_children()
    }

    fn mutants(&self) -> &'static [Mutant] {
        MUTANTS
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = conditions.is_some_and(|all| {
        all.iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    });
    is_ready
        && pod["status"]["phase"] == "Running"
        && pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_counted(pod: &Value, app: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    is_ready(pod) && (labels["app"] == *app || labels["app.kubernetes.io/name"] == *app)
}

/// How many ready pods there are of the application of a Count.
fn ready(cluster: &Cluster, count: &Value) -> usize {
    let pods = cluster.server.direct().list("pods", NAMESPACE);
    let counted = pods
        .iter()
        .filter(|pod| is_counted(pod, &count["spec"]["name"]));
    counted.count()
}

/// The number was right at some time before it was written, and the verdict is that on the number.
fn is_so(seen: &Seen<'_>, write: &Version, say: &mut impl FnMut(String)) {
    let count = write.object();
    let status = &count["status"];
    let Some(observed) = status["observed"].as_u64() else {
        return;
    };
    let expected = status["observed"] == count["spec"]["count"];
    if status["observedGeneration"] == count["metadata"]["generation"]
        && status["healthy"] != expected
    {
        say(format!(
            "healthy is {}, with {observed} of {}",
            status["healthy"], count["spec"]["count"]
        ));
    }
    let mut there: BTreeSet<&str> = BTreeSet::new();
    let mut numbers = BTreeSet::from([0]);
    for pod in versions(seen.history, "pods").filter(|pod| pod.version < write.version) {
        if pod.kind != ChangeKind::Deleted && is_counted(pod.object(), &count["spec"]["name"]) {
            there.insert(&pod.uid);
        } else {
            there.remove(pod.uid.as_str());
        }
        numbers.insert(there.len() as u64);
    }
    let is_present = status["observedGeneration"] == count["metadata"]["generation"];
    if is_present && !numbers.contains(&observed) {
        say(format!(
            "{observed} pods were counted, and there were only ever {numbers:?}"
        ));
    }
}

/// Changes of pods are written at most once a second.
fn settles(before: &Version, after: &Version, say: &mut impl FnMut(String)) {
    let of_pods = |count: &Version| {
        let status = &count.object()["status"];
        (
            count.uid.clone(),
            status["observedGeneration"].clone(),
            status["observed"].is_null(),
        )
    };
    let pause = after.elapsed.saturating_sub(before.elapsed);
    if before.by == after.by && of_pods(before) == of_pods(after) && pause < SETTLES {
        say(format!("the status was written again after {pause:?}"));
    }
}

fn outcome(seen: &Seen<'_>) -> String {
    let counts = left(seen.history, "counts");
    let lines = counts.iter().map(|count| {
        let mut status = count.object()["status"].clone();
        for field in ["conditions", "observedGeneration"] {
            status[field] = Value::Null;
        }
        format!("{} {status} {}", count.name, conditions(count.object()))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn count(fields: &Value) -> Value {
    let mut spec = json!({"name": "nginx", "count": 3});
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"apiVersion": "demo.mark8s.io/v1", "kind": "Count",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})
}

fn create(cluster: &Cluster) {
    cluster.create("counts", count(&json!({})));
}

fn pod_named(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn pod(cluster: &Cluster, name: &str) {
    cluster.create("pods", pod_named(name));
}

fn three_pods(cluster: &Cluster) {
    for name in ["p1", "p2", "p3"] {
        pod(cluster, name);
    }
}

async fn healthy(cluster: &Cluster) {
    create(cluster);
    three_pods(cluster);
    cluster
        .until(|c| c.condition("Healthy") == "AsAsserted")
        .await;
}

scenarios! {
    created_before_its_pods = |cluster| {
        create(cluster);
        three_pods(cluster);
    };
    created_after_its_pods = |cluster| {
        three_pods(cluster);
        cluster.sleep(5).await;
        create(cluster);
    };
    two_operators(TwoOperators) = |cluster| {
        healthy(cluster).await;
        cluster.delete("pods", "p1");
    };
    handed_over = |cluster| {
        create(cluster);
        cluster.until(|c| c.field("/status/observed").is_some()).await;
        cluster.hand_over().await;
        three_pods(cluster);
    };
    pods_come_and_go = |cluster| {
        healthy(cluster).await;
        for name in ["p4", "p5"] {
            pod(cluster, name);
        }
        cluster.until(|c| c.condition("Healthy") == "TooManyPods").await;
        for name in ["p1", "p2", "p3", "p4", "p5"] {
            cluster.delete("pods", name);
            cluster.sleep(1).await;
        }
        cluster.until(|c| c.server.direct().list("pods", NAMESPACE).is_empty()).await;
    };
    burst = |cluster| {
        create(cluster);
        for number in 0..30 {
            pod(cluster, &format!("b{number}"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for number in 3..30 {
            cluster.delete("pods", &format!("b{number}"));
        }
        cluster.until(|c| c.condition("Healthy") == "AsAsserted").await;
    };
    pod_relabelled_and_back = |cluster| {
        healthy(cluster).await;
        cluster.patch("pods", "p1", &json!({"metadata": {"labels": {"app": "other"}}}));
        cluster.until(|c| c.condition("Healthy") == "TooFewPods").await;
        cluster.patch("pods", "p1", &json!({"metadata": {"labels": {"app": null, "app.kubernetes.io/name": "nginx"}}}));
    };
    count_changed_and_back = |cluster| {
        healthy(cluster).await;
        cluster.patch("counts", NAME, &json!({"spec": {"count": 2}}));
        cluster.until(|c| c.condition("Healthy") == "TooManyPods").await;
        cluster.patch("counts", NAME, &json!({"spec": {"count": 3}}));
    };
    name_changed_and_back = |cluster| {
        healthy(cluster).await;
        cluster.patch("counts", NAME, &json!({"spec": {"name": "other"}}));
        cluster.until(|c| c.condition("Healthy") == "TooFewPods").await;
        cluster.patch("counts", NAME, &json!({"spec": {"name": "nginx"}}));
    };
    invalid_for_a_while = |cluster| {
        healthy(cluster).await;
        cluster.patch("counts", NAME, &json!({"spec": {"count": -1}}));
        cluster.until(|c| c.condition("Accepted") == "Invalid").await;
        cluster.delete("pods", "p1");
        cluster.sleep(5).await;
        cluster.patch("counts", NAME, &json!({"spec": {"count": 2}}));
    };
    status_refused = |cluster| {
        cluster.admission().refuse(|review| (review.verb, review.resource) == (Verb::Update, "counts/status"));
        create(cluster);
        three_pods(cluster);
        cluster.sleep(10).await;
        cluster.admission().allow_everything();
    };
    unreadable_status = |cluster| {
        healthy(cluster).await;
        let strange = json!({"status": {"observed": "many"}});
        let _ = cluster.server.direct().patch_status("counts", NAMESPACE, NAME, &strange);
    };
    deleted_and_created_again = |cluster| {
        healthy(cluster).await;
        cluster.delete("counts", NAME);
        cluster.delete("pods", "p1");
        create(cluster);
    };
}

/// Bugs, each of which must be caught.
const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "the status is written over any version",
        request: |server, sent| {
            if sent.is(&Method::PUT, "/status")
                && let Some(count) = server.direct().get("counts", NAMESPACE, NAME)
            {
                sent.body["metadata"]["resourceVersion"] =
                    count["metadata"]["resourceVersion"].clone();
            }
        },
        shown_by: &[Fault::HeldBack("counts"), Fault::Late, Fault::EditBefore],
        ..BASE
    },
    Mutant {
        name: "a failure is taken for success",
        answer: |_, sent, answer| match &answer {
            Some((500.., _)) if sent.is(&Method::PUT, "/status") => Some(sent.as_if_done()),
            _ => answer,
        },
        shown_by: &[Fault::InternalError],
        ..BASE
    },
    Mutant {
        name: "one pod more is counted",
        request: |_, sent| {
            if sent.is(&Method::PUT, "/status")
                && let Some(observed) = sent.body["status"]["observed"].as_u64()
            {
                sent.body["status"]["observed"] = json!(observed + 1);
            }
        },
        ..BASE
    },
    Mutant {
        name: "the verdict is that on another number",
        request: |_, sent| {
            if sent.is(&Method::PUT, "/status") {
                sent.body["status"]["healthy"] = json!(true);
            }
        },
        ..BASE
    },
    NO_RETRY_AFTER,
];

#[test]
fn every_fault_at_every_call() {
    super::every_fault(&Count);
}

#[test]
fn faults_at_random() {
    super::faults_at_random(&Count);
}

#[test]
fn every_mutant_is_caught() {
    super::every_mutant_is_caught(&Count);
}

#[test]
fn every_field_there_and_back() {
    walk(&Walk {
        subject: &Count,
        spec: json!({"name": "nginx", "count": 0}),
        changes: vec![change("/name", json!("other")), change("/count", json!(3))],
        exempt: &[],
        waits: false,
    });
}

#[test]
fn events_do_not_shorten_the_pauses_after_failures() {
    let objects = vec![count(&json!({})), pod_named("p1"), pod_named("p2")];
    keeps_its_pauses(&Count, objects, &json!({"count": 2}));
}
