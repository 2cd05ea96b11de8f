//! The limitation of targets to some tokens per source.

use std::sync::Arc;

use crate::packed::embedding::Generator;
use crate::packed::state::Source;
use crate::packed::workspace::Products;
use transformer_cpu::{rows, sized};

/// Limits the targets of each source of a batch to candidates: the tokens of all sources, and their generator. Each source
/// has the positions of its own candidates among them.
pub struct Limit {
    generator: Generator,
    /// The candidates of all sources, in ascending order.
    tokens: Vec<u32>,
    /// The most candidates of a source.
    pub width: usize,
}

impl Limit {
    /// Limits sources to candidates, in ascending order.
    pub fn new(generator: &Generator, sources: &mut [Source], candidates: &[Vec<u32>]) -> Self {
        let mut tokens = candidates.concat();
        tokens.sort_unstable();
        tokens.dedup();
        for (source, candidates) in sources.iter_mut().zip(candidates) {
            let positions = candidates
                .iter()
                .map(|token| tokens.partition_point(|t| t < token));
            let positions: Arc<[u32]> = positions.map(|position| position as u32).collect();
            source.candidates = Some(positions);
        }
        Self {
            generator: generator.limited(&tokens),
            tokens,
            width: candidates.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Computes the log-probabilities of each source's candidates.
    ///
    /// # Shapes
    /// - hidden: `[rows, d_model]`, overwritten; the rows of a source are adjacent
    /// - log_probs: `[rows, width]`, overwritten; −∞ after a source's last candidate
    pub fn forward(
        &self,
        hidden: &mut [f32],
        sources: &[Source],
        log_probs: &mut [f32],
        logits: &mut Vec<f32>,
        products: &mut Products,
    ) {
        let rows = log_probs.len() / self.width;
        let logits = sized(logits, rows * self.tokens.len());
        self.generator.logits(hidden, logits, products);
        let of_rows = sources_of_rows(sources, rows);
        let logits = logits.chunks(self.tokens.len()).zip(of_rows);
        for (log_probs, (logits, source)) in log_probs.chunks_mut(self.width).zip(logits) {
            let (own, unused) = log_probs.split_at_mut(source.candidates().len());
            for (to, &position) in own.iter_mut().zip(source.candidates()) {
                *to = logits[position as usize];
            }
            unused.fill(f32::NEG_INFINITY);
            let width = own.len();
            rows::log_softmax(own, width);
        }
    }

    /// The candidates of each row, `[rows, width]`; the largest number after a source's last candidate.
    pub fn tokens(&self, sources: &[Source], rows: usize) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(rows * self.width);
        for (row, source) in (1..).zip(sources_of_rows(sources, rows)) {
            let positions = source.candidates().iter();
            tokens.extend(positions.map(|&position| self.tokens[position as usize]));
            tokens.resize(row * self.width, u32::MAX);
        }
        tokens
    }
}

/// The source of each row.
fn sources_of_rows(sources: &[Source], rows: usize) -> impl Iterator<Item = &Source> {
    let of_source = rows / sources.len();
    (0..rows).map(move |row| &sources[row / of_source])
}
