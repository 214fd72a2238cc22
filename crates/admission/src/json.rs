//! Reads JSON where it stands: the members of an object one after the other, and the rest as text.
//!
//! A review is mostly skipped, and half of a large one is an annotation of `kubectl apply`: a string with an escape every
//! few bytes, at which `serde_json` is slow.
//!
//! A reader accepts nothing that `serde_json` would not read as a `RawValue`. It does not say what is wrong: callers then
//! ask `serde_json`.

use std::borrow::Cow;

use super::size::Size;

/// Deeper values are left to `serde_json`, which needs no stack for those that it skips.
const MAX_DEPTH: usize = 100;

/// A longer number may be out of the range of a double.
const MAX_NUMBER: usize = 20;

/// The key of an object that [`serde_json`] replaces by what the text of its value says, once its feature `raw_value` is on.
pub(crate) const RAW: &str = "$serde_json::private::RawValue";

/// A text, and how far it is read. All methods return None where it is malformed, of another type or nested too deeply.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    is_usual: bool,
    /// Of what was read since it was set.
    size: Size,
}

impl<'a> Reader<'a> {
    /// Reads a whole text by that function, which must leave nothing of it but blanks.
    pub fn whole<T>(text: &'a str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut reader = Self {
            text,
            at: 0,
            is_usual: true,
            size: Size::default(),
        };
        let value = read(&mut reader)?;
        reader.peek().is_none().then_some(value)
    }

    /// Reads a value by that function, if `serde_json` would read it into a `Value`, and that into the same text. It fails
    /// at half a character (`\ud800`) and at a number out of range, and replaces an object with one special key.
    pub fn usual<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = std::mem::replace(&mut self.is_usual, true);
        let value = read(self);
        let is_usual = std::mem::replace(&mut self.is_usual, before);
        value.filter(|_| is_usual)
    }

    /// Reads an object: `member` is called for each key, and reads its value.
    pub fn members(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.items(b'{', b'}', |reader| {
            let (key, has_escapes) = reader.key()?;
            reader.byte(b':')?;
            member(unescaped(key, has_escapes)?, reader)
        })
    }

    /// Reads a string.
    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        let (string, has_escapes) = self.quoted()?;
        unescaped(string, has_escapes)
    }

    /// Reads a string, and returns it as it is written, with its quotes.
    pub fn string(&mut self) -> Option<&'a str> {
        self.quoted().map(|(string, _)| string)
    }

    /// Reads an array: `item` reads each of its items.
    pub fn list(&mut self, item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.items(b'[', b']', item)
    }

    /// Reads `null` as None, and anything else by that function.
    pub fn or_null<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.peek() == Some(b'n') {
            return self.word("null").map(|()| None);
        }
        read(self).map(Some)
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self) -> Option<bool> {
        let is_true = self.peek()? == b't';
        self.word(if is_true { "true" } else { "false" })?;
        Some(is_true)
    }

    /// Reads any value, and returns its text.
    pub fn raw(&mut self) -> Option<&'a str> {
        self.with_text(|reader| reader.skip(0))
            .map(|(text, ())| text)
    }

    /// Reads a value by that function, and returns its text, too.
    pub fn with_text<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<(&'a str, T)> {
        self.peek()?;
        let start = self.at;
        let value = read(self)?;
        Some((self.text.get(start..self.at)?, value))
    }

    /// Reads any value, and returns its text and its size.
    pub(crate) fn sized(&mut self) -> Option<(&'a str, Size)> {
        self.size = Size::default();
        let text = self.raw()?;
        Some((text, self.size))
    }

    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (depth, mut is_first) = (depth + 1, true);
        match self.peek()? {
            b'"' => {
                let text = self.string()?;
                self.size.add_text(text);
                Some(())
            }
            b'{' => {
                self.size.add_level(depth);
                self.items(b'{', b'}', |reader| {
                    let (key, _) = reader.key()?;
                    reader.size.add_text(key);
                    reader.size.add_member(std::mem::take(&mut is_first));
                    reader.byte(b':')?;
                    reader.skip(depth)
                })
            }
            b'[' => {
                self.size.add_level(depth);
                self.list(|reader| {
                    reader.size.add_item(std::mem::take(&mut is_first));
                    reader.skip(depth)
                })
            }
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.number(),
        }
    }

    /// What stands between the brackets `open` and `close`, with commas between: `item` reads each.
    fn items(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.byte(open)?;
        if self.peek()? == close {
            return self.byte(close);
        }
        loop {
            item(self)?;
            if self.peek()? == close {
                return self.byte(close);
            }
            self.byte(b',')?;
        }
    }

    /// The key of a member with its quotes, and whether it has escapes.
    fn key(&mut self) -> Option<(&'a str, bool)> {
        let (key, has_escapes) = self.quoted()?;
        if key.len() > RAW.len() {
            let key = unescaped(key, has_escapes);
            self.is_usual &= key.is_some();
            if key.is_some_and(|key| key == RAW) {
                self.is_usual = false;
                self.size.add_hidden();
            }
        }
        Some((key, has_escapes))
    }

    /// A string with its quotes, and whether it has escapes.
    fn quoted(&mut self) -> Option<(&'a str, bool)> {
        self.byte(b'"')?;
        let (start, bytes) = (self.at - 1, self.text.as_bytes());
        let mut has_escapes = false;
        loop {
            let from = self.at;
            let mut special = special(eight(bytes.get(from..)?));
            self.at = from + 8;
            // Escapes may be a few bytes apart: the next one is in the same mask.
            while special != 0 {
                let at = from + special.trailing_zeros() as usize / 8;
                match bytes.get(at)? {
                    b'"' => {
                        self.at = at + 1;
                        return Some((self.text.get(start..self.at)?, has_escapes));
                    }
                    b'\\' => has_escapes = true,
                    _ => return None,
                }
                let end = at + self.escape(at)?;
                if end >= from + 8 {
                    self.at = end;
                    break;
                }
                special &= u64::MAX << (8 * (end - from));
            }
        }
    }

    /// How many bytes the escape takes that begins there with a backslash.
    fn escape(&mut self, at: usize) -> Option<usize> {
        Some(match self.text.as_bytes().get(at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' => match self.unit(at)? {
                0xd800..0xdc00 if matches!(self.unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
                0xd800..=0xdfff => {
                    self.is_usual = false;
                    6
                }
                _ => 6,
            },
            _ => return None,
        })
    }

    /// The number of an escape such as `\u00e9`: a character or half of one, in UTF-16.
    fn unit(&self, at: usize) -> Option<u16> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| are_digits)
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        self.here(b"-");
        if !self.here(b"0") {
            self.digits()?;
        }
        if self.here(b".") {
            self.digits()?;
        }
        if self.here(b"eE") {
            self.is_usual = false;
            self.here(b"+-");
            self.digits()?;
        }
        self.is_usual &= self.at - start <= MAX_NUMBER;
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        self.here(b"0123456789").then_some(())?;
        while self.here(b"0123456789") {}
        Some(())
    }

    /// Reads a byte if it is one of these.
    fn here(&mut self, any: &[u8]) -> bool {
        let byte = self.text.as_bytes().get(self.at);
        let is_here = byte.is_some_and(|byte| any.contains(byte));
        self.at += usize::from(is_here);
        is_here
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.peek();
        let is_here = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        is_here.then_some(())
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        let is_here = self.peek()? == byte;
        self.at += 1;
        is_here.then_some(())
    }

    /// The next byte that is not blank. It is not read yet.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }
}

