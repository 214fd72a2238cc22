//! The status of a CronTab, as a pure function of its spec and its CronJob.

use chrono::{DateTime, Utc};
use robfig_cron::{Schedule, Zone};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::admission::CRON_SPEC;
use super::crd::{CronTabSpec, CronTabStatus};
use crate::owned_child::KindStatus;
use my_operator_kind::time_zone::TIME_ZONE;
use wall_clock_controller::reconcile::condition::{self, Condition};

/// A next run is due, by a CronJob that is as desired.
pub(crate) const READY: &str = "Ready";

impl KindStatus for CronTabStatus {
    fn common_fields(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// The fields of a CronJob's status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CronJobStatus {
    last_schedule_time: Option<DateTime<Utc>>,
    active: Vec<IgnoredAny>,
}

/// The observed CronJob.
#[derive(Debug)]
pub(crate) struct ObservedCronJob {
    pub(crate) created: Option<DateTime<Utc>>,
    pub(crate) status: CronJobStatus,
}

/// Input of the status.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    /// The spec, valid and defaulted.
    pub(crate) spec: &'a CronTabSpec,
    pub(crate) generation: Option<i64>,
    /// The CronJob, if it exists and is the CronTab's own.
    pub(crate) cronjob: Option<ObservedCronJob>,
    /// Why it is not as desired: reason and message.
    pub(crate) trouble: Option<(&'a str, &'a str)>,
    pub(crate) now: DateTime<Utc>,
}

/// Writes what is observed into the status. Returns when to reconcile again: when the next run is due.
pub(crate) fn report(observed: &Observed<'_>, status: &mut CronTabStatus) -> Option<DateTime<Utc>> {
    let spec = observed.spec;
    if let Some(cronjob) = &observed.cronjob {
        // A CronJob that was created again has no last run, but there was one.
        if let Some(last) = cronjob.status.last_schedule_time {
            status.last_schedule_time = Some(last);
        }
        status.active = Some(i32::try_from(cronjob.status.active.len()).unwrap_or(i32::MAX));
        // A CronJob that could not be corrected keeps the number that it had.
        if observed.trouble.is_none() {
            status.replicas = spec.replicas;
        }
    } else {
        status.active = Some(0);
        status.replicas = Some(0);
    }
    let suspended = spec.suspend == Some(true);
    let next = match (&observed.cronjob, observed.trouble) {
        (Some(cronjob), None) if !suspended => next(spec, cronjob, observed.now),
        _ => None,
    };
    status.next_schedule_time = next;
    let (ready, reason, message) = match (observed.trouble, &observed.cronjob) {
        (Some((reason, message)), _) => (false, reason, message),
        (None, None) => (false, "NoCronJob", "the CronJob does not exist yet"),
        (None, Some(_)) if suspended => (
            false,
            "Suspended",
            "no run is started until spec.suspend is false",
        ),
        (None, Some(_)) if next.is_none() => (
            false,
            "NeverDue",
            "no day within five years fits spec.cronSpec",
        ),
        (None, Some(_)) => (true, "Scheduled", "the CronJob matches the spec"),
    };
    condition::set(
        &mut status.conditions,
        READY,
        ready,
        reason,
        message,
        observed.generation,
        observed.now,
    );
    next
}

