//! The verdict on a node, as flags that can be counted.

use chrono::{DateTime, Utc};

use crate::decide::observed::WaitsFor;
use crate::decide::placement::Obstacle;

/// Flags of a node. The nodes with one of the first flags are named or acted on; for the others
/// only the number matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFlag {
    /// It has something to do regardless of the limits.
    Acting,
    /// Its old pod serves, and may be deleted within the limits.
    Replaceable,
    /// Its old pod does not serve, and may be deleted within the limit of unproven pods.
    Broken,
    /// It may get the new pod next to the old one within the limit.
    Surgeable,
    /// The newest revision excludes it: its pod may be deleted within the limit.
    Removable,
    /// It is still to get the newest revision, or to lose its pod to it. The last of these by name are the partition.
    Behind,
    /// It keeps an older pod, or should have an available pod of the newest revision, and the roll-out does not wait for it.
    LeftOut,
    /// The newest revision belongs on it, or it keeps a pod; and it does not have an available pod of that revision and no
    /// other, whether or not the roll-out waits for it.
    Unreached,
    /// It should have an available pod and has none.
    Unavailable,
    /// Its pod is failing.
    Failing,
    /// It failed soon after it got the newest revision.
    FailedCanary,
    /// The roll-out waits for it: it has begun there and is incomplete.
    Waiting,
    /// It should have a pod.
    Desired,
    /// A percentage refers to these nodes. Does not depend on what is held, so that a limit that
    /// holds nodes does not depend on itself.
    Base,
    /// It should have a pod and has one.
    Current,
    /// It has a pod and should have none.
    Misscheduled,
    /// Its pod is ready.
    Ready,
    /// Its pod is of the newest revision.
    Updated,
    /// Its pod has been ready for `minReadySeconds`.
    Available,
    /// It is reachable and has no available pod of the newest revision, or an old one next to it.
    Incomplete,
    /// It is reachable and has an available pod of the newest revision and no other.
    Done,
    /// It should have an available pod of the newest revision and no other, and does not, reachable or not.
    Left,
    /// It has an available pod of the newest revision and no other, whether or not the roll-out may touch it.
    Reached,
    /// It only has a pod of an older revision.
    Outdated,
    /// The same, and the roll-out does not touch it.
    HeldBack,
    /// The limit of the roll-out counts it as unavailable.
    Unserved,
    /// It has a pod of the newest revision that is not available, or is about to get one.
    Unproven,
    /// The same where the limits do not wait for it, until the newest revision has had its time there.
    OnTrial,
    /// It has an old pod, and a new one that is not available yet.
    Surging,
}

impl NodeFlag {
    /// How many flags there are.
    pub(crate) const COUNT: usize = Self::Surging as usize + 1;
    /// How many of them have their nodes named.
    pub(crate) const NAMED: usize = Self::Waiting as usize + 1;
}

const _: () = assert!(NodeFlag::COUNT <= 32, "a set has 32 bits");

/// A set of flags, of which there may be 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFlags(u32);

impl NodeFlags {
    pub(crate) fn set(&mut self, flag: NodeFlag, holds: bool) {
        self.0 |= u32::from(holds) << flag as u32;
    }

    pub(crate) fn has_nth(self, nth: usize) -> bool {
        self.0 >> nth & 1 == 1
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The verdict on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) flags: NodeFlags,
    /// What is wrong with its pod.
    pub(crate) trouble: Option<Box<str>>,
    /// How it failed, if it is a failed canary.
    pub(crate) failure: Option<Box<str>>,
    /// Why the newest revision excludes it, if it has an old pod.
    pub(crate) excluded: Option<Obstacle>,
    /// What it waits for, if it is [unreached](NodeFlag::Unreached).
    pub(crate) waits_for: Option<WaitsFor>,
    /// When the verdict expires by time alone.
    pub(crate) until: Option<DateTime<Utc>>,
}
