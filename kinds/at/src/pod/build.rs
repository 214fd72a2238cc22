//! Builds the pod of an At.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::names::{AT_UID, CONTAINER, GATE, HASH, pod_name};
use crate::crd::{At, AtSpec};
use my_operator_kind::command::escape;
use my_operator_kind::go_json::as_go;
use my_operator_kind::manager::MANAGER;
use my_operator_kind::template::PodTemplate;
use wall_clock_controller::reconcile::write::{self, MANAGED_BY};

/// The At that a pod is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    /// `metadata.name` of the At.
    pub(crate) name: &'a str,
    /// `metadata.namespace` of the At.
    pub(crate) namespace: &'a str,
    /// `metadata.uid` of the At.
    pub(crate) uid: &'a str,
}

/// Hash of everything that determines the pod: the At's UID, and the spec without the fields that
/// only decide about the time (schedule, suspend, starting deadline, ttl). A pod that waits for its
/// release has this hash or is outdated. When to release it is decided at that moment, by the
/// current spec.
pub(crate) fn hash(uid: &str, spec: &AtSpec) -> String {
    let template = spec.template.as_ref().map(|template| &template.0);
    let matters = json!([
        uid,
        spec.image,
        spec.command,
        spec.shell,
        template,
        spec.active_deadline_seconds,
    ]);
    format!("{:x}", Sha256::digest(as_go(matters)))
}

/// The pod of an At whose spec is defaulted and valid (see [`admission_rules::rules::decode_and_validate`]):
/// gated, and otherwise as the template says.
pub(crate) fn build(owner: Owner<'_>, spec: &AtSpec) -> Value {
    let none = PodTemplate::default();
    let template = spec.template.as_ref().unwrap_or(&none);
    let mut labels = template.labels().cloned().unwrap_or_default();
    labels.insert(AT_UID.to_owned(), owner.uid.into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    let mut annotations = template.annotations().cloned().unwrap_or_default();
    annotations.insert(HASH.to_owned(), hash(owner.uid, spec).into());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(owner.name),
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [write::controller_reference::<At>(owner.name, owner.uid)],
        },
        "spec": build_spec(template, spec),
    })
}

fn build_spec(template: &PodTemplate, spec: &AtSpec) -> Map<String, Value> {
    let mut fields = template.spec().cloned().unwrap_or_default();
    fields.insert("restartPolicy".to_owned(), "Never".into());
    let mut gates = vec![json!({"name": GATE})];
    gates.append(&mut list(&mut fields, "schedulingGates"));
    fields.insert("schedulingGates".to_owned(), gates.into());
    if let Some(seconds) = spec.active_deadline_seconds {
        fields.insert("activeDeadlineSeconds".to_owned(), seconds.into());
    }
    let mut containers = list(&mut fields, "containers");
    let place = containers.iter().position(|c| c["name"] == CONTAINER);
    if place.is_none() {
        containers.insert(0, json!({"name": CONTAINER}));
    }
    if let Some(Value::Object(container)) = containers.get_mut(place.unwrap_or(0)) {
        complete(container, spec);
    }
    fields.insert("containers".to_owned(), containers.into());
    fields
}

