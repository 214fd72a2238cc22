//! The map of `my-operator`, a room per paragraph, in the order in which data meets them.
//!
//! [`cli`] reads the command line and [`run`] builds every part and owns the order of start-up and
//! shutdown; [`client`] is the way to the API server and [`clock`] the source of time.
//!
//! A review from the API server comes in through [`serving`], the TLS listener, whose certificate
//! [`certs`] keeps. [`admission`] speaks the protocol and asks the rules of the object's kind.
//!
//! An accepted object comes back as a watch event. [`reconcile`] holds what every reconciler uses:
//! views, queue, workers, conditions, events.
//!
//! [`leader`] sees to it that of several replicas one reconciles.
//!
//! [`kinds`] has a room for each kind with its whole story, and the registry: one line per kind,
//! from which router, manifests, flags and tests are made. [`manifests`] writes what a cluster must be
//! told. [`telemetry`] is logs, metrics and probes.
//!
//! [`admit`] judges files by the same rules, with no cluster.
//!
//! Arrows point one way: main -> cli -> {run, admit} -> kinds -> {admission, reconcile} -> libraries. The rooms
//! beside `kinds` know no kind, and no kind knows another; `tests/offline/architecture.rs` holds that.

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
