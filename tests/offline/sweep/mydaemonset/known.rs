//! The cluster as it was, or as a process of the operator knew it, and what follows from that for each node.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use my_operator::kinds::mydaemonset::crd::MyDaemonSetSpec;
use my_operator::kinds::mydaemonset::revision::{self, Content};
use serde_json::{Value, json};
use simulated_apiserver::{ChangeKind, History, Request, Version, is_selected, tolerates};

use crate::sweep::changes::condition;
use crate::sweep::cluster::NAMESPACE;
use crate::sweep::subject::Seen;

/// A node that has been NotReady for so long is left out: `--node-not-ready-grace`, and a second for times that are cut to
/// whole seconds.
const LOST_AFTER: Duration = Duration::from_secs(59);
/// The default of `progressDeadlineSeconds`. A node that has been without a serving pod for so long is left out.
const DEADLINE: u64 = 600;
/// The labels of a pod with the name of its set, and with its revision.
const SET: &str = "apps.zhongmingmao.io/mydaemonset";
const REVISION: &str = "apps.zhongmingmao.io/revision";

/// The resources that matter.
const RESOURCES: [&str; 5] = [
    "mydaemonsets",
    "nodes",
    "pods",
    "controllerrevisions",
    "namespaces",
];

/// Some moment of the cluster: the objects of each resource as of a version.
pub struct Known<'a> {
    pub set: Option<&'a Value>,
    pub nodes: BTreeMap<&'a str, Node<'a>>,
    pub pods: Vec<Pod<'a>>,
    /// The value of the annotation that freezes the set, or else its namespace; empty as long as no list has shown that.
    pub freeze: Option<&'a str>,
    /// The hash of the present spec's revision, or of the one that takes its place because it failed.
    pub update: String,
    /// The hash of the one that failed.
    pub undone: Option<String>,
    /// The content of each revision, by its hash.
    contents: BTreeMap<String, Value>,
    pub now: DateTime<Utc>,
    pub elapsed: Duration,
}

/// A node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub object: &'a Value,
    /// Since when it has not been ready, in virtual time.
    not_ready_since: Option<Duration>,
    /// Whether it has ever been ready.
    pub was_ready: bool,
}

/// A pod of the set.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub object: &'a Value,
    pub uid: &'a str,
    pub name: &'a str,
    pub node: &'a str,
    pub revision: &'a str,
    /// Whether it is being deleted, as far as the operator knows, or did.
    pub deleting: bool,
}

/// What a set wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Run,
    Down,
    Keep,
    Cordoned,
    Leave,
}

impl Pod<'_> {
    pub fn has_ended(&self) -> bool {
        matches!(
            self.object["status"]["phase"].as_str(),
            Some("Failed" | "Succeeded")
        )
    }

    pub fn is_live(&self) -> bool {
        !self.deleting && !self.has_ended()
    }

    pub fn ready_since(&self) -> Option<DateTime<Utc>> {
        let conditions = self.object["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
        let since = ready["lastTransitionTime"].as_str()?.parse().ok();
        since.filter(|_| ready["status"] == "True" && self.is_live())
    }

    pub fn is_ready(&self) -> bool {
        self.ready_since().is_some()
    }
}

/// The last version of each object of a resource, as of a resourceVersion.
fn as_of<'a>(history: &'a History, resource: &str, version: u64) -> BTreeMap<&'a str, &'a Version> {
    let mut found: BTreeMap<&str, &Version> = BTreeMap::new();
    let all = history.versions.iter().take_while(|v| v.version <= version);
    for change in all.filter(|v| v.resource == resource) {
        if change.kind == ChangeKind::Deleted {
            found.remove(change.name.as_str());
        } else {
            found.insert(&change.name, change);
        }
    }
    found
}

/// What the latest process of an operator had been sent of a resource when it sent a request: everything that reached it
/// before, or with `at_once` what reached it at that very time too, if it was there before the request was carried out.
fn delivered(seen: &Seen<'_>, user: &str, resource: &str, request: &Request, at_once: bool) -> u64 {
    let at = request.elapsed;
    let since = started(seen, user, at);
    let newest = if request.carried_out {
        request.before
    } else {
        u64::MAX
    };
    let deliveries = seen.history.deliveries.iter();
    let of_it = deliveries.filter(|d| *d.user == *user && *d.resource == *resource);
    // A live list of a replica that is behind takes nothing from what the watch has shown.
    let versions = of_it.filter(|d| d.elapsed >= since).map(|d| {
        if d.elapsed < at {
            d.version
        } else if at_once && d.elapsed == at {
            d.version.min(newest)
        } else {
            0
        }
    });
    versions.max().unwrap_or_default()
}

