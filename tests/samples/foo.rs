//! Foo: a Deployment of nginx of the name and the size that it says, and of nobody else's.

use serde_json::Value;

use crate::harness::policies::Policy;
use crate::harness::{Kubectl, PATIENCE, seed, try_wait, wait_for};
use crate::kubectl;

/// A Foo that names that Deployment, with as many replicas.
fn foo(name: &str, deployment: &str, replicas: i32) -> String {
    format!(
        "{{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {{name: {name}}},
           spec: {{deploymentName: {deployment}, replicas: {replicas}}}}}"
    )
}

/// Waits until that Foo's Deployment has all its pods.
fn until_available(kubectl: &Kubectl, name: &str) {
    let wait = "wait --for=condition=Available --timeout=90s foo";
    kubectl.run(&format!("{wait}/{name}")).good();
}

/// Waits until that Foo says that its Deployment is somebody else's.
async fn until_in_conflict(kubectl: &Kubectl, name: &str) {
    let reason = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
    kubectl
        .until_field(&format!("foo/{name}"), reason, "ErrResourceExists")
        .await;
}

/// How often it was told of that Foo that it is synced.
fn told(kubectl: &Kubectl, name: &str, reason: &str) -> u64 {
    let events = kubectl.run("get events.events.k8s.io -o json").good();
    let events: Value = serde_json::from_str(&events).unwrap();
    let events = events["items"].as_array().unwrap().iter();
    let of = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == reason;
    let count = |event: &Value| event["series"]["count"].as_u64().unwrap_or(1);
    events.filter(of).map(count).sum()
}

#[tokio::test]
async fn example_foo_keeps_a_deployment() {
    let kubectl = kubectl("foo-transcript").await;
    let sample = "apply -f config/samples/sample-kinds/samplecontroller_v1alpha1_foo.yaml";
    assert_eq!(
        kubectl.run(sample).good(),
        "foo.samplecontroller.k8s.io/example-foo created\n"
    );
    until_available(&kubectl, "example-foo");
    let table = kubectl.run("get deployments").good();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["example-foo", "1/1", "1", "1"], "{table}");
    let table = kubectl.run("get foos").good();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["NAME", "DEPLOYMENT", "REPLICAS", "AVAILABLE", "AGE"]
    );
    assert_eq!(rows[1][..4], ["example-foo", "example-foo", "1", "1"]);

    // As the original makes it.
    for (path, value) in [
        ("{.spec.template.spec.containers[*].name}", "nginx"),
        ("{.spec.template.spec.containers[*].image}", "nginx:latest"),
        (
            "{.spec.selector.matchLabels}",
            r#"{"app":"nginx","controller":"example-foo"}"#,
        ),
        (
            "{.spec.template.metadata.labels}",
            r#"{"app":"nginx","controller":"example-foo"}"#,
        ),
        ("{.metadata.ownerReferences[*].kind}", "Foo"),
        ("{.metadata.ownerReferences[*].controller}", "true"),
        ("{.metadata.labels.controller}", "example-foo"),
    ] {
        let found = kubectl.field("deployment/example-foo", path);
        assert_eq!(found, value, "{path}");
    }

    // Nothing changed: nothing is written, nothing is told.
    assert_eq!(
        kubectl.run(sample).good(),
        "foo.samplecontroller.k8s.io/example-foo unchanged\n"
    );
    let replicas = r#"patch foo/example-foo --type=merge -p {"spec":{"replicas":3}}"#;
    kubectl.run(replicas).good();
    kubectl
        .until_field("foo/example-foo", "{.status.availableReplicas}", "3")
        .await;
    let ready = "{.status.readyReplicas}";
    kubectl
        .until_field("deployment/example-foo", ready, "3")
        .await;
    kubectl
        .until_field("foo/example-foo", "{.status.observedGeneration}", "2")
        .await;
    // Once when it was made, once when it was changed.
    wait_for("both to be told", || {
        (told(&kubectl, "example-foo", "Synced") >= 2).then_some(())
    })
    .await;
    let story = kubectl.run("describe foo/example-foo").good();
    assert!(story.contains("Foo synced successfully"), "{story}");
    assert_eq!(told(&kubectl, "example-foo", "Synced"), 2, "{story}");

    // The Deployment goes with its owner.
    kubectl.run("delete foo/example-foo").good();
    kubectl.until_gone("deployments").await;
}

