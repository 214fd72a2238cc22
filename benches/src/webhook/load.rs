//! The load: HTTP/1.1 over TLS on kept connections, from one thread that does nothing else.
//!
//! Requests are bytes made beforehand and answers are read no further than needed, so that one core
//! of load keeps one core of any server here busy.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};

/// Time limit of every request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Client {
    /// A client of that server which trusts these authorities.
    pub(crate) fn new(
        address: SocketAddr,
        authorities: &[CertificateDer<'static>],
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.clone())?;
        }
        let mut tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The API server's client keeps no sessions either.
        tls.resumption = Resumption::disabled();
        Ok(Self {
            address,
            tls: Arc::new(tls),
        })
    }

    /// The same client, but one that resumes its previous session if the server allows it.
    pub(crate) fn resuming(&self) -> Self {
        let mut tls = ClientConfig::clone(&self.tls);
        tls.resumption = Resumption::in_memory_sessions(1);
        Self {
            tls: Arc::new(tls),
            ..self.clone()
        }
    }

    /// Calls once on a connection of its own, and returns the kind of its handshake.
    pub(crate) fn call(&self, request: &[u8]) -> Result<HandshakeKind> {
        let mut lines = Lines::open(self, 1)?;
        closed(&mut lines, request, Duration::ZERO)?;
        lines.all[0].tls.handshake_kind().context("no handshake")
    }

    /// Calls once on a connection of its own, and returns the body of the answer, whatever its verdict.
    pub(crate) fn ask(&self, request: &[u8]) -> Result<Vec<u8>> {
        let mut socket = std::net::TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let name = ServerName::from(self.address.ip());
        let mut tls = ClientConnection::new(self.tls.clone(), name)?;
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        stream.write_all(request)?;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let length = stream.read(&mut part)?;
            ensure!(length > 0, "the server closed a connection");
            answer.extend_from_slice(&part[..length]);
            if let Some(body) = whole_body(&answer)? {
                return Ok(body.to_vec());
            }
        }
    }
}

/// The results of one phase.
#[derive(Debug)]
pub(crate) struct Measured {
    /// How long each answer took, in nanoseconds, sorted.
    latencies: Vec<u64>,
    elapsed: Duration,
}

impl Measured {
    fn new(mut latencies: Vec<u64>, elapsed: Duration) -> Self {
        latencies.sort_unstable();
        Self { latencies, elapsed }
    }

    /// Answers per second.
    pub(crate) fn rate(&self) -> f64 {
        count(self.latencies.len()) / self.elapsed.as_secs_f64()
    }

    /// How many answers there were.
    pub(crate) fn count(&self) -> f64 {
        count(self.latencies.len())
    }

    /// The latency that this part of a thousand did not exceed, in microseconds.
    pub(crate) fn per_mille(&self, part: usize) -> f64 {
        let rank = (self.latencies.len() * part).div_ceil(1000).max(1);
        let nanoseconds = self.latencies.get(rank - 1).copied().unwrap_or_default();
        Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
    }
}

/// Closed loop: each connection sends the next request as soon as it is answered.
pub(crate) fn closed(lines: &mut Lines, request: &[u8], duration: Duration) -> Result<Measured> {
    let start = Instant::now();
    let mut sent = vec![start; lines.len()];
    for (at, sent) in sent.iter_mut().enumerate() {
        *sent = Instant::now();
        lines.send(at, request)?;
    }
    let mut latencies = Vec::new();
    let (mut under_way, mut ready) = (lines.len(), Vec::new());
    while under_way > 0 {
        lines.poll(TIMEOUT, &mut ready)?;
        ensure!(!ready.is_empty(), "no answer");
        for at in ready.drain(..) {
            let now = Instant::now();
            latencies.push(nanoseconds(now - sent[at]));
            if now - start < duration {
                sent[at] = now;
                lines.send(at, request)?;
            } else {
                under_way -= 1;
            }
        }
    }
    Ok(Measured::new(latencies, start.elapsed()))
}

