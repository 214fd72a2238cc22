//! What a migration does next: a pure function of what is in the cluster, so that another run of the command goes on where
//! the last one ended.
//!
//! The `MyDaemonSet` exists from the first step to the last, either way. As long as it has the annotation of a migration,
//! the operator leaves the pods alone; which way it goes is the annotation's value.
//!
//! There: create the `MyDaemonSet` with that annotation; stop the `DaemonSet`, so that nothing of its roll-out comes late;
//! label the pods; delete the `DaemonSet` and orphan its pods; take the annotation away: the operator adopts them.
//!
//! Back: set the annotation; of two pods on a node, delete one; take the pods from the `MyDaemonSet`; create the `DaemonSet`, which adopts them; delete the
//! `MyDaemonSet`. The built-in controller may not see the pods yet when it sees the `DaemonSet`, and would make a second
//! pod on each node. So the `DaemonSet` begins as a guarded one: it replaces nothing, and the scheduler keeps its pods off
//! the nodes that have one.
//!
//! A `DaemonSet` that was stopped or guarded has its own strategy in an annotation.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::SelectorExt as _;
use my_operator_kind::manager::MANAGER;
use my_operator_mydaemonset::names::{MIGRATION_ANNOTATION, NAME_LABEL, REVISION_LABEL};
use my_operator_mydaemonset::status::{MIGRATING, PROGRESSING};
use serde_json::{Value, json};
use wall_clock_controller::reconcile::condition::ACCEPTED;
use wall_clock_controller::reconcile::write::MANAGED_BY;

use super::translate::{
    KEPT, OUR_LABELS, Translation, manifest, member, selector, to_daemon_set, to_ours,
};

/// The revision of pods that a `DaemonSet` made: the hash of no revision is this long.
pub(super) const REVISION: &str = "daemonset";
/// Where the annotation of a migration is.
pub(super) const MARK: [&str; 3] = ["metadata", "annotations", MIGRATION_ANNOTATION];
/// How many names a message has.
const MAX_NAMES: usize = 3;

/// One of the two objects. Which way a migration goes is said by the one that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    DaemonSet,
    Ours,
}

impl Side {
    /// What a migration to this one begins with.
    pub(super) fn other(self) -> Self {
        match self {
            Self::DaemonSet => Self::Ours,
            Self::Ours => Self::DaemonSet,
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::DaemonSet => "DaemonSet",
            Self::Ours => "MyDaemonSet",
        }
    }

    /// What the annotation of a migration to this one begins with: the command that goes on.
    pub(super) fn command(self) -> String {
        let source = self.other().kind().to_lowercase();
        format!("kubectl mydaemonset migrate {source}/")
    }
}

/// One of the two objects, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live(pub(super) Value);

impl Live {
    fn metadata(&self, field: &str) -> &str {
        self.0["metadata"][field].as_str().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata("uid")
    }

