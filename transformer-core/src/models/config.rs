//! The configuration of a Transformer: all choices in which the paper's models and their descendants differ.

use serde::{Deserialize, Serialize};

use transformer_kernels::Activation;

use crate::models::tying::WeightTying;
use crate::nn::attention::AttentionConfig;
use crate::nn::embedding::EmbeddingConfig;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::generator::GeneratorConfig;
use crate::nn::layer::{LayerConfig, Mixer};
use crate::nn::norm::{NormConfig, NormKind};
use crate::nn::parameters::count;
use crate::nn::position_bias::PositionBiasConfig;
use crate::nn::positions::{PositionalEncodingConfig, Positions};
use crate::nn::stack::StackConfig;
use crate::nn::sublayer::{NormPlacement, SublayerConfig};
use crate::special_tokens::SpecialTokens;

/// The configuration of a [`Transformer`](crate::Transformer), or, without an encoder, of a
/// [`LanguageModel`](crate::LanguageModel).
///
/// The [`Default`], and the value of every key that is missing in `config.json`, is the paper's base model (Table 3),
/// without vocabularies.
///
/// ```
/// use transformer_core::TransformerConfig;
/// use transformer_core::nn::NormPlacement;
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
#[serde(default, deny_unknown_fields)]
pub struct TransformerConfig {
    /// Size of the source vocabulary; in a language model, which has no source, the same as `tgt_vocab_size`.
    pub src_vocab_size: usize,
    /// Size of the target vocabulary; in a language model, of its only one.
    pub tgt_vocab_size: usize,
    /// Width of the residual stream (default: 512).
    pub d_model: usize,
    /// Attention heads (default: 8).
    pub n_heads: usize,
    /// Attention heads in decoder layers; `n_heads` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_n_heads: Option<usize>,
    /// Key/value heads, each shared by a group of query heads; as many as query heads when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_kv_heads: Option<usize>,
    /// Width of a head's queries and keys; `d_model / n_heads` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_k: Option<usize>,
    /// Width of a head's values; `d_model / n_heads` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_v: Option<usize>,
    /// Inner width of the feed-forward network (default: 2048).
    pub d_ff: usize,
    /// Inner width of the feed-forward network in decoder layers; `d_ff` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_d_ff: Option<usize>,
    /// Encoder layers (default: 6). With 0, the model is a decoder-only language model.
    pub n_encoder_layers: usize,
    /// Decoder layers (default: 6).
    pub n_decoder_layers: usize,
    /// How decoder layers mix the positions of the target (default: self-attention).
    #[serde(skip_serializing_if = "is_self_attention")]
    pub decoder_mixer: Mixer,
    /// Placement of the norms (default: post-norm).
    pub norm: NormPlacement,
    /// Whether each stack ends with one more norm (default: no); a pre-norm stack needs it.
    pub final_norm: bool,
    /// Kind of norm (default: layer normalization by the variance).
    pub layer_norm: NormKind,
    /// ε of layer normalization (default: 1e-5).
    pub layer_norm_eps: f64,
    /// Kind of positional encoding (default: sinusoidal).
    pub positions: Positions,
    /// Whether the attention projections have biases (default: no).
    pub attention_bias: bool,
    /// Whether attention scores are divided by √d_k (default: yes).
    #[serde(skip_serializing_if = "bool::clone")]
    pub attention_scale: bool,
    /// Whether the linear layers of the feed-forward network have biases (default: yes).
    #[serde(skip_serializing_if = "bool::clone")]
    pub feed_forward_bias: bool,
    /// Whether the generator has a bias (default: no).
    pub generator_bias: bool,
    /// Whether the generator's input is divided by √d_model (default: no).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub generator_scale: bool,
    /// Whether embeddings are multiplied by √d_model (default: yes).
    pub embedding_scale: bool,
    /// Whether the sum of embedding and position is normalized before dropout, on both sides (default: no).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub embedding_norm: bool,
    /// Which matrices are shared (default: all three).
    pub tying: WeightTying,
    /// Non-linearity of the feed-forward network (default: ReLU).
    pub activation: Activation,
    /// Whether the feed-forward network is gated (default: no).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
    /// Dropout on sub-layer outputs and on the sum of embedding and position (default: 0.1).
    pub dropout: f64,
    /// Dropout on the attention weights (default: 0).
    pub attention_dropout: f64,
    /// Dropout inside the feed-forward network (default: 0).
    pub activation_dropout: f64,
    /// Padding, which is never attended to (default: 0). In a language model it may equal `eos_id`: then no token is
    /// padding ([`SpecialTokens::padding`]).
    pub pad_id: u32,
    /// The decoder's first input (default: 1). It may equal `pad_id` or `eos_id`: the first token of a target is
    /// attended to in any case.
    pub bos_id: u32,
    /// The end of a sentence (default: 2).
    pub eos_id: u32,
    /// The token before every source (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_bos: Option<u32>,
    /// Whether `eos_id` ends sources, too (default: yes).
    #[serde(skip_serializing_if = "bool::clone")]
    pub source_eos: bool,
    /// Whether a language model reads `bos_id` before a prompt (default: yes). If not, the first token of a prompt is
    /// read in its place, and only an empty prompt is `bos_id`.
    #[serde(skip_serializing_if = "bool::clone")]
    pub prompt_bos: bool,
    /// Target tokens that decoding excludes before the softmax, so that their probability is 0.
    /// [`Transformer::forward`](crate::Transformer::forward) and the training loss include them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded_tokens: Vec<u32>,
}

