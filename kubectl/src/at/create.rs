//! `kubectl at`: has a command run at an instant, once.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory as _, Parser};
use jiff::Timestamp;
use kube::core::Request;
use kube::core::params::PostParams;
use my_operator_at::crd::AtSpec;
use my_operator_times::moment::{Clock, schedule};
use my_operator_times::{duration, when};
use serde_json::Value;

use super::change::{self, Change};
use super::echo::Echo;
use super::manifest::Wish;
use super::source::Named;
use super::{argv, follow, name, object, quote, script, show, source, template, verdict, zone};
use crate::connection::{Connection, Failure, Flags};
use crate::print::{DryRun, Format};
use crate::{Program, block_on, parsed, terminal};

/// The program.
pub const PROGRAM: Program = Program {
    name: "kubectl-at",
    command: Create::command,
    run: |matches| parsed::<Create>(matches)?.run(),
};

const EXAMPLES: &str = "Examples:
  kubectl at 16:00 tomorrow -- ./report --all     # a program and its arguments
  echo 'date | tee /dev/stderr' | kubectl at noon # text for the shell
  kubectl at now + 5 minutes -f job.sh --follow   # and wait for its end
  kubectl at 2am --from deployment/web -- ./migrate up  # in its environment
  kubectl at 2am --from cronjob/report                  # its own command
  kubectl at -t 202611271600 --dry-run=server -o yaml -- ./report
  kubectl at -c report-x7k2p                      # what will run
  kubectl at --logs report-x7k2p                  # what it has written
  kubectl at --reschedule report-x7k2p 17:00      # another time
  kubectl at --pause report-x7k2p                 # hold it back
  kubectl at --resume report-x7k2p                # let it go on

Exit codes of --follow:
  that of the command; 75 if it was not started in time (Missed)
  76 if its end is unknown (Unknown); 130 on ^C, else 1";

/// Run a command once, at a time as at(1) takes it.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-at",
    bin_name = "kubectl at",
    version,
    after_help = EXAMPLES,
    override_usage = "kubectl at TIMESPEC [flags] [-- COMMAND...]\n       kubectl at TIMESPEC --from KIND/NAME [-c CONTAINER] [flags] [-- COMMAND...]\n       kubectl at -c NAME\n       kubectl at --logs NAME [--follow]\n       kubectl at --resume NAME [--follow]\n       kubectl at --pause NAME\n       kubectl at --reschedule NAME TIMESPEC [--follow]",
    group = ArgGroup::new("looks").args(["cat", "logs"]),
    // What is about an At that exists makes no new one.
    group = ArgGroup::new("existing").args(["cat", "logs", "resume", "pause", "reschedule"]),
    group = ArgGroup::new("untimed").args(["cat", "logs", "resume", "pause"])
)]
struct Create {
    /// When: 16:00 tomorrow, teatime fri, now + 5 minutes, 1h30m, 2026-11-24T16:00:00Z; in the time zone of TZ
    #[arg(value_name = "TIMESPEC", conflicts_with_all = ["untimed", "time"], allow_negative_numbers = true)]
    timespec: Vec<String>,
    /// The program and its arguments; if absent, text from standard input, or else what the job of --from runs
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["existing", "file"])]
    command: Vec<String>,
    /// When, as touch(1) takes it
    #[arg(
        short = 't',
        value_name = "[[CC]YY]MMDDhhmm[.SS]",
        conflicts_with = "untimed"
    )]
    time: Option<String>,
    /// Read the text for the shell from this file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "existing")]
    file: Option<PathBuf>,
    /// Wait for the end: show what it waits for and its output, and exit with the exit code of the command
    #[arg(short = 'F', long, conflicts_with_all = ["dry_run", "cat", "pause"])]
    follow: bool,
    /// Show what an At runs
    #[arg(short = 'c', long, value_name = "NAME")]
    cat: Option<String>,
    /// Show what the command of an At has written
    #[arg(long, value_name = "NAME")]
    logs: Option<String>,
    /// Let an At run that is suspended
    #[arg(long, value_name = "NAME")]
    resume: Option<String>,
    /// Hold an At back that has not started, until --resume
    #[arg(long, value_name = "NAME")]
    pause: Option<String>,
    /// Give an At that has not started another time: TIMESPEC, or that of -t
    #[arg(long, value_name = "NAME")]
    reschedule: Option<String>,

    #[command(flatten)]
    runs: Runs,

    /// Release its pod at most so long after its time, such as 10m; a node and an image may take longer
    #[arg(long, value_name = "DURATION", value_parser = duration::seconds, conflicts_with = "existing", help_heading = "How")]
    deadline: Option<i64>,
    /// End it when it has run for so long, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration::seconds, conflicts_with = "existing", help_heading = "How")]
    timeout: Option<i64>,
    /// Delete it, with its output, so long after its end, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = duration::seconds, conflicts_with = "existing", help_heading = "How")]
    ttl: Option<i64>,
    /// Hold it back until kubectl at --resume NAME
    #[arg(long, conflicts_with = "existing", help_heading = "How")]
    suspend: bool,
    /// Change nothing: client only makes the object, server also has it checked
    #[arg(
        long,
        value_name = "WHERE",
        default_value = "none",
        conflicts_with = "looks",
        help_heading = "How"
    )]
    dry_run: DryRun,
    /// Print the object
    #[arg(short, long, value_name = "FORMAT", conflicts_with_all = ["looks", "follow"], help_heading = "How")]
    output: Option<Format>,

    #[command(flatten)]
    connection: Flags,
}

