//! Reviews one request by the rules of one kind.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use kube::core::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::patch::{self, Change, Operation};
use super::review::{Object, Read, Request, Response};
use super::rules::{self, Findings, Rules, Subject};

/// An answer, and its log entry.
#[derive(Debug)]
pub struct Verdict {
    /// The answer.
    pub response: Response,
    /// The object's name, if it could be read.
    pub name: String,
    /// Why the object was rejected.
    pub faults: Vec<Fault>,
}

/// Reviews a request at an instant. [`Admission::of`] makes it of [`Rules`].
pub type Handler = fn(&Request<'_>, DateTime<Utc>) -> Verdict;

/// The admission of a kind: its names and its two handlers.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Group, version, kind and plural.
    pub resource: fn() -> ApiResource,
    /// The annotations that only the webhook writes.
    pub recorded: &'static [&'static str],
    /// Sets defaults. Never rejects.
    pub mutate: Handler,
    /// Accepts or rejects.
    pub validate: Handler,
}

impl Admission {
    /// Admission by these rules, for [`router`](crate::router::router).
    pub const fn of<R: Rules>() -> Self {
        Self {
            resource: || ApiResource::erase::<R::Object>(&()),
            recorded: R::RECORDED,
            mutate: mutate::<R>,
            validate: validate::<R>,
        }
    }

    /// The path of the webhook of that verb (`mutate` or `validate`), as kubebuilder names it, such as
    /// `/validate-example-com-v1-lamp`.
    pub fn path(&self, verb: &str) -> String {
        let resource = (self.resource)();
        format!(
            "/{verb}-{}-{}-{}",
            resource.group.replace('.', "-"),
            resource.version,
            resource.kind.to_lowercase()
        )
    }
}

/// One version of an object, as far as the handlers read it.
struct Version<'a, S> {
    object: &'a Object<'a>,
    /// Whether the object has annotations, be it an empty map.
    has_annotations: bool,
    /// The annotations that the webhook records.
    annotations: BTreeMap<String, String>,
    spec: Result<S, Fault>,
}

impl<'a, S: DeserializeOwned + Default> Version<'a, S> {
    /// # Errors
    /// Why it cannot be read. Its rules are not checked then.
    fn of<R: Rules<Spec = S>>(object: &'a Read<Object<'a>>) -> Result<Self, String> {
        let object = object.as_ref().map_err(ToString::to_string)?;
        let spec = rules::read_by(R::read, "spec", object.spec, object.spec_size)
            .map_err(|error| error.to_string())?;
        let annotations = object.annotations(R::RECORDED)?;
        Ok(Self {
            has_annotations: annotations.is_some(),
            annotations: annotations.unwrap_or_default(),
            spec,
            object,
        })
    }
}

impl<S> Version<'_, S> {
    fn subject<'a>(&'a self, spec: &'a S) -> Subject<'a, S> {
        let metadata = self.object.metadata.as_ref();
        Subject {
            name: self.object.name(),
            annotations: &self.annotations,
            created: metadata.and_then(|metadata| metadata.creation_timestamp),
            spec,
        }
    }

    /// The same for a spec that could not be read.
    fn subject_or<'a>(&'a self, unreadable: &'a S) -> Subject<'a, S> {
        self.subject(self.spec.as_ref().unwrap_or(unreadable))
    }
}

/// The new version, and on UPDATE the stored one.
type Versions<'a, S> = (Version<'a, S>, Option<Version<'a, S>>);

/// The part of a request that both handlers read first, or the answer if there is nothing to review.
fn open<'a, R: Rules>(
    request: &'a Request<'a>,
) -> Result<Versions<'a, R::Spec>, Cow<'static, str>> {
    let kind = <R::Object as kube::Resource>::kind(&());
    let group = <R::Object as kube::Resource>::group(&());
    if request.kind.kind != kind || request.kind.group != group {
        return Err(Cow::Owned(format!(
            "this path judges {kind}.{group}, not {}.{}",
            request.kind.kind, request.kind.group
        )));
    }
    let object = request.object.as_ref();
    let object = object.ok_or("the request has no object")?;
    let object = Version::of::<R>(object).map_err(|e| format!("unreadable object: {e}"))?;
    let old = match &request.old_object {
        Some(old) if request.operation == "UPDATE" => {
            Some(Version::of::<R>(old).map_err(|e| format!("unreadable oldObject: {e}"))?)
        }
        _ => None,
    };
    Ok((object, old))
}

