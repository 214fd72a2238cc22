//! Two replicas, of which one leads at a time: `cargo run -p fenced-lease --example two_replicas`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Duration;

use fenced_lease::{Elector, Settings};
use kube::Client;
use simulated_apiserver::{Options, Server};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

async fn replica(name: &str, client: Client) {
    let elector = Elector::new(Settings {
        identity: name.to_owned(),
        ..Settings::new(client, "default", "example")
    });
    let resign = CancellationToken::new(); // cancel it to leave the election
    // Called again if the lease is lost and acquired again; by then, the earlier work was dropped.
    let lead = elector.unwrap().lead(&resign, async |term| {
        println!("{name} leads, and may send: {}", term.fence.is_open());
        sleep(Duration::from_secs(1)).await; // the work of the leader
    });
    lead.await.unwrap();
    println!("{name} released the lease");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::new(Options::default());
    tokio::join!(
        replica("one", server.client("one")),
        replica("two", server.client("two")),
    );
}
