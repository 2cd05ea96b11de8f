//! The key/value cache, for reading sequences step by step.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};
use transformer_kernels::{Heads, split_heads};

use crate::nn::block::BlockState;
use crate::nn::mask::{causal_mask, with_start};
use crate::nn::stack::Memory;
use crate::special_tokens::SpecialTokens;
use transformer_kernels::Mask;

/// Keys and values, split into heads.
#[derive(Debug, Clone)]
pub struct KeyValue<B: Backend> {
    /// `[batch, n_kv_heads, len, d_k]`
    pub key: Tensor<B, 4>,
    /// `[batch, n_kv_heads, len, d_v]`
    pub value: Tensor<B, 4>,
}

impl<B: Backend> KeyValue<B> {
    /// Splits rows that hold, from `column` on, the keys of all heads and then the values. The result is contiguous in
    /// memory.
    ///
    /// # Shapes
    /// - rows: `[batch, len, column + n_heads · (d_k + d_v)]`
    pub(crate) fn of_rows(rows: &Tensor<B, 3>, column: usize, heads: Heads) -> Self {
        let Heads { n_heads, d_k, d_v } = heads;
        Self {
            key: contiguous(split_heads(rows, column, n_heads, d_k)),
            value: contiguous(split_heads(rows, column + n_heads * d_k, n_heads, d_v)),
        }
    }

