//! The modules of `my-operator`, in the order of the data flow.
//!
//! [`cli`] parses the command line. [`run`] builds every part and owns the order of start-up and shutdown.
//! [`resilient_kube_client`] connects to the API server, and has the source of time. [`my_operator_telemetry`] has
//! logs, metrics and probes.
//!
//! The API server sends a review to [`bounded_listener`], the TLS listener, whose certificate [`webhook_certs`]
//! renews. [`admission_rules`] implements the protocol and applies the rules of the object's kind.
//!
//! An accepted object comes back as a watch event. [`wall_clock_controller::reconcile`] has what every reconciler uses:
//! views, queue, workers, conditions, events.
//!
//! [`fenced_lease`] elects the one of several replicas that reconciles.
//!
//! A kind is a crate in `kinds/`. [`my_operator_kinds`] is the registry: one line per kind, from which the router, the
//! manifests, the flags and the tests are made. [`kinds`] finds kinds by name. [`manifests`] generates the manifests to
//! install.
//!
//! [`my_operator_admit`] checks files by the same rules, without a cluster.
//!
//! [`check`] looks at an installation from outside.
//!
//! Dependencies point one way: main -> cli -> check -> run -> manifests -> kinds -> the crates in `kinds/` -> those in
//! `crates/`, which know no kind. Cargo enforces the last two arrows, the ones between the crates, and that no crate of
//! a kind knows another; `tests/offline/architecture.rs` enforces the others.

pub mod check;
pub mod cli;
pub mod kinds;
pub mod manifests;
pub mod run;
