//! One child process of a cluster.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use my_operator_programs::log_tail;

/// How often a child is asked whether it has ended. Asking is one cheap system call; a notification would need a
/// runtime, and a process here must not depend on the runtime that happened to start it.
const POLL: Duration = Duration::from_millis(10);

/// A running program of the cluster. Killed when dropped; one that a cluster started also when this
/// process dies in whatever way.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Takes over a child whose output is appended to that file.
    pub fn new(child: Child, log: PathBuf) -> Self {
        Self {
            pid: child.id(),
            child: Mutex::new(child),
            log,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file that its standard output and standard error are appended to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.try_wait().is_none()
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        match self.child().try_wait() {
            Ok(status) => status,
            // Only possible if the child was reaped elsewhere: it has ended with an unknown status.
            Err(_) => Some(ExitStatus::from_raw(255 << 8)),
        }
    }

    /// Sends SIGKILL. Nothing happens if it has ended already.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends SIGTERM. Nothing happens if it has ended already.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended.
    pub async fn wait(&self) -> ExitStatus {
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sends SIGTERM, and SIGKILL after `timeout`; returns when the process has ended.
    pub async fn stop(&self, timeout: Duration) -> ExitStatus {
        self.terminate();
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(status) = self.try_wait() {
                return status;
            }
            tokio::time::sleep(POLL).await;
        }
        self.kill();
        self.wait().await
    }

    /// The last `lines` lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        log_tail(&self.log, lines)
    }

    /// Sends a signal. Nothing happens if it has ended already.
    pub fn signal(&self, signal: Signal) {
        // Under the lock, and only while the child is not reaped: the system cannot have reused its pid.
        let mut child = self.child();
        if let Ok(None) = child.try_wait()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child().wait();
    }
}
