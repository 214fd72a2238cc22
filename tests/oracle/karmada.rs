//! What Karmada makes of our objects: the Lua of `contrib/karmada`, on the objects that Argo CD's scripts are tried on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::gitops::{Answer, HealthTest, health_tests, kinds, name, run, text, yaml};
use crate::harness::{self, oracle::ask};

const FOLDER: &str = "contrib/karmada";
/// In place of Karmada's own library: it returns what it is given.
const KUBE: &str = "package.loaded.kube = {getPodDependencies = function(template, namespace)
    return {template = template, namespace = namespace} end}";
/// Where Karmada notes the generation of its own object.
const GENERATION: &str = "resourcetemplate.karmada.io/generation";
/// The operations of a customization, each with the function that its script must define.
const OPERATIONS: [&str; 4] = [
    "dependencyInterpretation",
    "healthInterpretation",
    "statusAggregation",
    "statusReflection",
];

/// Which states are healthy. A cluster with an unhealthy object is one that Karmada may leave, if asked to.
const MYDAEMONSET: &[(&str, bool)] = &[
    ("auto_paused", false),
    ("changed", false),
    ("complete", true),
    ("degraded", false),
    ("invalid", false),
    ("on_delete", true),
    ("partitioned", true),
    ("paused", true),
    ("refused", false),
    ("rolling", false),
    ("unavailable", false),
    ("unseen", false),
];
const AT: &[(&str, bool)] = &[
    ("blocked", false),
    ("changed", false),
    ("failed", false),
    ("invalid", false),
    ("missed", false),
    ("pending", true),
    ("refused", false),
    ("running", true),
    ("succeeded", true),
    ("suspended", true),
    ("unknown", false),
    ("unseen", false),
];

/// A kind with its customization. The maps have the same keys: the states.
struct Subject {
    /// The folder of Argo CD's scripts.
    folder: PathBuf,
    customization: Value,
    objects: BTreeMap<String, Value>,
    /// What other tools make of the objects.
    others: BTreeMap<String, HealthTest>,
    expected: BTreeMap<String, bool>,
}

impl Subject {
    /// What a function returns for each of these, as `obj` of Lua.
    fn call(&self, operation: &str, call: &str, objects: &[Value]) -> Vec<Value> {
        let script = &self.customization["spec"]["customizations"][operation]["luaScript"];
        let script = format!("{KUBE}\n{}\nreturn {call}", script.as_str().unwrap());
        let answers = run(objects.iter().map(|object| (script.clone(), object)));
        let value = |answer: Answer| {
            assert!(answer.error.is_empty(), "{call}: {}", answer.error);
            answer.value
        };
        answers.into_iter().map(value).collect()
    }

    fn health(&self, objects: &[Value]) -> Vec<Value> {
        self.call("healthInterpretation", "InterpretHealth(obj)", objects)
    }

    /// What Karmada gets of each state in a member cluster, if Karmada's own object has this generation there.
    fn reflected(&self, generation: impl Fn(&Value) -> i64) -> BTreeMap<String, Value> {
        let annotated = |object: &Value| {
            let mut object = object.clone();
            let generation = generation(&object).to_string();
            object["metadata"]["annotations"] = json!({GENERATION: generation});
            object
        };
        let objects: Vec<Value> = self.objects.values().map(annotated).collect();
        let statuses = self.call("statusReflection", "ReflectStatus(obj)", &objects);
        self.objects.keys().cloned().zip(statuses).collect()
    }

    /// Karmada's own object in place of each of these, with the aggregated status of clusters with those.
    fn aggregated(&self, asked: &[(&Value, Vec<&Value>)]) -> Vec<Value> {
        let question = |(object, statuses): &(&Value, Vec<&Value>)| {
            let item = |(index, status): (usize, &&Value)| {
                let name = format!("member{index}");
                json!({"clusterName": name, "applied": true, "status": status})
            };
            let items: Vec<Value> = statuses.iter().enumerate().map(item).collect();
            json!({"object": object, "items": items})
        };
        let questions: Vec<Value> = asked.iter().map(question).collect();
        let call = "AggregateStatus(obj.object, obj.items)";
        let answers = self.call("statusAggregation", call, &questions);
        let with_status = |((object, _), mut answer): (&(&Value, Vec<&Value>), Value)| {
            let mut object = (*object).clone();
            object["status"] = answer["status"].take();
            object
        };
        asked.iter().zip(answers).map(with_status).collect()
    }
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap()
}

