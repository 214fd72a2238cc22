//! How pods run and nodes behave.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// Annotations of a pod that say how it runs; see [`Run::from_annotations`].
const EXIT_CODE: &str = "simulated-apiserver/exit-code";
const RUNS_SECONDS: &str = "simulated-apiserver/runs-seconds";
const READY_SECONDS: &str = "simulated-apiserver/ready-seconds";

/// How a pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the binding to the phase Running; None: never, for example because an image cannot be pulled.
    pub starts_after: Option<Duration>,
    /// From there to readiness; None: never.
    pub ready_after: Option<Duration>,
    /// The reason why containers that never start wait, such as `ImagePullBackOff`.
    pub waits: Option<String>,
    /// Why the kubelet rejects the pod, such as `OutOfcpu`.
    pub rejected: Option<String>,
    /// From the start to the end of the containers; None: they run for ever.
    pub runs: Option<Duration>,
    /// How often the containers of a pod that restarts them always crash, right after they were started. Then they run.
    pub crashes: u32,
    /// The exit code of the containers.
    pub exit_code: i32,
    /// The termination message.
    pub message: String,
    /// How long the containers go on after SIGTERM, if the grace period allows.
    pub ends_after: Duration,
}

impl Default for Run {
    /// A server: ready after two seconds, and it ends one second after SIGTERM.
    fn default() -> Self {
        Self {
            starts_after: Some(Duration::from_secs(1)),
            ready_after: Some(Duration::from_secs(1)),
            waits: None,
            rejected: None,
            runs: None,
            crashes: 0,
            exit_code: 0,
            message: String::new(),
            ends_after: Duration::from_secs(1),
        }
    }
}

impl Run {
    /// As the pod's annotations `simulated-apiserver/exit-code`, `.../runs-seconds` and `.../ready-seconds` say. A pod
    /// that is not restarted runs one second if they say nothing.
    pub fn from_annotations(pod: &Value) -> Self {
        let annotation = |name: &str| {
            let value = pod["metadata"]["annotations"][name].as_str()?;
            value.parse::<i32>().ok()
        };
        let duration = |name: &str| {
            let number = annotation(name)?;
            Some(Duration::from_secs(
                u64::try_from(number).unwrap_or_default(),
            ))
        };
        let job = pod["spec"]["restartPolicy"] != "Always";
        let usual = Self::default();
        Self {
            runs: duration(RUNS_SECONDS).or(job.then_some(Duration::from_secs(1))),
            exit_code: annotation(EXIT_CODE).unwrap_or_default(),
            ready_after: duration(READY_SECONDS).or(usual.ready_after),
            ..usual
        }
    }
}

/// The behavior of pods and nodes.
#[derive(Clone)]
pub struct KubeletOptions {
    /// How long the scheduler takes.
    pub binds_after: Duration,
    /// How each pod runs, asked when it is bound.
    pub run: Arc<dyn Fn(&Value) -> Run + Send + Sync>,
    /// From the last report of a node to its condition Ready=Unknown.
    pub unknown_after: Duration,
    /// From there to the deletion of its pods, which stay until the node reports again; None: never.
    pub evicted_after: Option<Duration>,
}

impl Default for KubeletOptions {
    /// Pods run as their annotations say ([`Run::from_annotations`]). A node is unknown after 40 seconds, and its pods
    /// are deleted five minutes later.
    fn default() -> Self {
        Self {
            binds_after: Duration::from_millis(10),
            run: Arc::new(Run::from_annotations),
            unknown_after: Duration::from_secs(40),
            evicted_after: Some(Duration::from_secs(5 * 60)),
        }
    }
}
