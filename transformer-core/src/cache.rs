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

    fn select(self, rows: &Tensor<B, 1, Int>) -> Self {
        Self {
            key: self.key.select(0, rows.clone()),
            value: self.value.select(0, rows.clone()),
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

    /// Keeps the given rows of the batch, in the given order; a row may be given more than once.
    ///
    /// # Shapes
    /// - rows: `[new_batch]`, indices of rows
    pub fn select(self, rows: &Tensor<B, 1, Int>) -> Self {
        Self {
            layers: self
                .layers
                .into_iter()
                .map(|layer| LayerCache {
                    memory: layer.memory.select(rows),
                    target: layer.target.map(|target| target.select(rows)),
                })
                .collect(),
            memory_padding: self.memory_padding.select(0, rows.clone()),
            target: self.target.map(|target| target.select(0, rows.clone())),
        }
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
