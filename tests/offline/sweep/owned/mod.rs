//! The kinds whose objects each own one child: Memcached, `CronTab`, Foo and `FooBar`.

use std::time::Duration;

use my_operator_rounds::lengths;
use serde_json::{Value, json};
use simulated_apiserver::{Run, Server, Site};

mod controllers;
mod crontab;
mod foo;
mod foobar;
mod judge;
mod memcached;
mod mutants;

use super::changes;
use super::cluster::{Cluster, NAMESPACE, run_of_command};
use super::faults::Fault;
use super::mutants::Mutant;
use super::subject::{Judged, Scenario, Seen, Special, Subject};

/// The name of the object that the scenarios are about.
const NAME: &str = "a";
/// The fault that a foreign client takes the name of the child right before it is created.
const TAKEN_BEFORE: &str = "TakenBefore";
/// For how long it has it.
const TAKEN: Duration = Duration::from_secs(20);

/// One of the kinds.
struct Family {
    /// As `--kinds` takes it.
    name: &'static str,
    api_version: &'static str,
    object_kind: &'static str,
    plural: &'static str,
    /// See [`Subject::watched`].
    watched: &'static [&'static str],
    /// The child's kind, plural, and name in most scenarios.
    child_api_version: &'static str,
    child_kind: &'static str,
    children: &'static str,
    child: &'static str,
    /// Its first spec.
    spec: fn() -> Value,
    scenarios: &'static [Scenario],
    /// Whether an object that has no trouble is where it should be in the end.
    is_done: fn(&Value) -> bool,
    rare: &'static [&'static str],
    mutants: &'static [Mutant],
}

impl Family {
    /// An object of the kind with its first spec and these fields.
    fn object(&self, fields: &Value) -> Value {
        let mut spec = (self.spec)();
        for (name, value) in fields.as_object().into_iter().flatten() {
            spec[name] = value.clone();
        }
        json!({"apiVersion": self.api_version, "kind": self.object_kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})
    }

    /// A child of that name that a user made.
    fn foreign(&self, name: &str) -> Value {
        let pod =
            json!({"containers": [{"name": "foreign", "image": "i"}], "restartPolicy": "Never"});
        let template = json!({"metadata": {"labels": {"foreign": "yes"}}, "spec": pod});
        let spec = match self.child_kind {
            "Deployment" => json!({"replicas": 1, "template": template,
                "selector": {"matchLabels": {"foreign": "yes"}}}),
            "CronJob" => {
                json!({"schedule": "1 1 1 1 *", "jobTemplate": {"spec": {"template": template}}})
            }
            _ => json!({"suspend": false, "parallelism": 3, "template": template}),
        };
        json!({"apiVersion": self.child_api_version, "kind": self.child_kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    }

    fn create(&self, cluster: &Cluster) {
        self.create_with(cluster, &json!({}));
    }

    fn create_with(&self, cluster: &Cluster, fields: &Value) {
        cluster.create(self.plural, self.object(fields));
    }

    fn change(&self, cluster: &Cluster, fields: &Value) {
        cluster.patch(self.plural, NAME, &json!({"spec": fields}));
    }

    /// Waits until the name of the child is found to be taken, and gives it back. A fault may have done so before.
    async fn give_name_back(&self, cluster: &Cluster, reason: &str) {
        cluster
            .until(|c| self.owns_child(c) || c.condition("Degraded") == reason)
            .await;
        if !self.owns_child(cluster) {
            cluster.delete(self.children, self.child);
        }
    }

    /// Deletes the object with that propagation policy, and creates it again when it is gone.
    async fn recreate(&self, cluster: &Cluster, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let direct = cluster.server.direct();
        let _ = direct.delete_with(self.plural, NAMESPACE, NAME, &options);
        cluster.until(|c| c.get(self.plural, NAME).is_none()).await;
        self.create(cluster);
    }

    /// The child is there and the object's own.
    fn owns_child(&self, cluster: &Cluster) -> bool {
        self.owns(cluster, self.child)
    }

    /// Whether the object owns the child of that name.
    fn owns(&self, cluster: &Cluster, child: &str) -> bool {
        let child = cluster.get(self.children, child).unwrap_or_default();
        let owner = child["metadata"]["ownerReferences"][0]["uid"].as_str();
        owner.is_some_and(|uid| cluster.text("/metadata/uid") == uid)
    }
}

/// A fault may have left none.
fn delete_a_pod(cluster: &Cluster) {
    let pods = cluster.server.direct().list("pods", NAMESPACE);
    if let Some(name) = pods
        .first()
        .and_then(|pod| pod["metadata"]["name"].as_str())
    {
        cluster.delete("pods", name);
    }
}

impl Subject for Family {
    fn kind(&self) -> &'static str {
        self.name
    }

    fn object(&self) -> (&'static str, &'static str) {
        (self.plural, NAME)
    }

    fn watched(&self) -> &'static [&'static str] {
        self.watched
    }

