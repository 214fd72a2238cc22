//! Server-side apply: each manager owns the fields that it applies.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::managed::{self, Fields, Owner, Owners};
use crate::patch;
use crate::resource::Resource;
use crate::status::Status;
use crate::store::Stored;
use crate::write::{Write, put_or_remove, seconds, text};

/// The owner of the fields of an object to which no client applied anything before.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What one manager applies, at one time.
struct Application {
    /// The name of the object.
    name: String,
    owner: Owner,
    wanted: Value,
    /// The fields of `wanted`.
    mine: Fields,
    time: String,
    api_version: String,
}

impl Application {
    /// The object after this application.
    fn merge(&self, resource: &Resource, old: &Value, force: bool) -> Result<Value, Status> {
        let mut owners = owners_of(resource, old);
        let previous = owners.remove(&self.owner).unwrap_or_default();
        let conflicts = conflicts(&owners, &self.mine, old, &self.wanted);
        if !conflicts.is_empty() && !force {
            return Err(conflict(&self.api_version, &conflicts));
        }
        for (owner, path) in &conflicts {
            if let Some((fields, _)) = owners.get_mut(owner) {
                fields.remove(path);
            }
        }
        let mut new = patch::applied(resource, old, &self.wanted);
        new["metadata"]["name"] = json!(self.name);
        // Fields that this manager no longer applies are removed, unless another manager owns them, too. Items come
        // before their fields and are removed with them.
        for path in previous.0.difference(&self.mine) {
            if !owners.values().any(|(fields, _)| owns(fields, path)) {
                managed::remove(&mut new, path);
            }
        }
        let is_new = previous.0 != self.mine;
        let time = if is_new {
            self.time.clone()
        } else {
            previous.1
        };
        owners.insert(self.owner.clone(), (self.mine.clone(), time));
        let managed = managed::write(&owners, &self.api_version);
        put_or_remove(&mut new["metadata"], "managedFields", managed);
        Ok(new)
    }
}

impl Write<'_> {
    /// Applies an object. Returns it, and whether it is new.
    pub(crate) fn apply(
        &mut self,
        object: &Value,
        force: bool,
    ) -> Result<(Arc<Stored>, bool), Status> {
        if !object["metadata"]["managedFields"].is_null() {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let wanted = self.applicable(object);
        let application = Application {
            name: self.key.name.to_string(),
            owner: Owner {
                manager: self.manager.clone(),
                applied: true,
                subresource: self.subresource.clone().unwrap_or_default(),
            },
            mine: managed::fields(&self.resource, &wanted),
            wanted,
            time: seconds(self.moment.time),
            api_version: self.resource.api_version(),
        };
        if self.store.get(&self.key).is_none() {
            return Ok((self.create_by_apply(object, application)?, true));
        }
        let resource = self.resource.clone();
        let stored = self.change(|old| application.merge(&resource, &old.value, force))?;
        Ok((stored, false))
    }

    fn create_by_apply(
        &mut self,
        object: &Value,
        application: Application,
    ) -> Result<Arc<Stored>, Status> {
        let uid = text(&object["metadata"], "uid");
        if !uid.is_empty() {
            let cause = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(&self.resource, &self.key.name, &cause));
        }
        let Application {
            name,
            owner,
            mine,
            time,
            api_version,
            ..
        } = application;
        let owners = Owners::from([(owner, (mine, time))]);
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        self.create_owned(object, managed::write(&owners, &api_version))
    }

    /// The part of an applied object that this endpoint accepts.
    fn applicable(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            match self.subresource.as_deref() {
                Some("status") => {
                    fields.retain(|name, _| matches!(name.as_str(), "metadata" | "status"));
                }
                _ if self.resource.status => {
                    fields.remove("status");
                }
                _ => {}
            }
        }
        object
    }

    /// Records the fields that a write other than an apply changed, on objects with applied fields.
    pub(crate) fn take_over(&self, old: &Value, new: &mut Value) {
        if old["metadata"]["managedFields"].is_null() {
            put_or_remove(&mut new["metadata"], "managedFields", Value::Null);
            return;
        }
        let mut owners = managed::read(old);
        let (changed, gone) = managed::difference(&self.resource, old, new);
        for (fields, _) in owners.values_mut() {
            fields.retain(|path| !changed.contains(path) && !gone.contains(path));
        }
        if !changed.is_empty() {
            let owner = Owner {
                manager: self.manager.clone(),
                applied: false,
                subresource: self.subresource.clone().unwrap_or_default(),
            };
            let (fields, time) = owners.entry(owner).or_default();
            fields.extend(changed);
            *time = seconds(self.moment.time);
        }
        let managed = managed::write(&owners, &self.resource.api_version());
        put_or_remove(&mut new["metadata"], "managedFields", managed);
    }
}

