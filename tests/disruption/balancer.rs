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
        self.replicas.lock().unwrap()[place] = Some(Replica {
            webhook: operator.webhook.clone(),
            probes: operator.probes.clone(),
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
