//! The verbs of a roll-out.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use chrono::Utc;
use clap::{Args, Subcommand};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch};
use kube::runtime::watcher::watch_object;
use serde_json::Value;
use tokio::time::sleep;

use super::cluster;
use super::diff::diff;
use super::edit::{self, Edit};
use super::history::{self, Replaced, Revision};
use super::object::{Object, parse_name};
use super::progress::{Progress, paused, progress};
use super::view;
use crate::connection::{Connection, Failure};
use crate::flags::natural;
use crate::print::{DryRun, Format, reported, yaml};
use crate::terminal::{self, Table, ask, harmless};

/// A patch that depends on what was read is tried again this often when the object changes meanwhile.
const ATTEMPTS: usize = 5;

/// While there is no connection, the server is asked again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// Where `kubectl apply` keeps the file that it applied.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The verbs of a roll-out.
#[derive(Subcommand, Debug)]
pub(super) enum Verb {
    /// Show how far the roll-out is, and wait for its end
    Status(Status),
    /// List the revisions and what each changed
    History(History),
    /// Go back to an earlier revision
    Undo(Undo),
    /// Stop the roll-out until it is resumed
    Pause(Change),
    /// Let the roll-out go on: one that was paused, or one that stopped by itself
    Resume(Resume),
    /// Let a new revision go on from its canaries to the other nodes
    Approve(Change),
    /// Replace every pod, node by node
    Restart(Change),
    /// Keep so many nodes on the revision that they have
    Partition(Partition),
}

/// How far the roll-out is.
#[derive(Args, Debug, Default)]
pub(super) struct Status {
    /// The object
    #[arg(value_name = "NAME")]
    name: String,
    /// Wait until the roll-out is done, as without this flag; --watch=false does not wait
    #[arg(short, long, default_value_t = true)]
    watch: bool,
    /// Give up after this time, such as 90s or 5m; 0 means never
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = my_operator_times::duration::parse)]
    timeout: Duration,
    /// Fail if the newest revision is not the one of this number; 0 means any
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = natural::<i64>)]
    revision: i64,
}

/// The revisions.
#[derive(Args, Debug)]
pub(super) struct History {
    /// The object
    #[arg(value_name = "NAME")]
    name: String,
    /// Show the image and template of this revision, and what it changed
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = natural::<i64>)]
    revision: i64,
}

/// Flags of every verb that writes.
#[derive(Args, Debug)]
pub(super) struct Change {
    /// The objects
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// How a change is made and shown.
#[derive(Args, Debug)]
struct How {
    /// Change nothing; with "server", let the API server judge the change
    #[arg(long, value_name = "STRATEGY", value_enum, default_value_t = DryRun::None, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    /// Print the object instead of what happened to it
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Back to a revision.
#[derive(Args, Debug)]
pub(super) struct Undo {
    #[command(flatten)]
    write: Change,
    /// The number of the revision; 0 means that of the last other roll-out that was completed
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = natural::<i64>)]
    to_revision: i64,
}

/// Go on.
#[derive(Args, Debug)]
pub(super) struct Resume {
    #[command(flatten)]
    write: Change,
    /// Resume a roll-out that stopped by itself without a question
    #[arg(short, long)]
    yes: bool,
}

/// Keep nodes back.
#[derive(Args, Debug)]
pub(super) struct Partition {
    /// The object
    #[arg(value_name = "NAME")]
    name: String,
    /// How many nodes, the last by name of those that are behind
    #[arg(value_name = "N", value_parser = natural::<i32>)]
    nodes: i32,
    #[command(flatten)]
    how: How,
}

