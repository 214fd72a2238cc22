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
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::config::Kubeconfig;
use my_operator_at::crd::At;
use my_operator_mydaemonset::crd::MyDaemonSet;
use serde::de::DeserializeOwned;
use tokio::time::{self, Instant};

use crate::connection::{Connection, Failure, Flags, Kind};
use crate::{Program, at, block_on, flags, mydaemonset, terminal};

/// What the names of plugins begin with.
pub(crate) const PLUGIN_PREFIX: &str = "kubectl-";
/// What the names of this program begin with for kubectl's completion.
pub const PREFIX: &str = "kubectl_complete-";

/// Candidates of one answer: a shell shows no more anyway.
const MAX: usize = 500;
/// Objects of one request for a list.
const PAGE: u32 = 500;
/// A user waits for the candidates: after this time, those that were found are shown.
const TIMEOUT: Duration = Duration::from_secs(3);

/// `ShellCompDirectiveDefault`: names of files if there are no candidates.
const FILES: u8 = 0;
/// `ShellCompDirectiveNoFileComp`.
const NO_FILES: u8 = 4;

/// What is looked for.
struct Search<'a> {
    connection: &'a Connection,
    /// What the user has typed of it.
    start: &'a str,
    /// The names of objects before it on the command line.
    given: &'a [String],
    /// After this, what was found is enough.
    until: Instant,
}

type Found<'a> = BoxFuture<'a, Result<Vec<String>, Failure>>;

/// An argument whose values the server knows.
struct Known {
    program: &'static str,
    argument: &'static str,
    /// How the kind of the objects is spelled before a name; none if the values have it themselves.
    kind: Option<&'static Kind>,
    find: for<'a> fn(&'a Search<'a>) -> Found<'a>,
}

const fn known(
    program: &'static str,
    argument: &'static str,
    kind: Option<&'static Kind>,
    find: for<'a> fn(&'a Search<'a>) -> Found<'a>,
) -> Known {
    Known {
        program,
        argument,
        kind,
        find,
    }
}

const AT: Option<&Kind> = Some(&at::KIND);
const SET: Option<&Kind> = Some(&mydaemonset::KIND);
const NODE: Option<&Kind> = Some(&mydaemonset::NODE);

const KNOWN: &[Known] = &[
    known("kubectl-at", "cat", AT, ats),
    known("kubectl-at", "logs", AT, ats),
    known("kubectl-at", "resume", AT, ats),
    known("kubectl-at", "pause", AT, ats),
    known("kubectl-at", "reschedule", AT, ats),
    known("kubectl-at", "from", None, sources),
    known("kubectl-atrm", "names", AT, ats),
    known("kubectl-mydaemonset", "name", SET, sets),
    known("kubectl-mydaemonset", "names", SET, sets),
    known("kubectl-mydaemonset", "node", NODE, nodes),
    known("kubectl-mydaemonset", "revision", SET, revisions),
    known("kubectl-mydaemonset", "to_revision", SET, revisions),
    known("kubectl-mydaemonset", "object", None, either_way),
];

fn ats<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(search.names(search.connection.api::<At>()))
}

fn sets<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(search.names(search.connection.api::<MyDaemonSet>()))
}

fn nodes<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(async {
        let client = search.connection.client.clone();
        // The name before it is that of another kind.
        let search = Search {
            given: &[],
            ..*search
        };
        search.names(Api::<Node>::all(client)).await
    })
}

/// What can be migrated: objects with their kind.
fn either_way<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(search.of_kinds(|source| source.word().ends_with("daemonset")))
}

/// What has a pod template: objects with their kind.
fn sources<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(search.of_kinds(|_| true))
}

fn revisions<'a>(search: &'a Search<'a>) -> Found<'a> {
    Box::pin(async {
        let Some(name) = search.given.first() else {
            return Ok(Vec::new());
        };
        let found = mydaemonset::revisions(search.connection, name);
        let found = time::timeout_at(search.until, found).await;
        found.unwrap_or_else(|_| Ok(Vec::new()))
    })
}

