//! The status of a `Memcached`, from its Deployment and its pods.

use chrono::{DateTime, Utc};

use super::crd::MemcachedStatus;
use super::labels;
use crate::owned_child::KindStatus;
use crate::owned_child::deployment::{DEADLINE, DeploymentView};
use wall_clock_controller::reconcile::condition::{self, Condition, State};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};

/// As many servers are available as the Deployment promises.
pub(crate) const AVAILABLE: &str = "Available";
/// A change has not reached every server.
pub(crate) const PROGRESSING: &str = "Progressing";

/// How many pods are named. 1,000 names of 63 bytes are 66 kB: little for etcd, which takes 1.5 MB,
/// and bearable for a watch while one pod comes after the other.
pub(crate) const MAX_NODES: usize = 1_000;

/// Reason of `Progressing=False`: every server matches the spec.
const COMPLETE: &str = "Complete";
const EVERY_SERVER: &str = "every server matches the spec";

impl KindStatus for MemcachedStatus {
    fn common_fields(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// Input of the status.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) name: &'a str,
    pub(crate) generation: Option<i64>,
    pub(crate) size: i32,
    /// The Deployment could not be created or corrected.
    pub(crate) blocked: bool,
    /// The Deployment was just changed to a new spec.
    pub(crate) changed: bool,
    /// The Deployment, if it exists and is the object's own.
    pub(crate) deployment: Option<DeploymentView>,
    /// The names of its pods, in any order.
    pub(crate) pods: Vec<String>,
    pub(crate) now: DateTime<Utc>,
}

/// Updates the status to what is observed, and returns the Events for it. If nothing changed, the
/// status stays as it is.
pub(crate) fn next(observed: &Observed<'_>, status: &mut MemcachedStatus) -> Vec<NewEvent> {
    let before = status.clone();
    let absent = DeploymentView::default();
    let counts = &observed.deployment.as_ref().unwrap_or(&absent).status;
    status.replicas = Some(counts.replicas);
    status.ready_replicas = Some(counts.ready_replicas);
    status.available_replicas = Some(counts.available_replicas);
    status.updated_replicas = Some(counts.updated_replicas);
    status.selector = Some(labels::selector(observed.name));
    status.nodes = Some(nodes(&observed.pods));
    let progress = progress(observed, &before);
    let events = events(observed, &before, &progress);
    for (type_, state) in [
        (AVAILABLE, availability(observed, &before)),
        (PROGRESSING, Some(progress)),
    ] {
        let Some(state) = state else { continue };
        state.set(
            &mut status.conditions,
            type_,
            observed.generation,
            observed.now,
        );
    }
    events
}

/// The sorted names, limited to what a status may hold.
fn nodes(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.truncate(MAX_NODES);
    names
}

/// `None` while the Deployment controller has not observed the current spec: the condition stays,
/// with its old generation, so that `kubectl wait` keeps waiting.
fn availability(observed: &Observed<'_>, before: &MemcachedStatus) -> Option<State> {
    let Some(deployment) = &observed.deployment else {
        let message = "the Deployment does not exist";
        return Some(State::of(false, "NoDeployment", message));
    };
    let available = deployment.status.available_replicas;
    let message = format!("{available} of {} servers are available", observed.size);
    let too_few = "TooFewServersAvailable";
    if !deployment.is_observed() {
        let first = condition::get(&before.conditions, AVAILABLE).is_none();
        return first.then(|| State::of(false, too_few, message));
    }
    let all = available >= observed.size;
    let enough = match deployment.condition("Available") {
        // It refers to the Deployment's own size, which is not the spec's if it could not be changed.
        Some(said) if !observed.blocked => said.status == "True",
        _ => all,
    };
    Some(if enough {
        State::of(true, "EnoughServersAvailable", message)
    } else {
        State::of(false, too_few, message)
    })
}

fn progress(observed: &Observed<'_>, before: &MemcachedStatus) -> State {
    if observed.blocked {
        let message = "blocked: see the condition Degraded";
        return State::of(false, "Blocked", message);
    }
    let Some(deployment) = &observed.deployment else {
        return State::of(true, "NoDeployment", "the Deployment does not exist");
    };
    let (size, counts) = (observed.size, &deployment.status);
    let message = format!(
        "{} of {size} servers match the spec, {} available",
        counts.updated_replicas, counts.available_replicas
    );
    let rolling = "RollingOut";
    if !deployment.is_observed() {
        return State::of(true, rolling, message);
    }
    // A server that is unavailable for a while after a change has reached all does not start the change again.
    let was_complete = condition::get(&before.conditions, PROGRESSING)
        .is_some_and(|c| c.reason == COMPLETE && c.observed_generation == observed.generation);
    let all = counts.updated_replicas == size && counts.replicas == size;
    if all && (was_complete || counts.available_replicas >= size) {
        let message = format!("all of {size} servers match the spec");
        return State::of(false, COMPLETE, message);
    }
    if deployment.is_paused() && counts.replicas == size {
        let resume = format!("kubectl rollout resume deployment/{}", observed.name);
        let message = format!("{message}: the Deployment is paused until {resume}");
        return State::of(false, "Paused", message);
    }
    match deployment.stuck() {
        Some(said) => State::of(false, DEADLINE, format!("{message}: {}", said.message)),
        None => State::of(true, rolling, message),
    }
}

/// The Events of this kind, in addition to those of every kind's child.
fn events(observed: &Observed<'_>, before: &MemcachedStatus, progress: &State) -> Vec<NewEvent> {
    let mut events = Vec::new();
    let mut publish = |reason, action, note| {
        events.push(NewEvent {
            severity: Severity::Normal,
            reason,
            action,
            note,
        });
    };
    let last = condition::get(&before.conditions, PROGRESSING);
    let was_complete = last.is_some_and(|last| last.reason == COMPLETE);
    if let Some(replicas) = before.replicas
        && observed.changed
        && was_complete
        && replicas != observed.size
    {
        let note = format!("from {replicas} to {} servers", observed.size);
        publish("Scaled", "Scale", note);
    }
    let same = was_complete && last.is_some_and(|c| c.observed_generation == observed.generation);
    if progress.reason == COMPLETE && !same {
        // Without a number: Events that differ only in numbers are aggregated.
        publish("Complete", "RollOut", EVERY_SERVER.to_owned());
    }
    events
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn deployment(generation: i64, status: &Value) -> DeploymentView {
        DeploymentView {
            generation: Some(generation),
            status: serde_json::from_value(status.clone()).unwrap(),
        }
    }

    /// A healthy Deployment.
    fn well(generation: i64, size: i32) -> DeploymentView {
        deployment(
            generation,
            &json!({
                "observedGeneration": generation, "replicas": size, "updatedReplicas": size,
                "readyReplicas": size, "availableReplicas": size, "conditions": [
                    {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "m"},
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "m"}]}),
        )
    }

