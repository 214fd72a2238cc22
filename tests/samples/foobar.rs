//! `FooBar`: a command, once for each generation.

use crate::harness::Kubectl;
use crate::kubectl;

const PHASE: &str = "{.status.phase}";
const DEGRADED: &str = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
const COMPLETE: &str = "{.status.conditions[?(@.type==\"Complete\")].reason}";
const MESSAGE: &str = "{.status.conditions[?(@.type==\"Complete\")].message}";
const SUSPEND: &str = "{.spec.suspend}";
const UID: &str = "{.metadata.uid}";

fn foobar(name: &str, spec: &str) -> String {
    format!("{{apiVersion: k8s.io/v1, kind: FooBar, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// From now on pods of this namespace wait, since no node has room for them: what becomes of them is
/// for the test to write.
async fn hold_pods(kubectl: &Kubectl) {
    let limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: hold}, \
        spec: {limits: [{type: Container, default: {cpu: 9k}, defaultRequest: {cpu: 9k}}]}}";
    kubectl.apply(limits).good();
    // The API server reads limits from a cache of its own.
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: probe}, spec: {containers: [{name: a, image: 'a:1'}]}}";
    crate::harness::wait_for("pods to be held", || {
        let said = kubectl.with(
            "create --dry-run=server -f - -o jsonpath={.spec.containers[0].resources.requests.cpu}",
            pod,
        );
        (said.good() == "9k").then_some(())
    })
    .await;
}

/// The one pod of a Job.
async fn pod_of(kubectl: &Kubectl, job: &str) -> String {
    let list = format!("get pods -l batch.kubernetes.io/job-name={job} -o name");
    crate::harness::wait_for(&format!("the pod of {job}"), || {
        let said = kubectl.run(&list).good();
        let mut pods = said.lines();
        let pod = pods.next()?.to_owned();
        assert_eq!(pods.next(), None, "{said}");
        Some(pod)
    })
    .await
}

/// Merges a status into a pod's, as a kubelet would.
fn set_status(kubectl: &Kubectl, pod: &str, status: &str) {
    let args =
        format!("patch {pod} --subresource=status --type=merge --patch-file=/dev/stdin -o name");
    kubectl.with(&args, &format!("status: {status}")).good();
}

const RUNNING: &str = "{phase: Running, conditions: [{type: Ready, status: 'True'}], \
    containerStatuses: [{name: foobar, ready: true, state: {running: {}}}]}";
const EXIT_3: &str = "{phase: Failed, conditions: [{type: Ready, status: 'False'}], \
    containerStatuses: [{name: foobar, state: {terminated: {exitCode: 3, reason: Error}}}]}";

/// Applies an object whose pod is to be held, and waits until its Job was let go.
async fn until_let_go(kubectl: &Kubectl, name: &str) -> String {
    kubectl
        .apply(&foobar(name, "{command: echo foobar}"))
        .good();
    let job = format!("job/{name}-1");
    kubectl.until_field(&job, SUSPEND, "false").await;
    pod_of(kubectl, &format!("{name}-1")).await
}

