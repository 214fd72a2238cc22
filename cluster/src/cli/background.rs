//! `up`, `status` and `down`: a cluster in the background.
//!
//! `up` starts this program again as `serve`, in a session of its own, which holds a lock for as long as it lives. The
//! lock, not the pid beside it, says whether a cluster is up: the kernel takes it away however the server ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use my_operator_cluster::{Cluster, Options, binaries};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::stop::Stop;

/// Time limit for the start of a cluster, longer than the library's own.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Time limit for its end, which takes less than three seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(50);

/// What a server reports about its cluster once it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    server: String,
    directory: PathBuf,
    kubectl: PathBuf,
}

/// The files of the background cluster.
struct State {
    directory: PathBuf,
}

impl State {
    fn find() -> anyhow::Result<Self> {
        let directory = binaries::state_directory()?;
        Ok(Self { directory })
    }

    fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn description(&self) -> PathBuf {
        self.directory.join("description.json")
    }

    /// A copy, so that its path stays the same from one cluster to the next.
    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    fn make(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot make {}", self.directory.display()))
    }

    /// The pid of the server, if one lives.
    fn server(&self) -> anyhow::Result<Option<Pid>> {
        let path = self.lock();
        let Ok(file) = File::open(&path) else {
            return Ok(None);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(fs::TryLockError::WouldBlock) => {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let pid = text.trim().parse().ok().and_then(Pid::from_raw);
                Ok(Some(pid.with_context(|| {
                    format!("{} holds no pid: try again", path.display())
                })?))
            }
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// The server's description of its cluster, once that is ready.
    fn read(&self) -> Option<Description> {
        serde_json::from_slice(&fs::read(self.description()).ok()?).ok()
    }

    /// Removes every file, and the directories if they are empty then.
    fn remove(&self) {
        for path in [
            self.description(),
            self.kubeconfig(),
            self.log(),
            self.lock(),
        ] {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.directory);
        let _ = self.directory.parent().map(fs::remove_dir);
    }
}

/// Starts a cluster in the background, or says that there is one.
pub(crate) async fn up(nodes: u16, real_node: bool) -> anyhow::Result<ExitCode> {
    let state = State::find()?;
    if state.server()?.is_some() {
        let description = until_described(&state, || Ok(())).await?;
        println!("# a cluster is already up at {}", description.server);
        explain(&state, &description);
        return Ok(ExitCode::SUCCESS);
    }
    state.make()?;
    let _ = fs::remove_file(state.description());
    let path = state.log();
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--nodes", &nodes.to_string()])
        .args(real_node.then_some("--real-node"))
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut server = command.spawn().context("cannot start this program again")?;

    let begin = Instant::now();
    let description = until_described(&state, || match server.try_wait()? {
        None => Ok(()),
        // Another `up` was quicker.
        Some(_) if state.server()?.is_some() => Ok(()),
        Some(_) => {
            let log = fs::read_to_string(state.log()).unwrap_or_default();
            state.remove();
            let log = log.trim().replace("my-operator-cluster: ", "");
            bail!("{log}")
        }
    })
    .await?;
    println!(
        "# a cluster is up at {} after {:.1} s",
        description.server,
        begin.elapsed().as_secs_f64()
    );
    explain(&state, &description);
    Ok(ExitCode::SUCCESS)
}

async fn until_described(
    state: &State,
    mut check: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Description> {
    let begin = Instant::now();
    loop {
        if let Some(description) = state.read() {
            return Ok(description);
        }
        check()?;
        if begin.elapsed() > TIMEOUT {
            bail!(
                "the cluster is not ready after {} s: see {}",
                TIMEOUT.as_secs(),
                state.log().display()
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Lines that a shell can evaluate: everything but assignments is a comment.
fn explain(state: &State, description: &Description) {
    println!("export KUBECONFIG={}", state.kubeconfig().display());
    if let Some(directory) = description.kubectl.parent() {
        println!("export PATH={}:$PATH", directory.display());
    }
    println!(
        "# then: kubectl get nodes; logs are in {}",
        description.directory.display()
    );
    println!("# `my-operator-cluster down` stops it and removes everything");
}

/// The server: a cluster until SIGTERM.
pub(crate) async fn serve(options: Options) -> anyhow::Result<ExitCode> {
    // The server must not end with the shell, or on Ctrl-C in its terminal. Fails only if it leads a group already.
    let _ = rustix::process::setsid();
    let state = State::find()?;
    state.make()?;
    let path = state.lock();
    let mut lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if lock.try_lock().is_err() {
        bail!("a cluster is already up");
    }
    lock.set_len(0)?;
    lock.write_all(std::process::id().to_string().as_bytes())?;

    let mut stop = Stop::new()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(options) => cluster?,
        () = stop.asked() => return Ok(ExitCode::SUCCESS),
    };
    copy_private(cluster.kubeconfig(), &state.kubeconfig())?;
    let description = Description {
        server: cluster.server().to_owned(),
        directory: cluster.directory().to_owned(),
        kubectl: cluster.program("kubectl"),
    };
    let unfinished = state.directory.join("description.json.tmp");
    fs::write(&unfinished, serde_json::to_vec_pretty(&description)?)?;
    fs::rename(&unfinished, state.description())?;

    stop.asked().await;
    let _ = fs::remove_file(state.description());
    let _ = fs::remove_file(state.kubeconfig());
    cluster.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// Copies a file that holds an administrator's token: readable by its owner only.
fn copy_private(from: &Path, to: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_file(to);
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(to)
        .with_context(|| format!("cannot write {}", to.display()))?;
    file.write_all(&fs::read(from)?)?;
    Ok(())
}

/// Says whether a cluster is up.
pub(crate) fn status() -> anyhow::Result<ExitCode> {
    let state = State::find()?;
    let Some(pid) = state.server()? else {
        println!("# no cluster is up; `my-operator-cluster up` starts one");
        return Ok(ExitCode::FAILURE);
    };
    match state.read() {
        Some(description) => {
            println!("# a cluster is up at {} (pid {pid})", description.server);
            explain(&state, &description);
        }
        None => println!("# a cluster is starting or stopping (pid {pid})"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops the cluster and removes its files.
pub(crate) async fn down() -> anyhow::Result<ExitCode> {
    let state = State::find()?;
    let Some(pid) = state.server()? else {
        state.remove();
        println!("# no cluster was up");
        return Ok(ExitCode::SUCCESS);
    };
    let directory = state.read().map(|description| description.directory);
    let _ = rustix::process::kill_process(pid, Signal::TERM);
    let begin = Instant::now();
    let mut patient = true;
    while state.server()?.is_some() {
        if begin.elapsed() > STOP_TIMEOUT && patient {
            patient = false;
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        if begin.elapsed() > STOP_TIMEOUT * 2 {
            bail!("the cluster (pid {pid}) does not end");
        }
        tokio::time::sleep(POLL).await;
    }
    // After an orderly stop it is gone already; after SIGKILL the watchdog may still be removing it.
    while directory
        .as_ref()
        .is_some_and(|directory| directory.exists())
        && begin.elapsed() < STOP_TIMEOUT * 2
    {
        tokio::time::sleep(POLL).await;
    }
    state.remove();
    println!("# the cluster is down, everything of it is removed");
    Ok(ExitCode::SUCCESS)
}
