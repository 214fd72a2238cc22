//! The registry: one line per kind. [`my_operator_kind`] says what a kind is.
//!
//! The operator and the playground of the documentation have their kinds from here.

use my_operator_kind::Kind;

pub use my_operator_at as at;
pub use my_operator_mydaemonset as mydaemonset;
pub use my_operator_samples::{count, crontab, foo, foobar, memcached};

/// Every kind: the one list from which all others are derived.
pub const REGISTRY: &[&Kind] = &[
    &mydaemonset::KIND,
    &at::KIND,
    &memcached::KIND,
    &crontab::KIND,
    &foo::KIND,
    &count::KIND,
    &foobar::KIND,
];
