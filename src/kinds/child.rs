//! A reconciler for kinds whose objects each own one child, such as a Deployment, that is kept equal to
//! what the spec says: written once, and told by a kind through [`Parent`] what the child is and what
//! people see of it.
//!
//! What holds, whatever the kind:
//! - The child is made and put right by server-side apply: the API server itself tells what drifted.
//!   Fields of others stay, and a field that the spec does not ask for any more goes.
//! - A child of that name that somebody else controls, or nobody, is never touched: the condition
//!   `Degraded` names it. A child of our making that lost its owner reference is taken back.
//! - A child whose name the spec does not say any more is deleted when its successor stands.
//! - Nothing is written when nothing changed. Who writes against us, refuses us, or stands in our way,
//!   is met with growing pauses.
//!
//! [`view`] is what is kept of parents and children, [`decision`] says what is to be done, as a pure
//! function, and [`controller`] does it. [`deployment`] reads what a child of that kind says of itself.

use std::fmt::Debug;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pods::PodView;
use crate::admission::rules::Rules;
use crate::reconcile::condition::Condition;
use crate::reconcile::event::NewEvent;
use crate::reconcile::{Context, Key};

mod controller;
pub mod decision;
pub mod deployment;
pub mod view;

use view::ChildView;

/// The spec of a kind.
pub type Spec<P> = <<P as Parent>::Rules as Rules>::Spec;
/// The status of a kind.
pub type Status<P> = <<P as Parent>::Rules as Rules>::Status;

/// The child cannot be made or put right, or something is wrong with it; the reason and message say
/// what.
pub const DEGRADED: &str = "Degraded";

/// A kind whose objects each own one child.
pub trait Parent: Sized + Send + Sync + 'static {
    /// The kind's name in logs and metrics, and the value of the children's label
    /// `app.kubernetes.io/component`.
    const NAME: &'static str;
    /// Reason of `Degraded` and of the Event when a child of that name is not ours.
    const CONFLICT: &'static str;
    /// The labels of pods that the kind looks at, the value of the first being an object's name; none,
    /// if it looks at no pods.
    const POD_LABELS: &'static [&'static str] = &[];

    /// Whether a child is made by a plain create, which fails where one is there already, and not by an
    /// apply, which would change it. For a child that is a run, such as a Job: people are told of its
    /// making, and of no patch.
    const ONCE: bool = false;

    /// The rules, and with them the object, its spec and its status.
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

    /// The child that an object asks for. Where two objects can ask for one name at the same moment,
    /// something that cannot be changed must differ, such as a selector: the API server then refuses
    /// the later one.
    fn child(owner: &Owner<'_, Self>) -> Child;

    /// What is done with this child, which is there and the object's own, or an orphan of our making.
    fn upkeep(_owner: &Owner<'_, Self>, _child: &ChildView) -> DriftPolicy {
        DriftPolicy::Equal
    }

    /// What makes room for [`Parent::child`], where the API server finds this field invalid beside what
    /// others wrote into a child of ours: a strategic merge patch that replaces the list, if it is one of
    /// which we want every entry. The ports of a container are one: another entry may have the name of
    /// ours.
    fn make_room(_field: &str) -> Option<Value> {
        None
    }

    /// Writes what is seen into the status, beside `observedGeneration` and the conditions
    /// `Accepted` and [`DEGRADED`], which are not its own to set.
    fn report(seen: &Seen<'_, Self>, status: &mut Status<Self>) -> Report;

    /// Takes out of the status what would go out of date while a spec that breaks the rules is not acted
    /// on.
    fn rejected(_status: &mut Status<Self>) {}

    /// Whether a child of another name, which the spec had before, is deleted now that `present` has the name of the
    /// spec. Never where the name is always the object's own: another child is a copy that a user made.
    fn retires(_present: &ChildView, _other: &ChildView) -> bool {
        false
    }

    /// What to say of a child of that name that is not ours.
    fn conflict(name: &str) -> String {
        let (child, kind) = (Self::Child::kind(&()), Self::kind());
        format!(
            "{child} {name:?} exists and does not belong to this {kind}: it is left alone until somebody deletes it"
        )
    }

    /// The kind's name in the API.
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

/// An object whose spec obeys the rules.
#[derive(Debug)]
pub struct Owner<'a, P: Parent> {
    /// Its namespace and name.
    pub key: &'a Key,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.generation`: which spec this is.
    pub generation: Option<i64>,
    /// The spec with its defaults.
    pub spec: &'a Spec<P>,
    /// The status as it is stored.
    pub status: &'a Status<P>,
}

/// A child as an object asks for it.
#[derive(Clone, Debug)]
pub struct Child {
    /// `metadata.name`; the namespace is the object's.
    pub name: String,
    /// The fields that are ours: an object with `metadata.labels` and `spec`. Name, owner reference and
    /// the labels by which children are found are added to it.
    pub fields: Value,
    /// Whether a child that is not there is made. Not so, where one was made and must not be again.
    pub create: bool,
}

/// What is done with a child that is there.
#[derive(Clone, Debug, PartialEq)]
pub enum DriftPolicy {
    /// It is kept as [`Parent::child`] has it.
    Equal,
    /// It is left as it is, and an orphan is left alone.
    Leave,
    /// It gets this patch (strategic merge), if it is as it was looked at; an orphan is taken back by it.
    Patch(Value),
}

/// What is seen of an object and its child after all was done that could be.
#[derive(Debug)]
pub struct Seen<'a, P: Parent> {
    /// The object.
    pub owner: &'a Owner<'a, P>,
    /// The child, if it is there, ours, and not being deleted.
    pub child: Option<&'a ChildView>,
    /// The child is there and ours, but is being deleted.
    pub leaving: bool,
    /// What was done with the child in this look.
    pub done: Done,
    /// Why the child is not as it should be.
    pub trouble: Option<&'a decision::Trouble>,
    /// The object's pods, in order of their names, if the kind has [`Parent::POD_LABELS`].
    pub pods: &'a [(Key, Arc<PodView>)],
    /// The time of the look.
    pub now: DateTime<Utc>,
}

/// What was done with a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Done {
    /// It was as it should be, or could not be put right.
    #[default]
    Nothing,
    /// It was made.
    Created,
    /// It was changed to what the spec says now.
    Changed,
    /// It had been changed by others and was put back.
    Restored,
}

/// What a kind says beside its status.
#[derive(Debug, Default)]
pub struct Report {
    /// Events.
    pub news: Vec<NewEvent>,
    /// What is wrong with a child that is as it should be: [`DEGRADED`] says it, and an Event.
    pub trouble: Option<decision::Trouble>,
    /// When to look again if nothing happens before.
    pub next: Option<DateTime<Utc>>,
}

/// Runs the reconciler of that kind until the context says stop.
pub fn start<P: Parent>(context: Context) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(controller::run::<P>(context))
}
