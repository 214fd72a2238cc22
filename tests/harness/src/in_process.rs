//! The reconciler of one kind in this process, on any client and clock: that of a control plane, or a simulated one.

use std::sync::{Arc, LazyLock};

use chrono::TimeDelta;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use kube::Client;
use my_operator::kinds::{Kind, REGISTRY};
use my_operator_kind::manager::MANAGER;
use resilient_kube_client::clock::Clock;
use simulated_apiserver::{Resource, Server};
use tokio_util::sync::CancellationToken;
use wall_clock_controller::reconcile::Context;
use wall_clock_controller::reconcile::event::EventPublisher;

/// The kind of that name, as `--kinds` takes it.
pub fn kind(name: &str) -> &'static Kind {
    let found = REGISTRY.iter().find(|kind| kind.name == name);
    found.unwrap_or_else(|| panic!("no kind {name}"))
}

/// Runs the reconciler of a kind, and what publishes its Events, until `stop`. It watches these namespaces, or all.
pub async fn reconcile(
    kind: &'static Kind,
    client: Client,
    clock: Clock,
    namespaces: Vec<String>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (mut context, publisher) = Context::new(client, clock, MANAGER);
    context.namespaces = namespaces;
    context.stop = stop;
    run(kind, context, publisher).await
}

/// The same in a context of one's own, until it is stopped.
pub async fn run(
    kind: &'static Kind,
    context: Context,
    publisher: EventPublisher,
) -> anyhow::Result<()> {
    let stop = context.stop.clone();
    let reconciler = kind.start.run_with_defaults(context)?;
    tokio::join!(reconciler, publisher.run(stop)).0
}

/// Makes our kinds known to a simulated API server.
pub fn register(server: &Server) {
    // To make a CRD from the types takes longer than a simulated run.
    static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
        let crds = REGISTRY.iter().map(|kind| (kind.crd)().spec);
        let resource = |crd: CustomResourceDefinitionSpec| {
            let names = &crd.names;
            Resource::custom(
                &crd.group,
                &crd.versions[0].name,
                &names.kind,
                &names.plural,
            )
        };
        crds.map(resource).collect()
    });
    for resource in RESOURCES.iter() {
        server.register(resource.clone());
    }
}

/// The clock of a simulated API server, which `ahead` seconds are added to.
pub fn simulated_clock(server: &Server, ahead: i64) -> Clock {
    let (wall, ahead) = (server.clock().clone(), TimeDelta::seconds(ahead));
    Arc::new(move || wall.now() + ahead)
}
