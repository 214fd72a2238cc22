//! Views of watched objects, by key and by index.
//!
//! A view holds only what a reconciler uses. It keeps a spec as text, not as a tree of values. An index gives the views
//! that concern one object (the pods of one owner, of one node) without a scan of the others.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;

use super::Key;
use super::health::WatchHealth;
use super::key_map::KeyMap;
use super::queue::Queue;
use super::watch::{self, Event, Selection, Watch};

/// The views of the objects of one kind; see the module.
pub struct Cache<V> {
    state: RwLock<State<V>>,
    index: fn(&V) -> Vec<String>,
    /// How many watches fill it.
    watches: usize,
    /// The namespaces whose first list is complete; `None` stands for all namespaces.
    listed: channel::Sender<BTreeSet<Option<String>>>,
}

struct State<V> {
    views: KeyMap<Kept<V>>,
    /// Every index text and the keys under it.
    by_index: BTreeSet<(Arc<str>, Key)>,
    /// The namespace of the latest object. The objects of a namespace arrive together in a list.
    namespace: Arc<str>,
}

struct Kept<V> {
    view: Arc<V>,
    /// See [`incarnation`].
    incarnation: u64,
}

/// A hash of an object's UID and generation: it changes with the spec, and when another object takes the name.
fn incarnation(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&meta.uid, meta.generation).hash(&mut hasher);
    hasher.finish()
}

impl<V> Cache<V> {
    /// An empty cache that `watches` watches will fill, one for each API given to
    /// [`Controller::watch`](super::Controller::watch). `index` gives the texts under which [`find`](Self::find) finds
    /// a view; `|_| vec![]` for none.
    pub fn new(watches: usize, index: fn(&V) -> Vec<String>) -> Self {
        Self {
            state: RwLock::new(State {
                views: KeyMap::default(),
                by_index: BTreeSet::new(),
                namespace: "".into(),
            }),
            index,
            watches,
            listed: channel::Sender::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<V>> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<V>> {
        self.state.write()
    }

    /// The key of an object. Its text is shared with the stored key.
    fn key_of(&self, meta: &ObjectMeta) -> Key {
        let mut key = Key::of(meta);
        let mut state = self.write();
        if let Some((kept, _)) = state.views.get_key_value(&key) {
            return kept.clone();
        }
        if state.namespace == key.namespace {
            key.namespace = state.namespace.clone();
        } else {
            state.namespace = key.namespace.clone();
        }
        key
    }

    /// The view of that object.
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.read().views.get(key).map(|kept| kept.view.clone())
    }

    /// The views under that index text, in order of their keys.
    pub fn find(&self, index: &str) -> Vec<Arc<V>> {
        self.find_where(index, |_, _| true)
    }

    /// Those of them that are wanted.
    pub fn find_where(&self, index: &str, is_wanted: impl Fn(&Key, &V) -> bool) -> Vec<Arc<V>> {
        let state = self.read();
        under(&state.by_index, index)
            .filter_map(|(_, key)| Some((key, &state.views.get(key)?.view)))
            .filter(|(key, view)| is_wanted(key, view))
            .map(|(_, view)| view.clone())
            .collect()
    }

    /// The views under that index text with their keys.
    pub fn find_with_keys(&self, index: &str) -> Vec<(Key, Arc<V>)> {
        let state = self.read();
        under(&state.by_index, index)
            .filter_map(|(_, key)| Some((key.clone(), state.views.get(key)?.view.clone())))
            .collect()
    }

    /// Every view.
    pub fn all(&self) -> Vec<Arc<V>> {
        let state = self.read();
        let views = state.views.values().map(|kept| kept.view.clone());
        views.collect()
    }

    /// Whether the first list of each watch is complete.
    pub fn is_listed(&self) -> bool {
        self.listed.borrow().len() >= self.watches
    }

    /// Every key.
    pub fn keys(&self) -> Vec<Key> {
        self.read().views.keys().cloned().collect()
    }

    /// Inserts a view and returns the one before it. For tests: watches fill the cache, and remove only what they have shown.
    pub fn insert(&self, key: &Key, view: &Arc<V>) -> Option<Arc<V>> {
        let old = self.replace(&mut self.write(), key, view, 0);
        old.map(|kept| kept.view)
    }

    /// Keeps a view. Returns what is kept now and what was kept before. A view that is equal to the one before does not
    /// take its place: reconcilers may hold that one, and both would stay in memory.
    fn put(&self, key: &Key, view: V, incarnation: u64) -> (Arc<V>, Option<Kept<V>>)
    where
        V: PartialEq,
    {
        let mut state = self.write();
        if let Some(kept) = state.views.get_mut(key)
            && *kept.view == view
        {
            let view = kept.view.clone();
            let before = std::mem::replace(&mut kept.incarnation, incarnation);
            let old = Kept {
                view: view.clone(),
                incarnation: before,
            };
            return (view, Some(old));
        }
        let view = Arc::new(view);
        let old = self.replace(&mut state, key, &view, incarnation);
        (view, old)
    }

    fn replace(
        &self,
        state: &mut State<V>,
        key: &Key,
        view: &Arc<V>,
        incarnation: u64,
    ) -> Option<Kept<V>> {
        for text in (self.index)(view) {
            // All keys under it share one copy of the text.
            let kept = under(&state.by_index, &text).next();
            let kept = kept.map_or_else(|| text.as_str().into(), |(kept, _)| kept.clone());
            state.by_index.insert((kept, key.clone()));
        }
        let new = Kept {
            view: view.clone(),
            incarnation,
        };
        let old = state.views.insert(key.clone(), new);
        if let Some(old) = &old {
            let kept = (self.index)(view);
            let gone = (self.index)(&old.view)
                .into_iter()
                .filter(|t| !kept.contains(t));
            unindex(state, key, gone);
        }
        old
    }

    /// Frees memory. A list comes in order of its keys: filled so, the nodes of the tree are half full.
    fn pack(&self) {
        let mut state = self.write();
        state.by_index = std::mem::take(&mut state.by_index).into_iter().collect();
    }

    /// Removes a view and returns it.
    pub fn remove(&self, key: &Key) -> Option<Arc<V>> {
        let mut state = self.write();
        let old = state.views.remove(key)?.view;
        unindex(&mut state, key, (self.index)(&old));
        Some(old)
    }
}

/// The lists that a reconciler needs of a namespace before it works there: a [`Cache`]. Without them, existing objects
/// would look missing.
pub trait Source: Send + Sync {
    /// Waits until that namespace, or all of them, is listed completely.
    fn synced<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, ()>;
}

impl<V: Send + Sync> Source for Cache<V> {
    fn synced<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, ()> {
        async move {
            let mut listed = self.listed.subscribe();
            let is_synced = |listed: &BTreeSet<Option<String>>| {
                let is =
                    |listed: &Option<String>| listed.is_none() || listed.as_deref() == namespace;
                self.watches == 0 || listed.iter().any(is)
            };
            // The sender lives as long as the cache: this cannot fail.
            let _ = listed.wait_for(is_synced).await;
        }
        .boxed()
    }
}

/// The entries under an index text, in order of their keys.
fn under<'a>(
    by_index: &'a BTreeSet<(Arc<str>, Key)>,
    text: &str,
) -> impl Iterator<Item = &'a (Arc<str>, Key)> {
    let text: Arc<str> = text.into();
    let first = (text.clone(), Key::new("", ""));
    by_index
        .range(first..)
        .take_while(move |(found, _)| *found == text)
}

