//! Types and reasons of conditions, and reasons of Events, are on the page of what has them.

use std::collections::BTreeSet;

use crate::checkout::text;

/// What has them -> the files that name them, and the pages.
const OWNERS: [(&[&str], &[&str]); 9] = [
    (
        &[
            "kinds/at/src/conditions.rs",
            "kinds/at/src/status.rs",
            "kinds/at/src/decide/done.rs",
            "kinds/at/src/decide/failed_call.rs",
            "kinds/at/src/decide/pending.rs",
        ],
        &[
            "docs/at/README.md",
            "docs/at/exactly-once.md",
            "docs/reference/at.md",
        ],
    ),
    (
        &[
            "kinds/mydaemonset/src/status.rs",
            "kinds/mydaemonset/src/controller/reconcile.rs",
            "kinds/mydaemonset/src/decide/node/judge.rs",
        ],
        &[
            "docs/mydaemonset/rollout.md",
            "docs/reference/mydaemonset.md",
        ],
    ),
    (
        &[
            "kinds/samples/src/memcached/decide.rs",
            "kinds/samples/src/memcached/status.rs",
            "kinds/samples/src/owned_child/deployment.rs",
            "kinds/samples/src/owned_child/status.rs",
        ],
        &["docs/memcached/README.md"],
    ),
    (
        &[
            "kinds/samples/src/crontab/decide.rs",
            "kinds/samples/src/crontab/status.rs",
        ],
        &["docs/crontab/README.md"],
    ),
    (
        &[
            "kinds/samples/src/foo/decide.rs",
            "kinds/samples/src/foo/status.rs",
        ],
        &["docs/foo/README.md"],
    ),
    (
        &[
            "kinds/samples/src/foobar/decide.rs",
            "kinds/samples/src/foobar/status.rs",
        ],
        &["docs/foobar/README.md"],
    ),
    (
        &[
            "kinds/samples/src/count/decide.rs",
            "kinds/samples/src/count/status.rs",
        ],
        &["docs/count/README.md"],
    ),
    (
        &["src/run/leadership.rs"],
        &["docs/operations/high-availability.md"],
    ),
    (
        &["crates/certs/src/cert_manager/mod.rs"],
        &["docs/operations/certificates.md"],
    ),
];

/// Other words of these files: the actions of Events, which no user looks for, a status, a reason of Kubernetes, and values
/// of Pods.
const OTHERS: [&str; 27] = [
    "Apply",
    "CreatePods",
    "Delete",
    "DeleteAt",
    "DeletePod",
    "DeletePods",
    "DeploymentPaused",
    "Finish",
    "Lead",
    "OnFailure",
    "PlacePods",
    "RecordPod",
    "ReleasePod",
    "RenewCertificate",
    "ReplaceAuthority",
    "RollOut",
    "RunCommand",
    "RunPods",
    "RuntimeDefault",
    "Schedule",
    "StartPod",
    "Sync",
    "True",
    "TryPod",
    "UseAuthority",
    "Validate",
    "WaitForPod",
];

/// Whether it is written as reasons are: `PodLost`.
fn is_reason(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.ends_with(|last: char| last.is_ascii_lowercase())
        && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The literals of a file, but for its tests, that are written as reasons.
fn reasons(source: &str) -> BTreeSet<&str> {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
    let literals = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    literals.filter(|word| is_reason(word)).collect()
}

#[test]
fn every_reason_of_a_condition_or_an_event_is_documented() {
    let (mut named, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for (sources, pages) in OWNERS {
        let pages: String = pages.iter().map(|page| text(page)).collect();
        let words = pages.split(|c: char| !c.is_ascii_alphanumeric());
        let words: BTreeSet<&str> = words.collect();
        for path in sources {
            let source = text(path);
            for reason in reasons(&source) {
                named.insert(reason.to_owned());
                if !words.contains(reason) && !OTHERS.contains(&reason) {
                    missing.insert(format!("{path}: {reason}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "not documented: {missing:#?}");
    assert!(named.len() > 100, "{named:?}");
    let stale = OTHERS.into_iter().find(|word| !named.contains(*word));
    assert_eq!(stale, None, "in no file");
}

#[test]
fn reasons_are_found_in_code_alone() {
    let source = "// \"InComment\"\nconst A: &str = \"PodLost\";\npublish(\"Started\", \"a b\", \"PENDING\");\n\
                  #[cfg(test)]\nmod tests {\n\"InTests\"\n}\n";
    assert_eq!(reasons(source), BTreeSet::from(["PodLost", "Started"]));
}
