//! The examples of validation.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;

use super::example::Example;
use super::sampler::BatchSampler;

/// Examples in memory and how they are put into batches.
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
