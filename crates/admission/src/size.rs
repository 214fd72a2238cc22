//! What it costs to read a JSON text into a tree of values. A [`Reader`](super::json::Reader) counts it as it goes.

/// An item of a list (`serde_json::Value` has 32 bytes), twice: a list grows by doubling.
const ITEM: usize = 64;

/// The first item of a list, which then has place for four.
const FIRST_ITEM: usize = 128;

/// The first member of an object: a leaf of a B-tree of 632 bytes, and the allocator's rounding.
const FIRST_MEMBER: usize = 640;

/// A further member: splits leave at least five members in a leaf, and the inner nodes come to less than one in four.
const MEMBER: usize = FIRST_MEMBER / 4;

/// A string besides its bytes: the allocator's rounding.
const STRING: usize = 16;

/// The size of a JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Levels of nesting.
    pub(crate) depth: usize,
    /// Bytes of memory of the tree of values, estimated from above for 64-bit machines.
    pub(crate) memory: usize,
}

impl Size {
    pub(crate) fn add_level(&mut self, depth: usize) {
        self.depth = self.depth.max(depth);
    }

    /// Adds a tree that `serde_json` reads out of a string, and so may be of any depth and take any memory.
    pub(crate) fn add_hidden(&mut self) {
        self.depth = usize::MAX;
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        self.memory += STRING + text.len();
    }

    pub(crate) fn add_item(&mut self, is_first: bool) {
        self.memory += if is_first { FIRST_ITEM } else { ITEM };
    }

    pub(crate) fn add_member(&mut self, is_first: bool) {
        self.memory += if is_first { FIRST_MEMBER } else { MEMBER };
    }
}
