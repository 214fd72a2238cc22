//! What a kind provides for admission: its defaults and its rules, as pure functions of a typed spec.
//!
//! The webhook and the reconciler call the same functions. [`decode_and_validate`] turns a raw spec into one that a
//! reconciler may act on, whether or not the webhook has reviewed the object.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_json::de::StrRead;
use serde_path_to_error::{Path, Segment};

use super::bounds;
use super::faults::{Fault, MAX_FAULTS};
use super::review;
use super::size::Size;

/// The maximum number of warnings. The API server passes on at most 4096 characters of them.
const MAX_WARNINGS: usize = 64;

/// One version of an object, as far as the rules read it.
#[derive(Debug)]
pub struct Subject<'a, S> {
    /// `metadata.name`, or `metadata.generateName` while the API server has not made a name yet.
    pub name: &'a str,
    /// `metadata.annotations`. In the webhook only those in [`Rules::RECORDED`]: no rule needs others.
    pub annotations: &'a BTreeMap<String, String>,
    /// `metadata.creationTimestamp`; absent in the mutating review of a CREATE.
    pub created: Option<DateTime<Utc>>,
    /// The typed spec, with its defaults.
    pub spec: &'a S,
}

/// The result of the rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Any of these rejects the object.
    pub faults: Vec<Fault>,
    /// Warnings for the user about an accepted object.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Adds a fault, unless there are too many already.
    pub fn fault(&mut self, fault: Fault) {
        if !self.is_full() {
            self.faults.push(fault);
        }
    }

    /// Adds a warning, unless there are too many already.
    pub fn warn(&mut self, warning: impl Into<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning.into());
        }
    }

    /// Rejects a name that is too long.
    pub fn check_name<S>(&mut self, subject: &Subject<'_, S>, most: usize) {
        if subject.name.len() > most {
            self.fault(Fault::too_long("metadata.name", subject.name, most));
        }
    }

    /// Rejects a number out of bounds. An absent number is valid.
    pub fn check_number(
        &mut self,
        field: &str,
        value: Option<impl Into<i64>>,
        bounds: RangeInclusive<i64>,
    ) {
        let Some(value) = value.map(Into::into) else {
            return;
        };
        let (least, most) = bounds.into_inner();
        let detail = if value < least {
            format!("must be greater than or equal to {least}")
        } else if value > most {
            format!("must be less than or equal to {most}")
        } else {
            return;
        };
        self.fault(Fault::invalid(field, value, &detail));
    }

    /// Rejects a list that is too long. Returns whether its items are to be looked at.
    pub fn check_count(&mut self, field: &str, count: usize, most: usize) -> bool {
        if count > most {
            let detail = format!("must have at most {most} items");
            self.fault(Fault::invalid(field, count, &detail));
        }
        count <= most
    }

    /// Adds the result of other rules for the same object.
    pub fn extend(&mut self, other: Self) {
        other.faults.into_iter().for_each(|fault| self.fault(fault));
        other.warnings.into_iter().for_each(|text| self.warn(text));
    }

    /// Whether the maximum number of faults is reached. A rule over a list of arbitrary length should stop then.
    pub fn is_full(&self) -> bool {
        self.faults.len() >= MAX_FAULTS
    }
}

/// The part of a request on which the annotations written by the webhook depend.
#[derive(Debug)]
pub struct Request<'a, S> {
    /// `userInfo.username`.
    pub user: &'a str,
    /// The stored object that an UPDATE replaces; None on CREATE.
    pub old: Option<Subject<'a, S>>,
    /// The object as it was sent, defaulted.
    pub new: Subject<'a, S>,
    /// The webhook's clock.
    pub now: DateTime<Utc>,
}

