//! What a pod that is not available shows on a closer look: in its status and its Events.

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use my_operator_kind::watched::utc;
use my_operator_mydaemonset::cause::Cause;

use super::facts::{PodFacts, Warning};
use super::reason::Reason;
use crate::mydaemonset::failing::statuses;
use crate::mydaemonset::starting;

/// A pod that is deleted may outlive its grace period by so much: the clocks differ, and its kubelet has to report.
const LATE: TimeDelta = TimeDelta::seconds(30);

/// What a pod shows that is not Ready, and of which the operator finds that cause, or another that is not about the pod.
pub(super) fn reason(
    cause: Cause,
    pod: &PodFacts,
    warnings: &[Warning],
    now: DateTime<Utc>,
) -> Reason {
    let view = &pod.view;
    let is_known = cause.is_of_pod() && ![Cause::Starting, Cause::Undetermined].contains(&cause);
    let reason = match pod.full.as_deref() {
        None => Reason::new(cause, view.trouble.as_deref().unwrap_or_default(), None),
        Some(full) if view.deleting => leaving(full, now),
        Some(full) if is_known => known(cause, full),
        Some(full) if view.ended.is_some() => ended(full),
        Some(full) => unscheduled(full).unwrap_or_else(|| waiting(full, warnings)),
    };
    let since = reason.since.or(view.ended).or(view.unready_since);
    Reason { since, ..reason }
}

/// Whether an Event may say more than was found without one.
pub(super) fn wants_events(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Starting
            | Cause::NotStarted
            | Cause::StartupProbe
            | Cause::ReadinessProbe
            | Cause::Undetermined
    )
}

fn condition<'a>(pod: &'a Pod, type_: &str, status: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == status)
}

/// The cause with what a condition says; with its reason, if it has no message.
fn of_condition(cause: Cause, condition: &PodCondition) -> Reason {
    let message = condition.message.as_deref().filter(|text| !text.is_empty());
    let message = message.or(condition.reason.as_deref()).unwrap_or_default();
    Reason::new(cause, message, utc(condition.last_transition_time.as_ref()))
}

/// That the pod was ended from outside, if the condition says so.
fn disrupted(pod: &Pod) -> Option<Reason> {
    let condition = condition(pod, "DisruptionTarget", "True")?;
    Some(of_condition(Cause::Evicted, condition))
}

/// Of a pod that is being deleted.
fn leaving(pod: &Pod, now: DateTime<Utc>) -> Reason {
    // The API server has added the grace period.
    let due = utc(pod.metadata.deletion_timestamp.as_ref());
    if due.is_some_and(|due| now > due + LATE) {
        let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default();
        return if finalizers.is_empty() {
            Reason::new(Cause::NotEnding, "it outlives its grace period", due)
        } else {
            Reason::new(Cause::HeldByFinalizer, &finalizers.join(", "), due)
        };
    }
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let grace = TimeDelta::try_seconds(grace);
    let asked = due.zip(grace);
    let asked = asked.and_then(|(due, grace)| due.checked_sub_signed(grace));
    disrupted(pod).unwrap_or_else(|| Reason::new(Cause::Terminating, "", asked))
}

/// Of a pod with a cause that the operator knows: what its kubelet says.
fn known(cause: Cause, pod: &Pod) -> Reason {
    if let Some(disrupted) = disrupted(pod).filter(|it| it.cause == cause) {
        return disrupted;
    }
    let said = match cause {
        Cause::CrashLoop => last_end(pod),
        _ => statuses(pod).find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let word = waiting.reason.as_deref()?;
            let message = waiting.message.as_deref().unwrap_or_default();
            let text = format!("container {}: {word}: {message}", container.name);
            (Cause::of_trouble(word) == cause).then_some(text)
        }),
    };
    Reason::new(cause, said.as_deref().unwrap_or(of_status(pod)), None)
}

/// What the status of an ended pod says.
fn of_status(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref());
    let word = || status.and_then(|status| status.reason.as_deref());
    message.or_else(word).unwrap_or_default()
}

