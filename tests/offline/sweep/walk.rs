//! The walk over every field: a change of it and the reverse on a live object end as if nothing had ever been changed.
//!
//! The idea is that of Acto (Gu et al., SOSP 2023): most bugs of operators show when a desired state is reached from
//! another one than the empty cluster. Users' writes pass the rules and defaults of admission here, as through the webhooks.

use std::collections::BTreeSet;

use admission_rules::review::Request;
use my_operator::kinds::Kind;
use my_operator_harness::in_process;
use serde_json::{Value, json};
use simulated_apiserver::Decision;

use super::at::SCHEDULE_SET_AT;
use super::changes::{left, versions};
use super::cluster::{Cluster, FIRST, NAMESPACE, on_virtual_time};
use super::mydaemonset::PREDECESSOR;
use super::subject::{Special, Subject};

/// The walk over one kind.
pub struct Walk {
    pub subject: &'static dyn Subject,
    /// What is applied first and last.
    pub spec: Value,
    /// What is applied in between.
    pub changes: Vec<Change>,
    /// Fields that are not walked, and why.
    pub exempt: &'static [(&'static str, &'static str)],
    /// Whether the object waits for a time at which it acts: then a change is made before that, too.
    pub waits: bool,
}

/// A change of the spec: a value at a place, null taking it away.
pub struct Change {
    pub place: &'static str,
    pub value: Value,
    /// What else the spec has before and after the change.
    pub besides: Value,
}

/// A change of a field, nothing else being special.
pub fn change(place: &'static str, value: Value) -> Change {
    Change {
        place,
        value,
        besides: json!({}),
    }
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Walked,
    Rejected,
}

