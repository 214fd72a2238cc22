//! A reconciler for kinds whose objects each own one child, such as a Deployment, which it keeps
//! equal to what the spec says. A kind implements [`Parent`] to say what the child is
//! and what the status shows of it.
//!
//! Invariants for every kind:
//! - The child is created and corrected by server-side apply: the API server itself detects drift.
//!   Fields of others stay, and a field that the spec no longer asks for is removed.
//! - A foreign object of that name is never touched: the condition `Degraded` names it. A child
//!   that we created and that lost its owner reference is adopted again.
//! - A child whose name the spec no longer uses is deleted when its successor exists.
//! - No-op writes are skipped. Conflicting writers, refused writes and name conflicts are retried
//!   with exponential backoff.
//!
//! [`view`] is what the caches hold of parents and children, [`decision`] decides what to do, as a
//! pure function, and [`controller`] does it. [`deployment`] reads what a child Deployment reports
//! about itself.

use std::fmt::Debug;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::shared::pods::PodView;
use my_operator_admission::rules::Rules;

use my_operator_runtime::reconcile::condition::Condition;
use my_operator_runtime::reconcile::event::NewEvent;
use my_operator_runtime::reconcile::{Context, Key};

mod controller;
pub mod decision;
pub mod deployment;
pub mod view;

use view::ChildView;

/// The spec of a kind.
pub type Spec<P> = <<P as Parent>::Rules as Rules>::Spec;
/// The status of a kind.
pub type Status<P> = <<P as Parent>::Rules as Rules>::Status;

/// The child cannot be created or corrected, or is not healthy; reason and message say which.
pub const DEGRADED: &str = "Degraded";

/// A kind whose objects each own one child.
pub trait Parent: Sized + Send + Sync + 'static {
    /// The kind's name in logs and metrics, and the value of the children's label
    /// `app.kubernetes.io/component`.
    const NAME: &'static str;
    /// Reason of `Degraded` and of the Event when a foreign object has the child's name.
    const CONFLICT: &'static str;
    /// Labels of the pods that the kind watches. The value of the first is an object's name. Empty
    /// if it watches no pods.
    const POD_LABELS: &'static [&'static str] = &[];

    /// Whether a child is made by a plain create, which fails if one exists, instead of an apply,
    /// which would change it. For a child that is a run, such as a Job: its creation is published
    /// as an Event, and patches are not.
    const ONCE: bool = false;

    /// The rules, which define the object, its spec and its status.
    type Rules: Rules<
            Object: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send,
            Spec: Debug + Send + Sync,
            Status: Observed,
        >;
    /// The child's type.
    type Child: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Send
        + 'static;

    /// The child that an object asks for. Where two objects can ask for the same name at the same
    /// moment, an immutable field such as a selector must differ, so that the API server rejects
    /// the later one.
    fn child(owner: &Owner<'_, Self>) -> Child;

    /// What to do with an existing child, which the object controls or which is an orphan that we created.
    fn drift_policy(_owner: &Owner<'_, Self>, _child: &ChildView) -> DriftPolicy {
        DriftPolicy::Equal
    }

    /// The patch that makes [`Parent::child`] applicable when the API server rejects this field
    /// because of what others wrote into the child: a strategic merge patch that replaces the list,
    /// if we own every entry of it. The ports of a container are such a list: another entry may
    /// have the name of ours.
    fn replace_conflicting_list(_field: &str) -> Option<Value> {
        None
    }

    /// Writes what is observed into the status, except `observedGeneration` and the conditions
    /// `Accepted` and [`DEGRADED`], which the controller sets.
    fn report(seen: &Seen<'_, Self>, status: &mut Status<Self>) -> Report;

    /// Removes from the status what would go out of date while an invalid spec is not acted on.
    fn rejected(_status: &mut Status<Self>) {}

    /// Whether a child of an earlier name is deleted now that `present` has the name in the spec.
    /// Never where the name is always the object's own: another child is a copy that a user made.
    fn deletes_other(_present: &ChildView, _other: &ChildView) -> bool {
        false
    }

    /// Message for a foreign object with the child's name.
    fn conflict(name: &str) -> String {
        let (child, kind) = (Self::Child::kind(&()), Self::kind());
        format!(
            "{child} {name:?} exists and does not belong to this {kind}: it is left alone until it is deleted"
        )
    }

    /// The API kind.
    fn kind() -> String {
        <Self::Rules as Rules>::Object::kind(&()).into_owned()
    }
}

/// What every status has.
pub trait Observed:
    Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync
{
    /// `observedGeneration` and `conditions`.
    fn observed(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);
}

/// An object with a valid spec.
#[derive(Debug)]
pub struct Owner<'a, P: Parent> {
    /// Its namespace and name.
    pub key: &'a Key,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.generation` of this spec.
    pub generation: Option<i64>,
    /// The spec, defaulted.
    pub spec: &'a Spec<P>,
    /// The status as stored.
    pub status: &'a Status<P>,
}

/// The desired child.
#[derive(Clone, Debug)]
pub struct Child {
    /// `metadata.name`; the namespace is the object's.
    pub name: String,
    /// The fields that are ours: an object with `metadata.labels` and `spec`. The controller adds
    /// the name, the owner reference and the labels that select children.
    pub fields: Value,
    /// Whether to create an absent child. False if one was created and must not be created again.
    pub create: bool,
}

/// What to do with an existing child.
#[derive(Clone, Debug, PartialEq)]
pub enum DriftPolicy {
    /// Keep it as [`Parent::child`] has it.
    Equal,
    /// Leave it as it is; do not adopt an orphan.
    Leave,
    /// Send this strategic merge patch at the version that was read. It also adopts an orphan.
    Patch(Value),
}

/// What is observed of an object and its child once nothing more can be done.
#[derive(Debug)]
pub struct Seen<'a, P: Parent> {
    /// The object.
    pub owner: &'a Owner<'a, P>,
    /// The child, if it exists, is ours, and is not being deleted.
    pub child: Option<&'a ChildView>,
    /// The child exists and is ours, but is being deleted.
    pub leaving: bool,
    /// What this reconcile did with the child.
    pub done: Done,
    /// Why the child is not in the desired state.
    pub trouble: Option<&'a decision::Trouble>,
    /// The object's pods in order of their names, if the kind has [`Parent::POD_LABELS`].
    pub pods: &'a [(Key, Arc<PodView>)],
    /// The time of the reconcile.
    pub now: DateTime<Utc>,
}

/// What a reconcile did with a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Done {
    /// It was as desired, or could not be corrected.
    #[default]
    Nothing,
    /// It was created.
    Created,
    /// It was changed to a new desired state.
    Changed,
    /// It was changed by others and restored.
    Restored,
}

/// What a kind reports in addition to its status.
#[derive(Debug, Default)]
pub struct Report {
    /// Events.
    pub events: Vec<NewEvent>,
    /// What is wrong with a child that is as desired. [`DEGRADED`] and an Event report it.
    pub trouble: Option<decision::Trouble>,
    /// When to reconcile again if nothing happens before.
    pub next: Option<DateTime<Utc>>,
}

/// Runs the reconciler of that kind until the context is cancelled.
pub fn start<P: Parent>(context: Context) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(controller::run::<P>(context))
}
