//! The configuration of a Transformer: everything in which the paper's models and its
//! descendants differ, checked once.

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::parameters::count;

/// Where layer normalisation stands in a sub-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `LayerNorm(x + Sublayer(x))`, as in the paper (§3.1).
    Post,
    /// `x + Sublayer(LayerNorm(x))`, which trains without warm-up.
    Pre,
}

/// How the model knows the order of its tokens (§3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Positions {
    /// Fixed sines and cosines, for any length.
    Sinusoidal,
    /// One learned vector per position (Table 3 row E).
    Learned {
        /// Positions there are; no sequence may be longer.
        max_len: usize,
    },
}

/// Which of the three matrices of shape `[vocab_size, d_model]` are one and the same (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightTying {
    /// Three matrices.
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

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SourceTarget => "source-target",
            Self::TargetGenerator => "target-generator",
            Self::All => "all",
        }
    }
}

/// The non-linearity of the position-wise feed-forward network (§3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, x)`, as in the paper.
    Relu,
    /// `x Φ(x)`, exact (by the error function).
    Gelu,
    /// `x σ(x)`.
    Silu,
}

/// How layer normalisation measures the spread of a position's features; [`LayerNorm`] has the
/// formulas.
///
/// [`LayerNorm`]: crate::LayerNorm
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerNormFormula {
    /// By the root of the variance and ε together, as everywhere.
    Variance,
    /// By the unbiased standard deviation, then ε: The Annotated Transformer's.
    UnbiasedDeviation,
}

/// Everything that one encoder or decoder layer needs to know.
///
/// Built by [`TransformerConfig::layer`], or by [`LayerConfig::new`] for a layer on its own.
#[derive(Debug, Clone, PartialEq)]
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
    /// Where layer normalisation stands.
    pub norm: NormPlacement,
    /// What layer normalisation computes.
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
            // A layer has no positions of its own: the sinusoid's even width is not asked of it.
            positions: Positions::Learned { max_len: 1 },
            ..TransformerConfig::base(4)
        };
        config.validate()?;
        Ok(config.layer())
    }
}

/// The configuration of a [`Transformer`](crate::Transformer).
///
/// The defaults of a missing key in `config.json` are the paper's base model (Table 3).
///
/// ```
/// use transformer_core::{NormPlacement, TransformerConfig};
///
/// let config = TransformerConfig {
///     norm: NormPlacement::Pre,
///     ..TransformerConfig::base(37_000)
/// };
/// assert!(config.validate().is_ok());
///
/// let bad = TransformerConfig { n_heads: 7, ..config };
/// assert_eq!(
///     bad.validate().unwrap_err().to_string(),
///     "`d_model` 512 is not divisible by `n_heads` 7; choose another or set `d_k` and `d_v`",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Entries of the source vocabulary.
    pub src_vocab_size: usize,
    /// Entries of the target vocabulary.
    pub tgt_vocab_size: usize,
    /// Width of the residual stream: 512.
    #[serde(default = "paper::d_model")]
    pub d_model: usize,
    /// Attention heads: 8.
    #[serde(default = "paper::n_heads")]
    pub n_heads: usize,
    /// Width of a head's queries and keys; `d_model / n_heads` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_k: Option<usize>,
    /// Width of a head's values; `d_model / n_heads` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_v: Option<usize>,
    /// Inner width of the feed-forward network: 2048.
    #[serde(default = "paper::d_ff")]
    pub d_ff: usize,
    /// Layers of the encoder: 6.
    #[serde(default = "paper::n_layers")]
    pub n_encoder_layers: usize,
    /// Layers of the decoder: 6.
    #[serde(default = "paper::n_layers")]
    pub n_decoder_layers: usize,
    /// Where layer normalisation stands: after the residual.
    #[serde(default = "paper::norm")]
    pub norm: NormPlacement,
    /// Whether each stack ends in one more layer normalisation. The paper's does not; a pre-norm
    /// stack needs it.
    #[serde(default)]
    pub final_norm: bool,
    /// What layer normalisation computes: variance.
    #[serde(default = "paper::layer_norm")]
    pub layer_norm: LayerNormFormula,
    /// ε of layer normalisation: 1e-5.
    #[serde(default = "paper::layer_norm_eps")]
    pub layer_norm_eps: f64,
    /// Kind of positional encoding: sinusoidal.
    #[serde(default = "paper::positions")]
    pub positions: Positions,
    /// Whether the attention projections have biases: no.
    #[serde(default)]
    pub attention_bias: bool,
    /// Whether the generator has a bias: no.
    #[serde(default)]
    pub generator_bias: bool,
    /// Whether embeddings are multiplied by √d_model: yes.
    #[serde(default = "paper::embedding_scale")]
    pub embedding_scale: bool,
    /// Which matrices are shared: all three.
    #[serde(default = "paper::tying")]
    pub tying: WeightTying,
    /// Non-linearity of the feed-forward network: ReLU.
    #[serde(default = "paper::activation")]
    pub activation: Activation,
    /// Dropout on sub-layer outputs and on the sum of embedding and position: 0.1.
    #[serde(default = "paper::dropout")]
    pub dropout: f64,
    /// Dropout on the attention weights: none.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Dropout inside the feed-forward network: none.
    #[serde(default)]
    pub activation_dropout: f64,
    /// Fills a batch up; never attended to: 0.
    #[serde(default = "paper::pad_id")]
    pub pad_id: u32,
    /// The decoder's first input: 1.
    #[serde(default = "paper::bos_id")]
    pub bos_id: u32,
    /// Ends a sentence: 2.
    #[serde(default = "paper::eos_id")]
    pub eos_id: u32,
}