/// Shows that the operator is past whatever happened before: it has looked at a new object since.
async fn witness(kubectl: &Kubectl, name: &str) {
    let spec = "{command: 'true'}";
    kubectl.apply(&foobar(name, spec)).good();
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
    kubectl.run(&strict).good();
    kubectl
        .until_refused("run probe --image=probe:1", "violates PodSecurity")
        .await;
    let said = kubectl.run(&format!("apply -f {sample}"));
    assert_eq!(said.good(), "foobar.k8s.io/foobar-sample created\n");
    let wait = "wait --for=condition=Complete --timeout=90s foobars/foobar-sample";
    kubectl.run(wait).good();
    let table = kubectl.run("get foobars").good();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "PHASE", "JOB", "EXIT", "AGE"]);
    let expected = ["foobar-sample", "Succeeded", "foobar-sample-1", "0"];
    assert_eq!(rows[1][..4], expected);
    let uid = kubectl.field("job/foobar-sample-1", UID);
    for (path, value) in [
        ("{.status.observedGeneration}", "1"),
        ("{.status.jobUID}", &uid),
        (DEGRADED, "AsDesired"),
        (COMPLETE, "Succeeded"),
    ] {
        let found = kubectl.field("foobar/foobar-sample", path);
        assert_eq!(found, value, "{path}");
    }
    let container =
        "{.spec.template.spec.containers[0].command}{.spec.template.spec.containers[0].env}";
    assert_eq!(
        kubectl.field("job/foobar-sample-1", container),
        "[\"sh\",\"-c\",\"echo foobar\"][{\"name\":\"FOO\",\"value\":\"bar\"},{\"name\":\"BARZ\",\"value\":\"false\"}]"
    );

    // What is no change of the spec does nothing.
    let said = kubectl.run(&format!("apply -f {sample}"));
    assert_eq!(said.good(), "foobar.k8s.io/foobar-sample unchanged\n");
    kubectl.run("label foobar/foobar-sample a=b").good();
    witness(&kubectl, "unchanged").await;
    let jobs = "get jobs -l foobar=foobar-sample -o jsonpath={.items[*].metadata.uid}";
    assert_eq!(kubectl.run(jobs).good(), uid);

    // A change runs the command again, and the Job before goes.
    let patch = "patch foobar/foobar-sample --type=merge -p {\"spec\":{\"barz\":\"true\"}}";
    kubectl.run(patch).good();
    kubectl.run(wait).good();
    let job = kubectl.field("foobar/foobar-sample", "{.status.jobName}");
    assert_eq!(job, "foobar-sample-2");
    kubectl.until_gone("job/foobar-sample-1").await;
    let pods = "pods -l batch.kubernetes.io/job-name=foobar-sample-1";
    kubectl.until_gone(pods).await;
    let events = "get events --field-selector involvedObject.name=foobar-sample \
        --no-headers -o custom-columns=:.type,:.reason";
    // One for each Job that was made, that went, and that came to its end.
    crate::harness::wait_for("the Events", || {
        let said = kubectl.run(events).good();
        let mut news: Vec<&str> = said.split_whitespace().collect();
        news.sort_unstable();
        news.retain(|word| *word != "Normal");
        let all = ["Created", "Created", "Deleted", "Succeeded", "Succeeded"];
        (news == all).then_some(())
    })
    .await;
    kubectl.run("delete foobar/foobar-sample").good();
    kubectl.until_gone("jobs -l foobar=foobar-sample").await;
    kubectl.until_gone("pods -l foobar=foobar-sample").await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_with_its_exit_code_and_never_tried_again() {
    let kubectl = kubectl("foobar-fails").await;
    let x = "foobar/x";
    kubectl.apply(&foobar("x", "{command: 'true'}")).good();
    kubectl.until_field(x, PHASE, "Succeeded").await;
    hold_pods(&kubectl).await;
    kubectl.apply(&foobar("x", "{command: exit 3}")).good();
    kubectl.until_field("job/x-2", SUSPEND, "false").await;
    let pod = pod_of(&kubectl, "x-2").await;
    kubectl.until_field(x, COMPLETE, "Starting").await;
    assert_eq!(kubectl.field(x, PHASE), "Pending");
    set_status(&kubectl, &pod, RUNNING);
    kubectl.until_field(x, PHASE, "Running").await;
    set_status(&kubectl, &pod, EXIT_3);
    kubectl
        .run("wait --for=condition=Failed --timeout=90s foobar/x")
        .good();
    for (path, value) in [
        (PHASE, "Failed"),
        ("{.status.exitCode}", "3"),
        ("{.status.observedGeneration}", "2"),
        ("{.status.jobName}", "x-2"),
        (COMPLETE, "CommandFailed"),
        (
            MESSAGE,
            "the command ended with exit code 3: kubectl logs job/x-2 has its output",
        ),
    ] {
        assert_eq!(kubectl.field(x, path), value, "{path}");
    }
    // What came before is there to be looked at, and the exit code outlives the pod.
    let earlier = kubectl.field("job/x-1", UID);
    assert!(!earlier.is_empty());
    kubectl.run(&format!("delete {pod}")).good();
    witness(&kubectl, "past").await;
    assert_eq!(kubectl.field(x, "{.status.exitCode}"), "3");
    let pods = kubectl.run("get pods -l foobar=x,batch.kubernetes.io/job-name=x-2 -o name");
    assert_eq!(pods.good(), "");
    let event = "get events --field-selector involvedObject.name=x,reason=Failed -o jsonpath={.items[*].type}";
    crate::harness::wait_for("the Event", || {
        (kubectl.run(event).good() == "Warning").then_some(())
    })
    .await;

    // The next success clears up.
    kubectl.apply(&foobar("x", "{command: exit 0}")).good();
    kubectl.until_field("job/x-3", SUSPEND, "false").await;
    let pod = pod_of(&kubectl, "x-3").await;
    set_status(&kubectl, &pod, "{phase: Succeeded}");
    kubectl.until_field(x, PHASE, "Succeeded").await;
    assert_eq!(kubectl.field(x, "{.status.exitCode}"), "0");
    kubectl.until_gone("job/x-1 job/x-2").await;
}

