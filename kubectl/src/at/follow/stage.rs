//! What to show of an At that is followed, and how it ends: pure.

use jiff::SignedDuration;
use my_operator_at::crd::{Ending, Phase};
use my_operator_times::moment::Clock;

use super::super::object::Item;

/// Exit code of an At that was not started in time: EX_TEMPFAIL of sysexits.h.
pub(super) const MISSED: u8 = 75;
/// Exit code of an At whose end is unknown: EX_PROTOCOL of sysexits.h.
pub(super) const UNKNOWN: u8 = 76;

/// An operator takes up a new At within a second; after this long there is none.
const NO_OPERATOR: SignedDuration = SignedDuration::from_secs(10);

/// Where an At is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not started. The first text lasts, the second is a countdown.
    Waiting(String, String),
    /// Its pod is decided on. The text says what keeps it from running on, if anything does.
    Started(Option<String>),
    /// It is over.
    Over(Outcome),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The exit code of --follow.
    pub(super) code: u8,
    /// In words.
    pub(super) words: String,
}

/// Where this At is.
pub(super) fn stage(item: &Item, clock: &Clock) -> Stage {
    let status = &item.status;
    if let Some(result) = status.result {
        return Stage::Over(outcome(item, result));
    }
    let name = &item.name;
    let reason = status.reason.as_deref().filter(|it| !it.is_empty());
    // The reason first: a line that is too long for the terminal loses its middle.
    let why = reason.map(|reason| match status.message.as_deref() {
        Some(message) if !message.is_empty() => format!("{reason}: at/{name} waits: {message}"),
        _ => format!("{reason}: at/{name} waits"),
    });
    match status.phase.unwrap_or_default() {
        Phase::Running => Stage::Started(why),
        Phase::Done => Stage::Over(Outcome {
            code: 1,
            words: format!("at/{name} is over, and its status has no result"),
        }),
        Phase::Pending => {
            let (lasting, passing) = pending(item, clock, reason, why);
            Stage::Waiting(lasting, passing)
        }
    }
}

fn pending(
    item: &Item,
    clock: &Clock,
    reason: Option<&str>,
    why: Option<String>,
) -> (String, String) {
    let name = &item.name;
    let due = item.due();
    let none = String::new();
    if reason == Some("Suspended") {
        let namespace = &item.namespace;
        return (
            format!("at/{name} is suspended; kubectl at --resume {name} -n {namespace} resumes it"),
            none,
        );
    }
    if let Some(why) = why {
        return (why, none);
    }
    if let Some(due) = due.filter(|due| *due > clock.now) {
        let lasting = format!("at/{name} will run {}", clock.local(due));
        return (lasting, format!(", {}", clock.relative(due)));
    }
    // Only the operator knows the instant of a relative schedule: before that, the creation counts.
    let since = due.max(item.created);
    let is_late = since.is_some_and(|since| clock.now.duration_since(since) > NO_OPERATOR);
    if item.status.phase.is_none() && is_late {
        let text = format!("at/{name}: no operator has taken it up: my-operator check shows why");
        return (text, none);
    }
    if due.is_none() {
        return (format!("at/{name} waits for the operator"), none);
    }
    (format!("at/{name} starts"), none)
}

