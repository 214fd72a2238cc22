//! What a Foo asks for: the desired Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::admission::FooRules;
use super::crd::{FooSpec, FooStatus};
use super::status;
use crate::owned_child::deployment::DeploymentView;
use crate::owned_child::view::ChildView;
use crate::owned_child::{Desired, Done, KeptEqual, Observation, Owner, Parent, Report};

/// The image of every Foo's pods.
pub(super) const IMAGE: &str = "nginx:latest";

/// The kind, for the reconciler of owned children.
#[derive(Debug)]
pub(crate) struct Foos;

impl Parent for Foos {
    const NAME: &'static str = "foo";
    const CONFLICT: &'static str = "ErrResourceExists";

    type Rules = FooRules;
    type Child = Deployment;
    type Lifecycle = KeptEqual;

    fn desired(owner: &Owner<'_, Self>) -> Desired {
        Desired {
            name: owner.spec.deployment_name.clone().unwrap_or_default(),
            fields: fields(&owner.key.name, owner.spec),
        }
    }

    fn report(observation: &Observation<'_, Self>, status: &mut FooStatus) -> Report {
        let owner = observation.owner;
        let deployment = observation.child.map(DeploymentView::new);
        let observed = status::Observed {
            available: deployment.as_ref().map(|it| it.status.available_replicas),
            replicas: owner.spec.replicas.unwrap_or_default(),
            generation: owner.generation,
            now: observation.now,
        };
        let is_new = owner.status.observed_generation != owner.generation;
        status::report(&observed, status);
        let is_synced = deployment.is_some() && observation.trouble.is_none();
        let event =
            (is_synced && (is_new || observation.done != Done::Nothing)).then(status::synced_event);
        Report {
            events: event.into_iter().collect(),
            trouble: deployment.as_ref().and_then(DeploymentView::trouble),
            requeue_at: None,
        }
    }

    /// The original's message, and how to fix it.
    fn conflict(name: &str) -> String {
        format!(
            "Resource {name:?} already exists and is not managed by Foo: delete it, or name another in spec.deploymentName"
        )
    }

    /// The spec names the Deployment, so that another one is of an earlier spec.
    fn deletes_other(_: &ChildView, _: &ChildView) -> bool {
        true
    }
}

/// The fields of the Deployment that are ours, as the original builds it. The selector has the name
/// of the Foo, which never changes: a Deployment's selector is immutable.
fn fields(name: &str, spec: &FooSpec) -> Value {
    let labels = json!({"app": "nginx", "controller": name});
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": IMAGE}]},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owned_child::{Creation, Lifecycle};
    use wall_clock_controller::reconcile::Key;

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
        let child = Foos::desired(&owner);
        let creation = <KeptEqual as Lifecycle<Foos>>::creation(&owner);
        assert_eq!(creation, Creation::Apply);
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
}
