//! The lengths of all random and repeated tests, short and long.

use std::time::Duration;

use crate::{Budget, is_soak};

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

/// As many rounds as there are.
const ALL: Budget = budget(0, usize::MAX);

/// A budget of that many seconds and at least that many rounds.
const fn budget(seconds: u64, at_least: usize) -> Budget {
    Budget::new(Duration::from_secs(seconds), at_least)
}

// Pure logic (`make unit`): numbers of seeds.
lengths! {
    /// `my_operator_at::decide`: histories of an At in the model of the API server.
    at_model: u64 = 400, 1_000_000;
    /// `my_operator_mydaemonset::decide`: histories of a roll-out in the model of a cluster.
    rollout_model: u64 = 500, 100_000;
    /// `my_operator_kind::image`: image references of each kind.
    image_references: u32 = 1_000, 20_000;
    /// `my_operator_at`: texts of each kind that are parsed, or passed through a shell.
    texts: u32 = 250, 3_000;
    /// `kinds/`: objects with something large at a random place, of which a part is kept.
    large_random_objects: u64 = 60, 20_000;
    /// `admit`: files of each kind that are judged.
    documents: u32 = 100, 2_000;
    /// `tests/offline/sweep`: runs of each kind with a fault at a call. MyDaemonSet has some 90,000 of them.
    swept_faults: Budget = budget(0, 100), ALL;
    /// The same of At, which has 19,000: that a command runs once is the promise that matters most.
    swept_faults_of_at: Budget = budget(0, 1_500), ALL;
    /// `tests/offline/sweep` and the model of roll-outs: mutants of each kind.
    tried_mutants: usize = 4, usize::MAX;
    /// `tests/offline/sweep`: runs of each kind with several faults at random.
    random_faults: u64 = 200, 10_000;
    /// The same of the kinds that own a child, and of Count.
    random_faults_of_children: u64 = 60, 3_000;
    /// `tests/offline/admission`: random objects of each kind.
    random_objects: u64 = 1_500, 10_000;
    /// `tests/offline/admission`: damaged reviews, each sent to the webhooks of every kind.
    random_reviews: u64 = 800, 8_000;
    /// `tests/offline/hostile_texts`: changed texts of each format.
    changed_texts: u64 = 300, 20_000;
    /// `tests/offline/admission`: reviews with something large at a random place, whose memory is measured.
    large_random_reviews: u64 = 150, 40_000;
    /// `tests/offline/admission`: schedules, each read by two parsers.
    random_schedules: u64 = 10_000, 100_000;
    /// `tests/offline/admission`: hostile texts that are put in every place of an object of each kind.
    hostile_texts: usize = 4, usize::MAX;
    /// `tests/offline/admission`: kinds whose webhooks are sent bodies of megabytes.
    expensive_kinds: usize = 1, usize::MAX;
}

// Compared with the Go code of Kubernetes (`make test`): numbers of random cases.
lengths! {
    /// `oracle::cron`: cron schedules.
    cron_schedules: usize = 2_000, 20_000;
    /// `oracle::placement`: pairs of a node and a pod.
    placements: usize = 5_000, 50_000;
}

