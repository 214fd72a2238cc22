//! Reads and waits inside this process: one client per control plane, discovery as kubectl does it, and JSONPath.
//!
//! A kubectl process costs about 0.1 s of processor time, and a test run made some 9,000 of them only to read one
//! field. They slowed down the very operator that the tests waited for.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use jsonpath_rust::JsonPath as _;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use my_operator_cluster::Cluster;
use serde_json::Value;
use tokio::sync::{OnceCell, RwLock};
use tokio_util::task::AbortOnDropHandle;

/// Clients live here, and not in the runtime of the test that makes one first: its connections would end with it.
static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("reads")
        .enable_all()
        .build()
        .unwrap()
});

/// Runs a future on the runtime of the clients. It ends when the caller's future is dropped.
async fn in_background<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    match AbortOnDropHandle::new(RUNTIME.spawn(future)).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// What `kubectl api-resources` shows of one resource.
#[derive(Clone, Debug)]
struct Resource {
    api: ApiResource,
    namespaced: bool,
    /// Singular name and short names, besides plural and kind.
    names: Vec<String>,
}

impl Resource {
    /// Whether kubectl would take `word` for it: by plural, singular, kind or short name, with or without the group.
    fn is(&self, word: &str) -> bool {
        let (name, group) = word.split_once('.').unwrap_or((word, ""));
        let named = self.api.plural == name
            || self.api.kind.eq_ignore_ascii_case(name)
            || self.names.iter().any(|other| other == name);
        named && (group.is_empty() || self.api.group.starts_with(group))
    }
}

/// One control plane, as it is read by the tests.
pub(crate) struct Reader {
    client: Client,
    resources: RwLock<Vec<Resource>>,
}

/// The reader of a control plane: one for all tests.
pub(crate) async fn reader(cluster: &'static Cluster) -> Arc<Reader> {
    type Cell = Arc<OnceCell<Arc<Reader>>>;
    static READERS: LazyLock<Mutex<HashMap<PathBuf, Cell>>> = LazyLock::new(Mutex::default);
    let path = cluster.kubeconfig().to_owned();
    let cell = {
        let mut readers = READERS.lock().unwrap();
        Arc::clone(readers.entry(path).or_default())
    };
    let make = || in_background(async move { Arc::new(Reader::new(cluster).await) });
    Arc::clone(cell.get_or_init(make).await)
}

/// Objects of one kind: one by name, or all of a namespace, or those with certain labels.
#[derive(Clone)]
pub(crate) struct Target {
    api: Api<DynamicObject>,
    name: Option<String>,
    labels: Option<String>,
}

impl Reader {
    async fn new(cluster: &Cluster) -> Self {
        Self {
            client: cluster.client().await.unwrap(),
            resources: RwLock::default(),
        }
    }

    /// Finds `kind/name`, `kind` or `kind -l selector` in a namespace.
    ///
    /// # Panics
    ///
    /// Panics if the API server has no such kind.
    pub(crate) async fn target(self: &Arc<Self>, object: &str, namespace: &str) -> Target {
        let (object, labels) = match object.split_once(" -l ") {
            Some((object, labels)) => (object, Some(labels.to_owned())),
            None => (object, None),
        };
        let (kind, name) = match object.split_once('/') {
            Some((kind, name)) => (kind.to_owned(), Some(name.to_owned())),
            None => (object.to_owned(), None),
        };
        // A name with a blank would be no object's, and so always absent.
        assert!(!object.contains(' '), "{object:?}");
        let this = Arc::clone(self);
        let resource = in_background(async move { this.resource(&kind).await }).await;
        let client = self.client.clone();
        let api = if resource.namespaced {
            Api::namespaced_with(client, namespace, &resource.api)
        } else {
            Api::all_with(client, &resource.api)
        };
        Target { api, name, labels }
    }

    /// What `kubectl get --raw PATH` prints.
    pub(crate) async fn raw(self: &Arc<Self>, path: &str) -> String {
        let this = Arc::clone(self);
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let text = in_background(async move { this.client.request_text(request).await }).await;
        text.unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
    }

