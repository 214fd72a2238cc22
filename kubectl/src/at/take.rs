//! The pod template of an object, made one that runs a command once beside the object's own pods: a pure function of
//! JSON, so that no field is lost.

use std::collections::BTreeSet;

use admission_rules::text::cut;
use my_operator_mydaemonset::revision;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use wall_clock_controller::reconcile::write::MANAGED_BY;

use super::argv::{self, Run, Variables, Word};
use super::show::CONTAINER;
use crate::containers;

/// Characters of a list of names, or of a command, in a message.
const MAX_SHOWN: usize = 200;
/// The container that kubectl takes where a pod has several.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// What the names of the volumes begin with that admission adds to a pod, for the token of its ServiceAccount.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Labels that stay: by these, webhooks decide what they inject. No controller or Service selects its pods by them.
const KEPT_LABELS: &[&str] = &[
    "admission.datadoghq.com/enabled",
    "azure.workload.identity/use",
    "istio.io/dataplane-mode",
    "istio.io/rev",
    "sidecar.istio.io/inject",
];
/// The beginnings of annotations that go: of kubectl, those that make a pod a target of Prometheus, addresses of which
/// Calico gives each to one pod only, and those that only the operator may set.
const LEFT_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/",
    "prometheus.io/",
    "cni.projectcalico.org/floatingIPs",
    "cni.projectcalico.org/hwAddr",
    "cni.projectcalico.org/ipAddrs",
    "cnat.programming-kubernetes.info/",
    MANAGED_BY,
];
/// Fields of a pod that go.
const LEFT_OF_POD: &[&str] = &[
    // Its place among other pods.
    "nodeName",
    "hostname",
    "hostnameOverride",
    "setHostnameAsFQDN",
    "subdomain",
    "topologySpreadConstraints",
    "schedulingGroup",
    "workloadRef",
    // Its start and its restarts are the operator's, and no Service waits for it.
    "restartPolicy",
    "schedulingGates",
    "readinessGates",
    "ephemeralContainers",
    // What admission works out from the class of priority and that of the runtime.
    "priority",
    "preemptionPolicy",
    "overhead",
];
/// Fields of the container of the command that go: those of a server, and those that the operator sets.
const LEFT_OF_MAIN: &[&str] = &[
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "ports",
    "stdin",
    "stdinOnce",
    "tty",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "terminationMessagePath",
    "terminationMessagePolicy",
];
/// Fields of init containers that go: nothing of a pod that runs once is restarted, but sidecars.
const LEFT_OF_INIT: &[&str] = &["resizePolicy", "restartPolicyRules"];
/// What names a port of its container: probes, and hooks of its `lifecycle`.
const PROBES: &[&str] = &["startupProbe", "livenessProbe", "readinessProbe"];
const HOOKS: &[&str] = &["postStart", "preStop"];
/// What the API server's admission sets where a pod says nothing of its node being lost.
const ADMITTED_SECONDS: i64 = 300;
const NEEDS_SH: &str = "needs sh in its image: the command runs with sh -c";

type Fields = Map<String, Value>;

/// Where a kind has its pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is a pod.
    Pod,
    /// `spec.template`.
    Template,
    /// The same, and the image of the container `app` is `spec.image`.
    MyDaemonSet,
    /// `spec.template` of a Job.
    Job,
    /// `spec.jobTemplate.spec.template`.
    CronJob,
}

/// What an At gets.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// `spec.template`, without the command.
    pub(super) template: Value,
    /// `spec.image`.
    pub(super) image: String,
    /// `spec.activeDeadlineSeconds`: that of a Job.
    pub(super) timeout: Option<i64>,
    /// What there is to say about it, after the name of the object: `leaves out ...`.
    pub(super) notes: Vec<String>,
    /// The container's own command; empty if its image has it.
    words: Vec<String>,
    variables: Variables,
}

