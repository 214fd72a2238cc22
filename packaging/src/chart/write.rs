//! Trees as templates.

use anyhow::{Result, bail};
use serde_json::Value;

use super::tree::{Condition, Entry, Item, Literal, Tree};

/// The namespace of config/default, and what the names there begin with.
const NAMESPACE: &str = "my-operator-system";
const PREFIX: &str = "my-operator";
const RELEASE_NAMESPACE: &str = "{{ $.Release.Namespace }}";
const FULLNAME: &str = r#"{{ include "my-operator.fullname" $ }}"#;

/// The links of the alerts, and what they begin with in a release: in config/ they are paths in the repository, which a
/// pager cannot open.
const RUNBOOK: &str = "runbook_url";
const RUNBOOKS: &str = "{{ $.Values.prometheus.runbooks }}";

/// The namespace that the committed component `namespaced` has for an example.
pub(super) const EXAMPLE: &str = "default";
const NAMESPACED: &str = "namespaced";

/// What is known of the part that is written.
#[derive(Clone, Debug)]
struct Place<'a> {
    kind: &'a str,
    key: &'a str,
    /// Whether the part belongs to the component `namespaced` alone.
    namespaced: bool,
    /// What stands for the example namespace, in an object that is made for each.
    each: Option<&'a str>,
}

/// The template of one object.
///
/// # Errors
/// If a text names the operator in a way that is not known.
pub(super) fn object(
    when: &Condition,
    tree: &Tree,
    condition: impl Fn(&Literal) -> String + Copy,
    example: Option<&str>,
) -> Result<String> {
    let Tree::Map(entries) = tree else {
        bail!("an object is no map");
    };
    let kind = scalar(entries, "kind");
    let namespaced = when.contains(&Literal::With(NAMESPACED));
    let in_example = namespace(entries) == EXAMPLE;
    let each = in_example.then(|| example.unwrap_or("{{ . }}"));
    let place = Place {
        kind,
        key: "",
        namespaced,
        each,
    };
    let mut writer = Writer {
        out: String::new(),
        condition: &condition,
    };
    let ranges = in_example && namespaced;
    let when = if ranges {
        others_than_namespaced(when)
    } else {
        when.clone()
    };
    writer.begin(&when, 0);
    if ranges {
        writer.line(0, "{{- range $.Values.namespaces }}");
    }
    writer.line(0, "---");
    writer.map(entries, 0, &place)?;
    if ranges {
        writer.line(0, "{{- end }}");
    }
    writer.end(&when, 0);
    Ok(writer.out)
}

fn scalar<'a>(entries: &'a [Entry], key: &str) -> &'a str {
    let found = entries.iter().find(|entry| entry.key == key);
    match found.map(|entry| &entry.tree) {
        Some(Tree::Scalar(Value::String(text))) => text,
        _ => "",
    }
}

fn namespace(entries: &[Entry]) -> &str {
    let metadata = entries.iter().find(|entry| entry.key == "metadata");
    match metadata.map(|entry| &entry.tree) {
        Some(Tree::Map(entries)) => scalar(entries, "namespace"),
        _ => "",
    }
}

struct Writer<'a, F> {
    out: String,
    condition: &'a F,
}

