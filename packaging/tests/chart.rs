//! The Helm chart: a release of `dist/chart` is what kustomize renders of config/.
//! `HELM=3` runs the tests with Helm 3 in place of Helm 4.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use my_operator::kinds::{self, Kind, REGISTRY};
use my_operator::manifests;
use my_operator_cluster::binaries::Programs;
use serde_json::{Value, json};

/// The root of the checkout.
fn checkout() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.to_owned()
}

/// A command that finds the kubectl of the tests' control planes.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let kubectl = Programs::ensure().unwrap().path("kubectl");
    let mut command = Command::new(program);
    command.current_dir(checkout()).env("KUBECTL", kubectl);
    command
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

const IMAGE: &str = "registry.invalid/my-operator:latest";

/// The release and the namespace that have the names of config/default.
const DEFAULT: [&str; 2] = ["my-operator", "my-operator-system"];

/// API version, kind, namespace, name.
type Key = [String; 4];

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn key(object: &Value) -> Key {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|pointer| text(object, pointer))
}

/// The objects of a stream of documents. None may be there twice.
fn objects(yaml: &str) -> BTreeMap<Key, Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut objects = BTreeMap::new();
    for object in all.into_iter().filter(|it| !it.is_null()) {
        let twice = objects.insert(key(&object), object);
        assert!(twice.is_none(), "{twice:?}");
    }
    objects
}

fn helm(arguments: &[&str]) -> Command {
    let mut command = Command::new(my_operator_cluster::binaries::helm().unwrap());
    command
        .current_dir(checkout())
        .args(arguments)
        // A Helm 3 that was built from its module does not know the version of its client.
        .args(["--kube-version", "v1.33.0"]);
    command
}

/// `helm template` of a release with those values, without hooks.
fn template([release, namespace]: [&str; 2], values: &Value) -> Command {
    // Without a name, so that nothing is left behind.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(values.to_string().as_bytes()).unwrap();
    file.rewind().unwrap();
    let mut command = helm(&["template", release, "dist/chart", "--namespace", namespace]);
    command.args(["--skip-tests", "--values", "-"]).stdin(file);
    command
}

/// The objects of a release with those values, as kubectl would install them: the CRDs without the annotation by which
/// Helm keeps them.
fn released(release: [&str; 2], values: &Value) -> BTreeMap<Key, Value> {
    let mut command = template(release, values);
    let yaml = output(&mut command);
    let mut objects = objects(&yaml);
    for (key, object) in &mut objects {
        if key[1] != "CustomResourceDefinition" {
            continue;
        }
        let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
        let kept = annotations.remove("helm.sh/resource-policy");
        assert_eq!(kept, Some("keep".into()), "{key:?}");
        if annotations.is_empty() {
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("annotations");
        }
    }
    objects
}

/// What kustomize renders with those components for the kinds that are on by default.
fn rendered(components: &[&str]) -> BTreeMap<Key, Value> {
    rendered_of(&kinds::by_default(), components)
}

/// What kustomize renders with those components for those kinds, but for the Namespace, which is Helm's.
fn rendered_of(kinds: &[&Kind], components: &[&str]) -> BTreeMap<Key, Value> {
    let config = tempfile::tempdir().unwrap();
    let namespaces = ["default".to_owned()];
    let files = manifests::tree(&checkout().join("config"), kinds, &namespaces).unwrap();
    manifests::write(&files, config.path()).unwrap();
    let mut render = command("hack/render");
    render.env("CONFIG_FOLDER", config.path());
    let yaml = output(render.arg(IMAGE).args(components));
    let mut objects = objects(&yaml);
    objects.retain(|key, _| key[1] != "Namespace");
    objects
}

#[track_caller]
fn assert_same(found: &BTreeMap<Key, Value>, expected: &BTreeMap<Key, Value>) {
    let names = |all: &BTreeMap<Key, Value>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (key, object) in expected {
        assert_eq!(in_order(&found[key]), in_order(object), "{key:?}");
    }
}

/// The object, with a role's rules in one order: theirs means nothing.
fn in_order(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
        rules.sort_by_cached_key(Value::to_string);
    }
    object
}

