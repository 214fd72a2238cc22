//! The pod of an At: [`names`] that it is known by, how it is [built](build), which fields the watch
//! keeps of an [`object`], and the [`view`] of it that decisions are based on.

pub(crate) mod build;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod view;
