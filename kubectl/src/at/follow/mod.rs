//! `--follow`: waits for the end of an At, and shows what happens meanwhile.
//!
//! [`watch`] follows the object, [`log`] what its command writes; both connect again when a connection breaks. [`mod@stage`]
//! decides what is shown, [`waiting`] reads from a pod why it has not started, and [`resume`] knows which part of a log is
//! new.

mod log;
mod resume;
mod stage;
mod waiting;
mod watch;

use std::io::{self, Write as _};
use std::time::Duration;

use my_operator_at::crd::Ending;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::object::{self, Item};
use super::show::LogWriter;
use super::zone;
use crate::INTERRUPTED;
use crate::connection::{Connection, Failure};
use crate::terminal::{StatusLine, note};
use stage::{Outcome, Stage, stage};

/// Messages on their way: a terminal that is read slowly slows down the log.
const QUEUE: usize = 16;
/// The rest of a log arrives within this time after the end, or is given up.
const LOG_TIMEOUT: Duration = Duration::from_mins(1);

/// What the followers report.
enum News {
    /// The object as it is now.
    Item(Box<Item>),
    /// It was deleted; the last state, if it was seen.
    Gone(Option<Box<Item>>),
    /// The connection broke, and is tried again.
    Broken(String),
    /// There is no way to go on.
    Failed(Failure),
    /// The log cannot be read, for this reason, and is tried again; or it can be read again.
    LogWaits(Option<String>),
    /// What keeps the command of the released pod from starting; or nothing any more.
    PodWaits(Option<String>),
    /// What the command has written.
    Log(Vec<u8>),
    /// All of the log was shown, or what is missing for this reason.
    LogEnded(Option<Failure>),
}

/// Follows this At to its end. `announced`: when it runs was just printed.
pub(super) async fn run(
    connection: &Connection,
    given: &str,
    announced: bool,
) -> Result<u8, Failure> {
    let name = object::name(given)?.to_owned();
    let (sender, mut inbox) = mpsc::channel(QUEUE);
    // Ends the tasks when this function returns.
    let mut tasks = JoinSet::new();
    tasks.spawn(watch::run(connection.clone(), name.clone(), sender.clone()));
    let mut tick = time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut view = View::new(&name, announced);
    let mut log: Option<log::Handle> = None;
    let mut give_up: Option<Instant> = None;
    loop {
        let timeout = give_up.unwrap_or_else(|| Instant::now() + LOG_TIMEOUT);
        let news = tokio::select! {
            news = inbox.recv() => news,
            // Also without a terminal: that no operator is there shows by time alone.
            _ = tick.tick() => { view.refresh()?; continue }
            _ = tokio::signal::ctrl_c() => return view.interrupted(connection),
            () = time::sleep_until(timeout), if give_up.is_some() => {
                Some(News::LogEnded(Some(view.log_missing())))
            }
        };
        match news {
            None => return Err("the watch has ended".into()),
            Some(News::Failed(failure)) => return view.failed(failure),
            Some(News::Broken(text)) => view.broken = Some(text),
            Some(News::LogWaits(reason)) => view.log_waits = reason,
            Some(News::PodWaits(text)) => view.pod_waits = text,
            Some(News::Log(bytes)) => view.log(&bytes)?,
            Some(News::Item(item)) => {
                view.item = Some(*item);
                view.broken = None;
            }
            Some(News::Gone(last)) => {
                let over = last.filter(|item| item.status.result.is_some());
                let Some(item) = over else {
                    let text = format!("at/{name} was deleted before its end was seen");
                    return view.failed(text.into());
                };
                view.item = Some(*item);
            }
            Some(News::LogEnded(failure)) => {
                view.log_ended(failure)?;
                if let Some(code) = view.finish()? {
                    return Ok(code);
                }
                continue;
            }
        }
        // A log is read from the start of the pod on, and to its end once the object is over.
        if let Some(item) = &view.item {
            let over = item.status.result.is_some();
            if item.status.pod_uid.is_some() && log.is_none() {
                let (handle, follower) = log::follower(connection, item, sender.clone());
                tasks.spawn(follower);
                log = Some(handle);
            }
            if over && give_up.is_none() {
                match &log {
                    Some(handle) => handle.over(),
                    None => view.log_ended(None)?,
                }
                give_up = Some(Instant::now() + LOG_TIMEOUT);
            }
        }
        if let Some(code) = view.finish()? {
            return Ok(code);
        }
        view.refresh()?;
    }
}

