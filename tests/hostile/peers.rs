//! Hostile peers. Each does one thing, and does it again as soon as the server closes its connection, until the attack
//! ends; then it waits until the server has closed the last one.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use my_operator_rounds::lengths::hostile_arrival;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::honest::{answer, handshake, request};
use super::server::Server;

/// What a peer does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    /// Connects and sends nothing.
    Silent,
    /// Sends half of its part of the handshake.
    HalfHandshake,
    /// Announces the largest body and sends it byte by byte.
    SlowBody,
    /// Sends requests and reads no answer.
    SlowReader,
    /// Resets its connections, before the handshake or in the middle of it.
    Reconnecting,
    /// Earns trust by one good request, and keeps the connection.
    Trusted,
    /// Opens connections and resets them, 50 times a second.
    Churning,
    /// Sends good requests without a pause, and reads the answers.
    Busy,
}

/// An attack that goes on.
pub(crate) struct Attack {
    off: CancellationToken,
    thread: JoinHandle<()>,
    start: Instant,
}

#[derive(Clone)]
struct Target {
    address: SocketAddr,
    /// None where the listener is plain.
    tls: Option<Arc<ClientConfig>>,
    /// The first message of a handshake.
    hello: Arc<Vec<u8>>,
    /// A request that is answered with success.
    request: Arc<Vec<u8>>,
    off: CancellationToken,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Attack {
    /// On the webhooks.
    pub(crate) fn start(server: &Server, gather: impl FnOnce(&mut Vec<(Habit, Ipv4Addr)>)) -> Self {
        let target = Target {
            address: server.address,
            tls: Some(server.tls.clone()),
            hello: Arc::new(hello(server)),
            request: Arc::new(request()),
            off: CancellationToken::new(),
        };
        Self::on(target, gather)
    }

    /// On the probes.
    pub(crate) fn on_probes(
        server: &Server,
        gather: impl FnOnce(&mut Vec<(Habit, Ipv4Addr)>),
    ) -> Self {
        let target = Target {
            address: server.probes,
            tls: None,
            hello: Arc::new(b"GET /healthz HTTP/1.1\r\n".to_vec()),
            request: Arc::new(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
            off: CancellationToken::new(),
        };
        Self::on(target, gather)
    }

    fn on(target: Target, gather: impl FnOnce(&mut Vec<(Habit, Ipv4Addr)>)) -> Self {
        let off = target.off.clone();
        // Peers do not arrive in one instant. In a soak they take as long as the listener waits for a handshake, so
        // that they keep arriving evenly.
        let arrival = hostile_arrival();
        let mut peers = Vec::new();
        gather(&mut peers);
        // One thread for all: they must not win by using up the machine that the server is on.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                let total = u32::try_from(peers.len()).unwrap();
                for (n, (habit, from)) in (0..).zip(peers) {
                    let target = target.clone();
                    // A step that has no common divisor with the total mixes the habits.
                    let turn = (n * 7919) % total;
                    tasks.spawn(async move {
                        tokio::time::sleep(arrival * turn / total).await;
                        target.attack(habit, from).await;
                    });
                }
                while let Some(ended) = tasks.join_next().await {
                    ended.unwrap();
                }
            });
        });
        Self {
            off,
            thread,
            start: Instant::now(),
        }
    }

    /// Waits until every peer has come.
    pub(crate) fn at_full_strength(&self) {
        let rest = hostile_arrival() + Duration::from_millis(500);
        std::thread::sleep(rest.saturating_sub(self.start.elapsed()));
    }

    /// Calls the attack off and waits until the server has closed every connection.
    pub(crate) fn end(self, deadline: Duration) {
        self.off.cancel();
        let start = Instant::now();
        while !self.thread.is_finished() {
            assert!(start.elapsed() < deadline, "hostile connections are left");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.thread.join().unwrap();
    }
}

