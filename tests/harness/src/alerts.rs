//! The alerts of `config/components/prometheus`.

use serde_json::Value;

/// Their groups, as a rule file of Prometheus has them: without the object around that is for the Prometheus Operator.
pub fn groups() -> Value {
    let path = super::checkout().join("config/components/prometheus/alerts.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut object: Value = serde_saphyr::from_str(&text).unwrap();
    object["spec"].take()
}