#[tokio::test]
async fn drift_is_put_back_and_the_fields_of_others_are_left() {
    let kubectl = kubectl("foo-drift").await;
    kubectl.apply(&foo("x", "web", 2)).good();
    until_available(&kubectl, "x");
    let uid = kubectl.field("deployment/web", "{.metadata.uid}");
    kubectl
        .run("annotate deployment/web example.com/note=mine")
        .good();
    for (change, path, value) in [
        ("scale deployment/web --replicas=7", "{.spec.replicas}", "2"),
        (
            "set image deployment/web nginx=busybox:1",
            "{.spec.template.spec.containers[*].image}",
            "nginx:latest",
        ),
        (
            "label deployment/web app-",
            "{.metadata.labels.app}",
            "nginx",
        ),
        (
            "label deployment/web controller=me --overwrite",
            "{.metadata.labels.controller}",
            "x",
        ),
    ] {
        let before = told(&kubectl, "x", "Synced");
        kubectl.run(change).good();
        kubectl.until_field("deployment/web", path, value).await;
        wait_for("the repair to be told", || {
            (told(&kubectl, "x", "Synced") > before).then_some(())
        })
        .await;
    }
    let note = "{.metadata.annotations.example\\.com/note}";
    assert_eq!(kubectl.field("deployment/web", note), "mine");
    assert_eq!(kubectl.field("deployment/web", "{.metadata.uid}"), uid);
    until_available(&kubectl, "x");

    // Deleted, it is made again.
    kubectl.run("delete deployment/web").good();
    wait_for("another Deployment", || {
        let found = kubectl.field("deployment/web", "{.metadata.uid}");
        (!found.is_empty() && found != uid).then_some(())
    })
    .await;
    until_available(&kubectl, "x");
}

#[tokio::test]
async fn a_deployment_of_somebody_else_is_never_touched() {
    let kubectl = kubectl("foo-foreign").await;
    kubectl
        .run("create deployment taken --image=busybox:1 --replicas=0")
        .good();
    let before = kubectl.deployment_at_rest("taken").await;
    kubectl.apply(&foo("x", "taken", 1)).good();
    until_in_conflict(&kubectl, "x").await;
    wait_for("the Event", || {
        (told(&kubectl, "x", "ErrResourceExists") > 0).then_some(())
    })
    .await;
    let story = kubectl.run("describe foo/x").good();
    let sentence = "Resource \"taken\" already exists and is not managed by Foo";
    assert!(
        story.contains("Warning") && story.contains(sentence),
        "{story}"
    );
    // A change of the Foo is no reason either.
    kubectl.apply(&foo("x", "taken", 2)).good();
    kubectl
        .until_field("foo/x", "{.status.observedGeneration}", "2")
        .await;
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "0")
        .await;
    let after = kubectl.run("get deployment/taken -o yaml").good();
    assert_eq!(before, after);
    assert_eq!(told(&kubectl, "x", "Synced"), 0);

    // When it is gone, the name is free.
    kubectl.run("delete deployment/taken").good();
    until_available(&kubectl, "x");
    assert_eq!(kubectl.field("deployment/taken", "{.spec.replicas}"), "2");
    kubectl
        .run("wait --for=condition=Degraded=false --timeout=90s foo/x")
        .good();
}

