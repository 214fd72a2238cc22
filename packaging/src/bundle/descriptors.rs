//! The fields of a CRD, as consoles of OLM show them.

use serde_json::{Value, json};

/// What the fields are part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Spec,
    Status,
}

/// A descriptor for each field of the part that has no declared fields of its own, in the order of their paths.
pub(super) fn descriptors(schema: &Value, part: Part) -> Vec<Value> {
    let name = match part {
        Part::Spec => "spec",
        Part::Status => "status",
    };
    let mut found = Vec::new();
    fields(&schema["properties"][name], "", part, &mut found);
    found
}

fn fields(schema: &Value, above: &str, part: Part, found: &mut Vec<Value>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}.{name}")
        };
        if field["properties"].is_object() {
            fields(field, &path, part, found);
            continue;
        }
        let mut descriptor = json!({
            "path": path,
            "displayName": display_name(&path),
            "description": field["description"],
        });
        if let Some(shown_as) = shown_as(name, field, part) {
            descriptor["x-descriptors"] = json!([shown_as]);
        }
        found.push(descriptor);
    }
}

/// The widget for the field; consoles choose one where there is none.
fn shown_as(name: &str, field: &Value, part: Part) -> Option<&'static str> {
    match (part, name, field["type"].as_str()?) {
        (Part::Status, "conditions", "array") => {
            Some("urn:alm:descriptor:io.kubernetes.conditions")
        }
        (Part::Status, "phase", "string") => Some("urn:alm:descriptor:io.kubernetes.phase"),
        (Part::Spec, _, "boolean") => Some("urn:alm:descriptor:com.tectonic.ui:booleanSwitch"),
        (Part::Spec, _, "integer") => Some("urn:alm:descriptor:com.tectonic.ui:number"),
        (_, _, "string") => Some("urn:alm:descriptor:com.tectonic.ui:text"),
        _ => None,
    }
}

/// `updateStrategy.maxSurge` is `Update Strategy Max Surge`; `podUID` is `Pod UID`.
fn display_name(path: &str) -> String {
    let mut words = String::new();
    let mut before = '.';
    for letter in path.chars() {
        if letter != '.' {
            let begins = before == '.' || (letter.is_uppercase() && !before.is_uppercase());
            if begins && !words.is_empty() {
                words.push(' ');
            }
            if before == '.' {
                words.extend(letter.to_uppercase());
            } else {
                words.push(letter);
            }
        }
        before = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(display_name("podUID"), "Pod UID");
        assert_eq!(
            display_name("updateStrategy.maxSurge"),
            "Update Strategy Max Surge"
        );
        assert_eq!(display_name("image"), "Image");
    }

    #[test]
    fn fields_with_fields_of_their_own_are_replaced_by_those() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "paused": {"type": "boolean", "description": "Whether it stands still."},
                "template": {"type": "object", "properties": {
                    "spec": {"type": "object", "description": "The pod."},
                }},
            }},
            "status": {"properties": {"conditions": {"type": "array", "description": "What is so."}}},
        }});
        assert_eq!(
            descriptors(&schema, Part::Spec),
            [
                json!({
                    "path": "paused", "displayName": "Paused", "description": "Whether it stands still.",
                    "x-descriptors": ["urn:alm:descriptor:com.tectonic.ui:booleanSwitch"],
                }),
                json!({"path": "template.spec", "displayName": "Template Spec", "description": "The pod."}),
            ]
        );
        assert_eq!(
            descriptors(&schema, Part::Status)[0]["x-descriptors"],
            json!(["urn:alm:descriptor:io.kubernetes.conditions"])
        );
    }
}
