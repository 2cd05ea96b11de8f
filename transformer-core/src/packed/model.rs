//! The whole model (§3), without a backend: from sources to memories, and from tokens to the log-probabilities of next
//! tokens.

use std::sync::Arc;

use crate::decoding::read_before;
use crate::models::config::TransformerConfig;
use crate::nn::parameters::count;
use crate::nn::stack::StackConfig;
use crate::packed::embedding::{Embedding, Generator};
use crate::packed::limit;
use crate::packed::stack::Stack;
use crate::packed::state::{Memory, Queries, Reading, Source, TokenKind};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::{Buffers, Workspace};
use transformer_cpu::{Threads, rows, sized};
use transformer_kernels::WeightLayout::{InputByOutput, OutputByInput};

/// Rows of log-probabilities computed at a time where only one value per row is kept.
const SCORED_ROWS: usize = 64;

/// A packed model.
pub(crate) struct Model {
    pub config: TransformerConfig,
    /// Number of weights that a source token is multiplied by, without the projections of the memory to keys and
    /// values.
    pub source_weights: usize,
    /// Number of weights that a target token is multiplied by.
    pub target_weights: usize,
    /// `None` in a language model.
    encoder: Option<(Embedding, Stack)>,
    tgt_embedding: Embedding,
    decoder: Stack,
    generator: Generator,
}

/// One step: the next token of the targets of some sources.
pub(crate) struct Step<'a> {
    pub sources: &'a mut [Source],
    /// Per target, the slot of its last token that is not padding; the targets of a source are adjacent.
    pub tips: &'a mut [Option<u32>],
    /// The token of each target.
    pub tokens: &'a [u32],
    /// Its position.
    pub position: usize,
    /// `[rows, tgt_vocab_size]`, `[rows, width]` where sources are limited, or `[rows, count]` of the likeliest tokens,
    /// overwritten.
    pub log_probs: &'a mut [f32],
    /// The likeliest tokens of each row, `[rows, count]`, overwritten; empty unless requested.
    pub likeliest: &'a mut [u32],
    /// Each row's attention to its source, `[rows, src_len]`, initially zero; empty unless requested.
    pub attention: &'a mut [f32],
    pub src_len: usize,
    pub workspace: &'a mut Workspace,
}

