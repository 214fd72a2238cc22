//! What a kind is, and what several kinds use. Nothing here knows one of them.
//!
//! [`Kind`] is all that the operator knows of a kind. [`pods`] are the slim views of the pods that a kind watches,
//! [`watched`] what is read of nodes and pods. [`template`] has the pod template that users write and its rules, [`image`]
//! the grammar of image references, [`command`] the rules of a shell command, [`time_zone`] those of a time zone, and
//! [`schema`] the adjustments of every generated CRD. [`manager`] has the operator's name. [`flag_values`] parses durations
//! on the command line, [`go_json`] writes JSON as Go does.

pub mod command;
pub mod flag_values;
pub mod go_json;
pub mod image;
mod kind;
pub mod manager;
pub mod pods;
pub mod schema;
mod start;
pub mod template;
pub mod time_zone;
pub mod watched;

pub use kind::{Kind, Permission, Sample};
#[cfg(feature = "controllers")]
pub use start::Run;
pub use start::Start;
