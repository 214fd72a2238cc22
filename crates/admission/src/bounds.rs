//! How large one spec may be: in bytes, in nesting, and in the memory that it takes once it is read. A larger one is a
//! fault of the field `spec`.
//!
//! The rules read a spec into a tree of values (a pod template has no type of its own). Such a tree can take 85 times
//! the memory of its text: `{"a":1}` has 8 bytes with its comma, and is a B-tree node of 632 bytes in memory. So
//! neither a limit on bytes nor one on the number of values bounds the memory.

use serde_json::value::RawValue;

use super::faults::Fault;
use super::json::{RAW, Reader};
use super::size::Size;

/// Bytes of JSON. A large pod template has 10 kB.
pub const MAX_BYTES: usize = 256 * 1024;

/// Levels of nesting. `serde_json` reads 127, and an object in a list is nested two levels deeper than in its review.
pub const MAX_DEPTH: usize = 100;

/// Bytes of memory that the spec takes as a tree of values, by an estimate. Six thousand
/// containers, environment variables, volumes and the like fit in.
pub const MAX_MEMORY: usize = 4 * 1024 * 1024;

/// No byte of text takes more memory.
const MAX_DENSITY: usize = 160;

/// Why the JSON `text` of the field `at` is rejected before it is read, if it is. A text that is not JSON is not, unless it
/// is too long.
pub fn exceeded(at: &str, text: &str) -> Option<Fault> {
    exceeded_by(at, text, None)
}

/// The same for a text whose size may be known.
pub(crate) fn exceeded_by(at: &str, text: &str, known: Option<Size>) -> Option<Fault> {
    if text.len() > MAX_BYTES {
        return Some(Fault::too_long(at, "", MAX_BYTES));
    }
    if known.is_none() && is_usual(text) {
        return None;
    }
    let size = known.or_else(|| size(text))?;
    if size.depth > MAX_DEPTH {
        let detail = format!("nested deeper than {MAX_DEPTH} levels");
        Some(Fault::forbidden(at, &detail))
    } else if size.memory > MAX_MEMORY {
        let detail = format!(
            "takes more than {} MiB of memory: use fewer objects and list items",
            MAX_MEMORY / (1024 * 1024)
        );
        Some(Fault::forbidden(at, &detail))
    } else {
        None
    }
}

/// Whether a text is within the bounds whatever it says, so that usual specs are not gone through. No text takes more memory
/// per byte than nested objects do (658 bytes for `{"":` and `}`), and a level takes a bracket.
fn is_usual(text: &str) -> bool {
    let brackets = || memchr::memchr2_iter(b'{', b'[', text.as_bytes()).count();
    let has = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    // What serde_json reads out of a string; its key may be written with escapes.
    let may_hide = || has(RAW) || has("\\u00");
    text.len() <= MAX_MEMORY / MAX_DENSITY && brackets() <= MAX_DEPTH && !may_hide()
}

/// The size of a JSON text. None: it is not JSON.
pub(crate) fn size(text: &str) -> Option<Size> {
    Reader::whole(text, |reader| reader.sized().map(|(_, size)| size)).or_else(|| {
        // A reader reads all JSON that is not nested too deeply.
        let json: Option<&RawValue> = serde_json::from_str(text).ok();
        json.map(|_| Size {
            depth: usize::MAX,
            memory: 0,
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn depth_is_counted_outside_of_strings() {
        for (text, depth) in [
            ("1", Some(0)),
            ("{}", Some(1)),
            (r#"{"a":1,"b":[1,2,{}]}"#, Some(3)),
            (r#"["[[[,,,\"[[", "\\", "{"]"#, Some(1)),
            (r#"["unended [[["#, None),
            (r#""\"#, None),
            ("]]]]", None),
        ] {
            assert_eq!(size(text).map(|size| size.depth), depth, "{text}");
        }
    }

    #[test]
    fn the_fault_says_which_bound_is_exceeded() {
        let said = |text: &str| exceeded("spec", text).map(|fault| fault.to_string());
        assert_eq!(said(&nested(MAX_DEPTH)), None);
        assert_eq!(
            said(&nested(MAX_DEPTH + 1)).as_deref(),
            Some("spec: Forbidden: nested deeper than 100 levels")
        );
        assert_eq!(said(&nested(100_000)), said(&nested(MAX_DEPTH + 1)));
        // serde_json would read a tree out of the string.
        for key in [RAW, "\\u0024serde_json::private::RawValue"] {
            let hidden = format!(r#"[{{"a": {{"{key}": "[]"}}}}]"#);
            assert_eq!(said(&hidden), said(&nested(MAX_DEPTH + 1)));
        }
        assert_eq!(said(r#"{"\u0024": {"$serde_json": "[]"}}"#), None);
        // A long text is one value.
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert_eq!(said(&text(MAX_BYTES)), None);
        assert_eq!(
            said(&text(MAX_BYTES + 1)).as_deref(),
            Some("spec: Too long: may not be more than 262144 bytes")
        );
        let objects = |n: usize| format!("[{}{{}}]", "{\"a\":1},".repeat(n - 1));
        assert_eq!(said(&objects(4_000)), None);
        assert_eq!(
            said(&objects(10_000)).as_deref(),
            Some(
                "spec: Forbidden: takes more than 4 MiB of memory: use fewer objects and list items"
            )
        );
    }

    #[test]
    fn no_text_is_denser_than_what_is_read_unseen() {
        let tower = format!("{}1{},", r#"{"":"#.repeat(100), "}".repeat(100));
        for unit in [
            &tower,
            r#"{"a":1},"#,
            r#"{"":1},"#,
            "{},",
            "[],",
            "1,",
            r#""","#,
            "[[]],",
        ] {
            let text = format!("[{}1]", unit.repeat(100_000 / unit.len()));
            let memory = size(&text).unwrap().memory;
            assert!(memory <= text.len() * MAX_DENSITY, "{unit}: {memory}");
        }
    }

    /// The estimate compared with the allocator's actual memory of the tree.
    #[test]
    fn the_estimate_is_no_less_than_what_a_tree_takes() {
        fn heap(value: &serde_json::Value) -> usize {
            use serde_json::Value;
            let text = |s: &String| s.capacity().next_multiple_of(8);
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
                Value::String(s) => text(s),
                Value::Array(items) => {
                    items.capacity() * size_of::<Value>() + items.iter().map(heap).sum::<usize>()
                }
                Value::Object(members) => {
                    let leaves = match members.len() {
                        0 => 0,
                        1..=11 => 1,
                        more => more.div_ceil(6),
                    };
                    let nodes = if leaves > 1 { leaves.div_ceil(6) } else { 0 };
                    let inner = members.iter().map(|(name, value)| text(name) + heap(value));
                    leaves * 640 + nodes * 768 + inner.sum::<usize>()
                }
            }
        }
        for text in [
            r#"[{"a":1},{"a":1},{"a":1},{"a":1},{"a":1}]"#,
            r#"{"a":{"b":{"c":{"d":[]}}}}"#,
            r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}"#,
            r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":0,"k":1,"l":2}"#,
            r#"["a","b","","long enough to be some bytes more"]"#,
            "[1,2,3,4,5,6,7,8,9]",
            "[[[[[[1]]]]]]",
        ] {
            let tree: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            let (estimate, real) = (size(text).unwrap().memory, heap(&tree));
            assert!(estimate >= real, "{text}: {estimate} < {real}");
        }
    }
}
