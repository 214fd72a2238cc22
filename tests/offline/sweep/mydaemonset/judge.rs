//! What must hold of every history of MyDaemonSets, whatever failed: the promises of docs/mydaemonset/README.md.
//!
//! An act of the operator is held against what its process had been sent by then, which the simulation knows exactly, and
//! against what it did itself: a deletion that was carried out counts, however it was answered. What reached the process in
//! the very instant of the act may have come before it or after it; both are tried.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{TimeDelta, Timelike};
use serde_json::Value;
use simulated_apiserver::{ChangeKind, Request, Verb, Version};

use super::canaries::{judge_names, judge_reach};
use super::known::{Fate, Known, Pod, deadline, is_unserved_for_long, started, update};
use crate::sweep::changes::{condition, conditions, is_operator, left, versions};
use crate::sweep::subject::{Judged, Seen};

/// How long the pods of a node that is gone are left alone, and a second for times that are cut.
const QUARANTINE: Duration = Duration::from_secs(39);
/// How long a pod that has ended stays at least, and a second for times that are cut.
const ENDED_STAYS: Duration = Duration::from_secs(9);
/// How long a fault holds back what a watch shows, and a second for times that are cut.
const WATCHES_LAG: Duration = Duration::from_secs(21);

/// Judges a run.
pub fn judge(seen: &Seen<'_>) -> Judged {
    let mut broken = Vec::new();
    for version in versions(seen.history, "pods").filter(|v| is_operator(&v.by)) {
        let Some(request) = request_of(seen, version) else {
            continue;
        };
        let is_new = version.kind == ChangeKind::Added;
        let wrong = if is_new {
            judge_first_attempt(seen, version, request, judge_creation_attempt)
        } else if is_deletion(version) {
            judge_first_attempt(seen, version, request, judge_deletion_attempt)
        } else {
            None
        };
        let act = if is_new { "created" } else { "deleted" };
        broken.extend(wrong.map(|what| {
            format!(
                "the pod {} {act} at {:.3?}: {what}",
                version.name, version.elapsed
            )
        }));
    }
    for version in versions(seen.history, "mydaemonsets").filter(|v| is_operator(&v.by)) {
        broken.extend(judge_status(seen, version));
    }
    broken.extend(judge_end(seen));
    broken.extend(judge_reach(seen));
    broken.extend(judge_waiting(seen));
    let outcome = outcome(seen);
    // If the operator learns late that a node is not ready, the node seems to have failed after it got its new pod. Where a
    // node says nothing about the revision, the next one that fails stops the roll-out.
    let is_blind = seen.faults.iter().any(|fault| fault.hides("nodes"));
    let patience = patience(seen);
    Judged {
        broken,
        end_may_differ: (is_blind || !patience.is_zero()) && outcome.contains("/AutoPaused"),
        outcome,
        marks: marks(seen),
        patience,
    }
}

/// How much longer a roll-out takes because a window is missed, or because of a pod that did not replace an available one, as
/// far as it says: the process that deleted the old one had died before it made the new one, or a foreign hand had just
/// replaced the old one. Such a node speaks neither for nor against a revision, and has until the deadline.
fn patience(seen: &Seen<'_>) -> Duration {
    let pods = || versions(seen.history, "pods");
    let node = |version: &Version| version.object()["spec"]["nodeName"].clone();
    let mut made = pods().filter(|v| v.kind == ChangeKind::Added && is_operator(&v.by));
    let is_silent = |made: &&Version| {
        let annotations = &made.object()["metadata"]["annotations"];
        let mut before = pods().filter(|v| v.version < made.version && node(v) == node(made));
        annotations["apps.zhongmingmao.io/predecessor"] != "available"
            && before.any(|v| label(v.object()) != label(made.object()))
    };
    let set = versions(seen.history, "mydaemonsets").last();
    let set = set.map(Version::object);
    let silent = made
        .find(is_silent)
        .map_or(Duration::ZERO, |_| deadline(set));
    // With each fault it may miss a window, and end in the next.
    let windows = minutes_between_windows(set).unwrap_or_default();
    let missed =
        Duration::from_mins(windows.into()) * u32::try_from(seen.faults.len()).unwrap_or(1);
    silent + missed
}

/// The request of an operator that led to a version.
fn request_of<'a>(seen: &Seen<'a>, version: &Version) -> Option<&'a Request> {
    let mut requests = seen.history.requests.iter();
    requests.find(|request| {
        request.carried_out
            && request.site.user == version.by
            && request.before < version.version
            && version.version <= request.version
    })
}

/// Whether a pod begins to be deleted with that version.
fn is_deletion(version: &Version) -> bool {
    let was_marked = version
        .previous()
        .is_some_and(|before| !before["metadata"]["deletionTimestamp"].is_null());
    let is_marked = !version.object()["metadata"]["deletionTimestamp"].is_null();
    !was_marked && (is_marked || version.kind == ChangeKind::Deleted)
}

