//! The types of the kind, and the CRD generated from them. Rust clients may use the types (docs/clients.md).

// Each printer column is an attribute of the same name, which clippy takes for duplicates.
#![allow(clippy::duplicated_attributes)]

use chrono::{DateTime, Utc};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use my_operator_kind::schema;
use my_operator_kind::template::PodTemplate;
use wall_clock_controller::reconcile::condition::{self, Condition};
use wall_clock_controller::reconcile::raw;

/// What is to run, when, and how.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cnat.programming-kubernetes.info",
    version = "v1alpha1",
    kind = "At",
    plural = "ats",
    // As Job, which `kubectl get all` lists: a pod there must not appear without what made it.
    category = "all",
    namespaced,
    status = "AtStatus",
    doc = "An At runs one command once, in a pod of its own, at an instant; its status keeps the result.",
    // Not of type date, which kubectl prints as an age: <invalid> for an instant to come.
    printcolumn(
        name = "DUE",
        type_ = "string",
        json_path = ".status.scheduledTime",
        description = "The instant at which the command is to start, in UTC"
    ),
    printcolumn(
        name = "PHASE",
        type_ = "string",
        json_path = ".status.phase",
        description = "PENDING, RUNNING or DONE"
    ),
    printcolumn(
        name = "RESULT",
        type_ = "string",
        json_path = ".status.result",
        description = "Succeeded, Failed, Missed or Unknown"
    ),
    printcolumn(
        name = "EXIT",
        type_ = "integer",
        json_path = ".status.exitCode",
        description = "The exit code of the command"
    ),
    printcolumn(
        name = "LATE",
        type_ = "string",
        json_path = ".status.lateness",
        description = "How long after its instant the pod was seen released; not what a released pod waits for, such as its image"
    ),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why it ended as it did or, before its end, what it waits for"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "SCHEDULE",
        type_ = "string",
        json_path = ".spec.schedule",
        priority = 1,
        description = "The schedule as it was written"
    ),
    printcolumn(
        name = "COMMAND",
        type_ = "string",
        json_path = ".spec.command",
        priority = 1,
        description = "The command"
    ),
    printcolumn(
        name = "POD",
        type_ = "string",
        json_path = ".status.podName",
        priority = 1,
        description = "The pod of the run"
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = ".status.message",
        priority = 1,
        description = "What the command left to say, why there is no result, or what keeps it from one"
    ),
    selectable = ".status.phase"
)]
#[serde(rename_all = "camelCase")]
pub struct AtSpec {
    /// When to start: an instant as of RFC 3339, such as 2026-04-12T10:12:00Z; now; or now + N UNIT, N being 1 to
    /// 999999 and UNIT second, minute, hour, day or week (or a plural). Relative ones count from the creation, or
    /// from the update that last changed this text. An instant in the past means at once. Required. Immutable once
    /// started.
    pub schedule: Option<String>,

    /// The command, one argument of the shell, exactly as written: Kubernetes expands no $(NAME) in it. At most 32768
    /// bytes. Required. Immutable once started.
    pub command: Option<String>,

    /// Image of the container; it must have the shell. One given to the container `at` of the template wins. Default:
    /// bash:5.3. Immutable once started.
    pub image: Option<String>,

    /// Program and arguments before the command, 1 to 8 items, such as sh and -c. Default: bash and -c. Immutable
    /// once started.
    pub shell: Option<Vec<String>>,

    /// A pod template for everything else. The command runs in its container `at`, which is added if missing. Not
    /// allowed: command and args of that container, nodeName, a restartPolicy other than Never (except of sidecars),
    /// and what the operator sets. Default: none. Immutable once started.
    pub template: Option<PodTemplate>,

    /// Whether the start is held back. No effect once started. Default: false.
    pub suspend: Option<bool>,

    /// Seconds after the instant in which the pod may be released to start, 0 or more; later, the result is Missed. A
    /// released pod may still wait for a node or an image. Default: no limit; 3600 with ttlSecondsAfterFinished.
    pub starting_deadline_seconds: Option<i64>,

