//! The types of `MyDaemonSet`, and the CRD generated from them. Rust clients may use the types (docs/clients.md).
//!
//! The schema has only types and descriptions: the API server validates the schema before it calls
//! a validating webhook, so a bound in it would hide the webhook's complete list of errors.

// Clippy takes columns of one type for duplicates.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, CustomResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use admission_rules::review::object_or_null;
use my_operator_kind::schema;
use my_operator_kind::template::PodTemplate;
use wall_clock_controller::reconcile::condition::Condition;
use wall_clock_controller::reconcile::raw;

/// What one pod on every eligible node looks like, and how a change of it is rolled out.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.zhongmingmao.io",
    version = "v1beta1",
    kind = "MyDaemonSet",
    plural = "mydaemonsets",
    shortname = "mds",
    // As DaemonSet, which `kubectl get all` lists.
    category = "all",
    namespaced,
    status = "MyDaemonSetStatus",
    doc = "One pod on every eligible node. A change of the image or the template is rolled out node by node; a pod that fails is made again with a growing pause.",
    printcolumn(
        name = "DESIRED",
        type_ = "integer",
        json_path = ".status.desiredNumberScheduled",
        description = "Nodes that should have a pod"
    ),
    printcolumn(
        name = "CURRENT",
        type_ = "integer",
        json_path = ".status.currentNumberScheduled",
        description = "Nodes that should have a pod and have one"
    ),
    printcolumn(
        name = "READY",
        type_ = "integer",
        json_path = ".status.numberReady",
        description = "Nodes that should have a pod and have one that is ready"
    ),
    printcolumn(
        name = "UP-TO-DATE",
        type_ = "integer",
        json_path = ".status.updatedNumberScheduled",
        description = "Nodes that should have a pod and have one of the newest revision"
    ),
    printcolumn(
        name = "AVAILABLE",
        type_ = "integer",
        json_path = ".status.numberAvailable",
        description = "Nodes that should have a pod and have one that has been ready for minReadySeconds"
    ),
    printcolumn(
        name = "STATE",
        type_ = "string",
        json_path = ".status.state",
        description = "What needs attention, else how far the roll-out is, else why it stands"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "IMAGE",
        type_ = "string",
        json_path = ".spec.image",
        description = "spec.image; empty when the container app of the template has its own",
        priority = 1
    ),
    printcolumn(
        name = "REVISION",
        type_ = "string",
        json_path = ".status.updateRevision",
        description = "The newest revision",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MyDaemonSetSpec {
    /// Image of the container `app`, such as nginx:1.29. Required unless that container of the template has one,
    /// which then wins.
    pub image: Option<String>,
    /// A pod template; a container `app` is added if it has none. Not allowed: nodeName, owner references,
    /// resourceClaims, schedulingGates, activeDeadlineSeconds, a restartPolicy other than Always, and what the
    /// operator sets. Default: one container `app` with spec.image.
    pub template: Option<PodTemplate>,
    /// How a change reaches the nodes. Default: RollingUpdate, one node at a time.
    #[serde(default, deserialize_with = "object_or_null")]
    pub update_strategy: Option<UpdateStrategy>,
    /// Seconds for which a new pod must have been ready to count as available, 0 or more. Default: 0.
    pub min_ready_seconds: Option<i32>,
    /// Seconds in which a new pod must become available, or its node has failed; more than minReadySeconds. As long,
    /// the limits wait for a node that was unavailable before. Default: 600 more than minReadySeconds.
    pub progress_deadline_seconds: Option<i32>,
    /// How many unused revisions are kept, 1 to 100. Default: 10.
    pub revision_history_limit: Option<i32>,
}

/// How a change reaches the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate: the operator replaces pods. OnDelete: a node gets the newest revision when its pod is deleted.
    /// Default: RollingUpdate.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Limits of a roll-out; no effect under OnDelete.
    #[serde(default, deserialize_with = "object_or_null")]
    pub rolling_update: Option<RollingUpdate>,
}

