//! What is to be done with a child, as a pure function of what is seen.

use chrono::{DateTime, Utc};

use super::DriftPolicy;
use super::view::{Belongs, ChildView};

/// Why a child is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word in upper camel case.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// What is known of the child of the name that the spec says.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The watch has none, which it may just not have heard of, and which it does not have of strangers.
    Unknown,
    /// The API server has none.
    Absent,
    /// This one; from the API server itself or not.
    There {
        /// The child.
        child: &'a ChildView,
        /// Whether the API server was asked just now.
        live: bool,
    },
}

/// What the decision hangs on.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The UID of the object.
    pub uid: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// A hash of the child as the object asks for it.
    pub wanted: u64,
    /// Whether a child that is not there is made.
    pub create: bool,
    /// What is done with a child that is there.
    pub upkeep: &'a DriftPolicy,
    /// The child of that name.
    pub found: Found<'a>,
    /// What was applied last: the hash of what was asked for and the print of what it became.
    pub applied: Option<(u64, u64)>,
    /// A child of that name was the object's own when it was seen last.
    pub known: bool,
    /// Nothing is written before, and strangers are not looked for.
    pub hold: Option<DateTime<Utc>>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// All is done that can be.
    Rest,
    /// Wait for the hold to end.
    Hold(DateTime<Utc>),
    /// Ask the API server for the child.
    Reconcile,
    /// Make the child.
    Create,
    /// Write what the object asks for into the child.
    Apply,
    /// The same, of one that nobody controls.
    Adopt,
    /// The child is not ours.
    Conflict {
        /// Whether the watch has it, and so tells of its end.
        watched: bool,
    },
    /// The child is on its way out, or its object is gone and it will be.
    AwaitEnd {
        /// Whether the watch has it, and so tells of its end.
        watched: bool,
    },
}

