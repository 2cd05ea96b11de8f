//! The keys and values of what has been decoded, owned by the caller.

use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Bool, Int, Tensor, TensorData};
use transformer_kernels::Heads;

use crate::mask::{AttentionMask, padding_positions};

/// Places that room is made for at a time.
const ROOM: usize = 64;

/// Keys and values of sequences, split into heads.
#[derive(Debug, Clone)]
pub struct KeyValue<B: Backend> {
    /// `[batch, n_heads, len, d_k]`
    pub key: Tensor<B, 4>,
    /// `[batch, n_heads, len, d_v]`
    pub value: Tensor<B, 4>,
}

impl<B: Backend> KeyValue<B> {
    /// Of rows that hold the keys of all heads from a column on, and then the values.
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

    /// The same numbers, in the order of their dimensions in memory.
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
pub enum MemoryKeyValue<B: Backend> {
    /// As the projection left them, keys of all heads and then values:
    /// `[batch, src_len, n_heads · (d_k + d_v)]`.
    Packed(Tensor<B, 3>),
    /// Split into heads and laid out in that order, for decoding, which reads them for every token.
    Split(KeyValue<B>),
}

impl<B: Backend> MemoryKeyValue<B> {
    fn select(&mut self, rows: &Tensor<B, 1, Int>) {
        match self {
            Self::Packed(packed) => *packed = packed.clone().select(0, rows.clone()),
            Self::Split(key_value) => key_value.select(rows),
        }
    }
}

/// Keys and values of the targets of each source so far, for self-attention, with room for more.
///
/// They are in two parts: those that do not change until there is no more room, and the latest. To make
/// room is then to copy the former once in a while, and a backend that copies what it writes into copies
/// a few places.
#[derive(Debug, Clone, Default)]
pub struct TargetCache<B: Backend> {
    past: Option<KeyValue<B>>,
    /// `None` before the first token.
    recent: Option<KeyValue<B>>,
    /// Places of `recent` that are filled; zeros follow, for a mask to block.
    filled: usize,
}

impl<B: Backend> TargetCache<B> {
    /// Writes keys and values after what is there, of rows as [`KeyValue::of_rows`] has them. The first
    /// have no room after them.
    pub(crate) fn append(&mut self, rows: &Tensor<B, 3>, column: usize, heads: Heads) {
        let [batch, new_len, _] = rows.dims();
        let Some(mut recent) = self.recent.take() else {
            self.filled = new_len;
            self.recent = Some(KeyValue::of_rows(rows, column, heads));
            return;
        };
        if self.filled + new_len > recent.len() {
            let done = recent.map(|tensor| tensor.slice_dim(2, 0..self.filled));
            let past_len = self.past.as_ref().map_or(0, KeyValue::len);
            let moved = moved(past_len + self.filled);
            let room = |d_head| [batch, heads.n_heads, (moved + new_len).max(ROOM), d_head];
            recent = KeyValue {
                key: Tensor::zeros(room(heads.d_k), &rows.device()),
                value: Tensor::zeros(room(heads.d_v), &rows.device()),
            };
            if moved > 0 {
                recent = recent.zip(done, |recent, done| write(recent, 2, 0, done));
            } else {
                self.past = Some(match self.past.take() {
                    Some(past) => past.zip(done, |past, done| Tensor::cat(vec![past, done], 2)),
                    None => done.contiguous(),
                });
            }
            self.filled = moved;
        }
        let values = column + heads.n_heads * heads.d_k;
        self.recent = Some(KeyValue {
            key: write_heads(recent.key, self.filled, rows, column),
            value: write_heads(recent.value, self.filled, rows, values),
        });
        self.filled += new_len;
    }

    /// Both parts, or one where there is no other.
    pub(crate) fn parts(&self) -> Vec<KeyValue<B>> {
        self.past.iter().chain(&self.recent).cloned().collect()
    }

