//! Loaders of in-memory examples for Burn's training loop.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;

use crate::config::TrainingConfig;
use crate::data::{BatchSampler, Example, ExampleSource, LoadedUpdate, Update, UpdateLoader};
use crate::error::TrainError;
use crate::objective::Objective;

/// The updates of a run, for Burn's own training loop ([`learner`](crate::learner())): the same as those of
/// [`Trainer`](crate::Trainer) with the same configuration. An epoch of Burn's loop is the updates between two
/// validations ([`TrainingConfig::validate_every`]).
///
/// The examples are in memory. A source that can fail to read an example needs a `Trainer`.
pub struct Updates<E: Example> {
    loader: UpdateLoader<E>,
    /// Updates in the run.
    updates: usize,
    /// Updates per epoch.
    in_epoch: usize,
    /// The updates of each epoch that this loader yields: all, or those of one device.
    part: Range<usize>,
    /// Number of epochs begun.
    epoch: Arc<AtomicUsize>,
}

impl<E: Example> Clone for Updates<E> {
    fn clone(&self) -> Self {
        Self {
            loader: self.loader.clone(),
            part: self.part.clone(),
            epoch: self.epoch.clone(),
            ..*self
        }
    }
}

impl<E: Example> Updates<E> {
    /// The updates of a run of `model` on these examples.
    ///
    /// # Errors
    /// When the configuration is out of range, or an example does not fit a batch or the model.
    pub fn new<B: Backend, M: Objective<B, Example = E>>(
        model: &M,
        examples: Vec<E>,
        config: &TrainingConfig,
    ) -> Result<Arc<Self>, TrainError> {
        config.validate()?;
        let TrainingConfig {
            batch_tokens, seed, ..
        } = *config;
        let sampler = checked(model, &examples, batch_tokens, seed, "training")?;
        let in_epoch = config.validate_every.min(config.updates);
        Ok(Arc::new(Self {
            loader: UpdateLoader {
                source: Arc::new(examples),
                sampler: Arc::new(sampler),
                batches_per_update: config.batches_per_update,
                first_update: 0,
                rank: 0,
                ranks: 1,
            },
            updates: config.updates,
            in_epoch,
            part: 0..in_epoch,
            epoch: Arc::default(),
        }))
    }

    /// Sets the epoch after which to continue: the epoch of the checkpoint from which Burn's loop is resumed
    /// ([`checkpoint`](burn::train::SupervisedTraining::checkpoint)).
    pub fn begin_after(&self, epoch: usize) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// The number of epochs of the run, for [`num_epochs`](burn::train::SupervisedTraining::num_epochs).
    pub fn epochs(&self) -> usize {
        self.updates.div_ceil(self.in_epoch)
    }
}

impl<B: Backend, E: Example> DataLoader<B, Update<E>> for Updates<E> {
    /// The next epoch.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Update<E>> + 'a> {
        let before = self.epoch.fetch_add(1, Ordering::Relaxed) * self.in_epoch;
        let left = self.updates.saturating_sub(before);
        let Range { start, end } = self.part;
        let (start, end) = (start.min(left), end.min(left));
        let loader = UpdateLoader {
            first_update: before + start,
            ..self.loader.clone()
        };
        let updates = loader.start().take(end - start);
        let update = |loaded: Result<_, _>| -> Update<E> {
            let LoadedUpdate { update, .. } = loaded.expect("examples in memory can be read");
            update
        };
        Box::new(Counted {
            items: updates.map(update),
            read: 0,
            all: end - start,
        })
    }

    fn num_items(&self) -> usize {
        self.part.len()
    }

    fn to_device(&self, _device: &B::Device) -> Arc<dyn DataLoader<B, Update<E>>> {
        Arc::new(self.clone())
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Update<E>>> {
        let first = self.part.start;
        let end = (first + end).min(self.part.end);
        Arc::new(Self {
            part: (first + start).min(end)..end,
            epoch: Arc::new(AtomicUsize::new(self.epoch.load(Ordering::Relaxed))),
            ..self.clone()
        })
    }
}

