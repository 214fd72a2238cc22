//! `FooBar`: a command, once for each generation.

use serde_json::json;

use crate::harness::{Kubectl, wait_for};
use crate::samples::{kubectl, rejection};

const PHASE: &str = "{.status.phase}";
const DEGRADED: &str = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
const COMPLETE: &str = "{.status.conditions[?(@.type==\"Complete\")].reason}";
const MESSAGE: &str = "{.status.conditions[?(@.type==\"Complete\")].message}";
const FAILED: &str = "{.status.conditions[?(@.type==\"Failed\")].status}";
const EXIT_CODE: &str = "{.status.exitCode}";
const SUSPEND: &str = "{.spec.suspend}";
const UID: &str = "{.metadata.uid}";

fn foobar(name: &str, spec: &str) -> String {
    format!("{{apiVersion: k8s.io/v1, kind: FooBar, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// From now on pods of this namespace stay Pending, since no node has enough CPU for them. The test writes their
/// status.
async fn hold_pods(kubectl: &Kubectl) {
    let limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: hold}, \
        spec: {limits: [{type: Container, default: {cpu: 9k}, defaultRequest: {cpu: 9k}}]}}";
    kubectl.apply(limits).await.good();
    // The API server reads limits from a cache of its own.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    wait_for("pods to be held", async || {
        let pod = kubectl.dry_run("pods", pod.clone()).await.unwrap();
        (pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "9k").then_some(())
    })
    .await;
}

/// The one pod of a Job.
async fn pod_of(kubectl: &Kubectl, job: &str) -> String {
    let pods = format!("pods -l batch.kubernetes.io/job-name={job}");
    kubectl
        .until(&pods, "to be there", |list| {
            let pods = list?["items"].as_array()?;
            let name = pods.first()?["metadata"]["name"].as_str()?;
            assert_eq!(pods.len(), 1, "{pods:?}");
            Some(format!("pod/{name}"))
        })
        .await
}

const RUNNING: &str = "{phase: Running, conditions: [{type: Ready, status: 'True'}], \
    containerStatuses: [{name: foobar, ready: true, state: {running: {}}}]}";
const EXIT_3: &str = "{phase: Failed, conditions: [{type: Ready, status: 'False'}], \
    containerStatuses: [{name: foobar, state: {terminated: {exitCode: 3, reason: Error}}}]}";

/// Applies an object whose pod stays Pending, and waits until its Job has been released.
async fn until_released(kubectl: &Kubectl, name: &str) -> String {
    kubectl
        .apply(&foobar(name, "{command: echo foobar}"))
        .await
        .good();
    let job = format!("job/{name}-1");
    kubectl.until_field(&job, SUSPEND, "false").await;
    pod_of(kubectl, &format!("{name}-1")).await
}

/// Shows that the operator has handled whatever happened before: it has reconciled a new object since.
async fn witness(kubectl: &Kubectl, name: &str) {
    let spec = "{command: 'true'}";
    kubectl.apply(&foobar(name, spec)).await.good();
    let job = format!("job/{name}-1");
    kubectl.until_field(&job, SUSPEND, "false").await;
}

