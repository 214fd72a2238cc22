#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use chrono::{Datelike, Timelike};
use my_operator_rounds::cases;
use serde_json::{Value, json};

use super::*;
use crate::decide::input::{Known, Revisions};
use admission_rules::rules::Findings;

const BERLIN: &str = "Europe/Berlin";

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn windows(all: &Value) -> Vec<Window> {
    let spec = json!({"updateStrategy": {"rollingUpdate": {"windows": all}}});
    from_spec(&serde_json::from_value(spec).unwrap())
}

fn window(schedule: &str, duration: &str, zone: &str, excluded: &[&str]) -> Window {
    let one = json!([{"schedule": schedule, "duration": duration, "timeZone": zone,
        "excludedDates": excluded}]);
    windows(&one).pop().unwrap()
}

fn revisions<'a>(known: &'a BTreeMap<&'a str, Known>) -> Revisions<'a> {
    Revisions {
        update: "new",
        stored: true,
        update_since: DateTime::UNIX_EPOCH,
        current: "old",
        known,
        undone: None,
        returns: false,
    }
}

/// `open until` or `closed until`, and when.
fn shown(gate: Gate) -> String {
    let is = if gate.is_closed { "closed" } else { "open" };
    let until = gate.until.map(|at| at.format("%FT%TZ").to_string());
    format!("{is} until {}", until.as_deref().unwrap_or("ever"))
}

fn now_is(windows: &[Window], now: &str) -> String {
    shown(gate(windows, false, at(now)))
}

#[test]
fn a_window_lasts_as_long_when_clocks_are_set() {
    // From 22:00 for eight hours: until 7:00 in spring, until 5:00 in autumn.
    let night = [window("0 22 * * *", "8h", BERLIN, &[])];
    for (now, expected) in [
        ("2026-03-28T20:59:59Z", "closed until 2026-03-28T21:00:00Z"),
        ("2026-03-28T21:00:00Z", "open until 2026-03-29T05:00:00Z"),
        ("2026-03-29T04:59:59Z", "open until 2026-03-29T05:00:00Z"),
        ("2026-03-29T05:00:00Z", "closed until 2026-03-29T20:00:00Z"),
        ("2026-10-24T20:00:00Z", "open until 2026-10-25T04:00:00Z"),
        ("2026-10-25T04:00:00Z", "closed until 2026-10-25T21:00:00Z"),
    ] {
        assert_eq!(now_is(&night, now), expected, "{now}");
    }
    // 1:30 comes once, whatever follows: in autumn, it is closed in both hours from 2:00 to 3:00, but for the first half of
    // the first.
    let early = [window("30 1 * * *", "1h", BERLIN, &[])];
    for (now, expected) in [
        ("2026-03-29T01:29:59Z", "open until 2026-03-29T01:30:00Z"),
        ("2026-03-29T01:30:00Z", "closed until 2026-03-29T23:30:00Z"),
        ("2026-10-25T00:29:00Z", "open until 2026-10-25T00:30:00Z"),
        ("2026-10-25T00:30:00Z", "closed until 2026-10-26T00:30:00Z"),
        ("2026-10-25T01:29:00Z", "closed until 2026-10-26T00:30:00Z"),
    ] {
        assert_eq!(now_is(&early, now), expected, "{now}");
    }
}

#[test]
fn a_schedule_in_the_hour_that_is_skipped_or_repeated_is_as_that_of_a_cronjob() {
    let early = [window("30 2 * * *", "15m", BERLIN, &[])];
    for (now, expected) in [
        ("2026-03-29T00:00:00Z", "closed until 2026-03-30T00:30:00Z"),
        ("2026-10-25T00:30:00Z", "open until 2026-10-25T00:45:00Z"),
        ("2026-10-25T00:45:00Z", "closed until 2026-10-25T01:30:00Z"),
        ("2026-10-25T01:30:00Z", "open until 2026-10-25T01:45:00Z"),
    ] {
        assert_eq!(now_is(&early, now), expected, "{now}");
    }
}

