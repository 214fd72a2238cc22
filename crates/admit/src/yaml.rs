//! Parses text into documents, as kubectl does.
//!
//! kubectl splits a file at lines that begin with `---` and passes each piece to Go's `sigs.k8s.io/yaml`, which reads
//! YAML 1.1: `yes` is a boolean and `0755` is octal. A YAML 1.2 parser would check another object than the one that
//! kubectl sends. So this module builds the nodes from the parser's events, with the scalars of that library
//! (`kubectl.tsv` beside this file has its answers to many of them), and each node knows its position.
//!
//! This module is stricter than kubectl about obvious mistakes: a duplicate key, and text after the end of a document,
//! are errors here.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use admission_rules::bounds::MAX_DEPTH;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde::de::IgnoredAny;
use serde_json::{Number, Value};

/// The most values that one document may hold once its aliases are replaced.
const MAX_VALUES: usize = 1_000_000;
/// The most bytes of text that one document may hold once its aliases are replaced.
const MAX_TEXT_LEN: usize = 32 * 1024 * 1024;

/// The longest name with dots whose line is searched: those of labels and annotations have at most 253 + 1 + 63
/// characters.
const MAX_NAME_LEN: usize = 317;

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line in the file, from 1.
    pub line: usize,
    /// The column, from 1, if known.
    pub column: Option<usize>,
    /// One sentence.
    pub message: String,
}

/// A document that is not empty.
#[derive(Debug)]
pub struct Document {
    /// The line of its first value.
    pub line: usize,
    /// Its value.
    pub content: Result<Rc<Node>, Unreadable>,
}

/// A value and its position.
#[derive(Debug)]
pub struct Node {
    /// The line in the file, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The value.
    pub content: Content,
    size: Size,
}

/// A value of JSON.
#[derive(Debug)]
pub enum Content {
    /// A text, a number, a boolean, `null`.
    Scalar(Value),
    /// A list.
    List(Vec<Rc<Node>>),
    /// An object.
    Map(BTreeMap<String, Entry>),
}

/// A field of an object.
#[derive(Debug)]
pub struct Entry {
    /// The line of its name.
    pub line: usize,
    /// The column of its name.
    pub column: usize,
    /// Its value.
    pub node: Rc<Node>,
    /// Merged by the merge key `<<`.
    merged: bool,
}

/// The size of a node with all aliases replaced. Nodes are shared until the plain value is built, so a document that
/// would grow without bounds is rejected before it grows.
#[derive(Clone, Copy, Debug)]
struct Size {
    values: usize,
    text: usize,
    depth: usize,
}

impl Size {
    /// That of a scalar.
    fn of(text: &str) -> Self {
        Self {
            values: 1,
            text: text.len(),
            depth: 1,
        }
    }

    /// With one more member.
    fn holding(self, member: Self) -> Self {
        Self {
            values: self.values.saturating_add(member.values),
            text: self.text.saturating_add(member.text),
            depth: self.depth.max(member.depth + 1),
        }
    }
}

impl Node {
    /// The field of an object.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(entries) => entries.get(name).map(|entry| &*entry.node),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The plain value.
    pub fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(|item| item.value()).collect(),
            Content::Map(entries) => entries
                .iter()
                .map(|(name, entry)| (name.clone(), entry.node.value()))
                .collect(),
        }
    }

    /// The line and column of a field, such as `spec.containers[0].image`, or of its nearest existing parent.
    pub(crate) fn position_of(&self, path: &str) -> (usize, usize) {
        self.find(path).unwrap_or((self.line, self.column))
    }

    fn find(&self, path: &str) -> Option<(usize, usize)> {
        let (position, node, rest) = match &self.content {
            Content::Scalar(_) => return None,
            Content::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                ((item.line, item.column), item, rest)
            }
            Content::Map(entries) => {
                let (path, close) = match path.strip_prefix('[') {
                    Some(path) => (path, "]"),
                    None => (path.strip_prefix('.').unwrap_or(path), ""),
                };
                // A name may contain dots and brackets: the longest existing one wins.
                let inner = path.char_indices().take(MAX_NAME_LEN);
                let inner = inner.filter(|(_, c)| ".[]".contains(*c));
                let mut ends: Vec<usize> = inner.map(|(end, _)| end).collect();
                ends.push(path.len());
                let field = |end: usize| {
                    let rest = path[end..].strip_prefix(close)?;
                    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                    let entry = entries.get(&path[..end]).filter(|_| ends)?;
                    Some(((entry.line, entry.column), &entry.node, rest))
                };
                ends.into_iter().rev().find_map(field)?
            }
        };
        node.find(rest).or(Some(position))
    }
}

