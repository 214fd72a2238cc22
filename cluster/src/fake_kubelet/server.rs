//! The I/O of the fake kubelet's server: connections, and what the API server knows of the pod that is asked for.
//!
//! It listens where only this machine and a real node beside it come, so it asks for no credentials, as the kubelet of
//! that node. What it sends are the sentences of `requests`; nothing that a pod holds is in them.

use std::convert::Infallible;
use std::future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::requests::{self, Log, Question, Refusal, Subject};
use super::stages;
use crate::error::Error;
use crate::pki;

/// How many connections there are at a time, each of one request; more wait to be accepted. A followed log is one.
const MAX_CONNECTIONS: usize = 128;

/// The longest head of a request, in bytes. One of the API server's is below 1 kB.
const MAX_HEAD: usize = 16 * 1024;

/// Time limit of a handshake, and of the head of a request after it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for what is read of the API server before an answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a connection that could not be accepted, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A server that listens.
pub(super) struct Server {
    listener: TcpListener,
    endpoint: SocketAddr,
    tls: TlsAcceptor,
}

impl Server {
    /// Listens at an address and port, or at any other port of that address if another process has this one: the nodes
    /// say which.
    pub(super) async fn bind(wanted: SocketAddr) -> Result<Self, Error> {
        let bound = match TcpListener::bind(wanted).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                TcpListener::bind((wanted.ip(), 0)).await
            }
            bound => bound,
        };
        let cannot_listen = |error| {
            Error::Internal(format!(
                "the fake kubelet cannot listen at {wanted}: {error}"
            ))
        };
        let listener = bound.map_err(cannot_listen)?;
        let endpoint = listener.local_addr().map_err(cannot_listen)?;
        let tls = TlsAcceptor::from(Arc::new(pki::unchecked(endpoint.ip())?));
        Ok(Self {
            listener,
            endpoint,
            tls,
        })
    }

    /// Where it listens.
    pub(super) fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// Answers for ever, with what the cluster of `client` has.
    pub(super) async fn run(self, client: Client) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (tls, client) = (self.tls.clone(), client.clone());
            // It ends with the runtime, which ends with the fake kubelet.
            tokio::spawn(async move {
                serve(stream, &tls, &client).await;
                drop(permit);
            });
        }
    }
}

/// Answers the one request of a connection. One that breaks needs no word: its other end knows.
async fn serve(stream: TcpStream, tls: &TlsAcceptor, client: &Client) {
    let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let (head, _) = request.into_parts();
        let client = client.clone();
        async move {
            let query = head.uri.query().unwrap_or_default();
            let question = Question::parse(&head.method, head.uri.path(), query, Timestamp::now());
            let answer = match question {
                Ok(question) => answer(client, question).await,
                Err(refusal) => Err(refusal),
            };
            Ok::<_, Infallible>(answer.unwrap_or_else(refused))
        }
    });
    let connection = http1::Builder::new()
        // An idle connection would take the place of another.
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

async fn answer(client: Client, question: Question) -> Result<Answer, Refusal> {
    let found = timeout(LOOKUP_TIMEOUT, pod(&client, &question)).await;
    let pod = found.unwrap_or_else(|_| Err(unknown("it does not answer")))?;
    match question.subject {
        Subject::Connection => Err(Refusal::no_connection(requests::node_name(&pod))),
        Subject::Log { container, options } => {
            let log = requests::log(&pod, &container, &options)?;
            if log.complete {
                return Ok(plain(StatusCode::OK, log.text));
            }
            Ok(followed(client, pod, container, log))
        }
    }
}

/// The pod that is asked for, if it is on a fake node.
async fn pod(client: &Client, question: &Question) -> Result<Pod, Refusal> {
    let Question { namespace, pod, .. } = question;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = pods.get_opt(pod).await.map_err(unknown)?;
    let found = found.ok_or_else(|| {
        Refusal::not_found(format!("pod {pod:?} not found in namespace {namespace:?}"))
    })?;
    let node = requests::node_name(&found);
    if node.is_empty() {
        let line = format!("pod {pod:?} is on no node");
        return Err(Refusal::not_found(line));
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let is_fake = nodes.get_opt(node).await.map_err(unknown)?;
    if !is_fake.is_some_and(|node| stages::is_fake(&node)) {
        let line = format!("pod {pod:?} is on {node}, which is not a fake node");
        return Err(Refusal::not_found(line));
    }
    Ok(found)
}

fn unknown(cause: impl std::fmt::Display) -> Refusal {
    let line = format!("the fake kubelet cannot ask the API server: {cause}");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, line)
}

/// A log, and nothing more until its container has ended.
fn followed(client: Client, pod: Pod, container: String, log: Log) -> Answer {
    let (name, uid) = (pod.metadata.name.unwrap_or_default(), pod.metadata.uid);
    let namespace = pod.metadata.namespace.unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let end = async move {
        let has_ended = move |found: Option<&Pod>| {
            found.is_none_or(|found| {
                found.metadata.uid != uid || requests::has_ended(found, &container)
            })
        };
        // Where the pod cannot be watched, the answer ends: who follows a log asks again.
        let _ = await_condition(pods, &name, has_ended).await;
    };
    let text = (!log.text.is_empty()).then(|| Frame::data(Bytes::from(log.text)));
    let text = text.map(Ok::<_, Infallible>);
    let end = stream::once(end).filter_map(|()| future::ready(None));
    let body = StreamBody::new(stream::iter(text).chain(end));
    respond(StatusCode::OK, body.boxed_unsync())
}

fn refused(refusal: Refusal) -> Answer {
    plain(refusal.code, refusal.line)
}

fn plain(code: StatusCode, text: String) -> Answer {
    respond(code, Full::new(Bytes::from(text)).boxed_unsync())
}

fn respond(code: StatusCode, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let text = HeaderValue::from_static("text/plain");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}
