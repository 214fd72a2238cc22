//! The desired Deployment of a Foo, and the Events about it.

use chrono::{DateTime, Utc};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::admission::FooRules;
use super::crd::FooStatus;
use crate::kinds::shared::owned_child::deployment::DeploymentView;
use crate::kinds::shared::owned_child::view::ChildView;
use crate::kinds::shared::owned_child::{Child, Done, Observed, Owner, Parent, Report, Seen};
use my_operator_runtime::reconcile::condition::{self, Condition};
use my_operator_runtime::reconcile::event::{NewEvent, Severity};

/// The Deployment has all its pods, and they are available.
const AVAILABLE: &str = "Available";

/// See the module.
#[derive(Debug)]
pub struct Foos;

impl Parent for Foos {
    const NAME: &'static str = "foo";
    const CONFLICT: &'static str = "ErrResourceExists";

    type Rules = FooRules;
    type Child = Deployment;

    /// As the original builds it. The selector has the name of the Foo, which never changes: a
    /// Deployment's selector is immutable.
    fn child(owner: &Owner<'_, Self>) -> Child {
        let labels = json!({"app": "nginx", "controller": &*owner.key.name});
        Child {
            name: owner.spec.deployment_name.clone().unwrap_or_default(),
            fields: json!({
                "metadata": {"labels": labels},
                "spec": {
                    "replicas": owner.spec.replicas,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
                    },
                },
            }),
            create: true,
        }
    }

    fn report(seen: &Seen<'_, Self>, status: &mut FooStatus) -> Report {
        let deployment = seen.child.map(DeploymentView::of);
        let trouble = deployment.as_ref().and_then(DeploymentView::trouble);
        observe(
            deployment.map(|it| it.status.available_replicas),
            seen.owner.spec.replicas.unwrap_or_default(),
            seen.owner.generation,
            seen.now,
            status,
        );
        let is_new = seen.owner.status.observed_generation != seen.owner.generation;
        let synced = seen.child.is_some() && seen.trouble.is_none();
        let event = (synced && (is_new || seen.done != Done::Nothing)).then(|| NewEvent {
            severity: Severity::Normal,
            reason: "Synced",
            action: "Sync",
            note: "Foo synced successfully".to_owned(),
        });
        Report {
            events: event.into_iter().collect(),
            trouble,
            next: None,
        }
    }

    /// The original's message, and how to fix it.
    fn conflict(name: &str) -> String {
        format!(
            "Resource {name:?} already exists and is not managed by Foo: delete it, or name another in spec.deploymentName"
        )
    }

    fn deletes_other(_: &ChildView, _: &ChildView) -> bool {
        true
    }
}

impl Observed for FooStatus {
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>) {
        (&mut self.observed_generation, &mut self.conditions)
    }
}

/// Writes into the status how many pods of the Deployment are available.
fn observe(
    deployment: Option<i32>,
    replicas: i32,
    generation: Option<i64>,
    now: DateTime<Utc>,
    status: &mut FooStatus,
) {
    let available = deployment.unwrap_or_default();
    status.available_replicas = Some(available);
    // On the way down there are more for a moment.
    let counted = available.min(replicas);
    let counted = format!("{counted} of {replicas} pods are available");
    let (is_available, reason, message) = match deployment {
        None => (
            false,
            "NoDeployment",
            "this Foo has no Deployment of the name that it says".to_owned(),
        ),
        Some(_) if available >= replicas => (true, "ReplicasAvailable", counted),
        Some(_) => (false, "ReplicasUnavailable", counted),
    };
    condition::set(
        &mut status.conditions,
        AVAILABLE,
        is_available,
        reason,
        &message,
        generation,
        now,
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kinds::foo::crd::FooSpec;
    use my_operator_runtime::reconcile::Key;

    #[test]
    fn the_deployment_is_that_of_the_original() {
        let owner = Owner::<Foos> {
            key: &Key::new("default", "example-foo"),
            uid: "u",
            generation: Some(1),
            spec: &FooSpec {
                deployment_name: Some("web".to_owned()),
                replicas: Some(3),
            },
            status: &FooStatus::default(),
        };
        let child = Foos::child(&owner);
        assert!(child.create);
        assert_eq!(child.name, "web");
        let labels = json!({"app": "nginx", "controller": "example-foo"});
        assert_eq!(
            child.fields,
            json!({
                "metadata": {"labels": labels},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
                    },
                },
            })
        );
        assert_eq!(
            Foos::conflict("web"),
            "Resource \"web\" already exists and is not managed by Foo: delete it, or name another in spec.deploymentName"
        );
    }

    #[test]
    fn it_is_available_when_all_its_pods_are() {
        for (deployment, expected) in [
            (
                None,
                (
                    "False",
                    "NoDeployment",
                    "this Foo has no Deployment of the name that it says",
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
            let now = DateTime::UNIX_EPOCH;
            observe(deployment, 2, Some(7), now, &mut status);
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
            observe(deployment, 2, Some(7), Utc::now(), &mut status);
            assert_eq!(status, before, "nothing changed, nothing is written");
        }
    }
}
