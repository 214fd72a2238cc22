//! What must hold of every history of Ats, whatever failed: the promises of docs/at/exactly-once.md, and that no
//! status ever said what was not so.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use simulated_apiserver::{ChangeKind, History, Request, Site, Verb, Version};

use crate::sweep::changes::{condition, conditions, is_operator, left, versions as of};
use crate::sweep::cluster::NAMESPACE;
use crate::sweep::subject::{Seen, Special};

/// The gate that holds a pod of an At back.
pub const GATE: &str = "cnat.programming-kubernetes.info/armed";

/// How far from the release startTime may be. An operator that dies before it has recorded its release takes the time from
/// the pod, or that of its own start.
const START_IS_OFF: Duration = Duration::from_secs(90);

/// So long a pod may take to be set up before the status says that it waits.
const USUAL: Duration = Duration::from_mins(1);

/// From the creation of an At of `now + 5 seconds` to its instant: the creation counts in whole seconds, rounded up.
const DUE_AFTER: Duration = Duration::from_secs(6);

/// Whether another client released a pod of an At.
pub fn foreign_release(history: &History) -> bool {
    let pods = pods(history);
    let mut releases = pods
        .values()
        .filter_map(|pod| pod.released.filter(|_| !pod.owner.is_empty()));
    releases.any(|release| !is_operator(&release.by))
}

/// Whether the operator ever decided an end before it deleted a pod.
pub fn is_decided(history: &History) -> bool {
    let mut ats = of(history, "ats");
    ats.any(|at| condition(at.object(), "FailureTarget").is_some())
}

/// The sentence of each promise that a history breaks.
///
/// With `has_hole`, another client released a pod and the operator may not have seen it.
pub fn broken_promises(seen: &Seen<'_>, has_hole: bool) -> Vec<String> {
    let history = seen.history;
    let mut broken = Vec::new();
    let pods = pods(history);
    for version in of(history, "pods").filter(|version| is_operator(&version.by)) {
        if pods
            .get(version.uid.as_str())
            .is_none_or(|pod| pod.owner.is_empty())
        {
            broken.push(format!(
                "the operator wrote the pod {}, which is of no At",
                version.uid
            ));
        }
    }
    if let Some(page) = seen.figures {
        counts(history, page, &mut |what| broken.push(what));
    }
    let mut ats: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in of(history, "ats") {
        ats.entry(&version.uid).or_default().push(version);
    }
    for (uid, versions) in ats {
        let mut say = |what: String| broken.push(format!("{}: {what}", versions[0].name));
        let of_it: Vec<&Pod> = pods.values().filter(|pod| pod.owner == uid).collect();
        let released: Vec<&Pod> = of_it
            .iter()
            .copied()
            .filter(|p| p.released.is_some())
            .collect();
        let by_us = released
            .iter()
            .filter(|pod| pod.released.is_some_and(|release| is_operator(&release.by)));
        if released.len() > 1 && !(has_hole && by_us.count() == 1) {
            let uids: Vec<&str> = released.iter().map(|pod| pod.uid).collect();
            say(format!("more than one pod was released: {uids:?}"));
        }
        forward_only(&versions, &mut say);
        for version in &versions {
            true_now(version, &of_it, &mut say);
        }
        let end = versions.iter().rfind(|v| phase(v.object()) == "DONE");
        if let Some(end) = end {
            true_at_the_end(end, &released, has_hole, &mut say);
        }
        let (attempts, dry_runs) = (
            attempts(history, versions[0], false),
            attempts(history, versions[0], true),
        );
        accepts_what_was_tried(&versions, &dry_runs, &mut say);
        if seen.special != Special::ClockIsSet {
            no_pod_is_early(&versions, &attempts, &mut say);
        }
        speaks_of_what_was_tried(&versions, &attempts, &mut say);
        // A process that was started later does not know why its predecessor failed.
        if let Some(end) = end.filter(|_| seen.starts.len() == 1) {
            names_the_cause(end, &attempts, &mut say);
        }
        if seen.special != Special::ClockIsSet {
            waits_truly(history, &versions, &of_it, &mut say);
        }
        events_are_true(history, &versions, &released, &mut say);
        if seen.special == Special::Neighbours {
            in_time(seen, versions[0], &released, &mut say);
        }
    }
    broken
}

