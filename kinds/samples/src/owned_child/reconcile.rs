//! One pass over an object: observe, decide, act, report.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Resource as _;
use serde_json::Value;

use super::act::{Calls, ChildWrite, conflicting_list_patch, write_status};
use super::body::{body, hash};
use super::decide::{Cleanup, Decision, Observed, decide, decide_cleanup};
use super::known_child::KnownChild;
use super::memory::{Memory, Write};
use super::observe::Watches;
use super::parent::{
    Creation, Desired, Done, DriftPolicy, Lifecycle, ObjectOf, Owner, Parent, StatusOf, Trouble,
};
use super::status;
use super::view::{ChildView, ParentView};
use admission_rules::faults::Fault;
use admission_rules::rules::decode_and_validate;
use wall_clock_controller::reconcile::event::{self, NewEvent};
use wall_clock_controller::reconcile::{Action, Context, Error, Key, Reconciler};

/// Above the step count of any path through the decision (7), so that a bug cannot become a hot loop.
const MAX_STEPS: usize = 12;

/// The reconciler of a kind.
pub(crate) struct ChildReconciler<P> {
    context: Context,
    watches: Watches,
    kind: PhantomData<fn() -> P>,
}

impl<P: Parent> ChildReconciler<P> {
    pub(crate) fn new(context: Context, watches: Watches) -> Self {
        Self {
            context,
            watches,
            kind: PhantomData,
        }
    }

    fn now(&self) -> DateTime<Utc> {
        (self.context.clock)()
    }

    fn publish(&self, object: &Key, uid: &str, events: impl IntoIterator<Item = NewEvent>) {
        for event in events {
            let about = event::about::<ObjectOf<P>>(object, uid);
            self.context.events.publish(about, event);
        }
    }

    /// Reports an invalid spec. The child stays as it is.
    async fn reject(
        &self,
        key: &Key,
        parent: &ParentView,
        before: &StatusOf<P>,
        faults: &[Fault],
    ) -> Result<Action, Error> {
        let (after, event) = status::rejected::<P>(parent, before, faults, self.now());
        if *before != after {
            write_status::<P>(&self.context.client, key, parent, &after).await?;
        }
        self.publish(key, &parent.uid, event);
        Ok(Action::default())
    }
}

impl<P: Parent> Reconciler for ChildReconciler<P> {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(parent) = self.watches.caches.parents.get(key) else {
            self.watches.memories.forget(key);
            return Ok(Action::gone());
        };
        if parent.deleting {
            // The garbage collector deletes or orphans the child by its owner reference.
            return Ok(Action::default());
        }
        let status =
            P::Lifecycle::read_status(parent.status.text()).map_err(|error| Error::Unreadable {
                object: key.clone(),
                reason: format!("its status is not one that this program wrote: {error}"),
            })?;
        // No kind with a child has rules about annotations.
        let (name, none) = (&*key.name, BTreeMap::new());
        match decode_and_validate::<P::Rules>(name, &none, parent.spec.text(), self.now()) {
            Err(faults) => self.reject(key, &parent, &status, &faults).await,
            Ok(spec) => {
                let owner = Owner {
                    key,
                    uid: &parent.uid,
                    generation: parent.generation,
                    spec: &spec,
                    status: &status,
                };
                Pass::new(self, &parent, &owner).run().await
            }
        }
    }
}

/// One pass over an object with a valid spec.
struct Pass<'a, P: Parent> {
    this: &'a ChildReconciler<P>,
    parent: &'a ParentView,
    owner: &'a Owner<'a, P>,
    calls: Calls<'a, P>,
    want: Desired,
    /// The child as it is sent to the API server, and the hash of that.
    body: Value,
    wanted: u64,
    /// What was done, for the log.
    did: Vec<String>,
    /// What is in the way.
    trouble: Option<Trouble>,
    requeue_at: Option<DateTime<Utc>>,
}

/// What is left to do in a pass.
enum Ended {
    /// Report on the child, if the object controls it.
    Settled(Option<Arc<ChildView>>),
    /// Nothing: the object is gone or has a newer spec, which the watch will deliver.
    Outdated,
}

