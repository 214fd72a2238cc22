//! `kubectl at --resume`, `--pause` and `--reschedule`: changes an At that has not started.

use std::io::{self, Write as _};

use jiff::Timestamp;
use kube::core::Request;
use kube::core::params::{Patch, PatchParams};
use my_operator_at::crd::Phase;
use my_operator_times::moment::{self, Clock};
use serde_json::{Value, json};

use super::echo::Echo;
use super::object::{self, FIELD_MANAGER, Item, RESOURCE, unreadable};
use super::zone;
use crate::connection::{Connection, Failure};
use crate::print::{DryRun, Format};
use crate::terminal;

/// An At may change between reading and changing it; so often is it read again.
const MAX_ATTEMPTS: usize = 5;

/// What to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Let it run.
    Resume,
    /// Hold it back.
    Pause,
    /// Run it at this instant instead.
    Reschedule(Timestamp),
}

/// Changes the At, or only tries it out, and prints what happened.
pub(super) async fn run(
    connection: &Connection,
    given: &str,
    change: Change,
    dry_run: DryRun,
    output: Option<Format>,
) -> Result<(), Failure> {
    let name = object::name(given)?;
    let (item, changed) = changed(connection, name, change, dry_run).await?;
    let mut out = io::stdout().lock();
    let name = terminal::harmless(&item.name);
    if let Some(format) = output {
        format.print(&format!("{RESOURCE}/{name}"), changed, &mut out)?;
    } else {
        let words = change.words(&item, &zone::clock(), dry_run);
        writeln!(out, "at/{name} {words}{}", dry_run.suffix())?;
    }
    Ok(out.flush()?)
}

/// The object as it was, and as it is then.
async fn changed(
    connection: &Connection,
    name: &str,
    change: Change,
    dry_run: DryRun,
) -> Result<(Item, Value), Failure> {
    let mut uid: Option<String> = None;
    for _ in 0..MAX_ATTEMPTS {
        let text = object::get(connection, name).await?;
        let item = Item::read(&text)?;
        if uid.get_or_insert_with(|| item.uid.clone()) != &item.uid {
            let text = format!("at/{name} is another one than a moment ago: look at it first");
            return Err(text.into());
        }
        change.check(&item)?;
        let fields = change.fields(&item, Timestamp::now());
        if dry_run == DryRun::Client {
            let mut object = serde_json::from_str(&text).map_err(unreadable)?;
            json_patch::merge(&mut object, &fields);
            return Ok((item, object));
        }
        match patch(connection, name, &fields, dry_run).await {
            // It has changed meanwhile: it may have started.
            Err(Failure::Server(status)) if status.reason == "Conflict" => {}
            Err(failure) => return Err(failure),
            Ok(text) => return Ok((item, serde_json::from_str(&text).map_err(unreadable)?)),
        }
    }
    Err(format!("at/{name} keeps changing: try again").into())
}

impl Change {
    /// Whether the At can still be changed so.
    fn check(self, item: &Item) -> Result<(), String> {
        let name = &item.name;
        let is_suspended = item.spec.suspend == Some(true);
        match item.status.phase.unwrap_or_default() {
            Phase::Done => Err(format!(
                "at/{name} is over ({}), and does not run again",
                item.state()
            )),
            Phase::Running => Err(format!("at/{name} is running already")),
            Phase::Pending if item.deleting => Err(format!("at/{name} is being deleted")),
            Phase::Pending => match self {
                Self::Resume if !is_suspended => Err(format!("at/{name} is not suspended")),
                Self::Pause if is_suspended => Err(format!("at/{name} is suspended already")),
                _ => Ok(()),
            },
        }
    }

    /// What changes. With the UID, so that the patch does not reach a namesake, and with the version: at an At that has
    /// started since it was read, nothing is changed.
    fn fields(self, item: &Item, now: Timestamp) -> Value {
        let spec = match self {
            Self::Resume => json!({"suspend": false}),
            Self::Pause => json!({"suspend": true}),
            Self::Reschedule(instant) => json!({"schedule": schedule(instant, item, now)}),
        };
        let metadata = json!({"uid": item.uid, "resourceVersion": item.resource_version});
        json!({"metadata": metadata, "spec": spec})
    }

