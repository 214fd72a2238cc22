//! The wire form of `admission.k8s.io/v1` `AdmissionReview`.
//!
//! Own types instead of those of the `kube` crate: the uid of a review must be readable even if its spec is not, and a
//! patch must be sent as base64.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Utc};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::de::{self, SliceRead, StrRead};
use serde_json::value::RawValue;

use super::faults::{self, Fault, Reason};
use super::json::Reader;
use super::patch::Operation;
use super::size::Size;
use super::text::{cut, line};

/// The supported version of the review.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Its kind.
pub const KIND: &str = "AdmissionReview";

/// The API server passes on at most this many characters of a warning.
const MAX_WARNING_LEN: usize = 256;

/// The maximum length of a name. Longer ones are truncated in messages.
pub(super) const MAX_NAME_LEN: usize = 253;

/// The longest list of faults in the audit log and in our log, in characters. The answer lists more.
const MAX_AUDIT_LEN: usize = 4096;

/// The longest message about a malformed review or object: it may quote a part of it.
pub(super) const MAX_MESSAGE_LEN: usize = 512;

/// The longest uid of a review, in bytes. The API server's have 36. It is part of every answer.
#[cfg(feature = "router")]
const MAX_UID_LEN: usize = 256;

/// The longest text of a review outside its objects, in bytes, and the longest annotation that is read. What is recorded of
/// them becomes part of a patch.
const MAX_TEXT_LEN: usize = 8 * 1024;

/// So many annotations of an object are kept one by one. More would take six times the memory of their text.
const FEW_ANNOTATIONS: usize = 64;

/// Reads a struct from a JSON object. The text must be one object.
///
/// # Errors
/// When the text is malformed.
pub fn read<'a, R: de::Read<'a>, T: Deserialize<'a>>(text: R) -> Read<T> {
    let mut reader = serde_json::Deserializer::new(text);
    let value = object(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A struct that is written as an object. The code that serde derives would also accept an array, element by element.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<T, D::Error> {
    // `deserialize_map` would not ask the visitor about a string.
    reader.deserialize_any(Fields(PhantomData))
}

/// A field that is written as an object, or `null` for None: for the structs within a kind's spec.
///
/// # Errors
/// When the value is neither.
pub fn object_or_null<'de, D, T>(reader: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value: Option<Strict<T>> = Option::deserialize(reader)?;
    Ok(value.map(|Strict(value)| value))
}

/// A struct that is written as an object.
struct Strict<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        object(reader).map(Self)
    }
}

/// Not serde's own message, which has the whole text in it, six bytes for one where characters are escaped.
fn no_object<E: serde::de::Error>() -> E {
    E::custom("expected an object, not a string")
}

/// A flag. (The same for what is none.)
fn flag<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<bool>, D::Error> {
    match Option::<&RawValue>::deserialize(reader)?.map(RawValue::get) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(D::Error::custom("expected true or false")),
    }
}

/// A value as its text; `null` is None.
fn raw<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<&'de str>, D::Error> {
    Ok(Option::<&RawValue>::deserialize(reader)?.map(RawValue::get))
}

fn annotations<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Annotations<'de>>, D::Error> {
    let text = raw(reader)?;
    Ok(text.map(|text| Annotations { text, few: None }))
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<T, E> {
        Err(no_object())
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// What the API server sends.
#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "'de: 'a, O: Deserialize<'de>")
)]
pub struct Review<'a, O = Read<Object<'a>>> {
    /// The version of the review.
    #[serde(borrow, default)]
    pub api_version: Cow<'a, str>,
    /// `AdmissionReview`.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    /// The request.
    #[serde(borrow, default, deserialize_with = "object_or_null")]
    pub request: Option<Request<'a, O>>,
}

/// The request: whether this operation on this object is allowed.
#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "'de: 'a, O: Deserialize<'de>")
)]
pub struct Request<'a, O = Read<Object<'a>>> {
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
    #[serde(borrow, default, deserialize_with = "object")]
    pub user_info: UserInfo<'a>,
    /// Whether nothing is stored, whatever the answer is.
    #[serde(default, deserialize_with = "flag")]
    pub dry_run: Option<bool>,
    /// The object as it would be stored.
    pub object: Option<O>,
    /// The object as it is stored, on UPDATE.
    pub old_object: Option<O>,
}

/// A part of a review, or why it cannot be read.
pub type Read<T> = serde_json::Result<T>;

