//! The Lease in the API server. It is read as JSON and written back with all foreign fields. So any manual edit can be
//! read, and no field of a newer API is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease as LeaseKind;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, ListParams, PartialObjectMeta, PostParams, WatchParams};
use kube::client::AuthError;
use kube::core::{Request, request};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::candidate::{Claim, Error, Stored};
use super::decision::Record;

/// A Lease as it was read.
#[derive(Clone, Debug)]
pub(super) struct Lease(Value);

/// The one Lease.
#[derive(Clone)]
pub(super) struct Leases {
    client: Client,
    namespace: String,
    name: String,
    /// The field manager of the writes.
    manager: String,
}

impl Stored for Lease {
    fn record(&self) -> Record {
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
}

impl Lease {
    pub(super) fn version(&self) -> &str {
        self.0["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0")
    }

    /// The object that Events are about.
    pub(super) fn reference(&self, leases: &Leases) -> ObjectReference {
        ObjectReference {
            api_version: Some(LeaseKind::api_version(&()).into_owned()),
            kind: Some(LeaseKind::kind(&()).into_owned()),
            namespace: Some(leases.namespace.clone()),
            name: Some(leases.name.clone()),
            uid: self.0["metadata"]["uid"].as_str().map(str::to_owned),
            ..ObjectReference::default()
        }
    }
}

/// The Lease with the claim in its spec. `now` is by the wall clock, for users to read.
fn claimed(name: &str, lease: Option<&Lease>, claim: &Claim, now: Timestamp) -> Value {
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
    let now = format!("{now:.6}");
    let spec = &mut body["spec"];
    spec["holderIdentity"] = claim.holder.clone().into();
    spec["leaseDurationSeconds"] = claim.seconds.into();
    spec["leaseTransitions"] = claim.transitions.min(i32::MAX.into()).into();
    if claim.is_new || !spec["acquireTime"].is_string() {
        spec["acquireTime"] = now.clone().into();
    }
    spec["renewTime"] = now.into();
    body
}

impl Leases {
    pub(super) fn new(client: Client, namespace: String, name: String, manager: String) -> Self {
        Self {
            client,
            namespace,
            name,
            manager,
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
        match self.call(timeout, request).await {
            Ok(lease) => Ok(Some(Lease(lease))),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(self.failed("get", &error)),
        }
    }

    /// The records of the namespace's Leases with such a name, by name; else a message.
    pub(super) async fn others(
        &self,
        is_rival: impl Fn(&str) -> bool,
        timeout: Duration,
    ) -> Result<BTreeMap<String, Record>, String> {
        // Without a resourceVersion: an old list could lack a claim that was written before ours.
        let request = Request::new(self.path()).list(&ListParams::default());
        let mut list = match self.call(timeout, request).await {
            Ok(list) => list,
            Err(error) => {
                let (namespace, cause) = (&self.namespace, cause(&error));
                return Err(format!("cannot list the leases of {namespace}: {cause}"));
            }
        };
        let leases = list["items"].as_array_mut().map(std::mem::take);
        let leases = leases.unwrap_or_default().into_iter().filter_map(|lease| {
            let name = lease["metadata"]["name"].as_str()?.to_owned();
            is_rival(&name).then(|| (name, Lease(lease).record()))
        });
        Ok(leases.collect())
    }

    /// Replaces the Lease that was read with a claim, or creates it when there was none.
    pub(super) async fn write(
        &self,
        lease: Option<&Lease>,
        claim: &Claim,
        timeout: Duration,
    ) -> Result<Lease, Error> {
        let body = claimed(&self.name, lease, claim, Timestamp::now());
        let body = body.to_string().into_bytes();
        let request = Request::new(self.path());
        let params = PostParams {
            field_manager: Some(self.manager.clone()),
            ..PostParams::default()
        };
        let (verb, request) = match lease {
            None => ("create", request.create(&params, body)),
            // The body has the version that was read. The API server rejects the write over any other.
            Some(_) => ("update", request.replace(&self.name, &params, body)),
        };
        let written = self.call(timeout, request).await;
        written
            .map(Lease)
            .map_err(|error| self.failed(verb, &error))
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

    async fn call(
        &self,
        timeout: Duration,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> kube::Result<Value> {
        let answer = self
            .client
            .request(request.map_err(kube::Error::BuildRequest)?);
        tokio::time::timeout(timeout, answer)
            .await
            .unwrap_or_else(|_| {
                let late = format!("no answer within {timeout:.1?}");
                Err(kube::Error::Service(late.into()))
            })
    }

    fn failed(&self, verb: &str, error: &kube::Error) -> Error {
        match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => {
                Error::LostRace
            }
            _ => Error::Other(format!(
                "cannot {verb} the lease {}: {}",
                self.title(),
                cause(error)
            )),
        }
    }
}

/// What an error is due to, in one line.
fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let first: &(dyn std::error::Error + 'static) = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    let mut last = String::new();
    for cause in causes {
        // It would repeat all that the plugin printed, and so perhaps its secrets.
        if let Some(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_)) =
            cause.downcast_ref()
        {
            return "the credential plugin of the kubeconfig failed".to_owned();
        }
        last = cause.to_string();
    }
    last
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claimed(lease: Option<&Lease>, is_new: bool) -> Value {
        let claim = Claim {
            holder: "me".to_owned(),
            seconds: 15,
            transitions: 4,
            is_new,
        };
        let now = Timestamp::new(1_800_000_000, 120_000).unwrap();
        super::claimed("the-lease", lease, &claim, now)
    }

    #[test]
    fn a_claim_is_what_client_go_writes_and_leaves_the_rest_alone() {
        let made = claimed(None, true);
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
            "metadata": {"name": "the-lease", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"holderIdentity": "me", "acquireTime": "then", "strategy": "new"},
        }));
        let renewed = claimed(Some(&found), false);
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
            assert_eq!(claimed(Some(&lease), true)["spec"]["holderIdentity"], "me");
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