#[tokio::test]
async fn of_two_that_name_one_deployment_the_second_waits_for_the_first_to_go() {
    let kubectl = kubectl("foo-two").await;
    kubectl.apply(&foo("first", "shared", 1)).good();
    until_available(&kubectl, "first");
    kubectl.apply(&foo("second", "shared", 3)).good();
    until_in_conflict(&kubectl, "second").await;
    let path = "{.spec.selector.matchLabels.controller}";
    assert_eq!(kubectl.field("deployment/shared", path), "first");
    let version = kubectl.field("deployment/shared", "{.metadata.generation}");
    assert_eq!(version, "1", "somebody wrote");

    let table = kubectl.run("get foo/second -o wide").good();
    assert!(table.contains("ErrResourceExists"), "{table}");

    kubectl.run("delete foo/first").good();
    kubectl
        .until_field("deployment/shared", path, "second")
        .await;
    until_available(&kubectl, "second");
    assert_eq!(kubectl.field("deployment/shared", "{.spec.replicas}"), "3");
}

#[tokio::test]
async fn of_two_that_come_at_once_one_has_the_deployment_and_the_other_writes_nothing() {
    const PAIRS: usize = 10;
    let kubectl = kubectl("foo-race").await;
    let pairs: Vec<String> = (0..PAIRS)
        .flat_map(|n| ["a", "b"].map(|side| foo(&format!("{side}{n}"), &format!("web{n}"), 1)))
        .collect();
    kubectl.apply(&pairs.join("\n---\n")).good();
    let having = |path: &str, value: &str| {
        let said = kubectl.field("foos", &format!("{{.items[*]{path}}}"));
        said.split(' ').filter(|found| *found == value).count()
    };
    let reason = ".status.conditions[?(@.type==\"Degraded\")].reason";
    wait_for("one of each pair to have it", || {
        let losers = having(reason, "ErrResourceExists");
        let winners = having(".status.availableReplicas", "1");
        (losers == PAIRS && winners == PAIRS).then_some(())
    })
    .await;
    let generations = kubectl.field("deployments", "{.items[*].metadata.generation}");
    assert_eq!(generations, ["1"; PAIRS].join(" "), "somebody wrote");
    // The loser of a close race is told the same as any other.
    let reasons = kubectl.run("get events.events.k8s.io -o jsonpath={.items[*].reason}");
    assert!(!reasons.good().contains("Refused"));
}

#[tokio::test]
async fn whatever_names_they_are_given_they_come_to_rest() {
    const FOOS: [&str; 3] = ["a", "b", "c"];
    const NAMES: [&str; 4] = ["one", "two", "three", "four"];
    let mut random = fastrand::Rng::with_seed(seed("the names"));
    let kubectl = kubectl("foo-names").await;
    let mut steps = Vec::new();
    for _ in 0..40 {
        let (who, name) = (FOOS[random.usize(..3)], NAMES[random.usize(..4)]);
        steps.push(match random.u32(..10) {
            0..6 => {
                let replicas = random.i32(1..4);
                kubectl.apply(&foo(who, name, replicas)).good();
                format!("{who} names {name}, {replicas}")
            }
            6 => {
                kubectl.run(&format!("delete foo/{who} --ignore-not-found")).good();
                format!("{who} is deleted")
            }
            7 => {
                kubectl.run(&format!("delete deployment/{name} --ignore-not-found")).good();
                format!("{name} is deleted")
            }
            8 => {
                // It may not be there.
                kubectl.run(&format!("scale deployment/{name} --replicas=5"));
                format!("{name} is scaled")
            }
            _ => {
                kubectl.run(&format!(
                    r#"patch deployment/{name} --type=json -p [{{"op":"remove","path":"/metadata/ownerReferences"}}]"#
                ));
                format!("{name} is orphaned")
            }
        });
    }
    let last = std::cell::RefCell::new(String::new());
    let came = try_wait(PATIENCE, || {
        let wrong = unrest(&kubectl);
        let rests = wrong.is_empty();
        *last.borrow_mut() = wrong.join("; ");
        rests.then_some(())
    })
    .await;
    let steps = steps.join("\n");
    assert!(came.is_some(), "{}\n{steps}", last.borrow());
}