    pub(super) fn version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][key].as_str()
    }

    /// The annotation of a migration: which way on a `MyDaemonSet`, its strategy on a `DaemonSet`.
    pub(super) fn migration(&self) -> Option<&str> {
        self.annotation(MIGRATION_ANNOTATION)
    }

    /// The manifest of the `DaemonSet` that a `MyDaemonSet` came from. One of another name is none: the annotation was
    /// copied with the object.
    pub(super) fn kept(&self) -> Option<Value> {
        let kept: Value = serde_json::from_str(self.annotation(KEPT)?).ok()?;
        let is_same = |field: &str| kept["metadata"][field] == self.0["metadata"][field];
        let is_its = kept["kind"] == "DaemonSet" && is_same("name") && is_same("namespace");
        is_its.then(|| manifest(&kept))
    }

    /// Where a migration of a `MyDaemonSet` leads to.
    fn target(&self) -> Option<Side> {
        let migration = self.migration()?;
        let mut sides = [Side::Ours, Side::DaemonSet].into_iter();
        sides.find(|side| migration.starts_with(&side.command()))
    }

    /// Whether a migration the other way is under way.
    pub(super) fn leads_away_from(&self, to: Side) -> bool {
        self.target().is_some_and(|target| target != to)
    }

    fn condition(&self, is_it: impl Fn(&Value) -> bool) -> Option<&str> {
        let conditions = self.0["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|it| is_it(it))?["message"].as_str()
    }

    /// Kind and name of the object that controls it.
    fn controller(&self) -> Option<String> {
        let owners = self.0["metadata"]["ownerReferences"].as_array();
        let owner = owners?.iter().find(|owner| owner["controller"] == true)?;
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        Some(format!("{} {}", text("kind"), text("name")))
    }

    /// Whether the built-in controller has seen the spec of a `DaemonSet`.
    fn is_observed(&self) -> bool {
        let observed = self.0["status"]["observedGeneration"].as_i64();
        observed >= self.0["metadata"]["generation"].as_i64()
    }

    /// Whether the operator leaves the pods of a `MyDaemonSet` alone, for this very annotation.
    fn is_left_alone(&self) -> bool {
        let is_it = |it: &Value| it["type"] == PROGRESSING && it["reason"] == MIGRATING;
        let asked = self.migration().zip(self.condition(is_it));
        asked.is_some_and(|(migration, answer)| answer.ends_with(migration))
    }
}

/// A pod that has the labels of either object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    pub(super) labels: BTreeMap<String, String>,
    /// What controls it.
    pub(super) controller: Option<OwnerReference>,
    /// `spec.nodeName`; empty while the scheduler has not placed it.
    pub(super) node: String,
    /// The node that it is meant for, where it is not placed.
    pub(super) meant_for: String,
    pub(super) is_deleting: bool,
    pub(super) is_ready: bool,
    pub(super) has_ended: bool,
    /// In seconds since 1970.
    pub(super) created: i64,
}

/// What is in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) daemon_set: Option<Live>,
    pub(super) ours: Option<Live>,
    pub(super) pods: Vec<Pod>,
}

/// A change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) pod: String,
    pub(super) uid: String,
    /// New labels; `None` removes one.
    pub(super) labels: BTreeMap<String, Option<String>>,
    /// The UID of an owner that it loses.
    pub(super) owner: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create that object; a `MyDaemonSet` with the annotation, as by `Begin`.
    Create(Side, Value),
    /// Have the operator leave the pods of the `MyDaemonSet` alone, for a migration this way.
    Begin,
    /// Stop the roll-out of the `DaemonSet`.
    Stop,
    Change(Vec<Change>),
    /// Delete that object, and let its pods stay.
    Orphan(Side),
    /// Delete these pods, for that reason. Each has the version that was seen: it may be placed or get ready meanwhile.
    Delete(Vec<Pod>, &'static str),
    /// Give that object what it has without a migration.
    Finish(Side),
    /// Nothing can be done until this is over.
    Wait(String),
    /// The target has the pods: its roll-out is the rest.
    Follow,
}

/// The next step.
pub(super) fn next(to: Side, state: &State) -> Result<Step, String> {
    let name = &state.name;
    for side in [Side::DaemonSet, Side::Ours] {
        let live = state.live(side);
        if live.is_some_and(|live| !live.metadata("deletionTimestamp").is_empty()) {
            return Ok(Step::Wait(format!("{} {name} to be gone", side.kind())));
        }
    }
    let source = to.other();
    if let Some(controller) = state.live(source).and_then(Live::controller) {
        let kind = source.kind();
        return Err(format!(
            "{kind} {name:?} is controlled by {controller}, which would put it back: take it out of that first"
        ));
    }
    match to {
        Side::Ours => there(state),
        Side::DaemonSet => back(state),
    }
}

