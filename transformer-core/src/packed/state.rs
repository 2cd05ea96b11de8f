//! The state of decoding: per source of a batch, its memory and its targets so far.
//!
//! In every layer, a token's keys and values are in one slot of its source. Each slot links to the one before it, so
//! that a target is identified by the slot of its last token, and targets with a common beginning share slots.
//! Selecting sources and targets moves sources and copies slot numbers. Keys and values are moved only when more than
//! half of a source's slots belong to no target; these slots are then freed.

use std::fmt;
use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::packed::limit::Candidates;
use crate::packed::model::Step;
use crate::packed::tasks;
use crate::packed::workspace::Workspace;
use transformer_cpu::Threads;

/// The state of a [`PackedModel`](crate::PackedModel) between two tokens.
#[derive(Clone)]
pub struct PackedState {
    pub(crate) sources: Vec<Source>,
    /// Per target, the slot of its last token that is not padding. The targets of a source are adjacent, and every
    /// source has the same number of them.
    pub(crate) tips: Vec<Option<u32>>,
    /// Number of tokens per target.
    pub(crate) len: usize,
    /// Length of the longest source in the initial batch.
    pub(crate) src_len: usize,
    /// The buffers of each task.
    pub(crate) workspaces: Vec<Workspace>,
    /// The threads that a step may use.
    pub(crate) threads: Threads,
}

impl PackedState {
    /// Sources with one empty target each.
    pub(crate) fn new(sources: Vec<Source>, workspaces: Vec<Workspace>, threads: Threads) -> Self {
        let lengths = sources.iter().map(|source| source.memory.len);
        Self {
            tips: vec![None; sources.len()],
            len: 0,
            src_len: lengths.max().unwrap_or(0),
            sources,
            workspaces,
            threads,
        }
    }

    /// The next step of all targets, divided into tasks.
    ///
    /// # Shapes
    /// - last: one token per target
    /// - log_probs: `[rows, tgt_vocab_size]`, `[rows, width]` where sources are limited, or `[rows, count]` of the
    ///   likeliest tokens, overwritten with the results
    /// - likeliest: `[rows, count]`, overwritten with the tokens; empty unless requested
    /// - attention: `[rows, src_len]`, zeros; empty unless requested
    pub(crate) fn steps<'a>(
        &'a mut self,
        last: &'a [u32],
        threads: Threads,
        log_probs: &'a mut [f32],
        likeliest: &'a mut [u32],
        attention: &'a mut [f32],
    ) -> Vec<Step<'a>> {
        let rows = self.tips.len();
        assert_eq!(last.len(), rows, "one token per target is needed");
        let tasks = tasks::count(rows, threads);
        let needed = self.workspaces.len().max(tasks);
        self.workspaces.resize_with(needed, Workspace::default);

        let (position, src_len) = (self.len, self.src_len);
        let width = log_probs.len() / rows;
        let sources = self.sources.len().div_ceil(tasks);
        let rows = sources * (rows / self.sources.len());
        let mut attention = attention.chunks_mut((rows * src_len).max(1));
        let mut likeliest = likeliest.chunks_mut((rows * width).max(1));
        let parts = self.sources.chunks_mut(sources).zip(&mut self.workspaces);
        let parts = parts.zip(self.tips.chunks_mut(rows).zip(last.chunks(rows)));
        let parts = parts.zip(log_probs.chunks_mut(rows * width));
        parts
            .map(|(((sources, workspace), (tips, tokens)), log_probs)| Step {
                sources,
                tips,
                tokens,
                position,
                log_probs,
                likeliest: likeliest.next().unwrap_or_default(),
                attention: attention.next().unwrap_or_default(),
                src_len,
                workspace,
            })
            .collect()
    }

    /// The sources and targets of each task, with its buffers.
    pub(crate) fn readings<'a, 't>(
        &'a mut self,
        tasks: Vec<Range<usize>>,
        targets: &'t [&'t [u32]],
    ) -> Vec<ReadingTask<'a, 't>> {
        let needed = self.workspaces.len().max(tasks.len());
        self.workspaces.resize_with(needed, Workspace::default);
        let (mut sources, mut tips) = (&mut self.sources[..], &mut self.tips[..]);
        let mut readings = Vec::with_capacity(tasks.len());
        for (task, workspace) in tasks.into_iter().zip(&mut self.workspaces) {
            let (own, rest) = mem::take(&mut sources).split_at_mut(task.len());
            let (own_tips, rest_tips) = mem::take(&mut tips).split_at_mut(task.len());
            (sources, tips) = (rest, rest_tips);
            readings.push((own, own_tips, &targets[task], workspace));
        }
        readings
    }

    /// Selects the given sources, in the given order, and the targets `rows`: the same number per source, adjacent to
    /// each other. Indices may repeat.
    ///
    /// # Panics
    /// When no source is given, an index is out of range, or a row is not a target of its source.
    pub(crate) fn select(&mut self, sources: &[usize], rows: &[usize]) {
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
        let tips = self.tips.chunks_mut(new.max(1));
        for (source, tips) in self.sources.iter_mut().zip(tips) {
            source.free_slots(tips);
        }
    }

    /// Reorders the sources by index. A source whose index repeats is copied.
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