/// The gauges at the end are those of the Ats that are left.
fn counts(history: &History, page: &str, say: &mut impl FnMut(String)) {
    let left = left(history, "ats");
    let status = |at: &Version, field: &str| {
        let value = at.object()["status"][field].as_str();
        value.unwrap_or_default().to_owned()
    };
    let pending = left.iter().filter(|at| phase(at.object()) == "PENDING");
    let mut expected = vec![format!("my_operator_at_pending {}", pending.count())];
    let mut failed: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for at in &left {
        let (result, reason) = (status(at, "result"), status(at, "reason"));
        if phase(at.object()) == "DONE" && result != "Succeeded" {
            *failed.entry((&at.namespace, result)).or_default() += 1;
        } else if phase(at.object()) == "RUNNING" && !reason.is_empty() {
            expected.push(format!(
                "my_operator_at_waiting{{namespace=\"{}\",name=\"{}\",reason=\"{reason}\"}} 1",
                at.namespace, at.name
            ));
        }
    }
    expected.extend(failed.iter().map(|((namespace, result), number)| {
        format!("my_operator_at_failed{{namespace=\"{namespace}\",result=\"{result}\"}} {number}")
    }));
    expected.sort();
    let names = [
        "my_operator_at_pending ",
        "my_operator_at_waiting{",
        "my_operator_at_failed{",
    ];
    let lines = page.lines();
    let lines = lines.filter(|line| names.iter().any(|name| line.starts_with(name)));
    let mut found: Vec<&str> = lines.collect();
    found.sort_unstable();
    if found != expected {
        say(format!("the metrics are {found:?} instead of {expected:?}"));
    }
}

/// The creations of pods of an At that an operator asked for, or only asked about.
fn attempts<'a>(history: &'a History, at: &Version, dry: bool) -> Vec<&'a Request> {
    let pod = format!("{}-pod", at.name);
    let requests = history.requests.iter();
    let attempts = requests.filter(|request| {
        let site = &request.site;
        let creates = (site.verb, site.resource.as_str()) == (Verb::Create, "pods");
        let is_dry = request.uri.contains("dryRun=All");
        creates && is_dry == dry && site.name == pod && site.namespace == at.namespace
    });
    attempts.collect()
}

/// A failed creation is said of a generation only if a pod of that generation was tried.
fn speaks_of_what_was_tried(
    versions: &[&Version],
    attempts: &[&Request],
    say: &mut impl FnMut(String),
) {
    for version in versions {
        let all = version.object()["status"]["conditions"].as_array();
        let failed = all.into_iter().flatten().filter(|condition| {
            let reason = condition["reason"].as_str();
            condition["type"] == "Started" && matches!(reason, Some("PodRefused" | "CreateFailed"))
        });
        for condition in failed {
            let generation = &condition["observedGeneration"];
            let is_of_it = |v: &&&Version| v.object()["metadata"]["generation"] == *generation;
            let since = versions.iter().find(is_of_it).map(|v| v.elapsed);
            let was_tried = since.is_some_and(|since| {
                let mut times = attempts.iter().map(|attempt| attempt.elapsed);
                times.any(|time| since <= time && time <= version.elapsed)
            });
            if !was_tried {
                say(format!(
                    "{} is said of generation {generation}, which was not tried by {}",
                    condition["reason"], version.time
                ));
            }
        }
    }
}

/// What is said of a pod before it is due was the answer to a dry run of that generation, at least a minute before. With the
/// start, or any other end, nothing is said of it any more.
fn accepts_what_was_tried(
    versions: &[&Version],
    dry_runs: &[&Request],
    say: &mut impl FnMut(String),
) {
    for version in versions {
        let status = &version.object()["status"];
        let is_accepted = !status["dryRunGeneration"].is_null();
        let is_refused = condition(version.object(), "PodAccepted").is_some();
        if !is_accepted && !is_refused {
            continue;
        }
        if is_accepted && is_refused {
            say("a dry run is said to have succeeded and to be refused".to_owned());
        }
        let generation = &version.object()["metadata"]["generation"];
        let is_of_it = |v: &&&Version| v.object()["metadata"]["generation"] == *generation;
        let since = versions.iter().find(is_of_it).map(|v| v.elapsed);
        let answer = |request: &&&Request| match request.code {
            Some(code) if is_accepted => code < 300,
            Some(code) => (400..500).contains(&code) && ![404, 408, 409, 429].contains(&code),
            None => false,
        };
        let mut answers = dry_runs.iter().filter(answer);
        let is_of_its_time =
            |r: &&Request| since <= Some(r.elapsed) && r.elapsed <= version.elapsed;
        // An edit does not take back at once what was said of the spec before it.
        let is_said = &status["observedGeneration"] == generation;
        if is_said && !answers.any(is_of_its_time) {
            say(format!(
                "a dry run is said to have succeeded ({is_accepted}) or to be refused at {}, and none was",
                version.time
            ));
        }
        if phase(version.object()) != "PENDING" {
            say("a dry run is spoken of after the start".to_owned());
        }
    }
}