/// The base model of the paper, key by key; the one place that says its numbers.
mod paper {
    use super::{Activation, LayerNormFormula, NormPlacement, Positions, WeightTying};

    pub fn d_model() -> usize {
        512
    }
    pub fn n_heads() -> usize {
        8
    }
    pub fn d_ff() -> usize {
        2048
    }
    pub fn n_layers() -> usize {
        6
    }
    pub fn norm() -> NormPlacement {
        NormPlacement::Post
    }
    pub fn layer_norm() -> LayerNormFormula {
        LayerNormFormula::Variance
    }
    pub fn layer_norm_eps() -> f64 {
        1e-5
    }
    pub fn positions() -> Positions {
        Positions::Sinusoidal
    }
    pub fn embedding_scale() -> bool {
        true
    }
    pub fn tying() -> WeightTying {
        WeightTying::All
    }
    pub fn activation() -> Activation {
        Activation::Relu
    }
    pub fn dropout() -> f64 {
        0.1
    }
    pub fn pad_id() -> u32 {
        0
    }
    pub fn bos_id() -> u32 {
        1
    }
    pub fn eos_id() -> u32 {
        2
    }
}

/// A row of the paper's Table 3: one variation of the base model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table3 {
    /// Row A: heads, with `d_k = d_v = d_model / n_heads` (the paper tries 1, 4, 16 and 32).
    Heads(usize),
    /// Row B: width of queries and keys, `d_v` staying 64 (16 and 32).
    KeySize(usize),
    /// Row C: layers of each stack (2, 4 and 8).
    Layers(usize),
    /// Row C: `d_model`, with `d_k = d_v` (256 with 32, 1024 with 128).
    Width(usize),
    /// Row C: `d_ff` (1024 and 4096).
    FeedForward(usize),
    /// Row D: residual dropout in hundredths (0 and 20).
    DropoutPercent(u8),
    /// Row E: learned positions, this many.
    LearnedPositions(usize),
}

/// The largest size of any dimension: far above any model, far below an overflow.
const SIZE_LIMIT: usize = 1 << 24;

impl TransformerConfig {
    /// The paper's base model (Table 3): 65 M parameters with its 37 000 shared pieces.
    pub fn base(vocab_size: usize) -> Self {
        Self {
            src_vocab_size: vocab_size,
            tgt_vocab_size: vocab_size,
            d_model: paper::d_model(),
            n_heads: paper::n_heads(),
            d_k: None,
            d_v: None,
            d_ff: paper::d_ff(),
            n_encoder_layers: paper::n_layers(),
            n_decoder_layers: paper::n_layers(),
            norm: paper::norm(),
            final_norm: false,
            layer_norm: paper::layer_norm(),
            layer_norm_eps: paper::layer_norm_eps(),
            positions: paper::positions(),
            attention_bias: false,
            generator_bias: false,
            embedding_scale: paper::embedding_scale(),
            tying: paper::tying(),
            activation: paper::activation(),
            dropout: paper::dropout(),
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            pad_id: paper::pad_id(),
            bos_id: paper::bos_id(),
            eos_id: paper::eos_id(),
        }
    }

