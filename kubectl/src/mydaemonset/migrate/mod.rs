//! `kubectl mydaemonset migrate`: from a `DaemonSet` to a `MyDaemonSet`, and back.
//!
//! [`translate`] has the manifests and [`steps`] the order; both are pure. [`requests`] reads the cluster and carries out a
//! step, [`plan`] has the words.

mod plan;
mod requests;
mod steps;
mod translate;

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use super::object::parse_name;
use super::rollout;
use crate::INTERRUPTED;
use crate::connection::{Connection, Failure, Kind};
use crate::print::{DryRun, Objects};
use crate::terminal::{harmless, note};
use requests::Requests;
use steps::{Side, State, Step, held, next, settled, translated};
use translate::{Translation, manifest, to_ours};

/// The pause before the cluster is looked at again; a millisecond more for each pod.
const PAUSE: Duration = Duration::from_millis(300);
/// What takes longer is worth a line.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many failures in a row that may pass are waited out.
const ATTEMPTS: u32 = 30;
/// The kind of the way there.
const DAEMON_SET: Kind = Kind {
    words: &[
        "daemonset",
        "daemonsets",
        "ds",
        "daemonset.apps",
        "daemonsets.apps",
        "daemonsets.v1.apps",
    ],
    mistake: "is not a daemonset",
};

/// From a DaemonSet to a MyDaemonSet, or back.
#[derive(Args, Debug)]
pub(super) struct Migrate {
    /// daemonset/NAME for the way there, mydaemonset/NAME for the way back
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Show what would be done, and change nothing
    #[arg(long)]
    plan: bool,
    /// As --plan; with "server", let the API server judge the new object too
    #[arg(long, value_name = "STRATEGY", value_enum, default_value_t = DryRun::None, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    /// Begin without a question
    #[arg(short, long)]
    yes: bool,
    /// With --plan or --dry-run: print both manifests
    #[arg(short, long, value_name = "FORMAT", value_parser = ["yaml", "json"])]
    output: Option<String>,
}

/// The object in an argument: the side that it leads to, and the name.
fn parse(argument: &str) -> Result<(Side, String), String> {
    match argument.split_once('/') {
        None => Err(format!(
            "{argument:?} does not say which way: use daemonset/NAME or mydaemonset/NAME"
        )),
        Some((kind, _)) if DAEMON_SET.is(kind) => {
            let name = DAEMON_SET.name(argument)?;
            Ok((Side::Ours, name.to_owned()))
        }
        Some(_) => parse_name(argument).map(|name| (Side::DaemonSet, name)),
    }
}

impl Migrate {
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let (to, name) = parse(&self.object)?;
        let run = Requests {
            connection,
            name: &name,
            to,
        };
        let only_plan = self.plan || self.dry_run != DryRun::None;
        if !only_plan && self.output.is_some() {
            let text = "-o prints the manifests of a plan: add --plan";
            return Err(text.into());
        }
        let state = run.observe().await?;
        let step = next(to, &state)?;
        if state.ours.is_none() && step == Step::Follow {
            return Err(format!(
                "there is no MyDaemonSet {name:?} to migrate, and a DaemonSet of that name exists"
            )
            .into());
        }
        let is_left = step != Step::Follow && !state.is_begun();
        if only_plan || is_left {
            run.plan(&state, self).await?;
            if only_plan {
                return Ok(0);
            }
            let refused = format!("{name:?} is not migrated");
            let mistake = "nothing was changed: add --yes to begin";
            rollout::confirm(self.yes, "Begin?", mistake, &refused)?;
        }
        let code = tokio::select! {
            done = run.to_the_end() => match done {
                Err(failure @ Failure::Output(_)) => return Err(failure),
                Err(failure) => {
                    writeln!(io::stderr(), "{failure}")?;
                    1
                }
                Ok(code) => return Ok(code),
            },
            _ = tokio::signal::ctrl_c() => {
                writeln!(io::stderr())?;
                INTERRUPTED
            }
        };
        let (argument, namespace) = (&self.object, &connection.namespace);
        note(&format!(
            "The migration is incomplete. Resume it with: kubectl mydaemonset migrate {argument} -n {namespace} --yes"
        ))?;
        Ok(code)
    }
}