/// What the process that sent a request knew then, at least and at most, with its own deletions before that version.
fn knew<'a>(seen: &Seen<'a>, version: &Version, request: &Request) -> [Known<'a>; 2] {
    let (user, at) = (version.by.as_str(), request.elapsed);
    let since = started(seen, user, at);
    [false, true].map(|at_once| {
        let mut known = Known::by(seen, user, request, at_once);
        let before = versions(seen.history, "pods")
            .filter(|v| v.version < version.version && v.by == user && is_deletion(v));
        for own in before {
            if request_of(seen, own).is_some_and(|request| request.elapsed >= since) {
                known.note_deletion(&own.uid);
            }
        }
        known
    })
}

fn is_made_by_an_operator(seen: &Seen<'_>, pod: &Pod<'_>) -> bool {
    let mut made = versions(seen.history, "pods").filter(|v| v.kind == ChangeKind::Added);
    made.any(|version| version.uid == pod.uid && is_operator(&version.by))
}

/// What is wrong, whichever of the two the operator knew.
fn whatever_it_knew(
    known: &[Known<'_>],
    wrong: impl Fn(&Known<'_>) -> Option<String>,
) -> Option<String> {
    let found: Option<Vec<String>> = known.iter().map(wrong).collect();
    found?.pop()
}

/// A pod of the set as an operator made it.
fn judge_creation_attempt(seen: &Seen<'_>, version: &Version, request: &Request) -> Option<String> {
    let object = version.object();
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
    let revision = label(object);
    // Promise 1, whatever the operator knew.
    let owner = &object["metadata"]["ownerReferences"][0]["uid"];
    let there = Known::all(seen.history, version.version, version.elapsed, version.time);
    if there.set.is_none_or(|set| set["metadata"]["uid"] != *owner) {
        // Of a set that is gone: the collector has it soon.
        return None;
    }
    let mut stored = versions(seen.history, "controllerrevisions");
    if !stored.any(|v| v.version < version.version && v.name.ends_with(revision)) {
        return Some(format!("its revision {revision} was never stored"));
    }
    // Whether it was carried out or not, the operator takes a deletion without a definite answer for done.
    let is_asked_for = |pod: &Pod<'_>| {
        seen.history.requests.iter().any(|other| {
            let site = &other.site;
            let is_deletion = site.verb == Verb::Delete && site.resource == "pods";
            is_deletion && site.name == pod.name && other.elapsed <= request.elapsed
        })
    };
    let is_gone = |pod: &Pod<'_>| pod.has_ended() && (pod.deleting || is_asked_for(pod));
    let others: Vec<&Pod<'_>> = there
        .on(node)
        .filter(|pod| pod.uid != version.uid)
        .collect();
    let nodes = versions(seen.history, "nodes");
    let registered = nodes
        .filter(|v| v.name == node && v.kind == ChangeKind::Added && v.version <= version.version);
    let registered = registered.last();
    if registered.is_some_and(|node| node.elapsed > request.elapsed) {
        // A late one, for the node of that name that was there before.
        return None;
    }
    let is_twin = |pod: &&&Pod<'_>| {
        // An orphan becomes a pod of the set only when it is adopted.
        let is_owned = pod.object["metadata"]["ownerReferences"].is_array();
        pod.revision == revision && is_owned
    };
    if let Some(twin) = others.iter().find(is_twin) {
        return Some(format!("{} has the same revision on {node}", twin.name));
    }
    let known = knew(seen, version, request);
    whatever_it_knew(&known, |known| {
        if known.undone.as_deref() == Some(revision) {
            return Some(format!("{revision} failed, and is tried again"));
        }
        let mut words = known.freeze.into_iter().flat_map(|it| it.split([' ', ',']));
        if words.next() == Some("all") {
            return Some("a freeze of everything allows no pod".to_owned());
        }
        // What has ended and is held by a finalizer runs no more.
        let others = known.on(node).filter(|pod| !is_gone(pod)).count();
        if others == 0 {
            return None;
        }
        let limit = known.limit("maxSurge");
        let is_surging = |node: &&&str| {
            let update = &known.update;
            // Its own pods that no watch has shown yet count: it made them. It does not know those of others.
            let was_shown = |pod: &Pod<'_>| known.pods.iter().any(|known| known.uid == pod.uid);
            let of_node = || {
                let pods = there.on(node);
                pods.filter(|pod| was_shown(pod) || is_made_by_an_operator(seen, pod))
            };
            of_node().any(|pod| pod.is_live() && pod.revision != update.as_str())
                && of_node().any(|pod| pod.revision == update.as_str())
        };
        // A surge that stands still because of its node gives its place to another.
        let goes_on = |name: &&str| known.fate(name, &known.update) == Fate::Run;
        let surging = known
            .nodes
            .keys()
            .filter(|name| **name != node && goes_on(name));
        let surging = surging.filter(is_surging).count() + 1;
        if limit == 0 {
            Some(format!("{node} has a pod already"))
        } else if others > 1 {
            Some(format!("{node} has {others} pods already"))
        } else if surging > limit {
            Some(format!(
                "{surging} nodes with two pods, and maxSurge is {limit}"
            ))
        } else {
            None
        }
    })
}