/// When the process began that an operator was at a time.
pub fn started(seen: &Seen<'_>, user: &str, at: Duration) -> Duration {
    let starts = seen.starts.iter().rev();
    let mut of_it = starts.filter(|(name, start)| *name == user && *start <= at);
    of_it.next().map(|(_, start)| *start).unwrap_or_default()
}

/// Whether a condition of a node says that it is being worked on.
fn is_maintained(node: &Value) -> bool {
    condition(node, "MaintenanceInProgress").is_some_and(|(is, _)| is == "True")
}

/// The hash of the revision of a set.
pub fn update(set: &Value) -> String {
    let spec: MyDaemonSetSpec = serde_json::from_value(set["spec"].clone()).unwrap_or_default();
    revision::hash(&Content::from_spec(&spec).canonical())
}

impl<'a> Known<'a> {
    /// What an operator knew when it sent a request, for sure, or with `at_once` at the most.
    pub fn by(seen: &Seen<'a>, user: &str, request: &Request, at_once: bool) -> Self {
        let (at, now) = (request.elapsed, request.time);
        let versions = RESOURCES.map(|r| delivered(seen, user, r, request, at_once));
        let since = started(seen, user, at);
        let own = seen.history.versions.iter().rev().find(|v| {
            let is_own = v.resource == "mydaemonsets" && v.by == user;
            is_own && since <= v.elapsed && v.elapsed <= at
        });
        let mut known = Self::new(seen.history, versions, at, now);
        // It need not wait for the watch to show what it wrote itself.
        if let Some(own) = own.filter(|own| own.version > versions[0]) {
            known.go_back(&own.object()["status"]);
        }
        known
    }

    /// Has the last revision that was completed take the place of one that failed, as that status says.
    fn go_back(&mut self, status: &Value) {
        let Some(set) = self.set else {
            return;
        };
        let spec = update(set);
        let resumed = &set["metadata"]["annotations"]["apps.zhongmingmao.io/resume-revision"];
        let complete = status["completeRevisions"].as_array();
        let mut others = complete.into_iter().flatten().filter_map(Value::as_str);
        let target = others.find(|hash| *hash != spec);
        let target = target.filter(|hash| self.contents.contains_key(*hash));
        let goes_back = status["failedRevisions"][0] == *spec && *resumed != *spec;
        if let Some(target) = target.filter(|_| goes_back) {
            target.clone_into(&mut self.update);
            self.undone = Some(spec);
        } else {
            self.update = spec;
            self.undone = None;
        }
    }

    /// Everything there was right after that version.
    pub fn all(history: &'a History, version: u64, at: Duration, now: DateTime<Utc>) -> Self {
        Self::new(history, [version; 5], at, now)
    }

