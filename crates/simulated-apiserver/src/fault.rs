//! Fault injection: what happens to each request.

use std::fmt;
use std::time::Duration;

use crate::call::{PatchType, Verb};
use crate::{Server, Status};

/// The identity of a request. The same program reaches the same sites equally often in each run, so that a fault at a
/// site can be replayed.
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

/// Something to do in the middle of a request.
pub type Callback = Box<dyn FnOnce(&Server) + Send>;

/// What happens to a request.
pub enum Decision {
    /// It is carried out and answered.
    Forward,
    /// It is not carried out; the caller gets a connection error.
    Lost,
    /// It is carried out; the caller gets a connection error.
    Unanswered,
    /// It is not carried out and never answered.
    Silent,
    /// It is never answered, and carried out after that time, even if the caller has given up.
    Late(Duration),
    /// The caller gets a connection error at once, and the request is carried out after that time.
    LostThenLate(Duration),
    /// It gets this answer at once, and is carried out after that time.
    FailedThenLate(Status, Duration),
    /// It is carried out and answered after that time, even if the caller has given up.
    Delayed(Duration),
    /// It is not carried out, and gets this answer.
    Answer(Status),
    /// It is carried out, and gets this answer.
    FailedThoughDone(Status),
    /// The callback runs first, for example a write of another client; then the request is carried out and answered.
    Meanwhile(Callback),
    /// The callback runs; the request is not carried out and never answered.
    CrashBefore(Callback),
    /// The request is carried out, then the callback runs; the caller gets no answer.
    CrashAfter(Callback),
}

impl Decision {
    /// One word, for the history.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Lost => "lost",
            Self::Unanswered => "unanswered",
            Self::Silent => "silent",
            Self::Late(_) => "late",
            Self::LostThenLate(_) => "lost-then-late",
            Self::FailedThenLate(..) => "failed-then-late",
            Self::Delayed(_) => "delayed",
            Self::Answer(_) => "answer",
            Self::FailedThoughDone(_) => "failed-though-done",
            Self::Meanwhile(_) => "meanwhile",
            Self::CrashBefore(_) => "crash-before",
            Self::CrashAfter(_) => "crash-after",
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(d) | Self::LostThenLate(d) | Self::Delayed(d) => {
                write!(f, "{}({d:?})", self.label())
            }
            Self::Answer(s) | Self::FailedThoughDone(s) | Self::FailedThenLate(s, _) => {
                write!(f, "{}({} {})", self.label(), s.code, s.reason)
            }
            _ => f.write_str(self.label()),
        }
    }
}

/// Decides what happens to each request, before it is carried out. A closure is a plan.
pub trait Plan: Send + Sync {
    /// What happens to the request at that site.
    fn decide(&self, site: &Site) -> Decision;
}

impl<F: Fn(&Site) -> Decision + Send + Sync> Plan for F {
    fn decide(&self, site: &Site) -> Decision {
        self(site)
    }
}
