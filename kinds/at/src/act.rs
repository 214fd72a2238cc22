//! The calls that a decision asks for.
//!
//! Every call carries a precondition, so that the API server rejects a decision on outdated state:
//! the pod's name for a create, the resource version for a status, the UID for a release, UID and
//! resource version for a deletion.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use kube::api::{Patch, WatchEvent, WatchParams};
use kube::core::Status;
use kube::{Api, Client};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::timeout;

use super::caches::{Caches, KnownPod, StoredAt};
use super::crd::{AtObject, AtStatus, Phase};
use super::decide::{Operation, PodVersion, URGENT_BEFORE};
use super::memory::Memory;
use super::observe::{AtView, Call};
use super::pod::names::{GATE, pod_name};
use super::pod::object::PodObject;
use super::pod::view::PodView;
use super::trial::Verdict;
use my_operator_kind::manager::{MANAGER, patch_params};
use resilient_kube_client::clock::Clock;
use wall_clock_controller::reconcile::{Error, call, call_status, if_there, read, write};

/// For how many seconds a watch waits for a deletion that has happened. A watch cache lags by
/// milliseconds.
const FIND_DELETION_WITHIN: u32 = 2;
/// A dry run that takes longer is given up: other Ats wait for the worker.
const MAX_DRY_RUN_CHECKS: usize = 10;
/// How often it is checked during a dry run whether the At is to start earlier now. That start waits no longer than this.
const DRY_RUN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What is known of the pod after the call of a decision.
pub(crate) enum Acted {
    /// The call was carried out: the rest of the decision follows.
    Done {
        pod: KnownPod,
        /// What was done, for the log.
        did: Option<String>,
    },
    /// The call was not carried out because the pod has changed: decide again.
    Outdated(KnownPod),
}

impl Acted {
    fn done(pod: KnownPod, did: String) -> Self {
        let did = Some(did);
        Self::Done { pod, did }
    }
}

impl Verdict {
    /// What a failed dry run shows.
    pub(crate) fn from_error(error: &Error) -> Self {
        let is_final = error.status().is_some_and(|status| status.code < 500);
        // Only these words say that nothing was judged.
        let is_judged = |message: &&str| !message.contains("does not support dry run");
        match error.refusal().filter(is_judged) {
            Some(message) if is_final => Self::Refused(message.to_owned()),
            _ => Self::Unknown,
        }
    }
}

/// A failed call.
pub(crate) struct Failed {
    pub(crate) call: Call,
    pub(crate) error: Error,
}

impl Failed {
    fn new(call: Call, error: Error) -> Self {
        Self { call, error }
    }
}

/// The calls about one At.
pub(crate) struct Calls<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a Clock,
    pub(crate) caches: &'a Caches,
    pub(crate) memory: &'a Memory,
    pub(crate) at: &'a AtView,
}

