//! Embeddings of tokens and their positions (§3.4, §3.5), and the projection back to the vocabulary (§3.4).

use std::sync::Arc;

use transformer_cpu::{PackedMatrix, rows};

use super::layers::{Norm, PackedLinear};
use super::weights::NamedWeights;
use super::workspace::Products;
use crate::config::TransformerConfig;
use crate::layer_config::Positions;
use crate::ops::WeightLayout::{InputByOutput, OutputByInput};
use crate::positional_encoding::TABLE_LEN;

/// The tables of source and target embeddings and of the generator, those that are tied as one.
pub(super) struct Tables {
    pub src: Arc<PackedMatrix>,
    pub tgt: Arc<PackedMatrix>,
    pub generator: Arc<PackedMatrix>,
}

impl Tables {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let tying = config.tying;
        let mut matrix = |name, vocab_size, layout| {
            let sizes = [config.d_model, vocab_size];
            weights.matrix(name, sizes, layout).map(Arc::new)
        };
        let (src_size, tgt_size) = (config.src_vocab_size, config.tgt_vocab_size);
        let src = matrix("src_embedding.weight", src_size, OutputByInput)?;
        let tgt = match tying.ties_source_target() {
            true => Arc::clone(&src),
            false => matrix("tgt_embedding.weight", tgt_size, OutputByInput)?,
        };
        let generator = match tying.ties_generator() {
            true => Arc::clone(&tgt),
            false => matrix("generator.weight", tgt_size, InputByOutput)?,
        };
        Ok(Self {
            src,
            tgt,
            generator,
        })
    }
}

/// The vectors of positions: learned ones, or the sines and cosines of the first.
pub(super) struct PositionVectors {
    kind: Positions,
    /// `[max_len or TABLE_LEN, d_model]`
    vectors: Vec<f32>,
}

impl PositionVectors {
    /// The vectors of the source and of the target, which are one table unless they are learned.
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<[Arc<Self>; 2], W::Error> {
        let (kind, d_model) = (config.positions, config.d_model);
        let new = |vectors| Arc::new(Self { kind, vectors });
        let Positions::Learned { max_len } = kind else {
            let fixed = kind.fixed_values(0, TABLE_LEN, d_model);
            let fixed = new(fixed.unwrap_or_default());
            return Ok([Arc::clone(&fixed), fixed]);
        };
        let mut learned = |name| weights.numbers(name, max_len * d_model).map(new);
        Ok([
            learned("src_positions.learned")?,
            learned("tgt_positions.learned")?,
        ])
    }

    /// Adds the vector of a position to a row, `[d_model]`.
    ///
    /// # Panics
    /// When positions are learned and there are no more than `position`.
    fn add(&self, row: &mut [f32], position: usize) {
        let d_model = row.len();
        let count = self.vectors.len() / d_model;
        if position < count {
            let vector = &self.vectors[position * d_model..][..d_model];
            rows::add(row, vector);
            return;
        }
        let computed = self.kind.fixed_values(position, 1, d_model);
        let computed = computed.unwrap_or_else(|| {
            panic!(
                "{} positions asked of a model that has {count}",
                position + 1
            )
        });
        rows::add(row, &computed);
    }
}

/// The input of a stack: each token's embedding, its position added, normed where the configuration says so.
pub(super) struct Embedding {
    /// `[vocab_size, d_model]`
    table: Arc<PackedMatrix>,
    /// √d_model, by which embeddings are multiplied; `None` where they are not.
    scale: Option<f32>,
    positions: Arc<PositionVectors>,
    norm: Option<Norm>,
}

impl Embedding {
    pub fn new(
        table: Arc<PackedMatrix>,
        positions: Arc<PositionVectors>,
        config: &TransformerConfig,
    ) -> Self {
        let scale = (config.d_model as f64).sqrt() as f32;
        Self {
            table,
            scale: config.embedding_scale.then_some(scale),
            positions,
            norm: None,
        }
    }

    /// The embedding with its norm, if the configuration has one.
    pub fn with_norm<W: NamedWeights>(
        mut self,
        weights: &mut W,
        path: &str,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        if config.embedding_norm {
            self.norm = Some(Norm::read(weights, path, &config.encoder_layer())?);
        }
        Ok(self)
    }

    /// Fills `x` with the vectors of tokens at positions: `[rows, d_model]`.
    ///
    /// # Panics
    /// When a token is not in the vocabulary, or positions are learned and there are too few.
    pub fn forward(&self, tokens: impl Iterator<Item = (u32, usize)>, x: &mut Vec<f32>) {
        x.clear();
        for (token, position) in tokens {
            let first = x.len();
            x.resize(first + self.table.d_input(), 0.0);
            let row = &mut x[first..];
            self.table.read_output(token as usize, row);
            if let Some(scale) = self.scale {
                row.iter_mut().for_each(|feature| *feature *= scale);
            }
            self.positions.add(row, position);
        }
        if let Some(norm) = &self.norm {
            norm.forward(x);
        }
    }
}

/// The log-probabilities of next tokens, from the decoder's output.
pub(super) struct Generator {
    linear: PackedLinear,
    /// Tokens without a probability: the others share all of it.
    excluded: Vec<u32>,
}

impl Generator {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        matrix: Arc<PackedMatrix>,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let has_bias = config.generator_bias;
        let bias = has_bias.then(|| weights.numbers("generator.bias", config.tgt_vocab_size));
        Ok(Self {
            linear: PackedLinear {
                matrix,
                bias: bias.transpose()?,
            },
            excluded: config.excluded_tokens.clone(),
        })
    }

    /// Computes the log-probabilities of every row.
    ///
    /// # Shapes
    /// - hidden: `[rows, d_model]`
    /// - log_probs: `[rows, tgt_vocab_size]`, overwritten
    pub fn forward(&self, hidden: &[f32], log_probs: &mut [f32], products: &mut Products) {
        let vocab_size = self.linear.matrix.d_output();
        self.linear.forward_into(hidden, log_probs, products);
        for row in log_probs.chunks_mut(vocab_size) {
            for &token in &self.excluded {
                row[token as usize] = f32::NEG_INFINITY;
            }
        }
        rows::log_softmax(log_probs, vocab_size);
    }
}
