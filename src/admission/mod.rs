//! The admission protocol, knowing no kind: faults and their wording, what a kind's rules are,
//! the wire form of a review, the patch, and the router.

pub mod faults;
pub mod rules;
