//! The raw pod template that several kinds have, and its common rules.
//!
//! A template goes from the object to the pod as written, never through a typed struct: such a
//! struct silently drops every field that it does not know. So the template is JSON here, and the
//! helpers of this module read only what they validate. The API server validates the rest.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{Display, Write as _};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::image;
use admission_rules::faults::Fault;
use admission_rules::json::Reader;
use admission_rules::names::is_label;
use admission_rules::rules::Findings;
use admission_rules::text::cut;

/// A pod template as written: `metadata` (labels and annotations) and `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

/// A container of a template, and its position.
#[derive(Clone, Debug)]
pub struct Container<'a> {
    /// Its index in its list.
    pub index: usize,
    /// One of `initContainers`.
    pub init: bool,
    /// The container as written.
    pub fields: &'a Map<String, Value>,
}

impl<'a> Container<'a> {
    /// The path of the container, such as `spec.template.spec.containers[0]`; `at` is that of the template.
    pub fn field(&self, at: &str) -> String {
        format!("{at}.spec.{}[{}]", list_of(self.init), self.index)
    }

    /// The container's name; empty if it has none.
    pub fn name(&self) -> &'a str {
        text(self.fields, "name")
    }

    /// The container's image; empty if it has none.
    pub fn image(&self) -> &'a str {
        text(self.fields, "image")
    }
}

impl PodTemplate {
    /// The fields of the pod's spec; `None` if the template has no well-formed spec.
    pub fn spec(&self) -> Option<&Map<String, Value>> {
        self.0.get("spec")?.as_object()
    }

    /// The pod's labels as written.
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata")?.get("labels")?.as_object()
    }

    /// The pod's annotations as written.
    pub fn annotations(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata")?.get("annotations")?.as_object()
    }

    /// Every well-formed container, the ordinary ones first. [`check`] reports the malformed ones.
    pub fn containers(&self) -> impl Iterator<Item = Container<'_>> {
        let list = |init: bool| {
            let entries = self
                .spec()
                .and_then(|spec| spec.get(list_of(init))?.as_array());
            let entries = entries.into_iter().flatten().enumerate();
            entries.filter_map(move |(index, entry)| {
                let fields = entry.as_object()?;
                Some(Container {
                    index,
                    init,
                    fields,
                })
            })
        };
        list(false).chain(list(true))
    }

    /// The ordinary container of that name.
    pub fn container(&self, name: &str) -> Option<Container<'_>> {
        self.containers().find(|c| !c.init && c.name() == name)
    }
}

/// Splits the JSON of a spec into its template, for rules that need no more of a container than its name, image and
/// ports, and a text with the other members. Most of a long template is elsewhere, such as in `env`: that is parsed, as
/// malformed JSON is an error, but not kept.
///
/// None where the text is malformed, or a [`Reader`] says that the template is not [usual](Reader::usual).
pub fn split(spec: &str) -> Option<(Option<PodTemplate>, String)> {
    let (mut template, mut rest) = (None, String::new());
    Reader::whole(spec, |reader| {
        reader.members(|key, reader| {
            if key == "template" {
                let is_first = template.is_none();
                let read = |reader: &mut Reader<'_>| Part::Template.read(reader);
                template = Some(reader.usual(|reader| reader.or_null(read))?);
                return is_first.then_some(());
            }
            rest.push(if rest.is_empty() { '{' } else { ',' });
            let is_plain = !key.contains(|c: char| matches!(c, '"' | '\\' | ..' '));
            write!(rest, "\"{key}\":{}", reader.raw()?).ok()?;
            is_plain.then_some(())
        })
    })?;
    rest.push_str(if rest.is_empty() { "{}" } else { "}" });
    Some((template.flatten().map(PodTemplate), rest))
}

/// The members of a container that [`split`] keeps.
const READ: [&str; 3] = ["name", "image", "ports"];

/// A part of a template.
#[derive(Clone, Copy)]
enum Part {
    Template,
    Spec,
    Containers,
    Container,
    /// One that is kept as it is.
    Whole,
}

impl Part {
    /// Reads the part without what is not kept of it.
    fn read(self, reader: &mut Reader<'_>) -> Option<Value> {
        match (self, reader.peek()?) {
            (Self::Containers, b'[') => {
                let mut kept = Vec::new();
                reader.list(|reader| {
                    kept.push(Self::Container.read(reader)?);
                    Some(())
                })?;
                Some(kept.into())
            }
            (Self::Template | Self::Spec | Self::Container, b'{') => {
                let mut kept = Map::new();
                reader.members(|key, reader| {
                    if let Some(part) = self.member(&key) {
                        kept.insert(key.into_owned(), part.read(reader)?);
                        return Some(());
                    }
                    reader.raw().map(drop)
                })?;
                Some(kept.into())
            }
            _ => serde_json::from_str(reader.raw()?).ok(),
        }
    }

