//! How a run ended, read from its pod.

use chrono::{DateTime, Utc};

use super::crd::Ending;
use super::message::{head, tail};
use super::pod::names::CONTAINER;
use super::pod::view::{Ended, PodPhase, PodView};

/// Signals of Linux have numbers up to this.
const LAST_SIGNAL: i32 = 64;

/// Message for a pod that failed without one.
const SILENT: &str = "the pod failed, and its status does not say why";

/// What the status says about the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunResult {
    /// How it ended.
    pub(crate) ending: Ending,
    /// CamelCase reason.
    pub(crate) reason: String,
    /// Why, in a sentence, or the output of the command.
    pub(crate) message: String,
    /// The exit code of the command.
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended the command.
    pub(crate) signal: Option<i32>,
    /// When it ended, if that is known.
    pub(crate) finished_at: Option<DateTime<Utc>>,
}

impl RunResult {
    /// An end that no container reports.
    pub(crate) fn new(ending: Ending, reason: &str, message: &str) -> Self {
        Self {
            ending,
            reason: reason.to_owned(),
            message: head(message),
            exit_code: None,
            signal: None,
            finished_at: None,
        }
    }

    /// How a pod ended; `None` while it has not.
    pub(crate) fn from_pod(pod: &PodView) -> Option<Self> {
        let ending = match pod.phase {
            PodPhase::Succeeded => Ending::Succeeded,
            PodPhase::Failed => Ending::Failed,
            PodPhase::Pending | PodPhase::Running => return None,
        };
        let command = pod.command();
        // The command may have succeeded while another container failed the pod.
        let fault = pod.ended.iter().find(|e| e.exit_code != 0);
        let guilty = command.filter(|e| e.exit_code != 0).or(fault);
        let (reason, message) = match (ending, guilty) {
            (Ending::Succeeded, _) => success(command),
            _ if !pod.reason.is_empty() => (pod.reason.clone(), explain(pod, guilty)),
            (_, Some(ended)) => (or(&ended.reason, "Error"), explain(pod, Some(ended))),
            (_, None) if pod.message.is_empty() => ("Error".to_owned(), SILENT.to_owned()),
            (_, None) => ("Error".to_owned(), pod.message.clone()),
        };
        Some(Self {
            ending,
            reason,
            message,
            exit_code: command.map(|e| e.exit_code),
            signal: command.and_then(signal),
            finished_at: command
                .and_then(|e| e.finished_at)
                .or_else(|| pod.ended.iter().filter_map(|e| e.finished_at).max()),
        })
    }
}

fn success(command: Option<&Ended>) -> (String, String) {
    let Some(command) = command else {
        return ("Completed".to_owned(), String::new());
    };
    (or(&command.reason, "Completed"), command.message.clone())
}

/// The message of a failure: the pod's own, then the container's, whose last words count most.
fn explain(pod: &PodView, ended: Option<&Ended>) -> String {
    let mut message = pod.message.clone();
    if let Some(ended) = ended {
        let said = &ended.message;
        if ended.container != CONTAINER || ended.init {
            append(
                &mut message,
                &format!(
                    "container {} ended with exit code {}",
                    ended.container, ended.exit_code
                ),
            );
        }
        append(&mut message, said);
    }
    tail(&message)
}

fn append(message: &mut String, text: &str) {
    if !message.is_empty() && !text.is_empty() {
        message.push_str(": ");
    }
    message.push_str(text);
}

fn or(text: &str, other: &str) -> String {
    if text.is_empty() { other } else { text }.to_owned()
}

