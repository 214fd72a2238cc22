//! Flags as kubectl takes them: the rules of its library, pflag, where those of clap differ.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// The command, to parse with. Its help is that of the plain definitions, which is shorter.
pub(crate) fn as_kubectl(command: Command) -> Command {
    // The last of several wins, except in lists. Scripts add flags to those of an alias.
    with_booleans(command.args_override_self(true))
}

/// The command beside these words of a command line. Next to `--from`, `-c` is a container, as everywhere in kubectl; in
/// at(1), and alone, it shows a command.
pub(crate) fn beside(words: &[OsString], command: Command) -> Command {
    let mut flags = words.iter().take_while(|word| *word != "--");
    let is_from =
        |word: &OsString| word == "--from" || word.to_string_lossy().starts_with("--from=");
    let takes_one = command
        .get_arguments()
        .any(|arg| arg.get_id() == "container");
    if !takes_one || !flags.any(is_from) {
        return command;
    }
    let command = command.mut_arg("cat", |arg| arg.short(None));
    command.mut_arg("container", |arg| arg.short('c'))
}

fn with_booleans(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_action() {
        ArgAction::SetTrue => boolean(arg),
        _ => arg,
    });
    command.mut_subcommands(with_booleans)
}

/// A flag that may also have a value: `--follow`, `--follow=true`, `--follow=false`.
fn boolean(arg: Arg) -> Arg {
    let is_on = arg.get_default_values().iter().any(|it| it == "true");
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_value(if is_on { "true" } else { "false" })
        .default_missing_value("true")
        .value_parser(truth)
}

/// The spellings of Go's `strconv.ParseBool`.
fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// A number that is not negative.
pub(crate) fn natural<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<u64>().ok();
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| "write a whole number, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::ArgMatches;

    use super::*;
    use crate::PROGRAMS;

    fn parsed(program: &str, words: &[&str]) -> Result<ArgMatches, clap::Error> {
        let program = PROGRAMS.iter().find(|it| it.name == program).unwrap();
        let words = std::iter::once(&program.name).chain(words);
        as_kubectl((program.command)()).try_get_matches_from(words)
    }

    /// The matches of the innermost subcommand.
    fn innermost(mut matches: &ArgMatches) -> &ArgMatches {
        while let Some((_, inner)) = matches.subcommand() {
            matches = inner;
        }
        matches
    }

    #[test]
    fn a_flag_without_a_value_takes_true_and_false_too() {
        for (program, words, flag) in [
            ("kubectl-at", &["noon"][..], "follow"),
            ("kubectl-at", &["noon"], "suspend"),
            ("kubectl-atq", &[], "all_namespaces"),
            ("kubectl-atq", &[], "no_headers"),
            ("kubectl-atrm", &["x"], "force"),
            ("kubectl-atq", &[], "insecure_skip_tls_verify"),
            ("kubectl-mydaemonset", &["rollout", "status", "x"], "watch"),
            ("kubectl-mydaemonset", &["status", "x"], "watch"),
            ("kubectl-mydaemonset", &["get", "x"], "watch"),
            ("kubectl-mydaemonset", &["resume", "x"], "yes"),
            (
                "kubectl-mydaemonset",
                &["get", "x"],
                "insecure_skip_tls_verify",
            ),
        ] {
            let long = format!("--{}", flag.replace('_', "-"));
            let values = [
                ("", true),
                ("=true", true),
                ("=T", true),
                ("=1", true),
                ("=false", false),
                ("=0", false),
            ];
            for (value, expected) in values {
                let written = format!("{long}{value}");
                let words = [words, &[written.as_str()]].concat();
                let matches = parsed(program, &words).unwrap();
                let found = innermost(&matches).get_flag(flag);
                assert_eq!(found, expected, "{program} {words:?}");
            }
            let maybe = format!("{long}=maybe");
            let words = [words, &[&maybe]].concat();
            let error = parsed(program, &words).unwrap_err().to_string();
            assert!(error.contains("write true or false"), "{error}");
        }
        let is_watched = |words: &[&str]| {
            innermost(&parsed("kubectl-mydaemonset", words).unwrap()).get_flag("watch")
        };
        assert!(is_watched(&["status", "x"]) && !is_watched(&["get", "x"]));
        assert!(!is_watched(&["status", "-w=false", "x"]) && is_watched(&["get", "-w", "x"]));
        let before = ["--insecure-skip-tls-verify", "get", "x"];
        let matches = parsed("kubectl-mydaemonset", &before).unwrap();
        assert!(innermost(&matches).get_flag("insecure_skip_tls_verify"));
    }

    #[test]
    fn short_flags_still_stand_together() {
        let matches = parsed("kubectl-atq", &["-Al", "a=b"]).unwrap();
        assert!(matches.get_flag("all_namespaces"));
        assert_eq!(matches.get_one::<String>("selector").unwrap(), "a=b");
    }

    #[test]
    fn of_repeated_flags_the_last_one_counts_except_in_lists() {
        let words = [
            "noon",
            "--image=a",
            "--image",
            "b",
            "--env=A=1",
            "--env",
            "B=2",
            "-n",
            "x",
            "--namespace=y",
            "-F",
            "--follow=false",
            "--as-group=g",
            "--as-group=h",
            "--",
            "ls",
            "-l",
        ];
        let matches = parsed("kubectl-at", &words).unwrap();
        let last = |name: &str| matches.get_one::<String>(name).unwrap().as_str();
        assert_eq!((last("image"), last("namespace")), ("b", "y"));
        assert!(!matches.get_flag("follow"));
        let env: Vec<&(String, String)> = matches.get_many("env").unwrap().collect();
        assert_eq!(env.len(), 2, "{env:?}");
        assert_eq!(matches.get_many::<String>("as_group").unwrap().len(), 2);
        assert_eq!(matches.get_many::<String>("command").unwrap().len(), 2);
        let names = parsed("kubectl-atrm", &["a", "b"]).unwrap();
        assert_eq!(names.get_many::<String>("names").unwrap().len(), 2);
    }

    #[test]
    fn the_level_of_klog_is_accepted_in_every_form() {
        for words in [
            &["-v6"][..],
            &["-v=6"],
            &["-v", "6"],
            &["--v=6"],
            &["--v", "6"],
        ] {
            let matches = parsed("kubectl-atq", words).unwrap();
            assert_eq!(matches.get_one::<i32>("verbosity"), Some(&6), "{words:?}");
        }
        for words in [&["-v"][..], &["-v=x"], &["-v=-1"], &["-v=99999999999"]] {
            assert!(parsed("kubectl-atq", words).is_err(), "{words:?}");
        }
    }
}
