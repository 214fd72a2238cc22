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

use crate::kinds::shared::schema;
use crate::kinds::shared::template::PodTemplate;
use my_operator_admission::review::object_or_null;
use my_operator_runtime::reconcile::condition::Condition;
use my_operator_runtime::reconcile::raw;

/// What one pod on every eligible node looks like, and how a change of it is rolled out.
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
    /// The image of the container `app`, such as nginx:1.29 or registry.example/a/b@sha256:<64 hex digits>.
    /// Required unless the container `app` of the template has an image, which then wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A pod template: labels, annotations and any field of a pod's spec. Where it has no container
    /// `app`, one is added in first place. It may not set nodeName, owner references, resourceClaims,
    /// schedulingGates, activeDeadlineSeconds, a restartPolicy other than Always, or the operator's own
    /// labels and annotations. Default: one container `app` with spec.image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// How a change of the image or the template reaches the nodes. Default: RollingUpdate, one node
    /// after the other.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub update_strategy: Option<UpdateStrategy>,
    /// For how many seconds a new pod must have been ready before it counts as available, 0 or more.
    /// Default: 0, available as soon as it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many seconds after it was created a pod of a new revision must be available, 1 or more, and more than
    /// minReadySeconds; otherwise its node has failed, as after a crash. As long, the limits wait for a node that was
    /// unavailable before. Default: 600, and at least 600 more than minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// How many revisions are kept that no pod uses any more, 1 to 100. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// How a change reaches the nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate: the operator replaces pods, as spec.updateStrategy.rollingUpdate says.
    /// OnDelete: a node gets the newest revision when its pod is deleted. Default: RollingUpdate.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The limits of a roll-out of type RollingUpdate. Without effect under OnDelete.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub rolling_update: Option<RollingUpdate>,
}

/// The limits of a roll-out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// On how many nodes the pod may be unavailable during the roll-out: a number of nodes, or a
    /// percentage of the nodes that should have a pod or have yet to lose theirs, rounded up, from "0%" to "100%". Nodes
    /// whose pod is unavailable for any other reason count too, with two exceptions: nodes that have been NotReady for
    /// longer than the operator's --node-not-ready-grace, a minute; and, after progressDeadlineSeconds, nodes that have been
    /// unavailable since before the roll-out. No more nodes have a new pod that is not available yet, whatever state the
    /// old pods are in. Pods on nodes that a new revision excludes go within this limit too. With maxSurge it otherwise
    /// only says how many may fail before the roll-out stops by itself. May be 0 only with maxSurge. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// On how many nodes the new pod may start before the old one is deleted, so that the node is never
    /// without: a number of nodes, or a percentage of the nodes that should have a pod, rounded up,
    /// from "0%" to "100%". Not with host ports. Default: 0, the old pod is deleted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// How many nodes stay on the revision that they have: 0 or more. They are the last ones, in the order of their
    /// names, of those that do not have the newest revision. A node that joins gets the newest and releases none of them.
    /// Names are ordered byte by byte: node-10 comes before node-2. Default: 0, the change reaches every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Whether the roll-out stands still. A missing pod is made all the same, of its node's own revision.
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// When the roll-out stops by itself because the new revision fails.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub auto_pause: Option<AutoPause>,
    /// Nodes that get a new revision before all others, which follow once it has been available there for a while. {} means
    /// one node for ten minutes. Default: none, the roll-out goes on node by node.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub canary: Option<Canary>,
    /// The key of a node label, such as topology.kubernetes.io/zone. Nodes with the same value are a domain, and those without
    /// the label are the last one. A new revision reaches one domain after the other: the next one waits until no node is
    /// left in it that the revision could reach. Percentages of maxUnavailable and maxSurge then refer to the nodes of the
    /// domain; unavailable nodes of others count all the same. The revisions of the last two roll-outs that were completed
    /// go to all domains at once, as does the way back. Default: none, all nodes are one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_key: Option<String>,
    /// The values of the label topologyKey whose domains come first, in this order, at most 100. Other domains follow, by
    /// name. Default: none, all domains come by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
    /// What follows when the roll-out stops by itself. Pause: it stands until a user acts. Undo: the operator replaces the
    /// pods of the revision that failed by those of the last revision whose roll-out was completed, within the limits;
    /// paused stops that, partition does not. The spec stays as it is, and its revision is not tried again until another
    /// one takes its place, or the roll-out is resumed. If no roll-out was ever completed, or the pods fail on the way
    /// back as well, it stands. Default: Pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<String>,
    /// When steps of a roll-out may begin, at most 10 windows. Outside of all of them, every node keeps the revision that it
    /// has, as while paused; a way back from a revision that failed does not wait. Default: none, at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<Window>>,
}

/// When a roll-out stops by itself. A node fails if it had an available pod of an older revision, and the pod of the
/// new revision that replaced it crashes, cannot be pulled for a minute, cannot be configured, or is not available after
/// progressDeadlineSeconds; or if the node goes NotReady for 15 seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoPause {
    /// Whether it stops at all. false switches it off: failing nodes then only count as unavailable. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many failing nodes stop it, 1 or more. Default: as many as maxUnavailable, at least 1; or as many as there are, if
    /// the next domain (topologyKey) waits for nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<i32>,
    /// A crash, or a node that goes NotReady, counts for so many seconds after the pod was created, 1 or more.
    /// Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i32>,
}

