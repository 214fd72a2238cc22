//! What a kind says of its objects and their child.

use std::fmt::Debug;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::view::ChildView;
use admission_rules::rules::Rules;
use my_operator_kind::pods::PodView;
use wall_clock_controller::reconcile::Key;
use wall_clock_controller::reconcile::condition::Condition;
use wall_clock_controller::reconcile::event::NewEvent;

/// The API type of a kind.
pub(crate) type ObjectOf<P> = <<P as Parent>::Rules as Rules>::Object;
/// The spec of a kind.
pub(crate) type SpecOf<P> = <<P as Parent>::Rules as Rules>::Spec;
/// The status of a kind.
pub(crate) type StatusOf<P> = <<P as Parent>::Rules as Rules>::Status;

/// A kind whose objects each own one child.
pub(crate) trait Parent: Sized + Send + Sync + 'static {
    /// The kind's name in logs and metrics, and the value of the children's label
    /// `app.kubernetes.io/component`.
    const NAME: &'static str;
    /// Reason of `Degraded` and of the Event when a foreign object has the child's name.
    const CONFLICT: &'static str;
    /// Labels of the pods that the kind watches. The value of the first is an object's name. Empty
    /// if it watches no pods.
    const POD_LABELS: &'static [&'static str] = &[];

    /// The rules, which define the object, its spec and its status.
    type Rules: Rules<
            Object: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send,
            Spec: Debug + Send + Sync,
            Status: KindStatus,
        >;
    /// The child's type.
    type Child: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Send
        + 'static;
    /// How a child is created, and what becomes of one that exists: [`KeptEqual`] unless a child is
    /// something else than a state to keep.
    type Lifecycle: Lifecycle<Self>;

    /// The child that an object asks for. Where two objects can ask for the same name at the same
    /// moment, an immutable field such as a selector must differ, so that the API server rejects
    /// the later one.
    fn desired(owner: &Owner<'_, Self>) -> Desired;

    /// The patch that makes [`Parent::desired`] applicable when the API server rejects this field
    /// because of what others wrote into the child: a strategic merge patch that replaces the list,
    /// if we own every entry of it. The ports of a container are such a list: another entry may
    /// have the name of ours.
    fn replace_conflicting_list(_field: &str) -> Option<Value> {
        None
    }

    /// Writes what is observed into the status, except `observedGeneration` and the conditions
    /// `Accepted` and `Degraded`, which are the same for every kind.
    fn report(observation: &Observation<'_, Self>, status: &mut StatusOf<Self>) -> Report;

    /// Removes from the status what would go out of date while an invalid spec is not acted on.
    fn rejected(_status: &mut StatusOf<Self>) {}

    /// Whether a child of an earlier name is deleted now that `present` has the name in the spec.
    /// Never where the name is always the object's own: another child is a copy that a user made.
    fn deletes_other(_present: &ChildView, _other: &ChildView) -> bool {
        false
    }

    /// Message for a foreign object with the child's name.
    fn conflict(name: &str) -> String {
        let (child, kind) = (Self::Child::kind(&()), ObjectOf::<Self>::kind(&()));
        format!(
            "{child} {name:?} exists and does not belong to this {kind}: it is left alone until it is deleted"
        )
    }
}

/// How the child of a kind is created, and what becomes of one that exists.
pub(crate) trait Lifecycle<P: Parent> {
    /// Decodes the stored status.
    ///
    /// # Errors
    /// When a malformed status must not be replaced.
    fn read_status(text: &str) -> serde_json::Result<StatusOf<P>>;

    /// How an absent child is made.
    fn creation(owner: &Owner<'_, P>) -> Creation;

    /// What to do with an existing child, which the object controls or which is an orphan that we
    /// created.
    fn drift_policy(owner: &Owner<'_, P>, child: &ChildView) -> DriftPolicy;
}

/// The lifecycle of a child that is a state, such as a Deployment: it exists and is equal to what
/// the spec says, always.
#[derive(Debug)]
pub(crate) struct KeptEqual;

impl<P: Parent> Lifecycle<P> for KeptEqual {
    /// A malformed status is replaced: nothing depends on it but what users read.
    fn read_status(text: &str) -> serde_json::Result<StatusOf<P>> {
        let status = serde_json::from_str::<Option<StatusOf<P>>>(text);
        Ok(status.ok().flatten().unwrap_or_default())
    }

    fn creation(_: &Owner<'_, P>) -> Creation {
        Creation::Apply
    }

    fn drift_policy(_: &Owner<'_, P>, _: &ChildView) -> DriftPolicy {
        DriftPolicy::Equal
    }
}

/// How an absent child is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// By an apply, so that every field of ours has one field manager and one operation from the
    /// start. (After a create, fields that we no longer ask for would stay.)
    Apply,
    /// By a plain create, which fails if a child of that name exists, where an apply would change it.
    Create,
    /// Not at all: one was created, and must not be created again.
    Never,
}

/// What to do with an existing child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DriftPolicy {
    /// Keep it as [`Parent::desired`] has it.
    Equal,
    /// Leave it as it is; do not adopt an orphan.
    Leave,
    /// Send this strategic merge patch at the version that was read. It also adopts an orphan.
    Patch(Value),
}

/// The fields that every status has.
pub(crate) trait KindStatus:
    Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync
{
    /// `observedGeneration` and `conditions`.
    fn common_fields(&mut self) -> (&mut Option<i64>, &mut Vec<Condition>);
}

/// An object with a valid spec.
#[derive(Debug)]
pub(crate) struct Owner<'a, P: Parent> {
    pub(crate) key: &'a Key,
    pub(crate) uid: &'a str,
    /// `metadata.generation` of this spec.
    pub(crate) generation: Option<i64>,
    /// The spec, defaulted.
    pub(crate) spec: &'a SpecOf<P>,
    /// The status as stored.
    pub(crate) status: &'a StatusOf<P>,
}

impl<P: Parent> Owner<'_, P> {
    /// Whether this object controls the child.
    pub(crate) fn controls(&self, child: &ChildView) -> bool {
        child.owner_uid() == Some(self.uid)
    }
}

/// The desired child.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    /// `metadata.name`; the namespace is the object's.
    pub(crate) name: String,
    /// The fields that are ours: an object with `metadata.labels` and `spec`. The name, the owner
    /// reference and the labels that select children are added to it.
    pub(crate) fields: Value,
}

/// What is observed of an object and its child once nothing more can be done.
#[derive(Debug)]
pub(crate) struct Observation<'a, P: Parent> {
    pub(crate) owner: &'a Owner<'a, P>,
    /// The child, if it exists, is ours, and is not being deleted.
    pub(crate) child: Option<&'a ChildView>,
    /// The child exists and is ours, but is being deleted.
    pub(crate) terminating: bool,
    /// What was done with the child since the last status.
    pub(crate) done: Done,
    /// Why the child is not in the desired state.
    pub(crate) trouble: Option<&'a Trouble>,
    /// The object's pods in order of their names, if the kind has [`Parent::POD_LABELS`].
    pub(crate) pods: &'a [(Key, Arc<PodView>)],
    /// The time of the reconcile.
    pub(crate) now: DateTime<Utc>,
}

/// What was done with a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Done {
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

/// Why a child is not in the desired state: reason and message of the condition `Degraded`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// CamelCase.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What a kind reports in addition to its status.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) events: Vec<NewEvent>,
    /// What is wrong with a child that is as desired. `Degraded` and an Event report it.
    pub(crate) trouble: Option<Trouble>,
    /// When to reconcile again if nothing happens before.
    pub(crate) requeue_at: Option<DateTime<Utc>>,
}