    /// Appends the keys and values of the next positions.
    pub(crate) fn followed_by(self, next: Self) -> Self {
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

/// The same tensor, contiguous in memory: decoding reads it for every token.
fn contiguous<B: Backend>(tensor: Tensor<B, 4>) -> Tensor<B, 4> {
    let [batch, n_heads, len, d_head] = tensor.dims();
    let rows: Tensor<B, 3> = tensor.reshape([batch * n_heads, len, d_head]);
    rows.reshape([batch, n_heads, len, d_head])
}

/// The state of a [`Layer`](crate::nn::Layer).
#[derive(Debug, Clone)]
pub struct LayerState<B: Backend> {
    /// Keys and values of the memory, per source; `None` in a layer without cross-attention.
    pub memory: Option<KeyValue<B>>,
    /// Keys and values of the positions so far, per row; `None` before the first position.
    pub rows: Option<KeyValue<B>>,
    /// The state of a recurrence, `[rows, d_model]`; `None` before the first position, and in a layer with
    /// self-attention.
    pub recurrent: Option<Tensor<B, 2>>,
}

impl<B: Backend> Default for LayerState<B> {
    fn default() -> Self {
        Self {
            memory: None,
            rows: None,
            recurrent: None,
        }
    }
}

impl<B: Backend> BlockState<B> for LayerState<B> {
    fn select(&mut self, sources: Option<&Tensor<B, 1, Int>>, rows: Option<&Tensor<B, 1, Int>>) {
        if let (Some(memory), Some(sources)) = (&mut self.memory, sources) {
            memory.select(sources);
        }
        if let (Some(own), Some(rows)) = (&mut self.rows, rows) {
            own.select(rows);
        }
        if let (Some(recurrent), Some(rows)) = (&mut self.recurrent, rows) {
            *recurrent = recurrent.clone().select(0, rows.clone());
        }
    }
}

/// The state of a [`Stack`](crate::nn::Stack) between calls of [`Stack::next`](crate::nn::Stack::next), so that the
/// keys and values of each token are computed only once.
///
/// A row is a target. A source may have several, as in beam search; they share its memory, which is stored once.
///
/// The cache belongs to the caller, so that one model can serve any number of concurrent decodings.
#[derive(Debug, Clone)]
pub struct Cache<B: Backend, S> {
    pub(crate) layers: Vec<S>,
    sources: usize,
    /// The memory's padding, `[sources, src_len]`, `true` = blocked, and its mask.
    memory: Option<(Tensor<B, 2, Bool>, Mask<B>)>,
    /// The tokens of each row so far, `[rows, len]`, from which the padding mask is computed; `None` before the first
    /// token.
    tokens: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend, S> Cache<B, S> {
    pub(crate) fn new(layers: Vec<S>, memory: Option<&Memory<B>>, sources: usize) -> Self {
        let memory = memory.map(|memory| {
            let padding = memory.padding.clone();
            let [found, _] = padding.dims();
            assert_eq!(found, sources, "sources of the memory and of the cache");
            (padding.clone(), Mask::padding(padding))
        });
        Self {
            layers,
            sources,
            memory,
            tokens: None,
        }
    }

    /// Number of tokens per row.
    pub fn len(&self) -> usize {
        self.tokens.as_ref().map_or(0, |tokens| tokens.dims()[1])
    }

    /// Whether no token has been read yet.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_none()
    }

    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Number of rows, the same for every source.
    pub fn rows(&self) -> usize {
        self.tokens
            .as_ref()
            .map_or(self.sources, |tokens| tokens.dims()[0])
    }

    /// Appends the next tokens, and returns the mask over all positions so far.
    ///
    /// # Shapes
    /// - next: `[rows, new_len]`
    pub(crate) fn append(
        &mut self,
        next: Tensor<B, 2, Int>,
        special_tokens: SpecialTokens,
    ) -> Mask<B> {
        let [rows, new_len] = next.dims();
        assert!(new_len > 0, "at least one new token is needed");
        let fits = match self.is_empty() {
            true => rows.is_multiple_of(self.sources),
            false => rows == self.rows(),
        };
        assert!(fits, "the number of targets does not match the cache");
        let tokens = match self.tokens.take() {
            None => with_start(next, special_tokens),
            Some(tokens) => Tensor::cat(vec![tokens, next], 1),
        };
        self.tokens = Some(tokens.clone());
        causal_mask(tokens, new_len, special_tokens)
    }

    /// The mask of the sources' padding; `None` without a memory.
    pub(crate) fn memory_mask(&self) -> Option<Mask<B>> {
        self.memory.as_ref().map(|(_, mask)| mask.clone())
    }
}

impl<B: Backend, S: BlockState<B>> Cache<B, S> {
    /// Selects the given sources and rows, in the given order. Every source has the same number of rows, and the rows
    /// of a source are adjacent. Indices may repeat.
    ///
    /// # Panics
    /// When no source is given, an index is out of range, or a row does not belong to its source.
    pub fn select(&mut self, sources: &[usize], rows: &[usize]) {
        assert!(!sources.is_empty(), "no source to keep");
        let is_there = |&source: &usize| source < self.sources;
        assert!(
            sources.iter().all(is_there),
            "sources {sources:?} of {}",
            self.sources
        );
        let (old, new) = (self.rows() / self.sources, rows.len() / sources.len());
        let sources_of_rows = sources.iter().flat_map(|&source| vec![source; new]);
        assert!(
            sources_of_rows.eq(rows.iter().map(|row| row / old)),
            "targets {rows:?} of sources {sources:?}, each of which has {old}"
        );
        let device = match (&self.memory, &self.tokens) {
            (Some((padding, _)), _) => padding.device(),
            (None, Some(tokens)) => tokens.device(),
            (None, None) => {
                self.sources = sources.len();
                return;
            }
        };
        let indices = |kept: &[usize], all: usize| {
            let is_same = kept.iter().copied().eq(0..all);
            let kept: Vec<i64> = kept.iter().map(|&index| index as i64).collect();
            (!is_same).then(|| Tensor::<B, 1, Int>::from_data(kept.as_slice(), &device))
        };
        let kept_sources = indices(sources, self.sources);
        let kept_rows = indices(rows, self.rows());
        for state in &mut self.layers {
            state.select(kept_sources.as_ref(), kept_rows.as_ref());
        }
        self.sources = sources.len();
        if let (Some((padding, mask)), Some(kept)) = (&mut self.memory, kept_sources) {
            *padding = padding.clone().select(0, kept);
            *mask = Mask::padding(padding.clone());
        }
        if let (Some(tokens), Some(kept)) = (&mut self.tokens, kept_rows) {
            *tokens = tokens.clone().select(0, kept);
        }
    }
}
