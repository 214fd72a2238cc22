//! The effect of writes on the store, whether by a client or by the test itself.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Map, Value, json};

use crate::admission::{Admission, Review};
use crate::call::Verb;
use crate::pod;
use crate::resource::Behavior;
use crate::resource::Resource;
use crate::status::{FieldError, Status, details};
use crate::store::{Key, Moment, Store, Stored};

/// The characters of the suffix of generated names, without those that spell words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_GENERATED: usize = 63 - SUFFIX;
/// Finalizers that the garbage collector removes.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// One write: its target, its time and its client.
pub(crate) struct Write<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) resource: Arc<Resource>,
    pub(crate) key: Key,
    pub(crate) subresource: Option<String>,
    /// The name under which the client owns fields.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) moment: Moment,
    pub(crate) admission: Option<Arc<Admission>>,
    /// The namespace of the object, if it must exist.
    pub(crate) namespaces: Option<Key>,
}

/// The preconditions on the stored object. If they do not hold, the write is a conflict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// The options of a delete.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) preconditions: Preconditions,
    pub(crate) propagation: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn parse(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let preconditions = &body["preconditions"];
        Self {
            grace: body["gracePeriodSeconds"].as_i64(),
            preconditions: Preconditions {
                uid: text(&preconditions["uid"]),
                version: text(&preconditions["resourceVersion"]),
            },
            propagation: text(&body["propagationPolicy"]),
        }
    }
}

/// The result of a delete.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    Gone(Arc<Stored>),
    /// It has a grace period or finalizers.
    Pending(Arc<Stored>),
}

/// A time as metadata shows it.
pub(crate) fn seconds(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn fields<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !value[name].is_object() {
        value[name] = json!({});
    }
    match &mut value[name] {
        Value::Object(fields) => fields,
        // The line above made it an object.
        _ => unreachable!("{name} is an object"),
    }
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    let list = list.into_iter().flatten().filter_map(Value::as_str);
    list.map(str::to_owned).collect()
}

/// What another deletion of an object that is being deleted changes.
enum Again {
    Unchanged,
    /// It has this grace period now.
    Shorter(i64),
    /// The grace period was over already.
    Over,
}

