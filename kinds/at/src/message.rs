//! The length of the texts in a status.

/// The longest message in a status, in bytes.
pub(crate) const MAX_MESSAGE_LEN: usize = 1024;

/// The first bytes of a text, as many as a status keeps.
pub(crate) fn head(text: &str) -> String {
    if text.len() <= MAX_MESSAGE_LEN {
        return text.to_owned();
    }
    format!(
        "{}...",
        &text[..text.floor_char_boundary(MAX_MESSAGE_LEN - 3)]
    )
}

/// The last bytes of a text: in a log, those that matter most.
pub(crate) fn tail(text: &str) -> String {
    if text.len() <= MAX_MESSAGE_LEN {
        return text.to_owned();
    }
    let from = text.len() - (MAX_MESSAGE_LEN - 3);
    let start = (from..=text.len()).find(|i| text.is_char_boundary(*i));
    format!("...{}", &text[start.unwrap_or(text.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(4_000);
        for text in [head(&long), tail(&long)] {
            assert!(
                text.len() <= MAX_MESSAGE_LEN && text.len() > MAX_MESSAGE_LEN - 8,
                "{}",
                text.len()
            );
        }
    }
}