/// What the user sees.
struct View {
    name: String,
    item: Option<Item>,
    status: StatusLine,
    writer: LogWriter,
    /// Whether it was printed already when it runs.
    announced: bool,
    /// Whether there was output: from then on, only trouble is worth a line.
    wrote: bool,
    /// Whether all of the output was shown.
    log_ended: bool,
    /// Why the object cannot be watched at present.
    broken: Option<String>,
    /// Why the log cannot be read at present.
    log_waits: Option<String>,
    /// What keeps the command from starting at present.
    pod_waits: Option<String>,
    /// The trouble that was printed last.
    trouble: Option<String>,
}

impl View {
    fn new(name: &str, announced: bool) -> Self {
        Self {
            name: name.to_owned(),
            announced,
            item: None,
            status: StatusLine::new(),
            writer: LogWriter::new(),
            wrote: false,
            log_ended: false,
            broken: None,
            log_waits: None,
            pod_waits: None,
            trouble: None,
        }
    }

    fn log(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.status.clear()?;
        self.wrote = true;
        self.writer.write(bytes)
    }

    fn refresh(&mut self) -> Result<(), Failure> {
        let stage = self.item.as_ref().map(|item| stage(item, &zone::clock()));
        if let Some(Stage::Over(_)) = stage {
            return self.trouble(self.log_waits());
        }
        if let Some(text) = &self.broken {
            return self.trouble(Some(format!("{text}; trying again")));
        }
        match stage {
            None | Some(Stage::Over(_)) => Ok(()),
            // Where lines stay, it is there already.
            Some(Stage::Waiting(_, passing))
                if self.announced && !passing.is_empty() && !self.status.is_live() =>
            {
                Ok(())
            }
            Some(Stage::Waiting(lasting, passing)) => Ok(self.status.show(&lasting, &passing)?),
            Some(Stage::Started(None)) if !self.wrote && self.log_waits.is_none() => {
                let starts = || format!("at/{} starts", self.name);
                let text = self.pod_waits.clone().unwrap_or_else(starts);
                Ok(self.status.show(&text, "")?)
            }
            Some(Stage::Started(trouble)) => self.trouble(trouble.or_else(|| self.log_waits())),
        }
    }

    fn log_waits(&self) -> Option<String> {
        let reason = self.log_waits.as_ref()?;
        Some(format!(
            "the output of at/{} cannot be read yet: {reason}; trying again",
            self.name
        ))
    }

    /// Shows what keeps it from going on. Between lines of output, each trouble is a line once.
    fn trouble(&mut self, trouble: Option<String>) -> Result<(), Failure> {
        if self.wrote {
            if let Some(text) = trouble.as_ref().filter(|_| trouble != self.trouble) {
                note(text)?;
            }
        } else if let Some(text) = &trouble {
            self.status.show(text, "")?;
        }
        self.trouble = trouble;
        Ok(())
    }

    /// Why the rest of the log is given up.
    fn log_missing(&self) -> Failure {
        let reason = self.log_waits.as_deref();
        let reason = reason.unwrap_or("it does not arrive");
        Failure::Message(format!(
            "not all of the output was shown: {reason}. While the pod exists, try: kubectl at --logs {}",
            self.name
        ))
    }

    fn log_ended(&mut self, failure: Option<Failure>) -> Result<(), Failure> {
        self.log_ended = true;
        let result = self.item.as_ref().and_then(|item| item.status.result);
        // What has not run has no output to be missed.
        if let Some(failure) = failure.filter(|_| result != Some(Ending::Missed)) {
            self.status.clear()?;
            writeln!(io::stderr(), "{failure}")?;
        }
        Ok(())
    }

    /// The exit code, once the At is over and its output was shown.
    fn finish(&mut self) -> Result<Option<u8>, Failure> {
        let over = self.item.as_ref().map(|item| stage(item, &zone::clock()));
        let Some(Stage::Over(Outcome { code, words })) = over.filter(|_| self.log_ended) else {
            return Ok(None);
        };
        self.status.clear()?;
        self.writer.finish()?;
        note(&words)?;
        Ok(Some(code))
    }

    fn failed(mut self, failure: Failure) -> Result<u8, Failure> {
        self.status.clear()?;
        self.writer.finish()?;
        Err(failure)
    }

    fn interrupted(mut self, connection: &Connection) -> Result<u8, Failure> {
        self.status.clear()?;
        self.writer.finish()?;
        let (name, namespace) = (&self.name, &connection.namespace);
        note(&format!(
            "at/{name} goes on. Come back with: kubectl at --logs {name} --follow -n {namespace}"
        ))?;
        Ok(INTERRUPTED)
    }
}
