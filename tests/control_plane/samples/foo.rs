//! Foo: manages the Deployment of nginx that it names, and never touches one that it does not own.

use serde_json::Value;

use crate::harness::policies::Policy;
use crate::harness::{Kubectl, TIMEOUT, seed, try_wait};
use crate::samples::{kubectl, rejection};

/// A Foo that names that Deployment, with as many replicas.
fn foo(name: &str, deployment: &str, replicas: i32) -> String {
    format!(
        "{{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {{name: {name}}},
           spec: {{deploymentName: {deployment}, replicas: {replicas}}}}}"
    )
}

/// Waits until that Foo's Deployment has all its pods.
async fn until_available(kubectl: &Kubectl, name: &str) {
    let object = format!("foo/{name}");
    kubectl.until_condition(&object, "Available", "True").await;
}

/// Waits until that Foo reports that another object controls its Deployment.
async fn until_in_conflict(kubectl: &Kubectl, name: &str) {
    let reason = "{.status.conditions[?(@.type==\"Degraded\")].reason}";
    kubectl
        .until_field(&format!("foo/{name}"), reason, "ErrResourceExists")
        .await;
}

/// Returns when every Event that the operator had to publish before this call is there: it publishes them one after the
/// other, and that of a new Foo is there by then. The Deployment of the new Foo has its name.
async fn until_events_are_published(kubectl: &Kubectl) {
    kubectl.apply(&foo("witness", "witness", 1)).await.good();
    kubectl.until_published("witness", "Synced", 1).await;
}

#[tokio::test]
async fn example_foo_keeps_a_deployment() {
    let kubectl = kubectl("foo-transcript").await;
    let sample = "apply -f config/samples/sample-kinds/samplecontroller_v1alpha1_foo.yaml";
    assert_eq!(
        kubectl.run(sample).await.good(),
        "foo.samplecontroller.k8s.io/example-foo created\n"
    );
    until_available(&kubectl, "example-foo").await;
    let table = kubectl.run("get deployments").await.good();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["example-foo", "1/1", "1", "1"], "{table}");
    let table = kubectl.run("get foos").await.good();
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
        let found = kubectl.field("deployment/example-foo", path).await;
        assert_eq!(found, value, "{path}");
    }

    // Nothing changed: nothing is written, and no Event is published.
    assert_eq!(
        kubectl.run(sample).await.good(),
        "foo.samplecontroller.k8s.io/example-foo unchanged\n"
    );
    let replicas = r#"patch foo/example-foo --type=merge -p {"spec":{"replicas":3}}"#;
    kubectl.run(replicas).await.good();
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
    kubectl.until_published("example-foo", "Synced", 2).await;
    let story = kubectl.run("describe foo/example-foo").await.good();
    assert!(story.contains("Foo synced successfully"), "{story}");
    until_events_are_published(&kubectl).await;
    let published = kubectl.published("example-foo", "Synced").await;
    assert_eq!(published, 2, "{story}");

    // The Deployment is deleted with its owner.
    kubectl.run("delete foo/example-foo").await.good();
    kubectl.until_gone("deployment/example-foo").await;
}

#[tokio::test]
async fn drift_is_corrected_and_the_fields_of_others_stay() {
    let kubectl = kubectl("foo-drift").await;
    kubectl.apply(&foo("x", "web", 2)).await.good();
    until_available(&kubectl, "x").await;
    let uid = kubectl.field("deployment/web", "{.metadata.uid}").await;
    kubectl
        .run("annotate deployment/web example.com/note=mine")
        .await
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
        let before = kubectl.published("x", "Synced").await;
        kubectl.run(change).await.good();
        kubectl.until_field("deployment/web", path, value).await;
        kubectl.until_published("x", "Synced", before + 1).await;
    }
    let note = "{.metadata.annotations.example\\.com/note}";
    assert_eq!(kubectl.field("deployment/web", note).await, "mine");
    assert_eq!(
        kubectl.field("deployment/web", "{.metadata.uid}").await,
        uid
    );
    until_available(&kubectl, "x").await;

    // A deleted Deployment is created again.
    kubectl.run("delete deployment/web").await.good();
    kubectl.until_replaced("deployment/web", &uid).await;
    until_available(&kubectl, "x").await;
}

