//! One reconcile pass over one object: observe, decide, act, report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::pods::Done;
use super::revisions::Ensured;
use super::{Controller, ObjectView, ParsedSpec, of_owner, on_node};
use crate::kinds::mydaemonset::crd::{MyDaemonSet, MyDaemonSetStatus, RawMyDaemonSet};
use crate::kinds::mydaemonset::memory::{Memory, created_text, deleted_text};
use crate::kinds::mydaemonset::placement::Eligibility;
use crate::kinds::mydaemonset::pod::Owner;
use crate::kinds::mydaemonset::revision::RevisionView;
use crate::kinds::mydaemonset::rollout::state::RolloutState;
use crate::kinds::mydaemonset::rollout::{Decision, DeleteReason, Known, Revisions, RolloutInput};
use crate::kinds::mydaemonset::status::{self, AUTO_PAUSED, PROGRESSING, StatusInput};
use crate::kinds::mydaemonset::views::{NodeView, PodView};
use my_operator_runtime::reconcile::event::{self, NewEvent, Severity};
use my_operator_runtime::reconcile::{Action, Error, Key, call, condition, if_there, write};

/// Retry interval while a foreign object blocks a name.
const CONFLICT_PAUSE: chrono::TimeDelta = chrono::TimeDelta::seconds(10);

/// The status before a pass, and the object's version that has it.
pub(super) struct Before {
    status: MyDaemonSetStatus,
    version: String,
}

impl Before {
    fn version(&self) -> &str {
        &self.version
    }
}

/// See the module.
pub(super) struct Reconcile<'a> {
    pub(super) this: &'a Controller,
    pub(super) key: &'a Key,
    pub(super) object: &'a ObjectView,
    pub(super) owner: Owner<'a>,
    pub(super) now: DateTime<Utc>,
    memory: Arc<Mutex<Memory>>,
    /// The old revision that was read last in this pass, by its hash.
    pub(super) old_content: tokio::sync::Mutex<Option<(String, Arc<str>)>>,
}

impl<'a> Reconcile<'a> {
    pub(super) fn new(
        this: &'a Controller,
        key: &'a Key,
        object: &'a ObjectView,
        now: DateTime<Utc>,
    ) -> Self {
        let pass = Self {
            this,
            key,
            object,
            owner: Owner {
                namespace: &key.namespace,
                name: &key.name,
                uid: &object.uid,
            },
            now,
            memory: this.memory(key),
            old_content: tokio::sync::Mutex::default(),
        };
        let mut memory = pass.memory();
        if memory.uid != object.uid {
            *memory = Memory::new(&object.uid);
        }
        drop(memory);
        pass
    }

    /// Runs the pass.
    pub(super) async fn run(self) -> Result<Action, Error> {
        if self.is_behind() {
            return Ok(Action {
                requeue_at: Some(self.now + CONFLICT_PAUSE),
                did: None,
            });
        }
        match &self.object.parsed {
            Ok(parsed) => self.at(parsed).await,
            Err(faults) => {
                let before = self.before();
                let generation = self.object.generation;
                let after = status::rejected(&before.status, generation, faults, self.now);
                Ok(Action {
                    requeue_at: self.write_status(&before, &after).await?,
                    did: None,
                })
            }
        }
    }

    async fn at(&self, parsed: &ParsedSpec) -> Result<Action, Error> {
        let mut done = Done::default();
        let revisions = match self.revisions(parsed, &mut done).await? {
            Ensured::Known(revisions) => revisions,
            Ensured::Conflict(reason) => return self.conflict(&reason).await,
            Ensured::Waiting(revision) => return self.wait_for_deletion(&revision).await,
        };
        self.ask_about_doubts(&mut done).await;
        let before = self.before();
        let (decision, mut current) = self.decide(parsed, &revisions, &before.status);
        self.act(parsed, &revisions, &decision, &mut done).await;
        if decision.observed.complete {
            current.clone_from(&parsed.hash);
        }
        self.prune(parsed, &revisions, &current, &mut done).await;
        let refusal = self.memory().reported().cloned();
        let after = status::next(&StatusInput {
            previous: &before.status,
            generation: self.object.generation,
            observed: &decision.observed,
            strategy: parsed.strategy,
            update: &parsed.hash,
            current: &current,
            refusal: refusal.as_ref(),
            now: self.now,
        });
        self.this.metrics.status(self.key, &after);
        let rests = self
            .memory()
            .status_not_before(decision.observed.desired, self.now);
        let is_pressing = || status::is_pressing(&before.status, &after);
        let rests = rests.filter(|_| before.status != after && !is_pressing());
        let written = match rests {
            Some(_) => Ok(rests),
            None => self.write_status(&before, &after).await,
        };
        let held = written.as_ref().ok().copied().flatten();
        let outcome = self.finish(&decision, done, held);
        written.and(outcome)
    }

