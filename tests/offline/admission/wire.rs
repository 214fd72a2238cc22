//! Bytes in, bytes out: the webhooks of every kind in process, and what must hold for every answer,
//! whatever was sent. The fuzz target (`fuzz/`) is built from this file too.

use std::cell::LazyCell;
use std::fmt::Write as _;

use admission_rules::metrics::Metrics;
use admission_rules::router::router;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::response::Parts;
use axum::http::{Request, StatusCode};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::DateTime;
use my_operator::kinds::{Kind, REGISTRY};
use resilient_kube_client::clock::Clock;
use serde_json::Value;
use tower::ServiceExt as _;

/// The longest answer to what is not a review.
const MAX_LINE_LEN: usize = 4 * 1024;
/// The longest answer to a review, its patch left out, whatever was sent: the faults that it lists, twice.
const MAX_ANSWER_LEN: usize = 256 * 1024;
/// The longest patch.
const MAX_PATCH_LEN: usize = 128 * 1024;
/// The API server hands on no more of a warning.
const MAX_WARNING_LEN: usize = 256;

/// The paths of a kind's webhooks.
pub const VERBS: [&str; 2] = ["mutate", "validate"];

/// The router over every kind, with a clock that stands still.
pub struct Wire {
    router: Router,
    runtime: tokio::runtime::Runtime,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Vec<u8>,
    pub json: Value,
}

impl Answer {
    pub fn new(status: StatusCode, body: &[u8]) -> Self {
        Self {
            status,
            json: serde_json::from_slice(body).unwrap(),
            body: body.to_vec(),
        }
    }

    /// The `response` of the review that was answered.
    pub fn response(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.json);
        &self.json["response"]
    }

    /// The operations of the patch; none without a patch.
    pub fn patch(&self) -> Vec<Value> {
        patch_of(self.response())
    }
}

fn patch_of(response: &Value) -> Vec<Value> {
    let Some(text) = response.get("patch") else {
        return Vec::new();
    };
    assert_eq!(response["patchType"], "JSONPatch");
    let text = BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap();
    serde_json::from_slice(&text).unwrap()
}

impl Wire {
    pub fn new() -> Self {
        let now = DateTime::parse_from_rfc3339("2026-04-12T10:00:00Z").unwrap();
        let clock: Clock = std::sync::Arc::new(move || now.to_utc());
        let kinds: Vec<_> = REGISTRY.iter().map(|kind| kind.admission).collect();
        let metrics = Metrics::default();
        Self {
            router: router(&kinds, &clock, &metrics),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
        }
    }

    /// Sends a request, and reads the answer to its end.
    pub fn call(&self, request: Request<Body>) -> (Parts, Bytes) {
        self.runtime.block_on(async {
            let response = self.router.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            (parts, to_bytes(body, usize::MAX).await.unwrap())
        })
    }

    /// The same, and holds the answer to what must always hold.
    pub fn send(&self, request: Request<Body>, sent: &[u8]) -> Answer {
        let (parts, body) = self.call(request);
        assert_eq!(parts.headers["content-type"], "application/json");
        let answer = Answer::new(parts.status, &body);
        hold(&answer, sent);
        answer
    }

    pub fn post(&self, path: &str, body: &[u8]) -> Answer {
        self.send(request(path, body.to_vec()), body)
    }

    /// To both webhooks of every kind: the entry of the fuzzers.
    pub fn post_everywhere(&self, body: &[u8]) {
        for kind in REGISTRY {
            for verb in VERBS {
                self.post(&kind.admission.path(verb), body);
            }
        }
    }
}

/// A call of the webhook with that path.
pub fn request(path: &str, body: Vec<u8>) -> Request<Body> {
    Request::post(format!("{path}?timeout=10s"))
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap()
}

/// What a review asks, the objects as they are written.
pub struct Ask<'a> {
    pub operation: &'a str,
    pub object: &'a str,
    pub old_object: &'a str,
    pub user: &'a str,
}

impl<'a> Ask<'a> {
    pub fn create(object: &'a str) -> Self {
        Self {
            operation: "CREATE",
            object,
            old_object: "null",
            user: "ann",
        }
    }