/// The decision.
pub fn decide(sight: &Observed<'_>) -> Act {
    let unless_held = |act: Act| sight.hold.map_or(act, Act::Hold);
    match sight.found {
        // One of ours whose labels somebody took is none to the watch, and stands.
        Found::Unknown if sight.known => Act::Reconcile,
        Found::Unknown => unless_held(Act::Reconcile),
        Found::Absent if sight.create => unless_held(Act::Create),
        Found::Absent => Act::Rest,
        Found::There { child, live } => match &child.belongs {
            Belongs::To { uid, .. } if uid == sight.uid => {
                if child.deleting {
                    Act::AwaitEnd { watched: !live }
                } else {
                    let rests = match sight.upkeep {
                        DriftPolicy::Equal => sight.applied == Some((sight.wanted, child.print)),
                        DriftPolicy::Leave => true,
                        DriftPolicy::Patch(_) => false,
                    };
                    if rests {
                        Act::Rest
                    } else {
                        unless_held(Act::Apply)
                    }
                }
            }
            Belongs::Orphan { name }
                if name == sight.name && *sight.upkeep != DriftPolicy::Leave =>
            {
                if child.deleting {
                    Act::AwaitEnd { watched: !live }
                } else {
                    unless_held(Act::Adopt)
                }
            }
            // The name is not wanted.
            _ if !sight.create => Act::Rest,
            // Of an earlier object of this name.
            Belongs::To { name, .. } if name == sight.name => Act::AwaitEnd { watched: !live },
            // Of another object, or of something else.
            Belongs::To { .. } | Belongs::Orphan { .. } | Belongs::Stranger => {
                Act::Conflict { watched: !live }
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

    /// A Deployment of the ConfigMap `o`, for the lack of a simpler kind.
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

    fn of<'a>(found: Found<'a>, change: impl FnOnce(&mut Observed<'a>)) -> Act {
        let mut sight = Observed {
            uid: UID,
            name: "o",
            wanted: 7,
            create: true,
            upkeep: &DriftPolicy::Equal,
            found,
            applied: None,
            known: false,
            hold: None,
        };
        change(&mut sight);
        decide(&sight)
    }

    fn there(child: &ChildView) -> Act {
        of(Found::There { child, live: false }, |_| {})
    }

    #[test]
    fn a_child_is_looked_for_before_it_is_made() {
        assert_eq!(of(Found::Unknown, |_| {}), Act::Reconcile);
        assert_eq!(of(Found::Absent, |_| {}), Act::Create);
        assert_eq!(of(Found::Absent, |s| s.create = false), Act::Rest);
    }

    #[test]
    fn one_of_ours_is_looked_for_whatever_holds_the_next_write() {
        let held = |known| {
            of(Found::Unknown, |s| {
                s.hold = Some(now() + TimeDelta::seconds(5));
                s.known = known;
            })
        };
        assert_eq!(held(true), Act::Reconcile);
        assert!(matches!(held(false), Act::Hold(_)));
    }

    #[test]
    fn a_child_rests_when_it_is_as_it_was_applied() {
        let own = child(|_| {});
        let found = Found::There {
            child: &own,
            live: false,
        };
        assert_eq!(there(&own), Act::Apply);
        let print = own.print;
        assert_eq!(of(found, |s| s.applied = Some((7, print))), Act::Rest);
        assert_eq!(of(found, |s| s.applied = Some((6, print))), Act::Apply);
        assert_eq!(of(found, |s| s.upkeep = &DriftPolicy::Leave), Act::Rest);
    }

    #[test]
    fn what_somebody_could_change_of_ours_shows_in_the_print() {
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
    fn a_child_of_somebody_else_is_never_touched() {
        for (pointer, value) in [
            ("/metadata/ownerReferences/0/kind", "Secret"),
            ("/metadata/ownerReferences/0/apiVersion", "x/v1"),
        ] {
            let strange = child(|c| *c.pointer_mut(pointer).unwrap() = value.into());
            assert_eq!(there(&strange), Act::Conflict { watched: true });
        }
        let earlier = child(|c| c["metadata"]["ownerReferences"][0]["uid"] = "x".into());
        assert_eq!(there(&earlier), Act::AwaitEnd { watched: true });
        let other = child(|c| c["metadata"]["ownerReferences"][0]["name"] = "p".into());
        let found = Found::There {
            child: &other,
            live: false,
        };
        let as_of = |uid: &'static str| of(found, |s| s.uid = uid);
        assert_eq!(as_of("x"), Act::Conflict { watched: true });
        // Nobody's, and not of our making.
        let bare = child(|c| {
            c["metadata"]["ownerReferences"] = json!([]);
            c["metadata"]["annotations"] = json!({});
        });
        assert_eq!(there(&bare), Act::Conflict { watched: true });
    }

    #[test]
    fn an_orphan_of_ours_is_taken_back() {
        let orphan = |name: &str| {
            child(|c| {
                c["metadata"]["ownerReferences"] = json!([]);
                c["metadata"]["annotations"]["/owner"] = name.into();
            })
        };
        assert_eq!(there(&orphan("o")), Act::Adopt);
        assert_eq!(there(&orphan("p")), Act::Conflict { watched: true });
    }

    #[test]
    fn a_child_that_is_not_kept_equal_gets_its_patch_or_nothing() {
        let patch = DriftPolicy::Patch(json!({}));
        let orphan = child(|c| c["metadata"]["ownerReferences"] = json!([]));
        for (child, upkeep, act) in [
            (&child(|_| {}), &patch, Act::Apply),
            (&child(|_| {}), &DriftPolicy::Leave, Act::Rest),
            (&orphan, &patch, Act::Adopt),
            (
                &orphan,
                &DriftPolicy::Leave,
                Act::Conflict { watched: true },
            ),
        ] {
            let found = Found::There { child, live: false };
            assert_eq!(of(found, |s| s.upkeep = upkeep), act, "{upkeep:?}");
        }
    }

    #[test]
    fn who_has_a_name_that_is_not_wanted_is_no_matter() {
        let strange = child(|c| c["metadata"]["ownerReferences"][0]["kind"] = "Secret".into());
        let found = Found::There {
            child: &strange,
            live: true,
        };
        assert_eq!(of(found, |s| s.create = false), Act::Rest);
    }

    #[test]
    fn a_child_on_its_way_out_is_waited_for() {
        let leaving = child(|c| c["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        assert_eq!(there(&leaving), Act::AwaitEnd { watched: true });
    }

    #[test]
    fn a_hold_stops_writes() {
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
            assert_eq!(of(found, |s| s.hold = Some(soon)), Act::Hold(soon));
        }
    }
}
