//! A way to the API server that may be slow, or silent.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How it treats what comes from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passed on.
    Prompt,
    /// Passed on that much later, once a connection stands.
    Slow(Duration),
    /// Kept until another mode comes.
    Silent,
}

/// The time in which a connection is made: that is not what is slow.
const HANDSHAKE: Duration = Duration::from_millis(500);

/// It takes in connections until it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = watch::Sender::new(Mode::Prompt);
        let mut tasks = JoinSet::new();
        let (server, modes) = (server.to_owned(), mode.subscribe());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (server, modes) = (server.clone(), modes.clone());
                connections.spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    let (mut from_client, to_client) = client.into_split();
                    let (from_server, mut to_server) = server.into_split();
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                        () = pass(from_server, to_client, modes) => {}
                    }
                });
            }
        });
        Self {
            address,
            mode,
            _tasks: tasks,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// Passes on what comes, in the way of the mode, until either side ends.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut modes: watch::Receiver<Mode>,
) {
    let start = Instant::now();
    let (sender, mut waiting) = mpsc::unbounded_channel();
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let _ = sender.send((Instant::now(), buffer[..length].to_vec()));
        }
    };
    let write = async {
        while let Some((came, bytes)) = waiting.recv().await {
            let prompt = modes.wait_for(|mode| *mode != Mode::Silent).await;
            let mode = prompt.map_or(Mode::Prompt, |mode| *mode);
            if let Mode::Slow(delay) = mode
                && start.elapsed() > HANDSHAKE
            {
                tokio::time::sleep_until((came + delay).into()).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
