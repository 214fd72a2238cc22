//! The admission protocol, knowing no kind.
//!
//! [`router`] takes a request to the judges of its kind; [`review`] is the wire form, decoded once
//! with the object kept raw, and not read at all beyond some [`bounds`]; [`judge`] defaults and validates by the [`rules`] of the kind;
//! [`patch`] carries defaults, and [`faults`] carry refusals in the API's own words,
//! in which the [`text`] of others does no harm.

pub mod bounds;
pub mod faults;
pub mod judge;
pub mod metrics;
pub mod names;
pub mod patch;
pub mod review;
pub mod router;
pub mod rules;
pub mod text;

#[cfg(test)]
mod tests;