/// The limits of a roll-out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many nodes may be without an available pod, for whatever reason: a number, or a percentage of the nodes,
    /// rounded up, "0%" to "100%". Not counted: nodes in maintenance, NotReady for longer than
    /// --node-not-ready-grace, or, after progressDeadlineSeconds, unavailable since before the roll-out. 0 only with
    /// maxSurge. Default: 1.
    #[serde(default)]
    #[schemars(schema_with = "int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// On how many nodes the new pod may start before the old one is deleted, as a number or a percentage. Not with
    /// host ports. Default: 0.
    #[serde(default)]
    #[schemars(schema_with = "int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// How many nodes keep their revision, 0 or more: of those without the newest, the last by name, byte by byte
    /// (node-10 before node-2). Default: 0.
    pub partition: Option<i32>,
    /// Whether the roll-out stands still; missing pods are created all the same. Default: false.
    pub paused: Option<bool>,
    /// When the roll-out stops by itself because the new revision fails.
    #[serde(default, deserialize_with = "object_or_null")]
    pub auto_pause: Option<AutoPause>,
    /// Nodes that get a new revision before all others. {} means one node for ten minutes. Default: none.
    #[serde(default, deserialize_with = "object_or_null")]
    pub canary: Option<Canary>,
    /// A node label, such as topology.kubernetes.io/zone. A new revision reaches the nodes of one value after those
    /// of another, and those without the label last. An undo goes everywhere at once. Default: none.
    pub topology_key: Option<String>,
    /// Values of topologyKey that come first, in this order, at most 100; others follow by name. Default: none.
    pub order: Option<Vec<String>>,
    /// What follows when the roll-out stops by itself. Pause: it waits for a user. Undo: the pods go back to the last
    /// completed revision; the failed one is not tried again until the image or template changes, or it is resumed.
    /// Default: Pause.
    pub on_failure: Option<String>,
    /// When steps of a roll-out may begin, at most 10 windows. Outside, nodes keep their revision, as while paused;
    /// an onFailure Undo does not wait. Default: none, at any time.
    pub windows: Option<Vec<Window>>,
}

/// When a roll-out stops by itself. A node fails if it had an available pod of an older revision, and the pod of the
/// new revision that replaced it crashes, cannot be pulled for a minute, cannot be configured, or is not available after
/// progressDeadlineSeconds; or if the node goes NotReady for 15 seconds.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoPause {
    /// Whether it stops at all. Default: true.
    pub enabled: Option<bool>,
    /// How many failed nodes stop it, 1 or more. Default: as maxUnavailable, at least 1; 1 during a canary; fewer if
    /// the present domain (topologyKey) waits for nothing else.
    pub max_failures: Option<i32>,
    /// Seconds after a pod's creation in which a crash, or its node going NotReady, counts, 1 or more. Default: 600.
    pub window_seconds: Option<i32>,
}

/// Which nodes get a new revision first, and when the others follow. Nodes that join meanwhile get the older revision. The
/// revisions of the last two roll-outs that were completed (status.completeRevisions) need no canary: an undo goes to all
/// nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many: a number, 1 or more, or a percentage of the nodes, rounded up, "1%" to "100%". They are spread over
    /// the zones (topology.kubernetes.io/zone). Default: 1.
    #[serde(default)]
    #[schemars(schema_with = "int_or_percent")]
    pub nodes: Option<IntOrString>,
    /// Only nodes with all these labels. If there is none, the roll-out waits for approval. Default: any node.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Seconds for which the revision must be available on all of them without a container restart, 0 to 2592000 (30
    /// days). Default: 600.
    pub soak_seconds: Option<i32>,
    /// Automatic: the others follow after the soak. Manual: after an approval (kubectl mydaemonset approve), which
    /// ends the canary at once under Automatic, too. Default: Automatic.
    pub promote: Option<String>,
}

