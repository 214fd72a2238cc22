//! The plugins of kubectl under test.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{Kubectl, kubectl_calls, operator_program};

/// The program, which makes the links of its other names itself.
const PROGRAM: &str = "kubectl-at";

/// Follows an At that is missed at once: exit code 75.
pub const LATE: &[&str] = &[
    "at",
    "-t",
    "202001010000",
    "--deadline",
    "1s",
    "--name",
    "late",
    "-F",
    "--",
    "ls",
];

/// How a plugin ended, and what it wrote.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Standard output of a plugin that must have succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Standard error of a plugin that must have failed with exit code 1.
    #[track_caller]
    pub fn bad(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.err
    }
}

/// The program of the plugins: cargo puts it beside the operator's.
pub fn plugin_program() -> PathBuf {
    let program = operator_program().with_file_name(PROGRAM);
    assert!(program.exists(), "{} is not built", program.display());
    program
}

/// PATH with the plugins before everything else.
fn path(before: Option<OsString>) -> OsString {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    let folder = LINKED.get_or_init(|| {
        let program = plugin_program();
        let folder = program.with_file_name("plugins");
        std::fs::create_dir_all(&folder).unwrap();
        // Another test executable may have made it. The link leads to what was built last beside it, also in a copy of the
        // folder.
        match symlink(Path::new("..").join(PROGRAM), folder.join(PROGRAM)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{error}"),
            _ => {}
        }
        let made = Command::new(&program)
            .arg("--write-links")
            .arg(&folder)
            .status();
        assert!(made.unwrap().success());
        folder
    });
    let before = before
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let all = std::iter::once(folder.clone()).chain(std::env::split_paths(&before));
    std::env::join_paths(all).unwrap()
}

impl Kubectl {
    /// `kubectl PLUGIN ARGS`: kubectl finds the plugin on PATH. Times are those of Berlin, in UTF-8. It is counted.
    pub fn plugin(&self, args: &[&str]) -> Command {
        kubectl_calls::count();
        let mut command = self.cluster.kubectl();
        let set = command.get_envs().find(|(name, _)| *name == "PATH");
        let set = set.and_then(|(_, value)| value).map(ToOwned::to_owned);
        command.args(self.in_namespace(args));
        command.env("PATH", path(set)).env("TZ", "Europe/Berlin");
        // That of the tests is C, for their own figures.
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// A shell for a terminal, with kubectl and its plugins.
    pub fn shell(&self) -> Command {
        let kubectl = self.cluster.kubectl();
        let folder = Path::new(kubectl.get_program()).parent();
        let folder = folder.unwrap().as_os_str().to_owned();
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-i"]);
        let set = kubectl.get_envs();
        command.envs(set.filter_map(|(name, value)| Some((name, value?))));
        let before = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(folder.into()).chain(std::env::split_paths(&before));
        let before = std::env::join_paths(paths).unwrap();
        command.env("PATH", path(Some(before))).env("PS1", "$ ");
        command.env("TZ", "Europe/Berlin").env("LC_ALL", "C.UTF-8");
        command
    }

    /// [`Kubectl::plugin`] to its end, with that standard input.
    pub fn run_plugin(&self, args: &[&str], input: &str) -> impl Future<Output = Ended> + use<> {
        let mut command = self.plugin(args);
        let input = input.to_owned();
        async move {
            tokio::task::spawn_blocking(move || until_it_ends(&mut command, &input))
                .await
                .unwrap()
        }
    }

    /// kubectl takes no flags before the name of a plugin, which may follow `__complete`.
    fn in_namespace(&self, args: &[&str]) -> Vec<String> {
        let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let place = if args[0] == "__complete" { 2 } else { 1 };
        args.insert(place, format!("--namespace={}", self.namespace));
        args
    }
}

fn until_it_ends(command: &mut Command, input: &str) -> Ended {
    use std::io::Write as _;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A plugin that does not read closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
