//! The whole model (§3), of no backend: sources to memories, and tokens to the log-probabilities of next tokens.

use transformer_cpu::{Threads, sized};

use super::decoder::Decoder;
use super::embedding::{Embedding, Generator, PositionVectors, Tables};
use super::encoder::Encoder;
use super::state::{Memory, Queries, Reading, Source, TokenKind};
use super::weights::NamedWeights;
use super::workspace::Workspace;
use crate::config::TransformerConfig;
use crate::decoding::read_before;

/// Rows of log-probabilities that are computed at a time where most of each row is not kept.
const SCORED_ROWS: usize = 64;

/// A packed model.
pub(super) struct Model {
    pub config: TransformerConfig,
    /// Weights that a token of a source is multiplied with, without those of the memory's keys and values.
    pub source_weights: usize,
    /// Weights that a token of a target is multiplied with.
    pub target_weights: usize,
    src_embedding: Embedding,
    tgt_embedding: Embedding,
    encoder: Encoder,
    decoder: Decoder,
    generator: Generator,
}

/// The next token of some sources' targets.
pub(super) struct Step<'a> {
    pub sources: &'a mut [Source],
    /// For each target, the slot of its last token; those of a source together.
    pub tips: &'a mut [Option<u32>],
    /// The token of each target.
    pub tokens: &'a [u32],
    /// Its position.
    pub position: usize,
    /// `[rows, tgt_vocab_size]`, overwritten.
    pub log_probs: &'a mut [f32],
    /// Each row's attention to its source, `[rows, src_len]`, of zeros; empty unless requested.
    pub attention: &'a mut [f32],
    pub src_len: usize,
    pub workspace: &'a mut Workspace,
}

impl Model {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let tables = Tables::read(weights, config)?;
        let [src_positions, tgt_positions] = PositionVectors::read(weights, config)?;
        let src = Embedding::new(tables.src, src_positions, config);
        let tgt = Embedding::new(tables.tgt, tgt_positions, config);
        Ok(Self {
            source_weights: source_weights(config),
            target_weights: target_weights(config),
            src_embedding: src.with_norm(weights, "src_embedding_norm", config)?,
            tgt_embedding: tgt.with_norm(weights, "tgt_embedding_norm", config)?,
            encoder: Encoder::read(weights, config)?,
            decoder: Decoder::read(weights, config)?,
            generator: Generator::read(weights, tables.generator, config)?,
            config: config.clone(),
        })
    }

    /// Encodes sources.
    pub fn encode(
        &self,
        sources: &[&[u32]],
        workspace: &mut Workspace,
        threads: Threads,
    ) -> Vec<Memory> {
        let Workspace { x, buffers, .. } = workspace;
        buffers.products.threads = threads;
        let pad = self.config.pad_id;
        let memories = sources.iter().map(|source| Memory::new(source, pad));
        let mut memories: Vec<Memory> = memories.collect();
        self.src_embedding.forward(with_positions(sources), x);
        self.encoder.forward(x, &memories, buffers);
        self.decoder.project_memory(x, &mut memories, buffers);
        memories
    }

    /// Appends a token to each target, and computes the log-probabilities of the tokens that may follow.
    pub fn step(&self, step: Step<'_>, threads: Threads) {
        let Workspace {
            x,
            queries,
            buffers,
        } = step.workspace;
        buffers.products.threads = threads;
        queries.clear();
        let targets = step.tokens.len() / step.sources.len();
        for (row, (&token, tip)) in step.tokens.iter().zip(step.tips).enumerate() {
            let kind = self.kind(token, step.position);
            queries.append(step.sources, row / targets, tip, kind);
        }
        let tokens = step.tokens.iter().map(|&token| (token, step.position));
        self.tgt_embedding.forward(tokens, x);
        let reading = Reading {
            queries,
            sources: step.sources,
            attention: step.attention,
            src_len: step.src_len,
        };
        self.decoder.forward(x, reading, buffers);
        self.generator
            .forward(x, step.log_probs, &mut buffers.products);
    }

    /// The log-probability of each token of given targets, one for each source: those of all targets, one after the
    /// other.
    pub fn score(
        &self,
        sources: &[&[u32]],
        targets: &[&[u32]],
        workspace: &mut Workspace,
        threads: Threads,
    ) -> Vec<f32> {
        let memories = self.encode(sources, workspace, threads);
        let sources = &mut memories.into_iter().map(Source::new).collect::<Vec<_>>();
        let Workspace {
            x,
            queries,
            buffers,
        } = workspace;
        let read = targets.iter();
        let read: Vec<_> = read
            .map(|target| read_before(self.config.bos_id, target))
            .collect();
        self.append_all(sources, &read, queries);
        self.tgt_embedding.forward(with_positions(&read), x);
        let reading = Reading {
            queries,
            sources,
            attention: &mut [],
            src_len: 0,
        };
        self.decoder.forward(x, reading, buffers);

        let (d_model, vocab_size) = (self.config.d_model, self.config.tgt_vocab_size);
        let labels = targets.concat();
        let mut found = Vec::with_capacity(labels.len());
        let parts = x.chunks(SCORED_ROWS * d_model);
        for (hidden, labels) in parts.zip(labels.chunks(SCORED_ROWS)) {
            let log_probs = sized(&mut buffers.projected, labels.len() * vocab_size);
            self.generator
                .forward(hidden, log_probs, &mut buffers.products);
            let rows = labels.iter().zip(log_probs.chunks(vocab_size));
            found.extend(rows.map(|(&label, row)| row[label as usize]));
        }
        found
    }

    /// Appends every token of a target to each source.
    fn append_all(&self, sources: &mut [Source], targets: &[Vec<u32>], queries: &mut Queries) {
        queries.clear();
        for (source, target) in targets.iter().enumerate() {
            let mut tip = None;
            for (position, &token) in target.iter().enumerate() {
                let kind = self.kind(token, position);
                queries.append(sources, source, &mut tip, kind);
            }
        }
    }

    /// Whether the token at a position of a target is padding: `<pad>` is, unless it is also `<bos>` and stands at the
    /// beginning.
    fn kind(&self, token: u32, position: usize) -> TokenKind {
        let TransformerConfig { pad_id, bos_id, .. } = self.config;
        let is_start = position == 0 && bos_id == pad_id;
        match token == pad_id && !is_start {
            true => TokenKind::Padding,
            false => TokenKind::Attended,
        }
    }
}

fn source_weights(config: &TransformerConfig) -> usize {
    let layer = config.encoder_layer();
    let attention = 2 * layer.d_model * (layer.keys() + layer.values());
    config.n_encoder_layers * (attention + 2 * layer.d_model * layer.d_ff)
}

fn target_weights(config: &TransformerConfig) -> usize {
    let layer = config.decoder_layer();
    // To its own target all four matrices, to the memory those of the query and of the output.
    let attention = 3 * layer.d_model * (layer.keys() + layer.values());
    let layers = config.n_decoder_layers * (attention + 2 * layer.d_model * layer.d_ff);
    layers + config.d_model * config.tgt_vocab_size
}

/// All tokens of some sequences, one sequence after the other, each with its position.
fn with_positions(sequences: &[impl AsRef<[u32]>]) -> impl Iterator<Item = (u32, usize)> {
    let sequences = sequences.iter();
    sequences.flat_map(|sequence| sequence.as_ref().iter().copied().zip(0..))
}