    /// What that member of it is; None if it is not kept.
    fn member(self, key: &str) -> Option<Self> {
        match self {
            Self::Template if key == "spec" => Some(Self::Spec),
            Self::Spec if [false, true].map(list_of).contains(&key) => Some(Self::Containers),
            Self::Container if !READ.contains(&key) => None,
            _ => Some(Self::Whole),
        }
    }
}

fn list_of(init: bool) -> &'static str {
    if init { "initContainers" } else { "containers" }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl JsonSchema for PodTemplate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let texts = |description: &str| {
            json_schema!({
                "type": "object",
                "description": description,
                "additionalProperties": {"type": "string"},
            })
        };
        json_schema!({
            "type": "object",
            "description": "A pod template: labels, annotations and any field of a pod's spec. It reaches the pod as it is written.",
            "properties": {
                "metadata": {
                    "type": "object",
                    "description": "Labels and annotations of the pod.",
                    "properties": {
                        "labels": texts("Labels of the pod, beside the operator's."),
                        "annotations": texts("Annotations of the pod, beside the operator's."),
                    },
                },
                "spec": {
                    "type": "object",
                    "description": "The spec of any Pod (kubectl explain pod.spec). Fields that the operator does not know are kept, too.",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
            },
        })
    }
}

/// The rules for every kind's template, `at` being its path: the JSON types of what is read here,
/// names, images, and what only the operator may set. The container `main` is the kind's own: its
/// image may be absent (the kind's rules say when).
pub fn check(at: &str, template: &PodTemplate, main: &str) -> Findings {
    let mut findings = Findings::default();
    let Some(root) = object(at, &template.0, &mut findings) else {
        return findings;
    };
    if let Some(metadata) = member(at, root, "metadata", &mut findings) {
        check_metadata(&format!("{at}.metadata"), metadata, &mut findings);
    }
    if let Some(spec) = member(at, root, "spec", &mut findings) {
        let root_at = at;
        let at = format!("{at}.spec");
        if given(spec, "nodeName") {
            findings.fault(Fault::forbidden(
                format!("{at}.nodeName"),
                "the node is not the template's to choose",
            ));
        }
        check_types(&at, spec, &mut findings);
        let mut names = HashSet::new();
        for init in [false, true] {
            check_containers(&at, spec, list_of(init), main, &mut names, &mut findings);
        }
        if template.container(main).is_none() {
            let namesakes = template.containers().filter(|c| c.init && c.name() == main);
            for container in namesakes {
                findings.fault(Fault::forbidden(
                    format!("{}.name", container.field(root_at)),
                    "the container that the operator adds has this name",
                ));
            }
        }
    }
    findings
}

/// Checks the types of what the operator itself reads and of common mistakes: the API server would
/// only report them when the pod is created, which for some kinds is much later.
fn check_types(at: &str, spec: &Map<String, Value>, findings: &mut Findings) {
    for key in ["nodeSelector", "affinity", "securityContext"] {
        member(at, spec, key, findings);
    }
    for key in ["tolerations", "volumes", "imagePullSecrets"] {
        let value = spec.get(key).filter(|value| !value.is_null());
        if let Some(value) = value.filter(|value| !value.is_array()) {
            findings.fault(Fault::type_invalid(
                format!("{at}.{key}"),
                value,
                "must be an array",
            ));
        }
    }
}

fn check_metadata(at: &str, metadata: &Map<String, Value>, findings: &mut Findings) {
    for key in ["labels", "annotations"] {
        let Some(texts) = member(at, metadata, key, findings) else {
            continue;
        };
        for (name, value) in texts {
            if findings.is_full() {
                return;
            }
            if !value.is_string() {
                let fault = Fault::type_invalid(format!("{at}.{key}"), value, "must be a string");
                findings.fault(fault.at_key(name));
            }
        }
    }
    for key in ["ownerReferences", "finalizers", "name", "namespace"] {
        if given(metadata, key) {
            findings.fault(Fault::forbidden(
                format!("{at}.{key}"),
                "the operator sets it",
            ));
        }
    }
}

