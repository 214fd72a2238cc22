//! The rules of the windows of a spec.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use robfig_cron::{MAX_LEN, Schedule, parse, parse_duration};

use super::date;
use crate::crd::Window;
use admission_rules::faults::Fault;
use admission_rules::rules::Findings;
use my_operator_kind::time_zone::{self, TIME_ZONE};

/// How many windows there may be: each is looked at in every pass.
const MAX_WINDOWS: usize = 10;
/// How many days a window may exclude: as many may have to be skipped until it opens.
const MAX_DATES: usize = 100;
/// How many seconds a window may last: a minute to seven days.
const DURATION: RangeInclusive<i64> = 60..=604_800;

/// Judges the windows of a spec.
pub(crate) fn check(field: &str, windows: &[Window], findings: &mut Findings) {
    if !findings.check_count(field, windows.len(), MAX_WINDOWS) {
        return;
    }
    for (i, window) in windows.iter().enumerate() {
        let at = |name: &str| format!("{field}[{i}].{name}");
        check_schedule(&at("schedule"), window.schedule.as_deref(), findings);
        check_duration(&at("duration"), window.duration.as_deref(), findings);
        let zone = window.time_zone.as_deref().unwrap_or(TIME_ZONE);
        time_zone::check(&at("timeZone"), zone, findings);
        let dates = window.excluded_dates.as_deref().unwrap_or_default();
        check_dates(&at("excludedDates"), dates, findings);
    }
}

fn check_schedule(field: &str, text: Option<&str>, findings: &mut Findings) {
    let Some(text) = text else {
        let detail = "give when the window opens, such as 0 22 * * 1-5";
        findings.fault(Fault::required(field, detail));
        return;
    };
    if text.len() > MAX_LEN {
        findings.fault(Fault::too_long(field, text, MAX_LEN));
        return;
    }
    match parse(text) {
        Ok(Schedule::Fields(_)) => {}
        Ok(Schedule::Every(_)) => {
            let detail = "@every has no fixed start: give five fields, or a word such as @daily";
            findings.fault(Fault::invalid(field, text, detail));
        }
        Err(errors) => {
            for error in errors {
                findings.fault(Fault::invalid(field, text, &error.to_string()));
            }
        }
    }
}

fn check_duration(field: &str, text: Option<&str>, findings: &mut Findings) {
    let Some(text) = text else {
        let detail = "give for how long the window stays open, such as 4h";
        findings.fault(Fault::required(field, detail));
        return;
    };
    let detail = match parse_duration(text) {
        Ok(span) if DURATION.contains(&span.num_seconds()) => return,
        Ok(_) => "must be from 1m to 168h (7 days)".to_owned(),
        Err(error) => error.to_string(),
    };
    findings.fault(Fault::invalid(field, text, &detail));
}

fn check_dates(field: &str, dates: &[String], findings: &mut Findings) {
    if !findings.check_count(field, dates.len(), MAX_DATES) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, text) in dates.iter().enumerate() {
        let field = format!("{field}[{i}]");
        match date(text) {
            None => {
                let detail = "must be a day of the calendar such as 2026-12-24";
                findings.fault(Fault::invalid(field, text.as_str(), detail));
            }
            Some(date) if !seen.insert(date) => {
                findings.fault(Fault::duplicate(field, text.as_str()));
            }
            Some(_) => {}
        }
    }
}
