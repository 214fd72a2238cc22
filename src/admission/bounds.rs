//! How much one spec may hold: what is read of it becomes a tree of values, each of which takes a
//! hundred times the memory of its text, and which cannot be read at all below a certain depth.

use super::faults::Fault;

/// Levels of nesting. serde_json reads 127, and in a list of objects each stands two levels deeper
/// than in its review.
pub const DEEPEST: usize = 100;

/// Values, those of lists and objects within counted. Real ones have a few thousand at most.
pub const MOST_VALUES: usize = 20_000;

/// Values in a whole review, of which only the spec becomes a tree. Real ones have a tenth of it at
/// most.
pub const MOST_IN_REVIEW: usize = 500_000;

/// Whether the body of a review is not even read: as a list of annotations, say, it would take many
/// times the memory of its text.
pub fn is_too_much(body: &[u8]) -> bool {
    body.len() > MOST_IN_REVIEW && measure(body).1 > MOST_IN_REVIEW
}

/// Why the JSON `text` of the field `at` is not even read, if so.
pub fn exceeded(at: &str, text: &str) -> Option<Fault> {
    // A value takes a byte at least, and a level a bracket: usual ones are not gone through.
    let brackets = memchr::memchr2_iter(b'{', b'[', text.as_bytes());
    if text.len() <= MOST_VALUES && brackets.count() <= DEEPEST {
        return None;
    }
    let (levels, values) = measure(text.as_bytes());
    if levels > DEEPEST {
        let detail = format!("nested deeper than {DEEPEST} levels");
        Some(Fault::forbidden(at, &detail))
    } else if values > MOST_VALUES {
        let detail = format!("holds more than {MOST_VALUES} values");
        Some(Fault::forbidden(at, &detail))
    } else {
        None
    }
}

/// The levels and values of JSON. Of what is no JSON, any numbers.
fn measure(text: &[u8]) -> (usize, usize) {
    let (mut level, mut deepest, mut values) = (0_usize, 0, 1);
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'"' => rest = behind_text(rest),
            b'{' | b'[' => {
                level += 1;
                values += 1;
                deepest = deepest.max(level);
            }
            b'}' | b']' => level = level.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    (deepest, values)
}

/// What follows a string of which the opening quote has been read.
fn behind_text(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn levels_and_values_are_counted_outside_of_strings() {
        for (text, levels, values) in [
            ("1", 0, 1),
            ("{}", 1, 2),
            (r#"{"a":1,"b":[1,2,{}]}"#, 3, 7),
            (r#"["[[[,,,\"[[", "\\", "{"]"#, 1, 4),
            (r#"["unended [[["#, 1, 2),
            (r#""\"#, 0, 1),
            ("]]]]", 0, 1),
        ] {
            assert_eq!(measure(text.as_bytes()), (levels, values), "{text}");
        }
    }

    #[test]
    fn what_exceeds_is_said() {
        let said = |text: &str| exceeded("spec", text).map(|fault| fault.to_string());
        assert_eq!(said(&nested(DEEPEST)), None);
        assert_eq!(
            said(&nested(DEEPEST + 1)).as_deref(),
            Some("spec: Forbidden: nested deeper than 100 levels")
        );
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 2));
        assert_eq!(said(&list(MOST_VALUES)), None);
        assert_eq!(
            said(&list(MOST_VALUES + 1)).as_deref(),
            Some("spec: Forbidden: holds more than 20000 values")
        );
        // A long text is one value.
        assert_eq!(said(&format!("\"{}\"", "[,".repeat(100_000))), None);
    }
}
