//! At.
pub mod admission;
pub mod crd;
pub mod pod;
pub mod result;
pub mod schedule;
pub mod step;
pub mod view;