impl Target {
    async fn attack(self, habit: Habit, from: Ipv4Addr) {
        let mut times = 0_u32;
        // Peers whose connections are closed at once come again soon, not at once: connections that come and go keep any
        // machine busy, and only Churning measures that.
        let pause = Duration::from_millis(match habit {
            Habit::Churning => 20,
            Habit::Trusted => 1000,
            _ => 300,
        });
        while !self.off.is_cancelled() {
            // What becomes of it does not matter: the server may do with it what it likes.
            let _ = match habit {
                Habit::Silent => self.begin(from, &[]).await,
                Habit::HalfHandshake => self.begin(from, &self.hello[..self.hello.len() / 2]).await,
                Habit::SlowBody => self.slow_body(from).await,
                Habit::SlowReader => self.slow_reader(from).await,
                Habit::Reconnecting | Habit::Churning => self.reset(from, times).await,
                Habit::Trusted => self.trusted(from).await,
                Habit::Busy => self.busy(from).await,
            };
            times += 1;
            tokio::time::sleep(pause).await;
        }
    }

    fn socket(from: Ipv4Addr) -> std::io::Result<TcpSocket> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        Ok(socket)
    }

    async fn tcp(&self, from: Ipv4Addr) -> std::io::Result<TcpStream> {
        Self::socket(from)?.connect(self.address).await
    }

    /// Does the handshake, if the listener has one.
    async fn secured(&self, stream: TcpStream) -> std::io::Result<Box<dyn Stream>> {
        Ok(match &self.tls {
            Some(tls) => Box::new(handshake(stream, tls, self.address).await?),
            None => Box::new(stream),
        })
    }

    async fn begin(&self, from: Ipv4Addr, bytes: &[u8]) -> std::io::Result<()> {
        let mut stream = self.tcp(from).await?;
        stream.write_all(bytes).await?;
        stream.read_to_end(&mut Vec::new()).await?;
        Ok(())
    }

    async fn slow_body(&self, from: Ipv4Addr) -> std::io::Result<()> {
        let stream = self.secured(self.tcp(from).await?).await?;
        let (mut read, mut write) = tokio::io::split(stream);
        let head = "POST /mutate-cnat-programming-kubernetes-info-v1alpha1-at HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n";
        write.write_all(head.as_bytes()).await?;
        let trickle = async {
            while write.write_all(b" ").await.is_ok() && write.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let mut answer = Vec::new();
        tokio::select! {
            _ = read.read_to_end(&mut answer) => {}
            () = trickle => {}
        }
        Ok(())
    }

    async fn slow_reader(&self, from: Ipv4Addr) -> std::io::Result<()> {
        let socket = Self::socket(from)?;
        // A small window is full soon.
        socket.set_recv_buffer_size(4096)?;
        let mut stream = self.secured(socket.connect(self.address).await?).await?;
        // Until the buffers of both sides are full, and then until the server closes the connection or the attack ends.
        // After that it goes: how long the server takes for what is in the buffers is up to the machine.
        let fill = async {
            loop {
                stream.write_all(&self.request).await?;
                stream.flush().await?;
            }
        };
        tokio::select! {
            ended = fill => ended,
            () = self.off.cancelled() => Ok(()),
        }
    }

    async fn trusted(&self, from: Ipv4Addr) -> std::io::Result<()> {
        let mut stream = self.secured(self.tcp(from).await?).await?;
        stream.write_all(&self.request).await?;
        stream.flush().await?;
        answer(&mut stream).await?;
        let mut rest = Vec::new();
        tokio::select! {
            _ = stream.read_to_end(&mut rest) => {}
            () = self.off.cancelled() => {}
        }
        Ok(())
    }

    async fn busy(&self, from: Ipv4Addr) -> std::io::Result<()> {
        let stream = self.secured(self.tcp(from).await?).await?;
        let (mut read, mut write) = tokio::io::split(stream);
        let send = async {
            loop {
                write.write_all(&self.request).await?;
                write.flush().await?;
            }
        };
        let discard = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await };
        tokio::select! {
            ended = send => ended,
            ended = discard => ended.map(drop),
            () = self.off.cancelled() => Ok(()),
        }
    }

    async fn reset(&self, from: Ipv4Addr, times: u32) -> std::io::Result<()> {
        let mut stream = self.tcp(from).await?;
        if times.is_multiple_of(2) {
            stream.write_all(&self.hello).await?;
        }
        // Closing without lingering is a reset.
        stream.set_zero_linger()
    }
}

