//! Where a pod belongs, and what the pod is.

use std::collections::BTreeSet;

use kube::api::{ListParams, PostParams};
use my_operator_cluster::FakeNode;
use serde_json::{Value, json};

use super::journal::Journal;
use super::{NAME_LABEL, Place, REVISION_LABEL, Sight, eventually};

/// A template that demands those terms of a required node affinity.
fn affinity(terms: Value) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }}}})
}

/// Applies an object for each case and waits until its pods are on exactly these nodes.
async fn land_on(place: &Place, cases: &[(&str, Value, &[usize])]) {
    for (name, template, _) in cases {
        let place = place.called(name);
        place.apply(&place.with("a:1", template, &json!({}))).await;
    }
    for (name, _, nodes) in cases {
        let nodes: Vec<String> = nodes.iter().map(|n| place.node(*n)).collect();
        place.called(name).served("a:1", &nodes).await;
    }
}

#[tokio::test]
async fn node_selector_and_every_operator_of_a_required_affinity_choose_nodes() {
    let place = Place::new("affinity", 0).await;
    let labelled = [("a", "1"), ("a", "5"), ("b", "10"), ("", "many")];
    for (number, (zone, size)) in labelled.into_iter().enumerate() {
        let node = place.fake(number).label("size", size);
        let node = if zone.is_empty() {
            node
        } else {
            node.label("zone", zone)
        };
        place.add(node).await;
    }
    let label = |key: &str, operator: &str, values: Value| {
        let demand = json!({"key": key, "operator": operator, "values": values});
        affinity(json!([{"matchExpressions": [demand]}]))
    };
    let field = |operator: &str| {
        let demand =
            json!({"key": "metadata.name", "operator": operator, "values": ["affinity-1"]});
        affinity(json!([{"matchFields": [demand]}]))
    };
    let preferred = json!({"spec": {"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference":
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}],
    }}}});
    let (in_a, exists) = (
        json!({"key": "zone", "operator": "In", "values": ["a"]}),
        json!({"key": "zone", "operator": "Exists"}),
    );
    let big = json!({"key": "size", "operator": "Gt", "values": ["4"]});
    land_on(
        &place,
        &[
            (
                "selector",
                json!({"spec": {"nodeSelector": {"zone": "a"}}}),
                &[0, 1],
            ),
            ("in", label("zone", "In", json!(["b", "c"])), &[2]),
            // A node without the label is not in any list of values.
            ("not-in", label("zone", "NotIn", json!(["a"])), &[2, 3]),
            ("exists", label("zone", "Exists", json!([])), &[0, 1, 2]),
            (
                "does-not-exist",
                label("zone", "DoesNotExist", json!([])),
                &[3],
            ),
            ("gt", label("size", "Gt", json!(["4"])), &[1, 2]),
            ("lt", label("size", "Lt", json!(["5"])), &[0]),
            ("field-in", field("In"), &[1]),
            ("field-not-in", field("NotIn"), &[0, 2, 3]),
            // All demands of a term, any term of the list.
            (
                "both",
                affinity(json!([{"matchExpressions": [in_a, big]}])),
                &[1],
            ),
            (
                "either",
                affinity(json!([{"matchExpressions": [in_a]}, {"matchExpressions": [big]}])),
                &[0, 1, 2],
            ),
            (
                "selector-and-affinity",
                json!({"spec": {"nodeSelector": {"size": "5"}, "affinity":
                    affinity(json!([{"matchExpressions": [exists]}]))["spec"]["affinity"]}}),
                &[1],
            ),
            ("preferred", preferred, &[0, 1, 2, 3]),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_a_runtime_class_demands_of_nodes_decides_where_pods_belong() {
    let place = Place::new("runtime", 0).await;
    for number in 0..3 {
        let node = place.fake(number);
        let node = if number == 0 {
            node
        } else {
            node.label("sandbox", "yes")
        };
        place.add(node).await;
    }
    // It is of the whole cluster, so no other pool has its name. The API server merges its demands into each pod.
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "runtime-sandbox"},
        "handler": "sandbox", "scheduling": {"nodeSelector": {"sandbox": "yes"}},
    });
    place.kubectl.apply(&class.to_string()).await.good();
    let template = json!({"spec": {"runtimeClassName": "runtime-sandbox"}});
    place.apply(&place.with("a:1", &template, &json!({}))).await;
    let nodes = [place.node(1), place.node(2)];
    place.served("a:1", &nodes).await;
    place.until_condition("Progressing", "False/Complete").await;
    let sight = place.sight().await;
    assert_eq!(sight.count("desiredNumberScheduled"), 2, "{sight}");
    // The next revision is known by its dry run.
    place.apply(&place.with("b:1", &template, &json!({}))).await;
    place.served("b:1", &nodes).await;
    place.until_condition("Progressing", "False/Complete").await;
    let sight = place.sight().await;
    assert_eq!(sight.count("desiredNumberScheduled"), 2, "{sight}");
    let delete = "delete runtimeclass runtime-sandbox";
    place.kubectl.run(delete).await.good();
}

