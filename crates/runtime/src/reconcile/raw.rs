//! Parts of watched objects that are kept as raw JSON. Whatever is stored can thus be read, and no object holds up the
//! watch of the others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// JSON text that is not parsed yet. (Parsing into a tree of values fails at a certain depth, and the tree takes a
/// hundred times the memory.)
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(Box<str>);

impl Raw {
    /// The JSON text; `null` if absent.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl Default for Raw {
    fn default() -> Self {
        Self("null".into())
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        // Works only on text: serde_json has no raw values in a tree of values.
        Box::<RawValue>::deserialize(reader).map(|raw| Self(raw.into()))
    }
}

/// An object of a kind as it is stored. Even one that violates the schema must not hold up the watch of the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
pub struct Object<K> {
    /// The object's metadata, as far as it is used.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The spec as it is stored.
    #[serde(default)]
    pub spec: Raw,
    /// The status as it is stored.
    #[serde(default)]
    pub status: Raw,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Resource for Object<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads the metadata of an object that users write, without `managedFields`: these nest deeper than the object itself.
///
/// # Errors
/// When a field that is read has the wrong type, which the API server never stores.
pub fn metadata<'de, D: Deserializer<'de>>(reader: D) -> Result<ObjectMeta, D::Error> {
    let metadata = Metadata::deserialize(reader)?;
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: metadata.labels,
        annotations: metadata.annotations,
        owner_references: metadata.owner_references,
        finalizers: metadata.finalizers,
        ..ObjectMeta::default()
    })
}

/// The same for an object of which only the labels matter, such as a node. It skips everything else that kubelets and
/// others write with every heartbeat.
///
/// # Errors
/// As for [`metadata`].
pub fn labelled<'de, D: Deserializer<'de>>(reader: D) -> Result<ObjectMeta, D::Error> {
    let metadata = Labelled::deserialize(reader)?;
    Ok(ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        creation_timestamp: metadata.creation_timestamp,
        labels: metadata.labels,
        ..ObjectMeta::default()
    })
}

/// Reads a time of a status. A client that may write statuses may write years that no library reads: the API server
/// accepts `9999-12-31T23:59:59-01:00` and returns a time in the year 10000. Such a time counts as absent.
///
/// # Errors
/// When the field is not a string.
pub fn time<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(reader)?;
    let time = text.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
    Ok(time.map(|time| time.with_timezone(&Utc)))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Labelled {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kube::core::ObjectList;
    use kube::core::watch::WatchEvent;

    use super::*;

    type Watched = Object<k8s_openapi::api::core::v1::ConfigMap>;

    fn nested(levels: usize) -> String {
        format!("{}{}", "{\"f:a\":".repeat(levels), "1") + &"}".repeat(levels)
    }

    #[test]
    fn an_object_may_nest_as_deeply_as_it_likes() {
        let deep = nested(10_000);
        let object = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x","uid":"u","resourceVersion":"7",
               "managedFields":[{{"fieldsV1":{deep}}}]}},"spec":{deep}}}"#
        );
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"9"}},
               "items":[{object},{object}]}}"#
        );
        let list: ObjectList<Watched> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items.len(), 2);
        assert_eq!(list.items[1].spec.text(), deep);
        let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let event: WatchEvent<Watched> = serde_json::from_str(&event).unwrap();
        let WatchEvent::Added(seen) = event else {
            unreachable!("{event:?}")
        };
        assert_eq!(seen.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(seen.spec.text(), deep);
    }

    #[test]
    fn what_is_absent_is_null() {
        let bare: Watched = serde_json::from_str(r#"{"metadata":{"name":"x"}}"#).unwrap();
        assert_eq!(bare.spec.text(), "null");
        assert_eq!(bare.metadata.name.as_deref(), Some("x"));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_absent() {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default, deserialize_with = "time")]
            time: Option<DateTime<Utc>>,
        }
        let read = |text: &str| serde_json::from_str::<Status>(text).unwrap().time;
        let known = read(r#"{"time": "2026-04-12T10:12:00+02:00"}"#);
        assert_eq!(known.unwrap().to_rfc3339(), "2026-04-12T08:12:00+00:00");
        for text in [
            r#"{"time": "10000-01-01T00:59:59Z"}"#,
            r#"{"time": ""}"#,
            r#"{"time": null}"#,
            "{}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
