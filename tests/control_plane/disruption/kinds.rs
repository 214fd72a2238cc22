//! The small kinds under an operator that is killed at random: what comes out of it is what comes out
//! undisturbed, and no child is made twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::{Api, Resource, ResourceExt as _};
use my_operator_rounds::lengths;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::disruption::cluster;
use crate::disruption::kills::{Life, Start, kill};
use crate::harness::record::Record;
use crate::harness::{self, Kubectl, operator_kubeconfig, seed, wait_for};

const CHILDREN: [&str; 3] = ["deployments.apps", "cronjobs.batch", "jobs.batch"];

/// An object of one kind and how it is changed.
struct Script {
    /// As kubectl takes it, with the name.
    object: &'static str,
    create: &'static str,
    /// Merge patches, one after the other.
    changes: &'static [&'static str],
    /// What its status says when all is done.
    settled: fn(&Value) -> bool,
}

fn is(status: &Value, type_: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == type_ && c["status"] == "True")
}

const SCRIPTS: &[Script] = &[
    Script {
        object: "memcached.cache.example.com/cache",
        create: "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: cache}, spec: {size: 3}}",
        changes: &[
            r#"{"spec":{"size":5}}"#,
            r#"{"spec":{"memory":128}}"#,
            r#"{"spec":{"size":2,"memory":null}}"#,
        ],
        settled: |status| {
            let nodes = status["nodes"].as_array().map_or(0, Vec::len);
            is(status, "Available") && !is(status, "Progressing") && nodes == 2
        },
    },
    Script {
        object: "crontab.stable.example.com/tab",
        // Never while the test runs.
        create: "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: tab}, spec: {cronSpec: 0 0 29 2 *, image: my-awesome-cron-image}}",
        changes: &[
            r#"{"spec":{"replicas":3}}"#,
            r#"{"spec":{"suspend":true}}"#,
            r#"{"spec":{"suspend":false,"cronSpec":"5 0 29 2 *"}}"#,
        ],
        settled: |status| status["nextScheduleTime"].is_string(),
    },
    Script {
        object: "foo.samplecontroller.k8s.io/foo",
        create: "{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: foo}, spec: {deploymentName: first, replicas: 1}}",
        changes: &[
            r#"{"spec":{"replicas":2}}"#,
            r#"{"spec":{"deploymentName":"second"}}"#,
            r#"{"spec":{"replicas":3}}"#,
        ],
        settled: |status| status["availableReplicas"] == 3,
    },
    Script {
        object: "count.demo.mark8s.io/pods",
        create: "{apiVersion: demo.mark8s.io/v1, kind: Count, metadata: {name: pods}, spec: {name: memcached, count: 3}}",
        changes: &[r#"{"spec":{"count":5}}"#, r#"{"spec":{"count":2}}"#],
        settled: |status| is(status, "Healthy"),
    },
    Script {
        object: "foobar.k8s.io/bar",
        create: "{apiVersion: k8s.io/v1, kind: FooBar, metadata: {name: bar}, spec: {foo: a, barz: 'false', command: echo foobar}}",
        changes: &[r#"{"spec":{"foo":"b"}}"#, r#"{"spec":{"barz":"true"}}"#],
        settled: |status| status["phase"] == "Succeeded",
    },
];

impl Script {
    /// Whether it has come to rest, at the last of its specs.
    fn is_settled(&self, object: &Value) -> bool {
        let status = &object["status"];
        // Each change made one.
        let last = 1 + self.changes.len();
        status["observedGeneration"] == last && (self.settled)(status)
    }
}

/// Leaves of objects what is the same in each run.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for field in [
                "uid",
                "controller-uid",
                "batch.kubernetes.io/controller-uid",
                "resourceVersion",
                "creationTimestamp",
                "lastTransitionTime",
                "managedFields",
                "namespace",
                "generation",
                "jobUID",
            ] {
                fields.remove(field);
            }
            // How many changes were rolled out, and not overtaken by the next, is up to the moment.
            fields.remove("deployment.kubernetes.io/revision");
            for (name, field) in fields.iter_mut() {
                let time = name.ends_with("Time");
                *field = match field.take() {
                    Value::String(_) if time => "a time".into(),
                    // Names of pods.
                    Value::Array(nodes) if name == "nodes" => nodes.len().into(),
                    other => comparable(other),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = comparable(item.take());
            }
        }
        _ => {}
    }
    value
}

/// The objects and what was made of them.
async fn outcome(kubectl: &Kubectl) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for script in SCRIPTS {
        let object = kubectl.object(script.object).await;
        all.insert(script.object.to_owned(), comparable(object));
    }
    for kind in CHILDREN {
        let list = kubectl.object(kind).await;
        for object in list["items"].as_array().unwrap() {
            let name = format!("{kind} {}", object["metadata"]["name"].as_str().unwrap());
            let mut object = object.clone();
            // Its status is its controller's.
            object["status"] = json!({});
            all.insert(name, comparable(object));
        }
    }
    all
}

