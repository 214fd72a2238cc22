//! The names of the objects that are installed.

use wall_clock_controller::reconcile::Shard;

/// The namespace of the operator, unless it runs in another.
pub const NAMESPACE: &str = "my-operator-system";
/// What the names begin with, unless an installation has other names.
pub const PREFIX: &str = "my-operator";
/// The length of the longest prefix: the name of a Service, of which that of the metrics has the longest, has 63
/// characters at most.
pub const MAX_PREFIX_LEN: usize = 28;

/// Between the number of a shard and that of all, as in `my-operator-shard-0-of-2`.
const OF: &str = "-of-";

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

    /// The Lease of the leader election of a shard.
    pub fn lease(&self, shard: Shard) -> String {
        if shard == Shard::ALL {
            return self.prefix.clone();
        }
        let (index, count) = (shard.index(), shard.count());
        format!("{}{index}{OF}{count}", self.lease_of_shards())
    }

    /// What the names of the Leases of several shards begin with.
    pub(super) fn lease_of_shards(&self) -> String {
        self.with("shard-")
    }

    /// The number of shards to which the Lease of that name belongs; None if it is none of ours.
    pub fn shards_of(&self, lease: &str) -> Option<u32> {
        if lease == self.prefix {
            return Some(1);
        }
        let shard = lease.strip_prefix(&self.lease_of_shards())?;
        let shard: Shard = shard.replacen(OF, "/", 1).parse().ok()?;
        Some(shard.count())
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lease_says_how_many_shards_there_are() {
        let names = Names::new("team", "own");
        for shard in ["0/1", "0/2", "1/2", "999/1000"] {
            let shard: Shard = shard.parse().unwrap();
            assert_eq!(names.shards_of(&names.lease(shard)), Some(shard.count()));
        }
        assert_eq!(names.lease("1/2".parse().unwrap()), "team-shard-1-of-2");
        for other in [
            "team-b",
            "team-b-shard-0-of-2",
            "team-shard-",
            "team-shard-2-of-2",
            "tea",
            "",
        ] {
            assert_eq!(names.shards_of(other), None, "{other}");
        }
    }

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
                names.lease(Shard::ALL),
                names.lease("0/2".parse().unwrap()),
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
