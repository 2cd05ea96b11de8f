//! Models by name.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use transformer_core::TransformerConfig;

/// Sizes of model. All share one vocabulary and one embedding matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// d_model 128, 2 + 2 layers
    Tiny,
    /// d_model 128, 4 + 4 layers, dropout 0.3 everywhere: for some 30 000 pairs
    Multi30k,
    /// d_model 256, 3 + 3 layers
    Small,
    /// The paper's base model: d_model 512, 6 + 6 layers
    Base,
    /// The paper's big model: d_model 1024, 6 + 6 layers
    Big,
}

impl Preset {
    /// The configuration, with one vocabulary of this size for source and target.
    pub fn config(self, vocab_size: usize) -> TransformerConfig {
        let base = TransformerConfig::base(vocab_size);
        // The final norms, biases and dropout that torch.nn.Transformer has and the paper lacks help small
        // models on little text.
        let small = TransformerConfig {
            final_norm: true,
            attention_bias: true,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            ..base.clone()
        };
        match self {
            Self::Tiny => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 512,
                n_encoder_layers: 2,
                n_decoder_layers: 2,
                ..small
            },
            Self::Multi30k => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 256,
                n_encoder_layers: 4,
                n_decoder_layers: 4,
                dropout: 0.3,
                attention_dropout: 0.3,
                activation_dropout: 0.3,
                ..small
            },
            Self::Small => TransformerConfig {
                d_model: 256,
                n_heads: 4,
                d_ff: 1024,
                n_encoder_layers: 3,
                n_decoder_layers: 3,
                ..small
            },
            Self::Base => base,
            Self::Big => TransformerConfig::big(vocab_size),
        }
    }
}
