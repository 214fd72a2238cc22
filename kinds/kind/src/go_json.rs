//! JSON in the one form in which Kubernetes' own components write it: what is stored in that form stays equal to what they
//! store.

use std::io;

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// JSON as Go's `encoding/json` writes it after decoding it into plain maps: sorted keys, no whitespace, whole numbers
/// without a fraction, and `<`, `>`, `&` and two line separators escaped.
pub fn as_go(mut value: Value) -> String {
    value.sort_all_objects();
    let mut out = Vec::new();
    // Nothing fails: the keys are strings, and the text is written to memory.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, AsGo));
    String::from_utf8(out).unwrap_or_default()
}

struct AsGo;

impl Formatter for AsGo {
    fn write_string_fragment<W>(&mut self, out: &mut W, text: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        for c in text.chars() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    write!(out, "\\u{:04x}", u32::from(c))?;
                }
                c => write!(out, "{c}")?,
            }
        }
        Ok(())
    }

    fn write_u64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: u64) -> io::Result<()> {
        if i64::try_from(value).is_ok() {
            return write!(out, "{value}");
        }
        #[allow(clippy::cast_precision_loss)]
        self.write_f64(out, value as f64)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(out, "{value}");
        }
        let text = format!("{value:e}");
        // Go writes the sign of a positive exponent.
        let exponent = if size < 1.0 { "e" } else { "e+" };
        out.write_all(text.replace('e', exponent).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn json_is_written_as_go_writes_it() {
        // The right-hand sides are what json.Marshal returns for the left-hand sides after the API
        // server's decoder has read them into an interface.
        for (written, form) in [
            (
                r#"{ "b" : [1, 2 , {}], "a": null }"#,
                r#"{"a":null,"b":[1,2,{}]}"#,
            ),
            (r#"{"B":1,"a":2,"A":3}"#, r#"{"A":3,"B":1,"a":2}"#),
            (
                r#""a<b>&c\u2028\u2029""#,
                r#""a\u003cb\u003e\u0026c\u2028\u2029""#,
            ),
            (
                "\"\\u0000\\u001f\\b\\f\\n\\r\\t\\/\\\\\\\"\u{7f}\u{e4}\"",
                "\"\\u0000\\u001f\\b\\f\\n\\r\\t/\\\\\\\"\u{7f}\u{e4}\"",
            ),
            (
                "[1.0, 0, 1e3, 0.5, 1e-7, 1e21, 123456789012, 1.5e300]",
                "[1,0,1000,0.5,1e-7,1e+21,123456789012,1.5e+300]",
            ),
            ("[true,false]", "[true,false]"),
        ] {
            let value = serde_json::from_str(written).unwrap();
            assert_eq!(as_go(value), form, "{written}");
        }
    }
}
