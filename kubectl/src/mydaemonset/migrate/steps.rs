//! What a migration does next: a pure function of what is in the cluster, so that another run of the command goes on where
//! the last one ended.
//!
//! Either way, the object that has the pods is the source and the other one the target:
//!
//! 1. keep both manifests and the direction;
//! 2. stop the source's own roll-out, so that nothing of it comes late;
//! 3. label the pods as the target's;
//! 4. delete the source and orphan its pods;
//! 5. remove what the target cannot adopt;
//! 6. create the target, which adopts the pods and replaces them by its own rules.
//!
//! On the way back, the built-in controller may not see the pods yet when it sees the `DaemonSet`, and would make a second
//! pod on each node. So the `DaemonSet` begins as a guarded one: it replaces nothing, and the scheduler keeps its pods off
//! the nodes that have one. The last step gives it its own template and strategy.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::SelectorExt as _;
use my_operator::kinds::mydaemonset::names::{NAME_LABEL, REVISION_LABEL};
use my_operator_runtime::reconcile::write::{MANAGED_BY, MANAGER};
use serde_json::{Value, json};

use super::translate::{MARKER, OUR_LABELS, member, selector, to_daemon_set, to_ours};

/// The revision of pods that a `DaemonSet` made: the hash of no revision is this long.
pub(super) const REVISION: &str = "daemonset";
/// How many pods one step labels or deletes.
const MAX_PODS: usize = 500;
/// How many names a message has.
const MAX_NAMES: usize = 3;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a `DaemonSet` to a `MyDaemonSet`.
    Forward,
    Back,
}

/// One of the two objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    DaemonSet,
    Ours,
}

impl Direction {
    pub(super) fn source(self) -> Side {
        match self {
            Self::Forward => Side::DaemonSet,
            Self::Back => Side::Ours,
        }
    }

    pub(super) fn target(self) -> Side {
        match self {
            Self::Forward => Side::Ours,
            Self::Back => Side::DaemonSet,
        }
    }
}

impl Side {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::DaemonSet => "DaemonSet",
            Self::Ours => "MyDaemonSet",
        }
    }
}

/// What a migration has done to an object: the value of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// Its roll-out was stopped.
    Stopped,
    /// It is the guarded `DaemonSet`.
    Guarded,
}

impl Marker {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Guarded => "guarded",
        }
    }

    pub(super) fn parse(text: &str) -> Self {
        match text {
            "guarded" => Self::Guarded,
            _ => Self::Stopped,
        }
    }
}

/// One of the two objects, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    pub(super) uid: String,
    /// `metadata.resourceVersion`.
    pub(super) version: String,
    /// Its controller has seen the present spec.
    pub(super) is_observed: bool,
    pub(super) is_deleting: bool,
    /// Its spec is that of its creation.
    pub(super) is_as_created: bool,
    /// Kind and name of the object that controls it.
    pub(super) controller: Option<String>,
    pub(super) marker: Option<Marker>,
    pub(super) manifest: Value,
}

/// The manifests that are kept, and which way was begun.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) direction: Direction,
    pub(super) daemon_set: Value,
    pub(super) ours: Value,
}

impl Kept {
    pub(super) fn manifest(&self, side: Side) -> &Value {
        match side {
            Side::DaemonSet => &self.daemon_set,
            Side::Ours => &self.ours,
        }
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
    /// Kind and name of its controller.
    pub(super) controller: Option<(String, String)>,
    /// `spec.nodeName`; empty while the scheduler has not placed it.
    pub(super) node: String,
    /// The node that it is meant for, where it is not placed.
    pub(super) meant_for: String,
    pub(super) is_deleting: bool,
}

/// What is in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) kept: Option<Kept>,
    pub(super) daemon_set: Option<Live>,
    pub(super) ours: Option<Live>,
    pub(super) pods: Vec<Pod>,
}

/// New labels of a pod; `None` removes one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Relabel {
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, Option<String>>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Keep the manifests.
    Keep(Kept),
    /// Stop the roll-out of that object.
    Stop(Side),
    Label(Vec<Relabel>),
    /// Delete that object, and let its pods stay.
    Orphan(Side),
    /// Delete pods that no node has yet. Each has the version that was seen: it may be placed meanwhile.
    DeleteUnplaced(Vec<Pod>),
    Create(Side),
    /// Give that object its final form.
    Finish(Side),
    /// Nothing can be done until this is over.
    Wait(String),
    /// The target has the pods: its roll-out is the rest.
    Follow,
}

