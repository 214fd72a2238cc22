//! Programs that run to their end.

use std::io::{ErrorKind, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing that a test runs takes longer by itself.
const LIMIT: Duration = Duration::from_mins(3);

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Standard output of a program that must have succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.ok, "failed: {}{}", self.out, self.err);
        self.out
    }

    /// Standard error of a program that must have failed.
    #[track_caller]
    pub fn bad(self) -> String {
        assert!(!self.ok, "succeeded: {}{}", self.out, self.err);
        self.err
    }
}

/// Runs a program to its end, with `input` on its standard input. A program that runs for longer than [`LIMIT`] is
/// killed and has failed. The runtime is free meanwhile: other futures of the same test go on.
pub fn run(command: &mut Command, input: &str) -> impl Future<Output = Said> + use<> {
    let child = spawn(command);
    let input = input.to_owned();
    async move {
        let ended = tokio::task::spawn_blocking(move || until_it_ends(child, &input));
        ended.await.unwrap()
    }
}

/// Like [`run`], where there is no runtime, such as in `drop`.
pub(crate) fn run_blocking(command: &mut Command) -> Said {
    until_it_ends(spawn(command), "")
}

fn spawn(command: &mut Command) -> Child {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let until = Instant::now() + LIMIT;
    loop {
        match command.spawn() {
            // A file that a test has just written: the child that another thread is starting has it open for writing
            // until its own program begins.
            Err(error)
                if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            started => return started.expect("cannot start the program"),
        }
    }
}

fn until_it_ends(mut child: Child, input: &str) -> Said {
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let late = end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
        late && kill_process(pid, Signal::KILL).is_ok()
    });
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    drop(ended);
    let mut said = Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if watchdog.join().unwrap() {
        said.ok = false;
        said.err = format!("{}\nkilled after {LIMIT:?}", said.err);
    }
    said
}

/// A process that a failing test does not leave behind.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
