//! What is wrong with a timespec.

/// Timespecs that every error message offers as examples.
pub const EXAMPLES: &str =
    "16:00 tomorrow, noon + 3 days, teatime fri, 9am nov 24, now + 5 minutes";

/// The number of characters of a word that a message quotes.
const MAX_QUOTED_LEN: usize = 30;

/// Why a text names no instant. Each message is one line, and safe to print: a quoted word is short and escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no word at all.
    #[error("no time given. Examples: {EXAMPLES}")]
    Empty,
    /// A word that cannot be there.
    #[error("{} is not understood: {} Examples: {EXAMPLES}", quote(word), hint(expected, *suggestion))]
    Unexpected {
        /// The word.
        word: String,
        /// The byte at which the word starts.
        start: usize,
        /// What could be there.
        expected: &'static str,
        /// The keyword that the word resembles.
        suggestion: Option<&'static str>,
    },
    /// The text ends too early.
    #[error(
        "the time ends after {}: expected {expected}. Examples: {EXAMPLES}",
        quote(word)
    )]
    Incomplete {
        /// The last word.
        word: String,
        /// What is missing.
        expected: &'static str,
    },
    /// A word of the right form, with an impossible value.
    #[error("{} is not possible: {problem}", quote(word))]
    Invalid {
        /// The word.
        word: String,
        /// The byte at which the word starts.
        start: usize,
        /// What is wrong with the value.
        problem: &'static str,
    },
    /// A day that the calendar does not have.
    #[error("there is no {month} {day} in {year}; write the date of another day")]
    NoSuchDate {
        /// The year.
        year: i64,
        /// The month, by name.
        month: &'static str,
        /// The day.
        day: i64,
    },
    /// Clocks skip this time of day on that date. Only of [`parse_touch`](crate::parse_touch).
    #[error("clocks skip {0} in this time zone; write an earlier or later time")]
    Skipped(String),
    /// The instant is before the current minute.
    #[error(
        "{0} is in the past; write a later time or date, such as 16:00 tomorrow or now + 5 minutes"
    )]
    Past(String),
    /// The instant is outside the years 1 to 9999, the years of an RFC 3339 timestamp.
    #[error("the time is not in the years 1 to 9999; write a nearer one")]
    OutOfRange,
    /// The argument of `-t` has another form.
    #[error("{} is not understood: expected [[CC]YY]MMDDhhmm[.SS], such as 11241600, 2611241600 or 202611241600.30", quote(.0))]
    NotTouch(String),
}

impl Error {
    /// The byte of the text at which the word starts that the message is about; None if it is about the whole text.
    pub fn start(&self) -> Option<usize> {
        match self {
            Self::Unexpected { start, .. } | Self::Invalid { start, .. } => Some(*start),
            _ => None,
        }
    }
}

/// The word in quotes, shortened, with control characters escaped.
fn quote(word: &str) -> String {
    let start: String = word.chars().take(MAX_QUOTED_LEN).collect();
    let dots = if start.len() < word.len() { "..." } else { "" };
    // Debug escapes what a terminal would act on: control characters, escape sequences and marks of direction.
    format!("{:?}", format!("{start}{dots}"))
}

/// What to write instead: the keyword that was meant, else what could be there.
fn hint(expected: &str, suggestion: Option<&str>) -> String {
    match suggestion {
        Some(word) => format!("did you mean \"{word}\"?"),
        None => format!("expected {expected}."),
    }
}

/// The keyword that was meant, if one is near.
pub(crate) fn suggest(
    word: &str,
    keywords: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let word = word.to_lowercase();
    if !(3..=12).contains(&word.chars().count()) {
        return None;
    }
    let limit = if word.len() < 5 { 1 } else { 2 };
    keywords
        .map(|keyword| (strsim::levenshtein(&word, keyword), keyword))
        .min_by_key(|(distance, _)| *distance)
        // A keyword in the wrong place is not misspelt.
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .map(|(_, keyword)| keyword)
}
