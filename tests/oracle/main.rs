//! Our code held against programs of others on fresh random input: Go modules of Kubernetes, Argo CD and Flux (the
//! programs in this folder) and Prometheus's promtool.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use my_operator_harness as harness;

mod alerts;
mod checklist;
mod cron;
mod dashboards;
mod gitops;
mod karmada;
mod placement;
