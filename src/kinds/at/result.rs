//! How a run ended, read from its pod.

use chrono::{DateTime, Utc};

use super::crd::Ending;
use super::pod::{CONTAINER, Ended, PodPhase, PodView};
use my_operator_runtime::reconcile::event;

/// The longest message in a status, in bytes.
pub const MAX_MESSAGE_LEN: usize = 1024;
/// Signals of Linux have numbers up to this.
const LAST_SIGNAL: i32 = 64;

/// Message for a pod that failed without one.
const SILENT: &str = "the pod failed, and its status does not say why";

/// What the status says about the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it ended.
    pub result: Ending,
    /// CamelCase reason.
    pub reason: String,
    /// Why, in a sentence, or the output of the command.
    pub message: String,
    /// The exit code of the command.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// When it ended, if that is known.
    pub finished_at: Option<DateTime<Utc>>,
}

impl Verdict {
    /// An end that no container reports.
    pub fn plain(result: Ending, reason: &str, message: &str) -> Self {
        Self {
            result,
            reason: reason.to_owned(),
            message: head(message),
            exit_code: None,
            signal: None,
            finished_at: None,
        }
    }
}

/// The verdict on a pod that ended; `None` before.
pub fn of(pod: &PodView) -> Option<Verdict> {
    let result = match pod.phase {
        PodPhase::Succeeded => Ending::Succeeded,
        PodPhase::Failed => Ending::Failed,
        PodPhase::Pending | PodPhase::Running => return None,
    };
    let command = pod
        .ended
        .iter()
        .find(|e| !e.init && e.container == CONTAINER);
    // The command may have succeeded while another container failed the pod.
    let fault = pod.ended.iter().find(|e| e.exit_code != 0);
    let guilty = command.filter(|e| e.exit_code != 0).or(fault);
    let (reason, message) = match (result, guilty) {
        (Ending::Succeeded, _) => success(command),
        _ if !pod.reason.is_empty() => (pod.reason.clone(), explain(pod, guilty)),
        (_, Some(ended)) => (or(&ended.reason, "Error"), explain(pod, Some(ended))),
        (_, None) if pod.message.is_empty() => ("Error".to_owned(), SILENT.to_owned()),
        (_, None) => ("Error".to_owned(), head(&pod.message)),
    };
    Some(Verdict {
        result,
        reason,
        message,
        exit_code: command.map(|e| e.exit_code),
        signal: command.and_then(signal),
        finished_at: command
            .and_then(|e| e.finished_at)
            .or_else(|| pod.ended.iter().filter_map(|e| e.finished_at).max()),
    })
}

fn success(command: Option<&Ended>) -> (String, String) {
    let Some(command) = command else {
        return ("Completed".to_owned(), String::new());
    };
    (
        or(&command.reason, "Completed"),
        head(command.message.trim_end()),
    )
}

