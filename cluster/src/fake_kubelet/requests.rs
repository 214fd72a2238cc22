//! The pure part of the fake kubelet's server: what is asked for, and what the answer says.
//!
//! Paths and parameters are those by which the API server of Kubernetes 1.36 asks a kubelet
//! (pkg/registry/core/pod/strategy.go); errors have the words of pkg/kubelet where it has some.

use hyper::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The longest name of an object (RFC 1123, with dots).
const MAX_NAME_LEN: usize = 253;

/// No path that is understood has more parts.
const MAX_PARTS: usize = 6;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) subject: Subject,
}

/// What of a pod is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The log of a container.
    Log {
        container: String,
        options: LogOptions,
    },
    /// To run a program in it, or to reach its streams or one of its ports.
    Connection,
}

/// Which part of a log, as `kubectl logs` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    /// Whether the answer goes on until the container has ended.
    follow: bool,
    /// That of the container before its last restart.
    previous: bool,
    /// Whether each line begins with its time.
    timestamps: bool,
    /// Only lines from this time on.
    since: Option<Timestamp>,
    /// Only so many of the last lines.
    tail: Option<u64>,
    /// At most so many bytes.
    limit: Option<usize>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    /// Why, in one line.
    pub(super) line: String,
}

/// A log, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) text: String,
    /// Whether the answer ends here. Otherwise it ends with the container.
    pub(super) complete: bool,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, line: impl Into<String>) -> Self {
        Self {
            code,
            line: line.into(),
        }
    }

    pub(super) fn not_found(line: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, line)
    }

    /// Of a connection to a container on this node.
    pub(super) fn no_connection(node: &str) -> Self {
        let line = format!(
            "{node} is a fake node: nothing runs on it, so there is nothing to exec, attach to or forward a port to"
        );
        Self::new(StatusCode::NOT_IMPLEMENTED, line)
    }
}

impl Question {
    /// What a request asks for at the time `now`.
    pub(super) fn parse(
        method: &Method,
        path: &str,
        query: &str,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let parts: Vec<&str> = path.split('/').skip(1).take(MAX_PARTS).collect();
        let (namespace, pod, subject) = match parts.as_slice() {
            ["containerLogs", namespace, pod, container]
                if *method == Method::GET && is_name(container) =>
            {
                let subject = Subject::Log {
                    container: (*container).to_owned(),
                    options: LogOptions::parse(query, now),
                };
                (*namespace, *pod, subject)
            }
            [
                "exec" | "attach" | "run" | "portForward",
                namespace,
                pod,
                ..,
            ] => (*namespace, *pod, Subject::Connection),
            _ => return Err(not_understood()),
        };
        if !is_name(namespace) || !is_name(pod) {
            return Err(not_understood());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            subject,
        })
    }
}

fn not_understood() -> Refusal {
    Refusal::not_found("a fake node answers only for the logs of its containers")
}

/// Whether an object or a container can have this name. Nothing else reaches the API server or an answer.
fn is_name(text: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_NAME_LEN
        && text.bytes().next().is_some_and(is_usual)
        && text
            .bytes()
            .all(|byte| is_usual(byte) || b"-.".contains(&byte))
}

impl LogOptions {
    /// Those of a query. The API server has checked them, so what is not understood is left out.
    fn parse(query: &str, now: Timestamp) -> Self {
        let mut options = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "follow" => options.follow = value == "true",
                "previous" => options.previous = value == "true",
                "timestamps" => options.timestamps = value == "true",
                "sinceTime" => options.since = value.parse().ok(),
                "sinceSeconds" => {
                    let span = value.parse::<i64>().ok().map(SignedDuration::from_secs);
                    options.since = span.and_then(|span| now.checked_sub(span).ok());
                }
                "tailLines" => options.tail = value.parse().ok(),
                "limitBytes" => options.limit = value.parse().ok(),
                _ => {}
            }
        }
        options
    }
}

