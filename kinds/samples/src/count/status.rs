//! The status of a Count, as a pure function of its spec and the number of ready pods.

use chrono::{DateTime, Utc};

use super::crd::{CountSpec, CountStatus};
use admission_rules::faults::{Fault, join};
use wall_clock_controller::reconcile::condition::{self, ACCEPTED};
use wall_clock_controller::reconcile::raw::Raw;

/// The number of ready pods is exactly the desired one.
pub(crate) const HEALTHY: &str = "Healthy";
/// What a Count asserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assertion {
    /// The value of a label of the pods.
    pub(crate) name: String,
    /// How many of them should be ready.
    pub(crate) count: i64,
}

impl From<CountSpec> for Assertion {
    /// From a valid spec, so that both fields are set.
    fn from(spec: CountSpec) -> Self {
        Self {
            name: spec.name.unwrap_or_default(),
            count: spec.count.unwrap_or_default(),
        }
    }
}

/// Decodes a stored status. A malformed one is treated as empty and will be replaced.
pub(crate) fn read(raw: &Raw) -> CountStatus {
    serde_json::from_str(raw.text()).unwrap_or_default()
}

/// The status of a Count with that many ready pods.
pub(crate) fn observed(
    previous: &CountStatus,
    generation: Option<i64>,
    assertion: &Assertion,
    observed: i64,
    now: DateTime<Utc>,
) -> CountStatus {
    let Assertion { name, count } = assertion;
    let pods = format!("ready pods labelled app={name}");
    let (healthy, reason, message) = match observed - count {
        0 => (true, "AsAsserted", format!("{observed} of {count} {pods}")),
        ..0 => (false, "TooFewPods", format!("{observed} of {count} {pods}")),
        more => (
            false,
            "TooManyPods",
            format!("{observed} {pods}, {more} more than the {count} that should exist"),
        ),
    };
    let mut status = CountStatus {
        observed_generation: generation,
        observed: Some(observed),
        healthy: Some(healthy),
        conditions: previous.conditions.clone(),
    };
    let mut set = |type_, value, reason, message: &str| {
        let list = &mut status.conditions;
        condition::set(list, type_, value, reason, message, generation, now);
    };
    set(ACCEPTED, true, "Valid", "the spec is valid");
    set(HEALTHY, healthy, reason, &message);
    status
}

/// The status of a Count with an invalid spec.
pub(crate) fn rejected(
    previous: &CountStatus,
    generation: Option<i64>,
    faults: &[Fault],
    now: DateTime<Utc>,
) -> CountStatus {
    let mut status = CountStatus {
        observed_generation: generation,
        observed: None,
        healthy: Some(false),
        conditions: previous.conditions.clone(),
    };
    let mut set = |type_, message: &str| {
        let list = &mut status.conditions;
        condition::set(list, type_, false, "Invalid", message, generation, now);
    };
    set(ACCEPTED, &join(faults));
    set(
        HEALTHY,
        "nothing is counted before the faults in condition Accepted are fixed",
    );
    status
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(in crate::count) fn at(milliseconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + milliseconds).unwrap()
    }

    pub(in crate::count) fn of(
        before: &CountStatus,
        generation: i64,
        count: i64,
        ready: i64,
    ) -> CountStatus {
        let assertion = Assertion {
            name: "nginx".to_owned(),
            count,
        };
        observed(before, Some(generation), &assertion, ready, at(0))
    }

    /// (status, reason, message) of condition Healthy.
    pub(in crate::count) fn healthy(status: &CountStatus) -> (&str, &str, &str) {
        let condition = condition::get(&status.conditions, HEALTHY).unwrap();
        (&condition.status, &condition.reason, &condition.message)
    }

    #[test]
    fn exactly_so_many_pods_are_healthy() {
        let none = CountStatus::default();
        for (count, ready, verdict) in [
            (
                3,
                3,
                ("True", "AsAsserted", "3 of 3 ready pods labelled app=nginx"),
            ),
            (
                0,
                0,
                ("True", "AsAsserted", "0 of 0 ready pods labelled app=nginx"),
            ),
            (
                3,
                2,
                (
                    "False",
                    "TooFewPods",
                    "2 of 3 ready pods labelled app=nginx",
                ),
            ),
            (
                3,
                4,
                (
                    "False",
                    "TooManyPods",
                    "4 ready pods labelled app=nginx, 1 more than the 3 that should exist",
                ),
            ),
            (
                0,
                2,
                (
                    "False",
                    "TooManyPods",
                    "2 ready pods labelled app=nginx, 2 more than the 0 that should exist",
                ),
            ),
        ] {
            let status = of(&none, 7, count, ready);
            assert_eq!(healthy(&status), verdict);
            assert_eq!(status.healthy, Some(verdict.0 == "True"));
            assert_eq!(status.observed, Some(ready));
            assert_eq!(status.observed_generation, Some(7));
        }
    }

    #[test]
    fn a_status_that_nobody_wrote_here_is_none() {
        for text in [
            "null",
            "7",
            r#"{"observed": "x"}"#,
            r#"{"conditions": [{}]}"#,
        ] {
            let raw: Raw = serde_json::from_str(text).unwrap();
            assert_eq!(read(&raw), CountStatus::default(), "{text}");
        }
    }
}
