//! A webhook's certificates from a CA of its own: `cargo run -p webhook-certs --example own_ca`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use chrono::Utc;
use kube::client::ClientBuilder;
use serde_json::json;
use simulated_apiserver::{Options, Server};
use tokio_util::sync::CancellationToken;
use webhook_certs::{BundleTarget, CertManager, Periods, ServerClock, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::new(Options {
        start: Utc::now(),
        ..Options::default()
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "example"},
        "webhooks": [{"name": "a.example.com", "clientConfig": {"url": "https://localhost:9443"}}],
    });
    let settings = Settings {
        manager: "example".to_owned(),
        namespace: "default".to_owned(),
        secret: "example-ca".to_owned(),
        create_namespace: false,
        hosts: vec!["localhost".to_owned()],
        periods: Periods::default(),
        target: BundleTarget::Own(vec![configuration]),
    };
    let server_clock = ServerClock::default();
    let client = ClientBuilder::new(server.service("webhook"), "default");
    let client = client.with_layer(&server_clock).build();
    let manager = CertManager::new(client, settings, Arc::new(Utc::now), server_clock);
    let manager = manager.unwrap();
    let resolver = manager.resolver(); // for rustls: the current leaf
    let mut state = manager.state();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));

    let ready = state.wait_for(|state| state.leaf_ready && state.bundle_published);
    println!("leaf until {:?}", ready.await.unwrap().leaf_not_after);
    println!("the listener has it: {}", resolver.get().is_some());
    let direct = server.direct();
    let published = direct.get("ValidatingWebhookConfiguration", "", "example");
    println!("{}", published.unwrap()["webhooks"][0]["clientConfig"]);

    stop.cancel();
    running.await.unwrap().unwrap();
}