/// The values that add a component, in the order in which `make deploy` and the chart apply them.
fn components() -> Vec<(&'static str, Value)> {
    let policy = |provider: &str| json!({"networkPolicy": {"enable": true, "provider": provider}});
    vec![
        ("cert-manager", json!({"certManager": {"enable": true}})),
        ("namespaced", json!({"namespaces": ["default"]})),
        ("network-policy", policy("kubernetes")),
        ("network-policy-calico", policy("calico")),
        ("network-policy-cilium", policy("cilium")),
        (
            "operator-policy",
            json!({"operatorPolicy": {"enable": true}}),
        ),
        ("policy", json!({"policy": {"enable": true}})),
        ("prometheus", json!({"prometheus": {"enable": true}})),
        (
            "webhook-client-ca",
            json!({"webhookClientCa": {"enable": true}}),
        ),
        (
            "cert-manager-metrics",
            json!({"certManager": {"enable": true, "metrics": true}, "prometheus": {"enable": true}}),
        ),
    ]
}

/// Every component that may be there beside the others.
fn everything(provider: &str) -> Value {
    json!({
        "certManager": {"enable": true, "metrics": true},
        "namespaces": ["default"],
        "networkPolicy": {"enable": true, "provider": provider},
        "operatorPolicy": {"enable": true},
        "policy": {"enable": true},
        "prometheus": {"enable": true},
        "webhookClientCa": {"enable": true},
    })
}

#[test]
fn helm_has_nothing_to_say_about_the_chart() {
    output(&mut helm(&["lint", "--strict", "dist/chart"]));
}

#[test]
fn the_chart_names_the_version_and_the_crds_of_the_default_kinds() {
    let read = |yaml: &str| -> Value { serde_saphyr::from_str(yaml).unwrap() };
    let file = std::fs::read_to_string(checkout().join("dist/chart/Chart.yaml")).unwrap();
    let chart = read(&file);
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    let crds = read(&text(&chart, "/annotations/artifacthub.io~1crds"));
    let field = |it: &Value, name: &str| text(it, &format!("/{name}"));
    let named = crds.as_array().unwrap().iter();
    let named = named.map(|it| ["kind", "version", "name"].map(|name| field(it, name)));
    let wanted = kinds::by_default().into_iter().map(|kind| {
        let resource = (kind.admission.resource)();
        let name = format!("{}.{}", resource.plural, resource.group);
        [resource.kind, resource.version, name]
    });
    let [named, wanted]: [BTreeSet<_>; 2] = [named.collect(), wanted.collect()];
    assert_eq!(named, wanted);
}

/// Helm takes null for a value that is not there, and templates would fail or print nil.
fn assert_requires_all(path: &str, schema: &Value) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let required = schema["required"].as_array();
    for (name, property) in properties.filter(|(name, _)| *name != "global") {
        let path = format!("{path}.{name}");
        let has = required.is_some_and(|all| all.contains(&name.as_str().into()));
        assert!(has, "{path} is not required");
        assert_requires_all(&path, property);
    }
}