/// The paths of all fields of a schema that have no fields of their own.
fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object();
    match properties.filter(|properties| !properties.is_empty()) {
        Some(properties) => {
            for (name, schema) in properties {
                fields(schema, &format!("{path}/{name}"), found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

/// The fields of the spec of a kind.
fn fields_of(kind: &Kind) -> BTreeSet<String> {
    let crd = serde_json::to_value((kind.crd)()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut found = BTreeSet::new();
    fields(&schema["properties"]["spec"], "", &mut found);
    found
}

/// A spec with a value at a place.
fn with(spec: &Value, place: &str, value: &Value) -> Value {
    let mut spec = spec.clone();
    let (parents, last) = place.rsplit_once('/').unwrap();
    let mut inner = &mut spec;
    for step in parents.split('/').skip(1) {
        if inner[step].is_null() {
            inner[step] = json!({});
        }
        inner = &mut inner[step];
    }
    match value {
        Value::Null => drop(inner.as_object_mut().unwrap().remove(last)),
        value => inner[last] = value.clone(),
    }
    spec
}

/// Writes an object as `kubectl apply` does: through the rules and defaults of its kind.
fn apply(cluster: &Cluster, walk: &Walk, spec: &Value) -> Step {
    let (plural, name) = walk.subject.object();
    let kind = in_process::kind(walk.subject.kind());
    let resource = (kind.admission.resource)();
    let old = cluster.get(plural, name);
    let mut new = old.clone().unwrap_or_else(|| {
        json!({"apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE}})
    });
    new["spec"] = spec.clone();
    let now = cluster.server.clock().now();
    let review = |object: &Value| {
        json!({"uid": "u", "object": object, "oldObject": old,
            "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "namespace": NAMESPACE, "userInfo": {"username": "kubectl"},
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" }})
        .to_string()
    };
    let text = review(&new);
    let mutated = (kind.admission.mutate)(&Request::read(&text).unwrap(), now);
    let patch = serde_json::to_value(&mutated.response.patch).unwrap();
    json_patch::patch(
        &mut new,
        &serde_json::from_value::<json_patch::Patch>(patch).unwrap(),
    )
    .unwrap();
    let text = review(&new);
    let judged = (kind.admission.validate)(&Request::read(&text).unwrap(), now);
    if !judged.response.allowed {
        assert!(old.is_some(), "{spec}: {:?}", judged.faults);
        return Step::Rejected;
    }
    let direct = cluster.server.direct();
    let written = match old {
        None => direct.create(new),
        Some(_) => direct.edit(plural, NAMESPACE, name, |object| *object = new),
    };
    written.unwrap_or_else(|status| panic!("{spec}: {}", status.message));
    Step::Walked
}

async fn settle(cluster: &Cluster, walk: &Walk) {
    // An object whose status is about an earlier spec may look settled.
    cluster.sleep(1).await;
    cluster
        .until(|c| walk.subject.is_settled(c, Special::Nothing))
        .await;
    tokio::time::sleep(walk.subject.settle()).await;
}

/// Runs something in a cluster with an operator, and returns the state at its end.
fn in_cluster(walk: &Walk, act: impl AsyncFnOnce(&Cluster) -> Step) -> (Step, String) {
    on_virtual_time(async {
        let cluster = Cluster::new(walk.subject, None);
        cluster.start(FIRST);
        let step = act(&cluster).await;
        settle(&cluster, walk).await;
        let end = state(&cluster, walk.subject);
        cluster.end();
        cluster
            .server
            .on(|_: &simulated_apiserver::Site| Decision::Forward);
        (step, end)
    })
}

/// The state of the cluster: every object but Events, nodes and the history of revisions, without what two runs cannot have
/// in common: UIDs, versions, generations, times.
fn state(cluster: &Cluster, subject: &dyn Subject) -> String {
    let history = cluster.server.history();
    let resources: BTreeSet<&str> = history
        .versions
        .iter()
        .map(|v| v.resource.as_str())
        .collect();
    let mut names: Vec<(String, String)> = Vec::new();
    for version in &history.versions {
        names.push((version.uid.clone(), "<uid>".to_owned()));
    }
    for pod in versions(&history, "pods") {
        if let Some(node) = pod.object()["spec"]["nodeName"].as_str() {
            names.push((pod.name.clone(), format!("<pod on {node}>")));
        }
    }
    // The names of Jobs have the generation of their object in them.
    let (plural, name) = subject.object();
    let generations: Vec<i64> = versions(&history, plural)
        .filter_map(|object| object.object()["metadata"]["generation"].as_i64())
        .collect();
    if resources.contains("jobs")
        && let Some(last) = generations.last()
    {
        names.push((format!("{name}-{last}"), format!("{name}-<generation>")));
    }
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.dedup();
    let mut lines = Vec::new();
    let ignored = ["events", "nodes", "namespaces", "controllerrevisions"];
    for resource in resources
        .iter()
        .filter(|resource| !ignored.contains(resource))
    {
        for version in left(&history, resource) {
            let mut object = version.object().clone();
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
            ] {
                object["metadata"][field] = Value::Null;
            }
            normalize(&mut object, &names);
            lines.push(format!("{resource} {object:#}"));
        }
    }
    lines.sort();
    lines.join("\n")
}

fn normalize(value: &mut Value, names: &[(String, String)]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                // What a pod replaced, which roll-outs were completed, and when a schedule was changed, is what a walk
                // leaves behind.
                let history = [
                    "generation",
                    "observedGeneration",
                    "completeRevisions",
                    "failedRevisions",
                    PREDECESSOR,
                    SCHEDULE_SET_AT,
                ];
                !history.contains(&name.as_str()) && !value.is_null()
            });
            for (name, value) in fields.iter_mut() {
                normalize(value, names);
                if name == "conditions"
                    && let Value::Array(all) = value
                {
                    all.sort_by_key(|condition| condition["type"].to_string());
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize(item, names)),
        Value::String(text) => {
            for (name, instead) in names {
                if text.contains(name) {
                    *text = text.replace(name, instead);
                }
            }
            let words = text.split(' ').map(|word| {
                let is_time =
                    chrono::DateTime::parse_from_rfc3339(word.trim_end_matches([',', ':', '.']));
                if is_time.is_ok() { "<time>" } else { word }
            });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        _ => {}
    }
}

/// Walks over every field of the kind.
pub fn walk(walk: &Walk) {
    let kind = in_process::kind(walk.subject.kind());
    let all = fields_of(kind);
    let is_below =
        |place: &str, field: &str| place == field || place.starts_with(&format!("{field}/"));
    for change in &walk.changes {
        assert!(
            all.iter().any(|field| is_below(change.place, field)),
            "no field: {}",
            change.place
        );
    }
    let is_left_out = |field: &&String| {
        let walked = walk
            .changes
            .iter()
            .any(|change| is_below(change.place, field));
        let exempt = walk.exempt.iter().any(|(exempt, _)| exempt == field);
        assert!(!(walked && exempt), "{field} is walked and exempt");
        !walked && !exempt
    };
    let missed: Vec<&String> = all.iter().filter(is_left_out).collect();
    assert!(missed.is_empty(), "{}: not walked: {missed:?}", kind.name);
    let early: &[bool] = if walk.waits { &[true, false] } else { &[false] };
    let (mut walked, mut rejected) = (0, Vec::new());
    for change in &walk.changes {
        let mut spec = walk.spec.clone();
        json_patch::merge(&mut spec, &change.besides);
        let other = with(&spec, change.place, &change.value);
        let (_, fresh) = in_cluster(walk, async |cluster| apply(cluster, walk, &spec));
        for &early in early {
            let (step, end) = in_cluster(walk, async |cluster| {
                apply(cluster, walk, &spec);
                if early {
                    cluster.sleep(5).await;
                } else {
                    settle(cluster, walk).await;
                }
                if apply(cluster, walk, &other) == Step::Rejected {
                    return Step::Rejected;
                }
                if early {
                    cluster.sleep(5).await;
                } else {
                    settle(cluster, walk).await;
                }
                assert_eq!(
                    apply(cluster, walk, &spec),
                    Step::Walked,
                    "{}",
                    change.place
                );
                Step::Walked
            });
            assert_eq!(
                end, fresh,
                "{}: after {} = {} and back (left: after the walk, right: fresh)",
                kind.name, change.place, change.value
            );
            match step {
                Step::Walked => walked += 1,
                Step::Rejected => rejected.push(change.place),
            }
        }
    }
    println!(
        "{}: {} fields, {walked} walks there and back, {} exempt, {} rejected: {rejected:?}",
        kind.name,
        all.len(),
        walk.exempt.len(),
        rejected.len(),
    );
}

/// Changes of a pod template: labels, annotations, and fields of pods of every form.
fn template_changes() -> Vec<Change> {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}}});
    let sidecar = json!([{"name": "sidecar", "image": "busybox:1.37", "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"memory": "64Mi"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    vec![
        change("/template/metadata/labels", json!({"a": "b"})),
        change(
            "/template/metadata/annotations",
            json!({"example.com/restarted": "now"}),
        ),
        change(
            "/template/spec/nodeSelector",
            json!({"kubernetes.io/hostname": "node-1"}),
        ),
        change("/template/spec/affinity", affinity),
        change(
            "/template/spec/tolerations",
            json!([{"key": "a", "operator": "Exists"}]),
        ),
        change("/template/spec/containers", sidecar),
        change(
            "/template/spec/initContainers",
            json!([{"name": "init", "image": "busybox:1.37"}]),
        ),
        change(
            "/template/spec/volumes",
            json!([{"name": "v", "emptyDir": {}}]),
        ),
        change("/template/spec/hostNetwork", json!(true)),
        change("/template/spec/serviceAccountName", json!("other")),
        change("/template/spec/terminationGracePeriodSeconds", json!(5)),
        change("/template/spec/securityContext", json!({"runAsUser": 1000})),
        change("/template/spec/dnsPolicy", json!("None")),
        change("/template/spec/imagePullSecrets", json!([{"name": "s"}])),
        change(
            "/template/spec/aFieldOfTheNextKubernetes",
            json!({"x": [1, null]}),
        ),
    ]
}

#[test]
fn every_field_of_an_at_there_and_back() {
    // Ten minutes after the start of the simulation.
    let spec =
        json!({"schedule": "2027-01-15T08:10:00Z", "command": "exit 0", "image": "bash:5.3"});
    let mut changes = vec![
        change("/schedule", json!("2027-01-15T08:20:00Z")),
        change("/command", json!("exit 3")),
        change("/image", json!("bash:5.2")),
        change("/shell", json!(["sh", "-c"])),
        change("/suspend", json!(true)),
        change("/startingDeadlineSeconds", json!(60)),
        change("/activeDeadlineSeconds", json!(60)),
        change("/ttlSecondsAfterFinished", json!(86_400)),
    ];
    changes.extend(template_changes());
    walk(&Walk {
        subject: &super::at::At,
        spec,
        changes,
        exempt: &[],
        waits: true,
    });
}

#[test]
fn every_field_of_a_mydaemonset_there_and_back() {
    let mut changes = vec![
        change("/image", json!("app:2")),
        change("/minReadySeconds", json!(5)),
        change("/progressDeadlineSeconds", json!(900)),
        change("/revisionHistoryLimit", json!(5)),
        change("/updateStrategy/type", json!("OnDelete")),
        change("/updateStrategy/rollingUpdate/maxUnavailable", json!("40%")),
        change("/updateStrategy/rollingUpdate/maxSurge", json!(2)),
        change("/updateStrategy/rollingUpdate/partition", json!(2)),
        change("/updateStrategy/rollingUpdate/paused", json!(true)),
        change(
            "/updateStrategy/rollingUpdate/autoPause/enabled",
            json!(false),
        ),
        change(
            "/updateStrategy/rollingUpdate/autoPause/maxFailures",
            json!(2),
        ),
        change(
            "/updateStrategy/rollingUpdate/autoPause/windowSeconds",
            json!(60),
        ),
        change("/updateStrategy/rollingUpdate/canary/nodes", json!("40%")),
        change(
            "/updateStrategy/rollingUpdate/canary/nodeSelector",
            json!({"disk": "ssd"}),
        ),
        change(
            "/updateStrategy/rollingUpdate/canary/soakSeconds",
            json!(60),
        ),
        change(
            "/updateStrategy/rollingUpdate/canary/promote",
            json!("Manual"),
        ),
        change("/updateStrategy/rollingUpdate/topologyKey", json!("disk")),
        Change {
            besides: json!({"updateStrategy": {"rollingUpdate": {"topologyKey": "disk"}}}),
            ..change("/updateStrategy/rollingUpdate/order", json!(["ssd"]))
        },
        change("/updateStrategy/rollingUpdate/onFailure", json!("Undo")),
        change(
            "/updateStrategy/rollingUpdate/windows",
            json!([{"schedule": "0 22 * * *", "duration": "4h", "excludedDates": ["2027-01-15"]}]),
        ),
    ];
    changes.extend(template_changes());
    walk(&Walk {
        subject: &super::mydaemonset::MyDaemonSet,
        spec: json!({"image": "app:1"}),
        changes,
        exempt: &[],
        waits: false,
    });
}
