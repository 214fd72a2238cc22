//! The types and reasons of the conditions and Events of an At. They are an interface: scripts and
//! alerts match on them.

/// Condition: the pod was seen without our gate.
pub(crate) const STARTED: &str = "Started";
/// Condition: it ended with exit code 0.
pub(crate) const COMPLETE: &str = "Complete";
/// Condition: it ended in any other way.
pub(crate) const FAILED: &str = "Failed";
/// Condition: it ended.
pub(crate) const FINISHED: &str = "Finished";
/// Condition: the operator has decided that the At fails or is missed, and deletes its pod first.
/// Named as the condition of a Job that is about to fail.
pub(crate) const FAILURE_TARGET: &str = "FailureTarget";
/// Condition of an At that is not due yet, only while False: the API server refuses its pod in a dry run.
pub const POD_ACCEPTED: &str = "PodAccepted";
/// Condition of kstatus: work is in progress.
pub(crate) const RECONCILING: &str = "Reconciling";
/// Condition of kstatus: nothing happens without user intervention.
pub(crate) const STALLED: &str = "Stalled";

/// Reason: a foreign pod has the name.
pub(crate) const NAME_CONFLICT: &str = "NameConflict";
/// Reason: the pod is rejected.
pub(crate) const POD_REFUSED: &str = "PodRefused";
/// Reason: the pod was altered on its way so that it could run twice.
pub(crate) const POD_ALTERED: &str = "PodAltered";
/// Reason: a pod of ours that was not to run blocks the name until it is gone.
pub(crate) const POD_TERMINATING: &str = "PodTerminating";
/// Event: the released pod does not run yet.
pub(crate) const POD_WAITING: &str = "PodWaiting";
/// Event: the released pod may not run any more.
pub(crate) const POD_DISRUPTED: &str = "PodDisrupted";
/// Reason and Event: the command has ended, and other containers of the pod have not.
pub(crate) const OTHER_CONTAINERS_RUNNING: &str = "OtherContainersRunning";
/// Reason: no scheduler has looked at the released pod.
pub(crate) const NOT_SCHEDULED: &str = "NotScheduled";
/// Reason: the gate of a pod was removed by another client.
pub(crate) const GATE_VIOLATED: &str = "GateViolated";
/// Reason: the pod is recorded and about to be released.
pub(crate) const COMMITTED: &str = "Committed";
/// Reason: the pod was seen without our gate.
pub(crate) const RELEASED: &str = "Released";
/// Reason: the released pod has not ended.
pub(crate) const RUNNING: &str = "Running";
/// Reason: the instant is beyond the year 9999.
pub(crate) const NEVER_DUE: &str = "NeverDue";
pub(crate) const SUSPENDED: &str = "Suspended";
pub(crate) const VALID: &str = "Valid";
pub(crate) const INVALID: &str = "Invalid";
/// Reason: the pod is gone, and its end was not seen.
pub(crate) const POD_LOST: &str = "PodLost";
/// Reason: the pod was deleted before its release.
pub(crate) const NEVER_STARTED: &str = "NeverStarted";
/// Reason: startingDeadlineSeconds had passed before the start.
pub(crate) const TOO_LATE: &str = "StartingDeadlineExceeded";
/// Reason: activeDeadlineSeconds had passed before a node took the pod.
pub(crate) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