    async fn resource(&self, kind: &str) -> Resource {
        let known = |all: &[Resource]| all.iter().find(|resource| resource.is(kind)).cloned();
        if let Some(found) = known(&self.resources.read().await) {
            return found;
        }
        // A CRD may have been installed since. The API server shows a new one a moment after it is Established.
        for _ in 0..50 {
            *self.resources.write().await = self.discover().await;
            if let Some(found) = known(&self.resources.read().await) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the API server has no resource {kind:?}");
    }

    async fn discover(&self) -> Vec<Resource> {
        let core = self.client.list_core_api_versions_aggregated().await;
        let groups = self.client.list_api_groups_aggregated().await;
        // The caller tries again.
        let (Ok(core), Ok(groups)) = (core, groups) else {
            return Vec::new();
        };
        let all = [core.items, groups.items].concat();
        let mut resources = Vec::new();
        for group in all {
            let name = group.metadata.and_then(|m| m.name).unwrap_or_default();
            // The first version is the preferred one.
            let Some(version) = group.versions.into_iter().next() else {
                continue;
            };
            let version_name = version.version.unwrap_or_default();
            for resource in version.resources {
                let kind = resource.response_kind.and_then(|kind| kind.kind);
                let (Some(plural), Some(kind)) = (resource.resource, kind) else {
                    continue;
                };
                let gvk = GroupVersionKind::gvk(&name, &version_name, &kind);
                let mut names = resource.short_names;
                names.extend(resource.singular_resource);
                resources.push(Resource {
                    api: ApiResource::from_gvk_with_plural(&gvk, &plural),
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                    names,
                });
            }
        }
        resources
    }
}

impl Target {
    /// The object, or for a kind the list of all its objects as `kubectl get -o json` shows it. `None` when there is no
    /// such object.
    ///
    /// # Panics
    ///
    /// Panics if the read fails: what cannot be read is not absent.
    pub(crate) async fn get(&self) -> Option<Value> {
        let this = self.clone();
        let found = in_background(async move {
            if let Some(name) = &this.name {
                return this.api.get_opt(name).await.map(|found| found.map(json));
            }
            let params = ListParams {
                label_selector: this.labels.clone(),
                ..ListParams::default()
            };
            let list = this.api.list(&params).await;
            list.map(|list| Some(as_list(list.items)))
        })
        .await;
        found.unwrap_or_else(|error| panic!("cannot read {}: {error}", self.describe()))
    }

    /// Creates an object; only for show, where `dry_run` is set. The error is the API server's message.
    pub(crate) async fn create(&self, object: Value, dry_run: bool) -> Result<Value, String> {
        let this = self.clone();
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let created = in_background(async move { this.api.create(&params, &object).await }).await;
        created.map(json).map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }

    /// Deletes the object, which must be there.
    pub(crate) async fn delete(&self) {
        let this = self.clone();
        let name = this.name.clone().unwrap();
        let params = DeleteParams::default();
        let deleted = in_background(async move { this.api.delete(&name, &params).await }).await;
        deleted.unwrap_or_else(|error| panic!("cannot delete {}: {error}", self.describe()));
    }

    /// Watches until `done` returns something for the object, `None` when there is no such object, or the list of all
    /// objects. Returns `Err` with what it saw last when the timeout has passed.
    pub(crate) async fn watch<T>(
        &self,
        timeout: Duration,
        mut done: impl FnMut(Option<&Value>) -> Option<T>,
    ) -> Result<T, Option<Value>> {
        let mut last = None;
        let (sender, mut states) = tokio::sync::mpsc::unbounded_channel();
        let this = self.clone();
        let watch = RUNTIME.spawn(async move {
            let mut states = pin!(this.states());
            while let Some(state) = states.next().await {
                if sender.send(state).is_err() {
                    break;
                }
            }
        });
        let _watch = AbortOnDropHandle::new(watch);
        let wait = async {
            loop {
                last = states.recv().await.expect("the watch goes on for ever");
                if let Some(found) = done(last.as_ref()) {
                    return found;
                }
            }
        };
        let found = tokio::time::timeout(timeout, wait).await;
        found.map_err(|_| last)
    }

    /// Notices every change of the target from now on.
    pub(crate) fn changes(self) -> Changes {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let watch = RUNTIME.spawn(async move {
            let mut states = pin!(self.states());
            while states.next().await.is_some() && sender.send(()).is_ok() {}
        });
        Changes {
            receiver,
            _watch: AbortOnDropHandle::new(watch),
        }
    }

    /// Every state of the target, beginning with the present one.
    fn states(&self) -> impl futures::Stream<Item = Option<Value>> + use<> {
        let mut config = watcher::Config::default();
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        let single = self.name.is_some();
        let mut objects: HashMap<String, DynamicObject> = HashMap::new();
        let mut listing = false;
        // A broken watch is started again; the timeout of the wait bounds how often.
        let events = watcher(self.api.clone(), config).default_backoff();
        events.filter_map(move |event| {
            let key = |object: &DynamicObject| object.metadata.uid.clone().unwrap_or_default();
            match event {
                Ok(Event::Init) => {
                    objects.clear();
                    listing = true;
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    objects.insert(key(&object), object);
                }
                Ok(Event::Delete(object)) => {
                    objects.remove(&key(&object));
                }
                Ok(Event::InitDone) => listing = false,
                Err(_) => return std::future::ready(None),
            }
            let state = (!listing).then(|| {
                if single {
                    objects.values().next().cloned().map(json)
                } else {
                    Some(as_list(objects.values().cloned().collect()))
                }
            });
            std::future::ready(state)
        })
    }

    fn describe(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        format!("{}/{name}", self.api.resource_url())
    }
}

/// Changes of some objects. The first comes with the state that they have when the watch begins.
pub struct Changes {
    receiver: tokio::sync::mpsc::UnboundedReceiver<()>,
    _watch: AbortOnDropHandle<()>,
}

impl Changes {
    /// Waits for a change that has not been noticed before.
    pub async fn next(&mut self) {
        self.receiver.recv().await;
        while self.receiver.try_recv().is_ok() {}
    }
}

fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap()
}