#[test]
fn nothing_of_a_window_is_on_an_excluded_day() {
    let evening = [window("0 22 * * *", "4h", BERLIN, &["2026-12-24"])];
    for (now, expected) in [
        ("2026-12-23T21:00:00Z", "open until 2026-12-23T23:00:00Z"),
        ("2026-12-23T23:00:00Z", "closed until 2026-12-24T23:00:00Z"),
        ("2026-12-24T22:00:00Z", "closed until 2026-12-24T23:00:00Z"),
        ("2026-12-24T23:00:00Z", "open until 2026-12-25T01:00:00Z"),
        ("2026-12-25T01:00:00Z", "closed until 2026-12-25T21:00:00Z"),
    ] {
        assert_eq!(now_is(&evening, now), expected, "{now}");
    }
    // A day that begins at 1:00, since clocks are set at midnight.
    let spring = [window(
        "0 22 * * *",
        "12h",
        "America/Santiago",
        &["2026-09-06"],
    )];
    for (now, expected) in [
        ("2026-09-06T02:00:00Z", "open until 2026-09-06T04:00:00Z"),
        ("2026-09-06T04:00:00Z", "closed until 2026-09-07T03:00:00Z"),
        ("2026-09-07T03:00:00Z", "open until 2026-09-07T13:00:00Z"),
    ] {
        assert_eq!(now_is(&spring, now), expected, "{now}");
    }
}

#[test]
fn windows_that_overlap_are_as_one() {
    let two = windows(&json!([
        {"schedule": "0 1 * * *", "duration": "2h"},
        {"schedule": "0 2 * * *", "duration": "2h", "excludedDates": ["2026-05-02"]},
    ]));
    for (now, expected) in [
        ("2026-05-01T00:00:00Z", "closed until 2026-05-01T01:00:00Z"),
        ("2026-05-01T01:30:00Z", "open until 2026-05-01T03:00:00Z"),
        ("2026-05-01T02:30:00Z", "open until 2026-05-01T04:00:00Z"),
        ("2026-05-01T03:30:00Z", "open until 2026-05-01T04:00:00Z"),
        // A day that one of them excludes is not excluded from the other.
        ("2026-05-02T02:30:00Z", "open until 2026-05-02T03:00:00Z"),
        ("2026-05-02T03:00:00Z", "closed until 2026-05-03T01:00:00Z"),
    ] {
        assert_eq!(now_is(&two, now), expected, "{now}");
    }
    // One that opens every minute is never closed, and costs no search of all those minutes.
    let always = [window("* * * * *", "168h", "UTC", &[])];
    let open = now_is(&always, "2026-05-08T00:00:30Z");
    assert_eq!(open, "open until 2026-05-08T00:16:00Z");
}

#[test]
fn a_window_that_does_not_open_is_no_search_without_an_end() {
    let leap = [window("0 0 29 2 *", "1h", "UTC", &[])];
    assert_eq!(now_is(&leap, "2096-03-01T00:00:00Z"), "closed until ever");
    let first = NaiveDate::from_ymd_opt(2026, 5, 1).unwrap();
    let days = first.iter_days().take(100);
    let days: Vec<String> = days.map(|day| day.to_string()).collect();
    let all =
        windows(&json!([{"schedule": "0 12 * * *", "duration": "1h", "excludedDates": days}]));
    let opens = now_is(&all, "2026-05-01T00:00:00Z");
    assert_eq!(opens, "closed until 2026-08-09T12:00:00Z");
}

#[test]
fn without_windows_and_on_the_way_back_it_is_open() {
    let known = BTreeMap::new();
    let forward = revisions(&known);
    let shut = [window("0 1 * * *", "1h", "UTC", &[])];
    let now = at("2026-05-01T12:00:00Z");
    assert!(gate(&shut, forward.goes_back(), now).is_closed);
    assert_eq!(gate(&[], false, now), Gate::default());
    let by_itself = Revisions {
        undone: Some("bad"),
        ..forward
    };
    let by_a_user = Revisions {
        current: "new",
        returns: true,
        ..forward
    };
    for back in [by_itself, by_a_user] {
        assert_eq!(gate(&shut, back.goes_back(), now), Gate::default());
    }
    // A node that was cordoned while the revision went forward to all others.
    let late = Revisions {
        current: "new",
        ..forward
    };
    // An undo of a roll-out that was completed.
    let undo = Revisions {
        returns: true,
        ..forward
    };
    for waits in [late, undo] {
        assert!(gate(&shut, waits.goes_back(), now).is_closed);
    }
    let on_delete = json!({"updateStrategy": {"type": "OnDelete",
        "rollingUpdate": {"windows": [{"schedule": "0 1 * * *", "duration": "1h"}]}}});
    assert!(from_spec(&serde_json::from_value(on_delete).unwrap()).is_empty());
}

