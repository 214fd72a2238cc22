//! The I/O of the fake kubelet: the latest state of all nodes and bound pods, the queue of their actions, and the
//! writes.
//!
//! A decision is only written to the object for which it was made. Every status has the UID and the resource version of
//! the decision, and every delete has the UID, so that neither reaches a new pod of the same name, however late the
//! write is. A write that fails for that reason is harmless: the watch delivers the next state to decide on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::addresses::Addresses;
use super::log::Log;
use super::stages::pod_address;
use super::stages::{self, Action, DELETE_AGAIN, NODE_ADDRESS, Step};

/// How many writes are in flight at a time. Load tests create hundreds of pods at once, and are to measure the
/// operator.
const MAX_WRITES: usize = 32;

/// Time limit of a write. A frozen API server does not answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The backoff after failed writes of an object: the first pause, doubled up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// The pause after a failed watch. It does not grow: there are two watches, and the API server is on this machine.
const WATCH_PAUSE: Duration = Duration::from_millis(250);

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Node(String),
    Pod { namespace: String, name: String },
}

/// The two kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Node,
    Pod,
}

/// An object as last seen.
#[derive(Debug, Clone)]
enum Object {
    Node(Arc<Node>),
    Pod(Arc<Pod>),
}

impl Object {
    fn node(mut node: Node) -> Self {
        node.metadata.managed_fields = None;
        Self::Node(Arc::new(node))
    }

    fn pod(mut pod: Pod) -> Self {
        pod.metadata.managed_fields = None;
        Self::Pod(Arc::new(pod))
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Node(node) => &node.metadata,
            Self::Pod(pod) => &pod.metadata,
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Node(node) => Key::Node(node.name_any()),
            Self::Pod(pod) => Key::Pod {
                namespace: pod.namespace().unwrap_or_default(),
                name: pod.name_any(),
            },
        }
    }

    /// The name of a node, and that of a pod's node.
    fn node_name(&self) -> &str {
        match self {
            Self::Node(node) => node.metadata.name.as_deref(),
            Self::Pod(pod) => pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()),
        }
        .unwrap_or_default()
    }

    fn is(&self, other: &Self) -> bool {
        self.metadata().uid == other.metadata().uid
    }

    fn is_unchanged(&self, other: &Self) -> bool {
        self.is(other) && self.metadata().resource_version == other.metadata().resource_version
    }
}

/// An object, and the fake kubelet's state for it.
#[derive(Debug)]
struct Entry {
    object: Object,
    /// When this version of the object was first seen.
    seen: Instant,
    /// The address that a pod has or is to get.
    address: Option<Ipv4Addr>,
    /// Its due time in `Table::queue`.
    due: Option<Instant>,
    writing: bool,
    /// How many writes of this version failed.
    failures: u32,
    /// The earliest time of the next write.
    not_before: Option<Instant>,
}

impl Entry {
    fn new(object: Object) -> Self {
        Self {
            object,
            seen: Instant::now(),
            address: None,
            due: None,
            writing: false,
            failures: 0,
            not_before: None,
        }
    }
}

/// A write to the API server.
#[derive(Debug, PartialEq)]
enum Change {
    Status(Value),
    Delete(DeleteParams),
}

impl Change {
    /// What `action` writes of `object`: `address` is a pod's, and the fake kubelet listens at `endpoint`.
    fn new(
        action: Action,
        object: &Object,
        address: Ipv4Addr,
        endpoint: SocketAddr,
        now: Timestamp,
    ) -> Self {
        let ObjectMeta {
            uid,
            resource_version,
            ..
        } = object.metadata();
        let status = match object {
            _ if action == Action::Delete => {
                let preconditions = Preconditions {
                    uid: uid.clone(),
                    resource_version: None,
                };
                let params = DeleteParams::default().grace_period(0);
                return Self::Delete(params.preconditions(preconditions));
            }
            Object::Node(node) => stages::status_of_node(node, action, endpoint, now),
            Object::Pod(pod) => stages::status_of_pod(pod, action, address, now),
        };
        let metadata = json!({"uid": uid, "resourceVersion": resource_version});
        Self::Status(json!({"metadata": metadata, "status": status}))
    }

