//! Every version of every object, and the log of changes that watches follow.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::resource::Resource;

/// Which part of an object an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Metadata,
}

/// The identity of an object. Keys sort by kind, then namespace, then name, as lists do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The index of the resource.
    pub(crate) resource: usize,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(resource: usize, namespace: &str, name: &str) -> Self {
        Self {
            resource,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One version of an object.
pub(crate) struct Stored {
    pub(crate) value: Value,
    pub(crate) version: u64,
    /// Serialized at the first answer that shows it.
    whole: OnceLock<Bytes>,
    metadata: OnceLock<Bytes>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Stored {
    pub(crate) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Self {
            value,
            version,
            whole: OnceLock::new(),
            metadata: OnceLock::new(),
        })
    }

    pub(crate) fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// The object as JSON text, without apiVersion and kind.
    pub(crate) fn text(&self, form: Form) -> &Bytes {
        match form {
            Form::Whole => self.whole.get_or_init(|| {
                let mut value = self.value.clone();
                if let Value::Object(fields) = &mut value {
                    fields.remove("apiVersion");
                    fields.remove("kind");
                }
                value.to_string().into()
            }),
            Form::Metadata => self.metadata.get_or_init(|| {
                json!({"metadata": self.value["metadata"]})
                    .to_string()
                    .into()
            }),
        }
    }
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A new object.
    Added,
    /// A new version of an object.
    Modified,
    /// The object is gone.
    Deleted,
}

impl ChangeKind {
    /// The type of the watch event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) key: Key,
    /// The version after the change, or the last one with the resourceVersion of the deletion.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
    pub(crate) at: Instant,
    pub(crate) elapsed: Duration,
    pub(crate) time: DateTime<Utc>,
    /// The user that caused it.
    pub(crate) by: Arc<str>,
}

/// The time and the user of a change.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) elapsed: Duration,
    pub(crate) time: DateTime<Utc>,
    pub(crate) by: Arc<str>,
}

/// A version of an object with its resourceVersion; None after the object was removed.
type Dated = (u64, Option<Arc<Stored>>);

/// The store of all objects; see the module.
pub(crate) struct Store {
    version: u64,
    /// Below this resourceVersion everything is compacted.
    pub(crate) floor: u64,
    versions: BTreeMap<Key, Vec<Dated>>,
    pub(crate) log: Vec<Change>,
    uids: u64,
}

/// The resourceVersion of the first change is above this, so that resourceVersions do not resemble other numbers.
const FIRST_VERSION: u64 = 1000;

impl Default for Store {
    fn default() -> Self {
        Self {
            version: FIRST_VERSION,
            floor: 0,
            versions: BTreeMap::new(),
            log: Vec::new(),
            uids: 0,
        }
    }
}

impl Store {
    /// The resourceVersion of the latest change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A new UID.
    pub(crate) fn uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// The number of UIDs issued.
    pub(crate) fn count(&self) -> u64 {
        self.uids
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.versions.get(key)?.last()?.1.as_ref()
    }

    /// The objects of a kind, in one namespace or in all (empty), as they were at a resourceVersion: all, or those after
    /// a key.
    pub(crate) fn list_at<'a>(
        &'a self,
        resource: usize,
        namespace: &'a str,
        version: u64,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let first = match after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Included(Key::new(resource, namespace, "")),
        };
        self.versions
            .range((first, Bound::Unbounded))
            .take_while(move |(key, _)| {
                key.resource == resource && (namespace.is_empty() || &*key.namespace == namespace)
            })
            .filter_map(move |(key, versions)| {
                let current = versions.iter().rev().find(|(at, _)| *at <= version)?;
                Some((key, current.1.as_ref()?))
            })
    }

    /// The objects of a kind now.
    pub(crate) fn list<'a>(
        &'a self,
        resource: usize,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        self.list_at(resource, namespace, u64::MAX, None)
    }

    /// Every object now.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.versions
            .iter()
            .filter_map(|(key, versions)| Some((key, versions.last()?.1.as_ref()?)))
    }

    /// Stores a version of an object, new or not.
    pub(crate) fn put(&mut self, key: &Key, mut value: Value, moment: &Moment) -> Arc<Stored> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Stored::new(value, self.version);
        let versions = self.versions.entry(key.clone()).or_default();
        let previous = versions.last().and_then(|(_, last)| last.clone());
        versions.push((self.version, Some(object.clone())));
        let kind = match previous {
            None => ChangeKind::Added,
            Some(_) => ChangeKind::Modified,
        };
        self.note(kind, key, object.clone(), previous, moment);
        object
    }

    /// Removes an object, and returns its last version with the resourceVersion of the removal.
    pub(crate) fn remove(&mut self, key: &Key, moment: &Moment) -> Option<Arc<Stored>> {
        let versions = self.versions.get_mut(key)?;
        let previous = versions.last()?.1.clone()?;
        self.version += 1;
        versions.push((self.version, None));
        let mut value = previous.value.clone();
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Stored::new(value, self.version);
        self.note(
            ChangeKind::Deleted,
            key,
            object.clone(),
            Some(previous),
            moment,
        );
        Some(object)
    }

    fn note(
        &mut self,
        kind: ChangeKind,
        key: &Key,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
        moment: &Moment,
    ) {
        self.log.push(Change {
            kind,
            key: key.clone(),
            object,
            previous,
            at: moment.at,
            elapsed: moment.elapsed,
            time: moment.time,
            by: moment.by.clone(),
        });
    }
}

/// An object as JSON text with its apiVersion and kind.
pub(crate) fn complete(resource: &Resource, form: Form, stored: &Stored, into: &mut Vec<u8>) {
    let (version, kind) = match form {
        Form::Whole => (resource.api_version(), resource.kind.as_str()),
        Form::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
    };
    into.extend_from_slice(b"{\"apiVersion\":\"");
    into.extend_from_slice(version.as_bytes());
    into.extend_from_slice(b"\",\"kind\":\"");
    into.extend_from_slice(kind.as_bytes());
    into.extend_from_slice(b"\",");
    // The text is an object with at least the field metadata.
    into.extend_from_slice(stored.text(form).get(1..).unwrap_or_default());
}
