//! Which waiting key is worked on next: urgent keys first, and the namespaces take turns.
//!
//! A reconcile occupies a worker while its calls are in flight, and a webhook that does not answer can make a call last
//! for half a minute. A few hundred objects with such a webhook must not make an object of another namespace miss its
//! deadline, in however many namespaces they are:
//! - **Slow start.** A namespace begins with a sixteenth of the workers, and gets one more for each reconcile that ends
//!   within [`SLOW`]. So a busy one has nearly all of them after a few round trips. One sixteenth is always left for
//!   the first keys of other namespaces.
//! - **A slow reconcile gives its worker back.** After [`SLOW`] it no longer counts, and another key is taken. If no
//!   other of its namespace has ended in time meanwhile, the namespace is slow, until one does: its keys do not compete
//!   with those of other namespaces for workers, but have as many of their own, which they share with those of other slow
//!   namespaces. Of one urgency, they are taken after the others.
//! - **A slow namespace always may try one key**, also while calls that hang have all workers of the slow ones. Otherwise
//!   an API server that stalls for a second would make a busy namespace wait until they end.
//!
//! A namespace without work is forgotten: its next key begins as the first did.
//!
//! Of several waiting keys, one in [`UNURGENT_TURN`] is not an urgent one, so that a lasting flood of urgent keys delays
//! the others and does not stop them.
//!
//! A namespace is closed until the caches that its objects need are filled. Until then its keys wait, and hold up no
//! other namespace.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Key;

/// A reconcile that takes longer than this waits for a call that hangs, or has much to do.
pub(super) const SLOW: Duration = Duration::from_secs(1);
/// So many times the workers may be slow. Reached only if the calls of hundreds of namespaces begin to hang within
/// seconds; then slow reconciles keep their workers.
const MAX_SLOW: usize = 8;
/// Every so many keys, one that is not urgent goes first.
const UNURGENT_TURN: u32 = 8;

/// How many keys are worked on at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    workers: usize,
    /// A namespace begins with this many.
    first: usize,
    /// It never has more.
    most: usize,
}

impl Limits {
    fn new(workers: usize) -> Self {
        let first = (workers / 16).max(1);
        Self {
            workers,
            first,
            // Of two or more, one always stays free for the first key of another namespace.
            most: workers.saturating_sub(first).max(1),
        }
    }

    /// How many slow reconciles there may be.
    fn most_slow(self) -> usize {
        self.workers.saturating_mul(MAX_SLOW)
    }
}

/// The waiting keys, by namespace; see the module.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    by_namespace: HashMap<Arc<str>, Lane>,
    /// The open namespaces with waiting keys, least recently served first; by [`Urgency`] and [`Pace`]. The slow ones, of
    /// which there may be many, are not looked at for each key of another.
    order: [[VecDeque<Arc<str>>; 2]; 2],
    /// The namespaces that are open; `None` when all are.
    open: Option<HashSet<Arc<str>>>,
    waiting: usize,
    /// By [`Pace`].
    running: [usize; 2],
    /// How many keys were taken, to give one that is not urgent its turn.
    taken: u32,
}

/// Whether a key goes before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    Urgent,
    Normal,
}

/// What a key that is worked on counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Fast,
    Slow,
}

/// A key's turn, until [`Lanes::done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// What the key counts as.
    pub(super) pace: Pace,
    /// How many keys of its namespace had ended in time before.
    ended_before: u32,
}

/// The keys of one namespace.
#[derive(Debug)]
struct Lane {
    /// In order of arrival, by [`Urgency`].
    waiting: [VecDeque<Key>; 2],
    /// By [`Pace`].
    running: [usize; 2],
    /// How many of its keys may run at a time.
    limit: usize,
    is_slow: bool,
    /// How many of its keys have ended in time. It wraps.
    ended: u32,
}

impl Lane {
    fn new(limits: Limits) -> Self {
        Self {
            waiting: Default::default(),
            running: [0; 2],
            limit: limits.first,
            is_slow: false,
            ended: 0,
        }
    }

    fn pace(&self) -> Pace {
        if self.is_slow { Pace::Slow } else { Pace::Fast }
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }
}