    /// What to do, from the nodes that changed since the last pass; and the revision of the last
    /// roll-out that reached every node.
    fn decide(
        &self,
        parsed: &ParsedSpec,
        revisions: &[Arc<RevisionView>],
        before: &MyDaemonSetStatus,
    ) -> (Decision, String) {
        let known = revisions.iter().map(|revision| {
            let known = Known {
                number: revision.number,
                placement: revision.placement.clone(),
            };
            (revision.hash.as_str(), known)
        });
        let known: BTreeMap<&str, Known> = known.collect();
        let update = revisions.iter().find(|r| r.hash == parsed.hash);
        let mut memory = self.memory();
        let mut changed = memory.take_changed(self.now);
        let mut state = match memory.rollout_state.take() {
            Some(state) if state.is_for(&parsed.hash) => state,
            former => {
                changed = self.every_node();
                RolloutState::new(&parsed.hash, former)
            }
        };
        // Nodes that must not have a pod by the current spec.
        let mut idle = Vec::new();
        // Pods without a node belong to the scheduler: ours are created with one, but a backup may
        // restore a copy without it.
        for name in changed.into_iter().filter(|name| !name.is_empty()) {
            let node = self.this.nodes.get(&Key::new("", &name));
            let pods = memory.overlay(&name, self.pods_on(&name));
            if node.is_none() && pods.is_empty() {
                memory.forget_node(&name);
            }
            memory.forget_last(&name, &pods);
            let is_gone = node.is_none() && !pods.is_empty();
            let gone_since = memory.gone_since(&name, is_gone, self.now);
            let may_run =
                |node: &NodeView| parsed.placement.eligibility(node) != Eligibility::Leave;
            if pods.is_empty() && !node.as_deref().is_some_and(may_run) {
                idle.push(name.clone());
            }
            let last = memory.last(&name).cloned();
            state.put(&name, node, pods, last, gone_since);
        }
        // An object without a status may have adopted pods.
        let adopted = || {
            let others = state.revisions().filter(|hash| *hash != parsed.hash);
            others.max_by_key(|hash| known.get(hash).map(|known| known.number))
        };
        let current = before.current_revision.as_deref().or_else(adopted);
        let current = current.unwrap_or(&parsed.hash).to_owned();
        let decision = state.decide(&RolloutInput {
            placement: &parsed.placement,
            strategy: parsed.strategy,
            revisions: Revisions {
                update: &parsed.hash,
                update_since: update.map(|r| r.since).unwrap_or_default(),
                current: &current,
                known: &known,
            },
            grace: self.this.context.node_not_ready_grace,
            failures: memory.failures,
            validated: memory.is_validated(&parsed.hash),
            auto_paused: was_stopped(before, &parsed.hash),
            resumed: self.object.resume.as_deref() == Some(&parsed.hash),
            now: self.now,
        });
        memory.rollout_state = Some(state);
        // Where nothing is held, no node gets its own revision again. Without this, it would be
        // remembered as long as the node exists.
        let strategy = &parsed.strategy;
        if !strategy.paused && strategy.partition == 0 && !decision.observed.auto_paused {
            for node in idle {
                memory.clear_last(&node);
            }
        }
        (decision, current)
    }

    /// The names of all nodes, and of those with pods of the object.
    fn every_node(&self) -> BTreeSet<Box<str>> {
        let nodes = self.this.nodes.all();
        let mut names: BTreeSet<Box<str>> = nodes.iter().map(|n| n.name.as_str().into()).collect();
        for uid in [self.object.uid.as_str(), ""] {
            let pods = self.this.pods.find(&of_owner(&self.key.name, uid));
            names.extend(pods.iter().map(|pod| Box::from(pod.node.as_str())));
        }
        names
    }

    /// The object's pods on a node, and those that it might adopt.
    pub(super) fn pods_on(&self, node: &str) -> Vec<Arc<PodView>> {
        let pods = self.this.pods.find_with_keys(&on_node(node));
        let is_ours = |key: &Key, pod: &PodView| {
            pod.owner_uid == self.object.uid
                || (pod.is_orphan()
                    && *pod.owner == *self.key.name
                    && key.namespace == self.key.namespace)
        };
        pods.into_iter()
            .filter(|(key, pod)| is_ours(key, pod))
            .map(|(_, pod)| pod)
            .collect()
    }

    /// Reports that the revision of the current spec cannot be stored, and does nothing else.
    async fn conflict(&self, reason: &str) -> Result<Action, Error> {
        let before = self.before();
        let generation = self.object.generation;
        let after = status::conflicting(&before.status, generation, reason, self.now);
        self.write_status(&before, &after).await?;
        Ok(Action {
            requeue_at: Some(self.now + CONFLICT_PAUSE),
            did: None,
        })
    }

    /// Reports that the current revision waits for the deletion of one with the same name, which the watch delivers.
    async fn wait_for_deletion(&self, revision: &str) -> Result<Action, Error> {
        let before = self.before();
        let generation = self.object.generation;
        let after = status::waiting(&before.status, generation, revision, self.now);
        self.write_status(&before, &after).await?;
        Ok(Action {
            requeue_at: Some(self.now + CONFLICT_PAUSE),
            did: None,
        })
    }

