//! The state of decoding step by step: the caches of all layers, and the slots of each target.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::cache::{Keep, LayerCache, capacity, moved_slots, write};
use crate::decoder::{Decoder, DecoderMasks, DecoderOutput, Memory};
use crate::mask::{Mask, causal_padding_along, padding_positions};
use crate::ops::AttentionWeights;
use crate::special_tokens::SpecialTokens;

/// The decoder's cache between calls of
/// [`Transformer::decode_next`](crate::Transformer::decode_next) or
/// [`LanguageModel::decode_next`](crate::LanguageModel::decode_next): with it, each token's keys and
/// values are computed once.
///
/// A source may have several targets with common beginnings, as in beam search. A token's keys and
/// values stay in one slot of its source, shared by all targets that continue from it: targets differ in
/// the slots that they attend to.
///
/// The cache belongs to the caller, so that one model serves any number of decodings at a time.
#[derive(Debug, Clone)]
pub struct DecoderCache<B: Backend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    sources: usize,
    memory: Option<MemoryPadding<B>>,
    /// Tokens of each source's targets, `<pad>` in the slots that no query attends to: `[sources, slots]`.
    tokens: Option<Tensor<B, 2, Int>>,
    /// Number of filled slots.
    filled: usize,
    /// Number of tokens of each target.
    len: usize,
    /// For each target, the slots of its tokens; `None` if each source has one target, which has all
    /// slots.
    paths: Option<Vec<Vec<usize>>>,
}

/// The memory's padding, which changes only with the sources.
#[derive(Debug, Clone)]
struct MemoryPadding<B: Backend> {
    /// `[sources, src_len]`, `true` = blocked.
    padding: Tensor<B, 2, Bool>,
    mask: Mask<B>,
}

