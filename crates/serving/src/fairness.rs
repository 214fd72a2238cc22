//! The rule by which sources share the scarce resources of a listener: connections, and memory for bodies.
//!
//! A scarce resource is taken from the source that holds most of it, and a source never loses to one that holds more. A
//! source is an IPv4 address, or an IPv6 address within its /64. One client can use every address of a /64 (RFC 4291,
//! 2.5.1), so the /64 that holds most pays. But on flat networks nodes, pods and control plane share a /64, so within
//! it the address that holds most pays.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

/// Where a peer connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source {
    /// The /64 of an IPv6 address; an IPv4 address is a network of its own.
    network: IpAddr,
    address: IpAddr,
}

impl Source {
    /// What costs nothing to have more addresses of.
    pub(super) fn network(self) -> IpAddr {
        self.network
    }
}

impl From<IpAddr> for Source {
    fn from(peer: IpAddr) -> Self {
        // A dual-stack socket reports IPv4 peers as mapped into IPv6.
        let address = peer.to_canonical();
        let network = match address {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
            IpAddr::V4(_) => address,
        };
        Self { network, address }
    }
}

/// How much each source holds.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    total: usize,
    networks: Ranking,
    addresses: HashMap<IpAddr, Ranking>,
    /// Counts additions: of sources that hold the same, the one that was last to grow pays.
    additions: u64,
}

/// The limit that is reached: the total, or the share of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    Total,
    Network,
}

/// The source from which a claim is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payer {
    pub(super) source: Source,
    pub(super) claim: Claim,
}

/// The relation between the claimant and the payer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// They are the same source.
    Own,
    /// The claimant holds less. `levels`: it does so even afterwards, or as much.
    Smaller { levels: bool },
}

impl Holdings {
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// What the network of this source holds.
    pub(super) fn of_network(&self, source: Source) -> usize {
        self.networks.amount(source.network)
    }

    pub(super) fn add(&mut self, source: Source, amount: usize) {
        self.total += amount;
        self.additions += 1;
        self.networks.add(source.network, amount, self.additions);
        let addresses = self.addresses.entry(source.network).or_default();
        addresses.add(source.address, amount, self.additions);
    }

    /// Removes an amount that was added.
    pub(super) fn remove(&mut self, source: Source, amount: usize) {
        self.total -= amount;
        self.networks.remove(source.network, amount);
        if let Some(addresses) = self.addresses.get_mut(&source.network) {
            addresses.remove(source.address, amount);
            if addresses.amounts.is_empty() {
                self.addresses.remove(&source.network);
            }
        }
    }

    /// The sources from which to take `amount` for the claimant, from the largest down; its own is the last.
    pub(super) fn payers(
        &self,
        claimant: Source,
        amount: usize,
        short: Short,
    ) -> impl Iterator<Item = Payer> {
        let networks = self.networks.payers(claimant.network, amount);
        let networks = networks.take_while(move |_| short == Short::Total);
        let others = networks.flat_map(|(network, claim)| {
            let addresses = self.addresses.get(&network).into_iter();
            let addresses = addresses.flat_map(|addresses| addresses.order.iter().rev());
            addresses.map(move |(.., address)| Payer {
                source: Source {
                    network,
                    address: *address,
                },
                claim,
            })
        });
        let addresses = self.addresses.get(&claimant.network).into_iter();
        let neighbours = addresses.flat_map(move |addresses| {
            let neighbours = addresses.payers(claimant.address, amount);
            let own = (claimant.address, Claim::Own);
            neighbours.chain([own]).map(move |(address, claim)| Payer {
                source: Source {
                    address,
                    ..claimant
                },
                claim,
            })
        });
        others.chain(neighbours)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            total,
            networks,
            addresses,
            additions: _,
        } = self;
        *total == 0
            && networks.amounts.is_empty()
            && networks.order.is_empty()
            && addresses.is_empty()
    }
}

/// The claim of one that holds `own` on one that holds `held`, if that leaves it with no more than the other had.
fn claim(held: usize, own: usize, amount: usize) -> Option<Claim> {
    let levels = held >= own + 2 * amount;
    (held >= own + amount).then_some(Claim::Smaller { levels })
}

/// Amounts, and which is the largest.
#[derive(Debug, Default)]
struct Ranking {
    /// With the number of the last addition.
    amounts: HashMap<IpAddr, (usize, u64)>,
    order: BTreeSet<(usize, u64, IpAddr)>,
}

