//! Checks [`decide`] against the tables of `docs/at/protocol.md`, over every combination of their
//! conditions, and checks the invariants of every combination.

use std::fmt;

use super::*;

/// The page: its tables are the expectation.
const PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/at/protocol.md"
));

/// The columns of conditions, each with its values.
const AXES: [(&str, &[&str]); 10] = [
    ("phase", &["PENDING", "RUNNING", "DONE"]),
    ("podUID", &["no", "yes"]),
    (
        "pod",
        &[
            "none",
            "gated",
            "altered",
            "released",
            "succeeded",
            "failed",
            "other gated",
            "other released",
            "other ended",
            "foreign",
        ],
    ),
    ("due", &["later", "no", "yes"]),
    ("suspended", &["no", "yes"]),
    ("deadline", &["open", "passed"]),
    ("At deleting", &["no", "yes"]),
    ("hash", &["equal", "other"]),
    ("pod deleting", &["no", "yes"]),
    ("seen", &["cached", "live"]),
];
const CONDITIONS: usize = AXES.len();
/// What is expected: the operation, the status, when to reconcile next.
const EXPECTED: [&str; 3] = ["act", "status", "then"];
const ANY: &str = "";

fn place_of(axis: &str) -> usize {
    let place = AXES.iter().position(|(name, _)| *name == axis);
    place.expect("a column")
}

/// One value of each axis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Combination([&'static str; CONDITIONS]);

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = AXES.iter().zip(self.0);
        let words: Vec<String> = words
            .map(|((axis, _), is)| format!("{axis} {is}"))
            .collect();
        f.write_str(&words.join(", "))
    }
}

impl Combination {
    fn get(&self, axis: &str) -> &'static str {
        self.0[place_of(axis)]
    }

    fn is(&self, axis: &str) -> bool {
        self.get(axis) == "yes"
    }

    fn set(&mut self, axis: &str, value: &'static str) {
        self.0[place_of(axis)] = value;
    }

    /// The combination under which the page lists this one. The page says which are equivalent, and why.
    fn collapsed(mut self) -> Self {
        if self.is("podUID") && self.get("phase") == "PENDING" {
            self.set("phase", "RUNNING");
        }
        if !self.is("podUID") {
            match self.get("pod") {
                "other gated" => self.set("pod", "gated"),
                "other released" => self.set("pod", "released"),
                "other ended" => self.set("pod", "succeeded"),
                _ => {}
            }
        }
        if !self.is("due") {
            self.set("deadline", "open");
        }
        let waits = self.get("phase") == "PENDING" && !self.is("podUID") && !self.is("suspended");
        if self.get("due") == "later"
            && !(waits && self.get("pod") == "none" && !self.is("At deleting"))
        {
            self.set("due", "no");
        }
        if ["none", "foreign"].contains(&self.get("pod")) {
            self.set("hash", "other");
        }
        if self.get("pod") == "none" {
            self.set("pod deleting", "no");
        }
        self
    }

    fn at(&self) -> AtView {
        let mut at = match (self.get("phase"), self.is("podUID")) {
            ("PENDING", false) => {
                let at = pending_at();
                // What a waiting At has.
                let status = decide(&at, cached(None), at_second(-50)).status;
                AtView {
                    status: *status.unwrap(),
                    ..at
                }
            }
            ("DONE", false) => {
                let mut at = pending_at();
                at.spec.as_mut().unwrap().starting_deadline_seconds = Some(5);
                let status = decide_now(&at, cached(None)).status;
                AtView {
                    status: *status.unwrap(),
                    ..at
                }
            }
            ("DONE", true) => {
                let at = running_at("p-1");
                let status = decide_now(&at, cached(Some(&ended("p-1", 0)))).status;
                AtView {
                    status: *status.unwrap(),
                    ..at
                }
            }
            (phase, recorded) => {
                let mut at = if recorded {
                    running_at("p-1")
                } else {
                    pending_at()
                };
                let running = phase == "RUNNING";
                at.status.phase = Some(if running {
                    Phase::Running
                } else {
                    Phase::Pending
                });
                at
            }
        };
        at.deleting = self.is("At deleting");
        let spec = at.spec.as_mut().unwrap();
        spec.suspend = Some(self.is("suspended"));
        let passed = self.get("deadline") == "passed";
        spec.starting_deadline_seconds = Some(if passed { 5 } else { 100 });
        at
    }

    /// The pod, made from this spec or another.
    fn pod(&self, spec: &AtSpec) -> Option<PodView> {
        let pod = match self.get("pod") {
            "none" => return None,
            "gated" => gated("p-1"),
            "altered" => PodView {
                may_restart: Some("container at has restartPolicyRules".to_owned()),
                ..gated("p-1")
            },
            "released" => freed("p-1"),
            "succeeded" => ended("p-1", 0),
            "failed" => ended("p-1", 1),
            "other gated" => gated("p-2"),
            "other released" => freed("p-2"),
            "other ended" => ended("p-2", 0),
            _ => PodView {
                controller: None,
                ..gated("p-9")
            },
        };
        let hash = match self.get("hash") {
            "equal" => Some(build::hash(UID, spec)),
            _ => Some("other".to_owned()),
        };
        Some(PodView {
            hash,
            deleting: self.is("pod deleting"),
            ..pod
        })
    }

    fn now(&self) -> DateTime<Utc> {
        match self.collapsed().get("due") {
            "yes" => now(),
            "later" => early(),
            _ => at_second(-10),
        }
    }

    fn observed<'a>(&self, pod: Option<&'a PodView>) -> Observed<'a> {
        Observed {
            live: self.get("seen") == "live",
            ..cached(pod)
        }
    }
}

