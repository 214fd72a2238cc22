//! An At as the API server sends it, and what people want to know of it.

use std::borrow::Cow;

use jiff::Timestamp;
use kube::core::params::{GetParams, ListParams};
use kube::core::{ObjectList, Request, request};
use kube::{Resource as _, ResourceExt as _};
use my_operator_at::crd::{At, AtObject, AtSpec, AtStatus, Ending, Phase};
use my_operator_times::moment;
use serde_json::value::RawValue;

use super::argv;
use crate::connection::{Connection, Failure, Kind};

/// Who created it, as the webhook recorded it.
const CREATED_BY: &str = "cnat.programming-kubernetes.info/created-by";

/// What stands before the names of Ats where kubectl prints them for other commands.
pub(super) const RESOURCE: &str = "at.cnat.programming-kubernetes.info";

/// Who the API server records as the one that changed a field.
pub(super) const FIELD_MANAGER: &str = "kubectl-at";

/// Objects of one request for a list.
const PAGE: u32 = 500;

/// An At. What cannot be read counts as absent: objects can be stored without the webhook.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) created: Option<Timestamp>,
    pub(super) created_by: Option<String>,
    pub(super) deleting: bool,
    pub(super) spec: AtSpec,
    pub(super) status: AtStatus,
}

impl Item {
    /// Reads one object.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let object: AtObject = serde_json::from_str(text).map_err(unreadable)?;
        Ok(Self::new(&object))
    }

    /// Reads what the client has taken apart.
    pub(super) fn new(object: &AtObject) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            created: object.creation_timestamp().map(|time| time.0),
            created_by: object.annotations().get(CREATED_BY).cloned(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            spec: serde_json::from_str(object.spec.text()).unwrap_or_default(),
            status: serde_json::from_str(object.status.text()).unwrap_or_default(),
        }
    }

    /// The instant that it is due at. Only the operator knows that of a relative schedule.
    pub(super) fn due(&self) -> Option<Timestamp> {
        match self.status.scheduled_time {
            Some(time) => moment::instant(time),
            None => self.spec.schedule.as_deref()?.parse().ok(),
        }
    }

    /// `spec.shell`.
    pub(super) fn shell(&self) -> &[String] {
        self.spec.shell.as_deref().unwrap_or_default()
    }

    /// What it runs, as one text.
    pub(super) fn command(&self) -> Cow<'_, str> {
        let command = self.spec.command.as_deref().unwrap_or_default();
        argv::shown(self.shell(), command)
    }

    /// Where it is in its life, in one word.
    pub(super) fn state(&self) -> &'static str {
        match (self.status.phase.unwrap_or_default(), self.status.result) {
            (_, Some(Ending::Succeeded)) => "Succeeded",
            (_, Some(Ending::Failed)) => "Failed",
            (_, Some(Ending::Missed)) => "Missed",
            (_, Some(Ending::Unknown)) => "Unknown",
            _ if self.deleting => "Terminating",
            (Phase::Done, None) => "Done",
            (Phase::Running, None) => "Running",
            (Phase::Pending, None) => "Pending",
        }
    }
}

/// The failure for an object that is not as the API server sends it.
#[allow(clippy::needless_pass_by_value)]
pub(super) fn unreadable(error: serde_json::Error) -> Failure {
    format!("the server sent an At that cannot be read: {error}").into()
}

/// The text of one object.
pub(super) async fn get(connection: &Connection, name: &str) -> Result<String, Failure> {
    let get = |ats: Request| ats.get(name, &GetParams::default());
    send(connection, get).await
}

/// The answer to a request about the Ats of the namespace.
pub(super) async fn send(
    connection: &Connection,
    build: impl FnOnce(Request) -> Result<http::Request<Vec<u8>>, request::Error>,
) -> Result<String, Failure> {
    let ats = Request::new(At::url_path(&(), Some(&connection.namespace)));
    let request = build(ats).map_err(|error| error.to_string())?;
    let text = connection.client.request_text(request);
    connection.answer(text).await
}

/// How the kind is spelled before a name.
pub(crate) const KIND: Kind = Kind {
    words: &[
        "at",
        "ats",
        "at.cnat.programming-kubernetes.info",
        "ats.cnat.programming-kubernetes.info",
    ],
    mistake: "is not the name of an At: give NAME or at/NAME",
};

/// A name as it is given: also `at/NAME`, as other commands print it.
pub(super) fn name(given: &str) -> Result<&str, Failure> {
    Ok(KIND.name(given)?)
}

/// Calls `each` with the JSON text of each selected object of the namespace, or of all: page by page, so that no more than a
/// page is in memory.
pub(super) async fn list(
    connection: &Connection,
    namespace: Option<&str>,
    selected: ListParams,
    mut each: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let request = Request::new(At::url_path(&(), namespace));
    let mut params = selected.limit(PAGE);
    loop {
        let built = request.list(&params).map_err(|error| error.to_string())?;
        let page = connection.client.request(built);
        let page: ObjectList<Box<RawValue>> = connection.answer(page).await?;
        for item in &page.items {
            each(item.get())?;
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn item(object: &Value) -> Item {
        Item::read(&object.to_string()).unwrap()
    }

    #[test]
    fn every_state_has_its_word() {
        for (status, word) in [
            (json!(null), "Pending"),
            (json!({"phase": "PENDING"}), "Pending"),
            (json!({"phase": "RUNNING"}), "Running"),
            (json!({"phase": "DONE", "result": "Missed"}), "Missed"),
            (json!({"phase": "DONE"}), "Done"),
            (json!("nonsense"), "Pending"),
        ] {
            let object = json!({"metadata": {"name": "x"}, "status": status});
            assert_eq!(item(&object).state(), word, "{object}");
        }
        let deleting =
            json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(item(&deleting).state(), "Terminating");
    }

    #[test]
    fn the_operators_instant_goes_before_the_text_of_the_schedule() {
        let of = |schedule: &str, time: Value| {
            let object = json!({"metadata": {"name": "x"}, "spec": {"schedule": schedule}, "status": {"scheduledTime": time}});
            item(&object).due().map(|due| due.to_string())
        };
        assert_eq!(of("now + 5 minutes", json!(null)), None);
        assert_eq!(
            of("2026-01-01T01:00:00+01:00", json!(null)).unwrap(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(
            of("now", json!("2026-01-01T00:00:01.5Z")).unwrap(),
            "2026-01-01T00:00:01.5Z"
        );
    }
}
