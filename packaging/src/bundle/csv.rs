//! The `ClusterServiceVersion`: what OLM installs and shows.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use my_operator::kinds::{self, Kind, REGISTRY};
use serde_json::{Map, Value, json};

use super::descriptors::{Part, descriptors};
use super::{Options, PACKAGE, text};

/// The resources of Kubernetes that kinds create, and their kinds.
const CREATED: &[(&str, &str, &str, &str)] = &[
    ("", "pods", "Pod", "v1"),
    ("apps", "controllerrevisions", "ControllerRevision", "v1"),
    ("apps", "deployments", "Deployment", "v1"),
    ("batch", "cronjobs", "CronJob", "v1"),
    ("batch", "jobs", "Job", "v1"),
];

/// What OLM's type of a webhook takes from an entry of a configuration as it is.
const WEBHOOK_FIELDS: [&str; 8] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];

/// Completes the hand-written base with what the other objects say.
pub(super) fn complete(mut csv: Value, objects: &[Value], options: &Options) -> Result<Value> {
    let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
    let deployments: Vec<&Value> = of_kind("Deployment").collect();
    let [deployment] = deployments[..] else {
        bail!(
            "{} Deployments are rendered, and not one",
            deployments.len()
        );
    };
    let namespace = of_kind("Namespace")
        .next()
        .context("no Namespace is rendered")?;
    let version = env!("CARGO_PKG_VERSION");
    let image = manager_image(deployment)?;
    let mut kinds = Vec::new();
    for crd in of_kind("CustomResourceDefinition") {
        kinds.push((of_crd(crd)?, crd));
    }

    describe(&mut csv, &kinds)?;
    csv["metadata"]["name"] = format!("{PACKAGE}.v{version}").into();
    let annotations = &mut csv["metadata"]["annotations"];
    annotations["alm-examples"] = examples(&kinds)?.into();
    annotations["containerImage"] = image.clone();
    annotations["operatorframework.io/suggested-namespace"] = namespace["metadata"]["name"].clone();
    annotations["operatorframework.io/suggested-namespace-template"] =
        serde_json::to_string(namespace)?.into();
    let spec = &mut csv["spec"];
    if let Some(source) = &options.source {
        spec["links"] = json!([{"name": "Source", "url": source}]);
        csv["metadata"]["annotations"]["repository"] = source.clone().into();
    }

    let spec = &mut csv["spec"];
    spec["version"] = version.into();
    spec["minKubeVersion"] = min_kube_version(namespace)?.into();
    let mut owned = Vec::new();
    for (kind, crd) in &kinds {
        owned.extend(owned_versions(kind, crd)?);
    }
    spec["customresourcedefinitions"] = json!({ "owned": owned });
    spec["webhookdefinitions"] = webhooks(objects, deployment)?.into();
    let account = text(deployment, "/spec/template/spec/serviceAccountName")?;
    spec["install"] = json!({
        "strategy": "deployment",
        "spec": {
            "clusterPermissions": permissions(objects, account, "ClusterRole")?,
            "permissions": permissions(objects, account, "Role")?,
            "deployments": [{
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": deployment["spec"],
            }],
        },
    });
    let mut images = vec![json!({"name": "manager", "image": image})];
    for (kind, _) in kinds {
        let name = format!("{}-default", kind.name);
        let of_kind = kind.images.iter();
        images.extend(of_kind.map(|image| json!({"name": name, "image": image})));
    }
    spec["relatedImages"] = images.into();
    Ok(csv)
}

fn manager_image(deployment: &Value) -> Result<Value> {
    let containers = deployment.pointer("/spec/template/spec/containers");
    match containers.and_then(Value::as_array).map(Vec::as_slice) {
        Some([manager]) => Ok(manager["image"].clone()),
        _ => bail!("the Deployment has not one container"),
    }
}

/// The oldest Kubernetes that is supported: the namespace enforces Pod Security as of that version.
fn min_kube_version(namespace: &Value) -> Result<String> {
    let label = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce-version"];
    let minor = label
        .as_str()
        .and_then(|version| version.strip_prefix('v'))
        .context("the Namespace does not say pod-security.kubernetes.io/enforce-version: v1.N")?;
    Ok(format!("{minor}.0"))
}

/// The kind that has this CRD.
fn of_crd(crd: &Value) -> Result<&'static Kind> {
    let name = text(crd, "/metadata/name")?;
    let mut kinds = REGISTRY.iter().copied();
    kinds
        .find(|kind| (kind.crd)().metadata.name.as_deref() == Some(name))
        .with_context(|| format!("no kind of the registry has the CRD {name}"))
}

/// The words of the base are about the kinds that are on by default. Others are described by their CRDs.
fn describe(csv: &mut Value, kinds: &[(&Kind, &Value)]) -> Result<()> {
    let default = kinds::by_default();
    if kinds.len() == default.len() && kinds.iter().all(|(kind, _)| kind.by_default) {
        return Ok(());
    }
    let mut names = Vec::new();
    let mut words = String::new();
    for (_, crd) in kinds {
        let name = text(crd, "/spec/names/kind")?;
        let schema = "/spec/versions/0/schema/openAPIV3Schema/description";
        let _ = write!(words, "\n**{name}**: {}\n", text(crd, schema)?);
        names.push(name);
    }
    csv["metadata"]["annotations"]["description"] = format!("Serves {}.", names.join(", ")).into();
    csv["spec"]["description"] = format!("my-operator serves:\n{words}").into();
    csv["spec"]["keywords"] = names.iter().map(|name| name.to_lowercase()).collect();
    Ok(())
}

