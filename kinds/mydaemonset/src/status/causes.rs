//! How many nodes wait for what.

use std::collections::BTreeMap;

use super::{
    CANARY, DELETE_REFUSED, FAILED_CREATE, FAILED_DELETE, LABELS_CHANGED, NAME_CONFLICT,
    POD_REFUSED, REVISION_CONFLICT, REVISION_REFUSED, ROLLING_BACK, StatusInput, cause_of_progress,
    count,
};
use crate::cause::Cause;
use crate::crd::WaitingNodes;
use crate::decide::freeze::Freeze;
use crate::decide::observed::WaitsFor;
use crate::decide::undo::Undo;

/// The cause behind a reason of `Degraded=True`, if a call is rejected or fails that a node waits for.
pub fn cause_of_refusal(reason: &str, message: &str) -> Option<Cause> {
    match reason {
        REVISION_CONFLICT | REVISION_REFUSED => Some(Cause::RevisionNotStored),
        DELETE_REFUSED | FAILED_DELETE => Some(Cause::DeleteRefused),
        POD_REFUSED | FAILED_CREATE => Some(of_rejection(message)),
        NAME_CONFLICT | LABELS_CHANGED => Some(Cause::PodRefused),
        _ => None,
    }
}

/// Who rejects a pod, as the API server words it.
fn of_rejection(text: &str) -> Cause {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["exceeded quota", "failed quota"]) {
        Cause::QuotaExceeded
    } else if has(&["admission webhook", "failed calling webhook"]) {
        Cause::WebhookRefused
    } else if has(&["violates PodSecurity", "ValidatingAdmissionPolicy"]) {
        Cause::PolicyRefused
    } else {
        Cause::PodRefused
    }
}

/// How many nodes wait for each cause, while `Progressing` has that reason. On the way back, also those that are back wait:
/// for a revision of the spec that does not fail.
pub(super) fn waiting(input: &StatusInput<'_>, progress: &'static str) -> Vec<WaitingNodes> {
    let observed = input.observed;
    let refusal = input.refusal;
    let refusal = refusal.and_then(|it| cause_of_refusal(it.reason, &it.message));
    let cause = causes(input, progress, refusal);
    let mut nodes: BTreeMap<Cause, usize> = BTreeMap::new();
    for (waits_for, count) in &observed.waits_for {
        *nodes.entry(cause(*waits_for)).or_default() += count;
    }
    if matches!(input.undo, Undo::To(_)) && observed.reached > 0 {
        *nodes.entry(cause(WaitsFor::Hold)).or_default() += observed.reached;
    }
    let nodes = nodes.into_iter().map(|(cause, nodes)| WaitingNodes {
        cause: format!("{cause:?}"),
        nodes: count(nodes),
    });
    nodes.collect()
}

/// The cause behind what a node waits for, while `Progressing` has that reason and calls are rejected for that cause.
pub(crate) fn causes(
    input: &StatusInput<'_>,
    progress: &str,
    refusal: Option<Cause>,
) -> impl Fn(WaitsFor) -> Cause {
    // It goes on by itself, unless a call is rejected.
    let goes_on = [CANARY, ROLLING_BACK].contains(&progress);
    let hold = refusal.filter(|_| goes_on);
    let hold = hold.unwrap_or_else(|| hold_of(input, progress));
    let partition = match hold {
        // The next window is for the others.
        Cause::OutsideWindow | Cause::WaitingTurn => Cause::Partition,
        hold => hold,
    };
    // Only this does not hold all nodes.
    let domain = match hold {
        Cause::WaitingTurn => Cause::Domain,
        hold => hold,
    };
    let turn = refusal.unwrap_or(Cause::WaitingTurn);
    let goes_back = matches!(input.undo, Undo::To(_));
    let turn = if goes_back { hold } else { turn };
    let step = refusal.unwrap_or(Cause::Undetermined);
    let deletion = frozen(input).unwrap_or(step);
    let is_frozen = input.frozen.is_some_and(|it| it.freeze == Freeze::All);
    let step = if is_frozen { Cause::Frozen } else { step };
    move |waits_for| match waits_for {
        WaitsFor::Own(cause) => cause,
        WaitsFor::Hold => hold,
        WaitsFor::Partition => partition,
        WaitsFor::Domain => domain,
        WaitsFor::Turn => turn,
        WaitsFor::Step => step,
        WaitsFor::Deletion => deletion,
    }
}

/// What holds the nodes that the roll-out leaves as they are.
fn hold_of(input: &StatusInput<'_>, progress: &str) -> Cause {
    let (strategy, frozen) = (input.strategy, frozen(input));
    if let Some(cause) = frozen.filter(|_| progress == ROLLING_BACK) {
        // Not everything is held yet.
        cause
    } else if let Some(cause) = cause_of_progress(progress) {
        cause
    } else if !input.stored {
        Cause::RevisionNotStored
    } else if let Some(cause) = frozen {
        cause
    } else if strategy.on_delete {
        Cause::OnDelete
    } else if strategy.paused {
        Cause::Paused
    } else if input.observed.gate.is_closed {
        // What has begun goes on, so Progressing does not say so yet.
        Cause::OutsideWindow
    } else {
        // As by canaries that have just passed.
        Cause::WaitingTurn
    }
}