impl Write<'_> {
    fn name(&self) -> &str {
        &self.key.name
    }

    fn stored(&self) -> Result<Arc<Stored>, Status> {
        let found = self.store.get(&self.key).cloned();
        found.ok_or_else(|| Status::not_found(&self.resource, self.name()))
    }

    /// Calls the cluster's admission.
    fn review(&self, verb: Verb, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        let Some(admission) = &self.admission else {
            return Ok(());
        };
        let plural = self.resource.plural.as_str();
        let with_subresource = self
            .subresource
            .as_ref()
            .map(|sub| format!("{plural}/{sub}"));
        admission(&mut Review {
            user: &self.moment.by,
            verb,
            resource: with_subresource.as_deref().unwrap_or(plural),
            object,
            old,
        })
    }

    /// Stores a version, unless this is a dry run.
    fn put(&mut self, value: Value) -> Arc<Stored> {
        if self.dry_run {
            let version = self.store.get(&self.key).map_or(0, |old| old.version);
            return Stored::new(value, version);
        }
        self.store.put(&self.key, value, &self.moment)
    }

    fn remove(&mut self, last: &Arc<Stored>) -> Arc<Stored> {
        if self.dry_run {
            return last.clone();
        }
        let removed = self.store.remove(&self.key, &self.moment);
        removed.unwrap_or_else(|| last.clone())
    }

    /// Makes an object.
    pub(crate) fn create(&mut self, object: Value) -> Result<Arc<Stored>, Status> {
        self.create_owned(object, Value::Null)
    }

    /// Makes an object with those managedFields.
    pub(crate) fn create_owned(
        &mut self,
        mut object: Value,
        managed: Value,
    ) -> Result<Arc<Stored>, Status> {
        if !object.is_object() {
            return Err(Status::bad_request("the body is not an object"));
        }
        self.check_type(&object)?;
        let metadata = fields(&mut object, "metadata");
        self.check_new_metadata(metadata)?;
        let name = self.choose_name(metadata)?;
        self.key.name = name.as_str().into();
        self.check_namespace()?;
        self.complete_metadata(fields(&mut object, "metadata"), managed);
        self.normalize(&mut object);
        self.set_first_status(&mut object);
        self.review(Verb::Create, &mut object, None)?;
        self.validate(&object, None)?;
        if let Some(old) = self.store.get(&self.key) {
            let mut status = Status::already_exists(&self.resource, &name);
            if !old.value["metadata"]["deletionTimestamp"].is_null() {
                status.message = format!("object is being deleted: {}", status.message);
            }
            return Err(status);
        }
        Ok(self.put(object))
    }

    fn check_new_metadata(&self, metadata: &Map<String, Value>) -> Result<(), Status> {
        let given = metadata.get("namespace").and_then(Value::as_str);
        if given.is_some_and(|given| !given.is_empty() && *given != *self.key.namespace) {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        let version = metadata.get("resourceVersion").and_then(Value::as_str);
        if version.is_some_and(|version| !version.is_empty()) {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(500, "", message));
        }
        Ok(())
    }

    /// Sets what the API server decides about the metadata of a new object.
    fn complete_metadata(&mut self, metadata: &mut Map<String, Value>, managed: Value) {
        metadata.insert("name".to_owned(), json!(&*self.key.name));
        if self.resource.namespaced {
            metadata.insert("namespace".to_owned(), json!(&*self.key.namespace));
        }
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), json!(self.store.uid()));
        metadata.insert(
            "creationTimestamp".to_owned(),
            json!(seconds(self.moment.time)),
        );
        if self.resource.generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
        if !managed.is_null() {
            metadata.insert("managedFields".to_owned(), managed);
        }
    }

    fn set_first_status(&self, object: &mut Value) {
        // Nodes and namespaces keep the status with which they are created; the other kinds start without one.
        if self.resource.status && self.resource.plural != "nodes" {
            put_or_remove(object, "status", Value::Null);
        }
        match self.resource.behavior {
            Behavior::Pod => pod::default(object),
            Behavior::Namespace => {
                object["spec"]["finalizers"] = json!(["kubernetes"]);
                object["status"]["phase"] = json!("Active");
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] =
                    json!(&*self.key.name);
            }
            Behavior::Custom | Behavior::Plain => {}
        }
    }

    /// The name, or one made from generateName.
    fn choose_name(&mut self, metadata: &Map<String, Value>) -> Result<String, Status> {
        let get = |field| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (name, base) = (get("name"), get("generateName"));
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        if base.is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(Status::invalid(&self.resource, "", &[error]));
        }
        let base: String = base.chars().take(MAX_GENERATED).collect();
        // The next UID counts the created objects, so that each name is unique.
        let mut number = self.store.count();
        loop {
            let mut name = base.clone();
            let mut rest = number;
            for _ in 0..SUFFIX {
                let length = ALPHABET.len() as u64;
                let place = usize::try_from(rest % length).unwrap_or_default();
                name.push(char::from(ALPHABET[place]));
                rest /= length;
            }
            let key = Key::new(self.key.resource, &self.key.namespace, &name);
            if self.store.get(&key).is_none() {
                return Ok(name);
            }
            number += 1;
        }
    }

    fn check_type(&self, object: &Value) -> Result<(), Status> {
        let (version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        let expected = self.resource.api_version();
        if (version.is_empty() || version == expected)
            && (kind.is_empty() || kind == self.resource.kind)
        {
            return Ok(());
        }
        let group = if self.resource.group.is_empty() {
            "core"
        } else {
            &self.resource.group
        };
        let message = format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: converting ({version}.{kind}) to ({group}.{wanted}): unknown conversion",
            wanted = self.resource.kind
        );
        Err(Status::bad_request(message))
    }

    /// Rejects a create in a namespace that is absent or being deleted.
    fn check_namespace(&self) -> Result<(), Status> {
        let Some(key) = &self.namespaces else {
            return Ok(());
        };
        let Some(namespace) = self.store.get(key) else {
            let message = format!("namespaces \"{}\" not found", key.name);
            return Err(Status::new(404, "NotFound", message)
                .with_details(json!({"name": &*key.name, "kind": "namespaces"})));
        };
        if namespace.value["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let cause = format!(
            "unable to create new content in namespace {} because it is being terminated",
            key.name
        );
        let mut status = Status::forbidden(&self.resource, self.name(), &cause);
        let mut details = details(&self.resource, self.name());
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {} is being terminated", key.name),
            "field": "metadata.namespace",
        }]);
        status.details = Some(details);
        Err(status)
    }

    /// Drops what the API's types leave out when it is empty, and sets the type.
    fn normalize(&self, object: &mut Value) {
        if self.resource.behavior != Behavior::Custom {
            // What a ControllerRevision holds has no type, and is stored as it comes.
            let untyped =
                (self.resource.kind == "ControllerRevision").then(|| object["data"].take());
            drop_nulls(object);
            if let Some(data) = untyped.filter(|data| !data.is_null()) {
                object["data"] = data;
            }
        }
        object["apiVersion"] = json!(self.resource.api_version());
        object["kind"] = json!(self.resource.kind);
        let metadata = fields(object, "metadata");
        metadata.retain(|name, value| match value {
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty() || name == "name",
            _ => true,
        });
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Result<(), Status> {
        let mut errors = Vec::new();
        validate_metadata(object, old, &mut errors);
        if self.resource.behavior == Behavior::Pod && self.subresource.is_none() {
            pod::validate(object, old, &mut errors);
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&self.resource, self.name(), &errors))
    }

    /// Replaces an object with a client's.
    pub(crate) fn replace(&mut self, object: Value) -> Result<Arc<Stored>, Status> {
        self.check_type(&object)?;
        let sent = text(&object["metadata"], "name");
        if sent != self.name() {
            let message = format!(
                "the name of the object ({sent}) does not match the name on the URL ({})",
                self.name()
            );
            return Err(Status::bad_request(message));
        }
        let uid = text(&object["metadata"], "uid").to_owned();
        let old = self.stored()?;
        if !uid.is_empty() && uid != old.uid() {
            let group = if self.resource.group.is_empty() {
                String::new()
            } else {
                format!("{}/", self.resource.group)
            };
            let namespace = if self.key.namespace.is_empty() {
                String::new()
            } else {
                format!("{}/", self.key.namespace)
            };
            let cause = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{namespace}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                self.resource.plural,
                self.name(),
                old.uid()
            );
            return Err(Status::conflict(&self.resource, self.name(), &cause));
        }
        self.update(|_| Ok(object))
    }

    /// Changes an object by anything but server-side apply.
    pub(crate) fn update(
        &mut self,
        change: impl FnOnce(&Stored) -> Result<Value, Status>,
    ) -> Result<Arc<Stored>, Status> {
        self.store_change(change, true)
    }

    /// Changes an object, with its managedFields.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&Stored) -> Result<Value, Status>,
    ) -> Result<Arc<Stored>, Status> {
        self.store_change(change, false)
    }

    fn store_change(
        &mut self,
        change: impl FnOnce(&Stored) -> Result<Value, Status>,
        takes_over: bool,
    ) -> Result<Arc<Stored>, Status> {
        let old = self.stored()?;
        let mut new = change(&old)?;
        let version = text(fields_of(&new), "resourceVersion").to_owned();
        if version.is_empty() && !self.resource.unconditional_update {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            // The real server gives the plural instead of the kind here.
            let mut resource = Resource::clone(&self.resource);
            resource.kind.clone_from(&resource.plural);
            return Err(Status::invalid(&resource, self.name(), &[error]));
        }
        if !version.is_empty() && version != old.version.to_string() {
            return Err(Status::modified(&self.resource, self.name()));
        }
        self.prepare(&old.value, &mut new);
        if takes_over {
            self.take_over(&old.value, &mut new);
        }
        self.review(Verb::Update, &mut new, Some(&old.value))?;
        self.validate(&new, Some(&old.value))?;
        if new == old.value {
            return Ok(old);
        }
        let metadata = &old.value["metadata"];
        if finalizers(&new).is_empty() && metadata["deletionGracePeriodSeconds"] == 0 {
            // When the last finalizer of a deleted object is removed, the object is removed.
            let last = Stored::new(new, old.version);
            self.remove(&old);
            return Ok(last);
        }
        Ok(self.put(new))
    }

    /// Copies the parts that this endpoint does not change from the stored object.
    fn prepare(&self, old: &Value, new: &mut Value) {
        let custom = self.resource.behavior == Behavior::Custom;
        match self.subresource.as_deref() {
            Some("status") if custom => {
                let status = new["status"].take();
                let managed = new["metadata"]["managedFields"].take();
                *new = old.clone();
                put_or_remove(new, "status", status);
                put_or_remove(&mut new["metadata"], "managedFields", managed);
            }
            Some("status") => {
                put_or_remove(new, "spec", old["spec"].clone());
                let owners = old["metadata"]["ownerReferences"].clone();
                put_or_remove(&mut new["metadata"], "ownerReferences", owners);
            }
            _ if self.resource.status => {
                put_or_remove(new, "status", old["status"].clone());
            }
            _ => {}
        }
        let kept = &old["metadata"];
        let metadata = fields(new, "metadata");
        for field in ["uid", "creationTimestamp", "name", "namespace"] {
            let absent = metadata.get(field).is_none_or(|v| v.is_null() || v == "");
            if let (true, Some(kept)) = (absent, kept.get(field)) {
                metadata.insert(field.to_owned(), kept.clone());
            }
        }
        let deleting = !kept["deletionTimestamp"].is_null();
        let always: &[&str] = if deleting {
            &[
                "generation",
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            ]
        } else {
            &["generation", "resourceVersion"]
        };
        for &field in always {
            match kept.get(field) {
                Some(kept) => metadata.insert(field.to_owned(), kept.clone()),
                None => metadata.remove(field),
            };
        }
        metadata.remove("selfLink");
        self.normalize(new);
        if self.resource.generation && self.subresource.is_none() && spec_differs(old, new) {
            let generation = kept["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
    }

    /// Deletes an object, or begins to.
    pub(crate) fn delete(&mut self, options: &DeleteOptions) -> Result<Deleted, Status> {
        let mut old = self.stored()?;
        self.check_preconditions(&old, &options.preconditions)?;
        let mut object = old.value.clone();
        self.review(Verb::Delete, &mut object, None)?;
        let grace = match self.resource.behavior {
            Behavior::Pod => Some(pod::grace(&object, options.grace)),
            // A namespace ends when its content has.
            Behavior::Namespace => {
                if object["metadata"]["deletionTimestamp"].is_null() {
                    object["metadata"]["deletionTimestamp"] = json!(seconds(self.moment.time));
                    object["status"]["phase"] = json!("Terminating");
                    old = self.put(object);
                }
                return Ok(Deleted::Pending(old));
            }
            Behavior::Custom | Behavior::Plain => None,
        };
        let graceful = if object["metadata"]["deletionTimestamp"].is_null() {
            if let Some(grace) = grace {
                self.mark(&mut object, grace);
            }
            grace
        } else {
            match self.shorten(&mut object, options.grace) {
                Again::Unchanged => return Ok(Deleted::Pending(old)),
                Again::Shorter(grace) => Some(grace),
                Again::Over => None,
            }
        };
        let mut list = finalizers(&object);
        match options.propagation.as_deref() {
            Some("Foreground") => add_finalizer(&mut list, FOREGROUND, ORPHAN),
            Some("Orphan") => add_finalizer(&mut list, ORPHAN, FOREGROUND),
            _ => {}
        }
        if !list.is_empty() {
            if object["metadata"]["deletionTimestamp"].is_null() {
                self.mark(&mut object, 0);
            }
            object["metadata"]["finalizers"] = json!(list);
        }
        if object != old.value {
            old = self.put(object);
        }
        if !list.is_empty() || graceful.is_some_and(|grace| grace > 0) {
            return Ok(Deleted::Pending(old));
        }
        Ok(Deleted::Gone(self.remove(&old)))
    }

    /// A deletion of an object that is being deleted: it can shorten the grace period.
    fn shorten(&self, object: &mut Value, grace: Option<i64>) -> Again {
        let metadata = &mut object["metadata"];
        let pending = metadata["deletionGracePeriodSeconds"].as_i64();
        let pending = pending.unwrap_or_default();
        match grace {
            _ if pending == 0 => Again::Over,
            Some(shorter) if shorter < pending => {
                let shorter = shorter.max(0);
                let end = text(metadata, "deletionTimestamp").parse::<DateTime<Utc>>();
                let end = end.unwrap_or(self.moment.time) - TimeDelta::seconds(pending - shorter);
                metadata["deletionTimestamp"] = json!(seconds(end));
                metadata["deletionGracePeriodSeconds"] = json!(shorter);
                Again::Shorter(shorter)
            }
            _ => Again::Unchanged,
        }
    }

    /// The first half of a deletion without grace.
    pub(crate) fn begin_delete(&mut self) -> Result<Arc<Stored>, Status> {
        let mut object = self.stored()?.value.clone();
        self.mark(&mut object, 0);
        Ok(self.put(object))
    }

    /// Marks an object as being deleted.
    fn mark(&self, object: &mut Value, grace: i64) {
        let end = self.moment.time + TimeDelta::seconds(grace);
        let metadata = &mut object["metadata"];
        metadata["deletionTimestamp"] = json!(seconds(end));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = metadata["generation"].as_i64() {
            metadata["generation"] = json!(generation + 1);
        }
    }

    /// Removes an object for good, as the namespace controller does with a namespace that is empty.
    pub(crate) fn purge(&mut self) {
        if let Ok(old) = self.stored() {
            self.remove(&old);
        }
    }

    fn check_preconditions(&self, old: &Stored, wanted: &Preconditions) -> Result<(), Status> {
        let conflict =
            |cause: &str| Err(Status::delete_conflict(&self.resource, self.name(), cause));
        if let Some(uid) = wanted.uid.as_deref().filter(|uid| *uid != old.uid()) {
            return conflict(&format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                old.uid()
            ));
        }
        let version = old.version.to_string();
        if let Some(wanted) = wanted
            .version
            .as_deref()
            .filter(|wanted| *wanted != version)
        {
            return conflict(&format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ));
        }
        Ok(())
    }

    /// Binds a pod to a node.
    pub(crate) fn bind(&mut self, node: &str) -> Result<(), Status> {
        let old = self.stored()?;
        let bound = pod::bind(&old.value, node).map_err(|cause| {
            let message = format!(
                "Operation cannot be fulfilled on pods/binding \"{}\": {cause}",
                self.name()
            );
            Status::new(409, "Conflict", message)
                .with_details(json!({"name": self.name(), "kind": "pods/binding"}))
        })?;
        self.put(bound);
        Ok(())
    }
}

