//! Completion, for every shell that kubectl completes for: kubectl runs `kubectl_complete-at` for the words after
//! `kubectl at`, and this is one more name of the program.
//!
//! The answer is that of cobra's `__complete`: candidates, each with a description after a tab, and a last line `:N` that
//! says what the shell does with them. Flags and their values come from clap's definitions, names of objects from the server.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Arg, ArgAction, Command, FromArgMatches as _, ValueHint};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use my_operator::kinds::at::crd::At;
use my_operator::kinds::mydaemonset::crd::MyDaemonSet;
use serde::de::DeserializeOwned;

use crate::connection::{Connection, Failure, Flags};
use crate::{Program, block_on, terminal};

/// What the names of this program begin with for kubectl's completion.
pub const PREFIX: &str = "kubectl_complete-";

/// Candidates of one answer: a shell shows no more anyway.
const MAX: u32 = 500;
/// A user waits for the candidates.
const TIMEOUT: Duration = Duration::from_secs(3);

/// `ShellCompDirectiveDefault`: names of files if there are no candidates.
const FILES: u8 = 0;
/// `ShellCompDirectiveNoFileComp`.
const NO_FILES: u8 = 4;

type Names = for<'a> fn(&'a Connection) -> BoxFuture<'a, Result<Vec<String>, Failure>>;

/// Arguments that are names of objects: program, argument, and who lists the names.
const OBJECTS: &[(&str, &str, Names)] = &[
    ("kubectl-at", "cat", |it| Box::pin(names::<At>(it))),
    ("kubectl-at", "logs", |it| Box::pin(names::<At>(it))),
    ("kubectl-atrm", "names", |it| Box::pin(names::<At>(it))),
    ("kubectl-mydaemonset", "name", |it| {
        Box::pin(names::<MyDaemonSet>(it))
    }),
    ("kubectl-mydaemonset", "names", |it| {
        Box::pin(names::<MyDaemonSet>(it))
    }),
];

/// The names of the objects of a kind in the namespace.
async fn names<K>(connection: &Connection) -> Result<Vec<String>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + fmt::Debug,
{
    let api: Api<K> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let list = api.list_metadata(&ListParams::default().limit(MAX)).await;
    let list = list.map_err(|error| connection.failure(error))?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

async fn namespaces(connection: &Connection) -> Result<Vec<String>, Failure> {
    let api: Api<Namespace> = Api::all(connection.client.clone());
    let list = api.list_metadata(&ListParams::default().limit(MAX)).await;
    let list = list.map_err(|error| connection.failure(error))?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

/// Prints the candidates for the last of the words, which may be empty.
pub(crate) fn run(program: &Program, words: &[OsString]) -> io::Result<()> {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (current, before) = match words.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", [].as_slice()),
    };
    let wanted = wanted(&(program.command)(), before, current);
    let (candidates, directive) = match wanted {
        Wanted::Words(words) => (words, NO_FILES),
        Wanted::Files => (Vec::new(), FILES),
        Wanted::Nothing => (Vec::new(), NO_FILES),
        Wanted::Value { argument, prefix } => {
            let found = values(program, &argument, before);
            let found = found.into_iter().map(|name| format!("{prefix}{name}"));
            (found.collect(), NO_FILES)
        }
    };
    let mut out = io::stdout().lock();
    for candidate in candidates.iter().filter(|it| it.starts_with(current)) {
        let (word, description) = candidate.split_once('\t').unwrap_or((candidate, ""));
        // A shell pastes what is a name into the command line.
        let word = terminal::harmless(word);
        if description.is_empty() {
            writeln!(out, "{word}")?;
        } else {
            writeln!(out, "{word}\t{}", terminal::harmless(description))?;
        }
    }
    writeln!(out, ":{directive}")?;
    out.flush()
}

/// What may stand in the place of the current word.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    /// A file.
    Files,
    /// Nothing that is known.
    Nothing,
    /// A value of this argument, which only a cluster or the kubeconfig knows, after a prefix.
    Value { argument: String, prefix: String },
}

