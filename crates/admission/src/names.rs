//! The forms of names in Kubernetes (`k8s.io/apimachinery/pkg/util/validation`).

/// Whether the text is a lower-case RFC 1123 label, as container names must be.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && has_form_of_label(text)
}

/// Whether the text is such a label apart from its length, as each part of an object's name is.
pub fn has_form_of_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.iter().all(|b| inner(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
}

/// Whether the text is an RFC 1123 subdomain, as names of objects must be.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(has_form_of_label)
}
