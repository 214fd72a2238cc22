//! The lengths of all random and repeated tests, short and long.

use std::time::Duration;

use crate::Budget;

/// Whether the long versions run, as `make soak` asks for with `SOAK=1`.
pub fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

/// Defines one function per test: its short length, and its long one.
macro_rules! lengths {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $short:expr, $long:expr;)+) => {
        $(
            $(#[doc = $doc])+
            pub fn $name() -> $type {
                if is_soak() { $long } else { $short }
            }
        )+
    };
}

/// A budget of that many seconds and at least that many rounds.
const fn budget(seconds: u64, at_least: usize) -> Budget {
    Budget::new(Duration::from_secs(seconds), at_least)
}

// Pure logic (`make unit`): numbers of seeds.
lengths! {
    /// `kinds::at::step`: histories of an At in the model of the API server.
    at_model: u64 = 400, 20_000;
    /// `kinds::mydaemonset::rollout`: histories of a roll-out in the model of a cluster.
    rollout_model: u64 = 1_500, 20_000;
    /// `leader::simulation`: schedules of an election.
    elections: u64 = 1_000, 20_000;
    /// `leader::simulation`: schedules in which leaders die or end, and the next must lead in time.
    changes_of_the_leader: u64 = 400, 50_000;
    /// `certs::rotation`: histories of each kind of mishap.
    certificate_rotations: u64 = 8, 500;
    /// `admission::image`: image references of each kind.
    image_references: u32 = 1_000, 100_000;
    /// `kinds::at`: texts of each kind that are parsed, or passed through a shell.
    texts: u32 = 250, 100_000;
    /// `admit`: files of each kind that are judged.
    documents: u32 = 100, 10_000;
    /// `tests/offline/admission`: random objects of each kind.
    random_objects: u64 = 1_500, 50_000;
}

// On a control plane (`make test`): seconds and rounds.
lengths! {
    /// `disruption::killed`: an operator of Ats is killed at random.
    kills: Budget = budget(20, 8), budget(240, 100);
}
