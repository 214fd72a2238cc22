//! The kinds of the tutorials, which are off by default: a module for each, of which none uses another.
//!
//! [`owned_child`] is the reconciler of those whose objects each own one child, such as a Deployment.

// Without the reconcilers, decisions and statuses have no caller.
#![cfg_attr(not(feature = "controllers"), allow(dead_code, unused_imports))]

pub mod count;
pub mod crontab;
pub mod foo;
pub mod foobar;
pub mod memcached;
mod owned_child;