impl Default for Lanes {
    /// For any number of workers.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Lanes {
    /// No key waits yet, and every namespace is open.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            limits: Limits::new(workers),
            by_namespace: HashMap::new(),
            order: Default::default(),
            open: None,
            waiting: 0,
            running: [0; 2],
            taken: 0,
        }
    }

    /// How many keys wait, those of closed namespaces included.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Closes every namespace.
    pub(super) fn close(&mut self) {
        self.open = Some(HashSet::new());
        self.order = Default::default();
    }

    /// Opens a namespace, or all of them.
    pub(super) fn open(&mut self, namespace: Option<&str>) {
        let Some(open) = &mut self.open else { return };
        for (name, lane) in &self.by_namespace {
            if namespace.is_none_or(|namespace| **name == *namespace) && !open.contains(name) {
                for (order, waiting) in self.order.iter_mut().zip(&lane.waiting) {
                    if !waiting.is_empty() {
                        order[lane.pace() as usize].push_back(name.clone());
                    }
                }
            }
        }
        match namespace {
            Some(namespace) => {
                open.insert(namespace.into());
            }
            None => self.open = None,
        }
    }

    /// Adds a waiting key. The caller must not add one twice.
    pub(super) fn push(&mut self, key: Key, urgency: Urgency) {
        let namespace = key.namespace.clone();
        let lane = self.by_namespace.entry(namespace.clone());
        let lane = lane.or_insert_with(|| Lane::new(self.limits));
        let pace = lane.pace();
        let waiting = &mut lane.waiting[urgency as usize];
        let is_open = self.open.as_ref();
        if waiting.is_empty() && is_open.is_none_or(|open| open.contains(&namespace)) {
            self.order[urgency as usize][pace as usize].push_back(namespace);
        }
        waiting.push_back(key);
        self.waiting += 1;
    }

    /// Whether [`Lanes::next`] would give a key.
    pub(super) fn is_ready(&self) -> bool {
        self.turn().is_some()
    }

    /// The urgency and the pace of the next key, and the index of the namespace whose turn it is. Namespaces that have
    /// reached their limit are passed over; there are no more of them than workers.
    fn turn(&self) -> Option<(Urgency, Pace, usize)> {
        let mut urgencies = [Urgency::Urgent, Urgency::Normal];
        if (self.taken + 1).is_multiple_of(UNURGENT_TURN) {
            urgencies.reverse();
        }
        let mut turns = urgencies
            .into_iter()
            .flat_map(|urgency| [(urgency, Pace::Fast), (urgency, Pace::Slow)]);
        turns.find_map(|(urgency, pace)| {
            let running = self.running[pace as usize];
            let is_full = running >= self.limits.workers;
            if is_full && (pace == Pace::Fast || running >= self.limits.most_slow()) {
                return None;
            }
            let mut order = self.order[urgency as usize][pace as usize].iter();
            let index = order.position(|name| self.may_run(name, is_full))?;
            Some((urgency, pace, index))
        })
    }

    /// Whether that namespace is below its limit. If those that are slow have all the workers that they share, it is only
    /// while nothing of it runs.
    fn may_run(&self, namespace: &str, is_full: bool) -> bool {
        self.by_namespace.get(namespace).is_some_and(|lane| {
            if is_full {
                return lane.running == [0; 2];
            }
            let running = lane.running[lane.pace() as usize];
            let limit = if lane.is_slow {
                self.limits.most
            } else {
                lane.limit
            };
            running < limit
        })
    }

    /// Takes the next key.
    pub(super) fn next(&mut self) -> Option<(Key, Turn)> {
        let (urgency, pace, index) = self.turn()?;
        let order = &mut self.order[urgency as usize][pace as usize];
        let name = order.remove(index)?;
        let lane = self.by_namespace.get_mut(&name)?;
        let waiting = &mut lane.waiting[urgency as usize];
        let key = waiting.pop_front()?;
        if !waiting.is_empty() {
            order.push_back(name);
        }
        lane.running[pace as usize] += 1;
        self.running[pace as usize] += 1;
        self.waiting -= 1;
        self.taken = self.taken.wrapping_add(1);
        let ended_before = lane.ended;
        Some((key, Turn { pace, ended_before }))
    }

    /// A key of that namespace takes longer than [`SLOW`]. Returns what it counts as from now on. The namespace is slow if
    /// no other key of it has ended in time since this one was taken.
    pub(super) fn mark_slow(&mut self, namespace: &str, turn: Turn) -> Pace {
        let before = turn.pace;
        let may_give_back = self.running[Pace::Slow as usize] < self.limits.most_slow();
        let lane = self.by_namespace.get(namespace);
        if lane.is_some_and(|lane| lane.ended == turn.ended_before) {
            self.set_slow(namespace, true);
        }
        let Some(lane) = self.by_namespace.get_mut(namespace) else {
            return before;
        };
        lane.limit = self.limits.first;
        if before == Pace::Slow || !may_give_back {
            return before;
        }
        for running in [&mut lane.running, &mut self.running] {
            running[Pace::Fast as usize] -= 1;
            running[Pace::Slow as usize] += 1;
        }
        Pace::Slow
    }

    /// Moves a namespace to those of the other pace, behind them.
    fn set_slow(&mut self, namespace: &str, is_slow: bool) {
        let Some(lane) = self.by_namespace.get_mut(namespace) else {
            return;
        };
        let from = lane.pace() as usize;
        lane.is_slow = is_slow;
        let to = lane.pace() as usize;
        if from == to {
            return;
        }
        for order in &mut self.order {
            let index = order[from].iter().position(|name| **name == *namespace);
            let name = index.and_then(|index| order[from].remove(index));
            order[to].extend(name);
        }
    }

    /// A key of that namespace is done. It counted as `pace`, and `was_fast` if it took no longer than [`SLOW`].
    pub(super) fn done(&mut self, namespace: &str, pace: Pace, was_fast: bool) {
        if was_fast {
            self.set_slow(namespace, false);
        }
        let Some(lane) = self.by_namespace.get_mut(namespace) else {
            return;
        };
        lane.running[pace as usize] -= 1;
        self.running[pace as usize] -= 1;
        if was_fast {
            lane.limit = (lane.limit + 1).min(self.limits.most);
            lane.ended = lane.ended.wrapping_add(1);
        }
        if lane.running == [0; 2] && lane.is_empty() {
            // Otherwise the map would keep every namespace that ever had an object.
            self.by_namespace.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use simulated_apiserver::seeds::{length, parallel_cases};

    use super::Urgency::{Normal, Urgent};
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(namespace, name)
    }

    fn next(lanes: &mut Lanes) -> Option<Key> {
        lanes.next().map(|(key, _)| key)
    }

    fn all(lanes: &mut Lanes) -> Vec<String> {
        std::iter::from_fn(|| Some(next(lanes)?.to_string())).collect()
    }

    #[test]
    fn namespaces_take_turns_and_each_keeps_its_order() {
        let mut lanes = Lanes::new(100);
        for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "5")] {
            lanes.push(key(namespace, name), Normal);
        }
        assert_eq!(all(&mut lanes), ["a/1", "b/4", "c/5", "a/2", "a/3"]);
    }

    #[test]
    fn a_namespace_gets_a_worker_more_for_each_fast_key_and_a_sixteenth_is_left() {
        let mut lanes = Lanes::new(96);
        for number in 0..1_000 {
            lanes.push(key("busy", &number.to_string()), Normal);
        }
        let mut rounds = Vec::new();
        for _ in 0..6 {
            let taken = all(&mut lanes).len();
            rounds.push(taken);
            (0..taken).for_each(|_| lanes.done("busy", Pace::Fast, true));
        }
        assert_eq!(rounds, [6, 12, 24, 48, 90, 90]);
    }

    #[test]
    fn however_many_namespaces_hang_another_gets_a_worker() {
        let mut lanes = Lanes::new(96);
        for namespace in 0..500 {
            for number in 0..3 {
                lanes.push(
                    key(&format!("hanging-{namespace}"), &number.to_string()),
                    Normal,
                );
            }
        }
        for second in 0..60 {
            let taken: Vec<_> = std::iter::from_fn(|| lanes.next()).collect();
            for (key, turn) in &taken {
                let after = lanes.mark_slow(&key.namespace, *turn);
                assert_eq!(after, Pace::Slow, "second {second}");
            }
            // At first each of them has its turn: 96 a second.
            if second > 500 / 96 {
                lanes.push(key("good", "1"), Normal);
                assert_eq!(next(&mut lanes), Some(key("good", "1")), "second {second}");
                lanes.done("good", Pace::Fast, true);
            }
            // The calls that hang end after half a minute.
            if second >= 30 {
                for (key, _) in taken.iter().take(16) {
                    lanes.done(&key.namespace, Pace::Slow, false);
                }
            }
        }
    }

    #[test]
    fn urgent_keys_go_first_and_the_others_still_have_turns() {
        let mut lanes = Lanes::new(1_000);
        for number in 0..20 {
            lanes.push(key("a", &format!("normal-{number}")), Normal);
        }
        for number in 0..20 {
            lanes.push(key("b", &format!("urgent-{number}")), Urgent);
        }
        let order = all(&mut lanes);
        let normal = |key: &String| key.starts_with("a/");
        let places: Vec<_> = order
            .iter()
            .take(22)
            .enumerate()
            .filter(|(_, key)| normal(key))
            .map(|(place, _)| place)
            .collect();
        assert_eq!(places, [7, 15], "{order:?}");
        assert_eq!(order.len(), 40);
    }

    #[test]
    fn few_workers_leave_one_free_and_give_each_namespace_one() {
        for workers in 1..16 {
            let mut lanes = Lanes::new(workers);
            (0..200).for_each(|number| lanes.push(key("a", &number.to_string()), Normal));
            let mut most = 0;
            for _ in 0..8 {
                let taken = all(&mut lanes).len();
                most = most.max(taken);
                (0..taken).for_each(|_| lanes.done("a", Pace::Fast, true));
            }
            assert_eq!(most, (workers - 1).max(1));
        }
    }

    #[test]
    fn a_closed_namespace_waits_and_holds_up_no_other() {
        let mut lanes = Lanes::new(96);
        lanes.push(key("a", "1"), Normal);
        lanes.close();
        lanes.push(key("b", "2"), Normal);
        lanes.open(Some("b"));
        assert_eq!(next(&mut lanes), Some(key("b", "2")));
        assert_eq!((next(&mut lanes), lanes.waiting()), (None, 1));
        lanes.open(None);
        assert_eq!(next(&mut lanes), Some(key("a", "1")));
    }

    /// Seconds until the keys of one namespace are done by an API server that can do so many in a second and has nothing
    /// else to do, beside so many namespaces with ten keys each whose calls hang. Now and then it does nothing for a moment,
    /// as when its disk is busy.
    fn seconds_of_a_burst(hanging: u32, capacity: f64) -> f64 {
        /// In steps of 10 ms: how long a reconcile takes at least, how long a call hangs, the backoff of its key, when the
        /// burst is due, and when and for how long the server does nothing.
        const ROUND_TRIP: u32 = 3;
        const HANGS: u32 = 3_000;
        const BACKOFF: u32 = 1_000;
        const DUE: u32 = 500;
        const STALL_EVERY: u32 = 700;
        const STALL: u32 = 150;
        const STEPS_PER_SECOND: u32 = 100;
        const COUNT: usize = 1_000;

        struct Running {
            key: Key,
            turn: Turn,
            begin: u32,
            left: f64,
        }
        let mut random = fastrand::Rng::with_seed(7);
        let mut lanes = Lanes::new(96);
        let hang = |number: u32| {
            key(
                &format!("hanging-{}", number % hanging),
                &number.to_string(),
            )
        };
        let mut due: Vec<_> = (0..hanging * 10).map(|number| (0, hang(number))).collect();
        due.extend((0..COUNT).map(|number| (DUE, key("busy", &number.to_string()))));
        let mut running: Vec<Running> = Vec::new();
        let mut done = 0;
        for step in 0.. {
            for (_, key) in due.extract_if(.., |(at, _)| *at <= step) {
                lanes.push(key, Normal);
            }
            while let Some((key, turn)) = lanes.next() {
                let left = random.f64() + 0.5;
                running.push(Running {
                    key,
                    turn,
                    begin: step,
                    left,
                });
            }
            let busy = running
                .iter()
                .filter(|one| &*one.key.namespace == "busy")
                .count();
            let busy = f64::from(u32::try_from(busy).unwrap());
            let stalls = step % STALL_EVERY < STALL;
            let share = if stalls {
                0.0
            } else {
                capacity / f64::from(STEPS_PER_SECOND) / busy
            };
            let mut still = Vec::new();
            for mut one in running {
                let elapsed = step - one.begin;
                let is_busy = &*one.key.namespace == "busy";
                one.left -= share;
                if is_busy && one.left <= 0.0 && elapsed >= ROUND_TRIP {
                    lanes.done(
                        &one.key.namespace,
                        one.turn.pace,
                        elapsed <= STEPS_PER_SECOND,
                    );
                    done += 1;
                } else if !is_busy && elapsed == HANGS {
                    lanes.done(&one.key.namespace, one.turn.pace, false);
                    due.push((step + BACKOFF, one.key));
                } else {
                    if elapsed == STEPS_PER_SECOND {
                        one.turn.pace = lanes.mark_slow(&one.key.namespace, one.turn);
                    }
                    still.push(one);
                }
            }
            running = still;
            if done == COUNT {
                return f64::from(step - DUE) / f64::from(STEPS_PER_SECOND);
            }
            assert!(step < 1_000 * STEPS_PER_SECOND, "{done} are done");
        }
        unreachable!("the loop returns or fails");
    }

    /// Its reconciles take more than a second now and then, as those do whose calls hang.
    #[test]
    fn a_namespace_that_makes_the_api_server_busy_is_not_taken_for_one_whose_calls_hang() {
        for capacity in [20.0, 140.0] {
            let alone = seconds_of_a_burst(0, capacity);
            for hanging in [100_u32, 600] {
                let beside = seconds_of_a_burst(hanging, capacity);
                let figures =
                    format!("{beside} s beside {hanging} namespaces that hang, {alone} s alone");
                // Each begins with a second of a worker.
                let most = alone * 1.1 + f64::from(hanging) / 96.0;
                assert!(beside <= most, "{capacity} a second: {figures}");
            }
        }
    }

    /// A namespace as the naive model has it.
    #[derive(Clone, Debug)]
    struct Plain {
        name: String,
        open: bool,
        slow: bool,
        limit: usize,
        /// The turns of its keys that run.
        running: Vec<Turn>,
        /// How many have ended in time.
        ended: u32,
        /// The names of its waiting keys, and since when it is behind the other namespaces; by urgency.
        waiting: [(Vec<String>, u64); 2],
    }

    impl Plain {
        fn set_slow(&mut self, slow: bool, step: u64) {
            if self.slow != slow {
                self.slow = slow;
                self.waiting.iter_mut().for_each(|(_, since)| *since = step);
            }
        }

        fn running(&self, pace: Pace) -> usize {
            self.running.iter().filter(|one| one.pace == pace).count()
        }
    }

    /// The documented rule, by reading the whole state.
    fn naive(all: &[Plain], workers: usize, taken: u32) -> Option<(usize, usize)> {
        let first = std::cmp::max(1, workers / 16);
        let most = std::cmp::max(1, workers - first);
        let may_run = |plain: &Plain| {
            let pace = if plain.slow { Pace::Slow } else { Pace::Fast };
            let running: usize = all.iter().map(|plain| plain.running(pace)).sum();
            let limit = if plain.slow { most } else { plain.limit };
            let one_at_least = plain.slow && plain.running.is_empty() && running < workers * 8;
            one_at_least || plain.running(pace) < limit && running < workers
        };
        let urgencies = if taken % 8 == 7 { [1, 0] } else { [0, 1] };
        urgencies.into_iter().find_map(|urgency| {
            let may = all.iter().enumerate().filter(|(_, plain)| {
                plain.open && !plain.waiting[urgency].0.is_empty() && may_run(plain)
            });
            let next = may.min_by_key(|(_, plain)| (plain.slow, plain.waiting[urgency].1));
            next.map(|(place, _)| (urgency, place))
        })
    }

    #[test]
    fn random_work_is_handed_out_as_by_a_naive_model() {
        parallel_cases(length(500, 20_000), |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let workers = random.usize(1..40);
            let first = std::cmp::max(1, workers / 16);
            let closed = random.bool();
            let mut lanes = Lanes::new(workers);
            let mut taken = 0;
            if closed {
                lanes.close();
            }
            let mut plain: Vec<Plain> = (0..random.usize(1..8))
                .map(|number| Plain {
                    name: format!("n{number}"),
                    open: !closed,
                    slow: false,
                    limit: first,
                    running: Vec::new(),
                    ended: 0,
                    waiting: Default::default(),
                })
                .collect();
            for step in 1..600 {
                let number = random.usize(..plain.len());
                let one = &mut plain[number];
                match random.u8(..20) {
                    0..8 => {
                        let urgency = [Urgent, Normal][random.usize(..2)];
                        let (waiting, since) = &mut one.waiting[urgency as usize];
                        if waiting.is_empty() {
                            *since = step;
                        }
                        waiting.push(step.to_string());
                        lanes.push(key(&one.name, &step.to_string()), urgency);
                    }
                    8..13 if !one.running.is_empty() => {
                        let ended = one.running.swap_remove(random.usize(..one.running.len()));
                        let was_fast = random.bool();
                        if was_fast {
                            one.set_slow(false, step);
                            one.limit = (one.limit + 1).min((workers - first).max(1));
                            one.ended += 1;
                        }
                        lanes.done(&one.name, ended.pace, was_fast);
                        if one.running.is_empty()
                            && one.waiting.iter().all(|(keys, _)| keys.is_empty())
                        {
                            (one.slow, one.limit, one.ended) = (false, first, 0);
                        }
                    }
                    13 if !one.running.is_empty() => {
                        let index = random.usize(..one.running.len());
                        let (name, turn) = (one.name.clone(), one.running[index]);
                        if one.ended == turn.ended_before {
                            one.set_slow(true, step);
                        }
                        one.limit = first;
                        let slow: usize = plain.iter().map(|plain| plain.running(Pace::Slow)).sum();
                        let after = if slow < workers * 8 {
                            Pace::Slow
                        } else {
                            turn.pace
                        };
                        assert_eq!(lanes.mark_slow(&name, turn), after);
                        plain[number].running[index].pace = after;
                    }
                    14 if !one.open => {
                        one.open = true;
                        one.waiting.iter_mut().for_each(|(_, since)| *since = step);
                        lanes.open(Some(&one.name));
                    }
                    15.. => {
                        let expected = naive(&plain, workers, taken).map(|(urgency, number)| {
                            let one = &mut plain[number];
                            let pace = if one.slow { Pace::Slow } else { Pace::Fast };
                            let ended_before = one.ended;
                            let turn = Turn { pace, ended_before };
                            one.running.push(turn);
                            let (waiting, since) = &mut one.waiting[urgency];
                            *since = step;
                            taken += 1;
                            (key(&one.name, &waiting.remove(0)), turn)
                        });
                        assert_eq!(lanes.is_ready(), expected.is_some());
                        assert_eq!(lanes.next(), expected);
                    }
                    _ => {}
                }
                let waiting = plain.iter().flat_map(|one| &one.waiting);
                let waiting: usize = waiting.map(|(keys, _)| keys.len()).sum();
                assert_eq!(lanes.waiting(), waiting);
            }
            // Nothing is left of a namespace without work.
            lanes.open(None);
            for one in &plain {
                one.running
                    .iter()
                    .for_each(|turn| lanes.done(&one.name, turn.pace, true));
            }
            while let Some((key, turn)) = lanes.next() {
                lanes.done(&key.namespace, turn.pace, true);
            }
            assert!(lanes.by_namespace.is_empty() && lanes.waiting() == 0);
            assert!(lanes.order.as_flattened().iter().all(VecDeque::is_empty));
        });
    }
}
