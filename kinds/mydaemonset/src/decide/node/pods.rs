//! Questions about one pod.

use chrono::{DateTime, TimeDelta, Utc};

use crate::cause::Cause;
use crate::decide::input::RolloutInput;
use crate::observe::pod::PodView;

/// This many restarts of a container are a crash loop.
const CRASH_RESTARTS: u32 = 2;
/// Failures of a pod that point at its revision.
const FATAL: &[&str] = &[
    "CrashLoopBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PostStartHookError",
];
/// Failures to pull an image. A registry that throttles, or a name that is not resolved, is over in seconds.
const PULL: &[&str] = &["ErrImagePull", "ImagePullBackOff"];
/// How long an image may fail to be pulled.
const PULL_TIMEOUT: TimeDelta = TimeDelta::minutes(1);
/// A pod that has restarted is steady when it has been Ready for this long.
const STEADY: TimeDelta = TimeDelta::minutes(10);

/// From when on the pod fails in a way that points at its revision, if it does.
pub(super) fn crashes_from(pod: &PodView) -> Option<DateTime<Utc>> {
    let trouble = pod.trouble.as_deref().unwrap_or_default();
    if PULL.contains(&trouble) {
        return Some(pod.initialized.unwrap_or(pod.created) + PULL_TIMEOUT);
    }
    (FATAL.contains(&trouble) || pod.restarts >= CRASH_RESTARTS).then_some(pod.created)
}

/// Whether a Ready pod is so for good, and not for a moment between two crashes.
pub(super) fn is_steady(pod: &PodView, input: &RolloutInput<'_>) -> bool {
    let for_long = |since: DateTime<Utc>| since + STEADY <= input.now;
    pod.restarts < CRASH_RESTARTS || pod.ready_since.is_some_and(for_long)
}

/// Whether a pod has been ready for long enough.
pub(super) fn is_available(pod: &PodView, input: &RolloutInput<'_>) -> bool {
    pod.is_available(input.strategy.min_ready, input.now)
}

/// Why a pod that is not available is not.
pub(super) fn why_unavailable(pod: &PodView) -> Cause {
    let times = pod.initialized.zip(pod.unready_since);
    let was_ready = times.is_some_and(|(initialized, unready)| unready > initialized);
    match pod.trouble.as_deref() {
        _ if pod.is_ready() => Cause::MinReady,
        _ if pod.disrupted => Cause::Evicted,
        _ if pod.deleting => Cause::Terminating,
        Some(trouble) => Cause::of_trouble(trouble),
        None if was_ready => Cause::Undetermined,
        None => Cause::Starting,
    }
}