// On a control plane (`make test`): seconds and rounds.
lengths! {
    /// `disruption::killed`: an operator of Ats is killed at random.
    kills: Budget = budget(6, 4), budget(300, 140);
    /// `disruption::killed`: Ats that become due meanwhile, four at a time.
    kills_ats: usize = 16, 200;
    /// `disruption::killed`: further Ats whose pods are deleted at random.
    kills_spoiled_ats: usize = 12, 40;
    /// `sweep`: runs of an At, each with another fault at another call.
    faults_on_a_real_api_server: usize = 16, usize::MAX;
    /// `disruption::kinds`: kills while the objects are changed. Each kind adds one at its deletion.
    kinds_kills: usize = 2, 15;
    /// `disruption::rollouts::killed`: one operator at a time is killed during roll-outs.
    rollouts_killed: Budget = budget(4, 3), budget(150, 100);
    /// `disruption::rollouts::killed`: the same, with two operators at a time in some of the rounds.
    rollouts_two_operators: Budget = budget(4, 2), budget(60, 24);
    /// `kubectl::terminal`: nodes of the largest view, more than a page of a list.
    nodes_of_a_view: usize = 1_200, 2_000;
    /// `disruption::rollouts::migrated`: migrations there and back, four at a time.
    migrations: u64 = 1, 20;
    /// `disruption::rollouts::disturbed`: objects that are rolled out side by side.
    disturbed_fleets: usize = 3, 20;
    /// `disruption::rollouts::disturbed`: roll-outs of each of them, one after the other.
    disturbed_roll_outs: Budget = budget(6, 1), budget(30, 5);
    /// `disruption::rollouts::brown_out`: roll-outs side by side, each with a limit and delays of its own.
    brown_outs: usize = 2, 10;
    /// `disruption::rollouts::joins`: nodes that join while a roll-out is under way.
    joining_nodes: usize = 50, 500;
    /// `disruption::rollouts::undone`: nodes of a set whose new revision fails.
    undone_nodes: usize = 12, 200;
    /// `disruption::rollouts::ordered`: whether the roll-out waits for windows, of a minute each.
    rollouts_have_windows: bool = false, true;
    /// `disruption::leader::stopped`: leaders that are stopped for longer than their lease.
    leader_stopped: Budget = budget(0, 2), budget(120, 20);
    /// `disruption::leader::stalled`: how often the API server stalls, for 15 s with the default periods.
    stalls: usize = 2, 6;
    /// `disruption::leader`: the periods of an election with a slow API server, in percent of the default ones.
    slow_leader_percent: u32 = 60, 100;
    /// `disruption::leader`: how late the answers of that API server are.
    slow_leader_lateness: Duration = Duration::from_secs(2), Duration::from_secs(5);
    /// `disruption`: between two calls of a webhook by one peer. Other tests run beside it, on the same cores.
    load_pause: Duration = Duration::from_millis(30), Duration::from_millis(5);
    /// `disruption::rotation`: how long certificates are replaced under load. While replicas are terminated, half as long.
    rotation: Duration = Duration::from_secs(14), Duration::from_secs(150);
    /// `disruption::rotation`: how often the authority changes at least meanwhile.
    rotation_changes: usize = 1, 4;
    /// `disruption::certificates`: how often files with a certificate are replaced under load.
    replaced_files: usize = 1, 3;
    /// `disruption::damage`: how long the API server does not answer: longer than a call about certificates may take.
    silence: Duration = Duration::from_secs(22), Duration::from_mins(1);
    /// `disruption::damage`: how late the answers of a slow API server are.
    lateness: Duration = Duration::from_secs(1), Duration::from_secs(5);
    /// `disruption::flooded`: how long reviews of 8 MB are sent to the webhooks.
    flood: Duration = Duration::from_secs(5), Duration::from_mins(1);
    /// `disruption::flooded`: dry runs at once of objects with very many annotations.
    large_dry_runs: usize = 3, 200;
    /// `disruption::flooded`: annotations of each. The larger number makes a request of almost 3 MiB.
    large_annotations: usize = 20_000, 165_000;
    /// `disruption::memory`: `MyDaemonSets` of the largest size.
    worst_daemon_sets: usize = 6, 50;
    /// `disruption::memory`: how often each of them is changed, which leaves a revision behind.
    worst_changes: usize = 2, 11;
    /// `disruption::memory`: Ats of the largest size that become due at once.
    worst_ats: usize = 20, 200;
    /// `disruption::memory`: how soon they become due.
    worst_ats_due: Duration = Duration::from_secs(10), Duration::from_mins(1);
    /// `disruption::memory`: MiB that the operator may have with these. It had 188 before specs were limited.
    worst_memory: usize = 130, 200;
    /// `disruption::cold_start`: how long the Lease lasts that a dead leader has left behind, in seconds.
    stale_lease: u64 = 8, 15;
}

// Hostile peers of the webhook listener (`make test`). Latencies are judged only in a soak: they need a machine that does
// nothing else.
lengths! {
    /// `hostile`: how long honest callers call in each phase.
    hostile_phase: Duration = Duration::from_millis(1_500), Duration::from_secs(6);
    /// `hostile`: the time over which hostile peers arrive.
    hostile_arrival: Duration = Duration::from_secs(2), Duration::from_secs(5);
    /// `hostile::memory`: operations, and half of the shapes, of the largest reviews.
    large_reviews: usize = 1, 5;
    /// `hostile`: how long all kinds of hostile peers attack from one address.
    hostile_siege: Duration = Duration::from_secs(3), Duration::from_mins(1);
    /// `hostile`: the connections that they open and reset, per second.
    hostile_churn: usize = 1_000, 2_000;
    /// `hostile`: how long one address floods the listener.
    flood_time: Duration = Duration::from_secs(3), Duration::from_secs(20);
    /// `hostile`: the handshakes that it begins, per second.
    flood_of_hellos: u32 = 4_000, 12_000;
    /// `hostile`: the connections that it opens and closes, per second.
    flood_of_connections: u32 = 4_000, 16_000;
    /// `hostile`: measurements, of which one must be within the limits.
    hostile_rounds: usize = 2, 3;
}

// On a real node (`make e2e`).
lengths! {
    /// `roll`: rolling restarts of the operator under load.
    restarts: usize = 2, 20;
}