/// What is not as it should be in the end.
fn unrest(kubectl: &Kubectl) -> Vec<String> {
    let list = |what: &str| {
        let said = kubectl.run(&format!("get {what} -o json")).good();
        let list: Value = serde_json::from_str(&said).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    let (foos, deployments) = (list("foos"), list("deployments"));
    let mut wrong = Vec::new();
    for object in &foos {
        let (name, spec) = (&object["metadata"]["name"], &object["spec"]);
        let owner =
            |d: &&Value| d["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"];
        let mut own = deployments.iter().filter(owner);
        let (own, more) = (own.next(), own.count());
        if more > 0 {
            wrong.push(format!("{name} has several"));
        }
        let named = deployments
            .iter()
            .find(|d| d["metadata"]["name"] == spec["deploymentName"]);
        let conditions = object["status"]["conditions"].as_array();
        let degraded = conditions
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Degraded")
            .map(|c| &c["reason"]);
        let expected = match named {
            None => {
                wrong.push(format!("{name} has none"));
                continue;
            }
            Some(named) if own == Some(named) => {
                if named["spec"]["replicas"] != spec["replicas"]
                    || object["status"]["availableReplicas"] != spec["replicas"]
                {
                    wrong.push(format!("that of {name} is not as it says"));
                }
                "AsDesired"
            }
            Some(_) => "ErrResourceExists",
        };
        if object["status"]["observedGeneration"] != object["metadata"]["generation"]
            || degraded != Some(&Value::from(expected))
        {
            wrong.push(format!("{name} says {degraded:?} instead of {expected}"));
        }
    }
    for deployment in &deployments {
        let owner = &deployment["metadata"]["ownerReferences"][0]["uid"];
        let left = owner.is_null();
        if !left
            && !foos
                .iter()
                .any(|object| object["metadata"]["uid"] == *owner)
        {
            wrong.push(format!("{} is left over", deployment["metadata"]["name"]));
        }
    }
    wrong
}

#[tokio::test]
async fn another_name_is_another_deployment_and_the_old_one_goes() {
    let kubectl = kubectl("foo-rename").await;
    kubectl
        .run("create deployment taken --image=busybox:1 --replicas=0")
        .good();
    let stranger = kubectl.deployment_at_rest("taken").await;
    kubectl.apply(&foo("x", "one", 1)).good();
    until_available(&kubectl, "x");
    kubectl.apply(&foo("x", "two", 1)).good();
    kubectl.until_gone("deployment/one").await;
    until_available(&kubectl, "x");
    let uid = kubectl.field("deployment/two", "{.metadata.uid}");
    assert!(!uid.is_empty());

    // To a name that somebody else has: what there is stays, until the name is free.
    kubectl.apply(&foo("x", "taken", 1)).good();
    until_in_conflict(&kubectl, "x").await;
    assert_eq!(kubectl.field("deployment/two", "{.metadata.uid}"), uid);
    let after = kubectl.run("get deployment/taken -o yaml").good();
    assert_eq!(stranger, after);
    kubectl.run("delete deployment/taken").good();
    kubectl.until_gone("deployment/two").await;
    until_available(&kubectl, "x");
    let names = kubectl.run("get deployments -o name").good();
    assert_eq!(names, "deployment.apps/taken\n");
}

#[tokio::test]
async fn an_old_deployment_that_may_not_be_deleted_is_told_beside_the_new_one() {
    let kubectl = kubectl("foo-leftover").await;
    kubectl.apply(&foo("x", "one", 1)).good();
    until_available(&kubectl, "x");
    let policy = Policy::deny(&kubectl, "DELETE", "deployments", "true").await;
    kubectl.apply(&foo("x", "two", 2)).good();
    let of_degraded =
        |field: &str| format!("{{.status.conditions[?(@.type==\"Degraded\")].{field}}}");
    kubectl
        .until_field("foo/x", &of_degraded("reason"), "Refused")
        .await;
    let message = kubectl.field("foo/x", &of_degraded("message"));
    assert!(
        message.starts_with("Deployment \"one\", which is of an earlier spec, cannot be deleted: ")
            && message.contains("held back by a test"),
        "{message}"
    );
    // All else goes on.
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "2")
        .await;
    assert_eq!(kubectl.field("foo/x", "{.status.observedGeneration}"), "2");
    drop(policy);
    kubectl.until_gone("deployment/one").await;
    kubectl
        .until_field("foo/x", &of_degraded("reason"), "AsDesired")
        .await;
}

