//! The webhook as a running part: probes, metrics, log.

use crate::cluster::{environment, kubectl};
use crate::harness::http_get;

#[tokio::test]
async fn readiness_names_its_gates() {
    let operator = &environment().await.operator;
    let (status, page) = http_get(&operator.probes, "/readyz?verbose").unwrap();
    assert_eq!(status, 200);
    for gate in [
        "api-server",
        "certificate",
        "webhook-configuration",
        "shutdown",
    ] {
        assert!(page.contains(&format!("[+]{gate} ok")), "{page}");
    }
    assert_eq!(http_get(&operator.probes, "/healthz").unwrap().0, 200);
}

#[tokio::test]
async fn metrics_have_the_names_that_dashboards_know() {
    let kubectl = kubectl("metrics").await;
    let text = "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: x}, spec: {}}";
    kubectl.apply(text).await.bad();
    let page = environment().await.operator.figures();
    for name in [
        "controller_runtime_reconcile_total{",
        "controller_runtime_reconcile_errors_total{",
        "controller_runtime_reconcile_time_seconds_bucket{",
        "controller_runtime_active_workers{",
        "controller_runtime_webhook_requests_total{webhook=\"/validate-apps-zhongmingmao-io-v1beta1-mydaemonset\",code=\"200\"}",
        "my_operator_webhook_faults_total{kind=\"MyDaemonSet\",field=\"spec.image\"}",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/mutate-cnat-programming-kubernetes-info-v1alpha1-at\"}",
        "workqueue_depth{",
        "workqueue_adds_total{",
        "workqueue_retries_total{",
        "workqueue_queue_duration_seconds_bucket{",
        "rest_client_requests_total{",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "my_operator_at_lateness_seconds_bucket{",
        "my_operator_at_runs_total{result=\"Succeeded\"}",
        "my_operator_at_pending ",
        "my_operator_certificate_expiry_timestamp_seconds{",
    ] {
        assert!(page.contains(name), "{name} is not in\n{page}");
    }
}

#[tokio::test]
async fn an_admission_is_logged_in_one_line() {
    let kubectl = kubectl("log-line").await;
    let text = "{apiVersion: apps.zhongmingmao.io/v1beta1, kind: MyDaemonSet, metadata: {name: told-of}, spec: {}}";
    kubectl.apply(text).await.bad();
    let log = environment().await.operator.log();
    let line = log
        .lines()
        .find(|line| line.contains("told-of") && line.contains("allowed=false"))
        .unwrap_or_else(|| panic!("no line in\n{log}"));
    for word in [
        "uid=",
        "kind=\"MyDaemonSet\"",
        "operation=\"CREATE\"",
        "image is required",
        "us=",
    ] {
        assert!(line.contains(word), "{word} is not in {line}");
    }
}
