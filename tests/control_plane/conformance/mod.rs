//! Holds the simulated API server to the real one: the same requests to both, and the answers compared.
//!
//! UIDs, resourceVersions, times and the namespace differ, so each is replaced by its place in the order in which the
//! script met it: an answer with the resourceVersion of an earlier one must have it on both servers, and a new one on
//! both. Of pods, whose defaults the simulation does not all set, only some fields are compared.
//!
//! `UPDATE=1 make test T=conformance::` writes the column of this release in
//! `crates/simulated-apiserver/conformance.tsv`, and CONFORMANCE.md beside it; with `make matrix` in place of `make test`,
//! those of other releases.

mod replay;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http;
use futures::future::join_all;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use simulated_apiserver::{Options, Resource, Server};

use crate::disruption::cluster;
use table::{Row, Verdict};

const GROUP: &str = "conformance.example.com";
/// A ConfigMap that the control plane makes in every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";
/// The namespace of the simulation.
const NAMESPACE: &str = "simulated";

/// One request of a script.
struct Step {
    method: &'static str,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: Value,
    /// The name under which the answer's uid, resourceVersion and continue token are kept, for `${name.uid}`, `${name.rv}`
    /// and `${name.continue}`.
    save: Option<&'static str>,
    /// Waits until a GET is answered as wanted; the answer is not compared.
    until: Option<fn(u16, &Value) -> bool>,
}

impl Step {
    fn saved(mut self, name: &'static str) -> Self {
        self.save = Some(name);
        self
    }

    fn metadata_only(mut self) -> Self {
        self.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        if !self.path.contains('/') && !self.path.contains("watch=true") {
            self.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        }
        self
    }
}

fn step(method: &'static str, path: &str, content_type: &'static str, body: Value) -> Step {
    Step {
        method,
        path: path.to_owned(),
        content_type,
        accept: "application/json",
        body,
        save: None,
        until: None,
    }
}

fn get(path: &str) -> Step {
    step("GET", path, "application/json", Value::Null)
}

fn post(path: &str, body: Value) -> Step {
    step("POST", path, "application/json", body)
}

fn put(path: &str, body: Value) -> Step {
    step("PUT", path, "application/json", body)
}

fn delete(path: &str, body: Value) -> Step {
    step("DELETE", path, "application/json", body)
}

fn merge(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/merge-patch+json", body)
}

fn strategic(path: &str, body: Value) -> Step {
    step(
        "PATCH",
        path,
        "application/strategic-merge-patch+json",
        body,
    )
}

fn json_patch(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/json-patch+json", body)
}

fn apply(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/apply-patch+yaml", body)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        // No scheduler takes it.
        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "busybox"}]},
    })
}

fn gated(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    pod
}

/// A pod template as an object, which no controller touches.
fn template(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {
            "terminationGracePeriodSeconds": 7,
            "containers": [{"name": "main", "image": "busybox"}],
        }},
    });
    json_patch::merge(&mut object["template"]["spec"], spec);
    object
}

/// An object that `${owner.uid}` owns.
fn owned(name: &str, owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "${owner.uid}", "blockOwnerDeletion": true,
    }]}})
}

/// Waits until an object is gone.
fn gone(path: &str) -> Step {
    Step {
        until: Some(|code, _| code == 404),
        ..get(path)
    }
}

/// Waits until an object is marked as being deleted.
fn being_deleted(path: &str) -> Step {
    Step {
        until: Some(|_, object| object["metadata"]["deletionTimestamp"].is_string()),
        ..get(path)
    }
}

fn binding(pod: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": "nowhere"}})
}