fn unindex<V>(state: &mut State<V>, key: &Key, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        state.by_index.remove(&(text.into(), key.clone()));
    }
}

/// A change that a watch brings to a cache: the object's key, the view before and the view now.
pub struct CacheEvent<'a, V> {
    /// The object.
    pub key: &'a Key,
    /// The view before; none when the object is new.
    pub old: Option<&'a V>,
    /// The view now; none when the object is gone.
    pub new: Option<&'a V>,
    /// The change was found by comparing lists after a gap in the watch, so `old` may not be the state just before it.
    pub after_relist: bool,
    /// The object is new, gone, or a new one of the same name, or its spec changed.
    pub changed: bool,
}

impl<V> CacheEvent<'_, V> {
    /// Queues the object itself. A changed spec ends the backoff: the failures were those of the old spec.
    pub fn enqueue(&self, queue: &Queue) {
        if self.changed {
            queue.add_changed(self.key.clone());
        } else {
            queue.add(self.key.clone());
        }
    }
}

/// Watches objects for ever, keeps their views in the cache and reports each change. An object for which `view` is `None` is
/// not kept, and of two views that are equal one after the other, the first is: `==` must compare all that is read.
///
/// A failing watch is retried with backoff. Meanwhile `health` shows the reason (most often a missing CRD or
/// permission), and each new reason is logged once.
pub async fn run_watch<K, V, R>(
    api: Api<K>,
    selection: Selection,
    cache: Arc<Cache<V>>,
    health: WatchHealth,
    view: impl Fn(K) -> R,
    on_event: impl Fn(&CacheEvent<'_, V>),
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
    R: Into<Option<V>>,
{
    let what = K::plural(&()).into_owned();
    let scope = api.namespace().map(str::to_owned);
    let mut health = health.of_watch::<K>(scope.as_deref());
    let filler = Filler {
        cache: &cache,
        scope,
        view,
        on_event,
    };
    let mut unlisted = HashSet::new();
    let on = |event| match event {
        Event::ListStarted => unlisted = filler.keys(),
        Event::Listed(object) => {
            unlisted.remove(&filler.put(object));
        }
        Event::ListEnded => filler.end_list(std::mem::take(&mut unlisted)),
        Event::Started => health.clear(),
        Event::Applied(object) => {
            filler.put(object);
        }
        Event::Deleted(object) => filler.remove(&Key::of(object.meta()), false),
        // For example, an API server restarts, or the CRD was deleted and created again.
        Event::Interrupted(error) => tracing::debug!(what, "watching again: {error}"),
        Event::Failed(error) => health.report(&explain(&what, &error)),
    };
    Watch::new(api, selection).run(on).await;
}

/// Fills a cache from one watch, and reports each change.
struct Filler<'a, V, F, E> {
    cache: &'a Cache<V>,
    /// The namespace of the watch; None for all.
    scope: Option<String>,
    view: F,
    on_event: E,
}

impl<V: PartialEq, F, E: Fn(&CacheEvent<'_, V>)> Filler<'_, V, F, E> {
    /// The objects that a list must show again, or they are gone. The first list, which may be of a million objects, has
    /// none to remember.
    fn keys(&self) -> HashSet<Key> {
        let scope = self.scope.as_deref();
        let mine = |key: &Key| scope.is_none_or(|namespace| *namespace == *key.namespace);
        self.cache.keys().into_iter().filter(mine).collect()
    }

    /// Keeps the view of an object, if it has one, and returns its key.
    fn put<K, R>(&self, object: K) -> Key
    where
        K: Resource<DynamicType = ()>,
        F: Fn(K) -> R,
        R: Into<Option<V>>,
    {
        let key = self.cache.key_of(object.meta());
        let incarnation = incarnation(object.meta());
        let view: Option<V> = (self.view)(object).into();
        let Some(view) = view else {
            self.remove(&key, false);
            return key;
        };
        let (new, old) = self.cache.put(&key, view, incarnation);
        let before = old.as_ref().map(|old| old.incarnation);
        (self.on_event)(&CacheEvent {
            key: &key,
            old: old.as_ref().map(|old| &*old.view),
            new: Some(&new),
            after_relist: false,
            changed: before != Some(incarnation),
        });
        key
    }

    fn remove(&self, key: &Key, after_relist: bool) {
        if let Some(old) = self.cache.remove(key) {
            (self.on_event)(&CacheEvent {
                key,
                old: Some(&old),
                new: None,
                after_relist,
                changed: true,
            });
        }
    }

    /// The list is complete: what was there before and is not in it was deleted while nothing was watched.
    fn end_list(&self, unlisted: HashSet<Key>) {
        for key in unlisted {
            self.remove(&key, true);
        }
        let is_first = self
            .cache
            .listed
            .send_if_modified(|all| all.insert(self.scope.clone()));
        if is_first && self.cache.is_listed() {
            self.cache.pack();
        }
    }
}

/// A watch's error as one line that says what to do.
fn explain(what: &str, error: &watch::Error) -> String {
    match error.status() {
        // The API server answers for a path that it does not serve without a Status, so with a code and no reason.
        Some(status) if status.code == 404 => {
            format!("the CRD of {what} is not installed (see config/crd); waiting for it")
        }
        Some(status) if status.code == 403 => {
            format!("not allowed to list and watch {what}: {}", status.message)
        }
        // The API server names versions, so that its words differ each time.
        Some(status) if status.code == 410 => format!(
            "cannot watch {what}: the API server no longer has the changes since the list (410)"
        ),
        _ => format!("cannot watch {what}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use simulated_apiserver::{Decision, Options, Server, Site, Status, Target, Verb};

    use super::*;
    use crate::reconcile::health::Health;
    use crate::reconcile::metrics::Metrics;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    // An index function gets a view, here a `String`.
    #[allow(clippy::ptr_arg)]
    fn words(text: &String) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn found(cache: &Cache<String>, index: &str) -> Vec<String> {
        cache
            .find(index)
            .iter()
            .map(|v| v.as_ref().clone())
            .collect()
    }

    #[test]
    fn views_are_found_under_their_present_index_texts_only() {
        let cache = Cache::new(0, words);
        cache.insert(&key("1"), &Arc::new("red round".to_owned()));
        cache.insert(&key("2"), &Arc::new("red square".to_owned()));
        assert_eq!(found(&cache, "red"), ["red round", "red square"]);
        cache.insert(&key("1"), &Arc::new("blue round".to_owned()));
        assert_eq!(found(&cache, "red"), ["red square"]);
        assert_eq!(found(&cache, "round"), ["blue round"]);
        cache.remove(&key("1"));
        assert!(found(&cache, "round").is_empty() && found(&cache, "blue").is_empty());
        assert!(cache.get(&key("1")).is_none() && cache.get(&key("2")).is_some());
    }

    #[test]
    fn an_equal_view_does_not_take_the_place_of_the_one_before() {
        let cache = Cache::new(1, words);
        let put = |text: &str, incarnation| {
            let (view, old) = cache.put(&key("1"), text.to_owned(), incarnation);
            assert!(Arc::ptr_eq(&view, &cache.get(&key("1")).unwrap()));
            (view, old.map(|old| (old.view, old.incarnation)))
        };
        let (first, none) = put("red", 1);
        assert_eq!(none, None);
        let (again, old) = put("red", 2);
        assert!(Arc::ptr_eq(&again, &first));
        assert_eq!(old, Some((first, 1)));
        assert_eq!(found(&cache, "red"), ["red"]);
        assert_eq!(put("blue", 3).1, Some((again, 2)));
        assert!(found(&cache, "red").is_empty());
    }

    #[test]
    fn another_object_of_the_name_is_a_change_although_its_view_is_equal() {
        let cache = Cache::<String>::new(1, words);
        let changes = parking_lot::Mutex::new(Vec::new());
        let filler = Filler {
            cache: &cache,
            scope: None,
            view: |_: ConfigMap| String::new(),
            on_event: |event: &CacheEvent<'_, String>| changes.lock().push(event.changed),
        };
        for uid in ["a", "a", "b", "b"] {
            let mut object = ConfigMap::default();
            object.metadata.uid = Some(uid.to_owned());
            filler.put(object);
        }
        assert_eq!(*changes.lock(), [true, false, true, false]);
    }

    #[test]
    fn keys_share_their_text() {
        let cache: Cache<()> = Cache::new(0, |()| Vec::new());
        let of = |name: &str| {
            cache.key_of(&ObjectMeta {
                namespace: Some("ns".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            })
        };
        let (first, other) = (of("1"), of("2"));
        assert!(Arc::ptr_eq(&first.namespace, &other.namespace));
        cache.insert(&first, &Arc::new(()));
        assert!(Arc::ptr_eq(&first.name, &of("1").name));
    }

    #[test]
    fn a_first_list_remembers_no_object_and_a_later_one_those_of_its_namespace() {
        let cache: Cache<String> = Cache::new(1, words);
        let filler = |scope: Option<&str>| Filler {
            cache: &cache,
            scope: scope.map(str::to_owned),
            view: (),
            on_event: |_: &CacheEvent<'_, String>| {},
        };
        let all = filler(None);
        assert_eq!(all.keys().capacity(), 0);
        for place in [key("1"), Key::new("other", "2")] {
            cache.insert(&place, &Arc::new(String::new()));
        }
        assert_eq!(all.keys().len(), 2);
        assert_eq!(filler(Some("ns")).keys(), [key("1")].into());
        all.end_list(all.keys());
        assert!(cache.keys().is_empty());
    }

    #[tokio::test]
    async fn a_cache_without_watches_is_synced() {
        let cache = Cache::<String>::new(0, words);
        cache.synced(None).await;
        cache.synced(Some("ns")).await;
    }

    /// Watches the ConfigMaps of that server. Returns how many problems are shown, and how many watches fail.
    fn watched(server: &Server) -> impl Fn() -> (usize, i64) + use<> {
        let api = Api::<ConfigMap>::all(server.client("operator"));
        let (health, metrics) = (
            Health::default(),
            Metrics::new(&mut Registry::default(), "test"),
        );
        let watch = WatchHealth::new(health.clone(), metrics.clone());
        let cache = Arc::new(Cache::new(1, |()| Vec::new()));
        tokio::spawn(run_watch(
            api,
            Selection::default(),
            cache,
            watch,
            |_| (),
            |_| (),
        ));
        let figure = metrics.watch_failing("configmaps", "");
        move || (health.problems().len(), figure.get())
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_has_a_view_is_kept() {
        let server = Server::new(Options::default());
        for metadata in [
            json!({"name": "plain"}),
            json!({"name": "noted", "annotations": {"note": "1"}}),
        ] {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            server.direct().create(object).unwrap();
        }
        let cache = Arc::new(Cache::<String>::new(1, |_| Vec::new()));
        let events = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let log = events.clone();
        let note = |object: ConfigMap| object.metadata.annotations?.remove("note");
        assert!(!cache.is_listed());
        tokio::spawn(run_watch(
            Api::<ConfigMap>::all(server.client("operator")),
            Selection::default(),
            cache.clone(),
            WatchHealth::new(
                Health::default(),
                Metrics::new(&mut Registry::default(), "test"),
            ),
            note,
            move |event: &CacheEvent<'_, String>| {
                let text = format!("{} {:?} {:?}", event.key.name, event.old, event.new);
                log.lock().push(text);
            },
        ));
        cache.synced(None).await;
        assert!(cache.is_listed());
        assert_eq!(cache.keys(), [Key::new("default", "noted")]);
        let change = |name: &str, note: Option<&str>| {
            let change = json!({"metadata": {"annotations": {"note": note}}});
            let objects = server.direct();
            objects
                .patch("configmaps", "default", name, &change)
                .unwrap();
        };
        change("noted", None);
        change("plain", Some("2"));
        change("plain", Some("3"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            *events.lock(),
            [
                "noted None Some(\"1\")",
                "noted Some(\"1\") None",
                "plain None Some(\"2\")",
                "plain Some(\"2\") Some(\"3\")"
            ]
        );
        assert_eq!(cache.keys(), [Key::new("default", "plain")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_works_again_when_it_was_answered_and_not_before() {
        let server = Server::new(Options::default());
        server.on(|site: &Site| match (site.verb, site.nth) {
            (Verb::List, 0) => Decision::Answer(Status::internal_error("no")),
            // The second list is answered, and eight attempts to watch hang.
            (Verb::Watch, ..8) => Decision::Silent,
            _ => Decision::Forward,
        });
        let state = watched(&server);
        assert_eq!(state(), (0, 0));
        // Each of the eight takes 15 s and is followed by a pause of 5 s at most.
        for _ in 0..120 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(state(), (1, 1));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(state(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_always_answered_and_then_breaks_is_reported_until_something_comes() {
        for fault in ["410", "reset", "end"] {
            let server = Server::new(Options::default());
            let config_map =
                |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            server.direct().create(config_map("a")).unwrap();
            server.on(move |site: &Site| match site.verb {
                // Its version is too old by the time the watch begins.
                Verb::Watch if fault == "410" => Decision::Meanwhile(Box::new(|server| {
                    let secret = json!({"apiVersion": "v1", "kind": "Secret",
                        "metadata": {"generateName": "a-"}});
                    server.direct().create(secret).unwrap();
                    server.compact(server.version());
                })),
                _ => Decision::Forward,
            });
            let state = watched(&server);
            // Once is ordinary: an API server restarts, or a CRD is deleted and created again.
            for tenths in 0..6_000 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                match fault {
                    "reset" => server.watches(Target::all()).reset(),
                    "end" => server.watches(Target::all()).cut(),
                    _ => {}
                }
                match tenths {
                    ..8 => assert_eq!(state(), (0, 0), "{fault}"),
                    30.. => assert_eq!(state(), (1, 1), "{fault} after {tenths} tenths"),
                    _ => {}
                }
            }
            // An answer proves nothing, and an event does.
            server.on(|_: &Site| Decision::Forward);
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(state(), (1, 1), "{fault}");
            server.direct().create(config_map("b")).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(state(), (0, 0), "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_watches_of_one_resource_are_shown_until_both_work() {
        let (health, metrics) = (
            Health::default(),
            Metrics::new(&mut Registry::default(), "test"),
        );
        let watch =
            || WatchHealth::new(health.clone(), metrics.clone()).of_watch::<ConfigMap>(None);
        let (mut of_one_kind, mut of_another) = (watch(), watch());
        of_one_kind.report("no");
        of_another.report("no");
        of_one_kind.clear();
        assert_eq!(health.problems().len(), 1);
        of_another.clear();
        assert_eq!(health.problems().len(), 0);
        of_one_kind.report("no");
        of_another.report("no");
        drop(of_one_kind);
        assert_eq!(health.problems().len(), 1);
    }
}
