//! What a kind tells admission: its defaults and its rules, as pure functions of a typed spec.
//!
//! The webhook and the reconciler call the same functions: [`settle`] is the way from a raw spec
//! to one that a reconciler may act on, whoever let the object in.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::faults::Fault;

/// What is judged: one version of an object, as far as rules look at it.
#[derive(Debug)]
pub struct Subject<'a, S> {
    /// `metadata.name`, or `metadata.generateName` while the API server has not made a name yet.
    pub name: &'a str,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// `metadata.creationTimestamp`; absent in the mutating review of a CREATE.
    pub created: Option<DateTime<Utc>>,
    /// The typed spec, with its defaults.
    pub spec: &'a S,
}

/// What the rules found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Any of these refuses the object.
    pub faults: Vec<Fault>,
    /// Told to the user, the object being accepted.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Adds a fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Adds a warning.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

/// Who asks for what, as far as annotations that the webhook records depend on it.
#[derive(Debug)]
pub struct Request<'a, S> {
    /// `userInfo.username`.
    pub user: &'a str,
    /// The stored object that an UPDATE replaces; none on CREATE.
    pub old: Option<Subject<'a, S>>,
    /// The object as it was sent, defaulted.
    pub new: Subject<'a, S>,
    /// The webhook's clock.
    pub now: DateTime<Utc>,
}

/// An annotation that only the webhook writes: its key, and the value that it must have.
/// `None` takes away what a client put there.
pub type Recorded = (&'static str, Option<String>);

/// The rules of one kind. All functions are pure.
pub trait Rules: 'static {
    /// The object's type: group, version, kind and plural come from it.
    type Object: kube::Resource<DynamicType = ()>;
    /// The typed spec. Absent fields must be left out when it is serialised: defaulting is the
    /// difference between the spec before and after [`Rules::default`].
    type Spec: DeserializeOwned + Serialize + Default;
    /// The typed status, as far as rules look at it.
    type Status: DeserializeOwned + Default;

    /// The annotations that [`Rules::record`] decides: no client may write them.
    const RECORDED: &'static [&'static str] = &[];

    /// Fills in what is missing, and changes nothing that is there. A second pass changes nothing.
    fn default(spec: &mut Self::Spec);

    /// The value of each of [`Rules::RECORDED`].
    fn record(_request: &Request<'_, Self::Spec>) -> Vec<Recorded> {
        Vec::new()
    }

    /// Judges one version of an object by itself. Only warnings may depend on `now`.
    fn check(subject: &Subject<'_, Self::Spec>, now: DateTime<Utc>) -> Findings;

    /// Judges a change: immutability. Both versions are defaulted.
    fn check_update(
        _old: &Subject<'_, Self::Spec>,
        _status: &Self::Status,
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
    // An array would pass for a struct in serde's eyes, element by element.
    if !raw.is_object() {
        return Err(Fault::type_invalid(at, "must be an object"));
    }
    serde_path_to_error::deserialize(raw).map_err(|error| {
        let path = error.path().to_string();
        let field = match path.as_str() {
            "." | "?" => at.to_owned(),
            path => format!("{at}.{path}"),
        };
        Fault::type_invalid(field, &error.into_inner().to_string())
    })
}

/// The typed spec with its defaults.
///
/// # Errors
/// As [`decode`].
pub fn defaulted<R: Rules>(spec: Option<&Value>) -> Result<R::Spec, Fault> {
    let mut spec = decode("spec", spec)?;
    R::default(&mut spec);
    Ok(spec)
}

/// The way from a stored object's raw spec to one that may be acted on: decoded, defaulted and
/// checked by the same rules as in the webhook.
///
/// # Errors
/// The faults, for condition `Accepted=False`.
pub fn settle<R: Rules>(
    name: &str,
    annotations: &BTreeMap<String, String>,
    spec: Option<&Value>,
    now: DateTime<Utc>,
) -> Result<R::Spec, Vec<Fault>> {
    let spec = defaulted::<R>(spec).map_err(|fault| vec![fault])?;
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
        Err(faults)
    }
}
