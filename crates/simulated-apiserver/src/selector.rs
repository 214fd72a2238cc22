//! Label and field selectors.

use serde_json::Value;

use crate::status::Status;

/// A label or field selector. Without requirements it matches everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    pub(crate) fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, Status> {
        Ok(Self {
            labels: parse(labels.unwrap_or_default())?,
            fields: parse(fields.unwrap_or_default())?,
        })
    }

    /// The same for the object of that name alone.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.fields.push(Requirement {
            key: "metadata.name".to_owned(),
            operator: Operator::In(vec![name.to_owned()]),
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str).map(str::to_owned);
        self.labels.iter().all(|r| r.holds(label(&r.key)))
            && self
                .fields
                .iter()
                .all(|r| r.holds(Some(field(object, &r.key))))
    }
}

/// The value of a field as text; empty if it is absent.
fn field(object: &Value, path: &str) -> String {
    let value = path
        .trim_start_matches('.')
        .split('.')
        .fold(object, |value, key| &value[key]);
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Requirement {
    fn holds(&self, value: Option<String>) -> bool {
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(&value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(&value)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
        }
    }
}

fn parse(text: &str) -> Result<Vec<Requirement>, Status> {
    split(text).into_iter().map(requirement).collect()
}

/// The parts between commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(text: &str) -> Result<Requirement, Status> {
    let one = |value: &str| vec![value.trim().to_owned()];
    let set = |values: &str| -> Result<Vec<String>, Status> {
        let values = values.trim();
        let list = values
            .strip_prefix('(')
            .and_then(|list| list.strip_suffix(')'));
        let list = list.ok_or_else(|| {
            let message = format!("unable to parse requirement: found '{values}' expected: '('");
            Status::bad_request(message)
        })?;
        Ok(list
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect())
    };
    let (key, operator) = if let Some((key, list)) = text.split_once(" notin ") {
        (key, Operator::NotIn(set(list)?))
    } else if let Some((key, list)) = text.split_once(" in ") {
        (key, Operator::In(set(list)?))
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, Operator::NotIn(one(value)))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, Operator::In(one(value)))
    } else if let Some(key) = text.strip_prefix('!') {
        (key, Operator::Absent)
    } else {
        (text, Operator::Exists)
    };
    Ok(Requirement {
        key: key.trim().to_owned(),
        operator,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let object = json!({
            "metadata": {"name": "x", "labels": {"app": "web", "tier": "back"}},
            "spec": {"nodeName": "n1", "paused": false},
        });
        let selector = Selector::parse(Some(labels), Some(fields)).unwrap();
        selector.matches(&object)
    }

    #[test]
    fn label_selectors_know_every_operator() {
        for labels in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "!other",
            "app in (db, web),tier=back",
            "tier notin (front)",
            "other!=x",
        ] {
            assert!(matches(labels, ""), "{labels}");
        }
        for labels in [
            "other",
            "app=db",
            "app!=web",
            "!app",
            "app in (db)",
            "app notin (db,web)",
            "app=web,tier=front",
        ] {
            assert!(!matches(labels, ""), "{labels}");
        }
    }

    #[test]
    fn field_selectors_compare_texts() {
        assert!(matches(
            "",
            "spec.nodeName=n1,metadata.name!=y,spec.paused=false"
        ));
        assert!(matches("", "spec.absent="));
        assert!(!matches("", "spec.nodeName="));
    }
}
