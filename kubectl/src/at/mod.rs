//! `kubectl at`, `kubectl atq` and `kubectl atrm`.
//!
//! [`create`] is `kubectl at`; with -c and --logs it shows an At ([`show`]), with --resume, --pause and
//! --reschedule it changes one ([`change`]), and with --follow it waits for its end ([`follow`]). With --from it reads an object ([`source`]) and
//! takes its pod template ([`take`]) and its command ([`argv`]). [`queue`] is `kubectl atq`, [`remove`] `kubectl atrm`.

pub mod create;
pub mod queue;
pub mod remove;

mod argv;
mod change;
mod echo;
mod follow;
mod manifest;
mod name;
mod object;
mod quote;
mod script;
mod show;
mod source;
mod take;
mod template;
mod verdict;
mod zone;

pub(crate) use object::KIND;
pub(crate) use quote::word as shell_word;
pub(crate) use source::{SOURCES, Source};