    /// Makes the write. Returns the object that a status was written to.
    async fn make(self, client: Client, key: &Key) -> kube::Result<Option<Object>> {
        // A strategic merge patch keeps the conditions that others have set.
        match (self, key) {
            (Self::Status(patch), Key::Node(name)) => {
                let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
                let api: Api<Node> = Api::all(client);
                let node = api.patch_status(name, &params, &patch).await?;
                Ok(Some(Object::node(node)))
            }
            (Self::Status(patch), Key::Pod { namespace, name }) => {
                let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
                let api: Api<Pod> = Api::namespaced(client, namespace);
                let pod = api.patch_status(name, &params, &patch).await?;
                Ok(Some(Object::pod(pod)))
            }
            (Self::Delete(params), Key::Pod { namespace, name }) => {
                let api: Api<Pod> = Api::namespaced(client, namespace);
                api.delete(name, &params).await.map(|_| None)
            }
            (Self::Delete(_), Key::Node(_)) => Ok(None),
        }
    }
}

/// A write that has ended.
struct Written {
    key: Key,
    /// The object that it was decided on.
    base: Object,
    result: Result<Option<Object>, Failure>,
}

/// Why a write failed.
enum Failure {
    /// The object has changed or is gone, and the watch reports that.
    Outdated,
    Other(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_not_found() => {
                Self::Outdated
            }
            other => Self::Other(other.to_string()),
        }
    }
}

/// Watches and writes for ever. Nodes say that the fake kubelet listens at `endpoint`.
pub(super) async fn run(client: Client, log: Log, endpoint: SocketAddr) {
    let mut events = events(&client);
    let mut table = Table::new(client, log, endpoint);
    loop {
        let due = table.next_due();
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok((kind, event)) => table.handle(kind, event),
                Err(error) => table.log.line(&error.to_string()),
            },
            Some(written) = table.writes.next() => table.written(written),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                table.write_first();
            }
        }
    }
}

/// The events of nodes and of pods that are bound to a node. A watch that is cut or too old restarts with a list.
fn events(
    client: &Client,
) -> impl Stream<Item = Result<(Kind, Event<Object>), watcher::Error>> + Unpin + use<> {
    fn convert<K>(event: Event<K>, object: fn(K) -> Object) -> Event<Object> {
        match event {
            Event::Apply(found) => Event::Apply(object(found)),
            Event::Delete(found) => Event::Delete(object(found)),
            Event::Init => Event::Init,
            Event::InitApply(found) => Event::InitApply(object(found)),
            Event::InitDone => Event::InitDone,
        }
    }
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default())
        .map_ok(|event| (Kind::Node, convert(event, Object::node)));
    let pods = watcher(Api::<Pod>::all(client.clone()), bound)
        .map_ok(|event| (Kind::Pod, convert(event, Object::pod)));
    let pause = |event: Result<_, _>| async {
        if event.is_err() {
            tokio::time::sleep(WATCH_PAUSE).await;
        }
        event
    };
    futures::stream::select(Box::pin(nodes.then(pause)), Box::pin(pods.then(pause)))
}

/// A list of all objects of a kind, with which a watch begins.
#[derive(Debug, Default)]
struct Listing {
    /// Whether there has been a complete one.
    done: bool,
    /// The objects that were there before and were not listed yet: at its end they are gone.
    missing: HashSet<Key>,
}

struct Table {
    client: Client,
    log: Log,
    endpoint: SocketAddr,
    entries: HashMap<Key, Entry>,
    /// The pods of each node, fake or not.
    pods: HashMap<String, HashSet<Key>>,
    addresses: Addresses,
    nodes_listing: Listing,
    pods_listing: Listing,
    queue: BTreeSet<(Instant, Key)>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
}

impl Table {
    fn new(client: Client, log: Log, endpoint: SocketAddr) -> Self {
        Self {
            client,
            log,
            endpoint,
            entries: HashMap::new(),
            pods: HashMap::new(),
            addresses: Addresses::new(),
            nodes_listing: Listing::default(),
            pods_listing: Listing::default(),
            queue: BTreeSet::new(),
            writes: FuturesUnordered::new(),
        }
    }

