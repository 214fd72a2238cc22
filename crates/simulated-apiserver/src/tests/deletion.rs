use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::*;

/// An object that another one owns.
fn owned(name: &str, owner: &Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

fn names(server: &Server) -> Vec<String> {
    let all = server.direct().list("ConfigMap", "default");
    all.iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Deletes the first of two objects of which it owns the other, and returns what is left at once and later.
async fn left_after(params: DeleteParams) -> (Vec<String>, Vec<String>) {
    let server = server();
    let owner = server.direct().create(config_map("owner")).unwrap();
    server.direct().create(owned("owned", &owner)).unwrap();
    config_maps(&server).delete("owner", &params).await.unwrap();
    let at_once = names(&server);
    sleep(Duration::from_secs(5)).await;
    (at_once, names(&server))
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let (at_once, later) = left_after(DeleteParams::background()).await;
    assert_eq!((at_once, later), (vec!["owned".to_owned()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let (at_once, later) = left_after(DeleteParams::foreground()).await;
    assert_eq!(
        (at_once, later),
        (vec!["owned".to_owned(), "owner".to_owned()], vec![])
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_stay() {
    let (at_once, later) = left_after(DeleteParams::orphan()).await;
    assert_eq!(
        (at_once, later),
        (
            vec!["owned".to_owned(), "owner".to_owned()],
            vec!["owned".to_owned()]
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_comes_after_its_owner_went_is_collected() {
    let server = server();
    let owner = server.direct().create(config_map("owner")).unwrap();
    server
        .direct()
        .delete("ConfigMap", "default", "owner")
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    server.direct().create(owned("late", &owner)).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(names(&server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn finalizers_keep_an_object_until_the_last_is_gone() {
    let server = server();
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.direct().create(object).unwrap();
    let pending = config_maps(&server)
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert!(
        pending
            .left()
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let more =
        Patch::Merge(json!({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}));
    let refused = failure(
        config_maps(&server)
            .patch("a", &PatchParams::default(), &more)
            .await,
    );
    assert_eq!(
        refused.2,
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/b\"}"
    );
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    config_maps(&server)
        .patch("a", &PatchParams::default(), &none)
        .await
        .unwrap();
    assert!(names(&server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_is_deleted_gracefully_and_an_unbound_one_at_once() {
    let server = server();
    server.direct().create(pod("unbound")).unwrap();
    server.direct().create(pod("bound")).unwrap();
    server.direct().bind("default", "bound", "n1").unwrap();
    let api = pods(&server);
    api.delete("unbound", &DeleteParams::default())
        .await
        .unwrap();
    api.delete("bound", &DeleteParams::default()).await.unwrap();
    assert!(server.direct().get("Pod", "default", "unbound").is_none());
    let bound = server.direct().get("Pod", "default", "bound").unwrap();
    assert_eq!(bound["metadata"]["deletionGracePeriodSeconds"], 30);
    api.delete("bound", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(server.direct().get("Pod", "default", "bound").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_with_its_content() {
    let server = server();
    server.direct().namespace("x");
    let mut object = config_map("a");
    object["metadata"]["namespace"] = json!("x");
    server.direct().create(object.clone()).unwrap();
    server.direct().delete("Namespace", "", "x").unwrap();
    object["metadata"]["name"] = json!("b");
    let refused = server.direct().create(object).unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "configmaps \"b\" is forbidden: unable to create new content in namespace x because it is being terminated"
        )
    );
    sleep(Duration::from_secs(5)).await;
    assert!(server.direct().get("Namespace", "", "x").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_gates_is_not_bound_and_gets_no_more_of_them() {
    let server = server();
    let mut gated = pod("a");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/a"}]);
    server.direct().create(gated).unwrap();
    assert_eq!(
        server.direct().bind("default", "a", "n1").unwrap_err().code,
        409
    );
    let patch_of = |list: Value| Patch::Merge(json!({"spec": {"schedulingGates": list}}));
    let params = PatchParams::default();
    let more = patch_of(json!([{"name": "example.com/a"}, {"name": "example.com/b"}]));
    assert_eq!(
        failure(pods(&server).patch("a", &params, &more).await).0,
        422
    );
    pods(&server)
        .patch("a", &params, &patch_of(json!([])))
        .await
        .unwrap();
    server.direct().bind("default", "a", "n1").unwrap();
}