#[tokio::test]
async fn a_foreign_deployment_is_never_touched() {
    let kubectl = kubectl("foo-foreign").await;
    kubectl
        .run("create deployment taken --image=busybox:1 --replicas=0")
        .await
        .good();
    let before = kubectl.deployment_at_rest("taken").await;
    kubectl.apply(&foo("x", "taken", 1)).await.good();
    until_in_conflict(&kubectl, "x").await;
    kubectl.until_published("x", "ErrResourceExists", 1).await;
    let story = kubectl.run("describe foo/x").await.good();
    let sentence = "Resource \"taken\" already exists and is not managed by Foo";
    assert!(
        story.contains("Warning") && story.contains(sentence),
        "{story}"
    );
    // A change of the Foo does not change that.
    kubectl.apply(&foo("x", "taken", 2)).await.good();
    kubectl
        .until_field("foo/x", "{.status.observedGeneration}", "2")
        .await;
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "0")
        .await;
    let after = kubectl.run("get deployment/taken -o yaml").await.good();
    assert_eq!(before, after);
    until_events_are_published(&kubectl).await;
    assert_eq!(kubectl.published("x", "Synced").await, 0);

    // When it is deleted, the name is free.
    kubectl.run("delete deployment/taken").await.good();
    until_available(&kubectl, "x").await;
    assert_eq!(
        kubectl.field("deployment/taken", "{.spec.replicas}").await,
        "2"
    );
    kubectl.until_condition("foo/x", "Degraded", "False").await;
    kubectl.until_published("x", "Synced", 1).await;
}

#[tokio::test]
async fn of_two_that_name_one_deployment_the_second_waits_for_the_first_to_go() {
    let kubectl = kubectl("foo-two").await;
    kubectl.apply(&foo("first", "shared", 1)).await.good();
    until_available(&kubectl, "first").await;
    kubectl.apply(&foo("second", "shared", 3)).await.good();
    until_in_conflict(&kubectl, "second").await;
    let path = "{.spec.selector.matchLabels.controller}";
    assert_eq!(kubectl.field("deployment/shared", path).await, "first");
    let version = kubectl
        .field("deployment/shared", "{.metadata.generation}")
        .await;
    assert_eq!(version, "1", "it was written to");

    let table = kubectl.run("get foo/second -o wide").await.good();
    assert!(table.contains("ErrResourceExists"), "{table}");

    kubectl.run("delete foo/first").await.good();
    kubectl
        .until_field("deployment/shared", path, "second")
        .await;
    until_available(&kubectl, "second").await;
    assert_eq!(
        kubectl.field("deployment/shared", "{.spec.replicas}").await,
        "3"
    );
}

#[tokio::test]
async fn of_two_foos_created_at_once_one_owns_the_deployment_and_the_other_writes_nothing() {
    const PAIRS: usize = 10;
    let kubectl = kubectl("foo-race").await;
    let pairs: Vec<String> = (0..PAIRS)
        .flat_map(|n| ["a", "b"].map(|side| foo(&format!("{side}{n}"), &format!("web{n}"), 1)))
        .collect();
    kubectl.apply(&pairs.join("\n---\n")).await.good();
    kubectl
        .until("foos", "of each pair to have a Deployment once", |list| {
            let foos = list?["items"].as_array().unwrap();
            let is_loser = |foo: &&Value| degraded(foo) == Some("ErrResourceExists");
            let is_winner = |foo: &&Value| foo["status"]["availableReplicas"] == 1;
            let losers = foos.iter().filter(is_loser).count();
            let winners = foos.iter().filter(is_winner).count();
            (losers == PAIRS && winners == PAIRS).then_some(())
        })
        .await;
    let generations = kubectl
        .field("deployments", "{.items[*].metadata.generation}")
        .await;
    assert_eq!(generations, ["1"; PAIRS].join(" "), "one was written to");
    // The loser of a close race gets the same Event as any other.
    until_events_are_published(&kubectl).await;
    let reasons = kubectl.field("events", "{.items[*].reason}").await;
    assert!(reasons.contains("ErrResourceExists"), "{reasons}");
    assert!(!reasons.contains("Refused"), "{reasons}");
}

