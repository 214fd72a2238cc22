//! An admission webhook on axum whose CA is its own, and changes without a refused call: a pod needs an owner.

#[cfg(test)]
mod tests;

use std::{error::Error, net::Ipv6Addr, sync::Arc};

use axum::{Json, Router, routing::post};
use bounded_listener::{Limits, Shutdown, bind, serve, tls_config};
use kube::{Client, Config, client::ClientBuilder};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use webhook_certs::{BundleTarget, CertManager, Periods, ServerClock, Settings};

type Ended = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Ended {
    let (config, clock) = (Config::infer().await?, ServerClock::default());
    let client = ClientBuilder::try_from(config)?.with_layer(&clock).build();
    let on = bind((Ipv6Addr::UNSPECIFIED, 9443).into())?;
    webhook(client, clock, Periods::default(), on).await
}

/// Serves the webhook, and registers it under the Service `owned-pods` of the namespace `default`.
async fn webhook(client: Client, clock: ServerClock, periods: Periods, on: TcpListener) -> Ended {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "owned-pods"},
        "webhooks": [{
            "name": "owned-pods.example.com",
            "clientConfig": {"service": {"namespace": "default", "name": "owned-pods", "port": 9443}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None",
        }],
    });
    let settings = Settings {
        manager: "owned-pods".to_owned(),
        namespace: "default".to_owned(),
        secret: "owned-pods-ca".to_owned(),
        create_namespace: false,
        hosts: vec!["owned-pods.default.svc".to_owned()],
        periods,
        target: BundleTarget::Own(vec![configuration]),
    };
    let manager = CertManager::new(client, settings, Arc::new(chrono::Utc::now), clock)?;
    let tls = tls_config(manager.resolver(), None)?;
    let router = Router::new().route("/", post(review));
    tokio::select! {
        served = serve(on, tls, router, Limits::default(), Shutdown::default(), Arc::default()) => Ok(served?),
        kept = manager.run(Shutdown::default().stop) => Ok(kept?),
    }
}

async fn review(Json(mut review): Json<Value>) -> Json<Value> {
    let owned = review["request"]["object"]["metadata"]["ownerReferences"].is_array();
    let why = json!({"message": "a pod needs an owner: create a Deployment instead"});
    review["response"] = json!({"uid": review["request"]["uid"], "allowed": owned, "status": why});
    Json(review)
}
