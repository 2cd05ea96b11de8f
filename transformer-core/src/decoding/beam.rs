//! Beam search: the choice of hypotheses and of the tokens that continue them (§6.1).

use std::cmp::Ordering;

use crate::decoding::candidates::Candidates;

/// A hypothesis and a token to continue it with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// Log-probability of the continued hypothesis, with the rules' penalties.
    pub rank: f64,
    /// Index of the continued hypothesis among the hypotheses of the source.
    pub parent: usize,
    pub token: u32,
}

impl Candidate {
    /// Better candidates first; ties by parent, then by token, lower first.
    fn before(&self, other: &Self) -> Ordering {
        let position = |candidate: &Self| (candidate.parent, candidate.token);
        let by_rank = other.rank.total_cmp(&self.rank);
        by_rank.then_with(|| position(self).cmp(&position(other)))
    }
}

/// Tokens that are skipped together if none of them is a candidate, as in most of a large vocabulary.
const CHUNK: usize = 64;

/// Whether a value is above `least`. The loop has no early exit, so that it is vectorized.
fn any_above(numbers: &[f32], least: f32) -> bool {
    numbers
        .iter()
        .fold(false, |any, &number| any | (number > least))
}

/// The best `count` candidates, best first. Tokens of log-probability −∞ are excluded.
pub(super) struct Best {
    count: usize,
    /// Sorted.
    candidates: Vec<Candidate>,
}

impl Best {
    pub fn new(count: usize) -> Self {
        Self {
            count,
            candidates: Vec::with_capacity(count + 1),
        }
    }

    /// Offers every continuation of a hypothesis.
    pub fn offer(&mut self, parent: usize, rank: f64, candidates: &Candidates<'_>) {
        let mut least = self.least(rank);
        for (index, chunk) in candidates.log_probs().chunks(CHUNK).enumerate() {
            if !any_above(chunk, least) {
                continue;
            }
            for (at, &log_prob) in chunk.iter().enumerate() {
                if log_prob > least {
                    self.insert(Candidate {
                        rank: rank + f64::from(log_prob),
                        parent,
                        token: candidates.token(index * CHUNK + at),
                    });
                    least = self.least(rank);
                }
            }
        }
    }

    pub fn into_sorted(self) -> Vec<Candidate> {
        self.candidates
    }

    /// The log-probability that the next token must exceed, for a hypothesis of this rank.
    fn least(&self, rank: f64) -> f32 {
        match self.candidates.last() {
            // Rounded down, so that none is missed.
            Some(last) if self.candidates.len() == self.count => {
                ((last.rank - rank) as f32).next_down()
            }
            _ => f32::NEG_INFINITY,
        }
    }

    fn insert(&mut self, candidate: Candidate) {
        let index = self
            .candidates
            .partition_point(|other| other.before(&candidate).is_lt());
        self.candidates.insert(index, candidate);
        self.candidates.truncate(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(count: usize, rows: &[(f64, &[f32])]) -> Vec<(f64, usize, u32)> {
        let mut best = Best::new(count);
        for (parent, (rank, log_probs)) in rows.iter().enumerate() {
            let mut log_probs = log_probs.to_vec();
            best.offer(parent, *rank, &Candidates::new(None, &mut log_probs));
        }
        let sorted = best.into_sorted().into_iter();
        sorted.map(|c| (c.rank, c.parent, c.token)).collect()
    }

    #[test]
    fn the_best_of_all_rows_come_first() {
        let rows: [(f64, &[f32]); 2] = [(-1.0, &[-3.0, -0.5, -2.0]), (-2.0, &[-0.25, -4.0, -1.0])];
        assert_eq!(
            best(4, &rows),
            [(-1.5, 0, 1), (-2.25, 1, 0), (-3.0, 0, 2), (-3.0, 1, 2),]
        );
        assert_eq!(best(1, &rows), [(-1.5, 0, 1)]);
    }

    #[test]
    fn of_equals_the_first_is_kept() {
        let rows: [(f64, &[f32]); 2] = [(0.0, &[-1.0, -1.0, -1.0]), (0.0, &[-1.0, -1.0, -1.0])];
        assert_eq!(best(2, &rows), [(-1.0, 0, 0), (-1.0, 0, 1)]);
    }

    /// Sizes around the chunk size, with ties, excluded tokens and NaN.
    #[test]
    fn every_token_of_a_large_vocabulary_is_offered() {
        for size in [1, 63, 64, 65, 128, 1000] {
            let log_probs: Vec<f32> = (0..size)
                .map(|token| match token % 11 {
                    3 => f32::NEG_INFINITY,
                    7 => f32::NAN,
                    _ => -((token * 7919 % 257) as f32),
                })
                .collect();
            let mut expected: Vec<(f64, usize, u32)> = (0..)
                .zip(&log_probs)
                .filter(|(_, log_prob)| log_prob.is_finite())
                .map(|(token, &log_prob)| (f64::from(log_prob), 0, token))
                .collect();
            expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
            for count in [1, 8, size] {
                let found = best(count, &[(0.0, &log_probs[..])]);
                assert_eq!(found, expected[..count.min(expected.len())]);
            }
        }
    }

    #[test]
    fn banned_tokens_are_no_candidates() {
        let out = f32::NEG_INFINITY;
        assert_eq!(best(3, &[(0.0, &[out, -7.0, out])]), [(-7.0, 0, 1)]);
        assert_eq!(best(3, &[(0.0, &[f32::NAN, out])]), []);
    }
}