impl<'a> Review<'a> {
    /// Reads a review.
    ///
    /// # Errors
    /// When the review is malformed. Errors in its objects are part of the result: the answer still needs its uid.
    pub fn read(body: &'a [u8]) -> Read<Self> {
        if let Ok(text) = std::str::from_utf8(body)
            && let Some(review) = Review::quickly(text)
        {
            return Ok(review.map(Ok));
        }
        let review: Review<'a, &RawValue> = read(SliceRead::new(body))?;
        Ok(review.map(|object| read(StrRead::new(object.get()))))
    }
}

/// Puts a value into its field; None if it has one already.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    let is_first = field.is_none();
    *field = Some(value);
    is_first.then_some(())
}

/// A review as [`Review::read`] reads it, in less time. None where anything is wrong: `serde` reads it then, and its
/// errors say what it is. So each field is there twice, for `serde` and in `quickly`; a test compares the two.
impl<'a> Review<'a, Object<'a>> {
    fn quickly(text: &'a str) -> Option<Self> {
        let (mut api_version, mut kind, mut request) = (None, None, None);
        Reader::whole(text, |reader| {
            reader.members(|key, reader| match &*key {
                "apiVersion" => once(&mut api_version, reader.text()?),
                "kind" => once(&mut kind, reader.text()?),
                "request" => once(&mut request, reader.or_null(Request::quickly)?),
                _ => reader.raw().map(drop),
            })
        })?;
        Some(Self {
            api_version: api_version.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
            request: request.flatten(),
        })
    }
}

impl<'a> Request<'a, Object<'a>> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut uid, mut kind, mut namespace, mut operation) = (None, None, None, None);
        let (mut sub_resource, mut user_info, mut dry_run) = (None, None, None);
        let (mut object, mut old_object) = (None, None);
        reader.members(|key, reader| match &*key {
            "uid" => once(&mut uid, reader.text()?),
            "kind" => once(&mut kind, GroupVersionKind::quickly(reader)?),
            "namespace" => once(&mut namespace, reader.text()?),
            "operation" => once(&mut operation, reader.text()?),
            "subResource" => once(&mut sub_resource, reader.text()?),
            "userInfo" => once(&mut user_info, UserInfo::quickly(reader)?),
            "dryRun" => once(&mut dry_run, reader.or_null(Reader::flag)?),
            "object" => once(&mut object, reader.or_null(Object::quickly)?),
            "oldObject" => once(&mut old_object, reader.or_null(Object::quickly)?),
            _ => reader.raw().map(drop),
        })?;
        Some(Self {
            uid: uid?,
            kind: kind.unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            operation: operation.unwrap_or_default(),
            sub_resource: sub_resource.unwrap_or_default(),
            user_info: user_info.unwrap_or_default(),
            dry_run: dry_run.flatten(),
            object: object.flatten(),
            old_object: old_object.flatten(),
        })
    }
}

impl<'a> GroupVersionKind<'a> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut group, mut version, mut kind) = (None, None, None);
        reader.members(|key, reader| match &*key {
            "group" => once(&mut group, reader.text()?),
            "version" => once(&mut version, reader.text()?),
            "kind" => once(&mut kind, reader.text()?),
            _ => reader.raw().map(drop),
        })?;
        Some(Self {
            group: group.unwrap_or_default(),
            version: version.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
        })
    }
}

impl<'a> UserInfo<'a> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let mut username = None;
        reader.members(|key, reader| match &*key {
            "username" => once(&mut username, reader.text()?),
            _ => reader.raw().map(drop),
        })?;
        Some(Self {
            username: username.unwrap_or_default(),
        })
    }
}

impl<'a> Object<'a> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut metadata, mut spec, mut status) = (None, None, None);
        reader.members(|key, reader| match &*key {
            "metadata" => once(&mut metadata, reader.or_null(Metadata::quickly)?),
            "spec" => once(&mut spec, reader.or_null(Reader::sized)?),
            "status" => once(&mut status, reader.or_null(Reader::raw)?),
            _ => reader.raw().map(drop),
        })?;
        let (spec, spec_size) = spec.flatten().unzip();
        Some(Self {
            metadata: metadata.flatten(),
            spec,
            spec_size,
            status: status.flatten(),
        })
    }
}

impl<'a> Metadata<'a> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut name, mut generate_name) = (None, None);
        let (mut annotations, mut created) = (None, None);
        reader.members(|key, reader| match &*key {
            "name" => once(&mut name, reader.text()?),
            "generateName" => once(&mut generate_name, reader.text()?),
            "annotations" => once(&mut annotations, reader.or_null(Annotations::quickly)?),
            "creationTimestamp" => {
                let time = |reader: &mut Reader<'a>| reader.text()?.parse().ok();
                once(&mut created, reader.or_null(time)?)
            }
            _ => reader.raw().map(drop),
        })?;
        Some(Self {
            name: name.unwrap_or_default(),
            generate_name: generate_name.unwrap_or_default(),
            annotations: annotations.flatten(),
            creation_timestamp: created.flatten(),
        })
    }
}

