//! A map by key whose memory follows its length.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use super::Key;

/// The capacity that is kept when there are fewer keys.
const MIN_CAPACITY: usize = 256;

/// A hash map that frees memory as its keys are removed. After a start with a million objects, or a burst of as many,
/// it may be nearly empty for years. A removal takes constant time on average: before the next time that memory is
/// freed, half of the keys that are left must go.
#[derive(Debug)]
pub struct KeyMap<V>(HashMap<Key, V>);

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V> Deref for KeyMap<V> {
    type Target = HashMap<Key, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<V> DerefMut for KeyMap<V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<V> KeyMap<V> {
    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &Key) -> Option<V> {
        let removed = self.0.remove(key);
        let len = self.0.len().max(MIN_CAPACITY);
        if self.0.capacity() > 4 * len {
            self.0.shrink_to(2 * len);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_follows_the_length() {
        let key = |number: usize| Key::new("ns", number.to_string());
        let mut map = KeyMap::default();
        for number in 0..10_000 {
            map.insert(key(number), number);
        }
        for number in 0..10_000 {
            assert_eq!(map.remove(&key(number)), Some(number));
            let len = map.len().max(MIN_CAPACITY);
            let capacity = map.capacity();
            assert!(capacity <= 4 * len, "{capacity} for {len}");
        }
        assert_eq!(map.remove(&key(0)), None);
    }

    #[test]
    fn memory_is_seldom_freed() {
        let key = |number: usize| Key::new("ns", number.to_string());
        let mut map = KeyMap::default();
        for number in 0..100_000 {
            map.insert(key(number), ());
        }
        let mut freed = 0;
        for number in 0..100_000 {
            let before = map.capacity();
            map.remove(&key(number));
            // A removal alone may leave a place that cannot be used until the map grows.
            freed += u32::from(map.capacity() + 1 < before);
        }
        assert!((1..10).contains(&freed), "{freed} times");
    }
}