/// What an At runs. What is about one that exists has none of it.
#[derive(Args, Debug)]
#[command(next_help_heading = "What runs")]
#[group(conflicts_with = "existing")]
struct Runs {
    /// The name of the At; one is made from the command if absent
    #[arg(long)]
    name: Option<String>,
    /// Take what this object's pods have: image, environment, volumes and the rest
    #[arg(long, value_name = "KIND/NAME", conflicts_with = "template")]
    from: Option<String>,
    /// The container to take; with --from, -c is the same
    #[arg(long, value_name = "CONTAINER", requires = "from")]
    container: Option<String>,
    /// The image of the container [default: bash:5.3, or that of --from]
    #[arg(long)]
    image: Option<String>,
    /// The shell that gets the command after -c [default: bash; with --from, none or sh]
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<String>,
    /// The ServiceAccount of the pod
    #[arg(long, value_name = "NAME")]
    serviceaccount: Option<String>,
    /// A variable of the environment; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A file with a Pod, a PodTemplate, or metadata or spec of a pod: what else the pod needs
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Labels of the At
    #[arg(short, long, value_name = "KEY=VALUE,...", value_delimiter = ',', value_parser = pair)]
    labels: Vec<(String, String)>,
}

/// NAME=VALUE.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

impl Create {
    fn run(&self) -> Result<u8, Failure> {
        let change = self.change()?;
        if change.is_none() && self.cat.is_none() && self.logs.is_none() {
            return self.make();
        }
        block_on(async {
            let connection = Connection::new(&self.connection).await?;
            if let Some(name) = &self.cat {
                return show::command(&connection, name).await;
            }
            if let Some((name, change)) = change {
                change::run(&connection, name, change, self.dry_run, self.output).await?;
            }
            match (&self.logs, change) {
                (Some(name), _) if !self.follow => show::log(&connection, name).await,
                (Some(name), _) => follow::run(&connection, name, false).await,
                (None, Some((name, _))) if self.follow => {
                    follow::run(&connection, name, true).await
                }
                _ => Ok(0),
            }
        })
    }

    /// The At to change, and how.
    fn change(&self) -> Result<Option<(&str, Change)>, Failure> {
        if let Some(name) = &self.reschedule {
            let instant = self.instant(&zone::clock())?;
            return Ok(Some((name, Change::Reschedule(instant))));
        }
        let pause = self.pause.as_deref().map(|name| (name, Change::Pause));
        let resume = self.resume.as_deref().map(|name| (name, Change::Resume));
        Ok(pause.or(resume))
    }

