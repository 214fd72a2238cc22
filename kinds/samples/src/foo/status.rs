//! The status of a Foo, as a pure function of its Deployment, and its Event.

use chrono::{DateTime, Utc};

use super::crd::FooStatus;
use crate::owned_child::KindStatus;
use wall_clock_controller::reconcile::condition::{Condition, State};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};

/// The Deployment has all its pods, and they are available.
const AVAILABLE: &str = "Available";

impl KindStatus for FooStatus {
    fn common_fields(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// Input of the status.
#[derive(Debug)]
pub(crate) struct Observed {
    /// How many pods of the Deployment are available; none if it does not exist.
    pub(crate) available: Option<i32>,
    /// How many there should be.
    pub(crate) replicas: i32,
    pub(crate) generation: Option<i64>,
    pub(crate) now: DateTime<Utc>,
}

/// Writes into the status how many pods of the Deployment are available.
pub(crate) fn report(observed: &Observed, status: &mut FooStatus) {
    let replicas = observed.replicas;
    let available = observed.available.unwrap_or_default();
    status.available_replicas = Some(available);
    // On the way down there are more for a moment.
    let counted = available.min(replicas);
    let counted = format!("{counted} of {replicas} pods are available");
    let state = match observed.available {
        None => State::of(
            false,
            "NoDeployment",
            "this Foo has no Deployment named as in spec.deploymentName",
        ),
        Some(_) if available >= replicas => State::of(true, "ReplicasAvailable", counted),
        Some(_) => State::of(false, "ReplicasUnavailable", counted),
    };
    let (generation, now) = (observed.generation, observed.now);
    state.set(&mut status.conditions, AVAILABLE, generation, now);
}

/// The original's Event for a Deployment that is as the spec says.
pub(crate) fn synced_event() -> NewEvent {
    NewEvent {
        severity: Severity::Normal,
        reason: "Synced",
        action: "Sync",
        note: "Foo synced successfully".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wall_clock_controller::reconcile::condition;

    #[test]
    fn it_is_available_when_all_its_pods_are() {
        for (deployment, expected) in [
            (
                None,
                (
                    "False",
                    "NoDeployment",
                    "this Foo has no Deployment named as in spec.deploymentName",
                ),
            ),
            (
                Some(0),
                ("False", "ReplicasUnavailable", "0 of 2 pods are available"),
            ),
            (
                Some(1),
                ("False", "ReplicasUnavailable", "1 of 2 pods are available"),
            ),
            (
                Some(2),
                ("True", "ReplicasAvailable", "2 of 2 pods are available"),
            ),
            (
                Some(5),
                ("True", "ReplicasAvailable", "2 of 2 pods are available"),
            ),
        ] {
            let mut status = FooStatus::default();
            let mut observed = Observed {
                available: deployment,
                replicas: 2,
                generation: Some(7),
                now: DateTime::UNIX_EPOCH,
            };
            report(&observed, &mut status);
            let available = deployment.unwrap_or_default();
            assert_eq!(status.available_replicas, Some(available));
            let found = condition::get(&status.conditions, AVAILABLE).unwrap();
            let said = (
                found.status.as_str(),
                found.reason.as_str(),
                found.message.as_str(),
            );
            assert_eq!(said, expected, "{deployment:?}");
            assert_eq!(found.observed_generation, Some(7));
            let before = status.clone();
            observed.now = Utc::now();
            report(&observed, &mut status);
            assert_eq!(status, before, "nothing changed, nothing is written");
        }
    }
}
