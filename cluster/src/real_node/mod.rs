//! A real node: a kubelet with containerd that runs containers, and a kube-proxy that makes Services work.
//!
//! - `my_operator_programs::needs` says what a machine must have;
//! - `namespaces` isolates the node, so that nothing of it stays behind;
//! - `config` has the files and flags of its programs;
//! - `node` is what a cluster does with it, such as `Cluster::load_image`.

mod config;
mod names;
mod namespaces;
mod node;

pub(crate) use config::{command, write};
pub(crate) use names::{COMPONENTS, CONTAINERD};
pub(crate) use namespaces::{Namespaces, Place};
