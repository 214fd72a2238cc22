//! The fake kubelet: it makes fake nodes Ready and reports the statuses of their pods, which run nowhere. A user who asks
//! for the log of a container there, or for a connection to it, reads that nothing runs.
//!
//! - `stages` is the pure part: what to do next with an object, and the status to report;
//! - `table` does the I/O: it watches nodes and pods, and makes the writes;
//! - `addresses` gives pods their addresses;
//! - `requests` is the pure part of what the API server asks a kubelet for, and `server` answers it.
//!
//! It is a thread of the process that owns the [`Cluster`](crate::Cluster), with a runtime of its own: tests with a
//! runtime each share a cluster, so it must not end with the one that started it. It ends with the cluster, and like
//! everything of a cluster it does not outlive this process.

mod addresses;
mod log;
mod requests;
mod server;
mod stages;
mod table;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::{self, JoinHandle};

use kube::Client;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::kubeconfig;

use log::Log;
use server::Server;
pub(crate) use stages::{KUBELET_ADDRESS_TYPE, NODE_ANNOTATION};

/// A running fake kubelet. It stops when this is dropped, and makes no write after that.
#[derive(Debug)]
pub(crate) struct FakeKubelet {
    /// Nothing is sent: the thread ends when this is dropped.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeKubelet {
    /// Starts one that uses the cluster of `kubeconfig`, listens at `endpoint`, or at another port of that address if
    /// this one is taken, and appends its errors to `log`.
    pub(crate) async fn start(
        kubeconfig: &Path,
        log: &Path,
        endpoint: SocketAddr,
    ) -> Result<Self, Error> {
        let log = Log::open(log)?;
        let kubeconfig = kubeconfig.to_owned();
        let (stop, stopped) = oneshot::channel();
        let (started, answer) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("fake-kubelet".to_owned())
            .spawn(move || run(&kubeconfig, log, endpoint, started, stopped))
            .map_err(cannot_start)?;
        let this = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        let started = answer.await.map_err(cannot_start)?;
        started.map(|()| this)
    }

    /// Whether its thread has not ended. It ends by itself only with a panic.
    pub(crate) fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread stops at its next await, which takes it less than a millisecond.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn cannot_start(cause: impl std::fmt::Display) -> Error {
    Error::Internal(format!("cannot start the fake kubelet: {cause}"))
}

/// The thread: reports whether it could make a client and listen, and then works until it is stopped.
fn run(
    kubeconfig: &Path,
    log: Log,
    endpoint: SocketAddr,
    started: oneshot::Sender<Result<(), Error>>,
    stopped: oneshot::Receiver<Infallible>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(cannot_start(error)))),
    };
    runtime.block_on(async {
        // Here, because both belong to the runtime that they are made in.
        let (client, server) = match prepare(kubeconfig, endpoint).await {
            Ok(prepared) => prepared,
            Err(error) => return drop(started.send(Err(error))),
        };
        let _ = started.send(Ok(()));
        let endpoint = server.endpoint();
        tokio::select! {
            () = table::run(client.clone(), log, endpoint) => {}
            () = server.run(client) => {}
            _ = stopped => {}
        }
    });
}

async fn prepare(kubeconfig: &Path, endpoint: SocketAddr) -> Result<(Client, Server), Error> {
    let client = kubeconfig::client(kubeconfig).await?;
    let server = Server::bind(endpoint).await?;
    Ok((client, server))
}
