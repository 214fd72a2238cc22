//! The shared libraries of a program of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// The loader and the libraries that a program asks for, where they are on this machine.
///
/// `ldd` has the loader look for them. Only for programs that are trusted: it may run them.
///
/// # Errors
///
/// If `ldd` cannot be started or fails, or a library is not there.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut ldd = Command::new("ldd");
    let output = ldd.env("LC_ALL", "C").arg(program).output();
    let output = output.map_err(|cause| Error::spawn(&ldd, cause))?;
    let failed = |output: String| Error::Failed {
        action: format!("find the libraries of {}", program.display()),
        output,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().to_owned()));
    }
    listed(&String::from_utf8_lossy(&output.stdout))
        .map_err(|missing| failed(format!("this machine lacks {}", missing.join(", "))))
}

/// The files in what `ldd` prints; the error has the names of all that it did not find.
fn listed(text: &str) -> Result<Vec<PathBuf>, Vec<&str>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        let place = place.split(" (").next().unwrap_or_default();
        if place == "not found" {
            missing.push(name);
        } else if place.starts_with('/') {
            found.push(PathBuf::from(place));
        }
        // What remains has no file: the kernel's own library.
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::listed;

    #[test]
    fn libraries_and_loader_are_read_from_what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007f0b01fdd000)
\tlibevent-2.1.so.7 => /lib/x86_64-linux-gnu/libevent-2.1.so.7 (0x00007f0b01f18000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0b0161e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0b01fdf000)
";
        let expected = [
            "/lib/x86_64-linux-gnu/libevent-2.1.so.7",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(listed(text).unwrap(), expected.map(Path::new));
    }

    #[test]
    fn every_library_that_is_missing_is_named() {
        let text = "\tlibevent-2.1.so.7 => not found
\tlibsasl2.so.2 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0b0161e000)
";
        let missing = ["libevent-2.1.so.7", "libsasl2.so.2"];
        assert_eq!(listed(text).unwrap_err(), missing);
    }
}
