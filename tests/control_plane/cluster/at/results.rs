//! How a run ended.

use serde_json::Value;

use super::{HOLD, at, at_with, set_status};
use crate::cluster::kubectl;

#[tokio::test]
async fn the_result_of_a_failed_command_outlives_its_pod() {
    let kubectl = kubectl("failed").await;
    let end = "kwok.my-operator.dev/exit-code: '3', kwok.my-operator.dev/message: no such file";
    kubectl.apply(&at("x", "", end)).await.good();
    kubectl
        .run("wait --for=condition=Finished --timeout=90s at/x")
        .await
        .good();
    kubectl.run("delete pod/x-pod").await.good();
    for (path, value) in [
        ("{.status.phase}", "DONE"),
        ("{.status.result}", "Failed"),
        ("{.status.exitCode}", "3"),
        ("{.status.reason}", "Error"),
        ("{.status.message}", "no such file"),
        ("{.status.conditions[?(@.type=='Failed')].status}", "True"),
        ("{.status.podName}", "x-pod"),
    ] {
        assert_eq!(kubectl.field("at/x", path).await, value, "{path}");
    }
    for path in [
        "startTime",
        "completionTime",
        "scheduledTime",
        "podUID",
        "latenessMilliseconds",
        "lateness",
    ] {
        assert!(
            !kubectl
                .field("at/x", &format!("{{.status.{path}}}"))
                .await
                .is_empty(),
            "{path}"
        );
    }
}

/// One way for a pod to end.
struct End {
    name: &'static str,
    /// What the kubelet writes.
    status: &'static str,
    result: &'static str,
    reason: &'static str,
    exit_code: &'static str,
    signal: &'static str,
    message: &'static str,
}

/// Ends as kubelets report them, and what becomes of them.
const ENDS: &[End] = &[
    End {
        name: "success",
        status: "{phase: Succeeded, containerStatuses: [{name: at, state: {terminated: {exitCode: 0, reason: Completed, message: 'all done'}}}]}",
        result: "Succeeded",
        reason: "Completed",
        exit_code: "0",
        signal: "",
        message: "all done",
    },
    End {
        name: "exit-code",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 64, reason: Error, message: \"line 1\\nusage: x\\n\"}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "64",
        signal: "",
        message: "line 1\nusage: x",
    },
    End {
        name: "signal",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 137, signal: 9, reason: Error}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "137",
        signal: "9",
        message: "",
    },
    End {
        name: "signal-by-code",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 143, reason: Error}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "143",
        signal: "15",
        message: "",
    },
    End {
        name: "oom",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]}",
        result: "Failed",
        reason: "OOMKilled",
        exit_code: "137",
        signal: "9",
        message: "",
    },
    End {
        name: "deadline",
        status: "{phase: Failed, reason: DeadlineExceeded, message: Pod was active on the node longer than the specified deadline}",
        result: "Failed",
        reason: "DeadlineExceeded",
        exit_code: "",
        signal: "",
        message: "Pod was active on the node longer than the specified deadline",
    },
    End {
        name: "evicted",
        status: "{phase: Failed, reason: Evicted, message: The node was low on resource memory, containerStatuses: [{name: at, state: {terminated: {exitCode: 137, reason: Error}}}]}",
        result: "Failed",
        reason: "Evicted",
        exit_code: "137",
        signal: "9",
        message: "The node was low on resource memory",
    },
    End {
        name: "refused-by-the-kubelet",
        status: "{phase: Failed, reason: OutOfcpu, message: Pod was rejected}",
        result: "Failed",
        reason: "OutOfcpu",
        exit_code: "",
        signal: "",
        message: "Pod was rejected",
    },
    End {
        name: "start-error",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 128, reason: StartError, message: 'exec: \"bash\": executable file not found in $PATH'}}}]}",
        result: "Failed",
        reason: "StartError",
        exit_code: "128",
        signal: "",
        message: "exec: \"bash\": executable file not found in $PATH",
    },
    End {
        name: "init",
        status: "{phase: Failed, initContainerStatuses: [{name: setup, state: {terminated: {exitCode: 2, reason: Error, message: no disk}}}], \
                 containerStatuses: [{name: at, state: {waiting: {reason: PodInitializing}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "",
        signal: "",
        message: "container setup ended with exit code 2: no disk",
    },
    End {
        name: "another-container",
        status: "{phase: Failed, containerStatuses: [{name: at, state: {terminated: {exitCode: 0, reason: Completed, message: done}}}, \
                 {name: side, state: {terminated: {exitCode: 3, reason: Error, message: disk full}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "0",
        signal: "",
        message: "container side ended with exit code 3: disk full",
    },
    End {
        name: "both-containers",
        status: "{phase: Failed, containerStatuses: [{name: side, state: {terminated: {exitCode: 3, reason: Error}}}, \
                 {name: at, state: {terminated: {exitCode: 4, reason: Error, message: its own}}}]}",
        result: "Failed",
        reason: "Error",
        exit_code: "4",
        signal: "",
        message: "its own",
    },
    End {
        name: "sidecar",
        status: "{phase: Succeeded, initContainerStatuses: [{name: proxy, state: {terminated: {exitCode: 143, reason: Error}}}], \
                 containerStatuses: [{name: at, state: {terminated: {exitCode: 0, reason: Completed}}}]}",
        result: "Succeeded",
        reason: "Completed",
        exit_code: "0",
        signal: "",
        message: "",
    },
    End {
        name: "silent",
        status: "{phase: Failed}",
        result: "Failed",
        reason: "Error",
        exit_code: "",
        signal: "",
        message: "the pod failed, and its status does not say why",
    },
];

