//! The thin edge: calls to the API server, each within a time limit, and how they end.

use std::time::Duration;

use axum::http::Request;
use chrono::{DateTime, Utc};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::report::Finding;
use resilient_kube_client::explain;
use webhook_certs::ServerClock;

/// The time limit of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a creation, which waits for the webhooks, for 10 s each.
const CREATE_TIMEOUT: Duration = Duration::from_secs(25);

/// The API server, and its clock.
pub(super) struct Cluster {
    client: Client,
    clock: ServerClock,
}

/// A resource, in a namespace if its kind has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) plural: &'a str,
    pub(super) namespace: Option<&'a str>,
}

/// Why there is no answer to judge.
#[derive(Clone, Debug)]
pub(super) enum Unread {
    /// The API server does not allow the call.
    Forbidden {
        /// Such as `get leases.coordination.k8s.io in namespace x`.
        call: String,
        message: String,
    },
    /// There is no such object, or no such resource.
    Missing(String),
    /// The API server answers with another error.
    Rejected(Box<Status>),
    /// There is no answer.
    Unreachable(String),
}

pub(super) type Fetched<T> = Result<T, Unread>;

impl<'a> Resource<'a> {
    /// A resource without namespaces.
    pub(super) fn cluster(group: &'a str, version: &'a str, plural: &'a str) -> Self {
        Self {
            group,
            version,
            plural,
            namespace: None,
        }
    }

    pub(super) fn within(mut self, namespace: &'a str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    fn path(&self) -> String {
        let Self { group, version, .. } = self;
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        match self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// A call in the words of RBAC.
    fn call(&self, verb: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let place = self.namespace.map(|it| format!(" in namespace {it}"));
        let place = place.unwrap_or_default();
        format!("{verb} {}{dot}{}{place}", self.plural, self.group)
    }
}

impl Cluster {
    pub(super) fn new(client: Client, clock: ServerClock) -> Self {
        Self { client, clock }
    }

    /// The time of the API server; that of this machine before the first answer.
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now().unwrap_or_else(Utc::now)
    }

    /// What `/version` says.
    pub(super) async fn version(&self) -> Fetched<Value> {
        self.send(
            "get /version".to_owned(),
            Request::get("/version"),
            Vec::new(),
        )
        .await
    }

    pub(super) async fn get(&self, resource: Resource<'_>, name: &str) -> Fetched<Value> {
        let path = format!("{}/{name}", resource.path());
        self.send(resource.call("get"), Request::get(path), Vec::new())
            .await
    }

    /// The items with those labels (`a=b`).
    pub(super) async fn list(&self, resource: Resource<'_>, labels: &str) -> Fetched<Vec<Value>> {
        let labels = labels.replace('=', "%3D").replace(',', "%2C");
        let path = format!("{}?labelSelector={labels}", resource.path());
        let list = self
            .send(resource.call("list"), Request::get(path), Vec::new())
            .await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// What the API server would make of the object; nothing is stored.
    pub(super) async fn dry_run(&self, resource: Resource<'_>, object: &Value) -> Fetched<Value> {
        self.post(resource, "?dryRun=All&fieldValidation=Ignore", object)
            .await
    }

    /// Asks a review: nothing is stored by these kinds.
    pub(super) async fn review(
        &self,
        group: &str,
        plural: &str,
        kind: &str,
        spec: &Value,
    ) -> Fetched<Value> {
        let review = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec });
        let resource = Resource::cluster(group, "v1", plural);
        let answer = self.post(resource, "", &review).await?;
        Ok(answer["status"].clone())
    }

    async fn post(&self, resource: Resource<'_>, query: &str, object: &Value) -> Fetched<Value> {
        let request = Request::post(format!("{}{query}", resource.path()));
        let request = request.header("content-type", "application/json");
        let body = object.to_string().into_bytes();
        self.send(resource.call("create"), request, body).await
    }

    async fn send(
        &self,
        call: String,
        request: axum::http::request::Builder,
        body: Vec<u8>,
    ) -> Fetched<Value> {
        let body_is_empty = body.is_empty();
        let request = request.body(body);
        let request = request.map_err(|error| Unread::Unreachable(format!("{call}: {error}")))?;
        let limit = if body_is_empty {
            CALL_TIMEOUT
        } else {
            CREATE_TIMEOUT
        };
        let Ok(answer) = timeout(limit, self.client.request::<Value>(request)).await else {
            let seconds = limit.as_secs();
            return Err(Unread::Unreachable(format!(
                "{call}: no answer within {seconds} s"
            )));
        };
        answer.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => Unread::Forbidden {
                call,
                message: status.message,
            },
            kube::Error::Api(status) if status.code == 404 => Unread::Missing(status.message),
            // The caller is not known here, so nothing can be checked.
            kube::Error::Api(status) if status.code == 401 => {
                Unread::Unreachable(format!("{call}: {}", status.message))
            }
            kube::Error::Api(status) => Unread::Rejected(status),
            error => Unread::Unreachable(format!("{call}: {}", explain(&error))),
        })
    }
}

impl Unread {
    /// The error in one line.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Forbidden { call, .. } => format!("no right to {call}"),
            Self::Rejected(status) => status.message.clone(),
            Self::Missing(message) | Self::Unreachable(message) => message.clone(),
        }
    }

    /// The finding of a check that cannot be made. What could not be seen is never fine.
    pub(super) fn finding(&self, check: &'static str) -> Finding {
        let text = format!("unknown: {}", self.text());
        let finding = match self {
            Self::Forbidden { .. } => Finding::warning(check, text)
                .action("run the check as a user who may (docs/operations/check.md)"),
            _ => Finding::failed(check, text),
        };
        finding.unknown()
    }
}
