//! What all requests of a listener share: so many bytes, so many at work. One counter, no queue: who
//! gets nothing is told to come again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount that is shared.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    taken: AtomicUsize,
}

/// What one holds of it, until dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    size: usize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        let taken = AtomicUsize::new(0);
        Self { most, taken }
    }

    /// A share with nothing in it yet.
    pub(super) fn share(&self) -> Share<'_> {
        Share {
            budget: self,
            size: 0,
        }
    }

    /// A share of this size, if there is that much left.
    pub(super) fn take(&self, size: usize) -> Option<Share<'_>> {
        let mut share = self.share();
        share.grow_to(size).then_some(share)
    }
}

impl Share<'_> {
    /// Makes the share at least this large. False, with nothing changed, if not that much is left.
    pub(super) fn grow_to(&mut self, size: usize) -> bool {
        let Some(more) = size.checked_sub(self.size).filter(|more| *more > 0) else {
            return true;
        };
        let most = self.budget.most;
        // The number is all that is shared: no other memory hangs on it.
        let grown = self
            .budget
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(more).filter(|taken| *taken <= most)
            });
        if grown.is_ok() {
            self.size = size;
        }
        grown.is_ok()
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // Most bodies are too small to take any.
        if self.size > 0 {
            self.budget.taken.fetch_sub(self.size, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is_and_all_comes_back() {
        let budget = Budget::new(10);
        let mut first = budget.take(4).unwrap();
        let second = budget.take(5).unwrap();
        assert!(budget.take(2).is_none());
        assert!(!first.grow_to(6), "only one is left");
        assert!(first.grow_to(5));
        assert!(first.grow_to(1), "it never shrinks, and has that");
        assert!(budget.take(1).is_none());
        drop(second);
        assert!(first.grow_to(10));
        drop(first);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
        assert!(budget.take(10).is_some());
        assert!(budget.take(usize::MAX).is_none());
    }
}
