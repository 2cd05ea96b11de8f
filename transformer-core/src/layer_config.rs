//! The configuration of a layer: everything in which the layers of the paper's models and of its
//! descendants differ.

use serde::{Deserialize, Serialize};

use crate::attention::MultiHeadAttentionConfig;
use crate::config::TransformerConfig;
use crate::error::ConfigError;
use crate::feed_forward::FeedForwardConfig;
use crate::layer_norm::LayerNormConfig;
use crate::ops::Activation;
use crate::sublayer::SublayerConfig;

/// Placement of layer normalisation in a sub-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `LayerNorm(x + Sublayer(x))`, as in the paper (§3.1).
    Post,
    /// `x + Sublayer(LayerNorm(x))`, which trains without warm-up.
    Pre,
}

/// Kind of positional encoding (§3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Positions {
    /// Fixed sines and cosines, for any length.
    Sinusoidal,
    /// One learned vector per position (Table 3 row E).
    Learned {
        /// Number of positions; no sequence may be longer.
        max_len: usize,
    },
}

/// Which of the three matrices of shape `[vocab_size, d_model]` are shared (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightTying {
    /// No matrix is shared.
    None,
    /// Source and target embeddings are one.
    SourceTarget,
    /// Target embedding and generator are one.
    TargetGenerator,
    /// All three are one, as in the paper.
    All,
}

impl WeightTying {
    /// Whether source and target tokens share their embeddings.
    pub fn ties_source_target(self) -> bool {
        matches!(self, Self::SourceTarget | Self::All)
    }

    /// Whether the generator is the target embedding, transposed.
    pub fn ties_generator(self) -> bool {
        matches!(self, Self::TargetGenerator | Self::All)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SourceTarget => "source-target",
            Self::TargetGenerator => "target-generator",
            Self::All => "all",
        }
    }
}

/// How layer normalisation measures the spread of a position's features; [`LayerNorm`] has the
/// formulas.
///
/// [`LayerNorm`]: crate::LayerNorm
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerNormFormula {
    /// By the root of the sum of variance and ε, as usual.
    Variance,
    /// By the sum of the unbiased standard deviation and ε, as in The Annotated Transformer.
    UnbiasedDeviation,
}

/// The configuration of one encoder or decoder layer.
///
/// Built by [`TransformerConfig::layer`], or by [`LayerConfig::new`] for a layer on its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerConfig {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Width of a head's queries and keys.
    pub d_k: usize,
    /// Width of a head's values.
    pub d_v: usize,
    /// Inner width of the feed-forward network.
    pub d_ff: usize,
    /// Placement of layer normalisation.
    pub norm: NormPlacement,
    /// The formula of layer normalisation.
    pub layer_norm: LayerNormFormula,
    /// ε of layer normalisation.
    pub layer_norm_eps: f64,
    /// Whether the attention projections have biases.
    pub attention_bias: bool,
    /// Non-linearity of the feed-forward network.
    pub activation: Activation,
    /// Dropout on each sub-layer's output (§5.4).
    pub dropout: f64,
    /// Dropout on the attention weights.
    pub attention_dropout: f64,
    /// Dropout inside the feed-forward network, after the activation.
    pub activation_dropout: f64,
}

impl LayerConfig {
    /// A layer as in the paper: post-norm, ReLU, no attention biases, `d_k = d_v = d_model / n_heads`,
    /// dropout 0.1 on the sub-layers.
    ///
    /// # Errors
    /// When a size is zero or the heads do not divide `d_model`.
    pub fn new(d_model: usize, n_heads: usize, d_ff: usize) -> Result<Self, ConfigError> {
        let config = TransformerConfig {
            d_model,
            n_heads,
            d_ff,
            // A layer has no positions, so that its width need not be even, as for sinusoids.
            positions: Positions::Learned { max_len: 1 },
            ..TransformerConfig::base(4)
        };
        config.validate()?;
        Ok(config.layer())
    }

    /// Its multi-head attention.
    pub fn attention(&self) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.n_heads)
            .with_d_k(Some(self.d_k))
            .with_d_v(Some(self.d_v))
            .with_bias(self.attention_bias)
            .with_dropout(self.attention_dropout)
    }

    /// Its feed-forward network.
    pub fn feed_forward(&self) -> FeedForwardConfig {
        FeedForwardConfig::new(self.d_model, self.d_ff)
            .with_activation(self.activation)
            .with_dropout(self.activation_dropout)
    }

    /// Its layer normalisation.
    pub fn layer_norm(&self) -> LayerNormConfig {
        LayerNormConfig::new(self.d_model)
            .with_epsilon(self.layer_norm_eps)
            .with_formula(self.layer_norm)
    }

    /// The connection around each of its sub-layers.
    pub fn sublayer(&self) -> SublayerConfig {
        SublayerConfig::new(self.layer_norm())
            .with_placement(self.norm)
            .with_dropout(self.dropout)
    }
}
