//! What several kinds use. Nothing here knows one of them.
//!
//! [`owned_child`] is the reconciler of the kinds whose objects each own one child, such as a Deployment. [`pods`] are
//! the slim views of the pods that a kind watches, [`watched`] what is read of nodes and pods. [`template`] has the pod
//! template that users write and its rules, [`image`] the grammar of image references, [`command`] the rules of a shell
//! command, [`time_zone`] those of a time zone, and [`schema`] the adjustments of every generated CRD. [`manager`] has the
//! operator's name. [`flag_values`] parses durations on the command line, [`go_json`] writes JSON as Go does.

pub(crate) mod command;
pub mod flag_values;
pub(crate) mod go_json;
pub mod image;
pub mod manager;
pub(crate) mod owned_child;
pub(crate) mod pods;
#[cfg(test)]
pub(crate) mod retained;
pub(crate) mod schema;
pub mod template;
pub(crate) mod time_zone;
pub mod watched;
