//! The protocol from bytes to bytes, with the rules of a small kind of the tests' own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::faults::Fault;
use super::judge::Admission;
use super::metrics::Metrics;
use super::router::router;
use super::rules::{self, Findings, Recorded, Rules, Subject};

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested: Option<Nested>,
}

#[derive(Default, Deserialize, Serialize)]
struct Nested {
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<i64>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    started: bool,
}

struct Thing;

impl Rules for Thing {
    // Only its names are used.
    type Object = ConfigMap;
    type Spec = Spec;
    type Status = Status;
    const RECORDED: &'static [&'static str] = &["example.com/by"];

    fn default(spec: &mut Spec) {
        spec.size.get_or_insert(1);
        let nested = spec.nested.get_or_insert_default();
        nested.depth.get_or_insert(2);
    }

    fn record(request: &rules::Request<'_, Spec>) -> Vec<Recorded> {
        let kept = request
            .old
            .as_ref()
            .map(|old| old.annotations.get("example.com/by").cloned());
        vec![(
            "example.com/by",
            kept.unwrap_or_else(|| Some(request.user.to_owned())),
        )]
    }

    fn check(subject: &Subject<'_, Spec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        match subject.spec.color.as_deref() {
            None | Some("") => findings.fault(Fault::required("spec.color", "color is required")),
            Some("grey") => findings.warn("grey is dull"),
            Some(color) if color.len() > 5 => {
                findings.fault(Fault::invalid("spec.color", color, "at most 5 letters"));
            }
            Some(_) => {}
        }
        if let Some(size) = subject.spec.size.filter(|size| *size < 0) {
            findings.fault(Fault::invalid("spec.size", size, "must be at least 0"));
        }
        findings
    }

    fn check_update(
        old: &Subject<'_, Spec>,
        status: Option<&Status>,
        new: &Subject<'_, Spec>,
    ) -> Findings {
        let mut findings = Findings::default();
        if status.is_none_or(|status| status.started) && old.spec.size != new.spec.size {
            findings.fault(Fault::forbidden("spec.size", "it has started"));
        }
        findings
    }
}

fn webhooks() -> Router {
    let clock: crate::router::Clock = Arc::new(DateTime::default);
    router(&[Admission::of::<Thing>()], &clock, &Metrics::default())
}

const MUTATE: &str = "/mutate--v1-configmap";
const VALIDATE: &str = "/validate--v1-configmap";

async fn post(path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
    let request =
        Request::post(format!("{path}?timeout=10s")).header("content-type", "application/json");
    answered(request.body(body.into()).unwrap()).await
}

async fn answered(request: Request<Body>) -> (StatusCode, Value) {
    let response = webhooks().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn review(request: &Value) -> String {
    let mut whole = json!({
        "uid": "u-1",
        "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "operation": "CREATE",
        "userInfo": { "username": "eve" },
    });
    for (key, value) in request.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole })
        .to_string()
}

