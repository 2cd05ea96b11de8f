//! Batches by tokens (§5.1): examples of similar length together, up to a number of tokens.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use thiserror::Error;

use super::example::{Example, Lengths};

/// Why examples cannot be put into batches.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// There is nothing to train on.
    #[error("no {name} to put into batches")]
    NoExamples {
        /// The noun for an example.
        name: &'static str,
    },
    /// One example is longer than a whole batch.
    #[error("{name} {index} has {lengths}, more than the {batch_tokens} of a batch")]
    TooLong {
        /// The noun for an example.
        name: &'static str,
        /// Position of the example, from 0.
        index: usize,
        /// Lengths of its rows.
        lengths: Lengths,
        /// The most tokens that a side of a batch may have.
        batch_tokens: usize,
    },
}

/// Groups examples into the batches of an epoch.
///
/// A batch of examples *e* fills, once padded, at most `batch_tokens` on each side:
///
/// `rows · maxₑ source(e) ≤ batch_tokens` and `rows · maxₑ target(e) ≤ batch_tokens`.
///
/// The paper says "approximately 25000 source tokens and 25000 target tokens"; padding counts here,
/// as it does in memory.
#[derive(Clone, Debug)]
pub struct BatchSampler {
    lengths: Vec<Lengths>,
    batch_tokens: usize,
    seed: u64,
}

impl BatchSampler {
    /// Prepares batches of `examples` with at most `batch_tokens` padded tokens a side.
    ///
    /// # Errors
    /// [`BatchError::NoExamples`] without examples, [`BatchError::TooLong`] when one does not fit a
    /// batch by itself.
    pub fn new<E: Example>(
        examples: &[E],
        batch_tokens: usize,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let name = E::NAME;
        if examples.is_empty() {
            return Err(BatchError::NoExamples { name });
        }
        let lengths: Vec<_> = examples.iter().map(Example::lengths).collect();
        let too_long = |lengths: &Lengths| lengths.longest() > batch_tokens;
        if let Some(index) = lengths.iter().position(too_long) {
            return Err(BatchError::TooLong {
                name,
                index,
                lengths: lengths[index],
                batch_tokens,
            });
        }
        Ok(Self {
            lengths,
            batch_tokens,
            seed,
        })
    }