impl fmt::Debug for PackedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedState")
            .field("sources", &self.sources.len())
            .field("targets", &self.tips.len())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The sources of a task, the tips of their targets, the tokens to read, and its buffers.
pub(crate) type ReadingTask<'a, 't> = (
    &'a mut [Source],
    &'a mut [Option<u32>],
    &'t [&'t [u32]],
    &'a mut Workspace,
);

/// A source as the decoder attends to it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Number of tokens.
    pub len: usize,
    /// The positions of tokens that are not padding.
    pub attended: Vec<u32>,
    /// Per decoder layer, the keys of all heads and then the values of every token: `[len, n_kv_heads · (d_k + d_v)]`.
    pub key_values: Vec<Vec<f32>>,
}

impl Memory {
    /// The memory of a source, with keys and values still missing.
    pub fn new(source: &[u32], pad: u32) -> Self {
        let positions = (0..).zip(source);
        let attended = positions.filter(|&(_, &token)| token != pad);
        Self {
            len: source.len(),
            attended: attended.map(|(position, _)| position).collect(),
            key_values: Vec::new(),
        }
    }

    /// Moves attention weights, which come first in a row, to the positions of their tokens.
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

/// With fewer slots, a source keeps all of them: they need little memory.
const FEW_SLOTS: usize = 256;

/// A source of a batch, and the slots of its targets' tokens.
#[derive(Clone)]
pub(crate) struct Source {
    memory: Arc<Memory>,
    /// Per slot, the slot before it in its target.
    before: Vec<Option<u32>>,
    /// Per slot, the position of its token.
    positions: Vec<u32>,
    /// Per layer, the keys of all heads and then the values in every slot, `[slots, n_kv_heads · (d_k + d_v)]`; in a
    /// layer with a recurrence its states, `[slots, d_model]`.
    key_values: Vec<Vec<f32>>,
    /// The tokens that its targets are limited to.
    pub candidates: Option<Candidates>,
}

impl Source {
    /// A source without target tokens, for a decoder of this many layers.
    pub fn new(memory: Memory, layers: usize) -> Self {
        Self {
            before: Vec::new(),
            positions: Vec::new(),
            key_values: vec![Vec::new(); layers],
            candidates: None,
            memory: Arc::new(memory),
        }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Allocates a slot for a target's next token. Its keys and values follow, layer by layer.
    fn append(&mut self, tip: &mut Option<u32>, position: usize, kind: TokenKind) {
        let slot = self.before.len() as u32;
        self.before.push(*tip);
        self.positions.push(position as u32);
        if kind == TokenKind::Attended {
            *tip = Some(slot);
        }
    }

    /// Appends the keys and values of a layer for the next slot, `[n_kv_heads · (d_k + d_v)]`, or its state,
    /// `[d_model]`.
    pub fn keep(&mut self, layer: usize, key_value: &[f32]) {
        self.key_values[layer].extend_from_slice(key_value);
    }

    /// The position of the token in each slot.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The keys and values of a layer, `[slots, n_kv_heads · (d_k + d_v)]`, or its states, `[slots, d_model]`.
    pub fn key_values(&self, layer: usize) -> &[f32] {
        &self.key_values[layer]
    }

    /// Frees the slots that belong to none of the source's targets, if there are many slots and these are more than
    /// half. The remaining slots are renumbered in the same order.
    fn free_slots(&mut self, tips: &mut [Option<u32>]) {
        let slots = self.before.len();
        if slots < FEW_SLOTS {
            return;
        }
        let is_kept = self.slots_of(tips);
        let kept = is_kept.iter().filter(|&&is_kept| is_kept).count();
        if 2 * kept >= slots {
            return;
        }
        // Per slot, the number of kept slots before it, which is its new number.
        let mut next = 0;
        let numbers = is_kept.iter().map(|&is_kept| {
            let number = next;
            next += u32::from(is_kept);
            number
        });
        let numbers: Vec<u32> = numbers.collect();
        let renumbered = |slot: Option<u32>| slot.map(|slot| numbers[slot as usize]);
        tips.iter_mut().for_each(|tip| *tip = renumbered(*tip));
        let kept_slots = (0..slots).filter(|&slot| is_kept[slot]);
        let before = kept_slots.clone().map(|slot| renumbered(self.before[slot]));
        self.before = before.collect();
        self.positions = kept_slots
            .clone()
            .map(|slot| self.positions[slot])
            .collect();
        for key_values in &mut self.key_values {
            let width = key_values.len() / slots;
            for slot in kept_slots.clone() {
                let row = slot * width..(slot + 1) * width;
                key_values.copy_within(row, numbers[slot] as usize * width);
            }
            key_values.truncate(kept * width);
        }
    }

    /// Per slot, whether it belongs to one of these targets.
    fn slots_of(&self, tips: &[Option<u32>]) -> Vec<bool> {
        let mut belongs = vec![false; self.before.len()];
        for &tip in tips {
            for slot in self.slots(tip) {
                // From here on, the target shares its slots with another.
                if belongs[slot as usize] {
                    break;
                }
                belongs[slot as usize] = true;
            }
        }
        belongs
    }

    /// The slots of a target, last first.
    fn slots(&self, tip: Option<u32>) -> impl Iterator<Item = u32> {
        iter::successors(tip, move |&slot| self.before[slot as usize])
    }
}

/// Whether a token is attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Attended,
    /// It is read, and has a slot, but no token attends to it.
    Padding,
}

/// A row of a decoder call.
pub(crate) struct Query<'a> {
    /// The index of its source in the batch or task.
    pub source: usize,
    /// Its position in its target.
    pub position: u32,
    pub kind: TokenKind,
    /// The slots that it attends to, in the order of its target. This list is the causal mask: it has no slot after the
    /// row's own.
    pub slots: &'a [u32],
}

