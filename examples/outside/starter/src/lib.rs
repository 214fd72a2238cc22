//! A controller that starts one pod for each ConfigMap with the label `run=yes`, and records the pod's name in it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

/// Who names the pods.
#[derive(Clone, Copy, Debug)]
pub enum Naming {
    /// The API server. This is the planted bug: after a create whose answer is lost, another pod is created.
    Generated,
    /// The controller, after the ConfigMap: a second create is answered with AlreadyExists.
    Fixed,
}

struct Context {
    client: Client,
    naming: Naming,
}

/// Runs the controller.
pub async fn run(client: Client, naming: Naming) {
    let configs = Api::<ConfigMap>::default_namespaced(client.clone());
    Controller::new(configs, watcher::Config::default().labels("run=yes"))
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(Context { client, naming }),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(config: Arc<ConfigMap>, context: Arc<Context>) -> kube::Result<Action> {
    let data = config.data.as_ref();
    if data.is_none_or(|data| !data.contains_key("pod")) {
        let pod = start(&config, &context).await?;
        let configs = Api::<ConfigMap>::default_namespaced(context.client.clone());
        let record = Patch::Merge(json!({"data": {"pod": pod}}));
        configs
            .patch(&config.name_any(), &PatchParams::default(), &record)
            .await?;
    }
    Ok(Action::await_change())
}

/// Starts the pod, and returns its name.
async fn start(config: &ConfigMap, context: &Context) -> kube::Result<String> {
    let name = config.name_any();
    let mut pod = json!({
        "metadata": {"ownerReferences": config.controller_owner_ref(&()).as_slice()},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    });
    match context.naming {
        Naming::Generated => pod["metadata"]["generateName"] = json!(format!("{name}-")),
        Naming::Fixed => pod["metadata"]["name"] = json!(name),
    }
    let pod: Pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
    let pods = Api::<Pod>::default_namespaced(context.client.clone());
    match pods.create(&PostParams::default(), &pod).await {
        Ok(started) => Ok(started.name_any()),
        // An earlier attempt started it.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(name),
        Err(error) => Err(error),
    }
}