impl<'a> Annotations<'a> {
    fn quickly(reader: &mut Reader<'a>) -> Option<Self> {
        let mut few = Vec::new();
        let (text, ()) = reader.with_text(|reader| {
            reader.members(|key, reader| {
                let value = reader.string()?;
                if few.len() <= FEW_ANNOTATIONS {
                    few.push((key, value));
                }
                Some(())
            })
        })?;
        let few = Some(few).filter(|few| few.len() <= FEW_ANNOTATIONS);
        Some(Self { text, few })
    }
}

impl<O> Request<'_, O> {
    /// Checks what answers repeat: no text of it is as long as a review may be.
    ///
    /// # Errors
    /// Which text is too long.
    #[cfg(feature = "router")]
    pub(crate) fn check_lengths(&self) -> Result<(), String> {
        for (name, text, most) in [
            ("uid", &self.uid, MAX_UID_LEN),
            ("kind.group", &self.kind.group, MAX_TEXT_LEN),
            ("kind.version", &self.kind.version, MAX_TEXT_LEN),
            ("kind.kind", &self.kind.kind, MAX_TEXT_LEN),
            ("namespace", &self.namespace, MAX_TEXT_LEN),
            ("operation", &self.operation, MAX_TEXT_LEN),
            ("subResource", &self.sub_resource, MAX_TEXT_LEN),
            ("userInfo.username", &self.user_info.username, MAX_TEXT_LEN),
        ] {
            if text.len() > most {
                let length = text.len();
                return Err(format!(
                    "request.{name} has {length} bytes; at most {most} are allowed"
                ));
            }
        }
        Ok(())
    }
}

impl<'a> Request<'a> {
    /// Reads a request by itself, as [`Review::read`] does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &'a str) -> Read<Self> {
        let request: Request<'a, &RawValue> = read(StrRead::new(text))?;
        Ok(request.map(|object| read(StrRead::new(object.get()))))
    }
}

impl<'a, O> Review<'a, O> {
    fn map<P>(self, read: impl Fn(O) -> P) -> Review<'a, P> {
        Review {
            api_version: self.api_version,
            kind: self.kind,
            request: self.request.map(|request| request.map(read)),
        }
    }
}

impl<'a, O> Request<'a, O> {
    fn map<P>(self, read: impl Fn(O) -> P) -> Request<'a, P> {
        Request {
            uid: self.uid,
            kind: self.kind,
            namespace: self.namespace,
            operation: self.operation,
            sub_resource: self.sub_resource,
            user_info: self.user_info,
            dry_run: self.dry_run,
            object: self.object.map(&read),
            old_object: self.old_object.map(&read),
        }
    }
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
pub struct UserInfo<'a> {
    /// The user's name.
    #[serde(borrow, default)]
    pub username: Cow<'a, str>,
}

/// The part of an object that admission reads. The rest is neither parsed nor copied.
#[derive(Debug, Deserialize)]
pub struct Object<'a> {
    /// Names and annotations.
    #[serde(borrow, default, deserialize_with = "object_or_null")]
    pub metadata: Option<Metadata<'a>>,
    /// The spec as it was sent.
    #[serde(borrow, default, deserialize_with = "raw")]
    pub spec: Option<&'a str>,
    /// How large that is, if it is known.
    #[serde(skip)]
    pub(crate) spec_size: Option<Size>,
    /// The status as it is stored.
    #[serde(borrow, default, deserialize_with = "raw")]
    pub status: Option<&'a str>,
}

/// The part of `metadata` that admission reads.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Empty until the API server has made one out of `generate_name`.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// The beginning of the name to be.
    #[serde(borrow, default)]
    pub generate_name: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "annotations")]
    annotations: Option<Annotations<'a>>,
    /// Absent in the mutating review of a CREATE.
    pub creation_timestamp: Option<DateTime<Utc>>,
}

/// The annotations of an object: [`Object::annotations`] reads those that are asked for.
struct Annotations<'a> {
    /// All of them, as JSON.
    text: &'a str,
    /// The same, each with the JSON of its value, unless there are many.
    few: Option<Vec<(Cow<'a, str>, &'a str)>>,
}

impl fmt::Debug for Annotations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All else follows from it.
        f.write_str(self.text)
    }
}