fn is_self_attention(mixer: &Mixer) -> bool {
    *mixer == Mixer::SelfAttention
}

impl Default for TransformerConfig {
    /// The paper's base model (Table 3), without a vocabulary.
    fn default() -> Self {
        let tokens = SpecialTokens::default();
        Self {
            src_vocab_size: 0,
            tgt_vocab_size: 0,
            d_model: 512,
            n_heads: 8,
            decoder_n_heads: None,
            n_kv_heads: None,
            d_k: None,
            d_v: None,
            d_ff: 2048,
            decoder_d_ff: None,
            n_encoder_layers: 6,
            n_decoder_layers: 6,
            decoder_mixer: Mixer::SelfAttention,
            norm: NormPlacement::Post,
            final_norm: false,
            layer_norm: NormKind::Variance,
            layer_norm_eps: 1e-5,
            positions: Positions::Sinusoidal,
            attention_bias: false,
            attention_scale: true,
            feed_forward_bias: true,
            generator_bias: false,
            generator_scale: false,
            embedding_scale: true,
            embedding_norm: false,
            tying: WeightTying::All,
            activation: Activation::Relu,
            gated: false,
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            pad_id: tokens.pad,
            bos_id: tokens.bos,
            eos_id: tokens.eos,
            source_bos: tokens.source_bos,
            source_eos: tokens.source_eos,
            prompt_bos: tokens.prompt_bos,
            excluded_tokens: Vec::new(),
        }
    }
}

impl TransformerConfig {
    /// Whether the model is decoder-only, a [`LanguageModel`](crate::LanguageModel).
    pub fn is_language_model(&self) -> bool {
        self.n_encoder_layers == 0
    }

    /// Width of a head's queries and keys, in the encoder.
    pub fn d_k(&self) -> usize {
        self.d_k.unwrap_or_else(|| self.share_of_head())
    }

    /// Width of a head's values, in the encoder.
    pub fn d_v(&self) -> usize {
        self.d_v.unwrap_or_else(|| self.share_of_head())
    }

    /// The width of a head; 0 without heads, which [`validate`](Self::validate) rejects.
    fn share_of_head(&self) -> usize {
        self.d_model.checked_div(self.n_heads).unwrap_or(0)
    }

    /// Attention heads in decoder layers.
    pub fn decoder_n_heads(&self) -> usize {
        self.decoder_n_heads.unwrap_or(self.n_heads)
    }