#[tokio::test]
async fn tolerations_let_pods_on_tainted_nodes() {
    let place = Place::new("tolerant", 1).await;
    let taints = [
        ("key", "a", "NoSchedule"),
        ("key", "b", "NoExecute"),
        ("other", "", "NoSchedule"),
    ];
    for (number, (key, value, effect)) in taints.into_iter().enumerate() {
        place
            .add(place.fake(number + 1).taint(key, value, effect))
            .await;
    }
    // One that only asks for another node does not hinder it.
    place
        .add(place.fake(4).taint("key", "a", "PreferNoSchedule"))
        .await;
    let with = |toleration: Value| {
        let pool = json!({"key": "pool", "operator": "Exists"});
        json!({"spec": {"tolerations": [pool, toleration]}})
    };
    land_on(
        &place,
        &[
            ("none", json!({}), &[0, 4]),
            (
                "equal",
                with(json!({"key": "key", "operator": "Equal", "value": "a"})),
                &[0, 1, 4],
            ),
            (
                "exists",
                with(json!({"key": "key", "operator": "Exists"})),
                &[0, 1, 2, 4],
            ),
            (
                "one-effect",
                with(json!({"key": "key", "operator": "Exists", "effect": "NoExecute"})),
                &[0, 2, 4],
            ),
            ("all", with(json!({"operator": "Exists"})), &[0, 1, 2, 3, 4]),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_node_that_gets_a_no_schedule_taint_keeps_its_pod_and_gets_no_new_one() {
    let place = Place::new("no-schedule", 2).await;
    let nodes = place.nodes(2);
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &nodes).await;
    place.taint(0, "key", "", "NoSchedule").await;
    let sight = place
        .until("one to be misplaced", |s| {
            s.count("numberMisscheduled") == 1
        })
        .await;
    assert_eq!(sight.uids(), before.uids());
    assert_eq!(sight.count("desiredNumberScheduled"), 1);
    // The roll-out passes it over.
    place.apply(&place.plain("a:2")).await;
    place
        .until("the roll-out", |s| {
            s.serving("a:2") == [nodes[1].as_str()]
                && s.condition("Progressing") == "False/Complete"
        })
        .await;
    place.delete_pod(&before.only(&nodes[0]).name).await;
    place
        .until("none to be misplaced", |s| {
            s.count("numberMisscheduled") == 0
        })
        .await;
    place.witness("meanwhile").await;
    assert_eq!(place.sight().await.on(&nodes[0]).len(), 0);
    place.taint(0, "key", "", "PreferNoSchedule").await;
    place.served("a:2", &nodes).await;
}

#[tokio::test]
async fn a_node_that_gets_a_no_execute_taint_or_loses_its_label_loses_its_pod() {
    let place = Place::new("no-execute", 3).await;
    let nodes = place.nodes(3);
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &nodes).await;
    place.taint(0, "key", "", "NoExecute").await;
    let elsewhere = json!({"metadata": {"labels": {"pool": "elsewhere"}}});
    place.patch_node(1, elsewhere).await;
    place.served("a:1", &nodes[2..]).await;
    let back = json!({"metadata": {"labels": {"pool": place.pool}}});
    place.patch_node(1, back).await;
    place.taint(0, "key", "", "PreferNoSchedule").await;
    place.served("a:1", &nodes).await;
}

/// Compares the tolerations of a pod with those that the built-in DaemonSet's pod of the same spec
/// has.
async fn compare_tolerations(place: &Place, name: &str, host_network: bool, own: Value) {
    let spec = json!({
        "nodeSelector": {"pool": place.pool}, "hostNetwork": host_network, "tolerations": own,
        "containers": [{"name": "app", "image": "a:1"}],
    });
    let template = json!({"metadata": {"labels": {"built-in": name}}, "spec": spec});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"built-in": name}}, "template": template},
    });
    let object = serde_json::from_value(object).unwrap();
    let sets = place.api("apps", "v1", "DaemonSet", "daemonsets");
    sets.create(&PostParams::default(), &object).await.unwrap();
    let ours = place.called(name);
    let template = json!({"spec": spec});
    ours.apply(&ours.with("a:1", &template, &json!({}))).await;
    let sight = ours.served("a:1", &place.nodes(1)).await;
    let tolerations = |pod: &Value| -> BTreeSet<String> {
        let list = pod["spec"]["tolerations"].as_array().unwrap();
        list.iter().map(ToString::to_string).collect()
    };
    let theirs = async || {
        let labels = ListParams::default().labels(&format!("built-in={name}"));
        let pods = place.api("", "v1", "Pod", "pods").list(&labels).await;
        let pods = pods.unwrap().items.into_iter().next();
        pods.map(|pod| tolerations(&serde_json::to_value(pod).unwrap()))
    };
    eventually("the built-in pod", || async { theirs().await.is_some() }).await;
    let mine = tolerations(&sight.pods[0].json);
    assert_eq!(Some(&mine), theirs().await.as_ref(), "{name}");
}