/// What a string with its quotes says.
fn unescaped(string: &str, has_escapes: bool) -> Option<Cow<'_, str>> {
    if has_escapes {
        return serde_json::from_str(string).ok();
    }
    string.get(1..string.len() - 1).map(Cow::Borrowed)
}

/// The first eight bytes, the first one lowest; blanks where there are fewer.
fn eight(bytes: &[u8]) -> u64 {
    let first = bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [b' '; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        padded
    });
    u64::from_le_bytes(first)
}

/// The highest bit of each of eight bytes that ends a string or may not be in one as it is: a quote, a backslash or a
/// control character. No carry passes from a byte to the next.
const fn special(eight: u64) -> u64 {
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    const LOW: u64 = all(0x7f);
    const fn is_not(eight: u64, byte: u8) -> u64 {
        let rest = eight ^ all(byte);
        ((rest & LOW) + LOW) | rest
    }
    let is_no_control = ((eight & LOW) + all(0x60)) | eight;
    !(is_not(eight, b'"') & is_not(eight, b'\\') & is_no_control) & all(0x80)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    /// The text if it is one value, and whether it is usual.
    fn read(text: &str) -> Option<(&str, bool)> {
        Reader::whole(text, |reader| Some((reader.raw()?, reader.is_usual)))
    }

    #[test]
    fn what_is_accepted_is_what_serde_json_accepts() {
        let words = [
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "\\",
            "\\\"",
            "\\u00e9",
            "\\ud83d",
            "\\x",
            "\n",
            "\u{1}",
            "é",
            "🎉",
            "null",
            "true",
            "false",
            "nul",
            "0",
            "-",
            "-1.50",
            "01",
            "1.",
            "1e9",
            "123456789012345678901",
            " ",
            "\"a\"",
            "\"b\":",
            r#""$serde_json::private::RawValue":"#,
            r#"{"a":[1,{"b":"c"}],"d":null}"#,
        ];
        let mut random = fastrand::Rng::with_seed(38);
        let mut accepted = 0;
        for _ in 0..100_000 {
            let mut text =
                r#"{"a": {"b\n": [1, -2.5, "x\"y", true, null, {}, []]}, "c": ""}"#.to_owned();
            for _ in 0..random.usize(..4) {
                let mut places = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
                places.push(text.len());
                let from = random.usize(..places.len());
                let to = (from + random.usize(..2)).min(places.len() - 1);
                let word = words[random.usize(..words.len())];
                text.replace_range(places[from]..places[to], word);
            }
            let whole: Option<&RawValue> = serde_json::from_str(&text).ok();
            let whole = whole.map(RawValue::get);
            assert_eq!(read(&text).map(|(raw, _)| raw), whole, "{text}");
            let value: Option<Value> = serde_json::from_str(&text).ok();
            if let Some((_, true)) = read(&text) {
                accepted += 1;
                assert!(value.is_some_and(|value| !value.to_string().contains("private")));
            }
        }
        assert!(accepted > 10_000, "{accepted}");
    }

    #[test]
    fn what_is_valid_and_usual_is_accepted() {
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-12.5",
            r#""\u00e9\/\\\"\b\f\n\r\t""#,
            "[]",
            "[ 1 , [ ] ]",
            "{ }",
            r#"{ "a" : { } , "a" : "é" }"#,
            "\"a text of more than eight bytes\"",
        ] {
            assert_eq!(read(text), Some((text.trim(), true)), "{text}");
        }
        for (text, is_usual) in [
            ("1e5", false),
            ("123456789012345678901", false),
            (r#""\ud83d\ude00 \ud7ff""#, true),
            (r#""\ud83d""#, false),
            (r#""\ude00\ud83d""#, false),
            (r#"{"$serde_json::private::RawValue":""}"#, false),
            (r#"{"\u0024serde_json::private::RawValue":""}"#, false),
        ] {
            assert_eq!(read(text), Some((text, is_usual)));
        }
        for levels in [1, MAX_DEPTH, MAX_DEPTH + 1, 127, 1_000_000] {
            let tower = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let is_read = levels <= MAX_DEPTH + 1;
            assert_eq!(read(&tower), is_read.then_some((tower.as_str(), true)));
        }
    }

    #[test]
    fn a_string_ends_at_its_quote_wherever_that_is() {
        for special in [
            "", "\\\"", "\\n", "é", "\u{1}", "\u{1f}", " ", "\u{7f}", "\\",
        ] {
            for before in 0..20 {
                let string = format!("\"{}{special}\"", "x".repeat(before));
                for after in 0..20 {
                    let text = format!("{string}{}", "y".repeat(after));
                    let expected: Option<String> = serde_json::from_str(&string).ok();
                    let read = Reader::whole(&text, |reader| {
                        let read = reader.text();
                        reader.at = text.len();
                        read
                    });
                    assert_eq!(read.as_deref(), expected.as_deref(), "{text}");
                }
            }
        }
    }
}
