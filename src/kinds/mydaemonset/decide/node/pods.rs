//! Questions about one pod.

use chrono::{DateTime, TimeDelta, Utc};

use crate::kinds::mydaemonset::decide::input::RolloutInput;
use crate::kinds::mydaemonset::observe::pod::PodView;

/// This many restarts of a container are a crash loop.
const CRASH_RESTARTS: u32 = 2;
/// Failures of a pod that point at its revision.
const FATAL: &[&str] = &[
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
];

/// Whether the pod is failing in a way that points at its revision.
pub(super) fn is_crashing(pod: &PodView) -> bool {
    pod.trouble.as_deref().is_some_and(|t| FATAL.contains(&t)) || pod.restarts >= CRASH_RESTARTS
}

/// When a pod has been ready for long enough.
pub(super) fn available_at(pod: &PodView, min_ready: TimeDelta) -> Option<DateTime<Utc>> {
    pod.ready_since
        .filter(|_| pod.is_ready())
        .map(|since| since + min_ready)
}

pub(super) fn is_available(pod: &PodView, input: &RolloutInput<'_>) -> bool {
    // A time in the future means that a clock was set back: nothing waits for it.
    let was_set_back = pod.ready_since.is_some_and(|since| since > input.now);
    let at = available_at(pod, input.strategy.min_ready);
    at.is_some_and(|at| at <= input.now || was_set_back)
}