fn hello(server: &Server) -> Vec<u8> {
    let name = server.address.ip().into();
    let mut client = ClientConnection::new(server.tls.clone(), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// A program that opens connections as fast as it is allowed to, says the first words of each, and resets it soon.
pub(crate) struct Flood {
    off: CancellationToken,
    thread: JoinHandle<u32>,
    start: Instant,
}

/// So many connections of a flood are open: almost as many as a source may have.
const FLOOD_OPEN: usize = 200;

impl Flood {
    /// `rate` handshakes a second that begin with a recorded message, so that they cost the peer next to nothing.
    pub(crate) fn of_hellos(server: &Server, from: Ipv4Addr, rate: u32) -> Self {
        Self::start(server.address, hello(server), from, rate)
    }

    /// `rate` connections a second on which nothing comes.
    pub(crate) fn of_connections(to: SocketAddr, from: Ipv4Addr, rate: u32) -> Self {
        Self::start(to, Vec::new(), from, rate)
    }

    fn start(to: SocketAddr, words: Vec<u8>, from: Ipv4Addr, rate: u32) -> Self {
        let off = CancellationToken::new();
        let ended = off.clone();
        let open_at_once = if words.is_empty() { 0 } else { FLOOD_OPEN };
        let thread = std::thread::spawn(move || {
            let (mut last, mut due, mut opened) = (Instant::now(), 0.0, 0);
            let mut open = VecDeque::new();
            while !ended.is_cancelled() {
                // What it could not do in a tenth of a second, it does not do later.
                let most = f64::from(rate) / 10.0;
                due = most.min(due + last.elapsed().as_secs_f64() * f64::from(rate));
                last = Instant::now();
                while due >= 1.0 {
                    open.extend(Self::open(to, &words, from).unwrap());
                    if open.len() > open_at_once {
                        open.pop_front();
                    }
                    due -= 1.0;
                    opened += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            opened
        });
        Self {
            off,
            thread,
            start: Instant::now(),
        }
    }

    /// Waits for nothing. None: the kernel's queue is full.
    fn open(
        to: SocketAddr,
        words: &[u8],
        from: Ipv4Addr,
    ) -> Result<Option<std::os::fd::OwnedFd>, Errno> {
        let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
        let socket = rustix::net::socket_with(inet, stream, SocketFlags::NONBLOCK, None)?;
        // Closing without lingering is a reset: otherwise there were no ports left after a few seconds.
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        if words.is_empty() {
            return Ok(Some(socket));
        }
        // On loopback the connection is there at once, unless the queue is full.
        let sent = rustix::net::send(&socket, words, SendFlags::NOSIGNAL);
        Ok(sent.is_ok().then_some(socket))
    }

    /// Ends it. Returns how many connections it opened a second.
    pub(crate) fn end(self) -> f64 {
        self.off.cancel();
        let opened = self.thread.join().unwrap();
        f64::from(opened) / self.start.elapsed().as_secs_f64()
    }
}

/// How often a connection came while a queue of the kernel was full (`TcpExt: ListenOverflows`).
pub(crate) fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap().split(' ');
    let mut figures = names.zip(lines.next().unwrap().split(' '));
    let (_, figure) = figures
        .find(|(name, _)| *name == "ListenOverflows")
        .unwrap();
    figure.parse().unwrap()
}