/// Takes the template out of an object. An error is what is the matter with the object, to be read after its name.
pub(super) fn take(object: &Value, place: Place, wanted: Option<&str>) -> Result<Taken, String> {
    let Some((mut spec, metadata)) = template(object, place) else {
        return Err("has no pod template".to_owned());
    };
    let containers: Vec<Fields> = list(spec.remove("containers"), "containers")?;
    let mut init: Vec<Fields> = list(spec.remove("initContainers"), "initContainers")?;
    let default = metadata["annotations"][DEFAULT_CONTAINER].as_str();
    let (mut main, left_out) = choose(containers, wanted, default)?;
    let name = text(&main, "name").to_owned();
    if name != CONTAINER && init.iter().any(|it| text(it, "name") == CONTAINER) {
        return Err(format!(
            "has an init container named {CONTAINER:?}, the name of the command's container: give a --template instead"
        ));
    }
    let words = words(&mut main)?;
    let image = match main.remove("image") {
        Some(Value::String(image)) if !image.is_empty() => image,
        _ => return Err(format!("has no image for its container {name:?}")),
    };
    clean(&mut main, &mut init, is_on_host(&spec))?;
    clean_pod(&mut spec);
    if place == Place::Pod {
        remove_admitted(&mut spec, std::iter::once(&mut main).chain(&mut init));
    }
    keep_mounted(&mut spec, std::iter::once(&main).chain(&init), object)?;
    let notes = notes(&left_out, &spec, place);
    let variables = Variables::of(&main);
    main.insert("name".to_owned(), CONTAINER.into());
    if !init.is_empty() {
        spec.insert("initContainers".to_owned(), init.into());
    }
    spec.insert("containers".to_owned(), vec![main].into());
    let metadata = kept_metadata(&metadata, place, &left_out);
    let mut template = json!({"spec": spec});
    if !metadata.is_empty() {
        template["metadata"] = metadata.into();
    }
    containers::rename(&mut template, &name, CONTAINER);
    Ok(Taken {
        template,
        image,
        timeout: job(object, place).and_then(|job| job["activeDeadlineSeconds"].as_i64()),
        notes,
        words,
        variables,
    })
}

impl Taken {
    /// How the words after `--` run, or without any the container's own. `env` are the variables that flags add.
    pub(super) fn run(
        &mut self,
        given: &[String],
        shell: Option<&str>,
        env: &[(String, String)],
    ) -> Result<Run, String> {
        for (name, _) in env {
            self.variables.add(name);
        }
        let words: Vec<Word> = if given.is_empty() {
            let own = self.words.iter();
            own.map(|word| Word::of_container(word, &self.variables))
                .collect()
        } else {
            given.iter().map(|word| Word::plain(word)).collect()
        };
        if words.is_empty() {
            return Err(
                "runs the command of its image, which an At cannot name: give a command after --"
                    .to_owned(),
            );
        }
        let run = argv::run(&words, shell)?;
        if given.is_empty() {
            let command = cut(&argv::shown_own(&self.words), MAX_SHOWN);
            self.notes.push(format!("runs its own command: {command}"));
        }
        if run.quoted && shell.is_none() {
            self.notes.push(NEEDS_SH.to_owned());
        }
        Ok(run)
    }

    /// `spec.shell` for a text.
    pub(super) fn by_shell(&mut self, shell: Option<&str>) -> Vec<String> {
        if shell.is_none() {
            self.notes.push(NEEDS_SH.to_owned());
        }
        argv::by(shell)
    }
}

/// The spec of the Job that the object is or makes.
fn job(object: &Value, place: Place) -> Option<&Value> {
    match place {
        Place::Job => Some(&object["spec"]),
        Place::CronJob => Some(&object["spec"]["jobTemplate"]["spec"]),
        Place::Pod | Place::Template | Place::MyDaemonSet => None,
    }
}

/// The spec and the metadata of an object's pod template.
fn template(object: &Value, place: Place) -> Option<(Fields, Value)> {
    let spec = &object["spec"];
    let template = match place {
        Place::Pod => object,
        Place::Template | Place::MyDaemonSet => &spec["template"],
        Place::Job | Place::CronJob => &job(object, place)?["template"],
    };
    let mut fields = template["spec"].as_object().cloned();
    if place == Place::MyDaemonSet {
        let mut pod = fields.unwrap_or_default();
        add_app(&mut pod, &spec["image"]);
        fields = Some(pod);
    }
    Some((fields?, template["metadata"].clone()))
}

/// A `MyDaemonSet` need not name its main container, nor that container an image.
fn add_app(spec: &mut Fields, image: &Value) {
    let containers = spec.entry("containers").or_insert(Value::Null);
    if containers.is_null() {
        *containers = json!([]);
    }
    if let Some(containers) = containers.as_array_mut() {
        revision::add_app(containers, image);
    }
}

