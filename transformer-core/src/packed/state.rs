//! The state of decoding: for each source of a batch its memory, and its targets so far.
//!
//! A token's keys and values are in one slot of its source, in every layer. A slot knows the one before it, so that
//! a target is known by the slot of its last token, and targets with a common beginning share its slots. To select
//! sources and targets moves sources and copies slot numbers, but no keys or values.

use std::iter;
use std::mem;
use std::sync::Arc;

use super::model::Step;
use super::tasks;
use super::workspace::Workspace;
use crate::ops::host::Threads;

/// The state of a [`PackedTransformer`](crate::PackedTransformer) between two tokens.
#[derive(Debug, Clone)]
pub struct PackedState {
    pub(super) sources: Vec<Source>,
    /// For each target, the slot of its last token that is attended to; those of a source together, the same number
    /// for each source.
    pub(super) tips: Vec<Option<u32>>,
    /// Number of tokens of each target.
    pub(super) len: usize,
    /// Tokens of the longest source that the batch began with.
    pub(super) src_len: usize,
    /// The memory of each task.
    pub(super) workspaces: Vec<Workspace>,
}

impl PackedState {
    /// Sources that have one empty target each.
    pub(super) fn new(memories: Vec<Memory>, workspaces: Vec<Workspace>) -> Self {
        Self {
            tips: vec![None; memories.len()],
            len: 0,
            src_len: memories.iter().map(|memory| memory.len).max().unwrap_or(0),
            sources: memories.into_iter().map(Source::new).collect(),
            workspaces,
        }
    }

    /// The next step of all targets, dealt to tasks.
    ///
    /// # Shapes
    /// - last: a token for each target
    /// - log_probs: `[rows, tgt_vocab_size]`, where the results go
    /// - attention: `[rows, src_len]`, zeros; empty unless requested
    pub(super) fn steps<'a>(
        &'a mut self,
        last: &'a [u32],
        threads: Threads,
        log_probs: &'a mut [f32],
        attention: &'a mut [f32],
    ) -> Vec<Step<'a>> {
        let rows = self.tips.len();
        assert_eq!(last.len(), rows, "targets and sources must pair up");
        let tasks = tasks::count(rows, threads);
        let needed = self.workspaces.len().max(tasks);
        self.workspaces.resize_with(needed, Workspace::default);

        let (position, src_len) = (self.len, self.src_len);
        let vocab_size = log_probs.len() / rows;
        let sources = self.sources.len().div_ceil(tasks);
        let rows = sources * (rows / self.sources.len());
        let mut attention = attention.chunks_mut((rows * src_len).max(1));
        let parts = self.sources.chunks_mut(sources).zip(&mut self.workspaces);
        let parts = parts.zip(self.tips.chunks_mut(rows).zip(last.chunks(rows)));
        let parts = parts.zip(log_probs.chunks_mut(rows * vocab_size));
        parts
            .map(|(((sources, workspace), (tips, tokens)), log_probs)| Step {
                sources,
                tips,
                tokens,
                position,
                log_probs,
                attention: attention.next().unwrap_or_default(),
                src_len,
                workspace,
            })
            .collect()
    }

    /// Keeps the given sources, in the given order, and the targets `rows`: the same number for each source, those
    /// of a source together. Indices may repeat.
    ///
    /// # Panics
    /// When no source is given, an index is out of range, or a row is not a target of its source.
    pub(super) fn select(&mut self, sources: &[usize], rows: &[usize]) {
        assert!(!sources.is_empty(), "no source to keep");
        let (old, new) = (
            self.tips.len() / self.sources.len(),
            rows.len() / sources.len(),
        );
        let sources_of_rows = sources
            .iter()
            .flat_map(|&source| iter::repeat_n(source, new));
        assert!(
            sources_of_rows.eq(rows.iter().map(|row| row / old)),
            "targets {rows:?} of sources {sources:?}, each of which has {old}"
        );
        self.tips = rows.iter().map(|&row| self.tips[row]).collect();
        if !sources.iter().copied().eq(0..self.sources.len()) {
            self.move_sources(sources);
        }
    }

    /// Moves each source to where it is wanted; where it is wanted more than once, copies of it.
    fn move_sources(&mut self, sources: &[usize]) {
        let mut copies = vec![0; self.sources.len()];
        sources.iter().for_each(|&source| copies[source] += 1);
        let old = mem::take(&mut self.sources).into_iter();
        let mut old: Vec<Option<Source>> = old.map(Some).collect();
        let moved = sources.iter().map(|&source| {
            copies[source] -= 1;
            match copies[source] {
                0 => old[source].take(),
                _ => old[source].clone(),
            }
        });
        self.sources = moved.flatten().collect();
    }
}