    /// Inner width of the feed-forward network in decoder layers.
    pub fn decoder_d_ff(&self) -> usize {
        self.decoder_d_ff.unwrap_or(self.d_ff)
    }

    /// The maximum sequence length; `None` if there is no limit.
    pub fn max_len(&self) -> Option<usize> {
        match self.positions {
            Positions::Learned { max_len } => Some(max_len),
            _ => None,
        }
    }

    /// The configuration of the encoder.
    pub fn encoder(&self) -> StackConfig {
        let layer = self.layer(self.n_heads, self.d_ff);
        self.stack(layer, self.n_encoder_layers, true)
    }

    /// The configuration of the decoder, with cross-attention unless the model is a language model.
    pub fn decoder(&self) -> StackConfig {
        let layer = LayerConfig {
            mixer: self.decoder_mixer,
            ..self.layer(self.decoder_n_heads(), self.decoder_d_ff())
        };
        let layer = match self.is_language_model() {
            true => layer,
            false => layer.with_memory(),
        };
        self.stack(layer, self.n_decoder_layers, false)
    }

    fn stack(&self, layer: LayerConfig, n_layers: usize, both_ways: bool) -> StackConfig {
        let n_heads = layer.self_attention.n_heads;
        let bias = self.positions.bias(both_ways);
        StackConfig::new(layer, n_layers)
            .with_final_norm(self.final_norm)
            .with_position_bias(
                bias.map(|kind| PositionBiasConfig::new(kind, n_heads, self.d_model)),
            )
    }

    fn layer(&self, n_heads: usize, d_ff: usize) -> LayerConfig {
        LayerConfig {
            self_attention: AttentionConfig::new(self.d_model, n_heads)
                .with_n_kv_heads(self.n_kv_heads)
                .with_d_k(self.d_k)
                .with_d_v(self.d_v)
                .with_rotary_base(self.positions.rotary_base())
                .with_max_distance(self.positions.max_distance())
                .with_bias(self.attention_bias)
                .with_scaled(self.attention_scale)
                .with_dropout(self.attention_dropout),
            mixer: Mixer::SelfAttention,
            cross_attention: None,
            feed_forward: FeedForwardConfig::new(self.d_model, d_ff)
                .with_activation(self.activation)
                .with_gated(self.gated)
                .with_bias(self.feed_forward_bias)
                .with_dropout(self.activation_dropout),
            sublayer: SublayerConfig::new(self.norm_config())
                .with_placement(self.norm)
                .with_dropout(self.dropout),
        }
    }

    /// The configuration of every norm of the model.
    pub(crate) fn norm_config(&self) -> NormConfig {
        NormConfig::new(self.d_model)
            .with_epsilon(self.layer_norm_eps)
            .with_kind(self.layer_norm)
    }

    /// The configuration of the embedding for a vocabulary of this size.
    pub fn embedding(&self, vocab_size: usize) -> EmbeddingConfig {
        EmbeddingConfig::new(vocab_size, self.d_model)
            .with_scaled(self.embedding_scale)
            .with_tied(self.tying.ties_generator())
    }

    /// The configuration of the positional encoding of either side.
    pub fn positional_encoding(&self) -> PositionalEncodingConfig {
        PositionalEncodingConfig::new(self.d_model).with_positions(self.positions)
    }

    /// The configuration of the projection to logits.
    pub fn generator(&self) -> GeneratorConfig {
        GeneratorConfig::new(self.d_model, self.tgt_vocab_size)
            .with_tied(self.tying.ties_generator())
            .with_bias(self.generator_bias)
            .with_scaled(self.generator_scale)
    }