/// Few runtimes report a signal, but shells and runtimes alike turn it into exit code 128 + N.
fn signal(ended: &Ended) -> Option<i32> {
    // A foreign status may have any number.
    let by_code = ended.exit_code.checked_sub(128);
    ended
        .signal
        .or_else(|| by_code.filter(|code| (1..=LAST_SIGNAL).contains(code)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::message::MAX_MESSAGE_LEN;

    fn ended(container: &str, exit_code: i32, reason: &str, message: &str) -> Ended {
        Ended {
            container: container.to_owned(),
            exit_code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            finished_at: DateTime::from_timestamp(100, 0),
            ..Ended::default()
        }
    }

    fn pod(phase: PodPhase, ended: Vec<Ended>) -> PodView {
        PodView {
            phase,
            ended,
            ..PodView::default()
        }
    }

    #[test]
    fn a_pod_that_has_not_ended_has_no_result() {
        assert_eq!(RunResult::from_pod(&pod(PodPhase::Pending, vec![])), None);
        assert_eq!(
            RunResult::from_pod(&pod(PodPhase::Running, vec![ended("at", 0, "", "")])),
            None
        );
    }

    #[test]
    fn a_success_has_exit_code_0_and_what_the_command_said() {
        let run = RunResult::from_pod(&pod(
            PodPhase::Succeeded,
            vec![ended("at", 0, "Completed", "done")],
        ))
        .unwrap();
        assert_eq!(run.ending, Ending::Succeeded);
        assert_eq!(
            (run.reason.as_str(), run.message.as_str()),
            ("Completed", "done")
        );
        assert_eq!((run.exit_code, run.signal), (Some(0), None));
        assert_eq!(run.finished_at, DateTime::from_timestamp(100, 0));
    }

    #[test]
    fn a_failure_reports_exit_code_signal_and_last_words() {
        for (code, reason, signal) in [
            (1, "Error", None),
            (137, "OOMKilled", Some(9)),
            (143, "Error", Some(15)),
            (255, "Error", None),
        ] {
            let run = RunResult::from_pod(&pod(
                PodPhase::Failed,
                vec![ended("at", code, reason, "no such file")],
            ))
            .unwrap();
            assert_eq!(run.ending, Ending::Failed);
            assert_eq!(
                (run.reason.as_str(), run.message.as_str()),
                (reason, "no such file")
            );
            assert_eq!((run.exit_code, run.signal), (Some(code), signal));
        }
    }

    #[test]
    fn the_reason_of_the_pod_takes_precedence() {
        for reason in ["Evicted", "DeadlineExceeded", "NodeShutdown"] {
            let view = PodView {
                reason: reason.to_owned(),
                message: "the pod's own words".to_owned(),
                ..pod(PodPhase::Failed, vec![])
            };
            let run = RunResult::from_pod(&view).unwrap();
            assert_eq!(run.ending, Ending::Failed);
            assert_eq!((run.reason.as_str(), run.exit_code), (reason, None));
            assert_eq!(run.message, "the pod's own words");
        }
    }

    #[test]
    fn a_pod_that_fails_without_a_message_gets_one() {
        let run = RunResult::from_pod(&pod(PodPhase::Failed, vec![])).unwrap();
        assert_eq!(
            (run.reason.as_str(), run.message.as_str()),
            ("Error", SILENT)
        );
    }

    #[test]
    fn the_failure_of_another_container_names_that_container() {
        let view = pod(
            PodPhase::Failed,
            vec![
                ended("at", 0, "Completed", ""),
                ended("log", 3, "Error", "disk full"),
            ],
        );
        let run = RunResult::from_pod(&view).unwrap();
        assert_eq!((run.ending, run.exit_code), (Ending::Failed, Some(0)));
        assert_eq!(
            run.message,
            "container log ended with exit code 3: disk full"
        );
        let init = pod(
            PodPhase::Failed,
            vec![Ended {
                init: true,
                ..ended("setup", 2, "Error", "")
            }],
        );
        let run = RunResult::from_pod(&init).unwrap();
        assert_eq!(
            (run.exit_code, run.message.as_str()),
            (None, "container setup ended with exit code 2")
        );
    }

    #[test]
    fn the_last_words_of_a_failure_are_kept() {
        let output = format!("{}the cause", "x".repeat(5_000));
        let run = RunResult::from_pod(&pod(
            PodPhase::Failed,
            vec![ended("at", 1, "Error", &output)],
        ))
        .unwrap();
        assert!(run.message.ends_with("the cause"));
        assert_eq!(run.message.len(), MAX_MESSAGE_LEN);
    }
}