#[tokio::test]
async fn an_orphan_of_ours_is_taken_back_and_one_that_has_another_controller_is_left() {
    let kubectl = kubectl("foo-orphan").await;
    kubectl.apply(&foo("x", "web", 1)).good();
    until_available(&kubectl, "x");
    let uid = kubectl.field("deployment/web", "{.metadata.uid}");
    let orphan = r#"patch deployment/web --type=json -p [{"op":"remove","path":"/metadata/ownerReferences"}]"#;
    kubectl.run(orphan).good();
    let owner = "{.metadata.ownerReferences[*].kind}";
    kubectl.until_field("deployment/web", owner, "Foo").await;
    assert_eq!(kubectl.field("deployment/web", "{.metadata.uid}"), uid);

    // An object that is there: the garbage collector takes what has an owner that is not.
    kubectl.run("create configmap usurper").good();
    let usurper = kubectl.field("configmap/usurper", "{.metadata.uid}");
    let taken = format!(
        r#"[{{"op":"replace","path":"/metadata/ownerReferences","value":[{{"apiVersion":"v1","kind":"ConfigMap","name":"usurper","uid":"{usurper}","controller":true}}]}}]"#
    );
    kubectl
        .run(&format!("patch deployment/web --type=json -p {taken}"))
        .good();
    until_in_conflict(&kubectl, "x").await;
    let before = kubectl.deployment_at_rest("web").await;
    kubectl.apply(&foo("x", "web", 3)).good();
    kubectl
        .until_field("foo/x", "{.status.observedGeneration}", "2")
        .await;
    let after = kubectl.run("get deployment/web -o yaml").good();
    assert_eq!(before, after);

    // Given back, it is what the Foo says now.
    kubectl.run(orphan).good();
    kubectl.until_field("deployment/web", owner, "Foo").await;
    until_available(&kubectl, "x");
    assert_eq!(kubectl.field("deployment/web", "{.metadata.uid}"), uid);
    assert_eq!(kubectl.field("deployment/web", "{.spec.replicas}"), "3");
}

#[tokio::test]
async fn what_a_quota_refuses_is_told_and_made_when_there_is_room() {
    let kubectl = kubectl("foo-quota").await;
    kubectl
        .run("create quota none --hard=count/deployments.apps=0")
        .good();
    kubectl
        .until_refused(
            "create deployment probe --image=probe:1",
            "exceeded quota: none",
        )
        .await;
    kubectl.apply(&foo("x", "web", 1)).good();
    kubectl
        .run("wait --for=condition=Degraded --timeout=90s foo/x")
        .good();
    let message = "{.status.conditions[?(@.type==\"Degraded\")].message}";
    let message = kubectl.field("foo/x", message);
    assert!(message.contains("exceeded quota: none"), "{message}");
    kubectl.run("delete quota/none").good();
    until_available(&kubectl, "x");

    // Where the Deployment may be and its pods may not, the Deployment says so.
    kubectl.run("create quota few --hard=pods=1").good();
    kubectl
        .until_refused("run probe --image=probe:1", "exceeded quota: few")
        .await;
    kubectl.apply(&foo("x", "web", 2)).good();
    kubectl
        .run("wait --for=condition=Degraded --timeout=90s foo/x")
        .good();
    let wide = kubectl.run("get foo/x -o wide").good();
    assert!(wide.contains("ReplicaFailure"), "{wide}");
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "1")
        .await;
    kubectl.run("delete quota/few").good();
    // The built-in controller waits long before it tries again; a new spec is another reason to.
    kubectl.apply(&foo("x", "web", 3)).good();
    until_available(&kubectl, "x");
}

