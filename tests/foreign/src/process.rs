//! The foreign program, which a kubelet starts again whenever it ends.

use std::fs::File;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::listener::sign_in;

/// The operator that meets the faults. A process that is started again has the same name.
pub const FIRST: &str = "operator-1";
/// Another replica.
pub const SECOND: &str = "operator-2";

/// How long a process takes to start again, and a replica to take over.
const RESTART: Duration = Duration::from_secs(2);
/// The pauses of a kubelet before it starts again what ended by itself; 10 minutes of life reset them.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
const HEALTHY: Duration = Duration::from_secs(600);

/// How to start the program.
pub struct Program {
    pub path: String,
    pub arguments: Vec<String>,
    pub environment: &'static [(&'static str, &'static str)],
    pub log: File,
}

impl Program {
    fn start(&self) -> std::io::Result<Child> {
        Command::new(&self.path)
            .args(&self.arguments)
            .env_remove("KUBECONFIG")
            .env("HOME", "/nonexistent")
            .env("NO_COLOR", "1")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", "443")
            .env("KUBERNETES_SERVICE_PORT_HTTPS", "443")
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(self.log.try_clone()?)
            .stderr(self.log.try_clone()?)
            .kill_on_drop(true)
            .spawn()
    }
}

/// A pod of the operator.
#[derive(Clone)]
pub struct Operator {
    /// Which user's process is next; none is the end.
    crash: UnboundedSender<Option<&'static str>>,
    exits: Arc<Mutex<Vec<ExitStatus>>>,
}

impl Operator {
    /// Starts the program, as [`FIRST`]. The task ends once [`Self::end`] has taken effect.
    pub fn start(program: Program) -> (Self, JoinHandle<()>) {
        let (crash, crashes) = unbounded_channel();
        let exits = Arc::default();
        let task = tokio::spawn(supervise(program, crashes, Arc::clone(&exits)));
        (Self { crash, exits }, task)
    }

    /// The process dies as by SIGKILL, and that user's starts.
    pub fn crash(&self, next: &'static str) {
        let _ = self.crash.send(Some(next));
    }

    /// The process dies for good.
    pub fn end(&self) {
        let _ = self.crash.send(None);
    }

    /// How it ended by itself, each time.
    pub fn exits(&self) -> Vec<ExitStatus> {
        let exits = self.exits.lock();
        exits.map(|exits| exits.clone()).unwrap_or_default()
    }
}

async fn supervise(
    program: Program,
    mut crashes: UnboundedReceiver<Option<&'static str>>,
    exits: Arc<Mutex<Vec<ExitStatus>>>,
) {
    let (mut user, mut back_off) = (FIRST, BACK_OFF.0);
    loop {
        sign_in(user).expect("the token is written");
        let started = Instant::now();
        let mut child = program.start().expect("the program starts");
        let mut next = tokio::select! {
            status = child.wait() => {
                let status = status.expect("the program ends");
                exits.lock().expect("no thread has panicked").push(status);
                None
            }
            next = crashes.recv() => next,
        };
        let _ = child.kill().await;
        let pause = if next.is_some() {
            RESTART
        } else {
            if started.elapsed() > HEALTHY {
                back_off = BACK_OFF.0;
            }
            let pause = back_off;
            back_off = (back_off * 2).min(BACK_OFF.1);
            pause
        };
        if next != Some(None)
            && let Ok(order) = timeout(pause, crashes.recv()).await
        {
            next = order;
        }
        match next {
            Some(None) => return,
            Some(Some(other)) => user = other,
            None => {}
        }
    }
}
