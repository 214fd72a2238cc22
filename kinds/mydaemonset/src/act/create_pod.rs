//! Creates one pod.

use std::sync::Arc;

use kube::core::{ObjectMeta, PartialObjectMeta};
use tokio::sync::Mutex;

use super::failure::{Failure, answer, done_or_gone, is_already_there};
use super::ownership::{is_ours, is_shown, release_unlabelled};
use crate::decide::decision::Create;
use crate::decide::placement::Placement;
use crate::memory::belief::Answer;
use crate::memory::nodes::Written;
use crate::names::{REVISION_LABEL, pod_name};
use crate::observe::pod::{PodView, WatchedPod};
use crate::pass::Pass;
use crate::pod;
use crate::revision::{self, RevisionView, WatchedRevision};
use crate::status::FAILED_CREATE;
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::{Error, call, if_there, read, write};

/// The outcome of an attempt to create one pod.
pub(super) enum Made {
    Pod,
    /// Nothing to report: the pod exists, or its object or node is gone.
    Nothing,
    Not(Failure),
}

/// Whether the pod comes next to an old one: that is a step of the roll-out, and uses up a limit.
pub(super) fn surges(pass: &Pass<'_>, create: &Create) -> bool {
    pass.pods_on(&create.node).iter().any(|pod| pod.is_live())
}

/// Creates the pods of one pass.
pub(super) struct PodCreator<'a> {
    pass: &'a Pass<'a>,
    revisions: &'a [Arc<RevisionView>],
    /// The old revision that was read last in this pass, by its hash.
    old_content: Mutex<Option<(String, Arc<str>)>>,
}

impl<'a> PodCreator<'a> {
    pub(super) fn new(pass: &'a Pass<'a>, revisions: &'a [Arc<RevisionView>]) -> Self {
        Self {
            pass,
            revisions,
            old_content: Mutex::default(),
        }
    }

    pub(super) fn pass(&self) -> &'a Pass<'a> {
        self.pass
    }

    pub(super) async fn create(&self, create: &Create) -> Made {
        let pass = self.pass;
        let content = match self.content(create).await {
            Ok(Some(content)) => content,
            Ok(None) => return Made::Nothing,
            Err(failure) => return Made::Not(failure),
        };
        let name = pod_name(&create.node, &pass.object.uid, &create.revision);
        let body = pod::request(pass.owner(), create, &name, &content);
        // As a deletion by a roll-out.
        let is_step = surges(pass, create);
        if !pass.may_go_on(is_step) {
            return Made::Nothing;
        }
        let _limited = is_step.then(|| pass.context.limited.token());
        // Before the call: the watch may show the pod before the answer arrives.
        let expected = Written::Created(Arc::new(self.expected(create, &name)));
        let now = pass.clock();
        let was_unanswered = pass.memory().nodes.begins(expected.clone(), now);
        let (client, namespace) = (&pass.context.client, &pass.key.namespace);
        let request = write::create::<WatchedPod, WatchedPod>(client, namespace, body, MANAGER);
        let (answer, made) = match call("create a pod", pass.key, request).await {
            Ok(pod) if is_shown(pass, &pod.metadata) => (Answer::Done, Made::Pod),
            Ok(pod) => self.delete_unlabelled(create, &pod.metadata).await,
            Err(error) if is_already_there(&error) => {
                let there = self.already_there(create, &name, was_unanswered, error);
                there.await
            }
            Err(error) => {
                let answer = answer(&error);
                let failure = Failure::not_created(error, &name, &create.node);
                (answer, Made::Not(failure))
            }
        };
        let (generation, now) = (pass.object.generation, pass.clock());
        let mut memory = pass.memory();
        let nodes = &mut memory.nodes;
        nodes.answered(&expected, answer, generation, now);
        if matches!(made, Made::Pod) {
            memory.acceptance.relabelled = false;
        }
        made
    }

    /// The pod as the watch will show it.
    fn expected(&self, create: &Create, name: &str) -> PodView {
        let pass = self.pass;
        PodView {
            name: name.to_owned(),
            owner: pass.key.name.to_string(),
            owner_uid: pass.object.uid.clone(),
            node: create.node.clone(),
            revision: create.revision.clone(),
            attempt: create.attempt,
            predecessor: create.predecessor,
            created: pass.now,
            ..PodView::default()
        }
    }