fn there(state: &State) -> Result<Step, String> {
    let name = &state.name;
    let (daemon_set, ours) = match (&state.daemon_set, &state.ours) {
        (None, None) => return Err(format!("there is no DaemonSet {name:?}")),
        (Some(daemon_set), None) => {
            let object = held(daemon_set, name)?;
            return Ok(Step::Create(Side::Ours, object));
        }
        (daemon_set, Some(ours)) => (daemon_set, ours),
    };
    if let Some(step) = begun(Side::Ours, state, ours)? {
        return Ok(step);
    }
    let Some(daemon_set) = daemon_set else {
        return Ok(hand_over(state).unwrap_or(Step::Finish(Side::Ours)));
    };
    // A guarded one came from the MyDaemonSet; from another one the MyDaemonSet came.
    let is_source = !is_guarded(&daemon_set.0, name);
    if is_source && ours.kept() != Some(manifest(&settled(daemon_set, name)?)) {
        return Ok(Step::Orphan(Side::Ours));
    }
    if daemon_set.migration().is_none() {
        return Ok(Step::Stop);
    }
    if !daemon_set.is_observed() {
        return Ok(Step::Wait(format!(
            "the controller of DaemonSet {name} to see its change"
        )));
    }
    // Early, so that the pods are without a controller for a short time only.
    Ok(label_ours(state).unwrap_or(Step::Orphan(Side::DaemonSet)))
}

fn back(state: &State) -> Result<Step, String> {
    let name = &state.name;
    let (daemon_set, ours) = match (&state.daemon_set, &state.ours) {
        (None, None) => return Err(format!("there is no MyDaemonSet {name:?}")),
        // The MyDaemonSet was deleted by hand.
        (Some(daemon_set), None) if daemon_set.migration().is_some() => {
            return Ok(adoption(state, daemon_set).unwrap_or(Step::Finish(Side::DaemonSet)));
        }
        (Some(_), None) => return Ok(Step::Follow),
        (daemon_set, Some(ours)) => (daemon_set, ours),
    };
    let target = match daemon_set {
        Some(daemon_set) => daemon_set.0.clone(),
        None => translated(ours)?.object,
    };
    let spec = &target["spec"];
    let selector = selector(&spec["selector"])?;
    let template = strings(&spec["template"]["metadata"]["labels"]);
    let excluded = state.pods_at_stake().filter(|pod| {
        let mut labels = pod.labels.clone();
        for (key, value) in &template {
            labels.insert(key.clone(), value.clone().unwrap_or_default());
        }
        !pod.is_deleting && !selector.matches(&labels)
    });
    if let Some(pods) = named(excluded) {
        let text = format!("spec.selector of the DaemonSet excludes {pods} by a label");
        return match ours.migration() {
            Some(_) => Ok(Step::Wait(format!("a change of labels: {text}"))),
            None => Err(format!("{text}: remove the label or delete the pods first")),
        };
    }
    if let Some(step) = begun(Side::DaemonSet, state, ours)? {
        return Ok(step);
    }
    if daemon_set.is_none()
        && let Some(step) = one_for_each_node(state)
    {
        return Ok(step);
    }
    // One that was created late is taken like the others.
    let changes = state
        .pods_at_stake()
        .filter(|pod| !pod.is_deleting)
        .filter_map(|pod| {
            let is_free = pod.controller.is_none();
            let owner = pod.controller.as_ref().filter(|it| it.uid == ours.uid());
            let labels = match owner {
                None if !is_free || selector.matches(&pod.labels) => BTreeMap::new(),
                _ => template.clone(),
            };
            change(pod, labels, owner.map(|owner| owner.uid.clone()))
        });
    if let Some(step) = changed(changes) {
        return Ok(step);
    }
    let Some(daemon_set) = daemon_set else {
        let create = || Step::Create(Side::DaemonSet, guarded(&target, name));
        return Ok(to_be_free(state).unwrap_or_else(create));
    };
    if daemon_set.migration().is_some() {
        return Ok(adoption(state, daemon_set).unwrap_or(Step::Finish(Side::DaemonSet)));
    }
    let owned = state
        .pods
        .iter()
        .filter(|pod| state.is_of(pod, Side::DaemonSet) && !pod.is_deleting);
    let changes = owned.filter_map(|pod| {
        let labels = OUR_LABELS.into_iter().filter_map(|key| {
            let wanted = template.get(key).cloned().flatten();
            let is_right = pod.labels.get(key) == wanted.as_ref();
            (!is_right).then(|| (key.to_owned(), wanted))
        });
        change(pod, labels.collect(), None)
    });
    Ok(changed(changes).unwrap_or(Step::Orphan(Side::Ours)))
}

