//! Commands at times, really run.

use crate::harness::{Kubectl, wait_for};
use crate::kubectl;

/// The phases of an At that `kubectl get at --watch` has shown, each once.
fn phases(log: &std::path::Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let lines = lines.filter(|(of, phase)| *of == name && !phase.is_empty());
    let mut phases: Vec<_> = lines.map(|(_, phase)| phase.to_owned()).collect();
    phases.dedup();
    phases
}

/// Waits until the At has ended well.
pub(crate) async fn until_complete(kubectl: &Kubectl, name: &str) {
    let status = "{.status.conditions[?(@.type=='Complete')].status}";
    kubectl
        .until_field(&format!("at/{name}"), status, "True")
        .await;
}

#[tokio::test]
async fn a_command_runs_at_its_time_and_its_pod_has_what_it_printed() {
    let kubectl = kubectl("yay").await;
    // The watch misses nothing once it shows what was there before.
    kubectl
        .until_applied(
            "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: earlier}, spec: {schedule: '2999-01-01T00:00:00Z', command: echo YAY}}",
        )
        .await;
    let watch = kubectl.spawn(
        "get at --watch --output-watch-events=false -o jsonpath={.metadata.name}={.status.phase}{\"\\n\"}",
        "at-phases",
    );
    wait_for("the watch to show what is there", async || {
        (!phases(watch.log(), "earlier").is_empty()).then_some(())
    })
    .await;
    kubectl
        .run("apply -f config/samples/cnat_v1alpha1_at.yaml")
        .await
        .good();
    until_complete(&kubectl, "example-at").await;
    assert_eq!(kubectl.run("logs example-at-pod").await.good(), "YAY\n");
    let expected = ["PENDING", "RUNNING", "DONE"];
    wait_for("the watch to show the last phase", async || {
        (phases(watch.log(), "example-at") == expected).then_some(())
    })
    .await;
    assert_eq!(
        kubectl.field("pod/example-at-pod", "{.status.phase}").await,
        "Succeeded"
    );
    let row = kubectl.run("get at example-at --no-headers").await.good();
    let words: Vec<_> = row.split_whitespace().collect();
    assert!(
        words.contains(&"DONE") && words.contains(&"Succeeded"),
        "{row}"
    );
    println!("{row}");
}

#[tokio::test]
async fn an_exit_code_and_a_termination_message_reach_the_status() {
    let kubectl = kubectl("exits").await;
    kubectl
        .until_applied(
            r#"
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: fails}
spec:
  schedule: now
  command: echo "out of luck" >/dev/termination-log; exit 3
"#,
        )
        .await;
    kubectl
        .until_field("at/fails", "{.status.phase}", "DONE")
        .await;
    let row = kubectl
        .run("get at fails --no-headers -o wide")
        .await
        .good();
    assert!(
        row.contains("Failed") && row.contains("out of luck"),
        "{row}"
    );
    assert_eq!(kubectl.field("at/fails", "{.status.exitCode}").await, "3");
}

/// By a real kubelet: a fake one reports only what it was written to report.
#[tokio::test]
async fn the_status_says_what_a_released_pod_waits_for() {
    let kubectl = kubectl("waits").await;
    let objects = "
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: outlived}
spec:
  schedule: now
  command: exit 3
  template:
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: at
        - {name: log, image: 'bash:5.3', command: [sleep, '600']}
---
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: unmounted}
spec:
  schedule: now
  command: echo YAY
  template:
    spec:
      containers: [{name: at, volumeMounts: [{name: missing, mountPath: /missing}]}]
      volumes: [{name: missing, secret: {secretName: missing}}]
---
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: unscheduled}
spec:
  schedule: now
  command: echo YAY
  template: {spec: {schedulerName: none}}
";
    kubectl.until_applied(objects).await;
    for (name, reason) in [
        ("outlived", "OtherContainersRunning"),
        ("unmounted", "ContainerCreating"),
        ("unscheduled", "NotScheduled"),
    ] {
        let at = format!("at/{name}");
        kubectl.until_field(&at, "{.status.reason}", reason).await;
        assert_eq!(kubectl.field(&at, "{.status.phase}").await, "RUNNING");
    }
    let message = kubectl.field("at/outlived", "{.status.message}").await;
    assert!(
        message.contains("exit code 3") && message.ends_with(": log"),
        "{message}"
    );
    // They go on when the reason is gone.
    let secret = "create secret generic missing --from-literal=a=b";
    kubectl.run(secret).await.good();
    until_complete(&kubectl, "unmounted").await;
    kubectl.run("delete at outlived unscheduled").await.good();
}

#[tokio::test]
async fn a_command_runs_in_the_environment_of_an_object_that_exists() {
    let kubectl = kubectl("from").await;
    let objects = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {greeting: from a file}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: bash:5.3
          command: [sleep, '600']
          env: [{name: GREETING, value: hello}]
          # It would end the command.
          livenessProbe: {exec: {command: [none]}, periodSeconds: 1, failureThreshold: 1}
          volumeMounts: [{name: config, mountPath: /config}]
      volumes: [{name: config, configMap: {name: config}}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: greets}
spec:
  schedule: 0 0 1 1 *
  suspend: true
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: greets
              image: bash:5.3
              command: [echo]
              args: ["$(GREETING) $(date) it's"]
              env: [{name: GREETING, value: "a  b"}]
---
# Until the API server calls the webhook, an At has no defaults.
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: earlier}
spec: {schedule: '2999-01-01T00:00:00Z', command: echo YAY}
"#;
    kubectl.until_applied(objects).await;
    let script = "sleep 3; cat /config/greeting; echo \" $GREETING\"";
    let args = ["at", "now", "--name", "reads", "--follow", "--from"];
    let given = ["deployment/web", "--", "bash", "-c", script];
    let ended = kubectl.run_plugin(&[&args[..], &given].concat(), "").await;
    assert_eq!(ended.good(), "at/reads will run now\nfrom a file hello\n");
    let args = ["at", "now", "--name", "greets", "--follow", "--from"];
    let own = ["cronjob/greets"];
    let ended = kubectl.run_plugin(&[&args[..], &own].concat(), "").await;
    assert_eq!(ended.good(), "at/greets will run now\na  b $(date) it's\n");
}

#[tokio::test]
async fn a_bad_object_is_refused_through_the_service_with_every_fault() {
    let kubectl = kubectl("bad").await;
    let said = kubectl
        .run("apply -f config/samples/bad/cnat_v1alpha1_at.yaml")
        .await
        .bad();
    for fault in ["spec.schedule", "spec.command", "restartPolicy"] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
    let said = kubectl
        .run("apply -f config/samples/bad/apps_v1beta1_mydaemonset.yaml")
        .await
        .bad();
    assert!(said.contains("is invalid"), "{said}");
}

#[tokio::test]
async fn the_restricted_sample_runs_where_pod_security_enforces_it() {
    let kubectl = kubectl("restricted").await;
    let label = format!(
        "label namespace {} pod-security.kubernetes.io/enforce=restricted",
        kubectl.namespace
    );
    kubectl.run(&label).await.good();
    let sample = "apply -f config/samples/cnat_v1alpha1_at_restricted.yaml";
    kubectl.run(sample).await.good();
    until_complete(&kubectl, "restricted-at").await;
    assert_eq!(kubectl.run("logs restricted-at-pod").await.good(), "YAY\n");
}
