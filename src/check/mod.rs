//! `my-operator check`: whether an installation works, in one line for each thing that can be wrong.
//!
//! [`fetch`] reads the cluster, and writes nothing: objects are created only as dry runs. [`installation`] finds what is
//! installed and how it is set. The other modules each fetch the facts for some findings, and judge them in pure
//! functions. What the caller may not read is a warning, "unknown:", and never fine.

mod certificates;
mod configurations;
mod crds;
mod fetch;
mod installation;
mod lease;
mod outside;
mod pre;
mod replicas;
pub mod report;
mod rights;
mod webhooks;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::kinds::{self, Kind};
use crate::manifests::{self, Scope};
use crate::run::api_server::new_enough;
use crate::run::own_namespace::own_namespace;
use fetch::{Cluster, Fetched, Resource};
use installation::Installation;
use my_operator_kind::flag_values::duration;
use report::{Finding, Report};
use resilient_kube_client as client;
use rights::User;
use wall_clock_controller::reconcile::Shard;
use webhook_certs::ServerClock;

/// The time limit of one pass.
const PASS_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two passes.
const PAUSE: Duration = Duration::from_secs(2);

/// The flags of `my-operator check`.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Check whether the operator can be installed, instead of an installation.
    #[arg(long)]
    pub pre: bool,
    /// With --pre: the kinds to install, separated by commas; without any, those that are on by default.
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds::of_name, requires = "pre")]
    pub kinds: Vec<&'static Kind>,
    /// Fail (exit code 1) also if something could not be checked, for a lack of rights or of an answer.
    #[arg(long)]
    pub strict: bool,
    /// Check again until nothing has failed, for this time at most.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,
    /// How to print the findings.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The context of the kubeconfig to use; its current one by default.
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// The namespace of the operator: the pod's own by default, my-operator-system outside a cluster.
    #[arg(long, value_name = "NAMESPACE", value_parser = label)]
    pub operator_namespace: Option<String>,
    /// Where to look at the serving certificate, such as the end of a `kubectl port-forward`. By default the
    /// Service of the webhooks in a pod, and nowhere outside.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "pre")]
    pub webhook_address: Option<String>,
}

/// The forms of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A line for each finding.
    Text,
    /// One JSON document.
    Json,
}

/// A name becomes part of paths.
fn label(text: &str) -> Result<String, String> {
    if admission_rules::names::has_form_of_label(text) {
        Ok(text.to_owned())
    } else {
        Err("a namespace has lower case letters, digits and -".to_owned())
    }
}

