//! A controller of about 50 lines, and what a simulation shows of it:
//! `cargo run -p simulated-apiserver --example job_runner`.
//!
//! For every ConfigMap labelled `run=yes` it makes one pod, and records how the pod ended. The simulation runs it once
//! for each request that it makes, and has that request fail in three ways. No pod may be made twice, and no result
//! may be missing.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use simulated_apiserver::{ChangeKind, Decision, KubeletOptions, Options, Server, Site, Status};

async fn reconcile(config: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let pods: Api<Pod> = Api::default_namespaced(Client::clone(&client));
    let configs: Api<ConfigMap> = Api::default_namespaced(Client::clone(&client));
    let name = config.name_any();
    if config
        .data
        .as_ref()
        .is_some_and(|data| data.contains_key("result"))
    {
        return Ok(Action::await_change());
    }
    let Some(pod) = pods.get_opt(&name).await? else {
        let pod = json!({
            "metadata": {"name": name, "ownerReferences": [config.controller_owner_ref(&()).unwrap()]},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        });
        // The fixed name is the lock: a second create is answered with AlreadyExists.
        pods.create(
            &PostParams::default(),
            &serde_json::from_value(pod).unwrap(),
        )
        .await?;
        return Ok(Action::await_change());
    };
    let phase = pod
        .status
        .and_then(|status| status.phase)
        .unwrap_or_default();
    if phase == "Succeeded" || phase == "Failed" {
        let patch = Patch::Merge(json!({"data": {"result": phase}}));
        configs
            .patch(&name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

async fn controller(client: Client) {
    let configs = Api::default_namespaced(client.clone());
    Controller::new(configs, watcher::Config::default().labels("run=yes"))
        .owns(
            Api::<Pod>::default_namespaced(client.clone()),
            watcher::Config::default(),
        )
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(async |_| {})
        .await;
}

/// One run of two virtual minutes, in which one request fails. Returns the requests of the controller.
async fn run(fault: Option<(Site, fn() -> Decision)>) -> Vec<Site> {
    let server = Server::new(Options::default());
    server.on(move |site: &Site| match &fault {
        Some((at, fault)) if at == site => fault(),
        _ => Decision::Forward,
    });
    let kubelet = server.kubelet(KubeletOptions::default());
    kubelet.add_node("n1");
    let task = tokio::spawn(controller(server.client("job-runner")));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"run": "yes"}}});
    server.direct().create(config).unwrap();
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    task.abort();
    let history = server.history();
    let made =
        |v: &&simulated_apiserver::Version| v.resource == "pods" && v.kind == ChangeKind::Added;
    assert_eq!(
        history.versions.iter().filter(made).count(),
        1,
        "one pod is made"
    );
    let config = server.direct().get("ConfigMap", "default", "a").unwrap();
    assert_eq!(
        config["data"]["result"], "Succeeded",
        "the result is recorded"
    );
    history
        .requests
        .into_iter()
        .map(|request| request.site)
        .collect()
}

fn main() {
    let simulate = |fault| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(run(fault))
    };
    let before = std::time::Instant::now();
    let sites = simulate(None);
    let faults: [fn() -> Decision; 3] = [
        || Decision::Lost,
        || Decision::Unanswered,
        || Decision::Answer(Status::too_many_requests(Duration::from_secs(1))),
    ];
    let runs = sites
        .iter()
        .flat_map(|site| faults.map(|fault| (site.clone(), fault)));
    let mut count = 0;
    for run in runs {
        simulate(Some(run));
        count += 1;
    }
    println!("{count} runs of 2 minutes in {:?}", before.elapsed());
}
