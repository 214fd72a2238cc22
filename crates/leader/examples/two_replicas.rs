//! Two replicas, of which one leads at a time: `cargo run -p my-operator-leader --example two_replicas`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Duration;

use kube::Client;
use my_operator_client::clock;
use my_operator_leader::{Elector, Periods, Settings};
use my_operator_runtime::reconcile::health::Health;
use simulated_apiserver::{Options, Server};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

async fn replica(name: &str, client: Client) -> anyhow::Result<()> {
    let elector = Elector::new(Settings {
        client,
        namespace: "default".to_owned(),
        lease: "example".to_owned(),
        periods: Periods {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(500),
        },
        clock: clock::system(),
        health: Health::default(),
    });
    let resign = CancellationToken::new(); // cancel it to leave the election
    // Called again if the lease is lost and acquired again; by then, the earlier work was dropped.
    let lead = elector.lead(&resign, async |term| {
        println!("{name} leads, and may send: {}", term.fence.is_open());
        sleep(Duration::from_secs(1)).await; // the work of the leader
        Ok(())
    });
    lead.await?;
    println!("{name} released the lease");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::new(Options::default());
    let (one, two) = tokio::join!(
        replica("one", server.client("one")),
        replica("two", server.client("two")),
    );
    one.and(two).unwrap();
}