    /// Makes an At.
    fn make(&self) -> Result<u8, Failure> {
        // A mistake in the time shows before the user types a command.
        let clock = zone::clock();
        let instant = self.instant(&clock)?;
        check_program(&self.command)?;
        let source = self.runs.from.as_deref().map(source::parse).transpose()?;
        let template = self.runs.template.as_deref().map(template::read);
        let template = template.transpose()?;
        let gives_command = !self.command.is_empty() || self.file.is_some();
        let (command, base) = match &source {
            Some(source) if !gives_command => {
                let input = io::stdin();
                let piped = (!input.is_terminal()).then(|| input.lock());
                piped_or_own(source, piped)?
            }
            _ => self.text(&clock, instant)?,
        };
        let mut wish = Wish {
            labels: self.runs.labels.clone(),
            spec: AtSpec {
                schedule: Some(schedule(instant, clock.now)),
                command: Some(command),
                image: self.runs.image.clone(),
                shell: self
                    .runs
                    .shell
                    .as_deref()
                    .map(|shell| argv::by(Some(shell))),
                starting_deadline_seconds: self.deadline,
                active_deadline_seconds: self.timeout,
                ttl_seconds_after_finished: self.ttl,
                suspend: self.suspend.then_some(true),
                ..AtSpec::default()
            },
            service_account: self.runs.serviceaccount.clone(),
            env: self.runs.env.clone(),
            template,
            ..Wish::default()
        };
        wish.name = match &self.runs.name {
            Some(name) => name.clone(),
            None => name::generated(&base),
        };
        block_on(self.create(wish, source.as_ref(), instant))
    }

    fn instant(&self, clock: &Clock) -> Result<Timestamp, Failure> {
        if let Some(time) = &self.time {
            return Ok(when::touch(time, clock)?);
        }
        let words = self.timespec.join(" ");
        when::instant(&words, clock).map_err(|mistake| {
            let lacks_command = self.command.is_empty() && self.file.is_none();
            if !lacks_command || self.reschedule.is_some() {
                return Failure::Message(mistake);
            }
            if let [name] = self.timespec.as_slice()
                && self.suspend
            {
                return Failure::Message(format!(
                    "{mistake}; to suspend an At that exists, write kubectl at --pause {name}"
                ));
            }
            Failure::Message(when::missing_dashes(&words, clock).unwrap_or(mistake))
        })
    }

    /// The text for the shell, and what a name is made from.
    fn text(&self, clock: &Clock, instant: Timestamp) -> Result<(String, String), Failure> {
        if !self.command.is_empty() {
            if quote::is_text(&self.command) {
                terminal::note(
                    "Note: what is after -- is one word, and so the name of one program. Give text for the shell on standard input.",
                )?;
            }
            let base = self.command.first().map(|program| name::base(program));
            return Ok((quote::command(&self.command), base.unwrap_or_default()));
        }
        if let Some(file) = &self.file {
            let text = warned(script::file(file)?)?;
            let stem = file.file_stem().and_then(|stem| stem.to_str());
            let base = stem.filter(|stem| *stem != "-").map(name::base);
            let base = base.unwrap_or_else(|| name::base(&text));
            return Ok((text, base));
        }
        let input = io::stdin();
        let text = if input.is_terminal() {
            let mut prompt = io::stderr().lock();
            let when = if instant > clock.now {
                format!("{}, {}", clock.local(instant), clock.relative(instant))
            } else {
                "at once".to_owned()
            };
            writeln!(prompt, "Runs {when}. Type the commands, and ^D at the end.")?;
            script::ask(input.lock(), &mut prompt)?
        } else {
            warned(script::all(input.lock(), "standard input")?)?
        };
        let base = name::base(&text);
        Ok((text, base))
    }

    async fn create(
        &self,
        mut wish: Wish,
        source: Option<&Named>,
        instant: Timestamp,
    ) -> Result<u8, Failure> {
        let connection = Connection::new(&self.connection).await;
        let connection = match self.dry_run {
            // Without any cluster, too: only the namespace is of interest.
            DryRun::Client if source.is_none() => connection.ok(),
            _ => Some(connection?),
        };
        let namespace = connection.as_ref().map(|it| &it.namespace);
        let namespace = namespace.or(self.connection.namespace.as_ref());
        let namespace = namespace.filter(|it| !it.is_empty()).cloned();
        wish.namespace = namespace.unwrap_or_else(|| "default".to_owned());
        if let (Some(source), Some(connection)) = (source, &connection) {
            self.take(connection, source, &mut wish).await?;
        }
        let Some(connection) = connection.filter(|_| self.dry_run != DryRun::Client) else {
            let manifest = wish.manifest()?;
            self.echo(&wish, &manifest, instant)?;
            return Ok(0);
        };
        let created = self.post(&connection, &wish).await?;
        let object: Value = serde_json::from_str(&created)
            .map_err(|error| format!("the server's answer cannot be read: {error}"))?;
        self.echo(&wish, &object, instant)?;
        if self.follow {
            return follow::run(&connection, &wish.name, true).await;
        }
        match self.dry_run {
            DryRun::None if !self.suspend => {
                verdict::warn(&connection, &wish.name, instant).await?;
            }
            DryRun::Server => verdict::warn_of_dry_run(&connection, &object).await?,
            _ => {}
        }
        Ok(0)
    }

