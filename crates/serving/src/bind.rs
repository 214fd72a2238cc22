//! Binds a listener to an address, for both IPv4 and IPv6 if the address means both.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket};

/// How many connections wait to be accepted; the kernel's own limit (net.core.somaxconn) is lower on old ones. In a
/// burst of hostile connections the kernel drops what goes beyond it, and an honest peer tries again only after a
/// second.
const BACKLOG: u32 = 4096;

/// Listens on `address`. `[::]` is every address of the machine, those of IPv4 included: a kernel without IPv6 listens
/// on `0.0.0.0` instead.
///
/// # Errors
/// When the system cannot listen there.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).or_else(|error| match without_ipv6(&error, address) {
        Some(address) => listen(address),
        None => Err(error),
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            // The machine configures the default (net.ipv6.bindv6only).
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
            socket
        }
    };
    // Otherwise the port is in use after a restart, until old connections have timed out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where to listen instead, if the kernel has no IPv6 and any address will do.
fn without_ipv6(error: &io::Error, address: SocketAddr) -> Option<SocketAddr> {
    let unspecified = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unspecified());
    let errno = Errno::from_io_error(error);
    let no_ipv6 = matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL));
    (unspecified && no_ipv6).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    #[tokio::test]
    async fn every_address_means_ipv4_and_ipv6() {
        let listener = bind((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        // A machine without IPv6 shows the fallback.
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[tokio::test]
    async fn one_address_is_that_address() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
        let error = bind(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn only_a_kernel_without_ipv6_makes_every_address_those_of_ipv4() {
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 9443));
        let here = SocketAddr::from((Ipv6Addr::LOCALHOST, 9443));
        for (errno, address, instead) in [
            (Errno::AFNOSUPPORT, every, Some("0.0.0.0:9443")),
            (Errno::ADDRNOTAVAIL, every, Some("0.0.0.0:9443")),
            (Errno::ADDRINUSE, every, None),
            (Errno::AFNOSUPPORT, here, None),
        ] {
            let instead = instead.map(|address| address.parse().unwrap());
            assert_eq!(without_ipv6(&errno.into(), address), instead, "{errno}");
        }
    }
}