impl Query<'_> {
    /// The slot of the last token before it that is not padding.
    pub fn before(&self) -> Option<u32> {
        let own = usize::from(self.kind == TokenKind::Attended);
        let before = self.slots.len().checked_sub(1 + own)?;
        Some(self.slots[before])
    }
}

/// The rows of a decoder call: new tokens of targets, and the slots that each attends to.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    rows: Vec<Row>,
    /// The slots of all rows, each in the order of its target. The rows of adjacent tokens of a target share theirs.
    slots: Vec<u32>,
}

#[derive(Debug)]
struct Row {
    source: usize,
    position: u32,
    kind: TokenKind,
    /// Its slots.
    slots: Range<usize>,
    /// The last slot of its target.
    tip: Option<u32>,
}

impl Queries {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.slots.clear();
    }

    /// Appends a token at a position to the target of a source whose last slot is `tip`, and adds its row.
    pub fn append(
        &mut self,
        sources: &mut [Source],
        source: usize,
        tip: &mut Option<u32>,
        position: usize,
        kind: TokenKind,
    ) {
        let before = *tip;
        sources[source].append(tip, position, kind);
        let follows = |last: &&Row| {
            last.source == source && last.tip == before && last.slots.end == self.slots.len()
        };
        let start = match self.rows.last().filter(follows) {
            Some(last) => {
                let start = last.slots.start;
                self.slots.extend(tip.filter(|_| *tip != before));
                start
            }
            None => {
                let start = self.slots.len();
                self.slots.extend(sources[source].slots(*tip));
                self.slots[start..].reverse();
                start
            }
        };
        self.rows.push(Row {
            source,
            position: position as u32,
            kind,
            slots: start..self.slots.len(),
            tip: *tip,
        });
    }

    /// The position of each row's token.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.position as usize)
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = Query<'_>> {
        self.rows.iter().map(|row| Query {
            source: row.source,
            position: row.position,
            kind: row.kind,
            slots: &self.slots[row.slots.clone()],
        })
    }
}

