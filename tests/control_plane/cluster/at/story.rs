//! What people and their tools see of a run: waiting, columns, Events in order, explanations, figures.

use std::collections::BTreeSet;

use chrono::DateTime;

use super::{HOLD, at, at_when, in_seconds};
use crate::cluster::{environment, kubectl};
use crate::harness::{Kubectl, figure, wait_for};

/// The reasons of the Events of an At, in the order in which `kubectl describe` shows them.
fn events(story: &str) -> Vec<&str> {
    let (_, table) = story.split_once("\nEvents:\n").unwrap_or_default();
    // Two lines of header.
    let rows = table.lines().skip(2);
    rows.filter_map(|row| row.split_whitespace().nth(1))
        .collect()
}

/// Waits for the last Event of a story, and returns the story.
async fn story(kubectl: &Kubectl, name: &str, last: &str) -> String {
    kubectl
        .until_event(name, &format!("of reason {last}"), |event| {
            event.split(' ').nth(1) == Some(last)
        })
        .await;
    kubectl.run(&format!("describe at/{name}")).await.good()
}

#[tokio::test]
async fn describe_shows_the_events_in_order() {
    let kubectl = kubectl("story").await;
    // As after a command that left no message. A fake node's own says that nothing ran.
    let silent = "kwok.my-operator.dev/message: ''";
    kubectl
        .apply(&at_when(&in_seconds(10), "x", "", silent))
        .await
        .good();
    let fails = "kwok.my-operator.dev/exit-code: '3', kwok.my-operator.dev/message: no such file";
    kubectl
        .apply(&at_when(&in_seconds(10), "fails", "", fails))
        .await
        .good();
    let missed = at_when(
        "2020-01-01T00:00:00Z",
        "missed",
        "startingDeadlineSeconds: 1",
        "",
    );
    kubectl.apply(&missed).await.good();
    let text = story(&kubectl, "x", "Completed").await;
    assert_eq!(
        events(&text),
        ["Scheduled", "Started", "Completed"],
        "{text}"
    );
    for sentence in [
        "the command is to start at 20",
        "released the pod x-pod, ",
        " ms late",
        "Completed: the command ended with exit code 0",
    ] {
        assert!(text.contains(sentence), "{sentence} is not in\n{text}");
    }
    let text = story(&kubectl, "fails", "Failed").await;
    assert_eq!(events(&text), ["Scheduled", "Started", "Failed"], "{text}");
    assert!(text.contains("Error: no such file"), "{text}");
    let text = story(&kubectl, "missed", "Missed").await;
    assert_eq!(events(&text), ["Missed"], "{text}");
    assert!(text.contains("the command was not started"), "{text}");
}

#[tokio::test]
async fn the_events_of_a_blocked_at_are_in_order_too() {
    let kubectl = kubectl("hindered-story").await;
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: '0'}}}";
    kubectl.apply(quota).await.good();
    kubectl
        .until_field("resourcequota/none", "{.status.hard.pods}", "0")
        .await;
    kubectl
        .apply(&at_when(&in_seconds(10), "x", "", ""))
        .await
        .good();
    story(&kubectl, "x", "PodRefused").await;
    kubectl.run("delete resourcequota/none").await.good();
    let text = story(&kubectl, "x", "Completed").await;
    assert_eq!(
        events(&text),
        ["Scheduled", "PodRefused", "Started", "Completed"],
        "{text}"
    );
}

#[tokio::test]
async fn kubectl_wait_ends_with_the_run() {
    let kubectl = kubectl("wait").await;
    kubectl
        .apply(&at_when(&in_seconds(10), "x", "", ""))
        .await
        .good();
    let fails = "kwok.my-operator.dev/exit-code: '1'";
    kubectl
        .apply(&at_when(&in_seconds(10), "fails", "", fails))
        .await
        .good();
    for (condition, name) in [
        ("Started", "x"),
        ("Complete", "x"),
        ("Finished", "x"),
        ("Failed", "fails"),
        ("Finished", "fails"),
    ] {
        kubectl
            .run(&format!(
                "wait --for=condition={condition} --timeout=90s at/{name}"
            ))
            .await
            .good();
    }
    let said = kubectl
        .run("wait --for=condition=Complete --timeout=0s at/fails")
        .await;
    assert!(!said.ok, "{said:?}");
    kubectl
        .run("wait --for=jsonpath={.status.phase}=DONE --timeout=90s at/x")
        .await
        .good();
}