    /// The batches of an epoch: each example's index once, batches in random order, and
    /// examples of equal lengths dealt out at random.
    ///
    /// They depend on the examples' lengths, the budget, the seed and `epoch` only, so that a resumed
    /// run has the batches of the run that stopped.
    pub fn epoch(&self, epoch: usize) -> Vec<Vec<usize>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(epoch as u64);
        let mut indices: Vec<usize> = (0..self.lengths.len()).collect();
        indices.shuffle(&mut rng);
        let mut batches = self.cut(indices);
        batches.shuffle(&mut rng);
        batches
    }

    /// Every example once, shortest first: the same batches each time, for evaluation.
    pub fn sequential(&self) -> Vec<Vec<usize>> {
        self.cut((0..self.lengths.len()).collect())
    }

    /// Sorts by length (stably), and cuts where the next example would exceed the budget.
    fn cut(&self, mut indices: Vec<usize>) -> Vec<Vec<usize>> {
        indices.sort_by_key(|&i| {
            let Lengths { source, target } = self.lengths[i];
            (source.max(target), target, source)
        });
        let mut batches = Vec::new();
        let mut batch = Vec::new();
        let mut longest = 0;
        for index in indices {
            let length = self.lengths[index].longest();
            if longest.max(length) > self.batch_tokens / (batch.len() + 1) {
                batches.push(std::mem::take(&mut batch));
                longest = 0;
            }
            longest = longest.max(length);
            batch.push(index);
        }
        batches.push(batch);
        batches
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::RngExt;

    use super::*;
    use crate::data::example::TokenizedPair;

    fn pairs(lengths: &[(usize, usize)]) -> Vec<TokenizedPair> {
        let pair = |&(source, target): &(usize, usize)| TokenizedPair {
            source: vec![4; source],
            target: vec![4; target],
        };
        lengths.iter().map(pair).collect()
    }

    /// Short sentences with translations a little longer, as in Tatoeba: 3 to 40 pieces, 9 on
    /// average.
    fn short_sentences(n: usize) -> Vec<TokenizedPair> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut lengths = || {
            let mut source = 3;
            while source < 40 && rng.random_ratio(6, 7) {
                source += 1;
            }
            (source, source + rng.random_range(0..=source / 2))
        };
        pairs(&(0..n).map(|_| lengths()).collect::<Vec<_>>())
    }

    fn longest(pairs: &[TokenizedPair], batch: &[usize]) -> (usize, usize) {
        let longest = |len: fn(&TokenizedPair) -> usize| {
            let lengths = batch.iter().map(|&i| len(&pairs[i]));
            lengths.max().unwrap()
        };
        (
            longest(TokenizedPair::src_len),
            longest(TokenizedPair::tgt_len),
        )
    }

    fn assert_valid(pairs: &[TokenizedPair], batches: &[Vec<usize>], batch_tokens: usize) {
        let mut indices = batches.concat();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..pairs.len()), "each pair once");
        for batch in batches {
            assert!(!batch.is_empty());
            let (src_len, tgt_len) = longest(pairs, batch);
            assert!(batch.len() * src_len.max(tgt_len) <= batch_tokens);
        }
    }

    /// Share of the padded tokens, both sides together, that are padding.
    fn padding(pairs: &[TokenizedPair], batches: &[Vec<usize>]) -> f64 {
        let padded = |batch: &Vec<usize>| {
            let (src_len, tgt_len) = longest(pairs, batch);
            batch.len() * (src_len + tgt_len)
        };
        let padded: usize = batches.iter().map(padded).sum();
        let real: usize = pairs.iter().map(|p| p.src_len() + p.tgt_len()).sum();
        1.0 - real as f64 / padded as f64
    }

    #[test]
    fn lengths_count_the_tokens_that_batches_add() {
        let pair = &pairs(&[(3, 5)])[0];
        assert_eq!((pair.src_len(), pair.tgt_len()), (4, 6));
    }

    #[test]
    fn batch_is_cut_where_the_next_pair_would_exceed_the_budget() {
        // Rows of 4 and 6 tokens: 3 · 6 ≤ 20 < 4 · 6.
        let pairs = pairs(&[(3, 5); 7]);
        let sampler = BatchSampler::new(&pairs, 20, 0).unwrap();
        let expected = [vec![0, 1, 2], vec![3, 4, 5], vec![6]];
        assert_eq!(sampler.sequential(), expected);
    }

    #[test]
    fn either_side_can_fill_the_budget() {
        for lengths in [(9, 1), (1, 9)] {
            let pairs = pairs(&[lengths; 4]);
            let sampler = BatchSampler::new(&pairs, 20, 0).unwrap();
            assert_eq!(sampler.sequential(), [[0, 1], [2, 3]]);
        }
    }

    #[test]
    fn sequential_goes_from_short_to_long() {
        let pairs = pairs(&[(2, 7), (8, 3), (2, 3), (4, 4)]);
        let sampler = BatchSampler::new(&pairs, 100, 0).unwrap();
        assert_eq!(sampler.sequential(), [[2, 3, 0, 1]]);
    }

    #[test]
    fn epoch_is_decided_by_seed_and_number() {
        let pairs = short_sentences(500);
        let plan = |seed, epoch| BatchSampler::new(&pairs, 256, seed).unwrap().epoch(epoch);
        assert_eq!(plan(1, 3), plan(1, 3));
        assert_ne!(plan(1, 3), plan(1, 4));
        assert_ne!(plan(1, 3), plan(2, 3));
        assert_ne!(plan(1, 0), plan(0, 1));
    }

    #[test]
    fn epochs_differ_in_their_batches_not_only_in_order() {
        let pairs = short_sentences(2000);
        let sampler = BatchSampler::new(&pairs, 256, 0).unwrap();
        let groups = |epoch| {
            let mut batches = sampler.epoch(epoch);
            batches.iter_mut().for_each(|batch| batch.sort_unstable());
            batches.sort_unstable();
            batches
        };
        assert_ne!(groups(0), groups(1));
    }

    #[test]
    fn batches_of_an_epoch_are_not_in_order_of_length() {
        let pairs = short_sentences(2000);
        let sampler = BatchSampler::new(&pairs, 256, 0).unwrap();
        let by_length =
            |batches: Vec<Vec<usize>>| batches.is_sorted_by_key(|batch| longest(&pairs, batch).1);
        assert!(by_length(sampler.sequential()));
        assert!(!by_length(sampler.epoch(0)));
    }

    #[test]
    fn little_is_padding() {
        let pairs = short_sentences(20_000);
        let sampler = BatchSampler::new(&pairs, 2048, 0).unwrap();
        let padding = padding(&pairs, &sampler.epoch(0));
        assert!(padding < 0.05, "{padding}");
    }

    #[test]
    fn pair_longer_than_a_batch_is_named() {
        let pairs = pairs(&[(3, 3), (4, 20)]);
        let error = BatchSampler::new(&pairs, 20, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pair 1 has 5 source and 21 target tokens, more than the 20 of a batch"
        );
    }

    #[test]
    fn no_pairs_are_an_error() {
        let error = BatchSampler::new::<TokenizedPair>(&[], 20, 0).unwrap_err();
        assert_eq!(error, BatchError::NoExamples { name: "pair" });
    }

    proptest! {
        #[test]
        fn every_pair_is_batched_once_within_the_budget(
            lengths in prop::collection::vec((0usize..60, 0usize..60), 1..200),
            spare in 0usize..400,
            seed: u64,
            epoch: usize,
        ) {
            let pairs = pairs(&lengths);
            let batch_tokens = 60 + spare;
            let sampler = BatchSampler::new(&pairs, batch_tokens, seed).unwrap();
            assert_valid(&pairs, &sampler.epoch(epoch), batch_tokens);
            assert_valid(&pairs, &sampler.sequential(), batch_tokens);
        }
    }
}
