//! What can go wrong in a reconcile, and whether it is worth trying again soon.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::core::Status;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::reconcile::Key;
use resilient_kube_client::explain;

/// Time limit of a write. The API server gives a write 34 s, in which other admission webhooks may take up to 30 s each
/// (k8s.io/apiserver, endpoints/handlers/rest.go). A client that hangs up earlier gets neither the result nor the
/// reason, and cancels the request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(40);
/// Time limit of a read of one object. Reads call no webhook.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Upper bound on a `Retry-After` that is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A step of a reconcile that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a call, or could not be reached.
    #[error("cannot {step} for {object}: {}", explain(source.as_ref()))]
    Api {
        /// What was tried, such as `create the pod`.
        step: &'static str,
        /// The object that was reconciled.
        object: Key,
        /// The API server's answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time. It may still have carried out the call.
    #[error("cannot {step} for {object}: the API server did not answer in time")]
    Timeout {
        /// What was tried.
        step: &'static str,
        /// The object that was reconciled.
        object: Key,
    },
    /// A reconcile led to another step each time: a bug, or another client that writes as fast as this one. For
    /// reconcilers that repeat their steps; the runner does not return it.
    #[error("{object} did not converge after {steps} steps")]
    DidNotConverge {
        /// The object that was reconciled.
        object: Key,
        /// How many steps were made.
        steps: usize,
    },
    /// The API server dropped a field of a status: the installed CRD does not have it. For reconcilers that check what
    /// they wrote.
    #[error(
        "cannot write {field} of {object}: its CRD is older than this controller; apply the CRD of this version"
    )]
    OldCrd {
        /// The object that was reconciled.
        object: Key,
        /// The path of the field.
        field: &'static str,
    },
    /// The object exists, and has no status that could be written.
    #[error(
        "cannot write the status of {object}: its CRD has no status subresource; apply the CRD of this version"
    )]
    NoStatusSubresource {
        /// The object that was reconciled.
        object: Key,
    },
    /// The stored object is malformed. Nothing is done until it changes.
    #[error("cannot read {object}: {reason}")]
    Unreadable {
        /// The object that was reconciled.
        object: Key,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// A static name for this kind of error: metric label and Event reason.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "Timeout",
            Self::DidNotConverge { .. } => "DidNotConverge",
            Self::OldCrd { .. } => "OldCrd",
            Self::NoStatusSubresource { .. } => "NoStatusSubresource",
            Self::Unreadable { .. } => "Unreadable",
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => match status.code {
                    403 => "Forbidden",
                    404 if self.is_not_found() => "NotFound",
                    404 => "Unreachable",
                    409 => "Conflict",
                    422 => "Invalid",
                    429 => "TooManyRequests",
                    500.. => "ServerError",
                    _ => "Refused",
                },
                _ => "Unreachable",
            },
        }
    }

    /// Another client wrote first: an ordinary event. The watch delivers that write, and the next reconcile sees it.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    /// The object does not exist. A 404 without that reason is not about the object: it is the answer of a proxy, or of a
    /// path that is not served. (kube's `get_opt` and `Status::is_not_found` take it for an answer about the object.)
    pub fn is_not_found(&self) -> bool {
        let status = self.status();
        status.is_some_and(|status| status.code == 404 && status.reason == "NotFound")
    }

    /// A retry fails again until the object changes.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }

    /// The API server's message, if a user has to fix the cause: the API server, an admission plugin or a webhook
    /// rejected the write, or a webhook does not answer. Transient errors are left to the backoff.
    pub fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        is_refusal(status.code, &status.message).then_some(&status.message)
    }

    /// The cause without the step: the API server's message, if it answered.
    pub fn cause(&self) -> String {
        match self {
            Self::Api { source, .. } => explain(source.as_ref()),
            Self::Timeout { .. } => "the API server did not answer in time".to_owned(),
            other => other.to_string(),
        }
    }

    /// Whether the API server says that it did not carry out the call. After any other error it may have, or still may:
    /// it also answers 500 or 504 when etcd commits a write too late, and a gateway knows nothing of the write.
    pub fn is_definite(&self) -> bool {
        let code = self.status().map(|status| status.code);
        let is_clients = code.is_some_and(|code| (400..500).contains(&code) && code != 408);
        // Webhooks are called before anything is stored.
        is_clients || self.refusal().is_some()
    }

    /// The answer's `Retry-After`, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(retry_after)
    }

    /// The API server's answer, if there was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The answer's `Retry-After`, if any, at most [`MAX_RETRY_AFTER`].
pub(super) fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    let asked = Duration::from_secs(seconds.into());
    (seconds > 0).then_some(asked.min(MAX_RETRY_AFTER))
}

/// The answer of a call about an object, or None if the object is gone.
///
/// # Errors
/// Every other failure of the call.
pub fn if_there<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_refusal(code: u16, message: &str) -> bool {
    match code {
        401 | 404 | 408 | 409 | 429 => false,
        400..=499 => true,
        // The API server's wording (k8s.io/apiserver, webhook/errors); such a status has no reason of its own.
        500 => message.contains("failed calling webhook"),
        _ => false,
    }
}

/// Makes one call to the API server that may write, with a time limit of 40 seconds. Errors name the step and the
/// object. After [`Error::Timeout`], or any other error than the API server's answer, the write may have been carried
/// out.
///
/// # Errors
/// [`Error::Api`] or [`Error::Timeout`].
pub async fn call<T>(
    step: &'static str,
    object: &Key,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    within(WRITE_TIMEOUT, step, object, request).await
}