/// A row of the table, and the requests that show it.
type Behaviour = (&'static str, Vec<Step>);

/// The scripts, each in a namespace of its own and with a row for each behaviour. Other releases keep what a row has of
/// them: one whose requests change needs another name, or each column again.
fn scripts() -> Vec<(&'static str, Vec<Behaviour>)> {
    let test_uid = |uid: &str| {
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ])
    };
    let preconditions =
        |uid: &str, rv: &str| json!({"preconditions": {"uid": uid, "resourceVersion": rv}});
    vec![
        ("create", vec![
            ("an object", vec![post("configmaps", config_map("a")).saved("a")]),
            ("a name that is taken", vec![post("configmaps", config_map("a"))]),
            ("no name", vec![post("configmaps", json!({"metadata": {}}))]),
            ("another namespace than that of the path", vec![post("configmaps", json!({"metadata": {"name": "x", "namespace": "elsewhere"}}))]),
            ("a resourceVersion", vec![post("configmaps", json!({"metadata": {"name": "x", "resourceVersion": "1"}}))]),
            ("another kind than that of the path", vec![post("configmaps", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}))]),
            ("fields that are the server's", vec![post("configmaps", json!({"metadata": {"name": "b", "uid": "mine", "generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {}}}))]),
            ("dry run", vec![
                post("configmaps?dryRun=All", config_map("c")),
                post("configmaps?dryRun=All", config_map("a")),
            ]),
            ("a custom object", vec![
                post("widgets", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "generation": 5}, "spec": {"size": 1}, "status": {"ready": true}})),
                post("widgets", widget("a")),
            ]),
            ("a pod with a gate and a node", vec![post("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"nodeName": "nowhere", "schedulingGates": [{"name": "example.com/gate"}], "containers": [{"name": "main", "image": "busybox"}]}}))]),
            ("reading what is absent", vec![
                get("configmaps/absent"),
                get("widgets/absent"),
            ]),
            ("reading, metadata alone as well", vec![
                get("configmaps/a"),
                get("configmaps/a").metadata_only(),
                get("widgets/a").metadata_only(),
            ]),
        ]),
        ("replace", vec![
            ("with the current resourceVersion", vec![
                post("configmaps", config_map("a")).saved("a"),
                put("configmaps/a", json!({"metadata": {"name": "a", "resourceVersion": "${a.rv}"}, "data": {"k": "w"}})).saved("b"),
            ]),
            ("with a stale resourceVersion", vec![put("configmaps/a", json!({"metadata": {"name": "a", "resourceVersion": "${a.rv}"}, "data": {"k": "x"}}))]),
            ("with a wrong uid", vec![put("configmaps/a", json!({"metadata": {"name": "a", "resourceVersion": "${b.rv}", "uid": "wrong"}, "data": {"k": "x"}}))]),
            ("with another name than that of the path", vec![put("configmaps/a", json!({"metadata": {"name": "b"}, "data": {"k": "x"}}))]),
            ("an absent object", vec![put("configmaps/absent", json!({"metadata": {"name": "absent"}, "data": {"k": "x"}}))]),
            ("without a resourceVersion, with a change and without", vec![
                put("configmaps/a", json!({"metadata": {"name": "a"}, "data": {"k": "unconditional"}})),
                put("configmaps/a", json!({"metadata": {"name": "a"}, "data": {"k": "unconditional"}})),
            ]),
            ("a custom object without a resourceVersion", vec![
                post("widgets", widget("a")).saved("w"),
                put("widgets/a", widget("a")),
            ]),
            ("a custom object leaves its status", vec![put("widgets/a", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "${w.rv}"}, "spec": {"size": 2}, "status": {"ignored": true}})).saved("w")]),
            ("the status leaves spec and labels", vec![
                put("widgets/a/status", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "${w.rv}", "labels": {"ignored": "true"}}, "spec": {"size": 3}, "status": {"ready": true}})).saved("w"),
                put("widgets/a/status", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "${w.rv}"}, "status": {"ready": true}})),
            ]),
            ("the status with a stale resourceVersion", vec![put("widgets/a/status", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "1"}, "status": {"ready": false}}))]),
            ("an absent custom object", vec![put("widgets/absent", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "absent", "resourceVersion": "1"}}))]),
            ("a custom object with a wrong uid", vec![put("widgets/a", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "${w.rv}", "uid": "wrong"}}))]),
        ]),
        ("patch", vec![
            ("JSON patch that tests the uid", vec![
                post("configmaps", config_map("a")).saved("a"),
                post("configmaps", config_map("x")).saved("x"),
                post("configmaps", config_map("y")).saved("y"),
                json_patch("configmaps/a", test_uid("wrong")),
                json_patch("configmaps/a", test_uid("${a.uid}")),
            ]),
            ("JSON patch of an absent field", vec![
                json_patch("configmaps/a", json!([{"op": "remove", "path": "/data/absent"}])),
                json_patch("configmaps/a", json!([{"op": "replace", "path": "/data/absent", "value": "x"}])),
            ]),
            ("JSON patch of an absent object", vec![json_patch("configmaps/absent", test_uid("x"))]),
            ("merge patch with a uid", vec![
                merge("configmaps/a", json!({"metadata": {"uid": "wrong"}})),
                merge("configmaps/a", json!({"metadata": {"uid": "${a.uid}", "labels": {"c": "d", "a": null}}})),
            ]),
            ("merge patch with a stale resourceVersion", vec![merge("configmaps/a", json!({"metadata": {"resourceVersion": "${a.rv}", "labels": {"x": "y"}}}))]),
            ("merge patch without a change", vec![merge("configmaps/a", json!({"metadata": {"labels": {"c": "d"}}}))]),
            ("dry run", vec![merge("configmaps/a?dryRun=All", json!({"data": {"dry": "run"}}))]),
            ("merge patch that removes a field", vec![merge("configmaps/a", json!({"metadata": {"annotations": {"a": "b"}, "labels": null}}))]),
            ("strategic merge patch of lists with keys", vec![
                strategic("configmaps/a", json!({"metadata": {"finalizers": ["example.com/a"], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "${x.uid}"}]}})),
                strategic("configmaps/a", json!({"metadata": {"finalizers": ["example.com/b"], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": "${y.uid}"}]}})),
                strategic("configmaps/a", json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"], "ownerReferences": [{"$patch": "delete", "uid": "${x.uid}"}]}})),
            ]),
            ("strategic merge patch with a wrong uid", vec![strategic("configmaps/a", json!({"metadata": {"uid": "wrong", "finalizers": null}}))]),
            ("two owners that are controllers", vec![merge("configmaps/a", json!({"metadata": {"finalizers": null, "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true}, {"apiVersion": "v1", "kind": "A", "name": "b", "uid": "2", "controller": true}]}}))]),
            ("strategic merge patch of a custom object", vec![
                post("widgets", widget("a")),
                strategic("widgets/a", json!({"spec": {"size": 2}})),
            ]),
            ("a custom object with a wrong uid", vec![
                merge("widgets/a", json!({"metadata": {"uid": "wrong"}, "spec": {"size": 2}})),
                json_patch("widgets/a", test_uid("wrong")),
            ]),
            ("empty fields and nulls in a custom object", vec![merge("widgets/a", json!({"metadata": {"finalizers": [], "labels": null}, "spec": {"nothing": null, "list": []}}))]),
            ("spec and status of a custom object", vec![
                merge("widgets/a", json!({"spec": {"size": 2}, "status": {"ready": true}})),
                merge("widgets/a/status", json!({"spec": {"size": 3}, "status": {"ready": true}})),
                merge("widgets/a/status", json!({"status": {"ready": true}})),
                merge("widgets/a", json!({"metadata": {"labels": {"a": "b"}}})),
            ]),
            ("a custom object with a stale resourceVersion", vec![merge("widgets/a", json!({"metadata": {"resourceVersion": "1"}, "spec": {"size": 9}}))]),
        ]),
        ("delete", vec![
            ("preconditions that fail", vec![
                post("configmaps", config_map("a")).saved("a"),
                delete("configmaps/a", preconditions("wrong", "${a.rv}")),
                delete("configmaps/a", preconditions("${a.uid}", "1")),
            ]),
            ("dry run", vec![delete("configmaps/a?dryRun=All", Value::Null)]),
            ("preconditions that hold", vec![delete("configmaps/a", preconditions("${a.uid}", "${a.rv}"))]),
            ("an absent object", vec![delete("configmaps/a", Value::Null)]),
            ("finalizers", vec![
                post("configmaps", json!({"metadata": {"name": "f", "finalizers": ["example.com/a", "example.com/b"]}})),
                delete("configmaps/f", Value::Null),
                delete("configmaps/f", Value::Null),
                post("configmaps", config_map("f")),
                merge("configmaps/f", json!({"metadata": {"finalizers": ["example.com/c"]}})),
                merge("configmaps/f", json!({"metadata": {"finalizers": ["example.com/b"]}})),
                merge("configmaps/f", json!({"metadata": {"finalizers": null}})),
                get("configmaps/f"),
            ]),
            ("finalizers of a custom object", vec![
                post("widgets", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "f", "finalizers": ["example.com/a"]}, "spec": {}})).saved("w"),
                delete("widgets/f", json!({"propagationPolicy": "Background"})),
                merge("widgets/f/status", json!({"status": {"a": 1}})),
                merge("widgets/f", json!({"spec": {"a": 1}})),
                json_patch("widgets/f", json!([{"op": "remove", "path": "/metadata/finalizers"}])),
            ]),
            ("preconditions of a custom object", vec![
                post("widgets", widget("g")).saved("g"),
                delete("widgets/g", preconditions("wrong", "${g.rv}")),
                delete("widgets/g", preconditions("${g.uid}", "1")),
                delete("widgets/g", Value::Null),
            ]),
        ]),
        ("pods", vec![
            ("binding of a gated pod", vec![
                post("pods", gated("a")).saved("a"),
                post("pods/a/binding", binding("a")),
            ]),
            ("adding a gate", vec![merge("pods/a", json!({"spec": {"schedulingGates": [{"name": "example.com/gate"}, {"name": "example.com/more"}]}}))]),
            ("the status leaves spec and labels", vec![merge("pods/a/status", json!({"spec": {"activeDeadlineSeconds": 7}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Pending", "message": "x"}}))]),
            ("removing gates", vec![
                json_patch("pods/a", json!([{"op": "test", "path": "/metadata/uid", "value": "wrong"}, {"op": "remove", "path": "/spec/schedulingGates"}])),
                json_patch("pods/a", json!([{"op": "replace", "path": "/metadata/uid", "value": "wrong"}, {"op": "remove", "path": "/spec/schedulingGates"}])),
                json_patch("pods/a", json!([{"op": "test", "path": "/metadata/uid", "value": "${a.uid}"}, {"op": "remove", "path": "/spec/schedulingGates/0"}])),
                strategic("pods/a", json!({"metadata": {"uid": "${a.uid}"}, "spec": {"schedulingGates": null}})),
            ]),
            ("fields of the spec that may change, and that may not", vec![
                merge("pods/a", json!({"spec": {"activeDeadlineSeconds": 100}})),
                merge("pods/a", json!({"spec": {"restartPolicy": "Never"}})),
            ]),
            ("binding", vec![
                post("pods/a/binding", binding("a")),
                post("pods/a/binding", binding("a")),
                get("pods/a"),
            ]),
            ("graceful deletion", vec![
                delete("pods/a", preconditions("${a.uid}", "${a.rv}")),
                delete("pods/a", json!({"preconditions": {"uid": "${a.uid}"}})),
                delete("pods/a", Value::Null),
                delete("pods/a", json!({"gracePeriodSeconds": 5})),
                delete("pods/a", json!({"gracePeriodSeconds": 50})),
                merge("pods/a/status", json!({"status": {"phase": "Succeeded"}})),
                delete("pods/a", json!({"gracePeriodSeconds": 0})),
                get("pods/a"),
            ]),
            ("deletion of a pod without a node", vec![
                post("pods", gated("b")),
                delete("pods/b", Value::Null),
            ]),
            ("deletion of a pod with a finalizer", vec![
                post("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "f", "finalizers": ["example.com/a"]}, "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "busybox"}]}})),
                delete("pods/f", Value::Null),
                post("pods/f/binding", binding("f")),
                merge("pods/f", json!({"metadata": {"finalizers": null}})),
            ]),
            ("deletion of a pod that has ended", vec![
                post("pods", pod("e")),
                post("pods/e/binding", binding("e")),
                merge("pods/e/status", json!({"status": {"phase": "Failed"}})),
                delete("pods/e", Value::Null),
            ]),
            ("no containers", vec![post("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}}))]),
        ]),
        ("apply", vec![
            ("create, and again without a change", vec![
                apply("configmaps/a?fieldManager=x", config_map("a")),
                apply("configmaps/a?fieldManager=x", config_map("a")),
            ]),
            ("a conflict of two managers", vec![apply("configmaps/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "w"}}))]),
            ("a field that two managers own", vec![apply("configmaps/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v", "l": "m"}}))]),
            ("force", vec![apply("configmaps/a?fieldManager=y&force=true", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "w"}}))]),
            ("a field that its managers no longer apply", vec![
                apply("configmaps/a?fieldManager=x", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "b"}}})),
                apply("configmaps/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "ConfigMap"})),
            ]),
            ("dry run", vec![apply("configmaps/a?fieldManager=x&dryRun=All", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"dry": "run"}}))]),
            ("a uid", vec![
                apply("configmaps/b?fieldManager=x", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "wrong"}})),
                apply("configmaps/a?fieldManager=x", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "wrong"}})),
            ]),
            ("a stale resourceVersion", vec![apply("configmaps/a?fieldManager=x", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "1"}, "data": {"z": "z"}}))]),
            ("managedFields", vec![apply("configmaps/a?fieldManager=x", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": [{"manager": "x"}]}}))]),
            ("lists and maps of a custom object", vec![
                apply("widgets/a?fieldManager=x", widget("a")),
                apply("widgets/a?fieldManager=x", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "spec": {"list": [1, 2], "map": {"a": 1}}})),
                apply("widgets/a?fieldManager=y", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "spec": {"list": [1, 2, 3], "map": {"a": 2, "b": 1}}})),
            ]),
            ("the status of a custom object", vec![apply("widgets/a/status?fieldManager=y", json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "spec": {"size": 9}, "status": {"ready": true}}))]),
            ("lists with keys", vec![
                apply("podtemplates/a?fieldManager=x", template(&json!({}))),
                apply("podtemplates/a?fieldManager=x", template(&json!({}))),
                apply("podtemplates/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": {"terminationGracePeriodSeconds": 7, "containers": [{"name": "side", "image": "busybox"}]}}})),
                apply("podtemplates/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": {"terminationGracePeriodSeconds": 8, "containers": [{"name": "main", "image": "other"}]}}})),
                apply("podtemplates/a?fieldManager=y", json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"labels": {"a": "b"}}})),
            ]),
            ("a field that a merge patch set", vec![
                merge("podtemplates/a?fieldManager=z", json!({"template": {"spec": {"activeDeadlineSeconds": 3}}})),
                apply("podtemplates/a?fieldManager=x", template(&json!({"activeDeadlineSeconds": 4}))),
                apply("podtemplates/a?fieldManager=x&force=true", template(&json!({"activeDeadlineSeconds": 4}))),
            ]),
        ]),
        ("lists", vec![
            ("label selectors", vec![
                post("configmaps", json!({"metadata": {"name": "a", "labels": {"app": "x"}}})),
                post("configmaps", json!({"metadata": {"name": "b", "labels": {"app": "y"}}})),
                post("configmaps", json!({"metadata": {"name": "c"}})),
                get("configmaps?labelSelector=app"),
                get("configmaps?labelSelector=app%20in%20(x,z)"),
                get("configmaps?labelSelector=app!%3Dx,app"),
                get("configmaps?labelSelector=!app"),
            ]),
            ("a label selector that cannot be read", vec![get("configmaps?labelSelector=app%20in%20x")]),
            ("field selectors", vec![get("configmaps?fieldSelector=metadata.name%3Db")]),
            ("a page and its continue token, of metadata alone", vec![get("configmaps?limit=2&labelSelector=app").metadata_only()]),
            ("the page that follows another", vec![
                get("configmaps?limit=1&labelSelector=app").saved("page"),
                get("configmaps?limit=1&labelSelector=app&continue=${page.continue}"),
            ]),
            ("an exact resourceVersion that is too old", vec![get("configmaps?resourceVersion=1&resourceVersionMatch=Exact&labelSelector=app")]),
            ("a continue token that cannot be read", vec![get("configmaps?limit=1&continue=nonsense")]),
            ("custom objects", vec![
                post("widgets", widget("a")),
                get("widgets"),
                get("widgets").metadata_only(),
            ]),
            ("deletion of a collection", vec![
                delete("configmaps?labelSelector=app%3Dx", Value::Null),
                get("configmaps?labelSelector=app"),
            ]),
            ("a resource that is not served", vec![
                delete("nonsense", Value::Null),
                get("nonsense/x"),
            ]),
        ]),
        ("watches", vec![
            ("since a resourceVersion, by labels and fields", vec![
                post("configmaps", config_map("first")).saved("start"),
                post("configmaps", json!({"metadata": {"name": "a", "labels": {"app": "x"}}})),
                merge("configmaps/a", json!({"data": {"k": "1"}})),
                merge("configmaps/a", json!({"metadata": {"labels": {"app": null}}})),
                merge("configmaps/a", json!({"data": {"k": "2"}})),
                merge("configmaps/a", json!({"metadata": {"labels": {"app": "y"}}})),
                post("configmaps", json!({"metadata": {"name": "b", "labels": {"app": "x"}}})),
                delete("configmaps/b", Value::Null),
                get("configmaps?watch=true&timeoutSeconds=1&labelSelector=app&resourceVersion=${start.rv}"),
                get("configmaps?watch=true&timeoutSeconds=1&labelSelector=app%3Dx&resourceVersion=${start.rv}"),
                get("configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Db&resourceVersion=${start.rv}"),
            ]),
            ("metadata alone", vec![get("configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da&resourceVersion=${start.rv}").metadata_only()]),
            ("without a resourceVersion", vec![get("configmaps?watch=true&timeoutSeconds=1&labelSelector=app")]),
            ("since resourceVersion 0", vec![get("configmaps?watch=true&timeoutSeconds=1&labelSelector=app&resourceVersion=0")]),
            ("initial events and their bookmark", vec![get("configmaps?watch=true&timeoutSeconds=1&labelSelector=app&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")]),
            ("a resourceVersion that cannot be read", vec![get("configmaps?watch=true&timeoutSeconds=1&resourceVersion=nonsense")]),
        ]),
        ("cascades", vec![
            ("background", vec![
                post("configmaps", config_map("background")).saved("owner"),
                post("configmaps", owned("dependent", "background")),
                delete("configmaps/background", json!({"propagationPolicy": "Background"})),
                gone("configmaps/dependent"),
            ]),
            ("foreground", vec![
                post("configmaps", config_map("foreground")).saved("owner"),
                post("configmaps", owned("dependent", "foreground")),
                delete("configmaps/foreground", json!({"propagationPolicy": "Foreground"})),
                gone("configmaps/foreground"),
            ]),
            ("orphan", vec![
                post("configmaps", config_map("orphan")).saved("owner"),
                post("configmaps", owned("dependent", "orphan")),
                delete("configmaps/orphan", json!({"propagationPolicy": "Orphan"})),
                gone("configmaps/orphan"),
                get("configmaps/dependent"),
            ]),
        ]),
        ("evictions", vec![
            ("a pod without a node", vec![
                post("pods", pod("a")),
                post("pods/a/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}})),
            ]),
            ("a pod on a node", vec![
                post("pods", pod("b")),
                post("pods/b/binding", binding("b")),
                post("pods/b/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}})),
                delete("pods/b", json!({"gracePeriodSeconds": 0})),
            ]),
            ("an absent pod", vec![
                post("pods/absent/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "absent"}})),
                post("pods/absent/binding", binding("absent")),
            ]),
        ]),
        ("terminating", vec![
            ("deletion of a namespace", vec![
                post("configmaps", json!({"metadata": {"name": "a", "finalizers": ["example.com/a"]}})),
                delete("namespace", Value::Null),
                being_deleted("configmaps/a"),
            ]),
            ("create in a namespace that is being deleted", vec![
                post("configmaps", config_map("b")),
                post("widgets", widget("b")),
            ]),
            ("change in a namespace that is being deleted", vec![merge("configmaps/a", json!({"data": {"k": "v"}}))]),
        ]),
        ("namespaces", vec![
            ("an absent namespace", vec![
                post("elsewhere:configmaps", config_map("a")),
                get("elsewhere:configmaps/a"),
                get("elsewhere:configmaps"),
            ]),
        ]),
    ]
}

/// One of the two servers.
struct Side {
    client: Client,
    namespace: String,
    saved: BTreeMap<String, String>,
    /// UIDs and resourceVersions in the order in which they were met.
    known: Vec<String>,
}

impl Side {
    fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            saved: BTreeMap::new(),
            known: Vec::new(),
        }
    }

    fn url(&self, path: &str) -> String {
        if path == "namespace" {
            return format!("/api/v1/namespaces/{}", self.namespace);
        }
        let (namespace, path) = match path.split_once(':') {
            Some((namespace, path)) => (namespace, path),
            None => (self.namespace.as_str(), path),
        };
        let group = match path.split(['/', '?']).next() {
            Some("widgets") => format!("/apis/{GROUP}/v1"),
            _ => "/api/v1".to_owned(),
        };
        format!("{group}/namespaces/{namespace}/{path}")
    }

    /// The text with what was saved.
    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.saved {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        text
    }

    async fn send(&self, request: http::Request<Body>) -> (u16, String) {
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends the request of a step, and returns the comparable part of the answer.
    async fn ask(&mut self, step: &Step) -> Value {
        if let Some(wanted) = step.until {
            self.until(&step.path, wanted).await;
            return Value::Null;
        }
        let body = if step.body.is_null() {
            String::new()
        } else {
            self.fill(&step.body.to_string())
        };
        let request = http::Request::builder()
            .method(step.method)
            .uri(self.fill(&self.url(&step.path)))
            .header("content-type", step.content_type)
            .header("accept", step.accept)
            .body(Body::from(body.into_bytes()))
            .unwrap();
        let (code, text) = self.send(request).await;
        if step.path.contains("watch=true") && code == 200 {
            return self.comparable_events(&text);
        }
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text.trim()));
        if let Some(name) = step.save {
            for part in ["uid", "rv", "continue"] {
                let field = if part == "rv" {
                    "resourceVersion"
                } else {
                    part
                };
                let value = answer["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                self.saved.insert(format!("{name}.{part}"), value);
            }
        }
        self.comparable(&mut answer);
        json!({"code": code, "answer": answer})
    }

    /// The events of a collection since a resourceVersion.
    async fn events(&mut self, plural: &str, since: &str) -> Value {
        let path = format!("{plural}?watch=true&resourceVersion={since}&timeoutSeconds=1");
        let request = http::Request::get(self.url(&path))
            .body(Body::empty())
            .unwrap();
        let (_, text) = self.send(request).await;
        self.comparable_events(&text)
    }

    fn comparable_events(&mut self, text: &str) -> Value {
        let events = text.lines().filter_map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["object"]["metadata"]["name"] == ROOT_CA {
                return None;
            }
            if event["type"] == "BOOKMARK" {
                // It is that of the whole cluster, where others write as well.
                event["object"]["metadata"]["resourceVersion"] = json!("<cluster>");
                // Bookmarks of the real server have an empty spec and more.
                let metadata = event["object"]["metadata"].take();
                event["object"] = json!({"metadata": metadata});
            }
            self.comparable(&mut event["object"]);
            Some(event)
        });
        Value::Array(events.collect())
    }

    /// Waits until the answer to a GET is as wanted.
    async fn until(&self, path: &str, wanted: fn(u16, &Value) -> bool) {
        let get = || async {
            let request = http::Request::get(self.url(path)).body(Body::empty());
            let (code, text) = self.send(request.unwrap()).await;
            let answer = serde_json::from_str(&text).unwrap();
            wanted(code, &answer).then_some(())
        };
        crate::harness::wait_for(path, get).await;
    }

    /// Leaves what both servers must agree on.
    fn comparable(&mut self, answer: &mut Value) {
        if answer.get("items").is_some() {
            // It is that of the whole cluster, where others write as well.
            answer["metadata"]["resourceVersion"] = json!("<cluster>");
        }
        if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
            // What the control plane makes in every namespace.
            items.retain(|item| item["metadata"]["name"] != ROOT_CA);
        }
        self.collect(answer);
        self.simplify(answer);
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for name in ["uid", "resourceVersion"] {
                    let found = fields.get(name).and_then(Value::as_str).unwrap_or_default();
                    // Those of the scripts themselves stay as they are.
                    let made =
                        found.len() == 36 || found.parse::<u64>().is_ok_and(|version| version > 1);
                    if made && !self.known.iter().any(|known| known == found) {
                        self.known.push(found.to_owned());
                    }
                }
                fields.values().for_each(|value| self.collect(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.collect(value)),
            _ => {}
        }
    }

    fn simplify(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("managedFields");
                for time in ["creationTimestamp", "deletionTimestamp"] {
                    if let Some(value) = fields.get_mut(time).filter(|value| value.is_string()) {
                        *value = json!("<time>");
                    }
                }
                if fields.contains_key("containers") {
                    fields.retain(|name, _| {
                        matches!(
                            name.as_str(),
                            "schedulingGates"
                                | "nodeName"
                                | "activeDeadlineSeconds"
                                | "terminationGracePeriodSeconds"
                        )
                    });
                }
                if fields.contains_key("qosClass") || fields.contains_key("phase") {
                    fields
                        .retain(|name, _| matches!(name.as_str(), "phase" | "message" | "reason"));
                }
                // The real server checks some rules twice or more.
                if let Some(Value::Array(causes)) = fields.get_mut("causes") {
                    causes.dedup();
                }
                if let Some(token) = fields.get_mut("continue").filter(|token| *token != "") {
                    *token = json!("<token>");
                }
                fields.values_mut().for_each(|value| self.simplify(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|value| self.simplify(value)),
            Value::String(text) => {
                let mut plain = text.replace(&self.namespace, "<namespace>");
                for (place, known) in self.known.iter().enumerate() {
                    plain = replace_word(&plain, known, &format!("<{place}>"));
                }
                // What follows are the differences between two Go structs, or what Go found in place of JSON.
                for end in ["previously negative)", "continue key is not valid"] {
                    if let Some(place) = plain.find(end) {
                        plain.truncate(place + end.len());
                    }
                }
                // The key in etcd begins with a prefix of the cluster.
                if let Some((head, tail)) = plain.split_once("Key: /") {
                    let tail = tail.split_once(", ").map_or("", |(_, tail)| tail);
                    plain = format!("{head}Key: <key>, {tail}");
                }
                *text = plain;
            }
            _ => {}
        }
    }
}

