//! Whether the webhooks are called and answer: a dry run of an object that they must reject, and of one that they must
//! complete.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::fetch::{Cluster, Fetched, Resource, Unread};
use super::report::Finding;
use crate::kinds::Kind;
use crate::manifests::entry_name;
use admission_rules::judge::{Handler, Verdict};
use admission_rules::review::Request;

const CHECK: &str = "webhooks";
/// The name of the objects, which are never stored.
const NAME: &str = "my-operator-check";
const RESTORE: &str = "kubectl apply -k config/webhook, or apply your chart again";

/// What a dry run is expected to show.
struct Expected {
    bad: Value,
    good: Value,
    /// The fields of the bad object with a fault.
    faults: Vec<String>,
    /// The fields of the good one that get a default, as JSON pointers.
    defaults: Vec<String>,
}

pub(super) async fn check(cluster: &Cluster, kind: &Kind, namespace: &str) -> Finding {
    let resource = (kind.admission.resource)();
    let Some(expected) = Expected::new(kind, cluster.now()) else {
        return Finding::warning(CHECK, "this kind has no samples").about(kind.name);
    };
    let target = Resource::cluster(&resource.group, &resource.version, &resource.plural);
    let target = target.within(namespace);
    let (bad, good) = tokio::join!(
        cluster.dry_run(target, &expected.bad),
        cluster.dry_run(target, &expected.good)
    );
    judge(kind, &expected, bad, good).about(&resource.kind)
}

impl Expected {
    /// What our own rules make of the samples.
    fn new(kind: &Kind, now: DateTime<Utc>) -> Option<Self> {
        let sample = |bad: bool| {
            let mut samples = kind.samples.iter();
            let sample = samples.find(|it| it.file.starts_with("bad/") == bad)?;
            let mut object: Value = serde_saphyr::from_str(sample.text).ok()?;
            object["metadata"] = json!({ "name": NAME });
            Some(object)
        };
        let (bad, good) = (sample(true)?, sample(false)?);
        let faults = review(kind, kind.admission.validate, &bad, now)?.faults;
        let patch = review(kind, kind.admission.mutate, &good, now)?
            .response
            .patch;
        let patch = json!(patch);
        let added = patch.as_array().into_iter().flatten();
        let paths = added.filter_map(|it| it["path"].as_str());
        let paths = paths.filter(|path| path.starts_with("/spec/"));
        Some(Self {
            defaults: paths.map(str::to_owned).collect(),
            faults: faults.into_iter().map(|fault| fault.field).collect(),
            bad,
            good,
        })
    }
}

fn review(kind: &Kind, handler: Handler, object: &Value, now: DateTime<Utc>) -> Option<Verdict> {
    let resource = (kind.admission.resource)();
    let request = json!({
        "uid": "",
        "kind": { "group": resource.group, "version": resource.version, "kind": resource.kind },
        "operation": "CREATE",
        "userInfo": { "username": "" },
        "object": object,
    });
    let request = request.to_string();
    let request = Request::read(&request).ok()?;
    Some(handler(&request, now))
}

fn judge(kind: &Kind, expected: &Expected, bad: Fetched<Value>, good: Fetched<Value>) -> Finding {
    match (rejected(kind, expected, bad), completed(expected, good)) {
        (Err(finding), _) | (_, Err(finding)) => finding,
        (Ok(field), Ok(())) => {
            // Some kinds have no defaults.
            let good = match expected.defaults.as_slice() {
                [] => "is accepted",
                _ => "gets its defaults",
            };
            let text = format!("a bad object is rejected ({field}), a good one {good}");
            Finding::passed(CHECK, text)
        }
    }
}

