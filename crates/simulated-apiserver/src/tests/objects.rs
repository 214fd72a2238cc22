use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::*;
use crate::Resource;

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_replaced_and_deleted() {
    let server = server();
    let api = config_maps(&server);
    let made = api
        .create(&PostParams::default(), &typed(config_map("a")))
        .await
        .unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("a"));
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    let mut changed = api.get("a").await.unwrap();
    changed.data = Some([("k".to_owned(), "v".to_owned())].into());
    let replaced = api
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(
        replaced.metadata.resource_version,
        made.metadata.resource_version
    );
    assert_eq!(
        failure(api.replace("a", &PostParams::default(), &made).await).1,
        "Conflict"
    );
    assert!(
        api.delete("a", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
    assert_eq!(
        failure(api.get("a").await),
        (
            404,
            "NotFound".to_owned(),
            "configmaps \"a\" not found".to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_custom_kind_without_a_status_subresource_has_no_status_to_write() {
    let server = server();
    server.register(Resource::of::<ConfigMap>().without_status());
    server.direct().create(config_map("a")).unwrap();
    let api = config_maps(&server);
    let (params, status) = (PatchParams::default(), Patch::Merge(json!({"status": {}})));
    let (code, reason, message) = failure(api.patch_status("a", &params, &status).await);
    assert_eq!((code, &*reason), (404, "NotFound"));
    assert_eq!(message, "configmaps \"a\" not found");
    api.get("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once() {
    let server = server();
    let api = config_maps(&server);
    server.direct().create(config_map("a")).unwrap();
    assert_eq!(
        failure(
            api.create(&PostParams::default(), &typed(config_map("a")))
                .await
        ),
        (
            409,
            "AlreadyExists".to_owned(),
            "configmaps \"a\" already exists".to_owned()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn generated_names_differ() {
    let server = server();
    let api = config_maps(&server);
    let object = typed(json!({"metadata": {"generateName": "a-"}}));
    let one = api.create(&PostParams::default(), &object).await.unwrap();
    let two = api.create(&PostParams::default(), &object).await.unwrap();
    assert_ne!(one.metadata.name, two.metadata.name);
    assert!(one.metadata.name.unwrap().starts_with("a-"));
}

#[tokio::test(start_paused = true)]
async fn preconditions_of_a_delete_hold() {
    let server = server();
    let api = config_maps(&server);
    let made = server.direct().create(config_map("a")).unwrap();
    let with = |uid: Option<&str>, version: Option<&str>| DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    };
    let uid = made["metadata"]["uid"].as_str();
    let version = made["metadata"]["resourceVersion"].as_str();
    assert_eq!(
        failure(api.delete("a", &with(Some("x"), version)).await).1,
        "Conflict"
    );
    assert_eq!(
        failure(api.delete("a", &with(uid, Some("1"))).await).1,
        "Conflict"
    );
    api.delete("a", &with(uid, version)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_whose_test_fails_is_invalid() {
    let server = server();
    let api = config_maps(&server);
    server.direct().create(config_map("a")).unwrap();
    let patch = |uid: &str| {
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/data", "value": {"k": "v"}},
        ]);
        Patch::Json::<()>(serde_json::from_value(patch).unwrap())
    };
    let params = PatchParams::default();
    let failed = failure(api.patch("a", &params, &patch("x")).await);
    assert_eq!((failed.0, failed.1.as_str()), (422, "Invalid"));
    let uid = api.get("a").await.unwrap().metadata.uid.unwrap();
    let patched = api.patch("a", &params, &patch(&uid)).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "v");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_change_keeps_the_version() {
    let server = server();
    let api = config_maps(&server);
    server.direct().create(config_map("a")).unwrap();
    let before = server.version();
    let patch = Patch::Merge(json!({"metadata": {"labels": null}}));
    api.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(server.version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_shows_one_moment() {
    let server = server();
    let api = config_maps(&server);
    for name in ["a", "b", "c"] {
        server.direct().create(config_map(name)).unwrap();
    }
    let params = ListParams::default().limit(2);
    let first = api.list(&params).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (2, Some(1))
    );
    server.direct().delete("ConfigMap", "default", "c").unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = api
        .list(&params.clone().continue_token(&token))
        .await
        .unwrap();
    assert_eq!(rest.items.len(), 1);
    server.compact(server.version());
    assert_eq!(
        failure(api.list(&params.continue_token(&token)).await).0,
        410
    );
}

#[tokio::test(start_paused = true)]
async fn each_page_says_how_many_objects_follow() {
    let server = server();
    server.direct().namespace("other");
    for number in 0..7 {
        let mut object = config_map(&format!("a{number}"));
        object["metadata"]["namespace"] = json!(["default", "other"][number % 2]);
        server.direct().create(object).unwrap();
    }
    let api = kube::Api::<ConfigMap>::all(server.client("me"));
    let mut params = ListParams::default().limit(3);
    let mut pages = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        let names: Vec<String> = page
            .items
            .into_iter()
            .filter_map(|it| it.metadata.name)
            .collect();
        pages.push((names.join(" "), page.metadata.remaining_item_count));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            break;
        }
    }
    let expected = [("a0 a2 a4", Some(4)), ("a6 a1 a3", Some(1)), ("a5", None)];
    assert_eq!(
        pages,
        expected.map(|(names, left)| (names.to_owned(), left))
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_comes_alone_when_asked_for() {
    let server = server();
    server.direct().create(pod("a")).unwrap();
    let one = pods(&server).get_metadata("a").await.unwrap();
    assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
    let all = pods(&server)
        .list_metadata(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(all.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let server = server();
    let api = pods(&server);
    server.direct().create(pod("a")).unwrap();
    let params = PatchParams::default();
    let both =
        Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}));
    let main = api.patch("a", &params, &both).await.unwrap();
    assert_eq!(main.status.unwrap().phase.unwrap(), "Pending");
    let both =
        Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}}));
    let status = api.patch_status("a", &params, &both).await.unwrap();
    assert_eq!(status.status.unwrap().phase.unwrap(), "Running");
    assert_eq!(status.spec.unwrap().active_deadline_seconds, None);
}
