//! What a node had before it got a pod of the newest revision.
//!
//! It is stored on the pod, because it decides whether a failure of the pod speaks against the
//! revision, and for how long the limits wait for the node. Another process decides the same.

use chrono::{DateTime, SecondsFormat, Utc};

/// What a roll-out replaced on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// Nothing that is known: the node joined, or its pod was lost in another way.
    #[default]
    Unknown,
    /// An available pod of an older revision.
    Available,
    /// A pod that was not available, since that time.
    Unavailable(DateTime<Utc>),
}

const AVAILABLE: &str = "available";
const UNAVAILABLE_SINCE: &str = "unavailable since ";

impl Predecessor {
    /// The annotation's value; `None` if there is nothing to say.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Available => Some(AVAILABLE.to_owned()),
            Self::Unavailable(since) => {
                let since = since.to_rfc3339_opts(SecondsFormat::AutoSi, true);
                Some(format!("{UNAVAILABLE_SINCE}{since}"))
            }
        }
    }

    /// Reads the annotation. Anything else than what [`Self::text`] writes says nothing.
    pub(crate) fn parse(text: &str) -> Self {
        let since = || {
            let since = text.strip_prefix(UNAVAILABLE_SINCE)?;
            // Not `parse`, which takes years that no deadline can be added to.
            DateTime::parse_from_rfc3339(since).ok()
        };
        match text {
            AVAILABLE => Self::Available,
            _ => since().map_or(Self::Unknown, |since| Self::Unavailable(since.to_utc())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Predecessor::{self, Available, Unavailable, Unknown};

    #[test]
    fn the_annotation_says_what_was_before() {
        let since = Unavailable("2026-11-24T10:12:00Z".parse().unwrap());
        for (what, text) in [
            (Available, "available"),
            (since, "unavailable since 2026-11-24T10:12:00Z"),
        ] {
            assert_eq!(what.text().as_deref(), Some(text));
            assert_eq!(Predecessor::parse(text), what);
        }
        assert_eq!(Unknown.text(), None);
        for text in [
            "",
            "Available",
            "unavailable since yesterday",
            "unavailable since +262142-12-31T23:59:59Z",
        ] {
            assert_eq!(Predecessor::parse(text), Unknown, "{text}");
        }
    }
}