#[tokio::test]
async fn a_namespace_that_ends_takes_all_with_it() {
    let kubectl = kubectl("foo-ending").await;
    kubectl.apply(&foo("x", "web", 1)).good();
    until_available(&kubectl, "x");
    let namespace = kubectl.namespace.clone();
    kubectl
        .run(&format!("delete namespace {namespace} --timeout=90s"))
        .good();
    kubectl.until_gone(&format!("namespace/{namespace}")).await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_every_fault_at_once() {
    let kubectl = kubectl("foo-faults").await;
    let spec = |spec: &str| {
        format!(
            "{{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {{name: bad}}, spec: {spec}}}"
        )
    };
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let required = "spec.deploymentName: Required value: the name of the Deployment";
    for none in ["{}", "{deploymentName: ''}", "{deploymentName: null}"] {
        assert_eq!(
            kubectl.apply(&spec(none)).bad(),
            format!("The Foo \"bad\" is invalid: {required}\n"),
            "{none}"
        );
    }
    let none = "{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: bad}}";
    assert_eq!(
        kubectl.apply(none).bad(),
        format!("The Foo \"bad\" is invalid: {required}\n")
    );
    let long = "X".repeat(300);
    let cut = format!("{}...", "X".repeat(128));
    assert_eq!(
        kubectl
            .apply(&spec(&format!("{{deploymentName: {long}, replicas: 0}}")))
            .bad(),
        format!(
            "The Foo \"bad\" is invalid: \n\
             * spec.deploymentName: Invalid value: \"{cut}\": must be no more than 63 characters\n\
             * spec.deploymentName: Invalid value: \"{cut}\": {label}\n\
             * spec.replicas: Invalid value: 0: must be greater than or equal to 1\n"
        )
    );
    let sample = "apply -f config/samples/sample-kinds/bad/samplecontroller_v1alpha1_foo.yaml";
    assert_eq!(
        kubectl.run(sample).bad(),
        format!(
            "The Foo \"bad-foo\" is invalid: \n\
             * spec.deploymentName: Invalid value: \"Example-foo\": {label}\n\
             * spec.replicas: Invalid value: 11: must be less than or equal to 10\n"
        )
    );
    // The type alone is the schema's.
    let text = kubectl
        .apply(&spec("{deploymentName: web, replicas: x}"))
        .bad();
    assert!(
        text.contains("spec.replicas: Invalid value: \"string\""),
        "{text}"
    );
    let long = "x".repeat(64);
    let text = kubectl.apply(&foo(&long, "web", 1)).bad();
    assert!(
        text.contains("metadata.name: Too long: may not be more than 63 bytes"),
        "{text}"
    );
    assert_eq!(kubectl.run("get foos -o name").good(), "");

    // The words are those that a built-in kind has for a label.
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: x}}, spec: {{containers: [{{name: Example-foo, image: 'a:1'}}, {{name: {long}, image: 'a:1'}}, {{name: a.b, image: 'a:1'}}]}}}}"
    );
    let text = kubectl.apply(&pod).bad();
    for words in [
        label,
        "must be no more than 63 characters",
        "must not contain dots",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    // What is well is taken, and nothing is filled in but one replica.
    kubectl.apply(&spec("{deploymentName: web}")).good();
    assert_eq!(
        kubectl.field("foo/bad", "{.spec}"),
        r#"{"deploymentName":"web","replicas":1}"#
    );
}

#[tokio::test]
async fn the_definition_says_that_nobody_approved_it() {
    let kubectl = kubectl("foo-crd").await;
    let condition = "{.status.conditions[?(@.type==\"KubernetesAPIApprovalPolicyConformant\")]";
    let crd = "crd/foos.samplecontroller.k8s.io";
    for (field, value) in [("status", "False"), ("reason", "UnapprovedAnnotation")] {
        kubectl
            .until_field(crd, &format!("{condition}.{field}}}"), value)
            .await;
    }
    // Without the annotation the API server does not take it.
    let text = kubectl.run(&format!("get {crd} -o json")).good();
    let mut definition: Value = serde_json::from_str(&text).unwrap();
    definition["metadata"] = serde_json::json!({"name": "boos.samplecontroller.k8s.io"});
    definition["spec"]["names"] = serde_json::json!({"plural": "boos", "kind": "Boo"});
    let said = kubectl.with("create --dry-run=server -f -", &definition.to_string());
    assert!(
        said.bad()
            .contains("protected groups must have approval annotation")
    );
}
