//! What is installed: the Deployment, found by its label, and the settings in its arguments.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fetch::{Cluster, Fetched, Resource, Unread};
use super::report::{Finding, Level};
use crate::kinds::{self, Kind};
use crate::manifests::{Names, PREFIX};
use wall_clock_controller::reconcile::Shard;

pub(super) const LABEL: &str = "app.kubernetes.io/name=my-operator";
const CHECK: &str = "installation";

/// Whether an object has the label of ours.
pub(super) fn is_labelled(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/name"] == "my-operator"
}

/// The Deployment's settings; the defaults where there is none to read.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) names: Names,
    pub(super) deployment: Option<Value>,
    /// How many Deployments share the work, and those of them that have no webhooks.
    pub(super) shards: u32,
    pub(super) more_shards: Vec<Value>,
    pub(super) service_account: String,
    pub(super) kinds: Vec<&'static Kind>,
    pub(super) namespaces: Vec<String>,
    pub(super) webhooks: bool,
    /// Whether the webhook configurations are those of config/webhook; else another program creates them.
    pub(super) own_configurations: bool,
    pub(super) leader_election: bool,
    /// The Secret behind `--webhook-cert-path`; None if the operator keeps an authority of its own.
    pub(super) certificate_secret: Option<String>,
    place: Place,
    pub(super) finding: Finding,
}

/// What the cluster shows of an operator that runs outside of it.
#[derive(Debug)]
pub(super) struct Outside {
    /// What shows that it is there.
    pub(super) sign: String,
    /// The kinds that its webhooks serve; none if it has no webhooks.
    pub(super) kinds: Vec<&'static Kind>,
    /// The namespaces whose objects they review; none for all.
    pub(super) namespaces: Vec<String>,
    /// Whether it has webhooks, or may have.
    pub(super) webhooks: bool,
}

/// Where the operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Cluster,
    /// Without a Deployment.
    Outside,
}

impl Installation {
    pub(super) async fn read(cluster: &Cluster, namespace: &str) -> Self {
        let resource = Resource::cluster("apps", "v1", "deployments").within(namespace);
        let deployments = cluster.list(resource, LABEL).await;
        let namespaces = Resource::cluster("", "v1", "namespaces");
        let exists = match &deployments {
            Ok(found) if found.is_empty() => cluster.get(namespaces, namespace).await.map(drop),
            _ => Ok(()),
        };
        Self::new(namespace, deployments, &exists)
    }

    /// What was found. `exists`: whether the namespace does, where it has no Deployment.
    fn new(namespace: &str, found: Fetched<Vec<Value>>, exists: &Fetched<()>) -> Self {
        let mut found = found;
        let more_shards = found.as_mut().map(more_shards).unwrap_or_default();
        let (deployment, finding) = match found {
            Err(unread) => (None, unread.finding(CHECK)),
            Ok(found) => match (<[Value; 1]>::try_from(found), exists) {
                (Ok([one]), _) => {
                    let name = one["metadata"]["name"].as_str().unwrap_or_default();
                    let text = format!("Deployment {namespace}/{name}");
                    (Some(one), Finding::passed(CHECK, text))
                }
                (Err(none), Err(Unread::Missing(_))) if none.is_empty() => {
                    let text = format!("namespace {namespace} does not exist");
                    let finding = Finding::failed(CHECK, text).action(
                        "install the operator, or name its namespace with --operator-namespace",
                    );
                    (None, finding)
                }
                (Err(none), _) if none.is_empty() => {
                    let text =
                        format!("namespace {namespace} has no Deployment with label {LABEL}");
                    let finding = Finding::failed(CHECK, text).action(
                        "install the operator, or name its namespace with --operator-namespace",
                    );
                    (None, finding)
                }
                (Err(several), _) => {
                    let text = format!(
                        "namespace {namespace} has {} Deployments with label {LABEL}",
                        several.len()
                    );
                    let finding = Finding::failed(CHECK, text).action("remove all but one");
                    (several.into_iter().next(), finding)
                }
            },
        };
        let mut this = Self {
            more_shards,
            ..Self::of(namespace, deployment, finding)
        };
        if this.finding.level == Level::Passed
            && let Some(fault) = this.fault_of_shards()
        {
            this.finding = fault;
        }
        this
    }

