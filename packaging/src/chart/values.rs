//! The chart's values: one list, from which values.yaml, values.schema.json and the table of README.md are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use my_operator::kinds::{self, REGISTRY};
use serde_json::{Map, Value, json};

use super::tree::{Entry, Item, Literal, Tree};
use super::{Key, Object, append, at, put};

/// One value of the chart.
pub(super) struct Setting {
    path: &'static str,
    default: Value,
    schema: Value,
    text: String,
}

/// What config/default has where the chart has a value.
pub(super) struct Defaults {
    repository: String,
    tag: String,
    digest: String,
    pull_policy: Value,
    replicas: Value,
    resources: Value,
    node_selector: Value,
    api_servers: Value,
    /// The labels and annotations that values add to.
    pod_labels: BTreeSet<String>,
    pod_annotations: BTreeSet<String>,
    prometheus_labels: BTreeSet<String>,
}

const DEPLOYMENT: &str = "Deployment my-operator-system/my-operator-controller-manager";
const POD: [&str; 3] = ["spec", "template", "spec"];
const CONTAINER: [&str; 5] = ["spec", "template", "spec", "containers", "manager"];

impl Defaults {
    /// Takes the defaults out of the objects, and puts the values in their place.
    ///
    /// # Errors
    /// If an object lacks what a value stands for.
    pub(super) fn take(objects: &mut BTreeMap<Key, Object>, image: &str) -> Result<Self> {
        let mut prometheus_labels = BTreeSet::new();
        for object in objects.values_mut() {
            let kind = object.tree.evaluate(&BTreeSet::new())["kind"].clone();
            match kind.as_str().unwrap_or_default() {
                "CustomResourceDefinition" => keep(object)?,
                "PodDisruptionBudget" => object
                    .when
                    .push(Literal::Value("$.Values.podDisruptionBudget.enable")),
                "ServiceMonitor" | "PrometheusRule" => {
                    let path = ["metadata", "labels"];
                    prometheus_labels.extend(keys(&mut object.tree, &path)?);
                    put(
                        &mut object.tree,
                        &path,
                        "~",
                        &[
                            "{{- with $.Values.prometheus.labels }}",
                            "{{- toYaml . | nindent @0 }}",
                            "{{- end }}",
                        ],
                    )?;
                }
                _ => {}
            }
        }
        let api_servers = calico(objects)?;
        client_ca(object(objects, DEPLOYMENT)?)?;
        let deployment = &mut object(objects, DEPLOYMENT)?.tree;
        let pull_policy = value(deployment, &CONTAINER, "imagePullPolicy")?;
        let replicas = value(deployment, &["spec"], "replicas")?;
        let resources = value(deployment, &CONTAINER, "resources")?;
        let node_selector = value(deployment, &POD, "nodeSelector")?;
        let [pod_labels, pod_annotations] = ["labels", "annotations"]
            .map(|of| keys(deployment, &["spec", "template", "metadata", of]));
        fill(deployment)?;
        let (name, digest) = image.split_once('@').unwrap_or((image, ""));
        let at = name.rfind('/').unwrap_or(0);
        let (repository, tag) = match name[at..].find(':') {
            Some(colon) => (&name[..at + colon], &name[at + colon + 1..]),
            None => (name, ""),
        };
        Ok(Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            digest: digest.to_owned(),
            pull_policy,
            replicas,
            resources,
            node_selector,
            api_servers,
            pod_labels: pod_labels?,
            pod_annotations: pod_annotations?,
            prometheus_labels,
        })
    }
}

fn object<'a>(objects: &'a mut BTreeMap<Key, Object>, title: &str) -> Result<&'a mut Object> {
    let mut all = objects.iter_mut();
    let found = all.find(|(key, _)| key.1 == title);
    found
        .map(|(_, object)| object)
        .with_context(|| format!("there is no {title}"))
}

/// The keys of a map.
fn keys(tree: &mut Tree, path: &[&str]) -> Result<BTreeSet<String>> {
    let map = at(tree, path)?.evaluate(&BTreeSet::new());
    let map = map.as_object().context("it is no map")?;
    Ok(map.keys().cloned().collect())
}

fn value(tree: &mut Tree, path: &[&str], key: &str) -> Result<Value> {
    let path: Vec<&str> = path.iter().copied().chain([key]).collect();
    Ok(at(tree, &path)?.evaluate(&BTreeSet::new()))
}

