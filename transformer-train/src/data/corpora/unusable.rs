//! Pairs that are skipped while their file is read, before any filter.

use std::fmt::Display;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::data::corpora::text_lines::MAX_LINE_BYTES;

/// How many pairs of files are skipped while reading, by reason.
///
/// Both formats have the same rules. Two blank sides are not a pair, and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnusablePairs {
    /// Pairs with a sentence on one side only.
    pub empty_side: usize,
    /// Pairs of more than 1 MiB of text.
    pub oversized: usize,
}

impl UnusablePairs {
    /// The total number.
    pub fn count(&self) -> usize {
        self.empty_side + self.oversized
    }

    /// A line for each reason, such as `2 pairs are skipped: a side is empty`, where `noun` is `pair`.
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

/// A line about pairs skipped for one reason.
pub(crate) fn left_out(pairs: usize, noun: &str, reason: impl Display) -> String {
    match pairs {
        1 => format!("1 {noun} is skipped: {reason}"),
        pairs => format!("{pairs} {noun}s are skipped: {reason}"),
    }
}

/// Pairs skipped because the tokenizer cannot encode one of their sentences.
#[cfg(feature = "text")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedPairs {
    /// Number of pairs.
    pub pairs: usize,
    /// Location of the first, and the problem with it.
    pub first: String,
}

#[cfg(feature = "text")]
impl FailedPairs {
    /// Counts a pair; `problem` returns its location and the problem.
    pub fn add(&mut self, problem: impl FnOnce() -> String) {
        if self.pairs == 0 {
            self.first = problem();
        }
        self.pairs += 1;
    }

    /// A line about them, if there are any: `1 pair is skipped: web.tsv: line 7: the source sentence: …`, where
    /// `noun` is `pair`.
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
