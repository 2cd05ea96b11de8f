//! The examples of each update, in order, prefetched.

use std::ops::Range;
use std::sync::Arc;

use crate::data::batches::ahead::Ahead;
use crate::data::batches::sampler::{BatchSampler, Plan};
use crate::data::batches::source::ExampleSource;
use crate::data::batches::update::Update;
use crate::data::error::CorpusError;
use crate::data::example::Example;

/// Number of updates that are prefetched.
const UPDATES_AHEAD: usize = 4;

/// The updates of one rank, epoch after epoch without end, starting at any update.
///
/// The examples of update `n` depend only on the source, the configuration and `n`, so that a resumed run
/// continues as the stopped one would have. The last update of an epoch may have fewer batches.
pub(crate) struct UpdateLoader<E: Example> {
    pub source: Arc<dyn ExampleSource<Example = E>>,
    pub sampler: Arc<BatchSampler>,
    /// Batches per update, over all ranks.
    pub batches_per_update: usize,
    pub first_update: usize,
    /// The rank that computes the batches, out of `ranks`.
    pub rank: usize,
    pub ranks: usize,
}

impl<E: Example> Clone for UpdateLoader<E> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            sampler: self.sampler.clone(),
            ..*self
        }
    }
}

impl<E: Example> UpdateLoader<E> {
    /// The updates in order, read by a background thread.
    pub fn start(&self) -> Ahead<Result<LoadedUpdate<E>, CorpusError>> {
        Ahead::new(Reading::new(self.clone()), UPDATES_AHEAD)
    }

    /// The epoch of the first update, and the index of its first batch in that epoch. Reads no example.
    fn first_batch(&self) -> (usize, usize) {
        let updates_in = |epoch| (self.sampler.batches_in(epoch)).div_ceil(self.batches_per_update);
        let (epoch, update) = if self.sampler.epochs_are_alike() {
            let in_each = updates_in(0);
            (self.first_update / in_each, self.first_update % in_each)
        } else {
            let (mut epoch, mut update) = (0, self.first_update);
            loop {
                let in_this = updates_in(epoch);
                if update < in_this {
                    break (epoch, update);
                }
                epoch += 1;
                update -= in_this;
            }
        };
        (epoch, update * self.batches_per_update)
    }
}

/// The batches of an update that belong to one rank. There may be none if the last update of an epoch has fewer
/// batches than there are ranks.
pub(crate) struct LoadedUpdate<E> {
    pub update: Update<E>,
    /// The positions of its examples, batch by batch.
    positions: Vec<usize>,
}

impl<E> LoadedUpdate<E> {
    /// Its examples, each with its position in the source.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &E)> {
        let examples = self.update.batches.iter().flatten();
        self.positions.iter().copied().zip(examples)
    }
}

/// The updates of an [`UpdateLoader`].
struct Reading<E: Example> {
    loader: UpdateLoader<E>,
    epoch: usize,
    plan: Plan,
    /// The index of the next batch.
    at: usize,
}

impl<E: Example> Reading<E> {
    fn new(loader: UpdateLoader<E>) -> Self {
        let (epoch, at) = loader.first_batch();
        Self {
            epoch,
            plan: loader.sampler.plan(epoch),
            at,
            loader,
        }
    }

    /// The range of the next update's batches in their epoch; starts a new epoch after the last batch of one.
    fn advance(&mut self) -> Range<usize> {
        if self.at == self.plan.len() {
            self.epoch += 1;
            self.plan = self.loader.sampler.plan(self.epoch);
            self.at = 0;
        }
        let start = self.at;
        self.at = (start + self.loader.batches_per_update).min(self.plan.len());
        start..self.at
    }

    /// Reads this rank's batches of an update: those whose index in the update, modulo the number of ranks, is the
    /// rank.
    fn read(&self, batches: Range<usize>) -> Result<LoadedUpdate<E>, CorpusError> {
        let UpdateLoader { rank, ranks, .. } = self.loader;
        let mut positions = Vec::new();
        let mut examples = Vec::with_capacity(batches.len().div_ceil(ranks));
        for number in batches.skip(rank).step_by(ranks) {
            let batch = self.plan.batch(number).map(|index| {
                positions.push(index);
                self.loader.source.get(index, self.epoch)
            });
            examples.push(batch.collect::<Result<Vec<E>, CorpusError>>()?);
        }
        Ok(LoadedUpdate {
            update: Update::new(examples),
            positions,
        })
    }
}

impl<E: Example> Iterator for Reading<E> {
    type Item = Result<LoadedUpdate<E>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.advance();
        Some(self.read(batches))
    }
}
