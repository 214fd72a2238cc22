//! Building the programs with Go.

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::modules::{Module, Program, Set, kubernetes_version};

/// The oldest Go that builds this Kubernetes (the `go` line of its go.mod).
const OLDEST: (u32, u32) = (1, 26);

/// The prefix of the directories of unfinished builds.
const WORK: &str = ".build-";

/// The environment of every `go` call. The user's GOPROXY, GOTOOLCHAIN and caches stay; what could change the result
/// or break the build does not: flags like `-mod=vendor`, a workspace around us, another target.
fn environment(cgo: bool) -> [(&'static str, &'static str); 6] {
    let (os, arch) = platform();
    [
        ("CGO_ENABLED", if cgo { "1" } else { "0" }),
        ("GO111MODULE", "on"),
        ("GOFLAGS", "-mod=readonly"),
        ("GOWORK", "off"),
        ("GOOS", os),
        ("GOARCH", arch),
    ]
}

/// This machine as Go names it: the programs are to run here.
pub fn platform() -> (&'static str, &'static str) {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    (os, arch)
}

/// The arguments of `go build`, without the output and the package. Without its version the API server calls itself
/// v0.0.0, and clients complain.
///
/// The compiler need not write the debug information that the linker leaves out (`-s -w`): a tenth of the time.
fn arguments(module: &Module) -> [String; 5] {
    let version = kubernetes_version();
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let mut flags = "-s -w".to_owned();
    for (name, value) in [
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
    ] {
        let _ = write!(flags, " -X k8s.io/component-base/version.{name}={value}");
        let _ = write!(flags, " -X k8s.io/client-go/pkg/version.{name}={value}");
    }
    let optimization = if module.quick { " -N -l" } else { "" };
    [
        "build".to_owned(),
        "-trimpath".to_owned(),
        format!("-gcflags=all=-dwarf=false{optimization}"),
        "-ldflags".to_owned(),
        flags,
    ]
}

/// How programs are built, as text: part of the cache's key.
pub(crate) fn recipe(set: &Set) -> String {
    let programs: Vec<_> = set
        .programs
        .iter()
        .map(|program| (program.name, program.package))
        .collect();
    let mut recipe = format!("{:?} {programs:?}", environment(false));
    for module in set.modules {
        let arguments = arguments(module);
        let _ = write!(
            recipe,
            " {}: {arguments:?}, C {}, tags {:?}",
            module.name, module.cgo, module.tags
        );
    }
    recipe
}

/// Builds those of the `programs` of `set` that are missing in `directory`.
pub(crate) fn build(set: &Set, programs: &[&Program], directory: &Path) -> Result<(), Error> {
    let names: Vec<_> = programs.iter().map(|program| program.name).collect();
    check_toolchain(set.name, &names.join(", "))?;
    if programs.iter().any(|program| program.module.cgo) {
        check_libraries()?;
    }

    fs::create_dir_all(directory).map_err(Error::file("make", directory))?;
    let lock_path = directory.join("build.lock");
    let lock = File::create(&lock_path).map_err(Error::file("write", lock_path.clone()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!(
                "my-operator-programs: another process is building the {}; waiting for it",
                set.name
            );
            lock.lock().map_err(Error::file("lock", lock_path))?;
        }
        Err(TryLockError::Error(error)) => return Err(Error::file("lock", lock_path)(error)),
    }

    // The previous holder of the lock may have built some or all of them.
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !directory.join(program.name).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let begin = Instant::now();
    eprintln!(
        "my-operator-programs: building the {} with Go: once, about {} on 2 cores; later starts take seconds",
        set.name, set.duration
    );
    remove_unfinished(directory);
    // Sources, unfinished programs and logs; it is in the cache directory because a rename must not cross file systems.
    let work = tempfile::Builder::new()
        .prefix(WORK)
        .tempdir_in(directory)
        .map_err(Error::file("make a directory in", directory))?;
    for (index, program) in missing.iter().enumerate() {
        let progress = Progress::new(index + 1, missing.len(), program.name);
        build_one(program, work.path(), directory, &progress)?;
    }
    eprintln!(
        "my-operator-programs: built in {} s, kept in {}",
        begin.elapsed().as_secs(),
        directory.display()
    );
    Ok(())
}

/// Removes the files of killed builds. Call it under the lock, so that no other process is building here.
fn remove_unfinished(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(WORK) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn build_one(
    program: &Program,
    work: &Path,
    directory: &Path,
    progress: &Progress,
) -> Result<(), Error> {
    let source = write_module(program.module, work)?;
    let unfinished = work.join(program.name);
    let log_path = work.join(format!("{}.log", program.name));
    let log = File::create(&log_path).map_err(Error::file("write", log_path.clone()))?;
    let errors = log
        .try_clone()
        .map_err(Error::file("write", log_path.clone()))?;

    let mut command = Command::new("go");
    command.args(arguments(program.module));
    if !program.module.tags.is_empty() {
        command.args(["-tags", program.module.tags]);
    }
    command.arg("-o").arg(&unfinished).arg(program.package);
    command
        .current_dir(&source)
        .envs(environment(program.module.cgo))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    progress.started();
    let mut child = command
        .spawn()
        .map_err(|cause| Error::spawn(&command, cause))?;
    let status = loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|cause| Error::spawn(&command, cause))?
        {
            break status;
        }
        std::thread::sleep(Duration::from_millis(100));
        progress.heartbeat();
    };
    if !status.success() {
        progress.failed();
        return Err(failure(program, directory, &log_path, status));
    }
    let finished = directory.join(program.name);
    fs::rename(&unfinished, &finished).map_err(Error::file("write", finished))?;
    progress.done();
    Ok(())
}