#[tokio::test]
async fn a_job_that_is_gone_before_its_end_is_lost_and_not_made_again() {
    let kubectl = kubectl("foobar-lost").await;
    hold_pods(&kubectl).await;
    until_let_go(&kubectl, "x").await;
    kubectl.run("delete job/x-1").good();
    kubectl.until_field("foobar/x", PHASE, "Failed").await;
    assert_eq!(kubectl.field("foobar/x", COMPLETE), "JobLost");
    kubectl
        .run("wait --for=condition=Failed --timeout=9s foobar/x")
        .good();
    // Nor does any later look at it.
    kubectl.run("annotate foobar/x a=b").good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.run("get job x-1 --ignore-not-found").good(), "");
    // A change runs anew.
    kubectl.apply(&foobar("x", "{command: date}")).good();
    kubectl.until_field("job/x-2", SUSPEND, "false").await;
    kubectl.until_field("foobar/x", PHASE, "Pending").await;
    let failed = "{.status.conditions[?(@.type==\"Failed\")].status}";
    assert_eq!(kubectl.field("foobar/x", failed), "");
}

#[tokio::test]
async fn a_pod_that_somebody_deletes_has_no_successor() {
    let kubectl = kubectl("foobar-pod").await;
    hold_pods(&kubectl).await;
    let pod = until_let_go(&kubectl, "x").await;
    set_status(&kubectl, &pod, RUNNING);
    kubectl.until_field("foobar/x", PHASE, "Running").await;
    kubectl.run(&format!("delete {pod} --wait=false")).good();
    kubectl.until_field("foobar/x", PHASE, "Failed").await;
    assert_eq!(kubectl.field("foobar/x", COMPLETE), "BackoffLimitExceeded");
    assert_eq!(kubectl.field("foobar/x", "{.status.exitCode}"), "");
    let pods = "get pods -l batch.kubernetes.io/job-name=x-1 -o name";
    let left = kubectl.run(pods).good();
    assert!(left.is_empty() || left.trim_end() == pod, "{left}");
}

#[tokio::test]
async fn an_object_that_is_made_anew_runs_anew() {
    let kubectl = kubectl("foobar-anew").await;
    let x = foobar("x", "{command: date}");
    kubectl.apply(&x).good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let before = kubectl.field("job/x-1", UID);
    kubectl.run("delete foobar/x --wait=false").good();
    kubectl.apply(&x).good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let after = kubectl.field("job/x-1", UID);
    assert!(after != before && !after.is_empty(), "{after}");
}

#[tokio::test]
async fn a_job_that_is_deleted_after_its_end_changes_nothing() {
    let kubectl = kubectl("foobar-ended").await;
    kubectl.apply(&foobar("x", "{command: date}")).good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    let before = kubectl.field("foobar/x", "{.status}");
    kubectl.run("delete job/x-1").good();
    kubectl.run("annotate foobar/x a=b").good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.run("get job x-1 --ignore-not-found").good(), "");
    assert_eq!(kubectl.field("foobar/x", "{.status}"), before);
}

#[tokio::test]
async fn a_job_is_taken_back_when_orphaned_and_given_up_when_taken() {
    let kubectl = kubectl("foobar-owner").await;
    hold_pods(&kubectl).await;
    until_let_go(&kubectl, "x").await;
    let owners = "{.metadata.ownerReferences[*].name}";
    let orphan = "patch job/x-1 --type=merge -p {\"metadata\":{\"ownerReferences\":null}}";
    kubectl.run(orphan).good();
    kubectl.until_field("job/x-1", owners, "x").await;
    assert_eq!(kubectl.field("foobar/x", PHASE), "Pending");

    kubectl.run("create configmap other").good();
    let uid = kubectl.field("configmap/other", UID);
    let owner = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"other\",\"uid\":\"{uid}\",\"controller\":true}}"
    );
    let take =
        format!("patch job/x-1 --type=merge -p {{\"metadata\":{{\"ownerReferences\":[{owner}]}}}}");
    kubectl.run(&take).good();
    kubectl.until_field("foobar/x", COMPLETE, "JobLost").await;
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.field("job/x-1", owners), "other");
}

