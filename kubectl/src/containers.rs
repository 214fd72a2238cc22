//! The containers of a pod template, as JSON.

use serde_json::Value;

/// What the annotations with a container's AppArmor profile begin with; its name follows.
pub(crate) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Renames a container, with the fields and annotations that name it.
pub(crate) fn rename(template: &mut Value, from: &str, to: &str) {
    for list in ["containers", "initContainers"] {
        let containers = template["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if container["name"] == from {
                container["name"] = to.into();
            }
        }
    }
    if let Some(spec) = template.get_mut("spec") {
        rename_references(spec, from, to);
    }
    let annotations = template.get_mut("metadata");
    let annotations = annotations.and_then(|metadata| metadata.get_mut("annotations"));
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(profile) = annotations.remove(&format!("{APPARMOR}{from}")) {
        annotations.insert(format!("{APPARMOR}{to}"), profile);
    }
    for key in [
        "kubectl.kubernetes.io/default-container",
        "kubectl.kubernetes.io/default-logs-container",
    ] {
        if let Some(name) = annotations.get_mut(key).filter(|name| **name == *from) {
            *name = to.into();
        }
    }
}

/// A `resourceFieldRef` names the container whose limits it reads.
fn rename_references(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Array(items) => {
            for item in items {
                rename_references(item, from, to);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "resourceFieldRef" && value["containerName"] == from {
                    value["containerName"] = to.into();
                }
                rename_references(value, from, to);
            }
        }
        _ => {}
    }
}
