//! Builds the pod of a node: raw JSON from the owner, the node and a revision.

use serde_json::{Map, Value, json};

use super::decide::decision::Create;
use super::decide::placement::daemon_tolerations;
use super::names::{ATTEMPT_ANNOTATION, NAME_LABEL, Owner, PREDECESSOR_ANNOTATION, REVISION_LABEL};
use super::revision::{Content, add_app};
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// Without it these pods would keep the cluster autoscaler from ever removing a node.
const AUTOSCALER_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";

/// The body of the request that creates a pod of that name from the canonical form of its revision's content.
pub(crate) fn request(owner: Owner<'_>, create: &Create, name: &str, canonical: &str) -> Vec<u8> {
    let content = Content::from_canonical(canonical).unwrap_or_default();
    let body = build(owner, create, name, &content);
    body.to_string().into_bytes()
}

/// The pod. What the user wrote in the template is kept as it is, known to us or not.
fn build(owner: Owner<'_>, create: &Create, name: &str, content: &Content) -> Value {
    let template = content.template.as_ref();
    let mut labels = template
        .and_then(|t| t.labels())
        .cloned()
        .unwrap_or_default();
    for (key, value) in [
        (NAME_LABEL, owner.name),
        (REVISION_LABEL, &create.revision),
        (MANAGED_BY, MANAGER),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    let mut annotations = template
        .and_then(|t| t.annotations())
        .cloned()
        .unwrap_or_default();
    annotations
        .entry(AUTOSCALER_ANNOTATION)
        .or_insert_with(|| "true".into());
    if create.attempt > 0 {
        annotations.insert(
            ATTEMPT_ANNOTATION.to_owned(),
            create.attempt.to_string().into(),
        );
    }
    if let Some(text) = create.predecessor.text() {
        annotations.insert(PREDECESSOR_ANNOTATION.to_owned(), text.into());
    }
    let mut spec = template.and_then(|t| t.spec()).cloned().unwrap_or_default();
    add_tolerations(&mut spec);
    let mut containers = take_array(&mut spec, "containers");
    let image = content.image.as_deref().unwrap_or_default();
    add_app(&mut containers, &image.into());
    spec.insert("containers".to_owned(), containers.into());
    spec.insert("nodeName".to_owned(), create.node.as_str().into());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner.reference()],
        },
        "spec": spec,
    })
}

/// Adds what a daemon tolerates. As in the built-in controller, it replaces a toleration of the
/// user's for the same taint: one with `tolerationSeconds` would have the pod evicted all the same.
fn add_tolerations(spec: &mut Map<String, Value>) {
    let added = daemon_tolerations(Some(spec));
    let mut tolerations = take_array(spec, "tolerations");
    let text = |toleration: &Value, key: &str| {
        let text = toleration.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let taint = |toleration: &Value| {
        ["key", "operator", "value", "effect"].map(|key| text(toleration, key))
    };
    for toleration in added {
        match tolerations
            .iter_mut()
            .find(|t| taint(t) == taint(&toleration))
        {
            Some(same) => *same = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec.insert("tolerations".to_owned(), tolerations.into());
}

/// Takes out the array of that name, empty if there is none. The rules reject anything but an array.
fn take_array(fields: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match fields.remove(key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::names::pod_name;
    use crate::observe::predecessor::Predecessor;
    use my_operator_kind::template::PodTemplate;

    const OWNER: Owner<'_> = Owner {
        namespace: "ns",
        name: "web",
        uid: "owner-uid",
    };

    fn create() -> Create {
        Create {
            node: "node-1".to_owned(),
            revision: "abcdefghij".to_owned(),
            attempt: 0,
            predecessor: Predecessor::Unknown,
        }
    }

    fn built(create: &Create, content: &Content) -> Value {
        let name = pod_name(&create.node, OWNER.uid, &create.revision);
        let body = request(OWNER, create, &name, &content.canonical());
        serde_json::from_slice(&body).unwrap()
    }

    fn content(image: Option<&str>, template: Option<Value>) -> Content {
        Content {
            image: image.map(str::to_owned),
            template: template.map(PodTemplate),
        }
    }

    #[test]
    fn a_pod_of_an_image_alone() {
        let pod = built(&create(), &content(Some("nginx:1.29"), None));
        let pod_name = pod_name("node-1", "owner-uid", "abcdefghij");
        assert!(pod_name.starts_with("node-1-"));
        assert_eq!(
            pod["metadata"],
            json!({
                "name": pod_name,
                "namespace": "ns",
                "labels": {
                    "apps.zhongmingmao.io/mydaemonset": "web",
                    "apps.zhongmingmao.io/revision": "abcdefghij",
                    "app.kubernetes.io/managed-by": "my-operator",
                },
                "annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
                "ownerReferences": [{
                    "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
                    "name": "web", "uid": "owner-uid", "controller": true, "blockOwnerDeletion": true,
                }],
            })
        );
        assert_eq!(pod["spec"]["nodeName"], "node-1");
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "app", "image": "nginx:1.29"}])
        );
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn the_template_is_kept_as_it_was_written() {
        let template = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d",
                "cluster-autoscaler.kubernetes.io/daemonset-pod": "false"}},
            "spec": {"hostNetwork": true, "future": {"x": [null, 1.5]},
                "tolerations": [{"key": "mine", "operator": "Exists"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                     "tolerationSeconds": 5}],
                "initContainers": [{"name": "i", "image": "i:1"}],
                "containers": [{"name": "log", "image": "l:1"}, {"name": "app", "args": ["x"]}]}});
        let pod = built(&create(), &content(Some("a:1"), Some(template)));
        assert_eq!(pod["metadata"]["labels"]["a"], "b");
        assert_eq!(pod["metadata"]["annotations"]["c"], "d");
        assert_eq!(
            pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/daemonset-pod"],
            "false"
        );
        assert_eq!(pod["spec"]["future"], json!({"x": [null, 1.5]}));
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "log", "image": "l:1"}, {"name": "app", "args": ["x"], "image": "a:1"}])
        );
        // Its own, the six of every daemon, and one for the host's network.
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 8);
        // A toleration with an end is made to last.
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(tolerations[1], not_ready);
    }

    #[test]
    fn the_container_app_comes_first_when_it_is_added_and_its_own_image_wins() {
        let sidecar = json!({"spec": {"containers": [{"name": "log", "image": "l:1"}]}});
        let pod = built(&create(), &content(Some("a:1"), Some(sidecar)));
        assert_eq!(
            pod["spec"]["containers"][0],
            json!({"name": "app", "image": "a:1"})
        );
        assert_eq!(pod["spec"]["containers"][1]["name"], "log");
        let own = json!({"spec": {"containers": [{"name": "app", "image": "own:1"}]}});
        let pod = built(&create(), &content(Some("a:1"), Some(own)));
        assert_eq!(
            pod["spec"]["containers"],
            json!([{"name": "app", "image": "own:1"}])
        );
    }

    #[test]
    fn a_successor_carries_what_was_before_it() {
        let pod = built(
            &Create {
                attempt: 3,
                predecessor: Predecessor::Available,
                ..create()
            },
            &content(Some("a:1"), None),
        );
        assert_eq!(
            pod["metadata"]["annotations"]["apps.zhongmingmao.io/predecessor"],
            "available"
        );
        assert_eq!(
            pod["metadata"]["annotations"]["apps.zhongmingmao.io/attempt"],
            "3"
        );
    }
}
