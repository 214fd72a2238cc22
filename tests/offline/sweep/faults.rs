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
    /// 403.
    Forbidden,
    /// 422.
    Invalid,
    /// No answer at all.
    Silent,
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
    /// Somebody removes the gate of the pod right before the call.
    ReleaseBefore,
    /// From this call on the watch of Ats brings nothing for 20 seconds, and then all.
    AtsHeldBack,
    /// The same with the watch of pods.
    PodsHeldBack,
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
    /// Every fault.
    pub const ALL: &[Self] = &[
        Self::Lost,
        Self::Unanswered,
        Self::Late,
        Self::Conflict,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::InternalError,
        Self::InternalErrorThoughDone,
        Self::TimeoutThoughDone,
        Self::Forbidden,
        Self::Invalid,
        Self::Silent,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::TakenOver,
        Self::CrashAndOldList,
        Self::EditBefore,
        Self::DeleteBefore,
        Self::DeleteHalfDone,
        Self::RecreateBefore,
        Self::ReleaseBefore,
        Self::AtsHeldBack,
        Self::PodsHeldBack,
        Self::WatchesCut,
        Self::WatchesGone,
        Self::WatchesSilent,
        Self::ListsRefused,
    ];

    /// Whether the scenario goes on to the same end. A foreign hand that deletes or releases has one of its own.
    pub fn keeps_the_end(self) -> bool {
        !matches!(
            self,
            Self::DeleteBefore | Self::DeleteHalfDone | Self::RecreateBefore | Self::ReleaseBefore
        )
    }

    /// Whether the process dies.
    pub fn is_a_crash(self) -> bool {
        use Fault::{CrashAfter, CrashAndOldList, CrashBefore, TakenOver};
        matches!(self, CrashBefore | CrashAfter | TakenOver | CrashAndOldList)
    }

    /// Whether the operator may forget, or miss, what became of a pod: it dies, or its watch of pods is disturbed.
    pub fn hides_pods(self) -> bool {
        use Fault::{ListsRefused, PodsHeldBack, WatchesCut, WatchesGone, WatchesSilent};
        self.is_a_crash()
            || matches!(
                self,
                ListsRefused | PodsHeldBack | WatchesCut | WatchesGone | WatchesSilent
            )
    }

    /// Whether the fault makes a difference of its own at that call. A read that is carried out without an answer is one that
    /// is lost, and there is nothing to edit before a list.
    pub fn applies(self, site: &Site) -> bool {
        use Fault::{
            Conflict, CrashAfter, DeleteBefore, DeleteHalfDone, EditBefore,
            InternalErrorThoughDone, Invalid, Late, RecreateBefore, ReleaseBefore,
            TimeoutThoughDone, Unanswered,
        };
        let changes_nothing = matches!(
            self,
            Unanswered
                | Late
                | Conflict
                | Invalid
                | InternalErrorThoughDone
                | TimeoutThoughDone
                | CrashAfter
        );
        let foreign = matches!(
            self,
            EditBefore | DeleteBefore | DeleteHalfDone | RecreateBefore | ReleaseBefore
        );
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
            Self::Silent => 60,
            Self::WatchesSilent | Self::ListsRefused | Self::AtsHeldBack | Self::PodsHeldBack => 45,
            Self::TooManyRequests | Self::Unavailable => 20,
            Self::CrashAndOldList => 40,
            _ => 15,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
