//! Events on objects, as shown by `kubectl describe`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

#[cfg(feature = "client")]
mod publish;

#[cfg(feature = "client")]
pub use publish::{EventPublisher, Events, about, events};

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Informational.
    Normal,
    /// A user should look at it.
    Warning,
}

/// An Event to publish about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Normal or Warning.
    pub severity: Severity,
    /// One word in upper camel case, such as `Started`.
    pub reason: &'static str,
    /// What the controller did or tried, in one word, such as `StartPod`.
    pub action: &'static str,
    /// A sentence.
    pub note: String,
}

/// Whether two notes differ in their numbers at most.
pub fn is_alike(note: &str, other: &str) -> bool {
    dedup_key(note) == dedup_key(other)
}

/// A hash of a note without its numbers, which change from one occurrence to the next, such as `used: pods=7`. Digits in
/// a name, such as that of a Job, are not numbers.
fn dedup_key(note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for word in note.split(|c: char| c.is_whitespace() || matches!(c, '=' | ',')) {
        let bare = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        if bare.starts_with(char::is_alphabetic) {
            word.hash(&mut hasher);
        } else {
            let parts = word.split(|c: char| c.is_ascii_digit());
            let parts = parts.filter(|part| !part.is_empty());
            parts.for_each(|part| part.hash(&mut hasher));
        }
    }
    hasher.finish()
}