/// Every child that ever was, by name, none of them having been made a second time. All are gone.
async fn made_once<K>(record: &Record<K>) -> BTreeSet<String>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    // A read may know of an end before the record does.
    let uids = wait_for("the record of all ends", async || {
        record.look(|events| {
            let mut uids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut there = BTreeSet::new();
            for event in events {
                let uid = event.object.uid().unwrap();
                if event.gone {
                    there.remove(&uid);
                } else {
                    there.insert(uid.clone());
                }
                uids.entry(event.object.name_any()).or_default().insert(uid);
            }
            there.is_empty().then_some(uids)
        })
    });
    let uids = uids.await;
    for (name, uids) in &uids {
        let kind = K::kind(&());
        assert_eq!(uids.len(), 1, "{kind} {name} was made {} times", uids.len());
    }
    uids.into_keys().collect()
}

struct Children {
    deployments: Record<Deployment>,
    cron_jobs: Record<CronJob>,
    jobs: Record<Job>,
}

impl Children {
    async fn record(client: kube::Client, namespace: &str) -> Self {
        async fn of<K>(client: &kube::Client, namespace: &str) -> Record<K>
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
                + Clone
                + DeserializeOwned
                + std::fmt::Debug
                + Send
                + 'static,
        {
            Record::start(Api::namespaced(client.clone(), namespace)).await
        }
        Self {
            deployments: of(&client, namespace).await,
            cron_jobs: of(&client, namespace).await,
            jobs: of(&client, namespace).await,
        }
    }
}

/// When operators are killed.
struct Kills {
    random: Rng,
    /// So many while the objects are changed. One more each strikes soon after an object was deleted.
    early: usize,
}

/// One run: creates, changes and deletes all objects while operators come and go, and returns what had
/// become of them before they were deleted.
async fn run(name: &str, mut random: Rng, kills: Option<Kills>) -> BTreeMap<String, Value> {
    let cluster = cluster().await;
    let namespace = cluster.namespace(name).await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let children = Children::record(cluster.client().await.unwrap(), &namespace).await;
    let start = Start {
        cluster,
        kubeconfig: operator_kubeconfig(cluster).await,
        flags: [
            "--webhooks=false",
            &harness::every_kind(),
            "--namespace",
            &namespace,
        ]
        .map(str::to_owned)
        .to_vec(),
    };

    // Each object is made and changed at moments of its own between the kills.
    let early = kills.as_ref().map_or(0, |kills| kills.early);
    let mut steps = Vec::new();
    for (number, script) in SCRIPTS.iter().enumerate() {
        let mut moments: Vec<usize> = script
            .changes
            .iter()
            .map(|_| random.usize(0..=early))
            .collect();
        moments.sort_unstable();
        for (moment, change) in moments.iter().zip(script.changes) {
            let patch = format!(
                "patch {} --type=merge --patch-file=/dev/stdin",
                script.object
            );
            steps.push((*moment, number, patch, *change));
        }
        kubectl.with("create -f -", script.create).await.good();
    }
    steps.sort_by_key(|(moment, number, ..)| (*moment, *number));
    let mut steps = steps.into_iter().peekable();
    let mut change = async |moment| {
        while let Some((_, _, patch, change)) = steps.next_if(|(due, ..)| *due == moment) {
            kubectl.with(&patch, change).await.good();
        }
    };
    let mut kills = kills.map(|kills| kills.random);
    if let Some(random) = &mut kills {
        for moment in 0..early {
            let operator = start.operator("killed");
            change(moment).await;
            Life::random(random).end(&operator).await;
        }
    }
    let operator = start.operator("living");
    change(early).await;
    for script in SCRIPTS {
        let settled = |found: Option<&Value>| script.is_settled(found?).then_some(());
        kubectl.until(script.object, "to settle", settled).await;
    }
    // What was made before may be on its way out.
    let one_job = |list: Option<&Value>| (list?["items"].as_array()?.len() == 1).then_some(());
    kubectl.until("jobs", "to be one", one_job).await;
    kubectl.until_gone("deployment/first").await;
    let outcome = outcome(&kubectl).await;
    let delete = async |script: &Script| {
        kubectl
            .run(&format!("delete {} --wait=false", script.object))
            .await
            .good();
    };
    if let Some(random) = &mut kills {
        kill(&operator).await;
        for script in SCRIPTS {
            let operator = start.operator("killed");
            // It may know the object by then, or not.
            if random.bool() {
                operator.until_ready().await;
            }
            delete(script).await;
            tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
            kill(&operator).await;
        }
    } else {
        for script in SCRIPTS {
            delete(script).await;
        }
    }
    for what in CHILDREN {
        kubectl.until_gone(what).await;
    }
    operator.process.stop(Duration::from_secs(10)).await;
    let mut made = made_once(&children.deployments).await;
    made.extend(made_once(&children.cron_jobs).await);
    made.extend(made_once(&children.jobs).await);
    for name in ["cache", "tab", "second", "bar-3"] {
        assert!(made.contains(name), "{name} is not among {made:?}");
    }
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_kinds_come_out_of_kills_as_they_do_undisturbed() {
    let random = Rng::with_seed(seed("the moments of the kills and of the changes"));
    let mut disturbed = random.clone();
    let kills = Kills {
        random: disturbed.fork(),
        early: lengths::kinds_kills(),
    };
    let (undisturbed, disturbed) = tokio::join!(
        run("undisturbed", random, None),
        run("kinds-killed", disturbed.fork(), Some(kills)),
    );
    for (name, object) in &undisturbed {
        assert_eq!(disturbed.get(name), Some(object), "{name}");
    }
    assert_eq!(disturbed.len(), undisturbed.len());
}
