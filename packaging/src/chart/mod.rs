//! The Helm chart: templates from what kustomize renders of config/default, with each component and for each kind.

mod tree;
mod values;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use my_operator::kinds::{self, Kind, REGISTRY};
use serde_json::{Value, json};

use crate::rendered::{self, Checkout, title};
use tree::{Component, Condition, Entry, Item, Literal, Tree};

/// The image of config/manager, and of the chart unless another is given.
pub(crate) const IMAGE: &str = "registry.invalid/my-operator:latest";

/// The components in the order in which the chart applies them, each with the condition that turns it on.
const COMPONENTS: [(Component, &str); 10] = [
    ("cert-manager", "$.Values.certManager.enable"),
    ("namespaced", "$.Values.namespaces"),
    (
        "network-policy",
        r#"and $.Values.networkPolicy.enable (eq $.Values.networkPolicy.provider "kubernetes")"#,
    ),
    (
        "network-policy-calico",
        r#"and $.Values.networkPolicy.enable (eq $.Values.networkPolicy.provider "calico")"#,
    ),
    (
        "network-policy-cilium",
        r#"and $.Values.networkPolicy.enable (eq $.Values.networkPolicy.provider "cilium")"#,
    ),
    ("operator-policy", "$.Values.operatorPolicy.enable"),
    ("policy", "$.Values.policy.enable"),
    ("prometheus", "$.Values.prometheus.enable"),
    ("webhook-client-ca", "$.Values.webhookClientCa.enable"),
    // It changes objects of two others, so it comes last.
    (
        "cert-manager-metrics",
        "and $.Values.certManager.enable $.Values.certManager.metrics",
    ),
];

/// The component that adds kinds, for which the chart has the value `kinds`.
const SAMPLE_KINDS: &str = "sample-kinds";

/// A file of the chart: its path there, and its text.
pub(crate) type File = (PathBuf, String);

/// An object of the chart: where it comes from, and what of it depends on what.
struct Object {
    /// None for an object of config/default, for whatever kinds.
    from: Option<Component>,
    when: Condition,
    tree: Tree,
}

/// The component `policy` asks this of everyone who creates an object of our kinds, in a dry run too.
const MAY_CREATE_PODS: &[&str] = &[
    "{{- if $.Values.policy.enable }}",
    "- apiGroups:",
    "    - \"\"",
    "  resources:",
    "    - pods",
    "  verbs:",
    "    - create",
    "{{- end }}",
];

/// Kind, namespace and name.
type Key = (String, String);

/// What is rendered with some components and kinds.
struct Rendering {
    with: BTreeSet<Component>,
    objects: BTreeMap<Key, Value>,
}

/// Every file of the chart.
///
/// # Errors
/// If kustomize fails, or config/ has something that the generator does not know.
pub(crate) fn files(checkout: &Checkout, image: &str) -> Result<Vec<File>> {
    let everything = checkout.components()?;
    let known: BTreeSet<&str> = COMPONENTS.iter().map(|(name, _)| *name).collect();
    if let Some(other) = everything
        .iter()
        .find(|name| *name != SAMPLE_KINDS && !known.contains(name.as_str()))
    {
        bail!("config/components/{other} is not in the chart: add a value for it to COMPONENTS");
    }
    let mut objects = merged(checkout)?;
    let of_kinds = of_kinds(checkout)?;
    limit(&mut objects, &of_kinds);
    prove(checkout, &objects, of_kinds)?;
    let defaults = values::Defaults::take(&mut objects, image)?;
    let settings = values::settings(&defaults);
    let mut files = vec![
        ("Chart.yaml".into(), chart_file(checkout, &objects)?),
        ("values.yaml".into(), values::file(&settings)),
        ("values.schema.json".into(), values::schema(&settings)?),
        ("README.md".into(), values::readme(&settings)),
        (
            "templates/_helpers.tpl".into(),
            include_str!("files/_helpers.tpl").to_owned(),
        ),
        (
            "templates/NOTES.txt".into(),
            include_str!("files/NOTES.txt").to_owned(),
        ),
        ("templates/tests/check.yaml".into(), check_test(checkout)?),
    ];
    let mut templates: BTreeMap<PathBuf, String> = BTreeMap::new();
    for object in objects.values() {
        let text = write::object(&object.when, &object.tree, expression, None)?;
        let file = templates.entry(template(object)).or_default();
        file.push_str(&text);
    }
    let header = "{{- /* Generated from config/ by `make chart`. Do not edit. */}}\n";
    files.extend(
        templates
            .into_iter()
            .map(|(path, text)| (path, format!("{header}{text}"))),
    );
    Ok(files)
}