/// The container of the command, and the names of the others.
fn choose(
    mut containers: Vec<Fields>,
    wanted: Option<&str>,
    default: Option<&str>,
) -> Result<(Fields, Vec<String>), String> {
    let names = containers.iter();
    let mut names: Vec<String> = names.map(|it| text(it, "name").to_owned()).collect();
    let place = |name: &str| names.iter().position(|it| it == name);
    let found = match wanted {
        Some(name) => place(name).ok_or_else(|| format!("has no container {name:?}, but")),
        None if names.len() == 1 => Ok(0),
        None if names.is_empty() => return Err("has no container".to_owned()),
        None => {
            let several = || "has several containers, choose one with -c:".to_owned();
            default.and_then(place).ok_or_else(several)
        }
    };
    let found = found.map_err(|what| format!("{what} {}", listed(&names)))?;
    names.remove(found);
    Ok((containers.remove(found), names))
}

fn listed(names: &[String]) -> String {
    cut(&names.join(", "), MAX_SHOWN)
}

/// Takes out the command and the arguments; none without a command, as only the image knows what the arguments are for.
fn words(main: &mut Fields) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = list(main.remove("command"), "command")?;
    let args: Vec<String> = list(main.remove("args"), "args")?;
    if !words.is_empty() {
        words.extend(args);
    }
    Ok(words)
}

/// Whether the pod has the addresses of its node. Then every port of a container is one of the node, as the API server
/// sets `hostPort` of each.
fn is_on_host(spec: &Fields) -> bool {
    spec.get("hostNetwork") == Some(&Value::Bool(true))
}

/// Takes out of the containers what is a server's, or the operator's to set.
fn clean(main: &mut Fields, init: &mut [Fields], on_host: bool) -> Result<(), String> {
    main.retain(|field, value| !value.is_null() && !LEFT_OF_MAIN.contains(&field.as_str()));
    if main.get("env").is_some_and(|env| !env.is_array()) {
        return Err(unreadable("env"));
    }
    for container in init {
        container.retain(|field, value| {
            let is_restarted = field == "restartPolicy" && *value != "Always";
            !is_restarted && !LEFT_OF_INIT.contains(&field.as_str())
        });
        clean_ports(container, on_host)?;
    }
    Ok(())
}

/// The pods of the object have the ports of the node. Probes and hooks know a port by its name, so that it stays.
fn clean_ports(container: &mut Fields, on_host: bool) -> Result<(), String> {
    let mut ports: Vec<Value> = list(container.remove("ports"), "ports")?;
    if on_host {
        ports.retain(|port| is_named(container, &port["name"]));
    }
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        port.remove("hostPort");
    }
    if !ports.is_empty() {
        container.insert("ports".to_owned(), ports.into());
    }
    Ok(())
}

/// Whether a probe or a hook of the container has this name of a port.
fn is_named(container: &Fields, name: &Value) -> bool {
    let probes = PROBES.iter().filter_map(|probe| container.get(*probe));
    let hooks = container.get("lifecycle").into_iter();
    let hooks = hooks.flat_map(|lifecycle| HOOKS.iter().map(move |hook| &lifecycle[*hook]));
    let mut handlers = probes.chain(hooks);
    let has_it = |handler: &Value| {
        let mut requests = ["httpGet", "tcpSocket"].into_iter();
        requests.any(|request| handler[request]["port"] == *name)
    };
    name.is_string() && handlers.any(has_it)
}

/// Takes out of the pod what is of no use to one that runs once, or gets in its way.
fn clean_pod(spec: &mut Fields) {
    spec.retain(|field, value| !value.is_null() && !LEFT_OF_POD.contains(&field.as_str()));
    // The old name of the same.
    if spec.contains_key("serviceAccountName") {
        spec.remove("serviceAccount");
    }
    // It keeps the pods of the object apart, and with a pod on each node it would leave no place.
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("podAntiAffinity");
    }
}

/// Takes out of a pod what admission has added, and adds again.
fn remove_admitted<'a>(spec: &mut Fields, containers: impl Iterator<Item = &'a mut Fields>) {
    let is_token = |mount: &Value| {
        let name = mount["name"].as_str();
        name.is_some_and(|name| name.starts_with(TOKEN_VOLUME))
    };
    for container in containers {
        let mounts = container.get_mut("volumeMounts");
        if let Some(mounts) = mounts.and_then(Value::as_array_mut) {
            mounts.retain(|mount| !is_token(mount));
        }
    }
    let is_default = |toleration: &Value| {
        let key = toleration["key"].as_str().unwrap_or_default();
        let keys = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ];
        keys.contains(&key)
            && toleration["operator"] == "Exists"
            && toleration["effect"] == "NoExecute"
            && toleration["tolerationSeconds"] == ADMITTED_SECONDS
    };
    if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        tolerations.retain(|it| !is_default(it));
    }
}