    fn new(
        history: &'a History,
        [sets, nodes, pods, _, namespaces]: [u64; 5],
        elapsed: Duration,
        now: DateTime<Utc>,
    ) -> Self {
        let set = as_of(history, "mydaemonsets", sets).into_values().next();
        let set = set.map(Version::object);
        let namespace = as_of(history, "namespaces", namespaces).remove(NAMESPACE);
        let freeze = |object: &'a Value| {
            object["metadata"]["annotations"]["apps.zhongmingmao.io/freeze"].as_str()
        };
        let of_namespace = match namespace {
            Some(namespace) => freeze(namespace.object()),
            None => Some(""),
        };
        let node = |(name, version): (&'a str, &'a Version)| {
            let is_ready = |version: &Version| {
                condition(version.object(), "Ready").is_some_and(|c| c.0 == "True")
            };
            let of_it = || {
                history.versions.iter().rev().filter(|v| {
                    v.resource == "nodes" && v.uid == version.uid && v.version <= version.version
                })
            };
            let silent = of_it().take_while(|v| !is_ready(v)).last();
            let node = Node {
                object: version.object(),
                not_ready_since: silent.map(|v| v.elapsed),
                was_ready: of_it().any(is_ready),
            };
            (name, node)
        };
        let owner = set.map(|set| &set["metadata"]["uid"]);
        let pods = as_of(history, "pods", pods).into_values();
        let pods = pods.map(Version::object).filter(|pod| {
            let metadata = &pod["metadata"];
            // A pod without its labels is not watched any more.
            let is_ours = set.is_some_and(|set| metadata["labels"][SET] == set["metadata"]["name"])
                && metadata["labels"]["app.kubernetes.io/managed-by"] == "my-operator";
            let references = metadata["ownerReferences"].as_array();
            // One without an owner is adopted.
            let by_set = |reference: &Value| Some(&reference["uid"]) == owner;
            is_ours && references.is_none_or(|all| all.iter().any(by_set))
        });
        let mut contents: BTreeMap<String, Value> = history
            .versions
            .iter()
            .filter(|v| v.resource == "controllerrevisions")
            .filter_map(|v| {
                let object = v.object();
                let hash = object["metadata"]["labels"][REVISION].as_str()?;
                Some((hash.to_owned(), object["data"].clone()))
            })
            .collect();
        let newest = set.map(update).unwrap_or_default();
        let mut is_its_own = true;
        if let Some(set) = set {
            let spec = set["spec"].clone();
            let stored = contents.get(&newest).unwrap_or(&spec);
            is_its_own = ["image", "template"]
                .iter()
                .all(|it| stored[it] == spec[it]);
            contents.insert(newest.clone(), spec);
        }
        // Admission may add to what the template wants. The first pod counts: others may be made by foreign hands. A
        // foreign revision says nothing about the set's own.
        let made = history.versions.iter().filter(|v| v.resource == "pods");
        let selectors = made.filter_map(|v| {
            let pod = v.object();
            let revision = pod["metadata"]["labels"][REVISION].as_str()?;
            Some((revision.to_owned(), pod["spec"]["nodeSelector"].clone()))
        });
        for (revision, selector) in selectors.rev() {
            let content = contents.get_mut(&revision);
            if let Some(content) = content.filter(|_| is_its_own || revision != newest) {
                content["template"]["spec"]["nodeSelector"] = selector;
            }
        }
        let mut known = Self {
            set,
            nodes: as_of(history, "nodes", nodes)
                .into_iter()
                .map(node)
                .collect(),
            pods: pods.map(Pod::new).collect(),
            freeze: set.and_then(freeze).or(of_namespace),
            update: newest,
            undone: None,
            contents,
            now,
            elapsed,
        };
        if let Some(set) = set {
            known.go_back(&set["status"]);
        }
        known
    }

    /// Notes a deletion that the operator itself sent.
    pub fn note_deletion(&mut self, uid: &str) {
        for pod in self.pods.iter_mut().filter(|pod| pod.uid == uid) {
            pod.deleting = true;
        }
    }

    /// What the set with the content of a revision wants of a node.
    pub fn fate(&self, node: &str, revision: &str) -> Fate {
        let Some(node) = self.nodes.get(node).map(|node| node.object) else {
            return Fate::Leave;
        };
        let template = self.contents.get(revision).map(|c| &c["template"]["spec"]);
        let mut pod = json!({"spec": template.cloned().unwrap_or_default()});
        let mut tolerations = pod["spec"]["tolerations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for (key, effect) in [
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        ] {
            let key = format!("node.kubernetes.io/{key}");
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
        }
        pod["spec"]["tolerations"] = json!(tolerations);
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let mut refused = taints.filter(|taint| !tolerates(&pod, taint));
        let (mut keeps, mut is_down) = (false, false);
        if !is_selected(node, &pod) {
            return Fate::Leave;
        }
        for taint in refused.by_ref() {
            let key = taint["key"].as_str().unwrap_or_default();
            let down = [
                "node.kubernetes.io/not-ready",
                "node.kubernetes.io/unreachable",
            ];
            match taint["effect"].as_str() {
                Some("NoExecute") => return Fate::Leave,
                Some("NoSchedule") if down.contains(&key) => is_down = true,
                Some("NoSchedule") => keeps = true,
                _ => {}
            }
        }
        if keeps {
            Fate::Keep
        } else if node["spec"]["unschedulable"] == true || is_maintained(node) {
            Fate::Cordoned
        } else if is_down {
            Fate::Down
        } else {
            Fate::Run
        }
    }

    /// The pods of a node.
    pub fn on<'b>(&'b self, node: &'b str) -> impl Iterator<Item = &'b Pod<'a>> {
        self.pods.iter().filter(move |pod| pod.node == node)
    }

    /// Whether the node should have a pod.
    pub fn is_desired(&self, node: &str) -> bool {
        match self.fate(node, &self.update) {
            Fate::Run => true,
            Fate::Down | Fate::Cordoned => self.on(node).next().is_some(),
            Fate::Keep | Fate::Leave => false,
        }
    }

    /// Whether the limits leave the node out: it is in maintenance, or has been NotReady for so long.
    pub fn is_lost(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| {
            let since = node.not_ready_since;
            let silent = since.map(|since| self.elapsed.saturating_sub(since));
            is_maintained(node.object) || silent.is_some_and(|silent| silent >= LOST_AFTER)
        })
    }

    /// Whether the node is not Ready.
    pub fn is_silent(&self, node: &str) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|node| node.not_ready_since.is_some())
    }

    /// Whether a pod has been ready for long enough.
    pub fn is_available(&self, pod: &Pod<'_>) -> bool {
        let seconds = self
            .set
            .and_then(|set| set["spec"]["minReadySeconds"].as_i64());
        let minimum = TimeDelta::seconds(seconds.unwrap_or_default());
        pod.ready_since()
            .is_some_and(|since| since + minimum <= self.now)
    }

    /// Whether a pod serves on the node, as the limits see it.
    pub fn is_served(&self, node: &str) -> bool {
        self.on(node)
            .any(|pod| pod.is_ready() && (pod.revision != self.update || self.is_available(pod)))
    }

    /// A limit of the roll-out as a number of nodes.
    pub fn limit(&self, name: &str) -> usize {
        let desired = self.nodes.keys().filter(|node| self.is_desired(node));
        let rolling = self
            .set
            .map(|set| &set["spec"]["updateStrategy"]["rollingUpdate"]);
        match rolling.map(|rolling| &rolling[name]) {
            Some(Value::String(percent)) => {
                let percent: usize = percent.trim_end_matches('%').parse().unwrap_or_default();
                (desired.count() * percent).div_ceil(100)
            }
            Some(Value::Number(number)) => number.as_u64().unwrap_or_default().try_into().unwrap(),
            _ if name == "maxUnavailable" => 1,
            _ => 0,
        }
    }

    /// A setting of the roll-out.
    pub fn rolling(&self, name: &str) -> Value {
        let rolling = self
            .set
            .map(|set| &set["spec"]["updateStrategy"]["rollingUpdate"][name]);
        rolling.cloned().unwrap_or_default()
    }
}

