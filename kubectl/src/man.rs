//! Man pages, made from the definitions of the flags.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::{PROGRAMS, links};

/// The flag that writes the pages. It is for those who package the program, and in no help.
pub(crate) const FLAG: &str = "--write-man-pages";

/// Writes a page for every command, and every command below it, into the folder.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| links::of(folder, &error))?;
    for program in PROGRAMS {
        let mut command = (program.command)();
        command.build();
        page(&command, program.name, folder)?;
    }
    Ok(())
}

fn page(command: &clap::Command, name: &str, folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let written = File::create(&path).and_then(|mut file| man.render(&mut file));
    written.map_err(|error| links::of(&path, &error))?;
    for below in command
        .get_subcommands()
        .filter(|it| it.get_name() != "help")
    {
        page(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    /// Collects the long flags of a command and of those below it, each of which has a description.
    fn collect(command: &clap::Command, flags: &mut BTreeSet<String>) {
        for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let (of, id, help) = (command.get_name(), flag.get_id(), flag.get_help());
            assert!(help.is_some(), "{of}: {id}");
            flags.extend(flag.get_long().map(str::to_owned));
        }
        for below in command.get_subcommands() {
            collect(below, flags);
        }
    }

    #[test]
    fn every_flag_is_described_and_those_of_the_pages_exist() {
        // Of krew, of the operator, and the hidden one.
        let others = ["archive", "manifest", "node-not-ready-grace", "write-links"];
        let mut flags = BTreeSet::from(others.map(str::to_owned));
        for program in PROGRAMS {
            collect(&(program.command)(), &mut flags);
        }
        let pages = [
            include_str!("../../docs/kubectl/at.md"),
            include_str!("../../docs/kubectl/mydaemonset.md"),
        ];
        let words = pages.concat();
        for word in words.split(|c: char| !c.is_ascii_lowercase() && c != '-') {
            let flag = word.strip_prefix("--").unwrap_or_default();
            let is_flag = flag.starts_with(|first: char| first.is_ascii_lowercase());
            assert!(!is_flag || flags.contains(flag), "no command has --{flag}");
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        for program in PROGRAMS {
            let page = folder.path().join(format!("{}.1", program.name));
            let text = std::fs::read_to_string(page).unwrap();
            assert!(text.contains(r"\-\-kubeconfig"), "{text}");
            assert!(
                text.contains(".SH OPTIONS") || text.contains(".SH SYNOPSIS"),
                "{text}"
            );
        }
    }
}