/// The log of a container of a pod on a fake node: one line, of the time when the pod started.
pub(super) fn log(pod: &Pod, container: &str, options: &LogOptions) -> Result<Log, Refusal> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if !has_container(pod, container) {
        let line = format!("container {container:?} not found in pod {name:?}");
        return Err(Refusal::not_found(line));
    }
    let status = container_status(pod, container);
    let state = status.and_then(|status| status.state.as_ref());
    let last = status.and_then(|status| status.last_state.as_ref());
    if options.previous && last.is_none_or(|last| last.terminated.is_none()) {
        let line = format!("previous terminated container {container:?} in pod {name:?} not found");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
    }
    let started = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    if !options.previous && !started {
        let waiting = state.and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let reason = reason.unwrap_or("ContainerCreating");
        let line = format!("container {container:?} in pod {name:?} is waiting to start: {reason}");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
    }
    let node = node_name(pod);
    let mut text = format!(
        "{node} is a fake node: nothing runs on it, so container {container} printed nothing.\n"
    );
    let start = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let start = start.map_or(Timestamp::UNIX_EPOCH, |start| start.0);
    if options.tail == Some(0) || options.since.is_some_and(|since| start < since) {
        text.clear();
    } else if options.timestamps {
        text.insert_str(0, &format!("{start} "));
    }
    let limit = options.limit.unwrap_or(usize::MAX);
    let complete =
        !options.follow || options.previous || has_ended(pod, container) || limit <= text.len();
    text.truncate(text.floor_char_boundary(limit));
    Ok(Log { text, complete })
}

/// Whether nothing can be added to the log of a container.
pub(super) fn has_ended(pod: &Pod, container: &str) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let state = container_status(pod, container).and_then(|status| status.state.as_ref());
    matches!(phase, Some("Succeeded" | "Failed"))
        || state.is_some_and(|state| state.terminated.is_some())
}

/// The name of a pod's node, empty if it has none.
pub(super) fn node_name(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn has_container(pod: &Pod, container: &str) -> bool {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let names = spec.containers.iter().chain(init).map(|it| &it.name);
        names.chain(ephemeral.map(|it| &it.name))
    })
    .any(|name| name == container)
}