/// A time in which steps of a roll-out may begin. Windows that overlap are as one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it opens, as in a CronJob, such as 0 22 * * 1-5 or @daily, but no @every. At most 1024 bytes. Required.
    pub schedule: Option<String>,
    /// For how long it stays open, such as 1h30m, 1m to 168h. Required.
    pub duration: Option<String>,
    /// Time zone of the schedule and the dates, by its IANA name, such as Europe/Berlin. Default: Etc/UTC.
    pub time_zone: Option<String>,
    /// Days without this window, such as 2026-12-24, at most 100. Default: none.
    pub excluded_dates: Option<Vec<String>>,
}

/// What the operator saw last.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MyDaemonSetStatus {
    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,
    /// The same as numberAvailable.
    pub available_replicas: Option<i32>,
    /// Nodes that should have a pod. One that a new revision excludes counts while it has its pod.
    pub desired_number_scheduled: Option<i32>,
    /// Of these, those that have one.
    pub current_number_scheduled: Option<i32>,
    /// Nodes that have a pod and should have none.
    pub number_misscheduled: Option<i32>,
    /// Of desiredNumberScheduled, those with a ready pod.
    pub number_ready: Option<i32>,
    /// Of desiredNumberScheduled, those with a pod of the newest revision.
    pub updated_number_scheduled: Option<i32>,
    /// Of desiredNumberScheduled, those with a pod that has been ready for minReadySeconds.
    pub number_available: Option<i32>,
    /// Of desiredNumberScheduled, those without an available pod.
    pub number_unavailable: Option<i32>,
    /// Revision of the last completed roll-out: the hash in its pods' label apps.zhongmingmao.io/revision.
    pub current_revision: Option<String>,
    /// Revisions of the last two completed roll-outs, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complete_revisions: Vec<String>,
    /// Revision of the present spec. If it differs from currentRevision, a roll-out is not complete.
    pub update_revision: Option<String>,
    /// The updateRevision, from the end of its canary until its roll-out is complete or undone.
    pub promoted_revision: Option<String>,
    /// Nodes that have no available pod of the newest revision, or another one beside it, by what they wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNodes>,
    /// The domain (topologyKey) whose nodes get the newest revision while those of later ones wait, such as zone b.
    pub domain: Option<String>,
    /// The first 20 canaries, while the revision is tried on them or waits for its approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_nodes: Vec<String>,
    /// The first 20 nodes that the roll-out was stopped or undone for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<FailedNode>,
    /// Revisions that are not tried again under onFailure Undo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_revisions: Vec<String>,
    /// The annotation apps.zhongmingmao.io/freeze of the object, while it freezes: what the condition Frozen is about.
    pub freeze: Option<String>,
    /// The same annotation of its namespace.
    pub namespace_freeze: Option<String>,
    /// The conditions in a word, the first that is so: Invalid, AutoPaused, RolledBack, NoEligibleNodes, RollingBack,
    /// Migrating, Degraded, Frozen, Rolling 37%, Canary, WaitingForDeletion, Unavailable, or the reason of
    /// Progressing. Migrating is so while the annotation apps.zhongmingmao.io/migration is there.
    pub state: Option<String>,
    /// Accepted: the spec is valid. Available: no more pods are unavailable than a roll-out may take down.
    /// Progressing: a roll-out is under way. Degraded: pods fail or are refused. Frozen: by a user. Only while True,
    /// for tools that wait: Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How many nodes wait for the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNodes {
    /// What they wait for: a cause of kubectl mydaemonset why.
    #[serde(default)]
    pub cause: String,
    /// How many they are.
    #[serde(default)]
    pub nodes: i32,
}

/// A node on which the newest revision failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedNode {
    /// Name of the node.
    #[serde(default)]
    pub name: String,
    /// How it failed, such as CrashLoopBackOff, NotAvailable or NotReady.
    #[serde(default)]
    pub reason: String,
}

/// The schema of a number or a percentage. The webhook words its bounds.
fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "nullable": true})
}

/// A `MyDaemonSet` as stored.
pub type RawMyDaemonSet = raw::Object<MyDaemonSet>;