/// The cells of a row by their column, as `kubectl get` lays them out.
fn cells(table: &str, name: &str) -> Vec<(String, String)> {
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default();
    let row = lines
        .find(|line| line.split_whitespace().next() == Some(name))
        .unwrap_or_else(|| panic!("no {name} in\n{table}"));
    let mut starts: Vec<usize> = header
        .split_whitespace()
        .filter_map(|title| header.find(title))
        .collect();
    starts.push(usize::MAX);
    let cut = |text: &str, from: usize, to: usize| {
        let to = to.min(text.len());
        text.get(from..to).unwrap_or_default().trim().to_owned()
    };
    starts
        .windows(2)
        .map(|pair| (cut(header, pair[0], pair[1]), cut(row, pair[0], pair[1])))
        .collect()
}

#[tokio::test]
async fn the_columns_show_the_result() {
    let kubectl = kubectl("columns").await;
    let far = "2999-01-01T00:00:00Z";
    kubectl.apply(&at_when(far, "waits", "", "")).await.good();
    kubectl.apply(&at("runs", "", HOLD)).await.good();
    let fails = "kwok.my-operator.dev/exit-code: '3', kwok.my-operator.dev/message: no such file";
    kubectl.apply(&at("fails", "", fails)).await.good();
    for (name, phase) in [("waits", "PENDING"), ("runs", "RUNNING"), ("fails", "DONE")] {
        kubectl
            .until_field(&format!("at/{name}"), "{.status.phase}", phase)
            .await;
    }
    // The start of a command that runs on is recorded within two seconds.
    kubectl
        .run("wait --for=condition=Started --timeout=90s at/runs")
        .await
        .good();
    let table = kubectl.run("get at").await.good();
    let titles: Vec<String> = cells(&table, "waits").into_iter().map(|c| c.0).collect();
    assert_eq!(
        titles,
        [
            "NAME", "DUE", "PHASE", "RESULT", "EXIT", "LATE", "REASON", "AGE"
        ]
    );
    let cell = |table: &str, name: &str, title: &str| {
        let all = cells(table, name);
        let found = all.into_iter().find(|(t, _)| t == title);
        found.unwrap_or_else(|| panic!("{title} in {table}")).1
    };
    assert_eq!(cell(&table, "waits", "DUE"), far);
    let due = cell(&table, "runs", "DUE");
    assert!(DateTime::parse_from_rfc3339(&due).is_ok(), "{table}");
    for (name, phase, result, exit, reason) in [
        ("waits", "PENDING", "", "", ""),
        ("runs", "RUNNING", "", "", ""),
        ("fails", "DONE", "Failed", "3", "Error"),
    ] {
        assert_eq!(cell(&table, name, "PHASE"), phase, "{table}");
        assert_eq!(cell(&table, name, "RESULT"), result, "{table}");
        assert_eq!(cell(&table, name, "EXIT"), exit, "{table}");
        assert_eq!(cell(&table, name, "REASON"), reason, "{table}");
        let late = cell(&table, name, "LATE");
        assert_eq!(late.ends_with('s'), name != "waits", "{table}");
    }
    let wide = kubectl.run("get ats -o wide").await.good();
    assert_eq!(cell(&wide, "waits", "SCHEDULE"), far);
    assert_eq!(cell(&wide, "fails", "COMMAND"), "echo YAY");
    assert_eq!(cell(&wide, "fails", "POD"), "fails-pod");
    assert_eq!(cell(&wide, "fails", "MESSAGE"), "no such file");
    let all = kubectl.run("get all -o name").await.good();
    assert!(
        all.contains("at.cnat.programming-kubernetes.info/waits"),
        "{all}"
    );
    let done = kubectl
        .run("get at --field-selector=status.phase=DONE -o name")
        .await;
    assert_eq!(done.good(), "at.cnat.programming-kubernetes.info/fails\n");
}

