//! A part of the namespaces, so that several processes share the work.

use std::fmt;
use std::hash::Hasher as _;
use std::str::FromStr;

use fnv::FnvHasher;

/// One of several parts of all namespaces. Every namespace is in exactly one of the parts `0/n` to `n-1/n`, and always in
/// the same.
///
/// The part of a namespace is a hash of its name: FNV-1a, as the API server has it for lists of a part (KEP-5866), and
/// then a mixer. Without that, names that differ in their last character are in the same part: that hash is hardly
/// changed by it in its upper bits, by which the API server divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// All namespaces.
    pub const ALL: Self = Self { index: 0, count: 1 };
    /// The largest number of parts.
    pub const MAX_COUNT: u32 = 1_000;

    /// All parts, if there are so many.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (0..count).map(move |index| Self { index, count })
    }

    /// Which part it is, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// How many parts there are.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Whether objects of that namespace are in this part. Cluster-scoped objects, whose namespace is empty, are in every
    /// part.
    pub fn has(self, namespace: &str) -> bool {
        if self.count == 1 || namespace.is_empty() {
            return true;
        }
        let mut hasher = FnvHasher::default();
        hasher.write(namespace.as_bytes());
        // The upper bits of the product: each part is a range of hashes.
        let part = (u128::from(mix(hasher.finish())) * u128::from(self.count)) >> 64;
        part == u128::from(self.index)
    }
}

/// The finalizer of MurmurHash3: each bit of the result depends on all bits.
fn mix(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            // `parse` would take a sign.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits)
        };
        let parts = text.split_once('/');
        let parts = parts.and_then(|(index, count)| Some((parse(index)?, parse(count)?)));
        let Some((index, count)) = parts else {
            return Err("must be INDEX/COUNT, such as 0/2 and 1/2".to_owned());
        };
        if !(1..=Self::MAX_COUNT).contains(&count) {
            return Err(format!("COUNT must be from 1 to {}", Self::MAX_COUNT));
        }
        if index >= count {
            return Err(format!("INDEX must be from 0 to {}", count - 1));
        }
        Ok(Self { index, count })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_namespace_is_in_exactly_one_part_and_each_part_has_its_share() {
        let numbered = |name: &str| {
            (1..=1_000)
                .map(|i| format!("{name}{i}"))
                .collect::<Vec<_>>()
        };
        let lettered = ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("team-{a}{b}")));
        for names in [
            numbered("team-"),
            numbered(""),
            numbered("a-long-name-of-a-namespace-"),
            lettered.collect(),
        ] {
            for count in [1, 2, 3, 4, 7, 16] {
                let mut sizes = vec![0_usize; 16];
                for name in &names {
                    let of: Vec<_> = Shard::all(count).filter(|part| part.has(name)).collect();
                    assert_eq!(of.len(), 1, "{name} in {of:?}");
                    sizes[usize::try_from(of[0].index).unwrap()] += 1;
                }
                let share = names.len() / usize::try_from(count).unwrap();
                for size in &sizes[..usize::try_from(count).unwrap()] {
                    assert!(
                        (share / 2..=share * 2).contains(size),
                        "{sizes:?} of {count}"
                    );
                }
            }
        }
        assert!(Shard::all(3).all(|part| part.has("")));
    }

    #[test]
    fn the_part_of_a_namespace_never_changes_with_a_release() {
        let part = |name: &str| Shard::all(1_000).position(|part| part.has(name)).unwrap();
        let found = ["default", "kube-system", "team-1", "team-2"].map(part);
        assert_eq!(found, [829, 887, 55, 73]);
    }

    #[test]
    fn a_part_is_written_as_index_and_count() {
        let parse = |text: &str| text.parse::<Shard>();
        assert_eq!(parse("0/1"), Ok(Shard::ALL));
        assert_eq!(parse("2/3").unwrap().to_string(), "2/3");
        for (text, words) in [
            ("", "must be INDEX/COUNT"),
            ("1", "must be INDEX/COUNT"),
            ("-1/2", "must be INDEX/COUNT"),
            ("+1/2", "must be INDEX/COUNT"),
            ("1/2/3", "must be INDEX/COUNT"),
            ("/2", "must be INDEX/COUNT"),
            ("0/99999999999", "must be INDEX/COUNT"),
            ("0/0", "COUNT must be from 1 to 1000"),
            ("0/1001", "COUNT must be from 1 to 1000"),
            ("2/2", "INDEX must be from 0 to 1"),
        ] {
            assert!(parse(text).unwrap_err().starts_with(words), "{text}");
        }
    }
}
