//! A simulated API server on a loopback port: a real one would need hours and tens of gigabytes for a million objects.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::to_bytes;
use chrono::Utc;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use my_operator_cluster::Process;
use serde_json::{Value, json};
use simulated_apiserver::{Options, Server, Status};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tower::Service as _;

use crate::operator::{Operator, Running};

/// The server, and a folder for the operator's log.
pub(super) struct Plane {
    pub(super) server: Server,
    folder: PathBuf,
    accepting: AbortHandle,
}

impl Plane {
    /// Starts one. No controller runs beside it.
    pub(super) async fn start() -> Result<Self> {
        let server = Server::new(Options {
            start: Utc::now(),
            watch_delay: Duration::ZERO,
            collector: None,
            ..Options::default()
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let folder = std::env::temp_dir().join(format!("my-operator-bench-{}", address.port()));
        fs::create_dir_all(&folder)?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "simulated", "user": {}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
        });
        let accepting = tokio::spawn(accept(listener, server.clone())).abort_handle();
        let plane = Self {
            server,
            folder,
            accepting,
        };
        fs::write(plane.kubeconfig(), kubeconfig.to_string())?;
        Ok(plane)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Creates an object.
    pub(super) fn create(&self, object: Value) -> Result<()> {
        let created = self.server.direct().create(object);
        created.map(drop).map_err(|status| failed(&status))
    }

    /// Starts an operator, and waits until it is ready.
    pub(super) async fn operator(&self, operator: Operator) -> Result<Running> {
        let log = self.folder.join("operator.log");
        let spawn = |command: &mut Command| {
            let file = File::options().create(true).append(true).open(&log)?;
            let command = command.stdin(Stdio::null()).stderr(file.try_clone()?);
            let child = command.stdout(file).spawn();
            let child = child.context("cannot start the operator")?;
            Ok(Process::new(child, log.clone()))
        };
        operator
            .start_with(&self.kubeconfig(), &self.folder, spawn)
            .await
    }
}

/// What the server says of a call that failed.
pub(super) fn failed(status: &Status) -> anyhow::Error {
    anyhow::anyhow!("the simulated API server says: {}", status.message)
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.accepting.abort();
        // The system removes what is left there.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn accept(listener: TcpListener, server: Server) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let connection = server.service("operator");
        let service = service_fn(move |request: http::Request<Incoming>| {
            let mut connection = connection.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(axum::body::Body::new(body), usize::MAX).await?;
                let request = http::Request::from_parts(parts, Body::from(body.to_vec()));
                connection.call(request).await
            }
        });
        // The operator closes connections as it likes.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
