//! The names of the objects that are installed.

/// The namespace of the operator, unless it runs in another.
pub const NAMESPACE: &str = "my-operator-system";
/// What the names begin with, unless an installation has other names.
pub const PREFIX: &str = "my-operator";
/// The length of the longest prefix: the name of a Service, of which that of the metrics has the longest, has 63
/// characters at most.
pub const MAX_PREFIX_LEN: usize = 28;

/// The names of one installation: they follow from a prefix, which all of them begin with, and the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
    namespace: String,
}

impl Default for Names {
    /// Those of `config/`.
    fn default() -> Self {
        Self::new(PREFIX, NAMESPACE)
    }
}

impl Names {
    /// The names of the installation with that prefix in that namespace.
    pub fn new(prefix: &str, namespace: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// The namespace of the operator.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Lease of the leader election.
    pub fn lease(&self) -> &str {
        &self.prefix
    }

    /// The ServiceAccount (and the Deployment) of the operator.
    pub fn service_account(&self) -> String {
        self.with("controller-manager")
    }

    /// The Service of the webhooks.
    pub fn webhook_service(&self) -> String {
        self.with("webhook-service")
    }

    /// The Service of the metrics.
    pub fn metrics_service(&self) -> String {
        self.with("controller-manager-metrics-service")
    }

    /// The MutatingWebhookConfiguration.
    pub fn mutating(&self) -> String {
        self.with("mutating-webhook-configuration")
    }

    /// The ValidatingWebhookConfiguration.
    pub fn validating(&self) -> String {
        self.with("validating-webhook-configuration")
    }

    /// The Secret of the operator's own certificate authority.
    pub fn ca_secret(&self) -> String {
        self.with("webhook-ca")
    }

    /// The ServiceAccount of `my-operator check` in a pod.
    pub fn check_account(&self) -> String {
        self.with("check")
    }

    /// `prefix-what`.
    pub(super) fn with(&self, what: &str) -> String {
        format!("{}-{what}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_fits_a_prefix_of_the_maximum_length() {
        let names = Names::new(&"p".repeat(MAX_PREFIX_LEN), NAMESPACE);
        assert_eq!(names.metrics_service().len(), 63);
        assert!(names.webhook_service().len() <= 63);
    }

    #[test]
    fn installations_with_other_prefixes_share_no_name() {
        let all = |prefix: &str| {
            let names = Names::new(prefix, NAMESPACE);
            [
                names.lease().to_owned(),
                names.service_account(),
                names.webhook_service(),
                names.metrics_service(),
                names.mutating(),
                names.validating(),
                names.ca_secret(),
                names.check_account(),
            ]
        };
        let (one, two) = (all(PREFIX), all("other"));
        assert!(
            one.iter().all(|name| !two.contains(name)),
            "{one:?} {two:?}"
        );
    }
}