/// The documents of a file, one at a time, without empty ones.
pub fn documents(text: &str, each: &mut dyn FnMut(Document)) {
    for piece in pieces(text) {
        match piece {
            Err(unreadable) => each(Document {
                line: unreadable.line,
                content: Err(unreadable),
            }),
            Ok((line, text)) => read_piece(line, text, each),
        }
    }
}

/// The text between the lines that begin with `---`, with the number of its first line.
fn pieces(text: &str) -> Vec<Result<(usize, &str), Unreadable>> {
    let mut pieces = Vec::new();
    // The start of the current piece; None after an invalid separator.
    let mut open = Some((1, 0));
    let mut end = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let number = number + 1;
        let start = end;
        end += line.len();
        let Some(behind) = line.strip_prefix("---").map(str::trim) else {
            continue;
        };
        if let Some((first, from)) = open {
            pieces.push(Ok((first, &text[from..start])));
        }
        open = Some((number + 1, end));
        if !behind.is_empty() && !behind.starts_with('#') {
            pieces.push(Err(Unreadable {
                line: number,
                column: None,
                message: "invalid YAML document separator: `---` must stand alone".to_owned(),
            }));
            open = None;
        }
    }
    if let Some((first, from)) = open {
        pieces.push(Ok((first, &text[from..])));
    }
    pieces
}

/// One YAML document, or any number of consecutive JSON values.
fn read_piece(line: usize, text: &str, each: &mut dyn FnMut(Document)) {
    let mut start = 0;
    let mut line = line;
    let mut before = 0;
    if text.trim_start().starts_with('{') {
        // The JSON parser only finds the end of each value. The value is then parsed as YAML, which gives the lines.
        // Text that is not JSON is YAML in the first place.
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
        while let Some(Ok(_)) = values.next() {
            let value = &text[start..values.byte_offset()];
            read(line, before, value).into_iter().for_each(&mut *each);
            line += value.matches('\n').count();
            before = match value.rsplit_once('\n') {
                Some((_, last)) => last.chars().count(),
                None => before + value.chars().count(),
            };
            start += value.len();
        }
    }
    read(line, before, &text[start..])
        .into_iter()
        .for_each(each);
}

/// `before` is the number of characters before the text in its first line.
fn read(first_line: usize, before: usize, text: &str) -> Option<Document> {
    let mut reader = Reader::new(first_line, before, text);
    let content = reader.document().transpose()?;
    Some(Document {
        line: match &content {
            Ok(node) => node.line,
            Err(unreadable) => unreadable.line,
        },
        content,
    })
}

/// Builds a document from its events.
struct Reader<'a> {
    text: &'a str,
    events: Parser<'a, StrInput<'a>>,
    /// The nodes with anchors, for aliases. A node is added once it is complete.
    anchors: HashMap<usize, Rc<Node>>,
    /// Lines above the text.
    above: usize,
    /// Characters before the text in its first line.
    before: usize,
    /// The current depth of nesting.
    depth: usize,
    /// The number of fields from merge keys: unlike aliases, they take memory at once.
    merged: usize,
}

impl<'a> Reader<'a> {
    fn new(first_line: usize, before: usize, text: &'a str) -> Self {
        let mut options = granit_parser::Options::default();
        options.set_emit_comments(false);
        Self {
            text,
            events: Parser::new_from_str_with_options(text, options),
            anchors: HashMap::new(),
            above: first_line - 1,
            before,
            depth: 0,
            merged: 0,
        }
    }

