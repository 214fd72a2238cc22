//! Which waiting key is worked on next: the namespaces take turns.
//!
//! A reconcile occupies a worker while its calls are in flight, and a webhook that does not answer can make a call last
//! for half a minute. Without turns, a few hundred objects of one namespace with such a webhook would occupy every
//! worker, and an At of another namespace would miss its deadline. So while keys of several namespaces wait, a
//! namespace has at most a quarter of the workers. Alone it may have nearly all: a sixteenth, and at least one of two
//! workers, stays free, so that the first key of another namespace does not wait for calls that hang.
//!
//! A namespace is closed until the caches that its objects need are filled. Until then its keys wait, and hold up no
//! other namespace.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::Key;

/// How many workers a namespace may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// A namespace may always have this many.
    share: usize,
    /// It may have more as long as no key of another namespace waits and fewer workers than these are occupied.
    alone: usize,
}

impl Limits {
    /// The limits for that number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            share: (workers / 4).max(1),
            // Of two or more, one always stays free for the first key of another namespace.
            alone: (workers - (workers / 16).max(1)).max(1),
        }
    }

    const NONE: Self = Self {
        share: usize::MAX,
        alone: usize::MAX,
    };
}

/// The waiting keys, by namespace; see the module.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    by_namespace: HashMap<Arc<str>, Lane>,
    /// The open namespaces with waiting keys, least recently served first.
    order: VecDeque<Arc<str>>,
    /// The namespaces that are open; `None` when all are.
    open: Option<HashSet<Arc<str>>>,
    waiting: usize,
    running: usize,
}

/// The keys of one namespace.
#[derive(Debug, Default)]
struct Lane {
    /// In order of arrival.
    waiting: VecDeque<Key>,
    running: usize,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            limits: Limits::NONE,
            by_namespace: HashMap::new(),
            order: VecDeque::new(),
            open: None,
            waiting: 0,
            running: 0,
        }
    }
}

impl Lanes {
    /// No key waits yet, and every namespace is open.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// How many keys wait, those of closed namespaces included.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Closes every namespace.
    pub(super) fn close(&mut self) {
        self.open = Some(HashSet::new());
        self.order.clear();
    }

    /// Opens a namespace, or all of them.
    pub(super) fn open(&mut self, namespace: Option<&str>) {
        match (namespace, &mut self.open) {
            (Some(namespace), Some(open)) => {
                if open.insert(namespace.into())
                    && let Some((name, lane)) = self.by_namespace.get_key_value(namespace)
                    && !lane.waiting.is_empty()
                {
                    self.order.push_back(name.clone());
                }
            }
            (None, Some(open)) => {
                let closed = self.by_namespace.iter().filter(|(name, lane)| {
                    !lane.waiting.is_empty() && !open.contains(name.as_ref())
                });
                self.order.extend(closed.map(|(name, _)| name.clone()));
                self.open = None;
            }
            (_, None) => {}
        }
    }

    /// Adds a waiting key. The caller must not add one twice.
    pub(super) fn push(&mut self, key: Key) {
        let lane = self.by_namespace.entry(key.namespace.clone()).or_default();
        let is_open = self.open.as_ref();
        let is_open = is_open.is_none_or(|open| open.contains(&key.namespace));
        if lane.waiting.is_empty() && is_open {
            self.order.push_back(key.namespace.clone());
        }
        lane.waiting.push_back(key);
        self.waiting += 1;
    }

    /// Whether [`Lanes::next`] would give a key.
    pub(super) fn is_ready(&self) -> bool {
        self.turn().is_some()
    }

    /// The index of the namespace whose turn it is. Few namespaces have reached their limit, so the search is short.
    fn turn(&self) -> Option<usize> {
        let Limits { share, alone } = self.limits;
        if self.order.len() == 1 && self.running < alone {
            return Some(0);
        }
        let running = |name| self.by_namespace.get(name).map_or(0, |lane| lane.running);
        self.order.iter().position(|name| running(name) < share)
    }

    /// Takes the next key. Its worker is occupied until [`Lanes::done`].
    pub(super) fn next(&mut self) -> Option<Key> {
        let name = self.order.remove(self.turn()?)?;
        let lane = self.by_namespace.get_mut(&name)?;
        let key = lane.waiting.pop_front()?;
        lane.running += 1;
        self.running += 1;
        self.waiting -= 1;
        if !lane.waiting.is_empty() {
            self.order.push_back(name);
        }
        Some(key)
    }

