//! The name under which the operator writes.

use kube::core::params::PatchParams;

/// The operator's name: the field manager of its writes, the reporter of its Events, and the value of the label
/// `app.kubernetes.io/managed-by` of its objects.
pub const MANAGER: &str = "my-operator";

/// Parameters of a patch with the operator's field manager.
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