impl Object<'_> {
    /// The name, or its beginning while there is none yet.
    pub fn name(&self) -> &str {
        match &self.metadata {
            None => "",
            Some(metadata) if metadata.name.is_empty() => &metadata.generate_name,
            Some(metadata) => &metadata.name,
        }
    }

    /// The annotations with these keys; `None` if the object has no annotations at all. The others are skipped: a review
    /// may have hundreds of thousands, and a map of them takes ten times the memory of their text.
    ///
    /// # Errors
    /// When the annotations are not an object of strings, which the API server never sends.
    pub fn annotations(
        &self,
        keys: &[&str],
    ) -> Result<Option<BTreeMap<String, String>>, &'static str> {
        let metadata = self.metadata.as_ref();
        let Some(annotations) = metadata.and_then(|metadata| metadata.annotations.as_ref()) else {
            return Ok(None);
        };
        let mut selected = BTreeMap::new();
        let mut select = |key: &str, value: &str| {
            if keys.contains(&key) {
                // Empty, if it contains an invalid escape, or is longer than any that the webhook writes. An escape
                // has up to six bytes for one.
                let short = Some(value).filter(|text| text.len() <= 6 * MAX_TEXT_LEN + 2);
                let value: Option<String> = short.and_then(|text| serde_json::from_str(text).ok());
                let value = value.filter(|value| value.len() <= MAX_TEXT_LEN);
                // The last of several values of a key counts, as in the API server.
                selected.insert(key.to_owned(), value.unwrap_or_default());
            }
        };
        if let Some(few) = &annotations.few {
            for (key, value) in few {
                select(key, value);
            }
        } else {
            Reader::whole(annotations.text, |reader| {
                reader.members(|key, reader| {
                    select(&key, reader.string()?);
                    Some(())
                })
            })
            .ok_or("an annotation must be a string")?;
        }
        Ok(Some(selected))
    }
}

/// The answer.
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
    /// `JSONPatch`, if there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<&'static str>,
    /// The operations of the patch; on the wire their JSON in base64.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "base64_json")]
    pub patch: Vec<Operation>,
    /// Warnings for the user. They do not reject the request.
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