    /// The ids of the special tokens.
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens {
            pad: self.pad_id,
            bos: self.bos_id,
            eos: self.eos_id,
            source_bos: self.source_bos,
            source_eos: self.source_eos,
            prompt_bos: self.prompt_bos,
        }
    }

    /// Number of trainable parameters of a model with this configuration; tied ones count once.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    ///
    /// // The figure that the reference system paper-readme prints.
    /// let config = TransformerConfig::paper_readme(10_000, 10_000);
    /// assert_eq!(config.num_params(), 59_463_680);
    /// ```
    pub fn num_params(&self) -> u128 {
        let layers = |stack: StackConfig| stack.n_layers as u128 * count(&stack.layer.parameters());
        count(&self.parameters(0)) + layers(self.encoder()) + layers(self.decoder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::presets::Table3;

    #[test]
    fn a_config_with_only_vocabularies_is_the_paper_s_base_model() {
        let config: TransformerConfig =
            serde_json::from_str(r#"{"src_vocab_size": 100, "tgt_vocab_size": 100}"#).unwrap();
        assert_eq!(config, TransformerConfig::base(100));
    }

    /// The keys that pretrained models need, none of them at its default.
    fn pretrained() -> TransformerConfig {
        TransformerConfig {
            decoder_n_heads: Some(4),
            decoder_d_ff: Some(1024),
            embedding_norm: true,
            positions: Positions::SinesThenCosines {
                inclusive: true,
                first: 2,
            },
            bos_id: 0,
            excluded_tokens: vec![0, 7],
            ..TransformerConfig::base(100)
        }
    }

    /// Files without these keys stay the same.
    #[test]
    fn keys_of_pretrained_models_are_written_where_they_are_set() {
        let keys = [
            "decoder_n_heads",
            "decoder_d_ff",
            "embedding_norm",
            "excluded_tokens",
        ];
        for (config, written) in [(TransformerConfig::base(100), false), (pretrained(), true)] {
            let json = serde_json::to_value(config).unwrap();
            for key in keys {
                assert_eq!(json.get(key).is_some(), written, "{key}");
            }
        }
        let json = serde_json::to_value(pretrained()).unwrap();
        let positions = serde_json::json!({"sines-then-cosines": {"inclusive": true, "first": 2}});
        assert_eq!(json["positions"], positions);
    }

    #[test]
    fn the_start_token_may_be_that_which_pads_or_ends() {
        for bos_id in [0, 2] {
            let config = TransformerConfig {
                bos_id,
                ..TransformerConfig::base(100)
            };
            config.validate().unwrap();
        }
    }

    #[test]
    fn a_decoder_s_layer_may_have_other_heads_and_another_inner_width() {
        let config = pretrained();
        let [encoder, decoder] = [config.encoder().layer, config.decoder().layer];
        let d_ff = |layer: &LayerConfig| layer.feed_forward.d_ff;
        assert_eq!((d_ff(&encoder), d_ff(&decoder)), (2048, 1024));
        let heads = |layer: &LayerConfig| {
            let heads = layer.self_attention.heads();
            (heads.n_heads, heads.d_k, heads.d_v)
        };
        assert_eq!(
            (heads(&encoder), heads(&decoder)),
            ((8, 64, 64), (4, 128, 128))
        );
        let same = TransformerConfig::base(100);
        assert_eq!(same.encoder().layer.with_memory(), same.decoder().layer);
        // Each of the six layers has two matrices and one bias of that width.
        let narrower = TransformerConfig {
            decoder_d_ff: Some(1024),
            ..same.clone()
        };
        let difference = same.num_params() - narrower.num_params();
        assert_eq!(difference, 6 * 1024 * (2 * 512 + 1));
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
            pretrained(),
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
                    decoder_n_heads: Some(7),
                    ..base.clone()
                },
                "512 is not divisible by `decoder_n_heads` 7",
            ),
            (
                TransformerConfig {
                    decoder_n_heads: Some(512),
                    positions: Positions::Rotary { base: 10_000.0 },
                    ..base.clone()
                },
                "`d_k` 1 is odd; rotary `positions` need an even head width",
            ),
            (
                TransformerConfig {
                    positions: Positions::Rotary {
                        base: f64::INFINITY,
                    },
                    ..base.clone()
                },
                "`base` is inf; it must be at least 1",
            ),
            (
                TransformerConfig {
                    n_kv_heads: Some(3),
                    ..base.clone()
                },
                "`n_heads` 8 is not divisible by `n_kv_heads` 3",
            ),
            (
                TransformerConfig {
                    n_kv_heads: Some(4),
                    decoder_n_heads: Some(2),
                    ..base.clone()
                },
                "`decoder_n_heads` 2 is not divisible by `n_kv_heads` 4",
            ),
            (
                TransformerConfig {
                    n_kv_heads: Some(0),
                    ..base.clone()
                },
                "`n_kv_heads` is 0",
            ),
            (
                TransformerConfig {
                    decoder_n_heads: Some(0),
                    ..base.clone()
                },
                "`decoder_n_heads` is 0",
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
                    pad_id: 2,
                    ..base.clone()
                },
                "`pad_id` and `eos_id` are both 2",
            ),
            (
                TransformerConfig {
                    decoder_d_ff: Some(0),
                    ..base.clone()
                },
                "`decoder_d_ff` is 0",
            ),
            (
                TransformerConfig {
                    excluded_tokens: vec![0, 100],
                    ..base.clone()
                },
                "`excluded_tokens` has 100, outside the vocabulary of 100",
            ),
            (
                TransformerConfig {
                    excluded_tokens: vec![0, 2],
                    ..base.clone()
                },
                "`excluded_tokens` has 2, which is `eos_id`",
            ),
            (
                TransformerConfig {
                    d_model: 2,
                    n_heads: 1,
                    decoder_n_heads: None,
                    ..pretrained()
                },
                "`d_model` 2 has a single frequency",
            ),
            (
                TransformerConfig {
                    positions: Positions::SinesThenCosines {
                        inclusive: false,
                        first: 1 << 25,
                    },
                    ..base.clone()
                },
                "`first` is 33554432; at most 16777216",
            ),
            (
                TransformerConfig {
                    positions: Positions::RelativeBias {
                        buckets: 3,
                        max_distance: 128,
                    },
                    ..base.clone()
                },
                "`buckets` is 3 and `max_distance` 128",
            ),
            (
                TransformerConfig {
                    positions: Positions::RelativeBias {
                        buckets: 32,
                        max_distance: 16,
                    },
                    ..base.clone()
                },
                "`buckets` is 32 and `max_distance` 16",
            ),
            (
                TransformerConfig {
                    positions: Positions::Alibi,
                    decoder_mixer: Mixer::Recurrence,
                    ..base.clone()
                },
                "`positions` act in self-attention, but `decoder_mixer` is a recurrence",
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

    #[test]
    fn sines_before_cosines_may_be_of_an_odd_width() {
        for inclusive in [false, true] {
            let config = TransformerConfig {
                d_model: 9,
                n_heads: 3,
                decoder_n_heads: None,
                positions: Positions::SinesThenCosines {
                    inclusive,
                    first: 0,
                },
                ..pretrained()
            };
            config.validate().unwrap();
        }
    }

    /// Only `validate` reports the error.
    #[test]
    fn a_config_without_heads_can_be_asked_for_its_sizes() {
        let config = TransformerConfig {
            n_heads: 0,
            ..TransformerConfig::base(100)
        };
        assert_eq!((config.d_k(), config.d_v()), (0, 0));
        assert!(config.num_params() > 0);
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "`n_heads` is 0; it must be at least 1");
    }

    /// The start of a target need not be in the vocabulary of sources, and the other way.
    #[test]
    fn special_tokens_are_in_the_vocabularies_that_they_are_read_from() {
        let config = |src, tgt, bos_id, source_bos| TransformerConfig {
            src_vocab_size: src,
            tgt_vocab_size: tgt,
            bos_id,
            source_bos,
            tying: WeightTying::None,
            ..TransformerConfig::base(1000)
        };
        assert!(config(500, 1000, 600, None).validate().is_ok());
        assert!(config(1000, 500, 1, Some(600)).validate().is_ok());
        assert!(config(1000, 500, 600, None).validate().is_err());
        assert!(config(500, 1000, 1, Some(600)).validate().is_err());
    }
}