    /// The paper's big model (Table 3): 213 M parameters with its 37 000 shared pieces.
    pub fn big(vocab_size: usize) -> Self {
        Self {
            d_model: 1024,
            n_heads: 16,
            d_ff: 4096,
            dropout: 0.3,
            ..Self::base(vocab_size)
        }
    }

    /// A variation of the base model from the paper's Table 3.
    pub fn table3(row: Table3, vocab_size: usize) -> Self {
        let base = Self::base(vocab_size);
        match row {
            Table3::Heads(n_heads) => Self { n_heads, ..base },
            Table3::KeySize(d_k) => Self {
                d_k: Some(d_k),
                ..base
            },
            Table3::Layers(n_layers) => Self {
                n_encoder_layers: n_layers,
                n_decoder_layers: n_layers,
                ..base
            },
            Table3::Width(d_model) => Self { d_model, ..base },
            Table3::FeedForward(d_ff) => Self { d_ff, ..base },
            Table3::DropoutPercent(percent) => Self {
                dropout: f64::from(percent) / 100.0,
                ..base
            },
            Table3::LearnedPositions(max_len) => Self {
                positions: Positions::Learned { max_len },
                ..base
            },
        }
    }

    /// The system of the notebook-mini seed: two post-norm layers, one embedding for source and
    /// target, not scaled, no dropout.
    pub fn notebook_mini(vocab_size: usize) -> Self {
        Self {
            d_model: 128,
            d_ff: 512,
            n_encoder_layers: 2,
            n_decoder_layers: 2,
            attention_bias: true,
            generator_bias: true,
            embedding_scale: false,
            tying: WeightTying::SourceTarget,
            dropout: 0.0,
            ..Self::base(vocab_size)
        }
    }

