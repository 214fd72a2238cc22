//! The decision: what to do next with a child, as a pure function of what is observed.
//!
//! A pass asks again after each call, with the outcome of the call: a live read, a write that
//! succeeded, or one that failed.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::parent::DriftPolicy;
use super::view::{Belongs, ChildView};

/// What is known of the child with the name in the spec.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// The cache has none. It may lag, and it never holds foreign objects.
    Unknown,
    /// By a live read there is none.
    Absent,
    /// The child, from the cache or from a live read.
    There {
        child: &'a ChildView,
        /// Whether it comes from a live read.
        live: bool,
    },
}

/// Input of the decision.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    /// The object's UID.
    pub(crate) uid: &'a str,
    /// The object's name.
    pub(crate) name: &'a str,
    /// Hash of the desired child.
    pub(crate) wanted: u64,
    /// Whether to create an absent child.
    pub(crate) create: bool,
    /// What to do with an existing child.
    pub(crate) policy: &'a DriftPolicy,
    /// The child of that name.
    pub(crate) found: Found<'a>,
    /// The last write of this pass failed, and nothing that was done since made up for it.
    pub(crate) failed: Option<&'a FailedWrite>,
    /// What was applied last: the hash of the body, and the print of the child that resulted.
    pub(crate) applied: Option<(u64, u64)>,
    /// The object controlled a child of that name when it was last observed.
    pub(crate) known: bool,
    /// Before this time nothing is written, and no live read looks for foreign children.
    pub(crate) not_before: Option<DateTime<Utc>>,
}

/// A failed write of the child, as far as the next step depends on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedWrite {
    /// The API server rejected a list with an entry of another client. This patch replaces the
    /// list. `None` once it was tried.
    pub(crate) list_patch: Option<Value>,
    /// The child was absent, and another client may have created one since the read. False once
    /// it was read again.
    pub(crate) name_may_be_taken: bool,
    /// The API server's message, if a user has to fix the cause. Without one it is left to the
    /// backoff of the queue.
    pub(crate) refusal: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing more can be done.
    UpToDate,
    /// Wait until then.
    WaitUntil(DateTime<Utc>),
    /// Read the child live.
    GetLive,
    /// Create the child.
    Create,
    /// Bring the child to the desired state, as its [`DriftPolicy`] says.
    Apply,
    /// The same for an orphan.
    Adopt,
    /// Replace the list that made the API server reject the write.
    ReplaceList(Value),
    /// The API server rejects the write, with this message: wait with backoff.
    Refused(String),
    /// End the pass with the error of the write.
    Fail,
    /// The child is foreign.
    Conflict {
        /// Whether the watch has it, and so delivers its deletion.
        watched: bool,
    },
    /// The child is being deleted, or the garbage collector is about to delete it because its object is gone.
    AwaitEnd {
        /// Whether the watch has it, and so delivers its deletion.
        watched: bool,
    },
}

/// Decides what to do next with the child of the desired name.
pub(crate) fn decide(observed: &Observed<'_>) -> Decision {
    if let Some(failed) = observed.failed {
        return after_failure(failed);
    }
    match observed.found {
        // The watch does not show a child of ours whose labels were removed. It is read even during
        // a backoff, since otherwise the status would say that there is none.
        Found::Unknown if observed.known => Decision::GetLive,
        Found::Unknown => unless_waiting(observed, Decision::GetLive),
        Found::Absent if observed.create => unless_waiting(observed, Decision::Create),
        Found::Absent => Decision::UpToDate,
        Found::There { child, live } => with_child(observed, child, !live),
    }
}

/// What a failed write leads to: first what may make up for it, then the backoff.
fn after_failure(failed: &FailedWrite) -> Decision {
    if let Some(patch) = &failed.list_patch {
        Decision::ReplaceList(patch.clone())
    } else if failed.name_may_be_taken {
        Decision::GetLive
    } else {
        let refusal = failed.refusal.clone();
        refusal.map_or(Decision::Fail, Decision::Refused)
    }
}

/// `watched` says whether the child comes from the watch, which then delivers its deletion.
fn with_child(observed: &Observed<'_>, child: &ChildView, watched: bool) -> Decision {
    let leave = *observed.policy == DriftPolicy::Leave;
    match &child.belongs {
        Belongs::To { uid, .. } if uid == observed.uid => {
            if child.deleting {
                Decision::AwaitEnd { watched }
            } else if is_as_desired(observed, child) {
                Decision::UpToDate
            } else {
                unless_waiting(observed, Decision::Apply)
            }
        }
        Belongs::Orphan { name } if name == observed.name && !leave => {
            if child.deleting {
                Decision::AwaitEnd { watched }
            } else {
                unless_waiting(observed, Decision::Adopt)
            }
        }
        // No child is wanted.
        _ if !observed.create => Decision::UpToDate,
        // Controlled by an earlier object of this name.
        Belongs::To { name, .. } if name == observed.name => Decision::AwaitEnd { watched },
        // Controlled by another object, or by something else.
        Belongs::To { .. } | Belongs::Orphan { .. } | Belongs::Foreign => {
            Decision::Conflict { watched }
        }
    }
}

