//! One reconcile pass over one object: observe, decide, act, report.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::plan::{Plan, plan};
use super::write_status::StatusWriter;
use crate::act;
use crate::act::outcome::Outcome;
use crate::act::revisions::{Ensured, ensure_revision, prune_revisions};
use crate::basis;
use crate::crd::MyDaemonSetStatus;
use crate::decide::decision::DeleteReason;
use crate::decide::undo::Undo;
use crate::decide::window::Gate;
use crate::memory::WayBack;
use crate::memory::event_tally::{created_text, deleted_text, pods};
use crate::memory::first_look::FirstLook;
use crate::object::ParsedSpec;
use crate::pass::{Pass, Scope};
use crate::revision::RevisionView;
use crate::status::{self, Frozen, StatusInput};
use wall_clock_controller::reconcile::event::{NewEvent, Severity};
use wall_clock_controller::reconcile::{Action, Error};

/// Retry interval while a deleted object's revision blocks the name, or the watch is behind.
const RETRY_PAUSE: TimeDelta = TimeDelta::seconds(10);

/// One pass over one object.
pub(super) struct Reconcile<'a> {
    scope: Scope<'a>,
    status: StatusWriter<'a>,
}

impl<'a> Reconcile<'a> {
    pub(super) fn new(scope: Scope<'a>) -> Self {
        Self {
            scope,
            status: StatusWriter::new(scope),
        }
    }

    /// Runs the pass.
    pub(super) async fn run(&self) -> Result<Action, Error> {
        if self.status.is_behind() {
            return Ok(self.retry_later());
        }
        if let Some(until) = self.status.gone_until() {
            return Ok(Action::at(Some(until)));
        }
        match &self.scope.object.parsed {
            Ok(spec) => match self.way_back(spec) {
                Some(back) => self.reconcile(&back).await,
                None => self.reconcile(spec).await,
            },
            Err(why) => self.reject(why).await,
        }
    }

    /// What takes the place of the spec, if its revision failed and the pods go back to another one. A user who resumes
    /// its roll-out has it tried again.
    fn way_back(&self, spec: &ParsedSpec) -> Option<ParsedSpec> {
        let is_begun = {
            let way_back = &self.scope.memory.lock().way_back;
            way_back.as_ref().is_some_and(|it| it.from == spec.hash)
        };
        let is_failed = is_begun || status::is_undone(self.status.before(), &spec.hash);
        let is_resumed = self.scope.object.resume.as_ref() == Some(&spec.hash);
        // Without a failure, no pass looks for another revision.
        let to = (is_failed && !is_resumed).then(|| self.undo_target(spec));
        let to = to.flatten();
        self.scope.memory.lock().way_back = to.as_ref().map(|to| WayBack {
            from: spec.hash.clone(),
            placement: to.placement.clone(),
        });
        to.map(|to| spec.back_to(&to))
    }

    /// The revision that the pods go back to, should that of the spec fail.
    fn undo_target(&self, spec: &ParsedSpec) -> Option<Arc<RevisionView>> {
        let revisions = self.scope.revisions();
        basis::undo_target(self.status.before(), &spec.hash, &revisions).cloned()
    }

