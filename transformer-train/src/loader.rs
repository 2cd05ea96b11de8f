//! From tokenized pairs to tensors: the batches of an update, one update after the other.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_core::{TransformerConfig, padded};

use crate::batch::{BatchSampler, TokenizedPair};

/// Pairs side by side, filled up with `<pad>`.
#[derive(Debug, Clone)]
pub struct Batch<B: Backend> {
    /// The sources, each ending in `<eos>`: `[batch, src_len]`.
    pub source: Tensor<B, 2, Int>,
    /// What the decoder reads, `<bos>` first: `[batch, tgt_len]`.
    pub target: Tensor<B, 2, Int>,
    /// What it is to say, `<eos>` last: `[batch, tgt_len]`.
    pub labels: Tensor<B, 2, Int>,
    /// Labels that are not padding.
    pub target_tokens: usize,
}

impl<B: Backend> Batch<B> {
    /// The batch of the given pairs.
    pub fn new<'a>(
        pairs: impl Iterator<Item = &'a TokenizedPair> + Clone,
        config: &TransformerConfig,
        device: &B::Device,
    ) -> Self {
        let ending_in_eos = |tokens: &[u32]| [tokens, &[config.eos_id]].concat();
        let starting_with_bos = |tokens: &[u32]| [&[config.bos_id], tokens].concat();
        let rows = |row: &dyn Fn(&TokenizedPair) -> Vec<u32>| {
            let rows: Vec<_> = pairs.clone().map(row).collect();
            padded(&rows, config.pad_id, device)
        };
        Self {
            source: rows(&|pair| ending_in_eos(&pair.source)),
            target: rows(&|pair| starting_with_bos(&pair.target)),
            labels: rows(&|pair| ending_in_eos(&pair.target)),
            target_tokens: pairs.map(TokenizedPair::tgt_len).sum(),
        }
    }

    /// The same batch on another device.
    pub fn to_device(self, device: &B::Device) -> Self {
        Self {
            source: self.source.to_device(device),
            target: self.target.to_device(device),
            labels: self.labels.to_device(device),
            target_tokens: self.target_tokens,
        }
    }
}

/// The batches whose gradients make one update.
#[derive(Debug, Clone)]
pub struct Update<B: Backend> {
    /// One or more batches.
    pub batches: Vec<Batch<B>>,
    /// Labels that are not padding in the whole update, of which these batches may be a part.
    pub target_tokens: usize,
}

impl<B: Backend> Update<B> {
    /// Deals the batches out to the devices. Where there are fewer batches than devices, some get
    /// nothing.
    pub(crate) fn deal(self, devices: &[B::Device]) -> Vec<Self> {
        let mut parts: Vec<Self> = devices
            .iter()
            .map(|_| Self {
                batches: Vec::new(),
                target_tokens: self.target_tokens,
            })
            .collect();
        for (index, batch) in self.batches.into_iter().enumerate() {
            let at = index % devices.len();
            parts[at].batches.push(batch.to_device(&devices[at]));
        }
        parts.retain(|part| !part.batches.is_empty());
        parts
    }
}

/// The pairs of a run and how they are put into batches.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub pairs: Arc<Vec<TokenizedPair>>,
    pub sampler: Arc<BatchSampler>,
    pub config: TransformerConfig,
}

impl Source {
    fn batch<B: Backend>(&self, indices: &[usize], device: &B::Device) -> Batch<B> {
        Batch::new(
            indices.iter().map(|&index| &self.pairs[index]),
            &self.config,
            device,
        )
    }
}

/// Endless updates: epoch after epoch, from any update on.
///
/// Which pairs make update `n` is a function of the pairs, the configuration and `n`, so that a
/// resumed run continues as the stopped one would have. The last update of an epoch may hold fewer
/// batches.
pub(crate) struct UpdateLoader<B: Backend> {
    pub source: Source,
    pub batches_per_update: usize,
    pub first_update: usize,
    pub device: B::Device,
}

impl<B: Backend> DataLoader<B, Update<B>> for UpdateLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Update<B>> + 'a> {
        let mut updates = Updates {
            loader: self,
            epoch: 0,
            batches: self.source.sampler.epoch(0),
            at: 0,
        };
        for _ in 0..self.first_update {
            updates.advance();
        }
        Box::new(updates)
    }

    fn num_items(&self) -> usize {
        self.source.pairs.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Update<B>>> {
        Arc::new(Self {
            source: self.source.clone(),
            batches_per_update: self.batches_per_update,
            first_update: self.first_update,
            device: device.clone(),
        })
    }

    fn slice(&self, start: usize, _end: usize) -> Arc<dyn DataLoader<B, Update<B>>> {
        // Updates have no end; a slice of them starts later.
        Arc::new(Self {
            source: self.source.clone(),
            batches_per_update: self.batches_per_update,
            first_update: self.first_update + start,
            device: self.device.clone(),
        })
    }
}

struct Updates<'a, B: Backend> {
    loader: &'a UpdateLoader<B>,
    epoch: usize,
    batches: Vec<Vec<usize>>,
    at: usize,
}

impl<B: Backend> Updates<'_, B> {
    /// The range of this epoch's batches that the next update is made of, a new epoch begun where
    /// the last one ended.
    fn advance(&mut self) -> std::ops::Range<usize> {
        if self.at == self.batches.len() {
            self.epoch += 1;
            self.batches = self.loader.source.sampler.epoch(self.epoch);
            self.at = 0;
        }
        let start = self.at;
        self.at = (start + self.loader.batches_per_update).min(self.batches.len());
        start..self.at
    }
}

impl<B: Backend> Iterator for Updates<'_, B> {
    type Item = Update<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.advance();
        let batches: Vec<_> = self.batches[range]
            .iter()
            .map(|indices| self.loader.source.batch(indices, &self.loader.device))
            .collect();
        Some(Update {
            target_tokens: batches.iter().map(|batch| batch.target_tokens).sum(),
            batches,
        })
    }
}

impl<B: Backend> DataLoaderIterator<Update<B>> for Updates<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.at, self.batches.len())
    }
}

/// Every pair once, in the same batches each time.
pub(crate) struct ValidLoader<B: Backend> {
    pub source: Source,
    pub device: B::Device,
}

impl<B: Backend> DataLoader<B, Batch<B>> for ValidLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Batch<B>> + 'a> {
        Box::new(ValidBatches {
            loader: self,
            batches: self.source.sampler.sequential(),
            at: 0,
        })
    }

    fn num_items(&self) -> usize {
        self.source.pairs.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Batch<B>>> {
        Arc::new(Self {
            source: self.source.clone(),
            device: device.clone(),
        })
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<B, Batch<B>>> {
        // Burn slices loaders to give each device a part; validation runs on one, whole.
        self.to_device(&self.device)
    }
}

struct ValidBatches<'a, B: Backend> {
    loader: &'a ValidLoader<B>,
    batches: Vec<Vec<usize>>,
    at: usize,
}

impl<B: Backend> Iterator for ValidBatches<'_, B> {
    type Item = Batch<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let indices = self.batches.get(self.at)?;
        self.at += 1;
        Some(self.loader.source.batch(indices, &self.loader.device))
    }
}

impl<B: Backend> DataLoaderIterator<Batch<B>> for ValidBatches<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.at, self.batches.len())
    }
}