/// An annotation that only the webhook writes: its key, and the value that it must have. `None` removes the value of a
/// client.
pub type Recorded = (&'static str, Option<String>);

/// The rules of one kind. All functions are pure. The page of the [crate] has an example.
pub trait Rules: 'static {
    /// The object's type: group, version, kind and plural come from it.
    type Object: kube::Resource<DynamicType = ()>;
    /// The typed spec. Absent fields must be left out when it is serialised: defaulting is the
    /// difference between the spec before and after [`Rules::default`]. Its structs must be read from objects only
    /// ([`review::object_or_null`]): the patch adds members to them.
    type Spec: DeserializeOwned + Serialize + Default;
    /// The typed status, as far as the rules read it.
    type Status: DeserializeOwned + Default;

    /// The annotations that [`Rules::record`] decides: no client may write them.
    const RECORDED: &'static [&'static str] = &[];

    /// Reads a spec for the webhook. It may leave out what neither the rules nor the defaults read: most of a pod
    /// template, for example. It must fail wherever reading the whole fails.
    ///
    /// # Errors
    /// When the text is malformed, or not of this type. Then the whole is read, to find out why.
    fn read(text: &str) -> serde_json::Result<Self::Spec> {
        review::read(StrRead::new(text))
    }

    /// Sets missing fields, and changes no others. Idempotent.
    fn default(spec: &mut Self::Spec);

    /// The part of the spec that may be large and that defaulting does not change, such as a pod template. It is not
    /// compared.
    fn bulk(_spec: &mut Self::Spec) -> Option<&mut Value> {
        None
    }

    /// The value of each of [`Rules::RECORDED`].
    fn record(_request: &Request<'_, Self::Spec>) -> Vec<Recorded> {
        Vec::new()
    }

    /// Validates one version of an object by itself. Only warnings may depend on `now`.
    fn check(subject: &Subject<'_, Self::Spec>, now: DateTime<Utc>) -> Findings;

    /// Rules that only the webhook applies: limits that were added when objects beyond them may have been stored
    /// already. The reconciler enforces them by other means.
    fn check_limits(_spec: &Self::Spec) -> Findings {
        Findings::default()
    }

    /// Validates a change: immutability. Both versions are defaulted. The status is `None` when it cannot be read: a
    /// kind that forbids changes from some point on must then treat that point as reached.
    fn check_update(
        _old: &Subject<'_, Self::Spec>,
        _status: Option<&Self::Status>,
        _new: &Subject<'_, Self::Spec>,
    ) -> Findings {
        Findings::default()
    }
}

/// Reads a typed value out of raw JSON, `null` and an absent field meaning the default one.
///
/// # Errors
/// The fault of the field whose JSON type is wrong, with its path below `at`.
pub fn decode<T: DeserializeOwned + Default>(at: &str, raw: Option<&Value>) -> Result<T, Fault> {
    let Some(raw) = raw.filter(|value| !value.is_null()) else {
        return Ok(T::default());
    };
    // serde would read an array as a struct, element by element.
    if !raw.is_object() {
        return Err(Fault::type_invalid(at, raw, "must be an object"));
    }
    serde_path_to_error::deserialize(raw).map_err(|error| {
        let path = error.path().to_string();
        let field = match path.as_str() {
            "." | "?" => at.to_owned(),
            path => format!("{at}.{path}"),
        };
        let value = found(raw, error.path());
        Fault::type_invalid(field, value, &must_be(&error.into_inner().to_string()))
    })
}

