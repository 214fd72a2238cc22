//! Runs a command once, as an At, and waits for its end: `cargo run --example client -- NAME COMMAND [TEMPLATE]`, where
//! TEMPLATE is a pod template in JSON. docs/clients.md explains it.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::api::{ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Error, ResourceExt as _};
use my_operator_at::crd::{At, AtSpec};
use tokio::time::timeout;

/// The label by which this program finds its Ats again.
const LABEL: &str = "example.com/client";

/// Creates it. A rejection names every fault, each with its field.
async fn create(ats: &Api<At>, at: &At) -> anyhow::Result<At> {
    match ats.create(&PostParams::default(), at).await {
        Err(Error::Api(status)) if status.is_invalid() => {
            for cause in status.details.iter().flat_map(|details| &details.causes) {
                println!("{}: {}", cause.field, cause.message);
            }
            bail!("the At is invalid")
        }
        created => Ok(created?),
    }
}

/// There is a result as soon as the command has ended, or cannot start any more.
fn is_over(at: &At) -> bool {
    let status = at.status.as_ref();
    status.is_some_and(|status| status.result.is_some())
}

/// How it ended. There is no exit code where the command did not run to an end.
fn ending(at: &At) -> String {
    let status = at.status.clone().unwrap_or_default();
    let result = status.result.map(|result| format!("{result:?}"));
    let result = result.unwrap_or_else(|| "not over".to_owned());
    let code = status.exit_code.map(|code| format!(", exit code {code}"));
    format!("{}: {result}{}", at.name_any(), code.unwrap_or_default())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(command)) = (arguments.next(), arguments.next()) else {
        bail!("usage: client NAME COMMAND [TEMPLATE]")
    };
    let template = arguments.next().map(|text| serde_json::from_str(&text));
    let spec = AtSpec {
        schedule: Some("now".to_owned()),
        command: Some(command),
        template: template.transpose()?,
        ..AtSpec::default() // the webhook fills in the defaults
    };
    let mut at = At::new(&name, spec);
    at.labels_mut().insert(LABEL.to_owned(), "rust".to_owned());

    // The namespace is that of the kubeconfig's context or, in a cluster, of the pod.
    let ats: Api<At> = Api::default_namespaced(Client::try_default().await?);
    let uid = create(&ats, &at).await?.uid();
    println!("created {name}");
    let ended = |found: Option<&At>| found.is_none_or(|at| at.uid() != uid || is_over(at));
    let end = await_condition(ats.clone(), &name, ended);
    let end = timeout(Duration::from_mins(10), end).await;
    let found = end.context("it is not over after 10 minutes")??;
    let Some(at) = found.filter(|at| at.uid() == uid) else {
        bail!("{name} was deleted before its end")
    };
    println!("{}", ending(&at));

    let label = ListParams::default().labels(&format!("{LABEL}=rust"));
    for at in ats.list(&label).await? {
        println!("listed {}", ending(&at));
    }
    Ok(())
}
