//! The object of `--from`: which kinds have a pod template, and the request for one.

use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Resource};
use my_operator_mydaemonset::crd::MyDaemonSet;
use serde_json::Value;

use super::take::{self, Place, Taken};
use crate::connection::{Connection, Failure, Kind};
use crate::mydaemonset;

/// A kind that has a pod template.
pub(crate) struct Source {
    /// How it is spelled before a name.
    pub(crate) kind: Kind,
    /// How requests name it.
    pub(crate) resource: fn() -> ApiResource,
    place: Place,
}

const fn source<K>(words: &'static [&'static str], place: Place) -> Source
where
    K: Resource<DynamicType = ()>,
{
    Source {
        kind: Kind {
            words,
            mistake: "has no pod template",
        },
        resource: || ApiResource::erase::<K>(&()),
        place,
    }
}

/// All of them, in the order of messages. `kubectl get -o name` prints the words with a group.
pub(crate) const SOURCES: &[Source] = &[
    source::<CronJob>(
        &["cronjob", "cronjobs", "cj", "cronjob.batch"],
        Place::CronJob,
    ),
    source::<Job>(&["job", "jobs", "job.batch"], Place::Job),
    source::<Deployment>(
        &["deployment", "deployments", "deploy", "deployment.apps"],
        Place::Template,
    ),
    source::<StatefulSet>(
        &["statefulset", "statefulsets", "sts", "statefulset.apps"],
        Place::Template,
    ),
    source::<DaemonSet>(
        &["daemonset", "daemonsets", "ds", "daemonset.apps"],
        Place::Template,
    ),
    source::<MyDaemonSet>(mydaemonset::KIND.words, Place::MyDaemonSet),
    source::<ReplicaSet>(
        &["replicaset", "replicasets", "rs", "replicaset.apps"],
        Place::Template,
    ),
    source::<ReplicationController>(
        &["replicationcontroller", "replicationcontrollers", "rc"],
        Place::Template,
    ),
    source::<Pod>(&["pod", "pods", "po"], Place::Pod),
];

/// The object that `--from` names.
pub(super) struct Named {
    source: &'static Source,
    name: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source.word(), self.name)
    }
}

impl Source {
    /// Its first spelling, that of messages.
    pub(crate) fn word(&self) -> &'static str {
        self.kind.words.first().copied().unwrap_or_default()
    }
}

/// Reads KIND/NAME.
pub(super) fn parse(text: &str) -> Result<Named, Failure> {
    let kind = text.split_once('/').map_or("", |(kind, _)| kind);
    let Some(source) = SOURCES.iter().find(|source| source.kind.is(kind)) else {
        let words: Vec<&str> = SOURCES.iter().map(Source::word).collect();
        let words = words.join(", ");
        let text = format!("--from {text:?} is not KIND/NAME with one of the kinds {words}");
        return Err(text.into());
    };
    let name = source.kind.name(text)?;
    Ok(Named {
        source,
        name: name.to_owned(),
    })
}

impl Named {
    /// The name without the kind.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its own command ends, so that an At can run it. The other kinds run servers.
    pub(super) fn is_job(&self) -> bool {
        matches!(self.source.place, Place::Job | Place::CronJob)
    }

    /// Reads the object, and takes its pod template.
    pub(super) async fn take(
        &self,
        connection: &Connection,
        container: Option<&str>,
    ) -> Result<Taken, Failure> {
        let api: Api<DynamicObject> = connection.api_of(&(self.source.resource)());
        let object = connection.answer(api.get(&self.name)).await?;
        let object: Value = serde_json::to_value(object).map_err(|error| self.wrong(&error))?;
        take::take(&object, self.source.place, container).map_err(|what| self.wrong(&what))
    }

    /// The failure for what is the matter with the object.
    pub(super) fn wrong(&self, what: &dyn fmt::Display) -> Failure {
        format!("{self} {what}").into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_kind_is_named_as_kubectl_names_and_prints_it() {
        for (text, named) in [
            ("cj/x", "cronjob/x"),
            ("CronJob/x", "cronjob/x"),
            ("job.batch/x", "job/x"),
            ("deploy/web", "deployment/web"),
            ("deployments/web", "deployment/web"),
            ("deployment.apps/web", "deployment/web"),
            ("sts/db", "statefulset/db"),
            ("ds/x", "daemonset/x"),
            ("mds/x", "mydaemonset/x"),
            ("rs/x", "replicaset/x"),
            ("rc/x", "replicationcontroller/x"),
            ("po/db-0", "pod/db-0"),
        ] {
            assert_eq!(parse(text).map(|it| it.to_string()).unwrap(), named);
        }
        let mut words: Vec<&str> = SOURCES
            .iter()
            .flat_map(|it| it.kind.words)
            .copied()
            .collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all, "{words:?}");
    }

    #[test]
    fn what_is_no_source_is_one_line() {
        for (text, part) in [
            (
                "web",
                "is not KIND/NAME with one of the kinds cronjob, job, deployment, ",
            ),
            ("node/n", "is not KIND/NAME"),
            ("/web", "is not KIND/NAME"),
            ("deployment/", "is not NAME or deployment/NAME"),
            ("deployment/a/b", "is not NAME or deployment/NAME"),
            ("deployment/web?x", "is not the name of an object"),
            ("deployment/..", "is not the name of an object"),
            ("x\u{1b}[2J\n/y", "is not KIND/NAME"),
        ] {
            let error = parse(text).err().unwrap().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }
}