/// What is only asked about is not made: no pod is created before its At is due.
fn no_pod_is_early(versions: &[&Version], attempts: &[&Request], say: &mut impl FnMut(String)) {
    let is_of_it = |attempt: &&&Request| {
        let pod: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
        pod["metadata"]["ownerReferences"][0]["uid"] == versions[0].uid.as_str()
    };
    for attempt in attempts.iter().filter(is_of_it) {
        let by_then = versions.iter().rfind(|v| v.elapsed <= attempt.elapsed);
        let spec = by_then.map(|at| &at.object()["spec"]["schedule"]);
        let minutes = spec.and_then(Value::as_str).and_then(|schedule| {
            let minutes = schedule.strip_prefix("now + ")?.strip_suffix(" minutes")?;
            minutes.parse::<u64>().ok()
        });
        let due = versions[0].elapsed + Duration::from_mins(minutes.unwrap_or_default());
        if attempt.elapsed < due {
            say(format!(
                "a pod was created at {:.1?}, and due at {due:.1?}",
                attempt.elapsed
            ));
        }
    }
}

/// An At that was missed because its pod was rejected to the last says so.
fn names_the_cause(end: &Version, attempts: &[&Request], say: &mut impl FnMut(String)) {
    let (spec, status) = (&end.object()["spec"], &end.object()["status"]);
    let last = attempts.last().and_then(|attempt| attempt.code);
    let is_rejected = last.is_some_and(|code| code >= 400 && code != 409);
    let message = status["message"].as_str().unwrap_or_default();
    if status["result"] == "Missed"
        && is_rejected
        && spec["suspend"] != true
        && !message.contains("what kept it: ")
    {
        say(format!("Missed names no cause: {message:?}"));
    }
}