fn check_containers<'a>(
    at: &str,
    spec: &'a Map<String, Value>,
    key: &str,
    main: &str,
    names: &mut HashSet<&'a str>,
    findings: &mut Findings,
) {
    let list = match spec.get(key) {
        None | Some(Value::Null) => return,
        Some(Value::Array(list)) => list,
        Some(other) => {
            findings.fault(Fault::type_invalid(
                format!("{at}.{key}"),
                other,
                "must be an array",
            ));
            return;
        }
    };
    for (i, entry) in list.iter().enumerate() {
        if findings.is_full() {
            return;
        }
        let at = format_args!("{at}.{key}[{i}]");
        let Some(container) = object(at, entry, findings) else {
            continue;
        };
        check_name(format_args!("{at}.name"), container, names, findings);
        let may_lack_image = key == list_of(false) && text(container, "name") == main;
        let field = format_args!("{at}.image");
        match container.get("image") {
            None | Some(Value::Null) if may_lack_image => {}
            Some(Value::String(image)) if image.is_empty() && may_lack_image => {}
            None | Some(Value::Null) => {
                findings.fault(Fault::required(field.to_string(), "image is required"));
            }
            Some(Value::String(image)) => check_image(field, image, findings),
            Some(other) => findings.fault(Fault::type_invalid(
                field.to_string(),
                other,
                "must be a string",
            )),
        }
    }
}

fn check_name<'a>(
    field: impl Display,
    container: &'a Map<String, Value>,
    names: &mut HashSet<&'a str>,
    findings: &mut Findings,
) {
    let name = match container.get("name") {
        None | Some(Value::Null) => "",
        Some(Value::String(name)) => name.as_str(),
        Some(other) => {
            findings.fault(Fault::type_invalid(
                field.to_string(),
                other,
                "must be a string",
            ));
            return;
        }
    };
    if name.is_empty() {
        findings.fault(Fault::required(field.to_string(), ""));
    } else if !is_label(name) {
        findings.fault(Fault::invalid(field.to_string(), name, NOT_A_LABEL));
    } else if !names.insert(name) {
        findings.fault(Fault::duplicate(field.to_string(), name));
    }
}

/// The API server's message (`k8s.io/apimachinery/pkg/util/validation`), with the length in it.
const NOT_A_LABEL: &str = "a lowercase RFC 1123 label must consist of at most 63 lower case \
     alphanumeric characters or '-', and must start and end with an alphanumeric character \
     (e.g. 'my-name', or '123-abc')";

/// The restart policy of the pod or container at `at`, if it has one, may only be `allowed`.
pub fn check_restart_policy(
    at: impl Display,
    fields: &Map<String, Value>,
    allowed: &str,
    findings: &mut Findings,
) {
    let fault = match fields.get("restartPolicy") {
        None | Some(Value::Null) => return,
        Some(Value::String(policy)) if policy == allowed => return,
        Some(Value::String(policy)) => {
            Fault::not_supported(format!("{at}.restartPolicy"), policy, &[allowed])
        }
        Some(other) => {
            Fault::type_invalid(format!("{at}.restartPolicy"), other, "must be a string")
        }
    };
    findings.fault(fault);
}

/// Validates an image reference: required, well-formed, and with a warning if it has neither tag nor digest.
pub fn check_image(field: impl Display, value: &str, findings: &mut Findings) {
    if value.is_empty() {
        findings.fault(Fault::required(field.to_string(), "image is required"));
        return;
    }
    match image::parse(value) {
        Err(error) => findings.fault(Fault::invalid(field.to_string(), value, &error.to_string())),
        Ok(reference) if reference.tag.is_none() && reference.digest.is_none() => {
            findings.warn(format!(
                "{field}: {:?} has neither tag nor digest, so what runs is whatever \"latest\" is when a node pulls it",
                cut(value, 80)
            ));
        }
        Ok(_) => {}
    }
}

/// Whether a field is present and not `null`, which means absent.
pub fn given(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).is_some_and(|value| !value.is_null())
}

/// The member as an object; an error if it is of another type, `None` if it is absent.
pub fn member<'a>(
    at: &str,
    fields: &'a Map<String, Value>,
    key: &str,
    findings: &mut Findings,
) -> Option<&'a Map<String, Value>> {
    let value = fields.get(key).filter(|value| !value.is_null())?;
    object(format_args!("{at}.{key}"), value, findings)
}

