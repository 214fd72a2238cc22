//! The objects that the scripts of `contrib/argocd` are tried on, each in another state. Tests bring objects into these
//! states on a real API server and compare them with the files; with UPDATE=1 they write the files instead.

use std::{env, fs};

use serde_json::{Value, json};

use crate::harness::checkout;

/// The folders of the kinds.
pub(crate) const AT: &str = "cnat.programming-kubernetes.info/At";
pub(crate) const MYDAEMONSET: &str = "apps.zhongmingmao.io/MyDaemonSet";

/// What tools judge an object by. Times, UIDs and numbers differ from run to run, and messages may have them.
fn shape(object: &Value) -> Value {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let condition = |c: &Value| format!("{}: {}, {}", c["type"], c["status"], c["reason"]);
    let mut conditions: Vec<String> = conditions.map(condition).collect();
    conditions.sort();
    json!({
        "kind": object["kind"],
        "spec": object["spec"],
        "is seen": status["observedGeneration"] == object["metadata"]["generation"],
        "conditions": conditions,
        "phase": status["phase"],
        "result": status["result"],
        "reason": status["reason"],
        "state": status["state"],
        "updateRevision": status["updateRevision"],
    })
}

/// Compares an object with the one that Argo CD is shown as an example of that state.
pub(crate) fn same(object: &Value, kind: &str, state: &str) {
    let file = format!("contrib/argocd/resource_customizations/{kind}/testdata/{state}.yaml");
    let path = checkout().join(&file);
    if env::var_os("UPDATE").is_some() {
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        // Those of the tests are numbered. What an action changes is in files, too, with the namespace.
        metadata.insert("namespace".to_owned(), "default".into());
        fs::write(&path, serde_saphyr::to_string(&object).unwrap()).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let recorded: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        shape(object),
        shape(&recorded),
        "{file}: UPDATE=1 writes it, and then contrib/argocd needs another look"
    );
}