/// Whether a field, or an item with such a field, belongs to an owner.
fn owns(fields: &managed::Fields, path: &managed::Path) -> bool {
    fields.contains(path)
        || fields
            .range(path.clone()..)
            .next()
            .is_some_and(|next| next.starts_with(path))
}

/// The owners of an object's fields.
fn owners_of(resource: &crate::Resource, object: &Value) -> Owners {
    if !object["metadata"]["managedFields"].is_null() {
        return managed::read(object);
    }
    let owner = Owner {
        manager: BEFORE_FIRST_APPLY.to_owned(),
        applied: false,
        subresource: String::new(),
    };
    let time = text(&object["metadata"], "creationTimestamp").to_owned();
    Owners::from([(owner, (managed::fields(resource, object), time))])
}

/// The fields that other managers own with a value other than the wanted one.
fn conflicts(
    owners: &Owners,
    mine: &managed::Fields,
    old: &Value,
    wanted: &Value,
) -> Vec<(Owner, managed::Path)> {
    let mut found = Vec::new();
    for (owner, (fields, _)) in owners {
        for path in mine.intersection(fields) {
            let item = path.last().is_some_and(|step| !step.starts_with("f:"));
            if !item && managed::at(old, path) != managed::at(wanted, path) {
                found.push((owner.clone(), path.clone()));
            }
        }
    }
    // In the order of the real server: in each object first its own fields, then nested ones.
    found.sort_by(|(one, path), (other, other_path)| {
        one.cmp(other).then_with(|| {
            let differ = path
                .iter()
                .zip(other_path)
                .position(|(step, other)| step != other);
            let depth = differ.unwrap_or_default() + 1;
            let deeper = |path: &managed::Path| path.len() > depth;
            deeper(path)
                .cmp(&deeper(other_path))
                .then_with(|| path.cmp(other_path))
        })
    });
    found
}

fn conflict(api_version: &str, conflicts: &[(Owner, managed::Path)]) -> Status {
    let name = |owner: &Owner| {
        let mut text = format!("{:?}", owner.manager);
        if !owner.subresource.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(text, " with subresource {:?}", owner.subresource);
        }
        if !owner.applied {
            let _ = write!(text, " using {api_version}");
        }
        text
    };
    let mut by_owner: Vec<(&Owner, Vec<String>)> = Vec::new();
    for (owner, path) in conflicts {
        match by_owner.last_mut() {
            Some((last, paths)) if *last == owner => paths.push(managed::shown(path)),
            _ => by_owner.push((owner, vec![managed::shown(path)])),
        }
    }
    let parts: Vec<String> = by_owner
        .iter()
        .map(|(owner, paths)| match paths.as_slice() {
            [path] => format!("conflict with {}: {path}", name(owner)),
            paths => format!("conflicts with {}:\n- {}", name(owner), paths.join("\n- ")),
        })
        .collect();
    let plural = if conflicts.len() == 1 {
        "conflict"
    } else {
        "conflicts"
    };
    let message = format!(
        "Apply failed with {} {plural}: {}",
        conflicts.len(),
        parts.join("\n")
    );
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(owner, path)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", name(owner)),
                "field": managed::shown(path),
            })
        })
        .collect();
    Status::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}