fn base64_json<S: Serializer>(operations: &[Operation], serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_vec(operations).map_err(serde::ser::Error::custom)?;
    serializer.collect_str(&Base64Display::new(&text, &BASE64_STANDARD))
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

    /// A rejection because of rules, in the form that the API server uses for its own kinds.
    pub fn refuse(uid: &str, group: &str, kind: &str, name: &str, faults: &[Fault]) -> Self {
        let name = line(name, MAX_NAME_LEN);
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
            audit_annotations: BTreeMap::from([("faults", cut(&joined, MAX_AUDIT_LEN))]),
            ..Self::default()
        }
    }

    /// The request should not have been sent here.
    pub fn bad_request(uid: &str, message: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            status: Some(Status {
                outcome: "Failure",
                code: 400,
                reason: "BadRequest",
                message: line(message, MAX_MESSAGE_LEN),
                details: None,
            }),
            ..Self::default()
        }
    }

    /// Adds warnings, escaped and truncated to the length that the API server passes on.
    #[must_use]
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        let short = |w: &String| line(w, MAX_WARNING_LEN);
        self.warnings = warnings.iter().map(short).collect();
        self
    }

    /// Adds a patch, unless it is empty.
    #[must_use]
    pub(crate) fn with_patch(mut self, operations: Vec<Operation>) -> Self {
        if !operations.is_empty() {
            self.patch_type = Some("JSONPatch");
            self.patch = operations;
        }
        self
    }

    /// The review that carries this answer.
    #[cfg(feature = "router")]
    pub(crate) fn into_review(self) -> impl Serialize {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::bounds;
    use super::*;

    const REVIEW: &str = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1",
        "kind": {"group": "g", "version": "v1", "kind": "K"}, "name": "x", "namespace": "n", "operation": "UPDATE",
        "subResource": "", "userInfo": {"username": "a\"b", "groups": ["c"]}, "dryRun": false, "options": null,
        "object": {"metadata": {"name": "x", "generateName": "y", "annotations": {"a": "1", "b": "2\n"}, "labels": {"a": "b"},
            "creationTimestamp": "2026-11-20T10:12:00Z"}, "spec": {"image": "i", "list": [1, 2.5]}, "status": {"a": 1}},
        "oldObject": {"metadata": {"generateName": "x-"}, "spec": null, "status": null}}}"#;

    #[test]
    fn a_review_that_is_read_quickly_is_the_one_that_serde_reads() {
        let words = [
            "{}",
            "[]",
            "null",
            "true",
            "7",
            "1e9",
            "\"\"",
            "\"uid\"",
            "\"kind\"",
            "\"object\":",
            "\"spec\":",
            "\"name\":",
            "\"annotations\":",
            "\"dryRun\":",
            ",",
            ":",
            "{",
            "}",
            "\\u0061",
            "\\ud800",
            "é",
            "\"2026-11-20T10:12:00+02:00\"",
        ];
        let mut random = fastrand::Rng::with_seed(38);
        let tokens = |text: &str| -> Vec<usize> {
            let ends = |(at, c): (usize, char)| "{}[]:,\"".contains(c).then_some(at);
            text.char_indices().filter_map(ends).collect()
        };
        let mut read_quickly = 0;
        for _ in 0..30_000 {
            let mut text = REVIEW.to_owned();
            for _ in 0..random.usize(..3) {
                let places = tokens(&text);
                let from = random.usize(..places.len() - 1);
                let to = (from + random.usize(..3)).min(places.len() - 1);
                text.replace_range(places[from]..places[to], words[random.usize(..words.len())]);
            }
            let Some(mut quick) = Review::quickly(&text) else {
                continue;
            };
            let request = quick.request.iter_mut();
            let objects = request.flat_map(|it| [&mut it.object, &mut it.old_object]);
            for object in objects.flatten() {
                // The other reader does not find it.
                assert_eq!(object.spec_size.take(), object.spec.and_then(bounds::size));
            }
            read_quickly += 1;
            let slow: Review<'_, &RawValue> = super::read(StrRead::new(&text)).unwrap();
            let slow = slow.map(|object| {
                let object: Read<Object<'_>> = super::read(StrRead::new(object.get()));
                object.unwrap()
            });
            assert_eq!(format!("{quick:?}"), format!("{slow:?}"), "{text}");
        }
        assert!(read_quickly > 5_000, "{read_quickly}");
        let review = format!("{:?}", Review::quickly(REVIEW).unwrap());
        let nothing = ["None", "\"\""].map(|nothing| review.matches(nothing).count());
        // Only oldObject leaves out fields, subResource is empty, and its object has no annotations.
        assert_eq!(nothing, [5, 2], "every field has a value: {review}");
    }

    #[test]
    fn annotations_are_found_whatever_they_are_made_of() {
        let found = |annotations: &str| {
            let object = format!(r#"{{"metadata": {{"annotations": {annotations}}}}}"#);
            let quick = Reader::whole(&object, Object::quickly);
            let object: Object<'_> = super::read(StrRead::new(&object)).unwrap();
            let found = object.annotations(&["a", "b"]);
            if let Some(quick) = quick {
                assert_eq!(quick.annotations(&["a", "b"]), found);
            } else {
                assert!(found.is_err(), "{annotations}");
            }
            found.map(|found| {
                found.map(|all| {
                    all.into_iter()
                        .map(|(k, v)| k + "=" + &v)
                        .collect::<Vec<_>>()
                })
            })
        };
        let some = |all: &[&str]| Ok(Some(all.iter().map(ToString::to_string).collect()));
        assert_eq!(found("null"), Ok(None));
        assert_eq!(found("{}"), some(&[]));
        assert_eq!(found(r#"{"a": "1", "c": "2", "a": "3"}"#), some(&["a=3"]));
        assert_eq!(
            found(r#"{"\u0061": "\ud83d\ude00", "c": "\ud55c"}"#),
            some(&["a=\u{1f600}"])
        );
        let many = (0..FEW_ANNOTATIONS).map(|nth| format!(r#""n{nth}": "","#));
        let many = many.collect::<String>();
        for last in ["\"b\": \"1\"", "\"b\": \"0\", \"b\": \"1\""] {
            assert_eq!(found(&format!("{{{many}{last}}}")), some(&["b=1"]));
        }
        // Half a character is none.
        assert_eq!(found(r#"{"a": "\ud83d", "c": "\ud83d"}"#), some(&["a="]));
        assert_eq!(
            found(&format!(
                r#"{{"a": "{}", "b": "1"}}"#,
                "x".repeat(MAX_TEXT_LEN + 1)
            )),
            some(&["a=", "b=1"])
        );
        for bad in [
            "7",
            "[]",
            r#""a""#,
            r#"{"a": 7}"#,
            r#"{"c": null}"#,
            r#"{"c": ["d"]}"#,
        ] {
            assert!(found(bad).is_err(), "{bad}");
        }
    }
}