/// The validation of every object's metadata.
fn validate_metadata(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owners = || owners.into_iter().flatten();
    let named = |owner: &Value| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
    let controllers: Vec<String> = owners()
        .filter(|o| o["controller"] == true)
        .map(named)
        .collect();
    if let [one, other, ..] = controllers.as_slice() {
        let references: Vec<String> = owners().map(shown_reference).collect();
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: "metadata.ownerReferences".to_owned(),
            message: format!(
                "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {one} and {other}",
                references.join(",")
            ),
        });
    }
    if let Some(old) = old {
        let (there, wanted) = (finalizers(old), finalizers(object));
        let deleting = !old["metadata"]["deletionTimestamp"].is_null();
        let new: Vec<_> = wanted.iter().filter(|f| !there.contains(f)).collect();
        if deleting && !new.is_empty() {
            let new: Vec<String> = new.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
        for field in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
        ] {
            let (new, old) = (&object["metadata"][field], &old["metadata"][field]);
            if new != old {
                let field = format!("metadata.{field}");
                errors.push(FieldError::invalid(&field, new, "field is immutable"));
            }
        }
    }
}

/// An owner reference in the form of messages.
fn shown_reference(owner: &Value) -> String {
    let names = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let fields = names.iter().filter(|name| !owner[**name].is_null());
    let fields = fields.map(|name| format!("\"{name}\":{}", owner[*name]));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn fields_of(object: &Value) -> &Value {
    &object["metadata"]
}

fn add_finalizer(list: &mut Vec<String>, added: &str, removed: &str) {
    list.retain(|there| there != removed);
    if !list.iter().any(|there| there == added) {
        list.push(added.to_owned());
    }
}

/// Whether anything but metadata and status differs.
fn spec_differs(old: &Value, new: &Value) -> bool {
    let spec = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    spec(old) != spec(new)
}

pub(crate) fn put_or_remove(object: &mut Value, field: &str, value: Value) {
    if value.is_null() {
        if let Value::Object(fields) = object {
            fields.remove(field);
        }
    } else {
        object[field] = value;
    }
}

/// Drops fields that the API's types leave out: those that are null, and empty lists.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| {
                !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
            });
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
