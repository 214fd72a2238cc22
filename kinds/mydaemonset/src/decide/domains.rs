//! One topology domain after the other: of which domain a node is, which comes first, and whose turn it is.
//!
//! That follows from the nodes and their pods alone, and not from what is held: a domain that waits is judged as if it did
//! not. A node of a finished domain that is to get the revision after all, such as one that is uncordoned, has that domain
//! take its turn again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::observed::InDomain;
use crate::crd::MyDaemonSetSpec;
use crate::observe::node::NodeView;

/// How many values `order` may have.
pub(crate) const MAX_ORDER: usize = 100;
/// The place of the nodes without the label: the last.
const UNLABELLED: usize = usize::MAX;

/// The place of a domain, and the value of its label: the lowest has its turn first.
pub(crate) type Rank<'a> = (usize, &'a str);

/// `spec.updateStrategy.rollingUpdate.topologyKey` and `order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domains {
    key: String,
    order: Vec<String>,
}

impl Domains {
    /// Those that a valid spec asks for, if it does.
    pub(crate) fn from_spec(spec: &MyDaemonSetSpec) -> Option<Self> {
        let rolling = spec.update_strategy.as_ref()?.rolling_update.as_ref()?;
        Some(Self {
            key: rolling.topology_key.clone()?,
            order: rolling.order.clone().unwrap_or_default(),
        })
    }

    /// The domain of a node. Those that `order` does not have come after it, by name.
    pub(super) fn rank<'a>(&self, node: &'a NodeView) -> Rank<'a> {
        let Some(value) = node.label(&self.key) else {
            return (UNLABELLED, "");
        };
        let place = self.order.iter().position(|first| first == value);
        (place.unwrap_or(self.order.len()), value)
    }

    /// A domain in words, such as `zone b`.
    pub(super) fn name(&self, (place, value): Rank<'_>) -> String {
        let key = self.key.rsplit('/').next().unwrap_or_default();
        if place == UNLABELLED {
            format!("nodes without {key}")
        } else {
            format!("{key} {value}")
        }
    }
}

/// The domain whose nodes get the newest revision now. Those of later ones are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    domains: Arc<Domains>,
    place: usize,
    value: Box<str>,
}

/// What the nodes of a domain come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Those that a percentage refers to.
    pub(super) nodes: usize,
    /// Those of them with a pod of the newest revision.
    pub(super) updated: usize,
    /// Those that the next domain waits for.
    pub(super) open: usize,
    /// Those of them that are still to get the newest revision.
    pub(super) behind: usize,
    /// Those of them that failed with it, and are Ready.
    pub(super) failed: usize,
}

impl Turn {
    /// The first domain that others wait for, if the newest revision is still to reach any node.
    pub(super) fn first<'a>(
        domains: &Arc<Domains>,
        nodes: impl Iterator<Item = (&'a NodeView, Tally)>,
    ) -> Option<(Self, Tally)> {
        let mut all: BTreeMap<Rank<'_>, Tally> = BTreeMap::new();
        for (node, tally) in nodes {
            all.entry(domains.rank(node)).or_default().add(tally);
        }
        if all.values().all(|tally| tally.behind == 0) {
            return None;
        }
        let mut all = all.into_iter();
        let ((place, value), tally) = all.find(|(_, tally)| tally.open > 0)?;
        let turn = Self {
            domains: domains.clone(),
            place,
            value: value.into(),
        };
        Some((turn, tally))
    }

    /// Whether a node is of a later domain.
    pub(super) fn precedes(&self, node: &NodeView) -> bool {
        self.domains.rank(node) > (self.place, &*self.value)
    }

    /// The domain for the status.
    pub(super) fn observed(&self, tally: Tally) -> InDomain {
        InDomain {
            name: self.domains.name((self.place, &self.value)),
            updated: tally.updated,
            nodes: tally.nodes,
        }
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.updated += other.updated;
        self.open += other.open;
        self.behind += other.behind;
        self.failed += other.failed;
    }

    /// Whether nothing but nodes that failed keeps the roll-out from the next domain.
    pub(super) fn is_stuck(self) -> bool {
        self.failed > 0 && self.failed == self.open
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn domains(rolling: &Value) -> Option<Domains> {
        let spec = json!({"updateStrategy": {"rollingUpdate": rolling}});
        Domains::from_spec(&serde_json::from_value(spec).unwrap())
    }

    fn node(tier: Option<&str>) -> NodeView {
        let label = tier.map(|tier| ("example.com/tier", tier));
        NodeView {
            labels: label.into_iter().collect(),
            ..NodeView::default()
        }
    }

    #[test]
    fn domains_come_in_the_order_of_the_spec_then_by_name_and_nodes_without_the_label_last() {
        assert_eq!(domains(&json!({})), None);
        let domains =
            domains(&json!({"topologyKey": "example.com/tier", "order": ["test", "prod"]}))
                .unwrap();
        let mut nodes = [Some("b"), None, Some("prod"), Some(""), Some("test")].map(node);
        nodes.sort_by(|a, b| domains.rank(a).cmp(&domains.rank(b)));
        let names = nodes
            .each_ref()
            .map(|node| domains.name(domains.rank(node)));
        let expected = [
            "tier test",
            "tier prod",
            "tier ",
            "tier b",
            "nodes without tier",
        ];
        assert_eq!(names, expected);
    }
}
