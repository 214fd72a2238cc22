//! The wire form of `admission.k8s.io/v1` `AdmissionReview`.
//!
//! Own types and not those of the `kube` crate: a review whose spec cannot be decoded must still
//! give its uid, and a patch must go out as base64.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, Utc};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::faults::{self, Fault, Reason, line};

/// The version of the review that is understood.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Its kind.
pub const KIND: &str = "AdmissionReview";

/// The API server hands on no more of a warning than this many characters.
const LONGEST_WARNING: usize = 256;

/// The longest message about what is no review or no object: it may repeat a part of either.
pub(super) const LONGEST_MESSAGE: usize = 512;

/// Reads a struct that is written as a JSON object, the whole text being one.
///
/// # Errors
/// What is wrong with the text.
pub fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = object(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A struct that is written as an object. The code that serde derives would take an array too,
/// element by element.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<T, D::Error> {
    reader.deserialize_map(Fields(PhantomData))
}

/// A field that is written as an object, `null` being none: for the structs within a kind's spec.
///
/// # Errors
/// What is there instead.
pub fn object_or_null<'de, D, T>(reader: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(T);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
        fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
            object(reader).map(Self)
        }
    }
    let value: Option<Object<T>> = Option::deserialize(reader)?;
    Ok(value.map(|Object(value)| value))
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// What the API server sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// The version of the review.
    #[serde(borrow, default)]
    pub api_version: Cow<'a, str>,
    /// `AdmissionReview`.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    /// What is asked.
    #[serde(borrow, default, deserialize_with = "object_or_null")]
    pub request: Option<Request<'a>>,
}

/// What is asked: may this operation on this object go on?
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Repeated in the answer.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The kind of the object.
    #[serde(borrow, default, deserialize_with = "object")]
    pub kind: GroupVersionKind<'a>,
    /// The namespace of the object.
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    /// CREATE, UPDATE, DELETE or CONNECT.
    #[serde(borrow, default)]
    pub operation: Cow<'a, str>,
    /// `status`, `scale`; empty for the object itself.
    #[serde(borrow, default)]
    pub sub_resource: Cow<'a, str>,
    /// Who asks.
    #[serde(default, deserialize_with = "object")]
    pub user_info: UserInfo,
    /// The object as it would be stored.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it is stored, on UPDATE.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
}

/// A kind by its full name.
#[derive(Debug, Default, Deserialize)]
pub struct GroupVersionKind<'a> {
    /// The API group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// The version.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The kind.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
}

/// Who asks.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo {
    /// The user's name.
    #[serde(default)]
    pub username: String,
}

/// An object as far as admission looks at it. The rest is neither parsed nor copied.
#[derive(Debug, Deserialize)]
pub struct Object {
    /// Names and annotations.
    #[serde(default, deserialize_with = "object_or_null")]
    pub metadata: Option<Metadata>,
    /// The spec as it was sent.
    pub spec: Option<Value>,
    /// The status as it is stored.
    pub status: Option<Value>,
}

/// The part of `metadata` that admission looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Empty until the API server has made one out of `generate_name`.
    #[serde(default)]
    pub name: String,
    /// The beginning of the name to be.
    #[serde(default)]
    pub generate_name: String,
    /// Annotations; `null` when the client wrote that.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Absent in the mutating review of a CREATE.
    pub creation_timestamp: Option<DateTime<Utc>>,
}

impl Object {
    /// The name, or its beginning while there is none yet.
    pub fn name(&self) -> &str {
        match &self.metadata {
            None => "",
            Some(metadata) if metadata.name.is_empty() => &metadata.generate_name,
            Some(metadata) => &metadata.name,
        }
    }

    /// The annotations, where there are any.
    pub fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }
}

/// What is answered.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The request's uid.
    pub uid: String,
    /// Whether the operation may go on.
    pub allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// `JSONPatch`, where there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<&'static str>,
    /// The operations of the patch; on the wire their JSON in base64.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "base64_json")]
    pub patch: Vec<Value>,
    /// Told to the user, who goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Written into the audit log.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub audit_annotations: BTreeMap<&'static str, String>,
}

/// `metav1.Status`, as far as a refusal needs it.
#[derive(Debug, Serialize)]
pub struct Status {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Debug, Serialize)]
struct Details {
    name: String,
    group: String,
    kind: String,
    causes: Vec<Cause>,
}

#[derive(Debug, Serialize)]
struct Cause {
    reason: Reason,
    message: String,
    field: String,
}

fn base64_json<S: Serializer>(operations: &[Value], serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_vec(operations).map_err(S::Error::custom)?;
    serializer.serialize_str(&BASE64_STANDARD.encode(text))
}

impl Response {
    /// The operation may go on.
    pub fn allow(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            allowed: true,
            ..Self::default()
        }
    }

    /// The object breaks rules: answered as the API server answers for its own kinds.
    pub fn refuse(uid: &str, group: &str, kind: &str, name: &str, faults: &[Fault]) -> Self {
        let name = line(name, 253);
        let joined = faults::join(faults);
        let (named, others) = faults::named(faults);
        let causes = named.iter().map(|fault| Cause {
            reason: fault.reason,
            message: fault.message.clone(),
            field: fault.shown_field(),
        });
        let others = others.map(|message| Cause {
            reason: Reason::Invalid,
            message,
            field: "spec".to_owned(),
        });
        Self {
            uid: uid.to_owned(),
            status: Some(Status {
                outcome: "Failure",
                code: 422,
                reason: "Invalid",
                message: format!("{kind}.{group} \"{name}\" is invalid: {joined}"),
                details: Some(Details {
                    name,
                    group: group.to_owned(),
                    kind: kind.to_owned(),
                    causes: causes.chain(others).collect(),
                }),
            }),
            audit_annotations: BTreeMap::from([("faults", joined)]),
            ..Self::default()
        }
    }

    /// The request should not have come here.
    pub fn bad_request(uid: &str, message: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            status: Some(Status {
                outcome: "Failure",
                code: 400,
                reason: "BadRequest",
                message: line(message, LONGEST_MESSAGE),
                details: None,
            }),
            ..Self::default()
        }
    }

    /// Adds warnings, cleaned and cut to what the API server hands on.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[String]) -> Self {
        let short = |w: &String| line(w, LONGEST_WARNING);
        self.warnings = warnings.iter().map(short).collect();
        self
    }

    /// Adds a patch, unless it is empty.
    #[must_use]
    pub fn with_patch(mut self, operations: Vec<Value>) -> Self {
        if !operations.is_empty() {
            self.patch_type = Some("JSONPatch");
            self.patch = operations;
        }
        self
    }

    /// The review that carries this answer.
    pub fn into_review(self) -> impl Serialize {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            api_version: &'static str,
            kind: &'static str,
            response: Response,
        }
        Answer {
            api_version: API_VERSION,
            kind: KIND,
            response: self,
        }
    }
}
