//! What a user forbids: deletions under a freeze, steps outside of windows, and two domains at a time. All of it is read from
//! the JSON of the object, and none of it by the operator's own code.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use my_operator::kinds::mydaemonset::crd::MyDaemonSetStatus;
use robfig_cron::{Zone, parse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wall_clock_controller::reconcile::condition::Condition;

use super::{Judge, Node, NodeState, PodState, Spec};

/// So many seconds may lie between a decision and the event of what was done.
const SLACK: i64 = 10;

/// The settings of a spec that say when a step may be made, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) windows: Vec<Window>,
    pub(super) topology_key: Option<String>,
    pub(super) order: Vec<String>,
    /// Canaries are of any domain.
    pub(super) has_canary: bool,
}

/// A time in which steps may be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Window {
    /// When it opens.
    pub(super) schedule: String,
    /// For how long, such as `1h30m`.
    pub(super) duration: String,
    #[serde(default)]
    pub(super) time_zone: Option<String>,
    /// Days on which it is closed.
    #[serde(default)]
    pub(super) excluded_dates: Vec<String>,
}

/// What an acknowledged freeze forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// To delete a pod that runs.
    Deletions,
    /// To create or delete any.
    All,
}

impl Settings {
    pub(super) fn of(object: &Value) -> Self {
        let rolling = &object["spec"]["updateStrategy"]["rollingUpdate"];
        Self {
            windows: list(&rolling["windows"]),
            topology_key: rolling["topologyKey"].as_str().map(str::to_owned),
            order: list(&rolling["order"]),
            has_canary: rolling["canary"].is_object(),
        }
    }

    /// Whether no window was open when the operator may have decided on what is seen now.
    pub(super) fn is_closed(&self, now: DateTime<Utc>) -> bool {
        let is_open = |ago| {
            let then = now - TimeDelta::seconds(ago);
            self.windows.iter().any(|window| window.is_open(then))
        };
        !self.windows.is_empty() && !(0..=SLACK).any(is_open)
    }

    /// The place of a node's domain: those of the order come first, then others by name, and last the nodes without the
    /// label.
    fn place<'a>(&self, labels: &'a BTreeMap<String, String>) -> Option<(usize, &'a str)> {
        let key = self.topology_key.as_ref()?;
        let Some(value) = labels.get(key) else {
            return Some((usize::MAX, ""));
        };
        let place = self.order.iter().position(|first| first == value);
        Some((place.unwrap_or(self.order.len()), value.as_str()))
    }
}

/// A list of the object, if it has it. One that cannot be read must not look like none.
fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    if value.is_null() {
        return Vec::new();
    }
    serde_json::from_value(value.clone()).unwrap()
}

impl Window {
    fn is_open(&self, at: DateTime<Utc>) -> bool {
        let zone = Zone::named(self.time_zone.as_deref().unwrap_or("Etc/UTC")).unwrap();
        let earliest = at - span(&self.duration);
        let due = parse(&self.schedule)
            .unwrap()
            .next(&zone, earliest, earliest);
        let today = zone.at(at.timestamp()).unwrap().local.date().to_string();
        due.is_some_and(|due| due <= at) && !self.excluded_dates.contains(&today)
    }
}

/// Hours, minutes and seconds in words such as `1h30m`.
fn span(text: &str) -> TimeDelta {
    let (mut seconds, mut number) = (0, 0);
    for c in text.chars() {
        let unit = match c {
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            digit => {
                number = number * 10 + i64::from(digit.to_digit(10).unwrap());
                continue;
            }
        };
        seconds += number * unit;
        number = 0;
    }
    TimeDelta::seconds(seconds)
}

/// What the status says is frozen, if the annotation has that value.
pub(super) fn frozen(value: Option<&str>, status: &MyDaemonSetStatus) -> Option<Frozen> {
    let value = value?;
    let first = value.split_whitespace().next()?;
    let first = first.trim_end_matches([',', ':', ';', '.']);
    let is_so = |condition: &Condition| condition.type_ == "Frozen" && condition.status == "True";
    let says_so = status.freeze.as_deref() == Some(value) && status.conditions.iter().any(is_so);
    if value.trim() == "false" || !says_so {
        None
    } else if first == "all" {
        Some(Frozen::All)
    } else {
        Some(Frozen::Deletions)
    }
}

impl Judge<'_> {
    /// Why that pod must not be deleted, whatever the reason.
    pub(super) fn freeze_forbids(&self, pod: &PodState) -> Option<String> {
        // Of two operators, one may not know of the freeze when the other acknowledges it.
        let frozen = self.frozen.filter(|_| !self.rules.two_operators)?;
        // The collector takes the pods of a node that is gone, also under a freeze.
        let node = self.nodes.get(&pod.node);
        if node.is_none_or(|node| node.state == NodeState::default()) {
            return None;
        }
        match frozen {
            Frozen::Deletions if pod.ended => None,
            Frozen::Deletions => Some("a pod that runs is deleted under a freeze".to_owned()),
            Frozen::All => Some("a pod is deleted under a freeze of everything".to_owned()),
        }
    }

    /// Whether a roll-out of that spec waits for a window. A way back does not.
    pub(super) fn is_outside(&self, spec: &Spec) -> bool {
        let goes_back = self.undone || self.completed.first() == Some(&spec.image);
        !goes_back && spec.settings.is_closed(self.now)
    }

    /// Whether the domain of that node waits for another one. The revisions of the last two roll-outs that were completed go
    /// to all domains at once, as does the way back.
    pub(super) fn is_out_of_turn(&self, name: &str, spec: &Spec) -> bool {
        let settings = &spec.settings;
        let goes_back = self.undone || self.completed.contains(&spec.image);
        let Some(place) = settings.place(&self.nodes[name].state.labels) else {
            return false;
        };
        let waits_for = |(other, node): (&String, &Node)| {
            let before = settings.place(&node.state.labels);
            let is_left = before < Some(place) && self.is_left(other, node, spec);
            let is_worked_on = before != Some(place) && self.is_worked_on(other, node);
            is_left || is_worked_on
        };
        !goes_back && !settings.has_canary && self.nodes.iter().any(waits_for)
    }

    /// Whether the operator knows that the revision can reach the node, and has not.
    fn is_left(&self, name: &str, node: &Node, spec: &Spec) -> bool {
        let state = &node.state;
        let is_reachable = self.is_fit(node) && state.not_ready_since.is_none() && !state.cordoned;
        let mut since = [node.fit_since, node.ready_since, node.cordon_since].into_iter();
        let is_known = since.all(|since| self.is_known(since, false));
        let is_old = self.on_node(name).all(|pod| {
            let is_old = pod.state.image != spec.image && pod.state.is_ready();
            is_old && self.is_known(pod.since, true)
        });
        let has_pod = self.on_node(name).next().is_some();
        is_reachable && is_known && is_old && has_pod && spec.partition == 0
    }

    /// Whether a step of this roll-out has left the node without a pod that serves.
    fn is_worked_on(&self, name: &str, node: &Node) -> bool {
        let slot = self.slots.get(name);
        let unserved = slot.and_then(|slot| slot.unserved.filter(|_| slot.counted.is_some()));
        let is_own = unserved.is_some_and(|since| since.own && since.version > self.settled);
        is_own && self.is_counted(name, node) && !self.is_served(name)
    }
}
