//! The modules of `my-operator`, in the order of the data flow.
//!
//! [`cli`] parses the command line. [`run`] builds every part and owns the order of start-up and shutdown. [`client`]
//! connects to the API server, and [`clock`] is the source of time.
//!
//! The API server sends a review to [`serving`], the TLS listener, whose certificate [`certs`] renews. [`admission`]
//! implements the protocol and applies the rules of the object's kind.
//!
//! An accepted object comes back as a watch event. [`reconcile`] has what every reconciler uses: views, queue, workers,
//! conditions, events.
//!
//! [`leader`] elects the one of several replicas that reconciles.
//!
//! [`kinds`] has a module for each kind, and the registry: one line per kind, from which the router, the manifests, the
//! flags and the tests are made. [`manifests`] generates the manifests to install. [`telemetry`] has logs, metrics and
//! probes.
//!
//! [`admit`] checks files by the same rules, without a cluster.
//!
//! Dependencies point one way: main -> cli -> {run, admit} -> kinds -> {admission, reconcile} -> libraries. The modules
//! beside `kinds` know no kind, and no kind knows another; `tests/offline/architecture.rs` enforces that.

pub mod admission;
pub mod admit;
pub mod certs;
pub mod cli;
pub mod client;
pub mod clock;
pub mod kinds;
pub mod leader;
pub mod manifests;
pub mod reconcile;
pub mod run;
pub mod serving;
pub mod telemetry;
