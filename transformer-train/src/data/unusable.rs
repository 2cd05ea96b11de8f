//! Pairs that are left out when their file is read, whatever is done with the others.

use std::fmt::Display;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::text_lines::MAX_LINE_BYTES;

/// How many pairs of files are left out when they are read, by reason.
///
/// Both formats have the same rules. Where both sides are blank there is no pair, and nothing is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnusablePairs {
    /// Pairs with a sentence on one side only.
    pub empty_side: usize,
    /// Pairs of more than a mebibyte of text.
    pub oversized: usize,
}

impl UnusablePairs {
    /// The number of all of them.
    pub fn count(&self) -> usize {
        self.empty_side + self.oversized
    }

    /// A line for each reason, such as `2 pairs are left out: a side is empty`, where `noun` is `pair`.
    pub fn left_out(&self, noun: &str) -> Vec<String> {
        let oversized = format!("longer than {MAX_LINE_BYTES} bytes");
        let reasons = [
            (self.empty_side, "a side is empty"),
            (self.oversized, oversized.as_str()),
        ];
        let reasons = reasons.into_iter().filter(|(pairs, _)| *pairs > 0);
        reasons
            .map(|(pairs, reason)| left_out(pairs, noun, reason))
            .collect()
    }
}

impl AddAssign for UnusablePairs {
    fn add_assign(&mut self, other: Self) {
        self.empty_side += other.empty_side;
        self.oversized += other.oversized;
    }
}

/// A line about pairs that are left out for one reason.
pub(super) fn left_out(pairs: usize, noun: &str, reason: impl Display) -> String {
    match pairs {
        1 => format!("1 {noun} is left out: {reason}"),
        pairs => format!("{pairs} {noun}s are left out: {reason}"),
    }
}