    /// Takes from the object what its pods have, and its command if none is given.
    async fn take(
        &self,
        connection: &Connection,
        source: &Named,
        wish: &mut Wish,
    ) -> Result<(), Failure> {
        let container = self.runs.container.as_deref();
        let mut taken = source.take(connection, container).await?;
        let spec = &mut wish.spec;
        let text = spec.command.take().filter(|text| !text.is_empty());
        if let Some(text) = text.filter(|_| self.command.is_empty()) {
            spec.shell = Some(taken.by_shell(self.runs.shell.as_deref()));
            spec.command = Some(text);
        } else {
            let run = taken.run(&self.command, self.runs.shell.as_deref(), &self.runs.env);
            let run = run.map_err(|what| source.wrong(&what))?;
            spec.shell = Some(run.shell);
            spec.command = Some(run.command);
        }
        for note in &taken.notes {
            terminal::note(&format!("Note: {source} {note}"))?;
        }
        spec.active_deadline_seconds = spec.active_deadline_seconds.or(taken.timeout);
        spec.image.get_or_insert(taken.image);
        wish.template = Some(taken.template);
        Ok(())
    }

    async fn post(&self, connection: &Connection, wish: &Wish) -> Result<String, Failure> {
        let params = PostParams {
            dry_run: self.dry_run == DryRun::Server,
            field_manager: Some(object::FIELD_MANAGER.to_owned()),
        };
        let body = wish.manifest()?.to_string().into_bytes();
        let create = |ats: Request| ats.create(&params, body);
        object::send(connection, create).await.map_err(|failure| {
            if params.dry_run || !failure.may_have_acted() {
                return failure;
            }
            Failure::Unreachable(format!(
                "{failure}. The answer is lost, not necessarily the request: kubectl get at {} shows whether it was created",
                wish.name
            ))
        })
    }

    fn echo(&self, wish: &Wish, created: &Value, instant: Timestamp) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let name = terminal::harmless(&wish.name);
        if let Some(format) = self.output {
            let name = format!("{}/{name}", object::RESOURCE);
            format.print(&name, created.clone(), &mut out)?;
        } else {
            let echo = Echo {
                schedule: wish.spec.schedule.as_deref().unwrap_or_default(),
                instant,
                deadline: created["spec"]["startingDeadlineSeconds"].as_i64(),
                suspend: self.suspend,
                dry_run: self.dry_run,
            };
            let words = echo.words(&zone::clock());
            let dry = self.dry_run.suffix();
            writeln!(out, "at/{name} {words}{dry}")?;
        }
        Ok(out.flush()?)
    }
}

/// That the words after `--`, if there are any, begin with the name of a program.
fn check_program(command: &[String]) -> Result<(), Failure> {
    match command {
        [program, ..] if program.trim().is_empty() => Err(format!(
            "{program:?} after -- is not a program: write its name, as in kubectl at noon -- ./report"
        )
        .into()),
        _ => Ok(()),
    }
}

/// The text of standard input, and what a name is made from. On a terminal, nothing is piped. The text is empty if the
/// object is to run its own command.
fn piped_or_own(source: &Named, piped: Option<impl io::Read>) -> Result<(String, String), Failure> {
    let text = piped.map(|input| script::optional(input, "standard input"));
    let text = warned(text.transpose()?.unwrap_or_default())?;
    if !text.is_empty() {
        let base = name::base(&text);
        return Ok((text, base));
    }
    if !source.is_job() {
        let what = "needs a command: give one after --, with -f FILE, or on standard input";
        return Err(source.wrong(&what));
    }
    Ok((text, name::base(source.name())))
}

