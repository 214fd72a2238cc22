//! Events that wait to be published: in order within a namespace, and no namespace waits for another.
//!
//! The API server may refuse or delay the Events of one namespace, as where a webhook judges them. So each namespace has
//! at most one under way, and rests after a failure. What waits is bounded in all: where there is no room, the namespace
//! of which most wait loses its newest.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    max: usize,
    len: usize,
    lanes: HashMap<String, Lane<T>>,
    /// The namespaces with something in them. First is the one whose last turn was the longest ago.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    /// The first of those is under way.
    busy: bool,
    /// The lane rests until then.
    not_before: Option<Instant>,
}

impl<T: Clone> Outbox<T> {
    /// With room for so many.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            len: 0,
            lanes: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes something in; false when something was dropped for that, be it this.
    pub(super) fn push(&mut self, namespace: &str, item: T) -> bool {
        let is_full = self.len >= self.max;
        if is_full && !self.drop_for(namespace) {
            return false;
        }
        let order = &mut self.order;
        let lane = self.lanes.entry(namespace.to_owned()).or_insert_with(|| {
            order.push_back(namespace.to_owned());
            Lane {
                waiting: VecDeque::new(),
                busy: false,
                not_before: None,
            }
        });
        lane.waiting.push_back(item);
        self.len += 1;
        !is_full
    }

    /// Makes room for one more of that namespace, at the expense of one that has more.
    fn drop_for(&mut self, namespace: &str) -> bool {
        let own = self
            .lanes
            .get(namespace)
            .map_or(0, |lane| lane.waiting.len());
        let largest = self
            .lanes
            .values_mut()
            .max_by_key(|lane| lane.waiting.len());
        // It has two at least: what may be under way stays.
        let Some(largest) = largest.filter(|lane| lane.waiting.len() > own + 1) else {
            return false;
        };
        largest.waiting.pop_back();
        self.len -= 1;
        true
    }

    /// What is to be published next, and of which namespace. It stays in its place until [`Outbox::done`] or
    /// [`Outbox::rest`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        let lanes = &self.lanes;
        let is_free = |name: &String| {
            let lane = lanes.get(name);
            lane.is_some_and(|lane| !lane.busy && lane.not_before.is_none_or(|at| at <= now))
        };
        let place = self.order.iter().position(is_free)?;
        let name = self.order.remove(place)?;
        self.order.push_back(name.clone());
        let lane = self.lanes.get_mut(&name)?;
        lane.busy = true;
        let item = lane.waiting.front()?.clone();
        Some((name, item))
    }

    /// When [`Outbox::next`] has something, if nothing happens before.
    pub(super) fn wake(&self) -> Option<Instant> {
        let free = self.lanes.values().filter(|lane| !lane.busy);
        free.filter_map(|lane| lane.not_before).min()
    }

    /// What was under way is over.
    pub(super) fn done(&mut self, namespace: &str) {
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return;
        };
        lane.waiting.pop_front();
        self.len -= 1;
        (lane.busy, lane.not_before) = (false, None);
        if lane.waiting.is_empty() {
            self.lanes.remove(namespace);
            self.order.retain(|name| name != namespace);
        }
    }

    /// What was under way is to be tried again, in this form, not before that time.
    pub(super) fn rest(&mut self, namespace: &str, item: T, until: Instant) {
        if let Some(lane) = self.lanes.get_mut(namespace) {
            (lane.busy, lane.not_before) = (false, Some(until));
            if let Some(first) = lane.waiting.front_mut() {
                *first = item;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn next(outbox: &mut Outbox<u32>) -> Option<(String, u32)> {
        outbox.next(Instant::now())
    }

    fn of(name: &str, item: u32) -> (String, u32) {
        (name.to_owned(), item)
    }

    #[test]
    fn each_namespace_has_one_under_way_and_keeps_its_order() {
        let mut outbox = Outbox::new(10);
        for (name, item) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
            assert!(outbox.push(name, item));
        }
        assert_eq!(next(&mut outbox), Some(of("a", 1)));
        assert_eq!(next(&mut outbox), Some(of("b", 3)));
        assert_eq!((next(&mut outbox), outbox.wake()), (None, None));
        outbox.done("b");
        assert_eq!(next(&mut outbox), Some(of("b", 4)));
        outbox.done("a");
        assert_eq!(next(&mut outbox), Some(of("a", 2)));
        outbox.done("a");
        outbox.done("b");
        assert!(outbox.is_empty() && outbox.lanes.is_empty() && outbox.order.is_empty());
    }

    #[test]
    fn a_namespace_rests_and_the_others_go_on() {
        let mut outbox = Outbox::new(10);
        for (name, item) in [("a", 1), ("a", 2), ("b", 3)] {
            outbox.push(name, item);
        }
        assert_eq!(next(&mut outbox), Some(of("a", 1)));
        let until = Instant::now() + Duration::from_secs(5);
        outbox.rest("a", 11, until);
        assert_eq!(next(&mut outbox), Some(of("b", 3)));
        assert_eq!((next(&mut outbox), outbox.wake()), (None, Some(until)));
        assert_eq!(outbox.next(until), Some(of("a", 11)));
    }

    #[test]
    fn where_there_is_no_room_the_largest_loses_its_newest() {
        let mut outbox = Outbox::new(4);
        for item in 1..=4 {
            assert!(outbox.push("a", item));
        }
        assert_eq!(next(&mut outbox), Some(of("a", 1)));
        assert!(!outbox.push("a", 5));
        assert!(!outbox.push("b", 6));
        assert!(!outbox.push("b", 7));
        // They are equal, so its own newest is left out.
        assert!(!outbox.push("b", 8));
        let waiting = |outbox: &Outbox<u32>, name| Vec::from(outbox.lanes[name].waiting.clone());
        assert_eq!(waiting(&outbox, "a"), [1, 2]);
        assert_eq!(waiting(&outbox, "b"), [6, 7]);
        // What is under way stays, whatever comes.
        for item in 9..20 {
            outbox.push("c", item);
            outbox.push("d", item);
        }
        assert_eq!(waiting(&outbox, "a"), [1]);
        assert_eq!(outbox.len, 4);
    }
}
