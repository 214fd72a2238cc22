//! The namespaces of a real node: network, mount and process namespaces of its own, so that nothing of it can stay.
//!
//! A node makes what outlives a killed process: shims and containers outside every process group, mounts, network
//! interfaces, iptables rules, files in `/var/lib` and `/run`. All of it is in these namespaces, whose first process,
//! the **holder**, is in the cluster's guarded group: when that is killed, the kernel kills every process of the
//! process namespace, and mounts, interfaces and rules go with the last of them. No mount is ever seen outside, so that
//! removing the work directory cannot reach through one.
//!
//! The node's address is one end of a veth pair (not every kernel has dummy devices). The other end is the machine's,
//! so tests and kubectl reach the API server from outside, and several clusters can live beside each other.
//!
//! The machine's `/sys` stays mounted: `ip netns exec` would mount it again and hide the cgroups from the kubelet.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::names::directory;
use crate::error::Error;
use crate::guard::Guard;
use crate::process::Process;
use my_operator_programs::needs::PATH;

/// The life of the holder. `$1` is the node's directory.
const HOLDER: &str = r#"
set -eu
# The machine's /proc has the pid of this process outside; the next line hides it.
read -r pid rest </proc/self/stat
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
# Some paths of the kubelet, containerd and the plugins cannot be chosen.
for place in lib log; do
  mkdir -p "$1/var/$place" "$1/work/$place"
  mount -t overlay overlay -o "lowerdir=/var/$place,upperdir=$1/var/$place,workdir=$1/work/$place" "/var/$place"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link set lo up
echo "$pid" >"$1/holder.new"
mv "$1/holder.new" "$1/holder"
# Orphans of the node end as children of this process, which waits for none: the kernel is to reap them. (A shell's
# trap of that signal may not outlive it.)
exec env --ignore-signal=CHLD sleep infinity
"#;

/// How long the holder may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The namespaces of one real node; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Namespaces {
    place: Place,
    _holder: Process,
}

/// How to get into the namespaces of a real node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The holder's process id, as the machine counts.
    holder: u32,
    /// The node's address.
    pub(crate) address: Ipv4Addr,
    /// The address of the machine's end: what listens there is reached from the node's network.
    pub(crate) machine: Ipv4Addr,
}

impl Namespaces {
    /// Makes the namespaces and the network between them and the machine.
    pub(crate) async fn new(guard: &Guard) -> Result<Self, Error> {
        let directory = directory(guard.directory());
        std::fs::create_dir_all(&directory).map_err(Error::file("make", directory.clone()))?;
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .env("PATH", PATH)
            .current_dir("/")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--"])
            .args(["sh", "-c", HOLDER, "my-operator-cluster-node"])
            .arg(&directory);
        let holder = guard.spawn("node", &mut command)?;

        let pid_file = directory.join("holder");
        let begin = Instant::now();
        let pid = loop {
            if let Ok(text) = std::fs::read_to_string(&pid_file) {
                break text.trim().parse().map_err(|_| {
                    Error::Internal(format!("the holder calls itself process {text:?}"))
                })?;
            }
            if !holder.is_running() || begin.elapsed() > TIMEOUT {
                return Err(Error::Failed {
                    action: "make the namespaces of a real node (it needs mounts, overlayfs and network namespaces)".to_owned(),
                    output: holder.log_tail(5).replace('\n', "; "),
                });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let [machine, address] = connect(pid, &directory)?;
        let place = Place {
            holder: pid,
            address,
            machine,
        };
        Ok(Self {
            place,
            _holder: holder,
        })
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

impl Place {
    /// A path as the node sees it.
    pub(crate) fn root(self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A program in the node's network alone. It is the process that is started, as without a namespace.
    pub(crate) fn network(self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder))
            .arg("--")
            .arg(program);
        command
    }

    /// A program in all namespaces of the node. What is started waits for it outside, and takes it along when it is
    /// killed.
    pub(crate) fn inside(self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder))
            .args(["--net", "--mount", "--pid", "--"])
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(program)
            .env("PATH", PATH);
        command
    }
}

/// Connects the network of process `holder` with the machine's, by unused addresses, and returns the machine's and the
/// node's. The name of the machine's end is written into `directory` for the watchdog: a network in which connections
/// were cut stays for a minute or so, until the kernel gives them up.
fn connect(holder: u32, directory: &Path) -> Result<[Ipv4Addr; 2], Error> {
    let taken = ip(&["-4", "route", "show", "table", "all"])?;
    let pid = holder.to_string();
    for number in 0..=u8::MAX {
        let [ours, node] = [1, 2].map(|last| Ipv4Addr::new(10, 90, number, last));
        if taken.contains(&format!("10.90.{number}.")) {
            continue;
        }
        let outside = format!("my-op-node-{number}");
        let add = [
            "link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ];
        match ip(&add) {
            Ok(_) => {}
            // Another cluster was quicker.
            Err(Error::Failed { output, .. }) if output.contains("exists") => continue,
            Err(error) => return Err(error),
        }
        let name_file = directory.join("interface");
        std::fs::write(&name_file, format!("{outside}\n"))
            .map_err(Error::file("write", name_file))?;
        ip(&["address", "add", &format!("{ours}/24"), "dev", &outside])?;
        ip(&["link", "set", &outside, "up"])?;
        let inside = |args: &[&str]| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{holder}/ns/net"));
            command.args(["--", "ip"]).args(args).env("PATH", PATH);
            run(
                &mut command,
                &format!("set up the node's network ({})", args.join(" ")),
            )
        };
        inside(&["address", "add", &format!("{node}/24"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &ours.to_string()])?;
        return Ok([ours, node]);
    }
    Err(Error::need(
        "it needs a free network among 10.90.0.0/24 to 10.90.255.0/24",
    ))
}

fn ip(args: &[&str]) -> Result<String, Error> {
    let mut command = Command::new("ip");
    command.args(args).env("PATH", PATH);
    output(
        &mut command,
        &format!("connect the node (ip {})", args.join(" ")),
    )
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn run(command: &mut Command, action: &str) -> Result<(), Error> {
    output(command, action).map(|_| ())
}

fn output(command: &mut Command, action: &str) -> Result<String, Error> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::spawn(command, cause))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed {
        action: action.to_owned(),
        output: format!("{} ({})", said.trim().replace('\n', "; "), output.status),
    })
}