/// The next step.
pub(super) fn next(direction: Direction, state: &State) -> Result<Step, String> {
    let name = &state.name;
    let (source, target) = (direction.source(), direction.target());
    for (side, live) in [(source, state.live(source)), (target, state.live(target))] {
        if live.is_some_and(|live| live.is_deleting) {
            let kind = side.kind();
            return Ok(Step::Wait(format!("{kind} {name} to be gone")));
        }
    }
    if state.live(source).is_some() && state.live(target).is_some() {
        return Err(format!(
            "there are both a DaemonSet and a MyDaemonSet {name:?}: delete the one that is not to stay, and run this again"
        ));
    }
    let wanted = to_keep(direction, state)?;
    if state.kept.as_ref() != Some(&wanted) {
        return Ok(Step::Keep(wanted));
    }
    match (state.live(source), state.live(target)) {
        (Some(live), _) => give_up(direction, state, live, &wanted),
        (None, None) => hand_over(direction, state, &wanted),
        (None, Some(live)) => Ok(take_over(direction, state, live, &wanted)),
    }
}

impl State {
    pub(super) fn live(&self, side: Side) -> Option<&Live> {
        match side {
            Side::DaemonSet => self.daemon_set.as_ref(),
            Side::Ours => self.ours.as_ref(),
        }
    }

    /// Whether the pod is controlled by the object of that kind.
    fn is_of(&self, pod: &Pod, side: Side) -> bool {
        let controller = pod.controller.as_ref();
        controller.is_some_and(|(kind, name)| kind == side.kind() && *name == self.name)
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

/// What is to be kept before anything is changed.
fn to_keep(direction: Direction, state: &State) -> Result<Kept, String> {
    let name = &state.name;
    let kept = state.kept.as_ref();
    let source = direction.source();
    let Some(live) = state.live(source) else {
        let kept = kept.ok_or_else(|| match state.live(direction.target()) {
            Some(_) => format!(
                "there is no {} {name:?} to migrate, and a {} of that name exists",
                source.kind(),
                direction.target().kind()
            ),
            None => format!("there is no {} {name:?}", source.kind()),
        })?;
        return Ok(Kept {
            direction,
            ..kept.clone()
        });
    };
    if let Some(controller) = &live.controller {
        return Err(format!(
            "{} {name:?} is controlled by {controller}, which would put it back: take it out of that first",
            source.kind()
        ));
    }
    let manifest = match (live.marker, kept) {
        // What it is to become was kept before it was made.
        (Some(Marker::Guarded), Some(kept)) if live.is_as_created => {
            return Ok(Kept {
                direction,
                ..kept.clone()
            });
        }
        (Some(_), Some(kept)) => unmarked(source, live, kept, name),
        _ => live.manifest.clone(),
    };
    // Turning round, or going on: the other manifest stays as long as this one does.
    if let Some(kept) = kept.filter(|kept| *kept.manifest(source) == manifest) {
        return Ok(Kept {
            direction,
            ..kept.clone()
        });
    }
    Ok(match direction {
        Direction::Forward => Kept {
            direction,
            ours: to_ours(&manifest)?.object,
            daemon_set: manifest,
        },
        Direction::Back => {
            let before = kept.map(|kept| (&kept.daemon_set, &kept.ours));
            Kept {
                direction,
                daemon_set: to_daemon_set(&manifest, before)?.object,
                ours: manifest,
            }
        }
    })
}

/// What an object would be without the changes of a migration, with those of others: what it was is only put back where it
/// still is what the migration made of it.
pub(super) fn unmarked(side: Side, live: &Live, kept: &Kept, name: &str) -> Value {
    let mut manifest = live.manifest.clone();
    let kept = kept.manifest(side);
    let strategy = member(&mut manifest, &["spec", "updateStrategy"]);
    let before = &kept["spec"]["updateStrategy"];
    match side {
        Side::DaemonSet if strategy["type"] == "OnDelete" => *strategy = before.clone(),
        Side::Ours if strategy["rollingUpdate"]["paused"] == true => {
            let mut stopped = before.clone();
            *member(&mut stopped, &["rollingUpdate", "paused"]) = true.into();
            if *strategy == stopped {
                *strategy = before.clone();
            } else {
                let paused = before["rollingUpdate"]["paused"] == true;
                *member(strategy, &["rollingUpdate", "paused"]) = paused.into();
            }
        }
        _ => {}
    }
    if live.marker == Some(Marker::Guarded) {
        unguard(&mut manifest, kept, name);
    }
    manifest
}

/// Takes the guard out of a `DaemonSet`.
fn unguard(manifest: &mut Value, kept: &Value, name: &str) {
    let affinity = "/spec/template/spec/affinity";
    if manifest.pointer(affinity) == guarded(kept, name).pointer(affinity) {
        let spec = manifest.pointer_mut("/spec/template/spec");
        let Some(spec) = spec.and_then(Value::as_object_mut) else {
            return;
        };
        match kept.pointer(affinity) {
            Some(before) => spec.insert("affinity".to_owned(), before.clone()),
            None => spec.remove("affinity"),
        };
        return;
    }
    // Another client has changed it: only the one term is ours.
    let place = format!("/{}", GUARDS.join("/"));
    let terms = manifest.pointer_mut(&place).and_then(Value::as_array_mut);
    if let Some(terms) = terms {
        terms.retain(|term| *term != guard(name));
    }
}

/// The pods that the `DaemonSet` of the way back cannot select, even with the labels of its template.
fn unselectable<'a>(state: &'a State, kept: &Kept) -> Result<Vec<&'a Pod>, String> {
    let spec = &kept.daemon_set["spec"];
    let selector = selector(&spec["selector"])?;
    let template = strings(&spec["template"]["metadata"]["labels"]);
    let pods = state.pods_at_stake().filter(|pod| {
        let mut labels = pod.labels.clone();
        for (key, value) in &template {
            labels.insert(key.clone(), value.clone().unwrap_or_default());
        }
        !pod.is_deleting && !selector.matches(&labels)
    });
    Ok(pods.collect())
}

