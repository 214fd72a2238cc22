//! The rules of the kind, shared by the webhook and the reconciler.

use chrono::{DateTime, Utc};

use super::crd::{Count, CountSpec, CountStatus};
use admission_rules::faults::Fault;
use admission_rules::rules::{Findings, Rules, Subject};

/// The maximum length of a label value, in characters.
const MAX_VALUE_LEN: usize = 63;
/// The API server's own words about label values (k8s.io/apimachinery, util/validation).
const TOO_LONG: &str = "must be no more than 63 characters";
const NOT_A_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// There are never more pods than this.
const MAX_PODS: i64 = i32::MAX as i64;

/// See the module.
#[derive(Debug)]
pub(crate) struct CountRules;

impl Rules for CountRules {
    type Object = Count;
    type Spec = CountSpec;
    type Status = CountStatus;

    /// Both fields are required: nothing is defaulted.
    fn default(_spec: &mut CountSpec) {}

    fn check(subject: &Subject<'_, CountSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        check_name(subject.spec.name.as_deref(), &mut findings);
        check_count(subject.spec.count, &mut findings);
        findings
    }
}

fn check_name(name: Option<&str>, findings: &mut Findings) {
    let field = "spec.name";
    // No pod is labelled with an empty name on purpose.
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        findings.fault(Fault::required(field, "name is required"));
        return;
    };
    if name.len() > MAX_VALUE_LEN {
        findings.fault(Fault::invalid(field, name, TOO_LONG));
    }
    if !has_form_of_value(name) {
        findings.fault(Fault::invalid(field, name, NOT_A_VALUE));
    }
}

fn check_count(count: Option<i64>, findings: &mut Findings) {
    let field = "spec.count";
    if count.is_none() {
        findings.fault(Fault::required(field, "count is required"));
    }
    findings.check_number(field, count, 0..=MAX_PODS);
}

/// Whether a non-empty text is a label value, apart from its length.
fn has_form_of_value(text: &str) -> bool {
    let mut bytes = text.bytes();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let ends_well = |end: Option<u8>| end.is_some_and(|b| b.is_ascii_alphanumeric());
    ends.into_iter().all(ends_well)
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use admission_rules::rules::decode_and_validate;

    fn faults(spec: &Value) -> Vec<String> {
        let settled = decode_and_validate::<CountRules>(
            "x",
            &BTreeMap::new(),
            &spec.to_string(),
            DateTime::UNIX_EPOCH,
        );
        let faults = settled.err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_specs_have_no_fault() {
        for name in ["nginx", "a", "A_b.c-D9", "12345", &"x".repeat(63)] {
            for count in [0, 1, 3, 2_147_483_647] {
                let spec = json!({"name": name, "count": count});
                assert_eq!(faults(&spec), Vec::<String>::new(), "{spec}");
            }
        }
    }

    #[test]
    fn every_rule_has_its_sentence() {
        let long = "x".repeat(64);
        let name = |name: &str| json!({"name": name, "count": 1});
        let count = |count: Value| json!({"name": "nginx", "count": count});
        for (spec, text) in [
            (
                name(""),
                "spec.name: Required value: name is required".to_owned(),
            ),
            (
                json!({"count": 1}),
                "spec.name: Required value: name is required".to_owned(),
            ),
            (
                name(&long),
                format!("spec.name: Invalid value: {long:?}: {TOO_LONG}"),
            ),
            (
                name("a b"),
                format!("spec.name: Invalid value: \"a b\": {NOT_A_VALUE}"),
            ),
            (
                name("-a"),
                format!("spec.name: Invalid value: \"-a\": {NOT_A_VALUE}"),
            ),
            (
                name("a."),
                format!("spec.name: Invalid value: \"a.\": {NOT_A_VALUE}"),
            ),
            (
                name("é"),
                format!("spec.name: Invalid value: \"é\": {NOT_A_VALUE}"),
            ),
            (
                json!({"name": "a"}),
                "spec.count: Required value: count is required".to_owned(),
            ),
            (
                count((-1).into()),
                "spec.count: Invalid value: -1: must be greater than or equal to 0".to_owned(),
            ),
            (
                count(2_147_483_648_i64.into()),
                "spec.count: Invalid value: 2147483648: must be less than or equal to 2147483647"
                    .to_owned(),
            ),
            (
                count("x".into()),
                "spec.count: Invalid value: \"x\": must be a 64-bit integer".to_owned(),
            ),
        ] {
            assert_eq!(faults(&spec), [text], "{spec}");
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let nothing = faults(&Value::Null);
        assert_eq!(nothing.len(), 2, "{nothing:?}");
        let worst = faults(&json!({"name": " ".repeat(300), "count": -1}));
        assert_eq!(worst.len(), 3, "{worst:?}");
    }
}