/// The field that the bad object was rejected for.
fn rejected(kind: &Kind, expected: &Expected, answer: Fetched<Value>) -> Result<String, Finding> {
    let entry = entry_name(kind, "validate");
    let status = match answer {
        Ok(_) => {
            let text = format!("a bad object is accepted: the API server does not call {entry}");
            return Err(Finding::failed(CHECK, text).action(RESTORE));
        }
        Err(Unread::Rejected(status)) => status,
        Err(unread) => return Err(unanswered(&unread)),
    };
    let denied = format!("admission webhook \"{entry}\" denied the request");
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields = causes.map(|cause| &cause.field);
    let field = fields.find(|field| expected.faults.contains(field));
    match field {
        Some(field) if status.message.contains(&denied) => Ok(field.clone()),
        _ if status.code == 500 => Err(not_called(&status.message)),
        _ => {
            let text = format!(
                "a bad object is rejected, but not by {entry}: {}",
                status.message
            );
            Err(Finding::failed(CHECK, text)
                .action("look at the CRD, and at other webhooks and policies"))
        }
    }
}

fn completed(expected: &Expected, answer: Fetched<Value>) -> Result<(), Finding> {
    match answer {
        Ok(object) => {
            let mut defaults = expected.defaults.iter();
            let lacking = defaults.find(|path| object.pointer(path).is_none());
            lacking.map_or(Ok(()), |path| {
                let field = path[1..].replace('/', ".");
                let text = format!("a good object does not get the default of {field}");
                Err(Finding::failed(CHECK, text).action(RESTORE))
            })
        }
        Err(Unread::Rejected(status)) if status.code == 500 => Err(not_called(&status.message)),
        Err(Unread::Rejected(status)) => {
            let text = format!("a good object is rejected: {}", status.message);
            Err(Finding::failed(CHECK, text).action("look at other webhooks and policies"))
        }
        Err(unread) => Err(unanswered(&unread)),
    }
}

fn unanswered(unread: &Unread) -> Finding {
    match unread {
        // A policy or a quota rejects with 403, too.
        Unread::Forbidden { message, .. } if !message.contains("cannot create resource") => {
            Finding::warning(CHECK, format!("unknown: {message}"))
                .unknown()
                .action("run the check as a user who may create pods there")
        }
        Unread::Missing(message) => Finding::failed(CHECK, format!("unknown: {message}"))
            .unknown()
            .action("install the CRD, and create the namespace"),
        unread => unread.finding(CHECK),
    }
}

