//! The operator killed, absent or damaged, on a real control plane. Each test runs operators of its own, confined to its
//! own namespace.

mod balancer;
mod certificates;
mod client_certificates;
mod cold_start;
mod damage;
mod flooded;
mod killed;
pub(crate) mod kills;
mod kinds;
mod leader;
mod load;
mod memory;
mod namespaces;
mod planes;
mod records;
mod refused;
mod rollouts;
mod rotation;
mod scrapes;
mod silent;
mod states;
mod stored;
mod unseen;

use crate::harness::Kubectl;
pub(crate) use planes::{cluster, webhook_plane};

/// Prints a measured value.
#[allow(clippy::print_stdout)]
fn report(text: &str) {
    println!("{text}");
}

const VALIDATING: &str =
    "validatingwebhookconfiguration/my-operator-validating-webhook-configuration";

/// Waits for an Event with that reason and these words.
async fn until_event(kubectl: &Kubectl, reason: &str, words: &str) {
    let what = format!("with {reason}: {words}");
    kubectl
        .until("events", &what, |list| {
            let mut events = list?["items"].as_array()?.iter();
            let is = |event: &serde_json::Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["reason"] == reason && message.contains(words)
            };
            events.any(is).then_some(())
        })
        .await;
}
