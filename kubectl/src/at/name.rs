//! Names for Ats that were given none.

/// The letters and digits of names that the API server generates: none that spells a word, or is taken for another.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_BASE: usize = 40;

/// What a command is about: the name of its program, or of the file that it was read from.
pub(super) fn base(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    let file = first.rsplit('/').next().unwrap_or_default();
    let stem = match file.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    };
    let legal = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let name: String = stem.chars().map(legal).take(MAX_BASE).collect();
    match name.trim_matches('-') {
        "" => "at".to_owned(),
        name => name.to_owned(),
    }
}

/// A name that hardly any other object has.
pub(super) fn generated(base: &str) -> String {
    let letter = || {
        let index = fastrand::usize(..ALPHABET.len());
        ALPHABET.get(index).copied().map_or('x', char::from)
    };
    let suffix: String = std::iter::repeat_with(letter).take(SUFFIX).collect();
    format!("{base}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_from_the_program() {
        for (text, name) in [
            ("./report --all", "report"),
            ("/opt/My_Tool.sh x", "my-tool"),
            ("  echo YAY", "echo"),
            ("", "at"),
            ("'…'", "at"),
            (".hidden", "hidden"),
            ("A=b c", "a-b"),
        ] {
            assert_eq!(base(text), name, "{text:?}");
        }
        assert_eq!(base(&"x".repeat(500)).len(), MAX_BASE);
        let name = generated("report");
        assert!(name.starts_with("report-") && name.len() == 12, "{name}");
        assert_ne!(name, generated("report"));
    }
}
