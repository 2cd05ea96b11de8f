//! Batches by tokens (§5.1): examples of similar length together, up to a token budget.

use std::ops::Range;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thiserror::Error;

use crate::data::batches::source::ExampleSource;
use crate::data::example::{Example, Lengths};

/// Why examples cannot be batched.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// There are no examples.
    #[error("no {name} to put into batches")]
    NoExamples {
        /// What an example is called.
        name: &'static str,
    },
    /// An example is longer than a whole batch.
    #[error("{name} {index} has {lengths}, more than the batch limit of {batch_tokens}")]
    TooLong {
        /// What an example is called.
        name: &'static str,
        /// Position of the example, from 0.
        index: usize,
        /// Lengths of its rows.
        lengths: Lengths,
        /// Maximum tokens per side of a batch.
        batch_tokens: usize,
    },
    /// A weight is not positive and finite, or so small that an epoch has none of its examples.
    #[error(
        "weight {weight} of {examples} {name}s; it must be positive and finite, and give at least one per epoch"
    )]
    Weight {
        /// What an example is called.
        name: &'static str,
        /// Number of examples with that weight.
        examples: usize,
        /// The weight.
        weight: String,
    },
    /// An epoch has too many examples.
    #[error("more than {limit} {name}s in an epoch")]
    TooMany {
        /// What an example is called.
        name: &'static str,
        /// Maximum number of examples in an epoch.
        limit: usize,
    },
}

/// Maximum number of examples in an epoch, repetitions included: positions are stored in 32 bits.
const MAX_EXAMPLES: usize = u32::MAX as usize;

/// Groups the examples of an epoch into batches.
///
/// A padded batch of examples *e* has at most `batch_tokens` tokens on each side:
///
/// `rows · maxₑ source(e) ≤ batch_tokens` and `rows · maxₑ target(e) ≤ batch_tokens`.
///
/// The paper says "approximately 25000 source tokens and 25000 target tokens"; here padding counts, as it does in
/// memory.
///
/// It stores 8 bytes per example, and each epoch needs 4 more per example.
#[derive(Clone, Debug)]
pub struct BatchSampler {
    /// Lengths of source and target.
    lengths: Vec<[u32; 2]>,
    /// No part is empty.
    parts: Vec<Part>,
    batch_tokens: usize,
    seed: u64,
}

/// Examples of one weight, and how often they occur in an epoch.
#[derive(Clone, Debug)]
struct Part {
    positions: Range<u32>,
    /// How often each of them occurs in every epoch.
    times: usize,
    /// How many of them, drawn for each epoch, occur once more.
    drawn: usize,
}

impl Part {
    fn new(positions: Range<usize>, weight: f64) -> Self {
        let drawn = weight.fract() * positions.len() as f64;
        Self {
            positions: positions.start as u32..positions.end as u32,
            times: weight.trunc() as usize,
            drawn: drawn.round() as usize,
        }
    }

    /// The number of examples of this part in an epoch.
    fn examples(&self) -> usize {
        self.positions.len() * self.times + self.drawn
    }
}

impl BatchSampler {
    /// Prepares batches of `examples`, each once per epoch, with at most `batch_tokens` padded tokens per side.
    ///
    /// # Errors
    /// [`BatchError::NoExamples`] without examples, [`BatchError::TooLong`] when one does not fit a
    /// batch by itself, [`BatchError::TooMany`] when there are more than 2³² - 1.
    pub fn new<E: Example>(
        examples: &[E],
        batch_tokens: usize,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let lengths = examples.iter().map(Example::lengths);
        Self::build(
            E::NAME,
            lengths,
            vec![(0..examples.len(), 1.0)],
            batch_tokens,
            seed,
        )
    }

    /// Prepares batches of a source's examples, each as often per epoch as its weight says. Reads lengths, but no
    /// examples.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`BatchError::Weight`].
    ///
    /// # Panics
    /// When the source gives a weight to positions beyond its last example.
    pub fn of_source<S: ExampleSource + ?Sized>(
        source: &S,
        batch_tokens: usize,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let lengths = source.lengths();
        Self::build(
            S::Example::NAME,
            lengths.iter().copied(),
            source.weights(),
            batch_tokens,
            seed,
        )
    }

