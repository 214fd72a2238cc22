//! One address for several replicas, as a Service is: each connection goes to one that is ready.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Operator, http_get};

/// How soon a replica that is no longer ready is left out.
const PROBE_EVERY: Duration = Duration::from_millis(200);

/// It takes in connections until it is dropped.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    replicas: Arc<Mutex<Vec<Option<Replica>>>>,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Replica {
    webhook: String,
    probes: String,
    ready: bool,
}

impl Balancer {
    /// For so many replicas, none of which is there yet.
    pub(crate) async fn start(replicas: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let replicas = Arc::new(Mutex::new(vec![None; replicas]));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, replicas.clone()));
        tasks.spawn(probe(replicas.clone()));
        Self {
            address,
            replicas,
            _tasks: tasks,
        }
    }

    /// The URL of the webhooks.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Puts an operator in that place. It gets connections once it is ready.
    pub(crate) fn put(&self, place: usize, operator: &Operator) {
        self.put_at(place, &operator.webhook, &operator.probes);
    }

    fn put_at(&self, place: usize, webhook: &str, probes: &str) {
        self.replicas.lock().unwrap()[place] = Some(Replica {
            webhook: webhook.to_owned(),
            probes: probes.to_owned(),
            ready: false,
        });
    }

    /// Whether the operator in that place gets connections.
    pub(crate) fn is_ready(&self, place: usize) -> bool {
        let replicas = self.replicas.lock().unwrap();
        replicas[place]
            .as_ref()
            .is_some_and(|replica| replica.ready)
    }
}

async fn accept(listener: TcpListener, replicas: Arc<Mutex<Vec<Option<Replica>>>>) {
    let next = AtomicUsize::new(0);
    let mut connections = JoinSet::new();
    loop {
        let (mut peer, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        let mut ready: Vec<String> = {
            let replicas = replicas.lock().unwrap();
            let ready = replicas.iter().flatten().filter(|replica| replica.ready);
            ready.map(|replica| replica.webhook.clone()).collect()
        };
        if !ready.is_empty() {
            let first = next.fetch_add(1, Ordering::Relaxed) % ready.len();
            ready.rotate_left(first);
        }
        connections.spawn(async move {
            for webhook in ready {
                // One that was killed refuses until its readiness is looked at again.
                if let Ok(mut replica) = TcpStream::connect(&webhook).await {
                    let _ = (peer.set_nodelay(true), replica.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut peer, &mut replica).await;
                    return;
                }
            }
        });
    }
}

async fn probe(replicas: Arc<Mutex<Vec<Option<Replica>>>>) {
    loop {
        let known = replicas.lock().unwrap().clone();
        for (place, replica) in known.into_iter().enumerate() {
            let Some(mut replica) = replica else { continue };
            let probes = replica.probes.clone();
            let answer = tokio::task::spawn_blocking(move || http_get(&probes, "/readyz")).await;
            replica.ready = matches!(answer, Ok(Some((200, _))));
            let mut replicas = replicas.lock().unwrap();
            // Another may have come into its place meanwhile.
            if let Some(now) = &mut replicas[place]
                && now.probes == replica.probes
            {
                now.ready = replica.ready;
            }
        }
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::harness::wait_for;

    /// Answers each connection with this text; `None` where connections are refused.
    async fn answers(text: Option<&'static str>) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        if let Some(text) = text {
            tasks.spawn(async move {
                while let Ok((mut peer, _)) = listener.accept().await {
                    // Without this the peer may get a reset and not the answer.
                    let _ = peer.readable().await;
                    let mut request = [0; 4096];
                    let _ = peer.try_read(&mut request);
                    let _ = peer.write_all(text.as_bytes()).await;
                }
            });
        }
        (address, tasks)
    }

    async fn ask(balancer: &Balancer) -> String {
        let mut peer = TcpStream::connect(balancer.address).await.unwrap();
        peer.write_all(b"?").await.unwrap();
        let mut answer = String::new();
        let _ = peer.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_ready_replicas_that_accept_connections_are_used() {
        const READY: &str = "HTTP/1.1 200 OK\r\n\r\nok";
        const UNREADY: &str = "HTTP/1.1 503 Service Unavailable\r\n\r\nno";
        let balancer = Balancer::start(4).await;
        let replicas = [
            (Some("one"), READY),
            (Some("two"), READY),
            (Some("unready"), UNREADY),
            (None, READY),
        ];
        let mut tasks = Vec::new();
        for (place, (webhook, ready)) in replicas.into_iter().enumerate() {
            let (webhook, serving) = answers(webhook).await;
            let (health, probing) = answers(Some(ready)).await;
            balancer.put_at(place, &webhook, &health);
            tasks.extend([serving, probing]);
        }
        wait_for("three ready replicas", async || {
            let ready = [0, 1, 3].iter().all(|place| balancer.is_ready(*place));
            ready.then_some(())
        })
        .await;
        assert!(!balancer.is_ready(2));
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..12 {
            *seen.entry(ask(&balancer).await).or_insert(0) += 1;
        }
        // The connections for the fourth go to the one after it.
        assert_eq!(seen, [("one".to_owned(), 8), ("two".to_owned(), 4)].into());
    }
}
