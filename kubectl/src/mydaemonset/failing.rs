//! What failing pods said last.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::Api;
use kube::api::LogParams;

/// So many lines of each.
const MAX_LINES: usize = 3;
/// And so many bytes of its log.
const MAX_LOG: i64 = 4096;

/// The end of the log of the container that fails, else what the kubelet says about it.
pub(super) async fn last_lines(pods: &Api<Pod>, name: &str, pod: &Pod) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(source) = source(pod) {
        let params = LogParams {
            container: Some(source.container),
            previous: source.previous,
            tail_lines: i64::try_from(MAX_LINES).ok(),
            limit_bytes: Some(MAX_LOG),
            ..LogParams::default()
        };
        lines = tail(&pods.logs(name, &params).await.unwrap_or_default());
    }
    if lines.is_empty() {
        lines.extend(message(pod));
    }
    lines
}

/// The last lines of a log that say something.
fn tail(log: &str) -> Vec<String> {
    let lines = log.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty());
    let mut last: Vec<String> = lines.rev().take(MAX_LINES).map(str::to_owned).collect();
    last.reverse();
    last
}

/// Where a failing pod's last words are.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    container: String,
    /// Whether the container that said them has been restarted since.
    previous: bool,
}

/// Its containers, those for its start first.
pub(super) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

/// The container that ended with a failure, if one ever ran.
fn source(pod: &Pod) -> Option<Source> {
    let failed = |state: Option<&ContainerState>| {
        let end = state.and_then(|state| state.terminated.as_ref());
        end.is_some_and(|end| end.exit_code != 0)
    };
    let ended = statuses(pod).find(|status| failed(status.state.as_ref()));
    let restarted = || statuses(pod).find(|status| failed(status.last_state.as_ref()));
    Some(Source {
        previous: ended.is_none(),
        container: ended.or_else(restarted)?.name.clone(),
    })
}

/// What the kubelet says about the pod.
fn message(pod: &Pod) -> Option<String> {
    let state = |status: &ContainerStatus| {
        let state = status.state.as_ref()?;
        let waiting = || state.waiting.as_ref()?.message.clone();
        waiting().or_else(|| state.terminated.as_ref()?.message.clone())
    };
    let of_container = statuses(pod).find_map(state);
    let of_pod = || pod.status.as_ref()?.message.clone();
    of_container
        .or_else(of_pod)
        .filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn container(name: &str, state: &Value, last: &Value) -> Value {
        json!({"name": name, "ready": false, "restartCount": 1, "image": "i", "imageID": "", "state": state, "lastState": last})
    }

    #[test]
    fn the_log_of_the_container_that_failed_is_read() {
        let failed = json!({"terminated": {"exitCode": 1}});
        let done = json!({"terminated": {"exitCode": 0}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}});
        let looping = pod(&json!({
            "initContainerStatuses": [container("init", &done, &json!({}))],
            "containerStatuses": [container("log", &json!({"running": {}}), &json!({})), container("app", &waiting, &failed)],
        }));
        let source_of = |container: &str, previous| {
            Some(Source {
                container: container.to_owned(),
                previous,
            })
        };
        assert_eq!(source(&looping), source_of("app", true));
        let ended = pod(&json!({"containerStatuses": [container("app", &failed, &failed)]}));
        assert_eq!(source(&ended), source_of("app", false));
        let init = pod(&json!({
            "initContainerStatuses": [container("init", &waiting, &failed)],
            "containerStatuses": [container("app", &json!({}), &json!({}))],
        }));
        assert_eq!(source(&init), source_of("init", true));
    }

    #[test]
    fn without_a_log_the_kubelets_message_is_shown() {
        let waiting =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let pulling = pod(&json!({"containerStatuses": [container("app", &waiting, &json!({}))]}));
        assert_eq!(source(&pulling), None);
        assert_eq!(message(&pulling).as_deref(), Some("no such image"));
        let evicted =
            pod(&json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}));
        assert_eq!(message(&evicted).as_deref(), Some("low on memory"));
        assert_eq!(message(&pod(&json!({}))), None);
    }

    #[test]
    fn the_last_lines_that_are_not_blank_are_kept() {
        assert_eq!(tail("a\nb\n\nc  \nd\n\n"), ["b", "c", "d"]);
        assert_eq!(tail("\n\n"), Vec::<String>::new());
    }
}