impl Ranking {
    fn amount(&self, key: IpAddr) -> usize {
        self.amounts.get(&key).map_or(0, |(amount, _)| *amount)
    }

    /// Those on which the claimant has a claim, from the largest down.
    fn payers(&self, claimant: IpAddr, amount: usize) -> impl Iterator<Item = (IpAddr, Claim)> {
        let own = self.amount(claimant);
        let descending = self.order.iter().rev();
        let payers =
            descending.map_while(move |(held, _, key)| Some((*key, claim(*held, own, amount)?)));
        payers.filter(move |(key, _)| *key != claimant)
    }

    fn add(&mut self, key: IpAddr, more: usize, addition: u64) {
        let entry = self.amounts.entry(key).or_default();
        self.order.remove(&(entry.0, entry.1, key));
        *entry = (entry.0 + more, addition);
        self.order.insert((entry.0, entry.1, key));
    }

    fn remove(&mut self, key: IpAddr, less: usize) {
        let Some(entry) = self.amounts.get_mut(&key) else {
            return;
        };
        self.order.remove(&(entry.0, entry.1, key));
        entry.0 -= less;
        if entry.0 == 0 {
            // Otherwise the map would keep every address that ever connected.
            self.amounts.remove(&key);
        } else {
            self.order.insert((entry.0, entry.1, key));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source(peer: &str) -> Source {
        peer.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        assert_eq!(source("10.0.0.1"), source("::ffff:10.0.0.1"));
        assert_ne!(
            source("::ffff:10.0.0.1").network,
            source("::ffff:10.0.0.2").network
        );
    }

    #[test]
    fn the_addresses_of_a_64_are_one_network() {
        let (one, other) = (source("2001:db8::1"), source("2001:db8::ffff:1:2:3"));
        assert_ne!(one, other);
        assert_eq!(one.network, other.network);
        assert_ne!(one.network, source("2001:db8:0:1::1").network);
    }

    #[test]
    fn the_largest_network_pays_and_in_it_the_largest_address() {
        let mut holdings = Holdings::default();
        for (peer, amount) in [
            ("10.0.0.1", 5),
            ("2001:db8::1", 4),
            ("2001:db8::2", 3),
            ("2001:db8:0:1::1", 6),
        ] {
            holdings.add(source(peer), amount);
        }
        let payer = |claimant, amount, short| {
            let mut payer = holdings.payers(source(claimant), amount, short);
            let payer = payer.next().unwrap();
            (payer.source, payer.claim)
        };
        let smaller = |levels| Claim::Smaller { levels };
        let largest = source("2001:db8::1");
        assert_eq!(payer("10.0.0.1", 1, Short::Total), (largest, smaller(true)));
        assert_eq!(
            payer("10.0.0.1", 2, Short::Total),
            (largest, smaller(false))
        );
        // It would hold more than the largest does.
        let own = source("10.0.0.1");
        assert_eq!(payer("10.0.0.1", 3, Short::Total), (own, Claim::Own));
        // Its own network is the largest: there, its neighbour pays.
        for short in [Short::Total, Short::Network] {
            assert_eq!(payer("2001:db8::2", 1, short), (largest, smaller(false)));
            assert_eq!(payer("2001:db8::1", 1, short), (largest, Claim::Own));
        }
    }

    #[test]
    fn among_equal_sources_the_last_to_grow_pays() {
        let mut holdings = Holdings::default();
        for peer in ["10.0.0.3", "10.0.0.1", "10.0.0.2"] {
            holdings.add(source(peer), 1);
        }
        holdings.add(source("10.0.0.1"), 1);
        holdings.remove(source("10.0.0.1"), 1);
        let payers = holdings.payers(source("10.0.0.9"), 1, Short::Total);
        let payers: Vec<_> = payers.map(|payer| payer.source).collect();
        assert_eq!(payers, ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(source));
    }

    #[test]
    fn source_without_holdings_leaves_no_state() {
        let mut holdings = Holdings::default();
        holdings.add(source("2001:db8::1"), 3);
        holdings.add(source("2001:db8::2"), 1);
        holdings.remove(source("2001:db8::1"), 3);
        holdings.remove(source("2001:db8::2"), 1);
        assert!(holdings.is_empty());
        let mut payers = holdings.payers(source("2001:db8::1"), 1, Short::Total);
        assert_eq!(payers.next(), None);
    }
}