    /// The document; `None` if there is none, or it is `null`.
    fn document(&mut self) -> Result<Option<Rc<Node>>, Unreadable> {
        self.refuse_control_characters()?;
        let mut document = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if document.is_some() => {
                    let message = "text behind the end of the document: begin another with `---`";
                    return Err(self.unreadable(span.start, message.to_owned()));
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => document = Some(self.node(event, span)?),
            }
        }
        Ok(document.filter(|node| !matches!(node.content, Content::Scalar(Value::Null))))
    }

    /// YAML allows control characters only as escapes, and the parser takes a NUL for the end.
    fn refuse_control_characters(&self) -> Result<(), Unreadable> {
        let allowed = ['\t', '\n', '\r', '\u{85}'];
        let refused = |c: char| c.is_control() && !allowed.contains(&c);
        let Some(at) = self.text.find(refused) else {
            return Ok(());
        };
        Err(Unreadable {
            line: self.above + 1 + self.text[..at].matches('\n').count(),
            column: None,
            message: "control characters are not allowed".to_owned(),
        })
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Unreadable> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.unreadable(*error.marker(), error.info())),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    /// The line and column in the file.
    fn position(&self, at: Marker) -> (usize, usize) {
        let before = if at.line() == 1 { self.before } else { 0 };
        (self.above + at.line(), before + at.col() + 1)
    }

    fn unreadable(&self, at: Marker, mut message: String) -> Unreadable {
        let line = self.text.lines().nth(at.line().saturating_sub(1));
        if line.is_some_and(|line| line.contains("{{")) {
            message += " (is this a template that must be rendered first?)";
        }
        let (line, column) = self.position(at);
        Unreadable {
            line,
            column: Some(column),
            message,
        }
    }

    fn too_much(&self, span: Span) -> Unreadable {
        let message = format!(
            "with its aliases replaced, this is more than {MAX_VALUES} values or {MAX_TEXT_LEN} bytes"
        );
        self.unreadable(span.start, message)
    }

    fn too_deep(&self, span: Span) -> Unreadable {
        let message = format!("nested deeper than {MAX_DEPTH} levels");
        self.unreadable(span.start, message)
    }

    /// The node that begins with this event.
    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Rc<Node>, Unreadable> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        let mut size = Size::of("");
        let (anchor, content) = match event {
            Event::Alias(id) => {
                self.depth -= 1;
                return self.anchors.get(&id).cloned().ok_or_else(|| {
                    self.unreadable(span.start, "an anchor's value contains itself".to_owned())
                });
            }
            Event::Scalar(text, style, anchor, tag) => {
                size = Size::of(&text);
                let value = scalar(&text, style, tag.as_deref())
                    .map_err(|message| self.unreadable(span.start, message))?;
                (anchor, Content::Scalar(value))
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    let item = self.node(event, span)?;
                    size = size.holding(item.size);
                    items.push(item);
                }
                (anchor, Content::List(items))
            }
            Event::MappingStart(_, anchor, _) => {
                let entries = self.entries()?;
                for (name, entry) in &entries {
                    size = size.holding(Size::of(name)).holding(entry.node.size);
                }
                (anchor, Content::Map(entries))
            }
            other => return Err(self.unreadable(span.start, format!("unexpected {other:?}"))),
        };
        self.depth -= 1;
        if size.depth > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        if size.values > MAX_VALUES || size.text > MAX_TEXT_LEN {
            return Err(self.too_much(span));
        }
        let (line, column) = self.position(span.start);
        let node = Rc::new(Node {
            line,
            column,
            content,
            size,
        });
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    /// The fields of an object, up to its end.
    fn entries(&mut self) -> Result<BTreeMap<String, Entry>, Unreadable> {
        let mut entries = BTreeMap::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let start = span.start;
            let merge = is_merge(&event);
            let key = self.node(event, span)?;
            let (event, span) = self.next()?;
            let node = self.node(event, span)?;
            if merge {
                self.merge(&mut entries, &node, span)?;
                continue;
            }
            let name = match &key.content {
                Content::Scalar(Value::String(text)) => text.clone(),
                Content::Scalar(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                Content::Scalar(_) => {
                    return Err(self.unreadable(start, "null cannot be a key".to_owned()));
                }
                _ => {
                    let message = "a list or an object cannot be a key".to_owned();
                    return Err(self.unreadable(start, message));
                }
            };
            let (line, column) = self.position(start);
            let entry = Entry {
                line,
                column,
                node,
                merged: false,
            };
            let message = format!("key {name:?} already set in map");
            let before = entries.insert(name, entry);
            if before.is_some_and(|before| !before.merged) {
                return Err(self.unreadable(start, message));
            }
        }
    }

    /// The merge key, as in kubectl's library: merged fields override fields above the merge key, and fields below
    /// override merged ones.
    fn merge(
        &mut self,
        entries: &mut BTreeMap<String, Entry>,
        node: &Node,
        span: Span,
    ) -> Result<(), Unreadable> {
        match &node.content {
            Content::Map(merged) => {
                self.merged += merged.len();
                if self.merged > MAX_VALUES {
                    return Err(self.too_much(span));
                }
                for (name, entry) in merged {
                    let entry = Entry {
                        line: entry.line,
                        column: entry.column,
                        node: Rc::clone(&entry.node),
                        merged: true,
                    };
                    entries.insert(name.clone(), entry);
                }
                Ok(())
            }
            Content::List(items) if items.iter().all(|i| matches!(i.content, Content::Map(_))) => {
                // The first in the list overrides the others.
                let mut items = items.iter().rev();
                items.try_for_each(|item| self.merge(entries, item, span))
            }
            _ => {
                let message = "map merge requires map or sequence of maps as the value";
                Err(self.unreadable(span.start, message.to_owned()))
            }
        }
    }
}