/// `helm uninstall` and an upgrade that leaves the CRD out keep it, unless a value says otherwise.
fn keep(object: &mut Object) -> Result<()> {
    object
        .when
        .insert(0, Literal::Value("$.Values.crds.install"));
    let Tree::Map(metadata) = at(&mut object.tree, &["metadata"])? else {
        bail!("metadata is no map");
    };
    let when = || vec![Literal::Value("$.Values.crds.keep")];
    let policy = Entry {
        when: when(),
        key: "helm.sh/resource-policy".to_owned(),
        tree: (&json!("keep")).into(),
    };
    let present = metadata.iter_mut().find(|it| it.key == "annotations");
    match present.map(|entry| &mut entry.tree) {
        Some(Tree::Map(annotations)) => annotations.push(policy),
        Some(_) => bail!("annotations are no map"),
        None => metadata.insert(
            0,
            Entry {
                when: when(),
                key: "annotations".to_owned(),
                tree: Tree::Map(vec![Entry {
                    when: Vec::new(),
                    ..policy
                }]),
            },
        ),
    }
    Ok(())
}

/// The addresses that reach the webhooks where Calico enforces it.
fn calico(objects: &mut BTreeMap<Key, Object>) -> Result<Value> {
    let mut all = objects.iter_mut();
    let policy = all.find(|(key, _)| key.0.starts_with("projectcalico.org/"));
    let (_, policy) = policy.context("there is no NetworkPolicy of Calico")?;
    let Tree::List(rules) = at(&mut policy.tree, &["spec", "ingress"])? else {
        bail!("the NetworkPolicy of Calico has no list of rules");
    };
    let rule = rules.first_mut().context("it has no rule")?;
    let nets = value(&mut rule.tree, &["source"], "nets")?;
    put(
        &mut rule.tree,
        &["source"],
        "nets",
        &[
            "nets:",
            "  {{- toYaml $.Values.networkPolicy.calico.apiServers | nindent @2 }}",
        ],
    )?;
    Ok(nets)
}

/// The ConfigMap of the client CA, and the names in the certificates.
fn client_ca(deployment: &mut Object) -> Result<()> {
    let volume = ["webhook-client-ca", "configMap"];
    let path: Vec<&str> = POD.into_iter().chain(["volumes"]).chain(volume).collect();
    put(
        &mut deployment.tree,
        &path,
        "name",
        &[
            r#"name: {{ default (printf "%s-webhook-client-ca" (include "my-operator.fullname" $)) $.Values.webhookClientCa.configMap | quote }}"#,
        ],
    )?;
    let path: Vec<&str> = CONTAINER.into_iter().chain(["args"]).collect();
    let Tree::List(args) = at(&mut deployment.tree, &path)? else {
        bail!("the manager has no arguments");
    };
    let names = Item {
        when: vec![Literal::With("webhook-client-ca")],
        tree: Tree::Lines(&[
            "{{- range $.Values.webhookClientCa.commonNames }}",
            r#"- {{ printf "--webhook-client-cn=%s" . | quote }}"#,
            "{{- end }}",
        ]),
    };
    args.push(names);
    Ok(())
}

