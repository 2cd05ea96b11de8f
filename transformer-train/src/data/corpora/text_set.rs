//! A set of texts that does not keep them.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};

/// A set of texts, by hashes of 128 bits: in memory 16 bytes for each, and the room that a table keeps.
///
/// Two of a billion texts have the same hash with a probability of about 10⁻²¹.
#[derive(Default)]
pub(crate) struct TextSet {
    hashes: HashSet<u128>,
    keys: [RandomState; 2],
}

impl TextSet {
    /// Adds a text, or a pair of texts; `false` if it was there.
    pub fn insert(&mut self, text: impl Hash) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(&text));
        let hash = (u128::from(high) << 64) | u128::from(low);
        self.hashes.insert(hash)
    }
}
