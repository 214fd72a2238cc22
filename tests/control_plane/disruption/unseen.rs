//! Objects that no operator has seen yet.

use std::time::Duration;

use my_operator::kinds::{Kind, REGISTRY};
use serde_json::Value;

use crate::disruption::cluster;
use crate::harness::{Kubectl, Operator, every_kind};

const OBSERVED: &str = "{.status.observedGeneration}";

/// The first sample of a kind, as kubectl takes it.
fn object(kind: &Kind) -> String {
    let sample: Value = serde_saphyr::from_str(kind.samples[0].text).unwrap();
    let resource = (kind.admission.resource)();
    let name = sample["metadata"]["name"].as_str().unwrap();
    format!("{}.{}/{name}", resource.plural, resource.group)
}

/// kstatus takes an object for Current that has no status, and for InProgress while the observed generation is not its
/// own.
#[tokio::test]
async fn the_observed_generation_is_minus_one_until_an_operator_has_seen_the_object() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("unseen").await.unwrap();
    let kubectl = Kubectl::new(cluster, &namespace);
    let samples: Vec<&str> = REGISTRY.iter().map(|kind| kind.samples[0].text).collect();
    kubectl.apply(&samples.join("\n---\n")).await.good();
    for kind in REGISTRY {
        let found = kubectl.field(&object(kind), OBSERVED).await;
        assert_eq!(found, "-1", "{}", kind.name);
    }
    let flags = ["--webhooks=false", &every_kind(), "--namespace", &namespace];
    let operator = Operator::start(cluster, "unseen", &flags).await;
    for kind in REGISTRY {
        kubectl.until_field(&object(kind), OBSERVED, "1").await;
    }
    operator.process.stop(Duration::from_secs(10)).await;
}
