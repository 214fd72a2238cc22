//! `kubectl at`, `kubectl atq` and `kubectl atrm`.
//!
//! [`create`] is `kubectl at`; with -c and --logs it shows an At ([`show`]), with --resume it lets one run
//! ([`resume`]), and with --follow it waits for its end ([`follow`]). [`queue`] is `kubectl atq`, [`remove`] `kubectl atrm`.

pub mod create;
pub mod queue;
pub mod remove;

mod echo;
mod follow;
mod manifest;
mod moment;
mod name;
mod object;
mod quote;
mod resume;
mod script;
mod show;
mod template;
mod verdict;
mod when;
mod zone;

pub(crate) use object::KIND;