    /// What is wrong with the Deployments as shards of one installation, if anything.
    fn fault_of_shards(&self) -> Option<Finding> {
        let namespace = self.namespace();
        let found = 1 + self.more_shards.len();
        if usize::try_from(self.shards) != Ok(found) {
            let text = format!(
                "namespace {namespace} has Deployments for {found} of {} shards: the namespaces of the others are not reconciled",
                self.shards
            );
            let action = "install a Deployment for each shard, or set --shard of those there are";
            return Some(Finding::failed(CHECK, text).action(action));
        }
        let expected = settings(self.deployment.as_ref()?);
        self.more_shards.iter().find_map(|other| {
            let found = settings(other);
            let mut names = expected.keys().chain(found.keys());
            let setting = names.find(|name| expected.get(*name) != found.get(*name))?;
            let name = other["metadata"]["name"].as_str().unwrap_or_default();
            let text =
                format!("Deployment {namespace}/{name} of another shard differs in {setting}");
            let action = "give all shards the same image and flags, but for --shard and --webhooks";
            Some(Finding::failed(CHECK, text).action(action))
        })
    }

    /// An operator without a Deployment.
    pub(super) fn outside(namespace: &str, found: Outside) -> Self {
        let text = format!(
            "the operator was set up outside of the cluster ({}): replicas, version and rights are not checked",
            found.sign
        );
        let this = Self::of(namespace, None, Finding::warning(CHECK, text).unknown());
        Self {
            kinds: if found.kinds.is_empty() {
                this.kinds
            } else {
                found.kinds
            },
            namespaces: found.namespaces,
            webhooks: found.webhooks,
            place: Place::Outside,
            ..this
        }
    }

    fn of(namespace: &str, deployment: Option<Value>, finding: Finding) -> Self {
        let pod = deployment
            .as_ref()
            .map(|it| &it["spec"]["template"]["spec"]);
        let container = pod.and_then(manager);
        let setting = |flag: &str| {
            let found = container.map(|it| values(it, flag));
            found.unwrap_or_default()
        };
        let is_off = |flag: &str| setting(flag).first().is_some_and(|value| value == "false");
        let served = setting("kinds");
        let served: Vec<&str> = served.iter().map(String::as_str).collect();
        let folder = setting("webhook-cert-path").into_iter().next();
        let secret = pod
            .zip(container)
            .zip(folder.as_deref())
            .map(|((pod, container), folder)| mounted_secret(pod, container, folder));
        let prefix = setting("name-prefix").into_iter().next();
        let names = Names::new(prefix.as_deref().unwrap_or(PREFIX), namespace);
        let account = pod.and_then(|pod| pod["serviceAccountName"].as_str());
        Self {
            service_account: account.map_or_else(|| names.service_account(), str::to_owned),
            names,
            kinds: kinds::served(&served),
            namespaces: setting("namespace"),
            webhooks: !is_off("webhooks"),
            own_configurations: !is_off("webhook-configurations"),
            leader_election: !is_off("leader-elect"),
            shards: container.map_or(Shard::ALL, shard).count(),
            more_shards: Vec::new(),
            certificate_secret: secret.map(Option::unwrap_or_default),
            place: Place::Cluster,
            deployment,
            finding,
        }
    }

    /// Whether there is no Deployment.
    pub(super) fn is_missing(&self) -> bool {
        self.deployment.is_none() && self.finding.level == Level::Failed
    }

    /// Whether the operator runs outside of the cluster.
    pub(super) fn is_outside(&self) -> bool {
        self.place == Place::Outside
    }

    /// The namespace of the operator.
    pub(super) fn namespace(&self) -> &str {
        self.names.namespace()
    }

    /// The image of the manager.
    pub(super) fn image(&self) -> Option<&str> {
        container(self.deployment.as_ref()?)?["image"].as_str()
    }

    /// A finding on what a shard has, which is named where there are several.
    pub(super) fn of_shard(&self, finding: Finding, name: &str) -> Finding {
        if self.shards > 1 {
            finding.about(name)
        } else {
            finding
        }
    }

    /// The namespace for a dry run: one whose objects the webhooks are asked about. Not the operator's own: who may
    /// create our objects there may in effect use its ServiceAccount.
    pub(super) fn dry_run_namespace(&self) -> &str {
        self.namespaces.first().map_or("default", String::as_str)
    }
}

/// Takes out the Deployments that are other shards of the first one's installation. What is left should be one Deployment.
fn more_shards(found: &mut Vec<Value>) -> Vec<Value> {
    let of = |deployment: &Value| container(deployment).map_or(Shard::ALL, shard);
    found.sort_by_key(|deployment| of(deployment).index());
    let Some(first) = found.first().map(of) else {
        return Vec::new();
    };
    let mut last = first.index();
    let is_another = |deployment: &mut Value| {
        let shard = of(deployment);
        let is_next = shard.count() == first.count() && shard.index() > last;
        last = last.max(shard.index());
        is_next
    };
    found.extract_if(.., is_another).collect()
}

