//! A write-through cache: what this process wrote itself, until its watch delivers it.
//!
//! A watch lags behind one's own writes. A decision on the state before costs requests that fail their preconditions.
//! And what a status remembers, such as that a roll-out has stopped, must not be forgotten between the write and its
//! watch event.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::reconcile::Key;
use crate::reconcile::key_map::KeyMap;

/// An answer older than this is dropped, even if the watch has not delivered it.
pub const MAX_LAG: Duration = Duration::from_secs(10);

/// The API server's answers to this process's writes, by key. [`Self::newer`] drops an answer that the watch has
/// overtaken, or that is older than [`MAX_LAG`]; [`Self::forget`] is for objects that are gone.
pub struct WriteCache<V> {
    answers: Mutex<KeyMap<Answer<V>>>,
}

struct Answer<V> {
    view: Arc<V>,
    version: u64,
    since: Instant,
}

impl<V> Default for WriteCache<V> {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
        }
    }
}

impl<V> WriteCache<V> {
    fn lock(&self) -> MutexGuard<'_, KeyMap<Answer<V>>> {
        self.answers.lock()
    }

    /// Remembers the answer to a write.
    pub fn put(&self, key: &Key, version: &str, view: Arc<V>) {
        // Resource versions are increasing numbers (KEP-5504). A malformed one is not remembered.
        if let Ok(version) = version.parse() {
            let since = Instant::now();
            let answer = Answer {
                view,
                version,
                since,
            };
            self.lock().insert(key.clone(), answer);
        }
    }

    /// The newer of the watched object and the written one. `version` reads an object's resource version.
    pub fn newer(
        &self,
        key: &Key,
        cached: Option<Arc<V>>,
        version: fn(&V) -> &str,
    ) -> Option<Arc<V>> {
        let mut answers = self.lock();
        let Some(answer) = answers.get(key) else {
            return cached;
        };
        let known = cached.as_deref().map(version);
        let overtaken = known.is_some_and(|v| v.parse::<u64>().is_ok_and(|v| v >= answer.version));
        if overtaken || answer.since.elapsed() > MAX_LAG {
            answers.remove(key);
            return cached;
        }
        Some(answer.view.clone())
    }

    /// The object is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(view: &String) -> &str {
        view
    }

    fn text(text: &str) -> Arc<String> {
        Arc::new(text.to_owned())
    }

    #[test]
    fn answers_of_own_writes_count_until_the_watch_catches_up() {
        let own = WriteCache::default();
        let key = Key::new("ns", "a");
        let newer = |cached: Option<&str>| own.newer(&key, cached.map(text), version);
        assert_eq!(newer(Some("7")), Some(text("7")));
        own.put(&key, "10", text("10"));
        assert_eq!(newer(None), Some(text("10")));
        assert_eq!(newer(Some("9")), Some(text("10")));
        assert_eq!(newer(Some("10")), Some(text("10")));
        // The cache has dropped the answer.
        assert_eq!(newer(Some("9")), Some(text("9")));
        own.put(&key, "20", text("20"));
        own.forget(&key);
        assert_eq!(newer(None), None);
        own.put(&key, "malformed", text("malformed"));
        assert_eq!(newer(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_own_writes_expire() {
        let own = WriteCache::default();
        let key = Key::new("ns", "a");
        own.put(&key, "10", text("10"));
        tokio::time::sleep(MAX_LAG).await;
        assert_eq!(own.newer(&key, None, version), Some(text("10")));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(own.newer(&key, None, version), None);
    }
}
