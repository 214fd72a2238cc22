//! What GitOps tools make of our objects: Argo CD's Lua runs the scripts of `contrib/argocd`, and the kstatus of Flux
//! and Helm 4 reads the same objects, which `tests/control_plane` compares with those of a real API server.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{TimeDelta, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::harness::{self, oracle::ask};

/// In the layout of Argo CD's own repository.
const CUSTOMIZATIONS: &str = "contrib/argocd/resource_customizations";
const CONFIG_MAP: &str = "contrib/argocd/argocd-cm.yaml";
/// Where a restart sets the time.
const RESTARTED_AT: &str = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";

/// What a script returned.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    pub(crate) value: Value,
    /// Why it failed; empty if it did not.
    #[serde(default)]
    pub(crate) error: String,
}

/// A `health_test.yaml` of Argo CD, with a column of ours.
#[derive(Debug, Deserialize)]
struct HealthTests {
    tests: Vec<HealthTest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthTest {
    pub(crate) input_path: String,
    pub(crate) health_status: Value,
    /// The status that kstatus computes.
    pub(crate) kstatus: String,
}

/// An `action_test.yaml` of Argo CD.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActionTests {
    discovery_tests: Vec<DiscoveryTest>,
    action_tests: Vec<ActionTest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveryTest {
    input_path: String,
    result: Vec<Offer>,
}

/// An action in the menu of an object.
#[derive(Debug, Deserialize)]
struct Offer {
    name: String,
    #[serde(default)]
    disabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActionTest {
    action: String,
    input_path: String,
    /// What the action sets, and the name of the object.
    expected_output_path: String,
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn yaml<T: DeserializeOwned>(path: &Path) -> T {
    serde_saphyr::from_str(&text(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is in a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The folders of the kinds: `<group>/<Kind>`.
pub(crate) fn kinds() -> Vec<PathBuf> {
    let groups = entries(&harness::checkout().join(CUSTOMIZATIONS));
    let kinds: Vec<_> = groups.iter().flat_map(|group| entries(group)).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    kinds
}

/// The expected health of a kind in each state, and the objects.
pub(crate) fn health_tests(kind: &Path) -> Vec<(HealthTest, Value)> {
    let table: HealthTests = yaml(&kind.join("health_test.yaml"));
    let path = |test: &HealthTest| kind.join(&test.input_path);
    let listed: BTreeSet<_> = table.tests.iter().map(path).collect();
    let there: BTreeSet<_> = entries(&kind.join("testdata")).into_iter().collect();
    assert_eq!(listed, there, "the table and the objects");
    let with_object = |test: HealthTest| {
        let object = yaml(&path(&test));
        (test, object)
    };
    table.tests.into_iter().map(with_object).collect()
}

/// The names of a kind's actions.
fn actions(kind: &Path) -> BTreeSet<String> {
    let scripts = entries(&kind.join("actions")).into_iter();
    let scripts = scripts.filter(|path| path.join("action.lua").is_file());
    scripts.map(|path| name(&path)).collect()
}

fn action_script(kind: &Path, action: &str) -> String {
    text(&kind.join("actions").join(action).join("action.lua"))
}

/// Runs scripts, each on its object.
pub(crate) fn run<'a>(scripts: impl IntoIterator<Item = (String, &'a Value)>) -> Vec<Answer> {
    let question =
        |(script, object): (String, &'a Value)| json!({"script": script, "object": object});
    let questions: Vec<Value> = scripts.into_iter().map(question).collect();
    ask("lua", &[], questions.into_iter())
}

#[test]
fn the_scripts_have_the_libraries_of_argo_cd_and_no_other() {
    let script = "local os = require('os')
        return {type(table), type(os.date), type(os.exit), type(string), type(math), type(io), type(debug)}";
    let answers = run([(script.to_owned(), &json!({}))]);
    let expected = json!(["table", "function", "nil", "nil", "nil", "nil", "nil"]);
    assert_eq!(answers[0].value, expected, "{answers:?}");
}

#[test]
fn argo_cd_judges_each_state_as_the_table_says() {
    for kind in kinds() {
        let (tests, script) = (health_tests(&kind), text(&kind.join("health.lua")));
        let answers = run(tests.iter().map(|(_, object)| (script.clone(), object)));
        for ((test, _), answer) in tests.iter().zip(answers) {
            assert_eq!(
                answer.value, test.health_status,
                "{}: {}",
                test.input_path, answer.error
            );
        }
    }
}

#[test]
fn flux_and_helm_judge_each_state_as_the_table_says() {
    for kind in kinds() {
        let tests = health_tests(&kind);
        let objects = tests.iter().map(|(_, object)| object.clone());
        let answers: Vec<String> = ask("kstatus", &[], objects);
        for ((test, _), answer) in tests.iter().zip(answers) {
            assert_eq!(answer, test.kstatus, "{}", test.input_path);
        }
    }
}

#[test]
fn argo_cd_offers_each_action_where_it_applies() {
    for kind in kinds() {
        let folder = kind.join("actions");
        let table: ActionTests = yaml(&folder.join("action_test.yaml"));
        let tests = table.discovery_tests;
        let input = |test: &DiscoveryTest| yaml::<Value>(&folder.join(&test.input_path));
        let objects: Vec<Value> = tests.iter().map(input).collect();
        let script = text(&folder.join("discovery.lua"));
        let answers = run(objects.iter().map(|object| (script.clone(), object)));
        for (test, answer) in tests.iter().zip(answers) {
            let offer = |offer: &Offer| (offer.name.clone(), json!({"disabled": offer.disabled}));
            let expected: Value = test.result.iter().map(offer).collect();
            let (path, error) = (&test.input_path, &answer.error);
            assert_eq!(answer.value, expected, "{path}: {error}");
            let names: BTreeSet<_> = test.result.iter().map(|o| o.name.clone()).collect();
            assert_eq!(names, actions(&kind));
        }
    }
}

/// As Argo CD repairs what an action returns: to Lua, an empty object and an empty list are the same.
fn repaired(after: Value, before: &Value) -> Value {
    let one = |after, before: Option<&Value>| match before {
        Some(before) => repaired(after, before),
        None => after,
    };
    match (after, before) {
        (Value::Array(list), Value::Object(_)) if list.is_empty() => json!({}),
        (Value::Object(fields), Value::Object(old)) => fields
            .into_iter()
            .map(|(name, value)| {
                let value = one(value, old.get(&name));
                (name, value)
            })
            .collect(),
        (Value::Array(list), Value::Array(old)) => list
            .into_iter()
            .enumerate()
            .map(|(index, value)| one(value, old.get(index)))
            .collect(),
        (after, _) => after,
    }
}

/// Puts the time that Argo CD's own tests have there in place of that of a restart, which must be now.
fn with_known_time(mut object: Value) -> Value {
    if let Some(time) = object.pointer_mut(RESTARTED_AT) {
        let age = Utc::now() - harness::time(time.as_str().unwrap());
        let now = TimeDelta::zero()..TimeDelta::minutes(1);
        assert!(now.contains(&age), "{time}");
        *time = "0001-01-01T00:00:00Z".into();
    }
    object
}

#[test]
fn an_action_changes_what_its_file_says_and_nothing_else() {
    for kind in kinds() {
        let folder = kind.join("actions");
        let table: ActionTests = yaml(&folder.join("action_test.yaml"));
        let tests = table.action_tests;
        let input = |test: &ActionTest| yaml::<Value>(&folder.join(&test.input_path));
        let objects: Vec<Value> = tests.iter().map(input).collect();
        let scripts = tests.iter().map(|test| action_script(&kind, &test.action));
        let answers = run(scripts.zip(&objects));
        for ((test, before), answer) in tests.iter().zip(&objects).zip(answers) {
            let after = with_known_time(repaired(answer.value, before));
            let mut expected = before.clone();
            let changes: Value = yaml(&folder.join(&test.expected_output_path));
            json_patch::merge(&mut expected, &changes);
            let (action, error) = (&test.action, &answer.error);
            assert_eq!(after, expected, "{action} of {}: {error}", test.input_path);
            assert_ne!(after, *before, "{action} of {}", test.input_path);
        }
        let tried: BTreeSet<_> = tests.iter().map(|test| test.action.clone()).collect();
        assert_eq!(tried, actions(&kind));
    }
}

/// A text as a block of YAML.
fn block(text: &str, indent: usize) -> String {
    let line = |line: &str| match line {
        "" => "\n".to_owned(),
        line => format!("{:indent$}{line}\n", ""),
    };
    text.lines().map(line).collect()
}

/// The group and kind of a folder, as the keys of `argocd-cm` have them.
fn group_kind(kind: &Path) -> String {
    format!("{}_{}", name(kind.parent().unwrap()), name(kind))
}

/// The scripts as a patch of the ConfigMap that Argo CD reads.
fn config_map() -> String {
    let mut out = "\
# The scripts of resource_customizations, as a patch: see README.md. Generated by tests/oracle/gitops.rs.
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
data:
"
    .to_owned();
    for kind in kinds() {
        let key = group_kind(&kind);
        let health = block(&text(&kind.join("health.lua")), 4);
        let _ = write!(out, "  resource.customizations.health.{key}: |\n{health}");
        let discovery = block(&text(&kind.join("actions/discovery.lua")), 6);
        let _ = write!(
            out,
            "  resource.customizations.actions.{key}: |\n    discovery.lua: |\n{discovery}    definitions:\n"
        );
        for action in actions(&kind) {
            let script = block(&action_script(&kind, &action), 8);
            let _ = write!(out, "    - name: {action}\n      action.lua: |\n{script}");
        }
    }
    out
}

#[test]
fn the_patch_of_argocd_cm_has_every_script() {
    let path = harness::checkout().join(CONFIG_MAP);
    let wanted = config_map();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    assert_eq!(text(&path), wanted, "UPDATE=1 writes {CONFIG_MAP}");
    let object: Value = yaml(&path);
    for kind in kinds() {
        let value = |what: &str| {
            let key = format!("resource.customizations.{what}.{}", group_kind(&kind));
            object["data"][key].as_str().unwrap()
        };
        assert_eq!(value("health"), text(&kind.join("health.lua")));
        let read: Value = serde_saphyr::from_str(value("actions")).unwrap();
        let discovery = text(&kind.join("actions/discovery.lua"));
        assert_eq!(read["discovery.lua"], discovery);
        let definitions = read["definitions"].as_array().unwrap();
        assert_eq!(definitions.len(), actions(&kind).len());
        for definition in definitions {
            let action = definition["name"].as_str().unwrap();
            assert_eq!(definition["action.lua"], action_script(&kind, action));
        }
    }
}