fn outcome(item: &Item, result: Ending) -> Outcome {
    let (name, status) = (&item.name, &item.status);
    let reason = status.reason.as_deref().filter(|it| !it.is_empty());
    let message = status.message.as_deref().map(str::trim);
    let message = message.filter(|it| !it.is_empty());
    let why = match (reason, message) {
        (Some(reason), Some(message)) => format!(": {reason}: {message}"),
        (Some(reason), None) => format!(": {reason}"),
        (None, Some(message)) => format!(": {message}"),
        (None, None) => String::new(),
    };
    let (code, words) = match result {
        Ending::Succeeded => (0, "succeeded".to_owned()),
        Ending::Failed => match status.exit_code {
            Some(exit_code) if exit_code != 0 => {
                let signal = status.signal.map(|signal| format!(", signal {signal}"));
                // The message is the end of the output, which was shown; any other reason deserves its words.
                let reason = reason.filter(|reason| *reason != "Error");
                let reason = reason.map(|reason| format!(", {reason}"));
                let words = format!(
                    "failed with exit code {exit_code}{}{}",
                    signal.unwrap_or_default(),
                    reason.unwrap_or_default()
                );
                (u8::try_from(exit_code).unwrap_or(1), words)
            }
            _ => {
                let code = status
                    .signal
                    .and_then(|signal| u8::try_from(signal + 128).ok());
                (code.unwrap_or(1), format!("failed{why}"))
            }
        },
        Ending::Missed => (MISSED, format!("was missed, its command has not run{why}")),
        Ending::Unknown => {
            let words = if reason == Some("NeverStarted") {
                format!("has not run, and never will{why}")
            } else {
                format!("has an unknown end, its command may have run{why}")
            };
            (UNKNOWN, words)
        }
    };
    Outcome {
        code,
        words: format!("at/{name} {words}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::tz::TimeZone;
    use serde_json::{Value, json};

    use super::*;

    fn staged(spec: &Value, status: &Value) -> Stage {
        created("2026-11-27T12:46:55Z", spec, status)
    }

    fn created(at: &str, spec: &Value, status: &Value) -> Stage {
        let metadata = json!({"name": "x", "creationTimestamp": at});
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        let clock = Clock {
            now: "2026-11-27T12:47:00Z".parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        };
        stage(&Item::read(&object.to_string()).unwrap(), &clock)
    }

    fn waiting(lasting: &str, passing: &str) -> Stage {
        Stage::Waiting(lasting.to_owned(), passing.to_owned())
    }

    #[test]
    fn before_the_start_it_counts_down_or_says_what_it_waits_for() {
        let at = |schedule: &str| json!({"schedule": schedule});
        assert_eq!(
            staged(&at("2026-11-27T15:00:00Z"), &json!(null)),
            waiting("at/x will run Fri Nov 27 16:00 CET", ", in 2 h 13 m")
        );
        assert_eq!(
            staged(&at("now + 5 minutes"), &json!(null)),
            waiting("at/x waits for the operator", "")
        );
        assert_eq!(
            staged(&at("2026-11-27T12:46:59Z"), &json!({"phase": "PENDING"})),
            waiting("at/x starts", "")
        );
        let no_operator = waiting(
            "at/x: no operator has taken it up: my-operator check shows why",
            "",
        );
        for schedule in ["now", "now + 5 minutes", "2026-11-27T12:46:00Z"] {
            let long_ago = "2026-11-27T12:46:40Z";
            let pending = json!({"phase": "PENDING"});
            assert_eq!(
                created(long_ago, &at(schedule), &json!(null)),
                no_operator,
                "{schedule}"
            );
            assert_ne!(
                created(long_ago, &at(schedule), &pending),
                no_operator,
                "{schedule}"
            );
            assert_ne!(
                staged(&at(schedule), &json!(null)),
                no_operator,
                "{schedule}"
            );
        }
        let refused =
            json!({"phase": "PENDING", "reason": "PodRefused", "message": "exceeded quota"});
        assert_eq!(
            staged(&at("2026-11-27T15:00:00Z"), &refused),
            waiting("PodRefused: at/x waits: exceeded quota", "")
        );
        let suspended = json!({"phase": "PENDING", "reason": "Suspended", "message": "m"});
        let Stage::Waiting(text, _) = staged(&at("2026-11-27T15:00:00Z"), &suspended) else {
            unreachable!()
        };
        assert!(text.contains("kubectl at --resume x "), "{text}");
    }

    #[test]
    fn after_the_start_only_trouble_is_worth_a_line() {
        assert_eq!(
            staged(&json!({}), &json!({"phase": "RUNNING"})),
            Stage::Started(None)
        );
        assert_eq!(
            staged(
                &json!({}),
                &json!({"phase": "RUNNING", "reason": "ImagePullBackOff", "message": "m"})
            ),
            Stage::Started(Some("ImagePullBackOff: at/x waits: m".to_owned()))
        );
    }

    #[test]
    fn the_exit_code_is_that_of_the_command_or_says_why_there_is_none() {
        for (status, code, words) in [
            (
                json!({"result": "Succeeded", "exitCode": 0, "reason": "Completed"}),
                0,
                "at/x succeeded",
            ),
            (
                json!({"result": "Failed", "exitCode": 3, "reason": "Error", "message": "last words"}),
                3,
                "at/x failed with exit code 3",
            ),
            (
                json!({"result": "Failed", "exitCode": 137, "signal": 9, "reason": "OOMKilled"}),
                137,
                "at/x failed with exit code 137, signal 9, OOMKilled",
            ),
            (
                json!({"result": "Failed", "reason": "DeadlineExceeded", "message": "m"}),
                1,
                "at/x failed: DeadlineExceeded: m",
            ),
            (
                json!({"result": "Failed", "exitCode": 0, "reason": "Error"}),
                1,
                "at/x failed: Error",
            ),
            (
                json!({"result": "Failed", "exitCode": -1}),
                1,
                "at/x failed with exit code -1",
            ),
            (
                json!({"result": "Failed", "exitCode": 4711}),
                1,
                "at/x failed with exit code 4711",
            ),
            (
                json!({"result": "Missed", "reason": "StartingDeadlineExceeded"}),
                MISSED,
                "at/x was missed, its command has not run: StartingDeadlineExceeded",
            ),
            (
                json!({"result": "Unknown", "reason": "PodLost", "message": "drained"}),
                UNKNOWN,
                "at/x has an unknown end, its command may have run: PodLost: drained",
            ),
            (
                json!({"result": "Unknown", "reason": "NeverStarted"}),
                UNKNOWN,
                "at/x has not run, and never will: NeverStarted",
            ),
        ] {
            let expected = Outcome {
                code,
                words: words.to_owned(),
            };
            let mut over = json!({"phase": "DONE"});
            over.as_object_mut()
                .unwrap()
                .extend(status.as_object().unwrap().clone());
            assert_eq!(staged(&json!({}), &over), Stage::Over(expected), "{status}");
        }
    }
}