#[tokio::test]
async fn foos_that_compete_for_names_settle() {
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
                kubectl.apply(&foo(who, name, replicas)).await.good();
                format!("{who} names {name}, {replicas}")
            }
            6 => {
                kubectl.run(&format!("delete foo/{who} --ignore-not-found")).await.good();
                format!("{who} is deleted")
            }
            7 => {
                // No wait: if the operator deletes it between kubectl's GET and its DELETE, kubectl has no UID to
                // wait for, and waits until no Deployment of that name exists. There may soon be another one.
                let delete = format!("delete deployment/{name} --ignore-not-found --wait=false");
                kubectl.run(&delete).await.good();
                format!("{name} is deleted")
            }
            8 => {
                // It may not be there.
                kubectl.run(&format!("scale deployment/{name} --replicas=5")).await;
                format!("{name} is scaled")
            }
            _ => {
                kubectl.run(&format!(
                    r#"patch deployment/{name} --type=json -p [{{"op":"remove","path":"/metadata/ownerReferences"}}]"#
                )).await;
                format!("{name} is orphaned")
            }
        });
    }
    let last = std::cell::RefCell::new(String::new());
    let came = try_wait(TIMEOUT, async || {
        let wrong = unrest(&kubectl).await;
        let rests = wrong.is_empty();
        *last.borrow_mut() = wrong.join("; ");
        rests.then_some(())
    })
    .await;
    let steps = steps.join("\n");
    assert!(came.is_some(), "{}\n{steps}", last.borrow());
}

/// The reason of condition Degraded.
fn degraded(object: &Value) -> Option<&str> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == "Degraded")?["reason"].as_str()
}

/// What is not as it should be when everything has settled.
async fn unrest(kubectl: &Kubectl) -> Vec<String> {
    let list = async |what: &str| {
        let list = kubectl.object(what).await;
        list["items"].as_array().unwrap().clone()
    };
    let (foos, deployments) = (list("foos").await, list("deployments").await);
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
        let degraded = degraded(object);
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
            || degraded != Some(expected)
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
async fn with_another_name_there_is_another_deployment_and_the_old_one_is_deleted() {
    let kubectl = kubectl("foo-rename").await;
    kubectl
        .run("create deployment taken --image=busybox:1 --replicas=0")
        .await
        .good();
    let foreign = kubectl.deployment_at_rest("taken").await;
    kubectl.apply(&foo("x", "one", 1)).await.good();
    until_available(&kubectl, "x").await;
    kubectl.apply(&foo("x", "two", 1)).await.good();
    kubectl.until_gone("deployment/one").await;
    until_available(&kubectl, "x").await;
    let uid = kubectl.field("deployment/two", "{.metadata.uid}").await;

    // Another object has the next name: the old Deployment stays until that name is free.
    kubectl.apply(&foo("x", "taken", 1)).await.good();
    until_in_conflict(&kubectl, "x").await;
    assert_eq!(
        kubectl.field("deployment/two", "{.metadata.uid}").await,
        uid
    );
    let after = kubectl.run("get deployment/taken -o yaml").await.good();
    assert_eq!(foreign, after);
    kubectl.run("delete deployment/taken").await.good();
    kubectl.until_gone("deployment/two").await;
    until_available(&kubectl, "x").await;
    assert_eq!(kubectl.names("deployments").await, ["taken"]);
}

#[tokio::test]
async fn an_old_deployment_that_cannot_be_deleted_is_reported_beside_the_new_one() {
    let kubectl = kubectl("foo-leftover").await;
    kubectl.apply(&foo("x", "one", 1)).await.good();
    until_available(&kubectl, "x").await;
    let policy = Policy::deny(&kubectl, "DELETE", "deployments", "true").await;
    kubectl.apply(&foo("x", "two", 2)).await.good();
    let of_degraded =
        |field: &str| format!("{{.status.conditions[?(@.type==\"Degraded\")].{field}}}");
    kubectl
        .until_field("foo/x", &of_degraded("reason"), "Refused")
        .await;
    let message = kubectl.field("foo/x", &of_degraded("message")).await;
    assert!(
        message.starts_with("Deployment \"one\", which is of an earlier spec, cannot be deleted: ")
            && message.contains("held back by a test"),
        "{message}"
    );
    // The new Deployment is not held up.
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "2")
        .await;
    assert_eq!(
        kubectl.field("foo/x", "{.status.observedGeneration}").await,
        "2"
    );
    policy.lift().await;
    kubectl.until_gone("deployment/one").await;
    kubectl
        .until_field("foo/x", &of_degraded("reason"), "AsDesired")
        .await;
}

