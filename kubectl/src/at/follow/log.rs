//! Follows the log of one pod, across connections.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::core::subresource::LogParams;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use tokio::time;

use super::News;
use super::resume::{Piece, Progress};
use super::waiting;
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
        is_open: false,
        waits: None,
        pod: PodWaits::default(),
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
    /// Whether the server has answered the last request with the log.
    is_open: bool,
    /// Why the log cannot be read at present, as it was reported.
    waits: Option<String>,
    pod: PodWaits,
}

/// What keeps the container from starting.
#[derive(Default)]
struct PodWaits {
    /// As the pod said it last.
    last: Option<String>,
    /// As it was reported.
    reported: Option<String>,
}

impl PodWaits {
    /// Whether there is something to report: what was the same twice, as every pod waits for something for a moment.
    fn has_changed(&mut self, now: Option<String>) -> bool {
        let lasts = now == self.last;
        let is_news = lasts && now != self.reported;
        if is_news {
            self.reported.clone_from(&now);
        }
        self.last = now;
        is_news
    }
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
                // An empty log is that of a pod without a node, or of a container that has written nothing: the pod says.
                Ok(()) if self.progress == Progress::default() => {
                    self.report_waiting().await;
                    complete = self.pod.last.is_none();
                    if complete { REOPEN } else { PAUSE }
                }
                Ok(()) => {
                    complete = true;
                    REOPEN
                }
                // The pod may be deleted with the object, as soon as it is over.
                Err(_) if over && complete => return Ok(()),
                // A pod that has never run a container has no log.
                Err(failure) if over && is_waiting(&failure) => return Ok(()),
                Err(failure) if is_waiting(&failure) || (!over && is_new_there(&failure)) => {
                    complete = false;
                    self.report_waiting().await;
                    PAUSE
                }
                Err(failure) if failure.is_passing() => {
                    complete = false;
                    // A connection that breaks is made again at once, and not worth a line unless that fails.
                    if !self.is_open {
                        self.waits(Some(failure.to_string())).await;
                    }
                    PAUSE
                }
                Err(failure) => return Err(failure),
            };
            // The end of the object is worth a look at once, but not again and again.
            let seen = over;
            let _ = time::timeout(pause, self.ended.wait_for(|now| *now && !seen)).await;
        }
    }

    /// Reports why the log cannot be read, or that it can be again: each once.
    async fn waits(&mut self, reason: Option<String>) {
        if reason != self.waits {
            self.waits.clone_from(&reason);
            // Without a receiver, the next message to it ends this.
            let _ = self.sender.send(News::LogWaits(reason)).await;
        }
    }

    /// Reports what the pod says that its container waits for, each time that it changes: the object has it only when it
    /// lasts.
    async fn report_waiting(&mut self) {
        let Some(name) = &self.item.status.pod_name else {
            return;
        };
        let pods = self.connection.api::<Pod>();
        // A pod that cannot be read is reported with the log.
        let pod = pods.get(name).await.ok();
        let pod = pod.filter(|pod| pod.metadata.uid == self.item.status.pod_uid);
        let now = pod.and_then(|pod| waiting::text(&self.item.name, &pod));
        if self.pod.has_changed(now) {
            let reported = self.pod.reported.clone();
            let _ = self.sender.send(News::PodWaits(reported)).await;
        }
    }

    /// Reads the log as far as it goes, or as the connection lasts.
    async fn piece(&mut self, follow: bool) -> Result<(), Failure> {
        self.is_open = false;
        let pod = show::pod(&self.connection, &self.item).await?;
        let pods = self.connection.api::<Pod>();
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow,
            since_time: self.progress.since(),
            timestamps: true,
            ..LogParams::default()
        };
        let stream = pods.log_stream(&pod, &params);
        let mut stream = Box::pin(self.connection.answer(stream).await?);
        self.is_open = true;
        self.waits(None).await;
        let mut piece = Piece::new(&self.progress);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let bytes = show::next(&mut stream, &mut buffer).await?;
            if bytes.is_empty() {
                return Ok(());
            }
            // It has started, so it waits for nothing any more.
            if std::mem::take(&mut self.pod).reported.is_some() {
                let _ = self.sender.send(News::PodWaits(None)).await;
            }
            let new = piece.read(bytes, &mut self.progress);
            if !new.is_empty() && self.sender.send(News::Log(new)).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Whether the kubelet does not know the pod, which exists: it was just bound to the node.
fn is_new_there(failure: &Failure) -> bool {
    let Failure::Server(status) = failure else {
        return false;
    };
    let about = status.details.as_ref().map(|details| details.kind.as_str());
    status.code == 404 && about == Some("pods/log")
}