    /// Brings the cluster closer to a valid spec, or to the one that takes its place.
    async fn reconcile(&self, spec: &ParsedSpec) -> Result<Action, Error> {
        let (scope, now) = (self.scope, self.scope.now);
        let gate = Gate::default();
        let mut pass = Pass {
            scope,
            spec,
            now,
            decided_at: Instant::now(),
            gate,
        };
        let mut outcome = Outcome::default();
        if let Some(migration) = &self.scope.object.migration {
            return self.stand_aside(&pass, migration, outcome).await;
        }
        let (revisions, stored) = match ensure_revision(&pass, &mut outcome).await {
            Ensured::Stored(revisions) => (revisions, true),
            Ensured::NotStored(revisions) => (revisions, false),
            Ensured::Waiting(revision) => return self.report_wait(&revision).await,
        };
        let before = self.status.before();
        let is_new = before.current_revision.is_none() || status::is_migrating(before);
        if let Some(at) = act::first_look::wait_for_orphans(&pass, is_new).await? {
            return Ok(Action::at(Some(at)));
        }
        // What is still in doubt counts in the decision, so it is asked about before.
        act::doubts::resolve_doubts(&pass, &mut outcome).await;
        if pass.is_outdated() {
            return outcome.error.map_or_else(|| Ok(Action::default()), Err);
        }
        pass.decides();
        let decide = |pass: &Pass<'_>, stopped_for: Option<&[_]>| {
            plan(pass, &revisions, stored, before, stopped_for)
        };
        let was_stopped = status::was_stopped(before, pass.written(), &spec.hash);
        let mut plan = decide(&pass, was_stopped.then_some(&before.failed_nodes));
        pass.gate = plan.gate;
        let deletes = act::create(&pass, &revisions, &plan.decision, &mut outcome).await;
        if deletes && pass.is_late() {
            // A creation took long: what is deleted follows from what is so now. What else there is to do comes next.
            outcome.more = true;
            pass.decides();
            let observed = plan.decision.observed;
            let is_stopped = observed.auto_paused;
            plan = decide(&pass, is_stopped.then_some(&observed.stopped_for));
            pass.gate = plan.gate;
        }
        act::finish(&pass, &plan.decision, deletes, &mut outcome).await;
        if outcome.decides_anew {
            return self.finish(&plan, outcome, None);
        }
        // After the pods: a revision is in use once a pod of it is about to be created.
        let complete = &before.complete_revisions;
        prune_revisions(&pass, &revisions, &plan.current, complete, &mut outcome).await;
        let after = self.next_status(&pass, stored, &plan, before);
        self.scope.metrics.status(self.scope.key, &after);
        // Events say what was done even if the status cannot be written.
        let written = self.write_status(&plan, &after).await;
        let status_not_before = written.as_ref().ok().copied().flatten();
        let action = self.finish(&plan, outcome, status_not_before);
        written.and(action)
    }

    /// Leaves the pods alone, and says so once nothing of what was done before can come late.
    async fn stand_aside(
        &self,
        pass: &Pass<'_>,
        migration: &str,
        mut outcome: Outcome,
    ) -> Result<Action, Error> {
        act::doubts::resolve_doubts(pass, &mut outcome).await;
        if let Some(error) = outcome.error {
            return Err(error);
        }
        let unsettled = {
            let mut memory = self.scope.memory.lock();
            // Other hands may change every pod: afterwards each node is looked at again, as after a restart.
            memory.first_look = FirstLook::default();
            memory.rollout = None;
            memory.take_changed(self.scope.now);
            memory.nodes.next_check()
        };
        let not_before = if unsettled.is_none() {
            let generation = self.scope.object.generation;
            let now = self.scope.now;
            let after = status::migrating(self.status.before(), generation, migration, now);
            self.show(&after).await?
        } else {
            unsettled
        };
        Ok(Action::at(not_before))
    }

    fn next_status(
        &self,
        pass: &Pass<'_>,
        stored: bool,
        plan: &Plan,
        before: &MyDaemonSetStatus,
    ) -> MyDaemonSetStatus {
        let spec = pass.spec;
        let object = self.scope.object;
        let of_namespace = pass.namespace_freeze();
        let (refusal, frozen) = {
            let memory = self.scope.memory.lock();
            let frozen = pass.frozen().map(|freeze| Frozen {
                freeze,
                own: object.freeze.as_deref(),
                of_namespace: of_namespace.as_deref(),
                is_settled: !memory.nodes.may_break(freeze),
            });
            (memory.backoffs.reported().cloned(), frozen)
        };
        let may_be_undone = spec.strategy.undoes && pass.undone().is_none();
        let target = may_be_undone.then(|| self.undo_target(spec)).flatten();
        let undo = match (pass.undone(), &target) {
            (Some(_), _) => Undo::To(&spec.hash),
            (None, Some(target)) => Undo::IfItFails(&target.hash),
            (None, None) => Undo::No,
        };
        status::next(&StatusInput {
            previous: before,
            generation: object.generation,
            observed: &plan.decision.observed,
            strategy: spec.strategy,
            update: pass.written(),
            undo,
            frozen,
            current: &plan.current,
            stored,
            refusal: refusal.as_ref(),
            now: self.scope.now,
        })
    }

    /// Writes the status if it changed. A change of mere numbers may have to wait: returns until when.
    async fn write_status(
        &self,
        plan: &Plan,
        after: &MyDaemonSetStatus,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let before = self.status.before();
        let pods = plan.decision.observed.desired;
        let (memory, now) = (self.scope.memory, self.scope.now);
        let not_before = memory.lock().status.numbers_not_before(pods, now);
        if not_before.is_some() && before != after && !status::is_pressing(before, after) {
            return Ok(not_before);
        }
        self.status.write(after).await
    }

    /// Reports an invalid spec, and does nothing else.
    async fn reject(&self, why: &str) -> Result<Action, Error> {
        let generation = self.scope.object.generation;
        let after = status::rejected(self.status.before(), generation, why, self.scope.now);
        Ok(Action::at(self.show(&after).await?))
    }

    /// Reports that the current revision waits for the deletion of one with the same name, which the watch delivers.
    async fn report_wait(&self, revision: &str) -> Result<Action, Error> {
        let generation = self.scope.object.generation;
        let after = status::waiting(self.status.before(), generation, revision, self.scope.now);
        self.show(&after).await?;
        Ok(self.retry_later())
    }

    /// Shows a status in the metrics, and writes it. Returns when it may be written, if not now.
    async fn show(&self, after: &MyDaemonSetStatus) -> Result<Option<DateTime<Utc>>, Error> {
        self.scope.metrics.status(self.scope.key, after);
        self.status.write(after).await
    }

    fn retry_later(&self) -> Action {
        Action::at(Some(self.scope.now + RETRY_PAUSE))
    }

    /// Publishes what was done, and returns when to reconcile again.
    fn finish(
        &self,
        plan: &Plan,
        outcome: Outcome,
        status_not_before: Option<DateTime<Utc>>,
    ) -> Result<Action, Error> {
        let next_note = self.publish_notes(&outcome);
        let did = summary(&outcome);
        if let Some(error) = outcome.error {
            return Err(error);
        }
        let memory = self.scope.memory.lock();
        let requeue_at = [
            plan.decision.next,
            next_note,
            memory.nodes.next_check(),
            memory.backoffs.next_end(self.scope.now),
            outcome.more.then_some(self.scope.now),
            status_not_before,
        ];
        Ok(Action {
            did,
            ..Action::at(requeue_at.into_iter().flatten().min())
        })
    }

    /// Counts created and deleted pods, and publishes the Events that are due. Returns when more are.
    fn publish_notes(&self, outcome: &Outcome) -> Option<DateTime<Utc>> {
        let failed = outcome.deleted.get(&DeleteReason::Failed);
        let failed = failed.copied().unwrap_or_default() as u64;
        self.scope.metrics.failed_pods.inc_by(failed);
        let notes = {
            let tally = &mut self.scope.memory.lock().tally;
            tally.count(outcome.created, &outcome.deleted);
            tally.take_due(self.scope.now)
        };
        let placed = "admission changes what pods demand of nodes: new ones are created only where that is met";
        let placed = outcome.decides_anew.then(|| placed.to_owned());
        for (note, reason, action) in [
            (placed, "PlacementChanged", "PlacePods"),
            (notes.created, "PodsCreated", "CreatePods"),
            (notes.deleted, "PodsDeleted", "DeletePods"),
        ] {
            if let Some(note) = note {
                self.scope.publish(NewEvent {
                    severity: Severity::Normal,
                    reason,
                    action,
                    note,
                });
            }
        }
        notes.next
    }
}

/// What was done, for the log.
fn summary(outcome: &Outcome) -> Option<String> {
    let claimed =
        (outcome.claimed > 0).then(|| format!("adopted or released {}", pods(outcome.claimed)));
    let did: Vec<String> = [
        claimed,
        created_text(outcome.created),
        deleted_text(&outcome.deleted),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!did.is_empty()).then(|| did.join(", "))
}