impl Search<'_> {
    /// Objects of those kinds, each name behind its kind.
    async fn of_kinds(&self, is_one: fn(&at::Source) -> bool) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        for source in at::SOURCES.iter().filter(|source| is_one(source)) {
            let (word, start) = match self.start.split_once('/') {
                Some((word, start)) if source.kind.is(word) => (word, start),
                None if source.word().starts_with(self.start) => (source.word(), ""),
                _ => continue,
            };
            let api: Api<DynamicObject> = self.connection.api_of(&(source.resource)());
            let search = Search { start, ..*self };
            // Some kinds may not be there, or not for this user.
            let names = search.names(api).await.unwrap_or_default();
            found.extend(names.iter().map(|name| format!("{word}/{name}")));
        }
        Ok(found)
    }

    /// The names that begin with what was typed, except those that are given already. There may be more than there is
    /// time for: what was found by then is better than nothing.
    async fn names<K>(&self, api: Api<K>) -> Result<Vec<String>, Failure>
    where
        K: Clone + DeserializeOwned + fmt::Debug,
    {
        let mut params = ListParams::default().limit(PAGE);
        let mut found = Vec::new();
        while let Ok(page) = time::timeout_at(self.until, api.list_metadata(&params)).await {
            let page = match page {
                Ok(page) => page,
                Err(_) if !found.is_empty() => break,
                Err(error) => return Err(self.connection.failure(error)),
            };
            let names = page.items.into_iter().filter_map(|it| it.metadata.name);
            found.extend(
                names.filter(|name| name.starts_with(self.start) && !self.given.contains(name)),
            );
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() || found.len() >= MAX {
                break;
            }
        }
        found.truncate(MAX);
        Ok(found)
    }
}