/// The data that a decoder call reads and writes, apart from its rows.
pub(crate) struct Reading<'a> {
    pub queries: &'a Queries,
    pub sources: &'a mut [Source],
    /// Each row's attention to its source, summed over layers and heads, the weights of attended tokens first:
    /// `[rows, src_len]`. Empty unless requested.
    pub attention: &'a mut [f32],
    pub src_len: usize,
}

impl Reading<'_> {
    /// Divides the sums of attention by `heads`, the number of heads of all layers, and moves them to the positions of
    /// their tokens.
    pub fn finish_attention(&mut self, heads: usize) {
        let rows = self.attention.chunks_mut(self.src_len.max(1));
        for (row, query) in rows.zip(self.queries.iter()) {
            row.iter_mut().for_each(|sum| *sum /= heads as f32);
            self.sources[query.source].memory().place(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 8;
    const LAYERS: usize = 2;

    /// Two sources with `WIDTH` empty targets each.
    fn state() -> PackedState {
        let source = || Source::new(Memory::new(&[3], 0), LAYERS);
        let sources = vec![source(), source()];
        let mut state = PackedState::new(sources, Vec::new(), Threads::All);
        state.select(&[0, 1], &[[0_usize; WIDTH], [1; WIDTH]].concat());
        state
    }

    /// Appends a token to each target, with the given key and its layer as value. Returns the keys that each target
    /// attends to in the last layer.
    fn step(state: &mut PackedState, keys: &[f32]) -> Vec<Vec<f32>> {
        let targets = state.tips.len() / state.sources.len();
        let mut queries = Queries::default();
        for (row, tip) in state.tips.iter_mut().enumerate() {
            let source = row / targets;
            queries.append(
                &mut state.sources,
                source,
                tip,
                state.len,
                TokenKind::Attended,
            );
        }
        for (&key, query) in keys.iter().zip(queries.iter()) {
            for layer in 0..LAYERS {
                state.sources[query.source].keep(layer, &[key, layer as f32]);
            }
        }
        let attended = queries.iter().map(|query| {
            let key_values = state.sources[query.source].key_values(LAYERS - 1);
            let keys = query
                .slots
                .iter()
                .map(|&slot| key_values[2 * slot as usize]);
            keys.collect()
        });
        attended.collect()
    }

    /// Number of slots per source; checks that every layer has the same number.
    fn slots(state: &PackedState) -> Vec<usize> {
        let slots = state.sources.iter().map(|source| {
            for (layer, key_values) in source.key_values.iter().enumerate() {
                assert_eq!(key_values.len(), 2 * source.before.len());
                let mut values = key_values.iter().skip(1).step_by(2);
                assert!(values.all(|&value| value == layer as f32));
            }
            source.before.len()
        });
        slots.collect()
    }

    /// Runs `steps` steps, after each of which the targets of a source continue those that `parents(step, row)` gives.
    /// Returns the largest number of slots of a source.
    fn most_slots(steps: usize, parents: impl Fn(usize, usize) -> usize) -> usize {
        let mut state = state();
        let mut targets = vec![Vec::new(); 2 * WIDTH];
        let mut most = 0;
        for at in 0..steps {
            let keys: Vec<f32> = (0..2 * WIDTH).map(|row| (at * 100 + row) as f32).collect();
            for (target, &key) in targets.iter_mut().zip(&keys) {
                target.push(key);
            }
            assert!(step(&mut state, &keys) == targets, "step {at}");
            most = slots(&state).into_iter().max().unwrap().max(most);
            let rows = (0..2 * WIDTH).map(|row| {
                let (source, row) = (row / WIDTH, row % WIDTH);
                source * WIDTH + parents(at + source, row)
            });
            let rows: Vec<usize> = rows.collect();
            state.select(&[0, 1], &rows);
            targets = rows.iter().map(|&row| targets[row].clone()).collect();
        }
        most
    }

    #[test]
    fn slots_of_dropped_targets_are_freed() {
        // One target per step is continued: 200 of 1600 slots are attended to at the end.
        let most = most_slots(200, |at, _| at % WIDTH);
        assert!(most <= 2 * 200 + WIDTH, "{most}");
        // Targets that differ only in their last tokens.
        let most = most_slots(200, |at, row| match at % 5 {
            0 => at % WIDTH,
            _ => (row + at) % WIDTH,
        });
        assert!(most <= 2 * (200 + 5 * WIDTH) + WIDTH, "{most}");
    }

    #[test]
    fn slots_of_every_target_are_kept() {
        assert_eq!(most_slots(60, |_, row| row), 60 * WIDTH);
    }
}
