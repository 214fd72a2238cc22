//! A real local Kubernetes control plane for development, tests and benchmarks: etcd, kube-apiserver,
//! kube-controller-manager and kube-scheduler on loopback ports, with fake nodes and a fake kubelet.
//!
//! - [`binaries`] finds the programs: `KUBEBUILDER_ASSETS`, the user's cache, or a build with Go. It is a crate of its own
//!   (`programs`), so that Go can build while cargo compiles this one;
//! - `pki`, `kubeconfig`, `ports`, `components`: certificates, identities, ports and flags of one control plane;
//! - `guard` and `process`: how children are started and stopped, and never outlive this process (`guard` has the
//!   reasons);
//! - `cluster` puts these together: [`Cluster`]; `nodes` adds [`FakeNode`]s; [`mod@shared`] is one cluster per test
//!   binary.
//!
//! A cluster can also have a `real_node`, with containers from [`Image`]s; that one needs root.
//!
//! `fake_kubelet` runs the pods of fake nodes. The command line is in `main.rs` and `cli`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use my_operator_cluster::{Cluster, Options};
//!
//! let cluster = Cluster::start(Options::with_nodes(&["node-1", "node-2"])).await?;
//! assert!(cluster.kubectl().args(["get", "nodes"]).status()?.success());
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```

mod cluster;
mod components;
mod error;
mod fake_kubelet;
mod fake_node;
mod guard;
mod image;
mod kubeconfig;
mod nodes;
mod options;
mod pki;
mod ports;
mod process;
mod real_node;
mod shared;

pub use cluster::Cluster;
pub use error::Error;
pub use fake_node::FakeNode;
pub use image::Image;
pub use my_operator_programs as binaries;
pub use options::Options;
pub use ports::free_ports;
pub use process::Process;
pub use shared::shared;
