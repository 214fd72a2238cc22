//! The schema of pods that `my-operator admit` comes with, held to what the API server serves and does.
//!
//! `UPDATE=1 make test T=pod_schema` writes `crates/admit/src/pod-template.json`: after an update of Kubernetes, or of the
//! keywords that `crates/admit/src/schema.rs` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use axum::http;
use http_body_util::BodyExt as _;
use kube::client::Body;
use my_operator_admit::{pods, yaml};
use serde_json::{Map, Value, json};

use crate::disruption::cluster;
use crate::harness::checkout;

/// What a definition requires and a template may lack all the same.
const OPTIONAL: &[(&str, &str)] = &[
    // The operator adds its container.
    ("PodSpec", "containers"),
    // The rest is required on paper only: absent, it is Go's zero value, which the API server accepts.
    ("HTTPHeader", "value"),
    ("ISCSIVolumeSource", "lun"),
    ("PreferredSchedulingTerm", "preference"),
    ("ScaleIOVolumeSource", "secretRef"),
    ("SleepAction", "seconds"),
    ("Sysctl", "value"),
];

/// The last part of a definition's name, such as `Container` of `#/components/schemas/io.k8s.api.core.v1.Container`.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

/// The schema with the keywords that `admit` reads, and nothing else; `of` is its definition. Adds the definitions to
/// which it refers.
fn pruned(of: &str, schema: &Value, references: &mut BTreeSet<String>) -> Value {
    let mut out = Map::new();
    for (keyword, value) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$ref" => {
                let name = value.as_str().unwrap();
                references.insert(name.rsplit('/').next().unwrap().to_owned());
                out.insert("$ref".to_owned(), short(name).into());
            }
            // A reference with a description or a default beside it.
            "allOf" => {
                assert_eq!(value.as_array().unwrap().len(), 1, "{schema}");
                out.extend(object(pruned(of, &value[0], references)));
            }
            "type" | "enum" => {
                out.insert(keyword.clone(), value.clone());
            }
            "required" => {
                let names = value.as_array().unwrap().iter();
                let is_required =
                    |name: &&Value| !OPTIONAL.iter().any(|(d, f)| *d == of && **name == **f);
                let required: Vec<&Value> = names.filter(is_required).collect();
                if !required.is_empty() {
                    out.insert(keyword.clone(), json!(required));
                }
            }
            "properties" => {
                let properties = value.as_object().unwrap().iter();
                let properties: BTreeMap<&String, Value> = properties
                    .map(|(name, schema)| (name, pruned(of, schema, references)))
                    .collect();
                out.insert(keyword.clone(), json!(properties));
            }
            "items" => {
                // To Go, a null in a list is a zero value.
                let mut items = object(pruned(of, value, references));
                items.insert("nullable".to_owned(), true.into());
                out.insert(keyword.clone(), items.into());
            }
            "additionalProperties" => {
                out.insert(keyword.clone(), pruned(of, value, references));
            }
            "format" => match value.as_str().unwrap() {
                "int32" => {
                    out.insert("minimum".to_owned(), i32::MIN.into());
                    out.insert("maximum".to_owned(), i32::MAX.into());
                }
                "int-or-string" => {
                    out.insert("x-kubernetes-int-or-string".to_owned(), true.into());
                }
                "int64" | "date-time" => {}
                format => panic!("the format {format} of {of} is new"),
            },
            // The types of Quantity and IntOrString, which the walker knows by other keywords.
            "oneOf" => assert!(["Quantity", "IntOrString"].contains(&of), "{of}"),
            "description" | "default" => {}
            keyword => assert!(keyword.starts_with("x-kubernetes-"), "{of} has {keyword}"),
        }
    }
    let is_open = out.get("type") == Some(&json!("object"))
        && !out.contains_key("properties")
        && !out.contains_key("additionalProperties");
    if is_open {
        out.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    out.into()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other} is not an object"),
    }
}

/// The text of the file: a line for each definition that a pod template can lead to.
fn file(release: &str, schemas: &Value) -> String {
    let mut found: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut open = BTreeSet::from(["io.k8s.api.core.v1.PodTemplateSpec".to_owned()]);
    while let Some(name) = open.pop_first() {
        let of = short(&name);
        if let Some((other, _)) = found.get(of) {
            assert_eq!(*other, name, "two definitions of one short name");
            continue;
        }
        let mut schema = pruned(of, &schemas[&name], &mut open);
        if of == "Quantity" {
            // It has no format of its own: any number, and some texts.
            schema = json!({"format": "quantity"});
        }
        found.insert(of.to_owned(), (name.clone(), schema));
    }
    let lines = found.iter();
    let lines = lines.map(|(of, (_, schema))| format!("{}:{schema}", json!(of)));
    let lines: Vec<String> = lines.collect();
    format!(
        "{{\"kubernetes\":{},\"definitions\":{{\n{}\n}}}}\n",
        json!(release),
        lines.join(",\n")
    )
}

