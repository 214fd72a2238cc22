//! Admission as a whole, over every kind of the registry: what the API server would send goes in as
//! bytes, and the answer is judged as bytes.

pub mod corpus;
mod defaulting;
mod hostile;
mod images;
mod json_schemas;
mod memory;
mod objects;
pub mod random;
mod schedules;
mod text;
mod wire;
