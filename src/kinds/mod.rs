//! What a kind is, and the registry: one line per kind.

pub mod at;
pub mod child;
pub mod command;
pub mod count;
pub mod crontab;
pub mod foo;
pub mod foobar;
pub mod memcached;
pub mod mydaemonset;
pub mod pods;
pub mod schema;
pub mod template;

use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::admission::judge::Admission;
use crate::reconcile::Context;

/// A permission that a kind's reconciler needs.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The resource, such as `pods` or `pods/status`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Permission {
    /// To publish Events.
    pub const EVENTS: Self = Self {
        group: "events.k8s.io",
        resource: "events",
        verbs: &["create", "patch"],
    };
}

/// A sample manifest: its file name below `config/samples`, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Such as `cnat_v1alpha1_at.yaml`; what the webhook must reject is in `bad/`.
    pub file: &'static str,
    /// YAML.
    pub text: &'static str,
}

/// Everything that the rest of the program knows of a kind.
#[derive(Debug)]
pub struct Kind {
    /// The value of `--kinds`, and the kind's folder.
    pub name: &'static str,
    /// Whether it is installed, served and reconciled without being named in `--kinds`.
    pub by_default: bool,
    /// The CRD, built from the Rust types.
    pub crd: fn() -> CustomResourceDefinition,
    /// Defaulting and validation.
    pub admission: Admission,
    /// All permissions that the reconciler needs in namespaces, including those on the kind itself.
    pub permissions: &'static [Permission],
    /// Those that it needs on cluster-scoped resources, such as nodes.
    pub cluster_permissions: &'static [Permission],
    /// Samples, good and bad.
    pub samples: &'static [Sample],
    /// Runs the reconciler until the context is cancelled.
    pub start: fn(Context) -> BoxFuture<'static, anyhow::Result<()>>,
}

impl Kind {
    /// Whether `kubectl scale` writes its spec, bypassing the webhooks.
    pub fn scales(&self) -> bool {
        let mut versions = (self.crd)().spec.versions.into_iter();
        versions.any(|version| version.subresources.is_some_and(|all| all.scale.is_some()))
    }
}

/// Every kind: the one list from which all others are derived.
pub const REGISTRY: &[&Kind] = &[
    &mydaemonset::KIND,
    &at::KIND,
    &memcached::KIND,
    &crontab::KIND,
    &foo::KIND,
    &count::KIND,
    &foobar::KIND,
];

/// The kinds that are installed, served and reconciled by default.
pub fn by_default() -> Vec<&'static Kind> {
    let kinds = REGISTRY.iter().copied();
    kinds.filter(|kind| kind.by_default).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};
    use simulated_apiserver::{
        Decision, KubeletOptions, Options, Resource, Server, Site, Status, Verb,
    };
    use tokio::time::sleep;

    use super::*;

    /// The seconds at which a kind tried to write, Events excluded, while its object changes five
    /// times a second and the API server gives that answer to each write.
    async fn attempts(kind: &Kind, answer: Status) -> Vec<u64> {
        let server = Server::new(Options::default());
        let crd = (kind.crd)().spec;
        let version = &crd.versions[0].name;
        let (name, plural) = (&crd.names.kind, &crd.names.plural);
        server.register(Resource::custom(&crd.group, version, name, plural));
        let kubelet = server.kubelet(KubeletOptions::default());
        kubelet.add_node("n");
        server.on(move |site: &Site| match site.verb {
            Verb::Get | Verb::List | Verb::Watch => Decision::Forward,
            _ if site.resource == "events" => Decision::Forward,
            _ => Decision::Answer(answer.clone()),
        });
        let (context, teller) = Context::simulated(&server, "operator");
        tokio::spawn(teller.run(context.stop.clone()));
        tokio::spawn((kind.start)(context));
        let mut object: Value = serde_saphyr::from_str(kind.samples[0].text).unwrap();
        object["metadata"]["namespace"] = json!("default");
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        server.direct().create(object).unwrap();
        for change in 0..300 {
            let labels = json!({"metadata": {"labels": {"change": change.to_string()}}});
            let objects = server.direct();
            objects.patch(plural, "default", &name, &labels).unwrap();
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
}
