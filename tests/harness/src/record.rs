//! A record of every event of the objects of an API, without a gap.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::TIMEOUT;

/// What one watch event reported.
#[derive(Clone, Debug)]
pub struct Event<K> {
    pub object: K,
    /// This event is the deletion of the object.
    pub gone: bool,
    /// The version that the event made. All objects of a cluster share one sequence of them.
    pub version: u64,
    /// When the event was read here.
    pub seen: DateTime<Utc>,
}

type Events<K> = Arc<Mutex<Vec<Event<K>>>>;

/// Records every event from its start on.
pub struct Record<K> {
    events: Events<K>,
    task: JoinHandle<()>,
}

impl<K> Drop for Record<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Record<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Starts to record. No event after this call is missed: the watch begins at a version that is
    /// taken here, and goes on from the last event when the API server ends it. If the API server has
    /// compacted that version by then, the record has a gap, and [`Record::reach`] panics.
    pub async fn start(api: Api<K>) -> Self {
        let mut list = api.list(&ListParams::default()).await.unwrap();
        list.items.sort_by_key(version);
        let events = Events::default();
        for object in list.items {
            note(&events, object, false);
        }
        let begin = list.metadata.resource_version.unwrap();
        let task = tokio::spawn(follow(api, begin, Arc::clone(&events)));
        Self { events, task }
    }

    /// Waits until the event that made this version is in the record, and so every one before it.
    pub async fn reach(&self, version: u64) {
        let come = super::try_wait(TIMEOUT, async || {
            assert!(!self.task.is_finished(), "the record has a hole");
            let last = self.look(|events| events.last().map(|e| e.version));
            last.is_some_and(|last| last >= version).then_some(())
        });
        assert!(come.await.is_some(), "the recorder lags behind");
    }

    /// Passes on all events up to now, in their order.
    pub fn look<T>(&self, look: impl FnOnce(&[Event<K>]) -> T) -> T {
        look(&self.events.lock().unwrap())
    }
}

/// The version of an object as the number that it is.
pub fn version(object: &impl Resource) -> u64 {
    number(&object.meta().resource_version.clone().unwrap())
}

/// A version as the number that it is.
pub fn number(version: &str) -> u64 {
    version.parse().unwrap()
}

fn note<K: Resource>(events: &Events<K>, object: K, gone: bool) {
    let event = Event {
        version: version(&object),
        object,
        gone,
        seen: Utc::now(),
    };
    events.lock().unwrap().push(event);
}

async fn follow<K>(api: Api<K>, mut version: String, events: Events<K>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let params = WatchParams::default();
    loop {
        // The API server may be busy or ending a watch; what counts is that nothing is left out.
        let Ok(watch) = api.watch(&params, &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut watch = std::pin::pin!(watch);
        while let Some(Ok(event)) = watch.next().await {
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                // 410 Gone: what lies between is lost.
                WatchEvent::Error(status) => panic!("the watch cannot go on: {status:?}"),
            };
            version = object.resource_version().unwrap();
            note(&events, object, gone);
        }
    }
}
