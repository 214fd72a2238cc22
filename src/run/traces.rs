//! The connection to the collector of traces.

use std::sync::Arc;

use anyhow::Context as _;
use axum::body::{self, Bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{Request, Response, Uri};
use futures::FutureExt as _;
use kube::client::Body;
use kube::{Client, Config};

use crate::manifests::PREFIX;
use my_operator_telemetry::traces::{Send, Settings, Traces};
use resilient_kube_client as client;

/// The longest answer of a collector: it is empty, or says what was wrong.
const MAX_ANSWER: usize = 64 * 1024;

/// Sends traces where the standard variables say, within a runtime of tokio. None if they name no collector.
///
/// # Errors
/// When a variable has a value that cannot be followed, which the message names.
pub fn start(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Traces>> {
    let Some(settings) = Settings::read(variable)? else {
        return Ok(None);
    };
    let send = connect(&settings)?;
    Traces::start(&settings, PREFIX, env!("CARGO_PKG_VERSION"), send).map(Some)
}

/// Connections of their own, made as those to the API server are: with the same TLS, proxies and time limits.
fn connect(settings: &Settings) -> anyhow::Result<Send> {
    // Requests have the path.
    let mut server = settings.endpoint.clone().into_parts();
    server.path_and_query = Some(PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(server)?);
    // The image has no authorities of a system to fall back to, and plain HTTP needs none.
    let needs_none = settings.endpoint.scheme_str() == Some("http");
    if needs_none || settings.certificate.is_some() {
        config.root_cert = Some(Vec::new());
    }
    config.root_cert_file.clone_from(&settings.certificate);
    config.proxy_url = client::choose_proxy(&settings.endpoint, None)?;
    let builder = client::builder(&config, client::tcp())
        .context("cannot send traces: OTEL_EXPORTER_OTLP_CERTIFICATE must be a file with the CA of the collector")?;
    let client = builder.build();
    Ok(Arc::new(move |request| {
        post(client.clone(), request).boxed()
    }))
}

async fn post(client: Client, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let answer = client.send(request.map(Body::from)).await;
    let (parts, body) = answer
        .map_err(|error| anyhow::anyhow!(client::explain(&error)))?
        .into_parts();
    let body = body::to_bytes(body::Body::new(body), MAX_ANSWER).await;
    Ok(Response::from_parts(
        parts,
        body.context("its answer cannot be read")?,
    ))
}
