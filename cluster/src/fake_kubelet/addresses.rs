//! The addresses of pods on fake nodes.

use std::collections::HashSet;
use std::net::Ipv4Addr;

/// The first address. Those below are of the pods on a real node (`real_node::config`).
const FIRST: u32 = Ipv4Addr::new(10, 244, 1, 0).to_bits();
const LAST: u32 = Ipv4Addr::new(10, 244, 255, 254).to_bits();

/// Addresses of 10.244.0.0/16, each of one pod at a time.
#[derive(Debug)]
pub(super) struct Addresses {
    used: HashSet<Ipv4Addr>,
    last: u32,
}

impl Addresses {
    pub(super) fn new() -> Self {
        Self {
            used: HashSet::new(),
            last: LAST,
        }
    }

    /// An unused address, the one that was free for longest: a client with the address of a deleted pod does not reach
    /// another pod there.
    pub(super) fn take(&mut self) -> Ipv4Addr {
        for _ in FIRST..=LAST {
            self.last = if self.last < LAST {
                self.last + 1
            } else {
                FIRST
            };
            if self.used.insert(Ipv4Addr::from_bits(self.last)) {
                break;
            }
        }
        // With all 65 000 taken, one that another pod has: nothing listens at either.
        Ipv4Addr::from_bits(self.last)
    }

    /// Notes that a pod has this address. Returns whether it is one of ours.
    pub(super) fn note(&mut self, address: Ipv4Addr) -> bool {
        let ours = (FIRST..=LAST).contains(&address.to_bits());
        if ours {
            self.used.insert(address);
        }
        ours
    }

    /// Gives back the address of a pod that is gone.
    pub(super) fn free(&mut self, address: Ipv4Addr) {
        self.used.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::{Addresses, FIRST, LAST};

    #[test]
    fn an_address_is_used_again_only_when_its_pod_is_gone_and_no_other_is_left() {
        let mut addresses = Addresses::new();
        assert_eq!(addresses.take().to_string(), "10.244.1.0");
        let second = addresses.take();
        assert_eq!(second.to_string(), "10.244.1.1");
        assert!(addresses.note([10, 244, 1, 2].into()));
        assert!(!addresses.note([192, 0, 2, 1].into()), "a node's");
        assert!(!addresses.note([10, 244, 0, 9].into()), "a real node's pod");
        assert_eq!(addresses.take().to_string(), "10.244.1.3");

        addresses.free(second);
        let others = LAST - FIRST + 1 - 4;
        for _ in 0..others {
            assert_ne!(addresses.take(), second);
        }
        assert_eq!(addresses.take(), second);
        addresses.take();
    }
}
