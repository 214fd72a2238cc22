//! Field errors in the API's own wording, and the `Status` that carries them.
//!
//! A rejection should read like that of a built-in kind, so reasons and wordings are those of Kubernetes'
//! `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

use super::text::{cut, line, quoted};

/// The longest value that a message quotes, in characters.
const MAX_VALUE_LEN: usize = 128;

/// The longest explanation, in characters. Some quote user input.
const MAX_DETAIL_LEN: usize = 512;

/// The longest path of a field that is shown. It may contain user input.
const MAX_FIELD_LEN: usize = 512;

/// How many faults are collected for one object, so that the answer is fast and short.
pub(crate) const MAX_FAULTS: usize = 1_000;

/// How many of them an answer lists.
const MAX_NAMED: usize = 100;

/// How many bytes their fields and messages have together, before any escaping. An answer has each of them twice.
const MAX_NAMED_LEN: usize = 32 * 1024;

/// Why a field is rejected: the cause types of `metav1.StatusCause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Reason {
    /// The field must be given.
    #[serde(rename = "FieldValueRequired")]
    Required,
    /// The value breaks a rule.
    #[serde(rename = "FieldValueInvalid")]
    Invalid,
    /// The value is not in a fixed list.
    #[serde(rename = "FieldValueNotSupported")]
    NotSupported,
    /// The field must not be set, or not be changed, in this object.
    #[serde(rename = "FieldValueForbidden")]
    Forbidden,
    /// The value is longer than allowed.
    #[serde(rename = "FieldValueTooLong")]
    TooLong,
    /// The value occurs twice in a list of distinct values.
    #[serde(rename = "FieldValueDuplicate")]
    Duplicate,
    /// The value has the wrong JSON type.
    #[serde(rename = "FieldValueTypeInvalid")]
    TypeInvalid,
}

/// One fault of an object: which field, what kind of fault, and the sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The path of the field, such as `spec.template.spec.containers[0].image`. It contains user input as is; messages
    /// use [`Fault::shown_field`].
    pub field: String,
    /// The kind of fault.
    pub reason: Reason,
    /// The whole sentence, such as `Required value: image is required`.
    pub message: String,
    /// The offending value in full. The message has only its beginning, and two long values must not count as the same
    /// fault when an update is compared with the stored object.
    value: Option<String>,
    /// How much of the path is before a key that a user chose, if it ends with one.
    before_key: Option<usize>,
}

impl Fault {
    /// The field must be given.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::build(field, Reason::Required, None, "Required value", detail)
    }

    /// The value breaks a rule; `detail` is the rule.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: &str) -> Self {
        Self::build(
            field,
            Reason::Invalid,
            Some(value.into()),
            "Invalid value",
            detail,
        )
    }

    /// The value is not among the supported ones.
    pub fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self::build(
            field,
            Reason::NotSupported,
            Some(value.into()),
            "Unsupported value",
            &format!("supported values: {}", list.join(", ")),
        )
    }

    /// The field must not be set, or not be changed; `detail` is the reason.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::build(field, Reason::Forbidden, None, "Forbidden", detail)
    }

    /// The text is longer than `most` bytes.
    pub fn too_long(field: impl Into<String>, value: &str, most: usize) -> Self {
        let mut fault = Self::build(
            field,
            Reason::TooLong,
            None,
            "Too long",
            &format!("may not be more than {most} bytes"),
        );
        fault.value = Some(value.to_owned());
        fault
    }

    /// The value is a duplicate.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::build(
            field,
            Reason::Duplicate,
            Some(value.into()),
            "Duplicate value",
            "",
        )
    }

    /// The JSON type of the value is wrong; `detail` is the right one.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::build(
            field,
            Reason::TypeInvalid,
            Some(value.clone()),
            "Invalid value",
            detail,
        )
    }

    /// The same fault of one entry of the field: `metadata.labels[KEY]`, where a user chose the key.
    #[must_use]
    pub fn at_key(mut self, key: &str) -> Self {
        self.before_key = Some(self.field.len());
        self.field = format!("{}[{key}]", self.field);
        self
    }

    /// The fault without the value in full, to be kept with a stored object: several faults may have the same long value.
    #[must_use]
    pub(crate) fn without_value(self) -> Self {
        Self {
            value: None,
            ..self
        }
    }

    /// The path with `[*]` for each index and key: of all objects of a kind, there are few.
    #[cfg(feature = "metrics")]
    pub(crate) fn path(&self) -> String {
        let end = self.before_key.unwrap_or(self.field.len());
        let mut path = String::with_capacity(end);
        for (place, part) in self.field[..end].split('[').enumerate() {
            if place == 0 {
                path.push_str(part);
            } else {
                path.push_str("[*]");
                path.push_str(part.split_once(']').map_or("", |(_, rest)| rest));
            }
        }
        if self.before_key.is_some() {
            path.push_str("[*]");
        }
        path
    }

    /// The identity of the fault regardless of the position of its item: the path without list indices.
    #[must_use]
    pub(crate) fn of_any_item(&self) -> Self {
        let mut field = String::with_capacity(self.field.len());
        let mut rest = self.field.as_str();
        while let Some((head, tail)) = rest.split_once('[') {
            field.push_str(head);
            field.push('[');
            let key = tail.trim_start_matches(|c: char| c.is_ascii_digit());
            rest = if key.starts_with(']') { key } else { tail };
        }
        field.push_str(rest);
        Self {
            field,
            before_key: None,
            ..self.clone()
        }
    }

    fn build(
        field: impl Into<String>,
        reason: Reason,
        value: Option<Value>,
        what: &str,
        detail: &str,
    ) -> Self {
        let mut message = what.to_owned();
        if let Some(value) = &value {
            let _ = write!(message, ": {}", show(value));
        }
        if !detail.is_empty() {
            let _ = write!(message, ": {}", line(detail, MAX_DETAIL_LEN));
        }
        Self {
            field: field.into(),
            reason,
            message,
            value: value.map(|v| v.to_string()),
            before_key: None,
        }
    }

    /// The path of the field for a message: truncated and escaped, as values are.
    pub(crate) fn shown_field(&self) -> String {
        line(&self.field, MAX_FIELD_LEN)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shown_field(), self.message)
    }
}

