//! `spec.updateStrategy` as numbers.

use std::fmt;

use chrono::TimeDelta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::{self, MyDaemonSetSpec};

/// `spec.updateStrategy.type`: the operator replaces pods.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";
/// `spec.updateStrategy.type`: users delete pods.
pub(crate) const ON_DELETE: &str = "OnDelete";

/// `spec.updateStrategy.rollingUpdate.onFailure`: the roll-out stops.
pub(crate) const PAUSE: &str = "Pause";
/// The same: the pods go back to the revision of the last roll-out that was completed.
pub(crate) const UNDO: &str = "Undo";

/// The default of `maxUnavailable`.
pub(crate) const DEFAULT_MAX_UNAVAILABLE: u16 = 1;
/// The default of `maxSurge`.
pub(crate) const DEFAULT_MAX_SURGE: u16 = 0;
/// The default of `progressDeadlineSeconds`, as for a Deployment, where `minReadySeconds` is 0.
pub(crate) const DEFAULT_PROGRESS_DEADLINE: i32 = 600;
/// The default of `autoPause.windowSeconds`.
pub(crate) const DEFAULT_WINDOW: i32 = 600;

/// How a change reaches the nodes: the spec's strategy as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Users delete pods; the operator only creates the missing ones.
    pub on_delete: bool,
    /// On how many nodes the pod may be unavailable.
    pub(crate) max_unavailable: Amount,
    /// On how many nodes the new pod may run next to the old one.
    pub(crate) max_surge: Amount,
    /// How many nodes, the last by name, stay as they are.
    pub partition: usize,
    /// Whether the roll-out is paused.
    pub paused: bool,
    /// How long a pod must have been ready to count as available.
    pub min_ready: TimeDelta,
    /// How long after its creation a pod of a new revision may be unavailable.
    pub progress_deadline: TimeDelta,
    /// When the roll-out stops by itself; `None` if it does not.
    pub auto_pause: Option<AutoPause>,
    /// Whether the pods then go back to the revision of the last roll-out that was completed.
    pub(crate) undoes: bool,
}

/// When a roll-out stops because of failing nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoPause {
    /// At how many failing nodes; `None` follows `maxUnavailable`.
    pub max_failures: Option<usize>,
    /// For how long after the creation of its pod a failing node counts.
    pub window: TimeDelta,
}

impl Strategy {
    /// The strategy of a valid, defaulted spec.
    pub fn from_spec(spec: &MyDaemonSetSpec) -> Self {
        let strategy = spec.update_strategy.clone().unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let amount = |value: Option<_>, default| {
            value
                .and_then(|v| Amount::parse(&v).ok())
                .unwrap_or(Amount::Nodes(u32::from(default)))
        };
        Self {
            on_delete: strategy.type_.as_deref() == Some(ON_DELETE),
            max_unavailable: amount(rolling.max_unavailable, DEFAULT_MAX_UNAVAILABLE),
            max_surge: amount(rolling.max_surge, DEFAULT_MAX_SURGE),
            partition: rolling
                .partition
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or_default(),
            paused: rolling.paused.unwrap_or_default(),
            min_ready: TimeDelta::seconds(spec.min_ready_seconds.unwrap_or_default().into()),
            progress_deadline: TimeDelta::seconds(progress_deadline(spec).into()),
            undoes: rolling.on_failure.as_deref() == Some(UNDO),
            auto_pause: auto_pause(&rolling.auto_pause.unwrap_or_default()),
        }
    }

    /// The limit that spaces the steps of a roll-out, as the spec has it.
    pub(crate) fn limit(&self) -> String {
        if self.max_surge.is_zero() {
            format!("maxUnavailable {}", self.max_unavailable)
        } else {
            format!("maxSurge {}", self.max_surge)
        }
    }
}

/// `spec.progressDeadlineSeconds`, or its default: a pod that becomes Ready late must have time to stay so. The webhook does
/// not write the default: a later, larger `minReadySeconds` would contradict it.
fn progress_deadline(spec: &MyDaemonSetSpec) -> i32 {
    let min_ready = spec.min_ready_seconds.unwrap_or_default().max(0);
    let default = DEFAULT_PROGRESS_DEADLINE.saturating_add(min_ready);
    spec.progress_deadline_seconds.unwrap_or(default)
}

fn auto_pause(spec: &crd::AutoPause) -> Option<AutoPause> {
    let seconds = spec.window_seconds.unwrap_or(DEFAULT_WINDOW);
    let max_failures = spec.max_failures.and_then(|n| usize::try_from(n).ok());
    spec.enabled.unwrap_or(true).then(|| AutoPause {
        max_failures,
        window: TimeDelta::seconds(seconds.into()),
    })
}

/// A number of nodes, or a percentage of those that should have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// That many nodes.
    Nodes(u32),
    /// That many hundredths of the nodes that should have a pod, from 0 to 100.
    Percent(u32),
}

impl Amount {
    /// Parses the value of a field, or says what is wrong with it in the API's words.
    pub(crate) fn parse(value: &IntOrString) -> Result<Self, &'static str> {
        match value {
            IntOrString::Int(number) => u32::try_from(*number)
                .map(Self::Nodes)
                .map_err(|_| "must be greater than or equal to 0"),
            IntOrString::String(text) => {
                let digits = text
                    .strip_suffix('%')
                    .filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
                    .ok_or("must be an integer or a percentage (e.g. \"5%\")")?;
                match digits.parse() {
                    Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                    _ => Err("must not be greater than 100%"),
                }
            }
        }
    }

    /// The amount as a number of nodes out of `total`. A percentage is rounded up, as in the built-in `DaemonSet`.
    pub(crate) fn scaled(self, total: usize) -> usize {
        match self {
            Self::Nodes(nodes) => nodes as usize,
            Self::Percent(percent) => (total * percent as usize).div_ceil(100),
        }
    }

    /// Whether it is zero of any total.
    pub(crate) fn is_zero(self) -> bool {
        matches!(self, Self::Nodes(0) | Self::Percent(0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_up() {
        for (percent, total, nodes) in [(0, 10, 0), (1, 10, 1), (50, 3, 2), (100, 7, 7), (20, 0, 0)]
        {
            assert_eq!(Amount::Percent(percent).scaled(total), nodes);
        }
        assert_eq!(Amount::Nodes(5).scaled(3), 5);
    }
}
