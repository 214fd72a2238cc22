//! The defaults and rules of a `CronTab`, shared by the webhook and the reconciler.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use robfig_cron::{MAX_LEN, Schedule};

use super::crd::{CronTab, CronTabSpec, CronTabStatus};
use admission_rules::faults::Fault;
use admission_rules::rules::{Findings, Rules, Subject};
use my_operator_kind::time_zone::{self, TIME_ZONE};
use my_operator_kind::{command, template};

/// The default schedule: five past midnight.
pub(crate) const CRON_SPEC: &str = "5 0 * * *";

/// A CronJob's own limit: its Jobs have names of at most 63 characters, 11 of which are the time.
const MAX_NAME_LEN: usize = 52;
const REPLICAS: RangeInclusive<i64> = 1..=10;
const MAX_ITEMS: usize = 256;

/// The rules of the kind.
#[derive(Debug)]
pub(crate) struct CronTabRules;

impl Rules for CronTabRules {
    type Object = CronTab;
    type Spec = CronTabSpec;
    type Status = CronTabStatus;

    fn default(spec: &mut Self::Spec) {
        spec.cron_spec.get_or_insert_with(|| CRON_SPEC.to_owned());
        spec.replicas.get_or_insert(1);
        spec.time_zone.get_or_insert_with(|| TIME_ZONE.to_owned());
        spec.suspend.get_or_insert(false);
    }

    fn check(subject: &Subject<'_, Self::Spec>, _now: DateTime<Utc>) -> Findings {
        let spec = subject.spec;
        let mut findings = Findings::default();
        findings.check_name(subject, MAX_NAME_LEN);
        check_cron_spec(
            spec.cron_spec.as_deref().unwrap_or(CRON_SPEC),
            &mut findings,
        );
        let image = spec.image.as_deref().unwrap_or_default();
        template::check_image("spec.image", image, &mut findings);
        findings.check_number("spec.replicas", spec.replicas, REPLICAS);
        let zone = spec.time_zone.as_deref().unwrap_or(TIME_ZONE);
        time_zone::check("spec.timeZone", zone, &mut findings);
        check_command(spec.command.as_deref().unwrap_or_default(), &mut findings);
        findings
    }
}

fn check_cron_spec(text: &str, findings: &mut Findings) {
    const FIELD: &str = "spec.cronSpec";
    if text.len() > MAX_LEN {
        findings.fault(Fault::too_long(FIELD, text, MAX_LEN));
        return;
    }
    match robfig_cron::parse(text) {
        Err(errors) => {
            for error in errors {
                findings.fault(Fault::invalid(FIELD, text, &error.to_string()));
            }
        }
        Ok(Schedule::Every(span)) if span.num_seconds() < 60 => findings.warn(format!(
            "{FIELD}: not every run of those that are less than a minute apart is started: the Jobs of a CronJob are named by the minute"
        )),
        Ok(_) => {}
    }
}