/// Writes the files, and removes templates that the chart no longer has.
///
/// # Errors
/// If a file cannot be written; the message names it.
pub(crate) fn write(files: &[File], folder: &Path) -> Result<()> {
    let templates = folder.join("templates");
    if templates.exists() {
        fs::remove_dir_all(&templates).with_context(|| templates.display().to_string())?;
    }
    for (path, text) in files {
        let path = folder.join(path);
        let what = || path.display().to_string();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(what)?;
        }
        fs::write(&path, text).with_context(what)?;
    }
    Ok(())
}

/// What is rendered with those components and kinds, by key. The Namespace is left out: it is Helm's
/// (`--namespace`, `--create-namespace`).
fn rendered(checkout: &Checkout, with: &BTreeSet<Component>) -> Result<BTreeMap<Key, Value>> {
    let order = COMPONENTS.iter().map(|(name, _)| *name);
    let components: Vec<&str> = order.filter(|name| with.contains(name)).collect();
    let kinds = REGISTRY.iter().copied();
    let kinds: Vec<&Kind> = kinds.filter(|kind| with.contains(kind.name)).collect();
    // Its value `namespaces` takes the place of the example, whatever the component of this checkout is for.
    let namespaces = [write::EXAMPLE.to_owned()];
    let objects = checkout.render("default", IMAGE, &kinds, &namespaces, &components)?;
    let installed = objects.into_iter().filter(|it| it["kind"] != "Namespace");
    Ok(installed
        .map(|object| {
            let group = object["apiVersion"].as_str().unwrap_or_default().to_owned();
            ((group, title(&object)), object)
        })
        .collect())
}

