//! `kubectl at --resume`: lets an At run that is suspended.

use std::io::{self, Write as _};

use kube::Resource as _;
use kube::core::Request;
use kube::core::params::{Patch, PatchParams};
use my_operator::kinds::at::crd::{At, Phase};
use serde_json::{Value, json};

use super::echo::Echo;
use super::moment::Clock;
use super::object::{self, FIELD_MANAGER, Item, RESOURCE, unreadable};
use crate::connection::{Connection, Failure};
use crate::print::{DryRun, Format};
use crate::terminal;

/// Resumes the At, or only tries it out, and prints what happened.
pub(super) async fn run(
    connection: &Connection,
    given: &str,
    dry_run: DryRun,
    output: Option<Format>,
) -> Result<(), Failure> {
    let text = object::get(connection, object::name(given)?).await?;
    let item = Item::read(&text)?;
    check(&item).map_err(Failure::Message)?;
    let fields = fields(&item);
    let resumed = if dry_run == DryRun::Client {
        let mut object = serde_json::from_str(&text).map_err(unreadable)?;
        json_patch::merge(&mut object, &fields);
        object
    } else {
        let text = patch(connection, &item.name, &fields, dry_run).await?;
        serde_json::from_str(&text).map_err(unreadable)?
    };
    let mut out = io::stdout().lock();
    let name = terminal::harmless(&item.name);
    if let Some(format) = output {
        format.print(&format!("{RESOURCE}/{name}"), resumed, &mut out)?;
    } else {
        let (words, dry) = (words(&item, &Clock::new(), dry_run), dry_run.suffix());
        writeln!(out, "at/{name} {words}{dry}")?;
    }
    Ok(out.flush()?)
}

/// Whether there is something to resume.
fn check(item: &Item) -> Result<(), String> {
    let name = &item.name;
    match item.status.phase.unwrap_or_default() {
        Phase::Done => Err(format!(
            "at/{name} is over ({}), and does not run again",
            item.state()
        )),
        Phase::Running => Err(format!("at/{name} is running already")),
        Phase::Pending if item.spec.suspend != Some(true) => {
            Err(format!("at/{name} is not suspended"))
        }
        Phase::Pending => Ok(()),
    }
}

/// What changes. With the UID, so that the patch does not reach a namesake.
fn fields(item: &Item) -> Value {
    json!({"metadata": {"uid": item.uid}, "spec": {"suspend": false}})
}

/// kubectl's word, and when it runs. A suspended At is not Missed: its deadline is checked when it is resumed, and may be
/// over. Of a relative schedule only the operator knows the instant.
fn words(item: &Item, clock: &Clock, dry_run: DryRun) -> String {
    let Some(due) = item.due() else {
        return "resumed".to_owned();
    };
    let echo = Echo {
        schedule: &due.to_string(),
        instant: due,
        deadline: item.spec.starting_deadline_seconds,
        suspend: false,
        dry_run,
    };
    format!("resumed, and {}", echo.words(clock))
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
    let request = Request::new(At::url_path(&(), Some(&connection.namespace)));
    let request = request.patch(name, &params, &Patch::Merge(fields));
    let request = request.map_err(|error| Failure::Message(error.to_string()))?;
    let answer = connection.client.request_text(request).await;
    answer.map_err(|error| connection.failure(error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::tz::TimeZone;

    use super::*;

    fn item(spec: &Value, status: &Value) -> Item {
        let object = json!({"metadata": {"name": "x", "uid": "u"}, "spec": spec, "status": status});
        Item::read(&object.to_string()).unwrap()
    }

    #[test]
    fn only_what_is_suspended_and_has_not_started_is_resumed() {
        let checked =
            |suspend: bool, status: Value| check(&item(&json!({"suspend": suspend}), &status));
        assert_eq!(checked(true, json!(null)), Ok(()));
        assert_eq!(checked(true, json!({"phase": "PENDING"})), Ok(()));
        for (suspend, status, error) in [
            (false, json!(null), "at/x is not suspended"),
            (true, json!({"phase": "RUNNING"}), "at/x is running already"),
            (
                true,
                json!({"phase": "DONE", "result": "Succeeded"}),
                "at/x is over (Succeeded), and does not run again",
            ),
        ] {
            assert_eq!(checked(suspend, status), Err(error.to_owned()));
        }
    }

    #[test]
    fn the_patch_reaches_that_object_and_one_field_of_it() {
        let patch = fields(&item(&json!({"suspend": true}), &json!(null)));
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u"}, "spec": {"suspend": false}})
        );
    }

    #[test]
    fn the_answer_says_when_it_runs_or_that_it_is_too_late() {
        let clock = Clock {
            now: "2026-11-27T12:47:00Z".parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
        };
        let shown = |spec: Value, dry_run| words(&item(&spec, &json!(null)), &clock, dry_run);
        for (spec, dry_run, expected) in [
            (json!({"schedule": "now"}), DryRun::None, "resumed"),
            (
                json!({"schedule": "2026-11-27T15:00:00Z"}),
                DryRun::None,
                "resumed, and will run Fri Nov 27 16:00 CET, in 2 h 13 m",
            ),
            (
                json!({"schedule": "2026-11-27T12:00:00Z"}),
                DryRun::Server,
                "resumed, and would run at once, since Fri Nov 27 13:00 CET was 47 m ago",
            ),
            (
                json!({"schedule": "2026-11-27T12:00:00Z", "startingDeadlineSeconds": 600}),
                DryRun::None,
                "resumed, and will not run: Fri Nov 27 13:00 CET was 47 m ago, and it must start within 10 m",
            ),
        ] {
            assert_eq!(shown(spec, dry_run), expected);
        }
    }
}