fn wanted(root: &Command, before: &[String], current: &str) -> Wanted {
    let mut root = root.clone();
    root.build();
    let mut command = &root;
    let mut positionals = 0;
    let mut pending: Option<&Arg> = None;
    for word in before {
        if pending.take().is_some() {
            continue;
        }
        if word == "--" {
            return Wanted::Files;
        }
        if word.starts_with('-') && word != "-" {
            pending = flag(command, word).filter(|arg| takes_value(arg) && !word.contains('='));
            continue;
        }
        match command.find_subcommand(word) {
            Some(found) => (command, positionals) = (found, 0),
            None => positionals += 1,
        }
    }
    if let Some(arg) = pending {
        return value(arg, "");
    }
    if let Some((name, _)) = current.split_once('=')
        && current.starts_with("--")
        && let Some(arg) = flag(command, current)
    {
        return value(arg, &format!("{name}="));
    }
    if current.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let flags = flags.filter_map(|arg| {
            let long = arg.get_long()?;
            let help = arg.get_help().map(ToString::to_string);
            Some(format!("--{long}\t{}", help.unwrap_or_default()))
        });
        return Wanted::Words(flags.collect());
    }
    let subcommands: Vec<String> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && it.get_name() != "help")
        .map(|it| {
            let about = it.get_about().map(ToString::to_string);
            format!("{}\t{}", it.get_name(), about.unwrap_or_default())
        })
        .collect();
    if !subcommands.is_empty() {
        return Wanted::Words(subcommands);
    }
    let mut places = command.get_positionals().filter(|arg| !arg.is_last_set());
    let many = |arg: &Arg| {
        arg.get_action().takes_values() && matches!(arg.get_action(), ArgAction::Append)
    };
    match places.nth(positionals) {
        Some(arg) => value(arg, ""),
        None => match command
            .get_positionals()
            .find(|arg| many(arg) && !arg.is_last_set())
        {
            Some(arg) => value(arg, ""),
            None => Wanted::Nothing,
        },
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The flag that this word names, with a value or without.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    command.get_arguments().find(|arg| {
        let long = arg.get_long().zip(name.strip_prefix("--"));
        let short = arg.get_short().zip(name.strip_prefix('-'));
        long.is_some_and(|(long, name)| long == name)
            || short.is_some_and(|(short, name)| name.chars().eq([short]))
    })
}

fn value(arg: &Arg, prefix: &str) -> Wanted {
    let possible: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|it| !it.is_hide_set())
        .map(|it| format!("{prefix}{}", it.get_name()))
        .collect();
    let is_file = matches!(
        arg.get_value_hint(),
        ValueHint::FilePath | ValueHint::AnyPath
    ) || arg
        .get_value_names()
        .is_some_and(|names| names.iter().any(|it| it == "FILE"));
    match possible.is_empty() {
        false => Wanted::Words(possible),
        true if is_file => Wanted::Files,
        true => Wanted::Value {
            argument: arg.get_id().to_string(),
            prefix: prefix.to_owned(),
        },
    }
}

/// The values of an argument. Whatever fails, there are none: a completion has no place for a message.
fn values(program: &Program, argument: &str, before: &[String]) -> Vec<String> {
    let words = std::iter::once(program.name.to_owned()).chain(before.iter().cloned());
    let matches = program
        .parser()
        .ignore_errors(true)
        .try_get_matches_from(words);
    let flags = matches
        .ok()
        .and_then(|it| Flags::from_arg_matches(&it).ok());
    let mut flags = flags.unwrap_or_default();
    flags.request_timeout = Some(TIMEOUT);
    let listed = match argument {
        "context" => return contexts(&flags),
        "namespace" => (|it| Box::pin(namespaces(it))) as Names,
        _ => {
            let known =
                |(of, name, _): &&(&str, &str, Names)| *of == program.name && *name == argument;
            match OBJECTS.iter().find(known) {
                Some((_, _, names)) => *names,
                None => return Vec::new(),
            }
        }
    };
    let found = block_on(async {
        let connection = Connection::new(&flags).await?;
        listed(&connection).await
    });
    found.unwrap_or_default()
}

