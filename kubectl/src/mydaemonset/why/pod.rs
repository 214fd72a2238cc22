//! Why a pod is not available: what its status and its Events say.

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use my_operator_kind::watched::utc;

use super::cause::{Cause, Reason};
use super::facts::{PodFacts, Warning};
use crate::mydaemonset::starting::{self, Wait};

/// A pod that is deleted may outlive its grace period by so much: the clocks differ, and its kubelet has to report.
const LATE: TimeDelta = TimeDelta::seconds(30);

/// Why the pod, which is not available, is not.
pub(super) fn reason(pod: &PodFacts, warnings: &[Warning], now: DateTime<Utc>) -> Reason {
    let view = &pod.view;
    let reason = match pod.full.as_deref() {
        _ if view.is_ready() => Reason::new(Cause::MinReady, "").since(view.ready_since),
        Some(full) if view.deleting => leaving(full, now),
        Some(full) if view.ended.is_some() => ended(full),
        Some(full) => running(full, view.trouble.as_deref(), warnings),
        None => {
            let trouble = view.trouble.as_deref();
            Reason::new(
                trouble.map_or(Cause::Undetermined, Cause::of_trouble),
                trouble.unwrap_or_default(),
            )
        }
    };
    let since = reason.since.or(view.ended).or(view.unready_since);
    reason.since(since).of_pod(&view.name)
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

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_)
}

/// What a condition says; its reason, if it has no message.
fn words(condition: &PodCondition) -> &str {
    let message = condition.message.as_deref().filter(|text| !text.is_empty());
    message.or(condition.reason.as_deref()).unwrap_or_default()
}

/// That the pod was ended from outside, if the condition says so.
fn disrupted(pod: &Pod) -> Option<Reason> {
    let condition = condition(pod, "DisruptionTarget").filter(|it| it.status == "True")?;
    let since = utc(condition.last_transition_time.as_ref());
    Some(Reason::new(Cause::Evicted, words(condition)).since(since))
}

/// Of a pod that is being deleted.
fn leaving(pod: &Pod, now: DateTime<Utc>) -> Reason {
    // The API server has added the grace period.
    let due = utc(pod.metadata.deletion_timestamp.as_ref());
    if due.is_some_and(|due| now > due + LATE) {
        let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default();
        let reason = if finalizers.is_empty() {
            Reason::new(Cause::NotEnding, "it outlives its grace period")
        } else {
            Reason::new(Cause::HeldByFinalizer, &finalizers.join(", "))
        };
        return reason.since(due);
    }
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let grace = TimeDelta::try_seconds(grace);
    let asked = due.zip(grace);
    let asked = asked.and_then(|(due, grace)| due.checked_sub_signed(grace));
    disrupted(pod).unwrap_or_else(|| Reason::new(Cause::Terminating, "").since(asked))
}

/// Of a pod that has ended: by itself, or because its kubelet did not admit it or ended it.
fn ended(pod: &Pod) -> Reason {
    let status = pod.status.as_ref();
    let word = status.and_then(|status| status.reason.as_deref());
    let message = status.and_then(|status| status.message.as_deref());
    let message = message.or(word).unwrap_or_default();
    match word.unwrap_or_default() {
        "Evicted" | "Preempting" | "NodeShutdown" | "Terminated" => {
            Reason::new(Cause::Evicted, message)
        }
        "NodePorts" => Reason::new(Cause::HostPort, message),
        word if word.starts_with("OutOf") => Reason::new(Cause::Resources, message),
        "" => disrupted(pod).unwrap_or_else(|| {
            let words = status.and_then(last_end);
            Reason::new(Cause::CrashLoop, words.as_deref().unwrap_or_default())
        }),
        _ => Reason::new(Cause::KubeletRefused, message),
    }
}

/// Of a pod that may still become available. `trouble` is what the operator would say is wrong with it.
fn running(pod: &Pod, trouble: Option<&str>, warnings: &[Warning]) -> Reason {
    let status = pod.status.as_ref();
    let restarts = || {
        let words = status.and_then(last_end);
        trouble.map(|trouble| {
            Reason::new(
                Cause::of_trouble(trouble),
                words.as_deref().unwrap_or(trouble),
            )
        })
    };
    unscheduled(pod)
        .or_else(|| status.and_then(troubled))
        .or_else(restarts)
        .unwrap_or_else(|| waiting(pod, warnings))
}