/// What is to be done before the operator is known to leave the pods alone, for a migration this way.
fn begun(to: Side, state: &State, ours: &Live) -> Result<Option<Step>, String> {
    let (name, daemon_set) = (&state.name, state.live(Side::DaemonSet));
    let is_marked = daemon_set.is_some_and(|daemon_set| daemon_set.migration().is_some());
    let is_rejected = |it: &Value| it["type"] == ACCEPTED && it["status"] == "False";
    if let Some(why) = ours.condition(is_rejected) {
        return Err(format!("MyDaemonSet {name:?} is invalid: {why}"));
    }
    Ok(match ours.migration() {
        Some(_) if ours.leads_away_from(to) => Some(Step::Begin),
        Some(by) if ours.target().is_none() => {
            return Err(format!(
                "MyDaemonSet {name:?} has the annotation {MIGRATION_ANNOTATION} of another client: {by}"
            ));
        }
        Some(_) => (!ours.is_left_alone()).then(|| {
            Step::Wait(format!(
                "the operator to leave the pods of MyDaemonSet {name} alone"
            ))
        }),
        None if daemon_set.is_some() && !is_marked => {
            return Err(format!(
                "there are both a DaemonSet and a MyDaemonSet {name:?}: delete the one that is not to stay, and run this again"
            ));
        }
        None if to == Side::DaemonSet || is_marked => Some(Step::Begin),
        None if ours.kept().is_some() => Some(Step::Follow),
        None => {
            return Err(format!(
                "there is no DaemonSet {name:?} to migrate, and a MyDaemonSet of that name exists"
            ));
        }
    })
}

impl State {
    pub(super) fn live(&self, side: Side) -> Option<&Live> {
        match side {
            Side::DaemonSet => self.daemon_set.as_ref(),
            Side::Ours => self.ours.as_ref(),
        }
    }

    /// Whether a migration is under way.
    pub(super) fn is_begun(&self) -> bool {
        let ours = self.ours.as_ref().and_then(Live::target);
        let daemon_set = self.daemon_set.as_ref().and_then(Live::migration);
        ours.is_some() || daemon_set.is_some()
    }

    /// Whether the pod is controlled by the object of that kind.
    fn is_of(&self, pod: &Pod, side: Side) -> bool {
        let controller = pod.controller.as_ref();
        controller.is_some_and(|it| it.kind == side.kind() && it.name == self.name)
    }

    /// The pods that concern either object: theirs, and orphans.
    fn pods_at_stake(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| {
            pod.controller.is_none()
                || self.is_of(pod, Side::DaemonSet)
                || self.is_of(pod, Side::Ours)
        })
    }
}

/// The `MyDaemonSet` in place of a `DaemonSet`, with what the way back needs.
pub(super) fn held(daemon_set: &Live, name: &str) -> Result<Value, String> {
    let source = manifest(&settled(daemon_set, name)?);
    let mut object = to_ours(&source)?.object;
    *member(&mut object, &["metadata", "annotations", KEPT]) = source.to_string().into();
    Ok(object)
}

/// The `DaemonSet` in place of a `MyDaemonSet`.
pub(super) fn translated(ours: &Live) -> Result<Translation, String> {
    let (ours, Some(kept)) = (manifest(&ours.0), ours.kept()) else {
        return to_daemon_set(&manifest(&ours.0), None);
    };
    let before = to_ours(&kept)?.object;
    to_daemon_set(&ours, Some((&kept, &before)))
}

/// The value of the annotation on a `MyDaemonSet`. With the time, so that what the operator says about an earlier
/// migration is not taken for an answer.
pub(super) fn mark(to: Side, name: &str) -> String {
    let now = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%S%.3fZ");
    format!("{}{name}, since {now}", to.command())
}

