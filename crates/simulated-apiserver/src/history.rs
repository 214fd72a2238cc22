//! The history: every request, and every version of every object.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::resource::Resource;
use crate::site::Site;
use crate::store::{Change, ChangeKind, Stored};

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asked for what, and how often that was asked before.
    pub site: Site,
    /// The wall clock's time when it arrived.
    pub time: DateTime<Utc>,
    /// The virtual time when it arrived.
    pub elapsed: Duration,
    /// Such as `POST`.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// The header Content-Type.
    pub content_type: String,
    /// The header Accept.
    pub accept: String,
    /// What was sent.
    pub body: Bytes,
    /// What the plan decided; see [`crate::Decision::label`].
    pub decision: &'static str,
    /// Whether the server carried it out.
    pub carried_out: bool,
    /// The HTTP status of the answer that the caller got; none while there is none, and for connection errors.
    pub code: Option<u16>,
    /// The reason in the Status of a failed answer.
    pub reason: String,
    /// The resourceVersions of the store before and after it was carried out: the versions in between are its work.
    pub before: u64,
    /// See `before`.
    pub version: u64,
}

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Version {
    /// What happened.
    pub kind: ChangeKind,
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The resourceVersion of this change.
    pub version: u64,
    /// The wall clock's time.
    pub time: DateTime<Utc>,
    /// The virtual time.
    pub elapsed: Duration,
    /// The user that caused it.
    pub by: String,
    object: Arc<Stored>,
    previous: Option<Arc<Stored>>,
}

impl Version {
    pub(crate) fn new(change: &Change, resource: &Resource) -> Self {
        Self {
            kind: change.kind,
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            namespace: change.key.namespace.to_string(),
            name: change.key.name.to_string(),
            uid: change.object.uid().to_owned(),
            version: change.object.version,
            time: change.time,
            elapsed: change.elapsed,
            by: change.by.to_string(),
            object: change.object.clone(),
            previous: change.previous.clone(),
        }
    }

    /// The object; of a deletion, its last state.
    pub fn object(&self) -> &Value {
        &self.object.value
    }

    /// The version before this one.
    pub fn previous(&self) -> Option<&Value> {
        self.previous.as_ref().map(|stored| &stored.value)
    }
}

/// The knowledge that a client gained of a resource from a list or a watch.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which client.
    pub user: Arc<str>,
    /// The plural.
    pub resource: Arc<str>,
    /// The client has been sent every change that concerns it, up to this resourceVersion, and none after it.
    pub version: u64,
    /// The virtual time.
    pub elapsed: Duration,
}

/// Everything that happened: every request of a client, every version of every object, and what clients learned.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every request, in order of arrival.
    pub requests: Vec<Request>,
    /// Every change, in the order of their resourceVersions.
    pub versions: Vec<Version>,
    /// What clients learned, in the order in which they did.
    pub deliveries: Vec<Delivery>,
}

impl History {
    /// Writes a line with a JSON object for each request and each version, sorted by time.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, mut to: impl io::Write) -> io::Result<()> {
        let mut lines: Vec<(Duration, String)> = Vec::new();
        for request in &self.requests {
            let site = &request.site;
            let body = serde_json::from_slice(&request.body)
                .unwrap_or_else(|_| json!(String::from_utf8_lossy(&request.body)));
            let line = json!({
                "time": request.time.to_rfc3339_opts(SecondsFormat::Millis, true),
                "user": site.user,
                "site": site.to_string(),
                "method": request.method,
                "uri": request.uri,
                "contentType": request.content_type,
                "accept": request.accept,
                "body": body,
                "decision": request.decision,
                "carriedOut": request.carried_out,
                "code": request.code,
                "reason": request.reason,
                "resourceVersion": request.version,
            });
            lines.push((request.elapsed, line.to_string()));
        }
        for version in &self.versions {
            let line = json!({
                "time": version.time.to_rfc3339_opts(SecondsFormat::Millis, true),
                "type": version.kind.as_str(),
                "resource": version.resource,
                "namespace": version.namespace,
                "name": version.name,
                "uid": version.uid,
                "resourceVersion": version.version,
                "by": version.by,
                "object": version.object(),
            });
            lines.push((version.elapsed, line.to_string()));
        }
        lines.sort_by_key(|(elapsed, _)| *elapsed);
        let mut text = String::new();
        for (elapsed, line) in lines {
            let rest = line.get(1..).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{{\"elapsed\":{},{rest}", elapsed.as_secs_f64());
        }
        to.write_all(text.as_bytes())
    }
}
