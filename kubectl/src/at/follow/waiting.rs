//! What keeps the command of a released pod from starting: pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// What every container of a pod waits for while an init container has not ended.
const INITIALIZING: &str = "PodInitializing";

/// Why the command of the At has not started, as its pod says; the reason first, as [`mod@super::stage`] has it.
pub(super) fn text(at: &str, pod: &Pod) -> Option<String> {
    let (reason, message) = cause(pod, pod.status.as_ref()?)?;
    Some(match message.trim() {
        "" => format!("{reason}: at/{at} waits"),
        message => format!("{reason}: at/{at} waits: {message}"),
    })
}

/// The reason in one word, and the message to it.
fn cause(pod: &Pod, status: &PodStatus) -> Option<(String, String)> {
    // An evicted pod, too, has no container that has started.
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return None;
    }
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled");
    let Some(scheduled) = scheduled else {
        let message = "no scheduler has looked at its pod yet";
        return Some(("Pending".to_owned(), message.to_owned()));
    };
    if scheduled.status != "True" {
        let message = scheduled.message.clone().unwrap_or_default();
        return Some((scheduled.reason.clone()?, message));
    }
    let init = status.init_container_statuses.as_deref();
    let init = init.unwrap_or_default();
    let main = status.container_statuses.as_deref().unwrap_or_default();
    if main.is_empty() {
        let node = pod.spec.as_ref()?.node_name.clone()?;
        let message = format!("node {node} has not reported its pod yet");
        return Some(("Scheduled".to_owned(), message));
    }
    let mut all = init.iter().chain(main).filter_map(waiting);
    let blocked = all.find(|(reason, _)| reason != INITIALIZING);
    let running = init
        .iter()
        .find(|it| is_running(it) && !is_sidecar(pod, &it.name));
    let initializes = running.map(|it| {
        let message = format!("its init container {} runs", it.name);
        (INITIALIZING.to_owned(), message)
    });
    blocked
        .or(initializes)
        .or_else(|| main.iter().find_map(waiting))
}

fn waiting(container: &ContainerStatus) -> Option<(String, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let message = waiting.message.clone().unwrap_or_default();
    Some((waiting.reason.clone()?, message))
}

fn is_running(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

/// An init container that runs as long as the pod does.
fn is_sidecar(pod: &Pod, name: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let mut containers = containers.flatten().filter(|it| it.name == name);
    containers.any(|it| it.restart_policy.as_deref() == Some("Always"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn said(status: &Value) -> Option<String> {
        let spec = json!({
            "nodeName": "n1",
            "containers": [{"name": "at"}],
            "initContainers": [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}],
        });
        let pod = json!({"metadata": {"name": "x-pod"}, "spec": spec, "status": status});
        text("x", &serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({"name": name, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0})
    }

    #[test]
    fn the_pod_says_what_its_command_waits_for() {
        let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let on_node = |init: &[Value], main: &[Value]| {
            json!({
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "initContainerStatuses": init, "containerStatuses": main,
            })
        };
        let initializing = container("at", &waiting(INITIALIZING, ""));
        let running = json!({"running": {}});
        for (status, expected) in [
            (
                json!({"phase": "Pending"}),
                "Pending: at/x waits: no scheduler has looked at its pod yet",
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient cpu."}]}),
                "Unschedulable: at/x waits: 0/1 nodes are available: 1 Insufficient cpu.",
            ),
            (
                on_node(&[], &[]),
                "Scheduled: at/x waits: node n1 has not reported its pod yet",
            ),
            (
                on_node(&[], &[container("at", &waiting("ContainerCreating", ""))]),
                "ContainerCreating: at/x waits",
            ),
            (
                on_node(
                    &[],
                    &[container("at", &waiting("ErrImagePull", "not found"))],
                ),
                "ErrImagePull: at/x waits: not found",
            ),
            (
                on_node(
                    &[container("fetch", &running), container("proxy", &running)],
                    std::slice::from_ref(&initializing),
                ),
                "PodInitializing: at/x waits: its init container fetch runs",
            ),
            (
                on_node(
                    &[
                        container("proxy", &running),
                        container("fetch", &waiting("CrashLoopBackOff", "back-off 10s")),
                    ],
                    std::slice::from_ref(&initializing),
                ),
                "CrashLoopBackOff: at/x waits: back-off 10s",
            ),
        ] {
            assert_eq!(said(&status).as_deref(), Some(expected), "{status}");
        }
        assert_eq!(said(&on_node(&[], &[container("at", &running)])), None);
        assert_eq!(said(&json!({"phase": "Failed", "reason": "Evicted"})), None);
    }
}
