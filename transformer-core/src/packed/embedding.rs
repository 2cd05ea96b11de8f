//! Embeddings of tokens and their positions (§3.4, §3.5), and the projection back to the vocabulary (§3.4).

use std::sync::Arc;

use crate::models::config::TransformerConfig;
use crate::nn::positions::Positions;
use crate::nn::positions::TABLE_LEN;
use crate::packed::layers::{Norm, PackedLinear};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::Products;
use transformer_cpu::PackedMatrix;
use transformer_cpu::rows;

/// Position vectors: learned, or the sines and cosines of the first positions; empty where positions act in
/// self-attention.
pub struct PositionVectors {
    kind: Positions,
    /// `[max_len or TABLE_LEN, d_model]`
    vectors: Vec<f32>,
}

impl PositionVectors {
    /// Reads the vectors of one side; learned ones are at `path`.
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let (kind, d_model) = (config.positions, config.d_model);
        let vectors = match kind {
            Positions::Learned { max_len } => weights.numbers(path, max_len * d_model)?,
            _ => kind.fixed_values(0, TABLE_LEN, d_model).unwrap_or_default(),
        };
        Ok(Self { kind, vectors })
    }

    /// Adds the vector of a position to a row, `[d_model]`.
    ///
    /// # Panics
    /// When positions are learned and `position` is past the last one.
    fn add(&self, row: &mut [f32], position: usize) {
        if !self.kind.are_added() {
            return;
        }
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
                "sequence length {} exceeds the model's {count} learned positions",
                position + 1
            )
        });
        rows::add(row, &computed);
    }
}

/// The input of a stack: token embeddings plus positions, normalized if configured.
pub struct Embedding {
    /// `[vocab_size, d_model]`
    table: Arc<PackedMatrix>,
    /// √d_model, if embeddings are multiplied by it.
    scale: Option<f32>,
    positions: PositionVectors,
    norm: Option<Norm>,
}

impl Embedding {
    /// Reads the input of one side, whose weight names begin with `side`, such as `src_`.
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        side: &str,
        table: Arc<PackedMatrix>,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let norm = format!("{side}embedding_norm");
        let norm = config
            .embedding_norm
            .then(|| Norm::read(weights, &norm, &config.norm_config()));
        let scale = (config.d_model as f64).sqrt() as f32;
        Ok(Self {
            table,
            scale: config.embedding_scale.then_some(scale),
            norm: norm.transpose()?,
            positions: PositionVectors::read(weights, &format!("{side}positions.learned"), config)?,
        })
    }

    /// Fills `x` with the vectors of tokens at their positions: `[rows, d_model]`.
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
pub struct Generator {
    linear: PackedLinear,
    /// 1/√d_model, if hidden states are multiplied by it.
    scale: Option<f32>,
    /// Tokens that are excluded before the softmax.
    excluded: Vec<u32>,
}

impl Generator {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        matrix: Arc<PackedMatrix>,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let scale = (config.d_model as f64).powf(-0.5) as f32;
        let has_bias = config.generator_bias;
        let bias = has_bias.then(|| weights.numbers("generator.bias", config.tgt_vocab_size));
        Ok(Self {
            linear: PackedLinear {
                matrix,
                bias: bias.transpose()?,
            },
            scale: config.generator_scale.then_some(scale),
            excluded: config.excluded_tokens.clone(),
        })
    }

    /// The generator of only the given tokens, in ascending order.
    pub fn limited(&self, tokens: &[u32]) -> Self {
        let bias = self.linear.bias.as_ref();
        let bias_of = |bias: &Vec<f32>| tokens.iter().map(|&token| bias[token as usize]).collect();
        let positions = self.excluded.iter();
        let positions = positions.filter_map(|token| tokens.binary_search(token).ok());
        Self {
            linear: PackedLinear {
                matrix: Arc::new(self.linear.matrix.select(tokens)),
                bias: bias.map(bias_of),
            },
            scale: self.scale,
            excluded: positions.map(|position| position as u32).collect(),
        }
    }

    /// Computes the log-probabilities of every row.
    ///
    /// # Shapes
    /// - hidden: `[rows, d_model]`, overwritten
    /// - log_probs: `[rows, tgt_vocab_size]`, overwritten
    pub fn forward(&self, hidden: &mut [f32], log_probs: &mut [f32], products: &mut Products) {
        self.logits(hidden, log_probs, products);
        rows::log_softmax(log_probs, self.linear.matrix.d_output());
    }

    /// Computes the logits of every row.
    ///
    /// # Shapes
    /// - hidden: `[rows, d_model]`, overwritten
    /// - logits: `[rows, tgt_vocab_size]`, overwritten
    pub fn logits(&self, hidden: &mut [f32], logits: &mut [f32], products: &mut Products) {
        if let Some(scale) = self.scale {
            hidden.iter_mut().for_each(|feature| *feature *= scale);
        }
        self.linear.forward_into(hidden, logits, products);
        for row in logits.chunks_mut(self.linear.matrix.d_output().max(1)) {
            for &token in &self.excluded {
                row[token as usize] = f32::NEG_INFINITY;
            }
        }
    }
}