/// Puts the values into the Deployment.
fn fill(deployment: &mut Tree) -> Result<()> {
    put(
        deployment,
        &["spec"],
        "replicas",
        &["replicas: {{ $.Values.replicas }}"],
    )?;
    put(
        deployment,
        &CONTAINER,
        "image",
        &[r#"image: {{ include "my-operator.image" $ | quote }}"#],
    )?;
    put(
        deployment,
        &CONTAINER,
        "imagePullPolicy",
        &["imagePullPolicy: {{ $.Values.image.pullPolicy }}"],
    )?;
    put(
        deployment,
        &CONTAINER,
        "resources",
        &[
            "resources:",
            "  {{- toYaml $.Values.resources | nindent @2 }}",
        ],
    )?;
    put(
        deployment,
        &CONTAINER,
        "env",
        &[
            "{{- with $.Values.env }}",
            "env:",
            "  {{- toYaml . | nindent @2 }}",
            "{{- end }}",
        ],
    )?;
    let args: Vec<&str> = CONTAINER.into_iter().chain(["args"]).collect();
    append(
        deployment,
        &args,
        &[
            r#"{{- if ne (include "my-operator.fullname" $) "my-operator" }}"#,
            r#"- --name-prefix={{ include "my-operator.fullname" $ }}"#,
            "{{- end }}",
            "{{- with $.Values.logLevel }}",
            r#"- {{ printf "--log-level=%s" . | quote }}"#,
            "{{- end }}",
            "{{- range $.Values.extraArgs }}",
            "- {{ . | quote }}",
            "{{- end }}",
        ],
    )?;
    for (key, lines) in [
        (
            "nodeSelector",
            &[
                "{{- with $.Values.nodeSelector }}",
                "nodeSelector:",
                "  {{- toYaml . | nindent @2 }}",
                "{{- end }}",
            ] as &[_],
        ),
        (
            "tolerations",
            &[
                "{{- with $.Values.tolerations }}",
                "tolerations:",
                "  {{- toYaml . | nindent @2 }}",
                "{{- end }}",
            ],
        ),
        (
            "imagePullSecrets",
            &[
                "{{- with $.Values.imagePullSecrets }}",
                "imagePullSecrets:",
                "  {{- toYaml . | nindent @2 }}",
                "{{- end }}",
            ],
        ),
        (
            "priorityClassName",
            &[
                "{{- with $.Values.priorityClassName }}",
                "priorityClassName: {{ . | quote }}",
                "{{- end }}",
            ],
        ),
    ] {
        put(deployment, &POD, key, lines)?;
    }
    affinity(deployment)?;
    let template = ["spec", "template", "metadata"];
    for (key, lines) in [
        (
            "annotations",
            &[
                "{{- with $.Values.podAnnotations }}",
                "{{- toYaml . | nindent @0 }}",
                "{{- end }}",
            ],
        ),
        (
            "labels",
            &[
                "{{- with $.Values.podLabels }}",
                "{{- toYaml . | nindent @0 }}",
                "{{- end }}",
            ],
        ),
    ] {
        let path: Vec<&str> = template.into_iter().chain([key]).collect();
        // After all others.
        put(deployment, &path, "~", lines)?;
    }
    Ok(())
}

/// The value replaces all of the default.
fn affinity(deployment: &mut Tree) -> Result<()> {
    let Tree::Map(pod) = at(deployment, &POD)? else {
        bail!("the pod is no map");
    };
    let found = pod.iter().position(|entry| entry.key == "affinity");
    let index = found.context("the pod has no affinity")?;
    pod[index]
        .when
        .push(Literal::Value("not $.Values.affinity"));
    let other = Entry {
        when: vec![Literal::Value("$.Values.affinity")],
        key: "affinity".to_owned(),
        tree: Tree::Lines(&[
            "affinity:",
            "  {{- toYaml $.Values.affinity | nindent @2 }}",
        ]),
    };
    pod.insert(index + 1, other);
    Ok(())
}

/// Every value, in the order of values.yaml.
pub(super) fn settings(defaults: &Defaults) -> Vec<Setting> {
    let boolean = || json!({ "type": "boolean" });
    let string = || json!({ "type": "string" });
    let texts = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    // A key that the template has would be there twice.
    let more = |than: &BTreeSet<String>| {
        let mut schema = texts();
        schema["propertyNames"] = json!({ "not": { "enum": than } });
        schema
    };
    let object = || json!({ "type": "object" });
    let objects = || json!({ "type": "array", "items": { "type": "object" } });
    let strings = || json!({ "type": "array", "items": { "type": "string", "minLength": 1 } });
    let labels = || {
        json!({
            "type": "array",
            "uniqueItems": true,
            "items": { "type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" },
        })
    };
    let one_of = |values: &[&str]| json!({ "type": "string", "enum": values });
    let name = || json!({ "type": "string", "pattern": "^([a-z]([-a-z0-9]{0,26}[a-z0-9])?)?$" });
    let setting = |path, default: Value, schema, text: &str| Setting {
        path,
        default,
        schema,
        text: text.to_owned(),
    };
    vec![
        setting(
            "image.repository",
            json!(defaults.repository),
            json!({ "type": "string", "minLength": 1 }),
            "The image, without a tag. No registry serves the default: push your own.",
        ),
        setting(
            "image.tag",
            json!(defaults.tag),
            string(),
            "Its tag; empty for the chart's appVersion.",
        ),
        setting(
            "image.digest",
            json!(defaults.digest),
            json!({ "type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$" }),
            "Its digest, such as sha256:...; then the tag is not used.",
        ),
        setting(
            "image.pullPolicy",
            defaults.pull_policy.clone(),
            one_of(&["Always", "IfNotPresent", "Never"]),
            "When nodes pull it.",
        ),
        setting(
            "imagePullSecrets",
            json!([]),
            objects(),
            "Secrets with the credentials of the registry: `[{name: regcred}]`.",
        ),
        setting(
            "nameOverride",
            json!(""),
            name(),
            "In place of the chart's name, after the release's.",
        ),
        setting(
            "fullnameOverride",
            json!(""),
            name(),
            "What the names of all objects begin with: at most 28 characters. By default the release's name, with the chart's if it does not contain that.",
        ),
        setting(
            "replicas",
            defaults.replicas.clone(),
            json!({ "type": "integer", "minimum": 1 }),
            "How many serve the webhooks. One of them leads and reconciles.",
        ),
        setting(
            "resources",
            defaults.resources.clone(),
            object(),
            "Requests and limits of the operator (docs/operations/sizing.md).",
        ),
        setting(
            "nodeSelector",
            defaults.node_selector.clone(),
            texts(),
            "Labels of the nodes that it may run on.",
        ),
        setting(
            "tolerations",
            json!([]),
            objects(),
            "Taints that it tolerates.",
        ),
        setting(
            "affinity",
            json!({}),
            object(),
            "In place of the default: different nodes and zones where possible.",
        ),
        setting(
            "priorityClassName",
            json!(""),
            string(),
            "Its PriorityClass, such as system-cluster-critical.",
        ),
        setting(
            "podAnnotations",
            json!({}),
            more(&defaults.pod_annotations),
            "More annotations of its pods.",
        ),
        setting(
            "podLabels",
            json!({}),
            more(&defaults.pod_labels),
            "More labels of its pods.",
        ),
        setting(
            "podDisruptionBudget.enable",
            json!(true),
            boolean(),
            "Drain one replica at a time. With one replica, the budget blocks drains.",
        ),
        setting(
            "logLevel",
            json!(""),
            string(),
            "error, warn, info, debug, trace, or a filter such as info,my_operator=debug; empty for info.",
        ),
        setting(
            "extraArgs",
            json!([]),
            strings(),
            "More flags of `my-operator run` (docs/operations/install.md).",
        ),
        setting(
            "env",
            json!([]),
            objects(),
            "Environment variables of the operator: `[{name: X, value: Y}]`.",
        ),
        setting(
            "kinds",
            json!(kinds::names(&kinds::by_default())),
            json!({
                "type": "array",
                "minItems": 1,
                "uniqueItems": true,
                "items": { "enum": kinds::names(REGISTRY) },
            }),
            &format!(
                "The kinds to install and serve, of {}: no CRD, right or webhook is there for another.",
                kinds::names(REGISTRY).join(", ")
            ),
        ),
        setting(
            "crds.install",
            json!(true),
            boolean(),
            "Install the CRDs, and upgrade them with the release.",
        ),
        setting(
            "crds.keep",
            json!(true),
            boolean(),
            "Keep the CRDs, and so all objects of our kinds, when the release is uninstalled.",
        ),
        setting(
            "namespaces",
            json!([]),
            labels(),
            "Work in these namespaces only; they must exist. Component `namespaced`.",
        ),
        setting(
            "certManager.enable",
            json!(false),
            boolean(),
            "cert-manager issues the webhooks' certificate. Component `cert-manager`.",
        ),
        setting(
            "certManager.metrics",
            json!(false),
            boolean(),
            "And that of the metrics. Component `cert-manager-metrics`.",
        ),
        setting(
            "networkPolicy.enable",
            json!(false),
            boolean(),
            "Limit who reaches the pods. Components `network-policy`, `network-policy-calico`, `network-policy-cilium`.",
        ),
        setting(
            "networkPolicy.provider",
            json!("kubernetes"),
            one_of(&["kubernetes", "calico", "cilium"]),
            "Whose policies: kubernetes, calico or cilium.",
        ),
        setting(
            "networkPolicy.calico.apiServers",
            defaults.api_servers.clone(),
            json!({ "type": "array", "minItems": 1, "items": { "type": "string", "pattern": "/[0-9]+$" } }),
            "With calico: the addresses of your API servers. The default is an example (RFC 5737) that blocks every call of the webhooks.",
        ),
        setting(
            "operatorPolicy.enable",
            json!(false),
            boolean(),
            "ValidatingAdmissionPolicies deny the operator's ServiceAccount what the operator does not do. Component `operator-policy`.",
        ),
        setting(
            "policy.enable",
            json!(false),
            boolean(),
            "Users who create objects that make pods need the right to create pods there. Component `policy`.",
        ),
        setting(
            "prometheus.enable",
            json!(false),
            boolean(),
            "A ServiceMonitor, its token and the alerts, for the Prometheus Operator. Component `prometheus`.",
        ),
        setting(
            "prometheus.labels",
            json!({}),
            more(&defaults.prometheus_labels),
            "More labels of the ServiceMonitor and the PrometheusRule, such as those that your Prometheus selects.",
        ),
        setting(
            "prometheus.runbooks",
            json!(""),
            // It ends up in a YAML string in double quotes, and a path follows.
            json!({ "type": "string", "pattern": "^(https?://[^\\s\"\\\\]+/)?$" }),
            "What every runbook_url of the alerts begins with, such as https://example.com/my-operator/blob/main/. Without it they are paths in this repository.",
        ),
        setting(
            "webhookClientCa.enable",
            json!(false),
            boolean(),
            "The webhooks accept only callers with a client certificate. Component `webhook-client-ca`.",
        ),
        setting(
            "webhookClientCa.configMap",
            json!(""),
            string(),
            "The ConfigMap with the CA as ca.crt; empty for the fullname with -webhook-client-ca.",
        ),
        setting(
            "webhookClientCa.commonNames",
            json!([]),
            strings(),
            "Common names of those certificates; any by default.",
        ),
    ]
}

/// values.yaml.
pub(super) fn file(settings: &[Setting]) -> String {
    let mut out = "# Generated by `make chart`. Do not edit.\n".to_owned();
    let mut open: Vec<&str> = Vec::new();
    for setting in settings {
        let path: Vec<&str> = setting.path.split('.').collect();
        let (key, sections) = path.split_last().unwrap_or((&"", &[]));
        let same = open
            .iter()
            .zip(sections)
            .take_while(|(a, b)| a == b)
            .count();
        if same == 0 {
            out.push('\n');
        }
        for (depth, section) in sections.iter().enumerate().skip(same) {
            let _ = writeln!(out, "{}{section}:", "  ".repeat(depth));
        }
        open = sections.to_vec();
        let margin = "  ".repeat(sections.len());
        for line in wrapped(&setting.text, 100 - margin.len()) {
            let _ = writeln!(out, "{margin}# {line}");
        }
        let _ = write!(out, "{margin}{key}:");
        write_value(&mut out, &setting.default, sections.len() + 1);
    }
    out
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + word.len() >= width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            for (key, value) in map {
                let _ = write!(out, "{}{key}:", "  ".repeat(depth));
                write_value(out, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                let _ = writeln!(out, "{}- {item}", "  ".repeat(depth));
            }
        }
        other => {
            let _ = writeln!(out, " {other}");
        }
    }
}

