//! `kubectl mydaemonset migrate`: from a `DaemonSet` to a `MyDaemonSet`, and back.
//!
//! [`translate`] has the manifests and [`steps`] the order; both are pure. [`requests`] reads the cluster and carries out a
//! step, [`plan`] has the words.

mod plan;
mod requests;
mod steps;
mod translate;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::object::parse_name;
use super::rollout;
use crate::INTERRUPTED;
use crate::connection::{Connection, Failure, Kind};
use crate::print::{DryRun, Objects};
use crate::terminal::{ask, harmless};
use requests::{Requests, kept_name};
use steps::{Direction, Side, State, Step, next};

/// The pause before the cluster is looked at again; a millisecond more for each pod.
const PAUSE: Duration = Duration::from_millis(300);
/// What takes longer is worth a line.
const PATIENCE: Duration = Duration::from_secs(2);
/// An operator takes up a new object within a second.
const IDLE: Duration = Duration::from_secs(10);
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

/// Direction and name in an argument.
fn parse(argument: &str) -> Result<(Direction, String), String> {
    match argument.split_once('/') {
        None => Err(format!(
            "{argument:?} does not say which way: use daemonset/NAME or mydaemonset/NAME"
        )),
        Some((kind, _)) if DAEMON_SET.is(kind) => {
            let name = DAEMON_SET.name(argument)?;
            Ok((Direction::Forward, name.to_owned()))
        }
        Some(_) => parse_name(argument).map(|name| (Direction::Back, name)),
    }
}

impl Migrate {
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let (direction, name) = parse(&self.object).map_err(Failure::Message)?;
        let run = Run {
            requests: Requests {
                connection,
                name: &name,
            },
            direction,
        };
        let only_plan = self.plan || self.dry_run != DryRun::None;
        if !only_plan && self.output.is_some() {
            let text = "-o prints the manifests of a plan: add --plan";
            return Err(Failure::Message(text.to_owned()));
        }
        let state = run.requests.observe().await?;
        let step = next(direction, &state).map_err(Failure::Message)?;
        let is_left = step != Step::Follow;
        // What is kept may be of an earlier migration: until the source is stopped, nothing has happened to it.
        // Without either object, that may have been long ago.
        let has_object = state.daemon_set.is_some() || state.ours.is_some();
        let is_begun = has_object && !matches!(step, Step::Keep(_) | Step::Stop(_));
        if only_plan || (is_left && !is_begun) {
            let planned = run.plan(&step, &state, self).await?;
            if only_plan {
                return Ok(planned);
            }
            self.confirm(&name)?;
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
        let (argument, namespace) = (harmless(&self.object), harmless(&connection.namespace));
        writeln!(
            io::stderr(),
            "The migration is not at its end. Go on with: kubectl mydaemonset migrate {argument} -n {namespace} --yes"
        )?;
        Ok(code)
    }

    fn confirm(&self, name: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let text = "nothing was changed: add --yes to begin";
            return Err(Failure::Message(text.to_owned()));
        }
        if ask("Begin?")? {
            return Ok(());
        }
        Err(Failure::Message(format!("{name:?} is not migrated")))
    }
}

/// A migration of one name.
struct Run<'a> {
    requests: Requests<'a>,
    direction: Direction,
}

