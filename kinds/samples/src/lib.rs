//! The kinds of the tutorials, which are off by default: a module for each, of which none uses another.
//!
//! [`owned_child`] is the reconciler of those whose objects each own one child, such as a Deployment.

pub mod count;
pub mod crontab;
pub mod foo;
pub mod foobar;
pub mod memcached;
mod owned_child;