    /// Whether a dry run must come first.
    pub(super) fn must_ask(&self, create: &Create) -> bool {
        self.pass.memory().acceptance.must_ask(&create.revision)
    }

    /// Which nodes a pod belongs on by its template.
    pub(super) fn template_placement(&self, create: &Create) -> &Arc<Placement> {
        let revision = self.revisions.iter().find(|r| r.hash == create.revision);
        revision.map_or(&self.pass.spec.placement, |revision| &revision.placement)
    }

    /// The content of a pod's revision in its canonical form; `None` if the revision does not exist.
    pub(super) async fn content(&self, create: &Create) -> Result<Option<Arc<str>>, Failure> {
        let (pass, hash) = (self.pass, &create.revision);
        if let Some(canonical) = &pass.spec.canonical
            && *hash == pass.spec.hash
        {
            return Ok(Some(canonical.clone()));
        }
        let Some(revision) = self.revisions.iter().find(|r| r.hash == *hash) else {
            return Ok(None);
        };
        // One reader at a time: the pods of a pass are mostly of one revision.
        let mut last = self.old_content.lock().await;
        if let Some((kept, content)) = &*last
            && kept == hash
        {
            return Ok(Some(content.clone()));
        }
        let api = pass.api::<WatchedRevision>();
        let there = if_there(read("read a revision", pass.key, api.get(&revision.name)).await);
        let failed = |error| Failure::new(error, None, FAILED_CREATE, hash, Some(&create.node));
        let there = there.map_err(failed)?;
        let content = there.and_then(|there| there.canonical());
        let content = content.filter(|content| revision::hash(content) == *hash);
        let content: Option<Arc<str>> = content.map(Into::into);
        *last = content.clone().map(|content| (hash.clone(), content));
        Ok(content)
    }

    /// Deletes a pod whose labels an admission webhook replaced: no watch would show it, so it would stay unmanaged.
    async fn delete_unlabelled(&self, create: &Create, metadata: &ObjectMeta) -> (Answer, Made) {
        let pass = self.pass;
        pass.memory().acceptance.relabelled = true;
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let api = pass.api::<WatchedPod>();
        // With the UID: another pod of that name may have our labels.
        let params = write::only(uid, None);
        let request = api.delete(name, &params);
        let deleted = done_or_gone(call("delete a pod", pass.key, request).await.map(drop));
        let failure = match deleted {
            Ok(()) => Failure::labels_changed(&pass.key.name),
            Err(error) => Failure::not_created(error, name, &create.node),
        };
        (Answer::Refused, Made::Not(failure))
    }

    /// A pod of that name exists: ours, which the watch will show, or a foreign one, which includes
    /// one that lost our labels.
    async fn already_there(
        &self,
        create: &Create,
        name: &str,
        was_unanswered: bool,
        conflict: Error,
    ) -> (Answer, Made) {
        let pass = self.pass;
        let api = pass.api::<WatchedPod>();
        let there = if_there(read("read a pod", pass.key, api.get_metadata(name)).await);
        let failed = |error| Made::Not(Failure::not_created(error, name, &create.node));
        let taken = || Made::Not(Failure::name_taken(name));
        let made = match there {
            Ok(Some(pod)) if is_ours(pass, &pod.metadata) => {
                let is_shown = is_shown(pass, &pod.metadata);
                if !is_shown && was_unanswered {
                    // It never had our labels.
                    return self.delete_unlabelled(create, &pod.metadata).await;
                }
                match release_unlabelled(pass, &pod.metadata).await {
                    Ok(true) => taken(),
                    Ok(false) if label(&pod, REVISION_LABEL) != Some(&create.revision) => taken(),
                    Ok(false) => return (Answer::Done, Made::Nothing),
                    Err(error) => failed(error),
                }
            }
            // It has just been deleted, and no watch shows that.
            Ok(None) => failed(conflict),
            Ok(Some(_)) => taken(),
            Err(error) => failed(error),
        };
        (Answer::Refused, made)
    }
}

fn label<'a>(pod: &'a PartialObjectMeta<WatchedPod>, key: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}