#[test]
fn a_step_is_too_late_once_the_window_has_closed() {
    let now = at("2026-05-01T12:00:00Z");
    let gate = |is_closed, until| Gate { is_closed, until };
    let second = TimeDelta::seconds(1);
    assert!(!Gate::default().is_over(now));
    assert!(!gate(false, Some(now + second)).is_over(now));
    assert!(gate(false, Some(now)).is_over(now));
    // It opens, and another decision says what then begins.
    assert!(!gate(true, Some(now)).is_over(now));
}

/// A window by what its schedule says, and every minute looked at.
struct Slow {
    minutes: Vec<u32>,
    hours: Vec<u32>,
    weekdays: Vec<u32>,
    seconds: i64,
    zone: &'static str,
    excluded: Vec<String>,
}

impl Slow {
    fn random(random: &mut fastrand::Rng, near: DateTime<Utc>) -> Self {
        let mut some = |values: std::ops::Range<u32>, most: usize| {
            let count = random.usize(1..=most);
            (0..count).map(|_| random.u32(values.clone())).collect()
        };
        let (minutes, hours, weekdays) = (some(0..60, 3), some(0..24, 4), some(0..7, 7));
        let days = (0..random.usize(0..3)).map(|_| {
            let day = near + TimeDelta::days(random.i64(-2..3));
            day.date_naive().to_string()
        });
        let excluded = days.collect();
        let zones = ["UTC", "Asia/Kolkata", BERLIN, "America/New_York"];
        Self {
            minutes,
            hours,
            weekdays,
            seconds: [60, 90, 3_600, 5 * 3_600, 86_400][random.usize(0..5)],
            zone: zones[random.usize(0..zones.len())],
            excluded,
        }
    }

    fn window(&self) -> Window {
        let list = |values: &[u32]| {
            let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
            texts.join(",")
        };
        let [minutes, hours, weekdays] =
            [&self.minutes, &self.hours, &self.weekdays].map(|v| list(v));
        let schedule = format!("{minutes} {hours} * * {weekdays}");
        let duration = format!("{}s", self.seconds);
        let excluded: Vec<&str> = self.excluded.iter().map(String::as_str).collect();
        window(&schedule, &duration, self.zone, &excluded)
    }

    fn is_open(&self, now: DateTime<Utc>) -> bool {
        let zone = Zone::named(self.zone).unwrap();
        let local = |second: i64| zone.at(second).unwrap().local;
        let is_due = |second: &i64| {
            let local = local(*second);
            let weekday = local.weekday().num_days_from_sunday();
            self.minutes.contains(&local.minute())
                && self.hours.contains(&local.hour())
                && self.weekdays.contains(&weekday)
        };
        let now = now.timestamp();
        let minutes = (0..).map(|nth| now - now.rem_euclid(60) - 60 * nth);
        let mut covering = minutes.take_while(|second| *second > now - self.seconds);
        !self.excluded.contains(&local(now).date().to_string()) && covering.any(|at| is_due(&at))
    }
}

#[test]
fn it_is_open_and_closed_when_every_minute_by_itself_says_so() {
    // A day before clocks are set in one of the zones, or are not.
    let days = [
        "2026-03-28T00:00:00Z",
        "2026-10-24T00:00:00Z",
        "2026-03-07T00:00:00Z",
        "2026-10-31T00:00:00Z",
        "2026-07-01T00:00:00Z",
    ];
    cases(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let now =
            at(days[random.usize(0..days.len())]) + TimeDelta::seconds(random.i64(0..259_200));
        let slow = Slow::random(&mut random, now);
        let gate = gate(&[slow.window()], false, now);
        assert_eq!(gate.is_closed, !slow.is_open(now), "{now}");
        let until = gate.until.unwrap_or(now + TimeDelta::days(1));
        assert!(until > now, "{now}: {gate:?}");
        let seconds = (until - now).num_seconds().min(864_000);
        for _ in 0..4 {
            let then = now + TimeDelta::seconds(random.i64(0..seconds.max(1)));
            assert_eq!(
                gate.is_closed,
                !slow.is_open(then),
                "{now}, {then}: {gate:?}"
            );
        }
        if gate.is_closed && gate.until.is_some() {
            assert!(slow.is_open(until), "{now}: {gate:?}");
        }
    });
}