/// The revision of a pod.
pub fn label(object: &Value) -> &str {
    let label = &object["metadata"]["labels"]["apps.zhongmingmao.io/revision"];
    label.as_str().unwrap_or_default()
}

/// A call about a pod. One whose answer was lost is repeated to learn its outcome, and counts as the first one: what has
/// changed since, such as a node that has joined, cannot take that one back.
fn judge_first_attempt(
    seen: &Seen<'_>,
    version: &Version,
    request: &Request,
    judge: fn(&Seen<'_>, &Version, &Request) -> Option<String>,
) -> Option<String> {
    let fault = judge(seen, version, request)?;
    let first = seen.history.requests.iter().find(|before| {
        let is_same = before.site.verb == request.site.verb
            && before.site.resource == request.site.resource
            && before.site.name == request.site.name
            && before.body == request.body;
        let is_unknown = before.code.is_none_or(|code| code >= 500);
        is_same && is_unknown && before.elapsed < request.elapsed
    });
    first.map_or(Some(fault), |first| judge(seen, version, first))
}

/// A pod that an operator deletes.
fn judge_deletion_attempt(seen: &Seen<'_>, version: &Version, request: &Request) -> Option<String> {
    let known = knew(seen, version, request);
    let node = version.object()["spec"]["nodeName"].as_str();
    let node = node.unwrap_or_default();
    whatever_it_knew(&known, |known| {
        let Some(set) = known.set else {
            return Some("the operator knew no set".to_owned());
        };
        if !set["metadata"]["deletionTimestamp"].is_null() {
            return Some("the set is being deleted".to_owned());
        }
        let Some(pod) = known.pods.iter().find(|pod| pod.uid == version.uid) else {
            return Some("the operator had not seen this pod as one of the set".to_owned());
        };
        if !known.nodes.contains_key(node) {
            return node_gone(seen, node, request);
        }
        why_not(seen, known, pod, request)
    })
}

/// A pod is deleted because its node is gone.
fn node_gone(seen: &Seen<'_>, node: &str, request: &Request) -> Option<String> {
    let nodes = versions(seen.history, "nodes").filter(|v| v.name == node);
    let last = nodes.take_while(|v| v.elapsed <= request.elapsed).last()?;
    if last.kind != ChangeKind::Deleted {
        return Some(format!("{node} is there"));
    }
    let gone = request.elapsed.saturating_sub(last.elapsed);
    (gone < QUARANTINE).then(|| format!("{node} has been gone for {gone:.1?} only"))
}

/// Why the pod may not be deleted, if so.
fn why_not(seen: &Seen<'_>, known: &Known<'_>, pod: &Pod<'_>, request: &Request) -> Option<String> {
    let (node, update) = (pod.node, known.update.as_str());
    let by_own = known.fate(node, pod.revision);
    let by_update = known.fate(node, update);
    if by_own == Fate::Leave && by_update == Fate::Leave {
        return None;
    }
    let is_of = |other: &&Pod<'_>| (other.revision == update) == (pod.revision == update);
    let others = || known.on(node).filter(|other| other.uid != pod.uid);
    if others().filter(is_of).any(Pod::is_live) {
        // One of several.
        return None;
    }
    let is_new = pod.revision == update;
    let is_held = is_held(known, node);
    if pod.has_ended() {
        let ended = ended(seen, pod);
        let stayed = ended.map(|at| known.elapsed.saturating_sub(at));
        let replaced = (!is_new && !is_held) || others().any(Pod::is_live);
        return stayed
            .filter(|stayed| *stayed < ENDED_STAYS && !replaced)
            .map(|stayed| format!("it ended {stayed:.1?} ago"));
    }
    if matches!(by_update, Fate::Keep | Fate::Cordoned) {
        return Some(format!("{node} keeps its pod: {by_update:?}"));
    }
    let outlived = others().any(|other| other.revision == update && known.is_available(other));
    if outlived && !is_new {
        return None;
    }
    if is_new {
        return Some("it has the newest revision".to_owned());
    }
    if by_own == Fate::Leave {
        // The node is not one that this revision may be on any more.
        return None;
    }
    if is_held {
        return Some("the roll-out holds this node".to_owned());
    }
    if let Some(wrong) = beyond_canaries(seen, known, node, request) {
        return Some(wrong);
    }
    if let Some(wrong) = before_its_turn(seen, known, node, request) {
        return Some(wrong);
    }
    let is_replaced = others().any(|other| other.revision == update && other.is_live());
    if !pod.is_ready() && is_replaced {
        // The end of a surge: it serves no more.
        return None;
    }
    if known.is_silent(node) {
        return Some(format!("{node} is not Ready: nothing could be made there"));
    }
    if !was_tried(seen, update, request) {
        return Some(format!(
            "the API server has not accepted a pod of {update} yet"
        ));
    }
    let surge = known.limit("maxSurge");
    let most = if surge == 0 {
        known.limit("maxUnavailable").max(1)
    } else {
        surge
    };
    let unproven = unproven(seen, known, node);
    if unproven.len() + 1 > most {
        return Some(format!(
            "{unproven:?} have not shown yet that {update} works"
        ));
    }
    if !pod.is_ready() {
        // Nothing is lost with it.
        return None;
    }
    if surge > 0 && by_update == Fate::Run {
        return Some("it serves, and its successor is not available".to_owned());
    }
    let limit = known.limit("maxUnavailable").max(usize::from(surge == 0));
    let names = known.nodes.keys().filter(|name| **name != node);
    let unserved: Vec<&str> = names
        .copied()
        .filter(|name| counts(known, name) && !known.is_served(name))
        .filter(|name| !is_unserved_for_long(seen.history, name, known))
        .collect();
    (unserved.len() + 1 > limit).then(|| {
        format!(
            "{} nodes unavailable, and maxUnavailable is {limit}: {unserved:?} before {node}",
            unserved.len() + 1
        )
    })
}

/// Whether the API server had accepted a pod of that revision before that request, be it in a dry run; or rejected it
/// only for a quota, which the new pod fits into once the old pod is gone.
fn was_tried(seen: &Seen<'_>, revision: &str, request: &Request) -> bool {
    let requests = seen.history.requests.iter();
    let before = requests.filter(|r| {
        r.site.verb == Verb::Create && r.site.resource == "pods" && r.elapsed <= request.elapsed
    });
    let mut accepted = before.filter(|r| {
        let taken = r.carried_out
            && r.code
                .is_none_or(|code| [201, 403, 409, 500, 504].contains(&code));
        let body: Value = serde_json::from_slice(&r.body).unwrap_or_default();
        taken && label(&body) == revision
    });
    accepted.next().is_some()
}

/// The other nodes that have the newest revision, or lost their old pod to it, and have not shown yet that it works there.
fn unproven<'a>(seen: &Seen<'_>, known: &'a Known<'_>, node: &str) -> Vec<&'a str> {
    let update = known.update.as_str();
    let names = known.nodes.keys().copied().filter(|name| *name != node);
    let begun = |name: &&str| {
        let pods = || known.on(name);
        let has_old = pods().any(|pod| pod.is_live() && pod.revision != update);
        let has_new = pods().any(|pod| !pod.deleting && pod.revision == update);
        let works = pods().any(|pod| pod.revision == update && known.is_available(pod));
        !works && (has_new || !has_old)
    };
    names
        .filter(|name| counts(known, name))
        .filter(begun)
        .filter(|name| !is_unserved_for_long(seen.history, name, known))
        .collect()
}

