//! How large one spec may be: in bytes, in nesting, and in the memory that it takes once it is read. A larger one is a
//! fault of the field `spec`.
//!
//! The rules read a spec into a tree of values (a pod template has no type of its own). Such a tree can take 85 times
//! the memory of its text: `{"a":1}` has 8 bytes with its comma, and is a B-tree node of 632 bytes in memory. So
//! neither a limit on bytes nor one on the number of values bounds the memory.

use super::faults::Fault;

/// Bytes of JSON. A large pod template has 10 kB.
pub const MAX_BYTES: usize = 256 * 1024;

/// Levels of nesting. `serde_json` reads 127, and an object in a list is nested two levels deeper than in its review.
pub const MAX_DEPTH: usize = 100;

/// Bytes of memory that the spec takes as a tree of values, by an estimate. Six thousand
/// containers, environment variables, volumes and the like fit in.
pub const MAX_MEMORY: usize = 4 * 1024 * 1024;

/// A value by itself (`serde_json::Value` has 32 bytes), twice: a list grows by doubling.
const VALUE: usize = 64;

/// The first member of an object: a leaf of a B-tree of 632 bytes, and the allocator's rounding.
const FIRST_MEMBER: usize = 640;

/// A further member: sequential insertion leaves six members in a leaf.
const NEXT_MEMBER: usize = FIRST_MEMBER / 6;

/// A string besides its bytes: the allocator's rounding.
const STRING: usize = 16;

/// No byte of text takes more memory.
const MAX_DENSITY: usize = 160;

/// Why the JSON `text` of the field `at` is rejected before it is read, if it is.
pub fn exceeded(at: &str, text: &str) -> Option<Fault> {
    if text.len() > MAX_BYTES {
        return Some(Fault::too_long(at, "", MAX_BYTES));
    }
    // No text takes more memory per byte than nested objects do (657 bytes for `{"":` and `}`), and a
    // level takes a bracket: usual specs are not gone through.
    let brackets = memchr::memchr2_iter(b'{', b'[', text.as_bytes());
    if text.len() <= MAX_MEMORY / MAX_DENSITY && brackets.count() <= MAX_DEPTH {
        return None;
    }
    let size = Size::of(text.as_bytes());
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

/// The cost of reading a JSON text. Arbitrary for malformed text.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    /// Levels of nesting.
    depth: usize,
    /// Bytes of memory of the tree of values, estimated from above for 64-bit machines.
    memory: usize,
}

impl Size {
    fn of(text: &[u8]) -> Self {
        let (mut level, mut depth, mut memory) = (0_usize, 0, VALUE);
        let mut is_first = false;
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'"' => {
                    rest = behind_text(rest);
                    memory += STRING + behind.len() - rest.len();
                }
                b'{' | b'[' => {
                    level += 1;
                    depth = depth.max(level);
                    is_first = *byte == b'{';
                    memory += if is_first { 0 } else { VALUE };
                }
                b'}' | b']' => level = level.saturating_sub(1),
                // An empty object takes nothing besides its value.
                b':' if std::mem::take(&mut is_first) => memory += FIRST_MEMBER,
                b':' => memory += NEXT_MEMBER,
                b',' => {
                    is_first = false;
                    memory += VALUE;
                }
                _ => {}
            }
        }
        Self { depth, memory }
    }
}

/// The rest of the text after a string whose opening quote has been read.
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
    fn depth_is_counted_outside_of_strings() {
        for (text, depth) in [
            ("1", 0),
            ("{}", 1),
            (r#"{"a":1,"b":[1,2,{}]}"#, 3),
            (r#"["[[[,,,\"[[", "\\", "{"]"#, 1),
            (r#"["unended [[["#, 1),
            (r#""\"#, 0),
            ("]]]]", 0),
        ] {
            assert_eq!(Size::of(text.as_bytes()).depth, depth, "{text}");
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
            let size = Size::of(text.as_bytes());
            assert!(size.memory <= text.len() * MAX_DENSITY, "{unit}: {size:?}");
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
                    let leaves = members.len().div_ceil(6);
                    let inner = members.iter().map(|(name, value)| text(name) + heap(value));
                    leaves * 640 + inner.sum::<usize>()
                }
            }
        }
        for text in [
            r#"[{"a":1},{"a":1},{"a":1},{"a":1},{"a":1}]"#,
            r#"{"a":{"b":{"c":{"d":[]}}}}"#,
            r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}"#,
            r#"["a","b","","long enough to be some bytes more"]"#,
            "[1,2,3,4,5,6,7,8,9]",
        ] {
            let tree: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            let (estimate, real) = (Size::of(text.as_bytes()).memory, heap(&tree));
            assert!(estimate >= real, "{text}: {estimate} < {real}");
        }
    }
}