impl Calls<'_> {
    /// Makes the call of a decision that was based on this pod.
    pub(crate) async fn perform(
        &self,
        operation: Operation,
        observed: KnownPod,
    ) -> Result<Acted, Failed> {
        match operation {
            Operation::Nothing => Ok(Acted::Done {
                pod: observed,
                did: None,
            }),
            Operation::GetLive => Ok(Acted::Done {
                pod: KnownPod::live(self.get_live().await?),
                did: None,
            }),
            Operation::Create(pod) => {
                let body = serde_json::to_vec(&pod);
                // A value tree takes many times the memory of its text, and the call may take long.
                drop(pod);
                self.create(body).await
            }
            Operation::DryRun(pod) => {
                let body = serde_json::to_vec(&pod);
                drop(pod);
                self.dry_run(body).await;
                Ok(Acted::Done {
                    pod: observed,
                    did: None,
                })
            }
            Operation::RemoveGate { uid, gate } => self.release(&uid, gate, &observed).await,
            Operation::DeletePod(version) => self.delete(&version, &observed).await,
            Operation::DeleteAt => {
                let deleted = self.delete_at().await;
                deleted.map_err(|error| Failed::new(Call::DeleteAt, error))?;
                let did = "deleted it: its ttlSecondsAfterFinished has passed".to_owned();
                Ok(Acted::done(observed, did))
            }
        }
    }

    /// Creates the pod. The precondition is its fixed name: at most one create succeeds while a pod
    /// of that name exists, from whichever client and however late.
    async fn create(&self, body: serde_json::Result<Vec<u8>>) -> Result<Acted, Failed> {
        let request = async {
            let body = body.map_err(kube::Error::SerdeError)?;
            let namespace = &self.at.key.namespace;
            write::create::<PodObject, PodObject>(self.client, namespace, body, MANAGER).await
        };
        match call("create the pod", &self.at.key, request).await {
            Ok(pod) => {
                let pod = self.caches.remember_pod(self.at, pod);
                self.memory.record_call_success(self.at, Call::Create);
                let did = "created the pod".to_owned();
                Ok(Acted::done(KnownPod::live(Some(pod)), did))
            }
            // Which pod has the name decides what follows.
            Err(error) if error.status().is_some_and(Status::is_already_exists) => {
                Ok(Acted::Done {
                    pod: KnownPod::live(self.get_live().await?),
                    did: None,
                })
            }
            Err(error) => Err(Failed::new(Call::Create, error)),
        }
    }

    /// Dry-runs the creation of the pod. Whatever comes of it, nothing has failed: the next is made after a pause of its own.
    async fn dry_run(&self, body: serde_json::Result<Vec<u8>>) {
        let request = async {
            let body = body.map_err(kube::Error::SerdeError)?;
            let namespace = &self.at.key.namespace;
            write::would_create::<PodObject, IgnoredAny>(self.client, namespace, body, MANAGER)
                .await
        };
        let answer = call("dry-run the pod", &self.at.key, request);
        let (verdict, asked) = match self.while_waiting(answer).await {
            Some(Ok(_)) => (Verdict::Accepted, None),
            Some(Err(error)) => (Verdict::from_error(&error), error.retry_after()),
            None => (Verdict::Unknown, None),
        };
        self.memory
            .record_trial(self.at, verdict, asked, (self.clock)());
    }

    /// The answer to a call that must not delay the start: none if it takes too long, the At was changed, or a clock that
    /// was set has made it due.
    async fn while_waiting<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        pin_mut!(answer);
        for _ in 0..MAX_DRY_RUN_CHECKS {
            if let Ok(answer) = timeout(DRY_RUN_CHECK_INTERVAL, &mut answer).await {
                return Some(answer);
            }
            let cached = self.caches.ats.get(&self.at.key);
            let is_same = cached.is_some_and(|cached| cached.has_spec_of(self.at));
            let soon = (self.clock)() + URGENT_BEFORE;
            if !is_same || self.at.instant().is_none_or(|instant| instant <= soon) {
                return None;
            }
        }
        None
    }

    /// Releases the recorded pod.
    async fn release(&self, uid: &str, gate: usize, observed: &KnownPod) -> Result<Acted, Failed> {
        match self.remove_gate(uid, gate).await {
            // The answer may show a state that was never stored: an update of a pod whose deletion
            // is half done completes the deletion instead of being stored (ShouldDeleteDuringUpdate
            // in k8s.io/apiserver, registry/generic/registry/store.go).
            Ok(pod) if pod.deleting && !pod.bound => {
                self.caches.forget_pod_of(&self.at.key);
                Ok(Acted::Outdated(KnownPod::live(self.get_live().await?)))
            }
            Ok(pod) => {
                self.memory.record_call_success(self.at, Call::Release);
                let did = format!("released the pod {uid}");
                Ok(Acted::done(self.released_pod(pod), did))
            }
            Err(error) => {
                let code = error.status().map(|status| status.code);
                if !matches!(code, Some(404 | 409)) && error.refusal().is_none() {
                    return Err(Failed::new(Call::Release, error));
                }
                self.after_rejected_release(error, observed).await
            }
        }
    }

    /// The pod after its release. A late answer may show a pod whose end and deletion the watch has
    /// delivered since: the watch will not deliver them again.
    fn released_pod(&self, pod: PodView) -> KnownPod {
        let last = self.memory.get(self.at).sightings.last;
        if last.is_some_and(|last| last.pod.uid == pod.uid && pod.is_older(&last.pod)) {
            self.caches.forget_pod_of(&self.at.key);
            return KnownPod::default();
        }
        KnownPod::live(Some(pod))
    }

    /// A rejected patch failed its precondition, or the API server rejects the release itself. In
    /// the second case the pod is as it was read.
    async fn after_rejected_release(
        &self,
        error: Error,
        observed: &KnownPod,
    ) -> Result<Acted, Failed> {
        let pod = self.get_live().await?;
        if is_same_version(pod.as_ref(), observed.pod.as_deref()) {
            return Err(Failed::new(Call::Release, error));
        }
        Ok(Acted::Outdated(KnownPod::live(pod)))
    }

    /// Removes our gate. The preconditions are the UID, because only the committed pod may ever be
    /// released, and the name of the gate at that index, because another client may have changed
    /// the list: the patch would remove a gate that is not ours.
    async fn remove_gate(&self, uid: &str, gate: usize) -> Result<PodView, Error> {
        let place = format!("/spec/schedulingGates/{gate}");
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": format!("{place}/name"), "value": GATE},
            {"op": "remove", "path": place},
        ]);
        let (api, name, params) = (self.pods(), self.pod_name(), patch_params());
        let request = async {
            let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
            api.patch(&name, &params, &Patch::Json::<()>(patch)).await
        };
        let pod = call("release the pod", &self.at.key, request).await?;
        Ok(self.caches.remember_pod(self.at, pod))
    }

    /// Deletes a pod that has not run, as it was observed.
    async fn delete(&self, version: &PodVersion, observed: &KnownPod) -> Result<Acted, Failed> {
        let deleted = self.delete_pod(version).await;
        if deleted.map_err(|error| Failed::new(Call::Delete, error))? {
            self.memory.record_call_success(self.at, Call::Delete);
            if let Some(pod) = observed.pod.as_deref()
                && self.at.phase() != Phase::Done
            {
                // Now, because a status write that fails may be repeated before the watch shows it.
                let (key, uid) = (&self.at.key, &self.at.uid);
                self.memory.record_pod_deletion(key, uid, pod, true);
            }
            let did = format!("deleted the pod {}", version.uid);
            return Ok(Acted::done(KnownPod::default(), did));
        }
        // A 404 says that there is no such pod. A proxy may send one, too.
        let found = self.get_live().await?;
        if found
            .as_ref()
            .is_some_and(|pod| PodVersion::from_pod(pod) == *version)
        {
            let object = self.at.key.clone();
            let error = Error::DidNotConverge { object, steps: 1 };
            return Err(Failed::new(Call::Delete, error));
        }
        Ok(Acted::Outdated(KnownPod::live(found)))
    }

    /// Deletes the pod if it still has that version. Returns whether it was still there. The
    /// resource version proves that the pod is as it was read: gated, or not bound. By UID alone, a
    /// pod that was released meanwhile would be killed.
    async fn delete_pod(&self, version: &PodVersion) -> Result<bool, Error> {
        let (api, name) = (self.pods(), self.pod_name());
        let params = write::only(&version.uid, Some(&version.resource_version));
        let deleted = call("delete the pod", &self.at.key, api.delete(&name, &params)).await;
        self.caches.forget_pod_of(&self.at.key);
        Ok(if_there(deleted)?.is_some())
    }

    /// Deletes the At if it still has the version that was read: its time to live may have been
    /// changed since, or the name may belong to another At.
    async fn delete_at(&self) -> Result<(), Error> {
        let at = self.at;
        let api = Api::<AtObject>::namespaced(self.client.clone(), &at.key.namespace);
        let params = write::only(&at.uid, Some(&at.resource_version));
        let deleted = call("delete the At", &at.key, api.delete(&at.key.name, &params)).await;
        if_there(deleted).map(drop)
    }

    /// Writes the status if the At still has the version that was read. Returns the stored At.
    ///
    /// The resource version makes the commit one: of all operators that read the At without a pod,
    /// one records its pod, and the others fail.
    pub(crate) async fn write_status(&self, status: &AtStatus) -> Result<Arc<StoredAt>, Error> {
        let at = self.at;
        let request = write::status::<AtObject, _>(
            self.client,
            &at.key,
            &at.uid,
            &at.resource_version,
            status,
            MANAGER,
        );
        let written = call_status::<AtObject, _>(self.client, &at.key, &at.uid, request).await;
        let object = written?;
        let stored = self.caches.remember_at(&at.key, object);
        if status.discarded_pod_uid.is_some() {
            // A CRD of an earlier version prunes the field. The pod would be deleted although
            // another operator may commit it.
            let kept = stored.read(&at.key, (self.clock)())?.status;
            if kept.discarded_pod_uid != status.discarded_pod_uid {
                return Err(Error::OldCrd {
                    object: at.key.clone(),
                    field: "status.discardedPodUID",
                });
            }
        }
        Ok(stored)
    }

    /// Reads the pod live.
    async fn get_live(&self) -> Result<Option<PodView>, Failed> {
        let (api, name) = (self.pods(), self.pod_name());
        let failed = |error| Failed::new(Call::Read, error);
        let pod = if_there(read("read the pod", &self.at.key, api.get(&name)).await);
        let pod = pod.map_err(failed)?.map(PodView::from_object);
        self.find_last_state(pod.as_ref()).await.map_err(failed)?;
        self.memory.record_call_success(self.at, Call::Read);
        Ok(pod)
    }

    /// Records the last state of the recorded pod if that is gone and the announced end depends on
    /// it: an operator that started since has not seen the deletion.
    async fn find_last_state(&self, found: Option<&PodView>) -> Result<(), Error> {
        let at = self.at;
        let announced = at.is_end_announced();
        let Some(uid) = at.status.pod_uid.as_deref().filter(|_| announced) else {
            return Ok(());
        };
        let last = self.memory.get(at).sightings.last;
        let is_known = last.is_some_and(|last| last.certain && last.pod.uid == uid);
        if is_known || found.is_some_and(|pod| pod.uid == uid) {
            return Ok(());
        }
        let step = "find the last state of the pod";
        if let Some(pod) = read(step, &at.key, self.get_deleted(uid)).await? {
            self.memory
                .record_pod_deletion(&at.key, &at.uid, &pod, true);
        }
        Ok(())
    }

    /// The last state of that deleted pod, if the API server still has the deletion in its watch
    /// cache (for 75 s or more: `eventFreshDuration` in k8s.io/apiserver, storage/cacher).
    ///
    /// The announcement was the last write of the At, before the deletion, so a watch from that
    /// version shows it. If it does not, such as after an edit of the At, the state stays unknown.
    /// Nothing is assumed about versions of different resources: only a deletion of that UID counts,
    /// and its event carries the last state.
    async fn get_deleted(&self, uid: &str) -> Result<Option<PodView>, kube::Error> {
        let name = format!("metadata.name={}", self.pod_name());
        let params = WatchParams::default().fields(&name).disable_bookmarks();
        let params = params.timeout(FIND_DELETION_WITHIN);
        let events = self.pods().watch(&params, &self.at.resource_version).await;
        let events = match events {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(None),
            events => events?,
        };
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Deleted(pod) if pod.metadata.uid.as_deref() == Some(uid) => {
                    return Ok(Some(PodView::from_object(pod)));
                }
                // Usually 410: the API server has forgotten that version.
                WatchEvent::Error(_) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    fn pods(&self) -> Api<PodObject> {
        Api::namespaced(self.client.clone(), &self.at.key.namespace)
    }

    fn pod_name(&self) -> String {
        pod_name(&self.at.key.name)
    }
}

fn is_same_version(a: Option<&PodView>, b: Option<&PodView>) -> bool {
    a.zip(b)
        .is_some_and(|(a, b)| a.uid == b.uid && a.resource_version == b.resource_version)
}
