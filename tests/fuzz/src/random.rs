//! Random choices, a function of a seed.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers at which readers go wrong: the ends of types, and just beyond.
pub const EXTREMES: [u64; 26] = [
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    1023,
    1024,
    (1 << 15) - 1,
    1 << 15,
    (1 << 16) - 1,
    1 << 16,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 53,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// A generator.
pub struct Random(ChaCha8Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0 => 0,
            bound => self.0.random_range(0..bound),
        }
    }

    /// True once in this many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A small number of changes: most often 1.
    pub fn few(&mut self) -> usize {
        let mut count = 1;
        while count < 8 && self.one_in(2) {
            count += 1;
        }
        count
    }

    /// A part of something of this length; a short one most often.
    pub fn part(&mut self, length: usize) -> Range<usize> {
        let start = self.below(length + 1);
        let most = length - start;
        let most = if self.one_in(4) { most } else { most.min(16) };
        start..start + self.below(most + 1)
    }

    pub fn byte(&mut self) -> u8 {
        self.0.random()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// An extreme number, one beside it, or any.
    pub fn number(&mut self) -> u64 {
        let extreme = *self.pick(&EXTREMES);
        match self.below(4) {
            0 => extreme.wrapping_add(1),
            1 => self.0.random(),
            _ => extreme,
        }
    }
}
