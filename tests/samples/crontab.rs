//! CronTabs as a person meets them.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Kubectl, PATIENCE, time, try_wait, wait_for};
use crate::kubectl;

const MINE: &str = "ct/my-new-cron-object";

/// One that is due on New Year's Day alone.
fn rare(name: &str, more: &str) -> String {
    format!(
        "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {name}}}\n\
         spec: {{cronSpec: 0 0 1 1 *, image: \"busybox:1.37\"{more}}}\n"
    )
}

fn cronjob(kubectl: &Kubectl, name: &str) -> Value {
    let said = kubectl.run(&format!("get cronjob/{name} -o json")).good();
    serde_json::from_str(&said).unwrap()
}

fn wait_ready(kubectl: &Kubectl, name: &str) {
    kubectl
        .run(&format!(
            "wait --for=condition=Ready --timeout=90s ct/{name}"
        ))
        .good();
}

#[tokio::test]
async fn the_official_example_is_a_cronjob_that_can_be_scaled() {
    let kubectl = kubectl("ct-transcript").await;
    let sample = "apply -f config/samples/sample-kinds/stable_v1_crontab.yaml";
    let said = kubectl.run(sample).good();
    assert_eq!(
        said,
        "crontab.stable.example.com/my-new-cron-object created\n"
    );
    wait_ready(&kubectl, "my-new-cron-object");
    let table = kubectl.run("get ct").good();
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        rows.next().unwrap(),
        ["NAME", "SPEC", "REPLICAS", "NEXT", "LAST", "AGE"]
    );
    // SPEC has blanks in it.
    let row = rows.next().unwrap();
    assert_eq!(
        row[..7],
        ["my-new-cron-object", "*", "*", "*", "*", "*/5", "1"],
        "{table}"
    );
    let next = time(row[7]);
    assert!(
        ["Sun", "Fri"].contains(&next.format("%a").to_string().as_str()),
        "{table}"
    );
    for word in [
        "all",
        "crontabs",
        "crontab",
        "ct",
        "crontabs.stable.example.com",
    ] {
        let found = kubectl.run(&format!("get {word} -o name")).good();
        assert!(found.contains("/my-new-cron-object"), "{word}: {found}");
    }
    let said = kubectl.run(sample).good();
    assert_eq!(
        said,
        "crontab.stable.example.com/my-new-cron-object unchanged\n"
    );

    let child = cronjob(&kubectl, "my-new-cron-object");
    let spec = &child["spec"];
    assert_eq!(spec["schedule"], "* * * * */5");
    assert_eq!(spec["timeZone"], "Etc/UTC");
    let pod = &spec["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "my-awesome-cron-image");
    assert_eq!(pod["restartPolicy"], "OnFailure");
    assert_eq!(child["metadata"]["ownerReferences"][0]["kind"], "CronTab");

    kubectl.run(&format!("scale {MINE} --replicas=3")).good();
    for field in ["parallelism", "completions"] {
        let path = format!("{{.spec.jobTemplate.spec.{field}}}");
        kubectl
            .until_field("cronjob/my-new-cron-object", &path, "3")
            .await;
    }
    kubectl.until_field(MINE, "{.status.replicas}", "3").await;
    // No webhook sees what is scaled: the schema refuses it.
    for (count, bound) in [
        ("11", "less than or equal to 10"),
        ("0", "greater than or equal to 1"),
    ] {
        let said = kubectl
            .run(&format!("scale {MINE} --replicas={count}"))
            .bad();
        assert!(
            said.contains("spec.replicas") && said.contains(bound),
            "{said}"
        );
    }
    assert_eq!(kubectl.field(MINE, "{.spec.replicas}"), "3");

    // The CronJob goes with its owner.
    kubectl.run(&format!("delete {MINE}")).good();
    kubectl.until_gone("cronjobs").await;
}