impl Verb {
    pub(super) async fn run(self, connection: &Connection) -> Result<u8, Failure> {
        match self {
            Self::Status(status) => status.run(connection).await,
            Self::History(history) => history.run(connection).await,
            Self::Undo(undo) => {
                let back = async |name: &str| undo.undo(connection, name).await;
                undo.write.each(back).await
            }
            Self::Pause(write) => write.run(connection, edit::pause).await,
            Self::Approve(write) => write.run(connection, edit::approve).await,
            Self::Restart(write) => {
                let restart = |object: &Object| edit::restart(object, Utc::now());
                write.run(connection, restart).await
            }
            Self::Resume(resume) => {
                let on = async |name: &str| resume.resume(connection, name).await;
                resume.write.each(on).await
            }
            Self::Partition(partition) => {
                let edit = |object: &Object| edit::partition(object, partition.nodes);
                let how = &partition.how;
                how.change(connection, &partition.name, edit).await?;
                Ok(0)
            }
        }
    }
}

impl Status {
    async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        if self.timeout.is_zero() {
            return self.follow(connection).await;
        }
        let followed = tokio::time::timeout(self.timeout, self.follow(connection)).await;
        followed.unwrap_or_else(|_| Err("timed out waiting for the condition".into()))
    }

    async fn follow(&self, connection: &Connection) -> Result<u8, Failure> {
        let name = parse_name(&self.name)?;
        let first = cluster::get(connection, &name).await?;
        let mut said = None;
        let is_done = self.say(connection, &first, &mut said).await?;
        if is_done || !self.watch {
            return Ok(0);
        }
        let states = watch_object(cluster::api(connection), &name);
        let mut states = std::pin::pin!(states);
        while let Some(state) = states.next().await {
            let object = match state {
                Ok(object) => object.ok_or_else(cluster::deleted)?,
                Err(error) => {
                    view::retried(connection, error)?;
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let object = Object::decode(object)?;
            if object.uid != first.uid {
                return Err(cluster::deleted());
            }
            if self.say(connection, &object, &mut said).await? {
                break;
            }
        }
        Ok(0)
    }

    /// Prints how far the roll-out is, where that changed. Returns whether it is done.
    async fn say(
        &self,
        connection: &Connection,
        object: &Object,
        said: &mut Option<Progress>,
    ) -> Result<bool, Failure> {
        let mut running = None;
        if self.revision > 0 {
            let newest = object.revision();
            let revisions = cluster::revisions(connection, object).await?;
            let newest = revisions.iter().rfind(|it| it.hash == newest);
            running = newest.map(|it| it.number);
        }
        let progress = progress(object, self.revision, running)?;
        let before = said.as_ref();
        if before.is_none_or(|it| it.text != progress.text) {
            writeln!(io::stdout(), "{}", harmless(&progress.text))?;
        }
        if let Some(note) = &progress.note
            && before.is_none_or(|it| it.note != progress.note)
        {
            terminal::note(note)?;
        }
        Ok(said.insert(progress).is_done)
    }
}

/// Follows the roll-out of that object to its end, as `rollout status` does.
pub(super) async fn follow(connection: &Connection, name: &str) -> Result<u8, Failure> {
    let status = Status {
        name: name.to_owned(),
        watch: true,
        ..Status::default()
    };
    status.run(connection).await
}

impl History {
    async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let object = cluster::get(connection, &parse_name(&self.name)?).await?;
        let revisions = cluster::revisions(connection, &object).await?;
        let mut out = io::stdout();
        let name = full_name(&object.name);
        if revisions.is_empty() {
            writeln!(out, "{name} \nNo rollout history found.")?;
            return Ok(0);
        }
        if self.revision == 0 {
            writeln!(out, "{name} ")?;
            let mut table = Table::new(&[]);
            for row in history::table(&revisions, &object, Utc::now()) {
                table.row(row);
            }
            table.write(&mut out, None)?;
            writeln!(out)?;
            return Ok(0);
        }
        let revision = history::find(&revisions, self.revision)
            .ok_or("unable to find the specified revision")?;
        let number = revision.number;
        writeln!(out, "{name} with revision #{number}\nPod Template:")?;
        let mut text = Vec::new();
        yaml(&revision.content, &mut text)?;
        for line in String::from_utf8_lossy(&text).lines() {
            writeln!(out, "  {}", harmless(line))?;
        }
        match history::replaced(&revisions, revision) {
            Replaced::Kept(before) => {
                // An undo may have given it a higher number since.
                let (hash, number) = (harmless(&before.hash), before.number);
                writeln!(out, "Changes since {hash} (now revision {number}):")?;
                for change in diff(&before.content, &revision.content) {
                    writeln!(out, "  {}", harmless(&change.to_string()))?;
                }
            }
            Replaced::Gone(hash) => writeln!(out, "{}", harmless(&history::gone(hash)))?,
            Replaced::Unknown => {}
        }
        Ok(0)
    }
}

