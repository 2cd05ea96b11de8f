//! The limitation of targets to some tokens per source.

use std::sync::Arc;

use crate::packed::embedding::Generator;
use crate::packed::state::Source;
use crate::packed::workspace::Products;
use transformer_cpu::{rows, sized};

/// Sources whose candidates are in one matrix. With fewer, more weights are copied; with more, more of them are
/// multiplied for sources that do not need them.
const GROUP: usize = 16;

/// The tokens that the targets of a source are limited to.
#[derive(Clone)]
pub struct Candidates {
    group: Arc<Group>,
    /// Their positions in the group, in ascending order.
    positions: Arc<[u32]>,
}

/// The candidates of some sources.
struct Group {
    generator: Generator,
    /// In ascending order.
    tokens: Vec<u32>,
}

/// Limits sources to candidates, in ascending order.
pub fn limit(generator: &Generator, sources: &mut [Source], candidates: &[Vec<u32>]) {
    let groups = candidates.chunks(GROUP);
    for (sources, candidates) in sources.chunks_mut(GROUP).zip(groups) {
        let mut tokens = candidates.concat();
        tokens.sort_unstable();
        tokens.dedup();
        let group = Arc::new(Group {
            generator: generator.limited(&tokens),
            tokens,
        });
        for (source, candidates) in sources.iter_mut().zip(candidates) {
            let position = |token: &u32| group.tokens.partition_point(|other| other < token);
            let positions = candidates.iter().map(position);
            source.candidates = Some(Candidates {
                positions: positions.map(|position| position as u32).collect(),
                group: Arc::clone(&group),
            });
        }
    }
}

/// The most candidates of a source; `None` if the sources are not limited.
pub fn width(sources: &[Source]) -> Option<usize> {
    let counts = sources
        .iter()
        .map(|source| Some(source.candidates.as_ref()?.positions.len()));
    counts.reduce(|one, other| Some(one?.max(other?))).flatten()
}

/// The candidates of each row, `[rows, width]`; the largest number after a source's last candidate.
pub fn tokens(sources: &[Source], rows: usize, width: usize) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(rows * width);
    for candidates in sources
        .iter()
        .filter_map(|source| source.candidates.as_ref())
    {
        for _ in 0..rows / sources.len() {
            let end = tokens.len() + width;
            let positions = candidates.positions.iter();
            tokens.extend(positions.map(|&position| candidates.group.tokens[position as usize]));
            tokens.resize(end, u32::MAX);
        }
    }
    tokens
}

/// Computes the log-probabilities of each source's candidates, if the sources are limited.
///
/// # Shapes
/// - hidden: `[sources · rows, d_model]`, overwritten; each source has `rows` adjacent rows
/// - log_probs: `[sources · rows, width]`, overwritten; −∞ after a source's last candidate
pub fn forward(
    mut hidden: &mut [f32],
    (sources, rows): (&[Source], usize),
    mut log_probs: &mut [f32],
    logits: &mut Vec<f32>,
    products: &mut Products,
) {
    let of_source = [hidden.len(), log_probs.len()].map(|len| len / sources.len());
    let width = of_source[1] / rows;
    let is_same = |one: &Source, other: &Source| match (&one.candidates, &other.candidates) {
        (Some(one), Some(other)) => Arc::ptr_eq(&one.group, &other.group),
        _ => false,
    };
    for sources in sources.chunk_by(is_same) {
        let own_hidden = hidden.split_off_mut(..sources.len() * of_source[0]);
        let own_log_probs = log_probs.split_off_mut(..sources.len() * of_source[1]);
        let (Some(hidden), Some(log_probs)) = (own_hidden, own_log_probs) else {
            return;
        };
        let candidates = sources
            .iter()
            .filter_map(|source| source.candidates.as_ref());
        let mut candidates = candidates.peekable();
        let Some(Candidates { group, .. }) = candidates.peek() else {
            return;
        };
        let count = group.tokens.len();
        let logits = sized(logits, sources.len() * rows * count);
        group.generator.logits(hidden, logits, products);
        let of_sources = log_probs
            .chunks_mut(rows * width)
            .zip(logits.chunks(rows * count));
        for ((log_probs, logits), candidates) in of_sources.zip(candidates) {
            for (row, logits) in log_probs.chunks_mut(width).zip(logits.chunks(count)) {
                let (own, unused) = row.split_at_mut(candidates.positions.len());
                for (to, &position) in own.iter_mut().zip(&*candidates.positions) {
                    *to = logits[position as usize];
                }
                unused.fill(f32::NEG_INFINITY);
                let own_width = own.len();
                rows::log_softmax(own, own_width);
            }
        }
    }
}
