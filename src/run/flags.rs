//! The flags of `my-operator run`, and how their values are written.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::own_namespace::own_namespace;
use crate::kinds::{self, Kind};
use crate::manifests::{self, Names};
use my_operator_kind::flag_values::{duration, period};
use my_operator_telemetry::logs;
use wall_clock_controller::reconcile::Shard;
use webhook_certs;

/// The default maximum of worker threads.
const MAX_DEFAULT_THREADS: usize = 4;

/// Flags of `run`. Each may be given as an environment variable too; a flag wins.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// The kinds to serve and reconcile, as they were named: `selected_kinds` has each once.
    // What the help says is made from the registry.
    #[arg(long, env = "MY_OPERATOR_KINDS", value_name = "KIND", value_delimiter = ',', value_parser = kinds::of_name, help = kinds_help())]
    pub kinds: Vec<&'static Kind>,

    /// A namespace to work in; repeatable, all namespaces by default.
    #[arg(
        long = "namespace",
        env = "MY_OPERATOR_NAMESPACE",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    pub namespaces: Vec<String>,

    /// The part of the namespaces to reconcile, such as 0/2 and 1/2 for two processes that share the work. All are
    /// reconciled by default. Webhooks serve every namespace.
    #[arg(
        long,
        env = "MY_OPERATOR_SHARD",
        value_name = "INDEX/COUNT",
        default_value = "0/1"
    )]
    pub shard: Shard,

    /// The context of the kubeconfig to use; its current one by default.
    #[arg(long, env = "MY_OPERATOR_CONTEXT", value_name = "CONTEXT")]
    pub context: Option<String>,

    /// Serve the webhooks. With =false the operator only reconciles.
    #[arg(long, env = "MY_OPERATOR_WEBHOOKS", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub webhooks: bool,

    /// Where the webhooks are served. The default is every address, IPv6 and IPv4.
    #[arg(
        long,
        env = "MY_OPERATOR_WEBHOOK_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = "[::]:9443"
    )]
    pub webhook_bind_address: SocketAddr,

    /// The URL at which the API server reaches the webhooks when the operator runs outside the
    /// cluster, such as https://127.0.0.1:9443. The operator then creates and owns the webhook
    /// configurations; without this flag it never creates any.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_URL", value_name = "URL", value_parser = webhook_url)]
    pub webhook_url: Option<String>,

    /// A folder with tls.crt and tls.key to serve with, from cert-manager or by hand. Without it the
    /// operator keeps a certificate authority of its own in a Secret.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_CERT_PATH", value_name = "DIR")]
    pub webhook_cert_path: Option<PathBuf>,

    /// Check the webhook configurations of my-operator, and publish the operator's own authority in them. With
    /// =false another program creates configurations under names of its own, as OLM does. The certificate then
    /// comes from --webhook-cert-path, and may be for any name.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_CONFIGURATIONS", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub webhook_configurations: bool,

    /// A file with the CAs that sign client certificates, in PEM. With it, only callers that have a
    /// valid one get further than the TLS handshake. The file is read again when it changes.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_CLIENT_CA", value_name = "FILE")]
    pub webhook_client_ca: Option<PathBuf>,

    /// A common name for the certificates of --webhook-client-ca; repeatable, any name by default.
    #[arg(
        long,
        env = "MY_OPERATOR_WEBHOOK_CLIENT_CN",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub webhook_client_cn: Vec<String>,

    /// How long a serving certificate of the operator's own authority is good for.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_LEAF_VALIDITY", value_name = "DURATION", default_value = "7d", value_parser = period)]
    pub webhook_leaf_validity: TimeDelta,

    /// How long the operator's own authority is good for.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_CA_VALIDITY", value_name = "DURATION", default_value = "365d", value_parser = period)]
    pub webhook_ca_validity: TimeDelta,

    /// How long API servers are given to see a new authority before it signs.
    #[arg(long, env = "MY_OPERATOR_WEBHOOK_CA_PROPAGATION", value_name = "DURATION", default_value = "60s", value_parser = period)]
    pub webhook_ca_propagation: TimeDelta,

    /// The namespace of the operator's own objects: the pod's own by default, my-operator-system
    /// outside a cluster.
    #[arg(long, env = "MY_OPERATOR_OPERATOR_NAMESPACE", value_name = "NAMESPACE")]
    pub operator_namespace: Option<String>,

    /// What the names of the operator's own objects begin with: its Lease, Secret, Services and webhook
    /// configurations. An installation with other names, such as one of the Helm chart, sets it.
    #[arg(long, env = "MY_OPERATOR_NAME_PREFIX", value_name = "PREFIX", default_value = manifests::PREFIX, value_parser = name_prefix)]
    pub name_prefix: String,

    /// Where metrics are served; "0" turns them off. By default port 8443 of every address in a cluster, and
    /// 127.0.0.1:8080 outside.
    #[arg(long, env = "MY_OPERATOR_METRICS_BIND_ADDRESS", value_name = "ADDRESS", value_parser = optional_address)]
    pub metrics_bind_address: Option<OptionalAddress>,

    /// Serve the metrics over TLS, and only to those who may get /metrics by the cluster's roles. By
    /// default so in a cluster, and plain outside.
    #[arg(long, env = "MY_OPERATOR_METRICS_SECURE", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub metrics_secure: Option<bool>,

    /// A folder with tls.crt and tls.key to serve the metrics with. Without it the operator makes a
    /// certificate of its own when it starts.
    #[arg(long, env = "MY_OPERATOR_METRICS_CERT_PATH", value_name = "DIR")]
    pub metrics_cert_path: Option<PathBuf>,

    /// Where /healthz and /readyz are served; "0" turns them off.
    #[arg(long, env = "MY_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS", default_value = "[::]:8081", value_parser = optional_address)]
    pub health_probe_bind_address: OptionalAddress,

    /// Let one of several replicas reconcile: the one that holds the Lease in the operator's namespace. The
    /// webhooks are served by all of them. On in a cluster and off outside by default.
    #[arg(long, env = "MY_OPERATOR_LEADER_ELECT", value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub leader_elect: Option<bool>,

    /// For how long after its last renewal a leader is left alone. At most 10m, and longer than the
    /// renew deadline.
    #[arg(long, env = "MY_OPERATOR_LEADER_ELECTION_LEASE_DURATION", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,

    /// For how long a leader tries to renew its lease before it ends. Longer than 1.2 times the retry
    /// period.
    #[arg(long, env = "MY_OPERATOR_LEADER_ELECTION_RENEW_DEADLINE", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,

    /// The pause between two attempts to lead, or to renew the lease. At least 100ms.
    #[arg(long, env = "MY_OPERATOR_LEADER_ELECTION_RETRY_PERIOD", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,

    /// How many objects of one kind are reconciled at a time. Each has at most one call to the API server
    /// under way; a MyDaemonSet, which creates and deletes pods, at most 32.
    #[arg(long, env = "MY_OPERATOR_MAX_CONCURRENT_RECONCILES", value_name = "N", default_value = "96", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_concurrent_reconciles: u16,

    /// How many threads answer reviews and reconcile. The leader election and the probes have threads of
    /// their own. Default: one per CPU, at most 4.
    #[arg(long, env = "MY_OPERATOR_WORKER_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub worker_threads: Option<u16>,

    /// The flags that kinds declare.
    #[command(flatten)]
    pub of_kinds: KindFlags,

    /// How long to go on answering after a signal to end, so that the cluster stops sending: 5s in a
    /// cluster and 0s outside by default.
    #[arg(long, env = "MY_OPERATOR_SHUTDOWN_DELAY", value_name = "DURATION", value_parser = duration)]
    pub shutdown_delay: Option<Duration>,

    /// How log lines look.
    #[arg(
        long,
        env = "MY_OPERATOR_LOG_FORMAT",
        value_name = "FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub log_format: logs::Format,

    /// Which log lines are written: error, warn, info, debug, trace, or a filter such as
    /// info,my_operator=debug. RUST_LOG, when set, wins over the default.
    #[arg(long, env = "MY_OPERATOR_LOG_LEVEL", value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,
}

