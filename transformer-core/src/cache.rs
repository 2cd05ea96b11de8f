//! The keys and values of what has been decoded, owned by the caller.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

/// Keys and values of a sequence, split into heads.
#[derive(Debug, Clone)]
pub struct KeyValue<B: Backend> {
    /// `[batch, n_heads, len, d_k]`
    pub key: Tensor<B, 4>,
    /// `[batch, n_heads, len, d_v]`
    pub value: Tensor<B, 4>,
}

impl<B: Backend> KeyValue<B> {
    /// These positions followed by `next`.
    pub(crate) fn append(self, next: Self) -> Self {
        Self {
            key: Tensor::cat(vec![self.key, next.key], 2),
            value: Tensor::cat(vec![self.value, next.value], 2),
        }
    }

    fn select(&mut self, rows: &Tensor<B, 1, Int>) {
        for tensor in [&mut self.key, &mut self.value] {
            *tensor = tensor.clone().select(0, rows.clone());
        }
    }
}

/// What one decoder layer keeps.
#[derive(Debug, Clone)]
pub struct LayerCache<B: Backend> {
    /// Keys and values of the memory, for cross-attention.
    pub memory: KeyValue<B>,
    /// Keys and values of the target so far, for self-attention; `None` before the first token.
    pub target: Option<KeyValue<B>>,
}

/// What the decoder keeps between calls of
/// [`Transformer::decode_next`](crate::Transformer::decode_next): with it, each token's keys and
/// values are computed once.
///
/// The cache belongs to the caller, so that one model serves any number of decodings at a time.
#[derive(Debug, Clone)]
pub struct DecoderCache<B: Backend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    pub(crate) memory_padding: Tensor<B, 2, Bool>,
    pub(crate) target: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> DecoderCache<B> {
    /// Target tokens in the cache.
    pub fn len(&self) -> usize {
        self.target.as_ref().map_or(0, |target| target.dims()[1])
    }

    /// Whether no token has been decoded yet.
    pub fn is_empty(&self) -> bool {
        self.target.is_none()
    }

    /// Sources in the cache.
    pub fn sources(&self) -> usize {
        self.memory_padding.dims()[0]
    }

    /// Targets in the cache: one for each source, or several, those of a source together.
    pub fn rows(&self) -> usize {
        match &self.target {
            Some(target) => target.dims()[0],
            None => self.sources(),
        }
    }

    /// Keeps the given rows of the batch, each a source and its target, in the given order; a row
    /// may be given more than once.
    ///
    /// # Shapes
    /// - rows: `[new_batch]`, indices of rows
    pub fn select(mut self, rows: &Tensor<B, 1, Int>) -> Self {
        self.select_sources(rows);
        self.select_rows(rows);
        self
    }

    /// Keeps the given sources, in the given order; the targets are for
    /// [`select_rows`](Self::select_rows).
    ///
    /// # Shapes
    /// - sources: `[new_sources]`, indices of sources
    pub fn select_sources(&mut self, sources: &Tensor<B, 1, Int>) {
        for layer in &mut self.layers {
            layer.memory.select(sources);
        }
        self.memory_padding = self.memory_padding.clone().select(0, sources.clone());
    }

    /// Keeps the given targets, in the given order; one may be given more than once. What is kept of
    /// the sources does not move, whichever of its targets a source goes on with.
    ///
    /// # Shapes
    /// - rows: `[sources · targets of each]`, indices of targets, those of a source together
    pub fn select_rows(&mut self, rows: &Tensor<B, 1, Int>) {
        for layer in &mut self.layers {
            if let Some(target) = &mut layer.target {
                target.select(rows);
            }
        }
        self.target = self
            .target
            .take()
            .map(|target| target.select(0, rows.clone()));
    }

    /// Notes the next tokens and returns all tokens so far: `[batch, len]`.
    pub(crate) fn append(&mut self, next: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
        let all = match self.target.take() {
            Some(past) => Tensor::cat(vec![past, next], 1),
            None => next,
        };
        self.target = Some(all.clone());
        all
    }
}
