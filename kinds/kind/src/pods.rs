//! The pods that kinds count: slim views, since a cluster may have 100,000 of them.
//!
//! A kind watches [`Pod`]s with [`selection`] and caches [`PodView`]s. These have only the pod's
//! namespace, the values of the labels that the kind asks for, and its state; the name is in the
//! key of the cache. A pod with two labels costs 0.6 kB, cache and index included.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::watched::WatchedStatus;
use wall_clock_controller::reconcile::raw::{self, Raw};
#[cfg(feature = "controllers")]
use wall_clock_controller::reconcile::watch::Selection;

/// Page size of a list: pods are long texts of which little is kept.
#[cfg(feature = "controllers")]
const PAGE: u32 = 100;

/// Which pods are watched, and how.
#[cfg(feature = "controllers")]
pub fn selection() -> Selection {
    Selection::default().page(PAGE)
}

/// A pod as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub struct Pod {
    /// The pod's metadata, as far as it is used.
    #[serde(deserialize_with = "raw::metadata")]
    pub metadata: ObjectMeta,
    /// What its kubelet reports.
    #[serde(default, deserialize_with = "lenient")]
    pub status: WatchedStatus,
}

/// A pod with a malformed status is not ready. It must not block the watch.
fn lenient<'de, D: Deserializer<'de>>(reader: D) -> Result<WatchedStatus, D::Error> {
    let raw = Raw::deserialize(reader)?;
    Ok(serde_json::from_str(raw.text()).unwrap_or_default())
}

/// What the cache holds of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.namespace`: pods are looked up in one namespace.
    pub namespace: Box<str>,
    /// The values of the requested labels, in their order; empty if it has none of them.
    labels: Box<[Option<Box<str>>]>,
    /// Whether the pod counts as ready, as for a Service: it is Running and Ready, and not being deleted.
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether all its containers have ended for good: it has Succeeded or Failed.
    pub ended: bool,
    /// The exit code of the first container that ended.
    pub exit_code: Option<i32>,
}

impl PodView {
    /// Index key of a pod by a label's value in its namespace.
    pub fn index(namespace: &str, value: &str) -> String {
        format!("{namespace}/{value}")
    }

    /// The view of a pod, with the values of those labels.
    pub fn new(pod: Pod, labels: &[&str]) -> Self {
        let Pod { metadata, status } = pod;
        let mut own = metadata.labels.unwrap_or_default();
        let values = labels.iter().map(|key| own.remove(*key).map(Into::into));
        let values: Box<[_]> = values.collect();
        let none = values.iter().all(Option::is_none);
        let deleting = metadata.deletion_timestamp.is_some();
        let ready = status.condition("Ready");
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        Self {
            namespace: metadata.namespace.unwrap_or_default().into(),
            labels: if none { Box::default() } else { values },
            ready: is_ready && status.phase == "Running" && !deleting,
            deleting,
            exit_code: status
                .container_statuses
                .iter()
                .find_map(|container| Some(container.state.terminated.as_ref()?.exit_code)),
            ended: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
        }
    }

    /// The value of the requested label at this position, counted from 0.
    pub fn label(&self, place: usize) -> Option<&str> {
        self.labels.get(place)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use my_operator_retained as retained;

    const LABELS: &[&str] = &["app", "memcached_cr"];

    fn view(pod: &Value) -> PodView {
        PodView::new(serde_json::from_str(&pod.to_string()).unwrap(), LABELS)
    }

    fn pod(phase: &str, ready: &str) -> Value {
        json!({"metadata": {"name": "x", "namespace": "ns", "labels": {"app": "nginx", "other": "o"}},
            "status": {"phase": phase, "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_cached_pod_takes_little_more_memory_than_its_text() {
        let mut pod = pod("Running", "True");
        pod["status"]["containerStatuses"] =
            json!([{"name": "a", "state": {"terminated": {"exitCode": 1}}}]);
        retained::check(&pod, |pod| PodView::new(pod, LABELS));
    }

    #[test]
    fn a_pod_is_ready_while_it_runs_and_is_ready_and_stays() {
        assert!(view(&pod("Running", "True")).ready);
        for (phase, ready) in [
            ("Running", "False"),
            ("Running", "Unknown"),
            ("Pending", "True"),
            ("Succeeded", "True"),
            ("Failed", "True"),
            ("Unknown", "True"),
        ] {
            assert!(!view(&pod(phase, ready)).ready, "{phase} {ready}");
        }
        let mut leaving = pod("Running", "True");
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let leaving = view(&leaving);
        assert!(leaving.deleting && !leaving.ready);
    }

    #[test]
    fn a_pod_that_is_over_has_ended() {
        for (phase, ended) in [
            ("Pending", false),
            ("Running", false),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            assert_eq!(view(&pod(phase, "False")).ended, ended, "{phase}");
        }
    }

    #[test]
    fn only_the_requested_labels_are_kept() {
        let seen = view(&pod("Running", "True"));
        assert_eq!(seen.label(0), Some("nginx"));
        assert_eq!(seen.label(1), None);
        assert_eq!(seen.label(2), None);
        assert_eq!(&*seen.namespace, "ns");
        let bare = view(&json!({"metadata": {"name": "x", "labels": {"other": "o"}}}));
        assert_eq!(bare, PodView::default());
    }

    #[test]
    fn whatever_a_status_is_the_pod_can_be_read() {
        for status in [
            json!(null),
            json!(7),
            json!({"phase": null}),
            json!({"phase": "Running", "conditions": null}),
            json!({"phase": "Running", "conditions": [{"type": 1}]}),
            json!({"phase": "Running", "conditions": [null]}),
        ] {
            let seen = view(&json!({"metadata": {"name": "x"}, "status": status}));
            assert_eq!(seen, PodView::default());
        }
    }

    #[test]
    fn a_view_is_small() {
        assert!(std::mem::size_of::<PodView>() <= 48);
    }
}