/// The source exists: it is stopped and deleted.
fn give_up(direction: Direction, state: &State, live: &Live, kept: &Kept) -> Result<Step, String> {
    let source = direction.source();
    if direction == Direction::Back {
        let pods = unselectable(state, kept)?;
        if !pods.is_empty() {
            return Err(format!(
                "spec.selector of the DaemonSet excludes {} by a label: remove the label or delete the pods first",
                pods_text(&pods)
            ));
        }
    }
    if live.marker.is_none() {
        return Ok(Step::Stop(source));
    }
    if !live.is_observed {
        let (kind, name) = (source.kind(), &state.name);
        let text = format!("the controller of {kind} {name} to see its change");
        return Ok(Step::Wait(text));
    }
    // Early, so that the pods are without a controller for a short time only.
    if direction == Direction::Forward
        && let Some(step) = label_ours(state)
    {
        return Ok(step);
    }
    Ok(Step::Orphan(source))
}

/// Neither object exists: the pods are made ready for the target.
fn hand_over(direction: Direction, state: &State, kept: &Kept) -> Result<Step, String> {
    let source = direction.source();
    let owned: Vec<&Pod> = state
        .pods
        .iter()
        .filter(|pod| state.is_of(pod, source))
        .collect();
    if !owned.is_empty() {
        let text = format!("{} to be without owner or gone", pods_text(&owned));
        return Ok(Step::Wait(text));
    }
    match direction {
        Direction::Forward => {
            if let Some(step) = label_ours(state) {
                return Ok(step);
            }
            // The operator takes no pod without a node, and the scheduler would place it beside the operator's.
            let unplaced = state.pods_at_stake().filter(|pod| pod.node.is_empty());
            let unplaced: Vec<Pod> = unplaced.take(MAX_PODS).cloned().collect();
            if !unplaced.is_empty() {
                return Ok(Step::DeleteUnplaced(unplaced));
            }
        }
        Direction::Back => {
            let excluded = unselectable(state, kept)?;
            if !excluded.is_empty() {
                let pods = pods_text(&excluded);
                return Ok(Step::Wait(format!(
                    "{pods} to lose the label by which spec.selector of the DaemonSet excludes them"
                )));
            }
            let spec = &kept.daemon_set["spec"];
            let selector = selector(&spec["selector"])?;
            let template = &spec["template"]["metadata"]["labels"];
            let unselected = state
                .pods_at_stake()
                .filter(|pod| !selector.matches(&pod.labels));
            let relabels = unselected.map(|pod| Relabel {
                pod: pod.name.clone(),
                uid: pod.uid.clone(),
                labels: strings(template),
            });
            if let Some(step) = label(relabels.collect()) {
                return Ok(step);
            }
        }
    }
    Ok(Step::Create(direction.target()))
}

/// The target exists: it adopts the pods.
fn take_over(direction: Direction, state: &State, live: &Live, kept: &Kept) -> Step {
    let target = direction.target();
    if live.marker.is_some() {
        if direction == Direction::Back
            && let Some(wait) = wait_for_adoption(state, live)
        {
            return wait;
        }
        return Step::Finish(target);
    }
    if direction == Direction::Back {
        let template = strings(&kept.daemon_set["spec"]["template"]["metadata"]["labels"]);
        let relabels = state
            .pods
            .iter()
            .filter(|pod| state.is_of(pod, target) && !pod.is_deleting)
            .filter_map(|pod| {
                let labels = OUR_LABELS.into_iter().filter_map(|key| {
                    let wanted = template.get(key).cloned().flatten();
                    let is_right = pod.labels.get(key) == wanted.as_ref();
                    (!is_right).then(|| (key.to_owned(), wanted))
                });
                relabel(pod, labels.collect())
            });
        if let Some(step) = label(relabels.collect()) {
            return step;
        }
    }
    Step::Follow
}