#[tokio::test]
async fn pods_have_the_tolerations_that_the_built_in_daemon_set_adds() {
    let place = Place::new("tolerations", 1).await;
    let own = json!([
        {"key": "pool", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    ]);
    compare_tolerations(&place, "pod-network", false, own.clone()).await;
    compare_tolerations(&place, "host-network", true, own).await;
}

#[tokio::test]
async fn a_pod_has_the_names_labels_annotation_and_owner_that_tools_look_for() {
    let place = Place::new("looks", 1).await;
    let node = place.node(0);
    let template = json!({
        "metadata": {"annotations": {"note": "b"}},
        "spec": {"containers": [{"name": "sidecar", "image": "s:1"}]},
    });
    place.apply(&place.with("a:1", &template, &json!({}))).await;
    let sight = place.served("a:1", std::slice::from_ref(&node)).await;
    let pod = &sight.pods[0];
    let suffix = pod.name.strip_prefix(&format!("{node}-")).unwrap();
    assert!(
        suffix.len() == 10 && suffix.bytes().all(|b| b.is_ascii_alphanumeric()),
        "{suffix}"
    );
    let metadata = &pod.json["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"team": "a", NAME_LABEL: "x", REVISION_LABEL: sight.text("updateRevision"),
            "app.kubernetes.io/managed-by": "my-operator"})
    );
    assert_eq!(
        metadata["annotations"],
        json!({"note": "b", "cluster-autoscaler.kubernetes.io/daemonset-pod": "true"})
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet", "name": "x",
            "uid": sight.object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
    );
    let containers = pod.json["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers
        .iter()
        .map(|c| (&c["name"], &c["image"]))
        .collect();
    assert_eq!(
        names,
        [
            (&json!("app"), &json!("a:1")),
            (&json!("sidecar"), &json!("s:1"))
        ]
    );
    // The scheduler had no part in it.
    let conditions = pod.json["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .all(|c| c["type"] != "PodScheduled" || c["reason"].is_null())
    );
}

#[tokio::test]
async fn a_long_node_name_is_truncated_in_the_pod_name() {
    let place = Place::new("long", 0).await;
    // Two names that differ only where they are cut off.
    let long =
        "n".repeat(62) + "." + &"o".repeat(63) + "." + &"p".repeat(63) + "." + &"q".repeat(60);
    let nodes = [format!("{long}1"), format!("{long}2")];
    for (number, name) in nodes.iter().enumerate() {
        // The label of that name would be too long for a label.
        let node = FakeNode {
            name: name.clone(),
            ..place.fake(number)
        };
        place
            .add(node.label("kubernetes.io/hostname", format!("long-{number}")))
            .await;
    }
    place.apply(&place.plain("a:1")).await;
    let sight = place.served("a:1", &nodes).await;
    for pod in &sight.pods {
        // As long as those of the built-in controller: a kubelet makes one path component of namespace, name and UID.
        assert!(pod.name.len() <= 63, "{}", pod.name.len());
        assert_eq!(pod.name[..52], pod.node[..52]);
    }
}

