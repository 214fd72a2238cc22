//! The registry: one line per kind. [`kind`] says what a kind is, and [`shared`] has what several kinds use.

pub mod at;
pub mod count;
pub mod crontab;
pub mod foo;
pub mod foobar;
pub mod kind;
pub mod memcached;
pub mod mydaemonset;
pub mod shared;

#[cfg(test)]
mod tests;

pub use kind::{Kind, Permission, Sample, Start};

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

/// The kinds that are installed, served and reconciled by default.
pub fn by_default() -> Vec<&'static Kind> {
    let kinds = REGISTRY.iter().copied();
    kinds.filter(|kind| kind.by_default).collect()
}
