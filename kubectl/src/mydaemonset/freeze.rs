//! `freeze` and `thaw`: they set or remove the annotation that freezes objects, and wait until the operator acknowledges it.

use std::io::{self, Write as _};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use clap::Args;
use kube::ResourceExt as _;
use kube::api::Patch;
use my_operator_mydaemonset::names::FREEZE_ANNOTATION;
use my_operator_mydaemonset::status::{FROZEN, INVALID, is_migrating};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster;
use super::object::{Object, RESOURCE, parse_name};
use super::rollout::full_name;
use crate::connection::{Connection, Failure};
use crate::print::reported;
use crate::terminal::harmless;

/// How often the status is read.
const PAUSE: Duration = Duration::from_millis(500);

/// Nothing is deleted.
#[derive(Args, Debug)]
pub(super) struct Freeze {
    #[command(flatten)]
    which: Which,
    /// Make no missing pods either
    #[arg(long)]
    no_creates: bool,
}

/// The objects, and how long to wait.
#[derive(Args, Debug)]
pub(super) struct Which {
    /// The objects
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "all_namespaces"], conflicts_with_all = ["all", "all_namespaces"])]
    names: Vec<String>,
    /// All objects of the namespace; one that is made later is not among them
    #[arg(long)]
    all: bool,
    /// The same of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Wait so long for the operator, such as 90s or 5m; 0 means for ever
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = my_operator_times::duration::parse)]
    timeout: Duration,
}

impl Freeze {
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        // The status repeats it: what it said of an earlier freeze does not count.
        let now = Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true);
        let all = if self.no_creates { "all " } else { "" };
        let value = format!("{all}since {now}");
        self.which.run(connection, Some(&value)).await
    }
}

impl Which {
    /// Sets or removes the annotation of all of them first, so that none waits for another.
    pub(super) async fn run(
        &self,
        connection: &Connection,
        value: Option<&str>,
    ) -> Result<u8, Failure> {
        let objects = self.find(connection).await?;
        let (mut code, mut annotated) = (0, Vec::new());
        for found in objects {
            let done = async {
                let object = found?;
                annotate(connection, &object, value).await?;
                annotated.push(object);
                Ok::<(), Failure>(())
            };
            code = code.max(reported(done.await)?);
        }
        let deadline = Instant::now().checked_add(self.timeout);
        let deadline = deadline.filter(|_| !self.timeout.is_zero());
        for object in &annotated {
            let done = wait(connection, object, value, deadline).await;
            code = code.max(reported(done)?);
        }
        Ok(code)
    }

    async fn find(&self, connection: &Connection) -> Result<Vec<Result<Object, Failure>>, Failure> {
        if !self.all && !self.all_namespaces {
            let mut found = Vec::new();
            for name in &self.names {
                found.push(cluster::get(connection, &parse_name(name)?).await);
            }
            return Ok(found);
        }
        let objects = cluster::objects(connection, self.all_namespaces).await?;
        let decode = |raw| Object::decode(raw).map_err(Failure::from);
        Ok(objects.into_iter().map(decode).collect())
    }
}

async fn annotate(
    connection: &Connection,
    object: &Object,
    value: Option<&str>,
) -> Result<(), Failure> {
    if is_migrating(&object.status) {
        let text = "is changing hands: see kubectl mydaemonset migrate";
        return Err(error(object, text).into());
    }
    let patched = cluster::patch(connection, object, &patch(object, value), false).await;
    patched.map(drop)
}

/// The change of an object.
fn patch(object: &Object, value: Option<&str>) -> Patch<Value> {
    Patch::Merge(
        json!({"metadata": {"uid": object.uid, "annotations": {FREEZE_ANNOTATION: value}}}),
    )
}

/// Waits until the operator acknowledges the change, and says so.
async fn wait(
    connection: &Connection,
    object: &Object,
    value: Option<&str>,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    loop {
        let now = cluster::get_again(connection, object).await?;
        if is_acknowledged(&now, value) {
            let name = full_name(&object.name);
            let namespace = harmless(&object.namespace);
            let what = if value.is_some() { "frozen" } else { "thawed" };
            writeln!(io::stdout(), "{name} {what} (namespace {namespace})")?;
            return Ok(());
        }
        if let Some(text) = obstacle(&now, value) {
            return Err(error(object, text).into());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let text = "has the annotation, and the operator does not acknowledge it: does it run?";
            return Err(error(object, text).into());
        }
        sleep(PAUSE).await;
    }
}

