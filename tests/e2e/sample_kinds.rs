//! The kinds that are off by default: what their pages say that their containers print and serve.

use crate::harness::Kubectl;
use crate::images::BUSYBOX;
use crate::{IMAGE, cluster, deploy, deploy_every_kind, images, kubectl, memcached};

const SAMPLES: &str = "config/samples/sample-kinds";

#[tokio::test]
async fn their_containers_do_what_their_pages_say() {
    let (image, version) = images::memcached().await;
    let cluster = cluster().await;
    cluster.load_image(&image).await.unwrap();
    // Once for all of them: it takes longer than they do.
    deploy_every_kind(cluster).await.good();
    let (jobs, runs) = (kubectl("foobar").await, kubectl("crontab").await);
    tokio::join!(foobar(&jobs), crontab(&runs), memcached::answers(&version));
    for (kubectl, kind) in [(&jobs, "foobars"), (&runs, "crontabs")] {
        kubectl.run(&format!("delete {kind} --all")).await.good();
        kubectl.until_gone("pods").await;
    }
    // For the other tests, as it was.
    deploy(cluster, IMAGE).await.good();
    jobs.run("delete -k config/crd/sample-kinds").await.good();
}

/// Waits until the command of the sample, in that Job, has succeeded, and returns what it printed.
async fn printed_by(kubectl: &Kubectl, job: &str) -> String {
    let foobar = "foobar/foobar-sample";
    kubectl.until_field(foobar, "{.status.jobName}", job).await;
    let complete = format!("wait --for=condition=Complete --timeout=90s {foobar}");
    kubectl.run(&complete).await.good();
    kubectl.run(&format!("logs job/{job}")).await.good()
}

/// Waits until samples of a kind are given their default and a bad one is refused, and returns the path of the good
/// one. The API server takes a moment to see new webhooks, and without them, objects have no defaults.
async fn until_reviewed(kubectl: &Kubectl, file: &str, default: (&str, &str)) -> String {
    let (good, bad) = (format!("{SAMPLES}/{file}"), format!("{SAMPLES}/bad/{file}"));
    kubectl
        .until_webhooks_are_called(&bad, &good, default)
        .await;
    good
}

/// Where Pod Security enforces `restricted`, as the page promises.
async fn foobar(kubectl: &Kubectl) {
    let restricted = format!(
        "label namespace {} pod-security.kubernetes.io/enforce=restricted",
        kubectl.namespace
    );
    kubectl.run(&restricted).await.good();
    let default = ("{.spec.image}", "bash:5.3");
    let sample = until_reviewed(kubectl, "k8s_v1_foobar.yaml", default).await;
    let apply = format!("apply -f {sample}");
    kubectl.run(&apply).await.good();
    assert_eq!(printed_by(kubectl, "foobar-sample-1").await, "foobar\n");

    let changed = "
apiVersion: k8s.io/v1
kind: FooBar
metadata: {name: foobar-sample}
spec: {foo: bar, barz: 'false', command: 'echo $FOO, $BARZ and $(id -u)'}
";
    kubectl.apply(changed).await.good();
    let printed = printed_by(kubectl, "foobar-sample-2").await;
    assert_eq!(printed, "bar, false and 65532\n");
}

/// A run at once, by the CronJob of a schedule that is not due.
async fn crontab(kubectl: &Kubectl) {
    let default = ("{.spec.timeZone}", "Etc/UTC");
    until_reviewed(kubectl, "stable_v1_crontab.yaml", default).await;
    let object = format!(
        "
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {{name: my-new-cron-object}}
spec: {{cronSpec: '@yearly', image: '{BUSYBOX}', command: [echo, it runs]}}
"
    );
    kubectl.apply(&object).await.good();
    for args in [
        "wait --for=condition=Ready --timeout=60s ct/my-new-cron-object",
        "create job now --from=cronjob/my-new-cron-object",
        "wait --for=condition=Complete --timeout=90s job/now",
    ] {
        kubectl.run(args).await.good();
    }
    let logs = "logs -l stable.example.com/crontab=my-new-cron-object";
    assert_eq!(kubectl.run(logs).await.good(), "it runs\n");
    // It runs nothing by itself before its time.
    assert_eq!(kubectl.names("pods").await.len(), 1);
}