/// What a released pod is said to wait for is so.
fn waits_truly(
    history: &History,
    versions: &[&Version],
    pods: &[&Pod<'_>],
    say: &mut impl FnMut(String),
) {
    for version in versions.iter().filter(|v| phase(v.object()) == "RUNNING") {
        let status = &version.object()["status"];
        let pod = pods.iter().find(|pod| status["podUID"] == pod.uid);
        let Some(released) = pod.and_then(|pod| pod.released) else {
            continue;
        };
        let reason = status["reason"].as_str().unwrap_or_default();
        let waited = version.elapsed.saturating_sub(released.elapsed);
        let is_so = match reason {
            "ContainerCreating" | "PodInitializing" | "NotScheduled" => waited >= USUAL,
            "OtherContainersRunning" => of(history, "pods").any(|pod| {
                let all = pod.object()["status"]["containerStatuses"].as_array();
                let mut all = all.into_iter().flatten();
                let has_ended =
                    all.any(|one| one["name"] == "at" && !one["state"]["terminated"].is_null());
                pod.uid == released.uid && pod.elapsed <= version.elapsed && has_ended
            }),
            _ => true,
        };
        if !is_so {
            say(format!(
                "it is said to wait for {reason} {waited:.1?} after its release"
            ));
        }
    }
}

/// An Event reports what has happened by then.
fn events_are_true(
    history: &History,
    versions: &[&Version],
    released: &[&Pod<'_>],
    say: &mut impl FnMut(String),
) {
    let uid = &versions[0].uid;
    for event in of(history, "events") {
        let regarding = event.object()["regarding"]["uid"].as_str();
        if regarding != Some(uid) || event.kind != ChangeKind::Added {
            continue;
        }
        let reason = event.object()["reason"].as_str().unwrap_or_default();
        let results: &[&str] = match reason {
            "Completed" => &["Succeeded"],
            "Failed" => &["Failed", "Unknown"],
            "Missed" => &["Missed"],
            _ => &[],
        };
        let by_then = |version: &&&Version| version.elapsed <= event.elapsed;
        let is_so = if reason == "Started" {
            let mut starts = released.iter().filter_map(|pod| pod.released);
            starts.any(|start| by_then(&&start))
        } else {
            let mut all = versions.iter().filter(by_then);
            let result = |v: &&Version| v.object()["status"]["result"].as_str().map(str::to_owned);
            results.is_empty()
                || all.any(|v| result(v).is_some_and(|result| results.contains(&result.as_str())))
        };
        if !is_so {
            say(format!("the Event {reason} reports what is not so"));
        }
    }
}

/// An At in the namespace of the scenario whose own calls meet no fault starts as if it were alone.
fn in_time(seen: &Seen<'_>, at: &Version, released: &[&Pod<'_>], say: &mut impl FnMut(String)) {
    let is_own = |site: &Site| site.namespace == at.namespace && site.name.starts_with(&at.name);
    let mut struck = seen.faults.iter().zip(seen.sites);
    let is_concerned = struck.any(|(fault, site)| !fault.is_about_one_object(site) || is_own(site));
    if at.namespace != NAMESPACE || is_concerned {
        return;
    }
    let due = at.elapsed + DUE_AFTER;
    let release = released.first().and_then(|pod| pod.released);
    if release.is_none_or(|release| release.elapsed > due + Duration::from_secs(1)) {
        let at = release.map(|release| release.elapsed);
        say(format!("due at {due:.1?}, and released at {at:.1?}"));
    }
}

/// What is known of a pod of an At.
struct Pod<'a> {
    uid: &'a str,
    owner: &'a str,
    /// Since when it is without our gate, and through which client.
    released: Option<&'a Version>,
    /// Its phases, in order.
    phases: BTreeSet<&'a str>,
}

fn pods(history: &History) -> BTreeMap<&str, Pod<'_>> {
    let mut pods = BTreeMap::new();
    for version in of(history, "pods") {
        let owners = version.object()["metadata"]["ownerReferences"].as_array();
        let owner = owners.into_iter().flatten().find(|o| o["kind"] == "At");
        let pod = pods.entry(version.uid.as_str()).or_insert_with(|| Pod {
            uid: &version.uid,
            owner: "",
            released: None,
            phases: BTreeSet::new(),
        });
        if let Some(owner) = owner.and_then(|owner| owner["uid"].as_str()) {
            pod.owner = owner;
        }
        if !is_gated(version.object()) && pod.released.is_none() {
            pod.released = Some(version);
        }
        if let Some(phase) = version.object()["status"]["phase"].as_str() {
            pod.phases.insert(phase);
        }
    }
    pods
}

fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

fn phase(at: &Value) -> &str {
    at["status"]["phase"].as_str().unwrap_or("PENDING")
}

/// What is decided stays decided.
fn forward_only(versions: &[&Version], say: &mut impl FnMut(String)) {
    let rank = |value: &Value| match phase(value) {
        "PENDING" => 0,
        "RUNNING" => 1,
        _ => 2,
    };
    for pair in versions.windows(2) {
        let (before, after) = (pair[0].object(), pair[1].object());
        if rank(after) < rank(before) {
            say(format!(
                "the phase went back from {} to {}",
                phase(before),
                phase(after)
            ));
        }
        for field in ["podUID", "result", "completionTime", "exitCode"] {
            let (before, after) = (&before["status"][field], &after["status"][field]);
            if !before.is_null() && before != after {
                say(format!("{field} was {before} and became {after}"));
            }
        }
    }
}

