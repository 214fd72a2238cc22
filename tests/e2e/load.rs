//! Calls through the API server's webhooks, again and again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{self, Kubectl, wait_for};

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
    own: Kubectl,
    /// How many calls the API server had counted as failed before.
    failed_before: f64,
}

impl Load {
    /// Starts the clients; each has connections of its own and never tries a call twice. `own` asks the
    /// API server for its figures.
    pub(crate) async fn start(own: &Kubectl, namespace: &str) -> Self {
        let cluster = own.cluster;
        let mut load = Self {
            own: own.clone(),
            failed_before: failed_calls(own).await,
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

    /// Ends the load after at least that many answered calls, and returns their number. Neither a client nor the API
    /// server counted a failure.
    pub(crate) async fn end_without_a_failure(mut self, least: usize) -> usize {
        wait_for(&format!("{least} answered calls"), async || {
            (self.answered.load(Ordering::Relaxed) >= least).then_some(())
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let failures = std::mem::take(&mut *self.failures.lock().unwrap());
        assert_eq!(failures, Vec::<String>::new());
        let failed = failed_calls(&self.own).await - self.failed_before;
        assert!(
            failed.abs() < 0.5,
            "the API server counted {failed} failed calls"
        );
        self.answered.load(Ordering::Relaxed)
    }
}

/// How many calls of webhooks the API server itself has counted as failed.
async fn failed_calls(own: &Kubectl) -> f64 {
    let page = own.raw("/metrics").await;
    let failed = page.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_rejection_count{")
            && line.contains(r#"error_type="calling_webhook_error""#)
    });
    failed
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
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