impl Requests<'_> {
    /// Prints what would be done.
    async fn plan(&self, state: &State, how: &Migrate) -> Result<(), Failure> {
        let (to, name) = (self.to, self.name);
        let missing = self.missing_rights().await?;
        if !missing.is_empty() {
            let namespace = &self.connection.namespace;
            let missing = missing.join(", ");
            return Err(
                format!("you have no right in the namespace {namespace:?} to: {missing}").into(),
            );
        }
        let mut out = io::stdout();
        let Some(live) = state.live(to.other()) else {
            let (kind, name) = (to.kind(), harmless(name));
            let text = "only the end of the migration is left";
            writeln!(out, "{kind} {name}: {text}.")?;
            return Ok(());
        };
        let translation = match to {
            Side::Ours => to_ours(&manifest(&settled(live, name)?))?,
            Side::DaemonSet => translated(live)?,
        };
        // Nothing is touched unless the API server takes the new object.
        let is_judged = !how.plan && how.dry_run != DryRun::Client;
        if is_judged && state.live(to).is_none() {
            self.is_understood().await?;
            let object = match to {
                Side::Ours => held(live, name)?,
                Side::DaemonSet => translation.object.clone(),
            };
            self.create(to, &object, true).await?;
        }
        if let Some(format) = &how.output {
            let mut list = Objects::new(format == "json", &mut out)?;
            for object in [manifest(&live.0), translation.object] {
                list.add(object, &mut out)?;
            }
            list.end(&mut out)?;
            return Ok(());
        }
        let Translation { object, changes } = translation;
        for line in plan::lines(to, name, &live.0, &object, changes) {
            writeln!(out, "{}", harmless(&line))?;
        }
        Ok(())
    }

    /// Takes one step after the other.
    async fn to_the_end(&self) -> Result<u8, Failure> {
        let mut failures = 0;
        let mut waiting: Option<(String, Instant)> = None;
        let mut is_begun = false;
        loop {
            let taken = match self.observe().await {
                Ok(state) => {
                    let ours = state.ours.as_ref();
                    let is_turned = ours.is_some_and(|ours| ours.leads_away_from(self.to));
                    // The way there ends without the annotation, the way back without the object.
                    let is_over = self.to == Side::DaemonSet
                        && ours.is_some_and(|ours| ours.migration().is_none());
                    if is_begun && (is_turned || is_over) {
                        let text =
                            "another run of this command migrates the other way, so this one ends";
                        return Err(text.into());
                    }
                    is_begun |= !is_turned && state.is_begun();
                    self.step(&state, &mut waiting).await
                }
                Err(failure) => Err(failure),
            };
            match taken {
                Ok(Some(pause)) => {
                    failures = 0;
                    sleep(pause).await;
                }
                Ok(None) => break,
                Err(failure) if failures < ATTEMPTS => {
                    let pause = match &failure {
                        // The object changed since it was read, or another run of this command was faster.
                        Failure::Server(status) if matches!(status.code, 404 | 409) => PAUSE,
                        failure if failure.is_passing() => PATIENCE,
                        _ => return Err(failure),
                    };
                    if failures == 0 && pause == PATIENCE {
                        writeln!(io::stderr(), "{failure}; trying again")?;
                    }
                    failures += 1;
                    sleep(pause).await;
                }
                Err(failure) => return Err(failure),
            }
        }
        self.follow().await
    }

    /// Takes the next step. Returns when to look again; nothing once only the roll-out is left.
    async fn step(
        &self,
        state: &State,
        waiting: &mut Option<(String, Instant)>,
    ) -> Result<Option<Duration>, Failure> {
        let step = next(self.to, state)?;
        match &step {
            Step::Follow => return Ok(None),
            Step::Wait(text) => {
                let (last, since) = waiting.get_or_insert((String::new(), Instant::now()));
                if last != text && since.elapsed() >= PATIENCE {
                    note(&format!("waiting for {text}"))?;
                    last.clone_from(text);
                }
                let pods = u64::try_from(state.pods.len()).unwrap_or_default();
                return Ok(Some(PAUSE + Duration::from_millis(pods)));
            }
            _ => *waiting = None,
        }
        let done = self.act(&step, state).await?;
        writeln!(io::stdout(), "{}", harmless(&done))?;
        Ok(Some(Duration::ZERO))
    }

    /// Follows the roll-out, or says how.
    async fn follow(&self) -> Result<u8, Failure> {
        let (connection, name) = (self.connection, self.name);
        let namespace = harmless(&connection.namespace);
        let mut out = io::stdout();
        if self.to == Side::DaemonSet {
            writeln!(
                out,
                "Follow its roll-out with: kubectl rollout status daemonset/{name} -n {namespace}\nMigrate it again with: kubectl mydaemonset migrate daemonset/{name} -n {namespace}"
            )?;
            return Ok(0);
        }
        let ours = self.stored(Side::Ours).await?.unwrap_or_default();
        // kubectl's verb refuses to follow that strategy.
        let is_on_delete = ours["spec"]["updateStrategy"]["type"] == "OnDelete";
        let code = if is_on_delete {
            0
        } else {
            rollout::follow(connection, name).await?
        };
        writeln!(
            out,
            "Back with: kubectl mydaemonset migrate mydaemonset/{name} -n {namespace}"
        )?;
        Ok(code)
    }
}