fn names(kinds: &[&'static Kind]) -> BTreeSet<Component> {
    kinds.iter().map(|kind| kind.name).collect()
}

fn all_components() -> BTreeSet<Component> {
    COMPONENTS.iter().map(|(name, _)| *name).collect()
}

/// What is rendered for each kind alone, without components and with all.
fn of_kinds(checkout: &Checkout) -> Result<Vec<(Component, Rendering)>> {
    let mut all = Vec::new();
    for kind in REGISTRY {
        for mut with in [BTreeSet::new(), all_components()] {
            with.insert(kind.name);
            let objects = rendered(checkout, &with)?;
            all.push((kind.name, Rendering { with, objects }));
        }
    }
    Ok(all)
}

/// Makes what only some of the kinds have depend on those.
fn limit(objects: &mut BTreeMap<Key, Object>, of_kinds: &[(Component, Rendering)]) {
    // An object is a part of what a kind has.
    let nothing = Value::Null;
    let whole: Vec<(Component, &Value)> =
        of_kinds.iter().map(|(kind, _)| (*kind, &nothing)).collect();
    for (key, object) in objects {
        let found: Vec<(Component, &Value)> = of_kinds
            .iter()
            .filter_map(|(kind, it)| Some((*kind, it.objects.get(key)?)))
            .collect();
        object.tree.limit(&found);
        object.when.extend(tree::only(&found, &whole));
    }
}

/// The objects of config/default and all components, for all kinds.
fn merged(checkout: &Checkout) -> Result<BTreeMap<Key, Object>> {
    let mut with = names(REGISTRY);
    let mut before = rendered(checkout, &with)?;
    let mut objects: BTreeMap<Key, Object> = before
        .iter()
        .map(|(key, value)| {
            let object = Object {
                from: None,
                when: Vec::new(),
                tree: value.into(),
            };
            (key.clone(), object)
        })
        .collect();
    for (component, _) in COMPONENTS {
        let mut more = with.clone();
        more.insert(component);
        let after = rendered(checkout, &more)?;
        for (key, value) in &after {
            match objects.get_mut(key) {
                Some(object) if before.get(key) != Some(value) => {
                    object.tree.merge(component, &with, value);
                }
                Some(_) => {}
                None => {
                    let object = Object {
                        from: Some(component),
                        when: vec![Literal::With(component)],
                        tree: value.into(),
                    };
                    objects.insert(key.clone(), object);
                }
            }
        }
        for key in before.keys().filter(|key| !after.contains_key(key)) {
            if let Some(object) = objects.get_mut(key) {
                object.when.push(Literal::Without(component));
            }
        }
        (before, with) = (after, more);
    }
    Ok(objects)
}

/// Compares what the conditions leave with what kustomize renders: for all kinds without components, with each, with
/// each but one, and with all; for the kinds that are on by default and for each alone, with no component and with all.
fn prove(
    checkout: &Checkout,
    objects: &BTreeMap<Key, Object>,
    of_kinds: Vec<(Component, Rendering)>,
) -> Result<()> {
    let all = all_components();
    let mut sets = vec![BTreeSet::new(), all.clone()];
    for (component, _) in COMPONENTS {
        let mut one = BTreeSet::from([component]);
        let mut rest = all.clone();
        rest.remove(component);
        if component == "cert-manager-metrics" {
            one.extend(["cert-manager", "prometheus"]);
        }
        if component == "cert-manager" || component == "prometheus" {
            rest.remove("cert-manager-metrics");
        }
        sets.extend([one, rest]);
    }
    let mut renderings: Vec<Rendering> = of_kinds.into_iter().map(|(_, it)| it).collect();
    let defaults = [BTreeSet::new(), all].map(|with| &with | &names(&kinds::by_default()));
    let sets = sets.into_iter().map(|with| &with | &names(REGISTRY));
    for with in sets.chain(defaults) {
        let objects = rendered(checkout, &with)?;
        renderings.push(Rendering { with, objects });
    }
    for rendering in renderings {
        let (with, expected) = (rendering.with, rendering.objects);
        let left: BTreeMap<&Key, Value> = objects
            .iter()
            .filter(|(_, object)| tree::holds(&object.when, &with))
            .map(|(key, object)| (key, object.tree.evaluate(&with)))
            .collect();
        let keys: BTreeSet<&Key> = expected.keys().chain(left.keys().copied()).collect();
        for key in keys {
            if left.get(key) != expected.get(key) {
                bail!(
                    "{}: conditions cannot express the difference that these components and kinds make: {with:?}",
                    key.1
                );
            }
        }
    }
    Ok(())
}

/// The condition as Go templates have it.
fn expression(literal: &Literal) -> String {
    let of = |component: &Component| {
        let mut all = COMPONENTS.iter();
        let found = all.find(|(name, _)| name == component);
        found.map_or("", |(_, expression)| *expression)
    };
    match literal {
        Literal::With(component) => of(component).to_owned(),
        Literal::Without(component) => format!("not ({})", of(component)),
        Literal::AnyOf(kinds) => {
            let has = kinds
                .iter()
                .map(|kind| format!("has {kind:?} $.Values.kinds"));
            match has.collect::<Vec<_>>().as_slice() {
                [one] => one.clone(),
                some => format!("or ({})", some.join(") (")),
            }
        }
        Literal::Value(expression) => (*expression).to_owned(),
    }
}

/// The file that an object is in.
fn template(object: &Object) -> PathBuf {
    let value = object.tree.evaluate(&BTreeSet::new());
    let kind = value["kind"].as_str().unwrap_or_default();
    let name = match (kind, object.from) {
        ("CustomResourceDefinition", _) => {
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            return Path::new("templates/crds").join(format!("{name}.yaml"));
        }
        (_, Some(component)) => component.to_owned(),
        ("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration", _) => {
            "webhooks".to_owned()
        }
        ("ServiceAccount" | "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding", _) => {
            "rbac".to_owned()
        }
        (other, _) => other.to_lowercase(),
    };
    Path::new("templates").join(format!("{name}.yaml"))
}

/// The `helm test` that runs `my-operator check`: a pod with exactly the rights of config/check, all of it hooks.
fn check_test(checkout: &Checkout) -> Result<String> {
    let mut out =
        "{{- /* Generated from config/check by `make chart`. Do not edit. */}}\n".to_owned();
    let namespace = r#"{{ first (append $.Values.namespaces "default") }}"#;
    for mut object in rendered::read(&checkout.read("config/check/role.yaml")?)? {
        object["metadata"]["annotations"] = json!({
            "helm.sh/hook": "test",
            // Before the pod.
            "helm.sh/hook-weight": "-1",
            "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        });
        let mut tree = Tree::from(&object);
        if object["kind"] == "Role" && object["metadata"]["namespace"] == write::EXAMPLE {
            append(&mut tree, &["rules"], MAY_CREATE_PODS)?;
        }
        out.push_str(&write::object(
            &Vec::new(),
            &tree,
            expression,
            Some(namespace),
        )?);
    }
    out.push_str(include_str!("files/check-pod.yaml"));
    Ok(out)
}

/// Chart.yaml.
fn chart_file(checkout: &Checkout, objects: &BTreeMap<Key, Object>) -> Result<String> {
    let version = checkout.version()?;
    let mut crds = String::new();
    for object in objects.values() {
        let crd = object.tree.evaluate(&BTreeSet::new());
        if crd["kind"] != "CustomResourceDefinition" {
            continue;
        }
        let text = |pointer: &str| {
            let found = crd.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let schema = "/spec/versions/0/schema/openAPIV3Schema/description";
        let description = text(schema);
        let sentence = description.split(". ").next().unwrap_or_default();
        let _ = writeln!(
            crds,
            "    - kind: {0}\n      version: {1}\n      name: {2}\n      displayName: {0}\n      description: {3}",
            text("/spec/names/kind"),
            text("/spec/versions/0/name"),
            text("/metadata/name"),
            Value::from(sentence.replace('\n', " ")),
        );
    }
    Ok(include_str!("files/Chart.yaml")
        .replace("VERSION", &version)
        .replace("    CRDS\n", &crds))
}

/// The part of a tree at that path of keys; `name` selects an item of a list by its name.
fn at<'a>(tree: &'a mut Tree, path: &[&str]) -> Result<&'a mut Tree> {
    let [first, rest @ ..] = path else {
        return Ok(tree);
    };
    let found = match tree {
        Tree::Map(entries) => entries
            .iter_mut()
            .find(|entry| entry.key == *first)
            .map(|entry| &mut entry.tree),
        Tree::List(items) => items.iter_mut().map(|item| &mut item.tree).find(|tree| {
            matches!(tree, Tree::Map(entries) if entries.iter().any(|entry|
                entry.key == "name" && matches!(&entry.tree, Tree::Scalar(name) if name == first)))
        }),
        Tree::Scalar(_) | Tree::Lines(_) => None,
    };
    at(found.with_context(|| format!("there is no {first}"))?, rest)
}

/// Puts lines of a template where a key is, or would be.
fn put(tree: &mut Tree, path: &[&str], key: &str, lines: &'static [&'static str]) -> Result<()> {
    let Tree::Map(entries) = at(tree, path)? else {
        bail!("{path:?} is no map");
    };
    entries.retain(|entry| entry.key != key);
    let entry = Entry {
        when: Vec::new(),
        key: key.to_owned(),
        tree: Tree::Lines(lines),
    };
    entries.push(entry);
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(())
}

/// Adds lines of a template to a list.
fn append(tree: &mut Tree, path: &[&str], lines: &'static [&'static str]) -> Result<()> {
    let Tree::List(items) = at(tree, path)? else {
        bail!("{path:?} is no list");
    };
    items.push(Item {
        when: Vec::new(),
        tree: Tree::Lines(lines),
    });
    Ok(())
}