    fn build(
        name: &'static str,
        examples: impl ExactSizeIterator<Item = Lengths>,
        weights: Vec<(Range<usize>, f64)>,
        batch_tokens: usize,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let limit = MAX_EXAMPLES;
        let too_many = BatchError::TooMany { name, limit };
        let count = examples.len();
        if count > limit {
            return Err(too_many);
        }
        // Lengths are stored in 32 bits.
        let longest = batch_tokens.min(u32::MAX as usize);
        let mut lengths = Vec::with_capacity(count);
        for (index, example) in examples.enumerate() {
            if example.longest() > longest {
                return Err(BatchError::TooLong {
                    name,
                    index,
                    lengths: example,
                    batch_tokens: longest,
                });
            }
            lengths.push([example.source as u32, example.target as u32]);
        }
        let mut parts = Vec::with_capacity(weights.len());
        let mut total = 0.0;
        for (positions, weight) in weights {
            assert!(
                positions.end <= count,
                "a weight for {name} {}, but there are {count}",
                positions.end
            );
            let examples = positions.len();
            let part = Part::new(positions, weight);
            let counts = weight > 0.0 && weight.is_finite();
            if !counts || (examples > 0 && part.times == 0 && part.drawn == 0) {
                return Err(BatchError::Weight {
                    name,
                    examples,
                    weight: weight.to_string(),
                });
            }
            total += weight * examples as f64;
            if examples > 0 {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            return Err(BatchError::NoExamples { name });
        }
        if total > limit as f64 {
            return Err(too_many);
        }
        Ok(Self {
            lengths,
            parts,
            batch_tokens,
            seed,
        })
    }

    /// The batches of an epoch: the index of each example as often as its weight says, batches in random order,
    /// and examples of equal length distributed at random.
    ///
    /// They depend only on the examples' lengths and weights, the budget, the seed and `epoch`, so that a resumed
    /// run has the same batches.
    pub fn epoch(&self, epoch: usize) -> Vec<Vec<usize>> {
        self.plan(epoch).to_vecs()
    }

    /// Every example once, shortest first: the same batches each time, for evaluation.
    pub fn sequential(&self) -> Vec<Vec<usize>> {
        self.cut((0..self.lengths.len() as u32).collect()).to_vecs()
    }

    /// The number of examples.
    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// [`epoch`](Self::epoch), using less memory.
    pub(crate) fn plan(&self, epoch: usize) -> Plan {
        let mut rng = self.rng(epoch);
        let mut indices = self.entries(&mut rng);
        indices.shuffle(&mut rng);
        let mut plan = self.cut(indices);
        plan.batches.shuffle(&mut rng);
        plan
    }

    /// The number of batches in an epoch.
    pub(crate) fn batches_in(&self, epoch: usize) -> usize {
        // The order decides which examples of equal length share a batch, not how many.
        self.cut(self.entries(&mut self.rng(epoch))).len()
    }

    /// Whether every epoch has the same examples, and so the same number of batches.
    pub(crate) fn epochs_are_alike(&self) -> bool {
        self.parts.iter().all(|part| part.drawn == 0)
    }

    fn rng(&self, epoch: usize) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(epoch as u64);
        rng
    }

    /// The examples of an epoch, with repetitions. Draws from `rng` only where a weight is not an integer.
    fn entries(&self, rng: &mut impl Rng) -> Vec<u32> {
        let counts = self.parts.iter().map(Part::examples);
        let mut entries = Vec::with_capacity(counts.sum());
        for part in &self.parts {
            for _ in 0..part.times {
                entries.extend(part.positions.clone());
            }
            if part.drawn > 0 {
                let mut positions: Vec<u32> = part.positions.clone().collect();
                let (drawn, _) = positions.partial_shuffle(rng, part.drawn);
                entries.extend_from_slice(drawn);
            }
        }
        entries
    }

