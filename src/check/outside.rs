//! An operator outside of the cluster, as `make run` starts it. No Deployment has its settings, but its webhook
//! configurations call a URL, or it holds the Lease and is not a pod.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::configurations::{self, origin, selected};
use super::fetch::{Cluster, Fetched, Resource};
use super::installation::Outside;
use super::lease;
use super::report::Level;
use crate::kinds::{Kind, REGISTRY};
use crate::manifests::{Names, PREFIX, entry_name};
use wall_clock_controller::reconcile::Shard;

/// The operator outside of the cluster, if there is one.
pub(super) async fn find(cluster: &Cluster, namespace: &str) -> Option<Outside> {
    let names = Names::new(PREFIX, namespace);
    let lease = names.lease(Shard::ALL);
    let leases = Resource::cluster("coordination.k8s.io", "v1", "leases").within(namespace);
    let pods = Resource::cluster("", "v1", "pods").within(namespace);
    let (entries, lease, pods) = tokio::join!(
        configurations::entries(cluster),
        cluster.get(leases, &lease),
        cluster.list(pods, ""),
    );
    let holder = lease.ok().zip(pods.ok());
    let holder = holder.and_then(|(lease, pods)| holder_outside(&lease, &pods, cluster.now()));
    seen(namespace, entries, holder)
}

/// Who holds the Lease, if it renews it in time and is not a pod of the namespace.
fn holder_outside(lease: &Value, pods: &[Value], now: DateTime<Utc>) -> Option<String> {
    let names = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str());
    let names: Vec<&str> = names.collect();
    let finding = lease::judge("", Ok(lease.clone()), Some(&names), now);
    let holder = lease["spec"]["holderIdentity"].as_str();
    let is_no_pod = finding.level == Level::Warning;
    holder.filter(|_| is_no_pod).map(str::to_owned)
}

/// What that shows. `entries`: those of all webhook configurations with our label, unless they could not be read.
fn seen(namespace: &str, entries: Fetched<Vec<Value>>, holder: Option<String>) -> Option<Outside> {
    let is_readable = entries.is_ok();
    let mut entries = entries.unwrap_or_default();
    entries.retain(|entry| {
        let config = &entry["clientConfig"];
        config["url"].is_string() || config["service"]["namespace"] == namespace
    });
    let mut urls = entries
        .iter()
        .filter_map(|it| it["clientConfig"]["url"].as_str());
    let sign = match (urls.next(), holder) {
        (Some(url), _) => format!("its webhooks are at {}", origin(url)),
        (None, Some(holder)) => format!("{holder} leads, which is not a pod"),
        (None, None) => return None,
    };
    let names = entries.iter().filter_map(|it| it["name"].as_str());
    let names: BTreeSet<&str> = names.collect();
    let is_served = |kind: &&Kind| {
        let is_there = |verb| names.contains(&*entry_name(kind, verb));
        is_there("mutate") || is_there("validate")
    };
    Some(Outside {
        sign,
        kinds: REGISTRY.iter().copied().filter(is_served).collect(),
        namespaces: entries.first().map(selected).unwrap_or_default(),
        webhooks: !is_readable || !entries.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::TimeDelta;
    use serde_json::json;

    use super::*;
    use crate::check::fetch::Unread;
    use crate::check::installation::Installation;
    use crate::manifests::{ClientConfig, configurations};

    fn entries(reach: &ClientConfig, namespaces: &[String]) -> Vec<Value> {
        let made = configurations(&REGISTRY[..3], &Names::default(), reach, namespaces);
        let all = made
            .iter()
            .flat_map(|it| it["webhooks"].as_array().unwrap());
        all.cloned().collect()
    }

    fn found(
        namespace: &str,
        entries: Fetched<Vec<Value>>,
        holder: Option<&str>,
    ) -> Option<Outside> {
        seen(namespace, entries, holder.map(str::to_owned))
    }

    #[test]
    fn a_url_in_the_webhook_configurations_shows_an_operator_and_its_settings() {
        let url = ClientConfig::Url("https://127.0.0.1:9443".to_owned());
        let namespaces = ["team-a".to_owned(), "team-b".to_owned()];
        let outside = found("own", Ok(entries(&url, &namespaces)), None).unwrap();
        let names = |kinds: &[&Kind]| kinds.iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(&outside.kinds), names(&REGISTRY[..3]));
        assert_eq!(outside.namespaces, namespaces);
        assert!(outside.webhooks);
        let installed = Installation::outside("own", outside);
        assert!(installed.is_outside() && installed.kinds.len() == 3);
        assert_eq!(installed.finding.level, Level::Warning);
        let words = "outside of the cluster (its webhooks are at https://127.0.0.1:9443): replicas";
        let finding = installed.finding;
        assert!(finding.message.contains(words), "{finding:?}");
        // It works in all namespaces.
        let outside = found("own", Ok(entries(&url, &[])), None).unwrap();
        assert!(outside.namespaces.is_empty());
    }

    #[test]
    fn a_holder_that_is_no_pod_shows_an_operator_too() {
        let service = || Ok(entries(&ClientConfig::Service, &[]));
        assert!(found("my-operator-system", service(), None).is_none());
        let forbidden = || Err(Unread::Unreachable(String::new()));
        for (namespace, entries, webhooks, kinds) in [
            // Of an operator whose Service leads out of the cluster.
            ("my-operator-system", service(), true, 3),
            // Of another installation.
            ("own", service(), false, 0),
            ("own", Ok(Vec::new()), false, 0),
            ("own", forbidden(), true, 0),
        ] {
            let outside = found(namespace, entries, Some("laptop_x")).unwrap();
            assert!(outside.sign.contains("laptop_x leads"), "{outside:?}");
            assert_eq!((outside.webhooks, outside.kinds.len()), (webhooks, kinds));
        }
    }

    #[test]
    fn only_a_holder_that_renews_and_is_no_pod_is_outside() {
        let now = Utc::now();
        let lease = |age| {
            let renewed = (now - TimeDelta::seconds(age)).to_rfc3339();
            json!({"spec": {"holderIdentity": "a_x", "renewTime": renewed, "leaseDurationSeconds": 15}})
        };
        let pods = |name: &str| [json!({"metadata": {"name": name}})];
        assert_eq!(
            holder_outside(&lease(3), &pods("b"), now).as_deref(),
            Some("a_x")
        );
        assert_eq!(holder_outside(&lease(3), &pods("a"), now), None);
        assert_eq!(holder_outside(&lease(16), &pods("b"), now), None);
    }
}
