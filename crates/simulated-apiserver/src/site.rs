//! The identity of a request, by which faults are placed and histories are read.

use std::fmt;

use crate::call::{PatchType, Verb};

/// The identity of a request: who does what to which object, and how often that was done before. The same program
/// reaches the same sites in each run, so that a fault at a site can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The identity of the client.
    pub user: String,
    /// What it does.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, with the subresource: `pods`, `pods/status`.
    pub resource: String,
    /// The format of a patch.
    pub patch: Option<PatchType>,
    /// Empty in cluster-wide requests.
    pub namespace: String,
    /// Empty in requests on a collection. In a create it is the name in the body, or generateName.
    pub name: String,
    /// How often this site was reached before: 0 for the first time.
    pub nth: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ", self.user, self.verb)?;
        if let Some(patch) = self.patch {
            write!(f, "({patch:?}) ")?;
        }
        write!(f, "{}", self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, " {}/{} #{}", self.namespace, self.name, self.nth)
    }
}