#[test]
fn values_and_their_schema_have_the_same_names() {
    // Helm itself rejects values.yaml if it has others, or lacks one.
    let file = std::fs::read_to_string(checkout().join("dist/chart/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_requires_all("", &schema);
}

#[test]
fn a_release_with_default_values_is_the_installer() {
    let file = std::fs::read_to_string(checkout().join("dist/install.yaml")).unwrap();
    let mut expected = objects(&file);
    expected.retain(|key, _| key[1] != "Namespace");
    assert!(expected.len() > 25, "{:?}", expected.keys());
    assert_same(&released(DEFAULT, &json!({})), &expected);
}

#[test]
fn every_component_is_a_value() {
    // The value `kinds` is in its place.
    let mut known = vec!["sample-kinds".to_owned()];
    for (component, values) in components() {
        let with: &[&str] = match component {
            "cert-manager-metrics" => &["cert-manager", "prometheus", component],
            _ => &[component],
        };
        assert_same(&released(DEFAULT, &values), &rendered(with));
        known.push(component.to_owned());
    }
    let folder = checkout().join("config/components");
    let folders = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut folders: Vec<String> = folders
        .filter(|it| it.path().is_dir())
        .map(|it| it.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    known.sort();
    assert_eq!(known, folders);
}

#[test]
fn components_can_be_combined() {
    for provider in ["kubernetes", "calico", "cilium"] {
        let policy = match provider {
            "kubernetes" => "network-policy".to_owned(),
            other => format!("network-policy-{other}"),
        };
        let all = components();
        let names = all.iter().map(|(name, _)| *name);
        let with: Vec<&str> = names
            .filter(|name| !name.starts_with("network-policy") || *name == policy)
            .collect();
        assert_same(&released(DEFAULT, &everything(provider)), &rendered(&with));
    }
}

fn names(kinds: &[&Kind]) -> Value {
    kinds.iter().map(|kind| kind.name).collect()
}

#[test]
fn a_release_has_the_chosen_kinds_and_nothing_of_others() {
    let mut sets: Vec<Vec<&Kind>> = REGISTRY.iter().map(|kind| vec![*kind]).collect();
    sets.push(REGISTRY.to_vec());
    // Their rights overlap in part.
    let pair = ["at", "memcached"].map(|name| kinds::of_name(name).unwrap());
    sets.push(pair.to_vec());
    for kinds in &sets {
        let found = released(DEFAULT, &json!({"kinds": names(kinds)}));
        let crds = found
            .keys()
            .filter(|key| key[1] == "CustomResourceDefinition");
        assert_eq!(crds.count(), kinds.len(), "{}", names(kinds));
        assert_same(&found, &rendered_of(kinds, &[]));
    }
    // With the components, too, whose roles and webhooks are of these kinds.
    for kinds in [&sets[2][..], &pair[..]] {
        let mut values = everything("kubernetes");
        values["kinds"] = names(kinds);
        let components = components();
        let components = components.iter().map(|(name, _)| *name);
        let with: Vec<&str> = components
            .filter(|name| !["network-policy-calico", "network-policy-cilium"].contains(name))
            .collect();
        assert_same(&released(DEFAULT, &values), &rendered_of(kinds, &with));
    }
}

#[test]
fn a_wrong_kind_fails_with_those_there_are() {
    for kinds in [json!(["cron"]), json!([]), json!(["at", "at"])] {
        let refused = template(DEFAULT, &json!({"kinds": kinds}))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{kinds}");
        let line = said.lines().find(|line| line.contains("kinds")).unwrap();
        let names_all = REGISTRY.iter().all(|kind| line.contains(kind.name));
        assert!(names_all || kinds != json!(["cron"]), "{said}");
    }
}

/// Whether a selector's labels are all among those of an object.
fn selects(labels: &Value, object: &Value) -> bool {
    let mut labels = labels.as_object().unwrap().iter();
    labels.all(|(key, value)| object["metadata"]["labels"][key] == *value)
}

#[test]
fn each_shard_has_a_deployment_and_a_lease_and_one_of_them_serves_the_webhooks() {
    for provider in ["kubernetes", "cilium"] {
        let mut values = everything(provider);
        values["shards"] = 3.into();
        let found = released(DEFAULT, &values);
        let of_kind = |kind: &'static str| found.values().filter(move |it| it["kind"] == kind);
        let deployments: Vec<&Value> = of_kind("Deployment").collect();
        let pods = || deployments.iter().map(|it| &it["spec"]["template"]);
        let names: Vec<&Value> = deployments
            .iter()
            .map(|it| &it["metadata"]["name"])
            .collect();
        assert_eq!(
            names,
            [
                "my-operator-controller-manager",
                "my-operator-shard-1",
                "my-operator-shard-2"
            ]
        );
        for (shard, pod) in pods().enumerate() {
            let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
            assert!(
                args.contains(&format!("--shard={shard}/3").into()),
                "{args:?}"
            );
            assert_eq!(args.contains(&"--webhooks=false".into()), shard > 0);
        }
        // Each selects its own pods only, and so do the budgets.
        let selectors = deployments
            .iter()
            .copied()
            .chain(of_kind("PodDisruptionBudget"));
        let selectors: Vec<&Value> = selectors
            .map(|it| &it["spec"]["selector"]["matchLabels"])
            .collect();
        assert_eq!(selectors.len(), 6);
        for (i, selector) in selectors.iter().enumerate() {
            for (j, pod) in pods().enumerate() {
                assert_eq!(selects(selector, pod), i % 3 == j, "{selector} {pod}");
            }
        }
        // Metrics and policies are about all of them, and the webhooks' Service about the first.
        let services =
            of_kind("Service").map(|it| (&it["metadata"]["name"], &it["spec"]["selector"]));
        let policies = of_kind("NetworkPolicy").chain(of_kind("CiliumNetworkPolicy"));
        let policies = policies.map(|it| {
            let selector = it["spec"]
                .get("podSelector")
                .unwrap_or(&it["spec"]["endpointSelector"]);
            (&it["metadata"]["name"], &selector["matchLabels"])
        });
        let all = services.chain(policies);
        for (name, selector) in all {
            let count = pods().filter(|pod| selects(selector, pod)).count();
            let is_webhooks = name == "my-operator-webhook-service";
            assert_eq!(count, if is_webhooks { 1 } else { 3 }, "{name}");
        }
    }
    let calico = released(
        DEFAULT,
        &json!({"shards": 2, "networkPolicy": {"enable": true, "provider": "calico"}}),
    );
    let policy = calico
        .values()
        .find(|it| it["kind"] == "NetworkPolicy")
        .unwrap();
    assert_eq!(
        policy["spec"]["selector"],
        "app.kubernetes.io/name == 'my-operator'"
    );
}

#[test]
fn several_namespaces_get_a_role_and_a_binding_each() {
    let values = json!({"namespaces": ["team-a", "team-b"]});
    let found = released(DEFAULT, &values);
    for namespace in ["team-a", "team-b"] {
        let there = found.keys().filter(|key| key[2] == namespace);
        let kinds: Vec<&str> = there.map(|key| key[1].as_str()).collect();
        assert_eq!(kinds, ["Role", "RoleBinding"], "{namespace}");
    }
    let of_kind = |kind: &str| found.values().find(|it| it["kind"] == kind).unwrap();
    let args = &of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().unwrap();
    assert!(args.ends_with(&["--namespace=team-a".into(), "--namespace=team-b".into()]));
    let webhooks = &of_kind("ValidatingWebhookConfiguration")["webhooks"];
    let selector = &webhooks[0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(selector, &json!(["team-a", "team-b"]));
}

/// The text with the names of a release `blue` in the namespace `team-ops`.
fn renamed(text: &str) -> String {
    text.replace("my-operator-system", "team-ops")
        .replace("my-operator-", "blue-")
        .replace(
            r#""resourceNames":["my-operator"]"#,
            r#""resourceNames":["blue"]"#,
        )
        .replace(
            "object.metadata.name == 'my-operator'",
            "object.metadata.name == 'blue'",
        )
        .replace("the Lease my-operator ", "the Lease blue ")
}

#[test]
fn the_names_of_another_release_follow() {
    let mut values = everything("kubernetes");
    values["fullnameOverride"] = "blue".into();
    let mut found = released(["any", "team-ops"], &values);
    let with = components();
    let with = with.iter().map(|(name, _)| *name);
    let with: Vec<&str> = with
        .filter(|name| !["network-policy-calico", "network-policy-cilium"].contains(name))
        .collect();
    let expected: BTreeMap<Key, Value> = rendered(&with)
        .into_values()
        .map(|object| {
            if object["kind"] == "CustomResourceDefinition" {
                return object;
            }
            serde_json::from_str(&renamed(&object.to_string())).unwrap()
        })
        .map(|object: Value| (key(&object), object))
        .collect();
    let mut deployments = found.values_mut().filter(|it| it["kind"] == "Deployment");
    let pod = &mut deployments.next().unwrap()["spec"]["template"]["spec"];
    let args = pod["containers"][0]["args"].as_array_mut().unwrap();
    // The program follows, too.
    assert_eq!(args.pop(), Some("--name-prefix=blue".into()));
    drop(deployments);
    assert_same(&found, &expected);
}

#[test]
fn every_reference_of_another_release_resolves() {
    let mut values = everything("cilium");
    values["kinds"] = names(REGISTRY);
    let found = released(["green", "team-ops"], &values);
    let has = |kind: &str, namespace: &str, name: &str| {
        found
            .keys()
            .any(|key| key[1] == kind && key[2] == namespace && key[3] == name)
    };
    let mut references = 0;
    let mut resolve = |kind: &str, namespace: &str, name: &str| {
        references += 1;
        assert!(has(kind, namespace, name), "no {kind} {namespace}/{name}");
    };
    for (key, object) in &found {
        let [_, kind, namespace, name] = key;
        assert!(
            kind == "CustomResourceDefinition" || name.starts_with("green-my-operator"),
            "{key:?}"
        );
        match kind.as_str() {
            "RoleBinding" | "ClusterRoleBinding" => {
                let role = text(object, "/roleRef/kind");
                let at = if role == "Role" { namespace } else { "" };
                resolve(&role, at, &text(object, "/roleRef/name"));
                let subject = |field: &str| text(object, &format!("/subjects/0/{field}"));
                resolve("ServiceAccount", &subject("namespace"), &subject("name"));
            }
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                for webhook in object["webhooks"].as_array().unwrap() {
                    let service =
                        |field: &str| text(webhook, &format!("/clientConfig/service/{field}"));
                    resolve("Service", &service("namespace"), &service("name"));
                }
                let from = &object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
                let (namespace, name) = from.as_str().unwrap().split_once('/').unwrap();
                resolve("Certificate", namespace, name);
            }
            "Certificate" => {
                resolve("Issuer", namespace, &text(object, "/spec/issuerRef/name"));
                for host in object["spec"]["dnsNames"].as_array().into_iter().flatten() {
                    let mut parts = host.as_str().unwrap().split('.');
                    let (service, at) = (parts.next().unwrap(), parts.next().unwrap());
                    resolve("Service", at, service);
                }
            }
            "Deployment" => {
                let account = text(object, "/spec/template/spec/serviceAccountName");
                resolve("ServiceAccount", namespace, &account);
            }
            _ => {}
        }
        assert!(
            !object.to_string().contains("my-operator-system"),
            "{key:?}"
        );
    }
    assert!(references > 40, "{references}");
}

#[test]
fn values_reach_the_pods() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let values = json!({
        "image": {"repository": "example.com/op", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "regcred"}],
        "replicas": 3,
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "podDisruptionBudget": {"enable": false},
        "logLevel": "info,my_operator=debug",
        "extraArgs": ["--worker-threads=2"],
        "env": [{"name": "RUST_BACKTRACE", "value": "1"}],
        "crds": {"install": false},
        "webhookClientCa": {"enable": true, "configMap": "ca", "commonNames": ["kube-apiserver"]},
        "prometheus": {"enable": true, "labels": {"release": "stack"}},
        "networkPolicy": {"enable": true, "provider": "calico", "calico": {"apiServers": ["10.0.0.0/24"]}},
    });
    let found = released(DEFAULT, &values);
    let kinds = |kind: &str| {
        found
            .values()
            .filter(|it| it["kind"] == kind)
            .collect::<Vec<_>>()
    };
    assert!(kinds("CustomResourceDefinition").is_empty());
    assert!(kinds("PodDisruptionBudget").is_empty());
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(kinds(kind)[0]["metadata"]["labels"]["release"], "stack");
    }
    let nets = &kinds("NetworkPolicy")[0]["spec"]["ingress"][0]["source"]["nets"];
    assert_eq!(nets, &json!(["10.0.0.0/24"]));
    let deployment = &kinds("Deployment")[0]["spec"];
    assert_eq!(deployment["replicas"], 3);
    let template = &deployment["template"];
    assert_eq!(template["metadata"]["annotations"]["a"], "b");
    assert_eq!(template["metadata"]["labels"]["c"], "d");
    assert_eq!(
        template["metadata"]["labels"]["control-plane"],
        "controller-manager"
    );
    let pod = &template["spec"];
    for field in [
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
    ] {
        if field == "nodeSelector" {
            assert_eq!(pod[field]["disk"], "ssd");
        } else {
            assert_eq!(pod[field], values[field], "{field}");
        }
    }
    let manager = &pod["containers"][0];
    assert_eq!(manager["image"], "example.com/op:1.2.3");
    assert_eq!(manager["imagePullPolicy"], "Always");
    assert_eq!(manager["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(manager["env"], values["env"]);
    let args = manager["args"].as_array().unwrap();
    let last = [
        "--webhook-client-cn=kube-apiserver",
        "--log-level=info,my_operator=debug",
        "--worker-threads=2",
    ];
    assert!(args.ends_with(&last.map(Value::from)), "{args:?}");
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(
        volumes.iter().any(|it| it["configMap"]["name"] == "ca"),
        "{volumes:?}"
    );

    let values = json!({"image": {"repository": "example.com:5000/op", "digest": digest}});
    let found = released(DEFAULT, &values);
    let deployment = found
        .values()
        .find(|it| it["kind"] == "Deployment")
        .unwrap();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, &json!(format!("example.com:5000/op@{digest}")));
}

#[test]
fn a_value_makes_the_links_of_the_alerts_absolute() {
    let values = json!({"prometheus": {"enable": true, "runbooks": "https://example.com/op/"}});
    let found = released(DEFAULT, &values);
    let mut found = found.values();
    let alerts = found.find(|it| it["kind"] == "PrometheusRule").unwrap();
    for rule in alerts["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let link = text(rule, "/annotations/runbook_url");
        let page = "https://example.com/op/docs/operations/alerts.md#";
        assert!(link.starts_with(page), "{link}");
    }
}

#[test]
fn crds_go_with_the_release_only_if_a_value_says_so() {
    let mut command = template(DEFAULT, &json!({"crds": {"keep": false}}));
    let all = objects(&output(&mut command));
    let mut crds = all
        .values()
        .filter(|it| it["kind"] == "CustomResourceDefinition");
    assert!(crds.clone().count() == 2);
    assert!(crds.all(|it| it["metadata"]["annotations"].is_null()));
}

#[test]
fn bad_values_are_refused() {
    for (values, word) in [
        (json!({"replica": 3}), "replica"),
        (json!({"certmanager": {"enable": true}}), "certmanager"),
        (json!({"certManager": {"enabled": true}}), "enabled"),
        (json!({"certManager": {"metrics": true}}), "enable"),
        (json!({"replicas": 0}), "replicas"),
        // The template has it already.
        (
            json!({"podLabels": {"app.kubernetes.io/name": "x"}}),
            "app.kubernetes.io/name",
        ),
        (
            json!({"prometheus": {"labels": {"app.kubernetes.io/name": "x"}}}),
            "app.kubernetes.io/name",
        ),
        (
            json!({"prometheus": {"runbooks": "https://example.com/op"}}),
            "runbooks",
        ),
        (
            json!({"networkPolicy": {"provider": "flannel"}}),
            "provider",
        ),
        (json!({"namespaces": "team-a"}), "namespaces"),
        (json!({"image": {"digest": "sha256:1"}}), "digest"),
        // Helm takes null for a value that is not there.
        (json!({"image": {"repository": null}}), "repository"),
        (json!({"image": null}), "image"),
        (json!({"namespaces": null}), "namespaces"),
        (
            json!({"networkPolicy": {"calico": {"apiServers": null}}}),
            "apiServers",
        ),
        (
            json!({"fullnameOverride": "My_Operator"}),
            "fullnameOverride",
        ),
    ] {
        let refused = template(DEFAULT, &values).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{values}");
        assert!(said.contains(word), "{values}: {said}");
    }
    let long = template(["a-release-with-a-long-name", "any"], &json!({}));
    let refused = { long }.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("set fullnameOverride to at most 28"),
        "{said}"
    );
}