#[test]
fn every_fault_of_a_window_names_its_field() {
    let faults = |window: Value| -> Vec<String> {
        let mut good = json!({"schedule": "0 22 * * 1-5", "duration": "4h", "timeZone": BERLIN});
        for (field, value) in window.as_object().unwrap() {
            good[field] = value.clone();
        }
        let mut findings = Findings::default();
        let windows: Vec<crd::Window> = serde_json::from_value(json!([good])).unwrap();
        rules::check("w", &windows, &mut findings);
        findings.faults.iter().map(ToString::to_string).collect()
    };
    let none: Vec<String> = Vec::new();
    for good in [
        json!({}),
        json!({"timeZone": null, "excludedDates": null}),
        json!({"duration": "1m"}),
        json!({"duration": "168h", "excludedDates": ["2028-02-29", "2026-12-24"]}),
        json!({"schedule": "@daily", "excludedDates": []}),
    ] {
        assert_eq!(faults(good.clone()), none, "{good}");
    }
    for (window, text) in [
        (
            json!({"schedule": null}),
            "w[0].schedule: Required value: give when the window opens, such as 0 22 * * 1-5",
        ),
        (
            json!({"schedule": "0 25 * * *"}),
            "w[0].schedule: Invalid value: \"0 25 * * *\": at character 3 (hour): expected a number from 0 to 23, found \"25\"",
        ),
        (
            json!({"schedule": "0 0 31 2 *"}),
            "w[0].schedule: Invalid value: \"0 0 31 2 *\": at character 5 (day of month): no month that is named has such a day, so it would never run",
        ),
        (
            json!({"schedule": "TZ=UTC 0 0 * * *"}),
            "w[0].schedule: Invalid value: \"TZ=UTC 0 0 * * *\": at character 1: a time zone is not taken here: name it in timeZone",
        ),
        (
            json!({"schedule": "@every 1s"}),
            "w[0].schedule: Invalid value: \"@every 1s\": @every has no fixed start: give five fields, or a word such as @daily",
        ),
        (
            json!({"schedule": "*".repeat(1_025)}),
            "w[0].schedule: Too long: may not be more than 1024 bytes",
        ),
        (
            json!({"duration": null}),
            "w[0].duration: Required value: give for how long the window stays open, such as 4h",
        ),
        (
            json!({"duration": "4 hours"}),
            "w[0].duration: Invalid value: \"4 hours\": at character 2: expected a unit: h, m, s, ms, us or ns",
        ),
        (
            json!({"duration": "59s"}),
            "w[0].duration: Invalid value: \"59s\": must be from 1m to 168h (7 days)",
        ),
        (
            json!({"duration": "-4h"}),
            "w[0].duration: Invalid value: \"-4h\": must be from 1m to 168h (7 days)",
        ),
        (
            json!({"duration": "168h1s"}),
            "w[0].duration: Invalid value: \"168h1s\": must be from 1m to 168h (7 days)",
        ),
        (
            json!({"timeZone": "Mars/Phobos"}),
            "w[0].timeZone: Invalid value: \"Mars/Phobos\": unknown time zone: give a name of the IANA database, such as Europe/Berlin, letter for letter",
        ),
        (
            json!({"excludedDates": ["2026-12-24", "2026-2-30"]}),
            "w[0].excludedDates[1]: Invalid value: \"2026-2-30\": must be a day of the calendar such as 2026-12-24",
        ),
        (
            json!({"excludedDates": ["2026-12-4"]}),
            "w[0].excludedDates[0]: Invalid value: \"2026-12-4\": must be a day of the calendar such as 2026-12-24",
        ),
        (
            json!({"excludedDates": ["2026-12-24", "2026-12-24"]}),
            "w[0].excludedDates[1]: Duplicate value: \"2026-12-24\"",
        ),
        (
            json!({"excludedDates": vec!["2026-12-24"; 101]}),
            "w[0].excludedDates: Invalid value: 101: must have at most 100 items",
        ),
    ] {
        assert_eq!(faults(window.clone()), [text], "{window}");
    }
    let many = vec![crd::Window::default(); 11];
    let mut findings = Findings::default();
    rules::check("w", &many, &mut findings);
    assert_eq!(
        findings.faults[0].to_string(),
        "w: Invalid value: 11: must have at most 10 items"
    );
}