    fn observed(
        generation: i64,
        size: i32,
        deployment: Option<DeploymentView>,
    ) -> Observed<'static> {
        Observed {
            name: "x",
            generation: Some(generation),
            size,
            blocked: false,
            changed: false,
            deployment,
            pods: vec![],
            now: at(generation),
        }
    }

    fn reconcile(
        observed: &Observed<'_>,
        status: &mut MemcachedStatus,
    ) -> Vec<(&'static str, String)> {
        let events = next(observed, status).into_iter();
        events.map(|event| (event.reason, event.note)).collect()
    }

    fn condition<'a>(status: &'a MemcachedStatus, type_: &str) -> &'a Condition {
        condition::get(&status.conditions, type_).unwrap()
    }

    fn state(status: &MemcachedStatus, type_: &str) -> (String, String) {
        let condition = condition(status, type_);
        (condition.status.clone(), condition.reason.clone())
    }

    fn is(status: &str, reason: &str) -> (String, String) {
        (status.to_owned(), reason.to_owned())
    }

    #[test]
    fn three_servers_come_and_become_five() {
        let mut status = MemcachedStatus::default();
        let new = deployment(1, &json!({}));
        assert_eq!(reconcile(&observed(1, 3, Some(new)), &mut status), []);
        assert_eq!(
            state(&status, AVAILABLE),
            is("False", "TooFewServersAvailable")
        );
        assert_eq!(state(&status, PROGRESSING), is("True", "RollingOut"));
        assert_eq!(status.ready_replicas, Some(0));

        let published = reconcile(&observed(1, 3, Some(well(1, 3))), &mut status);
        assert_eq!(published, [("Complete", EVERY_SERVER.to_owned())]);
        assert_eq!(
            state(&status, AVAILABLE),
            is("True", "EnoughServersAvailable")
        );
        assert_eq!(state(&status, PROGRESSING), is("False", "Complete"));
        assert_eq!(
            condition(&status, AVAILABLE).message,
            "3 of 3 servers are available"
        );
        assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(3)));
        assert_eq!(
            status.selector.as_deref(),
            Some("app=memcached,memcached_cr=x")
        );

        // The spec says five; the Deployment was changed to that, and its controller has not observed it yet.
        let mut stale = well(1, 3);
        stale.generation = Some(2);
        let mut scaled = observed(2, 5, Some(stale));
        scaled.changed = true;
        let published = reconcile(&scaled, &mut status);
        assert_eq!(published, [("Scaled", "from 3 to 5 servers".to_owned())]);
        assert_eq!(state(&status, PROGRESSING), is("True", "RollingOut"));
        // Still for the generation before, so that kubectl wait keeps waiting.
        assert_eq!(
            state(&status, AVAILABLE),
            is("True", "EnoughServersAvailable")
        );
        assert_eq!(condition(&status, AVAILABLE).observed_generation, Some(1));

        let published = reconcile(&observed(2, 5, Some(well(2, 5))), &mut status);
        assert_eq!(published, [("Complete", EVERY_SERVER.to_owned())]);
        assert_eq!(condition(&status, AVAILABLE).observed_generation, Some(2));
    }

    #[test]
    fn size_zero_is_valid() {
        let mut status = MemcachedStatus::default();
        reconcile(&observed(1, 0, Some(well(1, 0))), &mut status);
        assert_eq!(
            state(&status, AVAILABLE),
            is("True", "EnoughServersAvailable")
        );
        assert_eq!(state(&status, PROGRESSING), is("False", "Complete"));
        assert_eq!(status.nodes, Some(vec![]));
    }

    #[test]
    fn a_second_reconcile_changes_and_publishes_nothing() {
        let failing = deployment(
            1,
            &json!({"observedGeneration": 1, "replicas": 1, "conditions": [
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}]}),
        );
        for deployment in [None, Some(well(1, 3)), Some(failing)] {
            let mut status = MemcachedStatus::default();
            reconcile(&observed(1, 3, deployment.clone()), &mut status);
            let before = status.clone();
            let mut again = observed(1, 3, deployment);
            again.now = at(99);
            assert_eq!(reconcile(&again, &mut status), []);
            assert_eq!(status, before);
        }
    }

    #[test]
    fn a_new_image_is_under_way_though_the_old_counts_look_complete() {
        let mut status = MemcachedStatus::default();
        reconcile(&observed(1, 3, Some(well(1, 3))), &mut status);
        let mut stale = well(1, 3);
        stale.generation = Some(2);
        reconcile(&observed(2, 3, Some(stale)), &mut status);
        assert_eq!(state(&status, PROGRESSING), is("True", "RollingOut"));
        // An old pod next to three new ones.
        let mut surplus = well(2, 3);
        surplus.status.replicas = 4;
        reconcile(&observed(2, 3, Some(surplus)), &mut status);
        assert_eq!(state(&status, PROGRESSING), is("True", "RollingOut"));
    }

    #[test]
    fn a_briefly_unavailable_server_starts_no_new_change() {
        let mut status = MemcachedStatus::default();
        reconcile(&observed(1, 3, Some(well(1, 3))), &mut status);
        let mut away = well(1, 3);
        away.status.available_replicas = 2;
        away.status.conditions[0].status = "False".to_owned();
        assert_eq!(
            reconcile(&observed(1, 3, Some(away.clone())), &mut status),
            []
        );
        assert_eq!(state(&status, PROGRESSING), is("False", "Complete"));
        assert_eq!(
            state(&status, AVAILABLE),
            is("False", "TooFewServersAvailable")
        );
        // But one that was never available is waited for.
        let mut status = MemcachedStatus::default();
        reconcile(&observed(1, 3, Some(away)), &mut status);
        assert_eq!(state(&status, PROGRESSING), is("True", "RollingOut"));
    }

    #[test]
    fn a_blocked_change_is_not_complete() {
        let mut status = MemcachedStatus::default();
        reconcile(&observed(1, 3, Some(well(1, 3))), &mut status);
        let mut blocked = observed(2, 5, Some(well(1, 3)));
        blocked.blocked = true;
        reconcile(&blocked, &mut status);
        assert_eq!(state(&status, PROGRESSING), is("False", "Blocked"));
        assert_eq!(
            state(&status, AVAILABLE),
            is("False", "TooFewServersAvailable")
        );
        let mut nothing = observed(2, 5, None);
        nothing.blocked = true;
        reconcile(&nothing, &mut status);
        assert_eq!(state(&status, AVAILABLE), is("False", "NoDeployment"));
        assert_eq!(status.replicas, Some(0));
    }

    #[test]
    fn a_paused_deployment_and_one_that_gets_nowhere_are_named() {
        let halfway = |said: Value| {
            deployment(
                1,
                &json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 1,
                "availableReplicas": 3, "conditions": [said]}),
            )
        };
        let mut status = MemcachedStatus::default();
        let paused = json!({"type": "Progressing", "status": "Unknown", "reason": "DeploymentPaused", "message": "m"});
        reconcile(&observed(1, 3, Some(halfway(paused))), &mut status);
        assert_eq!(state(&status, PROGRESSING), is("False", "Paused"));
        assert!(
            condition(&status, PROGRESSING)
                .message
                .contains("kubectl rollout resume deployment/x")
        );
        let late = json!({"type": "Progressing", "status": "False", "reason": DEADLINE, "message": "timed out"});
        let late = halfway(late);
        reconcile(&observed(1, 3, Some(late)), &mut status);
        assert_eq!(state(&status, PROGRESSING), is("False", DEADLINE));
    }

    #[test]
    fn names_are_sorted_and_bounded() {
        let names: Vec<String> = (0..5_000).rev().map(|n| format!("{n:0>63}")).collect();
        let mut observed = observed(1, 5_000, Some(well(1, 5_000)));
        observed.pods = names;
        let mut status = MemcachedStatus::default();
        reconcile(&observed, &mut status);
        let nodes = status.nodes.clone().unwrap();
        assert!(nodes.len() == MAX_NODES && nodes.is_sorted());
        assert_eq!(nodes[0], "0".repeat(63));
        assert!(serde_json::to_vec(&status).unwrap().len() < 100_000);
    }

    #[test]
    fn whatever_a_deployment_says_a_status_can_be_made_of_it() {
        for status in [
            json!({}),
            json!({"conditions": [{}]}),
            json!({"replicas": i32::MAX, "other": [1]}),
        ] {
            let mut odd = deployment(1, &status);
            odd.generation = None;
            reconcile(&observed(1, 3, Some(odd)), &mut MemcachedStatus::default());
        }
    }
}
