//! The skeleton of a controller: watches that fill caches and a queue, and workers that take keys from it.
//!
//! ```text
//! let controller = Controller::new("foo", &context);
//! let reconciler = Arc::new(FooReconciler { queue: controller.queue(), caches });
//! controller
//!     .watch(foos, selection, &reconciler.caches.foos, view, on_event)
//!     .watch(deployments, selection, &reconciler.caches.deployments, view, on_event)
//!     .run(reconciler)
//!     .await
//! ```

use std::fmt::Debug;
use std::sync::Arc;

use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::cache::{Cache, CacheEvent, Source, run_watch};
use super::queue::Queue;
use super::runner::{self, Context, Reconciler};
use super::watch::Selection;

/// A controller that is being put together; see the module.
pub struct Controller {
    name: &'static str,
    context: Context,
    queue: Arc<Queue>,
    watches: JoinSet<()>,
    /// What must be listed in a namespace before work begins there.
    sources: Vec<Arc<dyn Source>>,
}

impl Controller {
    /// A controller without watches. `name` is shown in logs and metrics.
    pub fn new(name: &'static str, context: &Context) -> Self {
        Self {
            name,
            queue: context.queue(name),
            context: context.clone(),
            watches: JoinSet::new(),
            sources: Vec::new(),
        }
    }

    /// The keys to reconcile. Watches add to it, and a reconciler may, too.
    pub fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    /// Starts a watch on each of the APIs (one for each namespace to work in). All of them fill the cache with views,
    /// and `on_event` is called for each change, with the view before and after. An object for which `view` is `None`, or
    /// that is of another [`Shard`](super::Shard), is not kept. A view that is equal to the one before does not take its
    /// place: `==` must compare all that is read.
    #[must_use]
    pub fn watch<K, V, R, F, G>(
        mut self,
        apis: Vec<Api<K>>,
        selection: &Selection,
        cache: &Arc<Cache<V>>,
        view: F,
        on_event: G,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        V: PartialEq + Send + Sync + 'static,
        R: Into<Option<V>> + 'static,
        F: Fn(K) -> R + Clone + Send + Sync + 'static,
        G: Fn(&CacheEvent<'_, V>) + Clone + Send + Sync + 'static,
    {
        for api in apis {
            let health = self.context.watch_health();
            let (view, on_event, shard) = (view.clone(), on_event.clone(), self.context.shard);
            let view = move |object: K| {
                let namespace = object.meta().namespace.as_deref();
                let is_ours = shard.has(namespace.unwrap_or_default());
                is_ours.then(|| view(object).into()).flatten()
            };
            let (selection, cache) = (selection.clone(), cache.clone());
            self.watches
                .spawn(run_watch(api, selection, cache, health, view, on_event));
        }
        self.sources.push(cache.clone());
        self
    }

    /// Work begins without the lists of the last watch.
    #[must_use]
    pub fn unawaited(mut self) -> Self {
        self.sources.pop();
        self
    }

    /// Reconciles until the context is stopped. Workers then finish their current keys, and the watches are dropped.
    ///
    /// # Errors
    /// When a watch or a worker ends before the stop, which is a bug.
    pub async fn run<R: Reconciler>(mut self, reconciler: Arc<R>) -> anyhow::Result<()> {
        let sources: Vec<&dyn Source> = self.sources.iter().map(|source| &**source).collect();
        let workers = runner::run(self.name, reconciler, self.queue, &self.context, &sources);
        tokio::select! {
            ended = workers => ended,
            // Watches never end by themselves.
            Some(ended) = self.watches.join_next() => {
                ended?;
                anyhow::bail!("a watch ended by itself")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use serde_json::json;
    use simulated_apiserver::{Options, Server};

    use super::*;
    use crate::reconcile::Shard;

    /// What a controller of that shard keeps: the namespaces of ConfigMaps, and the names of cluster-scoped objects.
    async fn kept(server: &Server, shard: Shard) -> [Vec<String>; 2] {
        let clock = Arc::new(|| chrono::DateTime::from(std::time::UNIX_EPOCH));
        let (mut context, _) = Context::new(server.client("operator"), clock, "my-program");
        context.shard = shard;
        let caches = [1, 1].map(|watches| Arc::new(Cache::new(watches, |()| Vec::new())));
        let [namespaced, cluster_scoped] = &caches;
        let all = Selection::default();
        let everywhere = vec![Api::<Namespace>::all(context.client.clone())];
        let _watching = Controller::new("test", &context)
            .watch(
                context.apis::<ConfigMap>(),
                &all,
                namespaced,
                |_| (),
                |_| {},
            )
            .watch(everywhere, &all, cluster_scoped, |_| (), |_| {});
        for cache in &caches {
            cache.synced(None).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sorted = |mut texts: Vec<String>| {
            texts.sort();
            texts
        };
        let of = namespaced
            .keys()
            .into_iter()
            .map(|key| key.namespace.to_string());
        let names = cluster_scoped
            .keys()
            .into_iter()
            .map(|key| key.name.to_string());
        [sorted(of.collect()), sorted(names.collect())]
    }

    #[tokio::test(start_paused = true)]
    async fn each_namespaced_object_is_kept_by_one_shard_and_cluster_scoped_ones_by_all() {
        let namespaces: Vec<String> = (1..=8).map(|number| format!("team-{number}")).collect();
        let server = Server::new(Options {
            namespaces: namespaces.clone(),
            ..Options::default()
        });
        for namespace in &namespaces {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": namespace}});
            server.direct().create(object).unwrap();
        }
        let mut all = Vec::new();
        for shard in Shard::all(3) {
            let [ours, everywhere] = kept(&server, shard).await;
            assert!(
                ours.iter().all(|namespace| shard.has(namespace)),
                "{ours:?}"
            );
            assert!(
                namespaces.iter().all(|name| everywhere.contains(name)),
                "{everywhere:?}"
            );
            all.extend(ours);
        }
        all.sort();
        assert_eq!(all, namespaces);
    }
}
