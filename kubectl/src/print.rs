//! Objects as YAML and JSON, as kubectl prints them.

use std::io::{self, Write};

use serde_json::Value;

use crate::connection::Failure;

/// As one document of YAML.
///
/// # Errors
/// When it cannot be written.
pub fn yaml(object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_saphyr::to_string(object)
        .map_err(|error| Failure::Message(format!("cannot write it as YAML: {error}")))?;
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// With four blanks, as kubectl indents.
///
/// # Errors
/// When it cannot be written.
pub fn json(object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, formatter);
    serde::Serialize::serialize(object, &mut serializer).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// The object without what kubectl leaves out unless it is asked for.
pub fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}
