//! A controller of kube's that counts in each ConfigMap with the label `count=yes`, in one of several replicas at a time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fenced_lease::{Elector, Periods, Settings};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::infer().await?;
    let elector = Elector::new(Settings {
        // Shorter than by default, for the test.
        periods: Periods {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1_500),
            retry_period: Duration::from_millis(300),
        },
        ..Settings::new(Client::try_from(config.clone())?, "default", "counter")
    })?;
    // For the test, which shows what the fence is for.
    let is_fenced = std::env::args().all(|argument| argument != "--without-fence");
    let resign = CancellationToken::new();
    let lead = elector.lead(&resign, async |term| -> kube::Result<()> {
        let client = if is_fenced {
            term.fence.client(&config)?
        } else {
            Client::try_from(config.clone())?
        };
        controller(client).await;
        Ok(())
    });
    lead.await.transpose()?;
    Ok(())
}

async fn controller(client: Client) {
    let configs = Api::<ConfigMap>::default_namespaced(client.clone());
    Controller::new(configs, watcher::Config::default().labels("count=yes"))
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(client),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(config: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let configs = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
    // In a task of its own, as long work often is: it goes on when the controller is dropped.
    let work = tokio::spawn(async move {
        let count = config.data.as_ref().and_then(|data| data.get("count"));
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0_u64);
        tokio::time::sleep(Duration::from_millis(50)).await; // it computes
        let next = Patch::Merge(json!({"data": {"count": (count + 1).to_string()}}));
        configs
            .patch(&config.name_any(), &PatchParams::default(), &next)
            .await
    });
    let written = work.await;
    written.map_err(|error| kube::Error::Service(error.into()))??;
    Ok(Action::await_change())
}