#[tokio::test]
async fn what_is_absent_is_filled_in() {
    let kubectl = kubectl("ct-defaults").await;
    kubectl
        .apply(
            "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: x}\n\
             spec: {image: \"busybox:1.37\"}\n",
        )
        .good();
    let spec = kubectl.field("ct/x", "{.spec}");
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let expected = serde_json::json!({"cronSpec": "5 0 * * *", "image": "busybox:1.37",
        "replicas": 1, "suspend": false, "timeZone": "Etc/UTC"});
    assert_eq!(spec, expected);
    let next = wait_for("the next run", || {
        let next = kubectl.field("ct/x", "{.status.nextScheduleTime}");
        (!next.is_empty()).then_some(next)
    });
    assert!(next.await.ends_with("T00:05:00Z"));
}

#[tokio::test]
async fn what_others_change_of_ours_is_put_back_and_what_is_theirs_is_left() {
    let kubectl = kubectl("ct-drift").await;
    kubectl.apply(&rare("x", "")).good();
    wait_ready(&kubectl, "x");
    let child = "cronjob/x";
    let patch = |spec: &str| {
        kubectl
            .run(&format!(
                "patch {child} --type=merge -p {{\"spec\":{spec}}}"
            ))
            .good();
    };
    patch(
        "{\"schedule\":\"@hourly\",\"suspend\":true,\"timeZone\":\"Asia/Tokyo\",\"concurrencyPolicy\":\"Forbid\"}",
    );
    for (field, value) in [
        ("schedule", "0 0 1 1 *"),
        ("suspend", "false"),
        ("timeZone", "Etc/UTC"),
        ("concurrencyPolicy", "Forbid"),
    ] {
        kubectl
            .until_field(child, &format!("{{.spec.{field}}}"), value)
            .await;
    }
    patch("{\"jobTemplate\":{\"spec\":{\"parallelism\":7}}}");
    kubectl
        .until_field(child, "{.spec.jobTemplate.spec.parallelism}", "1")
        .await;

    let uid = kubectl.field(child, "{.metadata.uid}");
    kubectl.run(&format!("delete {child}")).good();
    wait_for("the CronJob to be made again", || {
        let other = kubectl.field(child, "{.metadata.uid}");
        (!other.is_empty() && other != uid).then_some(())
    })
    .await;
    wait_ready(&kubectl, "x");
}

#[tokio::test]
async fn who_changes_it_all_the_time_is_named_and_no_next_run_is_told() {
    let kubectl = kubectl("ct-contested").await;
    kubectl.apply(&rare("x", "")).good();
    wait_ready(&kubectl, "x");
    let rival = "patch cronjob/x --type=merge -p {\"spec\":{\"schedule\":\"@hourly\"}}";
    let ready = "{.status.conditions[?(@.type==\"Ready\")].reason}";
    wait_for("the contest to be told", || {
        kubectl.run(rival).good();
        (kubectl.field("ct/x", ready) == "Contested").then_some(())
    })
    .await;
    assert_eq!(kubectl.field("ct/x", "{.status.nextScheduleTime}"), "");
    kubectl
        .until_field("cronjob/x", "{.spec.schedule}", "0 0 1 1 *")
        .await;
}

#[tokio::test]
async fn a_copy_of_the_cronjob_is_theirs_who_made_it() {
    let kubectl = kubectl("ct-copy").await;
    kubectl.apply(&rare("x", "")).good();
    wait_ready(&kubectl, "x");
    let mut copy = cronjob(&kubectl, "x");
    copy["metadata"]["name"] = "copy".into();
    for field in ["uid", "resourceVersion", "managedFields"] {
        copy["metadata"].as_object_mut().unwrap().remove(field);
    }
    kubectl.with("create -f -", &copy.to_string()).good();
    let before = cronjob(&kubectl, "copy");
    kubectl.apply(&rare("x", ", replicas: 2")).good();
    kubectl
        .until_field("ct/x", "{.status.observedGeneration}", "2")
        .await;
    assert_eq!(cronjob(&kubectl, "copy"), before);
    // Nor would it delete it if it might.
    let degraded = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
    assert_eq!(kubectl.field("ct/x", degraded), "AsDesired");
}