/// Open loop: requests are sent at fixed instants, however slow the answers are. The latency of a request that waits
/// for a free connection counts from its instant, so that a pause of the server counts for all affected requests.
pub(crate) fn open(
    lines: &mut Lines,
    request: &[u8],
    per_second: u32,
    duration: Duration,
) -> Result<Measured> {
    let start = Instant::now();
    let interval = Duration::from_secs(1) / per_second;
    let mut next = start;
    let mut idle: Vec<usize> = (0..lines.len()).collect();
    let mut asked = vec![start; lines.len()];
    let mut latencies = Vec::new();
    let mut ready = Vec::new();
    while next - start < duration || idle.len() < lines.len() {
        let now = Instant::now();
        // A server that cannot keep up falls behind, and its latencies show by how much.
        ensure!(now - start < duration * 20 + TIMEOUT, "no answer");
        while next <= now && next - start < duration {
            let Some(at) = idle.pop() else { break };
            asked[at] = next;
            lines.send(at, request)?;
            next += interval;
        }
        // Never asleep: to wake up may take longer than an answer.
        lines.poll(Duration::ZERO, &mut ready)?;
        for at in ready.drain(..) {
            latencies.push(nanoseconds(asked[at].elapsed()));
            idle.push(at);
        }
    }
    Ok(Measured::new(latencies, start.elapsed()))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

// Far below the 2^52 up to which a float is exact.
#[allow(clippy::cast_precision_loss)]
fn count(n: usize) -> f64 {
    n as f64
}

/// Open connections.
pub(crate) struct Lines {
    poll: Poll,
    events: Events,
    all: Vec<Line>,
}

/// One connection, with at most one request in flight.
struct Line {
    socket: TcpStream,
    tls: ClientConnection,
    answer: Vec<u8>,
}

impl Lines {
    /// Connects, handshakes included.
    pub(crate) fn open(client: &Client, connections: usize) -> Result<Self> {
        let poll = Poll::new()?;
        let mut lines = Vec::new();
        for at in 0..connections {
            // In blocking calls, so that there is nothing to wait for afterwards.
            let mut socket = std::net::TcpStream::connect(client.address)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            let name = ServerName::from(client.address.ip());
            let mut tls = ClientConnection::new(client.tls.clone(), name)?;
            tls.set_buffer_limit(None);
            while tls.is_handshaking() {
                tls.complete_io(&mut socket)?;
            }
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut socket, Token(at), interest)?;
            lines.push(Line {
                socket,
                tls,
                answer: Vec::with_capacity(16 * 1024),
            });
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(connections),
            all: lines,
        })
    }

    fn send(&mut self, at: usize, request: &[u8]) -> Result<()> {
        let line = &mut self.all[at];
        line.tls.writer().write_all(request)?;
        line.flush()
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds to `ready` the connections whose answer is there, after a wait of at most that long.
    fn poll(&mut self, timeout: Duration, ready: &mut Vec<usize>) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.poll.poll(&mut self.events, Some(timeout)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            for event in &self.events {
                let at = event.token().0;
                let line = &mut self.all[at];
                line.flush()?;
                if line.receive()? {
                    ready.push(at);
                }
            }
            // An event may be a part of an answer, or writability.
            if !ready.is_empty() || start.elapsed() >= timeout {
                return Ok(());
            }
        }
    }
}

impl Line {
    fn flush(&mut self) -> Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads the available bytes, and returns whether they end an answer. An answer that is not a 200 with an allowed
    /// review is an error.
    fn receive(&mut self) -> Result<bool> {
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            let state = self.tls.process_new_packets()?;
            let (start, more) = (self.answer.len(), state.plaintext_bytes_to_read());
            if more == 0 {
                continue;
            }
            self.answer.resize(start + more, 0);
            self.tls.reader().read_exact(&mut self.answer[start..])?;
            if is_complete(&self.answer)? {
                self.answer.clear();
                return Ok(true);
            }
        }
    }
}

/// The body of an answer, once all of it is there. An answer that is not a 200 is an error.
fn whole_body(answer: &[u8]) -> Result<Option<&[u8]>> {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, body) = (std::str::from_utf8(&answer[..end])?, &answer[end + 4..]);
    ensure!(head.starts_with("HTTP/1.1 200 "), "answered with {head}");
    let length = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let found = name.eq_ignore_ascii_case("content-length");
        found.then(|| value.parse::<usize>().ok())?
    });
    let length = length.with_context(|| format!("an answer without length: {head}"))?;
    Ok((body.len() >= length).then_some(body))
}

fn is_complete(answer: &[u8]) -> Result<bool> {
    let Some(body) = whole_body(answer)? else {
        return Ok(false);
    };
    let allowed = memchr::memmem::find(body, b"\"allowed\":true");
    ensure!(
        allowed.is_some(),
        "not allowed: {}",
        String::from_utf8_lossy(body)
    );
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"allowed\":true}";
        assert!(is_complete(answer).unwrap());
        assert!(!is_complete(&answer[..answer.len() - 1]).unwrap());
        assert!(is_complete(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_err());
        let denied = b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":false}";
        assert!(is_complete(denied).is_err());
        let body = whole_body(denied).unwrap();
        assert_eq!(body, Some(&b"{\"allowed\":false}"[..]));
    }

    #[test]
    fn percentiles_are_ranks() {
        let measured = Measured::new((1..=1000).rev().map(|n| n * 1000).collect(), TIMEOUT);
        let ranks = [500, 990, 999].map(|part| measured.per_mille(part).round());
        assert!(
            (ranks[0] - 500.0).abs() < 0.1 && (ranks[2] - 999.0).abs() < 0.1,
            "{ranks:?}"
        );
    }
}