    /// kubectl's word, and when it runs. A suspended At is not Missed: its deadline is checked when it is resumed, and may
    /// be over. Of a relative schedule only the operator knows the instant.
    fn words(self, item: &Item, clock: &Clock, dry_run: DryRun) -> String {
        let suspended = item.spec.suspend == Some(true);
        let (verb, due, waits) = match self {
            Self::Resume => ("resumed", item.due(), false),
            Self::Pause => ("suspended", item.due(), true),
            Self::Reschedule(instant) => ("rescheduled", Some(instant), suspended),
        };
        let Some(due) = due else {
            return verb.to_owned();
        };
        let schedule = match self {
            Self::Reschedule(instant) => moment::schedule(instant, clock.now),
            _ => due.to_string(),
        };
        let echo = Echo {
            schedule: &schedule,
            instant: due,
            deadline: item.spec.starting_deadline_seconds,
            suspend: false,
            dry_run,
        };
        let once = if waits { "once resumed " } else { "" };
        format!("{verb}, and {once}{}", echo.words(clock))
    }
}

/// The text for `spec.schedule`. One that is `now` already would count from when it was set.
fn schedule(instant: Timestamp, item: &Item, now: Timestamp) -> String {
    let text = moment::schedule(instant, now);
    if text == moment::NOW && item.spec.schedule.as_deref() == Some(moment::NOW) {
        return instant.to_string();
    }
    text
}