/// That the scheduler has no place for it. It only sees a pod where a webhook has taken the node out again: the operator
/// binds its pods itself.
fn unscheduled(pod: &Pod) -> Option<Reason> {
    let condition = condition(pod, "PodScheduled").filter(|it| it.status == "False")?;
    let message = words(condition);
    let cause = if message.contains("free ports") {
        Cause::HostPort
    } else if message.contains("Insufficient") || message.contains("Too many pods") {
        Cause::Resources
    } else {
        Cause::Undetermined
    };
    let since = utc(condition.last_transition_time.as_ref());
    Some(Reason::new(cause, message).since(since))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

/// The first container that cannot run, or has just failed.
fn troubled(status: &PodStatus) -> Option<Reason> {
    containers(status).find_map(|container| {
        let (name, state) = (&container.name, container.state.as_ref()?);
        if let Some(end) = &state.terminated {
            let failed = end.exit_code != 0;
            return failed.then(|| Reason::new(Cause::CrashLoop, &how_ended(container)));
        }
        let waiting = state.waiting.as_ref()?;
        let word = waiting.reason.as_deref()?;
        let cause = Cause::of_trouble(word);
        let message = waiting.message.as_deref().unwrap_or_default();
        match cause {
            Cause::Undetermined => None,
            Cause::CrashLoop => Some(Reason::new(cause, &how_ended(container))),
            _ => Some(Reason::new(
                cause,
                &format!("container {name}: {word}: {message}"),
            )),
        }
    })
}

/// How the first container that has failed ended last.
fn last_end(status: &PodStatus) -> Option<String> {
    let has_ended = |container: &&ContainerStatus| {
        let ends = [&container.state, &container.last_state];
        let mut ends = ends.into_iter().flatten();
        ends.any(|state| state.terminated.is_some())
    };
    containers(status).find(has_ended).map(how_ended)
}

/// How a container ended last, and how often it was restarted.
fn how_ended(container: &ContainerStatus) -> String {
    let states = [&container.state, &container.last_state];
    let mut states = states.into_iter().flatten();
    let end = states.find_map(|state| state.terminated.as_ref());
    let mut text = format!("container {}", container.name);
    if let Some(end) = end {
        let reason = end.reason.as_deref().unwrap_or("no reason");
        text = format!("{text} ended with exit code {} ({reason})", end.exit_code);
    }
    text = format!("{text}, restarts: {}", container.restart_count);
    match end.and_then(|end| end.message.as_deref()) {
        Some(message) if !message.is_empty() => format!("{text}: {message}"),
        _ => text,
    }
}

/// Of a pod with which nothing is wrong that its status shows.
fn waiting(pod: &Pod, warnings: &[Warning]) -> Reason {
    let Some(wait) = starting::wait(pod) else {
        return Reason::new(Cause::NotStarted, "");
    };
    let is_created = !matches!(wait, Wait::Container(_) | Wait::Kubelet);
    if let Some(reason) = creation(warnings).filter(|_| !is_created) {
        return reason;
    }
    let has_gates = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.readiness_gates.iter().flatten().next().is_some());
    let cause = match &wait {
        Wait::Container(_) => Cause::Starting,
        Wait::Init(_) => Cause::InitContainer,
        Wait::StartupProbe(_) => Cause::StartupProbe,
        Wait::ReadinessProbe(_) => Cause::ReadinessProbe,
        Wait::Ready(_) if has_gates => Cause::ReadinessGate,
        Wait::Ready(_) => Cause::Undetermined,
        Wait::Kubelet => Cause::NotStarted,
    };
    let answer = match cause {
        Cause::StartupProbe => probed(warnings, "Startup"),
        Cause::ReadinessProbe => probed(warnings, "Readiness"),
        _ => None,
    };
    Reason::new(cause, answer.unwrap_or(&wait.to_string()))
}

/// The latest of the Events with such a reason.
fn latest(warnings: &[Warning], is: impl Fn(&Warning) -> bool) -> Option<&Warning> {
    let found = warnings.iter().filter(|warning| is(warning));
    found.max_by_key(|warning| warning.at)
}

/// What keeps the kubelet from the creation of the containers.
fn creation(warnings: &[Warning]) -> Option<Reason> {
    let of_reason = |warning: &Warning| match warning.reason.as_str() {
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => Some(Cause::VolumeMount),
        "FailedCreatePodSandBox" | "NetworkNotReady" => Some(Cause::PodSandbox),
        _ => None,
    };
    let warning = latest(warnings, |warning| of_reason(warning).is_some())?;
    let message = warning.message.as_str();
    let is_missing = message.contains("not found")
        && ["configmap \"", "secret \""]
            .into_iter()
            .any(|kind| message.contains(kind));
    let cause = match of_reason(warning)? {
        Cause::VolumeMount if is_missing => Cause::ContainerConfig,
        cause => cause,
    };
    Some(Reason::new(cause, message))
}

/// What a probe last answered.
fn probed<'a>(warnings: &'a [Warning], probe: &str) -> Option<&'a str> {
    let is =
        |warning: &Warning| warning.reason == "Unhealthy" && warning.message.starts_with(probe);
    latest(warnings, is).map(|warning| warning.message.as_str())
}