impl Flags {
    /// Checks that the flags are consistent.
    ///
    /// # Errors
    /// When they are not. The message names the flags.
    pub fn check(&self) -> Result<(), String> {
        self.leader_election_periods().check().map_err(|error| {
            let names = ["lease_duration", "renew_deadline", "retry_period"];
            names.iter().fold(error.to_string(), |text, name| {
                text.replace(
                    name,
                    &format!("--leader-election-{}", name.replace('_', "-")),
                )
            })
        })?;
        self.certificate_periods().check().map_err(|error| {
            format!(
                "--webhook-leaf-validity, --webhook-ca-validity, --webhook-ca-propagation: {error}"
            )
        })?;
        if self.webhook_client_ca.is_none() && !self.webhook_client_cn.is_empty() {
            return Err("--webhook-client-cn needs --webhook-client-ca".to_owned());
        }
        if !self.webhook_configurations && self.webhook_url.is_some() {
            return Err(
                "--webhook-url has the operator create webhook configurations: leave out --webhook-configurations=false"
                    .to_owned(),
            );
        }
        if !self.webhook_configurations && self.webhooks && self.webhook_cert_path.is_none() {
            return Err(
                "--webhook-configurations=false needs --webhook-cert-path: the operator's own authority would be published nowhere"
                    .to_owned(),
            );
        }
        if self.metrics_cert_path.is_some() && self.metrics_secure == Some(false) {
            return Err(
                "--metrics-cert-path serves nothing with --metrics-secure=false".to_owned(),
            );
        }
        Ok(())
    }