fn container_status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flat_map(|list| list.iter().flatten());
    all.find(|status| status.name == container)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use hyper::{Method, StatusCode};
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{LogOptions, Question, Refusal, Subject, has_ended, log};

    const START: &str = "2026-01-02T03:04:05Z";
    const LINE: &str =
        "node-2 is a fake node: nothing runs on it, so container main printed nothing.\n";

    fn asked(method: &Method, path: &str, query: &str) -> Result<Question, Refusal> {
        let now: Timestamp = "2026-01-02T03:05:05Z".parse().unwrap();
        Question::parse(method, path, query, now)
    }

    fn options(query: &str) -> LogOptions {
        let question = asked(&Method::GET, "/containerLogs/ns/pod/main", query).unwrap();
        let Subject::Log { options, .. } = question.subject else {
            unreachable!("a log was asked for");
        };
        options
    }

    /// A pod of two containers; `state` is that of the first.
    fn pod(phase: &str, state: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "pod", "namespace": "ns"},
            "spec": {
                "nodeName": "node-2",
                "initContainers": [{"name": "setup", "image": "i:1"}],
                "containers": [{"name": "main", "image": "i:1"}, {"name": "side", "image": "i:1"}],
            },
            "status": {"phase": phase, "startTime": START, "containerStatuses": [
                {"name": "main", "image": "i:1", "imageID": "", "ready": true, "restartCount": 0, "state": state},
            ]},
        }))
        .unwrap()
    }

    fn running() -> Pod {
        pod("Running", &json!({"running": {"startedAt": START}}))
    }

    #[test]
    fn requests_are_those_of_the_api_server() {
        let log = asked(&Method::GET, "/containerLogs/ns/a.b/main", "").unwrap();
        assert_eq!((&*log.namespace, &*log.pod), ("ns", "a.b"));
        let expected = Subject::Log {
            container: "main".to_owned(),
            options: LogOptions::default(),
        };
        assert_eq!(log.subject, expected);
        for path in [
            "/exec/ns/pod/main",
            "/exec/ns/pod/uid/main",
            "/attach/ns/pod/main",
            "/portForward/ns/pod",
        ] {
            let question = asked(&Method::POST, path, "command=sh").unwrap();
            assert_eq!(question.subject, Subject::Connection, "{path}");
            assert_eq!((&*question.namespace, &*question.pod), ("ns", "pod"));
        }
        let endless = format!("/containerLogs/ns/{}/main", "x".repeat(254));
        for (method, path) in [
            (Method::GET, ""),
            (Method::GET, "/"),
            (Method::GET, "*"),
            (Method::GET, "/metrics"),
            (Method::GET, "/containerLogs/ns/pod"),
            (Method::GET, "/containerLogs/ns/pod/main/more"),
            (Method::GET, "/containerLogs/ns//main"),
            (Method::GET, "/containerLogs/ns/../main"),
            (Method::GET, "/containerLogs/ns/%2e%2e%2fsecrets/main"),
            (Method::GET, "/containerLogs/ns/pod/\u{1b}"),
            (Method::GET, endless.as_str()),
            (Method::POST, "/containerLogs/ns/pod/main"),
            (Method::POST, "/exec/ns"),
            (Method::POST, "/exec/NS/pod/main"),
        ] {
            let refusal = asked(&method, path, "").unwrap_err();
            assert_eq!(refusal.code, StatusCode::NOT_FOUND, "{method} {path}");
            assert_eq!(refusal.line.lines().count(), 1);
        }
    }

    #[test]
    fn the_log_is_one_line_as_far_as_it_is_asked_for() {
        let stamped = format!("{START} {LINE}");
        for (query, text) in [
            ("", LINE),
            ("timestamps=true", stamped.as_str()),
            ("tailLines=0", ""),
            ("tailLines=7&timestamps=false", LINE),
            // Lines of the very second belong to it.
            ("sinceTime=2026-01-02T03%3A04%3A05Z", LINE),
            ("sinceTime=2026-01-02T04%3A04%3A06%2B01%3A00", ""),
            ("sinceSeconds=60", LINE),
            ("sinceSeconds=59", ""),
            ("sinceSeconds=9223372036854775807", LINE),
            ("limitBytes=6", "node-2"),
            ("limitBytes=99999999999999999999", LINE),
            ("stream=All&odd&=&%ff=%ff", LINE),
        ] {
            let log = log(&running(), "main", &options(query)).unwrap();
            assert_eq!((log.text.as_str(), log.complete), (text, true), "{query}");
        }
    }

    #[test]
    fn a_log_is_followed_until_its_container_has_ended() {
        let follow = options("follow=true");
        let log_of = |pod: &Pod, options: &LogOptions| log(pod, "main", options).unwrap();
        assert!(!log_of(&running(), &follow).complete && !has_ended(&running(), "main"));
        assert!(log_of(&running(), &options("follow=true&limitBytes=6")).complete);
        let ended = json!({"terminated": {"exitCode": 0}});
        for pod in [
            pod("Succeeded", &ended),
            pod("Running", &ended),
            pod("Failed", &json!({"running": {"startedAt": START}})),
        ] {
            let log = log_of(&pod, &follow);
            assert_eq!((log.text.as_str(), log.complete), (LINE, true));
        }
    }

    #[test]
    fn what_has_no_log_is_said_as_a_kubelet_says_it() {
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
        for (pod, container, query, code, line) in [
            (
                running(),
                "other",
                "",
                404,
                "container \"other\" not found in pod \"pod\"",
            ),
            (
                running(),
                "main",
                "previous=true",
                400,
                "previous terminated container \"main\" in pod \"pod\" not found",
            ),
            (
                pod("Pending", &waiting),
                "main",
                "follow=true",
                400,
                "container \"main\" in pod \"pod\" is waiting to start: ImagePullBackOff",
            ),
            // Without a status of its own.
            (
                running(),
                "side",
                "",
                400,
                "container \"side\" in pod \"pod\" is waiting to start: ContainerCreating",
            ),
        ] {
            let refusal = log(&pod, container, &options(query)).unwrap_err();
            assert_eq!((refusal.code.as_u16(), &*refusal.line), (code, line));
        }
    }
}
