//! Calls through the API server's webhooks, again and again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use my_operator_cluster::Cluster;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness;

/// So many clients call at a time.
const CLIENTS: usize = 8;

/// Between two calls of one client: the machine has more to do than to be called.
const PAUSE: Duration = Duration::from_millis(20);

/// Server-side dry-run creates of both kinds from several clients; what fails is kept.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts the clients; each has connections of its own and never tries a call twice.
    pub(crate) async fn start(cluster: &Cluster, namespace: &str) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            failures: Arc::default(),
            clients: JoinSet::new(),
        };
        for number in 0..CLIENTS {
            let client = harness::client(cluster).await;
            let (stop, answered) = (load.stop.clone(), load.answered.clone());
            let (failures, namespace) = (load.failures.clone(), namespace.to_owned());
            load.clients.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match call(&client, &namespace, number).await {
                        Ok(()) => _ = answered.fetch_add(1, Ordering::Relaxed),
                        Err(error) => failures.lock().unwrap().push(error),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        load
    }

    /// How many calls were answered, and why others were not.
    pub(crate) async fn end(mut self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let failures = std::mem::take(&mut *self.failures.lock().unwrap());
        (self.answered.load(Ordering::Relaxed), failures)
    }
}

/// One dry-run create: every other client's is an At, the others' are MyDaemonSets. The answer has
/// passed the mutating webhook, or else it had no defaults.
async fn call(client: &Client, namespace: &str, number: usize) -> Result<(), String> {
    let at = number.is_multiple_of(2);
    let (kind, spec, default) = if at {
        let spec = json!({"schedule": "2099-01-01T00:00:00Z", "command": "true"});
        (my_operator::kinds::at::KIND, spec, "/spec/image")
    } else {
        let spec = json!({"image": "nginx:1"});
        (
            my_operator::kinds::mydaemonset::KIND,
            spec,
            "/spec/revisionHistoryLimit",
        )
    };
    let resource = (kind.admission.resource)();
    let object =
        DynamicObject::new(&format!("load-{number}"), &resource).data(json!({"spec": spec}));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let made = api.create(&dry_run, &object).await;
    let made = made.map_err(|error| error.to_string())?;
    let defaulted = made.data.pointer(default).is_some();
    defaulted
        .then_some(())
        .ok_or_else(|| format!("no {default}: {}", made.data))
}
