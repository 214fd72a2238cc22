//! What a CronTab asks for: the desired CronJob.

use k8s_openapi::api::batch::v1::CronJob;
use serde_json::{Value, json};

use super::admission::CronTabRules;
use super::crd::{CronTabSpec, CronTabStatus};
use super::status;
use crate::owned_child::{Desired, KeptEqual, Observation, Owner, Parent, Report};

/// The container.
const CONTAINER: &str = "crontab";
/// The label with the CronTab's name on the CronJob, its Jobs and their pods: for `kubectl logs -l`.
const CRONTAB: &str = "stable.example.com/crontab";

/// The kind, for the reconciler of owned children.
#[derive(Debug)]
pub(crate) struct CronTabs;

impl Parent for CronTabs {
    const NAME: &'static str = "crontab";
    const CONFLICT: &'static str = "CronJobExists";

    type Rules = CronTabRules;
    type Child = CronJob;
    type Lifecycle = KeptEqual;

    fn desired(owner: &Owner<'_, Self>) -> Desired {
        Desired {
            name: owner.key.name.to_string(),
            fields: fields(&owner.key.name, owner.spec),
        }
    }

    fn report(observation: &Observation<'_, Self>, status: &mut CronTabStatus) -> Report {
        let trouble = observation.trouble;
        let observed = status::Observed {
            spec: observation.owner.spec,
            generation: observation.owner.generation,
            cronjob: observation.child.map(|child| status::ObservedCronJob {
                created: child.created,
                status: child.status(),
            }),
            trouble: trouble.map(|trouble| (trouble.reason, trouble.message.as_str())),
            now: observation.now,
        };
        Report {
            requeue_at: status::report(&observed, status),
            ..Report::default()
        }
    }

    /// The CronJob runs on unchanged, but the next run is no longer computed: it would soon be in the past.
    fn rejected(status: &mut CronTabStatus) {
        status.next_schedule_time = None;
    }
}

/// The fields of the CronJob that are ours, from a defaulted spec.
fn fields(name: &str, spec: &CronTabSpec) -> Value {
    let labels = json!({CRONTAB: name});
    let mut container = json!({"name": CONTAINER, "image": spec.image});
    // An empty command counts as none, for the API server too.
    if let Some(command) = spec.command.as_ref().filter(|items| !items.is_empty()) {
        container["command"] = json!(command);
    }
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "schedule": spec.cron_spec,
            "timeZone": spec.time_zone,
            "suspend": spec.suspend,
            "jobTemplate": {
                "metadata": {"labels": labels},
                "spec": {
                    "parallelism": spec.replicas,
                    "completions": spec.replicas,
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            // A failed container restarts in its pod, with exponential backoff.
                            // Under `Never` each attempt would leave a pod behind, seven for each
                            // replica of each run, and a run may come every minute.
                            "restartPolicy": "OnFailure",
                            "containers": [container],
                        },
                    },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;

    fn cronjob(spec: Value) -> Value {
        fields("x", &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn the_cronjob_is_what_the_spec_says() {
        let cronjob = cronjob(
            json!({"cronSpec": "* * * * */5", "image": "a:1", "replicas": 3,
            "timeZone": "Etc/UTC", "suspend": true, "command": ["date", "-u"]}),
        );
        let typed: CronJob = serde_json::from_value(cronjob.clone()).unwrap();
        let spec = typed.spec.unwrap();
        assert_eq!(spec.schedule, "* * * * */5");
        assert_eq!(spec.time_zone.as_deref(), Some("Etc/UTC"));
        assert_eq!(spec.suspend, Some(true));
        let job = spec.job_template.spec.unwrap();
        assert_eq!((job.parallelism, job.completions), (Some(3), Some(3)));
        let pod = job.template.spec.unwrap();
        assert_eq!(pod.containers[0].image.as_deref(), Some("a:1"));
        assert_eq!(
            pod.containers[0].command,
            Some(vec!["date".to_owned(), "-u".to_owned()])
        );
        // The typed struct loses nothing: every field exists in it.
        let again =
            serde_json::to_value(serde_json::from_value::<CronJob>(cronjob.clone()).unwrap());
        assert_eq!(again.unwrap()["spec"], cronjob["spec"]);
    }

    #[test]
    fn without_a_command_the_images_own_runs() {
        for spec in [json!({}), json!({"command": []})] {
            let cronjob = cronjob(spec);
            let container = cronjob.pointer("/spec/jobTemplate/spec/template/spec/containers/0");
            assert!(container.unwrap().get("command").is_none());
        }
    }

    #[test]
    fn a_rejected_spec_clears_the_next_schedule_time() {
        let mut status = CronTabStatus {
            replicas: Some(2),
            next_schedule_time: Some(DateTime::UNIX_EPOCH),
            last_schedule_time: Some(DateTime::UNIX_EPOCH),
            ..CronTabStatus::default()
        };
        CronTabs::rejected(&mut status);
        assert_eq!(status.next_schedule_time, None);
        assert_eq!(status.replicas, Some(2));
        assert_eq!(status.last_schedule_time, Some(DateTime::UNIX_EPOCH));
    }
}
