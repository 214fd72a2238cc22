//! Fault injection: what happens to each request.

use std::fmt;
use std::time::Duration;

use crate::server::Server;
use crate::site::Site;
use crate::status::Status;

/// What a [`Decision`] does in the middle of a request.
pub type Callback = Box<dyn FnOnce(&Server) + Send>;

/// What happens to a request. A connection error is one of the `Client`: the caller cannot know whether the request was
/// carried out.
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