#[tokio::test]
async fn a_change_reaches_the_cronjob_and_what_is_taken_back_goes() {
    let kubectl = kubectl("ct-change").await;
    let more = ", command: [sh, -c, date], timeZone: Europe/Berlin";
    kubectl.apply(&rare("x", more)).good();
    wait_ready(&kubectl, "x");
    // Midnight of New Year's Day in Berlin.
    let next = kubectl.field("ct/x", "{.status.nextScheduleTime}");
    assert!(next.ends_with("-12-31T23:00:00Z"), "{next}");
    let command = "{.spec.jobTemplate.spec.template.spec.containers[0].command}";
    assert_eq!(
        kubectl.field("cronjob/x", command),
        "[\"sh\",\"-c\",\"date\"]"
    );
    kubectl.apply(&rare("x", ", suspend: true")).good();
    kubectl
        .until_field("cronjob/x", "{.spec.suspend}", "true")
        .await;
    kubectl.until_field("cronjob/x", command, "").await;
    kubectl
        .until_field(
            "ct/x",
            "{.status.conditions[?(@.type==\"Ready\")].reason}",
            "Suspended",
        )
        .await;
    assert_eq!(kubectl.field("ct/x", "{.status.nextScheduleTime}"), "");
    kubectl.apply(&rare("x", "")).good();
    wait_ready(&kubectl, "x");
    let next = kubectl.field("ct/x", "{.status.nextScheduleTime}");
    assert!(next.ends_with("-01-01T00:00:00Z"), "{next}");
}

#[tokio::test]
async fn a_cronjob_of_somebody_else_is_left_alone_until_it_is_gone() {
    let kubectl = kubectl("ct-foreign").await;
    kubectl
        .run("create cronjob x --image=busybox:1.36 --schedule=@yearly")
        .good();
    let before = cronjob(&kubectl, "x");
    kubectl.apply(&rare("x", "")).good();
    let degraded = "wait --for=condition=Degraded --timeout=90s ct/x";
    kubectl.run(degraded).good();
    for type_ in ["Degraded", "Ready"] {
        let reason = format!("{{.status.conditions[?(@.type==\"{type_}\")].reason}}");
        assert_eq!(kubectl.field("ct/x", &reason), "CronJobExists");
    }
    assert_eq!(kubectl.field("ct/x", "{.status.nextScheduleTime}"), "");
    assert_eq!(cronjob(&kubectl, "x"), before);
    kubectl.run("delete cronjob/x").good();
    wait_ready(&kubectl, "x");
    assert_eq!(cronjob(&kubectl, "x")["spec"]["schedule"], "0 0 1 1 *");
}

