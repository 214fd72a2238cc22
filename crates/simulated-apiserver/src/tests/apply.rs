use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
}

async fn apply(
    server: &Server,
    manager: &str,
    force: bool,
    object: Value,
) -> kube::Result<Deployment> {
    let api: Api<Deployment> = Api::default_namespaced(server.client(manager));
    let mut params = PatchParams::apply(manager);
    params.force = force;
    api.patch("a", &params, &Patch::Apply(object)).await
}

fn spec(server: &Server) -> Value {
    server.direct().get("Deployment", "default", "a").unwrap()["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_applied_goes() {
    let server = server();
    apply(
        &server,
        "x",
        false,
        deployment(json!({"replicas": 1, "paused": true})),
    )
    .await
    .unwrap();
    apply(&server, "x", false, deployment(json!({"replicas": 1})))
        .await
        .unwrap();
    assert_eq!(spec(&server), json!({"replicas": 1}));
}

#[tokio::test(start_paused = true)]
async fn an_owned_field_is_a_conflict_without_force() {
    let server = server();
    apply(
        &server,
        "x",
        false,
        deployment(json!({"replicas": 1, "paused": true})),
    )
    .await
    .unwrap();
    let refused = failure(apply(&server, "y", false, deployment(json!({"replicas": 2}))).await);
    assert_eq!(
        refused,
        (
            409,
            "Conflict".to_owned(),
            "Apply failed with 1 conflict: conflict with \"x\": .spec.replicas".to_owned()
        )
    );
    apply(&server, "y", true, deployment(json!({"replicas": 2})))
        .await
        .unwrap();
    // The field belongs to the other manager now.
    apply(&server, "x", false, deployment(json!({"paused": true})))
        .await
        .unwrap();
    assert_eq!(spec(&server), json!({"replicas": 2, "paused": true}));
}

#[tokio::test(start_paused = true)]
async fn the_same_again_changes_nothing() {
    let server = server();
    let object = deployment(json!({"template": {"spec": {"containers": [
        {"name": "a", "image": "x", "env": [{"name": "K", "value": "v"}], "ports": [{"containerPort": 80}]},
    ]}}}));
    apply(&server, "x", false, object.clone()).await.unwrap();
    let version = server.version();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    apply(&server, "x", false, object).await.unwrap();
    assert_eq!(server.version(), version);
}

#[tokio::test(start_paused = true)]
async fn items_of_lists_belong_to_their_managers() {
    let server = server();
    let containers = |list: Value| deployment(json!({"template": {"spec": {"containers": list}}}));
    let (a, b) = (
        json!({"name": "a", "image": "x"}),
        json!({"name": "b", "image": "y"}),
    );
    apply(&server, "x", false, containers(json!([a])))
        .await
        .unwrap();
    apply(&server, "y", false, containers(json!([b])))
        .await
        .unwrap();
    assert_eq!(
        spec(&server)["template"]["spec"]["containers"],
        json!([a, b])
    );
    apply(&server, "x", false, deployment(json!({})))
        .await
        .unwrap();
    assert_eq!(spec(&server)["template"]["spec"]["containers"], json!([b]));
}

#[tokio::test(start_paused = true)]
async fn an_edit_takes_fields_over() {
    let server = server();
    apply(&server, "x", false, deployment(json!({"replicas": 1})))
        .await
        .unwrap();
    server
        .direct()
        .patch(
            "Deployment",
            "default",
            "a",
            &json!({"spec": {"replicas": 3}}),
        )
        .unwrap();
    let refused = failure(apply(&server, "x", false, deployment(json!({"replicas": 1}))).await);
    assert!(
        refused
            .2
            .contains("conflict with \"kubectl\" using apps/v1: "),
        "{}",
        refused.2
    );
}

#[tokio::test(start_paused = true)]
async fn a_ca_bundle_is_merged_into_the_webhook_of_that_name() {
    let server = server();
    let configuration = |entry: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "a"}, "webhooks": [entry]})
    };
    let url = json!({"name": "a.x", "clientConfig": {"url": "https://localhost"}});
    server.direct().create(configuration(url)).unwrap();
    let bundle = json!({"name": "a.x", "clientConfig": {"caBundle": "eA=="}});
    let applied = server.direct().apply(&configuration(bundle)).unwrap();
    let both = json!({"url": "https://localhost", "caBundle": "eA=="});
    assert_eq!(
        applied["webhooks"],
        json!([{"name": "a.x", "clientConfig": both}])
    );
}
