//! A way to the API server that can be slow, or lead nowhere.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How the way is.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// As if it were not there.
    Open,
    /// What the API server says comes later by that much.
    Late(Duration),
    /// Nothing goes through, and no connection is closed.
    Silent,
}

/// A TCP proxy before the API server.
pub(super) struct Proxy {
    address: String,
    state: watch::Sender<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(super) async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("https://").to_owned();
        let state = watch::Sender::new(State::Open);
        let states = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (states, server) = (states.subscribe(), server.clone());
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(server).await {
                        pass(client, server, states).await;
                    }
                });
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    pub(super) fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Makes a kubeconfig lead here and not to the server.
    pub(super) fn lead_to(&self, kubeconfig: &Path, server: &str) {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        std::fs::write(kubeconfig, text.replace(server, &self.address)).unwrap();
    }
}

async fn pass(client: TcpStream, server: TcpStream, states: watch::Receiver<State>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = states.clone();
    let there = async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            open(&up).await;
            if to_server.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    // Each piece is late by itself, and none waits for the one before.
    let (pieces, mut late) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let down = states.clone();
    let read = async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let delay = match *down.borrow() {
                State::Late(delay) => delay,
                State::Open | State::Silent => Duration::ZERO,
            };
            let _ = pieces.send((Instant::now() + delay, buffer[..count].to_vec()));
        }
    };
    let back = async move {
        while let Some((at, piece)) = late.recv().await {
            sleep_until(at).await;
            open(&states).await;
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

/// Waits until something goes through.
async fn open(states: &watch::Receiver<State>) {
    let mut states = states.clone();
    let _ = states
        .wait_for(|state| !matches!(state, State::Silent))
        .await;
}