    /// Seconds that the pod may run before it is ended, as Failed with reason DeadlineExceeded. 1 or more. Default:
    /// no limit.
    pub active_deadline_seconds: Option<i64>,

    /// Seconds after its end until the object is deleted, with its pod and logs. 0 or more. Default: kept.
    pub ttl_seconds_after_finished: Option<i64>,
}

/// Where an At is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Started, and so never to be started again.
    Running,
    /// Over.
    Done,
}

/// How an At ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Ending {
    /// The command ran and ended with exit code 0.
    Succeeded,
    /// The command or its pod failed.
    Failed,
    /// It could not be started in time, and was not.
    Missed,
    /// Its pod was recorded, and gone before its end was seen.
    Unknown,
}

/// What became of the command, as the operator saw it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtStatus {
    /// Where the object is in its life: PENDING (not started), RUNNING (started, never to be
    /// started again) or DONE (over; see result).
    pub phase: Option<Phase>,

    /// The metadata.generation that this status is about.
    pub observed_generation: Option<i64>,

    /// The instant of spec.schedule, in UTC.
    pub scheduled_time: Option<DateTime<Utc>>,

    /// Name of the pod that runs the command.
    pub pod_name: Option<String>,

    /// UID of the one pod that may run the command; no other is ever released.
    #[serde(rename = "podUID")]
    pub pod_uid: Option<String>,

    /// UID of a pod that is deleted without having run.
    #[serde(rename = "discardedPodUID")]
    pub discarded_pod_uid: Option<String>,

    /// The metadata.generation whose pod passed a dry run before it was due.
    pub dry_run_generation: Option<i64>,

    /// When the pod was first seen without the operator's gate, released to run; it may still wait for a node or an
    /// image.
    pub start_time: Option<DateTime<Utc>>,

    /// When it was over: the end of the container, if known.
    pub completion_time: Option<DateTime<Utc>>,

    /// Milliseconds from scheduledTime to startTime.
    pub lateness_milliseconds: Option<i64>,

    /// latenessMilliseconds as text, such as 1.2s or 3m5s.
    pub lateness: Option<String>,

    /// How it ended: Succeeded, Failed, Missed (not started, since it was too late) or Unknown (the
    /// pod was gone before its end was seen). Absent before the phase is DONE.
    pub result: Option<Ending>,

    /// Exit code of the command, if it ran to an end.
    pub exit_code: Option<i32>,

    /// Number of the signal that ended the command, by the container runtime or by an exit code of 128 + N.
    pub signal: Option<i32>,

    /// Why it ended, in a word: Completed, Error, OOMKilled, DeadlineExceeded, Evicted, StartingDeadlineExceeded,
    /// NeverStarted, PodLost, or the kubelet's. Before that, what it waits for: NameConflict, PodRefused,
    /// CreateFailed, PodTerminating, PodAltered, ReleaseRefused, ReleaseFailed, DeleteRefused, Unschedulable,
    /// ImagePullBackOff, NodeNotReady.
    pub reason: Option<String>,

    /// What the command wrote to /dev/termination-log, or if it failed without, the end of its output; else why it
    /// ended or what it waits for. At most 1024 bytes.
    pub message: Option<String>,

    /// Accepted: the spec is valid. PodAccepted, only while False: a dry run of its pod was refused. Started: the pod
    /// was seen released (Unknown: it was gone before). Only while True: Complete, Failed, Finished (either),
    /// Reconciling (due or running), FailureTarget (its pod is deleted first), Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl AtStatus {
    /// Whether it has a condition of that type that is True.
    pub(crate) fn is_true(&self, type_: &str) -> bool {
        condition::get(&self.conditions, type_).is_some_and(|c| c.status == "True")
    }

    /// Whether it records a pod that `before` did not, and that is not the one with the `known` UID.
    /// Then a watch has shown it, perhaps after the known one was read, which is gone.
    pub(crate) fn records_other_pod(&self, before: &Self, known: Option<&str>) -> bool {
        self.pod_uid != before.pod_uid && self.pod_uid.as_deref() != known
    }
}

