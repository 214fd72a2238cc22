//! Text to tokens, by the rules of parsetime.l of Debian's at: the longest match wins, upper and lower case are the same,
//! and no space is needed between words (`8pmnov24`).

use std::ops::Range;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Now,
    Am,
    Pm,
    Noon,
    Midnight,
    Teatime,
    /// Days after Sunday.
    Weekday(i64),
    Today,
    Tomorrow,
    Next,
    Period(Period),
    /// Months after January.
    Month(i64),
    Utc,
    /// A number of so many digits.
    Number(usize),
    /// `24.11.2026`.
    DottedDate,
    /// `2026-11-24`.
    HyphenDate,
    /// `16:00`.
    HourMinute,
    /// Any other character.
    Other(char),
}

/// A token, and where it is in the text.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

/// Every keyword. A message suggests the first one of several that are as near.
const KEYWORDS: &[(&str, Kind)] = &[
    ("now", Kind::Now),
    ("am", Kind::Am),
    ("pm", Kind::Pm),
    ("noon", Kind::Noon),
    ("midnight", Kind::Midnight),
    ("teatime", Kind::Teatime),
    ("sun", Kind::Weekday(0)),
    ("sunday", Kind::Weekday(0)),
    ("mon", Kind::Weekday(1)),
    ("monday", Kind::Weekday(1)),
    ("tue", Kind::Weekday(2)),
    ("tuesday", Kind::Weekday(2)),
    ("wed", Kind::Weekday(3)),
    ("wednesday", Kind::Weekday(3)),
    ("thu", Kind::Weekday(4)),
    ("thursday", Kind::Weekday(4)),
    ("fri", Kind::Weekday(5)),
    ("friday", Kind::Weekday(5)),
    ("sat", Kind::Weekday(6)),
    ("saturday", Kind::Weekday(6)),
    ("today", Kind::Today),
    ("tomorrow", Kind::Tomorrow),
    ("next", Kind::Next),
    ("min", Kind::Period(Period::Minute)),
    ("minute", Kind::Period(Period::Minute)),
    ("minutes", Kind::Period(Period::Minute)),
    ("hour", Kind::Period(Period::Hour)),
    ("hours", Kind::Period(Period::Hour)),
    ("day", Kind::Period(Period::Day)),
    ("days", Kind::Period(Period::Day)),
    ("week", Kind::Period(Period::Week)),
    ("weeks", Kind::Period(Period::Week)),
    ("month", Kind::Period(Period::Month)),
    ("months", Kind::Period(Period::Month)),
    ("year", Kind::Period(Period::Year)),
    ("years", Kind::Period(Period::Year)),
    ("jan", Kind::Month(0)),
    ("january", Kind::Month(0)),
    ("feb", Kind::Month(1)),
    ("february", Kind::Month(1)),
    ("mar", Kind::Month(2)),
    ("march", Kind::Month(2)),
    ("apr", Kind::Month(3)),
    ("april", Kind::Month(3)),
    ("may", Kind::Month(4)),
    ("jun", Kind::Month(5)),
    ("june", Kind::Month(5)),
    ("jul", Kind::Month(6)),
    ("july", Kind::Month(6)),
    ("aug", Kind::Month(7)),
    ("august", Kind::Month(7)),
    ("sep", Kind::Month(8)),
    ("september", Kind::Month(8)),
    ("oct", Kind::Month(9)),
    ("october", Kind::Month(9)),
    ("nov", Kind::Month(10)),
    ("november", Kind::Month(10)),
    ("dec", Kind::Month(11)),
    ("december", Kind::Month(11)),
    ("utc", Kind::Utc),
];

/// The keywords, for suggestions.
pub(crate) fn keywords() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|(word, _)| *word)
}

/// More than any timespec has, `8 : 15 am utc nov 24, 2026 + 3 days` for one: what follows cannot make the text a good one.
const MAX_TOKENS: usize = 32;

/// The tokens of a text, up to [`MAX_TOKENS`].
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut start = 0;
    while let Some(rest) = text.get(start..)
        && tokens.len() < MAX_TOKENS
    {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if matches!(first, ' ' | '\t' | '\n') {
            start += 1;
            continue;
        }
        let after_month = matches!(tokens.last().map(|token| token.kind), Some(Kind::Month(_)));
        let (kind, len) = number(rest, after_month)
            .or_else(|| keyword(rest))
            .unwrap_or((Kind::Other(first), first.len_utf8()));
        tokens.push(Token {
            kind,
            span: start..start + len,
        });
        start += len;
    }
    tokens
}

/// The longest keyword at the start of a text.
fn keyword(text: &str) -> Option<(Kind, usize)> {
    KEYWORDS
        .iter()
        .filter(|(word, _)| {
            text.get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        })
        .map(|(word, kind)| (*kind, word.len()))
        .max_by_key(|(_, len)| *len)
}

/// The longest token at the start of a text that starts with a digit.
fn number(text: &str, after_month: bool) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    let run = digits(bytes, 0);
    if run == 0 {
        return None;
    }
    let at = |index: usize| bytes.get(index).copied();
    if run <= 2 && at(run) == Some(b'.') {
        let month = digits(bytes, run + 1);
        if (1..=2).contains(&month) && at(run + 1 + month) == Some(b'.') {
            let year = digits(bytes, run + month + 2);
            if year >= 2 {
                return Some((
                    Kind::DottedDate,
                    run + month + 2 + if year >= 4 { 4 } else { 2 },
                ));
            }
        }
    }
    if (run == 2 || run == 4) && at(run) == Some(b'-') {
        let month = digits(bytes, run + 1);
        if (1..=2).contains(&month) && at(run + 1 + month) == Some(b'-') {
            let day = digits(bytes, run + month + 2);
            if day >= 1 {
                return Some((Kind::HyphenDate, run + month + 2 + day.min(2)));
            }
        }
    }
    let hour = run == 1 || (run == 2 && matches!(at(0), Some(b'0'..=b'2')));
    let separator = match at(run) {
        // `nov 24,2026` of POSIX: at reads the time 24,20 there, and rejects it after a month.
        Some(b',') => !after_month,
        Some(b':' | b'\'' | b'h' | b'H' | b'.') => true,
        _ => false,
    };
    if hour && separator && digits(bytes, run + 1) >= 2 {
        return Some((Kind::HourMinute, run + 3));
    }
    Some((Kind::Number(run), run))
}

/// How many digits there are from `start` on.
fn digits(bytes: &[u8], start: usize) -> usize {
    bytes
        .iter()
        .skip(start)
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}