/// Prints the candidates for the last of the words, which may be empty.
pub(crate) fn run(program: &Program, words: &[OsString]) -> io::Result<()> {
    let command = flags::beside(words, (program.command)());
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (current, before) = match words.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", [].as_slice()),
    };
    let wanted = wanted(&command, before, current);
    let (candidates, directive) = match wanted {
        Wanted::Words(words) => (words, NO_FILES),
        Wanted::Files => (Vec::new(), FILES),
        Wanted::Nothing => (Vec::new(), NO_FILES),
        Wanted::Value {
            argument,
            mut prefix,
            given,
        } => {
            // Both names of a program have the same arguments.
            let name = match program.name {
                mydaemonset::SHORT_NAME => mydaemonset::PROGRAM.name,
                name => name,
            };
            let known = KNOWN.iter();
            let mut known = known.filter(|it| it.program == name && it.argument == argument);
            let known = known.next();
            let mut start = current.strip_prefix(&prefix).unwrap_or_default();
            // KIND/NAME is a name, too.
            if let Some((kind, name)) = start.split_once('/')
                && known
                    .and_then(|known| known.kind)
                    .is_some_and(|it| it.is(kind))
            {
                prefix = format!("{prefix}{kind}/");
                start = name;
            }
            let found = values(program, &argument, known, before, start, &given);
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
    Value {
        argument: String,
        prefix: String,
        /// The arguments before it that are not flags.
        given: Vec<String>,
    },
}

fn wanted(root: &Command, before: &[String], current: &str) -> Wanted {
    let mut root = root.clone();
    root.build();
    let mut command = &root;
    let mut given: Vec<String> = Vec::new();
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
            Some(found) => (command, given) = (found, Vec::new()),
            None => given.push(word.clone()),
        }
    }
    if let Some(arg) = pending {
        return value(arg, "", given);
    }
    if let Some((name, _)) = current.split_once('=')
        && current.starts_with("--")
        && let Some(arg) = flag(command, current)
    {
        return value(arg, &format!("{name}="), given);
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
    match places.nth(given.len()) {
        Some(arg) => value(arg, "", given),
        None => match command
            .get_positionals()
            .find(|arg| many(arg) && !arg.is_last_set())
        {
            Some(arg) => value(arg, "", given),
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

fn value(arg: &Arg, prefix: &str, given: Vec<String>) -> Wanted {
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
            given,
        },
    }
}

/// The values of an argument. Whatever fails, there are none: a completion has no place for a message.
fn values(
    program: &Program,
    argument: &str,
    known: Option<&Known>,
    before: &[String],
    start: &str,
    given: &[String],
) -> Vec<String> {
    let words = std::iter::once(program.name).chain(before.iter().map(String::as_str));
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let matches = program
        .parser(&words)
        .ignore_errors(true)
        .try_get_matches_from(words);
    let flags = matches
        .ok()
        .and_then(|it| Flags::from_arg_matches(&it).ok());
    let mut flags = flags.unwrap_or_default();
    flags.request_timeout = Some(TIMEOUT);
    // A log would be written into the command line that the user types.
    flags.verbosity = 0;
    if argument == "context" {
        return contexts(&flags);
    }
    let names = given
        .iter()
        .filter_map(|it| match known.and_then(|it| it.kind) {
            Some(kind) => kind.name(it).ok(),
            None => Some(it.as_str()),
        });
    let given: Vec<String> = names.map(str::to_owned).collect();
    let found = block_on(async {
        let connection = Connection::new(&flags).await?;
        let search = Search {
            connection: &connection,
            start,
            given: &given,
            until: Instant::now() + TIMEOUT,
        };
        match known {
            Some(known) => (known.find)(&search).await,
            None if argument == "namespace" => {
                let search = Search {
                    given: &[],
                    ..search
                };
                let client = connection.client.clone();
                search.names(Api::<Namespace>::all(client)).await
            }
            None => Ok(Vec::new()),
        }
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
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn wants(program: &str, words: &[&str]) -> Wanted {
        let program = crate::PROGRAMS
            .iter()
            .find(|it| it.name == program)
            .unwrap();
        let (current, before) = words.split_last().unwrap();
        let before: Vec<String> = before.iter().map(|&it| it.to_owned()).collect();
        let all: Vec<OsString> = before.iter().map(OsString::from).collect();
        let command = flags::beside(&all, (program.command)());
        wanted(&command, &before, current)
    }

    fn value_of(argument: &str, prefix: &str, given: &[&str]) -> Wanted {
        Wanted::Value {
            argument: argument.to_owned(),
            prefix: prefix.to_owned(),
            given: given.iter().map(|&it| it.to_owned()).collect(),
        }
    }

    /// A server of 1,200 Ats, in pages.
    fn connection(pages: &Arc<AtomicUsize>) -> Connection {
        let pages = Arc::clone(pages);
        let service = tower::service_fn(move |request: Request<Body>| {
            pages.fetch_add(1, Ordering::Relaxed);
            let query = request.uri().query().unwrap_or_default();
            let from = query
                .split_once("continue=")
                .map_or(0, |(_, it)| it.parse().unwrap());
            let to = (from + 500).min(1200);
            let items: Vec<_> = (from..to)
                .map(|number| json!({"metadata": {"name": format!("at-{number:04}")}}))
                .collect();
            let next = if to < 1200 {
                to.to_string()
            } else {
                String::new()
            };
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"continue": next}, "items": items});
            let answer = Response::new(Body::from(list.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer) }
        });
        Connection {
            client: Client::new(service, "default"),
            namespace: "default".to_owned(),
            server: "server:6443".to_owned(),
        }
    }

    #[tokio::test]
    async fn all_pages_are_looked_at_for_names_that_are_not_given_yet() {
        let pages = Arc::new(AtomicUsize::new(0));
        let connection = connection(&pages);
        let given = ["at-1199".to_owned()];
        let search = |start, until| Search {
            connection: &connection,
            start,
            given: &given,
            until,
        };
        let later = Instant::now() + TIMEOUT;
        let found = ats(&search("at-119", later)).await.unwrap();
        let expected: Vec<String> = (1190..1199).map(|it| format!("at-{it}")).collect();
        assert_eq!(found, expected);
        assert_eq!(pages.swap(0, Ordering::Relaxed), 3);
        assert_eq!(ats(&search("", later)).await.unwrap().len(), MAX);
        assert_eq!(pages.swap(0, Ordering::Relaxed), 1);
    }

    #[test]
    fn names_of_objects_are_completed_where_a_name_belongs() {
        assert_eq!(wants("kubectl-atrm", &[""]), value_of("names", "", &[]));
        assert_eq!(
            wants("kubectl-atrm", &["a", "b", ""]),
            value_of("names", "", &["a", "b"])
        );
        assert_eq!(
            wants("kubectl-atrm", &["a", "-n", ""]),
            value_of("namespace", "", &["a"])
        );
        assert_eq!(
            wants("kubectl-atrm", &["a", "--namespace=x"]),
            value_of("namespace", "--namespace=", &["a"])
        );
        assert_eq!(wants("kubectl-at", &["-c", ""]), value_of("cat", "", &[]));
        let from = ["--from=deploy/web", "-c", ""];
        assert_eq!(wants("kubectl-at", &from), value_of("container", "", &[]));
        assert_eq!(
            wants("kubectl-at", &["noon", "--from", "deploy/w"]),
            value_of("from", "", &["noon"])
        );
        assert_eq!(
            wants("kubectl-at", &["--logs", ""]),
            value_of("logs", "", &[])
        );
        for known in KNOWN {
            let mut programs = crate::PROGRAMS.iter();
            let program = programs.find(|it| it.name == known.program).unwrap();
            assert!(
                has(&(program.command)(), known.argument),
                "{}",
                known.argument
            );
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
        assert_eq!(wants(&["status", ""]), value_of("name", "", &[]));
        assert_eq!(
            wants(&["rollout", "undo", "a", ""]),
            value_of("names", "", &["a"])
        );
        assert_eq!(
            wants(&["rollout", "undo", "-n", "x", "a", "--to-revision="]),
            value_of("to_revision", "--to-revision=", &["a"])
        );
        assert_eq!(wants(&["why", "web", "no"]), value_of("node", "", &["web"]));
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
