//! The program's other names, as links beside it: those that kubectl finds on `PATH` as commands, and those that it runs
//! for completion.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::at::shell_word;
use crate::{PROGRAMS, complete};

/// The flag that makes the links, for a folder that has the program already. It is in no help.
pub(crate) const FLAG: &str = "--write-links";

/// The file that all links lead to.
const PROGRAM: &str = "kubectl-at";

/// Makes the links that the folder lacks. They name the file in the same folder, so an upgrade only replaces the file.
/// A link that is there already is left alone: krew makes some, to files of its own.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let program = folder.join(PROGRAM);
    fs::metadata(&program).map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_program(folder, &program),
        _ => of(&program, &error),
    })?;
    for name in names() {
        let link = folder.join(name);
        if let Err(error) = symlink(PROGRAM, &link) {
            // Looked at afterwards, so that two processes may do this at once.
            if error.kind() != ErrorKind::AlreadyExists || fs::read_link(&link).is_err() {
                return Err(of(&link, &error));
            }
        }
    }
    Ok(())
}

/// All names but that of the file.
fn names() -> impl Iterator<Item = String> {
    let commands = PROGRAMS.iter().map(|program| program.name.to_owned());
    let completions = PROGRAMS.iter().map(|program| {
        program
            .name
            .replacen(complete::PLUGIN_PREFIX, complete::PREFIX, 1)
    });
    commands
        .chain(completions)
        .filter(|name| name.as_str() != PROGRAM)
}

/// What to do about a folder that lacks the file.
fn no_program(folder: &Path, program: &Path) -> io::Error {
    let quoted = |path: &Path| shell_word(&path.display().to_string());
    let this = std::env::current_exe().unwrap_or_else(|_| PROGRAM.into());
    let (problem, make) = if folder.is_dir() {
        ("has no", String::new())
    } else {
        (
            "does not exist and so has no",
            format!("mkdir -p {} && ", quoted(folder)),
        )
    };
    let text = format!(
        "links in {}, which {problem} {PROGRAM}: copy it there first: {make}cp {} {}",
        folder.display(),
        quoted(&this),
        quoted(program)
    );
    io::Error::new(ErrorKind::NotFound, text)
}

/// The error with the file that it is about.
pub(crate) fn of(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::connection::Failure;

    #[test]
    fn every_command_and_its_completion_have_a_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PROGRAM), "").unwrap();
        write(folder.path()).unwrap();
        let mut made: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        made.sort();
        let kinds = ["kubectl-", "kubectl_complete-"];
        let commands = ["at", "atq", "atrm", "mds", "mydaemonset"];
        let expected: Vec<String> = kinds
            .iter()
            .flat_map(|kind| commands.map(|command| format!("{kind}{command}")))
            .collect();
        assert_eq!(made, expected);
        let link = folder.path().join("kubectl-atq");
        assert_eq!(fs::read_link(link).unwrap(), Path::new(PROGRAM));
    }

    #[test]
    fn links_that_exist_stay_and_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(PROGRAM), "").unwrap();
        symlink("/krew/store/mydaemonset", at("kubectl-mydaemonset")).unwrap();
        write(folder.path()).unwrap();
        write(folder.path()).unwrap();
        let kept = fs::read_link(at("kubectl-mydaemonset")).unwrap();
        assert_eq!(kept, Path::new("/krew/store/mydaemonset"));

        fs::remove_file(at("kubectl-atrm")).unwrap();
        fs::write(at("kubectl-atrm"), "another program").unwrap();
        let error = Failure::from(write(folder.path()).unwrap_err()).to_string();
        let taken = at("kubectl-atrm");
        let expected = format!("error: cannot write {}: File exists", taken.display());
        assert_eq!(error, expected);
    }

    #[test]
    fn a_folder_without_the_program_gets_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let error = Failure::from(write(folder.path()).unwrap_err()).to_string();
        let place = folder.path().display();
        let start = format!(
            "error: cannot write links in {place}, which has no kubectl-at: copy it there first: cp "
        );
        assert!(error.starts_with(&start), "{error}");
        assert!(error.ends_with(&format!(" {place}/kubectl-at")), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_made_by_the_command_that_the_error_gives() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a b/c");
        let error = Failure::from(write(&folder).unwrap_err()).to_string();
        let place = folder.display();
        let start = format!(
            "error: cannot write links in {place}, which does not exist and so has no kubectl-at: copy it there first: mkdir -p '{place}' && cp "
        );
        assert!(error.starts_with(&start), "{error}");
        let end = format!(" '{place}/kubectl-at'");
        assert!(error.ends_with(&end), "{error}");
        assert!(!folder.exists());
    }
}
