//! What a platform team does, on a real API server: `make deploy` and its like, and the components of
//! `config/components`; the Helm chart.

mod chart;
mod components;
mod context;
mod deploy;
mod kinds;
mod operator_policy;

use std::process::Command;

use crate::harness::{self, Said, checkout, run};
use my_operator::kinds::REGISTRY;
use my_operator_cluster::Cluster;

/// Lets a program run in the checkout, against that cluster.
async fn environment<'a>(cluster: &Cluster, command: &'a mut Command) -> &'a mut Command {
    let kubectl = cluster.kubectl();
    command
        .current_dir(checkout())
        .env("KUBECTL", harness::counting_kubectl(cluster))
        // The operator's pods do not run here, so its webhooks do not answer. tests/e2e deploys with the check.
        .env("CHECK", "no");
    for (name, value) in kubectl.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}

/// A script of `hack/` against that cluster.
async fn script(cluster: &Cluster, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(checkout().join(words.next().unwrap()));
    environment(cluster, command.args(words)).await;
    command
}

/// The same, run to its end, without a terminal.
async fn hack(cluster: &Cluster, line: &str) -> Said {
    run(&mut script(cluster, line).await, "").await
}

/// What `hack/render` prints.
async fn rendered(cluster: &Cluster, components: &str) -> String {
    hack(
        cluster,
        &format!("hack/render example.com/my-operator:1 {components}"),
    )
    .await
    .good()
}

/// `kubectl ARGS` with objects of several namespaces on its standard input.
async fn kubectl(cluster: &Cluster, args: &str, input: &str) -> Said {
    let mut command = Command::new(harness::counting_kubectl(cluster));
    environment(cluster, command.args(args.split_whitespace())).await;
    run(&mut command, input).await
}

/// Asserts that with these arguments the operator serves every kind.
fn assert_serves_every_kind(arguments: &str) {
    for kind in REGISTRY {
        let argument = format!("--kinds={}", kind.name);
        assert!(arguments.contains(&argument), "{argument}: {arguments}");
    }
    assert_eq!(arguments.matches("--kinds=").count(), REGISTRY.len());
}

/// The documents of a rendering that contain all of these words.
fn part(all: &str, words: &[&str]) -> String {
    let documents = all.split("\n---\n");
    let wanted = documents.filter(|text| words.iter().all(|word| text.contains(word)));
    let wanted: Vec<&str> = wanted.collect();
    assert!(!wanted.is_empty(), "no document with {words:?}");
    wanted.join("\n---\n")
}
