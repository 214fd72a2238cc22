//! A controller that keeps a copy of each labelled ConfigMap: `cargo run -p wall-clock-controller --example copies`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use resilient_kube_client::clock;
use serde_json::json;
use simulated_apiserver::{Options, Server};
use tokio::time::sleep;
use wall_clock_controller::reconcile::cache::{Cache, CacheEvent};
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::{
    Action, Context, Controller, Error, Key, Reconciler, call, write,
};

/// What the cache holds of a ConfigMap.
#[derive(PartialEq)]
struct View {
    uid: String,
}

struct Copies {
    client: Client,
    originals: Arc<Cache<View>>,
}

impl Reconciler for Copies {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(original) = self.originals.get(key) else {
            return Ok(Action::gone()); // the garbage collector deletes the copy
        };
        let owner = write::controller_reference::<ConfigMap>(&key.name, &original.uid);
        let name = format!("{}-copy", key.name);
        let copy = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        let body = copy.to_string().into_bytes();
        let create =
            write::create::<ConfigMap, ConfigMap>(&self.client, &key.namespace, body, "copies");
        match call("create the copy", key, create).await {
            Ok(_) => Ok(Action {
                did: Some(format!("created {name}")),
                ..Action::default()
            }),
            Err(error) if error.is_conflict() => Ok(Action::default()), // there is a copy
            Err(error) => Err(error), // the runner backs off, and tries again
        }
    }
}

async fn controller(context: Context) -> anyhow::Result<()> {
    let apis = context.apis::<ConfigMap>();
    let controller = Controller::new("copies", &context);
    let originals = Arc::new(Cache::new(apis.len(), |_| vec![]));
    let labelled = Selection::default().labels("copy=yes");
    let view = |object: ConfigMap| View {
        uid: object.metadata.uid.unwrap_or_default(),
    };
    let queue = controller.queue();
    let on_event = move |event: &CacheEvent<'_, View>| event.enqueue(&queue);
    let client = context.client.clone();
    let copies = Arc::new(Copies { client, originals });
    controller
        .watch(apis, &labelled, &copies.originals, view, on_event)
        .run(copies.clone())
        .await
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let server = Server::new(Options::default());
    let (context, events) = Context::new(server.client("copies"), clock::system(), "copies");
    let stop = context.stop.clone();
    tokio::spawn(events.run(stop.clone()));
    let running = tokio::spawn(controller(context));

    let original = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"copy": "yes"}}});
    server.direct().create(original).unwrap();
    sleep(Duration::from_secs(5)).await; // takes no time: the clock is virtual
    let copy = server
        .direct()
        .get("ConfigMap", "default", "a-copy")
        .unwrap();
    println!("{}", copy["metadata"]["ownerReferences"]);

    stop.cancel();
    running.await.unwrap().unwrap();
}