/// The samples of the kinds, as JSON.
fn examples(kinds: &[(&Kind, &Value)]) -> Result<String> {
    let samples = kinds.iter().flat_map(|(kind, _)| kind.samples);
    let good = samples.filter(|sample| !sample.file.starts_with("bad/"));
    let good: Result<Vec<Value>, _> = good
        .map(|sample| serde_saphyr::from_str(sample.text))
        .collect();
    Ok(serde_json::to_string_pretty(&good?)?)
}

/// A description of each version of the CRD that is served.
fn owned_versions(kind: &Kind, crd: &Value) -> Result<Vec<Value>> {
    let name = text(crd, "/metadata/name")?;
    let resources = created(kind)?;
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    Ok(served
        .map(|version| {
            let schema = &version["schema"]["openAPIV3Schema"];
            json!({
                "name": name,
                "version": version["name"],
                "kind": crd["spec"]["names"]["kind"],
                "displayName": crd["spec"]["names"]["kind"],
                "description": schema["description"],
                "resources": resources,
                "specDescriptors": descriptors(schema, Part::Spec),
                "statusDescriptors": descriptors(schema, Part::Status),
            })
        })
        .collect())
}

/// What objects of the kind create, beside Events.
fn created(kind: &Kind) -> Result<Vec<Value>> {
    let created = kind.permissions.iter();
    created
        .filter(|it| it.verbs.contains(&"create") && it.resource != "events")
        .map(|permission| {
            let known = CREATED.iter().find(|(group, resource, ..)| {
                (*group, *resource) == (permission.group, permission.resource)
            });
            let (group, _, kind, version) = known.with_context(|| {
                format!(
                    "add the kind of {} to CREATED in packaging/src/bundle/csv.rs",
                    permission.resource
                )
            })?;
            let version = if group.is_empty() {
                (*version).to_owned()
            } else {
                format!("{group}/{version}")
            };
            Ok(json!({"name": "", "kind": kind, "version": version}))
        })
        .collect()
}

/// The rules that bindings give the ServiceAccount by roles of this kind, each once. OLM creates the webhook
/// configurations, so the rule to read those of config/webhook is left out.
fn permissions(objects: &[Value], account: &str, role_kind: &str) -> Result<Vec<Value>> {
    let mut rules: Vec<Value> = Vec::new();
    for role in bound_roles(objects, account).filter(|it| it["kind"] == role_kind) {
        let of_role = role["rules"].as_array();
        for rule in
            of_role.with_context(|| format!("{} has no rules", crate::rendered::title(role)))?
        {
            let configurations = rule["apiGroups"] == json!(["admissionregistration.k8s.io"]);
            if !configurations && !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Ok(vec![json!({"serviceAccountName": account, "rules": rules})])
}

/// The roles that bindings give the ServiceAccount.
pub(super) fn bound_roles<'a>(
    objects: &'a [Value],
    account: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let bindings = objects.iter().filter(move |it| binds(it, account));
    bindings.filter_map(|binding| {
        objects.iter().find(|role| {
            let of_binding = &binding["metadata"]["namespace"];
            let is_role = role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"];
            is_role
                && (role["kind"] == "ClusterRole" || role["metadata"]["namespace"] == *of_binding)
        })
    })
}

/// Whether this object is a binding of the ServiceAccount.
pub(super) fn binds(object: &Value, account: &str) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut subjects = object["subjects"].as_array().into_iter().flatten();
    ["ClusterRoleBinding", "RoleBinding"].contains(&kind)
        && subjects.any(|it| it["kind"] == "ServiceAccount" && it["name"] == account)
}

/// OLM's description of every webhook.
fn webhooks(objects: &[Value], deployment: &Value) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (kind, form) in [
        ("MutatingWebhookConfiguration", "MutatingAdmissionWebhook"),
        (
            "ValidatingWebhookConfiguration",
            "ValidatingAdmissionWebhook",
        ),
    ] {
        for configuration in objects.iter().filter(|it| it["kind"] == kind) {
            for entry in configuration["webhooks"].as_array().into_iter().flatten() {
                let mut description = webhook(entry)?;
                description["type"] = form.into();
                description["deploymentName"] = deployment["metadata"]["name"].clone();
                description["targetPort"] = port(deployment, "webhook")?;
                all.push(description);
            }
        }
    }
    Ok(all)
}

fn webhook(entry: &Value) -> Result<Value> {
    let name = text(entry, "/name")?;
    let mut description = Map::new();
    for (field, value) in entry.as_object().into_iter().flatten() {
        match field.as_str() {
            "name" => _ = description.insert("generateName".into(), value.clone()),
            "clientConfig" => {
                let service = &value["service"];
                description.insert("webhookPath".into(), service["path"].clone());
                description.insert("containerPort".into(), service["port"].clone());
            }
            // OLM's type has none. They only spare calls: the webhooks accept such updates as they are.
            "matchConditions" => {}
            known if WEBHOOK_FIELDS.contains(&known) => {
                description.insert(known.to_owned(), value.clone());
            }
            other => bail!(
                "{other} of the webhook {name} has no place in a ClusterServiceVersion: leave out the component that sets it"
            ),
        }
    }
    Ok(description.into())
}

/// The number of a port of the manager.
fn port(deployment: &Value, name: &str) -> Result<Value> {
    let ports = deployment.pointer("/spec/template/spec/containers/0/ports");
    let mut ports = ports.and_then(Value::as_array).into_iter().flatten();
    let port = ports.find(|port| port["name"] == name);
    let port = port.with_context(|| format!("the Deployment has no port {name}"))?;
    Ok(port["containerPort"].clone())
}
