//! The desired Deployment of a `Memcached`.

use serde_json::{Value, json};

use super::admission::DEFAULT_IMAGE;
use super::crd::MemcachedSpec;

/// The name of the container and of its port, and the value of [`APP_LABEL`].
pub const MEMCACHED: &str = "memcached";
/// A label of the Deployment and its pods; the selector has it too.
pub const APP_LABEL: &str = "app";
/// The same, with the object's name as value.
pub const OWN_LABEL: &str = "memcached_cr";
const PORT: u16 = 11211;
/// The default memory of a server in MiB: memcached's own default.
const DEFAULT_MEMORY: i64 = 64;

/// The labels that the Deployment selects its pods by.
pub fn labels(name: &str) -> Value {
    json!({APP_LABEL: MEMCACHED, OWN_LABEL: name})
}

/// The same as a selector of the scale subresource.
pub fn selector(name: &str) -> String {
    format!("{APP_LABEL}={MEMCACHED},{OWN_LABEL}={name}")
}

/// The fields of the Deployment that the operator owns. Every other field belongs to whichever
/// client sets it. The pods pass Pod Security `restricted`.
pub fn desired(name: &str, spec: &MemcachedSpec) -> Value {
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
pub fn only_port() -> Value {
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
        let desired = desired("x", &spec(DEFAULT_IMAGE, None));
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

    #[test]
    fn the_selector_says_what_the_labels_say() {
        let labels = labels("x");
        let written: Vec<String> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        assert_eq!(selector("x"), written.join(","));
    }
}
