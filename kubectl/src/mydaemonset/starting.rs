//! Why pods that do not fail are not Ready.
//!
//! What a probe last answered is only in an Event, which lives for an hour and has to be searched for among all of the
//! namespace: `kubectl describe pod` shows it.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};

/// What is said of a pod of which no more is known.
pub(super) const NOT_READY: &str = "not Ready";

/// What the pod waits for, in a few words.
pub(super) fn reason(pod: &Pod) -> String {
    wait(pod).map_or_else(|| NOT_READY.to_owned(), |wait| wait.to_string())
}

/// What a pod that is not Ready waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A container that does not run yet: the kubelet's word for it, such as `ContainerCreating`.
    Container(String),
    /// The end of this init container.
    Init(String),
    /// The startup probe of this container.
    StartupProbe(String),
    /// The readiness probe of this container.
    ReadinessProbe(String),
    /// What the message of the condition Ready says, as for a readiness gate.
    Ready(String),
    /// Any report of its kubelet.
    Kubelet,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(reason) => f.write_str(reason),
            Self::Init(name) => write!(f, "init container {name} runs"),
            Self::StartupProbe(name) => write!(f, "{NOT_READY}: startup probe of {name}"),
            Self::ReadinessProbe(name) => write!(f, "{NOT_READY}: readiness probe of {name}"),
            Self::Ready(message) => write!(f, "{NOT_READY}: {message}"),
            Self::Kubelet => write!(f, "{NOT_READY}: its kubelet has reported nothing"),
        }
    }
}

/// What the pod waits for first. `None` for an incomplete pod.
pub(super) fn wait(pod: &Pod) -> Option<Wait> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let wait = of_init_containers(spec, status)
        .or_else(|| of_containers(spec, status))
        .or_else(|| of_ready(status));
    Some(wait.unwrap_or(Wait::Kubelet))
}

/// Init containers run one after the other, and before the others.
fn of_init_containers(spec: &PodSpec, status: &PodStatus) -> Option<Wait> {
    let containers = spec.init_containers.as_deref().unwrap_or_default();
    let mut statuses = status.init_container_statuses.iter().flatten();
    statuses.find_map(|status| {
        let container = containers.iter().find(|it| it.name == status.name);
        let is_sidecar = container.is_some_and(|it| it.restart_policy.as_deref() == Some("Always"));
        if is_sidecar {
            return waits(status).or_else(|| probe(container, status));
        }
        let runs = status
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some());
        let runs = runs.then(|| Wait::Init(status.name.clone()));
        waits(status).or(runs)
    })
}

fn of_containers(spec: &PodSpec, status: &PodStatus) -> Option<Wait> {
    let mut statuses = status.container_statuses.iter().flatten();
    statuses.find_map(|status| {
        let container = spec.containers.iter().find(|it| it.name == status.name);
        waits(status).or_else(|| probe(container, status))
    })
}

/// The kubelet's word for what the container waits for.
fn waits(status: &ContainerStatus) -> Option<Wait> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    waiting.reason.clone().map(Wait::Container)
}

/// The probe that a running container has not passed.
fn probe(container: Option<&Container>, status: &ContainerStatus) -> Option<Wait> {
    let name = status.name.clone();
    let container = container.filter(|_| !status.ready)?;
    if container.startup_probe.is_some() && status.started != Some(true) {
        return Some(Wait::StartupProbe(name));
    }
    let has_probe = container.readiness_probe.is_some();
    has_probe.then_some(Wait::ReadinessProbe(name))
}

/// The message of the condition, as for a readiness gate.
fn of_ready(status: &PodStatus) -> Option<Wait> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    let message = ready.message.clone().filter(|message| !message.is_empty());
    message.map(Wait::Ready)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn container(name: &str, ready: bool, state: &Value) -> Value {
        json!({"name": name, "ready": ready, "restartCount": 0, "image": "i", "imageID": "", "state": state})
    }

    fn of(spec: &Value, status: &Value) -> String {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        reason(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_first_thing_that_is_waited_for_is_the_reason() {
        let (running, creating) = (
            json!({"running": {}}),
            json!({"waiting": {"reason": "ContainerCreating"}}),
        );
        let initializing = json!({"waiting": {"reason": "PodInitializing"}});
        let done = json!({"terminated": {"exitCode": 0}});
        let probe = json!({"tcpSocket": {"port": 80}});
        let spec = json!({
            "initContainers": [{"name": "init"}, {"name": "proxy", "restartPolicy": "Always", "startupProbe": probe}],
            "containers": [{"name": "log"}, {"name": "app", "readinessProbe": probe}],
        });
        for (init, containers, expected) in [
            (
                json!([container("init", false, &running)]),
                json!([container("log", false, &initializing)]),
                "init container init runs",
            ),
            (
                json!([
                    container("init", true, &done),
                    container("proxy", false, &running)
                ]),
                json!([container("log", false, &initializing)]),
                "not Ready: startup probe of proxy",
            ),
            (
                json!([
                    container("init", true, &done),
                    container("proxy", true, &running)
                ]),
                json!([container("log", false, &creating)]),
                "ContainerCreating",
            ),
            (
                json!([container("init", true, &done)]),
                json!([
                    container("log", true, &running),
                    container("app", false, &running)
                ]),
                "not Ready: readiness probe of app",
            ),
        ] {
            let status = json!({"initContainerStatuses": init, "containerStatuses": containers});
            assert_eq!(of(&spec, &status), expected);
        }
    }

    #[test]
    fn without_a_container_that_waits_the_condition_is_the_reason() {
        let spec = json!({"containers": [{"name": "app"}]});
        let gate = "the status of pod readiness gate \"x\" is not \"True\", but False";
        let condition = json!({"type": "Ready", "status": "False", "message": gate});
        let status = json!({"containerStatuses": [container("app", true, &json!({"running": {}}))],
            "conditions": [condition]});
        assert_eq!(of(&spec, &status), format!("not Ready: {gate}"));
        assert_eq!(
            of(&spec, &json!({"phase": "Pending"})),
            "not Ready: its kubelet has reported nothing"
        );
    }
}
