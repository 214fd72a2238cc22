//! What holds for every kind.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use simulated_apiserver::{
    Decision, KubeletOptions, Options, Resource, Server, Site, Status, Verb,
};
use tokio::time::sleep;

use super::{Kind, REGISTRY};
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::Context;

/// The resource of the kind.
fn resource(kind: &Kind) -> Resource {
    let crd = (kind.crd)().spec;
    let version = &crd.versions[0].name;
    let (name, plural) = (&crd.names.kind, &crd.names.plural);
    Resource::custom(&crd.group, version, name, plural)
}

/// A server that knows the kind.
fn server_of(kind: &Kind) -> Server {
    let server = Server::new(Options::default());
    server.register(resource(kind));
    server
}

/// Starts the reconciler of the kind. Returns its metrics.
fn start(kind: &Kind, server: &Server) -> Arc<Mutex<Registry>> {
    let (client, clock) = (server.client("operator"), server.clock().source());
    let (context, teller) = Context::new(client, clock, MANAGER);
    let registry = context.registry.clone();
    tokio::spawn(teller.run(context.stop.clone()));
    tokio::spawn(kind.start.run_with_defaults(context).unwrap());
    registry
}

/// Creates the first sample of the kind. Returns its name.
fn create(kind: &Kind, server: &Server) -> String {
    let mut object: Value = serde_saphyr::from_str(kind.samples[0].text).unwrap();
    object["metadata"]["namespace"] = json!("default");
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    server.direct().create(object).unwrap();
    name
}

/// The seconds at which a kind tried to write, Events excluded, while its object changes five
/// times a second and the API server gives that answer to each write.
async fn attempts(kind: &Kind, answer: Status) -> Vec<u64> {
    let server = server_of(kind);
    let kubelet = server.kubelet(KubeletOptions::default());
    kubelet.add_node("n");
    server.on(move |site: &Site| match site.verb {
        Verb::Get | Verb::List | Verb::Watch => Decision::Forward,
        _ if site.resource == "events" => Decision::Forward,
        _ => Decision::Answer(answer.clone()),
    });
    start(kind, &server);
    let name = create(kind, &server);
    let plural = (kind.admission.resource)().plural;
    for change in 0..300 {
        let labels = json!({"metadata": {"labels": {"change": change.to_string()}}});
        let objects = server.direct();
        objects.patch(&plural, "default", &name, &labels).unwrap();
        sleep(Duration::from_millis(200)).await;
    }
    let requests = server.history().requests.into_iter();
    let refused = requests.filter(|request| request.code.is_some_and(|code| code >= 429));
    let mut seconds: Vec<_> = refused.map(|request| request.elapsed.as_secs()).collect();
    seconds.dedup();
    seconds
}

#[tokio::test(start_paused = true)]
async fn events_shorten_no_pause_after_a_failure_of_any_kind() {
    for kind in REGISTRY {
        let busy = Status::too_many_requests(Duration::from_secs(7));
        let tried = attempts(kind, busy).await;
        let pauses = tried.windows(2).map(|two| two[1] - two[0]);
        // In the last second of a pause some may be counted.
        assert!(pauses.min() >= Some(6), "{}: {tried:?}", kind.name);
        assert!(tried.len() >= 3, "{}: {tried:?}", kind.name);
        // Without an answer of the API server the pause doubles.
        let tried = attempts(kind, Status::internal_error("etcd")).await;
        assert!((5..=9).contains(&tried.len()), "{}: {tried:?}", kind.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crd_without_a_status_subresource_is_reported_by_every_kind() {
    for kind in REGISTRY {
        let server = Server::new(Options::default());
        server.register(resource(kind).without_status());
        let kubelet = server.kubelet(KubeletOptions::default());
        kubelet.add_node("n");
        let registry = start(kind, &server);
        create(kind, &server);
        sleep(Duration::from_mins(10)).await;
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry.lock()).unwrap();
        let errors = page
            .lines()
            .filter(|line| line.starts_with("my_operator_reconcile_errors_total{"));
        let errors: Vec<&str> = errors.collect();
        let only = "category=\"NoStatusSubresource\"";
        assert!(
            errors.len() == 1 && errors[0].contains(only),
            "{}: {errors:?}",
            kind.name
        );
        let count = errors[0].rsplit(' ').next().unwrap().parse::<u32>();
        // With backoff, and as long as it is so.
        assert!((10..=20).contains(&count.unwrap()), "{errors:?}");
    }
}

/// What a kind does within a minute for an object that has that status when the operator starts, and the status then.
async fn first_minute(kind: &Kind, status: Option<&Value>) -> (Vec<String>, Value) {
    let server = server_of(kind);
    let kubelet = server.kubelet(KubeletOptions::default());
    kubelet.add_node("n");
    let name = create(kind, &server);
    let plural = (kind.admission.resource)().plural;
    let objects = server.direct();
    if let Some(status) = status {
        let change = json!({"status": status});
        let patched = objects.patch_status(&plural, "default", &name, &change);
        patched.unwrap();
    }
    start(kind, &server);
    sleep(Duration::from_mins(1)).await;
    let requests = server.history().requests.into_iter();
    let requests = requests.map(|request| format!("{} {:?}", request.site, request.code));
    let object = objects.get(&plural, "default", &name).unwrap();
    (requests.collect(), object["status"].clone())
}

/// The API server fills in the default; objects on a simulated one, and those of an older CRD, have no status.
#[tokio::test(start_paused = true)]
async fn the_default_status_is_treated_as_no_status() {
    for kind in REGISTRY {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let default = &schema["properties"]["status"]["default"];
        let with = first_minute(kind, Some(default)).await;
        let without = first_minute(kind, None).await;
        assert_eq!(with, without, "{}", kind.name);
        assert_eq!(with.1["observedGeneration"], 1, "{}", kind.name);
    }
}

/// Every image in a part of an object.
fn images(part: &Value, found: &mut BTreeSet<String>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(image) if key == "image" => _ = found.insert(image.to_owned()),
            _ => images(value, found),
        }
    }
    for item in part.as_array().into_iter().flatten() {
        images(item, found);
    }
}

/// Mirrors of registries copy what is listed.
#[tokio::test(start_paused = true)]
async fn the_images_of_a_kind_are_those_of_its_pods_where_the_object_names_none() {
    for kind in REGISTRY {
        let server = server_of(kind);
        let kubelet = server.kubelet(KubeletOptions::default());
        kubelet.add_node("n");
        let mut object: Value = serde_saphyr::from_str(kind.samples[0].text).unwrap();
        object["spec"].as_object_mut().unwrap().remove("image");
        server.direct().create(object).unwrap();
        start(kind, &server);
        sleep(Duration::from_mins(1)).await;
        let mut found = BTreeSet::new();
        for plural in ["pods", "deployments", "jobs", "cronjobs"] {
            for object in server.direct().list(plural, "") {
                images(&object["spec"], &mut found);
            }
        }
        let listed = kind.images.iter().map(|image| (*image).to_owned());
        let listed: BTreeSet<String> = listed.collect();
        assert_eq!(found, listed, "{}", kind.name);
    }
}