fn contexts(flags: &Flags) -> Vec<String> {
    let read = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = read.map(|it| it.contexts).unwrap_or_default();
    contexts.into_iter().map(|it| it.name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wants(program: &str, words: &[&str]) -> Wanted {
        let program = crate::PROGRAMS
            .iter()
            .find(|it| it.name == program)
            .unwrap();
        let (current, before) = words.split_last().unwrap();
        let before: Vec<String> = before.iter().map(|&it| it.to_owned()).collect();
        wanted(&(program.command)(), &before, current)
    }

    fn value_of(argument: &str, prefix: &str) -> Wanted {
        Wanted::Value {
            argument: argument.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    #[test]
    fn names_of_objects_are_completed_where_a_name_belongs() {
        assert_eq!(wants("kubectl-atrm", &[""]), value_of("names", ""));
        assert_eq!(
            wants("kubectl-atrm", &["a", "b", ""]),
            value_of("names", "")
        );
        assert_eq!(
            wants("kubectl-atrm", &["a", "-n", ""]),
            value_of("namespace", "")
        );
        assert_eq!(
            wants("kubectl-atrm", &["a", "--namespace=x"]),
            value_of("namespace", "--namespace=")
        );
        assert_eq!(wants("kubectl-at", &["-c", ""]), value_of("cat", ""));
        assert_eq!(wants("kubectl-at", &["--logs", ""]), value_of("logs", ""));
        for (program, argument, _) in OBJECTS {
            let program = crate::PROGRAMS
                .iter()
                .find(|it| it.name == *program)
                .unwrap();
            assert!(has(&(program.command)(), argument), "{argument}");
        }
    }

    /// Whether a command or one of its subcommands has that argument.
    fn has(command: &Command, argument: &str) -> bool {
        command.get_arguments().any(|arg| arg.get_id() == argument)
            || command.get_subcommands().any(|it| has(it, argument))
    }

    #[test]
    fn names_of_objects_are_completed_after_a_subcommand() {
        let wants = |words: &[&str]| wants("kubectl-mydaemonset", words);
        assert_eq!(wants(&["status", ""]), value_of("name", ""));
        assert_eq!(wants(&["rollout", "undo", "a", ""]), value_of("names", ""));
        let Wanted::Words(verbs) = wants(&["rollout", ""]) else {
            unreachable!()
        };
        assert!(
            verbs.iter().any(|it| it.starts_with("status\t")),
            "{verbs:?}"
        );
    }

    #[test]
    fn flags_and_their_values_are_those_of_the_command() {
        let Wanted::Words(flags) = wants("kubectl-at", &["noon", "--f"]) else {
            unreachable!()
        };
        assert!(
            flags.iter().any(|it| it.starts_with("--follow\tWait")),
            "{flags:?}"
        );
        let expected = ["none", "client", "server"].map(str::to_owned);
        assert_eq!(
            wants("kubectl-at", &["--dry-run", ""]),
            Wanted::Words(expected.to_vec())
        );
        let expected = ["wide", "name", "json", "yaml"].map(|it| format!("--output={it}"));
        assert_eq!(
            wants("kubectl-atq", &["--output="]),
            Wanted::Words(expected.to_vec())
        );
        assert_eq!(wants("kubectl-at", &["noon", "-f", ""]), Wanted::Files);
        assert_eq!(wants("kubectl-at", &["noon", "--", ""]), Wanted::Files);
        assert_eq!(wants("kubectl-atq", &[""]), Wanted::Nothing);
    }
}
