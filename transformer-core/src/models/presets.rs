//! Presets: the paper's models, and those of the reference systems.

use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// A row of the paper's Table 3: one variation of the base model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table3 {
    /// Row A: heads, with `d_k = d_v = d_model / n_heads` (the paper tries 1, 4, 16 and 32).
    Heads(usize),
    /// Row B: width of queries and keys, with `d_v` still 64 (16 and 32).
    KeySize(usize),
    /// Row C: layers of each stack (2, 4 and 8).
    Layers(usize),
    /// Row C: `d_model`, with `d_k = d_v` (256 with 32, 1024 with 128).
    Width(usize),
    /// Row C: `d_ff` (1024 and 4096).
    FeedForward(usize),
    /// Row D: residual dropout in hundredths (0 and 20).
    DropoutPercent(u8),
    /// Row E: number of learned positions.
    LearnedPositions(usize),
}

impl TransformerConfig {
    /// The paper's base model (Table 3): 63.0 M parameters with a shared vocabulary of 37 000 pieces; the table
    /// has 65 M.
    pub fn base(vocab_size: usize) -> Self {
        Self {
            src_vocab_size: vocab_size,
            tgt_vocab_size: vocab_size,
            ..Self::default()
        }
    }

    /// A language model: the decoder of the paper's base model, with embedding and generator tied.
    pub fn language_model(vocab_size: usize) -> Self {
        Self {
            n_encoder_layers: 0,
            tying: WeightTying::TargetGenerator,
            ..Self::base(vocab_size)
        }
    }

    /// The paper's big model (Table 3): 214.2 M parameters with a shared vocabulary of 37 000 pieces; the
    /// table has 213 M.
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

    /// The reference system notebook-mini: two post-norm layers per stack, a shared embedding for source and target
    /// that is not scaled, no dropout.
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

    /// The reference system paper-readme: the base model without tied weights, with a final norm on each stack, and
    /// with dropout also on the attention weights and inside the feed-forward network.
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

    /// The reference system prenorm-notebook: two pre-norm layers of width 64 per stack.
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

    /// The reference system learned-positions: the base model with learned positions, `d_ff = d_model`, and dropout
    /// 0.2.
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

    /// The base model with PyTorch's `torch.nn.Transformer`, as in PyTorch's translation tutorial: biases everywhere, a
    /// final norm on each stack, dropout also on the attention weights and inside the feed-forward network, no tied
    /// weights.
    pub fn torch_nn(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            attention_bias: true,
            generator_bias: true,
            ..Self::paper_readme(src_vocab_size, tgt_vocab_size)
        }
    }

    /// The base model of The Annotated Transformer: [`torch_nn`](Self::torch_nn) with pre-norm and another formula of
    /// layer normalization.
    pub fn annotated(src_vocab_size: usize, tgt_vocab_size: usize) -> Self {
        Self {
            norm: NormPlacement::Pre,
            layer_norm: NormKind::UnbiasedDeviation,
            layer_norm_eps: 1e-6,
            ..Self::torch_nn(src_vocab_size, tgt_vocab_size)
        }
    }
}