#[tokio::test]
async fn a_command_runs_once_for_each_generation() {
    let kubectl = kubectl("foobar-transcript").await;
    let sample = "config/samples/sample-kinds/k8s_v1_foobar.yaml";
    // What the pod promises is enough for the strictest of namespaces.
    let strict = format!(
        "label namespace {} pod-security.kubernetes.io/enforce=restricted",
        kubectl.namespace
    );
    kubectl.run(&strict).await.good();
    kubectl
        .until_refused("run probe --image=probe:1", "violates PodSecurity")
        .await;
    let said = kubectl.run(&format!("apply -f {sample}")).await;
    assert_eq!(said.good(), "foobar.k8s.io/foobar-sample created\n");
    let wait = "wait --for=condition=Complete --timeout=90s foobars/foobar-sample";
    kubectl.run(wait).await.good();
    let table = kubectl.run("get foobars").await.good();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "PHASE", "JOB", "EXIT", "AGE"]);
    let expected = ["foobar-sample", "Succeeded", "foobar-sample-1", "0"];
    assert_eq!(rows[1][..4], expected);
    let uid = kubectl.field("job/foobar-sample-1", UID).await;
    for (path, value) in [
        ("{.status.observedGeneration}", "1"),
        ("{.status.jobUID}", &uid),
        (DEGRADED, "AsDesired"),
        (COMPLETE, "Succeeded"),
    ] {
        let found = kubectl.field("foobar/foobar-sample", path).await;
        assert_eq!(found, value, "{path}");
    }
    let container =
        "{.spec.template.spec.containers[0].command}{.spec.template.spec.containers[0].env}";
    assert_eq!(
        kubectl.field("job/foobar-sample-1", container).await,
        "[\"sh\",\"-c\",\"echo foobar\"][{\"name\":\"FOO\",\"value\":\"bar\"},{\"name\":\"BARZ\",\"value\":\"false\"}]"
    );

    // Without a change of the spec nothing happens.
    let said = kubectl.run(&format!("apply -f {sample}")).await;
    assert_eq!(said.good(), "foobar.k8s.io/foobar-sample unchanged\n");
    kubectl.run("label foobar/foobar-sample a=b").await.good();
    witness(&kubectl, "unchanged").await;
    let jobs = "jobs -l foobar=foobar-sample";
    let uids = kubectl.field(jobs, "{.items[*].metadata.uid}").await;
    assert_eq!(uids, uid);

    // A change runs the command again, and the Job before goes.
    let patch = "patch foobar/foobar-sample --type=merge -p {\"spec\":{\"barz\":\"true\"}}";
    kubectl.run(patch).await.good();
    kubectl.run(wait).await.good();
    let job = kubectl
        .field("foobar/foobar-sample", "{.status.jobName}")
        .await;
    assert_eq!(job, "foobar-sample-2");
    kubectl.until_gone("job/foobar-sample-1").await;
    let pods = "pods -l batch.kubernetes.io/job-name=foobar-sample-1";
    kubectl.until_gone(pods).await;
    // One for each Job that was created, that was deleted, and that ended.
    for (reason, times) in [("Created", 2), ("Deleted", 1), ("Succeeded", 2)] {
        kubectl
            .until_published("foobar-sample", reason, times)
            .await;
    }
    let events = kubectl.events("foobar-sample").await;
    assert_eq!(events.len(), 5, "{events:?}");
    assert!(events.iter().all(|event| event.starts_with("Normal ")));
    kubectl.run("delete foobar/foobar-sample").await.good();
    kubectl.until_gone(jobs).await;
    kubectl.until_gone("pods -l foobar=foobar-sample").await;
}

#[tokio::test]
async fn a_command_that_fails_is_reported_with_its_exit_code_and_never_retried() {
    let kubectl = kubectl("foobar-fails").await;
    let x = "foobar/x";
    kubectl
        .apply(&foobar("x", "{command: 'true'}"))
        .await
        .good();
    kubectl.until_field(x, PHASE, "Succeeded").await;
    hold_pods(&kubectl).await;
    kubectl
        .apply(&foobar("x", "{command: exit 3}"))
        .await
        .good();
    kubectl.until_field("job/x-2", SUSPEND, "false").await;
    let pod = pod_of(&kubectl, "x-2").await;
    kubectl.until_field(x, COMPLETE, "Starting").await;
    assert_eq!(kubectl.field(x, PHASE).await, "Pending");
    kubectl.set_status(&pod, RUNNING).await;
    kubectl.until_field(x, PHASE, "Running").await;
    kubectl.set_status(&pod, EXIT_3).await;
    kubectl.until_condition(x, "Failed", "True").await;
    for (path, value) in [
        (PHASE, "Failed"),
        (EXIT_CODE, "3"),
        ("{.status.observedGeneration}", "2"),
        ("{.status.jobName}", "x-2"),
        (COMPLETE, "CommandFailed"),
        (
            MESSAGE,
            "the command ended with exit code 3: kubectl logs job/x-2 shows its log",
        ),
    ] {
        assert_eq!(kubectl.field(x, path).await, value, "{path}");
    }
    // The Job of the earlier generation is kept, and the exit code outlives the pod.
    kubectl.object("job/x-1").await;
    kubectl.run(&format!("delete {pod}")).await.good();
    witness(&kubectl, "past").await;
    assert_eq!(kubectl.field(x, EXIT_CODE).await, "3");
    let pods = "pods -l foobar=x,batch.kubernetes.io/job-name=x-2";
    assert!(kubectl.names(pods).await.is_empty());
    kubectl
        .until_event("x", "Failed", |event| event.starts_with("Warning Failed "))
        .await;

    // The next success deletes the earlier Jobs.
    kubectl
        .apply(&foobar("x", "{command: exit 0}"))
        .await
        .good();
    kubectl.until_field("job/x-3", SUSPEND, "false").await;
    let pod = pod_of(&kubectl, "x-3").await;
    kubectl.set_status(&pod, "{phase: Succeeded}").await;
    kubectl.until_field(x, PHASE, "Succeeded").await;
    assert_eq!(kubectl.field(x, EXIT_CODE).await, "0");
    kubectl.until_gone("job/x-1,job/x-2").await;
}

