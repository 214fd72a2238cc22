//! Cleanup: nothing of a cluster outlives the process that started it, not even after `kill -9`.
//!
//! Two small processes are started before anything else. Each has the read end of a pipe whose write end only this
//! process has (close-on-exec, so no other child inherits it). However this process ends, the kernel closes the write
//! ends:
//!
//! - the **anchor** (`cat`) is the leader of a process group that every child joins before it is executed
//!   (`setpgid` between fork and exec, so there is no moment in which a child is not yet accounted for). Because the
//!   anchor lives as long as this process, the system cannot reuse the group's number;
//! - the **watchdog** (`sh`, in a group of its own) reads end-of-file, kills that group and removes the work directory.
//!
//! The orderly way is the same way: when a cluster is dropped the pipes are closed and the watchdog is waited for.
//!
//! `PR_SET_PDEATHSIG` (util-linux `setpriv --pdeathsig`) was the other candidate. It is Linux only, fires when the
//! *thread* that started the child ends, misses grandchildren and a parent that dies between fork and prctl, and
//! removes no directory, so that it would have needed a watchdog besides.
//!
//! What a real node creates beside its processes is removed with its namespaces (`real_node::namespaces`); the watchdog
//! removes only its control groups and its network interface.
//!
//! The separate group also means that Ctrl-C in a terminal reaches only this process, which then stops everything in
//! order. Only killing this process *and* its watchdog with SIGKILL leaves something behind.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::process::Process;

/// `$1` is the work directory, `$2` the process group. Lines read are pids of processes outside the group that must go
/// with it (an empty line: none any more). The loop is for processes that are just being born or still writing.
///
/// containerd puts the containers of every node of a machine into control groups below one, and their names say nothing
/// of whose they are. So containerd's list of those of this node is read before it goes with the node's mounts.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
guest=
while read -r line; do guest=$line; done
PATH=$PATH:/usr/sbin:/sbin
holder=
groups=
if read -r holder <"$1/node/holder"; then
  groups=$(ls "/proc/$holder/root/run/containerd/io.containerd.runtime.v2.task/k8s.io")
  # While it cannot be another's.
  read -r interface <"$1/node/interface" && ip link delete "$interface"
fi
tries=0
while [ "$tries" -lt 50 ]; do
  kill -s KILL -- "-$2"
  [ -z "$guest" ] || kill -s KILL "$guest"
  rm -rf -- "$1"
  left=
  for group in $groups; do
    for place in "/sys/fs/cgroup/k8s.io/$group" /sys/fs/cgroup/*/k8s.io/"$group"; do
      [ ! -d "$place" ] || find "$place" -depth -type d -exec rmdir {} + || left=yes
    done
  done
  [ -e "$1" ] || [ -n "$left" ] || break
  tries=$((tries + 1))
  sleep 0.1
done
# Unless another node has containers.
[ -z "$holder" ] || rmdir /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io
"#;

/// The work directory and the process group of one cluster; both go when this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    directory: PathBuf,
    group: i32,
    anchor: Child,
    watchdog: Mutex<Child>,
}

impl Guard {
    /// Makes a fresh work directory under `TMPDIR` and the two processes that watch over it.
    pub(crate) fn new() -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        let directory = tempfile::Builder::new()
            .prefix("my-operator-cluster-")
            .tempdir_in(&parent)
            .map_err(Error::file("make a directory in", parent))?;
        let anchor = helper("cat", &[])?;
        let group = i32::try_from(anchor.id())
            .map_err(|_| Error::Internal("a pid beyond 2^31".to_owned()))?;
        let path = directory.path().display().to_string();
        let watchdog = helper(
            "sh",
            &[
                "-c",
                WATCHDOG,
                "my-operator-cluster-watchdog",
                &path,
                &group.to_string(),
            ],
        )?;
        // From here on the directory is the watchdog's to remove.
        Ok(Self {
            directory: directory.keep(),
            group,
            anchor,
            watchdog: Mutex::new(watchdog),
        })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts `command` in the guarded group, its output appended to `<directory>/<name>.log`.
    pub(crate) fn spawn(&self, name: &str, command: &mut Command) -> Result<Process, Error> {
        let log = self.directory.join(format!("{name}.log"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(Error::file("write", log.clone()))?;
        let errors = output
            .try_clone()
            .map_err(Error::file("write", log.clone()))?;
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(self.group);
        let child = command
            .spawn()
            .map_err(|cause| Error::spawn(command, cause))?;
        Ok(Process::new(child, log))
    }

    /// Starts `command` in the guarded group with the standard streams it was given.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Child, Error> {
        command.process_group(self.group);
        command
            .spawn()
            .map_err(|cause| Error::spawn(command, cause))
    }

    /// Starts `command` in this process's own group, because a terminal stops a process of another group that reads
    /// from it. If this process dies, the watchdog kills the command by its pid. One at a time; call [`Guard::release`]
    /// when it has ended.
    pub(crate) fn run_in_foreground(&self, command: &mut Command) -> Result<Child, Error> {
        let child = command
            .spawn()
            .map_err(|cause| Error::spawn(command, cause))?;
        self.send_to_watchdog(&child.id().to_string());
        Ok(child)
    }

    /// The foreground program has ended. The system may reuse its pid.
    pub(crate) fn release(&self) {
        self.send_to_watchdog("");
    }

    fn send_to_watchdog(&self, line: &str) {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = watchdog.stdin.as_mut() {
            // If the watchdog was killed, there is nothing better to do.
            let _ = pipe.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let watchdog = self
            .watchdog
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        drop(watchdog.stdin.take());
        // Reaped only after the watchdog is done: until then the group's number stays taken.
        let _ = watchdog.wait();
        let _ = self.anchor.kill();
        let _ = self.anchor.wait();
    }
}

/// Starts a helper in its own group, at the other end of a pipe, holding on to nothing of ours.
fn helper(program: &str, args: &[&str]) -> Result<Child, Error> {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.process_group(0);
    command
        .spawn()
        .map_err(|cause| Error::spawn(&command, cause))
}
