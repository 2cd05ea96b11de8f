//! Model sizes by name.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use transformer_core::TransformerConfig;

/// Model sizes. By default, each has one vocabulary and one embedding matrix for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// d_model 128, d_ff 512, 4 heads, 2 + 2 layers, dropout 0.1
    Tiny,
    /// d_model 128, d_ff 256, 4 heads, 4 + 4 layers, dropout 0.3, for about 30 000 pairs
    Multi30k,
    /// d_model 256, d_ff 1024, 4 heads, 3 + 3 layers, dropout 0.1
    Small,
    /// d_model 512, d_ff 2048, 8 heads, 6 + 6 layers, dropout 0.1, the paper's base model
    Base,
    /// d_model 1024, d_ff 4096, 16 heads, 6 + 6 layers, dropout 0.3, the paper's big model
    Big,
}

impl Preset {
    /// The configuration, with one vocabulary of this size for source and target.
    pub fn config(self, vocab_size: usize) -> TransformerConfig {
        let base = TransformerConfig::base(vocab_size);
        // As in torch.nn.Transformer, small models have final norms, biases in the attention projections and more
        // dropout, which the paper's models lack. These help with little text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_a_preset_has_its_sizes() {
        for preset in Preset::value_variants() {
            let config = preset.config(4);
            let expected = format!(
                "d_model {}, d_ff {}, {} heads, {} + {} layers, dropout {}",
                config.d_model,
                config.d_ff,
                config.n_heads,
                config.n_encoder_layers,
                config.n_decoder_layers,
                config.dropout
            );
            let value = preset.to_possible_value().expect("a value of a flag");
            let help = value.get_help().expect("a help text").to_string();
            assert!(help.starts_with(&expected), "{help}");
        }
    }
}