#[tokio::test]
async fn every_field_of_the_kind_is_explained() {
    let kubectl = kubectl("explain-at").await;
    for (field, words) in [
        ("at.spec.schedule", "RFC 3339"),
        ("at.spec.command", "shell"),
        ("at.spec.image", "bash:5.3"),
        ("at.spec.shell", "bash"),
        ("at.spec.template", "sidecars"),
        ("at.spec.suspend", "held back"),
        ("at.spec.startingDeadlineSeconds", "Missed"),
        ("at.spec.activeDeadlineSeconds", "DeadlineExceeded"),
        ("at.spec.ttlSecondsAfterFinished", "deleted"),
        ("at.status.latenessMilliseconds", "Milliseconds"),
        ("at.status.lateness", "1.2s"),
        ("at.status.podUID", "UID"),
    ] {
        let text = kubectl.run(&format!("explain {field}")).await.good();
        let words = text.contains("DESCRIPTION") && text.contains(words);
        assert!(words, "{field}: {text}");
    }
}

fn count(page: &str, name: &str) -> u64 {
    figure(page, name).unwrap_or_else(|| panic!("no {name} in\n{page}"))
}

#[tokio::test]
async fn a_run_is_counted() {
    let kubectl = kubectl("figures").await;
    let operator = &environment().await.operator;
    let before = operator.figures();
    kubectl
        .apply(&at_when("2999-01-01T00:00:00Z", "waits", "", ""))
        .await
        .good();
    kubectl
        .until_field("at/waits", "{.status.phase}", "PENDING")
        .await;
    kubectl.apply(&at("good", "", "")).await.good();
    let fails = "kwok.my-operator.dev/exit-code: '1'";
    kubectl.apply(&at("bad", "", fails)).await.good();
    let late = at_when(
        "2020-01-01T00:00:00Z",
        "late",
        "startingDeadlineSeconds: 1",
        "",
    );
    kubectl.apply(&late).await.good();
    for name in ["good", "bad", "late"] {
        kubectl
            .until_field(&format!("at/{name}"), "{.status.phase}", "DONE")
            .await;
    }
    // Other tests run beside this one, so these are the least that there must be.
    let page = operator.figures();
    for (name, more) in [
        ("my_operator_at_lateness_seconds_count", 2),
        ("my_operator_at_runs_total{result=\"Succeeded\"}", 1),
        ("my_operator_at_runs_total{result=\"Failed\"}", 1),
        ("my_operator_at_runs_total{result=\"Missed\"}", 1),
    ] {
        let (was, is) = (count(&before, name), count(&page, name));
        assert!(is >= was + more, "{name}: {was} -> {is}");
    }
    assert!(count(&page, "my_operator_at_pending") >= 1, "{page}");
    // By namespace, and only as long as they are there.
    let failed = |page: &str| {
        let name = format!(
            "my_operator_at_failed{{namespace=\"{}\",result=\"",
            kubectl.namespace
        );
        let series = page.lines().filter_map(|line| line.strip_prefix(&name));
        series
            .map(|rest| rest.replace("\"} ", "="))
            .collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["Failed=1".to_owned(), "Missed=1".to_owned()]);
    // The status is written before the watch shows it to the operator.
    let counted = async |expected: &BTreeSet<String>| {
        wait_for("the count of failed Ats", async || {
            (failed(&operator.figures()) == *expected).then_some(())
        })
        .await;
    };
    counted(&both).await;
    kubectl.run("delete at bad late").await.good();
    counted(&BTreeSet::new()).await;
}