#[tokio::test]
async fn every_end_of_a_pod_is_reported_as_it_was() {
    let kubectl = kubectl("ends").await;
    let template = "{metadata: {annotations: {kwok.my-operator.dev/exit-code: hold}}, spec: {\
        initContainers: [{name: setup, image: 'i:1'}, {name: proxy, image: 'p:1', restartPolicy: Always}], \
        containers: [{name: at}, {name: side, image: 's:1'}]}}";
    let spec = format!("{{schedule: now, command: a, template: {template}}}");
    let all: Vec<String> = ENDS.iter().map(|end| at_with(end.name, &spec)).collect();
    kubectl.apply(&all.join("\n---\n")).await.good();
    for end in ENDS {
        let pod = format!("{}-pod", end.name);
        kubectl
            .until_field(&format!("pod/{pod}"), "{.status.phase}", "Running")
            .await;
        set_status(&kubectl, &pod, end.status).await;
    }
    for end in ENDS {
        let at = format!("at/{}", end.name);
        kubectl.until_field(&at, "{.status.phase}", "DONE").await;
        let status: Value = serde_json::from_str(&kubectl.field(&at, "{.status}").await).unwrap();
        for (field, value) in [
            ("result", end.result),
            ("reason", end.reason),
            ("exitCode", end.exit_code),
            ("signal", end.signal),
            ("message", end.message),
        ] {
            let found = match &status[field] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(found, value, "{at}: {field}");
        }
        let conditions = status["conditions"].as_array().unwrap();
        let condition = |type_: &str| {
            let found = conditions.iter().find(|c| c["type"] == type_)?;
            Some((found["status"].as_str()?, found["reason"].as_str()?))
        };
        let (is, is_not) = match end.result {
            "Succeeded" => ("Complete", "Failed"),
            _ => ("Failed", "Complete"),
        };
        assert_eq!(condition(is), Some(("True", end.reason)), "{at}");
        assert_eq!(condition("Finished"), Some(("True", end.reason)), "{at}");
        assert_eq!(condition(is_not), None, "{at}");
        assert_eq!(condition("Reconciling"), None, "{at}");
    }
}

#[tokio::test]
async fn a_pod_that_its_node_took_along_failed_for_that_reason() {
    let kubectl = kubectl("node-loss").await;
    let node = format!("node-of-{}", kubectl.namespace);
    // No other test's pod may go to a node that is about to be lost.
    let fake = my_operator_cluster::FakeNode::new(&node).taint("lost", "", "NoSchedule");
    kubectl.cluster.add_node(fake).await.unwrap();
    let spec = format!(
        "{{nodeSelector: {{kubernetes.io/hostname: {node}}}, tolerations: [{{key: lost, operator: Exists}}]}}"
    );
    let object = at("x", "", HOLD).replace("template: {", &format!("template: {{spec: {spec}, "));
    kubectl.apply(&object).await.good();
    kubectl
        .until_field("pod/x-pod", "{.status.phase}", "Running")
        .await;
    kubectl.run(&format!("delete node/{node}")).await.good();
    // The collector of orphaned pods waits for 40 s, and looks every 20 s.
    kubectl.until_field("at/x", "{.status.phase}", "DONE").await;
    assert_eq!(kubectl.field("at/x", "{.status.result}").await, "Failed");
    assert_eq!(
        kubectl.field("at/x", "{.status.reason}").await,
        "DeletionByPodGC"
    );
    let message = kubectl.field("at/x", "{.status.message}").await;
    assert!(message.contains("node no longer exists"), "{message}");
    kubectl.until_gone("pods").await;
}
