//! What the server stores, and how requests read and change it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::call::{Call, PatchType, Verb};
use crate::history::{self, Delivery};
use crate::resource::{Behavior, Resource};
use crate::site::Site;
use crate::status::{Status, details};
use crate::store::{Key, Moment, Store, Stored, complete};
use crate::watch::Watches;
use crate::write::{DeleteOptions, Deleted, Write, text};
use crate::{patch, pod};

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) watches: Watches,
    pub(crate) admission: Option<Arc<Admission>>,
    pub(crate) reached: BTreeMap<Site, u32>,
    pub(crate) requests: Vec<history::Request>,
    pub(crate) deliveries: Vec<Delivery>,
    /// The part of the log of which watches were notified.
    pub(crate) announced: usize,
}

/// The answer to any request but a watch.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
    pub(crate) retry_after: Option<Duration>,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        let body = if status.reason.is_empty() && status.code == 404 {
            // A path that is not served is answered in plain text.
            status.message.clone().into()
        } else {
            status.to_value().to_string().into()
        };
        Self {
            code: status.code,
            body,
            retry_after: status.retry_after,
        }
    }
}

pub(crate) fn ok(body: Bytes) -> Answer {
    Answer {
        code: 200,
        body,
        retry_after: None,
    }
}

impl State {
    pub(crate) fn new(resources: Vec<Arc<Resource>>) -> Self {
        Self {
            store: Store::default(),
            resources,
            watches: Watches::default(),
            admission: None,
            reached: BTreeMap::new(),
            requests: Vec::new(),
            deliveries: Vec::new(),
            announced: 0,
        }
    }

    /// Carries out any request but a watch.
    pub(crate) fn execute(
        &mut self,
        user: &str,
        call: &Call,
        moment: Moment,
    ) -> Result<Answer, Status> {
        match call.verb {
            Verb::Get => {
                let found = self.store.get(&call.key(&call.name)).cloned();
                let found = found.ok_or_else(|| Status::not_found(&call.resource, &call.name))?;
                Ok(whole(call, 200, &found))
            }
            Verb::List => self.list(user, call, &moment),
            Verb::Create => self.post(call, moment),
            Verb::Update => {
                let object = call.json()?;
                let stored = self.write(call, &call.name, moment).replace(object)?;
                Ok(whole(call, 200, &stored))
            }
            Verb::Patch => self.patch(call, moment),
            Verb::Delete => self.delete(call, moment),
            Verb::DeleteCollection => self.delete_collection(call, &moment),
            // Watches are opened before this.
            Verb::Watch => Err(Status::bad_request("a watch is not a request on objects")),
        }
    }

    fn list(&mut self, user: &str, call: &Call, moment: &Moment) -> Result<Answer, Status> {
        if let Some(status) = self.watches.refusal(user, call) {
            return Err(status);
        }
        let stale = self.watches.stale(user, call);
        let body = crate::list::list(&self.store, call, stale)?;
        if call.query.get("continue").is_none() {
            // Later pages show the same snapshot.
            let version = stale.unwrap_or_else(|| self.store.version());
            self.delivered(user, &call.resource.plural, version, moment.elapsed);
        }
        Ok(ok(body))
    }

    fn patch(&mut self, call: &Call, moment: Moment) -> Result<Answer, Status> {
        let body = call.json()?;
        let mut write = self.write(call, &call.name, moment);
        let stored = match call.patch {
            Some(PatchType::Apply) => {
                let (stored, created) = write.apply(&body, call.query.is_true("force"))?;
                return Ok(whole(call, if created { 201 } else { 200 }, &stored));
            }
            Some(PatchType::Json) => write.update(|old| patch::json(&old.value, &body)),
            Some(PatchType::Strategic) if call.resource.behavior == Behavior::Custom => {
                let message = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                return Err(Status::new(415, "UnsupportedMediaType", message));
            }
            Some(PatchType::Strategic) => {
                write.update(|old| Ok(patch::strategic(&call.resource, &old.value, &body)))
            }
            _ => write.update(|old| Ok(patch::merge(&old.value, &body))),
        }?;
        Ok(whole(call, 200, &stored))
    }

