use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::watcher;

use super::*;
use crate::{Status, Target};

/// The next event of a watch as `TYPE name`.
fn shown(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(object) => format!("ADDED {}", object.name_any()),
        WatchEvent::Modified(object) => format!("MODIFIED {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("DELETED {}", object.name_any()),
        WatchEvent::Bookmark(_) => "BOOKMARK".to_owned(),
        WatchEvent::Error(status) => format!("ERROR {}", status.code),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_a_version() {
    let server = server();
    server.direct().create(config_map("before")).unwrap();
    let version = server.version().to_string();
    let watch = config_maps(&server)
        .watch(&WatchParams::default().timeout(5), &version)
        .await
        .unwrap();
    server.direct().create(config_map("a")).unwrap();
    let change = json!({"data": {"k": "v"}});
    server
        .direct()
        .patch("ConfigMap", "default", "a", &change)
        .unwrap();
    server.direct().delete("ConfigMap", "default", "a").unwrap();
    let events: Vec<_> = watch.try_collect().await.unwrap();
    let events: Vec<_> = events.iter().map(shown).collect();
    assert_eq!(events, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_below_the_floor_is_gone() {
    let server = server();
    server.direct().create(config_map("a")).unwrap();
    server.compact(server.version() + 1);
    let watch = config_maps(&server)
        .watch(&WatchParams::default(), "1")
        .await
        .unwrap();
    let events: Vec<_> = watch.try_collect().await.unwrap();
    assert_eq!(events.iter().map(shown).collect::<Vec<_>>(), ["ERROR 410"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_watch_delivers_after_its_release() {
    let server = server();
    let watches = server.watches(Target::resource("configmaps").of_user("test"));
    let version = server.version().to_string();
    let watch = config_maps(&server)
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap();
    let mut watch = std::pin::pin!(watch);
    watches.hold();
    server.direct().create(config_map("a")).unwrap();
    let nothing = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    assert!(nothing.is_err());
    watches.release();
    assert_eq!(shown(&watch.next().await.unwrap().unwrap()), "ADDED a");
    watches.cut();
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_recovers_from_every_ending() {
    let server = server();
    let watches = server.watches(Target::resource("configmaps"));
    let mut events = Box::pin(watcher(config_maps(&server), watcher::Config::default()));
    let mut next = async || loop {
        match tokio::time::timeout(Duration::from_mins(1), events.next())
            .await
            .unwrap()
            .unwrap()
        {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                return object.name_any();
            }
            _ => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    for (name, disturb) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
        server.direct().create(config_map(name)).unwrap();
        while next().await != name {}
        match disturb {
            0 => watches.cut(),
            1 => watches.reset(),
            2 => watches.gone(),
            _ => watches.refuse(Status::forbidden(
                &crate::Resource::custom("", "v1", "ConfigMap", "configmaps"),
                "",
                "no",
            )),
        }
    }
}