#[tokio::test]
async fn an_orphan_is_adopted_and_a_deployment_with_another_controller_is_left_alone() {
    let kubectl = kubectl("foo-orphan").await;
    kubectl.apply(&foo("x", "web", 1)).await.good();
    until_available(&kubectl, "x").await;
    let uid = kubectl.field("deployment/web", "{.metadata.uid}").await;
    let orphan = r#"patch deployment/web --type=json -p [{"op":"remove","path":"/metadata/ownerReferences"}]"#;
    kubectl.run(orphan).await.good();
    let owner = "{.metadata.ownerReferences[*].kind}";
    kubectl.until_field("deployment/web", owner, "Foo").await;
    assert_eq!(
        kubectl.field("deployment/web", "{.metadata.uid}").await,
        uid
    );

    // An existing object: the garbage collector deletes what has an owner that does not exist.
    kubectl.run("create configmap usurper").await.good();
    let usurper = kubectl.field("configmap/usurper", "{.metadata.uid}").await;
    let taken = format!(
        r#"[{{"op":"replace","path":"/metadata/ownerReferences","value":[{{"apiVersion":"v1","kind":"ConfigMap","name":"usurper","uid":"{usurper}","controller":true}}]}}]"#
    );
    kubectl
        .run(&format!("patch deployment/web --type=json -p {taken}"))
        .await
        .good();
    until_in_conflict(&kubectl, "x").await;
    let before = kubectl.deployment_at_rest("web").await;
    kubectl.apply(&foo("x", "web", 3)).await.good();
    kubectl
        .until_field("foo/x", "{.status.observedGeneration}", "2")
        .await;
    let after = kubectl.run("get deployment/web -o yaml").await.good();
    assert_eq!(before, after);

    // Orphaned again, it is adopted and gets the present spec.
    kubectl.run(orphan).await.good();
    kubectl.until_field("deployment/web", owner, "Foo").await;
    until_available(&kubectl, "x").await;
    assert_eq!(
        kubectl.field("deployment/web", "{.metadata.uid}").await,
        uid
    );
    assert_eq!(
        kubectl.field("deployment/web", "{.spec.replicas}").await,
        "3"
    );
}

#[tokio::test]
async fn an_exceeded_quota_is_reported_until_it_is_gone() {
    let kubectl = kubectl("foo-quota").await;
    kubectl
        .run("create quota none --hard=count/deployments.apps=0")
        .await
        .good();
    kubectl
        .until_refused(
            "create deployment probe --image=probe:1",
            "exceeded quota: none",
        )
        .await;
    kubectl.apply(&foo("x", "web", 1)).await.good();
    kubectl.until_condition("foo/x", "Degraded", "True").await;
    let message = "{.status.conditions[?(@.type==\"Degraded\")].message}";
    let message = kubectl.field("foo/x", message).await;
    assert!(message.contains("exceeded quota: none"), "{message}");
    kubectl.run("delete quota/none").await.good();
    until_available(&kubectl, "x").await;

    // If the quota allows the Deployment and not its pods, the Deployment reports it.
    kubectl.run("create quota few --hard=pods=1").await.good();
    kubectl
        .until_refused("run probe --image=probe:1", "exceeded quota: few")
        .await;
    kubectl.apply(&foo("x", "web", 2)).await.good();
    kubectl.until_condition("foo/x", "Degraded", "True").await;
    let wide = kubectl.run("get foo/x -o wide").await.good();
    assert!(wide.contains("ReplicaFailure"), "{wide}");
    kubectl
        .until_field("foo/x", "{.status.availableReplicas}", "1")
        .await;
    kubectl.run("delete quota/few").await.good();
    // The built-in controller waits long before it tries again; a new spec is another reason to.
    kubectl.apply(&foo("x", "web", 3)).await.good();
    until_available(&kubectl, "x").await;
}

