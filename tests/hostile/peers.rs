//! Hostile peers. Each does one thing, and does it again as soon as the server closes its connection, until the attack
//! ends; then it waits until the server has closed the last one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use my_operator_rounds::lengths::hostile_arrival;
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
