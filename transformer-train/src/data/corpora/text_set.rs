//! A set of texts that does not store them.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};

/// A set of texts, stored as 128-bit hashes: 16 bytes per text, plus the spare capacity of a hash table.
///
/// In a set of a billion texts, the probability that any two have the same hash is about 10⁻²¹.
#[derive(Default)]
pub(crate) struct TextSet {
    hashes: HashSet<u128>,
    keys: [RandomState; 2],
}

impl TextSet {
    /// Adds a text or a pair of texts; `false` if it was already in the set.
    pub fn insert(&mut self, text: impl Hash) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(&text));
        let hash = (u128::from(high) << 64) | u128::from(low);
        self.hashes.insert(hash)
    }
}
