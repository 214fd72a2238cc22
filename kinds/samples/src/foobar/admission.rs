//! The rules of the kind, for the webhook and the reconciler alike.

use chrono::{DateTime, Utc};

use super::crd::{FooBar, FooBarSpec, FooBarStatus};
use admission_rules::rules::{Findings, Rules, Subject};
use my_operator_kind::command;
use my_operator_kind::template::check_image;

/// As an At's: an image that has a shell and little else.
pub(crate) const DEFAULT_IMAGE: &str = "bash:5.3";

/// The longest name, in bytes. That of the Job is this, a hyphen and the generation, and it is the value
/// of a label that Kubernetes puts on the Job's pods: 63 bytes. Ten digits are left for generations.
pub(crate) const MAX_NAME_LEN: usize = 52;

/// See the module.
#[derive(Debug)]
pub(crate) struct FooBarRules;

impl Rules for FooBarRules {
    type Object = FooBar;
    type Spec = FooBarSpec;
    type Status = FooBarStatus;

    fn default(spec: &mut FooBarSpec) {
        spec.image.get_or_insert_with(|| DEFAULT_IMAGE.to_owned());
    }

    fn check(subject: &Subject<'_, FooBarSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        let spec = subject.spec;
        findings.check_name(subject, MAX_NAME_LEN);
        let command = spec.command.as_deref().unwrap_or_default();
        command::check("spec.command", command, &mut findings);
        for (field, text) in [("spec.foo", &spec.foo), ("spec.barz", &spec.barz)] {
            command::check_text(field, text.as_deref().unwrap_or_default(), &mut findings);
        }
        check_image(
            "spec.image",
            spec.image.as_deref().unwrap_or_default(),
            &mut findings,
        );
        findings
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use admission_rules::rules::decode_and_validate;

    /// The findings of a spec that is good but for these fields.
    fn found(name: &str, fields: &Value) -> Findings {
        let mut spec = json!({"command": "echo foobar"});
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let mut spec: FooBarSpec = serde_json::from_value(spec).unwrap();
        FooBarRules::default(&mut spec);
        let none = BTreeMap::new();
        let subject = Subject {
            name,
            annotations: &none,
            created: None,
            spec: &spec,
        };
        FooBarRules::check(&subject, DateTime::UNIX_EPOCH)
    }

    fn faults(fields: &Value) -> Vec<String> {
        let faults = found("a", fields).faults;
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_image_has_a_default() {
        let mut spec = FooBarSpec::default();
        FooBarRules::default(&mut spec);
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(written, json!({"image": "bash:5.3"}));
        let image = Some("busybox:1".to_owned());
        let mut spec = FooBarSpec {
            image: image.clone(),
            ..FooBarSpec::default()
        };
        FooBarRules::default(&mut spec);
        assert_eq!(spec.image, image);
    }

    #[test]
    fn usual_specs_have_no_fault() {
        for fields in [
            json!({}),
            json!({"foo": "", "barz": ""}),
            json!({"foo": "a $(b) c\nd", "barz": "false", "image": "registry:5000/x/y@sha256:".to_owned() + &"0".repeat(64)}),
            json!({"command": "x".repeat(32_768), "foo": "ä".repeat(16_384)}),
        ] {
            assert_eq!(found("a", &fields), Findings::default());
        }
    }

    #[test]
    fn each_rule_names_its_field() {
        for (fields, text) in [
            (
                json!({"command": null}),
                "spec.command: Required value: command is required",
            ),
            (
                json!({"command": " \n\t"}),
                "spec.command: Required value: command is required",
            ),
            (
                json!({"command": "x".repeat(32_769)}),
                "spec.command: Too long: may not be more than 32768 bytes",
            ),
            (
                json!({"command": "a\0b"}),
                "spec.command: Invalid value: \"a\\0b\": must not contain a NUL character: no program can be given one",
            ),
            (
                json!({"foo": "ä".repeat(16_385)}),
                "spec.foo: Too long: may not be more than 32768 bytes",
            ),
            (
                json!({"barz": "\0"}),
                "spec.barz: Invalid value: \"\\0\": must not contain a NUL character: no program can be given one",
            ),
            (
                json!({"image": ""}),
                "spec.image: Required value: image is required",
            ),
            (
                json!({"image": "Bash:5.3"}),
                "spec.image: Invalid value: \"Bash:5.3\": capital letter at character 1: an image's name is lower case",
            ),
        ] {
            assert_eq!(faults(&fields), [text], "{fields}");
        }
    }

    #[test]
    fn several_faults_are_all_named() {
        let all = json!({"command": "", "foo": "\0", "barz": "x".repeat(40_000), "image": "a b"});
        let found = found(&"n".repeat(53), &all).faults;
        let fields: Vec<_> = found.iter().map(|fault| fault.field.as_str()).collect();
        let expected = [
            "metadata.name",
            "spec.command",
            "spec.foo",
            "spec.barz",
            "spec.image",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_name_leaves_room_for_the_generation() {
        assert_eq!(found(&"n".repeat(52), &json!({})).faults, []);
        let found = found(&"n".repeat(53), &json!({})).faults;
        let text = "metadata.name: Too long: may not be more than 52 bytes";
        assert_eq!(found[0].to_string(), text);
        assert!("n".repeat(52).len() + "-9999999999".len() <= 63);
    }

    #[test]
    fn an_image_without_a_tag_is_a_warning() {
        let warnings = found("a", &json!({"image": "bash"})).warnings;
        assert!(warnings.concat().contains("neither tag nor digest"));
    }

    #[test]
    fn raw_specs_of_any_shape_are_validated_without_a_panic() {
        let settled = |raw: Value| {
            decode_and_validate::<FooBarRules>(
                "a",
                &BTreeMap::new(),
                &raw.to_string(),
                DateTime::UNIX_EPOCH,
            )
        };
        for raw in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"barz": false, "command": "x"}),
            json!({"command": ["echo", "foobar"]}),
            json!({"command": 7}),
        ] {
            assert!(settled(raw.clone()).is_err(), "{raw}");
        }
        assert!(settled(json!({"command": "x", "unknown": {}})).is_ok());
    }
}
