//! Leases whose holders must not lead while this replica does, such as those of another number of shards.
//!
//! Why a replica never leads beside the holder of such a Lease: before either leads, it writes its own Lease and then
//! reads all others. Whichever wrote last reads the other's claim, and does not lead. As in the election itself, a
//! claim counts until it is released, or was seen unchanged for its duration by this replica's own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decision::{Election, Record};
use super::periods::Periods;

/// What a replica knows of those Leases.
#[derive(Clone, Debug)]
pub(super) struct Rivals {
    periods: Periods,
    /// It has observed them.
    has_looked: bool,
    seen: BTreeMap<String, Rival>,
}

#[derive(Clone, Debug)]
struct Rival {
    holder: String,
    /// This replica is never a candidate for it.
    election: Election,
}

impl Rivals {
    pub(super) fn new(periods: Periods) -> Self {
        Self {
            periods,
            has_looked: false,
            seen: BTreeMap::new(),
        }
    }

    /// Observes all those Leases, by name. `now` must not be before the answer arrived.
    pub(super) fn observe(&mut self, found: BTreeMap<String, Record>, now: Duration) {
        self.has_looked = true;
        for (name, rival) in &mut self.seen {
            if !found.contains_key(name) {
                rival.election.observe(None, now);
            }
        }
        for (name, record) in found {
            let rival = self.seen.entry(name).or_insert_with(|| Rival {
                holder: String::new(),
                election: Election::new(String::new(), self.periods),
            });
            rival.election.observe(Some(&record), now);
            rival.holder = record.holder;
        }
        // Without a Lease, there is nothing to remember but that its holder may still lead.
        self.seen
            .retain(|_, rival| rival.election.exists() || rival.election.others_until() > now);
    }

    /// The first Lease whose holder may lead, and that holder.
    pub(super) fn first(&self, now: Duration) -> Option<(&str, &str)> {
        let mut all = self.seen.iter();
        let (name, rival) = all.find(|(_, rival)| rival.election.others_until() > now)?;
        Some((name, &rival.holder))
    }

    /// Whether no holder may lead, as far as it is known.
    pub(super) fn are_over(&self, now: Duration) -> bool {
        self.has_looked && self.first(now).is_none()
    }

    /// Whether that is the mark of the latest record seen of that Lease.
    #[cfg(test)]
    pub(super) fn has_seen(&self, name: &str, mark: &str) -> bool {
        let rival = self.seen.get(name);
        rival.is_some_and(|rival| rival.election.has_seen(mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, seconds: i64, mark: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            seconds: Some(seconds),
            transitions: 0,
            mark: mark.to_owned(),
        }
    }

    #[test]
    fn a_holder_counts_until_it_released_the_lease_or_was_silent_for_its_duration() {
        let mut rivals = Rivals::new(Periods::default());
        let seconds = Duration::from_secs;
        let mut observe = |leases: &[(&str, Record)], now| {
            let leases = leases.iter().cloned();
            let leases = leases.map(|(name, record)| (name.to_owned(), record));
            rivals.observe(leases.collect(), seconds(now));
            let first = rivals.first(seconds(now));
            let first = first.map(|(name, holder)| format!("{name} {holder}"));
            (first.unwrap_or_default(), rivals.seen.len())
        };
        let is = |held: &str, seen| (held.to_owned(), seen);
        assert_eq!(observe(&[], 100), is("", 0));
        let a = |mark| ("a", record("x", 15, mark));
        assert_eq!(observe(&[a("1")], 101), is("a x", 1));
        // Renewed, and another one with a longer duration.
        let both = [a("2"), ("b", record("y", 30, "1"))];
        assert_eq!(observe(&both, 110), is("a x", 2));
        // Released. The other is deleted, but its holder may not know yet.
        let released = [("b", record("", 1, "2"))];
        assert_eq!(observe(&released, 111), is("a x", 2));
        assert_eq!(observe(&released, 124), is("a x", 2));
        assert_eq!(observe(&released, 125), is("", 1));
        // How long that claim has been there is not known.
        assert_eq!(observe(&[a("2")], 200), is("a x", 1));
        assert_eq!(observe(&[a("2")], 214), is("a x", 1));
        assert_eq!(observe(&[a("2")], 215), is("", 1));
    }
}