#[test]
fn the_test_has_the_rights_of_a_check() {
    let release = ["blue", "team-ops"];
    let arguments = [
        "template",
        release[0],
        "dist/chart",
        "--namespace",
        release[1],
    ];
    let show = [
        "--show-only",
        "templates/tests/check.yaml",
        "--set",
        "fullnameOverride=blue",
    ];
    let yaml = output(helm(&arguments).args(show));
    // The policy lets only those create our objects who may create pods.
    let policy = output(
        helm(&arguments)
            .args(show)
            .args(["--set", "policy.enable=true"]),
    );
    let more =
        "  - apiGroups:\n      - \"\"\n    resources:\n      - pods\n    verbs:\n      - create\n";
    assert!(policy.contains(more) && !yaml.contains(more), "{policy}");
    // The dry runs may be in the release's own namespace; `objects` finds a name that is there twice.
    let arguments = ["template", "blue", "dist/chart", "--namespace", "default"];
    assert!(!objects(&output(helm(&arguments).args(&show[..2]))).is_empty());
    let mut found = objects(&yaml);
    let pod = ["v1", "Pod", "team-ops", "blue-check"].map(str::to_owned);
    let pod = found.remove(&pod).unwrap();
    assert_eq!(pod["spec"]["serviceAccountName"], "blue-check");
    let hook = |it: &Value| it["metadata"]["annotations"]["helm.sh/hook"] == "test";
    assert!(hook(&pod));
    for object in found.values_mut() {
        assert!(hook(object), "{object}");
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
    }
    let role = std::fs::read_to_string(checkout().join("config/check/role.yaml")).unwrap();
    let expected = objects(&role).into_values().map(|object| {
        let object: Value = serde_json::from_str(&renamed(&object.to_string())).unwrap();
        (key(&object), object)
    });
    assert_same(&found, &expected.collect());
}
