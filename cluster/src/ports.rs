//! Free ports of this machine, on the loopback interface as a rule.
//!
//! A port is free until a process binds it, so a choice can always be stale: `Cluster::start` tries again with other
//! ports when a component finds its port taken. Two things make that rare. The ports are below the kernel's ephemeral
//! range (32768 and up on Linux), where no outgoing connection can take them. And a process begins at a random port and
//! returns each port once before it starts over, so that clusters and programs that start at the same time choose
//! different ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// Where this process begins, and how many ports it has tried since.
static START: LazyLock<u64> =
    LazyLock::new(|| RandomState::new().hash_one(std::process::id()) % 1_000_000);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// `N` different ports that were free on 127.0.0.1 a moment ago.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Error> {
    free_at(Ipv4Addr::LOCALHOST.into())
}

/// The same on another address of this machine.
pub(crate) fn free_at<const N: usize>(own: IpAddr) -> Result<[u16; N], Error> {
    let span = u64::from(LAST - FIRST) + 1;
    let start = LazyLock::force(&START);
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for _ in 0..span {
        if held.len() == N {
            return Ok(ports);
        }
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let Ok(port) = u16::try_from(u64::from(FIRST) + start.wrapping_add(offset) % span) else {
            continue;
        };
        // Held until all are found, so that one call never returns a port twice.
        if let Ok(listener) = TcpListener::bind((own, port)) {
            ports[held.len()] = port;
            held.push(listener);
        }
    }
    Err(Error::NoPort {
        address: own,
        first: FIRST,
        last: LAST,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn ports_can_be_bound() {
        // Another process may take one of them in between; not every time.
        let bound = (0..10).any(|_| {
            let ports = super::free_ports::<8>().unwrap();
            let listeners: Vec<_> = ports
                .iter()
                .map(|port| std::net::TcpListener::bind(("127.0.0.1", *port)))
                .collect();
            listeners.iter().all(Result::is_ok)
        });
        assert!(bound);
    }

    #[test]
    fn no_port_is_returned_twice() {
        let all: Vec<u16> = (0..100)
            .flat_map(|_| super::free_ports::<3>().unwrap())
            .collect();
        let different: std::collections::BTreeSet<u16> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len());
    }
}