/// Whether the limits count a node.
fn counts(known: &Known<'_>, node: &str) -> bool {
    let fate = known.fate(node, &known.update);
    // Where the newest revision has no place, a pod of another one may still be leaving.
    let leaves = fate == Fate::Leave
        && known
            .on(node)
            .any(|pod| pod.deleting && known.fate(node, pod.revision) != Fate::Leave);
    // Nothing has been taken from a node that joins.
    let was_ready = known.nodes.get(node).is_some_and(|node| node.was_ready);
    was_ready && (known.is_desired(node) || fate == Fate::Down || leaves) && !known.is_lost(node)
}

/// Whether the roll-out leaves the old pod of a node alone.
fn is_held(known: &Known<'_>, node: &str) -> bool {
    let Some(set) = known.set else {
        return false;
    };
    let update = known.update.as_str();
    let resumed = set["metadata"]["annotations"]["apps.zhongmingmao.io/resume-revision"] == update;
    let stopped = condition(set, "Progressing") == Some(("False", "AutoPaused"))
        && set["status"]["updateRevision"] == update;
    let partition = known.rolling("partition").as_u64().unwrap_or_default();
    let has_newest = |name: &str| known.on(name).any(|pod| pod.revision == update);
    let names = known.nodes.keys().copied();
    let stay = names.filter(|name| *name != node && known.is_desired(name) && !has_newest(name));
    // On the way back it would hold nodes on what failed.
    let is_partitioned = (stay.count() as u64) < partition && known.undone.is_none();
    known.freeze.is_some()
        || is_outside(known)
        || known.rolling("paused") == true
        || ((stopped || has_no_node(known)) && !resumed)
        || set["spec"]["updateStrategy"]["type"] == "OnDelete"
        || is_partitioned
}

/// Whether no window is open. Those of the scenarios open every so many minutes, for one.
fn is_outside(known: &Known<'_>) -> bool {
    let every = minutes_between_windows(known.set);
    let is_closed = |every: u32| !known.now.minute().is_multiple_of(every);
    every.is_some_and(is_closed) && known.undone.is_none()
}

fn minutes_between_windows(set: Option<&Value>) -> Option<u32> {
    let windows = &set?["spec"]["updateStrategy"]["rollingUpdate"]["windows"];
    let schedule = windows[0]["schedule"].as_str()?;
    let every = schedule.strip_prefix("*/")?.split(' ').next()?;
    every.parse().ok()
}