    fn select(&mut self, sources: &Tensor<B, 1, Int>) {
        for part in self.past.iter_mut().chain(&mut self.recent) {
            part.select(sources);
        }
    }
}

/// Of so many places that fill their room, those that move to where there is more: a few first ones.
/// Tokens, keys and values keep to it alike, so that one mask fits them all.
fn moved(places: usize) -> usize {
    if places < ROOM { places } else { 0 }
}

/// Some columns of rows, by heads.
///
/// # Shapes
/// - rows: `[batch, len, column + n_heads · d_head or more]`
/// - output: `[batch, n_heads, len, d_head]`
pub(crate) fn split_heads<B: Backend>(
    rows: &Tensor<B, 3>,
    column: usize,
    n_heads: usize,
    d_head: usize,
) -> Tensor<B, 4> {
    let [batch, len, _] = rows.dims();
    let columns = column..column + n_heads * d_head;
    let heads: Tensor<B, 4> = rows
        .clone()
        .slice_dim(2, columns)
        .reshape([batch, len, n_heads, d_head]);
    heads.swap_dims(1, 2)
}

/// Writes some columns of rows into the heads of a cache, from a place on.
fn write_heads<B: Backend>(
    room: Tensor<B, 4>,
    place: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Tensor<B, 4> {
    transformer_kernels::write_heads(room, place, rows, column).unwrap_or_else(|room| {
        let [_, n_heads, _, d_head] = room.dims();
        write(room, 2, place, split_heads(rows, column, n_heads, d_head))
    })
}

/// Writes `next` into the dimension `dim`, from a place on.
fn write<B: Backend, const D: usize, K: BasicOps<B>>(
    room: Tensor<B, D, K>,
    dim: usize,
    first: usize,
    next: Tensor<B, D, K>,
) -> Tensor<B, D, K> {
    let mut place = next.dims().map(|size| 0..size);
    place[dim] = first..first + next.dims()[dim];
    room.slice_assign(place, next)
}

/// What one decoder layer keeps.
#[derive(Debug, Clone)]
pub struct LayerCache<B: Backend> {
    /// Keys and values of the memory, for cross-attention.
    pub memory: MemoryKeyValue<B>,
    /// Keys and values of the targets; `None` where nothing comes after the first call, as in training.
    pub target: Option<TargetCache<B>>,
}

/// What the decoder keeps between calls of
/// [`Transformer::decode_next`](crate::Transformer::decode_next): with it, each token's keys and
/// values are computed once.
///
/// A source may have several targets that begin alike, as in beam search. What is kept of a token
/// stays in its place among its source's, whichever targets go on from it: they differ in the places
/// that they see.
///
/// The cache belongs to the caller, so that one model serves any number of decodings at a time.
#[derive(Debug, Clone)]
pub struct DecoderCache<B: Backend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    memory_padding: Tensor<B, 2, Bool>,
    /// Of the source's padding; it changes with the sources alone.
    memory_mask: AttentionMask<B>,
    /// Tokens of each source's targets, with `<pad>` where there is room for more: `[sources, room]`.
    tokens: Option<Tensor<B, 2, Int>>,
    /// Places that are filled.
    places: usize,
    /// Tokens of each target.
    len: usize,
    /// For each target, the places of its tokens; `None` where each source has one target, which has
    /// all of them.
    paths: Option<Vec<Vec<usize>>>,
}

impl<B: Backend> DecoderCache<B> {
    pub(crate) fn new(layers: Vec<LayerCache<B>>, memory_padding: Tensor<B, 2, Bool>) -> Self {
        Self {
            layers,
            memory_mask: AttentionMask::padding(memory_padding.clone()),
            memory_padding,
            tokens: None,
            places: 0,
            len: 0,
            paths: None,
        }
    }

    /// Target tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token has been decoded yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sources in the cache.
    pub fn sources(&self) -> usize {
        self.memory_padding.dims()[0]
    }

    /// Targets in the cache: one for each source, or several, those of a source together.
    pub fn rows(&self) -> usize {
        self.paths.as_ref().map_or(self.sources(), Vec::len)
    }

    /// Keeps the given sources, in the given order, each with as many targets: `rows`, those of a
    /// source together. Either may be given more than once. Nothing is moved for the targets.
    ///
    /// # Panics
    /// When none is given, there is no such source, or a row is no target of its source.
    pub fn select(&mut self, sources: &[usize], rows: &[usize]) {
        assert!(!sources.is_empty(), "no source to keep");
        let (old, new) = (self.rows() / self.sources(), rows.len() / sources.len());
        let sources_of_rows = sources.iter().flat_map(|&source| vec![source; new]);
        assert!(
            sources_of_rows.eq(rows.iter().map(|row| row / old)),
            "targets {rows:?} of sources {sources:?}, each of which has {old}"
        );
        if !sources.iter().copied().eq(0..self.sources()) {
            self.move_sources(sources);
        }
        self.paths = match self.paths.take() {
            None if new == 1 => None,
            None => Some(vec![(0..self.places).collect(); rows.len()]),
            Some(paths) => Some(rows.iter().map(|&row| paths[row].clone()).collect()),
        };
    }

