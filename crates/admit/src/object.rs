//! One object: its kind, and what the API server would answer if it, and then its pods, were created now.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::report::{Found, Judged, Outcome, Why};
use super::yaml::{Content, Node};
use super::{pods, schema};
use admission_rules::faults::{Fault, Reason};
use admission_rules::judge::Admission;
use admission_rules::names::has_form_of_label;
use admission_rules::review::{Request, Response};
use admission_rules::rules;

/// The user name in place of the creator's, which is not known here. Webhooks may write it into the object.
const UNKNOWN_USER: &str = "(its creator)";

/// The rules of a kind, prepared once for all objects.
#[derive(Debug)]
pub struct Rulebook {
    admission: Admission,
    group: String,
    kind: String,
    /// `group/version`, and the schema of that version.
    versions: Vec<(String, JSONSchemaProps)>,
    pod_templates: &'static [&'static str],
}

impl Rulebook {
    /// The rulebook of the kind that has this definition.
    pub fn new(crd: CustomResourceDefinition, admission: Admission) -> Self {
        let group = crd.spec.group;
        let served = crd
            .spec
            .versions
            .into_iter()
            .filter(|version| version.served);
        let versions = served
            .map(|version| {
                let schema = version.schema.and_then(|s| s.open_api_v3_schema);
                (
                    format!("{group}/{}", version.name),
                    schema.unwrap_or_default(),
                )
            })
            .collect();
        Self {
            admission,
            kind: crd.spec.names.kind,
            group,
            versions,
            pod_templates: &[],
        }
    }

    /// The same for a kind with pod templates at these paths, such as `spec.template`: they are checked by the schema
    /// of [`pods`] as well.
    #[must_use]
    pub fn with_pod_templates(mut self, paths: &'static [&'static str]) -> Self {
        self.pod_templates = paths;
        self
    }
}

/// Checks a document: one object, or the items of a list. What is not an object of Kubernetes is marked as such.
pub fn judge(at: &Judged, node: &Node, books: &[Rulebook], now: DateTime<Utc>) -> Vec<Judged> {
    let mut judged = Vec::new();
    visit(at, node, None, books, now, &mut judged);
    judged
}

/// `of` is the apiVersion and kind of the items of a list that do not have their own.
fn visit(
    at: &Judged,
    node: &Node,
    of: Option<(&str, &str)>,
    books: &[Rulebook],
    now: DateTime<Utc>,
    judged: &mut Vec<Judged>,
) {
    let mut this = Judged {
        line: Some(node.line),
        ..at.clone()
    };
    let named = |field: &str| {
        node.get(field)
            .and_then(Node::text)
            .filter(|text| !text.is_empty())
    };
    let api_version = named("apiVersion").or(of.map(|(api_version, _)| api_version));
    let kind = named("kind").or(of.map(|(_, kind)| kind));
    let (api_version, kind) = match (api_version, kind) {
        (Some(api_version), Some(kind)) => (api_version, kind),
        (api_version, kind) => {
            this.error = Some(match (&node.content, api_version, kind) {
                (Content::Map(_), None, None) => "apiVersion not set, kind not set".to_owned(),
                (Content::Map(_), None, _) => "apiVersion not set".to_owned(),
                (Content::Map(_), ..) => "kind not set".to_owned(),
                _ => "not an object: a manifest has apiVersion, kind and metadata".to_owned(),
            });
            if at.item.is_none() && !is_ours(node, books) {
                this.result = Outcome::NotAnObject;
            }
            judged.push(this);
            return;
        }
    };
    if let Some(item_kind) = kind.strip_suffix("List")
        && let Some(Content::List(items)) = node.get("items").map(|items| &items.content)
    {
        let of = (!item_kind.is_empty()).then_some((api_version, item_kind));
        for (i, item) in items.iter().enumerate() {
            let item_at = Judged {
                item: Some(match &at.item {
                    Some(outer) => format!("{outer}.items[{i}]"),
                    None => format!("items[{i}]"),
                }),
                ..at.clone()
            };
            visit(&item_at, item, of, books, now, judged);
        }
        return;
    }
    this.api_version = Some(api_version.to_owned());
    this.kind = Some(kind.to_owned());
    let metadata = |field: &str| node.get("metadata")?.get(field)?.text().map(str::to_owned);
    this.namespace = metadata("namespace");
    this.name = metadata("name").or_else(|| metadata("generateName"));
    this.judge_object(node, api_version, kind, books, now);
    judged.push(this);
}

/// Whether a group or a kind of ours says that something else was forgotten: those of the value, or of a member of the
/// list that it is or has.
fn is_ours(node: &Node, books: &[Rulebook]) -> bool {
    let named = |field: &str| node.get(field).and_then(Node::text);
    let group = named("apiVersion").and_then(|text| text.split('/').next());
    let kind = named("kind").map(|kind| kind.strip_suffix("List").unwrap_or(kind));
    let mut ours = books.iter();
    if ours.any(|book| group == Some(book.group.as_str()) || kind == Some(book.kind.as_str())) {
        return true;
    }
    match &node.get("items").unwrap_or(node).content {
        Content::List(members) => members.iter().any(|member| is_ours(member, books)),
        _ => false,
    }
}

