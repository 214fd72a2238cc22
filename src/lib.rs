//! The modules of `my-operator`, in the order of the data flow.
//!
//! [`cli`] parses the command line. [`run`] builds every part and owns the order of start-up and shutdown.
//! [`my_operator_runtime`] connects to the API server, and has logs, metrics, probes and the source of time.
//!
//! The API server sends a review to [`my_operator_serving`], the TLS listener, whose certificate [`my_operator_certs`]
//! renews. [`my_operator_admission`] implements the protocol and applies the rules of the object's kind.
//!
//! An accepted object comes back as a watch event. [`my_operator_runtime::reconcile`] has what every reconciler uses:
//! views, queue, workers, conditions, events.
//!
//! [`my_operator_leader`] elects the one of several replicas that reconciles.
//!
//! [`kinds`] has a module for each kind, and the registry: one line per kind, from which the router, the manifests, the
//! flags and the tests are made. [`manifests`] generates the manifests to install.
//!
//! [`my_operator_admit`] checks files by the same rules, without a cluster.
//!
//! [`check`] looks at an installation from outside.
//!
//! Dependencies point one way: main -> cli -> check -> run -> kinds -> the crates in `crates/`, which know no kind. Cargo
//! enforces the last arrow, and the ones between the crates; `tests/offline/architecture.rs` enforces the others, and
//! that no kind knows another.

pub mod check;
pub mod cli;
pub mod kinds;
pub mod manifests;
pub mod run;
