//! Names of objects, as users write them.

/// A kind, as it is named before a name: `at/x`, `mds/web`.
pub struct Kind {
    /// Its spellings, in lower case. The first one is that of messages.
    pub words: &'static [&'static str],
    /// What another kind's name reads like: `"pod/x" ` and then this.
    pub mistake: &'static str,
}

impl Kind {
    /// Whether this is a spelling of the kind.
    pub fn is(&self, word: &str) -> bool {
        self.words.contains(&word.to_ascii_lowercase().as_str())
    }

    /// The name in an argument: `NAME`, or `at/NAME` as other commands print it.
    ///
    /// # Errors
    /// With a line for the user: another kind, or a name that no object can have.
    pub fn name<'a>(&self, argument: &'a str) -> Result<&'a str, String> {
        let name = match argument.split_once('/') {
            None => argument,
            Some((kind, name)) if self.is(kind) => name,
            Some(_) => return Err(format!("{argument:?} {}", self.mistake)),
        };
        if name.is_empty() || name.contains('/') {
            let kind = self.words.first().unwrap_or(&"KIND");
            return Err(format!("{argument:?} is not NAME or {kind}/NAME"));
        }
        if !is_name(name) {
            return Err(no_such_name(name));
        }
        Ok(name)
    }
}

/// Whether an object can have that name: lower case letters, digits, `-` and `.`, at most 253. Names become parts of URLs
/// as they are, where a `?`, a `#` or a `/` would lead to another object.
pub(super) fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'-' | b'.');
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 253
        && text.bytes().all(|byte| is_outer(byte) || is_inner(byte))
        && ends.into_iter().all(|byte| byte.is_some_and(is_outer))
}

/// The error of a name that no object can have.
fn no_such_name(text: &str) -> String {
    format!("{text:?} is not the name of an object: names have lower case letters, digits, - and .")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KIND: Kind = Kind {
        words: &["at", "ats.example.com"],
        mistake: "is not the name of an At",
    };

    #[test]
    fn a_name_may_have_its_kind_before_it() {
        for argument in ["web", "at/web", "AT/web", "ats.example.com/web"] {
            assert_eq!(KIND.name(argument), Ok("web"), "{argument}");
        }
        let mistake = KIND.name("ds/web");
        assert_eq!(
            mistake,
            Err("\"ds/web\" is not the name of an At".to_owned())
        );
    }

    #[test]
    fn a_name_that_would_reach_another_object_is_refused() {
        for argument in [
            "",
            "at/",
            "at/a/b",
            "a/b",
            "at/x/log",
            "keep??",
            "x?dryRun=All",
            "x#y",
            "web?",
            "a b",
            "at/..",
            "..",
            ".",
            "%2e",
            "X",
            "x\ny",
        ] {
            let error = KIND.name(argument).unwrap_err();
            assert!(!error.contains('\n'), "{argument}: {error}");
        }
    }
}
