//! Events that wait to be published, in order within a namespace. No namespace waits for another.
//!
//! The API server may reject or delay the Events of one namespace, for example because of an admission webhook. So each
//! namespace has at most one Event under way. The total is bounded: when the outbox is full, the namespace with the most
//! waiting Events loses its newest.

use std::collections::{HashMap, VecDeque};

/// A bounded queue per namespace; see the module.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    max: usize,
    /// How many wait. Beside them, each lane has an item under way.
    len: usize,
    /// What waits in each namespace that has an item under way.
    lanes: HashMap<String, VecDeque<T>>,
}

/// What came of an item that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    /// This item or another one was dropped.
    pub(super) dropped: bool,
    /// The namespace had no lane: call [`Outbox::next`] for it until it returns None.
    pub(super) opened: bool,
}

impl<T> Outbox<T> {
    /// An outbox for about `max` items.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            len: 0,
            lanes: HashMap::new(),
        }
    }

    /// Adds an item.
    pub(super) fn push(&mut self, namespace: &str, item: T) -> Pushed {
        let dropped = self.len + self.lanes.len() >= self.max;
        if dropped && !self.drop_for(namespace) {
            let opened = false;
            return Pushed { dropped, opened };
        }
        let opened = !self.lanes.contains_key(namespace);
        let lane = self.lanes.entry(namespace.to_owned()).or_default();
        lane.push_back(item);
        self.len += 1;
        Pushed { dropped, opened }
    }

    /// Drops the newest item of the namespace with the most, if that has more than the given one.
    fn drop_for(&mut self, namespace: &str) -> bool {
        let own = self.lanes.get(namespace).map_or(0, VecDeque::len);
        let largest = self.lanes.values_mut().max_by_key(|lane| lane.len());
        let Some(largest) = largest.filter(|lane| lane.len() > own + 1) else {
            return false;
        };
        largest.pop_back();
        self.len -= 1;
        true
    }

    /// The next item of a namespace.
    pub(super) fn next(&mut self, namespace: &str) -> Option<T> {
        let item = self.lanes.get_mut(namespace)?.pop_front();
        match &item {
            Some(_) => self.len -= 1,
            None => drop(self.lanes.remove(namespace)),
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(dropped: bool, opened: bool) -> Pushed {
        Pushed { dropped, opened }
    }

    #[test]
    fn a_namespace_keeps_its_order_and_is_open_until_it_has_no_more() {
        let mut outbox = Outbox::new(10);
        assert_eq!(outbox.push("a", 1), pushed(false, true));
        assert_eq!(outbox.push("a", 2), pushed(false, false));
        assert_eq!(outbox.push("b", 3), pushed(false, true));
        assert_eq!(outbox.next("a"), Some(1));
        assert_eq!(outbox.next("a"), Some(2));
        // The last one is under way.
        assert_eq!(outbox.push("a", 4), pushed(false, false));
        assert_eq!(outbox.next("a"), Some(4));
        assert_eq!(outbox.next("a"), None);
        assert_eq!(outbox.push("a", 5), pushed(false, true));
        assert_eq!(outbox.len, 2);
    }

    #[test]
    fn when_full_the_largest_namespace_loses_its_newest() {
        let mut outbox = Outbox::new(5);
        for item in 1..=4 {
            assert_eq!(outbox.push("a", item), pushed(false, item == 1));
        }
        assert_eq!(outbox.push("a", 5), pushed(true, false));
        assert_eq!(outbox.push("b", 6), pushed(true, true));
        assert_eq!(outbox.push("b", 7), pushed(true, false));
        // Both have two, so the new one is dropped.
        assert_eq!(outbox.push("b", 8), pushed(true, false));
        let waiting = |outbox: &Outbox<u32>, name| Vec::from(outbox.lanes[name].clone());
        assert_eq!(waiting(&outbox, "a"), [1, 2]);
        assert_eq!(waiting(&outbox, "b"), [6, 7]);
        for item in 9..20 {
            outbox.push("c", item);
            outbox.push("d", item);
        }
        assert_eq!(outbox.lanes.len(), 4);
        assert!(outbox.lanes.values().all(|lane| lane.len() == 1));
        assert_eq!(outbox.len, 4);
    }
}