/// Whether no node is eligible for the newest revision, and pods run where their own is.
fn has_no_node(known: &Known<'_>) -> bool {
    let takes = |node: &&str| {
        let fate = known.fate(node, known.update.as_str());
        matches!(fate, Fate::Run | Fate::Down | Fate::Cordoned)
    };
    let loses = |pod: &Pod<'_>| {
        let is_old = pod.is_live() && pod.revision != known.update;
        is_old && known.fate(pod.node, pod.revision) != Fate::Leave
    };
    !known.nodes.keys().any(takes) && known.pods.iter().any(loses)
}

/// No more nodes than there are canaries get the newest revision before a status says that it has passed. One that failed
/// and was undone has to pass again.
fn beyond_canaries(
    seen: &Seen<'_>,
    known: &Known<'_>,
    node: &str,
    request: &Request,
) -> Option<String> {
    let most = known.rolling("canary")["nodes"].as_u64()?;
    let update = known.update.as_str();
    let sets = versions(seen.history, "mydaemonsets");
    let mut is_over = false;
    for version in sets.filter(|v| v.elapsed <= request.elapsed) {
        let status = &version.object()["status"];
        let was = version
            .previous()
            .map(|before| &before["status"]["promotedRevision"]);
        let is_promoted =
            status["promotedRevision"] == update && was.is_none_or(|was| was != update);
        is_over |= is_promoted || status["currentRevision"] == update;
        let is_failed = status["failedRevisions"][0] == update;
        is_over &= !is_failed || version.elapsed == request.elapsed;
    }
    if is_over || known.set?["status"]["currentRevision"].is_null() {
        return None;
    }
    let names = known.nodes.keys().filter(|name| **name != node);
    let have_it = names.filter(|name| known.on(name).any(|pod| pod.revision == update));
    let nodes = have_it.count() as u64 + 1;
    (nodes > most).then(|| format!("{nodes} nodes get {update}, and {most} are canaries"))
}

/// A step in a domain while the newest revision is not available on every node of those before, as far as it can be there:
/// unless it was on all nodes before, or takes the place of one that failed.
fn before_its_turn(
    seen: &Seen<'_>,
    known: &Known<'_>,
    node: &str,
    request: &Request,
) -> Option<String> {
    let (key, order) = (known.rolling("topologyKey"), known.rolling("order"));
    let key = key.as_str()?;
    let update = known.update.as_str();
    let sets = versions(seen.history, "mydaemonsets");
    let mut written = sets.filter(|v| v.elapsed <= request.elapsed);
    let was_completed = written.any(|version| {
        let status = &version.object()["status"];
        let complete = status["completeRevisions"].as_array();
        let is_it = |hash: &Value| *hash == update;
        is_it(&status["currentRevision"]) || complete.into_iter().flatten().any(is_it)
    });
    if was_completed || known.undone.is_some() {
        return None;
    }
    let order: Vec<&Value> = order.as_array().into_iter().flatten().collect();
    let domain = |name: &str| {
        let label = known
            .nodes
            .get(name)
            .map(|node| &node.object["metadata"]["labels"][key]);
        let label = label.filter(|label| label.is_string());
        let place = order.iter().position(|first| Some(*first) == label);
        let place = place.unwrap_or(order.len());
        (label.is_none(), place, label.map(ToString::to_string))
    };
    let is_old = |pod: &Pod<'_>| pod.revision != update && !pod.has_ended();
    let is_unfinished = |name: &str| {
        let has_old = known.on(name).any(is_old);
        let has_unproven = known
            .on(name)
            .any(|pod| pod.revision == update && pod.is_live() && !known.is_available(pod));
        let waits = has_unproven && !is_unserved_for_long(seen.history, name, known);
        let is_reached = known.fate(name, update) == Fate::Run && !known.is_silent(name);
        is_reached && (has_old || waits)
    };
    let own = domain(node);
    let mut earlier = known.nodes.keys().filter(|name| domain(name) < own);
    let first = earlier.find(|name| is_unfinished(name))?;
    Some(format!(
        "{first} comes before {node}, and has not got {update} yet"
    ))
}

/// A revision passes its canary when a user approves it, or when its pods have been Ready for the soak time.
fn judge_promotion(seen: &Seen<'_>, version: &Version) -> Option<String> {
    let (now, before) = (version.object(), version.previous()?);
    let promoted = now["status"]["promotedRevision"].as_str()?;
    let approval = &now["metadata"]["annotations"]["apps.zhongmingmao.io/approve-revision"];
    if before["status"]["promotedRevision"] == promoted || *approval == promoted {
        return None;
    }
    let canary = &now["spec"]["updateStrategy"]["rollingUpdate"]["canary"];
    if canary["promote"] == "Manual" {
        return Some(format!("{promoted} was not approved"));
    }
    // Times are cut to whole seconds.
    let soak = TimeDelta::seconds(canary["soakSeconds"].as_i64().unwrap_or_default() - 1);
    let request = request_of(seen, version)?;
    let known = knew(seen, version, request);
    whatever_it_knew(&known, |known| {
        let of_it = || known.pods.iter().filter(|pod| pod.revision == promoted);
        let has_soaked = |pod: &Pod<'_>| {
            let since = pod.ready_since();
            since.is_some_and(|since| since + soak <= known.now)
        };
        let all = of_it().all(has_soaked) && of_it().next().is_some();
        (!all).then(|| {
            format!(
                "{promoted} was promoted at {:.3?} too early",
                version.elapsed
            )
        })
    })
}

