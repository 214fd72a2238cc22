//! The rules of the kind, for the webhook and the reconciler alike.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};

use super::crd::{Foo, FooSpec, FooStatus};
use admission_rules::faults::Fault;
use admission_rules::names::has_form_of_label;
use admission_rules::rules::{Findings, Rules, Subject};

/// What the original's schema allows.
const REPLICAS: RangeInclusive<i64> = 1..=10;
/// The longest DNS label, and the longest value of a label of an object: the name of a Foo is one on
/// its Deployment's pods.
const MAX_LABEL_LEN: usize = 63;

const NAME: &str = "spec.deploymentName";
/// The sentence of Kubernetes (`IsDNS1123Label` of `k8s.io/apimachinery/pkg/util/validation`), doubled
/// blank and all.
const NOT_A_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
     characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
     '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// See the module.
#[derive(Debug)]
pub(crate) struct FooRules;

impl Rules for FooRules {
    type Object = Foo;
    type Spec = FooSpec;
    type Status = FooStatus;

    fn default(spec: &mut FooSpec) {
        spec.replicas.get_or_insert(1);
    }

    fn check(subject: &Subject<'_, FooSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        findings.check_name(subject, MAX_LABEL_LEN);
        check_deployment_name(
            subject.spec.deployment_name.as_deref().unwrap_or_default(),
            &mut findings,
        );
        findings.check_number("spec.replicas", subject.spec.replicas, REPLICAS);
        findings
    }
}

fn check_deployment_name(name: &str, findings: &mut Findings) {
    if name.is_empty() {
        findings.fault(Fault::required(NAME, "the name of the Deployment"));
        return;
    }
    if name.len() > MAX_LABEL_LEN {
        let most = format!("must be no more than {MAX_LABEL_LEN} characters");
        findings.fault(Fault::invalid(NAME, name, &most));
    }
    if !has_form_of_label(name) {
        let dotted = name.split('.').all(has_form_of_label);
        let why = if dotted {
            "must not contain dots"
        } else {
            NOT_A_LABEL
        };
        findings.fault(Fault::invalid(NAME, name, why));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use admission_rules::rules::decode_and_validate;

    fn faults_of(name: &str, spec: &Value) -> Vec<String> {
        let found = decode_and_validate::<FooRules>(
            name,
            &BTreeMap::new(),
            &spec.to_string(),
            DateTime::UNIX_EPOCH,
        );
        let faults = found.err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    fn faults(spec: &Value) -> Vec<String> {
        faults_of("example-foo", spec)
    }

    #[test]
    fn one_replica_is_the_default_and_nothing_else_is_filled_in() {
        for (before, after) in [
            (json!({}), json!({"replicas": 1})),
            (
                json!({"deploymentName": "a"}),
                json!({"deploymentName": "a", "replicas": 1}),
            ),
            (json!({"replicas": 0}), json!({"replicas": 0})),
        ] {
            let mut spec: FooSpec = serde_json::from_value(before).unwrap();
            FooRules::default(&mut spec);
            assert_eq!(serde_json::to_value(&spec).unwrap(), after);
            let once = spec.clone();
            FooRules::default(&mut spec);
            assert_eq!(spec, once, "a second pass changes nothing");
        }
    }

    #[test]
    fn what_the_original_takes_is_taken() {
        let longest = "x".repeat(MAX_LABEL_LEN);
        for name in ["example-foo", "a", "9", "a--b", longest.as_str()] {
            for replicas in [json!(null), json!(1), json!(10)] {
                let spec = json!({"deploymentName": name, "replicas": replicas});
                assert_eq!(faults(&spec), Vec::<String>::new(), "{spec}");
            }
        }
        let spec = json!({"deploymentName": "a"});
        assert_eq!(faults_of(&longest, &spec), Vec::<String>::new());
        assert_eq!(faults_of("a.foo.of.mine", &spec), Vec::<String>::new());
    }

    #[test]
    fn every_rule_has_its_sentence() {
        let required = "spec.deploymentName: Required value: the name of the Deployment";
        let invalid = |name: &str, why: &str| format!("{NAME}: Invalid value: {name:?}: {why}");
        for (spec, text) in [
            (json!(null), required.to_owned()),
            (json!({}), required.to_owned()),
            (json!({"deploymentName": null}), required.to_owned()),
            (json!({"deploymentName": ""}), required.to_owned()),
            (
                json!({"deploymentName": "x".repeat(64)}),
                invalid(&"x".repeat(64), "must be no more than 63 characters"),
            ),
            (
                json!({"deploymentName": "Foo"}),
                invalid("Foo", NOT_A_LABEL),
            ),
            (json!({"deploymentName": "-a"}), invalid("-a", NOT_A_LABEL)),
            (json!({"deploymentName": "a-"}), invalid("a-", NOT_A_LABEL)),
            (
                json!({"deploymentName": "a_b"}),
                invalid("a_b", NOT_A_LABEL),
            ),
            (
                json!({"deploymentName": "a..b"}),
                invalid("a..b", NOT_A_LABEL),
            ),
            (
                json!({"deploymentName": "\u{fc}"}),
                invalid("\u{fc}", NOT_A_LABEL),
            ),
            (
                json!({"deploymentName": "a.b"}),
                invalid("a.b", "must not contain dots"),
            ),
            (
                json!({"deploymentName": 5}),
                "spec.deploymentName: Invalid value: 5: must be a string".to_owned(),
            ),
            (
                json!({"deploymentName": "a", "replicas": 0}),
                "spec.replicas: Invalid value: 0: must be greater than or equal to 1".to_owned(),
            ),
            (
                json!({"deploymentName": "a", "replicas": -1}),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 1".to_owned(),
            ),
            (
                json!({"deploymentName": "a", "replicas": 11}),
                "spec.replicas: Invalid value: 11: must be less than or equal to 10".to_owned(),
            ),
            (
                json!({"deploymentName": "a", "replicas": "x"}),
                "spec.replicas: Invalid value: \"x\": must be a 32-bit integer".to_owned(),
            ),
            (
                json!({"deploymentName": "a", "replicas": 2_147_483_648_i64}),
                "spec.replicas: Invalid value: 2147483648: must be a 32-bit integer".to_owned(),
            ),
        ] {
            assert_eq!(faults(&spec), [text], "{spec}");
        }
        assert_eq!(
            faults_of(&"x".repeat(64), &json!({"deploymentName": "a"})),
            ["metadata.name: Too long: may not be more than 63 bytes"]
        );
    }

    #[test]
    fn all_faults_come_at_once() {
        let spec = json!({"deploymentName": "X".repeat(300), "replicas": 11});
        let found = faults_of(&"x".repeat(64), &spec);
        assert_eq!(found.len(), 4, "{found:#?}");
        // The value is cut, and no fault is longer for it.
        assert!(found.iter().all(|text| text.len() < 512), "{found:#?}");
    }
}