fn check_command(items: &[String], findings: &mut Findings) {
    const FIELD: &str = "spec.command";
    if !findings.check_count(FIELD, items.len(), MAX_ITEMS) {
        return;
    }
    if items.first().is_some_and(String::is_empty) {
        findings.fault(Fault::required(
            format!("{FIELD}[0]"),
            "the first item is the program",
        ));
    }
    for (i, item) in items.iter().enumerate() {
        command::check_text(&format!("{FIELD}[{i}]"), item, findings);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use admission_rules::rules::decode_and_validate;

    /// Validates a good spec with some fields changed.
    fn judge(name: &str, fields: &Value) -> Findings {
        let mut spec = json!({"cronSpec": "* * * * */5", "image": "busybox:1.37"});
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let mut spec: CronTabSpec = serde_json::from_value(spec).unwrap();
        CronTabRules::default(&mut spec);
        let subject = Subject {
            name,
            annotations: &BTreeMap::new(),
            created: None,
            spec: &spec,
        };
        CronTabRules::check(&subject, DateTime::UNIX_EPOCH)
    }

    fn faults(fields: &Value) -> Vec<String> {
        let faults = judge("a", fields).faults;
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_absent_is_filled_in_and_nothing_else_is_touched() {
        let mut spec = CronTabSpec::default();
        CronTabRules::default(&mut spec);
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({"cronSpec": "5 0 * * *", "replicas": 1, "timeZone": "Etc/UTC", "suspend": false})
        );
        let given =
            json!({"cronSpec": "", "replicas": 0, "timeZone": "x", "suspend": true, "command": []});
        let mut spec: CronTabSpec = serde_json::from_value(given.clone()).unwrap();
        CronTabRules::default(&mut spec);
        assert_eq!(serde_json::to_value(&spec).unwrap(), given);
    }

    #[test]
    fn good_ones_have_no_fault() {
        for fields in [
            json!({}),
            json!({"cronSpec": null, "timeZone": null, "command": null}),
            json!({"cronSpec": "@daily", "timeZone": "America/New_York", "replicas": 10}),
            json!({"command": ["sh", "-c", "", "date"], "suspend": true}),
            json!({"command": []}),
        ] {
            assert_eq!(faults(&fields), Vec::<String>::new(), "{fields}");
        }
    }

    #[test]
    fn every_fault_names_its_field() {
        for (fields, text) in [
            (
                json!({"cronSpec": "0 * * * * *"}),
                "spec.cronSpec: Invalid value: \"0 * * * * *\": at character 11: found 6 fields, and nothing is expected after the five of minute, hour, day of month, month and day of week (there is none for seconds)",
            ),
            (
                json!({"cronSpec": "0 0 30 2 *"}),
                "spec.cronSpec: Invalid value: \"0 0 30 2 *\": at character 5 (day of month): no month that is named has such a day, so it would never run",
            ),
            (
                json!({"cronSpec": "TZ=UTC 0 0 * * *"}),
                "spec.cronSpec: Invalid value: \"TZ=UTC 0 0 * * *\": at character 1: a time zone is not taken here: name it in timeZone",
            ),
            (
                json!({"cronSpec": "*".repeat(10_240)}),
                "spec.cronSpec: Too long: may not be more than 1024 bytes",
            ),
            (
                json!({"image": null}),
                "spec.image: Required value: image is required",
            ),
            (
                json!({"image": ""}),
                "spec.image: Required value: image is required",
            ),
            (
                json!({"replicas": 0}),
                "spec.replicas: Invalid value: 0: must be greater than or equal to 1",
            ),
            (
                json!({"replicas": 11}),
                "spec.replicas: Invalid value: 11: must be less than or equal to 10",
            ),
            (
                json!({"timeZone": "Local"}),
                "spec.timeZone: Invalid value: \"Local\": must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ),
            (
                json!({"timeZone": "Mars/Phobos"}),
                "spec.timeZone: Invalid value: \"Mars/Phobos\": unknown time zone: give a name of the IANA database, such as Europe/Berlin, letter for letter",
            ),
            (
                json!({"timeZone": ""}),
                "spec.timeZone: Invalid value: \"\": unknown time zone: give a name of the IANA database, such as Europe/Berlin, letter for letter",
            ),
            (
                json!({"command": ["", "x"]}),
                "spec.command[0]: Required value: the first item is the program",
            ),
            (
                json!({"command": ["a", "b\0"]}),
                "spec.command[1]: Invalid value: \"b\\0\": must not contain a NUL character: no program can be given one",
            ),
            (
                json!({"command": vec!["x"; 257]}),
                "spec.command: Invalid value: 257: must have at most 256 items",
            ),
            (
                json!({"command": ["a", "x".repeat(32_769)]}),
                "spec.command[1]: Too long: may not be more than 32768 bytes",
            ),
        ] {
            assert_eq!(faults(&fields), [text], "{fields}");
        }
    }

    #[test]
    fn several_faults_are_all_named() {
        let found = faults(
            &json!({"cronSpec": "60 24 * * *", "image": "a b", "replicas": 11,
            "timeZone": "Local", "command": ["", "\0"]}),
        );
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn a_name_is_short_enough_for_those_of_the_jobs() {
        assert!(judge(&"a".repeat(52), &json!({})).faults.is_empty());
        let found = judge(&"a".repeat(53), &json!({})).faults;
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["metadata.name: Too long: may not be more than 52 bytes"]
        );
    }

    #[test]
    fn runs_closer_than_a_minute_are_warned_of() {
        let warnings = |spec: &str| judge("a", &json!({"cronSpec": spec})).warnings;
        assert_eq!(warnings("@every 1m"), Vec::<String>::new());
        assert!(warnings("@every 59s")[0].contains("named by the minute"));
    }

    #[test]
    fn raw_specs_of_any_shape_are_validated_without_a_panic() {
        for raw in [
            json!(null),
            json!([]),
            json!({"cronSpec": 5}),
            json!({"image": "a:1", "replicas": "x"}),
            json!({"image": "a:1", "replicas": 99_999_999_999_i64}),
            json!({"image": "a:1", "command": "x"}),
            json!({"image": "a:1", "suspend": "yes"}),
        ] {
            let settled = decode_and_validate::<CronTabRules>(
                "a",
                &BTreeMap::new(),
                &raw.to_string(),
                Utc::now(),
            );
            assert!(settled.is_err(), "{raw}");
        }
    }
}
