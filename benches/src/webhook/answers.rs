//! Whether a server answers as it should, before it is measured: otherwise figures of different work would be compared.

use anyhow::{Context as _, Result, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value};

use super::load::Client;
use super::reviews::{Case, UID};

/// Sends every case.
///
/// # Errors
/// The first answer with another verdict, or with a patch that leads to another object.
pub(crate) fn check(client: &Client, cases: &[Case]) -> Result<()> {
    for case in cases {
        let answer = client.ask(&case.request());
        let checked = answer.and_then(|answer| compare(case, &answer));
        checked.with_context(|| case.name.clone())?;
    }
    Ok(())
}

fn compare(case: &Case, answer: &[u8]) -> Result<()> {
    match (outcome(&case.object, answer)?, &case.expected) {
        (None, None) => Ok(()),
        (Some(object), Some(expected)) => {
            let difference = json_patch::diff(&pruned(expected), &pruned(&object));
            ensure!(
                difference.0.is_empty(),
                "another object: {}",
                serde_json::to_string(&difference)?
            );
            Ok(())
        }
        (None, Some(_)) => bail!("denied: {}", String::from_utf8_lossy(answer)),
        (Some(_), None) => bail!("allowed"),
    }
}

/// The object with the answer's patch applied; `None` if it is denied.
fn outcome(object: &Value, answer: &[u8]) -> Result<Option<Value>> {
    let review: Value = serde_json::from_slice(answer)?;
    let response = &review["response"];
    ensure!(response["uid"] == UID, "an answer to another review");
    let allowed = response["allowed"].as_bool().context("no verdict")?;
    if !allowed {
        return Ok(None);
    }
    let mut object = object.clone();
    let patch: Vec<u8> = match &response["patch"] {
        Value::Null => return Ok(Some(object)),
        Value::String(text) => BASE64_STANDARD.decode(text)?,
        // kube writes each byte as a number, which Go reads as well.
        numbers => serde_json::from_value(numbers.clone())?,
    };
    let patch: json_patch::Patch = serde_json::from_slice(&patch)?;
    json_patch::patch(&mut object, &patch)?;
    Ok(Some(object))
}

/// Without empty objects: Go writes one for each struct without members, such as a status.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_empty = |member: &Value| member.as_object().is_some_and(Map::is_empty);
            let members = members
                .iter()
                .map(|(name, member)| (name.clone(), pruned(member)));
            let kept = members.filter(|(_, member)| !is_empty(member));
            kept.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::webhook::reviews::cases;

    fn answer(response: &Value) -> Vec<u8> {
        json!({"response": response}).to_string().into_bytes()
    }

    #[test]
    fn a_patch_is_base64_or_numbers() {
        let patch = br#"[{"op": "add", "path": "/a", "value": 1}]"#;
        let text = json!(BASE64_STANDARD.encode(patch));
        let numbers = json!(patch.to_vec());
        for patch in [text, numbers] {
            let answer = answer(&json!({"uid": UID, "allowed": true, "patch": patch}));
            let object = outcome(&json!({"b": 2}), &answer).unwrap();
            assert_eq!(object, Some(json!({"a": 1, "b": 2})));
        }
    }

    #[test]
    fn other_verdicts_and_other_objects_are_noticed() {
        let without_patch = answer(&json!({"uid": UID, "allowed": true}));
        let denied = answer(&json!({"uid": UID, "allowed": false}));
        let mut seen = [0; 3];
        for case in cases() {
            let agree = [&without_patch, &denied].map(|answer| compare(&case, answer).is_ok());
            let expected = match &case.expected {
                None => [false, true],
                Some(object) => [*object == case.object, false],
            };
            assert_eq!(agree, expected, "{}", case.name);
            seen[usize::from(expected[0]) + 2 * usize::from(expected[1])] += 1;
        }
        assert!(!seen.contains(&0), "{seen:?}");
        let other = answer(&json!({"uid": "other", "allowed": true}));
        assert!(outcome(&json!({}), &other).is_err());
    }

    #[test]
    fn only_empty_objects_are_left_out() {
        let value = json!({"a": {}, "b": {"c": {}}, "d": [], "e": null, "f": [{"g": {}}], "h": 0});
        let kept = json!({"d": [], "e": null, "f": [{}], "h": 0});
        assert_eq!(pruned(&value), kept);
    }
}