/// The message of a failure: the pod's own, then the container's, whose last words count most.
fn explain(pod: &PodView, ended: Option<&Ended>) -> String {
    let mut message = pod.message.clone();
    if let Some(ended) = ended {
        let said = ended.message.trim_end();
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
    let by_code = ended.exit_code - 128;
    ended
        .signal
        .or_else(|| (1..=LAST_SIGNAL).contains(&by_code).then_some(by_code))
}

/// The first bytes of a text, as many as a status keeps.
pub fn head(text: &str) -> String {
    event::head(text, MAX_MESSAGE_LEN)
}

/// The last bytes of a text: in a log, those that matter most.
fn tail(text: &str) -> String {
    if text.len() <= MAX_MESSAGE_LEN {
        return text.to_owned();
    }
    let from = text.len() - (MAX_MESSAGE_LEN - 3);
    let start = (from..=text.len()).find(|i| text.is_char_boundary(*i));
    format!("...{}", &text[start.unwrap_or(text.len())..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
    fn a_pod_that_goes_on_has_no_verdict() {
        assert_eq!(of(&pod(PodPhase::Pending, vec![])), None);
        assert_eq!(
            of(&pod(PodPhase::Running, vec![ended("at", 0, "", "")])),
            None
        );
    }

    #[test]
    fn a_success_has_exit_code_0_and_what_the_command_said() {
        let verdict = of(&pod(
            PodPhase::Succeeded,
            vec![ended("at", 0, "Completed", "done\n")],
        ))
        .unwrap();
        assert_eq!(verdict.result, Ending::Succeeded);
        assert_eq!(
            (verdict.reason.as_str(), verdict.message.as_str()),
            ("Completed", "done")
        );
        assert_eq!((verdict.exit_code, verdict.signal), (Some(0), None));
        assert_eq!(verdict.finished_at, DateTime::from_timestamp(100, 0));
    }

    #[test]
    fn a_failure_reports_exit_code_signal_and_last_words() {
        for (code, reason, signal) in [
            (1, "Error", None),
            (137, "OOMKilled", Some(9)),
            (143, "Error", Some(15)),
            (255, "Error", None),
        ] {
            let verdict = of(&pod(
                PodPhase::Failed,
                vec![ended("at", code, reason, "no such file\n")],
            ))
            .unwrap();
            assert_eq!(verdict.result, Ending::Failed);
            assert_eq!(
                (verdict.reason.as_str(), verdict.message.as_str()),
                (reason, "no such file")
            );
            assert_eq!((verdict.exit_code, verdict.signal), (Some(code), signal));
        }
    }

    #[test]
    fn the_pods_own_reason_goes_first() {
        for reason in ["Evicted", "DeadlineExceeded", "NodeShutdown"] {
            let view = PodView {
                reason: reason.to_owned(),
                message: "the pod's own words".to_owned(),
                ..pod(PodPhase::Failed, vec![])
            };
            let verdict = of(&view).unwrap();
            assert_eq!(verdict.result, Ending::Failed);
            assert_eq!((verdict.reason.as_str(), verdict.exit_code), (reason, None));
            assert_eq!(verdict.message, "the pod's own words");
        }
    }

    #[test]
    fn a_pod_that_fails_without_a_word_is_not_an_empty_sentence() {
        let verdict = of(&pod(PodPhase::Failed, vec![])).unwrap();
        assert_eq!(
            (verdict.reason.as_str(), verdict.message.as_str()),
            ("Error", SILENT)
        );
    }

    #[test]
    fn another_containers_fault_is_named() {
        let view = pod(
            PodPhase::Failed,
            vec![
                ended("at", 0, "Completed", ""),
                ended("log", 3, "Error", "disk full"),
            ],
        );
        let verdict = of(&view).unwrap();
        assert_eq!(
            (verdict.result, verdict.exit_code),
            (Ending::Failed, Some(0))
        );
        assert_eq!(
            verdict.message,
            "container log ended with exit code 3: disk full"
        );
        let init = pod(
            PodPhase::Failed,
            vec![Ended {
                init: true,
                ..ended("setup", 2, "Error", "")
            }],
        );
        let verdict = of(&init).unwrap();
        assert_eq!(
            (verdict.exit_code, verdict.message.as_str()),
            (None, "container setup ended with exit code 2")
        );
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = "ä".repeat(4_000);
        for text in [head(&long), tail(&long)] {
            assert!(
                text.len() <= MAX_MESSAGE_LEN && text.len() > MAX_MESSAGE_LEN - 8,
                "{}",
                text.len()
            );
        }
        let output = format!("{}the cause", "x".repeat(5_000));
        let verdict = of(&pod(
            PodPhase::Failed,
            vec![ended("at", 1, "Error", &output)],
        ))
        .unwrap();
        assert!(verdict.message.ends_with("the cause"));
        assert_eq!(verdict.message.len(), MAX_MESSAGE_LEN);
    }
}
