//! The words of a command, and how an At runs them.
//!
//! An At runs `spec.shell` with `spec.command` as one more argument. So two to nine words run as they are, in an image
//! without a shell, too; one word, or more than nine, are a text for a shell.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::quote;

/// The shell that nearly every image with a shell has; not all have bash.
const SHELL: &str = "sh";
/// The webhook allows no more items in `spec.shell`.
const MAX_SHELL: usize = 8;
/// Variables that dash, bash or busybox's sh sets itself, whatever the container has under that name; bash also those
/// that begin with `BASH`.
const SET_BY_SHELLS: &[&str] = &[
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "IFS",
    "LINENO",
    "OLDPWD",
    "OPTERR",
    "OPTIND",
    "PPID",
    "PS1",
    "PS2",
    "PS4",
    "PWD",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "UID",
    "_",
];

/// What an At runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// `spec.shell`.
    pub(super) shell: Vec<String>,
    /// `spec.command`.
    pub(super) command: String,
    /// Whether the words are quoted for a shell, which the image must have.
    pub(super) quoted: bool,
}

/// The variables that a container may have, besides those of its image, of which Kubernetes knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    names: BTreeSet<String>,
    /// `envFrom` adds variables of any name.
    open: bool,
}

impl Variables {
    /// Those of this container.
    pub(super) fn of(container: &Map<String, Value>) -> Self {
        let list = |field: &str| container.get(field).and_then(Value::as_array);
        let names = list("env").into_iter().flatten();
        let names = names.filter_map(|it| it["name"].as_str().map(str::to_owned));
        Self {
            names: names.collect(),
            open: list("envFrom").is_some_and(|sources| !sources.is_empty()),
        }
    }

    /// One more.
    pub(super) fn add(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    fn has(&self, name: &str) -> bool {
        // Those that Kubernetes makes of the Services of the namespace.
        let is_of_service = name.contains("_SERVICE_") || name.contains("_PORT");
        self.names.contains(name) || (is_identifier(name) && (self.open || is_of_service))
    }
}

/// Whether a shell can read a variable of this name.
fn is_identifier(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_inner)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
}

/// Whether a shell has the container's value of this variable.
fn is_passed_on(name: &str) -> bool {
    is_identifier(name) && !name.starts_with("BASH") && !SET_BY_SHELLS.contains(&name)
}

/// One word of a command.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// As `spec.shell` has it, where Kubernetes expands `$(NAME)`.
    written: String,
    /// What it is made of then.
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The value of a variable; `$(NAME)` if the container has none of that name.
    Variable(String),
}

impl Word {
    /// A word that reaches the program as it is here.
    pub(super) fn plain(text: &str) -> Self {
        Self {
            written: text.replace('$', "$$"),
            pieces: vec![Piece::Text(text.to_owned())],
        }
    }

    /// A word of a container's `command` or `args`.
    pub(super) fn of_container(written: &str, variables: &Variables) -> Self {
        Self {
            written: written.to_owned(),
            pieces: pieces(written, variables),
        }
    }

    /// What the program gets, if no variable has a part in it.
    fn text(&self) -> Option<String> {
        let pieces = self.pieces.iter();
        let texts = pieces.map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Variable(_) => None,
        });
        texts.collect()
    }

    /// The word for a shell.
    fn quoted(&self) -> Result<String, String> {
        if let Some(text) = self.text() {
            return Ok(quote::word(&text));
        }
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) if text.is_empty() => Ok(String::new()),
            Piece::Text(text) => Ok(quote::word(text)),
            Piece::Variable(name) if is_passed_on(name) => {
                Ok(format!(r#""${{{name}-\$({name})}}""#))
            }
            Piece::Variable(name) => Err(format!(
                "has $({name}) in its command, which a shell does not pass on: give a command after --"
            )),
        });
        pieces.collect()
    }
}

/// The pieces of a word by Kubernetes' rule: `$(NAME)` is a variable, if there is one of that name, and `$$` a dollar
/// (k8s.io/kubernetes/third_party/forked/golang/expansion/expand.go).
fn pieces(written: &str, variables: &Variables) -> Vec<Piece> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), written);
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let reference = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        if let Some((name, after)) = reference {
            if variables.has(name) {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Variable(name.to_owned()));
            } else {
                text.extend(["$(", name, ")"]);
            }
            rest = after;
        } else {
            text.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    pieces
}

