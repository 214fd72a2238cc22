//! `kubectl at -c` and `kubectl at --logs`.

use std::io::{self, IsTerminal as _, Write as _};

use futures::{AsyncRead, AsyncReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::core::subresource::LogParams;
use my_operator_times::moment::Clock;

use super::argv;
use super::object::{self, Item};
use super::zone;
use crate::connection::{Connection, Failure, root};
use crate::terminal;

/// The container that runs the command.
pub(super) const CONTAINER: &str = "at";

/// Shows what an At runs: a heading in comments, then the text as the shell gets it.
pub(super) async fn command(connection: &Connection, given: &str) -> Result<u8, Failure> {
    let item = Item::read(&object::get(connection, object::name(given)?).await?)?;
    let text = item.command();
    let mut out = io::stdout().lock();
    writeln!(out, "{}", heading(&item, &zone::clock()))?;
    if out.is_terminal() {
        writeln!(out, "{}", terminal::harmless_lines(&text))?;
    } else {
        // For a file or a pipe, the bytes are what counts.
        out.write_all(text.as_bytes())?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(0)
}

fn heading(item: &Item, clock: &Clock) -> String {
    let due = match item.due() {
        Some(due) => format!("{}, {}", clock.local(due), clock.relative(due)),
        None => item.spec.schedule.clone().unwrap_or_default(),
    };
    // Words that no shell runs are the text itself.
    let shell = Some(item.shell()).filter(|shell| argv::takes_text(shell));
    let shell = shell.unwrap_or_default().join(" ");
    let fields = [
        ("at", item.name.as_str()),
        ("due", &due),
        ("state", item.state()),
        ("creator", item.created_by.as_deref().unwrap_or_default()),
        ("image", item.spec.image.as_deref().unwrap_or_default()),
        ("shell", &shell),
    ];
    let lines = fields.iter().filter(|(_, value)| !value.is_empty());
    let lines = lines.map(|(name, value)| format!("# {name}: {}", terminal::harmless(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Shows what the command of an At has written so far.
pub(super) async fn log(connection: &Connection, given: &str) -> Result<u8, Failure> {
    let item = Item::read(&object::get(connection, object::name(given)?).await?)?;
    let pod = pod(connection, &item).await?;
    let pods = connection.api::<Pod>();
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        ..LogParams::default()
    };
    let stream = pods.log_stream(&pod, &params);
    let mut stream = Box::pin(connection.answer(stream).await?);
    let mut writer = LogWriter::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let bytes = next(&mut stream, &mut buffer).await?;
        if bytes.is_empty() {
            break;
        }
        writer.write(bytes)?;
    }
    writer.finish()?;
    Ok(0)
}

/// The next bytes of a log; none at its end.
pub(super) async fn next<'a>(
    log: &mut (impl AsyncRead + Unpin),
    buffer: &'a mut [u8],
) -> Result<&'a [u8], Failure> {
    let read = log.read(buffer).await.map_err(|error| {
        let cause = root(&error);
        Failure::Unreachable(format!("The connection broke within the log: {cause}"))
    })?;
    Ok(buffer.get(..read).unwrap_or_default())
}

/// The name of the pod of the run, if it is still there.
pub(super) async fn pod(connection: &Connection, item: &Item) -> Result<String, Failure> {
    let name = &item.name;
    let (Some(pod), Some(uid)) = (&item.status.pod_name, &item.status.pod_uid) else {
        let reason = item.status.reason.as_deref();
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let state = item.state();
        let text = format!("at/{name} has no output, since it has not started ({state}{reason})");
        return Err(text.into());
    };
    let pods = connection.api::<Pod>();
    let found = connection.answer(pods.get_metadata_opt(pod)).await?;
    // Another pod may have taken the name.
    if found.and_then(|it| it.metadata.uid).as_ref() == Some(uid) {
        return Ok(pod.clone());
    }
    let message = item.status.message.as_deref();
    let message = message.map_or_else(String::new, |it| format!(". Its last words: {it}"));
    Err(format!("the pod of at/{name} is gone, and with it the output{message}").into())
}

/// Writes a log to standard output: to a terminal line by line and harmless, elsewhere byte by byte.
pub(super) struct LogWriter {
    terminal: bool,
    pending: Vec<u8>,
}

/// A longer line is shown in pieces.
const MAX_PENDING: usize = 16 * 1024;

impl LogWriter {
    pub(super) fn new() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            pending: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if !self.terminal {
            out.write_all(bytes)?;
            return Ok(out.flush()?);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(piece);
            if self.pending.ends_with(b"\n") || self.pending.len() > MAX_PENDING {
                let text = terminal::harmless_log(&String::from_utf8_lossy(&self.pending));
                out.write_all(text.as_bytes())?;
                self.pending.clear();
            }
        }
        Ok(out.flush()?)
    }

    /// Writes what is left of a line without an end.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if !self.pending.is_empty() {
            let text = terminal::harmless_log(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
            // What comes next on the terminal is not part of the log.
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }
}
