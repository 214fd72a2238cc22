//! JSON as it is written: members in their order, and everything that is not an object as its text. A
//! value that has been through `serde_json::Value` has lost long numbers and their forms.

use std::fmt::{self, Display};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    Object(Vec<(String, Text)>),
    Other(String),
}

impl Text {
    pub fn read(text: &str) -> Self {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(String, Text)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((name, Text::read(value.get())));
                }
                Ok(members)
            }
        }
        let text = text.trim();
        if text.starts_with('{') {
            let mut reader = serde_json::Deserializer::from_str(text);
            Self::Object(reader.deserialize_map(Members).unwrap())
        } else {
            Self::Other(text.to_owned())
        }
    }

    pub fn is_null(&self) -> bool {
        *self == Self::Other("null".to_owned())
    }

    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            Self::Other(_) => None,
        }
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        match self {
            Self::Object(members) => members.iter_mut().find(|(n, _)| n == name).map(|(_, v)| v),
            Self::Other(_) => None,
        }
    }

    /// What stands at a JSON pointer that enters objects alone.
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        tokens(pointer)
            .iter()
            .try_fold(self, |place, name| place.get(name))
    }

    /// Carries out a patch (RFC 6902) that enters objects alone.
    pub fn patch(&mut self, operations: &[Value]) {
        for operation in operations {
            let mut path = tokens(operation["path"].as_str().unwrap());
            let last = path.pop().unwrap();
            let parent = path
                .iter()
                .try_fold(&mut *self, |place, name| place.get_mut(name));
            let Some(Self::Object(members)) = parent else {
                panic!("there is no object to change: {operation}");
            };
            let at = members.iter().position(|(name, _)| *name == last);
            let value = || Self::read(&operation["value"].to_string());
            match (operation["op"].as_str().unwrap(), at) {
                ("add" | "replace", Some(at)) => members[at].1 = value(),
                ("add", None) => members.push((last, value())),
                ("remove", Some(at)) => drop(members.remove(at)),
                _ => panic!("{operation} does not fit"),
            }
        }
    }
}

fn tokens(pointer: &str) -> Vec<String> {
    let tokens = pointer.split('/').skip(1);
    tokens
        .map(|t| t.replace("~1", "/").replace("~0", "~"))
        .collect()
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(text) => f.write_str(text),
            Self::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{value}", Value::from(name.as_str()))?;
                }
                f.write_str("}")
            }
        }
    }
}