    pub fn update(old_object: &'a str, object: &'a str) -> Self {
        Self {
            operation: "UPDATE",
            object,
            old_object,
            user: "ann",
        }
    }

    /// The whole review, as the API server writes it.
    pub fn review(&self, kind: &Kind) -> String {
        let names = (kind.admission.resource)();
        let Self {
            operation,
            object,
            old_object,
            user,
        } = self;
        let mut text = String::new();
        let names = serde_json::json!({
            "group": names.group, "version": names.version, "kind": names.kind,
        });
        write!(
            text,
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{names},"name":"x","namespace":"default","operation":"{operation}","userInfo":{{"username":{user},"groups":["system:authenticated"]}},"object":{object},"oldObject":{old_object},"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#,
            user = Value::from(*user),
        )
        .unwrap();
        text
    }
}

/// The uid of every review that [`Ask`] writes.
pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Fails unless the answer is one that may be given to those bytes: a review with the uid of the
/// request, or a 4xx with one line; never long, and without anything that could rewrite a terminal.
pub fn hold(answer: &Answer, sent: &[u8]) {
    let Answer { status, body, json } = answer;
    if *status != StatusCode::OK {
        assert!(status.is_client_error(), "{status}");
        assert!(body.len() <= MAX_LINE_LEN, "{status}: {} bytes", body.len());
        assert!(!body.contains(&b'\n'));
        let line = json["error"].as_str().unwrap();
        assert!(!line.is_empty() && is_clean(line), "{line:?}");
        return;
    }
    assert_eq!(json["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(json["kind"], "AdmissionReview");
    let response = &json["response"];
    assert!(response["uid"].is_string());
    // What serde_json does not read, such as deep nesting in an object, has a uid all the same.
    let asked = LazyCell::new(|| serde_json::from_slice::<Value>(sent).ok());
    if response["uid"] != UID
        && let Some(asked) = &*asked
    {
        assert_eq!(response["uid"], asked["request"]["uid"]);
    }
    let patch = response
        .get("patch")
        .map_or(0, |patch| patch.as_str().unwrap().len());
    let fixed = body.len() - patch;
    assert!(fixed <= MAX_ANSWER_LEN, "{fixed} bytes");
    assert!(patch <= MAX_PATCH_LEN, "a patch of {patch} bytes");
    for warning in response["warnings"].as_array().into_iter().flatten() {
        let warning = warning.as_str().unwrap();
        assert!(warning.chars().count() <= MAX_WARNING_LEN, "{warning}");
    }
    for (key, value) in response.as_object().unwrap() {
        if key != "uid" && key != "patch" {
            every_text(value, &mut |text| {
                assert!(is_clean(text), "{key}: {text:?}");
            });
        }
    }
    let outcome = &response["status"];
    match response["allowed"].as_bool() {
        Some(true) => assert!(outcome.is_null(), "{response}"),
        Some(false) => {
            assert_eq!(outcome["status"], "Failure");
            assert!(
                matches!(outcome["code"].as_u64(), Some(400 | 422)),
                "{outcome}"
            );
            assert!(
                outcome["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            );
            assert_eq!(patch, 0, "a refusal with a patch");
        }
        None => panic!("{response}"),
    }
    if patch > 0 {
        let patch: json_patch::Patch = serde_json::from_value(patch_of(response).into()).unwrap();
        assert!(!patch.is_empty());
        if let Some(asked) = &*asked {
            let mut object = asked["request"]["object"].clone();
            json_patch::patch(&mut object, &patch).unwrap();
        }
    }
}

/// Calls `look` with every text in a value, keys included.
fn every_text(value: &Value, look: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| every_text(item, look)),
        Value::Object(fields) => {
            for (key, value) in fields {
                look(key);
                every_text(value, look);
            }
        }
        _ => {}
    }
}

/// Whether a terminal shows the text as it is: no control characters, no line breaks, nothing that
/// is invisible or turns the direction of writing.
pub fn is_clean(text: &str) -> bool {
    text.chars().all(|c| {
        !c.is_control()
            && !matches!(c,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    })
}