/// When a pod ended, in virtual time.
fn ended(seen: &Seen<'_>, pod: &Pod<'_>) -> Option<Duration> {
    let mut of_it = versions(seen.history, "pods").filter(|v| v.uid == pod.uid);
    let ended = of_it.find(|v| {
        let phase = v.object()["status"]["phase"].as_str();
        matches!(phase, Some("Failed" | "Succeeded"))
    });
    ended.map(|version| version.elapsed)
}

/// A status that an operator wrote.
fn judge_status(seen: &Seen<'_>, version: &Version) -> Option<String> {
    let (now, before) = (version.object(), version.previous()?);
    let (observed, generation) = (
        now["status"]["observedGeneration"].as_i64(),
        now["metadata"]["generation"].as_i64(),
    );
    if observed > generation {
        return Some(format!("{observed:?} was observed of {generation:?}"));
    }
    if observed < before["status"]["observedGeneration"].as_i64() {
        return Some(format!("{observed:?} was observed after a later one"));
    }
    let wrong = judge_stop(seen, version)
        .or_else(|| judge_promotion(seen, version))
        .or_else(|| judge_names(version));
    if wrong.is_some() {
        return wrong;
    }
    let is_complete = |set: &Value| condition(set, "Progressing") == Some(("False", "Complete"));
    let same = before["status"]["updateRevision"] == now["status"]["updateRevision"];
    if !is_complete(now) || (is_complete(before) && same) || observed != generation {
        return None;
    }
    let request = request_of(seen, version)?;
    let known = knew(seen, version, request);
    whatever_it_knew(&known, |known| {
        let update = update(now);
        let message = conditions_message(now, "Progressing");
        let names = || known.nodes.keys().copied();
        let reached = |node: &str| {
            known
                .on(node)
                .any(|pod| pod.revision == update && known.is_available(pod))
        };
        let desired = || names().filter(|node| known.is_desired(node));
        let missing = desired().find(|node| {
            let fate = known.fate(node, &update);
            let may = matches!(fate, Fate::Run | Fate::Down) && !known.is_lost(node);
            let is_left_out =
                message.contains(node) && is_unserved_for_long(seen.history, node, known);
            may && !reached(node) && !is_left_out
        });
        if let Some(node) = missing {
            return Some(format!(
                "Complete at {:.3?}, and {node} has no available pod of {update}",
                version.elapsed
            ));
        }
        let keeps_old = |node: &&str| {
            let is_old = |pod: &Pod<'_>| pod.is_live() && pod.revision != update;
            known.fate(node, &update) == Fate::Keep && known.on(node).any(is_old) && !reached(node)
        };
        if let Some(node) = names().find(|node| keeps_old(node) && !message.contains(*node)) {
            return Some(format!(
                "Complete does not name {node}, which keeps an old pod"
            ));
        }
        let none = desired().next().is_some() && !desired().any(reached);
        none.then(|| {
            format!(
                "Complete at {:.3?}, and no node has an available pod of {update}",
                version.elapsed
            )
        })
    })
}

fn conditions_message<'a>(set: &'a Value, type_: &str) -> &'a str {
    let conditions = set["status"]["conditions"].as_array();
    let mut found = conditions
        .into_iter()
        .flatten()
        .filter(|c| c["type"] == type_);
    let message = found.next().and_then(|c| c["message"].as_str());
    message.unwrap_or_default()
}

/// A stop names nodes, each of which is there, and had an available pod of another revision until it got the one that
/// failed, which nothing else ended.
fn judge_stop(seen: &Seen<'_>, version: &Version) -> Option<String> {
    let (now, before) = (version.object(), version.previous()?);
    let is_stopped = |set: &Value| {
        let stands = condition(set, "Progressing") == Some(("False", "AutoPaused"));
        stands || set["status"]["failedRevisions"].is_array()
    };
    let revision = |set: &Value| set["status"]["updateRevision"].clone();
    if !is_stopped(now) || (is_stopped(before) && revision(now) == revision(before)) {
        return None;
    }
    let failed = now["status"]["failedNodes"].as_array();
    let failed = failed.into_iter().flatten();
    let names: Vec<&str> = failed.filter_map(|node| node["name"].as_str()).collect();
    if names.is_empty() {
        return Some("a stop names no node".to_owned());
    }
    let request = request_of(seen, version)?;
    let known = knew(seen, version, request);
    let is_there = |node: &&str| known.iter().any(|known| known.nodes.contains_key(node));
    let update = revision(now);
    let served_before = |node: &&str| served_until_replaced(seen, node, &update, request.elapsed);
    let disrupted = |node: &&str| {
        known.iter().all(|known| {
            let mut new = known.on(node).filter(|pod| pod.revision == update);
            new.any(|pod| condition(pod.object, "DisruptionTarget").is_some_and(|c| c.0 == "True"))
        })
    };
    let wrong = |node: &&&str| !is_there(node) || !served_before(node) || disrupted(node);
    let wrong = names.iter().find(wrong)?;
    Some(format!(
        "it stopped because of {wrong}, which did not serve another revision just before"
    ))
}