    /// Sorts by length (stably), and starts a new batch where the next example would exceed the budget.
    fn cut(&self, mut indices: Vec<u32>) -> Plan {
        indices.sort_by_key(|&index| {
            let [source, target] = self.lengths[index as usize];
            (source.max(target), target, source)
        });
        let mut batches = Vec::new();
        let mut start = 0;
        let mut longest = 0;
        for (at, &index) in indices.iter().enumerate() {
            let [source, target] = self.lengths[index as usize];
            let length = source.max(target) as usize;
            if longest.max(length) > self.batch_tokens / (at - start + 1) {
                batches.push(start..at);
                start = at;
                longest = 0;
            }
            longest = longest.max(length);
        }
        batches.push(start..indices.len());
        Plan { indices, batches }
    }
}

/// The batches of an epoch.
pub(crate) struct Plan {
    /// Positions of the examples, batch by batch.
    indices: Vec<u32>,
    /// The range of `indices` of each batch.
    batches: Vec<Range<usize>>,
}

impl Plan {
    /// The number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// The positions of the examples of a batch.
    pub fn batch(&self, number: usize) -> impl Iterator<Item = usize> {
        let range = self.batches[number].clone();
        self.indices[range].iter().map(|&index| index as usize)
    }

    fn to_vecs(&self) -> Vec<Vec<usize>> {
        (0..self.len()).map(|at| self.batch(at).collect()).collect()
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

    /// Short sentences with slightly longer translations, as in Tatoeba: 3 to 40 pieces, 9 on average.
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

    /// Fraction of padding among the padded tokens of both sides.
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
            "pair 1 has 5 source and 21 target tokens, more than the batch limit of 20"
        );
    }

    #[test]
    fn no_pairs_are_an_error() {
        let error = BatchSampler::new::<TokenizedPair>(&[], 20, 0).unwrap_err();
        assert_eq!(error, BatchError::NoExamples { name: "pair" });
    }

    /// An epoch as computed by 0.1.0, whose runs can be resumed.
    fn epoch_of_0_1_0(
        pairs: &[TokenizedPair],
        batch_tokens: usize,
        seed: u64,
        epoch: usize,
    ) -> Vec<Vec<usize>> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(epoch as u64);
        let mut indices: Vec<usize> = (0..pairs.len()).collect();
        indices.shuffle(&mut rng);
        indices.sort_by_key(|&i| {
            let (source, target) = (pairs[i].src_len(), pairs[i].tgt_len());
            (source.max(target), target, source)
        });
        let mut batches = Vec::new();
        let mut batch = Vec::new();
        let mut longest = 0;
        for index in indices {
            let length = pairs[index].src_len().max(pairs[index].tgt_len());
            if longest.max(length) > batch_tokens / (batch.len() + 1) {
                batches.push(std::mem::take(&mut batch));
                longest = 0;
            }
            longest = longest.max(length);
            batch.push(index);
        }
        batches.push(batch);
        batches.shuffle(&mut rng);
        batches
    }

    /// Pairs of which some occur in an epoch more often than others.
    struct Weighted(Vec<TokenizedPair>, Vec<(Range<usize>, f64)>);

    impl ExampleSource for Weighted {
        type Example = TokenizedPair;

        fn lengths(&self) -> std::borrow::Cow<'_, [Lengths]> {
            self.0.iter().map(Example::lengths).collect()
        }

        fn get(
            &self,
            index: usize,
            _epoch: usize,
        ) -> Result<TokenizedPair, crate::data::CorpusError> {
            Ok(self.0[index].clone())
        }

        fn checksum(&self) -> u32 {
            0
        }

        fn weights(&self) -> Vec<(Range<usize>, f64)> {
            self.1.clone()
        }
    }

    fn weighted(weights: Vec<(Range<usize>, f64)>) -> Result<BatchSampler, BatchError> {
        BatchSampler::of_source(&Weighted(short_sentences(30), weights), 256, 7)
    }

    /// How often each of 30 pairs occurs in an epoch.
    fn counts(sampler: &BatchSampler, epoch: usize) -> Vec<usize> {
        let mut counts = vec![0; 30];
        for index in sampler.epoch(epoch).concat() {
            counts[index] += 1;
        }
        counts
    }

    #[test]
    fn epochs_are_those_of_0_1_0_where_every_weight_is_one() {
        let pairs = short_sentences(300);
        let one = BatchSampler::new(&pairs, 256, 5).unwrap();
        let weights = vec![(0..120, 1.0), (120..300, 1.0)];
        let two = BatchSampler::of_source(&Weighted(pairs.clone(), weights), 256, 5).unwrap();
        for epoch in [0, 1, 17] {
            let expected = epoch_of_0_1_0(&pairs, 256, 5, epoch);
            assert_eq!(one.epoch(epoch), expected);
            assert_eq!(two.epoch(epoch), expected);
        }
    }

    #[test]
    fn pairs_stand_in_an_epoch_as_often_as_their_weight_says() {
        let sampler = weighted(vec![(0..10, 1.0), (10..20, 3.0), (20..20, 9.0)]).unwrap();
        for epoch in 0..3 {
            let expected = [vec![1; 10], vec![3; 10], vec![0; 10]].concat();
            assert_eq!(counts(&sampler, epoch), expected);
        }
    }

    #[test]
    fn each_epoch_draws_the_part_of_a_weight_that_is_no_whole_number() {
        let sampler = weighted(vec![(0..10, 1.0), (10..20, 2.3), (20..30, 0.5)]).unwrap();
        let drawn = |epoch| {
            let counts = counts(&sampler, epoch);
            assert_eq!(counts[..10], [1; 10]);
            assert!(counts[10..20].iter().all(|&count| count == 2 || count == 3));
            assert!(counts[20..].iter().all(|&count| count <= 1));
            assert_eq!(counts[10..20].iter().sum::<usize>(), 23);
            assert_eq!(counts[20..].iter().sum::<usize>(), 5);
            counts
        };
        assert_eq!(drawn(0), drawn(0));
        let epochs: Vec<_> = (0..40).map(drawn).collect();
        assert!(epochs.iter().any(|counts| *counts != epochs[0]));
        // Over many epochs, each of them is drawn.
        let often = |index: usize| epochs.iter().map(|counts| counts[index]).sum::<usize>();
        assert!((10..20).all(|index| often(index) > 80));
        assert!((20..30).all(|index| often(index) > 0));
    }

    #[test]
    fn weighted_batches_keep_the_budget() {
        let pairs = short_sentences(30);
        let sampler = weighted(vec![(0..15, 2.5), (15..30, 1.0)]).unwrap();
        for batch in sampler.epoch(3) {
            let (src_len, tgt_len) = longest(&pairs, &batch);
            assert!(batch.len() * src_len.max(tgt_len) <= 256);
        }
    }

    #[test]
    fn number_of_batches_is_known_without_the_epoch() {
        for weights in [
            vec![(0..30, 1.0)],
            vec![(0..10, 3.0), (10..30, 1.0)],
            vec![(0..30, 1.5)],
        ] {
            let sampler = weighted(weights).unwrap();
            for epoch in 0..5 {
                assert_eq!(sampler.batches_in(epoch), sampler.epoch(epoch).len());
                if sampler.epochs_are_alike() {
                    assert_eq!(sampler.batches_in(epoch), sampler.batches_in(0));
                }
            }
        }
    }

    #[test]
    fn weight_that_counts_nothing_is_refused() {
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.01] {
            let error = weighted(vec![(0..10, weight), (10..30, 1.0)]).unwrap_err();
            let expected = format!("weight {weight} of 10 pairs; it must be");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let error = weighted(vec![(0..30, 1e9)]).unwrap_err();
        assert_eq!(error.to_string(), "more than 4294967295 pairs in an epoch");
        let error = weighted(Vec::new()).unwrap_err();
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