    fn delete(&mut self, call: &Call, moment: Moment) -> Result<Answer, Status> {
        let options = delete_options(call)?;
        let deleted = self.write(call, &call.name, moment).delete(&options)?;
        Ok(match deleted {
            Deleted::Pending(object) => whole(call, 200, &object),
            Deleted::Gone(object) if call.resource.returns_deleted => whole(call, 200, &object),
            Deleted::Gone(object) => {
                let mut details = details(&call.resource, &call.name);
                details["uid"] = json!(object.uid());
                let body = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Success", "details": details,
                });
                ok(body.to_string().into())
            }
        })
    }

    fn delete_collection(&mut self, call: &Call, moment: &Moment) -> Result<Answer, Status> {
        let options = delete_options(call)?;
        let selector = call.query.selector()?;
        let listed = crate::list::list(&self.store, call, None)?;
        let selected: Vec<Key> = self
            .store
            .list(call.index, &call.namespace)
            .filter(|(_, object)| selector.matches(&object.value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in selected {
            self.write_on(key, moment.clone()).delete(&options)?;
        }
        Ok(ok(listed))
    }

    /// Records what a client has learned.
    pub(crate) fn delivered(&mut self, user: &str, resource: &str, version: u64, at: Duration) {
        self.deliveries.push(Delivery {
            user: user.into(),
            resource: resource.into(),
            version,
            elapsed: at,
        });
    }

    /// A write that a client asks for.
    fn write(&mut self, call: &Call, name: &str, moment: Moment) -> Write<'_> {
        let write = self.write_on(call.key(name), moment);
        Write {
            subresource: call.subresource.clone(),
            dry_run: call.query.dry_run(),
            manager: call.manager(&write.moment.by),
            ..write
        }
    }

    /// A write on an object, or in its collection if its name is empty.
    pub(crate) fn write_on(&mut self, key: Key, moment: Moment) -> Write<'_> {
        let resource = self.resources[key.resource].clone();
        Write {
            namespaces: self.namespace_key(&resource, &key.namespace),
            admission: self.admission.clone(),
            manager: moment.by.to_string(),
            store: &mut self.store,
            resource,
            key,
            subresource: None,
            dry_run: false,
            moment,
        }
    }

    /// The key of the namespace of a namespaced object.
    pub(crate) fn namespace_key(&self, resource: &Resource, namespace: &str) -> Option<Key> {
        let namespaces = |r: &Arc<Resource>| r.behavior == Behavior::Namespace;
        let index = self.resources.iter().position(namespaces)?;
        resource.namespaced.then(|| Key::new(index, "", namespace))
    }

    /// A POST: on a collection, or on a subresource.
    fn post(&mut self, call: &Call, moment: Moment) -> Result<Answer, Status> {
        let body = call.json()?;
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let success = Answer {
            code: 201,
            body: success.to_string().into(),
            retry_after: None,
        };
        match call.subresource.as_deref() {
            None => {
                let stored = self.write(call, "", moment).create(body)?;
                Ok(whole(call, 201, &stored))
            }
            Some("binding") => {
                let node = text(&body["target"], "name").to_owned();
                self.write(call, &call.name, moment).bind(&node)?;
                Ok(success)
            }
            Some("eviction") => {
                let options = DeleteOptions::parse(&body["deleteOptions"]);
                let mut write = self.write(call, &call.name, moment);
                write.subresource = Some("status".to_owned());
                write.update(|old| {
                    let mut pod = old.value.clone();
                    let more = json!({"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
                    pod::set_condition(&mut pod, "DisruptionTarget", "True", more);
                    Ok(pod)
                })?;
                write.delete(&options)?;
                Ok(success)
            }
            Some(_) => Err(Status::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )),
        }
    }
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        call.json()?
    };
    let mut options = DeleteOptions::parse(&body);
    if let Some(grace) = call.query.get("gracePeriodSeconds") {
        options.grace = grace.parse().ok();
    }
    if let Some(propagation) = call.query.get("propagationPolicy") {
        options.propagation = Some(propagation.to_owned());
    }
    Ok(options)
}

/// An answer with one object.
fn whole(call: &Call, code: u16, object: &Stored) -> Answer {
    let mut body = Vec::new();
    complete(&call.resource, call.form, object, &mut body);
    Answer {
        code,
        body: body.into(),
        retry_after: None,
    }
}
