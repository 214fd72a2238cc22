//! What a `Memcached` asks for: the desired Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::admission::{DEFAULT_IMAGE, MemcachedRules};
use super::crd::{MemcachedSpec, MemcachedStatus};
use super::labels::{APP_LABEL, MEMCACHED, OWN_LABEL, labels};
use super::status;
use crate::owned_child::deployment::DeploymentView;
use crate::owned_child::{Desired, Done, KeptEqual, Observation, Owner, Parent, Report};

const PORT: u16 = 11211;
/// The default memory of a server in MiB: memcached's own default.
const DEFAULT_MEMORY: i64 = 64;

/// The kind, for the reconciler of owned children.
#[derive(Debug)]
pub(crate) struct Memcacheds;

impl Parent for Memcacheds {
    const NAME: &'static str = "memcached";
    const CONFLICT: &'static str = "DeploymentExists";
    const POD_LABELS: &'static [&'static str] = &[OWN_LABEL, APP_LABEL];

    type Rules = MemcachedRules;
    type Child = Deployment;
    type Lifecycle = KeptEqual;

    fn desired(owner: &Owner<'_, Self>) -> Desired {
        Desired {
            name: owner.key.name.to_string(),
            fields: fields(&owner.key.name, owner.spec),
        }
    }

    fn replace_conflicting_list(field: &str) -> Option<Value> {
        field.contains(".ports[").then(only_port)
    }

    fn report(observation: &Observation<'_, Self>, status: &mut MemcachedStatus) -> Report {
        let pods = observation.pods.iter().filter(|(_, pod)| {
            let is_memcached = pod.label(1) == Some(MEMCACHED);
            is_memcached && !pod.deleting && !pod.ended
        });
        let observed = status::Observed {
            name: &observation.owner.key.name,
            generation: observation.owner.generation,
            size: observation.owner.spec.size.unwrap_or_default(),
            blocked: observation.trouble.is_some(),
            changed: observation.done == Done::Changed,
            deployment: observation.child.map(DeploymentView::new),
            pods: pods.map(|(key, _)| key.name.to_string()).collect(),
            now: observation.now,
        };
        Report {
            events: status::next(&observed, status),
            trouble: observed
                .deployment
                .as_ref()
                .and_then(DeploymentView::trouble),
            requeue_at: None,
        }
    }
}

/// The fields of the Deployment that the operator owns. Every other field belongs to whichever
/// client sets it. The pods pass Pod Security `restricted`.
fn fields(name: &str, spec: &MemcachedSpec) -> Value {
    let labels = labels(name);
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "replicas": spec.size,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "securityContext": {
                        "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": MEMCACHED,
                        "image": spec.image,
                        "command": command(spec),
                        "ports": [port()],
                        "securityContext": {
                            "runAsNonRoot": true,
                            // The image names its user, and to a kubelet a name does not prove that it is not root.
                            "runAsUser": 1001,
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

fn port() -> Value {
    json!({"name": MEMCACHED, "containerPort": PORT, "protocol": "TCP"})
}

/// The strategic merge patch that leaves the container with our port alone. To server-side apply a
/// port with another number is another port, which belongs to another client and has the name of
/// ours.
fn only_port() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [
        {"name": MEMCACHED, "ports": [{"$patch": "replace"}, port()]},
    ]}}}})
}

/// The command line. The original's is unchanged, including `-m=64`, which is not what it looks
/// like: a short option takes what follows it, here `=64`, which reads as 0. The original's image
/// takes 0 for no limit. Newer images do not start with it, so a spec with another image, or with a
/// memory size, gets the option as memcached reads it.
fn command(spec: &MemcachedSpec) -> Vec<String> {
    let memory = match spec.memory {
        None if spec.image.as_deref() == Some(DEFAULT_IMAGE) => vec!["-m=64".to_owned()],
        memory => vec![
            "-m".to_owned(),
            memory.unwrap_or(DEFAULT_MEMORY).to_string(),
        ],
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    [words(&[MEMCACHED]), memory, words(&["-o", "modern", "-v"])].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(image: &str, memory: Option<i64>) -> MemcachedSpec {
        MemcachedSpec {
            size: Some(3),
            image: Some(image.to_owned()),
            memory,
        }
    }

    #[test]
    fn the_sample_is_run_as_the_original_runs_it() {
        let desired = fields("x", &spec(DEFAULT_IMAGE, None));
        let labels = json!({"app": "memcached", "memcached_cr": "x"});
        assert_eq!(desired["metadata"]["labels"], labels);
        assert_eq!(desired["spec"]["selector"]["matchLabels"], labels);
        assert_eq!(desired["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(desired["spec"]["replicas"], 3);
        let containers = &desired["spec"]["template"]["spec"]["containers"];
        assert_eq!(containers.as_array().map(Vec::len), Some(1));
        let container = &containers[0];
        assert_eq!(container["name"], "memcached");
        assert_eq!(container["image"], "memcached:1.4.36-alpine");
        assert_eq!(
            container["command"],
            json!(["memcached", "-m=64", "-o", "modern", "-v"])
        );
        assert_eq!(
            container["ports"],
            json!([{"name": "memcached", "containerPort": 11211, "protocol": "TCP"}])
        );
    }

    #[test]
    fn memory_is_given_as_memcached_reads_it() {
        let with = |memory| json!(["memcached", "-m", memory, "-o", "modern", "-v"]);
        for (spec, expected) in [
            (spec(DEFAULT_IMAGE, Some(64)), with("64")),
            (spec(DEFAULT_IMAGE, Some(128)), with("128")),
            (spec("memcached:1.6", None), with("64")),
            (spec("memcached:1.6", Some(1024)), with("1024")),
        ] {
            assert_eq!(json!(command(&spec)), expected, "{spec:?}");
        }
    }
}