    /// The kinds to serve and reconcile.
    pub(super) fn selected_kinds(&self) -> Vec<&'static Kind> {
        kinds::served(&kinds::names(&self.kinds))
    }

    /// The names of the operator's own objects.
    pub(super) fn names(&self) -> Names {
        let namespace = own_namespace(self.operator_namespace.as_deref());
        Names::new(&self.name_prefix, &namespace)
    }

    /// How many threads answer reviews and reconcile. Without a limit, a node with a hundred cores would
    /// read a hundred large reviews at once, and each thread keeps memory of its own.
    pub fn worker_threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.worker_threads
            .map_or_else(|| cores().min(MAX_DEFAULT_THREADS), usize::from)
    }

    /// How long the certificates of the operator's own authority are good for.
    pub(super) fn certificate_periods(&self) -> webhook_certs::Periods {
        webhook_certs::Periods {
            leaf_validity: self.webhook_leaf_validity,
            ca_validity: self.webhook_ca_validity,
            propagation: self.webhook_ca_propagation,
        }
    }
}

/// The values of the flags that kinds declare. `run` only hands them on.
#[derive(Clone, Debug)]
pub struct KindFlags(ArgMatches);

impl KindFlags {
    /// What `start` of a kind reads its flags from.
    pub fn matches(&self) -> &ArgMatches {
        &self.0
    }
}

