//! The labels that the Deployment, its pods and its selector have.

use serde_json::{Value, json};

/// The name of the container and of its port, and the value of [`APP_LABEL`].
pub(crate) const MEMCACHED: &str = "memcached";
/// A label of the Deployment and its pods; the selector has it too.
pub(crate) const APP_LABEL: &str = "app";
/// The same, with the object's name as value.
pub(crate) const OWN_LABEL: &str = "memcached_cr";
/// The labels that the Deployment selects its pods by.
pub(crate) fn labels(name: &str) -> Value {
    json!({APP_LABEL: MEMCACHED, OWN_LABEL: name})
}

/// The same as a selector of the scale subresource.
pub(crate) fn selector(name: &str) -> String {
    format!("{APP_LABEL}={MEMCACHED},{OWN_LABEL}={name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_says_what_the_labels_say() {
        let labels = labels("x");
        let written: Vec<String> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        assert_eq!(selector("x"), written.join(","));
    }
}