/// Has the words run by this shell; if none is named, without one where an At can hold them so, and else by [`SHELL`].
/// There must be a word. An error is what is the matter with the object that they are of, to be read after its name.
pub(super) fn run(words: &[Word], shell: Option<&str>) -> Result<Run, String> {
    if shell.is_none()
        && let Some(run) = without_shell(words)
    {
        return Ok(run);
    }
    let program = words.first().map(|word| quote::prefix(&word.written));
    let quoted = words.iter().map(Word::quoted);
    let quoted: Vec<String> = quoted.collect::<Result<_, _>>()?;
    Ok(Run {
        shell: by(shell),
        command: format!("{}{}", program.unwrap_or_default(), quoted.join(" ")),
        quoted: true,
    })
}

fn without_shell(words: &[Word]) -> Option<Run> {
    let (last, before) = words.split_last()?;
    let command = last.text()?;
    let has_program = before
        .first()
        .is_some_and(|word| !word.written.trim().is_empty());
    let fits = has_program && before.len() <= MAX_SHELL && !command.trim().is_empty();
    fits.then(|| Run {
        shell: before.iter().map(|word| word.written.clone()).collect(),
        command,
        quoted: false,
    })
}

/// `spec.shell` for a text; that of [`SHELL`] if none is named.
pub(super) fn by(shell: Option<&str>) -> Vec<String> {
    vec![shell.unwrap_or(SHELL).to_owned(), "-c".to_owned()]
}

/// Whether the command is a text that this program runs, as with `sh -c`, `bash -ec`, `env A=b python3 -c` and
/// `perl -ne`; also if there is no program, which the webhook then adds.
pub(super) fn takes_text(shell: &[String]) -> bool {
    let Some((last, before)) = shell.split_last() else {
        return true;
    };
    let letters = last.strip_prefix('-').unwrap_or_default();
    let is_last_flag =
        |letter: char| letters.len() <= 3 && !letters.starts_with('-') && letters.ends_with(letter);
    let mut flags = before.iter().filter_map(|word| text_flag(word));
    flags.any(is_last_flag)
}

/// The flag of a known program before the text that it runs. Other programs mean other things by the same letters, as
/// `tar -c` does.
fn text_flag(program: &str) -> Option<char> {
    let name = program.rsplit('/').next().unwrap_or_default();
    match name {
        "ash" | "bash" | "dash" | "fish" | "ksh" | "mksh" | "pwsh" | "sh" | "zsh" => Some('c'),
        "node" | "perl" | "ruby" => Some('e'),
        _ => name.starts_with("python").then_some('c'),
    }
}

/// What an At runs, as one text: that for its shell, or its words as a shell would read them.
pub(super) fn shown<'a>(shell: &[String], command: &'a str) -> Cow<'a, str> {
    if takes_text(shell) {
        return Cow::Borrowed(command);
    }
    let mut words = shown_words(shell);
    words.push(command.to_owned());
    Cow::Owned(quote::words(&words))
}

/// Words of a container, with Kubernetes' `$$` as the dollar that it becomes.
fn shown_words(words: &[String]) -> Vec<String> {
    words.iter().map(|word| word.replace("$$", "$")).collect()
}

