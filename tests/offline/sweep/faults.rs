//! What can go wrong at a call of an operator.

use std::fmt;
use std::time::Duration;

use simulated_apiserver::{Site, Verb};

/// A fault that happens once, at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks, and nothing was done.
    Lost,
    /// The connection breaks after the call was carried out.
    Unanswered,
    /// The connection breaks; the call is carried out a minute later.
    Late,
    /// 409: the object was changed meanwhile, as far as the API server says.
    Conflict,
    /// 429 with `Retry-After: 7`.
    TooManyRequests,
    /// 503 with `Retry-After: 7`.
    Unavailable,
    /// 500, not carried out.
    InternalError,
    /// 500, although it was carried out.
    InternalErrorThoughDone,
    /// 504, although it was carried out.
    TimeoutThoughDone,
    /// For 12 seconds etcd stores nothing: every write from this one on is answered 504, and carried out at the end.
    Stall,
    /// For 20 seconds every request from this one on is answered 429 with `Retry-After: 7`.
    Throttled,
    /// 403.
    Forbidden,
    /// 422.
    Invalid,
    /// No answer at all.
    Silent,
    /// The call is carried out after eight seconds.
    Slow,
    /// The process dies before the call is carried out, and is started again.
    CrashBefore,
    /// The process dies after the call was carried out, and is started again.
    CrashAfter,
    /// The same, and another replica takes over.
    TakenOver,
    /// The process dies after the call; the next one is given lists from before the first change of the objects, as by an
    /// API server that lags behind.
    CrashAndOldList,
    /// The object of the call is edited right before it.
    EditBefore,
    /// It is deleted right before the call.
    DeleteBefore,
    /// Its deletion is half done right before the call: the API server has marked it, and removes it a moment later.
    DeleteHalfDone,
    /// It is deleted and created again right before the call.
    RecreateBefore,
    /// A foreign client does right before the call what [`Subject::meddle`](super::subject::Subject::meddle) says.
    Own(&'static str),
    /// From this call on the watch of that resource brings nothing for 20 seconds, and then all.
    HeldBack(&'static str),
    /// The connections of the watches are cut.
    WatchesCut,
    /// The watches are cut, and cannot go on from where they were: 410.
    WatchesGone,
    /// The watches stay open and bring nothing until the operator opens others.
    WatchesSilent,
    /// The watches are cut, and lists and watches are refused for 20 seconds.
    ListsRefused,
}

impl Fault {
    /// The faults that every kind meets.
    pub const GENERAL: &[Self] = &[
        Self::Lost,
        Self::Unanswered,
        Self::Late,
        Self::Conflict,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::InternalError,
        Self::InternalErrorThoughDone,
        Self::TimeoutThoughDone,
        Self::Stall,
        Self::Throttled,
        Self::Forbidden,
        Self::Invalid,
        Self::Silent,
        Self::Slow,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::TakenOver,
        Self::CrashAndOldList,
        Self::EditBefore,
        Self::DeleteBefore,
        Self::DeleteHalfDone,
        Self::RecreateBefore,
        Self::WatchesCut,
        Self::WatchesGone,
        Self::WatchesSilent,
        Self::ListsRefused,
    ];

    /// Whether a foreign client acts right before the call.
    pub fn is_a_foreign_hand(self) -> bool {
        use Fault::{DeleteBefore, DeleteHalfDone, EditBefore, Own, RecreateBefore};
        matches!(
            self,
            EditBefore | DeleteBefore | DeleteHalfDone | RecreateBefore | Own(_)
        )
    }

    /// The outcome of the call is unknown to the operator, or to the next process, and it was or will be carried out: the
    /// faults after which a program is most likely to do twice what it should do once.
    pub fn hides_what_was_done(self) -> bool {
        use Fault::{CrashAfter, InternalErrorThoughDone, Late, Stall, TimeoutThoughDone};
        matches!(
            self,
            Late | InternalErrorThoughDone | TimeoutThoughDone | Stall | CrashAfter
        )
    }

    /// Whether it befalls a single call about an object, so that it must not delay another object.
    pub fn is_about_one_object(self, site: &Site) -> bool {
        let lasts = matches!(self, Self::Stall | Self::Throttled);
        let is_on_one = site.resource != "events" && !site.name.is_empty();
        let is_in_sight = !lasts && !self.is_a_crash() && !self.is_of_watches();
        is_in_sight && is_on_one
    }

    fn is_of_watches(self) -> bool {
        use Fault::{HeldBack, ListsRefused, WatchesCut, WatchesGone, WatchesSilent};
        matches!(
            self,
            HeldBack(_) | ListsRefused | WatchesCut | WatchesGone | WatchesSilent
        )
    }

    /// Whether the process dies.
    pub fn is_a_crash(self) -> bool {
        use Fault::{CrashAfter, CrashAndOldList, CrashBefore, TakenOver};
        matches!(self, CrashBefore | CrashAfter | TakenOver | CrashAndOldList)
    }

    /// Whether the operator may forget, or miss, what became of an object: it dies, or a watch of that resource is
    /// disturbed.
    pub fn hides(self, resource: &str) -> bool {
        let is_of_another = matches!(self, Self::HeldBack(held) if held != resource);
        self.is_a_crash() || (self.is_of_watches() && !is_of_another)
    }

    /// Whether the fault makes a difference of its own at that call. A read that is carried out without an answer is one that
    /// is lost, and there is nothing to edit before a list.
    pub fn applies(self, site: &Site) -> bool {
        use Fault::{
            Conflict, CrashAfter, InternalErrorThoughDone, Invalid, Late, Stall, TimeoutThoughDone,
            Unanswered,
        };
        let changes_nothing = matches!(
            self,
            Unanswered
                | Late
                | Conflict
                | Invalid
                | InternalErrorThoughDone
                | TimeoutThoughDone
                | Stall
                | CrashAfter
        );
        let foreign = self.is_a_foreign_hand();
        match (site.verb, site.resource.as_str()) {
            (Verb::Get, _) => !changes_nothing,
            (Verb::List | Verb::Watch, _) | (_, "events") => !changes_nothing && !foreign,
            _ => true,
        }
    }

    /// How much later than without the fault, or after it, everything may be as it should.
    pub fn recovery(self, site: &Site) -> Duration {
        Duration::from_secs(match self {
            Self::Late => 75,
            // A list has 65 s, a write 40 s.
            Self::Silent if site.verb == Verb::List => 75,
            // What a write without an answer may have done is believed for another minute.
            Self::Silent if site.resource == "pods" && site.verb != Verb::Get => 110,
            Self::Silent => 60,
            Self::WatchesSilent | Self::ListsRefused | Self::HeldBack(_) | Self::Throttled => 45,
            Self::TooManyRequests | Self::Unavailable => 20,
            Self::Stall => 30,
            Self::CrashAndOldList => 40,
            _ => 15,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(name) => f.write_str(name),
            Self::HeldBack(plural) => write!(f, "HeldBack({plural})"),
            other => write!(f, "{other:?}"),
        }
    }
}