#[tokio::test]
async fn an_orphan_is_taken_back_and_a_quota_is_told_and_waited_for() {
    let kubectl = kubectl("ct-orphan").await;
    kubectl.apply(&rare("x", "")).good();
    wait_ready(&kubectl, "x");
    let uid = kubectl.field("cronjob/x", "{.metadata.uid}");
    kubectl
        .run("patch cronjob/x --type=merge -p {\"metadata\":{\"ownerReferences\":null}}")
        .good();
    kubectl
        .until_field(
            "cronjob/x",
            "{.metadata.ownerReferences[0].kind}",
            "CronTab",
        )
        .await;
    assert_eq!(kubectl.field("cronjob/x", "{.metadata.uid}"), uid);

    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n\
                 spec: {hard: {count/cronjobs.batch: \"1\"}}\n";
    kubectl.apply(quota).good();
    kubectl
        .until_refused(
            "create cronjob probe --image=probe:1 --schedule=@yearly",
            "exceeded quota: q",
        )
        .await;
    kubectl.apply(&rare("other", "")).good();
    let ready = "{.status.conditions[?(@.type==\"Ready\")].reason}";
    kubectl.until_field("ct/other", ready, "Refused").await;
    let message = kubectl.field(
        "ct/other",
        "{.status.conditions[?(@.type==\"Degraded\")].message}",
    );
    assert!(message.contains("exceeded quota: q"), "{message}");
    kubectl.run("delete quota/q").good();
    wait_ready(&kubectl, "other");
}

#[tokio::test]
async fn every_bad_input_is_named_at_once() {
    let kubectl = kubectl("ct-refused").await;
    let long = "a".repeat(53);
    let bad = format!(
        "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {long}}}\nspec:\n  \
         cronSpec: 61 24 * * *\n  image: a b\n  timeZone: Local\n  command: [\"\"]\n"
    );
    let said = kubectl.apply(&bad).bad();
    for fault in [
        "metadata.name: Too long: may not be more than 52 bytes",
        "spec.cronSpec: Invalid value: \"61 24 * * *\": at character 1 (minute): expected a number from 0 to 59, found \"61\"",
        "spec.cronSpec: Invalid value: \"61 24 * * *\": at character 4 (hour): expected a number from 0 to 23, found \"24\"",
        "spec.image: Invalid value: \"a b\": ",
        "spec.timeZone: Invalid value: \"Local\": must be an explicit time zone",
        "spec.command[0]: Required value: the first item is the program",
    ] {
        assert!(said.contains(fault), "{fault} is not in\n{said}");
    }
    for (cron_spec, fault) in [
        ("0 * * * * *", "at character 11: found 6 fields"),
        (
            "0 0 30 2 *",
            "at character 5 (day of month): no month that is named has such a day",
        ),
        (
            "TZ=UTC 0 0 * * *",
            "at character 1: a time zone is not taken here",
        ),
        ("@reboot", "at character 1: expected @yearly"),
    ] {
        let yaml = rare("x", "").replace("0 0 1 1 *", &format!("\"{cron_spec}\""));
        let said = kubectl.apply(&yaml).bad();
        assert!(said.contains(fault), "{fault} is not in\n{said}");
    }
    let said = kubectl
        .apply(&rare("x", "").replace("0 0 1 1 *", &format!("{:?}", "1,".repeat(5_000))))
        .bad();
    assert!(
        said.contains("spec.cronSpec: Too long: may not be more than 1024 bytes"),
        "{said}"
    );
    // That one is the schema's, which is asked first, and alone.
    let said = kubectl.apply(&rare("x", ", replicas: 11")).bad();
    assert!(
        said.contains("spec.replicas: Invalid value: 11: ") && said.contains("equal to 10"),
        "{said}"
    );
    kubectl.apply(&rare(&long[1..], "")).good();
    let said = kubectl.run("get cronjobs -o name").good();
    assert!(!said.contains("/x\n"), "{said}");
}

#[tokio::test]
async fn what_was_started_is_told_and_the_next_time_is_renewed_when_it_passes() {
    let kubectl = kubectl("ct-started").await;
    kubectl
        .apply(&rare("x", "").replace("0 0 1 1 *", "\"* * * * *\""))
        .good();
    wait_ready(&kubectl, "x");
    let field = |name: &str| kubectl.field("ct/x", &format!("{{.status.{name}}}"));
    let first = time(&field("nextScheduleTime"));
    // It may be a minute away, before the controller has a moment.
    let last = try_wait(PATIENCE + Duration::from_mins(1), || {
        let last = field("lastScheduleTime");
        (!last.is_empty() && time(&last) >= first).then(|| time(&last))
    });
    let last = last.await.expect("the run that was told was not started");
    wait_for("the next time to be renewed", || {
        let next = field("nextScheduleTime");
        (!next.is_empty() && time(&next) > last).then_some(())
    })
    .await;
    // Its image is on no node of this cluster, or its pod ends at once.
    let jobs = kubectl
        .run("get jobs -l stable.example.com/crontab=x -o name")
        .good();
    assert!(jobs.contains("job.batch/x-"), "{jobs}");
}
