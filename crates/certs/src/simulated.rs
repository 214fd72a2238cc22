//! The cluster of a test: a simulated API server, and the machine that the process under test runs on.
#![allow(clippy::unwrap_used)]

use kube::Client;
use serde_json::{Value, json};
use simulated_apiserver::{Clock, Decision, Options, Request, Server, Site, Status, Verb};
use tower::Layer as _;

use super::server_clock::ServerClock;

/// The name of every configuration.
pub(super) const NAME: &str = "ours";

pub(super) struct Cluster {
    pub(super) server: Server,
    pub(super) machine: Clock,
}

/// A configuration with these entries, without any bundle.
pub(super) fn configuration(kind: &str, entries: &[&str]) -> Value {
    let webhooks: Vec<_> = entries
        .iter()
        .map(|entry| json!({"name": entry, "clientConfig": {"url": "https://127.0.0.1"}}))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": webhooks,
    })
}

impl Cluster {
    /// Both clocks show the same time at first.
    pub(super) fn new() -> Self {
        Self {
            server: Server::new(Options::default()),
            machine: Clock::boot(),
        }
    }

    pub(super) fn client(&self) -> Client {
        self.server.client("operator")
    }

    /// A client whose answers set `server_clock`.
    pub(super) fn client_noting(&self, server_clock: &ServerClock) -> Client {
        let service = server_clock.layer(self.server.service("operator"));
        Client::new(service, "default")
    }

    /// The configuration of that kind.
    pub(super) fn get(&self, kind: &str) -> Option<Value> {
        self.server.direct().get(kind, "", NAME)
    }

    /// Another client creates a configuration, or replaces all entries of the one that exists.
    pub(super) fn put(&self, configuration: Value) {
        let kind = configuration["kind"].as_str().unwrap().to_owned();
        let direct = self.server.direct();
        let done = if self.get(&kind).is_none() {
            direct.create(configuration)
        } else {
            direct.edit(&kind, "", NAME, |object| {
                object["webhooks"] = configuration["webhooks"].clone();
            })
        };
        done.unwrap();
    }

    /// Every request at those sites fails with that code.
    pub(super) fn fail(
        &self,
        code: u16,
        message: &'static str,
        sites: impl Fn(&Site) -> bool + Send + Sync + 'static,
    ) {
        self.server.on(move |site: &Site| {
            let reason = match code {
                403 => "Forbidden",
                _ => "InternalError",
            };
            if sites(site) {
                Decision::Answer(Status::new(code, reason, message))
            } else {
                Decision::Forward
            }
        });
    }

    pub(super) fn heal(&self) {
        self.server.on(|_: &Site| Decision::Forward);
    }

    /// The requests of clients after the first `since`.
    pub(super) fn requests(&self, since: usize) -> Vec<Request> {
        self.server.history().requests.split_off(since)
    }

    /// How many of the requests write.
    pub(super) fn writes(requests: &[Request]) -> usize {
        let reads = [Verb::Get, Verb::List, Verb::Watch];
        let writes = requests
            .iter()
            .filter(|one| !reads.contains(&one.site.verb));
        writes.count()
    }
}