/// Only these operations are reviewed, and only for the object itself.
fn is_judged(request: &Request<'_>) -> bool {
    matches!(request.operation.as_ref(), "CREATE" | "UPDATE") && request.sub_resource.is_empty()
}

fn passed(request: &Request<'_>, name: &str) -> Verdict {
    Verdict {
        response: Response::allow(&request.uid),
        name: name.to_owned(),
        faults: Vec::new(),
    }
}

fn misdirected(request: &Request<'_>, message: &str) -> Verdict {
    Verdict {
        response: Response::bad_request(&request.uid, message),
        name: String::new(),
        faults: Vec::new(),
    }
}

/// The mutating handler. It leaves an object that it cannot read to the validating handler, which rejects it.
fn mutate<R: Rules>(request: &Request<'_>, now: DateTime<Utc>) -> Verdict {
    if !is_judged(request) {
        return passed(request, "");
    }
    let (mut new, mut old) = match open::<R>(request) {
        Ok(opened) => opened,
        Err(message) => return misdirected(request, &message),
    };
    let mut verdict = passed(request, new.object.name());
    // A malformed spec gets no defaults. The annotations that the webhook writes are still decided: such a spec may be
    // stored already, and then an update of its annotations is accepted.
    let (sent, mut changes) = match &mut new.spec {
        Ok(spec) => add_defaults::<R>(spec).unwrap_or_default(),
        Err(_) => (String::new(), Vec::new()),
    };
    if let Some(Ok(spec)) = old.as_mut().map(|old| &mut old.spec) {
        R::default(spec);
    }
    let unreadable = R::Spec::default();
    let recorded = R::record(&rules::Request {
        user: &request.user_info.username,
        old: old.as_ref().map(|old| old.subject_or(&unreadable)),
        new: new.subject_or(&unreadable),
        now,
    });
    for (key, value) in recorded {
        if new.annotations.get(key) != value.as_ref() {
            let path = vec![
                "metadata".to_owned(),
                "annotations".to_owned(),
                key.to_owned(),
            ];
            changes.push(match value {
                Some(value) => Change::Set(path, value.into()),
                None => Change::Remove(path),
            });
        }
    }
    if !changes.is_empty()
        && let Ok(operations) = operations(&new, &sent, &changes)
    {
        verdict.response = verdict.response.with_patch(operations);
    }
    verdict
}

/// Sets the defaults, and returns the outline as it was sent, and the changes.
fn add_defaults<R: Rules>(spec: &mut R::Spec) -> serde_json::Result<(String, Vec<Change>)> {
    let before = outline::<R>(spec);
    R::default(spec);
    let before = before?;
    let changes = patch::additions(&["spec"], &before, &outline::<R>(spec)?)?;
    Ok((before, changes))
}

/// The spec as JSON, without its bulk.
fn outline<R: Rules>(spec: &mut R::Spec) -> serde_json::Result<String> {
    let bulk = R::bulk(spec).map(std::mem::take);
    let text = serde_json::to_string(spec);
    if let (Some(place), Some(bulk)) = (R::bulk(spec), bulk) {
        *place = bulk;
    }
    text
}

/// The patch that makes those changes; `sent` is the outline of the spec.
fn operations<S>(
    version: &Version<'_, S>,
    sent: &str,
    changes: &[Change],
) -> serde_json::Result<Vec<Operation>> {
    // Only the fields that the changes can touch: a copy of the whole object would multiply a large review.
    let there = |key: &String| (key.clone(), Value::Bool(true));
    let annotations = version.annotations.keys().map(there);
    let annotations = version
        .has_annotations
        .then(|| annotations.collect::<Map<_, _>>());
    let metadata = version.object.metadata.as_ref();
    let metadata = metadata.map(|_| json!({ "annotations": annotations }));
    // An object of the text is one of the typed spec, too, and its `null` counts as missing.
    let spec = version.object.spec;
    let spec = spec.map(|_| patch::sketch("spec", sent, changes));
    let looked_at = json!({ "metadata": metadata, "spec": spec.transpose()? });
    Ok(patch::operations(looked_at, changes))
}

/// Sets the defaults of one version and applies the rules to it.
fn examine<R: Rules>(version: &mut Version<'_, R::Spec>, now: DateTime<Utc>) -> Findings {
    if let Ok(spec) = &mut version.spec {
        R::default(spec);
    }
    match &version.spec {
        Ok(spec) => {
            let mut findings = R::check(&version.subject(spec), now);
            findings.extend(R::check_limits(spec));
            findings
        }
        Err(fault) => Findings {
            faults: vec![fault.clone()],
            warnings: Vec::new(),
        },
    }
}

