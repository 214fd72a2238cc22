//! Free ports on the loopback interface.
//!
//! A port is free until somebody binds it, so a choice can always be stale: `Cluster::start` tries again with other
//! ports when a component finds its port taken. Two things make that rare: the ports come from below the kernel's
//! ephemeral range (32768 and up on Linux), where no outgoing connection can take them meanwhile, and every call
//! starts at a random place, so clusters that start at the same time do not choose alike.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// `N` different ports that were free on 127.0.0.1 a moment ago.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Error> {
    let span = u64::from(LAST - FIRST) + 1;
    let start = RandomState::new().hash_one(std::process::id()) % span;
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for offset in 0..span {
        if held.len() == N {
            return Ok(ports);
        }
        let Ok(port) = u16::try_from(u64::from(FIRST) + (start + offset) % span) else {
            continue;
        };
        // Held until all are found, so that one call never returns a port twice.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            ports[held.len()] = port;
            held.push(listener);
        }
    }
    Err(Error::NoPort {
        first: FIRST,
        last: LAST,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports = super::free_ports::<8>().unwrap();
        let listeners: Vec<_> = ports
            .iter()
            .map(|port| std::net::TcpListener::bind(("127.0.0.1", *port)))
            .collect();
        assert!(listeners.iter().all(Result::is_ok), "{ports:?}");
    }
}
