//! The examples of each update, one update after the other, and of validation.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;

use super::example::Example;
use super::sampler::BatchSampler;

/// The batches whose gradients make one update.
///
/// They hold examples, not tensors: the model makes the tensors, on the device that computes its part
/// of the update.
#[derive(Debug, Clone, PartialEq)]
pub struct Update<E> {
    /// One or more batches of examples.
    pub batches: Vec<Vec<E>>,
    /// Tokens that count in the loss of the whole update, of which these batches may be a part.
    pub loss_tokens: usize,
}

impl<E: Example> Update<E> {
    /// An update of the given batches.
    pub fn new(batches: Vec<Vec<E>>) -> Self {
        let tokens = batches.iter().flatten().map(Example::loss_tokens);
        Self {
            loss_tokens: tokens.sum(),
            batches,
        }
    }

    /// Deals the batches out to `n` devices. Where there are fewer batches than devices, some get
    /// none.
    pub(crate) fn deal(self, n: usize) -> Vec<Self> {
        let mut parts: Vec<Self> = (0..n)
            .map(|_| Self {
                batches: Vec::new(),
                loss_tokens: self.loss_tokens,
            })
            .collect();
        for (index, batch) in self.batches.into_iter().enumerate() {
            parts[index % n].batches.push(batch);
        }
        parts.retain(|part| !part.batches.is_empty());
        parts
    }
}

/// The examples of a run and how they are put into batches.
#[derive(Debug, Clone)]
pub(crate) struct Examples<E> {
    pub all: Arc<Vec<E>>,
    pub sampler: Arc<BatchSampler>,
}

impl<E: Example> Examples<E> {
    fn batch(&self, indices: &[usize]) -> Vec<E> {
        indices
            .iter()
            .map(|&index| self.all[index].clone())
            .collect()
    }
}

/// Endless updates: epoch after epoch, from any update on.
///
/// The examples of update `n` are a function of all examples, the configuration and `n`, so that a
/// resumed run continues as the stopped one would have. The last update of an epoch may hold fewer
/// batches.
#[derive(Clone)]
pub(crate) struct UpdateLoader<E> {
    pub examples: Examples<E>,
    pub batches_per_update: usize,
    pub first_update: usize,
}

impl<B: Backend, E: Example> DataLoader<B, Update<E>> for UpdateLoader<E> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Update<E>> + 'a> {
        let mut updates = Updates {
            loader: self,
            epoch: 0,
            batches: self.examples.sampler.epoch(0),
            at: 0,
        };
        for _ in 0..self.first_update {
            updates.advance();
        }
        Box::new(updates)
    }

    fn num_items(&self) -> usize {
        self.examples.all.len()
    }

    fn to_device(&self, _device: &B::Device) -> Arc<dyn DataLoader<B, Update<E>>> {
        // Examples are on no device.
        Arc::new(self.clone())
    }

    fn slice(&self, start: usize, _end: usize) -> Arc<dyn DataLoader<B, Update<E>>> {
        // Updates have no end; a slice of them starts later.
        Arc::new(Self {
            first_update: self.first_update + start,
            ..self.clone()
        })
    }
}

struct Updates<'a, E> {
    loader: &'a UpdateLoader<E>,
    epoch: usize,
    batches: Vec<Vec<usize>>,
    at: usize,
}

impl<E: Example> Updates<'_, E> {
    /// The range of the next update's batches in their epoch; begins a new epoch after the last batch
    /// of one.
    fn advance(&mut self) -> std::ops::Range<usize> {
        if self.at == self.batches.len() {
            self.epoch += 1;
            self.batches = self.loader.examples.sampler.epoch(self.epoch);
            self.at = 0;
        }
        let start = self.at;
        self.at = (start + self.loader.batches_per_update).min(self.batches.len());
        start..self.at
    }
}

impl<E: Example> Iterator for Updates<'_, E> {
    type Item = Update<E>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.advance();
        let batches = self.batches[range].iter();
        Some(Update::new(
            batches
                .map(|indices| self.loader.examples.batch(indices))
                .collect(),
        ))
    }
}

impl<E: Example> DataLoaderIterator<Update<E>> for Updates<'_, E> {
    fn progress(&self) -> Progress {
        Progress::new(self.at, self.batches.len())
    }
}

/// Every example once, in the same batches each time.
#[derive(Clone)]
pub(crate) struct ValidLoader<E>(pub Examples<E>);

impl<E: Example> ValidLoader<E> {
    pub fn batches(&self) -> impl DataLoaderIterator<Vec<E>> {
        ValidBatches {
            examples: &self.0,
            batches: self.0.sampler.sequential(),
            at: 0,
        }
    }
}

impl<B: Backend, E: Example> DataLoader<B, Vec<E>> for ValidLoader<E> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Vec<E>> + 'a> {
        Box::new(self.batches())
    }

    fn num_items(&self) -> usize {
        self.0.all.len()
    }

    fn to_device(&self, _device: &B::Device) -> Arc<dyn DataLoader<B, Vec<E>>> {
        Arc::new(self.clone())
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<B, Vec<E>>> {
        // Burn slices loaders to give each device a part; validation runs on one device.
        Arc::new(self.clone())
    }
}

struct ValidBatches<'a, E> {
    examples: &'a Examples<E>,
    batches: Vec<Vec<usize>>,
    at: usize,
}

impl<E: Example> Iterator for ValidBatches<'_, E> {
    type Item = Vec<E>;

    fn next(&mut self) -> Option<Self::Item> {
        let indices = self.batches.get(self.at)?;
        self.at += 1;
        Some(self.examples.batch(indices))
    }
}

impl<E: Example> DataLoaderIterator<Vec<E>> for ValidBatches<'_, E> {
    fn progress(&self) -> Progress {
        Progress::new(self.at, self.batches.len())
    }
}