/// Makes one call that writes the status of an object, as [`call`] does. `uid` is that of the object.
///
/// API servers answer a write to a status that the CRD does not have as one to a missing object
/// (k8s.io/apiextensions-apiserver, customresource_handler.go). A live read shows which it is.
///
/// # Errors
/// [`Error::NoStatusSubresource`] if the object is there, and those of [`call`].
pub async fn call_status<K, T>(
    client: &Client,
    object: &Key,
    uid: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let answer = call("write the status", object, request).await;
    if !answer.as_ref().is_err_and(Error::is_not_found) {
        return answer;
    }
    let api = Api::<K>::namespaced(client.clone(), &object.namespace);
    // A list, because no controller needs the right to get the objects that it watches.
    let only = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let found = read("read the object", object, api.list_metadata(&only)).await;
    // Where it is unknown, too, the object counts as gone: that is far more likely.
    let mut found = found.into_iter().flat_map(|list| list.items);
    if found.any(|found| found.metadata.uid.as_deref() == Some(uid)) {
        let object = object.clone();
        return Err(Error::NoStatusSubresource { object });
    }
    answer
}

/// Makes one call to the API server that reads an object, as [`call`] does, with a time limit of 20 seconds.
///
/// # Errors
/// [`Error::Api`] or [`Error::Timeout`].
pub async fn read<T>(
    step: &'static str,
    object: &Key,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    within(READ_TIMEOUT, step, object, request).await
}

async fn within<T>(
    limit: Duration,
    step: &'static str,
    object: &Key,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api {
            step,
            object: object.clone(),
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Timeout {
            step,
            object: object.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use simulated_apiserver::{Options, Server};

    use super::*;
    use crate::reconcile::write;

    #[test]
    fn what_a_user_has_to_fix_is_a_refusal() {
        let broken = "Internal error occurred: failed calling webhook \"w\": connection refused";
        for (code, message, refusal) in [
            (400, "", true),
            (403, "exceeded quota", true),
            (422, "", true),
            (401, "", false),
            (404, "", false),
            (409, "", false),
            (429, "", false),
            (500, broken, true),
            (500, "etcdserver: request timed out", false),
            (503, "", false),
        ] {
            assert_eq!(is_refusal(code, message), refusal, "{code} {message}");
        }
    }

    fn refused(code: u16, reason: &str) -> kube::Error {
        let status = Status::failure("no", reason).with_code(code);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn only_a_definite_answer_says_that_a_call_was_not_carried_out() {
        let error = |code, message: &str| Error::Api {
            step: "delete a pod",
            object: Key::new("ns", "a"),
            source: Box::new(kube::Error::Api(
                Status::failure(message, "").with_code(code).boxed(),
            )),
        };
        for code in [400, 401, 403, 404, 409, 422, 429] {
            assert!(error(code, "no").is_definite(), "{code}");
        }
        for code in [408, 500, 502, 503, 504] {
            assert!(!error(code, "etcdserver: request timed out").is_definite());
        }
        assert!(error(500, "failed calling webhook \"w\"").is_definite());
        let (step, object) = ("delete a pod", Key::new("ns", "a"));
        assert!(!Error::Timeout { step, object }.is_definite());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_may_take_longer_than_the_api_server_lets_it() {
        let key = Key::new("ns", "a");
        let answer = async {
            tokio::time::sleep(Duration::from_secs(34)).await;
            Err::<(), _>(refused(504, "Timeout"))
        };
        let answer = call("write", &key, answer).await;
        assert!(matches!(answer, Err(Error::Api { .. })), "{answer:?}");
        for limit in [21, 41] {
            let never = std::future::pending::<Result<(), kube::Error>>();
            let call = async {
                if limit < 30 {
                    read("read", &key, never).await
                } else {
                    call("write", &key, never).await
                }
            };
            let answer = tokio::time::timeout(Duration::from_secs(limit), call).await;
            assert!(
                matches!(answer, Ok(Err(Error::Timeout { .. }))),
                "{answer:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_status_subresource_is_not_taken_for_a_missing_object() {
        let server = Server::new(Options::default());
        let kind = simulated_apiserver::Resource::of::<ConfigMap>();
        server.register(kind.without_status());
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let uid = server.direct().create(object).unwrap()["metadata"]["uid"].clone();
        let uid = uid.as_str().unwrap();
        let client = server.client("operator");
        let written = async |name: &str, uid: &str| {
            let key = Key::new("default", name);
            let status = json!({});
            let request = write::status::<ConfigMap, _>(&client, &key, uid, "", &status, "test");
            let answer = call_status::<ConfigMap, _>(&client, &key, uid, request).await;
            answer.unwrap_err().category()
        };
        assert_eq!(written("a", uid).await, "NoStatusSubresource");
        assert_eq!(written("b", uid).await, "NotFound");
        // Another object has the name by now.
        assert_eq!(written("a", "other").await, "NotFound");
    }

    #[tokio::test]
    async fn only_the_api_server_says_that_an_object_is_gone() {
        let key = Key::new("ns", "a");
        let answer = async |code, reason| {
            let answer = std::future::ready(Err::<(), _>(refused(code, reason)));
            if_there(call("delete", &key, answer).await)
        };
        assert!(matches!(answer(404, "NotFound").await, Ok(None)));
        // kube's error for an answer that is not a Status.
        assert!(answer(404, "Failed to parse error data").await.is_err());
        assert!(answer(404, "").await.is_err());
    }
}