/// The command of a container, as a shell would read its words.
pub(super) fn shown_own(words: &[String]) -> String {
    quote::words(&shown_words(words))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use serde_json::json;

    use super::*;

    fn variables(container: &Value) -> Variables {
        Variables::of(container.as_object().unwrap())
    }

    fn of_container(words: &[&str], variables: &Variables) -> Result<Run, String> {
        let words = words.iter().map(|word| Word::of_container(word, variables));
        run(&words.collect::<Vec<_>>(), None)
    }

    fn plain(words: &[&str], shell: Option<&str>) -> Run {
        let words = words.iter().map(|word| Word::plain(word));
        run(&words.collect::<Vec<_>>(), shell).unwrap()
    }

    fn shell_and_command(run: &Run) -> (Vec<&str>, &str) {
        let shell = run.shell.iter().map(String::as_str);
        (shell.collect(), run.command.as_str())
    }

    #[test]
    fn two_to_nine_words_need_no_shell() {
        let run = plain(&["./migrate", "up"], None);
        assert_eq!(shell_and_command(&run), (vec!["./migrate"], "up"));
        assert!(!run.quoted);
        // Kubernetes expands the items of a container's command.
        let run = plain(&["echo", "$(A) $B", "$(C)"], None);
        assert_eq!(shell_and_command(&run), (vec!["echo", "$$(A) $$B"], "$(C)"));
        let nine = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
        assert_eq!(plain(&nine, None).shell.len(), MAX_SHELL);
        let ten = [&nine[..], &["10"]].concat();
        for (words, command) in [
            (&["./migrate"][..], "./migrate"),
            (&["./say", " "], "./say ' '"),
            (&["", "x"], "exec '' x"),
            (&["migrate"], "exec migrate"),
            (&ten, "exec 1 2 3 4 5 6 7 8 9 10"),
        ] {
            let run = plain(words, None);
            assert_eq!(shell_and_command(&run), (vec!["sh", "-c"], command));
            assert!(run.quoted, "{words:?}");
        }
        let run = plain(&["./migrate", "a b"], Some("bash"));
        assert_eq!(
            shell_and_command(&run),
            (vec!["bash", "-c"], "./migrate 'a b'")
        );
    }

    #[test]
    fn the_text_of_a_containers_own_shell_stays_readable() {
        let none = Variables::default();
        let run = of_container(
            &["/bin/sh", "-ec", "tar c /x | gzip >$(date +%F).gz"],
            &none,
        );
        let run = run.unwrap();
        assert_eq!(
            shell_and_command(&run),
            (vec!["/bin/sh", "-ec"], "tar c /x | gzip >$(date +%F).gz")
        );
        assert_eq!(shown(&run.shell, &run.command), run.command);
    }

    #[test]
    fn kubernetes_expands_what_it_has_a_value_for() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let env = variables(&json!({"env": [{"name": "A"}, {"name": "b.c"}]}));
        for (written, expected) in [
            ("", vec![text("")]),
            ("$A $$A $$(A) $", vec![text("$A $A $(A) $")]),
            ("$(date) $(A", vec![text("$(date) $(A")]),
            (
                "x$(A)",
                vec![text("x"), Piece::Variable("A".to_owned()), text("")],
            ),
            (
                "$$$(A)y",
                vec![text("$"), Piece::Variable("A".to_owned()), text("y")],
            ),
            ("$(a$(A)", vec![text("$(a$(A)")]),
        ] {
            assert_eq!(pieces(written, &env), expected, "{written}");
        }
        let is_known = |variables: &Variables, name: &str| variables.has(name);
        assert!(is_known(&env, "b.c") && !is_known(&env, "date"));
        assert!(is_known(&env, "DB_SERVICE_HOST") && is_known(&env, "DB_PORT_5432_TCP"));
        let open = variables(&json!({"envFrom": [{"configMapRef": {"name": "x"}}]}));
        assert!(is_known(&open, "date") && !is_known(&open, "date +%F"));
        assert!(!is_known(&variables(&json!({"envFrom": []})), "date"));
    }

    #[test]
    fn a_variable_in_the_last_word_is_read_by_a_shell() {
        let env = variables(&json!({"env": [{"name": "NAME"}, {"name": "b.c"}]}));
        // Before the last word, Kubernetes expands it as ever.
        let run = of_container(&["./run", "--name=$(NAME)", "now"], &env).unwrap();
        assert_eq!(
            shell_and_command(&run),
            (vec!["./run", "--name=$(NAME)"], "now")
        );
        let run = of_container(&["./run", "--name=$(NAME)"], &env).unwrap();
        assert_eq!(
            shell_and_command(&run),
            (vec!["sh", "-c"], r#"./run '--name='"${NAME-\$(NAME)}""#)
        );
        let error = of_container(&["./run", "$(b.c)"], &env).unwrap_err();
        assert!(error.contains("$(b.c)"), "{error}");
        // A program that a variable names in part.
        let run = of_container(&["run-$(NAME)", "$(NAME)"], &env).unwrap();
        let text = r#"exec run-"${NAME-\$(NAME)}" "${NAME-\$(NAME)}""#;
        assert_eq!(run.command, text);
    }

    #[test]
    fn a_variable_that_a_shell_sets_itself_is_refused() {
        let refused = |name: &str| {
            let env = variables(&json!({"env": [{"name": name}]}));
            of_container(&["./run", &format!("$({name})")], &env).err()
        };
        let others = ["BASH", "BASHPID", "BASH_VERSION"];
        for name in SET_BY_SHELLS.iter().chain(&others) {
            let error = refused(name).unwrap();
            assert!(error.contains(&format!("$({name})")), "{error}");
            // Kubernetes has it before a shell would.
            let env = variables(&json!({"env": [{"name": name}]}));
            let run = of_container(&["./run", &format!("$({name})"), "x"], &env);
            assert!(!run.unwrap().quoted, "{name}");
        }
        // A shell sets these only where the container does not.
        for name in ["HOSTNAME", "HOME", "PATH", "TERM", "PWD_", "MY_IFS"] {
            assert_eq!(refused(name), None, "{name}");
        }
    }

    /// By the shells of this machine, so that a new one with a variable of its own shows.
    #[test]
    fn the_variables_that_a_shell_changes_are_refused() {
        for shell in ["sh", "bash"] {
            let set = Command::new(shell).args(["-c", "set"]).output().unwrap();
            let set = String::from_utf8_lossy(&set.stdout).into_owned();
            let names = set.lines().filter_map(|line| line.split_once('='));
            let names = names.map(|(name, _)| name).filter(|it| is_identifier(it));
            // Without that one, no shell is found.
            let names = names.filter(|it| *it != "PATH");
            for name in names.chain(SET_BY_SHELLS.iter().copied()) {
                let text = format!("echo \"${{{name}-}}\"");
                let output = Command::new(shell)
                    .args(["-c", &text])
                    .env(name, "7x")
                    .output()
                    .unwrap();
                let is_changed = output.stdout != b"7x\n";
                assert!(!is_changed || !is_passed_on(name), "{shell}: {name}");
            }
        }
    }

    #[test]
    fn the_program_runs_and_not_what_a_shell_has_of_that_name() {
        let env = variables(&json!({"env": [{"name": "MSG"}]}));
        let run = of_container(&["echo", "$(MSG)"], &env).unwrap();
        // The echo of dash reads the backslash.
        for shell in ["sh", "bash"] {
            let output = Command::new(shell)
                .args(["-c", &run.command])
                .env("MSG", r"C:\new")
                .output()
                .unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert_eq!(printed, "C:\\new\n", "{shell}: {}", run.command);
        }
    }

    /// What Kubernetes and then the shell make of it is what Kubernetes makes of the container's own command.
    #[test]
    fn a_shell_gives_the_words_that_the_container_would_have() {
        let env = variables(&json!({"env": [{"name": "SET"}, {"name": "UNSET"}]}));
        let words = [
            "printf",
            "%s\\0",
            "a $(SET)'s",
            "$(UNSET)\"",
            "$$(SET) $(no) `id` \\",
            "$(SET)$(SET)",
        ];
        let run = of_container(&words, &env).unwrap();
        assert!(run.quoted);
        for shell in ["sh", "bash"] {
            let output = Command::new(shell)
                .args(["-c", &run.command])
                .env("SET", "v *  $x")
                .env_remove("UNSET")
                .output()
                .unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let got: Vec<&str> = output.split_terminator('\0').collect();
            let expected = [
                "a v *  $x's",
                "$(UNSET)\"",
                "$(SET) $(no) `id` \\",
                "v *  $xv *  $x",
            ];
            assert_eq!(got, expected, "{shell}");
        }
    }

    #[test]
    fn words_without_a_shell_are_shown_as_one_line() {
        for (shell, command, expected) in [
            (&["bash", "-c"][..], "echo a | wc", "echo a | wc"),
            (&["python3", "-c"], "print(1)", "print(1)"),
            (&[], "echo", "echo"),
            (&["./migrate"], "up", "./migrate up"),
            (
                &["echo", "a b", "$$HOME"],
                "it's",
                r"echo 'a b' '$HOME' 'it'\''s'",
            ),
            (&["./tool", "--once"], "x", "./tool --once x"),
            // The letter is a shell's, the program is not.
            (&["tar", "-c"], "/data", "tar -c /data"),
            (&["grep", "-e"], "x", "grep -e x"),
            (&["git-push", "-c"], "x", "git-push -c x"),
            (&["bash", "-e"], "./x", "bash -e ./x"),
            (&["-c"], "x", "-c x"),
            (&["/bin/ash", "-euc"], "a | b", "a | b"),
            (&["busybox", "sh", "-c"], "a | b", "a | b"),
            (&["env", "A=b", "/usr/bin/bash", "-c"], "a | b", "a | b"),
            (&["python3.12", "-u", "-c"], "print(1)", "print(1)"),
            (&["perl", "-ne"], "print if /x/", "print if /x/"),
            (&["ruby", "-e"], "p 1", "p 1"),
            (&["node", "-e"], "f()", "f()"),
        ] {
            let shell: Vec<String> = shell.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(shown(&shell, command), expected);
        }
    }
}