/// The object as kubectl names it.
pub(super) fn full_name(name: &str) -> String {
    format!("mydaemonset.apps.zhongmingmao.io/{}", harmless(name))
}

impl Change {
    /// Makes a change to each object.
    async fn run(
        &self,
        connection: &Connection,
        edit: impl Fn(&Object) -> Result<Edit, String>,
    ) -> Result<u8, Failure> {
        let change = async |name: &str| self.how.change(connection, name, &edit).await;
        self.each(change).await
    }

    /// Does something to each object. A failure does not keep the others from theirs.
    async fn each(&self, change: impl AsyncFn(&str) -> Result<(), Failure>) -> Result<u8, Failure> {
        let mut code = 0;
        for name in &self.names {
            code = code.max(reported(change(name.as_str()).await)?);
        }
        Ok(code)
    }
}

impl Undo {
    async fn undo(&self, connection: &Connection, name: &str) -> Result<(), Failure> {
        let (name, mut attempt, mut warned) = (parse_name(name)?, 1, None);
        loop {
            let object = cluster::get(connection, &name).await?;
            let revisions = cluster::revisions(connection, &object).await?;
            let to = history::target(&revisions, &object, self.to_revision)?;
            if warned.replace(to.number) != Some(to.number) {
                self.warn(&object, to)?;
            }
            let edit = edit::undo(&object, to)?;
            match self.write.how.apply(connection, &object, &edit).await {
                Err(Failure::Server(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Ok(()) if edit.patch.is_some() => return Ok(hint_at_what_holds(&object)?),
                result => return result,
            }
        }
    }

    /// Says what else there is to know before the object goes back.
    fn warn(&self, object: &Object, to: &Revision) -> io::Result<()> {
        if object.raw.annotations().contains_key(LAST_APPLIED) {
            // kubectl's words.
            terminal::note(&format!(
                "Warning: resource mydaemonsets/{} was previously managed with 'kubectl apply'. Rolling back will not update the {LAST_APPLIED} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider using 'kubectl apply' with your previous configuration file instead.",
                object.name
            ))?;
        }
        if self.to_revision == 0 && !object.status.complete_revisions.contains(&to.hash) {
            let number = to.number;
            terminal::note(&format!(
                "Warning: no roll-out of revision {number} is known to have been completed"
            ))?;
        }
        Ok(())
    }
}

/// Says what keeps nodes from going back.
fn hint_at_what_holds(object: &Object) -> io::Result<()> {
    if let Some(paused) = paused(object) {
        terminal::note(&paused)?;
    }
    let count = object.strategy().partition;
    if count > 0 {
        let (name, namespace) = (&object.name, &object.namespace);
        let command = format!("kubectl mydaemonset partition {name} 0 -n {namespace}");
        terminal::note(&format!(
            "partition {count} holds nodes back on the revision that they have; let them go back, too, with: {command}"
        ))?;
    }
    Ok(())
}

impl Resume {
    async fn resume(&self, connection: &Connection, name: &str) -> Result<(), Failure> {
        let object = cluster::get(connection, &parse_name(name)?).await?;
        let edit = edit::resume(&object)?;
        let how = &self.write.how;
        if edit::resumed(&object).is_some() && how.dry_run == DryRun::None {
            self.confirm(connection, &object).await?;
        }
        how.apply(connection, &object, &edit).await
    }

    /// Shows why the roll-out stopped, and asks.
    async fn confirm(&self, connection: &Connection, object: &Object) -> Result<(), Failure> {
        let mut err = io::stderr();
        for line in view::stop(connection, object).await? {
            writeln!(err, "{line}")?;
        }
        let name = &object.name;
        confirm(
            self.yes,
            "Resume the roll-out all the same?",
            &format!(
                "the roll-out of {name:?} stopped by itself: add --yes to resume it all the same"
            ),
            &format!("{name:?} is not resumed"),
        )
    }
}

/// Asks, unless the user has said yes before. Without a terminal that is a mistake, and with another answer it ends here.
pub(super) fn confirm(
    yes: bool,
    question: &str,
    mistake: &str,
    refused: &str,
) -> Result<(), Failure> {
    if !yes && !io::stdin().is_terminal() {
        return Err(mistake.into());
    }
    if yes || ask(question)? {
        return Ok(());
    }
    Err(refused.into())
}

impl How {
    /// Makes a change to the object of that name.
    async fn change(
        &self,
        connection: &Connection,
        name: &str,
        edit: impl Fn(&Object) -> Result<Edit, String>,
    ) -> Result<(), Failure> {
        let object = cluster::get(connection, &parse_name(name)?).await?;
        self.apply(connection, &object, &edit(&object)?).await
    }

    /// Makes a change, or only tries it out, and prints what happened.
    async fn apply(
        &self,
        connection: &Connection,
        object: &Object,
        edit: &Edit,
    ) -> Result<(), Failure> {
        let changed = match (&edit.patch, self.dry_run) {
            (None, _) => object.raw.clone(),
            (Some(patch), DryRun::Client) => patched(&object.raw, patch)?,
            (Some(patch), dry_run) => {
                let dry_run = dry_run == DryRun::Server;
                cluster::patch(connection, object, patch, dry_run).await?
            }
        };
        let mut out = io::stdout();
        let name = full_name(&object.name);
        match self.output {
            None => {
                let suffix = self.dry_run.suffix();
                writeln!(out, "{name} {}{suffix}", harmless(&edit.operation))?;
            }
            Some(format) => format.print(&name, serde_json::to_value(&changed)?, &mut out)?,
        }
        Ok(())
    }
}

/// The object as it would be after a patch.
fn patched(object: &DynamicObject, patch: &Patch<Value>) -> Result<DynamicObject, Failure> {
    let mut value = serde_json::to_value(object)?;
    match patch {
        Patch::Json(operations) => {
            let patched = json_patch::patch(&mut value, operations);
            patched.map_err(|error| error.to_string())?;
        }
        Patch::Merge(fields) | Patch::Strategic(fields) | Patch::Apply(fields) => {
            json_patch::merge(&mut value, fields);
        }
        _ => {}
    }
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::history::tests::revision;
    use super::super::object::tests::object;
    use super::*;

    #[test]
    fn a_dry_run_of_the_client_shows_the_object_as_it_would_be() {
        let before = object(
            &json!({"image": "b:2", "template": {"spec": {}}}),
            &Value::Null,
        );
        let to = revision(1, "a", json!({"image": "a:1"}));
        let undone = edit::undo(&before, &to).unwrap().patch.unwrap();
        let undone = patched(&before.raw, &undone).unwrap();
        assert_eq!(undone.data["spec"], json!({"image": "a:1"}));
        let paused = patched(&before.raw, &edit::pause(&before).unwrap().patch.unwrap()).unwrap();
        assert_eq!(
            paused.data["spec"]["updateStrategy"],
            json!({"rollingUpdate": {"paused": true}})
        );
        assert_eq!(paused.metadata.resource_version.as_deref(), Some("7"));
        let mut text = Vec::new();
        let object = serde_json::to_value(&paused).unwrap();
        Format::Yaml.print("web", object, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("paused: true") && text.contains("name: web"),
            "{text}"
        );
    }
}
