//! Everything that needs no control plane and no Go: the webhooks as a whole, the command line, and what is committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub
)]

mod admission;
mod admit;
mod architecture;
mod checklist;
mod checkout;
mod commands;
mod dashboards;
mod documents;
mod hostile_texts;
mod image;
mod integrations;
mod make;
mod manifests;
mod pages;
mod pictures;
mod public_api;
mod reasons;
mod site;
mod start_up;
mod state_metrics;
mod sweep;
mod texts;
mod workflows;
