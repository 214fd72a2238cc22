//! The Job of one generation.

use serde_json::{Value, json};

use super::crd::FooBarSpec;
use my_operator_kind::command::escape;
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// The container that runs the command.
pub(crate) const CONTAINER: &str = "foobar";
/// The label of Jobs and pods with the name of their object.
pub(crate) const LABEL: &str = "foobar";
/// The user that the command runs as: an arbitrary one that is not root.
const USER: i64 = 65_532;

/// The name of the Job of a generation.
pub(crate) fn name(foobar: &str, generation: i64) -> String {
    format!("{foobar}-{generation}")
}

/// Labels and spec of the Job of an object with that name and a defaulted spec. It is created
/// suspended. Once resumed, it creates one pod, and no other if that fails.
pub(crate) fn fields(foobar: &str, spec: &FooBarSpec) -> Value {
    let text = |text: &Option<String>| escape(text.as_deref().unwrap_or_default());
    let labels = json!({LABEL: foobar, MANAGED_BY: MANAGER});
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "suspend": true,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            // Not while a deleted pod may still run: never two at a time.
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    // What Pod Security requires where it enforces `restricted`.
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": CONTAINER,
                        "image": spec.image,
                        "command": ["sh", "-c", text(&spec.command)],
                        "env": [
                            {"name": "FOO", "value": text(&spec.foo)},
                            {"name": "BARZ", "value": text(&spec.barz)},
                        ],
                        // Without a message of its own, the end of the output explains a failure best.
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec() -> FooBarSpec {
        FooBarSpec {
            foo: Some("$(HOME) costs $5".to_owned()),
            barz: None,
            command: Some("echo \"$FOO\" $(date) $$".to_owned()),
            image: Some("bash:5.3".to_owned()),
        }
    }

    #[test]
    fn the_command_and_its_environment_arrive_as_they_are_written() {
        let fields = fields("a", &spec());
        let container = &fields["spec"]["template"]["spec"]["containers"][0];
        let expected = json!(["sh", "-c", "echo \"$$FOO\" $$(date) $$$$"]);
        assert_eq!(container["command"], expected);
        let expected = json!([
            {"name": "FOO", "value": "$$(HOME) costs $$5"},
            {"name": "BARZ", "value": ""},
        ]);
        assert_eq!(container["env"], expected);
    }

    #[test]
    fn a_job_is_born_suspended_and_tries_nothing_twice() {
        let fields = fields("a", &spec());
        for (path, value) in [
            ("/spec/suspend", json!(true)),
            ("/spec/completions", json!(1)),
            ("/spec/backoffLimit", json!(0)),
            ("/spec/template/spec/restartPolicy", json!("Never")),
            ("/spec/template/metadata/labels/foobar", json!("a")),
            ("/metadata/labels/foobar", json!("a")),
        ] {
            assert_eq!(fields.pointer(path), Some(&value), "{path}");
        }
    }

    #[test]
    fn the_longest_name_is_still_a_label() {
        let longest = "n".repeat(super::super::admission::MAX_NAME_LEN);
        assert_eq!(name(&longest, 9_999_999_999).len(), 63);
        assert_eq!(name("foobar-sample", 1), "foobar-sample-1");
    }
}