async fn judged(path: &str, request: &Value) -> Value {
    let (status, answer) = post(path, review(request)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

/// The object after the patch that the mutating side answers.
async fn defaulted(request: &Value) -> Value {
    let answer = judged(MUTATE, request).await;
    assert_eq!(answer["allowed"], true);
    let mut object = request["object"].clone();
    if let Some(patch) = answer["patch"].as_str() {
        assert_eq!(answer["patchType"], "JSONPatch");
        let patch = BASE64_STANDARD.decode(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

#[tokio::test]
async fn defaults_are_added_beside_what_is_there_and_a_second_pass_is_empty() {
    for spec in [
        json!(null),
        json!({}),
        json!({"nested": null}),
        json!({"nested": {"other": [1]}, "new": {"a": 1}}),
    ] {
        let object = json!({ "metadata": { "name": "x" }, "spec": spec });
        let result = defaulted(&json!({ "object": object })).await;
        assert_eq!(result["spec"]["size"], 1);
        assert_eq!(result["spec"]["nested"]["depth"], 2);
        assert_eq!(result["spec"].get("new"), spec.get("new"));
        assert_eq!(result["metadata"]["annotations"]["example.com/by"], "eve");
        let again = judged(MUTATE, &json!({ "object": result })).await;
        assert!(again.get("patch").is_none(), "{again}");
    }
}

#[tokio::test]
async fn a_recorded_annotation_cannot_be_forged() {
    let with = |by: Value| json!({ "metadata": { "name": "x", "annotations": by }, "spec": { "color": "red" } });
    let forged = with(json!({ "example.com/by": "mallory", "other": "kept" }));
    let created = defaulted(&json!({ "object": forged })).await;
    assert_eq!(
        created["metadata"]["annotations"],
        json!({ "example.com/by": "eve", "other": "kept" })
    );
    for annotations in [
        json!(null),
        json!({}),
        json!({ "example.com/by": "mallory" }),
    ] {
        let request =
            json!({ "operation": "UPDATE", "object": with(annotations), "oldObject": created });
        let updated = defaulted(&request).await;
        assert_eq!(updated["metadata"]["annotations"]["example.com/by"], "eve");
    }
    // An object that was stored without one has none afterwards either.
    let request = json!({
        "operation": "UPDATE",
        "object": with(json!({ "example.com/by": "mallory" })),
        "oldObject": with(json!(null)),
    });
    assert_eq!(
        defaulted(&request).await["metadata"]["annotations"],
        json!({})
    );
}

#[tokio::test]
async fn a_refusal_names_every_fault() {
    let object =
        json!({ "metadata": { "generateName": "x-" }, "spec": { "color": "purple", "size": -1 } });
    let answer = judged(VALIDATE, &json!({ "object": object })).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(
        answer["status"],
        json!({
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": "ConfigMap. \"x-\" is invalid: [spec.color: Invalid value: \"purple\": at most 5 letters, spec.size: Invalid value: -1: must be at least 0]",
            "details": {
                "name": "x-", "group": "", "kind": "ConfigMap",
                "causes": [
                    { "reason": "FieldValueInvalid", "field": "spec.color", "message": "Invalid value: \"purple\": at most 5 letters" },
                    { "reason": "FieldValueInvalid", "field": "spec.size", "message": "Invalid value: -1: must be at least 0" },
                ],
            },
        })
    );
    assert!(answer["auditAnnotations"]["faults"].is_string());
}

#[tokio::test]
async fn a_spec_of_the_wrong_type_is_a_refusal_with_its_field() {
    for (spec, field) in [
        (json!([1, 2]), "spec"),
        (json!("text"), "spec"),
        (json!({ "color": 5 }), "spec.color"),
        (
            json!({ "color": "red", "nested": { "depth": "deep" } }),
            "spec.nested.depth",
        ),
        (json!({ "color": "red", "size": 1e30 }), "spec.size"),
    ] {
        let object = json!({ "metadata": { "name": "x" }, "spec": spec });
        let answer = judged(VALIDATE, &json!({ "object": object })).await;
        let cause = &answer["status"]["details"]["causes"][0];
        assert_eq!(cause["reason"], "FieldValueTypeInvalid", "{answer}");
        assert_eq!(cause["field"], field);
        // The mutating side leaves it to the validating one.
        let answer = judged(MUTATE, &json!({ "object": object })).await;
        assert_eq!(answer["allowed"], true);
    }
}

#[tokio::test]
async fn an_update_is_refused_only_for_new_faults() {
    let object = |spec: Value| json!({ "metadata": { "name": "x" }, "spec": spec });
    let update = async |old: Value, new: Value| {
        let request =
            json!({ "operation": "UPDATE", "object": object(new), "oldObject": object(old) });
        judged(VALIDATE, &request).await
    };
    let same = update(
        json!({ "color": "purple" }),
        json!({ "color": "purple", "size": 3 }),
    )
    .await;
    assert_eq!(same["allowed"], true);
    assert!(
        same["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("already stored: spec.color")
    );
    let other = update(json!({ "color": "purple" }), json!({ "color": "violet" })).await;
    assert_eq!(other["allowed"], false);
    let more = update(
        json!({ "color": "purple" }),
        json!({ "color": "purple", "size": -1 }),
    )
    .await;
    assert_eq!(
        more["status"]["details"]["causes"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // An undecodable spec that stays as it was.
    let stuck = update(json!({ "color": 5 }), json!({ "color": 5 })).await;
    assert_eq!(stuck["allowed"], true);
}

#[tokio::test]
async fn immutability_looks_at_the_stored_status() {
    let object = |size: i64| json!({ "metadata": { "name": "x" }, "spec": { "color": "red", "size": size }, "status": { "started": true } });
    let request = json!({ "operation": "UPDATE", "object": object(2), "oldObject": object(1) });
    let answer = judged(VALIDATE, &request).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["message"],
        "Forbidden: it has started"
    );
}

#[tokio::test]
async fn other_operations_and_subresources_pass() {
    for request in [
        json!({ "operation": "DELETE", "oldObject": {} }),
        json!({ "operation": "UPDATE", "subResource": "status", "object": {}, "oldObject": {} }),
        json!({ "operation": "CONNECT" }),
    ] {
        for path in [MUTATE, VALIDATE] {
            assert_eq!(judged(path, &request).await["allowed"], true, "{request}");
        }
    }
}

#[tokio::test]
async fn a_review_for_another_kind_or_without_object_is_a_bad_request_with_its_uid() {
    let other =
        json!({ "kind": { "group": "apps", "version": "v1", "kind": "Deployment" }, "object": {} });
    for request in [
        other,
        json!({}),
        json!({ "object": null }),
        json!({ "object": [1] }),
    ] {
        for path in [MUTATE, VALIDATE] {
            let answer = judged(path, &request).await;
            assert_eq!(answer["allowed"], false, "{request}");
            assert_eq!(answer["status"]["code"], 400);
        }
    }
}

#[tokio::test]
async fn warnings_are_truncated_and_escaped() {
    let object = json!({ "metadata": { "name": "x" }, "spec": { "color": "grey" } });
    let answer = judged(VALIDATE, &json!({ "object": object })).await;
    assert_eq!(answer["warnings"], json!(["grey is dull"]));
}

#[test]
fn the_log_entry_of_a_request_is_one_line() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    // Without it, a test on another thread without a subscriber may disable this log line for all threads.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    // As long as such texts may be.
    let uid = format!("a\n\u{1b}[2J\u{9b}\u{202e}{}", "x".repeat(240));
    let hostile = uid.clone() + &"x".repeat(7_900);
    for operation in [hostile.as_str(), "CREATE"] {
        let request = json!({ "uid": uid, "namespace": hostile, "operation": operation,
            "userInfo": { "username": format!("jane {hostile}") }, "dryRun": true,
            "object": { "metadata": { "name": hostile }, "spec": { "color": hostile } } });
        for json in [false, true] {
            let log = Log::default();
            let made = log.clone();
            let format = tracing_subscriber::fmt()
                .with_ansi(false)
                // The first one is allowed: the rules do not judge that operation.
                .with_max_level(tracing::Level::DEBUG)
                .with_writer(move || made.clone());
            let subscriber: Box<dyn tracing::Subscriber + Send + Sync> = if json {
                Box::new(format.json().finish())
            } else {
                Box::new(format.finish())
            };
            tracing::subscriber::with_default(subscriber, || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(post(VALIDATE, review(&request)))
            });
            let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert_eq!(log.lines().count(), 1, "{log}");
            assert!(log.contains("[2J") && log.len() < 4096, "{log}");
            assert!(!log.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{log}");
            let (user, dry_run) = if json {
                ("\"user\":\"jane a", "\"dry_run\":true")
            } else {
                ("user=\"jane a", "dry_run=true")
            };
            assert!(log.contains(user) && log.contains(dry_run), "{log}");
        }
    }
}

#[tokio::test]
async fn an_unreadable_status_counts_as_one_that_forbids_changes() {
    let object = |size| json!({"metadata": {"name": "x"}, "spec": {"color": "red", "size": size}});
    for (status, allowed) in [
        (json!({"started": false}), true),
        (json!({"started": true}), false),
        (json!({"started": "maybe"}), false),
    ] {
        let mut old = object(1);
        old["status"] = status.clone();
        let request = json!({"operation": "UPDATE", "object": object(2), "oldObject": old});
        let answer = judged(VALIDATE, &request).await;
        assert_eq!(answer["allowed"], allowed, "{status}");
    }
}

#[tokio::test]
async fn a_malformed_review_is_a_4xx_with_one_line() {
    let version = review(&json!({})).replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (body, code, words) in [
        (String::new(), 400, "not an AdmissionReview"),
        ("{".to_owned(), 400, "not an AdmissionReview"),
        ("[]".to_owned(), 400, "not an AdmissionReview"),
        (deep, 400, "not an AdmissionReview"),
        (version, 400, "v1beta1"),
        ("{}".to_owned(), 400, "expected admission.k8s.io/v1"),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_owned(),
            400,
            "no request",
        ),
    ] {
        let (status, answer) = post(VALIDATE, body).await;
        assert_eq!(status.as_u16(), code, "{answer}");
        assert!(
            answer["error"].as_str().unwrap().contains(words),
            "{answer}"
        );
    }
    let text = Request::post(VALIDATE)
        .header("content-type", "text/plain")
        .body(Body::from("{}"));
    assert_eq!(
        answered(text.unwrap()).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let zipped = Request::post(VALIDATE)
        .header("content-type", "application/json; charset=utf-8")
        .header("content-encoding", "gzip")
        .body(Body::from("{}"));
    assert_eq!(
        answered(zipped.unwrap()).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let get = Request::get(VALIDATE).body(Body::empty()).unwrap();
    assert_eq!(answered(get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let lost = Request::post("/validate-other")
        .body(Body::empty())
        .unwrap();
    assert_eq!(answered(lost).await.0, StatusCode::NOT_FOUND);
}