fn is_merge(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, _, None) => text == "<<",
        Event::Scalar(_, _, _, Some(tag)) => yaml_tag(tag).as_deref() == Some("merge"),
        _ => false,
    }
}

/// The name of a standard YAML tag.
fn yaml_tag(tag: &Tag) -> Option<String> {
    let name = tag.suffix_in_namespace("tag:yaml.org,2002:")?;
    Some(name.into_owned())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => plain(text),
            _ => Ok(text.into()),
        };
    };
    let tag = yaml_tag(tag).unwrap_or_default();
    let is_of: fn(&Value) -> bool = match tag.as_str() {
        "null" => Value::is_null,
        "bool" => Value::is_boolean,
        "float" => Value::is_number,
        "int" => |value| value.is_i64() || value.is_u64(),
        "binary" => {
            let bytes = BASE64_STANDARD.decode(text).ok();
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            return text
                .map(Value::String)
                .ok_or_else(|| "a !!binary value must be base64 of text in UTF-8".to_owned());
        }
        // Custom tags mean nothing to Kubernetes.
        _ => return Ok(text.into()),
    };
    plain(text)
        .ok()
        .filter(is_of)
        .ok_or_else(|| format!("cannot decode {text:?} as a !!{tag}"))
}

/// The value of a scalar without quotes and tag in YAML 1.1, as in Go's library, which reads timestamps as strings and
/// does not support sexagesimal numbers.
fn plain(text: &str) -> Result<Value, String> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            true.into()
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            false.into()
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(format!("JSON has no number {text}"));
        }
        text => match text.as_bytes().first() {
            Some(b'0'..=b'9' | b'+' | b'-') => number(&text.replace('_', "")),
            Some(b'.') => float(text),
            _ => None,
        }
        .map_or_else(|| text.into(), Value::Number),
    };
    Ok(value)
}

fn number(text: &str) -> Option<Number> {
    integer(text).or_else(|| float(text))
}

fn integer(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' | b'-' => text.split_at(1),
        _ => ("", text),
    };
    let prefix = digits.get(..2).unwrap_or_default();
    let (radix, digits) = match prefix {
        "0x" | "0X" => (16, &digits[2..]),
        "0o" | "0O" => (8, &digits[2..]),
        "0b" | "0B" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    if sign.is_empty() {
        return u64::from_str_radix(digits, radix).ok().map(Number::from);
    }
    let signed = format!("{sign}{digits}");
    i64::from_str_radix(&signed, radix).ok().map(Number::from)
}

fn float(text: &str) -> Option<Number> {
    let looks_like_one = |c: u8| c.is_ascii_digit() || b".eE+-".contains(&c);
    if !text.bytes().all(looks_like_one) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    // Go writes a whole number without a decimal point, and the API server then reads an integer.
    let whole = || format!("{value}").parse::<i64>().ok().map(Number::from);
    whole().or_else(|| Number::from_f64(value))
}