/// A source as the decoder attends to it.
#[derive(Debug)]
pub(super) struct Memory {
    /// Number of tokens.
    pub len: usize,
    /// The positions of tokens that are not padding.
    pub attended: Vec<u32>,
    /// For each layer of the decoder, the keys of all heads and then the values of every token:
    /// `[len, n_heads · (d_k + d_v)]`.
    pub key_values: Vec<Vec<f32>>,
}

impl Memory {
    /// The memory of a source, without keys and values.
    pub fn new(source: &[u32], pad: u32) -> Self {
        let positions = (0..).zip(source);
        let attended = positions.filter(|&(_, &token)| token != pad);
        Self {
            len: source.len(),
            attended: attended.map(|(position, _)| position).collect(),
            key_values: Vec::new(),
        }
    }

    /// Moves the weights of the attended tokens, which are first in a row, to the positions of these tokens.
    ///
    /// # Shapes
    /// - row: `[src_len]`, zeros after the weights
    pub fn place(&self, row: &mut [f32]) {
        for (index, &position) in self.attended.iter().enumerate().rev() {
            let weight = mem::take(&mut row[index]);
            row[position as usize] = weight;
        }
    }
}

/// A source of a batch, and the slots of its targets' tokens.
#[derive(Debug, Clone)]
pub(super) struct Source {
    memory: Arc<Memory>,
    /// For each slot, the one before it in its target.
    before: Vec<Option<u32>>,
    /// For each layer, the keys of all heads and then the values in every slot: `[slots, n_heads · (d_k + d_v)]`.
    key_values: Vec<Vec<f32>>,
}

impl Source {
    pub fn new(memory: Memory) -> Self {
        Self {
            before: Vec::new(),
            key_values: vec![Vec::new(); memory.key_values.len()],
            memory: Arc::new(memory),
        }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Gives a target's next token a slot. Its keys and values follow, layer by layer.
    fn append(&mut self, tip: &mut Option<u32>, kind: TokenKind) {
        let slot = self.before.len() as u32;
        self.before.push(*tip);
        if kind == TokenKind::Attended {
            *tip = Some(slot);
        }
    }

    /// Keeps the keys and values of a layer in the next slot: `[n_heads · (d_k + d_v)]`.
    pub fn keep(&mut self, layer: usize, key_value: &[f32]) {
        self.key_values[layer].extend_from_slice(key_value);
    }

    /// The keys and values of a layer: `[slots, n_heads · (d_k + d_v)]`.
    pub fn key_values(&self, layer: usize) -> &[f32] {
        &self.key_values[layer]
    }

    /// The slots of a target, the last first.
    fn slots(&self, tip: Option<u32>) -> impl Iterator<Item = u32> {
        iter::successors(tip, move |&slot| self.before[slot as usize])
    }
}

/// Whether a token is attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Attended,
    /// It is read, and has a slot, but no token attends to it.
    Padding,
}

/// The rows of a decoder call: new tokens of targets, and the slots that each attends to.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// The source of each row, by its index in the batch or task.
    sources: Vec<usize>,
    /// The slots of all rows, one row after the other, those of each in the order of its target.
    slots: Vec<u32>,
    /// The end of each row's slots.
    ends: Vec<usize>,
}

impl Queries {
    pub fn clear(&mut self) {
        self.sources.clear();
        self.slots.clear();
        self.ends.clear();
    }

    /// Appends a token to the target of a source whose last slot is `tip`, and adds its row.
    pub fn append(
        &mut self,
        sources: &mut [Source],
        source: usize,
        tip: &mut Option<u32>,
        kind: TokenKind,
    ) {
        sources[source].append(tip, kind);
        let first = self.slots.len();
        self.slots.extend(sources[source].slots(*tip));
        self.slots[first..].reverse();
        self.ends.push(self.slots.len());
        self.sources.push(source);
    }

    /// For each row its source, and the slots that it attends to.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let mut first = 0;
        let rows = self.sources.iter().zip(&self.ends);
        rows.map(move |(&source, &end)| {
            let slots = &self.slots[first..end];
            first = end;
            (source, slots)
        })
    }
}

/// What a decoder call reads and writes beside its rows.
pub(super) struct Reading<'a> {
    pub queries: &'a Queries,
    pub sources: &'a mut [Source],
    /// Each row's attention to its source, summed over layers and heads, that of attended tokens first:
    /// `[rows, src_len]`. Empty unless requested.
    pub attention: &'a mut [f32],
    pub src_len: usize,
}

impl Reading<'_> {
    /// Turns the sums of attention, over so many heads of all layers, into means at the positions of their tokens.
    pub fn finish_attention(&mut self, heads: usize) {
        let rows = self.attention.chunks_mut(self.src_len.max(1));
        for (row, (source, _)) in rows.zip(self.queries.iter()) {
            row.iter_mut().for_each(|sum| *sum /= heads as f32);
            self.sources[source].memory().place(row);
        }
    }
}