    fn scenarios(&self) -> &'static [Scenario] {
        self.scenarios
    }

    fn surround(&self, server: &Server) {
        controllers::start(server);
    }

    fn run(&self, pod: &Value) -> Run {
        run_of_command(pod)
    }

    /// The status is about the present spec, and no problems.
    fn is_settled(&self, cluster: &Cluster, _: Special) -> bool {
        let Some(object) = cluster.get(self.plural, NAME) else {
            return true;
        };
        let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        let degraded = changes::condition(&object, "Degraded");
        let is_well = degraded.is_some_and(|(status, _)| status == "False");
        is_current && is_well && (self.is_done)(&object)
    }

    fn meddlings(&self) -> &'static [&'static str] {
        &[TAKEN_BEFORE]
    }

    /// A foreign client creates a child of the name that a call is about, if there is none, and deletes it later.
    fn meddle(&self, _: &str, cluster: &Cluster, site: &Site) {
        if site.resource != self.children || site.name.is_empty() {
            return;
        }
        let foreign = cluster.server.direct().create(self.foreign(&site.name));
        if let Ok(foreign) = foreign {
            let (cluster, children, name) = (cluster.clone(), self.children, site.name.clone());
            tokio::spawn(async move {
                tokio::time::sleep(TAKEN).await;
                let there = cluster.get(children, &name).unwrap_or_default();
                if there["metadata"]["uid"] == foreign["metadata"]["uid"] {
                    cluster.delete(children, &name);
                }
            });
        }
    }

    fn replacement(&self, object: Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match object["kind"].as_str() {
            Some(kind) if kind == self.child_kind => self.foreign(name),
            _ => object,
        }
    }

    /// A child that is deleted is made again, unless it is a run.
    fn keeps_the_end(&self, fault: Fault, site: &Site) -> bool {
        match fault {
            Fault::DeleteBefore | Fault::DeleteHalfDone => {
                self.child_kind != "Job" && site.resource == self.children
            }
            fault => !fault.is_a_foreign_hand() || fault == Fault::EditBefore,
        }
    }

    fn judge(&self, seen: &Seen<'_>) -> Judged {
        judge::judge(self, seen)
    }

    fn rare(&self) -> &'static [&'static str] {
        self.rare
    }

    fn random_runs(&self) -> u64 {
        lengths::random_faults_of_children()
    }

    fn mutants(&self) -> &'static [Mutant] {
        self.mutants
    }
}

/// The tests of each kind: with a change of its spec, and the values of its fields that are walked.
macro_rules! tests {
    ($family:expr, $changed:tt, [$(($place:literal, $value:tt)),+ $(,)?]) => {
        #[test]
        fn every_fault_at_every_call() {
            $crate::sweep::every_fault(&$family);
        }

        #[test]
        fn faults_at_random() {
            $crate::sweep::faults_at_random(&$family);
        }

        #[test]
        fn every_mutant_is_caught() {
            $crate::sweep::every_mutant_is_caught(&$family);
        }

        #[test]
        fn every_field_there_and_back() {
            $crate::sweep::walk::walk(&$crate::sweep::walk::Walk {
                subject: &$family,
                spec: ($family.spec)(),
                changes: vec![$($crate::sweep::walk::change($place, json!($value))),+],
                exempt: &[],
                waits: false,
            });
        }

        #[test]
        fn events_do_not_shorten_the_pauses_after_failures() {
            let objects = vec![$family.object(&json!({}))];
            $crate::sweep::patience::keeps_its_pauses(&$family, objects, &json!($changed));
        }
    };
}

use tests;
