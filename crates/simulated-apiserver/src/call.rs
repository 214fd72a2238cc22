//! A parsed request: its verb, its target and its parameters.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, header, request::Parts};

use crate::resource::{Behavior, Resource};
use crate::selector::Selector;
use crate::status::Status;
use crate::store::{Form, Key};

/// What a request does, in RBAC's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection.
    Watch,
    /// Creates an object, or posts to a subresource such as `pods/binding`.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        })
    }
}

/// The formats of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// A merge patch that knows lists, for built-in kinds.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// A parsed request; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) resource: Arc<Resource>,
    /// The index of the resource.
    pub(crate) index: usize,
    pub(crate) subresource: Option<String>,
    /// Empty in cluster-wide requests.
    pub(crate) namespace: String,
    /// Empty in requests on a collection.
    pub(crate) name: String,
    pub(crate) query: Query,
    pub(crate) patch: Option<PatchType>,
    pub(crate) form: Form,
    pub(crate) body: Bytes,
}

/// The parameters behind the question mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self {
            pairs: pairs.into_owned().collect(),
        }
    }

    /// The value of a parameter that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun") == Some("All")
    }

    pub(crate) fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(self.get("labelSelector"), self.get("fieldSelector"))
    }
}

/// The parts of a request's path.
struct Path<'a> {
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    /// Empty in cluster-wide requests.
    namespace: &'a str,
    /// Empty in requests on a collection.
    name: &'a str,
    subresource: Option<&'a str>,
}

impl<'a> Path<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // A subresource of a namespace looks like a collection in it.
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", None),
            [plural, name] => (*plural, *name, None),
            [plural, name, subresource] => (*plural, *name, Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            group,
            version,
            plural,
            namespace,
            name,
            subresource,
        })
    }

    /// The index of the resource.
    fn find(&self, resources: &[Arc<Resource>]) -> Result<usize, Status> {
        let served = |r: &Arc<Resource>| r.group == self.group && r.version == self.version;
        let found = resources
            .iter()
            .position(|r| served(r) && r.plural == self.plural);
        found.ok_or_else(|| {
            if !resources.iter().any(served) {
                return no_such_path();
            }
            let message = "the server could not find the requested resource";
            Status::new(404, "NotFound", message).with_details(serde_json::json!({}))
        })
    }
}

fn no_such_path() -> Status {
    Status::new(404, "", "404 page not found")
}

fn parse_verb(method: &Method, on_collection: bool, query: &Query) -> Result<Verb, Status> {
    Ok(match (method, on_collection) {
        (&Method::GET, _) if query.is_true("watch") => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, false) => Verb::Update,
        (&Method::PATCH, false) => Verb::Patch,
        (&Method::DELETE, false) => Verb::Delete,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        _ => {
            let message = "the server does not allow this method on the requested resource";
            return Err(Status::new(405, "MethodNotAllowed", message));
        }
    })
}

impl PatchType {
    fn parse(content_type: &str) -> Result<Self, Status> {
        Ok(match content_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            "application/apply-patch+yaml" => Self::Apply,
            other => {
                let message = format!("the body of the request was in an unknown format: {other}");
                return Err(Status::new(415, "UnsupportedMediaType", message));
            }
        })
    }
}

impl Call {
    /// Parses a request. A path without a known resource is answered with 404, as by the real server.
    pub(crate) fn parse(
        parts: &Parts,
        body: Bytes,
        resources: &[Arc<Resource>],
    ) -> Result<Self, Status> {
        let path = Path::parse(parts.uri.path()).ok_or_else(no_such_path)?;
        let index = path.find(resources)?;
        let resource = resources[index].clone();
        if !resource.namespaced && !path.namespace.is_empty() {
            return Err(no_such_path());
        }
        // As by the handler of custom resources: the name is not found, although the object is there.
        let is_status = path.subresource == Some("status");
        if is_status && !resource.status && resource.behavior == Behavior::Custom {
            return Err(Status::not_found(&resource, path.name));
        }
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let verb = parse_verb(&parts.method, path.name.is_empty(), &query)?;
        let header = |name| {
            let value = parts.headers.get(name);
            value
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let format = match verb {
            Verb::Patch => Some(PatchType::parse(header(header::CONTENT_TYPE))?),
            _ => None,
        };
        let accept = header(header::ACCEPT);
        let form = if accept.contains("as=PartialObjectMetadata") {
            Form::Metadata
        } else {
            Form::Whole
        };
        Ok(Self {
            verb,
            resource,
            index,
            subresource: path.subresource.map(str::to_owned),
            namespace: path.namespace.to_owned(),
            name: path.name.to_owned(),
            query,
            patch: format,
            form,
            body,
        })
    }

    /// The key of an object in the namespace of the request.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(self.index, &self.namespace, name)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value, Status> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Status::bad_request(format!("the body is not JSON: {error}")))
    }

    /// `pods`, or `pods/status`.
    pub(crate) fn target(&self) -> String {
        match &self.subresource {
            None => self.resource.plural.clone(),
            Some(subresource) => format!("{}/{subresource}", self.resource.plural),
        }
    }

    /// The client that owns the fields of a write.
    pub(crate) fn manager(&self, user: &str) -> String {
        self.query.get("fieldManager").unwrap_or(user).to_owned()
    }
}
