//! Admission webhooks that never answer.

use std::net::{TcpListener, TcpStream};

use serde_json::json;

use super::{Kubectl, wait_for};

/// Webhooks for pods that accept connections and never answer. The API server calls one after the other, and waits for
/// each at most 10 s: that long for TLS.
pub struct Hanging {
    kubectl: Kubectl,
    name: String,
    listener: TcpListener,
}

impl Hanging {
    /// Returns when it is in force.
    pub async fn start(
        kubectl: &Kubectl,
        operation: &str,
        (policy, count, seconds): (&str, usize, u32),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("{}-hangs", kubectl.namespace);
        let webhook = |name: String, policy: &str, port: u16, operation: &str, resource: &str| {
            json!({
                "name": name, "failurePolicy": policy, "sideEffects": "None", "timeoutSeconds": seconds,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource],
                    "operations": [operation]}],
            })
        };
        let hangs = |n| {
            webhook(
                format!("hangs-{n}.example.com"),
                policy,
                port,
                operation,
                "pods",
            )
        };
        let mut webhooks: Vec<_> = (0..count).map(hangs).collect();
        // Nothing listens there, so that it shows at once that this object is in force.
        let probe = "probe.example.com".to_owned();
        webhooks.push(webhook(probe, "Fail", 1, "CREATE", "configmaps"));
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": webhooks,
        });
        kubectl.apply(&object.to_string()).await.good();
        wait_for("the webhook to be called", async || {
            let probe =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
            let answer = kubectl.dry_run("configmaps", probe).await;
            answer
                .is_err_and(|error| error.contains("probe.example.com"))
                .then_some(())
        })
        .await;
        Self {
            kubectl: kubectl.clone(),
            name,
            listener,
        }
    }

    /// Waits until the API server calls it. The call hangs until what is returned is dropped.
    pub async fn until_called(&self) -> TcpStream {
        let listener = self.listener.try_clone().unwrap();
        let called = tokio::task::spawn_blocking(move || listener.accept());
        called.await.unwrap().unwrap().0
    }

    pub async fn end(self) {
        // A test that gives a control plane back deletes all of them.
        let object = format!("mutatingwebhookconfiguration/{}", self.name);
        let delete = format!("delete {object} --ignore-not-found");
        self.kubectl.run(&delete).await.good();
    }
}
