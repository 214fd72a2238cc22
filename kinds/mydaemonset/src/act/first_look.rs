//! A live list of the pods that a new object may adopt, before anything is decided about it.
//!
//! The object and the pods come on two watches. If the one of the pods is behind, orphans are missing in the cache, or still
//! have the controller that they had: each of their nodes would get a second pod.

use chrono::{DateTime, Utc};
use kube::api::ListParams;

use super::ownership::is_ours;
use crate::memory::first_look::Look;
use crate::names::{NAME_LABEL, REVISION_LABEL};
use crate::observe::pod::WatchedPod;
use crate::pass::Pass;
use my_operator_kind::manager::MANAGER;
use my_operator_kind::watched::controller;
use wall_clock_controller::reconcile::write::MANAGED_BY;
use wall_clock_controller::reconcile::{Error, Key, read};

/// Pods of one page of the list.
const PAGE: u32 = 500;

/// Returns until when a decision must wait, if it must. A status with a revision says that the first one was made: this
/// list is for new objects only.
pub(crate) async fn wait_for_orphans(
    pass: &Pass<'_>,
    is_new: bool,
) -> Result<Option<DateTime<Utc>>, Error> {
    let look = pass.memory().first_look.state(pass.now);
    match look {
        Look::Later(at) if is_new => return Ok(Some(at)),
        Look::Due if is_new => {}
        _ => return Ok(None),
    }
    let shows_all = shows_all(pass).await?;
    let now = pass.clock();
    let look = &mut pass.memory().first_look;
    if shows_all {
        look.matched();
        return Ok(None);
    }
    look.missed(now);
    Ok(match look.state(now) {
        Look::Later(at) => Some(at),
        Look::Due | Look::Over => Some(now),
    })
}

/// Whether the cache shows each pod with our labels that has no controller, or is controlled by the object.
async fn shows_all(pass: &Pass<'_>) -> Result<bool, Error> {
    let api = pass.api::<WatchedPod>();
    let labels = format!(
        "{MANAGED_BY}={MANAGER},{NAME_LABEL}={},{REVISION_LABEL}",
        pass.key.name
    );
    let mut params = ListParams::default().labels(&labels).limit(PAGE);
    loop {
        let request = api.list_metadata(&params);
        let page = read("list the pods", pass.key, request).await?;
        for pod in page.items {
            let metadata = pod.metadata;
            let owner = controller(metadata.owner_references.as_deref());
            if owner.is_some() && !is_ours(pass, &metadata) {
                continue;
            }
            let owner = owner.map_or("", |owner| owner.uid.as_str());
            let shown = pass.caches.pods.get(&Key::of(&metadata));
            let is_shown = shown.is_some_and(|shown| {
                Some(shown.uid.as_str()) == metadata.uid.as_deref() && shown.owner_uid == owner
            });
            if !is_shown {
                return Ok(false);
            }
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(true);
        }
    }
}
