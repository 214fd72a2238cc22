//! What each fault does; as `tests/offline/sweep/cluster.rs`, for a process in place of a task.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use simulated_apiserver::{Decision, Server, Site, Status, Target, Verb};
use tokio::time::sleep;

use crate::faults::Fault;
use crate::process::{FIRST, Operator, SECOND};
use crate::subjects::{NAMESPACE, Subject};

/// How long a fault lasts that lasts.
const LASTS: Duration = Duration::from_secs(20);
const SLOW: Duration = Duration::from_secs(8);
const STALL: Duration = Duration::from_secs(12);
const LATE: Duration = Duration::from_secs(60);
const RETRY_AFTER: Duration = Duration::from_secs(7);
/// How many changes an API server is behind that lags.
const LAG: u64 = 2;

/// How long a fault goes on after its call.
pub fn effects(fault: Fault) -> Duration {
    let lasts = match fault {
        Fault::Late => LATE,
        Fault::Stall => STALL,
        Fault::Slow => SLOW,
        Fault::Throttled | Fault::HeldBack(_) | Fault::ListsRefused | Fault::CrashAndOldList => {
            LASTS
        }
        _ => Duration::ZERO,
    };
    lasts + Duration::from_secs(1)
}

#[derive(Clone)]
pub struct Cluster {
    pub server: Server,
    pub operator: Operator,
    pub subject: &'static dyn Subject,
    /// The resourceVersion with which the scenario began.
    pub first: u64,
    /// The fault that goes on, and until when.
    pub outage: Arc<Mutex<Option<(Fault, Duration)>>>,
}

impl Cluster {
    fn later(&self, act: impl FnOnce(&Server) + Send + 'static) {
        let server = self.server.clone();
        tokio::spawn(async move {
            sleep(LASTS).await;
            act(&server);
        });
    }

    /// What becomes of the call at a site because of an earlier one.
    pub fn during_outage(&self, site: &Site) -> Option<Decision> {
        let (fault, until) = (*self.outage.lock().ok()?)?;
        let left = until.checked_sub(self.server.clock().elapsed());
        let left = left.filter(|left| !left.is_zero() && site.user == FIRST)?;
        let reads = matches!(site.verb, Verb::Get | Verb::List | Verb::Watch);
        match fault {
            Fault::Stall if reads => None,
            Fault::Stall => Some(Decision::FailedThenLate(Status::timeout(), left)),
            _ => Some(Decision::Answer(Status::too_many_requests(RETRY_AFTER))),
        }
    }

    fn outage(&self, fault: Fault, site: &Site) -> Decision {
        let lasts = if fault == Fault::Stall { STALL } else { LASTS };
        if let Ok(mut outage) = self.outage.lock() {
            *outage = Some((fault, self.server.clock().elapsed() + lasts));
        }
        self.during_outage(site).unwrap_or(Decision::Forward)
    }

    fn crash(&self, next: &'static str) -> Box<dyn FnOnce(&Server) + Send> {
        let operator = self.operator.clone();
        Box::new(move |_: &Server| operator.crash(next))
    }

    /// What becomes of the call at a site, when this fault befalls it.
    pub fn decide(&self, fault: Fault, site: &Site) -> Decision {
        let all = Target::all().of_user(FIRST);
        let failed = |code, reason: &str| Status::new(code, reason, "a fault of the simulation");
        match fault {
            Fault::Lost => return Decision::Lost,
            Fault::Unanswered => return Decision::Unanswered,
            Fault::Late => return Decision::LostThenLate(LATE),
            Fault::Conflict => return Decision::Answer(failed(409, "Conflict")),
            Fault::TooManyRequests => {
                return Decision::Answer(Status::too_many_requests(RETRY_AFTER));
            }
            Fault::Unavailable => return Decision::Answer(Status::unavailable(RETRY_AFTER)),
            Fault::InternalError => return Decision::Answer(failed(500, "InternalError")),
            Fault::InternalErrorThoughDone => {
                return Decision::FailedThoughDone(failed(500, "InternalError"));
            }
            Fault::TimeoutThoughDone => return Decision::FailedThoughDone(failed(504, "Timeout")),
            Fault::Stall | Fault::Throttled => return self.outage(fault, site),
            Fault::Forbidden => return Decision::Answer(failed(403, "Forbidden")),
            Fault::Invalid => return Decision::Answer(failed(422, "Invalid")),
            Fault::Silent => return Decision::Silent,
            Fault::Slow => return Decision::Delayed(SLOW),
            Fault::CrashBefore => return Decision::CrashBefore(self.crash(FIRST)),
            Fault::CrashAfter => return Decision::CrashAfter(self.crash(FIRST)),
            Fault::TakenOver => return Decision::CrashAfter(self.crash(SECOND)),
            Fault::CrashAndOldList => {
                let (crash, first) = (self.crash(FIRST), self.first);
                self.later(|server| server.watches(Target::all().of_user(FIRST)).fresh_lists());
                return Decision::CrashAfter(Box::new(move |server: &Server| {
                    crash(server);
                    let version = server.version().saturating_sub(LAG).max(first);
                    server
                        .watches(Target::all().of_user(FIRST))
                        .stale_lists(version);
                }));
            }
            Fault::EditBefore
            | Fault::DeleteBefore
            | Fault::DeleteHalfDone
            | Fault::RecreateBefore => {
                let (kind, name) = target(self.subject, site);
                return Decision::Meanwhile(Box::new(move |server| {
                    meddle(server, fault, &kind, &name)
                }));
            }
            Fault::Own(_) => {}
            Fault::HeldBack(plural) => {
                let held = Target::resource(plural).of_user(FIRST);
                self.server.watches(held.clone()).hold();
                self.later(move |server| server.watches(held).release());
            }
            Fault::WatchesCut => self.server.watches(all).reset(),
            Fault::WatchesGone => self.server.watches(all).gone(),
            Fault::WatchesSilent => self.server.watches(all).silence(),
            Fault::ListsRefused => {
                self.server.watches(all.clone()).cut();
                self.server
                    .watches(all.clone())
                    .refuse(failed(403, "Forbidden"));
                self.later(move |server| server.watches(all).allow());
            }
        }
        Decision::Forward
    }
}

/// The object that a call is about: one of the operator's, or that of the scenario where it has none.
pub fn target(subject: &dyn Subject, site: &Site) -> (String, String) {
    let plural = site.resource.split('/').next().unwrap_or_default();
    if site.name.is_empty() || plural == "events" {
        let (plural, name) = subject.object();
        return (plural.to_owned(), name.to_owned());
    }
    (plural.to_owned(), site.name.clone())
}

/// A foreign hand.
fn meddle(server: &Server, fault: Fault, kind: &str, name: &str) {
    let direct = server.direct_as("meddler");
    let Some(mut object) = direct.get(kind, NAMESPACE, name) else {
        return;
    };
    if fault == Fault::EditBefore {
        let note = json!({"metadata": {"annotations": {"example.com/edited": "yes"}}});
        let _ = direct.patch(kind, NAMESPACE, name, &note);
        return;
    }
    let _ = direct.delete_with(kind, NAMESPACE, name, &json!({"gracePeriodSeconds": 0}));
    if fault == Fault::RecreateBefore {
        let metadata = &object["metadata"];
        let again: Value = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": metadata["labels"],
                "ownerReferences": metadata["ownerReferences"]},
            "spec": object["spec"].take()});
        // A finalizer may hold the first one.
        let _ = direct.create(again);
    }
}
