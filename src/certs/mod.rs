//! Certificates of the webhook.
