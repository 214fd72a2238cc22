//! Shows a growing log file on standard error, line by line.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Shows a log until it is finished or dropped.
pub(crate) struct Follower {
    log: Arc<Mutex<Log>>,
    task: tokio::task::JoinHandle<()>,
}

impl Follower {
    /// Shows new lines of the file at `path`, each after `prefix`.
    pub(crate) fn start(path: &Path, prefix: &'static str) -> Self {
        let log = Arc::new(Mutex::new(Log {
            file: File::open(path).ok(),
            unfinished: Vec::new(),
            prefix,
            shown: true,
        }));
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            loop {
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .show_more();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { log, task }
    }

    /// Hides the lines that are appended from now on.
    pub(crate) fn hide(&self) {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .shown = false;
    }

    /// Shows new lines again, without the hidden ones.
    pub(crate) fn show_from_now(&self) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.shown = true;
        if let Some(file) = log.file.as_mut() {
            let _ = file.seek(SeekFrom::End(0));
        }
    }

    /// Shows the rest of the log; after a failure also the part that was not shown, since it may contain the reason.
    pub(crate) async fn finish(self, failed: bool) {
        self.task.abort();
        let _ = self.task.await;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.shown |= failed;
        log.show_more();
    }
}

struct Log {
    file: Option<File>,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
    prefix: &'static str,
    shown: bool,
}

impl Log {
    fn show_more(&mut self) {
        if !self.shown {
            return;
        }
        let Some(file) = self.file.as_mut() else {
            return;
        };
        if file.read_to_end(&mut self.unfinished).is_err() {
            return;
        }
        let Some(end) = self.unfinished.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let rest = self.unfinished.split_off(end + 1);
        let lines = std::mem::replace(&mut self.unfinished, rest);
        let mut errors = std::io::stderr().lock();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // The operator keeps running if the terminal is gone.
            let _ = errors
                .write_all(self.prefix.as_bytes())
                .and_then(|()| errors.write_all(line));
        }
    }
}