/// What the end of the API server's message means, as docs/operations/failures.md has it.
fn not_called(message: &str) -> Finding {
    const CAUSES: [(&[&str], &str); 8] = [
        (
            &["no endpoints available", "connection refused"],
            "no replica is ready: look at the pods",
        ),
        (
            &["unknown authority"],
            "caBundle lacks the CA: the operator restores it within seconds; with cert-manager, look at its injector",
        ),
        (
            &["expired or is not yet valid"],
            "renew the certificate, and look at the clocks",
        ),
        (
            &["certificate is valid for", "not valid for any names"],
            "the certificate is for another Service or namespace",
        ),
        (&["service \""], "apply the Service of the webhooks"),
        // The kernel makes the connection, and the program does not go on with it.
        (
            &["TLS handshake timeout"],
            "a replica accepts connections and does not answer: it is stopped, hangs or has no CPU; look at the pods, and delete the one that hangs",
        ),
        (
            &["dial tcp", "no route"],
            "let the API servers reach port 9443 of the pods: firewall, NetworkPolicy, CNI",
        ),
        // Both look so.
        (
            &["deadline exceeded", "timeout"],
            "a replica hangs, is stopped or has no CPU (then its Lease is stale, too), or the API servers do not reach port 9443 of the pods: firewall, NetworkPolicy, CNI",
        ),
    ];
    let known = CAUSES
        .iter()
        .find(|(words, _)| words.iter().any(|it| message.contains(it)));
    let action = known.map_or("look at the log of the replicas", |(_, action)| action);
    Finding::failed(CHECK, message).action(action)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kube::core::Status;

    use super::*;
    use crate::check::report::Level;
    use crate::kinds::REGISTRY;

    fn status(code: u16, message: &str, fields: &[&str]) -> Fetched<Value> {
        let causes: Vec<Value> = fields.iter().map(|field| json!({"field": field})).collect();
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        let status: Status = serde_json::from_value(status).unwrap();
        Err(Unread::Rejected(Box::new(status)))
    }

    #[test]
    fn every_kind_has_a_bad_and_a_good_object_to_try() {
        for kind in REGISTRY {
            let expected = Expected::new(kind, Utc::now()).unwrap();
            assert!(!expected.faults.is_empty(), "{}", kind.name);
        }
        let defaulted = REGISTRY.iter().filter(|kind| kind.by_default);
        for kind in defaulted {
            let expected = Expected::new(kind, Utc::now()).unwrap();
            assert!(!expected.defaults.is_empty(), "{}", kind.name);
        }
    }

    #[test]
    fn a_call_without_an_answer_is_not_blamed_on_the_network_alone() {
        for (end, words) in [
            (
                "dial tcp 10.0.0.1:443: i/o timeout",
                "let the API servers reach",
            ),
            (
                "dial tcp 10.0.0.1:443: connect: no route to host",
                "let the API servers reach",
            ),
            (
                "dial tcp 10.0.0.1:443: connect: connection refused",
                "no replica is ready",
            ),
            (
                "net/http: TLS handshake timeout",
                "a replica accepts connections",
            ),
            ("context deadline exceeded", "a replica hangs, is stopped"),
            (
                "x509: certificate signed by unknown authority",
                "caBundle lacks the CA",
            ),
        ] {
            let message = format!(
                "failed calling webhook \"vat.kb.io\": failed to call webhook: Post \"https://x.svc:443/y?timeout=10s\": {end}"
            );
            let action = not_called(&message).action.unwrap();
            assert!(action.starts_with(words), "{end}: {action}");
        }
    }

    #[test]
    fn only_our_webhooks_own_answers_pass() {
        let kind = REGISTRY[0];
        let expected = || Expected::new(kind, Utc::now()).unwrap();
        let fault = expected().faults[0].clone();
        let denied = format!(
            "admission webhook \"{}\" denied the request: x",
            entry_name(kind, "validate")
        );
        let completed = || {
            let mut object = expected().good;
            for path in expected().defaults {
                let field = path.strip_prefix("/spec/").unwrap();
                object["spec"][field] = "set".into();
            }
            Ok(object)
        };
        let ours = || status(422, &denied, &[&fault]);
        let forbidden = |message: &str| {
            Err(Unread::Forbidden {
                call: "create x".to_owned(),
                message: message.to_owned(),
            })
        };
        let (plain, refused) = (
            || Ok(expected().good),
            status(422, "other.example denied", &["spec.x"]),
        );
        for (bad, good, level, words) in [
            (ours(), completed(), Level::Passed, fault.as_str()),
            (
                Ok(json!({})),
                completed(),
                Level::Failed,
                "a bad object is accepted",
            ),
            (refused, completed(), Level::Failed, "not by v"),
            (
                status(422, &denied, &["spec.other"]),
                completed(),
                Level::Failed,
                "not by v",
            ),
            (
                ours(),
                plain(),
                Level::Failed,
                "does not get the default of spec.",
            ),
            (
                status(500, "failed calling webhook: connection refused", &[]),
                completed(),
                Level::Failed,
                "connection refused",
            ),
            (
                ours(),
                status(403, "denied", &[]),
                Level::Failed,
                "a good object is rejected",
            ),
            (
                forbidden("user cannot create resource \"x\""),
                completed(),
                Level::Warning,
                "no right to create x",
            ),
            (
                ours(),
                forbidden("ValidatingAdmissionPolicy: no"),
                Level::Warning,
                "ValidatingAdmissionPolicy",
            ),
            (
                Err(Unread::Missing("not found".to_owned())),
                completed(),
                Level::Failed,
                "not found",
            ),
        ] {
            let finding = judge(kind, &expected(), bad, good);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.message.contains(words), "{words}: {finding:?}");
        }
    }
}