#[tokio::test]
async fn fields_of_the_pod_reach_it_as_they_were_written_or_are_refused_by_name() {
    let place = Place::new("fields", 1).await;
    // The operator has no notion of any of these.
    let spec = json!({
        "setHostnameAsFQDN": true,
        "shareProcessNamespace": true,
        "terminationGracePeriodSeconds": 7,
        "resources": {"requests": {"cpu": "10m"}},
        "containers": [{"name": "app", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}],
    });
    place
        .apply(&place.with("a:1", &json!({"spec": spec}), &json!({})))
        .await;
    let sight = place.served("a:1", &place.nodes(1)).await;
    let found = &sight.pods[0].json["spec"];
    for (key, value) in spec.as_object().unwrap() {
        match key.as_str() {
            "containers" => assert_eq!(found[key][0]["resizePolicy"], value[0]["resizePolicy"]),
            _ => assert_eq!(&found[key], value, "{key}"),
        }
    }
    let typo = json!({"spec": {"hostNetwrok": true}});
    place.apply(&place.with("a:1", &typo, &json!({}))).await;
    let sight = place.until_condition("Degraded", "True/PodRefused").await;
    let message = sight.message("Degraded");
    assert!(
        message.contains("unknown field \"spec.hostNetwrok\""),
        "{message}"
    );
    place.apply(&place.plain("a:2")).await;
    let sight = place.served("a:2", &place.nodes(1)).await;
    assert_eq!(sight.condition("Degraded"), "False/NoPodFails");
}

#[tokio::test]
async fn pods_follow_nodes_that_join_and_leave() {
    let place = Place::new("joining", 2).await;
    place.apply(&place.plain("a:1")).await;
    place.served("a:1", &place.nodes(2)).await;
    place.add(place.fake(2)).await;
    place.served("a:1", &place.nodes(3)).await;
    let cluster = place.kubectl.cluster;
    cluster.remove_node(&place.node(0)).await.unwrap();
    place.served("a:1", &place.nodes(3)[1..]).await;
}

#[tokio::test]
async fn a_deleted_node_takes_its_pod_along_and_a_namesake_gets_one_of_its_own() {
    let place = Place::new("namesake", 1).await;
    let cluster = place.kubectl.cluster;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    let journal = Journal::start(&place).await;
    cluster.remove_node(&place.node(0)).await.unwrap();
    place.until("the pod to go", |s| s.pods.is_empty()).await;
    place.add(place.fake(0)).await;
    let first = &before.pods[0];
    // The old one may still be seen ready for a moment.
    let other = |s: &Sight| matches!(&s.pods[..], [pod] if pod.serves() && pod.uid != first.uid);
    place.until("a new pod", other).await;
    place.served("a:1", &place.nodes(1)).await;
    let all = journal.moments().await;
    let all: BTreeSet<&String> = all
        .iter()
        .flat_map(|m| m.values().map(|pod| &pod.uid))
        .collect();
    assert_eq!(all.len(), 2, "one for each node");
}

/// As after a recovery that deletes Nodes and lets their kubelets register them again.
#[tokio::test]
async fn nodes_that_register_again_keep_their_pods() {
    let place = Place::new("registers", 3).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(3)).await;
    for number in 0..3 {
        let node = place.node(number);
        place.kubectl.cluster.remove_node(&node).await.unwrap();
        place.add(place.fake(number)).await;
    }
    place.witness("meanwhile").await;
    let after = place.served("a:1", &place.nodes(3)).await;
    assert_eq!(after.uids(), before.uids());
}

#[tokio::test]
async fn a_cordoned_node_keeps_its_pod_gets_no_new_one_and_counts_while_it_has_one() {
    let place = Place::new("cordon", 3).await;
    let nodes = place.nodes(3);
    place.add(place.fake(3).unschedulable()).await;
    place.apply(&place.plain("a:1")).await;
    // The one that was cordoned from the start does not count.
    let before = place.served("a:1", &nodes).await;
    place.cordon(0, true).await;
    place.witness("cordoned").await;
    let sight = place.sight().await;
    assert_eq!(sight.uids(), before.uids());
    assert_eq!(sight.count("desiredNumberScheduled"), 3);
    // The roll-out passes it over, and says so.
    place.apply(&place.plain("a:2")).await;
    let sight = place
        .until("all but one", |s| {
            s.serving("a:2").len() == 2
                && s.condition("Progressing") == "False/Cordoned"
                && s.count("updatedNumberScheduled") == 2
                && s.count("desiredNumberScheduled") == 3
        })
        .await;
    assert_eq!(sight.only(&nodes[0]).uid, before.only(&nodes[0]).uid);
    // Without a pod it counts no more.
    place.delete_pod(&before.only(&nodes[0]).name).await;
    let sight = place.served("a:2", &nodes[1..]).await;
    assert_eq!(sight.count("desiredNumberScheduled"), 2);
    place.cordon(0, false).await;
    place.cordon(3, false).await;
    place.served("a:2", &place.nodes(4)).await;
}

