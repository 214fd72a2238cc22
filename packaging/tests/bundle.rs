//! The OLM bundle: what is committed is what config/ gives, and it says all that config/ says.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use my_operator::kinds::{self, Kind, REGISTRY};
use my_operator::run::api_server::new_enough;
use my_operator_cluster::binaries::Programs;
use serde_json::Value;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The objects of a file of the checkout.
fn objects(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(checkout().join(path)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn committed() -> Value {
    let mut objects = objects("bundle/manifests/my-operator.clusterserviceversion.yaml");
    objects.remove(0)
}

/// Writes a bundle with those arguments, such as components, into a folder; else the message.
fn written(arguments: &[&str]) -> Result<tempfile::TempDir, String> {
    let out = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_my-operator-packaging"))
        .env("KUBECTL", Programs::ensure().unwrap().path("kubectl"))
        .arg("--checkout")
        .arg(checkout())
        .args([
            "bundle",
            "--image=registry.invalid/my-operator:latest",
            "--out",
        ])
        .arg(out.path())
        .args(arguments)
        .output()
        .unwrap();
    if run.status.success() {
        return Ok(out);
    }
    Err(String::from_utf8(run.stderr).unwrap())
}

/// The files below a folder, by their path in it.
fn tree(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            let below = tree(&path).into_iter();
            found.extend(below.map(|(path, text)| (name.join(path), text)));
        } else {
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn the_committed_bundle_is_what_make_bundle_writes() {
    let out = written(&[]).unwrap();
    let fresh = tree(&out.path().join("bundle"));
    let committed = tree(&checkout().join("bundle"));
    let names = |tree: &BTreeMap<PathBuf, String>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&fresh), names(&committed), "run `make bundle`");
    for (path, text) in fresh {
        // The difference is not printed: `git diff` shows it after that.
        let stale = committed[&path] != text;
        assert!(!stale, "{} is stale: run `make bundle`", path.display());
    }
    let dockerfile = |root: &Path| fs::read_to_string(root.join("bundle.Dockerfile")).unwrap();
    assert_eq!(dockerfile(out.path()), dockerfile(&checkout()));
}

#[test]
fn the_oldest_kubernetes_is_the_one_that_the_operator_accepts() {
    let spec = &committed()["spec"];
    let version: Vec<u32> = spec["minKubeVersion"]
        .as_str()
        .unwrap()
        .split('.')
        .map(|number| number.parse().unwrap())
        .collect();
    let (major, minor) = (version[0].to_string(), version[1]);
    assert_eq!(version[2..], [0]);
    new_enough(&major, &minor.to_string()).unwrap();
    assert!(new_enough(&major, &(minor - 1).to_string()).is_err());
}

#[test]
fn every_kind_is_owned_and_described_with_a_sample() {
    let csv = committed();
    let owned = array(&csv["spec"]["customresourcedefinitions"]["owned"]);
    let samples = csv["metadata"]["annotations"]["alm-examples"].as_str();
    let samples: Value = serde_json::from_str(samples.unwrap()).unwrap();
    let kinds = kinds::by_default();
    assert_eq!(owned.len(), kinds.len());
    for kind in kinds {
        let crd = serde_json::to_value((kind.crd)()).unwrap();
        let name = &crd["metadata"]["name"];
        let description = owned.iter().find(|it| it["name"] == *name).unwrap();
        let version = &crd["spec"]["versions"][0];
        assert_eq!(description["version"], version["name"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!(description["description"], schema["description"]);
        for (part, descriptors) in [("spec", "specDescriptors"), ("status", "statusDescriptors")] {
            let descriptors = array(&description[descriptors]);
            let paths: BTreeSet<&str> = descriptors
                .iter()
                .map(|it| it["path"].as_str().unwrap().split('.').next().unwrap())
                .collect();
            let fields = schema["properties"][part]["properties"].as_object();
            let fields: BTreeSet<&str> = fields.unwrap().keys().map(String::as_str).collect();
            assert_eq!(paths, fields, "{}", kind.name);
            let described = |it: &Value| it["description"].as_str().is_some_and(|it| it.len() > 10);
            assert!(descriptors.iter().all(described), "{}", kind.name);
        }
        let good = kind
            .samples
            .iter()
            .filter(|it| !it.file.starts_with("bad/"));
        let of_kind = array(&samples)
            .iter()
            .filter(|it| it["kind"] == crd["spec"]["names"]["kind"]);
        assert_eq!(of_kind.count(), good.count(), "{}", kind.name);
    }
}

#[test]
fn the_rights_are_those_of_config_without_what_olm_does_itself() {
    let csv = committed();
    let install = &csv["spec"]["install"]["spec"];
    let given = |list: &str| array(&install[list][0]["rules"]).to_vec();
    let mut wanted: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for file in [
        "role.yaml",
        "leader_election_role.yaml",
        "metrics_auth_role.yaml",
    ] {
        for role in objects(&format!("config/rbac/{file}")) {
            let list = match role["kind"].as_str().unwrap() {
                "ClusterRole" => "clusterPermissions",
                "Role" => "permissions",
                _ => continue,
            };
            for rule in array(&role["rules"]) {
                if rule["apiGroups"][0] == "admissionregistration.k8s.io" {
                    left_out.push(rule.clone());
                } else {
                    wanted.entry(list).or_default().push(rule.clone());
                }
            }
        }
    }
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    for (list, rules) in wanted {
        let given = given(list);
        for rule in &rules {
            assert!(given.contains(rule), "{list} lacks {rule}");
        }
        for rule in given {
            assert!(rules.contains(&rule), "{list} has {rule}");
        }
    }
}

#[test]
fn every_webhook_is_defined_and_served_with_the_certificate_of_olm() {
    let csv = committed();
    let defined = array(&csv["spec"]["webhookdefinitions"]);
    let configurations = objects("config/webhook/manifests.yaml");
    let entries: Vec<&Value> = configurations
        .iter()
        .flat_map(|it| array(&it["webhooks"]))
        .collect();
    assert_eq!(defined.len(), entries.len());
    let deployment = &csv["spec"]["install"]["spec"]["deployments"][0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let ports = array(&container["ports"]);
    for entry in entries {
        let definition = defined
            .iter()
            .find(|it| it["generateName"] == entry["name"]);
        let definition = definition.unwrap();
        for field in ["rules", "failurePolicy", "sideEffects", "timeoutSeconds"] {
            assert_eq!(
                definition[field], entry[field],
                "{}: {field}",
                entry["name"]
            );
        }
        let path = &entry["clientConfig"]["service"]["path"];
        assert_eq!(definition["webhookPath"], *path);
        assert_eq!(definition["deploymentName"], deployment["name"]);
        let port = ports
            .iter()
            .find(|it| it["containerPort"] == definition["targetPort"]);
        assert_eq!(port.unwrap()["name"], "webhook");
    }
    // Where OLM mounts it: pkg/controller/install/certresources.go of operator-lifecycle-manager.
    for flag in [
        "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
        "--webhook-configurations=false",
    ] {
        assert!(array(&container["args"]).contains(&flag.into()), "{flag}");
    }
}

/// The images that a mirror of the catalog copies.
fn images(csv: &Value) -> BTreeSet<&str> {
    let related = array(&csv["spec"]["relatedImages"]).iter();
    related.map(|it| it["image"].as_str().unwrap()).collect()
}

/// The manager's, and those that the pods of these kinds have without a word of the user.
fn images_of<'a>(kinds: &[&'a Kind]) -> BTreeSet<&'a str> {
    let defaults = kinds.iter().flat_map(|kind| kind.images).copied();
    defaults
        .chain(["registry.invalid/my-operator:latest"])
        .collect()
}

#[test]
fn the_images_are_those_that_pods_are_made_of() {
    let csv = committed();
    assert_eq!(images(&csv), images_of(&kinds::by_default()));
    assert_eq!(images(&csv).len(), 2, "an At's and the manager's");
}

/// Asserts that a bundle has these kinds and nothing of others.
fn assert_has(arguments: &[&str], kinds: &[&Kind]) {
    let out = written(arguments).unwrap();
    let files = tree(&out.path().join("bundle/manifests"));
    let csv = &files[Path::new("my-operator.clusterserviceversion.yaml")];
    let csv: Value = serde_saphyr::from_str(csv).unwrap();
    let metadata = &csv["metadata"]["annotations"];
    let samples: Value = serde_json::from_str(metadata["alm-examples"].as_str().unwrap()).unwrap();
    let spec = &csv["spec"];
    for kind in REGISTRY {
        let crd = (kind.crd)();
        let has = kinds.iter().any(|it| it.name == kind.name);
        let file = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        assert_eq!(files.contains_key(Path::new(&file)), has, "{file}");
        let title = &crd.spec.names.kind;
        let mut samples = array(&samples).iter();
        assert_eq!(samples.any(|it| it["kind"] == *title), has, "{title}");
        // In words, too.
        let word = format!("**{title}**");
        let described = spec["description"].as_str().unwrap().contains(&word);
        assert_eq!(described, has, "{title}");
        let rights = spec["install"]["spec"]["clusterPermissions"].to_string();
        let status = format!("\"{}/status\"", crd.spec.names.plural);
        assert_eq!(rights.contains(&status), has, "{title}");
        let argument = format!("\"--kinds={}\"", kind.name);
        let deployments = spec["install"]["spec"]["deployments"].to_string();
        assert_eq!(deployments.contains(&argument), has, "{title}");
    }
    let webhooks = array(&spec["webhookdefinitions"]);
    assert_eq!(webhooks.len(), 2 * kinds.len());
    assert_eq!(images(&csv), images_of(kinds));
}

#[test]
fn a_bundle_has_the_chosen_kinds_alone() {
    for kind in REGISTRY.iter().copied() {
        assert_has(&["--kinds", kind.name], &[kind]);
    }
    let names: Vec<&str> = REGISTRY.iter().map(|kind| kind.name).collect();
    assert_has(&["--kinds", &names.join(" ")], REGISTRY);
    assert_has(&["sample-kinds"], REGISTRY);
    let error = written(&["--kinds=memcached,cron"]).unwrap_err();
    let words = "\"cron\" is not a kind: the kinds are mydaemonset, at, memcached";
    assert!(
        error.contains(words) && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn a_component_that_has_no_place_in_a_bundle_is_an_error_in_one_line() {
    for (component, words) in [
        (
            "cert-manager",
            "has no place in a bundle: leave out its component",
        ),
        ("namespaced", "namespaceSelector of the webhook"),
        ("nonsense", "no component nonsense"),
    ] {
        let text = written(&[component]).unwrap_err();
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
    }
}