impl Run<'_> {
    /// Prints what would be done.
    async fn plan(&self, step: &Step, state: &State, how: &Migrate) -> Result<u8, Failure> {
        let rights = plan::rights(self.direction);
        let missing = self.requests.missing_rights(rights).await?;
        if !missing.is_empty() {
            let namespace = &self.requests.connection.namespace;
            let missing = missing.join(", ");
            return Err(Failure::Message(format!(
                "you have no right in the namespace {namespace:?} to: {missing}"
            )));
        }
        let target = self.direction.target();
        let kept = match step {
            Step::Keep(kept) => Some(kept),
            _ => state.kept.as_ref(),
        };
        let Some(kept) = kept else {
            return Ok(0);
        };
        // Nothing is touched unless the API server takes the new object.
        let is_judged = !how.plan && how.dry_run != DryRun::Client;
        if is_judged && state.live(target).is_none() {
            self.requests
                .create(target, kept.manifest(target), true)
                .await?;
        }
        let mut out = io::stdout();
        if let Some(format) = &how.output {
            let mut list = match format.as_str() {
                "json" => Objects::json(&mut out)?,
                _ => Objects::yaml(&mut out)?,
            };
            for side in [Side::DaemonSet, Side::Ours] {
                list.add(kept.manifest(side).clone(), &mut out)?;
            }
            list.end(&mut out)?;
            return Ok(0);
        }
        let source = self.requests.stored(self.direction.source()).await?;
        let source = source.unwrap_or(Value::Null);
        let lines = plan::lines(self.direction, state, kept, &source);
        for line in lines.map_err(Failure::Message)? {
            writeln!(out, "{}", harmless(&line))?;
        }
        Ok(0)
    }

    /// Takes one step after the other.
    async fn to_the_end(&self) -> Result<u8, Failure> {
        let mut failures = 0;
        let mut waiting: Option<(String, Instant)> = None;
        let mut is_begun = false;
        loop {
            let observed = self.requests.observe().await;
            let taken = match observed {
                Ok(state) => {
                    let kept = state.kept.as_ref();
                    let is_ours = kept.is_some_and(|kept| kept.direction == self.direction);
                    if is_begun && !is_ours {
                        let text =
                            "another run of this command migrates the other way, so this one ends";
                        return Err(Failure::Message(text.to_owned()));
                    }
                    is_begun |= is_ours;
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
                // The object changed since it was read, or another run of this command was faster.
                Err(Failure::Server(status)) if matches!(status.code, 404 | 409) => {
                    failures += 1;
                    if failures > ATTEMPTS {
                        return Err(Failure::Server(status));
                    }
                    sleep(PAUSE).await;
                }
                Err(failure) if failure.is_passing() && failures < ATTEMPTS => {
                    if failures == 0 {
                        writeln!(io::stderr(), "{failure}; trying again")?;
                    }
                    failures += 1;
                    sleep(PATIENCE).await;
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
        let step = next(self.direction, state).map_err(Failure::Message)?;
        match &step {
            Step::Follow => return Ok(None),
            Step::Wait(text) => {
                let (last, since) = waiting.get_or_insert((String::new(), Instant::now()));
                if last != text && since.elapsed() >= PATIENCE {
                    writeln!(io::stderr(), "waiting for {}", harmless(text))?;
                    last.clone_from(text);
                }
                let pods = u64::try_from(state.pods.len()).unwrap_or_default();
                return Ok(Some(PAUSE + Duration::from_millis(pods)));
            }
            _ => *waiting = None,
        }
        let done = self.requests.act(&step, state).await?;
        writeln!(io::stdout(), "{}", harmless(&done))?;
        Ok(Some(Duration::ZERO))
    }

    /// Follows the roll-out, and says what is left to know.
    async fn follow(&self) -> Result<u8, Failure> {
        let (name, namespace) = (
            self.requests.name,
            harmless(&self.requests.connection.namespace),
        );
        let target = self.direction.target();
        let stored = self.requests.stored(target).await?.unwrap_or_default();
        let code = match target {
            // kubectl's verb refuses to follow this strategy.
            Side::Ours if stored["spec"]["updateStrategy"]["type"] != "OnDelete" => {
                tokio::select! {
                    code = rollout::follow(self.requests.connection, name) => code?,
                    idle = self.tell_if_idle() => idle?,
                }
            }
            _ => self.poll(target).await?,
        };
        let mut out = io::stdout();
        match self.direction {
            Direction::Forward => {
                writeln!(
                    out,
                    "Back with: kubectl mydaemonset migrate mydaemonset/{name} -n {namespace}\nFor that, configmap/{} is kept, and the ControllerRevisions of the DaemonSet.",
                    kept_name(name)
                )?;
            }
            Direction::Back => {
                if let Some(left) = self.requests.forget().await? {
                    writeln!(io::stderr(), "{}", harmless(&left))?;
                }
                writeln!(
                    out,
                    "There again with: kubectl mydaemonset migrate daemonset/{name} -n {namespace}"
                )?;
            }
        }
        Ok(code)
    }

    /// Says once that no operator has taken up the object, and then never ends.
    async fn tell_if_idle(&self) -> Result<u8, Failure> {
        sleep(IDLE).await;
        let stored = self.requests.stored(Side::Ours).await?;
        if stored.is_some_and(|it| !plan::is_taken_up(&it)) {
            let name = self.requests.name;
            writeln!(
                io::stderr(),
                "no operator has taken up mydaemonset/{name} yet: does one run, and for this namespace?"
            )?;
        }
        std::future::pending().await
    }

    /// Follows the roll-out as `kubectl rollout status` does.
    async fn poll(&self, side: Side) -> Result<u8, Failure> {
        let mut said = String::new();
        loop {
            let Some(object) = self.requests.stored(side).await? else {
                let text = "object has been deleted";
                return Err(Failure::Message(text.to_owned()));
            };
            let (text, is_done) = plan::progress(&object);
            if text != said {
                writeln!(io::stdout(), "{}", harmless(&text))?;
                said = text;
            }
            if is_done {
                return Ok(0);
            }
            sleep(PAUSE).await;
        }
    }
}