/// The value at that path, or at its longest existing prefix.
fn found<'a>(raw: &'a Value, path: &Path) -> &'a Value {
    let mut value = raw;
    for segment in path {
        let next = match segment {
            Segment::Map { key } => value.get(key),
            Segment::Seq { index } => value.get(index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    value
}

/// The type that serde expected, in the API's wording.
fn must_be(message: &str) -> String {
    let Some((_, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    let what = match expected {
        "a map" => "an object",
        "a sequence" => "an array",
        "i32" => "a 32-bit integer",
        "i64" => "a 64-bit integer",
        "IntOrString" => "an integer or a string",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    };
    format!("must be {what}")
}

/// Reads a typed value out of JSON text, `null` and no text meaning the default one.
///
/// # Errors
/// When the text is not JSON, which the API server never stores; else the fault of the malformed field, or of the whole
/// text when it exceeds the [`bounds`].
pub fn read<T: DeserializeOwned + Default>(
    at: &str,
    text: Option<&str>,
) -> serde_json::Result<Result<T, Fault>> {
    read_by(|text| review::read(StrRead::new(text)), at, text, None)
}

/// The same by a function that may leave out a part of it. `size` is that of the text, if it is known.
pub(crate) fn read_by<T: DeserializeOwned + Default>(
    read: fn(&str) -> serde_json::Result<T>,
    at: &str,
    text: Option<&str>,
    size: Option<Size>,
) -> serde_json::Result<Result<T, Fault>> {
    let Some(text) = text else {
        return Ok(Ok(T::default()));
    };
    if let Some(fault) = bounds::exceeded_by(at, text, size) {
        return Ok(Err(fault));
    }
    // The fast path. It accepts nothing that the slow path rejects. It fails at a duplicate key, of which the last
    // value counts, and cannot name the malformed field.
    if let Ok(value) = read(text) {
        return Ok(Ok(value));
    }
    let value: Value = serde_json::from_str(text)?;
    Ok(decode(at, Some(&value)))
}

/// Turns the JSON text of a stored object's spec into a typed spec that a reconciler may act on: decodes it, sets the
/// defaults, and validates it by the same rules as the webhook.
///
/// # Errors
/// The faults, for condition `Accepted=False`.
pub fn decode_and_validate<R: Rules>(
    name: &str,
    annotations: &BTreeMap<String, String>,
    spec: &str,
    now: DateTime<Utc>,
) -> Result<R::Spec, Vec<Fault>> {
    let unreadable =
        |error: serde_json::Error| Fault::invalid("spec", Value::Null, &error.to_string());
    let read = read("spec", Some(spec)).map_err(unreadable).flatten();
    let mut spec: R::Spec = read.map_err(|fault| vec![fault.without_value()])?;
    R::default(&mut spec);
    let subject = Subject {
        name,
        annotations,
        created: None,
        spec: &spec,
    };
    let faults = R::check(&subject, now).faults;
    if faults.is_empty() {
        Ok(spec)
    } else {
        Err(faults.into_iter().map(Fault::without_value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "PascalCase")]
    struct Spec {
        _text: String,
        _count: Option<i32>,
        _flag: bool,
        _list: Vec<Spec>,
        _labels: BTreeMap<String, String>,
        _amount: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
    }

    #[test]
    fn a_value_of_another_type_is_shown_with_what_it_must_be() {
        for (raw, text) in [
            (json!([]), "spec: Invalid value: []: must be an object"),
            (
                json!({"Text": 5}),
                "spec.Text: Invalid value: 5: must be a string",
            ),
            (
                json!({"Text": null}),
                "spec.Text: Invalid value: null: must be a string",
            ),
            (
                json!({"Count": "x"}),
                "spec.Count: Invalid value: \"x\": must be a 32-bit integer",
            ),
            (
                json!({"Count": 99_999_999_999_i64}),
                "spec.Count: Invalid value: 99999999999: must be a 32-bit integer",
            ),
            (
                json!({"Count": 1.5}),
                "spec.Count: Invalid value: 1.5: must be a 32-bit integer",
            ),
            (
                json!({"Flag": "yes"}),
                "spec.Flag: Invalid value: \"yes\": must be a boolean",
            ),
            (
                json!({"List": {"a": 1}}),
                "spec.List: Invalid value: {\"a\":1}: must be an array",
            ),
            (
                json!({"List": [{}, {"Labels": {"a": 1}}]}),
                "spec.List[1].Labels.a: Invalid value: 1: must be a string",
            ),
            (
                json!({"List": [7]}),
                "spec.List[0]: Invalid value: 7: must be an object",
            ),
            (
                json!({"Labels": []}),
                "spec.Labels: Invalid value: []: must be an object",
            ),
            (
                json!({"Amount": 99_999_999_999_999_i64}),
                "spec.Amount: Invalid value: 99999999999999: must be a 32-bit integer",
            ),
            (
                json!({"Amount": {}}),
                "spec.Amount: Invalid value: {}: must be an integer or a string",
            ),
        ] {
            let fault = decode::<Spec>("spec", Some(&raw)).map(|_| ()).err();
            let fault = fault.map(|fault| fault.to_string());
            assert_eq!(fault.as_deref(), Some(text), "{raw}");
        }
    }
}
