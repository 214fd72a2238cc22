//! The garbage collector and the namespace controller: they delete the dependents of deleted objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::resource::Behavior;
use crate::server::Server;
use crate::state::State;
use crate::store::{Change, ChangeKind, Key, Store, Stored};
use crate::write::{
    DeleteOptions, FOREGROUND, ORPHAN, Preconditions, finalizers, put_or_remove, text,
};

const USER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// What the controllers do to one object.
#[derive(Clone, Debug, PartialEq)]
enum Act {
    Delete {
        foreground: bool,
    },
    /// Keeps these owner references only.
    KeepOwners(Vec<Value>),
    DropFinalizer(&'static str),
    /// Removes a namespace that is empty.
    Purge,
}

/// Runs the controllers, which act with that delay after a change.
pub(crate) async fn run(server: Server, after: Duration) {
    let mut seen = 0;
    loop {
        let length = server.changed(seen).await;
        let concerned = {
            let state = server.state();
            let changes = state.store.log.get(seen..length).unwrap_or_default();
            changes.iter().any(|change| concerns(&state, change))
        };
        seen = length;
        if !concerned {
            continue;
        }
        tokio::time::sleep(after).await;
        loop {
            let acts = plan(&server.state());
            if acts.is_empty() {
                break;
            }
            for (key, uid, act) in acts {
                perform(&server, &key, uid, act);
            }
        }
    }
}

/// Whether a change may require an action.
fn concerns(state: &State, change: &Change) -> bool {
    let object = &change.object.value;
    match change.kind {
        ChangeKind::Deleted => true,
        // The owner may have been deleted while its dependent was being created.
        ChangeKind::Added => !owners(object).is_empty(),
        ChangeKind::Modified => {
            let before = change.previous.as_ref();
            // A changed owner reference, whose owner may be gone.
            let is_given = before.is_some_and(|before| owners(&before.value) != owners(object))
                && !owners(object).is_empty();
            let namespace = state.resources[change.key.resource].behavior == Behavior::Namespace;
            let awaited = |f: &String| f == FOREGROUND || f == ORPHAN;
            is_given || is_deleted(object) && (namespace || finalizers(object).iter().any(awaited))
        }
    }
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn owners(object: &Value) -> &[Value] {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.map(Vec::as_slice).unwrap_or_default()
}

/// The actions that are due now, by object.
fn plan(state: &State) -> Vec<(Key, String, Act)> {
    let store = &state.store;
    let by_uid: BTreeMap<&str, &Arc<Stored>> = store
        .all()
        .map(|(_, stored)| (stored.uid(), stored))
        .collect();
    let mut dependents: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (_, stored) in store.all() {
        for owner in owners(&stored.value) {
            dependents
                .entry(text(owner, "uid"))
                .or_default()
                .push(owner);
        }
    }
    let waits = |uid: &str, finalizer: &str| {
        by_uid.get(uid).is_some_and(|owner| {
            is_deleted(&owner.value) && finalizers(&owner.value).iter().any(|f| f == finalizer)
        })
    };
    let is_namespace = |key: &Key| state.resources[key.resource].behavior == Behavior::Namespace;
    let terminating: BTreeSet<&str> = store
        .all()
        .filter(|(key, stored)| is_namespace(key) && is_deleted(&stored.value))
        .map(|(key, _)| &*key.name)
        .collect();
    let mut acts = Vec::new();
    for (key, stored) in store.all() {
        let object = &stored.value;
        let mine = dependents
            .get(stored.uid())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let act = if is_namespace(key) {
            (is_deleted(object) && is_empty(store, &key.name)).then_some(Act::Purge)
        } else if waits(stored.uid(), ORPHAN) && mine.is_empty() {
            Some(Act::DropFinalizer(ORPHAN))
        } else if waits(stored.uid(), FOREGROUND)
            && !mine.iter().any(|owner| owner["blockOwnerDeletion"] == true)
        {
            Some(Act::DropFinalizer(FOREGROUND))
        } else {
            dependent(object, &by_uid, &waits, mine)
        };
        let act = act.or_else(|| {
            let ends = terminating.contains(&*key.namespace) && !is_deleted(object);
            ends.then_some(Act::Delete { foreground: false })
        });
        if let Some(act) = act {
            acts.push((key.clone(), stored.uid().to_owned(), act));
        }
    }
    acts
}

/// The action for an object that may have owners.
fn dependent(
    object: &Value,
    by_uid: &BTreeMap<&str, &Arc<Stored>>,
    waits: &impl Fn(&str, &str) -> bool,
    own_dependents: &[&Value],
) -> Option<Act> {
    let owners = owners(object);
    if owners.is_empty() {
        return None;
    }
    let uid = |owner: &Value| text(owner, "uid").to_owned();
    let orphaned = |owner: &&Value| waits(&uid(owner), ORPHAN);
    if owners.iter().any(|owner| orphaned(&owner)) {
        let kept = owners.iter().filter(|owner| !orphaned(owner)).cloned();
        return Some(Act::KeepOwners(kept.collect()));
    }
    let present = |owner: &&Value| by_uid.contains_key(uid(owner).as_str());
    let solid: Vec<Value> = owners
        .iter()
        .filter(|owner| present(owner) && !waits(&uid(owner), FOREGROUND))
        .cloned()
        .collect();
    if solid.len() == owners.len() || is_deleted(object) {
        return None;
    }
    if !solid.is_empty() {
        return Some(Act::KeepOwners(solid));
    }
    let foreground = owners.iter().any(|owner| present(&owner)) && !own_dependents.is_empty();
    Some(Act::Delete { foreground })
}

/// Whether a namespace has no content.
fn is_empty(store: &Store, namespace: &str) -> bool {
    !store.all().any(|(key, _)| *key.namespace == *namespace)
}

fn perform(server: &Server, key: &Key, uid: String, act: Act) {
    let moment = server.moment(USER);
    server.act(|state| {
        let mut write = state.write_on(key.clone(), moment);
        // An object that has changed since is processed in the next pass.
        let _ = match act {
            Act::Delete { foreground } => {
                let policy = if foreground {
                    "Foreground"
                } else {
                    "Background"
                };
                let options = DeleteOptions {
                    propagation: Some(policy.to_owned()),
                    preconditions: Preconditions {
                        uid: Some(uid),
                        version: None,
                    },
                    grace: None,
                };
                write.delete(&options).map(drop)
            }
            Act::KeepOwners(kept) => write
                .update(|old| {
                    let mut object = old.value.clone();
                    let kept = if kept.is_empty() {
                        Value::Null
                    } else {
                        json!(kept)
                    };
                    put_or_remove(&mut object["metadata"], "ownerReferences", kept);
                    Ok(object)
                })
                .map(drop),
            Act::DropFinalizer(finalizer) => write
                .update(|old| {
                    let mut object = old.value.clone();
                    let mut left = finalizers(&object);
                    left.retain(|there| there != finalizer);
                    object["metadata"]["finalizers"] = json!(left);
                    Ok(object)
                })
                .map(drop),
            Act::Purge => {
                write.purge();
                Ok(())
            }
        };
    });
}
