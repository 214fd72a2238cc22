//! From flags to the manifest of an At.

use my_operator_at::crd::AtSpec;
use serde_json::{Map, Value, json};

use crate::connection::Failure;

/// The container that runs the command.
const CONTAINER: &str = "at";

/// What the flags say.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: Vec<(String, String)>,
    /// All but the template.
    pub(super) spec: AtSpec,
    pub(super) service_account: Option<String>,
    pub(super) env: Vec<(String, String)>,
    /// The file of --template, or what --from has taken.
    pub(super) template: Option<Value>,
}

impl Wish {
    /// The manifest. What no flag says is left to the defaults of the webhook.
    pub(super) fn manifest(&self) -> Result<Value, Failure> {
        let mut spec = json!(self.spec);
        if let Some(template) = self.template()? {
            spec["template"] = template;
        }
        let mut metadata = json!({"name": self.name, "namespace": self.namespace});
        if !self.labels.is_empty() {
            let labels = self.labels.iter();
            let labels: Map<String, Value> = labels.map(|(k, v)| (k.clone(), json!(v))).collect();
            metadata["labels"] = labels.into();
        }
        Ok(json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": metadata,
            "spec": spec,
        }))
    }

    /// The pod template: that of the file, with what flags add.
    fn template(&self) -> Result<Option<Value>, Failure> {
        if self.template.is_none() && self.service_account.is_none() && self.env.is_empty() {
            return Ok(None);
        }
        let wrong = |what: &str| format!("--template: {what}");
        let mut template = match &self.template {
            Some(file) => pod_template(file)?,
            None => Map::new(),
        };
        let has_flags = self.service_account.is_some() || !self.env.is_empty();
        if !has_flags && !template.contains_key("spec") {
            return Ok(Some(template.into()));
        }
        let spec = template.entry("spec").or_insert_with(|| json!({}));
        let spec = spec
            .as_object_mut()
            .ok_or_else(|| wrong("spec must be an object"))?;
        if let Some(name) = &self.service_account {
            spec.insert("serviceAccountName".to_owned(), json!(name));
        }
        if !self.env.is_empty() {
            let containers = spec.entry("containers").or_insert_with(|| json!([]));
            let containers = containers
                .as_array_mut()
                .ok_or_else(|| wrong("spec.containers must be a list"))?;
            if !containers.iter().any(|it| it["name"] == CONTAINER) {
                containers.insert(0, json!({"name": CONTAINER}));
            }
            let container = containers.iter_mut().find(|it| it["name"] == CONTAINER);
            let container = container.and_then(Value::as_object_mut);
            let env = container.map(|it| it.entry("env").or_insert_with(|| json!([])));
            let env = env
                .and_then(Value::as_array_mut)
                .ok_or_else(|| wrong("env must be a list"))?;
            // A flag goes before the file: of two variables of a name, a container has the last one.
            for (name, value) in &self.env {
                env.retain(|it| it["name"] != name.as_str());
                // Kubernetes expands $(NAME) in values; $$ is a dollar.
                let value = value.replace('$', "$$");
                env.push(json!({"name": name, "value": value}));
            }
        }
        Ok(Some(template.into()))
    }
}