    /// Frees the worker of a key of that namespace.
    pub(super) fn done(&mut self, namespace: &str) {
        let Some(lane) = self.by_namespace.get_mut(namespace) else {
            return;
        };
        lane.running -= 1;
        self.running -= 1;
        if lane.running == 0 && lane.waiting.is_empty() {
            // Otherwise the map would keep every namespace that ever had an object.
            self.by_namespace.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use my_operator_rounds::{lengths, parallel_cases};

    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(namespace, name)
    }

    fn all(lanes: &mut Lanes) -> Vec<String> {
        std::iter::from_fn(|| Some(lanes.next()?.to_string())).collect()
    }

    #[test]
    fn namespaces_take_turns_and_each_keeps_its_order() {
        let mut lanes = Lanes::new(Limits::new(100));
        for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "5")] {
            lanes.push(key(namespace, name));
        }
        assert_eq!(all(&mut lanes), ["a/1", "b/4", "c/5", "a/2", "a/3"]);
    }

    #[test]
    fn a_namespace_has_a_quarter_of_the_workers_while_others_wait_and_a_sixteenth_is_left() {
        let mut lanes = Lanes::new(Limits::new(96));
        for number in 0..300 {
            lanes.push(key("hanging", &number.to_string()));
        }
        let taken = |lanes: &mut Lanes| all(lanes).len();
        assert_eq!(taken(&mut lanes), 90, "nothing else waits");
        // One worker after the other becomes free, and is not for the same namespace again.
        lanes.push(key("other", "1"));
        lanes.push(key("other", "2"));
        assert_eq!(lanes.next(), Some(key("other", "1")));
        assert_eq!(lanes.next(), Some(key("other", "2")));
        for _ in 0..66 {
            lanes.push(key("other", "1"));
            lanes.done("hanging");
            assert_eq!(lanes.next(), Some(key("other", "1")));
            lanes.done("other");
        }
        assert_eq!(lanes.by_namespace["hanging"].running, 24);
    }

    #[test]
    fn few_workers_leave_one_free_and_give_each_namespace_one() {
        for workers in 1..16 {
            let mut lanes = Lanes::new(Limits::new(workers));
            (0..20).for_each(|number| lanes.push(key("a", &number.to_string())));
            assert_eq!(all(&mut lanes).len(), (workers - 1).max(1));
        }
        assert_eq!(Limits::new(1).share, 1);
    }

    #[test]
    fn a_closed_namespace_waits_and_holds_up_no_other() {
        let mut lanes = Lanes::default();
        lanes.push(key("a", "1"));
        lanes.close();
        lanes.push(key("b", "2"));
        lanes.open(Some("b"));
        assert_eq!(lanes.next(), Some(key("b", "2")));
        assert_eq!((lanes.next(), lanes.waiting()), (None, 1));
        lanes.open(None);
        assert_eq!(lanes.next(), Some(key("a", "1")));
    }

    /// A namespace as the naive model has it.
    #[derive(Clone, Debug)]
    struct Plain {
        name: String,
        open: bool,
        running: usize,
        waiting: Vec<String>,
        /// When it was last put behind the others.
        since: u64,
    }

    /// The documented rule, by reading the whole state.
    fn naive(all: &[Plain], workers: usize) -> Option<usize> {
        let has_work = |plain: &&Plain| plain.open && !plain.waiting.is_empty();
        let is_alone = all.iter().filter(has_work).count() == 1;
        let running: usize = all.iter().map(|plain| plain.running).sum();
        let may_have_more =
            is_alone && running < std::cmp::max(1, workers - std::cmp::max(1, workers / 16));
        let share = std::cmp::max(1, workers / 4);
        let may = all.iter().enumerate();
        let may =
            may.filter(|(_, plain)| has_work(plain) && (plain.running < share || may_have_more));
        may.min_by_key(|(_, plain)| plain.since)
            .map(|(place, _)| place)
    }

    #[test]
    fn random_work_is_handed_out_as_by_a_naive_model() {
        parallel_cases(lengths::queue_lanes(), |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let workers = random.usize(1..40);
            let closed = random.bool();
            let mut lanes = Lanes::new(Limits::new(workers));
            if closed {
                lanes.close();
            }
            let mut plain: Vec<Plain> = (0..random.usize(1..8))
                .map(|number| Plain {
                    name: format!("n{number}"),
                    open: !closed,
                    running: 0,
                    waiting: Vec::new(),
                    since: 0,
                })
                .collect();
            for step in 1..600 {
                let place = random.usize(..plain.len());
                let one = &mut plain[place];
                match random.u8(..20) {
                    0..8 => {
                        if one.waiting.is_empty() {
                            one.since = step;
                        }
                        one.waiting.push(step.to_string());
                        lanes.push(key(&one.name, &step.to_string()));
                    }
                    8..14 if one.running > 0 => {
                        one.running -= 1;
                        lanes.done(&one.name);
                    }
                    14 if !one.open => {
                        one.open = true;
                        one.since = step;
                        lanes.open(Some(&one.name));
                    }
                    15.. if plain.iter().map(|one| one.running).sum::<usize>() < workers => {
                        let expected = naive(&plain, workers).map(|place| {
                            let one = &mut plain[place];
                            one.running += 1;
                            one.since = step;
                            key(&one.name, &one.waiting.remove(0))
                        });
                        assert_eq!(lanes.is_ready(), expected.is_some());
                        assert_eq!(lanes.next(), expected);
                    }
                    _ => {}
                }
                let waiting = plain.iter().map(|one| one.waiting.len()).sum::<usize>();
                assert_eq!(lanes.waiting(), waiting);
            }
            // Nothing is left of a namespace without work.
            lanes.open(None);
            for one in &plain {
                (0..one.running).for_each(|_| lanes.done(&one.name));
            }
            while let Some(key) = lanes.next() {
                lanes.done(&key.namespace);
            }
            assert!(
                lanes.by_namespace.is_empty() && lanes.order.is_empty() && lanes.waiting() == 0
            );
        });
    }
}