#[tokio::test]
async fn a_job_that_is_gone_before_its_end_is_lost_and_not_made_again() {
    let kubectl = kubectl("foobar-lost").await;
    hold_pods(&kubectl).await;
    until_released(&kubectl, "x").await;
    kubectl.run("delete job/x-1").await.good();
    kubectl.until_field("foobar/x", PHASE, "Failed").await;
    assert_eq!(kubectl.field("foobar/x", COMPLETE).await, "JobLost");
    kubectl.until_condition("foobar/x", "Failed", "True").await;
    assert_eq!(kubectl.field("foobar/x", FAILED).await, "True");
    // No later reconcile creates it either.
    kubectl.run("annotate foobar/x a=b").await.good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.get("job/x-1").await, None);
    // A change runs the command again.
    kubectl.apply(&foobar("x", "{command: date}")).await.good();
    kubectl.until_field("job/x-2", SUSPEND, "false").await;
    kubectl.until_field("foobar/x", PHASE, "Pending").await;
    kubectl.absent("foobar/x", FAILED).await;
}

#[tokio::test]
async fn a_deleted_pod_is_not_replaced() {
    let kubectl = kubectl("foobar-pod").await;
    hold_pods(&kubectl).await;
    let pod = until_released(&kubectl, "x").await;
    kubectl.set_status(&pod, RUNNING).await;
    kubectl.until_field("foobar/x", PHASE, "Running").await;
    kubectl
        .run(&format!("delete {pod} --wait=false"))
        .await
        .good();
    kubectl.until_field("foobar/x", PHASE, "Failed").await;
    assert_eq!(
        kubectl.field("foobar/x", COMPLETE).await,
        "BackoffLimitExceeded"
    );
    kubectl.absent("foobar/x", EXIT_CODE).await;
    let pods = kubectl.names("pods -l batch.kubernetes.io/job-name=x-1");
    for left in pods.await {
        assert_eq!(format!("pod/{left}"), pod);
    }
}

#[tokio::test]
async fn an_object_that_is_created_again_runs_again() {
    let kubectl = kubectl("foobar-again").await;
    let x = foobar("x", "{command: date}");
    kubectl.apply(&x).await.good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let before = kubectl.field("job/x-1", UID).await;
    kubectl.run("delete foobar/x --wait=false").await.good();
    kubectl.apply(&x).await.good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let after = kubectl.field("job/x-1", UID).await;
    assert_ne!(after, before);
}

#[tokio::test]
async fn a_job_that_is_deleted_after_its_end_changes_nothing() {
    let kubectl = kubectl("foobar-ended").await;
    kubectl.apply(&foobar("x", "{command: date}")).await.good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let before = kubectl.field("foobar/x", "{.status}").await;
    kubectl.run("delete job/x-1").await.good();
    kubectl.run("annotate foobar/x a=b").await.good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.get("job/x-1").await, None);
    assert_eq!(kubectl.field("foobar/x", "{.status}").await, before);
}

#[tokio::test]
async fn an_orphaned_job_is_adopted_and_one_with_another_controller_is_given_up() {
    let kubectl = kubectl("foobar-owner").await;
    hold_pods(&kubectl).await;
    until_released(&kubectl, "x").await;
    let owners = "{.metadata.ownerReferences[*].name}";
    let orphan = "patch job/x-1 --type=merge -p {\"metadata\":{\"ownerReferences\":null}}";
    kubectl.run(orphan).await.good();
    kubectl.until_field("job/x-1", owners, "x").await;
    assert_eq!(kubectl.field("foobar/x", PHASE).await, "Pending");

    kubectl.run("create configmap other").await.good();
    let uid = kubectl.field("configmap/other", UID).await;
    let owner = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"other\",\"uid\":\"{uid}\",\"controller\":true}}"
    );
    let take =
        format!("patch job/x-1 --type=merge -p {{\"metadata\":{{\"ownerReferences\":[{owner}]}}}}");
    kubectl.run(&take).await.good();
    kubectl.until_field("foobar/x", COMPLETE, "JobLost").await;
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.field("job/x-1", owners).await, "other");
}