impl Args for KindFlags {
    fn augment_args(command: Command) -> Command {
        let kinds = kinds::REGISTRY.iter();
        kinds.fold(command, |command, kind| kind.start.flags(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KindFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An address to listen on; None turns the listener off.
pub type OptionalAddress = Option<SocketAddr>;

fn kinds_help() -> String {
    let names = |kinds: &[&'static Kind]| kinds::names(kinds).join(",");
    format!(
        "The kinds to serve and reconcile, separated by commas: of {}; {} by default",
        names(kinds::REGISTRY),
        names(&kinds::by_default())
    )
}

/// Names of Services follow from it.
fn name_prefix(text: &str) -> Result<String, String> {
    const MAX: usize = manifests::MAX_PREFIX_LEN;
    let letter = text.starts_with(|first: char| first.is_ascii_lowercase());
    if letter && text.len() <= MAX && admission_rules::names::has_form_of_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "a prefix has lower case letters, digits and -, begins with a letter, and has {MAX} characters at most"
        ))
    }
}

fn optional_address(text: &str) -> Result<OptionalAddress, String> {
    if text == "0" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| "an address is written like 127.0.0.1:8080 or [::1]:8080".to_owned())
}

fn webhook_url(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").unwrap_or_default();
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
        return Err("the URL is written like https://host:9443, without a path".to_owned());
    }
    Ok(format!("https://{host}"))
}

/// A bare word that is not a level would be taken for the name of a module, and silence all others.
fn log_level(text: &str) -> Result<String, String> {
    logs::filter(text)
        .map(|_| text.to_owned())
        .map_err(|_| "a level is error, warn, info, debug or trace, or a filter such as info,my_operator=debug".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(clap::Parser)]
    struct Run {
        #[command(flatten)]
        flags: Flags,
    }

    fn parsed(arguments: &[&str]) -> Flags {
        let run = ["run"].iter().chain(arguments);
        <Run as clap::Parser>::try_parse_from(run).unwrap().flags
    }

    #[test]
    fn the_listeners_are_dual_stack_by_default() {
        let flags = parsed(&[]);
        assert_eq!(flags.webhook_bind_address.to_string(), "[::]:9443");
        let probes = flags.health_probe_bind_address.unwrap();
        assert_eq!(probes.to_string(), "[::]:8081");
    }

    #[test]
    fn a_kind_that_is_named_twice_is_served_once() {
        let selected = |arguments: &[&str]| {
            let flags = parsed(arguments);
            assert_eq!(flags.check(), Ok(()));
            let kinds = flags.selected_kinds().into_iter();
            kinds.map(|kind| kind.name).collect::<Vec<_>>()
        };
        let deployment = ["--kinds=mydaemonset", "--kinds=at"];
        assert_eq!(selected(&[]), ["mydaemonset", "at"]);
        for (more, kinds) in [
            ("--kinds=at", &["mydaemonset", "at"][..]),
            // Of the component sample-kinds of an older version.
            (
                "--kinds=mydaemonset,at,memcached",
                &["mydaemonset", "at", "memcached"],
            ),
        ] {
            assert_eq!(selected(&[deployment[0], deployment[1], more]), kinds);
        }
    }

    #[test]
    fn names_of_clients_need_a_ca() {
        let name = "--webhook-client-cn=kube-apiserver";
        assert!(parsed(&[name]).check().is_err());
        let both = parsed(&[name, "--webhook-client-ca=ca.crt"]);
        assert_eq!(both.check(), Ok(()));
        assert_eq!(both.webhook_client_cn, ["kube-apiserver"]);
    }

    #[test]
    fn names_follow_the_prefix_and_the_namespace() {
        let flags = parsed(&["--name-prefix=release", "--operator-namespace=team"]);
        assert_eq!(flags.names(), Names::new("release", "team"));
        assert_eq!(parsed(&[]).names().lease(Shard::ALL), manifests::PREFIX);
        let long = "p".repeat(manifests::MAX_PREFIX_LEN);
        assert!(name_prefix(&long).is_ok());
        for bad in ["", "-a", "a-", "A", "a.b", "1a", &format!("{long}p")] {
            assert!(name_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_webhook_url_has_a_host_and_no_path() {
        assert_eq!(
            webhook_url("https://127.0.0.1:9443/").unwrap(),
            "https://127.0.0.1:9443"
        );
        for bad in ["http://x", "https://", "https://x/path", "x:9443"] {
            assert!(webhook_url(bad).is_err(), "{bad}");
        }
    }
}
