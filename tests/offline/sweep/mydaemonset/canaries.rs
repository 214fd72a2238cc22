//! What must hold of canaries, whatever failed: a revision that did not pass was on no more nodes than there are canaries,
//! and the status names these as long as it is on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulated_apiserver::{ChangeKind, Version};

use super::judge::label;
use crate::sweep::changes::{condition, is_operator, left, versions};
use crate::sweep::subject::Seen;

/// How many canaries a set asks for, as a number.
fn asked_for(set: &Value) -> Option<usize> {
    let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
    let nodes = rolling["canary"]["nodes"].as_u64()?;
    usize::try_from(nodes).ok()
}

/// A revision that was neither completed nor promoted was made by operators on no more nodes than there are canaries.
pub fn judge_reach(seen: &Seen<'_>) -> Option<String> {
    let set = left(seen.history, "mydaemonsets").pop()?;
    let most = asked_for(set.object())?;
    let mut good: BTreeSet<&str> = BTreeSet::new();
    for version in versions(seen.history, "mydaemonsets").filter(|v| v.uid == set.uid) {
        let status = &version.object()["status"];
        let passed = ["currentRevision", "promotedRevision"].map(|field| status[field].as_str());
        good.extend(passed.into_iter().flatten());
    }
    let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let made = versions(seen.history, "pods").filter(|v| v.kind == ChangeKind::Added);
    for pod in made.filter(|v| is_operator(&v.by)).map(Version::object) {
        let is_its = pod["metadata"]["ownerReferences"][0]["uid"] == set.uid;
        if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| is_its) {
            nodes.entry(label(pod)).or_default().insert(node);
        }
    }
    let mut bad = nodes.iter().filter(|(hash, _)| !good.contains(*hash));
    let (hash, nodes) = bad.find(|(_, nodes)| nodes.len() > most)?;
    Some(format!(
        "{hash} did not pass its canary, and was on {nodes:?}, not on {most}"
    ))
}

/// A status names canaries while the revision is on them, and no others.
pub fn judge_names(version: &Version) -> Option<String> {
    let set = version.object();
    let reason = condition(set, "Progressing").map_or("", |(_, reason)| reason);
    let is_on = ["Canary", "WaitingForApproval"].contains(&reason);
    let names = set["status"]["canaryNodes"].as_array().map_or(0, Vec::len);
    // That none can be one is said in a message.
    let conditions = set["status"]["conditions"].to_string();
    let least = usize::from(is_on && !conditions.contains("no node can be a canary"));
    let is_present = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    let asked_for = asked_for(set).filter(|_| is_present);
    let most = if is_on { asked_for.unwrap_or(20) } else { 0 };
    let what = format!(
        "{names} canaries are named under {reason:?} at {:.3?}",
        version.elapsed
    );
    (!(least..=most).contains(&names)).then_some(what)
}
