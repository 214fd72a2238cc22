//! The defaults and rules of a `Memcached`, shared by the webhook and the reconciler.

use chrono::{DateTime, Utc};

use super::crd::{Memcached, MemcachedSpec, MemcachedStatus};
use admission_rules::faults::Fault;
use admission_rules::rules::{Findings, Rules, Subject};
use my_operator_kind::template::check_image;

/// The image of the operator-sdk's sample, which this kind is modelled on.
pub(crate) const DEFAULT_IMAGE: &str = "memcached:1.4.36-alpine";

/// The name becomes the value of a label.
const MAX_NAME_LEN: usize = 63;
/// memcached 1.5 or later does not start if an item, of 1 MiB at most, could take more than half of the memory.
const MIN_MEMORY: i64 = 2;
/// 1 TiB: a mistyped number is more likely than a larger cache.
const MAX_MEMORY: i64 = 1_048_576;

/// The rules of the kind.
#[derive(Debug)]
pub(crate) struct MemcachedRules;

impl Rules for MemcachedRules {
    type Object = Memcached;
    type Spec = MemcachedSpec;
    type Status = MemcachedStatus;

    fn default(spec: &mut Self::Spec) {
        spec.image.get_or_insert_with(|| DEFAULT_IMAGE.to_owned());
    }

    fn check(subject: &Subject<'_, Self::Spec>, _now: DateTime<Utc>) -> Findings {
        let spec = subject.spec;
        let mut findings = Findings::default();
        findings.check_name(subject, MAX_NAME_LEN);
        if spec.size.is_none() {
            findings.fault(Fault::required("spec.size", ""));
        }
        findings.check_number("spec.size", spec.size, 0..=i64::from(i32::MAX));
        check_image(
            "spec.image",
            spec.image.as_deref().unwrap_or_default(),
            &mut findings,
        );
        if let Some(memory) = spec.memory
            && !(MIN_MEMORY..=MAX_MEMORY).contains(&memory)
        {
            findings.fault(Fault::invalid(
                "spec.memory",
                memory,
                &format!("must be between {MIN_MEMORY} and {MAX_MEMORY} (MiB), inclusive"),
            ));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use admission_rules::rules::{decode, decode_and_validate};

    fn findings_of(name: &str, spec: &Value) -> Findings {
        let mut spec: MemcachedSpec = decode("spec", Some(spec)).unwrap();
        MemcachedRules::default(&mut spec);
        let subject = Subject {
            name,
            annotations: &BTreeMap::new(),
            created: None,
            spec: &spec,
        };
        MemcachedRules::check(&subject, DateTime::UNIX_EPOCH)
    }

    fn faults(spec: &Value) -> Vec<String> {
        let findings = findings_of("x", spec);
        findings.faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_fill_in_the_image_and_nothing_else() {
        for (before, after) in [
            (json!({}), json!({"image": DEFAULT_IMAGE})),
            (
                json!({"size": 0, "image": ""}),
                json!({"size": 0, "image": ""}),
            ),
            (
                json!({"size": 3, "memory": 7}),
                json!({"size": 3, "memory": 7, "image": DEFAULT_IMAGE}),
            ),
        ] {
            let mut spec: MemcachedSpec = decode("spec", Some(&before)).unwrap();
            MemcachedRules::default(&mut spec);
            assert_eq!(serde_json::to_value(&spec).unwrap(), after);
            let once = spec.clone();
            MemcachedRules::default(&mut spec);
            assert_eq!(spec, once, "a second pass changes nothing");
        }
    }

    #[test]
    fn good_objects_have_neither_fault_nor_warning() {
        for spec in [
            json!({"size": 0}),
            json!({"size": 4}),
            json!({"size": i32::MAX}),
            json!({"size": 1, "memory": 2, "image": "localhost:5000/cache/memcached:1.6"}),
            json!({"size": 1, "memory": 1_048_576}),
            json!({"size": 1, "memory": null, "image": null}),
        ] {
            assert_eq!(findings_of("x", &spec), Findings::default(), "{spec}");
        }
        let longest = "x".repeat(63);
        assert_eq!(
            findings_of(&longest, &json!({"size": 1})),
            Findings::default()
        );
    }

    #[test]
    fn every_rule_has_its_sentence() {
        for (spec, text) in [
            (json!({}), "spec.size: Required value"),
            (json!({"size": null}), "spec.size: Required value"),
            (
                json!({"size": -1}),
                "spec.size: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"size": 1, "image": ""}),
                "spec.image: Required value: image is required",
            ),
            (
                json!({"size": 1, "image": "a b"}),
                "spec.image: Invalid value: \"a b\": blank or control character at character 2",
            ),
            (
                json!({"size": 1, "memory": 1}),
                "spec.memory: Invalid value: 1: must be between 2 and 1048576 (MiB), inclusive",
            ),
            (
                json!({"size": 1, "memory": 1_048_577}),
                "spec.memory: Invalid value: 1048577: must be between 2 and 1048576 (MiB), inclusive",
            ),
        ] {
            assert_eq!(faults(&spec), [text], "{spec}");
        }
        for length in [64, 253] {
            let long = findings_of(&"x".repeat(length), &json!({"size": 1})).faults;
            assert_eq!(
                long[0].to_string(),
                "metadata.name: Too long: may not be more than 63 bytes"
            );
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let found = findings_of(&"x".repeat(64), &json!({"image": "a b", "memory": -1})).faults;
        assert_eq!(found.len(), 4, "{found:#?}");
    }

    #[test]
    fn an_image_without_tag_is_a_warning() {
        let findings = findings_of("x", &json!({"size": 1, "image": "memcached"}));
        assert!(
            findings.faults.is_empty() && findings.warnings.len() == 1,
            "{findings:?}"
        );
    }

    #[test]
    fn an_unvalidated_spec_is_an_error_and_no_panic() {
        for (spec, field) in [
            (r#"{"size": "3"}"#, "spec.size"),
            (r#"{"size": 2147483648}"#, "spec.size"),
            (r#"{"size": 1.5}"#, "spec.size"),
            (r#"{"size": 1, "memory": "64Mi"}"#, "spec.memory"),
            ("[]", "spec"),
            ("null", "spec.size"),
        ] {
            let faults = decode_and_validate::<MemcachedRules>(
                "x",
                &BTreeMap::new(),
                spec,
                DateTime::UNIX_EPOCH,
            );
            assert_eq!(faults.unwrap_err()[0].field, field, "{spec}");
        }
    }
}
