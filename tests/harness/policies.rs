//! Admission policies that hold back or alter single calls, so that a state which lasts for a
//! moment only can be looked at, and so that somebody else's webhook can be played.

use super::{Kubectl, wait_for};

/// The operator, in an expression of a policy.
pub const BY_OPERATOR: &str =
    "request.userInfo.username.endsWith(':my-operator-controller-manager')";

/// A policy in the namespace of a kubectl; gone when it is dropped.
pub struct Policy {
    kubectl: Kubectl,
    kind: &'static str,
    name: String,
}

impl Drop for Policy {
    fn drop(&mut self) {
        let Self { kind, name, .. } = self;
        let said = self.kubectl.run(&format!(
            "delete {kind}policybinding/{name} {kind}policy/{name} --wait=false"
        ));
        assert!(said.ok || std::thread::panicking(), "{said:?}");
    }
}

impl Policy {
    fn apply(kubectl: &Kubectl, kind: &'static str, name: &str, policy: &str) -> Self {
        let name = format!("{}-{name}", kubectl.namespace);
        let (kind, title) = match kind {
            "Validating" => ("validatingadmission", "ValidatingAdmissionPolicy"),
            _ => ("mutatingadmission", "MutatingAdmissionPolicy"),
        };
        let actions = match kind {
            "validatingadmission" => "validationActions: [Deny]",
            _ => "",
        };
        let all = format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: {title}
metadata: {{name: {name}}}
spec:
{policy}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {title}Binding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  {actions}
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}
",
            kubectl.namespace
        );
        kubectl.apply(&all).good();
        Self {
            kubectl: kubectl.clone(),
            kind,
            name,
        }
    }

    /// Denies an operation on a resource where the expression is true; returns when it does.
    pub async fn deny(
        kubectl: &Kubectl,
        operation: &str,
        resource: &str,
        expression: &str,
    ) -> Self {
        let short = format!(
            "{}-{}",
            operation.to_lowercase(),
            resource.replace('/', "-")
        );
        // It denies a probe too, which tells when it has come into force.
        let policy = format!(
            r#"
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {{apiGroups: ['*'], apiVersions: ['*'], resources: ['{resource}'], operations: [{operation}]}}
    - {{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}}
  validations:
  - expression: "request.resource.resource != 'configmaps' && !({expression})"
    message: held back by a test
"#
        );
        let this = Self::apply(kubectl, "Validating", &short, &policy);
        wait_for("the policy to come into force", || {
            let said = kubectl.run(&format!("create configmap {short} --dry-run=server"));
            said.err.contains("held back by a test").then_some(())
        })
        .await;
        this
    }

    /// The operator can make pods of Ats, and commit to none.
    pub async fn hold_commit(kubectl: &Kubectl) -> Self {
        // Before the first status there is no phase.
        let commit = "object.status.phase == 'RUNNING'";
        Self::deny(kubectl, "UPDATE", "ats/status", commit).await
    }

    /// The operator can commit to a pod, and not release it.
    pub async fn hold_release(kubectl: &Kubectl) -> Self {
        Self::deny(kubectl, "UPDATE", "pods", BY_OPERATOR).await
    }

    /// How often the API server has denied a call for it, the probe's included.
    pub fn refusals(&self) -> u64 {
        let page = self.kubectl.run("get --raw /metrics").good();
        let policy = format!("policy=\"{}\"", self.name);
        page.lines()
            .filter(|line| line.starts_with("apiserver_validating_admission_policy_check_total{"))
            .filter(|line| line.contains(&policy) && line.contains("enforcement_action=\"deny\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Alters every pod as it is created, with a JSON patch in CEL; returns when it does.
    pub async fn alter_pods(kubectl: &Kubectl, patch: &str) -> Self {
        let policy = format!(
            r#"
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: "Object{{metadata: Object.metadata{{labels: {{'altered': 'yes'}}}}}}"}}
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        {patch}
"#
        );
        let this = Self::apply(kubectl, "Mutating", "alter", &policy);
        wait_for("the policy to come into force", || {
            let said = kubectl.run(
                "run probe --image=probe:1 --restart=Never --dry-run=server -o jsonpath={.metadata.labels.altered}",
            );
            (said.out == "yes").then_some(())
        })
        .await;
        this
    }
}