fn subject(folder: PathBuf) -> Subject {
    let kind = name(&folder);
    let table = if kind == "At" { AT } else { MYDAEMONSET };
    let file = format!("{FOLDER}/{}.yaml", kind.to_lowercase());
    let (mut objects, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (test, object) in health_tests(&folder) {
        let state = Path::new(&test.input_path).file_stem().unwrap();
        let state = state.to_str().unwrap().to_owned();
        objects.insert(state.clone(), object);
        others.insert(state, test);
    }
    Subject {
        folder,
        customization: yaml(&harness::checkout().join(file)),
        objects,
        others,
        expected: table
            .iter()
            .map(|(state, healthy)| ((*state).to_owned(), *healthy))
            .collect(),
    }
}

fn subjects() -> Vec<Subject> {
    kinds().into_iter().map(subject).collect()
}

#[test]
fn karmada_gets_a_script_for_each_operation() {
    for subject in subjects() {
        let customization = &subject.customization;
        assert_eq!(customization["apiVersion"], "config.karmada.io/v1alpha1");
        assert_eq!(customization["kind"], "ResourceInterpreterCustomization");
        let (any, target) = (&subject.objects["unseen"], &customization["spec"]["target"]);
        let expected = json!({"apiVersion": any["apiVersion"], "kind": any["kind"]});
        assert_eq!(*target, expected);
        let operations = customization["spec"]["customizations"].as_object().unwrap();
        let mut names: Vec<_> = operations.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, OPERATIONS);
    }
}

#[test]
fn karmada_judges_each_state_as_the_table_says() {
    for subject in subjects() {
        let objects: Vec<Value> = subject.objects.values().cloned().collect();
        let answers = subject.health(&objects);
        let states = subject.objects.keys().cloned();
        let judged: BTreeMap<_, _> = states
            .zip(answers.iter().map(|answer| answer.as_bool().unwrap()))
            .collect();
        assert_eq!(judged, subject.expected);
    }
}

/// Other tools then read Karmada's own object as they would that of the cluster.
#[test]
fn the_status_of_one_cluster_is_judged_as_its_object_is() {
    for subject in subjects() {
        let statuses = subject.reflected(generation);
        let objects = subject.objects.values();
        let alone = statuses.values().map(|status| vec![status]);
        let asked: Vec<(&Value, Vec<&Value>)> = objects.zip(alone).collect();
        let objects = subject.aggregated(&asked);
        let script = text(&subject.folder.join("health.lua"));
        let argo = run(objects.iter().map(|object| (script.clone(), object)));
        let kstatus: Vec<String> = ask("kstatus", &[], objects.iter().cloned());
        let judged = objects.iter().zip(argo).zip(kstatus);
        for (test, ((object, argo), kstatus)) in subject.others.values().zip(judged) {
            let (path, status) = (&test.input_path, &object["status"]);
            assert_eq!(argo.value, test.health_status, "{path}: {status}");
            assert_eq!(kstatus, test.kstatus, "{path}: {status}");
        }
    }
}

#[test]
fn two_clusters_are_as_healthy_as_the_worse_of_them() {
    for subject in subjects() {
        // Karmada's own object has a generation of its own.
        let template = json!({"metadata": {"generation": 40}});
        let statuses = subject.reflected(|_| 40);
        let (mut pairs, mut asked) = (Vec::new(), Vec::new());
        for (one, status) in &statuses {
            for (other, of_other) in &statuses {
                pairs.push((one, other));
                asked.push((&template, vec![status, of_other]));
            }
        }
        let objects = subject.aggregated(&asked);
        let healths = subject.health(&objects);
        for (((one, other), object), health) in pairs.into_iter().zip(&objects).zip(healths) {
            let (status, expected) = (&object["status"], &subject.expected);
            let both_fine = expected[one] && expected[other];
            assert_eq!(health, both_fine, "{one}, {other}: {status}");
            let number = |status: &Value| status["desiredNumberScheduled"].as_i64().unwrap_or(0);
            let sum = number(&statuses[one]) + number(&statuses[other]);
            assert_eq!(number(status), sum, "{one}, {other}: {status}");
        }
    }
}

#[test]
fn a_cluster_that_is_behind_holds_the_observed_generation_back() {
    for subject in subjects() {
        let template = json!({"metadata": {"generation": 40}});
        let healthy = subject.expected.iter().find(|(_, healthy)| **healthy);
        let state = healthy.unwrap().0;
        let (new, old) = (subject.reflected(|_| 40), subject.reflected(|_| 39));
        let silent = Value::Null;
        let asked = [
            (&template, vec![&new[state], &new[state]]),
            (&template, vec![&new[state], &old[state]]),
            (&template, vec![&new[state], &silent]),
        ];
        let observed = |object: &Value| object["status"]["observedGeneration"].as_i64();
        let observed: Vec<_> = subject.aggregated(&asked).iter().map(observed).collect();
        assert_eq!(observed, [Some(40), Some(-1), Some(-1)]);
        let none = subject.aggregated(&[(&template, Vec::new())]);
        assert!(none[0]["status"].is_null(), "{none:?}");
    }
}

#[test]
fn karmada_takes_what_the_template_names_along() {
    let template = json!({"spec": {"serviceAccountName": "a"}});
    let objects = [
        json!({"metadata": {"namespace": "n"}, "spec": {"template": template}}),
        json!({"metadata": {"namespace": "n"}, "spec": {}}),
    ];
    for subject in subjects() {
        let found = subject.call("dependencyInterpretation", "GetDependencies(obj)", &objects);
        let expected = [json!({"namespace": "n", "template": template}), json!([])];
        assert_eq!(found, expected);
    }
}