/// Checks, prints the last state to `out` and progress to `progress`, and returns the exit code: 0 or 1.
///
/// # Errors
/// When there is no cluster, or it cannot be reached (exit code 2).
pub async fn run(
    flags: &Flags,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> anyhow::Result<u8> {
    let config = client::config(flags.context.as_deref()).await?;
    let clock = ServerClock::default();
    let client = client::connect(&config, &client::Metrics::default(), client::tcp())?;
    let cluster = Cluster::new(client.with_layer(&clock).build(), clock);
    let namespace = own_namespace(flags.operator_namespace.as_deref());
    let report = repeat(flags, &cluster, &namespace, progress).await?;
    match flags.output {
        Output::Text => report.text(out),
        Output::Json => report.json(out),
    }
    .context("cannot write the report")?;
    Ok(report.exit_code(flags.strict))
}

/// Passes until nothing has failed, or the time is over.
async fn repeat(
    flags: &Flags,
    cluster: &Cluster,
    namespace: &str,
    progress: &mut dyn Write,
) -> anyhow::Result<Report> {
    let end = Instant::now() + flags.wait.unwrap_or_default();
    let mut shown = String::new();
    loop {
        let last = match timeout(PASS_TIMEOUT, pass(flags, cluster, namespace)).await {
            Ok(last) => last,
            Err(_) => Err(anyhow::anyhow!(
                "the API server is too slow: no result within {} s",
                PASS_TIMEOUT.as_secs()
            )),
        };
        let over = Instant::now() + PAUSE >= end;
        let waits_for = match &last {
            Ok(report) if report.exit_code(flags.strict) == 0 || over => return last,
            Err(_) if over => return last,
            Ok(report) => {
                let find = |is: fn(&&Finding) -> bool| report.checks.iter().find(is);
                let failed = find(|it| it.level == report::Level::Failed);
                let first = failed.or_else(|| find(|it| it.unknown));
                first.map(Finding::line).unwrap_or_default()
            }
            Err(error) => client::explain(error.as_ref()),
        };
        if waits_for != shown {
            // A closed stream does not matter: the report counts.
            let _ = writeln!(progress, "waiting: {waits_for}");
            shown = waits_for;
        }
        sleep(PAUSE).await;
    }
}

async fn pass(flags: &Flags, cluster: &Cluster, namespace: &str) -> anyhow::Result<Report> {
    let mut findings = vec![server(cluster.version().await)?];
    if flags.pre {
        let kinds = match flags.kinds.as_slice() {
            [] => kinds::by_default(),
            some => some.to_vec(),
        };
        findings.extend(pre::check(cluster, namespace, &kinds).await);
    } else {
        let address = flags.webhook_address.as_deref();
        findings.extend(installed(cluster, namespace, address).await);
    }
    Ok(Report::new(namespace, findings))
}

/// The finding on the API server's version.
fn server(version: Fetched<Value>) -> anyhow::Result<Finding> {
    const CHECK: &str = "server-version";
    let version = match version {
        Ok(version) => version,
        Err(unread) => bail!("cannot reach the API server: {}", unread.text()),
    };
    let text = |field: &str| version[field].as_str().unwrap_or_default();
    Ok(match new_enough(text("major"), text("minor")) {
        Ok(()) => Finding::passed(CHECK, format!("Kubernetes {}", text("gitVersion"))),
        Err(error) => Finding::failed(CHECK, error.to_string()).action("upgrade the cluster"),
    })
}

/// The findings on an installation, in the order in which they depend on each other.
async fn installed(cluster: &Cluster, namespace: &str, address: Option<&str>) -> Vec<Finding> {
    let mut installed = Installation::read(cluster, namespace).await;
    if installed.is_missing()
        && let Some(found) = outside::find(cluster, namespace).await
    {
        installed = Installation::outside(namespace, found);
    }
    let crds = installed
        .kinds
        .iter()
        .map(|kind| crds::check(cluster, kind));
    let (crds, (replicas, names), webhooks) = tokio::join!(
        futures::future::join_all(crds),
        replicas(cluster, &installed),
        webhooks(cluster, &installed, address),
    );
    let rights = rights(cluster, &installed);
    let leaders = leaders(cluster, &installed, names.as_deref());
    let (rights, leaders) = tokio::join!(rights, leaders);
    let mut findings = vec![installed.finding];
    findings.extend(replicas);
    findings.extend(crds);
    findings.extend(rights);
    findings.extend(leaders);
    findings.extend(webhooks);
    findings
}

/// The findings on the Deployment of each shard, and the names of their pods.
async fn replicas(
    cluster: &Cluster,
    installed: &Installation,
) -> (Vec<Finding>, Option<Vec<String>>) {
    let (mut findings, mut names) = (Vec::new(), Some(Vec::new()));
    for deployment in installed.deployment.iter().chain(&installed.more_shards) {
        let pods = pods(cluster, installed, deployment).await;
        let name = |pod: &Value| pod["metadata"]["name"].as_str().map(str::to_owned);
        names = names.zip(pods.as_ref().ok()).map(|(mut names, pods)| {
            names.extend(pods.iter().filter_map(name));
            names
        });
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        findings.push(installed.of_shard(replicas::judge(deployment, &pods), name));
    }
    let deployment = installed.deployment.iter();
    findings.extend(deployment.map(|it| replicas::skew(it, installed.image())));
    (findings, names.filter(|_| installed.deployment.is_some()))
}

/// The pods of a Deployment.
async fn pods(
    cluster: &Cluster,
    installed: &Installation,
    deployment: &Value,
) -> Fetched<Vec<Value>> {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let labels = labels.collect::<Vec<_>>().join(",");
    let resource = Resource::cluster("", "v1", "pods").within(installed.namespace());
    cluster.list(resource, &labels).await
}

/// The findings on everything between an API server and the webhooks.
async fn webhooks(
    cluster: &Cluster,
    installed: &Installation,
    address: Option<&str>,
) -> Vec<Finding> {
    if !installed.webhooks {
        let why = if installed.is_outside() {
            "no webhook configuration calls the operator"
        } else {
            "turned off by --webhooks=false"
        };
        let text = format!("{why}: objects are stored without validation");
        return vec![Finding::warning("webhooks", text)];
    }
    let configurations = configurations::read(cluster, installed).await;
    let namespace = installed.dry_run_namespace();
    let kinds = installed.kinds.iter();
    let asked = kinds.map(|kind| webhooks::check(cluster, kind, namespace));
    let (certificates, asked) = tokio::join!(
        certificates::check(cluster, installed, &configurations, address),
        futures::future::join_all(asked)
    );
    let mut findings: Vec<Finding> = Vec::new();
    for configuration in configurations {
        findings.push(configuration.finding);
        findings.extend(configuration.second);
    }
    findings.extend(certificates);
    findings.extend(asked);
    findings
}

async fn rights(cluster: &Cluster, installed: &Installation) -> Option<Finding> {
    if installed.is_outside() {
        // Its user is not known.
        return None;
    }
    let needed = manifests::rights(&Scope {
        kinds: &installed.kinds,
        namespaces: &installed.namespaces,
        names: &installed.names,
        own_authority: installed.webhooks && installed.certificate_secret.is_none(),
        own_configurations: installed.own_configurations,
        leader_election: installed.leader_election,
    });
    let (namespace, account) = (installed.namespace(), &installed.service_account);
    let user = User::service_account(cluster, namespace, account).await;
    let count = needed.len();
    let missing = rights::missing(cluster, &user, needed).await;
    let finding = rights::judge(&format!("{namespace}/{account}"), count, missing);
    Some(finding)
}

/// The findings on the Lease of each shard.
async fn leaders(
    cluster: &Cluster,
    installed: &Installation,
    pods: Option<&[String]>,
) -> Vec<Finding> {
    if !installed.leader_election {
        return Vec::new();
    }
    let leases = Resource::cluster("coordination.k8s.io", "v1", "leases");
    let leases = leases.within(installed.namespace());
    let pods: Option<Vec<&str>> = pods.map(|all| all.iter().map(String::as_str).collect());
    let mut findings = Vec::new();
    for shard in Shard::all(installed.shards) {
        let name = installed.names.lease(shard);
        let lease = cluster.get(leases, &name).await;
        let finding = lease::judge(&name, lease, pods.as_deref(), cluster.now());
        findings.push(installed.of_shard(finding, &name));
    }
    // Outside of a cluster, the operator leads without an election by default.
    findings.retain(|finding| !installed.is_outside() || finding.level != report::Level::Failed);
    findings
}