impl<F: Fn(&Literal) -> String> Writer<'_, F> {
    fn line(&mut self, indent: usize, text: &str) {
        self.out.push_str(&" ".repeat(indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn begin(&mut self, when: &Condition, indent: usize) {
        let all: Vec<String> = when.iter().map(self.condition).collect();
        match all.as_slice() {
            [] => {}
            [one] => self.line(indent, &format!("{{{{- if {one} }}}}")),
            some => {
                let all: Vec<String> = some.iter().map(|it| format!("({it})")).collect();
                self.line(indent, &format!("{{{{- if and {} }}}}", all.join(" ")));
            }
        }
    }

    fn end(&mut self, when: &Condition, indent: usize) {
        if !when.is_empty() {
            self.line(indent, "{{- end }}");
        }
    }

    fn lines(&mut self, lines: &[&str], indent: usize) {
        for line in lines {
            let mut text = (*line).to_owned();
            for more in [0, 2] {
                text = text.replace(&format!("@{more}"), &(indent + more).to_string());
            }
            self.line(indent, &text);
        }
    }

    fn map(&mut self, entries: &[Entry], indent: usize, place: &Place<'_>) -> Result<()> {
        for entry in entries {
            let place = Place {
                key: &entry.key,
                namespaced: place.namespaced || is_namespaced(&entry.when),
                ..place.clone()
            };
            self.begin(&entry.when, indent);
            let key = quoted(&entry.key);
            match &entry.tree {
                Tree::Map(entries) if entries.is_empty() => {
                    self.line(indent, &format!("{key}: {{}}"));
                }
                Tree::Map(entries) => {
                    self.line(indent, &format!("{key}:"));
                    self.map(entries, indent + 2, &place)?;
                }
                Tree::List(items) if items.is_empty() => {
                    self.line(indent, &format!("{key}: []"));
                }
                Tree::List(items) => {
                    self.line(indent, &format!("{key}:"));
                    self.list(items, indent + 2, &place)?;
                }
                Tree::Scalar(value) => {
                    let text = text(value, indent + 2, &place)?;
                    self.line(indent, &format!("{key}: {text}"));
                }
                Tree::Lines(lines) => self.lines(lines, indent),
            }
            self.end(&entry.when, indent);
        }
        Ok(())
    }

    fn list(&mut self, items: &[Item], indent: usize, place: &Place<'_>) -> Result<()> {
        for item in items {
            let mut place = place.clone();
            place.namespaced |= is_namespaced(&item.when);
            if let Some(each) = each_namespace(&item.tree, &place) {
                let others = others_than_namespaced(&item.when);
                self.begin(&others, indent);
                self.line(indent, "{{- range $.Values.namespaces }}");
                self.line(indent, &format!("- \"{each}\""));
                self.line(indent, "{{- end }}");
                self.end(&others, indent);
                continue;
            }
            self.begin(&item.when, indent);
            match &item.tree {
                Tree::Map(entries) if entries.is_empty() => self.line(indent, "- {}"),
                Tree::Map(entries) => {
                    let start = self.out.len();
                    self.map(entries, indent + 2, &place)?;
                    // The first key follows the dash, unless it has a condition.
                    let first = start + indent;
                    if self.out[first..].starts_with("  {{-") {
                        self.out
                            .insert_str(start, &format!("{}-\n", " ".repeat(indent)));
                    } else {
                        self.out.replace_range(first..=first, "-");
                    }
                }
                Tree::List(_) => bail!("{}: a list of lists", place.key),
                Tree::Scalar(value) => {
                    let text = text(value, indent + 2, &place)?;
                    self.line(indent, &format!("- {text}"));
                }
                Tree::Lines(lines) => self.lines(lines, indent),
            }
            self.end(&item.when, indent);
        }
        Ok(())
    }
}

fn is_namespaced(when: &Condition) -> bool {
    when.contains(&Literal::With(NAMESPACED))
}

/// The text of an item that there is one of for each namespace.
fn each_namespace(tree: &Tree, place: &Place<'_>) -> Option<String> {
    let Tree::Scalar(Value::String(text)) = tree else {
        return None;
    };
    let before = text.strip_suffix(EXAMPLE)?;
    let whole = before.is_empty() || before.ends_with('=');
    (place.namespaced && place.each.is_none() && whole).then(|| format!("{before}{{{{ . }}}}"))
}

/// A scalar as YAML, with the names of the release in it.
fn text(value: &Value, indent: usize, place: &Place<'_>) -> Result<String> {
    let Value::String(text) = value else {
        return Ok(value.to_string());
    };
    if place.namespaced && text == EXAMPLE && place.each.is_none() {
        bail!("{}: {EXAMPLE} is no item of a list", place.key);
    }
    if let (EXAMPLE, Some(each)) = (text.as_str(), place.each) {
        return Ok(format!("\"{each}\""));
    }
    if text.contains('\n') && is_plain_block(text) {
        let (mark, body) = match text.strip_suffix('\n') {
            Some(body) => ("|", body),
            None => ("|-", text.as_str()),
        };
        let margin = " ".repeat(indent);
        let lines: Vec<String> = body
            .lines()
            .map(|line| {
                if line.is_empty() {
                    String::new()
                } else {
                    format!("{margin}{line}")
                }
            })
            .collect();
        return release(&format!("{mark}\n{}", lines.join("\n")), place);
    }
    // A release may be named `true`.
    let alone = place.key == "resourceNames";
    let text = if alone {
        Value::from(text.as_str()).to_string()
    } else {
        quoted(text)
    };
    let text = release(&text, place)?;
    match text.strip_prefix('"') {
        Some(path) if place.key == RUNBOOK => Ok(format!("\"{RUNBOOKS}{path}")),
        _ => Ok(text),
    }
}

fn is_plain_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    !body.ends_with('\n')
        && !body.starts_with([' ', '\n'])
        && body.lines().all(|line| !line.ends_with(' '))
        && body.chars().all(|c| c == '\n' || !c.is_control())
}

/// Plain where YAML allows it, else in double quotes, of which JSON's are a subset.
fn quoted(text: &str) -> String {
    let first = text.chars().next().unwrap_or(' ');
    let begins = first.is_ascii_alphabetic() || first == '/' || text.starts_with("--");
    let safe = |c: char| c.is_ascii_alphanumeric() || " _./@=-,()<>:".contains(c);
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = begins
        && text.chars().all(safe)
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && !words.contains(&text.to_lowercase().as_str())
        && !text.contains(NAMESPACE);
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// The text with the release's names and namespace in place of those of config/default, and braces that mean nothing to
/// Helm.
fn release(text: &str, place: &Place<'_>) -> Result<String> {
    const OPEN: &str = "\u{1}";
    const CLOSE: &str = "\u{2}";
    let mut text = text
        .replace("{{", OPEN)
        .replace("}}", CLOSE)
        .replace(OPEN, r#"{{ "{{" }}"#)
        .replace(CLOSE, r#"{{ "}}" }}"#);
    // Descriptions of fields name nothing of an installation.
    if place.kind == "CustomResourceDefinition" {
        if text.contains(&format!("{PREFIX}-")) {
            bail!("a CustomResourceDefinition names an object of the installation: {text}");
        }
        return Ok(text);
    }
    text = text.replace(NAMESPACE, RELEASE_NAMESPACE);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(PREFIX) {
        let (before, after) = (&rest[..at], &rest[at + PREFIX.len()..]);
        let mut next = after.chars();
        let is_name = next.next() == Some('-') && next.next().is_some_and(char::is_alphabetic);
        out.push_str(before);
        if is_name || is_lease(before, after, place) {
            out.push_str(FULLNAME);
        } else if is_product(before, after, place) {
            out.push_str(PREFIX);
        } else {
            bail!(
                "{} {}: is {PREFIX} a name of the installation? {text}",
                place.kind,
                place.key
            );
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether the text is about the Lease, which has the prefix alone for a name.
fn is_lease(before: &str, after: &str, place: &Place<'_>) -> bool {
    place.key == "resourceNames"
        || before.ends_with("the Lease ")
        || (place.key == "expression"
            && before.ends_with("object.metadata.name == '")
            && after.starts_with('\''))
}

/// Whether the text is about the program and not about an object: the label of all objects, the manager of the children,
/// alerts in words, and the metric of the leader.
fn is_product(before: &str, after: &str, place: &Place<'_>) -> bool {
    place.key == "app.kubernetes.io/name"
        || place.kind == "PrometheusRule"
        || before.ends_with("app.kubernetes.io/name == '")
        || (before.ends_with("== '") && before.contains("managed-by") && after.starts_with('\''))
}

fn others_than_namespaced(when: &Condition) -> Condition {
    let all = when.iter().cloned();
    all.filter(|literal| *literal != Literal::With(NAMESPACED))
        .collect()
}
