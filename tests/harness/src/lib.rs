//! What the tests on a real control plane share.
//!
//! - [`Operator`]: the operator as a process of its own, with the rights that `config/rbac` gives it ([`mod@install`]).
//! - [`Kubectl`]: kubectl, for what a person types and for kubectl's own output. Reads and waits of a test do not
//!   start kubectl: they use the one client of each control plane (`reads`), and wait on watches.
//! - [`helm`]: releases of the chart.
//! - [`wait`]: waiting for everything else. Nothing sleeps for luck.
//! - [`in_process`]: the reconciler of one kind in this process, on any client and clock.
//! - [`terminal`]: a program in a terminal, and what the terminal shows; [`picture`]: that as an SVG. [`proxy`]: a bad way
//!   to the API server. [`peer`]: a caller of the webhooks that is not the API server.
//! - [`record`], [`pods`]: every event of some objects, without a gap. [`policies`]: admission policies that hold back
//!   or change single calls. [`oracle`]: the Go programs of `tests/oracle`.
//! - [`alerts`], [`dashboards`], [`promql`], [`documented`]: the alerts, the dashboards of `contrib/mixin`, what
//!   expressions ask of Prometheus, and the list of metrics in docs/operations/metrics.md. [`markdown`]: the code blocks
//!   of a page.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::print_stdout
)]

pub mod alerts;
mod conditions;
pub mod dashboards;
pub mod documented;
mod figures;
pub mod hanging;
pub mod helm;
pub mod in_process;
pub mod install;
mod kubectl;
mod kubectl_calls;
pub mod markdown;
mod operator;
pub mod oracle;
pub mod peer;
pub mod picture;
mod planes;
mod plugins;
pub mod pods;
pub mod policies;
mod programs;
pub mod promql;
pub mod proxy;
mod reads;
pub mod record;
pub mod terminal;
pub mod wait;

use std::path::Path;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};

pub use figures::{figure, http_get, peak_memory};
pub use install::{
    NAMESPACE, SERVICE_ACCOUNT, client, every_kind, install, install_sample_kinds,
    operator_kubeconfig, rights, sample_path,
};
pub use kubectl::Kubectl;
pub use kubectl_calls::counting_kubectl;
pub use my_operator_rounds::seed;
pub use operator::{Operator, operator_program};
pub use planes::{OwnPlane, shared_plane};
pub use plugins::{Ended, LATE, plugin_program};
pub use programs::{Killed, Said, run};
pub use reads::Changes;
pub use wait::{TIMEOUT, try_wait, wait_for};

/// The top of the checkout.
pub fn checkout() -> &'static Path {
    static CHECKOUT: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.join("../..").canonicalize().unwrap()
    });
    &CHECKOUT
}

/// A time as the API writes it.
pub fn time(text: &str) -> DateTime<Utc> {
    let time = DateTime::parse_from_rfc3339(text);
    time.unwrap_or_else(|error| panic!("{text:?}: {error}"))
        .to_utc()
}