/// The objects as a list, in the order of their names.
fn as_list(mut objects: Vec<DynamicObject>) -> Value {
    objects.sort_by(|a, b| {
        let name = |o: &DynamicObject| (o.metadata.namespace.clone(), o.metadata.name.clone());
        name(a).cmp(&name(b))
    });
    let items: Vec<Value> = objects.into_iter().map(json).collect();
    serde_json::json!({"kind": "List", "items": items})
}

/// What `kubectl -o jsonpath=TEMPLATE` prints of an object, or the expression that matches nothing: kubectl prints
/// nothing for that, so that a typo would pass for an absent field.
pub(crate) fn print(object: &Value, template: &str) -> Result<String, String> {
    print_with(object, template, &|path| Err(path.to_owned()))
}

/// The same, where an expression that matches nothing prints nothing.
pub(crate) fn print_if_any(object: &Value, template: &str) -> String {
    print_with(object, template, &|_| Ok(String::new())).unwrap()
}

type Missing<'a> = &'a dyn Fn(&str) -> Result<String, String>;

fn print_with(object: &Value, template: &str, missing: Missing<'_>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('{') {
        text += literal;
        let (path, after) = after.split_once('}').expect("an expression ends with }");
        rest = after;
        let matches = object
            .query(&rfc9535(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        if matches.is_empty() {
            text += &missing(path)?;
            continue;
        }
        let words: Vec<String> = matches.iter().map(|value| word(value)).collect();
        text += &words.join(" ");
    }
    Ok(text + rest)
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// kubectl's dialect of JSONPath (`.metadata.annotations.example\.com/note`) as RFC 9535 has it
/// (`$['metadata']['annotations']['example.com/note']`).
fn rfc9535(path: &str) -> String {
    let mut out = "$".to_owned();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            let end = rest.find(']').expect("a bracket ends with ]") + 1;
            out += &rest[..end];
            rest = &rest[end..];
        } else if rest.starts_with("..") {
            out += "..";
            let end = rest[2..].find(['.', '[']).map_or(rest.len(), |n| n + 2);
            out += &rest[2..end];
            rest = &rest[end..];
        } else {
            assert_eq!(first, '.', "{path}");
            let mut name = String::new();
            let mut chars = rest[1..].char_indices();
            let mut end = rest.len();
            while let Some((at, letter)) = chars.next() {
                match letter {
                    '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                    '.' | '[' => {
                        end = at + 1;
                        break;
                    }
                    _ => name.push(letter),
                }
            }
            out.push_str("['");
            out.push_str(&name);
            out.push_str("']");
            rest = &rest[end..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Resource, print, print_if_any};
    use kube::api::{ApiResource, GroupVersionKind};

    #[test]
    fn it_prints_what_kubectl_prints() {
        let object = json!({
            "metadata": {"name": "x", "annotations": {"example.com/note": "hello"}, "generation": 3},
            "spec": {"suspend": false, "labels": {"a": "b"}},
            "items": [{"n": 1, "p": "one"}, {"n": 2}],
            "status": {"conditions": [
                {"type": "Started", "status": "True", "reason": "Released"},
                {"type": "Failed", "status": "False", "reason": "Why"},
            ]},
        });
        for (template, printed) in [
            ("{.metadata.name}", "x"),
            ("{.metadata.name}/{.metadata.generation};", "x/3;"),
            (r"{.metadata.annotations.example\.com/note}", "hello"),
            ("{.spec}", r#"{"labels":{"a":"b"},"suspend":false}"#),
            ("{.items[*].n}", "1 2"),
            ("{.items[*].p}", "one"),
            ("{.items[1].n}", "2"),
            (
                "{.status.conditions[?(@.type=='Started')].reason}",
                "Released",
            ),
            ("{.status.conditions[?(@.type==\"Failed\")].reason}", "Why"),
            ("{.status.conditions[?(@.status=='True')].type}", "Started"),
        ] {
            assert_eq!(
                print(&object, template),
                Ok(printed.to_owned()),
                "{template}"
            );
        }
        for template in [
            "{.metadata.nam}",
            "{.items[2].n}",
            "{.status.conditions[?(@.type=='Complete')].reason}",
        ] {
            assert!(print(&object, template).is_err(), "{template}");
            assert_eq!(print_if_any(&object, template), "", "{template}");
        }
    }

    #[test]
    fn a_kind_is_found_by_all_its_names() {
        let gvk = GroupVersionKind::gvk("apps.example.com", "v1", "MyDaemonSet");
        let resource = Resource {
            api: ApiResource::from_gvk_with_plural(&gvk, "mydaemonsets"),
            namespaced: true,
            names: vec!["mds".to_owned(), "mydaemonset".to_owned()],
        };
        for word in [
            "mds",
            "mydaemonset",
            "mydaemonsets",
            "MyDaemonSet",
            "mydaemonsets.apps",
            "mydaemonset.apps.example.com",
        ] {
            assert!(resource.is(word), "{word}");
        }
        for word in ["md", "mydaemonsets.batch", "daemonset"] {
            assert!(!resource.is(word), "{word}");
        }
    }
}