    fn listing(&mut self, kind: Kind) -> &mut Listing {
        match kind {
            Kind::Node => &mut self.nodes_listing,
            Kind::Pod => &mut self.pods_listing,
        }
    }

    fn handle(&mut self, kind: Kind, event: Event<Object>) {
        match event {
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self.remove(&object.key()),
            Event::Init => {
                let known = self.entries.keys();
                let known = known.filter(|key| matches!(key, Key::Node(_)) == (kind == Kind::Node));
                self.listing(kind).missing = known.cloned().collect();
            }
            Event::InitApply(object) => {
                self.listing(kind).missing.remove(&object.key());
                self.put(object);
            }
            Event::InitDone => {
                for key in std::mem::take(&mut self.listing(kind).missing) {
                    self.remove(&key);
                }
                self.listing(kind).done = true;
            }
        }
    }

    /// Records the current state of an object.
    fn put(&mut self, object: Object) {
        let key = object.key();
        match self.entries.get_mut(&key) {
            // Our own write, or a list.
            Some(entry) if entry.object.is_unchanged(&object) => return,
            Some(entry) if entry.object.is(&object) => {
                entry.object = object;
                entry.seen = Instant::now();
                entry.failures = 0;
                entry.not_before = None;
            }
            _ => {
                self.remove(&key);
                if let Object::Pod(_) = object {
                    let node = object.node_name().to_owned();
                    self.pods.entry(node).or_default().insert(key.clone());
                }
                self.entries.insert(key.clone(), Entry::new(object));
            }
        }
        if let Some(entry) = self.entries.get_mut(&key)
            && let Object::Pod(pod) = &entry.object
            && let Some(address) = pod_address(pod)
            && self.addresses.note(address)
        {
            entry.address = Some(address);
        }
        self.schedule(&key);
        if let Key::Node(name) = &key {
            for pod in self.pods.get(name).cloned().unwrap_or_default() {
                self.schedule(&pod);
            }
        }
    }

