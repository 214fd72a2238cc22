//! What a user forbids with the annotation that freezes an object.

/// What is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// No pod that runs is deleted. Missing pods are still made, as are those that have ended.
    Deletions,
    /// No pod is made either.
    All,
}

impl Freeze {
    /// What a value of the annotation asks for. The text after `all` and a blank is for people, and for the program that
    /// waits until the status repeats it.
    pub fn parse(value: &str) -> Option<Self> {
        let first = value.split_whitespace().next();
        match first {
            None | Some("false") => None,
            Some("all") => Some(Self::All),
            Some(_) => Some(Self::Deletions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_says_what_is_frozen() {
        for (value, freeze) in [
            ("", None),
            (" ", None),
            ("false", None),
            ("true", Some(Freeze::Deletions)),
            ("by me, for the incident", Some(Freeze::Deletions)),
            ("allow", Some(Freeze::Deletions)),
            ("all", Some(Freeze::All)),
            ("all since 10:00", Some(Freeze::All)),
        ] {
            assert_eq!(Freeze::parse(value), freeze, "{value:?}");
        }
    }
}