/// The CRD.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(MyDaemonSet::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use serde_json::Value;

    use super::*;

    /// Every schema below `node` with its path.
    fn walk<'a>(path: &str, node: &'a Value, visit: &mut impl FnMut(&str, &'a Value)) {
        visit(path, node);
        if let Some(properties) = node.get("properties").and_then(Value::as_object) {
            for (name, child) in properties {
                walk(&format!("{path}.{name}"), child, visit);
            }
        }
        if let Some(items) = node.get("items") {
            walk(&format!("{path}[]"), items, visit);
        }
    }

    fn schema() -> Value {
        let crd = serde_json::to_value(crd()).unwrap();
        crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
            .cloned()
            .unwrap()
    }

    #[test]
    fn every_field_is_described() {
        let schema = schema();
        walk("", &schema, &mut |path, node| {
            if !path.is_empty() && !path.ends_with("[]") {
                let text = node.get("description").and_then(Value::as_str);
                let reads_well = |t: &str| t.len() > 10 && !t.contains('\n');
                assert!(text.is_some_and(reads_well), "{path}: {text:?}");
            }
        });
    }

    /// By that, `kubectl mydaemonset migrate` knows an operator that leaves the pods alone meanwhile.
    #[test]
    fn the_schema_names_the_annotation_of_a_migration() {
        let annotation = crate::names::MIGRATION_ANNOTATION;
        assert!(schema().to_string().contains(annotation));
    }

    #[test]
    fn the_schema_leaves_the_rules_to_the_webhook() {
        let schema = schema();
        walk("", &schema, &mut |path, node| {
            for word in ["minimum", "maximum", "enum", "anyOf", "oneOf", "pattern"] {
                assert!(node.get(word).is_none(), "{path} has {word}: {node}");
            }
            // A list-type map needs its key; only the operator writes there.
            if path != ".status.conditions[]" {
                assert!(node.get("required").is_none(), "{path}: {node}");
            }
        });
        let amount = schema
            .pointer("/properties/spec/properties/updateStrategy/properties/rollingUpdate/properties/maxUnavailable")
            .unwrap();
        assert_eq!(amount["x-kubernetes-int-or-string"], true);
        assert!(amount.get("type").is_none());
        let template = schema
            .pointer("/properties/spec/properties/template/properties/spec")
            .unwrap();
        assert_eq!(template["x-kubernetes-preserve-unknown-fields"], true);
    }

    #[test]
    fn the_crd_has_its_names_and_columns_and_a_moderate_size() {
        let crd = crd();
        assert_eq!(
            crd.metadata.name.as_deref(),
            Some("mydaemonsets.apps.zhongmingmao.io")
        );
        assert_eq!(crd.spec.names.short_names, Some(vec!["mds".to_owned()]));
        assert_eq!(crd.spec.names.categories, Some(vec!["all".to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let columns: Vec<_> = version
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|c| (c.name.as_str(), c.priority.unwrap_or_default()))
            .collect();
        assert_eq!(
            columns,
            [
                ("DESIRED", 0),
                ("CURRENT", 0),
                ("READY", 0),
                ("UP-TO-DATE", 0),
                ("AVAILABLE", 0),
                ("STATE", 0),
                ("AGE", 0),
                ("IMAGE", 1),
                ("REVISION", 1)
            ]
        );
        let size = serde_saphyr::to_string(&crd).unwrap().len();
        assert!(size < 64 * 1024, "{size} bytes");
    }

    #[test]
    fn any_stored_object_decodes() {
        for spec in ["null", "7", "[]", r#"{"image": {"a": 1}}"#] {
            let text = format!(r#"{{"metadata": {{"name": "x"}}, "spec": {spec}, "status": 1}}"#);
            serde_json::from_str::<RawMyDaemonSet>(&text).unwrap();
        }
        let bare: RawMyDaemonSet = serde_json::from_str(r#"{"metadata": {}}"#).unwrap();
        assert_eq!(bare.spec.text(), "null");
    }
}