/// Whether the last pod of another revision on a node was Ready when it was deleted, as far as an operator can have known;
/// or whether it had itself just taken the place of such a pod.
fn served_until_replaced(seen: &Seen<'_>, node: &str, update: &Value, now: Duration) -> bool {
    let others = || {
        let pods = versions(seen.history, "pods").filter(|v| v.elapsed <= now);
        pods.filter(|v| v.object()["spec"]["nodeName"] == *node && *update != label(v.object()))
    };
    // A creation of the old revision that was carried out late may come after.
    let pods = versions(seen.history, "pods").filter(|v| v.kind == ChangeKind::Added);
    let new = pods.filter(|v| {
        v.elapsed <= now && v.object()["spec"]["nodeName"] == *node && *update == label(v.object())
    });
    let new = new.last().map_or(u64::MAX, |new| new.version);
    let made = others().filter(|v| v.kind == ChangeKind::Added && v.version < new);
    let Some(last) = made.last() else {
        return false;
    };
    let states: Vec<&Version> = others().filter(|v| v.uid == last.uid).collect();
    let end = states
        .iter()
        .find(|v| is_deletion(v))
        .map_or(now, |v| v.elapsed);
    let known_from = end.saturating_sub(WATCHES_LAG);
    let is_ready =
        |v: &&&Version| condition(v.object(), "Ready").is_some_and(|(is, _)| is == "True");
    let before = states.iter().rfind(|v| v.elapsed <= known_from);
    let since = states
        .iter()
        .filter(|v| v.elapsed > known_from && v.elapsed <= end);
    let served = before.into_iter().chain(since).any(|v| is_ready(&v));
    served || last.object()["metadata"]["annotations"][super::PREDECESSOR] == "available"
}

/// The status at the end says what is so.
fn judge_end(seen: &Seen<'_>) -> Vec<String> {
    let Some(set) = left(seen.history, "mydaemonsets").pop() else {
        return Vec::new();
    };
    let status = &set.object()["status"];
    let last = seen.history.versions.iter().next_back();
    let Some(last) = last else {
        return Vec::new();
    };
    let mut wrong = Vec::new();
    if status["observedGeneration"] != set.object()["metadata"]["generation"] {
        wrong.push(format!(
            "generation {} was not observed, but {}",
            set.object()["metadata"]["generation"],
            status["observedGeneration"]
        ));
        return wrong;
    }
    if condition(set.object(), "Accepted").is_none_or(|(is, _)| is != "True") {
        return wrong;
    }
    let stops = ["AutoPaused", "RollingBack", "RolledBack"];
    let is_stopped = condition(set.object(), "Progressing").is_some_and(|c| stops.contains(&c.1));
    if status["failedNodes"].is_array() != is_stopped {
        wrong.push(format!(
            "failedNodes are {} at the end",
            status["failedNodes"]
        ));
    }
    let in_use = [&status["currentRevision"], &status["updateRevision"]];
    let old = left(seen.history, "controllerrevisions").into_iter();
    let old = old.filter(|old| {
        let object = old.object();
        let hash = &object["metadata"]["labels"]["apps.zhongmingmao.io/revision"];
        let owner = &object["metadata"]["ownerReferences"][0]["uid"];
        !in_use.contains(&hash) && *owner == set.object()["metadata"]["uid"]
    });
    let old = old.count();
    let limit = set.object()["spec"]["revisionHistoryLimit"].as_u64();
    if limit.is_some_and(|limit| old as u64 > limit) {
        wrong.push(format!("{old} old revisions are left, and not {limit:?}"));
    }
    let end = Duration::from_hours(24);
    let known = Known::all(seen.history, last.version, end, last.time + end);
    let spec = update(set.object());
    let nodes: Vec<&str> = known.nodes.keys().copied().collect();
    let desired: Vec<&str> = nodes
        .iter()
        .copied()
        .filter(|node| known.is_desired(node))
        .collect();
    let count = |fits: &dyn Fn(&Pod<'_>) -> bool| {
        let has = |node: &&&str| known.on(node).any(fits);
        desired.iter().filter(has).count()
    };
    let available = count(&|pod| known.is_available(pod));
    let misscheduled = nodes
        .iter()
        .filter(|node| !desired.contains(node) && known.on(node).any(|pod| !pod.deleting));
    for (field, expected) in [
        ("desiredNumberScheduled", desired.len()),
        ("currentNumberScheduled", count(&|pod| !pod.deleting)),
        ("numberMisscheduled", misscheduled.count()),
        ("numberReady", count(&|pod| pod.is_ready())),
        (
            "updatedNumberScheduled",
            // Of the spec's own revision, whatever takes its place.
            count(&|pod| !pod.deleting && pod.revision == spec),
        ),
        ("numberAvailable", available),
        ("availableReplicas", available),
        ("numberUnavailable", desired.len() - available),
    ] {
        if status[field] != expected {
            wrong.push(format!(
                "{field} is {} at the end, and not {expected}",
                status[field]
            ));
        }
    }
    if condition(set.object(), "Progressing") == Some(("False", "Complete")) {
        let message = conditions_message(set.object(), "Progressing");
        let judged = nodes
            .iter()
            .filter_map(|node| judge_named(&known, node, message));
        wrong.extend(judged);
    }
    wrong
}