#[tokio::test]
async fn a_job_that_somebody_suspends_is_left_to_them() {
    let kubectl = kubectl("foobar-suspended").await;
    hold_pods(&kubectl).await;
    let pod = until_let_go(&kubectl, "x").await;
    let suspend = |is| format!("patch job/x-1 --type=merge -p {{\"spec\":{{\"suspend\":{is}}}}}");
    kubectl.run(&suspend(true)).good();
    kubectl.until_field("foobar/x", DEGRADED, "Suspended").await;
    kubectl.until_gone(&pod).await;
    kubectl.run("annotate foobar/x a=b").good();
    witness(&kubectl, "witness").await;
    assert_eq!(kubectl.field("job/x-1", SUSPEND), "true");
    // They resume it, and it is followed as before.
    kubectl.run(&suspend(false)).good();
    let pod = pod_of(&kubectl, "x-1").await;
    set_status(&kubectl, &pod, RUNNING);
    kubectl.until_field("foobar/x", PHASE, "Running").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED), "AsDesired");
}

#[tokio::test]
async fn a_job_of_somebody_else_is_left_alone() {
    let kubectl = kubectl("foobar-foreign").await;
    let foreign = "{apiVersion: batch/v1, kind: Job, metadata: {name: x-1, labels: {foobar: x}}, \
        spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'a:1'}]}}}}";
    kubectl.apply(foreign).good();
    let version = "{.metadata.generation} {.metadata.ownerReferences} {.metadata.labels} {.spec}";
    let before = kubectl.field("job/x-1", version);
    kubectl.apply(&foobar("x", "{command: date}")).good();
    kubectl.until_field("foobar/x", DEGRADED, "JobExists").await;
    assert_eq!(kubectl.field("foobar/x", PHASE), "Pending");
    assert_eq!(
        kubectl.field("foobar/x", MESSAGE),
        "Job \"x-1\" exists and does not belong to this FooBar: it is left alone until somebody deletes it"
    );
    assert_eq!(kubectl.field("job/x-1", version), before);
    kubectl.run("delete job/x-1").good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED), "AsDesired");
}

#[tokio::test]
async fn a_job_that_a_quota_refuses_is_made_when_there_is_room() {
    let kubectl = kubectl("foobar-quota").await;
    let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/jobs.batch: '0'}}}";
    kubectl.apply(quota).good();
    kubectl
        .until_refused("create job probe --image=probe:1", "exceeded quota: none")
        .await;
    kubectl.apply(&foobar("x", "{command: date}")).good();
    kubectl.until_field("foobar/x", DEGRADED, "Refused").await;
    let message = kubectl.field("foobar/x", MESSAGE);
    assert!(message.contains("exceeded quota: none"), "{message}");
    assert_eq!(kubectl.field("foobar/x", PHASE), "Pending");
    kubectl.run("delete resourcequota/none").good();
    kubectl.until_field("foobar/x", PHASE, "Succeeded").await;
    assert_eq!(kubectl.field("foobar/x", DEGRADED), "AsDesired");
}

#[tokio::test]
async fn bad_input_is_refused_with_every_fault_at_once() {
    let kubectl = kubectl("foobar-bad").await;
    let name = "n".repeat(53);
    let text = kubectl
        .apply(&foobar(
            &name,
            "{command: ' ', image: 'Bash:5.3', foo: \"\\0\"}",
        ))
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
        // The text false without its quotes. Of types the schema judges, before any webhook does.
        (
            "{command: date, barz: false}",
            "spec.barz: Invalid value: \"boolean\": spec.barz in body must be of type string: \"boolean\"",
        ),
    ] {
        let text = kubectl.apply(&foobar("bad", spec)).bad();
        let expected = format!("The FooBar \"bad\" is invalid: {fault}\n");
        assert_eq!(text, expected, "{spec}");
    }
    assert_eq!(kubectl.run("get foobars -o name").good(), "");
    // The longest name that there may be.
    kubectl
        .apply(&foobar(&name[1..], "{command: 'true'}"))
        .good();
    let longest = format!("foobar/{}", &name[1..]);
    kubectl.until_field(&longest, PHASE, "Succeeded").await;
}
