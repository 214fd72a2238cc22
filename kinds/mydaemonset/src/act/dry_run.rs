//! Asks the API server what it would make of a pod.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::create_pod::PodCreator;
use super::failure::Failure;
use super::outcome::Outcome;
use super::ownership::is_shown;
use crate::decide::decision::Create;
use crate::names::pod_name;
use crate::observe::pod::WatchedPod;
use crate::pod;
use my_operator_kind::manager::MANAGER;
use wall_clock_controller::reconcile::{Error, call, raw, write};

/// A pod as it would be created.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AdmittedPod {
    #[serde(deserialize_with = "raw::metadata")]
    metadata: ObjectMeta,
    spec: Map<String, Value>,
}

/// Dry-runs the creation of a pod, and records what the API server makes of it. Returns whether pods of its revision belong
/// on other nodes than was known: then the last decision was based on a wrong assumption.
pub(super) async fn dry_run(
    creator: &PodCreator<'_>,
    create: &Create,
    outcome: &mut Outcome,
) -> Result<bool, Failure> {
    let pass = creator.pass();
    let Some(content) = creator.content(create).await? else {
        return Ok(false);
    };
    // A name that no pod has: one that the cache does not show yet would be the answer.
    let name = pod_name(&create.node, &pass.object.uid, "");
    let body = pod::request(pass.owner(), create, &name, &content);
    let (client, namespace) = (&pass.context.client, &pass.key.namespace);
    let request = write::would_create::<WatchedPod, AdmittedPod>(client, namespace, body, MANAGER);
    let template = creator.template_placement(create);
    let placement = match call("try to create a pod", pass.key, request).await {
        Ok(pod) if !is_shown(pass, &pod.metadata) => {
            return Err(Failure::labels_changed(&pass.key.name));
        }
        Ok(pod) => Some(template.admitted(&pod.spec)),
        // The old pod frees its place in the quota.
        Err(error) if is_over_quota(&error) => None,
        Err(error) => return Err(Failure::not_created(error, &name, &create.node)),
    };
    // Mostly that of the template, which is kept anyway.
    let shared = |placement| {
        if placement == **template {
            template.clone()
        } else {
            Arc::new(placement)
        }
    };
    let placement = placement.map(shared);
    let mut memory = pass.memory();
    let known = memory.acceptance.placement(&create.revision, template);
    let is_news = placement.as_ref().is_some_and(|it| it != known);
    if is_news {
        memory.rollout = None;
        (outcome.decides_anew, outcome.more) = (true, true);
    }
    memory.acceptance.accepted(&create.revision, placement);
    Ok(is_news)
}

/// Whether a quota is exhausted. The API shows that only by these words.
fn is_over_quota(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(|status| status.code == 403 && status.message.contains("exceeded quota"))
}