    /// The system of the paper-readme seed: the base model, untied, with a final norm on each
    /// stack and dropout on the attention weights and inside the feed-forward network too.
    pub fn paper_readme(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            src_vocab_size,
            tgt_vocab_size,
            final_norm: true,
            tying: WeightTying::None,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            ..Self::base(src_vocab_size)
        }
    }

    /// The system of the prenorm-notebook seed: two pre-norm layers of width 64.
    pub fn prenorm_notebook(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            src_vocab_size,
            tgt_vocab_size,
            d_model: 64,
            n_heads: 4,
            d_ff: 128,
            n_encoder_layers: 2,
            n_decoder_layers: 2,
            norm: NormPlacement::Pre,
            final_norm: true,
            attention_bias: true,
            generator_bias: true,
            embedding_scale: false,
            tying: WeightTying::None,
            ..Self::base(src_vocab_size)
        }
    }

    /// The system of the learned-positions seed: the base model with learned positions, as many
    /// inner as outer features in the feed-forward network, and dropout 0.2.
    pub fn learned_positions(src_vocab_size: usize, tgt_vocab_size: usize, max_len: usize) -> Self {
        Self {
            src_vocab_size,
            tgt_vocab_size,
            d_ff: 512,
            positions: Positions::Learned { max_len },
            attention_bias: true,
            generator_bias: true,
            embedding_scale: false,
            tying: WeightTying::None,
            dropout: 0.2,
            ..Self::base(src_vocab_size)
        }
    }

    /// The base model as PyTorch's `torch.nn.Transformer` builds it, inside the model of PyTorch's
    /// translation tutorial: biases everywhere, a final norm on each stack, dropout on the
    /// attention weights and inside the feed-forward network too, nothing tied.
    pub fn torch_nn(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            attention_bias: true,
            generator_bias: true,
            ..Self::paper_readme(src_vocab_size, tgt_vocab_size)
        }
    }

    /// The base model as The Annotated Transformer builds it: that of
    /// [`torch_nn`](Self::torch_nn), pre-norm, with a layer normalisation of its own.
    pub fn annotated(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            norm: NormPlacement::Pre,
            layer_norm: LayerNormFormula::UnbiasedDeviation,
            layer_norm_eps: 1e-6,
            ..Self::torch_nn(src_vocab_size, tgt_vocab_size)
        }
    }

    /// Width of a head's queries and keys.
    pub fn d_k(&self) -> usize {
        self.d_k.unwrap_or(self.d_model / self.n_heads)
    }

    /// Width of a head's values.
    pub fn d_v(&self) -> usize {
        self.d_v.unwrap_or(self.d_model / self.n_heads)
    }

    /// The longest sequence the model can take, or `None` where there is no limit.
    pub fn max_len(&self) -> Option<usize> {
        match self.positions {
            Positions::Sinusoidal => None,
            Positions::Learned { max_len } => Some(max_len),
        }
    }

    /// What each layer of this model needs to know.
    pub fn layer(&self) -> LayerConfig {
        LayerConfig {
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_k: self.d_k(),
            d_v: self.d_v(),
            d_ff: self.d_ff,
            norm: self.norm,
            layer_norm: self.layer_norm,
            layer_norm_eps: self.layer_norm_eps,
            attention_bias: self.attention_bias,
            activation: self.activation,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            activation_dropout: self.activation_dropout,
        }
    }

    /// Trainable parameters of a model of this configuration, tied ones counted once.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    ///
    /// // The figure that the paper-readme seed prints.
    /// let config = TransformerConfig::paper_readme(10_000, 10_000);
    /// assert_eq!(config.num_params(), 59_463_680);
    /// ```
    pub fn num_params(&self) -> u128 {
        let layer = self.layer();
        count(&self.parameters_outside_layers())
            + self.n_encoder_layers as u128 * count(&layer.encoder_layer_parameters())
            + self.n_decoder_layers as u128 * count(&layer.decoder_layer_parameters())
    }

    /// Checks that the configuration describes a model.
    ///
    /// # Errors
    /// The first contradiction found, with its numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_sizes()?;
        if (self.d_k.is_none() || self.d_v.is_none()) && !self.d_model.is_multiple_of(self.n_heads)
        {
            return Err(ConfigError::HeadsDoNotDivide {
                d_model: self.d_model,
                n_heads: self.n_heads,
            });
        }
        if self.positions == Positions::Sinusoidal && !self.d_model.is_multiple_of(2) {
            return Err(ConfigError::OddWidth {
                d_model: self.d_model,
            });
        }
        for (key, value) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ] {
            if !(0.0..1.0).contains(&value) {
                return Err(ConfigError::Dropout { key, value });
            }
        }
        if !(self.layer_norm_eps > 0.0 && self.layer_norm_eps.is_finite()) {
            return Err(ConfigError::Epsilon {
                value: self.layer_norm_eps,
            });
        }
        if self.tying.ties_source_target() && self.src_vocab_size != self.tgt_vocab_size {
            return Err(ConfigError::TiedVocabularies {
                tying: self.tying.name(),
                src_vocab_size: self.src_vocab_size,
                tgt_vocab_size: self.tgt_vocab_size,
            });
        }
        self.validate_special_tokens()
    }

    fn validate_sizes(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("src_vocab_size", self.src_vocab_size),
            ("tgt_vocab_size", self.tgt_vocab_size),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_k", self.d_k.unwrap_or(1)),
            ("d_v", self.d_v.unwrap_or(1)),
            ("d_ff", self.d_ff),
            ("n_encoder_layers", self.n_encoder_layers),
            ("n_decoder_layers", self.n_decoder_layers),
            ("max_len", self.max_len().unwrap_or(1)),
        ];
        for (key, value) in sizes {
            if value == 0 {
                return Err(ConfigError::Zero { key });
            }
            if value > SIZE_LIMIT {
                return Err(ConfigError::TooLarge {
                    key,
                    value,
                    limit: SIZE_LIMIT,
                });
            }
        }
        Ok(())
    }

    fn validate_special_tokens(&self) -> Result<(), ConfigError> {
        let tokens = [
            ("pad_id", self.pad_id),
            ("bos_id", self.bos_id),
            ("eos_id", self.eos_id),
        ];
        let vocab_size = self.src_vocab_size.min(self.tgt_vocab_size);
        for (position, &(key, id)) in tokens.iter().enumerate() {
            if id as usize >= vocab_size {
                return Err(ConfigError::SpecialToken {
                    key,
                    id,
                    vocab_size,
                });
            }
            if let Some(&(first, _)) = tokens[..position].iter().find(|(_, other)| *other == id) {
                return Err(ConfigError::SameSpecialToken {
                    first,
                    second: key,
                    id,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_with_only_vocabularies_is_the_paper_s_base_model() {
        let config: TransformerConfig =
            serde_json::from_str(r#"{"src_vocab_size": 100, "tgt_vocab_size": 100}"#).unwrap();
        assert_eq!(config, TransformerConfig::base(100));
    }

    #[test]
    fn json_round_trip_keeps_every_preset() {
        let presets = [
            TransformerConfig::base(100),
            TransformerConfig::big(100),
            TransformerConfig::notebook_mini(100),
            TransformerConfig::paper_readme(100, 90),
            TransformerConfig::prenorm_notebook(100, 90),
            TransformerConfig::learned_positions(100, 90, 10),
            TransformerConfig::torch_nn(100, 90),
            TransformerConfig::annotated(100, 90),
            TransformerConfig::table3(Table3::Heads(32), 100),
            TransformerConfig::table3(Table3::KeySize(16), 100),
            TransformerConfig::table3(Table3::Layers(8), 100),
            TransformerConfig::table3(Table3::Width(1024), 100),
            TransformerConfig::table3(Table3::FeedForward(1024), 100),
            TransformerConfig::table3(Table3::DropoutPercent(20), 100),
            TransformerConfig::table3(Table3::LearnedPositions(256), 100),
        ];
        for preset in presets {
            preset.validate().unwrap();
            let json = serde_json::to_string(&preset).unwrap();
            assert_eq!(
                serde_json::from_str::<TransformerConfig>(&json).unwrap(),
                preset
            );
        }
    }

    #[test]
    fn each_contradiction_is_named_with_its_numbers() {
        let base = TransformerConfig::base(100);
        let cases = [
            (
                TransformerConfig {
                    d_ff: 0,
                    ..base.clone()
                },
                "`d_ff` is 0",
            ),
            (
                TransformerConfig {
                    n_heads: 7,
                    ..base.clone()
                },
                "512 is not divisible by `n_heads` 7",
            ),
            (
                TransformerConfig {
                    d_model: 9,
                    n_heads: 3,
                    ..base.clone()
                },
                "`d_model` 9 is odd",
            ),
            (
                TransformerConfig {
                    dropout: 1.0,
                    ..base.clone()
                },
                "`dropout` is 1",
            ),
            (
                TransformerConfig {
                    attention_dropout: f64::NAN,
                    ..base.clone()
                },
                "`attention_dropout` is NaN",
            ),
            (
                TransformerConfig {
                    layer_norm_eps: 0.0,
                    ..base.clone()
                },
                "`layer_norm_eps` is 0",
            ),
            (
                TransformerConfig {
                    tgt_vocab_size: 99,
                    ..base.clone()
                },
                "`src_vocab_size` is 100 and `tgt_vocab_size` is 99",
            ),
            (
                TransformerConfig {
                    eos_id: 100,
                    ..base.clone()
                },
                "`eos_id` is 100, outside the vocabulary of 100",
            ),
            (
                TransformerConfig {
                    eos_id: 1,
                    ..base.clone()
                },
                "`bos_id` and `eos_id` are both 1",
            ),
            (
                TransformerConfig {
                    d_model: usize::MAX - 1,
                    n_heads: 1,
                    ..base
                },
                "at most 16777216",
            ),
        ];
        for (config, expected) in cases {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn heads_need_not_divide_when_their_widths_are_given() {
        let config = TransformerConfig {
            n_heads: 7,
            d_k: Some(16),
            d_v: Some(24),
            ..TransformerConfig::base(100)
        };
        config.validate().unwrap();
        assert_eq!((config.d_k(), config.d_v()), (16, 24));
    }
}
