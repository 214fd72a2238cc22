//! A controller that has something outside of the cluster to clean up:
//! `cargo run -p wall-clock-controller --example finalizer`. The finalizer itself is kube's.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller;
use kube::runtime::finalizer::{Error as Failed, Event, finalizer};
use kube::{Api, Client};
use resilient_kube_client::clock;
use serde_json::json;
use simulated_apiserver::{Options, Server};
use tokio::time::sleep;
use wall_clock_controller::reconcile::cache::{Cache, CacheEvent};
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::{Action, Context, Controller, Error, Key, Reconciler, call};

/// The names in the world outside, such as DNS records.
type Records = Arc<Mutex<Vec<String>>>;

struct Dns {
    client: Client,
    objects: Arc<Cache<ConfigMap>>,
    records: Records,
}

impl Reconciler for Dns {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(object) = self.objects.get(key) else {
            return Ok(Action::gone());
        };
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &key.namespace);
        let act = |event| {
            let mut records = self.records.lock().unwrap();
            records.retain(|record| *record != key.to_string());
            if let Event::Apply(_) = event {
                records.push(key.to_string());
            }
            ready(Ok::<_, kube::Error>(controller::Action::await_change()))
        };
        // Its patch fails if the cache is behind, and the runner tries again.
        let patched = async {
            let done = finalizer(&api, "example.com/dns", object, act).await;
            done.map_err(|failed| match failed {
                Failed::ApplyFailed(error)
                | Failed::CleanupFailed(error)
                | Failed::AddFinalizer(error)
                | Failed::RemoveFinalizer(error) => error,
                other => kube::Error::Service(other.into()),
            })
        };
        call("keep the DNS record", key, patched).await?;
        Ok(Action::default())
    }
}

async fn run(context: Context, records: Records) -> anyhow::Result<()> {
    let apis = context.apis::<ConfigMap>();
    let controller = Controller::new("dns", &context);
    let objects = Arc::new(Cache::new(apis.len(), |_| vec![]));
    let labelled = Selection::default().labels("dns=yes");
    let queue = controller.queue();
    let on_event = move |event: &CacheEvent<'_, ConfigMap>| event.enqueue(&queue);
    let client = context.client.clone();
    let dns = Arc::new(Dns {
        client,
        objects,
        records,
    });
    controller
        .watch(apis, &labelled, &dns.objects, |object| object, on_event)
        .run(dns.clone())
        .await
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let server = Server::new(Options::default());
    let (context, events) = Context::new(server.client("dns"), clock::system(), "dns");
    let stop = context.stop.clone();
    tokio::spawn(events.run(stop.clone()));
    let records = Records::default();
    let running = tokio::spawn(run(context, records.clone()));
    let exists = || server.direct().get("ConfigMap", "default", "a").is_some();

    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"dns": "yes"}}});
    server.direct().create(object).unwrap();
    sleep(Duration::from_secs(5)).await; // takes no time: the clock is virtual
    println!(
        "created: exists {}, records {:?}",
        exists(),
        records.lock().unwrap()
    );
    server.direct().delete("ConfigMap", "default", "a").unwrap();
    sleep(Duration::from_secs(5)).await;
    println!(
        "deleted: exists {}, records {:?}",
        exists(),
        records.lock().unwrap()
    );

    stop.cancel();
    running.await.unwrap().unwrap();
}
