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
        match tokio::time::timeout(Duration::from_secs(60), events.next())
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

/// What a watcher of ConfigMaps reports within a virtual minute.
async fn reported(server: &Server, config: watcher::Config, act: impl FnOnce()) -> Vec<String> {
    let events = watcher(config_maps(server), config);
    let mut events = Box::pin(events);
    let mut reported = Vec::new();
    let mut act = Some(act);
    let end = tokio::time::sleep(Duration::from_secs(60));
    let mut end = std::pin::pin!(end);
    loop {
        tokio::select! {
            biased;
            event = events.next() => match event.unwrap() {
                Ok(watcher::Event::InitApply(object)) => reported.push(format!("listed {}", object.name_any())),
                Ok(watcher::Event::InitDone) => {
                    reported.push("done".to_owned());
                    if let Some(act) = act.take() {
                        act();
                    }
                }
                Ok(watcher::Event::Apply(object)) => reported.push(format!("applied {}", object.name_any())),
                Ok(watcher::Event::Delete(object)) => reported.push(format!("deleted {}", object.name_any())),
                Ok(watcher::Event::Init) => {}
                Err(error) => reported.push(format!("{error:?}").chars().take_while(|c| *c != '(').collect()),
            },
            () = &mut end => return reported,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_lists_in_pages_or_through_its_watch() {
    let streaming = watcher::Config::default().streaming_lists();
    for config in [watcher::Config::default().page_size(1), streaming] {
        let server = server();
        server.direct().create(config_map("a")).unwrap();
        server.direct().create(config_map("b")).unwrap();
        let act = || drop(server.direct().create(config_map("c")).unwrap());
        let events = reported(&server, config, act).await;
        assert_eq!(events, ["listed a", "listed b", "done", "applied c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_lists_show_the_past_and_watches_go_on_from_there() {
    let server = server();
    server.direct().create(config_map("a")).unwrap();
    let version = server.version();
    server.direct().delete("ConfigMap", "default", "a").unwrap();
    let watches = server.watches(Target::resource("configmaps"));
    watches.stale_lists(version);
    let events = reported(&server, watcher::Config::default(), || {}).await;
    assert_eq!(events, ["listed a", "done", "deleted a"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_delivers_nothing_and_a_new_one_does() {
    let server = server();
    let watches = server.watches(Target::resource("configmaps").in_namespace("default"));
    let version = server.version().to_string();
    let watch = config_maps(&server)
        .watch(&WatchParams::default().timeout(5), &version)
        .await
        .unwrap();
    let mut watch = std::pin::pin!(watch);
    watches.silence();
    assert_eq!(watches.count(), 1);
    server.direct().create(config_map("a")).unwrap();
    let nothing = tokio::time::timeout(Duration::from_secs(60 * 60), watch.next()).await;
    assert!(nothing.is_err());
    let watch = config_maps(&server)
        .watch(&WatchParams::default().timeout(5), &version)
        .await
        .unwrap();
    assert_eq!(watch.try_collect::<Vec<_>>().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_take_their_delay() {
    let server = server();
    server.watches(Target::all()).delay(Duration::from_secs(9));
    let version = server.version().to_string();
    let watch = config_maps(&server)
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap();
    let mut watch = std::pin::pin!(watch);
    let before = tokio::time::Instant::now();
    server.direct().create(config_map("a")).unwrap();
    assert_eq!(shown(&watch.next().await.unwrap().unwrap()), "ADDED a");
    assert_eq!(before.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute() {
    let server = server();
    let version = server.version().to_string();
    let watch = config_maps(&server)
        .watch(&WatchParams::default().timeout(150), &version)
        .await
        .unwrap();
    let events: Vec<_> = watch.try_collect().await.unwrap();
    assert_eq!(
        events.iter().map(shown).collect::<Vec<_>>(),
        ["BOOKMARK", "BOOKMARK"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_watch_can_be_answered_with_410() {
    let server = server();
    server.on(|site: &crate::Site| match site.verb {
        crate::Verb::Watch => crate::Decision::Answer(Status::expired("too old resource version")),
        _ => crate::Decision::Forward,
    });
    let watch = config_maps(&server)
        .watch(&WatchParams::default(), "1")
        .await;
    assert_eq!(failure(watch.map(|_| ())).0, 410);
}

/// Two runs of the same are the same to the last byte: the order of requests, UIDs, names and times.
#[test]
fn runs_repeat_exactly() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let server = server();
            let kubelet = server.kubelet(crate::KubeletOptions::default());
            kubelet.add_node("n1");
            for number in 0..20 {
                let mut object = pod("");
                object["metadata"] = json!({"generateName": "p-"});
                object["spec"]["restartPolicy"] = json!("Never");
                object["spec"]["activeDeadlineSeconds"] = json!(number + 1);
                server.direct().create(object).unwrap();
            }
            let act = || drop(server.direct().delete("Namespace", "", "default"));
            reported(&server, watcher::Config::default(), act).await;
            let mut text = Vec::new();
            server.history().write(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        })
    };
    assert_eq!(run(), run());
}