#[tokio::test]
async fn a_terminating_namespace_takes_everything_with_it() {
    let kubectl = kubectl("foo-ending").await;
    kubectl.apply(&foo("x", "web", 1)).await.good();
    until_available(&kubectl, "x").await;
    let namespace = kubectl.namespace.clone();
    kubectl
        .run(&format!("delete namespace {namespace} --timeout=90s"))
        .await
        .good();
    kubectl.until_gone(&format!("namespace/{namespace}")).await;
}

#[tokio::test]
async fn bad_input_is_rejected_with_every_fault_at_once() {
    let kubectl = kubectl("foo-faults").await;
    let spec = |spec: &str| {
        format!(
            "{{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {{name: bad}}, spec: {spec}}}"
        )
    };
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let required = "spec.deploymentName: Required value: the name of the Deployment";
    assert_eq!(
        kubectl.apply(&spec("{}")).await.bad(),
        format!("The Foo \"bad\" is invalid: {required}\n"),
    );
    let no_spec =
        "{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: bad}}";
    for none in [
        spec("{deploymentName: ''}"),
        spec("{deploymentName: null}"),
        no_spec.to_owned(),
    ] {
        let text = rejection(&kubectl, "foos", &none).await;
        assert!(text.ends_with(&format!("is invalid: {required}")), "{text}");
    }
    let long = "X".repeat(300);
    let cut = format!("{}...", "X".repeat(128));
    assert_eq!(
        kubectl
            .apply(&spec(&format!("{{deploymentName: {long}, replicas: 0}}")))
            .await
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
        kubectl.run(sample).await.bad(),
        format!(
            "The Foo \"bad-foo\" is invalid: \n\
             * spec.deploymentName: Invalid value: \"Example-foo\": {label}\n\
             * spec.replicas: Invalid value: 11: must be less than or equal to 10\n"
        )
    );
    // The schema checks the type.
    let text = rejection(
        &kubectl,
        "foos",
        &spec("{deploymentName: web, replicas: x}"),
    )
    .await;
    assert!(
        text.contains("spec.replicas: Invalid value: \"string\""),
        "{text}"
    );
    let long = "x".repeat(64);
    let text = rejection(&kubectl, "foos", &foo(&long, "web", 1)).await;
    assert!(
        text.contains("metadata.name: Too long: may not be more than 63 bytes"),
        "{text}"
    );
    assert!(kubectl.names("foos").await.is_empty());

    // The words are those that a built-in kind has for a label.
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: x}}, spec: {{containers: [{{name: Example-foo, image: 'a:1'}}, {{name: {long}, image: 'a:1'}}, {{name: a.b, image: 'a:1'}}]}}}}"
    );
    let text = rejection(&kubectl, "pods", &pod).await;
    for words in [
        label,
        "must be no more than 63 characters",
        "must not contain dots",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    // Good input is accepted, and the only default is one replica.
    kubectl.apply(&spec("{deploymentName: web}")).await.good();
    assert_eq!(
        kubectl.field("foo/bad", "{.spec}").await,
        r#"{"deploymentName":"web","replicas":1}"#
    );
}

#[tokio::test]
async fn the_crd_is_marked_as_unapproved() {
    let kubectl = kubectl("foo-crd").await;
    let condition = "{.status.conditions[?(@.type==\"KubernetesAPIApprovalPolicyConformant\")]";
    let crd = "crd/foos.samplecontroller.k8s.io";
    for (field, value) in [("status", "False"), ("reason", "UnapprovedAnnotation")] {
        kubectl
            .until_field(crd, &format!("{condition}.{field}}}"), value)
            .await;
    }
    // Without the annotation the API server rejects it.
    let mut definition = kubectl.object(crd).await;
    definition["metadata"] = serde_json::json!({"name": "boos.samplecontroller.k8s.io"});
    definition["spec"]["names"] = serde_json::json!({"plural": "boos", "kind": "Boo"});
    let created = kubectl.dry_run("crds", definition).await;
    let error = created.expect_err("created without the annotation");
    assert!(error.contains("protected groups must have approval annotation"));
}