/// Which nodes get a new revision first, and when the others follow. Nodes that join meanwhile get the older revision. The
/// revisions of the last two roll-outs that were completed (status.completeRevisions) need no canary: an undo goes to all
/// nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// On how many nodes: a number, 1 or more, or a percentage of the nodes that should have a pod, rounded up, from "1%"
    /// to "100%". They are spread over the zones (the label topology.kubernetes.io/zone), in each in the order of their
    /// names; nodes whose pod is not Ready come last. A canary that leaves, or takes no pods any more, is replaced. maxUnavailable,
    /// maxSurge and partition hold as for other nodes. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent")]
    pub nodes: Option<IntOrString>,
    /// Only nodes with all these labels. Where there is none, the roll-out waits until it is approved. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// For how many seconds the revision must be available on all of them without the restart of a container, 0 to
    /// 2592000 (30 days). A pod that becomes unready or restarts begins again. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<i32>,
    /// Automatic: the others follow after the soak. Manual: they follow when a user approves the revision (kubectl
    /// mydaemonset approve), which sets the annotation apps.zhongmingmao.io/approve-revision to it. An approval ends the canary
    /// at once, also under Automatic. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote: Option<String>,
}

/// A time in which steps of a roll-out may begin. Windows that overlap are as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it opens, as a CronJob has it: minute, hour, day of month, month and day of week, such as 0 22 * * 1-5; or
    /// @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. At most 1024 bytes; no @every, which has no fixed
    /// start. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// For how long it stays open, such as 4h or 1h30m, from 1m to 168h (7 days), whatever the clocks are set to meanwhile.
    /// Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The time zone of the schedule and the dates, by its name in the IANA database, such as Europe/Berlin, letter for
    /// letter. Default: Etc/UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Days without this window, such as 2026-12-24, at most 100. One that has opened the day before closes at midnight, and
    /// one that opens on that day begins at its end. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_dates: Option<Vec<String>>,
}

/// What the operator saw last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MyDaemonSetStatus {
    /// The metadata.generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// On how many nodes the pod is available: the same as numberAvailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many nodes should have a pod. A node that a new revision excludes counts as long as it has its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_number_scheduled: Option<i32>,
    /// How many nodes should have a pod and have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_number_scheduled: Option<i32>,
    /// How many nodes have a pod and should have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_misscheduled: Option<i32>,
    /// How many nodes should have a pod and have one that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_ready: Option<i32>,
    /// How many nodes should have a pod and have one of the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_number_scheduled: Option<i32>,
    /// How many nodes should have a pod and have one that has been ready for minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_available: Option<i32>,
    /// How many nodes should have a pod and have no available one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_unavailable: Option<i32>,
    /// The revision of the last roll-out that was completed: the hash that its pods carry in the
    /// label apps.zhongmingmao.io/revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The revisions of the last two roll-outs that were completed, the latest first. `kubectl mydaemonset undo` goes to
    /// the first of them that is not the present spec's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complete_revisions: Vec<String>,
    /// The revision of the present spec. Where it differs from currentRevision, a roll-out is not at
    /// its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The revision of the present spec, once it has passed its canary or was approved and until its roll-out is completed,
    /// or it failed and the pods go back from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_revision: Option<String>,
    /// How many nodes wait for what: of those that a pod belongs on or stays on, the ones without an available pod of the
    /// newest revision and no other. Absent where there is none. On the way back (onFailure Undo), those that are back
    /// wait, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNodes>,
    /// The canaries, the first 20, while the newest revision is tried on them or waits for its approval (Progressing with
    /// reason Canary or WaitingForApproval).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canary_nodes: Vec<String>,
    /// The nodes that the roll-out was stopped for (Progressing=False, AutoPaused), or undone, the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<FailedNode>,
    /// The revisions that are not tried again under onFailure Undo: updateRevision, after it failed; then the one that the
    /// pods were going back to, if that failed as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_revisions: Vec<String>,
    /// The conditions in a word, the first of these that is so. Invalid: the spec is. AutoPaused: the
    /// roll-out stopped because nodes failed. RollingBack, RolledBack: as onFailure asks, the pods go back, or went back,
    /// to the last revision whose roll-out was completed. NoEligibleNodes: the roll-out would take every pod away.
    /// Migrating: the pods are changing hands, and left alone as long as the annotation apps.zhongmingmao.io/migration is
    /// there. Degraded: pods fail, or cannot be created or deleted. Frozen: a user has frozen the object or its
    /// namespace. Rolling 37%: so
    /// many nodes have an available pod of the newest revision and no other. Canary: the newest revision is tried on the
    /// canaries. WaitingForDeletion: the revision waits for that of a deleted object. Unavailable: more pods are
    /// unavailable than a roll-out may take down. WaitingForApproval: the canaries have soaked, and a user is to approve
    /// the revision. OutsideWindow: the roll-out goes on when the next window opens. Paused, Partitioned, OnDelete, Cordoned,
    /// Maintenance: this holds the nodes that are left. Complete: no node is left that the roll-out could reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Accepted: the spec is valid. Available: no more pods are unavailable than a roll-out may
    /// take down. Progressing: a roll-out is under way. Degraded: pods fail, are refused, or have no free name. Frozen:
    /// a user has frozen the object or its namespace, and nothing of before can come late. Reconciling and Stalled
    /// are there for tools that wait, and only while they are True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How many nodes wait for the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNodes {
    /// What they wait for: a cause of kubectl mydaemonset why, which has those of each node in full. In part, it finds
    /// closer ones: Starting is every step of a pod's start, Terminating its end, however late.
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
    /// The name of the node.
    #[serde(default)]
    pub name: String,
    /// How it failed, such as CrashLoopBackOff, NotAvailable or NotReady. A stop for a node that went NotReady ends
    /// when that node is deleted.
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
