//! Reads JSON where it stands: the members of an object one after the other, and the rest as text.
//!
//! A review is mostly skipped, and half of a large one is an annotation of `kubectl apply`: a string with an escape every
//! few bytes, at which `serde_json` is slow.
//!
//! A reader accepts nothing that `serde_json` would not read as a `RawValue`. It does not say what is wrong: callers then
//! ask `serde_json`.

use std::borrow::Cow;

/// Deeper values are left to `serde_json`, which needs no stack for those that it skips.
const MAX_DEPTH: usize = 100;

/// A longer number may be out of the range of a double.
const MAX_NUMBER: usize = 20;

/// The key of an object that [`serde_json`] replaces by what the text of its value says, once its feature `raw_value` is on.
const RAW: &str = "$serde_json::private::RawValue";

/// A text, and how far it is read. All methods return None where it is malformed, of another type or nested too deeply.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    is_usual: bool,
}

impl<'a> Reader<'a> {
    /// Reads a whole text by that function, which must leave nothing of it but blanks.
    pub fn whole<T>(text: &'a str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut reader = Self {
            text,
            at: 0,
            is_usual: true,
        };
        let value = read(&mut reader)?;
        reader.peek().is_none().then_some(value)
    }

    /// Whether `serde_json` would read what has been read so far into a `Value`, and that into the same text. It fails at
    /// half a character (`\ud800`) and at a number out of range, and replaces an object with one special key.
    pub fn is_usual(&self) -> bool {
        self.is_usual
    }

    /// Reads an object: `member` is called for each key, and reads its value.
    pub fn members(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.items(b'{', b'}', |reader| {
            let key = reader.key()?;
            reader.byte(b':')?;
            member(unescaped(key)?, reader)
        })
    }

    /// Reads a string.
    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        unescaped(self.string()?)
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
        self.peek()?;
        let start = self.at;
        self.skip(0)?;
        self.text.get(start..self.at)
    }

    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.items(b'{', b'}', |reader| {
                reader.key()?;
                reader.byte(b':')?;
                reader.skip(depth + 1)
            }),
            b'[' => self.list(|reader| reader.skip(depth + 1)),
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

    /// The key of a member with its quotes.
    fn key(&mut self) -> Option<&'a str> {
        let key = self.string()?;
        let is_long = key.len() > RAW.len();
        self.is_usual &= !is_long || unescaped(key).is_some_and(|key| key != RAW);
        Some(key)
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        self.byte(b'"')?;
        let start = self.at - 1;
        let bytes = self.text.as_bytes();
        loop {
            self.at += plain(bytes.get(self.at..)?);
            match bytes.get(self.at)? {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
        self.at += 1;
        self.text.get(start..self.at)
    }

    /// A backslash, and what it makes of the bytes behind it.
    fn escape(&mut self) -> Option<()> {
        self.at += match self.text.as_bytes().get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' => match self.unit(self.at)? {
                0xd800..0xdc00 if matches!(self.unit(self.at + 6), Some(0xdc00..=0xdfff)) => 12,
                0xd800..=0xdfff => {
                    self.is_usual = false;
                    6
                }
                _ => 6,
            },
            _ => return None,
        };
        Some(())
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
fn unescaped(string: &str) -> Option<Cow<'_, str>> {
    if string.contains('\\') {
        return serde_json::from_str(string).ok();
    }
    string.get(1..string.len() - 1).map(Cow::Borrowed)
}

/// How many bytes of a string come before one that is not plain: a quote, a backslash or a control character.
fn plain(bytes: &[u8]) -> usize {
    /// The same byte eight times.
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    /// The highest bit of the first byte below `limit`, which is at most 128, is set; higher ones may be.
    const fn below(eight: u64, limit: u8) -> u64 {
        eight.wrapping_sub(all(limit)) & !eight & all(0x80)
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (i, chunk) in chunks.iter().enumerate() {
        let eight = u64::from_le_bytes(*chunk);
        let equal = |byte| below(eight ^ all(byte), 1);
        let special = below(eight, b' ') | equal(b'"') | equal(b'\\');
        if special != 0 {
            return 8 * i + special.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | ..b' ');
    bytes.len() - rest.len() + rest.iter().take_while(is_plain).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    /// The text if it is one value, and whether it is usual.
    fn read(text: &str) -> Option<(&str, bool)> {
        Reader::whole(text, |reader| Some((reader.raw()?, reader.is_usual())))
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