#[tokio::test]
async fn of_two_pods_on_a_node_the_newest_revisions_or_the_older_ready_one_stays() {
    let place = Place::new("surplus", 2).await;
    let nodes = place.nodes(2);
    // Nothing is replaced, so that only what is surplus goes.
    let paused = json!({"paused": true});
    place.apply(&place.rolling("a:1", paused.clone())).await;
    let sight = place.served("a:1", &nodes).await;
    // Another client copies one of our pods, with its owner reference.
    let copy = async |pod: &super::Pod, name: &str, image: &str, revision: &str| {
        let mut copy = pod.json.clone();
        let metadata = &pod.json["metadata"];
        let mut labels = metadata["labels"].clone();
        labels[REVISION_LABEL] = revision.into();
        copy["metadata"] =
            json!({"name": name, "labels": labels, "ownerReferences": metadata["ownerReferences"]});
        copy["spec"]["containers"][0]["image"] = image.into();
        copy.as_object_mut().unwrap().remove("status");
        let copy = serde_json::from_value(copy).unwrap();
        place
            .pods_api()
            .create(&PostParams::default(), &copy)
            .await
            .unwrap()
    };
    let first = sight.only(&nodes[0]).clone();
    // Times of the API are whole seconds; of two pods of one second the first by name counts as older.
    let copied = copy(&first, "zz-copy", "a:1", &first.revision)
        .await
        .metadata
        .uid
        .unwrap();
    place
        .until("the copy to go", |s| {
            s.pods.len() == 2 && s.pods.iter().all(|p| p.uid != copied)
        })
        .await;
    assert_eq!(
        place.sight().await.uids(),
        sight.uids(),
        "the older one stays"
    );
    // Of another revision: the newest one's stays, however young.
    place.apply(&place.rolling("a:2", paused)).await;
    let sight = place.until_condition("Progressing", "False/Paused").await;
    let update = sight.text("updateRevision").to_owned();
    copy(&first, "newest", "a:2", &update).await;
    let sight = place
        .until("the old one to go", |s| {
            s.pods.len() == 2 && s.serving("a:2").len() == 1
        })
        .await;
    assert_eq!(sight.only(&nodes[0]).name, "newest");
    assert_eq!(sight.only(&nodes[1]).image, "a:1");
}

/// Otherwise the node would evict a daemon that it may not evict.
#[tokio::test]
async fn a_toleration_with_an_end_is_overridden_as_by_the_built_in_daemon_set() {
    let place = Place::new("toleration-end", 1).await;
    let own = json!([
        {"key": "pool", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]);
    compare_tolerations(&place, "ends", false, own).await;
}

#[tokio::test]
async fn an_invalid_node_selector_term_is_rejected_and_costs_no_pod() {
    let place = Place::new("slip", 1).await;
    place.apply(&place.plain("a:1")).await;
    let before = place.served("a:1", &place.nodes(1)).await;
    let term = |term: Value| affinity(json!([term]))["spec"].clone();
    let field = |key: &str, value: &str| {
        let demand = json!({"key": key, "operator": "In", "values": [value]});
        term(json!({"matchFields": [demand]}))
    };
    let exists = json!({"key": "zone", "operator": "Exists"});
    for (spec, fault) in [
        (
            term(json!({"matchExpressions": [{"key": "zone", "operator": "exists"}]})),
            "operator: Unsupported value: \"exists\"",
        ),
        // The API server drops nothing that it does not know from a template, and says nothing of it.
        (
            term(json!({"matchLabels": {"zone": "a"}})),
            "nodeSelectorTerms[0].matchLabels",
        ),
        (
            term(json!({"matchExpression": [exists]})),
            "nodeSelectorTerms[0].matchExpression",
        ),
        (
            field("metadata.nmae", "slip-0"),
            "matchFields[0].key: Unsupported value: \"metadata.nmae\"",
        ),
        (
            field("metadata.name", "Slip_0"),
            "matchFields[0].values[0]: Invalid value: \"Slip_0\"",
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/os": 1}}),
            "nodeSelector[kubernetes.io/os]: Invalid value: 1: must be a string",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Like"}]}),
            "tolerations[0].operator: Unsupported value: \"Like\"",
        ),
    ] {
        let object = place.with("a:2", &json!({"spec": spec}), &json!({}));
        let text = place.kubectl.apply(&object.to_string()).await.bad();
        assert!(text.contains(fault), "{text}");
    }
    assert_eq!(place.sight().await.uids(), before.uids());
    // This is legal, and matches no node.
    let empty = json!({"spec": term(json!({}))});
    let object = place.with("a:2", &empty, &json!({})).to_string();
    let warning = place.kubectl.with("apply --dry-run=server -f -", &object);
    let warning = warning.await.err;
    assert!(warning.contains("matches no node"), "{warning}");
}
