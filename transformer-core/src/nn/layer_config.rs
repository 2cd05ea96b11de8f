//! The configuration of a layer: everything in which the layers of the paper's models and of its
//! descendants differ.

use serde::{Deserialize, Serialize};

use crate::nn::attention::MultiHeadAttentionConfig;
use crate::error::ConfigError;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::norm::LayerNormConfig;
use transformer_kernels::Activation;
use crate::nn::sublayer::SublayerConfig;
use crate::nn::sizes::check_sizes;

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
    /// Fixed sines and cosines, for any length, the sine and the cosine of a frequency side by side.
    Sinusoidal,
    /// Fixed sines in the first half of the features, cosines in the second, for any length.
    ///
    /// The frequency i of each half is `10000^(-i/n)`, from 0 on.
    SinesThenCosines {
        /// Whether n is `⌊d_model/2⌋ - 1`, so that the last frequency is exactly 1/10000, as in tensor2tensor and
        /// fairseq; the last feature of an odd `d_model` is then 0. Otherwise n is `d_model/2`, as in the paper; an odd
        /// `d_model` has one sine more than cosines.
        inclusive: bool,
        /// The position of the first token.
        first: usize,
    },
    /// One learned vector per position (Table 3 row E).
    Learned {
        /// Number of positions; no sequence may be longer.
        max_len: usize,
    },
}

impl Positions {
    /// The position of the first token.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::Sinusoidal | Self::Learned { .. } => 0,
            Self::SinesThenCosines { first, .. } => first,
        }
    }

    /// Checks that they have features for vectors of this width.
    pub(crate) fn check(self, d_model: usize) -> Result<(), ConfigError> {
        match self {
            Self::Sinusoidal if !d_model.is_multiple_of(2) => {
                Err(ConfigError::OddWidth { d_model })
            }
            Self::SinesThenCosines { inclusive, .. } if inclusive && d_model < 4 => {
                Err(ConfigError::OneFrequency { d_model })
            }
            _ => Ok(()),
        }
    }
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
/// Built by [`TransformerConfig::encoder_layer`](crate::TransformerConfig::encoder_layer) and
/// [`decoder_layer`](crate::TransformerConfig::decoder_layer), or by [`LayerConfig::new`] for a layer on its own.
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
    /// When a size is zero or above 2²⁴, or the heads do not divide `d_model`.
    pub fn new(d_model: usize, n_heads: usize, d_ff: usize) -> Result<Self, ConfigError> {
        check_sizes(&[("d_model", d_model), ("n_heads", n_heads), ("d_ff", d_ff)])?;
        if !d_model.is_multiple_of(n_heads) {
            return Err(ConfigError::HeadsDoNotDivide {
                d_model,
                key: "n_heads",
                n_heads,
            });
        }
        // The defaults of its parts are the paper's.
        let attention = MultiHeadAttentionConfig::new(d_model, n_heads);
        let feed_forward = FeedForwardConfig::new(d_model, d_ff);
        let sublayer = SublayerConfig::new(LayerNormConfig::new(d_model));
        Ok(Self {
            d_model,
            n_heads,
            d_k: d_model / n_heads,
            d_v: d_model / n_heads,
            d_ff,
            norm: sublayer.placement,
            layer_norm: sublayer.layer_norm.formula,
            layer_norm_eps: sublayer.layer_norm.epsilon,
            attention_bias: attention.bias,
            activation: feed_forward.activation,
            dropout: sublayer.dropout,
            attention_dropout: attention.dropout,
            activation_dropout: feed_forward.dropout,
        })
    }

    /// Checks that the configuration describes a layer.
    ///
    /// # Errors
    /// The first contradiction found, with its numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_k", self.d_k),
            ("d_v", self.d_v),
            ("d_ff", self.d_ff),
        ])?;
        for (key, value) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ] {
            if !(0.0..1.0).contains(&value) {
                return Err(ConfigError::Dropout { key, value });
            }
        }
        let value = self.layer_norm_eps;
        if !(value > 0.0 && value.is_finite()) {
            return Err(ConfigError::Epsilon { value });
        }
        Ok(())
    }

    /// Panics unless it is [valid](Self::validate): before a layer is built.
    #[track_caller]
    pub(crate) fn assert_valid(&self) {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::config::TransformerConfig;
    use crate::nn::decoder::CrossAttention;
    use burn_ndarray::NdArray;

    #[test]
    fn a_layer_on_its_own_is_that_of_the_paper_s_base_model() {
        let layer = LayerConfig::new(512, 8, 2048).unwrap();
        assert_eq!(layer, TransformerConfig::base(100).encoder_layer());
        assert_eq!(layer, TransformerConfig::base(100).decoder_layer());
    }

    #[test]
    fn each_contradiction_is_named_with_its_numbers() {
        let layer = LayerConfig::new(12, 3, 8).unwrap();
        layer.validate().unwrap();
        let bad_norm = LayerConfig {
            layer_norm_eps: f64::INFINITY,
            ..layer.clone()
        };
        let bad_dropout = LayerConfig {
            activation_dropout: 1.0,
            ..layer.clone()
        };
        for (found, expected) in [
            (LayerConfig::new(0, 3, 8).err(), "`d_model` is 0"),
            (LayerConfig::new(12, 0, 8).err(), "`n_heads` is 0"),
            (LayerConfig::new(12, 3, 0).err(), "`d_ff` is 0"),
            (
                LayerConfig::new(12, 5, 8).err(),
                "12 is not divisible by `n_heads` 5",
            ),
            (LayerConfig::new(1 << 25, 1, 8).err(), "at most 16777216"),
            (
                LayerConfig { d_v: 0, ..layer }.validate().err(),
                "`d_v` is 0",
            ),
            (bad_norm.validate().err(), "`layer_norm_eps` is inf"),
            (bad_dropout.validate().err(), "`activation_dropout` is 1"),
        ] {
            let message = found.expect("an error").to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    /// A layer whose feed-forward network has no inner width.
    fn without_inner_width() -> LayerConfig {
        LayerConfig {
            d_ff: 0,
            ..LayerConfig::new(12, 3, 8).unwrap()
        }
    }

    #[test]
    #[should_panic(expected = "`d_ff` is 0; it must be at least 1")]
    fn an_encoder_layer_of_a_wrong_config_panics_in_its_words() {
        without_inner_width().init_encoder_layer::<NdArray>(&Default::default());
    }

    #[test]
    #[should_panic(expected = "`d_ff` is 0; it must be at least 1")]
    fn a_decoder_layer_of_a_wrong_config_panics_in_its_words() {
        let device = Default::default();
        without_inner_width().init_decoder_layer::<NdArray>(CrossAttention::None, &device);
    }
}