/// Every combination, including equivalent ones.
fn combinations() -> Vec<Combination> {
    let mut all = vec![Combination([""; CONDITIONS])];
    for (place, (_, values)) in AXES.iter().enumerate() {
        all = all
            .into_iter()
            .flat_map(|one| {
                values.iter().map(move |value| {
                    let mut next = one;
                    next.0[place] = value;
                    next
                })
            })
            .collect();
    }
    all
}

/// A row of the page's tables.
struct Row {
    name: &'static str,
    /// The operation needs a live read.
    starred: bool,
    conditions: Vec<Vec<&'static str>>,
    expected: Vec<&'static str>,
}

impl Row {
    /// The row of a line, under the columns of its table.
    fn read(columns: &[&str], line: &'static str) -> Self {
        let cells = cells(line);
        assert_eq!(cells.len(), columns.len(), "{line}");
        let name = cells[0].trim_end_matches('*');
        let condition = |(axis, values): &(&str, &[&str])| {
            let cell = match columns.iter().position(|column| column == axis) {
                Some(place) => cells[place],
                None if *axis == "phase" => phase(name),
                None => ANY,
            };
            let alternatives: Vec<&str> = cell.split(" or ").collect();
            for one in &alternatives {
                let known = *one == ANY || values.contains(one);
                assert!(known, "row {name}: {one:?} is not a value of {axis:?}");
            }
            alternatives
        };
        Self {
            name,
            starred: cells[0].ends_with('*'),
            conditions: AXES.iter().map(condition).collect(),
            expected: cells[columns.len() - EXPECTED.len()..].to_vec(),
        }
    }

    fn fits(&self, combination: Combination) -> bool {
        let mut all = self.conditions.iter().zip(combination.0);
        all.all(|(alternatives, is)| alternatives.contains(&ANY) || alternatives.contains(&is))
    }
}

fn cells(line: &'static str) -> Vec<&'static str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The phase that a table is about, by the names of its rows.
fn phase(row: &str) -> &'static str {
    match row.as_bytes()[0] {
        b'P' => "PENDING",
        b'R' => "RUNNING",
        b'D' => "DONE",
        _ => panic!("row {row}: of which phase?"),
    }
}

/// Whether these are the columns of a table of this test: a row's name, some conditions, and what is expected.
fn are_columns(cells: &[&str]) -> bool {
    let [first, between @ .., _, _, _] = cells else {
        return false;
    };
    let is_axis = |column: &&str| AXES.iter().any(|(axis, _)| axis == column);
    *first == "row" && between.iter().all(is_axis) && cells.ends_with(&EXPECTED)
}

/// The rows of every table of this test.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let columns = cells(line);
        if line.starts_with('|') && are_columns(&columns) {
            let table = lines
                .by_ref()
                .skip(1)
                .take_while(|line| line.starts_with('|'));
            rows.extend(table.map(|line| Row::read(&columns, line)));
        }
    }
    assert!(
        rows.len() > 20,
        "the tables of docs/at/protocol.md have other columns"
    );
    rows
}

/// The step in the words of the page.
fn in_words(combination: Combination, at: &AtView, decision: &Decision) -> Vec<String> {
    let act = match &decision.operation {
        Operation::Nothing => "nothing",
        Operation::GetLive => "read live",
        Operation::Create(_) => "create",
        Operation::DryRun(_) => "dry run",
        Operation::RemoveGate { .. } => "release",
        Operation::DeletePod(_) => "delete the pod",
        Operation::DeleteAt => "delete the At",
    };
    let instant = at.instant();
    let blind = Some(combination.now() + BLIND_INTERVAL);
    let then = match decision.next {
        _ if decision.again => "again",
        _ if decision.retry => "with backoff",
        None => ANY,
        next if next == instant => "at the instant",
        next if next == blind => "in 60 s",
        next if next == Some(combination.now() + START_RECORDED_WITHIN) => "in 2 s",
        _ => "at another time",
    };
    vec![
        act.to_owned(),
        change(&at.status, decision.status.as_deref()),
        then.to_owned(),
    ]
}

