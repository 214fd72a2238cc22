//! The names of the objects that are installed.

/// The namespace of the operator.
pub const NAMESPACE: &str = "my-operator-system";
/// The ServiceAccount (and the Deployment) of the operator.
pub const SERVICE_ACCOUNT: &str = "my-operator-controller-manager";
/// The Service of the webhooks.
pub const WEBHOOK_SERVICE: &str = "my-operator-webhook-service";
/// The Service of the metrics.
pub const METRICS_SERVICE: &str = "my-operator-controller-manager-metrics-service";
/// The MutatingWebhookConfiguration.
pub const MUTATING: &str = "my-operator-mutating-webhook-configuration";
/// The ValidatingWebhookConfiguration.
pub const VALIDATING: &str = "my-operator-validating-webhook-configuration";
/// The ServiceAccount of `my-operator check` in a pod.
pub const CHECK_ACCOUNT: &str = "my-operator-check";
