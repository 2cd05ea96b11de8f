//! Filters of sentence pairs, and counts of the pairs that they skip.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::data::corpora::unusable::{FailedPairs, UnusablePairs, left_out};
use crate::data::error::CorpusError;
use crate::data::example::TokenizedPair;

/// Which pairs are trained on. By default, those with at most 128 pieces on each side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PairFilters {
    /// Maximum pieces per side: the memory of attention grows with the square of the length.
    pub max_pieces: usize,
    /// Maximum ratio between the numbers of pieces of the longer and the shorter side. If absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ratio: Option<f64>,
    /// Whether to skip each pair whose source and target both equal those of an earlier pair in any of the files.
    pub drop_duplicates: bool,
}

impl Default for PairFilters {
    fn default() -> Self {
        Self {
            max_pieces: 128,
            max_ratio: None,
            drop_duplicates: false,
        }
    }
}

impl PairFilters {
    /// Checks that each filter accepts some pair.
    pub(crate) fn check(&self) -> Result<(), CorpusError> {
        let ratio = self.max_ratio.unwrap_or(1.0);
        let counts = self.max_pieces > 0;
        CorpusError::check("max_pieces", self.max_pieces, counts, "at least 1")?;
        CorpusError::check("max_ratio", ratio, ratio >= 1.0, "at least 1")
    }
}

/// Why a usable pair was skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LeftOut {
    /// Its source sentence is held out.
    HeldOut,
    /// It equals an earlier pair.
    Duplicate,
    /// A side has more pieces than [`PairFilters::max_pieces`].
    TooLong {
        /// Maximum pieces per side.
        max_pieces: usize,
    },
    /// Its sides differ by more than [`PairFilters::max_ratio`].
    Uneven {
        /// Maximum ratio between the longer and the shorter side.
        max_ratio: f64,
    },
}

impl LeftOut {
    /// A line about this many pairs, such as `2 pairs are skipped: equal to an earlier pair`.
    pub fn line(self, pairs: usize) -> String {
        let reason: String = match self {
            Self::HeldOut => "their source sentence is held out".into(),
            Self::Duplicate => "equal to an earlier pair".into(),
            Self::TooLong { max_pieces } => format!("more than {max_pieces} pieces on a side"),
            Self::Uneven { max_ratio } => {
                format!("one side has more than {max_ratio} times the pieces of the other")
            }
        };
        left_out(pairs, "pair", reason)
    }
}

/// How many pairs were read, kept and skipped. A skipped pair counts under the first reason that applies.
///
/// Displayed in one line: `176396 of 180000 pairs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Filtered {
    /// The filters.
    pub filters: PairFilters,
    /// Pairs in the files.
    pub read: usize,
    /// Pairs skipped when their file was read.
    #[serde(default)]
    pub unusable: UnusablePairs,
    /// Pairs that the tokenizer cannot encode.
    #[serde(default)]
    pub failed: FailedPairs,
    /// Pairs whose source is held out, including those used for validation.
    pub held_out: usize,
    /// Pairs equal to an earlier pair.
    pub duplicates: usize,
    /// Pairs with more pieces on a side than [`PairFilters::max_pieces`].
    pub too_long: usize,
    /// Pairs whose sides differ by more than [`PairFilters::max_ratio`].
    pub uneven: usize,
    /// The remaining pairs, which are trained on.
    pub kept: usize,
}

impl Filtered {
    pub(crate) fn new(filters: PairFilters) -> Self {
        Self {
            filters,
            read: 0,
            unusable: UnusablePairs::default(),
            failed: FailedPairs::default(),
            held_out: 0,
            duplicates: 0,
            too_long: 0,
            uneven: 0,
            kept: 0,
        }
    }

    /// The reasons for which usable pairs were skipped, each with the number of pairs.
    pub fn reasons(&self) -> Vec<(LeftOut, usize)> {
        let PairFilters {
            max_pieces,
            max_ratio,
            ..
        } = self.filters;
        let max_ratio = max_ratio.unwrap_or(f64::INFINITY);
        let reasons = [
            (LeftOut::HeldOut, self.held_out),
            (LeftOut::Duplicate, self.duplicates),
            (LeftOut::TooLong { max_pieces }, self.too_long),
            (LeftOut::Uneven { max_ratio }, self.uneven),
        ];
        let reasons = reasons.into_iter().filter(|(_, pairs)| *pairs > 0);
        reasons.collect()
    }

    /// A line for each reason for which pairs were skipped.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = self.unusable.left_out("pair");
        lines.extend(self.failed.left_out("pair"));
        let reasons = self.reasons().into_iter();
        lines.extend(reasons.map(|(reason, pairs)| reason.line(pairs)));
        lines
    }

    /// Counts the pairs of a file that its reader skipped.
    pub(crate) fn count_unusable(&mut self, unusable: UnusablePairs) {
        self.read += unusable.count();
        self.unusable += unusable;
    }

    /// Whether a pair is within both length limits. Counts it either way.
    pub(crate) fn passes(&mut self, pair: &TokenizedPair) -> bool {
        let (source, target) = (pair.source.len(), pair.target.len());
        let (shorter, longer) = (source.min(target), source.max(target));
        let uneven = |ratio| longer as f64 > ratio * shorter as f64;
        if longer > self.filters.max_pieces {
            self.too_long += 1;
        } else if self.filters.max_ratio.is_some_and(uneven) {
            self.uneven += 1;
        } else {
            self.kept += 1;
            return true;
        }
        false
    }
}

impl fmt::Display for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pairs", self.kept, self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the caches of runs that began before this count existed.
    #[test]
    fn a_count_without_unusable_pairs_is_read() {
        let filtered = Filtered::new(PairFilters::default());
        let mut json = serde_json::to_value(&filtered).unwrap();
        for key in ["unusable", "failed"] {
            assert!(json.as_object_mut().unwrap().remove(key).is_some());
        }
        let read: Filtered = serde_json::from_value(json).unwrap();
        assert_eq!(read, filtered);
    }
}