/// The last `lines` lines of a file, empty if it cannot be read. Looks at no more than its last 64 KiB.
pub fn log_tail(path: &Path, lines: usize) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024)))?;
        file.read_to_end(&mut bytes)
    });
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Why a build failed, from the end of its log.
fn failure(program: &Program, directory: &Path, log: &Path, status: ExitStatus) -> Error {
    let mut output = log_tail(log, 15);
    if output.is_empty() {
        // Killed, or a disk so full that not even the reason could be written.
        output = format!("go ended with {status} and said nothing");
    }
    let (program, directory) = (program.name.to_owned(), directory.to_owned());
    let mut lines = output.lines();
    match lines.find(|line| line.contains("no space left on device")) {
        Some(line) => Error::DiskFull {
            program,
            directory,
            line: line.trim().to_owned(),
        },
        None => Error::Build {
            program,
            directory,
            output,
        },
    }
}

/// Writes a module's go.mod and go.sum below `work` and returns the directory they are in.
fn write_module(module: &Module, work: &Path) -> Result<std::path::PathBuf, Error> {
    let directory = work.join(format!("{}-module", module.name));
    fs::create_dir_all(&directory).map_err(Error::file("make", directory.clone()))?;
    for (name, content) in [("go.mod", module.go_mod), ("go.sum", module.go_sum)] {
        let path = directory.join(name);
        fs::write(&path, content).map_err(Error::file("write", path))?;
    }
    Ok(directory)
}

/// Whether there is a Go that can build this, before anything is written.
fn check_toolchain(what: &'static str, missing: &str) -> Result<(), Error> {
    let mut command = Command::new("go");
    command
        .args(["env", "GOVERSION", "GOTOOLCHAIN"])
        .stdin(Stdio::null())
        .current_dir("/");
    let output = command.output().map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => Error::NoGo {
            what,
            missing: missing.to_owned(),
        },
        _ => Error::spawn(&command, cause),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default();
    // Since 1.21, Go fetches the toolchain that a module asks for, unless GOTOOLCHAIN forbids it.
    let fetches = lines
        .next()
        .is_some_and(|toolchain| !toolchain.starts_with("local") && !toolchain.is_empty());
    match parse_version(version) {
        Some(found) if found < OLDEST && !fetches => Err(Error::GoTooOld {
            what,
            found: version.to_owned(),
        }),
        // Before 1.16 Go did not know the variable.
        None if version.is_empty() => Err(Error::GoTooOld {
            what,
            found: "this Go".to_owned(),
        }),
        // Development versions have no number; they are given a chance.
        _ => Ok(()),
    }
}

/// Whether the C library is there that runc is linked with, before minutes are spent on the others.
fn check_libraries() -> Result<(), Error> {
    let found = Command::new("pkg-config")
        .args(["--exists", "libseccomp"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Error::Need(
        "its runc needs libseccomp (Debian packages libseccomp-dev and pkg-config)".to_owned(),
    ))
}

/// `go1.26.8` is 1.26.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .strip_prefix("go")?
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Reports the progress of one build: on a terminal in one line that is rewritten, elsewhere in occasional lines for a
/// log.
struct Progress {
    prefix: String,
    begin: Instant,
    terminal: bool,
    shown: std::cell::Cell<u64>,
}

impl Progress {
    /// The time between two lines in a log.
    const BEAT: u64 = 15;

    fn new(number: usize, of: usize, name: &str) -> Self {
        Self {
            prefix: format!("my-operator-programs: [{number} of {of}] {name}"),
            begin: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            shown: std::cell::Cell::new(0),
        }
    }

    fn started(&self) {
        if self.terminal {
            eprint!("{} ...", self.prefix);
        } else {
            eprintln!("{}: building", self.prefix);
        }
    }

    fn heartbeat(&self) {
        let elapsed = self.begin.elapsed().as_secs();
        let every = if self.terminal { 1 } else { Self::BEAT };
        if elapsed < self.shown.get() + every {
            return;
        }
        self.shown.set(elapsed);
        if self.terminal {
            eprint!("\r{} ... {elapsed} s", self.prefix);
        } else {
            eprintln!("{}: still building, {elapsed} s", self.prefix);
        }
    }

    fn done(&self) {
        let start = if self.terminal { "\r" } else { "" };
        eprintln!(
            "{start}{}: done in {} s",
            self.prefix,
            self.begin.elapsed().as_secs()
        );
    }

    fn failed(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_of_go_are_understood() {
        assert_eq!(parse_version("go1.26.8"), Some((1, 26)));
        assert_eq!(parse_version("go1.27rc1"), Some((1, 27)));
        assert_eq!(parse_version("devel"), None);
    }
}