impl<'a> Pod<'a> {
    fn new(object: &'a Value) -> Self {
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let metadata = &object["metadata"];
        Self {
            object,
            uid: text(&metadata["uid"]),
            name: text(&metadata["name"]),
            node: text(&object["spec"]["nodeName"]),
            revision: text(&metadata["labels"][REVISION]),
            deleting: !metadata["deletionTimestamp"].is_null(),
        }
    }
}

/// Whether a node has been without a serving pod for as long as pods have to become available.
pub fn is_unserved_for_long(history: &History, node: &str, known: &Known<'_>) -> bool {
    // Two seconds for times that are cut.
    let since = (known.elapsed + Duration::from_secs(2)).checked_sub(deadline(known.set));
    let Some(since) = since else {
        return false;
    };
    let pods = history.versions.iter().filter(|v| {
        let then = since <= v.elapsed && v.elapsed <= known.elapsed;
        v.resource == "pods" && v.object()["spec"]["nodeName"] == *node && then
    });
    let mut ready =
        pods.filter(|v| condition(v.object(), "Ready").is_some_and(|(is, _)| is == "True"));
    ready.next().is_none() && !known.is_served(node)
}

/// How long the pods of a set have to become available.
pub fn deadline(set: Option<&Value>) -> Duration {
    let given = set.and_then(|set| set["spec"]["progressDeadlineSeconds"].as_u64());
    Duration::from_secs(given.unwrap_or(DEADLINE))
}