/// The next run of the CronJob. Of runs less than a minute apart, it is the first of the next
/// minute: the controller names Jobs by the minute, so it does not start them all, and a status
/// write for each would be one a second.
fn next(
    spec: &CronTabSpec,
    cronjob: &ObservedCronJob,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let schedule = robfig_cron::parse(spec.cron_spec.as_deref().unwrap_or(CRON_SPEC)).ok()?;
    let zone = Zone::named(spec.time_zone.as_deref().unwrap_or(TIME_ZONE))?;
    let since = cronjob.status.last_schedule_time.or(cronjob.created);
    let after = match &schedule {
        Schedule::Every(span) if span.num_seconds() < 60 => {
            let second = now.timestamp();
            DateTime::from_timestamp(second - second.rem_euclid(60) + 59, 0)?
        }
        _ => now,
    };
    schedule.next(&zone, since.unwrap_or(now), after)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn cronjob(status: Value) -> ObservedCronJob {
        ObservedCronJob {
            created: Some(instant("2026-11-22T00:00:30Z")),
            status: serde_json::from_value(status).unwrap(),
        }
    }

    /// Reports at noon, starting from that status.
    fn reconcile(
        spec: Value,
        cronjob: Option<ObservedCronJob>,
        trouble: Option<(&str, &str)>,
        status: &mut CronTabStatus,
    ) -> Option<DateTime<Utc>> {
        let spec: CronTabSpec = serde_json::from_value(spec).unwrap();
        let observed = Observed {
            spec: &spec,
            generation: Some(1),
            cronjob,
            trouble,
            now: instant("2026-11-22T12:00:00Z"),
        };
        report(&observed, status)
    }

    fn ready(status: &CronTabStatus) -> (String, String) {
        let ready = condition::get(&status.conditions, READY).unwrap();
        (ready.status.clone(), ready.reason.clone())
    }

    #[test]
    fn the_next_run_is_reported_in_the_time_zone_of_the_spec_and_requeued_when_due() {
        let mut status = CronTabStatus::default();
        let spec = json!({"cronSpec": "0 9 * * *", "timeZone": "Asia/Tokyo", "replicas": 2});
        let next = reconcile(spec, Some(cronjob(json!({}))), None, &mut status);
        assert_eq!(next, Some(instant("2026-11-23T00:00:00Z")));
        assert_eq!(status.next_schedule_time, next);
        assert_eq!((status.replicas, status.active), (Some(2), Some(0)));
        assert_eq!(status.last_schedule_time, None);
        assert_eq!(ready(&status), ("True".to_owned(), "Scheduled".to_owned()));
    }

    #[test]
    fn the_status_of_the_cronjob_is_reported() {
        let mut status = CronTabStatus::default();
        let seen = json!({"lastScheduleTime": "2026-11-22T11:59:00Z", "active": [{"name": "a"}, {}],
            "lastSuccessfulTime": "2026-11-22T11:59:30Z"});
        let spec = json!({"cronSpec": "@every 90s"});
        let next = reconcile(spec, Some(cronjob(seen)), None, &mut status);
        assert_eq!(
            status.last_schedule_time,
            Some(instant("2026-11-22T11:59:00Z"))
        );
        assert_eq!(status.active, Some(2));
        assert_eq!(next, Some(instant("2026-11-22T12:00:30Z")));
    }

    #[test]
    fn before_the_first_run_a_duration_counts_from_the_creation_of_the_cronjob() {
        let mut status = CronTabStatus::default();
        let spec = json!({"cronSpec": "@every 1h"});
        let next = reconcile(spec, Some(cronjob(json!({}))), None, &mut status);
        assert_eq!(next, Some(instant("2026-11-22T12:00:30Z")));
    }

    #[test]
    fn runs_less_than_a_minute_apart_are_reported_by_the_minute() {
        for (span, last, next) in [
            ("1s", "11:59:59", "12:01:00"),
            ("7s", "11:59:59", "12:01:02"),
            ("59s", "11:59:30", "12:01:28"),
            ("60s", "11:59:30", "12:00:30"),
        ] {
            let mut status = CronTabStatus::default();
            let seen = json!({"lastScheduleTime": format!("2026-11-22T{last}Z")});
            let spec = json!({"cronSpec": format!("@every {span}")});
            let due = reconcile(spec, Some(cronjob(seen)), None, &mut status);
            assert_eq!(due, Some(instant(&format!("2026-11-22T{next}Z"))), "{span}");
        }
    }

    #[test]
    fn a_suspended_cronjob_is_not_due() {
        let mut status = CronTabStatus::default();
        reconcile(json!({}), Some(cronjob(json!({}))), None, &mut status);
        assert!(status.next_schedule_time.is_some());
        let next = reconcile(
            json!({"suspend": true}),
            Some(cronjob(json!({}))),
            None,
            &mut status,
        );
        assert_eq!((next, status.next_schedule_time), (None, None));
        assert_eq!(ready(&status), ("False".to_owned(), "Suspended".to_owned()));
    }

    #[test]
    fn without_its_cronjob_nothing_is_due() {
        let mut status = CronTabStatus::default();
        let trouble = Some(("CronJobExists", "it is another object's"));
        assert_eq!(reconcile(json!({}), None, trouble, &mut status), None);
        assert_eq!((status.replicas, status.active), (Some(0), Some(0)));
        assert_eq!(
            ready(&status),
            ("False".to_owned(), "CronJobExists".to_owned())
        );
        reconcile(json!({}), None, None, &mut status);
        assert_eq!(ready(&status), ("False".to_owned(), "NoCronJob".to_owned()));
    }

    #[test]
    fn what_was_so_before_a_trouble_and_a_new_cronjob_is_kept() {
        let mut status = CronTabStatus::default();
        let seen = json!({"lastScheduleTime": "2026-11-22T11:59:00Z"});
        reconcile(
            json!({"replicas": 2}),
            Some(cronjob(seen.clone())),
            None,
            &mut status,
        );
        let refused = Some(("Refused", "no"));
        reconcile(
            json!({"replicas": 3}),
            Some(cronjob(seen)),
            refused,
            &mut status,
        );
        assert_eq!(status.replicas, Some(2));
        reconcile(
            json!({"replicas": 3}),
            Some(cronjob(json!({}))),
            None,
            &mut status,
        );
        assert_eq!(status.replicas, Some(3));
        assert!(status.last_schedule_time.is_some());
    }

    #[test]
    fn a_day_that_is_years_away_may_never_come() {
        let mut status = CronTabStatus::default();
        let spec: CronTabSpec = serde_json::from_value(json!({"cronSpec": "0 0 29 2 *"})).unwrap();
        let observed = Observed {
            spec: &spec,
            generation: None,
            cronjob: Some(cronjob(json!({}))),
            trouble: None,
            now: instant("2096-03-01T00:00:00Z"),
        };
        assert_eq!(report(&observed, &mut status), None);
        assert_eq!(ready(&status), ("False".to_owned(), "NeverDue".to_owned()));
    }
}
