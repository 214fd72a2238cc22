//! Failed calls: how they are reported, and whether a retry may fix them.

use kube::core::Status;

use super::batch::Flow;
use crate::memory::backoffs::{Nature, Problem};
use crate::memory::belief::Answer;
use crate::names::NAME_LABEL;
use crate::status::{
    FAILED_CREATE, LABELS_CHANGED, NAME_CONFLICT, POD_REFUSED, REVISION_CONFLICT, REVISION_REFUSED,
    Refusal,
};
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::Error;
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// A failed call.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) problem: Problem,
    /// If a retry may fix it.
    pub(super) error: Option<Error>,
    /// The API server rejects this call. It may accept the same call about another object.
    pub(super) is_rejection: bool,
}

impl Failure {
    /// For a call about a pod on a node. `rejected` is its reason if the API server rejects the
    /// call as it is, `failed` otherwise.
    pub(super) fn new(
        error: Error,
        rejected: Option<&'static str>,
        failed: &'static str,
        name: &str,
        node: Option<&str>,
    ) -> Self {
        let code = error.status().map(|status| status.code);
        let (reason, nature) = match (error.refusal(), code, rejected) {
            (Some(_), Some(400..=499), Some(rejected)) => (rejected, Nature::Refused),
            (Some(_), ..) => (failed, Nature::Blocked),
            (None, ..) => (failed, Nature::Failed),
        };
        let problem = Problem {
            refusal: Refusal {
                reason,
                // The same failure of another pod must not change the message.
                message: error.cause().replace(name, "..."),
                node: node.map(str::to_owned),
            },
            nature,
        };
        let is_rejection = error.refusal().is_some() && matches!(code, Some(400..=499));
        let error = (nature == Nature::Failed).then_some(error);
        Self {
            problem,
            error,
            is_rejection,
        }
    }

    /// A pod was not created.
    pub(super) fn not_created(error: Error, pod: &str, node: &str) -> Self {
        Self::not_made(error, POD_REFUSED, pod, Some(node))
    }

    /// The revision of the spec was not stored.
    pub(super) fn not_stored(error: Error, revision: &str) -> Self {
        let mut failure = Self::not_made(error, REVISION_REFUSED, revision, None);
        let message = &mut failure.problem.refusal.message;
        *message = format!("the ControllerRevision {revision} cannot be stored: {message}");
        failure
    }

    fn not_made(error: Error, refused: &'static str, name: &str, node: Option<&str>) -> Self {
        let status = error.status();
        let details = status.and_then(|status| status.details.as_ref());
        let mut causes = details.into_iter().flat_map(|details| &details.causes);
        let is_ending = causes.any(|cause| cause.reason == "NamespaceTerminating");
        let mut failure = Self::new(error, Some(refused), FAILED_CREATE, name, node);
        if is_ending {
            // The object is deleted, too.
            failure.problem.nature = Nature::Expected;
        }
        failure
    }

    /// Whether a dry run failed because a webhook supports none (decision 0017). Only these words of the API say so.
    pub(super) fn is_about_dry_runs(&self) -> bool {
        self.problem
            .refusal
            .message
            .contains("does not support dry run")
    }

    /// A foreign object blocks the name of the revision.
    pub(super) fn revision_conflict(reason: String) -> Self {
        Self::refused(REVISION_CONFLICT, reason)
    }

    /// A foreign pod has the name of one to create.
    pub(super) fn name_taken(pod: &str) -> Self {
        Self::refused(
            NAME_CONFLICT,
            format!(
                "the pod {pod} exists but does not belong to this object, or its labels were changed; delete it"
            ),
        )
    }

    /// A created pod came back with other labels than ours.
    pub(super) fn labels_changed(owner: &str) -> Self {
        Self::refused(
            LABELS_CHANGED,
            format!(
                "an admission webhook changes the labels of new pods: {MANAGED_BY} must stay {MANAGER}, and {NAME_LABEL} {owner}"
            ),
        )
    }

    fn refused(reason: &'static str, message: String) -> Self {
        let refusal = Refusal {
            reason,
            message,
            node: None,
        };
        let nature = Nature::Refused;
        Self {
            problem: Problem { refusal, nature },
            error: None,
            is_rejection: true,
        }
    }
}

/// Adds a failure to that of earlier calls of a step. A rejection of one pod may not apply to others; any other failure,
/// such as a webhook that does not answer in time, would meet them as well. The error with the longest pause is kept.
pub(super) fn add(first: &mut Option<Failure>, failure: Failure) -> Flow {
    let flow = if failure.is_rejection {
        Flow::Steady
    } else {
        Flow::Stop
    };
    let pause = |failure: &Failure| {
        let error = failure.error.as_ref();
        error.map(|error| error.retry_after().unwrap_or_default())
    };
    let is_worse = |first: &Failure| pause(first) < pause(&failure);
    if first.as_ref().is_none_or(is_worse) {
        *first = Some(failure);
    }
    flow
}

/// What an error says about the call.
pub(super) fn answer(error: &Error) -> Answer {
    if error.is_definite() {
        Answer::Refused
    } else {
        Answer::Unknown
    }
}

/// An object that is gone or was replaced by a namesake counts as deleted.
pub(super) fn done_or_gone(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// Whether a call about an object of that UID found none, or another one of its name.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error.category(), "NotFound" | "Conflict")
}

pub(super) fn is_already_there(error: &Error) -> bool {
    error.status().is_some_and(Status::is_already_exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wall_clock_controller::reconcile::Key;

    fn failure(code: u16, message: &str) -> Failure {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = Error::Api {
            step: "create a pod",
            object: Key::new("ns", "x"),
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        Failure::not_created(error, "n1-abc", "n1")
    }

    #[test]
    fn rejections_and_failures_have_different_reasons() {
        let quota = r#"pods "n1-abc" is forbidden: exceeded quota"#;
        let webhook = "Internal error occurred: failed calling webhook";
        for (code, words, reason, nature) in [
            (400, quota, "PodRefused", Nature::Refused),
            (403, quota, "PodRefused", Nature::Refused),
            (422, quota, "PodRefused", Nature::Refused),
            (500, webhook, "FailedCreate", Nature::Blocked),
            (404, quota, "FailedCreate", Nature::Failed),
            (429, quota, "FailedCreate", Nature::Failed),
            (500, quota, "FailedCreate", Nature::Failed),
            (503, quota, "FailedCreate", Nature::Failed),
        ] {
            let failure = failure(code, words);
            // Only a rejection lets the batch go on.
            assert_eq!(failure.is_rejection, nature == Nature::Refused, "{code}");
            let Failure { problem, error, .. } = failure;
            assert_eq!((problem.refusal.reason, problem.nature), (reason, nature));
            assert_eq!(error.is_some(), nature == Nature::Failed, "{code}");
            assert_eq!(problem.refusal.message, words.replace("n1-abc", "..."));
        }
    }
}