/// Leaves the volumes that are mounted.
fn keep_mounted<'a>(
    spec: &mut Fields,
    containers: impl Iterator<Item = &'a Fields>,
    object: &Value,
) -> Result<(), String> {
    let mut volumes: Vec<Value> = list(spec.remove("volumes"), "volumes")?;
    let name = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = volumes.iter().map(name).collect();
    let mut used = BTreeSet::new();
    for container in containers {
        let fields = ["volumeMounts", "volumeDevices"].into_iter();
        let mounts = fields.filter_map(|field| container.get(field)?.as_array());
        for mount in mounts.flatten().map(name) {
            if !known.contains(&mount) {
                return Err(unmountable(&mount, text(container, "name"), object));
            }
            used.insert(mount);
        }
    }
    volumes.retain(|volume| used.contains(&name(volume)));
    if !volumes.is_empty() {
        spec.insert("volumes".to_owned(), volumes.into());
    }
    Ok(())
}

/// What is the matter with a mount without a volume.
fn unmountable(volume: &str, container: &str, object: &Value) -> String {
    let what = format!("mounts {volume:?} in its container {container:?}");
    let claims = object["spec"]["volumeClaimTemplates"].as_array();
    let mut claims = claims.into_iter().flatten();
    if claims.any(|claim| claim["metadata"]["name"] == volume) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return format!(
            "{what}, of which each of its pods has its own: take one of them, as in --from pod/{name}-0"
        );
    }
    format!("{what}, but has no such volume")
}

/// What of the metadata goes with the template.
fn kept_metadata(metadata: &Value, place: Place, left_out: &[String]) -> Fields {
    let of_pod = |key: &str, value: &Value| {
        // The others are marks of networks, injectors and controllers. What was injected is in the pod.
        key.ends_with("inject") && ["false", "disabled"].iter().any(|it| value == *it)
    };
    let of_template = |key: &str| {
        let container = key.strip_prefix(containers::APPARMOR);
        let is_left_out =
            container.is_some_and(|container| left_out.iter().any(|it| it == container));
        !is_left_out && !LEFT_ANNOTATIONS.iter().any(|it| key.starts_with(it))
    };
    let mut kept = Fields::new();
    let mut keep = |map: &str, stays: &dyn Fn(&str, &Value) -> bool| {
        let entries = metadata[map].as_object().into_iter().flatten();
        let entries = entries.filter(|(key, value)| stays(key, value));
        let entries: Fields = entries.map(|(k, v)| (k.clone(), v.clone())).collect();
        if !entries.is_empty() {
            kept.insert(map.to_owned(), entries.into());
        }
    };
    keep("labels", &|key, _| KEPT_LABELS.contains(&key));
    keep("annotations", &|key, value| match place {
        Place::Pod => of_pod(key, value),
        _ => of_template(key),
    });
    kept
}

fn notes(left_out: &[String], spec: &Fields, place: Place) -> Vec<String> {
    let mut notes = Vec::new();
    if !left_out.is_empty() {
        let noun = if left_out.len() == 1 {
            "container"
        } else {
            "containers"
        };
        notes.push(format!(
            "leaves out {noun} {}, which would keep the pod running",
            listed(left_out)
        ));
    }
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let claims = volumes.into_iter().flatten();
    let claims = claims.filter_map(|it| it["persistentVolumeClaim"]["claimName"].as_str());
    let claims: Vec<String> = claims.map(str::to_owned).collect();
    // The pods of a CronJob are seldom there at the same time.
    if !claims.is_empty() && place != Place::CronJob {
        notes.push(format!(
            "mounts {}: a ReadWriteOnce claim keeps the command waiting while a pod on another node has it",
            listed(&claims)
        ));
    }
    notes
}

fn unreadable(field: &str) -> String {
    format!("has {field} that cannot be read")
}

/// The items of a list, which may be absent.
fn list<T: DeserializeOwned>(value: Option<Value>, field: &str) -> Result<Vec<T>, String> {
    let items: Result<Option<Vec<T>>, _> = serde_json::from_value(value.unwrap_or_default());
    items
        .map(Option::unwrap_or_default)
        .map_err(|_| unreadable(field))
}

fn text<'a>(fields: &'a Fields, field: &str) -> &'a str {
    fields
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
