//! CronTabs, as a user works with them.

use serde_json::Value;

use crate::harness::{Kubectl, time, wait_for};
use crate::samples::{kubectl, rejection};

const MINE: &str = "ct/my-new-cron-object";

/// One that is due on New Year's Day alone.
fn rare(name: &str, more: &str) -> String {
    format!(
        "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {name}}}\n\
         spec: {{cronSpec: 0 0 1 1 *, image: \"busybox:1.37\"{more}}}\n"
    )
}

const READY: &str = "{.status.conditions[?(@.type==\"Ready\")].reason}";
const NEXT: &str = "{.status.nextScheduleTime}";
const LAST: &str = "{.status.lastScheduleTime}";

async fn cronjob(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.object(&format!("cronjob/{name}")).await
}

async fn wait_ready(kubectl: &Kubectl, name: &str) {
    let object = format!("ct/{name}");
    kubectl.until_condition(&object, "Ready", "True").await;
}

#[tokio::test]
async fn the_official_example_is_a_cronjob_that_can_be_scaled() {
    let kubectl = kubectl("ct-transcript").await;
    let sample = "apply -f config/samples/sample-kinds/stable_v1_crontab.yaml";
    let said = kubectl.run(sample).await.good();
    assert_eq!(
        said,
        "crontab.stable.example.com/my-new-cron-object created\n"
    );
    wait_ready(&kubectl, "my-new-cron-object").await;
    let table = kubectl.run("get ct").await.good();
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
        let found = kubectl.run(&format!("get {word} -o name")).await.good();
        assert!(found.contains("/my-new-cron-object"), "{word}: {found}");
    }
    let said = kubectl.run(sample).await.good();
    assert_eq!(
        said,
        "crontab.stable.example.com/my-new-cron-object unchanged\n"
    );

    let child = cronjob(&kubectl, "my-new-cron-object").await;
    let spec = &child["spec"];
    assert_eq!(spec["schedule"], "* * * * */5");
    assert_eq!(spec["timeZone"], "Etc/UTC");
    let pod = &spec["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "my-awesome-cron-image");
    assert_eq!(pod["restartPolicy"], "OnFailure");
    assert_eq!(child["metadata"]["ownerReferences"][0]["kind"], "CronTab");

    kubectl
        .run(&format!("scale {MINE} --replicas=3"))
        .await
        .good();
    for field in ["parallelism", "completions"] {
        let path = format!("{{.spec.jobTemplate.spec.{field}}}");
        kubectl
            .until_field("cronjob/my-new-cron-object", &path, "3")
            .await;
    }
    kubectl.until_field(MINE, "{.status.replicas}", "3").await;
    // No webhook sees what is scaled: the schema rejects it.
    for (count, bound) in [
        ("11", "less than or equal to 10"),
        ("0", "greater than or equal to 1"),
    ] {
        let said = kubectl
            .run(&format!("scale {MINE} --replicas={count}"))
            .await
            .bad();
        assert!(
            said.contains("spec.replicas") && said.contains(bound),
            "{said}"
        );
    }
    assert_eq!(kubectl.field(MINE, "{.spec.replicas}").await, "3");

    // The CronJob is deleted with its owner.
    kubectl.run(&format!("delete {MINE}")).await.good();
    kubectl.until_gone("cronjobs").await;
}

#[tokio::test]
async fn absent_fields_get_their_defaults() {
    let kubectl = kubectl("ct-defaults").await;
    kubectl
        .apply(
            "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: x}\n\
             spec: {image: \"busybox:1.37\"}\n",
        )
        .await
        .good();
    let spec = kubectl.field("ct/x", "{.spec}").await;
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let expected = serde_json::json!({"cronSpec": "5 0 * * *", "image": "busybox:1.37",
        "replicas": 1, "suspend": false, "timeZone": "Etc/UTC"});
    assert_eq!(spec, expected);
    let next = kubectl.until_any("ct/x", NEXT).await;
    assert!(next.ends_with("T00:05:00Z"), "{next}");
}

#[tokio::test]
async fn owned_fields_are_restored_and_the_fields_of_others_stay() {
    let kubectl = kubectl("ct-drift").await;
    kubectl.apply(&rare("x", "")).await.good();
    wait_ready(&kubectl, "x").await;
    let child = "cronjob/x";
    let patch = async |spec: &str| {
        kubectl
            .run(&format!(
                "patch {child} --type=merge -p {{\"spec\":{spec}}}"
            ))
            .await
            .good();
    };
    patch(
        "{\"schedule\":\"@hourly\",\"suspend\":true,\"timeZone\":\"Asia/Tokyo\",\"concurrencyPolicy\":\"Forbid\"}",
    ).await;
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
    patch("{\"jobTemplate\":{\"spec\":{\"parallelism\":7}}}").await;
    kubectl
        .until_field(child, "{.spec.jobTemplate.spec.parallelism}", "1")
        .await;

    let uid = kubectl.field(child, "{.metadata.uid}").await;
    kubectl.run(&format!("delete {child}")).await.good();
    kubectl.until_replaced(child, &uid).await;
    wait_ready(&kubectl, "x").await;
}

