//! Events that wait to be published, in order within a namespace. No namespace waits for another.
//!
//! The API server may reject or delay the Events of one namespace, for example because of an admission webhook. So each
//! namespace has at most one request in flight, and backs off after a failure. The total is bounded: when the outbox is
//! full, the namespace with the most waiting Events loses its newest.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

/// A bounded queue per namespace; see the module.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    max: usize,
    len: usize,
    lanes: HashMap<String, Lane<T>>,
    /// The namespaces with waiting items, least recently served first.
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    /// The first of them is in flight.
    busy: bool,
    /// The end of the backoff.
    not_before: Option<Instant>,
}

impl<T: Clone> Outbox<T> {
    /// An outbox for at most `max` items.
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

    /// Adds an item. Returns false when this item or another one was dropped.
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

    /// Drops the newest item of the namespace with the most, if that has more than the given one.
    fn drop_for(&mut self, namespace: &str) -> bool {
        let own = self
            .lanes
            .get(namespace)
            .map_or(0, |lane| lane.waiting.len());
        let largest = self
            .lanes
            .values_mut()
            .max_by_key(|lane| lane.waiting.len());
        // It has at least two items, so the first, which may be in flight, stays.
        let Some(largest) = largest.filter(|lane| lane.waiting.len() > own + 1) else {
            return false;
        };
        largest.waiting.pop_back();
        self.len -= 1;
        true
    }

    /// The next item to publish, and its namespace. The item stays in the outbox until [`Outbox::done`] or
    /// [`Outbox::retry_at`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        let lanes = &self.lanes;
        let is_free = |name: &String| {
            let lane = lanes.get(name);
            lane.is_some_and(|lane| !lane.busy && lane.not_before.is_none_or(|at| at <= now))
        };
        let index = self.order.iter().position(is_free)?;
        let name = self.order.remove(index)?;
        self.order.push_back(name.clone());
        let lane = self.lanes.get_mut(&name)?;
        lane.busy = true;
        let item = lane.waiting.front()?.clone();
        Some((name, item))
    }

    /// When the next backoff ends.
    pub(super) fn wake(&self) -> Option<Instant> {
        let free = self.lanes.values().filter(|lane| !lane.busy);
        free.filter_map(|lane| lane.not_before).min()
    }

    /// Removes the item in flight of a namespace.
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

    /// Replaces the item in flight of a namespace with `item`, to be tried again at `instant`.
    pub(super) fn retry_at(&mut self, namespace: &str, item: T, instant: Instant) {
        if let Some(lane) = self.lanes.get_mut(namespace) {
            (lane.busy, lane.not_before) = (false, Some(instant));
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
    fn each_namespace_has_one_in_flight_and_keeps_its_order() {
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
    fn a_namespace_in_backoff_does_not_delay_others() {
        let mut outbox = Outbox::new(10);
        for (name, item) in [("a", 1), ("a", 2), ("b", 3)] {
            outbox.push(name, item);
        }
        assert_eq!(next(&mut outbox), Some(of("a", 1)));
        let until = Instant::now() + Duration::from_secs(5);
        outbox.retry_at("a", 11, until);
        assert_eq!(next(&mut outbox), Some(of("b", 3)));
        assert_eq!((next(&mut outbox), outbox.wake()), (None, Some(until)));
        assert_eq!(outbox.next(until), Some(of("a", 11)));
    }

    #[test]
    fn when_full_the_largest_namespace_loses_its_newest() {
        let mut outbox = Outbox::new(4);
        for item in 1..=4 {
            assert!(outbox.push("a", item));
        }
        assert_eq!(next(&mut outbox), Some(of("a", 1)));
        assert!(!outbox.push("a", 5));
        assert!(!outbox.push("b", 6));
        assert!(!outbox.push("b", 7));
        // Both have two, so the new one is dropped.
        assert!(!outbox.push("b", 8));
        let waiting = |outbox: &Outbox<u32>, name| Vec::from(outbox.lanes[name].waiting.clone());
        assert_eq!(waiting(&outbox, "a"), [1, 2]);
        assert_eq!(waiting(&outbox, "b"), [6, 7]);
        // The item in flight stays, whatever is added.
        for item in 9..20 {
            outbox.push("c", item);
            outbox.push("d", item);
        }
        assert_eq!(waiting(&outbox, "a"), [1]);
        assert_eq!(outbox.len, 4);
    }
}