/// Splits the faults of a new version into those that the stored version also has, and new ones. A stored fault may
/// move with its item to another index of its list, but it must not multiply.
fn ratchet(before: &Findings, found: Vec<Fault>) -> (Vec<Fault>, Vec<Fault>) {
    // If not all old faults are known, none counts as new. No reconciler acts on such an object before all its faults
    // are fixed.
    if before.is_full() {
        return (found, Vec::new());
    }
    let stored: HashSet<&Fault> = before.faults.iter().collect();
    let (mut known, others): (Vec<Fault>, Vec<Fault>) =
        found.into_iter().partition(|fault| stored.contains(fault));
    let in_place: HashSet<&Fault> = known.iter().collect();
    let mut missing: HashMap<Fault, usize> = HashMap::new();
    for fault in before
        .faults
        .iter()
        .filter(|fault| !in_place.contains(fault))
    {
        *missing.entry(fault.of_any_item()).or_default() += 1;
    }
    let (moved, fresh) =
        others
            .into_iter()
            .partition(|fault| match missing.get_mut(&fault.of_any_item()) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                _ => false,
            });
    known.extend::<Vec<Fault>>(moved);
    (known, fresh)
}

/// The validating handler.
fn validate<R: Rules>(request: &Request<'_>, now: DateTime<Utc>) -> Verdict {
    if !is_judged(request) {
        return passed(request, "");
    }
    let (mut new, mut old) = match open::<R>(request) {
        Ok(opened) => opened,
        Err(message) => return misdirected(request, &message),
    };
    let mut found = examine::<R>(&mut new, now);
    if let Some(old) = &mut old {
        let before = examine::<R>(old, now);
        // Ratcheting: faults that are stored already must not block changes of other fields.
        let (known, fresh) = ratchet(&before, found.faults);
        found.faults = fresh;
        for fault in known {
            found.warn(format!("already stored: {fault}"));
        }
        let status = rules::read("status", old.object.status);
        let status: Option<R::Status> = status.ok().and_then(Result::ok);
        if let (Ok(old_spec), Ok(new_spec)) = (&old.spec, &new.spec) {
            let (old, new) = (old.subject(old_spec), new.subject(new_spec));
            found.extend(R::check_update(&old, status.as_ref(), &new));
        }
    }
    let Findings { faults, warnings } = found;
    let name = new.object.name();
    let response = if faults.is_empty() {
        Response::allow(&request.uid)
    } else {
        let resource = ApiResource::erase::<R::Object>(&());
        Response::refuse(&request.uid, &resource.group, &resource.kind, name, &faults)
    };
    Verdict {
        response: response.with_warnings(&warnings),
        name: name.to_owned(),
        faults,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(all: &[(&str, &str)]) -> Vec<Fault> {
        let fault = |(field, value): &(&str, &str)| Fault::invalid(*field, *value, "is bad");
        all.iter().map(fault).collect()
    }

    fn fresh(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<String> {
        let before = Findings {
            faults: faults(before),
            ..Findings::default()
        };
        let (known, fresh) = ratchet(&before, faults(after));
        assert_eq!(known.len() + fresh.len(), after.len());
        fresh.into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn a_stored_fault_may_move_within_its_list_but_not_multiply() {
        let none: [&str; 0] = [];
        // Another item was removed, or added in front.
        assert_eq!(fresh(&[("c[1].image", "x")], &[("c[0].image", "x")]), none);
        let two = [("c[1].image", "x"), ("c[2].image", "x")];
        assert_eq!(fresh(&[("c[1].image", "x")], &two), ["c[2].image"]);
        assert_eq!(
            fresh(&two, &[("c[0].image", "x"), ("c[1].image", "x")]),
            none
        );
        // Another value, field, list or label is another fault.
        assert_eq!(
            fresh(&[("c[1].image", "x")], &[("c[0].image", "y")]),
            ["c[0].image"]
        );
        assert_eq!(
            fresh(
                &[("c[1].image", "x")],
                &[("c[0].name", "x"), ("d[1].image", "x")]
            ),
            ["c[0].name", "d[1].image"]
        );
        assert_eq!(
            fresh(&[("labels[a1]", "x")], &[("labels[a2]", "x")]),
            ["labels[a2]"]
        );
        assert_eq!(
            fresh(&[("c[1].e[7].name", "x")], &[("c[0].e[10].name", "x")]),
            none
        );
    }
}
