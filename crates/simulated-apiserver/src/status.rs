//! Failures, in the wording of the real API server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::resource::Resource;

/// A failed answer: a `Status` object on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// One word in upper camel case, such as `Conflict`; empty for answers that are not the API server's.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// What the failure is about, as the API's `StatusDetails`.
    pub details: Option<Value>,
    /// The value of the header Retry-After.
    pub retry_after: Option<Duration>,
    /// The token with which a list goes on after its continue token expired.
    pub resume: Option<Box<str>>,
}

/// One rejected field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// Such as `spec.replicas`.
    pub field: String,
    /// What is wrong, without the field.
    pub message: String,
}

impl FieldError {
    /// A value that is not allowed.
    pub fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        let value = match value {
            Value::Object(_) | Value::Array(_) | Value::String(_) => value.to_string(),
            Value::Null => "null".to_owned(),
            plain => plain.to_string(),
        };
        Self {
            reason: "FieldValueInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// A value that is missing.
    pub fn required(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            field: field.to_owned(),
            message: if detail.is_empty() {
                "Required value".to_owned()
            } else {
                format!("Required value: {detail}")
            },
        }
    }

    /// A change that is not allowed.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.to_owned(),
            message: format!("Forbidden: {detail}"),
        }
    }
}

impl Status {
    /// A failure of that code, reason and message, without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            retry_after: None,
            resume: None,
        }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same with the header Retry-After.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// 429 of priority and fairness.
    pub fn too_many_requests(pause: Duration) -> Self {
        let message =
            "The server has received too many requests and has asked us to try again later";
        Self::new(429, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": pause.as_secs()}))
            .with_retry_after(pause)
    }

    /// 503 of an API server that is starting or overloaded.
    pub fn unavailable(pause: Duration) -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(503, "ServiceUnavailable", message)
            .with_details(json!({"retryAfterSeconds": pause.as_secs()}))
            .with_retry_after(pause)
    }

    /// 500 of a failing etcd or webhook.
    pub fn internal_error(cause: &str) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {cause}"),
        )
        .with_details(json!({"causes": [{"message": cause}]}))
    }

    /// 504 of a request that took longer than the API server waits.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(504, "Timeout", message).with_details(json!({}))
    }

    /// 403 of an admission plugin or of RBAC.
    pub fn forbidden(resource: &Resource, name: &str, cause: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {cause}", resource.qualified());
        Self::new(403, "Forbidden", message).with_details(details(resource, name))
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404 of an object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(404, "NotFound", message).with_details(details(resource, name))
    }

    /// 409 of a create.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).with_details(details(resource, name))
    }

    /// 409 of a precondition.
    pub fn conflict(resource: &Resource, name: &str, cause: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {cause}",
            resource.qualified()
        );
        Self::new(409, "Conflict", message).with_details(details(resource, name))
    }

    /// 409 of an outdated resourceVersion.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let cause = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, cause)
    }

    /// 409 of a precondition of a delete, which names the kind.
    pub(crate) fn delete_conflict(resource: &Resource, name: &str, cause: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {cause}",
            resource.qualified_kind()
        );
        let mut details = details(resource, name);
        details["kind"] = json!(resource.kind);
        Self::new(409, "Conflict", message).with_details(details)
    }

    /// 410 of a resourceVersion below the floor.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422 with the rejected fields.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for error in errors {
            let line = format!("{}: {}", error.field, error.message);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
            .collect();
        let mut details = details(resource, name);
        details["kind"] = json!(resource.kind);
        details["causes"] = json!(causes);
        Self::new(
            422,
            "Invalid",
            format!(
                "{} \"{name}\" is invalid: {list}",
                resource.qualified_kind()
            ),
        )
        .with_details(details)
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.resume {
            metadata["continue"] = json!(token);
        }
        let mut value = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            value["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            value["details"] = details.clone();
        }
        value
    }
}

/// Name, group and resource of an object.
pub(crate) fn details(resource: &Resource, name: &str) -> Value {
    let mut details = json!({"kind": resource.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}