/// Whether the status is about that value of the annotation, or about none.
fn is_acknowledged(object: &Object, value: Option<&str>) -> bool {
    let Some(value) = value else {
        return object.condition(FROZEN).is_none();
    };
    object.holds(FROZEN).is_some() && object.status.freeze.as_deref() == Some(value)
}

/// Why the operator will not acknowledge it, if that is known.
fn obstacle(object: &Object, value: Option<&str>) -> Option<&'static str> {
    let present = object.raw.annotations().get(FREEZE_ANNOTATION);
    let status = &object.status;
    if object.raw.metadata.deletion_timestamp.is_some() {
        Some("is being deleted: the operator does not act on it, and acknowledges nothing")
    } else if present.map(String::as_str) != value {
        Some("was frozen or thawed by another client meanwhile: see its annotation, and repeat")
    } else if value.is_none() && status.freeze.is_none() && status.namespace_freeze.is_some() {
        Some("is thawed itself, and its namespace is frozen: see the annotation of that")
    } else if object.state() == INVALID {
        Some("is invalid: the operator does not act on it, and acknowledges nothing")
    } else {
        None
    }
}

fn error(object: &Object, text: &str) -> String {
    let (name, namespace) = (&object.name, &object.namespace);
    format!("{RESOURCE} {name:?} of namespace {namespace:?} {text}")
}

#[cfg(test)]
mod tests {
    use super::super::object::tests::object;
    use super::*;

    #[test]
    fn only_the_answer_to_this_freeze_counts() {
        let with = |status: &str| {
            let condition = json!({"type": "Frozen", "status": status, "reason": "Frozen", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let status = json!({"freeze": "since 2", "conditions": [condition]});
            object(&json!({}), &status)
        };
        let so = with("True");
        assert!(is_acknowledged(&so, Some("since 2")));
        assert!(!is_acknowledged(&so, Some("since 3")));
        assert!(!is_acknowledged(&so, None));
        let waits = with("False");
        assert!(!is_acknowledged(&waits, Some("since 2")));
        assert!(is_acknowledged(&object(&json!({}), &json!({})), None));
    }

    #[test]
    fn what_will_not_be_acknowledged_is_said_at_once() {
        let plain = object(&json!({}), &json!({}));
        assert_eq!(obstacle(&plain, None), None);
        let mut frozen = plain.clone();
        let annotation = (FREEZE_ANNOTATION.to_owned(), "since 2".to_owned());
        frozen.raw.metadata.annotations = Some([annotation].into());
        assert_eq!(obstacle(&frozen, Some("since 2")), None);
        for (object, value) in [
            (&plain, Some("since 2")),
            (&frozen, Some("since 1")),
            (&frozen, None),
        ] {
            let text = obstacle(object, value).unwrap_or_default();
            assert!(text.contains("another client"), "{text}");
        }
        let status = json!({"namespaceFreeze": "all"});
        let text = obstacle(&object(&json!({}), &status), None).unwrap_or_default();
        assert!(text.contains("its namespace is frozen"), "{text}");
        let status = json!({"observedGeneration": 3, "state": "Invalid"});
        let invalid = object(&json!({}), &status);
        let text = obstacle(&invalid, None).unwrap_or_default();
        assert!(text.starts_with("is invalid"), "{text}");
        let leaving =
            json!({"metadata": {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let leaving = serde_json::from_value(leaving).map(Object::decode);
        let leaving = leaving.map(|object| object.map(|object| obstacle(&object, None)));
        assert!(
            matches!(leaving, Ok(Ok(Some(text))) if text.starts_with("is being deleted")),
            "{leaving:?}"
        );
    }

    #[test]
    fn a_thaw_removes_the_annotation() {
        let object = object(&json!({}), &json!({}));
        let name = "apps.zhongmingmao.io/freeze";
        for value in [None, Some("since 1")] {
            let wanted = json!({"metadata": {"uid": "u", "annotations": {name: value}}});
            assert_eq!(patch(&object, value), Patch::Merge(wanted));
        }
    }
}
