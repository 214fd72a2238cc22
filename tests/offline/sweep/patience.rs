//! While calls fail, an object is tried again after growing pauses, however many events come meanwhile.

use std::time::Duration;

use serde_json::{Value, json};
use simulated_apiserver::{Decision, Site, Status, Verb};

use super::cluster::{Cluster, FIRST, NAMESPACE, on_virtual_time};
use super::subject::{Special, Subject};

/// For how long every write of the operator fails.
const OUTAGE: Duration = Duration::from_mins(1);
/// How often each child and each pod changes meanwhile.
const EVENTS: Duration = Duration::from_millis(250);
/// Pauses of 1, 2, 4, 8, 16 and 32 seconds make seven attempts. Each is a few requests: reads before a write, the write,
/// and an Event or two.
const MAX_REQUESTS: usize = 30;

/// Changes whatever may wake a reconciler: the status of every child, and the readiness of every pod.
fn make_events(cluster: &Cluster, number: usize) {
    let direct = cluster.server.direct_as("a busy neighbour");
    for kind in ["deployments", "cronjobs", "jobs"] {
        for object in direct.list(kind, NAMESPACE) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let status = json!({"status": {"touched": number}});
            direct.patch_status(kind, NAMESPACE, name, &status).unwrap();
        }
    }
    for pod in direct.list("pods", NAMESPACE) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let status = if number.is_multiple_of(2) {
            "True"
        } else {
            "False"
        };
        let flipped = direct.edit_status("pods", NAMESPACE, name, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        });
        flipped.unwrap();
    }
}

/// Changes an object of the kind while every write fails, for a minute that is full of events. It and what else there is to
/// be are created first.
pub fn keeps_its_pauses(subject: &'static dyn Subject, objects: Vec<Value>, change: &Value) {
    on_virtual_time(async {
        let cluster = Cluster::new(subject, None);
        let (plural, name) = subject.object();
        cluster.start(FIRST);
        for object in objects {
            cluster.create(subject.kind(), object);
        }
        cluster
            .until(|c| subject.is_settled(c, Special::Nothing))
            .await;
        tokio::time::sleep(subject.settle()).await;

        let requests = |cluster: &Cluster| {
            let requests = cluster.server.history().requests.into_iter();
            let requests = requests.filter(|request| {
                request.site.user == FIRST && !matches!(request.site.verb, Verb::List | Verb::Watch)
            });
            requests.count()
        };
        let before = requests(&cluster);
        cluster.server.on(|site: &Site| {
            let writes = matches!(
                site.verb,
                Verb::Create | Verb::Update | Verb::Patch | Verb::Delete
            );
            if site.user == FIRST && writes {
                Decision::Answer(Status::internal_error("etcdserver: request timed out"))
            } else {
                Decision::Forward
            }
        });
        cluster.patch(plural, name, &json!({"spec": change}));
        let end = tokio::time::Instant::now() + OUTAGE;
        let mut number = 0;
        while tokio::time::Instant::now() < end {
            number += 1;
            make_events(&cluster, number);
            tokio::time::sleep(EVENTS).await;
        }
        let made = requests(&cluster) - before;
        println!(
            "{}: {made} requests beside {number} rounds of events",
            subject.kind()
        );
        assert!(made > 2, "{}: nothing was tried", subject.kind());
        assert!(
            made <= MAX_REQUESTS,
            "{}: {made} requests while every write failed",
            subject.kind()
        );

        cluster.server.on(|_: &Site| Decision::Forward);
        cluster
            .until(|c| subject.is_settled(c, Special::Nothing))
            .await;
        assert!(
            subject.is_settled(&cluster, Special::Nothing),
            "{} has not recovered",
            subject.kind()
        );
        cluster.end();
    });
}
