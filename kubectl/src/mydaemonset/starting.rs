//! Why pods that do not fail are not Ready.
//!
//! What a probe last answered is only in an Event, which lives for an hour and has to be searched for among all of the
//! namespace: `kubectl describe pod` shows it.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};
use my_operator_mydaemonset::cause::Cause;

/// What is said of a pod of which no more is known.
pub(super) const NOT_READY: &str = "not Ready";

/// What the pod waits for, in a few words.
pub(super) fn reason(pod: &Pod) -> String {
    wait(pod).map_or_else(|| NOT_READY.to_owned(), |(_, text)| text)
}

/// What a pod that is not Ready waits for.
type Wait = (Cause, String);

/// What the pod waits for first. `None` for an incomplete pod.
pub(super) fn wait(pod: &Pod) -> Option<Wait> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let kubelet = || {
        let text = format!("{NOT_READY}: its kubelet has reported nothing");
        (Cause::NotStarted, text)
    };
    let wait = of_init_containers(spec, status)
        .or_else(|| of_containers(spec, status))
        .or_else(|| of_ready(spec, status));
    Some(wait.unwrap_or_else(kubelet))
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
        let state = status.state.as_ref();
        let runs = state.is_some_and(|state| state.running.is_some());
        let text = format!("init container {} runs", status.name);
        waits(status).or(runs.then_some((Cause::InitContainer, text)))
    })
}

fn of_containers(spec: &PodSpec, status: &PodStatus) -> Option<Wait> {
    let mut statuses = status.container_statuses.iter().flatten();
    statuses.find_map(|status| {
        let container = spec.containers.iter().find(|it| it.name == status.name);
        waits(status).or_else(|| probe(container, status))
    })
}

/// The kubelet's word for what the container waits for, such as `ContainerCreating`.
fn waits(status: &ContainerStatus) -> Option<Wait> {
    let word = status.state.as_ref()?.waiting.as_ref()?.reason.clone()?;
    let cause = match Cause::of_trouble(&word) {
        Cause::Undetermined => Cause::Starting,
        cause => cause,
    };
    Some((cause, word))
}

/// The probe that a running container has not passed.
fn probe(container: Option<&Container>, status: &ContainerStatus) -> Option<Wait> {
    let container = container.filter(|_| !status.ready)?;
    let (cause, probe) = if container.startup_probe.is_some() && status.started != Some(true) {
        (Cause::StartupProbe, "startup")
    } else {
        container.readiness_probe.as_ref()?;
        (Cause::ReadinessProbe, "readiness")
    };
    let text = format!("{NOT_READY}: {probe} probe of {}", status.name);
    Some((cause, text))
}

/// The message of the condition, as for a readiness gate.
fn of_ready(spec: &PodSpec, status: &PodStatus) -> Option<Wait> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    let message = ready.message.as_ref();
    let message = message.filter(|message| !message.is_empty())?;
    let mut gates = spec.readiness_gates.iter().flatten();
    let gate = gates.next().map(|_| Cause::ReadinessGate);
    let cause = gate.unwrap_or(Cause::Undetermined);
    Some((cause, format!("{NOT_READY}: {message}")))
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