#[tokio::test]
async fn a_suspended_job_stays_suspended() {
    let kubectl = kubectl("foobar-suspended").await;
    hold_pods(&kubectl).await;
    let pod = until_released(&kubectl, "x").await;
    let suspend = |is| format!("patch job/x-1 --type=merge -p {{\"spec\":{{\"suspend\":{is}}}}}");
    kubectl.run(&suspend(true)).await.good();
    kubectl.until_field("foobar/x", DEGRADED, "Suspended").await;
    kubectl.until_gone(&pod).await;
    kubectl.run("annotate foobar/x a=b").await.good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.field("job/x-1", SUSPEND).await, "true");
    // When it is resumed, the status follows it as before.
    kubectl.run(&suspend(false)).await.good();
    let pod = pod_of(&kubectl, "x-1").await;
    kubectl.set_status(&pod, RUNNING).await;
    kubectl.until_field("foobar/x", PHASE, "Running").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED).await, "AsDesired");
}

#[tokio::test]
async fn a_foreign_job_is_left_alone() {
    let kubectl = kubectl("foobar-foreign").await;
    let foreign = "{apiVersion: batch/v1, kind: Job, metadata: {name: x-1, labels: {foobar: x}}, \
        spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'a:1'}]}}}}";
    kubectl.apply(foreign).await.good();
    let version = "{.metadata.generation} {.metadata.labels} {.spec}";
    let before = kubectl.field("job/x-1", version).await;
    kubectl.apply(&foobar("x", "{command: date}")).await.good();
    kubectl.until_field("foobar/x", DEGRADED, "JobExists").await;
    assert_eq!(kubectl.field("foobar/x", PHASE).await, "Pending");
    assert_eq!(
        kubectl.field("foobar/x", MESSAGE).await,
        "Job \"x-1\" exists and does not belong to this FooBar: it is left alone until it is deleted"
    );
    assert_eq!(kubectl.field("job/x-1", version).await, before);
    let owner = "{.metadata.ownerReferences[*].name}";
    kubectl.absent("job/x-1", owner).await;
    kubectl.run("delete job/x-1").await.good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED).await, "AsDesired");
    assert_eq!(kubectl.field("job/x-1", owner).await, "x");
}

#[tokio::test]
async fn a_job_that_exceeds_a_quota_is_created_when_the_quota_is_gone() {
    let kubectl = kubectl("foobar-quota").await;
    let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/jobs.batch: '0'}}}";
    kubectl.apply(quota).await.good();
    kubectl
        .until_refused("create job probe --image=probe:1", "exceeded quota: none")
        .await;
    kubectl.apply(&foobar("x", "{command: date}")).await.good();
    kubectl.until_field("foobar/x", DEGRADED, "Refused").await;
    let message = kubectl.field("foobar/x", MESSAGE).await;
    assert!(message.contains("exceeded quota: none"), "{message}");
    assert_eq!(kubectl.field("foobar/x", PHASE).await, "Pending");
    kubectl.run("delete resourcequota/none").await.good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED).await, "AsDesired");
}

#[tokio::test]
async fn bad_input_is_rejected_with_every_fault_at_once() {
    let kubectl = kubectl("foobar-bad").await;
    let name = "n".repeat(53);
    let text = kubectl
        .apply(&foobar(
            &name,
            "{command: ' ', image: 'Bash:5.3', foo: \"\\0\"}",
        ))
        .await
        .bad();
    let expected = format!(
        "The FooBar \"{name}\" is invalid: \n\
         * metadata.name: Too long: may not be more than 52 bytes\n\
         * spec.command: Required value: command is required\n\
         * spec.foo: Invalid value: \"\\0\": must not contain a NUL character: no program can be given one\n\
         * spec.image: Invalid value: \"Bash:5.3\": capital letter at character 1: an image's name is lower case\n"
    );
    assert_eq!(text, expected);
    for (spec, fault) in [
        ("{}", "spec.command: Required value: command is required"),
        (
            "{command: [echo, foobar]}",
            "spec.command: Invalid value: \"array\": spec.command in body must be of type string: \"array\"",
        ),
        // The text false without its quotes. The schema checks types, before any webhook is called.
        (
            "{command: date, barz: false}",
            "spec.barz: Invalid value: \"boolean\": spec.barz in body must be of type string: \"boolean\"",
        ),
    ] {
        let text = rejection(&kubectl, "foobars", &foobar("bad", spec)).await;
        let expected = format!("\"bad\" is invalid: {fault}");
        assert!(text.ends_with(&expected), "{spec}: {text}");
    }
    assert!(kubectl.names("foobars").await.is_empty());
    // The longest name.
    kubectl
        .apply(&foobar(&name[1..], "{command: 'true'}"))
        .await
        .good();
    let longest = format!("foobar/{}", &name[1..]);
    kubectl.until_field(&longest, PHASE, "Succeeded").await;
}
