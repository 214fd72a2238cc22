//! Judges one request by the rules of one kind.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Utc};
use kube::core::ApiResource;
use serde_json::json;

use super::faults::Fault;
use super::patch::{self, Change};
use super::review::{self, Object, Request, Response};
use super::rules::{self, Findings, Rules, Subject, decode, defaulted};

/// An answer, and what the log says of it.
#[derive(Debug)]
pub struct Verdict {
    /// The answer.
    pub response: Response,
    /// The object's name, where it could be read.
    pub name: String,
    /// Why the object was refused.
    pub faults: Vec<Fault>,
}

/// Judges a request at an instant.
pub type Judge = fn(&Request<'_>, DateTime<Utc>) -> Verdict;

/// What admission knows of a kind: its names and its two judges.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Group, version, kind and plural.
    pub resource: fn() -> ApiResource,
    /// The annotations that only the webhook writes.
    pub recorded: &'static [&'static str],
    /// Fills in defaults. Never refuses.
    pub mutate: Judge,
    /// Accepts or refuses.
    pub validate: Judge,
}

impl Admission {
    /// Admission by these rules.
    pub const fn of<R: Rules>() -> Self {
        Self {
            resource: || ApiResource::erase::<R::Object>(&()),
            recorded: R::RECORDED,
            mutate: mutate::<R>,
            validate: validate::<R>,
        }
    }

    /// The path of the webhook of that verb (`mutate` or `validate`), as kubebuilder names it.
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

/// The part of a request that both judges read first, or the answer if there is nothing to judge.
fn open<'a, R: Rules>(request: &'a Request<'_>) -> Result<(Object, Option<Object>), Cow<'a, str>> {
    let kind = <R::Object as kube::Resource>::kind(&());
    let group = <R::Object as kube::Resource>::group(&());
    if request.kind.kind != kind || request.kind.group != group {
        return Err(Cow::Owned(format!(
            "this path judges {kind}.{group}, not {}.{}",
            request.kind.kind, request.kind.group
        )));
    }
    let object = request.object.ok_or("the request has no object")?;
    let object =
        review::read(object.get().as_bytes()).map_err(|e| format!("unreadable object: {e}"))?;
    let old = match request.old_object {
        Some(old) if request.operation == "UPDATE" => Some(
            review::read(old.get().as_bytes()).map_err(|e| format!("unreadable oldObject: {e}"))?,
        ),
        _ => None,
    };
    Ok((object, old))
}

/// Only these are judged, and only for the object itself.
fn is_judged(request: &Request<'_>) -> bool {
    matches!(request.operation.as_ref(), "CREATE" | "UPDATE") && request.sub_resource.is_empty()
}

/// What an object without annotations has.
static NO_ANNOTATIONS: BTreeMap<String, String> = BTreeMap::new();

fn annotations(object: &Object) -> &BTreeMap<String, String> {
    object.annotations().unwrap_or(&NO_ANNOTATIONS)
}

fn subject<'a, S>(object: &'a Object, spec: &'a S) -> Subject<'a, S> {
    Subject {
        name: object.name(),
        annotations: annotations(object),
        created: object.metadata.as_ref().and_then(|m| m.creation_timestamp),
        spec,
    }
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

/// The defaulting side. What it cannot read it leaves to the validating side to refuse.
fn mutate<R: Rules>(request: &Request<'_>, now: DateTime<Utc>) -> Verdict {
    if !is_judged(request) {
        return passed(request, "");
    }
    let (object, old) = match open::<R>(request) {
        Ok(opened) => opened,
        Err(message) => return misdirected(request, &message),
    };
    let mut verdict = passed(request, object.name());
    let mut changes = Vec::new();
    // A spec that cannot be read gets no defaults. What the webhook records is decided all the same:
    // such a spec may be stored already, and then an update of its annotations is accepted.
    let spec = decode::<R::Spec>("spec", object.spec.as_ref()).map_or_else(
        |_| R::Spec::default(),
        |mut spec| {
            let before = serde_json::to_value(&spec);
            R::default(&mut spec);
            if let (Ok(before), Ok(after)) = (before, serde_json::to_value(&spec)) {
                changes = patch::additions(&["spec"], &before, &after);
            }
            spec
        },
    );
    let old_spec = old
        .as_ref()
        .map(|old| defaulted::<R>(old.spec.as_ref()).unwrap_or_default());
    let old = old.as_ref().zip(old_spec.as_ref());
    let recorded = R::record(&rules::Request {
        user: &request.user_info.username,
        old: old.map(|(old, spec)| subject(old, spec)),
        new: subject(&object, &spec),
        now,
    });
    let present = annotations(&object);
    for (key, value) in recorded {
        if present.get(key) != value.as_ref() {
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

    if changes.is_empty() {
        return verdict;
    }
    let looked_at = json!({
        "metadata": object.metadata.map(|m| json!({ "annotations": m.annotations })),
        "spec": object.spec,
    });
    verdict.response = verdict
        .response
        .with_patch(patch::operations(looked_at, &changes));
    verdict
}

/// One version of an object with its findings; the spec only where it could be decoded.
struct Judged<S> {
    spec: Option<S>,
    findings: Findings,
}

fn examine<R: Rules>(object: &Object, now: DateTime<Utc>) -> Judged<R::Spec> {
    match defaulted::<R>(object.spec.as_ref()) {
        Err(fault) => Judged {
            spec: None,
            findings: Findings {
                faults: vec![fault],
                warnings: Vec::new(),
            },
        },
        Ok(spec) => {
            let findings = R::check(&subject(object, &spec), now);
            Judged {
                spec: Some(spec),
                findings,
            }
        }
    }
}

/// The validating side.
fn validate<R: Rules>(request: &Request<'_>, now: DateTime<Utc>) -> Verdict {
    if !is_judged(request) {
        return passed(request, "");
    }
    let (object, old) = match open::<R>(request) {
        Ok(opened) => opened,
        Err(message) => return misdirected(request, &message),
    };
    let new = examine::<R>(&object, now);
    let mut found = new.findings;
    if let Some(old) = &old {
        let before = examine::<R>(old, now);
        // Ratcheting: what is stored already must not keep anybody from changing something else.
        // Where not all the old faults are known, none counts as new: such an object is worked on
        // in no way before it has no fault at all.
        let stored: HashSet<&Fault> = before.findings.faults.iter().collect();
        let (known, fresh): (Vec<Fault>, _) = found
            .faults
            .into_iter()
            .partition(|fault| before.findings.is_full() || stored.contains(fault));
        found.faults = fresh;
        for fault in known {
            found.warn(format!("already stored: {fault}"));
        }
        let status = decode::<R::Status>("status", old.status.as_ref()).unwrap_or_default();
        if let (Some(old_spec), Some(new_spec)) = (&before.spec, &new.spec) {
            let (old, new) = (subject(old, old_spec), subject(&object, new_spec));
            found.extend(R::check_update(&old, &status, &new));
        }
    }
    let Findings { faults, warnings } = found;
    let name = object.name();
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
