//! Ticks when one object may have changed.

use std::fmt::Debug;

use futures::stream::{BoxStream, StreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Ticks whenever the object of that name may have changed. Watch errors are not ticks: the caller polls anyway.
pub(super) fn changes<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let tick = match event {
                Ok(
                    watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone,
                ) => Some(()),
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(%error, name, "watching failed");
                    None
                }
            };
            async move { tick }
        })
        .boxed()
}
