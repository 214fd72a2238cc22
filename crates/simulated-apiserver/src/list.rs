//! Lists, in pages of one consistent snapshot.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::call::Call;
use crate::resource::Behavior;
use crate::status::Status;
use crate::store::{Form, Key, Store, Stored, complete};

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A continue token: the resourceVersion (0: now), how many objects follow, and the one after which the list goes on.
/// Counting those that follow for each page would take time that grows with the square of their number.
struct Token {
    version: u64,
    left: usize,
    after: (String, String),
}

impl Token {
    fn parse(text: &str) -> Option<Self> {
        let (version, rest) = text.split_once(':')?;
        let (left, rest) = rest.split_once(':')?;
        let (namespace, name) = rest.split_once('/')?;
        Some(Self {
            version: version.parse().ok()?,
            left: left.parse().ok()?,
            after: (namespace.to_owned(), name.to_owned()),
        })
    }

    fn text(&self) -> String {
        let (namespace, name) = &self.after;
        format!("{}:{}:{namespace}/{name}", self.version, self.left)
    }
}

/// Which snapshot a list shows, and from where on; how many objects that are, if it is known.
struct Snapshot {
    version: u64,
    after: Option<(String, String)>,
    left: Option<usize>,
}

impl Snapshot {
    fn choose(store: &Store, call: &Call, stale: Option<u64>) -> Result<Self, Status> {
        let given = call.query.get("resourceVersion").unwrap_or("0");
        let exact = call.query.get("resourceVersionMatch") == Some("Exact");
        let now = stale.unwrap_or(store.version());
        if let Some(token) = call.query.get("continue") {
            return Self::of_next_page(store, token, now);
        }
        let mut version = now;
        if exact {
            let invalid = || Status::bad_request(format!("invalid resource version \"{given}\""));
            version = given.parse().map_err(|_| invalid())?;
            if version < store.floor {
                let message = "The resourceVersion for the provided list is too old.";
                return Err(Status::expired(message));
            }
        }
        Ok(Self {
            version,
            after: None,
            left: None,
        })
    }

    fn of_next_page(store: &Store, token: &str, now: u64) -> Result<Self, Status> {
        let invalid = "invalid continue token: continue key is not valid: unexpected format";
        let token = Token::parse(token).ok_or_else(|| Status::bad_request(invalid))?;
        if token.version != 0 && token.version < store.floor {
            let resume = Token {
                version: 0,
                ..token
            };
            let mut status = Status::expired(EXPIRED);
            status.resume = Some(resume.text().into());
            return Err(status);
        }
        Ok(Self {
            version: if token.version == 0 {
                now
            } else {
                token.version
            },
            after: Some(token.after),
            left: (token.version != 0).then_some(token.left),
        })
    }
}

/// The answer to a list, at an old resourceVersion if the test has arranged that.
pub(crate) fn list(store: &Store, call: &Call, stale: Option<u64>) -> Result<Bytes, Status> {
    let selector = call.query.selector()?;
    let limit = call.query.number("limit").filter(|limit| *limit > 0);
    let Snapshot {
        version,
        after,
        left,
    } = Snapshot::choose(store, call, stale)?;
    let after = after.map(|(namespace, name)| Key::new(call.index, &namespace, &name));
    let mut rest = store
        .list_at(call.index, &call.namespace, version, after.as_ref())
        .peekable();
    let page = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let mut items: Vec<(&Key, &Arc<Stored>)> = Vec::new();
    while items.len() < page
        && let Some((key, object)) = rest.next()
    {
        if selector.matches(&object.value) {
            items.push((key, object));
        }
    }
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if call.resource.behavior == Behavior::Custom && call.form == Form::Whole {
        metadata["continue"] = json!("");
    }
    // As with the real server, the objects that follow need not be selected.
    if let (true, Some((key, _))) = (rest.peek().is_some(), items.last()) {
        // The real server does not count objects if a selector may exclude some.
        let left = match left {
            _ if !selector.is_empty() => 0,
            Some(left) => left.saturating_sub(items.len()),
            None => rest.count(),
        };
        let token = Token {
            version,
            left,
            after: (key.namespace.to_string(), key.name.to_string()),
        };
        metadata["continue"] = json!(token.text());
        if selector.is_empty() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    let items = items.into_iter().map(|(_, object)| object);
    Ok(body(call, &metadata, items))
}

/// The body with that metadata and those items.
fn body<'a>(call: &Call, metadata: &Value, items: impl Iterator<Item = &'a Arc<Stored>>) -> Bytes {
    let (api_version, kind) = match call.form {
        Form::Whole => (
            call.resource.api_version(),
            format!("{}List", call.resource.kind),
        ),
        Form::Metadata => (
            "meta.k8s.io/v1".to_owned(),
            "PartialObjectMetadataList".to_owned(),
        ),
    };
    let head = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
    );
    let mut text = head.into_bytes();
    for (place, object) in items.enumerate() {
        if place > 0 {
            text.push(b',');
        }
        // Items of built-in kinds have no apiVersion and kind.
        if call.form == Form::Whole && call.resource.behavior != Behavior::Custom {
            text.extend_from_slice(object.text(Form::Whole));
        } else {
            complete(&call.resource, call.form, object, &mut text);
        }
    }
    text.extend_from_slice(b"]}");
    text.into()
}