fn frozen(input: &StatusInput<'_>) -> Option<Cause> {
    match input.is_frozen() {
        Some(false) => None,
        Some(true) => Some(Cause::Frozen),
        // The namespaces are not listed yet.
        None => Some(Cause::Undetermined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::MyDaemonSetStatus;
    use crate::decide::observed::Observed;
    use crate::decide::strategy::Strategy;
    use crate::decide::window::Gate;
    use crate::status::tests::input;
    use crate::status::{
        AUTO_PAUSED, COMPLETE, FROZEN, Frozen, PAUSED, ROLLED_BACK, ROLLING_OUT, Refusal,
    };

    fn counted(input: &StatusInput<'_>, progress: &'static str) -> String {
        let counts = waiting(input, progress).into_iter();
        let counts = counts.map(|it| format!("{} {}", it.cause, it.nodes));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// What is counted of one node that waits for each, and of two that have the revision.
    #[test]
    fn nodes_are_counted_by_what_they_wait_for() {
        let each = [
            WaitsFor::Own(Cause::Cordoned),
            WaitsFor::Own(Cause::WaitingTurn),
            WaitsFor::Hold,
            WaitsFor::Partition,
            WaitsFor::Domain,
            WaitsFor::Turn,
            WaitsFor::Step,
            WaitsFor::Deletion,
        ];
        let observed = Observed {
            waits_for: each.map(|it| (it, 1)).into(),
            reached: 2,
            ..Observed::default()
        };
        let previous = MyDaemonSetStatus::default();
        let base = || input(&previous, &observed);
        let rolling = "Cordoned 1, Partition 1, Domain 1, WaitingTurn 3, Undetermined 2";
        for progress in [ROLLING_OUT, COMPLETE] {
            assert_eq!(counted(&base(), progress), rolling);
        }
        let canary = "Cordoned 1, Canary 3, WaitingTurn 2, Undetermined 2";
        assert_eq!(counted(&base(), CANARY), canary);
        let held = StatusInput {
            strategy: Strategy {
                paused: true,
                ..base().strategy
            },
            ..base()
        };
        let paused = "Cordoned 1, Paused 3, WaitingTurn 2, Undetermined 2";
        assert_eq!(counted(&held, PAUSED), paused);
        let outside = Observed {
            gate: Gate {
                is_closed: true,
                until: None,
            },
            ..observed.clone()
        };
        let begun = StatusInput {
            observed: &outside,
            ..base()
        };
        let window = "Cordoned 1, OutsideWindow 2, Partition 1, WaitingTurn 2, Undetermined 2";
        assert_eq!(counted(&begun, ROLLING_OUT), window);
        let not_stored = StatusInput {
            stored: false,
            ..base()
        };
        assert_eq!(
            counted(&not_stored, ROLLING_OUT),
            "Cordoned 1, RevisionNotStored 3, WaitingTurn 2, Undetermined 2"
        );
        let frozen = |freeze| StatusInput {
            frozen: Some(Frozen {
                freeze,
                own: Some("by me"),
                of_namespace: None,
                is_settled: true,
            }),
            ..base()
        };
        let text = "Cordoned 1, Frozen 5, WaitingTurn 2";
        assert_eq!(counted(&frozen(Freeze::All), FROZEN), text);
        let text = "Cordoned 1, Frozen 4, WaitingTurn 2, Undetermined 1";
        for progress in [FROZEN, ROLLING_BACK] {
            assert_eq!(counted(&frozen(Freeze::Deletions), progress), text);
        }
        // A rejected call keeps all that goes on by itself.
        let quota = Refusal {
            reason: FAILED_CREATE,
            message: "exceeded quota: few".to_owned(),
            node: None,
        };
        let rejected = StatusInput {
            refusal: Some(&quota),
            ..base()
        };
        let text = "Cordoned 1, QuotaExceeded 6, WaitingTurn 1";
        assert_eq!(counted(&rejected, CANARY), text);
        let text = "Cordoned 1, QuotaExceeded 3, AutoPaused 3, WaitingTurn 1";
        assert_eq!(counted(&rejected, AUTO_PAUSED), text);
        // Those that are back do not have the revision of the spec.
        let back = StatusInput {
            undo: Undo::To("old"),
            ..base()
        };
        let text = "Cordoned 1, RollingBack 6, WaitingTurn 1, Undetermined 2";
        assert_eq!(counted(&back, ROLLING_BACK), text);
        let text = "Cordoned 1, RolledBack 6, WaitingTurn 1, Undetermined 2";
        assert_eq!(counted(&back, ROLLED_BACK), text);
    }

    #[test]
    fn who_rejects_a_call_is_named() {
        for (reason, message, cause) in [
            (POD_REFUSED, "exceeded quota: q", Some(Cause::QuotaExceeded)),
            (
                FAILED_CREATE,
                "failed calling webhook \"w\"",
                Some(Cause::WebhookRefused),
            ),
            (
                POD_REFUSED,
                "violates PodSecurity \"baseline\"",
                Some(Cause::PolicyRefused),
            ),
            (POD_REFUSED, "no", Some(Cause::PodRefused)),
            (NAME_CONFLICT, "taken", Some(Cause::PodRefused)),
            (DELETE_REFUSED, "no", Some(Cause::DeleteRefused)),
            (REVISION_CONFLICT, "taken", Some(Cause::RevisionNotStored)),
            ("PodsFail", "a (Error)", None),
        ] {
            assert_eq!(cause_of_refusal(reason, message), cause, "{message}");
        }
    }
}
