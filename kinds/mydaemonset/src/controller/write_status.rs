//! Writes the status, with the Events and metrics of its change.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use kube::Api;
use kube::api::Patch;
use serde_json::{Map, Value, json};

use crate::crd::{MyDaemonSetStatus, RawMyDaemonSet};
use crate::names::CONTROLLER;
use crate::pass::{Scope, WrittenStatus};
use crate::status::{self, times_stopped};
use my_operator_kind::manager::patch_params;
use wall_clock_controller::reconcile::event::Severity;
use wall_clock_controller::reconcile::{Error, call_status, if_there};

/// How long nothing is done for an object that the API server knows no more. Mostly the watch shows it long before.
const GONE: TimeDelta = TimeDelta::seconds(10);

/// Writes the status of one pass.
pub(super) struct StatusWriter<'a> {
    scope: Scope<'a>,
    before: Arc<WrittenStatus>,
}

impl<'a> StatusWriter<'a> {
    pub(super) fn new(scope: Scope<'a>) -> Self {
        let cached = Arc::new(WrittenStatus {
            status: status::read(&scope.object.status),
            version: scope.object.version.clone(),
        });
        // The last one written, as long as the watch has not shown it.
        let newer = scope
            .statuses
            .newer(scope.key, Some(cached.clone()), WrittenStatus::version);
        Self {
            scope,
            before: newer.unwrap_or(cached),
        }
    }

    /// The status before the pass.
    pub(super) fn before(&self) -> &MyDaemonSetStatus {
        &self.before.status
    }

    /// Whether the cache shows an older spec than the last status did: the watch has just restarted
    /// at an API server that lags. A status for the older spec, written with the version of that
    /// status, would replace it.
    pub(super) fn is_behind(&self) -> bool {
        let object = self.scope.object;
        self.before.version != object.version
            && self.before.status.observed_generation > object.generation
    }

    /// Until when the object counts as gone, although the cache has it. Not if the clock was set back since.
    pub(super) fn gone_until(&self) -> Option<DateTime<Utc>> {
        let now = self.scope.now;
        let until = self.scope.memory.lock().gone_until;
        until.filter(|until| now < *until && *until <= now + GONE)
    }

    /// Writes the status if it changed, and publishes the Events of the change. Returns when it may
    /// be written, if not now.
    pub(super) async fn write(
        &self,
        after: &MyDaemonSetStatus,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let Scope { object, now, .. } = self.scope;
        if self.before.status == *after {
            return Ok(None);
        }
        let generation = object.generation;
        let not_before = self
            .scope
            .memory
            .lock()
            .status
            .contested
            .not_before(generation, now);
        if not_before.is_some() {
            return Ok(not_before);
        }
        let Some(version) = self.patch(after).await? else {
            // A deleted object needs no status, and its pods are not the operator's any more.
            let until = (self.scope.context.clock)() + GONE;
            self.scope.memory.lock().gone_until = Some(until);
            return Ok(Some(until));
        };
        self.remember(after, &version);
        self.count(after);
        for event in status::events(&self.before.status, after, self.again(after)) {
            if event.severity == Severity::Normal {
                let (namespace, name) = (&*self.scope.key.namespace, &*self.scope.key.name);
                tracing::info!(
                    controller = CONTROLLER,
                    namespace,
                    name,
                    note = event.note,
                    "{}",
                    event.reason
                );
            }
            self.scope.publish(event);
        }
        Ok(None)
    }

    /// When the newest revision became the newest again, if it was before.
    fn again(&self, after: &MyDaemonSetStatus) -> Option<DateTime<Utc>> {
        let update = after.update_revision.as_deref()?;
        let revisions = self.scope.revisions();
        let newest = revisions.iter().find(|r| r.again && r.hash == update)?;
        Some(newest.since)
    }

    /// Patches the status. Returns the object's version since, or `None` if the object is gone.
    ///
    /// Not by `write::status`, which replaces the whole status: a merge patch keeps fields that this
    /// version does not know, and needs another permission (`patch`, not `update`). The precondition
    /// is the same, UID and version: a status that another client wrote meanwhile is not overwritten.
    async fn patch(&self, after: &MyDaemonSetStatus) -> Result<Option<String>, Error> {
        let Scope { context, key, .. } = self.scope;
        let (before, mut status) = (json!(self.before.status), json!(after));
        // A merge patch removes only what it names.
        for field in before.as_object().into_iter().flat_map(Map::keys) {
            if status.get(field).is_none() {
                status[field.as_str()] = Value::Null;
            }
        }
        let patch = json!({
            "metadata": {"uid": self.scope.object.uid, "resourceVersion": self.before.version},
            "status": status,
        });
        let params = patch_params();
        let api = Api::<RawMyDaemonSet>::namespaced(context.client.clone(), &key.namespace);
        let patch = Patch::Merge(&patch);
        let request = api.patch_status(&key.name, &params, &patch);
        let (client, uid) = (&context.client, &self.scope.object.uid);
        let written = call_status::<RawMyDaemonSet, _>(client, key, uid, request).await;
        let written = if_there(written)?;
        Ok(written.map(|object| object.metadata.resource_version.unwrap_or_default()))
    }

    /// The status counts as shown until the watch has caught up with it.
    fn remember(&self, after: &MyDaemonSetStatus, version: &str) {
        let (key, now) = (self.scope.key, self.scope.now);
        let read = (&self.before.status, self.before.version.as_str());
        let status = after.clone();
        let written = Arc::new(WrittenStatus {
            status,
            version: version.to_owned(),
        });
        self.scope.statuses.put(key, version, written);
        let pacing = &mut self.scope.memory.lock().status;
        pacing.wrote(self.scope.object.generation, read, (after, version), now);
    }

    /// Counts what the change of the status means.
    fn count(&self, after: &MyDaemonSetStatus) {
        let metrics = self.scope.metrics;
        let before = &self.before.status;
        let (Some(old), Some(new)) = (&before.current_revision, &after.current_revision) else {
            return;
        };
        if old != new {
            let revisions = self.scope.revisions();
            if let Some(revision) = revisions.iter().find(|r| r.hash == *new) {
                let lasted = self.scope.now - revision.since;
                let lasted = lasted.as_seconds_f64().max(0.0);
                metrics.rollout_duration.observe(lasted);
            }
        }
        let update = after.update_revision.as_deref().unwrap_or_default();
        if times_stopped(after, update) > times_stopped(before, update) {
            metrics.auto_pauses.inc();
        }
    }
}
