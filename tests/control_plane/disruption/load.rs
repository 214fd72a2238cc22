//! Calls of the webhooks, again and again, and what became of each.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use my_operator_rounds::lengths;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A call that failed, and when it was under way.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) error: String,
}

/// Peers that call until the load is ended.
#[derive(Default)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<Failure>>>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Peers that create objects of both kinds through the API server, so many of each; the objects
    /// are not stored.
    pub(crate) fn start(client: &Client, namespace: &str, peers_per_kind: usize) -> Self {
        let mut load = Self::default();
        for peer in 0..2 * peers_per_kind {
            let call = dry_run(client, namespace, peer);
            load.repeat(call);
        }
        load
    }

    pub(crate) fn repeat<F, Called>(&mut self, mut call: F)
    where
        F: FnMut(usize) -> Called + Send + 'static,
        Called: Future<Output = Result<(), String>> + Send,
    {
        let (stop, answered) = (self.stop.clone(), self.answered.clone());
        let failures = self.failures.clone();
        self.tasks.spawn(async move {
            let mut i = 0;
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                match call(i).await {
                    Ok(()) => _ = answered.fetch_add(1, Ordering::Relaxed),
                    Err(error) => failures.lock().unwrap().push(Failure {
                        began,
                        ended: Instant::now(),
                        error,
                    }),
                }
                i += 1;
                tokio::time::sleep(lengths::load_pause()).await;
            }
        });
    }

    /// How many calls were answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// The calls that failed so far.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.failures.lock().unwrap().clone()
    }

    /// How many calls were answered, and those that failed.
    pub(crate) async fn end(mut self) -> (usize, Vec<Failure>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        (self.answered(), self.failures())
    }

    /// How many calls were answered; none may have failed.
    pub(crate) async fn end_well(self) -> usize {
        let (answered, failures) = self.end().await;
        let (first, last) = (failures.first(), failures.last());
        assert!(
            failures.is_empty(),
            "{} failed, {answered} did not; the first and the last: {first:?}, {last:?}",
            failures.len()
        );
        answered
    }
}

/// Creates an object that is not stored; peers of even numbers one kind, the others the other.
pub(crate) fn dry_run(
    client: &Client,
    namespace: &str,
    peer: usize,
) -> impl FnMut(usize) -> futures::future::BoxFuture<'static, Result<(), String>> + Send + 'static + use<>
{
    let (kind, spec, default) = if peer.is_multiple_of(2) {
        let kind = &my_operator::kinds::mydaemonset::KIND;
        (kind, json!({ "image": "nginx:1" }), "revisionHistoryLimit")
    } else {
        let spec = json!({ "schedule": "2100-01-01T00:00:00Z", "command": "echo YAY" });
        (&my_operator::kinds::at::KIND, spec, "suspend")
    };
    let resource = (kind.admission.resource)();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    move |i| {
        let object = object(&resource, peer, i, &spec);
        let api = api.clone();
        Box::pin(async move {
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let made = api.create(&dry_run, &object).await;
            let made = made.map_err(|error| resilient_kube_client::explain(&error))?;
            // The answer has passed the mutating webhook, or else it had no defaults.
            let defaulted = !made.data["spec"][default].is_null();
            defaulted.then_some(()).ok_or_else(|| "no defaults".into())
        })
    }
}

fn object(resource: &ApiResource, peer: usize, i: usize, spec: &Value) -> DynamicObject {
    DynamicObject::new(&format!("x-{peer}-{i}"), resource).data(json!({ "spec": spec }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_load_counts_answers_and_failures() {
        let mut load = Load::default();
        let calls = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let calls = calls.clone();
            load.repeat(move |i| {
                calls.fetch_add(1, Ordering::Relaxed);
                let answer = if i % 4 == 3 {
                    Err(i.to_string())
                } else {
                    Ok(())
                };
                std::future::ready(answer)
            });
        }
        while load.answered() < 30 {
            tokio::time::sleep(lengths::load_pause()).await;
        }
        let (answered, failures) = load.end().await;
        assert_eq!(answered + failures.len(), calls.load(Ordering::Relaxed));
        assert!(failures.len() >= 6, "{failures:?}");
        for failure in failures {
            assert!(failure.began <= failure.ended);
            assert_eq!(failure.error.parse::<usize>().unwrap() % 4, 3);
        }
    }
}