/// Whether there is nothing to write to a child of ours. Without an apply of this process that is
/// not known: the API server alone knows the defaults, so the apply compares.
fn is_as_desired(observed: &Observed<'_>, child: &ChildView) -> bool {
    match observed.policy {
        DriftPolicy::Equal => observed.applied == Some((observed.wanted, child.print)),
        DriftPolicy::Leave => true,
        DriftPolicy::Patch(_) => false,
    }
}

fn unless_waiting(observed: &Observed<'_>, decision: Decision) -> Decision {
    observed.not_before.map_or(decision, Decision::WaitUntil)
}

/// What to do with children of earlier names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleanup {
    /// There are none.
    Nothing,
    /// The API server rejected their deletion: wait until then.
    WaitUntil(DateTime<Utc>),
    Delete,
}

/// Decides what to do with that many children of earlier names.
pub(crate) fn decide_cleanup(others: usize, not_before: Option<DateTime<Utc>>) -> Cleanup {
    match (others, not_before) {
        (0, _) => Cleanup::Nothing,
        (_, Some(until)) => Cleanup::WaitUntil(until),
        (_, None) => Cleanup::Delete,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use chrono::TimeDelta;

    use super::*;

    const UID: &str = "owner-uid";

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    /// A child Deployment of the ConfigMap `o`, which serves as the owner.
    fn child(change: impl FnOnce(&mut Value)) -> ChildView {
        let mut object = json!({
            "metadata": {
                "name": "c", "uid": "child-uid", "resourceVersion": "1",
                "labels": {"app.kubernetes.io/managed-by": "my-operator"},
                "annotations": {"/owner": "o", "deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": UID,
                    "controller": true}],
            },
            "spec": {"replicas": 1},
        });
        change(&mut object);
        let object = serde_json::from_str(&object.to_string()).unwrap();
        ChildView::new::<ConfigMap, Deployment>(object)
    }

    fn of<'a>(found: Found<'a>, change: impl FnOnce(&mut Observed<'a>)) -> Decision {
        let mut observed = Observed {
            uid: UID,
            name: "o",
            wanted: 7,
            create: true,
            policy: &DriftPolicy::Equal,
            found,
            failed: None,
            applied: None,
            known: false,
            not_before: None,
        };
        change(&mut observed);
        decide(&observed)
    }

    fn there(child: &ChildView) -> Decision {
        of(Found::There { child, live: false }, |_| {})
    }

    #[test]
    fn a_child_is_read_live_before_it_is_created() {
        assert_eq!(of(Found::Unknown, |_| {}), Decision::GetLive);
        assert_eq!(of(Found::Absent, |_| {}), Decision::Create);
        assert_eq!(of(Found::Absent, |s| s.create = false), Decision::UpToDate);
    }

    #[test]
    fn a_known_child_is_read_live_even_during_backoff() {
        let held = |known| {
            of(Found::Unknown, |s| {
                s.not_before = Some(now() + TimeDelta::seconds(5));
                s.known = known;
            })
        };
        assert_eq!(held(true), Decision::GetLive);
        assert!(matches!(held(false), Decision::WaitUntil(_)));
    }

    #[test]
    fn a_child_as_it_was_applied_is_not_written() {
        let own = child(|_| {});
        let found = Found::There {
            child: &own,
            live: false,
        };
        assert_eq!(there(&own), Decision::Apply);
        let print = own.print;
        assert_eq!(
            of(found, |s| s.applied = Some((7, print))),
            Decision::UpToDate
        );
        assert_eq!(of(found, |s| s.applied = Some((6, print))), Decision::Apply);
        assert_eq!(
            of(found, |s| s.policy = &DriftPolicy::Leave),
            Decision::UpToDate
        );
    }

    #[test]
    fn the_print_covers_every_field_of_ours() {
        let own = child(|_| {}).print;
        let same = child(|c| c["status"] = json!({"replicas": 5}));
        assert_eq!(own, same.print);
        let revised = |c: &mut Value| {
            c["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2".into();
        };
        assert_eq!(own, child(revised).print);
        for (pointer, value) in [
            ("/spec/replicas", json!(2)),
            ("/metadata/labels", json!({})),
            ("/metadata/annotations/~1owner", json!("p")),
            ("/metadata/ownerReferences", json!([])),
            ("/metadata/ownerReferences/0/uid", json!("x")),
            ("/metadata/ownerReferences/0/controller", json!(false)),
        ] {
            let changed = child(|c| *c.pointer_mut(pointer).unwrap() = value);
            assert_ne!(own, changed.print, "{pointer}");
        }
    }

    #[test]
    fn a_foreign_child_is_never_touched() {
        for (pointer, value) in [
            ("/metadata/ownerReferences/0/kind", "Secret"),
            ("/metadata/ownerReferences/0/apiVersion", "x/v1"),
        ] {
            let foreign = child(|c| *c.pointer_mut(pointer).unwrap() = value.into());
            assert_eq!(there(&foreign), Decision::Conflict { watched: true });
        }
        let earlier = child(|c| c["metadata"]["ownerReferences"][0]["uid"] = "x".into());
        assert_eq!(there(&earlier), Decision::AwaitEnd { watched: true });
        let other = child(|c| c["metadata"]["ownerReferences"][0]["name"] = "p".into());
        let found = Found::There {
            child: &other,
            live: false,
        };
        let as_of = |uid: &'static str| of(found, |s| s.uid = uid);
        assert_eq!(as_of("x"), Decision::Conflict { watched: true });
        // Without a controller, and not created by us.
        let bare = child(|c| {
            c["metadata"]["ownerReferences"] = json!([]);
            c["metadata"]["annotations"] = json!({});
        });
        assert_eq!(there(&bare), Decision::Conflict { watched: true });
    }

    #[test]
    fn an_orphan_of_ours_is_adopted() {
        let orphan = |name: &str| {
            child(|c| {
                c["metadata"]["ownerReferences"] = json!([]);
                c["metadata"]["annotations"]["/owner"] = name.into();
            })
        };
        assert_eq!(there(&orphan("o")), Decision::Adopt);
        assert_eq!(there(&orphan("p")), Decision::Conflict { watched: true });
    }

    #[test]
    fn a_drift_policy_other_than_equal_patches_or_leaves_the_child() {
        let patch = DriftPolicy::Patch(json!({}));
        let orphan = child(|c| c["metadata"]["ownerReferences"] = json!([]));
        for (child, policy, decision) in [
            (&child(|_| {}), &patch, Decision::Apply),
            (&child(|_| {}), &DriftPolicy::Leave, Decision::UpToDate),
            (&orphan, &patch, Decision::Adopt),
            (
                &orphan,
                &DriftPolicy::Leave,
                Decision::Conflict { watched: true },
            ),
        ] {
            let found = Found::There { child, live: false };
            assert_eq!(of(found, |s| s.policy = policy), decision, "{policy:?}");
        }
    }

    #[test]
    fn a_foreign_object_of_an_unused_name_is_ignored() {
        let foreign = child(|c| c["metadata"]["ownerReferences"][0]["kind"] = "Secret".into());
        let found = Found::There {
            child: &foreign,
            live: true,
        };
        assert_eq!(of(found, |s| s.create = false), Decision::UpToDate);
    }

    #[test]
    fn a_child_being_deleted_is_waited_for() {
        let leaving = child(|c| c["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        assert_eq!(there(&leaving), Decision::AwaitEnd { watched: true });
    }

    #[test]
    fn backoff_stops_writes() {
        let soon = now() + TimeDelta::seconds(5);
        let own = child(|_| {});
        for found in [
            Found::Unknown,
            Found::Absent,
            Found::There {
                child: &own,
                live: true,
            },
        ] {
            assert_eq!(
                of(found, |s| s.not_before = Some(soon)),
                Decision::WaitUntil(soon)
            );
        }
    }

    #[test]
    fn after_a_failed_write_the_cause_is_removed_then_looked_up_then_reported() {
        let mut failed = FailedWrite {
            list_patch: Some(json!({"spec": 1})),
            name_may_be_taken: true,
            refusal: Some("no".to_owned()),
        };
        let after = |failed: &FailedWrite| {
            let found = Found::Absent;
            of(found, |s| s.failed = Some(failed))
        };
        assert_eq!(after(&failed), Decision::ReplaceList(json!({"spec": 1})));
        failed.list_patch = None;
        assert_eq!(after(&failed), Decision::GetLive);
        failed.name_may_be_taken = false;
        assert_eq!(after(&failed), Decision::Refused("no".to_owned()));
        failed.refusal = None;
        assert_eq!(after(&failed), Decision::Fail);
    }

    #[test]
    fn earlier_children_are_deleted_unless_that_was_rejected_just_now() {
        let soon = now() + TimeDelta::seconds(5);
        assert_eq!(decide_cleanup(0, Some(soon)), Cleanup::Nothing);
        assert_eq!(decide_cleanup(2, Some(soon)), Cleanup::WaitUntil(soon));
        assert_eq!(decide_cleanup(2, None), Cleanup::Delete);
    }
}
