//! What a user forbids with the annotation that freezes an object, or all objects of a namespace.

/// What is frozen. What forbids more is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freeze {
    /// No pod that runs is deleted. Missing pods are still made, as are those that have ended.
    Deletions,
    /// No pod is made either.
    All,
}

impl Freeze {
    /// What a value of the annotation asks for. The text after the word `all` is for people, and for the program that waits
    /// until the status repeats it.
    pub fn parse(value: &str) -> Option<Self> {
        let first = value.split_whitespace().next()?;
        match first.trim_end_matches([',', ';', ':', '.']) {
            "all" => Some(Self::All),
            _ if value.trim() == "false" => None,
            _ => Some(Self::Deletions),
        }
    }
}

/// What the values of the annotation on an object and on its namespace forbid together.
pub(crate) fn of_both(own: Option<&str>, namespace: Option<&str>) -> Option<Freeze> {
    let [own, namespace] = [own, namespace].map(|value| value.and_then(Freeze::parse));
    own.max(namespace)
}

/// Where the annotation is that freezes, by its values on an object and on the namespace: words that end with the value,
/// with that of the object if it has one.
pub(crate) fn place(own: Option<&str>, namespace: Option<&str>) -> Option<String> {
    Some(match (own, namespace) {
        (Some(own), None) => format!("there: {own}"),
        (Some(own), Some(namespace)) => format!("there, and on the namespace ({namespace}): {own}"),
        (None, namespace) => format!("on the namespace: {}", namespace?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_freeze_ends_with_the_value_that_a_client_waits_for() {
        for (own, namespace, text) in [
            (Some("1"), None, "there: 1"),
            (None, Some("all"), "on the namespace: all"),
            (Some("1"), Some("2"), "there, and on the namespace (2): 1"),
        ] {
            assert_eq!(place(own, namespace).as_deref(), Some(text));
        }
        assert_eq!(place(None, None), None);
    }

    #[test]
    fn of_two_freezes_the_one_that_forbids_more_holds() {
        let (some, all) = (Some("by me"), Some("all"));
        assert_eq!(of_both(None, None), None);
        assert_eq!(of_both(None, some), Some(Freeze::Deletions));
        for (own, namespace) in [(some, all), (all, some), (all, None)] {
            assert_eq!(of_both(own, namespace), Some(Freeze::All));
        }
    }

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
            ("all, by me", Some(Freeze::All)),
            (" all: incident 7", Some(Freeze::All)),
            ("all-hands", Some(Freeze::Deletions)),
            (" false ", None),
            ("false alarm?", Some(Freeze::Deletions)),
        ] {
            assert_eq!(Freeze::parse(value), freeze, "{value:?}");
        }
    }
}