/// What the Deployments of all shards must have in common: image, flags and variables, by name. Values may be secrets, and
/// are not for messages.
fn settings(deployment: &Value) -> BTreeMap<String, Vec<String>> {
    let Some(container) = container(deployment) else {
        return BTreeMap::new();
    };
    let mut all = BTreeMap::<String, Vec<String>>::new();
    let mut add = |name: String, value: String| all.entry(name).or_default().push(value);
    for (flag, value) in flags(container) {
        add(format!("--{flag}"), value.unwrap_or("true").to_owned());
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        add(format!("the variable {name}"), variable.to_string());
    }
    add("the image".to_owned(), container["image"].to_string());
    // Each shard has its own, and one of them has webhooks.
    let own = [
        "--shard",
        "--webhook",
        "the variable MY_OPERATOR_SHARD",
        "the variable MY_OPERATOR_WEBHOOK",
    ];
    all.retain(|name, _| !own.iter().any(|own| name.starts_with(own)));
    all
}

fn container(deployment: &Value) -> Option<&Value> {
    manager(&deployment["spec"]["template"]["spec"])
}

/// The shard of a container.
fn shard(container: &Value) -> Shard {
    let shard = values(container, "shard");
    let shard = shard.first().and_then(|shard| shard.parse().ok());
    shard.unwrap_or(Shard::ALL)
}

/// The container `manager` of a pod, or its first.
pub(super) fn manager(pod: &Value) -> Option<&Value> {
    let containers = pod["containers"].as_array()?;
    let named = containers.iter().find(|it| it["name"] == "manager");
    named.or(containers.first())
}

/// The flags in the arguments of a container, each with its value if it has one.
fn flags(container: &Value) -> Vec<(&str, Option<&str>)> {
    let args = container["args"].as_array().into_iter().flatten();
    let mut args = args.filter_map(Value::as_str).peekable();
    let mut flags = Vec::new();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--") else {
            continue;
        };
        flags.push(match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, args.next_if(|next| !next.starts_with("--"))),
        });
    }
    flags
}