#[tokio::test]
async fn admit_comes_with_the_schema_of_pods_that_the_api_server_serves() {
    let client = cluster().await.client().await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    let release = format!("{}.{}", version.major, version.minor.trim_end_matches('+'));
    let request = http::Request::get("/openapi/v3/api/v1").body(Vec::new());
    let served: Value = client.request(request.unwrap()).await.unwrap();
    let served = file(&release, &served["components"]["schemas"]);
    let path = checkout().join("crates/admit/src/pod-template.json");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &served).unwrap();
    }
    let shipped = fs::read_to_string(&path).unwrap();
    let mut lines = served.lines().zip(shipped.lines());
    let different = lines.find(|(served, shipped)| served != shipped);
    let how = "make it again: UPDATE=1 make test T=pod_schema, and build";
    assert!(served == shipped, "{how}: {different:#?}");
}

/// Specs of pods with a container `a` that lacks its image. An API server accepts them.
const GOOD: &[&str] = &[
    // Names: those of variables may have blanks since 1.34.
    "{containers: [{name: a, env: [{name: 'A B'}]}]}",
    // Types: a null is an absent field or, in a list, an empty value.
    "{nodeSelector: ~, tolerations: ~}",
    "{containers: [{name: a, args: [~, b]}]}",
    "{containers: [{name: a, livenessProbe: {tcpSocket: {port: http}}}]}",
    // Lists of texts: an empty text is an absent one.
    "{dnsPolicy: ''}",
    "{tolerations: [{key: a, operator: '', effect: ''}]}",
    "{volumes: [{name: v, hostPath: {path: /v, type: ''}}]}",
    // Quantities.
    "{containers: [{name: a, resources: {requests: {cpu: 0.5, memory: 1e6}}}]}",
    "{containers: [{name: a, resources: {requests: {cpu: .5, memory: ' 1Mi '}}}]}",
    "{containers: [{name: a, resources: {requests: {cpu: '+1E-3', memory: 5.k}}}]}",
    // What is required on paper only.
    "{containers: [{name: a, livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A}]}}}]}",
    "{containers: [{name: a, lifecycle: {preStop: {sleep: {}}}}]}",
    "{securityContext: {sysctls: [{name: kernel.shm_rmid_forced}]}}",
    "{volumes: [{name: v, iscsi: {targetPortal: '10.0.0.1:3260', iqn: 'iqn.2001-04.com.example:a'}}]}",
    "{volumes: [{name: v, scaleIO: {gateway: 'https://a', system: b, volumeName: c}}]}",
    "{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}}}",
];

/// Such specs that an API server rejects.
const BAD: &[&str] = &[
    // Stumbles of a user's first hour.
    "{container: []}",
    "{containers: [{name: a, resources: {limits: {cpu: abc}}}]}",
    "{containers: [{name: a, env: [{name: A, value: 5}]}]}",
    "{containers: [{name: a, imagePullPolicy: never}]}",
    "{tolerations: [{operator: Bla}]}",
    // Names.
    "{hostnetwork: true}",
    // Types.
    "{hostNetwork: 'true'}",
    "{nodeSelector: {disk: 1}}",
    "{containers: [{name: a, command: sleep}]}",
    "{containers: [{name: a, ports: [{containerPort: '80'}]}]}",
    "{containers: [{name: a, ports: [{containerPort: 3000000000}]}]}",
    "{containers: [{name: a, livenessProbe: {tcpSocket: {port: {}}}}]}",
    // Lists of texts.
    "{dnsPolicy: clusterFirst}",
    "{volumes: [{name: v, hostPath: {path: /v, type: Folder}}]}",
    // Quantities.
    "{containers: [{name: a, resources: {requests: {memory: 128MB}}}]}",
    "{containers: [{name: a, resources: {requests: {memory: '1 Gi'}}}]}",
    "{containers: [{name: a, resources: {requests: {memory: 1e1.5}}}]}",
    "{containers: [{name: a, resources: {requests: {memory: ''}}}]}",
    "{volumes: [{name: v, emptyDir: {sizeLimit: 1K}}]}",
    // Required fields.
    "{containers: [{name: a, env: [{value: b}]}]}",
    "{containers: [{name: a, env: [{name: ''}]}]}",
    "{volumes: [{name: v, hostPath: {}}]}",
    "{volumes: [{name: v, configMap: {name: c, items: [{key: a}]}}]}",
    "{topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}",
];

/// The pod of a spec, as an operator completes a template.
fn pod(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let containers = spec.get("containers").cloned();
    let mut containers = containers.unwrap_or_else(|| json!([{"name": "a"}]));
    containers[0]["image"] = "example.com/a:1".into();
    spec["containers"] = containers;
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn admit_accepts_in_a_template_what_the_api_server_accepts_in_a_pod() {
    let cluster = cluster().await;
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("pod-schema").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict");
    let mut wrong = Vec::new();
    let good = GOOD.iter().map(|spec| (spec, true));
    for (spec, good) in good.chain(BAD.iter().map(|spec| (spec, false))) {
        let mut documents = Vec::new();
        let text = format!("template: {{spec: {spec}}}");
        yaml::documents(&text, &mut |document| {
            documents.push(document.content.unwrap());
        });
        let node = &documents[0];
        let value = node.value();
        let faults = pods::check("template", &value, node);
        let request = http::Request::post(&path)
            .header("content-type", "application/json")
            .body(Body::from(
                pod(&value["template"]["spec"]).to_string().into_bytes(),
            ));
        let answer = client.send(request.unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        if faults.is_empty() != good || (code == 201) != good {
            wrong.push(format!("{spec}: {code}, {faults:#?}, {body}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