/// A status says what is so when it is written.
fn true_now(version: &Version, pods: &[&Pod<'_>], say: &mut impl FnMut(String)) {
    let status = &version.object()["status"];
    let recorded = status["podUID"].as_str();
    let pod = recorded.and_then(|uid| pods.iter().find(|pod| pod.uid == uid));
    let release = pod.and_then(|pod| pod.released);
    let was_released = release.is_some_and(|release| release.elapsed <= version.elapsed);
    let claims = [
        (
            condition(version.object(), "Started").is_some_and(|(is, _)| is == "True"),
            "Started is True",
        ),
        (!status["startTime"].is_null(), "startTime is set"),
        (
            !status["latenessMilliseconds"].is_null(),
            "latenessMilliseconds is set",
        ),
    ];
    for (claimed, what) in claims {
        if claimed && !was_released {
            say(format!(
                "{what} at {}, and the pod was not released by then",
                version.time
            ));
        }
    }
    let time = |field: &str| status[field].as_str()?.parse::<DateTime<Utc>>().ok();
    let by_us = release.filter(|release| is_operator(&release.by));
    if let Some((start, release)) = time("startTime").zip(release) {
        let is_off = |off: TimeDelta| off.to_std().is_ok_and(|off| off > START_IS_OFF);
        // An operator that starts later sees a release by another client when it sees it.
        let is_late = by_us.is_some() && is_off(start - release.time);
        if is_late || is_off(release.time - start) {
            say(format!(
                "startTime is {start}, and the pod was released at {}",
                release.time
            ));
        }
    }
    if let Some((scheduled, release)) = time("scheduledTime").zip(by_us)
        && release.time < scheduled
    {
        say(format!("released at {}, before {scheduled}", release.time));
    }
}

/// The result is what happened.
fn true_at_the_end(
    end: &Version,
    released: &[&Pod<'_>],
    has_hole: bool,
    say: &mut impl FnMut(String),
) {
    let status = &end.object()["status"];
    let (result, reason) = (
        status["result"].as_str().unwrap_or("none"),
        status["reason"].as_str(),
    );
    let recorded = released.iter().find(|pod| status["podUID"] == pod.uid);
    let ran = recorded.or(released.first());
    if (result == "Missed" || reason == Some("NeverStarted")) && ran.is_some() {
        say(format!(
            "the result is {result} ({reason:?}), and a pod was released"
        ));
    }
    if result == "Succeeded" && !ran.is_some_and(|pod| pod.phases.contains("Succeeded")) {
        say("the result is Succeeded, and no released pod succeeded".to_owned());
    }
    if let Some(pod) = ran
        && !has_hole
        && status["podUID"].as_str() != Some(pod.uid)
        && condition(end.object(), "Started").is_none_or(|(_, reason)| reason != "GateViolated")
    {
        say(format!(
            "podUID is {}, and the pod {} was released",
            status["podUID"], pod.uid
        ));
    }
    if condition(end.object(), "Finished").is_none_or(|(is, _)| is != "True") {
        say("DONE, and not Finished".to_owned());
    }
    let verdicts = ["Complete", "Failed"];
    let verdicts = verdicts
        .iter()
        .filter(|t| condition(end.object(), t).is_some_and(|(is, _)| is == "True"));
    if verdicts.count() != 1 {
        say("DONE, and not either Complete or Failed".to_owned());
    }
}

/// What two runs of a scenario must have in common at their end. Times, UIDs and messages differ.
pub fn outcome(history: &History) -> String {
    let mut lines = Vec::new();
    for at in left(history, "ats") {
        let status = &at.object()["status"];
        lines.push(format!(
            "{} {} {} exit {} {} {}",
            at.name,
            phase(at.object()),
            status["result"].as_str().unwrap_or("-"),
            status["exitCode"],
            status["reason"].as_str().unwrap_or("-"),
            conditions(at.object()),
        ));
    }
    for pod in left(history, "pods") {
        let gated = if is_gated(pod.object()) { " gated" } else { "" };
        let phase = pod.object()["status"]["phase"].as_str().unwrap_or("-");
        lines.push(format!("{} {phase}{gated}", pod.name));
    }
    let released = pods(history);
    let released = released.values().filter(|pod| pod.released.is_some());
    lines.push(format!("pods released: {}", released.count()));
    lines.join("\n")
}

/// The reasons that a history's Ats ever showed: the marks of rare branches.
pub fn reasons(history: &History) -> BTreeSet<String> {
    let mut reasons = BTreeSet::new();
    for at in of(history, "ats").filter(|version| version.kind != ChangeKind::Deleted) {
        let status = &at.object()["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let all = conditions.map(|condition| &condition["reason"]);
        let all = all.chain([&status["reason"]]).filter_map(Value::as_str);
        reasons.extend(all.map(str::to_owned));
    }
    reasons
}
