//! Admission policies that hold back or change single calls, so that a state which lasts only for a moment can be
//! observed, and so that a foreign webhook can be simulated.

use serde_json::{Value, json};

use super::{Kubectl, wait_for};

/// The operator, in an expression of a policy.
pub const BY_OPERATOR: &str =
    "request.userInfo.username.endsWith(':my-operator-controller-manager')";

/// How a policy shows whether it is in force: by what it does to a dry run.
#[derive(Clone)]
enum Probe {
    /// It rejects a ConfigMap.
    Rejects,
    /// It gives a pod the label `altered`.
    Labels,
}

/// A policy in the namespace of a kubectl. End it with [`Policy::lift`].
pub struct Policy {
    kubectl: Kubectl,
    kind: &'static str,
    name: String,
    probe: Probe,
    lifted: bool,
}

impl Drop for Policy {
    fn drop(&mut self) {
        // Only a test that fails gets here before its policy is lifted.
        if !self.lifted {
            let Self { kind, name, .. } = self;
            self.kubectl.run_blocking(&format!(
                "delete {kind}binding/{name} {kind}/{name} --wait=false"
            ));
        }
    }
}

/// Policies are cluster-wide, and each holds in one namespace.
fn name_in(kubectl: &Kubectl, short: &str) -> String {
    format!("{}-{short}", kubectl.namespace)
}

impl Policy {
    async fn start(
        kubectl: &Kubectl,
        (kind, short): (&'static str, &str),
        mut spec: Value,
        mut binding: Value,
        probe: Probe,
    ) -> Self {
        let name = name_in(kubectl, short);
        let api = "admissionregistration.k8s.io/v1";
        spec["failurePolicy"] = "Fail".into();
        let policy =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
        kubectl.create(kind, policy).await;
        let this = Self {
            kubectl: kubectl.clone(),
            kind,
            name: name.clone(),
            probe,
            lifted: false,
        };
        binding["policyName"] = name.clone().into();
        binding["matchResources"] = json!({"namespaceSelector":
            {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}});
        let of_binding = format!("{kind}Binding");
        let object = json!({"apiVersion": api, "kind": of_binding, "metadata": {"name": name}, "spec": binding});
        kubectl.create(&of_binding, object).await;
        this.until(true).await;
        this
    }

    /// Waits until the API server applies the policy, or no longer does: it learns of either a moment later.
    async fn until(&self, in_force: bool) {
        let what = if in_force { "to be" } else { "no longer to be" };
        wait_for(
            &format!("policy {} {what} in force", self.name),
            async || (self.is_in_force().await == in_force).then_some(()),
        )
        .await;
    }

    async fn is_in_force(&self) -> bool {
        match self.probe {
            Probe::Rejects => {
                let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}});
                let answer = self.kubectl.dry_run("configmaps", probe).await;
                answer.is_err_and(|error| error.contains(&format!("'{}'", self.name)))
            }
            Probe::Labels => {
                let probe = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
                    "spec": {"containers": [{"name": "probe", "image": "probe:1"}]}});
                let answer = self.kubectl.dry_run("pods", probe).await;
                answer.is_ok_and(|pod| pod["metadata"]["labels"]["altered"] == "yes")
            }
        }
    }

    /// Removes the policy; returns when the API server no longer applies it.
    pub async fn lift(mut self) {
        let Self { kind, name, .. } = &self;
        self.kubectl.delete(&format!("{kind}Binding/{name}")).await;
        self.kubectl.delete(&format!("{kind}/{name}")).await;
        self.lifted = true;
        self.until(false).await;
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
        let name = name_in(kubectl, &short);
        let spec = json!({
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": [operation]},
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]},
            ]},
            "validations": [{
                // It denies the probe of its own name besides, and nothing else of that kind.
                "expression": format!(
                    "request.resource.resource == 'configmaps' ? request.name != '{name}' : !({expression})"
                ),
                "message": "held back by a test",
            }],
        });
        let binding = json!({"validationActions": ["Deny"]});
        let names = ("ValidatingAdmissionPolicy", short.as_str());
        Self::start(kubectl, names, spec, binding, Probe::Rejects).await
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

    /// How often the API server has denied a call because of it, the probe's calls included.
    pub async fn refusals(&self) -> u64 {
        let page = self.kubectl.raw("/metrics").await;
        let policy = format!("policy=\"{}\"", self.name);
        page.lines()
            .filter(|line| line.starts_with("apiserver_validating_admission_policy_check_total{"))
            .filter(|line| line.contains(&policy) && line.contains("enforcement_action=\"deny\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Alters every pod as it is created, with a JSON patch in CEL; returns when it does.
    pub async fn alter_pods(kubectl: &Kubectl, patch: &str) -> Self {
        let label = "Object{metadata: Object.metadata{labels: {'altered': 'yes'}}}";
        let spec = json!({
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]},
            ]},
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
            ],
        });
        let names = ("MutatingAdmissionPolicy", "alter");
        Self::start(kubectl, names, spec, json!({}), Probe::Labels).await
    }
}
