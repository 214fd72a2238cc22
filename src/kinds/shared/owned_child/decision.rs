//! What to do with a child, as a pure function of what is observed.

use chrono::{DateTime, Utc};

use super::DriftPolicy;
use super::view::{Belongs, ChildView};

/// Why a child is not in the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// CamelCase reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

/// What is known of the child with the name in the spec.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The cache has none. It may lag, and it never holds foreign objects.
    Unknown,
    /// By a live read there is none.
    Absent,
    /// The child, from the cache or from a live read.
    There {
        /// The child.
        child: &'a ChildView,
        /// Whether it comes from a live read.
        live: bool,
    },
}

/// Input of the decision.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The object's UID.
    pub uid: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// Hash of the desired child.
    pub wanted: u64,
    /// Whether to create an absent child.
    pub create: bool,
    /// What to do with an existing child.
    pub policy: &'a DriftPolicy,
    /// The child of that name.
    pub found: Found<'a>,
    /// What was applied last: the hash of the body, and the print of the child that resulted.
    pub applied: Option<(u64, u64)>,
    /// The object controlled a child of that name when it was last observed.
    pub known: bool,
    /// Before this time nothing is written, and no live read looks for foreign children.
    pub not_before: Option<DateTime<Utc>>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing more can be done.
    UpToDate,
    /// Wait until then.
    WaitUntil(DateTime<Utc>),
    /// Read the child live.
    GetLive,
    /// Create the child.
    Create,
    /// Apply the desired state to the child.
    Apply,
    /// The same for an orphan.
    Adopt,
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

/// The decision.
pub fn decide(observed: &Observed<'_>) -> Decision {
    let unless_waiting =
        |decision: Decision| observed.not_before.map_or(decision, Decision::WaitUntil);
    match observed.found {
        // The watch does not show a child of ours whose labels were removed.
        Found::Unknown if observed.known => Decision::GetLive,
        Found::Unknown => unless_waiting(Decision::GetLive),
        Found::Absent if observed.create => unless_waiting(Decision::Create),
        Found::Absent => Decision::UpToDate,
        Found::There { child, live } => match &child.belongs {
            Belongs::To { uid, .. } if uid == observed.uid => {
                if child.deleting {
                    Decision::AwaitEnd { watched: !live }
                } else {
                    let rests = match observed.policy {
                        DriftPolicy::Equal => {
                            observed.applied == Some((observed.wanted, child.print))
                        }
                        DriftPolicy::Leave => true,
                        DriftPolicy::Patch(_) => false,
                    };
                    if rests {
                        Decision::UpToDate
                    } else {
                        unless_waiting(Decision::Apply)
                    }
                }
            }
            Belongs::Orphan { name }
                if name == observed.name && *observed.policy != DriftPolicy::Leave =>
            {
                if child.deleting {
                    Decision::AwaitEnd { watched: !live }
                } else {
                    unless_waiting(Decision::Adopt)
                }
            }
            // No child is wanted.
            _ if !observed.create => Decision::UpToDate,
            // Controlled by an earlier object of this name.
            Belongs::To { name, .. } if name == observed.name => {
                Decision::AwaitEnd { watched: !live }
            }
            // Controlled by another object, or by something else.
            Belongs::To { .. } | Belongs::Orphan { .. } | Belongs::Foreign => {
                Decision::Conflict { watched: !live }
            }
        },
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
        ChildView::of::<ConfigMap, Deployment>(object)
    }

    fn of<'a>(found: Found<'a>, change: impl FnOnce(&mut Observed<'a>)) -> Decision {
        let mut observed = Observed {
            uid: UID,
            name: "o",
            wanted: 7,
            create: true,
            policy: &DriftPolicy::Equal,
            found,
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
}
