//! Which nodes are the canaries of a roll-out.
//!
//! The choice follows from the nodes and their pods alone, so that every process makes the same one: a node that has the
//! revision stays a canary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::canary::Canary;
use super::input::RolloutInput;
use super::node::OnNode;
use super::placement::Eligibility;

/// The label with the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A node that may be a canary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    name: &'a Arc<str>,
    zone: &'a str,
    rank: Rank,
}

/// Which candidates come first, whatever their zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has the revision: otherwise more nodes than allowed would get it when others join or recover.
    Has,
    /// It has neither this revision nor that of the last completed roll-out, as the canaries of a revision that was given
    /// up. A change that repairs that one reaches them first, and no other node leaves what is known to work.
    Unsettled,
    Usual,
    /// It joined after the revision came, and must not push aside another that is about to get it.
    Joined,
    /// Its pod does not serve, and would say little about the revision.
    Unserved,
}

impl<'a> Candidate<'a> {
    /// The node, if it may be a canary. `is_free` says that it is to get the newest revision and that the partition does
    /// not hold it.
    pub(crate) fn new(
        name: &'a Arc<str>,
        on_node: &'a OnNode,
        is_free: bool,
        canary: &Canary,
        input: &RolloutInput<'_>,
    ) -> Option<Self> {
        let node = on_node.node.as_deref().filter(|node| canary.fits(node))?;
        let update = input.revisions.update;
        let eligibility = input.placement.eligibility(node);
        let takes_pods = eligibility == Eligibility::Run;
        let is_there = on_node.pods.iter().any(|pod| pod.revision == update);
        // Its pod was lost, and comes back.
        let last = on_node.last.as_deref();
        let was_there = last.is_some_and(|last| last.revision == update);
        let has_it = (is_there && eligibility != Eligibility::Leave) || (was_there && takes_pods);
        // A roll-out takes no pod of a node that is not Ready, or in maintenance.
        let is_up = node.not_ready_since.is_none() && !node.in_maintenance;
        let may_get_it = is_free && takes_pods && is_up;
        if !(has_it || may_get_it) {
            return None;
        }
        let current = input.revisions.current;
        let is_unsettled = on_node.pods.iter().any(|pod| pod.revision != current)
            || last.is_some_and(|last| last.revision != current);
        // Where the old pod is on its way out, the node is about to get the revision.
        let mut pods = on_node.pods.iter();
        let rank = if has_it {
            Rank::Has
        } else if is_unsettled {
            Rank::Unsettled
        } else if pods.any(|pod| !pod.deleting && !pod.is_ready()) {
            Rank::Unserved
        } else if node.created > input.revisions.update_since {
            Rank::Joined
        } else {
            Rank::Usual
        };
        let zone = node.label(ZONE).unwrap_or_default();
        Some(Self { name, zone, rank })
    }
}

/// The canaries: that many of the candidates, one of each zone, then a second one of each, in the order of their names.
pub(crate) fn choose(mut candidates: Vec<Candidate<'_>>, count: usize) -> BTreeSet<Arc<str>> {
    candidates.sort_unstable_by_key(|candidate| (candidate.rank, candidate.name));
    let mut of_zone: BTreeMap<&str, usize> = BTreeMap::new();
    let turns = candidates.into_iter().map(|candidate| {
        let Candidate { name, zone, rank } = candidate;
        let before = of_zone.entry(zone).or_default();
        *before += 1;
        (rank, *before, zone, name)
    });
    let mut turns: Vec<_> = turns.collect();
    turns.sort_unstable();
    let chosen = turns.into_iter().take(count);
    chosen.map(|(.., name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chosen(nodes: &[(&str, &str, Rank)], count: usize) -> Vec<String> {
        let nodes: Vec<(Arc<str>, &str, Rank)> = nodes
            .iter()
            .map(|(name, zone, rank)| (Arc::from(*name), *zone, *rank))
            .collect();
        let candidates = nodes.iter().map(|(name, zone, rank)| Candidate {
            name,
            zone,
            rank: *rank,
        });
        let chosen = choose(candidates.collect(), count);
        chosen.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn canaries_are_spread_over_the_zones() {
        let nodes = [
            ("n1", "a", Rank::Usual),
            ("n2", "a", Rank::Usual),
            ("n3", "a", Rank::Usual),
            ("n4", "b", Rank::Usual),
            ("n5", "", Rank::Usual),
        ];
        let expected = [
            vec![],
            vec!["n5"],
            vec!["n1", "n5"],
            vec!["n1", "n4", "n5"],
            vec!["n1", "n2", "n4", "n5"],
            vec!["n1", "n2", "n3", "n4", "n5"],
            vec!["n1", "n2", "n3", "n4", "n5"],
        ];
        for (count, expected) in expected.into_iter().enumerate() {
            assert_eq!(chosen(&nodes, count), expected);
            let mut reversed = nodes;
            reversed.reverse();
            assert_eq!(chosen(&reversed, count), expected);
        }
    }

    #[test]
    fn a_node_that_has_the_revision_stays_a_canary() {
        let nodes = [
            ("n1", "a", Rank::Usual),
            ("n2", "a", Rank::Has),
            ("n3", "b", Rank::Usual),
            ("n4", "b", Rank::Has),
        ];
        assert_eq!(chosen(&nodes, 1), ["n2"]);
        assert_eq!(chosen(&nodes, 2), ["n2", "n4"]);
        // One more than have it: the next by zone and name.
        assert_eq!(chosen(&nodes, 3), ["n1", "n2", "n4"]);
    }

    #[test]
    fn a_node_that_leaves_is_replaced_by_one_other() {
        let zones = ["a", "b", "c"];
        let nodes: Vec<(String, &str)> = (0..9)
            .map(|nth| (format!("n{nth}"), zones[nth * nth % 3]))
            .collect();
        for count in 1..8 {
            for gone in 0..9 {
                let usual = |(name, zone)| (name, zone, Rank::Usual);
                let all: Vec<_> = nodes.iter().map(|(n, z)| usual((n.as_str(), *z))).collect();
                let mut left = all.clone();
                left.remove(gone);
                let (before, after) = (chosen(&all, count), chosen(&left, count));
                let lost = before.iter().filter(|name| !after.contains(name)).count();
                let was_canary = before.contains(&nodes[gone].0);
                assert_eq!(lost, usize::from(was_canary), "{gone} of {count}");
                assert_eq!(after.len(), count);
            }
        }
    }

    #[test]
    fn nodes_that_joined_or_do_not_serve_come_last() {
        let nodes = [
            ("n1", "a", Rank::Unserved),
            ("n2", "a", Rank::Joined),
            ("n3", "a", Rank::Usual),
            ("n4", "b", Rank::Joined),
        ];
        assert_eq!(chosen(&nodes, 1), ["n3"]);
        assert_eq!(chosen(&nodes, 2), ["n3", "n4"]);
        assert_eq!(chosen(&nodes, 3), ["n2", "n3", "n4"]);
    }
}
