//! The kinds that are off by default on a real control plane, driven with kubectl as a user would. All tests
//! share one control plane, on which the CRDs of every kind are installed, and one operator that serves and
//! reconciles them all; each has a namespace of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod count;
mod crontab;
mod every_kind;
mod foo;
mod foobar;
mod memcached;

use harness::{Kubectl, Operator};
use my_operator_cluster::{Cluster, Options};
use tokio::sync::OnceCell;

struct Environment {
    cluster: &'static Cluster,
    // Ends with the tests.
    _operator: Operator,
}

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

async fn environment() -> &'static Environment {
    ENVIRONMENT
        .get_or_init(|| async {
            let nodes = Options::with_nodes(&["node-1", "node-2", "node-3"]);
            let cluster = my_operator_cluster::shared(nodes).await;
            harness::install(cluster);
            harness::install_sample_kinds(cluster);
            let operator = Operator::start(cluster, "operator", &[&harness::every_kind()]).await;
            Kubectl::new(cluster, "default")
                .until_webhooks_are_called(
                    "config/samples/sample-kinds/bad/stable_v1_crontab.yaml",
                    "config/samples/sample-kinds/stable_v1_crontab.yaml",
                    ("{.spec.timeZone}", "Etc/UTC"),
                )
                .await;
            Environment {
                cluster,
                _operator: operator,
            }
        })
        .await
}

/// A policy of the cluster's administrator for one namespace.
struct Policy<'a> {
    kubectl: &'a Kubectl,
}

impl<'a> Policy<'a> {
    /// In this namespace an OPERATION on RESOURCES of a group is refused, with "held back by a test", unless
    /// the EXPRESSION (CEL) holds.
    fn set(
        kubectl: &'a Kubectl,
        operation: &str,
        (group, resources): (&str, &str),
        expression: &str,
    ) -> Self {
        let namespace = &kubectl.namespace;
        let policy = format!(
            r"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {namespace}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {{apiGroups: [{group}], apiVersions: ['*'], resources: [{resources}], operations: [{operation}]}}
  validations: [{{expression: '{expression}', message: held back by a test}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {namespace}}}
spec:
  policyName: {namespace}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"
        );
        kubectl.apply(&policy).good();
        Self { kubectl }
    }

    /// Waits until what it forbids is refused: it is not in force at once.
    async fn until_it_refuses(&self, args: &str) {
        self.kubectl
            .until_refused(args, "held back by a test")
            .await;
    }

    /// Takes it away.
    fn lift(self) {
        let name = &self.kubectl.namespace;
        let delete = format!(
            "delete validatingadmissionpolicybinding/{name} validatingadmissionpolicy/{name}"
        );
        self.kubectl.run(&delete).good();
    }
}

/// kubectl in a fresh namespace of that name.
async fn kubectl(name: &str) -> Kubectl {
    let cluster = environment().await.cluster;
    let namespace = cluster.namespace(name).await.unwrap();
    Kubectl::new(cluster, &namespace)
}