/// Of a pod that has ended, with a word that the operator does not know: of its kubelet, or of a container.
fn ended(pod: &Pod) -> Reason {
    let word = pod.status.as_ref().and_then(|it| it.reason.as_deref());
    match word.unwrap_or_default() {
        "" => known(Cause::CrashLoop, pod),
        _ => known(Cause::KubeletRefused, pod),
    }
}

/// That the scheduler has no place for it. It only sees a pod where a webhook has taken the node out again: the operator
/// binds its pods itself.
fn unscheduled(pod: &Pod) -> Option<Reason> {
    let condition = condition(pod, "PodScheduled", "False")?;
    let mut reason = of_condition(Cause::Undetermined, condition);
    let has = |text| reason.message.contains(text);
    if has("free ports") {
        reason.cause = Cause::HostPort;
    } else if has("Insufficient") || has("Too many pods") {
        reason.cause = Cause::Resources;
    }
    Some(reason)
}

/// How the first container that has failed, or was restarted, ended last, and how often it was restarted.
fn last_end(pod: &Pod) -> Option<String> {
    statuses(pod).find_map(|container| {
        let ends = [&container.state, &container.last_state];
        let mut ends = ends.into_iter().flatten();
        let end = ends.find_map(|end| end.terminated.as_ref());
        let has_failed = end.is_some_and(|end| end.exit_code != 0);
        if !has_failed && container.restart_count == 0 {
            return None;
        }
        let mut text = format!("container {}", container.name);
        if let Some(end) = end {
            let reason = end.reason.as_deref().unwrap_or("no reason");
            text = format!("{text} ended with exit code {} ({reason})", end.exit_code);
        }
        text = format!("{text}, restarts: {}", container.restart_count);
        Some(match end.and_then(|end| end.message.as_deref()) {
            Some(message) if !message.is_empty() => format!("{text}: {message}"),
            _ => text,
        })
    })
}

/// Of a pod with which nothing is wrong that the operator knows.
fn waiting(pod: &Pod, warnings: &[Warning]) -> Reason {
    let (cause, text) = starting::wait(pod).unwrap_or((Cause::NotStarted, String::new()));
    // Until a container is created, its volumes and the sandbox may be missing.
    if !text.is_empty()
        && !has_containers(cause)
        && let Some(reason) = creation(warnings)
    {
        return reason;
    }
    let answer = match cause {
        Cause::StartupProbe => probed(warnings, "Startup"),
        Cause::ReadinessProbe => probed(warnings, "Readiness"),
        Cause::Starting | Cause::NotStarted => None,
        cause if has_containers(cause) => None,
        cause => return known(cause, pod),
    };
    Reason::new(cause, answer.unwrap_or(&text), None)
}

/// Whether a pod that waits for that has containers.
fn has_containers(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::InitContainer
            | Cause::StartupProbe
            | Cause::ReadinessProbe
            | Cause::ReadinessGate
            | Cause::Undetermined
    )
}

/// What keeps the kubelet from the creation of the containers.
fn creation(warnings: &[Warning]) -> Option<Reason> {
    let found = warnings.iter().filter_map(|warning| {
        let cause = match warning.reason.as_str() {
            "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => Cause::VolumeMount,
            "FailedCreatePodSandBox" | "NetworkNotReady" => Cause::PodSandbox,
            _ => return None,
        };
        Some((cause, warning))
    });
    let (mut cause, latest) = found.max_by_key(|(_, warning)| warning.at)?;
    let message = latest.message.as_str();
    let is_of_config = message.contains("configmap \"") || message.contains("secret \"");
    if cause == Cause::VolumeMount && is_of_config && message.contains("not found") {
        cause = Cause::ContainerConfig;
    }
    Some(Reason::new(cause, message, None))
}

/// What a probe last answered.
fn probed<'a>(warnings: &'a [Warning], probe: &str) -> Option<&'a str> {
    let answers = warnings.iter().filter(|it| it.reason == "Unhealthy");
    let answers = answers.filter(|it| it.message.starts_with(probe));
    let latest = answers.max_by_key(|warning| warning.at)?;
    Some(&latest.message)
}
