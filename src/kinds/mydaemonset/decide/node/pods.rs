//! Questions about one pod.

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

/// Whether a pod has been ready for long enough.
pub(super) fn is_available(pod: &PodView, input: &RolloutInput<'_>) -> bool {
    pod.is_available(input.strategy.min_ready, input.now)
}