/// Takes a list out of the fields; empty if there is none.
fn list(fields: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match fields.remove(key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Makes the container run the command.
fn complete(container: &mut Map<String, Value>, spec: &AtSpec) {
    let lacks = |container: &Map<String, Value>, key: &str| {
        let value = container.get(key).and_then(Value::as_str);
        value.is_none_or(str::is_empty)
    };
    if lacks(container, "image") {
        container.insert("image".to_owned(), json!(spec.image));
    }
    // Without a message of its own, the end of the output explains a failure best.
    if lacks(container, "terminationMessagePolicy") {
        container.insert(
            "terminationMessagePolicy".to_owned(),
            "FallbackToLogsOnError".into(),
        );
    }
    let mut command = spec.shell.clone().unwrap_or_default();
    command.push(escape(spec.command.as_deref().unwrap_or_default()));
    container.insert("command".to_owned(), command.into());
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use my_operator_rounds::{lengths, proptest_config};
    use proptest::prelude::*;

    use super::*;
    use crate::admission::AtRules;
    use admission_rules::rules::Rules;

    pub(in crate::pod) const OWNER: Owner<'_> = Owner {
        name: "a",
        namespace: "ns",
        uid: "at-1",
    };

    pub(in crate::pod) fn spec(fields: Value) -> AtSpec {
        let mut spec: AtSpec = serde_json::from_value(fields).unwrap();
        AtRules::default(&mut spec);
        spec
    }

    pub(in crate::pod) fn built(fields: Value) -> Value {
        build(OWNER, &spec(fields))
    }

    #[test]
    fn the_pod_of_a_plain_at() {
        let spec = spec(json!({"schedule": "now", "command": "echo YAY"}));
        let hash = hash("at-1", &spec);
        assert_eq!(
            build(OWNER, &spec),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "a-pod",
                    "namespace": "ns",
                    "labels": {
                        "app.kubernetes.io/managed-by": "my-operator",
                        "cnat.programming-kubernetes.info/at-uid": "at-1",
                    },
                    "annotations": {"cnat.programming-kubernetes.info/spec-hash": hash},
                    "ownerReferences": [{
                        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
                        "kind": "At", "name": "a", "uid": "at-1",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {
                    "restartPolicy": "Never",
                    "schedulingGates": [{"name": "cnat.programming-kubernetes.info/armed"}],
                    "containers": [{
                        "name": "at", "image": "bash:5.3",
                        "command": ["bash", "-c", "echo YAY"],
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }],
                },
            })
        );
    }

    #[test]
    fn a_template_reaches_the_pod_as_it_was_written() {
        let pod = built(json!({
            "command": "echo $HOME $(X) $$", "shell": ["sh", "-c"], "activeDeadlineSeconds": 9,
            "template": {
                "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
                "spec": {
                    "madeUpField": {"deep": [1, 2.50, null]},
                    "schedulingGates": [{"name": "example.com/quota"}],
                    "containers": [
                        {"name": "log", "image": "l:1", "args": ["$(KEPT)"]},
                        {"name": "at", "image": "own:1", "terminationMessagePolicy": "File", "other": true},
                    ],
                },
            },
        }));
        assert_eq!(pod["metadata"]["labels"]["team"], "x");
        assert_eq!(pod["metadata"]["annotations"]["note"], "y");
        let spec = &pod["spec"];
        assert_eq!(spec["madeUpField"], json!({"deep": [1, 2.50, null]}));
        assert_eq!(
            spec["schedulingGates"],
            json!([{"name": GATE}, {"name": "example.com/quota"}])
        );
        assert_eq!(spec["activeDeadlineSeconds"], 9);
        assert_eq!(
            spec["containers"],
            json!([
                {"name": "log", "image": "l:1", "args": ["$(KEPT)"]},
                {"name": "at", "image": "own:1", "terminationMessagePolicy": "File", "other": true,
                 "command": ["sh", "-c", "echo $$HOME $$(X) $$$$"]},
            ])
        );
    }

    #[test]
    fn a_container_for_the_command_is_added_in_first_place() {
        let pod = built(
            json!({"command": "x", "template": {"spec": {"containers": [{"name": "log", "image": "l:1"}]}}}),
        );
        let names: Vec<_> = pod["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["name"])
            .collect();
        assert_eq!(names, ["at", "log"]);
    }

    #[test]
    fn an_empty_image_in_the_template_is_replaced_by_that_of_the_spec() {
        for image in [json!(null), json!("")] {
            let pod = built(json!({"command": "x", "image": "i:1",
                "template": {"spec": {"containers": [{"name": "at", "image": image}]}}}));
            assert_eq!(pod["spec"]["containers"][0]["image"], "i:1");
        }
    }

    #[test]
    fn the_hash_follows_what_makes_the_pod_and_nothing_else() {
        let base = json!({"schedule": "now", "command": "x", "template": {"spec": {"a": 1, "b": {"c": [], "d": 2}}}});
        let with = |fields: Value| {
            let mut all = base.as_object().unwrap().clone();
            all.extend(fields.as_object().unwrap().clone());
            hash("u", &spec(Value::Object(all)))
        };
        let first = with(json!({}));
        assert_eq!(first.len(), 64);
        for same in [
            json!({"schedule": "now + 1 day"}),
            json!({"suspend": true}),
            json!({"startingDeadlineSeconds": 1}),
            json!({"template": {"spec": {"b": {"d": 2, "c": []}, "a": 1}}}),
        ] {
            assert_eq!(with(same.clone()), first, "{same}");
        }
        for other in [
            json!({"command": "y"}),
            json!({"image": "y"}),
            json!({"shell": ["y"]}),
            json!({"template": {}}),
            json!({"template": {"spec": {"a": 1, "b": {"c": [], "d": "2"}}}}),
            json!({"activeDeadlineSeconds": 1}),
        ] {
            assert_ne!(with(other.clone()), first, "{other}");
        }
        assert_ne!(hash("v", &spec(base)), first);
    }

    /// Kubernetes' rule, as in k8s.io/kubernetes/third_party/forked/golang/expansion/expand.go.
    fn expand(input: &[u8], mapping: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut checkpoint = 0;
        let mut cursor = 0;
        while cursor < input.len() {
            if input[cursor] == b'$' && cursor + 1 < input.len() {
                out.extend_from_slice(&input[checkpoint..cursor]);
                let (read, is_variable, advance) = variable_name(&input[cursor + 1..]);
                out.extend(if is_variable { mapping(&read) } else { read });
                cursor += advance;
                checkpoint = cursor + 1;
            }
            cursor += 1;
        }
        out.extend_from_slice(&input[checkpoint..]);
        out
    }

    fn variable_name(input: &[u8]) -> (Vec<u8>, bool, usize) {
        match input[0] {
            b'$' => (b"$".to_vec(), false, 1),
            b'(' => match input.iter().position(|b| *b == b')') {
                Some(end) => (input[1..end].to_vec(), true, end + 1),
                None => (b"$(".to_vec(), false, 1),
            },
            // Go's string(byte) is the UTF-8 text of the character with that number.
            other => (format!("${}", char::from(other)).into_bytes(), false, 1),
        }
    }

    fn arrives(text: &str) -> Vec<u8> {
        expand(escape(text).as_bytes(), &|_| b"EXPANDED".to_vec())
    }

    #[test]
    fn the_ported_rule_expands_as_kubernetes_does() {
        let mapping = |name: &[u8]| [b"<", name, b">"].concat();
        for (text, expanded) in [
            ("$(A) $$(A) $A $", "<A> $(A) $A $"),
            ("$(A", "$(A"),
            ("$$$(A)", "$<A>"),
            ("$$$$", "$$"),
        ] {
            assert_eq!(
                expand(text.as_bytes(), &mapping),
                expanded.as_bytes(),
                "{text}"
            );
        }
    }

    proptest! {
        #![proptest_config(proptest_config(lengths::texts()))]

        #[test]
        fn every_command_arrives_as_it_was_written(text in "[$()A-Z ä\n]{0,24}") {
            prop_assert_eq!(arrives(&text), text.as_bytes());
        }

        #[test]
        fn any_text_arrives_as_it_was_written(text in any::<String>()) {
            prop_assert_eq!(arrives(&text), text.as_bytes());
        }
    }
}
