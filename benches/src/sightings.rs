//! When something was first seen by a watch of the bench's own.

use std::collections::HashSet;

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::plane::{PODS, Plane, Stored, StoredMeta, TIMEOUT};

/// The part of a pod that is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    metadata: StoredMeta,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    scheduling_gates: Vec<IgnoredAny>,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Pod {
    /// Whether nothing keeps it from being scheduled.
    pub(crate) fn is_released(&self) -> bool {
        self.spec.scheduling_gates.is_empty()
    }

    /// Whether it has a node.
    pub(crate) fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// Whether it serves.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = |c: &Condition| c.type_ == "Ready" && c.status == "True";
        self.status.conditions.iter().any(ready)
    }

    /// Whether it runs that image.
    pub(crate) fn runs(&self, image: &str) -> bool {
        self.spec.containers.iter().any(|c| c.image == image)
    }
}

/// A condition on a pod.
pub(crate) type Predicate = fn(&Pod) -> bool;

/// When each pod was first seen to meet each condition.
pub(crate) struct Sightings<const N: usize> {
    seen: watch::Receiver<[Vec<DateTime<Utc>>; N]>,
    task: JoinHandle<Result<()>>,
    count: usize,
}

impl<const N: usize> Sightings<N> {
    /// All sightings, in order, for each condition.
    pub(crate) async fn all(mut self) -> Result<[Vec<DateTime<Utc>>; N]> {
        let full = |seen: &[Vec<_>; N]| seen.iter().all(|seen| seen.len() >= self.count);
        let ended = tokio::time::timeout(TIMEOUT, self.seen.wait_for(full)).await;
        let ended = ended.is_ok_and(|ended| ended.is_ok());
        let seen = self.seen.borrow().clone();
        let so_far: Vec<usize> = seen.iter().map(Vec::len).collect();
        ensure!(ended, "{so_far:?} of {} pods were seen", self.count);
        self.task.await??;
        Ok(seen)
    }

    /// How many pods have met the first condition so far.
    pub(crate) fn so_far(&self) -> usize {
        self.seen.borrow().first().map_or(0, Vec::len)
    }
}

impl Plane {
    /// Watches pods from now on, until that many have met each condition.
    pub(crate) async fn watch_pods<const N: usize>(
        &self,
        count: usize,
        conditions: [Predicate; N],
    ) -> Result<Sightings<N>> {
        let list: Stored = self.get(&format!("{PODS}?limit=1")).await?;
        let from = list.metadata.resource_version;
        let (sender, seen) = watch::channel([const { Vec::new() }; N]);
        let client = self.client.clone();
        let task = tokio::spawn(async move {
            let mut known = [(); N].map(|()| HashSet::new());
            let version = |pod: &Pod| pod.metadata.resource_version.clone();
            let pods = follow(client, format!("{PODS}?"), from, version);
            futures::pin_mut!(pods);
            while let Some(pod) = pods.try_next().await? {
                let now = Utc::now();
                for (i, condition) in conditions.iter().enumerate() {
                    if condition(&pod) && known[i].insert(pod.metadata.uid.clone()) {
                        sender.send_modify(|seen| seen[i].push(now));
                    }
                }
                if known.iter().all(|known| known.len() >= count) {
                    return Ok(());
                }
            }
            bail!("the watch of pods ended")
        });
        Ok(Sightings { seen, task, count })
    }

    /// Watches one object of that folder of the API from now on, until it is seen to be so.
    pub(crate) async fn watch_one(
        &self,
        folder: &str,
        name: &str,
        so: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Result<JoinHandle<Result<DateTime<Utc>>>> {
        let there: Stored = self.get(&format!("{folder}?limit=1")).await?;
        let from = there.metadata.resource_version;
        let path = format!("{folder}?fieldSelector=metadata.name={name}&");
        let client = self.client.clone();
        Ok(tokio::spawn(async move {
            let version = |object: &Value| {
                let version = object["metadata"]["resourceVersion"].as_str();
                version.unwrap_or_default().to_owned()
            };
            let objects = follow(client, path, from, version);
            futures::pin_mut!(objects);
            let seen = async {
                while let Some(object) = objects.try_next().await? {
                    if so(&object) {
                        return Ok(Utc::now());
                    }
                }
                bail!("the watch ended")
            };
            let seen = tokio::time::timeout(TIMEOUT, seen).await;
            seen.context("the status does not become right")?
        }))
    }
}

/// The objects of a watch as they come, for ever.
fn follow<T: DeserializeOwned + Clone + Send + 'static>(
    client: Client,
    path: String,
    from: String,
    version_of: fn(&T) -> String,
) -> impl Stream<Item = Result<T>> {
    let again = move |from: String| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let request = Request::get(format!(
                "{path}watch=true&timeoutSeconds=280&resourceVersion={from}"
            ));
            let events = client
                .request_events::<T>(request.body(Vec::new())?)
                .await?;
            anyhow::Ok(events.boxed())
        }
    };
    let begin = (from, None);
    futures::stream::try_unfold(begin, move |(mut version, mut events)| {
        let again = again.clone();
        async move {
            loop {
                let mut stream = match events.take() {
                    Some(stream) => stream,
                    None => again(version.clone()).await?,
                };
                match stream.try_next().await? {
                    Some(
                        WatchEvent::Added(object)
                        | WatchEvent::Modified(object)
                        | WatchEvent::Deleted(object),
                    ) => {
                        version = version_of(&object);
                        return Ok(Some((object, (version, Some(stream)))));
                    }
                    Some(WatchEvent::Bookmark(_)) => events = Some(stream),
                    Some(WatchEvent::Error(status)) => bail!("a watch failed: {}", status.message),
                    None => {}
                }
            }
        }
    })
}