/// The faults that an answer lists, and the text for the others.
pub fn named(faults: &[Fault]) -> (&[Fault], Option<String>) {
    let mut length = 0;
    let fit = faults.iter().take(MAX_NAMED).take_while(|fault| {
        length += fault.field.len().min(4 * MAX_FIELD_LEN) + fault.message.len();
        length <= MAX_NAMED_LEN
    });
    let (named, others) = faults.split_at(fit.count());
    let others = match others.len() {
        0 => None,
        // The checks stopped here.
        n if faults.len() >= MAX_FAULTS => Some(format!("and at least {n} more faults")),
        1 => Some("and 1 more fault".to_owned()),
        n => Some(format!("and {n} more faults")),
    };
    (named, others)
}

/// All faults in one line: a single one as is, several as `[a, b]`, as the API server writes them.
pub fn join(faults: &[Fault]) -> String {
    let (named, others) = named(faults);
    let mut texts: Vec<String> = named.iter().map(ToString::to_string).collect();
    texts.extend(others);
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A value for a message, truncated: a string in quotes, with odd blanks escaped too, as they may be what is wrong with it.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(&cut(text, MAX_VALUE_LEN)),
        other => line(&other.to_string(), MAX_VALUE_LEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_the_api_servers_own() {
        let cases = [
            (
                Fault::required("spec.image", "image is required"),
                "spec.image: Required value: image is required",
            ),
            (
                Fault::invalid("spec.image", "a b", "no blanks"),
                "spec.image: Invalid value: \"a b\": no blanks",
            ),
            (
                Fault::invalid("spec.n", -1, "must be at least 0"),
                "spec.n: Invalid value: -1: must be at least 0",
            ),
            (
                Fault::not_supported("spec.type", "X", &["A", "B"]),
                "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\"",
            ),
            (
                Fault::forbidden("spec.x", "the command has started"),
                "spec.x: Forbidden: the command has started",
            ),
            (
                Fault::too_long("metadata.name", "xxxx", 3),
                "metadata.name: Too long: may not be more than 3 bytes",
            ),
            (
                Fault::duplicate("spec.c[1].name", "app"),
                "spec.c[1].name: Duplicate value: \"app\"",
            ),
            (
                Fault::type_invalid("spec.image", &5.into(), "must be a string"),
                "spec.image: Invalid value: 5: must be a string",
            ),
        ];
        for (fault, text) in cases {
            assert_eq!(fault.to_string(), text);
        }
    }

    #[test]
    fn hostile_values_are_truncated_and_escaped() {
        let fault = Fault::invalid(
            "spec.image",
            format!("\u{1b}[2J\u{202e}{}", "x".repeat(4096)),
            "no",
        );
        assert!(fault.message.len() < 300, "{}", fault.message);
        assert!(
            !fault
                .message
                .chars()
                .any(|c| c.is_control() || c == '\u{202e}')
        );
    }

    #[test]
    fn two_long_values_are_two_faults() {
        let long = |end: &str| Fault::invalid("f", format!("{}{end}", "x".repeat(500)), "no");
        assert_eq!(long("a").message, long("b").message);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn hostile_fields_and_details_are_truncated_and_escaped() {
        let hostile = format!("\u{1b}[2J\u{202e}{}", "x".repeat(4096));
        let fault = Fault::forbidden(format!("spec.labels[{hostile}]"), &hostile);
        let text = fault.to_string();
        assert!(text.len() < 1_200, "{text}");
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'));
    }

    #[test]
    fn many_faults_are_listed_up_to_a_limit_and_the_others_counted() {
        let faults = |n: usize| vec![Fault::required("f", ""); n];
        assert!(join(&faults(100)).ends_with("f: Required value]"));
        assert!(join(&faults(101)).ends_with(", and 1 more fault]"));
        assert!(join(&faults(999)).ends_with(", and 899 more faults]"));
        assert!(join(&faults(MAX_FAULTS)).ends_with(", and at least 900 more faults]"));
    }

    #[test]
    fn several_faults_are_joined_in_brackets() {
        let a = Fault::required("a", "");
        let b = Fault::required("b", "");
        assert_eq!(join(std::slice::from_ref(&a)), "a: Required value");
        assert_eq!(join(&[a, b]), "[a: Required value, b: Required value]");
    }
}
