//! What becomes of the pod of a new At, while there is time to correct it: what the operator finds, or for a dry run, of which
//! the operator knows nothing, what the API server says of the same pod.

use std::time::Duration;

use chrono::Utc;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use my_operator_at::{POD_ACCEPTED, trial_pod};
use my_operator_kind::manager::MANAGER;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time;
use wall_clock_controller::reconcile::write;

use super::object::{self, Item};
use crate::connection::{Connection, Failure};
use crate::terminal;

/// The operator dry-runs the pod of what is due later than in a minute.
const MIN_TIME_LEFT: SignedDuration = SignedDuration::from_secs(65);
/// It usually does within a second.
const TIMEOUT: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(200);

/// Warns if the pod of this At would be refused, as far as the operator says so at once.
pub(super) async fn warn(
    connection: &Connection,
    name: &str,
    due: Timestamp,
) -> Result<(), Failure> {
    if due.duration_since(Timestamp::now()) < MIN_TIME_LEFT {
        return Ok(());
    }
    let refusal = time::timeout(TIMEOUT, refusal(connection, name)).await;
    if let Some(message) = refusal.ok().flatten() {
        let warning = format!("Warning: the pod of at/{name} would be refused: {message}");
        terminal::note(&warning)?;
    }
    Ok(())
}

/// Warns if the pod of an At that was not stored would be refused. `object` is the At as the API server would store it.
pub(super) async fn warn_of_dry_run(
    connection: &Connection,
    object: &Value,
) -> Result<(), Failure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = &connection.namespace;
    let Some(pod) = trial_pod(name, namespace, &object["spec"], Utc::now()) else {
        return Ok(());
    };
    let body = pod.to_string().into_bytes();
    let client = &connection.client;
    let answer = write::would_create::<Pod, IgnoredAny>(client, namespace, body, MANAGER).await;
    if let Err(error) = answer {
        terminal::note(&dry_run_line(name, &connection.failure(error)))?;
    }
    Ok(())
}

/// What a failed dry run of the pod shows.
fn dry_run_line(name: &str, failure: &Failure) -> String {
    match failure {
        Failure::Server(status) if is_judged(status) => {
            format!(
                "Warning: the pod of at/{name} would be refused: {}",
                status.message
            )
        }
        failure => {
            format!("Note: whether the pod of at/{name} would be refused is unknown: {failure}")
        }
    }
}

/// Whether that is a verdict on the pod, and not on this user, who need not be allowed to create pods, or on the moment.
fn is_judged(status: &Status) -> bool {
    let message = &status.message;
    let says_nothing = matches!(status.code, 401 | 404 | 408 | 429)
        || message.contains("cannot create resource \"pods\"")
        || message.contains("does not support dry run");
    // A webhook that does not answer would not answer the operator.
    !says_nothing && (status.code < 500 || message.contains("failed calling webhook"))
}

/// What the dry run of the pod has shown, unless it succeeded. A user who may create Ats need not be allowed to read them.
async fn refusal(connection: &Connection, name: &str) -> Option<String> {
    loop {
        let text = object::get(connection, name).await.ok()?;
        let status = Item::read(&text).ok()?.status;
        let mut conditions = status.conditions.into_iter();
        let refused = conditions.find(|condition| condition.type_ == POD_ACCEPTED);
        if refused.is_some() || status.dry_run_generation.is_some() {
            return refused.map(|refused| refused.message);
        }
        time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_a_warning_and_what_says_nothing_of_the_pod_is_a_note() {
        for (code, message, is_refusal) in [
            (
                403,
                "pods \"x-pod\" is forbidden: error looking up service account default/reporter",
                true,
            ),
            (403, "pods \"x-pod\" is forbidden: exceeded quota: q", true),
            (
                422,
                "Pod \"x-pod\" is invalid: spec.containers[0].image",
                true,
            ),
            (409, "pods \"x-pod\" already exists", true),
            (500, "failed calling webhook \"w\": refused", true),
            (
                403,
                "pods is forbidden: User \"jane\" cannot create resource \"pods\" in API group",
                false,
            ),
            (
                400,
                "admission webhook \"w\" does not support dry run",
                false,
            ),
            (429, "too many requests", false),
            (500, "etcdserver: request timed out", false),
        ] {
            let status = json!({"code": code, "message": message, "reason": ""});
            let status: Status = serde_json::from_value(status).unwrap();
            let line = dry_run_line("x", &Failure::Server(Box::new(status)));
            let start = if is_refusal {
                "Warning: the pod of at/x would be refused: "
            } else {
                "Note: whether the pod of at/x would be refused is unknown: "
            };
            assert!(line.starts_with(start), "{line}");
            assert!(line.ends_with(message), "{line}");
        }
    }
}