/// The value as an object; an error if it is of another type. `at` is only formatted then.
pub fn object<'a>(
    at: impl Display,
    value: &'a Value,
    findings: &mut Findings,
) -> Option<&'a Map<String, Value>> {
    let object = value.as_object();
    if object.is_none() {
        findings.fault(Fault::type_invalid(
            at.to_string(),
            value,
            "must be an object",
        ));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(template: Value) -> Vec<String> {
        let findings = check("spec.template", &PodTemplate(template), "app");
        findings.faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_usual_template_has_no_fault() {
        for template in [
            json!({}),
            json!({"metadata": null, "spec": null}),
            json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": ""}},
                   "spec": {"hostNetwork": true, "madeUp": [1, {"x": null}],
                            "initContainers": [{"name": "setup", "image": "busybox:1"}],
                            "containers": [{"name": "app"}, {"name": "log", "image": "fluent/bit:3"}]}}),
        ] {
            assert_eq!(faults(template.clone()), Vec::<String>::new(), "{template}");
        }
    }

    #[test]
    fn every_fault_is_named_with_its_path() {
        let cases = [
            (
                json!([]),
                "spec.template: Invalid value: []: must be an object",
            ),
            (
                json!({"spec": "x"}),
                "spec.template.spec: Invalid value: \"x\": must be an object",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "spec.template.metadata.labels[a]: Invalid value: 1: must be a string",
            ),
            (
                json!({"metadata": {"annotations": []}}),
                "spec.template.metadata.annotations: Invalid value: []: must be an object",
            ),
            (
                json!({"metadata": {"ownerReferences": []}}),
                "spec.template.metadata.ownerReferences: Forbidden: the operator sets it",
            ),
            (
                json!({"spec": {"nodeName": "n"}}),
                "spec.template.spec.nodeName: Forbidden: the node is not the template's to choose",
            ),
            (
                json!({"spec": {"containers": {}}}),
                "spec.template.spec.containers: Invalid value: {}: must be an array",
            ),
            (
                json!({"spec": {"containers": ["x"]}}),
                "spec.template.spec.containers[0]: Invalid value: \"x\": must be an object",
            ),
            (
                json!({"spec": {"containers": [{"image": "a:1"}]}}),
                "spec.template.spec.containers[0].name: Required value",
            ),
            (
                json!({"spec": {"containers": [{"name": 7, "image": "a:1"}]}}),
                "spec.template.spec.containers[0].name: Invalid value: 7: must be a string",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "b"}]}}),
                "spec.template.spec.initContainers[0].image: Required value: image is required",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "app", "image": "a:1"}]}}),
                "spec.template.spec.initContainers[0].name: Forbidden: the container that the operator adds has this name",
            ),
            (
                json!({"spec": {"tolerations": "x"}}),
                "spec.template.spec.tolerations: Invalid value: \"x\": must be an array",
            ),
            (
                json!({"spec": {"nodeSelector": ["a"]}}),
                "spec.template.spec.nodeSelector: Invalid value: [\"a\"]: must be an object",
            ),
            (
                json!({"spec": {"containers": [{"name": "b", "image": ["x"]}]}}),
                "spec.template.spec.containers[0].image: Invalid value: [\"x\"]: must be a string",
            ),
            (
                json!({"spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "app", "image": "a:1"}]}}),
                "spec.template.spec.initContainers[0].name: Duplicate value: \"app\"",
            ),
        ];
        for (template, text) in cases {
            assert_eq!(faults(template.clone()), [text], "{template}");
        }
    }

    #[test]
    fn a_bad_name_and_a_bad_image_are_both_named() {
        let found = faults(json!({"spec": {"containers": [{"name": "Up", "image": "a b"}]}}));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("spec.template.spec.containers[0].name: Invalid value: \"Up\"")
        );
        assert!(
            found[1].starts_with("spec.template.spec.containers[0].image: Invalid value: \"a b\"")
        );
    }

    #[test]
    fn an_image_without_tag_and_digest_is_a_warning() {
        let template = json!({"spec": {"containers": [{"name": "log", "image": "nginx"}]}});
        let findings = check("spec.template", &PodTemplate(template), "app");
        assert!(findings.faults.is_empty());
        assert_eq!(findings.warnings.len(), 1);
        assert!(findings.warnings[0].len() <= 256);
    }

    #[test]
    fn labels_are_those_of_rfc_1123() {
        for good in ["a", "0", "a-b", &"x".repeat(63)] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
    }

    #[test]
    fn containers_are_walked_with_their_paths() {
        let template = PodTemplate(json!({"spec": {
            "containers": [1, {"name": "app", "image": "a:1"}], "initContainers": [{"name": "i"}]}}));
        let fields: Vec<_> = template
            .containers()
            .map(|c| (c.field("t"), c.init))
            .collect();
        assert_eq!(
            fields,
            [
                ("t.spec.containers[1]".to_owned(), false),
                ("t.spec.initContainers[0]".to_owned(), true)
            ]
        );
        assert_eq!(template.container("app").map(|c| c.image()), Some("a:1"));
        assert!(template.container("i").is_none());
    }
}