impl<B: Backend> MemoryPadding<B> {
    fn new(padding: Tensor<B, 2, Bool>) -> Self {
        Self {
            mask: Mask::padding(padding.clone()),
            padding,
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// An empty cache over a memory, for decoding step by step.
    ///
    /// # Panics
    /// When the decoder's layers attend to no memory.
    pub fn start_decoding(&self, memory: &Memory<B>) -> DecoderCache<B> {
        let layers = self.caches(Some(&memory.hidden), Keep::MemoryAndTargets);
        DecoderCache::over_memory(layers, memory.padding.clone())
    }

    /// An empty cache of a decoder alone, for this many sequences.
    ///
    /// # Panics
    /// When the decoder's layers attend to a memory.
    pub fn start_decoding_alone(&self, sequences: usize) -> DecoderCache<B> {
        DecoderCache::new(self.caches(None, Keep::MemoryAndTargets), sequences)
    }

    /// A cache over a memory for one call of [`decode_next`](Self::decode_next), as in training: keys and
    /// values of the targets are not kept.
    ///
    /// # Panics
    /// When the decoder's layers attend to no memory.
    pub fn read_once(&self, memory: &Memory<B>) -> DecoderCache<B> {
        let layers = self.caches(Some(&memory.hidden), Keep::Memory);
        DecoderCache::over_memory(layers, memory.padding.clone())
    }

    /// [`read_once`](Self::read_once) of a decoder alone.
    ///
    /// # Panics
    /// When the decoder's layers attend to a memory.
    pub fn read_once_alone(&self, sequences: usize) -> DecoderCache<B> {
        DecoderCache::new(self.caches(None, Keep::Memory), sequences)
    }

    /// Reads the target tokens after those in the cache: one, several, or all. Each position attends
    /// to itself and those before it, and to the memory if there is one. No position attends to `<pad>`, unless
    /// that is `<bos>`, too, and stands at the beginning of a target.
    ///
    /// # Shapes
    /// - tokens: `[rows, new_len]`, one or more rows for each source, those of a source together
    /// - x: the embedded tokens, with positions from [`DecoderCache::len`] on,
    ///   `[rows, new_len, d_model]`
    /// - output: see [`DecoderOutput`], with `batch` = rows, `tgt_len` = new_len, and `key_len` the
    ///   length of the targets
    ///
    /// # Panics
    /// When the number of rows differs from the cache's, or `new_len` is zero.
    pub fn decode_next(
        &self,
        tokens: Tensor<B, 2, Int>,
        x: Tensor<B, 3>,
        cache: &mut DecoderCache<B>,
        special_tokens: SpecialTokens,
        weights: AttentionWeights,
    ) -> DecoderOutput<B> {
        let [rows, new_len, d_model] = x.dims();
        let masks = DecoderMasks {
            self_attention: cache.append(tokens, special_tokens),
            cross_attention: cache.memory_mask(),
        };
        // The tokens of a source's targets are side by side, as queries to the same keys.
        let x = x.reshape([cache.sources() as i32, -1, d_model as i32]);
        let output = self.forward_cached(x, &mut cache.layers, &masks, weights);
        let own = output.self_attention.into_iter();
        let cross = output.cross_attention.into_iter();
        DecoderOutput {
            hidden: output.hidden.reshape([rows, new_len, d_model]),
            self_attention: own.map(|weights| cache.own_slots(weights)).collect(),
            cross_attention: cross.map(|weights| by_target(weights, rows)).collect(),
        }
    }
}

impl<B: Backend> DecoderCache<B> {
    /// A cache over a memory with this padding: `[sources, src_len]`, `true` = blocked.
    pub(crate) fn over_memory(layers: Vec<LayerCache<B>>, padding: Tensor<B, 2, Bool>) -> Self {
        let [sources, _] = padding.dims();
        Self {
            memory: Some(MemoryPadding::new(padding)),
            ..Self::new(layers, sources)
        }
    }

    /// A cache without a memory.
    pub(crate) fn new(layers: Vec<LayerCache<B>>, sources: usize) -> Self {
        Self {
            layers,
            sources,
            memory: None,
            tokens: None,
            filled: 0,
            len: 0,
            paths: None,
        }
    }

    /// Number of tokens of each target in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token has been decoded yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of sources in the cache.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Number of targets in the cache, the same for each source.
    pub fn rows(&self) -> usize {
        self.paths.as_ref().map_or(self.sources, Vec::len)
    }

    /// Keeps the given sources, in the given order, and the targets `rows`: the same number for each
    /// source, those of a source together. Indices may repeat. Selecting targets copies no keys or
    /// values.
    ///
    /// # Panics
    /// When no source is given, an index is out of range, or a row is not a target of its source.
    pub fn select(&mut self, sources: &[usize], rows: &[usize]) {
        assert!(!sources.is_empty(), "no source to keep");
        let (old, new) = (self.rows() / self.sources, rows.len() / sources.len());
        let sources_of_rows = sources.iter().flat_map(|&source| vec![source; new]);
        assert!(
            sources_of_rows.eq(rows.iter().map(|row| row / old)),
            "targets {rows:?} of sources {sources:?}, each of which has {old}"
        );
        if !sources.iter().copied().eq(0..self.sources) {
            self.move_sources(sources);
        }
        self.paths = match self.paths.take() {
            None if new == 1 => None,
            None => Some(vec![(0..self.filled).collect(); rows.len()]),
            Some(paths) => Some(rows.iter().map(|&row| paths[row].clone()).collect()),
        };
    }

    fn move_sources(&mut self, sources: &[usize]) {
        self.sources = sources.len();
        let tokens = self.tokens.as_ref().map(Tensor::device);
        let memory = self.memory.as_ref().map(|memory| memory.padding.device());
        // The cache is empty.
        let Some(device) = tokens.or(memory) else {
            return;
        };
        let sources: Vec<i64> = sources.iter().map(|&source| source as i64).collect();
        let sources = Tensor::from_data(sources.as_slice(), &device);
        for layer in &mut self.layers {
            if let Some(memory) = &mut layer.memory {
                memory.select(&sources);
            }
            if let Some(target) = &mut layer.target {
                target.select(&sources);
            }
        }
        let memory = self.memory.take();
        self.memory =
            memory.map(|memory| MemoryPadding::new(memory.padding.select(0, sources.clone())));
        self.tokens = self.tokens.take().map(|tokens| tokens.select(0, sources));
    }

    /// Records the next tokens.
    ///
    /// # Shapes
    /// - next: `[rows, new_len]`
    /// - output: the mask of all slots, for `[sources, targets of each · new_len]` queries
    pub(crate) fn append(
        &mut self,
        next: Tensor<B, 2, Int>,
        SpecialTokens { pad, bos, .. }: SpecialTokens,
    ) -> Mask<B> {
        let [rows, new_len] = next.dims();
        assert!(new_len > 0, "no token to read");
        let sources = self.sources;
        if self.is_empty() && rows > sources && rows.is_multiple_of(sources) {
            self.paths = Some(vec![Vec::new(); rows]);
        }
        assert_eq!(rows, self.rows(), "targets and sources must pair up");
        let next = match self.is_empty() && bos == pad {
            true => with_start(next, pad),
            false => next,
        };
        let new_slots = rows / sources * new_len;
        let tokens = self.write_tokens(next.reshape([sources, new_slots]), pad);
        let padding = padding_positions(tokens, pad);
        let mask = match &mut self.paths {
            None => Mask::causal_padding_from(self.filled, new_len, padding),
            Some(paths) => {
                for (row, path) in paths.iter_mut().enumerate() {
                    let first = self.filled + row * new_len % new_slots;
                    path.extend(first..first + new_len);
                }
                causal_padding_along(paths, new_len, padding)
            }
        };
        self.filled += new_slots;
        self.len += new_len;
        mask
    }

    /// Writes tokens into the next slots, in step with [`TargetCache`](crate::TargetCache).
    ///
    /// # Shapes
    /// - next: `[sources, new_slots]`
    /// - output: `[sources, slots]`
    fn write_tokens(&mut self, next: Tensor<B, 2, Int>, pad_id: u32) -> Tensor<B, 2, Int> {
        let [sources, new_slots] = next.dims();
        let tokens = match self.tokens.take() {
            Some(past) if self.filled + new_slots > past.dims()[1] => {
                let moved = moved_slots(self.filled);
                let slots = [sources, capacity(moved + new_slots)];
                let slots = Tensor::full(slots, pad_id, &next.device());
                let [known, moved] = [0..self.filled - moved, self.filled - moved..self.filled]
                    .map(|range| past.clone().slice_dim(1, range));
                let [_, first] = moved.dims();
                let slots = write(write(slots, 1, 0, moved), 1, first, next);
                Tensor::cat(vec![known, slots], 1)
            }
            Some(past) => write(past, 1, self.filled, next),
            None => next,
        };
        self.tokens = Some(tokens.clone());
        tokens
    }

    /// Blocks the source's padding; `None` without a memory.
    pub(crate) fn memory_mask(&self) -> Option<Mask<B>> {
        self.memory.as_ref().map(|memory| memory.mask.clone())
    }

    /// Selects each target's own slots from attention weights over all slots.
    ///
    /// # Shapes
    /// - weights: `[sources, n_heads, targets of each · new_len, slots]`
    /// - output: `[rows, n_heads, new_len, len]`
    pub(crate) fn own_slots(&self, weights: Tensor<B, 4>) -> Tensor<B, 4> {
        let weights = by_target(weights, self.rows());
        let [rows, n_heads, new_len, _] = weights.dims();
        match &self.paths {
            None => weights.slice_dim(3, 0..self.len),
            Some(paths) => {
                let slots: Vec<i64> = paths.iter().flatten().map(|&slot| slot as i64).collect();
                let slots = TensorData::new(slots, [rows, 1, 1, self.len]);
                let slots = Tensor::<B, 4, Int>::from_data(slots, &weights.device());
                weights.gather(3, slots.expand([rows, n_heads, new_len, self.len]))
            }
        }
    }
}

/// Targets with another token in place of a `<bos>` that is `<pad>`, so that no mask takes it for padding.
///
/// # Shapes
/// - tokens and output: `[rows, len]`
fn with_start<B: Backend>(tokens: Tensor<B, 2, Int>, pad: u32) -> Tensor<B, 2, Int> {
    let [rows, len] = tokens.dims();
    let other_than_pad = u32::from(pad == 0);
    let start = Tensor::full([rows, 1], other_than_pad, &tokens.device());
    match len {
        1 => start,
        len => Tensor::cat(vec![start, tokens.slice_dim(1, 1..len)], 1),
    }
}

/// Turns weights by source, with the targets side by side, into weights by target.
///
/// # Shapes
/// - weights: `[sources, n_heads, targets of each · len, key_len]`
/// - output: `[rows, n_heads, len, key_len]`
pub(crate) fn by_target<B: Backend>(weights: Tensor<B, 4>, rows: usize) -> Tensor<B, 4> {
    let [sources, n_heads, positions, key_len] = weights.dims();
    let targets = rows / sources;
    let len = positions / targets;
    let weights: Tensor<B, 5> = weights.reshape([sources, n_heads, targets, len, key_len]);
    weights
        .swap_dims(1, 2)
        .reshape([rows, n_heads, len, key_len])
}