    /// Publishes what was done, and returns when to reconcile again. The status is not written before `held`.
    fn finish(
        &self,
        decision: &Decision,
        done: Done,
        held: Option<DateTime<Utc>>,
    ) -> Result<Action, Error> {
        let (created, deleted, events_at, check, refused) = {
            let mut memory = self.memory();
            memory.count(done.created, done.deleted.iter().copied());
            let failed = done
                .deleted
                .iter()
                .filter(|reason| **reason == DeleteReason::Failed);
            self.this.metrics.pods_failed(failed.count());
            let (created, deleted, next) = memory.due_notes(self.now);
            let refused = memory.backoff_ends(self.now);
            (created, deleted, next, memory.next_check(), refused)
        };
        for (note, reason, action) in [
            (created, "PodsCreated", "CreatePods"),
            (deleted, "PodsDeleted", "DeletePods"),
        ] {
            if let Some(note) = note {
                let severity = Severity::Normal;
                self.publish(NewEvent {
                    severity,
                    reason,
                    action,
                    note,
                });
            }
        }
        if let Some(error) = done.error {
            return Err(error);
        }
        let mut deletions = BTreeMap::new();
        for reason in done.deleted {
            *deletions.entry(reason).or_default() += 1;
        }
        let claimed = (done.claimed > 0).then(|| format!("changed the owner of {}", done.claimed));
        let did: Vec<String> = [
            claimed,
            created_text(done.created),
            deleted_text(&deletions),
        ]
        .into_iter()
        .flatten()
        .collect();
        let at_once = done.more.then_some(self.now);
        Ok(Action {
            requeue_at: [decision.next, events_at, check, refused, at_once, held]
                .into_iter()
                .flatten()
                .min(),
            did: (!did.is_empty()).then(|| did.join(", ")),
        })
    }

    /// Whether the cache shows an older spec than the last status did: the watch has just restarted
    /// at an API server that lags. A status for the older spec, written with the version of that
    /// status, would replace it.
    fn is_behind(&self) -> bool {
        let before = self.before();
        before.version != self.object.version
            && before.status.observed_generation > self.object.generation
    }

    /// The status before: the last one written, as long as the watch has not shown it.
    fn before(&self) -> Arc<Before> {
        let cached = Arc::new(Before {
            status: self.object.status.clone(),
            version: self.object.version.clone(),
        });
        let own = &self.this.own;
        let newer = own.newer(self.key, Some(cached.clone()), Before::version);
        newer.unwrap_or(cached)
    }

    /// Writes the status if it changed, and publishes the Events of the change. Returns when it may
    /// be written, if not now.
    async fn write_status(
        &self,
        before: &Before,
        after: &MyDaemonSetStatus,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        if before.status == *after {
            return Ok(None);
        }
        let generation = self.object.generation;
        let not_before = self.memory().statuses.not_before(generation, self.now);
        if not_before.is_some() {
            return Ok(not_before);
        }
        let patch = json!({
            "metadata": {"uid": self.object.uid, "resourceVersion": before.version},
            "status": after,
        });
        let params = write::patch_params();
        let api = self.api::<RawMyDaemonSet>();
        let patch = Patch::Merge(&patch);
        let request = api.patch_status(&self.key.name, &params, &patch);
        let Some(written) = if_there(call("write the status", self.key, request).await)? else {
            // A deleted object needs no status.
            return Ok(None);
        };
        let version = written.metadata.resource_version.unwrap_or_default();
        let status = after.clone();
        let own = Arc::new(Before {
            status,
            version: version.clone(),
        });
        self.this.own.put(self.key, &version, own);
        let mut memory = self.memory();
        memory.written = Some(self.now);
        let (read, wrote) = ((&before.status, before.version()), (after, &*version));
        memory.statuses.wrote(generation, read, wrote, self.now);
        drop(memory);
        self.count(&before.status, after);
        for event in status::events(&before.status, after) {
            self.publish(event);
        }
        Ok(None)
    }

    /// Counts what the change of the status means.
    fn count(&self, before: &MyDaemonSetStatus, after: &MyDaemonSetStatus) {
        let metrics = &self.this.metrics;
        let (Some(old), Some(new)) = (&before.current_revision, &after.current_revision) else {
            return;
        };
        if old != new {
            let revisions = self.this.revisions.find(&self.object.uid);
            if let Some(revision) = revisions.iter().find(|r| r.hash == *new) {
                metrics.rollout_ended((self.now - revision.since).as_seconds_f64().max(0.0));
            }
        }
        let update = after.update_revision.as_deref().unwrap_or_default();
        if was_stopped(after, update) && !was_stopped(before, update) {
            metrics.auto_paused();
        }
    }

    fn publish(&self, event: NewEvent) {
        let about = event::about::<MyDaemonSet>(self.key, &self.object.uid);
        self.this.context.events.publish(about, event);
    }

    /// What is remembered of the object. Must not be held across a call.
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.this.context.client.clone(), &self.key.namespace)
    }
}

/// Whether the roll-out of that revision was stopped because of failing nodes.
fn was_stopped(status: &MyDaemonSetStatus, update: &str) -> bool {
    let progressing = condition::get(&status.conditions, PROGRESSING);
    status.update_revision.as_deref() == Some(update)
        && progressing.is_some_and(|c| c.reason == AUTO_PAUSED)
}