    /// Forgets an object that is gone. The pods of a node stay, for the pod garbage collector or the next node of that
    /// name.
    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        if let Some(due) = entry.due {
            self.queue.remove(&(due, key.clone()));
        }
        if let Some(address) = entry.address {
            self.addresses.free(address);
        }
        if let Object::Pod(_) = entry.object
            && let Some(pods) = self.pods.get_mut(entry.object.node_name())
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods.remove(entry.object.node_name());
            }
        }
    }

    /// The next action for an object, if it belongs to a fake node.
    fn next(&self, entry: &Entry) -> Option<Step> {
        let node = Key::Node(entry.object.node_name().to_owned());
        let Object::Node(node) = &self.entries.get(&node)?.object else {
            return None;
        };
        if !stages::is_fake(node) {
            return None;
        }
        match &entry.object {
            Object::Node(node) => stages::next_of_node(node, self.endpoint),
            Object::Pod(pod) => stages::next_of_pod(pod),
        }
    }

    /// Moves an object to another time in the queue, or removes it.
    fn schedule(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let step = self.next(entry).filter(|_| !entry.writing);
        let due =
            step.map(|step| (entry.seen + step.after).max(entry.not_before.unwrap_or(entry.seen)));
        if let Some(entry) = self.entries.get_mut(key) {
            if let Some(due) = std::mem::replace(&mut entry.due, due) {
                self.queue.remove(&(due, key.clone()));
            }
            if let Some(due) = due {
                self.queue.insert((due, key.clone()));
            }
        }
    }

    /// When the next write may begin. None before the first lists: which addresses are taken is not known.
    fn next_due(&self) -> Option<Instant> {
        let listed = self.nodes_listing.done && self.pods_listing.done;
        let (due, _) = self.queue.first()?;
        (listed && self.writes.len() < MAX_WRITES).then_some(*due)
    }

    /// Begins the write that is due first.
    fn write_first(&mut self) {
        let Some((_, key)) = self.queue.pop_first() else {
            return;
        };
        let step = self.entries.get(&key).and_then(|entry| self.next(entry));
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.due = None;
        let Some(step) = step else {
            return;
        };
        let address = match &entry.object {
            Object::Pod(pod) if matches!(step.action, Action::Start { .. }) => {
                let spec = pod.spec.as_ref();
                if spec.and_then(|spec| spec.host_network) == Some(true) {
                    NODE_ADDRESS
                } else {
                    *entry.address.get_or_insert_with(|| self.addresses.take())
                }
            }
            _ => NODE_ADDRESS,
        };
        entry.writing = true;
        let base = entry.object.clone();
        let change = Change::new(step.action, &base, address, self.endpoint, Timestamp::now());
        let client = self.client.clone();
        let write = async move {
            let write = change.make(client, &key);
            let result = tokio::time::timeout(WRITE_TIMEOUT, write).await;
            let result = result.map_or_else(
                |_| Err(Failure::Other("no answer".to_owned())),
                |result| result.map_err(Failure::from),
            );
            Written { key, base, result }
        };
        self.writes.push(write.boxed());
    }

    /// Records the end of a write.
    fn written(&mut self, Written { key, base, result }: Written) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if !entry.object.is(&base) {
            // A new object of that name, which has writes of its own.
            return;
        }
        entry.writing = false;
        if !entry.object.is_unchanged(&base) {
            // The watch was quicker than the answer, and knows as much or more.
            return self.schedule(&key);
        }
        let pause = if let Ok(None) = result {
            // A deleted pod is gone or changed by then.
            DELETE_AGAIN
        } else {
            // Also after a status that changed nothing; one that changed the object is a new version without a pause.
            let doubled = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(10));
            doubled.min(LAST_PAUSE)
        };
        entry.not_before = Some(Instant::now() + pause);
        entry.failures += 1;
        match result {
            Ok(Some(object)) => self.put(object),
            Err(Failure::Other(cause)) if entry.failures == 1 => {
                self.log.line(&format!("cannot write {key:?}: {cause}"));
            }
            _ => {}
        }
        self.schedule(&key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, DeleteParams, PostParams};
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::stages::KUBELET_ADDRESS_TYPE;
    use super::{
        Action, Change, Failure, Kind, Log, NODE_ADDRESS, Object, Table, Timestamp, Written,
    };
    use crate::{Cluster, Options};

    const ENDPOINT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 20_000);

    /// A node with which everything is done.
    fn node(name: &str) -> Object {
        let node = json!({
            "metadata": {"name": name, "uid": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": KUBELET_ADDRESS_TYPE, "address": ENDPOINT.ip()}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": ENDPOINT.port()}},
            },
        });
        Object::node(serde_json::from_value(node).unwrap())
    }

    fn pod(uid: &str, version: &str, phase: &str, deleted: bool) -> Object {
        let mut pod = json!({
            "metadata": {"name": "pod", "namespace": "default", "uid": uid, "resourceVersion": version},
            "spec": {"nodeName": "node", "restartPolicy": "Always", "containers": []},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        Object::pod(serde_json::from_value(pod).unwrap())
    }

    /// A table whose writes reach nothing.
    fn table() -> Table {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let log = Log(tempfile::tempfile().unwrap());
        Table::new(kube::Client::try_from(config).unwrap(), log, ENDPOINT)
    }

    fn list(table: &mut Table, kind: Kind, objects: impl IntoIterator<Item = Object>) {
        table.handle(kind, Event::Init);
        for object in objects {
            table.handle(kind, Event::InitApply(object));
        }
        table.handle(kind, Event::InitDone);
    }

    #[tokio::test]
    async fn a_pod_is_due_when_all_is_listed_and_its_node_is_known() {
        let mut table = table();
        list(&mut table, Kind::Pod, [pod("a", "1", "Pending", false)]);
        assert_eq!(table.next_due(), None, "nodes are not listed");
        list(&mut table, Kind::Node, []);
        assert_eq!(table.next_due(), None, "its node is not known");
        table.handle(Kind::Node, Event::Apply(node("node")));
        assert!(table.next_due().unwrap() <= Instant::now());
        list(&mut table, Kind::Pod, []);
        assert_eq!(
            table.next_due(),
            None,
            "gone, as the list after a cut watch shows"
        );
        assert!(table.entries.len() == 1 && table.pods.is_empty());
    }

    #[tokio::test]
    async fn a_pod_whose_write_failed_is_tried_again_after_growing_pauses_and_at_once_when_it_changes()
     {
        let mut table = table();
        list(&mut table, Kind::Node, [node("node")]);
        list(&mut table, Kind::Pod, [pod("a", "1", "Pending", false)]);
        for pause in [50, 100, 200] {
            table.write_first();
            assert_eq!(table.next_due(), None, "one write at a time");
            let (key, base) = (pod("a", "1", "", false).key(), pod("a", "1", "", false));
            let result = Err(Failure::Other("refused".to_owned()));
            let before = Instant::now();
            table.written(Written { key, base, result });
            let due = table.next_due().unwrap();
            let pause = Duration::from_millis(pause);
            assert!(before + pause <= due && due <= Instant::now() + pause);
        }
        table.handle(Kind::Pod, Event::Apply(pod("a", "2", "Pending", false)));
        assert!(table.next_due().unwrap() <= Instant::now());
    }

    #[tokio::test]
    async fn a_new_pod_of_the_same_name_is_independent_of_the_write_of_the_old_one() {
        let mut table = table();
        list(&mut table, Kind::Node, [node("node")]);
        list(&mut table, Kind::Pod, [pod("old", "1", "Running", true)]);
        table.write_first();
        table.handle(Kind::Pod, Event::Delete(pod("old", "2", "Running", true)));
        table.handle(Kind::Pod, Event::Apply(pod("new", "3", "Pending", false)));
        let due = table.next_due().expect("the new pod starts at once");
        let base = pod("old", "1", "Running", true);
        table.written(Written {
            key: base.key(),
            base,
            result: Ok(None),
        });
        assert_eq!(table.next_due(), Some(due));
    }

    #[tokio::test]
    async fn late_writes_do_not_reach_a_new_pod_of_the_same_name() {
        let cluster = Cluster::start(Options::default()).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
        let pod = json!({
            "metadata": {"name": "pod"},
            "spec": {"nodeName": "none", "containers": [{"name": "main", "image": "busybox:1"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let old = pods.create(&PostParams::default(), &pod).await.unwrap();
        let now = DeleteParams::default().grace_period(0);
        pods.delete("pod", &now).await.unwrap();
        let new = pods.create(&PostParams::default(), &pod).await.unwrap();

        let old = Object::pod(old);
        for action in [Action::Delete, Action::Start { ready: true }] {
            let change = Change::new(action, &old, NODE_ADDRESS, ENDPOINT, Timestamp::now());
            let result = change
                .make(cluster.client().await.unwrap(), &old.key())
                .await;
            let failure = result.map_err(Failure::from).unwrap_err();
            assert!(matches!(failure, Failure::Outdated), "{action:?}");
        }
        let found = pods.get("pod").await.unwrap();
        assert_eq!(found.metadata.uid, new.metadata.uid);
        assert_eq!(
            found.metadata.resource_version,
            new.metadata.resource_version
        );
        cluster.stop().await;
    }

    #[tokio::test]
    async fn every_write_names_what_it_was_decided_on() {
        let pod = pod("a", "7", "Pending", false);
        let now = Timestamp::UNIX_EPOCH;
        let change = |action| Change::new(action, &pod, NODE_ADDRESS, ENDPOINT, now);
        let Change::Delete(params) = change(Action::Delete) else {
            unreachable!("a delete, not a status");
        };
        let params: Value = serde_json::to_value(params).unwrap();
        assert_eq!(params["preconditions"], json!({"uid": "a"}));
        assert_eq!(params["gracePeriodSeconds"], json!(0));
        let Change::Status(patch) = change(Action::Start { ready: true }) else {
            unreachable!("a status, not a delete");
        };
        assert_eq!(
            patch["metadata"],
            json!({"uid": "a", "resourceVersion": "7"})
        );
    }
}