#[tokio::test]
async fn a_conflicting_writer_is_reported_and_no_next_run_is_promised() {
    let kubectl = kubectl("ct-contested").await;
    kubectl.apply(&rare("x", "")).await.good();
    wait_ready(&kubectl, "x").await;
    let rival = "patch cronjob/x --type=merge -p {\"spec\":{\"schedule\":\"@hourly\"}}";
    let schedule = "{.spec.schedule}";
    wait_for("the status to say Contested", async || {
        kubectl.run(rival).await.good();
        kubectl
            .until_field("cronjob/x", schedule, "0 0 1 1 *")
            .await;
        (kubectl.field("ct/x", READY).await == "Contested").then_some(())
    })
    .await;
    kubectl.absent("ct/x", NEXT).await;
}

#[tokio::test]
async fn a_copy_of_the_cronjob_is_left_alone() {
    let kubectl = kubectl("ct-copy").await;
    kubectl.apply(&rare("x", "")).await.good();
    wait_ready(&kubectl, "x").await;
    let mut copy = cronjob(&kubectl, "x").await;
    copy["metadata"]["name"] = "copy".into();
    for field in ["uid", "resourceVersion", "managedFields"] {
        copy["metadata"].as_object_mut().unwrap().remove(field);
    }
    kubectl.with("create -f -", &copy.to_string()).await.good();
    let before = cronjob(&kubectl, "copy").await;
    kubectl.apply(&rare("x", ", replicas: 2")).await.good();
    kubectl
        .until_field("ct/x", "{.status.observedGeneration}", "2")
        .await;
    assert_eq!(cronjob(&kubectl, "copy").await, before);
    // Not even an attempt to delete it was denied.
    let degraded = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
    assert_eq!(kubectl.field("ct/x", degraded).await, "AsDesired");
}

#[tokio::test]
async fn a_change_of_the_spec_changes_the_cronjob_and_a_removed_field_is_removed() {
    let kubectl = kubectl("ct-change").await;
    let more = ", command: [sh, -c, date], timeZone: Europe/Berlin";
    kubectl.apply(&rare("x", more)).await.good();
    wait_ready(&kubectl, "x").await;
    // Midnight of New Year's Day in Berlin.
    let next = kubectl.field("ct/x", NEXT).await;
    assert!(next.ends_with("-12-31T23:00:00Z"), "{next}");
    let command = "{.spec.jobTemplate.spec.template.spec.containers[0].command}";
    assert_eq!(
        kubectl.field("cronjob/x", command).await,
        "[\"sh\",\"-c\",\"date\"]"
    );
    kubectl.apply(&rare("x", ", suspend: true")).await.good();
    kubectl
        .until_field("cronjob/x", "{.spec.suspend}", "true")
        .await;
    kubectl.until_absent("cronjob/x", command).await;
    kubectl.until_field("ct/x", READY, "Suspended").await;
    kubectl.absent("ct/x", NEXT).await;
    kubectl.apply(&rare("x", "")).await.good();
    wait_ready(&kubectl, "x").await;
    let next = kubectl.field("ct/x", NEXT).await;
    assert!(next.ends_with("-01-01T00:00:00Z"), "{next}");
}

#[tokio::test]
async fn a_foreign_cronjob_is_left_alone_until_it_is_deleted() {
    let kubectl = kubectl("ct-foreign").await;
    kubectl
        .run("create cronjob x --image=busybox:1.36 --schedule=@yearly")
        .await
        .good();
    let before = cronjob(&kubectl, "x").await;
    kubectl.apply(&rare("x", "")).await.good();
    kubectl.until_condition("ct/x", "Degraded", "True").await;
    for type_ in ["Degraded", "Ready"] {
        let reason = format!("{{.status.conditions[?(@.type==\"{type_}\")].reason}}");
        assert_eq!(kubectl.field("ct/x", &reason).await, "CronJobExists");
    }
    kubectl.absent("ct/x", NEXT).await;
    assert_eq!(cronjob(&kubectl, "x").await, before);
    kubectl.run("delete cronjob/x").await.good();
    wait_ready(&kubectl, "x").await;
    assert_eq!(
        cronjob(&kubectl, "x").await["spec"]["schedule"],
        "0 0 1 1 *"
    );
}