impl<'a, P: Parent> Pass<'a, P> {
    fn new(this: &'a ChildReconciler<P>, parent: &'a ParentView, owner: &'a Owner<'a, P>) -> Self {
        let memories = &this.watches.memories;
        memories.with(owner.key, |memory| memory.sync(owner.uid, owner.generation));
        let want = P::desired(owner);
        let (client, body) = (&this.context.client, body(owner, &want));
        Self {
            this,
            parent,
            owner,
            calls: Calls { client, owner },
            want,
            wanted: hash(&body),
            body,
            did: Vec::new(),
            trouble: None,
            requeue_at: None,
        }
    }

    async fn run(mut self) -> Result<Action, Error> {
        let result = match self.ensure_child().await {
            Ok(Ended::Settled(child)) => self.report(child.as_deref()).await,
            Ok(Ended::Outdated) => Ok(()),
            Err(error) => Err(error),
        };
        let did = (!self.did.is_empty()).then(|| self.did.join(", "));
        match (result, did) {
            (Ok(()), did) => Ok(Action {
                requeue_at: self.requeue_at,
                did,
                ..Action::default()
            }),
            // Log what was done, even if a later call failed: the runner logs the error alone.
            (Err(error), Some(did)) => {
                tracing::info!(
                    controller = P::NAME,
                    namespace = &*self.owner.key.namespace,
                    name = &*self.owner.key.name,
                    "{did}"
                );
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Brings the child to the desired state as far as possible: decides, makes the one call that
    /// was decided, and decides again on its outcome.
    async fn ensure_child(&mut self) -> Result<Ended, Error> {
        let mut child = self.cached_child();
        for _ in 0..MAX_STEPS {
            match self.decide(&child) {
                Decision::GetLive => {
                    child.was_read(self.calls.get_live(&self.want.name).await?);
                }
                Decision::ReplaceList(patch) => {
                    if let Some(present) = child.child() {
                        let replaced = self.calls.replace_list(present, patch).await?;
                        child.list_was_replaced(replaced);
                    }
                }
                decision @ (Decision::Create | Decision::Apply | Decision::Adopt) => {
                    if !self.is_safe_to(&decision, &child).await? {
                        return Ok(Ended::Outdated);
                    }
                    self.write(&mut child).await;
                }
                Decision::UpToDate => return self.clean_up(&child).await,
                Decision::WaitUntil(until) => {
                    self.requeue_at = Some(until);
                    self.trouble = self.memory(|memory| memory.trouble.clone());
                    return Ok(Ended::Settled(self.own(&child)));
                }
                Decision::Refused(message) => {
                    self.back_off(status::refused(message));
                    return Ok(Ended::Settled(self.own(&child)));
                }
                Decision::Conflict { watched } => {
                    let trouble = status::conflict::<P>(&self.want.name);
                    self.wait_for(&child, trouble, watched);
                    return Ok(Ended::Settled(None));
                }
                Decision::AwaitEnd { watched } => {
                    let trouble = status::terminating::<P>(&self.want.name);
                    // A child that is not created again blocks nothing.
                    if self.creation() != Creation::Never {
                        self.wait_for(&child, trouble, watched);
                    }
                    return Ok(Ended::Settled(self.own(&child)));
                }
                Decision::Fail => return Err(child.into_error().unwrap_or(self.no_end())),
            }
        }
        Err(self.no_end())
    }

    /// The child as the cache has it. One that the watch has not caught up with is left out: it
    /// would look like drift.
    fn cached_child(&self) -> KnownChild {
        let cached = self.this.watches.caches.children.get(&self.child_key());
        let is_ahead = |child: &Arc<ChildView>| self.memory(|memory| memory.is_ahead_of(child));
        KnownChild::cached(cached.filter(|child| !is_ahead(child)))
    }

    fn decide(&self, known: &KnownChild) -> Decision {
        let found = known.found();
        let owner = self.owner;
        let now = self.this.now();
        let (applied, own, not_before) = self.memory(|memory| {
            memory.observed(found, |child| owner.controls(child));
            let not_before = memory.writes.not_before(now);
            (memory.applied, memory.own.clone(), not_before)
        });
        decide(&Observed {
            uid: owner.uid,
            name: &owner.key.name,
            wanted: self.wanted,
            create: self.creation() != Creation::Never,
            policy: &self.policy(known),
            found,
            failed: known.failed(),
            applied,
            known: own.as_ref() == Some(&self.want.name),
            not_before,
        })
    }

    fn policy(&self, known: &KnownChild) -> DriftPolicy {
        let child = known.child();
        child.map_or(DriftPolicy::Equal, |child| {
            P::Lifecycle::drift_policy(self.owner, child)
        })
    }

    /// Whether the write would still be for this object. The object's watch may lag behind the
    /// child's: a child created or adopted for an object that is gone would start pods and then be
    /// garbage-collected, and a resumed Job would run what the spec no longer says. So the object is
    /// read live first. An apply to a child of this object starts nothing that does not run already.
    async fn is_safe_to(&self, decision: &Decision, known: &KnownChild) -> Result<bool, Error> {
        let is_patch = matches!(self.policy(known), DriftPolicy::Patch(_));
        if *decision == Decision::Apply && !is_patch {
            return Ok(true);
        }
        self.calls.is_current().await
    }

    /// Writes the child. What that led to is in `known`.
    async fn write(&mut self, known: &mut KnownChild) {
        let policy = self.policy(known);
        let write = ChildWrite {
            name: &self.want.name,
            body: &self.body,
            present: known.child().map(|child| &**child),
            creation: self.creation(),
            policy: &policy,
            is_first: self.memory(|memory| memory.applied.is_none()),
        };
        match self.calls.write(&write).await {
            Err(error) => known.write_failed(error, conflicting_list_patch::<P>),
            Ok(after) => {
                let is_patch = matches!(policy, DriftPolicy::Patch(_));
                let before = known.was_written(after.clone());
                self.record_write(before.as_deref(), &after, is_patch);
            }
        }
    }

    /// Remembers what was written, and records what it changed.
    fn record_write(&mut self, before: Option<&ChildView>, after: &ChildView, is_patch: bool) {
        let now = self.this.now();
        let write = Write {
            body: self.wanted,
            before,
            after,
            is_patch,
        };
        let what = match self.memory(|memory| memory.wrote(&write, now)) {
            Done::Nothing if is_patch => "changed",
            Done::Nothing => return,
            Done::Created => "created",
            Done::Changed => "changed",
            Done::Restored => "restored",
        };
        let did = format!("{what} {} {}", P::Child::kind(&()), self.want.name);
        self.did.push(did);
    }

    /// Records what blocks writes to the child. The next attempt waits for the backoff.
    fn back_off(&mut self, trouble: Trouble) {
        let now = self.this.now();
        self.trouble = Some(trouble.clone());
        self.requeue_at = Some(self.memory(|memory| memory.failed(trouble, now)));
    }

    /// Records that another object's child, or one that is being deleted, has the name. The watch
    /// requeues the object when that child changes, if the watch has it; otherwise the object looks
    /// again with backoff.
    fn wait_for(&mut self, known: &KnownChild, trouble: Trouble, watched: bool) {
        if !watched {
            self.back_off(trouble);
            return;
        }
        self.trouble = Some(trouble);
        let Watches {
            caches,
            memories,
            queue,
        } = &self.this.watches;
        let child = self.child_key();
        memories.wait_for(&child, self.owner.key);
        // The child may have changed before this object was registered.
        let cached = caches.children.get(&child);
        let version = |child: &Arc<ChildView>| child.version.clone();
        if cached.as_ref().map(version) != known.child().map(version) {
            queue.add(self.owner.key.clone());
        }
    }

    /// Ends a pass whose child is as desired: deletes children of earlier names.
    async fn clean_up(&mut self, known: &KnownChild) -> Result<Ended, Error> {
        self.memory(|memory| memory.trouble = None);
        let own = self.own(known);
        if let Some(present) = &own
            && !self.delete_earlier(present).await?
        {
            return Ok(Ended::Outdated);
        }
        Ok(Ended::Settled(own))
    }

    /// Deletes the object's children of other names. Returns whether the spec is still current.
    async fn delete_earlier(&mut self, present: &ChildView) -> Result<bool, Error> {
        let now = self.this.now();
        let caches = &self.this.watches.caches;
        let others = caches.earlier_children(self.owner, present);
        let not_before = self.memory(|memory| memory.deletions.not_before(now));
        match decide_cleanup(others.len(), not_before) {
            Cleanup::Nothing => {}
            Cleanup::WaitUntil(until) => {
                self.requeue_at = Some(until);
                return Ok(true);
            }
            Cleanup::Delete => {
                // By an outdated spec, the child of the current spec would be one of the others.
                if !self.calls.is_current().await? {
                    return Ok(false);
                }
            }
        }
        let mut leftover = None;
        for other in others {
            leftover = self.delete(&other).await?.or(leftover);
        }
        self.requeue_at = self.memory(|memory| memory.tried_to_delete(leftover, now));
        Ok(true)
    }

    /// Deletes a child. Returns why not, if the API server rejects that.
    async fn delete(&mut self, other: &ChildView) -> Result<Option<Trouble>, Error> {
        match self.calls.delete(other).await {
            Ok(true) => {
                let event = status::deleted_event::<P>(&other.name);
                self.this.publish(self.owner.key, self.owner.uid, [event]);
                let did = format!("deleted {} {}", P::Child::kind(&()), other.name);
                self.did.push(did);
                Ok(None)
            }
            Ok(false) => Ok(None),
            Err(error) => match error.refusal() {
                Some(rejection) => Ok(Some(status::not_deleted::<P>(&other.name, rejection))),
                None => Err(error),
            },
        }
    }

    /// Writes the status if it has changed, then publishes the Events.
    async fn report(&mut self, child: Option<&ChildView>) -> Result<(), Error> {
        let (this, owner) = (self.this, self.owner);
        let now = this.now();
        let (done, contested_until, leftover) = self.memory(|memory| {
            let contested_until = memory.writes.contested_until(now);
            (memory.unpublished, contested_until, memory.leftover.clone())
        });
        let next = status::next(status::Input {
            owner,
            name: &self.want.name,
            child,
            pods: &this.watches.caches.pods_of(owner.key),
            done,
            trouble: self.trouble.take(),
            contested_until,
            leftover,
            now,
        });
        self.requeue_no_later_than(next.requeue_at);
        let mut version = None;
        if *owner.status != next.status {
            // Another operator may be writing another status each time that we write ours.
            let until = self.memory(|memory| memory.statuses.not_before(owner.generation, now));
            if until.is_some() {
                self.requeue_no_later_than(until);
                return Ok(());
            }
            let client = &this.context.client;
            version = write_status::<P>(client, owner.key, self.parent, &next.status).await?;
        }
        self.memory(|memory| {
            // Cleared only now: if the write above fails, the next reconcile publishes it.
            memory.unpublished = Done::Nothing;
            if let Some(version) = version {
                let before = (owner.status, self.parent.version.as_str());
                let after = (&next.status, version.as_str());
                let statuses = &mut memory.statuses;
                statuses.wrote(owner.generation, before, after, now);
            }
        });
        this.publish(owner.key, owner.uid, next.events);
        Ok(())
    }

    fn requeue_no_later_than(&mut self, time: Option<DateTime<Utc>>) {
        self.requeue_at = self.requeue_at.into_iter().chain(time).min();
    }

    fn memory<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        self.this.watches.memories.with(self.owner.key, change)
    }

    fn creation(&self) -> Creation {
        P::Lifecycle::creation(self.owner)
    }

    fn child_key(&self) -> Key {
        Key::new(&self.owner.key.namespace, &self.want.name)
    }

    /// The child, if the object controls it.
    fn own(&self, known: &KnownChild) -> Option<Arc<ChildView>> {
        let child = known.child().filter(|child| self.owner.controls(child));
        child.cloned()
    }

    fn no_end(&self) -> Error {
        Error::DidNotConverge {
            object: self.owner.key.clone(),
            steps: MAX_STEPS,
        }
    }
}