/// What must be over before the guarded `DaemonSet` may replace pods.
fn wait_for_adoption(state: &State, live: &Live) -> Option<Step> {
    let name = &state.name;
    let owned = |pod: &&Pod| state.is_of(pod, Side::DaemonSet);
    let free: Vec<&Pod> = state.pods_at_stake().filter(|pod| !owned(pod)).collect();
    let (leaving, free): (Vec<&Pod>, Vec<&Pod>) = free.into_iter().partition(|pod| pod.is_deleting);
    if !free.is_empty() {
        let pods = pods_text(&free);
        return Some(Step::Wait(format!("DaemonSet {name} to adopt {pods}")));
    }
    if !leaving.is_empty() {
        let pods = pods_text(&leaving);
        return Some(Step::Wait(format!("{pods} to be gone")));
    }
    let placed: BTreeSet<&str> = state
        .pods_at_stake()
        .map(|pod| pod.node.as_str())
        .filter(|node| !node.is_empty())
        .collect();
    let second = state
        .pods_at_stake()
        .filter(|pod| pod.node.is_empty() && placed.contains(pod.meant_for.as_str()));
    let second: Vec<&Pod> = second.collect();
    if !second.is_empty() {
        let pods = pods_text(&second);
        return Some(Step::Wait(format!("DaemonSet {name} to delete {pods}")));
    }
    (!live.is_observed).then(|| Step::Wait(format!("the controller of DaemonSet {name} to see it")))
}

/// The pods of a `DaemonSet` get the operator's labels, those that are leaving too: it counts them on their nodes. Those that
/// have a revision are the operator's own.
fn label_ours(state: &State) -> Option<Step> {
    let wanted = [(NAME_LABEL, state.name.as_str()), (MANAGED_BY, MANAGER)];
    let relabels = state.pods_at_stake().filter_map(|pod| {
        let mut labels: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (key, value) in wanted {
            if pod.labels.get(key).map(String::as_str) != Some(value) {
                labels.insert(key.to_owned(), Some(value.to_owned()));
            }
        }
        if !pod.labels.contains_key(REVISION_LABEL) {
            labels.insert(REVISION_LABEL.to_owned(), Some(REVISION.to_owned()));
        }
        relabel(pod, labels)
    });
    label(relabels.collect())
}

fn relabel(pod: &Pod, labels: BTreeMap<String, Option<String>>) -> Option<Relabel> {
    (!labels.is_empty()).then(|| Relabel {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        labels,
    })
}

fn label(mut relabels: Vec<Relabel>) -> Option<Step> {
    relabels.truncate(MAX_PODS);
    (!relabels.is_empty()).then_some(Step::Label(relabels))
}

fn strings(labels: &Value) -> BTreeMap<String, Option<String>> {
    let labels = labels.as_object().into_iter().flatten();
    labels
        .map(|(key, value)| (key.clone(), value.as_str().map(str::to_owned)))
        .collect()
}

/// `3 pods (a, b, c)`.
fn pods_text(pods: &[&Pod]) -> String {
    let names: Vec<&str> = pods
        .iter()
        .take(MAX_NAMES)
        .map(|pod| pod.name.as_str())
        .collect();
    let more = if pods.len() > MAX_NAMES { ", ..." } else { "" };
    let noun = if pods.len() == 1 { "pod" } else { "pods" };
    format!("{} {noun} ({}{more})", pods.len(), names.join(", "))
}

/// The guarded form of a `DaemonSet`: it replaces nothing, and its pods stay off nodes with a pod of the `MyDaemonSet`.
pub(super) fn guarded(daemon_set: &Value, name: &str) -> Value {
    let mut object = daemon_set.clone();
    let marker = ["metadata", "annotations", MARKER];
    *member(&mut object, &marker) = Marker::Guarded.text().into();
    *member(&mut object, &["spec", "updateStrategy"]) = json!({"type": "OnDelete"});
    let terms = member(&mut object, &GUARDS);
    let mut required = terms.as_array().cloned().unwrap_or_default();
    required.push(guard(name));
    *terms = required.into();
    object
}

/// Where the guard of a `DaemonSet` is, and of its revisions.
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

/// Whether a `DaemonSet`, or the content of its revision, has the guard.
pub(super) fn is_guarded(object: &Value, name: &str) -> bool {
    let terms = GUARDS.iter().try_fold(object, |value, key| value.get(key));
    let mut terms = terms.and_then(Value::as_array).into_iter().flatten();
    terms.any(|term| *term == guard(name))
}

#[cfg(test)]
mod tests;