    fn move_sources(&mut self, sources: &[usize]) {
        let sources: Vec<i64> = sources.iter().map(|&source| source as i64).collect();
        let sources = Tensor::from_data(sources.as_slice(), &self.memory_padding.device());
        for layer in &mut self.layers {
            layer.memory.select(&sources);
            if let Some(target) = &mut layer.target {
                target.select(&sources);
            }
        }
        self.memory_padding = self.memory_padding.clone().select(0, sources.clone());
        self.memory_mask = AttentionMask::padding(self.memory_padding.clone());
        self.tokens = self.tokens.take().map(|tokens| tokens.select(0, sources));
    }

    /// Notes the next tokens.
    ///
    /// # Shapes
    /// - next: `[rows, new_len]`
    /// - output: which of the places `[sources, targets of each · new_len]` the next tokens see
    pub(crate) fn append(&mut self, next: Tensor<B, 2, Int>, pad_id: u32) -> AttentionMask<B> {
        let [rows, new_len] = next.dims();
        assert!(new_len > 0, "no token to read");
        let sources = self.sources();
        if self.is_empty() && rows > sources && rows.is_multiple_of(sources) {
            self.paths = Some(vec![Vec::new(); rows]);
        }
        assert_eq!(rows, self.rows(), "targets and sources must pair up");
        let new_places = rows / sources * new_len;
        let next = next.reshape([sources, new_places]);
        let tokens = match self.tokens.take() {
            Some(past) if self.places + new_places > past.dims()[1] => {
                let moved = moved(self.places);
                let room = [sources, (moved + new_places).max(ROOM)];
                let room = Tensor::full(room, pad_id, &next.device());
                let [known, moved] = [0..self.places - moved, self.places - moved..self.places]
                    .map(|places| past.clone().slice_dim(1, places));
                let [_, at] = moved.dims();
                let room = write(write(room, 1, 0, moved), 1, at, next);
                Tensor::cat(vec![known, room], 1)
            }
            Some(past) => write(past, 1, self.places, next),
            None => next,
        };
        self.tokens = Some(tokens.clone());
        let padding = padding_positions(tokens, pad_id);
        let mask = match &mut self.paths {
            None => AttentionMask::causal_padding_from(self.places, new_len, padding),
            Some(paths) => {
                let [_, room] = padding.dims();
                let mut blocked = vec![true; rows * new_len * room];
                let mut queries = blocked.chunks_mut(room);
                for (row, path) in paths.iter_mut().enumerate() {
                    let first = self.places + row * new_len % new_places;
                    for (place, sees) in (first..first + new_len).zip(&mut queries) {
                        path.push(place);
                        path.iter().for_each(|&place| sees[place] = false);
                    }
                }
                let shape = [sources, 1, new_places, room];
                let blocked = TensorData::new(blocked, shape);
                let blocked = Tensor::<B, 4, Bool>::from_data(blocked, &padding.device());
                let padding: Tensor<B, 4, Bool> = padding.unsqueeze_dims(&[1, 1]);
                AttentionMask::from_blocked(blocked.bool_or(padding.expand(shape)))
            }
        };
        self.places += new_places;
        self.len += new_len;
        mask
    }

    /// The source's padding, as a mask.
    pub(crate) fn memory_mask(&self) -> AttentionMask<B> {
        self.memory_mask.clone()
    }

    /// What attention over all places says of each target's own.
    ///
    /// # Shapes
    /// - map: `[sources, n_heads, targets of each · new_len, room]`
    /// - output: `[rows, n_heads, new_len, len]`
    pub(crate) fn own_places(&self, map: Tensor<B, 4>) -> Tensor<B, 4> {
        let map = by_target(map, self.rows());
        let [rows, n_heads, new_len, _] = map.dims();
        match &self.paths {
            None => map.slice_dim(3, 0..self.len),
            Some(paths) => {
                let places: Vec<i64> = paths.iter().flatten().map(|&place| place as i64).collect();
                let places = TensorData::new(places, [rows, 1, 1, self.len]);
                let places = Tensor::<B, 4, Int>::from_data(places, &map.device());
                map.gather(3, places.expand([rows, n_heads, new_len, self.len]))
            }
        }
    }
}

/// What stands together for each source, target by target.
///
/// # Shapes
/// - map: `[sources, n_heads, targets of each · len, key_len]`
/// - output: `[rows, n_heads, len, key_len]`
pub(crate) fn by_target<B: Backend>(map: Tensor<B, 4>, rows: usize) -> Tensor<B, 4> {
    let [sources, n_heads, positions, key_len] = map.dims();
    let targets = rows / sources;
    let len = positions / targets;
    let map: Tensor<B, 5> = map.reshape([sources, n_heads, targets, len, key_len]);
    map.swap_dims(1, 2).reshape([rows, n_heads, len, key_len])
}
