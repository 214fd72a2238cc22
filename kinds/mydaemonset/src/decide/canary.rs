//! The canary of a roll-out: how many nodes get the newest revision before all others, and for how long.
//!
//! Which ones, [`super::candidates`] chooses. How long a canary has soaked follows from its pod.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::strategy::Amount;
use crate::crd::MyDaemonSetSpec;
use crate::observe::node::NodeView;

/// `canary.promote`: the other nodes follow after the soak.
pub(crate) const AUTOMATIC: &str = "Automatic";
/// `canary.promote`: they follow when a user approves the revision.
pub(crate) const MANUAL: &str = "Manual";
/// The default of `canary.nodes`.
pub(crate) const DEFAULT_NODES: u16 = 1;
/// The default of `canary.soakSeconds`: that of `ExtendedDaemonSet`, and of the window of the auto-pause.
pub(crate) const DEFAULT_SOAK: i32 = 600;
/// The maximum of `canary.soakSeconds`: 30 days.
pub(crate) const MAX_SOAK: i64 = 2_592_000;

/// `spec.updateStrategy.rollingUpdate.canary` as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canary {
    /// How many nodes are canaries.
    pub(crate) nodes: Amount,
    /// The labels that they must have.
    pub(crate) selector: BTreeMap<String, String>,
    /// For how long the revision must be available on all of them.
    pub(crate) soak: TimeDelta,
    /// Whether a user is to approve the revision.
    pub(crate) manual: bool,
}

impl Canary {
    /// The canary of a valid, defaulted spec, if it asks for one.
    pub(crate) fn from_spec(spec: &MyDaemonSetSpec) -> Option<Self> {
        let rolling = spec.update_strategy.as_ref()?.rolling_update.as_ref()?;
        let canary = rolling.canary.as_ref()?;
        let nodes = canary.nodes.as_ref();
        let nodes = nodes.and_then(|nodes| Amount::parse(nodes).ok());
        let soak = canary.soak_seconds.unwrap_or(DEFAULT_SOAK);
        Some(Self {
            nodes: nodes.unwrap_or(Amount::Nodes(DEFAULT_NODES.into())),
            selector: canary.node_selector.clone().unwrap_or_default(),
            soak: TimeDelta::seconds(soak.into()),
            manual: canary.promote.as_deref() == Some(MANUAL),
        })
    }

    /// Whether a node may be a canary.
    pub(super) fn fits(&self, node: &NodeView) -> bool {
        let mut labels = self.selector.iter();
        labels.all(|(key, value)| node.label(key) == Some(value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_spec_is_read_with_its_defaults() {
        let canary = |canary| {
            let spec = json!({"updateStrategy": {"rollingUpdate": {"canary": canary}}});
            Canary::from_spec(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(canary(json!(null)), None);
        let defaults = Canary {
            nodes: Amount::Nodes(1),
            selector: BTreeMap::new(),
            soak: TimeDelta::minutes(10),
            manual: false,
        };
        assert_eq!(canary(json!({})), Some(defaults));
        let all = canary(
            json!({"nodes": "10%", "nodeSelector": {"a": "b"}, "soakSeconds": 0, "promote": "Manual"}),
        );
        let expected = Canary {
            nodes: Amount::Percent(10),
            selector: [("a".to_owned(), "b".to_owned())].into(),
            soak: TimeDelta::zero(),
            manual: true,
        };
        assert_eq!(all, Some(expected));
    }
}