/// values.schema.json. It refuses unknown values, so that a misspelt one does not go unnoticed.
///
/// # Errors
/// If it cannot be written as JSON, which is a bug.
pub(super) fn schema(settings: &[Setting]) -> Result<String> {
    // All are required: Helm takes a value of null for one that is not there, and templates would fail or print nil.
    let section = || json!({ "type": "object", "additionalProperties": false, "properties": {}, "required": [] });
    let require = |section: &mut Value, name: &str| {
        if let Some(names) = section["required"].as_array_mut() {
            names.push(name.into());
        }
    };
    let mut root = section();
    for setting in settings {
        let mut at = &mut root;
        let mut parts = setting.path.split('.').peekable();
        while let Some(part) = parts.next() {
            let properties = &mut at["properties"];
            if parts.peek().is_none() {
                properties[part] = setting.schema.clone();
                properties[part]["description"] = setting.text.clone().into();
                require(at, part);
                break;
            }
            if properties.get(part).is_none() {
                properties[part] = section();
                require(at, part);
            }
            at = &mut at["properties"][part];
        }
    }
    // Helm gives every chart of a parent chart this one.
    root["properties"]["global"] = json!({ "type": "object" });
    let mut all = Map::new();
    all.insert(
        "$schema".to_owned(),
        "http://json-schema.org/draft-07/schema#".into(),
    );
    all.insert("title".to_owned(), "Values of the chart my-operator".into());
    if let Value::Object(root) = root {
        all.extend(root);
    }
    // The CA of the metrics' certificate is cert-manager's too.
    let metrics = json!({ "properties": { "certManager": { "properties": { "metrics": { "const": true } }, "required": ["metrics"] } }, "required": ["certManager"] });
    let enabled = json!({ "properties": { "certManager": { "properties": { "enable": { "const": true } } } } });
    all.insert("if".to_owned(), metrics);
    all.insert("then".to_owned(), enabled);
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// README.md.
pub(super) fn readme(settings: &[Setting]) -> String {
    let mut table = "| value | default | what it does |\n|---|---|---|\n".to_owned();
    for setting in settings {
        let _ = writeln!(
            table,
            "| `{}` | `{}` | {} |",
            setting.path,
            setting.default.to_string().replace('|', "\\|"),
            setting.text.replace('|', "\\|")
        );
    }
    include_str!("files/README.md").replace("<!-- values -->\n", &table)
}
