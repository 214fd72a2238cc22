//! A way to the API server that can be slow, lead nowhere, or be closed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use my_operator_cluster::Cluster;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As if it were not there.
    Open,
    /// What the API server says comes later by that much, once a connection stands.
    Late(Duration),
    /// Connections are taken and none is closed, and nothing goes through until another mode comes.
    Silent,
    /// The same for the connections that were made before then, for ever. Others are as if it were not there.
    Stranded(Instant),
    /// Every connection is closed at once.
    Gone,
}

/// The time in which a connection is made: that is not what is late.
const HANDSHAKE: Duration = Duration::from_millis(500);

/// A TCP proxy before the API server. All its connections end with it.
pub struct Proxy {
    url: String,
    server: String,
    mode: watch::Sender<Mode>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub async fn to(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let address = cluster.server().trim_start_matches("https://").to_owned();
        let mode = watch::Sender::new(Mode::Open);
        let modes = mode.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (address, modes) = (address.clone(), modes.clone());
                connections.spawn(async move {
                    let mut closed = modes.clone();
                    tokio::select! {
                        () = pass(client, address, modes) => {}
                        _ = closed.wait_for(|mode| *mode == Mode::Gone) => {}
                    }
                });
            }
        });
        Self {
            url,
            server: cluster.server().to_owned(),
            mode,
            _tasks: tasks,
        }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// The administrator's kubeconfig, which leads here; in a file of that name.
    pub fn kubeconfig(&self, cluster: &Cluster, name: &str) -> PathBuf {
        let kubeconfig = cluster.directory().join(name);
        std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
        self.lead_to(&kubeconfig);
        kubeconfig
    }

    /// Makes a kubeconfig lead here and not to the server.
    pub fn lead_to(&self, kubeconfig: &Path) {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        assert!(text.contains(&self.server), "{text}");
        std::fs::write(kubeconfig, text.replace(&self.server, &self.url)).unwrap();
    }
}

/// Passes on what comes from either side, in the way of the mode, until one of them ends.
async fn pass(client: TcpStream, server: String, modes: watch::Receiver<Mode>) {
    let start = Instant::now();
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = modes.clone();
    let there = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            audible(&up, start).await;
            if to_server.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    // Each piece is late by itself, and none waits for the one before.
    let (pieces, mut waiting) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let _ = pieces.send((Instant::now(), buffer[..count].to_vec()));
        }
    };
    let back = async move {
        while let Some((came, piece)) = waiting.recv().await {
            let mode = *modes.borrow();
            if let Mode::Late(delay) = mode
                && came > start + HANDSHAKE
            {
                sleep_until(came + delay).await;
            }
            audible(&modes, start).await;
            if to_client.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = there => {}
        ((), ()) = async { tokio::join!(read, back) } => {}
    }
}

/// Waits until something goes through a connection that was made then.
async fn audible(modes: &watch::Receiver<Mode>, made: Instant) {
    let mut modes = modes.clone();
    let is_audible = |mode: &Mode| match mode {
        Mode::Silent => false,
        Mode::Stranded(before) => made > *before,
        Mode::Open | Mode::Late(_) | Mode::Gone => true,
    };
    let _ = modes.wait_for(is_audible).await;
}