/// The values of a flag: from the arguments, else from its environment variable. Flags of another version do no harm.
fn values(container: &Value, flag: &str) -> Vec<String> {
    let given = flags(container)
        .into_iter()
        .filter(|(name, _)| *name == flag);
    let mut found: Vec<&str> = given.filter_map(|(_, value)| value).collect();
    if found.is_empty() {
        let variable = format!("MY_OPERATOR_{}", flag.replace('-', "_").to_uppercase());
        let env = container["env"].as_array().into_iter().flatten();
        let variables = env.filter(|it| it["name"] == variable.as_str());
        found.extend(variables.filter_map(|it| it["value"].as_str()));
    }
    let parts = found.into_iter().flat_map(|value| value.split(','));
    parts
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The Secret that is mounted at a folder.
fn mounted_secret(pod: &Value, container: &Value, folder: &str) -> Option<String> {
    let same = |path: &str| path.trim_end_matches('/') == folder.trim_end_matches('/');
    let mut mounts = container["volumeMounts"].as_array()?.iter();
    let mount = mounts.find(|it| it["mountPath"].as_str().is_some_and(same))?;
    let mut volumes = pod["volumes"].as_array()?.iter();
    let volume = volumes.find(|it| it["name"] == mount["name"])?;
    volume["secret"]["secretName"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn found(args: &[&str], env: &Value) -> Installation {
        Installation::new("own", Ok(vec![deployment(args, env)]), &Ok(()))
    }

    fn deployment(args: &[&str], env: &Value) -> Value {
        json!({"metadata": {"name": "release"}, "spec": {"template": {"spec": {
            "serviceAccountName": "account",
            "containers": [{"name": "proxy"}, {
                "name": "manager", "image": "registry:5000/a:1", "args": args, "env": env,
                "volumeMounts": [{"name": "certs", "mountPath": "/certs"}],
            }],
            "volumes": [{"name": "certs", "secret": {"secretName": "pair"}}],
        }}}})
    }

    #[test]
    fn the_deployments_of_all_shards_are_one_installation() {
        let read = |shards: &[&str]| {
            let flags = shards.iter().map(|shard| format!("--shard={shard}"));
            let made = flags.map(|flag| deployment(&["run", &flag], &json!([])));
            Installation::new("own", Ok(made.collect()), &Ok(()))
        };
        let whole = read(&["1/3", "2/3", "0/3"]);
        assert_eq!((whole.shards, whole.more_shards.len()), (3, 2));
        assert_eq!(whole.finding.level, Level::Passed);
        let pair = |second: &[&str], env: &Value| {
            let first = ["run", "--leader-elect", "--kinds", "at", "--shard=0/2"];
            let pair = vec![deployment(&first, &json!([])), deployment(second, env)];
            Installation::new("own", Ok(pair), &Ok(())).finding
        };
        let env = json!([{"name": "MY_OPERATOR_SHARD", "value": "1/2"}]);
        let same = [
            "run",
            "--webhooks=false",
            "--kinds=at",
            "--leader-elect=true",
        ];
        assert_eq!(pair(&same, &env).level, Level::Passed);
        let other = [
            "run",
            "--kinds=at",
            "--shard",
            "1/2",
            "--leader-elect=false",
        ];
        let finding = pair(&other, &json!([]));
        assert_eq!(finding.level, Level::Failed);
        assert!(
            finding.message.ends_with("differs in --leader-elect"),
            "{finding:?}"
        );
        for (shards, words) in [
            (&["0/3", "1/3"][..], "for 2 of 3 shards"),
            (&["0/3", "2/3"], "for 2 of 3 shards"),
            (&["0/2"], "for 1 of 2 shards"),
            (&["1/2"], "for 1 of 2 shards"),
            (&["0/2", "0/2", "1/2"], "2 Deployments"),
            (&["0/2", "1/3"], "2 Deployments"),
            (&["0/1", "1/2"], "2 Deployments"),
        ] {
            let finding = read(shards).finding;
            assert_eq!(finding.level, Level::Failed, "{shards:?}");
            assert!(finding.message.contains(words), "{shards:?}: {finding:?}");
        }
    }

    #[test]
    fn settings_are_those_of_the_arguments_and_variables() {
        let plain = found(&["run", "--leader-elect", "--log-format=json"], &json!([]));
        let names = |it: &Installation| it.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>();
        assert_eq!(names(&plain), ["mydaemonset", "at"]);
        assert!(plain.namespaces.is_empty() && plain.leader_election && plain.webhooks);
        assert_eq!(plain.certificate_secret, None);
        assert_eq!(
            (plain.image(), plain.service_account.as_str()),
            (Some("registry:5000/a:1"), "account")
        );

        let set = found(
            &[
                "run",
                "--kinds",
                "at,foo",
                "--kinds=at",
                "--namespace=a",
                "--namespace=b,c",
                "--leader-elect=false",
                "--webhook-cert-path=/certs/",
                "--name-prefix=release",
            ],
            &json!([{"name": "MY_OPERATOR_WEBHOOKS", "value": "false"}]),
        );
        assert_eq!(names(&set), ["at", "foo"]);
        assert_eq!(set.namespaces, ["a", "b", "c"]);
        assert!(!set.leader_election && !set.webhooks);
        assert_eq!(set.certificate_secret.as_deref(), Some("pair"));
        assert_eq!(plain.names, Names::new("my-operator", "own"));
        assert_eq!(set.names, Names::new("release", "own"));
    }

    #[test]
    fn configurations_are_our_own_unless_a_flag_says_otherwise() {
        assert!(found(&["run"], &json!([])).own_configurations);
        let other = found(&["run", "--webhook-configurations=false"], &json!([]));
        assert!(!other.own_configurations && other.webhooks);
    }

    #[test]
    fn a_missing_namespace_or_deployment_says_what_to_do() {
        let missing = Err(Unread::Missing("not found".to_owned()));
        let none = Installation::new("own", Ok(Vec::new()), &missing).finding;
        assert!(
            none.message.contains("namespace own does not exist"),
            "{none:?}"
        );
        let empty = Installation::new("own", Ok(Vec::new()), &Ok(())).finding;
        assert!(empty.message.contains("no Deployment"), "{empty:?}");
        for finding in [&none, &empty] {
            assert_eq!(finding.level, Level::Failed);
            assert!(
                finding
                    .action
                    .as_ref()
                    .unwrap()
                    .contains("--operator-namespace")
            );
        }
        let two = Ok(vec![json!({}), json!({})]);
        assert_eq!(
            Installation::new("own", two, &Ok(())).finding.level,
            Level::Failed
        );
    }
}