/// Examples in memory, each once, in the same batches each time: for validation, also in Burn's own training loop
/// ([`learner`](crate::learner())).
#[derive(Debug, Clone)]
pub struct Batches<E> {
    examples: Arc<Vec<E>>,
    /// The positions of the examples of each batch.
    batches: Arc<Vec<Vec<usize>>>,
    /// The batches that this loader yields.
    part: Range<usize>,
}

impl<E: Example> Batches<E> {
    /// The validation batches of `model`, by a configuration's `batch_tokens` and `seed`.
    ///
    /// # Errors
    /// When the configuration is out of range, or an example does not fit a batch or the model.
    pub fn new<B: Backend, M: Objective<B, Example = E>>(
        model: &M,
        examples: Vec<E>,
        config: &TrainingConfig,
    ) -> Result<Arc<Self>, TrainError> {
        config.validate()?;
        let TrainingConfig {
            batch_tokens, seed, ..
        } = *config;
        let sampler = checked(model, &examples, batch_tokens, seed, "validation")?;
        Ok(Arc::new(Self::of(examples, &sampler)))
    }

    /// The batches of a sampler of these examples.
    pub(crate) fn of(examples: Vec<E>, sampler: &BatchSampler) -> Self {
        let batches = sampler.sequential();
        Self {
            examples: Arc::new(examples),
            part: 0..batches.len(),
            batches: Arc::new(batches),
        }
    }

    /// The batches, in order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Vec<E>> {
        let batches = self.batches[self.part.clone()].iter();
        let example = |&index: &usize| self.examples[index].clone();
        batches.map(move |batch| batch.iter().map(example).collect())
    }
}

impl<B: Backend, E: Example> DataLoader<B, Vec<E>> for Batches<E> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Vec<E>> + 'a> {
        Box::new(Counted {
            items: self.batches(),
            read: 0,
            all: self.part.len(),
        })
    }

    fn num_items(&self) -> usize {
        self.part.len()
    }

    fn to_device(&self, _device: &B::Device) -> Arc<dyn DataLoader<B, Vec<E>>> {
        Arc::new(self.clone())
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Vec<E>>> {
        let first = self.part.start;
        let end = (first + end).min(self.part.end);
        Arc::new(Self {
            part: (first + start).min(end)..end,
            ..self.clone()
        })
    }
}

/// The items of a loader, with the number of items read.
struct Counted<I> {
    items: I,
    read: usize,
    all: usize,
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let item = self.items.next()?;
        self.read += 1;
        Some(item)
    }
}

impl<I: Iterator> DataLoaderIterator<I::Item> for Counted<I> {
    fn progress(&self) -> Progress {
        Progress::new(self.read, self.all)
    }
}

/// The batches of a source, once the examples to be checked before a run fit the model.
pub(crate) fn checked<B: Backend, M: Objective<B>>(
    model: &M,
    examples: &dyn ExampleSource<Example = M::Example>,
    batch_tokens: usize,
    seed: u64,
    part: &'static str,
) -> Result<BatchSampler, TrainError> {
    for index in examples.checked_first() {
        check(model, &examples.get(index, 0)?, index, part)?;
    }
    let name = M::Example::NAME;
    BatchSampler::of_source(examples, batch_tokens, seed).map_err(|source| TrainError::Batches {
        part,
        name,
        source,
    })
}

/// Checks that the model can learn from the example at position `index`.
pub(crate) fn check<B: Backend, M: Objective<B>>(
    model: &M,
    example: &M::Example,
    index: usize,
    part: &'static str,
) -> Result<(), TrainError> {
    let name = M::Example::NAME;
    model.check(example).map_err(|problem| TrainError::Example {
        part,
        name,
        index,
        problem,
    })
}