/// A pod template as such, or that in a Pod or a PodTemplate.
fn pod_template(file: &Value) -> Result<Map<String, Value>, Failure> {
    let template = match file["kind"].as_str() {
        Some("PodTemplate") => &file["template"],
        None | Some("Pod") => file,
        Some(kind) => {
            let text = format!(
                "--template: a {kind} is not a pod template: give a Pod, a PodTemplate, or metadata or spec"
            );
            return Err(text.into());
        }
    };
    let mut kept = Map::new();
    for part in ["metadata", "spec"] {
        if let Some(value) = template.get(part) {
            kept.insert(part.to_owned(), value.clone());
        }
    }
    // The pod's name and namespace are the operator's.
    if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| name == "labels" || name == "annotations");
    }
    if kept.is_empty() {
        let text = "--template: the file has no metadata and no spec: give a Pod, a PodTemplate, or metadata or spec";
        return Err(text.into());
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wish() -> Wish {
        Wish {
            name: "report-x7k2p".to_owned(),
            namespace: "default".to_owned(),
            spec: AtSpec {
                schedule: Some("2026-11-27T15:00:00Z".to_owned()),
                command: Some("./report".to_owned()),
                ..AtSpec::default()
            },
            ..Wish::default()
        }
    }

    #[test]
    fn without_flags_there_is_only_what_is_needed() {
        let expected = json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": {"name": "report-x7k2p", "namespace": "default"},
            "spec": {"schedule": "2026-11-27T15:00:00Z", "command": "./report"},
        });
        assert_eq!(wish().manifest().unwrap(), expected);
    }

    #[test]
    fn every_flag_reaches_its_field() {
        let wish = Wish {
            labels: vec![("app".to_owned(), "x".to_owned())],
            spec: AtSpec {
                image: Some("alpine".to_owned()),
                shell: Some(vec!["sh".to_owned(), "-c".to_owned()]),
                starting_deadline_seconds: Some(1),
                active_deadline_seconds: Some(2),
                ttl_seconds_after_finished: Some(3),
                suspend: Some(true),
                ..wish().spec
            },
            service_account: Some("reporter".to_owned()),
            env: vec![("A".to_owned(), "$(B)".to_owned())],
            ..wish()
        };
        let manifest = wish.manifest().unwrap();
        assert_eq!(manifest["metadata"]["labels"], json!({"app": "x"}));
        let expected = json!({
            "schedule": "2026-11-27T15:00:00Z",
            "command": "./report",
            "image": "alpine",
            "shell": ["sh", "-c"],
            "startingDeadlineSeconds": 1,
            "activeDeadlineSeconds": 2,
            "ttlSecondsAfterFinished": 3,
            "suspend": true,
            "template": {"spec": {
                "serviceAccountName": "reporter",
                "containers": [{"name": "at", "env": [{"name": "A", "value": "$$(B)"}]}],
            }},
        });
        assert_eq!(manifest["spec"], expected);
    }

    #[test]
    fn flags_are_added_to_the_file() {
        let file = json!({
            "kind": "Pod",
            "metadata": {"name": "mine", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "side"}, {"name": "at", "env": [{"name": "A", "value": "old"}, {"name": "C"}]}]},
        });
        let wish = Wish {
            template: Some(file),
            env: vec![("A".to_owned(), "new".to_owned())],
            ..wish()
        };
        let expected = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [
                {"name": "side"},
                {"name": "at", "env": [{"name": "C"}, {"name": "A", "value": "new"}]},
            ]},
        });
        assert_eq!(wish.manifest().unwrap()["spec"]["template"], expected);
    }

    #[test]
    fn a_file_may_have_no_spec_as_the_field_may() {
        let file = json!({"metadata": {"annotations": {"a": "b"}}});
        let mut wish = Wish {
            template: Some(file.clone()),
            ..wish()
        };
        assert_eq!(wish.manifest().unwrap()["spec"]["template"], file);
        wish.service_account = Some("reporter".to_owned());
        let spec = &wish.manifest().unwrap()["spec"]["template"]["spec"];
        assert_eq!(spec, &json!({"serviceAccountName": "reporter"}));
    }

    #[test]
    fn a_file_that_is_no_template_is_a_mistake() {
        for (file, part) in [
            (
                json!({"kind": "Deployment"}),
                "a Deployment is not a pod template",
            ),
            (json!({"containers": []}), "has no metadata and no spec"),
            (json!([]), "has no metadata and no spec"),
            (json!({"spec": 5}), "spec must be an object"),
            (json!({"spec": {"containers": 5}}), "must be a list"),
            (
                json!({"spec": {"containers": [{"name": "at", "env": 5}]}}),
                "env must be a list",
            ),
        ] {
            let wish = Wish {
                template: Some(file.clone()),
                env: vec![("A".to_owned(), String::new())],
                ..wish()
            };
            let error = wish.manifest().unwrap_err().to_string();
            assert!(error.contains(part), "{file}: {error}");
        }
    }
}
