//! Beam search: the choice of hypotheses and of the tokens that continue them (§6.1).

use std::cmp::Ordering;

/// A hypothesis and a token to continue it with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// Log-probability of the continued hypothesis, with the rules' penalties.
    pub rank: f64,
    /// Index of the hypothesis among those of the source.
    pub parent: usize,
    pub token: u32,
}

impl Candidate {
    /// The better one first; of equals the one of the lower parent, then of the lower token.
    fn before(&self, other: &Self) -> Ordering {
        let position = |candidate: &Self| (candidate.parent, candidate.token);
        let by_rank = other.rank.total_cmp(&self.rank);
        by_rank.then_with(|| position(self).cmp(&position(other)))
    }
}

/// The best `count` candidates, the best first. Tokens of log-probability −∞ are excluded.
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
    ///
    /// # Shapes
    /// - log_probs: `[tgt_vocab_size]`
    pub fn offer(&mut self, parent: usize, rank: f64, log_probs: &[f32]) {
        let mut least = self.least(rank);
        for (token, &log_prob) in log_probs.iter().enumerate() {
            if log_prob > least {
                self.insert(Candidate {
                    rank: rank + f64::from(log_prob),
                    parent,
                    token: token as u32,
                });
                least = self.least(rank);
            }
        }
    }

    pub fn into_sorted(self) -> Vec<Candidate> {
        self.candidates
    }

    /// The log-probability that the next token must exceed, for a hypothesis of that rank.
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
            best.offer(parent, *rank, log_probs);
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

    #[test]
    fn banned_tokens_are_no_candidates() {
        let out = f32::NEG_INFINITY;
        assert_eq!(best(3, &[(0.0, &[out, -7.0, out])]), [(-7.0, 0, 1)]);
        assert_eq!(best(3, &[(0.0, &[f32::NAN, out])]), []);
    }
}
