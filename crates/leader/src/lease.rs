//! The Lease in the API server. It is read as JSON and written back with all foreign fields. So any manual edit can be
//! read, and no field of a newer API is lost.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease as LeaseKind;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{GetParams, PartialObjectMeta, WatchParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::decision::Record;
use my_operator_client::call::{self, Call};
use my_operator_runtime::reconcile::{Key, event, write};

/// A Lease as it was read.
#[derive(Clone, Debug)]
pub(super) struct Lease(Value);

/// The one Lease.
#[derive(Clone)]
pub(super) struct Leases {
    client: Client,
    namespace: String,
    name: String,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Error {
    /// Another client wrote the Lease first.
    LostRace,
    /// Any other error, as a message.
    Other(String),
}

/// What is written.
pub(super) struct Claim<'a> {
    pub(super) holder: &'a str,
    pub(super) seconds: u64,
    pub(super) transitions: i64,
    /// The holder is a new one.
    pub(super) is_new: bool,
    /// By the wall clock, for users to read.
    pub(super) now: DateTime<Utc>,
}

impl Lease {
    pub(super) fn record(&self) -> Record {
        let spec = &self.0["spec"];
        Record {
            holder: spec["holderIdentity"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            seconds: spec["leaseDurationSeconds"].as_i64(),
            transitions: spec["leaseTransitions"]
                .as_i64()
                .unwrap_or_default()
                .clamp(0, i32::MAX.into()),
            mark: format!("{} {spec}", self.0["metadata"]["uid"]),
        }
    }

    pub(super) fn version(&self) -> &str {
        self.0["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0")
    }

    /// The object that Events are about.
    pub(super) fn reference(&self, leases: &Leases) -> ObjectReference {
        let uid = self.0["metadata"]["uid"].as_str().unwrap_or_default();
        event::about::<LeaseKind>(&Key::new(&leases.namespace, &leases.name), uid)
    }
}

/// The Lease with the claim in its spec.
fn claimed(name: &str, lease: Option<&Lease>, claim: &Claim<'_>) -> Value {
    let mut body = lease.map_or_else(
        || {
            json!({
                "apiVersion": LeaseKind::api_version(&()),
                "kind": LeaseKind::kind(&()),
                "metadata": {"name": name},
            })
        },
        |lease| lease.0.clone(),
    );
    if !body["spec"].is_object() {
        body["spec"] = json!({});
    }
    let now = claim.now.to_rfc3339_opts(SecondsFormat::Micros, true);
    let spec = &mut body["spec"];
    spec["holderIdentity"] = claim.holder.into();
    spec["leaseDurationSeconds"] = claim.seconds.into();
    spec["leaseTransitions"] = claim.transitions.min(i32::MAX.into()).into();
    if claim.is_new || !spec["acquireTime"].is_string() {
        spec["acquireTime"] = now.clone().into();
    }
    spec["renewTime"] = now.into();
    body
}

impl Leases {
    pub(super) fn new(client: Client, namespace: String, name: String) -> Self {
        Self {
            client,
            namespace,
            name,
        }
    }

    /// `namespace/name`, for messages.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn path(&self) -> String {
        LeaseKind::url_path(&(), Some(&self.namespace))
    }

    /// Reads the Lease, if there is one.
    pub(super) async fn get(&self, timeout: Duration) -> Result<Option<Lease>, Error> {
        let request = Request::new(self.path()).get(&self.name, &GetParams::default());
        let call = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Value>(request).await
        };
        match self.call("get").run_within(timeout, call).await {
            Ok(lease) => Ok(Some(Lease(lease))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the Lease that was read with a claim, or creates it when there was none.
    pub(super) async fn write(
        &self,
        lease: Option<&Lease>,
        claim: &Claim<'_>,
        timeout: Duration,
    ) -> Result<Lease, Error> {
        let body = claimed(&self.name, lease, claim).to_string().into_bytes();
        let (client, namespace) = (&self.client, self.namespace.as_str());
        let written = if lease.is_none() {
            let call = write::create::<LeaseKind, Value>(client, namespace, body);
            self.call("create").run_within(timeout, call).await
        } else {
            // The body has the version that was read. The API server rejects the write over any other.
            let request = Request::new(self.path()).replace(&self.name, &write::params(), body);
            let call = async {
                let request = request.map_err(kube::Error::BuildRequest)?;
                client.request::<Value>(request).await
            };
            self.call("update").run_within(timeout, call).await
        };
        Ok(Lease(written?))
    }

    /// A stream with an item for each change of the Lease after that version.
    pub(super) async fn changes(
        &self,
        version: &str,
    ) -> Result<impl Stream<Item = ()> + use<>, kube::Error> {
        let api: Api<PartialObjectMeta<LeaseKind>> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        Ok(api.watch(&only, version).await?.map(drop))
    }

    fn call(&self, verb: &'static str) -> Call {
        Call {
            verb,
            resource: "leases",
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
        }
    }
}

impl From<call::Error> for Error {
    fn from(error: call::Error) -> Self {
        if error.lost_race() {
            Self::LostRace
        } else {
            Self::Other(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claim(is_new: bool) -> Claim<'static> {
        Claim {
            holder: "me",
            seconds: 15,
            transitions: 4,
            is_new,
            now: DateTime::from_timestamp(1_800_000_000, 120_000).unwrap(),
        }
    }

    #[test]
    fn a_claim_is_what_client_go_writes_and_leaves_the_rest_alone() {
        let made = claimed("the-lease", None, &claim(true));
        let now = "2027-01-15T08:00:00.000120Z";
        assert_eq!(
            made,
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "the-lease"},
                "spec": {
                    "holderIdentity": "me",
                    "leaseDurationSeconds": 15,
                    "leaseTransitions": 4,
                    "acquireTime": now,
                    "renewTime": now,
                },
            })
        );
        let found = Lease(json!({
            "metadata": {"name": "my-operator", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"holderIdentity": "me", "acquireTime": "then", "strategy": "new"},
        }));
        let renewed = claimed("the-lease", Some(&found), &claim(false));
        assert_eq!(renewed["metadata"], found.0["metadata"]);
        assert_eq!(renewed["spec"]["acquireTime"], "then");
        assert_eq!(renewed["spec"]["renewTime"], now);
        assert_eq!(renewed["spec"]["strategy"], "new");
    }

    #[test]
    fn any_content_of_a_lease_is_read() {
        for spec in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"holderIdentity": 7, "leaseDurationSeconds": "x", "leaseTransitions": -3}),
            json!({"leaseTransitions": 99_999_999_999_i64, "renewTime": "never"}),
        ] {
            let lease = Lease(json!({"metadata": {"uid": "u"}, "spec": spec}));
            let record = lease.record();
            assert_eq!(record.holder, "");
            assert_eq!(record.seconds, None);
            assert!((0..=i64::from(i32::MAX)).contains(&record.transitions));
            assert_eq!(
                claimed("the-lease", Some(&lease), &claim(true))["spec"]["holderIdentity"],
                "me"
            );
        }
    }

    #[test]
    fn a_record_changes_with_its_spec_and_its_object_but_not_with_labels() {
        let lease = |uid: &str, time: &str, version: &str| {
            Lease(json!({
                "metadata": {"uid": uid, "resourceVersion": version},
                "spec": {"renewTime": time},
            }))
            .record()
            .mark
        };
        assert_eq!(lease("u", "1", "5"), lease("u", "1", "6"));
        assert_ne!(lease("u", "1", "5"), lease("u", "2", "6"));
        assert_ne!(lease("u", "1", "5"), lease("v", "1", "6"));
    }
}