impl Judged {
    fn judge_object(
        &mut self,
        node: &Node,
        api_version: &str,
        kind: &str,
        books: &[Rulebook],
        now: DateTime<Utc>,
    ) {
        // Our group without a version is a mistake, not a foreign kind.
        let group = api_version.split('/').next().unwrap_or_default();
        let mut ours = books.iter().filter(|book| book.group == group).peekable();
        if ours.peek().is_none() {
            self.result = Outcome::PassedOver;
            return;
        }
        let found = ours.filter(|book| book.kind == kind).find_map(|book| {
            let mut versions = book.versions.iter();
            let (_, schema) = versions.find(|(version, _)| version == api_version)?;
            Some((book, schema))
        });
        self.result = Outcome::Refused;
        let Some((book, schema)) = found else {
            let message = format!("no matches for kind {kind:?} in version {api_version:?}");
            self.fault(node, "", Why::NoMatch, message);
            return;
        };
        let mut object = node.value();
        if let Value::Object(fields) = &mut object {
            // An item of a list may leave these to the list.
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
        let findings = schema::check(schema, &object);
        for unknown in findings.unknown {
            let message = unknown.message();
            self.fault(node, &unknown.field, Why::UnknownField, message);
        }
        let mut faults = findings.values;
        faults.extend(check_metadata(&object));
        let templates = book.pod_templates.iter();
        let of_pods: Vec<Found> = templates
            .flat_map(|at| pods::check(at, &object, node))
            .collect();
        self.ask_the_webhook(node, object, book, now, faults);
        self.add(of_pods);
        if self.faults.is_empty() {
            self.result = Outcome::Accepted;
        }
    }

    /// Runs both handlers of the kind, in the API server's order. `faults` are those found so far.
    fn ask_the_webhook(
        &mut self,
        node: &Node,
        mut object: Value,
        book: &Rulebook,
        now: DateTime<Utc>,
        mut faults: Vec<Fault>,
    ) {
        // The API server drops a client's values here when an object is created.
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
        }
        let resource = (book.admission.resource)();
        let review = |object: &Value, judge: admission_rules::judge::Handler| {
            let request = json!({
                "uid": "",
                "kind": { "group": resource.group, "version": resource.version, "kind": resource.kind },
                "operation": "CREATE",
                "userInfo": { "username": UNKNOWN_USER },
                "object": object,
            });
            let request = request.to_string();
            Request::read(&request).map(|request| judge(&request, now))
        };
        let verdict = review(&object, book.admission.mutate).and_then(|mutation| {
            let operations = json!(mutation.response.patch);
            let patch: json_patch::Patch = serde_json::from_value(operations)?;
            // Operations that do not apply leave the object unchanged: the validating handler reports the reason.
            let _ = json_patch::patch(&mut object, &patch);
            self.patch = Some(mutation.response.patch);
            review(&object, book.admission.validate)
        });
        match verdict {
            Ok(verdict) => {
                self.warnings.clone_from(&verdict.response.warnings);
                if !verdict.response.allowed && verdict.faults.is_empty() {
                    faults.extend(unexplained(&verdict.response, &faults));
                }
                // Both the schema and the decoder report a wrong type, and both the schema and a rule of the kind a
                // number out of bounds.
                let said: Vec<String> = faults.iter().map(|fault| fault.field.clone()).collect();
                let new_faults = verdict.faults.into_iter().filter(|fault| {
                    let again = match fault.reason {
                        Reason::TypeInvalid => true,
                        Reason::Invalid => fault.field.starts_with("spec."),
                        _ => false,
                    };
                    !(again && said.contains(&fault.field))
                });
                faults.extend(new_faults);
            }
            Err(error) => faults.push(Fault::invalid("", Value::Null, &error.to_string())),
        }
        for fault in faults {
            self.fault(node, &fault.field, Why::Field(fault.reason), fault.message);
        }
    }

    fn fault(&mut self, node: &Node, field: &str, reason: Why, message: String) {
        let (line, column) = node.position_of(field);
        self.faults.push(Found {
            field: field.to_owned(),
            line,
            column,
            reason,
            message,
            by: None,
        });
    }

    /// Adds faults of fields that have none yet: the webhook reads a part of each template too.
    fn add(&mut self, faults: Vec<Found>) {
        // A key of a map is `labels.KEY` to a schema and `labels[KEY]` to a rule.
        let plain = |field: &str| field.replace('[', ".").replace(']', "");
        let said: HashSet<String> = self.faults.iter().map(|f| plain(&f.field)).collect();
        let new = faults
            .into_iter()
            .filter(|f| !said.contains(&plain(&f.field)));
        self.faults.extend(new);
    }
}

/// A rejection without faults: the object could not be read. If that is due to `metadata`, the fault is in `faults`
/// already.
fn unexplained(response: &Response, faults: &[Fault]) -> Option<Fault> {
    if !faults.is_empty() {
        return None;
    }
    let status = serde_json::to_value(&response.status).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or("refused");
    Some(Fault::invalid("", Value::Null, message))
}

/// The API server's checks of `metadata`, as far as they need no cluster.
fn check_metadata(object: &Value) -> Vec<Fault> {
    let metadata = match rules::decode::<ObjectMeta>("metadata", object.get("metadata")) {
        Ok(metadata) => metadata,
        Err(fault) => return vec![fault],
    };
    let mut faults = Vec::new();
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (name, prefix) = (given(metadata.name), given(metadata.generate_name));
    if let Some(prefix) = &prefix {
        // The API server adds five letters and digits.
        let name = format!("{prefix}x");
        check_name("metadata.generateName", prefix, &name, &mut faults);
    }
    match (&name, &prefix) {
        (Some(name), _) => check_name("metadata.name", name, name, &mut faults),
        (None, Some(_)) => {}
        (None, None) => faults.push(Fault::required(
            "metadata.name",
            "name or generateName is required",
        )),
    }
    faults
}

fn check_name(field: &str, given: &str, name: &str, faults: &mut Vec<Fault>) {
    if !name.split('.').all(has_form_of_label) {
        let detail = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
            characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
            'example.com', regex used for validation is \
            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        faults.push(Fault::invalid(field, given, detail));
    }
}