/// The text of a command, once the user has read what is odd about it.
fn warned(text: String) -> Result<String, Failure> {
    if let Some(warning) = script::warning(&text) {
        writeln!(io::stderr(), "{warning}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsString;

    use clap::FromArgMatches as _;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Create, clap::Error> {
        let words = ["kubectl-at"].iter().chain(words);
        let words: Vec<OsString> = words.map(OsString::from).collect();
        let matches = PROGRAM.parser(&words).try_get_matches_from(words)?;
        Create::from_arg_matches(&matches)
    }

    #[test]
    fn an_increment_back_may_have_no_blank_after_the_minus() {
        let create = parsed(&["sat", "-30", "minutes", "--", "ls"]).unwrap();
        assert_eq!(create.timespec.join(" "), "sat -30 minutes");
        let now = "2026-11-27T12:47:35Z".parse().unwrap();
        let clock = Clock {
            now,
            zone: jiff::tz::TimeZone::UTC,
        };
        let spaced = parsed(&["sat", "-", "30", "minutes", "--", "ls"]).unwrap();
        assert_eq!(
            create.instant(&clock).unwrap(),
            spaced.instant(&clock).unwrap()
        );
    }

    #[test]
    fn a_time_that_no_at_can_have_is_refused() {
        let now = "2026-11-27T12:47:35Z".parse().unwrap();
        let clock = Clock {
            now,
            zone: jiff::tz::TimeZone::UTC,
        };
        for (words, accepted) in [
            (&["-t", "999812312359"][..], true),
            (&["-t", "197001010000"], true),
            (&["-t", "999901010000"], false),
            (&["-t", "999912312359"], false),
            (&["-t", "196912312359"], false),
            (&["-t", "000101010000"], false),
            (&["noon", "jan", "1", "9999"], false),
            (&["now", "+", "9999", "years"], false),
            (&["now", "+", "2147483647", "weeks"], false),
        ] {
            let instant = parsed(words).unwrap().instant(&clock);
            assert_eq!(instant.is_ok(), accepted, "{words:?}");
            if let Err(error) = instant {
                let error = error.to_string();
                assert!(
                    error.contains("years") && error.lines().count() == 1,
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_command_without_dashes_gets_a_hint_and_one_with_them_does_not() {
        let clock = Clock {
            now: "2026-11-27T12:47:35Z".parse().unwrap(),
            zone: jiff::tz::TimeZone::UTC,
        };
        for (words, hint) in [
            (&["now", "+", "5", "minutes", "echo", "hi"][..], true),
            (&["noon", "echo", "--", "ls"], false),
            (&["noon", "echo", "-f", "x"], false),
            (&["--reschedule", "x", "noon", "echo"], false),
        ] {
            let error = parsed(words).unwrap().instant(&clock).unwrap_err();
            let error = error.to_string();
            assert_eq!(error.contains("write -- before"), hint, "{error}");
        }
        let create = parsed(&["--suspend", "report-x7k2p"]).unwrap();
        let error = create.instant(&clock).unwrap_err().to_string();
        assert!(
            error.ends_with("write kubectl at --pause report-x7k2p"),
            "{error}"
        );
    }

    #[test]
    fn an_empty_word_is_no_program() {
        let checked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            check_program(&words).map_err(|error| error.to_string())
        };
        for words in [&[""][..], &["", "x"], &[" "], &["\t\n"]] {
            let error = checked(words).unwrap_err();
            assert!(error.contains("after -- is not a program"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let none: &[&str] = &[];
        for words in [none, &["ls"], &["ls", ""], &["echo a | wc"]] {
            assert_eq!(checked(words), Ok(()), "{words:?}");
        }
    }

    #[test]
    fn what_exists_is_resumed_paused_or_given_another_time() {
        let change = |words: &[&str]| {
            let create = parsed(words).unwrap();
            let change = create.change();
            change
                .map(|it| it.map(|(name, change)| (name.to_owned(), change)))
                .map_err(|error| error.to_string())
        };
        let found = |change| Ok::<_, String>(Some(("x".to_owned(), change)));
        assert_eq!(change(&["--resume", "x"]), found(Change::Resume));
        assert_eq!(change(&["--pause", "x"]), found(Change::Pause));
        assert_eq!(change(&["noon", "--", "ls"]), Ok(None));
        let instant = "2099-11-27T15:00:00Z";
        let expected = found(Change::Reschedule(instant.parse().unwrap()));
        assert_eq!(change(&["--reschedule", "x", instant]), expected);
        assert_eq!(change(&[instant, "--reschedule=x"]), expected);
        let touched = change(&["--reschedule", "x", "-t", "209911271500"]);
        assert!(matches!(touched, Ok(Some((_, Change::Reschedule(_))))));
        let error = change(&["--reschedule", "x"]).unwrap_err();
        assert!(error.contains("no time given"), "{error}");
    }

    #[test]
    fn no_example_of_the_help_is_wrapped() {
        let help = Create::command().term_width(80).render_help().to_string();
        assert!(help.contains(EXAMPLES), "{help}");
    }

    #[test]
    fn words_before_the_dashes_are_the_time_and_after_them_the_command() {
        let create =
            parsed(&["16:00", "+", "3", "days", "--image", "x", "--", "ls", "-l"]).unwrap();
        assert_eq!(create.timespec, ["16:00", "+", "3", "days"]);
        assert_eq!(create.command, ["ls", "-l"]);
        assert_eq!(create.runs.image.as_deref(), Some("x"));
    }

    #[test]
    fn next_to_from_c_is_the_container_and_alone_it_shows_an_at() {
        for words in [
            &["noon", "--from", "deployment/web", "-c", "app"][..],
            &["noon", "-c", "app", "--from=deployment/web"],
            &[
                "--from=deployment/web",
                "-capp",
                "noon",
                "--",
                "sh",
                "-c",
                "ls",
            ],
            &["noon", "--from=deployment/web", "-Fc", "app"],
            &["noon", "--from=deployment/web", "--container", "app"],
        ] {
            let create = parsed(words).unwrap();
            assert_eq!(create.runs.container.as_deref(), Some("app"), "{words:?}");
            assert_eq!(create.cat, None, "{words:?}");
        }
        let create = parsed(&["noon", "--from=cj/x", "--", "sh", "-c", "ls"]).unwrap();
        assert_eq!(create.command, ["sh", "-c", "ls"]);
        assert_eq!(create.runs.container, None);
        assert_eq!(parsed(&["-c", "x"]).unwrap().cat.as_deref(), Some("x"));
    }

    #[test]
    fn piped_text_is_the_command_and_only_that_of_a_job_runs_without_any() {
        let found = |from: &str, piped: Option<&str>| {
            let source = source::parse(from).unwrap();
            let found = piped_or_own(&source, piped.map(str::as_bytes));
            found.map_err(|error| error.to_string())
        };
        let pair = |text: &str, base: &str| Ok::<_, String>((text.to_owned(), base.to_owned()));
        for from in ["cj/nightly", "job/nightly", "po/db-0", "deploy/web"] {
            let text = found(from, Some("pg_dumpall >/backup/x\n"));
            assert_eq!(text, pair("pg_dumpall >/backup/x", "pg-dumpall"), "{from}");
            assert!(found(from, Some("a\0")).unwrap_err().contains("NUL"));
        }
        for nothing in [None, Some(""), Some(" \n")] {
            for from in ["cj/nightly", "job/nightly"] {
                assert_eq!(found(from, nothing), pair("", "nightly"), "{from}");
            }
            for from in ["po/x", "deploy/x", "sts/x", "ds/x", "mds/x", "rs/x", "rc/x"] {
                let error = found(from, nothing).unwrap_err();
                let words =
                    "/x needs a command: give one after --, with -f FILE, or on standard input";
                assert!(error.ends_with(words), "{from}: {error}");
            }
        }
    }

    #[test]
    fn showing_and_creating_do_not_mix() {
        for words in [
            &["-c", "x", "noon"][..],
            &["-c", "x", "--logs", "y"],
            &["--logs", "x", "--", "ls"],
            &["noon", "-t", "11271600"],
            &["noon", "-f", "x", "--", "ls"],
            &["-c", "x", "--image", "y"],
            &["-c", "x", "-o", "yaml"],
            &["--resume", "x", "noon"],
            &["--resume", "x", "--logs", "x"],
            &["--resume", "x", "--suspend"],
            &["--pause", "x", "noon"],
            &["--pause", "x", "--follow"],
            &["--pause", "x", "--resume", "x"],
            &["--reschedule", "x", "noon", "--", "ls"],
            &["--reschedule", "x", "noon", "--deadline", "5m"],
            &["--reschedule", "x", "--pause", "y"],
            &["--reschedule", "x", "noon", "-t", "11271600"],
            &["--cat", "x", "--from", "deployment/web"],
            &["noon", "--container", "x"],
            &["noon", "--from", "deployment/web", "--template", "x"],
            &["--logs", "x", "--from", "deployment/web"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
        assert!(parsed(&["--logs", "x", "--follow"]).is_ok());
        assert!(parsed(&["--resume", "x", "--follow"]).is_ok());
        assert!(parsed(&["--resume", "x", "--dry-run=server", "-o", "yaml"]).is_ok());
        assert!(parsed(&["--pause", "x", "--dry-run=server", "-o", "yaml"]).is_ok());
        assert!(parsed(&["--reschedule", "x", "noon", "--follow"]).is_ok());
        assert!(parsed(&["noon", "--follow", "--", "ls"]).is_ok());
    }
}