async fn patch(
    connection: &Connection,
    name: &str,
    fields: &Value,
    dry_run: DryRun,
) -> Result<String, Failure> {
    let params = PatchParams {
        dry_run: dry_run == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = |ats: Request| ats.patch(name, &params, &Patch::Merge(fields));
    object::send(connection, patch).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response, StatusCode};
    use jiff::tz::TimeZone;
    use kube::Client;
    use kube::client::Body;

    use super::*;

    const NOON: &str = "2026-11-27T12:00:00Z";

    fn item(spec: &Value, status: &Value) -> Item {
        let metadata = json!({"name": "x", "uid": "u", "resourceVersion": "7"});
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        Item::read(&object.to_string()).unwrap()
    }

    fn instant(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_has_not_started_is_changed() {
        let reschedule = Change::Reschedule(instant(NOON));
        let pending = json!({"phase": "PENDING"});
        for (change, suspend, status, expected) in [
            (Change::Resume, true, json!(null), Ok(())),
            (Change::Resume, true, pending.clone(), Ok(())),
            (Change::Resume, false, json!(null), Err("is not suspended")),
            (Change::Pause, false, json!(null), Ok(())),
            (Change::Pause, false, pending.clone(), Ok(())),
            (
                Change::Pause,
                true,
                pending.clone(),
                Err("is suspended already"),
            ),
            (reschedule, false, pending.clone(), Ok(())),
            (reschedule, true, pending, Ok(())),
        ] {
            let checked = change.check(&item(&json!({"suspend": suspend}), &status));
            let expected = expected.map_err(|what| format!("at/x {what}"));
            assert_eq!(checked, expected, "{change:?} {suspend} {status}");
        }
        for change in [Change::Resume, Change::Pause, reschedule] {
            for (status, error) in [
                (json!({"phase": "RUNNING"}), "at/x is running already"),
                (
                    json!({"phase": "DONE", "result": "Succeeded"}),
                    "at/x is over (Succeeded), and does not run again",
                ),
            ] {
                let suspend = json!({"suspend": change == Change::Resume});
                let checked = change.check(&item(&suspend, &status));
                assert_eq!(checked, Err(error.to_owned()), "{change:?}");
            }
        }
    }

    #[test]
    fn the_patch_reaches_that_version_and_one_field_of_it() {
        let metadata = json!({"uid": "u", "resourceVersion": "7"});
        for (change, spec) in [
            (Change::Resume, json!({"suspend": false})),
            (Change::Pause, json!({"suspend": true})),
            (
                Change::Reschedule(instant(NOON)),
                json!({"schedule": "2026-11-27T12:00:00Z"}),
            ),
        ] {
            let fields = change.fields(
                &item(&json!({}), &json!(null)),
                instant("2026-11-27T10:00:00Z"),
            );
            assert_eq!(fields, json!({"metadata": metadata, "spec": spec}));
        }
        // The text `now` that is there already would count from the creation.
        for (before, expected) in [("now + 1 hour", "now"), ("now", NOON)] {
            let item = item(&json!({"schedule": before}), &json!(null));
            let text = schedule(instant(NOON), &item, instant("2026-11-27T12:00:01Z"));
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn the_answer_says_when_it_runs_or_that_it_is_too_late() {
        let clock = Clock {
            now: "2026-11-27T12:47:00Z".parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        };
        let due = "2026-11-27T15:00:00Z";
        let later = Change::Reschedule(instant(due));
        for (change, spec, dry_run, expected) in [
            (
                Change::Resume,
                json!({"schedule": "now"}),
                DryRun::None,
                "resumed",
            ),
            (
                Change::Resume,
                json!({"schedule": due}),
                DryRun::None,
                "resumed, and will run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                Change::Resume,
                json!({"schedule": NOON}),
                DryRun::Server,
                "resumed, and would run at once, since Fri Nov 27 13:00 CET was 47 m ago",
            ),
            (
                Change::Resume,
                json!({"schedule": NOON, "startingDeadlineSeconds": 600}),
                DryRun::None,
                "resumed, and will not run: Fri Nov 27 13:00 CET was 47 m ago, and it must start within 10 m",
            ),
            (
                Change::Pause,
                json!({"schedule": due}),
                DryRun::None,
                "suspended, and once resumed will run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                Change::Pause,
                json!({"schedule": "now + 1 hour"}),
                DryRun::Server,
                "suspended",
            ),
            (
                later,
                json!({"schedule": NOON}),
                DryRun::None,
                "rescheduled, and will run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                later,
                json!({"schedule": NOON, "suspend": true}),
                DryRun::Client,
                "rescheduled, and once resumed would run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                Change::Reschedule(clock.now),
                json!({"schedule": NOON}),
                DryRun::None,
                "rescheduled, and will run now",
            ),
        ] {
            let item = item(&spec, &json!(null));
            assert_eq!(change.words(&item, &clock, dry_run), expected);
        }
    }

    /// A server whose At starts after it was first read, and what it was sent.
    fn connection(patches: &Arc<Mutex<Vec<String>>>) -> Connection {
        let patches = Arc::clone(patches);
        let service = tower::service_fn(move |request: Request<Body>| {
            let patches = Arc::clone(&patches);
            async move {
                let (parts, body) = request.into_parts();
                let (code, answer) = if parts.method == Method::PATCH {
                    let body = body.collect_bytes().await.unwrap();
                    let body = String::from_utf8(body.to_vec()).unwrap();
                    patches.lock().unwrap().push(body);
                    (
                        409,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                            "reason": "Conflict", "message": "the object has been modified"}),
                    )
                } else {
                    let has_started = !patches.lock().unwrap().is_empty();
                    let phase = if has_started { "RUNNING" } else { "PENDING" };
                    (
                        200,
                        json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"},
                            "spec": {"schedule": NOON}, "status": {"phase": phase}}),
                    )
                };
                let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        });
        Connection {
            client: Client::new(service, "default"),
            namespace: "default".to_owned(),
            server: "server:6443".to_owned(),
        }
    }

    #[tokio::test]
    async fn what_starts_meanwhile_is_left_alone() {
        let patches = Arc::new(Mutex::new(Vec::new()));
        let connection = connection(&patches);
        for change in [Change::Pause, Change::Reschedule(instant(NOON))] {
            patches.lock().unwrap().clear();
            let ended = changed(&connection, "x", change, DryRun::None).await;
            let error = ended.unwrap_err().to_string();
            assert_eq!(error, "error: at/x is running already");
            let sent = patches.lock().unwrap().clone();
            assert_eq!(sent.len(), 1);
            assert!(sent[0].contains(r#""resourceVersion":"7""#), "{sent:?}");
        }
    }
}
