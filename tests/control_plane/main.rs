//! The operator on real control planes. One executable, so that the tests of all suites overlap: most of their time
//! they wait.
//!
//! - `check`: `my-operator check`, with one fault after another.
//! - `cluster`: At and MyDaemonSet with their webhooks, driven with kubectl. One control plane, one operator.
//! - `samples`: the kinds that are off by default. One control plane, one operator.
//! - `conformance`: the simulated API server of `crates/simulated-apiserver`, held to the real one.
//! - `kubectl`: the commands for people, beside those of kubectl.
//! - `pod_schema`: the schema by which `admit` checks pod templates, held to that of the API server.
//! - `install`: `make deploy` and its like, and the components of `config/components`.
//! - `disruption`: the operator killed, absent or damaged. Each test runs operators of its own.
//! - `start_up`: what is missing when the operator starts.
//! - `states`: the objects of `contrib/argocd`, held to what the tests of `cluster` and `disruption` see.
//! - `sweep`: a fault at a call of the operator, for a sample of all faults and calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use my_operator_harness as harness;

mod check;
mod cluster;
mod conformance;
mod disruption;
mod install;
mod kubectl;
mod pod_schema;
mod samples;
mod start_up;
mod states;
mod sweep;
