//! Pairs that are left out when their file is read, whatever is done with the others.

use std::fmt::Display;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::data::corpora::text_lines::MAX_LINE_BYTES;

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
pub(crate) fn left_out(pairs: usize, noun: &str, reason: impl Display) -> String {
    match pairs {
        1 => format!("1 {noun} is left out: {reason}"),
        pairs => format!("{pairs} {noun}s are left out: {reason}"),
    }
}

/// Pairs that are left out because the tokenizer cannot encode a sentence of theirs.
#[cfg(feature = "text")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedPairs {
    /// How many they are.
    pub pairs: usize,
    /// The place of the first, and the problem with it.
    pub first: String,
}

#[cfg(feature = "text")]
impl FailedPairs {
    /// Counts a pair; `problem` is where it stands, and the problem.
    pub fn add(&mut self, problem: impl FnOnce() -> String) {
        if self.pairs == 0 {
            self.first = problem();
        }
        self.pairs += 1;
    }

    /// A line about them, if there are some: `1 pair is left out: web.tsv: line 7: the source sentence: …`, where `noun`
    /// is `pair`.
    pub fn left_out(&self, noun: &str) -> Option<String> {
        let first = &self.first;
        match self.pairs {
            0 => None,
            1 => Some(left_out(1, noun, first)),
            pairs => {
                let reason = format!("the tokenizer cannot encode them; the first: {first}");
                Some(left_out(pairs, noun, reason))
            }
        }
    }
}
