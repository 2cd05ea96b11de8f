//! The configuration of a language model.

use serde::{Deserialize, Serialize};

use crate::models::config::TransformerConfig;
use crate::nn::decoder::{CrossAttention, DecoderConfig};
use crate::error::ConfigError;
use crate::nn::layer_config::{LayerNormFormula, NormPlacement, Positions, WeightTying};
use transformer_kernels::Activation;
use crate::models::parameters::count;
use crate::models::presets::paper;
use crate::special_tokens::SpecialTokens;

/// The configuration of a [`LanguageModel`](crate::LanguageModel): a decoder without a memory.
///
/// The keys are those of [`TransformerConfig`]; the defaults of missing ones are the paper's base
/// model (Table 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageModelConfig {
    /// Entries of the vocabulary.
    pub vocab_size: usize,
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
    /// Layers: 6.
    #[serde(default = "paper::n_layers")]
    pub n_layers: usize,
    /// Placement of layer normalisation: after the residual.
    #[serde(default = "paper::norm")]
    pub norm: NormPlacement,
    /// Whether the stack ends in one more layer normalisation: no. A pre-norm stack needs it.
    #[serde(default)]
    pub final_norm: bool,
    /// The formula of layer normalisation: by the variance.
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
    /// Whether the generator is the embedding, transposed: yes.
    #[serde(default = "tied")]
    pub tied: bool,
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
    /// Pads a batch; never attended to: 0.
    #[serde(default = "paper::pad_id")]
    pub pad_id: u32,
    /// The first input: 1.
    #[serde(default = "paper::bos_id")]
    pub bos_id: u32,
    /// Ends a sequence: 2.
    #[serde(default = "paper::eos_id")]
    pub eos_id: u32,
}

fn tied() -> bool {
    true
}

/// The key of a language model for one of [`TransformerConfig`].
fn own_key(key: &'static str) -> &'static str {
    match key {
        "src_vocab_size" | "tgt_vocab_size" => "vocab_size",
        "n_decoder_layers" => "n_layers",
        key => key,
    }
}

impl LanguageModelConfig {
    /// The decoder of the paper's base model (Table 3), alone.
    pub fn base(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            d_model: paper::d_model(),
            n_heads: paper::n_heads(),
            d_k: None,
            d_v: None,
            d_ff: paper::d_ff(),
            n_layers: paper::n_layers(),
            norm: paper::norm(),
            final_norm: false,
            layer_norm: paper::layer_norm(),
            layer_norm_eps: paper::layer_norm_eps(),
            positions: paper::positions(),
            attention_bias: false,
            generator_bias: false,
            embedding_scale: paper::embedding_scale(),
            tied: tied(),
            activation: paper::activation(),
            dropout: paper::dropout(),
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            pad_id: paper::pad_id(),
            bos_id: paper::bos_id(),
            eos_id: paper::eos_id(),
        }
    }

    /// The longest sequence that the model accepts, or `None` where there is no limit.
    pub fn max_len(&self) -> Option<usize> {
        self.as_decoder().max_len()
    }

    /// The ids of the special tokens.
    pub fn special_tokens(&self) -> SpecialTokens {
        self.as_decoder().special_tokens()
    }

    /// The configuration of the decoder stack.
    pub fn decoder(&self) -> DecoderConfig {
        self.as_decoder()
            .decoder()
            .with_cross_attention(CrossAttention::None)
    }

    /// Trainable parameters of a model of this configuration, tied ones counted once.
    pub fn num_params(&self) -> u128 {
        // A decoder layer without a memory has the parameters of an encoder layer.
        let layer = count(&self.as_decoder().decoder_layer().encoder_layer_parameters());
        count(&self.parameters_outside_layers()) + self.n_layers as u128 * layer
    }

    /// Checks that the configuration describes a model.
    ///
    /// # Errors
    /// The first contradiction found, with its numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let checked = self.as_decoder().validate();
        checked.map_err(|error| match error {
            ConfigError::Zero { key } => ConfigError::Zero { key: own_key(key) },
            ConfigError::TooLarge { key, value, limit } => ConfigError::TooLarge {
                key: own_key(key),
                value,
                limit,
            },
            error => error,
        })
    }

    /// An encoder–decoder model with this decoder, which defines all that the two have in common.
    pub(crate) fn as_decoder(&self) -> TransformerConfig {
        TransformerConfig {
            src_vocab_size: self.vocab_size,
            tgt_vocab_size: self.vocab_size,
            n_encoder_layers: 1,
            n_decoder_layers: self.n_layers,
            tying: match self.tied {
                true => WeightTying::TargetGenerator,
                false => WeightTying::None,
            },
            d_model: self.d_model,
            n_heads: self.n_heads,
            decoder_n_heads: None,
            d_k: self.d_k,
            d_v: self.d_v,
            d_ff: self.d_ff,
            decoder_d_ff: None,
            norm: self.norm,
            final_norm: self.final_norm,
            layer_norm: self.layer_norm,
            layer_norm_eps: self.layer_norm_eps,
            positions: self.positions,
            attention_bias: self.attention_bias,
            generator_bias: self.generator_bias,
            embedding_scale: self.embedding_scale,
            embedding_norm: false,
            activation: self.activation,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            activation_dropout: self.activation_dropout,
            pad_id: self.pad_id,
            bos_id: self.bos_id,
            eos_id: self.eos_id,
            excluded_tokens: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named_by_its_own_keys() {
        let base = LanguageModelConfig::base(100);
        base.validate().unwrap();
        let cases = [
            (LanguageModelConfig::base(0), "`vocab_size` is 0"),
            (
                LanguageModelConfig::base(1 << 25),
                "`vocab_size` is 33554432; at most 16777216",
            ),
            (
                LanguageModelConfig {
                    n_layers: 0,
                    ..base.clone()
                },
                "`n_layers` is 0",
            ),
            (
                LanguageModelConfig {
                    n_layers: 1 << 25,
                    ..base.clone()
                },
                "`n_layers` is 33554432; at most 16777216",
            ),
            (
                LanguageModelConfig { d_ff: 0, ..base },
                "`d_ff` is 0; it must be at least 1",
            ),
        ];
        for (config, expected) in cases {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