impl Model {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let mut table = |name, vocab_size, layout| {
            let sizes = [config.d_model, vocab_size];
            weights.matrix(name, sizes, layout).map(Arc::new)
        };
        // Tied tables are shared.
        let (tying, target_size) = (config.tying, config.tgt_vocab_size);
        let source = match config.is_language_model() {
            true => None,
            false => Some(table(
                "src_embedding.weight",
                config.src_vocab_size,
                OutputByInput,
            )?),
        };
        let (side, target) = match &source {
            None => ("", table("embedding.weight", target_size, OutputByInput)?),
            Some(source) if tying.ties_source_target() => ("tgt_", Arc::clone(source)),
            Some(_) => (
                "tgt_",
                table("tgt_embedding.weight", target_size, OutputByInput)?,
            ),
        };
        let generator = match tying.ties_generator() {
            true => Arc::clone(&target),
            false => table("generator.weight", target_size, InputByOutput)?,
        };
        let encoder = match source {
            None => None,
            Some(table) => Some((
                Embedding::read(weights, "src_", table, config)?,
                Stack::read(weights, "encoder", &config.encoder())?,
            )),
        };
        Ok(Self {
            source_weights: weights_of_token(&config.encoder()),
            target_weights: weights_of_token(&config.decoder()) + config.d_model * target_size,
            encoder,
            tgt_embedding: Embedding::read(weights, side, target, config)?,
            decoder: Stack::read(weights, "decoder", &config.decoder())?,
            generator: Generator::read(weights, generator, config)?,
            config: config.clone(),
        })
    }

    /// Encodes sources, each with one empty target.
    pub fn encode(
        &self,
        sources: &[&[u32]],
        workspace: &mut Workspace,
        threads: Threads,
    ) -> Vec<Source> {
        let Workspace { x, buffers, .. } = workspace;
        buffers.products.threads = threads;
        let pad = self.config.pad_id;
        let memories = sources.iter().map(|source| Memory::new(source, pad));
        let mut memories: Vec<Memory> = memories.collect();
        if let Some((embedding, encoder)) = &self.encoder {
            embedding.forward(with_positions(sources), x);
            encoder.forward(x, &memories, buffers);
            self.decoder.project_memory(x, &mut memories, buffers);
        }
        let layers = self.config.n_decoder_layers;
        let sources = memories.into_iter();
        sources.map(|memory| Source::new(memory, layers)).collect()
    }

    /// Appends a token to each target, and computes the log-probabilities of the next tokens.
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
            queries.append(step.sources, row / targets, tip, step.position, kind);
        }
        let tokens = step.tokens.iter().map(|&token| (token, step.position));
        self.tgt_embedding.forward(tokens, x);
        let reading = Reading {
            queries,
            sources: &mut *step.sources,
            attention: step.attention,
            src_len: step.src_len,
        };
        self.decoder.next(x, reading, buffers);
        let Buffers {
            projected,
            products,
            ..
        } = buffers;
        match limit::width(step.sources) {
            Some(_) => {
                let sources = (&*step.sources, targets);
                limit::forward(x, sources, step.log_probs, projected, products);
            }
            None if step.likeliest.is_empty() => {
                self.generator.forward(x, step.log_probs, products);
            }
            None => {
                let width = self.config.tgt_vocab_size;
                let logits = sized(projected, step.tokens.len() * width);
                self.generator.logits(x, logits, products);
                rows::likeliest(logits, width, step.likeliest, step.log_probs);
            }
        }
    }

    /// Limits the targets of sources to candidates, in ascending order.
    pub fn limit(&self, sources: &mut [Source], candidates: &[Vec<u32>]) {
        limit::limit(&self.generator, sources, candidates);
    }

    /// Reads the first tokens of one target per source. The workspace then has the decoder's output at each token.
    pub fn read_tokens(
        &self,
        sources: &mut [Source],
        tips: &mut [Option<u32>],
        read: &[impl AsRef<[u32]>],
        workspace: &mut Workspace,
        threads: Threads,
    ) {
        let Workspace {
            x,
            queries,
            buffers,
        } = workspace;
        buffers.products.threads = threads;
        self.append_all(sources, tips, read, queries);
        self.tgt_embedding.forward(with_positions(read), x);
        let reading = Reading {
            queries,
            sources,
            attention: &mut [],
            src_len: 0,
        };
        self.decoder.next(x, reading, buffers);
    }

    /// Reads one whole target per source, except for its last token, and returns the log-probabilities of all tokens,
    /// target after target.
    pub fn read_targets(
        &self,
        sources: &mut [Source],
        tips: &mut [Option<u32>],
        targets: &[&[u32]],
        workspace: &mut Workspace,
        threads: Threads,
    ) -> Vec<f32> {
        let read = targets.iter();
        let read: Vec<_> = read
            .map(|target| read_before(self.config.bos_id, target))
            .collect();
        self.read_tokens(sources, tips, &read, workspace, threads);

        let Workspace { x, buffers, .. } = workspace;
        let (d_model, vocab_size) = (self.config.d_model, self.config.tgt_vocab_size);
        let labels = targets.concat();
        let mut found = Vec::with_capacity(labels.len());
        let parts = x.chunks_mut(SCORED_ROWS * d_model);
        for (hidden, labels) in parts.zip(labels.chunks(SCORED_ROWS)) {
            let log_probs = sized(&mut buffers.projected, labels.len() * vocab_size);
            self.generator
                .forward(hidden, log_probs, &mut buffers.products);
            let rows = labels.iter().zip(log_probs.chunks(vocab_size));
            found.extend(rows.map(|(&label, row)| row[label as usize]));
        }
        found
    }

    /// Appends all tokens of one target per source.
    fn append_all(
        &self,
        sources: &mut [Source],
        tips: &mut [Option<u32>],
        targets: &[impl AsRef<[u32]>],
        queries: &mut Queries,
    ) {
        queries.clear();
        for (source, (target, tip)) in targets.iter().zip(tips).enumerate() {
            for (position, &token) in target.as_ref().iter().enumerate() {
                let kind = self.kind(token, position);
                queries.append(sources, source, tip, position, kind);
            }
        }
    }

    /// Whether a target token is padding: `<pad>` is, unless it is also `<bos>` and comes first.
    fn kind(&self, token: u32, position: usize) -> TokenKind {
        let tokens = self.config.special_tokens();
        let is_start = position == 0 && tokens.bos == tokens.pad;
        match Some(token) == tokens.padding() && !is_start {
            true => TokenKind::Padding,
            false => TokenKind::Attended,
        }
    }
}

/// Number of weights that a token is multiplied by in a stack, without the projections of the memory to keys and
/// values.
fn weights_of_token(stack: &StackConfig) -> usize {
    let matrices = stack
        .layer
        .parameters()
        .into_iter()
        .filter(|(name, shape)| {
            shape.len() == 2 && !name.starts_with("cross_attention.key_value.")
        });
    stack.n_layers * count(&matrices.collect::<Vec<_>>()) as usize
}

/// The tokens of all sequences, sequence after sequence, each with its position.
fn with_positions(sequences: &[impl AsRef<[u32]>]) -> impl Iterator<Item = (u32, usize)> {
    let sequences = sequences.iter();
    sequences.flat_map(|sequence| sequence.as_ref().iter().copied().zip(0..))
}
