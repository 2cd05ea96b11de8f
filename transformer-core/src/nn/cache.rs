//! Keys and values of the memory and of decoded tokens, owned by the caller.

use transformer_kernels::{self as ops, Heads, split_heads};
use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Int, Tensor};

/// Keys and values of sequences, split into heads.
#[derive(Debug, Clone)]
pub(crate) struct KeyValue<B: Backend> {
    /// `[batch, n_heads, len, d_k]`
    pub key: Tensor<B, 4>,
    /// `[batch, n_heads, len, d_v]`
    pub value: Tensor<B, 4>,
}

impl<B: Backend> KeyValue<B> {
    /// Splits rows that hold the keys of all heads from a column on, and then the values.
    ///
    /// # Shapes
    /// - rows: `[batch, len, column + n_heads · (d_k + d_v)]`
    pub(crate) fn of_rows(rows: &Tensor<B, 3>, column: usize, heads: Heads) -> Self {
        Self {
            key: split_heads(rows, column, heads.n_heads, heads.d_k),
            value: split_heads(
                rows,
                column + heads.n_heads * heads.d_k,
                heads.n_heads,
                heads.d_v,
            ),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.key.dims()[2]
    }

    fn map(self, f: impl Fn(Tensor<B, 4>) -> Tensor<B, 4>) -> Self {
        Self {
            key: f(self.key),
            value: f(self.value),
        }
    }

    fn zip(self, other: Self, f: impl Fn(Tensor<B, 4>, Tensor<B, 4>) -> Tensor<B, 4>) -> Self {
        Self {
            key: f(self.key, other.key),
            value: f(self.value, other.value),
        }
    }

    /// The same tensors, contiguous in memory.
    pub(crate) fn contiguous(self) -> Self {
        self.map(|tensor| {
            let [batch, n_heads, len, d_head] = tensor.dims();
            let rows: Tensor<B, 3> = tensor.reshape([batch * n_heads, len, d_head]);
            rows.reshape([batch, n_heads, len, d_head])
        })
    }

    fn select(&mut self, rows: &Tensor<B, 1, Int>) {
        *self = self.clone().map(|tensor| tensor.select(0, rows.clone()));
    }
}

/// Keys and values of the memory, for cross-attention.
#[derive(Debug, Clone)]
pub(crate) enum MemoryKeyValue<B: Backend> {
    /// The projection's output, keys of all heads and then values:
    /// `[batch, src_len, n_heads · (d_k + d_v)]`.
    Packed(Tensor<B, 3>),
    /// Split into contiguous heads, for decoding, which reads them for every token.
    Split(KeyValue<B>),
}

impl<B: Backend> MemoryKeyValue<B> {
    pub(crate) fn select(&mut self, rows: &Tensor<B, 1, Int>) {
        match self {
            Self::Packed(packed) => *packed = packed.clone().select(0, rows.clone()),
            Self::Split(key_value) => key_value.select(rows),
        }
    }
}

/// Keys and values of each source's targets so far, for self-attention, with slots for more.
///
/// They are in two parts: `past`, which changes only when the cache grows, and `recent`, into which new
/// ones are written. So `past` is copied only now and then, and a backend that copies a tensor to write
/// into it copies the few slots of `recent`.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetCache<B: Backend> {
    past: Option<KeyValue<B>>,
    /// `None` before the first token.
    recent: Option<KeyValue<B>>,
    /// Slots of `recent` that are filled; the others are zeros, which a mask must block.
    filled: usize,
}

impl<B: Backend> TargetCache<B> {
    /// Writes keys and values, from rows as in [`KeyValue::of_rows`], into the next slots. The first
    /// call allocates no further slots.
    pub(crate) fn append(&mut self, rows: &Tensor<B, 3>, column: usize, heads: Heads) {
        let [_, new_len, _] = rows.dims();
        let Some(recent) = self.recent.take() else {
            self.filled = new_len;
            self.recent = Some(KeyValue::of_rows(rows, column, heads));
            return;
        };
        let recent = match self.filled + new_len > recent.len() {
            true => self.grow(recent, new_len, heads, rows),
            false => recent,
        };
        let values = column + heads.n_heads * heads.d_k;
        self.recent = Some(KeyValue {
            key: ops::write_heads(recent.key, self.filled, rows, column),
            value: ops::write_heads(recent.value, self.filled, rows, values),
        });
        self.filled += new_len;
    }

    /// Allocates slots after those of `recent`, which is full.
    fn grow(
        &mut self,
        recent: KeyValue<B>,
        new_len: usize,
        heads: Heads,
        rows: &Tensor<B, 3>,
    ) -> KeyValue<B> {
        let [batch, ..] = rows.dims();
        let filled = recent.map(|tensor| tensor.slice_dim(2, 0..self.filled));
        let past_len = self.past.as_ref().map_or(0, KeyValue::len);
        let moved = moved_slots(past_len + self.filled);
        let capacity = capacity(moved + new_len);
        let zeros =
            |d_head| Tensor::zeros([batch, heads.n_heads, capacity, d_head], &rows.device());
        let slots = KeyValue {
            key: zeros(heads.d_k),
            value: zeros(heads.d_v),
        };
        self.filled = moved;
        if moved > 0 {
            return slots.zip(filled, |slots, filled| write(slots, 2, 0, filled));
        }
        self.past = Some(match self.past.take() {
            Some(past) => past.zip(filled, |past, filled| Tensor::cat(vec![past, filled], 2)),
            None => filled.contiguous(),
        });
        slots
    }

    /// The parts that there are: one or both.
    pub(crate) fn parts(&self) -> Vec<KeyValue<B>> {
        self.past.iter().chain(&self.recent).cloned().collect()
    }

    pub(crate) fn select(&mut self, sources: &Tensor<B, 1, Int>) {
        for part in self.past.iter_mut().chain(&mut self.recent) {
            part.select(sources);
        }
    }
}

/// Slots that a cache grows by, at least.
const GROWTH: usize = 64;

/// How many of the filled slots move into the new part when the cache grows. Tokens, keys and values
/// all follow this rule, so that one mask fits them all.
pub(crate) fn moved_slots(filled: usize) -> usize {
    if filled < GROWTH { filled } else { 0 }
}

/// Capacity of a new part that needs this many slots.
pub(crate) fn capacity(needed: usize) -> usize {
    needed.max(GROWTH)
}

/// Writes `next` into a tensor along the dimension `dim`, from a slot on.
pub(crate) fn write<B: Backend, const D: usize, K: BasicOps<B>>(
    slots: Tensor<B, D, K>,
    dim: usize,
    first: usize,
    next: Tensor<B, D, K>,
) -> Tensor<B, D, K> {
    let mut range = next.dims().map(|size| 0..size);
    range[dim] = first..first + next.dims()[dim];
    slots.slice_assign(range, next)
}

/// The cache of one decoder layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerCache<B: Backend> {
    /// Keys and values of the memory; `None` in a decoder without one.
    pub memory: Option<MemoryKeyValue<B>>,
    /// Keys and values of the targets; `None` if a whole target is read at once, as in training.
    pub target: Option<TargetCache<B>>,
}

/// The content of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The memory's keys and values, if a whole target is read at once.
    Memory,
    /// The targets' keys and values, too, if targets are read token by token.
    MemoryAndTargets,
}
