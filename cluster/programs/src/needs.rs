//! What a machine must have for a real node.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The programs that are called, and the Debian package of each.
const PROGRAMS: [(&str, &str); 10] = [
    ("busybox", "busybox-static"),
    ("find", "findutils"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("iptables-restore", "iptables"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("sh", "dash"),
    ("unshare", "util-linux"),
];

/// The directories of system programs; those for root are not in every user's `PATH`.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The path of a program of the system.
pub fn program(name: &str) -> Option<PathBuf> {
    PATH.split(':')
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
}

/// Says everything that is missing, in one line.
pub fn check() -> Result<(), Error> {
    let user = rustix::process::geteuid();
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let missing = missing(user.as_raw(), &mounts, |name| program(name).is_some());
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Error::Need(format!("it needs {}", missing.join(", "))))
    }
}

fn missing(user: u32, mounts: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut missing = Vec::new();
    if std::env::consts::OS != "linux" {
        missing.push(format!("Linux (this is {})", std::env::consts::OS));
    }
    if user != 0 {
        missing.push(format!("root (this is user {user})"));
    }
    // The memory controller stands for all of version 1. Version 2 has one hierarchy, whose controllers
    // are in use only if it is the whole of /sys/fs/cgroup: beside version 1 it has none.
    let cgroups = mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next(), fields.next());
        match kind {
            Some("cgroup2") => place == Some("/sys/fs/cgroup"),
            Some("cgroup") => fields
                .next()
                .is_some_and(|options| options.split(',').any(|option| option == "memory")),
            _ => false,
        }
    });
    if !cgroups {
        missing.push("cgroups (none with memory are mounted)".to_owned());
    }
    for (name, package) in PROGRAMS {
        if !is_there(name) {
            missing.push(format!("the program {name} (Debian package {package})"));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::missing;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
";

    #[test]
    fn a_whole_machine_lacks_nothing() {
        assert!(missing(0, MOUNTS, |_| true).is_empty());
        let second = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert!(missing(0, second, |_| true).is_empty());
    }

    #[test]
    fn version_2_beside_version_1_does_not_stand_for_the_memory_controller() {
        let beside = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(
            missing(0, beside, |_| true),
            ["cgroups (none with memory are mounted)"]
        );
        assert!(missing(0, &format!("{MOUNTS}{beside}"), |_| true).is_empty());
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let cpu_alone = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        let missing = missing(1000, cpu_alone, |name| name != "iptables").join(", ");
        assert_eq!(
            missing,
            "root (this is user 1000), cgroups (none with memory are mounted), the program iptables (Debian package iptables)"
        );
    }
}