/// A `DaemonSet` without what a migration has changed; what another client has changed meanwhile stays.
pub(super) fn settled(live: &Live, name: &str) -> Result<Value, String> {
    let mut object = live.0.clone();
    let Some(strategy) = live.migration() else {
        return Ok(object);
    };
    let strategy = serde_json::from_str(strategy).map_err(|error| {
        format!("the annotation {MIGRATION_ANNOTATION} of DaemonSet {name:?} is not its strategy: {error}")
    })?;
    let current = member(&mut object, &["spec", "updateStrategy"]);
    if current["type"] == "OnDelete" {
        *current = strategy;
    }
    if is_guarded(&object, name) {
        unguard(&mut object, name);
    }
    let annotations = member(&mut object, &["metadata", "annotations"]);
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(MIGRATION_ANNOTATION);
    }
    Ok(object)
}

/// Takes the guard out, and what is empty without it.
fn unguard(daemon_set: &mut Value, name: &str) {
    if let Some(terms) = member(daemon_set, &GUARDS).as_array_mut() {
        terms.retain(|term| *term != guard(name));
    }
    for end in (0..GUARDS.len()).rev() {
        let (above, field) = (member(daemon_set, &GUARDS[..end]), GUARDS[end]);
        let is_empty = [json!([]), json!({})].contains(&above[field]);
        if let Some(above) = above.as_object_mut().filter(|_| is_empty) {
            above.remove(field);
        }
    }
}

/// The pods get ready for the operator.
fn hand_over(state: &State) -> Option<Step> {
    let step = to_be_free(state).or_else(|| label_ours(state));
    step.or_else(|| {
        // The operator takes no pod without a node, and the scheduler would place it beside the operator's.
        let unplaced = state.pods_at_stake();
        let unplaced = unplaced.filter(|pod| pod.node.is_empty() && !pod.is_deleting);
        deleted(unplaced, "without a node")
    })
}

/// Of two pods on a node, as in a roll-out with maxSurge, one goes before the `DaemonSet` comes: the one that is not ready,
/// else the newer. A guarded `DaemonSet` would keep the older one, ready or not.
fn one_for_each_node(state: &State) -> Option<Step> {
    let mut placed: Vec<&Pod> = state
        .pods_at_stake()
        .filter(|pod| !pod.is_deleting && !pod.node.is_empty())
        .collect();
    // One of its own before an orphan, which may be a user's; and what runs before what has ended.
    placed.sort_by_key(|pod| {
        let is_free = pod.controller.is_none();
        let rank = (is_free, pod.has_ended, !pod.is_ready, pod.created);
        (&pod.node, rank)
    });
    let second = placed.windows(2).filter(|two| two[0].node == two[1].node);
    deleted(second.map(|two| two[1]), "beside another on its node")
}

/// What must be over once the `DaemonSet` is deleted and its pods were orphaned.
fn to_be_free(state: &State) -> Option<Step> {
    let pods = state.pods.iter();
    let pods = named(pods.filter(|pod| state.is_of(pod, Side::DaemonSet)))?;
    Some(Step::Wait(format!("{pods} to be without owner or gone")))
}

/// What must be over before the guarded `DaemonSet` may replace pods.
fn adoption(state: &State, live: &Live) -> Option<Step> {
    let name = &state.name;
    let free = state
        .pods_at_stake()
        .filter(|pod| !state.is_of(pod, Side::DaemonSet));
    let (leaving, free): (Vec<&Pod>, Vec<&Pod>) = free.partition(|pod| pod.is_deleting);
    // Without the guard they would be placed.
    let placed: BTreeSet<&str> = state
        .pods_at_stake()
        .map(|pod| pod.node.as_str())
        .filter(|node| !node.is_empty())
        .collect();
    let second = state
        .pods_at_stake()
        .filter(|pod| pod.node.is_empty() && placed.contains(pod.meant_for.as_str()));
    let wait = if let Some(pods) = named(free) {
        format!("DaemonSet {name} to adopt {pods}")
    } else if let Some(pods) = named(leaving) {
        format!("{pods} to be gone")
    } else if let Some(pods) = named(second) {
        format!("DaemonSet {name} to delete {pods}")
    } else if !live.is_observed() {
        format!("the controller of DaemonSet {name} to see it")
    } else {
        return None;
    };
    Some(Step::Wait(wait))
}