/// An At as stored.
pub type AtObject = raw::Object<At>;

/// The CRD. Nothing in it is required, not even `spec`: the API server validates the schema before
/// it calls webhooks, so a rule here would hide the webhook's complete and better worded list.
pub fn crd() -> CustomResourceDefinition {
    schema::finish(At::crd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::Value;

    use super::*;

    fn schema() -> Value {
        let crd = serde_json::to_value(crd()).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    /// Calls `look` with the path and the schema of every field.
    fn walk(path: &str, schema: &Value, look: &mut dyn FnMut(&str, &Value)) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            look(&path, field);
            walk(&path, field, look);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                walk(&format!("{path}[]"), &schema[inner], look);
            }
        }
    }

    #[test]
    fn every_field_is_described() {
        walk("", &schema(), &mut |path, field| {
            if [".metadata", ".apiVersion", ".kind"].contains(&path) {
                return;
            }
            let text = field["description"].as_str().unwrap_or_default();
            assert!(text.len() > 15, "{path} has no real description: {text:?}");
        });
    }

    #[test]
    fn the_schema_bounds_nothing_that_the_webhook_words_better() {
        let root = schema();
        for (path, field) in [("", &root), (".spec", &root["properties"]["spec"])] {
            assert!(field.get("required").is_none(), "{path}: {field}");
        }
        walk("", &root, &mut |path, field| {
            for bound in ["minimum", "maximum", "pattern", "maxLength", "minItems"] {
                assert!(field.get(bound).is_none(), "{path} has {bound}");
            }
            let format = field["format"].as_str().unwrap_or_default();
            assert!(!format.starts_with("uint"), "{path}: {format}");
        });
    }

    #[test]
    fn the_crd_is_small_enough_for_kubectl_apply() {
        let yaml = serde_saphyr::to_string(&crd()).unwrap();
        assert!(yaml.len() < 64 * 1024, "{}", yaml.len());
    }

    #[test]
    fn the_columns_are_those_of_the_manual() {
        let crd = serde_json::to_value(crd()).unwrap();
        let version = &crd["spec"]["versions"][0];
        let columns: Vec<(&str, &str, i64)> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| {
                let text = |key: &str| c[key].as_str().unwrap();
                (
                    text("name"),
                    text("type"),
                    c["priority"].as_i64().unwrap_or(0),
                )
            })
            .collect();
        let expected = [
            ("DUE", "string", 0),
            ("PHASE", "string", 0),
            ("RESULT", "string", 0),
            ("EXIT", "integer", 0),
            ("LATE", "string", 0),
            ("REASON", "string", 0),
            ("AGE", "date", 0),
            ("SCHEDULE", "string", 1),
            ("COMMAND", "string", 1),
            ("POD", "string", 1),
            ("MESSAGE", "string", 1),
        ];
        assert_eq!(columns, expected);
        assert_eq!(version["selectableFields"][0]["jsonPath"], ".status.phase");
        assert!(version["subresources"]["status"].is_object());
        assert_eq!(crd["spec"]["names"]["plural"], "ats");
        assert_eq!(crd["spec"]["names"]["categories"][0], "all");
        assert_eq!(crd["spec"]["scope"], "Namespaced");
    }

    #[test]
    fn any_stored_object_can_be_read() {
        for text in [
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a"},"spec":null,"status":null}"#,
            r#"{"metadata":{"name":"a"},"spec":[1],"status":"x"}"#,
        ] {
            serde_json::from_str::<AtObject>(text).unwrap();
        }
    }

    #[test]
    fn the_status_is_written_as_documented() {
        let status = AtStatus {
            phase: Some(Phase::Running),
            pod_uid: Some("u".to_owned()),
            result: Some(Ending::Succeeded),
            ..AtStatus::default()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            serde_json::json!({"phase": "RUNNING", "podUID": "u", "result": "Succeeded"})
        );
    }
}
