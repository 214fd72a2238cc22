//! JSON with something large at a random place, for tests of what an input costs in memory.

use fastrand::Rng;
use serde_json::{Map, Value};

/// Every way into a value: its members and items, as JSON pointers, the value itself left out.
pub fn pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, inner)| (key.replace('~', "~0").replace('/', "~1"), inner))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, inner)| (i.to_string(), inner))
            .collect(),
        _ => Vec::new(),
    };
    for (key, inner) in inner {
        found.push(format!("/{key}"));
        found.extend(
            pointers(inner)
                .into_iter()
                .map(|below| format!("/{key}{below}")),
        );
    }
    found
}

/// Makes the value at one of those places large in one way, in about `bytes` bytes.
pub fn swell(random: &mut Rng, whole: &mut Value, places: &[String], bytes: usize) {
    let place = &places[random.usize(..places.len())];
    // A place may be gone, with what was around it.
    if let Some(place) = whole.pointer_mut(place) {
        *place = large(random, bytes, place);
    }
}

fn large(random: &mut Rng, bytes: usize, value: &Value) -> Value {
    let unit = value.to_string().len() + 1;
    match random.u8(..8) {
        0 | 1 => "a".repeat(bytes).into(),
        // What is escaped in JSON, or in an answer.
        2 => "\u{202e}\n".repeat(bytes / 9).into(),
        3 => vec![value.clone(); bytes / unit + 1].into(),
        4 => vec![["", "a", "1"][random.usize(..3)]; bytes / 3].into(),
        5 => members(bytes / (unit + 8), |n| (format!("{n:x}"), value.clone())),
        6 => members(bytes / 8, |n| (format!("{n:x}"), "".into())),
        _ => members(bytes / 520, |n| {
            (format!("{n:x}/{}", "\u{200b}".repeat(170)), "".into())
        }),
    }
}

fn members(count: usize, member: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(member).collect::<Map<_, _>>().into()
}