/// The pods of a `DaemonSet` get the operator's labels, those that are leaving too: it counts them on their nodes. Those that
/// have a revision are the operator's own.
fn label_ours(state: &State) -> Option<Step> {
    let wanted = [(NAME_LABEL, state.name.as_str()), (MANAGED_BY, MANAGER)];
    let changes = state.pods_at_stake().filter_map(|pod| {
        let mut labels: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (key, value) in wanted {
            if pod.labels.get(key).map(String::as_str) != Some(value) {
                labels.insert(key.to_owned(), Some(value.to_owned()));
            }
        }
        if !pod.labels.contains_key(REVISION_LABEL) {
            labels.insert(REVISION_LABEL.to_owned(), Some(REVISION.to_owned()));
        }
        change(pod, labels, None)
    });
    changed(changes)
}

fn change(
    pod: &Pod,
    labels: BTreeMap<String, Option<String>>,
    owner: Option<String>,
) -> Option<Change> {
    (!labels.is_empty() || owner.is_some()).then(|| Change {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        labels,
        owner,
    })
}

fn changed(changes: impl Iterator<Item = Change>) -> Option<Step> {
    let changes: Vec<Change> = changes.collect();
    (!changes.is_empty()).then_some(Step::Change(changes))
}

fn deleted<'a>(pods: impl Iterator<Item = &'a Pod>, why: &'static str) -> Option<Step> {
    let pods: Vec<Pod> = pods.cloned().collect();
    (!pods.is_empty()).then_some(Step::Delete(pods, why))
}

fn strings(labels: &Value) -> BTreeMap<String, Option<String>> {
    let labels = labels.as_object().into_iter().flatten();
    labels
        .map(|(key, value)| (key.clone(), value.as_str().map(str::to_owned)))
        .collect()
}

/// `3 pods (a, b, c)`; `None` if there are none.
fn named<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<String> {
    let names: Vec<&str> = pods.into_iter().map(|pod| pod.name.as_str()).collect();
    let shown = names.get(..MAX_NAMES).unwrap_or(&names).join(", ");
    let more = if names.len() > MAX_NAMES { ", ..." } else { "" };
    (!names.is_empty()).then(|| format!("{} ({shown}{more})", count(names.len())))
}

/// `3 pods`.
pub(super) fn count(pods: usize) -> String {
    let plural = if pods == 1 { "" } else { "s" };
    format!("{pods} pod{plural}")
}

/// The guarded form of a `DaemonSet`: it replaces nothing, and its pods stay off nodes with a pod of the `MyDaemonSet`.
fn guarded(daemon_set: &Value, name: &str) -> Value {
    let mut object = daemon_set.clone();
    let strategy = object["spec"]["updateStrategy"].to_string();
    *member(&mut object, &MARK) = strategy.into();
    *member(&mut object, &["spec", "updateStrategy"]) = json!({"type": "OnDelete"});
    let terms = member(&mut object, &GUARDS);
    let mut required = terms.as_array().cloned().unwrap_or_default();
    required.push(guard(name));
    *terms = required.into();
    object
}

/// Where the guard of a `DaemonSet` is.
const GUARDS: [&str; 6] = [
    "spec",
    "template",
    "spec",
    "affinity",
    "podAntiAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
];

fn guard(name: &str) -> Value {
    json!({
        "labelSelector": {"matchLabels": {NAME_LABEL: name}},
        "topologyKey": "kubernetes.io/hostname",
    })
}

fn is_guarded(daemon_set: &Value, name: &str) -> bool {
    let terms = GUARDS.iter().fold(daemon_set, |value, key| &value[*key]);
    let terms = terms.as_array();
    terms.is_some_and(|terms| terms.contains(&guard(name)))
}

#[cfg(test)]
mod tests;