/// The text with each whole word that is `word` replaced.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(place) = rest.find(word) {
        let (before, after) = (&rest[..place], &rest[place + word.len()..]);
        replaced.push_str(before);
        let whole = !before.ends_with(part) && !after.starts_with(part);
        replaced.push_str(if whole { by } else { word });
        rest = after;
    }
    replaced + rest
}

/// Notes in the row how two answers compare.
fn compare(row: &mut Row, what: &str, real: &Value, simulated: &Value) {
    row.verdict = row.verdict.max(Verdict::of(real, simulated));
    if real != simulated {
        writeln!(row.differences, "{what}").unwrap();
        describe("", real, simulated, &mut row.differences);
    }
}

/// Runs a script on both servers, and returns how they compare.
async fn run(
    area: &'static str,
    behaviours: Vec<Behaviour>,
    real: Client,
    namespace: String,
) -> Vec<Row> {
    let server = Server::new(Options {
        namespaces: vec![NAMESPACE.to_owned()],
        ..Options::default()
    });
    server.register(Resource::custom(GROUP, "v1", "Widget", "widgets"));
    let mut simulated = Side::new(server.client("conformance"), NAMESPACE.to_owned());
    let mut real = Side::new(real, namespace);
    let mut rows = Vec::new();
    // The control plane makes it in every namespace, so it must be there before anything is counted.
    real.until(&format!("configmaps/{ROOT_CA}"), |code, _| code == 200)
        .await;
    let kinds = ["configmaps", "pods", "widgets"];
    let mut since = Vec::new();
    for kind in kinds {
        let list = |side: &Side| {
            let request = http::Request::get(side.url(&format!("{kind}?limit=1")));
            request.body(Body::empty()).unwrap()
        };
        let mut versions = Vec::new();
        for side in [&real, &simulated] {
            let (_, text) = side.send(list(side)).await;
            let list: Value = serde_json::from_str(&text).unwrap();
            versions.push(
                list["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
        since.push(versions);
    }
    for (behaviour, steps) in behaviours {
        let mut row = Row::new(area, behaviour);
        for step in &steps {
            let what = format!("{} {} {}", step.method, step.path, step.body);
            let (expected, found) = (real.ask(step).await, simulated.ask(step).await);
            compare(&mut row, &what, &expected, &found);
        }
        rows.push(row);
    }
    let mut row = Row::new(area, table::EVENTS);
    for (kind, since) in kinds.iter().zip(&since) {
        let (expected, found) = (
            real.events(kind, &since[0]).await,
            simulated.events(kind, &since[1]).await,
        );
        compare(&mut row, &format!("events of {kind}"), &expected, &found);
    }
    rows.push(row);
    rows
}

/// Writes where two values differ.
fn describe(path: &str, real: &Value, simulated: &Value, into: &mut String) {
    match (real, simulated) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let path = format!("{path}.{name}");
                describe(&path, &real[name], &simulated[name], into);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                describe(&format!("{path}[{place}]"), one, other, into);
            }
        }
        _ if real != simulated => {
            writeln!(
                into,
                "  {path}\n    real:      {real}\n    simulated: {simulated}"
            )
            .unwrap();
        }
        _ => {}
    }
}

async fn define_widgets(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .header("content-type", "application/json")
        .body(definition.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    let list = || {
        let request = http::Request::get(format!("/apis/{GROUP}/v1/widgets")).body(Vec::new());
        client.request::<Value>(request.unwrap())
    };
    crate::harness::wait_for("the kind Widget is served", async || list().await.ok()).await;
}

/// The answers and events of the simulated API server compare with those of the real one as the table has it for this
/// release.
#[tokio::test]
async fn the_simulation_answers_as_kubernetes_does() {
    let cluster = cluster().await;
    let client = cluster.client().await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    let release = format!("{}.{}", version.major, version.minor.trim_end_matches('+'));
    define_widgets(&client).await;
    let runs = scripts().into_iter().map(async |(area, behaviours)| {
        let namespace = cluster
            .namespace(&format!("conformance-{area}"))
            .await
            .unwrap();
        run(area, behaviours, client.clone(), namespace).await
    });
    let rows: Vec<Row> = join_all(runs).await.into_iter().flatten().collect();
    table::hold(&release, &rows);
}

fn assert_none(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