/// Complete names every node that a pod belongs on, or stays on, where the newest revision is not available or not alone;
/// and no node where it is.
fn judge_named(known: &Known<'_>, node: &str, message: &str) -> Option<String> {
    if known.fate(node, &known.update) == Fate::Leave {
        return None;
    }
    let is_left = is_left(known, node);
    // It names five nodes and counts the others.
    let is_cut = is_left && message.contains("; and ");
    (!is_cut && message.contains(node) != is_left)
        .then(|| format!("{node} is left: {is_left}, and at the end Complete says: {message}"))
}

/// Whether a pod belongs on a node, or stays there.
fn has_a_place(known: &Known<'_>, node: &str) -> bool {
    match known.fate(node, &known.update) {
        Fate::Run | Fate::Down | Fate::Cordoned => true,
        Fate::Keep => known.on(node).any(|pod| !pod.deleting),
        Fate::Leave => false,
    }
}

/// Whether such a node does not have an available pod of the newest revision and no other.
fn is_left(known: &Known<'_>, node: &str) -> bool {
    let update = known.update.as_str();
    let is_available = known
        .on(node)
        .any(|pod| pod.revision == update && known.is_available(pod));
    let is_alone = known
        .on(node)
        .all(|pod| pod.revision == update || pod.has_ended());
    has_a_place(known, node) && !(is_available && is_alone)
}

/// Each node that is left at the end waits for something, and on the way back so does each that is back; and no other does.
fn judge_waiting(seen: &Seen<'_>) -> Option<String> {
    let set = left(seen.history, "mydaemonsets").pop()?.object();
    let last = seen.history.versions.iter().next_back()?;
    let is_present = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    if !is_present || condition(set, "Accepted").is_none_or(|(is, _)| is != "True") {
        return None;
    }
    let end = Duration::from_hours(24);
    let known = Known::all(seen.history, last.version, end, last.time + end);
    let goes_back = known.undone.is_some();
    let waits = |node: &&&str| has_a_place(&known, node) && (goes_back || is_left(&known, node));
    let expected = known.nodes.keys().filter(waits).count() as u64;
    let waiting = set["status"]["waiting"].as_array().into_iter().flatten();
    let counted: u64 = waiting.filter_map(|it| it["nodes"].as_u64()).sum();
    (counted != expected).then(|| format!("{counted} nodes wait at the end, and not {expected}"))
}

/// What two runs of a scenario must have in common at their end. Times, UIDs, the names made of them, and messages differ.
fn outcome(seen: &Seen<'_>) -> String {
    let mut lines = Vec::new();
    let sets = left(seen.history, "mydaemonsets");
    let own = sets.first().map(|set| &set.object()["metadata"]["uid"]);
    let owner = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        match owners.into_iter().flatten().next() {
            None => "orphan",
            Some(owner) if Some(&owner["uid"]) == own => "own",
            Some(_) => "another's",
        }
    };
    for set in &sets {
        let status = &set.object()["status"];
        let number = |field: &str| status[field].to_string();
        lines.push(format!(
            "set: current {} update {}; desired {} updated {} available {}; {}",
            status["currentRevision"],
            status["updateRevision"],
            number("desiredNumberScheduled"),
            number("updatedNumberScheduled"),
            number("numberAvailable"),
            conditions(set.object())
        ));
    }
    // After failures, another node than the first by name may have got the newest revision before a roll-out stood still.
    let is_over = sets
        .iter()
        .all(|set| condition(set.object(), "Progressing").is_none_or(|c| c.1 == "Complete"));
    let mut pods: Vec<String> = Vec::new();
    for pod in left(seen.history, "pods") {
        let object = pod.object();
        let ready = condition(object, "Ready").map_or("", |(is, _)| is);
        let deleting = if object["metadata"]["deletionTimestamp"].is_null() {
            ""
        } else {
            " deleting"
        };
        pods.push(format!(
            "{} {} {} ready {ready}{deleting} {}",
            object["spec"]["nodeName"]
                .as_str()
                .filter(|_| is_over)
                .unwrap_or("some node:"),
            label(object),
            object["status"]["phase"].as_str().unwrap_or_default(),
            owner(object)
        ));
    }
    pods.sort();
    lines.append(&mut pods);
    lines.join("\n")
}

/// The reasons that sets ever showed.
fn marks(seen: &Seen<'_>) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for set in versions(seen.history, "mydaemonsets") {
        let conditions = set.object()["status"]["conditions"].as_array();
        let reasons = conditions.into_iter().flatten();
        let reasons = reasons.filter_map(|condition| condition["reason"].as_str());
        marks.extend(reasons.map(str::to_owned));
    }
    marks
}
