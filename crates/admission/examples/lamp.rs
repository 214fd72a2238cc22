//! The webhooks of one kind, called without a listener: `cargo run -p admission-rules --example lamp`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use admission_rules::judge::Admission;
use admission_rules::metrics::Metrics;
use admission_rules::router::{Clock, router};
use admission_rules::rules::{Findings, Rules, Subject};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use chrono::{DateTime, Utc};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt as _;

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
#[kube(schema = "disabled")]
struct LampSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    watts: Option<i64>,
}

struct LampRules;

impl Rules for LampRules {
    type Object = Lamp;
    type Spec = LampSpec;
    type Status = ();

    fn default(spec: &mut LampSpec) {
        spec.watts.get_or_insert(5);
    }

    fn check(lamp: &Subject<'_, LampSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        findings.check_number("spec.watts", lamp.spec.watts, 1..=60);
        findings
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clock: Clock = Arc::new(Utc::now);
    let webhooks = router(&[Admission::of::<LampRules>()], &clock, &Metrics::default());
    for (path, spec) in [
        ("/mutate-example-com-v1-lamp", json!({})),
        ("/validate-example-com-v1-lamp", json!({"watts": 100})),
    ] {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(review(&spec))).unwrap();
        let answer = webhooks.clone().oneshot(request).await.unwrap();
        let answer = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        println!("{path}: {}", answer["response"]);
    }
}

/// The request that an API server sends when a Lamp is created.
fn review(spec: &Value) -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "example.com", "version": "v1", "kind": "Lamp"},
            "operation": "CREATE",
            "userInfo": {"username": "jane"},
            "object": {"metadata": {"name": "desk"}, "spec": spec},
        },
    });
    review.to_string()
}