/// Whether the container has not started: the kubelet's answer is a bad request then.
fn is_waiting(failure: &Failure) -> bool {
    matches!(failure, Failure::Server(status) if status.code == 400)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    /// A server with the pod, whose log is answered with this status.
    fn connection(status: &Arc<AtomicU16>) -> Connection {
        let status = Arc::clone(status);
        let service = tower::service_fn(move |request: Request<Body>| {
            let code = status.load(Ordering::Relaxed);
            let (code, body) = if !request.uri().path().ends_with("/log") {
                let metadata = json!({"name": "x-pod", "uid": "u"});
                // The answer to a request for the metadata alone, and to one for the pod.
                let state = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
                let container = json!({"name": "at", "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0});
                let scheduled = if code == 204 {
                    json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"})
                } else {
                    json!({"type": "PodScheduled", "status": "True"})
                };
                let conditions = json!([scheduled]);
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                    "status": {"conditions": conditions, "containerStatuses": [container]}});
                (200, pod.to_string())
            } else if code == 204 {
                (204, String::new())
            } else if code == 200 {
                (200, "2026-11-27T12:00:00Z hello\n".to_owned())
            } else {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": if code == 403 { "Forbidden" } else { "" }, "message": "no log",
                    "details": {"kind": "pods/log", "name": "x-pod"}});
                (code, status.to_string())
            };
            let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
            let answer = answer.body(Body::from(body.into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        Connection {
            client: Client::new(service, "default"),
            namespace: "default".to_owned(),
            server: "server:6443".to_owned(),
        }
    }

    fn started() -> Item {
        let object = json!({"metadata": {"name": "x"}, "status": {"phase": "RUNNING", "podName": "x-pod", "podUID": "u"}});
        Item::read(&object.to_string()).unwrap()
    }

    async fn next(inbox: &mut mpsc::Receiver<News>) -> News {
        let news = time::timeout(Duration::from_secs(10), inbox.recv()).await;
        news.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_read_is_explained_at_once_and_shown_later() {
        let status = Arc::new(AtomicU16::new(500));
        let (sender, mut inbox) = mpsc::channel(4);
        let (handle, follower) = follower(&connection(&status), &started(), sender);
        let task = tokio::spawn(follower);
        let News::LogWaits(Some(reason)) = next(&mut inbox).await else {
            unreachable!()
        };
        assert_eq!(reason, "Error from server: no log");
        // Said once: the next message is about something else.
        time::sleep(PAUSE + Duration::from_millis(100)).await;
        status.store(200, Ordering::Relaxed);
        assert!(matches!(next(&mut inbox).await, News::LogWaits(None)));
        let News::Log(text) = next(&mut inbox).await else {
            unreachable!()
        };
        assert_eq!(text, b"hello\n");
        handle.over();
        assert!(matches!(next(&mut inbox).await, News::LogEnded(None)));
        task.await.unwrap();
    }

    /// Whether the kubelet knows the pod already or not.
    #[tokio::test]
    async fn what_the_container_waits_for_is_a_line_until_it_starts() {
        for code in [400, 404] {
            let status = Arc::new(AtomicU16::new(code));
            let (sender, mut inbox) = mpsc::channel(4);
            let (_handle, follower) = follower(&connection(&status), &started(), sender);
            tokio::spawn(follower);
            let News::PodWaits(Some(text)) = next(&mut inbox).await else {
                unreachable!()
            };
            assert_eq!(text, "ErrImagePull: at/x waits: not found");
            status.store(200, Ordering::Relaxed);
            assert!(matches!(next(&mut inbox).await, News::PodWaits(None)));
            assert!(matches!(next(&mut inbox).await, News::Log(_)));
        }
    }

    /// The API server answers so at once.
    #[tokio::test]
    async fn a_pod_without_a_node_has_an_empty_log_and_a_line_all_the_same() {
        let status = Arc::new(AtomicU16::new(204));
        let (sender, mut inbox) = mpsc::channel(4);
        let (_handle, follower) = follower(&connection(&status), &started(), sender);
        tokio::spawn(follower);
        let News::PodWaits(Some(text)) = next(&mut inbox).await else {
            unreachable!()
        };
        assert_eq!(text, "Unschedulable: at/x waits: 0/3 nodes");
        status.store(200, Ordering::Relaxed);
        assert!(matches!(next(&mut inbox).await, News::PodWaits(None)));
        assert!(matches!(next(&mut inbox).await, News::Log(_)));
    }

    #[test]
    fn what_a_pod_waits_for_is_reported_once_it_lasts_and_again_when_it_changes() {
        let mut waits = PodWaits::default();
        for (now, is_news) in [
            ("Pending", false),
            ("ContainerCreating", false),
            ("ContainerCreating", true),
            ("ContainerCreating", false),
            ("ErrImagePull", false),
            ("ErrImagePull", true),
        ] {
            assert_eq!(waits.has_changed(Some(now.to_owned())), is_news, "{now}");
        }
        assert_eq!(waits.reported.as_deref(), Some("ErrImagePull"));
    }

    #[tokio::test]
    async fn a_log_that_may_not_be_read_is_given_up_with_the_servers_words() {
        let status = Arc::new(AtomicU16::new(403));
        let (sender, mut inbox) = mpsc::channel(4);
        let (_handle, follower) = follower(&connection(&status), &started(), sender);
        tokio::spawn(follower);
        let News::LogEnded(Some(failure)) = next(&mut inbox).await else {
            unreachable!()
        };
        assert_eq!(failure.to_string(), "Error from server (Forbidden): no log");
    }
}
