//! Reads and writes of a scenario, which no fault touches.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::patch;
use crate::resource::Resource;
use crate::server::Server;
use crate::status::Status;
use crate::store::{Key, Stored};
use crate::write::{DeleteOptions, Write, text};

/// Reads and writes of users, other controllers and kubelets in a scenario: at once, and without faults. They are not
/// among the requests of the [`History`](crate::History), but the versions that they write are, with their user.
///
/// A `kind` is a kind or a plural, followed by a dot and the group if that is ambiguous: `Pod`, `pods`,
/// `Event.events.k8s.io`. The namespace of cluster-scoped objects is ignored. The errors are those of the API server,
/// and 404 for a kind that is not registered.
pub struct Direct<'a> {
    server: &'a Server,
    user: &'a str,
}

impl Server {
    /// Reads and writes without faults, as the user `kubectl`.
    pub fn direct(&self) -> Direct<'_> {
        self.direct_as("kubectl")
    }

    /// The same as another user.
    pub fn direct_as<'a>(&'a self, user: &'a str) -> Direct<'a> {
        Direct { server: self, user }
    }
}

impl Direct<'_> {
    /// Makes one write on an object of a kind.
    fn write<T>(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        act: impl FnOnce(&mut Write<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let moment = self.server.moment(self.user);
        self.server.act(|state| {
            let (index, resource) = find(&state.resources, kind)?;
            let namespace = if resource.namespaced { namespace } else { "" };
            let mut write = state.write_on(Key::new(index, namespace, name), moment);
            write.subresource = subresource.map(str::to_owned);
            act(&mut write)
        })
    }

    /// Creates an object, in its namespace or in `default`.
    ///
    /// # Errors
    /// As by the API.
    pub fn create(&self, object: Value) -> Result<Value, Status> {
        let (kind, namespace) = place(&object);
        self.write(&kind, &namespace, "", None, |write| write.create(object))
            .map(|stored| stored.value.clone())
    }

    /// Creates an object, or applies it to the existing one, as `kubectl apply --server-side --force-conflicts`.
    ///
    /// # Errors
    /// As by the API.
    pub fn apply(&self, object: &Value) -> Result<Value, Status> {
        let (kind, namespace) = place(object);
        let name = text(&object["metadata"], "name").to_owned();
        self.write(&kind, &namespace, &name, None, |write| {
            write.apply(object, true)
        })
        .map(|(stored, _)| stored.value.clone())
    }

    /// Creates a namespace, unless it exists.
    pub fn namespace(&self, name: &str) {
        // If it exists already, nothing is to be done.
        let _ = self
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }

    /// An object; None if it, or its kind, is not known.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.server.state();
        let (index, resource) = find(&state.resources, kind).ok()?;
        let namespace = if resource.namespaced { namespace } else { "" };
        let found = state.store.get(&Key::new(index, namespace, name));
        found.map(|stored| stored.value.clone())
    }

    /// The objects of a kind in one namespace, or in all if `namespace` is empty. A kind that is not registered has
    /// none.
    pub fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let state = self.server.state();
        let Ok((index, _)) = find(&state.resources, kind) else {
            return Vec::new();
        };
        let found = state.store.list(index, namespace);
        found.map(|(_, stored)| stored.value.clone()).collect()
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// As by the API: 404 if it does not exist.
    pub fn patch(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<Value, Status> {
        self.edit(kind, namespace, name, |object| {
            *object = patch::merge(object, change);
        })
    }

    /// Changes the status of an object by a merge patch of the whole object: `{"status": {..}}`.
    ///
    /// # Errors
    /// As by the API: 404 if it does not exist.
    pub fn patch_status(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<Value, Status> {
        self.edit_part(kind, namespace, name, Some("status"), |object| {
            *object = patch::merge(object, change);
        })
    }

    /// Replaces an object by what `change` makes of it.
    ///
    /// # Errors
    /// As by the API: 404 if it does not exist.
    pub fn edit(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        self.edit_part(kind, namespace, name, None, change)
    }

    /// Replaces the status of an object by that of what `change` makes of the whole object.
    ///
    /// # Errors
    /// As by the API: 404 if it does not exist.
    pub fn edit_status(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        self.edit_part(kind, namespace, name, Some("status"), change)
    }

    fn edit_part(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Status> {
        let edited = self.write(kind, namespace, name, subresource, |write| {
            write.update(|old: &Stored| {
                let mut object = old.value.clone();
                change(&mut object);
                Ok(object)
            })
        });
        edited.map(|stored| stored.value.clone())
    }

    /// Deletes an object with its default grace period.
    ///
    /// # Errors
    /// As by the API.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Status> {
        self.delete_with(kind, namespace, name, &json!({}))
    }

    /// Deletes an object with those `DeleteOptions`.
    ///
    /// # Errors
    /// As by the API.
    pub fn delete_with(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<(), Status> {
        let options = DeleteOptions::parse(options);
        self.write(kind, namespace, name, None, |write| write.delete(&options))
            .map(drop)
    }

    /// Begins to delete a pod without grace period, and stops there: the pod is marked and still exists, as for a
    /// moment in the real API server. The next write removes it.
    ///
    /// # Errors
    /// As by the API.
    pub fn begin_delete(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Status> {
        self.write(kind, namespace, name, None, |write| {
            write.begin_delete().map(drop)
        })
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// As by the API: 409 for pods that have scheduling gates or are being deleted.
    pub fn bind(&self, namespace: &str, pod: &str, node: &str) -> Result<(), Status> {
        self.write("pods", namespace, pod, None, |write| write.bind(node))
    }
}

/// `Kind.group` of an object, as [`find`] takes it, and its namespace: `default` if it names none.
fn place(object: &Value) -> (String, String) {
    let group = text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    let namespace = match text(&object["metadata"], "namespace") {
        "" => "default",
        namespace => namespace,
    };
    let kind = format!("{}.{group}", text(object, "kind"));
    (kind, namespace.to_owned())
}

/// The resource of that kind or plural, with or without its group.
fn find(resources: &[Arc<Resource>], wanted: &str) -> Result<(usize, Arc<Resource>), Status> {
    let (name, group) = match wanted.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (wanted, None),
    };
    let fits = |resource: &Arc<Resource>| {
        (resource.kind.eq_ignore_ascii_case(name) || resource.plural == name)
            && group.is_none_or(|group| group == resource.group)
    };
    let found = resources.iter().position(fits);
    let index = found.ok_or_else(|| {
        let message = format!("the server doesn't have a resource type \"{wanted}\"");
        Status::new(404, "NotFound", message)
    })?;
    Ok((index, resources[index].clone()))
}