/// What becomes of a status: its phase, and what is new in it.
fn change(before: &AtStatus, after: Option<&AtStatus>) -> String {
    let mut before = before.clone();
    if before.pod_uid.is_some() && before.phase == Some(Phase::Pending) {
        before.phase = Some(Phase::Running);
    }
    let Some(after) = after.filter(|after| **after != before) else {
        return ANY.to_owned();
    };
    let phase = match after.phase.unwrap() {
        Phase::Pending => "PENDING",
        Phase::Running => "RUNNING",
        Phase::Done => "DONE",
    };
    let mut words = vec![phase.to_owned()];
    if after.pod_uid != before.pod_uid {
        words.push("podUID".to_owned());
    }
    if after.discarded_pod_uid.is_some() {
        words.push("discardedPodUID".to_owned());
    }
    if reason(after, FAILURE_TARGET).is_some() {
        words.push("FailureTarget".to_owned());
    }
    let started = |status: &AtStatus| reason(status, STARTED).map(|(_, reason)| reason.to_owned());
    if after.result == before.result {
        words.extend(started(after).filter(|reason| Some(reason) != started(&before).as_ref()));
    } else {
        words.extend(after.result.map(|result| format!("{result:?}")));
        words.extend(after.reason.clone());
    }
    words.join(", ")
}

#[test]
fn every_combination_is_decided_as_the_page_says() {
    let rows = rows();
    let mut reached = vec![false; rows.len()];
    for combination in combinations() {
        let place = rows
            .iter()
            .position(|row| row.fits(combination.collapsed()));
        let Some(place) = place else {
            panic!("docs/at/protocol.md has no row for: {combination}");
        };
        reached[place] = true;
        let at = combination.at();
        let pod = combination.pod(at.spec.as_ref().unwrap());
        let decision = decide(&at, combination.observed(pod.as_ref()), combination.now());
        let name = rows[place].name;
        assert_eq!(
            in_words(combination, &at, &decision),
            rows[place].expected,
            "row {name} of docs/at/protocol.md is not what is done: {combination}\n{decision:#?}"
        );
    }
    for (row, reached) in rows.iter().zip(reached) {
        assert!(
            reached,
            "row {} of docs/at/protocol.md never applies",
            row.name
        );
    }
}

#[test]
fn the_star_is_on_every_row_that_needs_a_live_read() {
    let rows = rows();
    let observed = place_of("seen");
    for (place, row) in rows.iter().enumerate() {
        let acts = row.expected[0] == "delete the pod"
            || [
                "UID",
                "Unknown",
                "GateViolated",
                "NameConflict",
                "FailureTarget",
            ]
            .iter()
            .any(|word| row.expected[1].contains(word));
        let corrupt = row.name == "R16";
        assert!(
            row.starred || !acts || corrupt,
            "row {} acts on what the watches say",
            row.name
        );
        if row.starred {
            assert_eq!(row.conditions[observed], ["live"], "row {}", row.name);
            let is_read = rows[..place]
                .iter()
                .any(|before| before.expected[0] == "read live");
            assert!(is_read, "no row asks for the live read of {}", row.name);
        }
    }
}

#[test]
fn row_names_are_unique() {
    let rows = rows();
    for (place, row) in rows.iter().enumerate() {
        let first = rows.iter().position(|other| other.name == row.name);
        assert_eq!(first, Some(place), "two rows {}", row.name);
    }
}

#[test]
fn the_invariants_hold_over_every_combination() {
    let mut count = 0;
    let distinct = combinations().into_iter();
    for combination in distinct.filter(|one| *one == one.collapsed()) {
        // What the tables leave out.
        for bits in 0..8_u8 {
            let bit = |n: u8| bits & (1 << n) != 0;
            let (valid, limited, owned) = (bit(0), bit(1), bit(2));
            let mut at = combination.at();
            let spec = at.spec.as_mut().unwrap();
            // Both are over at once.
            spec.active_deadline_seconds = limited.then_some(0);
            spec.ttl_seconds_after_finished = limited.then_some(0);
            let mut pod = combination.pod(spec);
            if !valid {
                at.spec = Err(vec![Fault::required("spec.command", "")]);
            }
            if !owned && let Some(pod) = &mut pod {
                pod.controller = None;
            }
            let now = combination.now();
            let observed = combination.observed(pod.as_ref());
            let first = decide(&at, observed, now);
            let caught = std::panic::catch_unwind(|| hold_invariants(&at, observed, now, &first));
            assert!(
                caught.is_ok(),
                "{combination}\n{at:#?}\n{observed:#?}\n{first:#?}"
            );
            wait_says_all(&at, observed, now, &first);
            count += 1;
        }
    }
    assert!(count > 25_000, "{count}");
}

/// A waiting step is a fixed point: with its status written, there is nothing to add.
fn wait_says_all(at: &AtView, observed: Observed<'_>, now: DateTime<Utc>, first: &Decision) {
    if first.operation == Operation::Nothing
        && !first.again
        && let Some(status) = &first.status
    {
        let next = AtView {
            status: (**status).clone(),
            ..at.clone()
        };
        let second = decide(&next, observed, now);
        assert_eq!(
            (second.operation, second.status, second.events),
            (Operation::Nothing, None, vec![])
        );
    }
}