#[tokio::test]
async fn an_orphan_is_adopted_and_an_exceeded_quota_is_reported() {
    let kubectl = kubectl("ct-orphan").await;
    kubectl.apply(&rare("x", "")).await.good();
    wait_ready(&kubectl, "x").await;
    let uid = kubectl.field("cronjob/x", "{.metadata.uid}").await;
    kubectl
        .run("patch cronjob/x --type=merge -p {\"metadata\":{\"ownerReferences\":null}}")
        .await
        .good();
    kubectl
        .until_field(
            "cronjob/x",
            "{.metadata.ownerReferences[0].kind}",
            "CronTab",
        )
        .await;
    assert_eq!(kubectl.field("cronjob/x", "{.metadata.uid}").await, uid);

    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n\
                 spec: {hard: {count/cronjobs.batch: \"1\"}}\n";
    kubectl.apply(quota).await.good();
    kubectl
        .until_refused(
            "create cronjob probe --image=probe:1 --schedule=@yearly",
            "exceeded quota: q",
        )
        .await;
    kubectl.apply(&rare("other", "")).await.good();
    kubectl.until_field("ct/other", READY, "Refused").await;
    let message = kubectl
        .field(
            "ct/other",
            "{.status.conditions[?(@.type==\"Degraded\")].message}",
        )
        .await;
    assert!(message.contains("exceeded quota: q"), "{message}");
    kubectl.run("delete quota/q").await.good();
    wait_ready(&kubectl, "other").await;
}

#[tokio::test]
async fn bad_input_is_rejected_with_every_fault_at_once() {
    let kubectl = kubectl("ct-bad").await;
    let long = "a".repeat(53);
    let bad = format!(
        "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {{name: {long}}}\nspec:\n  \
         cronSpec: 61 24 * * *\n  image: a b\n  timeZone: Local\n  command: [\"\"]\n"
    );
    let said = kubectl.apply(&bad).await.bad();
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
        let said = rejection(&kubectl, "crontabs", &yaml).await;
        assert!(said.contains(fault), "{fault} is not in\n{said}");
    }
    let long_spec = rare("x", "").replace("0 0 1 1 *", &format!("{:?}", "1,".repeat(5_000)));
    let said = rejection(&kubectl, "crontabs", &long_spec).await;
    assert!(
        said.contains("spec.cronSpec: Too long: may not be more than 1024 bytes"),
        "{said}"
    );
    // The schema rejects this one before any webhook is called.
    let said = rejection(&kubectl, "crontabs", &rare("x", ", replicas: 11")).await;
    assert!(
        said.contains("spec.replicas: Invalid value: 11: ") && said.contains("equal to 10"),
        "{said}"
    );
    kubectl.apply(&rare(&long[1..], "")).await.good();
    assert_eq!(kubectl.names("crontabs").await, [&long[1..]]);
}

#[tokio::test]
async fn the_last_run_is_reported_and_the_next_time_is_after_it() {
    let kubectl = kubectl("ct-started").await;
    let spec = rare("x", "").replace("0 0 1 1 *", "\"@every 5s\"");
    kubectl.apply(&spec).await.good();
    let last = time(&kubectl.until_any("ct/x", LAST).await);
    assert!(time(&kubectl.field("ct/x", NEXT).await) > last);
    // The Job may have ended by now, but it is kept.
    let jobs = kubectl.names("jobs -l stable.example.com/crontab=x").await;
    assert!(jobs[0].starts_with("x-"), "{jobs:?}");
}

/// It takes up to a minute, and `my_operator_samples::crontab` has unit tests of the arithmetic: only `make soak`
/// runs it.
#[tokio::test]
async fn the_next_time_is_renewed_when_it_passes() {
    if !my_operator_rounds::is_soak() {
        return;
    }
    let kubectl = kubectl("ct-renewed").await;
    let spec = rare("x", "").replace("0 0 1 1 *", "\"* * * * *\"");
    kubectl.apply(&spec).await.good();
    wait_ready(&kubectl, "x").await;
    let first = time(&kubectl.field("ct/x", NEXT).await);
    kubectl
        .until("ct/x", "to report the run that was due", |found| {
            let status = &found?["status"];
            let last = time(status["lastScheduleTime"].as_str()?);
            let next = time(status["nextScheduleTime"].as_str()?);
            (last >= first && next > last).then_some(())
        })
        .await;
}
