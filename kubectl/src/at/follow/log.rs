//! Follows the log of one pod, across connections.

use std::time::Duration;

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::core::subresource::LogParams;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use tokio::time;

use super::News;
use super::resume::{Piece, Progress};
use crate::at::object::Item;
use crate::at::show::{self, CONTAINER};
use crate::connection::{Connection, Failure};

/// A pod that is about to start is asked again after this time.
const PAUSE: Duration = Duration::from_millis(500);
/// A log that ended without a reason is asked for again after this time, or when the object is over.
const REOPEN: Duration = Duration::from_secs(2);

/// Says to a follower that nothing will be written any more.
pub(super) struct Handle(watch::Sender<bool>);

impl Handle {
    pub(super) fn over(&self) {
        self.0.send_replace(true);
    }
}

/// Follows the log of the pod that the object names.
pub(super) fn follower(
    connection: &Connection,
    item: &Item,
    sender: Sender<News>,
) -> (Handle, impl Future<Output = ()> + Send + use<>) {
    let (over, ended) = watch::channel(false);
    let follower = Follower {
        connection: connection.clone(),
        item: item.clone(),
        sender,
        ended,
        progress: Progress::default(),
    };
    (Handle(over), follower.run())
}

struct Follower {
    connection: Connection,
    item: Item,
    sender: Sender<News>,
    /// Whether the object is over.
    ended: watch::Receiver<bool>,
    progress: Progress,
}

impl Follower {
    async fn run(mut self) {
        let end = self.follow().await;
        let _ = self.sender.send(News::LogEnded(end.err())).await;
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        // Whether the server said that the log ends where it was read to.
        let mut complete = false;
        loop {
            // Read before the log: what it has then is all.
            let over = *self.ended.borrow();
            let pause = match self.piece(!over).await {
                Ok(()) if over => return Ok(()),
                Ok(()) => {
                    complete = true;
                    REOPEN
                }
                // The pod may be deleted with the object, as soon as it is over.
                Err(_) if over && complete => return Ok(()),
                // A pod that has never run a container has no log.
                Err(failure) if over && is_waiting(&failure) => return Ok(()),
                Err(failure) if is_waiting(&failure) || failure.is_passing() => {
                    complete = false;
                    PAUSE
                }
                Err(failure) => return Err(failure),
            };
            // The end of the object is worth a look at once, but not again and again.
            let seen = over;
            let _ = time::timeout(pause, self.ended.wait_for(|now| *now && !seen)).await;
        }
    }

    /// Reads the log as far as it goes, or as the connection lasts.
    async fn piece(&mut self, follow: bool) -> Result<(), Failure> {
        let pod = show::pod(&self.connection, &self.item).await?;
        let Connection {
            client, namespace, ..
        } = &self.connection;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow,
            since_time: self.progress.since(),
            timestamps: true,
            ..LogParams::default()
        };
        let stream = pods.log_stream(&pod, &params).await;
        let stream = stream.map_err(|error| self.connection.failure(error))?;
        let mut stream = Box::pin(stream);
        let mut piece = Piece::new(&self.progress);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = stream.read(&mut buffer).await;
            let read = read.map_err(|error| {
                Failure::Unreachable(format!("The connection broke within the log: {error}"))
            })?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            let new = piece.read(bytes, &mut self.progress);
            if !new.is_empty() && self.sender.send(News::Log(new)).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Whether the container has not started: the kubelet's answer is a bad request then.
fn is_waiting(failure: &Failure) -> bool {
    matches!(failure, Failure::Server(status) if status.code == 400)
}
